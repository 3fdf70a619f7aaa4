"""Power of a paired comparison over grids, before a run."""

import math
from collections.abc import Callable
from dataclasses import dataclass

_MOST_GRIDS = 1_000_000
_QUANTILES = 4000  # of the sample deviation; the midpoint rule is then right to four digits


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
        finite = math.isfinite(self.between) and math.isfinite(self.within)
        if self.grids < 2 or self.trajectories < 1 or not finite or min(self.between, self.within) < 0:
            raise ValueError(f"a design needs grids >= 2, trajectories >= 1 and deviations >= 0, got {self}")
        if self.between == 0 and self.within == 0:
            raise ValueError("a design needs a deviation above 0, got between = within = 0: then any effect is seen")

    @property
    def deviation(self) -> float:
        """Standard deviation over grids of the observed difference of means."""
        return math.sqrt(self.between**2 + 2 * self.within**2 / self.trajectories)


def power(design: PairedDesign, effect: float, *, level: float = 0.05) -> float:
    """Return the chance that a two-sided paired t test over grids sees a true mean difference.

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
    # scipy returns NaN far out in a tail, where the chance lies below 1e-15.
    return 1 - (0.0 if math.isnan(missed) else missed) + (0.0 if math.isnan(wrong_side) else wrong_side)


def minimum_detectable_effect(design: PairedDesign, *, chance: float = 0.8, level: float = 0.05) -> float:
    """Return the smallest true mean difference that is seen with the given chance.

    Args:
        design: grids, trajectories and deviations.
        chance: wanted power, above ``level`` and below 1.
        level: two-sided level.

    Returns:
        The effect in the measure's unit, to a relative 1e-9.
    """
    _check_chance(chance, level)
    return _smallest(lambda size: power(design, size, level=level), chance, design.deviation)


def _smallest(chance_of: Callable[[float], float], chance: float, start: float) -> float:
    """Return the smallest size whose chance reaches ``chance``; larger sizes have larger chances."""
    low, high = 0.0, start
    while chance_of(high) < chance:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(middle) < chance else (low, middle)
    return high


def equivalence_power(design: PairedDesign, margin: float, *, level: float = 0.05) -> float:
    """Return the chance that two one-sided t tests over grids show equivalence when the true mean difference is 0.

    Args:
        design: grids, trajectories and deviations.
        margin: the greatest difference that counts as none, > 0, in the measure's unit.
        level: level of each one-sided test, in (0, 0.5).

    Source: Phillips, Journal of Pharmacokinetics and Biopharmaceutics 18 (1990); the chance given the sample's
        deviation is normal, and is averaged over the quantiles of that deviation.
    """
    import numpy as np
    from scipy.special import gammaincinv, ndtr, stdtrit

    if not (math.isfinite(margin) and margin > 0 and 0 < level < 0.5):
        raise ValueError(
            f"equivalence needs a finite margin above 0 and a level inside (0, 0.5), got {margin!r} and {level!r}"
        )
    degrees = design.grids - 1
    shares = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    ratio = np.sqrt(2 * gammaincinv(degrees / 2, shares) / degrees)  # sample deviation over true deviation
    reach = margin * math.sqrt(design.grids) / design.deviation - float(stdtrit(degrees, 1 - level)) * ratio
    return float(np.mean(np.where(reach > 0, 2 * ndtr(reach) - 1, 0.0)))


def smallest_margin(design: PairedDesign, *, chance: float = 0.8, level: float = 0.05) -> float:
    """Return the smallest margin within which equivalence is shown with the given chance, the true difference being 0.

    Args:
        design: grids, trajectories and deviations.
        chance: wanted power, above ``level`` and below 1.
        level: level of each one-sided test.

    Returns:
        The margin in the measure's unit.
    """
    _check_chance(chance, level)
    return _smallest(lambda size: equivalence_power(design, size, level=level), chance, design.deviation)


def grids_needed(design: PairedDesign, effect: float, *, chance: float = 0.8, level: float = 0.05) -> int:
    """Return the smallest number of grids with which an effect is seen with the given chance.

    Args:
        design: trajectories and deviations; its number of grids is not used.
        effect: the true mean difference, not 0, in the measure's unit.
        chance: wanted power.
        level: two-sided level.

    Raises:
        ValueError: an effect of 0, or one that a million grids do not show.
    """
    _check_chance(chance, level)

    def enough(grids: int) -> bool:
        sized = PairedDesign(
            grids=grids, trajectories=design.trajectories, between=design.between, within=design.within
        )
        return power(sized, effect, level=level) >= chance

    high = 2
    while not enough(high):
        high *= 2
        if effect == 0 or high > _MOST_GRIDS:
            raise ValueError(f"the effect must be large enough for {_MOST_GRIDS} grids to show it, got {effect!r}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, 2)


def _check_chance(chance: float, level: float) -> None:
    if not 0 < level < chance < 1:
        raise ValueError(f"the wanted power must lie between the level and 1, got power {chance!r}, level {level!r}")
