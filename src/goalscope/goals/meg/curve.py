"""Rationality curves of one or several worlds, computed once for all policies.

We fit one rationality per agent, not one per world. The mean of per-world suprema would be biased, because each is >= 0
even for a random agent. The supremum of the mean has only the bias of one degree of freedom for all worlds together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, freeze
from goalscope._ground.distributions import to_array, to_shares
from goalscope.goals.meg._fast import Knots
from goalscope.goals.meg.conjugate import at_end, best_rationality
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.reached import return_range
from goalscope.worlds.planning.soft import SoftProcess

Array = npt.NDArray[np.float64]

_ACCURACY = 1e-9  # of interpolated values, as a fraction of max(bound, 1 nat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directedness:
    """Maximum-entropy goal-directedness towards a known utility.

    Attributes:
        value: MEG in nats, >= 0.
        signed: MEG with the sign of ``utility`` minus the uniform policy's expected utility.
        beta: the best rationality in nats per unit of utility; infinite at the ends of the attainable range.
        utility: the agent's expected utility.
    """

    value: float
    signed: float
    beta: float
    utility: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """W and its derivatives at one rationality.

    Attributes:
        beta: rationality in nats per unit of utility.
        log_normaliser: W in nats, the expected log mean exponential utility.
        utility: W', the expected utility of the soft-optimal policy.
        curvature: W'', in squared units of utility per nat.
    """

    beta: float
    log_normaliser: float
    utility: float
    curvature: float


class RationalityCurve:
    """W(beta) of one world and its conjugate W*(u), which is the MEG of every policy with expected utility u.

    Build it once for a world; each further policy costs one evaluation of that policy.

    Attributes:
        mdp: the world.
        uniform, lowest, highest: expected utility of the uniform policy, and the least and greatest attainable one.
        span: ``highest - lowest``; 0 if no policy changes the utility, and then every MEG is 0.
        bound: W*(highest), the greatest MEG of policies that seek the utility; nats.
        bound_lowest: W*(lowest), the greatest MEG of policies that avoid the utility; nats.
        reachable_bound: log A times the number of decisions that can affect the utility: n - 1 if the utility depends
            only on the states at the decisions, otherwise n.
        naive_bound: n log A.

    Source: MacDermott et al. (2024), definition 3.2 and theorem 5.1; the identity with a convex conjugate is ours.
    """

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        self.soft = SoftProcess(mdp)
        soft = self.soft
        self.uniform, self.span = soft.uniform, soft.span
        self.highest, self.lowest = soft.uniform + soft.high * soft.span, soft.uniform + soft.low * soft.span
        self.bound, self.bound_lowest = soft.bound_high, soft.bound_low
        self.naive_bound = mdp.horizon * math.log(mdp.actions)
        reward, final = soft.reached.reward, soft.reached.final
        idle_end = not np.ptp(final) and bool((np.ptp(reward, axis=0) <= 1e-12 * np.abs(reward).max(axis=0)).all())
        self.reachable_bound = (mdp.horizon - 1) * math.log(mdp.actions) if idle_end else self.naive_bound
        self._knots = Knots(lambda b: np.stack(soft.backup([b])), _ACCURACY * max(1.0, soft.bound_high, soft.bound_low))

    @property
    def rounding(self) -> float:
        """Distance beyond an end of the attainable range that rounding errors can cause."""
        return 1e-9 * max(self.span, abs(self.highest), abs(self.lowest))

    @cached_property
    def episode_range(self) -> tuple[float, float]:
        """Least and greatest utility of a single episode, which by luck may exceed every expected utility."""
        lucky = self.soft.reached.table.ndim > 1 or np.count_nonzero(self.mdp.start) > 1
        return return_range(self.mdp) if lucky else (self.lowest, self.highest)

    @property
    def backups(self) -> int:
        """Number of soft backups computed so far."""
        return self.soft.passes

    def at(self, beta: float) -> CurvePoint:
        """Return W, W' and W'' at a finite rationality, in nats per unit of utility, computed exactly.

        Raises:
            ValueError: beta is not finite.
        """
        if not math.isfinite(beta):
            raise ValueError(f"beta must be finite, got {beta}: `bound` and `bound_lowest` hold the limits of W*")
        w, slope, curvature = (float(part[0]) for part in self.soft.backup([beta * self.span]))
        return CurvePoint(
            beta=beta,
            log_normaliser=w + beta * self.uniform,
            utility=self.uniform + self.span * slope,
            curvature=self.span * self.span * curvature,
        )

    def policy(self, beta: float) -> Array:
        """Return the soft-optimal policy, ``[n, S, A]``, at a rationality that may be infinite.

        States that are never reached hold the uniform distribution. The policy depends on time even where the
        utility does not.
        """
        return freeze(self.soft.soft_policy(beta if math.isinf(beta) else beta * self.span))

    def utility_of(self, policy: npt.NDArray[Any]) -> float:
        """Return the expected utility of a policy ``[S, A]`` or ``[n, S, A]``."""
        return self.uniform + self.span * self.soft.relative_utility(policy)

    def meg(self, utility: float) -> Directedness:
        """Return the MEG of every policy with this expected utility.

        Raises:
            ValueError: no policy attains it.
        """
        if not math.isfinite(utility):
            raise ValueError(f"utility must be a finite number, got {utility}")
        if not self.lowest - self.rounding <= utility <= self.highest + self.rounding:
            raise ValueError(
                f"an expected utility must be attainable, from {self.lowest:.12g} to {self.highest:.12g}, got "
                f"{utility:.12g}: check that it is in the units of the world's utility and sums over all "
                f"{self.mdp.horizon} decisions"
            )
        relative = (utility - self.uniform) / self.span if self.span > 0 else 0.0
        size = (abs(self.uniform) + abs(utility)) / self.span if self.span > 0 else 0.0
        return self._directedness(relative, utility, size)

    def meg_of(self, policy: npt.NDArray[Any]) -> Directedness:
        """Return the MEG of a policy ``[S, A]`` or ``[n, S, A]``.

        Raises:
            ValueError: the policy has another shape or is no distribution.
        """
        relative = self.soft.relative_utility(policy)
        return self._directedness(relative, self.uniform + self.span * relative)

    def _directedness(self, relative: float, utility: float, size: float = 0.0) -> Directedness:
        soft = self.soft

        def point(scaled: float, slope_within: float = math.inf) -> list[float]:
            return cast(list[float], self._knots(scaled, slope_within)[:, 0].tolist())

        near, scaled = best_rationality(point, relative if soft.span else 0.0, soft.low, soft.high, size)
        if math.isinf(scaled):
            value, beta = (soft.bound_high if scaled > 0 else soft.bound_low), scaled
        elif scaled == 0:
            value, beta = 0.0, 0.0
        else:
            w, slope, curvature = point(near)
            step = scaled - near
            value = max(0.0, near * relative - w + (relative - slope) * step - curvature * step * step / 2)
            beta = scaled / soft.span
        return Directedness(value=value, signed=value if relative >= 0 else 0.0 - value, beta=beta, utility=utility)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedDirectedness:
    """MEG with one rationality over G worlds.

    Attributes:
        value: the weighted mean of ``terms`` in nats, >= 0.
        signed: ``value`` with the sign of the mean utility minus that of the uniform policy.
        beta: the common rationality in nats per unit of utility; infinite at the ends of the attainable range.
        terms: ``[G]`` ``beta u - W(beta)`` of each world at that rationality, in nats; single terms may be negative.
            beta is infinite only if every world is at its end, so all terms are finite.
        bound: weighted mean of the worlds' bounds at the end that beta points to (the upper one if beta is 0).
    """

    value: float
    signed: float
    beta: float
    terms: Array
    bound: float


class SharedCurve:
    """The rationality curves of several worlds with one common rationality.

    Attributes:
        curves: the worlds' curves, G of them. Their utilities must be on one scale: beta is common.

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
        self._knots = Knots(self._evaluate, _ACCURACY * max(1.0, float(self._bounds.max())))

    def terms(self, beta: float, utilities: npt.ArrayLike) -> Array:
        """Return ``[G]`` ``beta u - W(beta)`` of each world at a rationality, in nats.

        Args:
            beta: rationality in nats per unit of utility. Infinite values give the limit, which is ``-inf`` in worlds
                that are not at their end.
            utilities: ``[G]`` expected utility of the agent in each world.
        """
        relative, sizes = self._relative(utilities)
        if math.isinf(beta):
            end, column = (self._high, 0) if beta > 0 else (self._low, 1)
            at_this_end = [o == 0 or at_end(r, o, size) for r, o, size in zip(relative, end, sizes, strict=True)]
            return np.where(at_this_end, self._bounds[:, column], -math.inf)
        return self._terms(beta, relative)

    def meg(self, utilities: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> SharedDirectedness:
        """Return ``sup over beta of the mean over worlds of beta u - W(beta)``.

        Args:
            utilities: ``[G]`` expected utility (or mean return) of the agent in each world. Single worlds may lie
                beyond the attainable range, as a mean over few episodes may; the mean over worlds must not.
            weights: ``[G]`` weights >= 0 with a positive sum, such as counts of a resample; None for equal weights.

        Raises:
            ValueError: shapes disagree, a number is not finite, or a weight is negative.
        """
        relative, sizes = self._relative(utilities)
        fractions = self._fractions(weights)
        parts = (relative, sizes, self._low, self._high, *self._bounds.T)
        mean, size, low, high, upper, lower = (float(fractions @ part) for part in parts)

        def point(scaled: float, slope_within: float) -> list[float]:
            return cast(list[float], (self._knots(scaled, slope_within) @ fractions).tolist())

        beta = best_rationality(point, mean, low, high, size)[1] / self._unit
        # At an infinite beta every world is at its end; means of few episodes may lie beyond it.
        terms = self._bounds[:, 0 if beta > 0 else 1].copy() if math.isinf(beta) else self._terms(beta, relative)
        value = max(0.0, float(fractions @ terms))
        return SharedDirectedness(
            value=value,
            signed=value if mean >= 0 else 0.0 - value,
            beta=beta,
            terms=freeze(terms),
            bound=upper if beta >= 0 else lower,
        )

    def _terms(self, beta: float, relative: Array) -> Array:
        return np.asarray(beta * self._unit * relative - self._knots(beta * self._unit)[0])

    def _relative(self, utilities: npt.ArrayLike) -> tuple[Array, Array]:
        """Return relative utilities of G worlds ``[G]``, and the magnitude of the numbers they are differences of."""
        values = np.asarray(utilities, dtype=np.float64)
        check_shape("utilities", values, "G", {"G": len(self.curves)})
        check_finite("utilities", values)
        relative = np.where(self._spans > 0, (values - self.uniform) / self._unit, 0.0)
        return relative, (np.abs(self.uniform) + np.abs(values)) / self._unit

    def _fractions(self, weights: npt.ArrayLike | None) -> Array:
        count = len(self.curves)
        if weights is None:
            return np.full(count, 1 / count)
        array = to_array("weights", weights)
        check_shape("weights", array, "G", {"G": count})
        return to_shares("weights", array)

    def _evaluate(self, scaled: float) -> Array:
        beta = scaled / self._unit
        rows = [np.concatenate(curve.soft.backup([beta * curve.span])) for curve in self.curves]
        scale = (self._spans / self._unit) ** np.arange(3)[:, None]
        return np.asarray(np.stack(rows, axis=1) * scale)
