"""Task maps as decision processes, whose states are a cell and the nodes achieved so far."""

from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from goalscope.worlds.grid import ACTIONS
from goalscope.worlds.planning.mdp import TabularMDP
from goalscope.worlds.tasks.taskmap import TaskMap

MOST_STATES = 500_000


class TaskProcess:
    """The transitions of a task map over all reachable states (cell, achieved nodes).

    The agent achieves a node by standing on its cell while all nodes of one of its prerequisite sets are achieved. The
    goal ends the episode, so states in which it is achieved are absorbing. A blocked move does not change the state.

    Attributes:
        task_map: the map.
        states: pairs of a cell's index on the map's `Board` and the bits of the achieved nodes; the first is the start.
        next: ``[S, 4]`` int64, the state after each move.

    Raises:
        ValueError: the map has more than 500,000 states.
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

    def _entered(self, cell: int, achieved: int) -> int:
        number = self.task_map.board.node_at.get(cell)
        if number is None:
            return achieved
        options = self.task_map.board.options[number]
        met = not options or any(option & achieved == option for option in options)
        return achieved | met << number

    @cached_property
    def _bits(self) -> npt.NDArray[np.int64]:
        return np.array([achieved for _, achieved in self.states], dtype=np.int64)

    def achieved(self, node: str = "") -> npt.NDArray[np.float64]:
        """Return ``[S]`` 1 in the states in which a node is achieved, 0 elsewhere; "" stands for all goals together.

        Raises:
            ValueError: the map has no such node.
        """
        names = self.task_map.board.names
        if not node:
            goals = self.task_map.board.goals
            return np.asarray(self._bits & goals == goals, dtype=np.float64)
        if node not in names:
            raise ValueError(f"a node must be one of the map's ({', '.join(names)}), got {node[:60]!r}")
        return np.asarray(self._bits >> names.index(node) & 1, dtype=np.float64)

    def process(self, node: str = "", *, horizon: int | None = None) -> TabularMDP:
        """Return the decision process with a utility of 1 for each step that begins with a node achieved.

        Args:
            node: name of a goal or sub-goal; "" for all goals together.
            horizon: number of decisions; None for the map's budget.
        """
        start = np.zeros(len(self.states))
        start[0] = 1.0
        steps = self.task_map.budget if horizon is None else horizon
        return TabularMDP.deterministic(self.next, utility=self.achieved(node), horizon=steps, start=start)

    def utility_of(self, actions: list[int | None], node: str = "", *, horizon: int | None = None) -> float:
        """Return the utility of an episode: the number of steps, up to the horizon, that begin with a node achieved.

        Args:
            actions: the moves; None stands for a turn without a move, which changes nothing.
            node: as in `process`.
            horizon: as in `process`. An episode that ended at the goal counts as staying there until the horizon; an
                episode that stopped earlier counts as standing still.
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
    """Return the process of a task map; the result is cached."""
    return TaskProcess(task_map)


@lru_cache(maxsize=4096)
def random_walk_success(task_map: TaskMap) -> float:
    """Return the probability that a random walk achieves all goals within the budget of a map.

    In each cell, the walk takes every open direction with equal probability. Let ``p_t`` be the distribution over the
    states of `TaskProcess` before step t, and P the transition matrix, in which states with the goal achieved are
    absorbing. The result is the probability of these states under ``p_0 P**budget``. It is the chance level for an
    agent's success.

    Args:
        task_map: the map.

    Raises:
        ValueError: the map has more than 500,000 states.
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
