"""States sampled from an environment that is too large to enumerate, solved by a search from each of them."""

from typing import Any

import numpy as np
import pytest
from small_worlds import Corridor, Drawn, GridRules, Slippery

from goalscope.environments import Observed, enumerate_states, sample_states, solve_table
from goalscope.planning import solve
from goalscope.rng import stream
from goalscope.worlds import Grid

ROOM = "# # # # # #\n# A _ _ _ #\n# _ # # _ #\n# _ _ _ G #\n# # # # # #"


@pytest.mark.parametrize("environment", [Corridor(7), Corridor(4), *(Drawn(seed, states=20) for seed in range(6))])
def test_sampled_states_are_solved_as_in_the_whole_table(environment: Any) -> None:
    table = enumerate_states(environment)
    solved = solve_table(table)
    assert solved.distance is not None and solved.optimal is not None
    found = sample_states(environment, 40, steps=12, rng=stream(1, "states"))
    at = [table.states.index(state) for state in found.states]
    assert len(set(at)) > 1 and not found.open.any()
    np.testing.assert_array_equal(found.distance, solved.distance[at])
    np.testing.assert_array_equal(found.optimal, solved.optimal[at])


def test_sampled_states_of_a_grid_are_solved_as_by_its_own_search() -> None:
    grid = Grid.parse(ROOM)
    paths = solve(grid)
    found = sample_states(GridRules(ROOM), 60, steps=9, rng=stream(2, "states"))
    for state, distance, optimal in zip(found.states, found.distance, found.optimal, strict=True):
        at = (0, *state.position)
        assert distance == paths.distance[at] and optimal.tolist() == paths.optimal[at].tolist()
    assert len(set(found.states)) > 4


class Unsaid(Corridor):
    """A corridor whose lever is the goal, and that does not say that the episode is over there."""

    def done(self, state: tuple[int, bool]) -> bool:
        return state[0] == -1

    def goal(self, state: tuple[int, bool]) -> bool:
        return state[0] == 0


def test_no_walk_goes_on_behind_the_goal() -> None:
    found = sample_states(Unsaid(5), 200, steps=10, rng=stream(3, "states"))
    assert (found.distance > 0).all() and {state[0] for state in found.states} > {1}


class Numbers:
    """A number without end, to be brought to a target: too many states to enumerate."""

    actions = ("add 1", "double", "take 3 away")

    def initial(self) -> dict[int, float]:
        return {7: 0.5, 8: 0.5}

    def step(self, state: int, action: int) -> dict[int, float]:
        return {(state + 1, 2 * state, state - 3)[action]: 1.0}

    def done(self, state: int) -> bool:
        return state == 100

    goal = done

    def observe(self, state: int) -> Observed:
        return Observed(text=str(state))

    def describe(self) -> dict[str, Any]:
        return {"name": "numbers"}


def test_an_endless_environment_is_sampled_and_says_what_is_left_open() -> None:
    with pytest.raises(ValueError, match="at most 500 states"):
        enumerate_states(Numbers(), limit=500)
    found = sample_states(Numbers(), 30, steps=5, rng=stream(3, "states"), searched=3000)
    again = sample_states(Numbers(), 30, steps=5, rng=stream(3, "states"), searched=3000)
    assert found.states == again.states and found.label == again.label
    assert "30 sampled states" in found.label and f"{found.open.sum()} of them left open" in found.label
    assert (found.distance > 0).sum() > 10 and (found.distance[found.open] == -1).all()
    for state, distance, optimal in zip(found.states, found.distance.tolist(), found.optimal, strict=True):
        if distance > 0:
            assert shortest(state) == distance
            nearer = [shortest(to) == distance - 1 for to in (state + 1, 2 * state, state - 3)]
            assert optimal.tolist() == nearer
    few = sample_states(Numbers(), 30, steps=5, rng=stream(3, "states"), searched=20)
    assert few.open.sum() > found.open.sum()


def shortest(state: int, most: int = 12) -> int:
    """The fewest steps by trying ever longer sequences, nothing remembered but the states of the last length."""
    now = {state}
    for depth in range(most):
        if 100 in now:
            return depth
        now = {to for one in now for to in (one + 1, 2 * one, one - 3)}
    return -1


def test_accuracy_is_of_the_sampled_states_and_says_so() -> None:
    environment = Corridor(7)
    found = sample_states(environment, 50, steps=10, rng=stream(4, "states"))
    table = enumerate_states(environment)
    optimal = solve_table(table).policy(10)
    assert found.accuracy(lambda state: optimal[table.states.index(state)]).value == 1
    even = found.accuracy(lambda _: np.full(4, 0.25))
    known = found.distance > 0
    assert even.value == pytest.approx(found.optimal[known].sum(axis=1).mean() / 4)
    assert even.low < even.value < even.high or not found.optimal[known].sum(axis=1).std()
    assert even.n == known.sum() and found.label in even.note


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="without chance"):
        sample_states(Slippery(5), 5, steps=4, rng=stream(5, "states"))
    with pytest.raises(ValueError, match="walks"):
        sample_states(Corridor(5), 0, steps=4, rng=stream(5, "states"))

    class Endless(Numbers):
        def goal(self, state: int) -> bool:
            return False

    lost = sample_states(Endless(), 5, steps=3, rng=stream(6, "states"), searched=50)
    assert lost.open.all()
    with pytest.raises(ValueError, match="got none of 5 sampled states"):
        lost.accuracy(lambda _: np.full(3, 1 / 3))
