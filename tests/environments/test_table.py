"""Enumeration and exact solutions, each against a second way, grids among them; liars are refused by play-back."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_worlds import Adapter, Biased, Changing, Corridor, Drawn, Forgetting, GridRules, Slippery

from goal_tables import directed
from goalscope._ground.rng import stream
from goalscope.environments import EnvironmentWorld, Mismatch, believe, enumerate_states, solve_table
from goalscope.goals.reading import default_hypotheses
from goalscope.measures import measure_episodes
from goalscope.meg import meg_known
from goalscope.runs import Episode, Store, Study, run
from goalscope.worlds import Grid, generate, layout
from goalscope.worlds.environments.playback import EPISODES, LONGEST
from goalscope.worlds.planning import from_grid, occupancy, solve, value_iteration


def test_enumeration_finds_exactly_the_states_that_walks_come_to() -> None:
    environments: list[Any] = [Corridor(5), Slippery(4), *(Drawn(seed, chance=seed % 2 == 0) for seed in range(6))]
    for environment in environments:
        table = enumerate_states(environment)
        seen, ahead = set(environment.initial()), list(environment.initial())
        while ahead:  # depth-first, where the table is made breadth-first
            state = ahead.pop()
            if environment.done(state):
                continue
            for action in range(len(environment.actions)):
                new = set(environment.step(state, action)) - seen
                seen |= new
                ahead += new
        assert set(table.states) == seen and len(table.states) == len(seen)
        for at, state in enumerate(table.states):
            for action in range(len(environment.actions)):
                rows = table.outcomes(at, action)
                said = dict(zip(table.triples[rows, 2].tolist(), table.chance[rows].tolist(), strict=True))
                wanted = {} if environment.done(state) else environment.step(state, action)
                assert said == pytest.approx({table.index[one]: chance for one, chance in wanted.items()})


@pytest.mark.parametrize("seed", range(8))
def test_distances_and_optimal_sets_are_those_of_value_iteration(seed: int) -> None:
    table = enumerate_states(Drawn(seed))
    solved = solve_table(table)
    horizon = len(table.states) + 2
    found = value_iteration(table.mdp(horizon=horizon))
    # Steps at the goal among the n decisions: n less the fewest steps to it.
    wanted = np.where(found.values[0] > 0, horizon - found.values[0], -1)
    np.testing.assert_array_equal(solved.distance, wanted)
    assert solved.optimal is not None and solved.distance is not None
    reach = (solved.distance > 0)[:, None]
    np.testing.assert_array_equal(solved.optimal, found.optimal[0] & reach)
    assert not solved.optimal[~reach[:, 0]].any()


@pytest.mark.parametrize("seed", range(4))
def test_with_chance_optimal_sets_are_those_of_all_plans_tried_out(seed: int) -> None:
    """Brute force: every policy by time of a small process, its expected utility by carrying the distribution on."""
    table = enumerate_states(Drawn(seed, states=4, actions=2, chance=True))
    solved, horizon, count = solve_table(table), 3, len(table.states)
    assert solved.distance is None and solved.optimal is None and solved.length == -1
    live = np.flatnonzero(~table.done)
    mdp = table.mdp(horizon=horizon)
    best = -1.0
    firsts: dict[int, float] = {}
    for plan in product(range(2), repeat=horizon * len(live)):
        policy = np.zeros((horizon, count, 2))
        policy[:, :, 0] = 1.0
        choice = np.array(plan).reshape(horizon, len(live))
        policy[:, live] = np.eye(2)[choice]
        mass = occupancy(mdp, policy)
        utility = float((mass[:-1] @ table.goal).sum())
        best = max(best, utility)
        firsts[int(choice[0, 0])] = max(firsts.get(int(choice[0, 0]), -1.0), utility)
    assert live[0] == 0, "the first state is the beginning"
    sets = solved.optimal_by_time(horizon)
    decides = abs(firsts[0] - firsts[1]) > 1e-9
    wanted = [firsts[action] >= best - 1e-9 for action in (0, 1)] if decides else [False, False]
    assert sets[0, 0].tolist() == wanted


def test_without_chance_the_sets_by_time_are_the_shortest_ways_while_the_goal_is_within_reach() -> None:
    solved = solve_table(enumerate_states(Corridor(6)))
    assert solved.distance is not None and solved.optimal is not None
    sets = solved.optimal_by_time(20)
    for left in range(1, 21):
        reach = (solved.distance > 0) & (solved.distance < left)
        np.testing.assert_array_equal(sets[20 - left][reach], solved.optimal[reach])
        assert not sets[20 - left][(solved.distance >= left) | (solved.distance <= 0)].any()


def test_a_bounded_search_knows_what_it_knows_and_refuses_what_lies_beyond() -> None:
    known = unknown = 0
    for seed in range(6):
        whole = solve_table(enumerate_states(Drawn(seed, states=60, actions=2)))
        near = enumerate_states(Drawn(seed, states=60, actions=2), depth=7)
        solved = solve_table(near)
        assert near.bound == 7 and near.depth.max() == 7
        assert solved.distance is not None and whole.distance is not None
        assert solved.optimal is not None and whole.optimal is not None
        for at, state in enumerate(near.states):
            other = whole.table.index[state]
            if solved.distance[at] >= 0:
                assert solved.distance[at] == whole.distance[other]
                assert solved.optimal[at].tolist() == whole.optimal[other].tolist()
                known += bool(solved.distance[at] > 0)
            unknown += solved.distance[at] < 0 < whole.distance[other]
        curve = meg_known(near.mdp(horizon=7), mean_return=0.0)
        assert curve.bound == pytest.approx(meg_known(whole.table.mdp(horizon=7), mean_return=0.0).bound)
    assert known > 5 and unknown > 5, "some states are decided, others left open"
    with pytest.raises(ValueError, match=r"7.*8"):
        near.mdp(horizon=8)
    with pytest.raises(ValueError, match=r"`depth:` .*at most \d+"):
        enumerate_states(Corridor(12), limit=10)
    assert enumerate_states(Corridor(5), depth=1000).bound is None, "all there are were found"


@pytest.mark.parametrize("environment", [Corridor(7), Slippery(5), Drawn(1)])
def test_the_meg_of_an_optimal_policy_is_the_bound_and_that_of_a_uniform_one_is_0(environment: Any) -> None:
    table = enumerate_states(environment)
    solved, horizon = solve_table(table), 14
    mdp = table.mdp(horizon=horizon)
    optimal = meg_known(mdp, solved.policy(horizon))
    assert optimal.value == pytest.approx(optimal.bound) and optimal.bound > 1
    noisy = meg_known(mdp, solved.policy(horizon, 0.3))
    assert 0 < noisy.value < optimal.value
    even = np.full((len(table.states), len(table.actions)), 1 / len(table.actions))
    assert meg_known(mdp, even).value == pytest.approx(0, abs=1e-9)


def test_true_environments_play_back() -> None:
    for make in (lambda: Corridor(6), lambda: Slippery(5), lambda: Drawn(1), lambda: Drawn(2, chance=True)):
        found = believe(make).played
        assert found.asked > 10 and found.episodes > 10 and found.steps > found.episodes
    assert believe(lambda: Corridor(6)).played.arrived > 0
    assert believe(lambda: Slippery(5)).played.p_value > 1e-6
    long = believe(lambda: Corridor(LONGEST + 50))  # its goal is farther away than other episodes last
    assert long.solved.length > LONGEST and long.played.arrived == EPISODES / 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Forgetting, "the state lacks something|same answer"),
        (Changing, "same answer|must lead to"),
        (Adapter, "ends or goals depend on more than the state"),
        (Biased, "frequencies"),
    ],
)
def test_a_simulator_that_lies_is_refused_by_the_play_back(make: Any, words: str) -> None:
    with pytest.raises(Mismatch, match=words):
        believe(make)


class _Broken(Corridor):
    """An environment one part of which returns something else."""

    def __init__(self, part: str, returned: Any) -> None:
        super().__init__(5)
        setattr(self, part, returned if part == "actions" else lambda *given: returned)


@pytest.mark.parametrize(
    ("part", "returned", "words"),
    [
        ("actions", (), "different names"),
        ("actions", ("left", "left"), "different names"),
        ("actions", "left", "different names"),
        ("initial", {(2, False): 0.5}, "sum 1"),
        ("initial", (2, False), "chances by state"),
        ("step", {(2, False): 1.5}, "from 0 to 1"),
        ("step", {(1, False): float("nan")}, "from 0 to 1"),
        ("step", {}, "sum 1"),
        ("admissible", [], "at least one action"),
        ("admissible", [9], "at least one action from 0 to 3"),
        ("goals", {"goal": bool}, "not 'goal'"),
        ("utility", float("inf"), "finite"),
    ],
)
def test_what_is_no_environment_is_refused_in_one_sentence(part: str, returned: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        enumerate_states(_Broken(part, returned))


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
