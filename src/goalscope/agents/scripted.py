"""Agents with planted goals, in grids, task maps and environments: the ground truth against which measures are checked.

For every observation, each agent for grids or environments has an exact distribution over actions
(`ScriptedAgent.probabilities`), from which actions are drawn with the random number of the turn. The agents keep no
state, so an interrupted episode resumes exactly. When there is nothing left to do (no visible or reachable goal), all
valid actions are equally likely.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_choice, check_probability, check_whole, freeze, is_whole
from goalscope._ground.rng import uniform
from goalscope.agents.agent import TASK_PREFIX, Observation, Turn, agent_kind
from goalscope.agents.prompts import WORDINGS, wording
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import State, initial_flags, solid_cells
from goalscope.worlds.environments.world import EnvironmentView, EnvironmentWorld
from goalscope.worlds.grid import ACTIONS, CORNERS, KEY, Action, Grid, Position, Side
from goalscope.worlds.gridworld import GridView, NamedView, WordedView
from goalscope.worlds.planning.shortest import distances_to, optimal_batch, solve
from goalscope.worlds.tasks.knowledge import AgentKnowledge
from goalscope.worlds.tasks.taskmap import Cell, TaskMap, plan_task
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.things import arrangement_of
from goalscope.worlds.world import View

Distribution = npt.NDArray[np.float64]

_UNIFORM: Distribution = freeze(np.full(4, 0.25))

PROBABILITY = {"check": check_probability}
"""Metadata for probability fields of scripted agents; ``check(name, value)`` returns the value to store."""


def check_optional(name: str, value: Any, least: int, unit: str) -> int | None:
    """Check that a setting is None or a whole number of at least ``least``, and return it.

    Args:
        name: name of the setting, for the error.
        value: value of the setting.
        least: smallest allowed number.
        unit: what the number counts, for the error.

    Raises:
        ValueError: the value is anything else.
    """
    return None if value is None else check_whole(name, value, least, unit)


@dataclass(frozen=True)
class Scripted(ABC):
    """An agent that follows a fixed rule, such as "go to the goal"; the base class of all scripted agents.

    The fields of a subclass are the parameters of its rule.

    Attributes:
        name: short name for tables; by default the kind and its parameters.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str] = ""
    """Prefix of the kind in descriptions, so that agents of different worlds never share an id."""
    version: ClassVar[int] = 1
    """Version of the behaviour, increased whenever the same parameters lead to different actions."""
    journalled: ClassVar[bool] = False

    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for entry in fields(self):
            if "check" in entry.metadata:
                value = entry.metadata["check"](entry.name, getattr(self, entry.name))
                object.__setattr__(self, entry.name, value)
        if not self.name:
            values = ", ".join(str(value) for value in self._parameters().values())
            object.__setattr__(self, "name", f"{self.kind}({values})" if values else self.kind)

    def describe(self) -> Mapping[str, Any]:
        """Return kind, version and parameters of the agent; its id is the hash of them.

        The name is left out: it changes nothing.
        """
        return {"kind": f"{self.prefix}{self.kind}", "version": self.version, **self._parameters()}

    def _parameters(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "name"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Choose one action for each observation, and return the actions as turns in the same order."""
        return [Turn(action=self._choose(observation)) for observation in observations]

    @abstractmethod
    def _choose(self, observation: Observation) -> int:
        """Return the index of an action."""


@dataclass(frozen=True)
class ScriptedAgent(Scripted):
    """A scripted agent whose goal and exact distribution over actions are known, so that measures can be checked
    against it.

    A subclass defines its rule by `table` (probabilities at each cell of a grid) or by `probabilities`.
    """

    needs: ClassVar[type[View]] = GridView

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the exact probability ``[4]`` of each of the four moves at an observation.

        By default these are the entries of `table` for the agent's cell.
        """
        return _entry(self, observation.grid, _agent_cell(observation))

    def table(self, grid: Grid) -> Distribution | None:
        """Return the agent's action probabilities at each cell of a grid, ``[H, W, 4]``: rows by columns by moves.

        The grid has no fog and no agent. The result is None if the probabilities depend on more than the cell; such an
        agent overrides `probabilities`.
        """
        return None

    def _choose(self, observation: Observation) -> int:
        return observation.draw(self.probabilities(observation).tolist())


@dataclass(frozen=True)
class Optimal(ScriptedAgent):
    """Agent that takes each action on a shortest path to the goal with equal probability.

    Under fog, it plans over the cells that it has seen: to the goal if it knows a path, else to the nearest hidden
    cell, else to the key. This explores sensibly but is not the optimal policy for the whole grid.
    """

    kind: ClassVar[str] = "optimal"

    def table(self, grid: Grid) -> Distribution:  # noqa: D102
        return _plan_optimal(grid)


@dataclass(frozen=True)
class EpsilonGreedy(ScriptedAgent):
    """Agent that acts uniformly at random with probability epsilon, and otherwise as `Optimal`.

    Args:
        epsilon: probability of a random action, in [0, 1]; its expected accuracy in a state with k optimal actions is
            ``(1 - epsilon) + epsilon * k / 4``.
    """

    kind: ClassVar[str] = "epsilon-greedy"
    epsilon: float = field(metadata=PROBABILITY)

    def table(self, grid: Grid) -> Distribution:  # noqa: D102
        return (1 - self.epsilon) * _plan_optimal(grid) + self.epsilon * _UNIFORM


@dataclass(frozen=True)
class Uniform(ScriptedAgent):
    """Agent without a goal, which takes each of the four actions of a grid with probability 1/4.

    It can act in any world; in worlds that are not grids, it takes each valid action with equal probability.
    """

    kind: ClassVar[str] = "random"
    needs: ClassVar[type[View]] = View

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the uniform distribution ``[A]`` over the valid actions of the world; all A = 4 moves of a grid are
        valid.
        """
        view = observation.view
        if isinstance(view, GridView):
            _agent_cell(observation)
            return _UNIFORM
        probabilities = np.zeros(len(view.actions))
        probabilities[list(view.offered)] = 1 / len(view.offered)
        return probabilities

    def table(self, grid: Grid) -> Distribution:  # noqa: D102
        return np.broadcast_to(_UNIFORM, (*grid.walls.shape, 4))


@dataclass(frozen=True)
class KeyLured(ScriptedAgent):
    """Agent that goes to the key while the grid shows one, and then to the goal.

    Its path to the key avoids the goal, which would end the episode. If it sees no key, or cannot reach the key on such
    a path, it acts as `Optimal`.
    """

    kind: ClassVar[str] = "key-lured"

    def table(self, grid: Grid) -> Distribution:  # noqa: D102
        return _plan_key(grid)


def _check_target(name: str, target: Any) -> str | Position:
    if isinstance(target, str):
        if target in CORNERS:
            return target
    elif isinstance(target, Sequence) and len(target) == 2 and all(is_whole(item) and item >= 0 for item in target):
        return int(target[0]), int(target[1])
    raise ValueError(
        f"{name} must be one of {', '.join(CORNERS)} or a cell (row, col) with row and col >= 0, got {target!r}"
    )


@dataclass(frozen=True)
class WrongGoal(ScriptedAgent):
    """Agent that goes to a target cell instead of the goal, and stays there.

    If the target is a wall, the agent goes to the nearest open cell instead (`Grid.corner`, `Grid.nearest`). If the
    resulting cell is the goal's cell, the agent enters it and the episode ends. Otherwise it takes shortest paths that
    avoid the goal; if no such path exists, it goes as near to its cell as it can. To stay, it moves into a wall, the
    edge or a locked door; if none is adjacent, it steps away and back. Hidden cells count as open until they are seen.

    Args:
        target: a corner ("top-left", "top-right", "bottom-left", "bottom-right") or a cell (row, col).
    """

    kind: ClassVar[str] = "wrong-goal"
    version: ClassVar[int] = 2
    target: str | Position = field(default="top-right", metadata={"check": _check_target})

    def table(self, grid: Grid) -> Distribution:  # noqa: D102
        target = self._target(grid)
        return _plan_optimal(grid) if target == grid.goal else _plan_target(grid, target)

    def _target(self, grid: Grid) -> Position:
        if isinstance(self.target, str):
            return grid.corner(self.target)
        return grid.nearest(grid.check_cell(self.target, "the target of a wrong-goal agent"))


@dataclass(frozen=True)
class Forgetful(ScriptedAgent):
    """Agent that forgets its goal for whole blocks of steps, so that an otherwise optimal agent makes errors in bursts.

    Each episode is divided into blocks of `span` steps. A random number for each episode and block decides whether the
    block is forgotten. In forgotten blocks, actions are uniformly random; in all others the agent acts as `Optimal`.
    Over many episodes, it errs as often in each state as `EpsilonGreedy` with epsilon = probability, but errors at
    successive steps are not independent.

    Args:
        probability: probability that a block is forgotten, in [0, 1].
        span: number of steps per block, >= 1.
    """

    kind: ClassVar[str] = "forgetful"
    probability: float = field(metadata=PROBABILITY)
    span: int = field(metadata={"check": partial(check_whole, least=1, unit="steps")})

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability ``[4]`` of each move: uniform if the block of this step is forgotten, else as
        `Optimal`.
        """
        _agent_cell(observation)
        return _UNIFORM if self.forgotten(observation) else _OPTIMAL.probabilities(observation)

    def forgotten(self, observation: Observation) -> bool:
        """Return whether the agent has forgotten its goal at this step, decided at random for each block of `span`
        steps.
        """
        block = observation.step // self.span
        return uniform(observation.seed, "forgotten block", observation.episode_id, block) < self.probability


def _check_side(name: str, side: Any) -> Any:
    check_choice(name, side, get_args(Side))
    return side


@dataclass(frozen=True)
class SideBiased(ScriptedAgent):
    """Agent that acts as `Optimal`, except as `EpsilonGreedy` while the goal is shown in the weak half of the grid.

    The goal does not move, so the agent is either optimal or epsilon-greedy for a whole episode. Reflecting the grid
    swaps the two cases, so the effect of a transform on this agent is known exactly.

    Args:
        epsilon: probability of a random action while the goal lies in the weak half, in [0, 1].
        side: the weak half: "left", "right", "top" or "bottom"; the middle row or column belongs to neither half.
    """

    kind: ClassVar[str] = "side-biased"
    epsilon: float = field(metadata=PROBABILITY)
    side: Side = field(default="left", metadata={"check": _check_side})

    def table(self, grid: Grid) -> Distribution:  # noqa: D102
        optimal = _plan_optimal(grid)
        return (1 - self.epsilon) * optimal + self.epsilon * _UNIFORM if grid.goal_lies(self.side) else optimal


SCRIPTED: dict[str, type[ScriptedAgent]] = {
    agent.kind: agent_kind(agent.kind)(agent)
    for agent in (Optimal, EpsilonGreedy, Uniform, KeyLured, WrongGoal, Forgetful, SideBiased)
}
"""Kind, as studies name it -> scripted agent."""
_OPTIMAL = Optimal()


def _agent_cell(observation: Observation) -> Position:
    grid = observation.grid
    if grid.start is None:
        raise ValueError(f"a scripted agent needs a grid that shows its own cell (A), got a grid without it:\n{grid}")
    return grid.start


@lru_cache(maxsize=65536)
def _entry(agent: ScriptedAgent, grid: Grid, position: Position) -> Distribution:
    """Return an agent's probabilities at a cell; grids that differ only in the agent's cell share one table."""
    table = agent.table(grid.at(start=None))
    if table is None:
        raise NotImplementedError(f"{type(agent).__name__} must define its probabilities, or a table of them")
    return freeze(table[position])


@lru_cache(maxsize=4096)
def _plan_optimal(grid: Grid) -> Distribution:
    """Return ``[H, W, 4]``: the distribution of `Optimal` at each cell."""
    fog_as_walls = grid if grid.fog is None else grid.at(walls=grid.walls | grid.fog, fog=None)
    sets = np.zeros((*grid.walls.shape, 4), dtype=bool)
    if grid.goal is not None:
        paths = solve(fog_as_walls)
        sets = paths.optimal[paths.first]
    if grid.fog is not None:
        solid = _solid(grid)
        sets = _fill_empty(sets, _towards(solid, [(int(row), int(col)) for row, col in np.argwhere(grid.fog)]))
        sets = _fill_empty(sets, _towards(solid | grid.fog, [] if grid.key is None else [grid.key]))
    return _normalised(sets)


@lru_cache(maxsize=4096)
def _plan_key(grid: Grid) -> Distribution:
    """Return ``[H, W, 4]``: the distribution of `KeyLured` at each cell."""
    plan = _plan_optimal(grid)
    if grid.key is None:
        return plan
    solid = _solid(grid)
    if grid.fog is not None:
        solid |= grid.fog
    if grid.goal is not None:
        solid[grid.goal] = True
    sets = _towards(solid, [grid.key])
    lured = sets.any(axis=-1, keepdims=True)
    return np.where(lured, _normalised(sets), plan)


@lru_cache(maxsize=4096)
def _plan_target(grid: Grid, target: Position) -> Distribution:
    """Return ``[H, W, 4]``: the distribution of `WrongGoal` at each cell, for an open target other than the goal."""
    blocked = _solid(grid)
    solid = blocked.copy()
    if grid.goal is not None:
        solid[grid.goal] = True
    sets = np.zeros((*solid.shape, 4), dtype=bool)
    unassigned = ~solid
    while unassigned.any():  # one pass per connected part of the grid after removing the goal's cell
        first = np.argwhere(unassigned)[0]
        component = distances_to(solid, [(int(first[0]), int(first[1]))]) >= 0
        rows, cols = np.nonzero(component)
        index = int(np.argmin(np.abs(rows - target[0]) + np.abs(cols - target[1])))  # ties: first row, then column
        nearest = int(rows[index]), int(cols[index])
        sets[component] = _towards(solid, [nearest])[component]
        sets[nearest] = _staying(blocked, solid, nearest)
        unassigned &= ~component
    return _normalised(sets)


def _staying(blocked: npt.NDArray[np.bool_], solid: npt.NDArray[np.bool_], cell: Position) -> npt.NDArray[np.bool_]:
    """Return ``[4]``: the actions that stay in a cell, or, if there are none, the actions that step aside."""
    stay, aside = np.zeros(4, dtype=bool), np.zeros(4, dtype=bool)
    for action in ACTIONS:
        row, col = cell[0] + action.delta[0], cell[1] + action.delta[1]
        inside = 0 <= row < blocked.shape[0] and 0 <= col < blocked.shape[1]
        stay[action] = not inside or blocked[row, col]
        aside[action] = inside and not solid[row, col]
    return _fill_empty(stay, aside)


def _solid(grid: Grid) -> npt.NDArray[np.bool_]:
    """Return a new array ``[H, W]`` of the cells that the agent cannot enter, or that end its episode without success.

    These are the walls, the locked door for an agent without the key, and things.
    """
    state = State((0, 0), door_open=KEY in grid.held, things=initial_flags(grid) >> 2)
    solid = solid_cells(grid, state).copy()
    for cell in arrangement_of(grid.things, grid.held).ends:
        solid[cell] = True
    return solid


def _towards(solid: npt.NDArray[np.bool_], cells: list[Position]) -> npt.NDArray[np.bool_]:
    """Return ``[H, W, 4]``: the actions that lead nearer to the nearest of the given cells."""
    return optimal_batch(distances_to(solid, cells))


def _fill_empty(sets: npt.NDArray[np.bool_], fallback: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the sets of actions, with empty sets replaced by those of the fallback."""
    return np.where(sets.any(axis=-1, keepdims=True), sets, fallback)


def _normalised(sets: npt.NDArray[np.bool_]) -> Distribution:
    """Return the uniform distribution over each set ``[..., 4]``; empty sets become uniform over all four actions."""
    full = _fill_empty(sets, np.ones(4, dtype=bool))
    return freeze(full / full.sum(axis=-1, keepdims=True))


# A scripted agent that obeys its instruction, for validating measures of ability and of prompt wordings.

OWN_GOAL: Final = "goal"
"""Target of a reader that goes to the goal unless its instruction names a cell."""
SWAYING: Final = tuple(WORDINGS)[::2]
"""The wordings under which a reader takes more random actions if ``swayed`` is set."""


def _target(name: str, target: Any) -> str | Position:
    return OWN_GOAL if target == OWN_GOAL else WrongGoal(target=target).target


def _wording(name: str, value: Any) -> str:
    wording(value)
    return str(value)


@agent_kind("reader")
@dataclass(frozen=True)
class InstructedAgent(ScriptedAgent):
    """Agent that goes to the cell that its instruction names, or to its own target if the instruction names no cell.

    A fraction epsilon of its actions is random. With ``swayed``, this fraction is larger under every second wording
    (variant of the prompt) of `goalscope.agents.prompts`, so that the effect of a wording is known exactly.

    Args:
        target: where it goes if its instruction names no cell: "goal", or a place as in `WrongGoal`.
        epsilon: probability of a random action, in [0, 1].
        swayed: probability of a random action under every second wording, in [0, 1]; no effect if below epsilon.
        wording: the wording of its instruction, "" for the default; a wording set by the view (`WordedView`) has
            priority.
    """

    kind: ClassVar[str] = "reader"
    reads: ClassVar[bool] = True
    target: str | Position = field(default=OWN_GOAL, metadata={"check": _target})
    epsilon: float = field(default=0.0, metadata=PROBABILITY)
    swayed: float = field(default=0.0, metadata=PROBABILITY)
    wording: str = field(default="", metadata={"check": _wording})

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability ``[4]`` of each move: shortest paths to the target, mixed with uniformly random
        moves.
        """
        view = observation.view
        asked_in = view.wording if isinstance(view, WordedView) else self.wording
        noise = max(self.epsilon, self.swayed) if asked_in in SWAYING else self.epsilon
        mixture: Distribution = (1 - noise) * self._path_policy(observation) + noise * _UNIFORM
        return mixture

    @property
    def tags(self) -> Mapping[str, Tag]:
        """The named value ``wording`` of the agent's episodes, by which results can be grouped.

        It is empty for the default wording.
        """
        return {"wording": self.wording} if self.wording else {}

    def _parameters(self) -> dict[str, Any]:
        parameters = super()._parameters()
        return parameters if self.wording else {name: value for name, value in parameters.items() if name != "wording"}

    def _path_policy(self, observation: Observation) -> Distribution:
        view = observation.view
        if isinstance(view, NamedView) and view.named is not None:
            target_view = GridView(grid=view.grid.at(goal=view.named))
            return Optimal().probabilities(replace(observation, view=target_view))
        own_policy = Optimal() if self.target == OWN_GOAL else WrongGoal(target=self.target)
        return own_policy.probabilities(observation)


# Task maps: agents that provide ground truth for exploration and exploitation errors.
#
# All of them use only their `AgentKnowledge`, except for `TaskOracle`, which knows the world. Ties between cells go to
# the cell seen first, then to the first move in the order of `Action`.


@dataclass(frozen=True)
class ScriptedTaskAgent(Scripted):
    """Base class of scripted agents for task maps: each follows a fixed rule, and moves at random where the rule is
    silent.
    """

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
    """Agent that knows the whole task map and takes a shortest walk that achieves all goals.

    Such a walk has the fewest steps, but may contain exploration errors.
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
    """Agent for task maps that exploits first: it goes to a goal that can be achieved now, else to another node (a step
    of the task) that can be achieved now, else to a new cell.

    All its paths are shortest paths to a target, so its exploration and exploitation errors are exactly 0.
    """

    kind: ClassVar[str] = "greedy"

    def _move(self, observation: Observation) -> Action | None:
        return greedy(observation.memory)


@dataclass(frozen=True)
class ExploreFirst(ScriptedTaskAgent):
    """Agent for task maps that explores first: it goes to a goal that can be achieved now, else to the nearest new
    cell, and only then to other nodes (steps of the task).

    All its paths are shortest paths to a target, so its exploration and exploitation errors are exactly 0.
    """

    kind: ClassVar[str] = "explore-first"

    def _move(self, observation: Observation) -> Action | None:
        memory = observation.memory
        goals = set(memory.pending_goals.values())
        return towards(memory, goals or memory.frontier or set(memory.pending.values()))


@dataclass(frozen=True)
class DepthFirst(ScriptedTaskAgent):
    """Agent that explores a task map depth first: it enters a new neighbouring cell, or else steps back where it came
    from.

    Back at the start with nothing new, it acts as `Greedy`. If a goal can be achieved, it goes there first.
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
    """Agent for task maps that moves in a random open direction with probability epsilon, and otherwise acts as
    `Greedy`.

    Args:
        epsilon: probability of a random move, in [0, 1].
    """

    kind: ClassVar[str] = "noisy-greedy"
    epsilon: float = field(metadata=PROBABILITY)

    def _move(self, observation: Observation) -> Action | None:
        return None if observation.uniform("noise") < self.epsilon else greedy(observation.memory)


@dataclass(frozen=True)
class FrontierOnly(ScriptedTaskAgent):
    """Agent that explores a task map without exploiting what it finds: it always goes to the nearest new cell.

    It never heads for a node (a cell with a step of the task).
    """

    kind: ClassVar[str] = "frontier-only"

    def _move(self, observation: Observation) -> Action | None:
        return towards(observation.memory, observation.memory.frontier)


@dataclass(frozen=True)
class ShortMemory(ScriptedTaskAgent):
    """Agent for task maps that acts as `Greedy` but forgets all but its last reports, so that earlier cells are new
    again.

    Args:
        span: number of reports that it remembers, >= 1.
    """

    kind: ClassVar[str] = "short-memory"
    span: int = field(metadata={"check": partial(check_whole, least=1, unit="reports")})

    def _move(self, observation: Observation) -> Action | None:
        return greedy(observation.memory.recent(self.span))


@dataclass(frozen=True)
class RandomWalk(ScriptedTaskAgent):
    """Agent for task maps that takes each open direction with equal probability."""

    kind: ClassVar[str] = "random-walk"

    def _move(self, observation: Observation) -> Action | None:
        return None


@dataclass(frozen=True)
class Oscillator(ScriptedTaskAgent):
    """Agent for task maps that leaves the start in the first open direction, steps back, and repeats this."""

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
    """Choose the move of `Greedy`, an agent on a task map that exploits what it knows before it explores.

    Args:
        memory: what the agent knows of the map.

    Returns:
        The first move of a shortest path to a goal that can be achieved now, else to another node (a step of the task)
        that can be achieved now, else to a cell not yet visited; None if there are no such cells.
    """
    goals = set(memory.pending_goals.values())
    return towards(memory, goals or set(memory.pending.values()) or memory.frontier)


def towards(memory: AgentKnowledge, aims: Collection[Cell]) -> Action | None:
    """Return the first move of a shortest path over known cells to the nearest of some cells of a task map.

    Args:
        memory: what the agent knows of the map.
        aims: the cells to reach.

    Returns:
        The move; None if no such path exists, or if the agent already stands on one of the cells.
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


# Environments: agents that know the world.


@dataclass(frozen=True)
class EnvironmentAgent(ScriptedAgent):
    """Base class of scripted agents in environments with a finite table of states; each knows the table.

    A subclass says which actions its rule prefers in a state. The agent takes each preferred action with equal
    probability, and any valid action where the rule prefers none.
    """

    prefix: ClassVar[str] = "environment-"
    needs: ClassVar[type[View]] = EnvironmentView
    knows_world: ClassVar[bool] = True

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return which of the A actions the agent's rule prefers in a state, as booleans ``[A]``; by default all valid
        actions.

        Args:
            world: the environment.
            state: index of the state.
            observation: what the agent is shown; says how many actions are left.

        Returns:
            The preferred actions; none where the rule does not apply.
        """
        return np.asarray(world.believed.table.offered[state])

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each of the A actions, ``[A]``: uniform over the valid actions that the rule
        prefers.

        Raises:
            ValueError: the observation does not include its world.
        """
        world, view = observation.world, observation.seen(EnvironmentView)
        if not isinstance(world, EnvironmentWorld):
            raise ValueError("a scripted agent of environments must be told its world, got an observation without it")
        offered = world.believed.table.offered[view.number]
        chosen = self.preferred(world, view.number, observation) & offered
        chosen = chosen if chosen.any() else offered
        return np.asarray(chosen / chosen.sum())


def _optimal(
    world: EnvironmentWorld, target: str, state: int, observation: Observation, horizon: int | None = None
) -> npt.NDArray[np.bool_]:
    """Return ``[A]`` the optimal actions towards a goal; with chance they depend on the actions that are left."""
    sets = world.believed.towards(target).optimal
    if sets is not None:
        return np.asarray(sets[state])
    horizon = horizon or observation.horizon
    if not horizon:
        raise ValueError(
            "where the environment has chance, an optimal agent must be told the horizon: add horizon: N, the steps of "
            "the study, to the agent"
        )
    return np.asarray(world.believed.by_time(horizon, target)[min(observation.step, horizon - 1), state])


@agent_kind("environment-optimal")
@dataclass(frozen=True)
class EnvironmentOptimal(EnvironmentAgent):
    """Agent that takes each optimal action towards the environment's goal with equal probability.

    Args:
        horizon: number of decisions per episode for which the agent plans, if it differs from that of the study. It
            matters only in stochastic environments, where the optimal action depends on how many decisions are left.
    """

    kind: ClassVar[str] = "optimal"
    horizon: int | None = field(default=None, metadata={"check": partial(check_optional, least=1, unit="decisions")})

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return which of the A actions are optimal towards the environment's goal in a state, as booleans ``[A]``."""
        return _optimal(world, "goal", state, observation, self.horizon)

    def _parameters(self) -> dict[str, Any]:
        return {} if self.horizon is None else super()._parameters()


@agent_kind("environment-epsilon-greedy")
@dataclass(frozen=True)
class EnvironmentEpsilonGreedy(EnvironmentOptimal):
    """Agent that takes a uniformly random valid action with probability epsilon, and otherwise an optimal action.

    Args:
        epsilon: probability of a random action, in [0, 1].
        horizon: number of decisions per episode for which the agent plans, as in `EnvironmentOptimal`.
    """

    kind: ClassVar[str] = "epsilon-greedy"
    epsilon: float = field(default=0.3, metadata=PROBABILITY)

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each of the A actions, ``[A]``: optimal actions mixed with uniformly random valid
        actions.
        """
        uniform = Uniform().probabilities(observation)
        return (1 - self.epsilon) * super().probabilities(observation) + self.epsilon * uniform

    def _parameters(self) -> dict[str, Any]:
        return {**super()._parameters(), "epsilon": self.epsilon}


@agent_kind("environment-wrong-goal")
@dataclass(frozen=True)
class EnvironmentWrongGoal(EnvironmentAgent):
    """Agent that goes to another goal than the environment's own, and stays there if it can.

    Args:
        target: name of the goal, among those that the environment names.
    """

    kind: ClassVar[str] = "wrong-goal"
    target: str = ""

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return which of the A actions are optimal towards the agent's own target in a state, as booleans ``[A]``.

        At the target of a deterministic environment, these are the actions that stay there, none if there are no such
        actions.

        Raises:
            ValueError: the environment names no goal like the target.
        """
        table = world.believed.table
        if self.target not in table.goals:
            raise ValueError(f"target must be a goal of the world, {', '.join(table.goals)}, got {self.target!r}")
        at_target = table.goals[self.target]
        if table.deterministic and at_target[state]:
            return np.asarray(at_target[table.successor[state]])
        return _optimal(world, self.target, state, observation)


@agent_kind("environment-state-blind")
@dataclass(frozen=True)
class EnvironmentStateBlind(EnvironmentAgent):
    """Agent that ignores the state: it takes each action as often as an optimal agent does on average over all states.

    It serves as a control: its actions have the frequencies of an optimal agent's actions, but do not depend on the
    state.
    """

    kind: ClassVar[str] = "state-blind"

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each of the A actions, ``[A]``: the average over states of an optimal agent's
        probabilities.

        Actions that are not valid in the current state get probability 0, and the others are rescaled to a sum of 1.
        """
        world, view = observation.world, observation.seen(EnvironmentView)
        assert isinstance(world, EnvironmentWorld)
        believed = world.believed
        solved = believed.solved
        sets = solved.optimal if solved.optimal is not None else believed.by_time(max(1, observation.horizon))[0]
        deciding = sets.any(axis=1)
        shares = (sets[deciding] / sets[deciding].sum(axis=1, keepdims=True)).mean(axis=0)
        weights = np.where(believed.table.offered[view.number], shares, 0.0)
        return np.asarray(weights / weights.sum()) if weights.sum() > 0 else believed.table.uniform[view.number]


@agent_kind("environment-greedy")
@dataclass(frozen=True)
class EnvironmentGreedy(EnvironmentAgent):
    """Agent that looks one step ahead: it takes the action whose next state is nearest to the goal on average.

    The distance of a state to the goal is estimated by the environment's own method ``heuristic``.
    """

    kind: ClassVar[str] = "greedy"

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return which of the A actions minimise the expected heuristic of the next state, as booleans ``[A]``.

        Raises:
            ValueError: the environment has no method ``heuristic``.
        """
        table, heuristic = world.believed.table, getattr(world.believed.environment, "heuristic", None)
        if heuristic is None:
            raise ValueError("a greedy agent must be given an environment with a method heuristic(state), got none")
        values = np.full(len(table.actions), np.inf)
        for action in np.flatnonzero(table.offered[state]).tolist():
            outcomes = table.outcomes(state, action)
            next_states = table.triples[outcomes, 2].tolist() or [state]
            probabilities = table.chance[outcomes].tolist() or [1.0]
            values[action] = sum(
                chance * float(heuristic(table.states[next_state]))
                for next_state, chance in zip(next_states, probabilities, strict=True)
            )
        return np.asarray(values <= values.min() + 1e-12)
