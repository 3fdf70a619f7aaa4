"""The kinds of things that come with goalscope: coloured keys and doors, teleporter, lava, one-way cells and others."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from goalscope.worlds.grid import DELTAS, Action
from goalscope.worlds.things import Cell, Kind, Parts, ThingGrid, carried_index, indices, thing, with_digit

KEYS: Final = ("r", "b", "y")
"""Symbols of the coloured keys."""


class Key(Kind):
    """A coloured key: the agent picks it up on entering its cell, and a chest uses it up."""

    states = 3  # lies, held, spent
    events: ClassVar[Mapping[str, int]] = {"held": 1, "spent": 2}

    def carried(self, own: int) -> bool:
        """Return whether the agent carries the key, given the key's state (0 on the ground, 1 carried, 2 used up)."""
        return own == 1

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Let the agent, which has entered the key's cell, pick the key up. Arguments are those of `Kind.act`.

        Returns:
            The agent's cell; and the states of all things, where the key's state is now "carried".
        """
        return cell, with_digit(parts, index, 1) if parts[index] == 0 else parts


class Opening(Kind):
    """Base class of things that block the way until they open; then they vanish for good. Examples are doors and
    gates.
    """

    states = 2
    events: ClassVar[Mapping[str, int]] = {"open": 1}

    def solid(self, own: int) -> bool:
        """Return whether the thing blocks the way, given its state (0 closed, 1 open)."""
        return own == 0


class Door(Opening):
    """A locked door of one colour, which opens when the agent stands beside it with the key of this colour."""

    near = True
    key: ClassVar[str]

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Open the door if the agent, which stands beside it, carries the key of its colour. Arguments are those of
        `Kind.act`.

        Returns:
            The agent's cell; and the states of all things, where the door may now be open.
        """
        opens = parts[index] == 0 and carried_index(grid, parts, self.key) >= 0
        return cell, with_digit(parts, index, 1) if opens else parts


def _key_and_door(colour: str) -> None:
    """Register the key and the door of one colour."""
    small, capital = colour[0], colour[0].upper()
    key = {
        "symbol": small,
        "name": f"{colour} key",
        "legend": f"a {colour} key",
        "rule": f"The agent picks up the {colour} key by itself when one of its moves enters the key's cell.",
    }
    door = {
        "symbol": capital,
        "key": small,
        "name": f"{colour} door",
        "legend": f"a locked {colour} door",
        "rule": (
            f"A locked {colour} door cannot be entered. It opens by itself and vanishes as soon as the agent stands on "
            f"a cell next to it and carries the {colour} key."
        ),
    }
    thing(type(f"{colour.title()}Key", (Key,), key | {"__module__": __name__}))
    thing(type(f"{colour.title()}Door", (Door,), door | {"__module__": __name__}))


for _colour in ("red", "blue", "yellow"):
    _key_and_door(_colour)


@thing
class Teleporter(Kind):
    """A teleporter, which moves the agent to the next teleporter in reading order, and from the last to the first."""

    symbol, name, legend = "T", "teleporter", "a teleporter"
    rule = (
        "An agent whose move enters a teleporter comes out at the next one, row by row, and from the last one at the "
        "first."
    )

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Move the agent, which has entered a teleporter, to the next teleporter; a single teleporter does nothing.

        Arguments are those of `Kind.act`.

        Returns:
            The agent's new cell; and the states of all things, unchanged.
        """
        places = indices(grid, self.symbol)
        return grid.things[places[(places.index(index) + 1) % len(places)]][0], parts


@thing
class Lava(Kind):
    """Lava: an agent that enters it has failed, and the episode ends."""

    symbol, name, legend = "L", "lava", "lava"
    rule = "An agent that enters lava has failed: the episode ends there."
    ends = True


class OneWay(Kind):
    """A cell that can only be entered by one of the four moves; it can be left by all of them."""

    direction: ClassVar[Action]

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Send the agent back if it has entered the cell by another move than the permitted one.

        Arguments are those of `Kind.act`.

        Returns:
            The agent's cell after that; and the states of all things, unchanged.
        """
        down, right = DELTAS[action].tolist()
        return cell if action == self.direction else (cell[0] - down, cell[1] - right), parts

    def turned(self, turn: Callable[[int], int]) -> str:
        """Return the symbol of this one-way cell in a reflected or rotated grid.

        Args:
            turn: function from a direction (an index of `Action`) in this grid to that in the transformed grid.
        """
        return _ARROWS[turn(self.direction)]


_ARROWS: Final = "^v<>"
for _action in Action:
    _direction = _action.name.lower()
    thing(
        type(
            f"OneWay{_action.name.title()}",
            (OneWay,),
            {
                "symbol": _ARROWS[_action],
                "name": f"one-way cell {_direction}",
                "legend": f"a cell that can only be entered by the move {_action.name}",
                "direction": _action,
                "__module__": __name__,
            },
        )
    )


@thing
class Coin(Kind):
    """A coin, which the agent collects on entering its cell and carries from then on."""

    symbol, name, legend = "c", "coin", "a coin"
    rule = "The agent collects a coin by itself when one of its moves enters the coin's cell."
    states = 2
    events: ClassVar[Mapping[str, int]] = {"collected": 1}

    def carried(self, own: int) -> bool:
        """Return whether the coin was collected, given its state (0 on the ground, 1 collected)."""
        return own == 1

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Let the agent, which has entered the coin's cell, collect the coin. Arguments are those of `Kind.act`.

        Returns:
            The agent's cell; and the states of all things, where the coin is now collected.
        """
        return cell, with_digit(parts, index, 1)


@thing
class Chest(Opening):
    """A chest, which opens when the agent comes to stand beside it with a key of any colour, and uses that key up."""

    symbol, name, legend = "H", "chest", "a locked chest"
    rule = (
        "A locked chest cannot be entered. It opens by itself and vanishes as soon as the agent stands on a cell next "
        "to it and carries a red, blue or yellow key, which is then used up."
    )
    near = True

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Open the chest with the first coloured key that the agent, which stands beside the chest, carries.

        Arguments are those of `Kind.act`.

        Returns:
            The agent's cell; and the states of all things: the chest open and the key used up, or unchanged without a
            key.
        """
        keys = [key for key in (carried_index(grid, parts, symbol) for symbol in KEYS) if key >= 0]
        if parts[index] == 1 or not keys:
            return cell, parts
        return cell, with_digit(with_digit(parts, keys[0], 2), index, 1)


@thing
class Gate(Opening):
    """A gate, which blocks the way until a button opens it."""

    symbol, name, legend = "E", "gate", "a closed gate"
    rule = (
        "A closed gate cannot be entered. All gates open and vanish when a move of the agent enters the cell of a "
        "button."
    )


@thing
class Button(Kind):
    """A button, which opens all gates of the grid when the agent enters its cell."""

    symbol, name, legend = "o", "button", "a button that opens all gates"
    states = 2
    events: ClassVar[Mapping[str, int]] = {"pressed": 1}

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Open every gate of the grid when the agent has entered the button's cell; the button then has no further
        effect.

        Arguments are those of `Kind.act`.

        Returns:
            The agent's cell; and the states of all things, with the gates open and the button pressed.
        """
        for gate in indices(grid, Gate.symbol):
            parts = with_digit(parts, gate, 1)
        return cell, with_digit(parts, index, 1)
