"""Shortest paths: breadth-first search, A*, a literal product search and value iteration agree."""

import heapq
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds import ACTIONS, Action, Grid, Position, generate, generate_batch, layout, layout_series, phases
from goalscope.worlds.planning import (
    distances,
    distances_batch,
    distances_to,
    from_grid,
    optimal_actions,
    optimal_batch,
    shortest_length,
    solve,
    value_iteration,
)

MOVES = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1)}
Product = tuple[Position, bool, bool]


def a_star(grid: Grid, start: Position) -> int:
    """Length of a shortest path by A* with the Manhattan distance; -1 without one. Keys and doors are not known."""
    assert grid.goal is not None
    goal = grid.goal
    best = {start: 0}
    queue = [(abs(start[0] - goal[0]) + abs(start[1] - goal[1]), 0, start)]
    while queue:
        _, cost, (row, col) = heapq.heappop(queue)
        if (row, col) == goal:
            return cost
        if cost > best[row, col]:
            continue
        for down, right in MOVES.values():
            near = row + down, col + right
            inside = 0 <= near[0] < grid.height and 0 <= near[1] < grid.width
            if inside and not grid.walls[near] and cost + 1 < best.get(near, 10**9):
                best[near] = cost + 1
                estimate = abs(near[0] - goal[0]) + abs(near[1] - goal[1])
                heapq.heappush(queue, (cost + 1 + estimate, cost + 1, near))
    return -1


def literal_move(grid: Grid, state: Product, delta: tuple[int, int]) -> Product:
    """The rules of the key worlds, written out once more."""
    (row, col), key, opened = state
    row, col = row + delta[0], col + delta[1]
    if not (0 <= row < grid.height and 0 <= col < grid.width) or grid.walls[row, col]:
        return state
    if (row, col) == grid.door and not opened:
        return state
    key = key or (row, col) == grid.key
    if grid.door is not None and key and abs(row - grid.door[0]) + abs(col - grid.door[1]) == 1:
        opened = True
    return (row, col), key, opened


def forward_length(grid: Grid, state: Product) -> int:
    """Steps to the goal by a forward search over (cell, key held, door open); -1 without a path."""
    length, waiting = {state: 0}, deque([state])
    while waiting:
        here = waiting.popleft()
        if here[0] == grid.goal:
            return length[here]
        for delta in MOVES.values():
            near = literal_move(grid, here, delta)
            if near not in length:
                length[near] = length[here] + 1
                waiting.append(near)
    return -1


def settled(grid: Grid) -> list[Product]:
    """Every state in which an episode can be: no key left lying under the agent, no door left locked beside it."""
    found = []
    for row, col in np.argwhere(~grid.walls):
        cell = int(row), int(col)
        for phase in range(phases(grid)):
            key, opened = phase >= 1, phase >= 2
            beside = grid.door is not None and abs(cell[0] - grid.door[0]) + abs(cell[1] - grid.door[1]) == 1
            if (cell == grid.key and not key) or (beside and key and not opened) or (cell == grid.door and not opened):
                continue
            found.append((cell, key, opened))
    return found


@st.composite
def key_worlds(draw: st.DrawFn) -> Grid:
    """A generated grid with a key and, mostly, a door anywhere; many of them cannot be solved."""
    grid = generate(
        draw(st.sampled_from([5, 7])),
        draw(st.sampled_from([0.0, 0.5, 1.0])),
        rng=stream(draw(st.integers(0, 10**6)), "key worlds"),
    )
    cells = [(int(r), int(c)) for r, c in np.argwhere(~grid.walls) if (r, c) not in (grid.start, grid.goal)]
    key, door = draw(st.lists(st.sampled_from(cells), unique=True, min_size=2, max_size=2))
    return grid.at(key=draw(st.sampled_from([key, key, None])), door=draw(st.sampled_from([door, door, None])))


@given(
    st.sampled_from([5, 7, 9, 11, 15]), st.sampled_from([0.0, 0.2, 0.6, 1.0]), st.integers(0, 10**6), st.integers(0, 99)
)
def test_distances_are_those_of_a_star(size: int, density: float, seed: int, pick: int) -> None:
    grid = generate(size, density, rng=stream(seed, "a star"))
    cells = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls)]
    field = distances(grid)
    for cell in (grid.start, cells[pick % len(cells)], cells[0]):
        assert cell is not None
        assert field[cell] == a_star(grid, cell)
    assert (field[grid.walls] == -1).all()
    assert grid.start is not None
    assert shortest_length(grid) == field[grid.start]


@given(key_worlds())
def test_key_worlds_are_solved_as_by_a_literal_search(grid: Grid) -> None:
    found = solve(grid)
    lengths: dict[Product, int] = {}

    def literal_length(state: Product) -> int:
        if state not in lengths:
            lengths[state] = forward_length(grid, state)
        return lengths[state]

    for state in settled(grid):
        cell, key, opened = state
        phase = int(key) + int(opened)
        length = literal_length(state)
        assert found.distance[(phase, *cell)] == length
        for action in ACTIONS:
            after = literal_length(literal_move(grid, state, MOVES[action.name]))
            assert found.optimal[(phase, *cell)][action] == (length > 0 and after == length - 1)


@given(key_worlds())
def test_value_iteration_finds_the_same_distances_and_sets(grid: Grid) -> None:
    found = solve(grid)
    size = found.distance.size
    n = size if size < 100 else int(found.distance.max()) + 1  # longer than every shortest path
    cost = -(found.distance.reshape(-1) != 0).astype(float)
    values = value_iteration(from_grid(grid, cost, horizon=n))
    for cell, key, opened in settled(grid):
        phase = int(key) + int(opened)
        index = (phase * grid.height + cell[0]) * grid.width + cell[1]
        length = int(found.distance[(phase, *cell)])
        assert values.values[0, index] == -(n if length < 0 else length)
        if length > 0:
            assert (values.optimal[0, index] == found.optimal[(phase, *cell)]).all()


@given(st.sampled_from([5, 7, 9, 15, 21]), st.sampled_from([0.0, 0.4, 0.6, 1.0]), st.integers(0, 10**4))
def test_batched_planning_is_single_planning(size: int, density: float, seed: int) -> None:
    batch = generate_batch(size, density, seed=seed, count=5)
    distance = distances_batch(batch.walls, batch.goal)
    optimal = optimal_batch(distance)
    for index, grid in enumerate(batch):
        single = solve(grid)
        assert (single.distance[0] == distance[index]).all()
        assert (single.optimal[0] == optimal[index]).all()


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (1, 1), (1, 9), (12, 17), (4, 33), (3, 64), (5, 65), (3, 100)])
def test_batched_planning_takes_any_shape(shape: tuple[int, int]) -> None:
    rng = stream(0, "shapes", *shape)
    walls = rng.random((7, *shape)) < 0.25
    goal = np.stack([rng.integers(0, shape[0], 7), rng.integers(0, shape[1], 7)], axis=1)
    walls[np.arange(7), goal[:, 0], goal[:, 1]] = False
    distance = distances_batch(walls, goal)
    for index in range(7):
        cell = int(goal[index, 0]), int(goal[index, 1])
        assert (distances(Grid(walls=walls[index], goal=cell)) == distance[index]).all()


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_the_distance_to_several_cells_is_that_to_the_nearest(seed: int, count: int) -> None:
    rng = stream(seed, "several")
    walls = rng.random((6, 9)) < 0.35
    cells = [
        (int(row), int(col)) for row, col in zip(rng.integers(0, 6, count), rng.integers(0, 9, count), strict=True)
    ]
    fields = [distances(Grid(walls=walls, goal=cell)) for cell in cells if not walls[cell]]
    far = [np.where(field < 0, 10**6, field) for field in [np.full(walls.shape, -1), *fields]]
    nearest = np.min(far, axis=0)
    assert (distances_to(walls, cells) == np.where(nearest == 10**6, -1, nearest)).all()


def test_batched_planning_of_more_than_one_chunk() -> None:
    batch = generate_batch(9, 0.5, seed=0, count=4000)
    distance = distances_batch(batch.walls, batch.goal)
    for first in (0, 3600, 3999):
        part = slice(first, first + 1)
        assert (distances_batch(batch.walls[part], batch.goal[part]) == distance[part]).all()


def test_optimal_sets_of_a_small_grid() -> None:
    grid = Grid.parse("#####\n#A__#\n#__G#\n#####")
    assert optimal_actions(grid, (1, 1)) == {Action.DOWN, Action.RIGHT}
    assert optimal_actions(grid, (1, 3)) == {Action.DOWN}
    assert optimal_actions(grid, (2, 3)) == frozenset()
    cut_off = Grid.parse("A#G")
    assert optimal_actions(cut_off, (0, 0)) == frozenset()
    assert shortest_length(cut_off) == -1


def test_key_rooms_agree_with_the_literal_search_from_their_start() -> None:
    for grid in layout_series("key-door", seed=5, count=60):
        assert grid.start is not None
        assert shortest_length(grid) == forward_length(grid, (grid.start, False, False))
        ignoring = distances(grid.at(door=None))[grid.start]
        assert shortest_length(grid) >= ignoring


def test_a_planner_that_ignores_the_door_is_wrong_where_ours_is_right() -> None:
    grid = Grid.parse("  0 1 2 3 4 5 6 \n0 # # # # # # # \n1 # K A D _ G # \n2 # # # # # # # ")
    assert optimal_actions(grid, (1, 2)) == {Action.LEFT}
    assert solve(grid).distance[:, 1, 2].tolist() == [5, 3, 3]
    assert optimal_actions(grid.at(door=None), (1, 2)) == {Action.RIGHT}
    assert optimal_actions(grid, (1, 2), carrying_key=True) == {Action.RIGHT}


def test_planning_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="its goal"):
        distances(Grid.parse("A_"))
    with pytest.raises(ValueError, match="its agent"):
        shortest_length(Grid.parse("_G"))
    with pytest.raises(ValueError, match=r"wall.*\(0, 1\)"):
        optimal_actions(Grid.parse("A#G"), (0, 1))
    with pytest.raises(ValueError, match=r"position.*1x3"):
        optimal_actions(Grid.parse("A#G"), (1, 1))


def test_solutions_are_read_only() -> None:
    found = solve(layout("key-door", seed=0, index=0))
    for array in (found.distance, found.optimal):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0, 0] = 1
