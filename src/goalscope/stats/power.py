"""Power of a paired comparison over grids before a run: in closed form, and by simulation of the tests to be used.

The closed form is that of a t test on normal differences. Shares are simulated: fractions of few trajectories have ties
and many values at the bounds, and with one trajectory of a success the closed form promises more than is seen.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from goalscope._ground.rng import stream
from goalscope.stats.compare import least_p, smallest
from goalscope.stats.equivalence import chance_beyond
from goalscope.stats.intervals import Vector, mean_interval

REPEATS = 1000
"""Number of simulated studies: the standard error of a power of .8 gives ± .025."""

_MOST_GRIDS = 1_000_000
_HALVINGS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDesign:
    """Two conditions on the same grids with several trajectories each.

    Attributes:
        grids: number of grids G, >= 2.
        trajectories: trajectories T of each condition on each grid, >= 1.
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
            raise ValueError("a design needs a deviation above 0, got between = within = 0: then any effect is seen")

    @property
    def deviation(self) -> float:
        """Standard deviation over grids of the observed difference of means."""
        return math.sqrt(self.between**2 + 2 * self.within**2 / self.trajectories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired(PairedDesign):
    """A design for simulation, with further assumptions; both deviations may be 0.

    Attributes:
        mean: mean value over grids.
        spread: standard deviation over grids of a grid's mean.
        share: whether values are shares in [0, 1] with binomial noise: a value is the fraction of good decisions among
            as many independent ones as `within` implies (one for a success). Else the noise is normal.

    Raises:
        ValueError: a number outside of its range, a mean outside of [0, 1] or a spread that it does not allow.
    """

    mean: float
    spread: float
    share: bool = True

    def __post_init__(self) -> None:
        _check_design(self, self.mean, self.spread)
        if self.share and not (0 <= self.mean <= 1 and self.spread**2 <= self.mean * (1 - self.mean) + 1e-12):
            raise ValueError(
                "the mean of shares must lie in [0, 1] and their spread over grids be at most sqrt(mean (1 - mean)), "
                f"got mean {self.mean:g} and spread {self.spread:g}"
            )

    @property
    def decisions(self) -> int:
        """Number of independent decisions averaged in the value of one trajectory, where values are shares."""
        noise = self.mean * (1 - self.mean) - self.spread**2
        return max(1, round(noise / self.within**2)) if self.within > 0 and noise > 0 else 1


def _check_design(design: PairedDesign, mean: float = 0.0, *deviations: float) -> None:
    numbers = (design.between, design.within, *deviations)
    if design.grids < 2 or design.trajectories < 1 or not all(map(math.isfinite, (mean, *numbers))) or min(numbers) < 0:
        raise ValueError(f"a design needs grids >= 2, trajectories >= 1 and deviations >= 0, got {design}")


def power(design: PairedDesign, effect: float, *, level: float = 0.05) -> float:
    """Return the power of a two-sided paired t test over grids for a true mean difference.

    Args:
        design: grids, trajectories and deviations; its differences over grids are normal.
        effect: the true mean difference, in the measure's unit.
        level: two-sided level, in (0, 1).

    Raises:
        ValueError: a design of shares, which are not normal: `simulate_power` counts their power.

    Source: noncentral t distribution; Cohen, Statistical Power Analysis (1988), 2.
    """
    from scipy.special import nctdtr, stdtrit

    if not (math.isfinite(effect) and 0 < level < 1):
        raise ValueError(f"power needs a finite effect and a level inside (0, 1), got {effect!r} and {level!r}")
    if isinstance(design, Paired) and design.share:
        raise ValueError(
            "the closed form holds for normal differences, got a design of shares: give the effect to simulate_power"
        )
    degrees = design.grids - 1
    shift = abs(effect) * math.sqrt(design.grids) / design.deviation
    edge = float(stdtrit(degrees, 1 - level / 2))
    missed = float(nctdtr(degrees, shift, edge))
    wrong_side = float(nctdtr(degrees, shift, -edge))
    # scipy returns NaN far out in a tail, where the probability is below 1e-15.
    return 1 - (0.0 if math.isnan(missed) else missed) + (0.0 if math.isnan(wrong_side) else wrong_side)


def grids_needed(design: PairedDesign, effect: float, *, chance: float = 0.8, level: float = 0.05) -> int:
    """Return the smallest number of grids with which an effect is detected with the given power.

    Args:
        design: trajectories and deviations; its number of grids is not used.
        effect: the true mean difference, not 0, in the measure's unit.
        chance: required power.
        level: two-sided level.

    Raises:
        ValueError: an effect of 0, or one that a million grids do not show.
    """
    _check_chance(chance, level)
    sizes = range(2, _MOST_GRIDS + 1)
    index = bisect_left(
        sizes, True, key=lambda grids: power(replace(design, grids=grids), effect, level=level) >= chance
    )
    if index == len(sizes):
        raise ValueError(f"the effect must be large enough for {_MOST_GRIDS} grids to show it, got {effect!r}")
    return sizes[index]


def _check_chance(chance: float, level: float) -> None:
    if not 0 < level < chance < 1:
        raise ValueError(f"the wanted power must lie between the level and 1, got power {chance!r}, level {level!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPower:
    """The power of a design, counted over simulated studies.

    Attributes:
        effect: the smallest mean difference that is detected with the required power, NaN if none: the interval of the
            mean at ``1 - level`` leaves out 0.
        margin: the smallest margin within which equivalence is shown with the required power, the true mean difference
            being 0; NaN if none.
        at_effect: the power of detecting a given difference, NaN without one.
        at_margin: the power of showing equivalence within a given margin, NaN without one.
        repeats: number of simulated studies.
        note: a warning to print with it, "" for none.
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
    """Simulate the design and count the results of its tests.

    Args:
        design: the assumptions.
        seed: root seed; the same arguments give the same numbers.
        chance: required power, in (0, 1).
        level: level of each test: two-sided for a difference, of each side for equivalence.
        effect: a difference whose power is returned too.
        margin: a margin whose power is returned too.
        repeats: number of simulated studies.

    Raises:
        ValueError: a chance or a level out of range, or no repeats.
    """
    if not (0 < level < 0.5 and level < chance < 1 and repeats >= 1):
        raise ValueError(f"needs 0 < level < 0.5, level < chance < 1, repeats >= 1; got {level}, {chance}, {repeats}")
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
    """Draw ``[repeats, G]`` differences of the conditions' means by grid, and the true mean after clipping to bounds.

    All effects use the same random numbers.
    """
    rng = stream(seed, "simulated power")
    shape = (repeats, design.grids)
    true = effect + design.between * rng.standard_normal(shape)
    if not design.share:
        deviation = design.within * math.sqrt(2 / design.trajectories)
        return true + deviation * rng.standard_normal(shape), effect
    base = _success_probabilities(design, rng, shape)
    # Half of the difference on each side: without an effect both conditions have the same distribution.
    probabilities = [np.clip(base + side * true / 2, 0, 1) for side in (1, -1)]
    count = design.trajectories * design.decisions
    first, second = (rng.binomial(count, probability) / count for probability in probabilities)
    return first - second, float(np.mean(probabilities[0] - probabilities[1]))


def _success_probabilities(design: Paired, rng: np.random.Generator, shape: tuple[int, int]) -> Vector:
    """Draw each grid's success probability from the beta distribution of this mean and standard deviation."""
    maximum_variance = design.mean * (1 - design.mean)
    if design.spread == 0 or maximum_variance == 0:
        return np.full(shape, design.mean)
    concentration = maximum_variance / design.spread**2 - 1
    if concentration < 1e-6:  # all or nothing
        return (rng.random(shape) < design.mean).astype(np.float64)
    return rng.beta(design.mean * concentration, (1 - design.mean) * concentration, shape)


def _detectable(design: Paired, seed: int, chance: float, level: float, repeats: int) -> float:
    """Return the smallest true mean difference that is detected with this power, by bisection."""

    true_mean: dict[float, float] = {}

    def detected(effect: float) -> bool:
        power_there, true_mean[effect] = _detected(design, effect, seed, level, repeats)
        return power_there >= chance

    high = 1.0 if design.share else 8 * design.deviation
    if not detected(high):
        return math.nan
    return true_mean[smallest(detected, 0.0, high, _HALVINGS)]


def _detected(design: Paired, effect: float, seed: int, level: float, repeats: int) -> tuple[float, float]:
    """Return the share of studies whose interval of the mean leaves out 0, and the size of the true mean difference."""
    differences, true_mean = draw_differences(design, effect, seed=seed, repeats=repeats)
    if least_p(design.grids) > level:
        return 0.0, abs(true_mean)
    bounds = (-1.0, 1.0) if design.share else (-math.inf, math.inf)
    intervals = [mean_interval(study, bounds=bounds, confidence=1 - level, differences=True) for study in differences]
    return float(np.mean([interval.low > 0 or interval.high < 0 for interval in intervals])), abs(true_mean)
