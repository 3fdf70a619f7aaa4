"""MiniGrid's and BabyAI's levels, by their own simulator: a state is written into it, one step is taken, and read back.

The key of a state is all that the simulator changes: where the agent stands and looks, where each thing is that can be
moved, and whether doors are open. The number of steps so far is no part of it. The verifiers of BabyAI's instructions
have a memory of their own, which is reset before each step: a level in which it matters does not play back.
"""

from functools import partial
from typing import Any

from goalscope.environments.environment import StateCopy, environment_kind
from goalscope.environments.toy_text import make
from goalscope.extras import lacking
from goalscope.ids import content_id

CARRIED, GONE, INSIDE = -1, -2, -10
"""Where a thing is that lies in no cell; inside of thing n it is at ``INSIDE - n``."""

Key = tuple[Any, ...]
_MOVABLE = ("key", "ball", "box", "door")
_FACING = ("right", "down", "left", "up")
_ARROWS = ">v<^"


def _real(level: str, seed: int) -> Any:
    """Return a level of MiniGrid at the beginning of an episode."""
    try:
        import minigrid  # noqa: F401 - importing registers the levels
    except ImportError as error:
        raise lacking("levels of MiniGrid need minigrid", "minigrid", error) from error
    if not isinstance(level, str) or not level.startswith(("MiniGrid-", "BabyAI-")):
        raise ValueError(f"a level must be one of MiniGrid's or BabyAI's, e.g. MiniGrid-DoorKey-6x6-v0, got {level!r}")
    made = make(level).unwrapped
    made.reset(seed=seed)
    return made


class _Simulator:
    """A level whose state can be read and written.

    Levels keep references to single things (the door to be opened, the ball to be fetched): the things of the
    beginning are moved about, never made anew.
    """

    def __init__(self, level: str, seed: int) -> None:
        self.real = _real(level, seed)
        self.size = self.real.grid.width, self.real.grid.height
        self._fixed = [None if thing is None or thing.type in _MOVABLE else thing for thing in self.real.grid.grid]
        self.things: list[Any] = []
        for thing in self.real.grid.grid:
            while thing is not None and thing.type in _MOVABLE:
                self.things.append(thing)
                thing = thing.contains
        self._number = {id(thing): number for number, thing in enumerate(self.things)}

    def read(self) -> Key:
        """Return the key of the state: the agent, and of each thing where it is and, of doors, whether open and locked.

        Raises:
            ValueError: something changed that no state holds.
        """
        level = self.real
        where = [GONE] * len(self.things)
        for at, (thing, fixed) in enumerate(zip(level.grid.grid, self._fixed, strict=True)):
            if thing is not fixed:
                self._place(thing, at, where)
        self._place(level.carrying, CARRIED, where)
        for number, thing in enumerate(self.things):
            if thing.contains is not None and where[number] != GONE:
                self._place(thing.contains, INSIDE - number, where)
        col, row = level.agent_pos
        states = [(thing.is_open, thing.is_locked) if thing.type == "door" else () for thing in self.things]
        return (int(col), int(row), int(level.agent_dir)), tuple(zip(where, states, strict=True))

    def write(self, state: Key) -> None:
        """Put the level into a state."""
        (col, row, facing), things = state
        level, cells = self.real, self._fixed.copy()
        level.carrying = None
        for thing, (where, doors) in zip(self.things, things, strict=True):
            thing.contains = None
            if doors:
                thing.is_open, thing.is_locked = doors
            if where == CARRIED:
                level.carrying, thing.cur_pos = thing, (-1, -1)
            elif where >= 0:
                cells[where], thing.cur_pos = thing, (where % self.size[0], where // self.size[0])
        for thing, (where, _) in zip(self.things, things, strict=True):
            if where <= INSIDE:
                self.things[INSIDE - where].contains = thing
        level.grid.grid = cells
        level.agent_pos, level.agent_dir = (col, row), facing
        if hasattr(level, "instrs"):
            level.instrs.reset_verifier(level)

    def step(self, action: int) -> Any:
        """Take an action, as Gymnasium has it."""
        self.real.step_count = 0  # the reward of the goal falls with the steps, below 0 at last
        return self.real.step(action)

    def layout(self) -> list[str]:
        """Return the fixed cells row by row, in words, "" for free ones."""
        return ["" if thing is None else f"{thing.type} ({thing.color})" for thing in self._fixed]

    def _place(self, thing: Any, where: int, found: list[int]) -> None:
        if thing is None and where == CARRIED:
            return
        number = self._number.get(id(thing))
        if number is None:
            raise ValueError(
                f"a level must change nothing but its own keys, balls, boxes and doors, got {thing!r:.80} at {where}"
            )
        found[number] = where


@environment_kind("minigrid")
class MiniGridLevel(StateCopy):
    """A level of MiniGrid or BabyAI as it is laid out for one seed, fully observed.

    Args:
        level: registered name, e.g. "MiniGrid-DoorKey-6x6-v0".
        seed: seed of its layout.
        form: how it is shown: "words", or "grid" for rows of symbols.

    Raises:
        ValueError: an unknown level or form.
        ImportError: MiniGrid is missing.
    """

    def __init__(self, level: str, seed: int = 1, form: str = "words") -> None:
        if form not in ("words", "grid"):
            raise ValueError(f"form must be words or grid, got {form!r}")
        self._level, self._seed, self._form = level, seed, form
        self._simulator: _Simulator = self._real
        real = self._simulator.real
        real.gen_obs = dict  # pictures take most of the time of a step, and nobody looks at them here
        self.actions = tuple(action.name.replace("pickup", "pick up") for action in real.actions)
        self._first, self._mission = self._simulator.read(), str(real.mission)

    def make(self) -> _Simulator:
        """Return the level at the beginning of an episode; the layout is always the same."""
        return _Simulator(self._level, self._seed)

    def read(self, real: _Simulator) -> Key:
        """Return the key of the state."""
        return real.read()

    def write(self, real: _Simulator, state: Key) -> None:
        """Put the level into a state."""
        real.write(state)

    def goals(self) -> dict[str, Any]:
        """Return what else can be pursued: to hold each thing that can be picked up, to have each door open."""
        found: dict[str, Any] = {}
        for number, thing in enumerate(self._simulator.things):
            name = f"{thing.color} {thing.type} {'open' if thing.type == 'door' else 'held'}"
            found.setdefault(name, partial(self._opened if thing.type == "door" else self._held, number))
        return found

    def _held(self, number: int, state: Key) -> bool:
        return not self.done(state) and bool(state[1][number][0] == CARRIED)

    def _opened(self, number: int, state: Key) -> bool:
        return not self.done(state) and bool(state[1][number][1][0])

    def heuristic(self, state: Key) -> float:
        """Return the cells to the goal, or without a goal cell to the nearest thing, walls and turns overlooked."""
        if self.done(state):
            return 0.0 if self.goal(state) else float("inf")
        (col, row, _), things = state
        width = self._simulator.size[0]
        goals = [at for at, words in enumerate(self._simulator.layout()) if words.startswith("goal")]
        cells = goals or [where for where, _ in things if where >= 0]
        return float(min((abs(at % width - col) + abs(at // width - row) for at in cells), default=0))

    def words(self, state: Key) -> str:
        """Return the mission and the whole level, in words or as a grid."""
        (col, row, facing), things = state
        width = self._simulator.size[0]
        cells = {at: words for at, words in enumerate(self._simulator.layout()) if words}
        carried = "nothing"
        for thing, (where, doors) in zip(self._simulator.things, things, strict=True):
            if where >= 0:
                cells[where] = _named(thing, doors)
            elif where == CARRIED:
                carried = f"a {thing.color} {thing.type}"
        lines = [
            f"Your mission: {self._mission}.",
            f"You stand at row {row}, column {col}, counted from 0 at the top left, and look {_FACING[facing]}. You "
            f"carry {carried}.",
            "Forward goes where you look; pick up, drop and toggle act on the cell in front of you.",
        ]
        if self._form == "grid":
            return "\n".join([*lines, *_rows(cells, self._simulator.size, col + row * width, facing)])
        placed = [
            f"a {words} at row {at // width}, column {at % width}"
            for at, words in sorted(cells.items())
            if not words.startswith("wall")
        ]
        walls = [f"({at // width},{at % width})" for at, words in sorted(cells.items()) if words.startswith("wall")]
        lines.append(f"There is {'; '.join(placed)}." if placed else "There is nothing else.")
        return "\n".join([*lines, f"Walls stand at (row,column) {' '.join(walls)}."])

    def describe(self) -> dict[str, Any]:
        """Return level, seed, form and layout: another version of MiniGrid may lay it out otherwise."""
        layout = {"first": repr(self._first), "fixed": self._simulator.layout(), "mission": self._mission}
        return {
            "level": self._level,
            "seed": self._seed,
            "form": self._form,
            "layout": content_id("layout", layout),
        }


def _named(thing: Any, doors: tuple[bool, ...]) -> str:
    """Return a thing in words, type first."""
    if not doors:
        return f"{thing.type} ({thing.color})"
    return f"door ({thing.color}, {'open' if doors[0] else 'locked' if doors[1] else 'closed'})"


_SYMBOLS = {"wall": "W", "goal": "G", "lava": "L", "floor": ".", "key": "K", "ball": "B", "box": "X"}


def _rows(cells: dict[int, str], size: tuple[int, int], agent: int, facing: int) -> list[str]:
    """Return the legend, the level as rows of symbols, and the colours of what has one."""
    width, height = size
    symbols = ["."] * (width * height)
    notes = []
    for at, words in sorted(cells.items()):
        kind = words.split()[0]
        if kind == "door":
            symbols[at] = "O" if "open" in words else "D"
        else:
            symbols[at] = _SYMBOLS.get(kind, "?")
        if kind in (*_MOVABLE, "?"):
            notes.append(f"{words} at row {at // width}, column {at % width}")
    symbols[agent] = _ARROWS[facing]
    legend = (
        "W wall, . free, G goal, L lava, K key, B ball, X box, D closed or locked door, O open door, > v < ^ you and "
        "where you look"
    )
    rows = [" ".join(symbols[line * width : (line + 1) * width]) for line in range(height)]
    return [legend, *rows, *([f"Things: {'; '.join(notes)}."] if notes else [])]
