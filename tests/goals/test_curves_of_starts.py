"""Curves of worlds that share their transitions come from one pass; they are those of each world alone."""

from typing import Any

import numpy as np
import pytest

from goalscope.goals.curves import Curves
from goalscope.goals.meg import RationalityCurve
from goalscope.worlds.planning import TabularMDP


def process(seed: int, *, chance: bool, offered: bool) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    states, actions = 9, 3
    table: Any = rng.dirichlet(np.full(states, 0.2), size=(states, actions))
    if not chance:
        table = rng.integers(states, size=(states, actions))
    mask = None
    if offered:
        mask = rng.random((states, actions)) < 0.7
        mask[:, 0] = True
    return {"transitions": table, "offered": mask}, rng.integers(0, 3, size=states).astype(float)


@pytest.mark.parametrize("chance", [False, True])
@pytest.mark.parametrize("offered", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_one_pass_gives_the_curve_of_each_start_and_horizon(seed: int, chance: bool, offered: bool) -> None:
    parts, utility = process(seed, chance=chance, offered=offered)
    rng = np.random.default_rng(100 + seed)
    starts = [np.eye(9)[state] for state in rng.permutation(9)[:4]] + [rng.dirichlet(np.ones(9))]
    horizons = [1, 4, 4, 7, 9]
    longest = TabularMDP(**parts, utility=utility, horizon=9, start=np.mean(starts, axis=0))
    together = Curves.of_starts(longest, starts, horizons)
    for start, horizon, found in zip(starts, horizons, together, strict=True):
        alone = Curves.of(RationalityCurve(TabularMDP(**parts, utility=utility, horizon=horizon, start=start)))
        assert found.uniform == pytest.approx(alone.uniform, abs=1e-10)
        assert found.ends == pytest.approx(alone.ends, abs=1e-8)
        assert found.values == pytest.approx(alone.values, abs=1e-7, rel=1e-7)


def test_a_discount_is_refused() -> None:
    parts, utility = process(1, chance=True, offered=False)
    longest = TabularMDP(**parts, utility=utility, horizon=5, start=np.ones(9) / 9, discount=0.9)
    with pytest.raises(ValueError, match="discount"):
        Curves.of_starts(longest, [np.eye(9)[0]], [3])
