"""Decoding of the optimal path length with probes and baselines, scored by errors per test grid and R^2.

One baseline is a line fitted on decoded maps. Its training maps must have the same quality as its test maps. Maps that
a probe decodes at the steps on which it was fitted are better than those of other grids and would bias the line.
`cross_fitted` therefore decodes training steps by probes of the other training grids.

Sources: behavioural and representational evaluation, Appendix E.3; Stone 1974, Cross-validatory choice and assessment
of statistical predictions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, check_whole
from goalscope._ground.rng import stream
from goalscope.inside.probing.fitting import FitSettings, grid_weights
from goalscope.inside.probing.heads import NUMBER_HEADS
from goalscope.inside.probing.inputs import PLAN_CONTROLS, Features, ProbeInputs, Split, grid_kinds
from goalscope.inside.probing.labels import CLASSES, Cells
from goalscope.inside.probing.maps import DecodedMaps, decode_maps, true_map
from goalscope.inside.probing.plan_scores import BY
from goalscope.inside.probing.probe import Callbacks, Probe
from goalscope.inside.probing.scores import Grids, members
from goalscope.inside.probing.suite import (
    FittedProbes,
    Maps,
    Truth,
    check_controls,
    fit_suite,
    on_maps,
    probe_cells,
    truths,
)
from goalscope.stats import DRAW, Estimate, Grouped, estimate_crossed, estimate_pooled, estimate_rows
from goalscope.stats.estimate import ONE_SEED, factorize
from goalscope.stats.rows import Rows, Tag

ERROR, SQUARED, DEVIATION = "distance error", "squared distance error", "squared distance deviation"
_NO_DEVIATION: Final = 1e-12  # relative to the greatest value
FOLDS: Final = 5
"""Parts of the training grids, where there are as many grids."""
MAPS: Final = "percell"
"""The head that maps are decoded with for baselines: on Theseus better maps than those of the MLP, at a sixth of
the time."""


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
    """Fit every head with every control on one split, and score all of them and their baselines.

    Baselines: the mean of the training grids; and a line fitted on them from the Manhattan distance between agent and
    goal,
    either on the decoded map (``maps``) or on the true map (control "true map", which accesses the grid directly).
    Every grid has equal weight in them, as in scores.

    Args:
        data, maps, settings, callbacks: see `probe_plans`.
        distances: ``[N]`` steps, see `label_distances`; steps without a distance (NaN) are left out.
        heads: registered heads of a number.
        controls: some of `PLAN_CONTROLS`, including "none".

    Rows, see `score_distance`, are tagged by head (also "mean", "manhattan"), control (also "true map"), site, layer.

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
    """Return the errors of predicted distances ``[N]`` for each test grid.

    Rows: "distance error" (absolute, in steps), the squared error, and the squared deviation from the mean of the test
    grids, whose ratio gives R^2; each over all steps of a grid, and "distance error" also by distance (tag `distance`,
    None for all).
    """
    for name, values in (("predicted", predicted), ("distances", distances)):
        check_shape(name, values, "N", {"N": len(cells)})
        check_finite(name, values)
    grids = Grids.of(cells)
    mean = float(grids.mean(distances).mean()) if len(grids) else 0.0
    error = np.abs(predicted - distances)
    measures = (
        (ERROR, "steps", error),
        (SQUARED, "steps^2", error**2),
        (DEVIATION, "steps^2", (distances - mean) ** 2),
    )
    group_keys, group_index = np.unique(
        np.stack([grids.codes, distances.astype(np.int64)]), axis=1, return_inverse=True
    )
    parts = Grids.of(cells, group_index.reshape(-1))
    return Rows.concatenate(
        [
            grids.rows(((name, unit, grids.mean(values), {}) for name, unit, values in measures), tags),
            parts.rows(iter([(ERROR, "steps", parts.mean(error), {})]), {**tags, "distance": group_keys[1].tolist()}),
        ]
    )


def summarise_distance(rows: Rows, by: Sequence[str] = BY) -> list[Grouped]:
    """Return mean absolute error and R^2 of each probe and baseline, with their intervals over grids.

    R^2 is 1 minus the ratio of the mean squared error to the mean squared deviation, with equal weight per grid.
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
    """Return 1 minus the ratio of two means over grids ``[N]``: of the squared error and of the squared deviation.

    With several ``draws`` (the seeds of a random control) there is a pair per grid and draw, and the interval is that
    of the linearised ratio over grids and seeds.
    """
    squared, deviations = np.asarray(error, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    maximum = float(np.fmax.reduce(deviations, initial=0.0))
    # A grid whose steps all lie at the mean has deviation 0, but its error counts. If all grids do, the ratio is NaN.
    squared, deviations = np.where(maximum > 0, squared, np.nan), np.maximum(deviations, maximum * _NO_DEVIATION)
    seeds = len({seed for seed in draws.tolist() if seed is not None}) if draws is not None else 0
    if seeds > 1:
        points = (
            squared.sum() / deviations.sum()
            + (squared - squared.sum() / deviations.sum() * deviations) / deviations.mean()
        )
        effective_groups = float(deviations.sum() ** 2 / (deviations**2).sum()) / seeds
        grid, seed = factorize(clusters)[0], factorize(draws if draws is not None else ())[0]
        estimate = estimate_crossed(points, grid, seed, unit="share", groups=effective_groups)
    else:
        estimate = estimate_pooled(squared, deviations, clusters, unit="share")
        estimate = replace(estimate, note="; ".join(filter(None, (estimate.note, ONE_SEED if seeds else ""))))
    # Squared errors are not negative, although the linearised ratio may be.
    return replace(
        estimate, value=1 - estimate.value, low=1 - estimate.high, high=float(np.minimum(1.0, 1 - estimate.low))
    )


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> tuple[float, float]:
    """Return slope and offset of the least-squares line; if x does not vary, 0 and the mean of y."""
    values, target = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    check_shape("y", target, "N", check_shape("x", values, "N"))
    check_finite("x", values)
    check_finite("y", target)
    if not len(values):
        raise ValueError("fit_line needs at least one point, got none")
    weight = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    x_mean, y_mean = float(np.average(values, weights=weight)), float(np.average(target, weights=weight))
    centred = values - x_mean
    variance = float(weight @ centred**2)
    slope = float((weight * centred) @ (target - y_mean)) / variance if variance > 0 else 0.0
    return slope, y_mean - slope * x_mean


def grid_folds(
    cells: Cells, train: npt.NDArray[np.bool_], *, folds: int = FOLDS, seed: int = 0
) -> npt.NDArray[np.int64]:
    """Return the fold of each step, ``[N]`` from 0, -1 outside of the training part ``[N]``.

    All steps of a grid are in one fold; the grids of each shape and density are dealt out over all folds. With fewer
    training grids than folds each of them is a fold.

    Raises:
        ValueError: fewer than two folds or training grids.
    """
    check_whole("the number of folds", folds, 2)
    kinds = {grid: kind for grid, kind in grid_kinds(cells).items() if grid in set(cells.cluster[train].tolist())}
    if len(kinds) < 2:
        raise ValueError(f"cross-fitting needs at least two training grids, got {len(kinds)}: record more grids")
    fold_of: dict[str, int] = {}
    for kind in sorted(set(kinds.values())):
        grids = sorted(grid for grid, grid_kind in kinds.items() if grid_kind == kind)
        for index in stream(seed, "folds", *kind).permutation(len(grids)).tolist():
            fold_of[grids[index]] = len(fold_of) % folds
    return np.array([fold_of.get(grid, -1) for grid in cells.cluster.tolist()], dtype=np.int64)


def cross_fitted(
    data: ProbeInputs,
    *,
    head: str = MAPS,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> dict[tuple[str, int], DecodedMaps]:
    """Return the decoded maps of all N steps at each place, none from a probe that was fitted on its grid.

    Steps in each of `FOLDS` folds of the training grids are decoded by the probe fitted on the other folds (scope "fold
    1 of 5" etc.), all other steps by the probe fitted on all training grids, at natural class frequencies.

    Args:
        data: activations, truth and split.
        head: registered head of cells.
        settings: how probes are trained; their seed determines the folds.
        callbacks: source of stored probes, which are not fitted again; receives each fitted probe.

    Raises:
        ValueError: if there are fewer than two training grids, or `probe_cells` refuses.
    """
    fit_settings = settings or FitSettings()
    fold = grid_folds(data.cells, data.split.train, folds=FOLDS, seed=fit_settings.seed)
    own_data = replace(data, random={})
    parts = {"general": (data.split, fold < 0)}
    count = int(fold.max()) + 1
    for index in range(count):
        split = Split(train=data.split.train & (fold != index), test=fold == index, cluster=data.split.cluster)
        parts[f"fold {index + 1} of {count}"] = (split, fold == index)
    side = data.cells.frame
    posteriors = {
        (str(activations.site), activations.layer): np.zeros(
            (len(data.cells), side, side, len(CLASSES)), dtype=np.float32
        )
        for activations in data.activations
    }
    for scope, (split, decoded) in parts.items():
        fitted = probe_cells(
            replace(own_data, split=split),
            suite=((head, "none"),),
            settings=fit_settings,
            scope=scope,
            callbacks=callbacks,
            scored=False,
        )
        for activations in data.activations:
            predictions = fitted.probe(head, activations, scope=scope).predict(
                activations.where(decoded), device=fit_settings.device
            )
            posteriors[activations.site, activations.layer][decoded] = predictions.maps("natural")
    return {place: decode_maps(posterior) for place, posterior in posteriors.items()}
