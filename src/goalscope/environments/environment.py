"""The seam of environments: finite worlds of anybody's, told as a pure function of hashable states.

An environment says what happens, `goalscope.environments.table` enumerates it, `goalscope.environments.solution` solves
it exactly. What it says of itself is believed only after it was played back (`goalscope.environments.playback`).

A run that a stranger wrote names the source of its worlds. So registered adapters take plain values alone, and for a
module of one's own holds what `goalscope.own` says.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope import registry
from goalscope.own import is_own, load_own

S = TypeVar("S", bound=Hashable)
Made = TypeVar("Made")

OVER, LOST = ("over", True), ("over", False)
"""States of a `StateCopy` behind the end of an episode: at the goal, or anywhere else."""

_METHODS: Final = ("initial", "step", "done", "goal", "observe", "describe")


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


class StatePlayer:
    """A player whose environment tells by the state whether the episode is over; `act` is a derived class's own."""

    def __init__(self, environment: Environment[Any], state: Hashable) -> None:
        self.environment, self.state = environment, state

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return bool(self.environment.done(self.state)) or self.goal

    @property
    def goal(self) -> bool:
        """Whether it ended at the goal."""
        return bool(self.environment.goal(self.state))


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


def environment_kind(name: str) -> Callable[[Made], Made]:
    """Return a decorator that registers a class of environments; its keyword arguments must be plain values.

    Studies name it with ``kind: environment`` and ``source: NAME``.

    Args:
        name: the name, without a colon.

    Raises:
        ValueError: a name that is taken, or that could stand for a class.
    """
    if is_own(name):
        raise ValueError(f"the name of a kind of environments must not look like module:Class, got {name!r}")
    return registry.register("environment", name)


def build(source: str, parameters: Mapping[str, Any]) -> Environment[Any]:
    """Make an environment.

    Args:
        source: a registered name, see `environment_kind`, or ``module:Class`` of a file in the working directory.
        parameters: keyword arguments of its class: plain values.

    Raises:
        ValueError: an unknown source, a class that is no environment, parameters that it does not take.
        ImportError: a package is missing; names the extra.
    """
    made = load_own(source, _METHODS, "an environment") if is_own(source) else registry.resolve("environment", source)
    try:
        found = made(**parameters)
    except TypeError as error:
        raise ValueError(f"{source} must take the parameters {', '.join(parameters) or 'none'}: {error}") from error
    if not isinstance(found, Environment):
        lacking = [name for name in ("actions", *_METHODS) if not hasattr(found, name)]
        raise ValueError(f"{source} must be an environment, but has no {', '.join(lacking)}")
    return found


class StateCopy(ABC):
    """An environment without chance whose real state can be read and written: a base class for adapters.

    The rules stay those of the real environment: a state is written into it, one step is taken, and the state is read
    back. A derived class gives `actions`, `make`, `read`, `write`, `words` and `describe`; where success is not just a
    reward above 0 at the end, `success`, too. What `read` leaves out shows in the play-back, which acts in a fresh
    environment without writing anything.

    Attributes:
        actions: names of the actions; the index is what the real environment's `step` is given.
    """

    actions: tuple[str, ...]

    @abstractmethod
    def make(self) -> Any:
        """Return the real environment, made anew, at the beginning of an episode; always the same beginning."""

    @abstractmethod
    def read(self, real: Any) -> Hashable:
        """Return all that decides what follows, as a value that can be hashed; the number of steps left out."""

    @abstractmethod
    def write(self, real: Any, state: Any) -> None:
        """Put the real environment into a state."""

    @abstractmethod
    def words(self, state: Any) -> str:
        """Return what is seen in a state, in words."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return all that decides what happens as plain values."""

    def success(self, reward: float) -> bool:
        """Return whether an episode that ended with this reward ended at the goal."""
        return reward > 0

    def act(self, real: Any, action: int) -> Hashable:
        """Take an action in the real environment, as Gymnasium's `step`, and return the state that it leads to."""
        _, reward, over, _, _ = real.step(action)
        return (OVER if self.success(float(reward)) else LOST) if over else self.read(real)

    @cached_property
    def _real(self) -> Any:
        return self.make()

    def initial(self) -> dict[Hashable, float]:
        """Return the first state."""
        return {self.read(self.make()): 1.0}

    def step(self, state: Any, action: int) -> dict[Hashable, float]:
        """Return the state after an action."""
        self.write(self._real, state)
        return {self.act(self._real, action): 1.0}

    def done(self, state: Any) -> bool:
        """Return whether the episode is over."""
        return state in (OVER, LOST)

    def goal(self, state: Any) -> bool:
        """Return whether it ended at the goal."""
        return bool(state == OVER)

    def observe(self, state: Any) -> Observed:
        """Return what is seen in a state."""
        return Observed(text="The episode is over." if self.done(state) else self.words(state))

    def play(self, seed: int) -> "Player":
        """Return the real environment at the beginning of an episode."""
        return _RealPlayer(self)


class _RealPlayer(StatePlayer):
    """An episode in the real environment, into which nothing is written."""

    def __init__(self, outer: StateCopy) -> None:
        self._outer, self._real = outer, outer.make()
        super().__init__(outer, outer.read(self._real))

    def act(self, action: int) -> None:
        """Take an action."""
        self.state = self._outer.act(self._real, action)
