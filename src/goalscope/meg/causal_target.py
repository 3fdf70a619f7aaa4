"""Maximum-entropy goal-directedness (MEG) of decisions in a causal model, towards variables or towards a utility."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, freeze
from goalscope.meg.causal import LARGEST_TABLE, CausalModel, Value, Variable, names_of
from goalscope.meg.causal_diagram import InfluenceDiagram, outcomes
from goalscope.meg.causal_tree import SMALL, Array, Conjugate, ContextTree, conjugate, conjugate_known

LARGEST_TARGET = 2048
"""Most joint values of a target whose utility is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CausalMEG:
    """MEG of decisions in a causal model.

    Attributes:
        value: MEG in nats, >= 0.
        bound: n log A, the sum of the logarithms of the numbers of actions.
        attained: False where the value is a limit, of infinite rationality or of infinite differences of utility.
        decisions: the decisions, in causal order.
        prediction: the best prediction (or its limit) of each decision, shaped like its chances: uniform where what
            it sees is impossible.
        utility: best utility of each joint value of the target, in nats (rationality included) and of mean 0; where
            ``attained`` is False, only what ranks the actions that the limit leaves possible. None for a known utility.
        beta: rationality for a known utility in its own unit, +-inf in the limit, 0 where it cannot be changed; None
            for an unknown one.
        expected: expected utility; None for an unknown one.
        uniform: expected utility of uniform decisions; None for an unknown one.
        tight_bound: greatest MEG that any policy has with this utility; None for an unknown one.
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
        """Value with the sign of ``expected - uniform``: negative for decisions that avoid the utility.

        Raises:
            ValueError: the utility is unknown, so that it has no sign.

        Source: MacDermott et al. 2024, footnote 4.
        """
        if self.expected is None or self.uniform is None:
            raise ValueError("the signed measure must be asked of a known utility, got an unknown one")
        return float(np.sign(self.expected - self.uniform)) * self.value if self.beta else 0.0


def meg_target(
    model: CausalModel,
    *,
    decisions: str | Iterable[str],
    target: str | Iterable[str],
    utility: npt.ArrayLike | None = None,
) -> CausalMEG:
    """Return how goal-directed decisions are towards some variables, whatever their utility, or for a known one.

    Args:
        model: the causal model, the decisions' actual behaviour being their chances.
        decisions: one variable, or several with perfect recall (see `with_recall`). Every other variable is chance.
        target: the variables that the utility may depend on; may hold causes of the decisions or decisions.
        utility: None for the best of all utilities, or ``[K_1, ..., K_m]`` the utility of each joint value.

    Raises:
        ValueError: unknown or repeated names, several decisions without perfect recall, a utility of another shape or
            that is not finite, tables or a target too large.

    Source: MacDermott et al. 2024, Definitions 3.2 and 4.4; the concave form is E_pi[u] - W(u), W the log mean exp of
    the utility, backward over what the decisions see.
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
    contexts = _Contexts.of(model, deciding)
    after = contexts.outcome(targets)
    if values is not None:
        return _known(contexts, [(after, values.astype(np.float64).reshape(-1))])
    found = conjugate(contexts.tree(after), contexts.policy)
    weights = found.weights - found.weights.mean()
    ranked = dict(zip(outcomes(model, targets), weights.tolist(), strict=True))
    return _result(contexts, found, utility=ranked)


def meg_utility(diagram: InfluenceDiagram, policy: Mapping[str, npt.ArrayLike]) -> CausalMEG:
    """Return how goal-directed a policy is towards the utility of an influence diagram.

    Args:
        diagram: the diagram, its decisions having perfect recall.
        policy: chances of each decision given its parents; a decision left out is uniform.

    Raises:
        ValueError: whatever `InfluenceDiagram.under` and `meg_target` refuse.

    Source: MacDermott et al. 2024, Definition 3.2.
    """
    model = diagram.under(policy)
    contexts = _Contexts.of(model, diagram.decisions)
    parts = [(contexts.outcome((name,)), np.array(model[name].values, dtype=np.float64)) for name in diagram.utilities]
    return _known(contexts, parts)


def pseudo_terminal_goals(
    model: CausalModel, *, decisions: str | Iterable[str], target: str | Iterable[str], most: int = 1
) -> list[tuple[str, ...]]:
    """Return the sets of other variables that d-separate the decisions from the target, smallest first.

    Decisions are at least as goal-directed towards each of these sets as towards the target. Sets that contain a
    smaller one found before are left out, as are decisions.

    Args:
        model: the model.
        decisions, target: variables.
        most: most variables in a set.

    Source: MacDermott et al. 2024, Theorem 4.1.
    """
    deciding, targets = _chosen(model, "decisions", decisions), _chosen(model, "target", target)
    others = [name for name in model.names if name not in (*deciding, *targets)]
    found: list[tuple[str, ...]] = []
    for size in range(most + 1):
        for names in combinations(others, size):
            smaller = any(set(known) <= set(names) for known in found)
            if not smaller and model.d_separated(deciding, targets, names):
                found.append(names)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Contexts:
    """What the decisions can see, from the graph with uniform decisions.

    Attributes:
        model: the model with uniform decisions.
        decisions: names in causal order.
        actions: number of actions of each.
        seen: ``[K_n]`` flat index of each possible context of the last decision.
        known: for each decision ``[K_t]`` flat indices of its possible contexts.
        parent, chance: as in `ContextTree`.
        policy: ``[K_t, A_t]`` the actual behaviour.
    """

    model: CausalModel
    decisions: tuple[str, ...]
    actions: tuple[int, ...]
    seen: npt.NDArray[np.int64]
    known: tuple[npt.NDArray[np.int64], ...]
    parent: tuple[npt.NDArray[np.int64], ...]
    chance: tuple[Array, ...]
    policy: tuple[Array, ...]

    @classmethod
    def of(cls, model: CausalModel, names: Sequence[str]) -> "_Contexts":
        decisions = [model[name] for name in model.names if name in set(names)]
        _check_recall(decisions)
        actions = tuple(len(decision.values) for decision in decisions)
        uniform = model.replace(*(_uniform(decision) for decision in decisions))
        sight = decisions[-1].parents
        joint = uniform.table(sight)
        seen = np.flatnonzero(joint.reshape(-1) > 0)
        places = dict(zip(sight, np.unravel_index(seen, joint.shape), strict=True)) if sight else {}
        known, parent, chance, policy = [], [], [], []
        last: npt.NDArray[np.intp] = np.zeros(len(seen), dtype=np.intp)
        weight: Array = np.ones(1)
        for t, decision in enumerate(decisions):
            shape = tuple(len(model[name].values) for name in decision.parents)
            flat = np.zeros(len(seen), dtype=np.int64)
            if shape:
                flat = np.ravel_multi_index([places[name] for name in decision.parents], shape).astype(np.int64)
            here, first, place = np.unique(flat, return_index=True, return_inverse=True)
            mass = np.bincount(place, weights=joint.reshape(-1)[seen], minlength=len(here))
            before = np.zeros(len(here), dtype=np.int64)
            if t:
                before = last[first] * actions[t - 1] + places[decisions[t - 1].name][first]
            earlier = actions[t - 1] if t else 1
            chance.append(np.asarray(mass * earlier / weight[before // earlier], dtype=np.float64))
            last, weight = place, mass.astype(np.float64)
            known.append(here)
            parent.append(before)
            policy.append(np.asarray(decision.chances).reshape(-1, actions[t])[here])
        return cls(
            model=uniform,
            decisions=tuple(decision.name for decision in decisions),
            actions=actions,
            seen=seen,
            known=tuple(known),
            parent=tuple(parent),
            chance=tuple(chance),
            policy=tuple(policy),
        )

    def outcome(self, targets: Sequence[str]) -> Array:
        """Return ``[K_n * A_n, F]`` the distribution of some variables after the last decision."""
        model, last = self.model, self.model[self.decisions[-1]]
        own = (*last.parents, last.name)
        asked = []
        for name in targets:
            copy = f"copy of {name}"  # what is seen may be part of the target: a copy gets its own axis
            if name in own:
                values = model[name].values
                model = model.replace(Variable(name=copy, values=values, parents=(name,), chances=np.eye(len(values))))
            asked.append(copy if name in own else name)
        size = prod(len(model[name].values) for name in asked)
        found = model.table((*own, *asked), largest=LARGEST_TABLE).reshape(-1, self.actions[-1], size)[self.seen]
        return np.asarray((found / found.sum(axis=2, keepdims=True)).reshape(-1, size))

    def tree(self, features: Array) -> ContextTree:
        return ContextTree(
            contexts=self.known, parent=self.parent, chance=self.chance, actions=self.actions, features=features
        )


def _known(contexts: _Contexts, parts: Sequence[tuple[Array, Array]]) -> CausalMEG:
    """Return MEG for a sum of known utilities: pairs of ``[K_n * A_n, F]`` distributions and ``[F]`` utilities."""
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        offset = float(sum(values.min() for _, values in parts))
        after = np.asarray(sum(chances @ (values - values.min()) for chances, values in parts))
    low, high = float(after.min()), float(after.max())
    scale = high - low
    if not (np.isfinite(scale) and np.isfinite(offset)):
        raise ValueError("utilities must have a finite range, got an overflow: divide them by a constant")
    if scale <= SMALL * max(abs(low), abs(high)):
        scale = 1.0  # a constant: what is left are rounding errors
        after = np.full_like(after, low)
    tree = contexts.tree(((after - low) / scale)[:, None])
    noise = float(np.finfo(np.float64).eps) * max(abs(low), abs(high)) / scale
    found, bound = conjugate_known(tree, contexts.policy, noise)
    expected, uniform = (
        offset + low + scale * float(tree.expected(policy)[0]) for policy in (contexts.policy, tree.uniform())
    )
    beta = float(found.weights[0]) / scale if found.attained else float(np.copysign(np.inf, expected - uniform))
    return _result(contexts, found, beta=beta, expected=expected, uniform=uniform, tight_bound=bound)


def _result(contexts: _Contexts, found: Conjugate, **more: Any) -> CausalMEG:
    prediction = {}
    for name, here, part in zip(contexts.decisions, contexts.known, found.prediction, strict=True):
        whole = np.asarray(contexts.model[name].chances).copy()
        whole.reshape(-1, part.shape[1])[here] = part
        prediction[name] = freeze(whole)
    bound = float(np.log(contexts.actions).sum())
    return CausalMEG(
        value=found.value,
        bound=bound,
        attained=found.attained,
        decisions=contexts.decisions,
        prediction=prediction,
        **more,
    )


def _uniform(decision: Variable) -> Variable:
    chances = np.full_like(np.asarray(decision.chances), 1 / len(decision.values))
    return Variable(name=decision.name, values=decision.values, parents=decision.parents, chances=chances)


def _chosen(model: CausalModel, what: str, names: str | Iterable[str]) -> tuple[str, ...]:
    chosen = tuple(model[name].name for name in names_of(names))
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"{what} must name one or more different variables, got {list(chosen)}")
    return chosen


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
