"""Visited states: action counts, baselines for an optimal agent with the same visits, and similarity of trajectories.

A policy estimated from n visits is biased: a state visited once has entropy 0 for any agent. We therefore compare each
value with its expectation for an agent with the same visits that draws uniformly from the optimal actions.

Source: behavioural and representational evaluation, Appendix B.2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.measures.definition import PAPER, Values, measure, ratio
from goalscope.measures.table import StepTable

Counts = npt.NDArray[np.int64]

# maximum number of trajectories for which all pairs are compared, because the work grows with the square
_ALL_PAIRS = 8192
_PAIRS = 1 << 22  # number of pairs compared at a time; with more trajectories, the total number of random pairs
_DRAWN = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """The V states that agents visited, with action counts, for the K groups (agent and world) of a table of episodes.

    Turns without an action are not counted.

    Attributes:
        group: ``[V]`` number of each state's group, see `StepTable.groups`.
        first: ``[K]`` index of the first episode of each group.
        counts: ``[V, A]`` how often each action was taken in each state, pooled over the group's trajectories.
        optimal: ``[V, A]`` bool, the optimal actions of each state, at least one.
        distance: ``[V]`` steps to the goal.
        undecided: ``[K]`` number of visited states without an optimal action, which are excluded above.
    """

    group: Counts  # [V] group of each state, see `StepTable.groups`
    first: Counts  # [K] first episode of each group
    counts: Counts  # [V, A] how often each action was taken, pooled over the group's trajectories
    optimal: npt.NDArray[np.bool_]  # [V, A] the optimal actions, at least one
    distance: Counts  # [V] steps to the goal
    undecided: Counts  # [K] number of visited states without an optimal action, which are excluded above

    @classmethod
    def from_table(cls, table: StepTable) -> "Visits":
        """Count the actions in each visited state of each group (agent and world) of a table of episodes.

        In stochastic worlds, a state is counted separately for each number of actions left.
        """
        group_of, first = table.groups()
        acted = np.flatnonzero(table.action >= 0)
        left = table.horizon[table.episode] - table.step if "distance" not in table.offers else None
        key = state_keys(table, table.codes, group_of[table.episode], left)
        _, first_visit, state = np.unique(key[acted], return_index=True, return_inverse=True)
        first_visit = acted[first_visit]
        actions = table.optimal.shape[1]
        counts = np.bincount(state * actions + table.action[acted], minlength=actions * len(first_visit)).reshape(
            -1, actions
        )
        group = group_of[table.episode[first_visit]]
        decided = table.optimal[first_visit].any(axis=1)
        return cls(
            group=group[decided],
            first=first,
            counts=counts[decided].astype(np.int64),
            optimal=table.optimal[first_visit][decided],
            distance=table.distance[first_visit][decided],
            undecided=np.bincount(group[~decided], minlength=len(first)).astype(np.int64),
        )

    @property
    def number(self) -> Counts:
        """``[V]`` int64 number of visits of each state, at least 1."""
        visits: Counts = self.counts.sum(axis=1)
        return visits

    @property
    def options(self) -> Counts:
        """``[V]`` int64 number of optimal actions in each state, at least 1."""
        size: Counts = self.optimal.sum(axis=1, dtype=np.int64)
        return size

    @property
    def policy(self) -> Values:
        """``[V, A]`` empirical probability of each action in each visited state."""
        shares: Values = self.counts / self.number[:, None]
        return shares

    def at_least(self, visits: int) -> "Visits":
        """Return the visits of only those states that were visited at least this often."""
        enough = self.number >= visits
        return replace(
            self, **{name: getattr(self, name)[enough] for name in ("group", "counts", "optimal", "distance")}
        )

    def mean(self, value: Values, weight: Values | None = None) -> Values:
        """Average values over the states of each group.

        Args:
            value: ``[V]`` value of each visited state.
            weight: ``[V]`` weight of each state; equal weights by default.

        Returns:
            ``[K]`` mean of each group, NaN for a group without states.
        """
        weight = np.ones(len(self.group)) if weight is None else weight
        size = np.bincount(self.group, weights=weight, minlength=len(self.first))
        return ratio(np.bincount(self.group, weights=weight * value, minlength=len(self.first)), size)


def state_keys(table: StepTable, state: Counts, group: Counts, left: Counts | None = None) -> Counts:
    """Return a number for each of N states, such that equal numbers mean equal states of the same group.

    Args:
        table: the table of episodes.
        state: ``[N, S]`` recorded codes of the states.
        group: ``[N]`` group (agent and world) to which each state belongs.
        left: ``[N]`` number of actions left, in which states with equal numbers must agree, too; None to ignore it.

    Returns:
        ``[N]`` numbers.
    """
    keys = group if left is None else group * (int(table.horizon.max(initial=0)) + 1) + left
    # -1 pads shorter states.
    sizes = (np.maximum(*(states.max(axis=0, initial=0) for states in (table.codes, table.final_codes))) + 2).tolist()
    if math.prod(sizes) * (int(keys.max(initial=0)) + 1) >= 2**63:
        numbers = np.unique(np.column_stack([keys, state]), axis=0, return_inverse=True)[1]
        return numbers.reshape(-1).astype(np.int64)
    # On grids ordered by phase, row and column, which fixes the order of sums over states.
    for column in (2, 0, 1) if len(sizes) == 3 else range(len(sizes)):
        keys = keys * sizes[column] + state[:, column] + 1
    return keys


def entropy(policy: Values) -> Values:
    """Compute the entropy, in bits, of distributions over A actions ``[..., A]``; the result is ``[...]``."""
    bits: Values = _surprise(policy).sum(axis=-1)
    return bits


def divergence(policy: Values, optimal: npt.NDArray[np.bool_]) -> Values:
    """Compute the Jensen-Shannon divergence, in bits, of policies from the uniform policy over optimal actions.

    Args:
        policy: ``[V, A]`` action probabilities in each of V states.
        optimal: ``[V, A]`` bool, the optimal actions, at least one per state.

    Returns:
        ``[V]`` divergences from 0 to 1.
    """
    target = optimal / optimal.sum(axis=1, keepdims=True)
    bits: Values = np.clip(_divergence_terms(policy, target).sum(axis=1), 0.0, 1.0)
    return bits


def binomial(number: int, options: int) -> Values:
    """Return the probabilities of 0, 1, ..., n hits in n draws, each of which hits with probability 1 / k: ``[n + 1]``.

    Args:
        number: number n of draws.
        options: number k of equally likely options, one of which is the hit.
    """
    if options == 1:
        return np.where(np.arange(number + 1) == number, 1.0, 0.0)
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, number + 1)))])
    hits = np.arange(number + 1)
    choices = factorial[number] - factorial - factorial[::-1]
    result: Values = np.exp(choices + (number - hits) * np.log(options - 1) - number * np.log(options))
    return result


def _over_pairs(expected: Callable[[int, int], float]) -> Callable[[Counts, Counts], Values]:
    """Vectorise a function of (number of draws, number of equally likely actions); compute each pair once."""
    cached = lru_cache(maxsize=65536)(expected)

    @wraps(expected)
    def of_arrays(number: Counts, options: Counts) -> Values:
        pairs, inverse = np.unique(np.stack([number, options], axis=1), axis=0, return_inverse=True)
        values = np.array([cached(visits, size) for visits, size in pairs.tolist()], dtype=np.float64)
        result: Values = values[inverse.reshape(-1)]
        return result

    return of_arrays


@_over_pairs
def expected_entropy(number: int, options: int) -> float:
    """Return the expected entropy, in bits, of the empirical policy of an optimal agent in each of V states, ``[V]``.

    The agent visits a state n times and draws uniformly from its k optimal actions. The result is exact:
    ``k E[h(X / n)]`` with X binomial(n, 1 / k) and ``h(p) = -p log2 p``.

    Args:
        number: ``[V]`` number n of visits of each state.
        options: ``[V]`` number k of optimal actions in each state.
    """
    fraction = np.arange(number + 1) / number
    return options * float(binomial(number, options) @ _surprise(fraction))


@_over_pairs
def expected_divergence(number: int, options: int) -> float:
    """Return the expected divergence, in bits, of an optimal agent's empirical policy from its true policy, ``[V]``.

    In each of V states, the agent makes n visits and draws uniformly from its k optimal actions. The result is exact,
    because the Jensen-Shannon divergence is a sum with one term per action, whose count is binomial(n, 1 / k).

    Args:
        number: ``[V]`` number n of visits of each state.
        options: ``[V]`` number k of optimal actions in each state.
    """
    fraction = np.arange(number + 1) / number
    terms = _divergence_terms(fraction, np.full(number + 1, 1 / options))
    return max(options * float(binomial(number, options) @ terms), 0.0)


def _surprise(probability: Values) -> Values:
    logarithm = np.log2(probability, out=np.zeros_like(probability), where=probability > 0)
    terms: Values = np.maximum(-probability * logarithm, 0.0)
    return terms


def _divergence_terms(policy: Values, target: Values) -> Values:
    """Return the term of one action in the divergence: h((p + q) / 2) - (h(p) + h(q)) / 2."""
    terms: Values = _surprise((policy + target) / 2) - (_surprise(policy) + _surprise(target)) / 2
    return terms


B2 = f"{PAPER}, Appendix B.2"


@measure("Jaccard similarity", unit="share", per="group", needs=("grid",), source=B2)
def state_overlap(table: StepTable) -> Values:
    """Number of states visited by both of two trajectories, divided by the number visited by either, averaged over all
    pairs of trajectories on a grid. With more than 8,192 trajectories, four million random pairs are used, with a
    standard error below 0.0003. Undefined with fewer than two trajectories.

    Returns ``[K]`` one value per group (all episodes of an agent on a world).
    """
    group, first = table.groups()
    value = np.full(len(first), np.nan)
    episode, state = _visited(table)
    number = state_keys(table, state, group[episode])
    order = np.argsort(group[episode], kind="stable")
    edges = np.searchsorted(group[episode][order], np.arange(len(first) + 1))
    for index in np.flatnonzero(np.bincount(group, minlength=len(first)) > 1).tolist():
        in_group = order[edges[index] : edges[index + 1]]
        row, col = (np.unique(column[in_group], return_inverse=True)[1] for column in (episode, number))
        present = np.zeros((row.max() + 1, col.max() + 1), dtype=bool)
        present[row, col] = True
        value[index] = _mean_overlap(present) if len(present) <= _ALL_PAIRS else _sampled_overlap(present)
    return value


def _mean_overlap(present: npt.NDArray[np.bool_]) -> float:
    """Compute the mean Jaccard similarity of all pairs of trajectories ``[m, S]``, some millions of pairs at a time."""
    visited, size = present.astype(np.float64), present.sum(axis=1, dtype=np.float64)
    count, total = len(present), 0.0
    rows = max(1, _PAIRS // count)
    for begin in range(0, count, rows):
        common = visited[begin : begin + rows] @ visited[begin:].T
        similarity = common / (size[begin : begin + rows, None] + size[begin:] - common)
        total += float(similarity[np.triu(np.ones(common.shape, dtype=bool), k=1)].sum())
    return total / (count * (count - 1) // 2)


def _sampled_overlap(present: npt.NDArray[np.bool_]) -> float:
    """Compute the mean Jaccard similarity of `_PAIRS` random pairs of trajectories ``[m, S]``."""
    rng, count, size = stream(0, "pairs of trajectories", len(present)), len(present), present.sum(axis=1)
    total = 0.0
    for _ in range(0, _PAIRS, _DRAWN):
        first = rng.integers(0, count, _DRAWN)
        second = (first + rng.integers(1, count, _DRAWN)) % count
        common = (present[first] & present[second]).sum(axis=1)
        total += float((common / (size[first] + size[second] - common)).sum())
    return total / _PAIRS


def jaccard(first: set[tuple[int, ...]], second: set[tuple[int, ...]]) -> float:
    """Return the Jaccard similarity of two sets: the size of their intersection divided by that of their union."""
    return len(first & second) / len(first | second)


def visited_cells(table: StepTable) -> list[set[tuple[int, ...]]]:
    """Return, for each episode of a table, the set of cells (row, col) that it visited, including the final one."""
    cells: list[set[tuple[int, ...]]] = [set() for _ in table.length]
    episode, state = _visited(table)
    for index, cell in zip(episode.tolist(), state[:, :2].tolist(), strict=True):
        cells[index].add(tuple(cell))
    return cells


def _visited(table: StepTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the episode and the state ``[., S]`` of every visit, including the final states."""
    episodes = np.concatenate([table.episode, np.arange(len(table.length))])
    return episodes, np.concatenate([table.codes, table.final_codes])
