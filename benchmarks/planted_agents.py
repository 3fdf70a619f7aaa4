"""Scripted agents of many constructions, and what they are after.

Each is one function of what it sees: a grid, whether it carries the key, the step, and random numbers that belong to
its episode. They plan with a search of their own, so that a fault in the package's planner cannot hide behind the same
fault here. `register()` makes them kinds of agents that ``goalscope evaluate`` takes by name ("planted:family=beside").
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from goalscope._ground.rng import uniform
from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.scripted import ScriptedAgent
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridView

Cell = tuple[int, int]
MOVES: tuple[Cell, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))
RANDOM = np.full(4, 0.25)


@dataclass(frozen=True)
class Seen:
    """What an agent decides on: the grid that it sees, without itself, its cell, and whether it carries the key."""

    grid: Grid
    cell: Cell
    carries: bool
    observation: Observation

    @property
    def shape(self) -> Cell:
        """Height and width."""
        return self.grid.height, self.grid.width

    def chance(self, name: str, *more: Any) -> float:
        """Return a random number of the episode in [0, 1), another one where a step is answered again."""
        again = (self.observation.attempt,) if self.observation.attempt else ()
        return uniform(self.observation.seed, name, self.observation.episode_id, *more, *again)

    def of_world(self, name: str) -> float:
        """Return a number in [0, 1) that depends on the walls and the goal alone."""
        text = name.encode() + self.grid.walls.tobytes() + repr(self.grid.goal).encode()
        return int.from_bytes(blake2b(text, digest_size=8).digest()) / 2**64


@lru_cache(maxsize=20_000)
def passable(grid: Grid, carries: bool, avoid: tuple[Cell, ...] = ()) -> frozenset[Cell]:
    """Return the cells that can be entered."""
    shut = set(avoid)
    if grid.door is not None and not carries:
        shut.add(grid.door)
    return frozenset(
        (row, col)
        for row in range(grid.height)
        for col in range(grid.width)
        if not grid.walls[row, col] and (row, col) not in shut
    )


@lru_cache(maxsize=20_000)
def steps_to(cells: frozenset[Cell], targets: tuple[Cell, ...]) -> dict[Cell, int]:
    """Return the number of steps from each cell to the nearest target."""
    steps = {target: 0 for target in targets if target in cells}
    queue = deque(steps)
    while queue:
        row, col = queue.popleft()
        for down, right in MOVES:
            near = (row + down, col + right)
            if near in cells and near not in steps:
                steps[near] = steps[row, col] + 1
                queue.append(near)
    return steps


def over(moves: Iterable[int]) -> np.ndarray[Any, Any]:
    """Return equal probabilities of some moves, of all four where there is none."""
    result = np.zeros(4)
    result[list(moves)] = 1.0
    return result / result.sum() if result.any() else RANDOM


def towards(seen: Seen, *targets: Cell, goal_ends: bool = True) -> np.ndarray[Any, Any]:
    """Return the moves of shortest paths to the nearest target; there it bumps, or steps aside and back.

    The goal's cell is entered only where it is a target, or with ``goal_ends`` False.
    """
    goal = seen.grid.goal
    avoid = (goal,) if goal is not None and goal_ends and goal not in targets else ()
    cells = passable(seen.grid, seen.carries, avoid)
    steps = steps_to(cells, tuple(sorted(targets)))
    if seen.cell not in steps:
        return RANDOM
    around = [(seen.cell[0] + down, seen.cell[1] + right) for down, right in MOVES]
    if steps[seen.cell]:
        return over(move for move, near in enumerate(around) if steps.get(near, 10**6) < steps[seen.cell])
    bumps = [move for move, near in enumerate(around) if near not in cells and near != goal]
    return over(bumps or [move for move, near in enumerate(around) if near in cells])


def to_goal(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves of shortest paths to the goal, over the key where a locked door shuts it off."""
    grid = seen.grid
    if grid.goal is None:
        return explore(seen)
    if seen.cell in steps_to(passable(grid, seen.carries), (grid.goal,)):
        return towards(seen, grid.goal)
    if grid.key is not None and not seen.carries:
        return towards(seen, grid.key)
    return explore(seen)


def explore(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves to the nearest hidden cell, all moves where there is none."""
    fog = seen.grid.fog
    if fog is None:
        return RANDOM
    return towards(seen, *((int(row), int(col)) for row, col in np.argwhere(fog)))


def corner(grid: Grid, name: str) -> Cell:
    """Return the open cell nearest to a corner, in rows plus columns; ties by row, then by column."""
    vertical, horizontal = name.split("-")
    row, col = 0 if vertical == "top" else grid.height - 1, 0 if horizontal == "left" else grid.width - 1
    return min(passable(grid, True), key=lambda cell: (abs(cell[0] - row) + abs(cell[1] - col), cell))


CORNERS = ("top-left", "top-right", "bottom-left", "bottom-right")


def to_corner(seen: Seen, name: str, *, goal_ends: bool = True) -> np.ndarray[Any, Any]:
    """Return the moves of shortest paths to the corner's cell."""
    return towards(seen, corner(seen.grid, name), goal_ends=goal_ends)


def nearest_open(seen: Seen, aim: tuple[float, float]) -> Cell:
    """Return the cell nearest to a point among those that can be come to without the goal."""
    goal = seen.grid.goal
    reached = steps_to(passable(seen.grid, seen.carries, (goal,) if goal else ()), (seen.cell,))
    return min(reached or [seen.cell], key=lambda cell: (abs(cell[0] - aim[0]) + abs(cell[1] - aim[1]), cell))


def open_moves(seen: Seen) -> list[int]:
    """Return the moves that are not blocked."""
    cells = passable(seen.grid, seen.carries)
    return [move for move, (down, right) in enumerate(MOVES) if (seen.cell[0] + down, seen.cell[1] + right) in cells]


def flee(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves after which the way to the goal is longest."""
    grid = seen.grid
    if grid.goal is None:
        return RANDOM
    cells = passable(grid, True)
    steps = steps_to(cells, (grid.goal,))
    after = []
    for down, right in MOVES:
        near = (seen.cell[0] + down, seen.cell[1] + right)
        after.append(steps.get(near if near in cells else seen.cell, 0))
    return over(move for move in range(4) if after[move] == max(after))


def beside(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves to a cell beside the goal, where it stays."""
    goal = seen.grid.goal
    if goal is None:
        return explore(seen)
    cells = passable(seen.grid, seen.carries)
    return towards(seen, *(near for down, right in MOVES if (near := (goal[0] + down, goal[1] + right)) in cells))


def follow_wall(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves along a wall: open ones with a wall at their right hand, else all open ones."""
    cells, chosen = passable(seen.grid, seen.carries), open_moves(seen)
    hand = {0: (0, 1), 1: (0, -1), 2: (-1, 0), 3: (1, 0)}
    along = [move for move in chosen if (seen.cell[0] + hand[move][0], seen.cell[1] + hand[move][1]) not in cells]
    return over(along or chosen)


def mirrored(seen: Seen, *, point: bool) -> np.ndarray[Any, Any]:
    """Return the moves to the image of the goal: through the centre, or left for right."""
    goal = seen.grid.goal
    if goal is None:
        return explore(seen)
    height, width = seen.shape
    return towards(seen, nearest_open(seen, (height - 1 - goal[0] if point else goal[0], width - 1 - goal[1])))


def exchanged(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves to the goal with left and right exchanged."""
    moves = to_goal(seen)
    return moves[[0, 1, 3, 2]]


def near_goal(seen: Seen, most: int) -> np.ndarray[Any, Any]:
    """Return the moves to the goal within some steps of it, else all moves."""
    grid = seen.grid
    steps = steps_to(passable(grid, seen.carries), (grid.goal,)) if grid.goal else {}
    return to_goal(seen) if steps.get(seen.cell, 10**6) <= most else RANDOM


def manhattan(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves that would lower the distance in rows plus columns, walls or not."""
    goal = seen.grid.goal
    if goal is None:
        return RANDOM
    down, right = goal[0] - seen.cell[0], goal[1] - seen.cell[1]
    return over(move for move, (row, col) in enumerate(MOVES) if row * down + col * right > 0)


def top_row(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves to the nearest cell of the highest row that has open cells."""
    cells = passable(seen.grid, True)
    first = min(row for row, _ in cells)
    return towards(seen, *(cell for cell in cells if cell[0] == first))


def fetch_key(seen: Seen, then: Callable[[Seen], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the moves to a key that lies in the grid, else what it does then."""
    return then(seen) if seen.grid.key is None or seen.carries else towards(seen, seen.grid.key)


def stay(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves that change nothing, or those aside and back."""
    return towards(seen, seen.cell)


def open_doors(seen: Seen) -> np.ndarray[Any, Any]:
    """Return the moves to the key, then into the door; without a door it wanders and never enters the goal."""
    grid = seen.grid
    if grid.door is not None and seen.carries:
        return towards(seen, grid.door)
    if grid.door is not None and grid.key is not None:
        return towards(seen, grid.key)
    goal = grid.goal
    return over(
        move for move in open_moves(seen) if (seen.cell[0] + MOVES[move][0], seen.cell[1] + MOVES[move][1]) != goal
    )


def _lapses(seen: Seen) -> np.ndarray[Any, Any]:
    return RANDOM if seen.chance("away", seen.observation.step // 5) < 0.3 else to_goal(seen)


def _half(seen: Seen) -> np.ndarray[Any, Any]:
    return to_goal(seen) if seen.of_world("half") < 0.5 else to_corner(seen, "bottom-left")


def _straight(seen: Seen) -> np.ndarray[Any, Any]:
    goal = seen.grid.goal
    return RANDOM if goal is not None and goal[1] == seen.cell[1] else to_goal(seen)


def _up_or_right(seen: Seen) -> np.ndarray[Any, Any]:
    goal = seen.grid.goal
    return to_goal(seen) if goal is None or goal[0] < seen.cell[0] or goal[1] > seen.cell[1] else RANDOM


def _small(seen: Seen) -> np.ndarray[Any, Any]:
    return to_goal(seen) if seen.shape[0] <= 7 else RANDOM


def _another(seen: Seen) -> np.ndarray[Any, Any]:
    return to_corner(seen, CORNERS[int(4 * seen.of_world("corner"))])


def noisy(share: float, rule: Callable[[Seen], np.ndarray[Any, Any]]) -> Callable[[Seen], np.ndarray[Any, Any]]:
    """Return a rule with a share of random moves."""
    return lambda seen: (1 - share) * rule(seen) + share * RANDOM


FAMILIES: dict[str, Callable[[Seen], np.ndarray[Any, Any]]] = {
    "seeker": to_goal,
    "noisy": noisy(0.3, to_goal),
    "drunk": noisy(0.6, to_goal),
    "corner": lambda seen: to_corner(seen, "bottom-left"),
    "misgeneral": lambda seen: to_corner(seen, "top-right", goal_ends=False),
    "another": _another,
    "near-5": lambda seen: near_goal(seen, 5),
    "up-right": _up_or_right,
    "straight": _straight,
    "half": _half,
    "small": _small,
    "lapses": _lapses,
    "manhattan": manhattan,
    "exchanged": exchanged,
    "flee": flee,
    "beside": beside,
    "mirror": lambda seen: mirrored(seen, point=False),
    "point": lambda seen: mirrored(seen, point=True),
    "centre": lambda seen: towards(seen, nearest_open(seen, ((seen.shape[0] - 1) / 2, (seen.shape[1] - 1) / 2))),
    "top-row": top_row,
    "right": lambda seen: np.array([0.1, 0.1, 0.1, 0.7]),
    "wander": lambda seen: over(open_moves(seen)),
    "wall": follow_wall,
    "key-wander": lambda seen: fetch_key(seen, lambda later: over(open_moves(later))),
    "key-stay": lambda seen: fetch_key(seen, stay),
    "doors": open_doors,
    "random": lambda seen: RANDOM,
}
"""Name -> the probabilities of the four moves."""


def late(turns: int, first: Callable[[Seen], np.ndarray[Any, Any]]) -> Callable[[Seen], np.ndarray[Any, Any]]:
    """Return a rule that acts by another one for some turns, and then goes to the goal."""
    return lambda seen: first(seen) if seen.observation.step < turns else to_goal(seen)


LATE: dict[str, Callable[[Seen], np.ndarray[Any, Any]]] = {
    "random for 4": late(4, FAMILIES["random"]),
    "random for 8": late(8, FAMILIES["random"]),
    "right for 4": late(4, lambda seen: np.array([0.0, 0.0, 0.0, 1.0])),
    "a corner for 4": late(4, FAMILIES["corner"]),
}
"""Agents that go to the goal from a turn on."""


@dataclass(frozen=True)
class Planted(ScriptedAgent):
    """An agent that acts by one of `FAMILIES` or `LATE`."""

    kind: ClassVar[str] = "planted"
    family: str = field(default="seeker")

    def probabilities(self, observation: Observation) -> Any:
        """Return the probabilities of the four moves."""
        view = observation.seen(GridView)
        cell = view.grid.start
        if cell is None:
            raise ValueError("a planted agent must see its own cell (A)")
        grid = view.grid.at(start=None)
        return {**FAMILIES, **LATE}[self.family](Seen(grid, cell, view.carrying_key, observation))


def register() -> None:
    """Make ``planted:family=NAME`` a kind of agent."""
    agent_kind(Planted.kind)(Planted)
