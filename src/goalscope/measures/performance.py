"""Capability: success, directness, and the share of optimal actions.

Source: behavioural and representational evaluation, Appendix B.1.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope.measures.definition import OURS, PAPER, Entries, Values, measure, ratio
from goalscope.measures.table import StepTable
from goalscope.stats.rows import Rows, column_of, encoded

_B1 = f"{PAPER}, Appendix B.1"


@measure("success", unit="share", source=f"{_B1}, equation 1")
def success(table: StepTable) -> Values:
    """Share of episodes that end at the goal.

    Returns ``[E]`` 1 or 0 for each episode of the table.
    """
    return np.asarray(table.outcome == "goal", dtype=np.float64)


@measure("action accuracy", unit="share", needs=("oracle",), source=f"{_B1}, equations 2 and 3")
def action_accuracy(table: StepTable) -> Values:
    """Share of an episode's turns whose action is on a shortest path to the goal. A turn without an action counts as
    wrong. Turns in states from which the goal cannot be reached are not counted; without other turns the value is
    undefined. Values are averaged over the episodes of a grid, then over grids.

    Returns ``[E]`` one value per episode of the table.
    """
    return ratio(table.per_episode(table.is_optimal), table.per_episode(np.any(table.optimal, axis=1)))


@measure("action accuracy of valid turns", unit="share", needs=("oracle",), source=OURS)
def valid_action_accuracy(table: StepTable) -> Values:
    """Share of an episode's turns with an action whose action is on a shortest path to the goal. Turns in states from
    which the goal cannot be reached are not counted; without other turns the value is undefined.

    Returns ``[E]`` one value per episode of the table.
    """
    valid = table.valid & np.any(table.optimal, axis=1)
    return ratio(table.per_episode(table.is_optimal), table.per_episode(valid))


@measure("action optimality", unit="share", per="step", needs=("oracle",), source=f"{PAPER}, Fig. 4")
def action_optimality(table: StepTable) -> Entries:
    """Whether the action of a single turn is on a shortest path, by distance to the goal. Undefined if no action is
    optimal in that state.

    Returns 1, 0 or NaN for each step of the table, with the tag "distance" (steps to the goal).
    """
    value = np.where(table.optimal.any(axis=1), table.is_optimal.astype(np.float64), np.nan)
    return Entries(value, tags={"distance": distance_tag(table.distance)})


@measure("steps to goal", unit="steps", source=OURS)
def steps_to_goal(table: StepTable) -> Values:
    """Number of steps of an episode that reached the goal. Undefined for other episodes.

    Returns ``[E]`` one value per episode of the table, NaN where undefined.
    """
    return np.where(table.outcome == "goal", table.length, np.nan)


@measure(
    "return",
    unit="reward",
    bounds=(-math.inf, math.inf),
    needs=("reward",),
    source="Sutton and Barto (2018), equation 3.7",
)
def total_reward(table: StepTable) -> Values:
    """Undiscounted sum of an episode's rewards.

    Returns ``[E]`` one value per episode of the table.
    """
    rewards = np.nan_to_num(table.reward)
    return np.asarray(np.bincount(table.episode, weights=rewards, minlength=len(table.length)), dtype=np.float64)


MOST_VALUES = 40_000_000
"""Maximum of decisions times states times actions in an environment for which `regret` is computed."""


@measure(
    "regret",
    unit="decisions",
    bounds=(0, math.inf),
    needs=("environment",),
    source="Kearns and Singh (2002), Near-optimal reinforcement learning in polynomial time, section 3 (values)",
)
def regret(table: StepTable) -> Values:
    """How many decisions at the goal an episode's actions cost, in expectation (0 is best). On each turn, the cost is
    the value of the best offered action minus the value of the chosen action, both for the remaining number of
    decisions; the costs are summed over the turns. A turn without an action has no cost itself, but uses up a decision.
    Defined in environments, stochastic ones included, unless they are too large.

    The value of an action is the expected number of later decisions that begin at the goal, if all of them are optimal.
    Returns ``[E]`` one value per episode of the table, NaN where undefined.
    """
    lost = decisions_lost(table)
    total = np.bincount(table.episode, weights=np.nan_to_num(lost), minlength=len(table.length))
    defined = np.array([_has_values(table, index) for index in range(len(table.worlds))], dtype=bool)
    return np.where(defined[table.world], total, np.nan)


def decisions_lost(table: StepTable) -> Values:
    """Return how many expected decisions at the goal each step of a table cost, ``[N]``; see `regret`.

    The values are NaN in worlds where `regret` is undefined.
    """
    lost = np.zeros(len(table.episode))
    left = table.horizon[table.episode] - table.step
    world_of_step = table.world[table.episode]
    for index, world in enumerate(table.worlds):
        if not _has_values(table, index):
            lost[world_of_step == index] = np.nan
            continue
        steps = np.flatnonzero((world_of_step == index) & table.valid)
        horizon = _longest(table, index)
        values = world.believed.action_values(horizon)[horizon - left[steps], table.codes[steps, 0]]
        offered = world.believed.table.offered[table.codes[steps, 0]]
        best = np.where(offered, values, -np.inf).max(axis=1)
        taken = values[np.arange(len(steps)), table.action[steps]]
        lost[steps] = np.maximum(best - taken, 0.0)
    return lost


def _longest(table: StepTable, index: int) -> int:
    return int(table.horizon[table.world == index].max(initial=1))


def _has_values(table: StepTable, index: int) -> bool:
    """Return whether a world is an environment that is small enough for the values of its decisions."""
    world = table.worlds[index]
    if "environment" not in world.offers:
        return False
    return bool(_longest(table, index) * world.believed.table.offered.size <= MOST_VALUES)


@measure("path ratio", unit="ratio", bounds=(1, math.inf), needs=("distance",), source=OURS)
def path_ratio(table: StepTable) -> Values:
    """Number of steps of an episode that reached the goal, divided by the length of the shortest path (1 is best).
    Undefined for other episodes.

    Returns ``[E]`` one value per episode of the table, NaN where undefined.
    """
    return np.where(table.outcome == "goal", ratio(table.length, np.maximum(table.optimal_length, 0)), np.nan)


@measure("success weighted by path length", unit="share", needs=("distance",), source="Anderson et al. (2018)")
def path_efficiency(table: StepTable) -> Values:
    """Length of the shortest path divided by the number of steps, or 0 for an episode that did not reach the goal.

    Returns ``[E]`` one value per episode of the table.
    """
    return np.where(table.outcome == "goal", ratio(np.maximum(table.optimal_length, 0), table.length), 0.0)


@measure("invalid turns", unit="share", source=OURS)
def invalid_turns(table: StepTable) -> Values:
    """Share of an episode's turns without an action because the answer did not have the required format. Turns whose
    answer the server withheld are not counted; without other turns the value is undefined.

    Returns ``[E]`` one value per episode of the table.
    """
    answered = ~table.withheld
    return ratio(table.per_episode((table.action < 0) & answered), table.per_episode(answered))


@measure("withheld turns", unit="share", source=OURS)
def withheld_turns(table: StepTable) -> Values:
    """Share of an episode's turns whose answer the server withheld (by a content filter or a refusal). Undefined
    without turns.

    Returns ``[E]`` one value per episode of the table.
    """
    return ratio(table.per_episode(table.withheld), table.length)


@measure("wall bumps", unit="share", needs=("grid",), source=OURS)
def wall_bumps(table: StepTable) -> Values:
    """Share of an episode's actions that changed nothing, i.e. moves into a wall, a locked door or the edge. Undefined
    without actions.

    Returns ``[E]`` one value per episode of the table.
    """
    acted = table.action >= 0
    bumped = acted & (table.state == table.following).all(axis=1)
    return ratio(table.per_episode(bumped), table.per_episode(acted))


def distance_tag(distance: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Convert distances to the goal ``[K]`` to values of a tag: plain integers, None where the goal cannot be
    reached (-1).
    """
    column = distance.astype(object)
    column[distance < 0] = None
    return column


def with_distance_bands(rows: Rows, width: int) -> Rows:
    """Add a tag ``distance_band`` such as "05-08" to rows, by which rare distances to the goal can be pooled.

    Args:
        rows: rows with the tag ``distance`` in steps, None where undefined.
        width: number of distances per band, >= 1. The bands are 1..width, width + 1..2 width, ...

    Raises:
        ValueError: if the width is below 1.
        KeyError: if no row has the tag ``distance``.
    """
    check_whole("width", width, 1, "steps")
    codes, distances = rows.numbered("distance")
    band: dict[Any, str] = {}
    for distance in set(distances) - {None}:
        if distance >= 1:
            first = (int(distance) - 1) // width * width + 1
            band[distance] = f"{first:02d}-{first + width - 1:02d}" if width > 1 else f"{first:02d}"
    bands = column_of(list(map(band.get, distances)))
    return rows.tagged({"distance_band": encoded(bands[codes])})
