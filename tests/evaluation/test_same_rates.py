"""Wrong answers of the questions about wordings and runs of errors, counted over a thousand simulated studies."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from goalscope._ground.rng import stream
from goalscope.stats.rows import Rows
from goalscope.verdict import aims
from goalscope.verdict.evidence import ArmData, Evidence
from goalscope.verdict.rules import level

STUDIES = 1000
pytestmark = pytest.mark.full


def at_most(share: float) -> int:
    """The 99.9 % point of the number of studies with an answer of this chance."""
    return int(binom.ppf(0.999, STUDIES, share))


def in_seven_wordings(number: int, *, grids: int, fails: float) -> str:
    """Answer of one study: under the last of seven wordings a share of all grids fails wholly, the rest is equal."""
    rng = stream(5, "wordings", number, grids, fails)
    chance = rng.beta(9, 1, grids)
    names = [None, *(f"wording {index}" for index in range(7))]
    values = [rng.binomial(10, chance) / 10 for _ in names]
    values[-1] = np.where(rng.random(grids) < fails, 0.0, values[-1])
    rows = Rows.from_columns(
        measure="action accuracy",
        unit="share",
        value=np.concatenate(values),
        cluster=[f"g{index}" for _ in names for index in range(grids)],
        tags={"agent": "a", "wording": [name for name in names for _ in range(grids)]},
    )
    run: Any = SimpleNamespace(confidence=1 - level(1))
    return ArmData(run=run, agent="a", rows=rows).same_under("wording", "usual", "action accuracy").side or ""


@pytest.mark.parametrize("grids", [30, 60])
def test_a_wording_that_breaks_grids_is_rarely_called_the_same(grids: int) -> None:
    # Where a ninth of all grids fails, of which nine turns in ten were right, accuracy falls by the margin of .1.
    for fails in (1 / 9, 0.3):
        said = [in_seven_wordings(number, grids=grids, fails=fails) for number in range(STUDIES)]
        assert said.count("yes") <= at_most(0.05), (fails, said.count("yes"))


@pytest.mark.parametrize("grids", [30, 60])
def test_wordings_that_change_little_are_rarely_called_different(grids: int) -> None:
    for fails in (0.0, 1 / 9):
        said = [in_seven_wordings(number, grids=grids, fails=fails) for number in range(STUDIES)]
        assert said.count("no") <= at_most(0.05), (fails, said.count("no"))


def errors_of(number: int, *, grids: int, lapse: float) -> Evidence:
    """The evidence on runs of errors: worlds of unequal difficulty, blocks of five random turns with a chance."""
    rng = stream(6, "lapses", number, grids, lapse)
    turns = rng.integers(8, 20, grids)
    hard = rng.beta(0.6, 1.4, grids)
    wrong = []
    for count, slip in zip(turns, hard, strict=True):
        away = np.repeat(rng.random(4) < lapse, 5)[:count]
        wrong.append(rng.random(count) < np.where(away, 0.6, slip if not lapse else 0.02))
    errors = np.concatenate(wrong)
    episode = np.repeat(np.arange(grids), turns)
    table = SimpleNamespace(
        optimal=np.ones((len(errors), 4), dtype=bool),
        is_optimal=~errors,
        agent=np.array(["a"] * grids, dtype=object),
        episode=episode,
        cluster=np.array([f"g{index}" for index in range(grids)], dtype=object),
    )
    run: Any = SimpleNamespace(confidence=1 - level(1), table=table)
    rows: Any = None
    return aims.lapses(ArmData(run=run, agent="a", rows=rows))


@pytest.mark.parametrize("grids", [54, 234])
def test_worlds_of_unequal_difficulty_are_rarely_called_lapses(grids: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aims, "is_after_goal", lambda *_: {"": SimpleNamespace(side="yes")})
    found = [errors_of(number, grids=grids, lapse=0.0).estimate for number in range(STUDIES)]
    assert sum(one is not None and one.low > 0.2 for one in found) <= at_most(0.05)
    bursts = [errors_of(number, grids=grids, lapse=0.3).estimate for number in range(STUDIES)]
    missed = sum(one is not None and one.high < 0.2 for one in bursts)
    assert missed <= at_most(0.05)
    assert grids < 200 or sum(one is not None and one.low > 0.2 for one in bursts) > 0.9 * STUDIES
