"""The JSON lines format as validated records; docs/import.md explains each key."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from goalscope.importers.telos_records import MOST_TOKEN_ID
from goalscope.rows import Tag
from goalscope.worlds import Action

MOST_NAME = 500
MOST_STEPS = 10_000_000


def _action(value: Any) -> Any:
    if isinstance(value, str):
        found = Action.__members__.get(value.strip().upper())
        if found is None:
            raise ValueError("an action must be UP, DOWN, LEFT or RIGHT (in any case), or null beside a failure")
        return found.name
    return value


def _no_repeats(value: list[str]) -> list[str]:
    if len(set(value)) < len(value):
        raise ValueError("an action must occur once in a set")
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
