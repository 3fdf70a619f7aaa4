"""Least squares over clusters: literal fits, deletions one by one, the interval of a mean, coverage."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from goalscope._ground.rng import stream
from goalscope.stats import indicators, regress


def drawn(seed: int, clusters: int = 9) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Rows of clusters of different sizes, with an effect of a slope and one of each cluster."""
    rng = stream(seed, "regression")
    labels = np.repeat(np.arange(clusters), rng.integers(1, 7, size=clusters))
    x = rng.normal(size=len(labels)) + rng.normal(size=clusters)[labels]
    y = 1.0 - 0.5 * x + 0.3 * rng.normal(size=clusters)[labels] + 0.1 * rng.normal(size=len(labels))
    return y, {"constant": np.ones(len(y)), "x": x}, labels


def literal(y: np.ndarray, columns: dict[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Weighted least squares by the solver of NumPy, each row with the root of one over its cluster's rows."""
    root = 1 / np.sqrt(np.bincount(labels)[labels])
    design = np.column_stack(list(columns.values()))
    return np.asarray(np.linalg.lstsq(root[:, None] * design, root * y, rcond=None)[0])


@pytest.mark.parametrize("seed", range(5))
def test_coefficients_and_their_covariance_are_those_of_fits_without_one_cluster_each(seed: int) -> None:
    y, columns, labels = drawn(seed)
    found = regress(y, columns, labels.tolist(), unit="share")
    assert found.values == pytest.approx(literal(y, columns, labels))
    count = len(set(labels.tolist()))
    changes = []
    for gone in range(count):
        kept = labels != gone
        part = {name: column[kept] for name, column in columns.items()}
        changes.append(literal(y[kept], part, np.unique(labels[kept], return_inverse=True)[1]) - found.values)
    wanted = (count - 1) / count * np.array(changes).T @ np.array(changes)
    assert found.covariance == pytest.approx(wanted) and found.clusters == count and found.n == len(y)


def test_a_constant_alone_has_the_t_interval_of_the_mean_of_clusters() -> None:
    y, _, labels = drawn(3)
    found = regress(y, {"mean": np.ones(len(y))}, labels.tolist(), unit="share").estimate({"mean": 1.0})
    means = [y[labels == one].mean() for one in np.unique(labels)]
    ends = reference.t.interval(0.95, len(means) - 1, loc=np.mean(means), scale=reference.sem(means))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(means), *ends))


def test_paired_rows_give_the_interval_of_the_paired_difference() -> None:
    rng = stream(1, "paired")
    first, second = rng.normal(size=12), rng.normal(size=12)
    names = ["a"] * 12 + ["b"] * 12
    fitted = regress(np.concatenate([first, second]), indicators(names), [*range(12)] * 2, unit="share")
    less = fitted.estimate({"a": 1.0, "b": -1.0})
    ends = reference.t.interval(0.95, 11, loc=(first - second).mean(), scale=reference.sem(first - second))
    assert (less.low, less.high) == pytest.approx(ends)


def test_what_cannot_be_estimated_is_refused_or_has_no_interval() -> None:
    ones = {"constant": np.ones(4)}
    with pytest.raises(ValueError, match="2 clusters"):
        regress([1, 2, 3, 4], ones, ["a"] * 4, unit="share")
    with pytest.raises(ValueError, match="depend"):
        regress([1, 2, 3, 4], {**ones, "twice": 2 * np.ones(4)}, list("abcd"), unit="share")
    with pytest.raises(ValueError, match="finite"):
        regress([1, 2, 3, 4], {"x": [1, 2, 3, math.nan]}, list("abcd"), unit="share")
    alike = regress([1, 1, 1, 1], ones, list("abcd"), unit="share")
    assert not alike.estimate({"constant": 1.0}).has_interval and alike.estimate({"constant": 1.0}).value == 1
    with pytest.raises(ValueError, match="constant"):
        alike.estimate({"slope": 1.0})
    lone = regress([1, 2, 3, 5], indicators(["a", "a", "a", "b"]), list("wxyz"), unit="share")
    assert not lone.estimate({"a": 1.0, "b": -1.0}).has_interval  # without its one cluster b has no value
    left_out = regress([1, 2, math.nan, 4], ones, list("abcd"), unit="share")
    assert left_out.n == left_out.clusters == 3


@pytest.mark.full
@pytest.mark.parametrize("clusters", [10, 30, 100])
def test_intervals_cover(clusters: int) -> None:
    runs = 1_500
    held = 0
    for seed in range(runs):
        y, columns, labels = drawn(1_000 + seed, clusters)
        found = regress(y, columns, labels.tolist(), unit="share").estimate({"x": 1.0})
        held += found.low <= -0.5 <= found.high
    assert 0.93 <= held / runs <= 0.985
