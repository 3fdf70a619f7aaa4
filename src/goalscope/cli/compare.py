"""`goalscope compare`: agents and runs on the worlds that they share."""

from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path

import numpy as np

from goalscope.cli.console import say, table
from goalscope.report.comparison import Side, compare_pairs, comparison_table
from goalscope.report.ledger import CONDITIONS
from goalscope.report.page import check_measured
from goalscope.report.parts import counted
from goalscope.rows import Rows
from goalscope.runs import Store


def compare(paths: Sequence[Path], measures: Sequence[str], agents: Sequence[str]) -> None:
    """Print the paired comparison of runs, or of the agents of one run.

    Raises:
        ValueError: a run twice, unknown measures or agents, runs without common worlds, nothing to compare.
    """
    if len({path.resolve() for path in paths}) != len(paths):
        raise ValueError(f"runs that are compared must be different, got {', '.join(map(str, paths))}")
    if not measures:
        raise ValueError("a comparison needs at least one measure, got none: --measures 'success;action accuracy'")
    runs = [(path, _rows(path)) for path in paths]
    for path, rows in runs:
        known = list(dict.fromkeys(rows.measure.tolist()))
        unknown = [name for name in measures if name not in known]
        if unknown:
            raise ValueError(f"--measures must name measures of {path} ({'; '.join(known)}), got {'; '.join(unknown)}")
    pairs = _pairs(_sides(runs, measures, agents))
    if not pairs:
        raise ValueError("a comparison needs two sides, got one agent in one run: name a second run")
    shared = [_shared(first, second) for first, second in pairs]
    without = [f"{first.name} and {second.name}" for first, second in shared if not len(first.rows)]
    if len(without) == len(shared):
        raise ValueError(
            f"what is compared must share worlds, but {'; '.join(without[:5])} have none in common: run both on the "
            "same worlds (same seed, sizes, densities and count in their studies)"
        )
    listed = compare_pairs(shared, measures)
    plain = comparison_table(listed)
    title = f"Paired by grid on common worlds; p (Holm) corrected for all {counted(len(listed), 'test')} of this table"
    table(plain.headings, plain.rows, title=title, numbers=plain.numbers)
    if without:
        say(f"no worlds in common: {'; '.join(without)}")


def _rows(path: Path) -> Rows:
    with Store(path) as store:
        rows = store.rows()
        check_measured(store, rows)
    return rows


def _sides(runs: Sequence[tuple[Path, Rows]], measures: Sequence[str], agents: Sequence[str]) -> list[list[Side]]:
    """Return the sides of each run: its agents, or those that were named."""
    found = []
    names = _run_names([path for path, _ in runs])
    for (path, rows), run_name in zip(runs, names, strict=True):
        kept = rows.where(np.isin(rows.measure.astype(str), list(measures)))
        there = sorted(dict.fromkeys(kept["agent"].tolist()))
        absent = [name for name in agents if name not in there]
        if absent and len(runs) == 1:
            raise ValueError(f"--agents must name agents of {path} ({'; '.join(there)}), got {'; '.join(absent)}")
        wanted = [name for name in there if not agents or name in agents]
        found.append(
            [
                Side(
                    name=name if len(runs) == 1 else f"{run_name}: {name}",
                    rows=kept.where(kept["agent"] == name),
                )
                for name in wanted
            ]
        )
    return found


def _pairs(sides: Sequence[Sequence[Side]]) -> list[tuple[Side, Side]]:
    """Return what is compared: all agents of one run; of several runs the same agent, else every agent with every."""
    if len(sides) == 1:
        return list(combinations(sides[0], 2))
    pairs = []
    for one, other in combinations(sides, 2):
        crossed = list(product(one, other))
        same = [(first, second) for first, second in crossed if _agent(first) == _agent(second)]
        pairs += same or crossed
    return pairs


def _agent(side: Side) -> str:
    return str(side.rows["agent"][0])


def _shared(first: Side, second: Side) -> tuple[Side, Side]:
    """Return both sides with the worlds that they share: the same grid under the same conditions."""
    ours, theirs = _worlds(first.rows), _worlds(second.rows)
    common = set(ours) & set(theirs)
    return (
        Side(name=first.name, rows=first.rows.where(np.array([key in common for key in ours], dtype=bool))),
        Side(name=second.name, rows=second.rows.where(np.array([key in common for key in theirs], dtype=bool))),
    )


def _worlds(rows: Rows) -> list[tuple[object, ...]]:
    columns = [rows.tags[name].tolist() if name in rows.tags else [None] * len(rows) for name in CONDITIONS]
    # A missing transform is the grid as it is; a missing control is the world itself.
    plain = {"transform": "identity", "control": False}
    filled = [
        [plain.get(name) if value is None else value for value in column]
        for name, column in zip(CONDITIONS, columns, strict=True)
        if name != "kind"  # what the grid is called does not make it another world
    ]
    return list(zip(rows.grid_id.tolist(), *filled, strict=True))


def _run_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of the paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
