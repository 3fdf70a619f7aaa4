"""Results of measuring the goals of a run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from goalscope.goals.curves import METHOD, Array, interval, random_p, with_random
from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.meg import chance_note
from goalscope.goals.words import say_all
from goalscope.stats import corrected
from goalscope.stats.records import Records
from goalscope.stats.rows import Rows, Tag

NO_ACTION_NOTE: Final = "no turn of the agent held an action: no MEG"
"""Note of omitted results: an agent without actions stays at its start under any goal."""

EXACT_NOTE: Final = "exact policies stand in the place of drawn actions"
"""Note of results of an agent whose steps hold the probabilities of its drawn actions."""

FEW = (  # by simulation, see docs/meg-runs.md
    (2, "one grid"),
    (10, "fewer than 10 grids: simulated intervals cover 0.80 to 0.91"),
    (20, "fewer than 20 grids: simulated intervals cover 0.88 to 0.95"),
)
"""Numbers of grids below which an interval has a note."""
LEAST_BOUND: Final = 0.1
"""Nats an episode of an optimal agent below which a share of them says nothing."""
RANDOM = "interval widened to what random agents show, from which this one cannot be told"
"""Note of an interval widened by `with_random`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalEstimate:
    """MEG of one agent towards one hypothesis, with one rationality over the worlds of a cell.

    Attributes:
        agent: name of the agent.
        cell: tag -> value of the worlds: the conditions of the run, and at most one requested tag.
        hypothesis: the possible goal.
        signed: MEG in nats; below 0 where the agent does worse than a uniformly random one. NaN without any
            action.
        low, high: interval of ``signed``, NaN where there is none.
        beta: the common rationality in nats per unit of utility; infinite at the upper end of what is attainable. NaN
            at the lower end, and where the interval contains 0, whatever was given: see `goalscope.meg.chance_note`.
        bound: mean over worlds of the tight bound W*(greatest attainable utility), nats: the value of an optimal agent.
        bound_lowest: the same for an agent that avoids the goal optimally.
        cross_fitted: mean score of one half of the worlds at the rationality of the other half, nats; may be negative.
            NaN with fewer than two grids.
        null: mean MEG (unsigned) of simulated uniformly random agents with the same worlds and counts, nats.
        null_high: its 95 % quantile.
        null_p: fraction of them whose MEG is at least the agent's, the agent included.
        utility, uniform_utility, highest_utility: means over worlds, of the agent, a uniformly random one, the best.
        n: number of episodes.
        worlds: number of worlds (each with its horizon).
        grids: number of clusters of worlds, the units of the interval.
        confidence: nominal coverage.
        method: method of the interval.
        out_of_reach: number of worlds left out in which no policy changes the utility within the horizon.
        note: a note to print with the value, "" for none.
        share_low, share_high: interval of ``share``, from the share in each resample of the grids, each with the bound
            of its own grids; NaN where there is none.
        state_blind: signed MEG in nats of an agent that draws its moves anywhere as often as this one made them in the
            other grids, whatever it sees; NaN where it was not asked for.
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
    out_of_reach: int = 0
    note: str = ""
    share_low: float = math.nan
    share_high: float = math.nan
    state_blind: float = math.nan

    def __post_init__(self) -> None:
        chance = "" if math.isnan(self.signed) else chance_note(self.low, self.high)
        if self.beta == -math.inf:  # an agent that is never there, or there as seldom as can be
            object.__setattr__(self, "beta", math.nan)
        if not chance:
            return
        object.__setattr__(self, "beta", math.nan)
        if self.bound > 0 or self.bound_lowest > 0:  # else the bound is 0, which has its own note
            object.__setattr__(self, "note", joined_notes(*dict.fromkeys([*self.note.split("; "), chance])))

    @property
    def value(self) -> float:
        """MEG in nats, >= 0."""
        return abs(self.signed)

    @property
    def share(self) -> float:
        """``signed`` as a fraction of the tight bound of an optimal agent.

        NaN where it says nothing: the interval contains 0, the agent does worse than a random one, or the bound is
        below `LEAST_BOUND`.
        """
        if math.isnan(self.signed) or chance_note(self.low, self.high) or self.signed < 0:
            return math.nan
        return self.signed / self.bound if self.bound >= LEAST_BOUND else math.nan


def goal_estimate(
    figures: Mapping[str, float],
    *,
    beta: float,
    resampled: Array,
    shares: Array,
    null: Array,
    grids: int,
    confidence: float,
    acts: bool,
    notes: Sequence[str],
    ends: tuple[float, float, str, str] | None = None,
    **fields: Any,
) -> GoalEstimate:
    """Return an estimate with its interval, its comparison with random agents, and its notes.

    Args:
        figures: the fields of `GoalEstimate` that were measured: ``signed``, ``cross_fitted``, bounds and utilities.
        beta, grids, confidence: as there.
        resampled, shares: ``[B]`` signed MEG in each resample of the grids, and its share of the bound there.
        null: ``[R]`` signed MEG of random agents.
        acts: whether the agent has any action; without one it has no MEG.
        notes: further notes.
        ends: interval, method and note where they do not come from the resamples.
        fields: the other fields.
    """
    signed = figures["signed"]
    if ends is None:
        few_grids_note = next((text for minimum, text in FEW if grids < minimum), "")
        ends = *interval(resampled, grids, confidence), METHOD if grids > 1 else "none", few_grids_note
    low, high, method, note = ends
    if not math.isnan(low):
        low, high = with_random((low, high), signed, null, confidence)
        note = joined_notes(note, RANDOM) if (low, high) != ends[:2] else note
    results: dict[str, Any] = {**figures, "beta": beta, "low": min(low, signed), "high": max(high, signed)}
    if (bound := figures["bound"]) >= LEAST_BOUND:
        of_shares = interval(shares, grids, confidence) if grids > 1 else (low / bound, high / bound)
        if not math.isnan(of_shares[0]):
            of_shares = with_random(of_shares, signed / bound, null / bound, confidence)
        results["share_low"] = min(of_shares[0], signed / bound)
        results["share_high"] = max(of_shares[1], signed / bound)
    results["null_p"] = random_p(signed, null)
    note = joined_notes(note, *notes)
    if not acts:
        undefined = ("signed", "low", "high", "beta", "cross_fitted", "null_p", "share_low", "share_high")
        results, method, note = results | dict.fromkeys(undefined, math.nan), "none", NO_ACTION_NOTE
    return GoalEstimate(
        **results,
        null=float(np.abs(null).mean()),
        null_high=float(np.quantile(np.abs(null), 0.95)),
        grids=grids,
        confidence=confidence,
        method=method,
        note=note,
        **fields,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalContrast:
    """The signed MEG of one agent towards the first hypothesis minus that towards another.

    It is measured on the worlds that have both and tell them apart (`goalscope.goals.hypotheses.separability`).

    Attributes:
        agent, cell: as in `GoalEstimate`.
        first, second: the hypotheses.
        difference: in nats.
        low, high: its interval, both rationalities refitted in each resample; NaN where there is none.
        p_value: two-sided, of the same resamples, and not below the fraction of simulated random agents with as large
            a difference, if any; NaN where there is none.
        adjusted: the same after Holm's correction within the family of all contrasts of the run.
        grids: number of clusters of worlds that tell the two apart.
        common: number of clusters of worlds that have both.
        same: number of clusters of worlds in which the two are the same states.
        step: the one that is a step on every way to the other in all these worlds (`goals.hypotheses.steps`), ""
            for none. Then what the agent does after it decides, see `goalscope.goals.after_steps`.
        after, after_low, after_high: nats of the decisions after the step towards the other one, with their interval.
        after_expected: the same of an agent that is after the other one with the rationality that fits this agent.
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
    common: int = 0
    same: int = 0
    step: str = ""
    after: float = math.nan
    after_low: float = math.nan
    after_high: float = math.nan
    after_expected: float = math.nan

    @property
    def turned(self) -> "GoalContrast":
        """The second hypothesis less the first."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=-self.difference,
            low=-self.high,
            high=-self.low,
        )

    @property
    def told_apart(self) -> bool:
        """Whether enough worlds tell the two apart to name one of them: `FEWEST` grids, or all of two and more."""
        return self.grids >= min(FEWEST, max(self.common, 2))

    @property
    def why_not(self) -> str:
        """Why it cannot be told which of the two an agent is after, "" where enough worlds tell them apart."""
        if self.told_apart:
            return ""
        pair = f"{noun_of(self.first)} and {noun_of(self.second)}"
        if self.same == self.common:
            return f"in these worlds {pair} are the same cell"
        if not self.grids:
            return f"in these worlds {pair} ask for the same actions"
        return f"{pair} ask for different actions in {self.grids} of {self.common} grids, too few to tell"


def one_family(contrasts: Iterable[GoalContrast]) -> tuple[GoalContrast, ...]:
    """Return the contrasts with Holm's correction: all of a run are one family."""
    by_name = {str(index): contrast for index, contrast in enumerate(contrasts)}
    tests = corrected({name: entry.p_value for name, entry in by_name.items()}, "goal hypotheses")
    return tuple(replace(by_name[name], adjusted=test.adjusted) for name, test in tests.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Prediction of one half of an agent's episodes by utilities over states fitted to the other half.

    Attributes:
        agent, cell: as in `GoalEstimate`.
        value: log-probability of the held-out actions less that of uniform ones, nats an episode, mean over worlds.
        low, high: interval over grids, NaN where there is none.
        null, null_low, null_high: the same of a simulated random agent with the same worlds and counts.
        ridge: strength of the penalty on utilities.
        n: number of episodes.
        grids: number of grids.
        method: method of the intervals.
        note: a note to print with the value.
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
class RunDirectedness(Records):
    """Estimates and contrasts of the goals of a run.

    Attributes:
        estimates: one for each agent, cell and hypothesis.
        contrasts: of the first hypothesis against each other one, for cells without a requested tag.
        held_out: with unknown utilities; empty unless requested.
        rows: one row for each agent, world and hypothesis (cells without a requested tag): the world's part
            of the signed MEG at the agent's common rationality; their mean over grids is the signed MEG.
        settings: name -> setting.
        episodes: number of episodes.
        left_out: number of them without a return: incomplete records, or no grid was given for them.
        failed: number of them ended by a turn without an action; they count as standing still from there on.
        beliefs: origin of the beliefs that some lines are relative to, as plain values; empty without such lines.
        findings: what each agent is after, by phase of the worlds (`goalscope.goals.decision`); empty where it was not
            asked.
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
    findings: tuple[Finding, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """What each agent is after, in words."""
        agents = dict.fromkeys(finding.agent for finding in self.findings)
        return [say_all([finding for finding in self.findings if finding.agent == agent]) for agent in agents]

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record of each estimate: agent, cell, hypothesis, figures with their ends, counts, method, note."""
        return [
            {**{name: value for name, value in _to_plain(estimate).items() if name != "cell"}, **estimate.cell}
            for estimate in self.estimates
        ]

    def to_plain(self) -> dict[str, Any]:
        """Return everything but the rows as plain values for JSON: infinities as text, undefined numbers as None."""
        return {
            "settings": dict(self.settings),
            **{name: getattr(self, name) for name in ("episodes", "left_out", "failed")},
            "estimates": [_to_plain(entry) | {"share": _number(entry.share)} for entry in self.estimates],
            "contrasts": [_to_plain(entry) for entry in self.contrasts],
            "held_out": [_to_plain(entry) for entry in self.held_out],
            "findings": [entry.plain() for entry in self.findings],
        } | ({"beliefs": dict(self.beliefs)} if self.beliefs else {})


def joined_notes(*notes: str) -> str:
    """Return the non-empty notes, joined."""
    return "; ".join(filter(None, notes))


def _to_plain(record: Any) -> dict[str, Any]:
    return {name: _number(getattr(record, name)) for name in record.__dataclass_fields__}


def _number(value: Any) -> Any:
    """Return a JSON value; numbers with ten digits, more than their accuracy."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, float):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return None if math.isnan(value) else float(f"{value:.10g}")
