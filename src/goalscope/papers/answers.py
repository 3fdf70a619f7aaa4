"""Answers to whether a sentence holds, derived from the intervals of its parts, and the words for them.

Yes: all intervals lie on the claimed side. No: an interval lies on the other side. Undecided: neither, so that more
worlds can decide. Untestable: the run has no value of it. Uninformative: it would be yes, but an agent without what the
sentence claims has it too. Few: the run has fewer grids than the sentence declares to need.
"""

from collections.abc import Sequence
from typing import Final, Literal

from goalscope._ground.texts import Catalogue
from goalscope.goals.finding import Answer
from goalscope.stats import Estimate

Verdict = Literal[Answer, "uninformative", "few"]
"""Answer to a sentence of a paper."""
Parts = Sequence[tuple[str, Estimate]]
Found = tuple[Verdict, Parts, str]
"""Answer, name and estimate of each part, and a reason or caveat."""

TEXTS: Final = Catalogue.of_package("goalscope.papers")

_OPPOSITE: Final[dict[Answer, Answer]] = {"yes": "no", "no": "yes"}


def word_of(answer: Verdict) -> str:
    """Return the word that is printed for an answer, for example "holds"."""
    return TEXTS(f"answers/{answer}")


def on_side(parts: Sequence[Estimate], sign: int, bound: float = 0.0) -> Answer:
    """Answer whether all parts lie above (1) or below (-1) a bound.

    A single interval that lies entirely on the other side refutes the sentence.
    """
    sides = [sorted((sign * (estimate.low - bound), sign * (estimate.high - bound))) for estimate in parts]
    if any(high < 0 for _, high in sides):
        return "no"
    return "yes" if sides and all(low > 0 for low, _ in sides) else "undecided"


def inside(parts: Sequence[Estimate], margin: float) -> Answer:
    """Answer whether all parts lie inside a margin. A single interval entirely outside refutes the sentence."""
    if any(part.low > margin or part.high < -margin for part in parts):
        return "no"
    return "yes" if parts and all(-margin < part.low and part.high < margin for part in parts) else "undecided"


def beyond(parts: Sequence[Estimate], margin: float) -> Answer:
    """Answer whether some part lies beyond a margin. The sentence is refuted if all parts lie inside it."""
    answer = inside(parts, margin)
    return _OPPOSITE.get(answer, answer)


def joined(answers: Sequence[Answer]) -> Answer:
    """Combine answers into that for a sentence whose parts must all hold."""
    if "no" in answers:
        return "no"
    return "yes" if answers and all(answer == "yes" for answer in answers) else "undecided"
