"""Measure runs whose rows are missing, and write the report of a run."""

import time
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from goalscope._ground.progress import TALLY, Stage, aloud, duration, lines
from goalscope._ground.words import counted
from goalscope.measures.behaviour import BEHAVIOUR, left_out, put_measured
from goalscope.report.measured import MeasuredRows
from goalscope.report.page import not_measured
from goalscope.report.pairings import check_measures
from goalscope.report.reading import Run, RunEstimates
from goalscope.report.sections.about import unfinished
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.hashing import keep_content_hash
from goalscope.runs.provenance import missing_packages
from goalscope.runs.server_checks import noted_of_answers
from goalscope.stats.rows import Rows


def measure(
    run: str | Path | Run,
    *,
    by: Sequence[str] = ("agent",),
    measures: Collection[str] | None = None,
    stage: Stage = lines,
) -> RunEstimates:
    """Measure all episodes of a run, store the rows, and return estimates with confidence intervals over grids.

    Args:
        run: the run directory.
        by: tags to group by, e.g. ``("agent", "size")``.
        measures: measures to return; None for all. All are stored.
        stage: shows the progress of a task.

    Raises:
        ValueError: if the run contains no episodes, or a measure or tag is unknown.
    """
    path = run.path if isinstance(run, Run) else Path(run)
    with aloud():
        measure_run(path, stage)
    with Store(path) as store:
        measured = MeasuredRows(store, BEHAVIOUR)
        check_measures(list(measures or ()), list(measured.measures), "this run", "measures")
        check_tags(by, measured, "by")
        return RunEstimates(measured.estimated(by, measures))


def check_tags(by: Sequence[str], measured: MeasuredRows, option: str = "--by") -> None:
    """Raise a ValueError if no row has one of the tags."""
    if absent := [name for name in by if name not in measured.values]:
        present = ", ".join(name for name in measured.values if name != "agent")
        raise ValueError(
            f"{option}: this run has no tag {', '.join(absent)}. Choose from {present}, or add the tag to the worlds "
            "of the study"
        )


def tell_missing(store: Store) -> None:
    """Report the packages of a run that are not installed here."""
    if missing := missing_packages(store):
        TALLY.tell(f"{store.path}: {missing}")


def measure_run(path: Path, stage: Stage = lines) -> None:
    """Measure all episodes of a run and store the rows."""
    began = time.monotonic()
    with Store(path) as reader:
        total = count_episodes(reader)
        tell_missing(reader)
    if not total:
        raise ValueError(f"{path} contains no episodes to measure: run its study first")
    with Store(path, "w") as store, stage("measuring") as show:
        put_measured(store, show)
        lacking, notes = left_out(store.worlds()), noted_of_answers(store)
        keep_content_hash(store)  # so that the page need not compute it again
    TALLY.tell(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}")
    for line in (*notes, *([lacking] if lacking else [])):
        TALLY.tell(line)


def measure_missing(path: Path, stage: Stage = lines) -> None:
    """Measure a run whose rows do not cover its episodes, and say so."""
    with Store(path) as store:
        lacking = not_measured(store)
    if lacking:
        TALLY.tell(f"{path}: measuring first, {lacking}")
        measure_run(path, stage)
        with Store(path) as store:
            if lacking := not_measured(store):  # its table and its indices name different episodes
                raise ValueError(
                    f"{store.path} is damaged: after measuring it, {lacking}; see goalscope doctor {quote(str(path))}"
                )


def measured_rows(path: Path, stage: Stage = lines) -> Rows:
    """Return all rows of a run for a comparison, after measuring it if its rows do not cover its episodes."""
    measure_compared(path, stage)
    with Store(path) as store:
        return store.rows()


def measure_compared(path: Path, stage: Stage = lines) -> None:
    """Measure a run for a comparison if its rows do not cover its episodes."""
    with Store(path) as store:
        state, lacking = unfinished(store), not_measured(store)
    if state and lacking:
        raise ValueError(
            f"in {path} {lacking}, and {state}; to use the episodes stored so far, run goalscope measure "
            f"{quote(str(path))} first"
        )
    if state:
        TALLY.tell(f"{path}: {state}")
    measure_missing(path, stage)


def can_report() -> bool:
    """Return whether the library that reports need is installed (it comes with the extra `report`)."""
    return find_spec("jinja2") is not None


def write_page_of(path: Path, out: Path | None = None, ledger: Path | None = None, stage: Stage = lines) -> Path:
    """Write the report of a run and return its path. A run whose rows do not cover its episodes is measured first."""
    from goalscope.report import write_report

    measure_missing(path, stage)
    TALLY.tell("writing the report")
    with Store(path) as store:
        tell_missing(store)
        page = out or path / "report.html"
        write_report(store, page, ledger_path=ledger, covered=True)
    return page
