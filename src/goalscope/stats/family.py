"""Holm's correction inside a family of tests that was declared beforehand."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The tests that are corrected together, declared before they are run.

    Attributes:
        name: subject of the family, for tables.
        members: the name of every test, including tests that may turn out undefined.

    Raises:
        ValueError: no name, no member, or a member twice.
    """

    name: str
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name or not self.members or len(set(self.members)) != len(self.members):
            raise ValueError(
                f"a family must have a name and different members, got {self.name!r} with {list(self.members)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """One test of a family after Holm's correction.

    Attributes:
        name: the member.
        p_value: as given; NaN where the test is undefined.
        adjusted: the smallest family-wise level at which the test is rejected; 1 where it is undefined.
        rejected: whether ``adjusted <= level``.
        note: a text where the test is undefined, or its clusters are too few for the level of the family, else "".
    """

    name: str
    p_value: float
    adjusted: float
    rejected: bool
    note: str = ""


def holm(
    p_values: Mapping[str, float], family: Family, *, level: float = 0.05, least: Mapping[str, float] | None = None
) -> list[Corrected]:
    """Correct the p values of a declared family so that the chance of any false rejection is at most ``level``.

    Args:
        p_values: member -> p value in [0, 1]; NaN for an undefined test, which stays in the family and is never
            rejected.
        family: the declared family; exactly its members must be given.
        level: family-wise level, in (0, 1).
        least: member -> the smallest p value that its clusters can give; where even that would not be rejected beside
            the p values of the others, the note says so.

    Returns:
        One record a member, in the order of the declaration.

    Raises:
        TypeError: the family is not a `Family`.
        ValueError: members missing or not declared, p values outside of [0, 1], or a level outside of (0, 1).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    if not isinstance(family, Family):
        raise TypeError(
            f"a correction needs a declared Family, got {family!r}: name all tests that are judged together, "
            "e.g. Family(name='transforms', members=('rotate', 'reflect'))"
        )
    missing = [name for name in family.members if name not in p_values]
    foreign = [name for name in p_values if name not in family.members]
    if missing or foreign:
        raise ValueError(
            f"the p values must be those of the members of family {family.name!r}, got none for {missing} and "
            f"undeclared ones for {foreign}: give NaN for an undefined test, declare every test beforehand"
        )
    bad = {name: p for name, p in p_values.items() if not (math.isnan(p) or 0 <= p <= 1)}
    if bad or not 0 < level < 1:
        raise ValueError(f"p values must lie in [0, 1] and the level in (0, 1), got {bad} and {level!r}")
    tested = {name: 1.0 if math.isnan(p_values[name]) else p_values[name] for name in family.members}
    adjusted = _adjusted(tested)
    ordered = sorted(tested.values())
    reached = [0.0, *accumulate((min(1.0, (len(tested) - rank) * p) for rank, p in enumerate(ordered)), max)]

    def note(name: str) -> str:
        if math.isnan(p_values[name]):
            return "undefined test: counted in the family, never rejected"
        # Those with a smaller p value keep their ranks where this one falls to the lowest that it can have.
        lowest = min(tested[name], (least or {}).get(name, 0.0))
        rank = bisect_left(ordered, lowest)
        if adjusted[name] <= level or max(reached[rank], (len(tested) - rank) * lowest) <= level:
            return ""
        return f"too few clusters: no p below {lowest:.2g}, which cannot reach the level of this family"

    return [
        Corrected(
            name=name,
            p_value=p_values[name],
            adjusted=adjusted[name],
            rejected=adjusted[name] <= level,
            note=note(name),
        )
        for name in family.members
    ]


def _adjusted(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's adjusted p values."""
    adjusted: dict[str, float] = {}
    reached = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda member: p_values[member])):
        reached = max(reached, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = reached
    return adjusted


def corrected(
    p_values: Mapping[str, float], name: str, *, level: float = 0.05, least: Mapping[str, float] | None = None
) -> dict[str, Corrected]:
    """Return the tests of a family by their names after `holm`; the p values themselves declare it.

    Args:
        p_values: member -> p value, NaN for an undefined test; without members there is no family.
        name: subject of the family.
        level: family-wise level, in (0, 1).
        least: see `holm`.

    Raises:
        ValueError: see `holm`.
    """
    family = Family(name=name, members=tuple(p_values)) if p_values else None
    return {test.name: test for test in holm(p_values, family, level=level, least=least)} if family else {}
