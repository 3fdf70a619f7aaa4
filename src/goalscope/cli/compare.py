"""The printed result of the command `compare`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goalscope._ground.arguments import OutFile
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.words import counted
from goalscope.cli.console import say, show, table
from goalscope.cli.front.comparing import Comparisons, compare
from goalscope.cli.generator import prints
from goalscope.measures.comparison import LEVEL, Compared
from goalscope.report.blocks import Table, number
from goalscope.report.comparison import as_json, comparison_table, grids_table, varying_tags
from goalscope.report.exports import write
from goalscope.report.figures import as_csv
from goalscope.report.pairings import CheckpointCurve, RunComparison


@prints(compare)
def show_comparisons(
    comparisons: Comparisons, *, transforms: bool, svg: OutFile = None, json: OutFile = None, csv: OutFile = None
) -> None:
    """Compare agents or runs on the worlds they share, with paired differences and one corrected family of tests.

    Args:
        svg: draw the curve over training to this file: .svg, .pdf, .png or .csv.
        json: also write the numbers to this file as JSON.
        csv: also write the numbers to this file as CSV.

    Examples:
        goalscope compare runs/a runs/b --margin 'success=0.1'
        goalscope compare runs/demo --agents 'optimal;random'
        goalscope compare runs/iso --transforms --json iso.json
        goalscope compare runs/early runs/late --at 0,1000 --svg curve.svg
    """
    if svg is not None and comparisons.curve is None:
        raise ValueError("--svg draws a curve over training: add --over TAG or --at NUMBERS")
    if comparisons.curve is not None:
        _show_curve(comparisons.curve, svg)
        measures = list(dict.fromkeys(checkpoint.measure for checkpoint in comparisons.curve.checkpoints))
        _write(
            json,
            csv,
            comparisons.records,
            level=LEVEL,
            family=counted(comparisons.curve.tests, "test"),
            measures=measures,
        )
        return
    if comparisons.findings:
        columns = ("model", "evaluation", "worlds", "answer", "finding")
        table(
            columns,
            [tuple(finding[name] for name in columns) for finding in comparisons.findings],
            title="Goal of each model",
        )
    for name, family in comparisons.named:
        for note in family.notes:
            say(note, error=True)
        for block in _tables(name, family, transforms=transforms, directed=comparisons.directed.get(name) is family):
            show(block)
        if (shared_tags := _alike(family.pairs)) and not transforms:
            say(f"all at {shared_tags}")
        if family.without:
            say(f"no worlds in common: {'; '.join(family.without)}")
        if family.alone:
            say(family.alone)
    for arm, why in comparisons.left_out.items():
        say(f"{arm}: {why}", error=True)
    sizes = [counted(len(family.pairs), "test") for _, family in comparisons.named]
    size = f"{sizes[0]} per agent" if transforms else ", ".join(sizes)
    measures = list(dict.fromkeys(name for _, family in comparisons.named for name in family.measures))
    findings = {"findings": list(comparisons.findings)} if comparisons.findings else {}
    _write(json, csv, comparisons.records, level=comparisons.level, family=size, measures=measures, **findings)


def _write(json: Path | None, csv: Path | None, records: Sequence[Mapping[str, Any]], **metadata: Any) -> None:
    """Write the records to the given files."""
    for path, text in ((json, as_json(records, **metadata)), (csv, as_csv(records))):
        if path is not None:
            Folder(path.parent).make()
            NamedFile(path).save_text(text)
            say(f"written: {path}", error=True)


def _show_curve(curve: CheckpointCurve, svg: Path | None) -> None:
    """Print the curve of the checkpoints over training, and draw it to a file if one is given."""
    for note in curve.notes:
        say(note, error=True)
    show(curve.table, f"By {curve.over}, in worlds that all share; p corrected for {counted(curve.tests, 'test')}")
    if svg is not None:
        Folder(svg.parent).make()
        write(curve.figure, svg)
        say(f"written: {svg}", error=True)


def _tables(name: str, family: RunComparison, *, transforms: bool, directed: bool) -> list[Table]:
    """Return the tables of a family with their titles."""
    if transforms:
        size = counted(len(family.pairs), "test")
        title = f"{name}: transformed − original, paired by grid, a family of {size}"
        grids = f"{name}: differences of single grids, a family of {size}"
        return [comparison_table(family.pairs, caption=title), grids_table(family.pairs, caption=grids)]
    single = len(family.pairs) == 1
    words = "a family of 1 test" if single else f"p (Holm) corrected for all {len(family.pairs)} tests of this table"
    subject = "goal-directedness, MEG towards the goal, in nats per episode. " if directed else ""
    title = f"{f'{name}: ' if name else ''}{subject}Paired by grid on common worlds; {words}"
    return [comparison_table(family.pairs, caption=title)]


def _alike(comparisons: Sequence[Compared]) -> str:
    """Return the tags that have the same value in all comparisons, as text."""
    varying = set(varying_tags(comparisons))
    return ", ".join(
        f"{name} {number(value)}"
        for comparison in comparisons[:1]
        for name, value in comparison.tags.items()
        if name not in varying and value != ""
    )
