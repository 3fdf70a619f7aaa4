"""Suites of heads and controls, whose entries are all fitted and scored on the same split.

The target of a probe or control is the truth, the truth of another grid, or the labels of a control task.

A control task gives every type of example one fixed random label, with the frequencies of the real labels. A probe can
only memorise these labels, type by type. Its score on types that recur in test grids is its capacity, and the real
score minus the capacity is its selectivity. Types recur over grids:

* The type of a cell is the symbols of its 3 x 3 neighbourhood, including a symbol for the outside of the grid. Its
  label is a class.
* The type of a step, for predicting plans or distances, is the cells of agent and goal. Its label is the target of a
  training step.

Source: Hewitt and Liang 2019, Designing and interpreting probes with control tasks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.parts import attempt
from goalscope._ground.rng import uniform
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.activations.load import Activations
from goalscope.inside.probing.fitting import FitSettings, PlanSettings, Problem, fit
from goalscope.inside.probing.heads import CELL_HEADS, COUNTED
from goalscope.inside.probing.inputs import (
    CONTROLS,
    NOWHERE,
    PLAN_CONTROLS,
    Features,
    ProbeInputs,
    read,
    shuffled_rows,
    site_layer,
)
from goalscope.inside.probing.labels import AGENT, CLASSES, GOAL, PADDING, Cells, Plans, plan_length, undetermined
from goalscope.inside.probing.maps import DecodedMaps, true_map
from goalscope.inside.probing.plan_scores import (
    DECODER_LAYERS,
    STEPWISE,
    SUBSETS,
    commonest_matches,
    marginal_matches,
    named_plans,
    planner_length,
    planner_matches,
    prefix_matches,
    repeated,
    score_lengths,
    score_prefixes,
)
from goalscope.inside.probing.probe import Callbacks, Probe, ProbeKey, Target
from goalscope.inside.probing.scores import AREA, Grids, confusion_rows, score_cells
from goalscope.stats.rows import Rows, Tag

_STREAM: Final = "control task"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """Targets at N steps.

    Attributes:
        values: ``[N, ...]`` targets.
        train: ``[N]`` which steps are used for training.
        test: ``[N]`` which steps are used for testing.
        cells: ``[N, C]`` which cells of a control task are scored; None for all.
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
    """Return the targets by the names of `Control.truth`, always including "own".

    Args:
        values: ``[N, ...]`` the truth at N steps.
        data: activations, labels and the split.
        controls: names of the controls.
        seed: root seed of the exchange of grids, and of the labels of control tasks.
        known: ``[N]`` at which steps there is a truth; None for all.
    """
    is_known = np.ones(len(values), dtype=bool) if known is None else known
    names = {CONTROLS[control].truth for control in controls if control in CONTROLS}
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
    """Return rows with the number of cells or steps per test grid on which a control task is scored."""
    tested = data.split.test
    grids = Grids.of(data.cells.where(tested))
    if truth.cells is None:
        name, unit, counts = "scored steps", "steps", truth.test[tested]
    else:
        name, unit, counts = "scored cells", "cells", truth.cells[tested].sum(axis=1)
    return grids.rows(iter([(name, unit, grids.sums(counts), {})]), tags)


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
    """Return the type of every cell, ``[N, C]``: a number for the symbols of its 3 x 3 neighbourhood."""
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
    """Return the type of every step, ``[N]``, a number for the cells of agent and goal, if present."""
    count = cells.labels.shape[1]
    cell_indices = []
    for label in (AGENT, GOAL):
        is_label = cells.labels == label
        cell_indices.append(np.where(is_label.any(axis=1), is_label.argmax(axis=1), count))
    return np.asarray(cell_indices[0] * (count + 1) + cell_indices[1], dtype=np.int64)


Entry = tuple[str, str]
"""A head and a control."""
Maps = Mapping[tuple[str, int], DecodedMaps]
"""Site and layer -> the maps decoded there, of the same N steps."""
FULL: Final[tuple[Entry, ...]] = (
    *((head, control) for head in COUNTED for control in ("none", "shuffled")),
    *((head, control) for head in CELL_HEADS if head not in COUNTED for control in CONTROLS),
)
"""All heads and controls."""
CORE: Final = tuple((head, control) for head in ("percell", "mlp") for control in ("none", *RANDOM_WEIGHTS))
"""The minimum for a claim: the linear probe and the MLP, also on random networks."""
LAYERS: Final = (1, 2, 4)
"""Layers of the decoders of the paper."""
FIRST_KNOWN: Final = ("repeat", "continuation")
"""Baselines from the decoded first action alone: its repetition, and its commonest continuation."""
SEEN: Final = "seen"
"""Value of the tag ``cells`` of scores over the cells alone that the agent had been shown."""
BLIND: Final[Mapping[str, Callable[..., npt.NDArray[np.float64]]]] = {
    "marginal": marginal_matches,
    "commonest": commonest_matches,
}
"""Baselines without any input."""


def entries_of(heads: Sequence[str]) -> tuple[Entry, ...]:
    """Return a suite of the registered heads that predict cells, each with every control."""
    cells = [name for name in heads if "cells" in registry.resolve("head", name).targets and name not in COUNTED]
    return tuple((head, control) for head in cells for control in CONTROLS)


def without(suite: Sequence[Entry], *names: str) -> tuple[Entry, ...]:
    """Return a suite without the named heads or controls, e.g. ``without(FULL, "text")`` for a model without
    reasoning.
    """
    return tuple(entry for entry in suite if not set(entry) & set(names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedProbes:
    """The fitted probes of a suite by key, with the scores of probes and baselines on the test grids."""

    probes: Mapping[ProbeKey, Probe]
    rows: Rows

    @classmethod
    def joined(cls, parts: Sequence["FittedProbes"]) -> "FittedProbes":
        """Join the probes and rows of several suites."""
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
        """Return the probe for the site and layer of some activations; a KeyError names the fitted probes."""
        (site, layer), description = site_layer(activations), (head, control, draw, scope)
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
    """Fit and score every entry of a suite at every site and layer.

    ``heads`` maps a name in the suite to the registered head and its settings, where these differ from the name. A head
    of another package that raises is left out, with a `goalscope._ground.parts.PartWarning`.
    """
    if not suite or len(set(suite)) != len(suite):
        raise ValueError(f"suite must have at least one entry and no entry twice, got {list(suite)}")
    forms = {name: (heads or {}).get(name, (name, {})) for name, _ in suite}
    theirs = [
        name
        for name, (head, _) in forms.items()
        if registry.resolve("head", head) and not registry.built_in("head", head)
    ]
    first = site_layer(data.activations[0])

    def fit_entries(entries: Sequence[Entry]) -> FittedProbes:
        """Fit and score entries in a single loop over heads and controls."""
        features_of: dict[tuple[int, int], Features] = {}
        problems: list[Problem] = []
        tested: list[tuple[Features, Truth]] = []
        # kept alive, so that the object ids below stay unique
        readings = read(data, [control for _, control in entries])
        for control, (place, features, draw) in readings:
            truth = truth_of[CONTROLS[control].truth]
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
    """Fit every head with every control on one split, and score all of them on its test grids.

    Args:
        data: activations, truth and split.
        suite: heads and controls, `FULL` by default.
        settings: how probes are trained.
        scope: which grids the probes are for; a tag.
        callbacks: source of stored probes, which are not fitted again; receives each fitted probe.
        scored: whether to score the probes; otherwise there are no rows.
        seen: ``[N, C]`` which cells the agent had seen, for an additional row (tag ``cells``) with the area under the
            curve over these cells only; None if it saw all.

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
    """Fit and score separate probes for each shape of grid, in a frame of its size; scopes are "7x7" etc."""
    return FittedProbes.joined(
        [
            probe_cells(shape_data, suite=suite, settings=settings, scope=scope, callbacks=callbacks)
            for scope, shape_data in data.by_shape()
        ]
    )


def probe_plans(
    data: ProbeInputs,
    plans: Plans,
    *,
    layers: Sequence[int] = LAYERS,
    beside: Sequence[int] | None = None,
    controls: Sequence[str] = PLAN_CONTROLS,
    maps: Maps | None = None,
    stepwise: bool = False,
    settings: PlanSettings | None = None,
    callbacks: Callbacks | None = None,
) -> FittedProbes:
    """Fit decoders of every size with every control on one split, and score them and all baselines.

    Args:
        data: activations, truth and split.
        plans: the executed moves, see `label_plans`.
        layers: numbers of layers of the decoders.
        beside: numbers of layers of the decoders that are also fitted to random networks; by default all.
        controls: some of `PLAN_CONTROLS`, including "none".
        maps: decoded maps for the planner; a site and layer without one lacks this baseline.
        stepwise: whether to also fit decoders that receive the tokens decoded so far.
        settings: how decoders are trained; by default the sizes in the paper.
        callbacks: source of stored decoders, which are not fitted again; receives each fitted decoder.

    Rows are tagged by head ("decoder-2", "decoder-2-stepwise", "marginal", "commonest", "repeat executed", "planner",
    "planner, best ties", "text"), control (`PLAN_CONTROLS`, `FIRST_KNOWN`, "true map"), site, layer (None if no
    activations are read), N, plans, size and density; those of decoders also by `DECODER_LAYERS` and `STEPWISE`.

    Raises:
        ValueError: if controls are unknown, steps do not match, or data for a control is missing; the message says how
            to get it.
    """
    fit_settings, cells, split = settings or PlanSettings(), data.cells, data.split
    check_controls(controls)
    cells.check_aligned(plans, "plans")
    truth_of = truths(plans.tokens, data, controls, seed=fit_settings.seed)
    parts = {}
    for name, truth in truth_of.items():
        exchanged = replace(plans, tokens=truth.values)
        parts[name] = (exchanged.where(truth.train), exchanged.where(truth.test), cells.where(truth.test))
    decoders: dict[str, dict[str, Tag]] = {}
    for count in layers:
        decoders[f"decoder-{count}"] = {DECODER_LAYERS: count, STEPWISE: False}
        if stepwise:
            decoders[f"decoder-{count}-stepwise"] = {DECODER_LAYERS: count, STEPWISE: True}

    def score(probe: Probe, features: Features, truth: Truth, tags: dict[str, Any]) -> Iterable[Rows]:
        train_plans, true_plans, true_cells = parts[CONTROLS[tags["control"]].truth]
        tags = {**tags, **decoders[tags["head"]]}
        predictions = probe.predict_plan(features, device=fit_settings.device)
        yield score_prefixes(prefix_matches(predictions.tokens, true_plans.tokens), true_plans, true_cells, tags)
        yield score_lengths(predictions.length, true_plans, true_cells, tags)
        if tags["control"] == "none":  # baseline that continues the decoder's first action
            repetition = prefix_matches(repeated(predictions.first, true_plans.horizon), true_plans.tokens)
            continuation, long_continuation = (
                commonest_matches(train_plans, true_plans.tokens, predictions.first, plans) for plans in SUBSETS
            )
            for name, *matches in zip(
                FIRST_KNOWN, (repetition, continuation), (repetition, long_continuation), strict=True
            ):
                yield score_prefixes(matches[0], true_plans, true_cells, {**tags, "control": name}, long=matches[1])

    def baselines() -> Iterable[Rows]:
        """Yield the scores of the baselines, which decode no plan from activations."""
        nowhere: dict[str, Any] = {"site": None, "layer": None, "control": "none"}
        for control in (name for name in ("none", "shuffled") if name in controls):
            train, true_plans, true_cells = parts[CONTROLS[control].truth]
            for head, baseline in BLIND.items():
                row_tags = {**nowhere, "head": head, "control": control}
                matches, long = (baseline(train, true_plans.tokens, plans=plans) for plans in SUBSETS)
                yield score_prefixes(matches, true_plans, true_cells, row_tags, long=long)
        _, truth, true_cells = parts["own"]
        repetition = prefix_matches(np.maximum(repeated(truth.tokens[:, 0], truth.horizon), 0), truth.tokens)
        yield score_prefixes(repetition, truth, true_cells, {**nowhere, "head": "repeat executed"})
        true = ({**nowhere, "control": "true map"}, true_map(true_cells))
        for row_tags, layout in (*on_maps(maps, split.test), true):
            planned = {**row_tags, "head": "planner"}
            yield score_prefixes(planner_matches(layout, truth.tokens), truth, true_cells, planned)
            best = planner_matches(layout, truth.tokens, ties="best")
            yield score_prefixes(best, truth, true_cells, {**row_tags, "head": "planner, best ties"})
            yield score_lengths(planner_length(layout, truth.horizon), truth, true_cells, planned)
        if any(true_cells.reasoning.tolist()):
            text_plans, row_tags = named_plans(true_cells.reasoning, truth.horizon), {**nowhere, "head": "text"}
            yield score_prefixes(prefix_matches(text_plans, truth.tokens), truth, true_cells, row_tags)
            yield score_lengths(plan_length(text_plans), truth, true_cells, row_tags)

    heads = {
        name: ("stepwise" if form[STEPWISE] else "decoder", {"layers": form[DECODER_LAYERS]})
        for name, form in decoders.items()
    }
    random_layers = layers if beside is None else beside
    suite = [
        (name, control)
        for control in controls
        for count in (random_layers if control in RANDOM_WEIGHTS else layers)
        for name, form in decoders.items()
        if form[DECODER_LAYERS] == count
    ]
    fitted = fit_suite(
        data, suite, truth_of, score, target="plan", settings=fit_settings, callbacks=callbacks, heads=heads
    )
    return replace(fitted, rows=Rows.concatenate([fitted.rows, *baselines()]))


def check_controls(controls: Sequence[str]) -> None:
    """Raise a ValueError unless these are controls of plans and distances, including the probe itself ("none")."""
    if "none" not in controls or not set(controls) <= set(PLAN_CONTROLS):
        raise ValueError(f"controls must be some of {', '.join(PLAN_CONTROLS)} and include none, got {list(controls)}")


def on_maps(maps: Maps | None, steps: npt.NDArray[np.bool_]) -> Iterable[tuple[dict[str, Any], DecodedMaps]]:
    """Yield the decoded maps at the selected steps, each with its tags."""
    for (site, layer), decoded in (maps or {}).items():
        yield {"site": site, "layer": layer, "control": "none"}, decoded.where(steps)
