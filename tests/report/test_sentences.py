"""What a sentence says follows from the interval."""

import math

import pytest

from goalscope.report import DEFAULT_NETWORK
from goalscope.report.definitions import ALLOWS, READ_RULE, in_words
from goalscope.stats import Estimate


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


def test_the_rule_for_activations_names_its_control_and_what_a_difference_to_it_does_not_show() -> None:
    assert DEFAULT_NETWORK in ALLOWS and "does not show that training" in ALLOWS
    assert READ_RULE.endswith(ALLOWS)
