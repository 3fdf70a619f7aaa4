"""Probes for any activations and labels, with their controls, without a world.

A linear head in closed form (`inside.probing.ridge`) is fitted on some groups of rows and tested on others. It is
compared with the controls that it must beat: label frequencies, shuffled labels, the position alone, and random
networks. Groups have equal weight in fits and scores; intervals are over test groups and seeds.

Source: Hewitt and Liang (2019); Voita and Titov (2020), online code; Xu et al. (2020), bits that a family of probes can
use.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.inside.probing.arrays import vectors_of
from goalscope.inside.probing.ridge import PENALTIES, solve_classes, solve_numbers
from goalscope.stats import Estimate, estimate_crossed, estimate_mean
from goalscope.stats.estimate import from_codes
from goalscope.stats.records import Records

Array = npt.NDArray[np.float64]
Kind = Literal["category", "number"]
ACCURACY, BITS, EXPLAINED = "accuracy", "bits gained", "explained variance"
MOST_CLASSES: Final = 256
"""Most categories of a label."""
_UNIFORM: Final = 1e-3  # share of the uniform distribution in probabilities, so that no label costs infinite bits
_FEWEST: Final = 4  # minimum number of groups: two to fit (one of which chooses the penalty) and two to test


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFold:
    """One fold: the head is fitted on some rows and scored on the others."""

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
        """Predict the probabilities of K classes for M test rows, ``[M, K]``."""
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
        """Predict the numbers of M test rows ``[M]``, and return them with the mean squared error on held-out rows."""
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
    """Return, for each row, the index of the row whose label it gets: a row of another group on the same side of the
    split.
    """
    rows = np.arange(len(codes))
    members = {int(group): np.flatnonzero(codes == group) for group in np.unique(codes)}
    for part in (tested, ~tested):
        order = rng.permutation(np.unique(codes[part])).tolist()
        for receiver, donor in zip(order, np.roll(order, 1).tolist(), strict=True):
            rows[members[receiver]] = np.resize(rng.permutation(members[donor]), len(members[receiver]))
    return rows


def known_without(position: Any, count: int) -> Any:
    """Return the inputs of the control that sees only the position, as numbers ``[N, Q]``; names become indicator
    columns.
    """
    values = np.asarray(position)
    if values.shape[:1] != (count,) or values.ndim > 2:
        raise ValueError(f"position must have shape [N] or [N, Q] with N = {count} rows, got {list(values.shape)}")
    columns = values.reshape(count, -1)
    if values.dtype.kind in "fiub":
        return flat(vectors_of(columns, "position"))
    parts = [(column[:, None] == np.unique(column)) for column in columns.astype(str).T]
    return np.concatenate(parts, axis=1).astype(np.float32)


def flat(vectors: Any) -> Any:
    """Reshape vectors ``[N, P, D]`` to ``[N, P * D]``."""
    return vectors.reshape(len(vectors), -1)


def _mixed(chances: Array) -> Array:
    return np.asarray((1 - _UNIFORM) * chances + _UNIFORM / chances.shape[-1])


def _moments(values: npt.NDArray[Any], weights: Array) -> tuple[float, float]:
    mean = float(np.average(values, weights=weights))
    return mean, float(np.average((values - mean) ** 2, weights=weights))


def _normal_bits(error: Array, variance: float) -> Array:
    variance = max(variance, 1e-300)
    return np.asarray((error**2 / variance + math.log(2 * math.pi * variance)) / (2 * math.log(2)))


CODE: Final = "code length"
SCORES: Final[Mapping[str, tuple[str, tuple[float, float]]]] = {
    ACCURACY: ("share", (0.0, 1.0)),
    BITS: ("bits", (-math.inf, math.inf)),
    EXPLAINED: ("share", (-math.inf, 1.0)),
    CODE: ("bits", (-math.inf, math.inf)),
}
"""Measure -> unit and bounds. Bits gained: log2 of the probability of the label, minus that of its frequency. Explained
variance: 1 minus the squared error over the variance in the training part. Code length: see `probe`."""
FREQUENCIES, SHUFFLED, POSITION = "frequencies", "shuffled", "position"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEstimate:
    """A score of the probe or of a control, or the difference of two scores; then ``less`` names what was
    subtracted.
    """

    measure: str
    control: str
    less: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelProbe(Records):
    """A probe with its controls.

    Attributes:
        label: name of the label, for sentences.
        kind: whether labels are categories or numbers.
        classes: the categories; empty for numbers.
        groups: number of groups.
        tested: number of test groups.
        scores: all scores and differences.
        notes: caveats.
    """

    label: str
    kind: Kind
    classes: tuple[str, ...]
    groups: int
    tested: int
    scores: tuple[ProbeEstimate, ...]
    notes: tuple[str, ...]

    @property
    def measure(self) -> str:
        """The measure reported in sentences."""
        return ACCURACY if self.kind == "category" else EXPLAINED

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per score: measure, control, less, value, low, high, n, groups, unit, note."""
        return [
            {
                "measure": score.measure,
                "control": score.control,
                "less": score.less,
                "value": score.estimate.value,
                "low": score.estimate.low,
                "high": score.estimate.high,
                "n": score.estimate.n,
                "groups": score.estimate.clusters,
                "unit": score.estimate.unit,
                "note": score.estimate.note,
            }
            for score in self.scores
        ]

    @property
    def differences(self) -> dict[str, Estimate]:
        """Control -> the probe's score minus that of the control, in `measure`."""
        return {score.less: score.estimate for score in self.scores if score.less and score.measure == self.measure}

    @property
    def sentence(self) -> str:
        """What the probe shows: it is above a control only if the whole interval of the difference is above 0."""
        differences = self.differences
        above = [name for name, estimate in differences.items() if estimate.low > 0]
        not_above = [name for name in differences if name not in above]
        chance = {FREQUENCIES, SHUFFLED}
        if not any(estimate.has_interval for estimate in differences.values()):
            return f"Whether {self.label} can be read cannot be told: no difference to a control has an interval."
        if chance & set(not_above):
            named = _listed([name for name in not_above if name in chance])
            return f"{self.label} is not shown to be readable: the probe is not shown to be above {named}."
        counts = f"{self.tested} tested groups of {self.groups}"
        text = f"{self.label} is read above {_listed(above)} ({self.measure}, {counts})"
        text += f"; it is not shown to be above {_listed(not_above)}" if not_above else ""
        lacking = [name for name in (POSITION, "random networks") if not self._is_requested(name)]
        return text + (f". No {' and no '.join(lacking)} stood beside it." if lacking else ".")

    def _is_requested(self, name: str) -> bool:
        built_in = {FREQUENCIES, SHUFFLED, POSITION}
        return POSITION in self.differences if name == POSITION else bool(set(self.differences) - built_in)

    def __str__(self) -> str:
        lines = [
            f"{score.measure}, {score.control}{f' less {score.less}' if score.less else ''}: {score.estimate}"
            for score in self.scores
        ]
        return "\n".join([self.sentence, *lines, *self.notes])


def probe(
    X: Any,  # noqa: N803 - the field's name of inputs
    y: Any,
    *,
    groups: npt.ArrayLike | None = None,
    position: Any = None,
    random: Mapping[tuple[str, int], Any] | None = None,
    kind: Kind | None = None,
    label: str = "the label",
    test: float = 0.3,
    shuffles: int = 5,
    blocks: int = 5,
    seed: int = 0,
    confidence: float = 0.95,
) -> LabelProbe:
    """Probe activations for labels, with controls.

    Args:
        X: ``[N, D]`` or ``[N, P, D]`` activations, from NumPy, PyTorch or a sparse matrix of SciPy.
        y: N labels. Texts, booleans and integers are categories; other numbers are numbers.
        groups: N names; rows of one group (a prompt, a document, a world) are on one side of the split and count once
            in intervals. By default each row is a group, which is right only for independent rows.
        position: ``[N]`` or ``[N, Q]`` numbers or names known without the activations (a position in the text, a
            length), for a control that reads only them.
        random: (kind, seed) -> the same as ``X`` from a random network, row by row: "permuted", "default-init", ...
        kind: "category" or "number", instead of the rule above.
        label: name of the label in sentences.
        test: share of the groups used for testing.
        shuffles: number of shuffled controls; each gives every group the labels of another group.
        blocks: number of blocks of the online code; below 2 for none. Each block is coded by the probe fitted on all
            earlier ones, in bits per row (for numbers, minus those of a normal distribution fitted on all earlier
            ones).
        seed: root seed of the split, the shuffles and the order of the code.
        confidence: confidence level of the intervals.

    Raises:
        ValueError: if rows do not match, numbers are not finite, labels do not vary or recur, there are fewer than four
            groups, equal rows are in two groups, or a random network is the model itself.
    """
    inputs = flat(vectors_of(X, "X"))
    labels, classes, kind = check_labels(y, len(inputs), kind)
    names = name_groups(groups, inputs)
    codes = np.unique(names, return_inverse=True)[1]
    count = int(codes.max()) + 1
    check_labelled_groups(codes, labels, count, kind)
    check_whole("shuffles", shuffles, 1, "controls")
    order = stream(seed, "label probe", "split").permutation(count)
    tested = np.isin(codes, order[: min(max(2, round(test * count)), count - 2)])
    fold = LabelFold(labels=labels, codes=codes, classes=len(classes), seed=seed)
    read: dict[str, list[Any]] = {"": [inputs]}
    if position is not None:
        read[POSITION] = [known_without(position, len(inputs))]
    for (network, draw), array in sorted((random or {}).items()):
        other = flat(vectors_of(array, f"{network} {draw}"))
        if len(other) != len(inputs) or np.array_equal(other, inputs):
            raise ValueError(
                f"{network} {draw} must be another network with {len(inputs)} rows, got {len(other)} rows or "
                "the same activations"
            )
        read.setdefault(network, []).append(other)
    own_scores = fold.scores(inputs, labels, ~tested, tested)
    scores = {"": [own_scores], FREQUENCIES: [fold.constant(~tested, tested)], SHUFFLED: []}
    for draw in range(shuffles):
        other_labels = labels[exchanged(codes, tested, stream(seed, "label probe", "shuffled", draw))]
        scores[SHUFFLED].append(fold.scores(inputs, other_labels, ~tested, tested))
    scores |= {
        name: [fold.scores(inputs_of_draw, labels, ~tested, tested) for inputs_of_draw in inputs_of_draws]
        for name, inputs_of_draws in read.items()
        if name
    }
    label_scores = list(_compared(scores, codes[tested], confidence))
    if blocks >= 2 and count >= 2**blocks:
        label_scores += _coded(
            fold, {name: inputs_of_draws[0] for name, inputs_of_draws in read.items()}, blocks, confidence
        )
    notes = ["Rows are taken as independent: no groups were given."] if groups is None else []
    notes += [f"No code length: {blocks} blocks need {2**blocks} groups."] if blocks >= 2 and count < 2**blocks else []
    return LabelProbe(
        label=label,
        kind=kind,
        classes=classes,
        groups=count,
        tested=len(set(codes[tested].tolist())),
        scores=tuple(label_scores),
        notes=tuple(notes),
    )


def _compared(
    scores: Mapping[str, Sequence[Mapping[str, Array]]], codes: npt.NDArray[np.int64], confidence: float
) -> Iterator[ProbeEstimate]:
    """Yield the scores of probe and controls and their differences, estimated over test groups and seeds."""
    groups = np.unique(codes, return_inverse=True)[1]
    size = np.bincount(groups)
    for measure in scores[""][0]:
        unit, bounds = SCORES[measure]
        tables = {
            name: np.stack([np.bincount(groups, draw[measure]) / size for draw in draws], axis=1)
            for name, draws in scores.items()
        }
        for less in (False, True):
            for name, table in tables.items():
                if less and not name:
                    continue
                values = tables[""] - table if less else table
                widest = bounds[1] - bounds[0]
                yield ProbeEstimate(
                    measure=measure,
                    control=name if not less and name else "none",
                    less=name if less else "",
                    estimate=_estimate(
                        values,
                        unit,
                        (-widest, widest) if less else bounds,
                        confidence,
                        seeds=name not in ("", FREQUENCIES, POSITION),
                        differences=less,
                    ),
                )


def _estimate(
    table: Array, unit: str, bounds: tuple[float, float], confidence: float, *, seeds: bool, differences: bool
) -> Estimate:
    count, draws = table.shape
    options: dict[str, Any] = {"unit": unit, "bounds": bounds, "confidence": confidence, "differences": differences}
    cluster = np.repeat(np.arange(count), draws)
    if seeds:
        return estimate_crossed(table.ravel(), cluster, np.tile(np.arange(draws), count), **options)
    return from_codes(table[:, 0], np.arange(count), all_clusters=count, **options)


def _coded(fold: LabelFold, read: Mapping[str, Any], blocks: int, confidence: float) -> Iterator[ProbeEstimate]:
    """Yield, for each input, the online code length of the labels given it, in bits per row of the coded groups."""
    count = int(fold.codes.max()) + 1
    place = np.argsort(stream(fold.seed, "label probe", "code").permutation(count))[fold.codes]
    ends = [round(count * 2.0 ** (1 + block - blocks)) for block in range(blocks)]
    coded = [(place < begin, (place >= begin) & (place < end)) for begin, end in itertools.pairwise(ends)]
    inputs = {**read, FREQUENCIES: np.zeros((len(place), 1))}
    bits = {name: np.concatenate([fold.bits(vectors, *part) for part in coded]) for name, vectors in inputs.items()}
    clusters = np.concatenate([fold.codes[part] for _, part in coded])
    options: dict[str, Any] = {"unit": "bits", "confidence": confidence}
    for name, values in bits.items():
        yield ProbeEstimate(
            measure=CODE, control=name or "none", less="", estimate=estimate_mean(values, clusters, **options)
        )
        if name:
            difference = estimate_mean(bits[""] - values, clusters, **options)
            yield ProbeEstimate(measure=CODE, control="none", less=name, estimate=difference)


def _listed(names: Sequence[str]) -> str:
    words = {FREQUENCIES: "the frequencies of the labels", SHUFFLED: "shuffled labels", POSITION: "the position alone"}
    controls = [words.get(name, f"random networks ({name})") for name in names]
    return controls[0] if len(controls) == 1 else f"{', '.join(controls[:-1])} and {controls[-1]}"
