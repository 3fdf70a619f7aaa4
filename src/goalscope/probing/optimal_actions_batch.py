"""Which actions are optimal on many maps at once, for many places of agent and goal.

Breadth-first search from the goal with one machine word for each row of cells, all maps and goals side by side. An
action is optimal in a cell if it leads to where the search came from. Cells of agent and goal are open whatever the
map says: a closed cell has optimal actions too, but no way leads through it. That the agent's own cell is open changes
no optimal set: no shortest way comes back to where it began.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape

_SEARCHES: Final = 8192  # searches side by side: their words stay near the processor
_WIDEST: Final = 63


def optimal_sets(
    closed: npt.NDArray[np.bool_], agent: npt.NDArray[np.integer], goal: npt.NDArray[np.integer]
) -> npt.NDArray[np.bool_]:
    """Return which actions are optimal for every pair of a candidate cell of the agent and one of the goal.

    Args:
        closed: ``[N, H, W]`` bool, cells where nobody can stand.
        agent: ``[N, P]`` candidate cells ``row * W + col``.
        goal: ``[N, Q]`` candidate cells.

    Returns:
        ``[N, P, Q, 4]`` bool; no action where the goal cannot be reached or is the agent's own cell: no plan.

    Raises:
        ValueError: arrays that do not fit, or maps of more than 63 columns.
    """
    sizes = check_shape("closed", closed, "N H W")
    places = check_shape("agent", agent, "N P", sizes)
    check_shape("goal", goal, "N Q", sizes)
    width, goals = sizes["W"], goal.shape[1]
    found = np.zeros((sizes["N"], places["P"], goals, 4), dtype=bool)
    for some in _chunks(sizes["N"], goals):
        planes = _search(closed[some], goal[some])  # [4, H, M, Q]
        row, col = np.divmod(agent[some], width)  # [M, P]
        member = np.arange(len(row))[:, None]
        words = planes[:, row, member]  # [4, M, P, Q]
        bits = words >> col[..., None].astype(words.dtype) & words.dtype.type(1)
        found[some] = np.moveaxis(bits, 0, -1) != 0
    return found


def expected_optimality(
    closed: npt.NDArray[np.bool_], agent: npt.NDArray[np.floating], goal: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64]:
    """Return how likely each action is optimal, agent and goal standing where they stand with given chances.

    Args:
        closed: ``[N, H, W]`` bool, cells where nobody can stand.
        agent, goal: ``[N, H * W]`` chances of each cell, independent of one another.

    Returns:
        ``[N, 4]``; pairs without a plan count as not optimal.

    Raises:
        ValueError: arrays that do not fit, or maps of more than 63 columns.
    """
    sizes = check_shape("closed", closed, "N H W")
    height, width = sizes["H"], sizes["W"]
    cells = height * width
    for name, given in (("agent", agent), ("goal", goal)):
        check_shape(name, given, "N C", {"N": sizes["N"], "C": cells})
    found = np.zeros((sizes["N"], 4))
    for some in _chunks(sizes["N"], cells):
        count = len(closed[some])
        every = np.broadcast_to(np.arange(cells), (count, cells))
        planes = _search(closed[some], every)
        bits = planes.dtype.itemsize * 8
        octets = planes.astype(planes.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        chance = np.zeros((count, height, bits))
        chance[:, :, :width] = agent[some].reshape(count, height, width)
        weight = goal[some].astype(np.float64)
        # Sums over a row of cells are looked up byte by byte: 256 sums for each byte of each row.
        pattern = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64)
        sums = chance.reshape(count, height, bits // 8, 8) @ pattern.T  # [M, H, bytes, 256]
        octets = octets.reshape(4, height, count, cells, bits // 8)
        for member in range(count):
            part = octets[:, :, member]  # [4, H, Q, bytes]
            for at in range(height):
                for byte in range(bits // 8):
                    found_row = sums[member, at, byte][part[:, at, :, byte]]  # [4, Q]
                    found[some.start + member] += found_row @ weight[member]
    return np.minimum(found, 1.0)


def _search(closed: npt.NDArray[np.bool_], goal: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
    """Return ``[4, H, N, Q]`` words: in which cells of a row each action is optimal."""
    count, height, width = closed.shape
    if width > _WIDEST:
        raise ValueError(f"decoded maps must have at most {_WIDEST} columns, got {width}")
    # One bit more than columns: what is shifted out of a row falls on it, so that several rows can share 64 bits.
    word = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if np.dtype(kind).itemsize * 8 > width)
    weights = (np.uint64(1) << np.arange(width, dtype=np.uint64)).astype(word)
    goals = goal.shape[1]
    searches, each = count * goals, 8 // np.dtype(word).itemsize
    padded = -(-searches // each) * each
    passable = np.zeros((height, padded), dtype=word)
    opened = np.moveaxis((~closed * weights).sum(axis=2, dtype=word), 1, 0)  # [H, N]
    passable[:, :searches] = np.repeat(opened, goals, axis=1)
    front = np.zeros_like(passable)
    row, col = np.divmod(goal.ravel(), width)
    front[row, np.arange(searches)] = weights[col]
    unseen = np.full_like(passable, word(int(weights.sum(dtype=np.uint64))))
    unseen &= ~front
    planes = np.zeros((4, height, padded), dtype=word)
    _spread(front.view(np.uint64), unseen.view(np.uint64), passable.view(np.uint64), planes.view(np.uint64))
    return planes[:, :, :searches].reshape(4, height, count, goals)


def _spread(
    front: npt.NDArray[np.uint64],
    unseen: npt.NDArray[np.uint64],
    passable: npt.NDArray[np.uint64],
    planes: npt.NDArray[np.uint64],
) -> None:
    """Move all search fronts until none moves on; write where each action leads into the front, ``[4, H, words]``."""
    step, found, one = np.empty_like(front), np.empty_like(front), np.uint64(1)
    while np.bitwise_or.reduce(front, axis=0).any():  # `any` of all the words would take longer than a move
        found[...] = 0
        for action in range(4):
            # UP leads to the row above, DOWN to the one below, LEFT to the column before, RIGHT to the one after.
            if action == 0:
                step[0] = 0
                np.bitwise_and(front[:-1], unseen[1:], out=step[1:])
            elif action == 1:
                step[-1] = 0
                np.bitwise_and(front[1:], unseen[:-1], out=step[:-1])
            else:
                (np.left_shift if action == 2 else np.right_shift)(front, one, out=step)
                step &= unseen
            planes[action] |= step
            found |= step
        unseen &= ~found
        np.bitwise_and(found, passable, out=front)


def _chunks(count: int, goals: int) -> Iterator[slice]:
    size = max(1, _SEARCHES // max(1, goals))
    for begin in range(0, count, size):
        yield slice(begin, min(count, begin + size))
