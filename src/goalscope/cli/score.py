"""`goalscope score`: exploration and exploitation errors of somebody's log, without any model."""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from goalscope.cli.console import progress, say, table
from goalscope.cli.errors import check_outputs
from goalscope.cli.estimates import warn_of_few
from goalscope.importers.problems import Ledger
from goalscope.importers.task_log import ScoredLine, score_task_log
from goalscope.measures.exploration import DISTANCES, ErrorEstimate, StepScore, Summary, estimate_errors
from goalscope.report.blocks import few_of
from goalscope.stats import Estimate, estimate_mean

_EPISODES = ("agent", "episodes", "maps", "success", "steps", "blocked", "unparsable", "detours")
_ERRORS = ("agent", "error", "mean over episodes", "pooled", "pooled, valid moves", "errors / steps")
_NAMELESS = "(no name)"


def score(path: Path, *, out: Path | None, as_json: bool, steps: bool, distances: str) -> bool:
    """Score a log, print the errors by agent, and return whether every line could be used.

    Args:
        path: the log, JSON lines.
        out: file for one line of JSON an episode.
        as_json: print one JSON object in place of the table.
        steps: write every step to ``out``, too.
        distances: the graph that distances are measured on.

    Raises:
        ValueError: an unknown graph of distances, the log as output, or ``steps`` without ``out``.
        OSError: a file that cannot be read or written.
    """
    graph = next((name for name in DISTANCES if name == distances), None)
    if graph is None:
        raise ValueError(f"--distances must be one of {', '.join(DISTANCES)}, got {distances}")
    if steps and out is None:
        raise ValueError("--steps must be given together with --out FILE, where the steps are written")
    if out is not None and out.exists() and out.resolve() == path.resolve():
        raise ValueError(f"--out must be another file than the log, got {out}")
    check_outputs(out)
    if path.is_dir():
        raise ValueError(
            f"score must be given a log of JSON lines, got the directory {path}: goalscope measure reads runs"
        )
    ledger = Ledger()
    found: dict[str, list[tuple[Summary, str]]] = {}
    total = max(1, path.stat().st_size // 1024)
    with ExitStack() as stack:
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
        sink = None if out is None else stack.enter_context(out.open("w", encoding="utf-8"))
        show = stack.enter_context(progress("scored (KiB)"))
        for line in score_task_log(
            path, ledger, distances=graph, progress=lambda done: show(min(total, done // 1024), total)
        ):
            found.setdefault(line.agent, []).append((line.score.summary, line.task_map.id))
            if sink is not None:
                sink.write(json.dumps(_plain_line(line, steps), allow_nan=False) + "\n")
    groups = {agent: _group(scored) for agent, scored in found.items()}
    if as_json:
        plain = {
            "distances": distances,
            "agents": {agent: _plain_group(*group) for agent, group in groups.items()},
            "counts": dict(ledger.counts),
            "problems": [str(problem) for problem in ledger.problems],
        }
        say(json.dumps(plain, indent=2, allow_nan=False))
    elif not groups:
        say(
            f"no episode of {path.name} could be scored: what a line must hold stands in docs/exploration.md; logs of "
            "grid worlds are read by goalscope import",
            error=True,
        )
    else:
        title = f"Episodes of {path.name}"
        table(_EPISODES, [_episodes(agent, group) for agent, group in groups.items()], title=title, numbers=range(1, 8))
        title = f"Errors of {path.name} (distances: {distances})"
        rows = [_errors(agent, error) for agent, group in groups.items() for error in group[0]]
        table(_ERRORS, rows, title=title, numbers=range(2, 6))
        say(
            "Mean: over the episodes of a map, then over maps; pooled: all errors over all steps of the kind. 95 % "
            "intervals over maps; - where no step called for the kind. docs/exploration.md defines every column."
        )
        warn_of_few(
            each for errors, *_ in groups.values() for one in errors for each in (one.mean, one.pooled, one.valid)
        )
    for problem in ledger.problems:
        say(f"problem: {problem}", error=True)
    if ledger.problem_count > len(ledger.problems):
        say(f"{ledger.problem_count - len(ledger.problems)} further problems", error=True)
    return ledger.problem_count == 0


_Group = tuple[tuple[ErrorEstimate, ErrorEstimate], Estimate, list[Summary], int]


def _group(scored: list[tuple[Summary, str]]) -> _Group:
    summaries, maps = [summary for summary, _ in scored], [map_id for _, map_id in scored]
    success = estimate_mean([float(s.success) for s in summaries], maps, unit="share", bounds=(0.0, 1.0))
    return estimate_errors(summaries, maps), success, summaries, len(set(maps))


def _episodes(agent: str, group: _Group) -> tuple[str, ...]:
    _, success, summaries, maps = group
    counts = (
        sum(getattr(summary, name) for summary in summaries) for name in ("steps", "blocked", "unparsable", "detours")
    )
    return (agent or _NAMELESS, str(len(summaries)), str(maps), _short(success), *map(str, counts))


def _errors(agent: str, error: ErrorEstimate) -> tuple[str, ...]:
    estimates = (_short(found) for found in (error.mean, error.pooled, error.valid))
    return (agent or _NAMELESS, error.kind, *estimates, f"{error.errors} / {error.steps}")


def _short(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "-"
    ends = f" [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate.has_interval else ""
    few = few_of(estimate, "map")
    return f"{estimate.value:.3f}{ends}{f' ({few})' if few else ''}"


def _plain_group(
    errors: tuple[ErrorEstimate, ErrorEstimate], success: Estimate, summaries: list[Summary], maps: int
) -> dict[str, Any]:
    return {
        "episodes": len(summaries),
        "maps": maps,
        "success": _plain_estimate(success),
        **{
            f"{error.kind}_error": {
                "mean": _plain_estimate(error.mean),
                "pooled": _plain_estimate(error.pooled),
                "pooled_valid_moves": _plain_estimate(error.valid),
                "errors": error.errors,
                "steps": error.steps,
            }
            for error in errors
        },
        "blocked": sum(s.blocked for s in summaries),
        "unparsable": sum(s.unparsable for s in summaries),
        "detours": sum(s.detours for s in summaries),
    }


def _plain_estimate(estimate: Estimate) -> dict[str, Any]:
    return {name: _finite(value) for name, value in asdict(estimate).items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_line(line: ScoredLine, steps: bool) -> dict[str, Any]:
    summary = line.score.summary
    plain: dict[str, Any] = {
        "line": line.line,
        "episode": line.episode,
        "agent": line.agent,
        "tags": dict(line.tags),
        "map": line.task_map.id,
        "summary": {
            **asdict(summary),
            "invalid_actions": summary.invalid_actions,
            "progress_rate": summary.progress_rate,
            "coverage": summary.coverage,
        },
    }
    if steps:
        plain["steps"] = [_plain_step(step) for step in line.score.steps]
    return plain


def _plain_step(step: StepScore) -> Mapping[str, Any]:
    return {
        **asdict(step),
        "action": None if step.action is None else step.action.name.lower(),
        "free_moves": [action.name.lower() for action in step.free_moves],
    }
