"""Rows of a run into the lines of an item: our estimate beside what the paper prints."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.exploration.relation import log_relation
from goalscope.measures.invariance import compare_transforms
from goalscope.probing.beliefs import ACTIONS, WRONG, WRONG_ON_MAP, pooled_share
from goalscope.probing.distances import DEVIATION, ERROR, SQUARED, summarise_distance
from goalscope.probing.plan_scores import summarise_plans
from goalscope.probing.scores import summarise
from goalscope.reproduction.items import MIDDLE, How, Item, Reading
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped, estimate_pooled, estimate_rows

_MARGINS: Final = {"success": 0.1, "action accuracy": 0.05}
"""Margins of the tests of transforms; p-values and effects do not depend on them."""

_BESIDE: Final[Mapping[How, tuple[str, ...]]] = {
    "beliefs": (ACTIONS, WRONG, WRONG_ON_MAP),
    "distance": (ERROR, SQUARED, DEVIATION),
    "relation": ("success",),
}
"""Measures that a figure is made of beside the one that it is called after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whose figures are read.

    Attributes:
        agents: names of the model's agents in the run.
        model: the name under which the papers know it, "" where they do not.
    """

    agents: tuple[str, ...]
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure beside what is printed.

    Attributes:
        label: what it is called.
        value: the value of the tag by which the reading is split, None for none.
        published: model -> what the paper prints.
        ours: our estimate, None where the run has no such rows.
        percent: whether both are told in per cent.
        within: whether the printed number of this very model lies in our interval, None where there is none to compare.
    """

    label: str
    value: Tag
    published: Mapping[str, float | str | None]
    ours: Estimate | None
    percent: bool
    within: bool | None = None


def read(item: Item, rows: Rows, subject: Subject) -> list[Line]:
    """Return the lines of an item, in the order in which the paper has them.

    Args:
        item: with a study.
        rows: all rows of the run.
        subject: the agents that are read, and the model that they are.
    """
    return [line for reading in item.readings for line in _lines(item, reading, rows, subject)]


def selected(item: Item, where: Mapping[str, Tag], rows: Rows, subject: Subject, measures: Sequence[str]) -> Rows:
    """Return the rows of some measures of the subject's agents under the conditions of an item and of a part of it."""
    kept = rows.where(rows.among("measure", measures) & rows.among("agent", subject.agents))
    for name, wanted in {**item.where, **where}.items():
        if name == "layer" and wanted == MIDDLE:
            layers = sorted({int(one) for one in kept.tags.get("layer", ()) if one is not None})
            wanted = layers[len(layers) // 2] if layers else None
        if name not in kept.tags:  # a tag that no row has is None everywhere
            kept = kept if wanted is None or wanted is False else kept.where(np.zeros(len(kept), dtype=bool))
        else:
            kept = kept.select(**{name: wanted})
    return kept


def _lines(item: Item, reading: Reading, rows: Rows, subject: Subject) -> Iterator[Line]:
    printed = {} if reading.published is None else {item.model: reading.published}
    printed |= reading.others
    measures = (reading.measure, *_BESIDE.get(reading.how, ()))
    kept = selected(item, reading.where, rows, subject, measures)
    by = (reading.by,) if reading.by else ()
    found: list[Grouped] = []
    if len(kept) and all(name in kept.tags for name in by):
        found = _HOW[reading.how](kept, reading.measure, by)
    values: list[Tag] = [None]
    if reading.by:
        told = [value for given in printed.values() if isinstance(given, dict) for value in given]
        seen = [one.key[reading.by] for one in found if one.key[reading.by] is not None]
        values = list(dict.fromkeys([*told, *sorted(seen, key=str)]))
        if all(isinstance(one, int | float) for one in values):
            values.sort(key=float)  # type: ignore[arg-type]
    for value in values:
        ours = next((one.estimate for one in found if not by or _equal(one.key[reading.by], value)), None)
        beside = {name: given.get(value) if isinstance(given, dict) else given for name, given in printed.items()}
        yield Line(
            label=reading.label,
            value=value,
            published=beside,
            ours=ours,
            percent=reading.percent,
            within=_within(beside.get(subject.model), ours, reading.percent),
        )


def _within(printed: float | str | None, ours: Estimate | None, percent: bool) -> bool | None:
    """Return whether a printed number lies in our interval, one unit of its last digit allowed for rounding."""
    if isinstance(printed, str) or printed is None or ours is None or not ours.has_interval:
        return None
    digits = len(str(printed).partition(".")[2])
    scale, slack = (100 if percent else 1), 0.5 * 10**-digits
    return bool(scale * ours.low - slack <= printed <= scale * ours.high + slack)


def _equal(one: Tag, other: Tag) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) < 1e-9
    return one == other


def _of(rows: Rows, measure: str) -> Rows:
    return rows.where(rows.measure == measure)


def _steps(rows: Rows, measure: str, by: Sequence[str]) -> list[Grouped]:
    """Pool a share over all steps together, as the papers count where they count actions."""
    return [
        Grouped(
            key=key,
            estimate=estimate_pooled(part.value, np.ones(len(part)), part.grid_id, unit="share", bounds=(0.0, 1.0)),
        )
        for key, part in _parts(_of(rows, measure), by)
    ]


def _tests(field: str) -> Callable[[Rows, str, Sequence[str]], list[Grouped]]:
    """Return how a p-value or an effect of each transform is read; neither has an interval of its own."""

    def read_tests(rows: Rows, measure: str, by: Sequence[str]) -> list[Grouped]:
        found = []
        for one in compare_transforms(_of(rows, measure), margin={measure: _MARGINS[measure]}):
            test, paired = one.paired.test, one.paired
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
            found.append(Grouped(key={"measure": measure, "transform": one.transform}, estimate=estimate))
        return found

    return read_tests


def _parts(rows: Rows, by: Sequence[str]) -> Iterator[tuple[dict[str, Tag], Rows]]:
    """Yield the rows of each value of at most one tag, with its key."""
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
        one for one in summarise_distance(rows, by=by) if one.key["measure"] == measure
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


def with_all_agents(item: Item, subject: Subject, agents: Sequence[str]) -> Subject:
    """Return the subject with all agents of a run where an item relates agents with each other."""
    related = any(reading.how == "relation" for reading in item.readings)
    return replace(subject, agents=tuple(agents)) if related else subject
