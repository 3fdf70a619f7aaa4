"""The agent's knowledge between two events of progress: case, targets, moves closer to a target, and stale score.

Source: measuring exploration and exploitation errors, Section 4, Table 1 and Eq. (6).
"""

from collections.abc import Callable, Hashable
from typing import Literal, TypeVar

from goalscope.worlds.tasks.taskmap import Board, flags, indices
from goalscope.worlds.tasks.world import TaskState

Distances = Literal["known", "map", "observed"]
"""Cells that shortest paths may use: observed and unobserved ones (default), the whole map, or observed ones with a
last move into a target."""

DISTANCES: tuple[Distances, ...] = ("known", "map", "observed")

CASES = {"exploration": frozenset({1, 4}), "exploitation": frozenset({2, 3, 4})}
"""Cases in which steps call for exploration, and cases in which they call for exploitation (case 4 is both)."""


class MapView:
    """The agent's knowledge between two events of progress (immutable).

    Sets of cells are bit masks of the board. The case is 1 to 4, or 0 if nothing is left to explore or exploit, which
    no task map allows. Shortest paths use the cells in `known` and pass through those in `through`; the rest can only
    end one.
    """

    def __init__(
        self,
        board: Board,
        unobserved: int,
        pending: int,
        goals: int,
        known_cells: int,
        through: int,
        progress: Callable[[int], bool] | None = None,
    ) -> None:
        self.board, self.known, self.through = board, known_cells, through
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
        """Build the view of the current knowledge in a task world."""
        board = knowledge.board
        goals = knowledge.pending_goals
        observed, unobserved, pending = knowledge.observed, knowledge.unobserved, knowledge.pending
        known_cells = through = board.cells if distances == "map" else observed | unobserved
        if distances == "observed":
            through = observed
            known_cells = observed | (goals or unobserved | pending)
        return cls(board, unobserved, pending, goals, known_cells, through)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and all(
            getattr(self, name) == getattr(other, name)
            for name in ("case", "targets", "progressing", "known", "through")
        )

    __hash__ = None  # type: ignore[assignment]

    def gain(self, cell: int, next_cell: int) -> bool:
        """Return whether a move between adjacent cells enters a target or gets closer to at least one."""
        if self.targets >> next_cell & 1:
            return True
        key = (cell, next_cell)
        nearer = self._nearer.get(key)
        if nearer is None:
            nearer = self._nearer[key] = self._search(cell, next_cell)
        return nearer

    def progress(self, next_cell: int) -> bool:
        """Return whether entering a cell is progress: by default, if the cell is unobserved or pending."""
        return bool(self.progressing >> next_cell & 1) if self._progress is None else self._progress(next_cell)

    def _search(self, cell: int, next_cell: int) -> bool:
        """Grow a ball around each of the two cells until it is decided for every target which cell is closer.

        Balls grow by shifting whole sets. Once the searches of this view have cost more than computing the distance
        field of every target, the fields are computed instead.
        """
        board, known_cells, through = self.board, self.known, self.through
        if through >> next_cell & 1:
            if self._fields is None and self._levels > self.count * board.cells.bit_count() // 4:
                targets = indices(self.targets)
                self._fields = [board.field(flags(through | 1 << target, board.size), target) for target in targets]
            if self._fields is not None:
                return any(field[next_cell] >= 0 and not 0 <= field[cell] <= field[next_cell] for field in self._fields)
        near, away = 1 << next_cell, 1 << cell  # cells at most `radius` moves from either end
        remaining_targets, passable, within, width = (
            self.targets,
            through | near | away,
            through != known_cells,
            board.width,
        )
        while True:
            remaining_targets &= ~away
            if remaining_targets & near:
                return True
            if not remaining_targets:
                return False
            self._levels += 1
            near_sources, away_sources = (near & passable, away & passable) if within else (near, away)
            near_next = (
                near
                | (near_sources << 1 | near_sources >> 1 | near_sources << width | near_sources >> width) & known_cells
            )
            away_next = (
                away
                | (away_sources << 1 | away_sources >> 1 | away_sources << width | away_sources >> width) & known_cells
            )
            if near_next == near and away_next == away:
                return False
            near, away = near_next, away_next


_Place = TypeVar("_Place", int, str)


class StaleCounter:
    """The counters c, e and n between two events of progress, updated with a few look-ups per move.

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
        """The stale score S."""
        return self.loops + self.edge_reuse + self.cell_reuse

    def rising(self, board: Board, cell: int) -> int:
        """Return a bit mask of the moves from a cell that would raise the score (bit a for move a)."""
        rising = 0
        for action, offset in enumerate(board.offsets):
            next_cell = cell + offset
            if board.open[next_cell]:
                visits = self._visits.get(next_cell, 0)
                edge = self._edges.get((cell, next_cell) if cell < next_cell else (next_cell, cell), 0)
                if visits >= 2 or edge >= 2 or (visits and not edge):
                    rising |= 1 << action
        return rising

    def move(self, place: _Place, next_place: _Place) -> bool:
        """Count a move and return whether the score rose."""
        edge = (place, next_place) if place < next_place else (next_place, place)
        traversals, visits = self._edges.get(edge, 0), self._visits.get(next_place, 0)
        self._edges[edge], self._visits[next_place] = traversals + 1, visits + 1
        closed, crossed, entered = visits > 0 and not traversals, traversals >= 2, visits >= 2
        self.loops += closed
        self.edge_reuse += crossed
        self.cell_reuse += entered
        return closed or crossed or entered
