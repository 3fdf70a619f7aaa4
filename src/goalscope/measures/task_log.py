"""Score episodes of task worlds from JSON lines, one by one.

Each line holds an episode, or declares a named map for later lines. docs/exploration.md describes both.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import UntrustedError, faults, shorten
from goalscope.agents.agent import Turn
from goalscope.measures.exploration.graphs import GraphStep, TaskGraph, score_graph
from goalscope.measures.exploration.score import AllSteps, Distances, EpisodeErrors, score_episode
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.importers.problems import ImportLog, LogLine, log_lines
from goalscope.runs.record import Episode, EpisodeSpec
from goalscope.runs.store import Store
from goalscope.stats.rows import RESERVED, Tag
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskWorld

_MOST_MAPS = 10_000
_GROUP = 64  # number of episodes stored together
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Kind = TypeVar("_Kind", TaskMap, TaskGraph)


class _MapLine(LogLine):
    name: _Name
    map: Any


class _Played(LogLine):
    episode: _Name | None = None
    agent: _Name | None = None
    tags: dict[str, Tag] = Field(default_factory=dict)


class _EpisodeLine(_Played):
    map: Any
    actions: list[str | None]


class _GraphLine(LogLine):
    name: _Name
    graph: Any


class _VisitsLine(_Played):
    graph: Any
    visits: list[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEpisode:
    """One scored episode that was read from a log of an exploration task.

    Attributes:
        line: number of its line in the log, 1-based.
        episode: its name in the log; "line N" if it has none.
        agent: name of the agent, "" if it has none.
        tags: named facts about the episode that the log states.
        map_id: content id of the map or graph.
        task_map: the map; None for an episode on a graph.
        score: exploration and exploitation errors, by step and as a summary.
    """

    line: int
    episode: str
    agent: str
    tags: Mapping[str, Tag]
    map_id: str
    task_map: TaskMap | None
    score: EpisodeErrors[AllSteps | tuple[GraphStep, ...]]


def score_task_log(
    path: Path,
    ledger: ImportLog,
    *,
    distances: Distances = "known",
    progress: Callable[[int], None] | None = None,
) -> Iterator[LoggedEpisode]:
    """Score the exploration and exploitation errors of the episodes in a log of JSON lines, one episode at a time.

    A line that cannot be scored is reported as a problem with its number.

    Args:
        path: path of the log.
        ledger: collects problems and counts.
        distances: graph on which distances to targets are measured, see `score_episode`.
        progress: called with the number of bytes read so far.

    Raises:
        OSError: if the file cannot be read.
    """
    log = _Log(distances)
    bytes_read, rejected = 0, "lines refused"
    with ledger.reporting(path.name), NamedFile(path).open_file() as stream:
        for line in log_lines(stream, path.name, ledger, _line_type, rejected):
            bytes_read += line.size
            ledger.counts["lines"] += 1
            with ledger.reporting(path.name, f"line {line.number}", count=rejected):
                if isinstance(line.record, _EpisodeLine | _VisitsLine):
                    yield log.score(line.record, line.number)
                    ledger.counts["episodes"] += 1
                elif line.record is not None:
                    log.declare(line.record, line.number)
                    ledger.counts["maps declared"] += 1
            if progress is not None:
                progress(bytes_read)


class LoggedRun:
    """Writes the episodes of a log into the store of a run, so that measures and reports work as for any run.

    Args:
        store: a store open for writing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trajectory_counts: Counter[tuple[str, str]] = Counter()
        self._agents: dict[str, str] = {}
        self._group: list[Episode] = []

    def add(self, line: LoggedEpisode) -> None:
        """Add a scored episode to the run; episodes are written in groups.

        Raises:
            ValueError: if the episode is on a graph, which is not a world.
        """
        steps = line.score.steps
        if line.task_map is None or not isinstance(steps, AllSteps):
            raise ValueError(f"a run stores episodes on task maps, but line {line.line} is on a graph: leave it out")
        world = TaskWorld(task_map=line.task_map, tags={"kind": "task-map"})
        agent = line.agent or "(no name)"
        agent_id = content_id("agent", {"recorded": agent})
        self._agents[agent_id] = agent
        trajectory = self._trajectory_counts[world.id, agent_id]
        self._trajectory_counts[world.id, agent_id] += 1
        spec = EpisodeSpec(
            world_id=world.id, agent_id=agent_id, trajectory=trajectory, seed=0, horizon=line.task_map.budget
        )
        live = LiveEpisode(spec, world, None)
        for step in steps:
            live.apply(Turn(action=step.action, failure=None if step.action is not None else "unparsable"))
        live.outcome = live.outcome or "stopped"
        self._group.append(live.record(agent, _storable({"episode": line.episode, **line.tags})))
        if len(self._group) >= _GROUP:
            self._store_group()

    def close(self, source: str, ledger: ImportLog) -> None:
        """Write into the store what `add` has not written yet: the last episodes, their agents, and the origin of the
        run.

        Args:
            source: name of the log, to be stored.
            ledger: the log's numbers of episodes and of problems, to be stored with its name.
        """
        self._store_group()
        self._store.put_agents((agent_id, name, {"recorded": name}) for agent_id, name in sorted(self._agents.items()))
        origin = {"source": source, "counts": dict(ledger.counts), "problems": ledger.problem_count}
        self._store.put_info("import", origin)

    def _store_group(self) -> None:
        if self._group:
            self._store.put_episodes(self._group)
        self._group = []


def _storable(tags: Mapping[str, Tag]) -> dict[str, Tag]:
    """Rename tags that clash with reserved row names or the kind of the world: they get the prefix ``log ``."""
    return {f"log {name}" if name in {*RESERVED, "kind"} else name: value for name, value in tags.items()}


def _line_type(value: dict[str, Any]) -> type[LogLine]:
    if "graph" in value:
        return _VisitsLine if "visits" in value or "episode" in value else _GraphLine
    if not value.keys() & {"actions", "episode", "name"}:
        raise UntrustedError("a line must hold the actions of an episode or declare a named map", "neither")
    return _EpisodeLine if "actions" in value or "episode" in value else _MapLine


class _Log:
    """Maps and episode names of a log so far."""

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._maps: dict[str, TaskMap | TaskGraph | int] = {}
        self._first_lines: dict[tuple[str, str, str], int] = {}

    def declare(self, record: _MapLine | _GraphLine, number: int) -> None:
        """Remember a map or graph by its name."""
        if record.name in self._maps:
            raise UntrustedError("each name of a map must be declared once", f"{shorten(record.name)} again", "name")
        if len(self._maps) >= _MOST_MAPS:
            raise UntrustedError(f"a log must declare at most {_MOST_MAPS} maps", "more", "name")
        self._maps[record.name] = number  # kept for invalid maps too, so that errors of their episodes can refer to it
        self._maps[record.name] = _graph(record.graph) if isinstance(record, _GraphLine) else _map(record.map)

    def score(self, record: _EpisodeLine | _VisitsLine, number: int) -> LoggedEpisode:
        """Score an episode. Refuse one that occurs twice in the log, because its weight would double."""
        name, agent = record.episode or f"line {number}", record.agent or ""
        task_map: TaskMap | None = None
        score: EpisodeErrors[AllSteps | tuple[GraphStep, ...]]
        if isinstance(record, _VisitsLine):
            if self._distances != "known":
                raise UntrustedError("episodes on graphs must be scored with distances known", self._distances, "graph")
            graph = self._declared(record.graph, "graph", TaskGraph, _graph)
            map_id = graph.id
            with _splitting("visits"):
                score = score_graph(graph, record.visits)
        else:
            task_map = self._declared(record.map, "map", TaskMap, _map)
            map_id = task_map.id
            with _splitting("actions"):
                score = score_episode(task_map, record.actions, distances=self._distances)
        scored = LoggedEpisode(
            line=number, episode=name, agent=agent, tags=record.tags, map_id=map_id, task_map=task_map, score=score
        )
        if record.episode is not None:
            first = self._first_lines.setdefault((agent, map_id, name), number)
            if first != number:
                repetition = f"{shorten(name)} of the same agent on the same map again, as on line {first}"
                raise UntrustedError("each episode must occur once in a log", repetition, "episode")
        return scored

    def _declared(self, value: Any, noun: str, kind: type[_Kind], read: Callable[[Any], _Kind]) -> _Kind:
        """Return a map or graph that was given directly or by the name of an earlier line."""
        if not isinstance(value, str):
            return read(value)
        declared = self._maps.get(value)
        if isinstance(declared, int):
            problem = f"the one that line {declared} declares, which is invalid"
            raise UntrustedError(f"the {noun} of an episode must be valid", problem, noun)
        if not isinstance(declared, kind):
            must = f"{noun} must be a {noun}, or the name of one declared on an earlier line"
            raise UntrustedError(must, shorten(value), noun)
        return declared


def _graph(value: Any) -> TaskGraph:
    try:
        return TaskGraph.model_validate(value)
    except ValidationError as error:
        place, must, refused_value = faults(error, {"": list(TaskGraph.model_fields)})[0]
        raise UntrustedError(must, refused_value, f"graph.{place}" if place else "graph") from None


def _map(value: Any) -> TaskMap:
    with _splitting("map"):
        return TaskMap.from_plain(value)


@contextmanager
def _splitting(place: str) -> Iterator[None]:
    """Split the messages of raised errors into requirement and value."""
    try:
        yield
    except ValueError as error:
        must, _, value = str(error).partition(", got ")
        raise UntrustedError(must, value, place) from error
