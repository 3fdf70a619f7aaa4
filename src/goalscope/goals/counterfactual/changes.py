"""Generate grids that differ from a given grid in exactly one thing.

- Agent, goal or key are moved to another cell; the door is opened; a key is added or removed.
- One thing of a kind, such as a red key, is moved to another cell, or removed (`of_kinds`).
- Wall: one cell beside the agent, or on or beside one of its shortest paths, is closed or opened. Walls elsewhere would
  not be informative.
- Corner: the outermost open rows and columns around it become walls, so that a corner of the smallest rectangle that
  contains all open cells moves. Agent, objects and optimal actions stay the same.

The goal remains reachable in all of these grids.

A state after earlier turns also has a *walk*, the cells and moves that led the agent to its cell. Changes keep the
cells that the walk passed or bumped into, so that it leads through the changed grid in the same way. An agent that
stands elsewhere came there by a walk of its own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import near_miss
from goalscope.agents.prompts import PARAPHRASES
from goalscope.worlds.dynamics import State, settle, step
from goalscope.worlds.grid import DELTAS, Action, Grid, Position
from goalscope.worlds.planning.shortest import distances_to, optimal_actions
from goalscope.worlds.things import kinds

Thing = Literal["agent", "goal", "key", "door", "added key", "removed key", "wall", "corner", "names", "order", "words"]
"""What is changed. The last three change only the prompt of a language model, not the grid (`WORDED`)."""
THINGS: Final[tuple[Thing, ...]] = get_args(Thing)
WORDED: Final[Mapping[str, tuple[str, ...]]] = {"names": ("symbols",), "order": ("order",), "words": PARAPHRASES}
"""Change of the prompt -> its wordings, see `goalscope.agents.prompts.WORDINGS`: the symbols of the cells, the order of
legend and moves, or all words of the prompt."""

REMOVED: Final = "removed "
"""Begin of the name of a change that takes a thing away."""

_NAMES: Final[Mapping[str, str]] = {"agent": "start", "goal": "goal", "key": "key", "added key": "key"}


Walk = tuple[tuple[int, int, int | None], ...]
"""Earlier turns of an agent: row and column of its cell, and its move; None for a turn without a valid move."""


def walk_to(grid: Grid, moves: int, rng: np.random.Generator) -> Walk:
    """Draw a random walk that ends at the agent's cell and passes neither the goal nor another object.

    The walk is empty if there is none of this length, because no free cell lies beside the agent's cell.
    """
    assert grid.start is not None  # worlds show their agent
    cell, walk = grid.start, list[tuple[int, int, int | None]]()
    closed = {cell for cell in (grid.goal, grid.key, grid.door, *(cell for cell, _ in grid.things)) if cell is not None}
    for _ in range(moves):
        free = [origin for origin in grid.open_around(cell) if origin not in closed]
        if not free:
            return ()
        origin = free[int(rng.integers(len(free)))]
        move = DELTAS.tolist().index([cell[0] - origin[0], cell[1] - origin[1]])
        walk.append((*origin, move))
        cell = origin
    return tuple(walk[::-1])


def check_walk(grid: Grid, walk: Walk) -> None:
    """Check that a walk leads through a grid to the agent's cell.

    Raises:
        ValueError: it leaves the grid or the open cells, it does not end at the agent's cell, or it passes the goal or
            the key.
    """
    assert grid.start is not None  # worlds show their agent
    cells = [*((row, col) for row, col, _ in walk), grid.start]
    for turn, ((*cell, move), after) in enumerate(zip(walk, cells[1:], strict=True), 1):
        state = settle(grid, grid.check_cell((cell[0], cell[1])))
        leads = state if move is None else step(grid, state, move)
        if state.position == grid.goal or state.phase or leads != State(after):
            name = "no move" if move is None else Action(move).name
            raise ValueError(
                f"turn {turn} of a walk must lead from {state.position} to {after} without passing the goal or the "
                f"key, but {name} does not in the grid\n{grid}"
            )


def _cells_of(grid: Grid, walk: Walk) -> set[Position]:
    """Return the cells of a grid that a walk passed or bumped into."""
    cells = {(row, col) for row, col, _ in walk}
    cells |= {(row + int(DELTAS[move][0]), col + int(DELTAS[move][1])) for row, col, move in walk if move is not None}
    return {(row, col) for row, col in cells if 0 <= row < grid.height and 0 <= col < grid.width}


def of_kinds(grid: Grid | None = None) -> tuple[str, ...]:
    """Return the names of the changes that move or remove a thing: those of the things in a grid, or of all registered
    kinds of things.
    """
    symbols = None if grid is None else {symbol for _, symbol in grid.things}
    names = [kind.name for kind in kinds() if symbols is None or kind.symbol in symbols] if symbols != set() else []
    return *names, *(f"{REMOVED}{name}" for name in names)


def check_changes(names: Sequence[str]) -> None:
    """Raise a ValueError if one of the names is neither one of `THINGS` nor a change of a registered kind of thing."""
    for name in names:
        if name not in (valid := (*THINGS, *of_kinds())):
            raise ValueError(
                f"what is changed must be one of {', '.join(THINGS)}, or a kind of thing, such as red key or removed "
                f"red key, got {name!r}{near_miss(name, valid)}"
            )


def changed_grids(grid: Grid, thing: str, count: int, *, rng: np.random.Generator, walk: Walk = ()) -> list[Grid]:
    """Return grids that differ from a given one in one thing; the goal remains reachable.

    The most informative grids come first: those in which no previously optimal action is still optimal (for a wall:
    in which the optimal actions change). Changes of a corner always keep the optimal actions.

    Args:
        grid: grid without fog that shows its agent and a reachable goal.
        thing: what to change: one of `THINGS` except `WORDED`, or of `of_kinds`.
        count: maximum number of grids, drawn without replacement. The list is empty if the grid lacks the thing.
        rng: random number generator of the draw.
        walk: the agent's earlier turns. They lead through all returned grids to the agent's cell, except where the
            agent is what changes.
    """
    walked_cells = _cells_of(grid, walk) if thing != "agent" else set[Position]()
    changes = (
        _walls(grid, walked_cells)
        if thing == "wall"
        else _corners(grid, walked_cells)
        if thing == "corner"
        else elsewhere(grid, thing, walked_cells)
    )
    candidates, first, less_telling = list(dict.fromkeys(changes)), list[Grid](), list[Grid]()
    optimal = best_actions(grid)
    for index in rng.permutation(len(candidates)):
        after = best_actions(candidates[index])
        if after:
            telling = after != optimal if thing == "wall" else thing == "corner" or not after & optimal
            (first if telling else less_telling).append(candidates[index])
        if len(first) == count:
            break
    return [*first, *less_telling][:count]


def best_actions(grid: Grid) -> frozenset[Action]:
    """Return the optimal actions at the start; empty if the goal cannot be reached."""
    assert grid.start is not None  # worlds show their agent
    return optimal_actions(grid, grid.start)


def elsewhere(grid: Grid, thing: str, walked_cells: Collection[Position] = ()) -> Iterator[Grid]:
    """Yield all changed copies of a grid for one thing.

    The thing lies on another cell that the agent has not walked on, or a door is open, a key is added, or a key or
    thing is gone.
    """
    if thing not in THINGS:
        yield from _things(grid, thing, walked_cells)
        return
    if thing in ("door", "removed key"):
        name = thing.removeprefix(REMOVED)
        exists = getattr(grid, name) not in (None, *walked_cells)
        if exists and (thing == "door" or grid.door is None):
            yield grid.at(**{name: None})
        return
    name = _NAMES[thing]
    if (getattr(grid, name) is None) != (thing == "added key"):
        return
    for cell in _empty_cells(grid, walked_cells):
        changed = grid.at(**{name: cell})
        if thing != "agent" or settle(changed, cell).door_open is False:
            yield changed


def _things(grid: Grid, change: str, walked_cells: Collection[Position]) -> Iterator[Grid]:
    """Yield all grids with one thing of a kind removed or moved; neither it nor its new cell is walked on."""
    symbols = {kind.name: kind.symbol for kind in kinds()}
    for entry in grid.things:
        if entry[1] != symbols[change.removeprefix(REMOVED)] or entry[0] in walked_cells:
            continue
        others = tuple(other for other in grid.things if other != entry)
        if change not in symbols:
            yield grid.at(things=others)
            continue
        for cell in _empty_cells(grid, walked_cells):
            yield grid.at(things=(*others, (cell, entry[1])))


def _object_cells(grid: Grid) -> set[Position]:
    """Return the cells of agent, goal, key, door and things."""
    return {cell for cell in (*grid.objects.values(), *(cell for cell, _ in grid.things)) if cell is not None}


def _empty_cells(grid: Grid, walked_cells: Collection[Position]) -> list[Position]:
    """Return the open cells without agent, object or thing, except walked cells."""
    cells = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls)]
    occupied = {*_object_cells(grid), *walked_cells}
    return [cell for cell in cells if cell not in occupied]


def _walls(grid: Grid, walked_cells: Collection[Position]) -> Iterator[Grid]:
    """Yield the grids in which one cell on or beside a shortest path is closed or opened.

    Walked cells are not changed.
    """
    objects = {*_object_cells(grid), *walked_cells}
    way = _around(_on_shortest_paths(grid))
    for row, col in zip(*np.nonzero(way), strict=True):
        inside = 0 < row < grid.height - 1 and 0 < col < grid.width - 1  # the outer walls stay
        if inside and (row, col) not in objects:
            walls = grid.walls.copy()
            walls[row, col] = not walls[row, col]
            yield grid.at(walls=walls)


def _on_shortest_paths(grid: Grid) -> npt.NDArray[np.bool_]:
    """Return the cells of the shortest paths between agent and goal, ``[H, W]``; doors and things count as open."""
    assert grid.start is not None and grid.goal is not None  # worlds show both
    before, after = (distances_to(grid.walls, [cell]) for cell in (grid.start, grid.goal))
    on_path: npt.NDArray[np.bool_] = (before >= 0) & (after >= 0) & (before + after == after[grid.start])
    return on_path


def _around(cells: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the given cells and their neighbours, ``[H, W]``."""
    padded = np.pad(cells, 1)
    near: npt.NDArray[np.bool_] = cells | padded[2:, 1:-1] | padded[:-2, 1:-1] | padded[1:-1, 2:] | padded[1:-1, :-2]
    return near


def _corners(grid: Grid, walked_cells: Collection[Position]) -> Iterator[Grid]:
    """Yield for each corner the grid in which as many rows and columns around it as possible become walls.

    The cells of agent and objects and the walked cells stay as they are, and so do the optimal actions.
    """
    optimal = best_actions(grid)
    objects = [cell for cell in (*_object_cells(grid), *walked_cells) if not grid.walls[cell]]
    sides = []
    for axis in (0, 1):
        lines, object_lines = np.flatnonzero(~grid.walls.all(axis=1 - axis)), [cell[axis] for cell in objects]
        before, after = lines[lines < min(object_lines)], lines[lines > max(object_lines)][::-1]
        sides.append([[side[:count] for count in range(len(side) + 1)] for side in (before, after)])
    for rows, cols in product(*sides):
        deepest = sorted(product(rows, cols), key=lambda closed: -len(closed[0]) - len(closed[1]))
        for closed_rows, closed_cols in deepest[:-1]:  # the last one closes nothing
            walls = grid.walls.copy()
            walls[closed_rows] = True
            walls[:, closed_cols] = True
            changed = grid.at(walls=walls)
            if best_actions(changed) == optimal:
                yield changed
                break
