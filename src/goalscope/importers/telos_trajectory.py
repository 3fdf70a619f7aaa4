"""One trajectory file in the authors' layout: to an episode, with every recorded label compared with ours."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from goalscope.ids import content_id
from goalscope.importers.problems import Ledger, Numbering, first_line, parse_grid
from goalscope.importers.telos_records import (
    METRICS,
    GridParameters,
    Scalar,
    StepRecord,
    TrajectoryRecord,
    number,
    truth,
    unread_keys,
)
from goalscope.planning import shortest_length, solve
from goalscope.rows import Tag
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.untrusted import UntrustedError, shorten
from goalscope.worlds import Action, Grid
from goalscope.worlds.dynamics import State, shown, step
from goalscope.worlds.gridworld import GridWorld

NO_ACTION = "N/A"
"""What the authors write in place of an action that they could not parse."""

_NAME = re.compile(r"size\d{1,4}_[a-z]{1,20}[\d.]{1,10}_grid\d{1,9}")
_TRAJECTORY = re.compile(r"_traj(\d{1,9})\.json$")


@dataclass(kw_only=True)
class Context:
    """What the files of one import share.

    Attributes:
        ledger: problems and counts.
        numbering: trajectory numbers that are taken.
        table: recorded metrics by source trajectory id: file, place in it, metrics.
        sources: source trajectory ids met, and their files.
        worlds: worlds met, by their ids: a world keeps the tags that its first trajectory gave it.
    """

    ledger: Ledger
    numbering: Numbering = field(default_factory=Numbering)
    table: dict[str, tuple[str, str, Mapping[str, str]]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    worlds: dict[str, World] = field(default_factory=dict)


def read_trajectory(value: object, source: str, context: Context) -> Episode | None:
    """Turn the JSON value of a trajectory file into an episode.

    Recorded labels that differ from ours become problems and the episode is kept; a file whose states contradict
    themselves or the rules becomes one problem and no episode.

    Returns:
        The episode, or None where the file holds none that can be used.
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
        for _ in unread_keys(record):
            ledger.counts["keys not read"] += 1
        _check_labels(record, episode, source, ledger)
        _check_metrics(record, episode, source, context)
        ledger.counts["trajectories"] += 1
        ledger.counts["steps"] += len(episode.steps)
        return episode
    return None


def _episode(record: TrajectoryRecord, source: str, context: Context) -> Episode:
    world = _world(record)
    own = world.tags
    world = context.worlds.setdefault(world.id, world)
    states, actions = _follow(record.steps, world, context.ledger)
    reached = states[-1].position == world.grid.goal
    horizon, outcome = _ending(record, world, reached)
    description = {name: value for name, value in record.model_params.items() if name != "seed"}
    agent_id = content_id("agent", description)
    context.ledger.agents.setdefault(agent_id, (_agent_name(record.model_params), description))
    match = _TRAJECTORY.search(source)
    spec = EpisodeSpec(
        world_id=world.id,
        agent_id=agent_id,
        trajectory=context.numbering.take(world.id, agent_id, int(match[1]) if match else None),
        seed=0,
        horizon=horizon,
    )
    steps = tuple(
        _step(index, states[index], action, given, record)
        for index, (action, given) in enumerate(zip(actions, record.steps, strict=True))
    )
    model = record.model_params
    named = {name: model.get(key) for name, key in (("model", "model_id"), ("provider", "provider"))}
    settings = {name: model.get(name) for name in ("temperature", "top_p", "reasoning_effort", "max_tokens", "seed")}
    match = _NAME.search(record.source.trajectory_id or "", 0, 300) or _NAME.search(source)
    file_name = source.split("/")[-1].encode("utf-8", "backslashreplace").decode()  # it may be no Unicode text
    origin = {"grid": match[0] if match else None, "source": record.source.trajectory_id, "file": file_name}
    tags: dict[str, Tag] = {**(own if own != world.tags else {}), **named, **settings, **origin}
    return Episode(
        spec=spec,
        world=world,
        agent=_agent_name(model),
        steps=steps,
        final=states[-1],
        outcome=outcome,
        tags={name: value for name, value in tags.items() if value is not None},
    )


def _world(record: TrajectoryRecord) -> World:
    parameters = record.grid_params
    if not parameters.fully_observable:
        must = "a trajectory of this layout must show the whole grid (fogged ones can be imported as JSON lines)"
        raise UntrustedError(must, "fully_observable: false", "grid_params")
    grid = _grid(record.steps[0], 0)
    try:
        world = GridWorld(grid=grid, tags=_tags(parameters, grid))
    except ValueError as error:
        must = "the first grid must show agent and goal"
        raise UntrustedError(must, first_line(error), "steps[0].grid_state") from error
    if grid.fog is not None:
        raise UntrustedError("the first grid must be fully visible", "hidden cells (*)", "steps[0].grid_state")
    stated = (
        ("grid_height", parameters.grid_height, grid.height),
        ("grid_width", parameters.grid_width, grid.width),
        ("agent_start_coordinates", parameters.agent_start_coordinates, list(grid.start or ())),
        ("goal_coordinates", parameters.goal_coordinates, list(grid.goal or ())),
    )
    for name, given, ours in stated:
        if given is not None and given != ours:
            raise UntrustedError(
                f"it must be {ours}, as the first grid shows", _where(grid, given), f"grid_params.{name}"
            )
    return world


def _tags(parameters: GridParameters, grid: Grid) -> dict[str, Tag]:
    transform = None if parameters.transform_type == "base" else parameters.transform_type
    tags: dict[str, Tag] = {"size": grid.height, "density": parameters.grid_complexity, "transform": transform}
    return {name: value for name, value in tags.items() if value is not None}


def _where(grid: Grid, given: object) -> str:
    """Say what lies at a cell that a file names."""
    try:
        cell = grid.check_cell(given)  # type: ignore[arg-type]  # whatever was given, check_cell refuses what is no cell
    except (ValueError, TypeError):
        return shorten(given)
    return f"{shorten(given)}, {'a wall' if grid.walls[cell] else 'another cell'}"


def _grid(given: StepRecord, index: int) -> Grid:
    return parse_grid(given.grid_state, where=f"steps[{index}].grid_state")


def _follow(given: list[StepRecord], world: World, ledger: Ledger) -> tuple[list[State], list[Action | None]]:
    """Follow the actions with our rules, and require that each recorded grid shows the state that they lead to."""
    state = begin(world)
    states, actions = [state], list[Action | None]()
    for index, record in enumerate(given):
        place = f"steps[{index}]"
        if record.step_id is not None and record.step_id != index:
            raise UntrustedError(f"steps must be numbered in order: {index}", f"step_id {record.step_id}", place)
        if state.position == world.grid.goal:
            raise UntrustedError("a trajectory must end at the goal", "a further step", place)
        grid = _grid(record, index)
        ours = shown(world.grid, state)
        if index:
            ledger.check("transitions", grid == ours)
        if grid != ours:
            before = f" after {given[index - 1].agent_action} at {states[index - 1].position}" if index else ""
            given_text = f"the agent at {grid.start}" if grid.start != state.position else "another grid around it"
            raise UntrustedError(f"the agent must stand at {state.position}{before}", given_text, f"{place}.grid_state")
        if record.carrying_key not in (None, state.carrying_key):
            must = f"carrying_key must be {state.carrying_key} by the rules"
            raise UntrustedError(must, str(record.carrying_key), place)
        action = _action(record.agent_action, place)
        state = state if action is None else step(world.grid, state, action)
        actions.append(action)
        states.append(state)
    return states, actions


def _action(text: str | None, place: str) -> Action | None:
    if text is None or text.strip().upper() == NO_ACTION:
        return None
    try:
        return Action[text.strip().upper()]
    except KeyError as error:
        must = f"an action must be UP, DOWN, LEFT, RIGHT, or {NO_ACTION} for none"
        raise UntrustedError(must, shorten(text), f"{place}.agent_action") from error


def caps(length: int) -> tuple[int, int]:
    """Return the step caps that the authors used: of their pilot, and of the paper."""
    return max(length + 8, 2 * length), math.ceil(1.5 * length)


def _ending(record: TrajectoryRecord, world: World, reached: bool) -> tuple[int, Outcome]:
    """Return the horizon and how the trajectory ended; see docs/import.md for the rule."""
    taken, length = len(record.steps), max(shortest_length(world.grid), 0)
    metrics = record.source.recorded_metrics or {}
    most = record.model_params.get("max_steps_per_trajectory")
    stopped = truth(metrics.get("step_limit_reached")) is True or taken in (*caps(length), most)
    if not reached and stopped:
        return taken, "horizon"
    return max(caps(length)[0], taken), "goal" if reached else "stopped"


def _step(index: int, state: State, action: Action | None, given: StepRecord, record: TrajectoryRecord) -> Step:
    prompt, extra = given.prompt_tokens, {}
    pieces = (record.prompt.prompt_prefix_tokens, given.grid_state_tokens, given.prompt_suffix_tokens)
    if prompt is None and all(piece is not None for piece in pieces):
        prompt = [token for piece in pieces for token in piece or ()]
        extra["prompt_tokens"] = "joined from prefix, grid and suffix"
    if given.recorded_optimal_actions is not None:
        extra["recorded_optimal_actions"] = ",".join(given.recorded_optimal_actions)
    return Step(
        index=index,
        state=state,
        action=action,
        failure=None if action is not None else "no action",
        text=given.output_text,
        reasoning=given.reasoning_content,
        prompt_tokens=None if prompt is None else tuple(prompt),
        output_tokens=None if given.output_tokens is None else tuple(given.output_tokens),
        reward=given.reward,
        extra=extra,
    )


def _agent_name(model: Mapping[str, Scalar]) -> str:
    name = str(model.get("model_id") or "recorded").rsplit("/", 1)[-1]
    effort = model.get("reasoning_effort")
    temperature = model.get("temperature")
    parts = [name, str(effort) if effort else "", f"t={temperature}" if temperature is not None else ""]
    return " ".join(part for part in parts if part)


def _check_labels(record: TrajectoryRecord, episode: Episode, source: str, ledger: Ledger) -> None:
    grid, length = episode.world.grid, shortest_length(episode.world.grid)
    stored = record.grid_params.astar_distance
    if stored is not None and not ledger.check("shortest path lengths", stored == length):
        ledger.report(source, "grid_params.astar_distance", f"the shortest path has {length} steps", stored)
    paths = solve(grid)
    for index, (ours, given) in enumerate(zip(episode.steps, record.steps, strict=True)):
        after = episode.steps[index + 1].state if index + 1 < len(episode.steps) else episode.final
        optimal = paths.optimal_in(ours.state)
        right = {action.name for action in Action if optimal[action]}
        labels = given.recorded_optimal_actions
        place = f"steps[{index}]"
        if labels is not None and not ledger.check(
            "optimal-action labels", {label.upper() for label in labels} == right and len(labels) == len(right)
        ):
            must = f"the optimal actions at {ours.state.position} are {sorted(right)}"
            ledger.report(source, f"{place}.recorded_optimal_actions", must, shorten(labels))
        pairs = (
            ("is-optimal labels", "recorded_is_optimal_action", ours.action is not None and ours.action.name in right),
            ("goal-reached labels", "recorded_goal_reached_after_action", after.position == grid.goal),
        )
        for name, key, expected in pairs:
            label = getattr(given, key)
            if label is not None and not ledger.check(name, label == expected):
                ledger.report(source, f"{place}.{key}", f"it must be {expected}", label)


def _check_metrics(record: TrajectoryRecord, episode: Episode, source: str, context: Context) -> None:
    ledger = context.ledger
    inside = record.source.recorded_metrics
    if inside is not None:
        compare_metrics(inside, episode, source, "source.recorded_metrics", "metrics in trajectory files", ledger)
    if (entry := context.table.pop(record.source.trajectory_id or "", None)) is not None:
        table, place, metrics = entry
        compare_metrics(metrics, episode, table, place, "metrics in tables", ledger)


def compare_metrics(
    recorded: Mapping[str, Scalar], episode: Episode, source: str, place: str, name: str, ledger: Ledger
) -> None:
    """Compare the recorded metrics of a trajectory with ours, value by value.

    Args:
        recorded: metric -> recorded value.
        episode: the trajectory.
        source, place: file and place in it that the metrics stand in, for problems.
        name: what the comparisons are counted as.
        ledger: where counts and problems go.
    """
    paths = solve(episode.world.grid)
    good = sum(step.action is not None and bool(paths.optimal_in(step.state)[step.action]) for step in episode.steps)
    length, taken = shortest_length(episode.world.grid), len(episode.steps)
    # A cap that the record names is believed as long as the goal was not reached: the layout states no cap of its own.
    limit = truth(recorded.get("step_limit_reached"))
    ours: dict[str, bool | float] = {
        "goal_reached": episode.success,
        "steps": taken,
        "optimal_path_length": length,
        "optimal_action_fraction": good / taken,
        "step_limit_reached": not episode.success and (limit is True or taken >= caps(length)[0]),
    }
    for key, kind in METRICS.items():
        if key not in recorded:
            continue
        expected = ours[key]
        given = truth(recorded[key]) if isinstance(expected, bool) else number(recorded[key])
        agrees = given is not None and (
            given == expected if isinstance(expected, bool) else math.isclose(given, expected, rel_tol=1e-9)
        )
        if not ledger.check(name, agrees):
            must = f"{key} must be {expected}" if given is not None else f"{key} must be {kind}"
            ledger.report(source, f"{place}.{key}", must, shorten(recorded[key]))
