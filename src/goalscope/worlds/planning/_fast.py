"""Breadth-first search in many grids at once, with each row of cells packed into one machine word.

A few word operations advance the whole search front by one step. The plain version is
`worlds.planning.shortest.distances`; tests check that both agree.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

UNREACHABLE = -1


def spread_words(walls: npt.NDArray[np.bool_], goal: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Return the number of steps from each cell to the goal, ``[B, H, W]`` int32, -1 if the goal cannot be reached.

    Args:
        walls: ``[B, H, W]`` bool, W at most 64.
        goal: ``[B, 2]`` (row, col) of each goal.
    """
    count, _, width = walls.shape
    word = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if np.dtype(kind).itemsize * 8 >= width)
    bits = np.dtype(word).itemsize * 8
    weights = (np.uint64(1) << np.arange(width, dtype=np.uint64)).astype(word)
    closed = (walls * weights).sum(axis=2, dtype=word)  # [B, H]: walls and cells already reached
    if width < bits:
        closed |= word((1 << bits) - (1 << width))
    front = np.zeros_like(closed)
    front[np.arange(count), goal[:, 0]] = weights[goal[:, 1]]
    closed |= front
    unit = word(1)
    reached = front.copy()
    planes: list[npt.NDArray[Any]] = []  # plane k contains bit k of every cell's distance
    level = 0
    while True:
        level += 1
        step = (front << unit) | (front >> unit)
        step[:, 1:] |= front[:, :-1]
        step[:, :-1] |= front[:, 1:]
        front = step & ~closed
        if not front.any():
            break
        closed |= front
        reached |= front
        if level >> len(planes):
            planes.append(np.zeros_like(closed))
        for bit, plane in enumerate(planes):
            if level >> bit & 1:
                plane |= front
    distance = np.zeros(walls.shape, dtype=np.int32)
    for bit, plane in enumerate(planes):
        distance |= _unpack(plane, width).astype(np.int32) << np.int32(bit)
    distance[_unpack(reached, width) == 0] = UNREACHABLE
    return distance


def _unpack(rows: npt.NDArray[Any], width: int) -> npt.NDArray[np.uint8]:
    """Return the cells ``[B, H, W]`` of rows packed into little-endian words ``[B, H]``."""
    octets = rows.astype(rows.dtype.newbyteorder("<")).view(np.uint8).reshape(*rows.shape, -1)
    return np.unpackbits(octets, axis=2, count=width, bitorder="little")
