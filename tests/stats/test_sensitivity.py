"""How far single grids differ: enumeration of all exchanges, unbiasedness, laws, and what is undefined."""

import itertools
import math

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.stats import Sensitivity, sensitivity

SHARE = (0.0, 1.0)


def found(a: list[list[float]], b: list[list[float]], **more: object) -> Sensitivity:
    """Compare conditions given as one list of values a grid."""
    sides = [([v for grid in side for v in grid], [g for g, grid in enumerate(side) for _ in grid]) for side in (a, b)]
    settings: dict[str, object] = {"unit": "share", "bounds": SHARE, "rng": stream(0, "test"), **more}
    return sensitivity(sides[0][0], sides[0][1], sides[1][0], sides[1][1], **settings)  # type: ignore[arg-type]


def enumerated_p(a: list[list[float]], b: list[list[float]]) -> float:
    """Go through all ways to deal each grid's values out to the two conditions."""

    def squares(one: list[float], other: list[float]) -> list[float]:
        pooled, found = one + other, []
        for chosen in itertools.combinations(range(len(pooled)), len(one)):
            left = [pooled[i] for i in range(len(pooled)) if i not in chosen]
            found.append(float(np.mean([pooled[i] for i in chosen]) - np.mean(left)) ** 2)
        return found

    seen = sum((np.mean(one) - np.mean(other)) ** 2 for one, other in zip(a, b, strict=True))
    sums = [sum(parts) for parts in itertools.product(*(squares(one, two) for one, two in zip(a, b, strict=True)))]
    return float(np.mean(np.array(sums) >= seen - 1e-9))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([[1, 1, 1], [0, 0, 1]], [[0, 0, 1], [1, 1, 1]]),
        ([[1, 1, 0], [0, 0]], [[0, 0, 1], [1, 1, 0]]),
        ([[0.1, 0.5, 0.9], [0.2, 0.3, 0.8]], [[0.4, 0.6, 0.65], [0.9, 0.95, 1.0]]),
        ([[0.5, 0.75, 0.75]], [[0.25, 0.5, 0.25]]),
    ],
)
def test_p_is_that_of_all_exchanges(a: list[list[float]], b: list[list[float]]) -> None:
    exact, draws = enumerated_p(a, b), 20_000
    observed = found(a, b, draws=draws).p_value
    assert abs(observed - exact) < 4 * math.sqrt(exact * (1 - exact) / draws) + 1 / draws


def test_the_squared_difference_by_hand() -> None:
    # Means 2/3 and 0, variances 1/3 and 0: (2/3)^2 - (1/3) / 3 = 1/3.
    one = found([[1, 1, 0]] * 2, [[0, 0, 0]] * 2)
    assert one.square.value == pytest.approx(1 / 3)
    assert one.value == pytest.approx(math.sqrt(1 / 3))


def test_differences_that_cancel_in_the_mean_are_seen_and_noise_is_none() -> None:
    rng = np.random.default_rng(0)
    chance = rng.choice([0.2, 0.8], 60)
    a = [rng.binomial(1, c, 10).tolist() for c in chance]
    mirrored = [rng.binomial(1, 1 - c, 10).tolist() for c in chance]
    same = [rng.binomial(1, c, 10).tolist() for c in chance]
    cancelling = found(a, mirrored)
    assert abs(np.mean([np.mean(x) - np.mean(y) for x, y in zip(a, mirrored, strict=True)])) < 0.2
    assert cancelling.p_value == 1 / 2000
    assert cancelling.low < 0.6 < cancelling.high
    assert found(a, same).p_value > 0.05
    assert found(a, same).low == 0


def test_the_mean_square_is_unbiased() -> None:
    rng = np.random.default_rng(1)
    true = rng.normal(0, 0.1, 4000)
    a = [rng.normal(t, 0.5, 3).tolist() for t in true]
    b = [rng.normal(0, 0.5, 4).tolist() for _ in true]
    square = found(a, b, bounds=(-math.inf, math.inf), draws=1).square
    assert square.low < 0.01 < square.high
    assert square.high - square.low < 0.02


def test_order_does_not_matter_and_the_same_stream_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((6, 4)).round(1), rng.random((6, 4)).round(1)
    grids = np.repeat(np.arange(6), 4)
    order = rng.permutation(24)
    sides = (a.ravel(), grids, b.ravel(), grids)
    mixed = (a.ravel()[order], grids[order], b.ravel(), grids)
    one, other = (
        sensitivity(*given, unit="share", bounds=SHARE, rng=stream(5, "x"), draws=99) for given in (sides, mixed)
    )
    assert one == other


def test_what_is_undefined_says_so() -> None:
    single = found([[1.0], [0.0]], [[1.0], [1.0]])
    assert math.isnan(single.value) and math.isnan(single.p_value)
    assert "no cluster has two values" in single.note
    partly = found([[1.0, 0.0], [0.0]], [[1.0, 1.0], [1.0]])
    assert "1 of 2 clusters without two values" in partly.note
    assert math.isnan(partly.low) and partly.value == 0
    equal = found([[1.0, 1.0]] * 5, [[1.0, 1.0]] * 5)
    assert equal.p_value == 1 and "nothing to exchange" in equal.note
    assert equal.value == 0 and equal.high > 0.5  # five grids say little
    assert math.isnan(found([[math.nan, 1.0]], [[1.0, 1.0]]).value)


def test_only_values_that_enter_are_counted() -> None:
    assert found([[1.0, 0.0], [1.0]], [[0.0, 0.0, 1.0], [0.0]]).counts == (2, 3)
    assert found([[1.0]], [[0.0]]).counts == (0, 0)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="values_a"):
        found([[math.inf, 1.0]], [[1.0, 1.0]])
    with pytest.raises(ValueError, match="draw"):
        found([[0.0, 1.0]], [[1.0, 1.0]], draws=0)
    with pytest.raises(ValueError, match="values_a"):
        sensitivity([1.0], [1, 2], [1.0], [1], unit="share", rng=stream(0, "x"))
