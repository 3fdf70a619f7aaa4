"""Influence diagrams, and the MEG of decisions in a causal model towards variables or towards a utility.

The decision contexts of a model form a tree, over which the conjugate of its soft value is computed. With perfect
recall each context (the values that a decision sees) follows from one earlier context and one earlier decision, so that
backward induction over contexts is exact. Symbols: decision t of n has K_t reachable contexts and A_t actions; the
utility is linear in F features of the outcome, whose expectation after the last decision is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, freeze
from goalscope.goals.meg.causal import LARGEST_TABLE, CausalModel, Value, Variable, in_causal_order, names_of

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

SMALL = 1e-12
"""Smaller differences of features of unit range are rounding errors."""
_IMPOSSIBLE = (
    1e-7  # an action that every policy with the same outcomes takes with less probability counts as never taken
)
_TIE = 1e-9  # fraction of the range of a known utility within which actions are equally good
_STEPS = 500


LARGEST_TARGET = 2048
"""Maximum number of joint values of a target with unknown utility."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContextTree:
    """The tree of decision contexts of a causal model, with the behaviour in each context.

    A context is what a decision sees: the joint values of its parents. With perfect recall, each context follows from
    one context and action of the decision before it. There are n decisions; decision t has K_t reachable contexts and
    A_t actions.

    Attributes:
        model: the model, in which all actions of the decisions are equally likely.
        decisions: names of the n decisions in causal order.
        actions: number A_t of actions of each decision.
        contexts: for each decision ``[K_t]``, the flat index of a context among all joint values of the parents.
        parent: for each decision ``[K_t]``, ``k * A + d`` for context k and action d of the decision before, where A is
            its number of actions; zeros at the first decision.
        chance: for each decision ``[K_t]``, probability of a context given the context and action before.
        policy: for each decision ``[K_t, A_t]``, the actual behaviour.
        features: ``[K_n * A_n, F]`` expected features of the outcome after each context and action of the last
            decision.
    """

    model: CausalModel
    decisions: tuple[str, ...]
    actions: tuple[int, ...]
    contexts: tuple[Index, ...]
    parent: tuple[Index, ...]
    chance: tuple[Array, ...]
    policy: tuple[Array, ...]
    features: Array

    @classmethod
    def of(cls, model: CausalModel, names: Iterable[str]) -> "ContextTree":
        """Build the tree of some decisions of a model, without features of outcomes.

        Args:
            model: the causal model, in which the chances of the decisions are the actual behaviour.
            names: names of the decisions.

        Raises:
            ValueError: the decisions lack perfect recall: one does not see all earlier decisions and what they saw.
        """
        chosen = set(names)
        decisions = [model[name] for name in model.names if name in chosen]
        _check_recall(decisions)
        actions = tuple(len(decision.values) for decision in decisions)
        blank = [
            replace(decision, chances=np.full_like(decision.chances, 1 / len(decision.values)))
            for decision in decisions
        ]
        uniform, sight = model.replace(*blank), decisions[-1].parents
        joint = uniform.table(sight)
        support = np.flatnonzero(joint.reshape(-1) > 0)
        values_at = dict(zip(sight, np.unravel_index(support, joint.shape), strict=True)) if sight else {}
        contexts, parent, chance, policy = [], [], [], []
        last_context: Index = np.zeros(len(support), dtype=np.int64)
        weight: Array = np.ones(1)
        for t, decision in enumerate(decisions):
            shape = tuple(len(model[name].values) for name in decision.parents)
            flat = np.zeros(len(support), dtype=np.int64)
            if shape:
                flat = np.ravel_multi_index([values_at[name] for name in decision.parents], shape).astype(np.int64)
            reached, first_row, context = np.unique(flat, return_index=True, return_inverse=True)
            mass = np.bincount(context, weights=joint.reshape(-1)[support], minlength=len(reached))
            before, earlier = np.zeros(len(reached), dtype=np.int64), 1
            if t:
                earlier = actions[t - 1]
                before = last_context[first_row] * earlier + values_at[decisions[t - 1].name][first_row]
            chance.append(np.asarray(mass * earlier / weight[before // earlier], dtype=np.float64))
            last_context, weight = context, mass.astype(np.float64)
            contexts.append(reached)
            parent.append(before)
            policy.append(np.asarray(decision.chances).reshape(-1, actions[t])[reached])
        return cls(
            model=uniform,
            decisions=tuple(decision.name for decision in decisions),
            actions=actions,
            contexts=tuple(contexts),
            parent=tuple(parent),
            chance=tuple(chance),
            policy=tuple(policy),
            features=np.zeros((len(support) * actions[-1], 0)),
        )

    def outcome(self, targets: Sequence[str]) -> Array:
        """Return the joint distribution of some variables after each context and action of the last decision.

        Args:
            targets: names of the variables.

        Returns:
            ``[K_n * A_n, F]`` probabilities, where F is the number of joint values of the variables.
        """
        model, last = self.model, self.model[self.decisions[-1]]
        decision_family = (*last.parents, last.name)
        target_names = []
        for name in targets:
            copy = f"copy of {name}"  # a parent may be part of the target: a copy gets its own axis
            if name in decision_family:
                values = model[name].values
                model = model.replace(Variable(name=copy, values=values, parents=(name,), chances=np.eye(len(values))))
            target_names.append(copy if name in decision_family else name)
        size = prod(len(model[name].values) for name in target_names)
        joint = model.table((*decision_family, *target_names), largest=LARGEST_TABLE).reshape(
            -1, self.actions[-1], size
        )
        joint = joint[self.contexts[-1]]
        return np.asarray((joint / joint.sum(axis=2, keepdims=True)).reshape(-1, size))

    def uniform(self) -> tuple[Array, ...]:
        """Return the policy that takes all actions equally often, as an array ``[K_t, A_t]`` for each decision."""
        return tuple(np.full_like(part, 1 / part.shape[1]) for part in self.policy)

    def plan(self, policy: Sequence[Array]) -> tuple[Array, ...]:
        """Return for each context and action the product of the policy's probabilities on the way there (realisation
        plan).

        Args:
            policy: for each decision ``[K_t, A_t]`` action probabilities by context.

        Returns:
            An array ``[K_t, A_t]`` for each decision.
        """
        plans = [policy[0]]
        for t in range(1, len(policy)):
            plans.append(plans[-1].reshape(-1)[self.parent[t]][:, None] * policy[t])
        return tuple(plans)

    def nature(self) -> tuple[Array, ...]:
        """Return for each context the part of its probability that is due to chance alone, not to the decisions.

        The result is an array ``[K_t]`` for each decision. Multiplied by `plan`, it gives the probability of a context
        and action.
        """
        parts = [self.chance[0]]
        for t in range(1, len(self.actions)):
            parts.append(parts[-1][self.parent[t] // self.actions[t - 1]] * self.chance[t])
        return tuple(parts)

    def expected(self, policy: Sequence[Array]) -> Array:
        """Return the features of the outcome ``[F]`` that are expected under a policy.

        Args:
            policy: for each decision ``[K_t, A_t]`` action probabilities by context.
        """
        leaves = (self.nature()[-1][:, None] * self.plan(policy)[-1]).reshape(-1)
        return np.asarray(leaves @ self.features, dtype=np.float64)

    def collect(self, t: int, values: Array) -> Array:
        """Average values of the contexts of one decision over chance, for each context and action of the decision
        before it.

        Args:
            t: number of the decision, at least 1.
            values: ``[K_t, ...]`` one value, or array of values, per context.

        Returns:
            ``[K * A, ...]`` for the K contexts and A actions of decision t - 1.
        """
        total = np.zeros((len(self.contexts[t - 1]) * self.actions[t - 1], *values.shape[1:]))
        np.add.at(total, self.parent[t], values * self.chance[t].reshape(-1, *(1,) * (values.ndim - 1)))
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conjugate:
    """The MEG of the behaviour in a tree of decisions: by how much the best prediction of it beats a uniform one.

    Predictions are the soft-optimal policies for the utilities of a class, such as all that are linear in given
    features.

    Attributes:
        value: expected log probability of the behaviour under the best prediction minus that under uniform actions, in
            nats.
        weights: ``[F]`` weights of the features in the best utility; where the value is a limit, weights that rank the
            actions which the limit leaves possible.
        prediction: for each decision ``[K_t, A_t]`` (contexts by actions) the best prediction, or its limit.
        attained: False where only a limit of infinite weights reaches the value.
    """

    value: float
    weights: Array
    prediction: tuple[Array, ...]
    attained: bool


def conjugate(tree: ContextTree) -> Conjugate:
    """Compute the MEG of the behaviour in a tree of decisions, over all utilities that are linear in the features.

    It is ``sup_w <w, m> - W(w)``, where m are the expected features of the behaviour and W(w) is the log mean
    exponential utility, computed backward over the contexts. Where the supremum is a limit (m lies on the border of the
    attainable expectations), the actions that every policy with the same m avoids are found by linear programming and
    left out: on the others the supremum is attained, and the limit is exact.

    Args:
        tree: the tree with its features, whose range should be about 1.
    """
    allowed, attained = _possible(tree)
    return _climb(tree, allowed, attained=attained)


def conjugate_known(tree: ContextTree, noise: float) -> tuple[Conjugate, float]:
    """Compute the MEG of the behaviour in a tree of decisions for a known utility, which is the single feature of the
    tree.

    Args:
        tree: the tree, with one feature.
        noise: size of the rounding error in the values of the feature.

    Returns:
        The MEG with the best prediction, and the greatest MEG that any policy can have.
    """
    goal = tree.expected(tree.policy)
    (low, lowest), (high, highest) = (_end(tree, sign) for sign in (-1.0, 1.0))
    if high - low <= max(SMALL, 10 * noise):
        return Conjugate(value=0.0, weights=np.zeros(1), prediction=tree.uniform(), attained=True), 0.0
    ends = []
    for allowed in (lowest, highest):
        height, _, _, soft = _soft_value(tree, np.zeros(1), allowed)
        ends.append(Conjugate(value=max(0.0, -height), weights=np.zeros(1), prediction=soft, attained=False))
    bound = max(end.value for end in ends)
    slack = _TIE * (high - low) + noise
    if goal[0] <= low + slack:
        return ends[0], bound
    if goal[0] >= high - slack:
        return ends[1], bound
    return _climb(tree, [np.ones_like(part, dtype=bool) for part in tree.policy], attained=True), bound


def _end(tree: ContextTree, sign: float) -> tuple[float, list[Mask]]:
    """Return the greatest (sign 1) or least (sign -1) expected value of the only feature, with its decisions."""
    values, masks = sign * tree.features[:, 0], []
    for t in reversed(range(len(tree.actions))):
        table = values.reshape(-1, tree.actions[t])
        best = table.max(axis=1)
        masks.append(table >= best[:, None] - _TIE)
        values = tree.collect(t, best) if t else best
    return sign * float(tree.chance[0] @ values), masks[::-1]


def _climb(tree: ContextTree, allowed: Sequence[Mask], *, attained: bool) -> Conjugate:
    """Return the supremum over weights, with policies that make only allowed decisions.

    The maximum is found by Newton steps in the directions of `_directions`.
    """
    goal, basis = tree.expected(tree.policy), _directions(tree, allowed)
    point = np.zeros(basis.shape[1])
    height, slope, curvature, soft = _soft_value(tree, basis @ point, allowed)
    value = float((basis @ point) @ goal) - height
    for _ in range(_STEPS if len(point) else 0):
        rise = basis.T @ (goal - slope)
        scale, axes = np.linalg.eigh(basis.T @ curvature @ basis)
        along = axes.T @ rise
        step = along / np.maximum(scale, 1e-15 * scale[-1])
        gain = float(along @ step)
        if gain <= 1e-15 * max(1.0, abs(value)):
            break
        size, before = 1.0, value
        while size > 1e-10:
            candidate = point + size * (axes @ step)
            height, slope, curvature, soft = _soft_value(tree, basis @ candidate, allowed)
            value = float((basis @ candidate) @ goal) - height
            if value >= before + 0.1 * size * gain or (gain < 1e-10 and value >= before):
                break
            size /= 2
        else:  # no step is better: rounding errors exceed the remaining gain
            height, slope, curvature, soft = _soft_value(tree, basis @ point, allowed)
            value = before
            if gain > 1e-6 * max(1.0, abs(value)):
                raise RuntimeError(f"the search for the best utility got stuck {gain:.3g} nats below its goal")
            break
        point = candidate
    else:
        if len(point):
            raise RuntimeError(f"the search for the best utility must converge within {_STEPS} steps, it did not")
    return Conjugate(value=max(0.0, value), weights=basis @ point, prediction=soft, attained=attained)


def _soft_value(
    tree: ContextTree, weights: Array, allowed: Sequence[Mask]
) -> tuple[float, Array, Array, tuple[Array, ...]]:
    """Return the log normaliser W, its gradient ``[F]``, its Hessian ``[F, F]`` and the soft policies.

    F is the number of features, whose weights are given.
    """
    count = len(tree.actions)
    soft: list[Array] = [np.empty(0)] * count
    deviations: list[Array] = [np.empty(0)] * count  # [K_t, A_t, F] expected features after an action, minus their mean
    reward, features = tree.features @ weights, tree.features
    for t in reversed(range(count)):
        table = np.where(allowed[t], reward.reshape(allowed[t].shape), -np.inf)
        top = table.max(axis=1)
        values = top + np.log(np.exp(table - top[:, None]).sum(axis=1) / tree.actions[t])
        soft[t] = np.exp(table - values[:, None]) / tree.actions[t]
        by_action = features.reshape(*allowed[t].shape, -1)
        mean = np.einsum("ka,kaf->kf", soft[t], by_action)
        deviations[t] = by_action - mean[:, None]
        if t:
            reward, features = tree.collect(t, values), tree.collect(t, mean)
    curvature = np.zeros((tree.features.shape[1],) * 2)
    for nature, chosen, part in zip(tree.nature(), tree.plan(soft), deviations, strict=True):
        rows = (np.sqrt(nature[:, None] * chosen)[..., None] * part).reshape(-1, part.shape[-1])
        curvature += rows.T @ rows
    return float(tree.chance[0] @ values), tree.chance[0] @ mean, curvature, tuple(soft)


def _directions(tree: ContextTree, allowed: Sequence[Mask]) -> Array:
    """Return R directions ``[F, R]`` in which the allowed decisions can change the F features, of equal scale."""
    reachable = [np.ones(len(tree.contexts[0]), dtype=bool)]  # [K_t] contexts that the allowed actions can lead to
    for t in range(1, len(allowed)):
        reachable.append((allowed[t - 1] & reachable[-1][:, None]).reshape(-1)[tree.parent[t]])
    rows, features = [], tree.features
    for t in reversed(range(len(tree.actions))):
        by_action = features.reshape(*allowed[t].shape, -1)
        mean = (by_action * allowed[t][..., None]).sum(axis=1) / allowed[t].sum(axis=1)[:, None]
        rows.append((by_action - mean[:, None])[allowed[t] & reachable[t][:, None]])
        features = tree.collect(t, mean) if t else features
    _, sizes, turned = np.linalg.svd(np.concatenate(rows), full_matrices=False)
    significant = sizes > SMALL * np.sqrt(sum(map(len, rows)))
    return np.asarray(turned[significant].T / sizes[significant])


def _possible(tree: ContextTree) -> tuple[list[Mask], bool]:
    """Return ``[K_t, A_t]`` the actions that some policy with the same expected features takes, and whether all are.

    Contexts that those actions do not lead to keep all of their actions: nothing depends on them.
    """
    plans = tree.plan(tree.policy)
    ends = np.cumsum([plan.size for plan in plans])
    possible = np.concatenate([plan.reshape(-1) for plan in plans]) > SMALL
    if not possible.all():
        possible = _all_possible(tree, possible)
    masks = [part.reshape(plan.shape) for part, plan in zip(np.split(possible, ends[:-1]), plans, strict=True)]
    return [mask | ~mask.any(axis=1, keepdims=True) for mask in masks], bool(possible.all())


def _all_possible(tree: ContextTree, positive: Mask) -> Mask:
    """Return, for each entry of a plan, whether some plan with the same expected features makes this entry positive.

    Linear programmes decide it. Their unknown is a change of the plan, which may lower positive entries and must not
    lower entries of zero.
    """
    from scipy.optimize import linprog
    from scipy.sparse import bmat, coo_array, identity, kron

    count = len(tree.actions)
    blocks: list[list[Any]] = [[None] * count for _ in range(count + 1)]
    for t, part in enumerate(tree.policy):  # the decisions of a context sum to the plan of its parent
        number = len(part)
        blocks[t][t] = kron(identity(number), np.ones((1, part.shape[1])))
        if t:
            entries = (np.arange(number), tree.parent[t])
            blocks[t][t - 1] = coo_array((-np.ones(number), entries), shape=(number, tree.policy[t - 1].size))
    leaves = tree.nature()[-1].repeat(tree.actions[-1])[:, None] * tree.features
    leaves = np.where(np.abs(leaves) > SMALL * np.abs(leaves).max(), leaves, 0.0)
    blocks[count][-1] = coo_array(leaves.T)  # and the expected features are those of the policy
    equal, solve = bmat(blocks, format="csr"), cast(Any, linprog)
    # A change may be scaled down, so zero entries may get small upper bounds, divided among the actions. One programme
    # then finds many entries at once, not only the few that an unbounded one would favour.
    small_bound = np.repeat(0.5 / np.cumprod(tree.actions), [part.size for part in tree.policy])
    possible, bounds = positive.copy(), np.stack([np.zeros(len(small_bound)), small_bound], axis=1)
    bounds[positive] = -1.0, 1.0
    while not possible.all():
        for method in ("highs", "highs-ipm"):  # where one fails by rounding errors the other may not
            solution = solve(
                np.where(possible, 0.0, -0.5 / small_bound),
                A_eq=equal,
                b_eq=np.zeros(equal.shape[0]),
                bounds=bounds,
                method=method,
                options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
            )
            if solution.status == 0:
                break
        else:
            raise RuntimeError(
                f"the linear programme for the possible actions must have a solution: {solution.message}"
            )
        new = ~possible & (solution.x > _IMPOSSIBLE)
        if not new.any():
            break
        possible |= new
    return possible


def _check_recall(decisions: Sequence[Variable]) -> None:
    for before, after in pairwise(decisions):
        missing = [name for name in (*before.parents, before.name) if name not in after.parents]
        if missing:
            raise ValueError(
                f"several decisions must have perfect recall: {after.name} must see {before.name} and all that it saw, "
                f"but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not among its parents "
                f"({', '.join(after.parents) or 'none'}). Add the edges with with_recall(model, decisions), or measure "
                "one decision at a time"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InfluenceDiagram:
    """A causal model with decisions, in which the values of some numeric variables add up to the utility.

    Attributes:
        variables: all variables; those without ``chances`` are the decisions.
        utilities: names of the utility variables; the utility is the sum of their values.

    Raises:
        ValueError: there is no decision, or a utility variable is unknown, a decision, or not numeric.

    Source: MacDermott et al. 2024, Definition 2.2.
    """

    variables: tuple[Variable, ...]
    utilities: tuple[str, ...]

    def __post_init__(self) -> None:
        ordered = in_causal_order(self.variables)
        names = names_of(self.utilities)
        by_name = {variable.name: variable for variable in ordered}
        for name in names:
            variable = by_name.get(name)
            values = () if variable is None or variable.chances is None else variable.values
            numbers = (isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            if not values or not all(numbers) or not np.isfinite(np.array(values, dtype=np.float64)).all():
                raise ValueError(f"a utility must be a chance variable with finite numbers for values, got {name!r}")
        if not names or len(set(names)) != len(names) or not any(variable.chances is None for variable in ordered):
            raise ValueError(
                f"an influence diagram needs a decision (a variable without chances) and different utilities, got "
                f"utilities {list(names)} and variables {list(by_name)}"
            )
        object.__setattr__(self, "variables", ordered)
        object.__setattr__(self, "utilities", names)

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of the decisions, causes before effects."""
        return tuple(variable.name for variable in self.variables if variable.chances is None)

    def under(self, policy: Mapping[str, npt.ArrayLike] | None = None) -> CausalModel:
        """Return the causal model that results if the decisions of the diagram follow a policy.

        Args:
            policy: name of a decision -> ``[K_1, ..., K_m, K]`` probabilities given its parents; decisions left out are
                uniform.

        Raises:
            ValueError: the policy names a variable that is not a decision, has the wrong shape, or does not sum to 1.
        """
        chances_of = dict(policy or {})
        unknown = sorted(set(chances_of) - set(self.decisions))
        if unknown:
            raise ValueError(f"a policy must name decisions ({', '.join(self.decisions)}), got {', '.join(unknown)}")
        sizes = {variable.name: len(variable.values) for variable in self.variables}
        for decision in (variable for variable in self.variables if variable.chances is None):
            shape = (*(sizes[name] for name in decision.parents), len(decision.values))
            chances_of.setdefault(decision.name, np.full(shape, 1 / len(decision.values)))
        return CausalModel(
            variables=tuple(
                replace(variable, chances=np.asarray(chances_of[variable.name]))
                if variable.name in chances_of
                else variable
                for variable in self.variables
            )
        )


def with_recall(model: CausalModel, decisions: str | Iterable[str]) -> CausalModel:
    """Return a causal model in which each decision also sees all earlier decisions and what they saw (perfect recall).

    The added parents change no probability, so the behaviour stays the same. But MEG then compares this behaviour with
    a larger set of policies, which may use the memory.

    Args:
        model: the model.
        decisions: names of the decisions, in any order.

    Raises:
        ValueError: a name is not a variable of the model.
    """
    chosen = {model[name].name for name in names_of(decisions)}
    memory: list[str] = []
    changed = []
    for name in (name for name in model.names if name in chosen):
        variable = model[name]
        added = tuple(other for other in memory if other not in variable.parents)
        sizes = tuple(len(model[other].values) for other in added)
        *before, values = np.asarray(variable.chances).shape
        chances = np.asarray(variable.chances).reshape(*before, *(1,) * len(sizes), values)
        chances = np.broadcast_to(chances, (*before, *sizes, values))
        parents = (*variable.parents, *added)
        changed.append(replace(variable, parents=parents, chances=chances))
        memory = list(dict.fromkeys((*memory, *parents, name)))
    return model.replace(*changed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CausalMEG:
    """MEG (maximum-entropy goal-directedness) of decisions in a causal model.

    Attributes:
        value: MEG in nats, >= 0.
        bound: n log A, the sum over decisions of the logarithm of the number of actions.
        attained: False if the value is only reached in the limit of infinite rationality or infinite utilities.
        decisions: the decisions, in causal order.
        prediction: the best prediction (or its limit) of each decision, shaped like its chances; uniform in impossible
            contexts.
        utility: best utility of each joint value of the target, in nats (rationality included), with mean 0. If
            ``attained`` is False, weights that rank the actions that remain possible in the limit. None for a known
            utility.
        beta: rationality for a known utility, in nats per unit of that utility; +-inf in the limit, 0 if the utility
            cannot be changed. None for an unknown utility.
        expected: expected utility; None for an unknown utility.
        uniform: expected utility of uniform decisions; None for an unknown utility.
        tight_bound: greatest MEG of any policy with this utility; None for an unknown utility.
    """

    value: float
    bound: float
    attained: bool
    decisions: tuple[str, ...]
    prediction: Mapping[str, Array]
    utility: Mapping[tuple[Value, ...], float] | None = None
    beta: float | None = None
    expected: float | None = None
    uniform: float | None = None
    tight_bound: float | None = None

    @property
    def signed(self) -> float:
        """MEG in nats with the sign of ``expected - uniform``: negative for decisions that avoid the utility.

        Raises:
            ValueError: the utility is unknown, so that it has no sign.

        Source: MacDermott et al. 2024, footnote 4.
        """
        if self.expected is None or self.uniform is None:
            raise ValueError("signed MEG is defined only for a known utility, but the utility is unknown")
        return float(np.sign(self.expected - self.uniform)) * self.value if self.beta else 0.0


def meg_target(
    model: CausalModel,
    *,
    decisions: str | Iterable[str],
    target: str | Iterable[str],
    utility: npt.ArrayLike | None = None,
) -> CausalMEG:
    """Measure how goal-directed decisions are towards target variables, for a known or the best possible utility.

    Args:
        model: the causal model, in which the chances of the decisions are their actual behaviour.
        decisions: one variable, or several with perfect recall (see `with_recall`). All other variables are chance.
        target: the variables that the utility may depend on; may include decisions and causes of the decisions.
        utility: ``[K_1, ..., K_m]`` utility of each joint value of the target; None for the best of all utilities.

    Returns:
        The MEG (maximum-entropy goal-directedness) in nats, with its bound, the best prediction and the best utility.

    Raises:
        ValueError: names are unknown or repeated, several decisions lack perfect recall, the utility has the wrong
            shape or is not finite, or a table or the target is too large.

    Source: MacDermott et al. 2024, Definitions 3.2 and 4.4; the concave form is E_pi[u] - W(u), W the log mean exp of
    the utility, backward over the decisions' contexts.
    """
    deciding, targets = _chosen(model, "decisions", decisions), _chosen(model, "target", target)
    shape = tuple(len(model[name].values) for name in targets)
    values = None
    if utility is not None:
        values = np.asarray(utility)
        if values.dtype.kind not in "iuf" or values.shape != shape:
            raise ValueError(
                f"utility must hold a number for each joint value of {', '.join(targets)}, shape {list(shape)}, "
                f"got {values.dtype} {list(values.shape)}"
            )
        check_finite("utility", values)
    elif prod(shape) > LARGEST_TARGET:
        raise ValueError(
            f"a target with unknown utility must have at most {LARGEST_TARGET} joint values, got {prod(shape)}: "
            "name fewer variables, or give a utility"
        )
    tree = ContextTree.of(model, deciding)
    outcome_features = tree.outcome(targets)
    if values is not None:
        return _known_utility(tree, [(outcome_features, values.astype(np.float64).reshape(-1))])
    optimum = conjugate(replace(tree, features=outcome_features))
    weights = optimum.weights - optimum.weights.mean()
    outcomes = product(*(model[name].values for name in targets))
    return _result(tree, optimum, utility=dict(zip(outcomes, weights.tolist(), strict=True)))


def meg_utility(diagram: InfluenceDiagram, policy: Mapping[str, npt.ArrayLike]) -> CausalMEG:
    """Measure how goal-directed a policy is towards the utility of an influence diagram.

    Args:
        diagram: the diagram; its decisions must have perfect recall.
        policy: probabilities of each decision given its parents; decisions left out are uniform.

    Returns:
        The MEG (maximum-entropy goal-directedness) in nats, with its bounds, the rationality and the best prediction.

    Raises:
        ValueError: the arguments are invalid, see `InfluenceDiagram.under` and `meg_target`.

    Source: MacDermott et al. 2024, Definition 3.2.
    """
    model = diagram.under(policy)
    tree = ContextTree.of(model, diagram.decisions)
    parts = [(tree.outcome((name,)), np.array(model[name].values, dtype=np.float64)) for name in diagram.utilities]
    return _known_utility(tree, parts)


def pseudo_terminal_goals(
    model: CausalModel, *, decisions: str | Iterable[str], target: str | Iterable[str], most: int = 1
) -> list[tuple[str, ...]]:
    """Return the sets of other variables that d-separate the decisions from the target, smallest first.

    Decisions are at least as goal-directed towards each of these sets as towards the target. Sets that contain a
    smaller one found before are left out, as are decisions.

    Args:
        model: the model.
        decisions, target: names of the decisions and of the target variables.
        most: maximum number of variables in a set.

    Source: MacDermott et al. 2024, Theorem 4.1.
    """
    deciding, targets = _chosen(model, "decisions", decisions), _chosen(model, "target", target)
    candidates = [name for name in model.names if name not in (*deciding, *targets)]
    separators: list[tuple[str, ...]] = []
    for size in range(most + 1):
        for names in combinations(candidates, size):
            smaller = any(set(separator) <= set(names) for separator in separators)
            if not smaller and model.d_separated(deciding, targets, names):
                separators.append(names)
    return separators


def _known_utility(tree: ContextTree, parts: Sequence[tuple[Array, Array]]) -> CausalMEG:
    """Return MEG for a sum of known utilities.

    Each part is a pair: the distribution of F outcomes after each last decision ``[K_n * A_n, F]``, and their utilities
    ``[F]``.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        offset = float(sum(values.min() for _, values in parts))
        expected_utility = np.asarray(sum(probabilities @ (values - values.min()) for probabilities, values in parts))
    low, high = float(expected_utility.min()), float(expected_utility.max())
    scale = high - low
    if not (np.isfinite(scale) and np.isfinite(offset)):
        raise ValueError("utilities must have a finite range, got an overflow: divide them by a constant")
    if scale <= SMALL * max(abs(low), abs(high)):
        scale = 1.0  # a constant utility: only rounding errors remain
        expected_utility = np.full_like(expected_utility, low)
    tree = replace(tree, features=((expected_utility - low) / scale)[:, None])
    noise = float(np.finfo(np.float64).eps) * max(abs(low), abs(high)) / scale
    optimum, bound = conjugate_known(tree, noise)
    expected, uniform = (
        offset + low + scale * float(tree.expected(policy)[0]) for policy in (tree.policy, tree.uniform())
    )
    beta = float(optimum.weights[0]) / scale if optimum.attained else float(np.copysign(np.inf, expected - uniform))
    return _result(tree, optimum, beta=beta, expected=expected, uniform=uniform, tight_bound=bound)


def _result(tree: ContextTree, optimum: Conjugate, **attributes: Any) -> CausalMEG:
    prediction = {}
    for name, contexts, part in zip(tree.decisions, tree.contexts, optimum.prediction, strict=True):
        table = np.asarray(tree.model[name].chances).copy()
        table.reshape(-1, part.shape[1])[contexts] = part
        prediction[name] = freeze(table)
    return CausalMEG(
        value=optimum.value,
        bound=float(np.log(tree.actions).sum()),
        attained=optimum.attained,
        decisions=tree.decisions,
        prediction=prediction,
        **attributes,
    )


def _chosen(model: CausalModel, role: str, names: str | Iterable[str]) -> tuple[str, ...]:
    chosen = tuple(model[name].name for name in names_of(names))
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"{role} must name one or more different variables, got {list(chosen)}")
    return chosen
