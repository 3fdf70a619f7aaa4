"""Tabular Markov decision processes with a finite horizon, and their exact solution.

Symbols: S states, A actions, n decisions (the horizon). The utility of a history is the sum over its n decisions of
R(s), R(s, a) or R(s, a, s'), plus the terminal utility of the state reached after the last one. With a discount d,
the utility of decision t (from 0) is multiplied by d^t, and the terminal utility by d^n.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_number, check_shape, check_whole, freeze, refuse_where
from goalscope._ground.distributions import to_array, to_distributions, to_sparse_distributions

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TabularMDP:
    """A Markov decision process with a finite horizon, given by tables of S states and A actions.

    Attributes:
        transitions: in one of three forms: ``[S, A, S]`` float64 probabilities of the next state by state and action;
            ``[S, A]`` int64 next states of a deterministic process (see `deterministic`); or a sparse ``[S * A, S]``
            matrix whose row ``s * A + a`` contains the probabilities of the next state (see `sparse`).
        utility: utility of one decision: ``[S]`` by state, ``[S, A]`` by state and action, or ``[S, A, S]`` also by
            next state.
        horizon: number n of decisions, >= 1.
        start: ``[S]`` probabilities of the first state.
        terminal_utility: ``[S]`` utility of the state after the last decision, None for none.
        offered: ``[S, A]`` bool, the actions that policies choose among, at least one in each state; None for all.
        discount: factor d by which each decision weighs less than the one before, > 0 and <= 1.
        reward: ``[S, A]`` expected utility of one decision, computed from the others.

    Raises:
        ValueError: if shapes disagree, rows are no distributions, numbers are not finite, horizon < 1, or the discount
            is outside of 0 to 1 or so small that the last decisions weigh next to nothing.
    """

    transitions: Union[npt.NDArray[Any], "csr_array"]
    utility: npt.NDArray[Any]
    horizon: int
    start: npt.NDArray[Any]
    terminal_utility: npt.NDArray[Any] | None = None
    offered: npt.NDArray[np.bool_] | None = None
    discount: float = 1.0
    reward: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        start = to_array("start", self.start)
        sizes = check_shape("start", start, "S")
        start = to_distributions("start", start)
        transitions, sizes = _transitions(self.transitions, sizes)
        utility = _numbers("utility", self.utility)
        shape = "S A S"[: 2 * utility.ndim - 1] if 1 <= utility.ndim <= 3 else "S A S"
        check_shape("utility", utility, shape, sizes)
        check_finite("utility", utility)
        terminal = None if self.terminal_utility is None else _numbers("terminal_utility", self.terminal_utility)
        if terminal is not None:
            check_shape("terminal_utility", terminal, "S", sizes)
            check_finite("terminal_utility", terminal)
        if self.offered is not None:
            offered = np.asarray(self.offered, dtype=bool)
            check_shape("offered", offered, "S A", sizes)
            count = offered.sum(axis=1)
            refuse_where(count == 0, count, "offered must hold an action in every state")
            object.__setattr__(self, "offered", None if offered.all() else freeze(offered))
        object.__setattr__(self, "horizon", check_whole("horizon", self.horizon, 1, "decisions"))
        _check_discount(self.discount, self.horizon)
        object.__setattr__(self, "start", freeze(start))
        object.__setattr__(self, "transitions", transitions)
        object.__setattr__(self, "utility", freeze(utility))
        object.__setattr__(self, "terminal_utility", None if terminal is None else freeze(terminal))
        object.__setattr__(self, "reward", freeze(_reward(transitions, utility, sizes["A"])))

    @classmethod
    def deterministic(cls, next: npt.ArrayLike, **attributes: Any) -> "TabularMDP":
        """Make a process in which every action has one outcome.

        Args:
            next: ``[S, A]`` whole numbers, the next state by state and action.
            attributes: utility, horizon, start, terminal_utility and offered, as in the class.

        Raises:
            ValueError: if the class refuses the attributes, or a next state is not in 0..S-1.
        """
        successor = to_array("next", next)
        if successor.ndim != 2 or not np.issubdtype(successor.dtype, np.integer):
            raise ValueError(
                f"next must be an array [S, A] of whole numbers, got {successor.dtype} {list(successor.shape)}"
            )
        return cls(transitions=successor, **attributes)

    @classmethod
    def sparse(
        cls,
        possible: npt.ArrayLike,
        chance: npt.ArrayLike,
        *,
        actions: int,
        start: npt.NDArray[Any],
        **attributes: Any,
    ) -> "TabularMDP":
        """Make a process from a list of N possible transitions; probabilities of repeated transitions are added.

        Args:
            possible: ``[N, 3]`` whole numbers: state, action and next state of each transition.
            chance: ``[N]`` probability of each transition, given its state and action.
            actions: number A of actions.
            start: ``[S]`` probabilities of the first state.
            attributes: utility, horizon, terminal_utility and offered, as in the class.

        Raises:
            ValueError: if the class refuses the attributes, an index is out of range, or a probability is negative or
                not finite.
        """
        matrix = transition_matrix(possible, chance, states=len(start), actions=actions)
        return cls(transitions=matrix, start=start, **attributes)

    @property
    def states(self) -> int:
        """Number of states S."""
        return len(self.start)

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self.reward.shape[1])

    @property
    def final(self) -> Array:
        """``[S]`` utility of each state after the last decision; zeros if the process has no terminal utility."""
        return np.zeros(self.states) if self.terminal_utility is None else self.terminal_utility

    def weight(self, decision: int) -> float:
        """Return the discount factor of decision number t, counted from 0: ``discount ** t``.

        The number n (the horizon) stands for the state after the last decision.
        """
        return float(self.discount**decision)

    def expect(self, values: Array) -> Array:
        """Return the expected value of the next state for each state and action.

        Args:
            values: ``[S]`` value of each state, or ``[S, K]`` for K kinds of values at once.

        Returns:
            ``[S, A]``, or ``[S, A, K]`` for K kinds of values.
        """
        table = self.transitions
        if not isinstance(table, np.ndarray):
            return np.asarray(table @ values, dtype=np.float64).reshape(self.states, -1, *values.shape[1:])
        expected: Array = values[table] if table.ndim == 2 else np.tensordot(table, values, axes=(2, 0))
        return expected

    def flow(self, mass: Array) -> Array:
        """Return the distribution of the next state, ``[S]``, given the joint distribution of state and action,
        ``[S, A]``.
        """
        table = self.transitions
        if not isinstance(table, np.ndarray):
            return np.asarray(transposed(table) @ mass.reshape(-1), dtype=np.float64)
        if table.ndim == 2:
            summed = np.bincount(table.reshape(-1), weights=mass.reshape(-1), minlength=self.states)
            return summed.astype(np.float64, copy=False)
        flowed: Array = np.tensordot(mass, table, axes=((0, 1), (0, 1)))
        return flowed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """The exact solution of a decision process of S states, A actions and n decisions, by time.

    Attributes:
        values: ``[n + 1, S]`` best expected utility from decision t on, by t and state; the last row is the terminal
            utility.
        action_values: ``[n, S, A]`` best expected utility after each action, including actions that are not offered.
        optimal: ``[n, S, A]`` bool, the offered actions whose value is within the tolerance of the best.
    """

    values: Array
    action_values: Array
    optimal: npt.NDArray[np.bool_]


_LEAST_WEIGHT = 1e-8  # of the last decision; far above the rounding errors of a utility
_TIED = 1e-9  # share of the range of all action values within which actions count as tied


def value_iteration(mdp: TabularMDP, *, minimise: bool = False) -> Values:
    """Solve a decision process exactly by backward induction.

    Args:
        mdp: the process. Only its offered actions are chosen.
        minimise: whether to minimise the utility instead of maximising it.

    Returns:
        For each decision, the best expected utility by state and by action, and the optimal actions.
    """
    n, states, actions = mdp.horizon, mdp.states, mdp.actions
    values, action_values = np.empty((n + 1, states)), np.empty((n, states, actions))
    values[n] = mdp.weight(n) * mdp.final
    for t in reversed(range(n)):
        action_values[t] = mdp.weight(t) * mdp.reward + mdp.expect(values[t + 1])
        values[t] = _best(action_values[t], mdp.offered, minimise=minimise)
    # Late decisions differ by as much less as they are discounted.
    slack = _TIED * float(np.ptp(action_values)) * mdp.discount ** np.arange(n)[:, None, None]
    optimal = np.abs(action_values - values[:n, :, None]) <= slack
    if mdp.offered is not None:
        optimal &= mdp.offered
    return Values(values=freeze(values), action_values=freeze(action_values), optimal=freeze(optimal))


def _best(action_values: Array, offered: npt.NDArray[np.bool_] | None, *, minimise: bool) -> Array:
    """Return the best of the values ``[S, A]`` over the offered actions, ``[S]``."""
    if offered is None:
        return np.asarray(action_values.min(axis=1) if minimise else action_values.max(axis=1))
    masked = np.where(offered, action_values, math.inf if minimise else -math.inf)
    return np.asarray(masked.min(axis=1) if minimise else masked.max(axis=1))


def utility_range(mdp: TabularMDP) -> tuple[float, float]:
    """Return the lowest and the highest expected utility of an episode that any policy attains.

    Unlike `value_iteration`, this function stores the values of only one decision at a time, so the process may be
    large.
    """
    low = high = mdp.weight(mdp.horizon) * mdp.final
    for t in reversed(range(mdp.horizon)):
        reward = mdp.weight(t) * mdp.reward
        low = _best(reward + mdp.expect(low), mdp.offered, minimise=True)
        high = _best(reward + mdp.expect(high), mdp.offered, minimise=False)
    return float(mdp.start @ low), float(mdp.start @ high)


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


def possible_steps(mdp: TabularMDP) -> tuple[Numbers, Numbers, Numbers]:
    """Return all possible transitions of a process, as three arrays ``[N]``, sorted by state.

    The arrays have the state, the action (offered ones only) and the next state of each transition.
    """
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


def occupancy(mdp: TabularMDP, policy: npt.NDArray[Any]) -> Array:
    """Return the distribution over states at each time under a policy.

    Args:
        mdp: the process of S states, A actions and n decisions.
        policy: action probabilities ``[S, A]``, or ``[n, S, A]`` if they depend on time.

    Returns:
        ``[n + 1, S]``: row t is the distribution before decision t, and the last row the distribution after the last
        decision.

    Raises:
        ValueError: if the policy has another shape, or its rows are not probability distributions.
    """
    by_time = policy_by_time(policy, mdp.horizon, mdp.states, mdp.actions)
    state = np.empty((mdp.horizon + 1, mdp.states))
    state[0] = mdp.start
    for t in range(mdp.horizon):
        state[t + 1] = mdp.flow(state[t][:, None] * by_time[t])
    return state


def expected_utility(mdp: TabularMDP, policy: npt.NDArray[Any]) -> float:
    """Return the expected utility of an episode under a policy, including the terminal utility.

    Args:
        mdp: the process of S states, A actions and n decisions.
        policy: action probabilities ``[S, A]``, or ``[n, S, A]`` if they depend on time.

    Raises:
        ValueError: if the policy has another shape, or its rows are not probability distributions.
    """
    by_time = policy_by_time(policy, mdp.horizon, mdp.states, mdp.actions)
    values = mdp.weight(mdp.horizon) * mdp.final
    for t in reversed(range(mdp.horizon)):
        values = (by_time[t] * (mdp.weight(t) * mdp.reward + mdp.expect(values))).sum(axis=1)
    return float(mdp.start @ values)


def policy_by_time(policy: npt.NDArray[Any], horizon: int, states: int, actions: int) -> Array:
    """Check a policy, and return its action probabilities for each time, ``[n, S, A]``.

    Args:
        policy: action probabilities ``[S, A]`` by state, or ``[n, S, A]`` also by time; truth values count as 1 and 0.
        horizon, states, actions: the numbers n, S and A.

    Raises:
        ValueError: if the policy has another shape, or its rows are not probability distributions.
    """
    array = to_array("policy", policy, booleans=True)
    check_shape("policy", array, "n S A" if array.ndim == 3 else "S A", {"n": horizon, "S": states, "A": actions})
    return np.broadcast_to(to_distributions("policy", array), (horizon, states, actions))


def _check_discount(discount: float, horizon: int) -> None:
    check_number("discount", discount, 0, 1, "factor")
    if discount**horizon < _LEAST_WEIGHT:
        longest = int(math.log(_LEAST_WEIGHT) / math.log(discount)) if discount > 0 else 0
        raise ValueError(
            f"discount ** horizon must be at least {_LEAST_WEIGHT:g}, got {discount:.12g} ** {horizon}: decisions that "
            f"weigh less cannot be told from no decisions; set a horizon of at most {longest}"
        )


def _numbers(name: str, values: Any) -> Array:
    return to_array(name, values).astype(np.float64)


def transition_matrix(possible: npt.ArrayLike, chance: npt.ArrayLike, *, states: int, actions: int) -> "csr_array":
    """Make the sparse matrix of transition probabilities ``[S * A, S]`` from a list of N possible transitions.

    Row ``s * A + a`` contains the probabilities of the next state after action a in state s. Probabilities of repeated
    transitions are added.

    Args:
        possible: ``[N, 3]`` whole numbers: state, action and next state of each transition.
        chance: ``[N]`` probability of each transition, given its state and action.
        states, actions: the numbers S and A.

    Raises:
        ValueError: if an index is out of range, or a probability is negative or not finite.
    """
    from scipy.sparse import csr_array

    indices, probabilities = to_array("possible", possible), _numbers("chance", chance)
    check_shape("chance", probabilities, "N", check_shape("possible", indices, "N 3"))
    limits = np.array([states, actions, states])
    if not np.issubdtype(indices.dtype, np.integer) or ((indices < 0) | (indices >= limits)).any():
        raise ValueError(
            f"possible must hold whole numbers, states below {states} and actions below {actions}, got "
            f"{indices.dtype} from {indices.min(axis=0).tolist()} to {indices.max(axis=0).tolist()}"
        )
    check_finite("chance", probabilities)
    if (probabilities < 0).any():  # adding repeated transitions could hide a negative probability
        first = int(np.argmax(probabilities < 0))
        raise ValueError(f"chance must hold probabilities >= 0, got {probabilities[first]} at index {first}")
    rows = indices[:, 0].astype(np.int64) * actions + indices[:, 1]
    return csr_array((probabilities, (rows, indices[:, 2])), shape=(states * actions, states))


_CHECKED = "checked_by_goalscope"  # attribute of sparse matrices that were checked and normalised
_TRANSPOSED = "transposed_by_goalscope"  # attribute with their transpose


def sparse_transitions(table: Any, states: int) -> "csr_array":
    """Check sparse transition probabilities ``[S * A, S]``, normalise their rows, and return them read-only.

    A matrix that this function returned is returned as it is.

    Raises:
        ValueError: if the matrix has another shape, or a row is not a probability distribution.
    """
    rows, cols = table.shape
    if cols != states or rows == 0 or rows % states:
        raise ValueError(f"sparse transitions must have shape [S * A, S] with S = {states}, got {[rows, cols]}")
    matrix: csr_array
    if getattr(table, _CHECKED, False):
        matrix = table  # checked before, so that worlds which share transitions share one object
        return matrix
    matrix = to_sparse_distributions("transitions", table, rows // states)
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    setattr(matrix, _CHECKED, True)
    return matrix


def transposed(table: Any) -> Any:
    """Return the transpose of a sparse matrix of transition probabilities, which is computed once and kept with the
    matrix.

    For small matrices, building the transpose takes longer than multiplying by it.
    """
    found = getattr(table, _TRANSPOSED, None)
    if found is None:
        found = table.T
        setattr(table, _TRANSPOSED, found)
    return found


def _transitions(table: Any, sizes: dict[str, int]) -> tuple[Any, dict[str, int]]:
    """Check transitions and make them read-only; return them with S and A added to the sizes."""
    states = sizes["S"]
    if hasattr(table, "tocsr"):
        matrix = sparse_transitions(table, states)
        return matrix, sizes | {"A": matrix.shape[0] // states}
    array = to_array("transitions", table)
    if array.ndim == 2 and np.issubdtype(array.dtype, np.integer):
        sizes = check_shape("next", array, "S A", sizes)
        refuse_where((array < 0) | (array >= states), array, f"next must hold states from 0 to {states - 1}")
        return freeze(array.astype(np.int64)), sizes
    sizes = check_shape("transitions", array, "S A S", sizes)
    return freeze(to_distributions("transitions", array, ("state", "action"))), sizes


def _reward(table: Any, utility: Array, actions: int) -> Array:
    """Return the expected utility of each state and action, ``[S, A]``, averaged over the next state."""
    states = len(utility)
    if utility.ndim < 3:
        return np.broadcast_to(utility.reshape(states, -1), (states, actions)).copy()
    if not isinstance(table, np.ndarray):
        by_next = table.multiply(utility.reshape(-1, states)).sum(axis=1)
    elif table.ndim == 2:
        by_next = np.take_along_axis(utility, table[..., None], axis=2)
    else:
        by_next = (table * utility).sum(axis=2)
    return np.asarray(by_next, dtype=np.float64).reshape(states, actions)
