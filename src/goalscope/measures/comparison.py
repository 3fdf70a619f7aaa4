"""Compare two sides on the worlds they share: differences paired by world, and families of tests.

Every comparison in the package is made here. A pairing defines which rows form the two sides: two agents, two runs, two
values of a tag, a transform and the originals, a checkpoint and the first one, or two models of an evaluation. For each
measure and pair there are up to three tests, each kind with its own family: whether the mean differs (its interval
excludes 0), whether the mean difference is below a margin declared in advance (equivalence), and whether single grids
differ even if their differences cancel in the mean (exchange test).

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
from goalscope.stats.estimate import natural_order
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.transform import TRANSFORMS

LEVEL = 0.05
ORIGINAL = "identity"
APART = tuple(name for name in CONDITIONS if name != "transform")
"""Tags of worlds that are never averaged: each combination of their values is compared separately."""

World = tuple[Tag, ...]
"""A grid and its conditions. Two values are compared only if both agree."""

_PLAIN: dict[str, Tag] = {"transform": ORIGINAL, "control": False}
"""Values of the rows without these tags."""
_PAPER_ORDER = ("reflect", "rotate", "swap", "transpose")
"""The transforms in the order of Table 3 of the paper."""


@dataclass(frozen=True, slots=True)
class SideRows:
    """One of the two sides of a comparison, such as one of two agents: its name, and its rows of each measure.

    Attributes:
        name: name of the side.
        rows: its rows, one value of one measure each.
        left_out: number of its worlds that the other side does not have.
        episodes: number of its episodes; 0 unless the sides may share some.
        copies: number of these episodes that the other side has, too, as in a run and its copy.
        elsewhere: whether the sides share no world and are compared nevertheless.
        tags: named facts that distinguish this pair of sides from others, besides the names.
    """

    name: str
    rows: Rows
    left_out: int = 0  # number of its worlds that the other side does not have
    episodes: int = 0  # number of its episodes; 0 unless the sides may share some
    copies: int = 0  # number of these that the other side has too, as in a run and its copy
    elsewhere: bool = False  # whether the sides share no world and are compared nevertheless
    tags: Mapping[str, Tag] = field(default_factory=dict)  # tags that distinguish this pair, besides the names

    @property
    def copied(self) -> bool:
        """Whether the other side contains all episodes of this side, so that there is nothing to compare."""
        return 0 < self.copies == self.episodes


Pair = Sequence[SideRows]
"""The two sides of a comparison, the first minus the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Comparison of one measure between two sides, such as two agents (first minus second), with its tests.

    Attributes:
        measure: name of the measure.
        first, second: names of the sides.
        tags: named facts that both sides share beyond their worlds, e.g. head and control of a probe. For a transform
            (such as a rotation of the grids): its name, the agent, and the tags of `APART` that vary.
        paired: the difference with its interval, and the grids without a partner.
        test: p value of the mean difference, derived from its interval, after Holm's correction within the family.
        equivalence: two one-sided tests against the margin of the measure; None without a margin.
        shown: p value of these two tests after Holm's correction within the family of all equivalence tests.
        sensitivity: size of the differences on single grids; None where they were not tested.
        exchange: p value, after Holm's correction, of the test whether the sides differ on any single grid.
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
        """What the tests say in words: "differs", "equivalent", "differs within the margin", "undecided" or
        "undefined".
        """
        if math.isnan(self.test.p_value):
            return "undefined"
        equal = self.shown is not None and self.shown.rejected
        if self.test.rejected:
            return "differs within the margin" if equal else "differs"
        return "equivalent" if equal else "undecided"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes to print beside the numbers: what was left out, and why a result is undefined."""
        paired, equal = self.paired, self.equivalence
        texts = ["no common grid with a value on both sides"]
        if paired.labels:
            texts = [paired.difference.note, equal.note if equal else ""]
        left_out = (
            (len(paired.unpaired_a) + len(paired.unpaired_b), "grid", " without a partner"),
            (paired.undefined, "undefined value", ""),
        )
        texts += [f"{counted(count, noun)}{ending} left out" for count, noun, ending in left_out if count]
        # The note on the interval of an equivalence test usually repeats that of the difference.
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
    """Compare pairs of sides (such as two agents) in several measures, on the grids that both sides of a pair share.

    Tests of one kind are corrected together for multiple testing (Holm). A pair without a common grid, or without
    values, has no test. It still counts in its family and is never rejected. The same holds for two sides with
    identical episodes; if they share only some episodes, equivalence is not tested. Sides marked `elsewhere` are
    compared on their own grids.

    Args:
        pairs: the pairs to compare, each with names of its own.
        measures: names of the measures to compare.
        name: name of the family of tests.
        margin: measure -> largest difference that counts as none. Without it, equivalence is not tested.
        apart: measure -> names of tags. Values that differ in one of these tags are not averaged: each combination of
            values found on both sides is compared separately. None by default.
        level: family-wise error rate of each kind of test.
        single_grids: whether to measure and test the differences on single grids, too.

    Returns:
        The comparisons, ordered by measure, then pair, then combination of tags.

    Raises:
        ValueError: if there is no measure, a measure is repeated, or a margin is given for a measure outside the
            family.
    """
    margins = dict(margin or {})
    check_family(measures, margins)
    return in_family(
        [
            contrast(measure, *sides, margin=margins.get(measure), level=level, exchange=name if single_grids else None)
            for measure in measures
            for pair in pairs
            for sides in _matched(pair, measure, (apart or {}).get(measure, ()))
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
    """Compare one measure between two sides (such as two agents), without correction for other comparisons.

    Args:
        measure: name of the measure.
        first, second: the sides, with rows of this measure only; the comparison takes its tags from the first.
        margin: largest difference that counts as none. Without it, equivalence is not tested.
        level: error rate of each kind of test.
        exchange: label that seeds the random exchanges of single grids; None skips the exchange test.
        scale: unit, bounds or confidence, if not those of the rows and 95 %.

    Raises:
        ValueError: if the rows have several units, or values outside the bounds.
    """
    sides, own_scale = both_sides(first.rows, second.rows, bounds_of(Rows.concatenate([first.rows, second.rows])))
    scale = own_scale | scale
    paired = (unpaired_difference if first.elsewhere else paired_difference)(*sides, **scale)
    # Only paired values can show equality, and not where both sides hold the same episodes.
    equal = None if margin is None or first.elsewhere else equivalence(paired, margin, level=level)
    if equal and first.copies:
        equal = replace(equal, p_value=math.nan, equivalent=False)
    p_value = math.nan if first.copied and second.copied else paired.p_value
    tag_text = "".join(f", {tag} {value}" for tag, value in first.tags.items())
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
        test=_alone(f"{measure}: {first.name} against {second.name}{tag_text}", p_value, level),
        equivalence=equal,
        sensitivity=single,
        about=_side_notes(first, second, drawn),
    )


def _alone(name: str, p_value: float, level: float) -> Corrected:
    return Corrected(name=name, p_value=p_value, adjusted=p_value, rejected=p_value <= level)


def in_family(comparisons: Sequence[Compared], name: str, level: float) -> list[Compared]:
    """Correct the tests of several comparisons for multiple testing by Holm's method, each kind of test separately.

    Args:
        comparisons: comparisons from `contrast` with different names.
        name: name of the family of tests.
        level: family-wise error rate of each kind of test.

    Returns:
        The comparisons with corrected tests.

    Raises:
        ValueError: if two comparisons have the same name.
    """
    members = {comparison.test.name: comparison for comparison in comparisons}
    if len(members) < len(comparisons):
        raise ValueError(f"comparisons in a family must have different names, got a repeated one in {name!r}")
    test = corrected(
        {member: comparison.test.p_value for member, comparison in members.items()},
        name,
        level=level,
        least={member: least_p(len(comparison.paired.labels)) for member, comparison in members.items()},
    )
    equal = {
        member: comparison.equivalence.p_value
        for member, comparison in members.items()
        if comparison.equivalence is not None
    }
    single = {
        member: comparison.sensitivity.p_value
        for member, comparison in members.items()
        if comparison.sensitivity is not None
    }
    equivalence_tests = corrected(equal, f"{name}, equivalence", level=level)
    exchange = corrected(single, name, level=level)
    return [
        replace(comparison, test=test[member], shown=equivalence_tests.get(member), exchange=exchange.get(member))
        for member, comparison in members.items()
    ]


def compare_transforms(
    rows: Rows,
    *,
    margin: Mapping[str, float],
    measures: Sequence[str] = (),
    agents: Sequence[str] = (),
    level: float = LEVEL,
) -> list[Compared]:
    """Compare each agent on transformed (e.g. rotated) grids with itself on the originals, transformed minus original.

    The tests of one agent are corrected together: every measure under every transform in the rows, in every combination
    of the tags in `APART`. A test that cannot be computed still counts in its family and is never rejected.

    Args:
        rows: measured rows with the tags ``agent`` and ``transform``.
        margin: measure -> equivalence margin, > 0, in the unit of the measure. Declare it before seeing the data.
        measures: measures of the family; by default those of ``margin``. Must include them.
        agents: the agents in the order of the output; sorted by default.
        level: family-wise error rate of each of the three kinds of test.

    Returns:
        The comparisons, ordered by agent, measure, condition and transform. The order of the rows does not affect them.

    Raises:
        ValueError: no measure; a margin that is not above 0 or belongs to a measure outside the family; no transformed
            or no original rows.
    """
    names = list(measures) or list(margin)
    check_family(names, margin)
    check_transformed(rows)
    family_rows = rows.where(rows.among("measure", names))
    transform_names = set(rows["transform"].tolist()) - {ORIGINAL}
    transforms = [name for name in dict.fromkeys((*_PAPER_ORDER, *TRANSFORMS)) if name in transform_names]
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
    """Check that a family of tests has measures, and equivalence margins only for these measures.

    Args:
        measures: names of the measures.
        margin: measure -> largest difference that counts as none.

    Raises:
        ValueError: if there is no measure, a measure is repeated, or a margin is given for a measure outside the
            family.
    """
    if not measures or len(set(measures)) != len(measures):
        raise ValueError(
            f"a family of tests needs measures that are all different, got {list(measures)}: the correction for "
            "multiple tests depends on how many there are"
        )
    foreign = [name for name in margin if name not in measures]
    if foreign:
        raise ValueError(
            f"each margin must belong to a measure of the family ({'; '.join(measures)}), got a margin for "
            f"{'; '.join(foreign)}: add that measure or remove its margin"
        )


def check_declared(margin: Mapping[str, float], unbounded: Sequence[str] = ()) -> None:
    """Check the equivalence margins that a study declares before it runs and cannot change afterwards.

    Args:
        margin: measure -> largest difference that counts as none.
        unbounded: additional measures that may have a margin, e.g. those of MEG.

    Raises:
        ValueError: if a measure is unknown, or a margin is so wide that any two conditions would be equal.
    """
    bounds = dict(measure_bounds()) | dict.fromkeys(unbounded, UNBOUNDED) if margin else {}
    for measure, width in margin.items():
        if measure not in bounds:
            raise ValueError(
                f"margins must be declared for measures, got a margin for {measure!r}{near_miss(measure, list(bounds))}"
            )
        low, high = bounds[measure]
        if width >= high - low:
            raise ValueError(
                f"the equivalence margin of {measure!r} must be below its range ({high - low:g}), got {width:g}: "
                "within this margin any two conditions would count as equal"
            )


def check_transformed(rows: Rows) -> None:
    """Check that rows contain both original and transformed (e.g. rotated) grids, by their tag "transform".

    Raises:
        ValueError: if originals or transformed grids are missing.
    """
    kinds = {str(name) for name in rows.tags.get("transform", ()) if name is not None}
    if ORIGINAL not in kinds or len(kinds) < 2:
        raise ValueError(
            "comparing transforms needs rows of original and transformed grids, got only "
            f"{', '.join(sorted(kinds)) or 'worlds without transforms'}: set transforms: [identity, reflect, ...] for "
            "the worlds of the study"
        )


def both_sides(first: Rows, second: Rows, bounds: tuple[float, float]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn the rows of one measure on two sides into arguments for tests such as `paired_difference`.

    Args:
        first, second: rows of the two sides.
        bounds: least and greatest possible value of the measure.

    Returns:
        Positional arguments (values and grids of the first side, then of the second), and keyword arguments (unit and
        bounds).

    Raises:
        ValueError: if the rows have several units.
    """
    units = sorted({*first.unit.tolist(), *second.unit.tolist()})
    if len(units) > 1:
        measures = ", ".join(dict.fromkeys([*first.measure.tolist(), *second.measure.tolist()]))
        raise ValueError(f"compared values must share one unit, got {', '.join(units)} for {measures}")
    return (first.value, first.cluster, second.value, second.cluster), {"unit": "".join(units), "bounds": bounds}


def bounds_of(rows: Rows) -> tuple[float, float]:
    """Return the least and greatest possible value of the measure in the rows.

    These are the bounds that the measure declares, or [0, 1] for shares within that range; otherwise they are infinite.
    """
    names = set(rows.measure.tolist())
    by_measure = {name: bounds for name, bounds in measure_bounds().items() if name in names}
    if len(by_measure) == 1:
        return next(iter(by_measure.values()))
    values = rows.value[~np.isnan(rows.value)]
    is_share = set(rows.unit.tolist()) == {"share"} and len(values) and values.min() >= 0 and values.max() <= 1
    return (0.0, 1.0) if is_share else UNBOUNDED


def _matched(pair: Pair, measure: str, separate_tags: Sequence[str]) -> Iterator[tuple[SideRows, SideRows]]:
    """Yield two sides with the rows of a measure whose tags agree; a pair without rows is yielded once, empty."""
    first, second = pair
    rows, other_rows = (side.rows.where(side.rows.measure == measure) for side in pair)
    if not separate_tags:
        yield replace(first, rows=rows), replace(second, rows=other_rows)
        return
    all_rows = Rows.concatenate([rows, other_rows])
    codes, first_count = numbers_of(all_rows, separate_tags), len(rows)
    common, ends = np.intersect1d(codes[:first_count], codes[first_count:]), np.unique(codes, return_index=True)
    tags = {
        code: {
            name: tag
            for name in separate_tags
            if (tag := all_rows[name][index] if name in all_rows.tags else None) is not None
        }
        for code, index in zip(*(end.tolist() for end in ends), strict=True)
    }
    order = sorted(common.tolist(), key=lambda code: [natural_order(tags[code].get(name)) for name in separate_tags])
    for code in order:
        own_rows, rows_beside = rows.where(codes[:first_count] == code), other_rows.where(codes[first_count:] == code)
        yield replace(first, rows=own_rows, tags={**first.tags, **tags[code]}), replace(second, rows=rows_beside)
    if not order:
        yield replace(first, rows=rows.at(slice(0))), replace(second, rows=other_rows.at(slice(0)))


def _side_notes(first: SideRows, second: SideRows, drawn: bool) -> tuple[str, ...]:
    """Return notes on a comparison: worlds left out, shared episodes, random controls."""
    notes = [
        f"{counted(side.left_out, 'world')} of {side.name} without a partner left out"
        for side in (first, second)
        if side.left_out
    ]
    if drawn:
        notes.append("a random control: the mean of its draws, whose spread interval and test do not hold")
    if first.copies:
        shared_count, episode_count = first.copies + second.copies, first.episodes + second.episodes
        notes.append(
            "the same episodes on both sides: nothing is compared"
            if first.copied and second.copied
            else f"{shared_count} of {counted(episode_count, 'episode')} are the same on both sides: "
            "no test can show equality"
        )
    return tuple(notes)


def worlds_of(rows: Rows, between: str = "") -> list[World]:
    """Return, for each row, what identifies its world in a comparison: its grid and the values of its conditions.

    Conditions are tags such as "transform", in which versions of a grid can differ.

    Args:
        rows: the rows.
        between: name of the condition whose values are compared, which is left out; "" for none.
    """
    columns = [
        [_PLAIN.get(name) if value is None else value for value in rows.tags.get(name, [None] * len(rows))]
        for name in CONDITIONS
        if name not in ("kind", between)  # the name of a grid does not make it another world
    ]
    return list(zip(rows.cluster.tolist(), *columns, strict=True))


def shared_worlds(*sides: SideRows, between: str = "") -> list[SideRows]:
    """Restrict the sides of a comparison to the worlds that all of them have: the same grid under the same conditions.

    Args:
        sides: the sides.
        between: name of the condition whose values are compared, in which worlds may differ; "" for none.
    """
    worlds = [worlds_of(side.rows, between) for side in sides]
    common = set.intersection(*map(set, worlds))
    return [
        replace(
            side,
            rows=side.rows.where(
                np.fromiter((world in common for world in side_worlds), dtype=bool, count=len(side_worlds))
            ),
            left_out=len(set(side_worlds) - common),
        )
        for side, side_worlds in zip(sides, worlds, strict=True)
    ]
