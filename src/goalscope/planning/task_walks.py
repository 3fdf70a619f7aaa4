"""The exact success of a random walker on a task map: what an agent's success there is held against."""

from functools import lru_cache
from typing import Final

import numpy as np

from goalscope.worlds.tasks.coordinates import Board
from goalscope.worlds.tasks.taskmap import TaskMap

_MOST_STATES: Final = 500_000


@lru_cache(maxsize=4096)
def random_walk_success(task_map: TaskMap) -> float:
    """Return the chance that a random walker achieves the goal within the budget of a map.

    It takes each open direction with equal probability. Its state is its cell and the set of achieved nodes; with
    ``p_t`` the distribution over states before step t and P the transition matrix, in which states with the goal
    achieved stay, the chance is the mass of these states in ``p_0 P**budget``.

    Args:
        task_map: the map.

    Raises:
        ValueError: more than 500,000 pairs of cell and achieved set can be reached.
    """
    from scipy.sparse import csr_array

    board = task_map.board
    states: dict[tuple[int, int], int] = {(board.start, 0): 0}
    rows, columns, chances = list[int](), list[int](), list[float]()
    listed = list(states)
    for number, (place, achieved) in enumerate(listed):  # it grows while it is read
        if achieved >> board.goal & 1:
            after = [(place, achieved)]
        else:
            ways = [place + offset for offset in board.offsets if board.open[place + offset]]
            after = [(way, _on_arrival(board, way, achieved)) for way in ways]
        for state in after:
            if state not in states:
                states[state] = len(states)
                listed.append(state)
            rows.append(number)
            columns.append(states[state])
            chances.append(1 / len(after))
        if len(states) > _MOST_STATES:
            raise ValueError(
                f"a map must have at most {_MOST_STATES:,} pairs of cell and achieved nodes for an exact chance, got "
                f"more for {len(task_map.cells)} cells and {len(task_map.nodes)} nodes"
            )
    backwards = csr_array((chances, (columns, rows)), shape=(len(states), len(states)))
    mass = np.zeros(len(states))
    mass[0] = 1.0
    for _ in range(task_map.budget):
        mass = np.asarray(backwards @ mass)
    done = np.array([bool(achieved >> board.goal & 1) for _, achieved in listed])
    return float(min(1.0, mass[done].sum()))


def _on_arrival(board: Board, place: int, achieved: int) -> int:
    """Return the set of achieved nodes once a cell is entered."""
    number = board.node_at.get(place)
    if number is None:
        return achieved
    options = board.options[number]
    met = not options or any(option & achieved == option for option in options)
    return achieved | 1 << number if met else achieved
