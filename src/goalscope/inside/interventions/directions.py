"""Steering and ablation: adding a direction that represents another cell, and removing all that a probe can read.

Steering tests whether the action follows the added direction. A dose is the length of the added vector, in units of the
difference between the two sides of the pair at the site, because norms differ by site and layer. Dose 1 of the pair's
own difference is a patch. The controls have the same length: random directions, and the direction of a probe fitted to
shuffled labels. The expected action follows from the edited map.

At the tokens of cells, a direction represents a class of cells. It is added at the cell that becomes the goal and
subtracted at the cell that was the goal. Before and after the reasoning, a direction represents a position, as in
"goal at c" - "goal at b". A probe's direction is the gradient of a class score. A mean difference is the difference
between the mean activations of two classes.

Ablation projects out directions until a refitted probe is at chance. Each round removes the directions along which
activations covary with the truth. In the states used for learning, no linear predictor has any information without
them. The information counts as removed once a predictor refitted to the residual does not correlate with the truth on
held-out grids; before that, unchanged behaviour is no evidence. Random subspaces of the same rank are the control,
because removing many directions does harm by itself. The removed component is set to its mean over the states used for
learning.

Sources: Elazar et al. 2021, Amnesic probing; Ravfogel et al. 2020, Null it out (iterated projection); Haghighatkhah et
al. 2022, Better hit the nail on the head than beat around the bush (using the direction of the covariance instead of
the predictor's removes as much with fewer directions).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.rng import stream
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Reply
from goalscope.inside.activations.sites import Site, model_id
from goalscope.inside.interventions.experiment import (
    ExperimentSubject,
    Headline,
    OnPairs,
    Pair,
    PairSettings,
    intervention,
    local_model,
)
from goalscope.inside.interventions.forward import Edit
from goalscope.inside.interventions.reading import (
    FOLLOWS,
    STAYS,
    Passage,
    ReadStates,
    Where,
    acted,
    added,
    averaged,
    effect,
    fresh_views,
    layers_of,
    pair_rows,
    read_passages,
    states_of,
    written_in,
)
from goalscope.inside.probing.fitting import FitSettings, Problem, fit
from goalscope.inside.probing.inputs import Features, Source
from goalscope.inside.probing.labels import AGENT, CLASSES, GOAL, label_grid
from goalscope.inside.probing.probe import Probe, ProbeKey, stored_probes
from goalscope.runs.study_parts import Layers, sequence
from goalscope.stats.rows import Rows, Tag

PROBE: Final = "probe"
MEAN: Final = "mean difference"
SHUFFLED: Final = "shuffled probe"
RANDOM: Final = "random"
OWN: Final = "own difference"
"""Kinds of directions; the last is the pair's own difference, which is a patch: the upper bound for a change there."""
Direction = Literal["probe", "mean difference", "shuffled probe", "random", "own difference"]
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)

_THINGS: Final[Mapping[str, int]] = {"agent": AGENT, "goal": GOAL}
_MIN_STATES: Final = 2  # minimum number of states on each side of a mean difference
_PENALTIES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Directions:
    """Directions along which `steer` moves an agent's activations, at one site (set of token positions) and layer.

    Attributes:
        site, layer: origin of the activations.
        probe: linear probe of the class of a cell (agent, goal, wall, ...), whose gradient is a direction; `flips`
            applies it to steered activations.
        shuffled: the same probe, fitted to the labels of other states, as a control.
        means: class, or (class, cell), -> mean activation ``[P * D]`` float64 (positions by width) and number of
            states.
    """

    site: Where
    layer: int
    probe: Probe
    shuffled: Probe
    means: Mapping[Any, tuple[npt.NDArray[np.float64], int]] = field(default_factory=dict)

    def vectors(self, kind: Direction, pair: Pair) -> npt.NDArray[np.float64] | None:
        """Return vectors ``[P, D]`` that point from the activations of a pair's first grid to those of its second, of
        any length.

        P counts the token positions of the site, D is the width of the model.

        Args:
            kind: how the direction is obtained: "probe", "mean difference" or "shuffled probe".
            pair: two grids that differ in the cell of one thing.

        Returns:
            The vectors; None if a class or a cell has too few states, or if the moved thing has no class (a key).
        """
        changes = self._changes(pair)
        if changes is None:
            return None
        differences = []
        for gained, lost in changes:
            if kind == MEAN:
                (after, n_after), (before, n_before) = (
                    self.means.get(self._mean_key(key), (np.zeros(1), 0)) for key in (gained, lost)
                )
                if min(n_after, n_before) < _MIN_STATES:
                    return None
                differences.append(after - before)
            else:
                probe = self.probe if kind == PROBE else self.shuffled
                differences.append(_gradient(probe, *gained) - _gradient(probe, *lost))
        joined = np.stack(differences) if self.site == "changed" else differences[0]
        return joined.reshape(len(pair.changed) if self.site == "changed" else 3, -1)

    def flips(self, pair: Pair, steered: Vectors) -> bool:
        """Return whether the probe reads the pair's second grid from steered activations ``[P, D]`` of its first grid.

        This tells whether the added direction was long enough to change the probe's answer. P counts token positions, D
        is the width of the model.
        """
        changes = self._changes(pair)
        if changes is None:
            return False
        cells = self.site == "changed"
        probabilities = self.probe.predict(
            _features(self.probe.source, steered if cells else steered.reshape(1, -1))
        ).balanced
        if cells:
            return all(
                int(cell_probabilities[0].argmax()) == gained[1]
                for cell_probabilities, (gained, _) in zip(probabilities, changes, strict=True)
            )
        ((cell, label), _) = changes[0]
        return int(probabilities[0, :, label].argmax()) == cell

    def _changes(self, pair: Pair) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
        """Return pairs (gained, lost) of (cell of the frame, class), one per changed cell or one for the moved thing.

        At the tokens of cells, the frame is a single cell.
        """
        if pair.moved not in _THINGS:
            return None
        grids = [side.view.grid for side in pair.sides]
        labels = [label_grid(grid, max(grid.height, grid.width)) for grid in grids]
        if self.site == "changed":
            return [((0, int(labels[1][cell])), (0, int(labels[0][cell]))) for cell in pair.cells]
        label = _THINGS[pair.moved]
        moved_cells = [np.argwhere(cells == label)[0] for cells in labels]
        first, second = (int(row) * self.probe.frame + int(col) for row, col in moved_cells)
        return [((second, label), (first, label))]

    def _mean_key(self, change: tuple[int, int]) -> Any:
        return change[1] if self.site == "changed" else change


def _gradient(probe: Probe, cell: int, label: int) -> npt.NDArray[np.float64]:
    """Compute the gradient of a class score at a cell, ``[P * D]``, by the activations at P positions of width D."""
    act = probe.weights["act"].astype(np.float64).reshape(len(probe.mean), -1, len(CLASSES))
    factor = np.divide(1.0, probe.std, out=np.zeros(len(probe.std)), where=probe.std > 0)
    gradient: npt.NDArray[np.float64] = act[:, cell, label] * factor
    return gradient


def _features(source: Source, vectors: Vectors, grids: Sequence[str] | None = None) -> Features:
    count = len(vectors)
    names = np.array([f"row {row}" for row in range(count)], dtype=object)
    return Features(
        source=source,
        vectors=np.ascontiguousarray(vectors, dtype=np.float32),
        episode_id=names,
        step=np.zeros(count, dtype=np.int64),
        cluster=names if grids is None else np.array(list(grids), dtype=object),
    )


def fit_directions(
    site: Where, layer: int, model: str, states: ReadStates, activations: Sequence[Vectors], *, seed: int
) -> Directions:
    """Fit the directions for steering at one site and layer: a probe, a control probe, and mean activations per class.

    Args:
        site: token positions of the activations; "changed" and "grid" both mean the tokens of all cells.
        layer: number of the decoder block.
        model: content id of the model.
        states: the N grids shown to the agent.
        activations: N arrays ``[P, D]``, token positions by width.
        seed: root seed of shuffles and draws.

    Raises:
        ValueError: there are too few grids for a probe.
    """
    rng = stream(seed, "directions", site, layer)
    side = max(max(view.grid.height, view.grid.width) for view in states.views)
    maps = [label_grid(view.grid, max(view.grid.height, view.grid.width)) for view in states.views]
    if site in ("changed", "grid"):
        vectors, labels, grids = _tokens(maps, activations, states.clusters, rng)
    else:
        vectors = np.stack([activation.reshape(-1) for activation in activations])
        labels = np.stack([label_grid(view.grid, side).ravel() for view in states.views])
        grids = list(states.clusters)
    source = Source(site="grid" if site == "changed" else site, layer=layer, model=model, width=vectors.shape[1])
    features = _features(source, vectors, grids)
    shuffled_labels = labels[rng.permutation(len(labels))]
    keys = [
        ProbeKey(head="percell", target="cells", control=control, site=source.site, layer=layer)
        for control in ("none", "shuffled")
    ]
    settings = FitSettings(penalties=_PENALTIES, seed=seed)
    probe, shuffled = fit(
        [
            Problem(key=key, features=features, target=target)
            for key, target in zip(keys, (labels, shuffled_labels), strict=True)
        ],
        settings,
    )
    return Directions(site=site, layer=layer, probe=probe, shuffled=shuffled, means=_means(site, vectors, labels))


def kept_probes(run: Path, site: Where, layer: int, model: str, side: int) -> tuple[Probe, Probe]:
    """Load the linear probe of each cell that a run stores for a site and layer, and its control fitted to shuffled
    labels.

    Args:
        run: a run directory with such probes.
        site: token positions that the probe reads. Runs have probes at the sites "pre" and "post".
        layer: number of the decoder block.
        model: content id of the model.
        side: number of rows (and of columns) of the largest grid that the probe reads.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: there is no such probe, or only for another model, site or layer.
    """
    by_control: dict[str, Probe] = {}
    unfit: list[str] = []
    for stored, probe in stored_probes(run, head="percell", target="cells"):
        control = str(stored.tags.get("control"))
        source = probe.source
        if control not in ("none", "shuffled") or probe.frame < side:
            continue
        if (source.site, source.layer, source.model) != (site, layer, model):
            unfit.append(f"site {source.site}, layer {source.layer} of {source.model}")
        else:
            by_control.setdefault(control, probe)
    if set(by_control) != {"none", "shuffled"}:
        available = "; ".join(sorted(set(unfit))[:4]) or "none"
        raise ValueError(
            f"steering at site {site}, layer {layer} of {model} needs its per-cell probe and the probe of "
            f"shuffled labels in {run}, with a frame of at least {side} cells; that run has: {available}. "
            f"Fit them with goalscope probe {run} --reads cognitive-map --layers {layer} --full, or leave "
            "probes out"
        )
    return by_control["none"], by_control["shuffled"]


def _tokens(
    maps: Sequence[npt.NDArray[np.int8]],
    activations: Sequence[Vectors],
    clusters: Sequence[str],
    rng: np.random.Generator,
) -> tuple[Vectors, npt.NDArray[np.int64], list[str]]:
    """Draw N cell tokens with their classes ``[N, 1]``: per grid agent, goal, and a few open cells and walls."""
    vectors, labels, grids = [], [], []
    for cell_classes, activation, cluster in zip(maps, activations, clusters, strict=True):
        flat = cell_classes.ravel()
        for label in range(len(CLASSES) - 1):
            class_cells = np.flatnonzero(flat == label)
            chosen = rng.permutation(class_cells)[:4]
            vectors.append(activation[chosen])
            labels += [label] * len(chosen)
            grids += [cluster] * len(chosen)
    return np.concatenate(vectors), np.array(labels, dtype=np.int64)[:, None], grids


def _means(site: Where, vectors: Vectors, labels: npt.NDArray[Any]) -> dict[Any, tuple[npt.NDArray[np.float64], int]]:
    means: dict[Any, tuple[npt.NDArray[np.float64], int]] = {}
    if site in ("changed", "grid"):
        for label in np.unique(labels).tolist():
            members = vectors[labels[:, 0] == label].astype(np.float64)
            means[label] = members.mean(axis=0), len(members)
        return means
    for label in _THINGS.values():
        rows, cells = np.nonzero(labels == label)
        for cell in np.unique(cells).tolist():
            members = vectors[rows[cells == cell]].astype(np.float64)
            means[cell, label] = members.mean(axis=0), len(members)
    return means


STEERING: Final = "steering"
FLIPPED: Final = "its own probe flips"
STATED: Final = "position of the unmoved thing still stated"
"""Measures beside those of `goalscope.inside.interventions.reading`."""
_STEERED_AT_ONCE: Final = 8  # number of pairs whose changed prompts are in memory at a time


@intervention(STEERING)
class Steering(OnPairs):
    """Experiment that steers activations in one grid, as if the goal or the agent were in another cell.

    It uses counterfactual pairs: a grid, and a copy with one thing moved. A vector is added to the activations of the
    first grid that points towards those of the copy.

    Attributes:
        pairs: which pairs to use.
        sites: token positions at which to steer: the cells that differ ("changed"), the end of the prompt ("pre"), or
            after the reasoning ("post").
        layers: "thirds", "all", or a list of numbers of decoder blocks.
        doses: lengths of the vector, in units of the difference between the two grids' activations at the site.
        directions: how the direction of the vector is obtained, such as "probe" or "mean difference".
        random: number of random directions per pair, as controls.
        states: number of grids per size and density from which directions are learned; none of them is steered.
        probes: a run directory whose per-cell probes give the directions at "pre" and "post"; None to fit probes.
        seed: root seed.
    """

    headline: ClassVar[Headline] = (
        (FOLLOWS,),
        {"pairs": "counterfactual"},
        ("moved", "site", "layer", "direction", "dose"),
    )

    kind: Literal["steering"] = STEERING
    pairs: PairSettings = PairSettings()
    sites: tuple[Literal["changed", "pre", "post"], ...] = sequence(default=("changed", "pre"))
    layers: Layers = "thirds"
    doses: tuple[Annotated[float, Field(gt=0, le=1000)], ...] = sequence(default=(0.5, 1.0, 2.0, 4.0))
    directions: tuple[Direction, ...] = sequence(default=DIRECTIONS)
    random: int = Field(default=3, ge=1, le=1000)
    states: int = Field(default=12, ge=2, le=100_000)
    probes: str | None = None
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Steer the activations of all pairs of grids at each site and layer, and store the results with the run.

        Results that are stored already are not computed again.

        Returns:
            A summary that JSON can hold: settings, numbers of pairs, reasons for leaving pairs out, layers.
        """
        layers = layers_of(subject.model, self.layers)
        groups = [subject.pairs(self.pairs, control=control) for control in (False, True)]
        pairs = [pair for group in groups for pair in group.kept]
        views = fresh_views(pairs, count=self.states, seed=self.seed)
        states = cache(lambda: states_of(subject.agent, views, self.sites, max_tokens=self.max_tokens))
        site_layers = {f"{site} {layer}": (site, layer) for site in self.sites for layer in layers}
        subject.work(site_layers, lambda site, layer: steer(subject.agent, pairs, states(), self, site, layer))
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(groups[0].kept),
            "control pairs": len(groups[1].kept),
            "left out": [dict(group.left_out) for group in groups],
            "layers": list(layers),
            "grids that directions are learned from": len(views),
        }


def steer(
    agent: ChatAgent, pairs: Sequence[Pair], states: ReadStates, settings: Steering, site: Where, layer: int
) -> Rows:
    """Steer the activations of each pair's first grid towards its second, at one site and layer, and score the actions.

    Args:
        agent: the agent that the pairs were found with.
        pairs: pairs of grids that differ in the cell of one thing, and control pairs.
        states: grids that directions are learned from; no grid of the pairs is among them.
        settings: directions, doses (lengths of the added vector), seeds.
        site, layer: the token positions and the decoder block where the vector is added.

    Returns:
        Rows of results: shares of pairs in which the action fits the second grid, the first, or neither. Their tags are
        site, layer, direction, dose, moved, pairs, and those of the pairs. Intervals resample grids (their clusters).

    Raises:
        ValueError: a layer or site does not exist, or a probe belongs to another model, site or layer.
    """
    model = local_model(agent)
    probe_site: Site = "grid" if site == "changed" else site
    stored_probes = None
    if settings.probes is not None and site in ("pre", "post"):
        side = max(max(pair.sides[0].view.grid.walls.shape) for pair in pairs)
        stored_probes = kept_probes(Path(settings.probes), site, layer, model_id(model), side)
    activations = read_passages(model, states.passages[probe_site], layer)
    directions = fit_directions(site, layer, model_id(model), states, activations, seed=settings.seed)
    if stored_probes is not None:
        directions.probe.source.check_same(stored_probes[0].source)
        directions = replace(directions, probe=stored_probes[0], shuffled=stored_probes[1])

    def changes(pair: Pair, passage: Passage, first: Vectors, second: Vectors) -> list[tuple[_Plan, list[Edit]]]:
        plans = _planned(pair, directions, settings, first, second)
        return [(plan, added(passage, layer, plan.added)) for plan in plans]

    written = {id(pair): model.text(pair.sides[0].output) for pair in pairs}
    outcomes = acted(
        agent, pairs, (site, layer), changes, together=_STEERED_AT_ONCE, sides=2, max_tokens=settings.max_tokens
    )
    return averaged(
        row
        for pair, plan, answer in outcomes
        for row in pair_rows(
            pair,
            _effects(pair, directions, plan, answer, written[id(pair)]),
            site=site,
            layer=layer,
            direction=plan.kind,
            dose=plan.dose,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """A planned change: direction, dose, added vectors ``[P, D]`` at P positions of width D, and the result."""

    kind: str
    dose: float
    added: Vectors
    after: Vectors


def _planned(
    pair: Pair, directions: Directions, settings: Steering, first: Vectors, second: Vectors
) -> Iterator[_Plan]:
    difference = (second - first).astype(np.float64)
    rng = stream(settings.seed, "random directions", pair.id, directions.site, directions.layer)
    # Each changed cell is scaled by its own difference. Several tokens of one site are scaled by their joint
    # difference.
    axis: Any = -1 if directions.site in ("changed", "grid") else None
    size = np.linalg.norm(difference, axis=axis, keepdims=True)
    for kind in settings.directions:
        for _ in range(settings.random if kind == RANDOM else 1):
            direction: npt.NDArray[np.float64] | None
            if kind == RANDOM:
                direction = rng.standard_normal(difference.shape)
            else:
                direction = difference if kind == OWN else directions.vectors(kind, pair)
            if direction is None:
                continue
            norm = np.linalg.norm(direction, axis=axis, keepdims=True)
            unit = np.divide(direction, norm, out=np.zeros_like(direction), where=norm > 0)
            for dose in settings.doses:
                added = (dose * size * unit).astype(np.float32)
                yield _Plan(kind=kind, dose=float(dose), added=added, after=first + added)


def _effects(pair: Pair, directions: Directions, plan: _Plan, answer: Reply, before: str) -> dict[str, float]:
    values = {**effect(pair, answer), FLIPPED: float(directions.flips(pair, plan.after))}
    stated = _still_stated(pair, before, written_in(answer))
    return values if stated is None else {**values, STATED: float(stated)}


def _still_stated(pair: Pair, before: str, after: str) -> bool | None:
    """Return whether the text after the change still states the cell of the unmoved thing.

    None if no text before did.
    """
    grid = pair.sides[0].view.grid
    cell = grid.start if pair.moved == "goal" else grid.goal
    if cell is None:
        return None
    text = f"({cell[0]},{cell[1]})"
    return text in after.replace(" ", "") if text in before.replace(" ", "") else None


ABLATION: Final = "ablation"
AMNESIC: Final = "probe's directions"
RANDOM_SUBSPACE: Final = "random subspace"
READABLE: Final = "correlation"
RANK: Final = "rank"
"""Tags: correlation of prediction and truth on held-back grids before anything was removed; directions removed."""
_RIDGE: Final = 1e-3  # as a fraction of the mean variance of an input
_CHANCE_Z: Final = 1.96
_FLAT_STD: Final = 1e-6  # as a fraction of the standard deviation of the truth
_MIN_ROWS: Final = 20
_ABLATED_AT_ONCE: Final = 16
_OTHER_CELLS: Final = 6  # number of negatives drawn per grid

Thing = Literal["goal", "agent"]
SiteName = Literal["grid", "pre", "post"]
Array = npt.NDArray[np.float64]


@intervention(ABLATION)
class Ablation(OnPairs):
    """Experiment that removes from activations what linear probes read about the place of the goal or of the agent.

    It changes the first grid of each counterfactual pair (two grids that differ in one thing). At the cells of the
    grid, a probe distinguishes the thing's cell from all others; at other token positions it predicts the row and
    column of the thing. Directions that the probe uses are removed until the refitted probe is at chance on held-out
    grids.

    Attributes:
        things: the "goal", the "agent" or both, whose place the probes read.
        sites: token positions: the cells ("grid"), the end of the prompt ("pre"), or after the reasoning ("post").
        layers: "thirds", "all", or a list of numbers of decoder blocks.
        most: maximum number of directions to remove.
        random: number of random subspaces of the same rank that are removed as controls.
        states: number of grids per size and density from which directions are learned; none of them is tested.
        seed: root seed.
    """

    headline: ClassVar[Headline] = ((STAYS,), {}, ("moved", "thing", "site", "layer", "rank", "fallen", "subspace"))

    kind: Literal["ablation"] = ABLATION
    things: tuple[Thing, ...] = sequence(default=("goal", "agent"))
    sites: tuple[SiteName, ...] = sequence(default=("grid", "pre"))
    layers: Layers = "thirds"
    most: int = Field(default=48, ge=1, le=10_000)
    random: int = Field(default=3, ge=1, le=100)
    states: int = Field(default=12, ge=2, le=100_000)
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Ablate the activations of all pairs of grids at each site and layer, and store the results with the run.

        Results that are stored already are not computed again.

        Returns:
            A summary that JSON can hold: settings, number of pairs, reasons for leaving pairs out, layers.
        """
        layers = layers_of(subject.model, self.layers)
        pairs = subject.pairs(self.pairs)
        views = fresh_views(pairs.kept, count=self.states, seed=self.seed)
        states = cache(lambda: states_of(subject.agent, views, self.sites, max_tokens=self.max_tokens))
        combinations = [(thing, site, layer) for thing in self.things for site in self.sites for layer in layers]
        units = {f"{thing} {site} {layer}": (thing, site, layer) for thing, site, layer in combinations}
        subject.work(units, lambda *combination: ablate(subject.agent, pairs.kept, states(), self, *combination))
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(pairs.kept),
            "left out": dict(pairs.left_out),
            "layers": list(layers),
            "grids that directions are learned from": len(views),
        }


def ablate(
    agent: ChatAgent,
    pairs: Sequence[Pair],
    states: ReadStates,
    settings: Ablation,
    thing: Thing,
    site: SiteName,
    layer: int,
) -> Rows:
    """Remove what a probe reads from the activations of each pair's first grid, and score the agent's actions
    afterwards.

    Args:
        agent: the agent that the pairs were found with.
        pairs: pairs of grids that differ in the cell of one thing.
        states: grids from which directions are learned; they contain no grid of the pairs.
        settings: maximum number of directions, random subspaces, seeds.
        thing: what the probe reads: the place of the "goal" or of the "agent".
        site, layer: the token positions and the decoder block where activations are read and changed.

    Returns:
        Rows of results, with the tags of the pairs and thing, site, layer, rank (number of directions removed),
        correlation (of the probe's predictions with the truth before anything was removed), fallen (whether the
        refitted probe is at chance afterwards) and subspace (the probe's or a random one). Intervals resample grids
        (their clusters).

    Raises:
        ValueError: there are too few states to decide whether a probe is at chance.
    """
    model = local_model(agent)
    activations = read_passages(model, states.passages[site], layer)
    erased = erase(*_truth(states, activations, thing, site, settings.seed), max_rank=settings.most)
    rng = stream(settings.seed, "random subspaces", thing, site, layer)
    shape = (len(erased.mean), erased.rank)
    random_bases = [np.linalg.qr(rng.standard_normal(shape))[0] for _ in range(settings.random if erased.rank else 0)]
    subspaces = [(AMNESIC, erased.basis), *((RANDOM_SUBSPACE, basis) for basis in random_bases)]
    tags: dict[str, Tag] = {"thing": thing, "site": site, "layer": layer, RANK: erased.rank}
    tags |= {READABLE: round(erased.initial_correlation, 3), "fallen": erased.fallen}

    def changes(pair: Pair, passage: Passage, present: npt.NDArray[np.float32]) -> list[tuple[str, list[Edit]]]:
        return [(name, removal(passage, layer, basis, erased.mean, present)) for name, basis in subspaces]

    outcomes = acted(agent, pairs, (site, layer), changes, together=_ABLATED_AT_ONCE, max_tokens=settings.max_tokens)
    return averaged(
        row
        for pair, name, answer in outcomes
        for row in pair_rows(pair, {STAYS: effect(pair, answer)[STAYS]}, **tags, subspace=name)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Erased:
    """A subspace of activations whose removal leaves a linear predictor at chance, if `fallen` is true.

    Attributes:
        basis: ``[F, K]`` orthonormal directions: width of the activations by directions.
        mean: ``[F]`` mean activation.
        rank: number K of directions.
        initial_correlation: correlation of prediction and truth on held-out rows before any removal.
        final_correlation: correlation for the predictor that was fitted last.
        fallen: whether the final correlation is at chance, i.e. below 1.96 / sqrt(held-out rows - 3).
    """

    basis: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    rank: int
    initial_correlation: float
    final_correlation: float
    fallen: bool


def erase(vectors: Array, targets: Array, held_out: npt.NDArray[np.bool_], *, max_rank: int) -> Erased:
    """Remove the directions that a linear predictor can use, round by round, until it is at chance.

    Args:
        vectors: ``[N, F]`` activations: rows by width.
        targets: ``[N, T]`` numbers to predict.
        held_out: ``[N]`` whether each row is held out to score the predictor.
        max_rank: maximum number of directions.

    Returns:
        The subspace of removed directions. Each round removes at most T of them.

    Raises:
        ValueError: there are too few rows on either side of the split.
    """
    if min(int(held_out.sum()), int((~held_out).sum())) < _MIN_ROWS:
        raise ValueError(
            f"deciding whether a probe is at chance needs at least {_MIN_ROWS} rows for learning and as "
            f"many held out, got {int((~held_out).sum())} and {int(held_out.sum())}: increase states"
        )
    mean = vectors[~held_out].mean(axis=0)
    residual = vectors - mean
    basis = np.zeros((vectors.shape[1], 0))
    initial, score = math.nan, math.nan
    target_mean = targets[~held_out].mean(axis=0)
    centred = targets - target_mean
    chance = _CHANCE_Z / math.sqrt(max(1, int(held_out.sum()) - 3))
    # Relative to the variance before any removal, so that rounding errors along removed directions are not amplified.
    penalty = max(float((residual[~held_out] ** 2).mean()) * _RIDGE, 1e-12)
    while True:
        train = residual[~held_out]
        gram = train.T @ train / len(train) + penalty * np.eye(residual.shape[1])
        weights = np.linalg.solve(gram, train.T @ centred[~held_out] / len(train))
        score = _correlation(residual[held_out] @ weights, centred[held_out])
        initial = score if math.isnan(initial) else initial
        if score <= chance or basis.shape[1] >= max_rank:
            break
        covariance = train.T @ centred[~held_out]
        directions = np.linalg.qr(covariance - basis @ (basis.T @ covariance))[0][:, : max_rank - basis.shape[1]]
        basis = np.concatenate([basis, directions], axis=1)
        residual = residual - (residual @ directions) @ directions.T
    return Erased(
        basis=basis,
        mean=mean,
        rank=basis.shape[1],
        initial_correlation=initial,
        final_correlation=score,
        fallen=bool(score <= chance),
    )


def _correlation(predicted: Array, true: Array) -> float:
    """Compute the mean correlation between the columns of two arrays; 0 if predictions hardly vary."""
    correlations = []
    for predictions, truths in zip(predicted.T, true.T, strict=True):
        constant = predictions.std() <= _FLAT_STD * truths.std()
        scale = float(predictions.std() * truths.std())
        correlations.append(
            0.0 if constant else float(np.mean((predictions - predictions.mean()) * (truths - truths.mean())) / scale)
        )
    return float(np.mean(correlations))


def _truth(
    states: ReadStates, activations: Sequence[npt.NDArray[np.float32]], thing: Thing, site: SiteName, seed: int
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Return the activations, the targets of a probe, and a mask of held-out rows (those of a third of the grids)."""
    rng = stream(seed, "held-back grids", thing, site)
    clusters = list(dict.fromkeys(states.clusters))
    held_out_clusters = {clusters[index] for index in rng.permutation(len(clusters))[: max(1, len(clusters) // 3)]}
    vectors, targets, held_out = [], [], []
    for view, cluster, activation in zip(states.views, states.clusters, activations, strict=True):
        cell = view.grid.goal if thing == "goal" else view.grid.start
        assert cell is not None  # generated grids have both agent and goal
        if site == "grid":
            index = cell[0] * view.grid.width + cell[1]
            other_cells = rng.permutation(np.setdiff1d(np.arange(len(activation)), [index]))[:_OTHER_CELLS]
            vectors += [activation[index], *activation[other_cells]]
            targets += [[1.0], *[[0.0]] * len(other_cells)]
            held_out += [cluster in held_out_clusters] * (1 + len(other_cells))
        else:
            vectors.append(activation.reshape(-1))
            targets.append([float(cell[0]), float(cell[1])])
            held_out.append(cluster in held_out_clusters)
    return np.array(vectors, dtype=np.float64), np.array(targets, dtype=np.float64), np.array(held_out, dtype=bool)


def removal(passage: Passage, layer: int, basis: Array, mean: Array, present: npt.NDArray[np.float32]) -> list[Edit]:
    """Build the edits that remove a subspace from the activations of a prompt.

    The part of the activations that lies in the subspace is replaced by that of the mean activation.

    Args:
        passage: the prompt and the P token positions to change. At the sites "pre" and "post" they form one vector.
        layer: number of the decoder block.
        basis: ``[F, K]`` orthonormal directions of the subspace.
        mean: ``[F]`` mean activation.
        present: ``[P, D]`` the activations to change.

    Returns:
        The edits; none if the subspace has no direction.
    """
    if not basis.shape[1]:
        return []
    flat = present.astype(np.float64).reshape(-1, len(mean))
    return added(passage, layer, -((flat - mean) @ basis @ basis.T).reshape(present.shape))
