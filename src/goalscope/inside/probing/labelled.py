"""Probes for any activations and labels, with their controls, without a world.

A linear head in closed form (`inside.probing.label_fits`) is fitted on some groups of rows and tested on others. It is
compared with the controls that it must beat: label frequencies, shuffled labels, the position alone, and random
networks. Groups have equal weight in fits and scores; intervals are over test groups and seeds.

Source: Hewitt and Liang (2019); Voita and Titov (2020), online code; Xu et al. (2020), bits that a family of probes can
use.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope._ground.rng import stream
from goalscope.inside.probing.arrays import vectors_of
from goalscope.inside.probing.label_fits import (
    ACCURACY,
    BITS,
    EXPLAINED,
    Kind,
    LabelFold,
    check_labelled_groups,
    check_labels,
    exchanged,
    flat,
    known_without,
    name_groups,
)
from goalscope.stats import Estimate, estimate_crossed, estimate_mean
from goalscope.stats.estimate import from_codes
from goalscope.stats.records import Records

Array = npt.NDArray[np.float64]
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
    """A score of the probe or of a control, or their difference; then ``less`` names what was subtracted."""

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
    """Yield the online code length of the labels with each input, in bits per row, over the coded groups."""
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
