"""Code shared by all import formats: problems with their locations, counts of comparisons, log lines and grids."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, BinaryIO, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goalscope._ground.untrusted import UntrustedError, decode_line, faults, lines, printable, shorten
from goalscope.runs.record import Episode, World
from goalscope.stats.records import Records
from goalscope.worlds import Grid
from goalscope.worlds.grid import read_open_cells
from goalscope.worlds.gridworld import GridWorld

MOST_PROBLEMS = 1000
"""Maximum number of problems whose text is stored; later ones are only counted."""

TokenId = Annotated[int, Field(ge=0, le=2**32 - 1)]

_MOST_ERRORS_A_RECORD = 5
_MOST_GRID_CHARACTERS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProblem:
    """One error in an imported file, where it is, and what should stand there.

    Attributes:
        source: the file, relative to the imported path.
        where: line, step or JSON path in the file; "" for the whole file.
        must: the violated requirement.
        given: the value found instead; "" if ``must`` mentions it.
    """

    source: str
    where: str
    must: str
    given: str

    def __str__(self) -> str:
        position = f"{self.source}: {self.where}" if self.where else self.source
        got = f"; got {printable(self.given)}" if self.given else ""
        return f"{printable(position)}: {printable(self.must)}{got}"


class ImportLog(Records):
    """What an import has read and which problems it has found; it is complete after the last episode was read.

    Attributes:
        episodes: the episodes, which can be iterated once; empty if they were only checked or are stored.
        problem_count: number of all problems.
        counts: counts by name ("files read", "trajectories", "steps", ...).
        agents: (name, description) of each agent, by its id.
        checked: number of recorded values that were compared with computed ones, by kind of value.
        agreeing: number of equal ones among them, by kind of value.
    """

    def __init__(self) -> None:
        self.episodes: Iterable[Episode] = ()
        self._problems: list[ImportProblem] = []
        self.problem_count = 0
        self.counts: Counter[str] = Counter()
        self.agents: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.checked: Counter[str] = Counter()
        self.agreeing: Counter[str] = Counter()

    def report(self, source: str, where: str, must: str, given: object) -> None:
        """Record one problem of the imported files.

        Args:
            source: the file.
            where: location in the file, such as a line; "" for the whole file.
            must: the violated requirement.
            given: the value found instead.
        """
        self.problem_count += 1
        if len(self._problems) < MOST_PROBLEMS:
            self._problems.append(ImportProblem(source=source, where=where.strip(), must=must, given=str(given)))

    @contextmanager
    def reporting(self, source: str, position: str = "", keys: Iterable[str] = (), count: str = "") -> Iterator[None]:
        """Context in which errors become problems of the import instead of being raised.

        Such errors are an unreadable file, a value that cannot be read, and a record with wrong keys or types.

        Args:
            source: the file.
            position: line or object in the file.
            keys: valid keys of a record, to suggest one for a misspelt key.
            count: name of the count to increase on an error; "" for none.
        """
        try:
            yield
            return
        except OSError as error:
            self.report(source, position, "a file must be readable", error.strerror or error)
        except UntrustedError as error:
            self.report(source, f"{position} {error.where}", error.must, error.given)
        except ValidationError as error:
            errors = faults(error, {"": tuple(keys)})
            for place, must, got in errors[:_MOST_ERRORS_A_RECORD]:
                self.report(source, f"{position} {place}", must, got)
            if len(errors) > _MOST_ERRORS_A_RECORD:
                more = f"{len(errors) - _MOST_ERRORS_A_RECORD} more"
                self.report(source, position, "a record must be valid everywhere", more)
        if count:
            self.counts[count] += 1

    def check(self, name: str, agrees: bool) -> bool:
        """Count one comparison of a recorded value with the value that goalscope computes; return ``agrees`` unchanged.

        Args:
            name: kind of value under which the comparison is counted.
            agrees: whether the two values agree.
        """
        self.checked[name] += 1
        self.agreeing[name] += int(agrees)
        return agrees

    def compare(self, name: str, recorded: object, computed: object, source: str, where: str, must: str = "") -> None:
        """Compare a recorded value with the value that goalscope computes; a difference becomes a problem of the
        import.

        Nothing happens if there is no recorded value (None).

        Args:
            name: kind of value under which the comparison is counted.
            recorded, computed: the values; a recorded float may have a relative difference of 1e-9.
            source, where: file and location of the value.
            must: the requirement; equality to the computed value by default.
        """
        agrees = math.isclose(recorded, computed, rel_tol=1e-9) if isinstance(recorded, float) else recorded == computed  # type: ignore[arg-type]
        if recorded is not None and not self.check(name, agrees):
            self.report(source, where, must or f"it must be {shorten(computed)}", shorten(recorded))

    @property
    def problems(self) -> tuple[ImportProblem, ...]:
        """The first `MOST_PROBLEMS` problems found so far; `problem_count` counts all of them."""
        return tuple(self._problems)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The problems as dictionaries with ``source`` (file), ``where``, ``must`` (requirement) and ``given`` (value
        found).
        """
        return [asdict(problem) for problem in self.problems]

    @property
    def compared(self) -> Mapping[str, tuple[int, int]]:
        """Kind of recorded value -> how many values goalscope computed itself for comparison, and how many of these
        agree.
        """
        return {name: (checked, self.agreeing[name]) for name, checked in self.checked.items()}

    @property
    def exit_status(self) -> int:
        """Exit status of the command: 0 if everything was read and agrees, 1 if there is any problem."""
        return int(self.problem_count > 0)

    def lines(self) -> Iterator[str]:
        """Yield the lines that describe the import to the user: counts, comparisons, then one line per problem."""
        for name, count in self.counts.items():
            yield f"{name}: {count}"
        for name, (checked, agreeing) in self.compared.items():
            yield f"{name}: {agreeing} of {checked} agree"
        for problem in self.problems:
            yield f"problem: {problem}"
        if self.problem_count > len(self.problems):
            yield f"problem: {self.problem_count - len(self.problems)} more, not listed"


STEP_FIELDS = ("text", "reasoning", "prompt_tokens", "output_tokens", "reward")
"""Fields of `Step` in a record, other than state and action."""


def step_fields(record: Any) -> dict[str, Any]:
    """Return the texts, token ids and reward of a step from its record in a log, by the names of the fields of
    `Step`.
    """
    fields = {name: getattr(record, name) for name in STEP_FIELDS}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


class LogLine(BaseModel):
    """Base class of the records that one line of a log may contain; unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ReadLine(NamedTuple):
    """A line of a log that was read.

    The fields are its number from 1, its size in bytes, its JSON value, and the record that was made of it (None if the
    line is invalid).
    """

    number: int
    size: int
    value: Any
    record: Any


def log_lines(
    stream: BinaryIO, source: str, ledger: ImportLog, kind: Callable[[dict[str, Any]], type[BaseModel]], count: str = ""
) -> Iterator[ReadLine]:
    """Yield the lines of a log in JSON lines, each with its checked record; invalid lines are reported as problems.

    Args:
        stream: the open file.
        source: its name in messages.
        ledger: collects the problems.
        kind: returns the class of a line's record, given the line's JSON object.
        count: name of the count to increase for an invalid line; "" for none.

    Raises:
        UntrustedError: the file is binary or empty.
    """
    number = 0
    for number, line_bytes in lines(stream):
        value, record, position = None, None, f"line {number}"
        with ledger.reporting(source, position, count=count):
            value = decode_line(line_bytes)
            if not isinstance(value, dict):
                raise UntrustedError("a line must hold a JSON object", shorten(value))
            model = kind(value)
            with ledger.reporting(source, position, model.model_fields, count):
                record = model.model_validate(value)
        yield ReadLine(number=number, size=len(line_bytes or b""), value=value, record=record)
    if not number:
        raise UntrustedError("a log must hold at least one line", "an empty file")


SampleReader = Callable[[Any, Any], Any]
"""A user's function that receives a sample and the header of its log, and returns an episode."""


class Context:
    """State that the files of one import share: worlds, tables of metrics, and which trajectory numbers are taken.

    Args:
        ledger: problems and counts of the import.
        reader: the user's function that reads samples of logs with other tasks, or None.
    """

    def __init__(self, ledger: ImportLog, reader: SampleReader | None = None) -> None:
        self.ledger, self.reader = ledger, reader  # user's reader for logs of other tasks
        # Recorded metrics by source trajectory id: file, position in it, metrics.
        self.metrics: dict[str, tuple[str, str, Mapping[str, str]]] = {}
        self.sources: dict[str, str] = {}  # files by source trajectory id
        self.worlds: dict[str, World] = {}  # worlds by id; a world keeps the tags of its first trajectory
        # Trajectory numbers by world and agent.
        self.used_numbers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._lowest: Counter[tuple[str, str]] = Counter()

    def register(self, episode: Episode) -> None:
        """Register the world and the trajectory number of an episode that was read, so that later files cannot
        contradict them.

        Raises:
            UntrustedError: the world had another cluster or other tags before, or the number is taken.
        """
        world, spec = episode.world, episode.spec
        if self.worlds.setdefault(world.id, world) != world:
            must = "one world must have one cluster and one set of tags"
            raise UntrustedError(must, f"other ones for {shorten(world.id)}")
        self.reserve_number(world.id, spec.agent_id, spec.trajectory, exact=True)

    def reserve_number(self, world_id: str, agent_id: str, requested: int | None = None, *, exact: bool = False) -> int:
        """Reserve and return the number of a trajectory among those of one agent in one world.

        It is the requested number if this is free, else the lowest free number.

        Args:
            world_id: id of the world.
            agent_id: id of the agent.
            requested: the number that the log states, None if it states none.
            exact: whether the requested number must be free.

        Raises:
            UntrustedError: ``exact`` is set and the requested number is taken.
        """
        key = (world_id, agent_id)
        if exact and requested in self.used_numbers[key]:
            must = "a trajectory's number must be free for its world and agent"
            raise UntrustedError(must, f"{requested} a second time", "trajectory")
        if requested is None or requested in self.used_numbers[key]:
            while self._lowest[key] in self.used_numbers[key]:
                self._lowest[key] += 1
            requested = self._lowest[key]
        self.used_numbers[key].add(requested)
        return requested


def parse_grid(text: str | list[str] | list[list[str]], must: str = "a grid must be readable", where: str = "") -> Grid:
    """Read a grid from its text, its lines, or its symbols by row; open cells may be blanks or points.

    Args:
        text: the grid.
        must: the violated requirement, for the error.
        where: location of the grid in the log, for the error.

    Raises:
        UntrustedError: it is no grid, or too large.
    """
    length = len(text) if isinstance(text, str) else sum(map(len, text))
    if length > _MOST_GRID_CHARACTERS:
        raise UntrustedError(must, f"one of {length} characters, {_MOST_GRID_CHARACTERS} characters at most", where)
    try:
        return Grid.parse(read_open_cells(text))
    except ValueError as error:
        raise UntrustedError(must, _first_line(error), where) from error


def grid_world(grid: Grid, place: str, **settings: Any) -> GridWorld:
    """Make the world of a grid that a log shows as a whole.

    Args:
        grid: the grid.
        place: where the grid stands in the log, for errors.
        settings: further arguments of `GridWorld`.

    Raises:
        UntrustedError: the grid has hidden cells, or lacks the agent or the goal.
    """
    if grid.fog is not None:
        raise UntrustedError("a world must be given without fog (use fog_radius)", "hidden cells (*)", place)
    try:
        return GridWorld(grid=grid, **settings)
    except ValueError as error:
        raise UntrustedError("a world must be a grid with agent and goal", _first_line(error), place) from error


def _first_line(error: ValueError) -> str:
    """Return an error message without the grid that it quotes."""
    return str(error).split("\n", 1)[0]
