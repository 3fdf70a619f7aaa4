"""MEG of runs in mazes under fog in a restricted class of soft policies, which plan from the agent's observations.

The class and its bound are those of `goalscope.meg.restricted`; agents that see the whole world belong to
the class of `measure_goals`. The two classes have different bounds and are not compared in nats.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.curves import KNOTS, NULL_AGENTS
from goalscope.measures.goals.episodes import GoalEpisodes
from goalscope.measures.goals.resamples import HALVES, Resampled, weigh
from goalscope.measures.goals.results import EXACT_NOTE, GoalEstimate, GoalFindings, goal_estimate
from goalscope.measures.goals.returns import exactly, policies
from goalscope.measures.goals.settings import TOWARDS, GoalSettings, cells_of, goal_measure
from goalscope.measures.table import CONDITIONS, NO_ACTION, PROVENANCE, StepTable
from goalscope.meg.restricted import LARGEST, FoggedMaze, OwnMember, Unseen, own_member, walk_scores
from goalscope.rng import stream
from goalscope.rows import Rows, Tag
from goalscope.spill import Spill
from goalscope.worlds.grid import Action

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

RANDOM_WALKS: Final = 8
"""Number of random walks in each world, from which the random agents of the null are resampled."""

MOST_FOLLOWED: Final = 64
"""Maximum number of states of a member of the class followed at once, see `own_member`."""

_SCORES: Final = 4096  # episodes whose scores are read at a time

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
    """What is known of the class in one world with its horizon, beside the scores of episodes."""

    cluster: str
    random: Array  # [RANDOM_WALKS, B] nats of random walks at each rationality
    random_return: float
    seeking: OwnMember
    avoiding: OwnMember


def restricted_name(unseen: Unseen) -> str:
    """Return the name of the hypothesis of the class."""
    return f"goal, restricted class ({unseen})"


def measure_restricted(
    parts: Iterable[StepTable],
    settings: GoalSettings,
    *,
    unseen: Unseen,
    total: int,
    progress: Callable[[int, int], None] | None = None,
) -> GoalFindings:
    """Measure the MEG of each agent towards the goal in the class of policies that plan from observations.

    Args:
        parts: tables of the episodes, of which one is in memory at a time; no world is in two of them. Episodes in
            other worlds than mazes under fog without key and door are left out.
        settings: utility, invalid, by, confidence and seed count; the hypothesis is the goal.
        unseen: the assumption of the class about unseen cells.
        total: number of episodes in all parts, for `progress`.
        progress: called with (done, total) episodes.

    Raises:
        ValueError: no episode in such a maze, or an unknown assumption.
    """
    if unseen not in _WHAT:
        raise ValueError(f"what is assumed of unseen cells must be one of {', '.join(_WHAT)}, got {unseen!r}")
    scored, told = _ScoredEpisodes(settings, unseen), progress or (lambda done, total: None)
    for part in parts:
        scored.add(part, lambda done: told(done, total))
    return scored.found()


class _ScoredEpisodes:
    """Scores of the episodes of a run; those of single episodes are kept in a temporary file."""

    def __init__(self, settings: GoalSettings, unseen: Unseen) -> None:
        self._settings, self._unseen, self._spill = settings, unseen, Spill()
        self._keys: list[tuple[str, int]] = []  # world and horizon of each unit
        self._worlds: list[_Scored | None] = []
        self._episodes: list[GoalEpisodes] = []
        self._unit, self._piece, self._returned, self._exact = (list[Any]() for _ in range(4))
        self._done = self._failed = 0

    def add(self, table: StepTable, progress: Callable[[int], None]) -> None:
        """Score the episodes of a table, whose worlds are in no other."""
        count = len(table.length)
        complete = (table.outcome != "stopped") | (table.length == table.horizon)
        unit, piece, returned = np.full(count, -1), np.full(count, -1), np.full(count, np.nan)
        done = self._done
        for key, members in _units(table).items():
            used = members[complete[members]]
            world = None
            if len(used):
                world, scores, returned[used] = _score(table, used, self._settings, self._unseen)
                unit[used] = len(self._keys)
                piece[used] = [self._spill.add(one.tobytes()) for one in scores]
            self._keys.append(key)
            self._worlds.append(world)
            done += len(members)
            progress(done)
        self._failed += int((complete & (table.outcome == "failure") & (table.length < table.horizon)).sum())
        self._episodes.append(GoalEpisodes.of(table, self._settings.by))
        for columns, column in zip(
            (self._unit, self._piece, self._returned, self._exact), (unit, piece, returned, exactly(table)), strict=True
        ):
            columns.append(column)
        self._done += count
        progress(self._done)

    def found(self) -> GoalFindings:
        """Return the estimates; worlds are in the order of their ids."""
        if not self._keys:
            raise ValueError(
                "the class of policies that plan on what was seen needs episodes in mazes under fog without key and "
                "door, got none: leave --seen out; in other worlds the class that sees everything is measured"
            )
        episodes, unit = GoalEpisodes.joined(self._episodes), np.concatenate(self._unit)
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        self._worlds = [self._worlds[number] for number in order]
        unit = np.where(unit >= 0, np.argsort(order)[unit], -1)
        estimates, rows = list[GoalEstimate](), list[Rows]()
        codes, names = episodes.agent.numbered()
        for cell, members in cells_of(episodes.tags, self._settings.by, len(episodes)):
            for agent in sorted({names[code] for code in codes[members].tolist()}):
                of_agent = members[(codes[members] == names.index(agent)) & (unit[members] >= 0)]
                if len(of_agent):
                    estimate, cell_rows = self._estimate(episodes, agent, cell, of_agent, unit[of_agent])
                    estimates.append(estimate)
                    if not any(name in self._settings.by and name not in CONDITIONS for name in cell):
                        rows.append(cell_rows)
        settings = self._settings
        return GoalFindings(
            estimates=tuple(estimates),
            contrasts=(),
            rows=Rows.concatenate(rows),
            settings={
                "seen": self._unseen,
                "utility": settings.utility,
                "invalid": settings.invalid,
                "seed": settings.seed,
            },
            episodes=len(episodes),
            left_out=int((unit < 0).sum()),
            failed=self._failed,
        )

    def _means(self, episodes: Numbers, world: Numbers, counts: Numbers) -> Array:
        """Return ``[U, B]`` mean scores of episodes by the world of each."""
        piece, means = np.concatenate(self._piece)[episodes], np.zeros((len(counts), len(KNOTS)))
        for at in range(0, len(piece), _SCORES):
            scores = b"".join(map(self._spill.read, piece[at : at + _SCORES].tolist()))
            np.add.at(means, world[at : at + _SCORES], np.frombuffer(scores).reshape(-1, len(KNOTS)))
        return means / counts[:, None]

    def _estimate(
        self, episodes: GoalEpisodes, agent: str, cell: Mapping[str, Tag], members: Numbers, unit: Numbers
    ) -> tuple[GoalEstimate, Rows]:
        """Return the estimate of one agent in a cell from its episodes and their units, and the row of each world."""
        used, first, inverse = np.unique(unit, return_index=True, return_inverse=True)
        worlds = [world for index in used.tolist() if (world := self._worlds[index]) is not None]
        counts, settings = np.bincount(inverse), self._settings
        means = self._means(members, inverse, counts)
        returned = np.concatenate(self._returned)[members]
        weights = weigh([world.cluster for world in worlds], seed=settings.seed)
        fraction = weights.whole[0]
        signed, beta = (float(part[0]) for part in _best(weights.whole @ means))
        null = _best(_random_agents(worlds, counts, fraction, settings.seed))[0]
        acts = bool(episodes.acted[members].any())
        notes = [EXACT_NOTE] if bool(np.concatenate(self._exact)[members].all()) else []
        notes += [CLASS_NOTE.format(what=_WHAT[self._unseen])]
        notes += [] if all(member.exact for world in worlds for member in (world.seeking, world.avoiding)) else [_DRAWN]
        estimate = goal_estimate(
            {
                "signed": signed,
                "bound": float(fraction @ [world.seeking.nats for world in worlds]),
                "bound_lowest": float(fraction @ [world.avoiding.nats for world in worlds]),
                "cross_fitted": _cross_fitted(weights.first, weights.second, means, worlds, counts),
                "utility": float(fraction @ (np.bincount(inverse, returned) / counts)),
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
            hypothesis=restricted_name(self._unseen),
            n=len(members),
            worlds=len(worlds),
        )
        terms = means[:, int(np.flatnonzero(beta == KNOTS)[0])] if acts else np.full(len(worlds), np.nan)
        return estimate, Rows.from_columns(
            measure=goal_measure(restricted_name(self._unseen)),
            unit="nats",
            value=terms if signed >= 0 else -terms,
            cluster=[world.cluster for world in worlds],
            tags={name: tag[members[first]] for name, tag in episodes.tags.items() if name not in PROVENANCE}
            | {TOWARDS: restricted_name(self._unseen)},
        )


def _units(table: StepTable) -> dict[tuple[str, int], Numbers]:
    """Return the episodes of each world and horizon for which the class is defined."""
    by_world: dict[tuple[str, int], list[int]] = {}
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        world: Any = table.worlds[table.world[index]]
        suitable = "grid" in world.offers and world.fog_radius is not None
        suitable = suitable and world.grid.key is None and world.grid.door is None
        if suitable:
            by_world.setdefault((world_id, horizon), []).append(index)
    return {key: np.array(members, dtype=np.int64) for key, members in sorted(by_world.items())}


def _score(
    table: StepTable, members: Numbers, settings: GoalSettings, unseen: Unseen
) -> tuple[_Scored, Array, list[float]]:
    """Return what is known of a world, and the scores ``[m, B]`` and returns ``[m]`` of its episodes."""
    first = int(members[0])
    world, horizon = table.worlds[table.world[first]], int(table.horizon[first])
    maze = FoggedMaze(world.grid, world.fog_radius or 1, unseen)
    arrival, idle = settings.utility == "arrival", len(Action)
    actions = idle + (settings.invalid == "action")
    drawn_from, exact = table.once(policies), exactly(table)
    weights_of_episodes, moves, returns = [], [], list[float]()
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
        returns.append(float(arrived if arrival else arrived * (horizon - len(actions_taken))))
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
    scored = _Scored(
        cluster=str(table.cluster[first]),
        random=scores[len(members) :],
        random_return=_mean_return(maze, random_moves, horizon, arrival),
        seeking=seeking,
        avoiding=avoiding,
    )
    return scored, scores[: len(members)], returns


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


def _random_agents(worlds: list[_Scored], counts: Numbers, fraction: Array, seed: int) -> Array:
    """Return ``[NULL_AGENTS, B]`` the scores of random agents with as many episodes, drawn of the random walks."""
    total = np.zeros((NULL_AGENTS, len(KNOTS)))
    rng = stream(seed, "random agents of the class", len(worlds), int(counts.sum()))
    for world, count, part in zip(worlds, counts.tolist(), fraction.tolist(), strict=True):
        drawn = rng.integers(0, len(world.random), size=(NULL_AGENTS, count))
        total += part * world.random[drawn].mean(axis=1)
    return total


def _cross_fitted(first: Resampled, second: Resampled, means: Array, worlds: list[_Scored], counts: Numbers) -> float:
    """Return the mean score of one half at the rationality of the other; NaN with fewer than two grids.

    As for the class that sees everything, one random episode is added to the fitted half.
    """
    if not len(first):
        return math.nan
    random = np.array([world.random.mean(axis=0) for world in worlds])
    scores = []
    for fitted, held_out in ((first, second), (second, first)):
        episodes = fitted.total(counts)[:, None]
        best = ((fitted @ means * episodes + fitted @ random) / (episodes + 1)).argmax(axis=1)
        scores.append((held_out @ means)[np.arange(HALVES), best])
    return float(np.mean(scores))
