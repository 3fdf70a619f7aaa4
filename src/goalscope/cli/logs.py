"""The commands on recorded logs: `import` them into a run directory, or `score` the errors of exploration in them."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final

from goalscope._ground.extras import how_to_install
from goalscope._ground.folder import Folder, NamedFile, anything_at
from goalscope._ground.own import consent, load_function
from goalscope._ground.progress import TALLY, Stage, aloud, lines
from goalscope._ground.words import counted
from goalscope.cli.console import json_text, say, table
from goalscope.cli.generator import Reads, Writes, prints
from goalscope.cli.measuring import can_report, measure_run, warn_of_few, write_page_of
from goalscope.cli.running import check_kept_apart
from goalscope.measures.exploration import DISTANCES, ErrorEstimate, GraphStep, MapStep, Summary, estimate_errors
from goalscope.measures.task_log import LoggedEpisode, LoggedRun, score_task_log
from goalscope.report.blocks import few_of
from goalscope.runs import Store
from goalscope.runs.importers.front import import_into, import_path
from goalscope.runs.importers.problems import ImportLog, SampleReader
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.stats import Estimate, estimate_mean
from goalscope.stats.records import Records


def import_logs(
    path: Annotated[str | Path, Reads("log")],
    out: Annotated[str | Path | None, Writes("directory")] = None,
    *,
    reader: str | SampleReader | None = None,
) -> ImportLog:
    """Import a file or folder of recorded trajectories into a run directory, or only check it.

    Args:
        path: a file or folder: JSONL, Inspect logs, or the layout of the TELOS authors.
        out: the run directory to write; without it, everything is checked and nothing is written.
        reader (MODULE:FUNCTION): for Inspect logs of other tasks: a function that turns a sample into an episode.

    Returns:
        The counts of what was imported, and the problems that were found.

    Raises:
        FileNotFoundError: if there is no such file or folder.
        ValueError: if ``out`` contains a run that a study played, if the run there is damaged, or if the function named
            as reader does not exist.
        OSError: if the store cannot be opened or written; BlockingIOError if another process is writing to it.
        ImportError: if a package that a format needs is not installed.
    """
    source = Path(path)
    if not anything_at(source):
        raise FileNotFoundError(f"there is no file or folder {str(path)!r} to import: check the path")
    if out is not None:
        check_kept_apart(Path(out), imported=True)
    consent(reader)
    read_sample = load_function(reader, "a reader of samples") if isinstance(reader, str) else reader
    with aloud():
        TALLY.tell(f"reading {source}")
        if out is None:
            return import_path(source, check=True, reader=read_sample)
        return import_into(source, out, reader=read_sample)


def import_and_show(
    path: Annotated[Path, Reads("log")],
    *,
    out: Annotated[Path | None, Writes("directory")] = None,
    check: bool = False,
    reader: str | None = None,
) -> bool:
    """Import recorded trajectories as a run, and compare each recorded label with the one that is computed.

    The exit status is 1 if there are problems.

    Args:
        path: a file or folder: JSONL, Inspect logs, or the layout of the TELOS authors.
        out: the run directory to write.
        check: check everything, but write nothing.
        reader (MODULE:FUNCTION): for Inspect logs of other tasks: a function that turns a sample into an episode.

    Examples:
        goalscope import logs.jsonl --out runs/logs
        goalscope import logs --check
    """
    if (out is None) != check:
        raise ValueError("give import either --out DIR (to write a run) or --check (to write nothing)")
    result = import_logs(path, out, reader=reader)
    for line in result.lines():
        say(line)
    if result.exit_status:
        if out is None:
            state = "the file was checked, and nothing was written"
        elif result.counts.get("episodes stored") or result.counts.get("episodes that were stored before"):
            state = f"the rest is in {out}; next: goalscope measure {quote(str(out))}"
        else:
            state = "nothing was imported or written (docs/import.md describes the format of a line)"
        say(f"{counted(result.problem_count, 'problem')}; {state}", error=True)
    elif out is None:
        episodes = result.counts.get("trajectories", 0)
        state = "everything can be imported" if episodes else "every label agrees, but there is no episode"
        say(f"no problem: {state}")
    else:
        say(f"no problem: everything is in {out}; next: goalscope measure {quote(str(out))}")
    return not result.exit_status


COUNTED: Final = ("steps", "blocked", "unparsable", "detours")
"""Counts of steps that are summed over the episodes of an agent."""


@dataclass(frozen=True, slots=True)
class LoggedAgent:
    """Results of one agent in a log of episodes in task worlds: success and errors averaged over maps, and counts.

    Attributes:
        agent: its name in the log, "" if it has none.
        errors: the exploration and the exploitation error.
        success: share of episodes that achieve the goal.
        episodes: number of episodes.
        maps: number of maps.
        counts: number of steps of each kind in `COUNTED`.
    """

    agent: str
    errors: tuple[ErrorEstimate, ErrorEstimate]
    success: Estimate
    episodes: int
    maps: int
    counts: Mapping[str, int]

    @classmethod
    def of(cls, agent: str, scored: Sequence[tuple[Summary, str]]) -> "LoggedAgent":
        """Compute the results of an agent from the summaries of its episodes, each paired with the id of its map."""
        summaries, maps = zip(*scored, strict=True)
        return cls(
            agent=agent,
            errors=estimate_errors(summaries, maps),
            success=estimate_mean(
                [float(summary.success) for summary in summaries], maps, unit="share", bounds=(0.0, 1.0)
            ),
            episodes=len(scored),
            maps=len(set(maps)),
            counts={name: sum(getattr(summary, name) for summary in summaries) for name in COUNTED},
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the results as values that JSON can hold: numbers of episodes and maps, success, both errors and
        counts.
        """
        content = {"episodes": self.episodes, "maps": self.maps, "success": asdict(self.success)}
        for error in self.errors:
            content[f"{error.kind}_error"] = {
                "mean": asdict(error.mean),
                "pooled": asdict(error.pooled),
                "pooled_valid_moves": asdict(error.valid),
                "errors": error.errors,
                "steps": error.steps,
            }
        # "steps" counts the steps of all kinds, while each error has the number of its own kind.
        return content | {name: count for name, count in self.counts.items() if name != "steps"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLog(Records):
    """Results of scoring a log of episodes in task worlds, as `score` returns them.

    Attributes:
        distances: graph in which distances were measured, see `score`.
        agents: results by agent, in the order of the log.
        ledger: problems and counts.
        page: report of the stored run; None if none was stored, or without the extra ``report``.
    """

    distances: str
    agents: tuple[LoggedAgent, ...]
    ledger: ImportLog
    page: Path | None = None

    @property
    def records(self) -> list[dict[str, Any]]:
        """The results as a list of dictionaries, one per agent and error: the mean with its interval, the pooled error,
        and counts.
        """
        return [
            {
                "agent": agent.agent,
                "error": error.kind,
                **{name: getattr(error.mean, name) for name in ("value", "low", "high")},
                "pooled": error.pooled.value,
                "errors": error.errors,
                "steps": error.steps,
                "episodes": agent.episodes,
                "maps": agent.maps,
                "success": agent.success.value,
            }
            for agent in self.agents
            for error in agent.errors
        ]

    def to_plain(self) -> dict[str, Any]:
        """Return all results and problems as values that JSON can hold."""
        return {
            "distances": self.distances,
            "agents": {agent.agent: agent.to_plain() for agent in self.agents},
            "counts": dict(self.ledger.counts),
            "problems": [str(problem) for problem in self.ledger.problems],
        }


def score(
    path: Annotated[str | Path, Reads("log")],
    out: Annotated[str | Path | None, Writes("file")] = None,
    *,
    steps: bool = False,
    distances: str = "known",
    report: Annotated[str | Path | None, Writes("directory")] = None,
    stage: Stage = lines,
) -> MeasuredLog:
    """Score a log of episodes in task worlds, without any model; return the errors of each agent.

    Args:
        path (FILE): a log of episodes in task worlds, as JSON lines.
        out: write the score of each episode to this file, as JSON lines.
        steps: also write every step to --out.
        distances (GRAPH): the graph in which distances are measured: known (cells that the agent knows of, the
            default), map (all cells) or observed (cells that it has observed).
        report: also store the episodes as a run in this directory, and write its report.
        stage: shows the progress of a task.

    Raises:
        ValueError: if options exclude each other, or an output exists already.
        OSError: if a file cannot be read or written.
    """
    log, scores, run_path = Path(path), None if out is None else Path(out), None if report is None else Path(report)
    graph = next((name for name in DISTANCES if name == distances), None)
    if graph is None:
        raise ValueError(f"--distances must be one of {', '.join(DISTANCES)}, got {distances}")
    if steps and scores is None:
        raise ValueError("--steps writes the steps to the file of --out: add --out FILE")
    if scores is not None and anything_at(scores) and scores.resolve() == log.resolve():
        raise ValueError(f"--out must be another file than the log, got {scores}")
    if Folder(log).is_there():
        raise ValueError(f"score reads a log of JSON lines, but {log} is a directory: for a run, use goalscope measure")
    if run_path is not None:
        _check_report(run_path, distances)
    ledger, by_agent = ImportLog(), dict[str, list[tuple[Summary, str]]]()
    total = max(1, NamedFile(log).status().st_size // 1024)
    with ExitStack() as stack:
        sink = None
        if scores is not None:
            sink = stack.enter_context(NamedFile(scores).writing_text())
        show = stack.enter_context(stage("scored (KiB)"))
        run = None if run_path is None else LoggedRun(stack.enter_context(Store(run_path, "w")))
        for line in score_task_log(
            log, ledger, distances=graph, progress=lambda done: show(min(total, done // 1024), total)
        ):
            if run is not None:
                run.add(line)
            by_agent.setdefault(line.agent, []).append((line.score.summary, line.map_id))
            if sink is not None:
                sink.write(json.dumps(_plain_line(line, steps), allow_nan=False) + "\n")
        if run is not None:
            run.close(log.name, ledger)
    page = _reported(run_path, stage) if run_path is not None and by_agent else None
    agents = tuple(LoggedAgent.of(agent, scored) for agent, scored in by_agent.items())
    return MeasuredLog(distances=distances, agents=agents, ledger=ledger, page=page)


def _check_report(folder: Path, distances: str) -> None:
    """Raise a ValueError if the report would show other errors than the scores, or would mix two logs."""
    if distances != "known":
        raise ValueError(
            f"--report always measures with --distances known, but got {distances}: leave out one of the two options"
        )
    if not unmade(folder / DATABASE):
        raise ValueError(f"--report must be a new directory, but {folder} contains a run: choose another one")


def _reported(folder: Path, stage: Stage) -> Path | None:
    """Measure the stored episodes and write their report; without the extra, say how to install it."""
    with aloud():
        if can_report():
            return write_page_of(folder, stage=stage)
        measure_run(folder, stage)
        TALLY.tell(f"stored and measured: {folder}; its page needs the extra report: {how_to_install('report')}")
    return None


def _plain_line(line: LoggedEpisode, steps: bool) -> dict[str, Any]:
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


def _plain_step(step: MapStep | GraphStep) -> dict[str, Any]:
    if isinstance(step, GraphStep):
        return {**step._asdict(), "progress": step.progress}
    return {
        **step.plain(),
        "action": None if step.action is None else step.action.name.lower(),
        "free_moves": [action.name.lower() for action in step.free_moves],
    }


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
