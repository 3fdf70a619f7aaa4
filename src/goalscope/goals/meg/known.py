"""MEG with a known utility: the rationality curves of worlds, and the MEG of policies, expected utilities and returns.

A curve is computed once for all policies in a world; its convex conjugate is the MEG. The best rationality is the one
at which the slope of W meets the utility. Over several worlds we fit one rationality per agent, not one per world. The
mean of per-world suprema would be biased, because each is >= 0 even for a random agent. The supremum of the mean has
only the bias of one degree of freedom for all worlds together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, freeze
from goalscope._ground.distributions import to_array, to_shares
from goalscope.goals.meg._fast import Knots
from goalscope.stats.intervals import agreement_bounds, check_confidence
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.mdp import return_range
from goalscope.worlds.planning.soft import SoftProcess

Point = Callable[[float, float], Sequence[float]]
"""W, W' and W'' at a rationality; the second argument is the maximum error of W'."""

_AT_END = 1e-12  # relative distance from an end, in units of end to uniform policy, that counts as at the end
_EPSILON = 4e-16  # relative rounding error of a utility in its own unit
_SLOPE = 1e-2  # maximum error of an interpolated slope, as a fraction of its distance from the nearer end
_NEAR = 1e-4  # difference of logits below which one more step is exact to 1e-7, and W to 1e-12
_STEPS = 200  # of the search; it needs about four
_REACH = 30.0  # longest step, as a multiple of one more than the rationality
_BENT = 4.0  # how much longer than a Newton step a step along the cubic may be


Array = npt.NDArray[np.float64]
_ACCURACY = 1e-9  # of interpolated values, as a fraction of max(bound, 1 nat)
_FAR = 8.0  # standard errors beyond the attainable range that count as a wrong unit, not as luck


def best_rationality(point: Point, utility: float, low: float, high: float, size: float) -> tuple[float, float]:
    """Find the rationality b at which a utility is fitted best, the maximum of ``b utility - W(b)``, by a Newton
    search.

    Args:
        point: computes W, W' and W'' at a rationality.
        utility: expected utility of the agent minus that of the uniform policy.
        low, high: least and greatest attainable utility, also relative to the uniform policy.
        size: magnitude of the numbers that ``utility`` is a difference of, from which its rounding error follows.

    Returns:
        The last rationality evaluated, and the best one by a parabola through W' and W'' there. Both are 0 where no
        policy changes the utility, and infinite at the ends of the attainable range.
    """
    if high - low <= 0 or utility == 0:
        return 0.0, 0.0
    for end, limit in ((high, math.inf), (low, -math.inf)):
        if at_end(utility, end, size):
            return limit, limit
    return _match_slope(point, utility, low, high)


def at_end(relative: float, end: float, size: float = 0.0) -> bool:
    """Return whether a utility equals the least or greatest attainable one, up to rounding.

    Args:
        relative: the utility minus that of the uniform policy.
        end: the least or greatest attainable utility, also relative to the uniform policy.
        size: magnitude of the numbers that ``relative`` is a difference of.
    """
    slack = min(_AT_END * abs(end) + _EPSILON * size, abs(end) / 2)
    return relative * end > 0 and abs(relative) >= abs(end) - slack


def _match_slope(knots: Point, target: float, low: float, high: float) -> tuple[float, float]:
    """Return the rationality at which the slope of W is ``target``, by a safeguarded Newton search from 0.

    The search runs on the logit of the slope between its two limits, which is nearly a straight line: exactly one
    for a single decision between two utilities, and in both tails always. From the second rationality on, a step goes
    along the cubic with the values and slopes of the last two.
    """
    target_logit = math.log((target - low) / (high - target))
    left, right, rationality = -math.inf, math.inf, 0.0
    before: tuple[float, float, float] | None = None
    for _ in range(_STEPS):
        _, slope, curvature = knots(rationality, math.inf)
        _, slope, curvature = knots(rationality, max(0.0, _SLOPE * min(slope - low, high - slope)))
        above, below = slope - low, high - slope
        if above <= 0 or below <= 0:  # the slope equals its limit in floating point
            gap, step = (1.0 if below <= 0 else -1.0), math.inf
        else:
            gap = math.log(above / below) - target_logit
            rate = curvature * (high - low) / (above * below)
            step = -gap / rate if rate > 0 else math.inf
            if math.isfinite(step):
                latest = gap, rationality, 1 / rate
                cubic_step = _cubic(before, latest) if before is not None and before[0] != gap else step
                before = latest
                step = cubic_step if cubic_step * step > 0 and abs(cubic_step) <= _BENT * abs(step) else step
        if abs(gap) <= _NEAR and math.isfinite(step):
            return rationality, rationality + step
        left, right = (rationality, right) if gap < 0 else (left, rationality)
        longest = _REACH * (abs(rationality) + 1)
        if not abs(step) <= longest:
            step = math.copysign(longest, -gap)
        after = rationality + step
        if not left < after < right:  # then the side stepped to is bounded by an earlier rationality
            after = (left + right) / 2
            if not left < after < right:
                break
        rationality = after
    return rationality, rationality


def _cubic(before: tuple[float, float, float], latest: tuple[float, float, float]) -> float:
    """Return by how much to change the rationality so that the gap becomes 0.

    The step follows from the cubic of rationality as a function of gap through two points (gap, rationality, slope).
    """
    (gap, rationality, slope), (latest_gap, latest_rationality, latest_slope) = before, latest
    width, rise = gap - latest_gap, rationality - latest_rationality
    x = -latest_gap / width
    v0, v1 = latest_slope * width, slope * width
    return x * (v0 + x * (3 * rise - 2 * v0 - v1 + x * (v0 + v1 - 2 * rise)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Directedness:
    """MEG (maximum-entropy goal-directedness) of one agent in one world, towards a known utility.

    Attributes:
        value: MEG in nats, >= 0.
        signed: MEG with the sign of ``utility`` minus the uniform policy's expected utility.
        beta: rationality (inverse temperature) at which a soft-optimal policy predicts the agent best, in nats per unit
            of utility; infinite at the ends of the attainable range.
        utility: the agent's expected utility.
    """

    value: float
    signed: float
    beta: float
    utility: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The rationality curve W of a world and its derivatives at one rationality (inverse temperature).

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
    """The rationality curve W(beta) of one world, from which the MEG of any policy in it follows.

    W is the expected log mean exponential utility at rationality beta, see `CurvePoint`. The MEG of a policy with
    expected utility u is the convex conjugate ``W*(u) = sup over beta of beta u - W(beta)``, with u relative to the
    uniform policy.

    Build it once for a world; each further policy costs one evaluation of that policy.

    Attributes:
        mdp: the world.
        uniform, lowest, highest: expected utility of the uniform policy, and the least and greatest attainable one.
        span: ``highest - lowest``; 0 if no policy changes the utility, and then every MEG is 0.
        bound: W*(highest), the greatest MEG of policies that seek the utility; nats.
        bound_lowest: W*(lowest), the greatest MEG of policies that avoid the utility; nats.
        reachable_bound: log A times the number of decisions that can affect the utility: n - 1 if the utility depends
            only on the states at the decisions, otherwise n.
        naive_bound: n log A, for n decisions with A actions each.

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
        """How far a utility may lie beyond an end of the attainable range because of rounding errors, in units of
        utility.
        """
        return 1e-9 * max(self.span, abs(self.highest), abs(self.lowest))

    @cached_property
    def episode_range(self) -> tuple[float, float]:
        """Least and greatest utility that a single episode can have, as a pair.

        By luck an episode may lie beyond every expected utility.
        """
        lucky = self.soft.reached.table.ndim > 1 or np.count_nonzero(self.mdp.start) > 1
        return return_range(self.mdp) if lucky else (self.lowest, self.highest)

    @property
    def backups(self) -> int:
        """Number of soft backups (passes over all decisions at one rationality) computed so far, as a measure of
        work.
        """
        return self.soft.passes

    def at(self, beta: float) -> CurvePoint:
        """Compute the curve W and its first two derivatives at one rationality, exactly.

        Args:
            beta: a finite rationality in nats per unit of utility.

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
        """Return the soft-optimal policy at a rationality, ``[n, S, A]``: decisions by states by actions.

        In states that are never reached it is uniform. It depends on time even where the utility does not.

        Args:
            beta: rationality in nats per unit of utility; may be infinite.
        """
        return freeze(self.soft.soft_policy(beta if math.isinf(beta) else beta * self.span))

    def utility_of(self, policy: npt.NDArray[Any]) -> float:
        """Return the expected utility of a policy in this world.

        Args:
            policy: ``[S, A]`` action probabilities in each state, or ``[n, S, A]`` by decision.
        """
        return self.uniform + self.span * self.soft.relative_utility(policy)

    def meg(self, utility: float) -> Directedness:
        """Return the MEG of an agent from its expected utility; all policies with this utility have the same MEG.

        Raises:
            ValueError: no policy attains this utility.
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
        """Return the MEG of a policy in this world.

        Args:
            policy: ``[S, A]`` action probabilities in each state, or ``[n, S, A]`` by decision.

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
    """MEG (maximum-entropy goal-directedness) of one agent in G worlds, with one rationality fitted to all of them.

    Attributes:
        value: the weighted mean of ``terms`` in nats, >= 0.
        signed: ``value`` with the sign of the mean utility minus that of the uniform policy.
        beta: the common rationality (inverse temperature) in nats per unit of utility; infinite at the ends of the
            attainable range.
        terms: ``[G]`` contribution of each world, ``beta u - W(beta)`` in nats, where u is the agent's utility and W
            the rationality curve of the world; single terms may be negative. beta is infinite only if every world is at
            its end, so all terms are finite.
        bound: weighted mean of the greatest possible MEG in each world, for agents that seek the utility (that avoid
            it, if beta is negative).
    """

    value: float
    signed: float
    beta: float
    terms: Array
    bound: float


class SharedCurve:
    """The rationality curves of several worlds, to measure an agent's MEG with one rationality common to all worlds.

    Attributes:
        curves: the worlds' curves, G of them. Their utilities must be on one scale: beta is common.

    Raises:
        ValueError: the list of curves is empty.
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
        """Return what each world contributes to the MEG at one rationality: ``beta u - W(beta)``, ``[G]`` in nats.

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
        """Return the MEG of an agent over all worlds: ``sup over beta of the mean over worlds of beta u - W(beta)``.

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownMEG:
    """Maximum-entropy goal-directedness (MEG) of one agent in one world, with a known utility.

    Let W be the rationality curve of the world (see `RationalityCurve`) with n decisions and A actions. The *ends* are
    the least and the greatest utility that a policy can attain.

    Attributes:
        value: MEG in nats, >= 0; unsigned, so an agent that avoids the utility scores as high as one that seeks it.
        signed: MEG with the sign of ``utility`` minus ``uniform_utility``.
        beta: rationality (inverse temperature) at which a soft-optimal policy predicts the agent best, in nats per unit
            of utility; negative for agents that avoid the utility, infinite at both ends.
        utility: expected utility of the policy, or the mean return (moved to the attainable range, see ``note``).
        uniform_utility, lowest_utility, highest_utility: expected utility of the uniform policy and of the ends.
        bound: greatest MEG in this world of an agent that seeks the utility, in nats: that of an optimal policy.
        bound_lowest: greatest MEG of an agent that avoids it.
        reachable_bound: log A times the number of decisions that can affect the utility.
        naive_bound: n log A.
        n: number of sampled returns, 0 if the utility is exact.
        low, high: interval of ``value``, NaN if there is none.
        signed_low, signed_high: interval of ``signed``.
        confidence: nominal coverage.
        method: how the interval was found.
        bias: approximate upward bias of ``value`` in nats, because a supremum is fitted to the mean of n returns. NaN
            without returns or if beta is infinite.
        note: a warning to print beside the value, "" for none.
        curve: the world's rationality curve.
    """

    value: float
    signed: float
    beta: float
    utility: float
    uniform_utility: float
    lowest_utility: float
    highest_utility: float
    bound: float
    bound_lowest: float
    reachable_bound: float
    naive_bound: float
    n: int = 0
    low: float = math.nan
    high: float = math.nan
    signed_low: float = math.nan
    signed_high: float = math.nan
    confidence: float = 0.95
    method: str = "exact"
    bias: float = math.nan
    note: str = ""
    curve: RationalityCurve = field(repr=False)

    @property
    def share(self) -> float:
        """``value`` as a fraction of the greatest MEG in this world, in [0, 1].

        For an agent with positive ``beta`` that is the MEG of an optimal policy, for one with negative ``beta`` that of
        a policy that avoids the utility optimally. The share is 0 where this greatest MEG is 0.
        """
        bound = self.bound if self.beta >= 0 else self.bound_lowest
        return self.value / bound if bound > 0 else 0.0

    @property
    def plug_in(self) -> float:
        """A naive alternative to MEG, in nats: how well the soft-optimal policy with rationality 1 predicts the agent.

        It is the expected log probability of the actions minus that under uniform actions. It depends on the scale of
        the utility, may be below 0 and is never above ``value``.

        Source: MacDermott et al. (2024), section 3, comparison to MCE IRL.
        """
        log_normaliser, _, _ = self.curve.soft.backup([self.curve.span])
        return self.utility - self.uniform_utility - float(log_normaliser[0])

    def policy(self) -> Array:
        """Return the soft-optimal policy that predicts the agent best, ``[n, S, A]``: decisions by states by
        actions.
        """
        return self.curve.policy(self.beta)


def chance_note(low: float, high: float) -> str:
    """Return why the share and the rationality of an MEG from sampled returns are not reported; "" if they are.

    If an agent cannot be distinguished from uniformly random actions, sign, share and rationality depend only on the
    sample, and the latter two can reach -1 and minus infinity.

    Args:
        low, high: interval of the signed MEG in nats.
    """
    if low > 0 or high < 0:
        return ""
    reason = "there is no interval" if math.isnan(low) or math.isnan(high) else "the interval holds 0"
    return f"cannot be told from chance, {reason}: no share and no beta"


def meg_known(
    mdp: TabularMDP | RationalityCurve,
    policy: npt.NDArray[Any] | None = None,
    returns: npt.ArrayLike | None = None,
    *,
    mean_return: float | None = None,
    confidence: float = 0.95,
) -> KnownMEG:
    """Return the MEG (maximum-entropy goal-directedness) of an agent with respect to the utility of a world, in nats.

    MEG depends on a policy only through its expected utility. A policy, its expected utility, or a sample of returns
    therefore suffices, even for an agent with memory.

    Args:
        mdp: the world, or its `RationalityCurve` where several policies are measured in it.
        policy: ``[S, A]`` or, by time, ``[n, S, A]`` action probabilities.
        returns: ``[N]`` utilities of whole sampled episodes (all n decisions, terminal utility included).
        mean_return: an exact expected utility.
        confidence: nominal coverage of the interval, for ``returns``.

    Returns:
        The MEG (``value``; ``signed`` with its sign; ``share`` of the greatest possible one), the best rationality
        ``beta`` and, for ``returns``, an interval.

    Raises:
        ValueError: not exactly one of policy, returns and mean_return is given, the policy is not a distribution, or no
            policy attains the utility.

    Source: MacDermott et al. (2024), definition 3.2, theorem 5.1 and algorithm 1.
    """
    curve = mdp if isinstance(mdp, RationalityCurve) else RationalityCurve(mdp)
    descriptions = {"policy": policy, "returns": returns, "mean_return": mean_return}
    names = [name for name, value in descriptions.items() if value is not None]
    if len(names) != 1:
        raise ValueError(f"meg_known needs exactly one of {', '.join(descriptions)}, got {', '.join(names) or 'none'}")
    check_confidence(confidence)
    if policy is not None:
        return _record(curve, curve.meg_of(policy), confidence=confidence)
    if mean_return is not None:
        return _record(curve, curve.meg(float(mean_return)), confidence=confidence)
    return _from_returns(curve, returns, confidence)


def _record(curve: RationalityCurve, directedness: Directedness, **fields: Any) -> KnownMEG:
    return KnownMEG(
        **asdict(directedness),
        uniform_utility=curve.uniform,
        lowest_utility=curve.lowest,
        highest_utility=curve.highest,
        bound=curve.bound,
        bound_lowest=curve.bound_lowest,
        reachable_bound=curve.reachable_bound,
        naive_bound=curve.naive_bound,
        curve=curve,
        **fields,
    )


def _from_returns(curve: RationalityCurve, returns: npt.ArrayLike | None, confidence: float) -> KnownMEG:
    sample = to_array("returns", returns).astype(np.float64)
    count = check_shape("returns", sample, "N")["N"]
    check_finite("returns", sample)
    if count == 0:
        raise ValueError("returns must hold at least one episode, got none")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(sample.mean()), float(sample.std(ddof=1)) if count > 1 else math.nan
    if not math.isfinite(mean):
        raise ValueError("returns must have a finite mean, got an overflow: divide utilities and returns by a constant")
    beyond = max(mean - curve.highest, curve.lowest - mean)
    agree = count > 1 and std <= 1e-12 * max(abs(mean), curve.span)
    # Equal returns have no standard error: they are compared with the range of a single episode.
    impossible = max(mean - curve.episode_range[1], curve.episode_range[0] - mean) if agree else beyond
    if impossible > curve.rounding + _FAR * (std / math.sqrt(count) if count > 1 else math.inf):
        raise ValueError(
            f"returns must be utilities of whole episodes, with an expectation from {curve.lowest:.12g} to "
            f"{curve.highest:.12g} in this world, got a mean of {mean:.12g} over {count}: check their unit, the "
            f"horizon ({curve.mdp.horizon} decisions) and the terminal utility"
        )

    def attainable(utility: float) -> float:
        return min(max(utility, curve.lowest), curve.highest)

    directedness = curve.meg(attainable(mean))
    notes = ["mean return beyond what is attainable, moved to the end"] if beyond > curve.rounding else []
    fields: dict[str, Any] = {"n": count, "confidence": confidence}
    if count < 2 or curve.span == 0:
        notes.append("one return: undefined interval" if count == 1 else "no policy changes the utility")
        return _record(curve, directedness, method="none", note="; ".join(notes), **fields)
    if agree:
        # With zero variance, the fraction of episodes that may differ is bounded exactly.
        episode_return = min(max(mean, curve.episode_range[0]), curve.episode_range[1])
        ends = agreement_bounds(episode_return, count, curve.episode_range, confidence)
        method = "exact bound of agreement of the mean return, through W*"
    else:
        from scipy.special import stdtrit

        half_width = float(stdtrit(count - 1, (1 + confidence) / 2)) * std / math.sqrt(count)
        ends, method = (mean - half_width, mean + half_width), "t of the mean return, through W*"
    low, high = (curve.meg(attainable(end)) for end in ends)
    covers = ends[0] <= curve.uniform <= ends[1]
    curvature = curve.at(directedness.beta).curvature if math.isfinite(directedness.beta) else 0.0
    return _record(
        curve,
        directedness,
        low=min(0.0 if covers else min(low.value, high.value), directedness.value),
        high=max(low.value, high.value, directedness.value),
        signed_low=min(low.signed, directedness.signed),
        signed_high=max(high.signed, directedness.signed),
        method=method,
        bias=std**2 / (2 * count * curvature) if curvature > 0 else math.nan,
        note="; ".join(notes),
        **fields,
    )
