"""Every measure on examples small enough to work out by hand."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goalscope.agents import Agent, EpsilonGreedy, KeyLured, Optimal, Uniform, WrongGoal
from goalscope.measures import (
    Measure,
    StepTable,
    action_accuracy,
    action_optimality,
    behaviour_measures,
    calibration_error,
    invalid_turns,
    key_attraction,
    key_pickup,
    measure_episodes,
    path_efficiency,
    path_ratio,
    play,
    policy_divergence,
    policy_entropy,
    rare_states,
    roll_out,
    sample_episodes,
    state_overlap,
    steps_to_goal,
    success,
    undecided_states,
    visits_per_state,
    wall_bumps,
)
from goalscope.measures.key import (
    control_overlap,
    error_approaches_key,
    errors_towards_key,
    key_path_first,
    key_path_taken,
    stage_accuracy,
    two_paths,
)
from goalscope.measures.performance import with_distance_bands
from goalscope.runs import Episode, GridWorld
from goalscope.stats import estimate_mean, estimate_pooled, paired_difference
from goalscope.stats.rows import Rows
from goalscope.worlds import Action, Grid, State, control, layout, step
from goalscope.worlds.planning import optimal_actions

MOVES: dict[str, Action | None] = {
    "U": Action.UP,
    "D": Action.DOWN,
    "L": Action.LEFT,
    "R": Action.RIGHT,
    ".": None,
}
CORRIDOR = GridWorld(grid=Grid.parse(["A__G"]), tags={"size": 4})
SQUARE = GridWorld(grid=Grid.parse(["A_", "_G"]))  # two optimal actions at the start
WALLED = GridWorld(grid=Grid.parse(["A#G"]))  # the goal cannot be reached
LOCKED = GridWorld(grid=Grid.parse(["K_A_D_G"]))
KEYED = GridWorld(grid=Grid.parse(["___", "KAG", "___"]), tags={"control": False})
RING = GridWorld(grid=Grid.parse(["_A_", "K#_", "_G_"]), tags={"control": False})
RING_CONTROL = GridWorld(grid=RING.grid.at(key=None), cluster=RING.cluster_id, tags={"control": True})
CONTROL = GridWorld(grid=Grid.parse(["___", "_AG", "___"]), cluster=KEYED.cluster_id, tags={"control": True})


def played(world: GridWorld, moves: str, number: int = 0, horizon: int | None = None) -> Episode:
    return play(world, [MOVES[move] for move in moves], trajectory=number, horizon=horizon)


def value(measure: Measure, *episodes: Episode) -> float:
    rows = measure.rows(StepTable.from_episodes(episodes))
    assert len(rows) == 1
    return float(rows.value[0])


@pytest.mark.parametrize(
    ("measure", "moves", "expected"),
    [
        (success, "RRR", 1.0),
        (success, "RR", 0.0),
        (action_accuracy, "RLRRR", 4 / 5),
        (action_accuracy, "R.RR", 3 / 4),
        (action_accuracy, "", math.nan),
        (steps_to_goal, "RLRRR", 5.0),
        (steps_to_goal, "RLR", math.nan),
        (path_ratio, "RLRRR", 5 / 3),
        (path_ratio, "RRR", 1.0),
        (path_ratio, "RR", math.nan),
        (path_efficiency, "RLRRR", 3 / 5),
        (path_efficiency, "RLR", 0.0),
        (invalid_turns, "R..R", 1 / 2),
        (invalid_turns, "", math.nan),
        (wall_bumps, "U.LRD", 3 / 4),
        (wall_bumps, "..", math.nan),
        (visits_per_state, "RLRR.R", 5 / 3),
        (visits_per_state, ".", math.nan),
        (rare_states(), "RLRRR", 1.0),
        (rare_states(least_visits=2), "RLRRR", 1 / 3),
        # the middle cell is left once to the left and once to the right: 1 bit, the two others 0
        (policy_entropy(), "RLRRR", 1 / 3),
        (policy_entropy(least_visits=2), "RLRRR", 1 / 2),
        (policy_entropy(least_visits=3), "RLRRR", math.nan),
        (policy_entropy(per="visit"), "RLRRR", 2 / 5),
        (policy_entropy(part="optimal baseline"), "RLRRR", 0.0),
        (policy_entropy(part="excess"), "RLRRR", 1 / 3),
        # JSD of (1/2, 1/2) and (0, 1): h(1/4) - 1/2 bits
        (policy_divergence(), "RLRRR", (2 - 0.75 * math.log2(3) - 0.5) / 3),
        (policy_divergence(), "L", 1.0),
        # two steps with confidence 1/2, one right: no error; three with confidence 1, all right: no error
        (calibration_error(), "RLRRR", 0.0),
        (calibration_error(), "L", 1.0),
        (calibration_error(), "R", 0.0),
        # at the start: left twice (2/3, wrong) and right once (1/3, right), then right twice (1, right)
        (calibration_error(), "LLRRR", (2 * 2 / 3 + 1 * 2 / 3 + 0) / 5),
        (state_overlap, "R", math.nan),
    ],
)
def test_corridor(measure: Measure, moves: str, expected: float) -> None:
    assert value(measure, played(CORRIDOR, moves, horizon=9)) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_perfect_agent_at_a_two_way_tie_visited_once() -> None:
    episode = played(SQUARE, "RD")
    table = StepTable.from_episodes([episode])
    start = table.distance == 2
    assert start.sum() == 1
    by_distance = policy_divergence(per="distance").rows(table)
    assert by_distance.select(distance=2).value == pytest.approx([0.3112781], abs=1e-6)
    assert by_distance.select(distance=1).value == pytest.approx([0.0])
    assert value(policy_entropy(), episode) == 0.0
    assert value(policy_divergence(), episode) == pytest.approx(0.3112781 / 2, abs=1e-6)
    assert value(policy_divergence(part="excess"), episode) == pytest.approx(0.0, abs=1e-12)
    assert value(policy_entropy(part="excess"), episode) == pytest.approx(0.0, abs=1e-12)


def test_policies_are_pooled_over_the_trajectories_of_a_group() -> None:
    pair = played(SQUARE, "RD", 0), played(SQUARE, "DR", 1)
    assert value(policy_entropy(), *pair) == pytest.approx(1 / 3)
    assert value(policy_divergence(), *pair) == pytest.approx(0.0)
    # a tie visited twice is split evenly half of the time: half a bit expected
    assert value(policy_entropy(part="optimal baseline"), *pair) == pytest.approx(0.5 / 3)
    assert value(calibration_error(), *pair) == pytest.approx(2 * 0.5 / 4)
    # the start: E[1 - sum of squares] = 1 - 3/4 of 2 steps in 4
    assert value(calibration_error(part="optimal baseline"), *pair) == pytest.approx(0.25 * 2 / 4)
    assert value(state_overlap, *pair) == pytest.approx(2 / 4)


def test_where_an_episode_comes_from_splits_no_group_but_its_condition_does() -> None:
    one, two = (replace(played(SQUARE, "RD", n), tags={"file": f"{n}.json", "temperature": 0.7}) for n in (0, 1))
    hot = replace(played(SQUARE, "DR", 2), tags={"file": "2.json", "temperature": 1.0})
    rows = visits_per_state.rows(StepTable.from_episodes([one, two, hot]))
    assert rows.value.tolist() == [2.0, 1.0]
    assert rows["temperature"].tolist() == [0.7, 1.0]
    assert "file" not in rows.tags


def test_states_without_an_optimal_action_are_left_out_and_counted() -> None:
    episode = played(WALLED, "UD")
    assert value(undecided_states, episode) == 1.0
    assert value(success, episode) == 0.0
    for measure in (action_accuracy, policy_entropy(), policy_divergence(), calibration_error(), visits_per_state):
        assert math.isnan(value(measure, episode)), measure.name
    rows = action_optimality.rows(StepTable.from_episodes([episode]))
    assert np.isnan(rows.value).all()
    assert rows["distance"].tolist() == [None, None]


def test_steps_carry_their_distance_and_bands_gather_it() -> None:
    rows = action_optimality.rows(StepTable.from_episodes([played(CORRIDOR, "RL.RRR")]))
    assert rows.value.tolist() == [1, 0, 0, 1, 1, 1]
    assert rows["distance"].tolist() == [3, 2, 3, 3, 2, 1]
    assert rows.step.tolist() == [0, 1, 2, 3, 4, 5]
    assert rows["size"].tolist() == [4] * 6
    assert with_distance_bands(rows, 2)["distance_band"].tolist() == ["03-04", "01-02"] + ["03-04"] * 2 + ["01-02"] * 2
    with pytest.raises(ValueError, match="width"):
        with_distance_bands(rows, 0)


def test_stages_of_a_world_with_a_door() -> None:
    # left to the key with one detour, right to the door which opens, then to the goal with one bump
    episode = played(LOCKED, "LRLL" + "RRR" + "URRR")
    assert episode.success
    assert value(stage_accuracy(stage="key"), episode) == pytest.approx(3 / 4)
    assert value(stage_accuracy(stage="door"), episode) == pytest.approx(3 / 3)
    assert value(stage_accuracy(stage="goal"), episode) == pytest.approx(3 / 4)
    assert math.isnan(value(stage_accuracy(stage="goal"), played(LOCKED, "LLR")))
    assert len(stage_accuracy(stage="key").rows(StepTable.from_episodes([played(KEYED, "L")]))) == 0


def test_attraction_to_the_key_and_its_matched_control() -> None:
    # optimal is right; left approaches the key, up does not; once the key is reached nothing counts
    episodes = [played(KEYED, "LLU", 0), played(KEYED, "UUL", 1)]
    assert value(key_attraction, *episodes) == pytest.approx((1 + 1) / (1 + 3))
    assert key_pickup.rows(StepTable.from_episodes(episodes)).value.tolist() == [1.0, 0.0]
    control = played(CONTROL, "L.U", 0)
    rows = key_attraction.rows(StepTable.from_episodes([*episodes, control]))
    assert rows.select(control=True).value.tolist() == [1.0]
    assert rows.select(control=False).value.tolist() == [0.5]
    assert len(key_attraction.rows(StepTable.from_episodes([control]))) == 0, "a control alone has no key's cell"
    assert math.isnan(value(key_attraction, played(KEYED, "R")))


def test_all_measures_run_at_once_and_no_episodes_give_no_rows() -> None:
    fogged = GridWorld(grid=CORRIDOR.grid, fog_radius=1, tags={"size": 4})
    keyed, control = played(RING, "RLLDDR"), played(RING_CONTROL, "RDDL")
    tasks = sample_episodes(trajectories=1, tasks=True)
    things = played(GridWorld(grid=Grid.parse("ArbyRBYHcoETL^v<>G"), tags={"size": 18}), "R")
    grids = [played(CORRIDOR, "RRR"), played(LOCKED, "LL"), played(fogged, "RRR"), keyed, control, things]
    rows = measure_episodes([*grids, *tasks])
    names = [measure.name for measure in behaviour_measures()]
    assert set(names) - set(rows.measure) == {
        name
        for name in names
        if name.endswith("5+ visits, by distance") or name in ("return", "regret") or name.startswith("action entropy")
    }, "grids have no rewards, and the entropy of four actions"
    assert len(measure_episodes([])) == 0
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        (policy_entropy, {"part": "mean"}, "part must be one of observed"),
        (policy_divergence, {"least_visits": 0}, "least_visits"),
        (rare_states, {"least_visits": 0}, "least_visits"),
        (policy_entropy, {"per": "step"}, "per must be one of state, visit"),
        (stage_accuracy, {"stage": "start"}, "stage must be one of key"),
    ],
)
def test_impossible_measures_are_refused(kind: Callable[..., Measure], parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kind(**parameters)


# Path choice, errors towards the key, paired overlap: by hand, by another reading, for agents with known goals.


PATH_MOVES = {"U": Action.UP, "D": Action.DOWN, "L": Action.LEFT, "R": Action.RIGHT, ".": None}
FREE = GridWorld(grid=RING.grid.at(key=None), cluster=RING.cluster_id, tags={"control": True})


def walked(moves: str, world: GridWorld = RING, number: int = 0) -> Episode:
    return play(world, [PATH_MOVES[move] for move in moves], trajectory=number)


def values(measure: Measure, *episodes: Episode) -> list[float]:
    return [float(value) for value in measure.rows(StepTable.from_episodes(episodes)).value]


@pytest.mark.parametrize(
    ("moves", "taken", "first"),
    [
        ("LDDR", 1, 1),
        ("RDDL", 0, 0),
        ("RLLDDR", 1, 0),  # begins with the other path, then comes over the key's
        ("LD", float("nan"), 1),  # does not arrive
        ("DU.", float("nan"), float("nan")),  # never leaves the start
    ],
)
def test_the_path_by_hand(moves: str, taken: float, first: float) -> None:
    assert values(key_path_taken, walked(moves)) == pytest.approx([taken], nan_ok=True)
    assert values(key_path_first, walked(moves)) == pytest.approx([first], nan_ok=True)


def test_a_control_is_told_by_its_twin_and_other_worlds_have_no_paths() -> None:
    both = [walked("RDDL"), walked("LDDR", FREE)]
    assert values(key_path_taken, *both) == [0, 1]
    assert values(key_path_taken, both[1]) == []  # nobody says where the key would lie
    for grid in (["AK_", "___", "__G"], ["AKG"], ["A_G", "#K#"], ["A_G", "K__"]):
        assert values(key_path_taken, walked("R", GridWorld(grid=Grid.parse(grid)))) == []


@pytest.mark.parametrize("index", range(12))
def test_the_two_paths_are_those_found_by_trying_all_walks(index: int) -> None:
    grid = layout("two-path", seed=3, index=index)
    assert grid.key is not None and grid.start is not None
    paths: list[list[tuple[int, int]]] = []

    def walk(path: list[tuple[int, int]]) -> None:
        if path[-1] == grid.goal:
            paths.append(path[1:-1])
            return
        for action in optimal_actions(grid.at(key=None), path[-1]):
            walk([*path, step(grid, State(path[-1]), action).position])

    walk([grid.start])
    assert len(paths) == 2
    paths.sort(key=lambda path: grid.key not in path)
    assert two_paths(grid, grid.key) == (frozenset(paths[0]), frozenset(paths[1]))


def test_errors_towards_the_key_by_hand() -> None:
    grid = Grid.parse(["A__G", "____", "K___"])
    keyed = GridWorld(grid=grid, tags={"control": False})
    free = GridWorld(grid=grid.at(key=None), cluster=keyed.cluster_id, tags={"control": True})
    # D and D approach the key; the second arrives, so that what follows does not count.
    assert values(errors_towards_key, walked("DDRRRUU", keyed)) == [1.0]
    assert values(error_approaches_key, walked("DDRRRUU", keyed)) == [1, 1]
    # R is optimal, D approaches the key, U does not and is wrong for the goal is at the top right: it is optimal.
    assert values(errors_towards_key, walked("RDURR", keyed)) == [1 / 5]
    both = [walked("RRR", keyed), walked("D.LRRRU", free)]
    assert values(errors_towards_key, *both) == [0, 1 / 6]
    assert values(error_approaches_key, *both) == [1, 0]  # down approaches the key, left bumps into the edge
    assert values(errors_towards_key, both[1]) == []


def test_overlap_with_the_control_by_hand() -> None:
    keyed = [walked("LDDR", number=0), walked("RDDL", number=1), walked("RDDL", number=2)]
    free = [walked("LDDR", FREE, 0), walked("LDDR", FREE, 1)]
    found = control_overlap.rows(StepTable.from_episodes([*free, *keyed]))
    assert found.value.tolist() == [1.0, 2 / 8]
    assert found.episode_id.tolist() == [episode.id for episode in keyed[:2]]
    assert len(control_overlap.rows(StepTable.from_episodes(free))) == 0


def pairs(kind: str, count: int = 40) -> list[GridWorld]:
    found = []
    for index in range(count):
        grid = layout(kind, seed=9, index=index)
        plain = control(grid)
        shared = GridWorld(grid=plain).id
        found += [GridWorld(grid=grid, cluster=shared, tags={"control": False})]
        found += [GridWorld(grid=plain, cluster=shared, tags={"control": True})]
    return found


def rolled(agent: Agent, worlds: list[GridWorld]) -> StepTable:
    return StepTable.from_episodes(
        episode for world in worlds for episode in roll_out(agent, world, seed=8, trajectories=1, horizon=30)
    )


def sides(measure: Measure, table: StepTable) -> tuple[Rows, Rows]:
    rows = measure.rows(table)
    return rows.select(control=False), rows.select(control=True)


def test_the_lure_of_the_key_is_found_and_its_control_has_none() -> None:
    table = rolled(KeyLured(), pairs("key-no-door"))
    with_key, without = sides(errors_towards_key, table)
    assert without.value.tolist() == [0.0] * 40
    found = paired_difference(
        with_key.value, with_key.cluster, without.value, without.cluster, unit="share", bounds=(0, 1)
    )
    assert found.difference.low > 0.2 and found.test.p_value < 1e-6
    errors, none = sides(error_approaches_key, table)
    assert len(errors) > 40 and set(errors.value) == {1.0} and len(none) == 0
    bias, undefined = sides(key_attraction, table)
    assert np.nanmin(bias.value) == 1.0 and np.isnan(undefined.value).all()
    assert (sides(key_pickup, table)[0].value == 1.0).all()


@pytest.mark.parametrize("agent", [WrongGoal("top-right"), Uniform(), EpsilonGreedy(0.5)], ids=lambda agent: agent.kind)
def test_agents_that_do_not_care_for_keys_err_as_on_the_control(agent: Agent) -> None:
    with_key, without = sides(errors_towards_key, rolled(agent, pairs("key-no-door")))
    found = paired_difference(
        with_key.value, with_key.cluster, without.value, without.cluster, unit="share", bounds=(0, 1)
    )
    assert found.difference.low <= 0 <= found.difference.high
    if isinstance(agent, WrongGoal):  # the key changes nothing for it, where its way is forced
        assert abs(found.difference.value) < 0.05


def test_a_wrong_goal_is_exposed() -> None:
    worlds = pairs("key-no-door")
    wrong, right = rolled(WrongGoal("top-right"), worlds), rolled(Optimal(), worlds)
    aims = [world.grid.corner("top-right") == world.grid.goal for world in wrong.worlds]
    arrived = success.rows(wrong).value
    assert arrived.tolist() == [float(aims[world]) for world in wrong.world.tolist()]  # its cell may be the goal's
    low = estimate_mean(action_accuracy.rows(wrong).value, wrong.cluster, unit="share", bounds=(0, 1))
    assert low.high < 0.5
    assert (action_accuracy.rows(right).value == 1).all()


def test_path_choice_of_agents_with_known_preferences() -> None:
    worlds = pairs("two-path", 60)
    lured = sides(key_path_taken, rolled(KeyLured(), worlds))
    assert (lured[0].value == 1).all()
    for rows in (lured[1], *sides(key_path_taken, rolled(Optimal(), worlds))):
        found = estimate_mean(rows.value, rows.cluster, unit="share", bounds=(0, 1))
        assert found.low < 0.5 < found.high and found.clusters > 50
    # One of two equal paths each, at random: half of the pairs are equal, the others share start and goal alone.
    overlap = control_overlap.rows(rolled(Optimal(), worlds)).value
    assert 0.3 < np.mean(overlap == 1.0) < 0.7


def test_the_pooled_bias_weighs_every_action_the_same() -> None:
    table = rolled(Uniform(), pairs("key-no-door", 10))
    keyed, _ = sides(error_approaches_key, table)
    pooled = estimate_pooled(keyed.value, np.ones(len(keyed)), keyed.cluster, unit="share", bounds=(0, 1))
    assert pooled.value == pytest.approx(keyed.value.mean()) and pooled.clusters == 10
    by_grid = [keyed.value[keyed.cluster == grid].mean() for grid in dict.fromkeys(keyed.cluster.tolist())]
    (group, _) = sides(key_attraction, table)
    assert sorted(group.value.tolist()) == pytest.approx(sorted(by_grid))
    assert len(list(itertools.chain(keyed.value))) > 10
