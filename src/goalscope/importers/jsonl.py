"""Anybody's logs as JSON lines, one step a line: read as a stream, checked against the rules of the worlds.

Memory holds the episodes that are open (one, where an episode's lines stand together), the declared worlds, and a few
dozen bytes for each episode read. docs/import.md describes the format.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from goalscope.ids import content_id
from goalscope.importers.jsonl_format import EPISODE_KEYS, EpisodeLine, StepLine, WorldLine, kind_of
from goalscope.importers.problems import Context, grid_world, log_lines, parse_grid, said_in
from goalscope.planning import shortest_length, solve
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.untrusted import UntrustedError, shorten
from goalscope.worlds import Action
from goalscope.worlds.dynamics import State, shown, step
from goalscope.worlds.grid import FOG, symbols

MOST_OPEN = 64
"""Episodes whose lines may be mixed: with one more, the episode that was begun first is closed."""

MOST_OPEN_BYTES = 256 * 2**20
"""Bytes of lines that open episodes may hold together before the first of them is closed."""

UNNAMED_AGENT = "recorded"
"""Agent of logs that name none."""

_MOST_BAD_LINES = 10


def jsonl_episodes(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Yield the episodes of one log; what cannot be used is reported."""
    context.ledger.counts["files read"] += 1
    log = _Log(name, context)
    whole = False
    with context.ledger.reporting(name), path.open("rb") as stream:
        yield from log.read(stream)
        whole = True
    if not whole:
        log.lost_line()
    yield from log.close(list(log.open))


class _Log:
    """Lines of one file to episodes."""

    def __init__(self, source: str, context: Context) -> None:
        self.source, self.context, self.ledger = source, context, context.ledger
        self.worlds: dict[str, World] = {}  # declared, by their names in the log
        self.known: dict[str, World] = {}  # declared or shown, by their ids
        self.broken: set[str] = set()  # names of worlds whose declaration was reported as a problem
        self.open: dict[str, _OpenEpisode] = {}
        self.held = 0  # bytes of the lines of open episodes
        self.closed: set[bytes] = set()
        self.last = ""
        self.lost_lines = 0  # unreadable lines just before the present one: they may be its episode's missing steps

    def read(self, stream: BinaryIO) -> Iterator[Episode]:
        """Yield the episodes that the lines close."""
        bad = 0
        for line in log_lines(stream, self.source, self.ledger, kind_of):
            if line.record is None:
                bad += 1
                if bad >= _MOST_BAD_LINES:
                    must = f"a log must have a good line among {_MOST_BAD_LINES}"
                    raise UntrustedError(must, "none; the rest of the file is not read")
                self._bad_line(line.value)
                continue
            bad, place = 0, f"line {line.number}"
            with self.ledger.reporting(self.source, place):
                if isinstance(line.record, WorldLine):
                    self._declare(line.record)
                else:
                    yield from self._add(line.record, place, line.size)
            self.lost_lines = 0

    def lost_line(self) -> None:
        """Note that a line was lost: the episode that was being read lacks it unless it had ended."""
        last = self.open.get(self.last)
        if last is not None and not last.ended:
            last.spoil()
        self.lost_lines += 1

    def close(self, keys: list[str]) -> Iterator[Episode]:
        """Yield those open episodes of these names that can be used."""
        for key in keys:
            self.closed.add(_digest(key))
            closing = self.open.pop(key)
            self.held -= closing.size
            episode = closing.finish()
            if episode is not None:
                yield episode

    def world_of(self, grid: str, fog_radius: int | None) -> World:
        """Return the world of a grid that stands on a line, the declared one where there is one."""
        world: World = grid_world(parse_grid(grid, where="grid"), "grid", fog_radius=fog_radius)
        return self.known.setdefault(world.id, world)

    def _bad_line(self, value: Any) -> None:
        named = value if isinstance(value, dict) else {}
        key, world = named.get("episode"), named.get("id")
        if named.get("type") == "world":
            if isinstance(world, str):
                self.broken.add(world)
        elif not isinstance(key, str):
            self.lost_line()
        elif _digest(key) not in self.closed:
            self._opened(key).spoil()

    def _declare(self, record: WorldLine) -> None:
        try:
            about = {name: getattr(record, name) for name in ("fog_radius", "cluster", "tags")}
            world: World = grid_world(parse_grid(record.grid, where="grid"), "grid", **about)
        except UntrustedError:
            self.broken.add(record.id)
            raise
        if self.worlds.setdefault(record.id, world) != world:
            raise UntrustedError("a world must be declared once", f"another one named {shorten(record.id)}")
        if self.known.setdefault(world.id, world) != world:
            must = "one world must have one cluster and one set of tags, declared before the first line with its grid"
            raise UntrustedError(must, f"other ones for {shorten(record.id)}")
        self.ledger.counts["worlds declared"] += 1

    def _add(self, record: EpisodeLine | StepLine, place: str, size: int) -> Iterator[Episode]:
        key = record.episode
        if key not in self.open and _digest(key) in self.closed:
            must = f"lines of an episode must stand together, or among at most {MOST_OPEN} open episodes"
            raise UntrustedError(must, f"a further line of {shorten(key)}, which was closed")
        while (key not in self.open and len(self.open) >= MOST_OPEN) or self.held + size > MOST_OPEN_BYTES:
            others = [other for other in self.open if other != key]
            if not others:
                break
            yield from self.close(others[:1])
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
        episode.take(record, place)

    def _opened(self, key: str) -> "_OpenEpisode":
        return self.open.setdefault(key, _OpenEpisode(key, self))


class _OpenEpisode:
    """What is known about an episode so far.

    The first line that contradicts the rules or what was said before spoils it: that one problem is reported, the
    lines that follow are counted, and no episode comes of it.
    """

    def __init__(self, key: str, log: _Log) -> None:
        self.key, self.log, self.ledger = key, log, log.ledger
        self.said: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.begun: tuple[World, State] | None = None  # the world, and the state after the steps so far
        self.place = ""
        self.size = 0
        self.spoilt = False

    @property
    def ended(self) -> bool:
        """Whether no further step is due: at the goal, or at the stated horizon."""
        at_goal = self.begun is not None and self.begun[1].position == self.begun[0].grid.goal
        return at_goal or len(self.steps) == self.said.get("horizon")

    def spoil(self) -> None:
        """Give the episode up; the reason was reported."""
        self.spoilt = True
        self.ledger.counts["steps not imported"] += len(self.steps)
        self.steps.clear()

    def take(self, record: EpisodeLine | StepLine, place: str) -> None:
        """Take a line."""
        self.place = self.place or place
        if not self.spoilt:
            with self._spoiling(place):
                self._merge(record)
                if isinstance(record, StepLine):
                    self._step(record, place)
        if self.spoilt:
            self.ledger.counts["steps not imported"] += int(isinstance(record, StepLine))

    def finish(self) -> Episode | None:
        """Return the episode, None where it was spoilt."""
        if not self.spoilt:
            with self._spoiling(self.place):
                episode = self._episode()
                self.ledger.counts["trajectories"] += 1
                self.ledger.counts["steps"] += len(episode.steps)
                return episode
        self.ledger.counts["trajectories not imported"] += 1
        return None

    @contextmanager
    def _spoiling(self, place: str) -> Iterator[None]:
        try:
            yield
        except UntrustedError as error:
            self.spoil()
            must = f"{error.must} (episode {shorten(self.key)} is not imported)"
            self.ledger.report(self.log.source, f"{place} {error.where}", must, error.given)

    def _merge(self, record: EpisodeLine | StepLine) -> None:
        """Keep what the line says about the whole episode; it must not contradict an earlier line."""
        for name in EPISODE_KEYS:
            value = getattr(record, name)
            if value is not None and name != "grid" and self.said.setdefault(name, value) != value:
                must = f"{name} must be the same on all lines of an episode: {shorten(self.said[name])}"
                raise UntrustedError(must, shorten(value), name)
        grid, named = record.grid, self.said.get("world")
        if self.begun is not None:
            if grid not in (None, self.said.get("grid")):
                self._check_grid(grid, *self.begun)
            return
        if grid is not None:
            self.said["grid"] = grid
        grid, radius = self.said.get("grid"), self.said.get("fog_radius")
        if named is not None:
            if named not in self.log.worlds:
                raise UntrustedError("a world must be declared on an earlier line", shorten(named), "world")
            world = self.log.worlds[named]
            if radius not in (None, world.fog_radius):
                raise UntrustedError(f"fog_radius must be that of its world: {world.fog_radius}", shorten(radius))
            self.begun = world, begin(world)
            if grid is not None:
                self._check_grid(grid, *self.begun)
        elif grid is not None:
            world = self.log.world_of(grid, radius)
            self.begun = world, begin(world)

    def _check_grid(self, text: str, world: World, state: State) -> None:
        """Require that a grid shown on a line is the world itself or the state before the step."""
        grid = parse_grid(text, where="grid")
        given, ours = symbols(grid), symbols(shown(world.grid, state))
        hidden = (given == FOG) & (world.fog_radius is not None)
        if grid != world.grid and (given.shape != ours.shape or not ((given == ours) | hidden).all()):
            must = "a grid must show the episode's world, or its state before the step"
            raise UntrustedError(must, "another grid", "grid")

    def _world_and_state(self) -> tuple[World, State]:
        if self.begun is None:
            raise UntrustedError("an episode must name its world or show its grid on its first line", "neither")
        return self.begun

    def _step(self, record: StepLine, place: str) -> None:
        world, state = self._world_and_state()
        self._check_step(record, world, state)
        if record.optimal_actions is not None:
            optimal = solve(world.grid).optimal_in(state)
            right = sorted(each.name for each in Action if optimal[each])
            must = f"the optimal actions at {state.position} are {right}"
            given = sorted(record.optimal_actions)
            self.ledger.compare(
                "optimal-action labels", given, right, self.log.source, f"{place} optimal_actions", must
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
                **said_in(record),
                extra=dict(record.extra or {}),
            )
        )
        self.begun = world, state if action is None else step(world.grid, state, action)

    def _check_step(self, record: StepLine, world: World, state: State) -> None:
        """Require that a step is the next one, and that it begins where the rules say that the agent is."""
        index = len(self.steps)
        if record.step != index:
            twice = record.step < index
            must = "a step must occur once" if twice else f"steps must be numbered in order: {index} comes next"
            raise UntrustedError(must, f"step {record.step}{' again' if twice else ''}")
        if state.position == world.grid.goal:
            raise UntrustedError("an episode must end at the goal", f"a further step {record.step}")
        position = (record.position[0], record.position[1])
        if position != state.position:
            reason = f"the agent must begin at {state.position}, where its world shows it"
            if self.steps:
                self.ledger.check("transitions", False)
                before = self.steps[-1]
                did = before.action.name if before.action is not None else "no action"
                reason = f"after {did} at {before.state.position} the agent must stand at {state.position}"
            raise UntrustedError(reason, shorten(position), "position")
        for name, ours in (("carrying_key", state.carrying_key), ("door_open", state.door_open)):
            if getattr(record, name) not in (None, ours):
                raise UntrustedError(f"{name} must be {ours} by the rules", shorten(getattr(record, name)), name)
        if self.steps and index >= (self.said.get("horizon") or index + 1):
            must = f"an episode must end at its horizon of {self.said['horizon']} steps"
            raise UntrustedError(must, "a further step")

    def _episode(self) -> Episode:
        said, (world, state) = self.said, self._world_and_state()
        taken = len(self.steps)
        reached = state.position == world.grid.goal
        outcome: Outcome = said.get("outcome") or (
            "goal" if reached else "horizon" if taken == said.get("horizon") else "stopped"
        )
        usual = 0 if outcome == "horizon" else math.ceil(1.5 * shortest_length(world.grid))
        horizon = said.get("horizon") or max(usual, taken, 1)
        if not self.ledger.check("outcomes", (outcome == "goal") == reached):
            must = f"the outcome must{'' if reached else ' not'} be 'goal', as the agent ends at {state.position}"
            raise UntrustedError(must, shorten(outcome), "outcome")
        if outcome == "horizon" and taken != horizon:
            must = f"an episode that ends at its horizon must have {horizon} steps"
            raise UntrustedError(must, f"{taken}", "outcome")
        agent, context = said.get("agent", UNNAMED_AGENT), self.log.context
        agent_id = said.get("agent_id") or content_id("agent", {"recorded": agent})
        number = context.number(world.id, agent_id, said.get("trajectory"), exact=True)
        self.ledger.agents.setdefault(agent_id, (agent, {"recorded": agent}))
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=agent_id,
            trajectory=number,
            seed=said.get("seed", 0),
            horizon=horizon,
            rules=said.get("rules", ""),
        )
        return Episode(
            spec=spec,
            world=world,
            agent=agent,
            steps=tuple(self.steps),
            final=state,
            outcome=outcome,
            tags=said.get("tags", {}),
        )


def _digest(key: str) -> bytes:
    return bytes.fromhex(content_id("", key)[1:])
