"""Policies with a memory of their episode, and those that read missions: they act as a plain loop of PyTorch does."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope.agents.agent import Observation, build_agent
from goalscope.agents.policies import MOST_WORDS, tokens
from goalscope.environments import WORDS, EnvironmentWorld, PolicyAgent, read_policy, save_policy
from goalscope.runs import Episode, Store, Study, content_hash, run
from tampered import resealed_policy

torch: Any = pytest.importorskip("torch", reason="the extra lm is not installed")
safetensors_numpy: Any = pytest.importorskip("safetensors.numpy", reason="the extra lm is not installed")
nn = torch.nn
LEVELS = {"kind": "minigrid", "levels": ["MiniGrid-MemoryS7-v0"], "seeds": [1, 2, 3, 4, 5, 6], "array": "image"}
SEED = 11
Step = Callable[[Any, Any], tuple[Any, Any]]
"""One step of a plain loop: what is shown and the state before (None at the beginning) -> logits and state."""


@pytest.fixture(autouse=True)
def _one_seed() -> None:
    torch.manual_seed(0)


def chances(step: Step, shown: Sequence[Any]) -> list[Any]:
    """Return the probabilities ``[A]`` of each step of an episode, by a loop of PyTorch."""
    state, found = None, []
    with torch.no_grad():
        for array in shown:
            logits, state = step(torch.tensor(np.asarray(array), dtype=torch.float32), state)
            found.append(torch.softmax(logits, -1).numpy())
    return found


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
@pytest.mark.parametrize("cell", [False, True])
def test_memory_is_that_of_pytorch_and_begins_anew(name: str, cell: bool, tmp_path: Path) -> None:
    first, last = getattr(nn, f"{name}Cell" if cell else name)(5, 6), nn.Linear(6, 3)
    more = [] if cell else [getattr(nn, name)(6, 6, num_layers=2)]

    def step(shown: Any, state: Any) -> tuple[Any, Any]:
        if cell:
            state = first(shown[None], state)
            return last(state[0] if name == "LSTM" else state)[0], state
        before = state or (None, None)
        values, now = first(shown[None], before[0])
        values, later = more[0](values, before[1])
        return last(values)[0], (now, later)

    network = read_policy(save_policy([first, *more, last], tmp_path / "a.policy"))
    shown = np.random.default_rng(1).normal(size=(7, 5))
    for _ in range(2):
        memory = network.begin()
        for array, wanted in zip(shown, chances(step, [*shown]), strict=True):
            found, memory = network.step(array, memory)
            np.testing.assert_allclose(found, wanted, atol=1e-6)


class WithText(nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """The network that is usual for MiniGrid and BabyAI (ACModel of torch-ac's starter files), smaller."""

    def __init__(self, words: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 4, (2, 2)), nn.ReLU(), nn.MaxPool2d((2, 2)), nn.Conv2d(4, 6, (2, 2)), nn.ReLU()]
        self.image_conv = nn.Sequential(*layers, nn.Conv2d(6, 8, (1, 1)), nn.ReLU())
        self.memory_rnn = nn.LSTMCell(32, 32)
        self.word_embedding, self.text_rnn = nn.Embedding(words, 5), nn.GRU(5, 7, batch_first=True)
        self.actor = nn.Sequential(nn.Linear(39, 9), nn.Tanh(), nn.Linear(9, 7))

    def step(self, picture: Any, text: Any, state: Any) -> tuple[Any, Any]:
        values = self.image_conv(picture[None].transpose(1, 3).transpose(2, 3)).reshape(1, -1)
        state = self.memory_rnn(values, state)
        _, kept = self.text_rnn(self.word_embedding(text[None]))
        return self.actor(torch.cat((state[0], kept[-1]), dim=1))[0], state


@pytest.mark.parametrize("own", long_after(1, [False, True]))
def test_a_policy_that_reads_missions_acts_as_its_network(own: bool, tmp_path: Path) -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    numbers = {word: number for number, word in enumerate(WORDS, 1)}
    vocabulary = {word: 1 + (7 * number) % 60 for word, number in numbers.items()} if own else numbers
    model = WithText(70)
    layers = [*model.image_conv, model.memory_rnn, (model.word_embedding, model.text_rnn), *model.actor]
    path = save_policy(layers, tmp_path / "a.policy", transposed=True, vocabulary=vocabulary)
    world = {"kind": "minigrid", "levels": ["BabyAI-GoToObj-v0"], "seeds": [1, 2, 3, 4]}
    study = Study.parse(
        {
            "worlds": [{**world, "array": "image-tokens"}],
            "agents": [{"kind": "policy", "file": str(path)}],
            "trajectories": 2,
            "seed": SEED,
            "horizon": {"steps": 6},
        }
    )
    run(study, tmp_path / "run")
    missions = set()
    with Store(tmp_path / "run") as store:
        for episode in store.episodes():
            shown = views(episode)
            pictures = [array[:147].reshape(7, 7, 3) for array in shown]
            words = [WORDS[number - 1] for number in shown[0][147:] if number]
            missions.add(" ".join(words))
            text = torch.tensor([vocabulary[word] for word in words])

            def step(picture: Any, state: Any, text: Any = text) -> tuple[Any, Any]:
                return model.step(picture, text, state)

            wanted = chances(step, pictures)
            assert drawn(episode, wanted) == [step.action for step in episode.steps]
    assert len(missions) > 2 and all(one.startswith("go to the ") for one in missions)


def test_words_outside_of_a_vocabulary_are_refused(tmp_path: Path) -> None:
    known = {"go": 1, "to": 2}
    layers = [(nn.Embedding(3, 4), nn.GRU(4, 4)), nn.Linear(7, 2)]
    network = read_policy(save_policy(layers, tmp_path / "a.policy", vocabulary=known))
    network.probabilities(np.concatenate([np.zeros(3), tokens("go to")]))
    with pytest.raises(ValueError, match="2 words"):
        network.probabilities(np.concatenate([np.zeros(3), tokens("go to the")]))
    with pytest.raises(ValueError, match="image-tokens"):
        network.probabilities(np.concatenate([np.zeros(3), np.full(MOST_WORDS, 0.5)]))
    with pytest.raises(ValueError, match="quarrel"):
        tokens("go to the quarrel")
    for words in (nn.Linear(3, 4), nn.GRU(4, 4, num_layers=2), nn.GRU(4, 4, bidirectional=True)):
        with pytest.raises(ValueError, match="LSTM or GRU"):
            save_policy([(nn.Embedding(3, 4), words), nn.Linear(7, 2)], tmp_path / "b.policy")


@pytest.mark.parametrize("padded", [0, 9])
def test_missions_are_read_as_far_as_in_training(padded: int, tmp_path: Path) -> None:
    embedding, cell, last = nn.Embedding(len(WORDS) + 1, 4), nn.LSTM(4, 5), nn.Linear(8, 3)
    network = read_policy(save_policy([(embedding, cell), last], tmp_path / "a.policy", padded=padded))
    ids = tokens("go to the red ball")
    with torch.no_grad():
        _, (kept, _) = cell(embedding(torch.tensor(ids[: padded or 5].astype(int))))
        wanted = torch.softmax(last(torch.cat([torch.ones(3), kept[-1]])), -1).numpy()
    np.testing.assert_allclose(network.probabilities(np.concatenate([np.ones(3), ids])), wanted, atol=1e-6)


@pytest.mark.full
@pytest.mark.filterwarnings("default")  # of levels that have a later version
def test_the_words_are_those_of_all_missions() -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    levels = [name for name in gymnasium.registry if re.match(r"(MiniGrid-(?!WFC)|BabyAI-)", name)]
    read = set()
    for name in levels:
        real = gymnasium.make(name, disable_env_checker=True).unwrapped
        for seed in range(20):
            real.reset(seed=seed)
            read |= set(tokens(str(real.mission)).tolist())
    assert len(levels) > 150 and len(read) > 50


def views(episode: Episode) -> list[Any]:
    """Return what an episode showed, ``[T]`` arrays, by playing its actions in its world."""
    assert isinstance(episode.world, EnvironmentWorld)
    session, found = episode.world.begin(np.random.default_rng(0)), []
    for step in episode.steps:
        found.append(session.view.observed.array)
        assert step.action is not None
        session.step(step.action)
    return found


def drawn(episode: Episode, wanted: Sequence[Any]) -> list[int]:
    """Return the actions that the random numbers of an episode draw from probabilities."""
    assert isinstance(episode.world, EnvironmentWorld)
    view = episode.world.begin(np.random.default_rng(0)).view
    at = [Observation(view=view, step=step, episode_id=episode.id, seed=SEED) for step in range(len(wanted))]
    return [one.draw(found.tolist()) for one, found in zip(at, wanted, strict=True)]


def looking_back(world: EnvironmentWorld) -> tuple[list[Any], list[int]]:
    """Return what is seen on a way that looks at the object behind before it goes to its like, and the actions."""
    optimal, table = world.believed.solved.optimal, world.believed.table
    assert optimal is not None
    session = world.begin(np.random.default_rng(0))
    shown, actions = list[Any](), list[int]()
    while not session.done:
        plan = [0, 0, 0, 0]  # all the way round
        action = plan[len(actions)] if len(actions) < 4 else int(np.flatnonzero(optimal[session.view.number])[0])
        shown.append(session.view.observed.array)
        actions.append(action)
        session.step(action)
    assert table.deterministic
    return shown, actions


def trained(worlds: Sequence[EnvironmentWorld], steps: int = 250) -> list[Any]:
    """Return a GRU that was taught such ways."""
    flat, gru, last = nn.Flatten(), nn.GRU(147, 24), nn.Linear(24, 7)
    ways = [looking_back(world) for world in worlds]
    optimizer = torch.optim.Adam([*gru.parameters(), *last.parameters()], lr=0.01)
    for _ in range(steps):
        loss = torch.zeros(())
        for shown, actions in ways:
            seen = torch.tensor(np.array(shown).reshape(len(shown), -1) / 10, dtype=torch.float32)
            loss = loss + nn.functional.cross_entropy(last(gru(seen)[0]), torch.tensor(actions))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [flat, gru, last]


@pytest.mark.full
def test_a_trained_memory_finds_what_it_saw_and_each_episode_begins_anew(tmp_path: Path) -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    parsed = {"worlds": [LEVELS], "trajectories": 2, "horizon": {"factor": 3}, "seed": SEED}
    worlds = list(Study.parse({**parsed, "agents": [{"kind": "random"}]}).worlds())
    assert all(isinstance(one, EnvironmentWorld) for one in worlds)
    flat, gru, last = trained(worlds)  # type: ignore[arg-type]
    path = save_policy([flat, gru, last], tmp_path / "looks.policy", divided=10)
    agents = [{"kind": "policy", "file": str(path)}]
    study = Study.parse(
        {**parsed, "agents": [*agents, {"kind": "policy", "file": str(path), "drawn": False, "name": "best"}]}
    )
    run(study, tmp_path / "run")

    def step(shown: Any, state: Any) -> tuple[Any, Any]:
        values, state = gru(shown.ravel()[None] / 10, state)
        return last(values)[0], state

    with Store(tmp_path / "run") as store:
        episodes = list(store.episodes())
    assert len(episodes) == 24
    for episode in episodes:
        wanted = chances(step, views(episode))
        taken = [int(one.argmax()) for one in wanted] if episode.agent == "best" else drawn(episode, wanted)
        assert taken == [one.action for one in episode.steps]
    assert all(one.outcome == "goal" for one in episodes if one.agent == "best"), "all six, by what was seen behind"
    # Without its memory the same network does something else.
    forgets = [int(one.argmax()) for one in np.concatenate([chances(step, [one]) for one in views(episodes[-1])])]
    assert forgets != [one.action for one in episodes[-1].steps]
    # One world at a time, as an episode that is asked alone.
    alone = Study.parse({**parsed, "worlds": [{**LEVELS, "seeds": [6]}], "agents": agents})
    run(alone, tmp_path / "alone")
    with Store(tmp_path / "alone") as store:
        by_id = {one.id: [step.action for step in one.steps] for one in store.episodes()}
    together = {one.id: [step.action for step in one.steps] for one in episodes}
    assert by_id and all(together[name] == actions for name, actions in by_id.items())
    run(study, tmp_path / "again", workers=2)
    with Store(tmp_path / "run") as one, Store(tmp_path / "again") as other:
        assert content_hash(one) == content_hash(other)


def test_what_came_before_must_be_shown(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    world = EnvironmentWorld.make("gymnasium", {"name": "FrozenLake-v1", "options": {"is_slippery": False}})
    path = save_policy([nn.GRU(16, 4), nn.Linear(4, 4)], tmp_path / "a.policy")
    agent = build_agent("policy", {"file": str(path)})
    view = world.begin(np.random.default_rng(0)).view
    assert agent.act([Observation(view=view)])
    with pytest.raises(ValueError, match=r"3 .*got 0"):
        agent.act([Observation(view=view, step=3)])

    class Recurrent:
        def predict(self, shown: Any, deterministic: bool = False) -> tuple[Any, Any]:
            return np.zeros(1), np.zeros(3)

    with pytest.raises(ValueError, match="save_policy"):
        PolicyAgent(policy=Recurrent(), name="a", identity={"a": 1}).act([Observation(view=view)])


def test_layers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = save_policy([nn.GRU(16, 4), nn.Linear(4, 4)], tmp_path / "a.policy")
    arrays = safetensors_numpy.load_file(path)
    for form, changed in (
        ({"cells": ["gri"]}, {}),
        ({}, {"0.kept_bias": None, "0.kepl_bias": arrays["0.kept_bias"]}),
        ({}, {"0.weight": None, "7.weight": arrays["0.weight"]}),
    ):
        with pytest.raises(ValueError, match=r"save_policy|layer 0"):
            read_policy(resealed_policy(path, tmp_path / "b.policy", form, changed))
    for modules in ([nn.RNN(3, 4)], [nn.LSTM(3, 4, proj_size=2)], [nn.Conv2d(3, 4, 2), nn.MaxPool2d(2, stride=1)]):
        with pytest.raises(ValueError, match="made of"):
            save_policy([*modules, nn.Linear(4, 2)], tmp_path / "c.policy")
