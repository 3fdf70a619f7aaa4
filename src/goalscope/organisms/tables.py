"""Summarise the outcomes of claims with intervals over organisms; each organism counts once per cell."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goalscope._ground.sealed import Ends
from goalscope.organisms.judging import Judgement, Outcome
from goalscope.stats.intervals import exact_binomial, mean_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCell:
    """Summary of one method's claims about a group of organisms.

    Attributes:
        counts: outcome -> number of organisms.
        false: share of false and unfounded claims, with its exact 95 % interval.
        log_score: mean log score in nats per action, with its interval.
        random, ceiling: mean log score of random predictions, and mean ceiling (None if there is none).
        calibration: mean absolute difference between predicted probabilities and action frequencies.
        turns: mean number of further answers that the method requested.
        seconds: mean processor time of the method.
    """

    counts: Mapping[Outcome, int]
    false: Ends
    log_score: Ends
    random: float
    ceiling: float | None
    calibration: float
    turns: float
    seconds: float


def together(rows: Sequence[Judgement], key: Callable[[Judgement], str]) -> dict[str, list[Judgement]]:
    """Group rows by a property, in order of first occurrence."""
    groups: dict[str, list[Judgement]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def spread_of(rows: Sequence[Judgement]) -> OutcomeCell:
    """Summarise claims with intervals over organisms.

    Raises:
        ValueError: an organism occurs twice, so that it would count as two.
    """
    if len({row.organism for row in rows}) < len(rows):
        raise ValueError(
            f"intervals over organisms need one claim per organism, got {len(rows)} claims about "
            f"{len({row.organism for row in rows})} organisms"
        )
    counts, false = Counter(row.outcome for row in rows), sum(row.is_false for row in rows)
    scores, random = np.array([row.log_score for row in rows]), np.array([row.random for row in rows])
    interval = mean_interval(scores, bounds=(-np.inf, 0.0), confidence=0.95)
    ceilings = [row.ceiling for row in rows if row.ceiling is not None]
    return OutcomeCell(
        counts=counts,
        false=(false / len(rows), *exact_binomial(false, len(rows))),
        log_score=(float(scores.mean()), float(interval.low), float(interval.high)),
        random=float(random.mean()),
        ceiling=float(np.mean(ceilings)) if ceilings else None,
        calibration=float(np.mean([row.calibration for row in rows])),
        turns=float(np.mean([row.turns for row in rows])),
        seconds=float(np.mean([row.seconds for row in rows])),
    )
