"""How well scores rank positives above the others, group by group, whatever the threshold."""

from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape


def average_precision(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Return the sum over thresholds of (recall gained) times precision; equal scores share one threshold.

    The share of positives ``[M]`` where the scores ``[M]`` say nothing, NaN without a positive.

    Source: the estimate that information retrieval uses, without interpolation.
    """
    given, truth = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=bool)
    check_shape("positive", truth, "M", check_shape("scores", given, "M"))
    check_finite("scores", given)
    return float(rank_scores(given, truth, np.zeros(len(given), dtype=np.int64), 1)[1][0])


def rank_scores(
    scores: npt.NDArray[Any], positive: npt.NDArray[np.bool_], codes: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return how well scores rank the positives of each of G groups above its others.

    Args:
        scores, positive, codes: ``[M]`` finite scores, whether each is of a positive, and the number of its group.
        count: number G of groups.

    Returns:
        ``[G]`` the area under the receiver operating characteristic, which is the share of pairs of a positive and
        another in which the positive scores higher (ties count half), NaN without a pair; and ``[G]`` the average
        precision, see `average_precision`, NaN without a positive.

    Source: Hanley and McNeil, Radiology 143 (1982), for the area as a share of pairs.
    """
    order = np.lexsort((-scores, codes))
    ranked, truth, group = scores[order], positive[order], codes[order]
    ends = np.flatnonzero(np.append((np.diff(ranked) != 0) | (np.diff(group) != 0), True))[: len(ranked)]
    of = group[ends]  # the group of each threshold
    sizes = np.bincount(codes, minlength=count)
    hits = np.bincount(codes, positive, count)
    above = np.cumsum(truth)[ends] - (np.cumsum(hits) - hits)[of]  # positives at this threshold or above
    called = ends + 1 - (np.cumsum(sizes) - sizes)[of]
    begins = np.append(True, np.diff(of) != 0)[: len(of)]
    before, called_before = (np.where(begins, 0, np.roll(one, 1)) for one in (above, called))
    gained, others = above - before, called - called_before - (above - before)
    pairs_won = np.bincount(of, others * (before + gained / 2), count)
    precision = np.bincount(of, gained * above / called, count)
    return ratio(pairs_won, hits * (sizes - hits)), ratio(precision, hits)


def ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return ``above / below``, ``[G]`` each, NaN where nothing is below the line."""
    return np.asarray(np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0))
