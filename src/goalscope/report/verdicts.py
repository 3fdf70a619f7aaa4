"""Differences in words: what a sentence says follows from the interval by one rule."""

import math
from collections.abc import Sequence

from goalscope.report.blocks import listed
from goalscope.report.figures import short
from goalscope.stats import Estimate

RULE = (
    "What is said follows from the intervals by rule: higher or lower where the 95 % interval leaves 0 out, otherwise "
    "no difference was shown, which is not “there is none”. The intervals are not corrected for their number."
)

DEFAULT_NETWORK = "default-initialised network"
"""The control that a capture with ``untrained`` makes: the same architecture, weights as the library draws them."""

ALLOWS = (
    f"The {DEFAULT_NETWORK} is the same architecture with the weights that the library draws. A difference to it "
    "does not show that training made something readable: other random networks, with weights of the trained model's "
    "scale, can hold much more than this one."
)
"""What a difference to that control allows to say."""

READ_RULE = f"{RULE} {ALLOWS}"
"""For sentences about activations."""


def in_words(
    parts: Sequence[tuple[str, Estimate | None]],
    *,
    higher: str = "higher for",
    lower: str = "lower for",
    none: str = "no difference was shown for",
    unknown: str = "it cannot be said for",
) -> str:
    """Say which of some differences are above 0, below 0, or not told from 0.

    Args:
        parts: of what, and its difference; None where the run has no rows for it.
        higher, lower: openings for differences above and below 0.
        none: opening for those whose interval holds 0.
        unknown: opening for those without an interval.

    Returns:
        Half a sentence for each kind, "" where there is no difference at all.
    """
    groups: dict[str, list[str]] = {higher: [], lower: [], none: [], unknown: []}
    for name, estimate in parts:
        if estimate is None:
            continue
        value = _signed(estimate.value, estimate.unit)
        if not estimate.has_interval:
            said = "" if math.isnan(estimate.value) else f"{value}, "
            groups[unknown].append(f"{name} ({said}{estimate.note or 'no interval'})")
            continue
        kind = higher if estimate.low > 0 else lower if estimate.high < 0 else none
        ends = ", ".join(_end(end, estimate.unit) for end in (estimate.low, estimate.high))
        groups[kind].append(f"{name} ({value} [{ends}])")
    return "; ".join(f"{opening} {listed(names)}" for opening, names in groups.items() if names)


def _end(value: float, unit: str) -> str:
    """Write an end of an interval so that it can be told from 0 where it is not 0."""
    text = short(value, unit)
    return text if text.strip("−0.") or value == 0 else f"{value:.1g}".replace("-", "−")


def _signed(value: float, unit: str) -> str:
    text = short(value, unit)
    return f"+{text}" if value > 0 and text.strip("0.") else text
