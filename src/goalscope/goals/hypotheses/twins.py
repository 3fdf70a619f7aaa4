"""Scripted twins: agents that follow a given hypothesis, so that measures can be checked against a known goal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from goalscope._ground.checks import check_whole
from goalscope.agents.agent import Observation, Turn, agent_kind
from goalscope.agents.scripted import PROBABILITY, Distribution, Scripted
from goalscope.goals.hypotheses.definition import ById, FiniteWorld, Solved, Undefined, finite_world, number_of
from goalscope.goals.hypotheses.written import bind, depends_on_worlds, parse
from goalscope.worlds.world import View, World

_LONG = 200  # decisions per episode if no horizon is given


def _written(name: str, text: Any) -> str:
    return parse(text).text


def _decisions(name: str, value: Any) -> int | None:
    return None if value is None else check_whole(name, value, 1, "decisions")


@agent_kind("hypothesis")
@dataclass(frozen=True)
class HypothesisTwin(Scripted):
    """Scripted agent that follows a hypothesis with full knowledge of the world (a twin), to check measures on a known
    goal.

    In a world where the hypothesis is undefined, all offered actions are equally likely, and each step stores the
    reason under ``undefined``.

    Args:
        hypothesis: the written form, such as "corner top-right", see `goalscope.goals.hypotheses.parse`.
        lapse: probability of a random offered action in place of one that follows the hypothesis, in [0, 1].
        horizon: decisions per episode that the agent plans for, where they are not those of the study. Used only if the
            best action depends on the remaining decisions: for utilities, and in stochastic worlds.
    """

    kind: ClassVar[str] = "hypothesis"
    needs: ClassVar[type[View]] = View
    knows_world: ClassVar[bool] = True

    hypothesis: str = field(metadata={"check": _written})
    lapse: float = field(default=0.0, metadata=PROBABILITY)
    horizon: int | None = field(default=None, metadata={"check": _decisions})

    def __post_init__(self) -> None:
        given_name = self.name
        Scripted.__post_init__(self)
        if not given_name:
            lapse = f", lapse {self.lapse:g}" if self.lapse else ""
            object.__setattr__(self, "name", f"{self.kind}({self.hypothesis}{lapse})")

    def in_worlds(self, worlds: Callable[[], Sequence[World]]) -> "HypothesisTwin":
        """Return the agent with its hypothesis filled in for the worlds of a study.

        A hypothesis such as "where the goal stood in phase trained" becomes a cell only if the worlds are known, see
        `goalscope.goals.hypotheses.bind`.

        Args:
            worlds: returns the worlds of the study; called only if the hypothesis depends on them.

        Raises:
            ValueError: the hypothesis names a goal that no world of the study has.
        """
        parsed = parse(self.hypothesis)
        if not depends_on_worlds(parsed):
            return self
        return replace(self, hypothesis=bind(parsed, worlds()).text)

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability with which the agent takes each action, ``[A]``.

        Args:
            observation: what the agent sees, together with its world.

        Raises:
            Undefined: the hypothesis is undefined in this world.
            ValueError: the observation lacks its world, or a horizon is required but missing.
        """
        world = observation.world
        if world is None:
            raise ValueError("a twin needs observations that contain their world, got one without")
        horizon = self.horizon or observation.horizon or None
        finite, solved = _solved(self.hypothesis, ById(world.id, world), horizon)
        if len(solved.policy) > 1 and horizon is None and world.horizon is None:
            raise ValueError(
                f"a twin of {self.hypothesis} needs the horizon, because its best actions depend on it: add "
                "horizon: N (the steps of the study) to the agent"
            )
        state = number_of(observation)
        policy = solved.policy[min(observation.step, len(solved.policy) - 1), state]
        return np.asarray((1 - self.lapse) * policy + self.lapse * finite.even[state])

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Choose one action for each observation, with the observation's own random numbers."""
        return [self._turn(observation) for observation in observations]

    def _turn(self, observation: Observation) -> Turn:
        try:
            return Turn(action=self._choose(observation))
        except Undefined as error:
            offered = observation.view.offered
            action = offered[int(observation.uniform("undefined") * len(offered))]
            return Turn(action=action, extra={"undefined": str(error)})

    def _choose(self, observation: Observation) -> int:
        return observation.draw(self.probabilities(observation).tolist())

    def _parameters(self) -> dict[str, Any]:
        parameters = Scripted._parameters(self)
        return {key: value for key, value in parameters.items() if value is not None}


@lru_cache(maxsize=2048)
def _solved(text: str, key: ById[World], horizon: int | None) -> tuple[FiniteWorld, Solved]:
    """Solve a hypothesis in a world; results are cached."""
    finite = finite_world(key.world, horizon or key.world.horizon or _LONG)
    return finite, parse(text).solved(finite)


def twin(text: str, *, lapse: float = 0.0, horizon: int | None = None, name: str = "") -> dict[str, Any]:
    """Return a scripted agent that follows a hypothesis (a twin), as an entry of a study's list ``agents``.

    Args:
        text: written form of the hypothesis.
        lapse: probability of a random action.
        horizon: decisions per episode that the agent plans for, if not those of the study.
        name: name of the agent; by default made of the hypothesis and the lapse.
    """
    optional = {"name": name or None, "horizon": horizon}
    entry = {"kind": HypothesisTwin.kind, "hypothesis": text, "lapse": lapse}
    return {**entry, **{key: value for key, value in optional.items() if value is not None}}
