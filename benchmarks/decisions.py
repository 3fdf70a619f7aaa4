"""Print how often "equivalent", "higher" and "lower" are said where they are false, and how often a difference is seen.

Run ``python benchmarks/decisions.py`` (minutes), or ``--repeats 200`` for a quick look. Each cell has a random stream
of its own, so the numbers are the same wherever it runs.
"""

import argparse
import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.stats import Paired, PairedDesign, power, signed_rank, simulate_power
from goalscope.stats.compare import chance_beyond, clusters_needed, least_p
from goalscope.stats.intervals import mean_interval
from goalscope.stats.power import draw_differences

Points = npt.NDArray[np.float64]
LEVEL = 0.05
GRIDS = (8, 12, 16, 20, 30, 40, 60, 100)

AT_MARGIN: Mapping[str, Callable[[np.random.Generator, int, float], Points]] = {
    "one fails wholly, else no difference": lambda rng, grids, margin: (rng.random(grids) < margin).astype(np.float64),
    "one fails wholly, else noise of .02": lambda rng, grids, margin: np.where(
        rng.random(grids) < margin, 1.0, rng.normal(0, 0.02, grids)
    ),
    "one fails wholly, else the other way by half the margin": lambda rng, grids, margin: np.where(
        rng.random(grids) < 1.5 * margin / (1 + margin / 2), 1.0, -margin / 2
    ),
    "one fails wholly, else both .95, 10 trajectories": lambda rng, grids, margin: (
        (rng.binomial(10, 0.95, grids) - rng.binomial(10, 0.95 * (rng.random(grids) >= margin / 0.95))) / 10
    ),
    "beta, nearly all or nothing": lambda rng, grids, margin: rng.beta(0.1, 0.1 * (1 - margin) / margin, grids),
    "beta, skewed": lambda rng, grids, margin: rng.beta(0.5, 0.5 * (1 - margin) / margin, grids),
    "normal, deviation .1": lambda rng, grids, margin: rng.normal(margin, 0.1, grids).clip(-1, 1),
}
"""Differences in [-1, 1] whose mean is the margin: "equivalent" is false."""

NO_DIFFERENCE: Mapping[str, Callable[[np.random.Generator, int], Points]] = {
    "a tenth lower by 1, the others higher by a ninth": lambda rng, grids: np.where(
        rng.random(grids) < 0.1, -1.0, 1 / 9 + rng.normal(0, 0.01, grids)
    ),
    "a tenth lower by .5": lambda rng, grids: np.where(
        rng.random(grids) < 0.1, -0.5, 1 / 18 + rng.normal(0, 0.01, grids)
    ),
    "a third lower by .3": lambda rng, grids: np.where(
        rng.random(grids) < 1 / 3, -0.3, 0.15 + rng.normal(0, 0.02, grids)
    ),
    "beta, skewed": lambda rng, grids: rng.beta(0.3, 3, grids) - 0.3 / 3.3,
    "a third differ by .3 to either side": lambda rng, grids: (
        rng.choice([-0.3, 0.3], grids) * (rng.random(grids) < 1 / 3)
    ),
    "tenths": lambda rng, grids: (rng.binomial(10, 0.7, grids) - rng.binomial(10, 0.7, grids)) / 10,
    "normal, deviation .1": lambda rng, grids: rng.normal(0, 0.1, grids).clip(-1, 1),
}
"""Differences whose mean is 0: "higher" and "lower" are false."""


def drawn_at_margin(name: str, grids: int, margin: float, repeats: int) -> Points:
    """Draw ``[repeats, G]`` differences whose true mean is the margin."""
    rng = stream(0, "at the margin", name, grids, margin)
    return np.array([AT_MARGIN[name](rng, grids, margin) for _ in range(repeats)])


def false_equivalence(name: str, grids: int, margin: float, level: float, repeats: int) -> float:
    """Return how often equivalence within the margin is shown where the mean difference is the margin."""
    return float(np.mean(chance_beyond(drawn_at_margin(name, grids, margin, repeats), margin, 1.0) <= level))


def by_interval(name: str, grids: int, margin: float, level: float, repeats: int) -> float:
    """Return how often the interval of confidence ``1 - 2 level`` lies inside the margin: the test that is not used."""
    found = [
        mean_interval(study, bounds=(-1, 1), confidence=1 - 2 * level, differences=True)
        for study in drawn_at_margin(name, grids, margin, repeats)
    ]
    return float(np.mean([-margin < one.low and one.high < margin for one in found]))


def false_words(name: str, grids: int, level: float, repeats: int) -> tuple[float, float]:
    """Return how often a word on a mean difference of 0 is said by its interval, and the signed-rank test rejects."""
    rng = stream(0, "no difference", name, grids)
    drawn = [NO_DIFFERENCE[name](rng, grids) for _ in range(repeats)]
    found = [mean_interval(study, bounds=(-1, 1), confidence=1 - level, differences=True) for study in drawn]
    ranks = [signed_rank(study).p_value <= level for study in drawn]
    said = [least_p(grids) <= level and (one.low > 0 or one.high < 0) for one in found]
    return float(np.mean(said)), float(np.mean(ranks))


def one_trajectory(mean: float, grids: int, effect: float, repeats: int) -> tuple[float, float, float]:
    """Return the power with one trajectory a grid: counted, of the signed-rank test, and that of normal differences."""
    spread, within = (math.sqrt(part * mean * (1 - mean)) for part in (0.2, 0.8))
    design = Paired(grids=grids, trajectories=1, mean=mean, spread=spread, between=0.05, within=within)
    counted = simulate_power(design, seed=0, effect=effect, repeats=repeats).at_effect
    differences, true_mean = draw_differences(design, effect, seed=0, repeats=repeats)
    ranks = float(np.mean([signed_rank(study).p_value <= LEVEL for study in differences]))
    return counted, ranks, power(PairedDesign(grids=grids, trajectories=1, between=0.05, within=within), true_mean)


def main() -> None:
    """Print all tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000, help="simulated studies a cell (default 1000)")
    repeats = parser.parse_args().repeats
    heads = "| --- | --- |" + " --- |" * len(GRIDS)
    print(
        f"### False equivalence at level {LEVEL:g}: as tested / by an interval of confidence .9 ({repeats} studies)\n"
    )
    print("| differences | margin | " + " | ".join(f"G = {grids}" for grids in GRIDS) + f" |\n{heads}")
    for name in AT_MARGIN:
        for margin in (0.05, 0.1, 0.2):
            cells = [
                f"{false_equivalence(name, grids, margin, LEVEL, repeats):.3f} / "
                f"{by_interval(name, grids, margin, LEVEL, repeats):.3f}"
                for grids in GRIDS
            ]
            print(f"| {name} | {margin:g} | " + " | ".join(cells) + " |", flush=True)
    needed = {f"{margin:g}": clusters_needed(margin, 1.0, LEVEL) for margin in (0.05, 0.1, 0.2)}
    print(f"\nFewest grids that can show equivalence: {needed}")
    print(
        f'\n### "Higher" or "lower" where the mean difference is 0: by the interval / signed-rank ({repeats} studies)\n'
    )
    print("| differences | level | " + " | ".join(f"G = {grids}" for grids in GRIDS) + f" |\n{heads}")
    for name in NO_DIFFERENCE:
        for level in (0.05, 0.00625):
            rates = [false_words(name, grids, level, repeats) for grids in GRIDS]
            cells = [f"{mean:.3f} / {ranks:.3f}" for mean, ranks in rates]
            print(f"| {name} | {level:g} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n### Power with one trajectory: counted / signed-rank / normal differences ({repeats} studies)\n")
    print("| mean success, effect | G = 10 | G = 20 | G = 30 | G = 60 |\n| --- | --- | --- | --- | --- |")
    for mean in (0.5, 0.8, 0.9):
        powers = [one_trajectory(mean, grids, 0.2, repeats) for grids in (10, 20, 30, 60)]
        print(f"| {mean:g}, .2 | " + " | ".join(" / ".join(f"{one:.2f}" for one in three) for three in powers) + " |")


if __name__ == "__main__":
    main()
