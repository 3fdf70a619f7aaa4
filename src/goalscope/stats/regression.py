"""Least squares over rows in independent clusters that all have the same weight.

With ``A_g = X_g' X_g / n_g`` and ``b_g = X_g' y_g / n_g`` over the ``n_g`` rows of cluster g, the coefficients are
``(sum A_g)^-1 sum b_g``. Their covariance is that of the delete-one-cluster jackknife, ``(G - 1) / G sum_g d_g d_g'``
with ``d_g`` the change of the coefficients without cluster g; intervals use t with G - 1 degrees of freedom.

Source: Bell and McCaffrey (2002), Bias reduction in standard errors for linear regression with multi-stage samples;
MacKinnon, Nielsen and Webb (2023), Fast and reliable jackknife and bootstrap methods for cluster-robust inference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.stats.estimate import Estimate, Labels, factorize

METHOD = "cluster jackknife, t"
_SINGULAR = 1e-9  # minimum ratio of the singular values of a solvable design


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regression:
    """Coefficients of a linear regression with their covariance, estimated over independent clusters (e.g. grids).

    Attributes:
        names: ``[K]`` names of the design's columns.
        values: ``[K]`` coefficients, in units of the outcome per unit of the column.
        covariance: ``[K, K]`` covariance; NaN if leaving out some cluster makes the coefficients undefined.
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
        """Estimate a weighted sum of coefficients, with an interval over clusters.

        Args:
            weights: name of a column -> weight, e.g. ``{"size 9": 1, "size 7": -1}`` for a difference; other columns
                have weight 0.
            confidence: nominal coverage of the interval.

        Raises:
            ValueError: if a name is not a column of the regression.
        """
        from scipy.special import stdtrit

        if unknown := [name for name in weights if name not in self.names]:
            raise ValueError(
                f"there is no coefficient {', '.join(unknown)}: the coefficients are {', '.join(self.names)}"
            )
        vector = np.array([weights.get(name, 0.0) for name in self.names])
        value, variance = float(vector @ self.values), float(vector @ self.covariance @ vector)
        # If all clusters agree, rounding still leaves a variance of about 1e-33.
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
    """Fit an outcome as a linear function of columns by least squares, with the same weight for every cluster.

    Args:
        outcome: ``[N]`` values; rows with NaN are left out.
        columns: name -> ``[N]`` finite values. Include a constant column if you want an intercept.
        clusters: ``[N]`` the cluster (e.g. grid) of each row.
        unit: the unit of the outcome.

    Raises:
        ValueError: columns of the wrong length or with values that are not finite, fewer than two clusters, or
            linearly dependent columns.
    """
    y, labels = np.asarray(outcome, dtype=np.float64), np.asarray(clusters, dtype=object)
    design = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    if y.shape != labels.shape or len(design) != len(y) or not np.isfinite(design).all():
        raise ValueError(
            f"columns must be finite and as long as the outcome ({len(y)}) and its clusters "
            f"({len(labels)}), got {len(design)} rows: drop rows without a value"
        )
    defined = ~np.isnan(y)
    y, design = y[defined], design[defined]
    codes, names = factorize(labels[defined])
    if len(names) < 2:
        raise ValueError(f"a regression needs at least 2 clusters with a value, got {len(names)}")
    weights = 1.0 / np.bincount(codes)[codes]
    count, width = len(names), design.shape[1]
    normal, moment = np.zeros((count, width, width)), np.zeros((count, width))
    np.add.at(normal, codes, weights[:, None, None] * design[:, :, None] * design[:, None, :])
    np.add.at(moment, codes, (weights * y)[:, None] * design)
    total = normal.sum(axis=0)
    if not _solvable(total[None])[0]:
        raise ValueError(
            f"the columns {', '.join(columns)} are linearly dependent in these rows: leave one out, or "
            "use worlds in which they vary independently"
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
    """Build the indicator (dummy) columns of a regression: for each distinct value a column ``[N]`` of 0 and 1.

    The keys are the values as text, in order of appearance, e.g. ``{"7": ..., "9": ...}``.
    """
    labels = dict.fromkeys(values)
    return {str(label): np.array([float(value == label) for value in values]) for label in labels}


def _solvable(matrices: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return ``[M]`` whether each of ``[M, K, K]`` normal equations, with scaled columns, has one solution."""
    scale = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    safe = np.where(scale > 0, scale, 1.0)
    singular = np.linalg.svd(matrices / safe[:, :, None] / safe[:, None, :], compute_uv=False)
    return np.asarray((singular[:, -1] > _SINGULAR * singular[:, 0]) & (scale > 0).all(axis=1))
