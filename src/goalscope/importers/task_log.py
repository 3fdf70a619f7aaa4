"""Somebody else's episodes of task worlds as JSON lines, scored one by one: a stream in, scores and problems out.

A line holds an episode, or declares a map that later lines name. docs/exploration.md describes both.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalscope.importers.problems import Ledger
from goalscope.importers.reading import UnreadableError, decode_line, lines, show
from goalscope.measures.exploration.records import EpisodeScore
from goalscope.measures.exploration.score import score_episode
from goalscope.measures.exploration.view import Distances
from goalscope.worlds.tasks.taskmap import TaskMap

MOST_MAPS = 10_000
"""Maps that a log may declare."""

_EPISODE_KEYS = ("episode", "map", "actions", "agent", "tags")
_MAP_KEYS = ("name", "map")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredLine:
    """One scored episode of a log.

    Attributes:
        line: its line, 1-based.
        episode: its name in the log; "line N" where it has none.
        agent: the agent's name, "" where it has none.
        tags: plain values by name.
        task_map: the map.
        score: steps and summary.
    """

    line: int
    episode: str
    agent: str
    tags: Mapping[str, str | int | float | bool | None]
    task_map: TaskMap
    score: EpisodeScore


def score_task_log(
    path: Path,
    ledger: Ledger,
    *,
    distances: Distances = "known",
    progress: Callable[[int], None] | None = None,
) -> Iterator[ScoredLine]:
    """Yield the score of each episode of a log; a line that cannot be scored becomes a problem that names it.

    Args:
        path: the log.
        ledger: where problems and counts go.
        distances: see `score_episode`.
        progress: called with the number of bytes read so far.

    Raises:
        OSError: the file cannot be read.
    """
    maps: dict[str, TaskMap | int] = {}
    named: dict[tuple[str, str, str], int] = {}
    done = 0
    with path.open("rb") as stream:
        try:
            for number, line in lines(stream):
                done += len(line or b"")
                ledger.counts["lines"] += 1
                try:
                    value = _object(decode_line(line))
                    if "actions" in value or "episode" in value:
                        found = _scored(value, number, maps, distances)
                        if "episode" in value:
                            _check_once(found, named)
                        yield found
                        ledger.counts["episodes"] += 1
                    else:
                        _declare(value, number, maps)
                        ledger.counts["maps declared"] += 1
                except UnreadableError as error:
                    ledger.report(path.name, f"line {number} {error.where}".strip(), error.must, error.given)
                    ledger.counts["lines refused"] += 1
                if progress is not None:
                    progress(done)
        except UnreadableError as error:
            ledger.report(path.name, error.where, error.must, error.given)
            ledger.counts["lines refused"] += 1
    if not ledger.counts["lines"] and not ledger.problem_count:
        ledger.report(path.name, "", "a log must hold at least one line", "an empty file")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableError("a line must be an object", show(value))
    return value


def _declare(value: dict[str, Any], number: int, maps: dict[str, TaskMap | int]) -> None:
    _keys(value, _MAP_KEYS, _MAP_KEYS, "a line without actions declares a map and")
    name = _text(value["name"], "name")
    if name in maps:
        raise UnreadableError("the name of a map must be declared once", f"{show(name)} again", "name")
    if len(maps) >= MOST_MAPS:
        raise UnreadableError(f"a log must declare at most {MOST_MAPS} maps", "more", "name")
    maps[name] = number  # stays where the map is refused, so that its episodes can say why
    maps[name] = _map(value["map"])


def _scored(value: dict[str, Any], number: int, maps: dict[str, TaskMap | int], distances: Distances) -> ScoredLine:
    _keys(value, _EPISODE_KEYS, ("map", "actions"), "an episode")
    given = value["map"]
    if isinstance(given, str):
        if given not in maps:
            raise UnreadableError("map must be a map or the name of one on an earlier line", show(given), "map")
        found = maps[given]
        if isinstance(found, int):
            raise UnreadableError("the map of an episode must be usable", f"the one that line {found} failed to", "map")
        task_map = found
    else:
        task_map = _map(given)
    actions = value["actions"]
    if not isinstance(actions, list):
        raise UnreadableError("actions must be a list of texts or null", show(actions), "actions")
    for index, action in enumerate(actions):
        if action is not None and not isinstance(action, str):
            raise UnreadableError("an action must be a text or null", show(action), f"actions[{index}]")
    tags = value.get("tags", {})
    if not isinstance(tags, dict) or not all(
        item is None or isinstance(item, str | int | float) for item in tags.values()
    ):
        raise UnreadableError("tags must be an object of texts, numbers, booleans and null", show(tags), "tags")
    name = _text(value.get("episode", f"line {number}"), "episode")
    agent = _text(value["agent"], "agent") if "agent" in value else ""
    try:
        score = score_episode(task_map, actions, distances=distances)
    except ValueError as error:
        raise _unreadable(error, "actions") from error
    return ScoredLine(line=number, episode=name, agent=agent, tags=tags, task_map=task_map, score=score)


def _check_once(found: ScoredLine, named: dict[tuple[str, str, str], int]) -> None:
    """Refuse an episode that stands in the log already: counted twice it would weigh twice."""
    first = named.setdefault((found.agent, found.task_map.id, found.episode), found.line)
    if first != found.line:
        given = f"{show(found.episode)} of the same agent on the same map again, as on line {first}"
        raise UnreadableError("an episode must stand in a log once", given, "episode")


def _map(value: Any) -> TaskMap:
    try:
        return TaskMap.from_plain(value)
    except ValueError as error:
        raise _unreadable(error, "map") from error


def _keys(value: dict[str, Any], known: tuple[str, ...], needed: tuple[str, ...], what: str) -> None:
    unknown = [key for key in value if key not in known]
    lacking = [key for key in needed if key not in value]
    if unknown or lacking:
        given = f"the unknown key {show(unknown[0])}" if unknown else f"none called {lacking[0]!r}"
        raise UnreadableError(f"{what} must have the keys {', '.join(known)} ({', '.join(needed)} are needed)", given)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise UnreadableError(f"{key} must be a text of 1 to 200 characters", show(value), key)
    return value


def _unreadable(error: ValueError, where: str) -> UnreadableError:
    """Return what a check said, parted where it goes on to what was given."""
    must, _, given = str(error).partition(", got ")
    return UnreadableError(must, given or "something else", where)
