"""Trajectories in the authors' layout: a folder of their files, or a single one.

Source: behavioural and representational evaluation, the authors' public records.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from goalscope.importers.problems import ImportResult, Ledger
from goalscope.importers.reading import UnreadableError, decode_line, files_below, lines, read_json, show
from goalscope.importers.telos_tables import read_grid, read_metrics, read_states
from goalscope.importers.telos_trajectory import Context, read_trajectory
from goalscope.runs.record import Episode

File = tuple[Path, str]
"""A file, and its name relative to what is imported."""


def read_telos(path: str | Path) -> ImportResult:
    """Read a folder or a file in the authors' layout, with every recorded label compared with ours.

    Args:
        path: a folder with ``trajectories/*.json``, ``grids*.jsonl``, tables of metrics and labelled states (any of
            them, at any depth), or one such file.

    Returns:
        The episodes, made while they are taken; problems and counts are complete after the last one.
    """
    ledger = Ledger()
    return ImportResult(
        episodes=telos_episodes(list(files_below(Path(path), ledger)), Context(ledger=ledger)), ledger=ledger
    )


def telos_episodes(files: Sequence[File], context: Context) -> Iterator[Episode]:
    """Read files of the authors' layout, tables first, and yield the episodes of the trajectory files."""
    ledger = context.ledger
    for path, name in files:
        if path.suffix.lower() == ".csv":
            known = read_metrics(path, name, context)
            ledger.counts["files read" if known else "other files left alone"] += 1
        elif path.suffix.lower() == ".jsonl":
            ledger.counts["files read"] += 1
            _read_grids(path, name, ledger)
        elif path.suffix.lower() != ".json":
            ledger.counts["other files left alone"] += 1
    for path, name in files:
        if path.suffix.lower() == ".json":
            ledger.counts["files read"] += 1
            episode = _read_json(path, name, context)
            if episode is not None:
                yield episode
    if context.table:
        ledger.counts["rows of metrics without an imported trajectory"] += len(context.table)


def holds_grid(value: object) -> bool:
    """Return whether a JSON value looks like a grid of the authors' manifests."""
    return isinstance(value, dict) and "layout" in value and "episode" not in value and "type" not in value


def _read_json(path: Path, name: str, context: Context) -> Episode | None:
    ledger = context.ledger
    try:
        value = read_json(path)
        if isinstance(value, dict) and "grid_layout" in value and "steps" not in value:
            read_grid({"layout": value["grid_layout"]}, name, "", ledger)
        elif holds_grid(value) and "steps" not in value:
            read_grid(value, name, "", ledger)
        elif isinstance(value, dict):
            return read_trajectory(value, name, context)
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            read_states(value, name, ledger)
        else:
            must = "a file must hold a trajectory, a grid, or a list of labelled states"
            raise UnreadableError(must, show(value))
    except UnreadableError as error:
        ledger.report(name, error.where, error.must, error.given)
    return None


def _read_grids(path: Path, name: str, ledger: Ledger) -> None:
    found = 0
    try:
        with path.open("rb") as stream:
            for number, line in lines(stream):
                found += 1
                place = f"line {number}"
                try:
                    read_grid(decode_line(line), name, place, ledger)
                except UnreadableError as error:
                    ledger.report(name, f"{place} {error.where}".strip(), error.must, error.given)
        if not found:
            raise UnreadableError("a manifest must hold at least one grid", "an empty file")
    except OSError as error:
        ledger.report(name, "", "a file must be readable", error.strerror or error)
    except UnreadableError as error:
        ledger.report(name, error.where, error.must, error.given)
