"""The numbers behind a report: every estimate with its interval, counts and method, found by table and key."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.table import CONDITIONS
from goalscope.report.definitions import HEADLINE, KEY_POOLED, KEY_STEPWISE, MAPS, POOLED
from goalscope.report.estimates import Estimates
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped, estimate_pooled, estimate_rows, grids_of

TABLES: Mapping[str, tuple[str, ...]] = {
    "agent": ("agent",),
    "agent, size": ("agent", "size"),
    "agent, density": ("agent", "density"),
    "agent, size, density": ("agent", "size", "density"),
    "agent, distance": ("agent", "distance"),
}
"""Table -> the tags that its estimates are grouped by, beside the conditions of the run."""

CURVE = "distance"
"""Tag of rows that speak of one distance to the goal; measures with such rows enter the tables by distance alone."""

STEPWISE = "action optimality"
"""The measure with one row a step that `definitions.POOLED` is the ratio of."""

_RATIOS = {STEPWISE: POOLED, KEY_STEPWISE: KEY_POOLED}
"""Measures with one row a step or action, and the figures that pool them: ratios of sums, with intervals over grids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All estimates of a run.

    Attributes:
        tables: table -> its estimates, in order; each key holds "measure", the table's tags and the conditions.
        conditions: the tags among `CONDITIONS` that vary in this run.
        agents: names of the agents in order of appearance.
        measures: measure -> unit, in order of appearance.
    """

    tables: Mapping[str, Estimates]
    conditions: tuple[str, ...]
    agents: tuple[str, ...]
    measures: Mapping[str, str]

    def find(self, table: str, measure: str, **key: Tag) -> Estimate | None:
        """Return the estimate of a measure in a group, None where the run has no rows for it.

        Args:
            table: name of the table, one of `TABLES`.
            measure: name of the measure.
            key: value of each tag of the table; conditions that are not named must be absent.
        """
        return self.tables[table].get(measure=measure, **key)

    def groups(self, table: str) -> list[dict[str, Tag]]:
        """Return the combinations of conditions in a table, in order; ``[{}]`` where none varies."""
        return self.tables[table].keys(*self.conditions)

    def only(self, condition: str, value: Tag) -> "Ledger":
        """Return the ledger of the estimates under one value of a condition, all of them where it does not vary."""
        if condition not in self.conditions:
            return self
        return replace(self, tables={name: table.only(**{condition: value}) for name, table in self.tables.items()})

    def to_json(self, **about: Any) -> str:
        """Return all numbers as JSON, undefined ones as null; the same numbers give the same text.

        Each table is {"columns": names, "rows": one list an estimate}, ready for a data frame.

        Args:
            about: plain values to stand beside the tables (name of the study, content hash, ...).
        """
        tables = {}
        for name, table in self.tables.items():
            tags = list(dict.fromkeys(tag for one in table.listed for tag in one.key if tag != "measure"))
            rows = [[one.key["measure"], *map(one.key.get, tags), *_plain(one.estimate)] for one in table.listed]
            tables[name] = {"columns": ["measure", *tags, *_FIELDS], "rows": rows}
        value = {**about, "tables": tables}
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)


_FIELDS = ("unit", "value", "low", "high", "confidence", "n", "grids", "without", "undefined", "method", "note")


def build_ledger(rows: Rows, *, agents: Sequence[str] = (), confidence: float = 0.95) -> Ledger:
    """Estimate every measure of a run in every table.

    Args:
        rows: the rows of the run.
        agents: names of agents in the order in which they are to be listed; others follow in alphabetical order.
        confidence: nominal coverage of the intervals.

    Raises:
        ValueError: there are no rows, or rows without an agent.
    """
    if not len(rows):
        raise ValueError("a ledger needs rows, got none: measure the run first (goalscope measure RUN)")
    present = {str(name) for name in rows.tags.get("agent", ()) if name is not None}
    if not present or None in rows.tags["agent"].tolist():
        raise ValueError("each row must name its agent in the tag 'agent', got rows without that tag")
    order = [name for name in agents if name in present]
    order += sorted(present - set(order))
    conditions = tuple(name for name in CONDITIONS if name in rows.tags and _varies(rows, name))
    curves = set(rows.measure[rows.known(CURVE)].tolist())
    curve = rows.among("measure", curves)
    pooled = [
        grouped for measure, name in _RATIOS.items() for grouped in _pooled(rows, measure, name, conditions, confidence)
    ]
    sides = {True: rows.where(curve), False: rows.where(~curve)}
    tables = {}
    for name, tags in TABLES.items():
        side = sides[CURVE in tags]
        # Sizes and densities are told of worlds that have both; the finest table is kept to the main measures.
        needed = {*tags, "density"} if "size" in tags else set(tags)
        known = np.logical_and.reduce([side.known(tag) for tag in sorted(needed)])
        if {"size", "density"} <= set(tags):
            known &= side.among("measure", (*HEADLINE, *MAPS))
        by = (*tags, *conditions)
        listed = estimate_rows(side.where(known), by=by, whole=rows, bounds=measure_bounds(), confidence=confidence)
        tables[name] = listed + (pooled if name == "agent" else [])
    # One order for all tables: measure, then conditions, then agents as asked for, then the table's own tags.
    rank = {name: index for index, name in enumerate(order)}
    measures = list(dict.fromkeys(grouped.key["measure"] for table in tables.values() for grouped in table))
    place = {name: index for index, name in enumerate(measures)}
    ordered = {
        name: Estimates(sorted(table, key=lambda one: (place[one.key["measure"]], rank[str(one.key["agent"])])))
        for name, table in tables.items()
    }
    return Ledger(
        tables=ordered,
        conditions=conditions,
        agents=tuple(order),
        measures={str(one.key["measure"]): one.estimate.unit for table in ordered.values() for one in table.listed},
    )


def _pooled(whole: Rows, measure: str, name: str, conditions: Sequence[str], confidence: float) -> list[Grouped]:
    """Return the share over all steps of each agent and condition: a ratio of sums, with an interval over grids."""
    grids, rows = grids_of(whole, ("agent", *conditions)), whole.where(whole.measure == measure)
    columns = [rows["agent"].tolist(), *(rows[name].tolist() for name in conditions)]
    members: dict[tuple[Tag, ...], list[int]] = {}
    for index, values in enumerate(zip(*columns, strict=True)):
        members.setdefault(values, []).append(index)
    found = []
    for values, indices in members.items():
        value = rows.value[indices]
        estimate = estimate_pooled(
            value,
            np.ones(len(value)),
            rows.grid_id[indices],
            unit="share",
            bounds=(0.0, 1.0),
            confidence=confidence,
        )
        key = {"measure": name, "agent": values[0], **dict(zip(conditions, values[1:], strict=True))}
        estimate = replace(estimate, without=grids[values] - estimate.clusters)
        found.append(Grouped(key=key, estimate=estimate))
    return found


def _plain(estimate: Estimate) -> list[Any]:
    """Return the values of `_FIELDS`."""
    numbers = [json_number(value) for value in (estimate.value, estimate.low, estimate.high)]
    counts = [estimate.confidence, estimate.n, estimate.clusters, estimate.without, estimate.undefined]
    return [estimate.unit, *numbers, *counts, estimate.method, estimate.note]


def json_number(value: float) -> float | None:
    """Return a number as JSON holds it, None where it is undefined."""
    # Seven digits are more than any of these numbers has, and hide the last bits, which differ between machines.
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _varies(rows: Rows, tag: str) -> bool:
    return len(set(rows.tags[tag].tolist())) > 1
