"""Null agents: agents without what a sentence claims, in the same worlds with as many trajectories.

A sentence that such an agent satisfies too says nothing about the agent that was run. In grids, these are an optimal
agent, one that errs at a constant rate, a random one, and one that draws its moves with the agent's own frequencies
whatever it sees; in task worlds, an agent that always takes a useful step, one that errs at a constant rate, and a
random walk. A sentence on activations is tested on those of networks with random weights, and one on patches on noise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from goalscope.agents import Agent, Observation
from goalscope.agents.scripted import EpsilonGreedy, Greedy, NoisyGreedy, Optimal, RandomWalk, ScriptedAgent, Uniform
from goalscope.measures.behaviour import measure_episodes
from goalscope.measures.testing import roll_out
from goalscope.papers.item import Item
from goalscope.runs import Store
from goalscope.runs.record import Episode, EpisodeSpec
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.world import World

OPTIMAL, LAPSE, RANDOM, STATE_BLIND = "optimal", "constant lapse", "random", "state-blind"
SCRIPTED: Final = "scripted agents"
"""Name of the null of sentences that compare agents: the scripted agents of the run, which are no language models."""

_RATE: Final = 0.3  # constant lapse rate of an agent whose accuracy is not measured, as in task worlds
_CHANCE: Final = 0.375  # about the share of moves that are optimal by chance: one or two of four

Planned = tuple[EpisodeSpec, World, Mapping[str, Tag]]
"""An episode to play, its world and the tags of its agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullAgent:
    """An agent without what a sentence claims.

    Attributes:
        name: its name.
        agents: names of its agents in the rows, one for each agent that is read.
        rows: all its rows.
        tags: tags that select its rows, in place of those of the item.
    """

    name: str
    agents: tuple[str, ...]
    rows: Rows
    tags: Mapping[str, Tag] = field(default_factory=dict)


@dataclass(frozen=True)
class StateBlind(ScriptedAgent):
    """Agent that draws its moves with given frequencies, whatever it sees.

    Args:
        frequencies: probability of each of the four moves.
    """

    kind: ClassVar[str] = STATE_BLIND
    frequencies: tuple[float, ...]

    def probabilities(self, observation: Observation) -> npt.NDArray[np.float64]:  # noqa: D102
        return np.array(self.frequencies)


def nulls_of(item: Item, path: Path, rows: Rows, agents: Sequence[str]) -> list[NullAgent]:
    """Return the null agents of an item's sentences.

    Args:
        item: the item.
        path: directory of the run.
        rows: all rows of the run.
        agents: names of the agents that are read.
    """
    if not item.claims:
        return []
    if item.nulls:
        return [
            NullAgent(name=", ".join(map(str, tags.values())), agents=tuple(agents), rows=rows, tags=tags)
            for tags in item.nulls
        ]
    with Store(path) as store:
        episodes = [episode for episode in store.episodes() if episode.agent in agents]
        others = [name for name in store.agent_names() if name not in agents]
    planned, moves = dict[str, list[Planned]](), dict[str, list[int]]()
    for episode in episodes:
        planned.setdefault(episode.agent, []).append((episode.spec, episode.world, episode.tags))
        moves.setdefault(episode.agent, []).extend(step.action for step in episode.steps if step.action is not None)
    played: dict[str, list[Episode]] = {}
    for at, name in enumerate(planned):
        accuracy = rows.select(measure="action accuracy", agent=name).value
        for null, agent in null_agents(planned[name][0][1], accuracy[~np.isnan(accuracy)], moves[name]):
            played.setdefault(null, []).extend(play_planned(planned[name], agent, f"{null}, {at}", at))
    compared = [NullAgent(name=SCRIPTED, agents=tuple(others), rows=rows)] if len(others) > 1 else []
    return compared + [null_of(name, null_episodes) for name, null_episodes in played.items()]


def null_of(name: str, episodes: Sequence[Episode]) -> NullAgent:
    """Measure the episodes of a null agent."""
    agents = tuple(dict.fromkeys(episode.agent for episode in episodes))
    return NullAgent(name=name, agents=agents, rows=measure_episodes(episodes))


def null_agents(
    world: World, accuracy: npt.NDArray[np.float64] | Sequence[float] = (), moves: Sequence[int] = ()
) -> Iterator[tuple[str, Agent]]:
    """Yield name and agent of each null agent that can act in worlds like this one.

    Args:
        world: one of the worlds.
        accuracy: action accuracies of the agent that is read, which set the lapse rate.
        moves: all moves of the agent that is read, whose frequencies the state-blind agent has; none without them.
    """
    if "tasks" in world.offers:
        yield from ((OPTIMAL, Greedy()), (LAPSE, NoisyGreedy(_RATE)), (RANDOM, RandomWalk()))
    elif "cells" in world.offers:
        rate = (1 - float(np.mean(accuracy))) / (1 - _CHANCE) if len(accuracy) else _RATE
        yield from ((OPTIMAL, Optimal()), (LAPSE, EpsilonGreedy(round(min(1.0, rate), 3))), (RANDOM, Uniform()))
        if moves:
            counts = np.bincount(moves, minlength=4)
            yield STATE_BLIND, StateBlind(tuple((counts / counts.sum()).tolist()))


def play_planned(planned: Sequence[Planned], agent: Agent, name: str, at: int) -> Iterator[Episode]:
    """Play as many trajectories of an agent in each world as are planned there for another, with the tags of that one.

    Args:
        planned: the planned episodes.
        agent: the agent.
        name: its name in the episodes.
        at: number of the agent for which they are planned, so that each has draws of its own.
    """
    by_world: dict[str, list[Planned]] = {}
    for plan in planned:
        by_world.setdefault(plan[0].world_id, []).append(plan)
    for plans in by_world.values():
        spec, world, _ = plans[0]
        # The seed is another one than that of the run, where the same agent may have acted.
        episodes = roll_out(agent, world, seed=spec.seed + 1 + at, trajectories=len(plans), horizon=spec.horizon)
        for episode, (_, _, tags) in zip(episodes, plans, strict=True):
            yield replace(episode, agent=name, tags=tags)
