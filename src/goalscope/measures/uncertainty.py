"""Uncertainty: entropy of the policy, its divergence from the optimal one, and its calibration.

All three are computed from empirical action probabilities, pooled over the trajectories of one agent on one world, over
the different states that it visited. All three are biased by the number of visits; so each exists in three parts: what
was observed, what an agent that draws uniformly from the optimal sets would show in expectation with the same visits
("optimal baseline"), and the difference ("excess").

The excess of a single state has expectation 0 for such an agent. Its mean over states does not quite, since how many
states are visited depends on the very actions; its mean over visits does, where an agent's episodes are equally long.

Entropy and divergence also exist by distance to the goal: one row for each group and distance, tagged ``distance``.
With `estimate_rows`, ``by=("agent", "size", "density", "distance_band")`` is the table, ``by=("agent", "distance")``
the curve. The accuracy curve comes from the rows of `action_optimality`, which carry the same tag.

Source: behavioural and representational evaluation, Appendix B.2, equations 4 to 8, and Fig. 4.
"""

import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from goalscope.checks import check_whole
from goalscope.measures.definition import OURS, PAPER, Entries, StepMeasure, add_measures, measure, ratio
from goalscope.measures.performance import distance_tag
from goalscope.measures.table import StepTable
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

Part = Literal["observed", "optimal baseline", "excess"]
PARTS: tuple[Part, ...] = get_args(Part)
Quantity = Literal["policy entropy", "JSD from optimal"]
Form = Literal["steps", "unique", "per-state"]
FORMS: tuple[Form, ...] = get_args(Form)
ENOUGH_VISITS = 5
"""Visits from which on a state enters the main curves."""

_B2 = f"{PAPER}, Appendix B.2"
_PARTS: dict[Part, str] = {
    "observed": "",
    "optimal baseline": "; here what an agent that draws uniformly from the optimal actions would show with the same "
    "visits",
    "excess": "; here the observed value minus that of an agent that draws uniformly from the optimal actions with the "
    "same visits, so that 0 is what a perfect agent shows",
}


def _check_part(part: str) -> None:
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")


def _combine(part: Part, observed: Callable[[], Values], baseline: Callable[[], Values]) -> Values:
    """Return the asked part, computing no more than it needs."""
    if part == "observed":
        return observed()
    return baseline() if part == "optimal baseline" else observed() - baseline()


def state_entropy(visits: Visits, part: Part) -> Values:
    """Return the entropy of each state's empirical policy, ``[V]`` bits (equation 4)."""
    return _combine(part, lambda: entropy(visits.policy), lambda: expected_entropy(visits.number, visits.options))


def state_divergence(visits: Visits, part: Part) -> Values:
    """Return the Jensen-Shannon divergence of each state's empirical policy from the optimal one, ``[V]`` bits.

    Source: equation 5.
    """
    return _combine(
        part,
        lambda: divergence(visits.policy, visits.optimal),
        lambda: expected_divergence(visits.number, visits.options),
    )


_QUANTITIES: dict[Quantity, tuple[Callable[[Visits, Part], Values], float, str, str]] = {
    "policy entropy": (
        state_entropy,
        2.0,
        "entropy of the action frequencies in a state, pooled over a grid's trajectories; mean over visited states",
        f"{_B2}, equation 4",
    ),
    "JSD from optimal": (
        state_divergence,
        1.0,
        "Jensen–Shannon divergence of the action frequencies in a state from the uniform distribution over its optimal "
        "actions; mean over visited states",
        f"{_B2}, equation 5",
    ),
}


def policy_entropy(*, part: Part = "observed", least_visits: int = 1, per: Per = "state") -> StepMeasure:
    """Return the mean entropy of the empirical policy over the visited states, 0 to 2 bits; one row a group.

    States without an optimal action are left out (`undecided_states` counts them).

    Args:
        part: "observed", "optimal baseline" or "excess".
        least_visits: states with fewer visits are left out.
        per: "state" (each state counts once, as in the paper) or "visit" (as often as it was visited).

    Raises:
        ValueError: something else.
    """
    return _state_mean("policy entropy", part, least_visits, per)


def policy_divergence(*, part: Part = "observed", least_visits: int = 1, per: Per = "state") -> StepMeasure:
    """Return the mean divergence from the uniform-over-optimal policy over the visited states, 0 to 1 bit.

    Arguments and errors as `policy_entropy`.
    """
    return _state_mean("JSD from optimal", part, least_visits, per)


def _state_mean(quantity: Quantity, part: Part, least_visits: int, per: Per) -> StepMeasure:
    """Return a quantity of each visited state's empirical policy, averaged over the states of a group."""
    if per not in ("state", "visit"):
        raise ValueError(f"per must be state or visit, got {per!r}")

    def mean(table: StepTable) -> Values:
        visits = table.once(Visits.from_table).at_least(least_visits)
        return visits.mean(_QUANTITIES[quantity][0](visits, part), per)

    return _of_states(quantity, part, least_visits, mean, per=per)


def distance_profile(*, quantity: Quantity, part: Part = "observed", least_visits: int = ENOUGH_VISITS) -> StepMeasure:
    """Return a quantity of the visited states by their distance to the goal; one row for each group and distance.

    Args:
        quantity: "policy entropy" or "JSD from optimal".
        part: "observed", "optimal baseline" or "excess".
        least_visits: states with fewer visits are left out; the main curves use states with enough visits.

    Raises:
        ValueError: something else.
    """
    if quantity not in _QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(_QUANTITIES)}, got {quantity!r}")

    def profile(table: StepTable) -> Entries:
        visits = table.once(Visits.from_table).at_least(least_visits)
        value = _QUANTITIES[quantity][0](visits, part)
        span = int(visits.distance.max(initial=0)) + 1
        cell, where = np.unique(visits.group * span + visits.distance, return_inverse=True)
        mean = np.bincount(where, weights=value, minlength=len(cell)) / np.bincount(where, minlength=len(cell))
        group, distance = np.divmod(cell, span)
        return Entries(mean, group, {"distance": distance_tag(distance)})

    return _of_states(quantity, part, least_visits, profile, by_distance=True)


def _of_states(
    quantity: Quantity,
    part: Part,
    least_visits: int,
    function: Callable[[StepTable], Values | Entries],
    *,
    per: Per = "state",
    by_distance: bool = False,
) -> StepMeasure:
    """Return a measure of the visited states with its name, its bounds and its definition."""
    _check_part(part)
    check_whole("least_visits", least_visits, 1)
    _, most, text, source = _QUANTITIES[quantity]
    parts = [
        (part if part != "observed" else "", _PARTS[part]),
        (f"{least_visits}+ visits" if least_visits > 1 else "", f"; over states with at least {least_visits} visits"),
        (
            "per visit" if per == "visit" else "",
            "; mean over visits in place of states: exactly 0 in expectation for a perfect agent",
        ),
        ("by distance" if by_distance else "", "; by distance to the goal"),
    ]
    return StepMeasure(
        name=", ".join([quantity, *(name for name, _ in parts if name)]),
        unit="bits",
        bounds=(-most if part == "excess" else 0.0, most),
        text=text + "".join(words for name, words in parts if name),
        source=source,
        per="group",
        needs=("oracle", "grid"),
        base=quantity if any(name for name, _ in parts) else "",
        function=function,
    )


def calibration_error(*, part: Part = "observed", form: Form = "steps", bins: int = 10) -> StepMeasure:
    """Return the expected calibration error of the empirical policy (equations 6 to 8); one row a group.

    The confidence of an entry is the empirical probability of its action, its accuracy whether the action is optimal.
    Bins are [lo, hi), the last one closed at 1; counts decide them exactly, without rounding.

    Args:
        part: "observed", "optimal baseline" or "excess".
        form: what an entry is. "steps": one for each step, as the paper defines it; "unique": one for each different
            pair of state and action; "per-state": one for each state, with its most frequent action, as the authors'
            programs do it (of actions equally frequent, the mean).
        bins: number of bins M.

    Raises:
        ValueError: something else.
    """
    _check_part(part)
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    check_whole("bins", bins, 1)
    entries = {"steps": "one entry a step", "unique": "one entry a pair of state and action"}
    quantity = "calibration error" if form == "steps" else f"calibration error ({form})"

    def error(table: StepTable) -> Values:
        visits = table.once(Visits.from_table)
        return _combine(
            part, lambda: _calibration_observed(visits, form, bins), lambda: _calibration_baseline(visits, form)
        )

    return StepMeasure(
        name=quantity if part == "observed" else f"{quantity}, {part}",
        unit="share",
        bounds=(-1.0 if part == "excess" else 0.0, 1.0),
        text=f"expected calibration error of the action frequencies: |accuracy − confidence| over {bins} bins, "
        + entries.get(form, "one entry a state, its most frequent action")
        + _PARTS[part],
        source=f"{_B2}, equations 6 to 8",
        per="group",
        needs=("oracle", "grid"),
        base=quantity if part != "observed" else "",
        function=error,
    )


def rare_states(*, least_visits: int = ENOUGH_VISITS) -> StepMeasure:
    """Return the share of the visited states that the figures for ``least_visits`` and more drop; one row a group.

    Raises:
        ValueError: not a number of visits.
    """
    check_whole("least_visits", least_visits, 1)

    def share(table: StepTable) -> Values:
        visits = table.once(Visits.from_table)
        return visits.mean((visits.number < least_visits).astype(np.float64))

    return StepMeasure(
        name=f"states under {least_visits} visits",
        unit="share",
        bounds=(0, 1),
        text=f"share of the visited states that figures over states with {least_visits} and more visits leave out",
        source=OURS,
        per="group",
        needs=("oracle", "grid"),
        function=share,
    )


add_measures(
    *(policy_entropy(part=part, least_visits=least) for least in (1, ENOUGH_VISITS) for part in PARTS),
    *(policy_divergence(part=part, least_visits=least) for least in (1, ENOUGH_VISITS) for part in PARTS),
    policy_entropy(part="excess", per="visit"),
    policy_divergence(part="excess", per="visit"),
    *(calibration_error(part=part) for part in PARTS),
)


@measure(
    "visits per state",
    unit="visits",
    bounds=(1, math.inf),
    per="group",
    needs=("oracle", "grid"),
    text="mean number of visits of a visited state",
    source=OURS,
)
def visits_per_state(table: StepTable) -> Values:
    """``[K]`` mean for each group, NaN for a group without actions."""
    visits = table.once(Visits.from_table)
    return visits.mean(visits.number.astype(np.float64))


add_measures(rare_states())


@measure(
    "states without an optimal action",
    unit="states",
    bounds=(0, math.inf),
    per="group",
    needs=("oracle", "grid"),
    text="visited states from which the goal cannot be reached; left out of entropy, divergence and calibration",
    source=OURS,
)
def undecided_states(table: StepTable) -> Values:
    """``[K]`` number for each group."""
    return table.once(Visits.from_table).undecided.astype(np.float64)


add_measures(
    *(distance_profile(quantity="policy entropy", part=part) for part in ("observed", "excess")),
    *(distance_profile(quantity="JSD from optimal", part=part) for part in ("observed", "excess")),
)


def _calibration_observed(visits: Visits, form: Form, bins: int) -> Values:
    """Return ``[K]``: sum over bins of |accuracy - confidence|, weighted by their entries (equations 6 to 8)."""
    count, number = visits.counts, visits.number
    if form == "per-state":
        peak = count.max(axis=1)
        tied = count == peak[:, None]
        accuracy = (tied & visits.optimal).sum(axis=1) / tied.sum(axis=1)
        weight, group = np.ones(len(peak)), visits.group
    else:
        state, action = np.nonzero(count)
        peak, number = count[state, action], number[state]
        accuracy = visits.optimal[state, action].astype(np.float64)
        weight = peak.astype(np.float64) if form == "steps" else np.ones(len(peak))
        group = visits.group[state]
    cell = group * bins + np.minimum(bins * peak // number, bins - 1)
    groups = len(visits.first)
    gap = np.bincount(cell, weights=weight * (accuracy - peak / number), minlength=groups * bins)
    total = np.bincount(group, weights=weight, minlength=groups)
    return ratio(np.abs(gap).reshape(groups, bins).sum(axis=1), total)


def _calibration_baseline(visits: Visits, form: Form) -> Values:
    """Return ``[K]``: 1 - confidence whatever the bins, since all that an optimal agent does is optimal."""
    number, options, groups = visits.number, visits.options, len(visits.first)
    if form == "per-state":
        return visits.mean(np.maximum(1 - expected_peak(number, options), 0.0))
    states = np.bincount(visits.group, minlength=groups)
    if form == "steps":
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
