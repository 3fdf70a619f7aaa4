"""A conditional hypothesis is undefined only where a branch that is taken is undefined."""

import numpy as np
import pytest

from goalscope.goals.hypotheses import Undefined, finite_world, parse
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld

PLAIN = "#####\n#A__#\n#_#_#\n#_#G#\n#####"
NO_CORNER = "#####\n#A_##\n#_#_#\n#__G#\n#####"
WITH_KEY = "#####\n#A__#\n#K#_#\n#_#G#\n#####"


def world_of(text: str):
    return finite_world(GridWorld(grid=Grid.parse(text)), 12)


@pytest.mark.parametrize(
    ("rule", "alike"),
    [
        ("corner top-right if there is a key, else goal", "goal"),
        ("goal if the grid has at most 5 rows, else corner top-right", "goal"),
        ("key if key held, else goal", "goal"),
        ("goal if not key held, else key", "goal"),
        ("corner top-right if there is a key", "random"),
    ],
)
def test_a_branch_that_is_never_taken_may_be_undefined(rule: str, alike: str) -> None:
    world = world_of(NO_CORNER)
    states = np.flatnonzero(world.live & world.reached)
    assert np.array_equal(parse(rule).solved(world).policy[0][states], parse(alike).solved(world).policy[0][states])


@pytest.mark.parametrize(
    "rule",
    [
        "goal if there is a key, else corner top-right",
        "corner top-right if the grid has at most 5 rows",
        "goal if key held, else corner top-right",
        "key if not key held, else goal",
        "goal if cell 1 2, else corner top-right",
    ],
)
def test_a_branch_that_is_taken_must_be_defined(rule: str) -> None:
    with pytest.raises(Undefined):
        parse(rule).solved(world_of(NO_CORNER))


def test_a_branch_is_taken_if_a_state_that_can_be_reached_takes_it() -> None:
    world = world_of(WITH_KEY)
    with pytest.raises(Undefined):  # the key is within reach, and the door is not there
        parse("door if key held, else goal").solved(world)
    assert parse("corner top-right if key held, else goal").solved(world_of(PLAIN)).policy.shape[1] == 25
