"""Probes for any activations and labels, with their controls, without a world.

A linear head in closed form (`inside.probing.ridge`) is fitted on some groups of rows and tested on others. It is
compared with the controls that it must beat: label frequencies, shuffled labels, the position alone, and random
networks. Groups have equal weight in fits and scores; intervals are over test groups and seeds.

Source: Hewitt and Liang (2019); Xu et al. (2020), bits that a family of probes can use.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.inside.probing.inputs import vectors_of
from goalscope.inside.probing.ridge import PENALTIES, solve_classes, solve_numbers
from goalscope.stats import Estimate, estimate_crossed
from goalscope.stats.estimate import from_codes
from goalscope.stats.records import Records

Array = npt.NDArray[np.float64]
Kind = Literal["category", "number"]
ACCURACY, BITS, EXPLAINED = "accuracy", "bits gained", "explained variance"
SCORES: Final[Mapping[str, tuple[str, tuple[float, float]]]] = {
    ACCURACY: ("share", (0.0, 1.0)),
    BITS: ("bits", (-math.inf, math.inf)),
    EXPLAINED: ("share", (-math.inf, 1.0)),
}
"""Measure -> unit and bounds. Bits gained: log2 of the probability of the label, minus that of its frequency. Explained
variance: 1 minus the squared error over the variance in the training part."""
FREQUENCIES, SHUFFLED, POSITION = "frequencies", "shuffled", "position"
MOST_CLASSES: Final = 256
"""Most categories of a label."""
_UNIFORM: Final = 1e-3  # share of the uniform distribution in probabilities, so that no label costs infinite bits
_FEWEST: Final = 4  # minimum number of groups: two to fit (one of which chooses the penalty) and two to test


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEstimate:
    """A score of the probe or of a control, with its interval; or the difference of two scores.

    ``measure`` names the score, ``control`` the control ("none" for the probe), and ``less`` the control whose score
    was subtracted ("" if this is no difference).
    """

    measure: str
    control: str
    less: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelProbe(Records):
    """The result of `probe`: the scores of a probe and of its controls.

    Attributes:
        label: name of what was predicted, for sentences.
        kind: whether labels are categories or numbers.
        classes: the categories; empty for numbers.
        groups: number of groups of rows that stay together in the split.
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
        """Name of the score that sentences report: "accuracy" for categories, "explained variance" for numbers."""
        return ACCURACY if self.kind == "category" else EXPLAINED

    @property
    def records(self) -> list[dict[str, Any]]:
        """The scores as a list of dictionaries, one per score or difference of scores.

        Keys: measure, control, less (the subtracted control, "" if none), value, low, high, n, groups, unit, note.
        """
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
        """For each control, the probe's score minus that of the control, with its interval; the score is the one in
        `measure`.
        """
        return {score.less: score.estimate for score in self.scores if score.less and score.measure == self.measure}

    @property
    def sentence(self) -> str:
        """One sentence that says above which controls the labels can be read.

        The probe counts as above a control only if the whole interval of the difference is above 0.
        """
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
    seed: int = 0,
    confidence: float = 0.95,
) -> LabelProbe:
    """Fit a linear probe that predicts labels from activations, and compare it with the controls that it must beat.

    Args:
        X: ``[N, D]`` or ``[N, P, D]`` activations (rows, token positions, width), from NumPy, PyTorch or a sparse
            matrix of SciPy.
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
        seed: root seed of the split and the shuffles.
        confidence: confidence level of the intervals.

    Returns:
        The scores of the probe and its controls, with a sentence that says above which controls the labels can be read.

    Raises:
        ValueError: if rows do not match, numbers are not finite, labels do not vary or recur, there are fewer than four
            groups, equal rows are in two groups, or a random network is the model itself.
    """
    inputs = _flat(X, "X")
    labels, classes, kind = check_labels(y, len(inputs), kind)
    names = name_groups(groups, inputs)
    codes = np.unique(names, return_inverse=True)[1]
    count = int(codes.max()) + 1
    check_labelled_groups(codes, labels, count, kind)
    check_whole("shuffles", shuffles, 1, "controls")
    order = stream(seed, "label probe", "split").permutation(count)
    tested = np.isin(codes, order[: min(max(2, round(test * count)), count - 2)])
    fold = LabelFold(codes=codes, tested=tested, classes=len(classes), seed=seed)
    scores = {"": [fold.scores(inputs, labels)], FREQUENCIES: [fold.constant(labels)], SHUFFLED: []}
    for draw in range(shuffles):
        other_labels = labels[exchanged(codes, tested, stream(seed, "label probe", "shuffled", draw))]
        scores[SHUFFLED].append(fold.scores(inputs, other_labels))
    if position is not None:
        scores[POSITION] = [fold.scores(known_without(position, len(inputs)), labels)]
    for (network, draw), array in sorted((random or {}).items()):
        other = _flat(array, f"{network} {draw}")
        if len(other) != len(inputs) or np.array_equal(other, inputs):
            raise ValueError(
                f"{network} {draw} must be another network with {len(inputs)} rows, got {len(other)} rows or "
                "the same activations"
            )
        scores.setdefault(network, []).append(fold.scores(other, labels))
    return LabelProbe(
        label=label,
        kind=kind,
        classes=classes,
        groups=count,
        tested=len(set(codes[tested].tolist())),
        scores=tuple(_compared(scores, codes[tested], confidence)),
        notes=("Rows are taken as independent: no groups were given.",) if groups is None else (),
    )


def _compared(
    scores: Mapping[str, Sequence[Mapping[str, Array]]], codes: npt.NDArray[np.int64], confidence: float
) -> Iterator[ProbeEstimate]:
    """Yield the scores of probe and controls and their differences, estimated over test groups and seeds."""
    groups = np.unique(codes, return_inverse=True)[1]
    size = np.bincount(groups)
    for measure in scores[""][0]:
        unit, bounds = SCORES[measure]
        options: dict[str, Any] = {"unit": unit, "confidence": confidence}
        tables = {
            name: np.stack([np.bincount(groups, draw[measure]) / size for draw in draws], axis=1)
            for name, draws in scores.items()
        }
        for name, table in tables.items():
            estimate = _estimate(name, table, bounds=bounds, differences=False, **options)
            yield ProbeEstimate(measure=measure, control=name or "none", less="", estimate=estimate)
        widest = bounds[1] - bounds[0]
        for name in filter(None, tables):
            difference = tables[""] - tables[name]
            estimate = _estimate(name, difference, bounds=(-widest, widest), differences=True, **options)
            yield ProbeEstimate(measure=measure, control="none", less=name, estimate=estimate)


def _estimate(control: str, table: Array, **options: Any) -> Estimate:
    """Estimate the mean over groups and seeds, ``[groups, seeds]``; some controls have no seeds."""
    count, draws = table.shape
    if control in ("", FREQUENCIES, POSITION):
        return from_codes(table[:, 0], np.arange(count), all_clusters=count, **options)
    clusters = np.repeat(np.arange(count), draws)
    return estimate_crossed(table.ravel(), clusters, np.tile(np.arange(draws), count), **options)


def _listed(names: Sequence[str]) -> str:
    words = {FREQUENCIES: "the frequencies of the labels", SHUFFLED: "shuffled labels", POSITION: "the position alone"}
    controls = [words.get(name, f"random networks ({name})") for name in names]
    return controls[0] if len(controls) == 1 else f"{', '.join(controls[:-1])} and {controls[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFold:
    """A split of N rows: a probe is fitted on the training rows and scored on the test rows.

    Attributes:
        codes: ``[N]`` number of each row's group.
        tested: ``[N]`` which rows are tested.
        classes: number of categories; 0 for numbers.
        seed: root seed of the groups that choose the penalty.
    """

    codes: npt.NDArray[np.int64]
    tested: npt.NDArray[np.bool_]
    classes: int
    seed: int

    @property
    def weights(self) -> Array:
        """Weights of the training rows, with sum 1 per group, so that large groups do not count more."""
        codes = self.codes[~self.tested]
        return np.asarray(1 / np.bincount(codes)[codes])

    def frequencies(self, labels: npt.NDArray[Any]) -> Array:
        """Compute the frequency of each of K categories in the training rows, ``[K]``; groups have equal weight."""
        return np.asarray(np.bincount(labels[~self.tested], self.weights, self.classes) / self.weights.sum())

    def moments(self, labels: npt.NDArray[Any]) -> tuple[float, float]:
        """Compute mean and variance of numeric labels in the training rows; groups have equal weight."""
        values = labels[~self.tested]
        mean = float(np.average(values, weights=self.weights))
        return mean, float(np.average((values - mean) ** 2, weights=self.weights))

    def scores(self, inputs: Any, labels: npt.NDArray[Any]) -> dict[str, Array]:
        """Fit a linear probe on the training rows, and score each of the M test rows.

        Args:
            inputs: ``[N, F]`` inputs, rows by numbers.
            labels: ``[N]`` indices of categories, or numbers.

        Returns:
            Measure -> ``[M]`` scores: "accuracy" and "bits gained" for categories, "explained variance" for numbers.
        """
        import torch

        train, true = ~self.tested, labels[self.tested]
        std = inputs[train].std(axis=0)
        scaled = (inputs - inputs[train].mean(axis=0)) / np.where(std > 0, std, 1.0)
        vectors, tested = torch.tensor(scaled[train], dtype=torch.float64), scaled[self.tested].astype(np.float64)
        groups = np.unique(self.codes[train])
        drawn = stream(self.seed, "label probe", "held back").permutation(groups)
        is_held_out = np.isin(self.codes[train], drawn[: max(1, len(groups) // 5)])
        target = SimpleNamespace(weights=self.weights)
        if not self.classes:
            mean, variance = self.moments(labels)
            scale = math.sqrt(variance) or 1.0
            target.scaled = (labels[train] - mean) / scale
            head = solve_numbers(vectors, target, PENALTIES, is_held_out).weights
            return self._explained(mean + scale * (tested @ head["act"] + head["bias"])[:, 0], labels)
        target.prior, target.NAMES = self.frequencies(labels), tuple(map(str, range(self.classes)))
        target.values = labels[train][:, None]
        head = solve_classes(vectors, target, PENALTIES, is_held_out).weights
        with np.errstate(divide="ignore"):
            logits = tested @ head["act"] + head["bias"] + np.log(target.prior)
        logits -= logits.max(axis=1, keepdims=True)
        chances = _mixed(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
        hit = (chances.argmax(axis=1) == true).astype(np.float64)
        gained = np.log2(chances[np.arange(len(true)), true]) - np.log2(_mixed(target.prior)[true])
        return {ACCURACY: hit, BITS: gained}

    def constant(self, labels: npt.NDArray[Any]) -> dict[str, Array]:
        """Score a predictor without inputs: the commonest category, or the mean, of the training rows.

        Returns:
            Measure -> ``[M]`` score of each of the M test rows, with the measures of `scores`.
        """
        if not self.classes:
            return self._explained(self.moments(labels)[0], labels)
        hit = labels[self.tested] == int(np.bincount(labels[~self.tested], self.weights, self.classes).argmax())
        return {ACCURACY: hit.astype(np.float64), BITS: np.zeros(len(hit))}

    def _explained(self, predicted: Any, labels: npt.NDArray[Any]) -> dict[str, Array]:
        variance = self.moments(labels)[1]
        return {EXPLAINED: 1 - (predicted - labels[self.tested]) ** 2 / (variance or 1.0)}


def check_labels(y: Any, count: int, kind: Kind | None) -> tuple[npt.NDArray[Any], tuple[str, ...], Kind]:
    """Check the labels of a probe and find out whether they are categories or numbers.

    Args:
        y: N labels.
        count: the number N of rows of activations.
        kind: "category" or "number"; None to decide by the type of the labels (floats are numbers).

    Returns:
        ``[N]`` indices of categories or numbers; the names of the categories (empty for numbers); and the kind.

    Raises:
        ValueError: for another number of labels, missing or infinite ones, fewer than two or too many categories, or
            numbers that do not vary.
    """
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
    """Return the name of each row's group, ``[N]``; without ``groups``, each row is a group of its own.

    Rows of one group stay on the same side of the split.

    Raises:
        ValueError: for another number of names, or equal rows in two groups, because a row in training would reveal the
            label of its copy in the test.
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
    """Check that there are enough groups of rows to fit and to test a probe, and that at least two categories recur in
    them.

    Args:
        codes: ``[N]`` number of each row's group.
        labels: ``[N]`` indices of categories, or numbers.
        count: number of groups.
        kind: "category" or "number".

    Raises:
        ValueError: if there are not.
    """
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
    """Return for each row the index of the row whose label it gets in the control with shuffled labels, ``[N]``.

    Labels come from another group of rows on the same side of the split.

    Args:
        codes: ``[N]`` number of each row's group.
        tested: ``[N]`` which rows are tested.
        rng: random generator.
    """
    rows = np.arange(len(codes))
    members = {int(group): np.flatnonzero(codes == group) for group in np.unique(codes)}
    for part in (tested, ~tested):
        order = rng.permutation(np.unique(codes[part])).tolist()
        for receiver, donor in zip(order, np.roll(order, 1).tolist(), strict=True):
            rows[members[receiver]] = np.resize(rng.permutation(members[donor]), len(members[receiver]))
    return rows


def known_without(position: Any, count: int) -> Any:
    """Return the inputs of the control that sees only positions, not activations, as float32 numbers ``[N, Q]``.

    Args:
        position: ``[N]`` or ``[N, Q]`` numbers, or names, which become one indicator column per name.
        count: the number N of rows.

    Raises:
        ValueError: for another shape.
    """
    values = np.asarray(position)
    if values.shape[:1] != (count,) or values.ndim > 2:
        raise ValueError(f"position must have shape [N] or [N, Q] with N = {count} rows, got {list(values.shape)}")
    columns = values.reshape(count, -1)
    if values.dtype.kind in "fiub":
        return _flat(columns, "position")
    parts = [(column[:, None] == np.unique(column)) for column in columns.astype(str).T]
    return np.concatenate(parts, axis=1).astype(np.float32)


def _flat(array: Any, name: str) -> Any:
    """Convert an array to vectors ``[N, P * D]``."""
    vectors = vectors_of(array, name)
    return vectors.reshape(len(vectors), -1)


def _mixed(chances: Array) -> Array:
    return np.asarray((1 - _UNIFORM) * chances + _UNIFORM / chances.shape[-1])
