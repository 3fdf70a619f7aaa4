"""How much of a plan and of a distance is decoded, by tested grid; baselines are in `goalscope.probing.plan_baselines`.

Source: behavioural and representational evaluation, section 5.3 (prefix accuracy), Appendix E.3 (distance).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape
from goalscope.probing.labels import END, UNKNOWN, Cells, Plans, check_tokens
from goalscope.probing.scores import Grids, Measured, chosen, members, paired_rows
from goalscope.rows import Rows, Tag
from goalscope.stats import DRAW, LESS, Estimate, Grouped, estimate_crossed, estimate_pooled, estimate_rows
from goalscope.stats.crossed import ONE_SEED
from goalscope.stats.estimate import factorize

PREFIX: Final = "prefix accuracy"
LENGTHS: Final = ("length match", "predicted length", "executed length", "length error", "median length error")
Subset = Literal["all", "long"]
SUBSETS: Final[tuple[Subset, ...]] = get_args(Subset)
"""Which plans are scored at N: all of them, or (the authors' subset) those with at least N actions."""
ERROR, SQUARED, DEVIATION = "distance error", "squared distance error", "squared distance deviation"
_BY: Final = ("site", "layer", "head", "control")
_NO_DEVIATION: Final = 1e-12  # relative to the greatest one


def prefix_matches(predicted: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return whether the first 1 to T tokens are all right, ``[N, T]``, NaN from the first unknown place on."""
    check_tokens("predicted", predicted)
    return _known(np.logical_and.accumulate(predicted == tokens, axis=1).astype(np.float64), tokens)


def chance_matches(chances: npt.NDArray[np.float64], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the chance that the first 1 to T tokens are right, from that of each given those before, ``[N, T]``."""
    return _known(np.cumprod(chances, axis=1, dtype=np.float64), tokens)


def _known(matches: npt.NDArray[np.float64], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    check_tokens("tokens", tokens)
    check_shape("matches", matches, "N T", check_shape("tokens", tokens, "N T"))
    # A miss before the first unknown place is left out too: else only failures of these plans would count.
    matches[tokens == UNKNOWN] = np.nan
    return matches


def score_prefixes(
    matches: npt.NDArray[np.float64],
    plans: Plans,
    cells: Cells,
    tags: Mapping[str, Tag],
    *,
    long: npt.NDArray[np.float64] | None = None,
) -> Rows:
    """Return prefix accuracy for each tested grid and N.

    Rows are tagged by N, plans ("all", or "long": at least N actions), size and density; NaN where a grid has no such
    plan. ``matches`` ``[N, T]`` come from `prefix_matches`, `chance_matches` or a baseline; ``long`` holds those for
    the long plans where a guess for them is another one.
    """
    given = {"all": matches, "long": matches if long is None else long}
    for one in given.values():
        check_shape("matches", one, "N T", {"N": len(plans), "T": plans.horizon})
    cells.check_aligned(plans, "plans")
    grids = Grids.of(cells)

    def measured() -> Iterator[Measured]:
        for number in range(1, plans.horizon + 1):
            for name in SUBSETS:
                used = np.where(in_subset(plans, number, name), given[name][:, number - 1], np.nan)
                yield PREFIX, "share", grids.mean(used), {"N": number, "plans": name}

    return grids.rows(measured(), tags)


def in_subset(plans: Plans, number: int, subset: Subset) -> npt.NDArray[np.bool_]:
    """Return which plans are scored at N, ``[N]``: those known so far, of the long ones those with N actions."""
    token = plans.tokens[:, number - 1]
    return np.asarray((token != UNKNOWN) & ((token != END) | (subset == "all")))


def score_lengths(predicted: npt.ArrayLike, plans: Plans, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return how well the length of plans is decoded, for each tested grid; plans of unknown length are left out.

    The bias "length error" is predicted less executed, "median length error" that of the absolute error over the
    grid's steps. ``predicted`` ``[N]`` is at most T, NaN where nothing is predicted.
    """
    cells.check_aligned(plans, "plans")
    given, true = np.asarray(predicted, dtype=np.float64), plans.length
    check_shape("predicted", given, "N", {"N": len(plans)})
    grids, error = Grids.of(cells), given - true
    undefined = np.isnan(error)
    columns = (np.where(undefined, np.nan, one) for one in (error == 0, given, true, error))
    absolute = [np.abs(error[mine[~undefined[mine]]]) for mine in grids.members()]
    medians = np.array([np.median(one) if len(one) else np.nan for one in absolute])
    values = (*map(grids.mean, columns), medians)
    units = ("share", *["steps"] * (len(LENGTHS) - 1))
    return grids.rows(((*named, {}) for named in zip(LENGTHS, units, values, strict=True)), tags)


def score_distance(
    predicted: npt.NDArray[np.float64], distances: npt.NDArray[np.float64], cells: Cells, tags: Mapping[str, Tag]
) -> Rows:
    """Return the errors of predicted distances ``[N]`` for each tested grid.

    Rows of "distance error" (absolute, steps) and of the squared error and the squared deviation from the mean of the
    tested grids, whose ratio gives R^2; each once over all steps of a grid, and "distance error" once more by distance
    (tag `distance`, None for all).
    """
    for name, given in (("predicted", predicted), ("distances", distances)):
        check_shape(name, given, "N", {"N": len(cells)})
        check_finite(name, given)
    grids = Grids.of(cells)
    mean = float(grids.mean(distances).mean()) if len(grids) else 0.0
    error = np.abs(predicted - distances)
    whole = ((ERROR, "steps", error), (SQUARED, "steps^2", error**2), (DEVIATION, "steps^2", (distances - mean) ** 2))
    each, place = np.unique(np.stack([grids.codes, distances.astype(np.int64)]), axis=1, return_inverse=True)
    parts = Grids.of(cells, place.reshape(-1))
    return Rows.concatenate(
        [
            grids.rows(((name, unit, grids.mean(values), {}) for name, unit, values in whole), tags),
            parts.rows(iter([(ERROR, "steps", parts.mean(error), {})]), {**tags, "distance": each[1].tolist()}),
        ]
    )


def plan_differences(rows: Rows, head: str, control: str, against: Mapping[str, Tag], *, name: str) -> Rows:
    """Return prefix accuracy less that of a baseline or control, paired by grid."""
    own = chosen(rows, measure=PREFIX, head=head, control=control)
    return paired_rows(own, chosen(rows, measure=PREFIX, **against), name=name, by=("site", "layer", "plans", "N"))


def summarise_plans(
    rows: Rows, by: Sequence[str] = (*_BY, "plans", "N"), *, horizon: int = 10, confidence: float = 0.95
) -> list[Grouped]:
    """Return every score, or difference of scores, with its interval over grids; a median is that of the grids."""
    bounds: dict[str, tuple[float, float]] = {}
    for measure, unit in set(zip(rows.measure.tolist(), rows.unit.tolist(), strict=True)):
        most = 1.0 if unit == "share" else float(horizon)
        bounds[measure] = (-most, most) if LESS in measure or measure == "length error" else (0.0, most)
    median = rows.measure == LENGTHS[-1]
    found = estimate_rows(rows.where(~median), by=by, bounds=bounds, confidence=confidence)
    medians = rows.where(median)
    for grouped in estimate_rows(medians, by=by, bounds=bounds, confidence=confidence):
        mine = chosen(medians, **{name: value for name, value in grouped.key.items() if name != "measure"})
        estimate = median_over_grids(mine.value, mine.grid_id, unit="steps", confidence=confidence)
        if mine.known(DRAW).any():
            over = "all seeds of the control together, interval over grids alone"
            estimate = replace(estimate, note="; ".join(filter(None, (estimate.note, over))))
        found.append(Grouped(key=grouped.key, estimate=estimate))
    return found


def summarise_distance(rows: Rows, by: Sequence[str] = _BY) -> list[Grouped]:
    """Return mean absolute error and R^2 of each probe and baseline with their intervals over grids.

    R^2 is one less the ratio of the mean squared error to the mean squared deviation, each grid weighing alike.
    """
    by_distance = rows.known("distance")
    mine = rows.where(by_distance if "distance" in by else ~by_distance)
    found = estimate_rows(mine.where(mine.measure == ERROR), by=by, bounds={ERROR: (0.0, np.inf)})
    if "distance" in by:
        return found
    above, below = (mine.where(mine.measure == name) for name in (SQUARED, DEVIATION))
    codes, keys = factorize(list(zip(*(above.columns()[name].tolist() for name in by), strict=True)))
    for key, group in zip(keys, members(codes, len(keys)), strict=True):
        draws = above[DRAW][group] if above.known(DRAW).any() else None
        estimate = r_squared(above.value[group], below.value[group], above.grid_id[group], draws)
        found.append(Grouped(key={"measure": "R^2", **dict(zip(by, key, strict=True))}, estimate=estimate))
    return found


def r_squared(
    error: npt.ArrayLike,
    deviation: npt.ArrayLike,
    clusters: Sequence[Any] | npt.NDArray[Any],
    draws: npt.NDArray[np.object_] | None = None,
) -> Estimate:
    """Return one less the ratio of two means over grids ``[N]``: of the squared error and of the squared deviation.

    With several ``draws``, the seeds of a random control, each grid has a pair for each of them, and the interval is
    that of the linearised ratio over grids and seeds.
    """
    above, below = np.asarray(error, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    most = float(np.fmax.reduce(below, initial=0.0))
    # A grid whose steps all lie at the mean deviates by nothing, yet its error counts; where none deviates, there is no
    # share of it.
    above, below = np.where(most > 0, above, np.nan), np.maximum(below, most * _NO_DEVIATION)
    seeds = len({seed for seed in draws.tolist() if seed is not None}) if draws is not None else 0
    if seeds > 1:
        points = above.sum() / below.sum() + (above - above.sum() / below.sum() * below) / below.mean()
        weighed = float(below.sum() ** 2 / (below**2).sum()) / seeds
        grid, seed = factorize(clusters)[0], factorize(draws if draws is not None else ())[0]
        found = estimate_crossed(points, grid, seed, unit="share", groups=weighed)
    else:
        found = estimate_pooled(above, below, clusters, unit="share")
        found = replace(found, note="; ".join(filter(None, (found.note, ONE_SEED if seeds else ""))))
    # No squared error is negative, though the line of the ratio may be.
    return replace(found, value=1 - found.value, low=1 - found.high, high=float(np.minimum(1.0, 1 - found.low)))


def median_over_grids(
    values: npt.ArrayLike, clusters: Sequence[Any] | npt.NDArray[Any], *, unit: str, confidence: float = 0.95
) -> Estimate:
    """Estimate the median over grids of the medians of values ``[N]`` within each; NaN is left out.

    The interval ends at two of the grids' own values; there is none where there are too few grids, or both are one.

    Source: the exact interval from the binomial distribution (sign test); Conover, Practical Nonparametric Statistics.
    """
    numbers = np.asarray(values, dtype=np.float64)
    codes, labels = factorize(clusters)
    defined = ~np.isnan(numbers)
    points = np.sort([np.median(numbers[defined][mine]) for mine in members(codes[defined], len(labels)) if len(mine)])
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
