"""Learning curves of probes over training grids, and the description length of maps given a probe.

A claim that something cannot be decoded needs a flat learning curve, because with few grids a probe fails whatever the
activations contain. The description length is that of an online code. Sender and receiver know the activations and the
shape of every grid. Both fit the same probe to the blocks of grids sent so far and use it to code the next block. The
code is short if few grids suffice, so it depends less on the size of a probe than accuracy does. The first block is
coded uniformly over the four classes of cells in a grid, at 2 bits per cell.

Sources: Voita and Titov 2020, Information-theoretic probing with minimum description length; Rissanen, IEEE
Transactions on Information Theory 30 (1984), the prequential code.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.progress import Progress
from goalscope._ground.rng import stream
from goalscope.inside.probing.fitting import FitSettings
from goalscope.inside.probing.heads import COUNTED
from goalscope.inside.probing.inputs import Features, ProbeInputs, Split, grid_kinds, of_grids
from goalscope.inside.probing.labels import PADDING, Cells, undetermined
from goalscope.inside.probing.maps import Prediction
from goalscope.inside.probing.probe import Probe
from goalscope.inside.probing.scores import AREA, UNDETERMINED_PRECISION, Grids, pairs, score_cells
from goalscope.inside.probing.suite import Score, Truth, fit_suite, truths
from goalscope.stats import LESS, Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.rows import Rows, Tag, constant

CURVE: Final = "learning curve"
"""The tag ``scope`` of rows of curves: ordinary tables leave them out."""
TRAINED_ON: Final = "training grids"
"""The tag of the number of grids that a probe of a learning curve is trained on."""
CURVE_MEASURES: Final = (AREA, UNDETERMINED_PRECISION, "localisation")
"""Measures of a learning curve, all shares; at natural class frequencies."""
CURVE_HEADS: Final = ("position", "percell", "mlp")
"""Heads of curves by default."""
MARGIN: Final = 0.01
"""A curve has flattened where the gain of its last doubling is below this, its whole interval."""
BITS: Final = "description length"
UNIFORM: Final = 1e-3
"""Fraction of the uniform code that is mixed into that of a probe: the maximum cost is 12 bits a cell."""
_HALF: Final = "half the grids"


def nested_order(cells: Cells, grids: Iterable[str], name: str, seed: int) -> list[str]:
    """Return grids in a random order whose beginnings all have about the same fraction of each shape and density.

    Args:
        cells: steps with the shape and density of their grids.
        grids: the grids to order.
        name: name of the random stream.
        seed: root seed.
    """
    kinds: dict[tuple[str, ...], list[str]] = {}
    kind_of = grid_kinds(cells)
    for grid in sorted(grids):
        kinds.setdefault(kind_of[grid], []).append(grid)
    position: dict[str, float] = {}
    for kind, members in kinds.items():
        rng = stream(seed, name, *kind)
        for rank, index in enumerate(rng.permutation(len(members))):
            position[members[index]] = (rank + rng.random()) / len(members)
    return sorted(position, key=position.__getitem__)


def check_counts(cells: Cells, split: Split, grids: Sequence[int]) -> set[str]:
    """Return the training grids, or raise a ValueError unless ``grids`` are ascending numbers of training grids."""
    pool, counts = set(cells.cluster[split.train].tolist()), list(grids)
    if not counts or counts != sorted(set(counts)) or counts[0] < 1 or counts[-1] > len(pool):
        raise ValueError(
            f"grids must be ascending numbers from 1 to {len(pool)}, the number of training grids, got "
            f"{counts}: leave out larger numbers, or record more grids"
        )
    return pool


def learning_curve(
    data: ProbeInputs,
    grids: Sequence[int],
    *,
    heads: Sequence[str] = CURVE_HEADS,
    seeds: Sequence[int] = (0, 1, 2),
    settings: FitSettings | None = None,
    progress: Progress = lambda done, total: None,
) -> Rows:
    """Score probes trained on more and more of the training grids, in nested random subsets.

    Args:
        data: activations, truth and split; the test grids stay the same.
        grids: ascending numbers of training grids.
        heads: heads of cells.
        seeds: seeds for drawing the subsets.
        settings: how probes are trained.
        progress: called with (done, total) fits of all heads.

    Returns:
        Rows of `CURVE_MEASURES`, as from `score_cells`, with the tags "training grids" and "draw". For all subsets,
        undetermined cells are those of the whole training part. Intervals over grids and draws
        (`goalscope.stats.estimate_rows`) are conditional on the training part: draws of the whole part count as one.

    Raises:
        ValueError: if the numbers do not ascend, or exceed the training part.
    """
    fit_settings, cells, split = settings or FitSettings(), data.cells, data.split
    pool = check_counts(cells, split, grids)
    test_cells, masks = cells.where(split.test), undetermined(cells, split.train)

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterator[Rows]:
        scored = score_cells(probe.predict(features, device=fit_settings.device), test_cells, tags, undetermined=masks)
        yield scored.where(scored.among("measure", CURVE_MEASURES) & scored.among("reading", ["natural"]))

    rows = []
    for number, (seed, count) in enumerate((seed, count) for seed in seeds for count in grids):
        chosen = set(nested_order(cells, pool, CURVE, seed)[:count])
        subset = _trained_on(data, split.train & of_grids(cells.cluster, chosen), split.test)
        scored = _fitted(subset, heads, ["none"], score, fit_settings)
        rows.append(_tagged(scored, {"scope": CURVE, TRAINED_ON: count, "draw": seed}))
        progress(number + 1, len(seeds) * len(grids))
    return Rows.concatenate(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveEnd:
    """The last doubling of a learning curve.

    Attributes:
        key: measure, and the tags that identify the curve.
        grids: numbers of training grids before and after the doubling.
        gain: increase of the score, with its interval over test grids and draws.
        flattened: whether the whole interval of the gain is below the margin; a falling curve counts as flattened.
    """

    key: Mapping[str, Tag]
    grids: tuple[int, int]
    gain: Estimate
    flattened: bool


def curve_ends(
    rows: Rows, by: Sequence[str] = ("site", "layer", "head", "class"), *, margin: float = MARGIN
) -> list[CurveEnd]:
    """Return, for each learning curve, the gain of its last doubling and whether it has flattened.

    Args:
        rows: result of `learning_curve`.
        by: the tags that identify a curve.
        margin: the maximum gain that counts as none, > 0; a fraction.

    Returns:
        One entry per measure and curve; none if no number of grids is at most half of the greatest.
    """
    if not margin > 0:
        raise ValueError(f"margin must be > 0, got {margin!r}: no curve can be shown to be exactly flat")
    counts = sorted({int(count) for count in rows[TRAINED_ON].tolist()}) if len(rows) else []
    halves = [count for count in counts if 2 * count <= counts[-1]]
    if not halves:
        return []
    before, after = (rows.select(**{TRAINED_ON: count}) for count in (halves[-1], counts[-1]))
    gains = pairs(after, before, name=_HALF, by=("draw", *by))
    scores = {f"{score}{LESS}{_HALF}": score for score in after.measure.tolist()}
    ends = []
    for count in estimate_rows(gains, by=by):
        key = {**count.key, "measure": scores[str(count.key["measure"])]}
        flat = bool(count.estimate.high < margin)
        ends.append(CurveEnd(key=key, grids=(halves[-1], counts[-1]), gain=count.estimate, flattened=flat))
    return ends


def description_length(
    data: ProbeInputs,
    *,
    heads: Sequence[str] = CURVE_HEADS,
    controls: Sequence[str] = ("none",),
    blocks: int = 6,
    orders: Sequence[int] = (0, 1, 2),
    settings: FitSettings | None = None,
    progress: Progress = lambda done, total: None,
) -> Rows:
    """Return the length of the online code of every grid's map, for each head and control.

    Blocks are whole grids from both parts of the split; each block after the first is as long as all before it
    together. A cell of class k costs ``-log2 ((1 - e) p_k / sum_j p_j + e / 4)`` bits, with the natural probabilities
    of the four classes of a grid's cells and ``e`` `UNIFORM`; cells outside of the grid cost nothing.

    Args:
        data: activations and truth; heads that read no activations are coded once.
        heads, controls: those of the probes.
        blocks: number of blocks, >= 2; the first has a share of 2^(1 - blocks) of the grids, at least two.
        orders: seeds of the orders of the grids, tag "order".
        settings: how probes are trained.
        progress: called with (done, total) blocks.

    Returns:
        Rows "description length" in bits: for each grid and order the mean over its states.

    Raises:
        ValueError: if there are too few grids for so many blocks.
    """
    fit_settings, cells = settings or FitSettings(), data.cells
    names = set(cells.cluster.tolist())
    ends = [round(len(names) * 2.0 ** (1 + block - blocks)) for block in range(blocks)]
    if blocks < 2 or ends[0] < 2 or not orders:
        raise ValueError(
            "an online code needs at least two blocks, at least two grids in the first block, and at "
            f"least one order, got {blocks} blocks of {len(names)} grids: give at least {2**blocks} "
            "grids, or set fewer blocks"
        )

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterator[Rows]:
        true_cells = replace(cells, labels=truth.values).where(truth.test)
        bits = code_bits(probe.predict(features, device=fit_settings.device), true_cells)
        yield _bits_rows(bits, true_cells, {name: value for name, value in tags.items() if name != "probe"})

    rows = []
    for number, seed in enumerate(orders):
        ordered = nested_order(cells, names, "online code", seed)
        parts = [of_grids(cells.cluster, set(ordered[begin:end])) for begin, end in zip([0, *ends], ends, strict=False)]
        coded = []
        for block in range(1, blocks):
            sent = np.any(parts[:block], axis=0)
            scored = _fitted(_trained_on(data, sent, parts[block]), heads, controls, score, fit_settings)
            coded.append(scored.select(measure=BITS))
            progress(number * (blocks - 1) + block, len(orders) * (blocks - 1))
        first_block = cells.where(parts[0])
        uniform = 2.0 * first_block.inside().sum(axis=1)
        for key in dict.fromkeys(_keys(coded[0])):
            coded.append(_bits_rows(uniform, first_block, dict(key)))
        rows.append(_tagged(Rows.concatenate(coded), {"order": seed}))
    return Rows.concatenate(rows)


def code_bits(prediction: Prediction, cells: Cells) -> npt.NDArray[np.float64]:
    """Return how many bits the code of a prediction needs for the maps of N states, ``[N]``; see
    `description_length`.
    """
    inside = cells.labels != PADDING
    probabilities = prediction.natural[..., :PADDING].astype(np.float64)
    total = probabilities.sum(axis=2)
    label = np.where(inside, cells.labels, 0).astype(np.int64)[..., None]
    of_truth = np.take_along_axis(probabilities, label, axis=2)[..., 0]
    normalised = np.divide(of_truth, total, out=np.full_like(of_truth, 1 / PADDING), where=total > 0)
    bits = -np.log2((1 - UNIFORM) * normalised + UNIFORM / PADDING)
    return np.asarray((bits * inside).sum(axis=1))


def compression(rows: Rows, by: Sequence[str] = ("head", "control", "site", "layer")) -> list[Grouped]:
    """Compute how much shorter each code is than the code from positions alone, as a ratio of sums over grids.

    Args:
        rows: rows from `description_length`, including the head "position".
        by: tags to group by, head among them.
    """
    codes = rows.select(measure=BITS)
    position = codes.select(head="position", control="none")
    if not len(position):
        raise ValueError("compression compares with the code from positions alone: add 'position' to heads")
    other_codes = codes.where(~codes.among("head", ["position"]))
    position_bits = dict(zip(zip(position.cluster, position["order"], strict=True), position.value, strict=True))
    groups = []
    for group in estimate_rows(other_codes, by=by):
        own_rows = other_codes.select(**{name: value for name, value in group.key.items() if name != "measure"})
        bits = [position_bits[key] for key in zip(own_rows.cluster, own_rows["order"], strict=True)]
        ratio = estimate_pooled(bits, own_rows.value, own_rows.cluster, unit="ratio", bounds=(0.0, np.inf))
        groups.append(Grouped(key={**group.key, "measure": "compression"}, estimate=ratio))
    return groups


def _fitted(
    part: ProbeInputs, heads: Sequence[str], controls: Sequence[str], score: Score, settings: FitSettings
) -> Rows:
    suite = [(head, control) for control in controls for head in heads if control == "none" or head not in COUNTED]
    truth_of = truths(part.cells.labels, part, controls, seed=settings.seed)
    return fit_suite(part, suite, truth_of, score, target="cells", settings=settings, callbacks=None).rows


def _trained_on(data: ProbeInputs, train: npt.NDArray[np.bool_], test: npt.NDArray[np.bool_]) -> ProbeInputs:
    return replace(data, split=Split(train=train, test=test, cluster=data.split.cluster))


def _bits_rows(bits: npt.NDArray[np.float64], cells: Cells, tags: Mapping[str, Tag]) -> Rows:
    grids = Grids.of(cells)
    return grids.rows(iter([(BITS, "bits", grids.mean(bits), {})]), tags)


def _tagged(rows: Rows, tags: Mapping[str, Tag]) -> Rows:
    return rows.tagged({name: constant(value, len(rows)) for name, value in tags.items()})


def _keys(rows: Rows) -> Iterator[tuple[tuple[str, Tag], ...]]:
    """Yield for each row the tags that describe its probe, without those that describe its grid."""
    probe_tags = {name: column for name, column in rows.tags.items() if name not in ("size", "density")}
    for values in zip(*(column.tolist() for column in probe_tags.values()), strict=True):
        yield tuple(zip(probe_tags, values, strict=True))
