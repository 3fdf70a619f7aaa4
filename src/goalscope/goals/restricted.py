"""MEG of runs in mazes under fog in a restricted class of soft policies, which plan from the agent's observations.

The class and its bound are those of `goalscope.meg.restricted`; agents that see the whole world belong to
the class of `directedness`. The two classes have different bounds and are not compared in nats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.columns import column_of
from goalscope.goals.curves import KNOTS, NULL_AGENTS
from goalscope.goals.directedness import TOWARDS, cells_of, check_tags, goal_measure
from goalscope.goals.random_agents import Invalid, Utility
from goalscope.goals.resamples import HALVES, Resampled, weigh
from goalscope.goals.results import EXACT_NOTE, GoalEstimate, RunDirectedness, goal_estimate
from goalscope.hypotheses.states import States
from goalscope.hypotheses.written import parse
from goalscope.measures.table import CONDITIONS, PROVENANCE
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
    states: Iterable[States],
    *,
    unseen: Unseen,
    by: Sequence[str] = (),
    utility: Utility = "steps",
    invalid: Invalid = "no-op",
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> RunDirectedness:
    """Measure the MEG of each agent towards the goal in the class of policies that plan from observations.

    Args:
        states: what the agents did. Episodes in other worlds than mazes under fog without key and door are left out.
        unseen: the assumption of the class about unseen cells.
        by, utility, invalid, confidence, seed: as in `directedness`; the hypothesis is the goal.
        progress: called with (done, total) episodes.

    Raises:
        ValueError: no episode in such a maze, an unknown assumption, or a tag that no episode has.
    """
    if unseen not in _WHAT:
        raise ValueError(f"what is assumed of unseen cells must be one of {', '.join(_WHAT)}, got {unseen!r}")
    scored = _ScoredEpisodes(unseen, by=by, kind=utility, invalid=invalid, confidence=confidence, seed=seed)
    by_world: dict[tuple[str, int], list[States]] = {}
    for entry in states:
        by_world.setdefault((entry.world.world.id, entry.world.horizon), []).append(entry)
    total, done = sum(len(entry) for entries in by_world.values() for entry in entries), 0
    for entries in by_world.values():
        scored.add(entries)
        done += sum(len(entry) for entry in entries)
        if progress is not None:
            progress(done, total)
    return scored.found()


class _ScoredEpisodes:
    """Scores of the episodes of a run; those of single episodes are kept in a temporary file."""

    def __init__(
        self, unseen: Unseen, *, by: Sequence[str], kind: Utility, invalid: Invalid, confidence: float, seed: int
    ) -> None:
        self._unseen, self._by, self._confidence, self._seed = unseen, tuple(by), confidence, seed
        self._kind: Utility = kind
        self._invalid: Invalid = invalid
        self._spill = Spill()
        self._worlds: dict[tuple[str, int], _Scored] = {}
        self._states: list[States] = []
        self._pieces: dict[int, list[int]] = {}  # identity of states -> pieces of the file, one for each episode
        self._returns: dict[int, Array] = {}

    def add(self, entries: Sequence[States]) -> None:
        """Score the episodes of all agents in one world."""
        self._states += entries
        world = entries[0].world.world
        suitable = "grid" in world.offers and world.fog_radius is not None
        used = [entry for entry in entries if entry.complete.any()]
        if not suitable or world.grid.key is not None or world.grid.door is not None or not used:
            return
        complete = [entry.chosen(entry.complete) for entry in used]
        scored, scores, returns = score_walks(
            complete, self._unseen, kind=self._kind, invalid=self._invalid, seed=self._seed
        )
        self._worlds[world.id, entries[0].world.horizon] = scored
        rows = iter(scores)
        for entry, earned in zip(used, returns, strict=True):
            self._pieces[id(entry)] = [self._spill.add(next(rows).tobytes()) for _ in earned]
            self._returns[id(entry)] = earned

    def found(self) -> RunDirectedness:
        """Return the estimates; worlds are in the order of their ids."""
        if not self._worlds:
            raise ValueError(
                "the class of policies that plan on what was seen needs episodes in mazes under fog without key and "
                "door, got none: leave --seen out; in other worlds the class that sees everything is measured"
            )
        check_tags(self._states, self._by)
        estimates, rows = list[GoalEstimate](), list[Rows]()
        for cell, members in cells_of(self._states, self._by):
            for agent in sorted({entry.agent for entry in members}):
                used = [entry for entry in members if entry.agent == agent and id(entry) in self._pieces]
                if used:
                    estimate, cell_rows = self._estimate(agent, cell, used)
                    estimates.append(estimate)
                    if not any(name in self._by and name not in CONDITIONS for name in cell):
                        rows.append(cell_rows)
        scored = sum(len(pieces) for pieces in self._pieces.values())
        episodes = sum(len(entry) for entry in self._states)
        return RunDirectedness(
            estimates=tuple(estimates),
            contrasts=(),
            rows=Rows.concatenate(rows),
            settings={
                "seen": self._unseen,
                "by": list(self._by),
                "utility": self._kind,
                "invalid": self._invalid,
                "confidence": self._confidence,
                "seed": self._seed,
            },
            episodes=episodes,
            left_out=episodes - scored,
            failed=sum(entry.failed for entry in self._states),
        )

    def _means(self, by_world: Sequence[Sequence[States]]) -> Array:
        """Return ``[U, B]`` mean scores of the episodes of each world."""
        means = np.zeros((len(by_world), len(KNOTS)))
        for number, entries in enumerate(by_world):
            pieces = [piece for entry in entries for piece in self._pieces[id(entry)]]
            for at in range(0, len(pieces), _SCORES):
                scores = np.frombuffer(b"".join(map(self._spill.read, pieces[at : at + _SCORES])))
                for score in scores.reshape(-1, len(KNOTS)):
                    means[number] += score
            means[number] /= len(pieces)
        return means

    def _estimate(self, agent: str, cell: Mapping[str, Tag], members: Sequence[States]) -> tuple[GoalEstimate, Rows]:
        """Return the estimate of one agent in a cell from its episodes, and the row of each world."""
        by_key: dict[tuple[str, int], list[States]] = {}
        for entry in members:
            by_key.setdefault((entry.world.world.id, entry.world.horizon), []).append(entry)
        keys = sorted(by_key)
        by_world, worlds = [by_key[key] for key in keys], [self._worlds[key] for key in keys]
        returns = [np.concatenate([self._returns[id(entry)] for entry in entries]) for entries in by_world]
        counts, means = np.array([len(each) for each in returns]), self._means(by_world)
        weights = weigh([world.cluster for world in worlds], seed=self._seed)
        fraction = weights.whole[0]
        signed, beta = (float(part[0]) for part in _best(weights.whole @ means))
        null = _best(_random_agents(worlds, counts, fraction, self._seed))[0]
        complete = [entry.chosen(entry.complete) for entry in members]
        acts = any(bool(entry.acted.any()) for entry in complete)
        notes = [EXACT_NOTE] if all(bool(entry.exact.all()) for entry in complete) else []
        notes += [CLASS_NOTE.format(what=_WHAT[self._unseen])]
        notes += [] if all(member.exact for world in worlds for member in (world.seeking, world.avoiding)) else [_DRAWN]
        name = restricted_name(self._unseen)
        bounds = np.array([world.seeking.nats for world in worlds])
        resampled, of_resamples = _best(weights.resampled @ means)[0], weights.resampled @ bounds
        estimate = goal_estimate(
            {
                "signed": signed,
                "bound": float(fraction @ bounds),
                "bound_lowest": float(fraction @ [world.avoiding.nats for world in worlds]),
                "cross_fitted": _cross_fitted(weights.first, weights.second, means, worlds, counts),
                "utility": float(fraction @ [each.mean() for each in returns]),
                "uniform_utility": float(fraction @ [world.random_return for world in worlds]),
                "highest_utility": float(fraction @ [world.seeking.utility for world in worlds]),
            },
            beta=math.copysign(math.inf, beta) if abs(beta) >= KNOTS[-1] else beta,
            resampled=resampled,
            shares=resampled / np.where(of_resamples > 0, of_resamples, 1.0),
            null=null,
            grids=weights.grids,
            confidence=self._confidence,
            acts=acts,
            notes=notes,
            agent=agent,
            cell=cell,
            hypothesis=name,
            n=int(counts.sum()),
            worlds=len(worlds),
        )
        terms = means[:, int(np.flatnonzero(beta == KNOTS)[0])] if acts else np.full(len(worlds), np.nan)
        first = [entries[0].tags for entries in by_world]
        tags = dict.fromkeys(tag for entry in first for tag in entry if tag not in PROVENANCE)
        return estimate, Rows.from_columns(
            measure=goal_measure(name),
            unit="nats",
            value=terms if signed >= 0 else -terms,
            cluster=[world.cluster for world in worlds],
            tags={tag: column_of([entry.get(tag) for entry in first]) for tag in tags} | {TOWARDS: name},
        )


def score_walks(
    states: Sequence[States], unseen: Unseen, *, kind: Utility, invalid: Invalid, seed: int
) -> tuple[_Scored, Array, list[Array]]:
    """Return what is known of the class in one maze, and the scores and the utilities of episodes there.

    Args:
        states: complete episodes of all agents in the maze.
        unseen: the assumption of the class about unseen cells.
        kind, invalid, seed: as in `measure_restricted`.

    Returns:
        What is known of the class, ``[m, B]`` scores of the m episodes, and for each entry of ``states`` the utilities
        of its episodes.
    """
    world, horizon = states[0].world.world, states[0].world.horizon
    maze = FoggedMaze(world.grid, world.fog_radius or 1, unseen)
    arrival, idle = kind == "arrival", len(Action)
    actions = idle + (invalid == "action")
    names = (world.id, horizon, invalid)
    drawn = stream(seed, "random walks of the class", *names).integers(0, actions, (RANDOM_WALKS, horizon))
    random_moves = [[None if action == idle else action for action in row] for row in drawn.tolist()]
    moves = [walk for entry in states for walk in _moves(entry)]
    # One call for all walks of the world: they share the plans of the class.
    scores = walk_scores(
        maze.begin,
        [*(weights for entry in states for weights in _weights(entry, actions)), *np.eye(actions)[drawn]],
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
            rng=stream(seed, "members of the class", *names, rationality),
            rationality=rationality,
            actions=actions,
            arrival=arrival,
        )
        for rationality in (LARGEST, -LARGEST)
    )
    scored = _Scored(
        cluster=states[0].cluster,
        random=scores[len(moves) :],
        random_return=_mean_return(maze, random_moves, horizon, arrival),
        seeking=seeking,
        avoiding=avoiding,
    )
    goal = parse("goal").utility(states[0].world)
    # What was earned, not what was expected.
    earned = [replace(entry, policy=None).utilities(goal, arrival=arrival) for entry in states]
    return scored, scores[: len(moves)], earned


def _weights(states: States, actions: int) -> list[Array]:
    """Return for each episode ``[T, A]`` the weight of each action in each turn, as `walk_scores` takes it."""
    idle = len(Action)
    result = list[Array]()
    begin = np.cumsum(states.length) - states.length
    for episode in range(len(states)):
        steps = slice(begin[episode], begin[episode] + states.length[episode])
        taken = states.action[steps]
        weights = np.zeros((len(taken), actions))
        if states.exact[episode] and states.policy is not None:
            weights[:, :idle] = np.nan_to_num(states.policy[steps, :idle])
        else:
            valid = np.flatnonzero(taken >= 0)
            weights[valid, taken[valid]] = 1
        if actions > idle:
            weights[taken < 0] = np.eye(actions)[idle]
        result.append(weights)
    return result


def _moves(states: States) -> list[list[int | None]]:
    """Return the actions of each episode, None for a turn without one."""
    begin = np.cumsum(states.length) - states.length
    return [
        [None if action < 0 else action for action in states.action[first : first + count].tolist()]
        for first, count in zip(begin.tolist(), states.length.tolist(), strict=True)
    ]


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
