"""Movement on grids with walls, a key and a door: from one state, from all states, or in many worlds at once.

A state is the agent's cell and a phase: 0 without the key, 1 with the key while the door is locked, 2 once the door is
open. Grids with a key and no door have phases 0 and 1; plain grids have phase 0 only. The agent picks up the key on
entering its cell. A door opens as soon as the agent stands next to it with the key; a locked door blocks like a wall.

In grids with things (`goalscope.worlds.things`), the flags of a state also contain the digits of the things, and the
place of the phase is taken by the *configuration*: the flags with which an agent can be anywhere in the grid.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope.worlds.grid import DELTAS, KEY, Action, Grid, Position
from goalscope.worlds.things import Thing, arrangement_of, forgets_kinds, is_free

_MOST_STATES: Final = 200_000

Box = tuple[slice, slice]
"""Slices of rows and columns that select a rectangle of cells."""


class State(tuple[int, int, int]):
    """State of a gridworld: where the agent is and what it has done, as the tuple (row, col, flags).

    The flags are 1 if the agent carries the key, plus 2 if the door is open, plus 4 times the number of the things'
    state.

    Args:
        position: cell of the agent, (row, col).
        carrying_key: whether the agent has picked up the key.
        door_open: whether the agent has opened the door.
        things: states of all optional things, such as coins and gates, as one number with a digit per thing, see
            `goalscope.worlds.things.Arrangement.pack`.
    """

    __slots__ = ()

    def __new__(
        cls, position: Position, carrying_key: bool = False, door_open: bool = False, things: int = 0
    ) -> "State":
        """Encode the attributes as (row, col, flags)."""
        return super().__new__(cls, (*position, carrying_key + 2 * door_open + 4 * things))

    def __getnewargs__(self) -> tuple[Position, bool, bool, int]:  # for copies
        return self.position, self.carrying_key, self.door_open, self.things

    def __repr__(self) -> str:
        things = f", things={self.things}" if self.things else ""
        return f"State({self.position}, carrying_key={self.carrying_key}, door_open={self.door_open}{things})"

    @property
    def position(self) -> Position:
        """Cell of the agent, (row, col)."""
        return self[:2]

    @property
    def carrying_key(self) -> bool:
        """Whether the agent has picked up the key."""
        return self[2] & 1 == 1

    @property
    def door_open(self) -> bool:
        """Whether the agent has opened the door."""
        return self[2] & 2 == 2

    @property
    def phase(self) -> int:
        """Phase of the episode: 0 before the agent has the key, 1 while it has the key, 2 once the door is open."""
        return (self[2] & 1) + (self[2] >> 1 & 1)

    @property
    def things(self) -> int:
        """States of all optional things of the grid, such as coins and gates, as one number with a digit per thing.

        The number is 0 at the start of an episode.
        """
        return self[2] >> 2


def state_with(flags: int, position: Position = (0, 0)) -> State:
    """Return the state of an agent at a cell (row, col) with these flags.

    The flags are 1 if the agent carries the key, plus 2 if the door is open, plus 4 times the number of the things'
    state.
    """
    return State(position, bool(flags & 1), bool(flags & 2), flags >> 2)


def configurations(grid: Grid) -> tuple[int, ...]:
    """Return all values that the flags of a grid's states can have, in ascending order.

    The flags are 1 if the agent carries the key, plus 2 if the door is open, plus 4 times the number of the things'
    state (see `State`). They say everything about a state except the agent's cell.
    """
    if grid.things:
        return thing_table(grid)[0]
    return (0, 1, 3) if grid.door is not None else (0, 1) if grid.key is not None else (0,)


def phases(grid: Grid) -> int:
    """Return the number P of phases of a grid: 3 with a door, 2 with only a key, otherwise 1.

    In a grid with optional things, such as coins, this is the number of combinations of states of key, door and things.
    """
    return len(configurations(grid))


def state_number(grid: Grid, state: State) -> int:
    """Return the index of a state among all states of an H by W grid: ``phase * H * W + row * W + col``.

    The phase is 0 without the key, 1 with the key, 2 once the door is open (see `phase_index`). The table of
    `transitions` is in this order.
    """
    return phase_index(grid, state) * grid.walls.size + state.position[0] * grid.width + state.position[1]


def phase_index(grid: Grid, state: State) -> int:
    """Return the index of a state's phase: 0 without the key, 1 with the key, 2 once the door is open.

    In a grid with optional things, such as coins, this is the index of the combination of states of key, door and
    things among those in `configurations`. A grid that no longer shows its door or key can have fewer phases than the
    state's phase requires; the highest phase is returned then.

    Raises:
        ValueError: if no agent can be in this state.
    """
    if not grid.things:
        return min(state.phase, phases(grid) - 1)
    try:
        return thing_table(grid)[0].index(state[2])
    except ValueError:
        raise ValueError(f"the things of this grid are never in the state of {state!r}: check its flags") from None


def configuration_index(grid: Grid, phase: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the index of the phase for N states at once, as `phase_index` does for one state.

    Args:
        grid: the grid.
        phase: ``[N]`` numbers that `phase_column` makes from the flags of states.

    Returns:
        ``[N]`` indices.

    Raises:
        ValueError: if no agent can be in one of these states.
    """
    if not grid.things:
        return np.minimum(phase, phases(grid) - 1)
    numbers = phase_column(np.array(thing_table(grid)[0]))
    index = np.minimum(np.searchsorted(numbers, phase), len(numbers) - 1)
    if (numbers[index] != phase).any():
        raise ValueError("the things of this grid are never in one of these states: check the stored flags")
    return index


def flag_count(grid: Grid) -> int:
    """Return an upper limit for the flags (see `State`) of a grid's states; all of them are below this number."""
    return 4 * arrangement_of(grid.things, grid.held).states if grid.things else 4


Flags = TypeVar("Flags", int, npt.NDArray[np.int64])


def phase_column(flags: Flags) -> Flags:
    """Convert flags of states to the numbers that are stored in tables of states, for one state or an array ``[N]``.

    Flags are 1 if the agent carries the key, plus 2 if the door is open, plus 4 times the number of the things' state.
    The stored number has the phase (0 without the key, 1 with it, 2 once the door is open) in place of the first two
    terms. The order of the numbers is that of the flags.
    """
    phase: Flags = (flags & 1) + (flags >> 1 & 1) + (flags >> 2 << 2)
    return phase


def settle(grid: Grid, position: Position, carrying_key: bool = False, door_open: bool = False) -> State:
    """Return the state of an agent at a cell, after it picks up a key there and opens a door next to it if it can.

    Args:
        grid: the world; if it shows a door, the door is locked at first.
        position: cell of the agent, (row, col).
        carrying_key: whether the agent arrives with the key.
        door_open: whether the door is already open when the agent arrives.

    Raises:
        ValueError: the position is outside the grid, a wall, or the locked door.
    """
    cell = grid.check_cell(position)
    if grid.walls[cell]:
        raise ValueError(f"an agent must stand on an open cell, got the wall at {cell}: choose an open cell")
    carrying_key = carrying_key or cell == grid.key
    if grid.door is not None and not door_open:
        door_open = carrying_key and abs(cell[0] - grid.door[0]) + abs(cell[1] - grid.door[1]) == 1
        if cell == grid.door:
            raise ValueError(f"an agent must stand on an open cell, got the locked door at {cell}: choose another cell")
    return State(cell, carrying_key, door_open)


def initial_state(grid: Grid) -> State:
    """Return the state in which an episode on this grid begins, at the cell marked as the agent's.

    Raises:
        ValueError: if the grid does not show an agent.
    """
    if grid.start is None:
        raise ValueError("an episode needs a grid that shows its agent, got a grid without one: mark its cell with A")
    state = settle(grid, grid.start, KEY in grid.held)
    return state_with(state[2] | initial_flags(grid), state.position)


def initial_flags(grid: Grid) -> int:
    """Return the flags (see `State`) of an agent at the start of an episode, before it touches the key, the door or a
    thing.

    They say whether the agent carries the key, and in which states the optional things are.
    """
    flags = int(KEY in grid.held)
    if grid.things:
        arrangement = arrangement_of(grid.things, grid.held)
        flags += 4 * arrangement.pack(arrangement.initial)
    return flags


def step(grid: Grid, state: State, action: int) -> State:
    """Return the state after one action (0 to 3) in a state. A move into a wall, a locked door or out of the grid
    changes nothing.
    """
    if grid.things:
        return _step_among_things(grid, state, action)
    (row, col, _), (down, right) = state, Action(action).delta
    row, col = row + down, col + right
    if not (0 <= row < grid.height and 0 <= col < grid.width) or grid.walls[row, col]:
        return state
    if (row, col) == grid.door and not state.door_open:
        return state
    return settle(grid, (row, col), state.carrying_key, state.door_open)


def _step_among_things(grid: Grid, state: State, action: int) -> State:
    (row, col, flags), (down, right) = state, Action(action).delta
    arrangement, target = arrangement_of(grid.things, grid.held), (row + down, col + right)
    parts = arrangement.unpack(flags >> 2)
    now = grid.at(door=None) if state.door_open else grid
    if (row, col) in arrangement.ends or not is_free(now, target, parts):
        return state
    cell, after = arrangement.enter(now, target, parts, action)
    if cell == (row, col) and after == parts:
        return state  # sent back
    settled = settle(grid, cell, state.carrying_key, state.door_open)
    return state_with(settled[2] + 4 * arrangement.pack(after), settled.position)


def has_ended(grid: Grid, state: State) -> bool:
    """Return whether an episode has ended in this state: at the goal, or on a thing that ends it without success."""
    return state.position == grid.goal or (
        bool(grid.things) and state.position in arrangement_of(grid.things, grid.held).ends
    )


def shown(grid: Grid, state: State) -> Grid:
    """Return a copy of the grid as it looks in a state: with the agent at its cell, and without a key it carries or an
    open door.

    The agent hides the goal when it stands on the goal's cell. What the agent carries is in `Grid.held`. Things that
    the state no longer draws, such as collected coins, are left out.
    """
    load: tuple[str, ...] = (KEY,) if state.carrying_key else ()
    things: tuple[Thing, ...] = ()
    if grid.things:
        arrangement = arrangement_of(grid.things, grid.held)
        parts = arrangement.unpack(state.things)
        things = tuple(entry for index, entry in enumerate(grid.things) if arrangement.kinds[index].shown(parts[index]))
        pairs = zip(arrangement.kinds, parts, strict=True)
        load += tuple(kind.symbol for kind, digit in pairs if kind.carried(digit))
    return grid.at(
        start=state.position,
        goal=None if state.position == grid.goal else grid.goal,
        key=None if state.carrying_key else grid.key,
        door=None if state.door_open else grid.door,
        things=things,
        held=load,
    )


def seen_state(grid: Grid, picture: Grid) -> State:
    """Find the state in which a grid looks like a given picture of it: the inverse of `shown`, without fog.

    If several equal things could be in several states, and the future does not depend on which, one of the states is
    returned.

    Args:
        grid: the grid at the start of an episode.
        picture: the same grid as it looks in the state.

    Raises:
        ValueError: if the picture shows no agent, or the grid never looks like it.
    """
    if picture.start is None:
        raise ValueError("the state of an agent can be seen only in a grid that shows it, got one without an agent (A)")
    if not grid.things:
        return State(picture.start, KEY in picture.held, grid.door is not None and picture.door is None)
    flags = _flags_by_picture(grid).get(picture.at(start=grid.start, goal=grid.goal))
    if flags is None:
        raise ValueError(f"the things of this grid never look like that:\n{picture}")
    return state_with(flags, picture.start)


@forgets_kinds
@lru_cache(maxsize=256)
def _flags_by_picture(grid: Grid) -> dict[Grid, int]:
    """Map each picture with the agent at the start to the flags of the first configuration that looks like that."""
    assert grid.start is not None  # worlds show their agent
    return {shown(grid, state_with(flags, grid.start)): flags for flags in reversed(configurations(grid))}


def solid_cells(grid: Grid, state: State) -> npt.NDArray[np.bool_]:
    """Return the cells that block the agent's way and view in a state, ``[H, W]`` bool, rows by columns.

    They are walls, a locked door, and things such as a closed gate. The array is that of the grid's walls if there is
    nothing else.
    """
    cells = [] if grid.door is None or state.door_open else [grid.door]
    if grid.things:
        arrangement = arrangement_of(grid.things, grid.held)
        cells += arrangement.solid_cells(arrangement.unpack(state.things))
    solid = grid.walls.copy() if cells else grid.walls
    for cell in cells:
        solid[cell] = True
    return solid


def transitions(grid: Grid) -> npt.NDArray[np.int32]:
    """Return the table of a grid's transitions: the next state for every state and action.

    Returns:
        ``[P * H * W, 4]`` int32, states by actions, for an H by W grid with P phases (without the key, with the key,
        door open; see `phases`). States are numbered as by `state_number`. From a wall, every action leads to the same
        wall.
    """
    if grid.things:
        return thing_table(grid)[1]
    count, cells = phases(grid), grid.walls.size
    table = np.empty((count, cells, 4), dtype=np.int32)
    for phase in range(count):
        solid, after = grid.walls.copy(), np.full(grid.walls.shape, phase, dtype=np.int32)  # the phase on arrival
        if phase == 0 and grid.key is not None:
            after[grid.key] = 1
        if grid.door is not None:
            solid[grid.door] = phase < 2
            rows, cols = np.indices(solid.shape)
            near = np.abs(rows - grid.door[0]) + np.abs(cols - grid.door[1]) == 1
            after[near & (after == 1)] = 2
        target = transitions_batch(solid)
        moved = target != np.arange(cells)[:, None]
        table[phase] = target + np.where(moved, after.reshape(-1)[target], phase) * cells
    return table.reshape(count * cells, 4)


@forgets_kinds
@lru_cache(maxsize=1024)
def thing_table(grid: Grid) -> tuple[tuple[int, ...], npt.NDArray[np.int32]]:
    """Enumerate the states of a grid with optional things, such as coins and gates, and compute their transitions.

    A configuration is the joint state of key, door and things, given as flags (see `State`). Those are included that an
    agent can bring about from the start of an episode, wherever it begins.

    Returns:
        The flags of the C configurations in ascending order; and the next states ``[C * H * W, 4]`` int32, states by
        actions, numbered as in `transitions`.

    Raises:
        ValueError: if there are more than 200,000 states.
    """
    arrangement, size = arrangement_of(grid.things, grid.held), grid.walls.size
    touched = {*arrangement.at, *arrangement.beside}
    if grid.key is not None:
        touched.add(grid.key)
    if grid.door is not None:
        touched.update(grid.open_around(grid.door))
    into = [
        ((row - down, col - right), action)
        for row, col in sorted(touched)
        for action, (down, right) in enumerate(DELTAS.tolist())
        if 0 <= row - down < grid.height and 0 <= col - right < grid.width
    ]
    results: dict[int, dict[tuple[Position, int], State]] = {}
    waiting = [initial_flags(grid)]
    while waiting:
        flags = waiting.pop()
        if flags in results:
            continue
        if len(results) * size > _MOST_STATES:
            raise ValueError(
                f"a grid with things may have at most {_MOST_STATES:,} states, got more than {len(results):,} states "
                f"of its {len(grid.things)} things in {size} cells: leave out things that can change"
            )
        solid = solid_cells(grid, state_with(flags))
        origins = [(cell, action) for cell, action in into if not solid[cell]]
        results[flags] = {(cell, action): step(grid, state_with(flags, cell), action) for cell, action in origins}
        waiting += {after[2] for after in results[flags].values()}
        if grid.door is not None and flags & 1:
            waiting.append(flags | 2)  # an episode may begin beside the door
    configurations = tuple(sorted(results))
    index = {flags: number for number, flags in enumerate(configurations)}
    table = np.empty((len(configurations), size, 4), dtype=np.int32)
    for number, flags in enumerate(configurations):
        table[number] = transitions_batch(solid_cells(grid, state_with(flags))) + number * size
        for (cell, action), after in results[flags].items():
            row, col = after.position
            table[number, cell[0] * grid.width + cell[1], action] = index[after[2]] * size + row * grid.width + col
        for row, col in arrangement.ends:
            table[number, row * grid.width + col] = number * size + row * grid.width + col
    return configurations, freeze(table.reshape(-1, 4))


def transitions_batch(walls: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return the transition tables of many grids of one shape that have walls only.

    Args:
        walls: ``[..., H, W]`` bool, true where a cell is a wall; the axes before are grids.

    Returns:
        ``[..., H * W, 4]`` int32, cells by actions: the index ``row * W + col`` of the cell that each action leads to.
    """
    *batch, height, width = walls.shape
    cells = np.arange(height * width, dtype=np.int32).reshape(height, width)
    target = np.broadcast_to(cells[..., None], (*batch, height, width, 4)).copy()
    for action, (inside, beyond) in enumerate(neighbours(height, width)):
        free = ~walls[(..., *beyond)] & ~walls[(..., *inside)]
        target[(..., *inside, action)] = np.where(free, cells[beyond], cells[inside])
    return target.reshape(*batch, height * width, 4)


def neighbours(height: int, width: int) -> Iterator[tuple[Box, Box]]:
    """Yield, for each of the four actions, two boxes of cells in an array of ``height`` by ``width`` cells.

    A box is a pair of slices (rows, columns). The first box contains the cells that have a neighbour in the action's
    direction, the second one these neighbours.
    """
    for down, right in DELTAS.tolist():
        inside = slice(max(0, -down), height - max(0, down)), slice(max(0, -right), width - max(0, right))
        beyond = slice(max(0, down), height + min(0, down)), slice(max(0, right), width + min(0, right))
        yield inside, beyond


def step_batch(
    tables: npt.NDArray[np.int32],
    world: npt.NDArray[np.integer],
    state: npt.NDArray[np.integer],
    action: npt.NDArray[np.integer],
) -> npt.NDArray[np.int32]:
    """Apply one action to each of N agents in any of B worlds, and return their next states ``[N]`` int32.

    Args:
        tables: ``[B, S, 4]`` transition tables: next state by world, state and action.
        world: ``[N]`` index of each agent's world.
        state: ``[N]`` number of each agent's state.
        action: ``[N]`` action of each agent, 0 to 3.
    """
    _, states, actions = tables.shape
    after: npt.NDArray[np.int32] = tables.reshape(-1)[(world * states + state) * actions + action]
    return after
