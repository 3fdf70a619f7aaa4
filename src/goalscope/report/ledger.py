"""The numbers behind a report: every estimate with its interval, counts and method, found by table and key."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.table import CONDITIONS
from goalscope.report.definitions import HEADLINE, KEY_POOLED, KEY_STEPWISE, MAPS, POOLED
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

    tables: Mapping[str, tuple[Grouped, ...]]
    conditions: tuple[str, ...]
    agents: tuple[str, ...]
    measures: Mapping[str, str]
    _index: Mapping[tuple[Any, ...], Estimate] = field(repr=False)

    def find(self, table: str, measure: str, **key: Tag) -> Estimate | None:
        """Return the estimate of a measure in a group, None where the run has no rows for it.

        Args:
            table: name of the table, one of `TABLES`.
            measure: name of the measure.
            key: value of each tag of the table; conditions that are not named must be absent.
        """
        return self._index.get(_entry_key(table, {"measure": measure, **key}))

    def groups(self, table: str) -> list[dict[str, Tag]]:
        """Return the combinations of conditions in a table, in order; ``[{}]`` where none varies."""
        found: dict[tuple[Tag, ...], None] = {}
        for grouped in self.tables[table]:
            found[tuple(grouped.key[name] for name in self.conditions)] = None
        return [dict(zip(self.conditions, values, strict=True)) for values in found]

    def only(self, condition: str, value: Tag) -> "Ledger":
        """Return the ledger of the estimates under one value of a condition, all of them where it does not vary."""
        if condition not in self.conditions:
            return self
        kept = {
            name: tuple(grouped for grouped in table if grouped.key[condition] == value)
            for name, table in self.tables.items()
        }
        return replace(self, tables=kept)

    def values(self, table: str, tag: str, **key: Tag) -> list[Tag]:
        """Return the values of a tag that occur in a table under a key, numbers by size, None left out."""
        found: dict[Tag, None] = {}
        for grouped in self.tables[table]:
            if all(grouped.key.get(name) == wanted for name, wanted in key.items()):
                found[grouped.key[tag]] = None
        return sorted(
            (value for value in found if value is not None),
            key=lambda value: (0, value, "") if isinstance(value, int | float) else (1, 0.0, value),
        )

    def entries(self) -> Iterator[tuple[str, Grouped]]:
        """Yield each table's name with each of its estimates."""
        for name, table in self.tables.items():
            for grouped in table:
                yield name, grouped

    def to_json(self, **about: Any) -> str:
        """Return all numbers as JSON, undefined ones as null; the same numbers give the same text.

        Each table is {"columns": names, "rows": one list an estimate}, ready for a data frame.

        Args:
            about: plain values to stand beside the tables (name of the study, content hash, ...).
        """
        tables = {}
        for name, table in self.tables.items():
            tags = list(dict.fromkeys(tag for grouped in table for tag in grouped.key if tag != "measure"))
            rows = [
                [grouped.key["measure"], *map(grouped.key.get, tags), *_plain(grouped.estimate)] for grouped in table
            ]
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
        tables[name] = tuple(listed + (pooled if name == "agent" else []))
    # One order for all tables: measure, then conditions, then agents as asked for, then the table's own tags.
    rank = {name: index for index, name in enumerate(order)}
    measures = list(dict.fromkeys(grouped.key["measure"] for table in tables.values() for grouped in table))
    place = {name: index for index, name in enumerate(measures)}
    tables = {
        name: tuple(sorted(table, key=lambda grouped: (place[grouped.key["measure"]], rank[str(grouped.key["agent"])])))
        for name, table in tables.items()
    }
    return Ledger(
        tables=tables,
        conditions=conditions,
        agents=tuple(order),
        measures={str(grouped.key["measure"]): grouped.estimate.unit for table in tables.values() for grouped in table},
        _index={_entry_key(name, grouped.key): grouped.estimate for name in tables for grouped in tables[name]},
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


def undefined(ledger: Ledger, names: Sequence[str]) -> list[tuple[str, Grouped]]:
    """Return the estimates of some tables that have no value or no interval, with their tables."""
    return [
        (name, grouped) for name, grouped in ledger.entries() if name in names and not grouped.estimate.has_interval
    ]


def describe_key(key: Mapping[str, Tag]) -> str:
    """Write the conditions of a key in words, e.g. ``key-no-door worlds, matched control, rotate``."""
    parts = []
    for name, value in key.items():
        if value is None or value is False:
            continue
        words = {"kind": f"{value} worlds", "control": "matched control without key", "transform": f"transform {value}"}
        words["names"] = f"{value} names"
        parts.append(words.get(name, f"{name.replace('_', ' ')} {value}"))
    return ", ".join(parts)


def _plain(estimate: Estimate) -> list[Any]:
    """Return the values of `_FIELDS`."""
    numbers = [json_number(value) for value in (estimate.value, estimate.low, estimate.high)]
    counts = [estimate.confidence, estimate.n, estimate.clusters, estimate.without, estimate.undefined]
    return [estimate.unit, *numbers, *counts, estimate.method, estimate.note]


def json_number(value: float) -> float | None:
    """Return a number as JSON holds it, None where it is undefined."""
    # Seven digits are more than any of these numbers has, and hide the last bits, which differ between machines.
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _entry_key(table: str, key: Mapping[str, Tag]) -> tuple[Any, ...]:
    return (table, *sorted((name, value) for name, value in key.items() if value is not None))


def _varies(rows: Rows, tag: str) -> bool:
    return len(set(rows.tags[tag].tolist())) > 1
