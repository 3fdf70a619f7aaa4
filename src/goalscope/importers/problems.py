"""What an import returns: episodes, problems that name their place, and counts of everything that was checked."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from goalscope.runs.record import Episode

MOST_PROBLEMS = 1000
"""Problems that are kept with their text; later ones are counted."""

_LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong in somebody's file.

    Attributes:
        source: the file, relative to what was imported.
        where: line, step or JSON path in it, "" for the whole file.
        must: what must hold.
        given: what was found instead.
    """

    source: str
    where: str
    must: str
    given: str

    def __str__(self) -> str:
        place = f"{self.source}: {self.where}" if self.where else self.source
        return ": ".join((printable(place), f"{printable(self.must)}; got {printable(self.given)}"))


def printable(text: str) -> str:
    """Return one line that no terminal acts upon: control characters escaped, long text cut in its middle."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[: _LONGEST_TEXT - 60]} ... {text[-50:]}"
    return "".join(
        symbol if symbol.isprintable() else symbol.encode("unicode_escape", "backslashreplace").decode("ascii")
        for symbol in text
    )


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
