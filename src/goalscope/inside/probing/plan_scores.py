"""Scores of decoded plans per test grid, and baselines without activations.

Baselines:

* a guess among four actions at every position, ``0.25^N`` (the baseline of the paper);
* ``marginal``: drawn from the frequencies of tokens at each position of the training plans;
* ``commonest``: the commonest first N tokens of the training plans, the best guess without input;
* repeat the first action; and its stronger form, the commonest continuation of the first action in the training plans;
* a planner on a map: decoded, or (labelled) the true one;
* the actions that the written reasoning names.

Frequencies in the training plans have the weights of the scores: for each subset of plans and each N all grids have
equal weight, and so have the plans of one grid that are scored there.

Source: behavioural and representational evaluation, section 5.3 (prefix accuracy, the first baseline; the others are
ours).
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape
from goalscope.inside.probing.labels import END, TOKENS, UNKNOWN, Cells, Plans, check_tokens
from goalscope.inside.probing.maps import DecodedMaps
from goalscope.inside.probing.scores import Grids, Measured, chosen, members, paired_rows
from goalscope.stats import DIFFERENCES, DRAW, Estimate, Grouped, estimate_rows
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.grid import ACTIONS, DELTAS
from goalscope.worlds.planning import distances_batch, optimal_batch

PREFIX: Final = "prefix accuracy"
LENGTHS: Final = ("length match", "predicted length", "executed length", "length error", "median length error")
Subset = Literal["all", "long"]
SUBSETS: Final[tuple[Subset, ...]] = get_args(Subset)
"""Which plans are scored at N: all of them, or (the authors' subset) those with at least N actions."""
BY: Final = ("site", "layer", "head", "control")
DECODER_LAYERS: Final = "decoder_layers"
"""Tag of the rows of decoders: how many layers each has."""
STEPWISE: Final = "stepwise"
"""Tag of the rows of decoders: whether they are given the tokens decoded so far."""
MAIN_DECODER: Final = "decoder-2"
"""Head of the decoder with controls in tables and figures, where it was fitted."""
_TOKEN_OF_NAME: Final = {name: token for token, name in enumerate(TOKENS[:END])}
_WORDS: Final = re.compile(r"[^\W\d_]+")
_LINK_WORDS: Final = frozenset(("and", "then", "move", "go", "to"))  # text allowed between the actions of one list


def prefix_matches(predicted: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return whether the first 1 to T tokens are all right, ``[N, T]``, NaN from the first unknown position onwards."""
    check_tokens("predicted", predicted)
    return _mask_unknown(np.logical_and.accumulate(predicted == tokens, axis=1).astype(np.float64), tokens)


def chance_matches(probabilities: npt.NDArray[np.float64], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the probability that the first 1 to T tokens are right, given conditional probabilities, ``[N, T]``."""
    return _mask_unknown(np.cumprod(probabilities, axis=1, dtype=np.float64), tokens)


def _mask_unknown(matches: npt.NDArray[np.float64], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    check_tokens("tokens", tokens)
    check_shape("matches", matches, "N T", check_shape("tokens", tokens, "N T"))
    # Partly unknown plans are excluded even if an earlier token is wrong, because otherwise only failures would count.
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
    """Return the prefix accuracy for each test grid and N.

    Rows are tagged by N, plans ("all", or "long": at least N actions), size and density; NaN if a grid has no such
    plan. ``matches`` ``[N, T]`` come from `prefix_matches`, `chance_matches` or a baseline; ``long`` are those for the
    long plans, if the baseline's guess for them differs.
    """
    by_subset = {"all": matches, "long": matches if long is None else long}
    for values in by_subset.values():
        check_shape("matches", values, "N T", {"N": len(plans), "T": plans.horizon})
    cells.check_aligned(plans, "plans")
    grids = Grids.of(cells)

    def measured() -> Iterator[Measured]:
        for number in range(1, plans.horizon + 1):
            for name in SUBSETS:
                scored = np.where(in_subset(plans, number, name), by_subset[name][:, number - 1], np.nan)
                yield PREFIX, "share", grids.mean(scored), {"N": number, "plans": name}

    return grids.rows(measured(), tags)


def in_subset(plans: Plans, number: int, subset: Subset) -> npt.NDArray[np.bool_]:
    """Return which plans are scored at N, ``[N]``: all plans that are known up to N, or, of the long plans, those with
    at least N actions.
    """
    token = plans.tokens[:, number - 1]
    return np.asarray((token != UNKNOWN) & ((token != END) | (subset == "all")))


def score_lengths(predicted: npt.ArrayLike, plans: Plans, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return the scores of decoded plan lengths for each test grid; plans of unknown length are left out.

    "length error" is the bias, predicted minus executed length; "median length error" is the median of the absolute
    error over the grid's steps. ``predicted`` ``[N]`` is at most T, NaN without a prediction.
    """
    cells.check_aligned(plans, "plans")
    lengths, true = np.asarray(predicted, dtype=np.float64), plans.length
    check_shape("predicted", lengths, "N", {"N": len(plans)})
    grids, error = Grids.of(cells), lengths - true
    undefined = np.isnan(error)
    columns = (np.where(undefined, np.nan, column) for column in (error == 0, lengths, true, error))
    absolute = [np.abs(error[grid_rows[~undefined[grid_rows]]]) for grid_rows in members(grids.codes, len(grids))]
    medians = np.array([np.median(column) if len(column) else np.nan for column in absolute])
    values = (*map(grids.mean, columns), medians)
    units = ("share", *["steps"] * (len(LENGTHS) - 1))
    return grids.rows(((*described, {}) for described in zip(LENGTHS, units, values, strict=True)), tags)


def plan_differences(rows: Rows, head: str, control: str, against: Mapping[str, Tag], *, name: str) -> Rows:
    """Return prefix accuracy minus that of a baseline or control, paired by grid."""
    scores = chosen(rows, measure=PREFIX, head=head, control=control)
    return paired_rows(scores, chosen(rows, measure=PREFIX, **against), name=name, by=("site", "layer", "plans", "N"))


def summarise_plans(
    rows: Rows, by: Sequence[str] = (*BY, "plans", "N"), *, horizon: int = 10, confidence: float = 0.95
) -> list[Grouped]:
    """Return every score, or difference of scores, with its interval over grids; a median is taken over grids."""
    bounds: dict[str, tuple[float, float]] = {}
    different = rows.known(DIFFERENCES).tolist()
    for measure, unit, difference in set(zip(rows.measure.tolist(), rows.unit.tolist(), different, strict=True)):
        maximum = 1.0 if unit == "share" else float(horizon)
        bounds[measure] = (-maximum, maximum) if difference or measure == "length error" else (0.0, maximum)
    median = rows.measure == LENGTHS[-1]
    groups = estimate_rows(rows.where(~median), by=by, bounds=bounds, confidence=confidence)
    medians = rows.where(median)
    for grouped in estimate_rows(medians, by=by, bounds=bounds, confidence=confidence):
        own_rows = chosen(medians, **{name: value for name, value in grouped.key.items() if name != "measure"})
        estimate = median_over_grids(own_rows.value, own_rows.cluster, unit="steps", confidence=confidence)
        if own_rows.known(DRAW).any():
            seed_note = "all seeds of the control together, interval over grids alone"
            estimate = replace(estimate, note="; ".join(filter(None, (estimate.note, seed_note))))
        groups.append(Grouped(key=grouped.key, estimate=estimate))
    return groups


def median_over_grids(
    values: npt.ArrayLike, clusters: Sequence[Any] | npt.NDArray[Any], *, unit: str, confidence: float = 0.95
) -> Estimate:
    """Estimate the median over grids of the medians of values ``[N]`` within each grid; NaN is left out.

    The ends of the interval are two of the grids' own values; it is undefined with too few grids, or if both ends are
    equal.

    Source: the exact interval from the binomial distribution (sign test); Conover, Practical Nonparametric Statistics.
    """
    numbers = np.asarray(values, dtype=np.float64)
    codes, labels = factorize(clusters)
    defined = ~np.isnan(numbers)
    points = np.sort(
        [np.median(numbers[defined][grid_rows]) for grid_rows in members(codes[defined], len(labels)) if len(grid_rows)]
    )
    count = len(points)
    low = high = math.nan
    note = "too few grids for an interval of a median"
    # Largest k such that P(Binomial(count, 1/2) < k) <= tail: the interval is [x_(k), x_(count + 1 - k)].
    tail, cumulative, rank = (1 - confidence) / 2, 0.0, 0
    while rank <= count // 2 and (cumulative := cumulative + math.comb(count, rank) / 2**count) <= tail:
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


def guess(number: int) -> float:
    """Return the probability that a uniform guess among four actions at each of N positions is right, ``0.25^N``."""
    return float(len(ACTIONS)) ** -number


def marginal_matches(train: Plans, tokens: npt.NDArray[np.int8], plans: Subset = "all") -> npt.NDArray[np.float64]:
    """Return the probability that tokens drawn independently at their training frequencies are right.

    The result has the shape of ``tokens``, ``[N, T]`` for N steps: column t is the probability that the first t + 1
    tokens are all right, NaN if unknown. The frequencies of a column come from the training plans of the subset that
    are scored at this number of tokens, with equal weight for all grids.
    """
    _check(train, tokens)
    indices, matches = np.maximum(tokens, 0).astype(np.int64), np.zeros(tokens.shape)
    for number in range(1, train.horizon + 1):
        scored, counts = _scored_at(train, number, plans)
        frequency = [
            np.bincount(train.tokens[scored, place], 1 / counts, minlength=len(TOKENS)) for place in range(number)
        ]
        total = max(float(np.sum(frequency[0])), 1.0)
        probabilities = [frequencies[indices[:, place]] / total for place, frequencies in enumerate(frequency)]
        matches[:, number - 1] = np.prod(probabilities, axis=0)
    return np.where(tokens == UNKNOWN, np.nan, matches)


def commonest_matches(
    train: Plans, tokens: npt.NDArray[np.int8], first: npt.NDArray[Any] | None = None, plans: Subset = "all"
) -> npt.NDArray[np.float64]:
    """Return whether the commonest first N tokens of the training plans are right, ``[N, T]`` 1, 0 or NaN: unknown.

    No guess that is the same at every step has a higher prefix accuracy on the training plans of the subset. With the
    ``first`` token ``[N]`` (decoded) the commonest continuation of it is taken. Among equally common ones the first in
    the order of tokens is taken; a first token that no training plan begins with has no continuation and is wrong from
    N = 2 on.
    """
    _check(train, tokens)
    first_tokens = np.full(len(tokens), UNKNOWN) if first is None else np.asarray(first)
    check_shape("first", first_tokens, "N", {"N": len(tokens)})
    matches = np.zeros(tokens.shape)
    for number in range(1, tokens.shape[1] + 1):
        best = _commonest(train, number, None if first is None else sorted(set(first_tokens.tolist())), plans)
        for first_token, plan in best.items():
            rows = np.flatnonzero(first_tokens == first_token)
            matches[rows, number - 1] = (tokens[rows, :number] == plan).all(axis=1)
    return np.where(tokens == UNKNOWN, np.nan, matches)


def _commonest(
    train: Plans, number: int, first_tokens: Sequence[int] | None, plans: Subset
) -> dict[int, tuple[int, ...]]:
    """Map each first token to the commonest beginning of ``number`` tokens.

    The key `UNKNOWN` stands for any first token.
    """
    scored, counts = _scored_at(train, number, plans)
    # Weights 1 / count are scaled to integers, so that sums are exact and equally common plans have equal sums.
    common_multiple = math.lcm(*counts.tolist())
    totals: dict[int, Counter[tuple[int, ...]]] = {}
    for plan, count in zip(map(tuple, train.tokens[scored, :number].tolist()), counts.tolist(), strict=True):
        totals.setdefault(UNKNOWN if first_tokens is None else plan[0], Counter())[plan] += common_multiple // count
    best = {first_token: min(total, key=lambda plan: (-total[plan], plan)) for first_token, total in totals.items()}
    # A given first token need not occur in the training plans.
    return best if first_tokens is None or number > 1 else {first_token: (first_token,) for first_token in first_tokens}


def _scored_at(train: Plans, number: int, subset: Subset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the indices of the plans scored at ``number`` tokens, and how many of them each plan's grid has."""
    scored = np.flatnonzero(in_subset(train, number, subset))
    grids, counts = np.unique(train.cluster[scored], return_inverse=True, return_counts=True)[1:]
    return scored, counts[grids]


def _check(train: Plans, tokens: npt.NDArray[np.int8]) -> None:
    check_tokens("tokens", tokens)
    if not len(train) or train.horizon != tokens.shape[1]:
        raise ValueError(
            f"training plans must exist and have {tokens.shape[1]} positions, got shape {list(train.tokens.shape)}"
        )


def repeated(first: npt.NDArray[Any], horizon: int) -> npt.NDArray[np.int8]:
    """Return plans that repeat their first token ``[N]``, ``[N, T]``."""
    return np.repeat(np.asarray(first, dtype=np.int8)[:, None], horizon, axis=1)


def planner_matches(
    maps: DecodedMaps, tokens: npt.NDArray[np.int8], *, ties: Literal["uniform", "best"] = "uniform"
) -> npt.NDArray[np.float64]:
    """Return the match of a planner on a map with the executed plans, ``[N, T]``, NaN if unknown.

    With ties "uniform" the probability of the first N tokens for a planner that draws uniformly among the best actions;
    with "best" whether some shortest path begins so, the maximum of any rule for ties. A goal that cannot be reached,
    or lies on the agent, gives no plan: 0.
    """
    check_tokens("tokens", tokens)
    check_shape("tokens", tokens, "N T", {"N": len(maps)})
    rows, (distance, length) = np.arange(len(tokens)), _distance(maps)
    optimal = optimal_batch(distance)
    cell, alive = maps.agent.astype(np.int64), length > 0
    probabilities = np.zeros(tokens.shape)
    for number in range(tokens.shape[1]):
        token = tokens[:, number].astype(np.int64)
        best = optimal[rows, cell[:, 0], cell[:, 1]]  # [N, 4]
        arrived = (cell == maps.goal).all(axis=1)
        moves = (token >= 0) & (token < END)
        action = np.where(moves, token, 0)
        right = np.where(moves, best[rows, action], arrived & (token == END)) & alive
        tie_probability = 1 / np.maximum(best.sum(axis=1), 1) if ties == "uniform" else 1.0
        probabilities[:, number] = right * np.where(moves, tie_probability, 1.0)
        alive = right
        cell = np.where((moves & right)[:, None], cell + DELTAS[action], cell)
    return chance_matches(probabilities, tokens)


def planner_length(maps: DecodedMaps, horizon: int) -> npt.NDArray[np.float64]:
    """Return the length of a shortest path on each map, at most T, ``[N]``; NaN if there is no plan."""
    length = _distance(maps)[1]
    return np.where(length > 0, np.minimum(length, horizon).astype(np.float64), np.nan)


def _distance(maps: DecodedMaps) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the steps to the goal in N maps, from each cell ``[N, H, W]`` and from the agent ``[N]``, or -1."""
    rows, walls = np.arange(len(maps)), maps.closed
    for cell in (maps.agent, maps.goal):
        walls[rows, cell[:, 0], cell[:, 1]] = False
    distance = distances_batch(walls, maps.goal)
    return distance, distance[rows, maps.agent[:, 0], maps.agent[:, 1]]


def named_plans(reasoning: Sequence[str] | npt.NDArray[np.object_], horizon: int) -> npt.NDArray[np.int8]:
    """Return the plans in N texts, ``[N, T]``: the longest list of actions in each text; of ties, the last one.

    A list consists of names of actions (in any case) with only signs, numbers and words such as "then" between them. A
    shorter list is filled with the end token.
    """
    plans = np.full((len(reasoning), horizon), END, dtype=np.int8)
    for row, text in enumerate(reasoning):
        best: list[int] = []
        run: list[int] = []
        for word in _WORDS.findall(text):
            token = _TOKEN_OF_NAME.get(word.upper())
            if token is not None:
                run.append(token)
            elif word.lower() not in _LINK_WORDS:
                run = []
            if len(run) >= len(best):
                best = run  # the list may grow while it is extended
        plans[row, : min(len(best), horizon)] = best[:horizon]
    return plans
