"""Fog: the paper's figure, an independent line drawer, and laws of sight."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds import (
    ACTIONS,
    Fog,
    Grid,
    Position,
    Transform,
    generate,
    initial_state,
    layout,
    shown,
    step,
    visible,
    visible_batch,
)

FIGURE = """
  0 1 2 3 4 5 6
0 * * # # # # #
1 * * _ _ # _ #
2 * * # _ # _ #
3 * * # _ _ A #
4 * * # # # # #
5 * * * * * * *
6 * * * * * * *
"""


def bresenham(one: Position, other: Position) -> list[Position]:
    """Bresenham's line in its usual integer form with one error term."""
    (row, col), (last_row, last_col) = one, other
    across, down = abs(last_col - col), -abs(last_row - row)
    right, below = (1 if col < last_col else -1), (1 if row < last_row else -1)
    error = across + down
    cells = [(row, col)]
    while (row, col) != other:
        twice = 2 * error
        if twice > down:
            error += down
            col += right
        if twice < across:
            error += across
            row += below
        cells.append((row, col))
    return cells


def sight(walls: npt.NDArray[np.bool_], position: Position, radius: int) -> npt.NDArray[np.bool_]:
    """Every cell whose line from the agent holds no wall before it, cell by cell."""
    seen = np.zeros_like(walls)
    for row, col in itertools.product(*map(range, walls.shape)):
        if abs(row - position[0]) + abs(col - position[1]) <= radius:
            seen[row, col] = not any(walls[cell] for cell in bresenham(position, (row, col))[1:-1])
    return seen


@st.composite
def rooms(draw: st.DrawFn) -> tuple[npt.NDArray[np.bool_], Position]:
    """Random walls, not square, and an open cell."""
    height, width = draw(st.integers(1, 11)), draw(st.integers(1, 11))
    rng = stream(draw(st.integers(0, 10**6)), "fog")
    walls = rng.random((height, width)) < draw(st.sampled_from([0.0, 0.2, 0.4]))
    position = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    walls[position] = False
    return walls, position


@given(rooms(), st.integers(1, 6))
def test_sight_is_that_of_a_literal_line_drawer(room: tuple[npt.NDArray[np.bool_], Position], radius: int) -> None:
    walls, position = room
    assert (visible(walls, position, radius) == sight(walls, position, radius)).all()


@given(rooms(), st.integers(1, 5))
def test_laws_of_sight(room: tuple[npt.NDArray[np.bool_], Position], radius: int) -> None:
    walls, position = room
    seen = visible(walls, position, radius)
    assert seen[position]
    for action in ACTIONS:
        near = position[0] + action.delta[0], position[1] + action.delta[1]
        if 0 <= near[0] < walls.shape[0] and 0 <= near[1] < walls.shape[1]:
            assert seen[near]  # the next cell is always seen, a wall too
    assert (seen <= visible(walls, position, radius + 1)).all()
    assert (seen <= visible(np.zeros_like(walls), position, radius)).all()
    rows, cols = np.indices(walls.shape)
    reach = np.abs(rows - position[0]) + np.abs(cols - position[1]) <= radius
    assert (visible(np.zeros_like(walls), position, radius) == reach).all()


@given(rooms(), st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_sight_commutes_with_reflections_and_rotations(
    room: tuple[npt.NDArray[np.bool_], Position], radius: int, turns: int, reflected: bool
) -> None:
    walls, position = room
    element = Transform(turns=turns, reflected=reflected)
    moved = visible(element.field(walls), element.position(position, walls.shape), radius)
    assert (moved == element.field(visible(walls, position, radius))).all()


def test_a_straight_line_is_symmetric() -> None:
    grid = generate(15, 0.6, rng=stream(0, "symmetric"))
    cells = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls)]
    seen = {cell: visible(grid.walls, cell) for cell in cells}
    for one, other in itertools.combinations(cells, 2):
        if one[0] == other[0] or one[1] == other[1] or abs(one[0] - other[0]) == abs(one[1] - other[1]):
            assert seen[one][other] == seen[other][one]


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_a_batch_sees_what_each_agent_sees(seed: int, radius: int) -> None:
    rng = stream(seed, "fog batch")
    walls = rng.random((6, 5, 8)) < 0.3
    position = np.stack([rng.integers(0, 5, 6), rng.integers(0, 8, 6)], axis=1)
    seen = visible_batch(walls, position, radius)
    for index in range(6):
        assert (seen[index] == visible(walls[index], (int(position[index, 0]), int(position[index, 1])), radius)).all()


def test_the_figure_of_the_paper_comes_out_of_a_walk() -> None:
    figure = Grid.parse(FIGURE)
    assert figure.fog is not None
    # What the figure hides is taken for walls; a goal somewhere there stays unseen.
    whole = figure.at(fog=None, walls=figure.walls | figure.fog, start=(2, 3))
    fog = Fog.start(whole)
    for cell in ((3, 3), (3, 4), (3, 5), (2, 5), (3, 5)):
        fog = fog.look(cell)
    assert fog.view(whole.at(start=(3, 5))) == figure


@pytest.mark.parametrize("norm", ["chebyshev", "euclidean", "manhattan"])
def test_only_the_manhattan_distance_reproduces_the_figure(norm: str) -> None:
    figure = Grid.parse(FIGURE)
    assert figure.fog is not None
    walls, wanted = figure.walls | figure.fog, ~figure.fog
    seen = {}
    for cell in [(int(row), int(col)) for row, col in np.argwhere(~walls)]:
        rows, cols = np.indices(walls.shape) - np.array(cell)[:, None, None]
        reach = {
            "chebyshev": np.maximum(np.abs(rows), np.abs(cols)) <= 3,
            "euclidean": rows**2 + cols**2 <= 9,
            "manhattan": np.abs(rows) + np.abs(cols) <= 3,
        }[norm]
        seen[cell] = reach & sight(walls, cell, 6)
    walks = grown = {frozenset({(3, 5)})}  # the sets of cells that a walk to the agent's cell can have been on
    while grown:
        grown = {
            walk | {cell}
            for walk in grown
            for cell in seen
            if cell not in walk and any(abs(cell[0] - row) + abs(cell[1] - col) == 1 for row, col in walk)
        }
        walks = walks | grown
    matches = [walk for walk in walks if (np.logical_or.reduce([seen[cell] for cell in walk]) == wanted).all()]
    assert bool(matches) == (norm == "manhattan")


def test_what_has_been_seen_stays_seen_and_hides_the_rest() -> None:
    grid = generate(11, 0.6, rng=stream(1, "walk"))
    rng = stream(2, "walk")
    state = initial_state(grid)
    fog = Fog.start(grid)
    for _ in range(120):
        state = step(grid, state, ACTIONS[int(rng.integers(4))])
        before, fog = fog.seen, fog.look(state.position)
        assert (before <= fog.seen).all()
        view = fog.view(shown(grid, state))
        assert view.start == state.position
        assert view.fog is None or (view.fog == ~fog.seen).all()
        assert (view.walls == grid.walls & fog.seen).all()
        assert grid.goal is not None
        assert (view.goal is not None) == (bool(fog.seen[grid.goal]) and state.position != grid.goal)
        assert Grid.parse(view.render()) == view


def test_key_and_door_are_hidden_until_seen_and_a_locked_door_blocks_the_sight() -> None:
    grid = Grid.parse("###########\n#A___K_DG_#\n###########")
    fog = Fog.start(grid)
    assert fog.view(grid).render().splitlines()[2] == " 1  #  A  _  _  _  *  *  *  *  *  *"
    fog = fog.look((1, 5))
    view = fog.view(grid.at(start=(1, 4)))
    assert (view.key, view.door, view.goal) == ((1, 5), (1, 7), None)
    assert fog.look((1, 6)).seen[1, 8] == np.False_
    opened = fog.look((1, 6), grid.walls)
    assert opened.view(grid.at(start=(1, 6), key=None, door=None)).goal == (1, 8)


def test_a_key_room_is_seen_room_by_room() -> None:
    grid = layout("key-door", seed=0, index=0)
    view = Fog.start(grid, 3).view(grid)
    assert view.fog is not None
    assert view.fog.sum() > 40
    assert view.goal is None


@pytest.mark.parametrize("radius", [0, -1, 1.5, True, None])
def test_a_radius_is_a_whole_number_of_steps(radius: object) -> None:
    grid = generate(5, rng=stream(0, "x"))
    for call in (
        lambda: Fog.start(grid, radius),  # type: ignore[arg-type]
        lambda: visible(grid.walls, (1, 1), radius),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"radius .*>= 1"):
            call()


def test_what_fog_refuses() -> None:
    grid = generate(7, 0.0, rng=stream(0, "x"))
    with pytest.raises(ValueError, match="agent"):
        Fog.start(grid.at(start=None))
    with pytest.raises(ValueError, match="fog"):
        Fog.start(Fog.start(grid, 1).view(grid))
    with pytest.raises(ValueError, match=r"position .*7x7"):
        visible(grid.walls, (7, 1))
    far = Grid.parse("#######\n#A____#\n#######")
    with pytest.raises(ValueError, match=r"\(1, 5\)"):
        Fog.start(far).view(far.at(start=(1, 5)))
    with pytest.raises(ValueError, match=r"grid .*shape"):
        Fog.start(far).view(grid)
    with pytest.raises(ValueError, match=r"seen .*shape"):
        Fog(solid=grid.walls, radius=3, seen=far.walls)
