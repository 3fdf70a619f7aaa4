"""The reachable part of a decision process, stored so that values of many columns can be backed up at once.

Unreachable states do not affect the result, and in most processes each action has one or few successors. Arrays are
stored by action, ``[A, K]`` over the K reachable states, so that sums over actions run along contiguous memory.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from goalscope.worlds.planning.mdp import TabularMDP, policy_by_time, transposed

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_SPARSE_BELOW = 0.2  # fraction of non-zero transitions below which a sparse product is faster than a dense one
_SMALL = 48  # number of states up to which a dense, single-threaded product by einsum is fastest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReachedProcess:
    """A decision process restricted to the states that are reachable within its horizon.

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

    kept: Index
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
        """``[n + 1]`` discount factor of the utility of each decision, and of that of the final state."""
        return np.asarray(self.discount ** np.arange(self.horizon + 1))

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self.reward.shape[0])

    def expect(self, columns: Array) -> Array:
        """Return the expected value of the next state, ``[C, A, K]``, for C columns of state values ``[C, K]``."""
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
        """Return the distribution of the next state, ``[K]``, given that of actions and states ``[A, K]``."""
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
        """Return a normalised policy over the kept states: ``[n, A, K]``, or ``[1, A, K]`` if it is constant in time.

        Args:
            policy: action probabilities ``[S, A]``, or ``[n, S, A]`` if they depend on time.

        Raises:
            ValueError: the policy has another shape, or its rows are not probability distributions.
        """
        by_time = policy_by_time(policy, self.horizon, self.states, self.actions)
        by_time = by_time if np.ndim(policy) == 3 else by_time[:1]
        restricted = np.ascontiguousarray(by_time[:, self.kept].transpose(0, 2, 1))
        restricted /= restricted.sum(axis=1, keepdims=True)
        return restricted


def reached_process(mdp: TabularMDP) -> ReachedProcess:
    """Restrict a process to its reachable states, in the form with the fastest backups.

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


def return_range(mdp: TabularMDP) -> tuple[float, float]:
    """Return the least and the greatest utility of a single episode, over offered actions and possible outcomes.

    ``L_t(s) = min over a and s' with P(s' | s, a) > 0 of R(s, a, s') + L_{t+1}(s')``, where ``L_n`` is the terminal
    utility; the greatest utility is defined likewise. The expected utility of every policy lies between the two.
    """
    state, action, following = possible_steps(mdp)
    utility = mdp.utility[state, action, following] if mdp.utility.ndim == 3 else mdp.reward[state, action]
    first = np.searchsorted(state, np.arange(mdp.states))
    lowest = highest = mdp.weight(mdp.horizon) * mdp.final
    for t in reversed(range(mdp.horizon)):
        lowest = np.minimum.reduceat(mdp.weight(t) * utility + lowest[following], first)
        highest = np.maximum.reduceat(mdp.weight(t) * utility + highest[following], first)
    is_start = mdp.start > 0
    return float(lowest[is_start].min()), float(highest[is_start].max())


def possible_steps(mdp: TabularMDP) -> tuple[Index, Index, Index]:
    """Return all possible transitions as state, offered action and next state, ``[N]`` each, sorted by state."""
    table: Any = mdp.transitions
    if not isinstance(table, np.ndarray):
        entries = table.tocoo()
        state, action = np.divmod(entries.row[entries.data > 0].astype(np.int64), mdp.actions)
        following = entries.col[entries.data > 0].astype(np.int64)
    elif table.ndim == 2:
        state, action = (part.reshape(-1) for part in np.indices(table.shape))
        following = table.reshape(-1)
    else:
        state, action, following = np.nonzero(table > 0)
    if mdp.offered is not None:
        is_offered = mdp.offered[state, action]
        state, action, following = state[is_offered], action[is_offered], following[is_offered]
    return state, action, following


def _reachable(mdp: TabularMDP) -> tuple[Index, npt.NDArray[np.bool_]]:
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


def _successors(mdp: TabularMDP, states: Index) -> Index:
    table = mdp.transitions
    if not isinstance(table, np.ndarray):
        rows = (states[:, None] * mdp.actions + np.arange(mdp.actions)).reshape(-1)
        part = table[rows]
        return np.asarray(part.indices[part.data > 0], dtype=np.int64)
    if table.ndim == 2:
        return np.asarray(table[states].reshape(-1), dtype=np.int64)
    return np.flatnonzero((table[states] > 0).any(axis=(0, 1)))


def _table(mdp: TabularMDP, reachable: Index) -> Any:
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
