"""Agents in environments: scripted agents with a known goal, and any object with a method ``predict``.

Each scripted agent knows the world and has an exact distribution over actions. A policy that was trained on one
environment, for example with stable-baselines3, can act in its worlds and receives the same observations as in
training. `PolicyAgent` is used from Python with the policy as an object; this module never loads a policy file.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope._ground.distributions import to_array, to_shares
from goalscope.agents.agent import Observation, Turn, agent_kind
from goalscope.agents.scripted import PROBABILITY, Scripted
from goalscope.worlds.environments.world import EnvironmentView, EnvironmentWorld
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View

Distribution = npt.NDArray[np.float64]


def _horizon(name: str, value: Any) -> int | None:
    return None if value is None else check_whole(name, value, 1, "decisions")


@dataclass(frozen=True)
class EnvironmentAgent(Scripted):
    """A scripted agent for environments, which acts uniformly at random when there is nothing left to do."""

    prefix: ClassVar[str] = "environment-"
    needs: ClassVar[type[View]] = EnvironmentView
    knows_world: ClassVar[bool] = True

    @abstractmethod
    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return ``[A]``, which actions the rule prefers in a state; none where the rule does not apply."""

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each action, ``[A]``: uniform over the actions that the rule prefers.

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

    def _choose(self, observation: Observation) -> int:
        return observation.draw(self.probabilities(observation).tolist())


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
    """Agent that takes each optimal action with equal probability.

    Args:
        horizon: decisions of an episode that the agent plans for, where they are not those of the study. Used only with
            chance, where what is optimal depends on how many decisions are left.
    """

    kind: ClassVar[str] = "optimal"
    horizon: int | None = field(default=None, metadata={"check": _horizon})

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return ``[A]``, which actions are optimal in a state."""
        return _optimal(world, "goal", state, observation, self.horizon)

    def _parameters(self) -> dict[str, Any]:
        return {} if self.horizon is None else super()._parameters()


@agent_kind("environment-epsilon-greedy")
@dataclass(frozen=True)
class EnvironmentEpsilonGreedy(EnvironmentOptimal):
    """Agent that takes a uniformly random offered action with probability epsilon, and otherwise an optimal action.

    Args:
        epsilon: probability of a random action, in [0, 1].
        horizon: as in `EnvironmentOptimal`.
    """

    kind: ClassVar[str] = "epsilon-greedy"
    epsilon: float = field(default=0.3, metadata=PROBABILITY)

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the mixture of the optimal and the uniform distribution."""
        view = observation.seen(EnvironmentView)
        uniform = np.zeros(len(view.actions))
        uniform[list(view.offered)] = 1 / len(view.offered)
        return (1 - self.epsilon) * super().probabilities(observation) + self.epsilon * uniform

    def _parameters(self) -> dict[str, Any]:
        return {**super()._parameters(), "epsilon": self.epsilon}


@agent_kind("environment-wrong-goal")
@dataclass(frozen=True)
class EnvironmentWrongGoal(EnvironmentAgent):
    """Agent that goes to a wrong goal among those that its environment names, and stays there if it can.

    Args:
        target: name of the goal that it goes to.
    """

    kind: ClassVar[str] = "wrong-goal"
    target: str = ""

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return ``[A]``, which actions are optimal towards the target; at the target, those that stay there if there
        are any.
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
    """Takes each action as often as an optimal agent does on average over all states, whatever the state is."""

    kind: ClassVar[str] = "state-blind"

    def probabilities(self, observation: Observation) -> Distribution:
        """Return ``[A]``, how often an optimal agent takes each offered action, whatever the state is."""
        world, view = observation.world, observation.seen(EnvironmentView)
        assert isinstance(world, EnvironmentWorld)
        believed = world.believed
        solved = believed.solved
        sets = solved.optimal if solved.optimal is not None else believed.by_time(max(1, observation.horizon))[0]
        deciding = sets.any(axis=1)
        shares = (sets[deciding] / sets[deciding].sum(axis=1, keepdims=True)).mean(axis=0)
        weights = np.where(believed.table.offered[view.number], shares, 0.0)
        return np.asarray(weights / weights.sum()) if weights.sum() > 0 else believed.table.uniform[view.number]

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return all offered actions; `probabilities` weighs them."""
        return np.asarray(world.believed.table.offered[state])


@agent_kind("environment-greedy")
@dataclass(frozen=True)
class EnvironmentGreedy(EnvironmentAgent):
    """Agent whose next state is, on average, nearest to the goal by its environment's own `heuristic`."""

    kind: ClassVar[str] = "greedy"

    def preferred(self, world: EnvironmentWorld, state: int, observation: Observation) -> npt.NDArray[np.bool_]:
        """Return the actions with the lowest expected heuristic of the next state."""
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


class Predicts(Protocol):
    """Interface of a policy of stable-baselines3."""

    def predict(self, observation: npt.NDArray[Any], deterministic: bool = False) -> tuple[Any, Any]:
        """Return the actions for a batch of observations ``[B, ...]``, and a recurrent state."""
        ...


PLANES: Final = ("wall", "agent", "goal", "key", "locked door", "key carried")
"""What each plane of a grid's array marks."""


def planes(view: GridView) -> npt.NDArray[np.float32]:
    """Return a grid as `PLANES`, ``[6, H, W]`` float32: 1 in marked cells, 0 elsewhere and in hidden cells.

    Raises:
        ValueError: the grid has things, which no plane shows.
    """
    grid = view.grid
    if grid.things:
        raise ValueError("no plane shows things, so a policy of planes needs grids without them: use other worlds")
    array = np.zeros((len(PLANES), *grid.walls.shape), dtype=np.float32)
    array[0] = grid.walls
    for number, cell in enumerate((grid.start, grid.goal, grid.key, grid.door), 1):
        if cell is not None:
            array[(number, *cell)] = 1.0
    array[5] = view.carrying_key
    return array


def shown_array(view: View) -> npt.NDArray[Any]:
    """Return what a view shows as an array: the planes of a grid, or the array of an environment.

    Raises:
        ValueError: the view shows no array.
    """
    if isinstance(view, GridView):
        return planes(view)
    if isinstance(view, EnvironmentView) and view.observed.array is not None:
        return view.observed.array
    raise ValueError(
        f"a policy must be shown an array, but {view.shows} here shows words alone: give PolicyAgent a function "
        "`shows` from the view to an array"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyAgent:
    """Agent that acts by the method ``predict`` of a policy.

    A policy that draws its own actions uses random numbers that a resumed run cannot repeat. The agent therefore
    requests the policy's most probable action, or its probabilities, from which the agent draws the action itself.

    Attributes:
        policy: the object with a method ``predict(observations, deterministic)``.
        name: short name for tables.
        identity: what identifies the policy, e.g. the digest of its weights, or the seed and number of steps of its
            training; the id of the agent is the hash of these values.
        probabilities: function from observations ``[B, ...]`` to action probabilities ``[B, A]``; None to take the most
            probable action.
        shows: function from a view to an array; `shown_array` by default.

    Raises:
        ValueError: the policy has no method ``predict``, or the identity is empty.
    """

    policy: Predicts
    name: str
    identity: Mapping[str, Any]
    probabilities: Callable[[npt.NDArray[Any]], npt.ArrayLike] | None = None
    shows: Callable[[View], npt.NDArray[Any]] = field(default=shown_array)

    journalled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(getattr(self.policy, "predict", None)):
            raise ValueError(f"a policy must have a method predict, got {type(self.policy).__name__}")
        if not self.identity:
            raise ValueError("identity must say what the policy is, e.g. {'weights': digest}, got nothing")

    def describe(self) -> Mapping[str, Any]:
        """Return the agent's identity, as given to the constructor, with how it draws its actions."""
        drawn = self.probabilities is not None
        return {"kind": "policy", "version": 1, "drawn": drawn, "policy": dict(self.identity)}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Answer each observation separately, so that answers do not depend on how observations are batched."""
        return [Turn(action=self._choose(observation)) for observation in observations]

    def _choose(self, observation: Observation) -> int:
        array, count = self.shows(observation.view)[None], len(observation.view.actions)
        if self.probabilities is None:
            action, state = self.policy.predict(array, deterministic=True)
            if state is not None:
                raise ValueError(
                    "a policy with memory must be written by goalscope.environments.save_policy and act as kind: "
                    "policy: here each observation is answered by itself"
                )
            return int(np.asarray(action).reshape(-1)[0])
        probabilities = to_array("probabilities", self.probabilities(array)).reshape(-1)
        if probabilities.shape != (count,):
            raise ValueError(f"probabilities must have shape [1, {count}], got {probabilities!r:.200}")
        return observation.draw(to_shares("probabilities", probabilities).tolist())
