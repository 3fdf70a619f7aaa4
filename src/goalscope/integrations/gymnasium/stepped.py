"""Environments of Gymnasium that have no table of transitions: their states are read from their attributes.

A state consists of everything that a step can change: the attributes of the environment and of its wrappers, without
random generators, spaces and windows. To take a step from a state, its attributes are written back. The generator that
the environment draws from is replaced by one that tries every outcome in turn (`ScriptedGenerator`), so that the
probabilities of the next states are exact. Play-back then compares them with episodes that use the environment's own
random numbers.
"""

import copy
import enum
import inspect
import io
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.rng import stream
from goalscope.integrations.gymnasium.toy_text import ToyTextAsItIs, is_level, make
from goalscope.worlds.environments.environment import Environment, Observed, StatePlayer, environment_kind

_MOST_OUTCOMES: Final = 20_000  # of one step or reset
_MOST_ENDINGS: Final = 6  # that are goals of their own
_MOST_ACTIONS: Final = 1_000
_TRIED: Final = 200  # steps of a walk that shows which attributes only count steps
_WATCHED: Final = 200  # calls after which it is no longer checked that they leave global random numbers alone


_LIMITS: Final = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")
"""Wrappers of Gymnasium that limit time or check calls. They are taken off, since the study sets the horizon."""
_NO_STATE: Final = frozenset(
    ("env", "spec", "metadata", "action_space", "observation_space", "np_random", "np_random_seed", "render_mode")
)
_GENERATORS: Final = (np.random.Generator, np.random.RandomState, random.Random)
_NAMES: Final = ("action_names", "ACTION_NAMES", "actions", "ACTIONS", "action_meanings", "commands")
"""Attributes in which environments name their actions."""

Values = list[dict[str, Any]]
"""The attributes of the environment and its wrappers, the outermost first."""


class ScriptedChance:
    """Random decisions of which every outcome is tried in turn, with its probability."""

    def __init__(self) -> None:
        self._waiting: list[list[int]] = []
        self.begin([])

    def begin(self, script: list[int]) -> None:
        """Begin a step whose decisions follow a script: for each in turn the number of its outcome. After the end of
        the script, decisions take their first possible outcome.
        """
        self._script, self.made, self._chance = script, 0, 1.0

    def decide(self, chances: Sequence[float]) -> int:
        """Return the outcome of the next decision, given the probability of each."""
        if self.made == len(self._script):  # a decision that no earlier run has met: the others are tried later
            possible = [outcome for outcome, chance in enumerate(chances) if chance > 0]
            self._waiting += [[*self._script, outcome] for outcome in possible[1:]]
            self._script = [*self._script, possible[0]]
        outcome = self._script[self.made]
        self.made += 1
        self._chance *= chances[outcome]
        return outcome

    def outcomes(self, play: Callable[[], Hashable]) -> dict[Any, float]:
        """Return the probability of each result of a function that makes decisions, which is called for each way.

        Raises:
            ValueError: there are too many ways.
        """
        chances: dict[Any, float] = {}
        self._waiting, tried = [[]], 0
        while self._waiting:
            if (tried := tried + 1) > _MOST_OUTCOMES:
                raise ValueError(
                    f"reset() or step() of an environment must have at most {_MOST_OUTCOMES:,} random outcomes to be "
                    "listed, got more: draw fewer random numbers, such as a fixed layout from a parameter of the class"
                )
            self.begin(self._waiting.pop())
            result = play()
            chances[result] = chances.get(result, 0.0) + self._chance
        return chances


class ScriptedGenerator(ScriptedChance):
    """Stand-in for a random generator, with the methods whose outcomes can be listed."""

    inclusive = False
    """Whether the upper end of `randint` is drawn as well, as with Python's `random.Random`."""

    def random(self, size: Any = None) -> Any:
        """Return a number from 0 to 1 that can be compared, but not calculated with."""
        return self._several(size, lambda: _Uniform(self, 0.0, 1.0))

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        """Return a number between two others that can be compared, but not calculated with."""
        return self._several(size, lambda: _Uniform(self, float(low), float(high)))

    def integers(self, low: int, high: int | None = None, size: Any = None, endpoint: bool = False, **_: Any) -> Any:
        """Draw whole numbers, as a generator of numpy does."""
        first, last = (0, low) if high is None else (low, high)
        count = int(last) - int(first) + endpoint
        return self._several(size, lambda: int(first) + self.decide([1 / count] * count))

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None, **_: Any) -> Any:
        """Draw from a sequence, or from the numbers below a whole one."""
        options = range(int(a)) if isinstance(a, int | np.integer) else a
        if size is not None and not replace:
            return np.array([options[index] for index in self.permutation(len(options))[: int(np.prod(size))]])
        chances = [1 / len(options)] * len(options) if p is None else [float(chance) for chance in p]
        return self._several(size, lambda: options[self.decide(chances)])

    def permutation(self, x: Any) -> Any:
        """Draw an order of a sequence, or of the numbers below a whole one."""
        left, drawn = list(range(x) if isinstance(x, int) else x), []
        while left:
            drawn.append(left.pop(self.decide([1 / len(left)] * len(left))))
        return np.array(drawn)

    def shuffle(self, x: Any) -> None:
        """Bring a list into a random order."""
        x[:] = list(self.permutation(x))

    def randint(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Draw a whole number, as the generator does for which this one stands."""
        return self.integers(low, high, size, endpoint=self.inclusive)

    randrange = integers
    random_sample = random

    def _several(self, size: Any, draw: Callable[[], Any]) -> Any:
        if size is None:
            return draw()
        drawn = np.array([draw() for _ in range(int(np.prod(size)))])
        return drawn.reshape(size)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ValueError(
            f"reset() and step() of an environment must draw random numbers whose outcomes can be listed (integers, "
            f"choice, permutation, shuffle, or random() compared with a probability), but they call {name}()"
        )


class _Uniform:
    """A uniform random number of which only that is decided which comparisons ask."""

    def __init__(self, draws: ScriptedGenerator, low: float, high: float) -> None:
        self._draws, self._low, self._high = draws, low, high

    def _below(self, bound: Any) -> bool:
        share = min(max((float(bound) - self._low) / (self._high - self._low), 0.0), 1.0)
        below = share == 1 or (share > 0 and self._draws.decide([share, 1 - share]) == 0)
        if below:
            self._high = min(float(bound), self._high)
        else:
            self._low = max(float(bound), self._low)
        return below

    __lt__ = __le__ = _below

    def __gt__(self, bound: Any) -> bool:
        return not self._below(bound)

    __ge__ = __gt__

    def _refuse(self, *_: Any) -> Any:
        raise ValueError(
            "a random number of reset() or step() must only be compared, as in self.np_random.random() < 0.2, so that "
            "its outcomes can be listed: draw with integers or choice in place of calculating with it"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __float__ = __int__ = _refuse


@dataclass
class _Shared:
    """What is known of an environment's states so far, shared by all copies of it.

    Attributes:
        endings: how episodes can end: whether with success, by ``info["is_success"]`` or ``info["success"]``, and with
            which reward.
        values: attribute -> its values in the states.
    """

    endings: set[tuple[bool, float]] = field(default_factory=set)
    values: dict[str, set[Any]] = field(default_factory=dict)


@lru_cache(maxsize=256)
def _shared(description: str) -> _Shared:
    return _Shared()


@dataclass(frozen=True, eq=False, slots=True)
class SteppedState:
    """A state: the attributes of an environment, what it shows there, and how the episode ended, if it did."""

    key: Hashable
    values: Values = field(repr=False)
    ending: tuple[bool, float] | None
    seen: Any = field(repr=False)
    mask: tuple[bool, ...] | None = field(repr=False)
    shared: _Shared = field(repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SteppedState) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        changing = {name: value for layer in self.values for name, value in layer.items()}
        texts = [
            f"{name}={value!r:.60}" for name, value in changing.items() if len(self.shared.values.get(name, ())) > 1
        ]
        return ", ".join([*texts, *([f"ended with reward {self.ending[1]:g}"] if self.ending else [])]) or "the state"


@environment_kind("gymnasium-class")
class SteppedEnvironment:
    """Environment of Gymnasium without a table of transitions, of which all states can be listed.

    The goal is to end an episode with success (``info["is_success"]`` or ``info["success"]``), if the environment says
    so, and with the highest reward of all ends. Further goals are the other ends, and each attribute that is true in
    some states and false at first. An environment may name its goals itself, with the attributes `goal_name`, `goals`
    (a method that maps names to functions of the environment) and `elsewhere`, see `Environment`. Attributes that count
    the steps are no part of the state; an attribute `state_attributes` lists those that are, if some others change as
    well but decide nothing.

    Args:
        name: registered name.
        options: arguments of `gymnasium.make`.
        modules: modules that register environments when they are imported.

    Raises:
        ValueError: an unknown name, or an environment whose states, actions or random numbers cannot be listed.
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None, modules: Sequence[str] = ()) -> None:
        self._begin(lambda: make(name, options, modules), {"name": name, "options": dict(options or {})})

    @classmethod
    def of_class(cls, factory: Any, parameters: Mapping[str, Any]) -> Environment[Any] | None:
        """Return the environment of a class with the interface of Gymnasium, with some arguments; None for others."""
        if not callable(getattr(factory, "reset", None)) or is_level(factory):
            return None
        real = factory(**parameters)
        if hasattr(getattr(real, "unwrapped", real), "P"):
            return ToyTextAsItIs(real)
        environment = cls.__new__(cls)
        environment._begin(lambda: factory(**parameters), {"name": factory.__name__, "parameters": dict(parameters)})
        return environment

    def _begin(self, make_real: Callable[[], Any], described: dict[str, Any]) -> None:
        self._make, self._calls = make_real, 0
        self._draws: ScriptedGenerator | None = (
            ScriptedGenerator()
        )  # None in an environment that is played with random numbers of its own
        self._real, self._layers = _bare(make_real())
        innermost = self._layers[-1]
        try:
            code = inspect.getsource(type(innermost))
        except (OSError, TypeError):
            code = ""
        self._described = {**described, "code": content_id("code", {"text": code})}
        self._shared = _Shared()  # what is tried here says nothing about the states
        for name in ("goal_name", "elsewhere", "discount"):
            if hasattr(innermost, name):
                setattr(self, name, getattr(innermost, name))
        self.actions, self._arguments = _actions_of(innermost)
        self._counters: dict[tuple[int, str], int] = {}
        self._rewards: dict[tuple[Any, int, Any], float] = {}
        self._pristine = self._read()
        with redirect_stdout(io.StringIO()):  # what the environment prints is shown when its states are listed
            self._counters = self._found_counters(self._first())
        self._shared, self._calls = _shared(canonical_json(self._described)), 0

    def _first(self) -> SteppedState:
        """Return a first state, after checking that only the generator of the environment decides on it."""
        first = self.initial()
        if first.keys() != self.initial().keys():
            raise ValueError(
                f"reset() of {type(self._layers[-1]).__name__} must draw its random numbers from self.np_random, but "
                "it began elsewhere although these were the same: call super().reset(seed=seed) first, and use "
                "self.np_random in place of random, numpy.random or a generator that is made in reset()"
            )
        return next(iter(first))

    def _found_counters(self, first: SteppedState) -> dict[tuple[int, str], int]:
        """Return the attributes that only count steps, with their values in the first state."""
        steps, rng, state = list[tuple[SteppedState, SteppedState]](), stream(0, "counted steps"), first
        while len(steps) < _TRIED:  # steps at random, in as many episodes as it takes
            after = list(self.step(state, int(rng.choice(self.admissible(state)))))
            steps.append((state, after[int(rng.integers(len(after)))]))
            state = first if steps[-1][1].ending is not None else steps[-1][1]
        counters = dict[tuple[int, str], int]()
        for number, layer in enumerate(first.values):
            for name, value in layer.items():
                if type(value) is not int:
                    continue
                changes = [
                    after.values[number].get(name, value) - before.values[number][name] for before, after in steps
                ]
                kinds = set(changes) - {0}
                if kinds in ({1}, {-1}) and sum(map(abs, changes)) >= _TRIED / 4:
                    far = [(first, value + 1_000_000 * kinds.pop())]
                    pairs = [*far, *((before, value) for before, _ in steps)]
                    if all(self._counts_only(state, number, name, other) for state, other in pairs):
                        counters[number, name] = value
        return counters

    def _counts_only(self, state: SteppedState, number: int, name: str, value: int) -> bool:
        """Return whether another value of an attribute of a state changes nothing else in the next states."""

        def without(values: Values) -> Hashable:
            return _frozen([{key: v for key, v in layer.items() if key != name} for layer in values], self._layers)

        changed = copy.deepcopy(state.values, self._memo())
        changed[number][name] = value
        other = replace(state, values=changed)
        return all(
            {(without(after.values), after.ending) for after in self.step(state, action)}
            == {(without(after.values), after.ending) for after in self.step(other, action)}
            for action in self.admissible(state)
        )

    # Reading and writing the state

    def _memo(self) -> dict[int, Any]:
        """Return objects that are not copied with a state, by their ids."""
        return {id(entry): entry for entry in (*self._layers, self._draws)}

    def _read(self) -> Values:
        """Return a copy of the attributes that are part of the state; random generators are replaced on the way."""
        values = Values()
        for layer in self._layers:
            of_layer = vars(layer)
            for name, value in of_layer.items():
                if isinstance(value, _GENERATORS) and self._draws is not None:
                    of_layer[name] = self._draws
                    self._draws.inclusive = isinstance(value, random.Random)
            values.append({name: value for name, value in of_layer.items() if _is_state(name, value)})
        if self._draws is not None:
            vars(self._layers[-1])["_np_random"] = self._draws
        return copy.deepcopy(values, self._memo())

    def _write(self, values: Values) -> None:
        copied = copy.deepcopy(values, self._memo())
        for layer, of_layer in zip(self._layers, copied, strict=True):
            present = vars(layer)
            for name in [name for name, value in present.items() if name not in of_layer and _is_state(name, value)]:
                del present[name]
            present.update(of_layer)

    def _state(self, seen: Any, info: Any, ending: tuple[bool, float] | None = None) -> SteppedState:
        """Return the present state of the environment, which shows an observation there."""
        values, innermost, shared = self._read(), self._layers[-1], self._shared
        for (number, name), first in self._counters.items():
            values[number][name] = first
        parts = getattr(innermost, "state_attributes", None)
        frozen = {
            name: _frozen(value, self._layers)
            for layer in values
            for name, value in layer.items()
            if parts is None or name in parts
        }
        for name, value in frozen.items():
            shared.values.setdefault(name, set()).add(value)
        if ending is not None:
            shared.endings.add(ending)
        return SteppedState(
            (frozenset(frozen.items()), ending),
            values,
            ending,
            seen,
            _mask(innermost, seen, info, self.actions),
            shared,
        )

    def _listed(self, play: Callable[[], Any]) -> dict[Any, float]:
        """Return the outcomes of a call of the environment; at first, check that it leaves global generators alone."""
        self._calls += 1
        before = _global_numbers() if self._calls < _WATCHED else None
        assert self._draws is not None  # where it is played, nothing is listed
        outcomes = self._draws.outcomes(play)
        if before is not None and _global_numbers() != before:
            raise ValueError(
                f"reset() and step() of {type(self._layers[-1]).__name__} must draw their random numbers from "
                "self.np_random, but they use the modules random or numpy.random, which depend on more than the state: "
                "write self.np_random.random() or self.np_random.integers(...)"
            )
        return outcomes

    # What an environment offers, see `Environment`

    def initial(self) -> dict[SteppedState, float]:
        """Return the probabilities of the states in which `reset` begins."""

        def play() -> SteppedState:
            self._write(self._pristine)
            return self._state(*_reset(self._real))

        return self._listed(play)

    def step(self, state: SteppedState, action: int) -> dict[SteppedState, float]:
        """Return the probabilities of the next states."""

        def play() -> tuple[SteppedState, float]:
            self._write(state.values)
            seen, reward, over, info = self._acted(self._real, action, state)
            return self._state(seen, info, _ending(reward, info) if over else None), reward

        chances, total = dict[SteppedState, float](), dict[SteppedState, float]()
        for (after, reward), chance in self._listed(play).items():
            chances[after] = chances.get(after, 0.0) + chance
            total[after] = total.get(after, 0.0) + chance * reward
        for after, chance in chances.items():
            self._rewards[state, action, after] = total[after] / chance
        return chances

    def _acted(self, real: Any, action: int, state: Any) -> tuple[Any, float, bool, Any]:
        """Take an action in an environment; return what it shows then, the reward, whether it is over, and the info."""
        returned, place = real.step(self._arguments[action]), f"step({self.actions[action]!r})"
        if not isinstance(returned, tuple) or len(returned) != 5:
            count = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
            raise ValueError(
                f"{place} of {type(self._layers[-1]).__name__} must return observation, reward, terminated, truncated "
                f"and info, as in Gymnasium, got {count}"
            )
        seen, reward, over, _, info = returned
        try:
            number = float(reward)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"{place} of {type(self._layers[-1]).__name__} must return a finite reward, got {reward!r:.100} in the "
                f"state {state!r:.200}"
            )
        return seen, number, bool(over), info

    def done(self, state: SteppedState) -> bool:
        """Return whether the episode is over."""
        return state.ending is not None

    def goal(self, state: SteppedState) -> bool:
        """Return whether the episode ended with success, or with the highest reward of all ends."""
        return state.ending is not None and state.ending == max(self._shared.endings)

    def goals(self) -> dict[str, Callable[[SteppedState], bool]]:
        """Return the further goals: those that the environment names, or its other ends and attributes that become
        true.
        """
        shared = self._shared
        if not shared.endings:
            raise ValueError(
                f"{type(self._layers[-1]).__name__} must have a goal, but no step ends an episode (terminated): return "
                "terminated=True where the goal is reached"
            )
        name_goals = getattr(self._layers[-1], "goals", None)
        if callable(name_goals):
            return {name: partial(self._own_goal, holds) for name, holds in name_goals().items()}
        ends = sorted(shared.endings, reverse=True)[1:_MOST_ENDINGS]
        success = len({ending[1] for ending in shared.endings}) < len(shared.endings)
        goals: dict[str, Callable[[SteppedState], bool]] = {
            f"end with reward {end[1]:g}{' and no success' if success and not end[0] else ''}": partial(_ends, end)
            for end in ends
        }
        for name, values in shared.values.items():
            if values != {False, True} or not all(isinstance(value, bool) for value in values):
                continue
            words = name.strip("_").replace("_", " ")
            goals.setdefault(words if " " in words else f"{words} is true", partial(_holds, name))
        return goals

    def _own_goal(self, holds: Callable[[Any], bool], state: SteppedState) -> bool:
        self._write(state.values)
        return bool(holds(self._layers[-1]))

    def utility(self, state: SteppedState, action: int, next_state: SteppedState) -> float:
        """Return the expected reward of a step, given the state to which it leads."""
        return self._rewards[state, action, next_state]

    def admissible(self, state: SteppedState) -> list[int]:
        """Return the actions that the mask of the environment allows, all without a mask."""
        return [action for action in range(len(self.actions)) if state.mask is None or state.mask[action]]

    def observe(self, state: SteppedState) -> Observed:
        """Return the observation in words, and as an array if it is one."""
        array = state.seen if isinstance(state.seen, np.ndarray) and state.seen.dtype.kind in "biuf" else None
        return Observed(text=_words(state.seen), array=array)

    def describe(self) -> dict[str, Any]:
        """Return the name, the arguments and a digest of the code of the class."""
        return self._described

    def play(self, seed: int) -> StatePlayer:
        """Make the environment anew, with random numbers of its own, and begin an episode."""
        other = copy.copy(self)
        other._real, other._layers = _bare(self._make())
        other._draws = None
        seen, info = _reset(other._real, seed)
        for layer in other._layers:  # generators that were made with a fixed seed would repeat themselves
            for name, value in vars(layer).items():
                if isinstance(value, _GENERATORS) and name != "_np_random":
                    new = np.random.default_rng(seed) if isinstance(value, np.random.Generator) else type(value)(seed)
                    vars(layer)[name] = new

        def act(action: int) -> SteppedState:
            seen, reward, over, info = other._acted(other._real, action, player.state)
            return other._state(seen, info, _ending(reward, info) if over else None)

        player = StatePlayer(self, other._state(seen, info), act)
        return player

    def advice_on_size(self) -> str:
        """Return what to change if there are too many states: the attribute with the most values."""
        name, values = max(self._shared.values.items(), key=lambda item: len(item[1]))
        return (
            f"the attribute {name} of {type(self._layers[-1]).__name__} has {len(values):,} values. If it decides "
            "nothing, list the attributes that do in an attribute of the class, such as state_attributes = "
            '("position", "has_key"); otherwise bound its values'
        )


def _reset(real: Any, seed: int | None = None) -> tuple[Any, Any]:
    """Begin an episode; return what the environment shows, and the info."""
    returned = real.reset() if seed is None else real.reset(seed=seed)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ValueError(
            f"{type(real).__name__} must have a method reset(self, *, seed=None, options=None) that returns an "
            f"observation and a dict, as in Gymnasium, got {returned!r:.100}"
        )
    return returned[0], returned[1]


def _bare(real: Any) -> tuple[Any, list[Any]]:
    """Return an environment without wrappers that limit time or check calls, and its layers, the outermost first."""
    while type(real).__name__ in _LIMITS:
        real = real.env
    layers = [real]
    while layers[-1] is not getattr(layers[-1], "unwrapped", layers[-1]):
        inner = layers[-1].env
        while type(inner).__name__ in _LIMITS:
            inner = layers[-1].env = inner.env
        layers.append(inner)
    return real, layers


def _actions_of(real: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Return the names of the actions of an environment, and what its `step` takes for each.

    Raises:
        ValueError: the actions cannot be listed.
    """
    space: Any = getattr(real, "action_space", None)
    names: tuple[str, ...] | None = None
    for attribute in _NAMES:
        listing = getattr(real, attribute, None)
        if isinstance(listing, Mapping):
            listing = (
                [listing[number] for number in sorted(listing)]
                if all(isinstance(k, int) for k in listing)
                else list(listing)
            )
        elif isinstance(listing, type) and issubclass(listing, enum.Enum):
            listing = [member.name for member in listing]
        if (
            names is None
            and isinstance(listing, list | tuple)
            and listing
            and all(isinstance(name, str) for name in listing)
        ):
            names = tuple(listing)
    if names is None and callable(meanings := getattr(real, "get_action_meanings", None)):
        names = tuple(meanings())
    arguments: list[Any] | None = None
    if hasattr(space, "n") and np.ndim(space.n) == 0:
        first = int(getattr(space, "start", 0))
        arguments = list(range(first, first + int(space.n)))
    elif hasattr(space, "nvec") and int(np.prod(space.nvec)) <= _MOST_ACTIONS:
        arguments = [np.array(parts) for parts in itertools.product(*(range(int(n)) for n in np.ravel(space.nvec)))]
    elif names is not None:
        return names, list(names)  # an environment that takes texts
    if arguments is None:
        raise ValueError(
            f"the actions of {type(real).__name__} must be Discrete, MultiDiscrete or texts that an attribute "
            f"action_names lists, got the action space {space!r:.100}"
        )
    if names is None or len(names) != len(arguments):
        names = tuple(f"action {' '.join(map(str, np.ravel(action).tolist()))}" for action in arguments)
    return names, arguments


def _is_state(name: str, value: Any) -> bool:
    """Return whether an attribute can be part of the state."""
    module = type(value).__module__
    foreign = module.startswith(("pygame", "gymnasium.spaces", "gym.spaces")) or isinstance(value, ScriptedGenerator)
    return not (foreign or name.strip("_") in _NO_STATE or isinstance(value, _GENERATORS) or inspect.ismodule(value))


def _frozen(value: Any, layers: Sequence[Any] = (), depth: int = 0) -> Hashable:
    """Return the content of a value as something that can be hashed."""
    if value is None or isinstance(value, bool | int | float | str | bytes | enum.Enum | type):
        return value
    if depth > 20 or any(value is layer for layer in layers):
        return None  # an object that refers to itself, or to the environment
    inner = partial(_frozen, layers=layers, depth=depth + 1)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, np.generic):
        item: Hashable = value.item()
        return item
    if isinstance(value, Mapping):
        return frozenset((inner(key), inner(entry)) for key, entry in value.items())
    if isinstance(value, Set):
        return frozenset(map(inner, value))
    if isinstance(value, list | tuple | deque | np.ndarray):
        return tuple(map(inner, value))
    if callable(value):
        return None
    slots = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
    return type(value).__name__, inner({**slots, **getattr(value, "__dict__", {})})


def _mask(real: Any, seen: Any, info: Any, actions: Sequence[str]) -> tuple[bool, ...] | None:
    """Return which actions an environment offers now, None if it does not say so."""
    masks = [part["action_mask"] for part in (info, seen) if isinstance(part, Mapping) and "action_mask" in part]
    masks += [method() for name in ("action_masks", "action_mask") if callable(method := getattr(real, name, None))]
    if not masks:
        return None
    mask = tuple(bool(offered) for offered in np.ravel(masks[0]))
    if len(mask) != len(actions):
        raise ValueError(
            f"the action mask of {type(real).__name__} must have a value for each of its {len(actions)} actions, got "
            f"{len(mask)}"
        )
    return mask


def _ending(reward: float, info: Any) -> tuple[bool, float]:
    stated = [info[name] for name in ("is_success", "success") if isinstance(info, Mapping) and name in info]
    return bool(stated[0]) if stated else False, reward


def _ends(ending: tuple[bool, float], state: SteppedState) -> bool:
    return state.ending == ending


def _holds(name: str, state: SteppedState) -> bool:
    return state.ending is None and any(layer.get(name) is True for layer in state.values)


def _words(seen: Any) -> str:
    """Return an observation in words."""
    if isinstance(seen, Mapping):
        return "\n".join(f"{name}: {_words(part)}" for name, part in seen.items() if name != "action_mask")
    return seen if isinstance(seen, str) else str(seen.tolist() if isinstance(seen, np.ndarray) else seen)


def _global_numbers() -> tuple[Any, ...]:
    _, keys, position, *_ = np.random.get_state()  # noqa: NPY002 - to see whether an environment uses it
    return random.getstate(), position, np.asarray(keys).tobytes()
