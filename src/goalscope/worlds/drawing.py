"""The picture of a world: cells with symbols and labels, or a graph. Every viewer draws it from these few elements."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goalscope.worlds.grid import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture of one moment. Worlds without a drawing are shown by the text of their view.

    Attributes:
        rows: one text per row of cells, with one symbol per cell: ``#`` wall, ``_`` open, ``*`` hidden, ``G`` goal,
            ``K`` key, ``D`` door, as in `goalscope.worlds.grid`; any other symbol is shown unchanged.
        agent: cell of the agent, (row, col); None if the picture shows no agent.
        labels: names written on cells, each (row, col, name).
        nodes: names of the graph's nodes, each with a word for its state ("" for no word).
        edges: arrows of the graph, each (from, to).

    Raises:
        ValueError: the rows differ in length, the agent or a label lies outside of them, or an edge joins unknown
            nodes.
    """

    rows: tuple[str, ...] = ()
    agent: Position | None = None
    labels: tuple[tuple[int, int, str], ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len({len(row) for row in self.rows}) > 1:
            lengths = sorted({len(row) for row in self.rows})
            raise ValueError(f"the rows of a drawing must have the same length, got {lengths}: pad the shorter rows")
        width = len(self.rows[0]) if self.rows else 0
        cells = [*([self.agent] if self.agent is not None else []), *((row, col) for row, col, _ in self.labels)]
        outside = [cell for cell in cells if not (0 <= cell[0] < len(self.rows) and 0 <= cell[1] < width)]
        if outside:
            raise ValueError(f"agent and labels must lie on the {len(self.rows)}x{width} cells, got {outside[0]}")
        unknown = [name for edge in self.edges for name in edge if name not in self.nodes]
        if unknown:
            raise ValueError(f"an edge of a drawing must join two of its nodes, got {unknown[0]!r}: add it to nodes")
