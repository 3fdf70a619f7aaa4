"""How good a probe is: rows for each tested grid, so that every number has an interval over grids.

Each measure is computed over all states of one grid and then averaged over grids. Recall alone is no evidence: the
training weights rare classes up, so that a probe which knows nothing calls many cells an agent and finds it among them.
Precision, average precision and the reading at natural frequencies say what a high recall costs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, freeze
from goalscope.probing.cells import Cells, grids_of, members, ratio
from goalscope.probing.paired import paired_rows
from goalscope.probing.probe import AGENT, CLASSES, GOAL, PADDING, Prediction
from goalscope.rows import Rows, Tag
from goalscope.stats import LESS, Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.estimate import factorize

READINGS: Final = ("balanced", "natural")
"""Probabilities as if all classes were equally frequent, and at the frequencies of the training split."""

CALLED: Final = "called "
"""What the measures of `confusion_rows` begin with; the name of a class follows."""

KEY: Final = ("agent", "head", "site", "layer", "scope", "reading", "class", "shape")
"""Tags that a score shares with that of a control, beside measure and grid."""

_BY: Final = ("site", "layer", "scope", "head", "control", "reading", "class")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Confusion:
    """How many cells of each class were called what, grid by grid.

    Attributes:
        grid_id: ``[G]`` text.
        counts: ``[G, K, K]`` int64, true class by predicted class, cells that are no padding.
    """

    grid_id: npt.NDArray[np.object_]
    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        check_shape("counts", self.counts, "G K K", check_shape("grid_id", self.grid_id, "G"))
        object.__setattr__(self, "counts", freeze(self.counts))

    def recall(self, label: int) -> Estimate:
        """Return the share of a class's cells that are called so, all grids pooled."""
        return self._pooled(self.counts[:, label, label], self.counts[:, label].sum(axis=1))

    def precision(self, label: int) -> Estimate:
        """Return the share of the cells called a class that are of it, all grids pooled."""
        return self._pooled(self.counts[:, label, label], self.counts[:, :, label].sum(axis=1))

    def share(self, label: int, called: int) -> Estimate:
        """Return the share of a class's cells that are called another, all grids pooled."""
        return self._pooled(self.counts[:, label, called], self.counts[:, label].sum(axis=1))

    def _pooled(self, above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> Estimate:
        return estimate_pooled(above, below, self.grid_id, unit="share", bounds=(0.0, 1.0))


def confusion(prediction: Prediction, cells: Cells, reading: str = "natural") -> Confusion:
    """Return the confusion of a prediction over the cells that are no padding.

    Args:
        prediction: of N states.
        cells: their truth.
        reading: "balanced" or "natural".
    """
    called = _checked(prediction, cells, reading).argmax(axis=2)
    codes, grids = factorize(cells.grid_id)
    return Confusion(grid_id=np.array(grids, dtype=object), counts=_confusion(called, cells, codes, len(grids)))


def average_precision(scores: npt.ArrayLike, positive: npt.ArrayLike) -> float:
    """Return the sum over thresholds of (recall gained) times precision; equal scores share one threshold.

    Args:
        scores: ``[M]`` finite, higher means more likely.
        positive: ``[M]`` bool.

    Returns:
        From 0 to 1, the share of positives where the scores say nothing; NaN without a positive.

    Source: the estimate that information retrieval uses, without interpolation.
    """
    given, truth = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=bool)
    check_shape("positive", truth, "M", check_shape("scores", given, "M"))
    check_finite("scores", given)
    if not truth.any():
        return float("nan")
    ordered = np.argsort(-given, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(given[ordered]) != 0, True))
    hits = np.cumsum(truth[ordered])[ends]
    gained = np.diff(hits, prepend=0) / hits[-1]
    return float((gained * hits / (ends + 1)).sum())


def score_cells(prediction: Prediction, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return the scores of a prediction, one row for each measure, reading, class and grid.

    Args:
        prediction: of N tested states.
        cells: their truth.
        tags: kept with every row: probe, head, control, site, layer, scope, ...

    Returns:
        Rows tagged by reading, class, size and density. Measures: "cell accuracy" (also "without padding" and "without
        padding and border"), and by class "recall", "precision" and "average precision" over the cells that are no
        padding (of class padding: over all cells), and for agent and goal "localisation" (the cell of highest
        probability is the right one) and "localisation distance" (Manhattan, cells). NaN where undefined: nothing is
        called so, or there is no such cell.
    """
    codes, grids, about = grids_of(cells)
    common = {**tags, **about}
    parts = [
        Rows.from_columns(
            measure=measure,
            unit="cells" if measure == "localisation distance" else "share",
            value=values,
            grid_id=grids,
            tags={**common, "reading": reading, "class": label},
        )
        for reading in READINGS
        for measure, label, values in _measures(_checked(prediction, cells, reading), cells, codes, len(grids))
    ]
    return Rows.concatenate(parts)


def confusion_rows(prediction: Prediction, cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    """Return what share of each class's cells is called what, one row for each pair of classes, reading and grid.

    Args:
        prediction: of N tested states.
        cells: their truth; padding is no true class here, but may be called.
        tags: kept with every row.

    Returns:
        Rows of measures "called agent" and so on, tagged by reading, true class, size and density; NaN where a grid has
        no cell of the class.
    """
    _, grids, about = grids_of(cells)
    common = {**tags, **about}
    parts = []
    for reading in READINGS:
        counts = confusion(prediction, cells, reading).counts
        for label, name in enumerate(CLASSES[:PADDING]):
            for called, other in enumerate(CLASSES):
                parts.append(
                    Rows.from_columns(
                        measure=f"{CALLED}{other}",
                        unit="share",
                        value=ratio(counts[:, label, called], counts[:, label].sum(axis=1)),
                        grid_id=grids,
                        tags={**common, "reading": reading, "class": name},
                    )
                )
    return Rows.concatenate(parts)


def difference_rows(rows: Rows, against: str) -> Rows:
    """Return how much better the probes are than a control, paired by grid; against "shuffled" it is selectivity.

    Args:
        rows: from `score_cells`, of probes (control "none") and of the control.
        against: the control: "shuffled", "untrained", "input" or "text".

    Returns:
        Rows of measures named "recall less untrained" and so on, NaN where either is undefined; a control that reads no
        activations stands against every site and layer.

    Raises:
        ValueError: there are no rows of the control, none that stands against any of the probes, or two that stand
            against the same one.
    """
    control = rows.where(rows["control"] == against)
    if not len(control):
        raise ValueError(
            f"rows must hold the control {against!r}, they hold {', '.join(sorted(set(rows['control'].tolist())))}"
        )
    return paired_rows(rows.where(rows["control"] == "none"), control, name=against, by=KEY)


def summarise(rows: Rows, by: Sequence[str] = _BY, *, confidence: float = 0.95) -> list[Grouped]:
    """Return every score with its interval over grids.

    Args:
        rows: from `score_cells`, `belief_rows` or `difference_rows`.
        by: tags to group by.
        confidence: nominal coverage of each interval.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for name, unit in set(zip(rows.measure.tolist(), rows.unit.tolist(), strict=True)):
        if LESS not in name:
            bounds[name] = (0.0, 1.0) if unit == "share" else (0.0, np.inf)
    return estimate_rows(rows, by=by, bounds=bounds, confidence=confidence)


def _checked(prediction: Prediction, cells: Cells, reading: str) -> npt.NDArray[np.float32]:
    found = prediction.reading(reading)
    check_shape(reading, found, "N C K", {"N": len(cells), "C": cells.labels.shape[1], "K": len(CLASSES)})
    return found


def _confusion(
    called: npt.NDArray[Any], cells: Cells, codes: npt.NDArray[np.int64], grids: int
) -> npt.NDArray[np.int64]:
    classes = len(CLASSES)
    inside = cells.labels != PADDING
    pairs = (codes[:, None] * classes + cells.labels) * classes + called
    return np.bincount(pairs[inside], minlength=grids * classes * classes).reshape(grids, classes, classes)


def _measures(
    probabilities: npt.NDArray[np.float32], cells: Cells, codes: npt.NDArray[np.int64], grids: int
) -> Iterator[tuple[str, str | None, npt.NDArray[np.float64]]]:
    """Return measure, class and the value of each grid, ``[G]``."""
    called = probabilities.argmax(axis=2)
    right = called == cells.labels
    every = np.ones_like(right)
    for name, chosen in (
        ("cell accuracy", every),
        ("cell accuracy without padding", cells.inside()),
        ("cell accuracy without padding and border", cells.interior()),
    ):
        yield name, None, _share((right & chosen).sum(axis=1), chosen.sum(axis=1), codes, grids)
    counts = _confusion(called, cells, codes, grids)
    for label, name in enumerate(CLASSES):
        if label == PADDING:
            own, told = cells.labels == PADDING, called == PADDING
            yield "recall", name, _share((own & told).sum(axis=1), own.sum(axis=1), codes, grids)
            yield "precision", name, _share((own & told).sum(axis=1), told.sum(axis=1), codes, grids)
            continue
        hits, own, told = counts[:, label, label], counts[:, label].sum(axis=1), counts[:, :, label].sum(axis=1)
        yield "recall", name, ratio(hits, own)
        yield "precision", name, ratio(hits, told)
    inside = cells.labels != PADDING
    for label, name in enumerate(CLASSES[:PADDING]):
        found = [
            average_precision(probabilities[mine, :, label][inside[mine]], (cells.labels[mine] == label)[inside[mine]])
            for mine in members(codes, grids)
        ]
        yield "average precision", name, np.array(found, dtype=np.float64)
    for label in (AGENT, GOAL):
        true, there = (cells.labels == label).argmax(axis=1), (cells.labels == label).any(axis=1)
        best = probabilities[:, :, label].argmax(axis=1)
        frame = cells.frame
        distance = abs(best // frame - true // frame) + abs(best % frame - true % frame)
        yield "localisation", CLASSES[label], _share((best == true) & there, there, codes, grids)
        yield "localisation distance", CLASSES[label], _share(distance * there, there, codes, grids)


def _share(
    above: npt.NDArray[Any], below: npt.NDArray[Any], codes: npt.NDArray[np.int64], grids: int
) -> npt.NDArray[np.float64]:
    """Return the ratio of two sums over the states of each grid."""
    return ratio(np.bincount(codes, above, grids), np.bincount(codes, below, grids))
