"""MEG with an unknown utility from trajectories: fitted to one half of the episodes, scored on the other.

The plain supremum over utilities, taken at raw empirical occupancies, finds something in every agent. Here a utility of
each state is fitted to half of an agent's episodes in a world, with a penalty, and judged by the log-probability that
its soft-optimal policy gives to the other half. In a deterministic world that is exactly
``<w, occupancy of the other half> - W(w)``, nats an episode beyond uniform actions; below 0 where the fit misleads.
"""

from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.results import EXACT_NOTE, NO_ACTION_NOTE, HeldOut, joined_notes
from goalscope.measures.goals.returns import Unit, acted, episode_returns, expected_after, random_walks, visits
from goalscope.measures.goals.settings import GoalSettings, cells_of, goal_settings, process
from goalscope.measures.table import StepTable
from goalscope.meg.unknown import OccupancyDual
from goalscope.planning import TabularMDP
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.runs.record import Episode
from goalscope.stats import estimate_mean

Array = npt.NDArray[np.float64]

_STEPS = 60  # of the search for the best utility of one half


def held_out_goals(
    episodes: Iterable[Episode] | StepTable,
    settings: GoalSettings | None = None,
    *,
    ridge: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[HeldOut, ...]:
    """Return how well unknown utilities predict held-out episodes, for each agent and each cell of conditions.

    Each world with at least two episodes of an agent counts once: the mean of both halves' scores. An agent of which no
    turn held an action has no score (NaN).

    Args:
        episodes: the episodes, or their table.
        settings: `GoalSettings.invalid`, `confidence` and `seed` count here.
        ridge: the penalty on a half of m episodes is ``ridge / (2 m)`` times the sum of squared utilities (nats), as a
            normal prior of variance ``1 / ridge`` has it; > 0.
        progress: called with (done, total) worlds.

    Raises:
        ValueError: a ridge that is not above 0.
    """
    if not (np.isfinite(ridge) and ridge > 0):
        raise ValueError(f"ridge must be a finite number above 0, got {ridge!r}: without it the fit diverges")
    table = episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)
    settings = settings or goal_settings(table.worlds)
    returns = episode_returns(table, ("goal",), utility="steps")
    if any(unit.process.chance for unit in returns.units):
        raise ValueError(
            "unknown utilities must be fitted in worlds without chance, where occupancies give the log-probability of "
            "actions, got a world with chance: measure known goals alone"
        )
    moved = acted(table)
    work: list[tuple[str, dict[str, Tag], bool, list[tuple[int, npt.NDArray[np.int64]]]]] = []
    for cell, members in cells_of(table, ()):
        for agent in sorted(set(table.agent[members].tolist())):
            mine = members[(table.agent[members] == agent) & returns.complete[members]]
            mine = mine[np.argsort(table.episode_id[mine].astype(str), kind="stable")]
            parts = [(number, mine[returns.unit[mine] == number]) for number in np.unique(returns.unit[mine]).tolist()]
            if kept := [(number, here) for number, here in parts if len(here) > 1]:
                work.append((agent, cell, bool(moved[mine].any()), kept))
    total, done, found = sum(len(parts) for *_, parts in work), 0, []
    null: dict[tuple[int, int, bool], float] = {}
    for agent, cell, acts, parts in work:
        scores = []
        for number, here in parts:
            unit, count = returns.units[number], len(here)
            nothing = np.zeros(unit.process.states)
            mdp = process(unit.grid, nothing, unit.horizon, utility="steps", invalid=settings.invalid)
            exact = bool(returns.exact[here].all())
            key = number, count, exact
            if key not in null:
                walked = _random_visits(unit, count, settings, exact=exact)
                null[key] = _score(mdp, walked, ridge, settings.seed)
            own = visits(table, unit, here, exact=returns.exact[here] & exact) if acts else None
            scores.append((np.nan if own is None else _score(mdp, own, ridge, settings.seed), null[key]))
            done += 1
            if progress is not None:
                progress(done, total)
        grids = [returns.units[number].grid_id for number, _ in parts]
        exactly_all = all(bool(returns.exact[here].all()) for _, here in parts)
        one, other = (
            estimate_mean(column, grids, unit="nats", confidence=settings.confidence)
            for column in zip(*scores, strict=True)
        )
        found.append(
            HeldOut(
                agent=agent,
                cell=cell,
                value=one.value,
                low=one.low,
                high=one.high,
                null=other.value,
                null_low=other.low,
                null_high=other.high,
                ridge=ridge,
                n=sum(len(here) for _, here in parts),
                grids=other.clusters,
                method=f"halves of each world's episodes; {one.method} over grids",
                note=NO_ACTION_NOTE if np.isnan(one.value) else joined_notes(one.note, EXACT_NOTE * exactly_all),
            )
        )
    return tuple(found)


def _score(mdp: TabularMDP, visits: Array, ridge: float, seed: int) -> float:
    """Return the mean score of both halves of episodes ``[m, S]``, each at the utility fitted to the other."""
    dual = OccupancyDual(mdp, np.full((mdp.states, mdp.actions), 1 / mdp.actions), terminal=False)
    kept = visits[:, dual.reached.kept]
    order = stream(seed, "halves of episodes", len(kept)).permutation(len(kept))
    halves = kept[order[: len(order) // 2]], kept[order[len(order) // 2 :]]
    scores = []
    for fitted, held in (halves, halves[::-1]):
        weights = _fit(dual, fitted.mean(axis=0), ridge / len(fitted))
        scores.append(float(weights @ held.mean(axis=0)) - _normaliser(dual, weights)[0])
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

    found = minimize(negative, np.zeros(len(occupancy)), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return np.asarray(found.x)


def _random_visits(unit: Unit, walks: int, settings: GoalSettings, *, exact: bool) -> Array:
    states = unit.process.states
    found = np.zeros((walks, states))
    expected = expected_after(unit, np.eye(states), settings.invalid) if exact else None
    before = None
    for state in islice(random_walks(unit, walks, seed=settings.seed, invalid=settings.invalid), unit.horizon):
        if expected is None or before is None:
            found[np.arange(walks), state] += 1
        else:
            found += expected[before]
        before = state
    return found
