"""What a world can be drawn by, in a few forms that any viewer knows: cells, labels on them, a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goalscope.worlds.grid import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture of one moment. A world that offers none is shown by the text of its view.

    Attributes:
        rows: a text for each row of cells, a symbol for each cell: ``#`` wall, ``_`` open, ``*`` hidden, ``G`` goal,
            ``K`` key, ``D`` door, as in `goalscope.worlds.grid`; others are shown as they are.
        agent: cell of the agent, (row, col); None where there is none.
        labels: names on cells, each (row, col, name).
        nodes: names of the nodes of a graph, each with a word on its state, "" for none.
        edges: arrows of the graph, each (from, to).

    Raises:
        ValueError: rows of different lengths, an agent or a label outside of them, an edge between unknown nodes.
    """

    rows: tuple[str, ...] = ()
    agent: Position | None = None
    labels: tuple[tuple[int, int, str], ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len({len(row) for row in self.rows}) > 1:
            raise ValueError(f"rows of a drawing must have one length, got {sorted({len(row) for row in self.rows})}")
        width = len(self.rows[0]) if self.rows else 0
        cells = [*([self.agent] if self.agent is not None else []), *((row, col) for row, col, _ in self.labels)]
        outside = [cell for cell in cells if not (0 <= cell[0] < len(self.rows) and 0 <= cell[1] < width)]
        if outside:
            raise ValueError(f"agent and labels must lie on the {len(self.rows)}x{width} cells, got {outside[0]}")
        unknown = [name for edge in self.edges for name in edge if name not in self.nodes]
        if unknown:
            raise ValueError(f"an edge of a drawing must join two of its nodes, got {unknown[0]!r}: add it to nodes")
