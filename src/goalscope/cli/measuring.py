"""Rows of runs for the commands that need them: the one place where a run is measured."""

import time
from pathlib import Path
from shlex import quote

from goalscope.cli.console import duration, progress, say
from goalscope.report.blocks import counted
from goalscope.report.page import not_measured
from goalscope.report.sections.about import unfinished
from goalscope.rows import Rows
from goalscope.runs import Store

SOURCE = "behaviour"
"""The source under which a store keeps the rows of `measure`."""


def measure_run(path: Path) -> Rows:
    """Measure all episodes of a run and store the rows; return them."""
    from goalscope.measures import measure_store
    from goalscope.measures.behaviour import left_out

    began = time.monotonic()
    with Store(path) as reader:
        total = len(reader.episode_ids())
    if not total:
        raise ValueError(f"a run must hold episodes to be measured, but {path} holds none: run its study first")
    with Store(path, "w") as store, progress("measuring") as show:
        rows = measure_store(store, show)
        store.put_rows(rows, source=SOURCE)
        lacking = left_out(store.worlds())
    say(f"{counted(total, 'episode')} measured in {duration(time.monotonic() - began)}", error=True)
    if lacking:
        say(lacking, error=True)
    return rows


def measure_missing(path: Path) -> None:
    """Measure a run whose rows do not cover its episodes, and say so.

    Raises:
        ValueError: there are no episodes, or the file is damaged.
        OSError: it must be measured and cannot be written, e.g. because another process writes to it.
    """
    with Store(path) as store:
        lacking = not_measured(store)
    if lacking:
        say(f"{path}: measuring first, {lacking}", error=True)
        measure_run(path)
        with Store(path) as store:
            if lacking := not_measured(store):  # its table and its indices name different episodes
                raise ValueError(f"{store.path} must hold the episodes that are measured, but {lacking}: it is damaged")


def measured_rows(path: Path) -> Rows:
    """Return all rows of a run that is to be compared; they are measured first where they do not cover its episodes.

    Raises:
        ValueError: there are no episodes; some are not measured and the run is not finished.
        OSError: as `measure_missing`.
    """
    with Store(path) as store:
        state, lacking = unfinished(store), not_measured(store)
    if state and lacking:
        raise ValueError(
            f"the rows of a run must cover its episodes, but in {path} {lacking} and {state}; or take what is there: "
            f"goalscope measure {quote(str(path))}"
        )
    if state:
        say(f"{path}: {state}", error=True)
    measure_missing(path)
    with Store(path) as store:
        return store.rows()
