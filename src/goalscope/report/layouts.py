"""Tables and curves that many sections share: agents by measures, curves over a tag, estimates by two tags."""

import math
from collections.abc import Iterator, Sequence

from goalscope.report.blocks import number
from goalscope.report.definitions import in_sentence, title_of
from goalscope.report.estimates import Estimates, Key, describe_key
from goalscope.report.ledger import Ledger
from goalscope.report.specs import Bounds, Column, Curve, CurveSpec, Line, TableSpec
from goalscope.rows import Tag

BANDS = "Bands are 95 % intervals over grids."
CURVED = 5
"""Least number of grids behind a point of a curve over distances."""


def by_agent(
    ledger: Ledger,
    measures: Sequence[str],
    group: Key,
    caption: str,
    *,
    first: str = "agent",
    labels: Sequence[tuple[str, str]] = (),
    noun: str = "grid",
) -> TableSpec:
    """Return the table of measures with a line for each agent.

    Args:
        ledger: the estimates.
        measures: the columns; those that no agent has a value for are left out.
        group: the conditions that the table is about, see `Ledger.groups`.
        caption: what it shows; the conditions and how it was averaged are added.
        first: heading of the lines.
        labels: agents and what they are called, all under their names where empty.
        noun: what intervals run over.
    """
    where = describe_key(group)
    return TableSpec(
        caption=f"{caption}{f' – {where}' if where else ''}, mean and 95 % interval over {noun}s",
        first=first,
        estimates=ledger.tables["agent"],
        columns=[Column(title_of(name), ledger.measures.get(name, ""), {"measure": name}) for name in measures],
        lines=[
            Line(label, {**group, "agent": agent})
            for agent, label in labels or [(agent, agent) for agent in ledger.agents]
        ],
        noun=noun,
    )


def over_tag(
    ledger: Ledger, measure: str, tag: str, group: Key, *, bounds: Bounds = None, counts: bool = False
) -> CurveSpec:
    """Return the curves of all agents over size, density or distance.

    Where a value is text that is no number, such as the size "large", all stand side by side as points.

    Args:
        ledger: the estimates.
        measure: what is drawn.
        tag: size, density or distance.
        group: the conditions that the figure is about.
        bounds: range of the vertical axis; from the data where None.
        counts: draw the number of grids too, and leave out points with less than `CURVED`.
    """
    table = ledger.tables[f"agent, {tag}"]
    values = table.values(tag, **group)
    places = _places(values)
    joined = places is not None
    if places is None:
        places = {value: float(at) for at, value in enumerate(values)}
    where = describe_key(group)
    names = dict(sorted((at, number(value)) for value, at in places.items()))
    return CurveSpec(
        title=f"{title_of(measure)} by {tag}",
        y_label=f"{in_sentence(measure)} ({ledger.measures.get(measure, '')})",
        axis=tag,
        estimates=table,
        curves=[Curve(agent, {"measure": measure, "agent": agent, **group}) for agent in ledger.agents],
        places=places,
        joined=joined,
        bounds=bounds,
        ticks=() if counts else names,
        counts=counts,
        fewest_grids=CURVED if counts else 0,
        names_one=True,
        label_end=f", {where}" if where else "",
        caption=where if len(ledger.groups(f"agent, {tag}")) > 1 else "",
    )


def of_two_tags(
    estimates: Estimates,
    key: Key,
    rows: tuple[str, str],
    columns: tuple[str, str],
    caption: str,
    among: Key | None = None,
) -> TableSpec:
    """Return estimates by two tags as a table.

    Args:
        estimates: where they are found.
        key: what they have in common.
        rows, columns: each tag, and what its values are called: a heading, and what stands before each value.
        caption: what it shows.
        among: what the estimates have in common whose values of the tags are shown, ``key`` where None.
    """
    shown = key if among is None else among
    return TableSpec(
        caption=caption,
        first=rows[1],
        whole=True,
        estimates=estimates,
        columns=[
            Column(f"{columns[1]} {number(at)}".strip(), "", {columns[0]: at})
            for at in estimates.values(columns[0], **shown)
        ],
        lines=[Line(number(at), {**key, rows[0]: at}) for at in estimates.values(rows[0], **shown)],
        noun="",
    )


def conditions_of(ledger: Ledger, table: str) -> Iterator[tuple[Key, str]]:
    """Yield the conditions of a table that must not be averaged, and their names where there are several."""
    groups = ledger.groups(table)
    for group in groups:
        yield group, describe_key(group) if len(groups) > 1 else ""


def _places(values: Sequence[Tag]) -> dict[Tag, float] | None:
    """Return where the values of a tag stand on an axis of numbers, None where one of them is no finite number."""
    try:
        places = {value: float(str(value)) for value in values}
    except ValueError:
        return None
    return places if all(map(math.isfinite, places.values())) else None
