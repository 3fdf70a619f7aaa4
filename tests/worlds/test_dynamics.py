"""The rules: one state, the table of states and many worlds at once agree with each other and with the prose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds import (
    ACTIONS,
    Action,
    Grid,
    State,
    generate,
    generate_batch,
    initial_state,
    layout,
    phases,
    settle,
    shown,
    state_number,
    step,
    step_batch,
    transitions,
    transitions_batch,
)


@st.composite
def worlds(draw: st.DrawFn) -> Grid:
    """A generated grid, with or without key and door in any of its cells, or a layout."""
    kind = draw(st.sampled_from(["plain", "key", "door", "rooms", "two-path"]))
    seed = draw(st.integers(0, 10**6))
    if kind == "rooms":
        return layout("key-door", seed=0, index=seed % 300)
    if kind == "two-path":
        return layout("two-path", seed=0, index=seed % 300)
    grid = generate(draw(st.sampled_from([5, 7])), draw(st.sampled_from([0.0, 0.5, 1.0])), rng=stream(seed, "d"))
    cells = [(int(r), int(c)) for r, c in np.argwhere(~grid.walls) if (r, c) not in (grid.start, grid.goal)]
    chosen = draw(st.lists(st.sampled_from(cells), unique=True, min_size=2, max_size=2))
    return grid.at(key=None if kind == "plain" else chosen[0], door=chosen[1] if kind == "door" else None)


@given(worlds())
def test_the_table_is_the_step_function_written_out(grid: Grid) -> None:
    table = transitions(grid)
    cells = grid.walls.size
    assert table.shape == (phases(grid) * cells, 4)
    for phase in range(phases(grid)):
        for row, col in np.argwhere(~grid.walls):
            position = int(row), int(col)
            if position == grid.door and phase < 2:
                continue
            state = settle(grid, position, phase >= 1, phase >= 2)
            if state.phase != phase:
                continue  # no episode is ever in this state: the key would be taken, or the door open
            for action in ACTIONS:
                after = step(grid, state, action)
                index = after.phase * cells + after.position[0] * grid.width + after.position[1]
                assert state_number(grid, after) == index
                assert table[phase * cells + row * grid.width + col, action] == index


@given(worlds(), st.lists(st.sampled_from(ACTIONS), max_size=40))
def test_laws_of_an_episode(grid: Grid, actions: list[Action]) -> None:
    state = initial_state(grid)
    for action in actions:
        after = step(grid, state, action)
        moved = abs(after.position[0] - state.position[0]) + abs(after.position[1] - state.position[1])
        assert moved <= 1
        assert not grid.walls[after.position]
        assert after.phase >= state.phase
        assert moved == 1 or after == state
        if after.carrying_key != state.carrying_key:
            assert after.position == grid.key
        if after.position == grid.door:
            assert after.door_open
        view = shown(grid, after)
        assert view.start == after.position
        assert (view.key is None) == (grid.key is None or after.carrying_key)
        assert (view.door is None) == (grid.door is None or after.door_open)
        assert (view.goal is None) == (after.position == grid.goal)
        state = after


def test_batched_steps_are_single_steps() -> None:
    batch = generate_batch(9, 0.5, seed=1, count=20)
    tables = transitions_batch(batch.walls)
    rng = stream(1, "steps")
    world = rng.integers(0, 20, 500)
    state = (batch.start[:, 0] * 9 + batch.start[:, 1])[world]
    singles = [initial_state(batch[index]) for index in world]
    grids = list(batch)
    for _ in range(12):
        action = rng.integers(0, 4, 500)
        state = step_batch(tables, world, state, action)
        singles = [
            step(grids[index], one, Action(int(chosen)))
            for index, one, chosen in zip(world, singles, action, strict=True)
        ]
        assert state.tolist() == [one.position[0] * 9 + one.position[1] for one in singles]
    for index in range(3):
        assert (tables[index] == transitions(grids[index])).all()


def test_bumping_changes_nothing_at_walls_at_the_edge_and_at_a_locked_door() -> None:
    grid = Grid.parse("A_#\n_DG")
    here = State((0, 0))
    assert step(grid, here, Action.UP) == here
    assert step(grid, here, Action.LEFT) == here
    below = step(grid, here, Action.DOWN)
    assert below == State((1, 0))
    assert step(grid, below, Action.RIGHT) == below
    beside = step(grid, here, Action.RIGHT)
    assert step(grid, beside, Action.RIGHT) == beside


def test_the_key_is_taken_on_entering_and_the_door_opens_beside_it() -> None:
    grid = Grid.parse("AK_DG")
    one = step(grid, initial_state(grid), Action.RIGHT)
    assert one == State((0, 1), True, False)
    two = step(grid, one, Action.RIGHT)
    assert two == State((0, 2), True, True)
    assert shown(grid, two).render().splitlines()[1] == "0 _ _ A _ G"
    assert step(grid, two, Action.RIGHT) == State((0, 3), True, True)
    assert settle(Grid.parse("AKDG"), (0, 1)) == State((0, 1), True, True)  # key and door in one step


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ((0, 2), "got the wall at"),
        ((1, 1), "got the locked door at"),
        ((2, 0), "position must lie in the 2x3 grid"),
    ],
)
def test_where_an_agent_cannot_stand(position: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settle(Grid.parse("A_#\n_DG"), position)


def test_an_episode_needs_an_agent_and_an_action_is_one_of_four() -> None:
    with pytest.raises(ValueError, match="agent"):
        initial_state(Grid.parse("_G"))
    with pytest.raises(ValueError, match=r"4 is not .*Action"):
        step(Grid.parse("A_"), State((0, 0)), 4)
