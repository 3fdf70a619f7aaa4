"""The interface of objects in grids: a *thing* stands in a cell, has a symbol and a digit, and acts on the agent.

A key lies, is held or is spent; a door is locked or open; lava never changes. Each kind of thing is one class, which
derives from `Kind` and registers with `thing`. Everything else follows from its attributes: the text of the grid, its
exact solution, the prompt, hypotheses, measures, counterfactual changes, and the page.

The state of all things of a grid is a tuple of digits, its *parts*: one per thing in the order of ``grid.things``,
followed by one per thing in ``grid.held``, which the agent carries and which has no cell.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from operator import mul
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeVar

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
    """Interface of a grid as its things (objects such as coins) may see it; `goalscope.worlds.Grid` has it."""

    @property
    def walls(self) -> npt.NDArray[np.bool_]:
        """``[H, W]`` bool, rows by columns, True for walls."""

    @property
    def door(self) -> Cell | None:
        """Cell (row, col) of the door D while it is locked; None if it is open, or there is none."""

    @property
    def things(self) -> tuple[Thing, ...]:
        """Cell (row, col) and symbol of each thing that stands in a cell."""

    @property
    def held(self) -> tuple[str, ...]:
        """Symbols of the things that the agent carries."""


class Kind:
    """A kind of thing: an object that grids can contain, such as lava or a coin.

    To define a kind, derive a class, set the attributes, override the methods that differ, and decorate the class with
    `thing`. The state of a thing is one digit, such as 0 for a closed and 1 for an open gate. Every episode begins with
    digit 0: the thing is drawn and not carried.

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
        """Return whether the thing blocks the agent's way and view, given its state ``own`` (a digit)."""
        return False

    def shown(self, own: int) -> bool:
        """Return whether the thing is drawn in the grid, given its state ``own`` (a digit): True in state 0, False in
        all others.

        A thing that is neither drawn nor carried must no longer matter, since an agent cannot see its state.
        """
        return own == 0

    def carried(self, own: int) -> bool:
        """Return whether the agent carries the thing, given the thing's state ``own`` (a digit); true for at most
        one state.
        """
        return False

    def act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Let the thing act on the agent, and return where the agent ends up and the new states of all things.

        It is called when a move of the agent enters the thing's cell, not when another thing moves the agent there, and
        for kinds that are `near` also when the agent comes to stand beside the thing. The method must be pure, and may
        depend neither on the goal nor on the start.

        Args:
            grid: the grid.
            index: index of this thing in ``grid.things`` and ``parts``.
            cell: cell of the agent: that of this thing, or a cell beside it if the kind is `near`.
            parts: states (digits) of all things.
            action: the move that led to the cell, as the index of a `goalscope.worlds.Action`.

        Returns:
            The cell of the agent afterwards; and the states (digits) of all things.
        """
        return cell, parts

    def turned(self, turn: Callable[[int], int]) -> str:
        """Return the symbol that stands for this thing in a rotated or reflected grid; it differs for things with a
        direction.

        Args:
            turn: function that maps each action to the corresponding action in the new grid.
        """
        return self.symbol

    def event(self, word: str) -> str:
        """Return the name of the hypothesis that an agent seeks an event of this thing: "held" gives "red key held".

        Args:
            word: one of the keys of `events`.
        """
        return f"{self.name} {word}"

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Names of the hypotheses about goals that this kind of thing adds: its place ("at red key") and its events."""
        return f"at {self.name}", *map(self.event, self.events)


KindClass = TypeVar("KindClass", bound=type[Kind])
Cached = TypeVar("Cached")
_by_symbol: dict[str, Kind] = {}
_caches: list[Any] = []


def forgets_kinds(function: Cached) -> Cached:
    """Mark a cached function of grids, so that its cache is emptied when a kind of thing is registered; used as a
    decorator.

    A class that is defined again, as in a notebook, then replaces the older class in all later results.
    """
    _caches.append(function)
    return function


def thing(kind: KindClass) -> KindClass:
    """Register a class derived from `Kind` as a kind of thing (an object in grids); used as a decorator.

    Raises:
        ValueError: if an attribute is missing or invalid, or its name or symbol is used by another kind.
    """
    instance = kind()
    for fault in _faults(instance):
        raise ValueError(f"the thing {kind.__name__} cannot be registered: {fault}")
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
    """Error for the text of a grid with a symbol that neither grids nor the registered kinds of things have."""


def kind_of(symbol: str) -> Kind | None:
    """Return the registered kind of thing (object in grids) with this symbol; None if there is none."""
    kind = _by_symbol.get(symbol)
    if kind is None or not _is_registered(kind):
        _by_symbol.clear()
        _by_symbol.update({other.symbol: other for other in kinds()})  # imports the modules that register kinds
    return _by_symbol.get(symbol)


def known_kind(symbol: str) -> Kind:
    """Return the kind of thing (object in grids) with this symbol, such as the coin for ``c``.

    Raises:
        ValueError: if no kind is registered for the symbol.
    """
    kind = kind_of(symbol)
    if kind is None:
        registered = ", ".join(f"{other.symbol} ({other.name})" for other in kinds())
        raise ValueError(
            f"no kind of thing is registered for the symbol {symbol!r}: use one of {registered}, or install the "
            "package that registers it"
        )
    return kind


def kinds() -> tuple[Kind, ...]:
    """Return all registered kinds of things (objects in grids), those that come with goalscope first."""
    return tuple(registry.resolve("thing", name) for name in registry.names("thing"))


def kinds_in(grids: Iterable[ThingGrid]) -> tuple[Kind, ...]:
    """Return the kinds of the things in these grids, in the order of `kinds`."""
    symbols = {symbol for grid in grids for _, symbol in grid.things}
    return tuple(kind for kind in (kinds() if symbols else ()) if kind.symbol in symbols)


def _is_registered(kind: Kind) -> bool:
    return kind.name in registry.names("thing") and registry.resolve("thing", kind.name) is kind


def _faults(kind: Kind) -> Iterator[str]:
    """Yield what is wrong with the attributes of a kind, which may come from another package."""
    for attribute in ("symbol", "name", "legend"):
        value = getattr(kind, attribute, None)
        if not isinstance(value, str) or not value or not value.isprintable():
            yield f"{attribute} must be one line of text, got {value!r}"
    if len(kind.symbol) != 1 or kind.symbol.isspace() or kind.symbol.isdigit() or kind.symbol in RESERVED:
        yield f"symbol must be one character, neither a digit nor one of {RESERVED!r}, got {kind.symbol!r}"
    if not kind.name.isascii() or kind.name.lower() != kind.name:
        yield f"name must be in lower-case letters, got {kind.name!r}"
    if type(kind.states) is not int or not 1 <= kind.states <= _MOST_STATES:
        yield f"states must be a whole number from 1 to {_MOST_STATES}, got {kind.states!r}"
    drawn, carried = ([digit for digit in range(kind.states) if holds(digit)] for holds in (kind.shown, kind.carried))
    if drawn != [0] or 0 in carried or len(carried) > 1:
        yield (
            "it must be drawn in digit 0 alone and carried in at most one other digit, so that what an agent sees "
            f"determines its state, got drawn in {drawn} and carried in {carried}"
        )
    if kind.events and kind.states == 1:
        yield "events need a second state, in which the thing is carried or not drawn, got 1: set states to 2"
    for word, digit in kind.events.items():
        if not word or not 0 < digit < kind.states:
            yield f"events must map a word to a digit from 1 to {kind.states - 1}, got {word!r}: {digit!r}"


class Arrangement:
    """The things (objects such as coins) of one grid, and how their states are packed into one number.

    Attributes:
        kinds: kind of each thing, those in ``grid.things`` first, then those in ``grid.held``.
        weights: what the digit of each thing counts in the number of the state of all of them: 1 for the first thing.
        states: number of combinations of states that all things together can have.
        initial: state (digit) of each thing as the grid shows it: 0 for things in cells; for those that the agent
            holds the digit that is `Kind.carried`, and -1 if no digit is.
        at: cell -> index of the thing there.
        ends: cells in which an episode ends without success.
        beside: cell -> indices of the things beside it that are `Kind.near`, in order.
    """

    def __init__(self, things: tuple[Thing, ...], load: tuple[str, ...]) -> None:
        symbols = (*(symbol for _, symbol in things), *load)
        self.kinds = tuple(known_kind(symbol) for symbol in symbols)
        *self.weights, self.states = accumulate((kind.states for kind in self.kinds), mul, initial=1)
        if self.states > _MOST_COMBINATIONS:
            raise ValueError(
                f"the things of a grid may have at most 2**48 states together, got {len(symbols)}: use fewer"
            )
        carried = [next(filter(kind.carried, range(kind.states)), -1) for kind in self.kinds[len(things) :]]
        self.initial = (*(0 for _ in things), *carried)
        self.at = {cell: index for index, (cell, _) in enumerate(things)}
        self.ends = tuple(cell for cell, index in self.at.items() if self.kinds[index].ends)
        self.beside: dict[Cell, list[int]] = {}
        for index, ((row, col), _) in enumerate(things):
            if self.kinds[index].near:
                for cell in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
                    self.beside.setdefault(cell, []).append(index)

    def pack(self, parts: Parts) -> int:
        """Return the states (digits) of all things as one number; the first digit counts least. `unpack` is the
        inverse.
        """
        number = 0
        for digit, weight in zip(parts, self.weights, strict=True):
            number += digit * weight
        return number

    def unpack(self, number: int) -> Parts:
        """Return the states (digits) of all things that `pack` made into a number.

        Raises:
            ValueError: if the number is no combination of states of these things.
        """
        digits, rest = [], number
        for kind in self.kinds:
            rest, digit = divmod(rest, kind.states)
            digits.append(digit)
        if rest:
            raise ValueError(f"the things of this grid have no state with the number {number}: check the stored flags")
        return tuple(digits)

    def solid_cells(self, parts: Parts) -> list[Cell]:
        """Return the cells (row, column) of the things (objects such as doors) that now block the way and the view.

        Args:
            parts: the current state of each thing as a digit, in the order of `kinds`, such as 0 for a coin that still
                lies in its cell.
        """
        return [cell for cell, index in self.at.items() if self.kinds[index].solid(parts[index])]

    def enter(self, grid: ThingGrid, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Return what happens when an agent enters a cell with or beside things.

        The thing of that cell acts first, then those beside the cell where the agent stands after that, in order. A
        thing in a cell to which another one moves the agent does not act.

        Args:
            grid: the grid.
            cell: the cell that the agent enters, (row, col).
            parts: the states (digits) of all things.
            action: the move by which the agent enters the cell, as an index of `goalscope.worlds.Action`.

        Returns:
            The cell of the agent afterwards; and the new states (digits) of all things.

        Raises:
            ValueError: if a thing moves the agent onto a wall or out of the grid, or sets an impossible state.
        """
        index = self.at.get(cell)
        if index is not None:
            cell, parts = self._act(grid, index, cell, parts, action)
        for index in self.beside.get(cell, ()):
            cell, parts = self._act(grid, index, cell, parts, action)
        return cell, parts

    def _act(self, grid: ThingGrid, index: int, cell: Cell, parts: Parts, action: int) -> tuple[Cell, Parts]:
        """Let one thing act, and check what it returns, since its kind may come from another package."""
        kind = self.kinds[index]
        cell, parts = kind.act(grid, index, cell, parts, action)
        if not is_open(grid, cell):
            raise ValueError(f"{kind.name} must leave the agent on an open cell, got {cell}")
        digits = zip(self.kinds, parts, strict=False)
        if len(parts) != len(self.kinds) or not all(0 <= digit < other.states for other, digit in digits):
            raise ValueError(f"{kind.name} must give each thing one of its states, got {parts}")
        return cell, tuple(parts)


@forgets_kinds
@lru_cache(maxsize=4096)
def arrangement_of(things: tuple[Thing, ...], load: tuple[str, ...]) -> Arrangement:
    """Return the `Arrangement` of the things that stand in cells of a grid, and of those that its agent carries;
    cached.

    Args:
        things: cell and symbol of each thing in a cell.
        load: symbols of what the agent carries.
    """
    return Arrangement(things, tuple(symbol for symbol in load if symbol not in RESERVED))


def is_open(grid: ThingGrid, cell: Cell) -> bool:
    """Return whether a cell (row, col) lies in the grid and is neither a wall nor the locked door D."""
    (row, col), (height, width) = cell, grid.walls.shape
    return 0 <= row < height and 0 <= col < width and not grid.walls[row, col] and cell != grid.door


def carried_index(grid: ThingGrid, parts: Parts, symbol: str) -> int:
    """Return the index of the first thing with this symbol that the agent carries; -1 if there is none.

    Args:
        grid: the grid.
        parts: the states (digits) of all things.
        symbol: symbol of the kind of thing.
    """
    kinds_of = arrangement_of(grid.things, grid.held).kinds
    carried = (kind.symbol == symbol and kind.carried(digit) for kind, digit in zip(kinds_of, parts, strict=True))
    return next((index for index, is_carried in enumerate(carried) if is_carried), -1)


def indices(grid: ThingGrid, symbol: str) -> list[int]:
    """Return the indices, in ``grid.things``, of all things with this symbol."""
    return [index for index, (_, other) in enumerate(grid.things) if other == symbol]


def with_digit(parts: Parts, index: int, digit: int) -> Parts:
    """Return a copy of the states (digits) of all things, with the state of the thing at an index replaced."""
    return (*parts[:index], digit, *parts[index + 1 :])


def is_free(grid: ThingGrid, cell: Cell, parts: Parts) -> bool:
    """Return whether an agent can be moved to a cell: inside the grid, no wall, and no thing that blocks the way now.

    Args:
        grid: the grid.
        cell: the cell, (row, col).
        parts: the states (digits) of all things.
    """
    arrangement = arrangement_of(grid.things, grid.held)
    index = arrangement.at.get(cell)
    return is_open(grid, cell) and (index is None or not arrangement.kinds[index].solid(parts[index]))
