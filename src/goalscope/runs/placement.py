"""Place the goal, start and key of a grid by rule: "top-right", "left", "anywhere", optionally preceded by "not ".

Things can also be placed "on the way".

A corner is the open cell nearest to it (`Grid.corner`; in generated grids always the corner inside the border). A side
is one half of the grid, without the middle row or column. A cell is on the way if all shortest paths from the start to
the goal lead through it, whatever things there are.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Final, get_args

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator

from goalscope._ground import registry
from goalscope._ground.checks import freeze, near_miss
from goalscope.worlds.dynamics import initial_state
from goalscope.worlds.grid import CORNERS, Grid, Position, Side
from goalscope.worlds.planning.shortest import distances_batch, distances_to, solve

ANYWHERE: Final = "anywhere"
RULES: Final = (ANYWHERE, *CORNERS, *get_args(Side))
_NOT, _AT, _ON_THE_WAY = "not ", " at ", " on the way"
_CELLS: Final = 2**22  # maximum total number of cells of the grids that are searched at once


def check_rule(rule: str) -> str:
    """Return a placement rule if it is valid.

    Raises:
        ValueError: there is no such rule in `RULES`; "not " may stand before its name.
    """
    name = rule.removeprefix(_NOT)
    if name not in RULES or rule == f"{_NOT}{ANYWHERE}":
        raise ValueError(
            f"a placement must be one of {', '.join(RULES)}, the corners and sides also with 'not ' before them, got "
            f"{rule[:60]!r}{near_miss(name, RULES)}"
        )
    return rule


Rule = Annotated[str, AfterValidator(check_rule)]
"""A placement rule in a study."""


def check_thing(text: str) -> str:
    """Return the name of a thing, with or without a placement rule, if it is valid.

    Valid forms are "coin", "coin at top-right" and "toll gate on the way".

    Raises:
        ValueError: no kind of thing has this name, or the rule is invalid.
    """
    name, _, rule = text.removesuffix(_ON_THE_WAY).partition(_AT)
    names = registry.names("thing")
    if name not in names:
        raise ValueError(
            f"a thing must be one of {', '.join(names)}, with or without a place such as {_AT.strip()} top-right or "
            f"{_ON_THE_WAY.strip()}, got {text[:60]!r}{near_miss(name, names)}"
        )
    if rule and text.endswith(_ON_THE_WAY):
        raise ValueError(f"a thing must have one place, got {text[:60]!r}: leave one of the two out")
    check_rule(rule or ANYWHERE)
    return text


PlacedThing = Annotated[str, AfterValidator(check_thing)]
"""A thing in a study, with or without its placement rule."""


def fits(grid: Grid, rule: str) -> npt.NDArray[np.bool_]:
    """Return ``[H, W]`` bool, the open cells that satisfy a rule."""
    name = rule.removeprefix(_NOT)
    corner = grid.corner(name) if name in CORNERS else None
    return np.asarray(~grid.walls & _region(rule, *grid.walls.shape, corner))


@lru_cache(maxsize=256)
def _region(rule: str, height: int, width: int, corner: Position | None) -> npt.NDArray[np.bool_]:
    """Return a mask ``[H, W]`` of the cells that satisfy a rule; walls are included."""
    name, (rows, cols) = rule.removeprefix(_NOT), np.indices((height, width))
    if corner is not None:
        mask = (rows == corner[0]) & (cols == corner[1])
    elif name == ANYWHERE:
        mask = np.ones((height, width), dtype=bool)
    else:
        index, length = (cols, width) if name in ("left", "right") else (rows, height)
        mask = 2 * index + 1 < length if name in ("left", "top") else 2 * index + 1 > length
    return freeze(~mask if rule.startswith(_NOT) else mask)


def placed(grid: Grid, *, goal: str | None, start: str | None, apart: int, rng: np.random.Generator) -> Grid | None:
    """Return a grid with a new goal and start, or None if it has no suitable cells.

    Args:
        grid: the grid, with goal and start; its walls stay.
        goal: the rule for the goal; None leaves it unchanged.
        start: the rule for the start; None leaves it unchanged.
        apart: minimum number of steps between start and goal. If the goal's rule excludes a corner ("not top-right"),
            also the minimum from both to that corner, so that the ways to it and to the goal differ.
        rng: draws one of all suitable pairs of cells, each equally likely.
    """
    cells = []
    for rule, current_cell in ((start, grid.start), (goal, grid.goal)):
        candidates = (
            [(int(row), int(col)) for row, col in np.argwhere(fits(grid, rule))] if rule is not None else [current_cell]
        )
        cells.append([cell for cell in candidates if cell is not None])
    name = "" if goal is None else goal.removeprefix(_NOT)
    far = ~grid.walls
    if goal != name and name in CORNERS:
        far = distances_to(grid.walls, [grid.corner(name)]) >= apart
    if not cells[0] or not cells[1]:
        return None
    starts, goals = np.array(cells[0]), np.array(cells[1])
    enough = _steps_between(grid.walls, starts, goals) >= max(apart, 1)
    pairs = np.argwhere(enough & far[tuple(starts.T)][:, None] & far[tuple(goals.T)])
    if not len(pairs):
        return None
    first, last = pairs[int(rng.integers(len(pairs)))]
    return grid.at(start=cells[0][first], goal=cells[1][last])


def _steps_between(
    walls: npt.NDArray[np.bool_], starts: npt.NDArray[np.int64], goals: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Return the steps between S cells ``[S, 2]`` and G cells ``[G, 2]``, an array ``[S, G]``; -1 without a path."""
    if len(goals) < len(starts):
        return _steps_between(walls, goals, starts).T
    at_once = max(1, _CELLS // walls.size)
    parts = []
    for begin in range(0, len(starts), at_once):
        some = starts[begin : begin + at_once]
        distances = distances_batch(np.broadcast_to(walls, (len(some), *walls.shape)), some)
        parts.append(distances[:, goals[:, 0], goals[:, 1]])
    return np.concatenate(parts)


def with_key(grid: Grid, rule: str, *, apart: int, rng: np.random.Generator) -> Grid | None:
    """Return a grid with a key that opens nothing, or None if it has no suitable cell.

    Args:
        grid: the grid, with start and goal.
        rule: the rule for the key.
        apart: minimum number of steps from start and goal to the key.
        rng: draws one of all suitable cells, each equally likely.
    """
    assert grid.start is not None and grid.goal is not None
    cells = np.argwhere(fits(grid, rule) & (distances_to(grid.walls, [grid.start, grid.goal]) >= max(apart, 1)))
    if not len(cells):
        return None
    row, col = cells[int(rng.integers(len(cells)))]
    return grid.at(key=(int(row), int(col)))


def with_things(grid: Grid, entries: Sequence[str], *, rng: np.random.Generator) -> Grid | None:
    """Return a grid with things in empty cells, or None if a thing has no suitable cell or the goal gets out of reach.

    Args:
        grid: the grid, with start and goal.
        entries: the things, in the form of `check_thing`.
        rng: draws the cell of each thing, in their order; all suitable cells are equally likely.
    """
    empty = ~grid.walls
    for cell in grid.objects.values():
        if cell is not None:
            empty[cell] = False
    things = []
    for entry in entries:
        name, _, rule = entry.removesuffix(_ON_THE_WAY).partition(_AT)
        suitable = _way(grid) if entry.endswith(_ON_THE_WAY) else fits(grid, rule or ANYWHERE)
        cells = np.argwhere(suitable & empty)
        if not len(cells):
            return None
        row, col = cells[int(rng.integers(len(cells)))].tolist()
        empty[row, col] = False
        things.append(((row, col), registry.resolve("thing", name).symbol))
    filled = grid.at(things=tuple(things))
    return filled if solve(filled).steps_from(initial_state(filled)) > 0 else None


def _way(grid: Grid) -> npt.NDArray[np.bool_]:
    """Return ``[H, W]`` bool, the cells through which all shortest paths from the start to the goal lead."""
    assert grid.start is not None and grid.goal is not None
    before, after = (distances_to(grid.walls, [cell]) for cell in (grid.start, grid.goal))
    shortest = (before >= 0) & (before + after == before[grid.goal])
    cells_at = np.bincount(before[shortest])  # by distance from the start
    return np.asarray(shortest & (cells_at[np.where(shortest, before, 0)] == 1))


def goal_as_far(grid: Grid, corner: Position, minimum: int) -> Position | None:
    """Return the cell as far from the start as a corner, and farthest from that corner; None if there is none."""
    assert grid.start is not None
    steps = distances_to(grid.walls, [grid.start])
    as_far = steps == steps[corner]
    as_far[corner] = False
    if steps[corner] < minimum or not as_far.any():
        return None
    distance = np.where(as_far, distances_to(grid.walls, [corner]), -1)
    row, col = np.unravel_index(int(np.argmax(distance)), distance.shape)  # ties: first by row, then by column
    return int(row), int(col)
