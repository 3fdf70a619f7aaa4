"""Lines of an item, which pair our estimate from the rows of a run with the printed value."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from pydantic import Field

from goalscope._ground.sealed import StrictRecord
from goalscope.inside.probing.beliefs import ACTIONS, WRONG, WRONG_ON_MAP, pooled_share
from goalscope.inside.probing.distances import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.inside.probing.plan_scores import summarise_plans
from goalscope.inside.probing.scores import summarise
from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.comparison import compare_transforms
from goalscope.measures.exploration.relation import log_relation
from goalscope.papers.contract import declare, differences, too_few
from goalscope.papers.item import MIDDLE, How, Item, ItemReading
from goalscope.stats import Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.records import StoredEstimate
from goalscope.stats.rows import Rows, Tag

_MARGINS: Final = {"success": 0.1, "action accuracy": 0.05}
"""Margins of the tests of transforms; p-values and effects do not depend on them."""

CONTROL: Final = "random"
"""Name of the scripted agent whose figures stand beside a model's where a reading declares no control of its own."""

_FURTHER_MEASURES: Final[Mapping[How, tuple[str, ...]]] = {
    "beliefs": (ACTIONS, WRONG, WRONG_ON_MAP),
    "distance": (ERROR, SQUARED, DEVIATION),
    "relation": ("success",),
}
"""Measures that a figure needs in addition to its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgents:
    """Agents whose numbers are read from a run.

    Attributes:
        agents: names of the model's agents in the run.
        model: the papers' name for the model, "" if there is none.
        ours: field -> what the numbers of the run were measured on, see `goalscope.papers.contract.ours_of`.
    """

    agents: tuple[str, ...]
    model: str = ""
    ours: Mapping[str, str] = field(default_factory=dict)


class ItemLine(StrictRecord):
    """Line of an item, with our number and the printed values.

    Attributes:
        label: name of the line.
        value: the value of the tag by which the reading is split, or None.
        published: model -> printed value.
        ours: our estimate, None if the run has no such rows.
        control: estimate for the reading's control or, if the reading declares none, for the agent `CONTROL` in the
            same run; None if there is neither.
        control_is: description of the control if it is not that agent.
        percent: whether all numbers are in per cent.
        within: whether the printed number for the same model lies in our interval; None if there is no such number, if
            the two are not comparable, or if our estimate has no interval.
        differs: the differences between what the two were measured on, which stand in the way of a comparison.
    """

    label: str
    value: Tag
    published: dict[str, float | str | None]
    ours: StoredEstimate | None
    control: StoredEstimate | None = None
    control_is: str = ""
    percent: bool
    within: bool | None = None
    differs: tuple[str, ...] = Field(default=(), max_length=1000)


def read(item: Item, rows: Rows, subject: ReadAgents) -> list[ItemLine]:
    """Read the lines of an item from the rows of a run, in the order of the paper.

    Args:
        item: an item with a study.
        rows: all rows of the run.
        subject: the agents and their model.
    """
    return [
        line
        for reading in item.readings
        for arm in _arms(item, reading, rows, subject)
        for line in _lines(item, reading, rows, arm, "" if arm is subject else f", {arm.agents[0]}")
    ]


def _arms(item: Item, reading: ItemReading, rows: Rows, subject: ReadAgents) -> list[ReadAgents]:
    """Return the subject, or one subject per agent if several agents would share a line."""
    if reading.how == "relation" or len(subject.agents) == 1:
        return [subject]
    selected_rows = selected(item, reading.where, rows, subject, [reading.measure])
    if not len(selected_rows) or (reading.by and reading.by not in selected_rows.tags):
        return [subject]
    values = selected_rows[reading.by].tolist() if reading.by else [None] * len(selected_rows)
    pairs = set(zip(selected_rows["agent"].tolist(), values, strict=True))
    if len(pairs) == len({value for _, value in pairs}):
        return [subject]
    return [replace(subject, agents=(name,)) for name in dict.fromkeys(selected_rows["agent"].tolist())]


def selected(item: Item, tags: Mapping[str, Tag], rows: Rows, subject: ReadAgents, measures: Sequence[str]) -> Rows:
    """Select the rows of the given measures and of the subject's agents that match an item and ``tags``."""
    matching = rows.where(rows.among("measure", measures) & rows.among("agent", subject.agents))
    for name, value in {**item.where, **tags}.items():
        if name == "layer" and value == MIDDLE:
            layers = sorted({int(layer) for layer in matching.tags.get("layer", ()) if layer is not None})
            value = layers[len(layers) // 2] if layers else None
        if name not in matching.tags:  # a tag that no row has counts as None in every row
            matching = (
                matching if value is None or value is False else matching.where(np.zeros(len(matching), dtype=bool))
            )
        else:
            matching = matching.select(**{name: value})
    return matching


def _estimates(
    item: Item, reading: ItemReading, tags: Mapping[str, Tag], rows: Rows, subject: ReadAgents
) -> list[Grouped]:
    measures = (reading.measure, *_FURTHER_MEASURES.get(reading.how, ()))
    selected_rows = selected(item, tags, rows, subject, measures)
    by = (reading.by,) if reading.by else ()
    if len(selected_rows) and all(name in selected_rows.tags for name in by):
        return _HOW[reading.how](selected_rows, reading.measure, by)
    return []


def _at(groups: Sequence[Grouped], by: str, value: Tag) -> Estimate | None:
    return next((group.estimate for group in groups if not by or _equal(group.key[by], value)), None)


def _lines(item: Item, reading: ItemReading, rows: Rows, subject: ReadAgents, ending: str) -> Iterator[ItemLine]:
    printed = {} if reading.published is None else {item.model: reading.published}
    printed |= reading.others
    groups = _estimates(item, reading, reading.where, rows, subject)
    own_controls = (
        _estimates(item, reading, {**reading.where, **reading.control}, rows, subject) if reading.control else []
    )
    controls = _estimates(item, reading, reading.where, rows, replace(subject, agents=(CONTROL,)))
    values: list[Tag] = [None]
    if reading.by:
        printed_values = [value for numbers in printed.values() if isinstance(numbers, dict) for value in numbers]
        measured_values = [group.key[reading.by] for group in groups if group.key[reading.by] is not None]
        values = list(dict.fromkeys([*printed_values, *sorted(measured_values, key=str)]))
        if all(isinstance(value, int | float) for value in values):
            values.sort(key=float)  # type: ignore[arg-type]
    declared = declare(item, subject.ours, reading)
    for value in values:
        ours = _at(groups, reading.by, value)
        published = {
            name: numbers.get(value) if isinstance(numbers, dict) else numbers for name, numbers in printed.items()
        }
        differs = tuple[str, ...]()
        if any(number is not None for number in published.values()):
            differs = (*differences(declared, reading), *too_few(ours))
        control = _at(own_controls, reading.by, value)
        yield ItemLine(
            label=f"{reading.label}{ending}",
            value=reading.called.get(value, value),
            published=published,
            ours=ours,
            control=control or _at(controls, reading.by, value),
            control_is=reading.control_is if control else "",
            percent=reading.percent,
            within=None if differs else _within(published.get(subject.model), ours, reading.percent),
            differs=differs,
        )


def in_figures(estimate: Estimate | None, percent: bool) -> str:
    """Format an estimate with its interval, in per cent if the paper does so, or the reason why it is missing."""
    if estimate is None:
        return "not in this run"
    if estimate.method == "exact":
        return f"{estimate.value:.6g}"
    scale, digits = (100, 1) if percent else (1, 3)
    if estimate.value != estimate.value:
        return f"undefined{f' ({estimate.note})' if estimate.note else ''}"
    text = f"{scale * estimate.value:.{digits}f}"
    if estimate.has_interval:
        return f"{text} [{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"
    return f"{text} ({estimate.note})" if estimate.note else text


def printed_number(printed: float | str | None) -> float | None:
    """Parse the number of a printed value, i.e. the number before any ``±``; None for a word."""
    if isinstance(printed, str):
        try:
            return float(printed.partition("±")[0])
        except ValueError:
            return None
    return printed


def _within(printed: float | str | None, ours: Estimate | None, percent: bool) -> bool | None:
    """Return whether a printed number lies in our interval, with a tolerance of one unit in its last digit."""
    number = printed_number(printed)
    if number is None or ours is None or not ours.has_interval:
        return None
    scale, slack = (100 if percent else 1), 0.5 * 10 ** -_digits(printed)
    return bool(scale * ours.low - slack <= number <= scale * ours.high + slack)


def _digits(printed: object) -> int:
    return len(str(printed).partition("±")[0].strip().partition(".")[2])


def equal_as_printed(line: ItemLine) -> bool:
    """Return whether our number, rounded to the printed digits, equals the printed number."""
    for printed in line.published.values():
        number = printed_number(printed)
        if number is not None and line.ours is not None:
            return bool(abs(line.ours.value - number) <= 0.5 / 10 ** _digits(printed) + 1e-9)
    return False


def _equal(first: Tag, second: Tag) -> bool:
    if isinstance(first, int | float) and isinstance(second, int | float):
        return abs(first - second) < 1e-9
    return first == second


def _of(rows: Rows, measure: str) -> Rows:
    return rows.where(rows.measure == measure)


def _steps(rows: Rows, measure: str, by: Sequence[str]) -> list[Grouped]:
    """Pool a share over all steps, as the papers do for action counts."""
    return [
        Grouped(
            key=key,
            estimate=estimate_pooled(part.value, np.ones(len(part)), part.cluster, unit="share", bounds=(0.0, 1.0)),
        )
        for key, part in _parts(_of(rows, measure), by)
    ]


def _tests(field: str) -> Callable[[Rows, str, Sequence[str]], list[Grouped]]:
    """Build the reader of the p-value or effect for each transform. These numbers have no interval."""

    def read_tests(rows: Rows, measure: str, by: Sequence[str]) -> list[Grouped]:
        groups = []
        for comparison in compare_transforms(_of(rows, measure), margin={measure: _MARGINS[measure]}):
            test, paired = comparison.paired.test, comparison.paired
            value = test.p_value if field == "p-value" else test.effect
            note = "" if value == value else test.note or "no test"
            estimate = Estimate(
                value=value,
                low=float("nan"),
                high=float("nan"),
                n=paired.difference.n,
                clusters=paired.difference.clusters,
                method="Wilcoxon signed-rank",
                unit="probability" if field == "p-value" else "rank-biserial correlation",
                note=note,
            )
            groups.append(
                Grouped(key={"measure": measure, "transform": comparison.tags["transform"]}, estimate=estimate)
            )
        return groups

    return read_tests


def _parts(rows: Rows, by: Sequence[str]) -> Iterator[tuple[dict[str, Tag], Rows]]:
    """Yield the key and the rows for each value of at most one tag."""
    if not by:
        yield {}, rows
        return
    for value in dict.fromkeys(rows[by[0]].tolist()):
        if value is not None:
            yield {by[0]: value}, rows.select(**{by[0]: value})


_HOW: Final[Mapping[How, Callable[[Rows, str, Sequence[str]], list[Grouped]]]] = {
    "mean": lambda rows, measure, by: estimate_rows(_of(rows, measure), by=by, bounds=measure_bounds()),
    "steps": _steps,
    "beliefs": lambda rows, measure, by: [
        Grouped(key=key, estimate=pooled_share(part, measure)) for key, part in _parts(rows, by)
    ],
    "cells": lambda rows, measure, by: summarise(_of(rows, measure), by=by),
    "plans": lambda rows, measure, by: summarise_plans(_of(rows, measure), by=by),
    "distance": lambda rows, measure, by: [
        grouped for grouped in summarise_distance(rows, by=by) if grouped.key["measure"] == measure
    ],
    "p-value": _tests("p-value"),
    "effect": _tests("effect"),
    "relation": lambda rows, measure, by: [
        Grouped(
            key={"measure": measure},
            estimate=log_relation(rows, measure, list(dict.fromkeys(rows["agent"].tolist()))).r_squared,
        )
    ],
}


def with_all_agents(item: Item, subject: ReadAgents, agents: Sequence[str]) -> ReadAgents:
    """Extend the subject to all agents of a run if the item compares agents."""
    related = any(reading.how == "relation" for reading in item.readings)
    return replace(subject, agents=tuple(agents)) if related else subject
