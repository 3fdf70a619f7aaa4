"""MEG with an unknown utility from trajectories: fitted to one half of the episodes, scored on the other half.

Without held-out data, the supremum over utilities is above 0 for every agent. We therefore fit a utility of each state
to half of an agent's episodes in a world, with a penalty, and score it by the log-probability that its soft-optimal
policy gives to the other half. In a deterministic world this is exactly ``<w, occupancy of the other half> - W(w)``, in
nats per episode above uniform actions; it is below 0 if the fit is misleading. W is averaged over the first states of
the scored half, which removes the randomness of first states.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.goals.baselines import Invalid, expected_after, random_walks
from goalscope.goals.curves import process_of_episode
from goalscope.goals.hypotheses.definition import FiniteWorld
from goalscope.goals.hypotheses.states import States
from goalscope.goals.meg.unknown import OccupancyDual, maximise
from goalscope.goals.results import EXACT_NOTE, NO_ACTION_NOTE, HeldOut, joined_notes
from goalscope.measures.table import CONDITIONS
from goalscope.stats import estimate_mean
from goalscope.stats.estimate import natural_order
from goalscope.stats.rows import Tag
from goalscope.worlds.planning import TabularMDP

Array = npt.NDArray[np.float64]

_STEPS = 60  # of the search for the best utility of one half


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldOutWorld:
    """Scores of one agent's episodes in one world."""

    world_id: str
    cluster: str
    agent: float  # score of the agent, also where it never acted
    null: float  # of a random agent
    n: int
    exact: bool  # whether exact policies replace all drawn actions


def held_out_goals(
    states: Iterable[States],
    *,
    invalid: Invalid = "no-op",
    confidence: float = 0.95,
    seed: int = 0,
    ridge: float = 1.0,
    total: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[HeldOut, ...]:
    """Measure how well an agent's actions are predicted by utilities of states fitted to its other episodes.

    In each world with at least two episodes of an agent, utilities are fitted to one half of the episodes and used to
    predict the actions in the other half, and the reverse. The world counts once, by the mean of both scores.

    Args:
        states: the recorded episodes, one `States` per agent and world. A generator saves memory: only one of them is
            then held at a time.
        invalid: how a turn without an action counts, see `goalscope.goals.directedness`.
        confidence: nominal coverage of the intervals.
        seed: root seed.
        ridge: penalty, > 0. A half of m episodes is penalised by ``ridge / (2 m)`` times the sum of squared utilities
            (nats), as under a normal prior of variance ``1 / ridge``.
        total: number of episodes, for ``progress``; None if unknown.
        progress: called with (done, total) episodes.

    Returns:
        One result for each agent and condition of the run: the mean log-probability of the predicted actions minus that
        of uniform ones, in nats per episode, with its interval. NaN for an agent without any action.

    Raises:
        ValueError: ridge is not above 0, or a world is stochastic.
    """
    halves = _Halves(invalid, confidence, seed, ridge)
    done = 0
    for entry in states:
        halves.add(entry)
        done += len(entry)
        if progress is not None:
            progress(done, max(done, total or 0))
    return halves.results()


class _Halves:
    """Collects the scores of held-out halves, world by world."""

    def __init__(self, invalid: Invalid, confidence: float, seed: int, ridge: float) -> None:
        if not (np.isfinite(ridge) and ridge > 0):
            raise ValueError(f"ridge must be a finite number above 0, got {ridge!r}: without it the fit diverges")
        self._invalid: Invalid = invalid
        self._confidence, self._seed, self._ridge = confidence, seed, ridge
        self._values: dict[str, dict[Tag, None]] = {}  # values of each condition over all episodes
        self._scored: dict[tuple[str, tuple[Tag, ...]], list[_HeldOutWorld]] = {}
        self._acting = set[tuple[str, tuple[Tag, ...]]]()
        self._null: dict[tuple[str, int, int, bool], float] = {}  # world, horizon, episodes, exact -> random agents

    def add(self, states: States) -> None:
        """Score the episodes of one agent in one world."""
        if states.world.process.chance:
            raise ValueError(
                f"world {states.world.world.id} is stochastic: unknown utilities can be fitted only in deterministic "
                "worlds, where occupancies give the log-probability of actions. Measure known goals only"
            )
        tags = tuple(states.tags.get(name) for name in CONDITIONS)
        for name, value in zip(CONDITIONS, tags, strict=True):
            self._values.setdefault(name, {})[value] = None
        complete = states.chosen(states.complete)
        if complete.acted.any():
            self._acting.add((states.agent, tags))
        if len(complete) > 1:
            self._scored.setdefault((states.agent, tags), []).append(self._score(complete))

    def _score(self, states: States) -> _HeldOutWorld:
        world, count, exact = states.world, len(states), bool(states.exact.all())
        mdp = process_of_episode(world, np.zeros(world.process.states), kind="steps", invalid=self._invalid)
        place = world.world.id, world.horizon, count, exact
        if place not in self._null:
            random_occupancy = _random_visits(world, count, seed=self._seed, invalid=self._invalid, exact=exact)
            self._null[place] = _score(mdp, *random_occupancy, self._ridge, self._seed)
        order = np.argsort(np.array(states.ids, dtype=str), kind="stable")
        occupancy = states.visits(exact=states.exact & exact)[order]
        return _HeldOutWorld(
            world_id=world.world.id,
            cluster=states.cluster,
            agent=_score(mdp, occupancy, states.first[order], self._ridge, self._seed),
            null=self._null[place],
            n=count,
            exact=exact,
        )

    def results(self) -> tuple[HeldOut, ...]:
        """Return the estimates for each agent and cell of conditions."""
        varied = [name for name, values in self._values.items() if len(values) > 1]
        cells: dict[tuple[Tag, ...], dict[str, Tag]] = {}
        for _, tags in self._scored:
            cell = dict(zip(CONDITIONS, tags, strict=True))
            cells[tags] = {name: cell[name] for name in varied}
        estimates = []
        for tags, cell in sorted(cells.items(), key=lambda item: [natural_order(value) for value in item[1].values()]):
            for agent in sorted(agent for agent, condition in self._scored if condition == tags):
                worlds = sorted(self._scored[agent, tags], key=lambda world: world.world_id)
                estimates.append(self._estimate(agent, cell, worlds, acts=(agent, tags) in self._acting))
        return tuple(estimates)

    def _estimate(self, agent: str, cell: Mapping[str, Tag], worlds: Sequence[_HeldOutWorld], *, acts: bool) -> HeldOut:
        grids = [world.cluster for world in worlds]
        estimate, null = (
            estimate_mean(column, grids, unit="nats", confidence=self._confidence)
            for column in ([world.agent if acts else np.nan for world in worlds], [world.null for world in worlds])
        )
        exact = all(world.exact for world in worlds)
        return HeldOut(
            agent=agent,
            cell=cell,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            null=null.value,
            null_low=null.low,
            null_high=null.high,
            ridge=self._ridge,
            n=sum(world.n for world in worlds),
            grids=null.clusters,
            method=f"halves of each world's episodes; {estimate.method} over grids",
            note=NO_ACTION_NOTE if np.isnan(estimate.value) else joined_notes(estimate.note, EXACT_NOTE * exact),
        )


def _score(mdp: TabularMDP, visits: Array, first: npt.NDArray[np.int64], ridge: float, seed: int) -> float:
    """Return the mean score of both halves of episodes, each scored with the utility fitted to the other.

    Args:
        mdp: the world.
        visits: ``[m, S]`` number of decisions of each episode in each state.
        first: ``[m]`` first state of each episode.
        ridge, seed: see `held_out_goals`.
    """
    # Over all actions: an agent may take actions that are not offered, which change nothing.
    mdp = replace(mdp, offered=None)
    dual = OccupancyDual(mdp, np.full((mdp.states, mdp.actions), 1 / mdp.actions), terminal=False)
    occupancies = visits[:, dual.reached.kept]
    order = stream(seed, "halves of episodes", len(occupancies)).permutation(len(occupancies))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    first_index, states = np.searchsorted(dual.reached.kept, first), len(dual.reached.kept)
    scores = []
    for fitted, held_out in (halves, halves[::-1]):
        fitted_dual, held_out_dual = (
            dual.starting(np.bincount(first_index[half], minlength=states) / len(half)) for half in (fitted, held_out)
        )
        weights = _fit(fitted_dual, occupancies[fitted].mean(axis=0), ridge / len(fitted))
        scores.append(float(weights @ occupancies[held_out].mean(axis=0)) - _normaliser(held_out_dual, weights)[0])
    return float(np.mean(scores))


def _normaliser(dual: OccupancyDual, weights: Array) -> tuple[float, Array]:
    """Return the log normaliser W at some weights, and the occupancy of the soft policy for these weights."""
    value, gradient = dual.value(weights)
    return float(weights @ dual.occupancy) - value, dual.occupancy - gradient


def _fit(dual: OccupancyDual, occupancy: Array, penalty: float) -> Array:
    def objective(weights: Array) -> tuple[float, Array]:
        log_normaliser, soft = _normaliser(dual, weights)
        value = float(weights @ occupancy) - log_normaliser - penalty / 2 * float(weights @ weights)
        return value, occupancy - soft - penalty * weights

    return maximise(objective, np.zeros(len(occupancy)), maxiter=_STEPS)[0]


def _random_visits(
    world: FiniteWorld, walks: int, *, seed: int, invalid: Invalid, exact: bool
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return how often random walks visit each of S states ``[walks, S]``, and their first states ``[walks]``."""
    states = world.process.states
    counts = np.zeros((walks, states))
    expected = expected_after(world, np.eye(states), invalid) if exact else None
    first, before = np.zeros(walks, dtype=np.int64), None
    for state in islice(random_walks(world, walks, seed=seed, invalid=invalid), world.horizon):
        first = state if before is None else first
        if expected is None or before is None:
            counts[np.arange(walks), state] += 1
        else:
            counts += expected[before]
        before = state
    return counts, first
