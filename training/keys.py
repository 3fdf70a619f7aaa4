"""Worlds with keys and doors for the training data, and exact plans in them over cell, key and door."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.worlds.dynamics import State, initial_state, shown, state_number, transitions
from goalscope.worlds.generate import TWO_PATH_SIZES, control, key_door, key_no_door, two_path
from goalscope.worlds.grid import Grid, symbols
from goalscope.worlds.planning.shortest import solve
from training.vocabulary import SYMBOLS

KINDS = {"key-door": 0.4, "key-no-door": 0.15, "two-path": 0.25, "rooms": 0.1, "two-path-control": 0.1}
"""Kinds of worlds with the share of each; the last two are the others' controls without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """Plans from Q cells of one world, in one phase of it, to what has to be reached first: key, door or goal.

    Attributes:
        symbols: ``[n, n]`` index into `SYMBOLS` of each cell, the agent at the first of the cells.
        target: ``[2]`` the key while a locked door is in the way, the door once the key is carried, else the goal.
        origin: ``[Q, 2]`` where they begin.
        moves: ``[Q, M]`` one shortest path, -1 once the target is reached (at a door: once it has opened).
        optimal: ``[Q, M, 4]`` float32, uniform over the optimal moves at that place of the path, 0 after the target.
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
    """Draw a phase of a world, cells in it, and shortest paths from them to what ends the phase.

    Args:
        grid: the world in its first phase.
        count: number of cells Q, of those that an agent can stand on in that phase; some twice where there are fewer.
        moves: most moves M of a path.
        rng: where all choices come from.

    Raises:
        ValueError: the world shows no goal.
    """
    if grid.goal is None:
        raise ValueError("a plan needs a world that shows its goal (G), got one without")
    paths, table = solve(grid), transitions(grid)
    _, height, width = paths.distance.shape
    occurring = _reachable(grid, table).reshape(paths.distance.shape) & (paths.distance > 0)
    phase = int(rng.choice(np.flatnonzero(occurring.any(axis=(1, 2)))))
    state = {0: (False, False), 1: (True, False), 2: (True, True)}[phase]
    usable = np.argwhere(occurring[phase])
    origin = usable[rng.permutation(len(usable))[np.arange(count) % len(usable)]]
    position = (int(origin[0, 0]), int(origin[0, 1]))
    view = symbols(shown(grid, State(position, *state)))
    good = paths.optimal.reshape(-1, 4)
    locked = grid.door is not None and not state[1]
    target = (grid.door if state[0] else grid.key) if locked else grid.goal
    place = phase * height * width + origin[:, 0] * width + origin[:, 1]
    chosen = np.full((count, moves), -1, dtype=np.int64)
    optimal = np.zeros((count, moves, 4), dtype=np.float32)
    for move in range(moves):
        # A plan ends with its phase; the next prompt shows the grid without the key, or without the door.
        options = good[place] & ((place // (height * width) == phase) | (not locked))[:, None]
        number = options.sum(axis=-1)
        optimal[:, move] = options / np.maximum(number, 1)[:, None]
        best = np.argmax(np.where(options, rng.random(options.shape), -1.0), axis=-1)
        chosen[:, move] = np.where(number > 0, best, -1)
        place = np.where(number > 0, table[place, best], place)
    return KeyPlan(
        symbols=np.array([[SYMBOLS.index(str(symbol)) for symbol in row] for row in view]),
        target=np.array(target),
        origin=origin,
        moves=chosen,
        optimal=optimal,
        carrying=state[0],
    )


def _reachable(grid: Grid, table: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return which states ``[P * H * W]`` an episode on this grid can come to."""
    found = np.zeros(len(table), dtype=bool)
    found[state_number(grid, initial_state(grid))] = True
    while True:
        wider = found.copy()
        wider[table[found]] = True
        if (wider == found).all():
            return found
        found = wider
