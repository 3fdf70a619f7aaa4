"""Gymnasium environments with a public transition table ``P``, i.e. the toy text worlds."""

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from goalscope._ground.extras import lacking
from goalscope._ground.ids import content_id
from goalscope._ground.own import consent, load_module
from goalscope._ground.yaml_text import read_pairs
from goalscope.worlds.environments.environment import Observed, StatePlayer, environment_kind
from goalscope.worlds.grid import OPEN
from goalscope.worlds.world import Drawing

_ID = re.compile(r"(?:([A-Za-z_][\w.]*):)?([\w./-]+-v\d+)(?::(.*))?", re.DOTALL)

OVER, LOST = -1, -2
"""States after the end of an episode: at the goal, or anywhere else."""


def make(name: str, options: Mapping[str, Any] | None = None, modules: Sequence[str] = ()) -> Any:
    """Create a Gymnasium environment by its registered name.

    Args:
        name: registered name.
        options: arguments of `gymnasium.make`.
        modules: modules of the working directory that register environments when they are imported.

    Raises:
        ValueError: a name that is not registered or that would import a module, or a module that does not exist or
            that the user did not allow (`goalscope._ground.own`).
        ImportError: Gymnasium is missing.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise lacking("environments of Gymnasium need gymnasium", "gymnasium", error) from error
    if not isinstance(name, str) or ":" in name:
        # Gymnasium would import the module named before a colon, and a stored run could name any module.
        module, _, rest = str(name).rpartition(":")
        how = f": write {rest} and beside it `modules: [{module}]`" if module and rest else ""
        raise ValueError(
            f"environment must be the registered name of a Gymnasium environment, e.g. Taxi-v4, got {name!r:.200}{how}"
        )
    for module in modules:
        # This is the only place that imports a module which registers environments.
        load_module(module, "a module that registers environments of Gymnasium")
    try:
        return gymnasium.make(name, **(options or {}))
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
        note = f" after {', '.join(modules)} was imported" if modules else ""
        raise ValueError(
            f"Gymnasium does not know the environment {name!r:.200}{note} ({error}): correct the name, or, if a file "
            f"custom_env.py of yours registers it, write custom_env:{name:.200} after --env, and in a study "
            "modules: [custom_env]"
        ) from error
    except TypeError as error:
        entry = gymnasium.spec(name).entry_point
        creator = entry if callable(entry) else gymnasium.envs.registration.load_env_creator(str(entry))
        raise ValueError(
            f"{name} was given the options {', '.join(options or {}) or 'none'}, but takes "
            f"{', '.join(inspect.signature(creator).parameters)}: {str(error)[:300]}"
        ) from error
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"Gymnasium does not accept the environment {name!r}: {error}") from error


@environment_kind("gymnasium")
class ToyText:
    """A Gymnasium environment with a transition table ``P``, such as FrozenLake, as an environment with known states.

    ``P[state][action]`` lists (probability, next state, reward, terminated). In some tables, a transition that ends the
    episode leads to an ordinary state (CliffWalking's goal, FrozenLake's holes). Such a next state is replaced by one
    of two terminal states, `OVER` at the goal and `LOST` elsewhere. A terminal transition reaches the goal if it has
    the largest reward of all terminal transitions.

    Args:
        name: registered name, e.g. "FrozenLake-v1".
        options: arguments of `gymnasium.make`, e.g. ``{"map_name": "8x8"}``.
        modules: modules of the working directory that register environments when they are imported.

    Raises:
        ValueError: an unknown name, or an environment without a table.
        ImportError: Gymnasium is missing.
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None, modules: Sequence[str] = ()) -> None:
        self._name, self._options, self._modules = name, dict(options or {}), tuple(modules)
        self._read(make(name, self._options, self._modules))

    @classmethod
    def ids(cls) -> list[str]:
        """Return the ids of all environments that Gymnasium knows, MiniGrid's included; none if Gymnasium is not
        installed.
        """
        try:
            import gymnasium
        except ImportError:
            return []
        with suppress(ImportError):
            import minigrid  # noqa: F401 - importing registers the levels
        return sorted(gymnasium.registry)

    @classmethod
    def named(cls, text: str) -> tuple[str, dict[str, Any]] | None:
        """Parse the id of a Gymnasium environment, as a user types it, into the source and parameters of an
        environment.

        Args:
            text: the id, as in ``FrozenLake-v1``; before it a module that registers it, as in ``my_levels:Room-v0``;
                after it arguments of `gymnasium.make`, as in ``FrozenLake-v1:is_slippery=false``. For a level of
                MiniGrid they are the parameters ``seed``, ``form`` and ``array``.

        Returns:
            Source and parameters; None for a text of another form.

        Raises:
            ValueError: Gymnasium does not know the id.
            ImportError: Gymnasium or MiniGrid is missing.
        """
        match = _ID.fullmatch(text)
        if match is None:
            return None
        module, name, options = match[1], match[2], dict(read_pairs(match[3] or "", text))
        modules = {"modules": [module]} if module else {}
        consent(modules)
        if name.startswith(("MiniGrid-", "BabyAI-")):
            try:
                import minigrid  # noqa: F401 - importing registers the levels
            except ImportError as error:
                raise lacking("levels of MiniGrid need minigrid", "minigrid", error) from error
        of_level: dict[str, Any] = {key: options.pop(key) for key in ("seed", "form", "array") if key in options}
        real = make(name, options, modules.get("modules", ())).unwrapped
        if hasattr(real, "P"):
            return "gymnasium", {"name": name, **({"options": options} if options else {}), **of_level, **modules}
        if is_level(type(real)):
            return "minigrid", {"level": name, **of_level, **modules}
        return "gymnasium-class", {"name": name, **({"options": options} if options else {}), **of_level, **modules}

    def _read(self, real: Any) -> None:
        self._real, name = real, self._name
        unwrapped = real.unwrapped
        if not hasattr(unwrapped, "P") or not hasattr(unwrapped, "initial_state_distrib"):
            raise ValueError(
                f"{name} has no transition table P with initial_state_distrib, as toy text environments have: "
                "describe its rules in an environment of your own (docs/environments.md)"
            )
        self._table: Mapping[int, Mapping[int, Any]] = unwrapped.P
        self._start = [float(chance) for chance in unwrapped.initial_state_distrib]
        final_rewards = [
            float(reward)
            for row in self._table.values()
            for outcomes in row.values()
            for chance, _, reward, over in outcomes
            if over and chance > 0
        ]
        if not final_rewards:
            raise ValueError(
                f"{name} has no transition that ends the episode, so it has no goal: choose an environment "
                "whose episodes can end"
            )
        self._best = max(final_rewards)
        self.actions = _ACTIONS.get(
            name.split("-")[0], tuple(f"action {index}" for index in range(unwrapped.action_space.n))
        )

    def initial(self) -> dict[int, float]:
        """Return the states in which an episode may begin, with their probabilities."""
        return {state: chance for state, chance in enumerate(self._start) if chance > 0}

    def step(self, state: int, action: int) -> dict[int, float]:
        """Return the states to which an action may lead, with their probabilities."""
        probabilities: dict[int, float] = {}
        for chance, after, reward, over in self._table[state][action]:
            next_state = self._end_state(float(reward)) if over else int(after)
            probabilities[next_state] = probabilities.get(next_state, 0.0) + float(chance)
        return probabilities

    def _end_state(self, reward: float) -> int:
        return OVER if reward == self._best else LOST

    def done(self, state: int) -> bool:
        """Return whether the episode is over in a state."""
        return state < 0

    def goal(self, state: int) -> bool:
        """Return whether a state is the terminal state at the goal."""
        return state == OVER

    def utility(self, state: int, action: int, next_state: int) -> float:
        """Return the expected reward of taking an action in a state, given the next state to which it leads."""
        total = weight = 0.0
        for chance, after, reward, over in self._table[state][action]:
            if (self._end_state(float(reward)) if over else int(after)) == next_state:
                total, weight = total + float(chance) * float(reward), weight + float(chance)
        return total / weight

    def observe(self, state: int) -> Observed:
        """Return what an agent observes in a state: a description in words, and a one-hot array ``[S]`` over the S
        states.
        """
        if state < 0:
            return Observed(text="The episode is over.")
        array = np.zeros(len(self._table), dtype=np.float32)
        array[state] = 1.0
        return Observed(text=_shown(self._name, self._real.unwrapped, state)[0], array=array)

    def drawing(self, state: int) -> Drawing | None:
        """Return a picture of a state of FrozenLake, CliffWalking or Taxi; None in other environments and in terminal
        states.
        """
        return None if state < 0 else _shown(self._name, self._real.unwrapped, state)[1]

    def describe(self) -> dict[str, Any]:
        """Return what identifies the environment: its name, its options and a hash of all its transitions.

        The transitions are included because they may differ between Gymnasium versions.
        """
        rows = [
            [
                int(state),
                int(action),
                *[[float(chance), int(after), float(reward), bool(over)] for chance, after, reward, over in outcomes],
            ]
            for state, row in self._table.items()
            for action, outcomes in row.items()
        ]
        return {"name": self._name, "options": self._options, "transitions": content_id("transitions", {"rows": rows})}

    def play(self, seed: int) -> StatePlayer:
        """Create the Gymnasium environment and begin an episode in it, with random numbers from ``seed``."""
        return self._play_in(make(self._name, self._options), seed)

    def _play_in(self, real: Any, seed: int) -> StatePlayer:
        def act(action: int) -> int:
            # This bypasses the time limit wrapper, because the study defines the horizon.
            observation, reward, over, _, _ = real.unwrapped.step(action)
            return self._end_state(float(reward)) if over else int(observation)

        return StatePlayer(self, int(real.reset(seed=seed)[0]), act)


class ToyTextAsItIs(ToyText):
    """An existing Gymnasium environment with a table ``P``, in which an agent already acts; see `ToyText`.

    Args:
        real: the environment, which is not changed.
    """

    def __init__(self, real: Any) -> None:
        spec = real.spec
        self._name, self._options = (spec.id, dict(spec.kwargs)) if spec is not None else (type(real).__name__, {})
        self._read(real)

    def play(self, seed: int) -> StatePlayer:
        """Copy the existing environment and begin an episode in the copy, with random numbers from ``seed``."""
        return self._play_in(copied(self._real.unwrapped), seed)

    def after(self, state: int, action: int, real: int) -> int:
        """Return which terminal state (`OVER` at the goal, else `LOST`) an action led to when it ended the episode.

        Args:
            state, action: the state before, and the action.
            real: the state in which the environment says it ended.

        Raises:
            ValueError: if the table has no such transition.
        """
        rewards = {float(reward) for _, after, reward, over in self._table[state][action] if over and after == real}
        if len(rewards) != 1:
            raise ValueError(
                f"action {action} in state {state} ended the episode in state {real}, but the table has no "
                "such transition: the environment must follow its table P"
            )
        return self._end_state(rewards.pop())


def is_level(kind: type) -> bool:
    """Return whether a class is one of levels of MiniGrid or BabyAI."""
    return any(base.__name__ == "MiniGridEnv" for base in kind.__mro__)


def copied(real: Any) -> Any:
    """Return a deep copy of an environment, without its windows and pictures, which cannot be copied."""

    def drawn(value: Any) -> bool:
        items = value if isinstance(value, list) else [value]
        return any(type(item).__module__.startswith("pygame") for item in items)

    return copy.deepcopy(real, {id(value): None for value in vars(real).values() if drawn(value)})


_ACTIONS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
}
_PLACES = ("red", "green", "yellow", "blue")


def _shown(name: str, real: Any, state: int) -> tuple[str, Drawing | None]:
    """Return a state in words and as a picture.

    In environments for which neither is implemented, the words are the number of the state.
    """
    family = name.split("-")[0]
    if family.startswith("FrozenLake"):
        lines = ["".join(cell.decode() for cell in row) for row in real.desc]
        row, col = agent = divmod(state, len(lines[0]))
        picture = "\n".join(
            line if index != row else f"{line[:col]}A{line[col + 1 :]}" for index, line in enumerate(lines)
        )
        text = (
            f"You stand on a frozen lake at row {row}, column {col}, counted from 0 at the top left. A is you, S the "
            f"start, F ice, H a hole that ends the episode, G the goal.\n{picture}"
        )
        return text, Drawing(rows=tuple(line.replace("F", OPEN) for line in lines), agent=agent)
    if family.startswith("CliffWalking"):
        row, col = agent = divmod(state, 12)
        text = (
            f"You stand at row {row}, column {col} of 4 rows and 12 columns, counted from 0 at the top left. The goal "
            "is row 3, column 11; the cells between the start (row 3, column 0) and it are a cliff that sends you back."
        )
        return text, Drawing(rows=(*(OPEN * 12,) * 3, f"S{'C' * 10}G"), agent=agent)
    if family == "Taxi":
        row, col, passenger, destination = (int(number) for number in real.decode(state))
        cells = dict(zip(_PLACES, real.locs, strict=True))
        places = ", ".join(f"{place} at row {cell[0]}, column {cell[1]}" for place, cell in cells.items())
        who = "in your taxi" if passenger == len(_PLACES) else f"waiting at {_PLACES[passenger]}"
        lines = ["".join(cell.decode() for cell in line) for line in real.desc]
        text = (
            f"You drive a taxi at row {row}, column {col} of 5 rows and 5 columns, counted from 0 at the top left. The "
            f"places are {places}. The passenger is {who} and wants to go to {_PLACES[destination]}. A bar between two "
            "cells is a wall.\n" + "\n".join(lines)
        )
        # The frame is left out; every second column contains the walls between cells.
        walls = str.maketrans({"|": "#", ":": OPEN, " ": OPEN})
        labels = [(real.locs[destination][0], 2 * real.locs[destination][1], "to")]
        if passenger < len(_PLACES):
            labels.append((real.locs[passenger][0], 2 * real.locs[passenger][1], "waits"))
        rows = tuple(line[1:-1].translate(walls) for line in lines[1:-1])
        return text, Drawing(rows=rows, agent=(row, 2 * col), labels=tuple(labels))
    return f"You are in state {state} of {name}.", None
