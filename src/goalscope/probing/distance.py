"""How far it is to the goal: probes of the optimal path length, with their controls and baselines.

Source: behavioural and representational evaluation, Appendix E.3 (linear and MLP probes, label by shortest path).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape
from goalscope.planning import solve
from goalscope.probing.cells import Cells, grids_of, members, ratio, steps_of
from goalscope.probing.controls import PLAN_CONTROLS, check_controls, shuffled_rows
from goalscope.probing.fitting import Callbacks
from goalscope.probing.heads import NUMBER_HEADS
from goalscope.probing.maps import true_map
from goalscope.probing.plan_suite import Maps
from goalscope.probing.probe import Probe
from goalscope.probing.problem import FitSettings
from goalscope.probing.suite import FittedProbes, ProbeInputs, Truth, fit_suite
from goalscope.rows import Rows, Tag
from goalscope.runs import Episode
from goalscope.stats import Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.estimate import factorize

ERROR, SQUARED, DEVIATION = "distance error", "squared distance error", "squared distance deviation"
_BY: Final = ("site", "layer", "head", "control")
_NO_DEVIATION: Final = 1e-12  # relative to the greatest one


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A straight line fitted by least squares: ``slope * x + offset``."""

    slope: float
    offset: float

    def at(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return its value at each x."""
        return self.slope * np.asarray(x, dtype=np.float64) + self.offset


def label_distances(cells: Cells, episodes: Iterable[Episode]) -> npt.NDArray[np.float64]:
    """Return the optimal path length from the state of each step to the goal, steps, ``[N]``.

    Keys and doors count: the way leads over the key where it must. NaN where the goal cannot be reached.

    Args:
        cells: the steps, see `label_cells`.
        episodes: the run's episodes; read once.

    Raises:
        ValueError: a step that is not among the episodes.
    """
    found = np.full(len(cells), np.nan)
    for row, episode, number in steps_of(cells, episodes):
        length = solve(episode.world.grid).steps_from(episode.steps[number].state)
        found[row] = length if length >= 0 else np.nan
    return found


def probe_distances(
    data: ProbeInputs,
    distances: npt.NDArray[np.float64],
    *,
    heads: Sequence[str] = NUMBER_HEADS,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    settings: FitSettings | None = None,
    tags: Mapping[str, Tag] | None = None,
    callbacks: Callbacks[Probe] | None = None,
) -> FittedProbes[Probe]:
    """Fit every head with every control on one split, and score all of them beside their baselines.

    Baselines: the mean of the training grids; a line fitted on them from the Manhattan distance between agent and goal,
    as a decoded map has them (``maps``), and on the true map (control "true map": no probe of activations, but what a
    reader of the grid has). Every grid counts alike in them, as in all scores: fitted to steps, most of which belong to
    long ways, they would be easier to beat.

    Args:
        data: what is read, the truth and the split.
        distances: ``[N]`` steps, see `label_distances`; steps without one (NaN) are left out.
        heads: registered heads of a number.
        controls: some of `PLAN_CONTROLS`, "none" among them.
        maps: decoded maps of the same N steps.
        settings: how probes are trained.
        tags: kept with every row, e.g. the agent.
        callbacks: probes that are known are not fitted again; is told of each that is finished.

    Returns:
        The probes, and the scores of all of them and of the baselines on the tested grids, see `score_distance`. Tags:
        head ("linear", "mlp", "mean", "manhattan"), control (`PLAN_CONTROLS`, "true map"), site, layer, ...

    Raises:
        ValueError: unknown controls, steps that do not match, or a control whose data is missing; says how to get it.
    """
    used, cells, split = settings or FitSettings(), data.cells, data.split
    check_shape("distances", distances, "N", {"N": len(cells)})
    check_controls(controls)
    for name, part in (("train", split.train), ("test", split.test)):
        if np.isnan(distances[part]).all():
            raise ValueError(
                f"the {name} part of a split must have steps from which the goal can be reached, it has none: record "
                "more grids, or leave the reading out"
            )
    kept = dict(tags or {})
    known = {"none": distances}
    if "shuffled" in controls:
        known["shuffled"] = distances[shuffled_rows(cells, split, seed=used.seed)]
    truths = {
        name: Truth(target=one, train=split.train & ~np.isnan(one), test=split.test & ~np.isnan(one))
        for name, one in known.items()
    }
    suite = [(head, control) for control in controls for head in heads]
    fitted = fit_suite(data, suite, truths, target="distance", settings=used, callbacks=callbacks)
    rows = []
    for one in fitted:
        truth, about = truths[one.truth], {**kept, **one.key.tags, "probe": one.probe.id}
        said = one.probe.predict_number(one.features, device=used.device)
        rows.append(score_distance(said, truth.target[truth.test], cells.where(truth.test), about))
    rows += _baselines(distances, cells, truths["none"].train, truths["none"].test, maps or {}, kept)
    return FittedProbes(probes={one.key: one.probe for one in fitted}, rows=Rows.concatenate(rows))


def score_distance(
    predicted: npt.NDArray[np.float64], distances: npt.NDArray[np.float64], cells: Cells, tags: Mapping[str, Tag]
) -> Rows:
    """Return the errors of predicted distances for each tested grid.

    Args:
        predicted: ``[N]`` steps.
        distances: ``[N]`` true ones.
        cells: the same steps.
        tags: kept with every row.

    Returns:
        Rows of "distance error" (absolute, steps) and of the squared error and the squared deviation from the mean of
        the tested grids, whose ratio gives R^2; each once over all steps of a grid, and "distance error" once more by
        distance (tag `distance`, None for all).
    """
    check_shape("predicted", predicted, "N", {"N": len(cells)})
    check_shape("distances", distances, "N", {"N": len(cells)})
    check_finite("predicted", predicted)
    check_finite("distances", distances)
    codes, grids, about = grids_of(cells)

    def by_grid(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return ratio(np.bincount(codes, values), np.bincount(codes))

    mean = float(by_grid(distances).mean()) if len(grids) else 0.0
    error = np.abs(predicted - distances)
    whole = ((ERROR, "steps", error), (SQUARED, "steps^2", error**2), (DEVIATION, "steps^2", (distances - mean) ** 2))
    parts = [
        Rows.from_columns(measure=name, unit=unit, value=by_grid(values), grid_id=grids, tags={**tags, **about})
        for name, unit, values in whole
    ]
    pairs, place = np.unique(np.stack([codes, distances.astype(np.int64)], axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    those = pairs[:, 0].tolist()
    parts.append(
        Rows.from_columns(
            measure=ERROR,
            unit="steps",
            value=ratio(np.bincount(place, error), np.bincount(place)),
            grid_id=[grids[code] for code in those],
            tags={
                **tags,
                **{name: [values[code] for code in those] for name, values in about.items()},
                "distance": pairs[:, 1].tolist(),
            },
        )
    )
    return Rows.concatenate(parts)


def summarise_distance(rows: Rows, by: Sequence[str] = _BY) -> list[Grouped]:
    """Return mean absolute error and R^2 of each probe and baseline with their intervals over grids.

    R^2 is one less the ratio of the mean squared error to the mean squared deviation, each grid weighing alike.

    Args:
        rows: from `score_distance`.
        by: tags to group by; with "distance" among them the error alone, by distance.
    """
    column = rows.tags.get("distance", np.full(len(rows), None, dtype=object))
    whole = np.array([value is None for value in column.tolist()], dtype=bool)
    mine = rows.where(~whole if "distance" in by else whole)
    found = estimate_rows(mine.where(mine.measure == ERROR), by=by, bounds={ERROR: (0.0, np.inf)})
    if "distance" in by:
        return found
    above, below = (mine.where(mine.measure == name) for name in (SQUARED, DEVIATION))
    codes, keys = factorize(list(zip(*(above.columns()[name].tolist() for name in by), strict=True)))
    for key, group in zip(keys, members(codes, len(keys)), strict=True):
        estimate = r_squared(above.value[group], below.value[group], above.grid_id[group])
        found.append(Grouped(key={"measure": "R^2", **dict(zip(by, key, strict=True))}, estimate=estimate))
    return found


def r_squared(error: npt.ArrayLike, deviation: npt.ArrayLike, clusters: Sequence[Any] | npt.NDArray[Any]) -> Estimate:
    """Return one less the ratio of two means over grids, with its interval.

    Args:
        error: ``[G]`` mean squared error of each grid.
        deviation: ``[G]`` mean squared deviation of each grid from the mean of all.
        clusters: ``[G]`` grids.
    """
    above, below = np.asarray(error, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    most = float(np.fmax.reduce(below, initial=0.0))
    # A grid whose steps all lie at the mean deviates by nothing, yet its error counts; where none deviates, there is no
    # share of it.
    found = estimate_pooled(
        np.where(most > 0, above, np.nan), np.maximum(below, most * _NO_DEVIATION), clusters, unit="share"
    )
    return Estimate(
        value=1 - found.value,
        low=1 - found.high,
        high=float(np.minimum(1.0, 1 - found.low)),  # no squared error is negative, though the line of the ratio may be
        n=found.n,
        clusters=found.clusters,
        method=found.method,
        unit="share",
        without=found.without,
        confidence=found.confidence,
        note=found.note,
        undefined=found.undefined,
    )


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Line:
    """Return the line of least squares; where x does not vary, the mean of y.

    Args:
        x: ``[N]`` what is known.
        y: ``[N]`` what is wanted.
        weights: ``[N]`` of the squared errors, above 0; all alike by default.

    Raises:
        ValueError: no point, or one that is not finite.
    """
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
    return Line(slope=slope, offset=mean - slope * middle)


def _baselines(
    distances: npt.NDArray[np.float64],
    cells: Cells,
    train: npt.NDArray[np.bool_],
    test: npt.NDArray[np.bool_],
    maps: Maps,
    tags: Mapping[str, Tag],
) -> list[Rows]:
    shown, target = cells.where(test), distances[test]
    nowhere: dict[str, Tag] = {**tags, "site": None, "layer": None}
    codes, _ = factorize(cells.grid_id[train])
    alike = 1 / np.bincount(codes)[codes]  # every grid counts alike
    mean = np.full(len(target), np.average(distances[train], weights=alike))
    rows = [score_distance(mean, target, shown, {**nowhere, "head": "mean", "control": "none"})]
    readings: list[tuple[dict[str, Any], npt.NDArray[np.int64]]] = [
        ({**tags, "site": site, "layer": layer, "control": "none"}, layout.manhattan)
        for (site, layer), layout in maps.items()
    ]
    every = np.zeros(len(cells), dtype=np.int64)
    used = train | test
    every[used] = true_map(cells.where(used)).manhattan
    readings.append(({**nowhere, "control": "true map"}, every))
    for own, manhattan in readings:
        check_shape("manhattan", manhattan, "N", {"N": len(cells)})
        said = fit_line(manhattan[train], distances[train], alike).at(manhattan[test])
        rows.append(score_distance(said, target, shown, {**own, "head": "manhattan"}))
    return rows
