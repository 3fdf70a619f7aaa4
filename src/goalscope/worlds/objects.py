"""The kinds of things that come with goalscope: coloured keys and doors, teleporter, lava, one-way cells and others."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from goalscope.worlds.grid import Action
from goalscope.worlds.things import Cell, Kind, Parts, ThingGrid, carried_index, indices, thing, with_digit

_ARROWS: Final = "^v<>"


class Found(Kind):
    """Base class of things that the agent picks up on entering their cell, and carries from then on."""

    states = 2

    def carried(self, own: int) -> bool:
        """Return whether the agent carries the thing, given its state (0 on the ground, 1 carried, 2 used up)."""
        return own == 1

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Let the agent, which has entered the thing's cell, pick the thing up. Arguments are those of `Kind.act`.

        Returns:
            The agent's cell; and the states of all things, where the thing's state is now "carried".
        """
        return cell, with_digit(parts, index, max(parts[index], 1))


class Opening(Kind):
    """Base class of things that block the way until they open; then they vanish for good. Examples are doors and
    gates.

    Attributes:
        keys: symbols of the keys that open the thing when the agent stands beside it with one of them; empty if no key
            does.
        uses_up: whether the key is then used up.
    """

    states = 2
    events: ClassVar[Mapping[str, int]] = {"open": 1}
    keys: ClassVar[tuple[str, ...]] = ()
    uses_up: ClassVar[bool] = False

    def solid(self, own: int) -> bool:
        """Return whether the thing blocks the way, given its state (0 closed, 1 open)."""
        return own == 0

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Open the thing with the first of its keys that the agent, which stands beside it, carries.

        Arguments are those of `Kind.act`.

        Returns:
            The agent's cell; and the states of all things, where the thing may now be open, and the key used up.
        """
        carried = [key for key in (carried_index(grid, parts, symbol) for symbol in self.keys) if key >= 0]
        if parts[index] == 1 or not carried:
            return cell, parts
        after = with_digit(parts, carried[0], 2) if self.uses_up else parts
        return cell, with_digit(after, index, 1)


for _colour in ("red", "blue", "yellow"):

    @thing
    class Key(Found):
        """A key of one colour, which a chest uses up."""

        symbol, name, legend = _colour[0], f"{_colour} key", f"a {_colour} key"
        rule = f"The agent picks up the {_colour} key by itself when one of its moves enters the key's cell."
        states = 3  # lies, held, spent
        events: ClassVar[Mapping[str, int]] = {"held": 1, "spent": 2}

    @thing
    class Door(Opening):
        """A locked door, which opens when the agent stands beside it with the key of its colour."""

        symbol, name, legend = _colour[0].upper(), f"{_colour} door", f"a locked {_colour} door"
        rule = (
            f"A locked {_colour} door cannot be entered. It opens by itself and vanishes as soon as the agent stands "
            f"on a cell next to it and carries the {_colour} key."
        )
        near, keys = True, (_colour[0],)


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


for _action in Action:

    @thing
    class OneWay(Kind):
        """A cell that can only be entered by one of the four moves; it can be left by all of them."""

        symbol, name, direction = _ARROWS[_action], f"one-way cell {_action.name.lower()}", _action
        legend = f"a cell that can only be entered by the move {_action.name}"

        def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
            """Send the agent back if it has entered the cell by another move than the permitted one.

            Arguments are those of `Kind.act`.

            Returns:
                The agent's cell after that; and the states of all things, unchanged.
            """
            down, right = Action(action).delta
            return cell if action == self.direction else (cell[0] - down, cell[1] - right), parts

        def turned(self, turn: Callable[[int], int]) -> str:
            """Return the symbol of this one-way cell in a reflected or rotated grid.

            Args:
                turn: function from a direction (an index of `Action`) in this grid to that in the transformed grid.
            """
            return _ARROWS[turn(self.direction)]


@thing
class Coin(Found):
    """A coin, which the agent collects."""

    symbol, name, legend = "c", "coin", "a coin"
    rule = "The agent collects a coin by itself when one of its moves enters the coin's cell."
    events: ClassVar[Mapping[str, int]] = {"collected": 1}


@thing
class Chest(Opening):
    """A chest, which opens when the agent comes to stand beside it with a key of any colour, and uses that key up."""

    symbol, name, legend = "H", "chest", "a locked chest"
    rule = (
        "A locked chest cannot be entered. It opens by itself and vanishes as soon as the agent stands on a cell next "
        "to it and carries a red, blue or yellow key, which is then used up."
    )
    near, keys, uses_up = True, ("r", "b", "y"), True


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
