"""Families of tests that differ in one value: a few values are tried in the gate, the others by the long tests."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

USUAL = 100
"""Examples of a law that Hypothesis tries where nothing else is said, as the long tests do."""


def long_after(count: int, values: Iterable[Any], *, names: int = 1) -> list[Any]:
    """Return the values of `pytest.mark.parametrize`, all but the first ones marked as long tests.

    Args:
        count: number of values that the gate tries.
        values: the values, each a tuple where there are several names.
        names: number of names that a value is for.
    """
    marked = list(values)
    for index in range(count, len(marked)):
        value = marked[index]
        if isinstance(value, type(pytest.param())):
            marked[index] = pytest.param(*value.values, marks=(*value.marks, pytest.mark.full), id=value.id)
        else:
            marked[index] = pytest.param(*(value if names > 1 else (value,)), marks=pytest.mark.full)
    return marked


def examples(count: int) -> int:
    """Return the number of examples of a law: ``count`` in the long tests, in the gate as few as those of any law."""
    default: int = settings().max_examples
    return min(count, default) if default < USUAL else count
