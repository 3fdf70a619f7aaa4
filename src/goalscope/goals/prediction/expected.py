"""What is expected of an agent in unseen kinds of worlds: which places it reaches first, and how far to trust that.

Doubts say what the worlds that were seen cannot decide about those that were not, before anybody looks there.

The interval of a share is the share plus and minus a multiple of its *scale*: the standard deviation over draws from
the posterior, plus `SLACK`, plus `MISFIT` times the root of the held-out distance. The multiples, one where the
prediction is trusted and one elsewhere, were chosen on agents of known behaviour such that nine of ten intervals hold
the true share.
*Trust* is good if two things hold: predictions in worlds that were left out of the fit come close to the agent's own
probabilities, and no doubt concerns the kind.

Source: Lei et al. (2018), Distribution-free predictive inference for regression, section 5.2 (locally weighted
conformal intervals), here over agents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

import numpy as np

from goalscope._ground.folder import package_text
from goalscope._ground.words import Catalogue, counted
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.goals.attribution.claim import NONE_OF_PLACES, FrozenClaim, KindPrediction, PredictionScore, Trust
from goalscope.goals.hypotheses.definition import (
    FAR,
    Array,
    FiniteWorld,
    Hypothesis,
    Undefined,
    arrivals,
    distributions,
    policy_or_even,
)
from goalscope.goals.hypotheses.states import first_shares
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.kinds import acting_states, places_in, with_none
from goalscope.goals.prediction.predictor import Predictor, actions_of, best_alone

TEXTS: Final = Catalogue.of_package("goalscope.goals.prediction")
"""The sentences on predictions."""

_COMPARED: Final = 8  # worlds of a kind in which rules are compared
_MOST_RIVALS: Final = 3
_MATTERS: Final = 0.05  # weight of a rule whose rivals matter


SLACK: Final = 0.02
"""Scale of a share on which all draws agree."""
MISFIT: Final = 0.1
"""Scale that a held-out distance of 1 adds."""
BASELINES: Final = ("one rule", "as seen", "optimal", "random")
"""Other predictions: the most probable rule alone, the shares in the worlds seen, an optimal agent, random moves."""
_LEAST: Final = 1e-12  # least probability whose logarithm is taken
_DIGITS: Final = 4  # of the probabilities in a claim
_MENTIONED: Final = 0.05  # share of a place that a sentence mentions


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A question about an agent in unseen worlds that its recorded answers cannot decide.

    Attributes:
        kinds: names of the kinds of worlds where it matters.
        sentence: the question in words, for the reader.
    """

    kinds: tuple[str, ...]
    sentence: str


def doubts_about(predictor: Predictor, unseen: Mapping[str, Sequence[FiniteWorld]]) -> list[Doubt]:
    """Return what the answers that a prediction is based on cannot decide about an agent in unseen worlds.

    Examples are rules that no answer tells apart, larger grids, and objects that no seen world has.

    Args:
        predictor: the prediction, with the agent's answers.
        unseen: name of a kind of worlds -> its worlds.
    """
    seen = list({episode.visits.world.world.id: episode.visits.world for episode in predictor.episodes}.values())
    return [
        *_rules(predictor, unseen),
        *_places(predictor.places, seen, unseen),
        *_objects(seen, unseen),
        *_sizes(seen, unseen),
        *_distances(seen, unseen),
    ]


def _doubt(key: str, kinds: Sequence[str], **fields: str | int) -> Iterator[Doubt]:
    if kinds:
        yield Doubt(kinds=tuple(kinds), sentence=TEXTS(f"doubts/{key}", kinds=", ".join(kinds), **fields))


def _rules(predictor: Predictor, unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    """Yield what is open about the main rule: rules that act alike wherever the agent was, and undefined worlds."""
    rules = {rule.text: rule for rule in predictor.rules}
    main = next((name for name, weight in predictor.weights.items() if name in rules and weight >= _MATTERS), None)
    if main is None:
        return
    undefined = [
        kind
        for kind, worlds in unseen.items()
        if not all(predictor.tables.of(world, rules[main]).defined for world in worlds)
    ]
    yield from _doubt("undefined", undefined, main=main)
    number = list(rules).index(main)
    alike = np.ones(len(rules), dtype=bool)
    for episode in predictor.episodes:
        policies, _ = predictor.rules_at(episode.visits)
        alike &= (np.abs(policies - policies[number]) < 1e-9).all(axis=(1, 2, 3))
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    for rival, like in zip(rules.values(), alike.tolist(), strict=True):
        if like and rival.text != main:
            kinds = (
                kind for kind, worlds in unseen.items() if _differ(predictor, rules[main], rival, worlds[:_COMPARED])
            )
            by_kinds.setdefault(tuple(kinds), []).append(rival.text)
    for kinds_of_rivals, texts in by_kinds.items():
        more = f" and {counted(len(texts) - _MOST_RIVALS, 'further rule')}" if len(texts) > _MOST_RIVALS else ""
        rivals = ", ".join(f"“{text}”" for text in texts[:_MOST_RIVALS]) + more
        yield from _doubt("alike", kinds_of_rivals, main=main, rivals=rivals)


def _differ(predictor: Predictor, first: Hypothesis, second: Hypothesis, worlds: Sequence[FiniteWorld]) -> bool:
    """Return whether two rules call for different moves in a state that can be reached in some of the worlds."""
    for world in worlds:
        states = acting_states(world)
        policies = [predictor.tables.of(world, rule).policies[0, 0, states] for rule in (first, second)]
        if np.abs(policies[0] - policies[1]).max(initial=0.0) > 1e-9:
            return True
    return False


def _places(
    places: Sequence[Hypothesis], seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]
) -> Iterator[Doubt]:
    """Yield pairs of places that were the same states in all worlds that were seen, and are not elsewhere."""
    for first, second in combinations(places, 2):
        if all(_coincide(world, first, second) for world in seen):
            kinds = [
                kind for kind, worlds in unseen.items() if not all(_coincide(world, first, second) for world in worlds)
            ]
            yield from _doubt("coincide", kinds, first=first.text, second=second.text)


def _coincide(world: FiniteWorld, first: Hypothesis, second: Hypothesis) -> bool:
    try:
        return bool((first.where(world) == second.where(world)).all())
    except Undefined:
        return False


def _objects(seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    for name in ("key", "door"):
        before = {_has(world, name) for world in seen}
        kinds = [kind for kind, worlds in unseen.items() if {_has(world, name) for world in worlds} - before]
        yield from _doubt("always" if True in before else "never", kinds, name=name)


def _has(world: FiniteWorld, name: str) -> bool:
    return "grid" in world.world.offers and world.grid.objects[name] is not None


def _sizes(seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    before = _sizes_of(seen)
    kinds = [
        kind
        for kind, worlds in unseen.items()
        if before and any(not min(before) <= size <= max(before) for size in _sizes_of(worlds))
    ]
    yield from _doubt("sizes", kinds)


def _sizes_of(worlds: Sequence[FiniteWorld]) -> list[int]:
    return [world.grid.walls.size for world in worlds if "grid" in world.world.offers]


def _distances(seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    most = max((_steps_to_goal(world) for world in seen), default=0)
    kinds = [kind for kind, worlds in unseen.items() if np.median([*map(_steps_to_goal, worlds)]) > most > 0]
    yield from _doubt("distances", kinds, most=most)


def _steps_to_goal(world: FiniteWorld) -> int:
    try:
        steps = world.steps_to(parse("goal").where(world))[world.process.start > 0]
    except Undefined:
        return 0
    shortest = int(steps.min(initial=FAR))
    return shortest if shortest < FAR else 0


@lru_cache(maxsize=1)
def calibration() -> tuple[float, Mapping[Trust, float]]:
    """Return two constants of predictions that were calibrated on agents of known behaviour.

    Returns:
        The greatest distance (mean squared distance of predicted action probabilities from the agent's own) at which a
        prediction is trusted; and for each degree of trust ("good", "poor"), the half-width of intervals as a multiple
        of their scale.
    """
    values = read_yaml_text(package_text(__package__, "calibration.yaml"), "calibration.yaml")
    return float(values["distance"]), {name: float(value) for name, value in values["width"].items()}


def _nats_of(world: FiniteWorld, moves: Array) -> float:
    """Return the expected log probability of an action of an agent that acts by a policy, in nats per action."""
    logs = np.where(moves > 0, moves * np.log(np.maximum(moves, _LEAST)), 0.0).sum(axis=1)
    *decided, _ = distributions(world, moves)
    acting = [np.where(world.live, mass, 0.0) for mass in decided]
    return sum(float(mass @ logs) for mass in acting) / max(sum(float(mass.sum()) for mass in acting), _LEAST)


def trust_of(distance: float | None) -> Trust:
    """Return how far to trust a prediction: "good" or "poor".

    Args:
        distance: mean squared distance of predictions from the agent's own probabilities in worlds left out of the fit;
            None if unknown, which gives "poor".
    """
    return "good" if distance is not None and distance <= calibration()[0] else "poor"


def expect(
    predictor: Predictor, unseen: Mapping[str, Sequence[FiniteWorld]], doubts: Sequence[Doubt]
) -> tuple[KindPrediction, ...]:
    """Predict how an agent acts in each kind of unseen worlds, and which places it reaches first.

    Args:
        predictor: the prediction, fitted to the agent's answers.
        unseen: name of a kind of worlds -> its worlds.
        doubts: from `doubts_about` for the same worlds; they lower the trust in a kind.

    Returns:
        One entry for each kind of worlds: the shares of worlds in which each place is reached first, with intervals,
        and the action probabilities in each world.

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
    policy = policy_or_even(parse(rule), world)
    return np.asarray(with_none(arrivals(world, places_in(world, places), policy[None]))[0])


def say_expected(claim: FrozenClaim) -> Iterator[str]:
    """Yield sentences on a prediction: what is expected in each kind of worlds, how far to trust it, and what is in
    doubt.
    """
    for kind in claim.kinds:
        shares = sorted(kind.shares.items(), key=lambda item: -item[1][0])
        places = [
            TEXTS("expected/place", place=place, **_ends(*ends))
            for place, ends in shares
            if ends[0] >= _MENTIONED or place == shares[0][0]
        ]
        yield TEXTS("expected/kind", kind=kind.kind, places=", ".join(places), trust=kind.trust)
    if claim.distance is None:
        yield TEXTS("expected/trust unknown")
    else:
        yield TEXTS(f"expected/trust {claim.trust}", distance=f"{max(claim.distance, 0.0):.2f}")
    weights = ", ".join(f"“{name}” {weight:.0%}" for name, weight in claim.weights.items())
    yield TEXTS("expected/weights", weights=weights)
    for doubt in claim.doubts:
        yield TEXTS("expected/doubt", doubt=doubt)


def say_seen(claim: FrozenClaim, scores: Sequence[PredictionScore], missing: Mapping[str, int]) -> Iterator[str]:
    """Yield sentences on the test of a prediction: for each kind of worlds, whether what happened lay in its interval.

    Args:
        claim: the prediction.
        scores: its scores in the kinds of worlds in which the agent was run.
        missing: name of a kind that was not scored -> its number of worlds without an answer.
    """
    expected = {kind.kind: kind for kind in claim.kinds}
    for score in scores:
        kind = expected[score.stratum]
        yield TEXTS(
            f"looked/kind {'held' if score.is_held else 'missed'}",
            kind=kind.kind,
            place=kind.main,
            seen=f"{score.shares[kind.main]:.2f}",
            worlds=len(kind.worlds),
            **_ends(*kind.shares[kind.main]),
        )
    for name, number in missing.items():
        yield TEXTS("looked/missing", kind=name, missing=number)
    holds = [held for score in scores for held in score.holds.values()]
    held = sum(score.is_held is True for score in scores)
    yield TEXTS("looked/all", held=held, kinds=len(scores), intervals=sum(holds), places=len(holds))


def _ends(share: float, low: float, high: float) -> dict[str, str]:
    return {"share": f"{share:.2f}", "low": f"{low:.2f}", "high": f"{high:.2f}"}
