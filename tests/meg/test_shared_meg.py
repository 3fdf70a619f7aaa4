"""One rationality over several worlds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meg_worlds import random_policy, random_world
from scipy.optimize import minimize_scalar

from goalscope._ground.rng import stream
from goalscope.meg import RationalityCurve, SharedCurve
from goalscope.worlds.planning import TabularMDP


def random_curves(seed: int, count: int) -> list[RationalityCurve]:
    rng = stream(seed, "curves")
    shapes = rng.integers(2, 5, size=(count, 3))
    return [
        RationalityCurve(TabularMDP(**random_world(seed + i, int(s), min(int(a), 3), int(n), "S A", False, i % 2 == 0)))
        for i, (s, a, n) in enumerate(shapes)
    ]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_it_is_the_supremum_of_the_mean(seed: int, count: int) -> None:
    curves = random_curves(seed, count)
    utilities = [curve.utility_of(random_policy(curve.mdp, seed)) for curve in curves]
    weights = stream(seed, "weights").integers(0, 3, size=count) + np.eye(count)[0]
    shared = SharedCurve(curves)
    found = shared.meg(utilities, weights)

    def negative(beta: float) -> float:
        terms = [beta * u - c.at(beta).log_normaliser for c, u in zip(curves, utilities, strict=True)]
        return -float(np.dot(terms, weights)) / float(weights.sum())

    if math.isfinite(found.beta):
        assert found.value == pytest.approx(-negative(found.beta), abs=1e-9)
        oracle = minimize_scalar(negative, bounds=(found.beta - 3, found.beta + 3), method="bounded")
        assert found.value >= -float(oracle.fun) - 1e-9
        assert found.value == pytest.approx(float(np.dot(found.terms, weights)) / weights.sum(), abs=1e-12)
        assert shared.terms(found.beta, utilities) == pytest.approx(found.terms, abs=1e-9)
    repeated = [i for i, weight in enumerate(weights) for _ in range(int(weight))]
    other = SharedCurve([curves[i] for i in repeated]).meg([utilities[i] for i in repeated])
    assert other.value == pytest.approx(found.value, abs=1e-9)
    alone = [curve.meg(u).value for curve, u in zip(curves, utilities, strict=True)]
    assert found.value <= np.dot(alone, weights) / weights.sum() + 1e-9  # per-world suprema are never smaller


def test_one_world_is_the_world_itself() -> None:
    curve = random_curves(4, 1)[0]
    utility = curve.utility_of(random_policy(curve.mdp, 1))
    assert SharedCurve([curve]).meg([utility]).value == pytest.approx(curve.meg(utility).value, abs=1e-11)


def test_optimal_everywhere_is_the_mean_bound_and_optimal_once_is_not() -> None:
    curves = random_curves(7, 3)
    best = SharedCurve(curves).meg([curve.highest for curve in curves])
    assert best.beta == math.inf and best.value == pytest.approx(np.mean([curve.bound for curve in curves]))
    assert best.value == best.bound and best.signed == best.value
    worst = SharedCurve(curves).meg([curve.lowest for curve in curves])
    assert worst.beta == -math.inf and worst.signed == -worst.value
    mixed = [curves[0].highest, curves[1].uniform, curves[2].uniform]
    found = SharedCurve(curves).meg(mixed)
    assert math.isfinite(found.beta) and found.value < curves[0].bound / 3
    assert SharedCurve(curves).terms(math.inf, mixed).tolist() == [curves[0].bound, -math.inf, -math.inf]


def test_worlds_without_influence_and_the_uniform_agent() -> None:
    idle = RationalityCurve(
        TabularMDP.deterministic(np.array([[0, 0]]), utility=np.array([2.0]), horizon=3, start=np.array([1.0]))
    )
    assert SharedCurve([idle, idle]).meg([6.0, 6.0]).value == 0.0
    curves = [*random_curves(9, 3), idle]
    found = SharedCurve(curves).meg([curve.uniform for curve in curves])
    assert found.value == 0.0 and found.beta == 0.0 and not found.terms.any()


def test_a_random_agents_mean_of_suprema_is_biased_and_the_shared_figure_is_not() -> None:
    """The bias that the spec warns of: 60 worlds, ten sampled returns each, an agent that acts at random."""
    successor = np.array([[0, 1], [1, 1]])
    curve = RationalityCurve(
        TabularMDP.deterministic(successor, utility=np.array([0.0, 1.0]), horizon=6, start=np.array([1.0, 0.0]))
    )
    waits = stream(8, "random agent").geometric(0.5, size=(60, 10))
    means = np.maximum(6.0 - waits, 0.0).mean(axis=1)
    each = float(np.mean([curve.meg(mean).value for mean in means]))
    together = SharedCurve([curve] * 60).meg(means).value
    assert each > 0.03 and together < each / 10


def test_errors() -> None:
    curves = random_curves(1, 2)
    with pytest.raises(ValueError, match="world"):
        SharedCurve([]).meg([])
    with pytest.raises(ValueError, match=r"utilities.*\[G\].*G = 2"):
        SharedCurve(curves).meg([1.0])
    with pytest.raises(ValueError, match="finite"):
        SharedCurve(curves).meg([1.0, math.nan])
    with pytest.raises(ValueError, match=r"weights.*>= 0"):
        SharedCurve(curves).meg([0.0, 0.0], [1.0, -1.0])
    with pytest.raises(ValueError, match="sum of 0"):
        SharedCurve(curves).meg([0.0, 0.0], [0.0, 0.0])
