"""Check that a kind of thing obeys the laws common to all things, for your own kinds too.

from goalscope.worlds import check_thing
check_thing(TollGate)
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.worlds import dynamics
from goalscope.worlds.dynamics import State, has_ended, initial_state, shown, step, transitions
from goalscope.worlds.environments.solution import StateTable, enumerate_states, solve_table
from goalscope.worlds.generate import generate
from goalscope.worlds.grid import ACTIONS, ENCODINGS, OPEN, Grid, cell_offsets, symbols, written
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning.shortest import solve
from goalscope.worlds.things import Kind, forgets_kinds, kinds
from goalscope.worlds.transform import Transform

Laws = Iterator[tuple[object, str]]
"""Whether a law holds at one place of a grid, and the law in words."""

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
    for seed in range(check_whole("grids", grids, 1, "grids")):
        grid = grid_with(name, seed)
        laws = [_text(grid), _solution(grid), _independence(grid), _sight(grid)]
        laws += [_symmetry(grid, _SYMMETRIES[seed % len(_SYMMETRIES)])] if symmetric else []
        try:
            for holds, law in chain.from_iterable(laws):
                if not holds:
                    raise AssertionError(f"{name!r} {law}. It does not in this grid:\n{grid}")
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
    free = [(row, col) for row, col in np.argwhere(symbols(grid) == OPEN).tolist()]
    others = rng.choice(sorted(registered.values()), size=3).tolist()
    drawn = [registered[name]] * int(rng.integers(1, 3)) + others
    cells = rng.permutation(len(free))[: len(drawn)].tolist()
    things = tuple((free[cell], symbol) for cell, symbol in zip(cells, drawn, strict=False))
    rest = [cell for cell in free if cell not in dict(things)]
    keyed = seed % 3 == 0 and len(rest) > 1
    return grid.at(things=things, key=rest[0] if keyed else None, door=rest[-1] if keyed else None)


@forgets_kinds
@lru_cache(maxsize=8)
def _enumerated(grid: Grid) -> StateTable[State]:
    """Return the table of an environment that knows nothing of a grid but its single steps.

    Its states are those that an agent can reach, those that it can reach in the fewest steps first.
    """
    environment: Any = SimpleNamespace(
        actions=tuple(action.name for action in ACTIONS),
        initial=lambda: {initial_state(grid): 1.0},
        step=lambda state, action: {step(grid, state, action): 1.0},
        done=lambda state: has_ended(grid, state),
        goal=lambda state: state.position == grid.goal,
    )
    return enumerate_states(environment)


def _text(grid: Grid) -> Laws:
    text = grid.render()
    equal = Grid.parse(text) == grid and GridWorld.from_plain(GridWorld(grid=grid).to_plain()).grid == grid
    yield equal, "must be read back from the text of a grid: choose another symbol"
    for encoding in ENCODINGS:
        offsets = cell_offsets(text, encoded := written(encoding, text))
        has_all = offsets is not None and all(encoded[offsets[cell]] == symbol for cell, symbol in grid.things)
        yield has_all, f"must be found in the encoding {encoding}: choose another symbol"


def _independence(grid: Grid) -> Laws:
    free = np.argwhere(symbols(grid.at(start=None, goal=None)) == OPEN).tolist()
    elsewhere = transitions(grid.at(start=free[-1], goal=free[0]))
    same = np.array_equal(elsewhere, transitions(grid))
    yield same, "must act alike wherever the goal is and the episode began"


def _solution(grid: Grid) -> Laws:
    table = _enumerated(grid)
    by_steps, paths, numbers = solve_table(table), solve(grid), transitions(grid)
    assert by_steps.distance is not None and by_steps.optimal is not None  # the environment has no chance
    law = (
        "must do the same for the same arguments of act, so that single steps lead to the solution: use no randomness "
        "and keep no state in the class"
    )
    for index, state in enumerate(table.states):
        equal = paths.steps_from(state) == by_steps.distance[index]
        yield equal and (paths.optimal_in(state) == by_steps.optimal[index]).all(), law
        if not has_ended(grid, state):
            after = [dynamics.state_number(grid, step(grid, state, action)) for action in ACTIONS]
            yield numbers[dynamics.state_number(grid, state)].tolist() == after, law


def _sight(grid: Grid) -> Laws:
    law = (
        "must let the agent see all that matters: two states that look alike must have the same future. Have the agent "
        "carry the thing (carried), or let a thing that is no longer drawn do nothing"
    )
    paths, pictures = solve(grid), dict[Grid, tuple[int, list[bool]]]()
    for state in _enumerated(grid).states:
        future, picture = (paths.steps_from(state), paths.optimal_in(state).tolist()), shown(grid, state)
        state_seen = dynamics.seen_state(grid, picture)
        equal = pictures.setdefault(picture, future) == future
        equal &= (paths.steps_from(state_seen), paths.optimal_in(state_seen).tolist()) == future
        equal &= all(shown(grid, step(grid, state_seen, a)) == shown(grid, step(grid, state, a)) for a in ACTIONS)
        if not has_ended(grid, state):
            believed = solve(picture)
            first = believed.steps_from(initial_state(picture))
            equal &= (first, believed.optimal[believed.first][state.position].tolist()) == future
        yield equal, law


def _symmetry(grid: Grid, symmetry: Transform) -> Laws:
    turned = symmetry.grid(grid)
    law = "must act in the same way in a rotated or reflected grid: return the turned symbol from turned"
    yield symmetry.inverse().grid(turned) == grid, law
    if sum(symbol == _IN_READING_ORDER for _, symbol in grid.things) > 2:
        return
    before, after = solve(grid), solve(turned)
    for state in _enumerated(grid).states:
        other = symmetry.state(grid, state)
        yield after.steps_from(other) == before.steps_from(state), law
        for action in ACTIONS:
            result, original = step(turned, other, symmetry.action(action)), step(grid, state, action)
            yield shown(turned, result) == symmetry.grid(shown(grid, original)), law
