"""Import of whatever a path holds: the format is found out file by file."""

import stat
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

from goalscope.importers.inspect_log import inspect_episodes, is_inspect_json
from goalscope.importers.jsonl import jsonl_episodes
from goalscope.importers.problems import Context, ImportResult, Ledger
from goalscope.importers.recorded import Reader
from goalscope.importers.telos import holds_grid, read_json, read_manifest, read_metrics
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.untrusted import UntrustedError, decode_line, lines

_LINES_LOOKED_AT = 5
_GROUP = 64
_GROUP_STEPS = 20_000


# By layout and ending, in the order in which files are read: tables come before the trajectories that they describe.
_READERS: dict[tuple[str, str], Callable[[Path, str, Context], Iterator[Episode]]] = {
    ("authors", ".csv"): read_metrics,
    ("authors", ".jsonl"): read_manifest,
    ("authors", ".json"): read_json,
    ("log", ".jsonl"): jsonl_episodes,
    ("inspect", ".eval"): inspect_episodes,
    ("inspect", ".json"): inspect_episodes,
}


def import_path(path: str | Path, *, check: bool = False, reader: Reader | None = None) -> ImportResult:
    """Read a file or a folder: the authors' layout, our JSON lines, logs of Inspect, or all of them.

    Args:
        path: what to import. A path that is not there is a problem of the result, not an exception.
        check: go through everything at once and keep no episode.
        reader: reads the samples of logs of Inspect whose task is not ours.

    Returns:
        Without ``check`` the episodes, made while they are taken, with problems and counts that are complete after the
        last one; with it no episodes, and complete problems and counts.

    Raises:
        ImportError: a log of Inspect is there and inspect-ai is not installed.
    """
    ledger = Ledger()
    episodes = _episodes(Path(path), Context(ledger, reader))
    if not check:
        return ImportResult(episodes=episodes, ledger=ledger)
    deque(episodes, maxlen=0)
    return ImportResult(episodes=(), ledger=ledger)


def import_into(path: str | Path, store_directory: str | Path, *, reader: Reader | None = None) -> ImportResult:
    """Read a file or a folder and put its episodes into a store; see `import_path`.

    What the store holds already stays as it is: an episode that is there is left alone, one that is there with other
    content becomes a problem.

    Args:
        path: what to import.
        store_directory: the run directory, made where it is missing.
        reader: see `import_path`.

    Returns:
        The result with complete problems and counts; its episodes are in the store.

    Raises:
        OSError: the store cannot be opened or written; BlockingIOError where another process writes to it.
        ValueError: the store is damaged.
        ImportError: see `import_path`.
    """
    source = Path(path)
    result = import_path(source, reader=reader)
    waiting, ledger = iter(result.episodes), result.ledger
    first = next(waiting, None)
    ledger.counts["episodes stored"] += 0
    if first is not None:
        with Store(store_directory, "w") as store:
            group, steps = list[Episode](), 0
            for episode in chain([first], waiting):
                if len(group) >= _GROUP or steps >= _GROUP_STEPS:
                    _put(store, group, ledger)
                    group, steps = [], 0
                group.append(episode)
                steps += len(episode.steps)
            _put(store, group, ledger)
            store.put_agents((identity, name, about) for identity, (name, about) in sorted(ledger.agents.items()))
            about = {"source": source.resolve().name, "counts": dict(result.counts), "problems": result.problem_count}
            store.put_info("import", about)
    return ImportResult(episodes=(), ledger=ledger)


def _put(store: Store, group: list[Episode], ledger: Ledger) -> None:
    """Store a group; where it holds an episode that cannot be stored, one by one, so that the others are."""
    count = "SELECT COUNT(*) FROM episodes"
    [(before,)] = store.query(count)
    refused = 0
    try:
        store.put_episodes(group)
    except ValueError:
        for episode in group:
            try:
                store.put_episodes([episode])
            except ValueError as error:
                refused += 1
                name = str(episode.tags.get("file") or episode.id)
                ledger.report(name, "", "an episode must be storable beside those that are stored", error)
    [(after,)] = store.query(count)
    ledger.counts["episodes stored"] += int(after - before)
    if known := len(group) - int(after - before) - refused:
        ledger.counts["episodes that were stored before"] += known


def _episodes(path: Path, context: Context) -> Iterator[Episode]:
    ledger = context.ledger
    files: dict[tuple[str, str], list[tuple[Path, str]]] = {key: [] for key in _READERS}
    met = 0
    for file, name in _files_below(path, ledger):
        met += 1
        fits = [key for key in files if key[1] == file.suffix.lower()]
        if len(fits) > 1:
            fits = [(_layout(file), file.suffix.lower())]
        if fits:
            files[fits[0]].append((file, name))
        else:
            ledger.counts["other files left alone"] += 1
    for key, found in files.items():
        for file, name in found:
            yield from _READERS[key](file, name, context)
    if context.table:
        ledger.counts["rows of metrics without an imported trajectory"] += len(context.table)
    if not ledger.counts["files read"] and not ledger.problem_count:
        must = "there must be something to import: .json, .jsonl, .eval or a table of metrics"
        ledger.report(path.name or ".", "", must, f"{met} files, none of them such")


def _layout(path: Path) -> str:
    """Return whose file one is whose ending several layouts have."""
    if path.suffix.lower() == ".json":
        return "inspect" if is_inspect_json(path) else "authors"
    return "authors" if _shows_grids(path) else "log"


def _shows_grids(path: Path) -> bool:
    """Return whether a file of JSON lines is a grid manifest, by its first line that can be read."""
    try:
        with path.open("rb") as stream:
            for _, line in islice(lines(stream), _LINES_LOOKED_AT):
                try:
                    return holds_grid(decode_line(line))
                except UntrustedError:
                    continue
    except (OSError, UntrustedError):
        return False  # the reader of logs reports it
    return False


def _files_below(path: Path, ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield (file, name relative to ``path``) of each regular file, sorted; symbolic links are followed once.

    Folders that link back, pipes, devices and what cannot be opened become problems.
    """
    waiting, seen = [(path, "")], set[tuple[int, int]]()
    while waiting:
        here, relative = waiting.pop()
        name, inside = relative or here.name, list[str]()
        try:
            found = here.stat()
            folder = stat.S_ISDIR(found.st_mode)
            if folder:
                inside = sorted((entry.name for entry in here.iterdir()), reverse=True)
        except (OSError, ValueError) as error:  # a ValueError for a zero byte in the path
            given = error.strerror if isinstance(error, OSError) else error
            ledger.report(name, "", "a file or folder must be there and readable", given)
            continue
        if not folder:
            if stat.S_ISREG(found.st_mode):
                yield here, name
            else:
                ledger.report(name, "", "an import must consist of plain files and folders", "a pipe, socket or device")
        elif (found.st_dev, found.st_ino) in seen:
            ledger.report(name, "", "a folder must be met only once", "a link to a folder read before")
        else:
            seen.add((found.st_dev, found.st_ino))
            waiting.extend((here / entry, f"{relative}/{entry}" if relative else entry) for entry in inside)
