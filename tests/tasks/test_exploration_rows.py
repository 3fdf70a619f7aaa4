"""The numbers of scored episodes, and estimates over many: every figure of a corridor by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from goalscope.measures.exploration import Summary, TaskMap, estimate_errors, score_episode
from goalscope.measures.exploration.errors import _EPISODE

NODES = {"A": {"cell": (0, 0), "options": []}, "G": {"cell": (4, 0), "options": [["A"]]}}
CORRIDOR = TaskMap(cells=[(x, 0) for x in range(5)], start=(2, 0), goal="G", nodes=NODES)

# Case 1 until A is achieved (step 8: two errors, one of them against a wall, one without a move), then case 2.
WHOLE: list[str | None] = [
    "right",
    "right",
    "left",
    "up",
    "left",
    "left",
    None,
    "left",
    "right",
    "right",
    "right",
    "right",
]
# G found, A achieved, then a wall: the one step that calls for exploitation is an error without a move.
STUCK = ["right", "right", "left", "left", "left", "left", "up"]
EPISODES: list[Sequence[str | None]] = [WHOLE, ["right"], [None], STUCK]
SHARES = {"exploration error", "exploitation error", "success", "progress rate", "coverage", "achieved nodes"}


def summary(actions: Sequence[str | None]) -> Summary:
    return score_episode(CORRIDOR, actions).summary


def values(actions: Sequence[str | None]) -> dict[str, float | None]:
    numbers = {name: np.array(number(summary(actions)), dtype=np.float64) for name, (_, _, number) in _EPISODE.items()}
    return {name: None if np.isnan(value) else float(value) for name, value in numbers.items()}


def test_every_value_of_a_whole_episode_by_hand() -> None:
    assert values(WHOLE) == {
        "exploration error": 2 / 8,
        "exploration errors": 2,
        "exploration steps": 8,
        "exploration error of valid moves": 0.0,
        "exploration errors of valid moves": 0,
        "exploration steps of valid moves": 6,
        "exploitation error": 0.0,
        "exploitation errors": 0,
        "exploitation steps": 4,
        "exploitation error of valid moves": 0.0,
        "exploitation errors of valid moves": 0,
        "exploitation steps of valid moves": 4,
        "success": 1,
        "steps": 12,
        "steps of successful episodes": 12,
        "invalid actions": 2,
        "detours with the goal pending": 0,
        "progress rate": 5 / 12,
        "coverage": 1.0,
        "achieved nodes": 1.0,
    }
    units = {name: unit for name, (unit, _, _) in _EPISODE.items()}
    assert {name.removesuffix(" of valid moves") for name, unit in units.items() if unit == "share"} == SHARES
    assert set(units.values()) == {"share", "steps"}


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        (["right"], {"exploration error": 0.0, "coverage": 2 / 5, "progress rate": 1.0, "invalid actions": 0}),
        ([None], {"exploration error": 1.0, "exploration error of valid moves": None, "coverage": 1 / 5, "steps": 1}),
        (
            STUCK,
            {
                "exploration steps": 6,
                "exploration errors": 0,
                "exploitation error": 1.0,
                "exploitation error of valid moves": None,
                "invalid actions": 1,
                "progress rate": 4 / 7,
                "achieved nodes": 1 / 2,
            },
        ),
    ],
)
def test_values_of_episodes_that_stop(actions: list[str | None], expected: dict[str, float | None]) -> None:
    found = values(actions)
    assert {name: found[name] for name in expected} == expected
    assert found["success"] == 0 and found["steps of successful episodes"] is None


def test_a_summary_names_its_world_and_its_budget() -> None:
    found = summary(STUCK)
    assert (found.budget, found.steps, found.outcome, found.distances) == (15, 7, "stopped", "known")
    assert (found.cells, found.observed_cells, found.nodes, found.achieved_nodes) == (5, 5, 2, 1)
    assert (found.case_steps, found.progress_steps, found.blocked, found.unparsable) == ((6, 1, 0, 0), 4, 1, 0)
    assert score_episode(CORRIDOR, [None] * 15).summary.outcome == "budget"


def test_both_errors_of_four_episodes_by_hand() -> None:
    episodes = [summary(actions) for actions in EPISODES]
    exploration, exploitation = estimate_errors(episodes, ["a", "a", "b", "c"])
    assert (exploration.kind, exploitation.kind) == ("exploration", "exploitation")
    # Within each map first: a 2/8 and 0, b 1, c 0.
    assert exploration.mean.value == pytest.approx((1 / 8 + 1 + 0) / 3)
    assert (exploration.mean.n, exploration.mean.clusters, exploration.mean.undefined) == (4, 3, 0)
    assert (exploration.errors, exploration.steps) == (3, 8 + 1 + 1 + 6)
    assert exploration.pooled.value == pytest.approx(3 / 16) and exploration.pooled.clusters == 3
    assert exploration.valid.value == 0.0 and exploration.valid.clusters == 2  # 0 of 7 and 0 of 6
    assert exploitation.mean.value == pytest.approx((0 + 1) / 2)
    assert (exploitation.mean.n, exploitation.mean.clusters, exploitation.mean.undefined) == (2, 2, 2)
    assert (exploitation.errors, exploitation.steps) == (1, 5)
    assert exploitation.pooled.value == pytest.approx(1 / 5)
    assert exploitation.valid.value == 0.0 and exploitation.valid.clusters == 1
    estimates = [getattr(error, name) for error in (exploration, exploitation) for name in ("mean", "pooled", "valid")]
    assert all(entry.unit == "share" and entry.confidence == 0.95 for entry in estimates)
    narrow = estimate_errors(episodes, ["a", "a", "b", "c"], confidence=0.5)[0]
    for name in ("mean", "pooled", "valid"):
        inner, outer = getattr(narrow, name), getattr(exploration, name)
        assert inner.confidence == 0.5 and inner.high - inner.low < outer.high - outer.low and outer.low >= 0
        assert outer.high <= 1
