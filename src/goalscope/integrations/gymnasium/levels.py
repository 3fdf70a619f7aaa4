"""The simulator of a level of MiniGrid or BabyAI: write a state, take one step, read the state back.

The key of a state holds all that the simulator changes: position and direction of the agent, position of each movable
object, whether doors are open, and what the verifiers of BabyAI's instructions remember; not the number of steps so
far.
"""

from typing import Any

from goalscope.integrations.gymnasium.instructions import VerifierMemory

CARRIED, GONE, INSIDE = -1, -2, -10
"""Positions of objects that are in no cell; an object inside object n has ``INSIDE - n``."""

Key = tuple[Any, ...]
MOVABLE = ("key", "ball", "box", "door")
"""Types of the objects that a state says the position of."""


class LevelSimulator:
    """A level whose state can be read and written.

    Levels keep references to single objects (the door to be opened, the ball to be fetched): the initial objects are
    moved, never created again.

    Args:
        real: the level at the beginning of an episode.
    """

    def __init__(self, real: Any) -> None:
        self.real = real
        self.size = self.real.grid.width, self.real.grid.height
        self._fixed = [None if item is None or item.type in MOVABLE else item for item in self.real.grid.grid]
        self.movable: list[Any] = []
        for item in self.real.grid.grid:
            while item is not None and item.type in MOVABLE:
                self.movable.append(item)
                item = item.contains
        self._number = {id(item): number for number, item in enumerate(self.movable)}
        self._memory = VerifierMemory(real, self.movable) if hasattr(real, "instrs") else None

    def read(self) -> Key:
        """Return the key of the state: the agent, each object's position, whether doors are open and locked, and
        what verifiers remember.

        Raises:
            ValueError: something changed that is not part of the state.
        """
        level = self.real
        positions = [GONE] * len(self.movable)
        for index, (item, fixed) in enumerate(zip(level.grid.grid, self._fixed, strict=True)):
            if item is not fixed:
                self._record_position(item, index, positions)
        self._record_position(level.carrying, CARRIED, positions)
        for number, item in enumerate(self.movable):
            if item.contains is not None and positions[number] != GONE:
                self._record_position(item.contains, INSIDE - number, positions)
        col, row = level.agent_pos
        states = [(item.is_open, item.is_locked) if item.type == "door" else () for item in self.movable]
        memory = () if self._memory is None else (self._memory.read(),)
        return (int(col), int(row), int(level.agent_dir)), tuple(zip(positions, states, strict=True)), *memory

    def write(self, state: Key) -> None:
        """Put the level into a state."""
        (col, row, facing), movable, *memory = state
        level, cells = self.real, self._fixed.copy()
        level.carrying = None
        for item, (position, door_state) in zip(self.movable, movable, strict=True):
            item.contains = None
            if door_state:
                item.is_open, item.is_locked = door_state
            if position == CARRIED:
                level.carrying, item.cur_pos = item, (-1, -1)
            elif position >= 0:
                cells[position], item.cur_pos = item, (position % self.size[0], position // self.size[0])
        for item, (position, _) in zip(self.movable, movable, strict=True):
            if position <= INSIDE:
                self.movable[INSIDE - position].contains = item
        level.grid.grid = cells
        level.agent_pos, level.agent_dir = (col, row), facing
        if self._memory is not None:
            self._memory.write(memory[0])

    def step(self, action: int) -> Any:
        """Take an action; returns the values of Gymnasium's `step`."""
        self.real.step_count = 0  # the reward of the goal decreases with the steps, finally below 0
        return self.real.step(action)

    def layout(self) -> list[str]:
        """Return the fixed cells row by row, in words, "" for free ones."""
        return ["" if item is None else f"{item.type} ({item.color})" for item in self._fixed]

    def _record_position(self, item: Any, position: int, positions: list[int]) -> None:
        if item is None and position == CARRIED:
            return
        number = self._number.get(id(item))
        if number is None:
            raise ValueError(
                f"a level must change nothing but its own keys, balls, boxes and doors, got {item!r:.80} at {position}"
            )
        positions[number] = position
