"""Check that a kind of thing obeys the laws common to all things, for your own kinds too.

from goalscope.worlds import check_thing
check_thing(TollGate)
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.worlds.dynamics import (
    State,
    has_ended,
    initial_state,
    opaque_cells,
    seen_state,
    shown,
    state_number,
    state_with,
    step,
    transitions,
)
from goalscope.worlds.environments.environment import Observed
from goalscope.worlds.environments.solution import enumerate_states, solve_table
from goalscope.worlds.generate import generate
from goalscope.worlds.grid import ACTIONS, ENCODINGS, Grid, cell_offsets, written
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning.shortest import solve
from goalscope.worlds.things import Kind, arrangement_of, kinds
from goalscope.worlds.transform import Transform

_SYMMETRIES: Final = tuple(Transform(turns=turns, reflected=flip) for flip in (True, False) for turns in range(4))
"""The symmetries of the square; one of them is checked in each grid."""
_IN_READING_ORDER: Final = "T"
"""Symbol of the teleporter: three of them lead on in reading order, which a turn changes."""


def check_thing(kind: type[Kind] | str, *, grids: int = 8, symmetric: bool = True) -> None:
    """Check in random grids that a kind of thing (an object in grids, such as a coin) obeys the laws common to all
    things.

    The grids also contain other registered kinds, and some contain the key K and the door D.

    1. The text of a grid leads back to the grid, in every encoding of prompts.
    2. `Kind.act` gives the same result for the same arguments, states stay within `Kind.states`, and the agent stays on
       open cells. What happens depends neither on the goal nor on where the episode began.
    3. Distances and optimal actions of all states are those of the solver for environments, which knows nothing but
       single steps.
    4. What the agent sees, which is the picture and what it carries, determines the future.
    5. In a rotated or reflected grid, everything happens in the same way (with ``symmetric``; each grid is turned by
       another one of the eight symmetries of the square).

    Args:
        kind: a class that is registered with `goalscope.worlds.things.thing`, or the name of a kind.
        grids: number of random grids.
        symmetric: whether to check law 5. A thing that acts in reading order does not obey it.

    Raises:
        ValueError: if the kind is not registered.
        AssertionError: if the kind breaks a law; the message shows the law, the grid and a remedy.
    """
    name = kind if isinstance(kind, str) else getattr(kind, "name", "")
    if not registry.registered("thing", name):
        raise ValueError(f"a kind of thing must be registered, got {kind!r}: decorate its class with @things.thing")
    instance = registry.resolve("thing", name)
    for seed in range(check_whole("grids", grids, 1, "grids")):
        grid = grid_with(name, seed)
        try:
            _check_text(instance, grid)
            _check_acts(instance, grid)
            _check_independence(instance, grid)
            _check_solution(instance, grid)
            _check_sight(instance, grid)
            if symmetric:
                _check_symmetry(instance, grid, _SYMMETRIES[seed % len(_SYMMETRIES)])
        except ValueError as error:
            raise AssertionError(f"{name!r} must not fail in this grid, got {error}:\n{grid}") from error


def grid_with(name: str, seed: int, *, size: int = 7, density: float = 0.4) -> Grid:
    """Generate a random grid with one or two things of a kind, and up to three of other kinds, to test the kind.

    Args:
        name: name of the kind, such as "coin".
        seed: seed of the grid; with every third seed, the grid also has a key and a door.
        size: number of rows and of columns.
        density: share of interior walls, from 0 (empty room) to 1 (maze).
    """
    rng = stream(seed, "things", name)
    grid = generate(size, density, rng=rng)
    registered = {kind.name: kind.symbol for kind in kinds()}
    free = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls) if (row, col) not in (grid.start, grid.goal)]
    others = rng.choice(sorted(registered.values()), size=3).tolist()
    symbols = [registered[name]] * int(rng.integers(1, 3)) + others
    cells = rng.permutation(len(free))[: len(symbols)].tolist()
    things = tuple((free[cell], symbol) for cell, symbol in zip(cells, symbols, strict=False))
    rest = [cell for cell in free if cell not in dict(things)]
    keyed = seed % 3 == 0 and len(rest) > 1
    return grid.at(things=things, key=rest[0] if keyed else None, door=rest[-1] if keyed else None)


def reachable(grid: Grid) -> list[State]:
    """Return all states that an agent can reach from the start of a grid, sorted."""
    states, waiting = set[State](), [initial_state(grid)]
    while waiting:
        state = waiting.pop()
        if state not in states:
            states.add(state)
            if not has_ended(grid, state):
                waiting += [step(grid, state, action) for action in ACTIONS]
    return sorted(states)


def _demand(holds: object, kind: Kind, grid: Grid, law: str) -> None:
    if not holds:
        raise AssertionError(f"{kind.name!r} {law}. It does not in this grid:\n{grid}")


def _check_text(kind: Kind, grid: Grid) -> None:
    text = grid.render()
    equal = Grid.parse(text) == grid and GridWorld.from_plain(GridWorld(grid=grid).to_plain()).grid == grid
    _demand(equal, kind, grid, "must be read back from the text of a grid: choose another symbol")
    for encoding in ENCODINGS:
        offsets = cell_offsets(text, encoded := written(encoding, text))
        has_all = offsets is not None and all(encoded[offsets[cell]] == symbol for cell, symbol in grid.things)
        _demand(has_all, kind, grid, f"must be found in the encoding {encoding}: choose another symbol")


def _check_independence(kind: Kind, grid: Grid) -> None:
    full_cells = {grid.key, grid.door, *dict(grid.things)}
    free = [cell for cell in map(tuple, np.argwhere(~grid.walls).tolist()) if cell not in full_cells]
    elsewhere = transitions(grid.at(start=free[-1], goal=free[0]))
    same = np.array_equal(elsewhere, transitions(grid))
    _demand(same, kind, grid, "must act alike wherever the goal is and the episode began")


def _check_acts(kind: Kind, grid: Grid) -> None:
    arrangement = arrangement_of(grid.things, grid.held)
    for state in reachable(grid):
        parts, blocked = arrangement.unpack(state.things), opaque_cells(grid, state)
        for index, (cell, symbol) in enumerate(grid.things):
            if symbol != kind.symbol or kind.solid(parts[index]):
                continue
            for action in ACTIONS:
                origin = cell[0] - action.delta[0], cell[1] - action.delta[1]
                if grid.walls[origin] or origin in blocked:
                    continue  # no move leads from there to the thing
                results = [kind.act(grid, index, cell, parts, action) for _ in range(2)]
                _demand(
                    results[0] == results[1],
                    kind,
                    grid,
                    "must do the same for the same arguments of act: use no randomness and keep no state in the class",
                )
                step(grid, state_with(state[2], origin), action)  # raises the error for cells and digits


def _check_solution(kind: Kind, grid: Grid) -> None:
    table = enumerate_states(_GridEnvironment(grid))
    by_steps, paths, numbers = solve_table(table), solve(grid), transitions(grid)
    assert by_steps.distance is not None and by_steps.optimal is not None  # the environment has no chance
    law = "must lead to the solution that single steps give: act may depend on its arguments alone"
    for index, state in enumerate(table.states):
        equal = paths.steps_from(state) == by_steps.distance[index]
        _demand(equal and (paths.optimal_in(state) == by_steps.optimal[index]).all(), kind, grid, law)
        if not has_ended(grid, state):
            after = [state_number(grid, step(grid, state, action)) for action in ACTIONS]
            _demand(numbers[state_number(grid, state)].tolist() == after, kind, grid, law)


def _check_sight(kind: Kind, grid: Grid) -> None:
    law = (
        "must let the agent see all that matters: two states that look alike must have the same future. Have the agent "
        "carry the thing (carried), or let a thing that is no longer drawn do nothing"
    )
    paths, pictures = solve(grid), dict[Grid, tuple[int, list[bool]]]()
    for state in reachable(grid):
        future, picture = (paths.steps_from(state), paths.optimal_in(state).tolist()), shown(grid, state)
        state_seen = seen_state(grid, picture)
        equal = pictures.setdefault(picture, future) == future
        equal &= (paths.steps_from(state_seen), paths.optimal_in(state_seen).tolist()) == future
        equal &= all(shown(grid, step(grid, state_seen, a)) == shown(grid, step(grid, state, a)) for a in ACTIONS)
        if not has_ended(grid, state):
            believed = solve(picture)
            first = believed.steps_from(initial_state(picture))
            equal &= (first, believed.optimal[believed.first][state.position].tolist()) == future
        _demand(equal, kind, grid, law)


def _check_symmetry(kind: Kind, grid: Grid, symmetry: Transform) -> None:
    turned = symmetry.grid(grid)
    law = "must act in the same way in a rotated or reflected grid: return the turned symbol from turned"
    _demand(symmetry.inverse().grid(turned) == grid, kind, grid, law)
    if sum(symbol == _IN_READING_ORDER for _, symbol in grid.things) > 2:
        return
    before, after = solve(grid), solve(turned)
    for state in reachable(grid):
        other = symmetry.state(grid, state)
        _demand(after.steps_from(other) == before.steps_from(state), kind, grid, law)
        for action in ACTIONS:
            result, original = step(turned, other, symmetry.action(action)), step(grid, state, action)
            equal = result.position == symmetry.position(original.position, grid.walls.shape)
            equal &= shown(turned, result) == symmetry.grid(shown(grid, original))
            _demand(equal, kind, grid, law)


class _GridEnvironment:
    """A grid as an environment, which asks for one step at a time."""

    actions = tuple(action.name for action in ACTIONS)

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def initial(self) -> Mapping[State, float]:
        return {initial_state(self.grid): 1.0}

    def step(self, state: State, action: int) -> Mapping[State, float]:
        return {step(self.grid, state, action): 1.0}

    def done(self, state: State) -> bool:
        return has_ended(self.grid, state)

    def goal(self, state: State) -> bool:
        return state.position == self.grid.goal

    def observe(self, state: State) -> Observed:
        return Observed(text=str(state))

    def describe(self) -> Mapping[str, Any]:
        return {"grid": str(self.grid)}
