"""Sentences that relate agents with each other: an error that predicts success, equal success and other behaviour."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from goalscope.measures.exploration.errors import PROGRESS_SHARE
from goalscope.measures.exploration.relation import divergences, log_relation
from goalscope.reproduction.items import QuotedClaim
from goalscope.rows import Rows
from goalscope.stats import Estimate, regress

Verdict = Literal["holds", "does not hold", "not shown", "not measured"]
Parts = Sequence[tuple[str, Estimate]]
Found = tuple[Verdict, Parts, str]
"""Verdict, name and estimate of each part, and a reason or caveat."""

_STRONG = 0.5  # share of the variance of success that a strong predictor explains


def predicts(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that the logarithm of one error explains most of the variance of success, and more than another one does.

    The slope has to be below 0. That intervals lie apart is stricter than an interval of the difference.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    own, other = (log_relation(rows, name, agents) for name in (claim.measure, claim.than))
    parts = [(f"R^2, log {relation.error}", relation.r_squared) for relation in (own, other)]
    high, low = own.r_squared, other.r_squared
    why = f"over {len(own.agents)} agents, slope {own.slope:.2f}; strong is above {_STRONG:g}"
    if high.low > max(low.high, _STRONG) and own.slope < 0:
        return "holds", parts, why
    if high.high < max(low.low, _STRONG) or (own.slope > 0 and high.low > _STRONG):
        return "does not hold", parts, why
    return "not shown", parts, why


def equal_but_different(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that two agents of equal success differ in their exploration at some tenth of an episode.

    Intervals are simultaneous over the tenths of all pairs, since one pair is enough.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    pairs = divergences(rows, agents) if (rows.measure == PROGRESS_SHARE).any() else []
    if not pairs:
        return "not measured", (), "it needs two agents of success above .5, within .05 of each other"
    pairs = divergences(rows, agents, families=len(pairs))
    widest = max(pairs, key=lambda pair: (pair.begins is not None, pair.apart))
    tenth = max(widest.tenths, key=lambda part: min(abs(part.low), abs(part.high)) if part.low * part.high > 0 else -1)
    name = f"{widest.first} less {widest.second}, tenth {widest.tenths.index(tenth) + 1} of an episode"
    why = f"{len(pairs)} pairs of equal success; the one that is furthest apart"
    return "holds" if widest.begins is not None else "not shown", [(name, tenth)], why


def moved_differently(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that two agents are moved differently from the first to the second value of a tag, paired by map."""
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    if len(agents) < 2 or not rows.known(claim.over).any():
        return "not measured", (), f"it needs two models in both conditions of {claim.over}, the run has one"
    rows = rows.where((rows.measure == claim.measure) & rows.among(claim.over, claim.among))
    sign = np.where(np.array([value == claim.among[1] for value in rows[claim.over].tolist()]), 1.0, -1.0) / 2
    columns = {f"level of {agent}": (rows["agent"] == agent).astype(np.float64) for agent in agents}
    columns |= {agent: (rows["agent"] == agent) * sign for agent in agents}
    fitted, tests = regress(rows.value, columns, rows.cluster.tolist(), unit="share"), len(agents) - 1
    parts = [
        (
            f"change of {agent} less that of {agents[0]}",
            fitted.estimate({agent: 1.0, agents[0]: -1.0}, confidence=1 - 0.05 / tests),
        )
        for agent in agents[1:]
    ]
    moved = any(part.low > 0 or part.high < 0 for _, part in parts)
    return "holds" if moved else "not shown", parts, f"{claim.among[0]} to {claim.among[1]}"
