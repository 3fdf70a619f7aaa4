"""MEG of runs in mazes under fog in a restricted class of soft policies, which plan on what the agent had seen.

The class and its bound are those of `goalscope.meg.restricted`; whoever sees the whole world is in the class of
`measure_goals`. The two have bounds of their own and are not compared in nats.
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
"""Random walks in each world of which the random agents of the null are made."""

MOST_FOLLOWED: Final = 64
"""States of a member of the class that are followed in a world at once, see `own_member`."""

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
    """What the class says of one world with its horizon."""

    grid_id: str
    scores: dict[int, Array]  # episode -> [B] nats at each rationality
    returns: dict[int, float]  # episode -> steps at the goal, or whether it was there
    random: Array  # [RANDOM_WALKS, B] the same of random walks
    random_return: float
    seeking: OwnMember
    avoiding: OwnMember


def restricted_name(unseen: Unseen) -> str:
    """Return the hypothesis under which the figures of the class stand."""
    return f"goal, restricted class ({unseen})"


def measure_restricted(
    table: StepTable,
    settings: GoalSettings | None = None,
    *,
    unseen: Unseen,
    progress: Callable[[int, int], None] | None = None,
) -> GoalFindings:
    """Measure the MEG of each agent towards the goal in the class of policies that plan on what was seen.

    Args:
        table: episodes, some in plain mazes under fog; those in other worlds are left out.
        settings: utility, invalid, by, confidence and seed count; the hypothesis is the goal.
        unseen: what the class assumes of cells that were not seen.
        progress: called with (done, total) worlds.

    Raises:
        ValueError: no episode in such a maze, or no such assumption.
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
    number = np.full(len(table.length), -1)
    for index, members in enumerate(units):
        used = members[complete[members]]
        number[used] = index
        if len(used):
            scored[index] = _score(table, used, settings, unseen)
        if progress is not None:
            progress(index + 1, len(units))
    estimates, rows = list[GoalEstimate](), list[Rows]()
    for cell, members in cells_of(table.tags, settings.by, len(table.length)):
        for agent in sorted(set(table.agent[members].tolist())):
            mine = members[(table.agent[members] == agent) & (number[members] >= 0)]
            if len(mine):
                estimate, parts, first = _estimate(table, settings, unseen, agent, cell, mine, number, scored)
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
        left_out=int((number < 0).sum()),
        failed=int((complete & (table.outcome == "failure") & (table.length < table.horizon)).sum()),
    )


def _units(table: StepTable) -> list[Numbers]:
    """Return the episodes of each world and horizon in which the class has a meaning, in the order of their ids."""
    found: dict[tuple[str, int], list[int]] = {}
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        world: Any = table.worlds[table.world[index]]
        plain = world.planar and not world.own_measures and getattr(world, "fog_radius", None) is not None
        plain = plain and world.grid.key is None and world.grid.door is None
        if plain:
            found.setdefault((world_id, horizon), []).append(index)
    return [np.array(found[key], dtype=np.int64) for key in sorted(found)]


def _score(table: StepTable, members: Numbers, settings: GoalSettings, unseen: Unseen) -> _Scored:
    first = int(members[0])
    world, horizon = table.worlds[table.world[first]], int(table.horizon[first])
    place = FoggedMaze(world.grid, world.fog_radius or 1, unseen)
    arrival, own = settings.utility == "arrival", len(Action)
    actions = own + (settings.invalid == "action")
    told, exact = table.once(policies), exactly(table)
    chances, moves, returns = [], [], {}
    for episode in members.tolist():
        mine = slice(table.begin[episode], table.begin[episode] + table.length[episode])
        taken = table.action[mine]
        weights = np.zeros((len(taken), actions))
        if exact[episode]:
            weights[:, :own] = np.nan_to_num(told[mine, :own])
        else:
            valid = np.flatnonzero(taken != NO_ACTION)
            weights[valid, taken[valid]] = 1
        if actions > own:
            weights[taken == NO_ACTION] = np.eye(actions)[own]
        chances.append(weights)
        moves.append([None if action == NO_ACTION else action for action in taken.tolist()])
        solved = table.outcome[episode] == "goal"
        returns[episode] = float(solved if arrival else solved * (horizon - len(taken)))
    names = (str(table.world_id[first]), horizon, settings.invalid)
    drawn = stream(settings.seed, "random walks of the class", *names).integers(0, actions, (RANDOM_WALKS, horizon))
    wandering = [[None if action == own else action for action in row] for row in drawn.tolist()]
    scores = walk_scores(
        place.begin,
        [*chances, *np.eye(actions)[drawn]],
        [*moves, *wandering],
        horizon=horizon,
        rationalities=KNOTS,
        arrival=arrival,
    )
    seeking, avoiding = (
        own_member(
            place.begin,
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
        grid_id=str(table.grid_id[first]),
        scores=dict(zip(members.tolist(), scores, strict=False)),
        returns=returns,
        random=scores[len(members) :],
        random_return=_mean_return(place, wandering, horizon, arrival),
        seeking=seeking,
        avoiding=avoiding,
    )


def _mean_return(place: FoggedMaze, walks: list[list[int | None]], horizon: int, arrival: bool) -> float:
    total = 0
    for actions in walks:
        walk = place.begin()
        for turn, action in enumerate(actions):
            walk = walk.after(action)
            if walk.done:
                total += 1 if arrival else horizon - turn - 1
                break
    return total / len(walks)


def _best(scores: Array) -> tuple[Array, Array]:
    """Return the greatest of scores ``[N, B]`` over the rationalities, with the sign of its rationality, and that."""
    at = scores.argmax(axis=1)
    value = np.maximum(scores[np.arange(len(scores)), at], 0.0)
    return np.where(KNOTS[at] < 0, 0.0 - value, value), KNOTS[at]


def _estimate(
    table: StepTable,
    settings: GoalSettings,
    unseen: Unseen,
    agent: str,
    cell: Mapping[str, Tag],
    mine: Numbers,
    number: Numbers,
    scored: Mapping[int, _Scored],
) -> tuple[GoalEstimate, Array, Numbers]:
    """Return the estimate of one agent in a cell, the part of each world, and an episode of each."""
    used, first, inverse = np.unique(number[mine], return_index=True, return_inverse=True)
    worlds = [scored[index] for index in used.tolist()]
    counts = np.bincount(inverse)
    whose = [(worlds[at], int(episode)) for at, episode in zip(inverse.tolist(), mine.tolist(), strict=True)]
    means = np.zeros((len(worlds), len(KNOTS)))
    np.add.at(means, inverse, np.array([world.scores[episode] for world, episode in whose]))
    means /= counts[:, None]
    weights = weigh([world.grid_id for world in worlds], seed=settings.seed)
    fraction = weights.whole[0]
    signed, beta = (float(part[0]) for part in _best(weights.whole @ means))
    null = _best(_random_agents(worlds, counts, fraction, settings.seed))[0]
    acts = bool(acted(table)[mine].any())
    notes = [EXACT_NOTE] if bool(exactly(table)[mine].all()) else []
    notes += [CLASS_NOTE.format(what=_WHAT[unseen])]
    notes += [] if all(one.exact for world in worlds for one in (world.seeking, world.avoiding)) else [_DRAWN]
    estimate = goal_estimate(
        {
            "signed": signed,
            "bound": float(fraction @ [world.seeking.nats for world in worlds]),
            "bound_lowest": float(fraction @ [world.avoiding.nats for world in worlds]),
            "cross_fitted": _cross_fitted(weights.first, weights.second, means, worlds, counts),
            "utility": float(fraction @ (np.bincount(inverse, [w.returns[episode] for w, episode in whose]) / counts)),
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
        n=len(mine),
        worlds=len(worlds),
    )
    terms = means[:, int(np.flatnonzero(beta == KNOTS)[0])] if acts else np.full(len(worlds), np.nan)
    return estimate, terms if signed >= 0 else -terms, mine[first]


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

    As for the class that sees everything, the half that is fitted counts one random episode more than there were.
    """
    if not len(first):
        return math.nan
    random = np.array([world.random.mean(axis=0) for world in worlds])
    found = []
    for fitted, held in ((first, second), (second, first)):
        episodes = ((fitted > 0) @ counts)[:, None]
        at = ((fitted @ means * episodes + fitted @ random) / (episodes + 1)).argmax(axis=1)
        found.append((held @ means)[np.arange(HALVES), at])
    return float(np.mean(found))
