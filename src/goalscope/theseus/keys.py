"""Worlds with keys and doors for the training data, and exact plans in them over cell, key and door."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.planning.shortest import solve
from goalscope.theseus.vocabulary import SYMBOLS
from goalscope.worlds.dynamics import State, settle, shown, transitions
from goalscope.worlds.grid import Grid
from goalscope.worlds.layouts import TWO_PATH_SIZES, control, key_door, key_no_door, two_path
from goalscope.worlds.text import symbols

KINDS = {"key-door": 0.4, "key-no-door": 0.15, "two-path": 0.25, "rooms": 0.1, "two-path-control": 0.1}
"""Kinds of worlds with the share of each; the last two are the others' controls without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """Plans from Q cells of one world, in one phase of it.

    Attributes:
        symbols: ``[n, n]`` index into `SYMBOLS` of each cell, the agent at the first of the cells.
        target: ``[2]`` where the plans lead in the end.
        origin: ``[Q, 2]`` where they begin.
        moves: ``[Q, M]`` one shortest path, -1 after the target.
        optimal: ``[Q, M, 4]`` float32, uniform over the optimal moves at that place of the path.
        carrying: whether the agent carries the key.
    """

    symbols: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    origin: npt.NDArray[np.int64]
    moves: npt.NDArray[np.int64]
    optimal: npt.NDArray[np.float32]
    carrying: bool


def draw_kind(rng: np.random.Generator) -> tuple[str, int]:
    """Draw a kind of world and a grid size that it comes in."""
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    return kind, int(rng.choice(TWO_PATH_SIZES)) if kind.startswith("two-path") else 9


def key_worlds(kind: str, size: int, count: int, rng: np.random.Generator) -> list[Grid]:
    """Draw worlds of one kind and size."""
    found: list[Grid] = []
    while len(found) < count:
        if kind.startswith("two-path"):
            grid = two_path(rng=rng)
        else:
            grid = key_no_door(rng=rng) if kind == "key-no-door" else key_door(rng=rng)
        if grid.height == size:
            found.append(control(grid) if kind in ("rooms", "two-path-control") else grid)
    return found


def key_plan(grid: Grid, count: int, moves: int, rng: np.random.Generator) -> KeyPlan:
    """Draw a phase of a world, cells in it, and shortest paths from them through all later phases.

    Args:
        grid: the world in its first phase.
        count: number of cells Q; a phase with fewer has some of them twice.
        moves: most moves M of a path.
        rng: where all choices come from.

    Raises:
        ValueError: the world shows no goal.
    """
    if grid.goal is None:
        raise ValueError("a plan needs a world that shows its goal (G), got one without")
    paths = solve(grid)
    phases, height, width = paths.distance.shape
    phase = int(rng.integers(phases))
    state = {0: (False, False), 1: (True, False), 2: (True, True)}[phase]
    usable = [
        (row, col)
        for row, col in np.argwhere(paths.distance[phase] > 0).tolist()
        if settle(grid, (row, col), *state).phase == phase
    ]
    order = rng.permutation(len(usable))
    origin = np.array([usable[order[number % len(usable)]] for number in range(count)])
    position = (int(origin[0, 0]), int(origin[0, 1]))
    view = symbols(shown(grid, State(position, *state)))
    table, good = transitions(grid), paths.optimal.reshape(-1, 4)
    place = phase * height * width + origin[:, 0] * width + origin[:, 1]
    chosen = np.full((count, moves), -1, dtype=np.int64)
    optimal = np.zeros((count, moves, 4), dtype=np.float32)
    for move in range(moves):
        options = good[place]
        number = options.sum(axis=-1)
        optimal[:, move] = options / np.maximum(number, 1)[:, None]
        best = np.argmax(np.where(options, rng.random(options.shape), -1.0), axis=-1)
        chosen[:, move] = np.where(number > 0, best, -1)
        place = np.where(number > 0, table[place, best], place)
    return KeyPlan(
        symbols=np.array([[SYMBOLS.index(str(symbol)) for symbol in row] for row in view]),
        target=np.array(grid.goal),
        origin=origin,
        moves=chosen,
        optimal=optimal,
        carrying=state[0],
    )
