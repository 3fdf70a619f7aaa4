"""How much of a plan is decoded: rows for each tested grid, so that every number has an interval over grids."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape
from goalscope.probing.cells import Cells, grids_of, members, ratio
from goalscope.probing.paired import chosen, paired_rows
from goalscope.probing.plans import END, UNKNOWN, Plans, check_tokens
from goalscope.rows import Rows, Tag
from goalscope.stats import LESS, Estimate, Grouped, estimate_rows
from goalscope.stats.estimate import factorize

PREFIX: Final = "prefix accuracy"
LENGTHS: Final = ("length match", "predicted length", "executed length", "length error", "median length error")
SUBSETS: Final = ("all", "long")
"""Which plans are scored at N: all of them, or (the authors' subset) those with at least N actions."""
_BY: Final = ("site", "layer", "head", "control", "plans", "N")
_KEY: Final = ("site", "layer", "plans", "N")


def prefix_matches(predicted: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return whether the first N tokens are all right, for N = 1 to T.

    Args:
        predicted: ``[N, T]`` tokens.
        tokens: ``[N, T]`` executed tokens, -1 where unknown.

    Returns:
        ``[N, T]`` 1 or 0, NaN from the first unknown place on.
    """
    check_tokens("predicted", predicted)
    return _known(np.logical_and.accumulate(predicted == tokens, axis=1).astype(np.float64), tokens)


def chance_matches(chances: npt.NDArray[np.float64], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the chance that the first N tokens are all right, from the chance of each given those before, ``[N, T]``.

    Args:
        chances: ``[N, T]`` in [0, 1].
        tokens: ``[N, T]`` executed tokens, -1 where unknown.
    """
    return _known(np.cumprod(chances, axis=1, dtype=np.float64), tokens)


def score_prefixes(matches: npt.NDArray[np.float64], plans: Plans, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return prefix accuracy for each tested grid and N.

    Args:
        matches: ``[N, T]`` from `prefix_matches`, `chance_matches` or a baseline.
        plans: the executed plans.
        cells: the same steps.
        tags: kept with every row: head, control, site, layer, ...

    Returns:
        Rows tagged by N, plans ("all", or "long": at least N actions), size and density; NaN where a grid has no such
        plan.
    """
    check_shape("matches", matches, "N T", {"N": len(plans), "T": plans.horizon})
    plans.check_aligned(cells)
    codes, grids, about = grids_of(cells)
    parts = []
    for number in range(1, plans.horizon + 1):
        values, token = matches[:, number - 1], plans.tokens[:, number - 1]
        for name in SUBSETS:
            used = np.where((token != END) & (token != UNKNOWN), values, np.nan) if name == "long" else values
            parts.append(
                Rows.from_columns(
                    measure=PREFIX,
                    unit="share",
                    value=_means(used, codes, len(grids)),
                    grid_id=grids,
                    tags={**tags, **about, "N": number, "plans": name},
                )
            )
    return Rows.concatenate(parts)


def score_lengths(predicted: npt.ArrayLike, plans: Plans, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return how well the length of plans is decoded, for each tested grid.

    Args:
        predicted: ``[N]`` predicted lengths, at most T; NaN where nothing is predicted.
        plans: the executed plans; those whose length is not known are left out.
        cells: the same steps.
        tags: kept with every row.

    Returns:
        Rows of "length match" (share), and in steps "predicted length", "executed length", "length error" (predicted
        less executed: the bias) and "median length error" (of the absolute error, over the grid's steps).
    """
    plans.check_aligned(cells)
    given, true = np.asarray(predicted, dtype=np.float64), plans.length
    check_shape("predicted", given, "N", {"N": len(plans)})
    codes, grids, about = grids_of(cells)
    error = given - true
    undefined = np.isnan(error)
    columns = {
        "length match": np.where(undefined, np.nan, error == 0),
        "predicted length": np.where(undefined, np.nan, given),
        "executed length": np.where(undefined, np.nan, true),
        "length error": error,
    }
    values = {name: _means(column, codes, len(grids)) for name, column in columns.items()}
    absolute = [np.abs(error[mine[~undefined[mine]]]) for mine in members(codes, len(grids))]
    values["median length error"] = np.array([np.median(one) if len(one) else np.nan for one in absolute])
    return Rows.concatenate(
        Rows.from_columns(
            measure=name,
            unit="share" if name == "length match" else "steps",
            value=value,
            grid_id=grids,
            tags={**tags, **about},
        )
        for name, value in values.items()
    )


def plan_differences(rows: Rows, head: str, control: str, against: Mapping[str, Tag], *, name: str) -> Rows:
    """Return prefix accuracy less that of a baseline or control, paired by grid.

    Args:
        rows: from the scores of a suite.
        head, control: whose accuracy.
        against: tags of what is subtracted, e.g. ``{"head": "decoder-2", "control": "untrained"}``.
        name: what that is called.
    """
    own = chosen(rows, measure=PREFIX, head=head, control=control)
    return paired_rows(own, chosen(rows, measure=PREFIX, **against), name=name, by=_KEY)


def summarise_plans(rows: Rows, by: Sequence[str] = _BY, *, horizon: int = 10) -> list[Grouped]:
    """Return every score with its interval over grids; a median is that of the grids.

    Args:
        rows: scores of plans, or differences of them.
        by: tags to group by.
        horizon: places T, the greatest length.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for measure, unit in set(zip(rows.measure.tolist(), rows.unit.tolist(), strict=True)):
        most = 1.0 if unit == "share" else float(horizon)
        bounds[measure] = (-most, most) if LESS in measure or measure == "length error" else (0.0, most)
    median = rows.measure == LENGTHS[-1]
    found = estimate_rows(rows.where(~median), by=by, bounds=bounds)
    medians = rows.where(median)
    for grouped in estimate_rows(medians, by=by, bounds=bounds):
        mine = chosen(medians, **{name: value for name, value in grouped.key.items() if name != "measure"})
        found.append(Grouped(key=grouped.key, estimate=median_over_grids(mine.value, mine.grid_id, unit="steps")))
    return found


def median_over_grids(
    values: npt.ArrayLike, clusters: Sequence[Any] | npt.NDArray[Any], *, unit: str, confidence: float = 0.95
) -> Estimate:
    """Estimate the median over grids; its interval ends at two of the grids' own values.

    Args:
        values: ``[N]`` values, NaN where undefined; the median is taken within each grid first.
        clusters: ``[N]`` the grid of each value.
        unit: the unit of the values.
        confidence: least coverage.

    Returns:
        The estimate; without an interval where there are too few grids for one, or where both ends are one value.

    Source: the exact interval from the binomial distribution (sign test); Conover, Practical Nonparametric Statistics.
    """
    numbers = np.asarray(values, dtype=np.float64)
    codes, labels = factorize(clusters)
    defined = ~np.isnan(numbers)
    values_of = members(codes[defined], len(labels))
    points = np.sort([np.median(numbers[defined][mine]) for mine in values_of if len(mine)])
    count = len(points)
    low = high = math.nan
    note = "too few grids for an interval of a median"
    # Largest k such that P(Binomial(count, 1/2) < k) <= tail: the interval is [x_(k), x_(count + 1 - k)].
    tail, below, rank = (1 - confidence) / 2, 0.0, 0
    while rank <= count // 2 and (below := below + math.comb(count, rank) / 2**count) <= tail:
        rank += 1
    if count and rank:
        low, high, note = float(points[rank - 1]), float(points[count - rank]), ""
        if low == high:
            note, low, high = f"both ends of the interval are {low:g} {unit}", math.nan, math.nan
    return Estimate(
        value=float(np.median(points)) if count else math.nan,
        low=low,
        high=high,
        n=int(defined.sum()),
        clusters=count,
        method="none" if math.isnan(low) else "order statistics (sign test) of the median",
        unit=unit,
        confidence=confidence,
        note=note,
        undefined=int((~defined).sum()),
        without=len(labels) - count,
    )


def _known(matches: npt.NDArray[np.float64], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    check_tokens("tokens", tokens)
    check_shape("matches", matches, "N T", check_shape("tokens", tokens, "N T"))
    # A miss before the first unknown place is left out too: else only failures of these plans would count.
    matches[tokens == UNKNOWN] = np.nan
    return matches


def _means(values: npt.NDArray[Any], codes: npt.NDArray[np.int64], grids: int) -> npt.NDArray[np.float64]:
    """Return the mean of the defined values of each grid, NaN without one."""
    defined = ~np.isnan(values)
    counts = np.bincount(codes[defined], minlength=grids)
    sums = np.bincount(codes[defined], values[defined], minlength=grids)
    return ratio(sums, counts)
