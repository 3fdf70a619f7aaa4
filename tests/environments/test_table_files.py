"""Environments as files of plain arrays: written, read back, read by other tools, made by hand, and hostile."""

import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.sparse import csr_matrix
from small_worlds import Changing, Corridor, Drawn, Lottery, Rooms, Slippery

import goalscope
from command_line import call
from goalscope.environments import EnvironmentWorld, Mismatch, StateTable, believe, build
from goalscope.goals.decision import noun_in
from goalscope.goals.meg.file import meg_of_file, read_meg_file
from goalscope.meg import meg_known
from goalscope.runs import Store, Study, run
from goalscope.worlds.environments import stored as table_files
from goalscope.worlds.environments.environment import Observed
from goalscope.worlds.environments.world import _believed

WALK: dict[str, Any] = {  # two rooms and a home: "on" leads on with chance 0.75
    "transitions": np.array(
        [[[1, 0, 0], [0.25, 0.75, 0]], [[0, 1, 0], [0, 0.25, 0.75]], [[0, 0, 1], [0, 0, 1]]], dtype=float
    ),
    "start": np.array([1.0, 0, 0]),
    "rewards": np.array([0.0, 0, 5]),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(content: dict[str, Any], name: str = "world.npz") -> str:
    arrays: Any = {key: np.asarray(value) for key, value in content.items()}
    np.savez(name, **arrays)
    return name


def read(name: str = "world.npz") -> dict[str, Any]:
    with np.load(name, allow_pickle=False) as file:
        return dict(file)


def stored(name: str = "world.npz") -> Any:
    return build("table", {"file": name})


def check_equal(first: StateTable[Any], second: StateTable[Any]) -> None:
    assert first.actions == second.actions and list(first.goals) == list(second.goals)
    for name in ("triples", "chance", "reward", "start", "done", "offered", "depth"):
        one, other = getattr(first, name), getattr(second, name)
        assert np.array_equal(one, other) if one is not None else other is None, name
    assert all(np.array_equal(first.goals[name], second.goals[name]) for name in first.goals)


class Shop(Slippery):
    """An environment with a discount, and with actions that are not offered everywhere."""

    discount = 0.9

    def admissible(self, state: Any) -> list[int]:
        return [0, 1] if state[0] else [0, 1, 2, 3]


@pytest.mark.parametrize(
    "make", [Corridor, Slippery, Lottery, Rooms, Shop, lambda: Drawn(1), lambda: Drawn(3, chance=True)]
)
def test_there_and_back(make: Any) -> None:
    first = goalscope.table(make, "world.npz")
    again = goalscope.table("world.npz", "again.npz")
    check_equal(first.table, again.table)
    assert again.table.states == tuple(range(len(first.table.states)))
    environment: Any = again.environment
    assert Path("world.npz").read_bytes() == Path("again.npz").read_bytes()
    for number, state in enumerate(first.table.states):
        assert again.environment.observe(number).text == first.environment.observe(state).text
        assert environment.name_state(number) == repr(state)
    assert environment.discount == getattr(first.environment, "discount", 1.0)
    described = again.environment.describe()
    assert json.loads(described["description"]) == first.environment.describe()
    assert described["name"] == first.environment.describe().get("name", type(first.environment).__name__)


def test_the_command_writes_what_strangers_read() -> None:
    source = "from small_worlds import Slippery as Warehouse\n"
    Path("warehouse.py").write_text(source, encoding="utf-8")
    shown = call("table", "warehouse:Warehouse:length=4", "--out", "world.npz")
    found, wanted = read(), believe(lambda: Slippery(4)).table
    count, actions = len(wanted.states), len(wanted.actions)
    assert f"{count} states" in shown and "goal, lever, pit" in shown
    assert found["states"].tolist() == [repr(state) for state in wanted.states]
    assert tuple(found["actions"]) == wanted.actions and found["goal_names"].tolist() == ["goal", "lever", "pit"]
    assert found["goals"].shape == (3, count) and found["offered"].shape == (count, actions)
    assert "limit" in call("table", "warehouse:Warehouse", "--out", "few.npz", "--limit", "3", status=2)
    assert ".npz" in call("table", "warehouse:Warehouse", "--out", "few.csv", status=2)
    assert not Path("few.npz").exists() and not Path("few.csv").exists()


def test_scipy_reads_the_transitions_in_one_line() -> None:
    believed = goalscope.table(Slippery, "world.npz")
    world = read()
    states, actions = world["offered"].shape
    state, action, following = world["possible"].T
    matrix = csr_matrix((world["chance"], (state * actions + action, following)), shape=(states * actions, states))
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    horizon, values, reward = 12, np.zeros(states), world["goals"][0].astype(float)
    for _ in range(horizon):  # value iteration with arrays alone
        values = reward + (matrix @ values).reshape(states, actions).max(axis=1)
    mdp = believed.table.mdp(horizon=horizon)
    assert float(world["start"] @ values) == pytest.approx(meg_known(mdp, believed.solved.policy(horizon)).utility)


def test_maximum_causal_entropy_needs_four_arrays() -> None:
    """As in `imitation.algorithms.mce_irl`: its soft backup with these arrays is a soft policy of goalscope."""
    believed = goalscope.table(Slippery, "world.npz")
    world, horizon = read(), 8
    states, actions = world["offered"].shape
    transition_matrix = np.zeros((states, actions, states))
    transition_matrix[tuple(world["possible"].T)] = world["chance"]
    reward_matrix, initial_state_dist = world["goals"][0].astype(float), world["start"]
    assert reward_matrix.shape == initial_state_dist.shape == (states,)
    value = np.zeros(states)
    for _ in range(horizon):
        q = reward_matrix[:, None] + transition_matrix @ value
        value = np.log(np.exp(q).sum(axis=1))
    first = np.exp(q - value[:, None])
    curve = meg_known(believed.table.mdp(horizon=horizon), believed.table.uniform).curve
    np.testing.assert_allclose(curve.policy(1.0)[0], first, atol=1e-9)
    assert float(initial_state_dist @ value) == pytest.approx(curve.at(1.0).log_normaliser + horizon * np.log(actions))


# Files made by hand

SPARSE: dict[str, Any] = {
    "possible": np.argwhere(WALK["transitions"]),
    "chance": WALK["transitions"][WALK["transitions"] > 0],
    "actions": ["stay", "on"],
    "start": WALK["start"],
}


def by_step(reward: float) -> np.ndarray:
    """Return rewards ``[S, A, S]`` of the arrival at the last state."""
    rewards = np.zeros((3, 2, 3))
    rewards[:2, :, 2] = reward
    return rewards


@pytest.mark.parametrize(
    "content",
    [
        WALK,
        {**WALK, "rewards": by_step(2)},
        {**WALK, "rewards": [[0.0, 0], [0, 1], [0, 0]], "goals": [False, False, True]},
        {**WALK, "start": 0},
        {**SPARSE, "rewards": by_step(2)[WALK["transitions"] > 0]},
        {**SPARSE, "goals": [[0, 0, 1], [0, 1, 0]], "goal_names": ["goal", "second room"]},
        {**SPARSE, "start": 0, "states": ["first", "second", "home"], "goals": [[0, 0, 1]]},
    ],
)
def test_a_process_from_elsewhere_is_an_environment(content: dict[str, Any]) -> None:
    write(content)
    table = believe(stored).table
    assert table.goal.tolist() == [False, False, True] and table.done.tolist() == [False, False, True]
    assert table.chance.tolist() == [1, 0.25, 0.75, 1, 0.25, 0.75]
    assert table.triples[:, 2].tolist() == [0, 0, 1, 1, 1, 2]
    assert table.actions == (("stay", "on") if "actions" in content else ("action 0", "action 1"))
    assert stored().observe(2).text == f"You are in state {'home' if 'states' in content else 2}."
    plain = {key: np.asarray(value).tolist() for key, value in content.items()}
    Path("world.json").write_text(json.dumps(plain), encoding="utf-8")
    check_equal(believe(lambda: stored("world.json")).table, table)


def test_the_rewards_of_steps_are_those_of_the_file() -> None:
    steps = np.arange(6.0)
    rewards = [*steps, 0, 0]
    write({**SPARSE, "rewards": rewards, "goals": [[False, False, True]]})
    reward = believe(stored).table.reward
    assert reward is not None and reward.tolist() == steps.tolist()
    order = [5, 3, 1, 0, 2, 4, 7, 6]  # in any order
    shuffled = {
        key: np.asarray(value)[order]
        for key, value in {**SPARSE, "rewards": rewards}.items()
        if key in ("possible", "chance", "rewards")
    }
    write({**SPARSE, **shuffled, "goals": [[False, False, True]]}, "shuffled.npz")
    check_equal(believe(lambda: stored("shuffled.npz")).table, believe(stored).table)


def without(content: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in names}


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "rows": ({**WALK, "transitions": WALK["transitions"] * 0.9}, ("transitions", "0.9", "state 0 and action 0")),
    "a gap": ({**SPARSE, "possible": [[0, 0, 0]] * 8, "goals": [0, 0, 1]}, ("state 0 and action 0",)),
    "start": ({**WALK, "start": [1.0, 0]}, ("start", "S")),
    "no start": (without(WALK, "start"), ("start",)),
    "no transitions": (without(WALK, "transitions"), ("transitions", "next", "possible")),
    "two forms": ({**WALK, "next": [[0, 1], [1, 2], [2, 2]]}, ("transitions, next",)),
    "unknown": ({**WALK, "reward": [0, 0, 1]}, ("'reward'", "rewards")),
    "actions": ({**SPARSE, "actions": ["on", "on"], "goals": [0, 0, 1]}, ("actions", "'on'")),
    "an empty name": ({**SPARSE, "actions": ["on", " "], "goals": [0, 0, 1]}, ("actions", "' '")),
    "more actions": ({**WALK, "actions": ["a", "b", "c"]}, ("actions", "2", "[3]")),
    "goal names": ({**WALK, "goals": [[0, 0, 1]] * 2, "goal_names": ["x", "x"]}, ("goal_names", "'x'")),
    "no goal names": ({**WALK, "goals": [[0, 0, 1]] * 2}, ("goal_names", "2")),
    "names alone": ({**WALK, "goal_names": ["x"]}, ("goals",)),
    "goal later": ({**WALK, "goals": [[0, 0, 1]] * 2, "goal_names": ["x", "goal"]}, ("goal_names", "'goal'")),
    "goals": ({**WALK, "goals": [[0, 1]]}, ("goals", "S")),
    "shares of goals": ({**WALK, "goals": [[0, 0, 0.5]]}, ("goals", "true or false")),
    "rewards": ({**WALK, "rewards": [[0.0, 1]]}, ("rewards",)),
    "no goal at all": (without(WALK, "rewards"), ("goals", "rewards")),
    "equal rewards": ({**WALK, "rewards": [1, 1, 1]}, ("goals", "rewards")),
    "texts": ({**WALK, "states": ["a"]}, ("states", "S = 3")),
    "one text": ({**WALK, "observations": "a"}, ("observations", "S = 3")),
    "numbers as texts": ({**WALK, "states": [1, 2, 3]}, ("states", "texts")),
    "escapes": ({**WALK, "goals": [[0, 0, 1]], "goal_names": ["\x1b[2Jx"]}, ("goal_names", "control")),
    "done": ({**WALK, "done": [[0, 0, 1]]}, ("done", "S = 3")),
    "nothing offered": ({**WALK, "offered": [[1, 1], [0, 0], [1, 1]]}, ("offered",)),
    "a state beyond": ({**SPARSE, "possible": SPARSE["possible"] + [0, 0, 1], "goals": [0, 0, 1]}, ("below 3",)),
    "how many states": ({**SPARSE, "start": 0, "goals": [[0, 0, 1]]}, ("start [S]",)),
    "a reward twice": (
        {
            **SPARSE,
            "possible": [*SPARSE["possible"], [2, 1, 2]],
            "chance": [*SPARSE["chance"][:-1], 0.5, 0.5],
            "rewards": np.arange(9.0),
        },
        ("[2, 1, 2]",),
    ),
    "infinite": ({**WALK, "rewards": [0, 0, float("inf")]}, ("rewards", "finite")),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_file_is_refused_by_its_field(fault: str) -> None:
    content, words = WRONG[fault]
    write(content)
    with pytest.raises(ValueError) as refused:
        stored()
    assert all(word in str(refused.value) for word in words), refused.value


def packed(name: str, descr: str, shape: str, octets: bytes = b"", **options: Any) -> str:
    """Write a file with one array of this header and these bytes."""
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    with zipfile.ZipFile("hostile.npz", "w", **options) as file:
        file.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + octets)
    return "hostile.npz"


def test_hostile_files_are_refused_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    make: dict[str, Callable[[], str]] = {
        "a huge shape": lambda: packed("start", "<f8", "(1000000000000,)", b"\0" * 16),
        "a shape beyond 64 bits": lambda: packed("start", "<f8", f"({2**40}, {2**40})"),
        "texts without width": lambda: packed("states", "<U0", "(1000000000000,)"),
        "objects": lambda: packed("start", "|O", "(1,)", b"\x80\x04K\x01."),
        "a lie about the size": lambda: packed("start", "<f8", "(2,)", b"\0" * 64),
        "another compression": lambda: packed("start", "<f8", "(2,)", b"\0" * 16, compression=zipfile.ZIP_LZMA),
    }
    for what, made in make.items():
        name = made()
        tracemalloc.start()
        with pytest.raises(ValueError) as refused:
            stored(name)
        assert tracemalloc.get_traced_memory()[1] < 2**22, what
        tracemalloc.stop()
        assert "start" in str(refused.value) or "states" in str(refused.value), what
    monkeypatch.setattr(table_files, "LARGEST_NPZ", 2**24)
    np.savez_compressed("bomb.npz", start=np.zeros(2**23), rewards=np.zeros(2**23))
    assert Path("bomb.npz").stat().st_size < 2**18
    tracemalloc.start()
    with pytest.raises(ValueError, match="bytes unpacked"):
        stored("bomb.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.parametrize(
    "head",
    [
        *("{'descr': '<f8', (((", "{'descr': '''<f8", " \n  x\n y", "(" * 5000 + ")" * 4000, "-" * 9000 + "1"),
        *("{'descr': '<f8'\0}", " " * 20_000 + "1", "[1, 2]", "{'descr': '<f8', 'shape': (1,)}"),
        *(
            f"{{'descr': {kind}, 'fortran_order': False, 'shape': (2,)}}"
            for kind in ("[('a', '<f8')]", "'<M8[s]'", "'|V8'")
        ),
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000, 0)}",
    ],
    ids=lambda head: head[:60],
)
def test_a_header_that_is_none_is_one_short_error(head: str) -> None:
    octets = head.encode() + b"\n"
    with zipfile.ZipFile("hostile.npz", "w") as file:
        file.writestr("start.npy", b"\x93NUMPY\x02\x00" + len(octets).to_bytes(4, "little") + octets + bytes(16))
    with pytest.raises(ValueError, match="start must") as refused:
        stored("hostile.npz")
    assert len(str(refused.value)) < 600 and str(refused.value).isprintable() and "pickle" not in str(refused.value)


@pytest.mark.parametrize("order", ["<", ">"])
def test_texts_hold_characters_alone(order: str) -> None:
    for code, fits in ((0x10FFFF, True), (0x110000, False), (0xFFFFFFFF, False)):
        packed("states", f"{order}U1", "(1,)", code.to_bytes(4, "little" if order == "<" else "big"))
        if fits:
            assert table_files.read_arrays(Path("hostile.npz"))["states"].tolist() == ["\U0010ffff"]
        else:
            with pytest.raises(ValueError, match="states must hold texts"):
                stored("hostile.npz")


def test_lists_of_episodes_cannot_be_padded_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "LARGEST_NPZ", 2**24)
    long = {"trajectory_actions": [[0] * 2000, *[[] for _ in range(2000)]]}
    Path("mine.json").write_text(json.dumps(long), encoding="utf-8")
    with pytest.raises(ValueError, match="trajectory_actions"):
        read_meg_file(Path("mine.json"))


# In studies, and in the commands that read worlds


def test_studies_and_worlds_take_the_file_and_notice_another_one() -> None:
    goalscope.table(Corridor, "world.npz")
    kind = {"kind": "environment", "source": "table", "parameters": [{"file": "world.npz"}]}
    study = Study.parse(
        {
            "name": "table",
            "worlds": [kind],
            "agents": [{"kind": "environment-optimal"}, {"kind": "environment-wrong-goal", "target": "pit"}],
            "trajectories": 2,
        }
    )
    run(study, "run")
    with Store("run") as store:
        outcomes = {episode.agent: episode.outcome for episode in store.episodes()}
        (world,) = store.worlds()
    assert len(set(outcomes.values())) == 2 and isinstance(world, EnvironmentWorld)
    count = len(world.believed.table.states)
    assert "lever" in call("meg", "run") and world.description["name"] == "corridor"
    shown = json.loads(call("separate", "--hypotheses", "goal;lever", "--worlds", "world.npz", "--json"))
    assert shown["worlds"] == 1 and shown["pairs"][0]["worlds_apart"] == 1
    assert "1 of 1" in call("design", "--hypotheses", "goal;pit", "--worlds", "world.npz", "--choose", "1")
    goalscope.table(lambda: Corridor(7), "world.npz")
    fresh = EnvironmentWorld.make("table", {"file": "world.npz"})
    assert len(fresh.believed.table.states) > count
    _believed.cache_clear()  # as in a new process
    with pytest.raises(ValueError, match="digest"):
        EnvironmentWorld.from_plain(world.to_plain()).believed  # noqa: B018
    Path("elsewhere.npz").write_bytes(Path("world.npz").read_bytes())
    assert stored("elsewhere.npz").describe() == stored().describe()


def test_sentences_name_states_as_the_file_does() -> None:
    named = EnvironmentWorld.construct("table", {"file": write({**WALK, "states": ["hall", "porch", "home"]})})
    assert noun_in("state 1", {}, [named]).endswith(" porch")
    numbered = EnvironmentWorld.construct("table", {"file": write(WALK, "plain.npz")})
    assert noun_in("state 1", {}, [numbered]).endswith(" 1")


def test_what_cannot_be_written() -> None:
    with pytest.raises(Mismatch):
        goalscope.table(Changing, "world.npz")

    class Coloured(Lottery):
        def observe(self, state: str) -> Observed:
            return Observed(text=f"\x1b[31m{state}")

    with pytest.raises(ValueError, match="observations"):
        goalscope.table(Coloured, "world.npz")
    assert not Path("world.npz").exists()


# MEG of a table with an agent beside it


def test_meg_of_a_table_is_that_of_the_environment() -> None:
    believed = goalscope.table(Slippery, "world.npz")
    horizon, policy = 10, believed.solved.policy(10, epsilon=0.2)
    write({**read(), "horizon": horizon, "policy": policy}, "mine.npz")
    for name in ("", "goal", "lever"):
        wanted = meg_known(believed.table.mdp(believed.table.goals[name or "goal"], horizon), policy)
        found = meg_of_file("mine.npz", towards=name)
        assert found.towards == (name or "goal") and found.known.value == pytest.approx(wanted.value, abs=1e-12)
    goals = json.loads(call("meg", "mine.npz", "--hypotheses", "goal,lever", "--json"))["goals"]
    assert goals["lever"]["known"]["value"] == pytest.approx(found.known.value)
    assert goals["goal"]["process"]["towards"] == "goal"
    assert "towards lever" in call("meg", "mine.npz", "--hypotheses", "lever")
    assert "goal, lever, pit" in call("meg", "mine.npz", "--hypotheses", "nowhere", status=2)
    check_equal(believe(lambda: stored("mine.npz")).table, believed.table)  # the agent is left out
    assert stored("mine.npz").describe() == stored().describe()


def test_meg_towards_rewards_that_depend_on_the_next_state(monkeypatch: pytest.MonkeyPatch) -> None:
    agent: dict[str, Any] = {
        "horizon": 2,
        "trajectory_states": [[0, 1, 2], [0, 0, 1], [0, 0, 0]],
        "trajectory_actions": [[1, 1], [1, 1], [1, 0]],
    }
    rewards = by_step(2.0) + WALK["start"][:, None, None]
    write({**WALK, "rewards": rewards, **agent}, "dense.npz")
    write({**SPARSE, "rewards": rewards[WALK["transitions"] > 0], **agent}, "sparse.npz")
    dense, sparse = (read_meg_file(Path(name)) for name in ("dense.npz", "sparse.npz"))
    assert dense.returns is not None and sparse.returns is not None
    assert dense.returns.tolist() == sparse.returns.tolist() == [3, 2, 2]
    np.testing.assert_array_equal(dense.mdp.reward, sparse.mdp.reward)
    monkeypatch.setattr("goalscope.goals.meg.file._DENSE", 1)
    large = read_meg_file(Path("sparse.npz"))
    np.testing.assert_allclose(large.mdp.reward, dense.mdp.reward)
    assert large.mdp.utility.ndim == 2 and large.returns is not None and large.returns.tolist() == [3, 2, 2]
    unended = {**agent, "trajectory_states": [row[:2] for row in agent["trajectory_states"]]}
    write({**SPARSE, "rewards": rewards[WALK["transitions"] > 0], **unended}, "unended.npz")
    with pytest.raises(ValueError, match="episode 0"):
        read_meg_file(Path("unended.npz"))


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_episodes_that_end_early_stay_where_they_end(discount: float) -> None:
    process = {**WALK, "horizon": 4, "utility": [0.0, 1, 5], "discount": discount, "terminal_utility": [0, 0, 7]}
    full = {
        "trajectory_states": [[0, 1, 2, 2, 2], [0, 0, 1, 1, 2], [0, 1, 1, 2, 2]],
        "trajectory_actions": [[1, 1, 0, 1], [1, 1, 0, 1], [1, 1, 1, 0]],
    }
    short = {
        "trajectory_states": [[0, 1, 2], [0, 0, 1, 1, 2], [0, 1, 1, 2]],
        "trajectory_actions": [[1, 1], [1, 1, 0, 1], [1, 1, 1]],
    }
    plain = {key: np.asarray(value).tolist() for key, value in process.items()}
    padded: dict[str, Any] = {
        "trajectory_states": [[0, 1, 2, -1, -1], [0, 0, 1, 1, 2], [0, 1, 1, 2, -1]],
        "trajectory_actions": [[1, 1, -1, -1], [1, 1, 0, 1], [1, 1, 1, -1]],
    }
    filled: dict[str, Any] = {
        "trajectory_states": np.where(np.array(padded["trajectory_states"]) < 0, 0, padded["trajectory_states"]),
        "trajectory_actions": np.where(np.array(padded["trajectory_actions"]) < 0, 0, padded["trajectory_actions"]),
        "trajectory_lengths": [2, 4, 3],
    }
    Path("mine.json").write_text(json.dumps({**plain, **short}), encoding="utf-8")
    names = [write({**process, **form}, f"{n}.npz") for n, form in enumerate((full, padded, filled))]
    returns = [read_meg_file(Path(name)).returns for name in ("mine.json", *names)]
    d = discount
    wanted = [d + 5 * d**2 + 5 * d**3 + 7 * d**4, d**2 + d**3 + 7 * d**4, d + d**2 + 5 * d**3 + 7 * d**4]
    for found in returns:
        assert found is not None and found.tolist() == pytest.approx(wanted)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "not absorbing": ({"trajectory_states": [[0, 1]], "trajectory_actions": [[1]]}, "state 1 in episode 0"),
    "no last state": ({"trajectory_states": [[0, 1]], "trajectory_actions": [[1, 1]]}, "episode 0"),
    "an action after the end": (
        {"trajectory_states": [[0, 1, 2, 2]], "trajectory_actions": [[1, -1, 1]]},
        "got -1 at index [0, 1]",
    ),
    "too long": ({"trajectory_states": [[0, 0, 0, 0, 0]], "trajectory_actions": [[0] * 4]}, "[N, 3]"),
    "lengths beyond": (
        {"trajectory_states": [[0, 0, 0]], "trajectory_actions": [[0, 0]], "trajectory_lengths": [3]},
        "0 to 2",
    ),
    "lengths for others": (
        {"trajectory_states": [[0, 0, 0]], "trajectory_actions": [[0, 0]], "trajectory_lengths": [2, 2]},
        "trajectory_lengths",
    ),
    "an unknown last state": ({"trajectory_states": [[0, 1, 9]], "trajectory_actions": [[1, 1]]}, "got 9"),
    "an impossible last step": ({"trajectory_states": [[0, 2]], "trajectory_actions": [[1]]}, "has chance 0"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_episodes_that_cannot_be_continued_are_refused(fault: str) -> None:
    agent, words = REFUSED[fault]
    write({**WALK, "horizon": 3, **agent})
    with pytest.raises(ValueError) as refused:
        read_meg_file(Path("world.npz"))
    assert words in str(refused.value), refused.value


def test_the_utility_of_the_last_state_goes_with_a_utility() -> None:
    write({**WALK, "horizon": 2, "terminal_utility": [0, 0, 1], "policy": [[0.5, 0.5]] * 3})
    with pytest.raises(ValueError, match="terminal_utility"):
        read_meg_file(Path("world.npz"))


def test_an_end_where_actions_differ_in_utility_leaves_the_rest_open() -> None:
    agent = {"trajectory_states": [[0, 1, 2]], "trajectory_actions": [[1, 1]], "horizon": 3}
    write({**WALK, "utility": [[0, 0], [0, 0], [1, 2]], **agent})
    with pytest.raises(ValueError, match="state 2 in episode 0"):
        read_meg_file(Path("world.npz"))
    write({**WALK, "utility": [[0, 0], [0, 0], [1, 2]], "offered": [[1, 1], [1, 1], [0, 1]], **agent})
    returns = read_meg_file(Path("world.npz")).returns
    assert returns is not None and returns.tolist() == [2]


def test_a_study_file_names_the_table() -> None:
    write({**WALK, "goals": [[0, 0, 1]], "name": "walk"})
    text = """
    name: walk
    worlds: [{kind: environment, source: table, parameters: [{file: world.npz}]}]
    agents: [{kind: environment-optimal, horizon: 9}]
    trajectories: 3
    horizon: {steps: 9}
    """
    run(Study.parse(yaml.safe_load(text)), "run")
    with Store("run") as store:
        episodes = [*store.episodes()]
    assert len(episodes) == 3 and all(len(episode.steps) >= 2 for episode in episodes)
