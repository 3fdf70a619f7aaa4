"""Claims of an evaluation, each with the episodes that influence it most."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope.report.reading import Run
from goalscope.verdict.arms import arms as all_arms
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.opening import runs_by_arm
from goalscope.verdict.rules import Rule

MOST: Final = 4
"""Maximum number of episodes listed on each side of a claim."""


def claims_of(evaluation: Evaluation, places: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the claims as plain values, each with the run of its arm and the episodes that influence the estimate
    most.

    If a rule names a measure, the ids of the episodes with its highest and lowest values are given, otherwise only the
    run.

    Args:
        evaluation: a judged evaluation.
        places: path of a run -> number of this run in the viewer.
    """
    arms = runs_by_arm(evaluation.directory)
    # An arm that looks inside has the run of another one.
    arms |= {arm.name: arms[arm.looks.at] for arm in all_arms() if arm.looks is not None and arm.looks.at in arms}
    rules: dict[str, Rule] = {name: registry.resolve("claim", name) for name in registry.names("claim")}
    claims = []
    for number, ledger in enumerate(evaluation.models):
        for claim in ledger.claims:
            run = _run_of(arms.get(claim.arm, ()), number, ledger.model)
            measure = rules[claim.name].measure if claim.name in rules else ""
            high, low = ([], []) if run is None or not measure else _extremes(run, measure, ledger.model)
            claims.append(
                {
                    "model": ledger.model,
                    **{name: getattr(claim, name) for name in _FIELDS},
                    "estimate": claim.attributed_estimate,
                    "run": None if run is None else places.get(str(run.path)),
                    "measure": measure,
                    "high": high,
                    "low": low,
                }
            )
    return claims


_FIELDS: Final = ("name", "question", "answer", "says", "quantity", "threshold", "unit", "clusters", "n")


def _run_of(runs: Sequence[Run], number: int, model: str) -> Run | None:
    """Return the run of a model in an arm: the run that contains the model, otherwise the run at its position."""
    named = [run for run in runs if model in run.agents]
    return named[0] if named else runs[number] if number < len(runs) else None


def _extremes(run: Run, measure: str, model: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return [id, value] of a model's episodes with the highest and the lowest values; ties are ordered by id."""
    rows = run.rows()
    rows = rows.where((rows.measure == measure) & (rows.episode_id != "") & np.isfinite(rows.value))
    if "agent" in rows.tags and (rows.tags["agent"] == model).any():
        rows = rows.where(rows.tags["agent"] == model)
    values = dict(zip(rows.episode_id.tolist(), rows.value.tolist(), strict=True))
    if len(set(values.values())) < 2:  # none decides more than another one
        return [[identity, round(value, 4)] for identity, value in sorted(values.items())[:MOST]], []
    order = sorted(values, key=lambda identity: (values[identity], identity))
    half = min(MOST, len(order) // 2)
    low, high = order[:half], order[::-1][:half]
    return ([[identity, round(values[identity], 4)] for identity in part] for part in (high, low))  # type: ignore[return-value]
