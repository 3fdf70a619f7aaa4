"""The worked examples of the stale score: walks and the counts that the paper prints for each of their steps.

Source: measuring exploration and exploitation errors, Appendix B, Tables 4 to 9.
"""

from itertools import pairwise

from goalscope.measures.exploration import StaleScore

Row = tuple[tuple[int, int], int, int, int, int]
TABLES: dict[int, list[Row]] = {
    4: [((-1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((-1, 0), 0, 0, 0, 0)],
    5: [((-1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((1, 0), 0, 0, 0, 0), ((0, 0), 0, 0, 0, 0), ((0, 1), 0, 0, 0, 0)],
    6: [
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 1, 1, 2),
        ((1, 0), 0, 2, 1, 3),
    ],
    7: [
        ((-1, -1), 0, 0, 0, 0),
        ((0, -1), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((-1, 0), 0, 0, 0, 0),
        ((-1, -1), 1, 0, 0, 1),
        ((0, -1), 1, 0, 0, 1),
        ((0, 0), 1, 0, 0, 1),
        ((-1, 0), 1, 0, 0, 1),
        ((-1, -1), 1, 0, 1, 2),
    ],
    8: [
        ((0, 0), 0, 0, 0, 0),
        ((0, 1), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((0, -1), 0, 0, 0, 0),
        ((0, 0), 0, 0, 1, 1),
        ((0, 1), 0, 1, 1, 2),
        ((0, 0), 0, 2, 2, 4),
        ((0, -1), 0, 3, 2, 5),
    ],
    9: [
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((1, 0), 0, 0, 0, 0),
        ((1, 1), 0, 0, 0, 0),
        ((1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 0, 0, 0),
        ((-1, 0), 0, 0, 0, 0),
        ((0, 0), 0, 1, 1, 2),
        ((0, 1), 0, 1, 1, 2),
    ],
}
"""Number of the table -> for t = 0, 1, 2, ...: cell p(t) as (x, y), and the printed c, e, n and S."""


def counted(table: int) -> list[tuple[int, int, int, int]]:
    """Return c, e, n and S of each step of a table's walk, computed."""
    cells = [row[0] for row in TABLES[table]]
    number = {cell: at for at, cell in enumerate(dict.fromkeys(cells))}
    score = StaleScore(number[cells[0]])
    found = [(score.loops, score.edge_reuse, score.cell_reuse, score.total)]
    for before, after in pairwise(cells):
        score.move(number[before], number[after])
        found.append((score.loops, score.edge_reuse, score.cell_reuse, score.total))
    return found
