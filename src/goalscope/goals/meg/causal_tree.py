"""The decision contexts of a causal model as a tree, and the convex conjugate of its soft value over it.

With perfect recall each context (the values that a decision sees) follows from one earlier context and one earlier
decision, so that backward induction over contexts is exact. Symbols: decision t of n has K_t reachable contexts and A_t
actions; the utility is linear in F features of the outcome, whose expectation after the last decision is known.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from goalscope.goals.meg.causal import LARGEST_TABLE, CausalModel, Variable

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContextTree:
    """Decision contexts, how they follow from each other, and the behaviour in them.

    Attributes:
        model: the model with uniform decisions.
        decisions: their n names in causal order.
        actions: A_t.
        contexts: for each decision ``[K_t]``, the flat index of a context among all joint values of the parents.
        parent: for each decision ``[K_t]``, ``k * A + d`` of the earlier context k and decision d; zeros at the first.
        chance: for each decision ``[K_t]``, probability of the context after them.
        policy: for each decision ``[K_t, A_t]``, the actual behaviour.
        features: ``[K_n * A_n, F]`` expected features after the last decision.
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
        """Return the tree of some decisions, without features; ValueError without perfect recall."""
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
        """Return ``[K_n * A_n, F]`` the distribution of some variables after the last decision."""
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
        """Return the uniform policy, ``[K_t, A_t]`` for each decision."""
        return tuple(np.full_like(part, 1 / part.shape[1]) for part in self.policy)

    def plan(self, policy: Sequence[Array]) -> tuple[Array, ...]:
        """Return the realisation plan ``[K_t, A_t]``: product of the policy's probabilities up to each action."""
        plans = [policy[0]]
        for t in range(1, len(policy)):
            plans.append(plans[-1].reshape(-1)[self.parent[t]][:, None] * policy[t])
        return tuple(plans)

    def nature(self) -> tuple[Array, ...]:
        """Return the factor of each context's probability that does not depend on the decisions, ``[K_t]`` for each
        decision t.
        """
        parts = [self.chance[0]]
        for t in range(1, len(self.actions)):
            parts.append(parts[-1][self.parent[t] // self.actions[t - 1]] * self.chance[t])
        return tuple(parts)

    def expected(self, policy: Sequence[Array]) -> Array:
        """Return the expected features ``[F]`` of a policy."""
        leaves = (self.nature()[-1][:, None] * self.plan(policy)[-1]).reshape(-1)
        return np.asarray(leaves @ self.features, dtype=np.float64)

    def collect(self, t: int, values: Array) -> Array:
        """Return ``[K * A, ...]`` expectation of values ``[K_t, ...]`` of the contexts of decision t >= 1."""
        total = np.zeros((len(self.contexts[t - 1]) * self.actions[t - 1], *values.shape[1:]))
        np.add.at(total, self.parent[t], values * self.chance[t].reshape(-1, *(1,) * (values.ndim - 1)))
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conjugate:
    """The largest predictive advantage over a uniform prediction.

    Attributes:
        value: nats.
        weights: ``[F]`` of the best prediction; where the value is a limit, weights that rank the actions which the
            limit leaves possible.
        prediction: best prediction (or its limit) for each decision, ``[K_t, A_t]``.
        attained: False where only a limit of infinite weights reaches the value.
    """

    value: float
    weights: Array
    prediction: tuple[Array, ...]
    attained: bool


def conjugate(tree: ContextTree) -> Conjugate:
    """Return ``sup_w <w, m> - W(w)`` for the expected features m of the behaviour; features of about unit range.

    ``W(w) = log mean exp`` of the utility, backward over the contexts. Where the supremum is a limit (m lies on the
    border of the attainable expectations), the actions that every policy with the same m avoids are found by linear
    programming and left out: on the others the supremum is attained, and the limit is exact.
    """
    allowed, attained = _possible(tree)
    return _climb(tree, allowed, attained=attained)


def conjugate_known(tree: ContextTree, noise: float) -> tuple[Conjugate, float]:
    """Return the conjugate for a single feature, whose values are known up to a rounding error, and the greatest value
    of any policy.
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
