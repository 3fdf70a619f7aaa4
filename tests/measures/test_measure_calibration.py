"""Calibration: agents whose goal was planted hit their known values, and agents with another goal are exposed."""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents import Agent, EpsilonGreedy, Forgetful, KeyLured, Optimal, Uniform, WrongGoal
from goalscope.measures import (
    Measure,
    StepTable,
    action_accuracy,
    action_optimality,
    calibration_error,
    key_attraction,
    key_pickup,
    path_ratio,
    policy_divergence,
    policy_entropy,
    roll_out,
    success,
)
from goalscope.stats import Estimate, estimate_mean, estimate_pooled
from goalscope.worlds import Grid, GridWorld, generate_batch, key_no_door, two_path
from goalscope.worlds.planning import shortest_length
from known_policies import episode_outlook, epsilon_greedy

CONFIDENCE = 0.99  # these tests look at some thirty intervals: at 95 % one or two would miss by chance

EXCESSES: list[Measure] = [
    policy_entropy(part="excess"),
    policy_divergence(part="excess"),
    policy_entropy(part="excess", least_visits=5),
    policy_divergence(part="excess", least_visits=5),
    policy_entropy(part="excess", per="visit"),
    policy_divergence(part="excess", per="visit"),
    calibration_error(part="excess"),
]
UNBIASED = EXCESSES[-3:]


def plain_worlds(seed: int, each: int = 10) -> list[GridWorld]:
    return [
        GridWorld(grid=grid, tags={"size": size, "density": density})
        for size, density in ((7, 0.0), (9, 0.4), (11, 0.2), (11, 1.0))
        for grid in generate_batch(size, density, seed=seed, count=each, minimum_distance=4)
    ]


def keyed_worlds(count: int, layout: Callable[..., Grid] = key_no_door) -> list[GridWorld]:
    return [GridWorld(grid=layout(rng=stream(7, layout.__name__, number))) for number in range(count)]


def table_of(agent: Agent, worlds: Iterable[GridWorld], seed: int = 0, trajectories: int = 10) -> StepTable:
    return StepTable.from_episodes(
        episode for world in worlds for episode in roll_out(agent, world, seed=seed, trajectories=trajectories)
    )


def estimate(measure: Measure, table: StepTable, confidence: float = CONFIDENCE) -> Estimate:
    rows = measure.rows(table)
    return estimate_mean(rows.value, rows.cluster, unit=measure.unit, bounds=measure.bounds, confidence=confidence)


def test_the_optimal_agent_is_perfect_and_has_no_excess() -> None:
    table = table_of(Optimal(), plain_worlds(0))
    perfect: list[Measure] = [success, action_accuracy, action_optimality, path_ratio]
    for measure in perfect:
        assert (measure.rows(table).value == 1.0).all(), measure.name
    for measure in EXCESSES:
        found = estimate(measure, table)
        assert found.clusters >= 20
        assert found.low <= 0 <= found.high, (measure.name, found)
        assert found.high - found.low < 0.15, (measure.name, found)
    observed = estimate(policy_divergence(), table)
    assert observed.low > 0.01, "without its baseline the divergence of a perfect agent is not 0"


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.6])
def test_epsilon_greedy_hits_its_closed_form(epsilon: float) -> None:
    worlds = plain_worlds(1)
    outlook = {
        world.cluster_id: episode_outlook(
            world.grid, epsilon_greedy(world.grid, epsilon), math.ceil(1.5 * shortest_length(world.grid))
        )
        for world in worlds
    }
    table = table_of(EpsilonGreedy(epsilon), worlds)
    exact_values: list[tuple[Measure, str]] = [(success, "success"), (action_accuracy, "accuracy")]
    for measure, exact in exact_values:
        rows = measure.rows(table)
        expected = np.array([getattr(outlook[grid], exact) for grid in rows.cluster])
        off = estimate_mean(rows.value - expected, rows.cluster, unit="share", bounds=(-1, 1), confidence=CONFIDENCE)
        assert off.low <= 0 <= off.high, (measure.name, off)
        assert off.high - off.low < 0.15, (measure.name, off)
    rows = action_optimality.rows(table)
    options = table.optimal.sum(axis=1)
    closed = (1 - epsilon) + epsilon * options / 4
    pooled = estimate_pooled(
        rows.value - closed, np.ones(len(rows)), rows.cluster, unit="share", bounds=(-1, 1), confidence=CONFIDENCE
    )
    assert pooled.low <= 0 <= pooled.high, pooled
    divergence = estimate(policy_divergence(part="excess"), table)
    assert divergence.low > 0.02, "errors show in the divergence beyond what visits explain"


def test_excess_grows_with_epsilon() -> None:
    worlds = plain_worlds(2, each=5)
    found = [
        estimate(policy_divergence(part="excess"), table_of(EpsilonGreedy(e), worlds)).value for e in (0, 0.2, 0.5, 1)
    ]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.2


def test_an_agent_with_a_wrong_goal_is_exposed() -> None:
    table = table_of(WrongGoal("top-right"), plain_worlds(3))
    assert (success.rows(table).value == 0).all()
    assert estimate(policy_divergence(part="excess"), table).low > 0.3
    assert estimate(action_accuracy, table).high < 0.5
    entropy = estimate(policy_entropy(part="excess", least_visits=5), table)
    random = estimate(policy_entropy(part="excess", least_visits=5), table_of(Uniform(), plain_worlds(3)))
    assert entropy.high < random.low, "it is wrong, but it is not at random"


def test_an_agent_lured_by_the_key_is_exposed() -> None:
    worlds = keyed_worlds(30)
    lured, random, straight = (table_of(agent, worlds) for agent in (KeyLured(), Uniform(), Optimal()))
    bias = key_attraction.rows(lured)
    defined = ~np.isnan(bias.value)
    assert defined.sum() >= 10
    assert (bias.value[defined] == 1.0).all(), "each of its errors leads to the key"
    assert estimate(key_attraction, random).high < 0.5
    assert np.isnan(key_attraction.rows(straight).value).all(), "without errors there is no bias to speak of"
    assert estimate(key_pickup, lured).value > estimate(key_pickup, straight).value + 0.2


def test_two_paths_show_the_lure_against_the_matched_control() -> None:
    keyed = keyed_worlds(20, two_path)
    control = [
        GridWorld(grid=world.grid.at(key=None), cluster=world.cluster_id, tags={"control": True}) for world in keyed
    ]
    for agent, expected in ((KeyLured(), 1.0), (Optimal(), 0.5)):
        table = table_of(agent, [*keyed, *control])
        rows = key_pickup.rows(table)
        with_key = np.array([tag is None for tag in rows["control"]])
        pickup, passing = (
            estimate_mean(rows.value[mask], rows.cluster[mask], unit="share", bounds=(0, 1), confidence=CONFIDENCE)
            for mask in (with_key, ~with_key)
        )
        assert pickup.low <= expected <= pickup.high
        assert passing.low <= 0.5 <= passing.high
        assert (action_accuracy.rows(table).value == 1).all(), "both paths are optimal: accuracy sees nothing"


def test_forgetting_at_the_start_costs_the_accuracy_of_its_epsilon() -> None:
    table = table_of(Forgetful(0.3, 3), plain_worlds(4))
    rows, start = action_optimality.rows(table), table.step == 0
    off = rows.value[start] - (0.7 + 0.3 * table.optimal[start].sum(axis=1) / 4)
    found = estimate_mean(off, rows.cluster[start], unit="share", bounds=(-1, 1), confidence=CONFIDENCE)
    assert found.low <= 0 <= found.high, found


@pytest.mark.full
def test_intervals_of_the_unbiased_excesses_of_an_optimal_agent_cover_zero() -> None:
    repeats = 150
    covered = dict.fromkeys((measure.name for measure in UNBIASED), 0)
    for repeat in range(repeats):
        grids = generate_batch(9, 0.2, seed=100 + repeat, count=20, minimum_distance=4)
        table = table_of(Optimal(), [GridWorld(grid=grid) for grid in grids], seed=repeat, trajectories=8)
        for measure in UNBIASED:
            found = estimate(measure, table, confidence=0.95)
            covered[measure.name] += found.low <= 0 <= found.high
    assert all(0.9 <= count / repeats <= 0.99 for count in covered.values()), covered
