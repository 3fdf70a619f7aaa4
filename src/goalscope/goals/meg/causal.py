"""Small causal Bayesian networks with finite variables, and exact inference in them.

Models are immutable: an intervention returns a new model, and queries do not change it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope._ground.distributions import to_array, to_distributions

Array = npt.NDArray[np.float64]
Value = str | int | float | bool
Factor = tuple[tuple[str, ...], Array]

LARGEST_TABLE = 2**24
"""Maximum number of entries of a table in inference (128 MiB)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variable:
    """A variable of a causal Bayesian network with finitely many values, and its distribution given its causes.

    Attributes:
        name: name in the model.
        values: the K possible values, in the order of the last axis of ``chances``.
        parents: names of the direct causes, in the order of the first axes of ``chances``.
        chances: ``[K_1, ..., K_m, K]`` probability of each value given the values of the m parents; None for a decision
            of an influence diagram.

    Raises:
        ValueError: there are no values, a value or parent is repeated, or chances have the wrong shape or do not sum to
            1.
    """

    name: str
    values: tuple[Value, ...]
    parents: tuple[str, ...] = ()
    chances: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a variable needs a name, got {self.name!r}")
        values, parents = names_of(self.values), names_of(self.parents)
        if not values or len(set(values)) != len(values):
            raise ValueError(f"{self.name} must have one or more different values, got {list(values)}")
        if len(set(parents)) != len(parents) or self.name in parents:
            raise ValueError(f"the parents of {self.name} must be different other variables, got {list(parents)}")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "parents", parents)
        if self.chances is not None:
            array = to_array(f"the chances of {self.name}", self.chances)
            if array.ndim != len(parents) + 1 or array.shape[-1] != len(values):
                raise ValueError(
                    f"the chances of {self.name} must be numbers with an axis for each of its {len(parents)} parents "
                    f"and a last one for its {len(values)} values, got {array.dtype} {list(array.shape)}"
                )
            object.__setattr__(self, "chances", freeze(to_distributions(f"the chances of {self.name}", array)))

    @classmethod
    def by_rule(
        cls,
        name: str,
        values: Iterable[Value],
        parents: Sequence["Variable"],
        rule: Callable[..., Value | Mapping[Any, float]],
    ) -> "Variable":
        """Create a variable whose value, or distribution of values, follows from the values of its parents by a
        function.

        Args:
            name: name of the variable.
            values: its possible values.
            parents: the variables that it depends on.
            rule: called with one value of each parent, in order; returns the resulting value, or a mapping from values
                to probabilities (missing values have probability 0).

        Raises:
            ValueError: the rule returns something other than a possible value, or the arguments are invalid (see the
                class).
        """
        domain = tuple(values)
        shape = tuple(len(parent.values) for parent in parents)
        chances = np.zeros((*shape, len(domain)))
        for index in np.ndindex(shape):
            outcome = rule(*(parent.values[position] for parent, position in zip(parents, index, strict=True)))
            for value, chance in (outcome if isinstance(outcome, Mapping) else {outcome: 1.0}).items():
                if value not in domain:
                    raise ValueError(f"the rule of {name} must return one of {list(domain)}, got {value!r}")
                chances[(*index, domain.index(value))] = chance
        return cls(name=name, values=domain, parents=tuple(parent.name for parent in parents), chances=chances)

    def index(self, value: Value) -> int:
        """Return the position of a value among the variable's possible values.

        Raises:
            ValueError: the variable has no such value.
        """
        if value not in self.values:
            raise ValueError(f"{self.name} must take one of its values {list(self.values)}, got {value!r}")
        return self.values.index(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CausalModel:
    """A causal Bayesian network: every variable with its causes and its conditional distribution.

    Attributes:
        variables: the variables, given in any order and stored with causes before effects.

    Raises:
        ValueError: two variables have the same name, a parent is missing, the graph has a cycle, or chances do not fit
            the parents.

    Source: MacDermott et al. 2024, Definition 2.1.
    """

    variables: tuple[Variable, ...]
    _by_name: Mapping[str, Variable] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ordered = in_causal_order(self.variables)
        blank = [variable.name for variable in ordered if variable.chances is None]
        if blank:
            raise ValueError(
                f"every variable of a causal model needs chances, got none for {blank[0]}: if it is a decision, set a "
                "policy with InfluenceDiagram.under"
            )
        object.__setattr__(self, "variables", ordered)
        object.__setattr__(self, "_by_name", {variable.name: variable for variable in ordered})

    def __getitem__(self, name: str) -> Variable:
        """Return a variable by name."""
        if name not in self._by_name:
            raise ValueError(f"a variable of the model must be one of {', '.join(self.names)}, got {name!r}")
        return self._by_name[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables, causes before effects."""
        return tuple(variable.name for variable in self.variables)

    def replace(self, *variables: Variable) -> "CausalModel":
        """Return a copy of the model with the given variables added, or replaced where the model has the same name."""
        new = {variable.name: variable for variable in variables}
        return CausalModel(variables=tuple({**self._by_name, **new}.values()))

    def do(self, values: Mapping[str, Value]) -> "CausalModel":
        """Return the model after an intervention: each given variable has a fixed value and no longer depends on its
        causes.

        Args:
            values: name of a variable -> its value.

        Raises:
            ValueError: a name or a value is unknown.

        Source: MacDermott et al. 2024, Definition 2.1 (truncated factorisation).
        """
        fixed = ((self[name], self[name].index(value)) for name, value in values.items())
        return self.replace(
            *(replace(variable, parents=(), chances=np.eye(len(variable.values))[index]) for variable, index in fixed)
        )

    def ancestors(self, names: str | Iterable[str]) -> frozenset[str]:
        """Return the names of the given variables and of all their direct and indirect causes."""
        return frozenset(_reached((self[name].name for name in names_of(names)), lambda name: self[name].parents))

    def d_separated(
        self, left: str | Iterable[str], right: str | Iterable[str], given: str | Iterable[str] = ()
    ) -> bool:
        """Return whether the graph of the model makes two sets of variables independent, given a third set
        (d-separation).

        Args:
            left, right: names of the variables of both sets; those that are also in ``given`` are left out.
            given: names of the variables that are known.

        Source: Lauritzen et al. 1990: separation in the moral graph of the ancestral set.
        """
        observed = {self[name].name for name in names_of(given)}
        sources = {self[name].name for name in names_of(left)} - observed
        sinks = {self[name].name for name in names_of(right)} - observed
        neighbours: dict[str, set[str]] = {name: set() for name in self.ancestors(observed | sources | sinks)}
        for name in neighbours:
            family = {name, *self[name].parents}
            for member in family:
                neighbours[member] |= family
        return not _reached(sources, lambda name: neighbours[name] - observed) & sinks

    def table(
        self, names: str | Sequence[str], given: Mapping[str, Value] | None = None, *, largest: int = LARGEST_TABLE
    ) -> Array:
        """Return the joint distribution of some variables, by variable elimination.

        Args:
            names: the variables, one axis each, in this order.
            given: observed values of other variables.
            largest: maximum number of entries of any intermediate table.

        Returns:
            ``[K_1, ..., K_m]`` probabilities that sum to 1.

        Raises:
            ValueError: a name or value is unknown, a name is repeated, the observation has probability 0, or a table is
                too large.
        """
        requested = names_of(names)
        observed = {name: self[name].index(value) for name, value in (given or {}).items()}
        if len(set(requested)) != len(requested) or set(requested) & set(observed):
            raise ValueError(
                f"the variables of a table must be different and not observed, got {list(requested)} "
                f"with {sorted(observed)} observed"
            )
        causes = self.ancestors((*requested, *observed))
        relevant = [variable for variable in self.variables if variable.name in causes]
        # A variable of one value is known: no axis is spent on it.
        fixed_index = observed | {variable.name: 0 for variable in relevant if len(variable.values) == 1}
        factors = [_restrict(variable, fixed_index) for variable in relevant]
        free = tuple(name for name in requested if name not in fixed_index)
        hidden = [
            variable.name for variable in relevant if variable.name not in fixed_index and variable.name not in free
        ]
        sizes = {variable.name: len(variable.values) for variable in relevant}
        while hidden:
            scopes = {name: {other for scope, _ in factors if name in scope for other in scope} for name in hidden}
            cost, name = min((prod(sizes[other] for other in scopes[name]), name) for name in hidden)
            _check_size(cost, largest)
            scope, joint = reduce(_multiply, (factor for factor in factors if name in factor[0]))
            summed = tuple(other for other in scope if other != name), joint.sum(axis=scope.index(name))
            factors = [*(factor for factor in factors if name not in factor[0]), summed]
            hidden.remove(name)
        _check_size(prod(sizes[name] for name in free), largest)
        nothing: Factor = ((), np.ones(()))
        scope, joint = reduce(_multiply, factors, nothing)
        total = float(joint.sum())
        if not total > 0:
            raise ValueError(f"the observation {dict(given or {})} has probability 0 in this model")
        ordered = np.transpose(joint, [scope.index(name) for name in free]) / total
        return ordered.reshape([len(self[name].values) for name in requested])

    def probability(self, event: Mapping[str, Value], given: Mapping[str, Value] | None = None) -> float:
        """Return the conditional probability of an event.

        Args:
            event: variable -> the value that it takes in the event.
            given: variable -> its observed value; None for no condition.

        Raises:
            ValueError: see `table`.
        """
        index = tuple(self[name].index(value) for name, value in event.items())
        return float(self.table(tuple(event), given)[index])


def in_causal_order(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    """Sort variables so that causes come before effects; variables that are in this order already keep it.

    Raises:
        ValueError: a name occurs twice, a parent is missing, probabilities have the wrong shape, or there is a cycle.
    """
    waiting = list(variables)
    by_name = {variable.name: variable for variable in waiting}
    if not waiting or len(by_name) != len(waiting):
        raise ValueError(
            f"a model must have variables of different names, got {[variable.name for variable in waiting]}"
        )
    for variable in waiting:
        missing = [name for name in variable.parents if name not in by_name]
        if missing:
            raise ValueError(f"the parents of {variable.name} must be variables of the model, got {missing}")
        shape = (*(len(by_name[name].values) for name in variable.parents), len(variable.values))
        if variable.chances is not None and variable.chances.shape != shape:
            raise ValueError(
                f"the chances of {variable.name} must have shape {list(shape)} (values of its parents "
                f"{list(variable.parents)}, then its own), got {list(variable.chances.shape)}"
            )
    ordered: dict[str, Variable] = {}
    while waiting:
        ready = next((variable for variable in waiting if all(name in ordered for name in variable.parents)), None)
        if ready is None:
            raise ValueError(f"causes must not form a cycle, got one among {[variable.name for variable in waiting]}")
        ordered[ready.name] = ready
        waiting.remove(ready)
    return tuple(ordered.values())


def names_of(names: Any) -> tuple[Any, ...]:
    """Return a tuple of names from a single name or several names."""
    return (names,) if isinstance(names, str) else tuple(names)


def _reached(start: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> set[str]:
    result, waiting = set[str](), list(start)
    while waiting:
        name = waiting.pop()
        if name not in result:
            result.add(name)
            waiting.extend(neighbours(name))
    return result


def _restrict(variable: Variable, fixed_index: Mapping[str, int]) -> Factor:
    scope = (*variable.parents, variable.name)
    index = tuple(fixed_index.get(name, slice(None)) for name in scope)
    return tuple(name for name in scope if name not in fixed_index), np.asarray(variable.chances)[index]


def _multiply(left: Factor, right: Factor) -> Factor:
    scope = tuple(dict.fromkeys((*left[0], *right[0])))
    parts: list[Any] = []
    for names, table in (left, right):
        parts += [table, [scope.index(name) for name in names]]
    return scope, np.asarray(np.einsum(*parts, list(range(len(scope)))))


def _check_size(entries: int, largest: int) -> None:
    if entries > largest:
        raise ValueError(
            f"exact inference is limited to tables of {largest} entries, but this model needs {entries}: use fewer "
            "variables, fewer values or a smaller target"
        )
