"""Files with the results of items, and the table and page that combine all results."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.sealed import SealedRecord, read_sealed
from goalscope._ground.version import __version__
from goalscope._ground.words import counted, listed
from goalscope.papers.answers import word_of
from goalscope.papers.claims import Tested
from goalscope.papers.contract import Term, blocks
from goalscope.papers.item import PAPERS, Item
from goalscope.papers.page import sections
from goalscope.papers.readings import ItemLine, equal_as_printed, in_figures
from goalscope.report import Declared, Group, lay_out, render_page, write_page
from goalscope.report.blocks import Footnotes, Table
from goalscope.stats import Estimate
from goalscope.stats.records import Records

RESULT: Final = "reproduction.json"


class Reproduction(SealedRecord, Records):
    """A reproduced item, as stored in the file `RESULT`.

    Attributes:
        version: version of the file format. Files with another version are not read.
        item, title, note: name, title and note of the item.
        goalscope: version of goalscope.
        key: id of the item's declaration, its scale and the version of goalscope, which determine the result of a run.
        scale: fraction of the published size, 0 if there is none (exact items, logs).
        agents: the agents whose numbers are read; empty for an exact item.
        made_here: whether all agents are models that come with this package.
        declared: what the printed numbers and ours were measured on, field by field.
        lines, claims: the numbers and the tested sentences.
    """

    what: ClassVar[str] = "result of goalscope reproduce"
    advice: ClassVar[str] = "remove it to run again"
    version: Literal[4] = 4
    item: str
    title: str
    note: str
    goalscope: str = __version__
    key: str
    scale: float = Field(ge=0, le=1)
    agents: tuple[str, ...] = Field(max_length=10_000)
    made_here: bool
    declared: tuple[Term, ...] = Field(default=(), max_length=100)
    lines: tuple[ItemLine, ...] = Field(max_length=100_000)
    claims: tuple[Tested, ...] = Field(max_length=100_000)

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per line: label, tag value, printed values by model, our value and interval, n, grids and
        control.
        """
        return [
            {
                "figure": line.label,
                "value": line.value,
                **{f"printed, {model}": value for model, value in line.published.items()},
                **_ends("ours", line.ours),
                **_ends("control", line.control),
                "within": line.within,
                "differs": "; ".join(line.differs),
            }
            for line in self.lines
        ]


def _ends(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return dict.fromkeys((name, f"{name} low", f"{name} high", f"{name} n", f"{name} grids"))
    values = (estimate.value, estimate.low, estimate.high, estimate.n, estimate.clusters)
    return dict(zip((name, f"{name} low", f"{name} high", f"{name} n", f"{name} grids"), values, strict=True))


def key_of(item: Item, scale: float) -> str:
    """Return the id of an item's declaration, its scale and the version of goalscope."""
    basis = {field: list(texts) for field, texts in blocks().get(item.basis, {}).items()}
    return content_id("reproduction", [item.model_dump(mode="json"), basis, float(scale), __version__])


def read_result(folder: Path) -> Reproduction | None:
    """Read the result in a folder; None if there is none.

    Raises:
        ValueError: the file is not a result, or was changed after it was written.
    """
    if not Folder(folder).has_file(RESULT):
        return None
    return read_sealed(Reproduction, Folder(folder).file(RESULT))


def printed_in(lines: Sequence[ItemLine]) -> str:
    """Format the printed values of the lines with one label, by model if there are several, e.g. ``97.3 (7)``."""
    models = list(dict.fromkeys(name for line in lines for name in line.published))
    texts = []
    for model in models:
        values = [(line.published.get(model), line) for line in lines]
        values_text = ", ".join(f"{value}{_at(line)}" for value, line in values if value is not None)
        texts.append(f"{model}: {values_text}" if len(models) > 1 else values_text)
    return "; ".join(filter(None, texts))


def _at(line: ItemLine) -> str:
    return "" if line.value is None else f" ({line.value:g})" if isinstance(line.value, float) else f" ({line.value})"


def overview(results: Mapping[str, Reproduction], items: Mapping[str, Item]) -> tuple[Table, Table]:
    """Build two tables, one of items with printed numbers and one of items without.

    The first table shows printed numbers beside ours, or the reasons why they are not comparable. Items with equal
    rows share them. An empty cell in the first table has the value of the cell above.
    """
    rows, other_rows, notes = list[tuple[str, ...]](), list[tuple[str, ...]](), Footnotes()
    for name, item in items.items():
        result = results.get(name)
        if item.why_not or result is None:
            other_rows.append((name, item.title, "–", f"not reproduced: {item.why_not}" if item.why_not else "not run"))
            continue
        by_label: dict[str, list[ItemLine]] = {}
        for line in result.lines:
            by_label.setdefault(line.label if printed_in([line]) else "", []).append(line)
        drawn = by_label.pop("", [])
        who = f"{item.needs}: {_agents(result, notes)}" if result.agents else "computed"
        for label, lines in by_label.items():
            rows.append((name, label, printed_in(lines), _ours(lines), who, _compared(lines, notes)))
        if drawn or not by_label:
            other_rows.append((name, item.title, item.needs, str(len(drawn)) if drawn else "files"))
    headings = ("item", "what", "printed", "ours [95 %] (n/grids)", "works with: model", "within ours, or reasons")
    return (
        Table(headings=headings, rows=_below(_shared(rows)), notes=notes.lines),
        Table(headings=("item", "what", "works with", "our numbers"), rows=tuple(_shared(other_rows))),
    )


def _shared(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Merge rows that differ only in the item, and name all these items."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in rows:
        names.setdefault(tuple(rest), []).append(name)
    return [(names_together(labels), *rest) for rest, labels in names.items()]


def names_together(names: Sequence[str]) -> str:
    """Join names of items, leaving out words repeated from the previous name, e.g. ``meg figure 3, table epsilon``."""
    texts = list(names[:1])
    for before, name in pairwise(map(str.split, names)):
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(before, name, strict=False))
        shared_count = len(list(shared)) if len(before) == len(name) else 0
        texts.append(" ".join(name[shared_count:]))
    return ", ".join(texts)


def _below(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Blank the item, the model and the reasons of a row if they equal those of the previous row of the same item."""
    lines = list(rows[:1])
    for above, (name, quantity, printed, ours, who, compared) in pairwise(rows):
        if above[0] != name:
            lines.append((name, quantity, printed, ours, who, compared))
        else:
            lines.append(("", quantity, printed, ours, "", "" if compared == above[-1] else compared))
    return tuple(lines)


def _agents(result: Reproduction, notes: Footnotes) -> str:
    """Name the agents and the fraction of the published size. More than two agents go to a footnote."""
    names = listed(list(result.agents))
    who = names if len(result.agents) < 3 else f"{len(result.agents)} agents ({notes.mark(names)})"
    return who + (f", {result.scale:g}" if 0 < result.scale < 1 else "")


def _ours(lines: Sequence[ItemLine]) -> str:
    """Format our numbers in order, with the ranges of n and grids, and mark exact numbers equal to the printed ones."""
    counts = [(ours.n, ours.clusters) for line in lines if (ours := line.ours) and ours.method != "exact"]
    if not counts and all(line.ours is not None and equal_as_printed(line) for line in lines):
        return "as printed"
    sizes = "/".join(f"{min(of)}" if min(of) == max(of) else f"{min(of)}–{max(of)}" for of in zip(*counts, strict=True))
    return ", ".join(map(_number, lines)) + (f" ({sizes})" if sizes else "")


def _number(line: ItemLine) -> str:
    """Format our number with its interval. If the interval is missing, n and grids show why."""
    if line.ours is None:
        return "–"
    return in_figures(line.ours if line.ours.has_interval else replace(line.ours, note=""), line.percent)


def _compared(lines: Sequence[ItemLine], notes: Footnotes) -> str:
    inside = [line.within for line in lines if line.within is not None]
    text = f"{sum(inside)} of {len(inside)}" if inside else ""
    reasons = notes.mark(*(reason for line in lines for reason in line.differs))
    exact = all(line.ours is not None and line.ours.method == "exact" for line in lines)
    if exact and not text and not reasons:
        return f"{sum(map(equal_as_printed, lines))} of {len(lines)} equal"
    return "; ".join(filter(None, (text, reasons))) or "no interval"


def write_all(results: Mapping[str, Reproduction], items: Mapping[str, Item], path: Path) -> Path:
    """Write one page with the table of all items and the content of each item's page, without the reports of runs.

    Raises:
        ImportError: jinja2 is not installed (it comes with the extra ``report``).
        OSError: the page cannot be written.
    """
    groups = []
    for paper, title in PAPERS.items():
        own_sections = [
            section
            for name, result in results.items()
            if name.startswith(f"{paper} ")
            for section in sections(
                items[name],
                result.lines,
                result.claims,
                result.declared,
                result.agents,
                made_here=result.made_here,
                scale=result.scale,
            )
        ]
        if own_sections:
            groups.append(Group(title=title, sections=lay_out(own_sections)))
    lines = [line for result in results.values() if result.agents for line in result.lines if printed_in([line])]
    exact = [line for result in results.values() if not result.agents for line in result.lines if printed_in([line])]
    answers = Counter(claim.answer for result in results.values() for claim in result.claims)
    compared = [line.within for line in lines if line.within is not None]
    sentences = [
        f"{counted(len(lines), 'printed number')} beside numbers of agents: {len(compared)} may be compared, and "
        f"{sum(compared)} of these lie in our intervals. {counted(len(exact), 'printed number')} beside computed ones: "
        f"{sum(map(equal_as_printed, exact))} are ours as printed.",
        f"{counted(answers.total(), 'test')} of what the papers say, on the agents that were run: "
        + ", ".join(f"{count} times “{word_of(answer)}”" for answer, count in answers.most_common())
        + ". A sentence about another model is not tested by them.",
    ]
    table = Declared(anchor="items", title="Every table and figure", tables=overview(results, items))
    return write_page(path, render_page("Three papers, reproduced", sentences, lay_out([table]), "{}", groups))
