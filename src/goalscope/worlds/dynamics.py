"""Dynamics of walls, keys and doors: for one state, for a table of all states, for many worlds at once.

A state is the agent's cell and a phase: 0 without the key, 1 with the key and the door locked, 2 with the door open.
Grids without a door have phases 0 and 1, plain grids phase 0 alone. The key is picked up on entering its cell; a door
opens as soon as the agent stands next to it with the key; a locked door is a wall.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from goalscope.worlds.grid import DELTAS, Action, Grid, Position

Box = tuple[slice, slice]
"""Rows and columns of a rectangle of cells."""


class State(tuple[int, int, int]):
    """Where the agent is and what it has done: (row, col, flags), where flags is 1 for the key plus 2 for the door.

    Args:
        position: cell of the agent, (row, col).
        carrying_key: whether it holds the key.
        door_open: whether it opened the door.
    """

    __slots__ = ()

    def __new__(cls, position: Position, carrying_key: bool = False, door_open: bool = False) -> "State":
        """Return the state."""
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
        """Whether it holds the key."""
        return self[2] & 1 == 1

    @property
    def door_open(self) -> bool:
        """Whether it opened the door."""
        return self[2] & 2 == 2

    @property
    def phase(self) -> int:
        """0 without the key, 1 with it, 2 once the door is open."""
        return (self[2] & 1) + (self[2] >> 1)


def phases(grid: Grid) -> int:
    """Return the number of phases P of a grid: 3 with a door, 2 with a key alone, else 1."""
    return 3 if grid.door is not None else 2 if grid.key is not None else 1


def state_number(grid: Grid, state: State) -> int:
    """Return the number of a state in `transitions`: ``phase * H * W + row * W + col``."""
    return state.phase * grid.walls.size + state.position[0] * grid.width + state.position[1]


def settle(grid: Grid, position: Position, carrying_key: bool = False, door_open: bool = False) -> State:
    """Return the state of an agent that stands at a cell: the key picked up and the door opened where due.

    Args:
        grid: the world; a door that it shows is locked at first.
        position: cell of the agent, (row, col).
        carrying_key: whether it came there with the key.
        door_open: whether it came there with the door open.

    Raises:
        ValueError: the position is outside the grid, a wall, or the locked door.
    """
    cell = grid.check_cell(position)
    if grid.walls[cell]:
        raise ValueError(f"an agent must stand on an open cell, got the wall at {cell}")
    carrying_key = carrying_key or cell == grid.key
    if grid.door is not None and not door_open:
        door_open = carrying_key and abs(cell[0] - grid.door[0]) + abs(cell[1] - grid.door[1]) == 1
        if cell == grid.door:
            raise ValueError(f"an agent must stand on an open cell, got the locked door at {cell}")
    return State(cell, carrying_key, door_open)


def initial_state(grid: Grid) -> State:
    """Return the state in which an episode on this grid begins.

    Raises:
        ValueError: the grid shows no agent.
    """
    if grid.start is None:
        raise ValueError("an episode must begin on a grid that shows its agent (A), got a grid without one")
    return settle(grid, grid.start)


def step(grid: Grid, state: State, action: int) -> State:
    """Return the state after one action; a move into a wall, a locked door or out of the grid changes nothing."""
    (row, col, _), (down, right) = state, Action(action).delta
    row, col = row + down, col + right
    if not (0 <= row < grid.height and 0 <= col < grid.width) or grid.walls[row, col]:
        return state
    if (row, col) == grid.door and not state.door_open:
        return state
    return settle(grid, (row, col), state.carrying_key, state.door_open)


def shown(grid: Grid, state: State) -> Grid:
    """Return the grid as shown in this state: the agent at its cell, without a carried key or an open door.

    The agent hides the goal when it stands on it.
    """
    return grid.at(
        start=state.position,
        goal=None if state.position == grid.goal else grid.goal,
        key=None if state.carrying_key else grid.key,
        door=None if state.door_open else grid.door,
    )


def transitions(grid: Grid) -> npt.NDArray[np.int32]:
    """Return the successor of every state and action.

    Returns:
        ``[P * H * W, 4]`` int32 over states numbered as by `state_number`. Walls lead to themselves.
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
    """Return the transition tables of plain grids of one shape.

    Args:
        walls: ``[..., H, W]`` bool.

    Returns:
        ``[..., H * W, 4]`` int32: the cell ``row * W + col`` that each action leads to.
    """
    *batch, height, width = walls.shape
    cells = np.arange(height * width, dtype=np.int32).reshape(height, width)
    target = np.broadcast_to(cells[..., None], (*batch, height, width, 4)).copy()
    for action, (inside, beyond) in enumerate(neighbours(height, width)):
        free = ~walls[(..., *beyond)] & ~walls[(..., *inside)]
        target[(..., *inside, action)] = np.where(free, cells[beyond], cells[inside])
    return target.reshape(*batch, height * width, 4)


def neighbours(height: int, width: int) -> Iterator[tuple[Box, Box]]:
    """Yield for each action, in order, the cells that have a neighbour in its direction, and those neighbours."""
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
    """Return the states ``[N]`` int32 of N agents after one action each.

    Args:
        tables: ``[B, S, 4]`` transition tables of B worlds.
        world, state, action: ``[N]`` index of each agent's world, its state and its action.
    """
    _, states, actions = tables.shape
    after: npt.NDArray[np.int32] = tables.reshape(-1)[(world * states + state) * actions + action]
    return after
