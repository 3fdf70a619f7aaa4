"""Power by simulation of the clustered paired design: grids as clusters, trajectories within, then the tests.

What `power` says in closed form for normal differences is counted here with the tests that will be used, on values as
they will be: shares of few trajectories, tied and clumped at their bounds.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.rng import stream
from goalscope.stats.compare import signed_rank
from goalscope.stats.intervals import mean_interval
from goalscope.stats.power import PairedDesign

REPEATS = 1000
"""Simulated studies: a chance of .8 is then known to ± .025."""

_EXACT_UP_TO = 25  # grids: beyond, the normal approximation of the test agrees to two digits
_HALVINGS = 11

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two conditions on G grids with T trajectories each, as they are assumed to be.

    Attributes:
        grids: number of grids G, >= 2.
        trajectories: trajectories T of each condition on each grid, >= 1.
        mean: mean value over grids.
        spread: standard deviation over grids of a grid's mean.
        between: standard deviation over grids of the true difference.
        within: standard deviation of one trajectory's value around its grid's mean.
        share: whether values are shares in [0, 1]; their noise is binomial then: a value is the share of good ones
            among as many independent decisions as `within` implies (one for a success). Else it is normal.

    Raises:
        ValueError: a number outside of its range, a mean outside of [0, 1] or a spread that it does not allow.
    """

    grids: int
    trajectories: int
    mean: float
    spread: float
    between: float
    within: float
    share: bool = True

    def __post_init__(self) -> None:
        numbers = (self.mean, self.spread, self.between, self.within)
        if self.grids < 2 or self.trajectories < 1 or not all(map(math.isfinite, numbers)) or min(numbers[1:]) < 0:
            raise ValueError(f"a design needs grids >= 2, trajectories >= 1 and deviations >= 0, got {self}")
        if self.share and not (0 <= self.mean <= 1 and self.spread**2 <= self.mean * (1 - self.mean) + 1e-12):
            raise ValueError(
                "the mean of shares must lie in [0, 1] and their spread over grids be at most sqrt(mean (1 - mean)), "
                f"got mean {self.mean:g} and spread {self.spread:g}"
            )

    @property
    def decisions(self) -> int:
        """Independent decisions that the value of one trajectory averages, where values are shares."""
        noise = self.mean * (1 - self.mean) - self.spread**2
        return max(1, round(noise / self.within**2)) if self.within > 0 and noise > 0 else 1

    def closed_form(self) -> PairedDesign | None:
        """Return the same design for the closed form, None where it has no variance to speak of."""
        if self.between == 0 and self.within == 0:
            return None
        return PairedDesign(grids=self.grids, trajectories=self.trajectories, between=self.between, within=self.within)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPower:
    """What a design can show, counted over simulated studies.

    Attributes:
        effect: the smallest mean difference that the signed-rank test sees with the wanted chance, NaN where none does.
        margin: the smallest margin within which equivalence is shown with the wanted chance, the true mean difference
            being 0; NaN where the interval is undefined so often.
        at_margin: the chance of showing equivalence within a margin that was given, NaN without one.
        repeats: number of simulated studies.
        note: what a reader must know, "" for nothing.
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
    """Simulate the design and count what its tests show.

    Args:
        design: what is assumed.
        seed: root seed; the same arguments give the same numbers.
        chance: wanted power, in (0, 1).
        level: level of each test: two-sided for the signed-rank test, of each side for equivalence.
        margin: a margin whose power is asked for.
        repeats: number of simulated studies.

    Raises:
        ValueError: a chance or a level out of range, or no repeats.
    """
    if not (0 < level < 0.5 and level < chance < 1 and repeats >= 1):
        raise ValueError(f"needs 0 < level < 0.5, level < chance < 1, repeats >= 1; got {level}, {chance}, {repeats}")
    reach = _reach(draw_differences(design, 0.0, seed=seed, repeats=repeats)[0], design.share, level)
    smallest = float(np.sort(reach)[math.ceil(chance * repeats) - 1])
    effect = _detectable(design, seed, chance, level, repeats)
    notes = [
        "no difference between shares is seen with this chance" if math.isnan(effect) else "",
        "equivalence cannot be shown with this chance" if math.isinf(smallest) else "",
    ]
    return SimulatedPower(
        effect=effect,
        margin=smallest if math.isfinite(smallest) else math.nan,
        at_margin=math.nan if margin is None else float(np.mean(reach < margin)),
        repeats=repeats,
        note="; ".join(note for note in notes if note),
    )


def draw_differences(design: Paired, effect: float, *, seed: int, repeats: int) -> tuple[Values, float]:
    """Draw studies: the differences of the means of both conditions, grid by grid.

    Args:
        design: what is assumed.
        effect: the intended mean difference; the bounds of shares may leave less of it.
        seed: root seed; other effects are drawn from the same random numbers.
        repeats: number of studies.

    Returns:
        ``[repeats, G]`` differences, and the true mean difference that the bounds leave.
    """
    rng = stream(seed, "simulated power")
    shape = (repeats, design.grids)
    true = effect + design.between * rng.standard_normal(shape)
    if not design.share:
        deviation = design.within * math.sqrt(2 / design.trajectories)
        return true + deviation * rng.standard_normal(shape), effect
    base = _chances(design, rng, shape)
    # Half of the difference on either side: without an effect the two conditions then are the same in distribution.
    chances = [np.clip(base + side * true / 2, 0, 1) for side in (1, -1)]
    count = design.trajectories * design.decisions
    first, second = (rng.binomial(count, chance) / count for chance in chances)
    return first - second, float(np.mean(chances[0] - chances[1]))


def _chances(design: Paired, rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Draw each grid's chance from the beta distribution of this mean and spread."""
    room = design.mean * (1 - design.mean)
    if design.spread == 0 or room == 0:
        return np.full(shape, design.mean)
    weight = room / design.spread**2 - 1
    if weight < 1e-6:  # all or nothing
        return (rng.random(shape) < design.mean).astype(np.float64)
    return rng.beta(design.mean * weight, (1 - design.mean) * weight, shape)


def _reach(differences: Values, share: bool, level: float) -> Values:
    """Return ``[repeats]`` the margin that each study's interval of confidence 1 - 2 level just fits into."""
    bounds = (-1.0, 1.0) if share else (-math.inf, math.inf)
    found = np.empty(len(differences))
    for index, study in enumerate(differences):
        interval = mean_interval(study, bounds=bounds, confidence=1 - 2 * level, differences=True)
        ends = max(abs(interval.low), abs(interval.high))
        found[index] = math.inf if math.isnan(ends) else ends
    return found


def _detectable(design: Paired, seed: int, chance: float, level: float, repeats: int) -> float:
    """Return the smallest true mean difference that the signed-rank test sees with this chance, by bisection."""

    def seen(effect: float) -> tuple[bool, float]:
        differences, true = draw_differences(design, effect, seed=seed, repeats=repeats)
        return bool(np.mean(_p_values(differences) <= level) >= chance), abs(true)

    high = 1.0 if design.share else 8 * math.sqrt(design.between**2 + 2 * design.within**2 / design.trajectories)
    reached, true = seen(high)
    if not reached:
        return math.nan
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        reached, there = seen(middle)
        if reached:
            high, true = middle, there
        else:
            low = middle
    return true


def _p_values(differences: Values) -> Values:
    """Return ``[repeats]`` two-sided p values of the signed-rank test of each row of ``[repeats, G]`` differences."""
    if differences.shape[1] <= _EXACT_UP_TO:
        return np.array([signed_rank(study).p_value for study in differences])
    from scipy.special import ndtr
    from scipy.stats import rankdata

    rounded = np.round(differences, 12)
    # Zeros take the lowest ranks, which are taken off again: ranks among the others are what is left.
    zeros = (rounded == 0).sum(axis=1, keepdims=True)
    ranks = np.where(rounded == 0, 0.0, rankdata(np.abs(rounded), axis=1) - zeros)
    deviation = np.sqrt((ranks**2).sum(axis=1) / 4)
    distance = np.abs(np.where(rounded > 0, ranks, 0.0).sum(axis=1) - ranks.sum(axis=1) / 2)
    score = np.divide(np.maximum(0.0, distance - 0.5), deviation, out=np.zeros(len(deviation)), where=deviation > 0)
    p_values: Values = np.where(deviation > 0, 2 * ndtr(-score), 1.0)
    return np.minimum(p_values, 1.0)
