"""MEG with an unknown utility from trajectories: fitted to one half of the episodes, scored on the other.

The plain supremum over utilities, taken at raw empirical occupancies, finds something in every agent. Here a utility of
each state is fitted to half of an agent's episodes in a world, with a penalty, and judged by the log-probability that
its soft-optimal policy gives to the other half. In a deterministic world that is exactly
``<w, occupancy of the other half> - W(w)``, nats an episode beyond uniform actions; below 0 where the fit misleads.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.results import NO_ACTION_NOTE, HeldOut
from goalscope.measures.goals.returns import Unit, acted, episode_returns, random_walks, state_index
from goalscope.measures.goals.settings import GoalSettings, cells_of, process
from goalscope.measures.table import StepTable
from goalscope.meg.dual import OccupancyDual
from goalscope.planning import TabularMDP
from goalscope.rng import stream
from goalscope.rows import Tag
from goalscope.runs.record import Episode
from goalscope.stats import estimate_mean
from goalscope.worlds.grid import Grid

Array = npt.NDArray[np.float64]

_STEPS = 60  # of the search for the best utility of one half


def held_out_goals(
    episodes: Iterable[Episode] | StepTable,
    settings: GoalSettings | None = None,
    *,
    ridge: float = 1.0,
    believed: Mapping[str, Grid] | None = None,
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
        believed: as in `measure_goals`.
        progress: called with (done, total) worlds.

    Raises:
        ValueError: a ridge that is not above 0.
    """
    if not (np.isfinite(ridge) and ridge > 0):
        raise ValueError(f"ridge must be a finite number above 0, got {ridge!r}: without it the fit diverges")
    settings = settings or GoalSettings()
    table = episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)
    returns = episode_returns(table, ("goal",), utility="steps", believed=believed)
    moved = acted(table)
    work: list[tuple[str, dict[str, Tag], int, npt.NDArray[np.int64], bool]] = []
    for cell, members in cells_of(table, ()):
        for agent in sorted(set(table.agent[members].tolist())):
            mine = members[(table.agent[members] == agent) & returns.complete[members]]
            for number in sorted(set(returns.unit[mine].tolist())):
                here = mine[returns.unit[mine] == number]
                if len(here) > 1:
                    work.append((agent, cell, number, here, bool(moved[mine].any())))
    scores: dict[tuple[str, int], list[tuple[str, float, float, int]]] = {}
    cells: list[dict[str, Tag]] = []
    known: dict[tuple[int, int], float] = {}
    for done, (agent, cell, number, here, moves) in enumerate(work):
        if cell not in cells:
            cells.append(cell)
        unit = returns.units[number]
        mdp = process(
            unit.grid, np.zeros_like(unit.masks["goal"]), unit.horizon, utility="steps", invalid=settings.invalid
        )
        ordered = here[np.argsort(table.episode_id[here].astype(str), kind="stable")]
        own = _score(mdp, _visits(table, unit, ordered), ridge, settings.seed) if moves else np.nan
        if (number, len(here)) not in known:
            known[number, len(here)] = _score(mdp, _random_visits(unit, len(here), settings), ridge, settings.seed)
        entry = (unit.grid_id, own, known[number, len(here)], len(here))
        scores.setdefault((agent, cells.index(cell)), []).append(entry)
        if progress is not None:
            progress(done + 1, len(work))
    return tuple(
        _record(agent, cells[index], entries, ridge, settings.confidence) for (agent, index), entries in scores.items()
    )


def _record(
    agent: str, cell: Mapping[str, Tag], entries: list[tuple[str, float, float, int]], ridge: float, confidence: float
) -> HeldOut:
    grids = [grid for grid, _, _, _ in entries]
    own, null = (
        estimate_mean([entry[column] for entry in entries], grids, unit="nats", confidence=confidence)
        for column in (1, 2)
    )
    return HeldOut(
        agent=agent,
        cell=cell,
        value=own.value,
        low=own.low,
        high=own.high,
        null=null.value,
        null_low=null.low,
        null_high=null.high,
        ridge=ridge,
        n=sum(count for _, _, _, count in entries),
        grids=null.clusters,
        method=f"halves of each world's episodes; {own.method} over grids",
        note=NO_ACTION_NOTE if np.isnan(own.value) else own.note,
    )


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


def _visits(table: StepTable, unit: Unit, members: npt.NDArray[np.int64]) -> Array:
    """Return ``[m, S]``: in how many of the n decisions each episode was in each state; at its end it stays there."""
    begin = np.cumsum(table.length) - table.length
    visits = np.zeros((len(members), len(unit.masks["goal"])))
    for row, episode in enumerate(members.tolist()):
        length = int(table.length[episode])
        steps = state_index(unit.grid, table.state[begin[episode] : begin[episode] + length])
        np.add.at(visits[row], steps, 1.0)
        visits[row, state_index(unit.grid, table.final[episode : episode + 1])[0]] += unit.horizon - length
    return visits


def _random_visits(unit: Unit, walks: int, settings: GoalSettings) -> Array:
    visits = np.zeros((walks, len(unit.masks["goal"])))
    rows = np.arange(walks)
    for step, state in enumerate(random_walks(unit, walks, seed=settings.seed, invalid=settings.invalid)):
        if step < unit.horizon:
            visits[rows, state] += 1
    return visits
