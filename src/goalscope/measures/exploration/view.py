"""What holds between two events of progress: the case, the targets, and which moves lead nearer to one of them.

Source: measuring exploration and exploitation errors, Table 1 and Eq. (6).
"""

from typing import Literal

from goalscope.worlds.tasks.board import Board, flags, indices

Distances = Literal["known", "map", "observed"]
"""Where shortest paths run: over observed and unobserved cells (default), over the whole map, or over observed cells
with a last move into a target."""

DISTANCES: tuple[Distances, ...] = ("known", "map", "observed")

EXPLORATION_CASES, EXPLOITATION_CASES = frozenset({1, 4}), frozenset({2, 3, 4})
"""The cases whose steps call for exploration, and those whose steps call for exploitation (4 for either)."""


class View:
    """The state of knowledge between two events of progress, as it was; later steps do not change it.

    Args:
        board: the numbering of the cells.
        unobserved: the set U.
        pending: cells of the pending nodes, P.
        goal: cell of the goal where it is pending, else -1.
        known: cells that shortest paths may use.
        through: cells that a path may pass through; the cells of ``known`` beside them can only end one.

    Attributes:
        case: 1 to 4; 0 where nothing is left to explore or to exploit, which no task map allows.
        targets: the set T.
        count: |T|.
    """

    __slots__ = (
        "_fields",
        "_levels",
        "_nearer",
        "board",
        "case",
        "count",
        "known",
        "pending",
        "targets",
        "through",
        "unobserved",
    )

    def __init__(self, board: Board, unobserved: int, pending: int, goal: int, known: int, through: int) -> None:
        self.board = board
        self.unobserved = unobserved
        self.pending = pending
        if goal >= 0:
            self.case, self.targets = 2, 1 << goal
        elif not pending:
            self.case, self.targets = (1 if unobserved else 0), unobserved
        elif unobserved:
            self.case, self.targets = 4, unobserved | pending
        else:
            self.case, self.targets = 3, pending
        self.count = self.targets.bit_count()
        self.known = known
        self.through = through
        self._nearer: dict[tuple[int, int], bool] = {}
        self._levels = 0
        self._fields: list[list[int]] | None = None

    def gain(self, here: int, there: int) -> bool:
        """Return whether a move enters a target or leads nearer to at least one of them.

        Args:
            here, there: indices of neighbouring cells.
        """
        if self.targets >> there & 1:
            return True
        key = (here, there)
        known = self._nearer.get(key)
        if known is None:
            known = self._nearer[key] = self._search(here, there)
        return known

    def progress(self, there: int) -> bool:
        """Return whether entering a cell is an event of progress."""
        return bool((self.unobserved | self.pending) >> there & 1)

    def _search(self, here: int, there: int) -> bool:
        """Grow a ball around either cell until it is decided for each target which of them is nearer to it.

        Balls grow by shifts of whole sets. Where searches of this view have cost more than one distance field a target
        would, the fields are made instead.
        """
        observed = self.through >> there & 1
        if observed and self._fields is None and self._levels > self.count * self.board.cells.bit_count() // 4:
            self._make_fields()
        if observed and self._fields is not None:
            return any(field[there] >= 0 and (field[there] < field[here] or field[here] < 0) for field in self._fields)
        board, known, through = self.board, self.known, self.through
        width, within = board.width, through != known
        near, away = 1 << there, 1 << here  # cells at most `radius` moves from either end
        left = self.targets
        passable = through | near | away
        while True:
            left &= ~away
            if left & near:
                return True
            if not left:
                return False
            self._levels += 1
            one, two = (near & passable, away & passable) if within else (near, away)
            near_next = near | ((one << 1 | one >> 1 | one << width | one >> width) & known)
            away_next = away | ((two << 1 | two >> 1 | two << width | two >> width) & known)
            if near_next == near and away_next == away:
                return False
            near, away = near_next, away_next

    def _make_fields(self) -> None:
        board = self.board
        if self.through == self.known:
            passable = flags(self.known, board.size)
            self._fields = [board.field(passable, target) for target in indices(self.targets)]
            return
        fields = []
        for target in indices(self.targets):
            passable = flags(self.through | 1 << target, board.size)
            fields.append(board.field(passable, target))
        self._fields = fields
