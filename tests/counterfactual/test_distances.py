"""Distances of distributions of moves: exact ones against enumeration, estimates without bias, bounds that hold."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope.agents import build_agent
from goalscope.agents.agent import Observation
from goalscope.goals.counterfactual.dependence import (
    CHANGE,
    PREDICTABLE,
    VARIATION,
    WorldTurns,
    asked_of,
    distances,
    estimated,
    exact,
    rows_of,
)
from goalscope.goals.counterfactual.worlds import MOVED, NOTHING, ChangedWorld
from goalscope.runs import Study
from goalscope.runs.record import Episode, EpisodeSpec, Step


def by_enumeration(first: Any, second: Any, answers: tuple[int, int]) -> tuple[float, float]:
    """Return the expectations of both estimates over all tuples of answers."""
    moves, total = len(first), np.zeros(2)
    for drawn in product(range(moves), repeat=sum(answers)):
        before, after = drawn[: answers[0]], drawn[answers[0] :]
        chance = math.prod([first[x] for x in before]) * math.prod([second[y] for y in after])
        counts = [np.bincount(side, minlength=moves).astype(float) for side in (before, after)]
        total += chance * np.array(estimated(counts[0], counts[1]))
    return float(total[0]), float(total[1])


@pytest.mark.parametrize("answers", long_after(1, [(2, 2), (3, 2), (2, 4)]))
@pytest.mark.parametrize("moves", [2, 4])
def test_estimates_have_no_bias(moves: int, answers: tuple[int, int]) -> None:
    rng = np.random.default_rng(moves)
    for _ in range(4):
        first, second = rng.dirichlet(np.full(moves, 0.6), size=2)
        for other in (second, first):
            change, predictable, _ = exact(first, other)
            assert by_enumeration(first, other, answers) == pytest.approx((change, predictable), abs=1e-9)


def test_two_answers_a_side_are_the_formula_of_four() -> None:
    for x1, x2, y1, y2 in product(range(3), repeat=4):
        counts = [np.bincount(side, minlength=3).astype(float) for side in ((x1, x2), (y1, y2))]
        across = np.mean([x != y for x in (x1, x2) for y in (y1, y2)])
        expected = across - ((x1 != x2) + (y1 != y2)) / 2
        assert estimated(counts[0], counts[1])[0] == pytest.approx(expected, abs=1e-12)
    assert estimated(np.array([1.0, 1.0]), np.array([1.0, 1.0]))[0] < 0, "it may be negative"


def test_the_bounds_between_change_and_total_variation_hold() -> None:
    rng = np.random.default_rng(5)
    for moves in (2, 3, 4, 7):
        for concentration in (0.05, 0.5, 5.0):
            for first, second in rng.dirichlet(np.full(moves, concentration), size=(200, 2)):
                change, _, variation = exact(first, second)
                assert variation**2 - 1e-12 <= moves * change / 2 + 1e-12 and change <= variation**2 + 1e-12
    assert exact(np.eye(4)[0], np.eye(4)[1]) == (1.0, 0.75, 1.0)


def test_exact_distances_of_tabular_policies_are_those_of_their_trajectories() -> None:
    """Planted policies in random worlds; the chances of answers come from enumerated pairs of turns."""
    entry = {"kind": "grid", "sizes": [5, 7], "densities": [0.3, 0.9], "count": 4, "minimum_distance": 2}
    study = Study.parse({"worlds": [{"kind": "changed", "of": [entry]}], "agents": [{"kind": "random"}], "seed": 3})
    worlds = [world for world in study.worlds() if isinstance(world, ChangedWorld)]
    originals = {world.original: world for world in worlds if world.moved == NOTHING}
    agents = [
        build_agent("hypothesis", {"hypothesis": text, "lapse": 0.2}) for text in ("goal", "flee goal", "near centre")
    ] + [build_agent("epsilon-greedy", {"epsilon": 0.4}), build_agent("wrong-goal", {})]

    def policy(agent: Any, world: ChangedWorld) -> Any:
        observation = Observation(view=world.begin().view, world=world)
        return np.asarray(agent.probabilities(observation))

    met = 0
    for agent, world in product(agents, worlds):
        first, second = policy(agent, originals[world.original]), policy(agent, world)
        alike = [[p * q for p, q in product(*both)] for both in product((first, second), repeat=2)]
        same = [sum(chances[:: len(first) + 1]) for chances in alike]  # of equal moves: xx, xy, yx, yy
        variation = max(sum(first[list(some)]) - sum(second[list(some)]) for some in subsets(len(first)))
        expected = ((same[0] + same[3]) / 2 - same[1], (same[0] + same[3]) / 2 - 1 / len(first), variation)
        assert exact(first, second) == pytest.approx(expected, abs=1e-9)
        met += world.moved != NOTHING and expected[2] > 0
    assert met > 100


def subsets(size: int) -> list[list[int]]:
    return [[move for move in range(size) if bits >> move & 1] for bits in range(2**size)]


def test_policies_that_are_told_take_the_place_of_answers() -> None:
    told = WorldTurns(counts=np.array([2.0, 0, 0, 0]), policy=np.array([0.7, 0.3, 0, 0]))
    other = WorldTurns(counts=np.array([2.0, 0, 0, 0]), policy=np.array([0.2, 0.8, 0, 0]))
    assert distances(told, other) == pytest.approx((0.25, 0.63 - 0.25, 0.5))
    change, predictable, variation = distances(told, WorldTurns(counts=np.array([2.0, 0, 0, 0])))
    assert (change, predictable) == (0.0, 0.75) and math.isnan(variation)


def played(world: ChangedWorld, actions: list[int | None], **extra: Any) -> list[Episode]:
    """Return episodes of one turn each."""
    found = []
    for trajectory, action in enumerate(actions):
        spec = EpisodeSpec(world_id=world.id, agent_id="agent-1", trajectory=trajectory, seed=0, horizon=1)
        failure = "no JSON" if action is None else None
        step = Step(index=0, state=world.begin().state, action=action, failure=failure, extra=extra)
        parts: dict[str, Any] = {"final": step.state, "outcome": "horizon"}
        found.append(Episode(spec=spec, world=world, agent="one", steps=(step,), **parts))
    return found


def test_answers_without_a_move_are_left_out_and_counted() -> None:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 1, "minimum_distance": 3}
    changed = {"kind": "changed", "of": [entry], "moved": ["goal"]}
    study = Study.parse({"worlds": [changed], "agents": [{"kind": "random"}]})
    original, one, other = [world for world in study.worlds() if isinstance(world, ChangedWorld)]
    episodes = played(original, [0, None, 1]) + played(one, [1, 1, None]) + played(other, [None, 2, None])
    asked = asked_of(episodes)
    rows = rows_of(asked)
    assert len(rows) == 2 and set(rows.measure.tolist()) == {CHANGE, PREDICTABLE}, "the other version has one move"
    assert rows.select(measure=CHANGE).value.tolist() == [0.5 - 0.5] and set(rows[MOVED].tolist()) == {"goal"}
    assert set(rows.cluster.tolist()) == {original.cluster_id} and set(rows["agent"].tolist()) == {"one"}
    [state] = asked["one"]
    assert [state.side.invalid, *(side.invalid for side in state.changed["goal"])] == [1, 1, 2]
    told = rows_of(asked_of(played(original, [0], policy=[1, 0, 0, 0]) + played(one, [1], policy=[0, 1, 0, 0])))
    assert told.select(measure=VARIATION).value.tolist() == [1.0]
