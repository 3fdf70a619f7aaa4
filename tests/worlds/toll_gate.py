"""A kind of thing as another package would define it: a toll gate, which opens after the agent has collected a coin."""

from typing import Any

from goalscope.worlds import things


@things.thing
class TollGate(things.Kind):
    """A toll gate."""

    symbol, name, legend = "t", "toll gate", "a closed toll gate"
    rule = "A closed toll gate opens by itself when an agent that has collected a coin stands on a cell next to it."
    states, near, events = 2, True, {"open": 1}

    def solid(self, own: int) -> bool:
        """Return whether the gate is closed."""
        return own == 0

    def act(self, grid: Any, index: int, cell: things.Cell, parts: things.Parts, action: int) -> Any:
        """Open for an agent with a coin."""
        opens = things.carried_index(grid, parts, "c") >= 0
        return cell, things.with_digit(parts, index, 1) if opens else parts
