"""Evidence for claims about task worlds, ability and wordings: estimates from the arms that give instructions in
words.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals import GoalContrast
from goalscope.goals.decision import GOAL
from goalscope.goals.hypotheses.written import noun_of
from goalscope.measures.exploration import score_episode
from goalscope.stats import Estimate, estimate_mean, estimate_pooled
from goalscope.stats.rows import Rows
from goalscope.verdict.evidence import SHARE, ArmData, Evidence
from goalscope.verdict.evidence_goals import shares
from goalscope.worlds.grid import Action
from goalscope.worlds.planning.process import random_walk_success
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskState

# Task worlds

WALKS: Final = 20
"""Number of random walks per map, the reference for the errors of an agent."""

SEPARATES: Final = 0.2
"""Minimum error of random walkers on maps that can tell little waste from random walking."""


def made_moves(data: ArmData) -> Evidence:
    """Return the evidence on the share of an agent's actions that are possible moves: they have a direction, and lead
    to an existing cell.
    """
    invalid, steps = data.among("invalid actions"), data.among("steps")
    if not len(steps):
        return Evidence(why="the run has no episodes of task worlds")
    moved = steps.value - invalid.value
    estimate = estimate_pooled(
        moved, steps.value, steps.cluster, unit="share", bounds=SHARE, confidence=data.confidence
    )
    return Evidence.of(estimate)


def above_walker(data: ArmData) -> Evidence:
    """Return the evidence on success minus the exact success of a random walker on the same maps."""
    rows = data.among("success")
    if not task_maps(data, rows):
        return Evidence(why="the run has no episodes of task worlds")
    try:
        return data.above(data.mean(rows), walker_success(data))
    except ValueError as error:  # a map too large for an exact chance
        return Evidence(why=str(error))


def walker_success(data: ArmData) -> float:
    """Return the exact probability that a random walker achieves the goal, averaged over episodes, then over maps."""
    rows = data.among("success")
    return data.mean(rows, np.array([random_walk_success(task_map) for task_map in task_maps(data, rows)])).value


def wastes_little(data: ArmData, kind: str) -> Evidence:
    """Return the error-free share of the steps that call for exploration or exploitation, averaged over episodes, then
    maps.

    It is compared with the share of random walkers on the same maps: if they waste little too, the claim is undecided.
    """
    rows = data.among(f"{kind} error")
    defined = rows.where(~np.isnan(rows.value))
    if not len(defined):
        return Evidence(why=f"none of its steps called for {kind}")
    maps = list(dict.fromkeys(task_maps(data, rows)))
    walked = [error for task_map in maps for error in walker_errors(task_map, kind)]
    efficient = data.mean(rows, 1 - rows.value)
    walker = float(np.mean(walked)) if walked else math.nan
    detail = f"error {1 - efficient.value:.2f}, of random walkers {walker:.2f}"
    if math.isnan(walker):
        return Evidence(why=f"no step of random walkers called for {kind}, so its error cannot be compared")
    if walker < SEPARATES:
        return Evidence(
            why=f"random walkers waste little on these maps as well, so wasting little shows nothing ({detail})"
        )
    return Evidence.of(efficient, detail=detail)


def task_maps(data: ArmData, rows: Rows) -> list[TaskMap]:
    """Return the map of each episode of some rows."""
    worlds = data.run.worlds_of(rows.episode_id.tolist())
    return [world.task_map for world in worlds if "tasks" in world.offers]


@lru_cache(maxsize=4096)
def walker_errors(task_map: TaskMap, kind: str) -> tuple[float, ...]:
    """Return the mean error of each of `WALKS` random walkers on a map. Walkers without a step that called for this
    kind are left out.
    """
    errors = []
    for number in range(WALKS):
        rng, state = stream(0, "random walkers", task_map.id, number), TaskState(task_map)
        actions: list[Action] = []
        while state.ending is None:
            available = task_map.available(state.board.cell(state.position))
            actions.append(available[int(rng.integers(len(available)))])
            state.move(actions[-1])
        error = getattr(score_episode(task_map, actions).summary, f"{kind}_error")
        if error is not None:
            errors.append(float(error))
    return tuple(errors)


# Unable or unwilling

ABLE: Final = 0.5
"""Share of an able agent's result above which an agent counts as able, and below which it does not."""

_FAILS: Final = 0.9  # share of successes above which nothing has to be explained
_ANSWERS: Final = 0.9  # share of turns with an action below which failures are failures of format


def able(data: ArmData) -> Evidence:
    """Decide whether an agent that fails could do better, from its behaviour with and without places named in words.

    Able: it takes shortest paths to another place, or reaches the goal or a rival place when the instruction names its
    cell. Unable: it does none of these, although its answers contain actions. Without places named in words, the answer
    can only be able.

    Three signs can each give a yes. The first one gets half of the error level, each other one a quarter. For a no, all
    three must say no.
    """
    reached = data.share("success")
    if reached.estimate is None or reached.estimate.high > _FAILS:
        return Evidence(why=f"it was not shown to fail in more than {1 - _FAILS:.0%} of its episodes")
    towards_rivals, named_arm, level = rivals(data), data.other_arms.get("competence"), 1 - data.confidence
    strongest = max(towards_rivals, key=lambda name: towards_rivals[name].value, default=None)
    signs = {} if strongest is None else {strongest: towards_rivals[strongest]}
    named_shares = {} if named_arm is None else when_told(named_arm, data.confidence)
    detail = "; ".join(f"{name} {sign.value:.2f}" for name, sign in {**signs, **named_shares}.items())
    best = max(
        [*signs.values(), *({} if named_arm is None else when_told(named_arm, 1 - level / 2)).values()],
        key=lambda sign: sign.low,
        default=None,
    )
    if best is not None and best.low > ABLE:
        return Evidence(estimate=best, side="yes", detail=detail)
    if why := _why_undecided(named_arm, named_shares):
        return Evidence(
            why=f"no other place was shown to explain half of its moves, so it may be unable or unwilling, and {why}"
        )
    highest = max([*towards_rivals.values(), *named_shares.values()], key=lambda sign: sign.high)
    return Evidence(estimate=highest, side="no" if highest.high < ABLE else "undecided", detail=detail)


def _why_undecided(named_arm: ArmData | None, named_shares: Mapping[str, Estimate]) -> str:
    """Return why moves in worlds with named places cannot show that an agent lacks an ability; "" if they can."""
    if named_arm is None or len(named_shares) < len(NAMED):
        return "we did not name places to it in words"
    valid = named_arm.share("invalid turns", complement=True).estimate
    if valid is None or valid.value < _ANSWERS:
        return "where we named places to it, too few turns contain a valid move, so the format fails"
    return ""


def rivals(data: ArmData) -> dict[str, Estimate]:
    """Return goal-directedness towards each place that can be told from the goal, relative to an optimal agent for that
    place.
    """
    rivals = {contrast.second for contrast in data.run.goals.contrasts if _is_told(data, contrast)}
    return {f"towards {noun_of(name)}": share for name, share in shares(data).items() if name in rivals}


def _is_told(data: ArmData, contrast: GoalContrast) -> bool:
    return (contrast.agent, contrast.first) == (data.agent, GOAL) and not contrast.cell and contrast.told_apart


NAMED: Final = {"goal": "reaches the goal when we name it", "rival": "reaches a corner when we name it"}
"""Value of the tag ``named`` of worlds with a place named in words -> label of the success there."""


def when_told(named_arm: ArmData, confidence: float) -> dict[str, Estimate]:
    """Return how often an agent reaches each place that its instruction names, as shares by place; places without an
    interval are left out.
    """
    shares = dict[str, Estimate]()
    for place, title in NAMED.items():
        rows = named_arm.among("success", named=place)
        share = estimate_mean(rows.value, rows.cluster, unit="share", bounds=SHARE, confidence=confidence)
        shares |= {title: share} if share.has_interval else {}
    return shares
