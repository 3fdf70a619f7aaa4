"""The protocol of environments: finite worlds given by pure functions of hashable states.

An environment defines transitions, `enumerate_states` enumerates them, `solve_table` solves them exactly. They are used
only after a play-back has confirmed them (`play_back`).

A run directory from an untrusted source names the source of its worlds. Registered adapters therefore take plain values
only, and the user's own modules follow the rules of `goalscope.own`.
"""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.checks import check_parameters, did_you_mean
from goalscope._ground.ids import canonical_json
from goalscope._ground.own import consent, is_own, load_own
from goalscope._ground.yaml_text import read_pairs

S = TypeVar("S", bound=Hashable)
Registered = TypeVar("Registered")

OVER, LOST = ("over", True), ("over", False)
"""States of a `StateCopy` after the end of an episode: at the goal, or anywhere else."""

_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "initial": (),
    "step": ("state", "action"),
    "done": ("state",),
    "goal": ("state",),
    "observe": ("state",),
    "describe": (),
}
"""Names of the methods of an environment, each with the arguments that it is called with."""

_METHODS: Final = tuple(_ARGUMENTS)

TABLE_FILES: Final = (".npz", ".json")
"""Endings of a file that holds the table of an environment, see `goalscope table`."""

_CLASS = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?::(.*))?", re.DOTALL)
_KIND = re.compile(r"([\w.-]+)(?::(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """What an agent is shown in a state of an environment; it may contain less than the state.

    Attributes:
        text: the observation in words.
        array: the observation as numbers, of any shape; None if the environment only has texts.
    """

    text: str
    array: npt.NDArray[Any] | None = None


@runtime_checkable
class Environment(Protocol[S]):
    """Protocol of a finite environment, deterministic or stochastic, that is given by pure functions of hashable
    states.

    `step` is pure: the same state and action always give the same distribution, whatever the calls before. A state
    determines the future; it does not contain the number of steps so far, since horizons belong to studies.

    Optional methods, looked up by name:

    * ``admissible(state) -> Sequence[int]``: the actions offered in a state; any other changes nothing.
    * ``goals() -> Mapping[str, Callable[[S], bool]]``: further goals that an agent may have, by name.
    * ``goal_name: str``: what the goal is called in sentences, such as "deliver the crate".
    * ``elsewhere() -> Mapping[str, Sequence[Mapping[str, Any]]]``: things that can be elsewhere, by name, each with
      parameters of the same environment in which this one thing differs.
    * ``utility(state, action, next) -> float``: the reward of one step.
    * ``drawing(state) -> goalscope.worlds.world.Drawing``: a picture of a state, for viewers.
    * ``heuristic(state) -> float``: an estimate of the distance to the goal, for the greedy agent.
    * ``play(seed) -> Player``: a new instance of the real environment behind an adapter.

    Attributes:
        actions: names of the actions; the index is the action.
    """

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions; an action is given to `step` as its index in this tuple."""
        ...

    def initial(self) -> Mapping[S, float]:
        """Return the first states of an episode: state -> probability; a single entry if the first state is certain."""
        ...

    def step(self, state: S, action: int) -> Mapping[S, float]:
        """Return the states to which an action leads: state -> probability; a single entry if the next state is
        certain.

        It is not called in states in which `done` holds.
        """
        ...

    def done(self, state: S) -> bool:
        """Return whether the episode is over in a state, with or without success."""
        ...

    def goal(self, state: S) -> bool:
        """Return whether the goal is reached in a state. Reaching the goal ends the episode."""
        ...

    def observe(self, state: S) -> Observed:
        """Return what an agent is shown in a state: a text, and optionally an array."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return everything that determines the transitions, as nested mappings, lists, texts and numbers.

        The id of the world is a hash of these values.
        """
        ...


class Player(Protocol):
    """Interface of one episode in a real environment, for play-backs.

    A play-back takes the same actions in a real environment and in the enumerated table of its states, and compares
    both.
    """

    @property
    def state(self) -> Hashable:
        """The present state of the episode, in the form in which `Environment.step` takes states."""
        ...

    @property
    def done(self) -> bool:
        """Whether the episode is over, with or without success."""
        ...

    @property
    def goal(self) -> bool:
        """Whether the episode has ended at the goal."""
        ...

    def act(self, action: int) -> None:
        """Take an action, given as its index, so that the episode moves to the next state."""
        ...


class StatePlayer:
    """A `Player` for a real environment in which the state alone decides whether the episode is over.

    Args:
        environment: the environment, which says in which states an episode is over.
        state: the first state of the episode.
        step: function that takes an action in the real environment and returns the next state.
    """

    def __init__(self, environment: Environment[Any], state: Hashable, step: Callable[[int], Hashable]) -> None:
        self.environment, self.state, self._step = environment, state, step

    @property
    def done(self) -> bool:
        """Whether the episode is over in the present state, with or without success."""
        return bool(self.environment.done(self.state)) or self.goal

    @property
    def goal(self) -> bool:
        """Whether the present state fulfils the goal."""
        return bool(self.environment.goal(self.state))

    def act(self, action: int) -> None:
        """Take an action, given as its index, and keep the state to which it leads."""
        self.state = self._step(action)


def goals_of(environment: Environment[Any]) -> Mapping[str, Callable[[Any], bool]]:
    """Return all goals of an environment: name -> test of a state, first "goal", then those of its method ``goals()``.

    Raises:
        ValueError: if ``goals()`` returns something else, or a name is not a text, is empty, or is "goal".
    """
    further: Any = getattr(environment, "goals", dict)()
    if not isinstance(further, Mapping):
        raise ValueError(
            "goals() of an environment must return a mapping from the name of each goal to a function of a state, such "
            f"as {{'office': lambda state: state == 4}}, got {further!r:.100}"
        )
    for name in further:
        if not isinstance(name, str) or not name.strip() or name == "goal" or "," in name or ";" in name:
            raise ValueError(
                "goals() of an environment must give each goal a name that is not empty, not 'goal', and has no comma "
                f"or semicolon, got {name!r}"
            )
        if not callable(further[name]):
            raise ValueError(
                "goals() of an environment must map each name to a function of a state, such as lambda state: "
                f"state == 4, but {name!r} has {further[name]!r:.100}"
            )
    return {"goal": environment.goal, **further}


def changes_of(environment: Environment[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the things of an environment that can be elsewhere, as its method ``elsewhere()`` lists them.

    Returns:
        Name of a thing -> list of changed parameters, each of which gives the same environment with this thing in
        another place; empty if the environment has no such method.

    Raises:
        ValueError: if ``elsewhere()`` returns something else.
    """
    changes: Any = getattr(environment, "elsewhere", dict)()
    listed = isinstance(changes, Mapping) and all(
        isinstance(name, str) and name.strip() and "," not in name and isinstance(parameters, list | tuple)
        for name, parameters in changes.items()
    )
    plain = False
    if listed and all(isinstance(entry, Mapping) for parameters in changes.values() for entry in parameters):
        with suppress(TypeError, ValueError):  # values that are not plain
            plain = bool(canonical_json({name: list(parameters) for name, parameters in changes.items()}))
    if not plain:
        raise ValueError(
            "elsewhere() of an environment must map the name of each thing (without commas) to a list of changed "
            "parameters, which are plain values (texts, numbers, lists), such as {'dock': [{'dock': [0, 2]}]}, got "
            f"{changes!r:.200}"
        )
    return {name: [dict(entry) for entry in parameters] for name, parameters in changes.items()}


def goal_name_of(environment: Environment[Any]) -> str:
    """Return what the author of an environment calls its goal (the attribute ``goal_name``), or "" without that
    attribute.

    Raises:
        ValueError: if the attribute is not one short line of text.
    """
    name = getattr(environment, "goal_name", "")
    if not isinstance(name, str) or len(name) > 80 or not (name == "" or name.isprintable()):
        raise ValueError(
            f"goal_name of an environment must be one line of at most 80 characters, such as 'deliver the crate', got "
            f"{name!r:.100}"
        )
    return name


def admissible_actions(environment: Environment[Any], state: Any) -> npt.NDArray[np.bool_]:
    """Return which actions an environment offers in a state, as a mask ``[A]`` over its A actions.

    All actions are offered if the environment has no method ``admissible``.

    Raises:
        ValueError: if no action is offered, or one that the environment does not have.
    """
    count = len(environment.actions)
    offered_mask = np.zeros(count, dtype=bool)
    admissible = getattr(environment, "admissible", None)
    if admissible is None:
        return ~offered_mask
    offered = list(admissible(state))
    if not offered or not all(type(action) is int and 0 <= action < count for action in offered):
        raise ValueError(
            f"admissible(state) must give at least one action from 0 to {count - 1}, got {offered!r} in {state!r:.200}"
        )
    offered_mask[offered] = True
    return offered_mask


def environment_kind(name: str) -> Callable[[Registered], Registered]:
    """Return a decorator that registers a class of environments under a name.

    Studies then use the class with ``kind: environment`` and ``source: NAME``. Its keyword arguments must be texts,
    numbers, booleans, or lists and mappings of these, since studies are stored as JSON.

    Args:
        name: the name, without a colon.

    Raises:
        ValueError: if the name is taken, or has the form ``module:Class``.
    """
    if is_own(name):
        raise ValueError(f"the name of a kind of environments must not look like module:Class, got {name!r}")
    return registry.register("environment", name)


def build(source: str, parameters: Mapping[str, Any]) -> Environment[Any]:
    """Make an environment from its name and parameters.

    Args:
        source: a registered name, see `environment_kind`, or ``module:Class`` of a file in the working directory.
        parameters: keyword arguments of the class: texts, numbers, booleans, or lists and mappings of these.

    Raises:
        ValueError: if the name is unknown, the class is not an environment, or it does not take these parameters.
        ImportError: if a package is missing; the message names the extra to install.
    """
    factory = load_own(source, (), "an environment") if is_own(source) else registry.resolve("environment", source)
    check_parameters(source, factory, parameters, f"write --env {source}:{{name}}=VALUE, or name it in the study")
    try:
        environment = _of_other_kind(factory, parameters) if is_own(source) else None
        lacking = [name for name in _METHODS if not callable(getattr(factory, name, None))]
        if environment is None and is_own(source) and lacking:
            raise ValueError(
                f"{source} must be a class with the methods {', '.join(_METHODS)}, or reset and step as in Gymnasium, "
                f"lacking: {', '.join(lacking)}"
            )
        environment = factory(**parameters) if environment is None else environment
    except TypeError as error:
        if is_own(source):
            raise  # an error in the code of its author
        raise ValueError(f"{source} does not accept one of the values of {', '.join(parameters)}: {error}") from error
    if not isinstance(environment, Environment):
        missing = [name for name in ("actions", *_METHODS) if not hasattr(environment, name)]
        raise ValueError(f"{source} must be an environment, but has no {', '.join(missing)}")
    for name, arguments in _ARGUMENTS.items():
        try:
            inspect.signature(getattr(environment, name)).bind(*arguments)
        except TypeError as error:
            stated = ", ".join(arguments)
            raise ValueError(
                f"{source} must have a method {name}({stated}), but its {name} differs: {error}"
            ) from error
    return environment


def _of_other_kind(factory: Any, parameters: Mapping[str, Any]) -> Any:
    """Return the environment of a class with another interface that a registered kind knows, such as Gymnasium's; None
    if no kind does.
    """
    if hasattr(factory, "initial") or not hasattr(factory, "step"):
        return None
    for name in registry.names("environment"):
        # Such a kind has a function `of_class` from a class and its arguments to an environment, or None.
        of_class = getattr(registry.resolve("environment", name), "of_class", None)
        environment = None if of_class is None else of_class(factory, parameters)
        if environment is not None:
            return environment
    return None


def named_environment(text: str) -> tuple[str, dict[str, Any]]:
    """Find the environment that a user names on the command line, and allow its code to be imported.

    Args:
        text: ``module:Class`` of a file in the working directory; a registered kind of environments; an id that a kind
            knows, such as one of Gymnasium, ``FrozenLake-v1`` or ``module:MyLevel-v0``; or a file that `goalscope
            table` wrote. Parameters follow after a colon, as in ``warehouse:Warehouse:slip=0.1,row=2``.

    Returns:
        The name (``source``) and the parameters, as `build` takes them.

    Raises:
        ValueError: if the text is none of these, or the parameters are not written as KEY=VALUE.
        ImportError: if the environment needs a package that is missing; the message names the extra.
    """
    text = text.strip()
    kinds = registry.names("environment")
    if text.endswith(TABLE_FILES) and "table" in kinds:
        return "table", {"file": text}
    own = _CLASS.fullmatch(text)
    if own is not None and is_own(own[1]) and own[1].partition(":")[0] not in kinds:
        consent(own[1])
        return own[1], dict(read_pairs(own[2] or "", text))
    kind = _KIND.fullmatch(text)
    if kind is not None and kind[1] in kinds:
        return kind[1], dict(read_pairs(kind[2] or "", text))
    ids = list[str]()
    for name in kinds:
        # A kind may know environments by ids of its own. It then has a function `named` from the text to both, and
        # may have a function `ids`, which lists them.
        factory = registry.resolve("environment", name)
        ids += getattr(factory, "ids", list)()
        knows = getattr(factory, "named", None)
        known: tuple[str, dict[str, Any]] | None = None if knows is None else knows(text)
        if known is not None:
            return known
    raise ValueError(
        "an environment must be given as module:Class of a file in the working directory, as a registered kind "
        f"({', '.join(kinds)}), or as an id of Gymnasium with its version, such as FrozenLake-v1, got {text!r:.200}"
        f"{did_you_mean(text.partition(':')[0], [*kinds, *ids])}"
    )


def environment_name(source: str, parameters: Mapping[str, Any]) -> str:
    """Return a short name of an environment for titles: its name, level or file among the parameters, else its class.

    Args:
        source: the name from which `build` makes the environment, such as ``module:Class``.
        parameters: keyword arguments of the class.
    """
    for key in ("name", "level", "file"):
        if isinstance(parameters.get(key), str):
            return str(parameters[key])
    return source.rpartition(":")[2]


class StateCopy(ABC):
    """Base class for adapters of deterministic environments (e.g. of Gymnasium) whose state can be read and written.

    The real environment applies its own rules: a state is written into it, one step is taken, and the state is read
    back. A derived class implements `actions`, `make`, `read`, `write`, `words` and `describe`, and `success` where
    success is not just a reward above 0 at the end. The play-back finds out if `read` leaves something out of the
    state, since it acts in a new environment without writing anything.

    Attributes:
        actions: names of the actions; the index is the argument of the real environment's `step`.
    """

    actions: tuple[str, ...]

    @abstractmethod
    def make(self) -> Any:
        """Return a new instance of the real environment at the beginning of an episode, always in the same state."""

    @abstractmethod
    def read(self, real: Any) -> Hashable:
        """Return the state of the real environment: everything that determines its future, as a hashable value.

        The number of steps so far is not part of the state.
        """

    @abstractmethod
    def write(self, real: Any, state: Any) -> None:
        """Put the real environment into a state that `read` returned."""

    @abstractmethod
    def words(self, state: Any) -> str:
        """Describe a state in words, as the agent is to observe it."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return everything that determines the transitions, as nested mappings, lists, texts and numbers.

        The id of the world is a hash of these values.
        """

    def success(self, reward: float) -> bool:
        """Return whether an episode whose last step has this reward has ended at the goal: by default, if it is
        above 0.
        """
        return reward > 0

    def act(self, real: Any, action: int) -> Hashable:
        """Take an action in the real environment by its ``step``, as in Gymnasium, and return the next state.

        If the episode is over after the step, the state is `OVER` at the goal and `LOST` otherwise.
        """
        _, reward, over, _, _ = real.step(action)
        return (OVER if self.success(float(reward)) else LOST) if over else self.read(real)

    @cached_property
    def _real(self) -> Any:
        return self.make()

    def initial(self) -> dict[Hashable, float]:
        """Return the first state of an episode, as a mapping from the state to its probability 1."""
        return {self.read(self.make()): 1.0}

    def step(self, state: Any, action: int) -> dict[Hashable, float]:
        """Return the state after an action, as a mapping from the state to its probability 1."""
        self.write(self._real, state)
        return {self.act(self._real, action): 1.0}

    def done(self, state: Any) -> bool:
        """Return whether the episode is over in a state."""
        return state in (OVER, LOST)

    def goal(self, state: Any) -> bool:
        """Return whether a state is the end of an episode at the goal."""
        return bool(state == OVER)

    def observe(self, state: Any) -> Observed:
        """Return what an agent is shown in a state: the text of `words`."""
        return Observed(text="The episode is over." if self.done(state) else self.words(state))

    def play(self, seed: int) -> Player:
        """Return a new real environment at the beginning of an episode, for a play-back. No state is ever written
        into it.
        """
        real = self.make()
        return StatePlayer(self, self.read(real), lambda action: self.act(real, action))
