"""Ablation of the information that a probe reads, by projecting out directions until a refitted probe is at chance.

Each round removes the directions along which activations covary with the truth. In the states used for learning, no
linear predictor has any information without them. The information counts as removed once a predictor refitted to the
residual does not correlate with the truth on held-out grids; before that, unchanged behaviour is no evidence. Random
subspaces of the same rank are the control, because removing many directions does harm by itself. The removed component
is set to its mean over the states used for learning.

Sources: Elazar et al. 2021, Amnesic probing; Ravfogel et al. 2020, Null it out (iterated projection); Haghighatkhah et
al. 2022, Better hit the nail on the head than beat around the bush (using the direction of the covariance instead of
the predictor's removes as much with fewer directions).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.rng import stream
from goalscope.agents.chat import ChatAgent
from goalscope.inside.interventions.experiment import ExperimentSubject, Headline, OnPairs, intervention
from goalscope.inside.interventions.forward import Edit
from goalscope.inside.interventions.pairs import Pair, local_model
from goalscope.inside.interventions.reading import (
    STAYS,
    Passage,
    ReadStates,
    acted,
    added,
    averaged,
    effect,
    fresh_views,
    layers_of,
    pair_rows,
    read_passages,
    states_of,
)
from goalscope.runs.kinds import sequence
from goalscope.runs.probing_config import Layers
from goalscope.stats.rows import Rows, Tag

KIND: Final = "ablation"
AMNESIC: Final = "probe's directions"
RANDOM: Final = "random subspace"
READABLE: Final = "correlation"
RANK: Final = "rank"
"""Tags: correlation of prediction and truth on held-back grids before anything was removed; directions removed."""
_RIDGE: Final = 1e-3  # as a fraction of the mean variance of an input
_CHANCE_Z: Final = 1.96
_FLAT_STD: Final = 1e-6  # as a fraction of the standard deviation of the truth
_MIN_ROWS: Final = 20
_PAIRS_AT_ONCE: Final = 16
_OTHER_CELLS: Final = 6  # number of negatives drawn per grid

Thing = Literal["goal", "agent"]
SiteName = Literal["grid", "pre", "post"]
Array = npt.NDArray[np.float64]


@intervention(KIND)
class Ablation(OnPairs):
    """Experiment that removes what linear probes of goal or agent read, in the original of each pair.

    At the cells of the grid, a probe distinguishes the thing's cell from all others; at other sites it predicts the
    row and column of the thing. At most `most` directions are removed, until the refitted probe is at chance on
    held-out grids. They are learned from `states` grids per size and density, none of which is tested. `random` is the
    number of random control subspaces of the same rank.
    """

    headline: ClassVar[Headline] = ((STAYS,), {}, ("moved", "thing", "site", "layer", "rank", "fallen", "subspace"))

    kind: Literal["ablation"] = KIND
    things: tuple[Thing, ...] = sequence(default=("goal", "agent"))
    sites: tuple[SiteName, ...] = sequence(default=("grid", "pre"))
    layers: Layers = "thirds"
    most: int = Field(default=48, ge=1, le=10_000)
    random: int = Field(default=3, ge=1, le=100)
    states: int = Field(default=12, ge=2, le=100_000)
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Ablate at each site and layer, skipping results that are already stored."""
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
    """Project what a probe reads out of the activations of each pair's first side, at one site and layer.

    Args:
        agent: the agent that the pairs were found with.
        pairs: the pairs.
        states: states from which directions are learned; they contain no grid of the pairs.
        settings: maximum number of directions, random subspaces, seeds.
        thing: what the probe reads.
        site, layer: where the activations are read and changed.

    Returns:
        Rows with the tags thing, site, layer, rank, correlation, fallen, subspace, and those of the pairs; clusters
        are grids.

    Raises:
        ValueError: there are too few states to decide whether a probe is at chance.
    """
    model = local_model(agent)
    activations = read_passages(model, states.passages[site], layer)
    erased = erase(*_truth(states, activations, thing, site, settings.seed), max_rank=settings.most)
    rng = stream(settings.seed, "random subspaces", thing, site, layer)
    shape = (len(erased.mean), erased.rank)
    random_bases = [np.linalg.qr(rng.standard_normal(shape))[0] for _ in range(settings.random if erased.rank else 0)]
    subspaces = [(AMNESIC, erased.basis), *((RANDOM, basis) for basis in random_bases)]
    tags: dict[str, Tag] = {"thing": thing, "site": site, "layer": layer, RANK: erased.rank}
    tags |= {READABLE: round(erased.initial_correlation, 3), "fallen": erased.fallen}

    def changes(pair: Pair, passage: Passage, present: npt.NDArray[np.float32]) -> list[tuple[str, list[Edit]]]:
        return [(name, removal(passage, layer, basis, erased.mean, present)) for name, basis in subspaces]

    outcomes = acted(agent, pairs, (site, layer), changes, together=_PAIRS_AT_ONCE, max_tokens=settings.max_tokens)
    return averaged(
        row
        for pair, name, answer in outcomes
        for row in pair_rows(pair, {STAYS: effect(pair, answer)[STAYS]}, **tags, subspace=name)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Erased:
    """Subspace whose removal leaves a linear predictor at chance.

    Attributes:
        basis: ``[F, K]`` orthonormal directions.
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
        vectors: ``[N, F]`` activations.
        targets: ``[N, T]`` numbers to predict.
        held_out: ``[N]`` whether each row is held out to score the predictor.
        max_rank: maximum number of directions.

    Returns:
        The subspace. Each round removes at most T directions.

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
    """Return the edits of prompt 0 that replace the part of its activations within a subspace by the mean. At `pre` and
    `post`, all tokens form one vector.
    """
    if not basis.shape[1]:
        return []
    flat = present.astype(np.float64).reshape(-1, len(mean))
    return added(passage, layer, -((flat - mean) @ basis @ basis.T).reshape(present.shape))
