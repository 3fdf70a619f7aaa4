"""Invariance: each agent on transformed grids against the same agent on the original ones, paired by grid.

Each measure under each transform is tested in three ways, each with its own family for each agent: the mean differs
(its interval leaves out 0), the mean difference is smaller than a margin declared in advance (equivalence), and single
grids differ, also where their differences cancel in the mean (exchange test).

Source: behavioural and representational evaluation, section 4.2, Table 3 and Fig. 14.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from goalscope._ground.checks import near_miss
from goalscope._ground.rng import stream
from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.table import CONDITIONS
from goalscope.stats import (
    UNBOUNDED,
    Corrected,
    Equivalence,
    PairedComparison,
    Sensitivity,
    corrected,
    equivalence,
    paired_difference,
    sensitivity,
)
from goalscope.stats.compare import least_p
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.transform import TRANSFORMS

ORIGINAL = "identity"
APART = tuple(name for name in CONDITIONS if name != "transform")
"""Tags of worlds that are never averaged: each of their combinations is compared with itself alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedComparison:
    """A measure compared on two sides, paired by grid, and its tests within their families.

    Attributes:
        measure: the measure compared.
        paired: the difference with its interval, and the grids without a partner.
        test: the p value of the mean difference after Holm's correction inside the family: decided by its interval.
        equivalence: two one-sided tests against the margin of the measure, None without one.
        shown: their p value after Holm's correction inside the family of all equivalence tests.
        about: further notes on the two sides.
    """

    measure: str
    paired: PairedComparison
    test: Corrected
    equivalence: Equivalence | None = None
    shown: Corrected | None = None
    about: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Verdict: "differs", "equivalent", "differs within the margin", "undecided" or "undefined"."""
        if math.isnan(self.test.p_value):
            return "undefined"
        equal = self.shown is not None and self.shown.rejected
        if self.test.rejected:
            return "differs within the margin" if equal else "differs"
        return "equivalent" if equal else "undecided"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes to print beside the numbers: exclusions, undefined results, reasons."""
        paired, equal = self.paired, self.equivalence
        texts = ["no common grid with a value on both sides"]
        if paired.labels:
            texts = [paired.difference.note, equal.note if equal else ""]
        left_out = (
            (len(paired.unpaired_a) + len(paired.unpaired_b), "grid", " without a partner"),
            (paired.undefined, "undefined value", ""),
        )
        texts += [
            f"{count:,} {noun}{'' if count == 1 else 's'}{ending} left out" for count, noun, ending in left_out if count
        ]
        # The note of an equivalence test's interval is mostly that of the difference.
        pieces = (piece for text in (*texts, self.test.note) for piece in text.split("; ") if piece)
        return *dict.fromkeys(pieces), *self.about


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformTest(CorrectedComparison):
    """One measure of one agent under one transform, transformed minus original.

    Attributes:
        agent, transform: the agent and the transform compared; the families are those of the agent.
        condition: the tags of `APART` that vary in the rows, by name.
        sensitivity: the size of the differences on single grids.
        exchange: the p value of its test after Holm's correction.
    """

    agent: str
    transform: str
    condition: Mapping[str, Tag]
    sensitivity: Sensitivity
    exchange: Corrected


def compare_transforms(
    rows: Rows,
    *,
    margin: Mapping[str, float],
    measures: Sequence[str] = (),
    level: float = 0.05,
) -> list[TransformTest]:
    """Compare each agent under each transform with itself on the original grids.

    The family of an agent is: the measures, each under each transform that its rows hold, in each condition of `APART`.
    A test that cannot be computed stays in its family and is never rejected.

    Args:
        rows: measured rows with the tags agent and transform.
        margin: measure -> its equivalence margin, > 0, in its unit; declared before the data.
        measures: the measures of the family; those of `margin` by default, which must be among them.
        level: family-wise level of each of the three families.

    Returns:
        Agent by agent, measure by measure, transform by transform; the same rows in any order give the same bytes.

    Raises:
        ValueError: no measure, a margin of a measure outside of the family or not above 0, rows without a transform or
            without originals.
    """
    names = list(measures) or list(margin)
    check_family(names, margin)
    check_transformed(rows)
    family_rows = rows.where(rows.among("measure", names))
    transforms = [name for name in TRANSFORMS if name != ORIGINAL and name in set(rows["transform"].tolist())]
    cells = [
        (name, transform, condition) for name in names for condition in _conditions(rows) for transform in transforms
    ]
    return [
        contrast
        for agent in sorted({str(name) for name in rows["agent"].tolist()})
        for contrast in _family(agent, family_rows.where(family_rows["agent"] == agent), cells, margin, level)
    ]


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


def check_declared(margin: Mapping[str, float], unbounded: Sequence[str] = ()) -> None:
    """Check the margins that a study declares before it runs; they cannot be changed afterwards.

    Args:
        margin: measure -> margin.
        unbounded: measures that it may have beside the registered ones, e.g. those of MEG.

    Raises:
        ValueError: an unknown measure, or a margin within which any two conditions are equal.
    """
    bounds = dict(measure_bounds()) | dict.fromkeys(unbounded, UNBOUNDED) if margin else {}
    for measure, width in margin.items():
        if measure not in bounds:
            raise ValueError(
                "the margins that a study declares must be those of measures, got one for "
                f"{measure!r}{near_miss(measure, list(bounds))}"
            )
        low, high = bounds[measure]
        if width >= high - low:
            raise ValueError(
                f"the equivalence margin of {measure!r} must be below the greatest difference there can be "
                f"({high - low:g}), got {width:g}: within it every two conditions are equal"
            )


def check_transformed(rows: Rows) -> None:
    """Check that rows hold originals and transformed versions of them.

    Raises:
        ValueError: originals or transformed rows are missing.
    """
    kinds = {str(name) for name in rows.tags.get("transform", ()) if name is not None}
    if ORIGINAL not in kinds or len(kinds) < 2:
        raise ValueError(
            "a comparison of transforms needs the original grids and transformed ones, got "
            f"{', '.join(sorted(kinds)) or 'worlds without transforms'}: give transforms: [identity, reflect, ...] in "
            "the study's worlds"
        )


def _conditions(rows: Rows) -> list[dict[str, Tag]]:
    """Return the combinations of the tags of `APART` that vary, sorted."""
    varying = [name for name in APART if name in rows.tags and len(set(rows.tags[name].tolist())) > 1]
    combinations = set(zip(*(rows.tags[name].tolist() for name in varying), strict=True)) if varying else {()}
    return [
        dict(zip(varying, values, strict=True))
        for values in sorted(combinations, key=lambda combination: tuple(map(str, combination)))
    ]


def _family(
    agent: str,
    rows: Rows,
    cells: Sequence[tuple[str, str, Mapping[str, Tag]]],
    margin: Mapping[str, float],
    level: float,
) -> list[TransformTest]:
    members: dict[str, dict[str, Any]] = {}
    for measure, transform, condition in cells:
        name = f"{measure}: {transform}" + "".join(f", {tag} {value}" for tag, value in condition.items())
        selected = rows.select(measure=measure, **condition)
        changed, original = (selected.select(transform=each) for each in (transform, ORIGINAL))
        sides, scale = both_sides(changed, original, bounds_of(selected))
        paired, equivalence_margin = paired_difference(*sides, **scale), margin.get(measure)
        members[name] = {
            "agent": agent,
            "measure": measure,
            "transform": transform,
            "condition": condition,
            "paired": paired,
            "equivalence": None if equivalence_margin is None else equivalence(paired, equivalence_margin, level=level),
            "sensitivity": sensitivity(*sides, **scale, rng=stream(0, "exchange test", agent, name)),
        }
    tested = {name: member["paired"].p_value for name, member in members.items()}
    exchange = corrected({name: member["sensitivity"].p_value for name, member in members.items()}, agent, level=level)
    judged = judge(members, tested, agent, level)
    return [TransformTest(**members[name], **tests, exchange=exchange[name]) for name, tests in judged.items()]


def both_sides(first: Rows, second: Rows, bounds: tuple[float, float]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return values and grids of the rows of one measure on two sides, with unit and bounds, as arguments of tests.

    Raises:
        ValueError: rows of several units.
    """
    units = sorted({*first.unit.tolist(), *second.unit.tolist()})
    if len(units) > 1:
        measures = ", ".join(dict.fromkeys([*first.measure.tolist(), *second.measure.tolist()]))
        raise ValueError(f"what is compared must have one unit, got {', '.join(units)} for {measures}")
    return (first.value, first.cluster, second.value, second.cluster), {"unit": "".join(units), "bounds": bounds}


def judge(
    members: Mapping[str, Mapping[str, Any]], p_values: Mapping[str, float], name: str, level: float
) -> dict[str, dict[str, Any]]:
    """Return ``test`` and ``shown`` of each member of a family: Holm's correction of each kind of test.

    Args:
        members: name of each comparison -> its fields, ``paired`` and ``equivalence`` among them.
        p_values: name of each comparison -> p value of its test of a difference, NaN for none.
        name: name of the family.
        level: family-wise level of each kind of test.
    """
    equal = {
        member: fields["equivalence"].p_value for member, fields in members.items() if fields["equivalence"] is not None
    }
    least = {member: least_p(len(fields["paired"].labels)) for member, fields in members.items()}
    test = corrected(p_values, name, level=level, least=least)
    shown = corrected(equal, f"{name}, equivalence", level=level)
    return {member: {"test": test[member], "shown": shown.get(member)} for member in members}


def bounds_of(rows: Rows) -> tuple[float, float]:
    """Return the bounds of the one measure in the rows: the declared ones, else [0, 1] for shares within it."""
    names = set(rows.measure.tolist())
    by_measure = {name: bounds for name, bounds in measure_bounds().items() if name in names}
    if len(by_measure) == 1:
        return next(iter(by_measure.values()))
    values = rows.value[~np.isnan(rows.value)]
    is_share = set(rows.unit.tolist()) == {"share"} and len(values) and values.min() >= 0 and values.max() <= 1
    return (0.0, 1.0) if is_share else UNBOUNDED
