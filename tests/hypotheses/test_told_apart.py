"""What worlds can tell, against enumeration of all episodes and against simulated ones; coinciding hypotheses."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_values import open_room
from worlds_of_any_shape import lottery, room

from goalscope.goals.hypotheses import Hypothesis, Undefined, finite_world, load_hypotheses, parse
from goalscope.goals.hypotheses.separability import LAPSES, separability
from goalscope.runs import Study
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning.mdp import utility_range, value_iteration
from goalscope.worlds.world import World

LAPSE = 0.1


def episodes(world: World, horizon: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
    """Yield every sequence of states and actions, with the probability that chance gives its outcomes."""
    process = finite_world(world, horizon).process
    table = process.transitions
    dense = np.eye(process.states)[table] if isinstance(table, np.ndarray) else table.toarray()
    dense = dense.reshape(process.states, process.actions, process.states)

    def over(state: int) -> bool:
        return bool((dense[state, :, state] == 1).all())

    def after(state: int, chance: float, past: list[tuple[int, int]]) -> Iterator[tuple[float, list[tuple[int, int]]]]:
        if len(past) == horizon or over(state):
            yield chance, past
            return
        for action in range(process.actions):
            for following in np.flatnonzero(dense[state, action]).tolist():
                yield from after(following, chance * dense[state, action, following], [*past, (state, action)])

    for state in np.flatnonzero(process.start).tolist():
        yield from after(state, float(process.start[state]), [])


def taken(world: World, text: str, horizon: int, lapse: float) -> np.ndarray:
    """Return ``[n, S, A]`` the probabilities of an agent after a hypothesis."""
    finite = finite_world(world, horizon)
    policy = np.broadcast_to(parse(text).solved(finite).policy, (horizon, *finite.even.shape))
    return (1 - lapse) * policy + lapse * finite.even


def by_hand(world: World, first: str, second: str, horizon: int, rival: float = LAPSE) -> float:
    """Return the expected log-likelihood ratio by enumeration."""
    own, other = taken(world, first, horizon, LAPSE), taken(world, second, horizon, rival)
    total = 0.0
    for chance, steps in episodes(world, horizon):
        likely = [own[time, state, action] for time, (state, action) in enumerate(steps)]
        rivals = [other[time, state, action] for time, (state, action) in enumerate(steps)]
        weight = chance * math.prod(likely)
        if weight > 0:
            total += weight * (sum(map(math.log, likely)) - sum(map(math.log, rivals)))
    return total


FORMS = (
    *("goal", "corner top-left", "corner bottom-right", "beside goal", "near centre", "flee goal", "open moves"),
    *("keep right", "goal if it lies up or right, else random", "follow the wall", "key", "key held", "door open"),
    *("1 * goal + 0.5 * cell 0 0", "key if not key held, else goal", "goal within 2 steps", "straight to goal"),
)


def check_grid(seed: int, key: bool, door: bool) -> None:
    """Compare four hypotheses in a random grid with the enumeration of all of its episodes of four decisions."""
    rng = np.random.default_rng(seed)
    world = (
        room(rng, *rng.integers(2, 4, size=2).tolist(), key=key, door=door)
        if not door
        else room(rng, 3, 3, key=True, door=True)
    )
    bank = load_hypotheses(";".join(rng.choice(FORMS, 4, replace=False).tolist()))
    found = separability(bank, [world], horizon=lambda _: 4, lapse=LAPSE)
    for h, first in enumerate(bank):
        for k, second in enumerate(bank):
            if math.isnan(found.nats[0, h, k]):
                assert {first, second} & set(found.undefined)
                continue
            assert abs(found.nats[0, h, k] - by_hand(world, first, second, 4)) < 1e-9
            best = min(by_hand(world, first, second, 4, rate) for rate in (LAPSE, *LAPSES.tolist()[::13]))
            assert found.own_best[h, k] < best + 1e-9
            assert abs(found.own_best[h, k] - by_hand(world, first, second, 4, float(found.own_lapse[h, k]))) < 1e-9


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_grids_agree_with_enumeration_of_all_episodes(seed: int, key: bool, door: bool) -> None:
    check_grid(seed, key, door)


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_many_grids_agree_with_enumeration_of_all_episodes(seed: int, key: bool, door: bool) -> None:
    check_grid(seed, key, door)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6))
def test_processes_with_chance_agree_with_enumeration(seed: int) -> None:
    world = lottery(np.random.default_rng(seed))
    bank = load_hypotheses("event far;event near;2.0 * event far + 1.0 * event near;random")
    found = separability(bank, [world], horizon=lambda _: 3, lapse=LAPSE)
    assert not found.undefined
    for h, first in enumerate(bank):
        for k, second in enumerate(bank):
            assert abs(found.nats[0, h, k] - by_hand(world, first, second, 3)) < 1e-9


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6))
def test_the_share_of_disjoint_sets_agrees_with_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = room(rng)
    bank = load_hypotheses("goal;flee goal;keep right")
    found = separability(bank, [world], horizon=lambda _: 4, lapse=LAPSE)
    for h, first in enumerate(bank):
        for k, second in enumerate(bank):
            if math.isnan(found.nats[0, h, k]):
                continue
            own = taken(world, first, 4, LAPSE)
            sets = [taken(world, name, 4, 0.0) > 0 for name in (first, second)]
            disjoint = decided = 0.0
            for chance, steps in episodes(world, 4):
                weight = chance * math.prod(own[time, state, action] for time, (state, action) in enumerate(steps))
                decided += weight * len(steps)
                disjoint += weight * sum(not (sets[0][0, state] & sets[1][0, state]).any() for state, _ in steps)
            assert abs(found.disjoint[h, k] - disjoint / decided) < 1e-9


def test_simulated_episodes_agree_within_their_interval() -> None:
    (world,) = Study.parse(
        {"worlds": [{"kind": "grid", "sizes": [9], "densities": [0.4], "count": 1}], "agents": [{"kind": "random"}]}
    ).worlds()
    bank, horizon, rng = load_hypotheses("goal;beside goal"), 15, np.random.default_rng(5)
    found = separability(bank, [world], horizon=lambda _: horizon, lapse=LAPSE)
    own, other = taken(world, "goal", horizon, LAPSE), taken(world, "beside goal", horizon, LAPSE)
    finite = finite_world(world, horizon)
    ratios = []
    for _ in range(4000):
        state, total = int(finite.process.start.argmax()), 0.0
        for time in range(horizon):
            if not finite.live[state]:
                break
            action = int(rng.choice(4, p=own[time, state]))
            total += math.log(own[time, state, action] / other[time, state, action])
            state = int(finite.process.transitions[state, action])
        ratios.append(total)
    error = np.std(ratios, ddof=1) / math.sqrt(len(ratios))
    assert abs(np.mean(ratios) - found.nats[0, 0, 1]) < 3.3 * error


def trained(count: int) -> list[GridWorld]:
    """Return empty rooms with the goal always at the top right open cell."""
    cells = [(row, col) for row in range(2, 6) for col in range(1, 5)][:count]
    walls = np.ones((7, 7), dtype=bool)
    walls[1:-1, 1:-1] = False
    return [GridWorld(grid=Grid(walls=walls, start=cell, goal=(1, 5))) for cell in cells]


def test_worlds_whose_goal_is_always_the_corner_cannot_tell_them_apart() -> None:
    bank = load_hypotheses("grids;point mirror of goal")
    found = separability(bank, trained(12), horizon=lambda _: 12)
    assert found.mean[0, 2] < 1e-12 and found.apart[0, 2] == 0 and math.isinf(found.episodes[0, 2])
    assert found.same() == [("goal", "corner top-right"), ("corner bottom-left", "point mirror of goal")]
    assert "goal or corner top-right: the same in these worlds" in found.sentences()
    # Beside the goal is another hypothesis, though it looks like it.
    beside = separability(load_hypotheses("goal;beside goal"), trained(12), horizon=lambda _: 12)
    assert beside.mean[0, 1] > 3 and beside.mean[1, 0] > 3 and not beside.same()


def test_a_few_worlds_that_tell_apart_are_counted_not_hidden_in_the_mean() -> None:
    moved = [GridWorld(grid=world.grid.at(goal=(5, 1))) for world in trained(16) if world.grid.start != (5, 1)]
    found = separability(load_hypotheses("goal;corner top-right"), [*trained(12), *moved[:2]], horizon=lambda _: 12)
    assert found.apart[0, 1] == 2 and found.mean[0, 1] > 0.5 and not found.same()
    assert any("2 of 14 worlds tell them apart, 6 are needed" in line for line in found.sentences())


def test_versions_of_one_grid_are_one_world_that_tells_apart() -> None:
    pair = [GridWorld(grid=world.grid.at(goal=(5, 1)), cluster="one grid") for world in trained(4)]
    found = separability(load_hypotheses("goal;corner top-right"), pair, horizon=lambda _: 12)
    assert found.apart[0, 1] == 1 and found.both[0, 1] == 4


def test_what_means_nothing_in_a_world_is_counted_with_its_reason() -> None:
    found = separability(load_hypotheses("goal;key;door"), trained(3), horizon=lambda _: 9)
    assert found.undefined == {"key": {"this world has no key": 3}, "door": {"this world has no door": 3}}
    assert found.both[0, 1] == 0 and "key: undefined in all of these worlds" in found.sentences()
    fogged = [GridWorld(grid=trained(1)[0].grid, fog_radius=2)]
    assert "fog" in next(iter(separability(load_hypotheses("grids"), fogged, horizon=lambda _: 9).undefined["goal"]))


def test_a_noisier_agent_tells_less() -> None:
    worlds = Study.parse(
        {"worlds": [{"kind": "grid", "sizes": [7], "densities": [0.6], "count": 10}], "agents": [{"kind": "random"}]}
    ).worlds()
    bank = load_hypotheses("goal;corner top-right")
    nats = [separability(bank, worlds, horizon=lambda _: 12, lapse=lapse).mean[0, 1] for lapse in (0.05, 0.2, 0.8)]
    assert nats[0] > nats[1] > nats[2] > 0


@pytest.mark.parametrize(
    ("text", "options", "fact"),
    [("goal", {}, "hypotheses"), ("grids", {"lapse": 0.0}, "lapse"), ("grids", {"level": 2.0}, "level")],
)
def test_wrong_uses_are_refused(text: str, options: dict[str, float], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        separability(load_hypotheses(text), trained(1), horizon=lambda _: 9, **options)
    with pytest.raises(Undefined):
        parse("key").solved(finite_world(trained(1)[0], 9))


def test_sentences_say_each_thing_once() -> None:
    found = separability(load_hypotheses("grids;key;door"), trained(8), horizon=lambda _: 9)
    sentences = found.sentences()
    assert sentences[:2] == ["key: undefined in all of these worlds", "door: undefined in all of these worlds"]
    assert sum("key" in line for line in sentences) == 1
    assert sum("goal or corner top-right" in line for line in sentences) == 1


def test_a_chain_whose_ends_are_told_apart_is_no_set() -> None:
    wide = Grid.parse("\n".join(["#########", *["#_______#"] * 7, "#########"]))
    shifted = [GridWorld(grid=wide.at(start=(row, 2), goal=(7, 7))) for row in range(1, 8)]
    bank = load_hypotheses("goal;corner top-right;where the goal stood in phase trained [7x7 1 5]")
    found = separability(bank, [*trained(8), *shifted], horizon=lambda _: 12)
    assert found.apart[0, 1] >= 6
    old = "where the goal stood in phase trained [7x7 1 5]"
    assert found.same() == [("goal", old), ("corner top-right", old)]


def test_what_coincides_by_the_threshold_alone_says_so() -> None:
    found = separability(load_hypotheses("goal;beside goal"), trained(8), horizon=lambda _: 9, lapse=0.98)
    (sentence,) = found.sentences()
    assert found.mean[0, 1] > 0 and "0.1 nats" in sentence and "lapse rate 0.98" in sentence


@pytest.mark.parametrize(("horizon", "within"), [(4, (False, False)), (5, (False, True)), (7, (True, True))])
def test_a_world_is_within_reach_from_the_horizon_on_that_gains(horizon: int, within: tuple[bool, bool]) -> None:
    bank = load_hypotheses("goal;cell 4 4;random;corner top-right;key held")
    found = separability(bank, [open_room(walls=((0, 4),))], horizon=lambda _: horizon)
    assert found.within[0].tolist() == [*within, True, False, False]
    assert list(found.out_of_reach) == [name for name, reached in zip(bank, within, strict=False) if not reached]
    assert set(found.undefined) == {"corner top-right", "key held"}


def test_a_utility_that_every_policy_gains_is_out_of_reach() -> None:
    always = Hypothesis.of("event", lambda world: np.ones(world.process.states, dtype=bool), "always")
    costs = Hypothesis.of("utility", lambda world: -parse("cell 4 1").utility(world), "costs")
    found = separability({"always": always, "costs": costs}, [open_room()], horizon=lambda _: 6)
    assert found.within.tolist() == [[False, True]] and found.out_of_reach == {"always": 1}


def test_the_range_of_utilities_is_that_of_the_best_and_the_worst_policy() -> None:
    for seed in range(6):
        world = finite_world(lottery(np.random.default_rng(seed)), 7)
        utility = np.random.default_rng(seed).normal(size=(4, 3, 4))
        mdp = world.process.mdp(utility, 7, terminal=np.arange(4.0))
        low, high = utility_range(mdp)
        assert high == pytest.approx(float(mdp.start @ value_iteration(mdp).values[0]))
        assert low == pytest.approx(float(mdp.start @ value_iteration(mdp, minimise=True).values[0]))
