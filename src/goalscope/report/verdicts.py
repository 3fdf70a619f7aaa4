"""Verdicts on the differences between a score and its rivals (floors, random networks, controls): rules and wording.

* *readable*: the score is above every floor. A floor reads no activations: the position alone, the number of walls, the
  counts of the prompt's cells, the best constant guess.
* *made more readable by training*: above the random networks of every kind (an intersection-union test: each difference
  has an interval above 0). The sentence names the strictest kind, whose difference has the lowest lower end, since it
  decides.
* *less readable than every random network*: below the networks of every kind, by the same rule with opposite sign. A
  score that lies only below the strictest kind gets no verdict, because that kind was selected by its score.
* *used*: never a verdict about a probe, since this needs an intervention.
* *carries the action*: for a patch, above every control at the same place: noise of the same norm, and the source of
  another pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from goalscope._ground.words import listed
from goalscope.report.definitions import RULE, interval_in_words
from goalscope.report.texts import TEXTS
from goalscope.stats import Estimate

NETWORKS: Final[Mapping[str, str]] = {
    "permuted": "permuted weights",
    "initial": "weights before training",
    "default-init": "the library's initialisation",
}
"""Kind of random networks -> its description."""
NEEDED: Final = "permuted"
"""The kind that every verdict on training requires, because only it keeps the scale of all trained tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The words for a score above every rival, below every rival, between them, or without an interval."""

    above: str
    below: str
    none: str
    unknown: str = "it cannot be said"


READABLE: Final = Word(above="readable", below="below every floor", none="not shown to be readable")
MADE: Final = Word(
    above="made more readable by training",
    below="less readable than every random network",
    none="not shown to be made more readable by training",
)
CARRIES: Final = Word(
    above="carries the action",
    below="follows the source less than its controls do",
    none="not shown to carry the action",
)
READABLE_RULE: Final = TEXTS("inside/rule")
MADE_RULE: Final = TEXTS("inside/made rule", kinds=", ".join(f"{kind}: {name}" for kind, name in NETWORKS.items()))
USED_RULE: Final = TEXTS("inside/used rule")
CARRIES_RULE: Final = TEXTS("interventions/carries rule")
TURNS: Final = Word(
    above="turns the action",
    below="turns the action less often than its controls do",
    none="not shown to turn the action",
)
TURNS_RULE: Final = TEXTS("interventions/turns rule")
NEEDED_BY_ACTION: Final = Word(
    above="leaves the action unchanged more often than random subspaces do",
    below="needed for the action",
    none="not shown to be needed for the action",
)
NEEDED_RULE: Final = TEXTS("interventions/needed rule")
RULES: Final = f"{RULE} {READABLE_RULE} {MADE_RULE} {USED_RULE}"
"""How sentences about probes follow from intervals."""

Rivals = Mapping[str, Estimate | None]
"""Floor, or kind of random network -> the difference of a probe to it; None if there is none."""


def strictest(rivals: Rivals, *, higher: bool = True) -> tuple[str, Estimate] | None:
    """Return the decisive rival, whose interval has the least favourable end, and the difference from it.

    Args:
        rivals: the differences, the probe's score minus that of each rival.
        higher: whether a higher score is better; for errors, the upper end decides.

    Returns:
        The name of the rival and the difference. A rival without an interval takes precedence; None if there are no
        rivals.
    """
    differences = [(name, difference) for name, difference in rivals.items() if difference is not None]
    end = {
        name: (difference.low if higher else -difference.high) if difference.has_interval else None
        for name, difference in differences
    }
    return min(differences, key=lambda item: (end[item[0]] is not None, end[item[0]] or 0.0), default=None)


def verdict(rivals: Rivals, *, higher: bool = True) -> Literal["above", "below", "none", "unknown"]:
    """Classify the intervals of the differences from *every* rival, in the direction of a better score.

    "above" if all intervals are better than 0, "below" if all are worse, else "none"; "unknown" without rivals, or if
    one of them has no interval.
    """
    differences = [difference for difference in rivals.values() if difference is not None]
    if not differences or not all(difference.has_interval for difference in differences):
        return "unknown"
    ends = [
        (difference.low, difference.high) if higher else (-difference.high, -difference.low)
        for difference in differences
    ]
    return "above" if min(low for low, _ in ends) > 0 else "below" if max(high for _, high in ends) < 0 else "none"


def claim_in_words(
    parts: Sequence[tuple[str, Rivals]], word: Word, *, needed: Sequence[str] = (), higher: bool = True
) -> str:
    """Write the verdict on each part with its decisive rival; "" without rivals.

    Args:
        parts: name of each part, and its differences from each rival.
        word: `READABLE` or `MADE`.
        needed: rivals without which the verdict is unknown.
        higher: see `strictest`.
    """
    groups: dict[str, list[str]] = {}
    for name, rivals in parts:
        decisive = strictest(rivals, higher=higher)
        if decisive is None:
            continue
        missing = [rival for rival in needed if rivals.get(rival) is None]
        kind = "unknown" if missing else verdict(rivals, higher=higher)
        lacking = f"; nothing to compare with {listed(missing)}" if missing else ""
        text = f"{name} ({decisive[0]}: {interval_in_words(decisive[1])}{lacking})"
        groups.setdefault(getattr(word, kind), []).append(text)
    order = (word.above, word.below, word.none, word.unknown)
    return "; ".join(f"{opening} for {listed(groups[opening])}" for opening in order if opening in groups)
