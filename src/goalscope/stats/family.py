"""Holm's correction for a family of tests declared in advance."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Tests that are corrected together, declared before they are run.

    Attributes:
        name: subject of the family, shown in tables.
        members: the name of every test, including tests that may turn out undefined.

    Raises:
        ValueError: no name, no member, or a member twice.
    """

    name: str
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name or not self.members or len(set(self.members)) != len(self.members):
            raise ValueError(
                f"a family needs a name and members that all differ, got name {self.name!r} and members "
                f"{list(self.members)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """One test of a family after Holm's correction.

    Attributes:
        name: the member.
        p_value: the uncorrected p value; NaN where the test is undefined.
        adjusted: the smallest family-wise level at which the test is rejected; 1 where it is undefined.
        rejected: whether ``adjusted <= level``.
        note: a warning if the test is undefined or has too few clusters to reach the family's level, else "".
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
        p_values: member -> p value in [0, 1]. Give NaN for an undefined test, which counts as a member of the family
            but never rejects.
        family: the declared family; ``p_values`` must have exactly these members.
        level: family-wise level, in (0, 1).
        least: member -> the smallest p value that its number of clusters can give. If even that would not reject,
            given the other p values, the note says so.

    Returns:
        One record per member, in the order of the declaration.

    Raises:
        TypeError: the family is not a `Family`.
        ValueError: members missing or not declared, p values outside of [0, 1], or a level outside of (0, 1).

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    if not isinstance(family, Family):
        raise TypeError(
            f"holm needs a declared Family, got {family!r}: list all tests that are judged together, e.g. "
            "Family(name='transforms', members=('rotate', 'reflect'))"
        )
    missing = [name for name in family.members if name not in p_values]
    foreign = [name for name in p_values if name not in family.members]
    if missing or foreign:
        raise ValueError(
            f"p_values must have exactly the members of family {family.name!r}: {missing} are missing and "
            f"{foreign} are not declared. Give NaN for an undefined test, and declare every test in "
            "advance"
        )
    bad = {name: p for name, p in p_values.items() if not (math.isnan(p) or 0 <= p <= 1)}
    if bad or not 0 < level < 1:
        raise ValueError(f"p values must lie in [0, 1] and level in (0, 1), got p values {bad} and level {level!r}")
    tested = {name: 1.0 if math.isnan(p_values[name]) else p_values[name] for name in family.members}
    adjusted = _adjusted(tested)
    ordered = sorted(tested.values())
    reached = [0.0, *accumulate((min(1.0, (len(tested) - rank) * p) for rank, p in enumerate(ordered)), max)]

    def note(name: str) -> str:
        if math.isnan(p_values[name]):
            return "undefined test: counted in the family, never rejected"
        # The members with smaller p values keep their ranks when this p value falls to its minimum.
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
    """Adjust p values by Holm's method."""
    adjusted: dict[str, float] = {}
    reached = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda member: p_values[member])):
        reached = max(reached, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = reached
    return adjusted


def corrected(
    p_values: Mapping[str, float], name: str, *, level: float = 0.05, least: Mapping[str, float] | None = None
) -> dict[str, Corrected]:
    """Apply `holm` to a family whose members are the keys of ``p_values``, and map each name to its test.

    Args:
        p_values: member -> p value, NaN for an undefined test. An empty mapping gives an empty result.
        name: subject of the family.
        level: family-wise level, in (0, 1).
        least: see `holm`.

    Raises:
        ValueError: see `holm`.
    """
    family = Family(name=name, members=tuple(p_values)) if p_values else None
    return {test.name: test for test in holm(p_values, family, level=level, least=least)} if family else {}
