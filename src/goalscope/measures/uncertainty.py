"""Uncertainty: entropy of the policy, its divergence from the optimal one, and its calibration.

All three are computed from empirical action probabilities, pooled over the trajectories of one agent on one world, over
the different states that it visited. All three are biased by the number of visits; so each exists in three parts: what
was observed, what an agent that draws uniformly from the optimal sets would show in expectation with the same visits
("optimal baseline"), and the difference ("excess").

The excess of a single state has expectation 0 for such an agent. Its mean over states does not quite, since how many
states are visited depends on the very actions; its mean over visits does, where an agent's episodes are equally long.

Source: behavioural and representational evaluation, Appendix B.2, equations 4 to 8.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from goalscope.measures.measure import Measure, StepTable, group_rows
from goalscope.measures.performance import ratio
from goalscope.measures.visits import (
    Per,
    Values,
    Visits,
    divergence,
    entropy,
    expected_divergence,
    expected_entropy,
    expected_peak,
)
from goalscope.rows import Rows
from goalscope.shapes import check_whole

Part = Literal["observed", "optimal baseline", "excess"]
PARTS: tuple[Part, ...] = ("observed", "optimal baseline", "excess")
ENOUGH_VISITS = 5
"""Visits from which on a state enters the main curves."""


def check_part(part: str) -> None:
    """Raise a ValueError unless ``part`` is one of `PARTS`."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")


def check_least(least_visits: int) -> None:
    """Raise a ValueError unless ``least_visits`` is a number of visits."""
    check_whole("least_visits", least_visits, 1)


def check_per(per: str) -> None:
    """Raise a ValueError unless ``per`` is "state" or "visit"."""
    if per not in ("state", "visit"):
        raise ValueError(f"per must be state or visit, got {per!r}")


def full_name(quantity: str, part: Part, least_visits: int, per: Per = "state") -> str:
    """Return the name of a part of a quantity, e.g. "policy entropy, excess, 5+ visits"."""
    additions = [
        part if part != "observed" else "",
        f"{least_visits}+ visits" if least_visits > 1 else "",
        "per visit" if per == "visit" else "",
    ]
    return ", ".join([quantity, *filter(None, additions)])


def combine(part: Part, observed: Callable[[], Values], baseline: Callable[[], Values]) -> Values:
    """Return the asked part, computing no more than it needs."""
    if part == "observed":
        return observed()
    return baseline() if part == "optimal baseline" else observed() - baseline()


def state_entropy(visits: Visits, part: Part) -> Values:
    """Return the entropy of each state's empirical policy, ``[V]`` bits."""
    return combine(part, lambda: entropy(visits.policy), lambda: expected_entropy(visits.number, visits.options))


def state_divergence(visits: Visits, part: Part) -> Values:
    """Return the Jensen-Shannon divergence of each state's empirical policy from the optimal one, ``[V]`` bits."""
    return combine(
        part,
        lambda: divergence(visits.policy, visits.optimal),
        lambda: expected_divergence(visits.number, visits.options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StateMean(ABC):
    """A quantity of each visited state's empirical policy, averaged over the states of a group.

    Attributes:
        part: "observed", "optimal baseline" or "excess".
        least_visits: states with fewer visits are left out.
        per: "state" (each state counts once, as in the paper) or "visit" (as often as it was visited).
    """

    quantity: ClassVar[str]
    most: ClassVar[float]

    part: Part = "observed"
    least_visits: int = 1
    per: Per = "state"
    unit: str = "bits"

    def __post_init__(self) -> None:
        check_part(self.part)
        check_least(self.least_visits)
        check_per(self.per)

    @property
    def name(self) -> str:
        """The quantity, its part and its restriction."""
        return full_name(self.quantity, self.part, self.least_visits, self.per)

    @property
    def bounds(self) -> tuple[float, float]:
        """From 0 to the greatest value, the excess from its negative."""
        return (-self.most if self.part == "excess" else 0.0), self.most

    def rows(self, table: StepTable) -> Rows:
        """Return the mean for each group, NaN for a group without such states."""
        visits = table.once(Visits.from_table).at_least(self.least_visits)
        return group_rows(table, self.name, self.unit, visits.mean(self.values(visits), self.per), visits.first)

    @abstractmethod
    def values(self, visits: Visits) -> Values:
        """Return the quantity of each state, ``[V]``."""


class PolicyEntropy(_StateMean):
    """Mean entropy of the empirical policy over the visited states (equation 4), 0 to 2 bits; one row a group.

    States without an optimal action are left out (`UndecidedStates` counts them).

    Attributes:
        part: "observed", "optimal baseline" or "excess".
        least_visits: states with fewer visits are left out.
        per: "state" (each state counts once, as in the paper) or "visit" (as often as it was visited).
    """

    quantity = "policy entropy"
    most = 2.0

    def values(self, visits: Visits) -> Values:
        """Return the entropy of each state's empirical policy, ``[V]`` bits."""
        return state_entropy(visits, self.part)


class PolicyDivergence(_StateMean):
    """Mean Jensen-Shannon divergence from the uniform-over-optimal policy over the visited states (equation 5).

    0 to 1 bit, one row a group. States without an optimal action are left out (`UndecidedStates` counts them).

    Attributes:
        part: "observed", "optimal baseline" or "excess".
        least_visits: states with fewer visits are left out.
        per: "state" (each state counts once, as in the paper) or "visit" (as often as it was visited).
    """

    quantity = "JSD from optimal"
    most = 1.0

    def values(self, visits: Visits) -> Values:
        """Return the divergence of each state's empirical policy from the optimal one, ``[V]`` bits."""
        return state_divergence(visits, self.part)


Form = Literal["steps", "unique", "per-state"]
FORMS: tuple[Form, ...] = ("steps", "unique", "per-state")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationError:
    """Expected calibration error of the empirical policy (equations 6 to 8); one row a group.

    The confidence of an entry is the empirical probability of its action, its accuracy whether the action is optimal.
    Bins are [lo, hi), the last one closed at 1; counts decide them exactly, without rounding.

    Attributes:
        part: "observed", "optimal baseline" or "excess".
        form: what an entry is. "steps": one for each step, as the paper defines it; "unique": one for each different
            pair of state and action; "per-state": one for each state, with its most frequent action, as the authors'
            programs do it (of actions equally frequent, the mean).
        bins: number of bins M.
    """

    part: Part = "observed"
    form: Form = "steps"
    bins: int = 10
    unit: str = "share"
    bounds: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        check_part(self.part)
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {self.form!r}")
        check_whole("bins", self.bins, 1)
        if self.part != "excess":
            object.__setattr__(self, "bounds", (0.0, 1.0))

    @property
    def name(self) -> str:
        """The quantity, its form and its part."""
        quantity = "calibration error" if self.form == "steps" else f"calibration error ({self.form})"
        return full_name(quantity, self.part, 1)

    def rows(self, table: StepTable) -> Rows:
        """Return the error for each group, NaN for a group without actions."""
        visits = table.once(Visits.from_table)
        value = combine(self.part, lambda: self._observed(visits), lambda: self._baseline(visits))
        return group_rows(table, self.name, self.unit, value, visits.first)

    def _observed(self, visits: Visits) -> Values:
        count, number = visits.counts, visits.number
        if self.form == "per-state":
            peak = count.max(axis=1)
            tied = count == peak[:, None]
            accuracy = (tied & visits.optimal).sum(axis=1) / tied.sum(axis=1)
            weight, group = np.ones(len(peak)), visits.group
        else:
            state, action = np.nonzero(count)
            peak, number = count[state, action], number[state]
            accuracy = visits.optimal[state, action].astype(np.float64)
            weight = peak.astype(np.float64) if self.form == "steps" else np.ones(len(peak))
            group = visits.group[state]
        cell = group * self.bins + np.minimum(self.bins * peak // number, self.bins - 1)
        groups = len(visits.first)
        gap = np.bincount(cell, weights=weight * (accuracy - peak / number), minlength=groups * self.bins)
        total = np.bincount(group, weights=weight, minlength=groups)
        return ratio(np.abs(gap).reshape(groups, self.bins).sum(axis=1), total)

    def _baseline(self, visits: Visits) -> Values:
        """All that an optimal agent does is optimal, so its error is 1 - confidence, whatever the bins."""
        number, options, groups = visits.number, visits.options, len(visits.first)
        if self.form == "per-state":
            return visits.mean(np.maximum(1 - expected_peak(number, options), 0.0))
        states = np.bincount(visits.group, minlength=groups)
        if self.form == "steps":
            # E[sum of squared probabilities] = 1 / k + (1 - 1 / k) / n
            squares = np.bincount(visits.group, weights=(number - 1) / options + 1, minlength=groups)
            return np.maximum(1 - ratio(squares, np.bincount(visits.group, weights=number, minlength=groups)), 0.0)
        # The probabilities of a state sum to 1, so the mean confidence of M pairs is (number of states) / M.
        value = np.full(groups, np.nan)
        order = np.argsort(visits.group, kind="stable")
        edges = np.searchsorted(visits.group[order], np.arange(groups + 1))
        for group in np.flatnonzero(states):
            mine = order[edges[group] : edges[group + 1]]
            chance = _pairs(number[mine].tolist(), options[mine].tolist())
            sizes = np.arange(len(mine), len(mine) + len(chance))
            value[group] = max(1 - len(mine) * float(chance @ (1 / sizes)), 0.0)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitsPerState:
    """Mean number of visits of a visited state: how much the figures above can be trusted; one row a group."""

    name: str = "visits per state"
    unit: str = "visits"
    bounds: tuple[float, float] = (1.0, float("inf"))

    def rows(self, table: StepTable) -> Rows:
        """Return the mean for each group, NaN for a group without actions."""
        visits = table.once(Visits.from_table)
        return group_rows(table, self.name, self.unit, visits.mean(visits.number.astype(np.float64)), visits.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class RareStates:
    """Share of the visited states that the figures for ``least_visits`` and more drop; one row a group."""

    least_visits: int = ENOUGH_VISITS
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_least(self.least_visits)

    @property
    def name(self) -> str:
        """The quantity with its limit."""
        return f"states under {self.least_visits} visits"

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each group, NaN for a group without actions."""
        visits = table.once(Visits.from_table)
        rare = (visits.number < self.least_visits).astype(np.float64)
        return group_rows(table, self.name, self.unit, visits.mean(rare), visits.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedStates:
    """Number of visited states without an optimal action, which entropy, divergence and calibration leave out."""

    name: str = "states without an optimal action"
    unit: str = "states"
    bounds: tuple[float, float] = (0.0, float("inf"))

    def rows(self, table: StepTable) -> Rows:
        """Return the number for each group."""
        visits = table.once(Visits.from_table)
        return group_rows(table, self.name, self.unit, visits.undecided, visits.first)


def _pairs(number: list[int], options: list[int]) -> Values:
    """Return the distribution of the number of different pairs of state and action, from one pair a state upwards."""
    total = np.ones(1)
    for visits, size in zip(number, options, strict=True):
        chance = np.eye(1, size)[0]  # by how many different actions beyond the first have been drawn
        for _ in range(visits - 1):
            seen = np.arange(1, size + 1) / size
            chance = chance * seen + np.concatenate([[0.0], (chance * (1 - seen))[:-1]])
        total = np.convolve(total, chance)
    return total


UNCERTAINTY: tuple[Measure, ...] = (
    *(PolicyEntropy(part=part, least_visits=least) for least in (1, ENOUGH_VISITS) for part in PARTS),
    *(PolicyDivergence(part=part, least_visits=least) for least in (1, ENOUGH_VISITS) for part in PARTS),
    PolicyEntropy(part="excess", per="visit"),
    PolicyDivergence(part="excess", per="visit"),
    *(CalibrationError(part=part) for part in PARTS),
    VisitsPerState(),
    RareStates(),
    UndecidedStates(),
)
"""Entropy, divergence and calibration with their baselines, over all states and over those with enough visits."""
