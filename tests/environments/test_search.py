"""Search along visited states is exact where it can be compared with the enumeration of all, and reaches further."""

import time
import warnings
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from small_worlds import Counted

from families import long_after
from goalscope.environments import Mismatch, VisitedStates, believe, believe_visited
from goalscope.worlds.environments.environment import build

pytest.importorskip("minigrid", reason="the extra minigrid is not installed")

SMALL = ["BabyAI-OpenTwoDoors-v0", "MiniGrid-DoorKey-6x6-v0", "BabyAI-PutNextS4N1-v0", "BabyAI-OpenDoor-v0"]
MORE = ["MiniGrid-Unlock-v0", "MiniGrid-UnlockPickup-v0", "BabyAI-UnlockLocal-v0", "BabyAI-OpenDoorsOrderN2-v0"]
MORE += [
    "BabyAI-GoToLocalS6N2-v0",
    "MiniGrid-MultiRoom-N2-S4-v0",
    "MiniGrid-LavaGapS5-v0",
    "MiniGrid-PutNear-6x6-N2-v0",
]


def level(name: str, seed: int = 1) -> Any:
    return build("minigrid", {"level": name, "seed": seed})


@pytest.mark.parametrize(
    "name", long_after(1, [*SMALL[:2], *(pytest.param(one, marks=pytest.mark.full) for one in SMALL[2:] + MORE)])
)
def test_distances_and_sets_are_those_of_the_whole_level_and_no_bound_is_too_high(name: str) -> None:
    table, solved = (found := believe(lambda: level(name))).table, found.solved
    assert solved.distance is not None and solved.optimal is not None
    environment = level(name)
    reachable = np.flatnonzero((solved.distance > 0) & ~table.done)
    bounds = np.array([environment.lower_bound(table.states[number]) for number in reachable])
    assert (bounds <= solved.distance[reachable]).all()
    visited = VisitedStates(environment)
    for number in np.random.default_rng(0).permutation(np.flatnonzero(~table.done))[:150].tolist():
        assert visited.distance(table.states[number]) == solved.distance[number]
        np.testing.assert_array_equal(visited.optimal(table.states[number]), solved.optimal[number])


def test_an_environment_without_a_bound_is_searched_and_one_that_hides_some_is_refused() -> None:
    found, whole = believe_visited(lambda: Counted(11)), believe(lambda: Counted(11))
    assert whole.solved.distance is not None
    for number, state in enumerate(whole.table.states):
        assert found.distance(state) == whole.solved.distance[number]
    with pytest.raises(Mismatch, match="state"):
        believe_visited(lambda: Counted(11, patience=7))
    with pytest.raises(ValueError, match="3 states"):
        VisitedStates(Counted(11), limit=3).distance(0)
    with pytest.raises(ValueError, match="without chance"):
        believe_visited(lambda: build("gymnasium", {"name": "FrozenLake-v1"}))


def test_a_goal_that_is_out_of_reach_is_said_to_be() -> None:
    found = VisitedStates(level("MiniGrid-LavaGapS5-v0"))
    assert found.distance(("over", False)) == -1 and found.distance(("over", True)) == 0
    assert not found.optimal(("over", False)).any()


def test_levels_that_draw_random_numbers_in_a_step_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="random numbers"):
        level("MiniGrid-Dynamic-Obstacles-16x16-v0")


def test_obstacles_that_move_at_random_move_as_often_as_in_the_level_itself() -> None:
    environment = level("MiniGrid-Dynamic-Obstacles-5x5-v0")
    (state,) = environment.initial()
    real, rng = environment.make(), np.random.default_rng(1)
    for action in (2, 0, 1, 2):
        expected = environment.step(state, action)
        assert sum(expected.values()) == pytest.approx(1)
        real.real.np_random, drawn = rng, Counter[Any]()
        for _ in range(2_000):
            environment.write(real, state)
            drawn[environment.act(real, action)] += 1
        assert set(drawn) <= set(expected)
        # Each difference is a multiple of its standard error; five of them come once in a million.
        for result, chance in expected.items():
            assert abs(drawn[result] - 2_000 * chance) <= 5 * np.sqrt(2_000 * chance * (1 - chance)) + 1
        state = max(expected, key=lambda one: (not environment.done(one), expected[one]))


def believed(names: list[str]) -> tuple[list[str], list[str]]:
    """Return the levels that are believed within 10 s of processor time, and those refused for chance."""
    found, chance = [], []
    for name in names:
        begin = time.process_time()
        try:
            whole = "Dynamic-Obstacles" in name  # a search along visited states needs a level without chance
            (believe if whole else partial(believe_visited, limit=30_000))(partial(level, name))
        except ValueError as error:
            chance += [name] if "random numbers" in str(error) else []
            continue
        found += [name] if time.process_time() - begin < 10 else []
    return found, chance


@pytest.mark.full
@pytest.mark.parametrize(("first", "step", "least", "refused"), [("BabyAI-", 8, 10, 0), ("MiniGrid-", 1, 35, 4)])
def test_so_many_registered_levels_are_believed_within_ten_seconds(
    first: str, step: int, least: int, refused: int
) -> None:
    import gymnasium
    import minigrid  # noqa: F401 - registers its levels

    names = [name for name in gymnasium.registry if name.startswith(first)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, chance = believed(names[::step] if step > 1 else names[:39])
    assert len(found) >= least and len(chance) == refused, (len(found), chance)
