"""The printed result of the command `score`."""

import math
from pathlib import Path

from goalscope.cli.console import json_text, say, table
from goalscope.cli.front.scoring import COUNTED, MeasuredLog, score
from goalscope.cli.generator import prints
from goalscope.cli.measuring import warn_of_few
from goalscope.report.blocks import few_of
from goalscope.stats import Estimate

_ERRORS = ("agent", "error", "mean over episodes", "pooled", "pooled, valid moves", "errors / steps")
_EPISODES = ("agent", "episodes", "maps", "success", *COUNTED)


@prints(score)
def show_scored(scored: MeasuredLog, *, path: Path, as_json: bool = False) -> bool:
    """Score the exploration and exploitation errors in a log. No model is needed.

    The exit status is 1 if any line of the log is invalid.

    Args:
        as_json: print the scores as one JSON object instead of a table.

    Examples:
        goalscope score log.jsonl
        goalscope score log.jsonl --report runs/log
        goalscope score log.jsonl --out scores.jsonl --steps
    """
    if as_json:
        say(json_text(scored.to_plain()))
    elif not scored.agents:
        say(
            f"no episode of {path.name} could be scored: docs/exploration.md describes the format of a line; for logs "
            "of grid worlds use goalscope import",
            error=True,
        )
    else:
        _show(path, scored)
    ledger = scored.ledger
    for problem in ledger.problems:
        say(f"problem: {problem}", error=True)
    if ledger.problem_count > len(ledger.problems):
        say(f"{ledger.problem_count - len(ledger.problems)} further problems", error=True)
    if scored.page is not None:
        say(f"Report: {scored.page.resolve()}")
    return ledger.problem_count == 0


def _show(path: Path, scored: MeasuredLog) -> None:
    """Print a table of the episodes and a table of the errors, one line per agent."""
    rows: list[tuple[str, ...]] = []
    errors: list[tuple[str, ...]] = []
    for agent in scored.agents:
        name = agent.agent or "(no name)"
        rows.append(
            (name, str(agent.episodes), str(agent.maps), _short(agent.success), *map(str, agent.counts.values()))
        )
        for error in agent.errors:
            estimates = map(_short, (error.mean, error.pooled, error.valid))
            errors.append((name, error.kind, *estimates, f"{error.errors} / {error.steps}"))
    table(_EPISODES, rows, title=f"Episodes of {path.name}", numbers=range(1, 8))
    table(_ERRORS, errors, title=f"Errors of {path.name} (distances: {scored.distances})", numbers=range(2, 6))
    say(
        "Mean: averaged over the episodes of a map, then over maps. Pooled: all errors divided by all steps of that "
        "kind. Intervals: 95 %, over maps. -: no step of that kind. docs/exploration.md defines every column."
    )
    warn_of_few(
        estimate
        for agent in scored.agents
        for error in agent.errors
        for estimate in (error.mean, error.pooled, error.valid)
    )


def _short(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "-"
    interval = f" [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate.has_interval else ""
    few = few_of(estimate, "map")
    return f"{estimate.value:.3f}{interval}{f' ({few})' if few else ''}"
