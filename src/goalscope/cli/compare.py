"""`goalscope compare`: agents and runs on the worlds that they share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goalscope.cli.console import say, table
from goalscope.cli.measuring import measured_rows
from goalscope.cli.overrides import split_names
from goalscope.measures.invariance import compare_transforms
from goalscope.report.blocks import Plain, counted
from goalscope.report.comparison import (
    LEVEL,
    as_csv,
    as_json,
    comparison_records,
    comparison_table,
    contrast_records,
)
from goalscope.report.run_comparison import ComparisonSettings, agents_among, check_known, compare_runs
from goalscope.report.sections.invariance import grids_table, in_order, means_table
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


def agents_of(text: str | None) -> list[str]:
    """Return the names of agents, separated as those of `goalscope run`; none, which stands for all, for None.

    Raises:
        ValueError: a text without a name.
    """
    names = [] if text is None else split_names(text)
    if text is not None and not names:
        raise ValueError("--agents must name at least one agent, got none: leave it out for all")
    return names


def margins_of(text: str | None) -> dict[str, float]:
    """Return equivalence margins by measure from ``success=0.1;action accuracy=0.05``; none for None.

    Raises:
        ValueError: a text without a margin, a part that is no MEASURE=NUMBER, a measure twice, or a margin that is not
            above 0.
    """
    found: dict[str, float] = {}
    if text is None:
        return found
    if not text.strip("; "):
        raise ValueError("--margin must name at least one margin, got none: e.g. --margin 'success=0.1'")
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


def compare(paths: Sequence[Path], settings: ComparisonSettings, files: Files) -> None:
    """Print the paired comparison of runs, or of the agents of one run.

    Args:
        paths: the runs.
        settings: what is to be compared.
        files: where the numbers are written, too.

    Raises:
        ValueError: a run twice, unknown measures or agents, runs without common worlds or with other horizons there,
            nothing to compare.
    """
    if len({path.resolve() for path in paths}) != len(paths):
        raise ValueError(f"runs that are compared must be different, got {', '.join(map(str, paths))}")
    runs = [(path, measured_rows(path)) for path in paths]
    found = compare_runs(runs, settings)
    for note in found.notes:
        say(note, error=True)
    tests = len(found.pairs)
    family = f"p (Holm) corrected for all {tests} tests of this table" if tests > 1 else "a family of 1 test"
    _show(comparison_table(found.pairs), f"Paired by grid on common worlds; {family}")
    if found.without:
        say(f"no worlds in common: {'; '.join(found.without)}")
    if found.alone:
        say(found.alone)
    records, size = comparison_records(found.pairs), counted(tests, "test")
    files.write(records, level=LEVEL, family=size, measures=found.measures)


def compare_versions(paths: Sequence[Path], settings: ComparisonSettings, files: Files) -> None:
    """Print each agent of one run under each transform against itself on the original grids.

    The family and its margins are those that the study of the run declares, unless measures or margins are named.

    Args:
        paths: one run.
        settings: what is to be compared.
        files: where the numbers are written, too.

    Raises:
        ValueError: several runs, no declared family, unknown measures or agents, no transforms.
    """
    if len(paths) != 1:
        raise ValueError(f"--transforms compares the versions of one run's grids, got {len(paths)} runs")
    path = paths[0]
    with Store(path) as store:
        study = store.study()
        listed = store.agent_names() if study else []
    declared = study.analysis.invariance if study and study.analysis else None
    if not settings.margin and settings.measures is None:
        if declared is None:
            raise ValueError(
                f"a family of tests must be declared, but the study of {path} declares no analysis: invariance, and "
                "no measures are named: --measures 'success;action accuracy', or --margin 'success=0.1'"
            )
        settings = replace(settings, margin=dict(declared.margin))
    elif declared is not None:
        say("family and margins as given here, not as the study declared them before the data", error=True)
    names = settings.family(())
    rows = measured_rows(path)
    check_known(path, rows, names, settings)
    wanted = sorted(
        agents_among(rows, settings.agents, str(path)),
        key=lambda name: listed.index(name) if name in listed else len(listed),
    )
    kept = rows.where(rows.among("agent", wanted))
    level = declared.level if declared is not None else LEVEL
    found = in_order(compare_transforms(kept, margin=settings.margin, measures=names, level=level), wanted)
    size = counted(len(found) // len(wanted), "test")
    for agent in wanted:
        mine = [one for one in found if one.agent == agent]
        _show(means_table(mine), f"{agent}: transformed − original, paired by grid, a family of {size}")
        _show(grids_table(mine), f"{agent}: differences of single grids, a family of {size}")
    files.write(contrast_records(found), level=level, family=f"{size} an agent", measures=names)


def _show(plain: Plain, title: str) -> None:
    """Print a table and the notes below it."""
    table(plain.headings, plain.rows, title=title, numbers=plain.numbers)
    for line in plain.notes:
        say(line)
