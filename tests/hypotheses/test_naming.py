"""Errors that repeat are told from another aim, and a part of the behaviour is named with where it is."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from planted_answers import (
    SPLITS,
    Agent,
    Planted,
    beside_goal,
    erring,
    follow,
    from_turn,
    stopping,
    until_blocked,
    where,
)
from scipy.stats import binom

from families import long_after
from goalscope.goals.finding import BehaviourPart
from goalscope.goals.hypotheses import FiniteWorld, finite_world, parse
from goalscope.goals.hypotheses.errors import PATTERN, error_pattern, first_visits, rates
from goalscope.organisms.families import Placed, worlds_of
from goalscope.runs import Study


@cache
def planted(seed: int, count: int) -> Planted:
    return Planted(seed, count)


def within(steps: int) -> Agent:
    return where(lambda world: world.steps_to(parse("goal").where(world)) <= steps, "goal")


def right_of_it() -> Agent:
    return where(lambda world: world.further(world.grid.goal)[:, 1] > 0, "goal")


def goal_in_half(world: object, rng: np.random.Generator) -> np.ndarray:
    return follow("goal" if rng.random() < 0.5 else "near centre", world)[None]  # type: ignore[arg-type]


def to_column(column: int) -> Agent:
    """Return an agent that goes to the nearest cell of a column, found by a search of its own, and stays there."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> np.ndarray:
        after = world.process.transitions
        steps = np.where(np.arange(len(after)) % world.grid.width == column % world.grid.width, 0, 10**6)
        solid = world.grid.walls.ravel() | (
            np.arange(len(after)) == np.ravel_multi_index(world.grid.goal, world.grid.walls.shape)
        )
        steps = np.where(solid, 10**6, steps)
        for _ in range(len(after)):
            steps = np.where(solid, 10**6, np.minimum(steps, steps[after].min(axis=1) + 1))
        near = steps[after] == steps[after].min(axis=1, keepdims=True)
        return (near / near.sum(axis=1, keepdims=True))[None]

    return act


def to_and_fro(first: str, second: str, moves: int) -> Agent:
    """Return an agent that makes some moves towards one place, as many towards another, and so on."""
    return lambda world, rng: np.stack(
        [follow((first, second)[turn // moves % 2], world) for turn in range(world.horizon)]
    )


NEVER_WHOLE: dict[str, Agent] = {
    "beside it": beside_goal(0, 1),
    "stops one step before": stopping(1),
    "right until blocked": until_blocked([3, 1, 0, 2]),
    "half of the worlds": goal_in_half,
    "at random": lambda world, rng: world.even[None],
    "a fixed move for each state": lambda world, rng: np.eye(4)[rng.integers(0, 4, len(world.even))][None],
    "two below it": beside_goal(2, 0),
    "one diagonally": beside_goal(1, 1),
    "stops three steps before": stopping(3),
    "up until blocked": until_blocked([0, 2, 3, 1]),
    "paces between goal and start": to_and_fro("goal", "start", 2),
}
"""Agents that pursue none of the hypotheses, whatever their moves have in common with those towards the goal."""


@pytest.mark.parametrize(("fixed", "random"), SPLITS)
def test_both_rates_follow_from_two_answers(fixed: float, random: float) -> None:
    rng = np.random.default_rng(0)
    right = rng.random(200_000) >= fixed
    first, second = (right * (rng.random(200_000) >= random) for _ in range(2))
    found = rates((first.sum() + second.sum()) / 2, (first * second).sum(), np.array(200_000.0))
    np.testing.assert_allclose(found, (fixed, random), atol=0.01)


@pytest.mark.parametrize(("fixed", "random"), [(0.0, 0.3), (0.3, 0.0), (0.2, 0.1)])
def test_fixed_and_random_errors_are_named_alike(fixed: float, random: float) -> None:
    verdict = planted(2, 7).verdict(erring("goal", fixed, random))
    assert (verdict.kind, verdict.names) == ("named", ("goal",))
    assert verdict.errors is not None
    found = [rate[0] for rate in verdict.errors]
    np.testing.assert_allclose(found, (fixed, random), atol=0.1)
    assert all(low <= value <= high for value, low, high in verdict.errors)


@pytest.mark.full
@pytest.mark.parametrize(("fixed", "random"), SPLITS)
def test_every_split_of_errors_is_named_alike_and_never_otherwise(fixed: float, random: float) -> None:
    verdicts = [planted(seed, 21).verdict(erring("goal", fixed, random)) for seed in range(20)]
    kinds = Counter((verdict.kind, verdict.names) for verdict in verdicts)
    wrong = {key for key in kinds if key[0] in ("named", "partly", "set") and "goal" not in key[1]}
    assert not wrong and kinds["none", ()] <= binom.ppf(0.999, 20, 0.01), "a misfit is found at the level of .01"
    assert kinds["named", ("goal",)] >= 18, kinds
    errors = np.array([[rate[0] for rate in verdict.errors] for verdict in verdicts if verdict.errors])
    np.testing.assert_allclose(errors.mean(axis=0), (fixed, random), atol=0.1)


@pytest.mark.parametrize("name", long_after(6, NEVER_WHOLE))
def test_who_comes_near_it_is_not_named_after_it(name: str) -> None:
    verdict = planted(0, 3).verdict(NEVER_WHOLE[name])
    assert not (verdict.kind in ("named", "partly", "set") and "goal" in verdict.names), verdict.sentence()


FETCHING = "key if not key held, else goal"


@cache
def with_keys(placed: Placed) -> Planted:
    """Worlds with keys, which lie on the way to the goal where "together"."""
    return Planted(0, 0, worlds=worlds_of("key first", placed, "ordinary", 24, 5))


def test_who_fetches_a_key_on_the_way_is_not_named_after_the_goal_alone() -> None:
    for rule in ("goal", FETCHING):
        verdict = with_keys("together").verdict(erring(rule, 0.0, 0.05))
        assert verdict.names == ("goal",) and FETCHING in verdict.alike, rule
    apart = with_keys("apart").verdict(erring("goal", 0.0, 0.05))
    assert (apart.kind, apart.names) == ("named", ("goal",)) and FETCHING not in apart.alike
    assert with_keys("apart").verdict(erring(FETCHING, 0.0, 0.05)).kind not in ("named", "set")


PACING: dict[str, Agent] = {
    "two corners in turn": to_and_fro("corner bottom-right", "corner top-left", 1),
    "two corners by two moves": to_and_fro("corner bottom-right", "corner top-left", 2),
    "the left column": to_column(1),
}
"""Agents that follow the way to a corner again and again, or to the line on which it lies."""


@pytest.mark.parametrize("name", long_after(1, PACING))
def test_who_paces_or_goes_to_a_line_follows_no_corner_in_a_part(name: str) -> None:
    for seed in (200, 204):
        verdict = planted(seed, 3).verdict(PACING[name])
        assert verdict.kind not in ("named", "partly"), verdict.sentence()


def straight_where_open(text: str) -> Agent:
    """Return an agent that sees its neighbouring walls alone, and takes the open moves that bring it nearer."""

    def act(world: FiniteWorld, rng: np.random.Generator) -> np.ndarray:
        states, after = np.arange(world.process.states), world.process.transitions
        rows, cols = np.unravel_index(states, world.grid.walls.shape)
        row, col = parse(text).cell(world)
        away = np.abs(rows - row) + np.abs(cols - col)
        nearer, opens = away[after] < away[:, None], after != states[:, None]
        moves = np.where(nearer.any(axis=1, keepdims=True), nearer, opens | ~opens.any(axis=1, keepdims=True))
        return (moves / moves.sum(axis=1, keepdims=True))[None]

    return act


def close_by(steps: int, noise: float) -> Agent:
    """Return an agent that goes to the goal from nearby, and moves at random elsewhere and in some of its answers."""
    return lambda world, rng: (1 - noise) * within(steps)(world, rng) + noise / 4


@cache
def planted_within(steps: int, **where: str | int) -> Planted:
    """Plant agents in 30 worlds of one size and density in which the goal is at most some steps away."""
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 120, **where}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 31, "horizon": {"factor": 2.0}})
    worlds = [finite_world(world, study.horizon.of(world)) for world in study.worlds()]
    near = [w for w in worlds if w.steps_to(parse("goal").where(w))[w.process.start.argmax()] <= steps]
    return Planted(31, 0, worlds=near[:30])


@pytest.mark.parametrize("place", ["goal", "corner top-right"])
def test_who_sees_the_next_walls_alone_is_not_said_to_know_the_way(place: str) -> None:
    verdict = planted_within(99, goal="top-right", apart=2).verdict(straight_where_open(place))
    assert verdict.kind == "none" and f"towards {place} by open moves" in verdict.explained_by, verdict.sentence()
    knows = planted_within(99, goal="top-right", apart=2).verdict(erring(place, 0.0, 0.1))
    assert (knows.kind, set(knows.names)) == ("set", {"goal", "corner top-right"}), knows.sentence()


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_who_goes_to_the_goal_from_nearby_alone_is_not_said_to_go_there_from_everywhere(noise: float) -> None:
    worlds = planted_within(5, goal="anywhere", start="anywhere", apart=1)
    for agent in (close_by(5, noise), erring("goal", 0.0, noise)):  # these worlds cannot tell one from the other
        verdict = worlds.verdict(agent)
        assert (verdict.kind, verdict.names) == ("named", ("goal",)), verdict.sentence()
        assert "goal within 5 steps" in verdict.alike


@pytest.mark.full
@pytest.mark.parametrize("name", NEVER_WHOLE)
def test_who_comes_near_it_is_not_named_after_it_in_other_worlds(name: str) -> None:
    for count, seeds in ((3, range(1, 21)), (7, range(1, 9))):
        verdicts = [planted(seed, count).verdict(NEVER_WHOLE[name]) for seed in seeds]
        named = [v.sentence() for v in verdicts if v.kind in ("named", "partly", "set") and "goal" in v.names]
        assert len(named) <= 1, named


@pytest.mark.parametrize(
    ("agent", "part"),
    long_after(
        3,
        [
            (from_turn("goal", 3), BehaviourPart(kind="from turn", limit=3)),
            (within(5), BehaviourPart(kind="within steps", limit=5)),
            (right_of_it(), BehaviourPart(kind="side", side="to the right")),
            (from_turn("goal", 5), BehaviourPart(kind="from turn", limit=5)),
            (from_turn("goal", 4, before="keep right"), BehaviourPart(kind="from turn", limit=4)),
        ],
        names=2,
    ),
)
def test_a_part_is_named_with_where_it_is(agent: Agent, part: BehaviourPart) -> None:
    verdict = planted(0, 7).verdict(agent)
    assert (verdict.kind, verdict.names) == ("partly", ("goal",)) and verdict.part is not None
    found = verdict.part
    assert (found.kind, found.side) == (part.kind, part.side) and abs(found.limit - part.limit) <= 1
    assert verdict.elsewhere is not None and 0 < found.share < 1
    assert verdict.elsewhere[2] < verdict.score("goal").strength[0]


def test_independent_errors_have_no_pattern_and_those_of_a_neighbour_have_one() -> None:
    found = planted(0, 3)
    hypotheses = [*found.hypotheses.values()]
    chance = [
        error_pattern(found.answers(erring("goal", 0.2, 0.1)), found.predictions, hypotheses, 0, seed=seed).p
        for seed in range(3)
    ]
    assert min(chance) >= PATTERN  # the seed changes the simulated agents alone
    neighbour = error_pattern(found.answers(beside_goal(0, 1)), found.predictions, hypotheses, 0)
    assert neighbour.p < PATTERN and not neighbour.unforeseen


@pytest.mark.full
@pytest.mark.parametrize(("fixed", "random"), [(0.1, 0.0), (0.3, 0.0), (0.2, 0.2), (0.0, 0.3)])
def test_the_test_for_a_pattern_holds_its_level(fixed: float, random: float) -> None:
    rejected = 0
    for seed in range(40):
        found = planted(seed, 3)
        pattern = error_pattern(
            found.answers(erring("goal", fixed, random)), found.predictions, [*found.hypotheses.values()], 0
        )
        rejected += pattern.p < PATTERN
    assert rejected <= 6  # 99 % of binomial counts at 5 % of 40


def test_first_visits_hold_each_state_once_in_the_order_of_the_visits() -> None:
    for answers, visits in zip(
        found := planted(0, 3).answers(until_blocked([3, 1, 0, 2])), first_visits(found), strict=True
    ):
        seen = list(dict.fromkeys(answers.state.tolist()))
        assert visits.state.tolist() == seen
        assert visits.time.tolist() == [answers.state.tolist().index(state) for state in seen]
