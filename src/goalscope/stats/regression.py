"""Least squares over rows whose clusters are independent, each cluster with the same weight.

With ``A_g = X_g' X_g / n_g`` and ``b_g = X_g' y_g / n_g`` of the ``n_g`` rows of cluster g, the coefficients are
``(sum A_g)^-1 sum b_g``. Their covariance is that of the delete-one-cluster jackknife, ``(G - 1) / G sum_g d_g d_g'``
with ``d_g`` the change of the coefficients without cluster g; intervals are those of t with G - 1 degrees of freedom.

Source: Bell and McCaffrey (2002), Bias reduction in standard errors for linear regression with multi-stage samples;
MacKinnon, Nielsen and Webb (2023), Fast and reliable jackknife and bootstrap methods for cluster-robust inference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.stats.estimate import Estimate, Labels, factorize
from goalscope.stats.intervals import check_confidence

METHOD = "cluster jackknife, t"
_SINGULAR = 1e-9  # minimum ratio of the singular values of a solvable design


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regression:
    """Coefficients with their covariance over clusters.

    Attributes:
        names: ``[K]`` of the columns of the design.
        values: ``[K]`` coefficients, in the unit of the outcome for one unit of the column.
        covariance: ``[K, K]``; NaN where a coefficient is undefined without one of the clusters.
        n: number of rows.
        clusters: number of clusters.
        unit: unit of the outcome.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    n: int
    clusters: int
    unit: str

    def estimate(self, weights: Mapping[str, float], *, confidence: float = 0.95) -> Estimate:
        """Return a sum of coefficients with its interval, e.g. ``{"size 9": 1, "size 7": -1}`` for a difference.

        Raises:
            ValueError: a name that is no column.
        """
        from scipy.special import stdtrit

        check_confidence(confidence)
        if unknown := [name for name in weights if name not in self.names]:
            raise ValueError(f"coefficients must be among {', '.join(self.names)}, got {', '.join(unknown)}")
        vector = np.array([weights.get(name, 0.0) for name in self.names])
        value, variance = float(vector @ self.values), float(vector @ self.covariance @ vector)
        # Rounding leaves a variance of about 1e-33 where all clusters agree.
        low, high, note = math.nan, math.nan, "no interval: leaving out one cluster leaves it undefined"
        if not math.isnan(variance):
            half = float(stdtrit(self.clusters - 1, (1 + confidence) / 2)) * math.sqrt(max(variance, 0.0))
            note = "no interval: all clusters agree"
            if half > 1e-12 * max(1.0, abs(value)):
                low, high, note = value - half, value + half, ""
        return Estimate(
            value=value,
            low=low,
            high=high,
            n=self.n,
            clusters=self.clusters,
            method=METHOD,
            unit=self.unit,
            confidence=confidence,
            note=note,
        )


def regress(outcome: npt.ArrayLike, columns: Mapping[str, npt.ArrayLike], clusters: Labels, *, unit: str) -> Regression:
    """Fit an outcome by least squares with equal weights of the clusters.

    Args:
        outcome: ``[N]`` values; rows with NaN are left out.
        columns: name -> ``[N]`` finite values; a constant column, if wanted, is one of them.
        clusters: ``[N]`` the cluster of each row.
        unit: the unit of the outcome.

    Raises:
        ValueError: columns of other lengths or that are not finite, fewer than two clusters, or columns that depend on
            each other in these rows.
    """
    y, labels = np.asarray(outcome, dtype=np.float64), np.asarray(clusters, dtype=object)
    design = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    if y.shape != labels.shape or len(design) != len(y) or not np.isfinite(design).all():
        raise ValueError(
            f"columns must be finite and as long as the outcome and its clusters ({len(y)}, {len(labels)}), got "
            f"{len(design)} rows: leave out rows without a value"
        )
    defined = ~np.isnan(y)
    y, design = y[defined], design[defined]
    codes, names = factorize(labels[defined])
    if len(names) < 2:
        raise ValueError(f"a regression must have at least 2 clusters with a value, got {len(names)}")
    weights = 1.0 / np.bincount(codes)[codes]
    count, width = len(names), design.shape[1]
    normal, moment = np.zeros((count, width, width)), np.zeros((count, width))
    np.add.at(normal, codes, weights[:, None, None] * design[:, :, None] * design[:, None, :])
    np.add.at(moment, codes, (weights * y)[:, None] * design)
    total = normal.sum(axis=0)
    if not _solvable(total[None])[0]:
        raise ValueError(
            f"the columns {', '.join(columns)} must not depend on each other in these rows: leave one out, or use "
            "worlds in which they vary apart"
        )
    values = np.linalg.solve(total, moment.sum(axis=0))
    without = total - normal
    if _solvable(without).all():
        changes = np.linalg.solve(without, (moment.sum(axis=0) - moment)[:, :, None])[:, :, 0] - values
        covariance = (count - 1) / count * changes.T @ changes
    else:
        covariance = np.full((width, width), np.nan)
    return Regression(names=tuple(columns), values=values, covariance=covariance, n=len(y), clusters=count, unit=unit)


def indicators(values: Sequence[object]) -> dict[str, npt.NDArray[np.float64]]:
    """Return a column for each different value, 1 where it holds, in order of appearance: ``{"7": [N]}``."""
    labels = dict.fromkeys(values)
    return {str(label): np.array([float(value == label) for value in values]) for label in labels}


def _solvable(matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which of ``[M, K, K]`` normal equations, their columns scaled to length 1, have one solution."""
    scale = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    safe = np.where(scale > 0, scale, 1.0)
    singular = np.linalg.svd(matrices / safe[:, :, None] / safe[:, None, :], compute_uv=False)
    return np.asarray((singular[:, -1] > _SINGULAR * singular[:, 0]) & (scale > 0).all(axis=1))
