"""Power of a paired comparison over grids before a run: in closed form, and by simulation of the tests to be used.

The closed form assumes normal differences. The simulation counts the results of the tests on realistic values:
fractions of few trajectories, with ties and many values at the bounds.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from goalscope.rng import stream
from goalscope.stats.compare import normal_p, signed_rank, smallest
from goalscope.stats.intervals import Vector, mean_interval

REPEATS = 1000
"""Number of simulated studies: the standard error of a power of .8 gives ± .025."""

_MOST_GRIDS = 1_000_000
_QUANTILES = 4000  # of the sample deviation; the midpoint rule is then right to four digits
_EXACT_UP_TO = 25  # grids: beyond, the normal approximation of the test agrees to two digits
_HALVINGS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDesign:
    """Two conditions on the same grids with several trajectories each.

    Attributes:
        grids: number of grids G, >= 2.
        trajectories: trajectories T of each condition on each grid, >= 1.
        between: standard deviation over grids of the true difference, >= 0, in the measure's unit.
        within: standard deviation of one trajectory's value around its grid's mean, >= 0, in the measure's unit
            (``sqrt(p (1 - p))`` for a success rate p).

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

    def closed_form(self) -> PairedDesign | None:
        """Return the design for the closed form, None without any variance."""
        if self.deviation == 0:
            return None
        return PairedDesign(grids=self.grids, trajectories=self.trajectories, between=self.between, within=self.within)


def _check_design(design: PairedDesign, mean: float = 0.0, *deviations: float) -> None:
    numbers = (design.between, design.within, *deviations)
    if design.grids < 2 or design.trajectories < 1 or not all(map(math.isfinite, (mean, *numbers))) or min(numbers) < 0:
        raise ValueError(f"a design needs grids >= 2, trajectories >= 1 and deviations >= 0, got {design}")


def power(design: PairedDesign, effect: float, *, level: float = 0.05) -> float:
    """Return the power of a two-sided paired t test over grids for a true mean difference.

    The signed-rank test needs about 5 % more grids where differences are normal, fewer where their tails are heavy.

    Args:
        design: grids, trajectories and deviations.
        effect: the true mean difference, in the measure's unit.
        level: two-sided level, in (0, 1).

    Source: noncentral t distribution; Cohen, Statistical Power Analysis (1988), 2.
    """
    from scipy.special import nctdtr, stdtrit

    if not (math.isfinite(effect) and 0 < level < 1):
        raise ValueError(f"power needs a finite effect and a level inside (0, 1), got {effect!r} and {level!r}")
    degrees = design.grids - 1
    shift = abs(effect) * math.sqrt(design.grids) / design.deviation
    edge = float(stdtrit(degrees, 1 - level / 2))
    missed = float(nctdtr(degrees, shift, edge))
    wrong_side = float(nctdtr(degrees, shift, -edge))
    # scipy returns NaN far out in a tail, where the probability is below 1e-15.
    return 1 - (0.0 if math.isnan(missed) else missed) + (0.0 if math.isnan(wrong_side) else wrong_side)


def minimum_detectable_effect(design: PairedDesign, *, chance: float = 0.8, level: float = 0.05) -> float:
    """Return the smallest true mean difference that is detected with the given power.

    Args:
        design: grids, trajectories and deviations.
        chance: required power, above ``level`` and below 1.
        level: two-sided level.

    Returns:
        The effect in the measure's unit, to a relative 1e-9.
    """
    _check_chance(chance, level)
    return _smallest_with_power(lambda size: power(design, size, level=level), chance, design.deviation)


def equivalence_power(design: PairedDesign, margin: float, *, level: float = 0.05) -> float:
    """Return the power of two one-sided t tests over grids when the true mean difference is 0.

    Args:
        design: grids, trajectories and deviations.
        margin: the greatest difference that counts as none, > 0, in the measure's unit.
        level: level of each one-sided test, in (0, 0.5).

    Source: Phillips, Journal of Pharmacokinetics and Biopharmaceutics 18 (1990); the chance given the sample's
        deviation is normal, and is averaged over the quantiles of that deviation.
    """
    from scipy.special import gammaincinv, ndtr, stdtrit

    if not (math.isfinite(margin) and margin > 0 and 0 < level < 0.5):
        raise ValueError(
            f"equivalence needs a finite margin above 0 and a level inside (0, 0.5), got {margin!r} and {level!r}"
        )
    degrees = design.grids - 1
    quantiles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    ratio = np.sqrt(2 * gammaincinv(degrees / 2, quantiles) / degrees)  # sample deviation over true deviation
    room = margin * math.sqrt(design.grids) / design.deviation - float(stdtrit(degrees, 1 - level)) * ratio
    return float(np.mean(np.where(room > 0, 2 * ndtr(room) - 1, 0.0)))


def smallest_margin(design: PairedDesign, *, chance: float = 0.8, level: float = 0.05) -> float:
    """Return the smallest margin within which equivalence is shown with the given power, the true difference being 0.

    Args:
        design: grids, trajectories and deviations.
        chance: required power, above ``level`` and below 1.
        level: level of each one-sided test.

    Returns:
        The margin in the measure's unit.
    """
    _check_chance(chance, level)
    return _smallest_with_power(lambda size: equivalence_power(design, size, level=level), chance, design.deviation)


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


def _smallest_with_power(power_of: Callable[[float], float], required: float, start: float) -> float:
    high = start
    while power_of(high) < required:
        high *= 2
    return smallest(lambda size: not power_of(size) < required, 0.0, high, 60)


def _check_chance(chance: float, level: float) -> None:
    if not 0 < level < chance < 1:
        raise ValueError(f"the wanted power must lie between the level and 1, got power {chance!r}, level {level!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPower:
    """The power of a design, counted over simulated studies.

    Attributes:
        effect: the smallest mean difference that the signed-rank test detects with the required power, NaN if none.
        margin: the smallest margin within which equivalence is shown with the required power, the true mean difference
            being 0; NaN where the interval is undefined too often.
        at_margin: the power of showing equivalence within a given margin, NaN without one.
        repeats: number of simulated studies.
        note: a warning to print with it, "" for none.
    """

    effect: float
    margin: float
    at_margin: float
    repeats: int
    note: str = ""


def simulate_power(
    design: Paired,
    *,
    seed: int,
    chance: float = 0.8,
    level: float = 0.05,
    margin: float | None = None,
    repeats: int = REPEATS,
) -> SimulatedPower:
    """Simulate the design and count the results of its tests.

    Args:
        design: the assumptions.
        seed: root seed; the same arguments give the same numbers.
        chance: required power, in (0, 1).
        level: level of each test: two-sided for the signed-rank test, of each side for equivalence.
        margin: a margin whose power is returned too.
        repeats: number of simulated studies.

    Raises:
        ValueError: a chance or a level out of range, or no repeats.
    """
    if not (0 < level < 0.5 and level < chance < 1 and repeats >= 1):
        raise ValueError(f"needs 0 < level < 0.5, level < chance < 1, repeats >= 1; got {level}, {chance}, {repeats}")
    margins = _margin_needed(draw_differences(design, 0.0, seed=seed, repeats=repeats)[0], design.share, level)
    margin_needed = float(np.sort(margins)[math.ceil(chance * repeats) - 1])
    effect = _detectable(design, seed, chance, level, repeats)
    notes = [
        "no difference between shares is seen with this chance" if math.isnan(effect) else "",
        "equivalence cannot be shown with this chance" if math.isinf(margin_needed) else "",
    ]
    return SimulatedPower(
        effect=effect,
        margin=margin_needed if math.isfinite(margin_needed) else math.nan,
        at_margin=math.nan if margin is None else float(np.mean(margins < margin)),
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


def _margin_needed(differences: Vector, is_share: bool, level: float) -> Vector:
    """Return ``[repeats]`` the smallest margin that contains each study's interval of confidence 1 - 2 level."""
    bounds = (-1.0, 1.0) if is_share else (-math.inf, math.inf)
    margins = np.empty(len(differences))
    for index, study in enumerate(differences):
        interval = mean_interval(study, bounds=bounds, confidence=1 - 2 * level, differences=True)
        margin = max(abs(interval.low), abs(interval.high))
        margins[index] = math.inf if math.isnan(margin) else margin
    return margins


def _detectable(design: Paired, seed: int, chance: float, level: float, repeats: int) -> float:
    """Return the smallest true mean difference that the signed-rank test detects with this power, by bisection."""

    true_mean: dict[float, float] = {}

    def detected(effect: float) -> bool:
        differences, clipped_mean = draw_differences(design, effect, seed=seed, repeats=repeats)
        true_mean[effect] = abs(clipped_mean)
        return bool(np.mean(_signed_rank_p(differences) <= level) >= chance)

    high = 1.0 if design.share else 8 * design.deviation
    if not detected(high):
        return math.nan
    return true_mean[smallest(detected, 0.0, high, _HALVINGS)]


def _signed_rank_p(differences: Vector) -> Vector:
    """Return ``[repeats]`` two-sided p values of the signed-rank test of each row of ``[repeats, G]`` differences."""
    if differences.shape[1] <= _EXACT_UP_TO:
        return np.array([signed_rank(study).p_value for study in differences])
    from scipy.stats import rankdata

    rounded = np.round(differences, 12)
    # Zeros have the lowest ranks; subtracting their number leaves the ranks among the others.
    zeros = (rounded == 0).sum(axis=1, keepdims=True)
    ranks = np.where(rounded == 0, 0.0, rankdata(np.abs(rounded), axis=1) - zeros)
    return normal_p(ranks, np.where(rounded > 0, ranks, 0.0).sum(axis=1))
