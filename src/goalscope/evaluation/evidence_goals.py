"""What claims about what an agent is after rest on: which place explains its actions, which rivals can be told from it.

A place H is named only if it *explains* (MEG towards it, as a share of what an optimal agent shows, lies above
`EXPLAINS`) and *beats* every rival: MEG towards H less that towards the rival, on the worlds that tell the two apart,
lies above `MARGIN` of MEG towards H. A rival that too few worlds tell apart cannot be beaten: then it cannot be told
which of the two it is.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from goalscope.evaluation.evidence import ArmData, Evidence, Side
from goalscope.goals import GoalContrast, GoalEstimate
from goalscope.goals.results import LEAST_BOUND, noun_of
from goalscope.stats import UNBOUNDED, Estimate, Family, estimate_pooled, holm

EXPLAINS: Final = 0.1
"""Share of an optimal agent's goal-directedness above which a place explains what an agent does."""

MARGIN: Final = 0.25
"""Share of its own goal-directedness by which a place must exceed each rival."""

STRONG: Final = 0.5
"""Share of an optimal agent's goal-directedness from which on an agent is called directed without a qualification."""

STRONG_LOW: Final = 1 / 3
"""The same for the lower end of the interval."""

GOAL: Final = "goal"

_FEWEST_ERRORS: Final = 20
_DISTANT: Final = 3  # turns


def shares(data: ArmData) -> dict[str, Estimate]:
    """Return signed MEG towards each place as a share of what an optimal agent shows, by the place's name."""
    estimates = {goal.hypothesis: goal for goal in _estimates(data)}
    found = {name: share_of(goal) for name, goal in estimates.items()}
    return {name: share for name, share in found.items() if share is not None}


def share_of(goal: GoalEstimate) -> Estimate | None:
    """Return signed MEG as a share of the bound on the side of the optimal agent; None where it says nothing."""
    if math.isnan(goal.signed) or not goal.bound >= LEAST_BOUND:
        return None
    return Estimate.of_ends(
        *(number / goal.bound for number in (goal.signed, goal.low, goal.high)),
        n=goal.n,
        clusters=goal.grids,
        method=goal.method,
        unit="share",
        confidence=goal.confidence,
        note=goal.note,
    )


def _estimates(data: ArmData, **cell: Any) -> list[GoalEstimate]:
    return [goal for goal in data.run.goals.estimates if goal.agent == data.agent and dict(goal.cell) == cell]


def _against(data: ArmData, place: str) -> Iterator[tuple[str, GoalContrast]]:
    """Yield each rival of a place with their contrast, the place first."""
    for contrast in data.run.goals.contrasts:
        if contrast.agent != data.agent or contrast.cell or place not in (contrast.first, contrast.second):
            continue
        if contrast.first == place:
            yield contrast.second, contrast
        else:
            yield contrast.first, contrast.turned


def directed(data: ArmData, threshold: float) -> Evidence:
    """Return whether the goal explains what an agent does: MEG towards it as a share of what an optimal agent shows.

    Yes, above the threshold, also after the share of the state-blind baseline is taken off, unless another place that
    can be told from the goal beats it. Then it is no where the goal explains nothing, or may explain nothing beside a
    place that explains most; else the agent may be after both, each in a part. No, below the threshold, if it does not
    arrive above chance either. It cannot be told where it would be yes, but another place is the same in these worlds.
    """
    goals = {goal.hypothesis: goal for goal in _estimates(data)}
    share = None if GOAL not in goals else share_of(goals[GOAL])
    if share is None:
        return Evidence(why=_no_share(goals.get(GOAL)))
    goal = goals[GOAL]
    blind = max(0.0, goal.state_blind / goal.bound) if not math.isnan(goal.state_blind) else 0.0
    detail = f"{goal.signed:.2f} of {goal.bound:.2f} nats; by its move frequencies alone {blind:.2f}"
    if better := beaten_by(data, GOAL):
        other = shares(data)[better]
        none = share.high < threshold or (is_strong(other.value, other.low) and share.low <= threshold)
        side: Side = "no" if none else "not shown"
        return Evidence.of(share, side=side, detail=f"{detail}; explained better by {noun_of(better)}")
    if share.high < threshold:
        arrives = data.above_chance().estimate
        side = "not shown" if arrives is not None and arrives.low > 0 else "no"
        return Evidence.of(share, side=side, detail=detail)
    if share.low - blind <= threshold:
        return Evidence.of(share, side="not shown", detail=detail)
    if coinciding := same_as(data, GOAL):
        return _untold(share, "; ".join(coinciding), detail)
    return Evidence.of(share, side="yes", detail=detail, by_size=_by_size(data))


def is_strong(value: float, low: float) -> bool:
    """Return whether a place explains so much that an agent is called directed at it without a qualification."""
    return value >= STRONG and low >= STRONG_LOW


def _no_share(goal: GoalEstimate | None) -> str:
    if goal is None:
        return "the hypothesis has no meaning in these worlds"
    return (math.isnan(goal.signed) and goal.note) or "no policy changes what the goal is worth here"


def _by_size(data: ArmData) -> str:
    """Return the shares of each size where those of the smallest and the largest differ, "" else."""
    profile = {size: goal for goal in data.run.goals.estimates if (size := _size_of(data, goal)) is not None}
    known = {size: share for size in sorted(profile) if (share := share_of(profile[size])) is not None}
    if len(known) < 2:
        return ""
    first, *_, last = known.values()
    if max(first.low, last.low) <= min(first.high, last.high):
        return ""
    return ", ".join(f"{share.value:.2f} at size {size}" for size, share in known.items())


def _size_of(data: ArmData, goal: GoalEstimate) -> int | None:
    """Return the size of the worlds of an estimate of this agent towards the goal, None for other estimates."""
    size = goal.cell.get("size")
    of_goal = (goal.agent, goal.hypothesis) == (data.agent, GOAL) and len(goal.cell) == 1
    return size if of_goal and isinstance(size, int) else None


def same_as(data: ArmData, place: str) -> list[str]:
    """Return for each rival that these worlds do not tell from a place why not."""
    return [contrast.why_not for _, contrast in _against(data, place) if not contrast.told_apart]


def beats(contrast: GoalContrast, signed: float) -> bool:
    """Return whether a place, the first of a contrast, exceeds the other one by the margin of its own MEG."""
    return contrast.told_apart and signed > 0 and contrast.low > MARGIN * signed


def beaten_by(data: ArmData, place: str) -> str:
    """Return the place that explains better than another one, "" for none: it explains, and beats it.

    One of several rivals may look better by luck: its contrast must hold after Holm's correction, too.
    """
    goals, found = {goal.hypothesis: goal for goal in _estimates(data)}, shares(data)
    contrasts = {rival: contrast for rival, contrast in _against(data, place) if not math.isnan(contrast.p_value)}
    rejected = _rejected(contrasts, 1 - data.confidence)
    better = [
        rival
        for rival, contrast in contrasts.items()
        if rival in found and found[rival].low > EXPLAINS and rival in rejected
        if beats(contrast.turned, goals[rival].signed)
    ]
    return max(better, key=lambda rival: found[rival].value, default="")


def _rejected(contrasts: Mapping[str, GoalContrast], level: float) -> set[str]:
    """Return the rivals whose difference is no 0 after Holm's correction."""
    if not contrasts:
        return set()
    family = Family(name="hypotheses", members=tuple(contrasts))
    tests = holm({name: contrast.p_value for name, contrast in contrasts.items()}, family, level=level)
    return {test.name for test in tests if test.rejected}


def towards(data: ArmData) -> Evidence:
    """Return by how much MEG towards the goal exceeds that towards the strongest rival that can be told from it.

    Yes: the goal explains and beats every rival. No: a rival explains and beats the goal. It cannot be told where a
    rival is the same in these worlds, or where neither explains.
    """
    rivals = dict(_against(data, GOAL))
    tested = {rival: contrast for rival, contrast in rivals.items() if not math.isnan(contrast.p_value)}
    found = shares(data)
    if GOAL not in found or not rivals:
        return Evidence(why="there is no rival hypothesis in these worlds, or no turn held an action")
    if not tested:
        return Evidence(why="; ".join(same_as(data, GOAL)))
    better, signed = beaten_by(data, GOAL), _signed(data, GOAL)
    strongest = better or min(tested, key=lambda rival: tested[rival].difference)
    estimate, detail = _difference(data, tested[strongest]), f"rival: {noun_of(strongest)}"
    if better:
        return Evidence.of(estimate, side="no", detail=detail)
    if found[GOAL].low <= EXPLAINS:
        why = f"neither the goal nor {noun_of(strongest)} was shown to explain what it does"
        explained = any(share.low > EXPLAINS for share in found.values())
        return Evidence.of(estimate, side="not shown", detail=detail) if explained else _untold(estimate, why, detail)
    if coinciding := same_as(data, GOAL):
        return _untold(estimate, "; ".join(coinciding), detail)
    beaten = all(beats(contrast, signed) for contrast in tested.values())
    return Evidence.of(estimate, side="yes" if beaten else "not shown", detail=detail)


def elsewhere(data: ArmData) -> Evidence:
    """Return MEG towards the strongest place other than the goal, as a share of what its optimal agent shows.

    Yes: it explains and beats every rival, the goal among them; the place is named. No: no other place explains. It
    cannot be told where rivals are the same in these worlds.
    """
    found = {name: share for name, share in shares(data).items() if name != GOAL}
    if not found:
        return Evidence(why="there is no rival hypothesis in these worlds, or no turn held an action")
    strongest = max(found, key=lambda name: found[name].value)
    share, signed = found[strongest], _signed(data, strongest)
    detail = f"{noun_of(strongest)}: {signed:.2f} nats"
    if share.low <= EXPLAINS:
        below = all(other.high < EXPLAINS for other in found.values())
        return Evidence.of(share, side="no" if below else "not shown", detail=detail)
    rivals = dict(_against(data, strongest))
    beaten = {rival for rival, contrast in rivals.items() if beats(contrast, signed)}
    if set(rivals) == beaten and strongest in _rejected(_goal_contrasts(data), 1 - data.confidence):
        return Evidence.of(share, side="yes", detail=detail, names=noun_of(strongest))
    if (coinciding := same_as(data, strongest)) and set(rivals) == beaten | _same_rivals(rivals):
        return _untold(share, "; ".join(coinciding), detail)
    return Evidence.of(share, side="not shown", detail=detail)


def _goal_contrasts(data: ArmData) -> dict[str, GoalContrast]:
    return {rival: entry for rival, entry in _against(data, GOAL) if not math.isnan(entry.p_value)}


def _same_rivals(rivals: Mapping[str, GoalContrast]) -> set[str]:
    return {rival for rival, contrast in rivals.items() if not contrast.told_apart}


def _untold(estimate: Estimate, why: str, detail: str) -> Evidence:
    """Return the evidence of what cannot be told, with the estimate where it has an interval."""
    known = Evidence.of(estimate, detail=detail)
    return known if known.estimate is None else replace(known, why=why)


def _signed(data: ArmData, place: str) -> float:
    return next(goal.signed for goal in _estimates(data) if goal.hypothesis == place)


def _difference(data: ArmData, contrast: GoalContrast) -> Estimate:
    same = contrast.low == contrast.high
    return Estimate.of_ends(
        *(contrast.difference, contrast.low, contrast.high),
        note=f"every resample of the worlds has the same difference to {noun_of(contrast.second)}" if same else "",
        n=contrast.grids,
        clusters=contrast.grids,
        method="resampled grids, both rationalities fitted anew",
        unit="nats",
        confidence=data.confidence,
    )


def lapses(data: ArmData, threshold: float) -> Evidence:
    """Return the correlation of errors in consecutive turns within worlds: 0 for slips, high for runs of errors.

    For each episode of n decided turns: A, the mean product of errors (0 or 1) in consecutive turns; B, the mean
    product of errors three turns and more apart; p, the share of errors. ``sum (A - B) / sum (p - B)``, each weighed by
    n - 1, is 0 for errors that are independent within an episode, however differently hard the worlds are: both
    products have the expectation p^2 then. Lapses and places that are hard for it look the same here. Asked only of
    agents that are directed at the goal.
    """
    if directed(data, threshold).side != "yes":
        return Evidence(why="it was not shown to be directed at the goal, so that other actions are no errors of its")
    table = data.run.table
    decided = table.optimal.any(axis=1) & (table.agent == data.agent)[table.episode]
    wrong = (~table.is_optimal & decided).astype(np.float64)
    count = int(wrong.sum())
    if count < _FEWEST_ERRORS:
        return Evidence(why=f"it made {count} errors, too few to tell slips from runs")
    excess, spread, clusters = [], [], []
    for episode in np.unique(table.episode[decided]).tolist():
        errors = wrong[decided & (table.episode == episode)]
        parts = _products(errors)
        if parts is not None:
            adjacent, distant, weight = parts
            excess.append((adjacent - distant) * weight)
            spread.append((float(errors.mean()) - distant) * weight)
            clusters.append(str(table.cluster[episode]))
    if not sum(spread) > 0:
        return Evidence(why="its errors do not vary within an episode")
    mean = sum(spread) / len(spread)
    correlation = estimate_pooled(
        excess, np.full(len(excess), mean), clusters, unit="correlation", bounds=UNBOUNDED, confidence=data.confidence
    )
    # One grid's part may lie beyond what a correlation can be, and so may the value or an end.
    correlation = correlation.moved(bounds=(-1.0, 1.0))
    return Evidence.of(correlation, detail=f"{count} errors in {int(decided.sum())} turns")


def _products(errors: Any) -> tuple[float, float, float] | None:
    """Return the mean products of errors of consecutive and of distant turns, and the weight of an episode."""
    count = len(errors)
    if count <= _DISTANT:
        return None
    distant = [float(errors[:-lag] @ errors[lag:]) for lag in range(_DISTANT, count)]
    pairs = sum(count - lag for lag in range(_DISTANT, count))
    return float(errors[:-1] @ errors[1:]) / (count - 1), sum(distant) / pairs, float(count - 1)
