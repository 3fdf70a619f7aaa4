"""What is worked on one after the other: a line for each hypothesis, or for each draw of one that is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass

from goalscope.measures.goals.asked import GoalSettings
from goalscope.measures.goals.returns import Returns, Unit, episode_returns
from goalscope.measures.table import StepTable
from goalscope.worlds.grid import Grid

Place = tuple[int, Grid, bytes]
"""Number of a world, the grid that stands there, and the cells that are meant: what a rationality curve belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One hypothesis, or one draw of it, with what each episode got under it.

    Attributes:
        name: its name among the masks of the worlds.
        returns: the worlds that it is looked up in; all lines number the worlds alike.
    """

    name: str
    returns: Returns

    def unit(self, number: int) -> Unit:
        """Return a world."""
        return self.returns.units[number]

    def place(self, number: int) -> Place:
        """Return what decides the rationality curve of this line in a world."""
        unit = self.unit(number)
        return number, unit.grid, unit.masks[self.name].tobytes()

    def places(self) -> set[Place]:
        """Return those of all worlds in which the line has a meaning."""
        units = enumerate(self.returns.units)
        return {self.place(number) for number, unit in units if self.name in unit.masks}


def lines_of(
    table: StepTable, asked: GoalSettings, believed: Mapping[str, Grid] | None
) -> tuple[dict[str, tuple[Line, ...]], Returns]:
    """Return the lines of each hypothesis, and the returns that say what became of the episodes.

    Args:
        table: the episodes.
        asked: the hypotheses.
        believed: world id -> grid in its place, for hypotheses that bring no grids of their own.

    Raises:
        ValueError: no hypothesis has a meaning in any world.
    """
    counts = {name: len(asked.drawn[name]) if name in asked.drawn else 1 for name in asked.hypotheses}
    names = {
        name: [f"{name}\n{number}" for number in range(count)] if count > 1 else [name]
        for name, count in counts.items()
    }
    meant = {
        one: draw
        for name in asked.drawn
        if name in names
        for one, draw in zip(names[name], asked.drawn[name], strict=True)
    }
    shared = [one for listed in names.values() for one in listed if one not in meant or meant[one].grids is None]
    cells = {**asked.cells, **{one: draw.cells for one, draw in meant.items()}}
    main = episode_returns(table, shared, utility=asked.utility, believed=believed, cells=cells)
    found = dict.fromkeys(shared, main)
    for one, draw in meant.items():
        if draw.grids is not None:
            found[one] = episode_returns(table, (one,), utility=asked.utility, believed=draw.grids, cells=cells)
    lines = {name: tuple(Line(name=one, returns=found[one]) for one in listed) for name, listed in names.items()}
    if not any(unit.masks for returns in found.values() for unit in returns.units):
        raise ValueError(f"some hypothesis must have a meaning in some world, got {', '.join(asked.hypotheses)}")
    return lines, main
