"""One agent's episodes in the worlds of a cell, and the curves of these worlds mixed in every way that is asked for."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.curves import CurveTable, Mixture
from goalscope.measures.goals.resample import Weights

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """What one agent got in the worlds of a cell under one hypothesis.

    Attributes:
        units: numbers of the U worlds, in the order of their ids.
        counts, means: ``[U]`` number of episodes and mean utility in each.
        episodes: numbers of all episodes, world by world.
        first: ``[U]`` one episode of each world, whose tags its row carries.
    """

    units: tuple[int, ...]
    counts: npt.NDArray[np.int64]
    means: Array
    episodes: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]

    def only(self, units: tuple[int, ...]) -> "Sample":
        """Return the sample of some of its worlds."""
        kept = np.array([number in units for number in self.units])
        return Sample(
            units=units,
            counts=self.counts[kept],
            means=self.means[kept],
            episodes=self.episodes[np.repeat(kept, self.counts)],
            first=self.first[kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixed:
    """The curves of some worlds in all the weightings that are asked for."""

    curves: CurveTable
    weights: Weights
    whole: Mixture
    resampled: Mixture
    first: Mixture
    second: Mixture

    @classmethod
    def of(cls, curves: CurveTable, weights: Weights) -> "Mixed":
        """Mix the curves with all weights."""
        return cls(
            curves=curves,
            weights=weights,
            whole=curves.mixed(weights.whole),
            resampled=curves.mixed(weights.resampled),
            first=curves.mixed(weights.first),
            second=curves.mixed(weights.second),
        )


def cross_fitted(relative: Array, counts: npt.NDArray[np.int64], mixed: Mixed) -> float:
    """Return the mean score of one half at the rationality of the other; NaN with fewer than two grids.

    The utility that a rationality is fitted to counts one random episode more than there were: an agent that was
    optimal in one half has an infinite rationality, and one slip in the other would cost infinitely much. Utilities
    beyond the attainable (on a believed map, through whose walls the agent walked) count as the end.
    """
    weights = mixed.weights
    if weights.grids < 2:
        return math.nan
    scores = []
    halves = ((weights.first, mixed.first), (weights.second, mixed.second))
    for (fitted, curve), (held, other) in (halves, halves[::-1]):
        episodes = (fitted > 0) @ counts
        beta = curve.fit(curve.within(fitted @ relative) * episodes / (episodes + 1))[1]
        scores.append(beta * other.within(held @ relative) - other.at(beta))
    return float(np.mean(scores))
