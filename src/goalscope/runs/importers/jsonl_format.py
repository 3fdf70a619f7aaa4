"""The JSON lines format: its records (docs/import.md describes every key), and the export of episodes."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import UntrustedError, shorten
from goalscope.runs.importers.problems import STEP_FIELDS, LogLine, TokenId
from goalscope.runs.record import Episode, Step, World
from goalscope.stats.rows import Tag, unreserved
from goalscope.worlds import Action

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
    """A line of a log that declares a world under an id, to which later lines refer."""

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
    """An optional line of a log with values of a whole episode."""

    type: Literal["episode"]


class StepLine(_EpisodeKeys):
    """One line of a log: one step of an episode."""

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
    """Return the class of a line by its ``type``; a line without a type is a step."""
    kind = value.get("type", "step")
    if not isinstance(kind, str) or kind not in _LINES:
        raise UntrustedError(f"type must be one of {', '.join(_LINES)}", shorten(kind))
    return _LINES[kind]


def write_jsonl(episodes: Iterable[Episode], path: str | Path) -> int:
    """Write episodes as JSON lines: each world once, before its first episode; then an episode line and its steps.

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
