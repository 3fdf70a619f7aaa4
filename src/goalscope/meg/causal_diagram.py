"""Influence diagrams (decisions, chance and utility variables), and recall added to a model's decisions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from goalscope.meg.causal import CausalModel, Value, Variable, in_causal_order, names_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InfluenceDiagram:
    """A causal model in which some variables are decisions and some, with numbers for values, add up to the utility.

    Attributes:
        variables: all variables; those without ``chances`` are the decisions.
        utilities: names of the utility variables; the utility is the sum of their values.

    Raises:
        ValueError: no decision, utility variables that are unknown, are decisions or have values that are no numbers.

    Source: MacDermott et al. 2024, Definition 2.2.
    """

    variables: tuple[Variable, ...]
    utilities: tuple[str, ...]

    def __post_init__(self) -> None:
        ordered = in_causal_order(self.variables)
        names = names_of(self.utilities)
        by_name = {variable.name: variable for variable in ordered}
        for name in names:
            found = by_name.get(name)
            if found is None or found.chances is None or not numeric(found):
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
            policy: chances ``[K_1, ..., K_m, K]`` of each decision given its parents; a decision left out is uniform.

        Raises:
            ValueError: the policy names something that is no decision, or is no distribution of the right shape.
        """
        given = dict(policy or {})
        unknown = sorted(set(given) - set(self.decisions))
        if unknown:
            raise ValueError(f"a policy must name decisions ({', '.join(self.decisions)}), got {', '.join(unknown)}")
        sizes = {variable.name: len(variable.values) for variable in self.variables}
        filled = []
        for variable in self.variables:
            chances = variable.chances
            if chances is None:
                shape = (*(sizes[name] for name in variable.parents), len(variable.values))
                uniform = np.full(shape, 1 / len(variable.values))
                chances = np.asarray(given[variable.name]) if variable.name in given else uniform
            filled.append(
                Variable(name=variable.name, values=variable.values, parents=variable.parents, chances=chances)
            )
        return CausalModel(variables=tuple(filled))


def with_recall(model: CausalModel, decisions: str | Iterable[str]) -> CausalModel:
    """Return the model in which each decision also sees all earlier decisions and what they saw.

    The behaviour stays as it was: the added parents change no chance. What changes is the set of policies that it is
    compared with, since those may use the memory.

    Args:
        model: the model.
        decisions: names, in any order.

    Raises:
        ValueError: a name that is no variable of the model.
    """
    chosen = {model[name].name for name in names_of(decisions)}
    seen: list[str] = []
    changed = []
    for name in (name for name in model.names if name in chosen):
        variable = model[name]
        added = tuple(other for other in seen if other not in variable.parents)
        sizes = tuple(len(model[other].values) for other in added)
        old = np.asarray(variable.chances)
        chances = np.broadcast_to(
            old[(..., *(None,) * len(sizes), slice(None))], (*old.shape[:-1], *sizes, old.shape[-1])
        )
        parents = (*variable.parents, *added)
        changed.append(Variable(name=name, values=variable.values, parents=parents, chances=chances))
        seen = list(dict.fromkeys((*seen, *parents, name)))
    return model.replace(*changed)


def numeric(variable: Variable) -> bool:
    """Return whether all values of a variable are finite numbers."""
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
        for value in variable.values
    )


def outcomes(model: CausalModel, names: Sequence[str]) -> list[tuple[Value, ...]]:
    """Return all joint values of some variables, in the order of a flattened table."""
    return list(product(*(model[name].values for name in names)))
