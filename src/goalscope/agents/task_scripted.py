"""Nine agents for task worlds whose behaviour is known: what the errors of exploration and exploitation are checked on.

Eight of them act on their `Memory` alone; `Oracle` knows the map. None keeps a state of its own.
Ties go to what was seen first, then to the order of `Action`. An agent that has nothing left to do walks at random.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from goalscope.agents.agent import Agent, Observation, Turn
from goalscope.agents.build import TASK_PREFIX, agent_kind
from goalscope.agents.scripted_base import Scripted
from goalscope.checks import check_probability, check_whole
from goalscope.ids import content_id
from goalscope.planning.tasks import plan_task
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import move
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.knowledge import Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskSession, TaskView
from goalscope.worlds.world import View


@dataclass(frozen=True, slots=True)
class ScriptedTaskAgent(Scripted):
    """An agent of task worlds that follows a rule."""

    prefix: ClassVar[str] = TASK_PREFIX
    needs: ClassVar[type[View]] = TaskView

    @abstractmethod
    def choose(self, observation: Observation) -> Action | None:
        """Return the move of the rule, None where the rule knows of nothing to do."""

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Return the rule's move for each observation, a random one where it knows of nothing to do."""
        turns = []
        for observation in observations:
            action = self.choose(observation)
            turns.append(Turn(action=_random(observation) if action is None else action))
        return turns


@dataclass(frozen=True, slots=True)
class Oracle(ScriptedTaskAgent):
    """Knows the whole map and walks a shortest successful walk: the bound on steps, no bound on errors.

    Args:
        task_map: the map that it knows; it acts on this map only. None where its observations tell it the world.
    """

    kind: ClassVar[str] = "oracle"
    knows_world: ClassVar[bool] = True
    task_map: TaskMap | None = None

    def choose(self, observation: Observation) -> Action | None:
        """Return the next move of the plan.

        Raises:
            ValueError: neither the agent nor the observation has the map.
        """
        task_map = self.task_map or getattr(observation.world, "task_map", None)
        if not isinstance(task_map, TaskMap):
            raise ValueError("an oracle must be told its map: give it one, or observations that hold its world")
        actions = plan_task(task_map).actions
        return actions[observation.step] if observation.step < len(actions) else None

    def _parameters(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Greedy(ScriptedTaskAgent):
    """Uses what it knows at once: to the goal where it is pending, else to the nearest pending node, else to new cells.

    Each of its walks is a shortest one to a target, so its errors are exactly 0.
    """

    kind: ClassVar[str] = "greedy"

    def choose(self, observation: Observation) -> Action | None:
        """Return the first move to the nearest cell of what it wants."""
        return greedy(observation.memory)


@dataclass(frozen=True, slots=True)
class ExploreFirst(ScriptedTaskAgent):
    """Goes to the goal where it is pending; else to the nearest new cell while there is one; else to a pending node.

    Each of its walks is a shortest one to a target, so its errors are exactly 0.
    """

    kind: ClassVar[str] = "explore-first"

    def choose(self, observation: Observation) -> Action | None:
        """Return the first move to the nearest cell of what it wants."""
        memory = observation.memory
        pending, goal = memory.pending, memory.goal
        if goal is not None and goal in pending:
            return towards(memory, {pending[goal]})
        return towards(memory, memory.frontier or set(pending.values()))


@dataclass(frozen=True, slots=True)
class DepthFirst(ScriptedTaskAgent):
    """Enters a new cell beside it, else goes back the way it came; once back at the start it acts as `Greedy` does.

    It goes to the goal where it is pending.
    """

    kind: ClassVar[str] = "depth-first"

    def choose(self, observation: Observation) -> Action | None:
        """Return the first open direction to a new cell, else the way back."""
        memory = observation.memory
        goal, here = memory.goal, memory.position
        if here is None or not memory.frontier or goal in memory.pending:
            return greedy(memory)
        for action in memory.available:
            if _beside(memory, here, action) in memory.frontier:
                return action
        back = memory.entered_from.get(here)
        if back is None:
            return greedy(memory)
        return next(action for action in memory.available if _beside(memory, here, action) == back)


@dataclass(frozen=True, slots=True)
class NoisyGreedy(ScriptedTaskAgent):
    """Takes a random open direction with probability epsilon, else acts as `Greedy` does.

    Args:
        epsilon: probability of a random move, in [0, 1].
    """

    kind: ClassVar[str] = "noisy-greedy"
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_probability("epsilon", self.epsilon))
        ScriptedTaskAgent.__post_init__(self)

    def choose(self, observation: Observation) -> Action | None:
        """Return None, which stands for a random move, with probability epsilon."""
        return None if observation.uniform("noise") < self.epsilon else greedy(observation.memory)


@dataclass(frozen=True, slots=True)
class FrontierOnly(ScriptedTaskAgent):
    """Goes to the nearest new cell and never back to a node on purpose: explores without using what it knows."""

    kind: ClassVar[str] = "frontier-only"

    def choose(self, observation: Observation) -> Action | None:
        """Return the first move to the nearest new cell."""
        return towards(observation.memory, observation.memory.frontier)


@dataclass(frozen=True, slots=True)
class ShortMemory(ScriptedTaskAgent):
    """Acts as `Greedy` does on its last reports only: what it saw before is new to it again.

    Args:
        span: reports that it remembers, >= 1.
    """

    kind: ClassVar[str] = "short-memory"
    span: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "span", check_whole("span", self.span, 1, "reports"))
        ScriptedTaskAgent.__post_init__(self)

    def choose(self, observation: Observation) -> Action | None:
        """Return the move of a greedy agent that has just woken up `span` reports ago."""
        return greedy(observation.memory.recent(self.span))


@dataclass(frozen=True, slots=True)
class RandomWalk(ScriptedTaskAgent):
    """Takes each open direction with equal probability."""

    kind: ClassVar[str] = "random-walk"

    def choose(self, observation: Observation) -> Action | None:
        """Return None, which stands for a random move."""
        return None


@dataclass(frozen=True, slots=True)
class Oscillator(ScriptedTaskAgent):
    """Steps from the start in the first open direction and back, for ever."""

    kind: ClassVar[str] = "oscillator"

    def choose(self, observation: Observation) -> Action | None:
        """Return the way back to the cell it came from, or the first open direction."""
        memory = observation.memory
        here = memory.position
        back = None if here is None else memory.entered_from.get(here)
        for action in memory.available:
            if here is not None and back is not None and _beside(memory, here, action) == back:
                return action
        return memory.available[0]


TASK_SCRIPTED: dict[str, type[ScriptedTaskAgent]] = {
    agent.kind: agent_kind(f"{TASK_PREFIX}{agent.kind}", hidden=("task_map",))(agent)
    for agent in (
        Oracle,
        Greedy,
        ExploreFirst,
        DepthFirst,
        NoisyGreedy,
        FrontierOnly,
        ShortMemory,
        RandomWalk,
        Oscillator,
    )
}
"""The scripted agents of task worlds by kind."""


def greedy(memory: Memory) -> Action | None:
    """Return the first move of a shortest way to the goal where it is pending, else to a pending node or a new cell.

    None where there is nothing of the kind.
    """
    pending, goal = memory.pending, memory.goal
    if goal is not None and goal in pending:
        return towards(memory, {pending[goal]})
    return towards(memory, set(pending.values()) or memory.frontier)


def towards(memory: Memory, aims: Collection[Cell]) -> Action | None:
    """Return the first move of a shortest way over known cells to the nearest of some cells.

    None where there is none, or where the agent stands on one.
    """
    if memory.position is None or not aims or memory.position in aims:
        return None
    first: dict[Cell, Action | None] = {memory.position: None}
    wave = [memory.position]
    while wave:
        following = []
        for here in wave:
            for action, (right, up) in memory.axes.items():
                near = (here[0] + right, here[1] + up)
                if near in first or not memory.known(near):
                    continue
                move = first[here]
                if move is None:
                    move = action
                if near in aims:
                    return move
                first[near] = move
                following.append(near)
        wave = following
    return None


def _beside(memory: Memory, here: Cell, action: Action) -> Cell:
    right, up = memory.axes[action]
    return here[0] + right, here[1] + up


def _random(observation: Observation) -> Action:
    """Return one of the open directions, each with equal probability; every cell of a map has at least one."""
    available = observation.report.available
    return available[int(observation.uniform("direction") * len(available))]


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


def play(task_map: TaskMap, agent: Agent, *, seed: int = 0, trajectory: int = 0) -> TaskEpisode:
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
    session = TaskSession(task_map)
    actions: list[Action | None] = []
    failures: list[str | None] = []
    while not session.done and len(actions) < task_map.budget:
        (turn,) = agent.act([Observation(view=session.view, step=len(actions), episode_id=episode_id, seed=seed)])
        action = None if turn.action is None else move(turn.action)
        session.step(action)
        actions.append(action)
        failures.append(turn.failure)
    return TaskEpisode(
        task_map=task_map,
        agent=agent.name,
        id=episode_id,
        actions=tuple(actions),
        failures=tuple(failures),
        turns=tuple(session.view.memory.turns),
        outcome="goal" if session.solved else "budget",
    )
