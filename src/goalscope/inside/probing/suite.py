"""Suites of heads and controls, fitted and scored on the same split; learning curves and description lengths of them.

The target of a probe or control is the truth, the truth of another grid, or the labels of a control task.

A control task gives every type of example one fixed random label, with the frequencies of the real labels. A probe can
only memorise these labels, type by type. Its score on types that recur in test grids is its capacity, and the real
score minus the capacity is its selectivity. Types recur over grids:

* The type of a cell is the symbols of its 3 x 3 neighbourhood, including a symbol for the outside of the grid. Its
  label is a class.
* The type of a step, for predicting plans or distances, is the cells of agent and goal. Its label is the target of a
  training step.

A claim that something cannot be decoded needs a flat learning curve, because with few grids a probe fails whatever the
activations contain. The description length is that of an online code. Sender and receiver know the activations and the
shape of every grid. Both fit the same probe to the blocks of grids sent so far and use it to code the next block. The
code is short if few grids suffice, so it depends less on the size of a probe than accuracy does. The first block is
coded uniformly over the four classes of cells in a grid, at 2 bits per cell.

Sources: Hewitt and Liang 2019, Designing and interpreting probes with control tasks; Voita and Titov 2020,
Information-theoretic probing with minimum description length; Rissanen, IEEE Transactions on Information Theory 30
(1984), the prequential code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.own import attempt
from goalscope._ground.progress import Progress
from goalscope._ground.rng import stream, uniform
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.activations.shards import Activations
from goalscope.inside.probing.fitting import FitSettings, Problem, fit
from goalscope.inside.probing.heads import CELL_HEADS, COUNTED
from goalscope.inside.probing.inputs import (
    CONTROLS,
    NOWHERE,
    Features,
    ProbeInputs,
    Split,
    grid_kinds,
    of_grids,
    read,
    shuffled_rows,
)
from goalscope.inside.probing.labels import AGENT, CLASSES, GOAL, PADDING, Cells, undetermined
from goalscope.inside.probing.probe import Callbacks, Prediction, Probe, ProbeKey, Target
from goalscope.inside.probing.scores import AREA, UNDETERMINED_PRECISION, Grids, confusion_rows, pairs, score_cells
from goalscope.stats import LESS, Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.rows import Rows, Tag, constant

_STREAM: Final = "control task"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What probes should predict at N steps: the true values, or those of a control.

    Attributes:
        values: ``[N, ...]`` values to predict.
        train: ``[N]`` which steps are used for training.
        test: ``[N]`` which steps are used for testing.
        cells: ``[N, C]`` which cells of a control task are scored (steps by cells); None for all.
    """

    values: npt.NDArray[Any]
    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    cells: npt.NDArray[np.bool_] | None = None


def truths(
    values: npt.NDArray[Any],
    data: ProbeInputs,
    controls: Iterable[str],
    *,
    seed: int,
    known: npt.NDArray[np.bool_] | None = None,
) -> dict[str, Truth]:
    """Return what probes and their controls should predict: the true values, or those that a control replaces them
    with.

    Args:
        values: ``[N, ...]`` the truth at N steps.
        data: activations, labels and the split.
        controls: names of the controls.
        seed: root seed of the exchange of grids, and of the labels of control tasks.
        known: ``[N]`` at which steps there is a truth; None for all.

    Returns:
        "own" -> the true values; and as far as the controls need them, "shuffled" -> those of other grids, and "control
        task" -> random labels, one for each type of cell or step.
    """
    is_known = np.ones(len(values), dtype=bool) if known is None else known
    names = {CONTROLS[control] for control in controls if control in CONTROLS}
    truth = _known(values, data, is_known)
    by_name = {"own": truth}
    if "shuffled" in names:
        # Labels of another grid are paired with this grid's activations, and the score belongs to this grid.
        rows = shuffled_rows(data.cells, data.split, seed=seed)
        by_name["shuffled"] = _known(values[rows], data, is_known[rows])
    if "control task" in names:
        by_name["control task"] = _of_cells(data, seed) if values is data.cells.labels else _of_steps(truth, data, seed)
    return by_name


def scored_rows(truth: Truth, data: ProbeInputs, tags: Mapping[str, Tag]) -> Rows:
    """Return on how many cells or steps of each test grid a control task (with random labels) is scored, as rows of
    results.
    """
    tested = data.split.test
    grids = Grids.of(data.cells.where(tested))
    if truth.cells is None:
        name, unit, counts = "scored steps", "steps", truth.test[tested]
    else:
        name, unit, counts = "scored cells", "cells", truth.cells[tested].sum(axis=1)
    return grids.rows([(name, unit, grids.sums(counts), {})], tags)


def _known(values: npt.NDArray[Any], data: ProbeInputs, is_known: npt.NDArray[np.bool_]) -> Truth:
    # If everything is known, all targets share the inputs of one split.
    parts = {name: part if is_known.all() else part & is_known for name, part in data.split.parts}
    return Truth(values=values, **parts)


def _of_cells(data: ProbeInputs, seed: int) -> Truth:
    """Build the control task of cells. Cells outside the grid stay padding and are not scored."""
    cells, train = data.cells, data.split.train
    inside = cells.labels != PADDING
    types, type_index = np.unique(neighbourhoods(cells)[inside], return_inverse=True)
    step = np.nonzero(inside)[0]
    frequency = np.bincount(cells.labels[train][inside[train]], minlength=len(CLASSES)).cumsum()
    uniforms = [uniform(seed, _STREAM, "cells", int(cell_type)) for cell_type in types]
    labels = cells.labels.copy()
    labels[inside] = np.searchsorted(frequency / frequency[-1], uniforms, side="right")[type_index]
    in_training = np.bincount(type_index[train[step]], minlength=len(types)) > 0
    scored = np.zeros_like(inside)
    scored[inside] = in_training[type_index]
    return Truth(values=labels, train=train, test=data.split.test, cells=scored)


def neighbourhoods(cells: Cells) -> npt.NDArray[np.int64]:
    """Return a number for the type of each cell at N steps, ``[N, C]`` (steps by cells): its 3 x 3 neighbourhood.

    In a control task, a probe learns random labels, one for each type, to show how much it could memorise.
    """
    side = cells.frame
    square = np.pad(cells.labels.reshape(-1, side, side), ((0, 0), (1, 1), (1, 1)), constant_values=PADDING)
    codes = np.zeros((len(cells), side, side), dtype=np.int64)
    for row in range(3):
        for col in range(3):
            codes = codes * len(CLASSES) + square[:, row : row + side, col : col + side]
    return codes.reshape(len(cells), -1)


def _of_steps(truth: Truth, data: ProbeInputs, seed: int) -> Truth:
    """Build the control task of steps: pairs of agent and goal cells get the values of random training steps."""
    types = step_types(data.cells)
    pairs, pair_index = np.unique(types, return_inverse=True)
    source = np.flatnonzero(truth.train)
    uniforms = [uniform(seed, _STREAM, "steps", int(pair)) for pair in pairs]
    rows = source[(np.array(uniforms) * len(source)).astype(np.int64)][pair_index]
    in_training = np.isin(types, types[truth.train])
    return Truth(values=truth.values[rows], train=truth.train, test=truth.test & in_training)


def step_types(cells: Cells) -> npt.NDArray[np.int64]:
    """Return a number for the type of each of N steps, ``[N]``: steps with equal cells of agent and goal have one type.

    In a control task, a probe learns random labels, one for each type, to show how much it could memorise.
    """
    count = cells.labels.shape[1]
    cell_indices = []
    for label in (AGENT, GOAL):
        is_label = cells.labels == label
        cell_indices.append(np.where(is_label.any(axis=1), is_label.argmax(axis=1), count))
    return np.asarray(cell_indices[0] * (count + 1) + cell_indices[1], dtype=np.int64)


Entry = tuple[str, str]
"""A head and a control."""
FULL: Final[tuple[Entry, ...]] = (
    *((head, control) for head in COUNTED for control in ("none", "shuffled")),
    *((head, control) for head in CELL_HEADS if head not in COUNTED for control in CONTROLS),
)
"""All heads and controls."""
CORE: Final = tuple((head, control) for head in ("percell", "mlp") for control in ("none", *RANDOM_WEIGHTS))
"""The minimum for a claim: the linear probe and the MLP, also on random networks."""
SEEN: Final = "seen"
"""Value of the tag ``cells`` of scores over the cells alone that the agent had been shown."""


def entries_of(heads: Sequence[str]) -> tuple[Entry, ...]:
    """Return the pairs (head, control) to fit for the given heads (forms of probes that predict cells), with every
    control.
    """
    cells = [name for name in heads if "cells" in registry.resolve("head", name).targets and name not in COUNTED]
    return tuple((head, control) for head in cells for control in CONTROLS)


def without(suite: Sequence[Entry], *names: str) -> tuple[Entry, ...]:
    """Return the pairs of a head (form of probe) and a control that contain none of the given names.

    Example: ``without(FULL, "text")`` for a model without reasoning.
    """
    return tuple(entry for entry in suite if not set(entry) & set(names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedProbes:
    """Fitted probes by their identity (`probes`), with the scores of probes and baselines on the test grids
    (`rows`).
    """

    probes: Mapping[ProbeKey, Probe]
    rows: Rows

    @classmethod
    def joined(cls, parts: Sequence["FittedProbes"]) -> "FittedProbes":
        """Join several sets of fitted probes, and their rows of scores, into one."""
        probes = {key: probe for part in parts for key, probe in part.probes.items()}
        return cls(probes=probes, rows=Rows.concatenate([part.rows for part in parts]))

    def probe(
        self,
        head: str,
        activations: Activations,
        *,
        control: str = "none",
        draw: int | None = None,
        scope: str = "general",
    ) -> Probe:
        """Return the fitted probe of cells for the site and layer of some activations.

        Args:
            head: form of the probe, such as "mlp".
            activations: activations from the site and layer.
            control: "none" for the probe itself, or a control.
            draw: seed of a random network.
            scope: the grids that it applies to, "general" or a shape such as "7x7".

        Raises:
            KeyError: if there is none; the message names the fitted probes.
        """
        (site, layer), description = activations.place, (head, control, draw, scope)
        requested = ProbeKey(head=head, target="cells", control=control, draw=draw, scope=scope, site=site, layer=layer)
        for key, probe in self.probes.items():
            matches = (key.head, key.control, key.draw, key.scope) == description
            if matches and (key.site, key.layer) in ((site, layer), NOWHERE):
                return probe
        raise KeyError(f"there is no probe {requested.text}: fitted are {', '.join(key.text for key in self.probes)}")


Score = Callable[[Probe, Features, Truth, dict[str, Any]], Iterable[Rows]]
"""Scores a probe on the tested steps, from its inputs there, the truth and its tags."""


def fit_suite(
    data: ProbeInputs,
    suite: Sequence[Entry],
    truth_of: Mapping[str, Truth],
    score: Score,
    *,
    target: Target,
    settings: FitSettings,
    callbacks: Callbacks | None,
    scope: str = "general",
    heads: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
) -> FittedProbes:
    """Fit and score every pair of a head (form of probe) and a control at every site (token positions) and layer.

    A head of another package that raises an error is left out, with a `goalscope._ground.own.PartWarning`.

    Args:
        data: activations, labels and split.
        suite: the pairs of head and control.
        truth_of: what to predict, for the probe and for the controls, see `truths`.
        score: returns the rows of scores of a probe, from its inputs at the test steps, the truth and its tags.
        target: kind of prediction: "cells", "distance" or "plan".
        settings: how probes are trained.
        callbacks: functions that look up stored probes, which are not fitted again, and receive each fitted probe.
        scope: which grids the probes are for; a tag.
        heads: maps a name in the suite to the registered head and its settings, where these differ from the name.

    Returns:
        The fitted probes by their identity, and the rows of scores.
    """
    if not suite or len(set(suite)) != len(suite):
        raise ValueError(f"suite must have at least one entry and no entry twice, got {list(suite)}")
    forms = {name: (heads or {}).get(name, (name, {})) for name, _ in suite}
    theirs = [
        name
        for name, (head, _) in forms.items()
        if registry.resolve("head", head) and not registry.built_in("head", head)
    ]
    first = data.activations[0].place

    def fit_entries(entries: Sequence[Entry]) -> FittedProbes:
        """Fit and score entries in a single loop over heads and controls."""
        features_of: dict[tuple[int, int], Features] = {}
        problems: list[Problem] = []
        tested: list[tuple[Features, Truth]] = []
        # kept alive, so that the object ids below stay unique
        readings = read(data, [control for _, control in entries])
        for control, (place, features, draw) in readings:
            truth = truth_of[CONTROLS[control]]
            for part in (truth.train, truth.test):
                if (id(features), id(part)) not in features_of:
                    features_of[id(features), id(part)] = features.where(part)
            for name, entry_control in entries:
                # Heads that read no activations are the same at every place, so they are fitted only at the first.
                if entry_control != control or (name in COUNTED and place != first):
                    continue
                site, layer = NOWHERE if name in COUNTED else place
                head, head_settings = forms[name]
                key_fields: dict[str, Any] = {"control": control, "draw": draw, "seed": settings.seed, "scope": scope}
                problem = Problem(
                    key=ProbeKey(head=name, target=target, site=site, layer=layer, **key_fields),
                    features=features_of[id(features), id(truth.train)],
                    target=truth.values[truth.train],
                    tags={"control": control} | ({"scope": scope} if target == "cells" else {}),
                    head=head,
                    settings=head_settings,
                )
                problems.append(problem)
                tested.append((features_of[id(features), id(truth.test)], truth))
        probes = fit(problems, settings, callbacks)
        rows: list[Rows] = []
        for problem, probe, (features, truth) in zip(problems, probes, tested, strict=True):
            tags = {"probe": probe.id, **problem.key.tags}
            scored = list(score(probe, features, truth, tags))
            rows += scored
            if scored and truth is truth_of.get("control task"):
                rows.append(scored_rows(truth, data, {**tags, "scope": scope}))
        by_key = {problem.key: probe for problem, probe in zip(problems, probes, strict=True)}
        return FittedProbes(probes=by_key, rows=Rows.concatenate(rows))

    ours = without(suite, *theirs)
    parts = [fit_entries(ours)] if ours else []
    for name in theirs:
        entries = [entry for entry in suite if entry[0] == name]
        part = attempt("head", forms[name][0], partial(fit_entries, entries), lambda sentence: None)
        parts += [] if part is None else [part]
    return FittedProbes.joined(parts)


def probe_cells(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    scope: str = "general",
    callbacks: Callbacks | None = None,
    scored: bool = True,
    seen: npt.NDArray[np.bool_] | None = None,
) -> FittedProbes:
    """Fit probes of the grid's cells with every head (form of probe) and control, and score all of them on the test
    grids.

    Args:
        data: activations, truth and split.
        suite: pairs of a head and a control, `FULL` by default.
        settings: how probes are trained.
        scope: which grids the probes are for; a tag.
        callbacks: functions that look up stored probes, which are not fitted again, and receive each fitted probe.
        scored: whether to score the probes; otherwise there are no rows.
        seen: ``[N, C]`` which cells the agent had seen (steps by cells), for an additional row (tag ``cells``) with the
            area under the curve over these cells only; None if it saw all.

    Returns:
        The fitted probes by their identity, and the rows of scores, one per measure and test grid.

    Raises:
        ValueError: if an entry is unknown, or data for a control is missing; the message says how to get it.
    """
    fit_settings = settings or FitSettings()
    for entry in suite:
        if entry not in FULL and entry not in entries_of([entry[0]]):
            raise ValueError(f"an entry of a suite must be a pair of a head and one of its controls, got {entry!r}")

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterable[Rows]:
        if not scored:
            return
        true_cells = replace(data.cells, labels=truth.values)
        predictions, tags = probe.predict(features, device=fit_settings.device), {**tags, "scope": scope}
        hidden = undetermined(true_cells, truth.train)
        scored_cells = None if truth.cells is None else truth.cells[truth.test]
        true_cells = true_cells.where(truth.test)
        yield score_cells(predictions, true_cells, tags, undetermined=hidden, counted=scored_cells)
        if seen is not None and truth is truth_of["own"]:
            seen_tags = {**tags, "cells": SEEN}
            scores = score_cells(predictions, true_cells, seen_tags, undetermined=hidden, counted=seen[truth.test])
            yield scores.where(scores.measure == AREA)
        if tags["control"] == "none":
            yield confusion_rows(predictions, true_cells, tags)

    truth_of = truths(data.cells.labels, data, (control for _, control in suite), seed=fit_settings.seed)
    return fit_suite(
        data, suite, truth_of, score, target="cells", settings=fit_settings, callbacks=callbacks, scope=scope
    )


def probe_cells_by_size(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit and score separate probes of the grid's cells for each shape of grid; the tag "scope" is then "7x7" etc.

    The arguments are those of `probe_cells`.
    """
    return FittedProbes.joined(
        [
            probe_cells(shape_data, suite=suite, settings=settings, scope=scope, callbacks=callbacks)
            for scope, shape_data in data.by_shape()
        ]
    )


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
    """Order grids at random, so that the first n of them have about the same mix of shapes and densities for every n.

    Learning curves train on such beginnings of the order.

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
    """Check that ``grids`` are ascending numbers of training grids, as for a learning curve.

    Returns:
        The ids of all training grids.

    Raises:
        ValueError: if they are not, or exceed the number of training grids.
    """
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
        heads: forms of probes that predict cells.
        seeds: seeds for drawing the subsets.
        settings: how probes are trained.
        progress: called with (done, total) fits of all heads.

    Returns:
        Rows of scores (`CURVE_MEASURES`) with the tags "training grids" and "draw" (the seed), for
        `goalscope.stats.estimate_rows`. The scores of all subsets count the same cells: those whose class does not
        follow from their position in the whole training part (see `undetermined`). Intervals do not include the choice
        of the training part.

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
    """Whether a learning curve has flattened: the gain of its last doubling of the number of training grids.

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
    """Return, for each learning curve, the gain of its last doubling and whether the curve has flattened.

    Args:
        rows: result of `learning_curve`.
        by: the tags that identify a curve.
        margin: the maximum gain that counts as none, > 0; a fraction.

    Returns:
        One entry per measure and curve; none if no number of grids is at most half of the greatest.

    Raises:
        ValueError: if the margin is not above 0.
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
    """Return how many bits an online code needs for every grid's map, for each head (form of probe) and control.

    In an online code, sender and receiver fit the probe to the blocks of grids sent so far and code the next block with
    it. Blocks are whole grids from both parts of the split; each block after the first is as long as all before it
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
    """Return how many bits it takes to send the true maps of N states with the code that a prediction gives, ``[N]``.

    The cost of a cell is that of `description_length`.
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
    """Compute how much shorter each probe's code of the maps is than the code from positions alone.

    Args:
        rows: rows from `description_length`, including the head "position".
        by: tags to group by, head among them.

    Returns:
        The ratio of the bits of both codes, summed over grids, with an interval for each group.

    Raises:
        ValueError: if the head "position" is missing.
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
    return grids.rows([(BITS, "bits", grids.mean(bits), {})], tags)


def _tagged(rows: Rows, tags: Mapping[str, Tag]) -> Rows:
    return rows.tagged({name: constant(value, len(rows)) for name, value in tags.items()})


def _keys(rows: Rows) -> Iterator[tuple[tuple[str, Tag], ...]]:
    """Yield for each row the tags that describe its probe, without those that describe its grid."""
    probe_tags = {name: column for name, column in rows.tags.items() if name not in ("size", "density")}
    for values in zip(*(column.tolist() for column in probe_tags.values()), strict=True):
        yield tuple(zip(probe_tags, values, strict=True))
