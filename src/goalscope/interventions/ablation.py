"""Ablation of what a probe reads: its directions are projected out until a refitted probe finds nothing; who suffers?

Each round removes the directions along which activations covary with the truth: without them no linear predictor has
anything to go by in the states that they are learned from. Only once the predictor that is fitted to what is left does
not correlate with the truth on held-back grids either has the information gone, linearly; before that a behaviour that
stays says nothing. Random subspaces of the same rank stand beside it: many directions hurt by themselves. What is
removed is set to the mean over the states that the directions are learned from.

Sources: Elazar et al. 2021, Amnesic probing; Ravfogel et al. 2020, Null it out (iterated projection); Haghighatkhah et
al. 2022, Better hit the nail on the head than beat around the bush (the covariance's direction in place of the
predictor's: as much is removed with fewer directions).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope.agents.chat import ChatAgent
from goalscope.interventions.edits import Edit
from goalscope.interventions.experiment import Headline, OnPairs, Subject, intervention
from goalscope.interventions.pairs import Pair, local_model
from goalscope.interventions.reading import (
    STAYS,
    Passage,
    States,
    acted,
    added,
    averaged,
    fresh_views,
    layers_of,
    pair_rows,
    read_passages,
    states_of,
)
from goalscope.rng import stream
from goalscope.rows import Rows, Tag
from goalscope.runs.kinds import sequence
from goalscope.runs.probing_config import Layers

KIND: Final = "ablation"
AMNESIC: Final = "probe's directions"
RANDOM: Final = "random subspace"
READABLE: Final = "correlation"
RANK: Final = "rank"
"""Tags: correlation of prediction and truth on held-back grids before anything was removed; directions removed."""
_RIDGE: Final = 1e-3  # of the mean variance of an input
_CHANCE: Final = 1.96
_FLAT: Final = 1e-6  # of the spread of the truth
_FEWEST: Final = 20  # rows
_PART: Final = 16
_TOKENS: Final = 6  # of other cells of each grid

Thing = Literal["goal", "agent"]
Place = Literal["grid", "pre", "post"]
Array = npt.NDArray[np.float64]


@intervention(KIND)
class Ablation(OnPairs):
    """What linear probes of goal or agent read, projected out at each site and layer of the original of each pair.

    At the cells of the grid a probe tells the thing's cell from all others, elsewhere it tells its row and column.
    Directions are removed until the refitted probe has fallen to chance on grids that are held back, `most` of them at
    most. They are learned from `states` grids of each size and density, none of them tested; `random` is the number of
    random subspaces of the same rank.
    """

    headline: ClassVar[Headline] = ((STAYS,), {}, ("thing", "site", "layer", "rank", "fallen", "subspace"))

    kind: Literal["ablation"] = KIND
    things: tuple[Thing, ...] = sequence(default=("goal", "agent"))
    sites: tuple[Place, ...] = sequence(default=("grid", "pre"))
    layers: Layers = "thirds"
    most: int = Field(default=48, ge=1, le=10_000)
    random: int = Field(default=3, ge=1, le=100)
    states: int = Field(default=12, ge=2, le=100_000)
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: Subject) -> Mapping[str, Any]:
        """Ablate at each place; what is stored is not done again."""
        layers = layers_of(subject.model, self.layers)
        pairs = subject.pairs(self.pairs)
        views = fresh_views(pairs.kept, count=self.states, seed=self.seed)
        states = cache(lambda: states_of(subject.agent, views, self.sites, max_tokens=self.max_tokens))
        places = [(thing, site, layer) for thing in self.things for site in self.sites for layer in layers]
        units = {f"{thing} {site} {layer}": (thing, site, layer) for thing, site, layer in places}
        subject.work(units, lambda *place: ablate(subject.agent, pairs.kept, states(), self, *place))
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
    states: States,
    settings: Ablation,
    thing: Thing,
    site: Place,
    layer: int,
) -> Rows:
    """Project out of the first side of each pair what a probe reads at one site and layer.

    Args:
        agent: the agent that the pairs were found with.
        pairs: the pairs.
        states: what directions are learned from; no grid of the pairs is among them.
        settings: most directions, random subspaces, seeds.
        thing: what the probe reads.
        site, layer: where.

    Returns:
        Rows with the tags thing, site, layer, rank, correlation, fallen, subspace, and those of the pairs; clusters
        are grids.

    Raises:
        ValueError: too few states to say of a probe that it is at chance.
    """
    model = local_model(agent)
    known = read_passages(model, states.passages[site], layer)
    erased = erase(*_truth(states, known, thing, site, settings.seed), most=settings.most)
    rng = stream(settings.seed, "random subspaces", thing, site, layer)
    shape = (len(erased.mean), erased.rank)
    drawn = [np.linalg.qr(rng.standard_normal(shape))[0] for _ in range(settings.random if erased.rank else 0)]
    subspaces = [(AMNESIC, erased.basis), *((RANDOM, one) for one in drawn)]
    tags: dict[str, Tag] = {"thing": thing, "site": site, "layer": layer, RANK: erased.rank}
    tags |= {READABLE: round(erased.readable, 3), "fallen": erased.fallen}

    def changes(pair: Pair, one: Passage, present: npt.NDArray[np.float32]) -> list[tuple[str, list[Edit]]]:
        return [(name, removal(one, layer, basis, erased.mean, present)) for name, basis in subspaces]

    done = acted(agent, pairs, (site, layer), changes, together=_PART, max_tokens=settings.max_tokens)
    return averaged(
        row
        for pair, name, said in done
        for row in pair_rows(pair, {STAYS: said.effect(pair)[STAYS]}, **tags, subspace=name)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Erased:
    """A subspace without which a linear predictor finds nothing.

    Attributes:
        basis: ``[F, K]`` orthonormal directions.
        mean: ``[F]`` what the activations are on average.
        rank: K.
        readable: correlation of prediction and truth on held-back rows before anything was removed.
        left: that of the predictor that was fitted last.
        fallen: whether that is at chance: below 1.96 / sqrt(rows - 3) of held-back rows.
    """

    basis: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    rank: int
    readable: float
    left: float
    fallen: bool


def erase(vectors: Array, targets: Array, held: npt.NDArray[np.bool_], *, most: int) -> Erased:
    """Return the directions that a linear predictor can use, removed round by round until it finds nothing.

    Args:
        vectors: ``[N, F]`` activations.
        targets: ``[N, T]`` numbers that are predicted.
        held: ``[N]`` which rows are held back to score the predictor.
        most: most directions.

    Returns:
        The subspace. With T targets each round removes at most T directions.

    Raises:
        ValueError: too few rows on either side.
    """
    if min(int(held.sum()), int((~held).sum())) < _FEWEST:
        raise ValueError(
            f"a probe must have at least {_FEWEST} rows to learn from, and as many held back, to be called at chance, "
            f"got {int((~held).sum())} and {int(held.sum())}: give more states"
        )
    mean = vectors[~held].mean(axis=0)
    left = vectors - mean
    basis = np.zeros((vectors.shape[1], 0))
    first, score = math.nan, math.nan
    level = targets[~held].mean(axis=0)
    wanted = targets - level
    chance = _CHANCE / math.sqrt(max(1, int(held.sum()) - 3))
    # In units of the whole: what rounding leaves of a direction that was removed is not amplified.
    penalty = max(float((left[~held] ** 2).mean()) * _RIDGE, 1e-12)
    while True:
        train = left[~held]
        gram = train.T @ train / len(train) + penalty * np.eye(left.shape[1])
        weights = np.linalg.solve(gram, train.T @ wanted[~held] / len(train))
        score = _correlation(left[held] @ weights, wanted[held])
        first = score if math.isnan(first) else first
        if score <= chance or basis.shape[1] >= most:
            break
        shared = train.T @ wanted[~held]
        fresh = np.linalg.qr(shared - basis @ (basis.T @ shared))[0][:, : most - basis.shape[1]]
        basis = np.concatenate([basis, fresh], axis=1)
        left = left - (left @ fresh) @ fresh.T
    return Erased(basis=basis, mean=mean, rank=basis.shape[1], readable=first, left=score, fallen=bool(score <= chance))


def _correlation(said: Array, true: Array) -> float:
    """Return the mean correlation of the columns of two arrays, 0 where what is said hardly varies."""
    found = []
    for mine, theirs in zip(said.T, true.T, strict=True):
        flat = mine.std() <= _FLAT * theirs.std()
        spread = float(mine.std() * theirs.std())
        found.append(0.0 if flat else float(np.mean((mine - mine.mean()) * (theirs - theirs.mean())) / spread))
    return float(np.mean(found))


def _truth(
    states: States, known: Sequence[npt.NDArray[np.float32]], thing: Thing, site: Place, seed: int
) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Return activations, what is to be read from them, and which rows are held back: a third of the grids."""
    rng = stream(seed, "held-back grids", thing, site)
    clusters = list(dict.fromkeys(states.clusters))
    out = {clusters[index] for index in rng.permutation(len(clusters))[: max(1, len(clusters) // 3)]}
    vectors, targets, held = [], [], []
    for view, cluster, activation in zip(states.views, states.clusters, known, strict=True):
        cell = view.grid.goal if thing == "goal" else view.grid.start
        assert cell is not None  # generated grids have both
        if site == "grid":
            own = cell[0] * view.grid.width + cell[1]
            others = rng.permutation(np.setdiff1d(np.arange(len(activation)), [own]))[:_TOKENS]
            vectors += [activation[own], *activation[others]]
            targets += [[1.0], *[[0.0]] * len(others)]
            held += [cluster in out] * (1 + len(others))
        else:
            vectors.append(activation.reshape(-1))
            targets.append([float(cell[0]), float(cell[1])])
            held.append(cluster in out)
    return np.array(vectors, dtype=np.float64), np.array(targets, dtype=np.float64), np.array(held, dtype=bool)


def removal(one: Passage, layer: int, basis: Array, mean: Array, present: npt.NDArray[np.float32]) -> list[Edit]:
    """Return the edits of prompt 0 that set a subspace to its mean; those of `pre` or `post` are one vector."""
    if not basis.shape[1]:
        return []
    flat = present.astype(np.float64).reshape(-1, len(mean))
    return added(one, layer, -((flat - mean) @ basis @ basis.T).reshape(present.shape))
