"""Soft backups: the soft-optimal policy of a decision process at any rationality, including infinite rationality.

For a rationality b (in nats per unit of utility), over A actions and n decisions:

    q_t(s, a) = b d^t R(s, a) + E[W_{t+1}],   W_t(s) = log mean_a exp q_t(s, a),   pi_t(a | s) = exp(q_t - W_t) / A

Here d is the discount of the process, 1 for none.
If a process offers only some actions in a state, then A, the mean and every policy cover only these actions.
Using the mean instead of the sum makes W zero at b = 0. Internally, each action's utility is replaced by its
advantage over the uniform policy. This changes no policy, and changes W only by b times the expected utility of the
uniform policy. Large utilities that no action influences then cancel out of every difference, and decisions without
consequences have an advantage of exactly 0.

Backups run on the reachable part of a process (`ReachedProcess`): unreachable states do not affect the result, and in
most processes each action has one or few successors.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite
from goalscope.worlds.planning.mdp import TabularMDP, policy_by_time, transposed

if TYPE_CHECKING:
    from scipy.sparse import csr_array


Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

TIES = 1e-9  # actions count as equally good within this fraction of the range of attainable utility
_ROUNDING = 1e-12  # smaller advantages, relative to the values whose difference they are, are rounding errors
_SMALLEST = 1e-302  # with a smaller range of attainable utility, a rationality per unit of utility may overflow
_STEEP = 1e150  # squares of larger scaled utility differences would overflow, where probabilities near 1e-300 matter
_SLACK = 1e-9  # rounding tolerance at the ends of the attainable range, in units of the range's width
_KEEP = 8_000_000  # maximum number of advantages to store; larger arrays are recomputed in each pass

_REPORT_EVERY = 1024  # decisions between two progress reports of a pass
_LARGE, _REPORT_LARGE = 10_000, 16  # the same for processes with so many states and actions

_PROGRESS: ContextVar[Callable[[int, int], None] | None] = ContextVar("progress", default=None)

_SPARSE_BELOW = 0.2  # fraction of non-zero transitions below which a sparse product is faster than a dense one
_SMALL = 48  # number of states up to which a dense, single-threaded product by einsum is fastest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReachedProcess:
    """A Markov decision process restricted to the K states that are reachable within its horizon, for fast backward
    passes.

    Arrays are stored by action, ``[A, K]``, so that sums over actions run along contiguous memory.

    Attributes:
        kept: ``[K]`` index of each kept state in the whole process.
        decided: ``[K]`` bool, the states reachable before the last decision.
        table: ``[A * K]`` int64 successors of a deterministic process; otherwise probabilities ``[A * K, K]``, dense or
            sparse.
        reward: ``[A, K]`` expected utility of one decision; meaningless in states that are not ``decided``.
        final: ``[K]`` terminal utility.
        start: ``[K]`` probabilities of the first state.
        horizon: number of decisions.
        states: number of states of the whole process.
        offered: ``[A, K]`` bool, the actions that policies choose among; None for all.
        discount: factor by which each decision weighs less than the one before.
    """

    kept: Numbers
    decided: npt.NDArray[np.bool_]
    table: Union[npt.NDArray[Any], "csr_array"]
    reward: Array
    final: Array
    start: Array
    horizon: int
    states: int
    offered: npt.NDArray[np.bool_] | None = None
    discount: float = 1.0

    @property
    def weights(self) -> Array:
        """``[n + 1]`` discount factors: one for each of the n decisions, and one for the utility of the final state."""
        return np.asarray(self.discount ** np.arange(self.horizon + 1))

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self.reward.shape[0])

    def expect(self, columns: Array) -> Array:
        """Return the expected value of the next state by action and state, for C sets of state values at once.

        Args:
            columns: ``[C, K]`` value of each of the K states in each set.

        Returns:
            ``[C, A, K]`` expected values.
        """
        shape = (len(columns), *self.reward.shape)
        if not isinstance(self.table, np.ndarray):
            return np.ascontiguousarray(np.asarray(self.table @ columns.T).T).reshape(shape)
        if self.table.ndim == 1:
            return columns.take(self.table, axis=1).reshape(shape)
        if len(self.kept) <= _SMALL:
            few: Array = np.einsum("ck,jk->cj", columns, self.table)
            return few.reshape(shape)
        product: Array = columns @ self.table.T
        return product.reshape(shape)

    def flow(self, mass: Array) -> Array:
        """Return the distribution of the next state, ``[K]``, given the joint distribution of action and state,
        ``[A, K]``.
        """
        flat = mass.reshape(-1)
        if not isinstance(self.table, np.ndarray):
            return np.asarray(transposed(self.table) @ flat, dtype=np.float64)
        if self.table.ndim == 1:
            counted = np.bincount(self.table, weights=flat, minlength=len(self.kept))
            return counted.astype(np.float64, copy=False)
        if len(self.kept) <= _SMALL:
            few: Array = np.einsum("j,jk->k", flat, self.table)
            return few
        product: Array = flat @ self.table
        return product

    def policy(self, policy: npt.NDArray[Any]) -> Array:
        """Restrict a policy of the whole process to the K reachable states, and normalise it.

        Args:
            policy: action probabilities ``[S, A]``, or ``[n, S, A]`` if they depend on time.

        Returns:
            ``[n, A, K]`` probabilities by time, action and state, or ``[1, A, K]`` if they do not depend on time.

        Raises:
            ValueError: if the policy has another shape, or its rows are not probability distributions.
        """
        by_time = policy_by_time(policy, self.horizon, self.states, self.actions)
        by_time = by_time if np.ndim(policy) == 3 else by_time[:1]
        restricted = np.ascontiguousarray(by_time[:, self.kept].transpose(0, 2, 1))
        restricted /= restricted.sum(axis=1, keepdims=True)
        return restricted


def reached_process(mdp: TabularMDP) -> ReachedProcess:
    """Restrict a Markov decision process to its reachable states, in the form in which backward passes are fastest.

    A process whose actions all have one outcome is stored as deterministic, even if it was given by probabilities.
    Other probabilities are normalised, since `TabularMDP` accepts sums that differ slightly from 1.
    """
    reachable, decided = _reachable(mdp)
    reward = np.ascontiguousarray(mdp.reward[reachable].T)
    start = mdp.start[reachable]
    reward[:, ~decided] = reward[0, int(start.argmax())]  # no decision is taken there, so any actual reward will do
    return ReachedProcess(
        kept=reachable,
        decided=decided,
        table=_table(mdp, reachable),
        reward=reward,
        final=mdp.final[reachable],
        start=start / start.sum(),
        horizon=mdp.horizon,
        states=mdp.states,
        offered=None if mdp.offered is None else np.ascontiguousarray(mdp.offered[reachable].T),
        discount=mdp.discount,
    )


def _reachable(mdp: TabularMDP) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return the indices of the reachable states, and a mask of those that are reachable before the last decision."""
    reached = mdp.start > 0
    decided = reached
    fresh = np.flatnonzero(reached)
    for _ in range(mdp.horizon):
        decided = reached.copy()
        successors = np.unique(_successors(mdp, fresh))
        fresh = successors[~reached[successors]]
        if not len(fresh):
            break
        reached[fresh] = True
    states = np.flatnonzero(reached)
    return states, decided[states]


def _successors(mdp: TabularMDP, states: Numbers) -> Numbers:
    table = mdp.transitions
    if not isinstance(table, np.ndarray):
        rows = (states[:, None] * mdp.actions + np.arange(mdp.actions)).reshape(-1)
        part = table[rows]
        return np.asarray(part.indices[part.data > 0], dtype=np.int64)
    if table.ndim == 2:
        return np.asarray(table[states].reshape(-1), dtype=np.int64)
    return np.flatnonzero((table[states] > 0).any(axis=(0, 1)))


def _table(mdp: TabularMDP, reachable: Numbers) -> Any:
    table, actions, count = mdp.transitions, mdp.actions, len(reachable)
    if isinstance(table, np.ndarray) and table.ndim == 2:
        new_number = np.zeros(
            mdp.states, dtype=np.int64
        )  # successors after the last decision may be unreachable; their index does not matter
        new_number[reachable] = np.arange(count)
        return new_number[table[reachable].T.reshape(-1)]
    from scipy.sparse import csr_array

    if isinstance(table, np.ndarray):
        dense = np.ascontiguousarray(table[np.ix_(reachable, np.arange(actions), reachable)].transpose(1, 0, 2))
        matrix = csr_array(dense.reshape(actions * count, count))
    else:
        rows = (reachable[None, :] * actions + np.arange(actions)[:, None]).reshape(-1)
        matrix = csr_array(table[rows][:, reachable])
        matrix.eliminate_zeros()
    sums = np.asarray(matrix.sum(axis=1)).reshape(-1)
    entries = np.diff(matrix.indptr)
    if (entries == 1).all():
        return matrix.indices.astype(np.int64)
    scale = np.where(sums > 0, 1 / np.where(sums > 0, sums, 1.0), 0.0)
    matrix.data = matrix.data * np.repeat(scale, entries)
    if count <= _SMALL or matrix.nnz >= _SPARSE_BELOW * actions * count * count:
        return matrix.toarray()
    return matrix


@contextmanager
def passes_reported_to(progress: Callable[[int, int], None]) -> Iterator[None]:
    """While this context lasts, report the progress of each long backward pass to a function.

    The function is called with the number of decisions done and the number of all decisions.
    """
    token = _PROGRESS.set(progress)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StartValues:
    """Attainable utilities and soft values of a decision process from one first state, with one horizon.

    W(b) is the expected log mean exponential utility at rationality b. W*(u) is its convex conjugate: the greatest ``b
    u - W(b)`` for an expected utility u, which is the MEG of a policy with this utility.

    Attributes:
        uniform: expected utility of the uniform policy.
        low, high: least and greatest attainable expected utility minus ``uniform``.
        bound_low, bound_high: W* at ``low`` and ``high`` in nats, at infinite rationality.
        values: ``[3, B]`` W and its first and second derivative at B rationalities, in nats and units of utility.
    """

    uniform: float
    low: float
    high: float
    bound_low: float
    bound_high: float
    values: Array


class SoftProcess:
    """A decision process prepared for computing soft-optimal policies, at any rationality b (in nats per unit of
    utility).

    A soft-optimal policy takes each action with a probability proportional to the exponential of b times its soft
    value. W(b) is the expected log mean exponential utility, and W* its convex conjugate, the greatest ``b u - W(b)``
    for an expected utility u; see `goalscope.goals.meg.known`. Internally, utilities are measured relative to the
    uniform policy's expected utility, in units of the attainable range.

    Attributes:
        mdp: the process.
        reached: its reachable part.
        uniform: expected utility of the uniform policy.
        span: greatest minus least attainable expected utility; 0 if no policy changes it.
        low: least attainable expected utility minus ``uniform``, in units of ``span``.
        high: greatest attainable expected utility minus ``uniform``, in units of ``span``.
        bound_low: W*(low) in nats, at infinite rationality.
        bound_high: W*(high) in nats, at infinite rationality.
        passes: number of backward passes computed so far.

    Raises:
        ValueError: if the utilities are so large or small that floating point cannot represent their range.
    """

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        self.reached = reached_process(mdp)
        self.passes = 0
        reward, final, self._unit, self._shift = _tamed(self.reached)
        self._weights = self.reached.weights
        self._reward, self._final = reward, final
        offered = self.reached.offered
        self._left_out = None if offered is None else ~offered
        # Number of offered actions in each state, or one number if all actions are offered in all states.
        self._count: Any = self.reached.actions if offered is None else offered.sum(axis=0)
        value, self._stored = self._solve_uniform()
        start = self.reached.start
        with np.errstate(over="ignore"):  # sums of utilities near the largest number may be infinite, but never NaN
            self.uniform = self._unit * (float(start @ value) + self._shift)
        ends = self._extremes()
        scaled_span = ends[0] - ends[1]
        self.span = self._unit * scaled_span
        ordinary = math.isfinite(self.uniform) and math.isfinite(self.span)
        if not ordinary or (scaled_span > 0 and self.span < _SMALLEST):
            raise ValueError(
                f"the attainable utility must have a range from {_SMALLEST:g} to 1.8e308, got {self.span:g} around "
                f"{self.uniform:g}: multiply all utilities by a constant, which changes no MEG"
            )
        self._scale = 1 / scaled_span if scaled_span > 0 else 0.0
        self.high, self.low = (end * self._scale for end in ends)
        self.bound_high, self.bound_low = self._bounds()

    # -- one backward pass ---------------------------------------------------------------------------------------

    def backup(self, rationality: npt.ArrayLike) -> tuple[Array, Array, Array]:
        """Compute W and its first two derivatives at several finite rationalities, in one backward pass.

        W is the expected log mean exponential utility; utilities are in units of the attainable range ``span``.

        Args:
            rationality: ``[B]`` rationalities in nats per unit of ``span``, finite.

        Returns:
            Three arrays ``[B]``: W, its slope (the expected utility of the soft-optimal policy) and its curvature.
        """
        b = np.atleast_1d(np.asarray(rationality, dtype=np.float64))
        check_finite("rationality", b)
        count, states = len(b), len(self.reached.kept)
        self.passes += count
        if self._scale == 0:
            zero = np.zeros(count)
            return zero, zero.copy(), zero.copy()
        columns = np.zeros((3 * count, states))  # W, its first and its second derivative for each rationality
        factor = (b * self._scale)[:, None, None]
        for advantage in self._backward():
            columns = self._soft_step(columns, advantage, factor, self._scale)
        ends = columns.reshape(3, count, states) @ self.reached.start
        return ends[0], ends[1], ends[2]

    def _soft_step(self, columns: Array, advantage: Array, factor: Array, scale: float) -> Array:
        """Return W, W' and W'' one decision earlier, ``[3 B, K]``.

        Args:
            columns: ``[3 B, K]`` the same after the decision, for B rationalities.
            advantage: ``[A, K]`` advantage of each action over the uniform policy.
            factor: ``[B, 1, 1]`` the rationalities, in nats per unit of the advantages.
            scale: unit of the derivatives, in units of the advantages.
        """
        count, (actions, states) = len(factor), advantage.shape
        after = self.reached.expect(columns).reshape(3, count, actions, states)
        policy, earlier = np.empty((count, actions, states)), np.empty((3, count, states))
        np.multiply(factor, advantage, out=policy)
        policy += after[0]
        if self._left_out is not None:
            policy[:, self._left_out] = -np.inf
        peak = policy.max(axis=1)
        policy -= peak[:, None]
        np.exp(policy, out=policy)
        total = policy.sum(axis=1)
        policy /= total[:, None]
        np.log(total / self._count, out=earlier[0])
        earlier[0] += peak
        slope = after[1]
        slope += scale * advantage
        np.einsum("bas,bas->bs", policy, slope, out=earlier[1])
        slope -= earlier[1][:, None]
        if scale > _STEEP:
            np.clip(slope, -_STEEP, _STEEP, out=slope)
        np.square(slope, out=slope)
        slope += after[2]
        np.einsum("bas,bas->bs", policy, slope, out=earlier[2])
        return earlier.reshape(3 * count, states)

    def from_starts(self, rationality: Array, starts: Array, horizons: Sequence[int]) -> list["StartValues"]:
        """Return the soft values of the process from several first states, each with its own horizon, in one pass for
        all.

        Utilities here are the same in every decision, so the values with k decisions left do not depend on the horizon.

        Args:
            rationality: ``[B]`` rationalities in nats per unit of utility, finite.
            starts: ``[R, S]`` probabilities of the first state; all of these states are reachable in this process.
            horizons: number of decisions for each of the R starts, at most that of this process.

        Returns:
            The values of each of the R starts.

        Raises:
            ValueError: if the process has a discount or a terminal utility.
        """
        if self.mdp.discount != 1.0 or self.mdp.terminal_utility is not None:
            raise ValueError("values from several starts need a process without discount and terminal utility")
        count, states = len(rationality), len(self.reached.kept)
        first = starts[:, self.reached.kept]
        typical = self._shift / self.mdp.horizon  # the median reward, which was taken from each decision
        wanted: dict[int, list[int]] = {number: [] for number in horizons}
        for index, number in enumerate(horizons):
            wanted[number].append(index)
        factor = (rationality * self._unit)[:, None, None]
        ends = np.zeros((2, states))
        columns, limits = np.zeros((3 * count, states)), np.zeros((4, states))
        found: dict[int, StartValues] = {}
        passes = zip(self._backward(), self._uniform_pass(), strict=True)
        for left, (advantage, (value, _)) in enumerate(passes, 1):
            columns = self._soft_step(columns, advantage, factor, 1.0)
            after = self.reached.expect(ends)
            after += advantage
            ends = np.stack(self._ends(after))
            _, limits = self._limit_step(limits, advantage, TIES)
            for index in wanted.get(left, ()):
                start = first[index]
                w, slope, curvature = columns.reshape(3, count, states) @ start
                high, low = (self._unit * float(end @ start) for end in ends)
                best, worst = (max(0.0, -float(end @ start)) for end in limits[2:])
                found[index] = StartValues(
                    uniform=self._unit * (float(start @ value) + typical * left),
                    low=low,
                    high=high,
                    bound_low=worst,
                    bound_high=best,
                    values=np.stack([w, self._unit * slope, self._unit**2 * curvature]),
                )
        return [found[index] for index in range(len(horizons))]

    def soft_policy(self, rationality: float) -> Array:
        """Return the action probabilities of the soft-optimal policy at each time, ``[n, S, A]``: times by states by
        actions.

        The policy is uniform in states that cannot be reached before the last decision.

        Args:
            rationality: in nats per unit of ``span``; infinite values give the limit policies, which are optimal (or,
                at minus infinity, worst).
        """
        n, states, actions = self.mdp.horizon, self.mdp.states, self.mdp.actions
        policy = np.full((n, states, actions), 1 / actions)
        if self.mdp.offered is not None:
            policy[:] = self.mdp.offered / self.mdp.offered.sum(axis=1, keepdims=True)
        decided = self.reached.decided
        for t, probabilities in zip(reversed(range(n)), self._policies(rationality), strict=True):
            policy[t, self.reached.kept[decided]] = probabilities[:, decided].T
        return policy

    def relative_utility(self, policy: npt.NDArray[Any]) -> float:
        """Return the expected utility of a policy minus that of the uniform policy, in units of the attainable range
        ``span``.

        Args:
            policy: action probabilities ``[S, A]``, or ``[n, S, A]`` if they depend on time.

        Raises:
            ValueError: if the policy has another shape, its rows are not probability distributions, or it takes actions
                that are not offered.
        """
        by_time = self.reached.policy(policy)
        value = np.zeros((1, len(self.reached.kept)))
        for t, advantage in zip(reversed(range(self.mdp.horizon)), self._backward(), strict=True):
            q = self.reached.expect(value)[0]
            q += advantage
            value = np.einsum("as,as->s", by_time[t if len(by_time) > 1 else 0], q)[None]
        utility = float(value[0] @ self.reached.start) * self._scale
        if self._left_out is not None and not self.low - _SLACK <= utility <= self.high + _SLACK:
            raise ValueError(
                "a policy must take only offered actions, got a policy whose expected utility is out of reach of these "
                "actions: set the probabilities of all other actions to 0"
            )
        return min(max(utility, self.low), self.high)  # only rounding errors can lie outside

    # -- passes --------------------------------------------------------------------------------------------------

    def _solve_uniform(self) -> tuple[Array, Array | None]:
        """Return the uniform policy's values at the first decision, ``[K]``, and all advantages if there is space."""
        n, (actions, states) = self.mdp.horizon, self._reward.shape
        stored = np.empty((n, actions, states)) if n * actions * states <= _KEEP else None
        for left, (value, after) in enumerate(self._uniform_pass(), 1):
            if stored is not None:
                stored[n - left] = _advantage(after, value)
        return value, stored

    def _uniform_pass(self) -> Iterator[tuple[Array, Array]]:
        """Yield the uniform policy's values ``[K]``, and those after each action ``[A, K]``, from the last decision."""
        value = self._weights[-1] * self._final
        for weight in self._weights[-2::-1]:
            after = weight * self._reward + self.reached.expect(value[None])[0]
            value = self._mean(after)
            yield value, after

    def _backward(self) -> Iterator[Array]:
        """Yield each action's advantage over the uniform policy, ``[A, K]``, from the last decision to the first."""
        progress = _PROGRESS.get()
        for number, advantage in enumerate(self._advantages(), 1):
            yield advantage
            every = _REPORT_EVERY if advantage.size < _LARGE else _REPORT_LARGE
            if progress is not None and number % every == 0:
                progress(number, self.mdp.horizon)

    def _advantages(self) -> Iterator[Array]:
        if self._stored is not None:
            return iter(self._stored[::-1])
        return (_advantage(after, value) for value, after in self._uniform_pass())

    def _mean(self, values: Array) -> Array:
        """Return the mean of values ``[A, K]`` over the offered actions, ``[K]``."""
        if self._left_out is None:
            return np.asarray(values.mean(axis=0))
        return np.asarray(np.where(self._left_out, 0.0, values).sum(axis=0) / self._count)

    def _ends(self, values: Array) -> tuple[Array, Array]:
        """Return the maxima of the first and the minima of the second of values ``[2, A, K]``, over offered actions."""
        if self._left_out is None:
            return values[0].max(axis=0), values[1].min(axis=0)
        return np.where(self._left_out, -np.inf, values[0]).max(axis=0), np.where(
            self._left_out, np.inf, values[1]
        ).min(axis=0)

    def _extremes(self) -> tuple[float, float]:
        """Return the greatest and the least attainable utility.

        Both are relative to the utility of the uniform policy and divided by `_unit`.
        """
        ends = np.zeros((2, len(self.reached.kept)))
        for advantage in self._backward():
            after = self.reached.expect(ends)
            after += advantage
            ends = np.stack(self._ends(after))
        high, low = (float(end @ self.reached.start) for end in ends)
        return high, low

    def _limits(self) -> Iterator[tuple[Array, Array]]:
        """Yield the weights ``[2, A, K]`` of the limit policies (best, worst) and ``[2, K]`` their c, backwards."""
        columns = np.zeros((4, self._reward.shape[1]))  # greatest and least utility to come, and c of each
        for advantage, weight in zip(self._backward(), self._weights[-2::-1], strict=True):
            policies, columns = self._limit_step(columns, advantage, TIES * weight)
            yield policies, columns[2:]

    def _limit_step(self, columns: Array, advantage: Array, ties: float) -> tuple[Array, Array]:
        """Return the limit policies ``[2, A, K]``, and the columns of `_limits` one decision earlier, ``[4, K]``."""
        after = self.reached.expect(columns)
        action_values = self._scale * advantage + after[:2]
        best = np.stack(self._ends(action_values))
        optimal = np.abs(action_values - best[:, None]) <= ties
        if self._left_out is not None:
            optimal &= ~self._left_out
        peak = np.where(optimal, after[2:], -np.inf).max(axis=1)
        weights = np.where(optimal, np.exp(after[2:] - peak[:, None]), 0.0)
        total = weights.sum(axis=1)
        return weights / total[:, None], np.concatenate([best, np.log(total / self._count) + peak])

    def _bounds(self) -> tuple[float, float]:
        if self._scale == 0:
            return 0.0, 0.0
        for _, ends in self._limits():
            last = ends
        best, worst = (max(0.0, -float(end @ self.reached.start)) for end in last)
        return best, worst

    def _policies(self, rationality: float) -> Iterator[Array]:
        """Yield the soft-optimal policy ``[A, K]`` at each time, from the last decision to the first."""
        if np.isnan(rationality):
            raise ValueError("rationality must be a number or infinite, got NaN")
        if np.isinf(rationality) and self._scale > 0:
            for weights, _ in self._limits():
                yield weights[0 if rationality > 0 else 1]
            return
        factor = rationality * self._scale if self._scale > 0 else 0.0
        values = np.zeros((1, len(self.reached.kept)))
        for advantage in self._backward():
            q = factor * advantage + self.reached.expect(values)[0]
            if self._left_out is not None:
                q[self._left_out] = -np.inf
            peak = q.max(axis=0)
            weights = np.exp(q - peak)
            total = weights.sum(axis=0)
            values = (np.log(total / self._count) + peak)[None]
            yield weights / total


def _advantage(after: Array, value: Array) -> Array:
    """Return action values minus their mean; differences that are only rounding errors become exactly 0."""
    advantage = after - value
    size = np.abs(advantage).max(axis=0)
    advantage[:, size <= _ROUNDING * np.abs(after).max(axis=0)] = 0.0
    return advantage


def _tamed(reached: ReachedProcess) -> tuple[Array, Array, float, float]:
    """Return reward and final utility, scaled and centred, then the unit of scale and the utility that was removed."""
    # Dividing by a power of two and subtracting one of the values keep differences of utilities exact.
    largest = max(float(np.abs(reached.reward).max()), float(np.abs(reached.final).max()))
    unit = math.ldexp(0.5, math.frexp(largest)[1])
    if largest == 0:
        return reached.reward, reached.final, 1.0, 0.0
    reward, final, weights = reached.reward / unit, reached.final / unit, reached.weights
    typical, last = (float(np.median(part.reshape(-1)[: part.size - 1 + part.size % 2])) for part in (reward, final))
    return reward - typical, final - last, unit, typical * float(weights[:-1].sum()) + last * float(weights[-1])
