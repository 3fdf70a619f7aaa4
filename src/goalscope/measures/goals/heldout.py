"""MEG with an unknown utility from trajectories: fitted to one half of the episodes, scored on the other.

The supremum over utilities at empirical occupancies is above 0 for every agent. Here a utility of
each state is fitted to half of an agent's episodes in a world, with a penalty, and judged by the log-probability that
its soft-optimal policy gives to the other half. In a deterministic world that is exactly
``<w, occupancy of the other half> - W(w)``, nats an episode beyond uniform actions; below 0 where the fit misleads.
W is the mean over the states in which the episodes of that half began, which removes the chance of first states.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.random_agents import expected_after, random_walks
from goalscope.measures.goals.results import EXACT_NOTE, NO_ACTION_NOTE, HeldOut, joined_notes
from goalscope.measures.goals.returns import (
    Returns,
    Unit,
    acted,
    episode_returns,
    first_states,
    visits,
)
from goalscope.measures.goals.settings import GoalSettings, cells_of, process
from goalscope.measures.table import CONDITIONS, StepTable
from goalscope.meg.unknown import OccupancyDual
from goalscope.planning import TabularMDP
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.stats import estimate_mean
from goalscope.stats.groups import natural_order

Array = npt.NDArray[np.float64]

_STEPS = 60  # of the search for the best utility of one half


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """Scores of one agent's episodes in one world."""

    world_id: str
    cluster: str
    agent: float  # score of the agent, also where it never acted
    null: float  # of a random agent
    n: int
    exact: bool  # whether exact policies replace all drawn actions


def held_out_goals(
    parts: Iterable[StepTable],
    settings: GoalSettings,
    *,
    total: int,
    ridge: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[HeldOut, ...]:
    """Return how well unknown utilities predict held-out episodes, for each agent and each cell of conditions.

    Each world with at least two episodes of an agent counts once: the mean of both halves' scores. An agent without any
    action has no score (NaN). Only one table is in memory at a time.

    Args:
        parts: tables of the episodes; no world is in two of them.
        settings: only `GoalSettings.invalid`, `confidence` and `seed` are used.
        total: number of episodes in all parts, for `progress`.
        ridge: the penalty on a half of m episodes is ``ridge / (2 m)`` times the sum of squared utilities (nats), that
            of a normal prior of variance ``1 / ridge``; > 0.
        progress: called with (done, total) episodes.

    Raises:
        ValueError: a ridge that is not above 0.
    """
    halves = _Halves(settings, ridge, total, progress)
    for part in parts:
        halves.add(part)
    return halves.found()


class _Halves:
    """Scores of held-out halves, world by world."""

    def __init__(
        self, settings: GoalSettings, ridge: float, total: int, progress: Callable[[int, int], None] | None
    ) -> None:
        if not (np.isfinite(ridge) and ridge > 0):
            raise ValueError(f"ridge must be a finite number above 0, got {ridge!r}: without it the fit diverges")
        self._settings, self._ridge = settings, ridge
        self._done, self._total, self._show = 0, total, progress or (lambda done, total: None)
        self._values: dict[str, dict[Tag, None]] = {}  # values of each condition over all episodes
        self._scored: dict[tuple[str, tuple[Tag, ...]], list[_Scored]] = {}
        self._acting = set[tuple[str, tuple[Tag, ...]]]()

    def add(self, table: StepTable) -> None:
        """Score the episodes of a table, whose worlds are in no other."""
        returns, moved = episode_returns(table, ("goal",), utility="steps"), acted(table)
        if any(unit.process.chance for unit in returns.units):
            raise ValueError(
                "unknown utilities must be fitted in worlds without chance, where occupancies give the log-probability "
                "of actions, got a world with chance: measure known goals alone"
            )
        null: dict[tuple[int, int, bool], float] = {}
        for _, members in cells_of(table.tags, (), len(table.length)):
            tags = tuple(table.tags[name][members[0]] if name in table.tags else None for name in CONDITIONS)
            for name, value in zip(CONDITIONS, tags, strict=True):
                self._values.setdefault(name, {})[value] = None
            for agent in sorted(set(table.agent[members].tolist())):
                agent_episodes = members[(table.agent[members] == agent) & returns.complete[members]]
                agent_episodes = agent_episodes[np.argsort(table.episode_id[agent_episodes].astype(str), kind="stable")]
                if moved[agent_episodes].any():
                    self._acting.add((agent, tags))
                for number in np.unique(returns.unit[agent_episodes]).tolist():
                    in_world = agent_episodes[returns.unit[agent_episodes] == number]
                    if len(in_world) > 1:
                        scored = self._score(table, returns, number, in_world, null)
                        self._scored.setdefault((agent, tags), []).append(scored)
                    self._done += len(in_world)
                    self._show(self._done, self._total)

    def _score(
        self,
        table: StepTable,
        returns: Returns,
        number: int,
        episodes: npt.NDArray[np.int64],
        null: dict[tuple[int, int, bool], float],
    ) -> _Scored:
        unit, count, settings = returns.units[number], len(episodes), self._settings
        no_utility = np.zeros(unit.process.states)
        mdp = process(unit.grid, no_utility, unit.horizon, utility="steps", invalid=settings.invalid)
        exact = bool(returns.exact[episodes].all())
        if (number, count, exact) not in null:
            random_occupancy = _random_visits(unit, count, settings, exact=exact)
            null[number, count, exact] = _score(mdp, *random_occupancy, self._ridge, settings.seed)
        occupancy = visits(table, unit, episodes, exact=returns.exact[episodes] & exact)
        return _Scored(
            world_id=unit.world_id,
            cluster=unit.cluster,
            agent=_score(mdp, occupancy, first_states(table, unit, episodes), self._ridge, settings.seed),
            null=null[number, count, exact],
            n=count,
            exact=exact,
        )

    def found(self) -> tuple[HeldOut, ...]:
        """Return the estimates; worlds are in the order of their ids."""
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

    def _estimate(self, agent: str, cell: Mapping[str, Tag], worlds: Sequence[_Scored], *, acts: bool) -> HeldOut:
        grids = [world.cluster for world in worlds]
        estimate, null = (
            estimate_mean(column, grids, unit="nats", confidence=self._settings.confidence)
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
    """Return the mean score of both halves of episodes, each at the utility fitted to the other.

    Args:
        mdp: the world.
        visits: ``[m, S]`` decisions of each episode in each state.
        first: ``[m]`` the state in which it began.
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
    """Return W and the occupancy of its soft policy."""
    value, gradient = dual.value(weights)
    return float(weights @ dual.occupancy) - value, dual.occupancy - gradient


def _fit(dual: OccupancyDual, occupancy: Array, penalty: float) -> Array:
    from scipy.optimize import minimize

    def negative(weights: Array) -> tuple[float, Array]:
        log_normaliser, soft = _normaliser(dual, weights)
        value = float(weights @ occupancy) - log_normaliser - penalty / 2 * float(weights @ weights)
        return -value, soft - occupancy + penalty * weights

    solution = minimize(negative, np.zeros(len(occupancy)), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.asarray(solution.x)


def _random_visits(
    unit: Unit, walks: int, settings: GoalSettings, *, exact: bool
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return ``[walks, S]`` occupancies of random agents, and ``[walks]`` their first states."""
    states = unit.process.states
    counts = np.zeros((walks, states))
    expected = expected_after(unit, np.eye(states), settings.invalid) if exact else None
    first, before = np.zeros(walks, dtype=np.int64), None
    for state in islice(random_walks(unit, walks, seed=settings.seed, invalid=settings.invalid), unit.horizon):
        first = state if before is None else first
        if expected is None or before is None:
            counts[np.arange(walks), state] += 1
        else:
            counts += expected[before]
        before = state
    return counts, first
