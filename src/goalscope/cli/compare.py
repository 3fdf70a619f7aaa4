"""`goalscope compare`: agents and runs on the worlds that they share."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.words import counted
from goalscope.cli.console import progress, say, show, table
from goalscope.cli.front import comparing
from goalscope.cli.front.comparing import compare_places
from goalscope.cli.overrides import split, split_names
from goalscope.measures.comparison import LEVEL, Compared
from goalscope.report.blocks import Table, number
from goalscope.report.comparison import as_json, comparison_table, grids_table, varying_tags
from goalscope.report.exports import write
from goalscope.report.figures import as_csv
from goalscope.report.pairings import ComparisonSettings, RunComparison
from goalscope.runs.probing_config import check_margin


def _write(files: Mapping[str, Path | None], records: Sequence[Mapping[str, Any]], **metadata: Any) -> None:
    """Write the records to files by kind, "json" and "csv"; None for no file."""
    for kind, path in files.items():
        if path is not None:
            Folder(path.parent).make()
            text = as_json(records, **metadata) if kind == "json" else as_csv(records)
            NamedFile(path).save_text(text)
            say(f"written: {path}", error=True)


def agents_of(text: str | None) -> list[str]:
    """Return the names of agents, separated as those of `goalscope run`; for None an empty list, which means all."""
    names = [] if text is None else split_names(text)
    if text is not None and not names:
        raise ValueError("--agents must name at least one agent, got none: leave it out for all")
    return names


def margins_of(text: str | None) -> dict[str, float]:
    """Return equivalence margins by measure from ``success=0.1;action accuracy=0.05``; none for None."""
    margins: dict[str, float] = {}
    if text is None:
        return margins
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
        if not measure or measure in margins or math.isnan(margin):
            raise ValueError(
                f"--margin must be MEASURE=NUMBER, each measure once, separated by ';', got {part!r}: "
                "e.g. --margin 'success=0.1;action accuracy=0.05'"
            )
        margins[measure] = check_margin(measure, margin)
    return margins


def where_of(text: str | None) -> dict[str, list[str]]:
    """Return tags and their values from ``head=linear;head=mlp;control=none``; none for None."""
    chosen: dict[str, list[str]] = {}
    for part in split(text or "", separator=";"):
        tag, separator, value = (side.strip() for side in part.partition("="))
        if not (tag and separator and value):
            raise ValueError(
                f"--where must be TAG=VALUE, separated by ';', a tag again for a further value, got {part!r}: e.g. "
                "--where 'head=linear;control=none'"
            )
        chosen.setdefault(tag, []).append(value)
    return chosen


def compare(paths: Sequence[Path], settings: ComparisonSettings, files: Mapping[str, Path | None]) -> None:
    """Print paired comparisons, a table for each family; of evaluations first what each model is after."""
    found = compare_places(paths, settings, progress)
    if found.findings:
        columns = ("model", "evaluation", "worlds", "answer", "finding")
        table(columns, [tuple(one[name] for name in columns) for one in found.findings], title="What each is after")
    for name, family in found.named:
        for note in family.notes:
            say(note, error=True)
        for shown in _tables(name, family, transforms=settings.transforms, directed=found.directed.get(name) is family):
            show(shown)
        if (alike := _alike(family.pairs)) and not settings.transforms:
            say(f"all at {alike}")
        if family.without:
            say(f"no worlds in common: {'; '.join(family.without)}")
        if family.alone:
            say(family.alone)
    for arm, why in found.left_out.items():
        say(f"{arm}: {why}", error=True)
    sizes = [counted(len(family.pairs), "test") for _, family in found.named]
    size = f"{sizes[0]} an agent" if settings.transforms else ", ".join(sizes)
    measures = list(dict.fromkeys(name for _, family in found.named for name in family.measures))
    findings = {"findings": list(found.findings)} if found.findings else {}
    _write(files, found.records, level=found.level, family=size, measures=measures, **findings)


def _tables(name: str, family: RunComparison, *, transforms: bool, directed: bool) -> list[Table]:
    """Return the tables of a family under their titles."""
    if transforms:
        size = counted(len(family.pairs), "test")
        title = f"{name}: transformed − original, paired by grid, a family of {size}"
        grids = f"{name}: differences of single grids, a family of {size}"
        return [comparison_table(family.pairs, caption=title), grids_table(family.pairs, caption=grids)]
    single = len(family.pairs) == 1
    words = "a family of 1 test" if single else f"p (Holm) corrected for all {len(family.pairs)} tests of this table"
    what = "goal-directedness, MEG towards the goal, in nats an episode. " if directed else ""
    title = f"{f'{name}: ' if name else ''}{what}Paired by grid on common worlds; {words}"
    return [comparison_table(family.pairs, caption=title)]


def places_of(text: str | None) -> list[float]:
    """Return the numbers of checkpoints, separated by commas; none for None."""
    try:
        places = [float(part) for part in split(text or "", separator=",")]
    except ValueError:
        places = [math.nan]
    if not all(map(math.isfinite, places)) or (text is not None and not places):
        raise ValueError(
            f"--at must be a number for each run, separated by commas, got {text!r}: e.g. --at 0,1000,4000"
        )
    return places


def compare_checkpoints(
    paths: Sequence[Path],
    settings: ComparisonSettings,
    files: Mapping[str, Path | None],
    *,
    over: str,
    places: Sequence[float],
    svg: Path | None,
) -> None:
    """Print the curve of checkpoints over training, and draw it where a file is named."""
    if settings.between or settings.margin:
        raise ValueError("a curve over training must come without --between and --margin: leave out one")
    found = comparing.compare_checkpoints(paths, settings, over=over, places=places, stage=progress)
    for note in found.notes:
        say(note, error=True)
    show(found.table, f"By {found.over}, in the worlds that all met; p corrected for {counted(found.tests, 'test')}")
    if svg is not None:
        Folder(svg.parent).make()
        write(found.figure, svg)
        say(f"written: {svg}", error=True)
    measures = list(dict.fromkeys(one.measure for one in found.checkpoints))
    _write(files, found.records, level=LEVEL, family=counted(found.tests, "test"), measures=measures)


def _alike(comparisons: Sequence[Compared]) -> str:
    """Return the tags that all comparisons share, in words."""
    varying = set(varying_tags(comparisons))
    return ", ".join(
        f"{name} {number(value)}"
        for one in comparisons[:1]
        for name, value in one.tags.items()
        if name not in varying and value != ""
    )
