"""Agents with planted goals: the ground truth against which every measure is checked.

For every observation, each agent for grids has an exact distribution over actions (`ScriptedAgent.probabilities`), from
which actions are drawn with the random number of the turn. The agents keep no state, so an interrupted episode resumes
exactly. When there is nothing left to do (no visible or reachable goal), all four actions are equally likely.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_choice, check_probability, check_whole, freeze, is_whole
from goalscope._ground.rng import uniform
from goalscope.agents.agent import Observation, Turn, agent_kind
from goalscope.agents.prompts import WORDINGS, wording
from goalscope.stats.rows import Tag
from goalscope.worlds.grid import ACTIONS, CORNERS, KEY, Grid, Position, Side
from goalscope.worlds.gridworld import GridView, NamedView, WordedView
from goalscope.worlds.planning.shortest import distances_to, optimal_batch, solve
from goalscope.worlds.things import arrangement_of
from goalscope.worlds.world import View

Distribution = npt.NDArray[np.float64]

_UNIFORM: Distribution = freeze(np.full(4, 0.25))

PROBABILITY = {"check": check_probability}
"""Metadata for probability fields of scripted agents; ``check(name, value)`` returns the value to store."""


@dataclass(frozen=True)
class Scripted(ABC):
    """An agent that follows a rule. Its fields are the rule's parameters and the agent's name.

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
        """Return kind, version and parameters; the name is left out, since it changes no action."""
        return {"kind": f"{self.prefix}{self.kind}", "version": self.version, **self._parameters()}

    def _parameters(self) -> dict[str, Any]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "name"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Choose one action for each observation."""
        return [Turn(action=self._choose(observation)) for observation in observations]

    @abstractmethod
    def _choose(self, observation: Observation) -> int:
        """Return the index of an action."""


@dataclass(frozen=True)
class ScriptedAgent(Scripted):
    """An agent with a known goal and an exact distribution over actions."""

    needs: ClassVar[type[View]] = GridView

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each of the four actions, ``[4]``. By default these are the entries of `table` for
        the agent's cell.
        """
        return _entry(self, observation.grid, _agent_cell(observation))

    def table(self, grid: Grid) -> Distribution | None:
        """Return the action probabilities at each cell of a grid without fog and without an agent, ``[H, W, 4]``.

        The result is None if the probabilities depend on more than the cell; such an agent overrides ``probabilities``.
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
        """Return the uniform distribution over the valid actions."""
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
        """Return the distribution at this step, which depends on whether its block is forgotten."""
        _agent_cell(observation)
        return _UNIFORM if self.forgotten(observation) else _OPTIMAL.probabilities(observation)

    def forgotten(self, observation: Observation) -> bool:
        """Return whether the block that contains this step is forgotten."""
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
    solid = grid.walls.copy()
    if grid.door is not None and KEY not in grid.held:
        solid[grid.door] = True
    if grid.things:
        arrangement = arrangement_of(grid.things, grid.held)
        for cell in (*arrangement.solid_cells(arrangement.initial), *arrangement.ends):
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

    A fraction epsilon of its actions is random. With ``swayed``, this fraction is larger under every second wording of
    `goalscope.agents.prompts`, so that the effect of a wording is known exactly.

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
        """Return the distribution over its paths to the target, mixed with the uniform distribution."""
        view = observation.view
        asked_in = view.wording if isinstance(view, WordedView) else self.wording
        noise = max(self.epsilon, self.swayed) if asked_in in SWAYING else self.epsilon
        mixture: Distribution = (1 - noise) * self._path_policy(observation) + noise * np.full(4, 0.25)
        return mixture

    @property
    def tags(self) -> Mapping[str, Tag]:
        """The wording, unless it is the default."""
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
