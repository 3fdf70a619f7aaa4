"""The JSON lines format: its records, which docs/import.md explains key by key, and episodes written as such lines."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from goalscope.importers.telos_records import MOST_TOKEN_ID
from goalscope.rows import Tag
from goalscope.runs.record import Episode, Step, World
from goalscope.untrusted import shorten
from goalscope.worlds import Action

MOST_NAME = 500
MOST_STEPS = 10_000_000


def _action(value: Any) -> Any:
    if isinstance(value, str):
        found = Action.__members__.get(value.strip().upper())
        if found is None:
            raise ValueError(
                f"must be UP, DOWN, LEFT or RIGHT (in any case), or null beside a failure, got {shorten(value)}"
            )
        return found.name
    return value


def _no_repeats(value: list[str]) -> list[str]:
    if len(set(value)) < len(value):
        raise ValueError(f"an action must occur once in a set, got {shorten(value)}")
    return value


Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
ActionName = Annotated[str, BeforeValidator(_action)]
Tokens = list[Annotated[int, Field(ge=0, le=MOST_TOKEN_ID)]]
Tags = dict[str, Tag]
Text = str | None


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class WorldLine(_Line):
    """A world that later lines name."""

    type: Literal["world"]
    id: Name
    grid: str
    fog_radius: Annotated[int, Field(ge=1, le=10_000)] | None = None
    cluster: Annotated[str, Field(max_length=MOST_NAME)] = ""
    tags: Tags = {}


class _EpisodeKeys(_Line):
    episode: Name
    world: Name | None = None
    grid: str | None = None
    fog_radius: Annotated[int, Field(ge=1, le=10_000)] | None = None
    agent: Name | None = None
    agent_id: Name | None = None
    trajectory: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    seed: int | None = None
    horizon: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    rules: Annotated[str, Field(max_length=MOST_NAME)] | None = None
    outcome: Literal["goal", "horizon", "failure", "stopped"] | None = None
    tags: Tags | None = None


class EpisodeLine(_EpisodeKeys):
    """What holds for a whole episode; such a line may be left out."""

    type: Literal["episode"]


class StepLine(_EpisodeKeys):
    """One step of an episode."""

    type: Literal["step"] = "step"
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)]
    position: Annotated[list[int], Field(min_length=2, max_length=2)]
    action: ActionName | None
    failure: Name | None = None
    carrying_key: bool | None = None
    door_open: bool | None = None
    text: Text = None
    reasoning: Text = None
    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    reward: float | None = None
    optimal_actions: Annotated[list[ActionName], AfterValidator(_no_repeats)] | None = None
    extra: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _either(self) -> "StepLine":
        if (self.action is None) == (self.failure is None):
            raise ValueError("a step must have either an action, or action null and the name of a failure")
        return self


EPISODE_KEYS = tuple(name for name in _EpisodeKeys.model_fields if name != "episode")
"""Keys that may stand on any line of an episode and must not contradict each other."""

LINES: dict[str, type[WorldLine] | type[EpisodeLine] | type[StepLine]] = {
    "world": WorldLine,
    "episode": EpisodeLine,
    "step": StepLine,
}
"""The kinds of lines by the value of ``type``; a line without it is a step."""


def write_jsonl(episodes: Iterable[Episode], path: str | Path) -> int:
    """Write episodes as JSON lines: each world once, before its first episode; then an episode line and its steps.

    What `read_jsonl` gives back is equal: specification ids, worlds with cluster and tags, all steps, outcome, final
    state and tags. (Tuples among the ``extra`` values of steps come back as lists, and agents by id and name alone.)
    The file appears under its name when it is complete.

    Args:
        episodes: gone through once.
        path: the file to write.

    Returns:
        Number of episodes written.

    Raises:
        ValueError: a number that is not finite; one world with two clusters or sets of tags; a task world.
        TypeError: an ``extra`` value that JSON cannot hold.
    """
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.part")
    worlds: dict[str, World] = {}
    count = 0
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as stream:
            for episode in episodes:
                world = episode.world
                if world.id not in worlds:
                    worlds[world.id] = world
                    stream.write(_line(_world(world)))
                elif worlds[world.id] != world:
                    raise ValueError(
                        f"a world must have one cluster and one set of tags, got other ones for {world.id}"
                    )
                stream.write(_line(_episode(episode, count)))
                for step in episode.steps:
                    stream.write(_line({"episode": f"{count}", **_step(step)}))
                count += 1
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _line(value: dict[str, Any]) -> str:
    plain = {key: item for key, item in value.items() if item is not None or key == "action"}
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def _world(world: World) -> dict[str, Any]:
    if world.kind != "grid":  # its grid alone would read back as another world
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
        "agent_id": spec.agent_id,
        "trajectory": spec.trajectory,
        "seed": spec.seed,
        "horizon": spec.horizon,
        "rules": spec.rules or None,
        "outcome": episode.outcome,
        "tags": dict(episode.tags) or None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "step": step.index,
        "position": list(step.state.position),
        "action": None if step.action is None else step.action.name,
        "failure": step.failure,
        "carrying_key": step.state.carrying_key or None,
        "door_open": step.state.door_open or None,
        "text": step.text,
        "reasoning": step.reasoning,
        "prompt_tokens": None if step.prompt_tokens is None else list(step.prompt_tokens),
        "output_tokens": None if step.output_tokens is None else list(step.output_tokens),
        "reward": step.reward,
        "extra": dict(step.extra) or None,
    }
