"""Logs in JSON lines, one step per line: their records, their export, and their reader, which checks every rule.

A log from any source is read as a stream. Only the open episodes (just one if the lines of each episode are
contiguous), the declared worlds, and a few dozen bytes per finished episode are in memory. docs/import.md describes
every key.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import UntrustedError, shorten
from goalscope.runs.importers.problems import (
    STEP_FIELDS,
    Context,
    LogLine,
    TokenId,
    grid_world,
    log_lines,
    parse_grid,
    step_fields,
)
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.stats.rows import Tag, unreserved
from goalscope.worlds import Action
from goalscope.worlds.dynamics import State, shown, step
from goalscope.worlds.grid import FOG, symbols
from goalscope.worlds.planning import shortest_length, solve

_MOST_NAME = 500
_MOST_STEPS = 10_000_000


def _action(value: Any) -> Any:
    if isinstance(value, str):
        action = Action.__members__.get(value.strip().upper())
        if action is None:
            raise ValueError(
                f"must be UP, DOWN, LEFT or RIGHT (in any case), or null beside a failure, got {shorten(value)}"
            )
        return action.name
    return value


def _no_repeats(value: list[str]) -> list[str]:
    if len(set(value)) < len(value):
        raise ValueError(f"an action must occur once in a set, got {shorten(value)}")
    return value


_Name = Annotated[str, Field(min_length=1, max_length=_MOST_NAME)]
_ActionName = Annotated[str, BeforeValidator(_action)]
_Radius = Annotated[int, Field(ge=1, le=10_000)]
_Tags = Annotated[dict[str, Tag], AfterValidator(unreserved)]


class WorldLine(LogLine):
    """Line of an imported JSON-lines log that declares a world (a grid) under an id, to which later lines refer."""

    type: Literal["world"]
    id: _Name
    grid: str
    fog_radius: _Radius | None = None
    cluster: Annotated[str, Field(max_length=_MOST_NAME)] = ""
    tags: _Tags = Field(default_factory=dict)


class _EpisodeKeys(LogLine):
    episode: _Name
    world: _Name | None = None
    grid: str | None = None
    fog_radius: _Radius | None = None
    agent: _Name | None = None
    agent_id: _Name | None = None
    trajectory: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    seed: int | None = None
    horizon: Annotated[int, Field(ge=1, le=_MOST_STEPS)] | None = None
    rules: Annotated[str, Field(max_length=_MOST_NAME)] | None = None
    outcome: Literal["goal", "horizon", "failure", "stopped"] | None = None
    tags: _Tags | None = None


class EpisodeLine(_EpisodeKeys):
    """Line of an imported JSON-lines log with values of a whole episode, such as its agent and outcome; it is
    optional.
    """

    type: Literal["episode"]


class StepLine(_EpisodeKeys):
    """Line of an imported JSON-lines log that records one step of an episode: position, action or failure, texts, ...

    Any step line may also have the keys of `EpisodeLine`.
    """

    type: Literal["step"] = "step"
    step: Annotated[int, Field(ge=0, lt=_MOST_STEPS)]
    position: Annotated[list[int], Field(min_length=2, max_length=2)]
    action: _ActionName | None
    failure: _Name | None = None
    carrying_key: bool | None = None
    door_open: bool | None = None
    text: str | None = None
    reasoning: str | None = None
    prompt_tokens: list[TokenId] | None = None
    output_tokens: list[TokenId] | None = None
    reward: float | None = None
    optimal_actions: Annotated[list[_ActionName], AfterValidator(_no_repeats)] | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _either(self) -> "StepLine":
        if (self.action is None) == (self.failure is None):
            raise ValueError("a step must have either an action, or action null and the name of a failure")
        return self


EPISODE_KEYS = tuple(name for name in _EpisodeKeys.model_fields if name != "episode")
"""Keys that any line of an episode may have, with the same value on all of them."""

_LINES: dict[str, type[WorldLine | EpisodeLine | StepLine]] = {
    "world": WorldLine,
    "episode": EpisodeLine,
    "step": StepLine,
}


def kind_of(value: dict[str, Any]) -> type[WorldLine | EpisodeLine | StepLine]:
    """Return the class of records that a line of a JSON-lines log belongs to, by its key ``type``; by default a step.

    Args:
        value: the JSON object on the line.

    Raises:
        UntrustedError: the type is unknown.
    """
    kind = value.get("type", "step")
    if not isinstance(kind, str) or kind not in _LINES:
        raise UntrustedError(f"type must be one of {', '.join(_LINES)}", shorten(kind))
    return _LINES[kind]


def write_jsonl(episodes: Iterable[Episode], path: str | Path) -> int:
    """Write episodes to a file of JSON lines: each world once, before its first episode; then an episode line and its
    steps.

    `import_path` restores the ids of specifications, worlds with cluster and tags, all steps, outcome, final state and
    tags. (Tuples in the ``extra`` values of steps become lists, and agents keep only their id and name.) The file gets
    its final name when it is complete.

    Args:
        episodes: the episodes, iterated once.
        path: the file to write.

    Returns:
        Number of episodes written.

    Raises:
        ValueError: for a number that is not finite, a world with two clusters or sets of tags, or a task world.
        TypeError: for an ``extra`` value that JSON cannot represent.
    """
    path = Path(path)
    worlds: dict[str, World] = {}
    count = 0
    with NamedFile(path).writing_text() as stream:
        for episode in episodes:
            world = episode.world
            if world.id not in worlds:
                worlds[world.id] = world
                stream.write(_line(_world(world)))
            elif worlds[world.id] != world:
                raise ValueError(f"a world must have one cluster and one set of tags, got other ones for {world.id}")
            stream.write(_line(_episode(episode, count)))
            for step in episode.steps:
                stream.write(_line({"episode": f"{count}", **_step(step)}))
            count += 1
        stream.flush()
        os.fsync(stream.fileno())
    return count


def _line(value: dict[str, Any]) -> str:
    plain = {key: item for key, item in value.items() if item is not None or key == "action"}
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def _world(world: World) -> dict[str, Any]:
    if world.kind != "grid":  # its grid alone would be read back as another world
        raise ValueError(f"a log of this format must hold episodes on grids, got the {world.kind} {world.id}")
    return {
        "type": "world",
        "id": world.id,
        "grid": world.grid.render(),
        "fog_radius": world.fog_radius,
        "cluster": world.cluster or None,
        "tags": dict(world.tags) or None,
    }


def _episode(episode: Episode, number: int) -> dict[str, Any]:
    spec = episode.spec
    return {
        "type": "episode",
        "episode": f"{number}",
        "world": spec.world_id,
        "agent": episode.agent,
        **{name: getattr(spec, name) for name in ("agent_id", "trajectory", "seed", "horizon")},
        "rules": spec.rules or None,
        "outcome": episode.outcome,
        "tags": dict(episode.tags) or None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "step": step.index,
        "position": step.state.position,
        "action": None if step.action is None else step.action.name,
        "failure": step.failure,
        **{name: getattr(step.state, name) or None for name in ("carrying_key", "door_open")},
        **{name: getattr(step, name) for name in STEP_FIELDS},
        "extra": dict(step.extra) or None,
    }


MOST_OPEN = 64
"""Maximum number of open episodes, whose lines may be interleaved; then the oldest one is closed."""

MOST_OPEN_BYTES = 256 * 2**20
"""Maximum total bytes of the lines of open episodes; then the oldest one is closed."""

UNNAMED_AGENT = "recorded"
"""Name of the agent in logs that name none."""

_MOST_BAD_LINES = 10


def jsonl_episodes(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Read a log in JSON lines, and yield its episodes one by one; unusable lines and episodes are reported as
    problems.

    Args:
        path: the file.
        name: its name in messages.
        context: state of the import, with the list of problems.
    """
    context.ledger.counts["files read"] += 1
    log = _Log(name, context)
    complete = False
    with context.ledger.reporting(name), NamedFile(path).open_file() as stream:
        yield from log.read(stream)
        complete = True
    if not complete:
        log.lost_line()
    yield from log.close(list(log.open))


class _Log:
    """Reader that builds episodes from the lines of one file."""

    def __init__(self, source: str, context: Context) -> None:
        self.source, self.context, self.ledger = source, context, context.ledger
        self.worlds: dict[str, World] = {}  # declared worlds by their names in the log
        self.worlds_by_id: dict[str, World] = {}  # declared or shown worlds by their ids
        self.broken: set[str] = set()  # names of worlds whose declaration was reported as a problem
        self.open: dict[str, _OpenEpisode] = {}
        self.open_bytes = 0  # bytes of the lines of open episodes
        self.closed: set[bytes] = set()
        self.last = ""
        self.lost_lines = 0  # unreadable lines just before this one, which may be missing steps of its episode

    def read(self, stream: BinaryIO) -> Iterator[Episode]:
        """Yield each episode when its last line has been read."""
        bad_lines = 0
        for line in log_lines(stream, self.source, self.ledger, kind_of):
            if line.record is None:
                bad_lines += 1
                if bad_lines >= _MOST_BAD_LINES:
                    must = f"a log must have a good line among {_MOST_BAD_LINES}"
                    raise UntrustedError(must, "none; the rest of the file is not read")
                self._bad_line(line.value)
                continue
            bad_lines, position = 0, f"line {line.number}"
            with self.ledger.reporting(self.source, position):
                if isinstance(line.record, WorldLine):
                    self._declare(line.record)
                else:
                    yield from self._add(line.record, position, line.size)
            self.lost_lines = 0

    def lost_line(self) -> None:
        """Record a lost line: the episode being read is incomplete unless it had ended."""
        last = self.open.get(self.last)
        if last is not None and not last.ended:
            last.spoil()
        self.lost_lines += 1

    def close(self, keys: list[str]) -> Iterator[Episode]:
        """Yield the usable ones among the open episodes with these names."""
        for key in keys:
            self.closed.add(_digest(key))
            closing = self.open.pop(key)
            self.open_bytes -= closing.size
            episode = closing.finish()
            if episode is not None:
                yield episode

    def world_of(self, grid: str, fog_radius: int | None) -> World:
        """Return the world of the grid on a line, preferring a declared world."""
        world: World = grid_world(parse_grid(grid, where="grid"), "grid", fog_radius=fog_radius)
        return self.worlds_by_id.setdefault(world.id, world)

    def _bad_line(self, value: Any) -> None:
        fields = value if isinstance(value, dict) else {}
        key, world = fields.get("episode"), fields.get("id")
        if fields.get("type") == "world":
            if isinstance(world, str):
                self.broken.add(world)
        elif not isinstance(key, str):
            self.lost_line()
        elif _digest(key) not in self.closed:
            self._opened(key).spoil()

    def _declare(self, record: WorldLine) -> None:
        try:
            settings = {name: getattr(record, name) for name in ("fog_radius", "cluster", "tags")}
            world: World = grid_world(parse_grid(record.grid, where="grid"), "grid", **settings)
        except UntrustedError:
            self.broken.add(record.id)
            raise
        if self.worlds.setdefault(record.id, world) != world:
            raise UntrustedError("a world must be declared once", f"another one named {shorten(record.id)}")
        if self.worlds_by_id.setdefault(world.id, world) != world:
            must = "one world must have one cluster and one set of tags, declared before the first line with its grid"
            raise UntrustedError(must, f"other ones for {shorten(record.id)}")
        self.ledger.counts["worlds declared"] += 1

    def _add(self, record: EpisodeLine | StepLine, position: str, size: int) -> Iterator[Episode]:
        key = record.episode
        if key not in self.open and _digest(key) in self.closed:
            must = f"lines of an episode must stand together, or among at most {MOST_OPEN} open episodes"
            raise UntrustedError(must, f"a further line of {shorten(key)}, which was closed")
        while (key not in self.open and len(self.open) >= MOST_OPEN) or self.open_bytes + size > MOST_OPEN_BYTES:
            other_keys = [other for other in self.open if other != key]
            if not other_keys:
                break
            yield from self.close(other_keys[:1])
        episode = self._opened(key)
        self.last = key
        episode.size += size
        self.open_bytes += size
        if episode.size > MOST_OPEN_BYTES and not episode.spoilt:
            episode.spoil()
            raise UntrustedError(f"an episode must have at most {MOST_OPEN_BYTES} bytes", "more")
        step_missing = isinstance(record, StepLine) and record.step > len(episode.steps) and self.lost_lines > 0
        if (step_missing or record.world in self.broken) and not episode.spoilt:
            episode.spoil()  # the missing line or world has already been reported
        episode.take(record, position)

    def _opened(self, key: str) -> "_OpenEpisode":
        return self.open.setdefault(key, _OpenEpisode(key, self))


class _OpenEpisode:
    """An episode whose lines are still being read.

    The first line that contradicts the rules or an earlier line spoils the episode: only that problem is reported,
    later
    lines are counted, and no episode results.
    """

    def __init__(self, key: str, log: _Log) -> None:
        self.key, self.log, self.ledger = key, log, log.ledger
        self.fields: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.world_state: tuple[World, State] | None = None  # the world, and the state after the steps so far
        self.first_line = ""
        self.size = 0
        self.spoilt = False

    @property
    def ended(self) -> bool:
        """Whether no further step is expected: at the goal, or at the stated horizon."""
        at_goal = self.world_state is not None and self.world_state[1].position == self.world_state[0].grid.goal
        return at_goal or len(self.steps) == self.fields.get("horizon")

    def spoil(self) -> None:
        """Discard the episode; the reason was reported."""
        self.spoilt = True
        self.ledger.counts["steps not imported"] += len(self.steps)
        self.steps.clear()

    def take(self, record: EpisodeLine | StepLine, position: str) -> None:
        """Process a line."""
        self.first_line = self.first_line or position
        if not self.spoilt:
            with self._spoiling(position):
                self._merge(record)
                if isinstance(record, StepLine):
                    self._step(record, position)
        if self.spoilt:
            self.ledger.counts["steps not imported"] += int(isinstance(record, StepLine))

    def finish(self) -> Episode | None:
        """Return the episode, or None if it was spoilt."""
        if not self.spoilt:
            with self._spoiling(self.first_line):
                episode = self._episode()
                self.ledger.counts["trajectories"] += 1
                self.ledger.counts["steps"] += len(episode.steps)
                return episode
        self.ledger.counts["trajectories not imported"] += 1
        return None

    @contextmanager
    def _spoiling(self, position: str) -> Iterator[None]:
        try:
            yield
        except UntrustedError as error:
            self.spoil()
            must = f"{error.must} (episode {shorten(self.key)} is not imported)"
            self.ledger.report(self.log.source, f"{position} {error.where}", must, error.given)

    def _merge(self, record: EpisodeLine | StepLine) -> None:
        """Merge a line's fields that describe the whole episode; they must not contradict an earlier line."""
        for name in EPISODE_KEYS:
            value = getattr(record, name)
            if value is not None and name != "grid" and self.fields.setdefault(name, value) != value:
                must = f"{name} must be the same on all lines of an episode: {shorten(self.fields[name])}"
                raise UntrustedError(must, shorten(value), name)
        grid, world_name = record.grid, self.fields.get("world")
        if self.world_state is not None:
            if grid not in (None, self.fields.get("grid")):
                self._check_grid(grid, *self.world_state)
            return
        if grid is not None:
            self.fields["grid"] = grid
        grid, radius = self.fields.get("grid"), self.fields.get("fog_radius")
        if world_name is not None:
            if world_name not in self.log.worlds:
                raise UntrustedError("a world must be declared on an earlier line", shorten(world_name), "world")
            world = self.log.worlds[world_name]
            if radius not in (None, world.fog_radius):
                raise UntrustedError(f"fog_radius must be that of its world: {world.fog_radius}", shorten(radius))
            self.world_state = world, begin(world)
            if grid is not None:
                self._check_grid(grid, *self.world_state)
        elif grid is not None:
            world = self.log.world_of(grid, radius)
            self.world_state = world, begin(world)

    def _check_grid(self, text: str, world: World, state: State) -> None:
        """Raise an error unless a grid on a line shows the world itself or the state before the step."""
        grid = parse_grid(text, where="grid")
        recorded, computed = symbols(grid), symbols(shown(world.grid, state))
        hidden = (recorded == FOG) & (world.fog_radius is not None)
        if grid != world.grid and (recorded.shape != computed.shape or not ((recorded == computed) | hidden).all()):
            must = "a grid must show the episode's world, or its state before the step"
            raise UntrustedError(must, "another grid", "grid")

    def _world_and_state(self) -> tuple[World, State]:
        if self.world_state is None:
            raise UntrustedError("an episode must name its world or show its grid on its first line", "neither")
        return self.world_state

    def _step(self, record: StepLine, position: str) -> None:
        world, state = self._world_and_state()
        self._check_step(record, world, state)
        if record.optimal_actions is not None:
            optimal = solve(world.grid).optimal_in(state)
            optimal_names = sorted(action.name for action in Action if optimal[action])
            must = f"the optimal actions at {state.position} are {optimal_names}"
            recorded = sorted(record.optimal_actions)
            self.ledger.compare(
                "optimal-action labels", recorded, optimal_names, self.log.source, f"{position} optimal_actions", must
            )
        if self.steps:
            self.ledger.check("transitions", True)
        action = None if record.action is None else Action[record.action]
        self.steps.append(
            Step(
                index=record.step,
                state=state,
                action=action,
                failure=record.failure,
                **step_fields(record),
                extra=dict(record.extra or {}),
            )
        )
        self.world_state = world, state if action is None else step(world.grid, state, action)

    def _check_step(self, record: StepLine, world: World, state: State) -> None:
        """Raise an error unless a step has the next number and starts where the rules put the agent."""
        index = len(self.steps)
        if record.step != index:
            repeated = record.step < index
            must = "a step must occur once" if repeated else f"steps must be numbered in order: {index} comes next"
            raise UntrustedError(must, f"step {record.step}{' again' if repeated else ''}")
        if state.position == world.grid.goal:
            raise UntrustedError("an episode must end at the goal", f"a further step {record.step}")
        position = (record.position[0], record.position[1])
        if position != state.position:
            reason = f"the agent must begin at {state.position}, where its world shows it"
            if self.steps:
                self.ledger.check("transitions", False)
                previous = self.steps[-1]
                previous_action = previous.action.name if previous.action is not None else "no action"
                reason = (
                    f"after {previous_action} at {previous.state.position} the agent must stand at {state.position}"
                )
            raise UntrustedError(reason, shorten(position), "position")
        for name, computed in (("carrying_key", state.carrying_key), ("door_open", state.door_open)):
            if getattr(record, name) not in (None, computed):
                raise UntrustedError(f"{name} must be {computed} by the rules", shorten(getattr(record, name)), name)
        if self.steps and index >= (self.fields.get("horizon") or index + 1):
            must = f"an episode must end at its horizon of {self.fields['horizon']} steps"
            raise UntrustedError(must, "a further step")

    def _episode(self) -> Episode:
        fields, (world, state) = self.fields, self._world_and_state()
        n_steps = len(self.steps)
        reached = state.position == world.grid.goal
        outcome: Outcome = fields.get("outcome") or (
            "goal" if reached else "horizon" if n_steps == fields.get("horizon") else "stopped"
        )
        default_horizon = 0 if outcome == "horizon" else math.ceil(1.5 * shortest_length(world.grid))
        horizon = fields.get("horizon") or max(default_horizon, n_steps, 1)
        if not self.ledger.check("outcomes", (outcome == "goal") == reached):
            must = f"the outcome must{'' if reached else ' not'} be 'goal', as the agent ends at {state.position}"
            raise UntrustedError(must, shorten(outcome), "outcome")
        if outcome == "horizon" and n_steps != horizon:
            must = f"an episode that ends at its horizon must have {horizon} steps"
            raise UntrustedError(must, f"{n_steps}", "outcome")
        agent, context = fields.get("agent", UNNAMED_AGENT), self.log.context
        agent_id = fields.get("agent_id") or content_id("agent", {"recorded": agent})
        number = context.reserve_number(world.id, agent_id, fields.get("trajectory"), exact=True)
        self.ledger.agents.setdefault(agent_id, (agent, {"recorded": agent}))
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=agent_id,
            trajectory=number,
            seed=fields.get("seed", 0),
            horizon=horizon,
            rules=fields.get("rules", ""),
        )
        return Episode(
            spec=spec,
            world=world,
            agent=agent,
            steps=tuple(self.steps),
            final=state,
            outcome=outcome,
            tags=fields.get("tags", {}),
        )


def _digest(key: str) -> bytes:
    return bytes.fromhex(content_id("", key)[1:])
