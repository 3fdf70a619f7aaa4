"""Power of a planned paired comparison over grids, in closed form and by simulating the tests that will be used.

The closed form is that of a t test on normally distributed differences. The power for shares is simulated, because
shares over few trajectories have ties and many values at the bounds; with one success or failure per grid, the closed
form overestimates the power.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from goalscope._ground.rng import stream
from goalscope.stats.compare import chance_beyond, least_p, smallest
from goalscope.stats.intervals import Vector, mean_interval

REPEATS = 1000
"""Number of simulated studies: the standard error of a power of .8 gives ± .025."""

_MOST_GRIDS = 1_000_000
_HALVINGS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDesign:
    """Plan of a study that compares two conditions on the same grids, with several trajectories per grid and condition.

    Attributes:
        grids: number of grids G, >= 2.
        trajectories: number of trajectories T per condition and grid, >= 1.
        between: standard deviation over grids of the true difference, >= 0, in the measure's unit.
        within: standard deviation of one trajectory's value around its grid's mean, >= 0, in the measure's unit.

    Raises:
        ValueError: a number outside of its range, or both deviations 0.
    """

    grids: int
    trajectories: int
    between: float
    within: float

    def __post_init__(self) -> None:
        _check_design(self)
        if self.between == 0 and self.within == 0:
            raise ValueError(
                "between and within must not both be 0: without any deviation every effect would be detected"
            )

    @property
    def deviation(self) -> float:
        """Standard deviation over grids of the observed difference between the conditions' means."""
        return math.sqrt(self.between**2 + 2 * self.within**2 / self.trajectories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired(PairedDesign):
    """Plan of a paired comparison (see `PairedDesign`) with the further assumptions that simulating its power needs.

    Unlike in `PairedDesign`, the deviations `between` and `within` may both be 0.

    Attributes:
        mean: mean value over grids.
        spread: standard deviation over grids of a grid's mean.
        share: whether values are shares in [0, 1] with binomial noise, otherwise the noise is normal. A share is the
            fraction of good decisions among independent decisions, whose number follows from `within` (one decision
            for a success rate).

    Raises:
        ValueError: a number out of range, a mean outside [0, 1], or a spread too large for the mean.
    """

    mean: float
    spread: float
    share: bool = True

    def __post_init__(self) -> None:
        _check_design(self, self.mean, self.spread)
        if self.share and not (0 <= self.mean <= 1 and self.spread**2 <= self.mean * (1 - self.mean) + 1e-12):
            raise ValueError(
                "for shares, mean must lie in [0, 1] and spread must be at most sqrt(mean (1 - mean)), got "
                f"mean {self.mean:g} and spread {self.spread:g}"
            )

    @property
    def decisions(self) -> int:
        """Number of independent decisions over which the share of one trajectory is an average."""
        noise = self.mean * (1 - self.mean) - self.spread**2
        return max(1, round(noise / self.within**2)) if self.within > 0 and noise > 0 else 1


def _check_design(design: PairedDesign, mean: float = 0.0, *deviations: float) -> None:
    numbers = (design.between, design.within, *deviations)
    if design.grids < 2 or design.trajectories < 1 or not all(map(math.isfinite, (mean, *numbers))) or min(numbers) < 0:
        raise ValueError(f"a design needs grids >= 2, trajectories >= 1, between >= 0 and within >= 0, got {design}")


def power(design: PairedDesign, effect: float, *, level: float = 0.05) -> float:
    """Compute the power of a two-sided paired t test over grids: the chance that it detects a true mean difference.

    Args:
        design: grids, trajectories and deviations. Differences over grids are assumed to be normal.
        effect: the true mean difference, in the measure's unit.
        level: two-sided significance level, in (0, 1).

    Raises:
        ValueError: a design of shares, which are not normal (use `simulate_power`), or an effect or level out of
            range.

    Source: noncentral t distribution; Cohen, Statistical Power Analysis (1988), 2.
    """
    from scipy.special import nctdtr, stdtrit

    if not (math.isfinite(effect) and 0 < level < 1):
        raise ValueError(
            f"power needs a finite effect and a level inside (0, 1), got effect {effect!r} and level {level!r}"
        )
    if isinstance(design, Paired) and design.share:
        raise ValueError(
            "power assumes normal differences, but design.share is true: call simulate_power with effect=... instead"
        )
    degrees = design.grids - 1
    shift = abs(effect) * math.sqrt(design.grids) / design.deviation
    edge = float(stdtrit(degrees, 1 - level / 2))
    missed = float(nctdtr(degrees, shift, edge))
    wrong_side = float(nctdtr(degrees, shift, -edge))
    # scipy returns NaN far out in a tail, where the probability is below 1e-15.
    return 1 - (0.0 if math.isnan(missed) else missed) + (0.0 if math.isnan(wrong_side) else wrong_side)


def grids_needed(design: PairedDesign, effect: float, *, chance: float = 0.8, level: float = 0.05) -> int:
    """Compute the smallest number of grids with which a paired t test detects an effect with the required power.

    Args:
        design: trajectories and deviations; its number of grids is not used.
        effect: the true mean difference, not 0, in the measure's unit.
        chance: required power.
        level: two-sided significance level.

    Raises:
        ValueError: an effect of 0, an effect too small to detect with a million grids, or a required power that is not
            between the level and 1.
    """
    if not 0 < level < chance < 1:
        raise ValueError(
            f"chance (the required power) must lie between level and 1, got chance {chance!r} and level {level!r}"
        )
    sizes = range(2, _MOST_GRIDS + 1)
    index = bisect_left(
        sizes, True, key=lambda grids: power(replace(design, grids=grids), effect, level=level) >= chance
    )
    if index == len(sizes):
        raise ValueError(
            f"effect is too small to detect with {_MOST_GRIDS} grids, got {effect!r}: plan for a larger "
            "effect or more trajectories per grid"
        )
    return sizes[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPower:
    """What a planned paired comparison can show, estimated from simulated studies. Its power is the chance that a test
    succeeds.

    Attributes:
        effect: the smallest mean difference that is detected with the required power, NaN if none. A study detects a
            difference if the interval of the mean at confidence ``1 - level`` excludes 0.
        margin: the smallest margin for which equivalence is shown with the required power if the true mean difference
            is 0; NaN if none.
        at_effect: the power to detect the requested effect, NaN if none was requested.
        at_margin: the power to show equivalence within the requested margin, NaN if none was requested.
        repeats: number of simulated studies.
        note: a warning to print with the result, "" for none.
    """

    effect: float
    margin: float
    at_effect: float
    at_margin: float
    repeats: int
    note: str = ""


def simulate_power(
    design: Paired,
    *,
    seed: int,
    chance: float = 0.8,
    level: float = 0.05,
    effect: float | None = None,
    margin: float | None = None,
    repeats: int = REPEATS,
) -> SimulatedPower:
    """Estimate the power of a planned paired comparison by simulating studies and counting how often their tests
    succeed.

    Args:
        design: the plan with its assumptions.
        seed: root seed; the same arguments give the same numbers.
        chance: required power, in (0, 1).
        level: significance level of each test: two-sided for a difference, of each side for equivalence.
        effect: a difference whose power is also estimated.
        margin: an equivalence margin whose power is also estimated.
        repeats: number of simulated studies.

    Raises:
        ValueError: a chance or a level out of range, or no repeats.
    """
    if not (0 < level < 0.5 and level < chance < 1 and repeats >= 1):
        raise ValueError(
            "simulate_power needs 0 < level < 0.5, level < chance < 1 and repeats >= 1, got level "
            f"{level}, chance {chance} and repeats {repeats}"
        )
    null = draw_differences(design, 0.0, seed=seed, repeats=repeats)[0]
    bound = 1.0 if design.share else math.inf

    def shown(width: float) -> float:
        return float(np.mean(chance_beyond(null, width, bound) <= level))

    greatest = 1.0 - 1e-9 if design.share else 64 * design.deviation
    margin_needed = math.nan
    if greatest > 0 and shown(greatest) >= chance:
        margin_needed = smallest(lambda width: shown(width) >= chance, 0.0, greatest, _HALVINGS)
    detectable = _detectable(design, seed, chance, level, repeats)
    notes = [
        "no difference between shares is seen with this chance" if math.isnan(detectable) else "",
        "equivalence cannot be shown with this chance" if math.isnan(margin_needed) else "",
    ]
    return SimulatedPower(
        effect=detectable,
        margin=margin_needed,
        at_effect=math.nan if effect is None else _detected(design, effect, seed, level, repeats)[0],
        at_margin=math.nan if margin is None else shown(margin),
        repeats=repeats,
        note="; ".join(filter(None, notes)),
    )


def draw_differences(design: Paired, effect: float, *, seed: int, repeats: int) -> tuple[Vector, float]:
    """Simulate the observed differences between two conditions, for many studies with the same plan.

    All effects use the same random numbers.

    Args:
        design: the plan with its assumptions.
        effect: the mean difference to simulate.
        seed: root seed of the random numbers.
        repeats: number of simulated studies.

    Returns:
        ``[repeats, G]`` difference of the conditions' means per study and grid; and the true mean difference, which can
        be smaller than ``effect``, since shares are clipped to [0, 1].
    """
    rng = stream(seed, "simulated power")
    shape = (repeats, design.grids)
    true = effect + design.between * rng.standard_normal(shape)
    if not design.share:
        deviation = design.within * math.sqrt(2 / design.trajectories)
        return true + deviation * rng.standard_normal(shape), effect
    base = _success_probabilities(design, rng, shape)
    # Each condition moves by half of the effect, so that without an effect both have the same distribution.
    probabilities = [np.clip(base + side * true / 2, 0, 1) for side in (1, -1)]
    count = design.trajectories * design.decisions
    first, second = (rng.binomial(count, probability) / count for probability in probabilities)
    return first - second, float(np.mean(probabilities[0] - probabilities[1]))


def _success_probabilities(design: Paired, rng: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Draw each grid's success probability from the beta distribution with the design's mean and spread."""
    maximum_variance = design.mean * (1 - design.mean)
    if design.spread == 0 or maximum_variance == 0:
        return np.full(shape, design.mean)
    concentration = maximum_variance / design.spread**2 - 1
    if concentration < 1e-6:  # at the largest possible spread every probability is 0 or 1
        return (rng.random(shape) < design.mean).astype(np.float64)
    return rng.beta(design.mean * concentration, (1 - design.mean) * concentration, shape)


def _detectable(design: Paired, seed: int, chance: float, level: float, repeats: int) -> float:
    """Find the smallest true mean difference that is detected with the required power, by bisection."""

    true_mean: dict[float, float] = {}

    def detected(effect: float) -> bool:
        power_there, true_mean[effect] = _detected(design, effect, seed, level, repeats)
        return power_there >= chance

    high = 1.0 if design.share else 8 * design.deviation
    if not detected(high):
        return math.nan
    return true_mean[smallest(detected, 0.0, high, _HALVINGS)]


def _detected(design: Paired, effect: float, seed: int, level: float, repeats: int) -> tuple[float, float]:
    """Return the share of studies whose interval of the mean excludes 0, and the size of the true mean difference."""
    differences, true_mean = draw_differences(design, effect, seed=seed, repeats=repeats)
    if least_p(design.grids) > level:
        return 0.0, abs(true_mean)
    bounds = (-1.0, 1.0) if design.share else (-math.inf, math.inf)
    intervals = [mean_interval(study, bounds=bounds, confidence=1 - level, differences=True) for study in differences]
    return float(np.mean([interval.low > 0 or interval.high < 0 for interval in intervals])), abs(true_mean)
