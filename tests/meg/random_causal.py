"""Random small causal models, and slow literal answers to compare with."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from goalscope.goals.meg.causal import Value
from goalscope.meg import CausalModel, Variable

Array = npt.NDArray[np.float64]


def random_chances(rng: np.random.Generator, shape: tuple[int, ...], kind: str = "any") -> Array:
    """Return random distributions over the last axis: "full" support, "fixed" to one value, or "any"."""
    chances = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    fixed = np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:-1])]
    if kind == "full":
        return chances
    if kind == "fixed":
        return fixed
    return np.where(rng.random(shape[:-1])[..., None] < 0.3, fixed, chances)


def random_model(rng: np.random.Generator, *, count: int = 5, most: int = 3, kind: str = "any") -> CausalModel:
    """Return a random model with variables V0, V1, ... given in a random order."""
    variables: list[Variable] = []
    for place in range(count):
        parents = [other for other in variables if rng.random() < 0.5][-3:]
        size = int(rng.integers(2, most + 1))
        shape = (*(len(parent.values) for parent in parents), size)
        variables.append(
            Variable(
                name=f"V{place}",
                values=tuple(range(size)),
                parents=tuple(parent.name for parent in parents),
                chances=random_chances(rng, shape, kind),
            )
        )
    return CausalModel(variables=tuple(variables[place] for place in rng.permutation(count)))


def joint(model: CausalModel) -> dict[tuple[Value, ...], float]:
    """Return the chance of every joint value of all variables, multiplied out one by one."""
    table = {}
    for values in product(*(variable.values for variable in model.variables)):
        world = dict(zip(model.names, values, strict=True))
        chance = 1.0
        for variable in model.variables:
            index = tuple(model[name].index(world[name]) for name in (*variable.parents, variable.name))
            chance *= float(np.asarray(variable.chances)[index])
        table[values] = chance
    return table


def marginal(model: CausalModel, names: Sequence[str], given: Mapping[str, Value] | None = None) -> Array:
    """Return a table of the joint distribution by adding up its entries."""
    table = np.zeros([len(model[name].values) for name in names])
    for values, chance in joint(model).items():
        world = dict(zip(model.names, values, strict=True))
        if all(world[name] == value for name, value in (given or {}).items()):
            table[tuple(model[name].index(world[name]) for name in names)] += chance
    return np.asarray(table / table.sum())


def score(model: CausalModel, prediction: Mapping[str, Array]) -> float:
    """Return the definition of the measure: expected log-probability of a prediction less that of the uniform one."""
    total = 0.0
    for values, chance in joint(model).items():
        world = dict(zip(model.names, values, strict=True))
        for name, chances in prediction.items():
            index = tuple(model[other].index(world[other]) for other in (*model[name].parents, name))
            if chance > 0:
                total += chance * float(np.log(chances[index] * chances.shape[-1]))
    return total
