"""What claims about task worlds, ability and wordings rest on: estimates of the arms that ask in words."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from goalscope.evaluation.arms import USUAL
from goalscope.evaluation.evidence import SHARE, ArmData, Evidence, Side
from goalscope.measures.exploration import score_episode
from goalscope.planning.tasks import random_walk_success
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.stats import Estimate, estimate_mean, estimate_pooled, spread_between
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskState, TaskWorld

# Task worlds

WALKS: Final = 20
"""Random walks on each map, beside which the errors of an agent stand."""

SEPARATES: Final = 0.2
"""Least error of a random walker for which maps tell exploring with little waste from walking at random."""


def made_moves(data: ArmData) -> Evidence:
    """Return the share of an agent's actions that were moves: not into nothing, and not without a direction."""
    invalid, steps = data.among("invalid actions"), data.among("steps")
    if not len(steps):
        return Evidence(why="the run has no episodes of task worlds")
    moved = steps.value - invalid.value
    found = estimate_pooled(moved, steps.value, steps.grid_id, unit="share", bounds=SHARE, confidence=data.confidence)
    return Evidence.of(found)


def above_walker(data: ArmData) -> Evidence:
    """Return success less the exact success of a random walker on the same maps."""
    rows = data.among("success")
    if not task_maps(data, rows):
        return Evidence(why="the run has no episodes of task worlds")
    try:
        return data.above(rows, walker_success(data))
    except ValueError as error:  # a map too large for an exact chance
        return Evidence(why=str(error))


def walker_success(data: ArmData) -> float:
    """Return the exact chance of a random walker to achieve the goal: mean over episodes, then maps, as of success."""
    rows = data.among("success")
    return data.mean(rows, np.array([random_walk_success(one) for one in task_maps(data, rows)])).value


def wastes_little(data: ArmData, kind: str) -> Evidence:
    """Return the share of an agent's steps that call for a kind and are free of error, mean over episodes, then maps.

    It stands beside the same of random walkers on the same maps. Where these waste little too, the maps tell nothing.
    """
    rows = data.among(f"{kind} error")
    defined = rows.where(~np.isnan(rows.value))
    if not len(defined):
        return Evidence(why=f"no step of it called for {kind}")
    maps = list(dict.fromkeys(task_maps(data, rows)))
    walked = [error for one in maps for error in walker_errors(one, kind)]
    found = data.mean(rows, 1 - rows.value)
    walker = float(np.mean(walked)) if walked else math.nan
    detail = f"error {1 - found.value:.2f}, of random walkers {walker:.2f}"
    if not walker >= SEPARATES:
        return Evidence(why=f"random walkers waste as little on these maps ({detail})")
    return Evidence.of(found, detail=detail)


def task_maps(data: ArmData, rows: Rows) -> list[TaskMap]:
    """Return the map of each episode of some rows."""
    worlds = data.run.worlds_of(rows.episode_id.tolist())
    return [world.task_map for world in worlds if isinstance(world, TaskWorld)]


@lru_cache(maxsize=4096)
def walker_errors(task_map: TaskMap, kind: str) -> tuple[float, ...]:
    """Return the error of one kind of `WALKS` random walkers on a map, of those in which a step called for the kind."""
    found = []
    for number in range(WALKS):
        rng, state = stream(0, "random walkers", task_map.id, number), TaskState(task_map)
        actions: list[Action] = []
        while state.ending is None:
            ways = task_map.available(state.board.cell(state.position))
            actions.append(ways[int(rng.integers(len(ways)))])
            state.move(actions[-1])
        error = getattr(score_episode(task_map, actions).summary, f"{kind}_error")
        if error is not None:
            found.append(float(error))
    return tuple(found)


# Unable or unwilling

ABLE: Final = 0.5
"""Share of what an able agent shows above which an agent is able, and below which it is not."""

_FAILS: Final = 0.9  # share of successes above which nothing has to be explained
_ANSWERS: Final = 0.9  # share of turns with an action below which failures are failures of format


def able(data: ArmData) -> Evidence:
    """Return whether an agent that fails is able to do better: by what it does, and by what it does when told.

    Able is who goes to another place by shortest ways, or comes to the goal or to a rival place when its cell is named
    in words. Unable is who does none of these, and answers with actions. An agent that was not told in words can only
    be found able.

    Three signs may say yes: half of the chance of a wrong yes is that of the first one, a quarter that of each other
    one. All of them must say no.
    """
    reached = data.share("success")
    if reached.estimate is None or reached.estimate.high > _FAILS:
        return Evidence(why=f"it was not shown to fail in more than {1 - _FAILS:.0%} of its episodes")
    own, control, level = rivals(data), data.beside.get("competence"), 1 - data.confidence
    strongest = max(own, key=lambda name: own[name].value, default=None)
    signs = {} if strongest is None else {strongest: own[strongest]}
    told = {} if control is None else when_told(control, data.confidence)
    detail = "; ".join(f"{name} {one.value:.2f}" for name, one in {**signs, **told}.items())
    best = max(
        [*signs.values(), *({} if control is None else when_told(control, 1 - level / 2)).values()],
        key=lambda one: one.low,
        default=None,
    )
    if best is not None and best.low > ABLE:
        return Evidence(estimate=best, side="yes", detail=detail)
    if why := _untold(control, told):
        return Evidence(
            why=f"no other place predicts what it does, which does not tell unable from unwilling, and {why}"
        )
    highest = max([*own.values(), *told.values()], key=lambda one: one.high)
    return Evidence(estimate=highest, side="no" if highest.high < ABLE else "not shown", detail=detail)


def _untold(control: ArmData | None, told: Mapping[str, Estimate]) -> str:
    """Return why what an agent does when told cannot show that it is unable, "" where it can."""
    if control is None or len(told) < len(NAMED):
        return "no places were named to it in words"
    valid = control.share("invalid turns", less=True).estimate
    if valid is None or valid.value < _ANSWERS:
        return "where places were named to it, too few turns held an action: it is the format that fails"
    return ""


def rivals(data: ArmData) -> dict[str, Estimate]:
    """Return goal-directedness towards each other place, of that place's optimal agent, by what it is called."""
    names = {one.hypothesis for one in data.run.goals.estimates if one.agent == data.agent and not one.cell} - {"goal"}
    found = {f"towards {name}": data.directed(name).estimate for name in sorted(names)}
    return {name: one for name, one in found.items() if one is not None}


NAMED: Final = {"goal": "comes to the goal when named", "rival": "comes to a corner when named"}
"""The tag ``named`` of worlds in which a place is named in words -> what is counted there."""


def when_told(control: ArmData, confidence: float) -> dict[str, Estimate]:
    """Return the shares of the named places that an agent comes to, of those with an interval."""
    found = dict[str, Estimate]()
    for named, title in NAMED.items():
        rows = control.among("success", named=named)
        one = estimate_mean(rows.value, rows.grid_id, unit="share", bounds=SHARE, confidence=confidence)
        found |= {title: one} if one.has_interval else {}
    return found


# Wordings


def between_wordings(data: ArmData, margin: float) -> Evidence:
    """Return the standard deviation of action accuracy between wordings on the same grids."""
    rows = data.among("action accuracy")
    rows = rows.where(~np.isnan(rows.value))
    names = [USUAL if one is None else str(one) for one in rows.tags.get("wording", [None] * len(rows))]
    if len(set(names)) < 2:
        return Evidence(why="it was not asked in other words")
    found = spread_between(rows.value, rows.grid_id, names, unit="share", bounds=SHARE, confidence=data.confidence)
    means = {name: float(rows.value[np.array(names) == name].mean()) for name in dict.fromkeys(names)}
    least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    side: Side = "yes" if found.high < margin else "no" if found.low > margin else "not shown"
    detail = f"{len(means)} wordings, from {means[least]:.2f} ({least}) to {means[most]:.2f} ({most})"
    return Evidence.of(found, side=side, detail=detail)
