"""Behaviour under fog: redundant backtracking, moves into known dead ends, and repeated bumps into the same wall.

What the agent knows at each step is reconstructed from the record alone: the cells seen so far (see
`goalscope.worlds.fog`), which every observation shows, regardless of its history length.

* A state of *knowledge* is a cell, the phase (key held, door open), and the seen cells among those that can be entered
  or bumped into: open cells and walls next to an open cell. The inside of walls does not matter for choosing moves.
* A *redundant* move returns to a state of knowledge in which the episode has been before: same cell, same phase, and
  nothing new seen since. An agent that minimises steps never makes one. Backtracking out of a dead end that had to be
  explored is not redundant, because the agent entered it knowing less.
* A move from u to v enters a *known dead end* if the agent can already see that all open cells reachable from v without
  passing u hold nothing: each of their neighbours is seen, and none of them is the goal, an untaken key, or a locked
  door for an agent with the key. The only way out leads back through u.
* A *repeated bump* is an action that changes nothing in a state in which the same action has changed nothing before.
  There are no bumps into unseen walls: with a radius of 1 or more the four neighbours are always seen.

All three are fractions of an episode's actions, so they can be added and compared. There is one row per episode in a
world with fog. Turns without a valid move are left out.

Source: behavioural and representational evaluation, Appendix A.1, which reports these behaviours without definitions or
numbers; the definitions are our own.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import PAPER, Entries, measure, ratio
from goalscope.measures.table import StepTable
from goalscope.runs.record import World
from goalscope.worlds.dynamics import State, solid_cells
from goalscope.worlds.fog import visible
from goalscope.worlds.grid import ACTIONS, DELTAS, Grid, Position

Mask = npt.NDArray[np.bool_]

_FOG = f"{PAPER}, Appendix A.1 (defined here)"


@measure("redundant backtracking", unit="share", needs=("grid",), source=_FOG)
def redundant_moves(table: StepTable) -> Entries:
    """Share of an episode's actions that return to a cell although nothing new was seen since the last visit there.

    Returns one value per episode under fog; NaN without actions.
    """
    return _shares(table, _moves(table, _redundant))


@measure("moves into known dead ends", unit="share", needs=("grid",), source=_FOG)
def dead_end_moves(table: StepTable) -> Entries:
    """Share of an episode's actions that enter a part of the grid that is a dead end without goal, key or usable door,
    as the agent has already seen.

    Returns one value per episode under fog; NaN without actions.
    """
    return _shares(table, _moves(table, _into_dead_ends))


@measure("repeated wall bumps", unit="share", needs=("grid",), source=_FOG)
def repeated_bumps(table: StepTable) -> Entries:
    """Share of an episode's actions without effect that repeat an earlier action without effect in the same state.

    Returns one value per episode under fog; NaN without actions.
    """
    flags = np.zeros(len(table.episode), dtype=bool)
    bumped = _fogged(table)[table.episode] & (table.action >= 0) & (table.state == table.following).all(axis=1)
    before: set[tuple[int, ...]] = set()
    for index in np.flatnonzero(bumped).tolist():
        key = (int(table.episode[index]), *table.state[index].tolist(), int(table.action[index]))
        flags[index] = key in before
        before.add(key)
    return _shares(table, flags)


def _leads_nowhere(grid: Grid, seen: Mask, state: State, entered: Position) -> bool:
    """Return whether the cells seen so far show that a neighbouring cell leads only to dead ends."""
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
    """Visible cells of the states of one world, each computed once."""

    def __init__(self, world: World) -> None:
        self.grid = world.grid
        self._radius = world.fog_radius or 1
        self._visible: dict[State, Mask] = {}
        open_cells = np.pad(~world.grid.walls, 1)
        height, width = world.grid.walls.shape
        # Open cells and their neighbours: the inside of walls does not matter for choosing moves.
        self.useful = ~world.grid.walls
        for down, right in DELTAS + 1:
            self.useful = self.useful | open_cells[down : down + height, right : right + width]

    def along(self, path: Sequence[State]) -> Iterator[Mask]:
        """Yield, for each state of a path, ``[H, W]`` the cells seen up to there."""
        seen = np.zeros_like(self.grid.walls)
        for state in path:
            if state not in self._visible:
                self._visible[state] = visible(solid_cells(self.grid, state), state.position, self._radius)
            seen = seen | self._visible[state]
            yield seen


def _redundant(path: Sequence[State], sight: _Sight) -> Iterator[bool]:
    """Yield, for each step, whether it returns to an earlier state of knowledge."""
    # The set of seen cells only grows, so its size identifies it.
    sizes = (int((seen & sight.useful).sum()) for seen in sight.along(path))
    knowledge = [(state.position, state[2], size) for state, size in zip(path, sizes, strict=True)]
    earlier = {knowledge[0]}
    for before, after in pairwise(knowledge):
        yield before[:2] != after[:2] and after in earlier
        earlier.add(after)


def _into_dead_ends(path: Sequence[State], sight: _Sight) -> Iterator[bool]:
    """Yield, for each step, whether it enters a known dead end."""
    for (state, after), seen in zip(pairwise(path), sight.along(path[:-1]), strict=True):
        yield after.position != state.position and _leads_nowhere(sight.grid, seen, state, after.position)


def _moves(table: StepTable, wasted: Callable[[Sequence[State], _Sight], Iterator[bool]]) -> Mask:
    """Return ``[N]`` whether each step under fog is wasted, judged from the cells seen so far."""
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
    """Return the fraction of flagged steps among the actions of each episode under fog; NaN without actions."""
    return Entries.where(_fogged(table), ratio(table.per_episode(flags), table.per_episode(table.action >= 0)))


def _fogged(table: StepTable) -> Mask:
    """Return ``[E]`` whether the world of each episode has fog."""
    result: Mask = np.array([world.fog_radius is not None for world in table.worlds], dtype=bool)[table.world]
    return result
