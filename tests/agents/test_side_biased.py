"""The side-biased agent: exact distributions, what a reflection costs it, and wrong parameters."""

import numpy as np
import pytest

from goalscope.agents import EpsilonGreedy, Observation, Optimal, SideBiased, build_agent
from goalscope.worlds import Grid, GridView, transform

ROOM = Grid.parse(["#######", "#_____#", "#_____#", "#_A_G_#", "#_____#", "#_____#", "#######"])


def look(grid: Grid) -> Observation:
    return Observation(view=GridView(grid=grid))


def test_it_is_optimal_on_one_side_and_epsilon_greedy_on_the_other() -> None:
    agent = SideBiased(0.4, "left")
    right, left = look(ROOM), look(transform(ROOM, "reflect"))
    assert np.array_equal(agent.probabilities(right), Optimal().probabilities(right))
    assert agent.probabilities(left) == pytest.approx(EpsilonGreedy(0.4).probabilities(left))
    assert agent.name == "side-biased(0.4, left)"
    assert build_agent("side-biased", {"epsilon": 0.4}) == agent


def test_the_middle_and_a_hidden_goal_belong_to_no_side() -> None:
    middle = ROOM.at(goal=(5, 3))
    assert not middle.goal_lies("left") and not middle.goal_lies("right")
    assert middle.goal_lies("bottom") and not middle.goal_lies("top")
    assert not ROOM.at(goal=None).goal_lies("left")
    for side, other in (("left", "right"), ("right", "left"), ("top", "top")):
        assert SideBiased(1.0, side).side == side  # type: ignore[arg-type]
        assert ROOM.goal_lies(side) == transform(ROOM, "reflect").goal_lies(other)  # type: ignore[arg-type]


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="left, right, top, bottom"):
        SideBiased(0.2, "middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="epsilon"):
        SideBiased(1.2)
    with pytest.raises(ValueError, match="side"):
        ROOM.goal_lies("middle")  # type: ignore[arg-type]
