"""Rationality curves W of many worlds, shared by agents, cells and resamples, and the intervals derived from them.

The worlds of a cell are weighted for their mean, for bootstrap resamples of their grids, and for random halves of them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.folder import Spill
from goalscope._ground.rng import stream
from goalscope.goals.baselines import Invalid, Utility, random_utilities
from goalscope.goals.hypotheses.definition import FiniteWorld
from goalscope.goals.hypotheses.score import tails
from goalscope.goals.meg import RationalityCurve
from goalscope.goals.meg._fast import quintic, quintic_value, rising_root
from goalscope.stats.rows import narrowed
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.soft import SoftProcess

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


_COUNTED = 10  # minimum number of resamples beyond 0 for a p value by counting
METHOD = "bootstrap of grids, beta refitted"
NULL_AGENTS = 200
TOP = 40.0
"""Greatest finite rationality in nats per unit of utility. Utilities here are whole numbers, so that beyond it the
soft policy misses its limit by less than exp(-40)."""
_FINE, _COARSE = 0.12, 0.3  # spacing of the rationalities on a scale that is linear near 0 and logarithmic far out
_LINEAR = 0.05  # nats per unit of utility where that scale turns
_HALVINGS = 34  # of the search between two rationalities
_AT_END = 1e-12
_MOST_OF_STARTS = 16
Digest = bytes
"""Digest of a utility, under which equal utilities in one world share a curve and random agents."""
_COMPUTED: dict[tuple[Digest, Digest, Utility, Invalid], bytes] = {}
"""Curves of single worlds, by the content of world and utility: models that are compared meet the same worlds."""
_MOST_COMPUTED = 4096  # of about 2 kB each


def parts_of_worlds(count: int) -> Iterator[slice]:
    """Divide ``count`` worlds into consecutive batches of at most `WORLDS`, and yield the slice of each batch.

    Batches limit the memory that computations over all worlds need.
    """
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
    """Weights ``[R, U]`` of U worlds in R bootstrap resamples of their grids; the weights of a resample sum to 1.

    They are stored as the number of times that each grid was drawn. ``weights @ values`` is the matrix product with
    values ``[U]`` or ``[U, K]``.
    """

    counts: "npt.NDArray[np.integer] | npt.NDArray[np.bool_] | _SpilledCounts"  # [R, C], of the smallest type
    drawn: npt.NDArray[np.int64]  # [R] the sum of each row of counts
    grid: npt.NDArray[np.int64]  # [U] the grid of each world
    within: Array  # [U] one part of as many as there are worlds of that grid

    def __len__(self) -> int:
        return len(self.drawn)

    def of(self, worlds: slice) -> "Resampled":
        """Return the weights of some of the worlds only, given as a slice; the weights of a resample then need not sum
        to 1.
        """
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
        """Return the weights of all U worlds in some of the resamples as an array ``[resamples, U]``.

        Args:
            rows: slice of the resamples.
        """
        first, last = int(self.grid.min()), int(self.grid.max()) + 1
        chosen: Array = self.counts[rows, first:last][:, self.grid - first] * self.within
        chosen /= self.drawn[rows, None]
        return chosen

    def total(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Sum a whole number per world over the worlds that occur in each resample, each counted once.

        Args:
            values: ``[U]`` whole numbers, such as numbers of episodes.

        Returns:
            ``[R]`` sums.
        """
        result = np.zeros(len(self), dtype=np.int64)
        for worlds in parts_of_worlds(len(self.grid)):
            result += (self.of(worlds).normalized(slice(0, len(self))) > 0) @ values[worlds]
        return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """Weights for averages over U worlds in which each grid counts equally, divided equally among its worlds.

    There are weights for the plain mean (``whole``, ``[1, U]``), for bootstrap resamples of the grids (``resampled``),
    and for both halves of random splits of the grids (``first`` and ``second``). With fewer than two grids, only
    ``whole`` is not empty.
    """

    whole: Array  # [1, U]
    resampled: Resampled  # [RESAMPLES, U] grids drawn with replacement; empty with fewer than two grids
    first: Resampled  # [HALVES, U] one half of random splits of the grids; empty with fewer than two
    second: Resampled  # [HALVES, U] the other half
    grids: int


def weigh(clusters: Sequence[str], *, seed: int, spill: Spill) -> Weights:
    """Compute weights of the worlds in a group: for their mean, for bootstrap resamples, and for random halves.

    The resamples give intervals; with the halves, what is fitted to one half of the grids is scored on the other.
    Groups with the same number of grids share the random draws.

    Args:
        clusters: ``[U]`` name of the grid of each world; the versions of a grid, such as mirrored ones, share it.
        seed: root seed of the draws.
        spill: temporary file for the draws of large groups.
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


def interval(resampled: Array, grids: int, confidence: float) -> tuple[float, float]:
    """Return the lower and upper end of the expanded percentile interval of a bootstrap over grids.

    Args:
        resampled: ``[R]`` the estimate in each resample.
        grids: number of grids; with fewer than two, both ends are NaN.
        confidence: nominal coverage.
    """
    if grids < 2:
        return math.nan, math.nan
    low, high = np.quantile(resampled, tails(grids, (1 - confidence) / 2))
    return float(low), float(high)


def with_random(ends: tuple[float, float], value: float, null: Array, confidence: float) -> tuple[float, float]:
    """Widen an interval to that of random agents if the agent cannot be distinguished from them.

    Resamples of grids cannot contain unobserved events: if an agent never visited a rarely visited place, all resamples
    suggest that it avoids the place. We therefore compare the agent with simulated random agents with the same numbers
    of episodes. If the test does not reject, the interval must include 0 and the values of such agents.

    Args:
        ends: lower and upper end of the interval.
        value: signed value of the agent.
        null: ``[R]`` signed values of the random agents.
        confidence: nominal coverage of the interval; the test has the level 1 - confidence.
    """
    if random_p(value, null) <= 1 - confidence:
        return ends
    low, high = np.quantile(null, [(1 - confidence) / 2, (1 + confidence) / 2])
    return min(ends[0], float(low), 0.0), max(ends[1], float(high), 0.0)


def random_p(value: float, null: Array) -> float:
    """Return the p value of the hypothesis that an agent acts at random, from simulated random agents.

    It is the share of agents, the tested one included, whose value is at least as large in magnitude.

    Args:
        value: value of the tested agent.
        null: ``[R]`` values of simulated random agents.
    """
    return (1 + int((np.abs(null) >= abs(value)).sum())) / (1 + len(null))


def p_value(resampled: Array, value: float, grids: int) -> float:
    """Return the two-sided p value of the hypothesis that the true value is 0, which corresponds to `interval`.

    If too few resamples lie beyond 0 to be counted, we use the tail of Student's t at the value divided by the standard
    deviation of the resamples, so that small p values survive a correction for many tests.

    Args:
        resampled: ``[R]`` the estimate in each resample of the grids.
        value: the estimate.
        grids: number of grids; with fewer than two, the result is NaN.
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
    """Correct a p value by a test against simulated random agents: return the larger of both p values.

    If no random agent reaches the agent's value, the given p value is returned unchanged.

    Args:
        p: p value of another test.
        value: value of the agent.
        null: ``[R]`` values of simulated random agents.
    """
    simulated = random_p(value, null)
    return max(p, simulated) if simulated > 1 / (1 + len(null)) else p


def _rationalities() -> Array:
    limit = math.asinh(TOP / _LINEAR)
    above = np.linspace(0.0, limit, math.ceil(limit / _FINE) + 1)
    below = np.linspace(-limit, 0.0, math.ceil(limit / _COARSE) + 1)
    return np.asarray(_LINEAR * np.sinh(np.concatenate([below[:-1], above])))


KNOTS = _rationalities()
"""``[K]`` rationalities at which curves are stored, including 0; denser where agents seek utility."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curves:
    """B rationality curves W(beta), each of a world or of a weighted mean of worlds, relative to the uniform policy.

    W(beta) is the expected log mean exponential utility at rationality beta. The MEG of an agent with utility u is the
    supremum over beta of ``beta u - W(beta)``. Between two stored rationalities, W is the polynomial of degree five
    that matches W, W' and W'' at both.
    """

    uniform: Array  # [B] expected utility of the uniform policy
    values: Array  # [B, 3, K] W, W' and W'' at `KNOTS`
    ends: Array  # [B, 4] least and greatest attainable utility minus `uniform`, and the MEG there in nats

    @classmethod
    def of(cls, curve: RationalityCurve) -> "Curves":
        """Tabulate the rationality curve of one world at the rationalities `KNOTS`."""
        soft, span = curve.soft, curve.span
        values = np.stack(soft.backup(KNOTS * span)) * np.array([1.0, span, span * span])[:, None]
        ends = np.array([[soft.low * span, soft.high * span, curve.bound_lowest, curve.bound]])
        return cls(uniform=np.array([curve.uniform]), values=values[None], ends=ends)

    @classmethod
    def of_starts(cls, mdp: TabularMDP, starts: Sequence[Array], horizons: Sequence[int]) -> list["Curves"]:
        """Return the curves of worlds that differ only in their first state and their horizon, computed in one pass.

        Args:
            mdp: the process with the longest horizon, which may begin in each of the first states.
            starts: for each world, ``[S]`` probabilities of its first state.
            horizons: for each world, its number of decisions.
        """
        found = SoftProcess(mdp).from_starts(KNOTS, np.stack(starts), horizons)
        return [
            cls(
                uniform=np.array([start.uniform]),
                values=start.values[None],
                ends=np.array([[start.low, start.high, start.bound_low, start.bound_high]]),
            )
            for start in found
        ]

    @classmethod
    def joined(cls, curves: Sequence["Curves"]) -> "Curves":
        """Concatenate the curves of several worlds, in the given order, into one object."""
        parts = ([getattr(part, name) for part in curves] for name in ("uniform", "values", "ends"))
        uniform, values, ends = map(np.concatenate, parts)
        return cls(uniform=uniform, values=values, ends=ends)

    def to_bytes(self) -> bytes:
        """Serialise the curve of a single world, to be read by `from_bytes`."""
        return b"".join(part.tobytes() for part in (self.uniform, self.values, self.ends))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Curves":
        """Restore the rationality curve of one world from the bytes that `to_bytes` returned."""
        numbers = np.frombuffer(data, dtype=np.float64)
        return cls(uniform=numbers[:1], values=numbers[1:-4].reshape(1, 3, len(KNOTS)), ends=numbers[-4:][None])

    def mixed(self, weights: Array | Resampled) -> "Curves":
        """Average the rationality curves of B worlds with B' sets of weights, and return the B' mean curves.

        Args:
            weights: ``[B', B]``; the weights in each row are >= 0 and sum to 1.
        """
        flat = weights @ self.values.reshape(len(self.values), -1)
        values = flat.reshape(len(weights), 3, len(KNOTS))
        return Curves(uniform=weights @ self.uniform, values=values, ends=np.asarray(weights @ self.ends))

    def fit(self, relative: Array) -> tuple[Array, Array]:
        """Find the rationality that fits each utility best, and the MEG there: maximise ``beta u - W(beta)`` over beta.

        Args:
            relative: ``[N]`` utilities u minus that of the uniform policy. Values beyond an attainable end count as
                that end. There must be N curves, or one curve for all.

        Returns:
            The supremum in nats, with the sign of u, and beta (infinite at an end); each ``[N]``.
        """
        slopes, last = self.values[:, 1], len(KNOTS) - 1
        low, high, bound_low, bound_high = self.ends.T
        index = np.clip((slopes <= relative[:, None]).sum(axis=1) - 1, 0, last - 1)
        shape, width = self._polynomials(index)
        fraction = rising_root(shape, width, relative, _HALVINGS)
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
        """Evaluate W of each curve at a finite rationality.

        Args:
            beta: ``[B]`` one rationality per curve.

        Returns:
            ``[B]`` values of W in nats.
        """
        index = np.clip(np.searchsorted(KNOTS, beta, side="right") - 1, 0, len(KNOTS) - 2)
        shape, width = self._polynomials(index)
        return quintic_value(shape, (beta - KNOTS[index]) / width)

    def terms(self, beta: float, relative: Array) -> Array:
        """Return the contribution ``beta u - W(beta)`` of each world to the MEG at one rationality, ``[B]`` in nats.

        Args:
            beta: the rationality; if infinite, the result is the MEG of the policy with the greatest (or least)
                utility.
            relative: ``[B]`` utility of the agent in each world minus that of the uniform policy.
        """
        if math.isinf(beta):
            return self.ends[:, 3 if beta > 0 else 2].copy()
        result: Array = beta * relative - self.at(np.full(len(self.values), beta))
        return result

    def within(self, relative: Array) -> Array:
        """Clip utilities ``[B]``, relative to that of the uniform policy, to the range that policies can attain in each
        world.
        """
        clipped: Array = np.clip(relative, self.ends[:, 0], self.ends[:, 1])
        return clipped

    def _polynomials(self, index: npt.NDArray[np.intp]) -> tuple[Array, Array]:
        """Return the 6 coefficients of the polynomials to the right of N knots ``[6, N]``, and their widths ``[N]``."""
        rows = np.arange(len(index)) % len(self.values)
        width = KNOTS[index + 1] - KNOTS[index]
        scale = np.stack([np.ones_like(width), width, width**2])
        return quintic(*(self.values[rows, :, knot].T * scale for knot in (index, index + 1))), width


class Ensemble:
    """Mean rationality curves of some worlds, from which MEG (maximum-entropy goal-directedness) and its interval
    follow.

    A rationality curve W(beta) is the expected log mean exponential utility at rationality beta. The mean is taken over
    all worlds, over bootstrap resamples of their grids, and over random halves of the grids.

    Args:
        curves: the curves of the worlds, in batches, each with its slice (see `parts_of_worlds`).
        weights: the weight of each world in each of these means, from `weigh`.
    """

    def __init__(self, curves: Iterable[tuple[slice, Curves]], weights: Weights) -> None:
        self.weights = weights
        uniform, mixes = list[Array](), list[list[Curves]]()
        for worlds, part in curves:
            parts = [side.of(worlds) for side in (weights.resampled, weights.first, weights.second)]
            mixed = [part.mixed(weights.whole[:, worlds]), *map(part.mixed, parts)]
            mixes = [_sum(before, mix) for before, mix in zip(mixes or [[]] * 4, mixed, strict=True)]
            uniform.append(part.uniform)
        (self.whole,), (self.resampled,), (self.first,), (self.second,) = mixes
        self.uniform = np.concatenate(uniform)  # [U]

    def cross_fitted(self, relative: Array, counts: npt.NDArray[np.int64], *, lucky: bool = False) -> float:
        """Return the mean score of one half of the grids at the rationality fitted to the other half, in nats.

        The fit adds one random episode: without it, an agent that was optimal in one half would have an infinite
        rationality, and a single slip in the other half would cost infinitely much. Utilities beyond the attainable
        range (possible on a believed map, through whose walls the agent walked) are clipped to this range.

        Args:
            relative: ``[U]`` utility of the agent in each world minus that of the uniform policy.
            counts: ``[U]`` number of episodes in each world.
            lucky: whether utilities may lie beyond the attainable range by luck. The scored utilities are then not
                clipped, since clipping would count good luck less than bad luck.

        Returns:
            The mean over random splits and both halves; NaN with fewer than two grids.
        """
        if self.weights.grids < 2:
            return math.nan
        scores = []
        halves = ((self.weights.first, self.first), (self.weights.second, self.second))
        for (fitted, curve), (held_out, other) in (halves, halves[::-1]):
            episodes = fitted.total(counts)
            beta = curve.fit(curve.within(fitted @ relative) * episodes / (episodes + 1))[1]
            scored = held_out @ relative
            scores.append(beta * (scored if lucky else other.within(scored)) - other.at(beta))
        return float(np.mean(scores))


def _sum(before: list[Curves], part: Curves) -> list[Curves]:
    """Add the next part to a sum of curves; ``before`` is a list with the sum so far, or empty."""
    names = ("uniform", "values", "ends")
    return [Curves(**{name: getattr(curves, name) + getattr(part, name) for name in names}) for curves in before] or [
        part
    ]


def process_of_episode(world: FiniteWorld, utility: Array, *, kind: Utility, invalid: Invalid) -> TabularMDP:
    """Return the decision process of one episode in a world, in which MEG towards a utility is measured.

    Args:
        world: the world.
        utility: ``[S]`` utility of each state.
        kind: "steps" if the utility counts at every decision, "arrival" if it counts in the final state only.
        invalid: how turns without an action count, see `Invalid`.
    """
    final = utility if kind == "arrival" else None
    pays = utility if final is None else np.zeros_like(utility)
    return world.process.mdp(pays, world.horizon, terminal=final, idle=invalid == "action")


_OF_STARTS: dict[tuple[Any, ...], tuple[Any, list[Curves]]] = {}
"""Curves of worlds that differ in their beginnings alone, for agents that meet the same worlds one after another."""


def _content_of(world: FiniteWorld) -> Digest:
    """Return a digest of all that the curve of a world depends on besides the utility."""
    process, hashed = world.process, blake2b(digest_size=16)
    table = process.transitions
    arrays = [table.data, table.indices, table.indptr] if process.chance else [table]
    for array in (*arrays, process.start, *([] if process.offered is None else [process.offered])):
        hashed.update(f"{array.dtype.str} {array.shape} ".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    hashed.update(f"{world.horizon} {process.most} {process.offered is None}".encode())
    return hashed.digest()


def digest_of(utility: Array) -> Digest:
    """Return a digest (hash) of the utility of states ``[S]``; equal utilities have equal digests."""
    return blake2b(utility.tobytes(), digest_size=16).digest()


class CurveBank:
    """Cache for measuring MEG: it computes each rationality curve, mean curve and simulated random agent only once.

    Curves and random agents are stored in a temporary file, since they are large for many worlds. Everything is
    identified by a key: the number of the world and a digest of the utility.

    Args:
        kind, invalid: see `Utility` and `Invalid`.
        seed: root seed of resamples and of random agents.
        progress: called with the number of finished pieces of work and their total.
    """

    def __init__(
        self, *, kind: Utility, invalid: Invalid, seed: int, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.kind, self.invalid, self.seed = kind, invalid, seed
        self._show = progress or (lambda done, total: None)
        self._done = 0
        self._worlds: dict[int, FiniteWorld] = {}
        self._utilities: dict[int, dict[Digest, Array]] = {}
        self._equal: dict[Digest, Array] = {}  # many worlds have equal utilities
        self._spill = Spill()
        self._curves: dict[tuple[int, Digest], int] = {}  # numbers of pieces of the file
        self._random: dict[tuple[int, Digest, int, bool], int] = {}
        self._ensembles: dict[tuple[tuple[int, Digest], ...], Ensemble] = {}
        self._weights: dict[tuple[str, ...], Weights] = {}

    def add(self, world: FiniteWorld, utility: Array) -> tuple[int, Digest]:
        """Register a utility ``[S]`` of the states of a world, and return the key of its rationality curve."""
        number, digest = id(world), digest_of(utility)
        self._worlds[number] = world  # keeps the world alive, so that its number stays its own
        self._utilities.setdefault(number, {})[digest] = self._equal.setdefault(digest, utility)
        return number, digest

    def utility(self, key: tuple[int, Digest]) -> Array:
        """Return the utility ``[S]`` that was registered under a key by `add`."""
        return self._utilities[key[0]][key[1]]

    @property
    def _total(self) -> int:
        """Number of pieces of work known so far: curves, and simulations of random agents."""
        return max(self._done, len(self._worlds) + sum(map(len, self._utilities.values())))

    def curves(self, keys: Sequence[tuple[int, Digest]]) -> Iterator[tuple[slice, Curves]]:
        """Yield the rationality curves of some worlds in batches, each with the slice of `keys` that it covers."""
        for worlds in parts_of_worlds(len(keys)):
            yield worlds, Curves.joined([self.curve(key) for key in keys[worlds]])

    def ensemble(self, keys: Sequence[tuple[int, Digest]], clusters: Sequence[str], *, shared: bool = True) -> Ensemble:
        """Return the mean rationality curves of some worlds, from which MEG of an agent in these worlds is computed.

        A rationality curve plots the expected log mean exponential utility of one world against the rationality beta.
        The curves are averaged over all the worlds; over bootstrap resamples of the worlds, for the interval; and over
        random halves of the worlds, for cross-fitting.

        Args:
            keys: keys of the worlds' curves, from `add`.
            clusters: cluster of each world (a grid with its versions); resamples and halves keep clusters together.
            shared: cache the result for other agents in the same group of worlds.
        """
        stored = self._ensembles.get(tuple(keys))
        if stored is not None:
            return stored
        if tuple(clusters) not in self._weights:
            self._weights[tuple(clusters)] = weigh(clusters, seed=self.seed, spill=self._spill)
        ensemble = Ensemble(self.curves(keys), self._weights[tuple(clusters)])
        if shared:
            self._ensembles[tuple(keys)] = ensemble
        return ensemble

    def forget(self) -> None:
        """Delete the cached mean curves and weights of a group of worlds, which the next group cannot use."""
        self._ensembles.clear()
        self._weights.clear()

    def null(
        self, keys: Sequence[tuple[int, Digest]], counts: Sequence[int], fraction: Array, uniform: Array, *, exact: bool
    ) -> Array:
        """Return the mean utility of each simulated random agent minus that of the uniform policy, ``[NULL_AGENTS]``.

        The values show how far an agent that acts at random deviates by chance, with as many episodes as the tested
        agent.

        Args:
            keys: ``[U]`` keys of the curves of U worlds.
            counts: ``[U]`` number of episodes of each agent in each world.
            fraction: ``[U]`` weights of the worlds.
            uniform: ``[U]`` expected utility of the uniform policy.
            exact: use expectations under the policy instead of drawn actions, as for the tested agent.
        """
        total, items = np.zeros(NULL_AGENTS), list(zip(keys, counts, strict=True))
        for worlds in parts_of_worlds(len(items)):
            drawn = np.stack([self._null(key, episodes, exact) for key, episodes in items[worlds]])
            total += fraction[worlds] @ (drawn - uniform[worlds, None])
        return total

    def _null(self, key: tuple[int, Digest], episodes: int, exact: bool) -> Array:
        """Return the mean utility of each random agent over this number of episodes in one world, ``[NULL_AGENTS]``."""
        number, digest = key
        if (number, digest, episodes, exact) not in self._random:
            # One simulation serves all utilities of the world that lack it.
            lacking = {
                other: utility
                for other, utility in self._utilities[number].items()
                if (number, other, episodes, exact) not in self._random
            }
            simulated = random_utilities(
                self._worlds[number],
                lacking,
                episodes,
                NULL_AGENTS,
                seed=self.seed,
                kind=self.kind,
                invalid=self.invalid,
                exact=exact,
            )
            for other, values in simulated.items():
                self._random[number, other, episodes, exact] = self._spill.add(values.tobytes())
            self._advance()
        return np.frombuffer(self._spill.read(self._random[number, digest, episodes, exact]), dtype=np.float64)

    def process(self, key: tuple[int, Digest]) -> TabularMDP:
        """Return the decision process of one episode in the world, and with the utility, that were registered under a
        key.
        """
        number, digest = key
        world, utility = self._worlds[number], self._utilities[number][digest]
        return process_of_episode(world, utility, kind=self.kind, invalid=self.invalid)

    def curve(self, key: tuple[int, Digest]) -> Curves:
        """Return the rationality curve of the world and utility that were registered under a key; computed at first
        use.
        """
        if key not in self._curves:
            alike = self._alike(key)
            for of_world, curve in zip(alike, self._computed(alike), strict=True):
                self._curves[of_world] = self._spill.add(curve.to_bytes())
                self._advance()
        return Curves.from_bytes(self._spill.read(self._curves[key]))

    def _alike(self, key: tuple[int, Digest]) -> list[tuple[int, Digest]]:
        """Return this key and the keys of all worlds that differ from its world only in their first states."""
        number, digest = key
        process = self._worlds[number].process
        if self.kind != "steps" or self.invalid == "action":
            return [key]
        return [
            (other, digest)
            for other, world in self._worlds.items()
            if world.process.transitions is process.transitions
            and world.process.offered is process.offered
            and digest in self._utilities.get(other, {})
            and (other, digest) not in self._curves
        ]

    def _computed(self, keys: Sequence[tuple[int, Digest]]) -> list[Curves]:
        """Compute the curves of worlds with equal transitions in one pass; the curves are cached for the next bank."""
        if len(keys) == 1:
            return [self._computed_once(keys[0])]
        worlds = [self._worlds[number] for number, _ in keys]
        starts, horizons = [world.process.start for world in worlds], [world.horizon for world in worlds]
        shared = worlds[0].process
        name = (id(shared.transitions), keys[0][1], tuple(start.tobytes() for start in starts), tuple(horizons))
        if name not in _OF_STARTS:
            longest = replace(shared, start=np.mean(starts, axis=0))
            mdp = longest.mdp(self.utility(keys[0]), max(horizons), terminal=None)
            while len(_OF_STARTS) >= _MOST_OF_STARTS:
                del _OF_STARTS[next(iter(_OF_STARTS))]
            # The transitions are kept with the curves, so that no other ones get their number.
            _OF_STARTS[name] = shared.transitions, Curves.of_starts(mdp, starts, horizons)
        return _OF_STARTS[name][1]

    def _computed_once(self, key: tuple[int, Digest]) -> Curves:
        """Compute the curve of one world; curves are cached for agents in equal worlds (`_COMPUTED`)."""
        world = self._worlds[key[0]]
        content = _content_of(world), key[1], self.kind, self.invalid
        curve = _COMPUTED.get(content)
        if curve is None:
            curve = Curves.of(RationalityCurve(self.process(key))).to_bytes()
            while len(_COMPUTED) >= _MOST_COMPUTED:
                del _COMPUTED[next(iter(_COMPUTED))]
            _COMPUTED[content] = curve
        return Curves.from_bytes(curve)

    def _advance(self) -> None:
        self._done += 1
        self._show(self._done, self._total)
