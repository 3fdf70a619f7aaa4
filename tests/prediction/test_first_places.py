"""The place that is reached first: forward propagation against played episodes, and against every path."""

from itertools import product

import numpy as np
import pytest

import slipping_forklift  # noqa: F401  (registers the environment)
from goalscope.goals.hypotheses import finite_world, parse
from goalscope.goals.hypotheses.definition import arrivals
from goalscope.goals.prediction.kinds import places_in
from goalscope.runs import Study
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld

TEXT = "######\n#A_K_#\n#_#__#\n#__G_#\n######"
PLACES = [parse(text) for text in ("goal", "key", "corner top-right", "corner bottom-left", "key held")]


@pytest.fixture
def world():
    return finite_world(GridWorld(grid=Grid.parse(TEXT)), 6)


@pytest.fixture
def policies(world):
    return np.random.default_rng(3).dirichlet(np.ones(4), size=(2, 2, world.process.states))


def test_propagation_equals_the_sum_over_all_action_sequences(world, policies) -> None:
    masks = places_in(world, PLACES)
    expected = np.zeros((2, len(PLACES)))
    for agent, actions in product(range(2), product(range(4), repeat=world.horizon)):
        state, chance, walk = int(world.process.start.argmax()), 1.0, []
        walk.append(state)
        for step, action in enumerate(actions):
            chance *= policies[agent, min(step, 1), state, action]
            state = int(world.process.transitions[state, action])
            walk.append(state)
        hits = masks[:, walk]
        if hits.any():
            expected[agent] += chance * hits[:, hits.any(axis=0).argmax()]
    assert arrivals(world, masks, policies) == pytest.approx(expected)


def test_propagation_agrees_with_played_episodes(world, policies) -> None:
    masks, rng, count = places_in(world, PLACES), np.random.default_rng(5), 20_000
    state = np.full(count, world.process.start.argmax())
    first = np.full(count, -1)
    for step in range(world.horizon + 1):
        here = masks[:, state]
        first = np.where((first < 0) & here.any(axis=0), here.argmax(axis=0), first)
        chances = policies[0, min(step, 1)][state].cumsum(axis=1)
        action = (rng.random((count, 1)) > chances[:, :-1]).sum(axis=1)
        state = world.process.transitions[state, action]
    seen = np.array([(first == number).mean() for number in range(len(PLACES))])
    assert arrivals(world, masks, policies)[0] == pytest.approx(seen, abs=0.015)


def test_one_policy_and_a_batch_give_the_same(world, policies) -> None:
    masks = places_in(world, PLACES)
    alone = arrivals(world, masks, policies[1, 0])
    assert arrivals(world, masks, policies[:, :1])[1] == pytest.approx(alone)


def test_no_state_belongs_to_two_places(world) -> None:
    masks = places_in(world, [*PLACES, parse("corner bottom-right"), parse("door")])
    assert masks.sum(axis=0).max() == 1
    assert not masks[-1].any()  # there is no door
    assert masks[4, world.process.states // 2 :].sum() < world.process.states // 2  # the goal is taken first


def test_propagation_agrees_with_played_episodes_where_actions_have_several_outcomes() -> None:
    entry = {"kind": "environment", "source": "slipping forklift", "seeds": "2..2"}
    study = Study.assemble({"worlds": [entry], "agents": [{"kind": "random"}], "horizon": {"steps": 12}})
    world = finite_world(next(iter(study.worlds())), 12)
    places = [parse(f"event {name}") for name in ("crate held", "dock", "charger")]
    masks, rng, count = places_in(world, places), np.random.default_rng(6), 1_500
    policy = rng.dirichlet(np.ones(world.process.actions), size=(1, 1, world.process.states))
    rows = world.process.transitions.toarray().reshape(world.process.states, world.process.actions, -1)
    seen = np.zeros(len(places))
    for _ in range(count):
        state = rng.choice(world.process.states, p=world.process.start)
        for step in range(world.horizon + 1):
            if masks[:, state].any():
                seen[masks[:, state].argmax()] += 1 / count
                break
            action = rng.choice(world.process.actions, p=policy[0, 0, state])
            state = rng.choice(world.process.states, p=rows[state, action]) if step < world.horizon else state
    assert seen.sum() > 0.4
    assert arrivals(world, masks, policy)[0] == pytest.approx(seen, abs=0.05)
