"""Results of items: their files and pages, and the table and page that combine all results.

The page of an item has printed values, our values and a control side by side, and the report of the run below.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field

from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.sealed import SealedRecord, read_sealed, seal
from goalscope._ground.version import __version__
from goalscope._ground.words import counted, listed
from goalscope.papers.claims import TEXTS, Tested, null_text, word_of
from goalscope.papers.item import PAPERS, Item
from goalscope.papers.readings import COUNTED, OFF_BY_ONE, ItemLine, Term, blocks, equal_as_printed, in_figures
from goalscope.report import Declared, Group, RunData, lay_out, render_page, sections_of, write_page
from goalscope.report.blocks import Footnotes, Table, number
from goalscope.runs import Store
from goalscope.stats import Estimate
from goalscope.stats.records import Records
from goalscope.stats.rows import Tag

RESULT: Final = "reproduction.json"


class Reproduction(SealedRecord, Records):
    """A reproduced item (a figure, table or passage of a paper), as stored in the file ``reproduction.json``.

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

    @classmethod
    def of(
        cls,
        item: Item,
        scale: float,
        *,
        lines: Sequence[ItemLine] = (),
        claims: Sequence[Tested] = (),
        declared: Sequence[Term] = (),
        agents: Sequence[str] = (),
        made_here: bool = False,
    ) -> Self:
        """Build the result of reproducing an item, a figure or table of a paper.

        Args:
            item: the item.
            scale: fraction of the published size, 0 if there is none.
            lines: our numbers beside the printed ones.
            claims: the tested sentences.
            declared: what the printed numbers and ours were measured on, field by field.
            agents: names of the agents whose numbers are read; empty if none acted.
            made_here: whether all agents are models that come with this package.
        """
        results: dict[str, Any] = {
            "lines": tuple(lines),
            "claims": tuple(claims),
            "declared": tuple(declared),
            "agents": tuple(agents),
        }
        facts: dict[str, Any] = {"item": item.name, "title": item.title, "note": item.note, "key": key_of(item, scale)}
        return cls(**facts, **results, scale=float(scale), made_here=made_here)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The numbers as dictionaries, one per line of the figure or table.

        Each has the label, the tag's value, printed values by model, our value with interval, n and grids, the control,
        whether the printed number lies in our interval (``within``), and why it may not be compared (``differs``).
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
    """Return an id of the result of reproducing an item (a figure or table of a paper) at a fraction of its size.

    It is a hash of the item's declaration, the scale and the version of goalscope. A result with the same key need not
    be computed again.
    """
    basis = {field: list(texts) for field, texts in blocks().get(item.basis, {}).items()}
    return content_id("reproduction", [item.model_dump(mode="json"), basis, float(scale), __version__])


def read_result(folder: Path) -> Reproduction | None:
    """Read the result of a reproduced figure or table from its folder; None if there is none.

    Raises:
        ValueError: the file is not a result, or was changed after it was written.
    """
    if not Folder(folder).has_file(RESULT):
        return None
    return read_sealed(Reproduction, Folder(folder).file(RESULT))


_DECLARED = ("headings/field", "headings/printed", "headings/place", "headings/ours", "headings/equality")


def sentence(item: Item, result: Reproduction) -> str:
    """Write the introduction of a reproduced figure or table: which agents acted, and how many printed numbers ours
    confirm.

    Args:
        item: the figure or table.
        result: its result.
    """
    printed = [line for line in result.lines if any(value is not None for value in line.published.values())]
    if item.exact:
        equal, numbers = count_equal([(item, result)])
        of = f" {equal} of {counted(numbers, 'printed number')} are ours as printed." if printed else ""
        return f"Computed without an agent: nothing is sampled, and no number has an interval.{of}"
    compared = [line for line in printed if not line.differs and line.within is not None]
    deviations = dict.fromkeys(reason for line in printed for reason in line.differs)
    shared = [reason for reason in deviations if all(reason in line.differs for line in printed)]
    reasons = [*shared, *(f"for some of them {reason}" for reason in deviations if reason not in shared)]
    size = "the published size" if result.scale == 1 else f"{result.scale:g} of the published size"
    made = f"in worlds that this project makes after the source, not the source's own (study {item.study}), at {size}"
    prefix = "each " if len(result.agents) > 1 else ""
    network = (
        f", {prefix}a small network of this project trained for such worlds and no model of the papers,"
        * result.made_here
    )
    worlds = made if result.scale else "in worlds that were given (a run, logs, or settings of one's own)"
    who = f"Read here: {listed(list(result.agents))}{network} {worlds}. "
    if not printed:
        return f"{who}The source draws this item and prints no numbers of it."
    if not compared:
        why = f": {'; '.join(reasons)}" if reasons else ", since ours has no interval"
        models = listed(list(dict.fromkeys(name for line in printed for name in line.published)))
        other = any(reason.startswith("model: ") for reason in reasons)
        rest = f"Ours neither confirm nor refute what is printed of {models}" if other else "They need not agree"
        return f"{who}No printed number is compared with ours{why}. {rest}."
    inside = sum(bool(line.within) for line in compared)
    rest = f"; the others are not compared: {'; '.join(reasons)}" if reasons else ""
    of = counted(len(printed), "printed number")
    return f"{who}Of {of} {len(compared)} may be compared, and {inside} of these lie in our intervals{rest}."


def count_equal(results: Iterable[tuple[Item, Reproduction]]) -> tuple[int, int]:
    """Count distinct printed numbers of computed items (figures and tables): those that ours equal, and all.

    A number counts once, although several items can print it, and although ours can be computed in two ways: as it
    should be, and with the off-by-one of the authors. It is equal if one of ours is.
    """
    equal: dict[tuple[str, str, Tag], bool] = {}
    for item, result in results:
        for line in filter(lambda line: printed_in([line]), result.lines):
            number = (item.exact, line.label.removesuffix(OFF_BY_ONE), line.value)
            equal[number] = equal.get(number, False) or equal_as_printed(line)
    return sum(equal.values()), len(equal)


def table_of(item: Item, lines: Sequence[ItemLine]) -> Table:
    """Tabulate our numbers beside the printed numbers, for one figure or table (item) of a paper.

    A letter marks each reason not to compare two numbers.
    """
    notes, papers = Footnotes(), list(dict.fromkeys(name for line in lines for name in line.published))
    controlled = any(line.control is not None for line in lines)
    rows = []
    for line in lines:
        printed = [line.published.get(name) for name in papers]
        exact, reasons = line.ours is not None and line.ours.method == "exact", notes.mark(*line.differs)
        rows.append(
            (
                line.label if line.value is None else f"{line.label}: {number(line.value)}",
                *("" if value is None else str(value) for value in printed),
                in_figures(line.ours, line.percent),
                {True: "yes", False: "no", None: reasons and f"not compared: {reasons}"}[line.within],
                *([_control(line, notes)] if controlled else []),
                "" if line.ours is None or exact else f"{line.ours.n:,}",
                "" if line.ours is None or exact else f"{line.ours.clusters:,}",
            )
        )
    return Table(
        caption="Printed and ours"
        + ("; the control is a random agent in the same worlds where a letter names no other" if controlled else ""),
        headings=(
            *("", *(f"printed, {name}" for name in papers), "ours", "printed within ours"),
            *(("control", "n", "grids") if controlled else ("n", "grids")),
        ),
        rows=tuple(rows),
        numbers=tuple(at for at in range(1, len(papers) + 5 + controlled) if at != len(papers) + 2),
        notes=(*notes.lines, *([item.note] if item.note else [])),
    )


def _control(line: ItemLine, notes: Footnotes) -> str:
    if line.control is None:
        return ""
    mark = notes.mark(line.control_is and f"control: {line.control_is}")
    return f"{in_figures(line.control, line.percent)}{mark and f' ({mark})'}"


def declarations_of(declared: Sequence[Term]) -> Table:
    """Tabulate what the printed numbers and ours were measured on, such as horizon and temperature, and where that is
    printed.
    """
    rows = tuple(
        (
            TEXTS(f"fields/{entry.field}"),
            entry.printed,
            entry.place,
            entry.ours,
            TEXTS(f"equality/{'same' if entry.equal else 'counted' if entry.field == COUNTED else 'different'}"),
        )
        for entry in declared
    )
    return Table(caption=TEXTS("notes/declared"), headings=tuple(map(TEXTS, _DECLARED)), rows=rows)


def sections(item: Item, result: Reproduction) -> list[Declared]:
    """Build the sections of the page that shows a reproduced figure or table of a paper.

    The first section has its numbers. If statements of the paper's text were tested, a second one lists them with the
    answers.

    Args:
        item: declaration of the figure or table.
        result: its reproduced numbers and tested statements.
    """
    sections = [
        Declared(
            anchor=item.name,
            title=f"{item.name}: {item.title}",
            paragraphs=[sentence(item, result), PAPERS[item.name.split()[0]]],
            tables=[*([table_of(item, result.lines)] if result.lines else []), declarations_of(result.declared)],
        )
    ]
    if result.claims:
        parts = tuple(
            (
                word_of(claim.answer),
                f"“{claim.quoted}” ({claim.place})" if claim.quoted else "not printed; ours",
                claim.said,
                "; ".join(f"{name}: {estimate}" for name, estimate in claim.parts),
                "; ".join(map(null_text, claim.nulls)),
                "; ".join(filter(None, (claim.about and f"said of {claim.about}: that is not tested here", claim.why))),
            )
            for claim in result.claims
        )
        headings = ("here", "printed", "tested", "parts", TEXTS("notes/nulls"), "about whom, and why")
        table = Table(caption=TEXTS("notes/page"), headings=headings, rows=parts)
        sections.append(Declared(anchor=f"{item.name} in words", title="In words", tables=[table]))
    return sections


def write_page_of(item: Item, result: Reproduction, run: Path, path: Path) -> Path:
    """Write the HTML page of a reproduced figure or table, with its result as JSON and the collapsed report of its run
    below.

    Args:
        item: the figure or table.
        result: its result.
        run: directory of the run.
        path: file to write.

    Returns:
        The path.

    Raises:
        ImportError: jinja2 is not installed (it comes with the extra ``report``).
        OSError: the page cannot be written.
    """
    with Store(run) as store:
        report = Group(title="The report of the run", sections=sections_of(RunData.of(store)))
        content = lay_out(sections(item, result))
        text = render_page(item.name, [], content, seal(result) + "\n", [report])
    return write_page(path, text)


def printed_in(lines: Sequence[ItemLine]) -> str:
    """Format the printed values of lines that have the same label, e.g. ``97.3 (7)``; by model if there are several.

    The number in brackets is the value of the tag (such as the grid size) that distinguishes the lines.
    """
    models = sorted({name for line in lines for name in line.published})  # a stored result is sorted, too
    texts = []
    for model in models:
        values = [(line.published.get(model), line) for line in lines]
        values_text = ", ".join(f"{value}{_at(line)}" for value, line in values if value is not None)
        texts.append(f"{model}: {values_text}" if len(models) > 1 else values_text)
    return "; ".join(filter(None, texts))


def _at(line: ItemLine) -> str:
    return "" if line.value is None else f" ({line.value:g})" if isinstance(line.value, float) else f" ({line.value})"


def overview(results: Mapping[str, Reproduction], items: Mapping[str, Item]) -> tuple[Table, Table]:
    """Build two tables of the papers' figures and tables (items): those with printed numbers, and those without.

    The first table shows printed numbers beside ours, or the reasons why they are not comparable. Items with equal rows
    share them. An empty cell in the first table has the value of the cell above.

    Args:
        results: name of the item -> its result; items that were not run are missing.
        items: name -> item, in the order of the tables.
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
    """Join names of figures and tables, leaving out repeated words, e.g. ``meg figure 3, table epsilon``."""
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
    """Write one HTML page with the results of all reproduced figures and tables (items), without the reports of their
    runs.

    Args:
        results: name of the item -> its result; items that were not run are missing.
        items: name -> item, in the order of the page.
        path: file to write.

    Returns:
        The path.

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
            for section in sections(items[name], result)
        ]
        if own_sections:
            groups.append(Group(title=title, sections=lay_out(own_sections)))
    lines = [line for result in results.values() if result.agents for line in result.lines if printed_in([line])]
    equal, numbers = count_equal((items[name], result) for name, result in results.items() if items[name].exact)
    answers = Counter(claim.answer for result in results.values() for claim in result.claims)
    compared = [line.within for line in lines if line.within is not None]
    sentences = [
        f"{counted(len(lines), 'number')} of agents beside printed ones: {len(compared)} may be compared, and for "
        f"{sum(compared)} of these the printed one lies in our interval. {counted(numbers, 'distinct printed number')} "
        f"beside computed ones: {equal} are ours as printed.",
        f"{counted(answers.total(), 'test')} of what the papers say, on the agents that were run: "
        + ", ".join(f"“{word_of(answer)}” {count}" for answer, count in answers.most_common())
        + ". A sentence about another model is not tested by them.",
    ]
    table = Declared(anchor="items", title="Every table and figure", tables=overview(results, items))
    return write_page(path, render_page("Three papers, reproduced", sentences, lay_out([table]), "{}", groups))
