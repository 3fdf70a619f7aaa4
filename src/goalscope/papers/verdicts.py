"""Verdicts on a sentence from the intervals of its parts."""

from collections.abc import Sequence
from typing import Final, Literal

from goalscope.stats import Estimate

Verdict = Literal["holds", "does not hold", "not shown", "not measured"]
Parts = Sequence[tuple[str, Estimate]]
Found = tuple[Verdict, Parts, str]
"""Verdict, name and estimate of each part, and a reason or caveat."""

_OPPOSITE: Final[dict[Verdict, Verdict]] = {"holds": "does not hold", "does not hold": "holds"}


def on_side(parts: Sequence[Estimate], sign: int, bound: float = 0.0) -> Verdict:
    """Return whether all parts lie above (1) or below (-1) a bound: one whole interval on the other side decides."""
    sides = [sorted((sign * (estimate.low - bound), sign * (estimate.high - bound))) for estimate in parts]
    if any(high < 0 for _, high in sides):
        return "does not hold"
    return "holds" if sides and all(low > 0 for low, _ in sides) else "not shown"


def inside(parts: Sequence[Estimate], margin: float) -> Verdict:
    """Return whether all parts lie inside of a margin: one whole interval beyond it decides."""
    if any(part.low > margin or part.high < -margin for part in parts):
        return "does not hold"
    return "holds" if parts and all(-margin < part.low and part.high < margin for part in parts) else "not shown"


def beyond(parts: Sequence[Estimate], margin: float) -> Verdict:
    """Return whether some part lies beyond a margin: where all lie inside of it, none does."""
    verdict = inside(parts, margin)
    return _OPPOSITE.get(verdict, verdict)


def joined(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a sentence all of whose parts have to hold."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "not shown"
