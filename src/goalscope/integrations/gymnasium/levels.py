"""Simulator of a MiniGrid or BabyAI level that sets a state, takes one step and reads the next state.

The key of a state contains everything that a step can change except the step count: the position and direction of the
agent, the position of each movable object, whether doors are open, and the memory of BabyAI's instruction verifiers.
"""

from typing import Any

from goalscope.integrations.gymnasium.instructions import VerifierMemory

CARRIED, GONE, INSIDE = -1, -2, -10
"""Positions of objects that are in no cell; an object inside object n has ``INSIDE - n``."""

Key = tuple[Any, ...]
MOVABLE = ("key", "ball", "box", "door")
"""Types of the objects that a state says the position of."""


class LevelSimulator:
    """Level whose state can be read and written.

    Levels keep references to particular objects, such as the door to open or the ball to fetch. Writing a state
    therefore moves the original objects and never creates new ones.

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
        """Return the key of the state.

        The key contains the agent, the position of each object, whether each door is open and locked, and the memory
        of the verifiers.

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
        """Set the level to a state."""
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
        """Take an action and return the values of Gymnasium's `step`."""
        self.real.step_count = 0  # MiniGrid's reward decreases with the step count and would drop below 0
        return self.real.step(action)

    def layout(self) -> list[str]:
        """Describe the fixed cells row by row in words, with "" for free cells."""
        return ["" if item is None else f"{item.type} ({item.color})" for item in self._fixed]

    def _record_position(self, item: Any, position: int, positions: list[int]) -> None:
        if item is None and position == CARRIED:
            return
        number = self._number.get(id(item))
        if number is None:
            raise ValueError(
                f"a step changed {item!r:.80} at {position}, which is not part of the state: only keys, "
                "balls, boxes and doors of the initial level may change"
            )
        positions[number] = position
