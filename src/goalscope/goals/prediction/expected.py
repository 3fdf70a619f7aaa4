"""What is expected of an agent in unseen kinds of worlds: which places it reaches first, and how far to trust that.

The interval of a share is the share plus and minus a multiple of its *scale*: the standard deviation over draws from
the posterior, plus `SLACK`, plus `MISFIT` times the root of the held-out distance. The multiples, one where the
prediction is trusted and one elsewhere, were chosen on agents of known behaviour such that nine of ten intervals hold
the true share.
*Trust* is good if two things hold: predictions in worlds that were left out of the fit come close to the agent's own
probabilities, and nothing that the data cannot decide matters in the kind (`goalscope.goals.prediction.doubts`).

Source: Lei et al. (2018), Distribution-free predictive inference for regression, section 5.2 (locally weighted
conformal intervals), here over agents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from goalscope._ground.folder import package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.goals.attribution.by_arrival import arrivals
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.doubts import Doubt, doubts_about
from goalscope.goals.prediction.kinds import UnseenWorlds, places_in
from goalscope.goals.prediction.predictor import Foreseen, Predictor, best_alone, with_none

Trust = Literal["good", "poor"]

SLACK: Final = 0.02
"""Scale of a share on which all draws agree."""
MISFIT: Final = 0.1
"""Scale that a held-out distance of 1 adds."""

LEAST: Final = 1e-12
"""Least probability whose logarithm is taken."""

NONE: Final = "none"
"""Name of the outcome that no place is reached."""

BASELINES: Final = ("one rule", "as seen", "optimal", "random")
"""Other predictions: the most probable rule alone, the shares in the worlds seen, an optimal agent, random moves."""


@lru_cache(maxsize=1)
def calibration() -> tuple[float, Mapping[Trust, float]]:
    """Return the greatest held-out distance that is trusted, and the multiple of the scale by trust."""
    values = read_yaml_text(package_text(__package__, "calibration.yaml"), "calibration.yaml")
    return float(values["distance"]), {name: float(value) for name, value in values["width"].items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpectedKind:
    """What is expected in one kind of W worlds.

    Attributes:
        unseen: the worlds.
        foreseen: the prediction in each world, of B draws and K places.
        trust: how far to trust it.
        distance: held-out distance of the agent; None without second answers.
        baselines: one of `BASELINES` -> ``[W, K + 1]`` its probabilities.
    """

    unseen: UnseenWorlds
    foreseen: Sequence[Foreseen]
    trust: Trust
    distance: float | None
    baselines: Mapping[str, Array]

    @property
    def chances(self) -> Array:
        """``[W, K + 1]`` probabilities in each world."""
        return np.array([world.reached.mean(axis=0) for world in self.foreseen])

    @property
    def shares(self) -> Array:
        """``[K + 1]`` shares of the worlds."""
        return np.asarray(self.chances.mean(axis=0))

    @property
    def scale(self) -> Array:
        """``[K + 1]`` scale of the intervals."""
        by_draw = np.mean([world.reached for world in self.foreseen], axis=0)
        misfit = 1.0 if self.distance is None else min(max(self.distance, 0.0), 1.0)
        return np.asarray(by_draw.std(axis=0) + SLACK + MISFIT * np.sqrt(misfit))

    @property
    def ends(self) -> tuple[Array, Array]:
        """``[K + 1]`` lower and upper ends of the 90 % intervals of the shares."""
        half = calibration()[1][self.trust] * self.scale
        return np.maximum(self.shares - half, 0.0), np.minimum(self.shares + half, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """What is expected of an agent in unseen worlds.

    Attributes:
        places: names of the K places, and `NONE`.
        weights: name of a rule or fall-back -> its weight, the largest first.
        distance: held-out distance; None without second answers.
        doubts: what the data cannot decide.
        kinds: what is expected in each kind.
    """

    places: tuple[str, ...]
    weights: Mapping[str, float]
    distance: float | None
    doubts: Sequence[Doubt]
    kinds: Sequence[ExpectedKind]

    @property
    def trust(self) -> Trust:
        """Whether predictions come close in held-out worlds of the kinds that were seen."""
        return trust_of(self.distance)


def nats_of(world: FiniteWorld, moves: Array) -> float:
    """Return the expected log probability of an action of an agent that acts by a policy, in nats per action."""
    mass, total, count = world.process.start, 0.0, 0.0
    logs = np.where(moves > 0, moves * np.log(np.maximum(moves, LEAST)), 0.0).sum(axis=1)
    for _ in range(world.horizon):
        mass = np.where(world.live, mass, 0.0)
        total, count = total + float(mass @ logs), count + float(mass.sum())
        mass = world.process.base.flow(mass[:, None] * moves)
    return total / max(count, LEAST)


def trust_of(distance: float | None) -> Trust:
    """Return how far a held-out distance lets one trust predictions; without one, poorly."""
    return "good" if distance is not None and distance <= calibration()[0] else "poor"


def expect(predictor: Predictor, unseen: Sequence[UnseenWorlds]) -> Expected:
    """Predict the agent of a predictor in unseen worlds."""
    distance = predictor.distance if predictor.twice else None
    doubts = doubts_about(predictor, unseen)
    doubtful = {kind for doubt in doubts for kind in doubt.kinds}
    alone, seen = best_alone(predictor), _as_seen(predictor)
    return Expected(
        places=(*(place.text for place in predictor.places), NONE),
        weights=predictor.weights,
        distance=distance,
        doubts=doubts,
        kinds=[
            ExpectedKind(
                unseen=kind,
                foreseen=[predictor.foresee(world) for world in kind.worlds],
                trust="poor" if kind.kind in doubtful else trust_of(distance),
                distance=distance,
                baselines={
                    "one rule": np.concatenate([predictor.foresee(world, alone).reached for world in kind.worlds]),
                    "as seen": np.tile(seen, (len(kind.worlds), 1)),
                    **{
                        name: np.array(
                            [predictor.tables.once(_of_rule, w, predictor.places, rule) for w in kind.worlds]
                        )
                        for name, rule in (("optimal", "goal"), ("random", "random"))
                    },
                },
            )
            for kind in unseen
        ],
    )


def divergence(true: Array, predicted: Array) -> Array:
    """Return the divergence (KL) of predicted shares from true ones over the last axis, in nats.

    Predictions are mixed with 1 % of equal shares, so that no single outcome is infinitely surprising.
    """
    floored = 0.99 * predicted + 0.01 / predicted.shape[-1]
    return np.asarray(np.where(true > 0, true * np.log(np.maximum(true, LEAST) / floored), 0.0).sum(axis=-1))


def _of_rule(world: FiniteWorld, places: Sequence[Hypothesis], rule: str) -> Array:
    try:
        policy = parse(rule).solved(world).policy
    except Undefined:
        policy = world.even[None]
    return np.asarray(with_none(arrivals(world, places_in(world, places), policy[None]))[0])


def _as_seen(predictor: Predictor) -> Array:
    """Return the shares of places reached first in the episodes that were seen, ``[K + 1]``."""
    return np.asarray(np.mean([first_place(e.world, e.walk, predictor.places) for e in predictor.episodes], axis=0))


def first_place(world: FiniteWorld, walk: Sequence[int], places: Sequence[Hypothesis]) -> Array:
    """Return which place a walk over states reaches first, one-hot ``[K + 1]``; the last entry is none."""
    hits = places_in(world, places)[:, list(walk)]
    first = int(hits[:, hits.any(axis=0).argmax()].argmax()) if hits.any() else len(places)
    return np.asarray(np.eye(len(places) + 1)[first])
