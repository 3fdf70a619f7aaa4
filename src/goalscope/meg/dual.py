"""The concave problem behind MEG with an unknown utility: one free value for each state.

``sup over w of <w, occupancy of the policy> - W(w)`` has the gradient ``occupancy of the policy - occupancy of the
soft policy``. By duality the supremum is the least divergence from the uniform policy over all policies with the same
occupancy, so any such policy bounds it from above.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.planning import TabularMDP
from goalscope.planning.reached import reached_process

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_MASKS = (1e-2, 1e-4, 1e-7)  # action chances below which a limit may forbid an action
_MEMORY = 50  # pairs that the quasi-Newton search keeps
_CLOSE = 1e-7  # nats by which an optimum over fewer actions may be worse and still be the same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optimum:
    """A solution of the dual problem.

    Attributes:
        lower: the greatest value found, nats; a lower bound of the supremum.
        upper: an upper bound of it.
        weights: ``[M]`` the values at ``lower``, in nats.
        residual: sum over states of the absolute difference of both occupancies there, in decisions.
        attained: whether finite values reach the supremum.
        evaluations: backward and forward passes that it took.
    """

    lower: float
    upper: float
    weights: Array
    residual: float
    attained: bool
    evaluations: int


class OccupancyDual:
    """The dual problem of one policy in one world.

    Values are ordered as the states that are kept, then, with ``terminal``, once more for the state after the last
    decision.

    Attributes:
        reached: the part of the world that counts.
        occupancy: ``[M]`` what the policy occupies: expected number of decisions in each state (and chance of each
            final state).
        divergence: divergence of the policy from the uniform one over all decisions, nats.

    Args:
        mdp: the world; its own utility does not enter.
        policy: ``[S, A]`` or ``[n, S, A]``.
        terminal: whether the state after the last decision has a free value of its own.
    """

    def __init__(self, mdp: TabularMDP, policy: npt.NDArray[Any], *, terminal: bool) -> None:
        self.reached = reached_process(mdp)
        self.terminal = terminal
        self._own = self.reached.policy(policy)
        self.evaluations = 0
        self.occupancy, self.divergence = self._own_flow()

    def value(self, weights: Array, mask: Mask | None = None) -> tuple[float, Array]:
        """Return the objective and its gradient ``[M]``; with a mask over some actions only."""
        log_normaliser, policy = self._soft(weights, mask)
        return float(weights @ self.occupancy) - log_normaliser, self.occupancy - self._occupied(policy)

    def solve(self, start: Array | None = None, *, steps: int = 1000) -> Optimum:
        """Return the optimum with its certificate.

        Where the policy lies at the border of what can be occupied (an optimal one does), the supremum is a limit of
        ever larger values that forbid ever more actions. The limit is computed by forbidding them: an optimum over
        fewer actions, the policy's own among them, is the divergence of a policy with the same occupancy, and so an
        upper bound of the supremum, while every finite weighting is a lower one.
        """
        began = np.zeros(len(self.occupancy)) if start is None else start
        weights, lower, gradient = self._climb(began, None, steps)
        residual = float(np.abs(gradient).sum())
        _, policy = self._soft(weights, None)
        flows = self._flows(policy)
        own = np.broadcast_to(self._own, policy.shape) > 0
        upper, attained = lower + _missing(gradient, weights), True
        upper = min(upper, self.divergence)
        for threshold in _MASKS:
            mask = (policy > threshold) | own
            if not (flows[~mask] > 0).any():
                continue
            found, value, rest = self._climb(np.zeros_like(weights), mask, steps)
            bound = value + _missing(rest, found)
            if bound <= upper + _CLOSE:  # as good with actions forbidden: the supremum is a limit
                upper, attained = min(upper, bound), False
        return Optimum(
            lower=max(0.0, lower),
            upper=max(upper, lower, 0.0),
            weights=weights,
            residual=residual,
            attained=attained,
            evaluations=self.evaluations,
        )

    def _climb(self, start: Array, mask: Mask | None, steps: int) -> tuple[Array, float, Array]:
        from scipy.optimize import minimize

        # The curvature along a state that is seldom occupied is small: steps there must be longer.
        scale = 1 / np.sqrt(np.clip(self.occupancy, 1e-3, 1.0))

        def negative(scaled: Array) -> tuple[float, Array]:
            value, gradient = self.value(scaled * scale, mask)
            return -value, -gradient * scale

        options: Any = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": _MEMORY, "ftol": 1e-15, "gtol": 1e-12}
        found = minimize(negative, start / scale, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x) * scale, -float(found.fun), -np.asarray(found.jac) / scale

    def _soft(self, weights: Array, mask: Mask | None) -> tuple[float, Array]:
        """Return W and the soft policy ``[n, A, K]``."""
        self.evaluations += 1
        process, count = self.reached, len(self.reached.kept)
        each = weights[:count]
        values = weights[count:].copy() if self.terminal else np.zeros(count)
        policy = np.empty((process.horizon, process.actions, count))
        for t in reversed(range(process.horizon)):
            after = process.expect(values[None])[0]
            if mask is not None:
                after = np.where(mask[t], after, -np.inf)
            peak = after.max(axis=0)
            np.exp(after - peak, out=policy[t])
            total = policy[t].sum(axis=0)
            policy[t] /= total
            values = each + peak + np.log(total / process.actions)
        return float(values @ process.start), policy

    def _occupied(self, policy: Array) -> Array:
        """Return ``[M]``, the occupancy of a policy by time ``[n or 1, A, K]``: n rows of time, not n + 1."""
        total = np.zeros(len(self.reached.kept))
        state = self.reached.start
        for t in range(self.reached.horizon):
            total += state
            state = self.reached.flow(policy[t if len(policy) > 1 else 0] * state)
        return np.concatenate([total, state]) if self.terminal else total

    def _flows(self, policy: Array) -> Array:
        """Return ``[n, A, K]``, the chance of each state and action at each time."""
        flows = np.empty_like(policy)
        state = self.reached.start
        for t in range(self.reached.horizon):
            flows[t] = policy[t] * state
            state = self.reached.flow(flows[t])
        return flows

    def _own_flow(self) -> tuple[Array, float]:
        state, log_actions = self.reached.start, math.log(self.reached.actions)
        logs = np.where(self._own > 0, np.log(np.where(self._own > 0, self._own, 1.0)), 0.0)
        each = (self._own * logs).sum(axis=1) + log_actions
        divergence = 0.0
        for t in range(self.reached.horizon):
            now = t if len(self._own) > 1 else 0
            divergence += float(each[now] @ state)
            state = self.reached.flow(self._own[now] * state)
        return self._occupied(self._own), max(0.0, divergence)


def _missing(gradient: Array, weights: Array) -> float:
    """Return how far a concave objective can rise from a point within twice the range of its weights."""
    return float(np.abs(gradient).sum()) * max(1.0, float(np.ptp(weights))) + 1e-12
