"""The protocol of environments: finite worlds of anybody's, told as a pure function of hashable states.

An environment says what happens, `goalscope.environments.table` enumerates it, `goalscope.environments.solution` solves
it exactly. What it says of itself is believed only after it was played back (`goalscope.environments.playback`).
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """What an agent is shown in a state; it may be less than the state.

    Attributes:
        text: in words.
        array: as numbers, of any shape; None where there are none.
    """

    text: str
    array: npt.NDArray[Any] | None = None


@runtime_checkable
class Environment(Protocol[S]):
    """A finite world, deterministic or with chance.

    `step` is pure: the same state and action always give the same distribution, whatever was asked before. A state
    holds all that decides what follows; a number of steps so far is no part of it, horizons belong to studies.

    Optional methods, looked up by name:

    * ``admissible(state) -> Sequence[int]``: the actions that are offered there; any other changes nothing.
    * ``goals() -> Mapping[str, Callable[[S], bool]]``: further goals that an agent may be after, by name.
    * ``utility(state, action, next) -> float``: the reward of one step.
    * ``heuristic(state) -> float``: an own guess of how far the goal is, for the greedy agent.
    * ``play(seed) -> Player``: the real environment behind an adapter, made anew.

    Attributes:
        actions: names of the actions; the index is the action.
    """

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions."""
        ...

    def initial(self) -> Mapping[S, float]:
        """Return the chances of the first state; one entry where it is certain."""
        ...

    def step(self, state: S, action: int) -> Mapping[S, float]:
        """Return the chances of the next state; one entry where it is certain. Not asked of states that are done."""
        ...

    def done(self, state: S) -> bool:
        """Return whether the episode is over there, solved or not."""
        ...

    def goal(self, state: S) -> bool:
        """Return whether the goal is reached there, which ends the episode."""
        ...

    def observe(self, state: S) -> Observed:
        """Return what an agent is shown there."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return all that decides what happens as plain values; the id of the world is their hash."""
        ...


class Player(Protocol):
    """A real environment in the middle of an episode: what play-back compares the enumerated one with."""

    @property
    def state(self) -> Hashable:
        """The state now, in the form that `Environment.step` gives."""
        ...

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        ...

    @property
    def goal(self) -> bool:
        """Whether it ended at the goal."""
        ...

    def act(self, action: int) -> None:
        """Take an action."""
        ...


def goals_of(environment: Environment[Any]) -> Mapping[str, Callable[[Any], bool]]:
    """Return the goals that an environment names: "goal" first, then its own.

    Raises:
        ValueError: a name that is no text, or "goal" itself.
    """
    own = dict(getattr(environment, "goals", dict)())
    for name in own:
        if not isinstance(name, str) or not name.strip() or name == "goal" or "," in name:
            raise ValueError(
                f"a further goal of an environment must have a name without commas that is not 'goal', got {name!r}"
            )
    return {"goal": environment.goal, **own}


def admissible_actions(environment: Environment[Any], state: Any) -> npt.NDArray[np.bool_]:
    """Return ``[A]`` which actions are offered in a state; all of them where the environment does not say.

    Raises:
        ValueError: no action is offered, or one that the environment does not have.
    """
    count = len(environment.actions)
    found = np.zeros(count, dtype=bool)
    ask = getattr(environment, "admissible", None)
    if ask is None:
        return ~found
    offered = list(ask(state))
    if not offered or not all(type(action) is int and 0 <= action < count for action in offered):
        raise ValueError(
            f"admissible(state) must give at least one action from 0 to {count - 1}, got {offered!r} in {state!r:.200}"
        )
    found[offered] = True
    return found
