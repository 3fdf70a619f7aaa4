"""Test of equivalence of two conditions on the same clusters, valid for any distribution of the differences.

An interval from the sample's own variance ignores clusters that were not sampled. Suppose one of two agents fails on
a tenth of all grids, and they agree elsewhere. In 28 % of studies, a sample of 12 grids contains none of the grids
where it fails, and the interval is as narrow as if no such grids existed. The test here therefore adds the greatest
possible difference to the sample as one more observation.
"""

import math
from dataclasses import dataclass

import numpy as np

from goalscope.stats.compare import PairedComparison
from goalscope.stats.intervals import Vector

FARTHEST = 10
"""Without bounds: the greatest difference of a cluster that is reckoned with, in margins."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_HALVINGS = 20
_TOGETHER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Result of two one-sided tests of a mean difference against a margin.

    Attributes:
        margin: the largest difference regarded as negligible, > 0, in the unit of the measure.
        p_value: the smallest level at which both one-sided tests reject; NaN with fewer than two clusters.
        equivalent: whether ``p_value <= level``.
        level: the level of each one-sided test.
        note: a warning to print with it, "" for none.
    """

    margin: float
    p_value: float
    equivalent: bool
    level: float
    note: str = ""


def equivalence(comparison: PairedComparison, margin: float, *, level: float = 0.05) -> Equivalence:
    """Test whether the mean difference lies inside (-margin, margin): two one-sided tests by `chance_beyond`.

    If all G clusters show no difference, p is ``(1 - margin / maximum)**G``. That is the probability of sampling none
    of the clusters that would make the mean differ by the margin, and it is the smallest p value that G clusters can
    give. Without bounds, the greatest possible difference is taken to be ten margins or the greatest observed
    difference, whichever is larger, and a note says so.

    Args:
        comparison: from `paired_difference`.
        margin: the largest difference regarded as negligible, > 0, in the measure's unit; choose it before seeing the
            data.
        level: the level of each one-sided test, in (0, 0.5).

    Raises:
        ValueError: a margin that is not a finite number above 0 and below the greatest possible difference, or a level
            outside of (0, 0.5).

    Source: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), for two one-sided tests.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(
            f"margin must be a finite number above 0, got {margin!r}: no number of clusters can show that "
            "a difference is exactly 0. Set margin to the largest difference that does not matter to you"
        )
    maximum = comparison.bounds[1]
    if margin >= maximum:
        raise ValueError(
            f"margin must be below the greatest possible difference ({maximum:g}), got {margin!r}: any "
            "two conditions differ by less than that. Set margin to the largest difference that does not "
            "matter to you"
        )
    if not 0 < level < 0.5:
        raise ValueError(f"level must lie inside (0, 0.5), got {level!r}: set e.g. level=0.05")
    differences, count = comparison.differences, len(comparison.differences)
    if count < 2:
        note = f"{'one' if count else 'no'} cluster: undefined"
        return Equivalence(margin=margin, p_value=math.nan, equivalent=False, level=level, note=note)
    notes = []
    if not math.isfinite(maximum):
        maximum = float(_reckoned(differences, margin, maximum)[..., 0])
        notes.append(f"no bounds: equality assumes that no cluster differs by more than {maximum:g}")
    needed = clusters_needed(margin, maximum, level)
    if count < needed:
        notes.append(f"{count} clusters cannot show equality within {margin:g}: at least {needed}")
    p_value = float(chance_beyond(differences, margin, maximum))
    return Equivalence(margin=margin, p_value=p_value, equivalent=p_value <= level, level=level, note="; ".join(notes))


def clusters_needed(margin: float, maximum: float, level: float) -> int:
    """Return how many clusters are needed to show equivalence if no cluster shows any difference."""
    return math.ceil(math.log(level) / math.log1p(-margin / maximum) - 1e-9)


def chance_beyond(differences: Vector, margin: float, maximum: float) -> Vector:
    """Compute p values ``[...]`` of both one-sided tests for ``[..., G]`` differences in [-maximum, maximum].

    An infinite maximum is replaced by ten margins or by the greatest difference, whichever is larger.

    The p value of the hypothesis that the mean is at least the margin is the probability that ``sum_g w_g d_g + w_0
    maximum`` is at least the margin, with ``(w_0, ..., w_G)`` uniform on the simplex. If every difference is 0 or the
    maximum, this is the exact binomial test. The other side is computed from ``-d``, and the larger of the two p
    values is returned.

    Source: Gaffke, Mathematical Methods of Statistics 14 (2005); Learned-Miller and Thomas, A new confidence interval
        for the mean of a bounded random variable (2019), whose simulations keep the level for any distribution.
    """
    sides = np.stack([differences, -differences])
    unseen = np.broadcast_to(_reckoned(differences, margin, maximum) - margin, (*sides.shape[:-1], 1))
    over = np.concatenate([sides - margin, unseen], axis=-1)
    return np.asarray(_chance_above_zero(over).max(axis=0))


def _reckoned(differences: Vector, margin: float, maximum: float) -> Vector:
    """Return ``[..., 1]`` the greatest difference that the test allows for."""
    greatest = np.abs(differences).max(axis=-1, keepdims=True)
    return np.full_like(greatest, maximum) if math.isfinite(maximum) else np.maximum(FARTHEST * margin, greatest)


def _chance_above_zero(terms: Vector) -> Vector:
    """Compute the probability ``[...]`` that ``sum_i E_i a_i > 0`` for terms a ``[..., N]`` and exponential variables
    E.

    Exponential variables divided by their sum are uniform on the simplex. With ``K(s) = -sum_i log(1 - s a_i)`` the
    chance is ``1/pi int_0^inf Re exp(K(t + i y)) / (t + i y) dy`` for any t in (0, 1 / max a). At the minimum of K the
    integrand does not oscillate, so that small probabilities remain accurate.
    """
    terms = terms / np.abs(terms).max(axis=-1, keepdims=True)
    greatest = terms.max(axis=-1)
    low, high = np.zeros(terms.shape[:-1]), 1 / greatest
    for _ in range(_HALVINGS):  # towards the root of K', which rises on (0, 1 / max a)
        middle = (low + high) / 2
        ratio = middle[..., None] * terms
        np.subtract(1, ratio, out=ratio)
        np.divide(terms, ratio, out=ratio)
        rises = ratio.sum(axis=-1) > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    shift = np.maximum(low, 0.02 / np.sqrt((terms**2).sum(axis=-1)))[..., None]
    width = 4 / np.sqrt(((terms / (1 - shift * terms)) ** 2).sum(axis=-1))[..., None]
    unit = (1 + _NODES) / 2
    points = shift + 1j * width * unit / (1 - unit)
    exponent = np.zeros(points.shape, dtype=np.complex128)
    for first in range(0, terms.shape[-1], _TOGETHER):  # few enough factors that their product does not overflow
        factors, factor = np.ones(points.shape, dtype=np.complex128), np.empty(points.shape, dtype=np.complex128)
        for index in range(first, min(first + _TOGETHER, terms.shape[-1])):
            np.multiply(points, terms[..., index, None], out=factor)
            np.subtract(1, factor, out=factor)
            factors *= factor
        exponent -= np.log(factors)
    integrand = (np.exp(exponent) / points).real * width * _WEIGHTS / 2 / (1 - unit) ** 2
    return np.asarray(np.clip(integrand.sum(axis=-1) / math.pi, 0.0, 1.0))
