"""Scripted agents do what they say: their distributions, and the actions drawn from them."""

from collections import deque

import numpy as np
import pytest

from goalscope._ground.ids import canonical_json
from goalscope._ground.rng import stream
from goalscope.agents import (
    SCRIPTED,
    Agent,
    EpsilonGreedy,
    Forgetful,
    KeyLured,
    Observation,
    Optimal,
    ScriptedAgent,
    Uniform,
    WrongGoal,
    agent_id,
)
from goalscope.measures import roll_out
from goalscope.worlds import (
    Action,
    Fog,
    Grid,
    GridView,
    GridWorld,
    State,
    generate_batch,
    initial_state,
    key_door,
    key_no_door,
    shown,
    step,
    two_path,
)
from goalscope.worlds.dynamics import solid_cells
from goalscope.worlds.planning import distances_to, shortest_length, solve

AGENTS: list[ScriptedAgent] = [
    Optimal(),
    EpsilonGreedy(0.3),
    Uniform(),
    KeyLured(),
    WrongGoal("bottom-left"),
    WrongGoal((1, 1)),
    Forgetful(0.5, 3),
]
ROOM = Grid.parse(["#######", "#_____#", "#_____#", "#_A_G_#", "#_____#", "#_____#", "#######"])


def reachable(grid: Grid) -> list[State]:
    """All states that can be reached from the start, the goal's left out."""
    begin = initial_state(grid)
    seen, waiting = {begin}, deque([begin])
    while waiting:
        state = waiting.popleft()
        for after in (step(grid, state, action) for action in Action):
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return sorted((state for state in seen if state.position != grid.goal), key=str)


def look(grid: Grid, state: State, **more: object) -> Observation:
    return Observation(view=GridView(grid=shown(grid, state)), **more)  # type: ignore[arg-type]


def worlds() -> list[Grid]:
    plain = [grid for density in (0.0, 0.6, 1.0) for grid in generate_batch(7, density, seed=3, count=2)]
    keys = [make(rng=stream(3, make.__name__)) for make in (key_door, key_no_door, two_path)]
    return [*plain, *keys]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_distributions_are_distributions_and_only_their_actions_are_drawn(agent: ScriptedAgent) -> None:
    assert isinstance(agent, Agent)
    assert not agent.journalled
    for grid in worlds():
        observations = [look(grid, state, episode_id="e", step=index) for index, state in enumerate(reachable(grid))]
        for observation, turn in zip(observations, agent.act(observations), strict=True):
            chances = agent.probabilities(observation)
            assert chances.shape == (4,)
            assert chances.min() >= 0
            assert chances.sum() == pytest.approx(1, abs=1e-12)
            assert turn.action is not None
            assert chances[turn.action] > 0


def test_optimal_is_uniform_over_the_optimal_set_of_every_state() -> None:
    states = 0
    for grid in worlds():
        sets = solve(grid).optimal
        for state in reachable(grid):
            best = sets[min(state.phase, len(sets) - 1), *state.position]
            np.testing.assert_allclose(Optimal().probabilities(look(grid, state)), best / best.sum())
            states += 1
    assert states > 300


def test_optimal_acts_at_random_where_the_goal_cannot_be_reached() -> None:
    grid = Grid.parse(["A_#G"])
    np.testing.assert_array_equal(Optimal().probabilities(Observation(view=GridView(grid=grid))), np.full(4, 0.25))


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_epsilon_greedy_is_the_mixture_of_the_uniform_and_the_optimal_agent(epsilon: float) -> None:
    for grid in worlds():
        for state in reachable(grid):
            seen = look(grid, state)
            mixture = epsilon * Uniform().probabilities(seen) + (1 - epsilon) * Optimal().probabilities(seen)
            np.testing.assert_allclose(EpsilonGreedy(epsilon).probabilities(seen), mixture)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_frequencies_follow_the_distribution(agent: ScriptedAgent) -> None:
    draws = 4000
    observations = [
        Observation(view=GridView(grid=ROOM), episode_id=f"episode {number}", seed=5) for number in range(draws)
    ]
    taken = np.bincount([turn.action or 0 for turn in agent.act(observations)], minlength=4)
    expected = np.mean([agent.probabilities(observation) for observation in observations], axis=0)
    assert (np.abs(taken / draws - expected) <= 4 * np.sqrt(expected * (1 - expected) / draws) + 1e-12).all()


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_answer_depends_on_its_own_observation_alone(agent: ScriptedAgent) -> None:
    observations = [
        Observation(view=GridView(grid=grid), episode_id=name, step=number, attempt=attempt, seed=2)
        for grid in worlds()
        for name in ("a", "b")
        for number in (0, 1, 9)
        for attempt in (0, 1)
    ]
    batch = [turn.action for turn in agent.act(observations)]
    assert batch == [agent.act([observation])[0].action for observation in observations]
    assert batch[::-1] == [turn.action for turn in agent.act(observations[::-1])]


def test_seed_episode_step_and_attempt_each_change_the_draws() -> None:
    def draws(**more: object) -> list[int | None]:
        return [
            turn.action
            for turn in Uniform().act(
                [
                    Observation(**{"view": GridView(grid=ROOM), "episode_id": f"e{number}", **more})  # type: ignore[arg-type]
                    for number in range(40)
                ]
            )
        ]

    variants = [draws(), draws(seed=1), draws(step=1), draws(attempt=1)]
    assert draws() == variants[0]
    assert all(one != other for index, one in enumerate(variants) for other in variants[:index])


def test_key_lured_fetches_the_key_and_then_goes_to_the_goal() -> None:
    for number in range(10):
        grid = (key_no_door, two_path)[number % 2](rng=stream(number, "lure"))
        assert grid.key is not None
        assert grid.start is not None
        solid = grid.walls.copy()
        solid[grid.goal] = True
        detour = int(distances_to(solid, [grid.key])[grid.start]) + int(solve(grid).distance[0][grid.key])
        episode = roll_out(KeyLured(), GridWorld(grid=grid), seed=1, trajectories=1, horizon=200)[0]
        assert episode.success
        assert episode.final.carrying_key
        assert len(episode.steps) == detour


def test_key_lured_goes_to_the_goal_where_the_goal_stands_in_the_way_of_the_key() -> None:
    grid = Grid.parse(["A_GK"])
    np.testing.assert_array_equal(KeyLured().probabilities(Observation(view=GridView(grid=grid))), [0, 0, 0, 1])


@pytest.mark.parametrize("target", ["top-left", "top-right", "bottom-left", "bottom-right", (5, 3)])
def test_wrong_goal_goes_to_its_cell_and_enters_the_goal_only_there(target: str | tuple[int, int]) -> None:
    for grid in (grid for density in (0.2, 1.0) for grid in generate_batch(9, density, seed=8, count=4)):
        top, left = {"top": 0, "bottom": grid.height - 1}, {"left": 0, "right": grid.width - 1}
        vertical, horizontal = target.split("-") if isinstance(target, str) else ("", "")
        aim = (top[vertical], left[horizontal]) if isinstance(target, str) else target
        solid = grid.walls.copy()
        solid[grid.goal] = True
        assert grid.start is not None
        cells = np.argwhere(distances_to(solid, [grid.start]) >= 0)
        nearest = np.abs(cells - np.array(aim)).sum(axis=1).min()
        own = grid.corner(target) if isinstance(target, str) else grid.nearest(target)
        episode = roll_out(WrongGoal(target), GridWorld(grid=grid), seed=1, trajectories=1, horizon=100)[0]
        away = [np.abs(np.array(turn.state.position) - aim).sum() for turn in episode.steps]
        if own == grid.goal:
            assert episode.success and len(episode.steps) == shortest_length(grid)
            continue
        assert not episode.success
        assert min(away) == nearest
        arrived = away.index(nearest)
        assert max(away[arrived:]) <= nearest + 1
        assert len({turn.state.position for turn in episode.steps[arrived:]}) <= 5


def test_wrong_goal_stays_by_walking_into_walls_or_else_steps_away_and_back() -> None:
    corner = ROOM.at(start=(1, 5))
    np.testing.assert_allclose(
        WrongGoal("top-right").probabilities(Observation(view=GridView(grid=corner))), [0.5, 0, 0, 0.5]
    )
    inside = WrongGoal((3, 3))
    np.testing.assert_allclose(
        inside.probabilities(Observation(view=GridView(grid=ROOM.at(start=(3, 3))))),
        [1 / 3, 1 / 3, 1 / 3, 0],
        err_msg="not the goal",
    )
    np.testing.assert_allclose(
        inside.probabilities(Observation(view=GridView(grid=ROOM.at(start=(2, 3))))), [0, 1, 0, 0]
    )


def test_forgetful_forgets_whole_blocks_with_the_given_probability() -> None:
    agent = Forgetful(0.3, 4)
    forgotten = np.array(
        [
            [
                agent.forgotten(Observation(view=GridView(grid=ROOM), episode_id=f"e{name}", step=number))
                for number in range(40)
            ]
            for name in range(400)
        ]
    )
    blocks = forgotten.reshape(400, 10, 4)
    assert (blocks == blocks[:, :, :1]).all()
    share = blocks[:, :, 0].mean()
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)
    after = blocks[:, 1:, 0][blocks[:, :-1, 0]].mean()
    assert abs(after - 0.3) < 0.06, "blocks are independent of each other"


def test_forgetful_is_random_in_a_forgotten_block_and_optimal_else() -> None:
    agent, kinds = Forgetful(0.5, 2), set()
    for number in range(20):
        seen = Observation(view=GridView(grid=ROOM), episode_id="e", step=number)
        twin = Uniform() if agent.forgotten(seen) else Optimal()
        kinds.add(twin.name)
        np.testing.assert_array_equal(agent.probabilities(seen), twin.probabilities(seen))
    assert kinds == {"optimal", "random"}


def test_forgetful_errs_as_often_as_epsilon_greedy_but_in_bursts() -> None:
    grid = Grid.parse(["#########", "#A_____G#", "#########"])
    world = GridWorld(grid=grid)

    def wrong(agent: Agent) -> np.ndarray:
        turns = [
            agent.act([Observation(view=GridView(grid=grid), episode_id=f"e{name}", step=s) for s in range(20)])
            for name in range(500)
        ]
        return np.array([[turn.action != Action.RIGHT for turn in episode] for episode in turns])

    assert shortest_length(world.grid) == 6
    bursts, single = wrong(Forgetful(0.3, 5)), wrong(EpsilonGreedy(0.3))
    assert abs(bursts.mean() - 0.225) < 0.02
    assert abs(single.mean() - 0.225) < 0.02
    again_bursts, again_single = (each[:, 1:][each[:, :-1]].mean() for each in (bursts, single))
    assert again_bursts > 0.5
    assert again_single < 0.27


@pytest.mark.parametrize("layout", ["plain", "key-door"])
def test_optimal_finds_its_way_through_fog(layout: str) -> None:
    grids = (
        list(generate_batch(11, 0.8, seed=4, count=8))
        if layout == "plain"
        else [key_door(rng=stream(number, "fog")) for number in range(8)]
    )
    for number, grid in enumerate(grids):
        state, fog = initial_state(grid), Fog.start(grid, radius=3)
        for index in range(400):
            seen = fog.view(shown(grid, state))
            turn = Optimal().act([Observation(view=GridView(grid=seen), step=index, seed=number)])[0]
            assert turn.action is not None
            state = step(grid, state, turn.action)
            if state.position == grid.goal:
                break
            fog = fog.look(state.position, solid_cells(grid, state))
        assert state.position == grid.goal


def test_under_fog_a_seen_goal_is_approached_over_seen_cells() -> None:
    grid = Grid.parse(["_*_", "A_G", "_*_"])
    np.testing.assert_array_equal(Optimal().probabilities(Observation(view=GridView(grid=grid))), [0, 0, 0, 1])
    unseen = Grid.parse(["__A_*"])
    np.testing.assert_array_equal(Optimal().probabilities(Observation(view=GridView(grid=unseen))), [0, 0, 0, 1])


def test_descriptions_hold_kind_version_and_parameters_but_not_the_name() -> None:
    for kind, agent in SCRIPTED.items():
        assert agent.kind == kind
    for each in AGENTS:
        description = each.describe()
        assert description["kind"] == each.kind
        assert description["version"] == (2 if isinstance(each, WrongGoal) else 1)
        assert canonical_json(description)
    assert len({agent_id(each) for each in AGENTS}) == len(AGENTS)
    assert EpsilonGreedy(0.3).describe()["epsilon"] == 0.3
    assert agent_id(Optimal(name="other")) == agent_id(Optimal())
    assert [each.name for each in AGENTS[:2]] == ["optimal", "epsilon-greedy(0.3)"]


def test_an_observation_without_an_agent_is_refused() -> None:
    for agent in AGENTS:
        with pytest.raises(ValueError, match="cell"):
            agent.act([Observation(view=GridView(grid=ROOM.at(start=None)))])
