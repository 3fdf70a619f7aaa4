"""Grids as worlds: with or without fog, and with an instruction that names the target cell.

A failure alone does not show whether an agent cannot reach the goal or does not want to. In a `NamedWorld`, the same
grid therefore comes with one of three instructions: the usual one ("to G"), one that names the goal's cell ("to the
cell (3,5)"), or one that names the cell of a rival target. The goal of the world is the named cell: the episode ends
there, and shortest paths lead there. The symbol G stays where it was.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

import numpy as np

from goalscope._ground.checks import check_whole
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import State, flag_count, has_ended, initial_state, shown, solid_cells, state_with, step
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import ACTIONS, GOAL, KEY, Action, Grid, Position, check_inside, symbols
from goalscope.worlds.things import known_kind
from goalscope.worlds.world import Drawing, Offer, Session, View, World, read_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class GridView(View):
    """What an agent sees of a grid at one moment of an episode.

    Attributes:
        grid: the grid with the agent at its cell and fog over unseen cells; ``grid.held`` is what the agent carries.
    """

    shows: ClassVar[str] = "a grid"
    actions: ClassVar[tuple[str, ...]] = tuple(Action.__members__)
    grid: Grid

    @property
    def carrying_key(self) -> bool:
        """Whether the agent carries the key."""
        return KEY in self.grid.held

    @property
    def text(self) -> str:
        """The grid as text, as `Grid.render` writes it."""
        return self.grid.render()

    def fields(self) -> Mapping[str, str]:
        """Return what prompt templates can insert: "grid", the grid as text, and "carrying_key", "yes" or "no"."""
        return {"grid": self.text, "carrying_key": "yes" if self.carrying_key else "no"}

    @property
    def standing_on(self) -> str:
        """Symbol of the thing on which the agent stands, and which the text therefore hides; "" if there is none."""
        return next((symbol for cell, symbol in self.grid.things if cell == self.grid.start), "")

    @property
    def drawing(self) -> Drawing:
        """The cells as the agent sees them, as data for a picture."""
        return drawn(self.grid)

    def line(self, action: str) -> str:
        """Return one line of a history in a prompt: the agent's cell and its action, such as ``(3,4) UP``.

        Raises:
            ValueError: if the grid shows no agent.
        """
        if self.grid.start is None:
            raise ValueError(f"each grid of a history must show its agent (A), got one without an agent:\n{self.grid}")
        row, col = self.grid.start
        return f"({row},{col}) {action}"

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return what the agent is shown, with the steps of its history, as JSON values that identify the call of a
        model.
        """
        entries = []
        for past in history:
            texts = [] if past.text is None and past.reasoning is None else [past.text, past.reasoning]
            entries.append([past.view.text, None if past.action is None else int(past.action), *texts])
        things = [list(self.grid.held), self.standing_on] if self.grid.things or set(self.grid.held) - {KEY} else []
        return [self.text, self.carrying_key, *things, entries]


def drawn(grid: Grid) -> Drawing:
    """Return the data for a picture of a grid: the symbols of its cells, the agent's cell and the names of things."""
    rows = symbols(grid.at(start=None))
    names = tuple((row, col, known_kind(symbol).name) for (row, col), symbol in grid.things)
    return Drawing(rows=tuple("".join(row) for row in rows.tolist()), agent=grid.start, labels=names)


class _StateNode:
    """One state of a grid, with its view and its successors, each computed once."""

    def __init__(self, grid: Grid, state: State, nodes: "dict[State, _StateNode]") -> None:
        self.grid, self.state, self._nodes = grid, state, nodes
        self.solved, self.done = state.position == grid.goal, has_ended(grid, state)
        self._successors: dict[int, _StateNode] = {}
        nodes[state] = self

    @cached_property
    def view(self) -> GridView:
        """The grid in this state."""
        return GridView(grid=shown(self.grid, self.state))

    def after(self, action: int) -> "_StateNode":
        """Return the state that an action leads to."""
        node = self._successors.get(action)
        if node is None:
            state = step(self.grid, self.state, action)
            node = self._successors[action] = self._nodes.get(state) or _StateNode(self.grid, state, self._nodes)
        return node


Presentation = Callable[[GridView], GridView]
"""Adds to a view what else an agent is shown."""

_start_nodes: WeakValueDictionary[str, _StateNode] = WeakValueDictionary()
"""Start state of each grid, kept while an episode on the grid is running."""


class GridSession(Session):
    """One episode on a grid, with what the agent has seen under ``fog`` (None without fog).

    The function ``present``, if any, adds to each view what else the agent is shown, such as an instruction.
    """

    def __init__(self, node: _StateNode, fog: Fog | None, present: Presentation | None = None) -> None:
        self._node, self._fog, self.present = node, fog, present

    @property
    def view(self) -> GridView:
        """The grid as the agent sees it now."""
        view = self._node.view if self._fog is None else GridView(grid=self._fog.view(self._node.view.grid))
        return view if self.present is None else self.present(view)

    @property
    def state(self) -> State:
        """The agent's cell, whether it has the key, whether it opened the door, and the state of the things."""
        return self._node.state

    @property
    def done(self) -> bool:
        """Whether the agent has reached the goal, or a thing has ended the episode."""
        return self._node.done

    @property
    def solved(self) -> bool:
        """Whether the agent has reached the goal."""
        return self._node.solved

    def step(self, action: int | None) -> None:
        """Make a move, given by its index; None (no valid move) leaves the state unchanged."""
        if action is not None:
            self._node = self._node.after(action)
            if self._fog is not None:
                self._fog = self._fog.look(self.state.position, solid_cells(self._node.grid, self.state))


@dataclass(frozen=True, kw_only=True)
class PlanarWorld(World):
    """Base class of deterministic worlds with four moves on a grid, whose states are (row, col, flags).

    The flags say what the agent has done besides moving, for example whether it carries a key.
    """

    offers: ClassVar[frozenset[Offer]] = frozenset({"cells", "drawing"})

    def described(self) -> dict[str, Any]:
        """Return what determines the world, without its kind, as values that JSON can hold; the world's id is a hash
        of them.
        """
        return self.to_plain()

    @abstractmethod
    def begin(self, rng: np.random.Generator | None = None) -> Session:
        """Begin an episode, and return its session; ``rng`` is not used, since the world is deterministic."""

    def begin_episode(self, seed: int, episode_id: str) -> Session:
        """Begin an episode, and return its session; seed and episode id are not used, since the world is
        deterministic.
        """
        return self.begin()

    def action(self, index: int) -> Action:
        """Return the move with an index.

        Raises:
            ValueError: if the index is not a whole number from 0 to 3.
        """
        return index if type(index) is Action else ACTIONS[check_whole("an action", index, 0, most=len(ACTIONS) - 1)]

    def check_state(self, state: Any) -> State:
        """Check a state (row, col, flags) that was read from a file, and return it as a `State`.

        Raises:
            ValueError: if the cell lies outside the grid, or the flags are invalid.
        """
        row, col, flags = state
        grid, most = self.grid, flag_count(self.grid) - 1
        if not isinstance(row, int) or not isinstance(col, int) or not isinstance(flags, int) or not 0 <= flags <= most:
            raise ValueError(
                f"a stored state must be row, col and flags from 0 to {most}, got {row!r}, {col!r} and {flags!r}"
            )
        return state_with(int(flags), check_inside((int(row), int(col)), grid.walls.shape, "position"))


@dataclass(frozen=True, kw_only=True)
class GridWorld(PlanarWorld):
    """A grid as a world: an agent walks from start to goal by four moves, with or without fog.

    Attributes:
        grid: the whole grid, with start and goal, without fog.
        fog_radius: radius of sight in steps, None for a fully observed world.
        cluster: id of the group of related worlds that intervals count as one unit, see `World`.
        tags: named facts about the world, by which results are grouped, see `World`.

    Raises:
        ValueError: if the grid shows no agent or no goal, its agent carries something or stands on a thing, or it has
            too many things.
    """

    kind: ClassVar[str] = "grid"
    view: ClassVar[type[View]] = GridView
    offers: ClassVar[frozenset[Offer]] = PlanarWorld.offers | {"grid", "seen state"}
    grid: Grid
    fog_radius: int | None = None

    def __post_init__(self) -> None:
        if self.grid.start is None or self.grid.goal is None:
            missing = "agent (A)" if self.grid.start is None else "goal (G)"
            raise ValueError(
                f"a world must show its agent and its goal, got a grid without its {missing}:\n{self.grid}"
            )
        flag_count(self.grid)  # refuses too many things
        if self.grid.held or any(cell == self.grid.start for cell, _ in self.grid.things):
            raise ValueError(
                "a world must begin with an agent that carries nothing and stands on no thing, since the text of the "
                "grid shows neither: start elsewhere"
            )

    def begin(self, rng: np.random.Generator | None = None) -> GridSession:
        """Begin an episode, and return its session; ``rng`` is not used, since grids are deterministic."""
        return GridSession(
            self._start_node(), None if self.fog_radius is None else Fog.start(self.grid, self.fog_radius)
        )

    def drawing(self, state: Any) -> Drawing:
        """Return the data for a picture of the whole grid in a state."""
        return drawn(shown(self.grid, state))

    def _start_node(self) -> _StateNode:
        node = _start_nodes.get(self.id)
        if node is None:
            node = _start_nodes[self.id] = _StateNode(self.grid, initial_state(self.grid), {})
        return node

    @property
    def stored(self) -> str:
        """The grid as text, as a run stores it; the radius of sight is stored in a separate column."""
        return self.grid.render()

    def to_plain(self) -> dict[str, Any]:
        """Return the grid as text, and the radius of sight, as values that JSON can hold."""
        return {"grid": self.grid.render(), "fog_radius": self.fog_radius}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values of `to_plain`, with its ``cluster`` and ``tags`` as in `World`."""
        return cls(grid=Grid.parse(plain["grid"]), fog_radius=plain["fog_radius"], cluster=cluster, tags=tags or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class WordedView(GridView):
    """What an agent sees of a grid, shown in another wording of the prompt than the agent's default.

    Attributes:
        wording: name of the wording, one of `goalscope.agents.prompts.WORDINGS`.
    """

    wording: str

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return what the agent is shown, as values that JSON can hold: those of `GridView.journalled`, and the
        wording.
        """
        return [*GridView.journalled(self, history), self.wording]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedView(GridView):
    """What an agent sees of a grid whose instruction names a target: the usual symbol G, or a cell.

    Attributes:
        named: the cell (row, col) that the instruction names, None if it names G.
    """

    shows: ClassVar[str] = "a grid with an instruction"
    named: Position | None = None

    @property
    def aim(self) -> str:
        """The target in the words of the instruction: ``G``, or ``the cell (3,5)``."""
        return GOAL if self.named is None else f"the cell ({self.named[0]},{self.named[1]})"

    def fields(self) -> Mapping[str, str]:
        """Return what prompt templates can insert: the fields of any grid (see `GridView.fields`), and "aim", the
        target.
        """
        return {**GridView.fields(self), "aim": self.aim}

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return what the agent is shown, as values that JSON can hold: those of `GridView.journalled`, and the
        target.
        """
        return [*GridView.journalled(self, history), self.aim]


@dataclass(frozen=True, kw_only=True)
class NamedWorld(GridWorld):
    """A grid whose instruction can name a cell as the target, to see whether an agent goes there or to the symbol G.

    The episode ends at the target. G may stand on another cell, so that the two differ.

    Attributes:
        grid: the grid; its goal is the target.
        marker: cell of the symbol G; by default the target.
        named: whether the instruction names the target by its cell. Otherwise the target is G.
        fog_radius: always None, since these worlds have no fog.
        cluster: id of the group of related worlds that intervals count as one unit, see `World`.
        tags: named facts about the world, by which results are grouped, see `World`.

    Raises:
        ValueError: if G lies on a wall or on the agent, the target is neither named nor G, or the grid has a key, a
            door or fog.
    """

    kind: ClassVar[str] = "named-place"
    view: ClassVar[type[View]] = NamedView
    offers: ClassVar[frozenset[Offer]] = PlanarWorld.offers | {"grid"}
    marker: Position | None = None
    named: bool = True

    def __post_init__(self) -> None:
        GridWorld.__post_init__(self)
        if self.marker is None:
            object.__setattr__(self, "marker", self.grid.goal)
        grid = self.grid
        if self.fog_radius is not None or grid.key is not None or grid.door is not None or grid.things:
            raise ValueError(
                "a world that names its target must be a grid without fog, key or door, and without things: leave "
                "these out"
            )
        if not self.named and self.marker != self.grid.goal:
            raise ValueError(
                f"the goal {self.grid.goal} is not at the marker G, {self.marker}, so the instruction must name it: "
                "set named=True"
            )
        object.__setattr__(self, "marker", self.drawn.goal)  # `Grid` checks the marker as it checks a goal

    @cached_property
    def drawn(self) -> Grid:
        """The grid as the agent sees it at the start, with the symbol G at the cell `marker`."""
        return self.grid.at(goal=self.marker)

    def begin(self, rng: np.random.Generator | None = None) -> GridSession:
        """Begin an episode, which ends at the target, and return its session; ``rng`` is not used (the world is
        deterministic).
        """
        return GridSession(self._start_node(), None, self._instructed)

    def _instructed(self, view: GridView) -> NamedView:
        """Return a view with the symbol G at its cell, and the instruction."""
        at = view.grid.start
        marked = view.grid.at(goal=None if at == self.marker else self.marker)
        return NamedView(grid=marked, named=self.grid.goal if self.named else None)

    # Unlike plain grids, whose older form has no kind, worlds with a named target are described with their kind.
    described, stored = World.described, World.stored

    def to_plain(self) -> dict[str, Any]:
        """Return the grid as text with the target as its goal, the cell of G, and whether the target is named, for
        storing.
        """
        return {"grid": self.grid.render(), "marker": list(self.marker or ()), "named": self.named}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values that `to_plain` stored.

        Args:
            plain: the stored values.
            cluster: id of the grid that intervals count as one independent unit.
            tags: named facts about the world, which reports group by.

        Raises:
            ValueError: if keys are missing or unknown, or a value is invalid.
        """
        values = read_plain(plain, "a world with a named place", grid=str, marker=list, named=bool)
        grid = Grid.parse(values["grid"])
        marker = grid.check_cell(values["marker"], "marker")
        return cls(grid=grid, marker=marker, named=values["named"], cluster=cluster, tags=tags or {})
