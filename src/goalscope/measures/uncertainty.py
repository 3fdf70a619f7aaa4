"""Uncertainty: entropy of the policy, its divergence from the optimal policy, and its calibration.

All three are computed from empirical action probabilities in each visited state, pooled over the trajectories of one
agent on one world. All three are biased by the number of visits, so each comes in three parts: the observed value, its
expectation for an agent with the same visits that draws uniformly from the optimal actions ("optimal baseline"), and
the difference ("excess").

For such an agent, the excess of a single state has expectation 0. The mean excess over states has not exactly
expectation 0, because the number of visited states depends on the actions. The mean excess over visits has, if all
episodes of the agent have the same length.

Entropy and divergence are also available by distance to the goal, with one row per group and distance, tagged
``distance``. With
`estimate_rows`, ``by=("agent", "size", "density", "distance_band")`` gives the table and ``by=("agent", "distance")``
the curve. The accuracy curve comes from the rows of `action_optimality`, which carry the same tag.

Source: behavioural and representational evaluation, Appendix B.2, equations 4 to 8, and Fig. 4.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from goalscope._ground.checks import check_choice, check_whole
from goalscope.measures.definition import (
    OURS,
    PAPER,
    Entries,
    Function,
    Need,
    StepMeasure,
    Values,
    add_measures,
    measure,
    ratio,
)
from goalscope.measures.performance import distance_tag
from goalscope.measures.table import StepTable
from goalscope.measures.visits import Visits, divergence, entropy, expected_divergence, expected_entropy

Part = Literal["observed", "optimal baseline", "excess"]
PARTS: tuple[Part, ...] = get_args(Part)
Per = Literal["state", "visit", "distance"]
ENOUGH_VISITS = 5
"""Minimum number of visits per state in the main curves."""

_BINS = 10  # bins of the calibration error
_B2 = f"{PAPER}, Appendix B.2"
_PARTS: dict[Part, str] = {
    "observed": "",
    "optimal baseline": ". This part is the expected value for an agent with the same visits that draws uniformly from "
    "the optimal actions",
    "excess": ". This part is the observed value minus the expected value for an agent with the same visits that draws "
    "uniformly from the optimal actions, so a perfect agent has 0",
}
_PER: dict[Per, tuple[str, str]] = {
    "state": ("", ""),
    "visit": ("per visit", ". The average is over visits instead of states"),
    "distance": ("by distance", ", by distance to the goal"),
}
_Figure = Callable[[Visits], Values]
_ENTROPY: tuple[_Figure, _Figure] = (
    lambda visits: entropy(visits.policy),
    lambda visits: expected_entropy(visits.number, visits.options),
)
_QUANTITIES: dict[str, tuple[_Figure, _Figure, float, str, str]] = {
    "policy entropy": (
        *_ENTROPY,
        2.0,
        "entropy of the action frequencies in a state, pooled over a grid's trajectories and averaged over visited "
        "states",
        f"{_B2}, equation 4",
    ),
    "action entropy": (
        *_ENTROPY,
        math.inf,
        "entropy of the action frequencies in a state among any number of actions, pooled over a world's trajectories "
        "and averaged over visited states",
        f"{_B2}, equation 4",
    ),
    "JSD from optimal": (
        lambda visits: divergence(visits.policy, visits.optimal),
        lambda visits: expected_divergence(visits.number, visits.options),
        1.0,
        "Jensen–Shannon divergence of the action frequencies in a state from the uniform distribution over its optimal "
        "actions, averaged over visited states",
        f"{_B2}, equation 5",
    ),
}
"""Per quantity: ``[V]`` bits observed, ``[V]`` bits expected of an optimal agent, largest value, definition, source."""
_BESIDE: dict[str, tuple[Need, ...]] = {"policy entropy": ("grid",), "action entropy": ("environment",)}
"""What the quantities need besides optimal actions: the number of actions, four on grids, bounds an entropy."""


def _of_part(part: Part, visits: Visits, observed: _Figure, baseline: _Figure) -> Values:
    """Return the requested part, computing only what it needs."""
    if part == "observed":
        return observed(visits)
    return baseline(visits) if part == "optimal baseline" else observed(visits) - baseline(visits)


def policy_entropy(*, part: Part = "observed", least_visits: int = 1, per: Per = "state") -> StepMeasure:
    """Create the measure of the entropy of action frequencies on grids, averaged over visited states (0 to 2 bits).

    It has one row per group: all episodes of an agent on a world. States without an optimal action are excluded
    (`undecided_states` counts them).

    Args:
        part: "observed", "optimal baseline" (expected of an optimal agent with the same visits) or "excess" (the
            difference of the two).
        least_visits: exclude states with fewer visits.
        per: "state" (every state counts once, as in the paper), "visit" (a state counts as often as it was visited) or
            "distance" (one row per group and distance to the goal).

    Raises:
        ValueError: if an argument has another value.
    """
    return _of_states("policy entropy", part, least_visits, per)


def action_entropy(*, part: Part = "observed", per: Per = "state") -> StepMeasure:
    """Create the measure of the entropy of action frequencies in environments other than grids, in bits.

    It is defined like `policy_entropy`, but for any number of actions and therefore without an upper bound. It has one
    row per group: all episodes of an agent on a world.

    Args:
        part: "observed", "optimal baseline" (expected of an optimal agent with the same visits) or "excess" (the
            difference of the two).
        per: "state" (every state counts once), "visit" (a state counts as often as it was visited) or "distance" (one
            row per group and distance to the goal).

    Raises:
        ValueError: if an argument has another value.
    """
    return _of_states("action entropy", part, 1, per)


def policy_divergence(*, part: Part = "observed", least_visits: int = 1, per: Per = "state") -> StepMeasure:
    """Create the measure of how far action frequencies are from the uniform policy over optimal actions (0 to 1 bit).

    It is the mean Jensen-Shannon divergence over visited states, with one row per group: all episodes of an agent on a
    world. Arguments and errors are those of `policy_entropy`.
    """
    return _of_states("JSD from optimal", part, least_visits, per)


def _of_states(quantity: str, part: Part, least_visits: int, per: Per) -> StepMeasure:
    """Define a quantity of the empirical policy in each visited state, averaged over the states of a group."""
    check_choice("part", part, PARTS)
    check_choice("per", per, _PER)
    check_whole("least_visits", least_visits, 1)
    observed, baseline, upper, text, source = _QUANTITIES[quantity]

    def mean(table: StepTable) -> Values | Entries:
        visits = table.once(Visits.from_table).at_least(least_visits)
        value = _of_part(part, visits, observed, baseline)
        if per != "distance":
            return visits.mean(value, None if per == "state" else visits.number.astype(np.float64))
        span = int(visits.distance.max(initial=0)) + 1
        cell, inverse = np.unique(visits.group * span + visits.distance, return_inverse=True)
        mean = np.bincount(inverse, weights=value, minlength=len(cell)) / np.bincount(inverse, minlength=len(cell))
        group, distance = np.divmod(cell, span)
        return Entries(mean, group, {"distance": distance_tag(distance)})

    minimum = (f"{least_visits}+ visits", f", using only states with at least {least_visits} visits")
    variants = [minimum if least_visits > 1 else ("", ""), _PER[per]]
    needs: tuple[Need, ...] = ("oracle", *_BESIDE.get(quantity, ()))
    needs = (*needs, "distance") if per == "distance" else needs
    return _defined(
        quantity, part, mean, unit="bits", upper=upper, text=text, source=source, needs=needs, variants=variants
    )


def _defined(
    quantity: str,
    part: Part,
    function: Function,
    *,
    unit: str,
    upper: float,
    text: str,
    source: str,
    needs: tuple[Need, ...] = ("oracle",),
    variants: Sequence[tuple[str, str]] = (),
) -> StepMeasure:
    """Define one part of a quantity; each variant is (end of the name, end of the definition)."""
    ends = [("" if part == "observed" else part, _PARTS[part]), *variants]
    name = ", ".join([quantity, *(short for short, _ in ends if short)])
    return StepMeasure(
        name=name,
        unit=unit,
        bounds=(-upper if part == "excess" else 0.0, upper),
        text=text + "".join(definition for _, definition in (*variants, ends[0])),
        source=source,
        per="group",
        needs=needs,
        base="" if name == quantity else quantity,
        function=function,
    )


def calibration_error(*, part: Part = "observed") -> StepMeasure:
    """Create the measure of the expected calibration error of action frequencies (equations 6 to 8 of the paper).

    It has one row per group: all episodes of an agent on a world. Every step counts once. Its confidence is the
    empirical probability of its action in that state, its accuracy whether the action is optimal. Bins are [lo, hi),
    the last one closed at 1; counts decide them exactly, without rounding.

    Args:
        part: "observed", "optimal baseline" (expected of an optimal agent with the same visits) or "excess" (the
            difference of the two).

    Raises:
        ValueError: if the part is unknown.
    """
    check_choice("part", part, PARTS)

    def error(table: StepTable) -> Values:
        return _of_part(part, table.once(Visits.from_table), _calibration_observed, _calibration_baseline)

    text = (
        f"expected calibration error of the action frequencies: |accuracy − confidence| averaged over {_BINS} bins, "
        "with one entry per step"
    )
    source = f"{_B2}, equations 6 to 8"
    return _defined("calibration error", part, error, unit="share", upper=1.0, text=text, source=source)


def rare_states(*, least_visits: int = ENOUGH_VISITS) -> StepMeasure:
    """Create the measure of the share of visited states with fewer than ``least_visits`` visits.

    It has one row per group: all episodes of an agent on a world.
    """
    check_whole("least_visits", least_visits, 1)

    def fraction(table: StepTable) -> Values:
        visits = table.once(Visits.from_table)
        return visits.mean((visits.number < least_visits).astype(np.float64))

    text = f"share of visited states with fewer than {least_visits} visits"
    name = f"states under {least_visits} visits"
    return _defined(name, "observed", fraction, unit="share", upper=1.0, text=text, source=OURS)


add_measures(
    *(policy_entropy(part=part, least_visits=least) for least in (1, ENOUGH_VISITS) for part in PARTS),
    *(policy_divergence(part=part, least_visits=least) for least in (1, ENOUGH_VISITS) for part in PARTS),
    *(action_entropy(part=part) for part in PARTS),
    policy_entropy(part="excess", per="visit"),
    action_entropy(part="excess", per="visit"),
    policy_divergence(part="excess", per="visit"),
    *(calibration_error(part=part) for part in PARTS),
)


@measure("visits per state", unit="visits", bounds=(1, math.inf), per="group", needs=("oracle",), source=OURS)
def visits_per_state(table: StepTable) -> Values:
    """Mean number of visits of a visited state.

    Returns ``[K]`` one value per group (all episodes of an agent on a world).
    """
    visits = table.once(Visits.from_table)
    return visits.mean(visits.number.astype(np.float64))


add_measures(rare_states())


@measure("states without an optimal action", unit="states", per="group", needs=("oracle",), source=OURS)
def undecided_states(table: StepTable) -> Values:
    """Number of visited states from which the goal cannot be reached, which the other measures exclude.

    Returns ``[K]`` one value per group (all episodes of an agent on a world).
    """
    return table.once(Visits.from_table).undecided.astype(np.float64)


_DRAWN: tuple[Part, ...] = ("observed", "excess")
_BY_DISTANCE = (policy_entropy, policy_divergence)
add_measures(
    # Over all visited states, as in the paper's figure: biased by the number of visits, which falls with distance.
    policy_divergence(per="distance"),
    *(make(part=part, least_visits=ENOUGH_VISITS, per="distance") for make in _BY_DISTANCE for part in _DRAWN),
)


def _calibration_observed(visits: Visits) -> Values:
    """Return ``[K]``: sum over bins of |accuracy - confidence|, weighted by the steps in them (equations 6 to 8)."""
    count, groups = visits.counts, len(visits.first)
    state, action = np.nonzero(count)
    action_count, number, group = count[state, action], visits.number[state], visits.group[state]
    weight = action_count.astype(np.float64)
    cell = group * _BINS + np.minimum(_BINS * action_count // number, _BINS - 1)
    gap = np.bincount(
        cell, weights=weight * (visits.optimal[state, action] - action_count / number), minlength=groups * _BINS
    )
    total = np.bincount(group, weights=weight, minlength=groups)
    return ratio(np.abs(gap).reshape(groups, _BINS).sum(axis=1), total)


def _calibration_baseline(visits: Visits) -> Values:
    """Return ``[K]``: 1 - confidence regardless of the bins, since every action of an optimal agent is optimal."""
    number, options, groups = visits.number, visits.options, len(visits.first)
    # E[sum of squared probabilities] = 1 / k + (1 - 1 / k) / n
    squares = np.bincount(visits.group, weights=(number - 1) / options + 1, minlength=groups)
    return np.maximum(1 - ratio(squares, np.bincount(visits.group, weights=number, minlength=groups)), 0.0)
