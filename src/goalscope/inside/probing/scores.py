"""Scores of map probes. There is one row for each test grid, so every score has an interval over grids.

Each measure is computed over all states of one grid and then averaged over grids. Recall alone is no evidence: the
training weights rare classes up, so that an uninformed probe labels many cells as agent and has a high recall.
Precision, average precision and the reading at natural frequencies show the cost of a high recall.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape
from goalscope.inside.probing.labels import AGENT, CLASSES, GOAL, PADDING, Cells, Decisions, Undetermined
from goalscope.inside.probing.probe import Prediction
from goalscope.stats import DIFFERENCES, DRAW, LESS, Grouped, estimate_rows
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Rows, Tag, constant

READINGS: Final = ("balanced", "natural")
"""Probabilities as if all classes were equally frequent, and at the frequencies of the training split."""

AREA: Final = "area under the curve"
UNDETERMINED_PRECISION: Final = "average precision, undetermined cells"
"""Measures over the cells that hold a class in some training states and not in others."""

CALLED: Final = "called "
"""Prefix of the measures of `confusion_rows`; the name of a class follows."""

KEY: Final = ("agent", "head", "site", "layer", "scope", "reading", "class", "shape")
"""Tags that a score shares with that of a control, beside measure and grid."""

_BY: Final = ("site", "layer", "scope", "head", "control", "reading", "class")

_ByClass = tuple[str, str | None, npt.NDArray[np.float64]]
"""A measure, a class, and its value on each grid ``[G]``."""
Measured = tuple[str, str, npt.NDArray[np.float64], Mapping[str, Tag]]
"""A measure, its unit, its value on each grid ``[G]``, and tags of its own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grids:
    """Which of G grids each of N steps belongs to, for computing scores per grid.

    Attributes:
        codes: ``[N]`` number of each step's grid, in order of appearance.
        names: ids of the grids.
        tags: size (longer side, in cells) and density of the grids, None if unknown.
    """

    codes: npt.NDArray[np.int64]
    names: Sequence[Any]
    tags: Mapping[str, list[Any]]

    @classmethod
    def of(cls, steps: Cells | Decisions, codes: npt.NDArray[np.int64] | None = None) -> Self:
        """Group steps by their grids, or by ``codes`` ``[N]`` if steps of one grid belong to several groups."""
        codes = factorize(steps.cluster)[0] if codes is None else codes
        first = np.unique(codes, return_index=True)[1]
        density = [None if np.isnan(value) else float(value) for value in steps.density[first]]
        tags = {"size": steps.shape[first].max(axis=1).tolist(), "density": density}
        return cls(codes=codes, names=steps.cluster[first].tolist(), tags=tags)

    def __len__(self) -> int:
        return len(self.names)

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the sum of values ``[N]`` over the steps of each of G grids, ``[G]``."""
        return np.asarray(np.bincount(self.codes, values, len(self)), dtype=np.float64)

    def ratio_of_sums(self, numerator: npt.NDArray[Any], denominator: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return, for each of G grids, the sum of one value over its steps divided by that of another; NaN if that is
        0.

        Both values are ``[N]``, one per step; the result is ``[G]``.
        """
        return ratio(self.sums(numerator), self.sums(denominator))

    def mean(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the mean over the steps of each grid, ``[G]``, of values ``[N]``; NaN values are ignored.

        The mean is NaN for a grid without a defined value.
        """
        defined = ~np.isnan(values)
        return self.ratio_of_sums(np.where(defined, values, 0.0), defined)

    def rows(self, measured: Iterable[Measured], tags: Mapping[str, Any]) -> Rows:
        """Return one row of results per measure and grid.

        Args:
            measured: for each measure its name, its unit, its values ``[G]``, and tags (named facts) of its own.
            tags: further tags of all rows.
        """
        return Rows.of_measures(measured, cluster=self.names, tags={**tags, **self.tags})


def members(codes: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.int64]]:
    """Return, for each of ``count`` grids, the sorted indices of its steps; ``codes`` ``[N]`` is the grid of each
    step.
    """
    ends = np.cumsum(np.bincount(codes, minlength=count))
    return np.split(np.argsort(codes, kind="stable"), ends)[:count]


def score_cells(
    prediction: Prediction,
    cells: Cells,
    tags: Mapping[str, Tag],
    *,
    undetermined: Undetermined | None = None,
    counted: npt.NDArray[np.bool_] | None = None,
) -> Rows:
    """Score predicted classes of cells in N test states.

    Measures: "cell accuracy" (also "without padding" and "without padding and border"). By class: "recall", "precision"
    and "average precision" over the cells that are not padding (for the class padding: over all cells). For agent and
    goal: "localisation" (the cell of highest probability is the right one) and "localisation distance" (Manhattan, in
    cells). NaN if undefined: no cell is predicted as the class, or none belongs to it.

    Args:
        prediction: the predicted probabilities.
        cells: the true classes.
        tags: named facts to keep with every row.
        undetermined: result of `inside.probing.labels.undetermined` for the training steps. Adds, by class, "area under
            the curve" and "average precision, undetermined cells" over those cells of a grid's shape. They rank the
            natural probabilities of all its cells and states together: the balanced probabilities have the same
            evidence, but rank the cells of several classes differently.
        counted: ``[N, C]`` which cells count in the measures (states by cells), e.g. those of a control task whose type
            is known; localisation is then left out.

    Returns:
        One row per measure, reading ("balanced" or "natural" class frequencies), class and grid.
    """
    grids = Grids.of(cells)
    by_reading = {reading: _checked(prediction, cells, reading) for reading in READINGS}
    is_counted = np.ones(cells.labels.shape, dtype=bool) if counted is None else counted
    check_shape("counted", is_counted, "N C", {"N": len(cells), "C": cells.labels.shape[1]})
    scored: dict[str, list[_ByClass]] = {}
    for reading, probabilities in by_reading.items():
        scored[reading] = list(_measures(probabilities, cells, grids, is_counted))
        if undetermined is not None and reading == "natural":
            scored[reading] += _ranked(probabilities, cells, grids, undetermined, is_counted)
        if counted is None:
            scored[reading] += _localised(probabilities, cells, grids)
    return grids.rows(
        (
            (name, "cells" if name == "localisation distance" else "share", value, {"reading": reading, "class": label})
            for reading, measured in scored.items()
            for name, label, value in measured
        ),
        tags,
    )


def confusion_rows(prediction: Prediction, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return the confusion matrix of predicted classes of cells, as fractions of the cells of each true class.

    Measures are "called agent" and so on; padding is not a true class here, but may be predicted. There is one row per
    predicted class (measure), true class (tag "class"), reading ("balanced" or "natural" class frequencies) and grid.
    """

    grids = Grids.of(cells)

    def measured() -> Iterator[Measured]:
        for reading in READINGS:
            called = _checked(prediction, cells, reading).argmax(axis=2)
            counts = _confusion(called, cells, grids, cells.labels != PADDING)
            for label, name in enumerate(CLASSES[:PADDING]):
                for other, called_name in enumerate(CLASSES):
                    value = ratio(counts[:, label, other], counts[:, label].sum(axis=1))
                    yield f"{CALLED}{called_name}", "share", value, {"reading": reading, "class": name}

    return grids.rows(measured(), tags)


def difference_rows(rows: Rows, against: str) -> Rows:
    """Return how much better the probes are than a control, paired by grid; for "control-task" this is the selectivity.

    Measures are named "recall less permuted" and so on. A control that reads no activations is paired with every site
    and layer. Rows compared with a random network have its seed in the tag "draw", one row per seed.

    Args:
        rows: scores of probes and controls.
        against: name of the control, such as "permuted".

    Raises:
        ValueError: if no row has a partner in the control, or two rows of the control have the same key.
    """
    control = rows.where(rows["control"] == against)
    if not len(control):
        raise ValueError(
            f"rows must contain the control {against!r}, but contain only "
            f"{', '.join(sorted(set(rows['control'].tolist())))}: fit that control too"
        )
    return paired_rows(rows.where(rows["control"] == "none"), control, name=against, by=KEY)


def summarise(rows: Rows, by: Sequence[str] = _BY, *, confidence: float = 0.95) -> list[Grouped]:
    """Estimate every score of probes by its mean over grids, with a confidence interval; grids are the independent
    units.

    Args:
        rows: scores, one row per grid.
        by: tags to group by, such as "layer".
        confidence: confidence level.
    """
    scores = rows.where(~rows.known(DIFFERENCES))
    units = set(zip(scores.measure.tolist(), scores.unit.tolist(), strict=True))
    bounds = {name: (0.0, 1.0 if unit == "share" else np.inf) for name, unit in units}
    return estimate_rows(rows, by=by, bounds=bounds, confidence=confidence)


def paired_rows(model_rows: Rows, other: Rows, *, name: str, by: Sequence[str]) -> Rows:
    """Subtract from each row of scores the row of a control (its partner) on the same grid; NaN if either is undefined.

    Args:
        model_rows, other: the rows and their partners; a partner whose tags `site` and `layer` are None is paired with
            all.
        name: name of the partners; measures become "MEASURE less NAME", and there is a further tag "differences".
        by: tags that partners share, in addition to measure and grid.

    Raises:
        ValueError: if no row has a partner, or two partners have the same key.
    """
    differences = pairs(model_rows, other, name=name, by=by)
    if not len(differences):
        shared = ", ".join(("measure", *by, "cluster"))
        raise ValueError(
            f"no row has a partner among {name!r} with the same {shared}: check that both were scored on the same grids"
        )
    return differences


def pairs(model_rows: Rows, other: Rows, *, name: str, by: Sequence[str]) -> Rows:
    """Subtract from each row of scores the row of a control on the same grid, like `paired_rows`, but allow an empty
    result.

    If the controls are random networks of several seeds (tag "draw"), each row is paired with those of every seed; if
    both sides are random networks, with those of the same seed.
    """
    seeds = list(dict.fromkeys(other[DRAW].tolist())) if other.known(DRAW).any() else []
    if not seeds:
        return _pairs(model_rows, other, name, by)
    if model_rows.known(DRAW).any():
        return _pairs(model_rows, other, name, (*by, DRAW))
    parts = []
    for seed in seeds:
        differences = _pairs(model_rows, other.where(other.among(DRAW, [seed])), name, by)
        parts.append(differences.tagged({DRAW: constant(seed, len(differences))}))
    return Rows.concatenate(parts)


def _pairs(model_rows: Rows, other: Rows, name: str, by: Sequence[str]) -> Rows:
    names = ("measure", *by, "cluster")
    keys = _keys(other, names)
    by_key = dict(zip(keys, other.value.tolist(), strict=True))
    if len(by_key) < len(keys):
        raise ValueError(
            f"rows of {name!r} must be unique in {', '.join(names)}, but some are not: select rows of one probe first"
        )
    optional = [index for index, key in enumerate(names) if key in ("site", "layer")]
    own_keys = _keys(model_rows, names)
    fallbacks = [tuple(None if index in optional else part for index, part in enumerate(key)) for key in own_keys]
    partner = [by_key.get(key, by_key.get(fallback)) for key, fallback in zip(own_keys, fallbacks, strict=True)]
    matched = model_rows.where(np.array([value is not None for value in partner], dtype=bool))
    partner_values = np.array([value for value in partner if value is not None], dtype=np.float64)
    before = matched.tags[DIFFERENCES] if matched.known(DIFFERENCES).any() else [0] * len(matched)
    return Rows.from_columns(
        measure=[f"{measure}{LESS}{name}" for measure in matched.measure],
        unit=matched.unit.tolist(),
        value=matched.value - partner_values,
        cluster=matched.cluster,
        tags={**matched.tags, DIFFERENCES: [int(count or 0) + 1 for count in before]},
    )


def chosen(rows: Rows, **tags: Any) -> Rows:
    """Return the rows of a table whose tags and columns have the given values; a tag that no row has counts as None."""
    columns = rows.columns()
    if any(value is not None for name, value in tags.items() if name not in columns):
        return rows.where(np.zeros(len(rows), dtype=bool))
    return rows.select(**{name: value for name, value in tags.items() if name in columns})


def _keys(rows: Rows, names: Sequence[str]) -> list[tuple[Any, ...]]:
    missing = np.full(len(rows), None, dtype=object)
    columns = rows.columns()
    return list(zip(*(columns.get(name, missing).tolist() for name in names), strict=True))


def _checked(prediction: Prediction, cells: Cells, reading: str) -> npt.NDArray[np.float32]:
    probabilities = prediction.reading(reading)
    check_shape(reading, probabilities, "N C K", {"N": len(cells), "C": cells.labels.shape[1], "K": len(CLASSES)})
    return probabilities


def _confusion(
    called: npt.NDArray[Any], cells: Cells, grids: Grids, inside: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Count the cells of G grids by true and predicted class of K, ``[G, K, K]``.

    Only the cells that ``inside`` marks are counted; it has C cells for each of N steps, ``[N, C]``.
    """
    classes = len(CLASSES)
    pairs = (grids.codes[:, None] * classes + cells.labels) * classes + called
    counts = np.bincount(pairs[inside], minlength=len(grids) * classes * classes)
    return counts.reshape(len(grids), classes, classes)


def _ranked(
    probabilities: npt.NDArray[np.float32],
    cells: Cells,
    grids: Grids,
    undetermined: Undetermined,
    counted: npt.NDArray[np.bool_],
) -> Iterator[_ByClass]:
    """Yield the measures over undetermined cells; a grid shape without training states has none."""
    undetermined_cells = np.zeros((*cells.labels.shape, len(CLASSES)), dtype=bool)
    for shape, masks in undetermined.items():
        check_shape("undetermined", masks, "C K", {"C": cells.labels.shape[1], "K": len(CLASSES)})
        undetermined_cells[(cells.shape == shape).all(axis=1)] = masks
    for label, name in enumerate(CLASSES[:PADDING]):
        step, cell = np.nonzero(undetermined_cells[:, :, label] & counted)
        truth = cells.labels[step, cell] == label
        area, precision = rank_scores(probabilities[step, cell, label], truth, grids.codes[step], len(grids))
        yield AREA, name, area
        yield UNDETERMINED_PRECISION, name, precision


def _measures(
    probabilities: npt.NDArray[np.float32], cells: Cells, grids: Grids, counted: npt.NDArray[np.bool_]
) -> Iterator[_ByClass]:
    """Yield each measure with its class (None for all classes) and its values in G grids, ``[G]``."""
    called = probabilities.argmax(axis=2)
    right = called == cells.labels
    for name, is_counted in (
        ("cell accuracy", counted),
        ("cell accuracy without padding", cells.inside() & counted),
        ("cell accuracy without padding and border", cells.inside(1) & counted),
    ):
        yield name, None, grids.ratio_of_sums((right & is_counted).sum(axis=1), is_counted.sum(axis=1))
    inside = (cells.labels != PADDING) & counted
    counts = _confusion(called, cells, grids, inside)
    for label, name in enumerate(CLASSES):
        parts = [counts[:, label, label], counts[:, label].sum(axis=1), counts[:, :, label].sum(axis=1)]
        if label == PADDING:  # over all cells
            outside = (cells.labels == PADDING) & counted
            masks = (outside & (called == PADDING), outside, (called == PADDING) & counted)
            parts = [grids.sums(mask.sum(axis=1)) for mask in masks]
        hits, actual, predicted = parts
        yield "recall", name, ratio(hits, actual)
        yield "precision", name, ratio(hits, predicted)
    step, cell = np.nonzero(inside)
    for label, name in enumerate(CLASSES[:PADDING]):
        truth = cells.labels[step, cell] == label
        _, precision = rank_scores(probabilities[step, cell, label], truth, grids.codes[step], len(grids))
        yield "average precision", name, precision


def _localised(probabilities: npt.NDArray[np.float32], cells: Cells, grids: Grids) -> Iterator[_ByClass]:
    for label in (AGENT, GOAL):
        true, present = (cells.labels == label).argmax(axis=1), (cells.labels == label).any(axis=1)
        best = probabilities[:, :, label].argmax(axis=1)
        distance = np.abs(np.subtract(divmod(best, cells.frame), divmod(true, cells.frame))).sum(axis=0)
        yield "localisation", CLASSES[label], grids.ratio_of_sums((best == true) & present, present)
        yield "localisation distance", CLASSES[label], grids.ratio_of_sums(distance * present, present)


def rank_scores(
    scores: npt.NDArray[Any], positive: npt.NDArray[np.bool_], codes: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return how well scores rank the positives of each of G groups above the others.

    Args:
        scores: ``[M]`` finite scores.
        positive: ``[M]`` whether each score belongs to a positive.
        codes: ``[M]`` number of the group of each score.
        count: number G of groups.

    Returns:
        ``[G]`` the area under the receiver operating characteristic: the fraction of pairs of a positive and another in
        which the positive scores higher (ties count half), NaN without a pair. And ``[G]`` the average precision: the
        sum over thresholds of (recall gained) times precision, NaN without a positive; equal scores share a threshold.

    Sources: Hanley and McNeil, Radiology 143 (1982), for the area as a fraction of pairs; the average precision is the
    estimate used in information retrieval, without interpolation.
    """
    order = np.lexsort((-scores, codes))
    ranked, truth, group = scores[order], positive[order], codes[order]
    ends = np.flatnonzero(np.append((np.diff(ranked) != 0) | (np.diff(group) != 0), True))[: len(ranked)]
    groups = group[ends]  # group of each threshold
    sizes = np.bincount(codes, minlength=count)
    hits = np.bincount(codes, positive, count)
    # number of positives at this threshold or above
    reached = np.cumsum(truth)[ends] - (np.cumsum(hits) - hits)[groups]
    called = ends + 1 - (np.cumsum(sizes) - sizes)[groups]
    begins = np.append(True, np.diff(groups) != 0)[: len(groups)]
    reached_before, called_before = (np.where(begins, 0, np.roll(counts, 1)) for counts in (reached, called))
    gained, other_calls = reached - reached_before, called - called_before - (reached - reached_before)
    pairs_won = np.bincount(groups, other_calls * (reached_before + gained / 2), count)
    precision = np.bincount(groups, gained * reached / called, count)
    return ratio(pairs_won, hits * (sizes - hits)), ratio(precision, hits)


def ratio(numerator: npt.NDArray[Any], denominator: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Divide two arrays ``[G]`` element by element, with NaN where the denominator is 0."""
    return np.asarray(np.divide(numerator, denominator, out=np.full(len(denominator), np.nan), where=denominator > 0))
