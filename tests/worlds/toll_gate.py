"""A kind of thing as another package would define it: a toll gate, which opens after the agent has collected a coin."""

from goalscope.worlds.things import Cell, Kind, Parts, ThingGrid, carried_index, thing, with_digit


@thing
class TollGate(Kind):
    """A toll gate."""

    symbol, name, legend = "t", "toll gate", "a closed toll gate"
    rule = "A closed toll gate opens by itself when an agent that has collected a coin stands on a cell next to it."
    states, near, events = 2, True, {"open": 1}

    def solid(self, own: int) -> bool:
        """Return whether the gate is closed."""
        return own == 0

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Open for an agent with a coin."""
        return cell, with_digit(parts, index, 1) if carried_index(grid, parts, "c") >= 0 else parts
