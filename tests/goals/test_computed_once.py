"""What is computed once, or faster, is what the plain way gives, to the last bit."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from goalscope.goals import curves
from goalscope.goals.curves import CurveBank, Curves
from goalscope.goals.hypotheses import FiniteWorld, finite_world, parse
from goalscope.goals.meg import RationalityCurve
from goalscope.goals.meg._fast import quintic_slope, rising_root
from goalscope.runs import Study
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.mdp import transposed


def worlds(horizon: int = 9) -> list[FiniteWorld]:
    """Four worlds that are made anew with each call."""
    entry = {"kind": "grid", "sizes": [5], "densities": [0.2], "count": 4}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 2})
    return [finite_world(world, horizon) for world in study.worlds()]


def curves_in(worlds_of_bank: list[FiniteWorld], rule: str = "goal", **options: Any) -> list[bytes]:
    """Return the curves that a new bank has of a hypothesis."""
    bank = CurveBank(**{"kind": "steps", "invalid": "no-op", "seed": 0, **options})
    keys = [bank.add(world, parse(rule).utility(world)) for world in worlds_of_bank]
    return [bank.curve(key).to_bytes() for key in keys]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the curves that are computed, from none."""
    counted, plain = Counter[str](), Curves.of

    def of(curve: RationalityCurve) -> Curves:
        counted["curves"] += 1
        return plain(curve)

    monkeypatch.setattr(curves, "_COMPUTED", {})
    monkeypatch.setattr(Curves, "of", of)
    return counted


def test_equal_worlds_of_two_banks_have_one_curve_which_is_that_of_the_process(passes: Counter[str]) -> None:
    first, again = curves_in(worlds()), curves_in(worlds())
    assert first == again and passes["curves"] == 4
    plain = [RationalityCurve(world.process.mdp(parse("goal").utility(world), 9, terminal=None)) for world in worlds()]
    assert first == [Curves.of(curve).to_bytes() for curve in plain]


@pytest.mark.parametrize(
    "other",
    [
        lambda: curves_in(worlds(horizon=8)),
        lambda: curves_in(worlds(), "corner bottom-left"),
        lambda: curves_in(worlds(), kind="arrival"),
        lambda: curves_in(worlds(), invalid="action"),
    ],
    ids=["horizon", "hypothesis", "utility", "turns without an action"],
)
def test_what_a_curve_depends_on_makes_another_one(other: Any, passes: Counter[str]) -> None:
    first = curves_in(worlds())
    found = other()
    assert passes["curves"] == 8 and all(one != two for one, two in zip(first, found, strict=True))


def test_the_number_of_kept_curves_is_bounded(passes: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "_MOST_COMPUTED", 2)
    assert curves_in(worlds()) == curves_in(worlds()) and passes["curves"] == 8
    assert len(curves._COMPUTED) == 2


@pytest.mark.parametrize("count", [1, 7, 300])
def test_roots_in_place_are_those_of_plain_bisection(count: int) -> None:
    rng = np.random.default_rng(count)
    shape, width, level = rng.normal(size=(6, count)), rng.uniform(0.1, 3, count), rng.normal(size=count)
    left, right = np.zeros(count), np.ones(count)
    for _ in range(34):
        middle = (left + right) / 2
        below = quintic_slope(shape, middle) / width < level
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    assert rising_root(shape, width, level, 34).tobytes() == ((left + right) / 2).tobytes()


def test_a_transpose_is_made_once() -> None:
    table = np.random.default_rng(1).dirichlet(np.ones(5), size=(5, 2))
    sparse = TabularMDP.sparse(
        np.argwhere(table > 0)[:, [0, 1, 2]],
        table[table > 0],
        actions=2,
        start=np.eye(5)[0],
        utility=np.zeros(5),
        horizon=1,
    ).transitions
    assert transposed(sparse) is transposed(sparse)
    assert (transposed(sparse).toarray() == sparse.toarray().T).all()
