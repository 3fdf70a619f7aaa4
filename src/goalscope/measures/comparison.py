"""Comparison of two sides on the worlds that they share: differences paired by world, and their families of tests.

Every comparison of the package is made here. A pairing says which rows form the two sides: two agents, two runs, two
values of a tag, a transform and the originals, a checkpoint and the first one, two models of an evaluation. Each
measure of each pair is tested in up to three ways, each with its own family: the mean differs (its interval leaves out
0), the mean difference is smaller than a margin that was declared in advance (equivalence), and single grids differ,
also where their differences cancel in the mean (exchange test).

Source: behavioural and representational evaluation, section 4.2, Table 3 and Fig. 14, for transforms.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from goalscope._ground.checks import near_miss
from goalscope._ground.rng import stream
from goalscope._ground.words import counted
from goalscope.measures.behaviour import COMPARED, measure_bounds
from goalscope.measures.table import CONDITIONS
from goalscope.stats import (
    DRAW,
    UNBOUNDED,
    Corrected,
    Equivalence,
    PairedComparison,
    Sensitivity,
    corrected,
    equivalence,
    numbers_of,
    paired_difference,
    sensitivity,
    unpaired_difference,
)
from goalscope.stats.compare import least_p
from goalscope.stats.groups import natural_order
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.transform import TRANSFORMS

LEVEL = 0.05
ORIGINAL = "identity"
APART = tuple(name for name in CONDITIONS if name != "transform")
"""Tags of worlds that are never averaged: each of their combinations is compared with itself alone."""

World = tuple[Tag, ...]
"""A grid and its conditions: two values are compared only if they share both."""

_PLAIN: dict[str, Tag] = {"transform": ORIGINAL, "control": False}
"""Values of rows without these tags."""
_PAPER_ORDER = ("reflect", "rotate", "swap", "transpose")
"""The transforms in the order of Table 3 of the paper."""


@dataclass(frozen=True, slots=True)
class SideRows:
    """One side of a comparison."""

    name: str
    rows: Rows
    left_out: int = 0  # number of worlds left out, which the other side lacks
    episodes: int = 0  # number of its episodes; 0 unless both sides may share some
    copies: int = 0  # number of them that are also on the other side, as in a run and its copy
    elsewhere: bool = False  # whether the sides have no world in common and are compared all the same
    tags: Mapping[str, Tag] = field(default_factory=dict)  # what tells its pair from others, beside the names

    @property
    def copied(self) -> bool:
        """Whether the other side has all of its episodes."""
        return 0 < self.copies == self.episodes


Pair = Sequence[SideRows]
"""The two sides of a comparison, the first minus the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A measure compared on two sides, first minus second, and its tests within their families.

    Attributes:
        measure: the measure compared.
        first, second: names of the sides.
        tags: what the rows of both sides share beyond their worlds, e.g. head and control of a probe. For a transform
            its name, the agent, and the tags of `APART` that vary.
        paired: the difference with its interval, and the grids without a partner.
        test: the p value of the mean difference after Holm's correction inside the family: decided by its interval.
        equivalence: two one-sided tests against the margin of the measure, None without one.
        shown: their p value after Holm's correction inside the family of all equivalence tests.
        sensitivity: the size of the differences on single grids, None where they were not tested.
        exchange: the p value of its exchange test after Holm's correction.
        about: further notes on the two sides.
    """

    measure: str
    first: str
    second: str
    paired: PairedComparison
    test: Corrected
    tags: Mapping[str, Tag] = field(default_factory=dict)
    equivalence: Equivalence | None = None
    shown: Corrected | None = None
    sensitivity: Sensitivity | None = None
    exchange: Corrected | None = None
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
        texts += [f"{counted(count, noun)}{ending} left out" for count, noun, ending in left_out if count]
        # The note of an equivalence test's interval is mostly that of the difference.
        pieces = (piece for text in (*texts, self.test.note) for piece in text.split("; ") if piece)
        return *dict.fromkeys(pieces), *self.about


def compare(
    pairs: Sequence[Pair],
    measures: Sequence[str] = COMPARED,
    *,
    name: str = "pairs",
    margin: Mapping[str, float] | None = None,
    apart: Mapping[str, Sequence[str]] | None = None,
    level: float = LEVEL,
    single_grids: bool = False,
) -> list[Compared]:
    """Compare pairs of sides in all measures on the grids that they share: one family of each kind of test.

    Values that differ in a tag of ``apart`` are not averaged: each combination that both sides have is a comparison.

    A pair without a common grid, or without a value, has no test; it stays in the family and is never rejected. Nor has
    a pair of the same episodes; where some of them are the same, equivalence is not tested. Sides that are `elsewhere`
    are compared on their own grids.

    Args:
        pairs: the compared pairs, each with its own names.
        measures: the measures.
        name: name of the family.
        margin: measure -> maximum difference that counts as none; no equivalence is tested without one.
        apart: measure -> tags that tell its rows apart; none by default.
        level: family-wise level of each kind of test.
        single_grids: whether the differences on single grids are measured and tested, too.

    Returns:
        Measure by measure, pair by pair, combination of tags by combination.

    Raises:
        ValueError: no measure or one twice, or a margin of a measure outside of the family.
    """
    margins = dict(margin or {})
    check_family(measures, margins)
    return in_family(
        [
            contrast(
                measure,
                replace(first, rows=first_rows, tags={**first.tags, **tags}),
                replace(second, rows=second_rows),
                margin=margins.get(measure),
                level=level,
                exchange=name if single_grids else None,
            )
            for measure in measures
            for first, second, tags, first_rows, second_rows in _matched(pairs, measure, (apart or {}).get(measure, ()))
        ],
        name,
        level,
    )


def contrast(
    measure: str,
    first: SideRows,
    second: SideRows,
    *,
    margin: float | None = None,
    level: float = LEVEL,
    exchange: str | None = None,
    **scale: Any,
) -> Compared:
    """Compare two sides that hold the rows of one measure; its tests are those of a family of its own.

    Args:
        measure: the measure.
        first, second: the sides; tags of the first are those of the comparison.
        margin: maximum difference that counts as none; no equivalence is tested without one.
        level: level of each kind of test.
        exchange: what the random exchanges of single grids are drawn for; None leaves them out.
        scale: unit, bounds or confidence in place of those of the rows and 95 %.

    Raises:
        ValueError: rows of several units, or values outside of the bounds.
    """
    sides, own_scale = both_sides(first.rows, second.rows, bounds_of(Rows.concatenate([first.rows, second.rows])))
    scale = own_scale | scale
    paired = (unpaired_difference if first.elsewhere else paired_difference)(*sides, **scale)
    # Equality is shown by pairs alone, and never by episodes that are the same on both sides.
    equal = None if margin is None or first.elsewhere else equivalence(paired, margin, level=level)
    if equal and first.copies:
        equal = replace(equal, p_value=math.nan, equivalent=False)
    p_value = math.nan if first.copied and second.copied else paired.p_value
    where = "".join(f", {tag} {value}" for tag, value in first.tags.items())
    drawn = any(side.rows.known(DRAW).any() for side in (first, second))
    single = None
    if exchange is not None:
        single = sensitivity(*sides, **scale, rng=stream(0, "exchange test", exchange, f"{measure}: {first.name}"))
    return Compared(
        measure=measure,
        first=first.name,
        second=second.name,
        tags=first.tags,
        paired=paired,
        test=_alone(f"{measure}: {first.name} against {second.name}{where}", p_value, level),
        equivalence=equal,
        sensitivity=single,
        about=_about(first, second, drawn),
    )


def _alone(name: str, p_value: float, level: float) -> Corrected:
    return Corrected(name=name, p_value=p_value, adjusted=p_value, rejected=p_value <= level)


def in_family(comparisons: Sequence[Compared], name: str, level: float) -> list[Compared]:
    """Return comparisons with Holm's correction of each kind of test over all of them.

    Args:
        comparisons: from `contrast`, no two of the same name.
        name: name of the family.
        level: family-wise level of each kind of test.
    """
    members = {one.test.name: one for one in comparisons}
    if len(members) < len(comparisons):
        raise ValueError(f"the comparisons of a family must have different names, got {len(comparisons)} in {name}")
    test = corrected(
        {member: one.test.p_value for member, one in members.items()},
        name,
        level=level,
        least={member: least_p(len(one.paired.labels)) for member, one in members.items()},
    )
    equal = {member: one.equivalence.p_value for member, one in members.items() if one.equivalence is not None}
    single = {member: one.sensitivity.p_value for member, one in members.items() if one.sensitivity is not None}
    shown = corrected(equal, f"{name}, equivalence", level=level)
    exchange = corrected(single, name, level=level)
    return [
        replace(one, test=test[member], shown=shown.get(member), exchange=exchange.get(member))
        for member, one in members.items()
    ]


def compare_transforms(
    rows: Rows,
    *,
    margin: Mapping[str, float],
    measures: Sequence[str] = (),
    agents: Sequence[str] = (),
    level: float = LEVEL,
) -> list[Compared]:
    """Compare each agent under each transform with itself on the original grids, transformed minus original.

    The family of an agent is: the measures, each under each transform that its rows hold, in each condition of `APART`.
    A test that cannot be computed stays in its family and is never rejected.

    Args:
        rows: measured rows with the tags agent and transform.
        margin: measure -> its equivalence margin, > 0, in its unit; declared before the data.
        measures: the measures of the family; those of `margin` by default, which must be among them.
        agents: the agents in the order of the result; sorted by default.
        level: family-wise level of each of the three families.

    Returns:
        Agent by agent, measure by measure, condition by condition, transform by transform; the same rows in any order
        give the same bytes.

    Raises:
        ValueError: no measure, a margin of a measure outside of the family or not above 0, rows without a transform or
            without originals.
    """
    names = list(measures) or list(margin)
    check_family(names, margin)
    check_transformed(rows)
    family_rows = rows.where(rows.among("measure", names))
    there = set(rows["transform"].tolist()) - {ORIGINAL}
    transforms = [name for name in dict.fromkeys((*_PAPER_ORDER, *TRANSFORMS)) if name in there]
    conditions = _conditions(rows)
    compared = []
    present = {str(name) for name in rows["agent"].tolist()}
    for agent in (name for name in agents or sorted(present) if name in present):
        pairs = [
            _transformed(family_rows.select(agent=agent, **condition), agent, transform, condition)
            for condition in conditions
            for transform in transforms
        ]
        compared += compare(pairs, names, name=agent, margin=margin, level=level, single_grids=True)
    return compared


def _transformed(rows: Rows, agent: str, transform: str, condition: Mapping[str, Tag]) -> Pair:
    name = transform + "".join(f", {tag} {value}" for tag, value in condition.items())
    tags = {"agent": agent, "transform": transform, **condition}
    original = SideRows(ORIGINAL, rows.select(transform=ORIGINAL))
    return SideRows(name, rows.select(transform=transform), tags=tags), original


def _conditions(rows: Rows) -> list[dict[str, Tag]]:
    """Return the combinations of the tags of `APART` that vary, sorted."""
    varying = [name for name in APART if name in rows.tags and len(set(rows.tags[name].tolist())) > 1]
    combinations = set(zip(*(rows.tags[name].tolist() for name in varying), strict=True)) if varying else {()}
    return [
        dict(zip(varying, values, strict=True))
        for values in sorted(combinations, key=lambda combination: tuple(map(natural_order, combination)))
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


def bounds_of(rows: Rows) -> tuple[float, float]:
    """Return the bounds of the one measure in the rows: the declared ones, else [0, 1] for shares within it."""
    names = set(rows.measure.tolist())
    by_measure = {name: bounds for name, bounds in measure_bounds().items() if name in names}
    if len(by_measure) == 1:
        return next(iter(by_measure.values()))
    values = rows.value[~np.isnan(rows.value)]
    is_share = set(rows.unit.tolist()) == {"share"} and len(values) and values.min() >= 0 and values.max() <= 1
    return (0.0, 1.0) if is_share else UNBOUNDED


def _matched(
    pairs: Sequence[Pair], measure: str, apart: Sequence[str]
) -> Iterator[tuple[SideRows, SideRows, dict[str, Tag], Rows, Rows]]:
    """Yield each pair of sides with the rows of a measure whose tags are equal; without any once, and without rows."""
    for one, other in pairs:
        rows, other_rows = (side.rows.where(side.rows.measure == measure) for side in (one, other))
        if not apart:
            yield one, other, {}, rows, other_rows
            continue
        both = Rows.concatenate([rows, other_rows])
        codes, first = numbers_of(both, apart), len(rows)
        common, ends = np.intersect1d(codes[:first], codes[first:]), np.unique(codes, return_index=True)
        tags = {
            code: {name: tag for name in apart if (tag := both[name][index] if name in both.tags else None) is not None}
            for code, index in zip(*(end.tolist() for end in ends), strict=True)
        }
        order = sorted(common.tolist(), key=lambda code: [natural_order(tags[code].get(name)) for name in apart])
        for code in order:
            yield one, other, tags[code], rows.where(codes[:first] == code), other_rows.where(codes[first:] == code)
        if not order:
            yield one, other, {}, rows.at(slice(0)), other_rows.at(slice(0))


def _about(first: SideRows, second: SideRows, drawn: bool) -> tuple[str, ...]:
    """Return what a reader must know of a comparison: worlds left out, episodes of both sides, random controls."""
    notes = [
        f"{counted(side.left_out, 'world')} of {side.name} without a partner left out"
        for side in (first, second)
        if side.left_out
    ]
    if drawn:
        notes.append("a random control: the mean of its draws, whose spread interval and test do not hold")
    if first.copies:
        both, all_of = first.copies + second.copies, first.episodes + second.episodes
        notes.append(
            "the same episodes on both sides: nothing is compared"
            if first.copied and second.copied
            else f"{both} of {counted(all_of, 'episode')} are the same on both sides: no test can show equality"
        )
    return tuple(notes)


def worlds_of(rows: Rows, between: str = "") -> list[World]:
    """Return the world of each row; a tag whose values are compared with each other is no condition of it."""
    columns = [
        [_PLAIN.get(name) if value is None else value for value in rows.tags.get(name, [None] * len(rows))]
        for name in CONDITIONS
        if name not in ("kind", between)  # the name of a grid does not make it another world
    ]
    return list(zip(rows.cluster.tolist(), *columns, strict=True))


def shared_worlds(*sides: SideRows, between: str = "") -> list[SideRows]:
    """Return sides with the worlds that all of them have: the same grid in the same conditions, ``between`` aside."""
    worlds = [worlds_of(side.rows, between) for side in sides]
    common = set.intersection(*map(set, worlds))
    return [
        replace(
            side,
            rows=side.rows.where(np.fromiter((world in common for world in own), dtype=bool, count=len(own))),
            left_out=len(set(own) - common),
        )
        for side, own in zip(sides, worlds, strict=True)
    ]
