"""The exact length of the shortest walk that achieves the goal of a task map.

A shortest walk is a sequence of nodes, each achieved on arrival, with shortest paths in between: nodes that are met on
the way are achieved in passing, which never hurts, since an achieved set never shrinks. So a search over (last node,
set of achieved nodes) is exact; the tests compare it with a search over every cell and every set.
"""

from heapq import heappop, heappush

from goalscope.worlds.tasks.taskmap import TaskMap

MOST_PLANNED_NODES = 20
"""Most nodes of a map that is planned exactly: the number of achieved sets doubles with each node."""


def shortest_order(task_map: TaskMap) -> tuple[int, tuple[str, ...]]:
    """Return the number of moves of a shortest successful walk, and an order of nodes that it takes.

    Args:
        task_map: the map; its budget plays no part.

    Raises:
        ValueError: more than `MOST_PLANNED_NODES` nodes.
    """
    board = task_map.board
    count = len(board.names)
    if count > MOST_PLANNED_NODES:
        raise ValueError(f"an exact plan must have at most {MOST_PLANNED_NODES} nodes, got {count}")
    fields = [board.field(board.open, place) for place in board.places]  # symmetric: moves can be undone
    begin = (count, 0)  # number of the last node (count stands for the start), achieved set
    best = {begin: 0}
    before: dict[tuple[int, int], tuple[int, int]] = {}
    waiting = [(0, begin)]
    while waiting:
        length, state = heappop(waiting)
        last, achieved = state
        if length > best[state]:
            continue
        if last == board.goal:
            order = []
            while state != begin:
                order.append(board.names[state[0]])
                state = before[state]
            return length, tuple(reversed(order))
        here = board.start if last == count else board.places[last]
        for number, options in enumerate(board.options):
            if achieved >> number & 1 or (options and all(option & ~achieved for option in options)):
                continue
            following = (number, achieved | 1 << number)
            further = length + fields[number][here]
            if further < best.get(following, further + 1):
                best[following] = further
                before[following] = state
                heappush(waiting, (further, following))
    raise AssertionError("every node of a checked task map can be achieved")
