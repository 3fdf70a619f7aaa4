"""A measured hypothesis with what its comparisons need, and the mean of several that were drawn."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.records import NO_ACTION_NOTE, GoalEstimate, joined_notes
from goalscope.measures.goals.resample import METHOD, interval, random_p, with_random

Array = npt.NDArray[np.float64]

NOTHING: Final = "no policy changes the utility: 0 by definition"
_FEW = (  # by simulation, see docs/meg-runs.md
    (10, "fewer than 10 grids: simulated intervals cover 0.80 to 0.91"),
    (20, "fewer than 20 grids: simulated intervals cover 0.88 to 0.95"),
)
_RANDOM = "interval widened to what random agents show, from which this one cannot be told"
_MEANS = ("signed", "bound", "bound_lowest", "cross_fitted", "utility", "uniform_utility", "highest_utility")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """One agent's MEG towards one hypothesis.

    Attributes:
        estimate: the figures.
        beta: the rationality that was fitted, also where the estimate gives none.
        resampled: ``[B]`` signed MEG in each resample of the grids; empty with fewer than two.
        null: ``[R]`` signed MEG of random agents.
        parts: ``[U]`` the part of each world at the common rationality; their mean over grids is the signed MEG.
    """

    estimate: GoalEstimate
    beta: float
    resampled: Array
    null: Array
    parts: Array


def mean_of(draws: Sequence[Measured]) -> Measured:
    """Return the mean of several draws of one hypothesis, all measured in the same worlds.

    Each resample of grids, and each random agent, is averaged over the draws: the interval is that of the mean, and the
    draws do not count as so many observations. ``beta`` is the (lower) median.

    Args:
        draws: one or more; the same agent, cell, worlds and confidence.
    """
    each = [draw.estimate for draw in draws]
    resampled, null, parts = (
        np.mean([getattr(draw, name) for draw in draws], axis=0) for name in ("resampled", "null", "parts")
    )
    mean: dict[str, Any] = {name: statistics.fmean(getattr(one, name) for one in each) for name in _MEANS}
    signed, grids, confidence = mean["signed"], each[0].grids, each[0].confidence
    low, high = interval(resampled, grids, confidence)
    method, note = (METHOD, few_grids(grids)) if grids > 1 else ("none", "one grid")
    if mean["bound"] == mean["bound_lowest"] == 0.0:
        low, high, method, note = math.nan, math.nan, "none", NOTHING
    low, high, note = widened((low, high), signed, null, confidence, note)
    if len(each) > 1:
        spread = statistics.stdev(one.signed for one in each)
        note = joined_notes(note, f"mean of {len(each)} draws, their standard deviation {spread:.2g} nats")
    beta = statistics.median_low(draw.beta for draw in draws)
    estimate = replace(
        each[0],
        **mean,
        low=min(low, signed),
        high=max(high, signed),
        beta=beta,
        null=float(np.abs(null).mean()),
        null_high=float(np.quantile(np.abs(null), 0.95)),
        null_p=random_p(signed, null),
        method=method,
        note=note,
    )
    return Measured(estimate=estimate, beta=beta, resampled=resampled, null=null, parts=parts)


def without_action(measured: Measured) -> Measured:
    """Return what is left of an agent's MEG where none of its turns held an action: its counts, and no figure of it."""
    absent: dict[str, Any] = dict.fromkeys(("signed", "low", "high", "beta", "cross_fitted", "null_p"), math.nan)
    return Measured(
        estimate=replace(measured.estimate, **absent, method="none", note=NO_ACTION_NOTE),
        beta=math.nan,
        resampled=np.full_like(measured.resampled, np.nan),
        null=measured.null,
        parts=np.full_like(measured.parts, np.nan),
    )


def widened(
    ends: tuple[float, float], signed: float, null: Array, confidence: float, note: str
) -> tuple[float, float, str]:
    """Return the ends of an interval, wide enough to hold what random agents show, and the note that says so."""
    wide = ends if math.isnan(ends[0]) else with_random(ends, signed, null, confidence)
    return (*wide, joined_notes(note, _RANDOM) if wide != ends else note)


def few_grids(grids: int) -> str:
    """Return what a reader must know where grids are few, "" where they are not."""
    return next((text for few, text in _FEW if grids < few), "")
