"""The decision process of a world, as measures of runs use it: numbered states, probabilities, an absorbing end.

The states of a grid are its cells in each phase. Those of a task map are a cell and the nodes achieved so far.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope._ground.distributions import to_distributions
from goalscope.worlds.dynamics import configuration_index, initial_state, phases, state_number, transitions
from goalscope.worlds.grid import ACTIONS, Grid, Position
from goalscope.worlds.planning.mdp import TabularMDP, sparse_transitions
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.things import forgets_kinds
from goalscope.worlds.world import World

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

MOST_STATES: Final = 500_000
"""Maximum number of states of a task map."""

SUB_GOALS: Final = "sub-goals"
"""Name of a task map's goal "achieve sub-goals": its utility is the number of achieved nodes that are no goals."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Process:
    """The transitions and first states of a world as a decision process of S states and A actions, without utilities.

    Attributes:
        transitions: ``[S, A]`` int64 next states, or sparse probabilities ``[S * A, S]``, as in `TabularMDP`; states
            after the end of an episode are absorbing.
        start: ``[S]`` probabilities of the first state.
        number: function from recorded states ``[N, D]`` int64 to state indices ``[N]``; None if records do not
            determine the state, which must then be computed from the actions.
        goals: name of a goal that the world itself declares -> ``[S]`` 1 where it is fulfilled, else 0, or a count;
            empty for grids, whose goals are hypotheses such as ``corner top-left``.
        asked: names of the goals to test as hypotheses by default; if empty, all goals are tested.
        most: maximum horizon in decisions, None for any horizon.
        offered: ``[S, A]`` bool, the offered actions; None for all actions.
    """

    transitions: Any
    start: Array
    number: Callable[[Numbers], Numbers] | None = field(repr=False)
    goals: Mapping[str, Array] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    most: int | None = None
    offered: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", freeze(to_distributions("start", self.start)))
        if self.chance:  # normalised as in `TabularMDP`, so that both have the same numbers
            object.__setattr__(self, "transitions", sparse_transitions(self.transitions, len(self.start)))

    @cached_property
    def base(self) -> TabularMDP:
        """The same transitions as a `TabularMDP` with utility 0 and a horizon of one decision.

        Its methods `TabularMDP.flow` (the distribution of the next state) and `TabularMDP.expect` (the expected value
        of the next state) depend only on the transitions, so this process serves every utility and horizon.
        """
        return self.mdp(np.zeros(len(self.start)), 1, terminal=None)

    @property
    def chance(self) -> bool:
        """Whether transitions have probabilities, so that an action can have several outcomes."""
        return not isinstance(self.transitions, np.ndarray)

    @property
    def lucky(self) -> bool:
        """Whether episodes of one policy can differ by chance, in the first state or in the outcomes of actions."""
        return self.chance or int(np.count_nonzero(self.start)) > 1

    @property
    def states(self) -> int:
        """Number of states S."""
        return len(self.start)

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return self.base.actions

    def mdp(self, utility: Array, horizon: int, *, terminal: Array | None, idle: bool = False) -> TabularMDP:
        """Return the process as a `TabularMDP` with a utility and a horizon.

        Args:
            utility: ``[S]`` utility of each decision, by the state in which it begins.
            horizon: number of decisions.
            terminal: ``[S]`` utility of the state after the last decision, or None.
            idle: whether to append one more action, which changes nothing.

        Raises:
            ValueError: if the horizon exceeds `most`.
        """
        if self.most is not None and horizon > self.most:
            raise ValueError(
                f"the horizon must be at most {self.most} decisions, since this world was searched to that depth, got "
                f"{horizon}: raise depth, or lower the horizon"
            )
        offered = self.offered
        if idle and offered is not None:
            offered = np.concatenate([offered, np.ones((len(offered), 1), dtype=bool)], axis=1)
        return TabularMDP(
            transitions=self.with_idle if idle else self.transitions,
            utility=utility,
            horizon=horizon,
            start=self.start,
            terminal_utility=terminal,
            offered=offered,
        )

    @cached_property
    def choices(self) -> tuple[Numbers, Numbers]:
        """For each state, the number of offered actions, ``[S]``, and a list of all actions, offered ones first, ``[S,
        A]``.

        A random offered action of state s is therefore entry ``[s, i]`` of the list, with i below the number.
        """
        offered = np.ones((self.states, self.actions), dtype=bool) if self.offered is None else self.offered
        return offered.sum(axis=1), np.argsort(~offered, axis=1, kind="stable")

    @cached_property
    def with_idle(self) -> Any:
        """The transitions, in the form of `transitions`, with one more action at the end, which changes nothing."""
        states = len(self.start)
        if isinstance(self.transitions, np.ndarray):
            return np.concatenate([self.transitions, np.arange(states)[:, None]], axis=1)
        from scipy.sparse import csr_array

        rows = self.transitions.tocoo()
        actions = rows.shape[0] // states
        state, action = np.divmod(rows.row, actions)
        own_state = np.arange(states)
        source = np.concatenate([state * (actions + 1) + action, own_state * (actions + 1) + actions])
        probabilities, targets = np.concatenate([rows.data, np.ones(states)]), np.concatenate([rows.col, own_state])
        return csr_array((probabilities, (source, targets)), shape=(states * (actions + 1), states))

    def draw_start(self, count: int, rng: np.random.Generator) -> Numbers:
        """Draw the first states (their numbers) of several episodes, ``[count]``.

        No random number is used if there is only one possible first state.
        """
        possible = np.flatnonzero(self.start)
        if len(possible) == 1:
            return np.full(count, possible[0], dtype=np.int64)
        total = np.cumsum(self.start[possible])
        drawn = np.searchsorted(total, rng.random(count) * total[-1], side="right")
        return np.asarray(possible[np.minimum(drawn, len(possible) - 1)], dtype=np.int64)

    def draw_next(self, state: Numbers, action: Numbers, rng: np.random.Generator) -> Numbers:
        """Draw the next states (their numbers) ``[N]`` of N agents, given the state ``[N]`` and the action ``[N]`` of
        each.

        No random number is used in a deterministic process.
        """
        if not self.chance:
            return np.asarray(self.transitions[state, action])
        total, ends, targets = self._cumulative
        row = state * self.actions + action
        low = np.where(ends[row] > 0, total[ends[row] - 1], 0.0)
        high = total[ends[row + 1] - 1]
        position = np.searchsorted(total, low + rng.random(len(row)) * (high - low), side="right")
        return np.asarray(targets[np.clip(position, ends[row], ends[row + 1] - 1)], dtype=np.int64)

    @cached_property
    def _cumulative(self) -> tuple[Array, Numbers, Numbers]:
        """Cumulative probabilities over all transitions, the first transition of each row, and the next states."""
        matrix = self.transitions.tocsr()
        matrix.sum_duplicates()
        return np.cumsum(matrix.data), matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


def process_of(world: World) -> Process | None:
    """Return the decision process of a world, or None if the world does not provide one.

    Fog is ignored: the process is that of the fully observed world.

    Raises:
        TypeError: if the world's method ``process()`` returns something else.
    """
    if "tasks" in world.offers:
        return task_process(world.task_map)
    if "grid" in world.offers:
        return grid_process(world.grid)
    process = world.process()
    if process is not None and not isinstance(process, Process):
        raise TypeError(f"process() of a world must return a Process or None, got {type(process).__name__}")
    return process


@forgets_kinds
@lru_cache(maxsize=4096)
def grid_process(grid: Grid) -> Process:
    """Return the decision process of a grid in which reaching the goal ends the episode; states are as in `from_grid`.

    Raises:
        ValueError: if the grid shows no goal or no agent.
    """
    if grid.goal is None:
        raise ValueError("the decision process of a grid needs its goal, got a grid without one: mark its cell with G")
    table = transitions(grid).astype(np.int64)
    goal_states = np.flatnonzero(at_cell(grid, grid.goal))
    table[goal_states] = goal_states[:, None]
    start = np.zeros(len(table))
    start[state_number(grid, initial_state(grid))] = 1.0

    def number(states: Numbers) -> Numbers:
        row, col, phase = states.T
        numbers: Numbers = configuration_index(grid, phase) * grid.walls.size + row * grid.width + col
        return numbers

    return Process(transitions=table, start=start, number=number)


def from_grid(
    grid: Grid, utility: Array | None = None, *, horizon: int, terminal_utility: Array | None = None
) -> TabularMDP:
    """Return a grid as a deterministic Markov decision process whose goal is absorbing.

    State ``phase * H * W + row * W + col`` combines a cell of the H by W grid with a phase: 0 without the key, 1 with
    the key, 2 once the door is open. Plain grids have one phase. No transition leads to a wall.

    Args:
        grid: a grid that shows its agent and its goal.
        utility: as in `TabularMDP`; by default 1 for each decision that begins at the goal.
        horizon: number of decisions.
        terminal_utility: ``[S]`` utility of the state after the last decision, or None.

    Raises:
        ValueError: if the grid shows no agent or no goal, or lies under fog, or `TabularMDP` refuses the process.
    """
    if grid.fog is not None:
        raise ValueError("a decision process needs the whole grid with its goal, got one under fog")
    process = grid_process(grid)
    if utility is None:
        assert grid.goal is not None  # `grid_process` refuses a grid without one
        utility = at_cell(grid, grid.goal)
    return process.mdp(utility, horizon, terminal=terminal_utility)


def at_cell(grid: Grid, cell: Position) -> Array:
    """Return the utility ``[S]`` of being at a cell, for `from_grid`: 1 in all states at that cell, 0 in all others.

    Args:
        grid: the grid.
        cell: the cell, (row, col).

    Raises:
        ValueError: the cell lies outside the grid.
    """
    row, col = grid.check_cell(cell, "cell")
    indicator = np.zeros((phases(grid), grid.height, grid.width))
    indicator[:, row, col] = 1.0
    return indicator.reshape(-1)


class TaskProcess:
    """The transitions of a task map: a grid with tasks on some cells, which have to be done in some order.

    A node is a task on one cell of the map. The agent achieves it by standing on its cell while all nodes of one of its
    prerequisite sets are achieved. A state is the cell of the agent with the nodes achieved so far. Achieving the goal
    ends the episode, so states in which it is achieved are absorbing. A blocked move does not change the state.

    Attributes:
        task_map: the map.
        states: the S reachable states: pairs of a cell's index on the map's `Board` and the bits of the achieved nodes;
            the first is the start.
        next: ``[S, 4]`` int64, the number of the state after each move.
        start: ``[S]`` probabilities of the first state.

    Raises:
        ValueError: if the map has more than 500,000 states.
    """

    def __init__(self, task_map: TaskMap) -> None:
        self.task_map = task_map
        board = task_map.board
        self.states = [(board.start, 0)]
        numbers = {self.states[0]: 0}
        rows = list[list[int]]()
        for cell, achieved in self.states:  # the list grows during the loop
            row = []
            for action in ACTIONS:
                target = cell + board.offsets[action]
                after = (target, self._entered(target, achieved)) if board.open[target] else (cell, achieved)
                after = (cell, achieved) if achieved & board.goals == board.goals else after
                if after not in numbers:
                    if len(numbers) >= MOST_STATES:
                        raise ValueError(
                            f"a task map must have at most {MOST_STATES:,} pairs of cell and achieved nodes, got more "
                            f"on {len(task_map.cells)} cells with {len(task_map.nodes)} nodes: use a smaller map"
                        )
                    numbers[after] = len(numbers)
                    self.states.append(after)
                row.append(numbers[after])
            rows.append(row)
        self.next = np.array(rows, dtype=np.int64)
        self.start = freeze((np.arange(len(self.states)) == 0).astype(np.float64))

    def _entered(self, cell: int, achieved: int) -> int:
        number = self.task_map.board.node_at.get(cell)
        if number is None:
            return achieved
        return achieved | self.task_map.board.met(number, achieved) << number

    @cached_property
    def _bits(self) -> npt.NDArray[np.int64]:
        return np.array([achieved for _, achieved in self.states], dtype=np.int64)

    def achieved(self, node: str = "") -> npt.NDArray[np.float64]:
        """Return ``[S]`` 1 in the states in which a node (a task on one cell) is achieved, 0 in the others.

        Args:
            node: name of the node; "" for all goals together.

        Raises:
            ValueError: if the map has no such node.
        """
        names = self.task_map.board.names
        if not node:
            goals = self.task_map.board.goals
            return np.asarray(self._bits & goals == goals, dtype=np.float64)
        if node not in names:
            raise ValueError(f"a node must be one of the map's ({', '.join(names)}), got {node[:60]!r}")
        return np.asarray(self._bits >> names.index(node) & 1, dtype=np.float64)

    def process(self, node: str = "", *, horizon: int | None = None) -> TabularMDP:
        """Return the decision process with a utility of 1 for each step that begins with a node (a task) achieved.

        Args:
            node: name of a goal or sub-goal; "" for all goals together.
            horizon: number of decisions; None for the number of steps that the map allows.
        """
        steps = self.task_map.budget if horizon is None else horizon
        return TabularMDP.deterministic(self.next, utility=self.achieved(node), horizon=steps, start=self.start)

    def utility_of(self, actions: list[int | None], node: str = "", *, horizon: int | None = None) -> float:
        """Return the utility of a recorded episode: the number of steps, up to the horizon, that begin with a node
        achieved.

        Args:
            actions: the moves; None stands for a turn without a move, which changes nothing.
            node: name of a goal or sub-goal; "" for all goals together.
            horizon: number of decisions; None for the number of steps that the map allows. An episode that ended at the
                goal counts as staying there until the horizon; an episode that stopped earlier counts as standing
                still.
        """
        steps = self.task_map.budget if horizon is None else horizon
        utility, state, total = self.achieved(node), 0, 0.0
        for step in range(steps):
            total += float(utility[state])
            action = actions[step] if step < len(actions) else None
            state = state if action is None else int(self.next[state, action])
        return total


@lru_cache(maxsize=256)
def process_of_map(task_map: TaskMap) -> TaskProcess:
    """Return the states and transitions of a task map; the result is cached."""
    return TaskProcess(task_map)


@lru_cache(maxsize=4096)
def random_walk_success(task_map: TaskMap) -> float:
    """Return the probability that a random walk achieves all goals of a task map within the steps that it allows.

    In each cell, the walk takes every open direction with equal probability. Let ``p_t`` be the distribution over the
    states of `TaskProcess` before step t, and P the transition matrix, in which states with the goal achieved are
    absorbing. The result is the probability of these states under ``p_0 P**budget``. It is the chance level for an
    agent's success.

    Args:
        task_map: the map.

    Raises:
        ValueError: if the map has more than 500,000 states.
    """
    from scipy.sparse import csr_array

    process = TaskProcess(task_map)
    achieved, before = process.achieved(), np.arange(len(process.states))
    moved = process.next != before[:, None]  # a blocked move does not change the state
    start, action = np.nonzero(moved)
    goal = np.flatnonzero(achieved)
    probabilities = np.concatenate([1 / moved.sum(axis=1)[start], np.ones(len(goal))])
    indices = np.concatenate([process.next[start, action], goal]), np.concatenate([start, goal])
    backwards = csr_array((probabilities, indices), shape=(len(before), len(before)))
    mass = (before == 0).astype(np.float64)
    for _ in range(task_map.budget):
        mass = np.asarray(backwards @ mass)
    return float(min(1.0, mass @ achieved))


@lru_cache(maxsize=256)
def task_process(task_map: TaskMap) -> Process:
    """Return the decision process of a task map with its goals by name.

    The goals are "goal" (all goals of the map), "sub-goals" (the number of achieved nodes that are no goals), and each
    node (a task on one cell) alone.

    Raises:
        ValueError: if the map has more than 500,000 states.
    """
    task = process_of_map(task_map)
    other_nodes = [task.achieved(node) for node in task_map.nodes if node not in task_map.goals]
    return Process(
        transitions=task.next,
        start=task.start,
        number=None,  # a recorded state is only a cell; it does not say which nodes are achieved
        goals={
            "goal": task.achieved(),
            SUB_GOALS: np.asarray(np.sum(other_nodes, axis=0)) if other_nodes else np.zeros(len(task.states)),
            **{f"node {node}": task.achieved(node) for node in task_map.nodes},
        },
        asked=("goal", SUB_GOALS),
    )
