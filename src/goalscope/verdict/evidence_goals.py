"""Evidence for further claims about goals: shares of an optimal agent's, and whether errors come in runs."""

from typing import Any, Final

import numpy as np

from goalscope.goals.decision import share_of
from goalscope.stats import UNBOUNDED, Estimate, estimate_mean, estimate_pooled
from goalscope.verdict.aims import is_after_goal
from goalscope.verdict.evidence import ArmData, Evidence

_FEWEST_ERRORS: Final = 20
_DISTANT: Final = 3  # turns
_FEWEST_EPISODES: Final = 6  # with two turns or more


def shares(data: ArmData) -> dict[str, Estimate]:
    """Return signed MEG towards each place as a share of an optimal agent's, by the name of the place."""
    estimates = [goal for goal in data.run.goals.estimates if goal.agent == data.agent and not goal.cell]
    shares_by_name = {goal.hypothesis: share_of(goal) for goal in estimates}
    return {name: share for name, share in shares_by_name.items() if share is not None}


def lapses(data: ArmData) -> Evidence:
    """Return the correlation of errors in consecutive turns within worlds: 0 for single slips, high for runs of errors.

    For each episode of n judged turns, let A be the mean product of errors (0 or 1) in consecutive turns, B the mean
    product of errors at least three turns apart, and p the share of errors. The result is ``sum (A - B) / sum (p -
    B)``, with weights n - 1. It is 0 if errors are independent within an episode, even if worlds differ in difficulty,
    since both products then have the expectation p^2. Lapses cannot be told from places that are hard for the agent.
    Only computed for agents that are directed at the goal.
    """
    if any(evidence.side != "yes" for evidence in is_after_goal(data, "grids").values()):
        return Evidence(why="it was not shown to be directed at the goal, so its other moves need not be errors")
    table = data.run.table
    decided = table.optimal.any(axis=1) & (table.agent == data.agent)[table.episode]
    wrong = (~table.is_optimal & decided).astype(np.float64)
    count = int(wrong.sum())
    if count < _FEWEST_ERRORS:
        return Evidence(why=f"it made {count} errors, too few to tell runs of errors from single slips")
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


def drift(data: ArmData) -> Evidence:
    """Return by how much the share of optimal actions drops from the first to the second half of the episodes.

    Turns in states without a best action are not counted. The halves of an episode have equal length; if its number of
    turns is odd, the middle turn is left out.
    """
    table = data.run.table
    decided = table.optimal.any(axis=1) & (table.agent == data.agent)[table.episode]
    differences, clusters = list[float](), list[str]()
    for episode in np.unique(table.episode[decided]).tolist():
        right = table.is_optimal[decided & (table.episode == episode)].astype(np.float64)
        half = len(right) // 2
        if half:
            differences.append(float(right[:half].mean() - right[-half:].mean()))
            clusters.append(str(table.cluster[episode]))
    if len(differences) < _FEWEST_EPISODES:
        return Evidence(why=f"only {len(differences)} of its episodes have two turns or more")
    return Evidence.of(
        estimate_mean(
            np.array(differences), np.array(clusters), unit="share", bounds=(-1.0, 1.0), confidence=data.confidence
        )
    )


def _products(errors: Any) -> tuple[float, float, float] | None:
    """Return the mean product of errors in consecutive turns, in distant turns, and the weight of the episode."""
    count = len(errors)
    if count <= _DISTANT:
        return None
    distant = [float(errors[:-lag] @ errors[lag:]) for lag in range(_DISTANT, count)]
    pairs = sum(count - lag for lag in range(_DISTANT, count))
    return float(errors[:-1] @ errors[1:]) / (count - 1), sum(distant) / pairs, float(count - 1)
