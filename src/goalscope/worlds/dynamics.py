"""Movement on grids with walls, a key and a door: from one state, from all states, or in many worlds at once.

A state is the agent's cell and a phase: 0 without the key, 1 with the key while the door is locked, 2 once the door is
open. Grids with a key and no door have phases 0 and 1; plain grids have phase 0 only. The agent picks up the key on
entering its cell. A door opens as soon as the agent stands next to it with the key; a locked door blocks like a wall.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from goalscope.worlds.grid import DELTAS, Action, Grid, Position

Box = tuple[slice, slice]
"""Slices of rows and columns that select a rectangle of cells."""


class State(tuple[int, int, int]):
    """Where the agent is and what it has done: (row, col, flags), with flags 1 for the key plus 2 for the open door.

    Args:
        position: cell of the agent, (row, col).
        carrying_key: whether the agent has picked up the key.
        door_open: whether the agent has opened the door.
    """

    __slots__ = ()

    def __new__(cls, position: Position, carrying_key: bool = False, door_open: bool = False) -> "State":
        """Encode the attributes as (row, col, flags)."""
        return super().__new__(cls, (*position, carrying_key + 2 * door_open))

    def __getnewargs__(self) -> tuple[Position, bool, bool]:  # for copies
        return self.position, self.carrying_key, self.door_open

    def __repr__(self) -> str:
        return f"State({self.position}, carrying_key={self.carrying_key}, door_open={self.door_open})"

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
        """The phase of the episode: 0 without the key, 1 with the key, 2 once the door is open."""
        return (self[2] & 1) + (self[2] >> 1)


def phases(grid: Grid) -> int:
    """Return the number of phases P of a grid: 3 with a door, 2 with a key but no door, else 1."""
    return 3 if grid.door is not None else 2 if grid.key is not None else 1


def state_number(grid: Grid, state: State) -> int:
    """Return the index of a state in `transitions`: ``phase * H * W + row * W + col``."""
    return state.phase * grid.walls.size + state.position[0] * grid.width + state.position[1]


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
    """Return the state in which an episode on this grid begins.

    Raises:
        ValueError: the grid shows no agent.
    """
    if grid.start is None:
        raise ValueError("an episode needs a grid that shows its agent, got a grid without one: mark its cell with A")
    return settle(grid, grid.start)


def step(grid: Grid, state: State, action: int) -> State:
    """Return the state after one action. A move into a wall, into a locked door or out of the grid changes nothing."""
    (row, col, _), (down, right) = state, Action(action).delta
    row, col = row + down, col + right
    if not (0 <= row < grid.height and 0 <= col < grid.width) or grid.walls[row, col]:
        return state
    if (row, col) == grid.door and not state.door_open:
        return state
    return settle(grid, (row, col), state.carrying_key, state.door_open)


def shown(grid: Grid, state: State) -> Grid:
    """Return the grid as it looks in this state: the agent at its cell, without a key it carries or a door it opened.

    The agent hides the goal when it stands on the goal's cell.
    """
    return grid.at(
        start=state.position,
        goal=None if state.position == grid.goal else grid.goal,
        key=None if state.carrying_key else grid.key,
        door=None if state.door_open else grid.door,
    )


def transitions(grid: Grid) -> npt.NDArray[np.int32]:
    """Return the next state for every state and action.

    Returns:
        ``[P * H * W, 4]`` int32, with states numbered as by `state_number`. From a wall, every action leads to the
        same wall.
    """
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


def transitions_batch(walls: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return the transition tables of many plain grids of one shape.

    Args:
        walls: ``[..., H, W]`` bool.

    Returns:
        ``[..., H * W, 4]`` int32: the index ``row * W + col`` of the cell that each action leads to.
    """
    *batch, height, width = walls.shape
    cells = np.arange(height * width, dtype=np.int32).reshape(height, width)
    target = np.broadcast_to(cells[..., None], (*batch, height, width, 4)).copy()
    for action, (inside, beyond) in enumerate(neighbours(height, width)):
        free = ~walls[(..., *beyond)] & ~walls[(..., *inside)]
        target[(..., *inside, action)] = np.where(free, cells[beyond], cells[inside])
    return target.reshape(*batch, height * width, 4)


def neighbours(height: int, width: int) -> Iterator[tuple[Box, Box]]:
    """Yield for each action the box of cells that have a neighbour in its direction, and the box of the neighbours."""
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
    """Return the next states ``[N]`` int32 of N agents that each take one action.

    Args:
        tables: ``[B, S, 4]`` transition tables of B worlds.
        world: ``[N]`` index of each agent's world.
        state: ``[N]`` state of each agent.
        action: ``[N]`` action of each agent.
    """
    _, states, actions = tables.shape
    after: npt.NDArray[np.int32] = tables.reshape(-1)[(world * states + state) * actions + action]
    return after
