"""Exact plans for task maps: the fewest moves that achieve the goal when everything is known from the start."""

from dataclasses import dataclass
from functools import lru_cache

from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks.optimal import MOST_PLANNED_NODES, shortest_order
from goalscope.worlds.tasks.taskmap import TaskMap

__all__ = ["MOST_PLANNED_NODES", "TaskPlan", "optimal_length", "plan_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """A shortest successful walk.

    Attributes:
        length: number of its moves.
        order: the nodes in the order in which it goes to them; further ones may be achieved in passing.
        actions: the moves, the first of the ties in the order of `Action`.
        within_budget: whether the map's budget allows it.
    """

    length: int
    order: tuple[str, ...]
    actions: tuple[Action, ...]
    within_budget: bool


@lru_cache(maxsize=1024)
def plan_task(task_map: TaskMap) -> TaskPlan:
    """Return a shortest walk from the start that achieves the goal, over (cell, set of achieved nodes).

    Args:
        task_map: the map. Its budget plays no part in the plan: `TaskPlan.within_budget` says whether it suffices.

    Raises:
        ValueError: more than `MOST_PLANNED_NODES` nodes.
    """
    length, order = shortest_order(task_map)
    board = task_map.board
    here, actions = board.start, list[Action]()
    for name in order:
        field = board.field(board.open, board.places[board.names.index(name)])
        while field[here] > 0:
            action = next(a for a in ACTIONS if field[here + board.offsets[a]] == field[here] - 1)
            here += board.offsets[action]
            actions.append(action)
    return TaskPlan(length=length, order=order, actions=tuple(actions), within_budget=length <= task_map.budget)


def optimal_length(task_map: TaskMap) -> int:
    """Return the fewest moves that achieve the goal.

    Raises:
        ValueError: more than `MOST_PLANNED_NODES` nodes.
    """
    return plan_task(task_map).length
