"""MiniGrid and BabyAI levels as environments, with states that can be read and written, and bounds for search."""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_choice
from goalscope._ground.extras import lacking
from goalscope._ground.ids import content_id
from goalscope.agents.policies import indicators, tokens
from goalscope.integrations.gymnasium.stepped import ScriptedChance
from goalscope.integrations.gymnasium.toy_text import copied, is_level, make
from goalscope.worlds.environments.environment import Environment, Observed, StateCopy, StatePlayer, environment_kind

# Memory of BabyAI's instruction verifiers, which is part of the state of a level.
#
# A verifier remembers which of two instructions are done, what the agent carried in the previous step, and where the
# objects of its instruction lay at the last drop. Which objects an instruction refers to is fixed at the beginning
# of an episode.

Memory = tuple[Any, ...]
_NOTHING = -1


class VerifierMemory:
    """Reads and writes what the verifiers of a BabyAI level remember, so that the level's state can be stored and
    restored.

    A verifier is an object by which BabyAI checks whether a part of the mission is done.

    Args:
        level: a level of BabyAI at the beginning of an episode.
        movable: its movable objects.
    """

    def __init__(self, level: Any, movable: Sequence[Any]) -> None:
        nodes = list(_nodes(level.instrs))
        self._movable = movable
        self._number: Mapping[int, int] = {id(item): number for number, item in enumerate(movable)}
        self._sequences = [node for node in nodes if hasattr(node, "a_done")]
        self._carriers = [node for node in nodes if hasattr(node, "preCarrying")]
        names = {"GoToInstr": "desc", "PutNextInstr": "desc_fixed"}  # verifiers that depend on object positions
        self._described = [getattr(node, names[type(node).__name__]) for node in nodes if type(node).__name__ in names]

    def read(self) -> Memory:
        """Return what the verifiers (the objects that check the mission) remember, as a hashable value that `write`
        takes.
        """
        return (
            tuple((node.a_done == "success", node.b_done == "success") for node in self._sequences),
            tuple(
                _NOTHING if node.preCarrying is None else self._number[id(node.preCarrying)] for node in self._carriers
            ),
            tuple(tuple((int(col), int(row)) for col, row in described.obj_poss) for described in self._described),
        )

    def write(self, memory: Memory) -> None:
        """Set what the verifiers (the objects that check the mission) remember to a value that `read` returned."""
        sequences, carried, positions = memory
        for node, (first, second) in zip(self._sequences, sequences, strict=True):
            node.a_done, node.b_done = "success" if first else False, "success" if second else False
        for node, number in zip(self._carriers, carried, strict=True):
            node.preCarrying = None if number == _NOTHING else self._movable[number]
        for described, places in zip(self._described, positions, strict=True):
            described.obj_poss = list(places)


def _nodes(instruction: Any) -> Iterator[Any]:
    """Yield an instruction and all instructions nested in it."""
    yield instruction
    for part in ("instr_a", "instr_b"):
        if hasattr(instruction, part):
            yield from _nodes(getattr(instruction, part))


# Simulator of a MiniGrid or BabyAI level that sets a state, takes one step and reads the next state.
#
# The key of a state contains everything that a step can change except the step count: the position and direction of
# the agent, the position of each movable object, whether doors are open, and the memory of BabyAI's instruction
# verifiers.

CARRIED, GONE, INSIDE = -1, -2, -10
"""Positions of objects that are in no cell; an object inside object n has ``INSIDE - n``."""

Key = tuple[Any, ...]
MOVABLE = ("key", "ball", "box", "door")
"""Types of the objects that a state says the position of."""

_MOST_PLACED: Final = 5_000  # states of a level whose obstacles move at random; each has many outcomes


class LevelSimulator:
    """A MiniGrid or BabyAI level whose state can be read and set, to explore which state each action leads to.

    Levels keep references to particular objects, such as the door to open or the ball to fetch. Writing a state
    therefore moves the original objects and never creates new ones.

    Args:
        real: the level at the beginning of an episode.
    """

    def __init__(self, real: Any) -> None:
        self.real = real
        self.size = self.real.grid.width, self.real.grid.height
        self._fixed = [None if item is None or item.type in MOVABLE else item for item in self.real.grid.grid]
        self.movable: list[Any] = []
        for item in self.real.grid.grid:
            while item is not None and item.type in MOVABLE:
                self.movable.append(item)
                item = item.contains
        self._number = {id(item): number for number, item in enumerate(self.movable)}
        self._memory = VerifierMemory(real, self.movable) if hasattr(real, "instrs") else None

    def read(self) -> Key:
        """Return the state of the level as a hashable value (its key), which `write` takes.

        The key contains the agent, the position of each object, whether each door is open and locked, and the memory of
        the verifiers (which check the mission).

        Raises:
            ValueError: something changed that is not part of the state.
        """
        level = self.real
        positions = [GONE] * len(self.movable)
        for index, (item, fixed) in enumerate(zip(level.grid.grid, self._fixed, strict=True)):
            if item is not fixed:
                self._record_position(item, index, positions)
        self._record_position(level.carrying, CARRIED, positions)
        for number, item in enumerate(self.movable):
            if item.contains is not None and positions[number] != GONE:
                self._record_position(item.contains, INSIDE - number, positions)
        col, row = level.agent_pos
        states = [(item.is_open, item.is_locked) if item.type == "door" else () for item in self.movable]
        memory = () if self._memory is None else (self._memory.read(),)
        return (int(col), int(row), int(level.agent_dir)), tuple(zip(positions, states, strict=True)), *memory

    def write(self, state: Key) -> None:
        """Set the level to a state that `read` returned."""
        (col, row, facing), movable, *memory = state
        level, cells = self.real, self._fixed.copy()
        level.carrying = None
        for item, (position, door_state) in zip(self.movable, movable, strict=True):
            item.contains = None
            if door_state:
                item.is_open, item.is_locked = door_state
            if position == CARRIED:
                level.carrying, item.cur_pos = item, (-1, -1)
            elif position >= 0:
                cells[position], item.cur_pos = item, (position % self.size[0], position // self.size[0])
        for item, (position, _) in zip(self.movable, movable, strict=True):
            if position <= INSIDE:
                self.movable[INSIDE - position].contains = item
        level.grid.grid = cells
        level.agent_pos, level.agent_dir = (col, row), facing
        if self._memory is not None:
            self._memory.write(memory[0])

    def step(self, action: int) -> Any:
        """Take an action in the level, and return what Gymnasium's `step` returns."""
        self.real.step_count = 0  # MiniGrid's reward decreases with the step count and would drop below 0
        return self.real.step(action)

    def layout(self) -> list[str]:
        """Describe the cells whose content never changes, row by row in words such as "wall (grey)"; "" for all other
        cells.
        """
        return ["" if item is None else f"{item.type} ({item.color})" for item in self._fixed]

    def _record_position(self, item: Any, position: int, positions: list[int]) -> None:
        if item is None and position == CARRIED:
            return
        number = self._number.get(id(item))
        if number is None:
            raise ValueError(
                f"a step changed {item!r:.80} at {position}, which is not part of the state: only keys, "
                "balls, boxes and doors of the initial level may change"
            )
        positions[number] = position


class Placements(ScriptedChance):
    """Tries every possible random placement of objects in a level, to compute the probabilities of the outcomes.

    MiniGrid places an object by drawing cells of a rectangle until one is free. This object takes the place of that
    method; the outcome of a placement is the number of the free cell, counted from 0 column by column, and the number
    of free cells stands for no free cell being drawn.

    Args:
        level: the level, whose method `place_obj` is replaced.
    """

    def __init__(self, level: Any) -> None:
        super().__init__()
        self._level = level
        level.place_obj = self.place

    def place(
        self, item: Any, top: Any = (0, 0), size: Any = None, reject_fn: Any = None, max_tries: float = math.inf
    ) -> tuple[int, int]:
        """Place an object in the free cell that the script says, and return the cell (column, row).

        It has the arguments of MiniGrid's method `place_obj`, which it replaces.

        Raises:
            RecursionError: the script says that no drawn cell was free.
        """
        grid, (left, upper) = self._level.grid, (max(int(part), 0) for part in top or (0, 0))
        wide, high = size or (grid.width, grid.height)
        columns, rows = range(left, min(left + wide, grid.width)), range(upper, min(upper + high, grid.height))
        cells = [(col, row) for col in columns for row in rows]
        agent = tuple(int(part) for part in self._level.agent_pos)
        free = [cell for cell in cells if grid.get(*cell) is None and cell != agent]
        free = [cell for cell in free if reject_fn is None or not reject_fn(self._level, cell)]
        missed = (1 - len(free) / len(cells)) ** (max_tries + 1)  # the chance that no drawn cell is free
        choice = self.decide([*([(1 - missed) / len(free)] * len(free) if free else []), missed])
        if choice == len(free):
            raise RecursionError("no drawn cell was free")
        cell = free[choice]
        grid.set(*cell, item)
        item.init_pos = item.cur_pos = cell
        return cell


# Lower bounds on the steps to the goal of a MiniGrid or BabyAI level, used by A* search.
#
# The bound is the distance in an easier version of the level. There, movable objects block nothing, a closed door
# costs one extra step, and a locked door requires a key of its colour. The bound adds up the distances between the
# places that the mission requires, in their order. It may be too low, which makes the search slower, but it never
# exceeds the true distance (tested on whole levels).
#
# Source: Pearl (1984), Heuristics, section 4.1 (relaxed models give admissible heuristics).

# (column, row) offset of each direction, as MiniGrid numbers directions
_STEPS: Final = ((1, 0), (0, 1), (-1, 0), (0, -1))


class LevelBound:
    """Computes a lower bound of the number of steps to the goal of a level, for A* search.

    Call it with a state, as `LevelSimulator.read` returns it.

    Args:
        level: the level at the beginning of an episode.
    """

    def __init__(self, level: LevelSimulator) -> None:
        self._level, self._width = level, level.size[0]
        words = level.layout()
        self._free = [not word or word.startswith(("goal", "floor")) for word in words]
        self._goals = [cell for cell, word in enumerate(words) if word.startswith("goal")]
        self._doors = [number for number, item in enumerate(level.movable) if item.type == "door"]
        self._ways: dict[Any, list[float]] = {}

    def __call__(self, key: tuple[Any, ...]) -> float:
        """Return a lower bound on the number of steps to the goal; infinite if the goal cannot be reached."""
        return max(1.0, _Moment(self, key).mission())

    def ways(self, cell: int, closed: frozenset[int], walled: frozenset[int]) -> list[float]:
        """Return the number of steps that the agent needs until it faces a cell, from each of its poses (cell and
        direction).

        The pose has the index 4 * cell + direction in the returned list. The number is infinite where no way leads
        there.

        Args:
            cell: index of the cell to face.
            closed: cells with a closed door, which takes one step to open.
            walled: cells that cannot be entered.
        """
        name = cell, closed, walled
        if name not in self._ways:
            self._ways[name] = self._search(cell, closed, walled)
        return self._ways[name]

    def _search(self, target: int, closed: frozenset[int], walled: frozenset[int]) -> list[float]:
        free, width, cells = self._free, self._width, len(self._free)
        ends = [math.inf] * (4 * cells)
        # Steps cost 1 or 2, so poses are expanded in order of their number of steps.
        rounds: list[list[int]] = [[], [], []]
        for stand, facing in self.around(target):
            if stand not in walled:
                ends[4 * stand + facing] = 0.0
                rounds[0].append(4 * stand + facing)
        steps, empty = 0.0, 0
        while empty < 3:
            empty = 0 if rounds[0] else empty + 1
            for pose in rounds[0]:
                if ends[pose] < steps:
                    continue
                cell, facing = divmod(pose, 4)
                further = 1 + (cell in closed)  # a forward step into this cell
                for turn in (1, 3):
                    turned = 4 * cell + (facing + turn) % 4
                    if steps + 1 < ends[turned]:
                        ends[turned] = steps + 1
                        rounds[1].append(turned)
                col, row = _STEPS[facing]
                before = cell - col - row * width
                if 0 <= before < cells and free[before] and before not in walled:
                    moved = 4 * before + facing
                    if steps + further < ends[moved]:
                        ends[moved] = steps + further
                        rounds[further].append(moved)
            rounds, steps = [*rounds[1:], []], steps + 1
        return ends

    def around(self, cell: int) -> Iterator[tuple[int, int]]:
        """Yield the poses (cell, direction) in which the agent faces a cell, given by its index."""
        for facing, (col, row) in enumerate(_STEPS):
            stand = cell - col - row * self._width
            if 0 <= stand < len(self._free) and self._free[stand]:
                yield stand, facing


class _Moment:
    """Lower bounds in one state."""

    def __init__(self, bound: LevelBound, key: tuple[Any, ...]) -> None:
        (col, row, facing), self.things = key[0], key[1]
        self.bound, self.items, self.real = bound, bound._level.movable, bound._level.real
        self.pose: int = 4 * (col + row * bound._width) + facing
        self.memory = key[2] if len(key) > 2 else ((), (), ())
        self.carried = next((number for number, (place, _) in enumerate(self.things) if place == CARRIED), None)
        doors = [(number, self.things[number][1]) for number in bound._doors]
        self.closed = frozenset(self.things[number][0] for number, (is_open, _) in doors if not is_open)
        self.locked = {number: self.things[number][0] for number, (is_open, lock) in doors if lock and not is_open}

    def mission(self) -> float:
        """Bound the steps until the mission is complete."""
        if hasattr(self.real, "instrs"):
            # The same order as in `VerifierMemory.read`.
            self._done, self._where = iter(self.memory[0]), iter(self.memory[2])
            return self.instruction(self.real.instrs)
        if self.bound._goals:
            return min(self.way(cell) + 1 for cell in self.bound._goals)
        mission, kind = str(self.real.mission), type(self.real).__name__
        if hasattr(self.real, "obj") and mission.startswith("pick up"):
            return self.pick_up([self.real.obj])
        if kind == "UnlockEnv":
            return self.opened(self.number(self.real.door))
        return 1.0

    def instruction(self, node: Any) -> float:
        """Bound the steps until a BabyAI instruction is complete."""
        kind = type(node).__name__
        if hasattr(node, "a_done"):
            done = next(self._done)
            parts = [self.instruction(node.instr_a), self.instruction(node.instr_b)]
            left = [part for part, finished in zip(parts, done, strict=True) if not finished]
            return max(left, default=0.0)
        if kind == "GoToInstr":
            # The object has no position because it was carried at the last drop, so it has to be put down first.
            return min((self.way(self.at(place)) for place in next(self._where)), default=1.0)
        if kind == "OpenInstr":
            return min(self.opened(self.number(door)) for door in node.desc.obj_set)
        if kind == "PickupInstr":
            return self.pick_up(node.desc.obj_set)
        if kind == "PutNextInstr":
            return self.put_next(node.desc_move.obj_set, node.desc_fixed.obj_set, list(map(self.at, next(self._where))))
        return 0.0

    def pick_up(self, objects: Iterable[Any]) -> float:
        """Bound the steps until any of the objects has been picked up."""
        return min(map(self._picked, map(self.number, objects)), default=math.inf)

    def _picked(self, number: int) -> float:
        place = self.things[number][0]
        if place == CARRIED:
            return 1.0
        if place >= 0:
            return self.way(place, free=True) + 1
        if place <= INSIDE:  # the box that contains it has to be opened first
            box = self.things[INSIDE - place][0]
            return self.way(box) + 2 if box >= 0 else 3.0
        return math.inf

    def put_next(self, objects: Iterable[Any], others: Iterable[Any], beside: Sequence[int]) -> float:
        """Bound the steps until one of ``objects`` lies next to one of ``others``, i.e. in a cell of ``beside``."""
        least, width = math.inf, self.bound._width
        is_carried = any(self.things[self.number(item)][0] == CARRIED for item in others)
        for number in map(self.number, objects):
            place = self.things[number][0]
            if place < 0 and place != CARRIED:
                least = min(least, self._picked(number) + 1)
                continue
            if (
                is_carried or not beside
            ):  # the other object is put down anywhere; then this object is fetched and put next to it
                least = min(least, (self.way(place, free=True) if place >= 0 else 0.0) + 2)
            for other in beside:
                drops = [other + 1, other - 1, other + width, other - width]
                if place == CARRIED:
                    # Alternatively the other object is first picked up and put down closer.
                    least = min(least, *(self.way(cell) + 1 for cell in drops), self.way(other) + 4)
                    continue
                carried = min(self.least(place, cell, frozenset()) for cell in drops)
                fetched = self.way(place, free=True) + 1
                least = min(least, fetched + carried + 1, max(self.way(other), self.way(place)) + 4)
        return least

    def way(self, cell: int, *, free: bool = False) -> float:
        """Bound the steps until the agent faces a cell; with ``free``, its hands must also be empty."""
        hands = float(free and self.carried is not None)
        walled = frozenset(self.locked.values())
        past = self.bound.ways(cell, self.closed, walled - {cell})[self.pose] + hands
        if not walled:
            return past
        return min([past, *(self._through(number, cell, free) for number in self.locked)])

    def opened(self, number: int) -> float:
        """Bound the steps until a door has been opened."""
        return (self._with_key(number) if number in self.locked else self.way(self.cell(number))) + 1

    def _through(self, door: int, cell: int, free: bool) -> float:
        """Bound the steps of a path through a locked door: first to the key, then to the door, then to the cell."""
        place = int(self.locked[door])
        return self._with_key(door) + 1 + self.least(place, cell, frozenset({place})) + float(free)

    def _with_key(self, door: int) -> float:
        """Bound the steps until the agent faces a locked door and carries the matching key."""
        place, colour = int(self.locked[door]), str(self.items[door].color)
        if self.carried is not None and self._opens(self.carried, colour):
            return self.bound.ways(place, self.closed, frozenset())[self.pose]
        least = math.inf
        for number in range(len(self.items)):
            if not self._opens(number, colour):
                continue
            lies = self.things[number][0]
            container = self.things[INSIDE - lies][0] if lies <= INSIDE else lies
            if container < 0:
                least = min(least, 1.0 if container == CARRIED else math.inf)
                continue
            fetched = self.bound.ways(container, self.closed, frozenset())[self.pose]
            fetched += 1 + (lies <= INSIDE) + (self.carried is not None)
            least = min(least, fetched + self.least(container, place, frozenset()))
        return least

    def _opens(self, number: int, colour: str) -> bool:
        return bool(self.items[number].type == "key" and self.items[number].color == colour)

    def least(self, source: int, target: int, opened: frozenset[int]) -> float:
        """Return the smallest number of steps from facing one cell to facing another."""
        ways = self.bound.ways(target, self.closed - opened, frozenset())
        return min((ways[4 * stand + facing] for stand, facing in self.bound.around(source)), default=math.inf)

    def number(self, item: Any) -> int:
        """Return the index of an object."""
        return next(number for number, candidate in enumerate(self.items) if candidate is item)

    def cell(self, number: int) -> int:
        """Return the cell in which an object lies."""
        return int(self.things[number][0])

    def at(self, place: tuple[int, int]) -> int:
        """Return the index of the cell at a column and row."""
        return int(place[0] + place[1] * self.bound._width)


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
    """A fully observed MiniGrid or BabyAI level with the layout of one seed, as an environment with known states.

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

    @classmethod
    def of_class(cls, factory: Any, parameters: Mapping[str, Any]) -> Environment[Any] | None:
        """Return a level made by a class of the user's with some arguments, with the layout of seed 1; None for a class
        that makes no levels.
        """
        if not is_level(factory):
            return None
        real = factory(**parameters)
        real.reset(seed=1)
        return LevelAsItIs(real)

    def _begin(self) -> None:
        self._simulator: LevelSimulator = self._real
        real = self._simulator.real
        real.gen_obs = dict  # rendering takes most of the time of a step, and its pictures are not used here
        names = [action.name.replace("pickup", "pick up") for action in real.actions]
        self.actions = tuple(names[: int(real.action_space.n)])
        self._first, self._mission = self._simulator.read(), str(real.mission)
        self._placements = Placements(real)
        self._refuse_chance()

    def _refuse_chance(self) -> None:
        """Raise an error if a step draws random numbers, unless it only places objects, in few enough ways."""
        simulator = self._simulator
        numbers, free = simulator.real.np_random.bit_generator, [word == "" for word in simulator.layout()]
        before, states = numbers.state, 4 * sum(free) * math.perm(sum(free), len(simulator.movable))
        for action in range(len(self.actions)):
            self._placements.begin([])
            simulator.write(self._first)
            simulator.step(action)
            if numbers.state != before or (self._placements.made and states > _MOST_PLACED):
                raise ValueError(
                    f"{self._level} draws random numbers in a step. Nothing but obstacles may move at random, and only "
                    f"in levels of at most {_MOST_PLACED:,} states, got up to {states:,}: choose one without chance, "
                    "or a small one such as MiniGrid-Dynamic-Obstacles-5x5-v0"
                )
        simulator.write(self._first)

    def step(self, state: Key, action: int) -> dict[Hashable, float]:
        """Return the probability of each state to which an action leads: a single state, unless obstacles move at
        random.
        """

        def play() -> Hashable:
            self.write(self._simulator, state)
            return self.act(self._simulator, action)

        return self._placements.outcomes(play)

    def observe(self, state: Key) -> Observed:
        """Return what an agent observes in a state: a text and an array, in the configured forms."""
        observation = super().observe(state)
        if self._array == "none" or self.done(state):
            return observation
        self._simulator.write(state)
        return Observed(text=observation.text, array=_array(self._simulator.real, self._array))

    def play(self, seed: int) -> StatePlayer:
        """Begin an episode of the level that is played, not enumerated; its random numbers follow from ``seed``."""
        simulator = self.make()
        simulator.real.np_random = np.random.default_rng(seed)
        return StatePlayer(self, self.read(simulator), lambda action: self.act(simulator, action))

    def make(self) -> LevelSimulator:
        """Create the level as it is at the beginning of an episode, always with the same layout."""
        return LevelSimulator(_real(self._level, self._seed, self._modules))

    def read(self, real: LevelSimulator) -> Key:
        """Return the state of a level as a hashable value (its key)."""
        return real.read()

    def write(self, real: LevelSimulator, state: Key) -> None:
        """Set a level to a state, given as the key that `read` returns."""
        real.write(state)

    def goals(self) -> dict[str, Any]:
        """Return further goals of the level by name: to hold each object that can be held, and to have each door open.

        Each is a function that tells whether a state fulfils the goal.
        """
        goals: dict[str, Any] = {}
        for number, item in enumerate(self._simulator.movable):
            if item.type != "door" and "pick up" not in self.actions:
                continue  # obstacles
            name = f"{item.color} {item.type} {'open' if item.type == 'door' else 'held'}"
            goals.setdefault(name, partial(self._opened if item.type == "door" else self._held, number))
        return goals

    def _held(self, number: int, state: Key) -> bool:
        return not self.done(state) and bool(state[1][number][0] == CARRIED)

    def _opened(self, number: int, state: Key) -> bool:
        return not self.done(state) and bool(state[1][number][1][0])

    def lower_bound(self, state: Key) -> float:
        """Return a lower bound of the number of steps from a state to the goal, for A* search."""
        return self._bound(state)

    @cached_property
    def _bound(self) -> LevelBound:
        return LevelBound(self.make())

    def heuristic(self, state: Key) -> float:
        """Return the Manhattan distance from the agent to the goal cell, or to the nearest object if there is no goal
        cell.

        At the end of an episode it is 0 if the goal was reached, otherwise infinite.
        """
        if self.done(state):
            return 0.0 if self.goal(state) else float("inf")
        (col, row, _), movable = state[:2]
        width = self._simulator.size[0]
        goals = [index for index, words in enumerate(self._simulator.layout()) if words.startswith("goal")]
        cells = goals or [position for position, _ in movable if position >= 0]
        return float(min((abs(index % width - col) + abs(index // width - row) for index in cells), default=0))

    def words(self, state: Key) -> str:
        """Describe the mission and the whole level in a state, for a prompt: in words or as a grid of symbols."""
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
        """Return what identifies the level: its name, seed, form and layout.

        The layout is included because MiniGrid versions may differ in it.
        """
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
    """The MiniGrid or BabyAI level of an existing environment, as it is at the beginning of an episode.

    Args:
        real: the environment, which is copied and not changed.
    """

    def __init__(self, real: Any) -> None:
        self._pristine, self._form, self._array, self._seed = copied(real), "words", "none", -1
        self._level = real.spec.id if real.spec is not None else type(real).__name__
        self._begin()

    def make(self) -> LevelSimulator:
        """Copy the level as it is at the beginning of the episode, without rendering."""
        real = copied(self._pristine)
        real.gen_obs = dict
        return LevelSimulator(real)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the level: its name, its layout and the kinds of its objects; the seed is unknown
        (None).
        """
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
