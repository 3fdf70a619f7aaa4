"""Import of whatever a path holds: the layout is found out file by file."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from goalscope.importers.jsonl import jsonl_episodes
from goalscope.importers.problems import ImportResult, Ledger, files_below
from goalscope.importers.telos import File, holds_grid, telos_episodes
from goalscope.importers.telos_trajectory import Context
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.untrusted import UntrustedError, decode_line, lines

_LINES_LOOKED_AT = 5
_GROUP = 64
_GROUP_STEPS = 20_000


def import_path(path: str | Path, *, check: bool = False) -> ImportResult:
    """Read a file or a folder: the authors' layout, our JSON lines, or both.

    Args:
        path: what to import. A path that is not there is a problem of the result, not an exception.
        check: go through everything at once and keep no episode.

    Returns:
        Without ``check`` the episodes, made while they are taken, with problems and counts that are complete after the
        last one; with it no episodes, and complete problems and counts.
    """
    ledger = Ledger()
    episodes = _episodes(Path(path), ledger)
    if not check:
        return ImportResult(episodes=episodes, ledger=ledger)
    for _ in episodes:
        pass
    return ImportResult(episodes=(), ledger=ledger)


def import_into(path: str | Path, store_directory: str | Path) -> ImportResult:
    """Read a file or a folder and put its episodes into a store; see `import_path`.

    What the store holds already stays as it is: an episode that is there is left alone, one that is there with other
    content becomes a problem.

    Args:
        path: what to import.
        store_directory: the run directory, made where it is missing.

    Returns:
        The result with complete problems and counts; its episodes are in the store.

    Raises:
        OSError: the store cannot be opened or written; BlockingIOError where another process writes to it.
        ValueError: the store is damaged.
    """
    source = Path(path)
    result = import_path(source)
    waiting = iter(result.episodes)
    first = next(waiting, None)
    ledger = result.ledger
    if first is None:
        ledger.counts["episodes stored"] += 0
        return ImportResult(episodes=(), ledger=ledger)
    with Store(store_directory, "w") as store:
        group, steps = [first], len(first.steps)
        for episode in waiting:
            if len(group) >= _GROUP or steps >= _GROUP_STEPS:
                _put(store, group, ledger)
                group, steps = [], 0
            group.append(episode)
            steps += len(episode.steps)
        _put(store, group, ledger)
        store.put_agents((identity, name, about) for identity, (name, about) in sorted(ledger.agents.items()))
        settings = {"source": source.resolve().name, "counts": dict(result.counts), "problems": result.problem_count}
        store.put_info("import", settings)
    return ImportResult(episodes=(), ledger=ledger)


def _put(store: Store, group: list[Episode], ledger: Ledger) -> None:
    """Store a group; where it holds an episode that cannot be stored, one by one, so that the others are."""
    before, refused = _stored(store), 0
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
    new = _stored(store) - before
    ledger.counts["episodes stored"] += new
    if len(group) - new - refused:
        ledger.counts["episodes that were stored before"] += len(group) - new - refused


def _stored(store: Store) -> int:
    [(count,)] = store.query("SELECT COUNT(*) FROM episodes")
    return int(count)


def _episodes(path: Path, ledger: Ledger) -> Iterator[Episode]:
    files = list(files_below(path, ledger))
    logs = [file for file in files if file[0].suffix.lower() == ".jsonl" and not _holds_grids(file[0])]
    context = Context(ledger=ledger)
    yield from telos_episodes(_without(files, logs), context)
    for file, name in logs:
        yield from jsonl_episodes(file, name, ledger, context.numbering)
    read = ledger.counts["files read"]
    if not read and not ledger.problem_count:
        must = "there must be something to import: .json, .jsonl or a table of metrics"
        ledger.report(path.name or ".", "", must, f"{len(files)} files, none of them such")


def _without(files: Iterable[File], taken: list[File]) -> list[File]:
    logs = {path for path, _ in taken}
    return [file for file in files if file[0] not in logs]


def _holds_grids(path: Path) -> bool:
    """Return whether a file of JSON lines is a grid manifest, by its first line that can be read."""
    try:
        with path.open("rb") as stream:
            for _, line in islice(lines(stream), _LINES_LOOKED_AT):
                try:
                    value = decode_line(line)
                except UntrustedError:
                    continue
                return holds_grid(value)
    except (OSError, UntrustedError):
        return False  # the reader of logs reports it
    return False
