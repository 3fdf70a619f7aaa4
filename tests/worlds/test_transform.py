"""The transforms are one group that acts alike on grids, cells, actions, paths and arrays over cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds import (
    ACTIONS,
    IDENTITY,
    TRANSFORMS,
    Action,
    Fog,
    Grid,
    State,
    Transform,
    generate,
    layout,
    settle,
    step,
    transform,
)
from goalscope.worlds.planning import shortest_length, solve

ELEMENTS = [
    Transform(turns=turns, reflected=reflected, swapped=swapped)
    for turns in range(4)
    for reflected in (False, True)
    for swapped in (False, True)
]
GEOMETRIC = [element for element in ELEMENTS if not element.swapped]
elements, geometric = st.sampled_from(ELEMENTS), st.sampled_from(GEOMETRIC)


@st.composite
def plain_grids(draw: st.DrawFn) -> Grid:
    """A generated grid, some of its rows cut away so that most are not square, with a key where there is room."""
    grid = generate(
        draw(st.sampled_from([5, 7, 9, 11])),
        draw(st.sampled_from([0.0, 0.4, 0.6, 1.0])),
        rng=stream(draw(st.integers(0, 10**6)), "transform"),
    )
    walls = grid.walls[: draw(st.integers(3, grid.height))]
    cells = [(int(row), int(col)) for row, col in np.argwhere(~walls)]
    start, goal, *rest = draw(st.lists(st.sampled_from(cells), unique=True, min_size=2, max_size=3))
    return Grid(walls=walls, start=start, goal=goal, key=rest[0] if rest else None)


@st.composite
def any_grids(draw: st.DrawFn) -> Grid:
    """A plain grid, a key-door grid, or either under fog, start and goal shown."""
    grid = draw(plain_grids() | st.integers(0, 200).map(lambda index: layout("key-door", seed=0, index=index)))
    if draw(st.booleans()):
        assert grid.start is not None
        grid = Fog.start(grid, draw(st.integers(1, 4))).view(grid)
    return grid


def test_the_named_elements_generate_sixteen() -> None:
    found = {IDENTITY}
    while True:
        grown = found | {TRANSFORMS[name].compose(element) for name in TRANSFORMS for element in found}
        if grown == found:
            break
        found = grown
    assert found == set(ELEMENTS)
    assert len(found) == 16


@given(elements, elements, elements)
def test_group_laws(a: Transform, b: Transform, c: Transform) -> None:
    assert a.compose(b) in ELEMENTS
    assert a.compose(b).compose(c) == a.compose(b.compose(c))
    assert a.compose(IDENTITY) == a == IDENTITY.compose(a)
    assert a.compose(a.inverse()) == IDENTITY == a.inverse().compose(a)


@pytest.mark.parametrize(("name", "order"), [("rotate", 4), ("reflect", 2), ("transpose", 2), ("swap", 2)])
def test_orders_of_the_named_elements(name: str, order: int) -> None:
    element = power = TRANSFORMS[name]
    for _ in range(order - 1):
        assert power != IDENTITY
        power = element.compose(power)
    assert power == IDENTITY


@given(plain_grids())
def test_named_transforms_are_what_numpy_does(grid: Grid) -> None:
    assert (transform(grid, "reflect").walls == grid.walls[:, ::-1]).all()
    assert (transform(grid, "rotate").walls == np.rot90(grid.walls)).all()
    assert (transform(grid, "transpose").walls == grid.walls.T).all()
    assert transform(grid, "identity") == grid
    swapped = transform(grid, "swap")
    assert (swapped.start, swapped.goal, swapped.key) == (grid.goal, grid.start, grid.key)
    assert (swapped.walls == grid.walls).all()


def test_actions_turn_with_the_grid() -> None:
    moved = {name: [TRANSFORMS[name].action(action).name for action in ACTIONS] for name in TRANSFORMS}
    assert moved == {
        "identity": ["UP", "DOWN", "LEFT", "RIGHT"],
        "reflect": ["UP", "DOWN", "RIGHT", "LEFT"],
        "rotate": ["LEFT", "RIGHT", "DOWN", "UP"],
        "transpose": ["LEFT", "RIGHT", "UP", "DOWN"],
        "swap": ["UP", "DOWN", "LEFT", "RIGHT"],
    }


@given(geometric, geometric, any_grids(), st.data())
def test_everything_is_acted_on_by_one_group(a: Transform, b: Transform, grid: Grid, data: st.DataObject) -> None:
    both = a.compose(b)
    middle = b.grid(grid)
    shape = grid.walls.shape
    assert both.grid(grid) == a.grid(middle)
    assert a.inverse().grid(a.grid(grid)) == grid
    cell = data.draw(st.tuples(st.integers(0, grid.height - 1), st.integers(0, grid.width - 1)))
    assert both.position(cell, shape) == a.position(b.position(cell, shape), middle.walls.shape)
    mark = np.zeros(shape, dtype=bool)
    mark[cell] = True
    assert np.argwhere(a.field(mark)).tolist() == [list(a.position(cell, shape))]
    for action in ACTIONS:
        assert both.action(action) == a.action(b.action(action))
    policy = data.draw(st.integers(0, 99).map(lambda seed: stream(seed, "p").random((2, *shape, 4))))
    assert (both.policy(policy) == a.policy(b.policy(policy))).all()
    assert (a.policy(policy[0]) == a.policy(policy)[0]).all()
    row, col = a.position(cell, shape)
    assert (a.policy(policy)[1, row, col] == a.policy(policy[(1, *cell)])).all()
    for action in ACTIONS:
        assert a.policy(policy)[1, row, col, a.action(action)] == policy[(1, *cell)][action]


@given(geometric, any_grids(), st.lists(st.sampled_from(ACTIONS), max_size=30))
def test_steps_commute_with_transforms(element: Transform, grid: Grid, actions: list[Action]) -> None:
    whole = grid.at(fog=None)
    moved = element.grid(whole)
    assert whole.start is not None and moved.start is not None
    state, other = settle(whole, whole.start), settle(moved, moved.start)
    for action in actions:
        state, other = step(whole, state, action), step(moved, other, element.action(action))
        position = element.position(state.position, whole.walls.shape)
        assert other == State(position, state.carrying_key, state.door_open)


@given(geometric, plain_grids() | st.integers(0, 200).map(lambda index: layout("key-door", seed=1, index=index)))
def test_optimal_sets_commute_with_transforms(element: Transform, grid: Grid) -> None:
    before, after = solve(grid), solve(element.grid(grid))
    assert (after.distance == element.field(before.distance)).all()
    assert (after.optimal == element.policy(before.optimal)).all()


def first_path(grid: Grid) -> list[Action]:
    """One shortest path from start to goal; empty where there is none."""
    paths = solve(grid)
    assert grid.start is not None
    state, actions = settle(grid, grid.start), []
    while paths.optimal[(min(state.phase, len(paths.optimal) - 1), *state.position)].any():
        row, col = state.position
        actions.append(Action(int(paths.optimal[min(state.phase, len(paths.optimal) - 1), row, col].argmax())))
        state = step(grid, state, actions[-1])
    return actions


@given(elements, plain_grids())
def test_the_length_is_kept_and_paths_go_over_into_paths(element: Transform, grid: Grid) -> None:
    moved = element.grid(grid)
    assert shortest_length(moved) == shortest_length(grid)
    actions = element.path(first_path(grid))
    assert moved.start is not None
    state = settle(moved, moved.start)
    for action in actions:
        state = step(moved, state, action)
    if shortest_length(grid) >= 0:
        assert len(actions) == shortest_length(grid)
        assert state.position == moved.goal


@given(elements, plain_grids())
def test_swapping_and_turning_commute(element: Transform, grid: Grid) -> None:
    swap = TRANSFORMS["swap"]
    assert swap.compose(element) == element.compose(swap)
    assert swap.grid(element.grid(grid)) == element.grid(swap.grid(grid))


def test_a_swap_with_a_locked_door_is_refused() -> None:
    grid = layout("key-door", seed=0, index=0)
    with pytest.raises(ValueError, match="locked door"):
        transform(grid, "swap")
    assert transform(grid.at(door=None), "swap").goal == grid.start
    with pytest.raises(ValueError, match=r"goal \(G\)"):
        transform(grid.at(door=None, goal=None), "swap")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    grid = generate(5, rng=stream(0, "x"))
    with pytest.raises(ValueError, match=r"identity, reflect, rotate, transpose, swap.* 'mirror'"):
        transform(grid, "mirror")


def test_bad_arguments_of_a_transform() -> None:
    with pytest.raises(ValueError, match=r"turns .*0, 1, 2 or 3"):
        Transform(turns=4)
    with pytest.raises(ValueError, match=r"position .*2x3"):
        IDENTITY.position((2, 0), (2, 3))
    with pytest.raises(ValueError, match=r"policy .*shape"):
        IDENTITY.policy(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"policy .*shape"):
        IDENTITY.policy(np.zeros((3, 3, 5)))
    with pytest.raises(ValueError, match=r"cells .*shape"):
        IDENTITY.field(np.zeros(3))
