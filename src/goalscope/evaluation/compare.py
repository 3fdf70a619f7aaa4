"""Two models beside each other: the quantities that can be paired by world, their differences, Holm over all."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from goalscope.evaluation.claims import Difference
from goalscope.evaluation.evidence import ArmData, ArmRun
from goalscope.rows import Tag
from goalscope.stats import Family, PairedComparison, holm, paired_difference

COMPARED: Final[tuple[tuple[str, str, Mapping[str, Tag]], ...]] = (
    ("grids", "success", {}),
    ("grids", "action accuracy", {}),
    ("grids", "invalid turns", {}),
    ("keys", "errors towards the key", {"control": False}),
    ("keys", "success", {"kind": "key-door"}),
    ("transforms", "action accuracy", {}),
    ("fog", "success", {}),
    ("fog", "redundant backtracking", {}),
    ("tasks", "success", {}),
    ("tasks", "exploration error", {}),
    ("tasks", "exploitation error", {}),
    ("worlds", "success", {}),
    ("worlds", "action accuracy", {}),
)
"""The declared family: arm, measure, and the worlds in which it is compared."""


def differences(names: Sequence[str], runs: Mapping[tuple[str, str], ArmRun], level: float) -> tuple[Difference, ...]:
    """Return the differences of all pairs of models over the worlds that both met.

    Args:
        names: the models.
        runs: (arm, name of a model) -> the measured run that tells of it.
        level: family-wise level of all differences together.
    """
    found: dict[str, tuple[str, str, str, PairedComparison]] = {}
    for arm, measure, tags in COMPARED:
        for pair in combinations(names, 2):
            if any((arm, name) not in runs for name in pair):
                continue
            first, second = pair
            one, other = (ArmData.of(runs[arm, name], name).among(measure, **tags) for name in pair)
            if len(one) and len(other):
                compared = paired_difference(
                    *(one.value, one.grid_id, other.value, other.grid_id),
                    unit="share",
                    bounds=(0.0, 1.0),
                    confidence=1 - level,
                )
                found[f"{first} less {second}: {measure}, {arm}"] = (first, second, f"{measure} ({arm})", compared)
    kept = {name: one for name, one in found.items() if one[3].difference.has_interval}
    if not kept:
        return ()
    family = Family(name="differences of models", members=tuple(kept))
    tests = holm({name: one[3].test.p_value for name, one in kept.items()}, family, level=level)
    listed = []
    for test in tests:
        first, second, rule, compared = kept[test.name]
        less = compared.difference
        word = "no difference was shown" if not test.rejected else "higher" if less.value > 0 else "lower"
        says = f"{rule}: {word}" + (f" for {first} than for {second}" if test.rejected else "")
        listed.append(
            Difference(
                first=first,
                second=second,
                rule=rule,
                says=says,
                value=less.value,
                low=less.low,
                high=less.high,
                p=test.adjusted,
                clusters=less.clusters,
                unit=less.unit,
            )
        )
    return tuple(listed)
