"""Decoded plans and distances, scored per test grid beside their baselines.

Baselines of plans, without activations:

* a guess among four actions at every position, ``0.25^N`` (the baseline of the paper);
* ``marginal``: drawn from the frequencies of tokens at each position of the training plans;
* ``commonest``: the commonest first N tokens of the training plans, the best guess without input;
* repeat the first action; and its stronger form, the commonest continuation of the first action in the training plans;
* a planner on a map: decoded, or (labelled) the true one;
* the actions that the written reasoning names.

Frequencies in the training plans have the weights of the scores: for each subset of plans and each N all grids have
equal weight, and so have the plans of one grid that are scored there.

One baseline of distances is a line fitted on decoded maps. Its training maps must have the same quality as its test
maps. Maps that a probe decodes at the steps on which it was fitted are better than those of other grids and would bias
the line. `cross_fitted` therefore decodes training steps by probes of the other training grids.

Sources: behavioural and representational evaluation, section 5.3 (prefix accuracy, the first baseline; the others are
ours) and Appendix E.3; Stone 1974, Cross-validatory choice and assessment of statistical predictions.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape
from goalscope._ground.rng import stream
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.probing.beliefs import DecodedMaps, decode_maps, true_map
from goalscope.inside.probing.fitting import FitSettings, PlanSettings, grid_weights
from goalscope.inside.probing.heads import NUMBER_HEADS
from goalscope.inside.probing.inputs import CONTROLS, PLAN_CONTROLS, Features, ProbeInputs, Split, grid_kinds
from goalscope.inside.probing.labels import CLASSES, END, TOKENS, UNKNOWN, Cells, Plans, plan_length
from goalscope.inside.probing.probe import Callbacks, Probe
from goalscope.inside.probing.scores import Grids, Measured, chosen, members, paired_rows
from goalscope.inside.probing.suite import FittedProbes, Truth, fit_suite, probe_cells, truths
from goalscope.stats import DIFFERENCES, DRAW, Estimate, Grouped, estimate_crossed, estimate_pooled, estimate_rows
from goalscope.stats.estimate import ONE_SEED, factorize
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.grid import DELTAS
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
Maps = Mapping[tuple[str, int], DecodedMaps]
"""Site and layer -> the maps decoded there, of the same N steps."""
LAYERS: Final = (1, 2, 4)
"""Layers of the decoders of the paper."""
FIRST_KNOWN: Final = ("repeat", "continuation")
"""Baselines from the decoded first action alone: its repetition, and its commonest continuation."""
ERROR, SQUARED, DEVIATION = "distance error", "squared distance error", "squared distance deviation"
_NO_DEVIATION: Final = 1e-12  # relative to the greatest value
FOLDS: Final = 5
"""Parts of the training grids, where there are as many grids."""
MAPS: Final = "percell"
"""The head that maps are decoded with for baselines: on Theseus better maps than those of the MLP, at a sixth of
the time."""


def probe_plans(
    data: ProbeInputs,
    plans: Plans,
    *,
    layers: Sequence[int] = LAYERS,
    beside: Sequence[int] | None = None,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    stepwise: bool = False,
    settings: PlanSettings | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit decoders of the agent's next moves (its plan), of every size and with every control, and score them and
    baselines.

    Args:
        data: activations, truth and split.
        plans: the moves that the agent made, see `label_plans`.
        layers: numbers of layers of the decoders, one decoder for each.
        beside: which of these decoders, by number of layers, are also fitted to random networks; by default all.
        controls: some of `PLAN_CONTROLS`, including "none" (the decoder itself).
        maps: decoded maps, for a baseline that plans a shortest path on them (the planner); a site and layer without
            maps lacks it.
        stepwise: whether to also fit decoders that receive the tokens decoded so far.
        settings: how decoders are trained; by default the sizes in the paper.
        callbacks: functions that look up stored decoders, which are not fitted again, and receive each fitted decoder.

    Returns:
        The decoders and the rows of scores. Rows are tagged by head ("decoder-2", "decoder-2-stepwise", "marginal",
        "commonest", "repeat executed", "planner", "planner, best ties", "text"), control (`PLAN_CONTROLS`,
        `FIRST_KNOWN`, "true map"), site, layer (None if no activations are read), N (number of moves), plans, size and
        density; those of decoders also by `DECODER_LAYERS` and `STEPWISE`.

    Raises:
        ValueError: if controls are unknown, steps do not match, or data for a control is missing; the message says how
            to get it.
    """
    fit_settings, cells, split = settings or PlanSettings(), data.cells, data.split
    check_controls(controls)
    cells.check_aligned(plans, "plans")
    truth_of = truths(plans.tokens, data, controls, seed=fit_settings.seed)
    parts = {}
    for name, truth in truth_of.items():
        exchanged = replace(plans, tokens=truth.values)
        parts[name] = (exchanged.where(truth.train), exchanged.where(truth.test), cells.where(truth.test))
    decoders: dict[str, dict[str, Tag]] = {}
    for count in layers:
        decoders[f"decoder-{count}"] = {DECODER_LAYERS: count, STEPWISE: False}
        if stepwise:
            decoders[f"decoder-{count}-stepwise"] = {DECODER_LAYERS: count, STEPWISE: True}

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterable[Rows]:
        train_plans, true_plans, true_cells = parts[CONTROLS[tags["control"]]]
        tags = {**tags, **decoders[tags["head"]]}
        predictions = probe.predict_plan(features, device=fit_settings.device)
        yield score_prefixes(prefix_matches(predictions.tokens, true_plans.tokens), true_plans, true_cells, tags)
        yield score_lengths(predictions.length, true_plans, true_cells, tags)
        if tags["control"] == "none":  # baseline that continues the decoder's first action
            repetition = prefix_matches(repeated(predictions.first, true_plans.horizon), true_plans.tokens)
            continuation, long_continuation = (
                commonest_matches(train_plans, true_plans.tokens, predictions.first, plans) for plans in SUBSETS
            )
            first_known = ((repetition, repetition), (continuation, long_continuation))
            for name, (matches, long) in zip(FIRST_KNOWN, first_known, strict=True):
                yield score_prefixes(matches, true_plans, true_cells, {**tags, "control": name}, long=long)

    def baselines() -> Iterable[Rows]:
        """Yield the scores of the baselines, which decode no plan from activations."""
        nowhere: dict[str, Any] = {"site": None, "layer": None, "control": "none"}
        for control in (name for name in ("none", "shuffled") if name in controls):
            train, true_plans, true_cells = parts[CONTROLS[control]]
            for head, baseline in (("marginal", marginal_matches), ("commonest", commonest_matches)):
                row_tags = {**nowhere, "head": head, "control": control}
                matches, long = (baseline(train, true_plans.tokens, plans=plans) for plans in SUBSETS)
                yield score_prefixes(matches, true_plans, true_cells, row_tags, long=long)
        _, truth, true_cells = parts["own"]
        repetition = prefix_matches(np.maximum(repeated(truth.tokens[:, 0], truth.horizon), 0), truth.tokens)
        yield score_prefixes(repetition, truth, true_cells, {**nowhere, "head": "repeat executed"})
        true = ({**nowhere, "control": "true map"}, true_map(true_cells))
        for row_tags, layout in (*on_maps(maps, split.test), true):
            planned = {**row_tags, "head": "planner"}
            yield score_prefixes(planner_matches(layout, truth.tokens), truth, true_cells, planned)
            best = planner_matches(layout, truth.tokens, ties="best")
            yield score_prefixes(best, truth, true_cells, {**row_tags, "head": "planner, best ties"})
            yield score_lengths(planner_length(layout, truth.horizon), truth, true_cells, planned)
        if any(true_cells.reasoning.tolist()):
            text_plans, row_tags = named_plans(true_cells.reasoning, truth.horizon), {**nowhere, "head": "text"}
            yield score_prefixes(prefix_matches(text_plans, truth.tokens), truth, true_cells, row_tags)
            yield score_lengths(plan_length(text_plans), truth, true_cells, row_tags)

    heads = {
        name: ("stepwise" if form[STEPWISE] else "decoder", {"layers": form[DECODER_LAYERS]})
        for name, form in decoders.items()
    }
    random_layers = layers if beside is None else beside
    suite = [
        (name, control)
        for control in controls
        for count in (random_layers if control in RANDOM_WEIGHTS else layers)
        for name, form in decoders.items()
        if form[DECODER_LAYERS] == count
    ]
    options: dict[str, Any] = {"settings": fit_settings, "callbacks": callbacks, "heads": heads}
    fitted = fit_suite(data, suite, truth_of, score, target="plan", **options)
    return replace(fitted, rows=Rows.concatenate([fitted.rows, *baselines()]))


def check_controls(controls: Sequence[str]) -> None:
    """Check the names of controls for probes of plans and distances; "none", which stands for the probe itself, must be
    there.

    Raises:
        ValueError: if a name is unknown, or "none" is missing.
    """
    if "none" not in controls or not set(controls) <= set(PLAN_CONTROLS):
        raise ValueError(f"controls must be some of {', '.join(PLAN_CONTROLS)} and include none, got {list(controls)}")


def on_maps(maps: Maps | None, steps: npt.NDArray[np.bool_]) -> Iterable[tuple[dict[str, Any], DecodedMaps]]:
    """Select the decoded maps at some steps, for each site and layer.

    Args:
        maps: the maps of N steps by site and layer; None for none.
        steps: ``[N]`` which steps to select.

    Yields:
        Named facts (site, layer, control) for the rows of results, and the selected maps.
    """
    for (site, layer), decoded in (maps or {}).items():
        yield {"site": site, "layer": layer, "control": "none"}, decoded.where(steps)


def prefix_matches(predicted: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Compare predicted plans with executed ones: are the first 1, 2, ..., T tokens all right?

    Both are ``[N, T]`` tokens, steps by positions of the plan. The result ``[N, T]`` is 1 or 0, and NaN from the first
    unknown position onwards.
    """
    return where_known(np.logical_and.accumulate(predicted == tokens, axis=1), tokens)


def where_known(matches: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Set matches ``[N, T]`` (steps by positions of the plan) to NaN from the first unknown token onwards.

    Partly unknown plans are excluded even if an earlier token is wrong, because otherwise only failures would count.
    """
    return np.where(tokens == UNKNOWN, np.nan, matches)


def score_prefixes(
    matches: npt.NDArray[np.float64],
    plans: Plans,
    cells: Cells,
    tags: Mapping[str, Tag],
    *,
    long: npt.NDArray[np.float64] | None = None,
) -> Rows:
    """Return the prefix accuracy for each test grid and N: the share of plans whose first N tokens are all right.

    Args:
        matches: ``[N, T]`` from `prefix_matches` or a baseline: steps by positions of the plan.
        plans: the executed plans.
        cells: the labels of the same steps, which name their grids.
        tags: named facts to keep with every row.
        long: matches of the plans with at least N actions, if the baseline's guess for them differs.

    Returns:
        Rows tagged by N, plans ("all", or "long": at least N actions), size and density; NaN if a grid has no such
        plan.
    """
    by_subset = {"all": matches, "long": matches if long is None else long}
    grids = Grids.of(cells)

    def measured() -> Iterator[Measured]:
        for number in range(1, plans.horizon + 1):
            for name in SUBSETS:
                scored = np.where(in_subset(plans, number, name), by_subset[name][:, number - 1], np.nan)
                yield PREFIX, "share", grids.mean(scored), {"N": number, "plans": name}

    return grids.rows(measured(), tags)


def in_subset(plans: Plans, number: int, subset: Subset) -> npt.NDArray[np.bool_]:
    """Return which of N plans (an agent's next moves) count in the score of their first ``number`` tokens, ``[N]``
    bool.

    For the subset "all", these are the plans whose tokens are known so far; for "long", only those with at least so
    many actions before the end token.
    """
    token = plans.tokens[:, number - 1]
    return np.asarray((token != UNKNOWN) & ((token != END) | (subset == "all")))


def score_lengths(predicted: npt.ArrayLike, plans: Plans, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return the scores of decoded plan lengths for each test grid; plans of unknown length are left out.

    "length error" is the bias, predicted minus executed length; "median length error" is the median of the absolute
    error over the grid's steps.

    Args:
        predicted: ``[N]`` predicted lengths in moves, at most T; NaN without a prediction.
        plans: the executed plans.
        cells: the labels of the same steps, which name their grids.
        tags: named facts to keep with every row.
    """
    lengths, true = np.asarray(predicted, dtype=np.float64), plans.length
    grids, error = Grids.of(cells), lengths - true
    undefined = np.isnan(error)
    columns = (np.where(undefined, np.nan, column) for column in (error == 0, lengths, true, error))
    absolute = [np.abs(error[grid_rows[~undefined[grid_rows]]]) for grid_rows in members(grids.codes, len(grids))]
    medians = np.array([np.median(column) if len(column) else np.nan for column in absolute])
    values = (*map(grids.mean, columns), medians)
    units = ("share", *["steps"] * (len(LENGTHS) - 1))
    return grids.rows(((*described, {}) for described in zip(LENGTHS, units, values, strict=True)), tags)


def plan_differences(rows: Rows, head: str, control: str, against: Mapping[str, Tag], *, name: str) -> Rows:
    """Return the prefix accuracy of a decoder minus that of a baseline or control, paired by grid.

    Args:
        rows: rows of `probe_plans`.
        head, control: select the rows of the decoder.
        against: tags that select the rows of the baseline or control.
        name: name of the baseline or control in the measure: "prefix accuracy less NAME".
    """
    scores = chosen(rows, measure=PREFIX, head=head, control=control)
    return paired_rows(scores, chosen(rows, measure=PREFIX, **against), name=name, by=("site", "layer", "plans", "N"))


def summarise_plans(
    rows: Rows, by: Sequence[str] = (*BY, "plans", "N"), *, horizon: int = 10, confidence: float = 0.95
) -> list[Grouped]:
    """Estimate every score of decoded plans, and every difference of scores, with its interval over grids.

    Args:
        rows: rows of `probe_plans` or `plan_differences`.
        by: tags to group by.
        horizon: number T of moves of a plan, which bounds errors of its length.
        confidence: confidence level of the intervals.

    Returns:
        One estimate per measure and group. A median is taken over grids, other scores are means.
    """
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
    """Estimate the median over grids of the medians of values ``[N]`` within each grid; NaN values are left out.

    The ends of the interval are two of the grids' own values; it is undefined with too few grids, or if both ends are
    equal.

    Args:
        values: the values.
        clusters: ``[N]`` grid of each value.
        unit: unit of the values, for the estimate.
        confidence: confidence level.

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
    """Return the probability that uniform guesses among four actions are right at all of the first N moves,
    ``0.25^N``.
    """
    return 0.25**number


def marginal_matches(train: Plans, tokens: npt.NDArray[np.int8], plans: Subset = "all") -> npt.NDArray[np.float64]:
    """Score the baseline that draws each token of a plan independently, at its frequency in the training plans.

    The frequencies for t tokens come from the training plans of the subset that are scored at this number of tokens,
    with equal weight for all grids.

    Args:
        train: the training plans.
        tokens: ``[N, T]`` executed tokens: steps by positions of the plan.
        plans: "all" plans, or "long": those with at least t actions.

    Returns:
        ``[N, T]`` the probability that the first 1, 2, ..., T tokens are all right; NaN from the first unknown token.
    """
    indices, matches = np.maximum(tokens, 0).astype(np.int64), np.zeros(tokens.shape)
    for number in range(1, train.horizon + 1):
        scored, counts = _scored_at(train, number, plans)
        frequency = [
            np.bincount(train.tokens[scored, place], 1 / counts, minlength=len(TOKENS)) for place in range(number)
        ]
        total = max(float(np.sum(frequency[0])), 1.0)
        probabilities = [frequencies[indices[:, place]] / total for place, frequencies in enumerate(frequency)]
        matches[:, number - 1] = np.prod(probabilities, axis=0)
    return where_known(matches, tokens)


def commonest_matches(
    train: Plans, tokens: npt.NDArray[np.int8], first: npt.NDArray[Any] | None = None, plans: Subset = "all"
) -> npt.NDArray[np.float64]:
    """Score the baseline that always predicts the commonest first tokens of the training plans.

    No guess that is the same at every step has a higher prefix accuracy on the training plans of the subset. Among
    equally common beginnings the first in the order of tokens is taken.

    Args:
        train: the training plans.
        tokens: ``[N, T]`` executed tokens: steps by positions of the plan.
        first: ``[N]`` first tokens that a decoder predicts; the commonest continuation of each is then taken. A token
            with which no training plan begins has no continuation and is wrong from the second position on.
        plans: "all" plans, or "long": those with at least so many actions.

    Returns:
        ``[N, T]`` 1 if the first 1, 2, ..., T tokens are all right, else 0; NaN from the first unknown token.
    """
    first_tokens = np.full(len(tokens), UNKNOWN) if first is None else np.asarray(first)
    matches = np.zeros(tokens.shape)
    for number in range(1, tokens.shape[1] + 1):
        best = _commonest(train, number, None if first is None else sorted(set(first_tokens.tolist())), plans)
        for first_token, plan in best.items():
            rows = np.flatnonzero(first_tokens == first_token)
            matches[rows, number - 1] = (tokens[rows, :number] == plan).all(axis=1)
    return where_known(matches, tokens)


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


def repeated(first: npt.NDArray[Any], horizon: int) -> npt.NDArray[np.int8]:
    """Return plans ``[N, T]`` that repeat their first token, given the first tokens ``[N]`` and T = ``horizon``."""
    return np.repeat(np.asarray(first, dtype=np.int8)[:, None], horizon, axis=1)


def planner_matches(
    maps: DecodedMaps, tokens: npt.NDArray[np.int8], *, ties: Literal["uniform", "best"] = "uniform"
) -> npt.NDArray[np.float64]:
    """Compare the plans that agents executed with a planner that walks shortest paths on decoded maps.

    Args:
        maps: N decoded maps.
        tokens: ``[N, T]`` tokens of the executed plans: steps by positions.
        ties: how the planner chooses among equally good actions. With "uniform", it draws each with equal probability;
            "best" is the maximum over all rules for ties.

    Returns:
        ``[N, T]`` match of the first t tokens of each plan, t = 1 ... T. With "uniform", it is the probability that the
        planner begins with these t tokens; with "best", 1 if some shortest path begins with them, otherwise 0. It is 0
        if the goal on the map cannot be reached or lies on the agent, and NaN where the tokens are unknown.
    """
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
    return where_known(np.cumprod(probabilities, axis=1), tokens)


def planner_length(maps: DecodedMaps, horizon: int) -> npt.NDArray[np.float64]:
    """Return the number of moves on a shortest path from agent to goal on each of N maps, at most T = ``horizon``.

    NaN if no path leads to the goal, or the goal is the agent's own cell.
    """
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
    """Find the plan in each of N written reasonings: the longest list of moves in the text; of equally long ones, the
    last.

    A list consists of names of moves (in any case) with only signs, numbers and words such as "then" between them. It
    is cut after T = ``horizon`` moves, and a shorter list is filled with the end token. The result is ``[N, T]``
    tokens.
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


def probe_distances(
    data: ProbeInputs,
    distances: npt.NDArray[np.float64],
    *,
    heads: Sequence[str] = NUMBER_HEADS,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit probes of the distance to the goal with every head (form) and control, and score them and their baselines.

    Baselines are the mean of the training grids, and a line fitted on the training grids from the Manhattan distance
    between agent and goal, either on the decoded map (``maps``) or on the true map (control "true map", which sees the
    grid directly). Every grid has equal weight in them, as in scores.

    Args:
        data: activations, truth and split.
        distances: ``[N]`` moves, see `label_distances`; steps without a distance (NaN) are left out.
        heads: names of registered heads that predict a number.
        controls: some of `PLAN_CONTROLS`, including "none".
        maps: decoded maps by site and layer; None for none.
        settings: how probes are trained.
        callbacks: functions that look up stored probes, which are not fitted again, and receive each fitted probe.

    Returns:
        The probes and the rows of `score_distance`, tagged by head (also "mean", "manhattan"), control (also "true
        map"), site and layer.

    Raises:
        ValueError: if controls are unknown, steps do not match, or data for a control is missing; the message says how
            to get it.

    Source: behavioural and representational evaluation, Appendix E.3 (linear and MLP probes, label by shortest path).
    """
    fit_settings, cells = settings or FitSettings(), data.cells
    check_shape("distances", distances, "N", {"N": len(cells)})
    check_controls(controls)
    for name, part in data.split.parts:
        if np.isnan(distances[part]).all():
            raise ValueError(
                f"the {name} part of the split has no step from which the goal can be reached: record more "
                "grids, or leave the reading out"
            )

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterable[Rows]:
        predicted = probe.predict_number(features, device=fit_settings.device)
        yield score_distance(predicted, truth.values[truth.test], cells.where(truth.test), tags)

    truth_of = truths(distances, data, controls, seed=fit_settings.seed, known=~np.isnan(distances))
    suite = [(head, control) for control in controls for head in heads]
    fitted = fit_suite(data, suite, truth_of, score, target="distance", settings=fit_settings, callbacks=callbacks)
    train, test = truth_of["own"].train, truth_of["own"].test
    train_target, target, true_cells, in_split = distances[train], distances[test], cells.where(test), train | test
    nowhere: dict[str, Any] = {"site": None, "layer": None}
    weights = grid_weights(cells.cluster[train])
    mean = np.full(len(target), np.average(train_target, weights=weights))
    rows = [fitted.rows, score_distance(mean, target, true_cells, {**nowhere, "head": "mean", "control": "none"})]
    for decoded in (maps or {}).values():
        check_shape("maps", decoded.agent, "N 2", {"N": len(cells)})
    true = ({**nowhere, "control": "true map"}, true_map(cells.where(in_split)))
    for row_tags, layout in (*on_maps(maps, in_split), true):
        manhattan = layout.manhattan
        slope, offset = fit_line(manhattan[train[in_split]], train_target, weights)
        predicted = slope * manhattan[test[in_split]].astype(np.float64) + offset
        rows.append(score_distance(predicted, target, true_cells, {**row_tags, "head": "manhattan"}))
    return replace(fitted, rows=Rows.concatenate(rows))


def score_distance(
    predicted: npt.NDArray[np.float64], distances: npt.NDArray[np.float64], cells: Cells, tags: Mapping[str, Tag]
) -> Rows:
    """Return the errors of predicted distances to the goal for each test grid.

    Args:
        predicted, distances: ``[N]`` predicted and true distances in moves.
        cells: the labels of the same steps, which name their grids.
        tags: named facts to keep with every row.

    Returns:
        Rows with the measures "distance error" (absolute, in steps), the squared error, and the squared deviation from
        the mean of the test grids, whose ratio gives R^2; each over all steps of a grid, and "distance error" also by
        distance (tag `distance`, None for all).
    """
    check_finite("distances", distances)
    grids = Grids.of(cells)
    mean = float(grids.mean(distances).mean()) if len(grids) else 0.0
    error = np.abs(predicted - distances)
    measures = (
        (ERROR, "steps", error),
        (SQUARED, "steps^2", error**2),
        (DEVIATION, "steps^2", (distances - mean) ** 2),
    )
    by_distance = np.stack([grids.codes, distances.astype(np.int64)])
    group_keys, group_index = np.unique(by_distance, axis=1, return_inverse=True)
    parts = Grids.of(cells, group_index.reshape(-1))
    return Rows.concatenate(
        [
            grids.rows(((name, unit, grids.mean(values), {}) for name, unit, values in measures), tags),
            parts.rows([(ERROR, "steps", parts.mean(error), {})], {**tags, "distance": group_keys[1].tolist()}),
        ]
    )


def summarise_distance(rows: Rows, by: Sequence[str] = BY) -> list[Grouped]:
    """Estimate mean absolute error and R^2 of each probe and baseline of the distance, with intervals over grids.

    R^2 is 1 minus the ratio of the mean squared error to the mean squared deviation, with equal weight per grid.

    Args:
        rows: rows of `probe_distances`.
        by: tags to group by; with "distance" among them, only the error is estimated, at each distance.
    """
    by_distance = rows.known("distance")
    selected = rows.where(by_distance if "distance" in by else ~by_distance)
    groups = estimate_rows(selected.where(selected.measure == ERROR), by=by, bounds={ERROR: (0.0, np.inf)})
    if "distance" in by:
        return groups
    squared, deviation = (selected.where(selected.measure == name) for name in (SQUARED, DEVIATION))
    codes, keys = factorize(list(zip(*(squared.columns()[name].tolist() for name in by), strict=True)))
    for key, group in zip(keys, members(codes, len(keys)), strict=True):
        draws = squared[DRAW][group] if squared.known(DRAW).any() else None
        estimate = r_squared(squared.value[group], deviation.value[group], squared.cluster[group], draws)
        groups.append(Grouped(key={"measure": "R^2", **dict(zip(by, key, strict=True))}, estimate=estimate))
    return groups


def r_squared(
    error: npt.ArrayLike,
    deviation: npt.ArrayLike,
    clusters: Sequence[Any] | npt.NDArray[Any],
    draws: npt.NDArray[np.object_] | None = None,
) -> Estimate:
    """Estimate R^2: 1 minus the ratio of the mean squared error to the mean squared deviation, over grids.

    With several ``draws`` there is a value per grid and draw, and the interval is that of the linearised ratio over
    grids and seeds.

    Args:
        error, deviation: ``[N]`` squared error and squared deviation from the mean.
        clusters: ``[N]`` grid of each value.
        draws: ``[N]`` seed of the random network of each value; None without random networks.
    """
    squared, deviations = np.asarray(error, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    maximum = float(np.fmax.reduce(deviations, initial=0.0))
    # A grid whose steps all lie at the mean has deviation 0, but its error counts. If all grids do, the ratio is NaN.
    squared, deviations = np.where(maximum > 0, squared, np.nan), np.maximum(deviations, maximum * _NO_DEVIATION)
    seeds = len({seed for seed in draws.tolist() if seed is not None}) if draws is not None else 0
    if seeds > 1:
        quotient = squared.sum() / deviations.sum()
        points = quotient + (squared - quotient * deviations) / deviations.mean()
        effective_groups = float(deviations.sum() ** 2 / (deviations**2).sum()) / seeds
        grid, seed = factorize(clusters)[0], factorize(draws if draws is not None else ())[0]
        estimate = estimate_crossed(points, grid, seed, unit="share", groups=effective_groups)
    else:
        estimate = estimate_pooled(squared, deviations, clusters, unit="share")
        estimate = replace(estimate, note="; ".join(filter(None, (estimate.note, ONE_SEED if seeds else ""))))
    high = float(np.minimum(1.0, 1 - estimate.low))  # squared errors are not negative, the linearised ratio may be
    return replace(estimate, value=1 - estimate.value, low=1 - estimate.high, high=high)


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike) -> tuple[float, float]:
    """Fit a weighted least-squares line through points (x, y), and return its slope and offset.

    If x does not vary, the slope is 0 and the offset the mean of y.
    """
    values, target, weight = (np.asarray(column, dtype=np.float64) for column in (x, y, weights))
    x_mean, y_mean = float(np.average(values, weights=weight)), float(np.average(target, weights=weight))
    centred = values - x_mean
    variance = float(weight @ centred**2)
    slope = float((weight * centred) @ (target - y_mean)) / variance if variance > 0 else 0.0
    return slope, y_mean - slope * x_mean


def grid_folds(cells: Cells, train: npt.NDArray[np.bool_], *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Divide the training grids into `FOLDS` folds for cross-fitting, and return the fold of each step.

    All steps of a grid are in one fold; the grids of each shape and density are dealt out over all folds. With fewer
    training grids than folds each grid is a fold of its own.

    Args:
        cells: N steps with their grids.
        train: ``[N]`` which steps are for training.
        seed: root seed.

    Returns:
        ``[N]`` numbers of folds from 0; -1 for steps that are not for training.

    Raises:
        ValueError: fewer than two training grids.
    """
    kinds = {grid: kind for grid, kind in grid_kinds(cells).items() if grid in set(cells.cluster[train].tolist())}
    if len(kinds) < 2:
        raise ValueError(f"cross-fitting needs at least two training grids, got {len(kinds)}: record more grids")
    fold_of: dict[str, int] = {}
    for kind in sorted(set(kinds.values())):
        grids = sorted(grid for grid, grid_kind in kinds.items() if grid_kind == kind)
        for index in stream(seed, "folds", *kind).permutation(len(grids)).tolist():
            fold_of[grids[index]] = len(fold_of) % FOLDS
    return np.array([fold_of.get(grid, -1) for grid in cells.cluster.tolist()], dtype=np.int64)


def cross_fitted(
    data: ProbeInputs,
    *,
    head: str = MAPS,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> dict[tuple[str, int], DecodedMaps]:
    """Decode the maps of all N steps, each by a probe that was not trained on the grid of the step.

    Steps in each of `FOLDS` folds of the training grids are decoded by the probe fitted on the other folds (scope "fold
    1 of 5" etc.), all other steps by the probe fitted on all training grids. Class probabilities assume the class
    frequencies of the training grids.

    Args:
        data: activations, truth and split.
        head: name of a registered head (form of probe) that predicts cells.
        settings: how probes are trained; their seed determines the folds.
        callbacks: functions that look up stored probes, which are not fitted again, and receive each fitted probe.

    Returns:
        The maps by site and layer.

    Raises:
        ValueError: if there are fewer than two training grids, or `probe_cells` refuses.
    """
    fit_settings = settings or FitSettings()
    fold = grid_folds(data.cells, data.split.train, seed=fit_settings.seed)
    parts = {"general": (data.split, fold < 0)}
    count = int(fold.max()) + 1
    for index in range(count):
        split = Split(train=data.split.train & (fold != index), test=fold == index, cluster=data.split.cluster)
        parts[f"fold {index + 1} of {count}"] = (split, fold == index)
    shape = (len(data.cells), data.cells.frame, data.cells.frame, len(CLASSES))
    posteriors = {(str(item.site), item.layer): np.zeros(shape, dtype=np.float32) for item in data.activations}
    options: dict[str, Any] = {"settings": fit_settings, "callbacks": callbacks, "scored": False}
    for scope, (split, decoded) in parts.items():
        fitted = probe_cells(replace(data, random={}, split=split), suite=((head, "none"),), scope=scope, **options)
        for item in data.activations:
            probe = fitted.probe(head, item, scope=scope)
            predictions = probe.predict(item.where(decoded), device=fit_settings.device)
            posteriors[item.site, item.layer][decoded] = predictions.maps("natural")
    return {place: decode_maps(posterior) for place, posterior in posteriors.items()}
