"""The page of an item, with printed values, our values and a control side by side, and the report of the run below."""

from collections.abc import Sequence
from pathlib import Path

from goalscope._ground.words import counted, listed
from goalscope.papers.answers import TEXTS, word_of
from goalscope.papers.claims import Tested, null_text
from goalscope.papers.contract import COUNTED, Term
from goalscope.papers.item import PAPERS, Item
from goalscope.papers.readings import ItemLine, equal_as_printed, in_figures
from goalscope.report import Declared, Group, RunData, lay_out, render_page, sections_of, write_page
from goalscope.report.blocks import Footnotes, Table, number
from goalscope.runs import Store

_DECLARED = ("headings/field", "headings/printed", "headings/place", "headings/ours", "headings/equality")


def sentence(item: Item, lines: Sequence[ItemLine], agents: Sequence[str], *, made_here: bool, scale: float) -> str:
    """Write the introductory sentence: which agents acted and which printed numbers are comparable.

    Args:
        item, lines, agents: the item, its lines and the names of its agents.
        made_here: whether all agents are models that come with this package.
        scale: fraction of the published size, 0 if the user gave a run, logs or other worlds.
    """
    printed = [line for line in lines if any(value is not None for value in line.published.values())]
    if item.exact:
        equal = sum(equal_as_printed(line) for line in printed)
        of = f" {equal} of {counted(len(printed), 'printed number')} are ours as printed." if printed else ""
        return f"Computed without an agent: nothing is sampled, and no number has an interval.{of}"
    compared = [line for line in printed if not line.differs and line.within is not None]
    deviations = dict.fromkeys(reason for line in printed for reason in line.differs)
    shared = [reason for reason in deviations if all(reason in line.differs for line in printed)]
    reasons = [*shared, *(f"for some of them {reason}" for reason in deviations if reason not in shared)]
    size = "the published size" if scale == 1 else f"{scale:g} of the published size"
    made = f"in worlds that this project makes after the source, not the source's own (study {item.study}), at {size}"
    prefix = "each " if len(agents) > 1 else ""
    network = (
        f", {prefix}a small network of this project trained for such worlds and no model of the papers," * made_here
    )
    worlds = made if scale else "in worlds that were given (a run, logs, or settings of one's own)"
    who = f"Read here: {listed(list(agents))}{network} {worlds}. "
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


def table_of(item: Item, lines: Sequence[ItemLine]) -> Table:
    """Tabulate the lines of an item beside the printed numbers, with a letter per reason not to compare them."""
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
        headings=("", *(f"printed, {name}" for name in papers), "ours", *_headings(controlled)),
        rows=tuple(rows),
        numbers=tuple(at for at in range(1, len(papers) + 5 + controlled) if at != len(papers) + 2),
        notes=(*notes.lines, *([item.note] if item.note else [])),
    )


def _headings(controlled: bool) -> list[str]:
    return ["printed within ours", *(["control"] if controlled else []), "n", "grids"]


def _control(line: ItemLine, notes: Footnotes) -> str:
    if line.control is None:
        return ""
    mark = notes.mark(line.control_is and f"control: {line.control_is}")
    return f"{in_figures(line.control, line.percent)}{mark and f' ({mark})'}"


def declarations_of(declared: Sequence[Term]) -> Table:
    """Tabulate what the printed numbers and ours were measured on, and where the former is printed."""
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


def sections(
    item: Item,
    lines: Sequence[ItemLine],
    tested: Sequence[Tested],
    declared: Sequence[Term],
    agents: Sequence[str],
    *,
    made_here: bool,
    scale: float,
) -> list[Declared]:
    """Build the sections of an item's page."""
    sections = [
        Declared(
            anchor=item.name,
            title=f"{item.name}: {item.title}",
            paragraphs=[sentence(item, lines, agents, made_here=made_here, scale=scale), PAPERS[item.name.split()[0]]],
            tables=[*([table_of(item, lines)] if lines else []), declarations_of(declared)],
        )
    ]
    if tested:
        parts = tuple(
            (
                word_of(claim.answer),
                f"“{claim.quoted}” ({claim.place})" if claim.quoted else "not printed; ours",
                claim.said,
                "; ".join(f"{name}: {estimate}" for name, estimate in claim.parts),
                "; ".join(map(null_text, claim.nulls)),
                "; ".join(filter(None, (claim.about and f"said of {claim.about}: that is not tested here", claim.why))),
            )
            for claim in tested
        )
        headings = ("here", "printed", "tested", "parts", TEXTS("notes/nulls"), "about whom, and why")
        table = Table(caption=TEXTS("notes/page"), headings=headings, rows=parts)
        sections.append(Declared(anchor=f"{item.name} in words", title="In words", tables=[table]))
    return sections


def write(
    item: Item,
    lines: Sequence[ItemLine],
    tested: Sequence[Tested],
    declared: Sequence[Term],
    agents: Sequence[str],
    *,
    made_here: bool,
    scale: float,
    run: Path,
    numbers: str,
    path: Path,
) -> Path:
    """Write the page of an item, with the collapsed report of its run below.

    Args:
        item, lines, tested, declared, agents, made_here, scale: the item and its results.
        run: the measured run.
        numbers: the results as JSON, which the page embeds.
        path: path of the page.

    Raises:
        ImportError: jinja2 is not installed (it comes with the extra ``report``).
        OSError: the page cannot be written.
    """
    with Store(run) as store:
        report = Group(title="The report of the run", sections=sections_of(RunData.of(store)))
        content = lay_out(sections(item, lines, tested, declared, agents, made_here=made_here, scale=scale))
        text = render_page(item.name, [], content, numbers, [report])
    return write_page(path, text)
