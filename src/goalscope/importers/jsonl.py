"""Anybody's logs as JSON lines, one step a line: read as a stream, checked against the rules of the worlds.

Memory holds the episodes that are open (one, where an episode's lines stand together), the declared worlds, and a few
dozen bytes for each episode read. docs/import.md describes the format.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from goalscope.ids import content_id
from goalscope.importers.jsonl_episode import OpenEpisode
from goalscope.importers.jsonl_format import LINES, EpisodeLine, StepLine, WorldLine
from goalscope.importers.problems import ImportResult, Ledger, Numbering, files_below, first_line, parse_grid
from goalscope.runs.record import Episode, World
from goalscope.untrusted import UntrustedError, decode_line, lines, shorten
from goalscope.worlds.gridworld import GridWorld

MOST_OPEN = 64
"""Episodes whose lines may be mixed: with one more, the episode that was begun first is closed."""

MOST_OPEN_BYTES = 256 * 2**20
"""Bytes of lines that open episodes may hold together before the first of them is closed."""

_MOST_BAD_LINES = 10


def read_jsonl(path: str | Path) -> ImportResult:
    """Read a log in our JSON lines format, or a folder of such logs.

    Args:
        path: the file or the folder.

    Returns:
        The episodes, made while they are taken; problems and counts are complete after the last one.
    """
    ledger = Ledger()
    files = [file for file in files_below(Path(path), ledger) if file[0].suffix.lower() == ".jsonl"]
    numbering = Numbering()
    episodes = (episode for file, name in files for episode in jsonl_episodes(file, name, ledger, numbering))
    return ImportResult(episodes=episodes, ledger=ledger)


def jsonl_episodes(path: Path, name: str, ledger: Ledger, numbering: Numbering) -> Iterator[Episode]:
    """Yield the episodes of one log; what cannot be used is reported."""
    ledger.counts["files read"] += 1
    reader = _Reader(name, ledger, numbering)
    whole = False
    with ledger.reporting(name):
        with path.open("rb") as stream:
            for number, line in lines(stream):
                yield from reader.take(number, line)
        if not reader.lines:
            raise UntrustedError("a log must hold at least one line", "an empty file")
        whole = True
    if not whole:
        reader.lost_line()
    yield from reader.close()


class _Reader:
    """Lines of one file to episodes."""

    def __init__(self, source: str, ledger: Ledger, numbering: Numbering) -> None:
        self.source, self.ledger, self.numbering = source, ledger, numbering
        self.lines = 0
        self.worlds: dict[str, World] = {}
        self.known: dict[str, World] = {}
        self.open: dict[str, OpenEpisode] = {}
        self.held = 0  # bytes of the lines of open episodes
        self.closed: set[bytes] = set()
        self.last = ""
        self.broken: set[str] = set()  # names of worlds whose declaration was reported as a problem
        self.lost_lines = 0  # unreadable lines just before the present one: they may be its episode's missing steps
        self.bad_in_a_row = 0

    def take(self, number: int, line: bytes | None) -> Iterator[Episode]:
        """Take one line; yield the episodes that it closes."""
        self.lines += 1
        place = f"line {number}"
        value: Any = None
        record: WorldLine | EpisodeLine | StepLine | None = None
        with self.ledger.reporting(self.source, place):
            value = decode_line(line)
            record = self._record(value, place)
        if record is None:
            self._bad_line(value)
            return
        self.bad_in_a_row = 0
        with self.ledger.reporting(self.source, place):
            if isinstance(record, WorldLine):
                self._declare(record)
            else:
                yield from self._add(record, place, len(line or b""))
        self.lost_lines = 0

    def close(self) -> Iterator[Episode]:
        """Yield the episodes that are still open."""
        for key in list(self.open):
            yield from self._finish(key)

    def lost_line(self) -> None:
        """Note that a line was lost: the episode that was being read lacks it unless it had ended."""
        last = self.open.get(self.last)
        if last is not None and not last.ended:
            last.spoil()
        self.lost_lines += 1

    def _record(self, value: Any, place: str) -> WorldLine | EpisodeLine | StepLine | None:
        if not isinstance(value, dict):
            raise UntrustedError("a line must hold a JSON object", shorten(value))
        kind = value.get("type", "step")
        if not isinstance(kind, str) or kind not in LINES:
            raise UntrustedError(f"type must be one of {', '.join(LINES)}", shorten(kind))
        with self.ledger.reporting(self.source, place, LINES[kind].model_fields):
            return LINES[kind].model_validate(value)
        return None

    def _bad_line(self, value: Any) -> None:
        self.bad_in_a_row += 1
        if self.bad_in_a_row >= _MOST_BAD_LINES:
            must = f"a log must have a good line among {_MOST_BAD_LINES}"
            raise UntrustedError(must, "none; the rest of the file is not read")
        named = value if isinstance(value, dict) else {}
        key, world = named.get("episode"), named.get("id")
        if named.get("type") == "world":
            if isinstance(world, str):
                self.broken.add(world)
        elif not isinstance(key, str):
            self.lost_line()
        elif self._digest(key) not in self.closed:
            self._opened(key).spoil()

    def _declare(self, record: WorldLine) -> None:
        try:
            world = make_world(record.grid, record.fog_radius, record.cluster, record.tags)
        except UntrustedError:
            self.broken.add(record.id)
            raise
        if self.worlds.setdefault(record.id, world) != world:
            raise UntrustedError("a world must be declared once", f"another one named {shorten(record.id)}")
        if self.known.setdefault(world.id, world) != world:
            must = "one world must have one cluster and one set of tags, declared before the first line with its grid"
            raise UntrustedError(must, f"other ones for {shorten(record.id)}")
        self.ledger.counts["worlds declared"] += 1

    def _world(self, grid: str, fog_radius: int | None) -> World:
        """Return the world of a grid that stands on a line, the declared one where there is one."""
        world = make_world(grid, fog_radius)
        return self.known.setdefault(world.id, world)

    def _add(self, record: EpisodeLine | StepLine, place: str, size: int) -> Iterator[Episode]:
        key = record.episode
        if key not in self.open:
            if self._digest(key) in self.closed:
                must = f"lines of an episode must stand together, or among at most {MOST_OPEN} open episodes"
                raise UntrustedError(must, f"a further line of {shorten(key)}, which was closed")
            while self.open and (len(self.open) >= MOST_OPEN or self.held + size > MOST_OPEN_BYTES):
                yield from self._finish(next(iter(self.open)))
        elif self.held + size > MOST_OPEN_BYTES:
            for other in [other for other in self.open if other != key]:
                yield from self._finish(other)
        episode = self._opened(key)
        self.last = key
        episode.size += size
        self.held += size
        if episode.size > MOST_OPEN_BYTES and not episode.spoilt:
            episode.spoil()
            raise UntrustedError(f"an episode must have at most {MOST_OPEN_BYTES} bytes", "more")
        lacking = isinstance(record, StepLine) and record.step > len(episode.steps) and self.lost_lines > 0
        if (lacking or record.world in self.broken) and not episode.spoilt:
            episode.spoil()  # the line that lacks, or the world, was reported already
        episode.take(record, place, self.worlds, self._world)

    def _opened(self, key: str) -> OpenEpisode:
        return self.open.setdefault(key, OpenEpisode(key, self.source, self.ledger))

    def _finish(self, key: str) -> Iterator[Episode]:
        self.closed.add(self._digest(key))
        closing = self.open.pop(key)
        self.held -= closing.size
        episode = closing.finish(self.numbering)
        if episode is not None:
            yield episode

    @staticmethod
    def _digest(key: str) -> bytes:
        return bytes.fromhex(content_id("", key)[1:])


def make_world(grid: str, fog_radius: int | None, cluster: str = "", tags: Any = None) -> World:
    """Return a world from its text.

    Args:
        grid: the text form of the whole grid.
        fog_radius, cluster, tags: as in `World`.

    Raises:
        UntrustedError: the text is no whole grid with agent and goal.
    """
    must = "a world must be a readable grid"
    parsed = parse_grid(grid, must, "grid")
    if parsed.fog is not None:
        raise UntrustedError("a world must be given without fog (use fog_radius)", "hidden cells (*)", "grid")
    try:
        return GridWorld(grid=parsed, fog_radius=fog_radius, cluster=cluster, tags=tags or {})
    except ValueError as error:
        raise UntrustedError(must, first_line(error), "grid") from error
