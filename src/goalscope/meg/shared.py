"""One rationality for several worlds: an agent that has one, not a new one for every world.

The mean of per-world suprema is biased: each is >= 0, however random the agent. The supremum of the mean is not, up to
one degree of freedom for all worlds together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, freeze
from goalscope.meg.conjugate import Knots, at_end, meet
from goalscope.meg.curve import ACCURACY, RationalityCurve

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedDirectedness:
    """MEG with one rationality over G worlds.

    Attributes:
        value: the weighted mean of ``terms`` in nats, >= 0.
        signed: the same with the sign of the mean utility less that of the uniform policy.
        beta: the common rationality in nats per unit of utility; infinite at the ends of what is attainable.
        terms: ``[G]`` ``beta u - W(beta)`` of each world at that rationality, nats; single ones may be negative. At an
            infinite beta a world that is not at its end would have ``-inf``; there every world is at its end.
        bound: weighted mean of the worlds' bounds at the end that beta points to (the upper one at beta = 0).
    """

    value: float
    signed: float
    beta: float
    terms: Array
    bound: float


class SharedCurve:
    """The rationality curves of several worlds, asked together.

    Attributes:
        curves: the worlds' curves, G of them. Their utilities must be on one scale: beta is common.

    Args:
        curves: at least one.

    Raises:
        ValueError: no curve.
    """

    def __init__(self, curves: Sequence[RationalityCurve]) -> None:
        if not curves:
            raise ValueError("a shared rationality needs at least one world, got none")
        self.curves = tuple(curves)
        self.uniform = freeze(np.array([curve.uniform for curve in curves]))
        spans = np.array([curve.span for curve in curves])
        self._spans = spans
        self._unit = float(spans.mean()) if spans.any() else 1.0
        self._high = np.array([curve.soft.high for curve in curves]) * spans / self._unit
        self._low = np.array([curve.soft.low for curve in curves]) * spans / self._unit
        self._bounds = np.array([[curve.bound, curve.bound_lowest] for curve in curves])
        self._knots = Knots(self._evaluate, ACCURACY * max(1.0, float(self._bounds.max())))

    def terms(self, beta: float, utilities: npt.ArrayLike) -> Array:
        """Return ``[G]`` ``beta u - W(beta)`` of each world at a rationality, in nats.

        Args:
            beta: in nats per unit of utility; infinite ones give the limit, ``-inf`` in worlds off their end.
            utilities: ``[G]`` expected utility of the agent in each world.
        """
        relative = self._relative(utilities)
        if math.isinf(beta):
            end, column = (self._high, 0) if beta > 0 else (self._low, 1)
            sizes = self._sizes(utilities)
            there = [o == 0 or at_end(r, o, size) for r, o, size in zip(relative, end, sizes, strict=True)]
            return np.where(there, self._bounds[:, column], -math.inf)
        found: Array = beta * self._unit * relative - self._knots(beta * self._unit)[0]
        return found

    def meg(self, utilities: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> SharedDirectedness:
        """Return ``sup over beta of the mean over worlds of beta u - W(beta)``.

        Args:
            utilities: ``[G]`` expected utility (or mean return) of the agent in each world; beyond what is attainable
                in a world, as a mean over few episodes may be, is allowed as long as the mean is not.
            weights: ``[G]`` >= 0, their sum above 0: counts of a resample, or 0 for worlds left out; None for equal.

        Raises:
            ValueError: shapes that disagree, numbers that are not finite, negative weights.
        """
        relative = self._relative(utilities)
        share = self._shares(weights)
        mean, high, low = (float(share @ part) for part in (relative, self._high, self._low))
        upper, lower = (float(share @ column) for column in self._bounds.T)
        size = float(share @ self._sizes(utilities))
        if high - low <= 0 or mean == 0:
            beta = 0.0
        elif at_end(mean, high, size):
            beta = math.inf
        elif at_end(mean, low, size):
            beta = -math.inf
        else:
            beta = meet(lambda b, within: self._mean(b, share, within), mean, low, high)[1] / self._unit
        if math.isinf(beta):  # every world at its end; means of few episodes may lie beyond it
            terms = self._bounds[:, 0 if beta > 0 else 1].copy()
        else:
            terms = beta * self._unit * relative - self._knots(beta * self._unit)[0]
        value = max(0.0, float(share @ terms))
        return SharedDirectedness(
            value=value,
            signed=value if mean >= 0 else 0.0 - value,
            beta=beta,
            terms=freeze(terms),
            bound=upper if beta >= 0 else lower,
        )

    def _relative(self, utilities: npt.ArrayLike) -> Array:
        given = np.asarray(utilities, dtype=np.float64)
        check_shape("utilities", given, "G", {"G": len(self.curves)})
        check_finite("utilities", given)
        relative = (given - self.uniform) / self._unit
        return np.where(self._spans > 0, relative, 0.0)

    def _shares(self, weights: npt.ArrayLike | None) -> Array:
        count = len(self.curves)
        if weights is None:
            return np.full(count, 1 / count)
        given = np.asarray(weights, dtype=np.float64)
        check_shape("weights", given, "G", {"G": count})
        check_finite("weights", given)
        if (given < 0).any() or not given.sum() > 0:
            raise ValueError(f"weights must be >= 0 with a sum above 0, got a least of {given.min()} and {given.sum()}")
        shares: Array = given / given.sum()
        return shares

    def _evaluate(self, inner: float) -> Array:
        beta = inner / self._unit
        rows = [np.concatenate(curve.soft.backup([beta * curve.span])) for curve in self.curves]
        scale = (self._spans / self._unit) ** np.arange(3)[:, None]
        found: Array = np.stack(rows, axis=1) * scale
        return found

    def _sizes(self, utilities: npt.ArrayLike) -> Array:
        """Return ``[G]`` the size of the numbers whose differences the relative utilities are."""
        sizes: Array = (np.abs(self.uniform) + np.abs(np.asarray(utilities, dtype=np.float64))) / self._unit
        return sizes

    def _mean(self, inner: float, share: Array, slope_within: float) -> tuple[float, float, float]:
        w, slope, curvature = (self._knots(inner, slope_within) @ share).tolist()
        return w, slope, curvature


def meg_shared(
    curves: Sequence[RationalityCurve], utilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> SharedDirectedness:
    """Return MEG with one rationality over several worlds; for many questions keep a `SharedCurve`.

    Args:
        curves: one for each world, utilities on one scale.
        utilities: ``[G]`` expected utility (or mean return) of the agent in each world.
        weights: ``[G]`` weights of the worlds, None for equal ones.
    """
    return SharedCurve(curves).meg(utilities, weights)
