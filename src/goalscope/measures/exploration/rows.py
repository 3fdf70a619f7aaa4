"""Scored episodes as rows, and the two errors of many episodes: mean over episodes and pooled ratio, with intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.measures.exploration.records import Summary
from goalscope.rows import Row, Rows, Tag
from goalscope.stats.estimate import Estimate, estimate_mean, estimate_pooled

KINDS = ("exploration", "exploitation")

_SHARES = (0.0, 1.0)
_COUNTED = (
    *(f"{kind} {what}{of}" for kind in KINDS for what in ("errors", "steps") for of in ("", " of valid moves")),
    "steps",
    "steps of successful episodes",
    "invalid actions",
    "detours with the goal pending",
)
TASK_BOUNDS: Mapping[str, tuple[float, float]] = dict.fromkeys(_COUNTED, (0.0, math.inf))
"""Least and greatest value of the measures of task worlds that count steps; the others are shares."""

TASK_DEFINITIONS: Mapping[str, str] = {
    "success": "share of episodes that achieve the goal within the budget",
    "exploration error": "errors in cases 1 and 4 over the steps in cases 1 and 4 of an episode",
    "exploitation error": "errors in cases 2, 3 and 4 over the steps in cases 2, 3 and 4 of an episode",
    "exploration error of valid moves": "the exploration error over the actions that were moves",
    "exploitation error of valid moves": "the exploitation error over the actions that were moves",
    "exploration errors": "number of errors that count as exploration",
    "exploitation errors": "number of errors that count as exploitation",
    "exploration steps": "steps in cases 1 and 4",
    "exploitation steps": "steps in cases 2, 3 and 4",
    "exploration errors of valid moves": "number of errors that count as exploration among the moves",
    "exploitation errors of valid moves": "number of errors that count as exploitation among the moves",
    "exploration steps of valid moves": "moves in cases 1 and 4",
    "exploitation steps of valid moves": "moves in cases 2, 3 and 4",
    "steps": "actions of an episode",
    "steps of successful episodes": "actions of an episode that achieved the goal; undefined for one that did not",
    "invalid actions": "actions that did nothing: no way there, or no direction named",
    "detours with the goal pending": "steps into a new cell while the goal was pending; free of error by definition",
    "progress rate": "share of the steps that entered an unobserved cell or achieved a pending node",
    "coverage": "share of the map's cells that were observed",
    "achieved nodes": "share of the nodes that were achieved",
    "exploration share by progress": "share of the steps that entered an unobserved cell, by tenth of the episode",
}
"""Definitions of the measures of task worlds, as the report shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEstimate:
    """One of the two errors over many episodes.

    Attributes:
        kind: "exploration" or "exploitation".
        mean: mean over the episodes in which the kind was called for, within each map first; the others are counted in
            ``mean.undefined``.
        pooled: all errors over all steps that called for the kind.
        valid: the pooled ratio over the actions that were moves only.
        errors, steps: the counts of ``pooled``.
    """

    kind: str
    mean: Estimate
    pooled: Estimate
    valid: Estimate
    errors: int
    steps: int


def episode_score_rows(
    summary: Summary, *, grid_id: str, episode_id: str = "", tags: Mapping[str, Tag] | None = None
) -> Rows:
    """Return the rows of one scored episode.

    Args:
        summary: its summary.
        grid_id: id of its map, the unit of every interval (`TaskMap.id`).
        episode_id: content id of the episode.
        tags: agent, preset, prompt, ...; the graph of distances is added as "distances".
    """
    return Rows.from_rows(
        Row(
            measure=name,
            unit=unit,
            value=math.nan if value is None else float(value),
            grid_id=grid_id,
            episode_id=episode_id,
            tags={**(tags or {}), "distances": summary.distances},
        )
        for name, unit, value in episode_values(summary)
    )


def episode_values(summary: Summary) -> list[tuple[str, str, float | int | None]]:
    """Return (measure, unit, value) of all that is measured of one scored episode, None where undefined."""
    values: list[tuple[str, str, float | int | None]] = []
    for kind in KINDS:
        for prefix, suffix in (("", ""), ("valid_", " of valid moves")):
            values.append((f"{kind} error{suffix}", "share", getattr(summary, f"{prefix}{kind}_error")))
            values.append((f"{kind} errors{suffix}", "steps", getattr(summary, f"{prefix}{kind}_errors")))
            values.append((f"{kind} steps{suffix}", "steps", getattr(summary, f"{prefix}{kind}_steps")))
    values += [
        ("success", "share", int(summary.success)),
        ("steps", "steps", summary.steps),
        ("steps of successful episodes", "steps", summary.steps if summary.success else None),
        ("invalid actions", "steps", summary.invalid_actions),
        ("detours with the goal pending", "steps", summary.detours),
        ("progress rate", "share", summary.progress_rate),
        ("coverage", "share", summary.coverage),
        ("achieved nodes", "share", summary.achieved_nodes / summary.nodes if summary.nodes else None),
    ]
    return values


def estimate_errors(
    summaries: Sequence[Summary], grids: Sequence[Any], *, confidence: float = 0.95
) -> tuple[ErrorEstimate, ErrorEstimate]:
    """Estimate both errors over many episodes.

    Args:
        summaries: ``[N]`` summaries of one agent's episodes.
        grids: ``[N]`` the map of each, the unit of the intervals.
        confidence: nominal coverage.

    Returns:
        Exploration and exploitation error.

    Raises:
        ValueError: sequences of different lengths, or summaries with different graphs of distances.
    """
    graphs = {summary.distances for summary in summaries}
    if len(graphs) > 1:
        raise ValueError(f"errors that are pooled must share one graph of distances, got {', '.join(sorted(graphs))}")
    found = []
    for kind in KINDS:
        ratios = [getattr(summary, f"{kind}_error") for summary in summaries]
        names = (kind, f"valid_{kind}")
        counts = {name: [getattr(summary, f"{name}_errors") for summary in summaries] for name in names}
        steps = {name: [getattr(summary, f"{name}_steps") for summary in summaries] for name in names}
        pooled, valid = (
            estimate_pooled(counts[name], steps[name], grids, unit="share", bounds=_SHARES, confidence=confidence)
            for name in names
        )
        found.append(
            ErrorEstimate(
                kind=kind,
                mean=estimate_mean(
                    [math.nan if value is None else value for value in ratios],
                    grids,
                    unit="share",
                    bounds=_SHARES,
                    confidence=confidence,
                ),
                pooled=pooled,
                valid=valid,
                errors=sum(counts[kind]),
                steps=sum(steps[kind]),
            )
        )
    return found[0], found[1]
