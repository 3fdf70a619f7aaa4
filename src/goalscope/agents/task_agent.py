"""What an agent of a task world is shown, and the loop that plays an episode with it.

The protocol is that of `Agent` with another observation: batches of `TaskObservation` in, `Turn` out. An observation
holds what the world told so far (`Memory`) and nothing of the map, of undiscovered nodes or of the budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from goalscope.agents.agent import History, Observation, Turn
from goalscope.ids import content_id
from goalscope.rng import stream, uniform
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import Knowledge, Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.taskmap import TaskMap


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskObservation:
    """What an agent of a task world is shown before it acts.

    Attributes:
        memory: all reports and moves so far, the present report last; it grows with the episode, so read it while
            acting and keep no reference.
        step: number of the step, 0-based.
        attempt: 0, or the number of the retry after a turn that held no action.
        episode_id: content id of the episode.
        seed: root seed of the study.
        history_as: how earlier steps are to be shown by an agent that is asked anew at each step.
        answers: what the agent said at each earlier step, where that is handed over, else empty.
        task_map: the whole map, told to an agent that says `knows_map` (the oracle) and to no other.
    """

    memory: Memory
    step: int = 0
    attempt: int = 0
    episode_id: str = ""
    seed: int = 0
    history_as: History = "none"
    answers: tuple[str, ...] = ()
    task_map: TaskMap | None = None

    @property
    def report(self) -> Report:
        """What the world tells now."""
        return self.memory.turns[-1][1]

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random stream of this very turn; it does not depend on the order of work."""
        return stream(self.seed, "turn", self.episode_id, self.step, self.attempt, *names)

    def uniform(self, *names: str | int) -> float:
        """Return one uniform number in [0, 1) of this very turn."""
        return uniform(self.seed, "turn", self.episode_id, self.step, self.attempt, *names)


AnyObservation = Observation | TaskObservation
"""What an agent is shown, in a grid or in a task world."""


@runtime_checkable
class Knowing(Protocol):
    """An agent of task worlds that says whether it is told the whole map."""

    @property
    def knows_map(self) -> bool:
        """Whether its observations hold the map."""
        ...


@runtime_checkable
class TaskAgent(Protocol):
    """Anything that acts in task worlds; see `goalscope.agents.agent.Agent` for what each member promises."""

    @property
    def name(self) -> str:
        """Short name, as tables show it."""
        ...

    @property
    def journalled(self) -> bool:
        """Whether each answer is committed before it is used."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return all that determines the agent's behaviour as plain values."""
        ...

    def act(self, observations: Sequence[TaskObservation]) -> Sequence[Turn]:
        """Answer each observation, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEpisode:
    """A played episode.

    Attributes:
        task_map: where it took place.
        agent: the agent's short name.
        id: content id of map, agent, trajectory and seed.
        actions: what each turn did; None where it held no action.
        failures: the name of each failed turn, None for the others.
        turns: (action that led to it, report) of each report, one more than actions: the text log is made of them.
        outcome: how it ended.
    """

    task_map: TaskMap
    agent: str
    id: str
    actions: tuple[Action | None, ...]
    failures: tuple[str | None, ...]
    turns: tuple[tuple[Action | None, Report], ...]
    outcome: Literal["goal", "budget"]


def play(task_map: TaskMap, agent: TaskAgent, *, seed: int = 0, trajectory: int = 0) -> TaskEpisode:
    """Play one episode to its end: the goal achieved, or the budget used up.

    Args:
        task_map: the world.
        agent: who acts.
        seed: root seed; equal arguments give the same episode.
        trajectory: number of the episode of this agent on this map.
    """
    episode_id = content_id(
        "episode",
        {"taskmap": task_map.id, "agent": dict(agent.describe()), "trajectory": trajectory, "seed": seed},
    )
    knowledge, memory = Knowledge(task_map), Memory()
    memory.add(knowledge.report())
    actions: list[Action | None] = []
    failures: list[str | None] = []
    while (ending := knowledge.ending) is None:
        observation = TaskObservation(memory=memory, step=len(actions), episode_id=episode_id, seed=seed)
        (turn,) = agent.act([observation])
        knowledge.move(turn.action)
        memory.add(knowledge.report(), turn.action)
        actions.append(turn.action)
        failures.append(turn.failure)
    return TaskEpisode(
        task_map=task_map,
        agent=agent.name,
        id=episode_id,
        actions=tuple(actions),
        failures=tuple(failures),
        turns=tuple(memory.turns),
        outcome=ending,
    )
