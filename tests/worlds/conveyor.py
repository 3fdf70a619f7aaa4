"""A kind of thing as another package would define it: a conveyor, which moves the agent one cell on."""

from collections.abc import Callable
from typing import Any

from goalscope.worlds import Action, things


@things.thing
class Conveyor(things.Kind):
    """A conveyor to the right."""

    symbol, name, legend = "}", "conveyor right", "a conveyor to the right"
    rule = "An agent whose move enters a conveyor is moved one cell further in its direction, if that cell is free."
    direction = Action.RIGHT

    def act(self, grid: Any, index: int, cell: things.Cell, parts: things.Parts, action: int) -> Any:
        """Move the agent on."""
        down, right = self.direction.delta
        target = cell[0] + down, cell[1] + right
        return target if things.is_free(grid, target, parts) else cell, parts

    def turned(self, turn: Callable[[int], int]) -> str:
        """Return the symbol of the turned direction."""
        return {Action.RIGHT: "}", Action.LEFT: "{", Action.UP: "n", Action.DOWN: "u"}[Action(turn(self.direction))]


@things.thing
class LeftConveyor(Conveyor):
    """A conveyor to the left."""

    symbol, name, legend, direction = "{", "conveyor left", "a conveyor to the left", Action.LEFT


@things.thing
class UpConveyor(Conveyor):
    """A conveyor upwards."""

    symbol, name, legend, direction = "n", "conveyor up", "a conveyor upwards", Action.UP


@things.thing
class DownConveyor(Conveyor):
    """A conveyor downwards."""

    symbol, name, legend, direction = "u", "conveyor down", "a conveyor downwards", Action.DOWN
