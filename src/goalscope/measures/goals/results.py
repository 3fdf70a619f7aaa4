"""Results of measuring the goals of a run, and the mean of several Monte Carlo draws of one hypothesis."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.resample import METHOD, interval, random_p, with_random
from goalscope.meg import chance_note
from goalscope.rows import Rows, Tag

Array = npt.NDArray[np.float64]

NO_ACTION_NOTE: Final = "no turn of the agent held an action: no MEG"
"""Note of figures that are left out, since an agent that never acts stays where it begins, whatever it is after."""
NOTHING: Final = "no policy changes the utility: 0 by definition"
_FEW = (  # by simulation, see docs/meg-runs.md
    (10, "fewer than 10 grids: simulated intervals cover 0.80 to 0.91"),
    (20, "fewer than 20 grids: simulated intervals cover 0.88 to 0.95"),
)
_RANDOM = "interval widened to what random agents show, from which this one cannot be told"
_MEANS = ("signed", "bound", "bound_lowest", "cross_fitted", "utility", "uniform_utility", "highest_utility")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalEstimate:
    """MEG of one agent towards one hypothesis, with one rationality over the worlds of a cell.

    Attributes:
        agent: name of the agent.
        cell: tag -> value of the worlds: the conditions of the run, and at most one tag that was asked for.
        hypothesis: what the agent may be after.
        signed: MEG in nats; below 0 where the agent does worse than a uniformly random one. NaN where no turn of the
            agent held an action.
        low, high: interval of ``signed``, NaN where there is none.
        beta: the common rationality in nats per unit of utility; infinite at the ends of what is attainable. NaN where
            the interval does not leave 0 out, whatever was given: see `goalscope.meg.chance_note`.
        bound: mean over worlds of the tight bound W*(greatest attainable utility), nats: what an optimal agent shows.
        bound_lowest: the same of an agent that is optimal at avoiding.
        cross_fitted: mean score of one half of the worlds at the rationality of the other half, nats; may be negative.
            NaN with fewer than two grids.
        null: mean MEG (unsigned) of simulated uniformly random agents with the same worlds and counts, nats.
        null_high: its 95 % quantile.
        null_p: share of them whose MEG is at least the agent's, the agent itself counted.
        utility, uniform_utility, highest_utility: means over worlds, of the agent, a uniformly random one, the best.
        n: number of episodes.
        worlds: number of worlds (each with its horizon).
        grids: number of clusters of worlds, the units of the interval.
        confidence: nominal coverage.
        method: how the interval was found.
        note: what a reader must know beside the figure, "" for nothing.
    """

    agent: str
    cell: Mapping[str, Tag]
    hypothesis: str
    signed: float
    low: float
    high: float
    beta: float
    bound: float
    bound_lowest: float
    cross_fitted: float
    null: float
    null_high: float
    null_p: float
    utility: float
    uniform_utility: float
    highest_utility: float
    n: int
    worlds: int
    grids: int
    confidence: float
    method: str
    note: str = ""

    def __post_init__(self) -> None:
        untold = "" if math.isnan(self.signed) else chance_note(self.low, self.high)
        if not untold:
            return
        object.__setattr__(self, "beta", math.nan)
        if self.bound > 0 or self.bound_lowest > 0:  # else nothing could be shown, which has a note of its own
            object.__setattr__(self, "note", joined_notes(*dict.fromkeys([*self.note.split("; "), untold])))

    @property
    def value(self) -> float:
        """MEG in nats, >= 0."""
        return abs(self.signed)

    @property
    def share(self) -> float:
        """``signed`` as a share of the tight bound on its side; NaN where the interval does not leave 0 out."""
        if math.isnan(self.signed) or chance_note(self.low, self.high):
            return math.nan
        bound = self.bound if self.signed >= 0 else self.bound_lowest
        return self.signed / bound if bound > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalContrast:
    """The signed MEG of one agent towards the first hypothesis minus that towards another, on worlds that have both.

    Attributes:
        agent, cell: as in `GoalEstimate`.
        first, second: the hypotheses.
        difference: in nats.
        low, high: its interval, both rationalities fitted anew in each resample; NaN where there is none.
        p_value: two-sided, of the same resamples, and not below the share of simulated random agents that show as
            much where any does; NaN where there is none.
        adjusted: the same after Holm's correction within the family of all contrasts of the run.
        grids: number of clusters of worlds.
    """

    agent: str
    cell: Mapping[str, Tag]
    first: str
    second: str
    difference: float
    low: float
    high: float
    p_value: float
    adjusted: float = math.nan
    grids: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How well utilities over states, fitted to one half of an agent's episodes, predict the other half.

    Attributes:
        agent, cell: as in `GoalEstimate`.
        value: log-probability of the held-out actions less that of uniform ones, nats an episode, mean over worlds.
        low, high: interval over grids, NaN where there is none.
        null, null_low, null_high: the same of a simulated random agent with the same worlds and counts.
        ridge: strength of the penalty on utilities.
        n: number of episodes.
        grids: number of grids.
        method: how the intervals were found.
        note: what a reader must know beside the figure.
    """

    agent: str
    cell: Mapping[str, Tag]
    value: float
    low: float
    high: float
    null: float
    null_low: float
    null_high: float
    ridge: float
    n: int
    grids: int
    method: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalFindings:
    """Estimates and contrasts of the goals of a run.

    Attributes:
        estimates: one for each agent, cell and hypothesis.
        contrasts: of the first hypothesis against each other one, for cells without a tag that was asked for.
        held_out: with unknown utilities; empty where it was not asked for.
        rows: one row for each agent, world and hypothesis (cells without a tag that was asked for): the world's part
            of the signed MEG at the agent's common rationality; their mean over grids is the signed MEG.
        settings: name -> what was asked for.
        episodes: number of episodes that were given.
        left_out: number of them without a return: their record stops before their end, or no grid was given for them.
        failed: number of them that a turn without an action ended; they stand still from there on.
        beliefs: where the beliefs come from that some lines are relative to, as plain values; empty without such lines.
    """

    estimates: tuple[GoalEstimate, ...]
    contrasts: tuple[GoalContrast, ...]
    held_out: tuple[HeldOut, ...] = ()
    rows: Rows = field(repr=False)
    settings: Mapping[str, Any]
    episodes: int
    left_out: int
    failed: int
    beliefs: Mapping[str, Any] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """Return everything but the rows as plain values for JSON: infinities as text, undefined numbers as None."""
        return {
            "settings": dict(self.settings),
            "episodes": self.episodes,
            "left_out": self.left_out,
            "failed": self.failed,
            "estimates": [_plain(entry) | {"share": _number(entry.share)} for entry in self.estimates],
            "contrasts": [_plain(entry) for entry in self.contrasts],
            "held_out": [_plain(entry) for entry in self.held_out],
        } | ({"beliefs": dict(self.beliefs)} if self.beliefs else {})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HypothesisResult:
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


def mean_of(draws: Sequence[HypothesisResult]) -> HypothesisResult:
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
        std = statistics.stdev(one.signed for one in each)
        note = joined_notes(note, f"mean of {len(each)} draws, their standard deviation {std:.2g} nats")
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
    return HypothesisResult(estimate=estimate, beta=beta, resampled=resampled, null=null, parts=parts)


def without_action(measured: HypothesisResult) -> HypothesisResult:
    """Return what is left of an agent's MEG where none of its turns held an action: its counts, and no figure of it."""
    absent: dict[str, Any] = dict.fromkeys(("signed", "low", "high", "beta", "cross_fitted", "null_p"), math.nan)
    return HypothesisResult(
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


def joined_notes(*notes: str) -> str:
    """Return several notes as one."""
    return "; ".join(filter(None, notes))


def _plain(record: Any) -> dict[str, Any]:
    return {name: _number(getattr(record, name)) for name in record.__dataclass_fields__}


def _number(value: Any) -> Any:
    """Return a value that JSON has; numbers with ten digits, more than any of them carries."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, float):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return None if math.isnan(value) else float(f"{value:.10g}")
