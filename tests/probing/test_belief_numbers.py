"""Beliefs and actions of a handful of states, every number of them worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from believed import FRAME, certain, decide, random_posterior, rooms
from planted import cells_of

from goalscope._ground.rng import stream
from goalscope.inside.probing import OPEN, Decisions, DecodedMaps, belief_rows, decisions_at, read_beliefs
from goalscope.inside.probing import beliefs as module
from goalscope.inside.probing.beliefs import VERDICTS, Beliefs, choose_maps, pooled_share, top_name
from goalscope.inside.probing.labels import NO_ACTION
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step
from goalscope.stats.rows import Rows
from goalscope.worlds import Grid, State

UP, DOWN, LEFT, RIGHT = range(4)


def sets(*actions: set[int]) -> np.ndarray[Any, Any]:
    return np.array([[move in one for move in range(4)] for one in actions])


def texts(values: list[str]) -> np.ndarray[Any, Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def states(optimal: np.ndarray[Any, Any], action: list[int], grid: list[str], **changes: Any) -> Decisions:
    """Decisions on a 3 x 3 grid: the agent in its middle, the goal in the last corner."""
    count = len(action)
    given: dict[str, Any] = {
        "action": np.array(action),
        "optimal": optimal,
        "place": np.full((count, 2), 1),
        "goal": np.full((count, 2), 2),
        "agent": texts(["a"] * count),
        "shape": np.full((count, 2), 3),
        "density": np.full(count, 0.5),
        "episode_id": texts([f"episode {at}" for at in range(count)]),
        "step": np.zeros(count, dtype=np.int64),
        "cluster": texts(grid),
    }
    return Decisions(**(given | changes))


def decoded(optimal: np.ndarray[Any, Any], agent: list[tuple[int, int]], goal: list[tuple[int, int]]) -> Beliefs:
    count = len(optimal)
    layout = np.full((count, 3, 3), OPEN, dtype=np.int8)
    maps = DecodedMaps(layout=layout, agent=np.array(agent), goal=np.array(goal))
    return Beliefs(
        maps=maps, optimal=optimal, tops=(1,), top=optimal[:, None], expected=optimal / np.array([1.0, 2, 4, 8])
    )


def value(rows: Rows, measure: str, grid: str) -> float:
    (found,) = rows.select(measure=measure, cluster=grid).value.tolist()
    return float(found)


@pytest.fixture
def told() -> Rows:
    """Grid x with five turns, one of them without an action; grids y and w with two; grid z with none."""
    true = sets({DOWN, RIGHT}, {DOWN}, {UP}, {UP}, {LEFT}, {LEFT}, {RIGHT}, {UP}, {UP}, {UP})
    seen = sets({RIGHT}, {UP}, {UP, LEFT}, set(), {LEFT}, {RIGHT}, {RIGHT}, {UP}, {DOWN}, {DOWN})
    action = [RIGHT, UP, LEFT, UP, NO_ACTION, LEFT, RIGHT, NO_ACTION, UP, LEFT]
    agent = [(1, 1), (0, 1), (0, 0), (1, 1), (0, 0), (1, 1), (2, 2), (1, 1), (1, 1), (1, 1)]
    goal = [(2, 2), (2, 2), (0, 0), (2, 1), (0, 0), (2, 2), (2, 2), (2, 2), (2, 2), (2, 2)]
    return belief_rows(decoded(seen, agent, goal), states(true, action, [*"xxxxxyyzww"]))


def test_every_share_of_a_few_actions(told: Rows) -> None:
    # x: right in truth and on the map; wrong in truth and right on the map, twice; right in truth and no plan.
    wanted = {
        module.TRUTH: (2 / 4, 2 / 2),
        module.DECODED: (3 / 4, 1 / 2),
        module.OVERLAP: (2 / 4, 1 / 2),
        module.BOTH: (1 / 4, 1 / 2),
        module.VERDICT: (1 / 4, 1 / 2),
        module.RECOVERY: (2 / 2, np.nan),
        module.INVERSE: (1 / 1, 1 / 1),
        module.NO_PLAN: (1 / 4, 0),
        module.EXPECTED: ((1 / 8 + 1 + 1 / 4 + 0) / 4, (0 + 1 / 8) / 2),
        top_name(1): (3 / 4, 1 / 2),
        "decoded agent at its cell": (2 / 4, 1 / 2),
        "decoded agent's distance": ((0 + 1 + 2 + 0) / 4, (0 + 2) / 2),
        "decoded goal at its cell": (2 / 4, 1),
        "decoded goal's distance": ((0 + 0 + 4 + 1) / 4, 0),
        module.ACTIONS: (4, 2),
        module.WRONG: (2, 0),
        module.WRONG_ON_MAP: (1, 1),
        "turns without an action": (1, 0),
    }
    for measure, (first, second) in wanted.items():
        np.testing.assert_allclose([value(told, measure, "x"), value(told, measure, "y")], [first, second])
    counts = {module.ACTIONS: 0, module.WRONG: 0, module.WRONG_ON_MAP: 0, "turns without an action": 1}
    for measure in wanted:
        assert value(told, measure, "z") == pytest.approx(counts.get(measure, np.nan), nan_ok=True)
    units = dict(zip(told.measure.tolist(), told.unit.tolist(), strict=True))
    assert {units[name] for name in counts} == {"steps"}
    assert {name for name, unit in units.items() if unit == "cells"} == {
        "decoded agent's distance",
        "decoded goal's distance",
    }
    assert set(units.values()) == {"steps", "cells", "share"}
    assert read_beliefs(certain(rooms(1))).tops == (1, 3, 5, 10)  # those of the paper


def test_pooled_shares_weigh_grids_by_what_they_are_shares_of(told: Rows) -> None:
    for measure, wanted, actions in (
        (module.TRUTH, (2 + 2 + 1) / 8, 8),
        (module.DECODED, (3 + 1 + 0) / 8, 8),
        (module.RECOVERY, (2 + 0 + 0) / (2 + 0 + 1), 3),
        (module.INVERSE, (1 + 1 + 1) / (1 + 1 + 2), 4),
        (module.NO_PLAN, 1 / 8, 8),
    ):
        found = pooled_share(told, measure)
        assert found.value == pytest.approx(wanted) and found.n == actions, measure
        assert found.undefined == 0  # a grid without an action adds nothing above or below the line
    turned = Rows.concatenate([told.select(measure=module.ACTIONS).where(np.array([1, 0, 2, 3])), told])
    with pytest.raises(ValueError, match="same grids"):
        pooled_share(turned, module.TRUTH)


def test_the_beliefs_of_another_agent_shape_or_density_are_no_control() -> None:
    labels = rooms(24, seed=5)
    posterior = random_posterior(24, FRAME, FRAME, seed=6)
    action = stream(0, "mixed kinds").integers(0, 4, 24)
    kind = np.arange(24) // 6
    grid = np.arange(24) // 2
    changes: dict[str, Any] = {
        "agent": texts(["b" if one == 1 else "a" for one in kind]),
        "shape": np.where(kind[:, None] == 2, (5, 6), (6, 6)),
        "density": np.where(kind == 3, 0.25, 0.5),
    }
    together = belief_rows(read_beliefs(posterior), decide(labels, action, grid, **changes))
    compared = 0
    for one in range(4):
        mine = kind == one
        own = {name: array[mine] for name, array in changes.items()}
        alone = belief_rows(read_beliefs(posterior[mine]), decide(labels[mine], action[mine], grid[mine], **own))
        for name in (module.OVERLAP, module.EXPECTED, module.RECOVERY):
            for number in sorted(set(grid[mine].tolist())):
                found = value(together, name + module.SHUFFLED, str(number))
                assert found == pytest.approx(value(alone, name + module.SHUFFLED, str(number)), nan_ok=True)
                compared += found == found
    assert compared > 24


def test_turned_versions_of_a_grid_are_rows_of_their_own() -> None:
    best = sets({UP}, {UP}, {UP})
    shape = np.array([(2, 3), (3, 2), (3, 2)])
    decisions = states(best, [UP, UP, DOWN], ["x", "x", "x"], shape=shape, density=np.array([0.5, np.nan, np.nan]))
    rows = belief_rows(decoded(best, [(0, 0)] * 3, [(1, 1)] * 3), decisions).select(measure=module.TRUTH)
    assert rows.value.tolist() == [1, 0.5]
    assert rows["shape"].tolist() == ["2x3", "3x2"] and rows["size"].tolist() == [3, 3]
    assert rows["density"].tolist() == [0.5, None]
    square = belief_rows(decoded(best, [(0, 0)] * 3, [(1, 1)] * 3), states(best, [UP, UP, DOWN], ["x"] * 3))
    assert "shape" not in square.tags


def test_shown_maps_are_the_first_nearest_to_the_middle() -> None:
    # All actions are wrong in truth; on the map they are optimal but for the last one.
    true, seen = sets(*[{UP}] * 7), sets(*[{DOWN}] * 6, {UP})
    size = np.array([3, 3, 5, 5, 9, 3, 3])
    density = np.array([0.4, 0.0, 0.4, 0.4, 0.4, 1.0, np.nan])
    names = texts(["c", "a", "e", "d", "b", "f", "g"])
    decisions = states(
        true,
        [DOWN] * 7,
        list("tuvwxyz"),
        shape=np.stack([np.full(7, 3), size], axis=1),
        density=density,
        episode_id=names,
    )
    beliefs = decoded(seen, [(0, at % 3) for at in range(7)], [(2, 2)] * 7)
    found = choose_maps(beliefs, decisions, {"site": "pre"})
    # Of the sizes 3, 5, 9 (however many there are of each) and the densities 0, 0.4, 1: 5 and 0.4, and d before e.
    assert [(one.verdict, one.episode_id) for one in found] == [(VERDICTS[1], "d"), (VERDICTS[2], "g")]
    assert found[0].lines == ("A__", "___", "__G") and dict(found[0].tags) == {"site": "pre"}
    # Equally near to the middle: the first by content id, then by step.
    left = np.array([0, 4, 5, 4])
    some = decisions.where(left)
    rest = replace(some, step=np.array([0, 7, 0, 2]))
    beliefs = decoded(seen[left], [(0, 0)] * 4, [(2, 2)] * 4)
    (one,) = choose_maps(beliefs, rest)
    assert (one.episode_id, one.step) == ("b", 2)
    right = states(true[:2], [UP, NO_ACTION], ["x", "y"])
    assert [one.verdict for one in choose_maps(decoded(true[:2], [(0, 0)] * 2, [(1, 1)] * 2), right)] == [VERDICTS[0]]


def test_decisions_outside_of_what_was_recorded_are_refused() -> None:
    best = sets({UP})
    for action in (-2, 4):
        with pytest.raises(ValueError, match=r"0 to 3.*-1"):
            states(best, [action], ["x"])
    with pytest.raises(ValueError, match=r"tops|candidates"):
        read_beliefs(certain(rooms(1)), tops=())
    for tops in ((0, 1), (2, 2)):
        with pytest.raises(ValueError, match="tops"):
            read_beliefs(certain(rooms(1)), tops=tops)
    cells = cells_of(np.zeros((1, 25)), 1, 5)
    for grid, number, says in (
        ("#####\n#A_G#\n#####", 1, "has no step 1"),
        ("#####\n#A_G#\n#####", -1, r"has no step -1\b"),
        ("#####\n#AKG#\n##D_#", 0, r"has one at \(2, 2\): leave the steps of such worlds out"),
    ):
        world = GridWorld(grid=Grid.parse(grid))
        spec = EpisodeSpec(world_id=world.id, agent_id="agent", trajectory=0, seed=0, horizon=3)
        steps = (Step(index=0, state=State((1, 1)), action=None, failure="no JSON"),)
        episode = Episode(spec=spec, world=world, agent="a", steps=steps, final=State((1, 1)), outcome="horizon")
        one = type(cells)(
            **{name: getattr(cells, name) for name in ("frame", "labels", "shape", "density", "cluster", "reasoning")},
            episode_id=texts([episode.id]),
            step=np.array([number]),
        )
        with pytest.raises(ValueError, match=says):
            decisions_at(one, [episode])
