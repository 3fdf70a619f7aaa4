"""`goalscope score`: exploration and exploitation errors of a user's log, without any model."""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.errors import check_outputs
from goalscope.cli.measuring import report, warn_of_few
from goalscope.extras import how_to_install
from goalscope.front.measuring import can_report, measure_run
from goalscope.importers.problems import ImportLog
from goalscope.importers.task_log import LoggedRun, ScoredLine, score_task_log
from goalscope.measures.exploration import DISTANCES, ErrorEstimate, GraphStep, StepScore, Summary, estimate_errors
from goalscope.plain_files import replacing
from goalscope.report.blocks import few_of
from goalscope.runs import Store
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.stats import Estimate, estimate_mean

_ERRORS = ("agent", "error", "mean over episodes", "pooled", "pooled, valid moves", "errors / steps")
_COUNTS = ("steps", "blocked", "unparsable", "detours")
_EPISODES = ("agent", "episodes", "maps", "success", *_COUNTS)


def score(
    path: Path, *, out: Path | None, as_json: bool, steps: bool, distances: str, report: Path | None = None
) -> bool:
    """Score a log, print the errors by agent, and return whether every line could be used.

    With ``report`` the episodes are also stored as a run in that new directory, which is measured and reported.
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
    if report is not None:
        _check_report(report, distances)
    ledger = ImportLog()
    by_agent: dict[str, list[tuple[Summary, str]]] = {}
    total = max(1, path.stat().st_size // 1024)
    with ExitStack() as stack:
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
        sink = None
        if out is not None:
            partial = stack.enter_context(replacing(out))
            sink = stack.enter_context(partial.open("w", encoding="utf-8"))
        show = stack.enter_context(progress("scored (KiB)"))
        run = None if report is None else LoggedRun(stack.enter_context(Store(report, "w")))
        for line in score_task_log(
            path, ledger, distances=graph, progress=lambda done: show(min(total, done // 1024), total)
        ):
            if run is not None:
                run.add(line)
            by_agent.setdefault(line.agent, []).append((line.score.summary, line.map_id))
            if sink is not None:
                sink.write(json.dumps(_plain_line(line, steps), allow_nan=False) + "\n")
        if run is not None:
            run.close(path.name, ledger)
    groups = {agent: _Group.of(scored) for agent, scored in by_agent.items()}
    if as_json:
        content = {
            "distances": distances,
            "agents": {agent: group.plain() for agent, group in groups.items()},
            "counts": dict(ledger.counts),
            "problems": [str(problem) for problem in ledger.problems],
        }
        say(json_text(content))
    elif not groups:
        say(
            f"no episode of {path.name} could be scored: what a line must hold stands in docs/exploration.md; logs of "
            "grid worlds are read by goalscope import",
            error=True,
        )
    else:
        rows: list[tuple[str, ...]] = []
        errors: list[tuple[str, ...]] = []
        for agent, group in groups.items():
            name = agent or "(no name)"
            counts = map(str, group.counts.values())
            rows.append((name, str(group.episodes), str(group.maps), _short(group.success), *counts))
            for error in group.errors:
                estimates = map(_short, (error.mean, error.pooled, error.valid))
                errors.append((name, error.kind, *estimates, f"{error.errors} / {error.steps}"))
        table(_EPISODES, rows, title=f"Episodes of {path.name}", numbers=range(1, 8))
        table(_ERRORS, errors, title=f"Errors of {path.name} (distances: {distances})", numbers=range(2, 6))
        say(
            "Mean: over the episodes of a map, then over maps; pooled: all errors over all steps of the kind. 95 % "
            "intervals over maps; - where no step called for the kind. docs/exploration.md defines every column."
        )
        warn_of_few(
            estimate
            for group in groups.values()
            for error in group.errors
            for estimate in (error.mean, error.pooled, error.valid)
        )
    for problem in ledger.problems:
        say(f"problem: {problem}", error=True)
    if ledger.problem_count > len(ledger.problems):
        say(f"{ledger.problem_count - len(ledger.problems)} further problems", error=True)
    if report is not None and by_agent:
        _report(report)
    return ledger.problem_count == 0


def _check_report(folder: Path, distances: str) -> None:
    """Raise a ValueError for a report whose errors would differ from the scores, or that would mix two logs."""
    if distances != "known":
        raise ValueError(
            f"--report must come with --distances known, by which a run is measured, got {distances}: leave one out"
        )
    if not unmade(folder / DATABASE):
        raise ValueError(f"--report must be a new run directory, but {folder} holds a run: choose another one")


def _report(folder: Path) -> None:
    """Measure the stored episodes and write their page; without the extra, print how to install it."""
    if can_report():
        report(folder, None, None)
    else:
        measure_run(folder, progress)
        say(f"stored and measured: {folder}; its page needs the extra report: {how_to_install('report')}")


@dataclass(frozen=True, slots=True)
class _Group:
    """Results of one agent: counts over all episodes, success and errors over maps."""

    errors: tuple[ErrorEstimate, ErrorEstimate]
    success: Estimate
    episodes: int
    maps: int
    counts: Mapping[str, int]

    @classmethod
    def of(cls, scored: list[tuple[Summary, str]]) -> "_Group":
        summaries, maps = zip(*scored, strict=True)
        return cls(
            errors=estimate_errors(summaries, maps),
            success=estimate_mean(
                [float(summary.success) for summary in summaries], maps, unit="share", bounds=(0.0, 1.0)
            ),
            episodes=len(scored),
            maps=len(set(maps)),
            counts={name: sum(getattr(summary, name) for summary in summaries) for name in _COUNTS},
        )

    def plain(self) -> dict[str, Any]:
        content = {"episodes": self.episodes, "maps": self.maps, "success": asdict(self.success)}
        for error in self.errors:
            content[f"{error.kind}_error"] = {
                "mean": asdict(error.mean),
                "pooled": asdict(error.pooled),
                "pooled_valid_moves": asdict(error.valid),
                "errors": error.errors,
                "steps": error.steps,
            }
        # The steps are those of all episodes; each error names those of its kind.
        return content | {name: count for name, count in self.counts.items() if name != "steps"}


def _short(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "-"
    interval = f" [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate.has_interval else ""
    few = few_of(estimate, "map")
    return f"{estimate.value:.3f}{interval}{f' ({few})' if few else ''}"


def _plain_line(line: ScoredLine, steps: bool) -> dict[str, Any]:
    summary = line.score.summary
    content: dict[str, Any] = {
        "line": line.line,
        "episode": line.episode,
        "agent": line.agent,
        "tags": dict(line.tags),
        "map": line.map_id,
        "summary": {
            **asdict(summary),
            "invalid_actions": summary.invalid_actions,
            "progress_rate": summary.progress_rate,
            "coverage": summary.coverage,
        },
    }
    if steps:
        content["steps"] = [_plain_step(step) for step in line.score.steps]
    return content


def _plain_step(step: StepScore | GraphStep) -> dict[str, Any]:
    if isinstance(step, GraphStep):
        return {**step._asdict(), "progress": step.progress}
    return {
        **step.plain(),
        "action": None if step.action is None else step.action.name.lower(),
        "free_moves": [action.name.lower() for action in step.free_moves],
    }
