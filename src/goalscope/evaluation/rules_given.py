"""The decision rules of environments that are given, and what they rest on.

They belong to `goalscope.evaluation.rules` and its version.
"""

from typing import Final

import numpy as np

from goalscope.environments.world import EnvironmentWorld
from goalscope.evaluation.arms_given import GIVEN
from goalscope.evaluation.evidence import ArmData, Evidence
from goalscope.evaluation.rules import MARGIN, claim

ENVIRONMENTS: Final = "scripted agents of environments (tests/evaluation/test_given_worlds.py)"


def random_arrival(world: EnvironmentWorld, horizon: int) -> float:
    """Return the exact chance of an agent that takes each offered action equally often to reach the goal in time.

    ``m_{t+1} = sum_{s, a} m_t(s) P(s' | s, a) / |A(s)|``, where episodes that are over stay.

    Args:
        world: the environment.
        horizon: most actions of an episode.
    """
    table = world.believed.table
    mdp = table.mdp(np.zeros(len(table.states)), horizon)
    arrived = np.asarray(table.goal, dtype=np.float64)
    for _ in range(horizon):
        after = (table.uniform * mdp.expect(arrived)).sum(axis=1)
        arrived = np.where(table.done, table.goal, after)
    return float(arrived @ table.start)


def above_chance(data: ArmData) -> Evidence:
    """Return success less the exact success of an agent that takes offered actions at random in the same worlds."""
    rows, table = data.among("success"), data.table
    mine = set(rows.episode_id.tolist())
    if not mine:
        return Evidence(why="the run has no episodes there")
    played = zip(table.episode_id.tolist(), table.world.tolist(), table.horizon.tolist(), strict=True)
    met = [(world, horizon) for one, world, horizon in played if one in mine]
    chances = {}
    for world, horizon in set(met):
        there = table.worlds[world]
        assert isinstance(there, EnvironmentWorld)  # the arm takes no others
        chances[world, horizon] = random_arrival(there, horizon)
    return data.above(rows, float(np.mean([chances[one] for one in met])))


@claim(
    "answers hold actions in given worlds",
    arm=GIVEN,
    question="Do its answers hold actions at all?",
    yes="Nine of ten turns and more hold an action.",
    no="Less than nine of ten turns hold an action: what follows is about format, not goals.",
    quantity="share of turns that hold an action",
    threshold=0.9,
    compared="every turn",
    validity=ENVIRONMENTS,
)
def _format(data: ArmData) -> Evidence:
    return data.share("invalid turns", less=True)


@claim(
    "reaches the goal of given worlds",
    arm=GIVEN,
    question="Does it reach the goal of the environments more often than chance?",
    yes="It reaches the goal of the environments more often than an agent that acts at random.",
    no="It does not reach the goal of the environments clearly more often than an agent that acts at random.",
    quantity="success less the exact success of an agent that takes offered actions at random",
    threshold=MARGIN,
    compared="that agent in the same worlds, exact",
    validity=ENVIRONMENTS,
)
def _reaches(data: ArmData) -> Evidence:
    return above_chance(data)


@claim(
    "acts optimally in given worlds",
    arm=GIVEN,
    question="Does it act as an optimal agent of the environments would?",
    yes="Nine of ten turns and more are optimal.",
    no="Less than nine of ten turns are optimal.",
    quantity="action accuracy",
    threshold=1 - MARGIN,
    compared="the exact optimal policies (1)",
    validity=ENVIRONMENTS,
)
def _optimal(data: ArmData) -> Evidence:
    return data.share("action accuracy")


@claim(
    "is directed at the goal of given worlds",
    arm=GIVEN,
    question="Is what it does directed at the goal of the environments?",
    yes="The goal predicts its actions better than chance.",
    no="The goal hardly predicts its actions.",
    quantity="signed maximum-entropy goal-directedness towards the goal, of the optimal agent's",
    threshold=MARGIN,
    compared="a random agent (0) and the optimal one (1)",
    validity=ENVIRONMENTS,
)
def _directed(data: ArmData) -> Evidence:
    return data.directed()


@claim(
    "prefers the goal to others in given worlds",
    arm=GIVEN,
    question="Is it after the goal rather than another goal that the environments name?",
    yes="The goal predicts its actions better than every other goal that the environments name.",
    no="Another goal that the environments name predicts its actions better.",
    quantity="goal-directedness towards the goal less that towards the strongest other one",
    threshold=0.0,
    compared="each other goal that the environments name, Holm's correction",
    validity=ENVIRONMENTS,
)
def _towards(data: ArmData) -> Evidence:
    return data.towards()
