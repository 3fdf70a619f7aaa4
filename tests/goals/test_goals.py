"""MEG from runs: agents whose goal was planted are told apart, random ones show nothing, the same gives the same."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goal_tables import directed, held_out
from goalscope._ground.folder import Spill
from goalscope._ground.rng import stream
from goalscope.agents import Agent, KeyLured, Optimal, Uniform, WrongGoal
from goalscope.goals import GoalEstimate, RunDirectedness, directedness
from goalscope.goals.curves import interval, p_value, weigh
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.goals.reading import asked_hypotheses
from goalscope.measures import StepTable, roll_out
from goalscope.runs import Episode, GridWorld
from goalscope.stats import estimate_mean
from goalscope.worlds import Grid, generate_batch, layout_series


def rooms(count: int, *agents: Agent, size: int = 7, trajectories: int = 5, seed: int = 1) -> list[Episode]:
    worlds = [
        GridWorld(grid=grid, tags={"size": size, "index": index})
        for index, grid in enumerate(generate_batch(size, 0.4, seed=seed, count=count, minimum_distance=3))
    ]
    return [
        episode
        for agent in agents
        for world in worlds
        for episode in roll_out(agent, world, seed=seed, trajectories=trajectories)
    ]


def one(found: RunDirectedness, agent: str, hypothesis: str, **cell: object) -> GoalEstimate:
    (estimate,) = (
        entry
        for entry in found.estimates
        if entry.agent == agent and entry.hypothesis == hypothesis and entry.cell == cell
    )
    return estimate


def apart(first: GoalEstimate, second: GoalEstimate) -> bool:
    return first.low > second.high or second.low > first.high


@pytest.fixture(scope="module")
def keyed() -> RunDirectedness:
    """Twenty worlds with a useless key, five episodes: the size of the study of scripted agents."""
    worlds = [GridWorld(grid=grid) for grid in layout_series("key-no-door", seed=2026, count=20)]
    agents = (Optimal(), KeyLured(), WrongGoal("top-right"), Uniform())
    episodes = [
        episode for agent in agents for world in worlds for episode in roll_out(agent, world, seed=9, trajectories=5)
    ]
    return directed(episodes, "goal", "key held", "corner top-right", "corner bottom-left")


def test_agents_with_planted_goals_are_told_apart(keyed: RunDirectedness) -> None:
    owners = {"optimal": "goal", "key-lured": "key held", "wrong-goal(top-right)": "corner top-right"}
    for owner, hypothesis in owners.items():
        own = one(keyed, owner, hypothesis)
        assert own.beta == math.inf and own.share == pytest.approx(1.0) and own.low > 0 and own.null_p < 0.01
        for other in (*owners, "random"):
            if other != owner:
                assert apart(own, one(keyed, other, hypothesis)), (hypothesis, other)
    for agent in ("optimal", "wrong-goal(top-right)"):
        values = {e.hypothesis: e.share for e in keyed.estimates if e.agent == agent and not math.isnan(e.share)}
        assert max(values, key=lambda name: values[name]) == owners[agent]
    contrasts = {(entry.agent, entry.second): entry for entry in keyed.contrasts}
    assert (
        contrasts["optimal", "corner top-right"].low > 0 and contrasts["optimal", "corner top-right"].adjusted < 0.001
    )
    wrong = contrasts["wrong-goal(top-right)", "corner top-right"]
    assert wrong.high < 0 and wrong.adjusted < 0.001
    assert all(entry.adjusted >= entry.p_value for entry in keyed.contrasts)


def test_random_agents_show_nothing(keyed: RunDirectedness) -> None:
    own = [estimate for estimate in keyed.estimates if estimate.agent == "random"]
    # Over so few grids an interval of 95 % covers .88 to .95: one of seven may miss, by little.
    assert sum(not estimate.low <= 0 <= estimate.high for estimate in own) <= 1
    assert all(estimate.value < 0.05 and estimate.low < 0.005 for estimate in own)
    for entry in keyed.contrasts:
        if entry.agent == "random":
            assert entry.adjusted > 0.05


def test_a_random_agent_in_sixty_worlds() -> None:
    found = one(directed(rooms(60, Uniform(), trajectories=10), "goal"), "random", "goal")
    assert found.low <= 0 <= found.high and found.value < 0.005
    assert (found.n, found.worlds, found.grids) == (600, 60, 60)
    assert found.cross_fitted < 0.005 and 0 < found.null < found.null_high < 0.02


@pytest.mark.full
def test_random_agents_of_many_seeds_are_seldom_taken_for_more() -> None:
    missed = 0
    for seed in range(60):
        episodes = rooms(60, Uniform(), trajectories=10, seed=seed)
        found = one(directed(episodes, "goal"), "random", "goal")
        missed += not found.low <= 0 <= found.high
    assert missed <= 7  # 5 % of 60 is 3; more than 7 has a chance of 1 %


def test_the_rows_have_the_signed_figure_as_their_mean(keyed: RunDirectedness) -> None:
    for estimate in keyed.estimates:
        rows = keyed.rows.select(measure=f"MEG towards the {estimate.hypothesis}", agent=estimate.agent)
        assert len(rows) == estimate.worlds and set(rows.unit) == {"nats"}
        assert estimate_mean(rows.value, rows.cluster, unit="nats").value == pytest.approx(estimate.signed, abs=1e-9)


def test_the_same_episodes_in_any_order_give_the_same_bytes() -> None:
    episodes = rooms(6, Optimal(), Uniform(), trajectories=3)
    first = directed(episodes, by=("size",))
    shuffled = [episodes[index] for index in stream(0, "order").permutation(len(episodes))]
    again, other = directed(episodes, by=("size",)), directed(shuffled, by=("size",))
    plain = [json.dumps(found.to_plain(), allow_nan=False) for found in (first, again, other)]
    assert plain[0] == plain[1] == plain[2]
    assert first.rows.value.tobytes() == again.rows.value.tobytes() == other.rows.value.tobytes()
    assert one(first, "optimal", "goal", size=7).signed == one(first, "optimal", "goal").signed


def test_cells_are_split_by_conditions_and_by_what_is_asked() -> None:
    episodes = rooms(3, Optimal(), trajectories=2) + rooms(3, Optimal(), size=9, trajectories=2)
    found = directed(episodes, "goal", by=("size",))
    assert [dict(entry.cell) for entry in found.estimates] == [{}, {"size": 7}, {"size": 9}]
    assert [entry.grids for entry in found.estimates] == [6, 3, 3] and len(found.rows) == 6
    kinds = [
        replace(
            e, world=replace(e.world, tags={**e.world.tags, "kind": "odd" if e.world.tags["size"] == 9 else "even"})
        )
        for e in episodes
    ]
    found = directed(kinds, "goal")
    assert [dict(entry.cell) for entry in found.estimates] == [{"kind": "even"}, {"kind": "odd"}]


def test_turns_without_an_action_are_a_no_op_or_an_action_of_their_own() -> None:
    worlds = [GridWorld(grid=grid) for grid in generate_batch(7, 0.0, seed=3, count=15, minimum_distance=3)]
    episodes = [e for world in worlds for e in roll_out(Uniform(), world, seed=4, trajectories=20, invalid=0.2)]
    own = one(directed(episodes, "goal", invalid="action"), "random", "goal")
    assert own.low <= 0 <= own.high  # five actions, each with 1/5: random
    noop = one(directed(episodes, "goal"), "random", "goal")
    assert noop.uniform_utility > own.uniform_utility and noop.utility == own.utility
    assert noop.signed < own.signed and own.bound > noop.bound


def test_share_and_rationality_are_given_where_the_interval_leaves_0_out_and_nowhere_else(
    keyed: RunDirectedness,
) -> None:
    plain = json.loads(json.dumps(keyed.to_plain(), allow_nan=False))["estimates"]
    told = [entry.low > 0 or entry.high < 0 for entry in keyed.estimates]
    assert 0 < sum(told) < len(told)
    for yes, entry, written in zip(told, keyed.estimates, plain, strict=True):
        # A share of an optimal agent's is not given of one that does worse than a random one.
        assert math.isnan(entry.share) == (not yes or entry.signed < 0), entry
        assert math.isnan(entry.beta) == (written["beta"] is None), entry
        assert entry.signed < 0 or math.isnan(entry.beta) == (not yes), entry  # nor a rationality of minus infinity
        assert (written["share"] is None) == math.isnan(entry.share)
        assert ("chance" in written["note"]) == (not yes)
        assert math.isfinite(entry.signed) and written["signed"] is not None
        assert replace(entry, beta=-math.inf).note == entry.note  # as an earlier version stored it
    one_episode = directed(rooms(1, Optimal(), trajectories=1), "goal").estimates[0]
    assert math.isnan(one_episode.share) and "interval" in one_episode.note


def on_maps(states: list[States], maps: dict[str, Grid]) -> list[States]:
    """Return the states in believed maps, by world id; without those whose world has none."""
    return [
        entry.in_world(entry.world.on_map(maps[entry.world.world.id]))
        for entry in states
        if entry.world.world.id in maps
    ]


def test_beliefs_take_the_place_of_worlds() -> None:
    table = StepTable.from_episodes(rooms(8, WrongGoal("top-right"), trajectories=3))
    states, goal = states_of(table), asked_hypotheses(("goal",), table.worlds)
    grids = {world.id: world.grid for world in table.worlds}
    plain = directedness(states, goal)
    assert directedness(on_maps(states, grids), goal).estimates == plain.estimates
    ends = {episode.world.id: episode.final.position for episode in table.episodes}
    believed = {name: grid.at(goal=ends[name]) for name, grid in grids.items()}
    found = directedness(on_maps(states, believed), goal)
    agent = "wrong-goal(top-right)"
    assert one(found, agent, "goal").share == pytest.approx(1.0) and one(plain, agent, "goal").signed < 0
    some = dict(list(believed.items())[:2])
    part = directedness(on_maps(states, some), goal)
    estimate = one(part, agent, "goal")
    # In one of the two worlds the last decision enters the believed goal: none is left that it would pay.
    assert (estimate.worlds, estimate.out_of_reach, part.episodes) == (1, 1, 6)
    with pytest.raises(ValueError, match="shape"):
        on_maps(states, dict.fromkeys(grids, next(iter(generate_batch(9, 0.0, seed=1, count=1)))))


def test_unknown_utilities_predict_held_out_halves_of_purposeful_agents_alone() -> None:
    episodes = rooms(5, Optimal(), WrongGoal("top-right"), Uniform(), trajectories=6)
    found = {entry.agent: entry for entry in held_out(episodes)}
    for agent in ("optimal", "wrong-goal(top-right)"):
        assert found[agent].low > 1 > found[agent].null_high
    random = found["random"]
    assert random.low <= random.null_high and random.null_low <= random.high and random.value < 0.2
    assert held_out(episodes) == tuple(found.values())
    assert not held_out(rooms(3, Optimal(), trajectories=1))
    with pytest.raises(ValueError, match="ridge"):
        held_out(episodes, ridge=0.0)


def test_what_cannot_be_measured_is_refused_in_words() -> None:
    episodes = rooms(2, Optimal(), trajectories=1)
    wrong: tuple[tuple[tuple[str, ...], dict[str, Any], str], ...] = (
        (("gaol",), {}, "'goal'"),
        (("key",), {}, "'key'"),
        (("goal", "goal"), {}, "goal, goal"),
        (("goal if it lies up, else random",), {}, "utility"),
        ((), {"utility": "money"}, "utility.*money"),
        ((), {"invalid": "ignore"}, "invalid.*ignore"),
        ((), {"pairs": "second"}, "pairs.*second"),
        ((), {"confidence": 1.0}, "confidence"),
        (("goal",), {"by": ("colour",)}, "colour"),
    )
    for written, options, words in wrong:
        with pytest.raises(ValueError, match=words):
            directed(episodes, *written, **options)
    goal = {"goal": parse("goal")}
    with pytest.raises(ValueError, match="episode"):
        directedness([], goal)
    states = states_of(StepTable.from_episodes(episodes))
    with pytest.raises(ValueError, match="hypothes"):
        directedness(states, {})
    with pytest.raises(ValueError, match="key"):
        directedness(states, {"key": parse("key")})


def test_episodes_that_all_stop_early_leave_no_estimate() -> None:
    episodes = [
        replace(e, steps=e.steps[:1], final=e.steps[1].state, outcome="stopped")
        for e in rooms(2, WrongGoal("top-right"), trajectories=1)
    ]
    found = directed(episodes)
    assert not found.estimates and found.left_out == 2 and len(found.rows) == 0


def corridors(*lengths: int) -> list[Episode]:
    """Episodes of six decisions in corridors: the right corner lies so many cells away, the goal beside the agent."""
    worlds = [GridWorld(grid=Grid.parse("G A" + " _" * length), tags={"index": length}) for length in lengths]
    return [one for world in worlds for one in roll_out(Uniform(), world, seed=1, trajectories=2, horizon=6)]


def test_worlds_in_which_no_policy_reaches_a_place_in_time_are_left_out_and_counted() -> None:
    near, all_worlds = (directed(corridors(*lengths), "goal", "corner top-right") for lengths in ((1, 3), (1, 3, 6, 9)))
    goal, corner = all_worlds.estimates
    assert (goal.worlds, goal.n, goal.out_of_reach) == (4, 8, 0)
    # A corner six cells away can be entered with the last decision, after which no decision is left that it would pay.
    assert (corner.worlds, corner.grids, corner.n, corner.out_of_reach) == (2, 2, 4, 2)
    assert replace(corner, out_of_reach=0) == near.estimates[1]
    [contrast] = all_worlds.contrasts
    assert contrast.common == 2 and contrast == near.contrasts[0]
    rows = all_worlds.rows.select(measure="MEG towards the corner top-right")
    assert len(rows) == 2 and rows.value.mean() == pytest.approx(corner.signed, abs=1e-9)
    # Being there at the end pays, too, where the last decision enters it.
    _, arrival = directed(corridors(1, 3, 6, 9), "goal", "corner top-right", utility="arrival").estimates
    assert (arrival.worlds, arrival.out_of_reach) == (3, 1)


def test_a_place_that_is_out_of_reach_everywhere_keeps_its_worlds_and_is_0_by_definition() -> None:
    _, corner = directed(corridors(6, 9), "goal", "corner top-right").estimates
    assert (corner.worlds, corner.out_of_reach, corner.signed, corner.bound) == (2, 0, 0.0, 0.0)
    assert "0 by definition" in corner.note


def test_weights_give_each_grid_the_same_and_intervals_hold_what_they_should() -> None:
    weights = weigh(["a", "b", "b", "c"], seed=0, spill=Spill())
    assert weights.whole.tolist() == [[1 / 3, 1 / 6, 1 / 6, 1 / 3]] and weights.grids == 3
    resampled, first, second = (side @ np.eye(4) for side in (weights.resampled, weights.first, weights.second))
    for part in (resampled, first, second):
        assert part.sum(axis=1) == pytest.approx(1.0) and (part[:, 1] == part[:, 2]).all()
    assert not ((first > 0) & (second > 0)).any()
    assert len(weigh(["a", "a"], seed=0, spill=Spill()).resampled) == 0
    normal = stream(0, "normal").normal(1.0, 0.2, 4000)
    low, high = interval(normal, 400, 0.95)
    assert (low, high) == pytest.approx((1 - 0.393, 1 + 0.393), abs=0.03)
    assert interval(normal, 5, 0.95)[1] > high and math.isnan(interval(normal, 1, 0.95)[0])
    assert p_value(normal, 1.0, 400) == pytest.approx(7e-7, rel=1.0)
    shifted = normal - 0.6
    assert p_value(shifted, 0.4, 400) == pytest.approx(0.046, abs=0.015)
    assert p_value(np.zeros(2000), 0.0, 400) == 1.0 and math.isnan(p_value(normal, 1.0, 1))


def test_under_fog_agents_are_compared_with_policies_that_see_the_whole_maze() -> None:
    grids = generate_batch(9, 0.6, seed=3, count=12, minimum_distance=6)

    def found(fog_radius: int | None) -> GoalEstimate:
        worlds = [GridWorld(grid=grid, fog_radius=fog_radius) for grid in grids]
        episodes = [entry for world in worlds for entry in roll_out(Optimal(), world, seed=3, trajectories=2)]
        return one(directed(episodes, "goal"), "optimal", "goal")

    seeing, exploring = found(None), found(2)
    assert exploring.bound == pytest.approx(seeing.bound) and seeing.share == pytest.approx(1)
    assert exploring.share < 0.9 and "whole maze" in exploring.note and "whole maze" not in seeing.note
