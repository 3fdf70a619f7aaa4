"""Fit of a linear head on labelled rows for `inside.probing.probe`, and the checks of its arguments."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.inside.probing.arrays import vectors_of
from goalscope.inside.probing.ridge import PENALTIES, solve_classes, solve_numbers

Array = npt.NDArray[np.float64]
Kind = Literal["category", "number"]
ACCURACY, BITS, EXPLAINED = "accuracy", "bits gained", "explained variance"
MOST_CLASSES: Final = 256
"""Most categories of a label."""
_UNIFORM: Final = 1e-3  # share of the uniform distribution in probabilities, so that no label costs infinite bits
_FEWEST: Final = 4  # minimum number of groups: two to fit (one of which chooses the penalty) and two to test


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFold:
    """Fit of the head on some rows with scores on other rows."""

    labels: npt.NDArray[Any]
    codes: npt.NDArray[np.int64]
    classes: int
    seed: int

    def scores(self, inputs: Any, labels: npt.NDArray[Any], train: Any, test: Any) -> dict[str, Array]:
        """Compute the scores ``[M]`` of the test rows by measure."""
        weights = self._weights(train)
        if not self.classes:
            predicted, _ = self._numbers(inputs, labels, train, test)
            variance = _moments(labels[train], weights)[1]
            return {EXPLAINED: 1 - (predicted - labels[test]) ** 2 / (variance or 1.0)}
        chances, true = self._chances(inputs, labels, train, test), labels[test]
        rows = np.arange(len(true))
        often = _mixed(np.bincount(labels[train], weights, self.classes) / weights.sum())
        hit = (chances.argmax(axis=1) == true).astype(np.float64)
        return {ACCURACY: hit, BITS: np.log2(chances[rows, true]) - np.log2(often[true])}

    def constant(self, train: Any, test: Any) -> dict[str, Array]:
        """Compute the scores of always predicting the commonest category, or the mean."""
        weights, true = self._weights(train), self.labels[test]
        if not self.classes:
            mean, variance = _moments(self.labels[train], weights)
            return {EXPLAINED: 1 - (mean - true) ** 2 / (variance or 1.0)}
        commonest = int(np.bincount(self.labels[train], weights, self.classes).argmax())
        return {ACCURACY: (true == commonest).astype(np.float64), BITS: np.zeros(len(true))}

    def bits(self, inputs: Any, train: Any, test: Any) -> Array:
        """Compute the code length of each label in bits; for numbers, minus that under a normal distribution."""
        true = self.labels[test]
        if self.classes:
            return np.asarray(-np.log2(self._chances(inputs, self.labels, train, test)[np.arange(len(true)), true]))
        predicted, error = self._numbers(inputs, self.labels, train, test)
        mean, variance = _moments(self.labels[train], self._weights(train))
        return _normal_bits(true - predicted, error) - _normal_bits(true - mean, variance)

    def _weights(self, train: Any) -> Array:
        codes = self.codes[train]
        return np.asarray(1 / np.bincount(codes)[codes])

    def _prepared(self, inputs: Any, train: Any, test: Any) -> tuple[Any, Any, Any]:
        import torch

        mean, std = inputs[train].mean(axis=0), inputs[train].std(axis=0)
        scaled = (inputs - mean) / np.where(std > 0, std, 1.0)
        groups = np.unique(self.codes[train])
        drawn = stream(self.seed, "label probe", "held back").permutation(groups)
        is_held_out = np.isin(self.codes[train], drawn[: max(1, len(groups) // 5)])
        return torch.tensor(scaled[train], dtype=torch.float64), scaled[test].astype(np.float64), is_held_out

    def _chances(self, inputs: Any, labels: npt.NDArray[Any], train: Any, test: Any) -> Array:
        """Predict class probabilities ``[M, K]`` of the test rows."""
        vectors, test_vectors, is_held_out = self._prepared(inputs, train, test)
        weights = self._weights(train)
        prior = np.bincount(labels[train], weights, self.classes) / weights.sum()
        target = SimpleNamespace(
            values=labels[train][:, None], weights=weights, prior=prior, NAMES=tuple(map(str, range(self.classes)))
        )
        solution = solve_classes(vectors, target, PENALTIES, is_held_out).weights
        with np.errstate(divide="ignore"):
            logits = test_vectors @ solution["act"] + solution["bias"] + np.log(prior)
        logits -= logits.max(axis=1, keepdims=True)
        return _mixed(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))

    def _numbers(self, inputs: Any, labels: npt.NDArray[Any], train: Any, test: Any) -> tuple[Array, float]:
        """Predict numbers ``[M]``, and return them with the mean squared error on held-out rows."""
        vectors, test_vectors, is_held_out = self._prepared(inputs, train, test)
        weights, values = self._weights(train), labels[train]
        mean, variance = _moments(values, weights)
        scale = math.sqrt(variance) or 1.0

        def fitted(rows: Any, chosen: Sequence[float]) -> Callable[[Any], Array]:
            target = SimpleNamespace(weights=weights[rows], scaled=(values[rows] - mean) / scale)
            solution = solve_numbers(vectors[rows], target, chosen, is_held_out[rows])
            penalties.append(float(str(solution.tags["penalty"])))
            return lambda x: mean + scale * (x @ solution.weights["act"] + solution.weights["bias"])[:, 0]

        penalties: list[float] = []
        predict = fitted(np.ones(len(values), dtype=bool), PENALTIES)
        error = values[is_held_out] - fitted(~is_held_out, penalties[:1])(vectors[is_held_out].numpy())
        return predict(test_vectors), float(np.average(error**2, weights=weights[is_held_out])) or 1e-12 * scale**2


def check_labels(y: Any, count: int, kind: Kind | None) -> tuple[npt.NDArray[Any], tuple[str, ...], Kind]:
    """Check labels. Return ``[N]`` class indices or numbers, the classes, and the kind."""
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    values = np.asarray(y)
    if values.shape != (count,):
        raise ValueError(f"y must have one label per row ({count}), got shape {list(values.shape)}")
    if values.dtype.kind == "O" and any(value is None for value in values.tolist()):
        raise ValueError("labels must not be missing, got None: leave these rows out")
    if kind not in (None, "category", "number"):
        raise ValueError(f"kind must be category or number, got {kind!r}")
    numeric = values.dtype.kind in "fiu"
    if numeric and not np.isfinite(values).all():
        bad = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"labels must be finite, but row {bad} has {values[bad]}: leave it out")
    if (kind or ("number" if values.dtype.kind == "f" else "category")) == "number":
        if not numeric:
            raise ValueError(f"labels of kind 'number' must be numbers, got {values.dtype}")
        if np.ptp(values) == 0:
            raise ValueError(f"labels must vary, but all are {values[0]}")
        return values.astype(np.float64), (), "number"
    texts = np.array([str(value) for value in values.tolist()], dtype=object)
    classes, codes = np.unique(texts.astype(str), return_inverse=True)
    if not 2 <= len(classes) <= MOST_CLASSES:
        classes_in_words = f"{len(classes)}" if len(classes) > 1 else f"{str(classes[0])!r:.80} alone"
        raise ValueError(
            f"there must be 2 to {MOST_CLASSES} categories, got {classes_in_words}: for numbers set kind='number'"
        )
    return codes.astype(np.int64), tuple(classes.tolist()), "category"


def name_groups(groups: npt.ArrayLike | None, inputs: Any) -> npt.NDArray[Any]:
    """Return ``[N]`` names of the groups.

    Equal rows in two groups raise an error, because a row in training would reveal the label of its copy in the test.
    """
    count = len(inputs)
    names = np.arange(count).astype(str) if groups is None else np.asarray(groups).astype(str)
    if names.ndim != 1:
        raise ValueError(f"groups must have shape [N], got {list(names.shape)}")
    if len(names) != count:
        raise ValueError(f"groups must have one name per row ({count}), got {len(names)}")
    first: dict[bytes, int] = {}
    for row in range(count):
        other = first.setdefault(inputs[row].tobytes(), row)
        if names[other] != names[row]:
            raise ValueError(
                f"rows {other} and {row} of X are equal but in two groups, so one could be fitted and its "
                "copy tested: put them into one group (groups=), or leave one out"
            )
    return names


def check_labelled_groups(codes: npt.NDArray[np.int64], labels: npt.NDArray[Any], count: int, kind: Kind) -> None:
    """Raise a ValueError unless there are groups to fit and to test, and categories that recur in them."""
    if count < _FEWEST:
        raise ValueError(
            f"a probe needs at least {_FEWEST} groups (two to fit, two to test), got {count}: give more "
            "rows, or smaller groups if their rows are independent"
        )
    if kind == "category":
        held_out = {(group, label) for group, label in zip(codes.tolist(), labels.tolist(), strict=True)}
        in_groups = np.bincount([label for _, label in held_out])
        if (in_groups > 1).sum() < 2:
            raise ValueError(
                "at least two categories must occur in two or more groups each, got "
                f"{int((in_groups > 1).sum())}: a label that does not recur cannot be tested; for numbers set "
                "kind='number'"
            )


def exchanged(codes: npt.NDArray[np.int64], tested: Any, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the index of the row whose label each row gets, from another group on the same side of the split."""
    rows = np.arange(len(codes))
    members = {int(group): np.flatnonzero(codes == group) for group in np.unique(codes)}
    for part in (tested, ~tested):
        order = rng.permutation(np.unique(codes[part])).tolist()
        for receiver, donor in zip(order, np.roll(order, 1).tolist(), strict=True):
            rows[members[receiver]] = np.resize(rng.permutation(members[donor]), len(members[receiver]))
    return rows


def known_without(position: Any, count: int) -> Any:
    """Convert the inputs of the position-only control to numbers ``[N, Q]``; names become indicators."""
    values = np.asarray(position)
    if values.shape[:1] != (count,) or values.ndim > 2:
        raise ValueError(f"position must have shape [N] or [N, Q] with N = {count} rows, got {list(values.shape)}")
    columns = values.reshape(count, -1)
    if values.dtype.kind in "fiub":
        return flat(vectors_of(columns, "position"))
    parts = [(column[:, None] == np.unique(column)) for column in columns.astype(str).T]
    return np.concatenate(parts, axis=1).astype(np.float32)


def flat(vectors: Any) -> Any:
    """Reshape ``[N, P, D]`` to ``[N, P D]``."""
    return vectors.reshape(len(vectors), -1)


def _mixed(chances: Array) -> Array:
    return np.asarray((1 - _UNIFORM) * chances + _UNIFORM / chances.shape[-1])


def _moments(values: npt.NDArray[Any], weights: Array) -> tuple[float, float]:
    mean = float(np.average(values, weights=weights))
    return mean, float(np.average((values - mean) ** 2, weights=weights))


def _normal_bits(error: Array, variance: float) -> Array:
    variance = max(variance, 1e-300)
    return np.asarray((error**2 / variance + math.log(2 * math.pi * variance)) / (2 * math.log(2)))
