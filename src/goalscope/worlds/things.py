"""The interface of objects in grids: a *thing* stands in a cell, has a symbol and a digit, and acts on the agent.

A key lies, is held or is spent; a door is locked or open; lava never changes. Each kind of thing is one class, which
derives from `Kind` and registers with `thing`. Everything else follows from its attributes: the text of the grid, its
exact solution, the prompt, hypotheses, measures, counterfactual changes, and the page.

The state of all things of a grid is a tuple of digits, its *parts*: one per thing in the order of ``grid.things``,
followed by one per thing in ``grid.held``, which the agent carries and which has no cell.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry

Cell = tuple[int, int]
Parts = tuple[int, ...]
Thing = tuple[Cell, str]
"""A thing in a grid: its cell and the symbol of its kind."""

RESERVED: Final = "#_*AGKD .?"
"""Symbols that no kind of thing may have: those of `goalscope.worlds.grid`, and blanks of other programs."""

_MOST_STATES, _MOST_COMBINATIONS = 10, 2**48  # the latter so that flags fit into 64 bits


class ThingGrid(Protocol):
    """Interface of what a thing may know about its grid; see `goalscope.worlds.Grid`."""

    @property
    def walls(self) -> npt.NDArray[np.bool_]:
        """``[H, W]`` bool, True for walls."""
        ...

    @property
    def door(self) -> Cell | None:
        """Cell of the door D while it is locked."""
        ...

    @property
    def things(self) -> tuple[Thing, ...]:
        """Cell and symbol of each thing."""
        ...

    @property
    def held(self) -> tuple[str, ...]:
        """Symbols of the things that the agent carries."""
        ...


class Kind:
    """A kind of object in grids, such as lava. Derive from it, set the attributes, and decorate the class with `thing`.

    Override the methods that differ. The state of a thing is one digit. Every episode begins with digit 0: the thing
    is drawn and not carried.

    Attributes:
        symbol: one character that stands for the thing in grids; no digit, and none of `RESERVED`.
        name: the thing in words, such as "red key"; hypotheses, measures and counterfactual changes use it.
        legend: the line of the prompt that explains the symbol, such as "a red key".
        rule: a sentence of the prompt on how the thing works; "" if the legend says it all.
        states: number of states of the thing: 1 if it never changes, 2 for a door.
        near: whether the thing also acts when the agent comes to stand beside it.
        ends: whether an episode ends, without success, when the agent stands on the thing.
        events: word -> least digit at which the event has happened. ``{"held": 1}`` of the red key makes the
            hypothesis "red key held". A thing that stays in view has no events, since the agent could not see whether
            one has happened.
    """

    symbol: ClassVar[str]
    name: ClassVar[str]
    legend: ClassVar[str]
    rule: ClassVar[str] = ""
    states: ClassVar[int] = 1
    near: ClassVar[bool] = False
    ends: ClassVar[bool] = False
    events: ClassVar[Mapping[str, int]] = MappingProxyType({})

    def solid(self, own: int) -> bool:
        """Return whether a thing in state ``own`` (a digit) blocks the agent's way and view."""
        return False

    def shown(self, own: int) -> bool:
        """Return whether a thing in state ``own`` (a digit) is drawn. It must be drawn in state 0, and only then.

        A drawn thing is therefore in state 0. A thing that is neither drawn nor carried must no longer matter.
        """
        return own == 0

    def carried(self, own: int) -> bool:
        """Return whether a thing in state ``own`` (a digit) is carried by the agent; true for at most one state."""
        return False

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Return where the agent ends up, and the new digits (states) of all things.

        The method must be pure, and may depend neither on the goal nor on the start.

        It is called when a move of the agent enters the thing's cell, not when another thing moves the agent there,
        and for kinds that are `near` also when the agent comes to stand beside the thing.

        Args:
            grid: the grid.
            index: index of this thing in ``grid.things`` and ``parts``.
            cell: cell of the agent: that of this thing, or a cell beside it if the kind is `near`.
            parts: digits (states) of all things.
            action: the move that led to the cell, as the index of a `goalscope.worlds.Action`.
        """
        return cell, parts

    def turned(self, turn: Callable[[int], int]) -> str:
        """Return the symbol of this thing in a rotated or reflected grid.

        Args:
            turn: function that maps each action to the corresponding action in the new grid.
        """
        return self.symbol

    def event(self, word: str) -> str:
        """Return the hypothesis that an event has happened to a thing of this kind, such as "red key held"."""
        return f"{self.name} {word}"

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """The hypotheses about things of this kind: its place and its events."""
        return f"at {self.name}", *map(self.event, self.events)

    @property
    def carried_digit(self) -> int:
        """The state (digit) of a carried thing of this kind; -1 if the agent cannot carry such things."""
        return next((digit for digit in range(self.states) if self.carried(digit)), -1)


KindClass = TypeVar("KindClass", bound=type[Kind])
Cached = TypeVar("Cached", bound="_Cached")
_by_symbol: dict[str, Kind] = {}
_caches: list["_Cached"] = []


class _Cached(Protocol):
    def cache_clear(self) -> None: ...


def forgets_kinds(function: Cached) -> Cached:
    """Have the cache of a function of grids emptied when a kind of thing is registered; used as a decorator.

    A class that is defined again, as in a notebook, replaces the older one in all results.
    """
    _caches.append(function)
    return function


def thing(kind: KindClass) -> KindClass:
    """Register a kind of thing under its name; used as a decorator.

    Raises:
        ValueError: an attribute is missing or invalid, or its name or symbol is used by another kind.
    """
    instance = kind()
    _check_kind(instance, kind.__name__)
    registry.load_built_in("thing")  # first, so that their symbols are taken
    other = _by_symbol.get(instance.symbol)
    if other is not None and other.name != instance.name and _is_registered(other):
        raise ValueError(
            f"the symbol of a kind of thing must be its own, but {instance.symbol!r} of {instance.name!r} stands for "
            f"{other.name!r}: choose another character"
        )
    registry.register("thing", instance.name, made_of=kind)(instance)
    _by_symbol[instance.symbol] = instance
    for function in _caches:
        function.cache_clear()
    return kind


class UnknownSymbolError(ValueError):
    """The text of a grid holds a symbol that neither grids nor the registered kinds of things have."""


def kind_of(symbol: str) -> Kind | None:
    """Return the registered kind of things with this symbol; None if there is none."""
    kind = _by_symbol.get(symbol)
    if kind is None or not _is_registered(kind):
        _by_symbol.clear()
        _by_symbol.update({other.symbol: other for other in kinds()})  # imports the modules that register kinds
    return _by_symbol.get(symbol)


def name_of(symbol: str) -> str:
    """Return the name of the kind of things with this symbol."""
    return _known_kind(symbol).name


def kinds() -> tuple[Kind, ...]:
    """Return all registered kinds, those that come with goalscope first."""
    return tuple(registry.resolve("thing", name) for name in registry.names("thing"))


def _is_registered(kind: Kind) -> bool:
    return kind.name in registry.names("thing") and registry.resolve("thing", kind.name) is kind


def _check_kind(kind: Kind, class_name: str) -> None:
    """Check the attributes of a kind, which may come from another package."""
    for attribute in ("symbol", "name", "legend"):
        value = getattr(kind, attribute, None)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError(f"{attribute} of the thing {class_name} must be one line of text, got {value!r}: set it")
    if len(kind.symbol) != 1 or kind.symbol.isspace() or kind.symbol.isdigit() or kind.symbol in RESERVED:
        raise ValueError(
            f"symbol of the thing {class_name} must be one character, neither a digit nor one of {RESERVED!r}, got "
            f"{kind.symbol!r}: choose another character"
        )
    if not kind.name.isascii() or kind.name.lower() != kind.name:
        raise ValueError(f"name of the thing {class_name} must be in lower-case letters, got {kind.name!r}")
    if type(kind.states) is not int or not 1 <= kind.states <= _MOST_STATES:
        raise ValueError(
            f"states of the thing {class_name} must be a whole number from 1 to {_MOST_STATES}, got {kind.states!r}"
        )
    digits = range(kind.states)
    drawn, carried = [d for d in digits if kind.shown(d)], [d for d in digits if kind.carried(d)]
    if drawn != [0] or 0 in carried or len(carried) > 1:
        raise ValueError(
            f"the thing {class_name} must be drawn in digit 0 alone and carried in at most one other digit, so that "
            f"what an agent sees determines its state, got drawn in {drawn} and carried in {carried}"
        )
    if kind.events and kind.states == 1:
        raise ValueError(
            f"events of the thing {class_name} need a second state, in which it is carried or not drawn, got states = "
            "1: set states to 2, or leave events out"
        )
    for word, digit in kind.events.items():
        if not word or not 0 < digit < kind.states:
            raise ValueError(
                f"events of the thing {class_name} must map a word to a digit from 1 to {kind.states - 1}, got "
                f"{word!r}: {digit!r}"
            )


class Arrangement:
    """The things of one grid: their kinds, their cells, and how their digits are packed into one number.

    Attributes:
        kinds: kind of each thing, those in ``grid.things`` first, then those in ``grid.held``.
        initial: state (digit) of each thing as the grid shows it: 0 for things in cells, `Kind.carried_digit` for those
            that the agent holds.
        at: cell -> index of the thing there.
        ends: cells in which an episode ends without success.
        beside: cell -> indices of the things beside it that are `Kind.near`, in order.
    """

    def __init__(self, things: tuple[Thing, ...], load: tuple[str, ...]) -> None:
        symbols = (*(symbol for _, symbol in things), *load)
        self.kinds = tuple(_known_kind(symbol) for symbol in symbols)
        if self.states > _MOST_COMBINATIONS:
            raise ValueError(
                f"the things of a grid may have at most 2**48 states together, got {len(symbols)}: use fewer"
            )
        self.initial = (*(0 for _ in things), *(kind.carried_digit for kind in self.kinds[len(things) :]))
        self.at = {cell: index for index, (cell, _) in enumerate(things)}
        self.ends = tuple(cell for cell, index in self.at.items() if self.kinds[index].ends)
        self.beside: dict[Cell, list[int]] = {}
        for index, ((row, col), _) in enumerate(things):
            if self.kinds[index].near:
                for cell in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                    self.beside.setdefault(cell, []).append(index)

    def pack(self, parts: Parts) -> int:
        """Return the digits (states) of all things as one number; the first digit counts least."""
        number = 0
        for kind, digit in zip(reversed(self.kinds), reversed(parts), strict=True):
            number = number * kind.states + digit
        return number

    def unpack(self, number: int) -> Parts:
        """Return the digits of a number.

        Raises:
            ValueError: the number is no combination of states of these things.
        """
        digits, rest = [], number
        for kind in self.kinds:
            rest, digit = divmod(rest, kind.states)
            digits.append(digit)
        if rest or number < 0:
            raise ValueError(f"the things of this grid have no state with the number {number}: check the stored flags")
        return tuple(digits)

    @property
    def states(self) -> int:
        """Number of combinations that the digits of the things can have."""
        return math.prod(kind.states for kind in self.kinds)

    def solid_cells(self, parts: Parts) -> list[Cell]:
        """Return the cells of the things that block the way and the view."""
        return [cell for cell, index in self.at.items() if self.kinds[index].solid(parts[index])]

    def is_free(self, grid: ThingGrid, cell: Cell, parts: Parts) -> bool:
        """Return whether a cell is open, and no thing in it is solid."""
        index = self.at.get(cell)
        return is_open(grid, cell) and (index is None or not self.kinds[index].solid(parts[index]))

    def enter(self, grid: ThingGrid, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Return where an agent that enters a cell ends up, and the new digits (states) of all things.

        The thing of that cell acts first, then those beside the cell where the agent stands after that, in order. A
        thing in a cell to which another one moves the agent does not act.

        Raises:
            ValueError: a thing moves the agent onto a wall or out of the grid, or sets an impossible digit.
        """
        index = self.at.get(cell)
        if index is not None:
            cell, parts = self._checked(grid, index, self.kinds[index].act(grid, index, cell, parts, action))
        for index in self.beside.get(cell, ()):
            cell, parts = self._checked(grid, index, self.kinds[index].act(grid, index, cell, parts, action))
        return cell, parts

    def _checked(self, grid: ThingGrid, index: int, result: tuple[Cell, Parts]) -> tuple[Cell, Parts]:
        cell, parts = result
        if not is_open(grid, cell):
            raise ValueError(f"{self.kinds[index].name} must leave the agent on an open cell, got {cell}")
        digits = zip(self.kinds, parts, strict=False)
        if len(parts) != len(self.kinds) or not all(0 <= digit < kind.states for kind, digit in digits):
            raise ValueError(f"{self.kinds[index].name} must give each thing one of its states, got {parts}")
        return cell, tuple(parts)


@forgets_kinds
@lru_cache(maxsize=4096)
def arrangement_of(things: tuple[Thing, ...], load: tuple[str, ...]) -> Arrangement:
    """Return the arrangement of the things on a grid together with those that its agent carries."""
    return Arrangement(things, tuple(symbol for symbol in load if symbol not in RESERVED))


def _known_kind(symbol: str) -> Kind:
    kind = kind_of(symbol)
    if kind is None:
        raise ValueError(f"no kind of thing is registered for the symbol {symbol!r}: install the package that does so")
    return kind


def is_open(grid: ThingGrid, cell: Cell) -> bool:
    """Return whether a cell lies in the grid and is neither a wall nor the locked door D."""
    (row, col), (height, width) = cell, grid.walls.shape
    return 0 <= row < height and 0 <= col < width and not grid.walls[row, col] and cell != grid.door


def carried_index(grid: ThingGrid, parts: Parts, symbol: str) -> int:
    """Return the index in ``parts`` of the first thing with this symbol that the agent carries; -1 if there is none."""
    arrangement = arrangement_of(grid.things, grid.held)
    for index, kind in enumerate(arrangement.kinds):
        if kind.symbol == symbol and kind.carried(parts[index]):
            return index
    return -1


def indices(grid: ThingGrid, symbol: str) -> list[int]:
    """Return the indices of all things with this symbol that stand in cells."""
    return [index for index, (_, other) in enumerate(grid.things) if other == symbol]


def with_digit(parts: Parts, index: int, digit: int) -> Parts:
    """Return a copy of the digits (one per thing, its state) with the digit at an index replaced."""
    return (*parts[:index], digit, *parts[index + 1 :])


def is_free(grid: ThingGrid, cell: Cell, parts: Parts) -> bool:
    """Return whether an agent can be moved to a cell: inside the grid, no wall, and no thing that is solid now."""
    return arrangement_of(grid.things, grid.held).is_free(grid, cell, parts)
