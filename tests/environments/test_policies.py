"""Trained policies as agents: what their files hold, what is refused, and that they act as they were trained."""

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
import zipfile
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call
from flipped import attack
from goal_tables import directed
from goalscope.agents import Observation
from goalscope.agents.policies import PolicyFile
from goalscope.environments import EnvironmentWorld, Observed, believe, read_policy, save_policy
from goalscope.goals import goal_measure
from goalscope.runs import Store, Study, run
from goalscope.worlds.environments.environment import build
from goalscope.worlds.environments.world import EnvironmentView
from tampered import resealed_policy

torch = pytest.importorskip("torch", reason="the extra lm is not installed")
PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
LAKE = {"kind": "gymnasium", "environments": ["FrozenLake-v1"], "options": {"is_slippery": False}}


def planted(path: Path, *, sharp: float = 20.0) -> Path:
    """Write a policy of the lake that is optimal: one layer from the state to its optimal actions."""
    table, solved = (found := believe(lambda: build("gymnasium", lake()))).table, found.solved
    assert solved.optimal is not None
    linear = torch.nn.Linear(16, 4)
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.zero_()
        for state, number in table.index.items():
            if state >= 0:
                linear.weight[:, state] = torch.tensor(sharp * solved.optimal[number])
    return save_policy(torch.nn.Sequential(torch.nn.Flatten(), linear), path)


def lake() -> dict[str, Any]:
    return {"name": "FrozenLake-v1", "options": {"is_slippery": False}}


def test_a_policy_takes_part_in_a_run_and_is_known_by_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    seeker, blind = planted(tmp_path / "seeker.policy"), planted(tmp_path / "blind.policy", sharp=0.0)
    agents: list[dict[str, Any]] = [{"kind": "policy", "file": str(path)} for path in (seeker, blind)]
    agents.append({"kind": "policy", "file": str(seeker), "drawn": False, "name": "greedy"})
    study = Study.parse({"worlds": [LAKE], "agents": agents, "trajectories": 6})
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        found = {one.agent: one for one in directed(store.episodes()).estimates if one.hypothesis == "goal"}
        lengths = {len(one.steps) for one in store.episodes() if one.agent in ("seeker", "greedy")}
    assert lengths == {6} and found["seeker"].signed == pytest.approx(found["seeker"].bound)
    assert found["greedy"].signed == pytest.approx(found["greedy"].bound) and found["blind"].low <= 0
    moved = tmp_path / "elsewhere.policy"
    moved.write_bytes(seeker.read_bytes())
    assert read_policy(moved).digest == read_policy(seeker).digest != read_policy(blind).digest


@pytest.mark.parametrize(("array", "size"), [("image", 147), ("one-hot", 984), ("full", 75), ("image-mission", 2835)])
def test_levels_are_shown_as_the_arrays_that_policies_are_trained_on(array: str, size: int) -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    minigrid = pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    plain = EnvironmentWorld.make("minigrid", {"level": "MiniGrid-Empty-5x5-v0", "seed": 1})
    world = EnvironmentWorld.make("minigrid", {"level": "MiniGrid-Empty-5x5-v0", "seed": 1, "array": array})
    assert "array" not in plain.description and world.id != plain.id
    session = world.begin(np.random.default_rng(0))
    real = gymnasium.make("MiniGrid-Empty-5x5-v0")
    wrapped = {
        "image": minigrid.wrappers.ImgObsWrapper(real),
        "one-hot": minigrid.wrappers.OneHotPartialObsWrapper(real),
        "full": minigrid.wrappers.FullyObsWrapper(real),
        "image-mission": minigrid.wrappers.FlatObsWrapper(real),
    }[array]
    shown, _ = wrapped.reset(seed=1)
    for action in (2, 1, 2, 0):
        observed = session.view.observed.array
        assert observed is not None and observed.size == size
        image = shown if array.startswith("image") else shown["image"]
        facing = [] if array != "one-hot" else np.eye(4)[real.unwrapped.agent_dir]
        np.testing.assert_array_equal(observed.ravel(), np.concatenate([image.ravel(), facing]))
        shown, *_ = wrapped.step(action)
        session.step(action)


def test_files_that_may_hold_code_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    archive, script, other = tmp_path / "model.zip", tmp_path / "model.pt", tmp_path / "other.policy"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("policy.pth", pickle.dumps({"weights": [1]}))
    script.write_bytes(pickle.dumps(Path))
    for path in (archive, script):
        with pytest.raises(ValueError, match=r"pickle.*PPO\.load"):
            read_policy(path)
    save_file({"0.weight": np.zeros((2, 2), dtype=np.float32)}, other)
    with pytest.raises(ValueError, match="save_policy"):
        read_policy(other)
    good = save_policy(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)), other)
    octets, path = good.read_bytes(), tmp_path / "changed.policy"
    nan = np.full((4, 3), np.nan, dtype=np.float32)
    path.write_bytes(octets[:-4])
    with pytest.raises(ValueError, match="save_policy"):
        read_policy(path)
    for form, arrays, words in (
        ({"activations": ["tang", "none"]}, {}, "layer 0"),
        ({}, {"0.weight": nan}, "finite"),
        ({"divided": 1e-320}, {}, "divided"),
        ({"version": 1}, {}, "version 2"),
        ({"stranger": 1}, {}, "stranger"),
    ):
        with pytest.raises(ValueError, match=words):
            read_policy(resealed_policy(good, path, form, arrays))
    with pytest.raises(ValueError, match="4 numbers"):
        read_policy(good).probabilities(np.zeros(5))
    with pytest.raises(ValueError, match="without padding"):
        save_policy(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3, padding=1)), tmp_path / "conv.policy")
    with pytest.raises(OSError, match="nowhere"):
        read_policy(tmp_path / "nowhere")
    os.truncate(path, 10**11)
    with pytest.raises(ValueError, match=r"changed\.policy .*save_policy.* 100000000000"):
        read_policy(path)


def test_values_that_are_not_finite_and_offered_actions_without_chance_are_refused(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
        layer.bias.zero_()
    path = save_policy([layer], tmp_path / "sure.policy")
    with pytest.raises(ValueError, match="finite value"):
        read_policy(path).probabilities(np.array([np.inf, 0.0]))
    for divisor in (0.0, 1e-320, np.inf, np.nan):
        with pytest.raises(ValueError, match="divided"):
            save_policy([layer], tmp_path / "zero.policy", divided=divisor)
    observed = Observed(text="", array=np.array([2000.0, 0.0]))
    agent = PolicyFile(file=str(path))
    for offered, wanted in (((0, 1), [1.0, 0.0, 0.0]), ((1, 2), None)):
        view = EnvironmentView(observed=observed, names=("a", "b", "c"), possible=offered, number=0)
        observation = Observation(view=view, step=0, episode_id="e", seed=0)
        if wanted is None:
            with pytest.raises(ValueError, match=r"sure\.policy .*actions"):
                agent.probabilities(observation)
        else:
            assert agent.probabilities(observation).tolist() == wanted


@pytest.mark.parametrize("flips", [30, pytest.param(300, marks=pytest.mark.full)])
def test_no_flipped_bit_of_a_policy_is_silent(flips: int, tmp_path: Path) -> None:
    path = save_policy([torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)], tmp_path / "a.policy")

    numbers = count()

    def read(octets: bytes) -> str:
        changed = tmp_path / f"{next(numbers)}.policy"  # what was read of a path is kept while its time is the same
        changed.write_bytes(octets)
        return read_policy(changed).digest

    changes = {"flip": flips, "cut": 5}
    assert attack("policy", path.read_bytes(), read, changes, says="save_policy", seed=9) == changes


def test_a_header_whose_length_looks_like_an_archive_or_a_pickle_is_read(tmp_path: Path) -> None:
    layer, seen = torch.nn.Linear(2, 2), set[int]()
    for length, layers in product(range(1, 200, 8), (1, 2, 3)):
        policy = type("P" * length, (list,), {})([layer] * layers)
        seen.add(save_policy(policy, tmp_path / f"{length} {layers}.policy").read_bytes()[0])
    assert 0x80 in seen


def convolutions(stride: int = 1) -> Any:
    """Layers as in the usual features extractor of MiniGrid, smaller."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 4, 2), torch.nn.ReLU(), torch.nn.Conv2d(4, 5, (2, 3), stride=stride), torch.nn.ReLU()]
    size = torch.nn.Sequential(*layers)(torch.zeros(1, 3, 7, 7)).numel()
    return torch.nn.Sequential(
        *layers, torch.nn.Flatten(), torch.nn.Linear(size, 6), torch.nn.Tanh(), torch.nn.Linear(6, 7)
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_are_those_of_pytorch(stride: int, tmp_path: Path) -> None:
    network = convolutions(stride)
    read = read_policy(save_policy(network, tmp_path / "conv.policy", divided=10.0))
    for seed in range(3):
        picture = np.random.default_rng(seed).integers(0, 11, (3, 7, 7))
        with torch.no_grad():
            wanted = torch.softmax(network(torch.tensor(picture[None] / 10, dtype=torch.float32)), -1)[0].numpy()
        np.testing.assert_allclose(read.probabilities(picture), wanted, atol=1e-6)
    for shape in ((3, 1, 7), (4, 7, 7), (147,)):
        with pytest.raises(ValueError, match="3 channels"):
            read.probabilities(np.zeros(shape))
    with pytest.raises(ValueError, match="numbers"):
        read.probabilities(np.zeros((3, 9, 9)))
    resealed_policy(tmp_path / "conv.policy", tmp_path / "other.policy", {"strides": [1]}, {})
    with pytest.raises(ValueError, match="other strides"):
        read_policy(tmp_path / "other.policy")


@pytest.mark.full
def test_a_policy_of_stable_baselines3_acts_as_it_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    monkeypatch.chdir(tmp_path)
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "first.policy" in one)
    study, training = (one for one in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "room.policy" in one)
    assert len(code.splitlines()) <= 30
    names: dict[str, Any] = {}
    exec(compile(code, "environments.md", "exec"), names)
    model, network = names["model"], read_policy("room.policy")
    shown, _ = names["env"].reset(seed=1)
    for action in (2, 1, 2, 0, 2):
        with torch.no_grad():
            wanted = model.policy.get_distribution(model.policy.obs_to_tensor(shown)[0]).distribution.probs.numpy()[0]
        np.testing.assert_allclose(network.probabilities(shown), wanted, atol=1e-5)
        shown, *_ = names["env"].step(action)
    (tmp_path / "room.yaml").write_text(study, encoding="utf-8")
    call("run", "room.yaml", "--out", "runs/room")
    with Store(tmp_path / "runs/room") as store:
        assert {one.agent for one in store.episodes()} == {"room", "random"}
    call("evaluate", "policy:file=room.policy", "--worlds", "room.yaml", "--out", "runs/verdict", "--quick")
    assert (tmp_path / "runs/verdict/ledger.json").exists()
    # The curve over training of the page.
    (tmp_path / "training.yaml").write_text(training, encoding="utf-8")
    lines = [
        line for line in PAGE.splitlines() if line.startswith(("goalscope run training", "goalscope compare runs/t"))
    ]
    assert len(lines) == 3
    for command in (part for line in lines for part in line.split(" && ")):
        call(*shlex.split(command)[1:])
    assert len((tmp_path / "curve.csv").read_text(encoding="utf-8").splitlines()) == 5
    assert (tmp_path / "curve.svg").read_text(encoding="utf-8").startswith("<?xml")
    # An archive is refused with a command that converts it.
    model.save("room.zip")
    with pytest.raises(ValueError, match="code") as refused:
        read_policy("room.zip")
    (command,) = re.findall(r"python -c \".*?\"", str(refused.value))
    assert command in PAGE
    converted = subprocess.run([sys.executable, *shlex.split(command)[1:]], capture_output=True, text=True)
    assert converted.returncode == 0, converted.stderr
    assert read_policy("room.policy").digest == network.digest


@pytest.mark.full
@pytest.mark.parametrize("shared", [False, True])
def test_a_policy_of_sb3_contrib_remembers_as_it_was_trained(shared: bool, tmp_path: Path) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    gymnasium = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    wrappers = pytest.importorskip("minigrid.wrappers", reason="the extra minigrid is not installed")
    env = wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-MemoryS7-v0"))
    sizes = {"lstm_hidden_size": 12, "n_lstm_layers": 2, "shared_lstm": shared, "enable_critic_lstm": not shared}
    settings = {"policy_kwargs": sizes, "n_steps": 64, "batch_size": 32, "seed": 0, "device": "cpu"}
    model = contrib.RecurrentPPO("MlpLstmPolicy", env, **settings)
    model.learn(128)
    model.save(tmp_path / "memory.zip")
    loaded = contrib.RecurrentPPO.load(tmp_path / "memory.zip", device="cpu")
    network = read_policy(save_policy(loaded, tmp_path / "memory.policy"))
    for seed in (1, 2):
        shown, _ = env.reset(seed=seed)
        state, start, memory = None, np.ones(1), network.begin()
        for action in (0, 0, 2, 1, 2):
            zeros = torch.zeros(2, 1, 12)
            before = (zeros, zeros) if state is None else tuple(map(torch.tensor, state))
            picture = torch.tensor(np.transpose(shown, (2, 0, 1))[None])
            with torch.no_grad():
                found, _ = loaded.policy.get_distribution(picture, before, torch.tensor(start, dtype=torch.float32))
            wanted = found.distribution.probs.numpy()[0]
            best, state = loaded.predict(shown, state=state, episode_start=start, deterministic=True)
            start = np.zeros(1)
            probabilities, memory = network.step(shown, memory)
            np.testing.assert_allclose(probabilities, wanted, atol=1e-5)
            assert int(best) == int(probabilities.argmax())
            shown, *_ = env.step(action)


@pytest.mark.full
def test_a_features_extractor_of_minigrid_is_read_as_stable_baselines3_has_it(tmp_path: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    wrappers = pytest.importorskip("minigrid.wrappers", reason="the extra minigrid is not installed")
    baselines = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Extractor(BaseFeaturesExtractor):  # type: ignore[misc, unused-ignore]
        """As the documentation of MiniGrid writes it for stable-baselines3."""

        def __init__(self, space: Any, features_dim: int = 32) -> None:
            super().__init__(space, features_dim)
            nn = torch.nn
            layers = [nn.Conv2d(space.shape[0], 16, (2, 2)), nn.ReLU(), nn.Conv2d(16, 32, (2, 2)), nn.ReLU()]
            self.cnn = nn.Sequential(*layers, nn.Conv2d(32, 64, (2, 2)), nn.ReLU(), nn.Flatten())
            self.linear = nn.Sequential(nn.Linear(64 * 16, features_dim), nn.ReLU())

        def forward(self, shown: Any) -> Any:
            return self.linear(self.cnn(shown))

    env = wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-5x5-v0"))
    settings = {"features_extractor_class": Extractor}
    model = baselines.PPO("CnnPolicy", env, seed=0, policy_kwargs=settings, device="cpu", n_steps=64, batch_size=32)
    model.learn(128)
    network = read_policy(save_policy(model, tmp_path / "level.policy"))
    shown, _ = env.reset(seed=1)
    for action in (2, 1, 2, 0, 2):
        tensor = model.policy.obs_to_tensor(np.transpose(shown, (2, 0, 1)))[0]
        with torch.no_grad():
            wanted = model.policy.get_distribution(tensor).distribution.probs.numpy()[0]
        np.testing.assert_allclose(network.probabilities(shown), wanted, atol=1e-5)
        shown, *_ = env.step(action)
    # A study plays it in the same level.
    world = {"kind": "minigrid", "levels": ["MiniGrid-DoorKey-5x5-v0"], "seeds": [1], "array": "image"}
    agents = [{"kind": "policy", "file": str(tmp_path / "level.policy")}]
    run(
        Study.parse({"worlds": [world], "agents": agents, "trajectories": 1, "horizon": {"steps": 10}}),
        tmp_path / "run",
    )
    with Store(tmp_path / "run") as store:
        assert [one.agent for one in store.episodes()] == ["level"]


LAKES = [
    "SFFF FHFH FFFH HFFG",
    "SFFF FFFF HFFH FFFG",
    "SFHF FFFF FFHF FFFG",
    "SFFF HFFF FFHF FFFG",
    "SFFF FHFF FFFF HFFG",
]
LAKES += ["SFFH FFFF HFFF FFFG", "SFFF FFHF FFFF FFFG", "SHFF FFFF FFFF FFFG"]


def checkpoints(folder: Path, worlds: list[dict[str, Any]]) -> list[Path]:
    """Write a policy before, in and after its training: one layer, by gradients of the chance to act optimally."""
    linear, sets = torch.nn.Linear(16, 4, bias=False), []
    torch.nn.init.zeros_(linear.weight)
    for entry in worlds:
        found = believe(partial(build, "gymnasium", {"name": "FrozenLake-v1", "options": entry["options"]}))
        assert found.solved.optimal is not None
        for state, number in found.table.index.items():
            if state >= 0 and found.solved.optimal[number].any():
                sets.append((state, torch.tensor(found.solved.optimal[number].astype(np.float32))))
    optimizer, made = torch.optim.Adam(linear.parameters(), lr=0.1), []
    states, wanted = torch.tensor([state for state, _ in sets]), torch.stack([best for _, best in sets])
    for step in range(101):
        if step in (0, 10, 100):
            made.append(save_policy(torch.nn.Sequential(linear), folder / f"step-{step:03}.policy"))
        chance = (torch.softmax(linear(torch.eye(16)[states]), -1) * wanted).sum(-1)
        optimizer.zero_grad()
        (-chance.log().mean()).backward()
        optimizer.step()
    return made


def lakes(folder: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    """Return lakes, and policies before, in and after a training on them."""
    options = ({"is_slippery": False, "desc": text.split()} for text in LAKES)
    worlds = [{"kind": "gymnasium", "environments": ["FrozenLake-v1"], "options": one} for one in options]
    return worlds, checkpoints(folder, worlds)


@pytest.mark.full
def test_checkpoints_of_a_training_are_compared_and_rise(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    from goalscope.cli.comparing import compare

    worlds, paths = lakes(tmp_path)
    agents = [{"kind": "policy", "file": str(path)} for path in paths]
    run(
        Study.parse({"worlds": worlds, "agents": agents, "trajectories": 10, "horizon": {"factor": 2}}),
        tmp_path / "run",
    )
    with Store(tmp_path / "run") as store:
        curve = {one.agent: one for one in directed(store.episodes()).estimates if one.hypothesis == "goal"}
    first, middle, last = (curve[f"step-{step}"] for step in ("000", "010", "100"))
    assert first.low <= 0 < middle.low and first.signed < middle.signed < last.signed <= last.bound
    pairs = {(one["first"], one["second"]): one for one in compare(tmp_path / "run", measures=["success"]).records}
    assert set(pairs) == {("step-000", "step-010"), ("step-000", "step-100"), ("step-010", "step-100")}
    rise = pairs["step-000", "step-100"]
    assert rise["low"] < rise["difference"] < rise["high"] < -0.1, "the first is worse than the last"


def test_a_curve_over_training_goes_by_the_numbers_that_were_given_and_by_no_name(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    worlds, paths = lakes(tmp_path)
    steps, shuffled = (0, 10, 100), dict(zip(paths, ("c", "a", "b"), strict=True))
    given = {"worlds": worlds, "trajectories": 4, "horizon": {"factor": 2}}
    agents = [
        {"kind": "policy", "file": str(path), "name": shuffled[path], "checkpoint": step}
        for path, step in zip(paths, steps, strict=True)
    ]
    run(Study.parse({**given, "agents": agents[::-1]}), tmp_path / "run")
    call("meg", tmp_path / "run")
    measures = ("--measures", f"success;{goal_measure('goal')}")
    shown = call(
        "compare", str(tmp_path / "run"), "--over", "checkpoint", *measures, "--json", str(tmp_path / "a.json")
    )
    assert "checkpoint" in shown and "4 tests" in shown
    records = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["comparisons"]
    success = [one for one in records if one["measure"] == "success"]
    assert [(one["agent"], one["checkpoint"]) for one in success] == [("c", 0), ("a", 10), ("b", 100)]
    with Store(tmp_path / "run") as store:
        episodes = list(store.episodes())
    for one in success:
        solved = [episode.outcome == "goal" for episode in episodes if episode.agent == one["agent"]]
        assert one["value"] == pytest.approx(np.mean(solved)) and one["n"] == len(solved) == 32
        assert one["grids"] == 8 and one["low"] <= one["value"] <= one["high"] and one["low"] < one["high"]
        rise = one["since_first_difference"]
        assert rise is None if one["checkpoint"] == 0 else rise == pytest.approx(one["value"] - success[0]["value"])
    assert success[-1]["since_first_low"] > 0.1, "the last is better than the first"
    goal = [one["value"] for one in records if one["measure"].startswith("MEG")]
    assert goal[0] < goal[1] < goal[2]
    # Several runs, whose agent has one name: the numbers stand on the command line.
    for path, step in zip(paths, steps, strict=True):
        one = {"kind": "policy", "file": str(path), "name": "walker"}
        run(Study.parse({**given, "agents": [one]}), tmp_path / f"at{step}")
    places = [str(tmp_path / f"at{step}") for step in (100, 0, 10)]
    call("compare", *places, "--at", "100,0,10", "--svg", str(tmp_path / "a.svg"), "--json", str(tmp_path / "b.json"))
    again = json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["comparisons"]
    assert [one["value"] for one in again if one["measure"] == "success"] == [one["value"] for one in success]
    assert {one["series"] for one in again} == {"walker"}
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert svg.startswith("<?xml") and ">100<" in svg and "over training" in svg
    for wrong, words in (
        (("--at", "1,2"), "a number for each run"),
        (("--at", "1,1,2"), "have the same checkpoint 1"),
        (("--at", "1,x,2"), "--at must be numbers"),
        (("--over", "size"), "a single number for each agent"),
        (("--svg", str(tmp_path / "c.svg")), "--svg draws a curve"),
        (("--over", "checkpoint", "--at", "1,2,3"), "--over"),
        (("--at", "1,2,3", "--transforms"), "--transforms"),
    ):
        assert words in call("compare", *places, *wrong, status=2)
