"""Influence diagrams, and the MEG of decisions in a causal model towards variables or towards a utility."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, freeze
from goalscope.goals.meg.causal import CausalModel, Value, Variable, in_causal_order, names_of
from goalscope.goals.meg.causal_tree import SMALL, Array, Conjugate, ContextTree, conjugate, conjugate_known

LARGEST_TARGET = 2048
"""Maximum number of joint values of a target with unknown utility."""


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
        """Return the causal model of the diagram with a policy.

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
    """Return the model in which each decision also sees all earlier decisions and their parents.

    The added parents change no probability, so the behaviour stays the same. It is then compared with a larger set of
    policies, which may use the memory.

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
    """MEG of decisions in a causal model.

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
        """Value with the sign of ``expected - uniform``: negative for decisions that avoid the utility.

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
