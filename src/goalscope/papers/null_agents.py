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
from goalscope.agents.scripted import EpsilonGreedy, Optimal, ScriptedAgent, Uniform
from goalscope.agents.task_scripted import Greedy, NoisyGreedy, RandomWalk
from goalscope.measures.behaviour import measure_episodes
from goalscope.measures.testing import roll_out
from goalscope.papers.item import Item
from goalscope.runs import Store
from goalscope.runs.record import Episode
from goalscope.stats.rows import Rows, Tag

OPTIMAL, LAPSE, RANDOM, STATE_BLIND = "optimal", "constant lapse", "random", "state-blind"
SCRIPTED: Final = "scripted agents"
"""Name of the null of sentences that compare agents: the scripted agents of the run, which are no language models."""

_RATE: Final = 0.3  # constant lapse rate of an agent whose accuracy is not measured, as in task worlds
_CHANCE: Final = 0.375  # about the share of moves that are optimal by chance: one or two of four


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
    played: dict[str, list[Episode]] = {}
    for at, name in enumerate(agents):
        own_episodes = [episode for episode in episodes if episode.agent == name]
        accuracy = rows.select(measure="action accuracy", agent=name).value
        for null, agent in _null_agents(own_episodes, accuracy):
            played.setdefault(null, []).extend(_played(own_episodes, agent, f"{null}, {at}", at))
    compared = [NullAgent(name=SCRIPTED, agents=tuple(others), rows=rows)] if len(others) > 1 else []
    return compared + [
        NullAgent(
            name=name,
            agents=tuple(dict.fromkeys(episode.agent for episode in null_episodes)),
            rows=measure_episodes(null_episodes),
        )
        for name, null_episodes in played.items()
    ]


def _null_agents(episodes: Sequence[Episode], accuracy: npt.NDArray[np.float64]) -> Iterator[tuple[str, Agent]]:
    """Yield name and agent of each null agent that can act in the worlds of some episodes."""
    if not episodes:
        return
    if "tasks" in episodes[0].world.offers:
        yield from ((OPTIMAL, Greedy()), (LAPSE, NoisyGreedy(_RATE)), (RANDOM, RandomWalk()))
        return
    moves = np.bincount(
        [step.action for episode in episodes for step in episode.steps if step.action is not None], minlength=4
    )
    measured = accuracy[~np.isnan(accuracy)]
    rate = (1 - float(measured.mean())) / (1 - _CHANCE) if len(measured) else _RATE
    yield OPTIMAL, Optimal()
    yield LAPSE, EpsilonGreedy(round(min(1.0, rate), 3))
    yield RANDOM, Uniform()
    yield STATE_BLIND, StateBlind(tuple((moves / moves.sum() if moves.sum() else np.full(4, 0.25)).tolist()))


def _played(episodes: Sequence[Episode], agent: Agent, name: str, at: int) -> Iterator[Episode]:
    """Play as many trajectories of an agent in each world as an agent has there, with the tags of that agent."""
    by_world: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_world.setdefault(episode.spec.world_id, []).append(episode)
    for in_world in by_world.values():
        first = in_world[0]
        played = roll_out(
            agent,
            first.world,
            seed=first.spec.seed + 1 + at,  # other draws than those of the same agent in the run
            trajectories=len(in_world),
            horizon=first.spec.horizon,
        )
        yield from (
            replace(episode, agent=name, tags=other.tags) for episode, other in zip(played, in_world, strict=True)
        )
