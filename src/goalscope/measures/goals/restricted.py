"""MEG of runs in mazes under fog in a restricted class of soft policies, which plan from the agent's observations.

The class and its bound are those of `goalscope.meg.restricted`; agents that see the whole world belong to
the class of `measure_goals`. The two classes have different bounds and are not compared in nats.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.curves import HALVES, KNOTS, NULL_AGENTS, weigh
from goalscope.measures.goals.results import EXACT_NOTE, GoalEstimate, GoalFindings, goal_estimate
from goalscope.measures.goals.returns import acted, exactly, policies
from goalscope.measures.goals.settings import GoalSettings, cells_of
from goalscope.measures.table import CONDITIONS, NO_ACTION, StepTable
from goalscope.meg.restricted import LARGEST, FoggedMaze, OwnMember, Unseen, own_member, walk_scores
from goalscope.rng import stream
from goalscope.rows import Rows, Tag
from goalscope.worlds.grid import Action

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

RANDOM_WALKS: Final = 8
"""Number of random walks in each world, from which the random agents of the null are resampled."""

MOST_FOLLOWED: Final = 64
"""Maximum number of states of a member of the class followed at once, see `own_member`."""

CLASS_NOTE: Final = (
    "restricted class: soft policies that plan on what was seen, {what}; the bound is what the class's own most "
    "rational member shows"
)
_WHAT: Final[Mapping[Unseen, str]] = {
    "open": "hidden cells taken as open",
    "known": "known ways alone",
}
_DRAWN: Final = "in some worlds the ties of that member were drawn"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Scored:
    """Scores of the class in one world with its horizon."""

    cluster: str
    scores: dict[int, Array]  # episode -> [B] nats at each rationality
    returns: dict[int, float]  # episode -> steps at the goal, or 1 for arrival
    random: Array  # [RANDOM_WALKS, B] the same of random walks
    random_return: float
    seeking: OwnMember
    avoiding: OwnMember


def restricted_name(unseen: Unseen) -> str:
    """Return the name of the hypothesis of the class."""
    return f"goal, restricted class ({unseen})"


def measure_restricted(
    table: StepTable,
    settings: GoalSettings | None = None,
    *,
    unseen: Unseen,
    progress: Callable[[int, int], None] | None = None,
) -> GoalFindings:
    """Measure the MEG of each agent towards the goal in the class of policies that plan from observations.

    Args:
        table: episodes, some in mazes under fog without key and door; others are left out.
        settings: utility, invalid, by, confidence and seed count; the hypothesis is the goal.
        unseen: the assumption of the class about unseen cells.
        progress: called with (done, total) worlds.

    Raises:
        ValueError: no episode in such a maze, or an unknown assumption.
    """
    settings = settings or GoalSettings()
    if unseen not in _WHAT:
        raise ValueError(f"what is assumed of unseen cells must be one of {', '.join(_WHAT)}, got {unseen!r}")
    units = _units(table)
    if not units:
        raise ValueError(
            "the class of policies that plan on what was seen needs episodes in mazes under fog without key and door, "
            "got none: leave --seen out; in other worlds the class that sees everything is measured"
        )
    complete = (table.outcome != "stopped") | (table.length == table.horizon)
    scored = dict[int, _Scored]()
    unit_of = np.full(len(table.length), -1)
    for index, members in enumerate(units):
        used = members[complete[members]]
        unit_of[used] = index
        if len(used):
            scored[index] = _score(table, used, settings, unseen)
        if progress is not None:
            progress(index + 1, len(units))
    estimates, rows = list[GoalEstimate](), list[Rows]()
    for cell, members in cells_of(table.tags, settings.by, len(table.length)):
        for agent in sorted(set(table.agent[members].tolist())):
            agent_episodes = members[(table.agent[members] == agent) & (unit_of[members] >= 0)]
            if len(agent_episodes):
                estimate, parts, first = _estimate(
                    table, settings, unseen, agent, cell, agent_episodes, unit_of, scored
                )
                estimates.append(estimate)
                if not any(name in settings.by and name not in CONDITIONS for name in cell):
                    name = f"MEG towards the {restricted_name(unseen)}"
                    rows.append(table.rows(name, "nats", parts, per="group", of=table.groups()[0][first]))
    return GoalFindings(
        estimates=tuple(estimates),
        contrasts=(),
        rows=Rows.concatenate(rows),
        settings={"seen": unseen, "utility": settings.utility, "invalid": settings.invalid, "seed": settings.seed},
        episodes=len(table.length),
        left_out=int((unit_of < 0).sum()),
        failed=int((complete & (table.outcome == "failure") & (table.length < table.horizon)).sum()),
    )


def _units(table: StepTable) -> list[Numbers]:
    """Return the episodes of each world and horizon for which the class is defined, in the order of their ids."""
    by_world: dict[tuple[str, int], list[int]] = {}
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        world: Any = table.worlds[table.world[index]]
        suitable = world.planar and not world.own_measures and getattr(world, "fog_radius", None) is not None
        suitable = suitable and world.grid.key is None and world.grid.door is None
        if suitable:
            by_world.setdefault((world_id, horizon), []).append(index)
    return [np.array(by_world[key], dtype=np.int64) for key in sorted(by_world)]


def _score(table: StepTable, members: Numbers, settings: GoalSettings, unseen: Unseen) -> _Scored:
    first = int(members[0])
    world, horizon = table.worlds[table.world[first]], int(table.horizon[first])
    maze = FoggedMaze(world.grid, world.fog_radius or 1, unseen)
    arrival, idle = settings.utility == "arrival", len(Action)
    actions = idle + (settings.invalid == "action")
    drawn_from, exact = table.once(policies), exactly(table)
    weights_of_episodes, moves, returns = [], [], {}
    for episode in members.tolist():
        steps = slice(table.begin[episode], table.begin[episode] + table.length[episode])
        actions_taken = table.action[steps]
        weights = np.zeros((len(actions_taken), actions))
        if exact[episode]:
            weights[:, :idle] = np.nan_to_num(drawn_from[steps, :idle])
        else:
            valid = np.flatnonzero(actions_taken != NO_ACTION)
            weights[valid, actions_taken[valid]] = 1
        if actions > idle:
            weights[actions_taken == NO_ACTION] = np.eye(actions)[idle]
        weights_of_episodes.append(weights)
        moves.append([None if action == NO_ACTION else action for action in actions_taken.tolist()])
        arrived = table.outcome[episode] == "goal"
        returns[episode] = float(arrived if arrival else arrived * (horizon - len(actions_taken)))
    names = (str(table.world_id[first]), horizon, settings.invalid)
    drawn = stream(settings.seed, "random walks of the class", *names).integers(0, actions, (RANDOM_WALKS, horizon))
    random_moves = [[None if action == idle else action for action in row] for row in drawn.tolist()]
    scores = walk_scores(
        maze.begin,
        [*weights_of_episodes, *np.eye(actions)[drawn]],
        [*moves, *random_moves],
        horizon=horizon,
        rationalities=KNOTS,
        arrival=arrival,
    )
    seeking, avoiding = (
        own_member(
            maze.begin,
            horizon=horizon,
            most=MOST_FOLLOWED,
            rng=stream(settings.seed, "members of the class", *names, rationality),
            rationality=rationality,
            actions=actions,
            arrival=arrival,
        )
        for rationality in (LARGEST, -LARGEST)
    )
    return _Scored(
        cluster=str(table.cluster[first]),
        scores=dict(zip(members.tolist(), scores, strict=False)),
        returns=returns,
        random=scores[len(members) :],
        random_return=_mean_return(maze, random_moves, horizon, arrival),
        seeking=seeking,
        avoiding=avoiding,
    )


def _mean_return(maze: FoggedMaze, walks: list[list[int | None]], horizon: int, arrival: bool) -> float:
    total = 0
    for actions in walks:
        walk = maze.begin()
        for turn, action in enumerate(actions):
            walk = walk.after(action)
            if walk.done:
                total += 1 if arrival else horizon - turn - 1
                break
    return total / len(walks)


def _best(scores: Array) -> tuple[Array, Array]:
    """Return the greatest of scores ``[N, B]`` over the rationalities, with the sign of its rationality, and that."""
    best = scores.argmax(axis=1)
    value = np.maximum(scores[np.arange(len(scores)), best], 0.0)
    return np.where(KNOTS[best] < 0, 0.0 - value, value), KNOTS[best]


def _estimate(
    table: StepTable,
    settings: GoalSettings,
    unseen: Unseen,
    agent: str,
    cell: Mapping[str, Tag],
    agent_episodes: Numbers,
    unit_of: Numbers,
    scored: Mapping[int, _Scored],
) -> tuple[GoalEstimate, Array, Numbers]:
    """Return the estimate of one agent in a cell, the part of each world, and an episode of each."""
    used, first, inverse = np.unique(unit_of[agent_episodes], return_index=True, return_inverse=True)
    worlds = [scored[index] for index in used.tolist()]
    counts = np.bincount(inverse)
    world_and_episode = [
        (worlds[index], int(episode)) for index, episode in zip(inverse.tolist(), agent_episodes.tolist(), strict=True)
    ]
    means = np.zeros((len(worlds), len(KNOTS)))
    np.add.at(means, inverse, np.array([world.scores[episode] for world, episode in world_and_episode]))
    means /= counts[:, None]
    weights = weigh([world.cluster for world in worlds], seed=settings.seed)
    fraction = weights.whole[0]
    signed, beta = (float(part[0]) for part in _best(weights.whole @ means))
    null = _best(_random_agents(worlds, counts, fraction, settings.seed))[0]
    acts = bool(acted(table)[agent_episodes].any())
    notes = [EXACT_NOTE] if bool(exactly(table)[agent_episodes].all()) else []
    notes += [CLASS_NOTE.format(what=_WHAT[unseen])]
    notes += [] if all(member.exact for world in worlds for member in (world.seeking, world.avoiding)) else [_DRAWN]
    estimate = goal_estimate(
        {
            "signed": signed,
            "bound": float(fraction @ [world.seeking.nats for world in worlds]),
            "bound_lowest": float(fraction @ [world.avoiding.nats for world in worlds]),
            "cross_fitted": _cross_fitted(weights.first, weights.second, means, worlds, counts),
            "utility": float(
                fraction @ (np.bincount(inverse, [w.returns[episode] for w, episode in world_and_episode]) / counts)
            ),
            "uniform_utility": float(fraction @ [world.random_return for world in worlds]),
            "highest_utility": float(fraction @ [world.seeking.utility for world in worlds]),
        },
        beta=math.copysign(math.inf, beta) if abs(beta) >= KNOTS[-1] else beta,
        resampled=_best(weights.resampled @ means)[0],
        null=null,
        grids=weights.grids,
        confidence=settings.confidence,
        acts=acts,
        notes=notes,
        agent=agent,
        cell=cell,
        hypothesis=restricted_name(unseen),
        n=len(agent_episodes),
        worlds=len(worlds),
    )
    terms = means[:, int(np.flatnonzero(beta == KNOTS)[0])] if acts else np.full(len(worlds), np.nan)
    return estimate, terms if signed >= 0 else -terms, agent_episodes[first]


def _random_agents(worlds: list[_Scored], counts: Numbers, fraction: Array, seed: int) -> Array:
    """Return ``[NULL_AGENTS, B]`` the scores of random agents with as many episodes, drawn of the random walks."""
    total = np.zeros((NULL_AGENTS, len(KNOTS)))
    rng = stream(seed, "random agents of the class", len(worlds), int(counts.sum()))
    for world, count, part in zip(worlds, counts.tolist(), fraction.tolist(), strict=True):
        drawn = rng.integers(0, len(world.random), size=(NULL_AGENTS, count))
        total += part * world.random[drawn].mean(axis=1)
    return total


def _cross_fitted(first: Array, second: Array, means: Array, worlds: list[_Scored], counts: Numbers) -> float:
    """Return the mean score of one half at the rationality of the other; NaN with fewer than two grids.

    As for the class that sees everything, one random episode is added to the fitted half.
    """
    if not len(first):
        return math.nan
    random = np.array([world.random.mean(axis=0) for world in worlds])
    scores = []
    for fitted, held_out in ((first, second), (second, first)):
        episodes = ((fitted > 0) @ counts)[:, None]
        best = ((fitted @ means * episodes + fitted @ random) / (episodes + 1)).argmax(axis=1)
        scores.append((held_out @ means)[np.arange(HALVES), best])
    return float(np.mean(scores))
