"""The stale score of a stretch without progress: loops closed, edges and cells used more than twice.

Source: measuring exploration and exploitation errors, Section 4: c_t = |E| - |V| + 1, e_t = sum over edges of
max(m(e) - 2, 0), n_t = sum over cells of max(m(v) - 2, 0), S_t = c_t + e_t + n_t. Edges are undirected; the cell where
the stretch begins counts as visited once.
"""

from collections.abc import Hashable


class StaleScore:
    """c, e and n of one stretch, kept up to date with a few look-ups a move.

    Args:
        start: the cell where the stretch begins; cells may be anything that can be hashed and compared.

    Attributes:
        loops: c, the cyclomatic number.
        edge_reuse: e, traversals of edges beyond the second.
        cell_reuse: n, visits of cells beyond the second.
    """

    __slots__ = ("_edges", "_visits", "cell_reuse", "edge_reuse", "loops")

    def __init__(self, start: Hashable) -> None:
        self._visits: dict[Hashable, int] = {start: 1}
        self._edges: dict[Hashable, int] = {}
        self.loops = self.edge_reuse = self.cell_reuse = 0

    @property
    def total(self) -> int:
        """S, the stale score."""
        return self.loops + self.edge_reuse + self.cell_reuse

    def would_rise(self, here: int, there: int) -> bool:
        """Return whether a move would raise the score."""
        visits = self._visits.get(there, 0)
        edge = self._edges.get((here, there) if here < there else (there, here), 0)
        return visits >= 2 or edge >= 2 or (visits > 0 and edge == 0)

    def move(self, here: int, there: int) -> bool:
        """Count a move and return whether the score rose."""
        edge = (here, there) if here < there else (there, here)
        traversals, visits = self._edges.get(edge, 0), self._visits.get(there, 0)
        self._edges[edge] = traversals + 1
        self._visits[there] = visits + 1
        rose = False
        if not traversals and visits:
            self.loops += 1
            rose = True
        if traversals >= 2:
            self.edge_reuse += 1
            rose = True
        if visits >= 2:
            self.cell_reuse += 1
            rose = True
        return rose
