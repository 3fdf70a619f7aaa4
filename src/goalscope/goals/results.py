"""Results of measuring the goals of a run."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from goalscope.goals.finding import Finding, say_all
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.meg import chance_note
from goalscope.stats import corrected
from goalscope.stats.records import Records
from goalscope.stats.rows import Rows, Tag

NO_ACTION_NOTE: Final = "no turn of the agent held an action: no MEG"
"""Note of results that are omitted because the agent took no action: it would stay at its start under any goal."""

EXACT_NOTE: Final = "exact policies stand in the place of drawn actions"
"""Note of results of an agent whose steps hold the probabilities of its drawn actions."""

FEW = (  # by simulation, see docs/meg-runs.md
    (2, "one grid"),
    (10, "fewer than 10 grids: simulated intervals cover 0.80 to 0.91"),
    (20, "fewer than 20 grids: simulated intervals cover 0.88 to 0.95"),
)
"""Numbers of grids below which an interval has a note."""
LEAST_BOUND: Final = 0.1
"""If an optimal agent's MEG per episode is below this value (nats), shares of it are not reported."""
RANDOM = "interval widened to what random agents show, from which this one cannot be told"
"""Note of an interval widened by `with_random`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalEstimate:
    """MEG (maximum-entropy goal-directedness) of one agent towards one hypothesis, in a group of worlds (a cell).

    One rationality, the inverse temperature at which a soft-optimal policy fits best, is shared by all of these worlds.

    Attributes:
        agent: name of the agent.
        cell: tag (name of a fact) -> value that the worlds share: the conditions of the run, and at most one requested
            tag.
        hypothesis: the hypothesised goal.
        signed: MEG in nats; negative if the agent does worse than a uniformly random one. NaN if it took no action.
        low, high: interval of ``signed``, NaN if there is none.
        beta: the common rationality in nats per unit of utility; infinite at the upper end of the attainable range. NaN
            at the lower end, and if the interval contains 0 (see `goalscope.meg.chance_note`).
        bound: MEG of an optimal agent, mean over worlds, in nats; no agent's MEG can exceed it.
        bound_lowest: MEG of an agent that avoids the goal optimally, mean over worlds, in nats.
        cross_fitted: mean score of one half of the worlds at the rationality of the other half, nats; may be negative.
            NaN with fewer than two grids.
        null: mean MEG (unsigned) of simulated uniformly random agents with the same worlds and numbers of episodes,
            nats.
        null_high: 95 % quantile of that MEG.
        null_p: share of these agents, the tested agent included, whose MEG is at least the tested agent's.
        utility, uniform_utility, highest_utility: mean utility over worlds of the agent, of a uniformly random agent,
            and of an optimal agent.
        n: number of episodes.
        worlds: number of worlds (each with its horizon).
        grids: number of clusters of worlds (a grid with its versions), which the interval treats as independent.
        confidence: nominal coverage.
        method: method of the interval.
        out_of_reach: number of worlds left out in which no policy changes the utility within the horizon.
        note: a note to print with the value, "" for none.
        share_low, share_high: interval of ``share``, from the shares in resamples of the grids, each relative to the
            bound of its own grids; NaN if there is none.
        state_blind: signed MEG in nats of the state-blind baseline, which draws moves with the agent's move frequencies
            in other grids, whatever it sees; NaN if not measured.
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
        if self.beta == -math.inf:  # the agent avoids the goal as well as possible
            object.__setattr__(self, "beta", math.nan)
        if not chance:
            return
        object.__setattr__(self, "beta", math.nan)
        if self.bound > 0 or self.bound_lowest > 0:  # else the bound is 0, which has its own note
            object.__setattr__(self, "note", joined_notes(*dict.fromkeys([*self.note.split("; "), chance])))

    @property
    def value(self) -> float:
        """Unsigned MEG in nats, >= 0: the absolute value of ``signed``."""
        return abs(self.signed)

    @property
    def share(self) -> float:
        """``signed`` as a fraction of an optimal agent's MEG: 1 for an optimal agent, 0 for a random one.

        NaN if the interval contains 0, if the agent does worse than a random one, or if the bound (an optimal agent's
        MEG) is below `LEAST_BOUND`.
        """
        if math.isnan(self.signed) or chance_note(self.low, self.high) or self.signed < 0:
            return math.nan
        return self.signed / self.bound if self.bound >= LEAST_BOUND else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalContrast:
    """The signed MEG of one agent towards one hypothesis minus that towards another: which one explains it better?

    It is measured in the worlds that define and separate both hypotheses (`goalscope.goals.hypotheses.separability`).

    Attributes:
        agent, cell: name of the agent, and tag -> value that the worlds share, as in `GoalEstimate`.
        first, second: the hypotheses.
        difference: MEG towards the first minus MEG towards the second, in nats.
        low, high: interval of the difference, with both rationalities refitted in each resample; NaN if there is none.
        p_value: two-sided p value from the same resamples, raised to the share of simulated random agents with as large
            a difference, if there are any; NaN if there is none.
        adjusted: p value after Holm's correction over all contrasts of the run.
        grids: number of clusters (a world with its versions) that separate the two hypotheses.
        common: number of clusters of worlds that define both.
        same: number of clusters of worlds in which both have the same states.
        step: the hypothesis that must be reached on every path to the other in all these worlds (an intermediate step,
            such as the key), "" for none. The decisions after this step then decide, see
            `goalscope.goals.directedness`.
        after, after_low, after_high: how much better the other hypothesis predicts these later decisions than random
            choice, in nats, with its interval.
        after_expected: the same gain for an agent that pursues the other hypothesis with the same rationality.
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
        """The same comparison with the two hypotheses exchanged, so that the difference is the second minus the
        first.
        """
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
        """Whether enough clusters (a world with its versions) separate the two hypotheses to name one of them.

        `FEWEST` clusters are required, or all of them if there are only 2 to 5.
        """
        return self.grids >= min(FEWEST, max(self.common, 2))

    @property
    def why_not(self) -> str:
        """Sentence that says why these worlds cannot separate the two hypotheses; "" if they can."""
        if self.told_apart:
            return ""
        pair = f"{noun_of(self.first)} and {noun_of(self.second)}"
        if self.same == self.common:
            return f"in these worlds {pair} are the same cell"
        if not self.grids:
            return f"in these worlds {pair} ask for the same actions"
        return f"{pair} ask for different actions in {self.grids} of {self.common} grids, too few to tell"


def one_family(contrasts: Iterable[GoalContrast]) -> tuple[GoalContrast, ...]:
    """Return contrasts with p values adjusted by Holm's correction over all of them, as tests of one family."""
    by_name = {str(index): contrast for index, contrast in enumerate(contrasts)}
    tests = corrected({name: entry.p_value for name, entry in by_name.items()}, "goal hypotheses")
    return tuple(replace(by_name[name], adjusted=test.adjusted) for name, test in tests.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How well one half of an agent's episodes is predicted by utilities of states that were fitted to the other half.

    Attributes:
        agent, cell: name of the agent, and tag -> value that the worlds share, as in `GoalEstimate`.
        value: log-probability of the held-out actions minus that of uniform actions, in nats per episode, averaged over
            worlds.
        low, high: interval over grids, NaN if there is none.
        null, null_low, null_high: value and interval for a simulated random agent with the same worlds and numbers of
            episodes.
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
    """How strongly the agents of a run are directed at each hypothesis, and which hypothesis explains them best.

    A cell is a group of worlds: those of one condition of the run, or among them those with one value of a tag that the
    user asked for, such as a size.

    Attributes:
        estimates: MEG (maximum-entropy goal-directedness) for each agent, cell and hypothesis.
        contrasts: MEG of one hypothesis minus that of another for the pairs compared, in cells without a requested tag.
        held_out: prediction with unknown utilities; empty unless requested.
        rows: one row for each agent, world and hypothesis (cells without a requested tag): the world's part of the
            signed MEG at the agent's common rationality; their mean over grids is the signed MEG.
        settings: name of each setting of the measurement -> its value.
        episodes: number of episodes.
        left_out: number of episodes without a return, because the record is incomplete or has no grid.
        failed: number of episodes ended by a turn without an action; they count as standing still from there on.
        beliefs: origin of the beliefs that some hypotheses refer to, as JSON values; empty if there are none.
        findings: the decision for each agent and phase (`goalscope.goals.decision`); empty if not requested.
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
        """The findings in words: one text for each agent, which covers all of its groups of worlds."""
        agents = dict.fromkeys(finding.agent for finding in self.findings)
        return [say_all([finding for finding in self.findings if finding.agent == agent]) for agent in agents]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The estimates as a list of dictionaries, one for each agent, cell (group of worlds) and hypothesis.

        Each has the names, the figures with their intervals, the counts, the method and the note.
        """
        return [
            {**{name: value for name, value in _to_plain(estimate).items() if name != "cell"}, **estimate.cell}
            for estimate in self.estimates
        ]

    def to_plain(self) -> dict[str, Any]:
        """Return all results except the rows as a dictionary of JSON values: infinities as text, undefined numbers as
        None.
        """
        return {
            "settings": dict(self.settings),
            **{name: getattr(self, name) for name in ("episodes", "left_out", "failed")},
            "estimates": [_to_plain(entry) | {"share": _number(entry.share)} for entry in self.estimates],
            "contrasts": [_to_plain(entry) for entry in self.contrasts],
            "held_out": [_to_plain(entry) for entry in self.held_out],
            "findings": [entry.plain() for entry in self.findings],
        } | ({"beliefs": dict(self.beliefs)} if self.beliefs else {})


def joined_notes(*notes: str) -> str:
    """Join notes into one text, separated by semicolons; empty ones are left out."""
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
