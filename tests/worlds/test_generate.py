"""The generator: counts of walls, equal bytes however they are drawn, uniform draws; what each layout promises."""

import hashlib
import subprocess
import sys
from collections import Counter, deque
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from families import long_after
from goalscope._ground.rng import stream
from goalscope.worlds import (
    ACTIONS,
    LAYOUTS,
    Grid,
    GridBatch,
    Position,
    control,
    generate,
    generate_batch,
    interior_walls,
    key_door,
    key_no_door,
    layout,
    layout_series,
    two_path,
)
from goalscope.worlds.planning import distances, distances_batch, shortest_length

SIZES = (5, 7, 9, 11, 13, 15, 21)
DENSITIES = (0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0)


def digest(batch: GridBatch) -> str:
    """Hash of all the bytes of a batch."""
    parts = batch.walls.tobytes() + batch.start.tobytes() + batch.goal.tobytes()
    return hashlib.sha256(parts).hexdigest()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("density", DENSITIES)
def test_wall_counts_have_their_closed_form(size: int, density: float) -> None:
    batch = generate_batch(size, density, seed=1, count=20)
    side = (size - 1) // 2
    maze = (size - 2) ** 2 - (2 * side * side - 1)
    kept = maze - int((1 - density) * maze)
    assert interior_walls(size, density) == kept
    assert (batch.walls[:, 1:-1, 1:-1].sum(axis=(1, 2)) == kept).all()
    border = np.ones((size, size), dtype=bool)
    border[1:-1, 1:-1] = False
    assert batch.walls[:, border].all()


@pytest.mark.parametrize(("size", "density", "kept"), [(7, 0.6, 5), (7, 0.8, 7), (11, 0.6, 20), (7, 1.0, 8)])
def test_truncation_keeps_what_the_specification_names(size: int, density: float, kept: int) -> None:
    assert interior_walls(size, density) == kept
    assert generate(size, density, rng=stream(0, "t")).walls[1:-1, 1:-1].sum() == kept


@pytest.mark.parametrize(("size", "density", "distance"), [(7, 0.6, 1), (11, 0.4, 9), (15, 1.0, 1)])
def test_a_world_has_the_same_bytes_alone_and_in_any_batch(size: int, density: float, distance: int) -> None:
    whole = generate_batch(size, density, seed=5, count=1100, minimum_distance=distance)
    for first, count in ((0, 1), (3, 1), (1023, 3), (1099, 1), (500, 77)):
        part = generate_batch(size, density, seed=5, count=count, first=first, minimum_distance=distance)
        for name in ("walls", "start", "goal"):
            assert (getattr(part, name) == getattr(whole, name)[first : first + count]).all()
    assert generate_batch(size, density, seed=5, count=3)[1] == list(generate_batch(size, density, seed=5, count=3))[1]


def test_other_processes_draw_the_same_bytes() -> None:
    expected = [digest(generate_batch(9, 0.4, seed=2, first=first, count=10)) for first in (0, 10)]
    code = (
        "import sys, hashlib; from goalscope.worlds import generate_batch\n"
        "b = generate_batch(9, 0.4, seed=2, first=int(sys.argv[1]), count=10)\n"
        "print(hashlib.sha256(b.walls.tobytes() + b.start.tobytes() + b.goal.tobytes()).hexdigest())"
    )
    for first, wanted in zip((0, 10), expected, strict=True):
        done = subprocess.run([sys.executable, "-c", code, str(first)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == wanted


def test_the_series_never_changes() -> None:
    assert digest(generate_batch(11, 0.6, seed=0, count=100))[:16] == "186be0b142e4ea3b"
    grid = generate(7, 0.6, rng=stream(0, "pinned"))
    assert hashlib.sha256(grid.render().encode()).hexdigest()[:16] == "b7720d876e247e84"


def test_names_seeds_and_parameters_make_series_of_their_own() -> None:
    drawn = {
        digest(generate_batch(9, density, seed=seed, count=5, name=name, minimum_distance=distance))
        for density in (0.5, 0.6)
        for seed in (0, 1, -1)
        for name in ("grid", "probe")
        for distance in (1, 2)
    }
    assert len(drawn) == 24
    assert digest(generate_batch(9, -0.0, seed=0, count=5)) == digest(generate_batch(9, 0, seed=0, count=5))


def test_ten_thousand_worlds_are_solvable() -> None:
    total = 0
    for size in (5, 7, 9, 11, 13, 15):
        for density in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
            batch = generate_batch(size, density, seed=3, count=280)
            each = np.arange(len(batch))
            length = distances_batch(batch.walls, batch.goal)[each, batch.start[:, 0], batch.start[:, 1]]
            assert (length >= 1).all()
            assert not batch.walls[each, batch.start[:, 0], batch.start[:, 1]].any()
            total += len(batch)
    assert total >= 10_000


@pytest.mark.parametrize("distance", long_after(2, [1, 5, 12]))
def test_start_and_goal_keep_their_minimum_distance(distance: int) -> None:
    batch = generate_batch(9, 0.6, seed=3, count=300, minimum_distance=distance)
    each = np.arange(len(batch))
    length = distances_batch(batch.walls, batch.goal)[each, batch.start[:, 0], batch.start[:, 1]]
    assert length.min() >= distance
    grid = generate(9, 0.6, rng=stream(0, "far"), minimum_distance=distance)
    assert grid.start is not None
    assert distances_batch(grid.walls[None], np.array([grid.goal]))[0][grid.start] >= distance


@pytest.mark.parametrize("size", SIZES)
def test_density_one_is_a_maze_without_cycles(size: int) -> None:
    batch = generate_batch(size, 1.0, seed=4, count=60)
    free = ~batch.walls
    cells = free.sum(axis=(1, 2))
    passages = (free[:, 1:] & free[:, :-1]).sum(axis=(1, 2)) + (free[:, :, 1:] & free[:, :, :-1]).sum(axis=(1, 2))
    reached = (distances_batch(batch.walls, batch.goal) >= 0).sum(axis=(1, 2))
    assert (cells == 2 * ((size - 1) // 2) ** 2 - 1).all()
    assert (passages == cells - 1).all()
    assert (reached == cells).all()
    assert free[:, 1::2, 1::2].all()
    assert not free[:, ::2, ::2].any()


def search_trees(side: int) -> dict[frozenset[tuple[int, int]], Fraction]:
    """Exact distribution of the tree that randomised depth-first search leaves, the root uniform."""
    cells = side * side
    near = {
        cell: [
            other for other in range(cells) if abs(cell // side - other // side) + abs(cell % side - other % side) == 1
        ]
        for cell in range(cells)
    }
    found: Counter[frozenset[tuple[int, int]]] = Counter()
    Branch = tuple[Fraction, tuple[int, ...], frozenset[int], frozenset[tuple[int, int]]]  # noqa: N806
    open_branches: list[Branch] = [
        (Fraction(1, cells), (root,), frozenset({root}), frozenset()) for root in range(cells)
    ]
    while open_branches:
        chance, stack, seen, edges = open_branches.pop()
        while stack and not [cell for cell in near[stack[-1]] if cell not in seen]:
            stack = stack[:-1]
        if not stack:
            found[edges] += chance  # type: ignore[assignment]
            continue
        free = [cell for cell in near[stack[-1]] if cell not in seen]
        for cell in free:
            edge = (min(stack[-1], cell), max(stack[-1], cell))
            open_branches.append((chance / len(free), (*stack, cell), seen | {cell}, edges | {edge}))
    return dict(found)  # type: ignore[arg-type]


def test_mazes_have_the_distribution_of_randomised_depth_first_search() -> None:
    exact = search_trees(3)
    assert sum(exact.values()) == 1
    count = 40_000
    free = ~generate_batch(7, 1.0, seed=6, count=count).walls
    observed: Counter[frozenset[tuple[int, int]]] = Counter()
    for maze in free:
        edges = [(3 * r + c, 3 * r + c + 1) for r in range(3) for c in range(2) if maze[2 * r + 1, 2 * c + 2]]
        edges += [(3 * r + c, 3 * r + c + 3) for r in range(2) for c in range(3) if maze[2 * r + 2, 2 * c + 1]]
        observed[frozenset(edges)] += 1
    assert set(observed) <= set(exact)  # a tree that the search cannot leave never appears
    expected = np.array([float(chance) * count for chance in exact.values()])
    counts = np.array([observed[tree] for tree in exact])
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_deleted_walls_are_uniform_among_the_interior_walls() -> None:
    count = 20_000
    free = ~generate_batch(11, 0.6, seed=7, count=count).walls  # 12 of 32 walls go; 16 of the 32 are pillars
    pillars = free[:, 2:-1:2, 2:-1:2].reshape(count, -1)
    assert pillars.shape[1] == 16
    hits = pillars.sum(axis=0)
    share = 12 / 32
    spread = np.sqrt(count * share * (1 - share))
    assert (np.abs(hits - count * share) < 4.5 * spread).all()
    number = np.bincount(pillars.sum(axis=1), minlength=13)
    expected = count * stats.hypergeom(32, 16, 12).pmf(np.arange(13))
    usual = expected >= 5
    counts = np.append(number[usual], number[~usual].sum())
    wanted = np.append(expected[usual], expected[~usual].sum())
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-3


def test_start_and_goal_are_uniform_over_pairs_of_cells() -> None:
    count = 20_000
    batch = generate_batch(5, 0.0, seed=8, count=count)
    start, goal = ((cells - 1) @ [3, 1] for cells in (batch.start, batch.goal))
    pairs = np.bincount(start * 9 + goal, minlength=81).reshape(9, 9)
    assert (np.diag(pairs) == 0).all()
    assert stats.chisquare(pairs[~np.eye(9, dtype=bool)]).pvalue > 1e-3
    maze = generate_batch(7, 1.0, seed=8, count=count)
    rank = (~maze.walls).reshape(count, -1).cumsum(axis=1)
    for cells in (maze.start, maze.goal):
        place = rank[np.arange(count), cells @ [7, 1]] - 1
        assert stats.chisquare(np.bincount(place, minlength=17)).pvalue > 1e-3


@pytest.mark.parametrize("size", [4, 6, 10, 3, 1, 0, -7, True, 7.0, "7", None])
def test_sizes_are_odd_whole_numbers_from_five(size: object) -> None:
    for call in (
        lambda: generate(size, 0.6, rng=stream(0, "x")),  # type: ignore[arg-type]
        lambda: generate_batch(size, 0.6, seed=0, count=1),  # type: ignore[arg-type]
        lambda: interior_walls(size, 0.6),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"size .*>= 5"):
            call()


def test_an_even_size_comes_with_its_neighbours() -> None:
    with pytest.raises(ValueError, match="10: use 9 or 11"):
        generate(10, rng=stream(0, "x"))


@pytest.mark.parametrize("density", [1.2, -0.1, float("nan"), True, "0.5", None])
def test_densities_lie_between_zero_and_one(density: object) -> None:
    with pytest.raises(ValueError, match=r"density .*\[0, 1\]"):
        generate(7, density, rng=stream(0, "x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="density"):
        generate_batch(7, density, seed=0, count=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"minimum_distance": 0}, "minimum_distance for size 7 must be a whole number of steps from 1 to 24, got 0"),
        ({"minimum_distance": 25}, "from 1 to 24, got 25"),
        ({"minimum_distance": 2.0}, "minimum_distance for size 7 must be a whole number of steps"),
        ({"count": -1}, "count must be a whole number >= 0, got -1"),
        ({"first": -1}, "first must be a whole number >= 0, got -1"),
        ({"count": 2.0}, "count must be a whole number >= 0"),
    ],
)
def test_what_a_batch_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_batch(7, 0.0, **{"seed": 0, "count": 1} | arguments)  # type: ignore[arg-type]


def test_a_distance_that_no_grid_has_is_given_up_with_advice() -> None:
    message = r"no 5x5 grid of density 0\.0 .* lower minimum_distance or raise size"
    with pytest.raises(ValueError, match=message):
        generate(5, 0.0, rng=stream(0, "far"), minimum_distance=8)
    with pytest.raises(ValueError, match=message):
        generate_batch(5, 0.0, seed=0, count=2, minimum_distance=8)


def test_an_empty_batch_is_a_batch() -> None:
    batch = generate_batch(7, 0.6, seed=0, count=0)
    assert len(batch) == 0
    assert list(batch) == []
    assert batch.walls.shape == (0, 7, 7)


def test_grids_of_a_batch_are_grids() -> None:
    batch = generate_batch(7, 0.6, seed=0, count=2)
    first: Grid = batch[0]
    assert first.start == tuple(batch.start[0])
    assert first.goal == tuple(batch.goal[0])
    assert (first.walls == batch.walls[0]).all()


def test_a_seed_in_place_of_a_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="Generator"):
        generate(7, 0.5, rng=7)  # type: ignore[arg-type]


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
