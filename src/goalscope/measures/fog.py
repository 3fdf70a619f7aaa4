"""Behaviour under fog: redundant backtracking, moves into known dead ends, repeated bumps into the same wall.

The agent's knowledge at each step is reconstructed from the record alone: the cells seen so far (see
`goalscope.worlds.fog`), which every observation shows, whatever its history length.

* Knowledge: a cell, the phase (key held, door open) and the seen cells among those that can be entered or bumped into:
  open cells and walls next to one. The inside of walls is irrelevant for the choice of moves.
* A *redundant* move leads into a state of knowledge in which the episode has been before: the same cell and phase, and
  nothing new seen since. No agent that minimises steps makes one. Backtracking out of a dead end that had to be
  explored is not redundant: it was entered with less knowledge.
* A *known dead end* is entered by a move from u to v where the agent sees beforehand that all open cells that can be
  reached from v without passing u hold nothing: each of their neighbours is seen, and the goal, an untaken key, and a
  locked door for an agent with the key are not among them. The only way out leads back through u.
* A *repeated bump* is an action that changed nothing in a state in which the same action has changed nothing before.
  There are no bumps into unseen walls: with a radius of 1 or more the four neighbours are always seen.

All are fractions of an episode's actions, so that they can be added and compared; one row for each episode on a world
with fog. Turns without an action are not counted.

Source: behavioural and representational evaluation, Appendix A.1, where these behaviours are reported without
definition or number; the definitions are ours.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import PAPER, Entries, measure, ratio
from goalscope.measures.table import StepTable
from goalscope.runs.record import World
from goalscope.worlds.dynamics import State
from goalscope.worlds.fog import visible
from goalscope.worlds.grid import ACTIONS, DELTAS, Grid, Position

Mask = npt.NDArray[np.bool_]

_FOG = f"{PAPER}, Appendix A.1 (defined here)"


@measure("redundant backtracking", unit="share", needs=("grid",), source=_FOG)
def redundant_moves(table: StepTable) -> Entries:
    """Share of an episode's actions that lead back to a cell with nothing new seen since the last visit."""
    return _shares(table, _moves(table, _redundant))


@measure("moves into known dead ends", unit="share", needs=("grid",), source=_FOG)
def dead_end_moves(table: StepTable) -> Entries:
    """Share of an episode's actions that enter a part of the grid behind which the agent has seen that there is
    nothing but the way back.
    """
    return _shares(table, _moves(table, _into_dead_ends))


@measure("repeated wall bumps", unit="share", needs=("grid",), source=_FOG)
def repeated_bumps(table: StepTable) -> Entries:
    """Share of an episode's actions that changed nothing where the same action changed nothing before."""
    flags = np.zeros(len(table.episode), dtype=bool)
    bumped = _fogged(table)[table.episode] & (table.action >= 0) & (table.state == table.following).all(axis=1)
    before: set[tuple[int, ...]] = set()
    for index in np.flatnonzero(bumped).tolist():
        key = (int(table.episode[index]), *table.state[index].tolist(), int(table.action[index]))
        flags[index] = key in before
        before.add(key)
    return _shares(table, flags)


def _leads_nowhere(grid: Grid, seen: Mask, state: State, entered: Position) -> bool:
    """Return whether the cells seen from a state show that a neighbouring cell leads to nothing but dead ends."""
    visited, waiting = {state.position, entered}, [entered]
    while waiting:
        row, col = waiting.pop()
        if (row, col) == grid.goal or ((row, col) == grid.key and not state.carrying_key):
            return False
        for action in ACTIONS:
            cell = row + action.delta[0], col + action.delta[1]
            if cell in visited or not (0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width):
                continue
            if not seen[cell]:
                return False
            if cell == grid.door and not state.door_open:
                if state.carrying_key:
                    return False
            elif not grid.walls[cell]:
                visited.add(cell)
                waiting.append(cell)
    return True


class _Sight:
    """The visible cells in the states of one world, each computed once."""

    def __init__(self, world: World) -> None:
        self.grid = world.grid
        self._radius = world.fog_radius or 1
        self._visible: dict[tuple[Position, bool], Mask] = {}
        open_cells = np.pad(~world.grid.walls, 1)
        height, width = world.grid.walls.shape
        # Open cells and their neighbours: the inside of walls is irrelevant for the choice of moves.
        self.useful = ~world.grid.walls
        for down, right in DELTAS + 1:
            self.useful = self.useful | open_cells[down : down + height, right : right + width]

    def along(self, path: Sequence[State]) -> Iterator[Mask]:
        """Yield ``[H, W]`` the cells that have been seen by each state of a path."""
        seen = np.zeros_like(self.grid.walls)
        for state in path:
            key = state.position, state.door_open
            if key not in self._visible:
                solid = self.grid.walls
                if self.grid.door is not None and not state.door_open:
                    solid = solid.copy()
                    solid[self.grid.door] = True
                self._visible[key] = visible(solid, state.position, self._radius)
            seen = seen | self._visible[key]
            yield seen


def _redundant(path: Sequence[State], sight: _Sight) -> Iterator[bool]:
    """Yield, for each step, whether it leads into an earlier state of knowledge."""
    # The set of seen cells only grows, so its size identifies it.
    sizes = (int((seen & sight.useful).sum()) for seen in sight.along(path))
    knowledge = [(state.position, state.phase, size) for state, size in zip(path, sizes, strict=True)]
    earlier = {knowledge[0]}
    for before, after in pairwise(knowledge):
        yield before[:2] != after[:2] and after in earlier
        earlier.add(after)


def _into_dead_ends(path: Sequence[State], sight: _Sight) -> Iterator[bool]:
    """Yield, for each step, whether it enters a known dead end."""
    for (state, after), seen in zip(pairwise(path), sight.along(path[:-1]), strict=True):
        yield after.position != state.position and _leads_nowhere(sight.grid, seen, state, after.position)


def _moves(table: StepTable, wasted: Callable[[Sequence[State], _Sight], Iterator[bool]]) -> Mask:
    """Return ``[N]`` the steps under fog that are wasted actions, judged by the cells seen."""
    flags = np.zeros(len(table.episode), dtype=bool)
    sights: dict[int, _Sight] = {}
    for index in np.flatnonzero(_fogged(table) & (table.length > 0)).tolist():
        world = int(table.world[index])
        if world not in sights:
            sights[world] = _Sight(table.worlds[world])
        steps = slice(table.begin[index], table.begin[index] + table.length[index])
        flags[steps] = list(wasted(table.path(index), sights[world]))
    return flags & (table.action >= 0)


def _shares(table: StepTable, flags: Mask) -> Entries:
    """Return the fraction of flagged steps among the actions of each episode under fog, NaN without actions."""
    return Entries.where(_fogged(table), ratio(table.per_episode(flags), table.per_episode(table.action >= 0)))


def _fogged(table: StepTable) -> Mask:
    """Return ``[E]`` whether an episode's world has fog."""
    result: Mask = np.array([world.fog_radius is not None for world in table.worlds], dtype=bool)[table.world]
    return result
