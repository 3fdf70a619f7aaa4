"""What an import returns: episodes, problems that name their place, and counts of everything that was checked."""

import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from goalscope.runs.record import Episode
from goalscope.untrusted import UntrustedError, faults, printable
from goalscope.worlds import Grid

MOST_PROBLEMS = 1000
"""Problems that are kept with their text; later ones are counted."""

MOST_ERRORS_A_RECORD = 5
MOST_GRID_CHARACTERS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong in somebody's file.

    Attributes:
        source: the file, relative to what was imported.
        where: line, step or JSON path in it, "" for the whole file.
        must: what must hold.
        given: what was found instead, "" where ``must`` says it.
    """

    source: str
    where: str
    must: str
    given: str

    def __str__(self) -> str:
        place = f"{self.source}: {self.where}" if self.where else self.source
        given = f"; got {printable(self.given)}" if self.given else ""
        return f"{printable(place)}: {printable(self.must)}{given}"


class Ledger:
    """Problems and counts of one import while it goes on.

    Attributes:
        problems: the first `MOST_PROBLEMS` problems.
        problem_count: how many there were in all.
        counts: plain counts by name ("files read", "trajectories", "steps", ...).
        agents: (name, description) of each agent met, by its id.
        checked, agreeing: how many recorded values were compared with ours, and how many were equal, by what they are.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.problem_count = 0
        self.counts: Counter[str] = Counter()
        self.agents: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.checked: Counter[str] = Counter()
        self.agreeing: Counter[str] = Counter()

    def report(self, source: str, where: str, must: str, given: object) -> None:
        """Note one problem."""
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(source=source, where=where, must=must, given=str(given)))

    @contextmanager
    def reporting(self, source: str, place: str = "", keys: Iterable[str] = (), count: str = "") -> Iterator[None]:
        """Turn what is raised inside into problems: a file or value that cannot be read, a record that is not valid.

        Args:
            source: the file.
            place: line or object in the file.
            keys: keys that a record may have, for near misses.
            count: the count that goes up where something is raised, "" for none.
        """
        try:
            yield
            return
        except OSError as error:
            self.report(source, place, "a file must be readable", error.strerror or error)
        except UntrustedError as error:
            self.report(source, f"{place} {error.where}".strip(), error.must, error.given)
        except ValidationError as error:
            found = faults(error, {"": tuple(keys)})
            for where, must, given in found[:MOST_ERRORS_A_RECORD]:
                self.report(source, f"{place} {where}".strip(), must, given)
            if len(found) > MOST_ERRORS_A_RECORD:
                more = f"{len(found) - MOST_ERRORS_A_RECORD} more"
                self.report(source, place, "a record must be valid everywhere", more)
        if count:
            self.counts[count] += 1

    def check(self, name: str, agrees: bool) -> bool:
        """Count one comparison of a recorded value with ours, and return whether they agree."""
        self.checked[name] += 1
        self.agreeing[name] += int(agrees)
        return agrees


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What was read. Episodes are made while they are taken: problems and counts are complete after the last one.

    Attributes:
        episodes: the episodes, to be gone through once.
        ledger: problems and counts.
    """

    episodes: Iterable[Episode]
    ledger: Ledger = field(repr=False)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The first `MOST_PROBLEMS` problems found so far."""
        return tuple(self.ledger.problems)

    @property
    def problem_count(self) -> int:
        """How many problems were found so far."""
        return self.ledger.problem_count

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts by name; for each kind of recorded value "NAME checked" and "NAME agreeing"."""
        found = dict(self.ledger.counts)
        for name, checked in self.ledger.checked.items():
            found[f"{name} checked"] = checked
            found[f"{name} agreeing"] = self.ledger.agreeing[name]
        return found

    @property
    def exit_status(self) -> int:
        """0 where everything was read and agrees, 1 where there is any problem."""
        return int(self.problem_count > 0)

    def lines(self) -> Iterator[str]:
        """Yield all that a command prints about the import: counts, comparisons, then one line a problem."""
        for name, count in self.ledger.counts.items():
            yield f"{name}: {count}"
        for name, checked in self.ledger.checked.items():
            yield f"{name}: {self.ledger.agreeing[name]} of {checked} agree"
        for problem in self.ledger.problems:
            yield f"problem: {problem}"
        if self.problem_count > len(self.ledger.problems):
            yield f"problem: {self.problem_count - len(self.ledger.problems)} more, not listed"


class Numbering:
    """Trajectory numbers, unique for each world and agent over one import."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], set[int]] = {}
        self._lowest: Counter[tuple[str, str]] = Counter()

    def take(self, world_id: str, agent_id: str, wanted: int | None = None) -> int:
        """Return the wanted number where it is free, else the smallest free one."""
        taken = self._taken.setdefault((world_id, agent_id), set())
        if wanted is None or wanted in taken:
            while self._lowest[world_id, agent_id] in taken:
                self._lowest[world_id, agent_id] += 1
            wanted = self._lowest[world_id, agent_id]
        taken.add(wanted)
        return wanted

    def free(self, world_id: str, agent_id: str, number: int) -> bool:
        """Return whether a number has not been taken."""
        return number not in self._taken.get((world_id, agent_id), ())


def files_below(path: Path, ledger: Ledger) -> Iterator[tuple[Path, str]]:
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
                must = "an import must consist of plain files and folders"
                ledger.report(name, "", must, "a pipe, socket or device")
        elif (found.st_dev, found.st_ino) in seen:
            ledger.report(name, "", "a folder must be met only once", "a link to a folder read before")
        else:
            seen.add((found.st_dev, found.st_ino))
            waiting.extend((here / entry, f"{relative}/{entry}" if relative else entry) for entry in inside)


def parse_grid(text: str | list[str] | list[list[str]], must: str = "a grid must be readable", where: str = "") -> Grid:
    """Return a grid from its text form.

    Args:
        text: the text, its lines, or its symbols by row.
        must, where: what the error says.

    Raises:
        UntrustedError: see `Grid.parse`; also a text that is too long.
    """
    length = len(text) if isinstance(text, str) else sum(map(len, text))
    if length > MOST_GRID_CHARACTERS:
        raise UntrustedError(must, f"one of {length} characters, {MOST_GRID_CHARACTERS} characters at most", where)
    try:
        return Grid.parse(text)
    except ValueError as error:
        raise UntrustedError(must, first_line(error), where) from error


def first_line(error: ValueError) -> str:
    """Return what an error says without the grid that it shows."""
    return str(error).split("\n", 1)[0]
