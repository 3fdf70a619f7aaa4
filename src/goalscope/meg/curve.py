"""The rationality curve of a world: what every policy in it is measured by, computed once."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import freeze
from goalscope.meg.conjugate import Knots, at_end, meet
from goalscope.planning import TabularMDP
from goalscope.planning.soft import SoftProcess

Array = npt.NDArray[np.float64]

ACCURACY = 1e-9  # of interpolated values, as a share of the larger of the bound and 1 nat


@dataclass(frozen=True, slots=True, kw_only=True)
class Directedness:
    """Maximum-entropy goal-directedness towards a known utility.

    Attributes:
        value: MEG in nats, >= 0.
        signed: the same with the sign of ``utility`` less the uniform policy's expected utility.
        beta: the best rationality in nats per unit of utility; infinite at the ends of what is attainable.
        utility: the expected utility that was measured.
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
        uniform, lowest, highest: expected utility of the uniform policy, least and greatest attainable one.
        span: ``highest - lowest``; 0 where no policy changes the utility, and then every MEG is 0.
        bound: W*(highest), the greatest MEG with positive sign that this world admits; nats.
        bound_lowest: W*(lowest), the greatest MEG of policies that avoid utility; nats.
        reachable_bound: log A times the number of decisions that can change anything: n - 1 where utility depends on
            the states at the decisions alone, else n.
        naive_bound: n log A.

    Args:
        mdp: the world.

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
        self._knots = Knots(lambda b: np.stack(soft.backup([b])), ACCURACY * max(1.0, soft.bound_high, soft.bound_low))

    @property
    def rounding(self) -> float:
        """How far beyond an end a utility may lie by rounding alone."""
        return 1e-9 * max(self.span, abs(self.highest), abs(self.lowest))

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
        if math.isinf(beta):
            return freeze(self.soft.soft_policy(beta))
        return freeze(self.soft.soft_policy(beta * self.span))

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
        beta, value = 0.0, 0.0
        if soft.span == 0 or relative == 0:
            pass
        elif at_end(relative, soft.high, size):
            beta, value = math.inf, soft.bound_high
        elif at_end(relative, soft.low, size):
            beta, value = -math.inf, soft.bound_low
        else:
            near, inner = meet(self._point, relative, soft.low, soft.high)
            w, slope, curvature = self._point(near)
            step = inner - near
            value = max(0.0, near * relative - w + (relative - slope) * step - curvature * step * step / 2)
            beta = inner / soft.span
        return Directedness(value=value, signed=value if relative >= 0 else 0.0 - value, beta=beta, utility=utility)

    def _point(self, inner: float, slope_within: float = math.inf) -> tuple[float, float, float]:
        w, slope, curvature = self._knots(inner, slope_within)[:, 0].tolist()
        return w, slope, curvature
