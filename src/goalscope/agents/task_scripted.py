"""Nine agents of known behaviour for task worlds: ground truth for the errors of exploration and exploitation.

Eight of them act on their `AgentKnowledge` alone; `TaskOracle` knows the world. None keeps a state of its own.
Ties go to the cell seen first, then to the order of `Action`. An agent with nothing left to do moves at random.
"""

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from goalscope._ground.checks import check_whole
from goalscope.agents.agent import TASK_PREFIX, Observation, agent_kind
from goalscope.agents.scripted import PROBABILITY, Scripted
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.knowledge import AgentKnowledge
from goalscope.worlds.tasks.taskmap import TaskMap, plan_task
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View


@dataclass(frozen=True)
class ScriptedTaskAgent(Scripted):
    """An agent of task worlds that follows a rule."""

    prefix: ClassVar[str] = TASK_PREFIX
    needs: ClassVar[type[View]] = TaskView

    @abstractmethod
    def _move(self, observation: Observation) -> Action | None:
        """Return the move of the rule, None where the rule has none."""

    def _choose(self, observation: Observation) -> Action:
        action = self._move(observation)
        if action is not None:
            return action
        # One of the open directions, each with equal probability; every cell of a map has at least one.
        available = observation.report.available
        return available[int(observation.uniform("direction") * len(available))]


@dataclass(frozen=True)
class TaskOracle(ScriptedTaskAgent):
    """Knows the whole map and follows a shortest successful path: a bound on steps, no bound on errors."""

    kind: ClassVar[str] = "oracle"
    knows_world: ClassVar[bool] = True

    def _move(self, observation: Observation) -> Action | None:
        task_map = getattr(observation.world, "task_map", None)
        if not isinstance(task_map, TaskMap):
            raise ValueError("an oracle must be told its map: give it observations that hold its world")
        actions = plan_task(task_map).actions
        return actions[observation.step] if observation.step < len(actions) else None


@dataclass(frozen=True)
class Greedy(ScriptedTaskAgent):
    """Exploits first: goes to the goal where it is pending, else to the nearest pending node, else to a new cell.

    Each of its paths is a shortest one to a target, so its errors are exactly 0.
    """

    kind: ClassVar[str] = "greedy"

    def _move(self, observation: Observation) -> Action | None:
        return greedy(observation.memory)


@dataclass(frozen=True)
class ExploreFirst(ScriptedTaskAgent):
    """Goes to the goal where it is pending; else to the nearest new cell while there is one; else to a pending node.

    Each of its paths is a shortest one to a target, so its errors are exactly 0.
    """

    kind: ClassVar[str] = "explore-first"

    def _move(self, observation: Observation) -> Action | None:
        memory = observation.memory
        goals = set(memory.pending_goals.values())
        return towards(memory, goals or memory.frontier or set(memory.pending.values()))


@dataclass(frozen=True)
class DepthFirst(ScriptedTaskAgent):
    """Enters a new neighbouring cell, else goes back on its path; once back at the start it acts as `Greedy` does.

    It goes to the goal where it is pending.
    """

    kind: ClassVar[str] = "depth-first"

    def _move(self, observation: Observation) -> Action | None:
        memory = observation.memory
        position = memory.position
        if position is None or not memory.frontier or memory.pending_goals:
            return greedy(memory)
        new = (action for action in memory.available if _neighbour(memory, position, action) in memory.frontier)
        action = next(new, _move_back(memory))
        return greedy(memory) if action is None else action


@dataclass(frozen=True)
class NoisyGreedy(ScriptedTaskAgent):
    """Takes a random open direction with probability epsilon, else acts as `Greedy` does.

    Args:
        epsilon: probability of a random move, in [0, 1].
    """

    kind: ClassVar[str] = "noisy-greedy"
    epsilon: float = field(metadata=PROBABILITY)

    def _move(self, observation: Observation) -> Action | None:
        return None if observation.uniform("noise") < self.epsilon else greedy(observation.memory)


@dataclass(frozen=True)
class FrontierOnly(ScriptedTaskAgent):
    """Goes to the nearest new cell and never back to a node on purpose: explores without exploiting."""

    kind: ClassVar[str] = "frontier-only"

    def _move(self, observation: Observation) -> Action | None:
        return towards(observation.memory, observation.memory.frontier)


@dataclass(frozen=True)
class ShortMemory(ScriptedTaskAgent):
    """Acts as `Greedy` does on its last reports only: cells seen before them are new to it again.

    Args:
        span: number of reports that it remembers, >= 1.
    """

    kind: ClassVar[str] = "short-memory"
    span: int = field(metadata={"check": partial(check_whole, least=1, unit="reports")})

    def _move(self, observation: Observation) -> Action | None:
        return greedy(observation.memory.recent(self.span))


@dataclass(frozen=True)
class RandomWalk(ScriptedTaskAgent):
    """Takes each open direction with equal probability."""

    kind: ClassVar[str] = "random-walk"

    def _move(self, observation: Observation) -> Action | None:
        return None


@dataclass(frozen=True)
class Oscillator(ScriptedTaskAgent):
    """Steps from the start in the first open direction and back, repeatedly."""

    kind: ClassVar[str] = "oscillator"

    def _move(self, observation: Observation) -> Action | None:
        back = _move_back(observation.memory)
        return observation.memory.available[0] if back is None else back


TASK_SCRIPTED: dict[str, type[ScriptedTaskAgent]] = {
    agent.kind: agent_kind(f"{TASK_PREFIX}{agent.kind}")(agent)
    for agent in (
        *(TaskOracle, Greedy, ExploreFirst, DepthFirst, NoisyGreedy),
        *(FrontierOnly, ShortMemory, RandomWalk, Oscillator),
    )
}
"""The scripted agents of task worlds by kind."""


def greedy(memory: AgentKnowledge) -> Action | None:
    """Return the first move of a shortest path to the goal where it is pending, else to a pending node or a new cell.

    None where there is none of them.
    """
    goals = set(memory.pending_goals.values())
    return towards(memory, goals or set(memory.pending.values()) or memory.frontier)


def towards(memory: AgentKnowledge, aims: Collection[Cell]) -> Action | None:
    """Return the first move of a shortest path over known cells to the nearest of the cells ``aims``.

    None where there is none, or where the agent stands on one.
    """
    if memory.position is None or not aims or memory.position in aims:
        return None
    first: dict[Cell, Action | None] = {memory.position: None}
    queue = list(first)
    for here in queue:  # breadth first: the queue grows during the loop
        for action in memory.axes:
            cell = _neighbour(memory, here, action)
            if cell in first or not memory.known(cell):
                continue
            move = first[here]
            first[cell] = action if move is None else move
            if cell in aims:
                return first[cell]
            queue.append(cell)
    return None


def _move_back(memory: AgentKnowledge) -> Action | None:
    """Return the move to the cell that the present one was entered from, None for the first cell."""
    position = memory.position
    back = None if position is None else memory.entered_from.get(position)
    if position is None or back is None:
        return None
    return next((action for action in memory.available if _neighbour(memory, position, action) == back), None)


def _neighbour(memory: AgentKnowledge, cell: Cell, action: Action) -> Cell:
    right, up = memory.axes[action]
    return cell[0] + right, cell[1] + up
