"""Visited states with their action counts, and what an optimal agent would show with the same number of visits.

A policy estimated from n visits is biased: a state visited once has entropy 0, whoever acts. So beside each figure
stands its expectation for an agent that draws uniformly from the optimal set and visits the same states as often.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from goalscope.measures.table import StepTable

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Per = Literal["state", "visit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """The V different states that the K groups of a table visited; turns without an action are not in it.

    Attributes:
        group: ``[V]`` int64 group of each state, as in `StepTable.groups`.
        first: ``[K]`` int64 first episode of each group.
        counts: ``[V, 4]`` int64 how often each action was taken, pooled over the group's trajectories.
        optimal: ``[V, 4]`` bool the optimal set, never empty.
        distance: ``[V]`` int64 steps to the goal.
        undecided: ``[K]`` int64 number of visited states that have no optimal action; they are left out above.
    """

    group: Counts
    first: Counts
    counts: Counts
    optimal: npt.NDArray[np.bool_]
    distance: Counts
    undecided: Counts

    @classmethod
    def from_table(cls, table: StepTable) -> "Visits":
        """Count the actions of each visited state (cell and phase) of each group."""
        group_of, first = table.groups()
        acted = np.flatnonzero(table.action >= 0)
        key = state_keys(table, table.state, group_of[table.episode])
        _, where, state = np.unique(key[acted], return_index=True, return_inverse=True)
        where = acted[where]
        counts = np.bincount(state * 4 + table.action[acted], minlength=4 * len(where)).reshape(-1, 4)
        group = group_of[table.episode[where]]
        decided = table.optimal[where].any(axis=1)
        return cls(
            group=group[decided],
            first=first,
            counts=counts[decided].astype(np.int64),
            optimal=table.optimal[where][decided],
            distance=table.distance[where][decided],
            undecided=np.bincount(group[~decided], minlength=len(first)).astype(np.int64),
        )

    @property
    def number(self) -> Counts:
        """``[V]`` int64 visits of each state, at least 1."""
        visits: Counts = self.counts.sum(axis=1)
        return visits

    @property
    def options(self) -> Counts:
        """``[V]`` int64 size of each optimal set, 1 to 4."""
        size: Counts = self.optimal.sum(axis=1, dtype=np.int64)
        return size

    @property
    def policy(self) -> Values:
        """``[V, 4]`` empirical probability of each action."""
        shares: Values = self.counts / self.number[:, None]
        return shares

    def at_least(self, visits: int) -> "Visits":
        """Return the states with at least this many visits."""
        kept = self.number >= visits
        return Visits(
            group=self.group[kept],
            first=self.first,
            counts=self.counts[kept],
            optimal=self.optimal[kept],
            distance=self.distance[kept],
            undecided=self.undecided,
        )

    def mean(self, value: Values, per: Per = "state") -> Values:
        """Return ``[K]``, the mean of ``[V]`` values over the states (or visits) of each group, NaN without states."""
        weight = self.number.astype(np.float64) if per == "visit" else np.ones(len(self.group))
        size = np.bincount(self.group, weights=weight, minlength=len(self.first))
        total = np.bincount(self.group, weights=weight * value, minlength=len(self.first))
        found: Values = np.divide(total, size, out=np.full(len(size), np.nan), where=size > 0)
        return found


def state_keys(table: StepTable, state: Counts, group: Counts) -> Counts:
    """Return ``[N]`` numbers that are equal for equal states ``[N, 3]`` of equal groups ``[N]`` and different else."""
    both = np.concatenate([table.state, table.final, np.zeros((1, 3), dtype=np.int64)])
    rows, cols, phases = (int(most) + 1 for most in both.max(axis=0))
    keys: Counts = ((group * phases + state[:, 2]) * rows + state[:, 0]) * cols + state[:, 1]
    return keys


def entropy(policy: Values) -> Values:
    """Return the entropy of distributions ``[..., 4]`` in bits."""
    bits: Values = _surprise(policy).sum(axis=-1)
    return bits


def divergence(policy: Values, optimal: npt.NDArray[np.bool_]) -> Values:
    """Return the Jensen-Shannon divergence of distributions from the uniform ones over the optimal sets, in bits.

    Args:
        policy: ``[V, 4]`` probabilities.
        optimal: ``[V, 4]`` bool, at least one True in each row.
    """
    target = optimal / optimal.sum(axis=1, keepdims=True)
    bits: Values = np.clip(_divergence_terms(policy, target).sum(axis=1), 0.0, 1.0)
    return bits


def expected_entropy(number: Counts, options: Counts) -> Values:
    """Return the expected entropy of the empirical policy of an optimal agent, in bits.

    Args:
        number: ``[V]`` visits n.
        options: ``[V]`` optimal actions k, all equally likely.

    Returns:
        ``[V]``: exact, ``k E[h(X / n)]`` with X binomial(n, 1 / k) and ``h(p) = -p log2 p``.
    """
    return _over_pairs(_expected_entropy, number, options)


def expected_divergence(number: Counts, options: Counts) -> Values:
    """Return the expected divergence of the empirical policy of an optimal agent from its own policy, in bits.

    Args:
        number: ``[V]`` visits n.
        options: ``[V]`` optimal actions k, all equally likely.

    Returns:
        ``[V]``: exact, since the divergence is a sum of one term for each action, whose count is binomial(n, 1 / k).
    """
    return _over_pairs(_expected_divergence, number, options)


def expected_peak(number: Counts, options: Counts) -> Values:
    """Return the expected largest empirical probability of an optimal agent, ``[V]``, exact; arguments as above."""
    return _over_pairs(_expected_peak, number, options)


def binomial(number: int, options: int) -> Values:
    """Return ``[n + 1]`` the probabilities of 0..n hits in n draws that hit with probability 1 / k."""
    if options == 1:
        return np.where(np.arange(number + 1) == number, 1.0, 0.0)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, number + 1)))])
    hits = np.arange(number + 1)
    choices = factorial[number] - factorial - factorial[::-1]
    found: Values = np.exp(choices + (number - hits) * np.log(options - 1) - number * np.log(options))
    return found


def _over_pairs(expected: Callable[[int, int], float], number: Counts, options: Counts) -> Values:
    pairs, where = np.unique(np.stack([number, options], axis=1), axis=0, return_inverse=True)
    values = np.array([expected(int(visits), int(size)) for visits, size in pairs], dtype=np.float64)
    found: Values = values[where.reshape(-1)]
    return found


@lru_cache(maxsize=65536)
def _expected_entropy(number: int, options: int) -> float:
    share = np.arange(number + 1) / number
    return options * float(binomial(number, options) @ _surprise(share))


@lru_cache(maxsize=65536)
def _expected_divergence(number: int, options: int) -> float:
    share = np.arange(number + 1) / number
    terms = _divergence_terms(share, np.full(number + 1, 1 / options))
    return max(options * float(binomial(number, options) @ terms), 0.0)


@lru_cache(maxsize=4096)
def _expected_peak(number: int, options: int) -> float:
    below = [_all_at_most(limit, number, options) for limit in range(number)]
    return float(number - sum(below)) / number  # E[max] = sum over m of P(max > m)


def _all_at_most(limit: int, number: int, options: int) -> float:
    """Return the probability that none of k equally likely actions is drawn more than `limit` times in n draws."""
    fits = (np.arange(number + 1) <= limit).astype(np.float64)  # by the draws left for the last action
    for actions in range(2, options + 1):
        last = actions == options
        fits = np.array(
            [
                float(binomial(left, actions)[: limit + 1] @ fits[left - min(limit, left) : left + 1][::-1])
                for left in ([number] if last else range(number + 1))
            ]
        )
    return float(fits[-1])


def _surprise(probability: Values) -> Values:
    logarithm = np.log2(probability, out=np.zeros_like(probability), where=probability > 0)
    terms: Values = np.maximum(-probability * logarithm, 0.0)
    return terms


def _divergence_terms(policy: Values, target: Values) -> Values:
    """Return one action's share of the divergence: h((p + q) / 2) - (h(p) + h(q)) / 2."""
    terms: Values = _surprise((policy + target) / 2) - (_surprise(policy) + _surprise(target)) / 2
    return terms
