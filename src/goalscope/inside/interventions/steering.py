"""Steering, which adds a direction that represents another cell of goal or agent and tests whether the action follows.

A dose is the length of the added vector, in units of the difference between the two sides of the pair at the site,
because norms differ by site and layer. Dose 1 of the pair's own difference is a patch. The controls have the same
length: random directions, and the direction of a probe fitted to shuffled labels. The expected action follows from the
edited map.

At the tokens of cells, a direction represents a class of cells. It is added at the cell that becomes the goal and
subtracted at the cell that was the goal. Before and after the reasoning, a direction represents a position, as in
"goal at c" - "goal at b". A probe's direction is the gradient of a class score. A mean difference is the difference
between the mean activations of two classes.
"""

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
from goalscope.inside.activations.replay_target import model_id
from goalscope.inside.activations.sites import Site
from goalscope.inside.interventions.experiment import ExperimentSubject, Headline, OnPairs, PairSettings, intervention
from goalscope.inside.interventions.forward import Edit
from goalscope.inside.interventions.pairs import Pair, local_model
from goalscope.inside.interventions.reading import (
    FOLLOWS,
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
from goalscope.runs.kinds import sequence
from goalscope.runs.probing_config import Layers
from goalscope.stats.rows import Rows

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

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Directions:
    """Directions at one site and layer.

    Attributes:
        site, layer: origin of the activations.
        probe: probe of the class of a cell; `flips` applies it to steered states.
        shuffled: the same probe, fitted to the labels of other states.
        means: class, or (class, cell), -> mean activation ``[P * D]`` float64 and number of states.
    """

    site: Where
    layer: int
    probe: Probe
    shuffled: Probe
    means: Mapping[Any, tuple[npt.NDArray[np.float64], int]] = field(default_factory=dict)

    def vectors(self, kind: Direction, pair: Pair) -> npt.NDArray[np.float64] | None:
        """Return the vectors that turn the first side of a pair into the second, ``[P, D]`` of any length.

        None if a class or a cell has too few states, or if the moved thing has no class (a key).
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

    def flips(self, pair: Pair, steered: Array) -> bool:
        """Return whether the probe, given steered activations ``[P, D]`` of the first side of a pair, predicts the
        second side.
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


def _features(source: Source, vectors: Array, grids: Sequence[str] | None = None) -> Features:
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
    site: Where, layer: int, model: str, states: ReadStates, activations: Sequence[Array], *, seed: int
) -> Directions:
    """Fit the directions of one site and layer.

    Args:
        site: site of the activations; "changed" and "grid" both mean the tokens of all cells.
        layer: number of the block.
        model: content id of the model.
        states: N states.
        activations: ``[N]`` arrays ``[P, D]``.
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
    """Load a run's per-cell linear probe for a site and layer, and its control fitted to shuffled labels.

    Args:
        run: a run directory with such probes.
        site: site of the probe. Runs have probes at the sites pre and post.
        layer: number of the block.
        model: content id of the model.
        side: side of the largest grid.

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
    activations: Sequence[Array],
    clusters: Sequence[str],
    rng: np.random.Generator,
) -> tuple[Array, npt.NDArray[np.int64], list[str]]:
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


def _means(site: Where, vectors: Array, labels: npt.NDArray[Any]) -> dict[Any, tuple[npt.NDArray[np.float64], int]]:
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


KIND: Final = "steering"
FLIPPED: Final = "its own probe flips"
STATED: Final = "position of the unmoved thing still stated"
"""Measures beside those of `goalscope.inside.interventions.reading`."""
_PAIRS_AT_ONCE: Final = 8  # number of pairs whose changed prompts are in memory at a time


@intervention(KIND)
class Steering(OnPairs):
    """Experiment that adds directions for another cell of goal or agent to the original of each pair.

    `sites` are the cells that differ and the tokens before and after the reasoning. `layers` is thirds, all, or a list
    of numbers. `doses` are lengths in units of the difference between the pair's sides at the site. `random` is the
    number of random directions per pair. Directions are learned from `states` grids per size and density, none of
    which is steered. With `probes`, a run directory, the directions before and after the reasoning come from the
    per-cell probes of that run.
    """

    headline: ClassVar[Headline] = (
        (FOLLOWS,),
        {"pairs": "counterfactual"},
        ("moved", "site", "layer", "direction", "dose"),
    )

    kind: Literal["steering"] = KIND
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
        """Steer all pairs at each site and layer, skipping results that are already stored."""
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
    """Steer the first side of each pair towards its second at one site and layer.

    Args:
        agent: the agent that the pairs were found with.
        pairs: pairs and control pairs.
        states: states that directions are learned from; no grid of the pairs is among them.
        settings: directions, doses, seeds.
        site, layer: where the direction is added.

    Returns:
        Rows with the tags site, layer, direction, dose, moved, pairs, and those of the pairs; clusters are grids.

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

    def changes(pair: Pair, passage: Passage, first: Array, second: Array) -> list[tuple[_Plan, list[Edit]]]:
        plans = _planned(pair, directions, settings, first, second)
        return [(plan, added(passage, layer, plan.added)) for plan in plans]

    written = {id(pair): model.text(pair.sides[0].output) for pair in pairs}
    outcomes = acted(
        agent, pairs, (site, layer), changes, together=_PAIRS_AT_ONCE, sides=2, max_tokens=settings.max_tokens
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
    added: Array
    after: Array


def _planned(pair: Pair, directions: Directions, settings: Steering, first: Array, second: Array) -> Iterator[_Plan]:
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
