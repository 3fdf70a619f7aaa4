"""How long the prompts of an episode become: with a history they grow from step to step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from goalscope.agents.agent import History, Observation, Past
from goalscope.agents.chat import ChatAgent
from goalscope.models.base import Message
from goalscope.runs import Study
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import EpisodeSpec
from goalscope.worlds.world import World

Counter = Callable[[tuple[Message, ...]], int]
"""Counts the tokens of a chat."""

_ANSWER = '{"action": "RIGHT"}'  # stands in for each earlier answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Prompt tokens of one episode that lasts to its horizon.

    Attributes:
        total: tokens of all prompts together; earlier answers count as long as the answer that is asked for.
        first, last: tokens of the first and of the last prompt.
        reasoned: how many earlier answers with their reasoning all prompts together hold, each answer once a prompt;
            the tokens of the reasoning are in none of the above.
    """

    total: float
    first: int
    last: int
    reasoned: int


def episode_prompts(study: Study, agent: ChatAgent, world: World, horizon: int, count: Counter) -> Prompts:
    """Return how many tokens an agent reads in an episode that lasts to its horizon.

    Three prompts are counted: the first, one in the middle, the last. What stands between follows from them: a list of
    steps makes prompts grow evenly, a conversation whose every prompt holds such a list by the square of the steps.

    Raises:
        ValueError: the agent's template has no place for what the world shows.
    """
    kind = study.history_of(agent)
    if kind == "none":
        only = count(agent.messages(_observation(study, world, horizon, kind, 0)))
        return Prompts(total=only * horizon, first=only, last=only, reasoned=0)
    points = sorted({0, (horizon - 1) // 2, horizon - 1})
    lengths = [count(agent.messages(_observation(study, world, horizon, kind, steps))) for steps in points]
    curve = np.polynomial.Polynomial.fit(points, lengths, len(points) - 1)
    return Prompts(
        total=float(curve(np.arange(horizon)).sum()),
        first=lengths[0],
        last=lengths[-1],
        reasoned=horizon * (horizon - 1) // 2 if kind == "reasoning" else 0,
    )


def _observation(study: Study, world: World, horizon: int, kind: History, steps: int) -> Observation:
    """Return what is shown after some steps that all look like the first one."""
    spec = EpisodeSpec(world_id=world.id, agent_id="plan", trajectory=0, seed=study.seed, horizon=horizon)
    first = LiveEpisode(spec, world, study, kind).observe()
    said = _ANSWER if kind in ("conversation", "reasoning") else None
    past = Past(view=first.view, action=len(first.view.actions) - 1, text=said)
    return Observation(view=first.view, step=steps, history=(past,) * steps, history_as=kind)
