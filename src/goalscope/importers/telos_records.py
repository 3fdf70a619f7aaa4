"""The authors' JSON layout as validated records: what is read of a trajectory file, a grid and a labelled state."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from goalscope.importers.jsonl_format import TokenId

Scalar = str | int | float | bool | None
_Pair = Annotated[list[int], Field(min_length=2, max_length=2)]


def _text_lines(value: Any) -> Any:
    return value.splitlines() if isinstance(value, str) else value


def _token_ids(value: Any) -> Any:
    """Take the ids out of a list of token objects; lists of ids pass."""
    if isinstance(value, list):
        return [item.get("token_id", item) if isinstance(item, dict) else item for item in value]
    return value


_Tokens = Annotated[list[TokenId] | None, BeforeValidator(_token_ids)]
_GridLines = Annotated[list[str], BeforeValidator(_text_lines)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class GridParameters(_Record):
    """``grid_params``: coordinates are [row, col]."""

    grid_width: int | None = None
    grid_height: int | None = None
    grid_complexity: float | None = None
    fully_observable: bool = True
    transform_type: str | None = None
    astar_distance: int | None = None
    agent_start_coordinates: _Pair | None = None
    goal_coordinates: _Pair | None = None


class Source(_Record):
    """``source``: where the file comes from, and its recorded metrics."""

    trajectory_id: str | None = None
    recorded_metrics: dict[str, Scalar] | None = None


class Prompt(_Record):
    """``prompt``: the pieces of the prompt that all steps share."""

    prompt_prefix_tokens: _Tokens = None


class StepRecord(_Record):
    """One entry of ``steps``."""

    step_id: int | None = None
    grid_state: _GridLines
    agent_action: str | None
    carrying_key: bool | None = None
    recorded_optimal_actions: list[str] | None = None
    recorded_is_optimal_action: bool | None = None
    recorded_goal_reached_after_action: bool | None = None
    output_text: str | None = None
    reasoning_content: str | None = None
    prompt_tokens: _Tokens = None
    grid_state_tokens: _Tokens = None
    prompt_suffix_tokens: _Tokens = None
    output_tokens: _Tokens = None
    reward: float | None = None


class TrajectoryRecord(_Record):
    """A trajectory file."""

    grid_params: GridParameters
    model_params: dict[str, Scalar]
    steps: Annotated[list[StepRecord], Field(min_length=1)]
    source: Source = Source()
    prompt: Prompt = Prompt()


class GridRecord(_Record):
    """One line of a grid manifest: coordinates are x (column) and y (row)."""

    layout: list[list[str]]
    grid_text: str | None = None
    grid_id: str | None = None
    start_x: int | None = None
    start_y: int | None = None
    goal_x: int | None = None
    goal_y: int | None = None
    optimal_path_length: int | None = None
    observed_wall_fraction: float | None = None


class StateRecord(_Record):
    """One labelled state of a key-and-door trajectory: positions are [x, y]."""

    example_id: str | None = None
    step_index: int | None = None
    grid_text: str
    carrying_key: bool
    observed_action: str | None = None
    optimal_actions: list[str]
    legacy_optimal_actions: list[str] | None = None
    is_optimal_action: bool | None = None
    wall_hit: bool | None = None
    current_position: _Pair
    next_position: _Pair | None = None
    current_optimal_distance: int | None = None
    next_optimal_distance: int | None = None


def unread_keys(record: BaseModel) -> int:
    """Return how many keys of a record, and of the records in it, are kept out."""
    count = len(record.model_extra or ())
    for name in type(record).model_fields:
        value = getattr(record, name)
        parts = value if isinstance(value, list) else [value]
        count += sum(unread_keys(part) for part in parts if isinstance(part, BaseModel))
    return count
