"""The adapters in the environments themselves: enumerated, solved, played back; the gate has all but TextWorld."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_worlds import Counted

from command_line import call
from families import long_after
from goalscope.environments import EnvironmentWorld, Mismatch, believe
from goalscope.meg import meg_known
from goalscope.runs import Store, Study, run
from goalscope.worlds.environments.environment import build


def figures(source: str, horizon: int | None = None, **parameters: Any) -> tuple[int, int, float, float, float, int]:
    """Return states, shortest length, MEG of the optimal and the noisy policy, the bound, and episodes that arrived."""
    found = believe(lambda: build(source, parameters))
    solved, table = found.solved, found.table
    decisions = horizon or int(1.5 * solved.length) + 1
    mdp = table.mdp(horizon=decisions)
    optimal, noisy = (meg_known(mdp, solved.policy(decisions, epsilon)) for epsilon in (0.0, 0.3))
    assert meg_known(mdp, table.uniform).value == pytest.approx(0, abs=1e-9)
    assert found.played.episodes == 24
    return len(table.states), solved.length, optimal.value, noisy.value, optimal.bound, found.played.arrived


@pytest.mark.parametrize(
    ("name", "options", "horizon", "states", "bound", "noisy"),
    [
        ("FrozenLake-v1", {"is_slippery": False}, 20, 13, 7.22, 2.73),
        ("FrozenLake-v1", {}, 100, 13, 57.20, 3.67),
        ("CliffWalking-v1", {}, 40, 38, 18.02, 6.04),
        ("Taxi-v4", {}, 40, 401, 21.37, 12.00),
    ],
)
def test_toy_text_is_what_was_measured_by_other_means(
    name: str, options: dict[str, Any], horizon: int, states: int, bound: float, noisy: float
) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    found = figures("gymnasium", horizon, name=name, options=options)
    assert found[0] == states and found[2] == pytest.approx(found[4]) and found[5] > 0
    assert found[3:5] == pytest.approx((noisy, bound), abs=0.011)


def test_names_that_would_import_a_module_and_environments_without_a_table_are_refused() -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    for name, words in (
        ("os:FrozenLake-v1", "modules: .os."),
        ("CartPole-v1", "table P"),
        ("Taxi-v99", "Taxi-v99"),
    ):
        with pytest.raises(ValueError, match=words):
            build("gymnasium", {"name": name})


@pytest.mark.parametrize(
    ("level", "states", "length", "bound", "noisy"),
    [
        ("MiniGrid-Empty-5x5-v0", None, 5, None, None),
        ("MiniGrid-MultiRoom-N2-S4-v0", 61, 10, 18.77, 5.91),
        ("MiniGrid-DoorKey-5x5-v0", None, None, None, None),
    ],
)
def test_levels_of_minigrid_are_what_was_measured_by_other_means(
    level: str, states: int | None, length: int | None, bound: float | None, noisy: float | None
) -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    found = figures("minigrid", level=level, seed=1)
    assert found[2] == pytest.approx(found[4]) and found[5] >= 8, "every optimal policy arrives"
    for one, wanted in zip(found, (states, length, bound, noisy, bound), strict=False):
        assert wanted is None or one == pytest.approx(wanted, abs=0.011)


@pytest.mark.parametrize(
    ("level", "states", "length"),
    long_after(1, [("BabyAI-OpenDoor-v0", 1745, 6), ("BabyAI-PutNextS4N1-v0", 6841, 6)], names=3),
)
def test_what_verifiers_remember_belongs_to_the_state(level: str, states: int, length: int) -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    found = believe(lambda: build("minigrid", {"level": level, "seed": 1}))
    assert (len(found.table.states), found.solved.length) == (states, length) and found.played.arrived >= 8


def test_a_level_is_shown_in_words_and_as_a_grid_and_names_its_goals() -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    words, grid = (
        EnvironmentWorld.make("minigrid", {"level": "MiniGrid-DoorKey-5x5-v0", "seed": 1, "form": form})
        for form in ("words", "grid")
    )
    one, other = (world.begin(np.random.default_rng(0)).view.text for world in (words, grid))
    assert "use the key to open the door" in one and "locked" in one and "You carry nothing" in one
    assert other.count("W ") > 8 and "K" in other and "D" in other
    assert set(words.process().goals) == {"goal", "yellow door open", "yellow key held"}
    assert words.id != grid.id


@pytest.mark.full
def test_games_of_textworld_are_searched_over_facts_and_played_by_the_interpreter() -> None:
    pytest.importorskip("textworld", reason="the extra textworld is not installed")
    for shape, states, length in (
        ({"seed": 3, "rooms": 2, "objects": 3, "quest_length": 2}, 18, 2),
        ({"seed": 1, "rooms": 3, "objects": 4, "quest_length": 3}, 80, 3),
    ):
        found = figures("textworld", **shape)
        assert found[:2] == (states, length) and found[2] == pytest.approx(found[4]) and found[5] > 8
    keys = believe(lambda: build("textworld", {"seed": 1, "rooms": 2, "objects": 3, "quest_length": 2})).table.goals
    assert "the key held" in keys and "key held" not in keys, "a hypothesis on grids has that name"


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "package"), [("toy-text", "gymnasium"), ("minigrid", "minigrid"), ("textworld", "textworld")]
)
def test_studies_that_ship_are_run_with_every_agent(name: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"the extra {package} is not installed")
    call("run", name, "--trajectories", "2", "--out", tmp_path / name)
    with Store(tmp_path / name) as store:
        ended = {(one.agent, one.outcome) for one in store.episodes()}
    assert {outcome for agent, outcome in ended if agent == "optimal"} == {"goal"}
    assert {outcome for agent, outcome in ended if agent == "random"} - {"goal"}, "chance does not always arrive"


def test_an_environment_whose_state_is_read_and_written_is_solved_and_one_that_hides_some_is_refused() -> None:
    found = believe(lambda: Counted(11))
    assert len(found.table.states) == 20 and found.solved.length == math.ceil(11 / 3) + 1 == 5
    assert found.played.arrived > 10
    with pytest.raises(Mismatch, match="must lead"):
        believe(lambda: Counted(11, patience=7))


def test_a_run_of_toy_text_says_what_the_agents_are_after(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    worlds = {"kind": "gymnasium", "environments": ["FrozenLake-v1"], "options": {"is_slippery": False}}
    agents = [{"kind": "environment-optimal"}, {"kind": "random"}]
    run(Study.parse({"worlds": [worlds], "agents": agents, "trajectories": 3}), tmp_path)
    with Store(tmp_path) as store:
        ended = {(one.agent, one.outcome) for one in store.episodes()}
        text = next(iter(store.worlds())).begin(np.random.default_rng(0)).view.text
    assert ("optimal", "goal") in ended and ("optimal", "ended") not in ended
    assert "frozen lake at row 0, column 0" in text and "AFFF" in text
