"""The optimal path length as it is decoded: probes and their baselines, their errors by tested grid, R^2.

One baseline is a line on decoded maps. What is fitted on decoded maps must meet in training what it will meet in the
test: maps that a probe decodes at the very steps it was fitted on are better than those of other grids, and a line on
them counts on too much. `cross_fitted` therefore decodes training steps by probes of the other training grids.

Sources: behavioural and representational evaluation, Appendix E.3; Stone 1974, Cross-validatory choice and assessment
of statistical predictions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, check_whole
from goalscope.probing.fitting import Callbacks
from goalscope.probing.heads import NUMBER_HEADS
from goalscope.probing.inputs import PLAN_CONTROLS, Features, ProbeInputs, Split, grid_kinds
from goalscope.probing.labels import CLASSES, Cells
from goalscope.probing.maps import DecodedMaps, decode_maps, true_map
from goalscope.probing.plan_scores import BY
from goalscope.probing.probe import Probe
from goalscope.probing.problem import FitSettings, grid_weights
from goalscope.probing.scores import Grids, members
from goalscope.probing.suite import FittedProbes, Maps, check_controls, fit_suite, on_maps, probe_cells
from goalscope.probing.truths import Truth, truths
from goalscope.rng import stream
from goalscope.rows import Rows, Tag
from goalscope.stats import DRAW, Estimate, Grouped, estimate_crossed, estimate_pooled, estimate_rows
from goalscope.stats.crossed import ONE_SEED
from goalscope.stats.estimate import factorize

ERROR, SQUARED, DEVIATION = "distance error", "squared distance error", "squared distance deviation"
_NO_DEVIATION: Final = 1e-12  # relative to the greatest one
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
    tags: Mapping[str, Tag] | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit every head with every control on one split, and score all of them beside their baselines.

    Baselines: the mean of the training grids; a line fitted on them from the Manhattan distance between agent and goal,
    as a decoded map has them (``maps``), and on the true map (control "true map": no probe of activations, but what a
    reader of the grid has). Every grid counts alike in them, as in scores.

    Args:
        data, maps, settings, tags, callbacks: see `probe_plans`.
        distances: ``[N]`` steps, see `label_distances`; steps without one (NaN) are left out.
        heads: registered heads of a number.
        controls: some of `PLAN_CONTROLS`, "none" among them.

    Rows, see `score_distance`, are tagged by head (also "mean", "manhattan"), control (also "true map"), site, layer.

    Raises:
        ValueError: unknown controls, steps that do not match, or a control whose data is missing; says how to get it.

    Source: behavioural and representational evaluation, Appendix E.3 (linear and MLP probes, label by shortest path).
    """
    used, cells = settings or FitSettings(), data.cells
    check_shape("distances", distances, "N", {"N": len(cells)})
    check_controls(controls)
    for name, part in data.split.parts:
        if np.isnan(distances[part]).all():
            raise ValueError(
                f"the {name} part of a split must have steps from which the goal can be reached, it has none: record "
                "more grids, or leave the reading out"
            )

    def score(probe: Probe, features: Features, truth: Truth, about: dict[str, Any]) -> Iterable[Rows]:
        said = probe.predict_number(features, device=used.device)
        yield score_distance(said, truth.values[truth.test], cells.where(truth.test), about)

    truth_of = truths(distances, data, controls, seed=used.seed, known=~np.isnan(distances))
    suite = [(head, control) for control in controls for head in heads]
    found = fit_suite(data, suite, truth_of, score, target="distance", settings=used, callbacks=callbacks, tags=tags)
    train, test = truth_of["own"].train, truth_of["own"].test
    known, target, shown, either = distances[train], distances[test], cells.where(test), train | test
    nowhere: dict[str, Any] = {**(tags or {}), "site": None, "layer": None}
    alike = grid_weights(cells.grid_id[train])
    mean = np.full(len(target), np.average(known, weights=alike))
    rows = [found.rows, score_distance(mean, target, shown, {**nowhere, "head": "mean", "control": "none"})]
    for decoded in (maps or {}).values():
        check_shape("maps", decoded.agent, "N 2", {"N": len(cells)})
    true = ({**nowhere, "control": "true map"}, true_map(cells.where(either)))
    for own, layout in (*on_maps(maps, either, tags), true):
        manhattan = layout.manhattan
        slope, offset = fit_line(manhattan[train[either]], known, alike)
        said = slope * manhattan[test[either]].astype(np.float64) + offset
        rows.append(score_distance(said, target, shown, {**own, "head": "manhattan"}))
    return replace(found, rows=Rows.concatenate(rows))


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


def summarise_distance(rows: Rows, by: Sequence[str] = BY) -> list[Grouped]:
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


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> tuple[float, float]:
    """Return slope and offset of the line of least squares; where x does not vary, 0 and the mean of y."""
    given, target = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    check_shape("y", target, "N", check_shape("x", given, "N"))
    check_finite("x", given)
    check_finite("y", target)
    if not len(given):
        raise ValueError("a line must be fitted to points, got none")
    share = np.ones(len(given)) if weights is None else np.asarray(weights, dtype=np.float64)
    middle, mean = float(np.average(given, weights=share)), float(np.average(target, weights=share))
    centred = given - middle
    spread = float(share @ centred**2)
    slope = float((share * centred) @ (target - mean)) / spread if spread > 0 else 0.0
    return slope, mean - slope * middle


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
    kinds = {grid: kind for grid, kind in grid_kinds(cells).items() if grid in set(cells.grid_id[train].tolist())}
    if len(kinds) < 2:
        raise ValueError(f"folds need two training grids or more, got {len(kinds)}: record more grids")
    dealt: dict[str, int] = {}
    for kind in sorted(set(kinds.values())):
        listed = sorted(grid for grid, own in kinds.items() if own == kind)
        for at in stream(seed, "folds", *kind).permutation(len(listed)).tolist():
            dealt[listed[at]] = len(dealt) % folds
    return np.array([dealt.get(grid, -1) for grid in cells.grid_id.tolist()], dtype=np.int64)


def cross_fitted(
    data: ProbeInputs,
    *,
    head: str = MAPS,
    folds: int = FOLDS,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> dict[tuple[str, int], DecodedMaps]:
    """Return the decoded maps of all N steps at each place, none of them from a probe that was fitted on its grid.

    Steps of each fold of the training grids are decoded by the probe of the other folds (scope "fold 1 of 5" etc.), all
    others by the probe of all training grids, at natural class frequencies.

    Args:
        data: what is read, the truth and the split.
        head: registered head of cells.
        folds: number of folds, see `grid_folds`; as many probes are fitted beside the one of all training grids.
        settings: how probes are trained; their seed decides the folds.
        callbacks: probes that are known are not fitted again; is told of each that is finished.

    Raises:
        ValueError: fewer than two training grids, or what `probe_cells` refuses.
    """
    used = settings or FitSettings()
    fold = grid_folds(data.cells, data.split.train, folds=folds, seed=used.seed)
    own = replace(data, random={})
    parts = {"general": (data.split, fold < 0)}
    count = int(fold.max()) + 1
    for at in range(count):
        split = Split(train=data.split.train & (fold != at), test=fold == at, grid_id=data.split.grid_id)
        parts[f"fold {at + 1} of {count}"] = (split, fold == at)
    side = data.cells.frame
    posteriors = {
        (str(one.site), one.layer): np.zeros((len(data.cells), side, side, len(CLASSES)), dtype=np.float32)
        for one in data.activations
    }
    for scope, (split, decoded) in parts.items():
        fitted = probe_cells(
            replace(own, split=split),
            suite=((head, "none"),),
            settings=used,
            scope=scope,
            callbacks=callbacks,
            scored=False,
        )
        for one in data.activations:
            said = fitted.probe(head, one, scope=scope).predict(one.where(decoded), device=used.device)
            posteriors[one.site, one.layer][decoded] = said.maps("natural")
    return {place: decode_maps(posterior) for place, posterior in posteriors.items()}
