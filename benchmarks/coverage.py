"""Print how often the intervals of goalscope.stats cover, by simulation.

Run ``python benchmarks/coverage.py`` (minutes), or ``--repeats 200`` for a quick look. Each cell has a random stream of
its own, so the numbers are the same wherever it runs.
"""

import argparse
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.stats import estimate_mean, estimate_pooled
from goalscope.stats.intervals import mean_interval

GRIDS = (5, 10, 20, 30, 40, 100, 300)
MEANS = (0.5, 0.8, 0.95)
SPREADS = {"none": 0.0, "weak .05": 0.05, "medium .2": 0.2, "U-shaped .5": 0.5, "U-shaped .8": 0.8, "0 or 1": 1.0}
"""Share of the greatest possible variance that lies between grids: the intra-class correlation of one trajectory."""
TRAJECTORIES = 10
BAND = (0.93, 0.97)
_ROUNDING = 1e-9

Points = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Points]

FREE: dict[str, tuple[float, Draw]] = {
    "normal": (0.0, lambda rng, count: rng.normal(size=count)),
    "uniform": (0.5, lambda rng, count: rng.random(count)),
    "Student t, 3 degrees": (0.0, lambda rng, count: rng.standard_t(3, count)),
    "exponential": (1.0, lambda rng, count: rng.exponential(size=count)),
    "lognormal": (float(np.exp(0.5)), lambda rng, count: rng.lognormal(size=count)),
    "70 % zeros, else exponential": (0.3, lambda rng, count: rng.exponential(size=count) * (rng.random(count) < 0.3)),
    "Poisson, mean 1": (1.0, lambda rng, count: rng.poisson(1.0, count).astype(np.float64)),
}

PAIRED: dict[str, tuple[float, float, float]] = {
    "both succeed in .8": (0.8, 0.0, 0.0),
    "both succeed in .9": (0.9, 0.0, 0.0),
    "both succeed in .95": (0.95, 0.0, 0.0),
    "one fails on a twentieth of all grids, else both succeed": (1.0, 0.05, 1.0),
    "one fails on a tenth of all grids, else both succeed": (1.0, 0.1, 1.0),
    "both .95, one half as often on a tenth of all grids": (0.95, 0.1, 0.475),
    "both .95, one half as often on a third of all grids": (0.95, 1 / 3, 0.475),
}
"""Chance of success of both conditions, share of grids on which one of them is worse, and by how much."""
PAIRED_GRIDS = (5, 10, 20, 30, 40, 100, 300)


def shares(rng: np.random.Generator, grids: int, mean: float, spread: float) -> Points:
    """Draw ``[G]`` success rates of ten trajectories whose chance differs between grids as a beta variable."""
    if spread == 1:
        return (rng.random(grids) < mean).astype(np.float64)
    weight = 1 / spread - 1 if spread else 0.0
    chance = rng.beta(mean * weight, (1 - mean) * weight, grids) if spread else np.full(grids, mean)
    return np.asarray(rng.binomial(TRAJECTORIES, chance) / TRAJECTORIES, dtype=np.float64)


def steps(rng: np.random.Generator, grids: int, mean: float) -> tuple[Points, Points]:
    """Draw ``[G]`` correct and all steps: harder grids have more steps and lower accuracy, so the ratio is pooled."""
    chance = rng.beta(mean * 4, (1 - mean) * 4, grids)
    total = 1 + rng.poisson(20 + 60 * (1 - chance)).astype(np.float64)
    return rng.binomial(total.astype(np.int64), chance).astype(np.float64), total


@cache
def pooled_truth(mean: float) -> float:
    """Return the ratio that `steps` has in the long run."""
    correct, total = steps(stream(0, "pooled truth", mean), 1_000_000, mean)
    return float(correct.sum() / total.sum())


def covers(low: float, high: float, truth: float) -> bool:
    """Whether an interval holds the truth; one that is undefined claims nothing false, and counts as holding it."""
    return not (truth < low - _ROUNDING or truth > high + _ROUNDING)


def coverage(draw: Draw, truth: float, bounds: tuple[float, float], grids: int, repeats: int, name: str) -> float:
    """Return the share of simulated intervals of nominal 95 % that hold the truth."""
    rng = stream(0, "coverage", name, grids)
    held = 0
    for _ in range(repeats):
        found = mean_interval(draw(rng, grids), bounds=bounds, confidence=0.95)
        held += covers(found.low, found.high, truth)
    return held / repeats


def share_coverage(mean: float, spread: float, grids: int, repeats: int) -> float:
    """Return the coverage for a share in [0, 1]."""
    return coverage(
        lambda rng, count: shares(rng, count, mean, spread), mean, (0, 1), grids, repeats, f"share {mean} {spread}"
    )


def pairs(rng: np.random.Generator, grids: int, trajectories: int, name: str) -> Points:
    """Draw ``[G]`` differences of two success rates on the same grids."""
    base, worse, drop = PAIRED[name]
    chance = base - drop * (rng.random(grids) < worse)
    return (rng.binomial(trajectories, chance) - rng.binomial(trajectories, base, grids)) / trajectories


def paired_coverage(name: str, trajectories: int, grids: int, repeats: int) -> tuple[float, float, float]:
    """Return the coverage of the interval of a paired difference, of that of one mean, and of plain t."""
    from scipy.special import stdtrit

    rng, truth = stream(0, "paired", name, trajectories, grids), -PAIRED[name][1] * PAIRED[name][2]
    held = np.zeros(3)
    for _ in range(repeats):
        points = pairs(rng, grids, trajectories, name)
        found = [mean_interval(points, bounds=(-1, 1), confidence=0.95, differences=kind) for kind in (True, False)]
        held[:2] += [covers(one.low, one.high, truth) for one in found]
        reach = stdtrit(grids - 1, 0.975) * points.std(ddof=1) / np.sqrt(grids)
        held[2] += abs(points.mean() - truth) <= reach + _ROUNDING
    new, one, plain = (held / repeats).tolist()
    return new, one, plain


def percentile_coverage(mean: float, spread: float, grids: int, repeats: int, resamples: int = 500) -> float:
    """Return the coverage of the percentile bootstrap over grids, the method that is not used."""
    rng = stream(0, "percentile", mean, spread, grids)
    held = 0
    for _ in range(repeats):
        points = shares(rng, grids, mean, spread)
        means = points[rng.integers(0, grids, (resamples, grids))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        held += covers(float(low), float(high), mean)
    return held / repeats


def student_coverage(mean: float, spread: float, grids: int, repeats: int) -> float:
    """Return the coverage of the plain t interval over grids, the other method that is not used."""
    from scipy.special import stdtrit

    rng = stream(0, "student", mean, spread, grids)
    points = np.stack([shares(rng, grids, mean, spread) for _ in range(repeats)])
    reach = stdtrit(grids - 1, 0.975) * points.std(axis=1, ddof=1) / np.sqrt(grids)
    return float((np.abs(points.mean(axis=1) - mean) <= reach + _ROUNDING).mean())


def pooled_coverage(mean: float, grids: int, repeats: int) -> float:
    """Return the coverage of the pooled ratio."""
    rng, truth = stream(0, "pooled", mean, grids), pooled_truth(mean)
    held = 0
    for _ in range(repeats):
        correct, total = steps(rng, grids, mean)
        found = estimate_pooled(correct, total, range(grids), unit="share", bounds=(0, 1))
        held += covers(found.low, found.high, truth)
    return held / repeats


def mark(value: float) -> str:
    """Format a coverage; a star where it lies outside of the band."""
    return f"{value:.3f}{' ' if BAND[0] <= value <= BAND[1] else '*'}"


def main() -> None:
    """Print all tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000, help="simulated studies a cell (default 2000)")
    repeats = parser.parse_args().repeats
    few = max(50, repeats // 2)
    print(f"Nominal 95 %, {repeats} simulated studies a cell; * marks a coverage outside of {BAND[0]}-{BAND[1]}.\n")
    print(f"### Shares in [0, 1], {TRAJECTORIES} trajectories a grid\n")
    print("| mean | between grids | " + " | ".join(f"G = {grids}" for grids in GRIDS) + " |")
    print("| --- | --- |" + " --- |" * len(GRIDS))
    for mean in MEANS:
        for name, spread in SPREADS.items():
            cells = [mark(share_coverage(mean, spread, grids, repeats)) for grids in GRIDS]
            print(f"| {mean} | {name} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n### The methods that are not used: percentile bootstrap ({few} studies a cell) / plain t\n")
    print("| mean | between grids | " + " | ".join(f"G = {grids}" for grids in GRIDS[:-1]) + " |")
    print("| --- | --- |" + " --- |" * len(GRIDS[:-1]))
    for mean in MEANS:
        for name, spread in SPREADS.items():
            cells = [
                f"{percentile_coverage(mean, spread, grids, few):.3f} / "
                f"{student_coverage(mean, spread, grids, repeats):.3f}"
                for grids in GRIDS[:-1]
            ]
            print(f"| {mean} | {name} | " + " | ".join(cells) + " |", flush=True)
    print("\n### Ratios pooled over steps (medium spread, longer paths on harder grids)\n")
    print("| mean | " + " | ".join(f"G = {grids}" for grids in GRIDS) + " |")
    print("| --- |" + " --- |" * len(GRIDS))
    for mean in MEANS:
        cells = [mark(pooled_coverage(mean, grids, repeats)) for grids in GRIDS]
        print(f"| {mean} | " + " | ".join(cells) + " |", flush=True)
    print("\n### Measures without bounds / with a lower bound of 0 where there is one\n")
    print("| distribution over grids | " + " | ".join(f"G = {grids}" for grids in GRIDS) + " |")
    print("| --- |" + " --- |" * len(GRIDS))
    for name, (truth, draw) in FREE.items():
        cells = []
        for grids in GRIDS:
            cell = mark(coverage(draw, truth, (-np.inf, np.inf), grids, repeats, name))
            if truth > 0:
                cell += "/ " + mark(coverage(draw, truth, (0, np.inf), grids, repeats, name))
            cells.append(cell)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n### Paired differences of shares ({few} studies a cell): as printed / interval of one mean / plain t\n")
    print("| successes | trajectories | " + " | ".join(f"G = {grids}" for grids in PAIRED_GRIDS) + " |")
    print("| --- | --- |" + " --- |" * len(PAIRED_GRIDS))
    for name in PAIRED:
        for trajectories in (1, TRAJECTORIES):
            rates = [paired_coverage(name, trajectories, grids, few) for grids in PAIRED_GRIDS]
            cells = [f"{mark(new)}/ {one:.3f} / {plain:.3f}" for new, one, plain in rates]
            print(f"| {name} | {trajectories} | " + " | ".join(cells) + " |", flush=True)
    ten = estimate_mean(np.ones(10), range(10), unit="share", bounds=(0, 1))
    print(f"\nTen grids of ten: {ten}")


if __name__ == "__main__":
    main()
