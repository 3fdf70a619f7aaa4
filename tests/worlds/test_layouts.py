"""Key and door worlds: what each kind promises, over at least 500 worlds of each."""

from collections import Counter, deque

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.worlds import (
    ACTIONS,
    LAYOUTS,
    Grid,
    Position,
    control,
    key_door,
    key_no_door,
    layout,
    layout_series,
    two_path,
)
from goalscope.worlds.planning import distances, shortest_length

COUNT = 200


def flood(grid: Grid, origin: Position | None, blocked: Position | None = None) -> set[Position]:
    """Cells that a walk reaches from one cell, nothing but walls and one blocked cell in its way."""
    assert origin is not None
    seen, waiting = {origin}, deque([origin])
    while waiting:
        row, col = waiting.popleft()
        for near in ((row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)):
            if not grid.walls[near] and near != blocked and near not in seen:
                seen.add(near)
                waiting.append(near)
    return seen


def in_room(cell: Position | None) -> bool:
    return cell is not None and all(line in (1, 2, 3, 5, 6, 7) for line in cell)


def test_key_door_worlds_are_rooms_joined_by_a_tree_with_a_door_between_start_and_goal() -> None:
    shapes: Counter[tuple[int, ...]] = Counter()
    for grid in layout_series("key-door", seed=0, count=COUNT):
        assert grid.walls.shape == (9, 9)
        assert not grid.walls[np.ix_([1, 2, 3, 5, 6, 7], [1, 2, 3, 5, 6, 7])].any()
        open_walls = [
            int((~grid.walls[part]).sum()) for part in (np.s_[1:4, 4], np.s_[5:8, 4], np.s_[4, 1:4], np.s_[4, 5:8])
        ]
        assert sorted(open_walls) == [0, 1, 1, 1]
        shapes[tuple(open_walls)] += 1
        assert int((~grid.walls).sum()) == 36 + 3
        assert len(flood(grid, grid.start)) == 39
        near = flood(grid, grid.start, blocked=grid.door)
        assert grid.key in near
        assert grid.goal not in near
        assert all(in_room(cell) for cell in (grid.start, grid.goal, grid.key))
        assert not in_room(grid.door)
        assert len({grid.start, grid.goal, grid.key, grid.door}) == 4
        assert 2 <= shortest_length(grid) <= 30
        assert shortest_length(grid.at(key=None)) == -1
        assert shortest_length(grid) == distances_to(grid, grid.start, grid.key, grid.door) + distances_to(
            grid, grid.key, grid.goal, None
        )
    assert len(shapes) == 4
    assert min(shapes.values()) > COUNT / 4 - 5 * (COUNT * 3 / 16) ** 0.5


def distances_to(grid: Grid, origin: Position | None, target: Position | None, blocked: Position | None) -> int:
    walls = grid.walls.copy()
    if blocked is not None:
        walls[blocked] = True
    assert origin is not None
    return int(distances(Grid(walls=walls, goal=target))[origin])


def test_every_doorway_room_and_side_comes_up() -> None:
    grids = list(layout_series("key-door", seed=1, count=COUNT))
    assert len({grid.door for grid in grids}) == 12
    assert len({grid.start for grid in grids}) == 36
    assert len({grid.goal for grid in grids}) == 36
    assert len({grid.key for grid in grids}) == 36


@pytest.mark.full
def test_key_no_door_is_the_same_world_without_its_door() -> None:
    on_path = 0
    for index in range(COUNT):
        with_door = layout("key-door", seed=0, index=index)
        grid = layout("key-no-door", seed=0, index=index)
        assert grid == with_door.at(door=None)
        length = shortest_length(grid)
        assert length >= 1
        to_key = distances_to(grid, grid.start, grid.key, None)
        on_path += to_key + distances_to(grid, grid.key, grid.goal, None) == length
        assert shortest_length(control(grid)) == length
    share = on_path / COUNT
    assert 0.2 < share < 0.4  # the key is vestigial: most often it lies off every shortest path


def shortest_paths(grid: Grid) -> list[list[Position]]:
    """Every shortest path from start to goal, cell by cell."""
    left = distances(grid)
    assert grid.start is not None
    paths = [[grid.start]]
    for _ in range(int(left[grid.start])):
        grown = []
        for path in paths:
            for action in ACTIONS:
                near = path[-1][0] + action.delta[0], path[-1][1] + action.delta[1]
                if left[near] == left[path[-1]] - 1:
                    grown.append([*path, near])
        paths = grown
    return paths


def test_two_path_worlds_have_two_disjoint_shortest_paths_and_no_other() -> None:
    sizes: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    first_action = Counter[bool]()
    for grid in layout_series("two-path", seed=0, count=COUNT):
        paths = shortest_paths(grid)
        assert len(paths) == 2
        one, other = (set(path) for path in paths)
        assert one & other == {grid.start, grid.goal}
        assert [grid.key in path for path in paths].count(True) == 1
        assert grid.key not in (grid.start, grid.goal)
        assert grid.door is None
        assert shortest_length(control(grid)) == shortest_length(grid) == len(paths[0]) - 1
        assert shortest_paths(control(grid)) == paths
        sizes[grid.height] += 1
        lengths[len(paths[0]) - 1] += 1
        first_action[grid.key in paths[0]] += 1
    assert set(sizes) == {7, 9, 11}
    assert min(sizes.values()) > COUNT / 3 - 5 * (COUNT * 2 / 9) ** 0.5
    assert len(lengths) >= 5
    assert max(lengths) <= 24
    # paths[0] is the one with the lower first action: the key must favour neither.
    assert abs(first_action[True] - COUNT / 2) < 4.5 * (COUNT / 4) ** 0.5


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_control_is_the_same_grid_without_key_and_door(kind: str) -> None:
    grid = layout(kind, seed=4, index=2)
    matched = control(grid)
    assert (matched.key, matched.door) == (None, None)
    assert (matched.start, matched.goal) == (grid.start, grid.goal)
    assert (matched.walls == grid.walls).all()
    assert shortest_length(matched) >= 1


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_world_is_the_same_alone_and_in_a_series(kind: str) -> None:
    whole = list(layout_series(kind, seed=9, count=12))
    assert list(layout_series(kind, seed=9, count=5, first=4)) == whole[4:9]
    assert layout(kind, seed=9, index=11) == whole[11]
    assert len(set(whole)) == 12
    assert layout(kind, seed=10, index=0) != whole[0]


def test_equal_generators_give_equal_worlds() -> None:
    for draw in (key_door, key_no_door, two_path):
        assert draw(rng=stream(3, "w")) == draw(rng=stream(3, "w"))
        assert draw(rng=stream(3, "w")) != draw(rng=stream(4, "w"))


def test_the_series_never_change() -> None:
    assert layout("key-door", seed=0, index=0).render() == (
        "  0 1 2 3 4 5 6 7 8\n"
        "0 # # # # # # # # #\n"
        "1 # _ _ _ # _ _ _ #\n"
        "2 # _ K _ # _ _ A #\n"
        "3 # _ _ _ _ _ _ _ #\n"
        "4 # # # _ # # D # #\n"
        "5 # _ _ _ # _ _ _ #\n"
        "6 # _ _ _ # _ _ _ #\n"
        "7 # _ _ _ # G _ _ #\n"
        "8 # # # # # # # # #"
    )


def test_what_a_layout_refuses() -> None:
    with pytest.raises(ValueError, match=r"key-door, key-no-door, two-path.* 'maze'"):
        layout("maze", seed=0, index=0)
    for index in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match=r"index .*>= 0"):
            layout("two-path", seed=0, index=index)  # type: ignore[arg-type]
