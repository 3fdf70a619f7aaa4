"""Path choice, errors towards the key, paired overlap: by hand, by another reading, for agents with known goals."""

import itertools

import numpy as np
import pytest

from goalscope.agents import Agent, EpsilonGreedy, KeyLured, Optimal, Uniform, WrongGoal
from goalscope.measures import Measure, StepTable, action_accuracy, key_attraction, key_pickup, play, roll_out, success
from goalscope.measures.key import (
    control_overlap,
    error_approaches_key,
    errors_towards_key,
    key_path_first,
    key_path_taken,
    two_paths,
)
from goalscope.runs import Episode, GridWorld
from goalscope.stats import estimate_mean, estimate_pooled, paired_difference
from goalscope.stats.rows import Rows
from goalscope.worlds import Action, Grid, State, control, layout, step
from goalscope.worlds.planning import optimal_actions

MOVES = {"U": Action.UP, "D": Action.DOWN, "L": Action.LEFT, "R": Action.RIGHT, ".": None}
RING = GridWorld(grid=Grid.parse(["_A_", "K#_", "_G_"]), tags={"control": False})
FREE = GridWorld(grid=RING.grid.at(key=None), cluster=RING.cluster_id, tags={"control": True})


def played(moves: str, world: GridWorld = RING, number: int = 0) -> Episode:
    return play(world, [MOVES[move] for move in moves], trajectory=number)


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
    assert values(key_path_taken, played(moves)) == pytest.approx([taken], nan_ok=True)
    assert values(key_path_first, played(moves)) == pytest.approx([first], nan_ok=True)


def test_a_control_is_told_by_its_twin_and_other_worlds_have_no_paths() -> None:
    both = [played("RDDL"), played("LDDR", FREE)]
    assert values(key_path_taken, *both) == [0, 1]
    assert values(key_path_taken, both[1]) == []  # nobody says where the key would lie
    for grid in (["AK_", "___", "__G"], ["AKG"], ["A_G", "#K#"], ["A_G", "K__"]):
        assert values(key_path_taken, played("R", GridWorld(grid=Grid.parse(grid)))) == []


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
    assert values(errors_towards_key, played("DDRRRUU", keyed)) == [1.0]
    assert values(error_approaches_key, played("DDRRRUU", keyed)) == [1, 1]
    # R is optimal, D approaches the key, U does not and is wrong for the goal is at the top right: it is optimal.
    assert values(errors_towards_key, played("RDURR", keyed)) == [1 / 5]
    both = [played("RRR", keyed), played("D.LRRRU", free)]
    assert values(errors_towards_key, *both) == [0, 1 / 6]
    assert values(error_approaches_key, *both) == [1, 0]  # down approaches the key, left bumps into the edge
    assert values(errors_towards_key, both[1]) == []


def test_overlap_with_the_control_by_hand() -> None:
    keyed = [played("LDDR", number=0), played("RDDL", number=1), played("RDDL", number=2)]
    free = [played("LDDR", FREE, 0), played("LDDR", FREE, 1)]
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
