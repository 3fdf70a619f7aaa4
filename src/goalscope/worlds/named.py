"""Grids in which the instruction names the place to go to: the goal's cell, or another one as far away.

Whether an agent that does not come to the goal is unable or unwilling, its failures do not tell. Here the same grid is
given with the usual instruction ("to G"), with the goal's cell in words ("to the cell (3,5)"), and with the cell of a
rival place in words. The goal of the world is the place that is named: there the episode ends, and to it lead the
shortest paths. What is drawn as G stays where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from goalscope.ids import canonical_json
from goalscope.rows import Tag
from goalscope.worlds.dynamics import State, initial_state, shown, step
from goalscope.worlds.grid import GOAL, Grid, Position
from goalscope.worlds.gridworld import GridView, GridWorld
from goalscope.worlds.world import Session, View


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedView(GridView):
    """A grid, and the place that the instruction names.

    Attributes:
        named: the cell that is named in words, None where the instruction says G.
    """

    shows: ClassVar[str] = "a grid with an instruction"
    named: Position | None = None

    @property
    def aim(self) -> str:
        """The place to go to as the instruction calls it: ``G``, or ``the cell (3,5)``."""
        return GOAL if self.named is None else f"the cell ({self.named[0]},{self.named[1]})"

    def fields(self) -> Mapping[str, str]:
        """Return what a template of a grid can show, and the place to go to."""
        return {**GridView.fields(self), "aim": self.aim}

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return what is seen and done as on any grid, and the place to go to."""
        return [*GridView.journalled(self, history), self.aim]


class NamedSession(Session):
    """An episode that ends at the place that is named."""

    def __init__(self, world: "NamedWorld") -> None:
        self._world, self._state = world, initial_state(world.grid)

    @property
    def view(self) -> NamedView:
        """The grid with G where it is drawn, and the instruction."""
        place = self._world.grid.goal if self._world.named else None
        return NamedView(grid=shown(self._world.drawn, self._state), named=place)

    @property
    def state(self) -> State:
        """Where the agent is."""
        return self._state

    @property
    def done(self) -> bool:
        """Whether the place is reached."""
        return self._state.position == self._world.grid.goal

    solved = done

    def step(self, action: int | None) -> None:
        """Take a move; a turn without one changes nothing."""
        if action is not None:
            self._state = step(self._world.grid, self._state, action)


@dataclass(frozen=True, kw_only=True)
class NamedWorld(GridWorld):
    """A grid whose goal is the place that the instruction asks for.

    Attributes:
        grid: the grid; its goal is the place to come to.
        marker: the cell where G is drawn; the goal itself by default.
        named: whether the instruction names the place by its cell. Without it, the place is G.
        fog_radius: none.
        cluster, tags: as in `World`.

    Raises:
        ValueError: G on a wall or on the agent, a place that is neither G nor named, a key, a door or fog.
    """

    kind: ClassVar[str] = "named-place"
    view: ClassVar[type[View]] = NamedView
    marker: Position | None = None
    named: bool = True

    def __post_init__(self) -> None:
        GridWorld.__post_init__(self)
        if self.marker is None:
            object.__setattr__(self, "marker", self.grid.goal)
        if self.fog_radius is not None or self.grid.key is not None or self.grid.door is not None:
            raise ValueError("a world with a named place must be a grid without fog, key and door: leave them out")
        if not self.named and self.marker != self.grid.goal:
            raise ValueError(
                f"the place to come to must be named or be G, got {self.grid.goal} with G at {self.marker}: set named"
            )
        object.__setattr__(self, "marker", self.drawn.goal)  # checked as the goal of a grid is

    @cached_property
    def drawn(self) -> Grid:
        """The grid as it is shown at the beginning: G at the marker."""
        return self.grid.at(goal=self.marker)

    def begin(self, rng: np.random.Generator | None = None) -> NamedSession:  # type: ignore[override]
        """Begin an episode; nothing is left to chance."""
        return NamedSession(self)

    def described(self) -> dict[str, Any]:
        """Return kind and plain values, whose hash is the id."""
        return {"kind": self.kind, "world": self.to_plain()}

    @property
    def stored(self) -> str:
        """Kind and plain values as JSON."""
        return canonical_json(self.described())

    def to_plain(self) -> dict[str, Any]:
        """Return the grid as text with its goal, the cell of G, and whether the place is named."""
        return {"grid": self.grid.render(), "marker": list(self.marker or ()), "named": self.named}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from its plain values.

        Raises:
            ValueError: other keys, or values that make no such world.
        """
        if not isinstance(plain, Mapping) or set(plain) != {"grid", "marker", "named"}:
            raise ValueError(f"a world with a named place must have grid, marker and named, got {plain!r:.80}")
        marker, named = plain["marker"], plain["named"]
        if not isinstance(marker, list) or len(marker) != 2 or not isinstance(named, bool):
            raise ValueError(f"marker must be [row, col] and named true or false, got {marker!r:.40} and {named!r:.40}")
        if not isinstance(plain["grid"], str):
            raise ValueError(f"the grid of a world must be a text, got {type(plain['grid']).__name__}")
        grid = Grid.parse(plain["grid"])
        return cls(grid=grid, marker=grid.check_cell(marker, "marker"), named=named, cluster=cluster, tags=tags or {})
