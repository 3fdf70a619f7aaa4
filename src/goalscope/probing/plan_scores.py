"""How much of a plan is decoded, by tested grid, and what can be guessed of it without activations.

Baselines:

* a guess among four actions at every place, ``0.25^N`` (the baseline of the paper);
* ``marginal``: drawn from how often each token stands at each place of the training plans;
* ``commonest``: the commonest first N tokens of the training plans, the best guess that sees nothing;
* repeat the first action; and its stronger form, the commonest continuation of the first action in the training plans;
* a planner on a map: decoded, or (labelled) the true one;
* the actions that the written reasoning names.

How common something is in the training plans is counted in the weights of the scores: for each subset of plans and
each N all grids weigh alike, and so do the plans of one grid that are scored there.

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

from goalscope.checks import check_shape
from goalscope.planning import distances_batch, optimal_batch
from goalscope.probing.labels import END, TOKENS, UNKNOWN, Cells, Plans, check_tokens
from goalscope.probing.maps import DecodedMaps
from goalscope.probing.scores import Grids, Measured, chosen, members, paired_rows
from goalscope.rows import Rows, Tag
from goalscope.stats import DRAW, LESS, Estimate, Grouped, estimate_rows
from goalscope.stats.estimate import factorize
from goalscope.worlds.grid import ACTIONS, DELTAS

PREFIX: Final = "prefix accuracy"
LENGTHS: Final = ("length match", "predicted length", "executed length", "length error", "median length error")
Subset = Literal["all", "long"]
SUBSETS: Final[tuple[Subset, ...]] = get_args(Subset)
"""Which plans are scored at N: all of them, or (the authors' subset) those with at least N actions."""
BY: Final = ("site", "layer", "head", "control")
_NAMES: Final = {name: token for token, name in enumerate(TOKENS[:END])}
_NAMED: Final = re.compile(r"[^\W\d_]+")
_LINKS: Final = frozenset(("and", "then", "move", "go", "to"))  # may stand between the actions of one list


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
    absolute = [np.abs(error[mine[~undefined[mine]]]) for mine in members(grids.codes, len(grids))]
    medians = np.array([np.median(one) if len(one) else np.nan for one in absolute])
    values = (*map(grids.mean, columns), medians)
    units = ("share", *["steps"] * (len(LENGTHS) - 1))
    return grids.rows(((*named, {}) for named in zip(LENGTHS, units, values, strict=True)), tags)


def plan_differences(rows: Rows, head: str, control: str, against: Mapping[str, Tag], *, name: str) -> Rows:
    """Return prefix accuracy less that of a baseline or control, paired by grid."""
    own = chosen(rows, measure=PREFIX, head=head, control=control)
    return paired_rows(own, chosen(rows, measure=PREFIX, **against), name=name, by=("site", "layer", "plans", "N"))


def summarise_plans(
    rows: Rows, by: Sequence[str] = (*BY, "plans", "N"), *, horizon: int = 10, confidence: float = 0.95
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


def guess(number: int) -> float:
    """Return the chance that a guess among four actions at each of N places is right everywhere, ``0.25^N``."""
    return float(len(ACTIONS)) ** -number


def marginal_matches(train: Plans, tokens: npt.NDArray[np.int8], plans: Subset = "all") -> npt.NDArray[np.float64]:
    """Return the chance that tokens drawn place by place at their frequency in the training plans are right.

    ``[N, T]`` for the first 1 to T tokens, NaN where unknown; at each N the frequencies are those of the training plans
    that are scored there (of a subset), all grids weighing alike.
    """
    _check(train, tokens)
    given, found = np.maximum(tokens, 0).astype(np.int64), np.zeros(tokens.shape)
    for number in range(1, train.horizon + 1):
        used, counts = _scored_at(train, number, plans)
        frequency = [
            np.bincount(train.tokens[used, place], 1 / counts, minlength=len(TOKENS)) for place in range(number)
        ]
        total = max(float(np.sum(frequency[0])), 1.0)
        drawn = [share[given[:, place]] / total for place, share in enumerate(frequency)]
        found[:, number - 1] = np.prod(drawn, axis=0)
    return np.where(tokens == UNKNOWN, np.nan, found)


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
    begins = np.full(len(tokens), UNKNOWN) if first is None else np.asarray(first)
    check_shape("first", begins, "N", {"N": len(tokens)})
    found = np.zeros(tokens.shape)
    for number in range(1, tokens.shape[1] + 1):
        best = _commonest(train, number, None if first is None else sorted(set(begins.tolist())), plans)
        for begin, plan in best.items():
            rows = np.flatnonzero(begins == begin)
            found[rows, number - 1] = (tokens[rows, :number] == plan).all(axis=1)
    return np.where(tokens == UNKNOWN, np.nan, found)


def _commonest(train: Plans, number: int, begins: Sequence[int] | None, plans: Subset) -> dict[int, tuple[int, ...]]:
    """Return the commonest first N tokens by their first token, or of all plans (under `UNKNOWN`)."""
    used, counts = _scored_at(train, number, plans)
    # Weights 1 / count as whole numbers: sums are exact, and equally common plans are found equal.
    whole = math.lcm(*counts.tolist())
    totals: dict[int, Counter[tuple[int, ...]]] = {}
    for plan, count in zip(map(tuple, train.tokens[used, :number].tolist()), counts.tolist(), strict=True):
        totals.setdefault(UNKNOWN if begins is None else plan[0], Counter())[plan] += whole // count
    best = {begin: min(total, key=lambda plan: (-total[plan], plan)) for begin, total in totals.items()}
    # The first token is given: nothing must be known of it from the training plans.
    return best if begins is None or number > 1 else {begin: (begin,) for begin in begins}


def _scored_at(train: Plans, number: int, subset: Subset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return which plans are scored at N, and how many of them are of the same grid: one over it weighs."""
    used = np.flatnonzero(in_subset(train, number, subset))
    grids, counts = np.unique(train.grid_id[used], return_inverse=True, return_counts=True)[1:]
    return used, counts[grids]


def _check(train: Plans, tokens: npt.NDArray[np.int8]) -> None:
    check_tokens("tokens", tokens)
    if not len(train) or train.horizon != tokens.shape[1]:
        raise ValueError(
            f"training plans must be there and have the {tokens.shape[1]} places of the others, got "
            f"{list(train.tokens.shape)}"
        )


def repeated(first: npt.NDArray[Any], horizon: int) -> npt.NDArray[np.int8]:
    """Return plans that repeat their first token ``[N]``, ``[N, T]``."""
    return np.repeat(np.asarray(first, dtype=np.int8)[:, None], horizon, axis=1)


def planner_matches(
    maps: DecodedMaps, tokens: npt.NDArray[np.int8], *, ties: Literal["uniform", "best"] = "uniform"
) -> npt.NDArray[np.float64]:
    """Return how well a planner that has a map foretells the executed plans, ``[N, T]``, NaN where unknown.

    With ties "uniform" the chance that a planner which takes any of the best actions alike says the first N tokens;
    with "best" whether some shortest path begins so, the most that any rule for ties can reach. A goal that cannot be
    reached, or lies on the agent, gives no plan: 0.
    """
    check_tokens("tokens", tokens)
    check_shape("tokens", tokens, "N T", {"N": len(maps)})
    rows, (distance, ahead) = np.arange(len(tokens)), _distance(maps)
    optimal = optimal_batch(distance)
    at, alive = maps.agent.astype(np.int64), ahead > 0
    chances = np.zeros(tokens.shape)
    for number in range(tokens.shape[1]):
        token = tokens[:, number].astype(np.int64)
        best = optimal[rows, at[:, 0], at[:, 1]]  # [N, 4]
        arrived = (at == maps.goal).all(axis=1)
        moves = (token >= 0) & (token < END)
        action = np.where(moves, token, 0)
        right = np.where(moves, best[rows, action], arrived & (token == END)) & alive
        share = 1 / np.maximum(best.sum(axis=1), 1) if ties == "uniform" else 1.0
        chances[:, number] = right * np.where(moves, share, 1.0)
        alive = right
        at = np.where((moves & right)[:, None], at + DELTAS[action], at)
    return chance_matches(chances, tokens)


def planner_length(maps: DecodedMaps, horizon: int) -> npt.NDArray[np.float64]:
    """Return the length of a shortest path on each map, at most T, ``[N]``; NaN where there is no plan."""
    ahead = _distance(maps)[1]
    return np.where(ahead > 0, np.minimum(ahead, horizon).astype(np.float64), np.nan)


def _distance(maps: DecodedMaps) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the steps to the goal from each cell ``[N, H, W]``, -1 where there is no way, and from the agent's."""
    rows, walls = np.arange(len(maps)), maps.closed
    for cell in (maps.agent, maps.goal):
        walls[rows, cell[:, 0], cell[:, 1]] = False
    distance = distances_batch(walls, maps.goal)
    return distance, distance[rows, maps.agent[:, 0], maps.agent[:, 1]]


def named_plans(reasoning: Sequence[str] | npt.NDArray[np.object_], horizon: int) -> npt.NDArray[np.int8]:
    """Return the plans that N texts name, ``[N, T]``: the longest list of actions in each, the last of several.

    A list is names of actions (any case) with nothing but signs, numbers and words such as "then" between them. A
    shorter list is filled with the end token.
    """
    found = np.full((len(reasoning), horizon), END, dtype=np.int8)
    for row, text in enumerate(reasoning):
        best: list[int] = []
        run: list[int] = []
        for word in _NAMED.findall(text):
            token = _NAMES.get(word.upper())
            if token is not None:
                run.append(token)
            elif word.lower() not in _LINKS:
                run = []
            if len(run) >= len(best):
                best = run  # the list itself: it grows with the run
        found[row, : min(len(best), horizon)] = best[:horizon]
    return found
