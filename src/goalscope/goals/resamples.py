"""Weights of worlds for the mean over a cell, for bootstrap resamples of its grids, and for random halves of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope._ground.spill import Spill
from goalscope.stats.columns import narrowed

Array = npt.NDArray[np.float64]

RESAMPLES: Final = 2000
HALVES: Final = 50
WORLDS: Final = 4096
"""Number of worlds that are averaged at a time; larger sums are added up in such batches."""
_DRAWN: Final = 100  # resamples drawn at a time
_PRODUCT: Final = (
    1 << 20
)  # cells of weights that are multiplied at a time, in blocks of a multiple of so many resamples:
_FEWEST: Final = 80  # products of few rows are summed in another order, and differ in the last bit


def parts_of_worlds(count: int) -> Iterator[slice]:
    """Yield slices that divide ``count`` worlds into batches of at most `WORLDS`."""
    return (slice(begin, min(begin + WORLDS, count)) for begin in range(0, count, WORLDS))


class _SpilledCounts:
    """Counts ``[R, C]`` below 256 in a temporary file, read by slices of rows and columns."""

    def __init__(self, spill: Spill) -> None:
        self._spill, self._rows = spill, list[int]()

    def add(self, rows: npt.NDArray[np.integer]) -> None:
        self._rows += [self._spill.add(row.tobytes()) for row in rows.astype(np.uint8)]

    def __getitem__(self, cells: tuple[slice, slice]) -> npt.NDArray[np.integer]:
        rows, columns = cells
        pieces = [self._spill.read(number, columns.start, columns.stop) for number in self._rows[rows]]
        return np.frombuffer(b"".join(pieces), dtype=np.uint8).reshape(len(pieces), -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resampled:
    """Weights ``[R, U]`` of worlds in resamples of their grids, stored as counts of the grids; each row sums to 1.

    ``weights @ values`` is the matrix product with values ``[U]`` or ``[U, K]``.
    """

    counts: "npt.NDArray[np.integer] | npt.NDArray[np.bool_] | _SpilledCounts"  # [R, C], of the smallest type
    drawn: npt.NDArray[np.int64]  # [R] the sum of each row of counts
    grid: npt.NDArray[np.int64]  # [U] the grid of each world
    within: Array  # [U] one part of as many as there are worlds of that grid

    def __len__(self) -> int:
        return len(self.drawn)

    def of(self, worlds: slice) -> "Resampled":
        """Return the resamples restricted to some of the worlds."""
        return replace(self, grid=self.grid[worlds], within=self.within[worlds])

    def __matmul__(self, values: Array) -> Array:
        result = np.zeros((len(self), *values.shape[1:]))
        for worlds in parts_of_worlds(len(self.grid)):
            part = self.of(worlds)
            rows = max(_FEWEST, _PRODUCT // len(part.grid) // _FEWEST * _FEWEST)
            for at in range(0, len(self), rows):
                result[at : at + rows] += part.normalized(slice(at, at + rows)) @ values[worlds]
        return result

    def normalized(self, rows: slice) -> Array:
        """Return the weights ``[R', U]`` of some resamples as an array."""
        first, last = int(self.grid.min()), int(self.grid.max()) + 1
        chosen: Array = self.counts[rows, first:last][:, self.grid - first] * self.within
        chosen /= self.drawn[rows, None]
        return chosen

    def total(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Sum whole numbers ``[U]`` over the worlds that occur in each resample, ``[R]``."""
        result = np.zeros(len(self), dtype=np.int64)
        for worlds in parts_of_worlds(len(self.grid)):
            result += (self.of(worlds).normalized(slice(0, len(self))) > 0) @ values[worlds]
        return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """Weights of U worlds in C grids: each grid has the same weight, divided equally among its worlds."""

    whole: Array  # [1, U]
    resampled: Resampled  # [RESAMPLES, U] grids drawn with replacement; empty with fewer than two grids
    first: Resampled  # [HALVES, U] one half of random splits of the grids; empty with fewer than two
    second: Resampled  # [HALVES, U] the other half
    grids: int


def weigh(clusters: Sequence[str], *, seed: int, spill: Spill) -> Weights:
    """Compute the weights of worlds; cells with the same number of grids use the same random draws.

    Args:
        clusters: ``[U]`` grid of each world.
        seed: root seed of the draws.
        spill: temporary file for the draws of large cells.
    """
    _, code, size = np.unique(np.array(clusters, dtype=str), return_inverse=True, return_counts=True)
    count = len(size)
    within = 1 / size[code]
    none = Resampled(counts=np.zeros((0, count), dtype=np.uint8), drawn=np.zeros(0, np.int64), grid=code, within=within)
    whole = replace(none, counts=np.ones((1, count), dtype=np.uint8), drawn=np.array([count])).normalized(slice(0, 1))
    if count < 2:
        return Weights(whole=whole, resampled=none, first=none, second=none, grids=count)
    order = stream(seed, "halves of grids", count).permuted(np.tile(np.arange(count), (HALVES, 1)), axis=1)
    half = order < count // 2
    first, second = (replace(none, counts=side, drawn=side.sum(axis=1)) for side in (half, ~half))
    resampled = replace(none, counts=_drawn(count, seed, spill), drawn=np.full(RESAMPLES, count))
    return Weights(whole=whole, resampled=resampled, first=first, second=second, grids=count)


def _drawn(count: int, seed: int, spill: Spill) -> "npt.NDArray[np.integer] | _SpilledCounts":
    """Draw how often each grid occurs in each resample, ``[RESAMPLES, C]``."""
    rng, even = stream(seed, "resampled grids", count), np.full(count, 1 / count)
    drawn = (rng.multinomial(count, even, size=_DRAWN) for _ in range(0, RESAMPLES, _DRAWN))
    if count <= WORLDS:
        return np.concatenate([narrowed(part, int(part.max()) + 1) for part in drawn])
    counts = _SpilledCounts(spill)
    for part in drawn:
        counts.add(part)
    return counts
