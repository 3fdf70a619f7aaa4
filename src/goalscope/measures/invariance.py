"""Invariance: each agent on transformed grids against the same agent on the original ones, paired by grid.

Three questions are asked of each measure under each transform, each with a family of its own for each agent: does the
mean differ (signed-rank test), is the mean difference smaller than a margin named beforehand (equivalence), and do
single grids differ at all, also where their differences cancel in the mean (exchange test).

Source: behavioural and representational evaluation, section 4.2, Table 3 and Fig. 14.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goalscope.checks import near_miss
from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.table import CONDITIONS
from goalscope.rng import stream
from goalscope.rows import Rows, Tag
from goalscope.stats import (
    UNBOUNDED,
    Corrected,
    Equivalence,
    Family,
    PairedComparison,
    Sensitivity,
    equivalence,
    holm,
    paired_difference,
    sensitivity,
)
from goalscope.worlds.transform import TRANSFORMS

ORIGINAL = "identity"
_MEG = "MEG "  # how the names of the rows of `goalscope meg` begin
APART = tuple(name for name in CONDITIONS if name != "transform")
"""Tags of worlds that are never averaged: each of their combinations is compared with itself alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One measure of one agent under one transform, transformed minus original.

    Attributes:
        agent, measure, transform: what is compared.
        condition: the tags of `APART` that vary in the rows, by name.
        paired: the difference with its interval, and the signed-rank test.
        test: its p value after Holm's correction inside the family of the agent.
        equivalence: two one-sided tests against the margin, None without one.
        shown: their p value after Holm's correction inside the family of the agent's equivalence tests.
        sensitivity: how far single grids differ.
        exchange: the p value of its test after Holm's correction.
    """

    agent: str
    measure: str
    transform: str
    condition: Mapping[str, Tag]
    paired: PairedComparison
    test: Corrected
    equivalence: Equivalence | None
    shown: Corrected | None
    sensitivity: Sensitivity
    exchange: Corrected

    @property
    def verdict(self) -> str:
        """What may be said: "differs", "equivalent", "differs within the margin", "undecided" or "undefined"."""
        return verdict(self.test, self.shown)

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that a reader must know beside the numbers."""
        return notes_on(self.paired, self.equivalence, self.test)


def notes_on(paired: PairedComparison, equal: Equivalence | None, test: Corrected) -> tuple[str, ...]:
    """Return all that must be said beside the numbers of a comparison: what was left out, what cannot be told, why."""
    alone = len(paired.unpaired_a) + len(paired.unpaired_b)
    if paired.labels:
        about = (paired.test.note, paired.difference.note, equal.note if equal else "")
    else:
        about = ("no common grid with a value on both sides", "", "")
    parts = (
        *about,
        _left_out(alone, "grid", " without a partner"),
        _left_out(paired.undefined, "undefined value"),
        test.note,
    )
    # An equivalence test brings the note of its interval along, which mostly is that of the difference.
    return tuple(dict.fromkeys(piece for part in parts for piece in part.split("; ") if piece))


def _left_out(count: int, noun: str, words: str = "") -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}{words} left out" if count else ""


def verdict(test: Corrected, shown: Corrected | None) -> str:
    """Return what may be said of a difference, given its test and its equivalence test, both corrected."""
    if math.isnan(test.p_value):
        return "undefined"
    equal = shown is not None and shown.rejected
    if test.rejected:
        return "differs within the margin" if equal else "differs"
    return "equivalent" if equal else "undecided"


def compare_transforms(
    rows: Rows,
    *,
    margin: Mapping[str, float],
    measures: Sequence[str] = (),
    level: float = 0.05,
    confidence: float = 0.95,
) -> list[Contrast]:
    """Compare each agent under each transform with itself on the original grids.

    The family of an agent is: the measures, each under each transform that its rows hold, in each condition of `APART`.
    A test that cannot be done stays in its family and is never rejected.

    Args:
        rows: measured rows with the tags agent and transform.
        margin: measure -> its equivalence margin, > 0, in its unit; declared before the data.
        measures: the measures of the family; those of `margin` by default, which must be among them.
        level: family-wise level of each of the three families.
        confidence: nominal coverage of the intervals.

    Returns:
        Agent by agent, measure by measure, transform by transform; the same rows in any order give the same bytes.

    Raises:
        ValueError: no measure, a margin of a measure outside of the family or not above 0, rows without a transform or
            without originals.
    """
    names = list(measures) or list(margin)
    check_family(names, margin)
    check_transformed(rows)
    kept = rows.where(rows.among("measure", names))
    kept = kept if len(kept) else rows.where(np.zeros(len(rows), dtype=bool))
    agents = sorted({str(name) for name in rows["agent"].tolist()})
    conditions = _conditions(rows)
    transforms = [name for name in TRANSFORMS if name != ORIGINAL and name in set(rows["transform"].tolist())]
    found = []
    for agent in agents:
        mine = kept.where(kept["agent"] == agent)
        cells = [(name, way, condition) for name in names for condition in conditions for way in transforms]
        found += _family(agent, mine, cells, margin, level, confidence)
    return found


def check_family(measures: Sequence[str], margin: Mapping[str, float]) -> None:
    """Check that a family names measures, and margins for measures of its own only.

    Raises:
        ValueError: no measure or one twice, or a margin of another measure.
    """
    if not measures or len(set(measures)) != len(measures):
        raise ValueError(
            f"a family of tests must be declared by naming different measures, got {list(measures)}: what is judged "
            "together decides what each single test is worth"
        )
    foreign = [name for name in margin if name not in measures]
    if foreign:
        raise ValueError(
            f"a margin must belong to a measure of the family ({'; '.join(measures)}), got one for "
            f"{'; '.join(foreign)}: name the measure too"
        )


def check_declared(margin: Mapping[str, float]) -> None:
    """Check the margins that a study declares before anything is run: afterwards they cannot be changed any more.

    Raises:
        ValueError: a measure that no command makes, or a margin within which every two conditions are equal.
    """
    bounds = measure_bounds() if margin else {}
    for measure, given in margin.items():
        if measure not in bounds and not measure.startswith(_MEG):
            raise ValueError(
                "the margins that a study declares must be those of measures, got one for "
                f"{measure!r}{near_miss(measure, list(bounds))}"
            )
        low, high = bounds.get(measure, UNBOUNDED)
        if given >= high - low:
            raise ValueError(
                f"the equivalence margin of {measure!r} must be below the greatest difference there can be "
                f"({high - low:g}), got {given:g}: within it every two conditions are equal"
            )


def check_transformed(rows: Rows) -> None:
    """Check that rows hold originals and transformed versions of them.

    Raises:
        ValueError: what is missing.
    """
    there = {str(name) for name in rows.tags.get("transform", ()) if name is not None}
    if ORIGINAL not in there or len(there) < 2:
        raise ValueError(
            "a comparison of transforms needs the original grids and transformed ones, got "
            f"{', '.join(sorted(there)) or 'worlds without transforms'}: give transforms: [identity, reflect, ...] in "
            "the study's worlds"
        )


def _conditions(rows: Rows) -> list[dict[str, Tag]]:
    varying = [name for name in APART if name in rows.tags and len(set(rows.tags[name].tolist())) > 1]
    columns = [rows.tags[name].tolist() for name in varying]
    found = dict.fromkeys(zip(*columns, strict=True)) if varying else {(): None}
    ordered = sorted(found, key=lambda values: tuple(map(str, values)))
    return [dict(zip(varying, values, strict=True)) for values in ordered]


def _family(
    agent: str,
    rows: Rows,
    cells: Sequence[tuple[str, str, Mapping[str, Tag]]],
    margin: Mapping[str, float],
    level: float,
    confidence: float,
) -> list[Contrast]:
    members: dict[str, tuple[PairedComparison, Equivalence | None, Sensitivity]] = {}
    for measure, transform, condition in cells:
        name = _member(measure, transform, condition)
        members[name] = _compare(
            rows.select(measure=measure, **condition), transform, margin.get(measure), level, confidence, agent, name
        )
    families = [
        {name: math.nan if not paired.labels else paired.test.p_value for name, (paired, _, _) in members.items()},
        {name: equal.p_value for name, (_, equal, _) in members.items() if equal is not None},
        {name: spread.p_value for name, (_, _, spread) in members.items()},
    ]
    tested, shown, exchanged = (
        {entry.name: entry for entry in holm(p_values, Family(name=agent, members=tuple(p_values)), level=level)}
        if p_values
        else {}
        for p_values in families
    )
    found = []
    for measure, transform, condition in cells:
        name = _member(measure, transform, condition)
        paired, equal, spread = members[name]
        found.append(
            Contrast(
                agent=agent,
                measure=measure,
                transform=transform,
                condition=condition,
                paired=paired,
                test=tested[name],
                equivalence=equal,
                shown=shown.get(name),
                sensitivity=spread,
                exchange=exchanged[name],
            )
        )
    return found


def _compare(
    rows: Rows,
    transform: str,
    margin: float | None,
    level: float,
    confidence: float,
    agent: str,
    name: str,
) -> tuple[PairedComparison, Equivalence | None, Sensitivity]:
    changed, original = (rows.select(transform=way) for way in (transform, ORIGINAL))
    units = sorted({*changed.unit.tolist(), *original.unit.tolist()})
    if len(units) > 1:
        raise ValueError(f"what is compared must have one unit, got {', '.join(units)} for {name}")
    unit = units[0] if units else ""
    sides = (changed.value, changed.grid_id, original.value, original.grid_id)
    bounds = bounds_of(rows)
    paired = paired_difference(*sides, unit=unit, bounds=bounds, confidence=confidence)
    equal = None if margin is None else equivalence(paired, margin, level=level)
    rng = stream(0, "exchange test", agent, name)
    return paired, equal, sensitivity(*sides, unit=unit, bounds=bounds, rng=rng, confidence=confidence)


def bounds_of(rows: Rows) -> tuple[float, float]:
    """Return the bounds of the one measure that rows hold: its own, else [0, 1] for shares in it, else none."""
    names = set(rows.measure.tolist())
    known = {name: bounds for name, bounds in measure_bounds().items() if name in names}
    if len(known) == 1:
        return next(iter(known.values()))
    values = rows.value[~np.isnan(rows.value)]
    share = set(rows.unit.tolist()) == {"share"} and len(values) and values.min() >= 0 and values.max() <= 1
    return (0.0, 1.0) if share else UNBOUNDED


def _member(measure: str, transform: str, condition: Mapping[str, Tag]) -> str:
    where = "".join(f", {name} {value}" for name, value in condition.items())
    return f"{measure}: {transform}{where}"
