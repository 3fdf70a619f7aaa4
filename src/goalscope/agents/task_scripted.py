"""Nine agents with known behaviour in task worlds, which provide ground truth for exploration and exploitation errors.

Eight of them use only their `AgentKnowledge`; `TaskOracle` knows the world. None keeps a state of its own. Ties between
cells go to the cell seen first, then to the first move in the order of `Action`. An agent with nothing left to do moves
at random.
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
    """Base class of agents for task worlds that follow a fixed rule."""

    prefix: ClassVar[str] = TASK_PREFIX
    needs: ClassVar[type[View]] = TaskView

    @abstractmethod
    def _move(self, observation: Observation) -> Action | None:
        """Return the move that the rule chooses, or None if the rule chooses no move."""

    def _choose(self, observation: Observation) -> Action:
        action = self._move(observation)
        if action is not None:
            return action
        # Draw one of the open directions uniformly; every cell of a map has at least one.
        available = observation.report.available
        return available[int(observation.uniform("direction") * len(available))]


@dataclass(frozen=True)
class TaskOracle(ScriptedTaskAgent):
    """Agent that knows the whole map and takes a shortest successful walk. Such a walk has the fewest steps, but may
    contain exploration errors.
    """

    kind: ClassVar[str] = "oracle"
    knows_world: ClassVar[bool] = True

    def _move(self, observation: Observation) -> Action | None:
        task_map = getattr(observation.world, "task_map", None)
        if not isinstance(task_map, TaskMap):
            raise ValueError(
                "an oracle needs the task map, but its observation contains none: pass Observation(world=...)"
            )
        actions = plan_task(task_map).actions
        return actions[observation.step] if observation.step < len(actions) else None


@dataclass(frozen=True)
class Greedy(ScriptedTaskAgent):
    """Agent that exploits first: it goes to an achievable goal, else to an achievable node, else to a new cell.

    All its paths are shortest paths to a target, so its errors are exactly 0.
    """

    kind: ClassVar[str] = "greedy"

    def _move(self, observation: Observation) -> Action | None:
        return greedy(observation.memory)


@dataclass(frozen=True)
class ExploreFirst(ScriptedTaskAgent):
    """Agent that goes to a goal that can be achieved, else to the nearest new cell, and only then to other nodes.

    All its paths are shortest paths to a target, so its errors are exactly 0.
    """

    kind: ClassVar[str] = "explore-first"

    def _move(self, observation: Observation) -> Action | None:
        memory = observation.memory
        goals = set(memory.pending_goals.values())
        return towards(memory, goals or memory.frontier or set(memory.pending.values()))


@dataclass(frozen=True)
class DepthFirst(ScriptedTaskAgent):
    """Agent that enters a new neighbouring cell, or else steps back; after it is back at the start it acts as `Greedy`.

    If a goal can be achieved, it goes there first.
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
    """Agent that moves in a random open direction with probability epsilon, and otherwise acts as `Greedy`.

    Args:
        epsilon: probability of a random move, in [0, 1].
    """

    kind: ClassVar[str] = "noisy-greedy"
    epsilon: float = field(metadata=PROBABILITY)

    def _move(self, observation: Observation) -> Action | None:
        return None if observation.uniform("noise") < self.epsilon else greedy(observation.memory)


@dataclass(frozen=True)
class FrontierOnly(ScriptedTaskAgent):
    """Agent that explores without exploiting: it goes to the nearest new cell and never heads back to a node."""

    kind: ClassVar[str] = "frontier-only"

    def _move(self, observation: Observation) -> Action | None:
        return towards(observation.memory, observation.memory.frontier)


@dataclass(frozen=True)
class ShortMemory(ScriptedTaskAgent):
    """Agent that acts as `Greedy` but remembers only its last reports, so that cells seen earlier are new to it again.

    Args:
        span: number of reports that it remembers, >= 1.
    """

    kind: ClassVar[str] = "short-memory"
    span: int = field(metadata={"check": partial(check_whole, least=1, unit="reports")})

    def _move(self, observation: Observation) -> Action | None:
        return greedy(observation.memory.recent(self.span))


@dataclass(frozen=True)
class RandomWalk(ScriptedTaskAgent):
    """Agent that takes each open direction with equal probability."""

    kind: ClassVar[str] = "random-walk"

    def _move(self, observation: Observation) -> Action | None:
        return None


@dataclass(frozen=True)
class Oscillator(ScriptedTaskAgent):
    """Agent that leaves the start in the first open direction, steps back, and repeats this."""

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
"""Kind -> scripted agent for task worlds."""


def greedy(memory: AgentKnowledge) -> Action | None:
    """Return the first move of a shortest path to an achievable goal, else to an achievable node, else to a new cell.

    The result is None if there are no such cells.
    """
    goals = set(memory.pending_goals.values())
    return towards(memory, goals or set(memory.pending.values()) or memory.frontier)


def towards(memory: AgentKnowledge, aims: Collection[Cell]) -> Action | None:
    """Return the first move of a shortest path over known cells to the nearest of the cells ``aims``.

    The result is None if no such path exists, or if the agent already stands on one of the cells.
    """
    if memory.position is None or not aims or memory.position in aims:
        return None
    first: dict[Cell, Action | None] = {memory.position: None}
    queue = list(first)
    for here in queue:  # breadth-first search; the loop itself extends the queue
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
    """Return the move to the cell from which the current cell was first entered, or None for the first cell."""
    position = memory.position
    back = None if position is None else memory.entered_from.get(position)
    if position is None or back is None:
        return None
    return next((action for action in memory.available if _neighbour(memory, position, action) == back), None)


def _neighbour(memory: AgentKnowledge, cell: Cell, action: Action) -> Cell:
    right, up = memory.axes[action]
    return cell[0] + right, cell[1] + up
