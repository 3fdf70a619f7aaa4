"""Files of the TELOS authors: trajectories, grid manifests, tables of metrics, labelled states.

Every recorded label is compared with the computed one.

Source: behavioural and representational evaluation, the authors' public records.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import MOST_LINE_BYTES, UntrustedError, decode_json, decode_text, shorten
from goalscope.runs.importers.problems import Context, ImportLog, TokenId, grid_world, log_lines, parse_grid
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.stats.rows import Tag
from goalscope.worlds import Action, Grid
from goalscope.worlds.dynamics import State, settle, shown, step
from goalscope.worlds.planning import optimal_actions, shortest_length, solve

NO_ACTION = "N/A"
"""The authors' entry for an action that they could not parse."""

METRICS = ("goal_reached", "steps", "optimal_path_length", "optimal_action_fraction", "step_limit_reached")
"""The recorded metrics of a trajectory."""

_SETTINGS = ("provider", "temperature", "top_p", "reasoning_effort", "max_tokens", "seed")
_NAME = re.compile(r"size\d{1,4}_[a-z]{1,20}[\d.]{1,10}_grid\d{1,9}")
_TRAJECTORY = re.compile(r"_traj(\d{1,9})\.json$")

Scalar = str | int | float | bool | None
Pair = Annotated[list[int], Field(min_length=2, max_length=2)]


def _text_lines(value: Any) -> Any:
    return value.splitlines() if isinstance(value, str) else value


def _token_ids(value: Any) -> Any:
    """Extract the ids from a list of token objects; a list of ids is returned unchanged."""
    if isinstance(value, list):
        return [item.get("token_id", item) if isinstance(item, dict) else item for item in value]
    return value


_Tokens = Annotated[list[TokenId] | None, BeforeValidator(_token_ids)]
_GridLines = Annotated[list[str], BeforeValidator(_text_lines)]


class Record(BaseModel):
    """Base class of the records in the files of the TELOS authors; keys that goalscope does not read are counted."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class GridParameters(Record):
    """The entry ``grid_params`` of a trajectory file of the TELOS authors: size, cells and objects of the grid.

    Coordinates are [row, col].
    """

    grid_width: int | None = None
    grid_height: int | None = None
    grid_complexity: float | None = None
    fully_observable: bool = True
    transform_type: str | None = None
    astar_distance: int | None = None
    agent_start_coordinates: Pair | None = None
    goal_coordinates: Pair | None = None


class TrajectorySource(Record):
    """The entry ``source`` of a trajectory file of the TELOS authors: id of the trajectory, and the metrics they
    recorded.
    """

    trajectory_id: str | None = None
    recorded_metrics: dict[str, Scalar] | None = None


class Prompt(Record):
    """The entry ``prompt`` of a trajectory file of the TELOS authors: the token ids with which the prompt of each step
    begins.
    """

    prompt_prefix_tokens: _Tokens = None


class StepRecord(Record):
    """One step in a trajectory file of the TELOS authors: grid, action, recorded labels, texts and token ids."""

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


class TrajectoryRecord(Record):
    """The content of a trajectory file of the TELOS authors: grid, model, steps, source and prompt."""

    grid_params: GridParameters
    model_params: dict[str, Scalar]
    steps: Annotated[list[StepRecord], Field(min_length=1)]
    source: TrajectorySource = TrajectorySource()
    prompt: Prompt = Prompt()


def unread_keys(record: BaseModel) -> int:
    """Count the keys of a record, and of the records in it, that the file has but goalscope does not read."""
    count = len(record.model_extra or ())
    for name in type(record).model_fields:
        value = getattr(record, name)
        parts = value if isinstance(value, list) else [value]
        count += sum(unread_keys(part) for part in parts if isinstance(part, BaseModel))
    return count


def read_trajectory(value: object, source: str, context: Context) -> Episode | None:
    """Make an episode from the content of a trajectory file of the TELOS authors.

    If recorded labels differ from the computed ones, each difference is a problem and the episode is kept. If the
    states contradict each other or the rules, there is one problem and no episode.

    Args:
        value: content of the file, decoded from JSON.
        source: name of the file in messages.
        context: state of the import, with the list of problems.

    Returns:
        The episode; None if the file contains no usable one.
    """
    ledger = context.ledger
    with ledger.reporting(source, count="trajectories not imported"):
        record = TrajectoryRecord.model_validate(value)
        own_id = record.source.trajectory_id
        if own_id in context.sources:
            raise UntrustedError(f"a trajectory must occur once (it is in {context.sources[own_id]} too)", own_id)
        episode = _episode(record, source, context)
        if own_id is not None:
            context.sources[own_id] = source
        if unread := unread_keys(record):
            ledger.counts["keys not read"] += unread
        _check_labels(record, episode, source, ledger)
        _check_metrics(record, episode, source, context)
        ledger.counts["trajectories"] += 1
        ledger.counts["steps"] += len(episode.steps)
        return episode
    return None


def _episode(record: TrajectoryRecord, source: str, context: Context) -> Episode:
    world = _world(record)
    own_tags = world.tags
    world = context.worlds.setdefault(world.id, world)
    steps, final = _follow(record, world, context.ledger)
    horizon, outcome = _ending(record, world, final.position == world.grid.goal)
    model, agent = record.model_params, _agent_name(record.model_params)
    description = {name: value for name, value in model.items() if name != "seed"}
    agent_id = content_id("agent", description)
    context.ledger.agents.setdefault(agent_id, (agent, description))
    match = _TRAJECTORY.search(source)
    spec = EpisodeSpec(
        world_id=world.id,
        agent_id=agent_id,
        trajectory=context.reserve_number(world.id, agent_id, int(match[1]) if match else None),
        seed=0,
        horizon=horizon,
    )
    match = _NAME.search(record.source.trajectory_id or "", 0, 300) or _NAME.search(source)
    file_name = source.split("/")[-1].encode("utf-8", "backslashreplace").decode()  # the text may not be valid Unicode
    tags: dict[str, Tag] = {**own_tags} if own_tags != world.tags else {}
    tags |= {name: model.get(name) for name in _SETTINGS}
    tags |= {"model": model.get("model_id"), "grid": match[0] if match else None}
    tags |= {"source": record.source.trajectory_id, "file": file_name}
    return Episode(
        spec=spec,
        world=world,
        agent=agent,
        steps=steps,
        final=final,
        outcome=outcome,
        tags=_not_none(tags),
    )


def _world(record: TrajectoryRecord) -> World:
    parameters = record.grid_params
    if not parameters.fully_observable:
        must = "a trajectory of this layout must show the whole grid (fogged ones can be imported as JSON lines)"
        raise UntrustedError(must, "fully_observable: false", "grid_params")
    field = "steps[0].grid_state"
    grid = parse_grid(record.steps[0].grid_state, where=field)
    transform = None if parameters.transform_type == "base" else parameters.transform_type
    tags = {"size": grid.height, "density": parameters.grid_complexity, "transform": transform}
    world = grid_world(grid, field, tags=_not_none(tags))
    stated = (
        ("grid_height", parameters.grid_height, grid.height),
        ("grid_width", parameters.grid_width, grid.width),
        ("agent_start_coordinates", parameters.agent_start_coordinates, list(grid.start or ())),
        ("goal_coordinates", parameters.goal_coordinates, list(grid.goal or ())),
    )
    for name, recorded, shown_value in stated:
        if recorded is not None and recorded != shown_value:
            must = f"it must be {shown_value}, as the first grid shows"
            raise UntrustedError(must, _where(grid, recorded), f"grid_params.{name}")
    return world


def _not_none(tags: Mapping[str, Tag]) -> dict[str, Tag]:
    return {name: value for name, value in tags.items() if value is not None}


def _where(grid: Grid, recorded: object) -> str:
    """Describe a cell that a file names."""
    try:
        cell = grid.check_cell(recorded)  # type: ignore[arg-type]  # whatever was given, check_cell refuses what is no cell
    except (ValueError, TypeError):
        return shorten(recorded)
    return f"{shorten(recorded)}, {'a wall' if grid.walls[cell] else 'another cell'}"


def _follow(record: TrajectoryRecord, world: World, ledger: ImportLog) -> tuple[tuple[Step, ...], State]:
    """Replay the actions by the rules, and raise an error unless each recorded grid shows the resulting state."""
    state, steps = begin(world), list[Step]()
    for index, recorded in enumerate(record.steps):
        path = f"steps[{index}]"
        if recorded.step_id is not None and recorded.step_id != index:
            raise UntrustedError(f"steps must be numbered in order: {index}", f"step_id {recorded.step_id}", path)
        if state.position == world.grid.goal:
            raise UntrustedError("a trajectory must end at the goal", "a further step", path)
        grid = parse_grid(recorded.grid_state, where=f"{path}.grid_state")
        expected = shown(world.grid, state)
        if index:
            ledger.check("transitions", grid == expected)
        if grid != expected:
            after_action = (
                f" after {record.steps[index - 1].agent_action} at {steps[-1].state.position}" if index else ""
            )
            difference = f"the agent at {grid.start}" if grid.start != state.position else "another grid around it"
            raise UntrustedError(
                f"the agent must stand at {state.position}{after_action}", difference, f"{path}.grid_state"
            )
        if recorded.carrying_key not in (None, state.carrying_key):
            must = f"carrying_key must be {state.carrying_key} by the rules"
            raise UntrustedError(must, str(recorded.carrying_key), path)
        action = _action(recorded.agent_action, path)
        steps.append(_step(index, state, action, recorded, record))
        state = state if action is None else step(world.grid, state, action)
    return tuple(steps), state


def _action(text: str | None, path: str) -> Action | None:
    if text is None or text.strip().upper() == NO_ACTION:
        return None
    action = Action.__members__.get(text.strip().upper())
    if action is None:
        must = f"an action must be UP, DOWN, LEFT, RIGHT, or {NO_ACTION} for none"
        raise UntrustedError(must, shorten(text), f"{path}.agent_action")
    return action


def _caps(length: int) -> tuple[int, int]:
    """Return the maximum numbers of steps that the authors used, in their pilot and in the paper."""
    return max(length + 8, 2 * length), math.ceil(1.5 * length)


def _ending(record: TrajectoryRecord, world: World, reached: bool) -> tuple[int, Outcome]:
    """Return the horizon of a trajectory and its outcome; docs/import.md describes the rule."""
    n_steps, length = len(record.steps), max(shortest_length(world.grid), 0)
    metrics = record.source.recorded_metrics or {}
    step_limit = record.model_params.get("max_steps_per_trajectory")
    stopped = _truth(metrics.get("step_limit_reached")) is True or n_steps in (*_caps(length), step_limit)
    if not reached and stopped:
        return n_steps, "horizon"
    return max(_caps(length)[0], n_steps), "goal" if reached else "stopped"


def _step(index: int, state: State, action: Action | None, recorded: StepRecord, record: TrajectoryRecord) -> Step:
    prompt, extra = recorded.prompt_tokens, {}
    pieces = (record.prompt.prompt_prefix_tokens, recorded.grid_state_tokens, recorded.prompt_suffix_tokens)
    if prompt is None and all(piece is not None for piece in pieces):
        prompt = [token for piece in pieces for token in piece or ()]
        extra["prompt_tokens"] = "joined from prefix, grid and suffix"
    if recorded.recorded_optimal_actions is not None:
        extra["recorded_optimal_actions"] = ",".join(recorded.recorded_optimal_actions)
    return Step(
        index=index,
        state=state,
        action=action,
        failure=None if action is not None else "no action",
        text=recorded.output_text,
        reasoning=recorded.reasoning_content,
        prompt_tokens=None if prompt is None else tuple(prompt),
        output_tokens=None if recorded.output_tokens is None else tuple(recorded.output_tokens),
        reward=recorded.reward,
        extra=extra,
    )


def _agent_name(model: Mapping[str, Scalar]) -> str:
    name = str(model.get("model_id") or "recorded").rsplit("/", 1)[-1]
    effort = model.get("reasoning_effort")
    temperature = model.get("temperature")
    parts = [name, str(effort) if effort else "", f"t={temperature}" if temperature is not None else ""]
    return " ".join(part for part in parts if part)


def _check_labels(record: TrajectoryRecord, episode: Episode, source: str, ledger: ImportLog) -> None:
    grid, length = episode.world.grid, shortest_length(episode.world.grid)
    stored, must = record.grid_params.astar_distance, f"the shortest path has {length} steps"
    ledger.compare("shortest path lengths", stored, length, source, "grid_params.astar_distance", must)
    paths = solve(grid)
    states = [*(step.state for step in episode.steps), episode.final]
    for index, (ours, recorded_step) in enumerate(zip(episode.steps, record.steps, strict=True)):
        optimal = paths.optimal_in(ours.state)
        right = sorted(action.name for action in Action if optimal[action])
        labels = recorded_step.recorded_optimal_actions
        labels = None if labels is None else sorted(label.upper() for label in labels)
        must, is_optimal = (
            f"the optimal actions at {ours.state.position} are {right}",
            recorded_step.recorded_is_optimal_action,
        )
        acted = ours.action is not None and ours.action.name in right
        after, reached = recorded_step.recorded_goal_reached_after_action, states[index + 1].position == grid.goal
        for name, key, label, expected, recorded_value in (
            ("optimal-action labels", "recorded_optimal_actions", labels, right, must),
            ("is-optimal labels", "recorded_is_optimal_action", is_optimal, acted, ""),
            ("goal-reached labels", "recorded_goal_reached_after_action", after, reached, ""),
        ):
            ledger.compare(name, label, expected, source, f"steps[{index}].{key}", recorded_value)


def _check_metrics(record: TrajectoryRecord, episode: Episode, source: str, context: Context) -> None:
    recorded = record.source.recorded_metrics
    if recorded is not None:
        name = "metrics in trajectory files"
        _compare_metrics(recorded, episode, source, "source.recorded_metrics", name, context.ledger)
    if (entry := context.metrics.pop(record.source.trajectory_id or "", None)) is not None:
        table, path, metrics = entry
        _compare_metrics(metrics, episode, table, path, "metrics in tables", context.ledger)


def _compare_metrics(
    recorded: Mapping[str, Scalar], episode: Episode, source: str, path: str, name: str, ledger: ImportLog
) -> None:
    paths = solve(episode.world.grid)
    n_optimal = sum(
        step.action is not None and bool(paths.optimal_in(step.state)[step.action]) for step in episode.steps
    )
    length, n_steps = shortest_length(episode.world.grid), len(episode.steps)
    # If the goal was not reached, the cap named in the record is used, because the layout states none.
    limit = _truth(recorded.get("step_limit_reached"))
    stopped = not episode.success and (limit is True or n_steps >= _caps(length)[0])
    computed: tuple[bool | float, ...] = (episode.success, n_steps, length, n_optimal / n_steps, stopped)
    for key, expected in zip(METRICS, computed, strict=True):
        if key not in recorded:
            continue
        value, kind = _number(recorded[key]), "a number"
        agrees = value is not None and math.isclose(value, expected, rel_tol=1e-9)
        if isinstance(expected, bool):
            value, kind = _truth(recorded[key]), "True or False"
            agrees = value == expected
        if not ledger.check(name, agrees):
            must = f"{key} must be {kind if value is None else expected}"
            ledger.report(source, f"{path}.{key}", must, shorten(recorded[key]))


def _truth(value: Scalar) -> bool | None:
    """Convert a recorded "True" or "False" to a boolean, anything else to None."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


def _number(value: Scalar) -> float | None:
    """Convert a recorded text or number to a number, anything else to None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return None


class GridRecord(Record):
    """One line of a grid manifest (a list of grids) of the TELOS authors. Coordinates are x (column) and y (row)."""

    layout: list[list[str]]
    grid_text: str | None = None
    grid_id: str | None = None
    start_x: int | None = None
    start_y: int | None = None
    goal_x: int | None = None
    goal_y: int | None = None
    optimal_path_length: int | None = None
    observed_wall_fraction: float | None = None


class StateRecord(Record):
    """A state in a key-and-door trajectory of the TELOS authors, with the optimal moves that they recorded.

    Positions are [x, y], i.e. column and row.
    """

    example_id: str | None = None
    step_index: int | None = None
    grid_text: str
    carrying_key: bool
    observed_action: str | None = None
    optimal_actions: list[str]
    legacy_optimal_actions: list[str] | None = None
    is_optimal_action: bool | None = None
    wall_hit: bool | None = None
    current_position: Pair
    next_position: Pair | None = None
    current_optimal_distance: int | None = None
    next_optimal_distance: int | None = None


def holds_grid(value: object) -> bool:
    """Return whether a decoded JSON value has the keys of a grid in the TELOS authors' manifests (lists of grids)."""
    return isinstance(value, dict) and "layout" in value and "episode" not in value and "type" not in value


def read_json(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Read a JSON file of the TELOS authors, and yield its episode if it holds a trajectory.

    A file with a grid or labelled states holds no episode; its labels are only checked.

    Args:
        path: the file.
        name: its name in messages.
        context: state of the import, with the list of problems.
    """
    ledger = context.ledger
    ledger.counts["files read"] += 1
    with ledger.reporting(name):
        value = decode_json(NamedFile(path).load_bytes())
        if isinstance(value, dict) and "steps" not in value and ("grid_layout" in value or holds_grid(value)):
            grid = {"layout": value["grid_layout"]} if "grid_layout" in value else value
            _check_grid(GridRecord.model_validate(grid), name, "", ledger)
        elif isinstance(value, dict):
            episode = read_trajectory(value, name, context)
            if episode is not None:
                yield episode
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            # The file contains single states and no episode.
            for index, item in enumerate(value):
                with ledger.reporting(name, f"[{index}]"):
                    _check_state(StateRecord.model_validate(item), name, f"[{index}]", ledger)
        else:
            must = "a file must hold a trajectory, a grid, or a list of labelled states"
            raise UntrustedError(must, shorten(value))


def read_manifest(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Check the grids in a manifest of the TELOS authors, a file with one grid per line; it yields no episodes.

    Args:
        path: the file.
        name: its name in messages.
        context: state of the import, with the list of problems.
    """
    ledger = context.ledger
    ledger.counts["files read"] += 1
    with ledger.reporting(name), NamedFile(path).open_file() as stream:
        for line in log_lines(stream, name, ledger, lambda _: GridRecord):
            position = f"line {line.number}"
            with ledger.reporting(name, position):
                if line.record is not None:
                    _check_grid(line.record, name, position, ledger)
    yield from ()


def _check_grid(record: GridRecord, source: str, position: str, ledger: ImportLog) -> None:
    """Compare one grid of a manifest (text, start, goal, path length, fraction of walls) with its layout."""
    grid = parse_grid(record.layout, "a layout must be readable", "layout")
    start, goal = _start_and_goal(grid, "layout")
    for name, symbol_cell, cell in (
        ("start", start, (record.start_y, record.start_x)),
        ("goal", goal, (record.goal_y, record.goal_x)),
    ):
        if cell != (None, None) and cell != symbol_cell:
            on_wall = None not in cell and 0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width and grid.walls[cell]  # type: ignore[operator]
            recorded_cell = f"x {cell[1]}, y {cell[0]}{', a wall' if on_wall else ''}"
            must = f"the {name} of the layout is x {symbol_cell[1]}, y {symbol_cell[0]}"
            raise UntrustedError(must, recorded_cell, f"{name}_x, {name}_y")
    if record.grid_text is not None and parse_grid(record.grid_text, where="grid_text") != grid:
        raise UntrustedError("grid_text must show the layout", "another grid", "grid_text")
    _count(record, "grids", ledger)
    length, interior = shortest_length(grid), grid.walls[1:-1, 1:-1]
    walls = float(interior.mean()) if interior.size else 0.0
    stored, must = record.optimal_path_length, f"the shortest path has {length} steps"
    ledger.compare("grid path lengths", stored, length, source, f"{position} optimal_path_length", must)
    fraction, must = record.observed_wall_fraction, f"{walls!r} of the cells inside the border are walls"
    ledger.compare("grid wall fractions", fraction, walls, source, f"{position} observed_wall_fraction", must)


def read_metrics(path: Path, name: str, context: Context) -> Iterator[Episode]:
    """Read a table (CSV) of the metrics that the TELOS authors recorded, to compare them with later trajectories.

    The metrics are kept in the context; tables without the column ``trajectory_id`` are skipped. It yields no episodes.

    Args:
        path: the file.
        name: its name in messages.
        context: state of the import, with the list of problems.
    """
    ledger, is_other_table = context.ledger, False
    with ledger.reporting(name):
        text = decode_text(NamedFile(path).load_bytes(MOST_LINE_BYTES))
        if not text.strip():
            raise UntrustedError("a table must have a header", "an empty file")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        try:
            has_ids = "trajectory_id" in (rows.fieldnames or ())
            if not has_ids and path.name == "recorded_metrics.csv":
                first_line = shorten(text.split("\n", 1)[0])
                raise UntrustedError("the header must name trajectory_id", first_line, "line 1")
            is_other_table = not has_ids
            for row in rows if has_ids else ():
                _store_metrics(row, name, f"line {rows.line_num}", context)
        except csv.Error as error:
            raise UntrustedError("a table must be valid CSV", str(error)) from error
    ledger.counts["other files left alone" if is_other_table else "files read"] += 1
    yield from ()


def _store_metrics(row: dict[str, Any], source: str, position: str, context: Context) -> None:
    name, filled = row["trajectory_id"], [cell is not None for cell in row.values()]
    if not name or None in row or not all(filled):
        must = f"a row must have {len(row) - (None in row)} cells, the trajectory's id among them"
        context.ledger.report(source, position, must, f"{sum(filled)} cells")
    elif name in context.metrics:
        context.ledger.report(source, position, "a trajectory must have one row", f"a second one for {name}")
    else:
        context.metrics[name] = (source, f"{position} {name}", {key: row[key] for key in METRICS if key in row})


def _check_state(record: StateRecord, source: str, position: str, ledger: ImportLog) -> None:
    """Check a labelled key-and-door state: its position, and the labels for its optimal actions and next state."""
    grid = parse_grid(record.grid_text, where="grid_text")
    start, _ = _start_and_goal(grid, "grid_text")
    if _xy(start) != record.current_position:
        must = f"it must be {_xy(start)} [x, y], where the grid shows the agent"
        raise UntrustedError(must, shorten(record.current_position), "current_position")
    try:
        world_here = settle(grid, start, record.carrying_key)
        expected = sorted(action.name for action in optimal_actions(grid, start, record.carrying_key))
    except ValueError as error:
        raise UntrustedError("the state must be allowed by the rules", str(error), "grid_text") from error
    paths, labels = solve(grid), sorted(record.optimal_actions)
    comparisons: list[tuple[str, str, object, object]] = [
        ("optimal-action labels of states", "optimal_actions", labels, expected),
        (
            "distances of states",
            "current_optimal_distance",
            record.current_optimal_distance,
            paths.steps_from(world_here),
        ),
    ]
    if record.observed_action is not None:
        name = record.observed_action.upper()
        if name not in Action.__members__:
            must = "an action must be UP, DOWN, LEFT or RIGHT"
            raise UntrustedError(must, shorten(record.observed_action), "observed_action")
        after = step(grid, world_here, Action[name])
        distance, hit_wall = paths.steps_from(after), after.position == world_here.position
        comparisons += [
            ("next positions of states", "next_position", record.next_position, _xy(after.position)),
            ("next distances of states", "next_optimal_distance", record.next_optimal_distance, distance),
            ("is-optimal labels of states", "is_optimal_action", record.is_optimal_action, name in expected),
            ("wall hits of states", "wall_hit", record.wall_hit, hit_wall),
        ]
    for name, key, recorded, computed in comparisons:
        ledger.compare(name, recorded, computed, source, f"{position}.{key}")
    legacy = record.legacy_optimal_actions
    if legacy is not None:
        # The corrected labels in the file replace older ones that ignored doors; the computed labels must agree.
        corrected = sorted(legacy) != labels
        ledger.counts["legacy labels that the file corrects"] += corrected
        # Where they disagree, the corrected labels are wrong, which was reported above.
        ledger.check("corrections of legacy labels", corrected == (sorted(legacy) != expected))
    _count(record, "labelled states", ledger)


def _count(record: Record, name: str, ledger: ImportLog) -> None:
    ledger.counts[name] += 1
    if unread := unread_keys(record):
        ledger.counts["keys not read"] += unread


def _start_and_goal(grid: Grid, where: str) -> tuple[tuple[int, int], tuple[int, int]]:
    if grid.start is None or grid.goal is None:
        raise UntrustedError("a grid must show agent (A) and goal (G)", "a grid without", where)
    return grid.start, grid.goal


def _xy(position: tuple[int, int]) -> list[int]:
    return [position[1], position[0]]
