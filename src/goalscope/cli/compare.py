"""`goalscope compare`: agents and runs on the worlds that they share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from goalscope.cli.console import say, table
from goalscope.measures.invariance import check_family, compare_transforms
from goalscope.report.comparison import LEVEL, Side, compare_pairs, comparison_table
from goalscope.report.definitions import COMPARED
from goalscope.report.invariance import grids_table, in_order, means_table
from goalscope.report.ledger import CONDITIONS
from goalscope.report.page import check_measured
from goalscope.report.parts import Plain, counted
from goalscope.report.records import as_csv, as_json, comparison_records, contrast_records
from goalscope.report.tasks import PAIRED, on_tasks
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.analysis import check_margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where the numbers of a comparison are written beside the table, None for nowhere."""

    json: Path | None = None
    csv: Path | None = None

    def write(self, records: Sequence[Mapping[str, Any]], **about: Any) -> None:
        """Write the records to the files that were asked for."""
        for path, text in ((self.json, as_json(records, **about)), (self.csv, as_csv(records))):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
                say(f"written: {path}", error=True)


def margins_of(text: str) -> dict[str, float]:
    """Return equivalence margins by measure from ``success=0.1;action accuracy=0.05``.

    Raises:
        ValueError: a part that is no MEASURE=NUMBER, a measure twice, or a margin that is not above 0.
    """
    found: dict[str, float] = {}
    for part in (piece.strip() for piece in text.split(";")):
        if not part:
            continue
        measure, _, number = (side.strip() for side in part.rpartition("="))
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not measure or measure in found or math.isnan(margin):
            raise ValueError(
                f"--margin must be MEASURE=NUMBER, each measure once, separated by ';', got {part!r}: "
                "e.g. --margin 'success=0.1;action accuracy=0.05'"
            )
        found[measure] = check_margin(measure, margin)
    return found


def compare(
    paths: Sequence[Path],
    measures: Sequence[str] | None,
    agents: Sequence[str],
    margin: Mapping[str, float] | None = None,
    files: Files | None = None,
) -> None:
    """Print the paired comparison of runs, or of the agents of one run.

    Args:
        paths: the runs.
        measures: the family of tests, None for the measures of the margins, or success and action accuracy (success,
            both errors and steps of successful episodes for runs in task worlds).
        agents: the agents to compare, all where empty.
        margin: equivalence margin of each measure that has one.
        files: where the numbers are written, too.

    Raises:
        ValueError: a run twice, unknown measures or agents, runs without common worlds, nothing to compare.
    """
    if len({path.resolve() for path in paths}) != len(paths):
        raise ValueError(f"runs that are compared must be different, got {', '.join(map(str, paths))}")
    margin = dict(margin or {})
    if measures is None and not margin:
        measures = list(PAIRED if all(on_tasks(_rows(path)) for path in paths) else COMPARED)
    elif measures is None:
        measures = list(margin)
    if not measures:
        raise ValueError("a comparison needs at least one measure, got none: --measures 'success;action accuracy'")
    check_family(measures, margin)
    runs = [(path, _rows(path)) for path in paths]
    for path, rows in runs:
        _check_known(path, rows, measures)
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
    listed = compare_pairs(shared, measures, margin=margin)
    plain = comparison_table(listed)
    title = f"Paired by grid on common worlds; p (Holm) corrected for all {counted(len(listed), 'test')} of this table"
    _show(plain, title, names=3)
    if without:
        say(f"no worlds in common: {'; '.join(without)}")
    (files or Files()).write(comparison_records(listed), level=LEVEL, family=f"{len(listed)} tests", measures=measures)


def compare_versions(
    paths: Sequence[Path],
    measures: Sequence[str] | None,
    agents: Sequence[str],
    margin: Mapping[str, float] | None = None,
    files: Files | None = None,
) -> None:
    """Print each agent of one run under each transform against itself on the original grids.

    Args:
        paths: one run.
        measures, margin: the family and its margins; None or empty for what the study of the run declares.
        agents: the agents to compare, all where empty.
        files: where the numbers are written, too.

    Raises:
        ValueError: several runs, no declared family, unknown measures or agents, no transforms.
    """
    if len(paths) != 1:
        raise ValueError(f"--transforms compares the versions of one run's grids, got {len(paths)} runs")
    path, rows = paths[0], _rows(paths[0])
    with Store(path) as store:
        study = store.study()
    declared = study.analysis.invariance if study and study.analysis else None
    margins = dict(margin or {})
    if not margins and measures is None:
        if declared is None:
            raise ValueError(
                f"a family of tests must be declared, but the study of {path} declares no analysis: invariance, and "
                "no measures are named: --measures 'success;action accuracy', or --margin 'success=0.1'"
            )
        margins = dict(declared.margin)
    elif declared is not None and (margins or measures is not None):
        say("family and margins as given here, not as the study declared them before the data", error=True)
    names = list(margins) if measures is None else list(measures)
    check_family(names, margins)
    _check_known(path, rows, names)
    there = list(dict.fromkeys(map(str, rows["agent"].tolist())))
    absent = [name for name in agents if name not in there]
    if absent:
        raise ValueError(f"--agents must name agents of {path} ({'; '.join(there)}), got {'; '.join(absent)}")
    wanted = [name for name in there if not agents or name in agents]
    kept = rows.where(np.isin(rows["agent"].astype(str), wanted))
    level = declared.level if declared is not None else LEVEL
    found = in_order(compare_transforms(kept, margin=margins, measures=names, level=level), wanted)
    size = counted(len(found) // len(wanted), "test")
    for agent in wanted:
        mine = [one for one in found if one.agent == agent]
        _show(means_table(mine), f"{agent}: transformed − original, paired by grid, a family of {size}", names=2)
        _show(grids_table(mine), f"{agent}: differences of single grids, a family of {size}", names=2)
    (files or Files()).write(contrast_records(found), level=level, family=f"{size} an agent", measures=names)


def _show(plain: Plain, title: str, *, names: int) -> None:
    """Print a table; its last columns, method and note, become lines below it: they are long and mostly equal."""
    table(plain.headings[:-2], [row[:-2] for row in plain.rows], title=title, numbers=plain.numbers)
    for column, word in ((-2, "Method"), (-1, "Note")):
        lines: dict[str, list[str]] = {}
        for row in plain.rows:
            if row[column]:
                lines.setdefault(row[column], []).append(" ".join(row[:names]))
        for text, where in lines.items():
            shown = "all" if len(where) == len(plain.rows) else ", ".join(where)
            say(f"{word} ({shown}): {text}")


def _check_known(path: Path, rows: Rows, measures: Sequence[str]) -> None:
    known = list(dict.fromkeys(rows.measure.tolist()))
    unknown = [name for name in measures if name not in known]
    if unknown:
        raise ValueError(f"--measures must name measures of {path} ({'; '.join(known)}), got {'; '.join(unknown)}")


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
