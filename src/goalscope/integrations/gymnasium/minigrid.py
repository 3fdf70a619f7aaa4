"""MiniGrid and BabyAI levels as environments; `goalscope.integrations.gymnasium.levels` defines their states."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_choice
from goalscope._ground.extras import lacking
from goalscope._ground.ids import content_id
from goalscope.agents.policies.files import indicators, tokens
from goalscope.integrations.gymnasium.bounds import LevelBound
from goalscope.integrations.gymnasium.levels import CARRIED, MOVABLE, Key, LevelSimulator
from goalscope.integrations.gymnasium.toy_text import copied, make
from goalscope.worlds.environments.environment import Observed, StateCopy, environment_kind

_FACING = ("right", "down", "left", "up")
_ARROWS = ">v<^"


def _real(level: str, seed: int, modules: Sequence[str] = ()) -> Any:
    """Create a MiniGrid level at the beginning of an episode."""
    try:
        import minigrid  # noqa: F401 - importing registers the levels
    except ImportError as error:
        raise lacking("levels of MiniGrid need minigrid", "minigrid", error) from error
    from minigrid.minigrid_env import MiniGridEnv

    environment = make(level, modules=modules).unwrapped
    if not isinstance(environment, MiniGridEnv):
        raise ValueError(
            "level must be a registered MiniGrid or BabyAI level, e.g. MiniGrid-DoorKey-6x6-v0, or a "
            f"level of yours derived from MiniGridEnv, got {level!r:.200}, which is a "
            f"{type(environment).__name__}"
        )
    environment.reset(seed=seed)
    return environment


ARRAYS = ("none", "image", "one-hot", "image-mission", "image-tokens", "full")
"""Arrays that policies are shown: none; MiniGrid's own picture of what lies ahead, ``[7, 7, 3]`` uint8; the same as
indicators of kinds, colours and states, ``[7, 7, 20]``, and the direction, flat ``[984]``; the picture and
the characters of the mission, a row of 28 indicators each (a to z, space, comma), as MiniGrid's FlatObsWrapper, flat
``[2835]``; the picture and the numbers of the mission's words in `goalscope.environments.WORDS`, 0 after the last one,
flat ``[211]``; the whole level, ``[W, H, 3]``, the agent in it."""


def _array(real: Any, form: str) -> npt.NDArray[Any]:
    """Return the observation of a level as an array."""
    from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

    if form == "full":
        whole = real.grid.encode()
        col, row = real.agent_pos
        whole[col, row] = OBJECT_TO_IDX["agent"], COLOR_TO_IDX["red"], real.agent_dir
        return np.asarray(whole, dtype=np.uint8)
    image = type(real).gen_obs(real)["image"]
    if form == "image":
        return np.asarray(image, dtype=np.uint8)
    if form == "image-mission":
        return np.concatenate([image.ravel(), indicators(str(real.mission))]).astype(np.uint8)
    if form == "image-tokens":
        return np.concatenate([image.ravel(), tokens(str(real.mission))]).astype(np.uint8)
    sizes = len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX)
    parts = [np.eye(size, dtype=np.uint8)[image[..., index]] for index, size in enumerate(sizes)]
    cells = np.concatenate(parts, axis=-1).ravel()
    return np.concatenate([cells, np.eye(4, dtype=np.uint8)[real.agent_dir]])


@environment_kind("minigrid")
class MiniGridLevel(StateCopy):
    """Fully observed MiniGrid or BabyAI level with the layout of one seed.

    Args:
        level: registered name, e.g. "MiniGrid-DoorKey-6x6-v0".
        seed: seed of the layout.
        form: form of text observations, "words" or "grid" (rows of symbols).
        array: form of array observations, see `ARRAYS`.
        modules: modules of the working directory that register levels when they are imported.

    Raises:
        ValueError: an unknown level or form.
        ImportError: MiniGrid is missing.
    """

    def __init__(
        self, level: str, seed: int = 1, form: str = "words", array: str = "none", modules: Sequence[str] = ()
    ) -> None:
        if form not in ("words", "grid"):
            raise ValueError(f"form must be words or grid, got {form!r}")
        check_choice("array", array, ARRAYS)
        self._array, self._modules = array, tuple(modules)
        self._level, self._seed, self._form = level, seed, form
        self._begin()

    def _begin(self) -> None:
        self._simulator: LevelSimulator = self._real
        real = self._simulator.real
        real.gen_obs = dict  # rendering takes most of the time of a step, and its pictures are not used here
        self.actions = tuple(action.name.replace("pickup", "pick up") for action in real.actions)
        self._first, self._mission = self._simulator.read(), str(real.mission)
        self._refuse_chance()

    def _refuse_chance(self) -> None:
        """Raise an error if the level draws random numbers in a step, e.g. to move obstacles."""
        numbers = self._simulator.real.np_random.bit_generator
        before = numbers.state
        for action in range(len(self.actions)):
            self._simulator.write(self._first)
            self._simulator.step(action)
            if numbers.state != before:
                raise ValueError(
                    f"{self._level} draws random numbers in a step (e.g. for moving obstacles), so its state does "
                    "not determine what happens next: choose a deterministic level"
                )
        self._simulator.write(self._first)

    def observe(self, state: Key) -> Observed:
        """Return the observation as text and as an array in the configured form."""
        observation = super().observe(state)
        if self._array == "none" or self.done(state):
            return observation
        self._simulator.write(state)
        return Observed(text=observation.text, array=_array(self._simulator.real, self._array))

    def make(self) -> LevelSimulator:
        """Create the level at the beginning of an episode, always with the same layout."""
        return LevelSimulator(_real(self._level, self._seed, self._modules))

    def read(self, real: LevelSimulator) -> Key:
        """Return the key of the state."""
        return real.read()

    def write(self, real: LevelSimulator, state: Key) -> None:
        """Set the level to a state."""
        real.write(state)

    def goals(self) -> dict[str, Any]:
        """Return the further goals of the level: to hold each object that can be held, and to have each door open."""
        goals: dict[str, Any] = {}
        for number, item in enumerate(self._simulator.movable):
            name = f"{item.color} {item.type} {'open' if item.type == 'door' else 'held'}"
            goals.setdefault(name, partial(self._opened if item.type == "door" else self._held, number))
        return goals

    def _held(self, number: int, state: Key) -> bool:
        return not self.done(state) and bool(state[1][number][0] == CARRIED)

    def _opened(self, number: int, state: Key) -> bool:
        return not self.done(state) and bool(state[1][number][1][0])

    def lower_bound(self, state: Key) -> float:
        """Return a lower bound on the number of steps to the goal, see `gymnasium.bounds`."""
        return self._bound(state)

    @cached_property
    def _bound(self) -> LevelBound:
        return LevelBound(self.make())

    def heuristic(self, state: Key) -> float:
        """Return the Manhattan distance to the goal cell, or to the nearest object if there is no goal cell."""
        if self.done(state):
            return 0.0 if self.goal(state) else float("inf")
        (col, row, _), movable = state[:2]
        width = self._simulator.size[0]
        goals = [index for index, words in enumerate(self._simulator.layout()) if words.startswith("goal")]
        cells = goals or [position for position, _ in movable if position >= 0]
        return float(min((abs(index % width - col) + abs(index // width - row) for index in cells), default=0))

    def words(self, state: Key) -> str:
        """Describe the mission and the whole level, in words or as a grid."""
        (col, row, facing), movable = state[:2]
        width = self._simulator.size[0]
        cells = {index: words for index, words in enumerate(self._simulator.layout()) if words}
        carried = "nothing"
        for item, (position, door_state) in zip(self._simulator.movable, movable, strict=True):
            if position >= 0:
                cells[position] = _object_words(item, door_state)
            elif position == CARRIED:
                carried = f"a {item.color} {item.type}"
        lines = [
            f"Your mission: {self._mission}.",
            f"You stand at row {row}, column {col}, counted from 0 at the top left, and look {_FACING[facing]}. You "
            f"carry {carried}.",
            "Forward goes where you look; pick up, drop and toggle act on the cell in front of you.",
        ]
        if self._form == "grid":
            return "\n".join([*lines, *_rows(cells, self._simulator.size, col + row * width, facing)])
        listed_objects = [
            f"a {words} at row {index // width}, column {index % width}"
            for index, words in sorted(cells.items())
            if not words.startswith("wall")
        ]
        walls = [
            f"({index // width},{index % width})" for index, words in sorted(cells.items()) if words.startswith("wall")
        ]
        lines.append(f"There is {'; '.join(listed_objects)}." if listed_objects else "There is nothing else.")
        return "\n".join([*lines, f"Walls stand at (row,column) {' '.join(walls)}."])

    def describe(self) -> dict[str, Any]:
        """Return level, seed, form and layout. The layout is included because MiniGrid versions may differ in it."""
        layout = {"first": repr(self._first), "fixed": self._simulator.layout(), "mission": self._mission}
        array = {} if self._array == "none" else {"array": self._array}
        return {
            "level": self._level,
            "seed": self._seed,
            "form": self._form,
            "layout": content_id("layout", layout),
            **array,
        }


class LevelAsItIs(MiniGridLevel):
    """Level of an existing environment, as it is at the beginning of an episode.

    Args:
        real: the level, which is copied and not changed.
    """

    def __init__(self, real: Any) -> None:
        self._pristine, self._form, self._array, self._seed = copied(real), "words", "none", -1
        self._level = real.spec.id if real.spec is not None else type(real).__name__
        self._begin()

    def make(self) -> LevelSimulator:
        """Copy the level at the beginning of the episode, without rendering."""
        real = copied(self._pristine)
        real.gen_obs = dict
        return LevelSimulator(real)

    def describe(self) -> dict[str, Any]:
        """Return the level, its layout and the kinds of its objects; the seed is unknown."""
        kinds = [f"{item.color} {item.type}" for item in self._simulator.movable]
        return {**super().describe(), "seed": None, "objects": kinds}


def _object_words(item: Any, door_state: tuple[bool, ...]) -> str:
    """Describe an object in words, with its type first."""
    if not door_state:
        return f"{item.type} ({item.color})"
    return f"door ({item.color}, {'open' if door_state[0] else 'locked' if door_state[1] else 'closed'})"


_SYMBOLS = {"wall": "W", "goal": "G", "lava": "L", "floor": ".", "key": "K", "ball": "B", "box": "X"}


def _rows(cells: dict[int, str], size: tuple[int, int], agent: int, facing: int) -> list[str]:
    """Return lines with the legend, the rows of symbols and the colours of the objects."""
    width, height = size
    symbols = ["."] * (width * height)
    notes = []
    for index, words in sorted(cells.items()):
        object_type = words.split()[0]
        if object_type == "door":
            symbols[index] = "O" if "open" in words else "D"
        else:
            symbols[index] = _SYMBOLS.get(object_type, "?")
        if object_type in (*MOVABLE, "?"):
            notes.append(f"{words} at row {index // width}, column {index % width}")
    symbols[agent] = _ARROWS[facing]
    legend = (
        "W wall, . free, G goal, L lava, K key, B ball, X box, D closed or locked door, O open door, > v < ^ you and "
        "where you look"
    )
    rows = [" ".join(symbols[line * width : (line + 1) * width]) for line in range(height)]
    return [legend, *rows, *([f"Things: {'; '.join(notes)}."] if notes else [])]
