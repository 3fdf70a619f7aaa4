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
from functools import lru_cache
from typing import Any, Final

import numpy as np

from goalscope._ground.folder import package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.goals.attribution.by_arrival import arrivals, first_shares
from goalscope.goals.attribution.claim import NONE_OF_PLACES, KindPrediction, Trust
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.doubts import Doubt
from goalscope.goals.prediction.kinds import acting_states, places_in, with_none
from goalscope.goals.prediction.predictor import Predictor, actions_of, best_alone

SLACK: Final = 0.02
"""Scale of a share on which all draws agree."""
MISFIT: Final = 0.1
"""Scale that a held-out distance of 1 adds."""

BASELINES: Final = ("one rule", "as seen", "optimal", "random")
"""Other predictions: the most probable rule alone, the shares in the worlds seen, an optimal agent, random moves."""

_LEAST: Final = 1e-12  # least probability whose logarithm is taken
_DIGITS: Final = 4  # of the probabilities in a claim


@lru_cache(maxsize=1)
def calibration() -> tuple[float, Mapping[Trust, float]]:
    """Return the greatest held-out distance that is trusted, and the multiple of the scale by trust."""
    values = read_yaml_text(package_text(__package__, "calibration.yaml"), "calibration.yaml")
    return float(values["distance"]), {name: float(value) for name, value in values["width"].items()}


def _nats_of(world: FiniteWorld, moves: Array) -> float:
    """Return the expected log probability of an action of an agent that acts by a policy, in nats per action."""
    mass, total, count = world.process.start, 0.0, 0.0
    logs = np.where(moves > 0, moves * np.log(np.maximum(moves, _LEAST)), 0.0).sum(axis=1)
    for _ in range(world.horizon):
        mass = np.where(world.live, mass, 0.0)
        total, count = total + float(mass @ logs), count + float(mass.sum())
        mass = world.process.base.flow(mass[:, None] * moves)
    return total / max(count, _LEAST)


def trust_of(distance: float | None) -> Trust:
    """Return how far a held-out distance lets one trust predictions; without one, poorly."""
    return "good" if distance is not None and distance <= calibration()[0] else "poor"


def expect(
    predictor: Predictor, unseen: Mapping[str, Sequence[FiniteWorld]], doubts: Sequence[Doubt]
) -> tuple[KindPrediction, ...]:
    """Predict the agent of a predictor in kinds of unseen worlds; `doubts` are those about these worlds.

    Raises:
        ValueError: a world has other actions than the worlds seen.
    """
    for kind, worlds in unseen.items():
        for names in map(actions_of, worlds):
            if names != predictor.actions:
                raise ValueError(
                    f"the worlds of the kind {kind!r} must have the actions of the worlds seen, "
                    f"{', '.join(predictor.actions)}, got {', '.join(names)}: nothing seen says what the agent does "
                    "with other actions, so leave this kind out"
                )
    doubtful = {kind for doubt in doubts for kind in doubt.kinds}
    seen = [with_none(first_shares(a, places_in(a.world, predictor.places))) for a in predictor.answers]
    as_seen = np.average(seen, axis=0, weights=[len(answers.last) for answers in predictor.answers])
    return tuple(_expect(predictor, kind, worlds, kind in doubtful, as_seen) for kind, worlds in unseen.items())


def _expect(
    predictor: Predictor, kind: str, worlds: Sequence[FiniteWorld], doubtful: bool, as_seen: Array
) -> KindPrediction:
    alone, places = best_alone(predictor), [*(place.text for place in predictor.places), NONE_OF_PLACES]
    foreseen = [predictor.foresee(world) for world in worlds]
    by_draw = np.mean([world.reached for world in foreseen], axis=0)  # [B, K + 1]
    shares = by_draw.mean(axis=0)
    misfit = 1.0 if predictor.distance is None else min(max(predictor.distance, 0.0), 1.0)
    scales = by_draw.std(axis=0) + SLACK + MISFIT * np.sqrt(misfit)
    trust: Trust = "poor" if doubtful else trust_of(predictor.distance)
    half = calibration()[1][trust] * scales
    ends = np.stack([shares, np.maximum(shares - half, 0.0), np.minimum(shares + half, 1.0)], axis=1)
    baselines = {
        "one rule": np.concatenate([predictor.foresee(world, alone).reached for world in worlds]),
        "as seen": np.tile(as_seen, (len(worlds), 1)),
        **{
            name: np.array([predictor.tables.once(_of_rule, world, predictor.places, rule) for world in worlds])
            for name, rule in (("optimal", "goal"), ("random", "random"))
        },
    }
    return KindPrediction(
        kind=kind,
        worlds=tuple(world.world.id for world in worlds),
        trust=trust,
        shares=dict(zip(places, _rounded(ends), strict=True)),
        scales=dict(zip(places, scales.round(_DIGITS).tolist(), strict=True)),
        nats=float(np.mean([_nats_of(world, moves.moves) for world, moves in zip(worlds, foreseen, strict=True)])),
        chances=_rounded(np.array([world.reached.mean(axis=0) for world in foreseen])),
        moves=tuple(_rounded(moves.moves[acting_states(world)]) for world, moves in zip(worlds, foreseen, strict=True)),
        baselines={name: _rounded(chances) for name, chances in baselines.items()},
    )


def _rounded(rows: Array) -> Any:
    return tuple(map(tuple, np.clip(rows, 0.0, 1.0).round(_DIGITS).tolist()))


def _of_rule(world: FiniteWorld, places: Sequence[Hypothesis], rule: str) -> Array:
    try:
        policy = parse(rule).solved(world).policy
    except Undefined:
        policy = world.even[None]
    return np.asarray(with_none(arrivals(world, places_in(world, places), policy[None]))[0])
