"""What a sentence says follows from the interval."""

import math

import pytest

from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.report.definitions import (
    MADE,
    MADE_RULE,
    NEEDED,
    NETWORKS,
    READABLE,
    claim_in_words,
    in_words,
    strictest,
    verdict,
)
from goalscope.stats import Estimate
from goalscope.stats.estimate import ONE_SEED


def estimate(value: float, low: float = math.nan, high: float = math.nan, note: str = "") -> Estimate:
    return Estimate(value=value, low=low, high=high, n=9, clusters=9, method="t", unit="share", note=note)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (estimate(0.2, 0.1, 0.3), "higher for walls (+0.200 [0.100, 0.300])"),
        (estimate(-0.2, -0.3, -0.1), "lower for walls (−0.200 [−0.300, −0.100])"),
        (estimate(0.2, -0.1, 0.3), "no difference was shown for walls (+0.200 [−0.100, 0.300])"),
        # An interval that ends at 0 holds it.
        (estimate(0.2, 0.0, 0.3), "no difference was shown for walls (+0.200 [0.000, 0.300])"),
        (estimate(0.2, 0.0002, 0.3), "higher for walls (+0.200 [0.0002, 0.300])"),
        (estimate(0.0, -0.1, 0.1), "no difference was shown for walls (0.000 [−0.100, 0.100])"),
        (estimate(0.2, note="one grid"), "it cannot be said for walls (+0.200, one grid)"),
        (estimate(math.nan, note="no grid"), "it cannot be said for walls (no grid)"),
        (estimate(math.nan), "it cannot be said for walls (no interval)"),
        (None, ""),
    ],
)
def test_one_difference(given: Estimate | None, said: str) -> None:
    assert in_words([("walls", given)]) == said


def test_several_differences_are_sorted_by_what_was_shown() -> None:
    parts = [
        ("a", estimate(0.1, -0.1, 0.2)),
        ("b", estimate(0.3, 0.2, 0.4)),
        ("c", estimate(0.5, 0.4, 0.6)),
        ("d", None),
    ]
    assert in_words(parts, higher="more in") == (
        "more in b (+0.300 [0.200, 0.400]) and c (+0.500 [0.400, 0.600]); "
        "no difference was shown for a (+0.100 [−0.100, 0.200])"
    )
    assert in_words([]) == ""


def test_what_decides_is_the_rival_with_the_lowest_end_of_the_interval() -> None:
    close, far = estimate(0.1, 0.05, 0.15), estimate(0.2, 0.01, 0.4)
    assert strictest({"close": close, "far": far, "none": None}) == ("far", far)
    assert strictest({"unknown": estimate(0.3, note="one grid"), "far": far}) == (
        "unknown",
        estimate(0.3, note="one grid"),
    )
    assert strictest({}) is None
    # For errors below 0 is better: the upper end decides.
    low, lower = estimate(-0.1, -0.2, -0.05), estimate(-0.3, -0.5, -0.01)
    assert strictest({"low": low, "lower": lower}, higher=False) == ("lower", lower)


@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(
    ("intervals", "wanted"),
    [
        ([(0.1, 0.3), (0.2, 0.4)], "above"),
        ([(0.1, 0.3), (0.0, 0.4)], "none"),  # an interval that ends at 0 holds it
        ([(0.1, 0.3), (-0.2, 0.4)], "none"),  # above one kind alone is not above all
        ([(0.1, 0.3), (-0.4, -0.2)], "none"),  # nor is below one kind below all
        ([(-0.5, -0.1), (-0.4, -0.2)], "below"),
        ([(-0.5, 0.1), (-0.4, -0.2)], "none"),
        ([(0.1, 0.3), (math.nan, math.nan)], "unknown"),
        ([], "unknown"),
    ],
)
def test_above_is_above_every_rival(intervals: list[tuple[float, float]], wanted: str, higher: bool) -> None:
    sign = 1 if higher else -1
    rivals = {}
    for at, (low, high) in enumerate(intervals):
        first, last = sorted((sign * low, sign * high))
        rivals[str(at)] = estimate(0.0 if math.isnan(low) else (first + last) / 2, first, last)
    assert verdict(rivals, higher=higher) == wanted
    # Literally: the interval of the difference to each lies on the better side of 0.
    assert (wanted == "above") == (bool(intervals) and all(low > 0 for low, _ in intervals))
    assert (wanted == "below") == (bool(intervals) and all(high < 0 for _, high in intervals))


def test_claims_name_the_rival_that_decides_and_say_nothing_without_the_needed_ones() -> None:
    up, none, down = estimate(0.2, 0.1, 0.3), estimate(0.1, -0.1, 0.3), estimate(-0.2, -0.3, -0.1)
    said = claim_in_words(
        [
            ("walls", {"permuted": up, "default-init": estimate(0.5, 0.4, 0.6)}),
            ("agent", {"permuted": down, "default-init": estimate(-0.1, -0.15, -0.05)}),
            ("goal", {"permuted": none, "default-init": up}),
            ("open", {"default-init": up, "permuted": None}),
            ("nothing", {}),
        ],
        MADE,
        needed=(NEEDED,),
    )
    assert said == (
        "made more readable by training for walls (permuted: +0.200 [0.100, 0.300]); "
        "less readable than every random network for agent (permuted: −0.200 [−0.300, −0.100]); "
        "not shown to be made more readable by training for goal (permuted: +0.100 [−0.100, 0.300]); "
        "it cannot be said for open (default-init: +0.200 [0.100, 0.300]; nothing to compare with permuted)"
    )
    assert claim_in_words([("walls", {})], READABLE) == ""


def test_one_seed_of_a_random_network_is_said_beside_its_interval() -> None:
    given = estimate(0.2, 0.1, 0.3, note=f"few clusters; {ONE_SEED}")
    assert claim_in_words([("walls", {"permuted": given})], MADE).endswith(
        f"walls (permuted: +0.200 [0.100, 0.300], {ONE_SEED})"
    )


def test_all_kinds_of_random_networks_have_a_name_and_the_needed_one_is_one_of_them() -> None:
    assert set(NETWORKS) == set(RANDOM_WEIGHTS) and NEEDED in NETWORKS
    assert all(kind in MADE_RULE for kind in NETWORKS)
