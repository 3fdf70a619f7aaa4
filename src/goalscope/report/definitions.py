"""How a report names and words what was measured: titles and definitions of measures, differences, and verdicts.

A verdict is about the differences between a score and its rivals (floors, random networks, controls):

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

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from goalscope._ground import registry
from goalscope._ground.words import listed, short
from goalscope.measures.definition import OURS, PAPER, StepMeasure
from goalscope.measures.exploration.errors import TASK_DEFINITIONS
from goalscope.report.texts import TEXTS, labels
from goalscope.stats import Estimate
from goalscope.stats.estimate import ONE_SEED
from goalscope.stats.rows import Tag

CITED = TEXTS("definitions/sources")
TASK_CITED = TEXTS("definitions/task sources")
POOLED = "accuracy pooled over steps"
"""Note for a measure that is a ratio of sums, not a mean of rows."""

KEY_STEPWISE = "error approaches the key"
KEY_POOLED = "key attraction bias, pooled"
"""The share of an agent's non-optimal moves that approach the key, as in the paper: a ratio of sums."""

# The excess per visit has expectation 0 for an optimal agent; the mean over states has a small bias.
HEADLINE = ("success", "action accuracy", "JSD from optimal, excess, per visit", "path ratio", "invalid turns")
ARRIVED = "steps of successful episodes"
TASK_MAIN = (
    *("success", "exploration error", "exploitation error", ARRIVED),
    *("coverage", "progress rate", "invalid actions"),
)
PAIRED = TASK_MAIN[:4]
"""The measures of task worlds that tables show, and those of paired comparisons."""
FAILED_TURNS: Final[Mapping[str, tuple[str, ...]]] = {
    "wrong": ("action accuracy",),
    "left out": ("action accuracy of valid turns",),
    "both": ("action accuracy", "action accuracy of valid turns"),
}
"""The accuracies that tables show, for each value of analysis.failed_turns in the study."""
FORMAT_SHARE = 0.1
"""If more than this share of turns has no valid move, a report begins with a warning. By default such a turn counts as
a step in place, which can change any share of turns or steps by as much."""
SIZE_FIGURES = ("success", "action accuracy")
CURVES = (
    "action optimality",
    "JSD from optimal, by distance",
    "JSD from optimal, excess, 5+ visits, by distance",
)
MAPS = ("action accuracy", "success")
UNCERTAINTY = (
    "policy entropy, 5+ visits",
    "policy entropy, excess, 5+ visits",
    "JSD from optimal, 5+ visits",
    "JSD from optimal, excess, 5+ visits",
    "calibration error, excess",
    "visits per state",
    "states under 5 visits",
)
UNCERTAINTY_FIGURES = ("policy entropy, excess, 5+ visits", "JSD from optimal, excess, 5+ visits")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a measure means, in one or more sentences (``text``), and where it comes from, such as a paper
    (``source``).
    """

    text: str
    source: str


_TITLES = labels("labels/measures")
_RATIOS = {
    POOLED: Definition(TEXTS("definitions/pooled"), f"{OURS}, ratio over grids"),
    KEY_POOLED: Definition(TEXTS("definitions/key pooled"), f"{PAPER}, section 4.3"),
}
GOALS: Final = Definition(TEXTS("definitions/goals"), TEXTS("definitions/goals source"))
"""Definition of MEG towards any hypothesis."""


def shown_accuracies(measures: Sequence[str], failed_turns: str) -> tuple[str, ...]:
    """Replace "action accuracy" in a list of measures by the accuracies that tables show.

    ``failed_turns`` is the study's setting for turns without a valid move: "wrong", "left out" or "both".
    """
    accuracies = FAILED_TURNS[failed_turns]
    return tuple(name for measure in measures for name in (accuracies if measure == "action accuracy" else (measure,)))


def explain_failed_turns(failed_turns: str) -> str:
    """Explain in one sentence how turns without a valid move count in the accuracy that is shown.

    ``failed_turns`` is the study's setting: "wrong", "left out" or "both".
    """
    other_settings = ", ".join(name for name in FAILED_TURNS if name != failed_turns)
    treatment = TEXTS(f"definitions/failed turns {failed_turns}")
    return TEXTS("definitions/failed turns", treatment=treatment, setting=failed_turns, others=other_settings)


OWN_SCALES: Final = frozenset({"reward"})
"""Units whose scale depends on the environment, so that values of two environments have no common mean."""

ENVIRONMENT: Final = ("kind", "environment", "level")
"""Tags of worlds that identify an environment."""


def scale_tags(unit: str, values: Mapping[str, Collection[Tag]]) -> tuple[str, ...]:
    """Return the tags across which values of a unit are never averaged, such as the environment for rewards.

    There are none for units with a common scale, such as shares.

    Args:
        unit: the unit of a measure.
        values: tag -> its values in a run. A tag with only one value is left out.
    """
    return tuple(name for name in ENVIRONMENT if len(values.get(name, ())) > 1) if unit in OWN_SCALES else ()


def named_in(measure: str, environment: Sequence[Tag]) -> str:
    """Return the name of a measure in one environment, e.g. "return in Taxi-v4".

    ``environment`` has the values of the tags that identify it; without any, the measure keeps its name.
    """
    place = " ".join(str(value) for value in environment if value is not None)
    return f"{measure} in {place}" if place else measure


def title_of(measure: str) -> str:
    """Return the title of a measure for headings, e.g. "Excess JSD (5+ visits)"."""
    return _TITLES.get(measure, measure[:1].upper() + measure[1:])


def in_sentence(measure: str) -> str:
    """Return the title of a measure for use inside a sentence; abbreviations keep their capitals."""
    title = title_of(measure)
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def definition_of(measure: str, worlds: str = "grids") -> Definition | None:
    """Return the definition and source of a measure; None if none is registered.

    ``worlds`` says whether the measure is one of "grids" or of "tasks" (task worlds).
    """
    if worlds == "tasks" and measure in TASK_DEFINITIONS:
        return Definition(TASK_DEFINITIONS[measure], TASK_CITED)
    if measure in _RATIOS:
        return _RATIOS[measure]
    if measure not in registry.names("measure"):
        return None
    step_measure = registry.resolve("measure", measure)
    return Definition(step_measure.text, step_measure.source or "–") if isinstance(step_measure, StepMeasure) else None


def in_words(
    parts: Sequence[tuple[str, Estimate | None]],
    *,
    higher: str = "higher for",
    lower: str = "lower for",
    none: str = "no difference was shown for",
    unknown: str = "it cannot be said for",
) -> str:
    """Describe in words which differences are above 0, below 0, not distinguished from 0, or without an interval.

    Args:
        parts: the name of each difference and its estimate; None if the run has no rows for it.
        higher, lower, none, unknown: the opening words of these four groups.

    Returns:
        The groups joined by semicolons; "" if all estimates are None.
    """
    groups: dict[str, list[str]] = {higher: [], lower: [], none: [], unknown: []}
    for name, estimate in parts:
        if estimate is None:
            continue
        if not estimate.has_interval:
            opening = unknown
        else:
            opening = higher if estimate.low > 0 else lower if estimate.high < 0 else none
        groups[opening].append(f"{name} ({interval_in_words(estimate)})")
    return "; ".join(f"{opening} {listed(names)}" for opening, names in groups.items() if names)


def interval_in_words(estimate: Estimate) -> str:
    """Format a difference for a sentence: ``+0.200 [0.100, 0.300]``, or the reason why it has no interval."""
    value = short(estimate.value, estimate.unit)
    if estimate.value > 0 and value.strip("0."):
        value = f"+{value}"
    if not estimate.has_interval:
        value_text = "" if math.isnan(estimate.value) else f"{value}, "
        return f"{value_text}{estimate.note or 'no interval'}"
    seeds = f", {ONE_SEED}" if ONE_SEED in estimate.note else ""
    return f"{value} [{_end(estimate.low, estimate.unit)}, {_end(estimate.high, estimate.unit)}]{seeds}"


def _end(value: float, unit: str) -> str:
    """Format an end of an interval; an end that is not 0 is never shown as 0."""
    text = short(value, unit)
    return text if text.strip("−0.") or value == 0 else f"{value:.1g}".replace("-", "−")


NETWORKS: Final[Mapping[str, str]] = labels("labels/networks")
"""Kind of random networks -> its description."""
NEEDED: Final = "permuted"
"""The kind that every verdict on training requires, because only it keeps the scale of all trained tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The openings of a report's sentence for a score above every rival, below every rival, between them, or unknown.

    A rival is a baseline or random network that the score is compared with.
    """

    above: str
    below: str
    none: str
    unknown: str = "it cannot be said"


READABLE: Final = Word(**labels("verdicts/readable"))
MADE: Final = Word(**labels("verdicts/made"))
CARRIES: Final = Word(**labels("verdicts/carries"))
MADE_RULE: Final = TEXTS("inside/made rule", kinds=", ".join(f"{kind}: {name}" for kind, name in NETWORKS.items()))
USED_RULE: Final = TEXTS("inside/used rule")
TURNS: Final = Word(**labels("verdicts/turns"))
NEEDED_BY_ACTION: Final = Word(**labels("verdicts/needed"))
RULES: Final = " ".join((TEXTS("compared/rule"), TEXTS("inside/rule"), MADE_RULE, USED_RULE))
"""How sentences about probes follow from intervals."""

Rivals = Mapping[str, Estimate | None]
"""Floor, or kind of random network -> the difference of a probe to it; None if there is none."""


def strictest(rivals: Rivals, *, higher: bool = True) -> tuple[str, Estimate] | None:
    """Return the rival (baseline or random network) that decides a claim: the one whose interval ends least favourably.

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
    """Classify a probe by the intervals of its differences from *every* rival (baseline or random network).

    Args:
        rivals: the differences, the probe's score minus that of each rival.
        higher: whether a higher score is better.

    Returns:
        "above" if all intervals are better than 0, "below" if all are worse, else "none"; "unknown" without rivals, or
        if one of them has no interval.
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
    """Write, for each part of a probe's scores, whether it is above all rivals (baselines or random networks), with the
    decisive rival.

    Args:
        parts: name of each part, and its differences from each rival.
        word: `READABLE` (readable beyond baselines) or `MADE` (made more readable by training).
        needed: rivals without which the verdict is unknown.
        higher: whether a higher score is better.

    Returns:
        The parts grouped by their verdict; "" without rivals.
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
