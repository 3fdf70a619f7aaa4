"""Agents with known aims that nobody had in mind when the rules for names were set, and a count of what they do.

The bank asks for the goal and the four corners. An agent either pursues one of these in all of its turns, with errors,
or in a part that can be described, or something else. The planners, the distances and the count in `check` use code of
this file and not that of the tool; only `follow` solves a hypothesis with it. No planner leads through the goal, since
the goal ends the episode.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from planted_answers import Agent, Construction, Table, follow, grids, played

from goalscope.goals.hypotheses import FiniteWorld, Undefined

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
Random = np.random.Generator
Cell = tuple[int, int]
Error = Callable[[FiniteWorld, Table, Random], Table]
"""World and policy ``[S, A]`` -> policy with errors."""

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Offsets (rows, columns) of up, down, left and right."""

BACK, RIGHT, LEFT = (1, 0, 3, 2), (3, 2, 0, 1), (2, 3, 1, 0)
"""The move back, to the right and to the left of each move."""

BANK = ("goal", "corner top-left", "corner top-right", "corner bottom-left", "corner bottom-right")


# Geometry: everything here is found from the walls alone.


def index(world: FiniteWorld, cell: Cell) -> int:
    """Return the state in which the agent is at a cell."""
    return cell[0] * world.grid.width + cell[1]


def cells(world: FiniteWorld) -> list[Cell]:
    """Return the cell of each state."""
    return [(row, col) for row in range(world.grid.height) for col in range(world.grid.width)]


def start(world: FiniteWorld) -> Cell:
    """Return the cell of the start."""
    cell = world.grid.start
    assert cell is not None
    return cell[0], cell[1]


def goal(world: FiniteWorld) -> Cell:
    """Return the cell of the goal."""
    cell = world.grid.goal
    assert cell is not None
    return cell[0], cell[1]


def only(world: FiniteWorld, cell: Cell) -> Mask:
    """Return the mask of one cell, ``[S]``."""
    return np.asarray(np.arange(world.grid.walls.size) == index(world, cell))


def open_at(world: FiniteWorld, row: int, col: int) -> bool:
    """Return whether a cell lies within the grid and is no wall."""
    return 0 <= row < world.grid.height and 0 <= col < world.grid.width and not world.grid.walls[row, col]


def ahead(world: FiniteWorld) -> npt.NDArray[np.int64]:
    """Return the state after each move, ``[S, A]``; a move into a wall changes nothing."""
    after = np.tile(np.arange(world.grid.walls.size)[:, None], (1, 4))
    for state, (row, col) in enumerate(cells(world)):
        for move, (down, right) in enumerate(MOVES):
            if not world.grid.walls[row, col] and open_at(world, row + down, col + right):
                after[state, move] = index(world, (row + down, col + right))
    return after


def distances(world: FiniteWorld, targets: Mask) -> Numbers:
    """Return the number of steps from each state to a set of states by paths that do not lead through the goal."""
    steps, after, end = np.full(targets.size, np.inf), ahead(world), index(world, goal(world))
    steps[targets] = 0
    queue = deque(np.flatnonzero(targets).tolist())
    while queue:
        state = queue.popleft()
        if state == end and not targets[end]:
            continue
        for before in after[state].tolist():  # moves can be undone, so that neighbours are also predecessors
            if steps[before] == np.inf:
                steps[before] = steps[state] + 1
                queue.append(before)
    return steps


def nearer(world: FiniteWorld, targets: Mask) -> Mask:
    """Return the moves on a shortest path to the targets, ``[S, A]``; at a target, those that stay, or all others."""
    steps, after = distances(world, targets), ahead(world)
    moves = (steps[after] == steps[:, None] - 1) & np.isfinite(steps)[:, None]
    stays = targets[:, None] & (after == np.arange(targets.size)[:, None])
    leaves = targets[:, None] & ~stays.any(axis=1, keepdims=True) & (after != index(world, goal(world)))
    return np.asarray(moves | stays | leaves)


def even(moves: Mask) -> Table:
    """Return the policy that is uniform over a set of moves in each state, and over all moves if there is none."""
    some = np.where(moves.any(axis=1, keepdims=True), moves, True)
    return np.asarray(some / some.sum(axis=1, keepdims=True))


def one(moves: Mask, order: Sequence[int]) -> Table:
    """Return the policy that takes the first of a set of moves in a fixed order, and any move if there is none."""
    table = np.full(moves.shape, 0.25)
    for state in np.flatnonzero(moves.any(axis=1)):
        table[state] = np.eye(4)[next(move for move in order if moves[state, move])]
    return table


def exits(world: FiniteWorld) -> Mask:
    """Return the moves that are not blocked, ``[S, A]``."""
    return np.asarray(ahead(world) != np.arange(world.grid.walls.size)[:, None])


def room(world: FiniteWorld) -> Mask:
    """Return the cells that can be reached from the start without passing the goal, except for the goal, ``[S]``."""
    return np.isfinite(distances(world, only(world, start(world)))) & ~only(world, goal(world))


def least(world: FiniteWorld, cost: npt.NDArray[np.generic], among: Mask | None = None) -> Mask:
    """Return the mask of the cell with the least cost, the first in reading order, among those in reach."""
    inside = room(world) if among is None or not (among & room(world)).any() else among & room(world)
    return np.asarray(np.arange(inside.size) == np.where(inside, cost, np.inf).argmin())


def near(world: FiniteWorld, cell: tuple[float, float]) -> Mask:
    """Return the mask of the cell in reach, other than the goal, that is nearest to a cell as the crow flies."""
    apart = np.array(cells(world)) - np.array(cell)
    return least(world, np.abs(apart).sum(axis=1) + 0.01 * np.abs(apart[:, 0]))


def to(place: Callable[[FiniteWorld], Mask]) -> Agent:
    """Return an agent that takes the shortest paths to its own place and stays there."""
    return lambda world, rng: even(nearer(world, place(world)))[None]


def to_cell(cell: Callable[[FiniteWorld], tuple[float, float]]) -> Agent:
    """Return an agent that goes to a cell, or to the cell in reach nearest to it."""
    return to(lambda world: near(world, cell(world)))


def corners(world: FiniteWorld) -> list[Cell]:
    """Return the four corners in the order of the bank, which are always open."""
    low, wide = world.grid.height - 2, world.grid.width - 2
    return [(1, 1), (1, wide), (low, 1), (low, wide)]


# Errors of agents that pursue a hypothesis in all turns.


def spoiled(text: str, *errors: Error) -> Agent:
    """Return an agent that follows a hypothesis with errors."""

    def act(world: FiniteWorld, rng: Random) -> Table:
        table = follow(text, world)
        for error in errors:
            table = error(world, table, rng)
        return table[None]

    return act


def reversing(share: float) -> Error:
    """Return the error of going the opposite way at random."""
    return lambda world, table, rng: (1 - share) * table + share * table[:, BACK]


def slipping(share: float) -> Error:
    """Return the error of going to the left or to the right of the right way, at random."""
    return lambda world, table, rng: (1 - share) * table + share / 2 * (table[:, RIGHT] + table[:, LEFT])


def bumping(share: float) -> Error:
    """Return the error of bumping into a wall, at random, where there is one."""

    def err(world: FiniteWorld, table: Table, rng: Random) -> Table:
        bumps = ~exits(world)
        wrong = share * bumps.any(axis=1, keepdims=True)
        return (1 - wrong) * table + wrong * even(bumps)

    return err


def drifting(share: float, move: int) -> Error:
    """Return the error of one fixed move, at random."""
    return lambda world, table, rng: (1 - share) * table + share * np.eye(4)[move]


def any_move(share: float) -> Error:
    """Return the error of any move, at random."""
    return lambda world, table, rng: (1 - share) * table + share / 4


def at_junctions(share: float) -> Error:
    """Return the error of a wrong way, at random, in cells with three or more ways."""

    def err(world: FiniteWorld, table: Table, rng: Random) -> Table:
        ways = exits(world)
        wrong = even(ways & (table < 1e-9))
        forks = (ways.sum(axis=1) >= 3) & (ways & (table < 1e-9)).any(axis=1)
        return np.where(forks[:, None], (1 - share) * table + share * wrong, table)

    return err


def fixed_reversing(share: float) -> Error:
    """Return the error of always going the opposite way in a share of the states, which each world draws anew."""

    def err(world: FiniteWorld, table: Table, rng: Random) -> Table:
        wrong = rng.random(len(table)) < share
        return np.where(wrong[:, None], np.eye(4)[np.array(BACK)[table.argmax(axis=1)]], table)

    return err


def fixed_bumping(share: float) -> Error:
    """Return the error of always bumping into a wall in a share of the states that have one, drawn by world."""

    def err(world: FiniteWorld, table: Table, rng: Random) -> Table:
        bumps = ~exits(world)
        wrong = (rng.random(len(table)) < share) & bumps.any(axis=1)
        return np.where(wrong[:, None], np.eye(4)[bumps.argmax(axis=1)], table)

    return err


def fixed_by_cell(every: int, move: Callable[[Cell], int]) -> Error:
    """Return the error of one move that depends on the cell, in every so many cells and alike in all worlds."""

    def err(world: FiniteWorld, table: Table, rng: Random) -> Table:
        table = table.copy()
        for state, cell in enumerate(cells(world)):
            if (3 * cell[0] + 5 * cell[1]) % every == 0:
                table[state] = np.eye(4)[move(cell)]
        return table

    return err


def in_order(order: Sequence[int]) -> Error:
    """Return the habit, which is no error, of taking the first of the right moves in a fixed order."""

    def habit(world: FiniteWorld, table: Table, rng: Random) -> Table:
        right = table > 1e-9
        return one(right & ~right.all(axis=1, keepdims=True), order)

    return habit


def fading(text: str, first: float, last: float, turns: int) -> Agent:
    """Return an agent that follows a hypothesis, and takes any move with a share that falls from turn to turn."""
    shares = np.linspace(first, last, turns)
    return lambda world, rng: np.stack([(1 - share) * follow(text, world) + share / 4 for share in shares])


def soft(text: str, sharpness: float) -> Agent:
    """Return an agent that prefers moves the more, the nearer they lead to the goal or corner."""

    def act(world: FiniteWorld, rng: Random) -> Table:
        follow(text, world)  # undefined where the place is out of reach
        steps = distances(world, target(world, text))
        weights = np.exp(-sharpness * np.minimum(steps, 99)[ahead(world)])
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))[None]

    return act


# Combinations of agents.


def pursue(text: str) -> Agent:
    """Return an agent that follows a hypothesis without errors."""
    return lambda world, rng: follow(text, world)[None]


def wander(world: FiniteWorld, rng: Random) -> Table:
    """Take any move."""
    return np.full((1, world.grid.walls.size, 4), 0.25)


def wander_open(world: FiniteWorld, rng: Random) -> Table:
    """Take any move that is not blocked."""
    return even(exits(world))[None]


def lasting(table: Table, turns: int) -> Table:
    """Repeat the last policy of a table up to a number of turns."""
    return table[np.minimum(np.arange(turns), len(table) - 1)]


def switched(turn: int, before: Agent, after: Agent) -> Agent:
    """Return an agent that acts as one agent up to a turn (from 1), and as another from then on."""

    def act(world: FiniteWorld, rng: Random) -> Table:
        first, then = before(world, rng), after(world, rng)
        turns = max(turn, len(first), len(then))
        later = np.arange(turns) >= turn - 1
        return np.where(later[:, None, None], lasting(then, turns), lasting(first, turns))

    return act


def split(holds: Callable[[FiniteWorld], Mask], yes: Agent, no: Agent) -> Agent:
    """Return an agent that acts as one agent in some states, and as another elsewhere."""

    def act(world: FiniteWorld, rng: Random) -> Table:
        first, then = yes(world, rng), no(world, rng)
        turns = max(len(first), len(then))
        return np.where(holds(world)[:, None], lasting(first, turns), lasting(then, turns))

    return act


def by_world(holds: Callable[[FiniteWorld, Random], bool], yes: Agent, no: Agent) -> Agent:
    """Return an agent that acts as one agent in some worlds, and as another in the rest."""
    return lambda world, rng: yes(world, rng) if holds(world, rng) else no(world, rng)


def small(world: FiniteWorld, rng: Random) -> bool:
    """Return whether a grid is of the smaller size."""
    return world.grid.width <= 7


def side(axis: int, sign: int) -> Callable[[FiniteWorld], Mask]:
    """Return the states from which the goal lies on one side: of rows (axis 0) or columns, before (-1) or after (1)."""
    return lambda world: sign * (goal(world)[axis] - np.array(cells(world))[:, axis]) > 0


def but(holds: Callable[[FiniteWorld], Mask]) -> Callable[[FiniteWorld], Mask]:
    """Return the opposite of a condition."""
    return lambda world: ~holds(world)


def within(steps: int) -> Callable[[FiniteWorld], Mask]:
    """Return the states from which the goal is at most some steps away."""
    return lambda world: distances(world, only(world, goal(world))) <= steps


# Walkers with a heading: the start is fixed, so that their path is found beforehand and told as one move for each turn.


def march(choose: Callable[[FiniteWorld, int, int, int, Mask], int]) -> Agent:
    """Return a walker that chooses from the turn (from 0), the state, its heading and the open moves of all states."""

    def act(world: FiniteWorld, rng: Random) -> Table:
        ways, after, state = exits(world), ahead(world), index(world, start(world))
        facing = np.roll(np.arange(4), int(world.grid.walls.sum()))
        heading, path = next((int(move) for move in facing if ways[state, move]), 0), list[int]()
        for turn in range(world.horizon):
            heading = choose(world, turn, state, heading, ways)
            path.append(heading)
            state = int(after[state, heading])
        return np.tile(np.eye(4)[path][:, None], (1, len(ways), 1))

    return act


def first_open(order: Callable[[int, int], Sequence[int]]) -> Agent:
    """Return a walker that takes the first open move of an order that depends on its heading and the turn."""
    return march(
        lambda world, turn, state, heading, ways: next((m for m in order(heading, turn) if ways[state, m]), heading)
    )


RIGHT_HAND = first_open(lambda h, turn: (RIGHT[h], h, LEFT[h], BACK[h]))
LEFT_HAND = first_open(lambda h, turn: (LEFT[h], h, RIGHT[h], BACK[h]))
TURN_LEFT = first_open(lambda h, turn: (h, LEFT[h], BACK[h], RIGHT[h]))
ZIGZAG = first_open(lambda h, turn: (RIGHT[h], LEFT[h], h, BACK[h]) if turn % 2 else (LEFT[h], RIGHT[h], h, BACK[h]))


def along_corridor(world: FiniteWorld, turn: int, state: int, heading: int, ways: Mask) -> int:
    """Go on through a corridor; take the way to the left at a junction, if there is one, and turn round at its end."""
    order = (LEFT[heading], heading, RIGHT[heading], BACK[heading])
    straight = (heading, RIGHT[heading], LEFT[heading], BACK[heading])
    return next((m for m in (order if ways[state].sum() >= 3 else straight) if ways[state, m]), heading)


def least_visited(world: FiniteWorld, rng: Random) -> Table:
    """Go to the neighbour that was visited least often, by an order of moves that each turn draws anew."""
    visits, after, ways = np.zeros(world.grid.walls.size), ahead(world), exits(world)
    state, path = index(world, start(world)), list[int]()
    for _ in range(world.horizon):
        visits[state] += 1
        options = [int(move) for move in rng.permutation(4) if ways[state, move]]
        path.append(min(options, key=[*visits[after[state]]].__getitem__, default=0))
        state = int(after[state, path[-1]])
    return np.tile(np.eye(4)[path][:, None], (1, len(ways), 1))


# Places outside of the bank.


def behind_goal(world: FiniteWorld) -> Cell:
    """Return the cell beyond the goal, as seen from the start along the longer axis."""
    (row, col), (from_row, from_col) = goal(world), start(world)
    down, right = row - from_row, col - from_col
    return (row + int(np.sign(down)), col) if abs(down) > abs(right) else (row, col + int(np.sign(right)))


def before_goal(world: FiniteWorld) -> Mask:
    """Return the last cell before the goal on the path that prefers up, then down, left and right."""
    moves, after = nearer(world, only(world, goal(world))), ahead(world)
    state, end = index(world, start(world)), index(world, goal(world))
    while (then := int(after[state, moves[state].argmax()])) != end:
        state = then
    return np.asarray(np.arange(len(moves)) == state)


def end_of_row(world: FiniteWorld) -> Mask:
    """Return the cell of the goal's row that is furthest from the goal."""
    place = np.array(cells(world))
    return least(world, -np.abs(place[:, 1] - goal(world)[1]), place[:, 0] == goal(world)[0])


def end_of_column(world: FiniteWorld) -> Mask:
    """Return the cell of the goal's column that is furthest from the goal."""
    place = np.array(cells(world))
    return least(world, -np.abs(place[:, 0] - goal(world)[0]), place[:, 1] == goal(world)[1])


def open_area(world: FiniteWorld) -> Mask:
    """Return the cell with the most open cells around it, two steps to each side."""
    free = np.pad(~world.grid.walls, 2)
    around = sum(np.roll(free, (i, j), (0, 1))[2:-2, 2:-2].astype(int) for i in range(-2, 3) for j in range(-2, 3))
    return least(world, -np.asarray(around).ravel())


def dead_end(world: FiniteWorld) -> Mask:
    """Return the cell with the fewest ways out, the nearest to the start; neither a corner nor the start."""
    taken = np.isin(np.arange(world.grid.walls.size), [index(world, c) for c in (start(world), *corners(world))])
    return least(world, exits(world).sum(axis=1) + distances(world, only(world, start(world))) / 1000, ~taken)


def wall_corner(world: FiniteWorld) -> Mask:
    """Return the cell nearest to the start where two walls meet at a right angle; the start excepted."""
    ways = exits(world)
    meet = (~ways[:, 0] | ~ways[:, 1]) & (~ways[:, 2] | ~ways[:, 3]) & ~only(world, start(world))
    return least(world, distances(world, only(world, start(world))), meet)


def corner_by_path(rank: int, origin: Callable[[FiniteWorld], Cell]) -> Callable[[FiniteWorld], Mask]:
    """Return the choice of the corner that is nearest to a cell in path length (rank 0), or the next one (rank 1)."""

    def place(world: FiniteWorld) -> Mask:
        steps = distances(world, only(world, origin(world)))
        reached = [c for c in corners(world) if room(world)[index(world, c)] and c != start(world)]
        ranked = sorted(reached, key=lambda c: steps[index(world, c)])
        if not ranked:
            raise Undefined("no corner can be reached")
        return only(world, ranked[min(rank, len(ranked) - 1)])

    return place


def furthest(origin: Callable[[FiniteWorld], Cell]) -> Callable[[FiniteWorld], Mask]:
    """Return the choice of the cell furthest from a cell in path length."""
    return lambda world: least(world, -np.nan_to_num(distances(world, only(world, origin(world))), posinf=0))


def ring(world: FiniteWorld) -> Mask:
    """Return the cells exactly three steps from the goal."""
    return np.asarray(room(world) & (distances(world, only(world, goal(world))) == 3))


def mirrored(world: FiniteWorld, cell: Cell, rows: bool, cols: bool) -> Cell:
    """Return a cell mirrored at the middle of the grid."""
    row, col = cell
    return (world.grid.height - 1 - row if rows else row, world.grid.width - 1 - col if cols else col)


def midpoint(world: FiniteWorld) -> tuple[float, float]:
    """Return the middle between the start and the goal."""
    (row, col), (from_row, from_col) = goal(world), start(world)
    return (row + from_row) / 2, (col + from_col) / 2


# Heuristics and habits outside of the bank.


def columns_first(world: FiniteWorld, rng: Random) -> Table:
    """Go towards the goal's column, into walls if need be, and wander up and down once there."""
    right = goal(world)[1] - np.array(cells(world))[:, 1]
    return np.where((right == 0)[:, None], [0.5, 0.5, 0, 0], np.eye(4)[np.where(right > 0, 3, 2)])[None]


def along_row(world: FiniteWorld, rng: Random) -> Table:
    """Go to the nearest cell in the goal's row other than the goal, and pace there."""
    row = room(world) & (np.array(cells(world))[:, 0] == goal(world)[0])
    return even(nearer(world, row if row.any() else near(world, goal(world))))[None]


def to_wide_cells(world: FiniteWorld, rng: Random) -> Table:
    """Go to the neighbour that has the most ways out itself."""
    ways = exits(world)
    width = np.where(ways, ways.sum(axis=1)[ahead(world)], -1)
    return even(width == width.max(axis=1, keepdims=True))[None]


def long_runs(world: FiniteWorld, rng: Random) -> Table:
    """Go in the direction in which the next wall is furthest away."""
    runs = np.zeros((world.grid.walls.size, 4))
    for state, (row, col) in enumerate(cells(world)):
        for move, (down, right) in enumerate(MOVES):
            while open_at(world, row + int(runs[state, move] + 1) * down, col + int(runs[state, move] + 1) * right):
                runs[state, move] += 1
    return even(runs == runs.max(axis=1, keepdims=True))[None]


def hashed_surroundings(world: FiniteWorld, rng: Random) -> Table:
    """Take a move that the walls of the eight cells around determine in the same way everywhere."""
    walls, table = np.pad(world.grid.walls, 1), np.zeros((world.grid.walls.size, 4))
    for state, (row, col) in enumerate(cells(world)):
        code = int("".join("01"[int(wall)] for wall in walls[row : row + 3, col : col + 3].ravel()), 2)
        table[state, (code * 2654435761 >> 13) % 4] = 1
    return table[None]


def hashed_cell(world: FiniteWorld, rng: Random) -> Table:
    """Take an open move that the cell determines in the same way in all worlds of a size."""
    ways, table = exits(world), np.full((world.grid.walls.size, 4), 0.25)
    for state, (row, col) in enumerate(cells(world)):
        if options := np.flatnonzero(ways[state]).tolist():
            table[state] = np.eye(4)[options[(row * row + 3 * row * col + 7 * col) % len(options)]]
    return table[None]


@cache
def elsewhere() -> dict[int, FiniteWorld]:
    """Return one world for each size."""
    return {world.grid.width: world for world in grids(777, 1)}


def copied(world: FiniteWorld, rng: Random) -> Table:
    """Act as if this were another world of the same size, and go to the goal of that one."""
    return follow("goal", elsewhere()[world.grid.width])[None]


def transposed(world: FiniteWorld, rng: Random) -> Table:
    """Act as the planner for the goal would in the cell with row and column exchanged."""
    shape = world.grid.walls.shape
    return follow("goal", world).reshape(*shape, 4).transpose(1, 0, 2).reshape(-1, 4)[None]


def turned_controls(world: FiniteWorld, rng: Random) -> Table:
    """Take the move to the right of each move that leads to the goal."""
    return follow("goal", world)[:, LEFT][None]


def pacing(world: FiniteWorld, rng: Random) -> Table:
    """Leave the start, and return to it at once."""
    return even(np.where(only(world, start(world))[:, None], exits(world), nearer(world, only(world, start(world)))))[
        None
    ]


def border(world: FiniteWorld, rng: Random) -> Table:
    """Go round along the border clockwise; from the middle, go to it by the shortest path."""
    low, wide, table = world.grid.height - 2, world.grid.width - 2, np.full((world.grid.walls.size, 4), 0.25)
    place = np.array(cells(world))
    outer = room(world) & (np.isin(place[:, 0], [1, low]) | np.isin(place[:, 1], [1, wide]))
    inward, ways = even(nearer(world, outer)), exits(world)
    for state, (row, col) in enumerate(cells(world)):
        move = 3 if row == 1 and col < wide else 1 if col == wide and row < low else 2 if row == low and col > 1 else 0
        order = (move, RIGHT[move], LEFT[move], BACK[move])
        table[state] = inward[state]
        if outer[state]:
            table[state] = np.eye(4)[next((m for m in order if ways[state, m]), move)]
    return table[None]


def back_and_forth(world: FiniteWorld, rng: Random) -> Table:
    """Go towards the top-left corner in even turns, and towards the bottom-right corner in odd turns."""
    policies = [even(nearer(world, near(world, corners(world)[which]))) for which in (3, 0)]
    return np.stack([policies[turn % 2] for turn in range(world.horizon)])


def away_from_goal(world: FiniteWorld, rng: Random) -> Table:
    """Take the moves that lead away from the goal, or else stay."""
    steps = distances(world, only(world, goal(world)))
    beyond = np.where(np.isfinite(steps), steps, -1)[ahead(world)]
    return even(beyond == beyond.max(axis=1, keepdims=True))[None]


def steady(world: FiniteWorld, rng: Random) -> Table:
    """Take the same move in all turns, which the world's walls determine."""
    return np.tile(np.eye(4)[int(world.grid.walls.sum()) % 4], (1, world.grid.walls.size, 1))


def out_and_home(world: FiniteWorld, rng: Random) -> Table:
    """Go to the cell furthest from the start for half of the turns, and then home again."""
    away, home = even(nearer(world, furthest(start)(world))), even(nearer(world, only(world, start(world))))
    return np.stack([away if 2 * turn < world.horizon else home for turn in range(world.horizon)])


def target(world: FiniteWorld, text: str) -> Mask:
    """Return the cell of a hypothesis of the bank, ``[S]``."""
    return only(world, goal(world) if text == "goal" else corners(world)[BANK.index(text) - 1])


GOAL = pursue("goal")

WHOLE = tuple(
    Construction(name, agent, whole=(text,))
    for name, text, agent in (
        ("goal, turns back one time in four", "goal", spoiled("goal", reversing(0.25))),
        ("goal, bumps into a wall three times in ten where there is one", "goal", spoiled("goal", bumping(0.3))),
        ("goal, slips to either side three times in ten", "goal", spoiled("goal", slipping(0.3))),
        (
            "goal, always turns back in a tenth of the states, and errs at random",
            "goal",
            spoiled("goal", fixed_reversing(0.1), any_move(0.15)),
        ),
        (
            "goal, takes a fixed wrong way in every ninth cell, the same in all worlds",
            "goal",
            spoiled("goal", fixed_by_cell(9, lambda cell: (cell[0] + 2 * cell[1]) % 4)),
        ),
        (
            "goal, by columns first where both ways are short, any move one time in three",
            "goal",
            spoiled("goal", in_order((2, 3, 0, 1)), any_move(1 / 3)),
        ),
        ("goal, with errors that fade from turn to turn", "goal", fading("goal", 0.5, 0.1, 8)),
        ("goal, drifts upwards one time in four", "goal", spoiled("goal", drifting(0.25, 0))),
        ("goal, takes a wrong way at junctions four times in ten", "goal", spoiled("goal", at_junctions(0.4))),
        ("goal, the more surely the nearer a move leads", "goal", soft("goal", 2.0)),
        (
            "goal, always bumps in one state of fourteen, and turns back at random",
            "goal",
            spoiled("goal", fixed_bumping(0.07), reversing(0.1)),
        ),
        ("top-left corner, any move one time in four", "corner top-left", spoiled("corner top-left", any_move(0.25))),
        (
            "bottom-right corner, slips to either side one time in four",
            "corner bottom-right",
            spoiled("corner bottom-right", slipping(0.25)),
        ),
        (
            "top-right corner, in a fixed order of moves, errs in every eleventh cell and at random",
            "corner top-right",
            spoiled("corner top-right", in_order((1, 0, 3, 2)), fixed_by_cell(11, lambda cell: 2), any_move(0.15)),
        ),
        (
            "bottom-left corner, turns back one time in five",
            "corner bottom-left",
            spoiled("corner bottom-left", reversing(0.2)),
        ),
    )
)
"""Agents that pursue the goal or a corner in all turns, with errors of at most .4."""

_SIDES = (("goal", "side"), ("goal", "other side"))
_PARTS: tuple[tuple[str, Agent, tuple[tuple[str, str], ...]], ...] = (
    ("goal from turn 3, before it turns left when blocked", switched(3, TURN_LEFT, GOAL), (("goal", "from turn"),)),
    (
        "goal from turn 4 with a few errors, before it wanders",
        switched(4, wander, spoiled("goal", any_move(0.1))),
        (("goal", "from turn"),),
    ),
    (
        "goal for two turns, then home to the start",
        switched(3, GOAL, to(lambda world: only(world, start(world)))),
        (("goal", "until turn"),),
    ),
    ("goal for three turns, then away from it", switched(4, GOAL, away_from_goal), (("goal", "until turn"),)),
    (
        "goal within three steps, else wanders through open ways",
        split(within(3), GOAL, wander_open),
        (("goal", "within steps"),),
    ),
    (
        "goal within four steps, else the move that the cell determines",
        split(within(4), GOAL, hashed_cell),
        (("goal", "within steps"),),
    ),
    ("goal where it lies to the right, else wanders", split(side(1, 1), GOAL, wander), _SIDES),
    ("goal where it lies below, else goes to open neighbours", split(side(0, 1), GOAL, to_wide_cells), _SIDES),
    ("goal unless it lies above, then away from it", split(but(side(0, -1)), GOAL, away_from_goal), _SIDES),
    (
        "goal with a few errors in small grids, wanders in large ones",
        by_world(small, spoiled("goal", slipping(0.1)), wander),
        (("goal", "small grids"),),
    ),
    (
        "goal in large grids, right-hand rule in small ones",
        by_world(small, RIGHT_HAND, GOAL),
        (("goal", "large grids"),),
    ),
    (
        "goal in small grids, bottom-right corner in large ones",
        by_world(small, GOAL, pursue("corner bottom-right")),
        (("goal", "small grids"), ("corner bottom-right", "large grids")),
    ),
    (
        "top-left corner from turn 3, before it goes to the start's mirror",
        switched(3, to_cell(lambda w: mirrored(w, start(w), True, True)), pursue("corner top-left")),
        (("corner top-left", "from turn"),),
    ),
    (
        "top-left corner for two turns, then the goal",
        switched(3, pursue("corner top-left"), GOAL),
        (("corner top-left", "until turn"), ("goal", "from turn")),
    ),
)
PARTLY = tuple(Construction(name, agent, parts=parts) for name, agent, parts in _PARTS)
"""Agents that pursue the goal or a corner in a part that can be described."""

OUTSIDE = tuple(
    Construction(name, agent)
    for name, agent in (
        ("cell behind the goal", to_cell(behind_goal)),
        ("cell one step before the goal on a fixed path", to(before_goal)),
        ("far end of the goal's row", to(end_of_row)),
        ("far end of the goal's column", to(end_of_column)),
        ("cell a knight's move from the goal", to_cell(lambda w: (goal(w)[0] - 2, goal(w)[1] + 1))),
        ("a cell three steps from the goal", to(ring)),
        ("midpoint between start and goal", to_cell(midpoint)),
        ("goal mirrored left to right", to_cell(lambda w: mirrored(w, goal(w), False, True))),
        ("start mirrored at the middle", to_cell(lambda w: mirrored(w, start(w), True, True))),
        ("start mirrored top to bottom", to_cell(lambda w: mirrored(w, start(w), True, False))),
        ("middle of the grid", to_cell(lambda w: ((w.grid.height - 1) / 2, (w.grid.width - 1) / 2))),
        ("middle of the left border", to_cell(lambda w: ((w.grid.height - 1) / 2, 1))),
        ("cell beside the top-right corner, diagonally", to_cell(lambda w: (2, w.grid.width - 3))),
        ("most open area", to(open_area)),
        ("nearest dead end", to(dead_end)),
        ("nearest cell where two walls meet", to(wall_corner)),
        ("second-closest corner in path length", to(corner_by_path(1, start))),
        ("corner closest to the goal", to(corner_by_path(0, goal))),
        ("cell furthest from the start", to(furthest(start))),
        ("cell furthest from the goal", to(furthest(goal))),
        ("left column, anywhere", to(lambda w: room(w) & (np.array(cells(w))[:, 1] == 1))),
        ("goal's row, then paces there", along_row),
        ("goal's column through walls, then wanders up and down", columns_first),
        ("right-hand rule", RIGHT_HAND),
        ("left-hand rule", LEFT_HAND),
        ("straight until blocked, then left", TURN_LEFT),
        ("zigzag of left and right turns", ZIGZAG),
        ("corridors, to the left at junctions", march(along_corridor)),
        ("least visited neighbour", least_visited),
        ("neighbour with the most ways", to_wide_cells),
        ("direction with the longest run", long_runs),
        ("move determined by the walls around", hashed_surroundings),
        ("move determined by the cell", hashed_cell),
        ("goal of another world", copied),
        ("goal with rows and columns of the own cell exchanged", transposed),
        ("goal with all moves turned to the right", turned_controls),
        ("back and forth at the start", pacing),
        ("round along the border", border),
        ("top-left and bottom-right corner in alternate turns", back_and_forth),
        ("out to the furthest cell and home", out_and_home),
        ("one move for each world", steady),
        (
            "goal in worlds where its column is even, else furthest from it",
            by_world(lambda w, rng: goal(w)[1] % 2 == 0, GOAL, to(furthest(goal))),
        ),
        (
            "goal in worlds whose number of walls can be divided by three, else start's mirror",
            by_world(
                lambda w, rng: int(w.grid.walls.sum()) % 3 == 0,
                GOAL,
                to_cell(lambda w: mirrored(w, start(w), True, True)),
            ),
        ),
        (
            "goal in three of ten worlds by chance, else right-hand rule",
            by_world(lambda w, rng: bool(rng.random() < 0.3), GOAL, RIGHT_HAND),
        ),
        (
            "a corner that each world draws by chance",
            by_world(
                lambda w, rng: bool(rng.random() < 0.5),
                by_world(lambda w, rng: bool(rng.random() < 0.5), pursue(BANK[1]), pursue(BANK[2])),
                by_world(lambda w, rng: bool(rng.random() < 0.5), pursue(BANK[3]), pursue(BANK[4])),
            ),
        ),
    )
)
"""Agents that pursue something else, or nothing."""


def pace(legs: Sequence[int], *places: Callable[[FiniteWorld], Mask]) -> Agent:
    """Return an agent that goes towards its places in turn, so many moves each, again and again."""
    order = [number for number, leg in enumerate(legs) for _ in range(leg)]

    def act(world: FiniteWorld, rng: Random) -> Table:
        policies = [even(nearer(world, place(world))) for place in places]
        return np.stack([policies[order[turn % len(order)]] for turn in range(world.horizon)])

    return act


def corner_at(number: int) -> Callable[[FiniteWorld], Mask]:
    """Return the choice of a corner, in the order of the bank."""
    return lambda world: only(world, corners(world)[number])


def home(world: FiniteWorld) -> Mask:
    """Return the cell of the start."""
    return only(world, start(world))


def the_goal(world: FiniteWorld) -> Mask:
    """Return the cell of the goal."""
    return only(world, goal(world))


def in_row(row: Callable[[FiniteWorld], int]) -> Callable[[FiniteWorld], Mask]:
    """Return the choice of all cells in reach in a row."""

    def place(world: FiniteWorld) -> Mask:
        line = room(world) & (np.array(cells(world))[:, 0] == row(world))
        return line if line.any() else near(world, (row(world), start(world)[1]))

    return place


def in_column(column: Callable[[FiniteWorld], int]) -> Callable[[FiniteWorld], Mask]:
    """Return the choice of all cells in reach in a column."""

    def place(world: FiniteWorld) -> Mask:
        line = room(world) & (np.array(cells(world))[:, 1] == column(world))
        return line if line.any() else near(world, (start(world)[0], column(world)))

    return place


PACING = tuple(
    Construction(name, agent)
    for name, agent in (
        ("two moves to the goal, two home, and again", pace((2, 2), the_goal, home)),
        ("one move to the goal, one home, and again", pace((1, 1), the_goal, home)),
        (
            "three moves to the bottom-right corner, two to the top-left, and again",
            pace((3, 2), corner_at(3), corner_at(0)),
        ),
        (
            "two moves to the top-right corner, three to the bottom-left, and again",
            pace((2, 3), corner_at(1), corner_at(2)),
        ),
        ("one move to each corner in turn", pace((1, 1, 1, 1), *map(corner_at, range(4)))),
        ("two moves to each corner clockwise", pace((2, 2, 2, 2), *map(corner_at, (0, 1, 3, 2)))),
        (
            "one move to the goal, two to the middle, and again",
            pace((1, 2), the_goal, lambda w: near(w, ((w.grid.height - 1) / 2, (w.grid.width - 1) / 2))),
        ),
        ("two moves away to the furthest cell, one home, and again", pace((2, 1), furthest(start), home)),
        ("right column, anywhere", to(in_column(lambda w: w.grid.width - 2))),
        ("bottom row, anywhere", to(in_row(lambda w: w.grid.height - 2))),
        ("the goal's column, anywhere but at the goal", to(in_column(lambda w: goal(w)[1]))),
        ("the row above the goal's, anywhere", to(in_row(lambda w: goal(w)[0] - 1))),
        ("the column left of the goal's, anywhere", to(in_column(lambda w: goal(w)[1] - 1))),
        ("the middle row, anywhere", to(in_row(lambda w: (w.grid.height - 1) // 2))),
        (
            "to and fro between the goal's row and the start's",
            pace((3, 3), in_row(lambda w: goal(w)[0]), in_row(lambda w: start(w)[0])),
        ),
        (
            "to and fro between left and right column",
            pace((4, 4), in_column(lambda w: 1), in_column(lambda w: w.grid.width - 2)),
        ),
    )
)
"""Agents that pace between places or go to a line, written after the rules for parts were last changed."""

CONSTRUCTIONS: tuple[Construction, ...] = (*WHOLE, *PARTLY, *OUTSIDE, *PACING)


# The count of what the agents do.


def turns_of(agent: Agent, worlds: Sequence[FiniteWorld], text: str, seed: int) -> tuple[Numbers, float]:
    """Play one episode in each world, and count moves and arrivals with regard to a hypothesis of the bank.

    Returns:
        A row for each turn, and the share of episodes that come to the place. The rows hold: whether the move is on a
        shortest path, the turn (from 1), the steps to the place, its offset in rows and columns, and the width.
    """
    rows, arrived = list[tuple[float, ...]](), list[bool]()
    for number, world in enumerate(worlds):
        rng = np.random.default_rng([seed, number])
        try:
            answers = played(world, agent(world, rng), rng)
        except Undefined:
            continue
        place = target(world, text)
        moves, steps = nearer(world, place), distances(world, place)
        cell = np.array(divmod(int(place.argmax()), world.grid.width))
        for turn, (state, answer) in enumerate(zip(answers.state, answers.first, strict=True), 1):
            down, right = cell - divmod(int(state), world.grid.width)
            if moves[state].any():
                good = float(moves[state, answer.argmax()])
                rows.append((good, turn, steps[state], down, right, world.grid.width))
        arrived.append(bool(place[answers.state].any() or place[answers.last].any()))
    return np.array(rows).reshape(-1, 6), float(np.mean(arrived))


def regions(rows: Numbers, kind: str) -> list[Mask]:
    """Return the turns in each part of a kind, ``[turns]``."""
    _, turn, steps, down, right, width = rows.T
    sides = [down < 0, down > 0, right < 0, right > 0]
    return {
        "from turn": [turn >= first for first in range(2, 6)],
        "until turn": [turn <= last for last in range(1, 6)],
        "within steps": [steps <= most for most in range(1, 7)],
        "side": sides,
        "other side": [~s for s in sides],
        "small grids": [width <= 7],
        "large grids": [width > 7],
    }[kind]


def apart(rows: Numbers, kind: str) -> tuple[float, float]:
    """Return the shares of moves on a shortest path within a part and elsewhere, for the part that differs most."""
    good = rows[:, 0]
    pairs = [(good[r].mean(), good[~r].mean()) for r in regions(rows, kind) if r.sum() >= 5 and (~r).sum() >= 5]
    return max(((float(a), float(b)) for a, b in pairs), key=lambda pair: pair[0] - pair[1])


def check(seed: int = 11, show: bool = False) -> None:
    """Assert with an own count, in 30 worlds, that the agents do what is said of them.

    An agent of the bank takes a shortest path in at least .6 of its moves. One with parts does so in at least .85 of
    the moves in one of these parts of each hypothesis, and less often elsewhere. All others come to each place of the
    bank in at most .6 of the episodes, those that pursue it in some worlds included.
    """
    worlds, names = grids(seed, 5), [construction.name for construction in CONSTRUCTIONS]
    assert len({*names}) == len(names) >= 36
    for construction in CONSTRUCTIONS:
        counts = {text: turns_of(construction.agent, worlds, text, seed) for text in BANK}
        if show:
            told = "  ".join(f"{rows[:, 0].mean():.2f}/{arrived:.2f}" for rows, arrived in counts.values())
            print(f"{construction.name[:60]:60}  {told}")
        for text in construction.whole:
            share = counts[text][0][:, 0].mean()
            assert share >= 0.6, (construction.name, text, share)
        for text in {text for text, _ in construction.parts}:
            found = {kind: apart(counts[text][0], kind) for named, kind in construction.parts if named == text}
            assert any(a >= 0.85 and a - b >= 0.15 for a, b in found.values()), (construction.name, text, found)
        if not construction.whole and not construction.parts:
            most = max(counts, key=lambda text: counts[text][1])
            assert counts[most][1] <= 0.6, (construction.name, most, counts[most][1])
