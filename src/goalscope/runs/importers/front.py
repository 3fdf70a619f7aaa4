"""Import a path: the format of each file is detected, among those here and those that other packages register."""

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from goalscope._ground import registry
from goalscope._ground.folder import Folder, NamedFile, described
from goalscope._ground.untrusted import StrangeFileError, UntrustedError, decode_line, lines
from goalscope.runs.importers.jsonl import jsonl_episodes
from goalscope.runs.importers.problems import Context, ImportLog, SampleReader
from goalscope.runs.importers.telos import holds_grid, read_json, read_manifest, read_metrics
from goalscope.runs.record import Episode
from goalscope.runs.store import Store

Exporter = Callable[[Store, Path, Callable[[int, int], None]], list[Path]]
"""A function that receives a run, a folder and a progress callback, writes files and returns their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of recorded logs that `goalscope import` can read.

    Attributes:
        endings: endings of its files, in lower case and with the dot.
        read: function that yields the episodes of a file, given its path, its name in messages, and the shared context.
        holds: function that returns whether a file with one of these endings has this format. A format without it takes
            the files that no other format claims.
    """

    endings: tuple[str, ...]
    read: Callable[[Path, str, Context], Iterator[Episode]]
    holds: Callable[[Path], bool] | None = None


def importer(name: str, format: Format) -> Format:
    """Register a format of logs under a name, so that `goalscope import` reads files of this format; return the format.

    Raises:
        ValueError: the name is taken.
    """
    return registry.register("importer", name, made_of=format.read)(format)


def exporter(name: str) -> Callable[[Exporter], Exporter]:
    """Return a decorator that registers a function under a name, so that `goalscope export --format NAME` calls it.

    The function receives the run, a folder and a progress callback, writes files and returns their paths.
    """
    return registry.register("exporter", name)


def format_of(path: Path, formats: list[Format]) -> int | None:
    """Return which of some formats a file has, as an index; None if it has none of them.

    The first format counts that recognises the file by its content, else the first that only asks for its ending.
    """
    fitting = [index for index, format_ in enumerate(formats) if path.suffix.lower() in format_.endings]
    holding = (index for index in fitting if (holds := formats[index].holds) is not None and holds(path))
    return next(holding, next((index for index in fitting if formats[index].holds is None), None))


_LINES_READ = 5
_GROUP = 64
_GROUP_STEPS = 20_000


def import_path(path: str | Path, *, check: bool = False, reader: SampleReader | None = None) -> ImportLog:
    """Read the episodes in a file or a folder of logs.

    The formats are those of the TELOS authors, goalscope's JSON lines, and formats of other packages. An import without
    any episode is a problem too; the message says what the files contain instead.

    Args:
        path: the file or folder. A missing path is reported as a problem, not as an exception.
        check: read everything at once and keep no episode; labels without an episode are enough.
        reader: reads the samples of logs that contain other tasks than goalscope's.

    Returns:
        Without ``check``: the log with the episodes, which are read lazily; it is complete after the last episode. With
        it: the complete log without episodes.

    Raises:
        ImportError: a package that a format needs is not installed.
    """
    ledger = ImportLog()
    episodes = _episodes(Path(path), Context(ledger, reader), check=check)
    if check:
        deque(episodes, maxlen=0)
    else:
        ledger.episodes = episodes
    return ledger


def import_into(path: str | Path, store_directory: str | Path, *, reader: SampleReader | None = None) -> ImportLog:
    """Read the episodes in a file or a folder of logs, as `import_path` does, and store them in a run directory.

    Episodes that are stored already do not change. If the logs contain such an episode again, it is skipped; if its
    content differs, this is listed among the problems of the import.

    Args:
        path: the file or folder.
        store_directory: the run directory, created if it is missing.
        reader: reads the samples of logs that contain other tasks than goalscope's.

    Returns:
        The record of the import, with its counts and problems; the episodes themselves are in the store.

    Raises:
        OSError: the store cannot be opened or written; BlockingIOError if another process is writing to it.
        ValueError: the store is damaged.
        ImportError: a package that a format needs is not installed.
    """
    source = Path(path)
    ledger = import_path(source, reader=reader)
    episodes, ledger.episodes = iter(ledger.episodes), ()
    first = next(episodes, None)
    ledger.counts["episodes stored"] += 0
    if first is not None:
        with Store(store_directory, "w") as store:
            group, steps = list[Episode](), 0
            for episode in chain([first], episodes):
                if len(group) >= _GROUP or steps >= _GROUP_STEPS:
                    _put(store, group, ledger)
                    group, steps = [], 0
                group.append(episode)
                steps += len(episode.steps)
            _put(store, group, ledger)
            store.put_agents(
                (identity, name, description) for identity, (name, description) in sorted(ledger.agents.items())
            )
            description = {"source": source.resolve().name, "counts": ledger.counts, "problems": ledger.problem_count}
            store.put_info("import", description | {"compared": ledger.compared})
    return ledger


def _put(store: Store, group: list[Episode], ledger: ImportLog) -> None:
    """Store a group of episodes. If the group is rejected, store them one by one, to keep all valid ones."""
    count = "SELECT COUNT(*) FROM episodes"
    [(before,)] = store.query(count)
    rejected = 0
    try:
        store.put_episodes(group)
    except ValueError:
        for episode in group:
            try:
                store.put_episodes([episode])
            except ValueError as error:
                rejected += 1
                name = str(episode.tags.get("file") or episode.id)
                ledger.report(name, "", "an episode must be storable beside those that are stored", error)
    [(after,)] = store.query(count)
    ledger.counts["episodes stored"] += int(after - before)
    if stored_before := len(group) - int(after - before) - rejected:
        ledger.counts["episodes that were stored before"] += stored_before


def _episodes(path: Path, context: Context, *, check: bool) -> Iterator[Episode]:
    ledger = context.ledger
    formats = [*_FORMATS, *(registry.resolve("importer", name) for name in registry.names("importer"))]
    files: dict[int | None, list[tuple[Path, str]]] = {None: [], **{index: [] for index in range(len(formats))}}
    for file, name in _files_below(path, ledger):
        files[format_of(file, formats)].append((file, name))
    file_count = sum(map(len, files.values()))
    if other_count := len(files.pop(None)):
        ledger.counts["other files left alone"] += other_count
    for reader_format, named_files in zip(formats, files.values(), strict=True):
        for file, name in named_files:
            yield from reader_format.read(file, name, context)
    if context.metrics:
        ledger.counts["rows of metrics without an imported trajectory"] += len(context.metrics)
    if ledger.problem_count or ledger.counts["trajectories"] or (check and ledger.checked):
        return
    if not ledger.counts["files read"]:
        must = "there must be something to import: .json, .jsonl, .eval or a table of metrics"
        ledger.report(path.name or ".", "", must, f"{file_count} files, none of them such")
    else:
        counts_in_words = [f"{name}: {count}" for name, count in ledger.counts.items() if count]
        ledger.report(path.name or ".", "", "there must be a finished episode to import", "; ".join(counts_in_words))


def _shows_grids(path: Path) -> bool:
    """Return whether a JSON lines file is a grid manifest, judging by its first readable line."""
    try:
        with NamedFile(path).open_file() as stream:
            for _, line in islice(lines(stream), _LINES_READ):
                try:
                    return holds_grid(decode_line(line))
                except UntrustedError:
                    continue
    except (OSError, UntrustedError):
        return False  # the reader of logs reports the error
    return False


# Files in reading order, with tables before the trajectories that they describe.
_FORMATS = (
    Format(endings=(".csv",), read=read_metrics),
    Format(endings=(".jsonl",), read=read_manifest, holds=_shows_grids),
    Format(endings=(".json",), read=read_json),
    Format(endings=(".jsonl",), read=jsonl_episodes),
)


def _files_below(path: Path, ledger: ImportLog) -> Iterator[tuple[Path, str]]:
    """Yield (file, name relative to ``path``) of each regular file, sorted.

    Links, pipes, devices and unreadable files below ``path`` are reported as problems.
    """
    folder, pending = Folder(path), list[tuple[str, os.stat_result | None]]([("", None)])
    while pending:
        relative, status = pending.pop()
        name = relative or path.name
        try:
            if status is None and not folder.is_there():
                yield NamedFile(path).checked(), name
            elif status is None or stat.S_ISDIR(status.st_mode):
                entries = folder.entries(relative)
                pending.extend(
                    (f"{relative}/{entry}" if relative else entry, status_before)
                    for entry, status_before in reversed(entries)
                )
            elif stat.S_ISREG(status.st_mode):
                yield path / relative, name
            else:
                kind_found = described(path / relative, status)
                ledger.report(name, "", "an import must consist of plain files and folders", kind_found)
        except StrangeFileError as error:
            ledger.report(name, "", "an import must consist of plain files and folders", error)
        except (OSError, ValueError) as error:  # a ValueError for a zero byte in the path
            reason = error.strerror if isinstance(error, OSError) else error
            ledger.report(name, "", "a file or folder must be there and readable", reason)
