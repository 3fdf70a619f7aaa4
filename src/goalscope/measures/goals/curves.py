"""W of many worlds at the same rationalities, computed once and shared by agents, cells and resamples.

Also: the weights of worlds in the whole cell, in resamples and halves of its grids, and intervals.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from goalscope.columns import narrowed
from goalscope.measures.goals.random_agents import random_returns
from goalscope.measures.goals.returns import Returns
from goalscope.measures.goals.settings import GoalSettings, process
from goalscope.meg import RationalityCurve
from goalscope.meg._fast import quintic, quintic_slope, quintic_value
from goalscope.planning import TabularMDP
from goalscope.planning.process import Process
from goalscope.rng import stream
from goalscope.worlds.grid import Grid

Array = npt.NDArray[np.float64]

RESAMPLES = 2000
HALVES = 50
_DRAWN = 100  # resamples drawn at a time
_PRODUCT = 1 << 20  # cells of weights that are multiplied at a time, in blocks of a multiple of so many resamples:
_FEWEST = 80  # products of few rows are summed in another order, and differ in the last bit
_COUNTED = 10  # minimum number of resamples beyond 0 for a p value by counting
METHOD = "bootstrap of grids, beta refitted"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """Weights of U worlds in C grids: each grid the same, its worlds equal parts of it."""

    whole: Array  # [1, U]
    resampled: "Resampled"  # [RESAMPLES, U] grids drawn with replacement; empty with fewer than two grids
    first: Array  # [HALVES, U] one half of random splits of the grids; empty with fewer than two
    second: Array  # [HALVES, U] the other half
    grids: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resampled:
    """Weights ``[R, U]`` of worlds in resamples of their grids, stored as counts of the grids.

    ``weights @ values`` is a product like that of an array: of ``[U]`` or ``[U, K]`` values.
    """

    counts: npt.NDArray[np.unsignedinteger]  # [R, C] of the smallest type
    grid: npt.NDArray[np.int64]  # [U] the grid of each world
    within: Array  # [U] one part of as many as there are worlds of that grid

    def __len__(self) -> int:
        return len(self.counts)

    def __matmul__(self, values: Array) -> Array:
        rows = max(_FEWEST, _PRODUCT // max(1, len(self.grid)) // _FEWEST * _FEWEST)
        blocks = (self.counts[at : at + rows] for at in range(0, len(self), rows))
        parts = [normalized(counts, self.grid, self.within) @ values for counts in blocks]
        return np.concatenate(parts) if parts else np.zeros((0, *values.shape[1:]))


def normalized(counts: npt.NDArray[np.integer], grid: npt.NDArray[np.int64], within: Array) -> Array:
    """Return ``[R, U]`` weights of worlds from how often their grids count, ``[R, C]``; each row has the sum 1."""
    chosen = counts[:, grid] * within
    chosen /= counts.sum(axis=1, keepdims=True)
    return chosen


def weigh(clusters: Sequence[str], *, seed: int) -> Weights:
    """Return the weights of worlds from their grids ``[U]``; equal numbers of grids share their draws."""
    _, code, size = np.unique(np.array(clusters, dtype=str), return_inverse=True, return_counts=True)
    count = len(size)
    within = 1 / size[code]
    whole = normalized(np.ones((1, count), dtype=np.int64), code, within)
    resampled = Resampled(counts=np.zeros((0, count), dtype=np.uint8), grid=code, within=within)
    if count < 2:
        none = np.zeros((0, len(code)))
        return Weights(whole=whole, resampled=resampled, first=none, second=none, grids=count)
    rng, even = stream(seed, "resampled grids", count), np.full(count, 1 / count)
    drawn = (rng.multinomial(count, even, size=_DRAWN) for _ in range(0, RESAMPLES, _DRAWN))
    counts = np.concatenate([narrowed(part, int(part.max()) + 1) for part in drawn])
    order = stream(seed, "halves of grids", count).permuted(np.tile(np.arange(count), (HALVES, 1)), axis=1)
    half = (order < count // 2).astype(np.int64)
    return Weights(
        whole=whole,
        resampled=replace(resampled, counts=counts),
        first=normalized(half, code, within),
        second=normalized(1 - half, code, within),
        grids=count,
    )


def interval(resampled: Array, grids: int, confidence: float) -> tuple[float, float]:
    """Return the ends of the expanded percentile interval.

    The uncorrected percentile interval of a mean of G values is too narrow: it divides by G in place of G - 1 and uses
    normal quantiles. Its tails are therefore taken at ``Phi(-sqrt(G / (G - 1)) t)``, t the quantile of Student's t.

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
    """Return an interval widened to that of random agents, where the agent is indistinguishable from them.

    Resamples of grids cannot contain unobserved events: if an agent never visited a rarely visited place, all resamples
    show that it avoids the place. A simulated exact test compares it with random agents with the same counts. Where it
    does not reject, 0 and the values of such agents are possible.
    ``null`` are ``[R]`` signed values of random agents.
    """
    if random_p(value, null) <= 1 - confidence:
        return ends
    low, high = np.quantile(null, [(1 - confidence) / 2, (1 + confidence) / 2])
    return min(ends[0], float(low), 0.0), max(ends[1], float(high), 0.0)


def random_p(value: float, null: Array) -> float:
    """Return the fraction of random agents whose unsigned value is at least the agent's, the agent included."""
    return (1 + int((np.abs(null) >= abs(value)).sum())) / (1 + len(null))


def p_value(resampled: Array, value: float, grids: int) -> float:
    """Return the level at which `interval` begins to contain 0, two-sided; NaN with fewer than two grids.

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
    """Return a p value, not below that of the simulated test if any random agent reaches the value."""
    simulated = random_p(value, null)
    return max(p, simulated) if simulated > 1 / (1 + len(null)) else p


Place = tuple[int, Grid | Process, bytes]
"""Key of a rationality curve: number of a world, its model, and a digest of the hypothesis's states."""

NULL_AGENTS = 200
TOP = 40.0
"""Greatest finite rationality in nats per unit of utility. Utilities here are whole numbers, so that beyond it the
soft policy misses its limit by less than exp(-40)."""
_FINE, _COARSE = 0.12, 0.3  # spacing of the rationalities on a scale that is linear near 0 and logarithmic far out
_LINEAR = 0.05  # nats per unit of utility where that scale turns
_HALVINGS = 34  # of the search between two rationalities
_AT_END = 1e-12


def _rationalities() -> Array:
    limit = math.asinh(TOP / _LINEAR)
    above = np.linspace(0.0, limit, math.ceil(limit / _FINE) + 1)
    below = np.linspace(-limit, 0.0, math.ceil(limit / _COARSE) + 1)
    return np.asarray(_LINEAR * np.sinh(np.concatenate([below[:-1], above])))


KNOTS = _rationalities()
"""``[K]`` rationalities at which curves are stored, including 0; denser where agents seek utility."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curves:
    """B curves, of worlds or of weighted means of worlds, relative to the uniform policy.

    Between rationalities stands the polynomial of degree five through W, W' and W'' on both sides.

    """

    uniform: Array  # [B] expected utility of the uniform policy
    values: Array  # [B, 3, K] W, W' and W'' at `KNOTS`
    ends: Array  # [B, 4] least and greatest attainable utility less `uniform`, and the MEG there in nats

    @classmethod
    def of(cls, curve: RationalityCurve) -> "Curves":
        """Return the curve of one world."""
        soft, span = curve.soft, curve.span
        values = np.stack(soft.backup(KNOTS * span)) * np.array([1.0, span, span * span])[:, None]
        ends = np.array([[soft.low * span, soft.high * span, curve.bound_lowest, curve.bound]])
        return cls(uniform=np.array([curve.uniform]), values=values[None], ends=ends)

    @classmethod
    def joined(cls, curves: Sequence["Curves"]) -> "Curves":
        """Return the curves of several worlds."""
        parts = ([getattr(part, name) for part in curves] for name in ("uniform", "values", "ends"))
        uniform, values, ends = map(np.concatenate, parts)
        return cls(uniform=uniform, values=values, ends=ends)

    def mixed(self, weights: "Array | Resampled") -> "Curves":
        """Return means of the curves with weights ``[B', B]``, each row >= 0 with sum 1."""
        flat = weights @ self.values.reshape(len(self.values), -1)
        values = flat.reshape(len(weights), 3, len(KNOTS))
        return Curves(uniform=weights @ self.uniform, values=values, ends=np.asarray(weights @ self.ends))

    def fit(self, relative: Array) -> tuple[Array, Array]:
        """Return the supremum over beta of ``beta u - W(beta)`` with the sign of u, and its beta, ``[N]`` each.

        ``relative`` is u, ``[N]`` utilities less that of the uniform policy; beyond an end counts as at the end. There
        are as many curves, or one for all.
        """
        slopes, last = self.values[:, 1], len(KNOTS) - 1
        low, high, bound_low, bound_high = self.ends.T
        index = np.clip((slopes <= relative[:, None]).sum(axis=1) - 1, 0, last - 1)
        left, right = np.zeros(len(relative)), np.ones(len(relative))
        shape, width = self._polynomials(index)
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            below = quintic_slope(shape, middle) / width < relative
            left, right = np.where(below, middle, left), np.where(below, right, middle)
        fraction = (left + right) / 2
        beta = KNOTS[index] + fraction * width
        value = np.maximum(beta * relative - quintic_value(shape, fraction), 0.0)
        cases = [
            (relative == 0) | (high - low <= 0),
            relative >= high * (1 - _AT_END),
            relative <= low * (1 - _AT_END),
        ]
        value = np.select(cases, [0.0, bound_high, bound_low], value)
        return np.where(relative < 0, 0.0 - value, value), np.select(cases, [0.0, math.inf, -math.inf], beta)

    def at(self, beta: Array) -> Array:
        """Return ``[B]`` W at one finite rationality for each curve."""
        index = np.clip(np.searchsorted(KNOTS, beta, side="right") - 1, 0, len(KNOTS) - 2)
        shape, width = self._polynomials(index)
        return quintic_value(shape, (beta - KNOTS[index]) / width)

    def terms(self, beta: float, relative: Array) -> Array:
        """Return ``[B]`` ``beta u - W(beta)`` of each curve in nats; at an infinite beta its bound at that end."""
        if math.isinf(beta):
            return self.ends[:, 3 if beta > 0 else 2].copy()
        result: Array = beta * relative - self.at(np.full(len(self.values), beta))
        return result

    def within(self, relative: Array) -> Array:
        """Return ``[B]`` utilities less that of the uniform policy, moved to the attainable range where beyond it."""
        clipped: Array = np.clip(relative, self.ends[:, 0], self.ends[:, 1])
        return clipped

    def _polynomials(self, index: npt.NDArray[np.intp]) -> tuple[Array, Array]:
        """Return the coefficients ``[6, N]`` of the polynomials right of a knot, and the intervals' widths ``[N]``."""
        rows = np.arange(len(index)) % len(self.values)
        width = KNOTS[index + 1] - KNOTS[index]
        scale = np.stack([np.ones_like(width), width, width**2])
        return quintic(*(self.values[rows, :, knot].T * scale for knot in (index, index + 1))), width


class Ensemble:
    """The curves of some worlds under several weightings: all worlds, resamples of grids, halves of them."""

    def __init__(self, curves: Curves, weights: Weights) -> None:
        self.weights = weights
        self.whole, self.resampled = curves.mixed(weights.whole), curves.mixed(weights.resampled)
        self.first, self.second = curves.mixed(weights.first), curves.mixed(weights.second)

    def cross_fitted(self, relative: Array, counts: npt.NDArray[np.int64], *, lucky: bool = False) -> float:
        """Return the mean score of one half at the rationality of the other; NaN with fewer than two grids.

        The utility that a rationality is fitted to counts one random episode more than there were: an agent that was
        optimal in one half has an infinite rationality, and one slip in the other would cost infinitely much. Utilities
        beyond the attainable (on a believed map, through whose walls the agent walked) count as the end. Where they may
        lie there by luck (``lucky``) those that are scored count as they are: cut off, good luck would count less than
        bad luck.
        """
        if self.weights.grids < 2:
            return math.nan
        scores = []
        halves = ((self.weights.first, self.first), (self.weights.second, self.second))
        for (fitted, curve), (held_out, other) in (halves, halves[::-1]):
            episodes = (fitted > 0) @ counts
            beta = curve.fit(curve.within(fitted @ relative) * episodes / (episodes + 1))[1]
            scored = held_out @ relative
            scores.append(beta * (scored if lucky else other.within(scored)) - other.at(beta))
        return float(np.mean(scores))


class CurveBank:
    """The curves, simulated random agents and ensembles of the draws of hypotheses, each computed once.

    ``names`` are the draws of each hypothesis, ``returns`` those of each draw; ``progress`` is called with done and
    total curves and worlds of random agents.
    """

    def __init__(
        self,
        names: Mapping[str, tuple[str, ...]],
        returns: Mapping[str, Returns],
        settings: GoalSettings,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.names, self.returns, self.settings = names, returns, settings
        self._show = progress or (lambda done, total: None)
        units = [(draw, number, unit) for draw, found in returns.items() for number, unit in enumerate(found.units)]
        places = {self._place(draw, number) for draw, number, unit in units if draw in unit.masks}
        self._total = len(places) + len({place[:2] for place in places})  # curves, and random agents on each grid
        self._done = 0
        self._curves: dict[Place, Curves] = {}
        self._random: dict[tuple[Place, int, bool], Array] = {}
        self._ensembles: dict[tuple[str, tuple[int, ...]], Ensemble] = {}
        self._weights: dict[tuple[int, ...], Weights] = {}

    def clusters(self, numbers: Iterable[int]) -> list[str]:
        """Return the clusters of some worlds."""
        units = next(iter(self.returns.values())).units  # numbered alike for all draws
        return [units[number].cluster for number in numbers]

    def curves(self, draw: str, numbers: Sequence[int]) -> Curves:
        """Return the curves of some worlds."""
        return Curves.joined([self._curve(draw, number) for number in numbers])

    def ensemble(self, draw: str, numbers: tuple[int, ...]) -> Ensemble:
        """Return the ensemble of some worlds."""
        stored = self._ensembles.get((draw, numbers))
        if stored is not None:
            return stored
        if numbers not in self._weights:
            self._weights[numbers] = weigh(self.clusters(numbers), seed=self.settings.seed)
        ensemble = Ensemble(self.curves(draw, numbers), self._weights[numbers])
        if draw in self.names:  # ensembles of draws are many and large
            self._ensembles[draw, numbers] = ensemble
        return ensemble

    def forget(self) -> None:
        """Drop the ensembles: those of one cell of worlds are of no use to the next."""
        self._ensembles.clear()
        self._weights.clear()

    def null(self, draw: str, number: int, episodes: int, *, exact: bool) -> Array:
        """Return ``[NULL_AGENTS]`` mean utilities of random agents in a world, each of so many episodes.

        ``exact``: with their policies instead of their drawn actions, as for the agent.
        """
        place, unit = self._place(draw, number), self.returns[draw].units[number]
        if (place, episodes, exact) not in self._random:
            for name, values in random_returns(unit, episodes, NULL_AGENTS, self.settings, exact=exact).items():
                self._random[self._place(name, number), episodes, exact] = values
            self._advance()
        return self._random[place, episodes, exact]

    def process(self, draw: str, number: int) -> TabularMDP:
        """Return the decision process of a world."""
        unit, settings = self.returns[draw].units[number], self.settings
        return process(unit.grid, unit.masks[draw], unit.horizon, utility=settings.utility, invalid=settings.invalid)

    def _curve(self, draw: str, number: int) -> Curves:
        place = self._place(draw, number)
        if place not in self._curves:
            self._curves[place] = Curves.of(RationalityCurve(self.process(draw, number)))
            self._advance()
        return self._curves[place]

    def _place(self, draw: str, number: int) -> Place:
        unit = self.returns[draw].units[number]
        return number, unit.grid, blake2b(unit.masks[draw].tobytes(), digest_size=16).digest()

    def _advance(self) -> None:
        self._done += 1
        self._total = max(self._total, self._done)  # agents with other counts of episodes have nulls of their own
        self._show(self._done, self._total)
