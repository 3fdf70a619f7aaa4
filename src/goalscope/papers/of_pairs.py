"""Tests of sentences that compare paired results on the same grids.

The pairs are transformed and original grids, or probes trained on one size and on all sizes.
"""

from collections.abc import Callable, Iterator
from typing import Any

from goalscope._ground.rng import stream
from goalscope.goals.finding import Answer
from goalscope.measures.comparison import ORIGINAL, both_sides, bounds_of, check_transformed
from goalscope.papers.answers import Found, inside, joined, on_side
from goalscope.papers.item import QuotedClaim
from goalscope.stats import Estimate, paired_difference, sensitivity
from goalscope.stats.rows import Rows
from goalscope.worlds.transform import TRANSFORMS

_GENERAL = "general"  # scope of the probe trained on all sizes; the scope of a probe for one size is its shape
Sides = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Name of the changed side; values and grids of both; their unit and bounds."""


def unmoved(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure is the same under each transform, i.e. each mean paired difference lies inside the margin."""
    margin, sides = claim.margin or 0.0, list(_transforms(rows))
    confidence = 1 - 0.05 / len(sides)
    parts = [
        (f"{name} less original", paired_difference(*pair, **scale, confidence=confidence).difference)
        for name, pair, scale in sides
    ]
    why = f"no difference is one inside of ± {margin:g}; “not significant” shows none"
    return inside([part for _, part in parts], margin), parts, why


def unmoved_on_each(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure is the same on single grids, i.e. the root mean square difference is below the margin.

    Differences can cancel in a mean over random grids. For example, an agent that fails whenever the goal lies to the
    left loses by a reflection on as many grids as it gains.
    """
    margin, sides = claim.margin or 0.0, list(_transforms(rows))
    parts, answers = [], list[Answer]()
    for name, pair, scale in sides:
        rng = stream(0, "unmoved on each grid", name)
        effect = sensitivity(*pair, **scale, rng=rng, confidence=1 - 0.05 / len(sides), draws=1)
        part = Estimate(
            value=effect.value,
            low=effect.low,
            high=effect.high,
            n=effect.square.n,
            clusters=effect.square.clusters,
            method=f"root of the mean squared difference, {effect.square.method}",
            unit=scale["unit"],
            confidence=effect.square.confidence,
            note=effect.note,
        )
        parts.append((f"{name} and original, root mean square over grids", part))
        answers.append(inside([part], margin))
    return joined(answers), parts, f"true differences of single grids below {margin:g} count as none"


def _transforms(rows: Rows) -> Iterator[Sides]:
    """Yield the values under each transform together with those on the original grids."""
    check_transformed(rows)
    transforms, original = set(rows["transform"].tolist()), rows.select(transform=ORIGINAL)
    for name in TRANSFORMS:
        if name != ORIGINAL and name in transforms:
            yield name, *both_sides(rows.select(transform=name), original, bounds_of(rows))


def one_size(judge: Callable[[list[Estimate], QuotedClaim], Answer]) -> Callable[[QuotedClaim, Rows], Found]:
    """Build the test of the difference between single-size probes and the general probe, per size on the same grids."""

    def test(claim: QuotedClaim, rows: Rows) -> Found:
        sizes = list(claim.among) or sorted(dict.fromkeys(rows["size"].tolist()), key=str)
        general = rows["scope"] == _GENERAL
        parts = []
        for size in sizes:
            of_size = rows["size"] == size
            special, other = rows.where(of_size & ~general), rows.where(of_size & general)
            if not len(special) or not len(other):
                which = "the general probe" if len(special) else "a probe of that size alone"
                return "untestable", (), f"no value of {which} at size {size}"
            pair, scale = both_sides(special, other, bounds_of(rows))
            difference = paired_difference(*pair, **scale, confidence=1 - 0.05 / len(sizes)).difference
            parts.append((f"size {size}: probe of that size less general", difference))
        bound = claim.margin if claim.margin is not None else claim.bound
        why = "" if not bound else f"inside of ± {bound:g}" if claim.margin else f"by more than {abs(bound):g}"
        return judge([part for _, part in parts], claim), parts, why

    return test


one_size_higher = one_size(lambda parts, claim: on_side(parts, 1, claim.bound or 0.0))
one_size_lower = one_size(lambda parts, claim: on_side(parts, -1, claim.bound or 0.0))
one_size_equal = one_size(lambda parts, claim: inside(parts, claim.margin or 0.0))
