"""Score how a frozen claim predicts an agent in worlds that were opened after it was frozen.

Each action that the agent takes there is scored, and the scores are averaged over clusters of worlds. Below, p are the
predicted probabilities of a step, a is the action taken, a' the second answer, and q the agent's own unknown
probabilities:

    log score       mean log p(a), in nats; all offered actions equally likely have -log m
    its ceiling     log of the mean of 1[a = a']: E log p(a) <= E log sum q^2 <= log E 1[a = a'], whatever p
    distance        mean of 1[a = a'] - 2 p(a) + sum p^2, unbiased for |p - q|^2, 0 for the agent's own probabilities
    calibration     for each tenth of the predicted probabilities: their mean, and how often these actions were taken

The share of W worlds in which a place is seen to be reached first scatters around the true one. An interval [low, high]
holds it if it lies in

    [low - e, high + e]      e = 1.645 sqrt(sum over worlds of p (1 - p)) / W,  p the predicted probability in a world

A kind is held if the interval of the place that was expected most often holds the share that was seen.

Source: Good (1952), Rational decisions (log score); Brier (1950); Jensen's inequality for the ceiling.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from goalscope.goals.attribution.by_arrival import first_shares
from goalscope.goals.attribution.claim import NONE_OF_PLACES, FrozenClaim, KindPrediction
from goalscope.goals.attribution.definition import predicted
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.kinds import acting_states, places_in, with_none

MIXTURE: Final = "mixture"
"""Name of the method that predicts an agent in kinds of unseen worlds."""

_LEAST: Final = 1e-4  # least probability of an offered action in a prediction of a kind, which has four digits


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionScore:
    """How well a claim predicts in new worlds: one method in all of them, or the mixture in one kind of them.

    Attributes:
        stratum, method: group of worlds and method of the claim; for a kind of worlds its name, and `MIXTURE`.
        clusters, steps: number of clusters and of steps in the new worlds.
        log_score: mean log score with lower and upper end, in nats per action.
        random: mean log score of equally likely actions, in nats per action.
        ceiling: log score that no prediction exceeds on average; None without second answers.
        distance: squared distance from the agent's own probabilities with lower and upper end; None without second
            answers.
        calibration: (mean predicted probability, share taken, count) for each tenth of the predicted probabilities.
        shares: for a kind of worlds, place -> share of the worlds where it was reached first.
        holds: place -> whether its interval holds that share.
        is_held: whether the interval of the main place does; None for a method.
        divergences: prediction ("predicted" or a baseline) -> divergence of its shares from those seen, in nats.
    """

    stratum: str
    method: str
    clusters: int
    steps: int
    log_score: tuple[float, float, float]
    random: float
    ceiling: float | None
    distance: tuple[float, float, float] | None
    calibration: tuple[tuple[float, float, int], ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    holds: Mapping[str, bool] = field(default_factory=dict)
    is_held: bool | None = None
    divergences: Mapping[str, float] = field(default_factory=dict)


def scored(claim: FrozenClaim, all_answers: Sequence[Answers], level: float = 0.05) -> tuple[PredictionScore, ...]:
    """Score how well a claim predicts the agent in new worlds: each method in all, each kind of worlds in its own.

    Kinds of which a world has no answer are left out.

    Args:
        claim: the frozen claim.
        all_answers: the agent's answers in the new worlds, world by world.
        level: error rate of the two-sided intervals.
    """
    scores = list[PredictionScore]()
    for stratum in claim.strata:
        often = {size: np.array(shares) for size, shares in stratum.often.items()}
        for attribution in stratum.attributions:
            chances = [
                predicted(attribution.predicts, often.get(answers.world.process.actions, np.zeros(0)), answers)
                for answers in all_answers
            ]
            scores.append(_score(stratum.name, attribution.method, all_answers, chances, level))
    answers_of_kinds = answers_by_kind(claim, all_answers) if claim.kinds else {}
    for kind in claim.kinds:
        answered = answers_of_kinds[kind.kind]
        if len(answered) == len(kind.worlds):
            scores.append(_score_kind(kind, [*claim.design.places], answered, level))
    return tuple(scores)


def answers_by_kind(claim: FrozenClaim, all_answers: Sequence[Answers]) -> dict[str, list[Answers]]:
    """Return the answers in the worlds of each kind that a claim is about."""
    by_world = {(answers.world.world.id, answers.world.horizon): answers for answers in all_answers}
    return {
        kind: [by_world[place] for world in worlds if (place := (world.world.id, world.horizon)) in by_world]
        for kind, worlds in claim.unseen.items()
    }


def _score_kind(
    kind: KindPrediction, places: Sequence[str], all_answers: Sequence[Answers], level: float
) -> PredictionScore:
    chances = [_moves_at(answers, np.array(moves)) for answers, moves in zip(all_answers, kind.moves, strict=True)]
    score = _score(kind.kind, MIXTURE, all_answers, chances, level)
    masks = [places_in(answers.world, [parse(place) for place in places]) for answers in all_answers]
    reached = [with_none(first_shares(answers, mask)) for answers, mask in zip(all_answers, masks, strict=True)]
    seen, expected = np.mean(reached, axis=0), np.array(kind.chances)
    scatter = 1.645 * np.sqrt((expected * (1 - expected)).sum(axis=0)) / len(expected)
    shares = dict(zip((*places, NONE_OF_PLACES), seen.tolist(), strict=True))
    holds = {
        place: bool(kind.shares[place][1] - extra - 1e-9 <= share <= kind.shares[place][2] + extra + 1e-9)
        for (place, share), extra in zip(shares.items(), scatter, strict=True)
    }
    predictions = {"predicted": kind.chances, **kind.baselines}
    divergences = {name: float(divergence(seen, np.mean(rows, axis=0))) for name, rows in predictions.items()}
    return replace(score, shares=shares, holds=holds, is_held=holds[kind.main], divergences=divergences)


def _moves_at(answers: Answers, moves: Array) -> Array:
    """Return the predicted probabilities of actions at the steps in one world, ``[N, A]``."""
    number = np.full(answers.world.process.states, -1)
    number[acting_states(answers.world)] = np.arange(len(moves))
    even, place = answers.world.even[answers.state], number[answers.state]
    return np.where(even > 0, np.maximum(np.where((place >= 0)[:, None], moves[place], even), _LEAST), 0.0)


def divergence(true: Array, predicted: Array) -> Array:
    """Return the divergence (KL) of predicted shares from true ones over the last axis, in nats.

    Predictions are mixed with 1 % of equal shares, so that no single outcome is infinitely surprising.
    """
    floored = 0.99 * predicted + 0.01 / predicted.shape[-1]
    return np.asarray(np.where(true > 0, true * np.log(np.maximum(true, 1e-12) / floored), 0.0).sum(axis=-1))


def _score(
    stratum: str, method: str, all_answers: Sequence[Answers], all_chances: Sequence[Array], level: float
) -> PredictionScore:
    """Score predicted probabilities ``[N, A]`` of the steps in each world."""
    twice = all(answers.second is not None for answers in all_answers)
    clusters: dict[str, list[Array]] = {}
    pairs = list[tuple[Array, Array]]()
    for answers, chances in zip(all_answers, all_chances, strict=True):
        second = answers.first if answers.second is None else answers.second
        action_shares = (answers.first + second) / 2
        offered = answers.world.even[answers.state] > 0
        logs = np.where(action_shares > 0, np.log(np.maximum(chances, 1e-300)) * action_shares, 0.0).sum(axis=1)
        agreed = (answers.first * second).sum(axis=1)
        distance = agreed - 2 * (chances * action_shares).sum(axis=1) + (chances**2).sum(axis=1)
        clusters.setdefault(answers.cluster, []).append(
            np.stack([logs, -np.log(offered.sum(axis=1)), agreed, distance])
        )
        pairs.append((chances[offered], action_shares[offered]))
    means = np.array([np.concatenate(arrays, axis=1).mean(axis=1) for arrays in clusters.values()])  # [G, 4]
    log_score, random, agreed, distance = (_three(means[:, column], level) for column in range(4))
    enough = twice and agreed[0] > 0
    return PredictionScore(
        stratum=stratum,
        method=method,
        clusters=len(means),
        steps=sum(len(answers.state) for answers in all_answers),
        log_score=log_score,
        random=random[0],
        ceiling=math.log(agreed[0]) if enough else None,
        distance=distance if twice else None,
        calibration=_calibration(pairs),
    )


def _three(values: Array, level: float) -> tuple[float, float, float]:
    """Return the mean over clusters and the ends of its t interval, which are infinite below `FEWEST` clusters."""
    mean = float(values.mean())
    if len(values) < FEWEST:
        return mean, -math.inf, math.inf
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, 1 - level / 2) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def _calibration(pairs: Sequence[tuple[Array, Array]]) -> tuple[tuple[float, float, int], ...]:
    chances, shares = (np.concatenate(column) for column in zip(*pairs, strict=True))
    tenth = np.minimum((chances * 10).astype(np.int64), 9)
    return tuple(
        (float(chances[tenth == at].mean()), float(shares[tenth == at].mean()), int((tenth == at).sum()))
        for at in range(10)
        if (tenth == at).any()
    )
