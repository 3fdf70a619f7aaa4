"""Grids told as environments: enumeration, solution, measures and MEG are those of the grids themselves."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_worlds import GridRules

from goal_tables import directed
from goalscope._ground.rng import stream
from goalscope.environments import EnvironmentWorld, enumerate_states, solve_table
from goalscope.goals.reading import default_hypotheses
from goalscope.measures import measure_episodes
from goalscope.meg import meg_known
from goalscope.runs import Episode, Store, Study, run
from goalscope.worlds import Grid, generate, layout
from goalscope.worlds.planning import from_grid, solve

SHARED = (
    "success",
    "action accuracy",
    "path ratio",
    "success weighted by path length",
    "steps to goal",
    "invalid turns",
)
POOLED = ("JSD from optimal", "JSD from optimal, excess", "calibration error", "visits per state")


def grids() -> list[Grid]:
    drawn = [generate(7, density, rng=stream(3, "grids as environments", density)) for density in (0.0, 0.6, 1.0)]
    return [*drawn, layout("key-door", seed=1, index=0)]


@pytest.mark.parametrize("grid", grids(), ids=["room", "half", "maze", "key and door"])
def test_distances_optimal_sets_and_meg_are_those_of_the_grid(grid: Grid) -> None:
    table = enumerate_states(GridRules(grid.render()))
    solved, paths = solve_table(table), solve(grid)
    assert solved.distance is not None and solved.optimal is not None
    for at, state in enumerate(table.states):
        where = state.phase, *state.position
        assert solved.distance[at] == paths.distance[where]
        assert solved.optimal[at].tolist() == paths.optimal[where].tolist()
    horizon = int(1.5 * solved.length) + 1
    ours, theirs = table.mdp(horizon=horizon), from_grid(grid, horizon=horizon)
    for epsilon in (0.0, 0.3):
        found = meg_known(ours, solved.policy(horizon, epsilon))
        best = paths.optimal / np.maximum(paths.optimal.sum(axis=-1, keepdims=True), 1)
        best = np.where(paths.optimal.any(axis=-1, keepdims=True), best, 0.25).reshape(-1, 4)
        wanted = meg_known(theirs, (1 - epsilon) * best + epsilon / 4)
        assert (found.value, found.bound) == pytest.approx((wanted.value, wanted.bound))


def test_measures_and_meg_of_the_same_walks_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    texts = [grid.render() for grid in grids()[:3]]
    study = Study.parse(
        {
            "worlds": [{"kind": "text", "grids": texts}],
            "agents": [{"kind": "epsilon-greedy", "epsilon": 0.4}],
            "trajectories": 6,
        }
    )
    run(study, tmp_path)
    with Store(tmp_path) as store:
        on_grids = list(store.episodes())
    told = [moved(episode) for episode in on_grids]
    one, other = measure_episodes(on_grids), measure_episodes(told)
    for name in (*SHARED, *POOLED):
        mine, theirs = (sorted(rows.where(rows.measure == name).value.tolist()) for rows in (one, other))
        assert mine == pytest.approx(theirs, nan_ok=True) and len(mine) == (3 if name in POOLED else 18), name
    assert list(default_hypotheses(episode.world for episode in told)) == ["goal"]
    (ours,) = directed(on_grids, "goal").estimates
    (others,) = directed(told).estimates
    for figure in ("signed", "bound", "bound_lowest", "utility", "uniform_utility", "highest_utility", "beta"):
        assert getattr(ours, figure) == pytest.approx(getattr(others, figure)), figure
    assert ours.n == others.n == 18 and ours.grids == others.grids == 3


def moved(episode: Episode) -> Episode:
    """Return an episode on a grid as one in the environment that the grid is told as."""
    world = EnvironmentWorld.make(
        "small_worlds:GridRules", {"grid": episode.world.grid.render()}, tags={"kind": "told"}
    )
    index = world.believed.table.index
    steps = tuple(replace(one, state=(index[one.state],)) for one in episode.steps)
    spec = replace(episode.spec, world_id=world.id)
    return replace(episode, world=world, spec=spec, steps=steps, final=(index[episode.final],))
