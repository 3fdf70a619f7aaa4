"""W of many worlds at the same rationalities, computed once and shared by agents, cells and resamples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.checks import freeze
from goalscope.measures.goals.resample import Weights
from goalscope.meg import RationalityCurve
from goalscope.meg.conjugate import quintic

Array = npt.NDArray[np.float64]

TOP = 40.0
"""Greatest finite rationality in nats per unit of utility. Utilities here are whole numbers, so that beyond it the
soft policy misses its limit by less than exp(-40)."""
_FINE, _COARSE = 0.12, 0.3  # spacing of the rationalities on a scale that is linear near 0 and logarithmic far out
_LINEAR = 0.05  # nats per unit of utility where that scale turns
_HALVINGS = 34  # of the search between two rationalities
_AT_END = 1e-12


def rationalities() -> Array:
    """Return ``[K]`` the rationalities at which curves are kept, 0 among them; denser where agents seek utility."""
    reach = math.asinh(TOP / _LINEAR)
    above = np.linspace(0.0, reach, math.ceil(reach / _FINE) + 1)
    below = np.linspace(-reach, 0.0, math.ceil(reach / _COARSE) + 1)
    return np.asarray(_LINEAR * np.sinh(np.concatenate([below[:-1], above])))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorldCurve:
    """W of one world, relative to the uniform policy.

    Attributes:
        uniform: expected utility of the uniform policy.
        low, high: least and greatest attainable utility less ``uniform``.
        bound_low, bound_high: MEG of policies at those ends, nats.
        values: ``[3, K]`` W, W' and W'' at `rationalities`.
    """

    uniform: float
    low: float
    high: float
    bound_low: float
    bound_high: float
    values: Array

    @classmethod
    def of(cls, curve: RationalityCurve) -> "WorldCurve":
        """Compute the table of one world."""
        soft, span = curve.soft, curve.span
        values = np.stack(soft.backup(rationalities() * span)) * np.array([1.0, span, span * span])[:, None]
        return cls(
            uniform=curve.uniform,
            low=soft.low * span,
            high=soft.high * span,
            bound_low=curve.bound_lowest,
            bound_high=curve.bound,
            values=freeze(values),
        )


class CurveTable:
    """Curves of U worlds that are mixed with weights.

    Between rationalities stands the polynomial of degree five through W, W' and W'' on both sides.

    Attributes:
        uniform: ``[U]`` expected utility of the uniform policy.
        count: number of worlds U.

    Args:
        curves: one for each world.
    """

    def __init__(self, curves: Sequence[WorldCurve]) -> None:
        self.count = len(curves)
        self.uniform = freeze(np.array([curve.uniform for curve in curves]))
        self._knots = rationalities()
        self._values = np.stack([curve.values for curve in curves])  # [U, 3, K]
        # Least and greatest utility, and the bounds there.
        self._ends = np.array([[c.low, c.high, c.bound_low, c.bound_high] for c in curves])

    def mixed(self, weights: Array) -> "Mixture":
        """Return the weighted means of the curves.

        Args:
            weights: ``[B, U]``, each row >= 0 with sum 1.
        """
        flat = weights @ self._values.reshape(self.count, -1)
        return Mixture(
            values=flat.reshape(len(weights), 3, len(self._knots)),
            ends=np.asarray(weights @ self._ends),
            knots=self._knots,
        )

    def terms(self, beta: float, relative: Array) -> Array:
        """Return ``[U]`` ``beta u - W(beta)`` of each world in nats; at an infinite beta its bound at that end.

        Args:
            beta: rationality in nats per unit of utility.
            relative: ``[U]`` utility of the agent less that of the uniform policy.
        """
        if math.isinf(beta):
            return np.asarray(self._ends[:, 3 if beta > 0 else 2]).copy()
        each = Mixture(values=self._values, ends=self._ends, knots=self._knots)
        found: Array = beta * relative - each.at(np.full(self.count, beta))
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixture:
    """B weighted means of curves.

    Attributes:
        values: ``[B, 3, K]`` W, W' and W'' at the knots.
        ends: ``[B, 4]`` least and greatest relative utility, and the bounds there.
        knots: ``[K]`` rationalities.
    """

    values: Array
    ends: Array
    knots: Array

    def fit(self, relative: Array) -> tuple[Array, Array]:
        """Return the supremum over beta of ``beta u - W(beta)`` with the sign of u, and its beta, ``[B]`` each.

        Args:
            relative: ``[B]`` utility less that of the uniform policy; beyond an end counts as at the end.
        """
        count, last = len(relative), len(self.knots) - 1
        slopes = self.values[:, 1]
        low, high, bound_low, bound_high = self.ends.T
        index = np.clip((slopes <= relative[:, None]).sum(axis=1) - 1, 0, last - 1)
        left, right = np.zeros(count), np.ones(count)
        shape = self._shape(index)
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            below = _slope(shape, middle) < relative
            left, right = np.where(below, middle, left), np.where(below, right, middle)
        share = (left + right) / 2
        beta = self.knots[index] + share * (self.knots[index + 1] - self.knots[index])
        value = beta * relative - _value(shape, share)
        still = (relative == 0) | (high - low <= 0)
        top, bottom = relative >= high * (1 - _AT_END), relative <= low * (1 - _AT_END)
        value = np.select([still, top, bottom], [np.zeros(count), bound_high, bound_low], np.maximum(value, 0.0))
        beta = np.select(
            [still, top, bottom], [np.zeros(count), np.full(count, math.inf), np.full(count, -math.inf)], beta
        )
        return np.where(relative < 0, 0.0 - value, value), beta

    def at(self, beta: Array) -> Array:
        """Return ``[B]`` W at one finite rationality for each mixture."""
        index = np.clip(np.searchsorted(self.knots, beta, side="right") - 1, 0, len(self.knots) - 2)
        share = (beta - self.knots[index]) / (self.knots[index + 1] - self.knots[index])
        return _value(self._shape(index), share)

    def bounds(self) -> tuple[Array, Array]:
        """Return ``[B]`` the bounds at the upper and at the lower end, nats."""
        return self.ends[:, 3], self.ends[:, 2]

    def within(self, relative: Array) -> Array:
        """Return ``[B]`` utilities less that of the uniform policy, moved to the attainable range where beyond it."""
        low, high = self.ends.T[:2]
        inside: Array = np.clip(relative, low, high)
        return inside

    def repeated(self, count: int) -> "Mixture":
        """Return the first mixture as often as asked for."""
        shape = (count, *self.values.shape[1:])
        return Mixture(
            values=np.broadcast_to(self.values[:1], shape),
            ends=np.broadcast_to(self.ends[:1], (count, 4)),
            knots=self.knots,
        )

    def _shape(self, index: npt.NDArray[np.intp]) -> tuple[Array, Array]:
        """Return the coefficients ``[6, B]`` of the polynomials right of a knot, and the intervals' widths ``[B]``."""
        rows = np.arange(len(index))
        width = self.knots[index + 1] - self.knots[index]
        scale = np.stack([np.ones_like(width), width, width**2])
        ends = (self.values[rows, :, knot].T * scale for knot in (index, index + 1))
        return quintic(*ends), width


def _value(shape: tuple[Array, Array], share: Array) -> Array:
    c, _ = shape
    found: Array = c[0] + share * (c[1] + share * (c[2] + share * (c[3] + share * (c[4] + share * c[5]))))
    return found


def _slope(shape: tuple[Array, Array], share: Array) -> Array:
    c, width = shape
    inner = c[1] + share * (2 * c[2] + share * (3 * c[3] + share * (4 * c[4] + share * 5 * c[5])))
    found: Array = inner / width
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentSample:
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

    def only(self, units: tuple[int, ...]) -> "AgentSample":
        """Return the sample of some of its worlds."""
        kept = np.array([number in units for number in self.units])
        return AgentSample(
            units=units,
            counts=self.counts[kept],
            means=self.means[kept],
            episodes=self.episodes[np.repeat(kept, self.counts)],
            first=self.first[kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurveEnsemble:
    """The curves of some worlds under several weightings: all worlds, resamples of grids, halves of them."""

    curves: CurveTable
    weights: Weights
    whole: Mixture
    resampled: Mixture
    first: Mixture
    second: Mixture

    @classmethod
    def of(cls, curves: CurveTable, weights: Weights) -> "CurveEnsemble":
        """Mix the curves with all weights."""
        return cls(
            curves=curves,
            weights=weights,
            whole=curves.mixed(weights.whole),
            resampled=curves.mixed(weights.resampled),
            first=curves.mixed(weights.first),
            second=curves.mixed(weights.second),
        )


def cross_fitted(relative: Array, counts: npt.NDArray[np.int64], ensemble: CurveEnsemble) -> float:
    """Return the mean score of one half at the rationality of the other; NaN with fewer than two grids.

    The utility that a rationality is fitted to counts one random episode more than there were: an agent that was
    optimal in one half has an infinite rationality, and one slip in the other would cost infinitely much. Utilities
    beyond the attainable (on a believed map, through whose walls the agent walked) count as the end.
    """
    weights = ensemble.weights
    if weights.grids < 2:
        return math.nan
    scores = []
    halves = ((weights.first, ensemble.first), (weights.second, ensemble.second))
    for (fitted, curve), (held, other) in (halves, halves[::-1]):
        episodes = (fitted > 0) @ counts
        beta = curve.fit(curve.within(fitted @ relative) * episodes / (episodes + 1))[1]
        scores.append(beta * other.within(held @ relative) - other.at(beta))
    return float(np.mean(scores))
