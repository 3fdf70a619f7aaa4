"""Exact shortest paths to the goal and all optimal actions, over states (cell, has the key, door open).

One breadth-first search backwards from the goal gives the optimal actions in all states. An action is optimal if it
brings the agent one step nearer to the goal, so all ties are included. No action is optimal at the goal, or where the
goal cannot be reached.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope.worlds.dynamics import (
    State,
    configuration_index,
    initial_flags,
    initial_state,
    neighbours,
    phase_index,
    phases,
    settle,
    state_with,
    transitions,
)
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position
from goalscope.worlds.things import forgets_kinds
from goalscope.worlds.world import Oracle, World

UNREACHABLE = -1
_WALL = -2  # marks cells that the search never enters
_FEW_CELLS = 600  # cells in all grids up to which a search cell by cell is faster


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestPaths:
    """Distances and optimal actions for every state of one grid: for each phase and each cell.

    The phase is 0 without the key, 1 with the key, 2 once the door is open. In grids with optional things, such as
    coins, it is the combination of states of key, door and things.

    Attributes:
        distance: ``[P, H, W]`` int64 steps to the goal, by phase, row and column; -1 if the goal cannot be reached.
        optimal: ``[P, H, W, 4]`` bool, whether each action brings the agent nearer to the goal.
        grid: the grid.
    """

    distance: npt.NDArray[np.int64]
    optimal: npt.NDArray[np.bool_]
    grid: Grid

    def steps_from(self, state: State) -> int:
        """Return the number of steps from a state to the goal, -1 if the goal cannot be reached."""
        return int(self.distance[self._index(state)])

    def optimal_in(self, state: State) -> npt.NDArray[np.bool_]:
        """Return which actions are optimal in a state, as a mask ``[4]`` over actions."""
        chosen: npt.NDArray[np.bool_] = self.optimal[self._index(state)]
        return chosen

    def _index(self, state: State) -> tuple[int, int, int]:
        return phase_index(self.grid, state), *state.position

    @property
    def first(self) -> int:
        """Index of the phase at the start of an episode, in which the grid shows all its objects."""
        return phase_index(self.grid, state_with(initial_flags(self.grid)))


@forgets_kinds
@lru_cache(maxsize=4096)
def solve(grid: Grid) -> ShortestPaths:
    """Compute the distances to the goal and the optimal actions for all states of a grid; results are cached.

    Raises:
        ValueError: if the grid shows no goal.
    """
    if grid.goal is None:
        raise ValueError("distances need a grid that shows its goal, got a grid without one: mark its cell with G")
    if grid.things:
        table = transitions(grid)
        at_goal = np.zeros((phases(grid), *grid.walls.shape), dtype=bool)
        at_goal[:, *grid.goal] = True
        states = np.repeat(np.arange(len(table)), len(ACTIONS))
        distance = fewest_steps(at_goal.reshape(-1), states, table.reshape(-1)).reshape(at_goal.shape)
    elif grid.door is None:
        distance = np.repeat(_search(grid.walls, [(0, grid.goal)])[None], phases(grid), axis=0)
    else:
        opened = _search(grid.walls, [(0, grid.goal)])
        solid, near = grid.walls.copy(), grid.open_around(grid.door)
        solid[grid.door] = True
        locked = _search(solid, [(0, grid.goal), *((int(opened[cell]), cell) for cell in near if opened[cell] >= 0)])
        # The door opens as soon as the agent stands next to it with the key, so on both sides the door counts as open.
        for cell in near:
            locked[cell] = opened[cell]
        fetch = [(int(locked[grid.key]), grid.key)] if grid.key is not None and locked[grid.key] >= 0 else []
        distance = np.stack([_search(solid, [(0, grid.goal), *fetch]), locked, opened])
    if len(distance) == 1 and not grid.things:
        optimal = optimal_batch(distance)
    else:  # each move may lead into another phase
        after, own_distance = distance.reshape(-1)[transitions(grid)], distance.reshape(-1, 1)
        optimal = ((own_distance > 0) & (after == own_distance - 1)).reshape(*distance.shape, 4)
    return ShortestPaths(distance=freeze(distance), optimal=freeze(optimal), grid=grid)


@dataclass(frozen=True, slots=True)
class GridOracle:
    """The exact optimal policy on a grid, from shortest paths.

    Attributes:
        paths: distances and optimal actions of all states.
        length: fewest steps from the start to the goal, -1 if the goal cannot be reached.
    """

    paths: ShortestPaths
    length: int

    def look_up(self, states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the optimal actions and the distances of states that a run recorded.

        Args:
            states: ``[N, 3]`` row, column and phase of each state, with phases as `phase_column` writes them.

        Returns:
            ``[N, 4]`` bool, which actions are optimal; and ``[N]`` fewest steps to the goal, -1 if it cannot be
            reached.
        """
        row, col, phase = states.T
        index = configuration_index(self.paths.grid, phase), row, col
        return self.paths.optimal[index], self.paths.distance[index].astype(np.int64)


def oracle(world: World) -> Oracle | None:
    """Return the exact optimal policy of a world: from shortest paths on grids, by `World.oracle` in other worlds.

    It is None for a world whose optimal policy is unknown.
    """
    if "grid" not in world.offers:
        return world.oracle()
    paths = solve(world.grid)
    return GridOracle(paths, int(paths.steps_from(initial_state(world.grid))))


def fewest_steps(
    goal: npt.NDArray[np.bool_], source: npt.NDArray[np.int64], target: npt.NDArray[np.integer]
) -> npt.NDArray[np.int64]:
    """Return the fewest steps from each of S states to a goal, by a breadth-first search against the transitions.

    Args:
        goal: ``[S]`` bool, the states at a goal.
        source, target: ``[N]`` state before and after each possible transition.

    Returns:
        ``[S]`` int64; -1 if no goal can be reached.
    """
    order = np.argsort(target, kind="stable")
    source, ends = source[order], np.searchsorted(target[order], np.arange(len(goal) + 1))
    distance = np.where(goal, 0, UNREACHABLE).astype(np.int64)
    front, steps = np.flatnonzero(goal), 0
    while len(front):
        steps += 1
        before = np.concatenate([source[ends[state] : ends[state + 1]] for state in front.tolist()])
        front = np.unique(before[distance[before] == UNREACHABLE])
        distance[front] = steps
    return distance


def distances(grid: Grid, carrying_key: bool = False) -> npt.NDArray[np.int64]:
    """Return the number of steps from each cell to the goal, with a door in the state that the grid shows.

    Args:
        grid: a grid that shows its goal.
        carrying_key: whether the agent has the key.

    Returns:
        ``[H, W]`` int64, rows by columns; -1 for walls, a locked door, and cells from which the goal cannot be reached.
    """
    by_phase = solve(grid).distance
    field: npt.NDArray[np.int64] = by_phase[min(int(carrying_key), len(by_phase) - 1)]
    return field


def optimal_actions(grid: Grid, position: Position, carrying_key: bool = False) -> frozenset[Action]:
    """Return every action that begins a shortest path to the goal, for an agent at a cell.

    Args:
        grid: the grid; if it shows a door, the door is locked until the agent stands next to it with the key.
        position: cell of the agent, (row, col).
        carrying_key: whether the agent has the key.

    Returns:
        All optimal actions; empty at the goal, and if the goal cannot be reached.

    Raises:
        ValueError: if the position is outside the grid, a wall or a locked door, or the grid shows no goal.
    """
    chosen = solve(grid).optimal_in(settle(grid, position, carrying_key))
    return frozenset(action for action in ACTIONS if chosen[action])


def shortest_length(grid: Grid) -> int:
    """Return the number of steps from the grid's start to its goal, -1 if the goal cannot be reached.

    Raises:
        ValueError: the grid shows no agent or no goal.
    """
    return solve(grid).steps_from(initial_state(grid))


def distances_to(walls: npt.NDArray[np.bool_], cells: Iterable[Position]) -> npt.NDArray[np.int64]:
    """Return the number of steps from each cell to the nearest of some target cells, moving over open cells only.

    Args:
        walls: ``[H, W]`` bool, True for cells that cannot be entered.
        cells: the target cells, (row, col); walls among them are ignored.

    Returns:
        ``[H, W]`` int64; -1 for walls, and for cells from which no target can be reached.
    """
    return _search(walls, [(0, cell) for cell in cells])


def distances_batch(walls: npt.NDArray[np.bool_], goal: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Return the number of steps from each cell to the goal, for B grids of one shape that have walls only.

    Grids of up to 64 columns are searched with one bit per cell; wider grids and few small ones are searched cell by
    cell.

    Args:
        walls: ``[B, H, W]`` bool, grids by rows by columns.
        goal: ``[B, 2]`` cell (row, col) of each goal.

    Returns:
        ``[B, H, W]`` int32; -1 for walls, and for cells from which the goal cannot be reached.
    """
    count, height, width = walls.shape
    if width > 64 or walls.size <= _FEW_CELLS:
        singles = [distances_to(grid, [(row, col)]) for grid, (row, col) in zip(walls, goal.tolist(), strict=True)]
        return np.array(singles, dtype=np.int32).reshape(walls.shape)
    result = np.empty(walls.shape, dtype=np.int32)
    chunk = max(1, 32768 // height)
    for begin in range(0, count, chunk):
        result[begin : begin + chunk] = _spread_words(walls[begin : begin + chunk], goal[begin : begin + chunk])
    return result


def optimal_batch(distance: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which actions are optimal in each cell of grids that have walls only, given the distances to the goal.

    Args:
        distance: ``[..., H, W]`` steps to the goal, negative if the goal cannot be reached; the axes before are grids.

    Returns:
        ``[..., H, W, 4]`` bool, cells by actions.
    """
    height, width = distance.shape[-2:]
    optimal = np.zeros((*distance.shape, 4), dtype=bool)
    for action, (inside, beyond) in enumerate(neighbours(height, width)):
        before, after = distance[(..., *inside)], distance[(..., *beyond)]
        optimal[(..., *inside, action)] = (before > 0) & (after == before - 1)
    return optimal


def _search(solid: npt.NDArray[np.bool_], seeds: Iterable[tuple[int, Position]]) -> npt.NDArray[np.int64]:
    """Search breadth-first from seeds (distance, cell); return distances ``[H, W]``, -1 for unreached cells."""
    height, width = solid.shape
    stride = width + 2
    padded = np.full((height + 2, stride), _WALL, dtype=np.int64)
    padded[1:-1, 1:-1] = np.where(solid, _WALL, UNREACHABLE)
    distance = padded.ravel().tolist()
    waiting: dict[int, list[int]] = {}
    for level, (row, col) in seeds:
        waiting.setdefault(level, []).append((row + 1) * stride + col + 1)
    level, front = 0, list[int]()
    while front or waiting:
        front.extend(cell for cell in waiting.pop(level, ()) if distance[cell] == UNREACHABLE)
        for cell in front:
            distance[cell] = level
        level += 1
        beyond = []
        for cell in front:
            for neighbour in (cell - stride, cell + stride, cell - 1, cell + 1):
                if distance[neighbour] == UNREACHABLE:
                    distance[neighbour] = level
                    beyond.append(neighbour)
        front = beyond
    distances = np.array(distance, dtype=np.int64).reshape(height + 2, stride)[1:-1, 1:-1]
    return np.maximum(distances, UNREACHABLE)


def _spread_words(walls: npt.NDArray[np.bool_], goal: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Return the number of steps from each cell to the goal, ``[B, H, W]`` int32, -1 if the goal cannot be reached.

    Each row of cells is packed into one machine word, so that a few word operations advance the search in all grids by
    one step. Tests check that the result equals that of `distances_to`.

    Args:
        walls: ``[B, H, W]`` bool, W at most 64.
        goal: ``[B, 2]`` (row, col) of each goal.
    """
    count, _, width = walls.shape
    word = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if np.dtype(kind).itemsize * 8 >= width)
    bits = np.dtype(word).itemsize * 8
    weights = (np.uint64(1) << np.arange(width, dtype=np.uint64)).astype(word)
    closed = (walls * weights).sum(axis=2, dtype=word)  # [B, H]: walls and cells already reached
    if width < bits:
        closed |= word((1 << bits) - (1 << width))
    front = np.zeros_like(closed)
    front[np.arange(count), goal[:, 0]] = weights[goal[:, 1]]
    closed |= front
    unit = word(1)
    reached = front.copy()
    planes: list[npt.NDArray[Any]] = []  # plane k contains bit k of every cell's distance
    level = 0
    while True:
        level += 1
        step = (front << unit) | (front >> unit)
        step[:, 1:] |= front[:, :-1]
        step[:, :-1] |= front[:, 1:]
        front = step & ~closed
        if not front.any():
            break
        closed |= front
        reached |= front
        if level >> len(planes):
            planes.append(np.zeros_like(closed))
        for bit, plane in enumerate(planes):
            if level >> bit & 1:
                plane |= front
    distance = np.zeros(walls.shape, dtype=np.int32)
    for bit, plane in enumerate(planes):
        distance |= _unpack(plane, width).astype(np.int32) << np.int32(bit)
    distance[_unpack(reached, width) == 0] = UNREACHABLE
    return distance


def _unpack(rows: npt.NDArray[Any], width: int) -> npt.NDArray[np.uint8]:
    """Return the cells ``[B, H, W]`` of rows packed into little-endian words ``[B, H]``."""
    octets = rows.astype(rows.dtype.newbyteorder("<")).view(np.uint8).reshape(*rows.shape, -1)
    return np.unpackbits(octets, axis=2, count=width, bitorder="little")
