"""Verdicts on a sentence, derived from the intervals of its parts."""

from collections.abc import Sequence
from typing import Final, Literal

from goalscope.stats import Estimate

Verdict = Literal["holds", "does not hold", "not shown", "not measured"]
Parts = Sequence[tuple[str, Estimate]]
Found = tuple[Verdict, Parts, str]
"""Verdict, name and estimate of each part, and a reason or caveat."""

_OPPOSITE: Final[dict[Verdict, Verdict]] = {"holds": "does not hold", "does not hold": "holds"}


def on_side(parts: Sequence[Estimate], sign: int, bound: float = 0.0) -> Verdict:
    """Judge whether all parts lie above (1) or below (-1) a bound.

    A single interval that lies entirely on the other side refutes the sentence.
    """
    sides = [sorted((sign * (estimate.low - bound), sign * (estimate.high - bound))) for estimate in parts]
    if any(high < 0 for _, high in sides):
        return "does not hold"
    return "holds" if sides and all(low > 0 for low, _ in sides) else "not shown"


def inside(parts: Sequence[Estimate], margin: float) -> Verdict:
    """Judge whether all parts lie inside a margin. A single interval entirely outside refutes the sentence."""
    if any(part.low > margin or part.high < -margin for part in parts):
        return "does not hold"
    return "holds" if parts and all(-margin < part.low and part.high < margin for part in parts) else "not shown"


def beyond(parts: Sequence[Estimate], margin: float) -> Verdict:
    """Judge whether some part lies beyond a margin. The sentence is refuted if all parts lie inside it."""
    verdict = inside(parts, margin)
    return _OPPOSITE.get(verdict, verdict)


def joined(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine verdicts into that of a sentence whose parts must all hold."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "not shown"
