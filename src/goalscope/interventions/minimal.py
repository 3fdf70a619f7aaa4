"""Search for a small set of parts that suffices: parts are added greedily, then all that can be spared are removed.

The result is irreducible for the values that the search saw: without any one of its parts it does not suffice. Another
set may be smaller, and on other data it may do less: its effect is to be measured on data that it was not found on.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

Part = TypeVar("Part", bound=Hashable)


def minimal_set(
    parts: Sequence[Part],
    values_of: Callable[[Sequence[frozenset[Part]]], Sequence[float]],
    enough: float,
    *,
    rng: np.random.Generator,
) -> frozenset[Part]:
    """Return an irreducible set of parts whose value is at least ``enough``.

    Added is the part with the greatest value beside those that are there. Where none gains, parts are added in random
    order up to the first that does. Then the part that can best be spared is removed, until none can.

    Args:
        parts: all parts, all different.
        values_of: the value of each of some sets, evaluated together.
        enough: the value to be reached; all parts together reach it.
        rng: order among equals.

    Raises:
        ValueError: all parts together have less than ``enough``.
    """
    (value,) = values_of([frozenset(parts)])
    if value < enough:
        raise ValueError(f"all {len(parts)} parts together must have a value of {enough:.3g}, got {value:.3g}")
    found: frozenset[Part] = frozenset()
    (value,) = values_of([found])
    while value < enough:
        rest = [parts[at] for at in rng.permutation(len(parts)) if parts[at] not in found]
        sets = [found | {part} for part in rest]
        values = values_of(sets)
        if max(values) <= value:  # no part gains alone: up to the first that gains with those before it
            sets = [found.union(rest[:count]) for count in range(2, len(rest) + 1)] or sets
            values = values_of(sets)
            best = next((at for at, new in enumerate(values) if new > value), len(sets) - 1)
        else:
            best = int(np.argmax(values))
        found, value = sets[best], values[best]
    while found:
        listed = [part for part in parts if part in found]
        sets = [found - {listed[at]} for at in rng.permutation(len(listed))]
        values = values_of(sets)
        best = int(np.argmax(values))
        if values[best] < enough:
            break
        found = sets[best]
    return found
