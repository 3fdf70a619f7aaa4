"""Behaviour under fog: backtracking that teaches nothing, moves into known dead ends, bumps into the same wall again.

What the agent knew at each step is found again from the record alone: the cells that it has seen so far (see
`goalscope.worlds.fog`), which are those that every observation showed it, whatever history it was handed.

* Knowledge: a cell, the phase (key held, door open) and what has been seen so far of the cells that can be entered or
  bumped into: open ones and walls next to one. What lies inside of walls tells nothing about where to go.
* A *redundant* move leads into a state of knowledge in which the episode has been before: the same cell and phase, and
  nothing new seen since. What led back there was of no use, and no agent that minimises steps ever does it. A way back
  out of a dead end that had to be looked into is not redundant: it was entered with less knowledge.
* A *known dead end* is entered by a move from u to v where the agent sees beforehand that all open cells that can be
  reached from v without passing u hold nothing: each of their neighbours is seen, and the goal, an untaken key, and a
  locked door for an agent with the key are not among them. The only way out leads back through u.
* A *repeated bump* is an action that changed nothing in a state in which the same action has changed nothing before.
  A bump into a wall that was not seen does not exist: with a radius of 1 or more the four neighbours are always seen.

All are shares of an episode's actions, so that they can be added to others and compared; one row for each episode on
a world with fog. Turns without an action are no actions.

Source: behavioural and representational evaluation, Appendix A.1, where these behaviours are reported without
definition or number; the definitions are ours.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import PAPER, Entries, measure, per_episode, ratio
from goalscope.measures.table import StepTable
from goalscope.runs.record import World
from goalscope.worlds.dynamics import State
from goalscope.worlds.fog import visible
from goalscope.worlds.grid import ACTIONS, DELTAS, Grid, Position

Mask = npt.NDArray[np.bool_]


_FOG = f"{PAPER}, Appendix A.1 (defined here)"


@measure(
    "redundant backtracking",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="share of an episode's actions that lead back to a cell with nothing new seen since the last visit",
    source=_FOG,
)
def redundant_moves(table: StepTable) -> Entries:
    """``[E]`` share of the actions that lead back into a state of knowledge in which the episode has been before."""
    return _shares(table, _moves(table, _redundant))


@measure(
    "moves into known dead ends",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="share of an episode's actions that enter a part of the grid behind which the agent has seen that there is "
    "nothing but the way back",
    source=_FOG,
)
def dead_end_moves(table: StepTable) -> Entries:
    """``[E]`` share of the actions that enter a part of the world that is known to lead nowhere."""
    return _shares(table, _moves(table, _into_dead_ends))


@measure(
    "repeated wall bumps",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="share of an episode's actions that changed nothing where the same action changed nothing before",
    source=_FOG,
)
def repeated_bumps(table: StepTable) -> Entries:
    """``[E]`` share of the actions that change nothing where the same action has changed nothing before."""
    flags = np.zeros(len(table.episode), dtype=bool)
    bumped = fogged(table)[table.episode] & (table.action >= 0) & (table.state == table.following).all(axis=1)
    before: set[tuple[int, ...]] = set()
    for index in np.flatnonzero(bumped).tolist():
        key = (int(table.episode[index]), *table.state[index].tolist(), int(table.action[index]))
        flags[index] = key in before
        before.add(key)
    return _shares(table, flags)


def leads_nowhere(grid: Grid, seen: Mask, state: State, entered: Position) -> bool:
    """Return whether an agent sees, before it enters a cell, that all behind it holds nothing.

    Args:
        grid: the whole world.
        seen: ``[H, W]`` the cells seen so far.
        state: the state before the move.
        entered: the cell that the move leads to, next to that of the state.
    """
    done, waiting = {state.position, entered}, [entered]
    while waiting:
        row, col = waiting.pop()
        if (row, col) == grid.goal or ((row, col) == grid.key and not state.carrying_key):
            return False
        for action in ACTIONS:
            cell = row + action.delta[0], col + action.delta[1]
            if cell in done or not (0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width):
                continue
            if not seen[cell]:
                return False
            if cell == grid.door and not state.door_open:
                if state.carrying_key:
                    return False
            elif not grid.walls[cell]:
                done.add(cell)
                waiting.append(cell)
    return True


class _Sight:
    """What can be seen in the states of one world, each found out once."""

    def __init__(self, world: World) -> None:
        self.grid = world.grid
        self._radius = world.fog_radius or 1
        self._found: dict[tuple[Position, bool], Mask] = {}
        self._useful = ~world.grid.walls
        around = np.pad(self._useful, 1)
        for down, right in DELTAS + 1:
            height, width = self._useful.shape
            self._useful = self._useful | around[down : down + height, right : right + width]

    def nothing(self) -> Mask:
        return np.zeros_like(self.grid.walls)

    def of(self, state: State) -> Mask:
        """Return ``[H, W]`` the cells that are seen from a state."""
        key = state.position, state.door_open
        if key not in self._found:
            solid = self.grid.walls
            if self.grid.door is not None and not state.door_open:
                solid = solid.copy()
                solid[self.grid.door] = True
            self._found[key] = visible(solid, state.position, self._radius)
        return self._found[key]

    def sizes(self, path: Sequence[State]) -> Iterator[int]:
        """Yield, for each state of a path, how many of the cells that matter have been seen by then."""
        seen, last, size = self.nothing(), None, 0
        for state in path:
            if state != last:
                seen |= self.of(state)
                size, last = int((seen & self._useful).sum()), state
            yield size


def _redundant(path: Sequence[State], sight: _Sight) -> Iterator[bool]:
    """Yield, for each step, whether it leads into a state of knowledge of before."""
    # What has been seen only grows, so that its size tells whether it is the same.
    known = [(state.position, state.phase, seen) for state, seen in zip(path, sight.sizes(path), strict=True)]
    been = {known[0]}
    for before, after in pairwise(known):
        yield before[:2] != after[:2] and after in been
        been.add(after)


def _into_dead_ends(path: Sequence[State], sight: _Sight) -> Iterator[bool]:
    """Yield, for each step, whether it enters a part of the world that is known to lead nowhere."""
    seen = sight.nothing()
    for state, after in pairwise(path):
        seen = seen | sight.of(state)
        yield after.position != state.position and leads_nowhere(sight.grid, seen, state, after.position)


def _moves(table: StepTable, wasted: Callable[[Sequence[State], _Sight], Iterator[bool]]) -> Mask:
    """Return ``[N]`` which steps of the episodes under fog are actions that are wasted, given what was seen."""
    flags = np.zeros(len(table.episode), dtype=bool)
    sights: dict[int, _Sight] = {}
    for index in np.flatnonzero(fogged(table) & (table.length > 0)).tolist():
        world = int(table.world[index])
        if world not in sights:
            sights[world] = _Sight(table.worlds[world])
        path = table.path(index)
        mine = slice(table.begin[index], table.begin[index] + len(path) - 1)
        found = np.fromiter(wasted(path, sights[world]), dtype=bool, count=len(path) - 1)
        flags[mine] = found & (table.action[mine] >= 0)
    return flags


def _shares(table: StepTable, flags: Mask) -> Entries:
    """Return the share of flagged steps among the actions of each episode under fog, NaN without actions."""
    return Entries.where(fogged(table), ratio(per_episode(table, flags), per_episode(table, table.action >= 0)))


def fogged(table: StepTable) -> Mask:
    """Return ``[E]`` whether an episode's world has fog."""
    has: Mask = np.array([world.fog_radius is not None for world in table.worlds], dtype=bool)[table.world]
    return has
