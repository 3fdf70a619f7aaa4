"""A stretch without progress: its case, targets, moves nearer to a target, and the stale score.

Source: measuring exploration and exploitation errors, Section 4, Table 1 and Eq. (6).
"""

from collections.abc import Callable, Hashable
from typing import Literal, TypeVar

from goalscope.worlds.tasks._fast import Board, flags, indices
from goalscope.worlds.tasks.world import TaskState

Distances = Literal["known", "map", "observed"]
"""Where shortest paths run: over observed and unobserved cells (default), over the whole map, or over observed cells
with a last move into a target."""

DISTANCES: tuple[Distances, ...] = ("known", "map", "observed")

CASES = {"exploration": frozenset({1, 4}), "exploitation": frozenset({2, 3, 4})}
"""The cases whose steps call for exploration, and those whose steps call for exploitation (4 for either)."""


class MapView:
    """The knowledge between two events of progress; immutable.

    Sets of cells are bits of the board. The case is 1 to 4, 0 where nothing is left to explore or to exploit, which no
    task map allows. Shortest paths use the cells `known` and pass through those of `through`; others can only end one.
    """

    def __init__(
        self,
        board: Board,
        unobserved: int,
        pending: int,
        goals: int,
        known: int,
        through: int,
        progress: Callable[[int], bool] | None = None,
    ) -> None:
        self.board, self.known, self.through = board, known, through
        self.progressing, self._progress = unobserved | pending, progress
        if goals:
            self.case, self.targets = 2, goals
        elif not pending:
            self.case, self.targets = (1 if unobserved else 0), unobserved
        else:
            self.case, self.targets = (4 if unobserved else 3), self.progressing
        self.count = self.targets.bit_count()
        self._nearer: dict[tuple[int, int], bool] = {}
        self._levels = 0
        self._fields: list[list[int]] | None = None

    @classmethod
    def of(cls, knowledge: TaskState, distances: Distances) -> "MapView":
        """Return the current knowledge in a task world."""
        board = knowledge.board
        goals = knowledge.pending_goals
        observed, unobserved, pending = knowledge.observed, knowledge.unobserved, knowledge.pending
        known = through = board.cells if distances == "map" else observed | unobserved
        if distances == "observed":
            through = observed
            known = observed | (goals or unobserved | pending)
        return cls(board, unobserved, pending, goals, known, through)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and all(
            getattr(self, name) == getattr(other, name)
            for name in ("case", "targets", "progressing", "known", "through")
        )

    __hash__ = None  # type: ignore[assignment]

    def gain(self, here: int, there: int) -> bool:
        """Return whether a move between neighbouring cells enters a target or leads nearer to at least one."""
        if self.targets >> there & 1:
            return True
        key = (here, there)
        nearer = self._nearer.get(key)
        if nearer is None:
            nearer = self._nearer[key] = self._search(here, there)
        return nearer

    def progress(self, there: int) -> bool:
        """Return whether entering a cell is an event of progress: by default that of an unobserved or pending one."""
        return bool(self.progressing >> there & 1) if self._progress is None else self._progress(there)

    def _search(self, here: int, there: int) -> bool:
        """Grow a ball around either cell until it is decided for each target which of them is nearer to it.

        Balls grow by shifts of whole sets. Once the searches of this view have cost more than one distance field for
        each target, the fields are computed instead.
        """
        board, known, through = self.board, self.known, self.through
        if through >> there & 1:
            if self._fields is None and self._levels > self.count * board.cells.bit_count() // 4:
                targets = indices(self.targets)
                self._fields = [board.field(flags(through | 1 << target, board.size), target) for target in targets]
            if self._fields is not None:
                return any(field[there] >= 0 and not 0 <= field[here] <= field[there] for field in self._fields)
        near, away = 1 << there, 1 << here  # cells at most `radius` moves from either end
        remaining_targets, passable, within, width = self.targets, through | near | away, through != known, board.width
        while True:
            remaining_targets &= ~away
            if remaining_targets & near:
                return True
            if not remaining_targets:
                return False
            self._levels += 1
            near_sources, away_sources = (near & passable, away & passable) if within else (near, away)
            near_next = (
                near | (near_sources << 1 | near_sources >> 1 | near_sources << width | near_sources >> width) & known
            )
            away_next = (
                away | (away_sources << 1 | away_sources >> 1 | away_sources << width | away_sources >> width) & known
            )
            if near_next == near and away_next == away:
                return False
            near, away = near_next, away_next


_Place = TypeVar("_Place", int, str)


class StaleScore:
    """c, e and n of one stretch without progress, updated with a few look-ups a move.

    c_t = |E| - |V| + 1 is the cyclomatic number, e_t = sum over edges of max(m(e) - 2, 0), n_t = sum over cells of
    max(m(v) - 2, 0), S_t = c_t + e_t + n_t. Edges are undirected; the cell where the stretch begins counts as visited
    once.
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

    def rising(self, board: Board, here: int) -> int:
        """Return the moves from a cell that would raise the score, bit a for move a."""
        rising = 0
        for action, offset in enumerate(board.offsets):
            there = here + offset
            if board.open[there]:
                visits = self._visits.get(there, 0)
                edge = self._edges.get((here, there) if here < there else (there, here), 0)
                if visits >= 2 or edge >= 2 or (visits and not edge):
                    rising |= 1 << action
        return rising

    def move(self, here: _Place, there: _Place) -> bool:
        """Count a move and return whether the score rose."""
        edge = (here, there) if here < there else (there, here)
        traversals, visits = self._edges.get(edge, 0), self._visits.get(there, 0)
        self._edges[edge], self._visits[there] = traversals + 1, visits + 1
        closed, crossed, entered = visits > 0 and not traversals, traversals >= 2, visits >= 2
        self.loops += closed
        self.edge_reuse += crossed
        self.cell_reuse += entered
        return closed or crossed or entered
