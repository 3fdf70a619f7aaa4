"""Tests of sentences that compare agents, e.g. that an error predicts success."""

from itertools import combinations

import numpy as np

from goalscope.measures.exploration.relation import divergences, log_relation
from goalscope.papers.answers import Found, beyond
from goalscope.papers.item import QuotedClaim
from goalscope.stats import Estimate, regress
from goalscope.stats.rows import Rows

_STRONG = 0.5  # minimum share of the variance of success that a strong predictor explains


def predicts(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that the logarithm of an error explains most of the variance of success, and more than another error does.

    The slope must be below 0, and the two intervals must not overlap, which is stricter than an interval of the
    difference.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    first_relation, other = (log_relation(rows, name, agents) for name in (claim.measure, claim.than))
    parts = [(f"R^2, log {relation.error}", relation.r_squared) for relation in (first_relation, other)]
    high, low = first_relation.r_squared, other.r_squared
    why = f"over {len(first_relation.agents)} agents, slope {first_relation.slope:.2f}; strong is above {_STRONG:g}"
    if high.low > max(low.high, _STRONG) and first_relation.slope < 0:
        return "yes", parts, why
    if high.high < max(low.low, _STRONG) or (first_relation.slope > 0 and high.low > _STRONG):
        return "no", parts, why
    return "undecided", parts, why


def equal_but_different(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that two agents with equal success differ by more than a margin in some tenth of the episode.

    Intervals are simultaneous over the tenths of all pairs of agents, because a single pair is sufficient. The claim
    does not hold if all intervals lie inside the margin.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    measured, margin = (rows.measure == claim.measure).any(), claim.margin or 0.0
    pairs = divergences(rows, agents, measure=claim.measure) if measured else []
    if not pairs:
        return "untestable", (), "it needs two agents of success above .5, within .05 of each other"
    parts = [
        (f"{pair.first} less {pair.second}, tenth {number} of an episode", tenth)
        for pair in divergences(rows, agents, measure=claim.measure, families=len(pairs))
        for number, tenth in enumerate(pair.tenths, start=1)
    ]
    furthest = max(parts, key=lambda part: _surely_apart(part[1]))
    why = f"{len(pairs)} pairs of equal success, the tenth that is furthest apart; inside of ± {margin:g} is none"
    return beyond([tenth for _, tenth in parts], margin), [furthest], why


def _surely_apart(part: Estimate) -> tuple[float, float]:
    """Return a sort key: the smallest distance from 0 within the interval of a difference, then that of its value."""
    least = min(abs(part.low), abs(part.high)) if part.low * part.high > 0 else 0.0
    return least, abs(part.value)


def moved_differently(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that two agents change differently between the first and second value of a tag, paired by map.

    The claim does not hold if all differences between their changes lie inside the margin.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    if len(agents) < 2 or not rows.known(claim.over).any():
        return "untestable", (), f"it needs two models in both conditions of {claim.over}, the run has one"
    is_defined = (rows.measure == claim.measure) & ~np.isnan(rows.value)
    rows = rows.where(is_defined & rows.among(claim.over, claim.among))
    sign = np.where(np.array([value == claim.among[1] for value in rows[claim.over].tolist()]), 1.0, -1.0) / 2
    columns = {f"level of {agent}": (rows["agent"] == agent).astype(np.float64) for agent in agents}
    columns |= {agent: (rows["agent"] == agent) * sign for agent in agents}
    fitted, pairs = regress(rows.value, columns, rows.cluster.tolist(), unit="share"), list(combinations(agents, 2))
    parts = [
        (
            f"change of {second} less that of {first}",
            fitted.estimate({second: 1.0, first: -1.0}, confidence=1 - 0.05 / len(pairs)),
        )
        for first, second in pairs
    ]
    margin = claim.margin or 0.0
    why = f"{claim.among[0]} to {claim.among[1]}; inside of ± {margin:g} is none"
    return beyond([part for _, part in parts], margin), parts, why
