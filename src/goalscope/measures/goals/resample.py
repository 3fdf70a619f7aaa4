"""Weights of worlds: of the whole cell, of resamples of its grids, of halves of them; and intervals from resamples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.rng import stream

Array = npt.NDArray[np.float64]

RESAMPLES = 2000
HALVES = 50
_COUNTED = 10  # resamples beyond 0 from which on they are counted
METHOD = "bootstrap of grids, beta refitted"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """Weights of U worlds in C grids: each grid the same, its worlds equal parts of it.

    Attributes:
        whole: ``[1, U]``.
        resampled: ``[RESAMPLES, U]``, grids drawn with replacement; empty with fewer than two grids.
        first, second: ``[HALVES, U]`` the halves of random splits of the grids; empty with fewer than two.
        grids: number of grids C.
    """

    whole: Array
    resampled: Array
    first: Array
    second: Array
    grids: int


def weigh(grid_ids: Sequence[str], *, seed: int) -> Weights:
    """Return the weights of worlds.

    Args:
        grid_ids: ``[U]`` the grid of each world.
        seed: root seed; cells with the same number of grids share their draws.
    """
    _, code, size = np.unique(np.array(grid_ids, dtype=str), return_inverse=True, return_counts=True)
    count = len(size)
    within = 1 / size[code]

    def normalized(counts: npt.NDArray[np.integer]) -> Array:
        chosen = counts[:, code] * within
        return np.asarray(chosen / counts.sum(axis=1, keepdims=True))

    none = np.zeros((0, len(code)))
    whole = normalized(np.ones((1, count), dtype=np.int64))
    if count < 2:
        return Weights(whole=whole, resampled=none, first=none, second=none, grids=count)
    drawn = stream(seed, "resampled grids", count).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    order = stream(seed, "halves of grids", count).permuted(np.tile(np.arange(count), (HALVES, 1)), axis=1)
    half = (order < count // 2).astype(np.int64)
    return Weights(
        whole=whole, resampled=normalized(drawn), first=normalized(half), second=normalized(1 - half), grids=count
    )


def interval(resampled: Array, grids: int, confidence: float) -> tuple[float, float]:
    """Return the ends of the expanded percentile interval.

    The plain percentile interval of a mean of G values is too narrow: it divides by G in place of G - 1 and uses normal
    quantiles. Its tails are therefore taken at ``Phi(-sqrt(G / (G - 1)) t)``, t the quantile of Student's t.

    Source: Hesterberg, The American Statistician 69 (2015), section 5.3.
    """
    if grids < 2:
        return math.nan, math.nan
    from scipy.special import ndtr, stdtrit

    quantile = float(stdtrit(grids - 1, (1 + confidence) / 2))
    tail = float(ndtr(-math.sqrt(grids / (grids - 1)) * quantile))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def with_random(ends: tuple[float, float], value: float, null: Array, confidence: float) -> tuple[float, float]:
    """Return an interval that holds what random agents show, where the agent cannot be told from them.

    A resample of grids knows nothing of what did not happen: where an agent never came to a place that is rarely come
    to, all resamples agree that it keeps away. Whether random agents with the same counts show as much is a simulated
    exact test; where it does not reject, 0 is a possible truth, and so is what such agents show.

    Args:
        ends: the interval so far.
        value: the signed value.
        null: ``[R]`` signed values of random agents.
        confidence: nominal coverage.
    """
    if random_p(value, null) <= 1 - confidence:
        return ends
    low, high = np.quantile(null, [(1 - confidence) / 2, (1 + confidence) / 2])
    return min(ends[0], float(low), 0.0), max(ends[1], float(high), 0.0)


def random_p(value: float, null: Array) -> float:
    """Return the share of random agents whose unsigned value is at least the agent's, the agent itself counted."""
    return (1 + int((np.abs(null) >= abs(value)).sum())) / (1 + len(null))


def p_value(resampled: Array, value: float, grids: int) -> float:
    """Return the level at which `interval` begins to hold 0, two-sided; NaN with fewer than two grids.

    Where too few resamples lie beyond 0 to be counted, the tail of Student's t at the value in units of the resamples'
    deviation stands in, so that small p values survive a correction for many tests.
    """
    if grids < 2:
        return math.nan
    from scipy.special import ndtri, stdtr

    beyond = min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
    tail = (beyond + 1) / (len(resampled) + 1)
    if tail >= 0.5:
        return 1.0
    stretched = math.sqrt(grids / (grids - 1))
    counted = float(2 * stdtr(grids - 1, float(ndtri(tail)) / stretched))
    std = float(resampled.std()) * stretched
    if beyond >= _COUNTED or std == 0:
        return counted
    return min(counted, float(2 * stdtr(grids - 1, -abs(value) / std)))


def not_below_random(p: float, value: float, null: Array) -> float:
    """Return a p value, not below that of the simulated test where any random agent shows as much."""
    simulated = random_p(value, null)
    return max(p, simulated) if simulated > 1 / (1 + len(null)) else p
