"""Single uniform numbers: reproducible, uniform, and independent of the stream of the same names."""

import numpy as np
import pytest

from goalscope._ground.rng import stream, uniform
from goalscope.agents import Observation
from goalscope.worlds import Grid, GridView


def test_draws_are_uniform_and_independent_of_streams() -> None:
    drawn = np.array([uniform(3, "turn", name) for name in range(20000)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.bincount((drawn * 20).astype(int), minlength=20)
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8, "chi-squared with 19 degrees of freedom, p = 0.001"
    streams = np.array([stream(3, "turn", name).random() for name in range(2000)])
    assert abs(np.corrcoef(drawn[:2000], streams)[0, 1]) < 0.08


def test_draws_belong_to_their_names() -> None:
    assert uniform(0, "a", 1) == uniform(0, "a", 1)
    assert len({uniform(0, "a", 1), uniform(0, "a", 2), uniform(0, "b", 1), uniform(1, "a", 1)}) == 4
    seen = Observation(view=GridView(grid=Grid.parse(["A_G"])), episode_id="e", step=2, seed=4)
    assert seen.uniform() == uniform(4, "turn", "e", 2, 0)
    assert seen.uniform("forget") != seen.uniform()
    with pytest.raises(ValueError, match="name"):
        uniform(0)
