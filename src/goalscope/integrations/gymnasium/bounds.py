"""Lower bounds on the steps to the goal of a MiniGrid or BabyAI level, used by A* search.

The bound is the distance in an easier version of the level. There, movable objects block nothing, a closed door costs
one extra step, and a locked door requires a key of its colour. The bound adds up the distances between the places that
the mission requires, in their order. It may be too low, which makes the search slower, but it never exceeds the true
distance (tested on whole levels).

Source: Pearl (1984), Heuristics, section 4.1 (relaxed models give admissible heuristics).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from goalscope.integrations.gymnasium.levels import CARRIED, INSIDE, LevelSimulator

# (column, row) offset of each direction, as MiniGrid numbers directions
_STEPS: Final = ((1, 0), (0, 1), (-1, 0), (0, -1))


class LevelBound:
    """Lower bound for the states of one level. Call it with the key of a state.

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
        """Return the number of steps from each pose (index 4 cell + direction) until the agent faces a cell."""
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
        """Yield the poses from which the agent faces a cell."""
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
