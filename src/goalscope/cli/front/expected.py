"""Ask for a few first moves before a run, and report the expected time and cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goalscope._ground.progress import TALLY, duration
from goalscope.runs import Store, Study
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.verdict.preflight.first_turns import (
    Limits,
    announced,
    ask_first_turns,
    found,
    most_turns,
    stored_first_turns,
)
from goalscope.verdict.preflight.forecast import amounts, forecast, span, whole

_RANGES = ("turns", "seconds", "prompt_tokens", "output_tokens", "usd")
"""Quantities predicted for an agent, each as a range."""


def measure_and_say(
    study: Study,
    out: Path,
    *,
    workers: int = 1,
    patient: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Ask each agent whose answers cost something for a few first moves, and report the expected time and cost.

    Nothing is asked if one first move would be more than a tenth of the study, or if the study is stored already.

    Args:
        study: the study.
        out: the run directory that keeps the answers.
        workers: maximum number of simultaneous calls.
        patient: whether to wait for a server as long as its settings allow.
        arguments: the user's arguments, for the record.

    Returns:
        One record per agent asked: the number of first moves, and the least, expected and greatest time and cost (None
            if
        it gave no answer; USD is None without prices).
    """
    records, most, limits = list[dict[str, Any]](), most_turns(study), Limits()
    if not most or _complete(study, out):
        return records
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        if not agent.journalled:
            continue
        if stored_first_turns(out, agent) is None:
            TALLY.tell(announced(agent.name, most, limits, patient))
        first = ask_first_turns(
            study,
            agent,
            entry.parameters,
            out,
            limits,
            workers=workers,
            most=most,
            patient=patient,
            arguments={"command": "run", "passed": dict(arguments or {})},
        )
        for line in found(agent.name, first, limits):
            TALLY.tell(line)
        if first.silent:
            TALLY.tell(f"{agent.name}: time and cost are unknown, because it gave no answer: {first.silent}")
            records.append({"agent": agent.name, "asked": 0, **dict.fromkeys(_RANGES)})
            continue
        took = forecast(study, agent, entry.parameters, first, workers=workers)
        expectations = [f"{span(took.seconds, duration)}", f"turns {span(took.turns, whole)}", *amounts(took)]
        TALLY.tell(f"{agent.name}: expected {'; '.join(expectations)}")
        ranges = {name: getattr(took, name).tolist() for name in _RANGES if name != "usd" or took.priced}
        records.append({"agent": agent.name, "asked": first.asked, **dict.fromkeys(_RANGES), **ranges})
    return records


def _complete(study: Study, out: Path) -> bool:
    """Return whether a run directory contains all episodes of a study."""
    if unmade(out / DATABASE):
        return False
    with Store(out) as store:
        return count_episodes(store) >= study.size().episodes
