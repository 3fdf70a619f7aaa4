"""Check that a measure obeys the laws common to all measures, for your own measures too; sample episodes for that.

from goalscope.measures import check_measure
check_measure(my_measure)
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream, uniform
from goalscope.agents.agent import Agent, Observation, agent_id
from goalscope.agents.scripted import (
    EpsilonGreedy,
    Forgetful,
    Greedy,
    KeyLured,
    NoisyGreedy,
    Optimal,
    RandomWalk,
    Uniform,
    WrongGoal,
)
from goalscope.measures.definition import Measure, StepMeasure
from goalscope.measures.table import StepTable
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.stats.rows import WHOLE_EPISODE, Row, Rows
from goalscope.worlds.dynamics import State
from goalscope.worlds.generate import generate_batch, key_door, two_path
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning.shortest import shortest_length
from goalscope.worlds.tasks.generate import generate_task_map
from goalscope.worlds.tasks.world import TaskWorld
from goalscope.worlds.transform import TRANSFORMS, Transform
from goalscope.worlds.world import Session, World

HORIZON_FACTOR = 1.5


def roll_out(
    agent: Agent,
    world: World,
    *,
    seed: int,
    trajectories: int = 10,
    horizon: int | None = None,
    invalid: float = 0.0,
) -> list[Episode]:
    """Run episodes of an agent on one world in memory, for tests of measures. Under fog the agent sees all cells seen
    so far.

    Args:
        agent: the agent to run.
        world: the world to run it on.
        seed: root seed.
        trajectories: number of episodes.
        horizon: maximum number of actions per episode; by default that of the world, or ceil(1.5 x shortest path).
        invalid: probability that a turn loses its action, as if the answer could not be parsed.
    """
    turns = horizon or world.horizon or math.ceil(HORIZON_FACTOR * shortest_length(world.grid))
    identity, episodes = agent_id(agent), list[Episode]()
    for number in range(trajectories):
        spec = EpisodeSpec(world_id=world.id, agent_id=identity, trajectory=number, seed=seed, horizon=turns)

        def answer(index: int, session: Session, spec: EpisodeSpec = spec) -> int | None:
            if uniform(seed, "invalid turn", spec.id, index) < invalid:
                return None
            observation = Observation(view=session.view, step=index, episode_id=spec.id, seed=seed)
            return agent.act([observation])[0].action

        episodes.append(_walk(spec, world, agent.name, answer, turns))
    return episodes


def play(
    world: World,
    actions: Sequence[Action | None],
    *,
    agent: str = "played",
    trajectory: int = 0,
    horizon: int | None = None,
) -> Episode:
    """Build the episode that results from a list of actions, to check a measure against values computed by hand.

    Args:
        world: the world.
        actions: one action per turn, None for a turn without an action. Turns after the goal are dropped.
        agent: name of the agent.
        trajectory: number of the trajectory.
        horizon: maximum number of actions; by default the number of turns.
    """
    spec = EpisodeSpec(
        world_id=world.id,
        agent_id=content_id("agent", agent),
        trajectory=trajectory,
        seed=0,
        horizon=horizon if horizon is not None else max(len(actions), 1),
    )
    return _walk(spec, world, agent, lambda index, _: actions[index], len(actions))


def sample_worlds(seed: int = 0) -> list[GridWorld]:
    """Build ten small grids of different kinds, on which measures are tried.

    There are plain grids of two sizes, one with key and door, one with two paths and its control, and one with fog.
    """
    worlds = [
        GridWorld(grid=grid, tags={"size": size, "density": density, "index": index})
        for size, density in ((7, 0.0), (7, 1.0), (9, 0.4))
        for index, grid in enumerate(generate_batch(size, density, seed=seed, count=2, minimum_distance=3))
    ]
    locked = key_door(rng=stream(seed, "sample", "key-door"))
    paths = two_path(rng=stream(seed, "sample", "two-path"))
    keyed = GridWorld(grid=paths, tags={"layout": "two-path", "control": False})
    control = GridWorld(grid=paths.at(key=None), cluster=keyed.cluster_id, tags={"layout": "two-path", "control": True})
    maze = next(iter(generate_batch(9, 0.8, seed=seed + 1, count=1, minimum_distance=6)))
    fogged = GridWorld(grid=maze, fog_radius=3, tags={"layout": "fog"})
    return [*worlds, GridWorld(grid=locked, tags={"layout": "key-door"}), keyed, control, fogged]


def sample_episodes(
    seed: int = 0, trajectories: int = 3, invalid: float = 0.1, *, tasks: bool = False
) -> list[Episode]:
    """Run scripted agents on small worlds in memory, to have episodes on which measures can be tried.

    Args:
        seed: root seed.
        trajectories: number of episodes of each agent on each world.
        invalid: probability that a turn loses its action, as if the answer could not be parsed.
        tasks: whether to use task maps instead of the grids of `sample_worlds`.
    """
    worlds: Sequence[World]
    agents: Sequence[Agent]
    if tasks:
        worlds = [TaskWorld(task_map=generate_task_map(name, seed=seed)) for name in ("high-small", "8x8")]
        agents = (Greedy(), NoisyGreedy(0.4), RandomWalk())
    else:
        worlds = sample_worlds(seed)
        agents = (Optimal(), EpsilonGreedy(0.3), Uniform(), KeyLured(), WrongGoal("top-right"), Forgetful(0.4, 4))
    return [
        episode
        for agent in agents
        for world in worlds
        for episode in roll_out(agent, world, seed=seed, trajectories=trajectories, invalid=invalid)
    ]


def transformed(episode: Episode, transform: Transform) -> Episode:
    """Return a recorded episode as it would be on the rotated or reflected grid, in the same cluster.

    Args:
        episode: an episode on a grid.
        transform: the rotation or reflection.

    Raises:
        ValueError: if the transform exchanges start and goal, so that recorded episodes have no counterpart.
    """
    if transform.swapped:
        raise ValueError("transform must rotate or reflect; exchanging start and goal gives no valid episode")
    original = episode.world
    grid = transform.grid(original.grid)
    world = GridWorld(grid=grid, fog_radius=original.fog_radius, cluster=original.cluster_id, tags=original.tags)

    def moved(state: State) -> State:
        return transform.state(original.grid, state)

    actions = [None if turn.action is None else transform.action(turn.action) for turn in episode.steps]
    steps = tuple(
        replace(turn, state=moved(turn.state), action=action)
        for turn, action in zip(episode.steps, actions, strict=True)
    )
    return replace(
        episode, spec=replace(episode.spec, world_id=world.id), world=world, steps=steps, final=moved(episode.final)
    )


def _walk(
    spec: EpisodeSpec,
    world: World,
    agent: str,
    answer: Callable[[int, Session], int | None],
    turns: int,
) -> Episode:
    session, steps = world.begin_episode(spec.seed, spec.id), list[Step]()
    outcome: Outcome = "stopped" if turns < spec.horizon else "horizon"
    for index in range(turns):
        answered = answer(index, session)
        action = None if answered is None else world.action(answered)
        failure = "no answer" if action is None else None
        steps.append(Step(index=index, state=session.state, action=action, failure=failure))
        session.step(action)
        if session.done:
            outcome = "goal"
            break
    return Episode(spec=spec, world=world, agent=agent, steps=tuple(steps), final=session.state, outcome=outcome)


_TURNS = ("reflect", "rotate", "transpose")
TOLERANCE = 1e-9
"""Largest difference of two values that count as equal, relative to the larger one or to 1."""

_Key = tuple[str, str, str, str, int, tuple[tuple[str, str], ...]]


def check_measure(measure: Measure, episodes: Iterable[Episode] | None = None, *, invariant: bool = True) -> None:
    """Check that a measure obeys the laws common to all measures, for example in a test of your own measure.

    1. It has a name, a unit and bounds, and its rows carry this name and unit.
    2. Every value is NaN, or finite and within the bounds.
    3. Every row refers to a grid of the table and, if it names an episode or a step, to one of the table's.
    4. It does not modify the table (whose arrays are read-only), and the same table always gives the same rows.
    5. The order of the episodes does not matter.
    6. No episodes give no rows, and turns without an action cause no errors.
    7. The rows for several agents are the rows for each of them, concatenated.
    8. Rotating and reflecting grids, states and actions changes no value (with ``invariant``; on grids only).
    9. A measure made by `measure` that does not declare the need "oracle" does not read the oracle's columns.

    Args:
        measure: a function decorated by `measure`, or any object that implements `Measure`.
        episodes: episodes of at least two agents; by default `sample_episodes`, on task maps for a measure that needs
            tasks.
        invariant: whether to check law 8. A measure of directions ("share of moves to the left") does not obey it.

    Raises:
        AssertionError: if the measure breaks a law; the message names the law, the row and a remedy.
    """
    _check_declaration(measure)
    tasks = "tasks" in getattr(measure, "needs", ())
    cases = _sample_cases(tasks) if episodes is None else _Cases.of(tuple(episodes))
    rows = _run(measure, cases.table, "the episodes given")
    _demand(len(rows) > 0, measure, "must return rows for these episodes, got none: pass episodes to which it applies")
    _check_rows(measure, cases.table, rows)
    again = _run(measure, cases.table, "the same table twice")
    _demand_same(
        measure, rows, again, "must give the same rows for the same table", "use no randomness and keep no state"
    )
    shuffled = _run(measure, cases.shuffled, "episodes in another order")
    advice = "use the index of an episode only to look it up"
    _demand_same(measure, rows, shuffled, "must not depend on the order of the episodes", advice)
    nothing = _run(measure, cases.empty, "no episodes at all")
    _demand(len(nothing) == 0, measure, f"must return no rows for no episodes, got {len(nothing)}")
    for table in cases.silent:
        advice = "turns without an action (their action is NO_ACTION, -1, which is not an index)"
        _check_rows(measure, table, _run(measure, table, advice))
    parts = Rows.concatenate(_run(measure, table, "the episodes of one agent") for table in cases.agents)
    advice = "pool within the groups of `StepTable.groups` only"
    _demand_same(measure, rows, parts, "must give the same rows for several agents as for each of them alone", advice)
    if invariant:
        for name, (table, names) in cases.transformed.items():
            other_rows = _run(measure, table, f"episodes under the transform {name!r}")
            advice = "pass invariant=False if it depends on directions or positions"
            _demand_same(
                measure, rows, _renamed(other_rows, names), f"must not change under the transform {name!r}", advice
            )
    if isinstance(measure, StepMeasure) and not {"oracle", "distance"} & set(measure.needs):
        other_rows = _run(measure, cases.blind, "a table without the exact optimal policy")
        _demand_same(measure, rows, other_rows, "must not read the oracle's columns", 'declare needs=("oracle",)')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """The tables that the tests of a measure compare.

    `silent` contains two tables: in the first, half of the episodes have no actions; in the second, no episode has any.
    `transformed` maps a transform to the table of rotated or reflected grids and the original id of each new episode.
    `blind` has an oracle that knows no path to the goal.
    """

    table: StepTable
    shuffled: StepTable
    empty: StepTable
    silent: tuple[StepTable, StepTable]
    agents: tuple[StepTable, ...]
    transformed: Mapping[str, tuple[StepTable, Mapping[str, str]]]
    blind: StepTable

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "_Cases":
        tasks = all("tasks" in episode.world.offers for episode in episodes)
        table_of = partial(StepTable.from_episodes, tasks=tasks)
        order = stream(0, "check", "order").permutation(len(episodes))
        silenced = [_silenced(episode) for episode in episodes]
        half = len(silenced) // 2
        turned = _TURNS if all("grid" in episode.world.offers for episode in episodes) else ()
        moved = {name: [transformed(episode, TRANSFORMS[name]) for episode in episodes] for name in turned}
        table = table_of(episodes)
        hidden = {name: np.full_like(getattr(table, name), -1) for name in ("distance", "after", "optimal_length")}
        return cls(
            table=table,
            blind=replace(table, optimal=np.zeros_like(table.optimal), **hidden),
            shuffled=table_of(episodes[index] for index in order),
            empty=table_of([]),
            silent=(table_of([*silenced[:half], *episodes[half:]]), table_of(silenced)),
            agents=tuple(
                table_of(episode for episode in episodes if episode.agent == agent)
                for agent in dict.fromkeys(episode.agent for episode in episodes)
            ),
            transformed={
                name: (table_of(new), {changed.id: old.id for changed, old in zip(new, episodes, strict=True)})
                for name, new in moved.items()
            },
        )


@cache
def _sample_cases(tasks: bool) -> _Cases:
    return _Cases.of(sample_episodes(tasks=tasks))


def _run(measure: Measure, table: StepTable, case: str) -> Rows:
    try:
        return measure.rows(table)
    except (ArithmeticError, AttributeError, LookupError, ValueError, TypeError) as error:
        hint = ": copy an array before changing it, the table's are read-only" if "read-only" in str(error) else ""
        raise AssertionError(f"measure {measure.name!r} must not fail on {case}, got {error!r}{hint}") from error


def _check_declaration(measure: Measure) -> None:
    _demand(isinstance(measure, Measure), measure, "must have name, unit, bounds and rows(table), see `Measure`")
    for attribute in ("name", "unit"):
        value = getattr(measure, attribute)
        _demand(isinstance(value, str) and bool(value), measure, f"must have a {attribute}, got {value!r}")
    low, high = measure.bounds
    _demand(low < high, measure, f"must have bounds (low, high) with low < high, got {measure.bounds}")


def _check_rows(measure: Measure, table: StepTable, rows: Rows) -> None:
    grids = set(table.cluster)
    index_of = {name: index for index, name in enumerate(table.episode_id)}
    low, high = measure.bounds
    for row in rows:
        _demand(row.measure == measure.name, measure, f"must name its rows {measure.name!r}, got {row.measure!r}")
        _demand(row.unit == measure.unit, measure, f"must give its rows the unit {measure.unit!r}, got {row.unit!r}")
        within = math.isnan(row.value) or (math.isfinite(row.value) and low <= row.value <= high)
        _demand(within, measure, f"must have values that are NaN or finite and within {low:g} to {high:g}, got {row}")
        _demand(row.cluster in grids, measure, f"must use ids of grids in the table, got {row.cluster!r}")
        if row.episode_id:
            _demand(row.episode_id in index_of, measure, f"must use episode ids of the table, got {row.episode_id!r}")
            index = index_of[row.episode_id]
            cluster = table.cluster[index]
            _demand(row.cluster == cluster, measure, f"must give a row the grid {cluster!r} of its episode, got {row}")
            valid_step = row.step == WHOLE_EPISODE or 0 <= row.step < table.length[index]
            _demand(valid_step, measure, f"must use steps of the episode (0..{table.length[index] - 1}), got {row}")
        else:
            _demand(row.step == WHOLE_EPISODE, measure, f"must name the episode where a row names a step, got {row}")


def _renamed(rows: Rows, names: Mapping[str, str]) -> Rows:
    back = [names.get(episode, episode) for episode in rows.episode_id.tolist()]
    return rows.changed(episode_id=np.array(back, dtype=object))


def _demand_same(measure: Measure, rows: Rows, other_rows: Rows, law: str, advice: str) -> None:
    first, second = _sorted(rows), _sorted(other_rows)
    _demand(len(first) == len(second), measure, f"{law}, got {len(first)} rows and {len(second)}: {advice}")
    for (key, row), (other_key, other_row) in zip(first, second, strict=True):
        equal = key == other_key and (
            math.isclose(row.value, other_row.value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            or (math.isnan(row.value) and math.isnan(other_row.value))
        )
        _demand(equal, measure, f"{law}, got {row} and {other_row}: {advice}")


def _sorted(rows: Rows) -> list[tuple[_Key, Row]]:
    def key(row: Row) -> _Key:
        tags = tuple(sorted((name, repr(value)) for name, value in row.tags.items()))
        return row.measure, row.unit, row.cluster, row.episode_id, row.step, tags

    return sorted(
        ((key(row), row) for row in rows), key=lambda item: (item[0], math.isnan(item[1].value), item[1].value)
    )


def _silenced(episode: Episode) -> Episode:
    steps = tuple(
        replace(turn, state=episode.steps[0].state, action=None, failure="no answer") for turn in episode.steps
    )
    final = episode.steps[0].state if steps else episode.final
    return replace(episode, steps=steps, final=final, outcome="horizon")


def _demand(holds: bool, measure: Any, law: str) -> None:
    if not holds:
        raise AssertionError(f"measure {getattr(measure, 'name', measure)!r} {law}")
