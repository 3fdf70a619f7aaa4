"""The evidence in an agent's answers for and against hypotheses: sums over steps for each cluster of worlds.

Notation: ``m`` offered actions, ``p_h`` the policy of h in the state of a step, ``S`` the set of its ``k`` actions,
``a`` and ``a'`` the two answers (one-hot, or probabilities). Sums run over the steps in which h makes a prediction:

    u_h          = p_h - 1/m
    gain(h)      = sum u_h . (a + a') / 2                          lambda |u_h|^2 in the mean, if the agent follows h
    size(h)      = sum |u_h|^2                                     with strength lambda and is random otherwise
    compliance   = sum (a(S) - k/m) (a'(S) - k/m) (1/k + 1/(m-k))  lambda^2 |u_h|^2, were it the agent's strength there
    agreement    = sum (a . a' - 1/m)                              |p - 1/m|^2 of the agent's own policy p, unbiased

A place, an event or a utility makes no prediction where all offered actions are equally good. A policy predicts that
they are equally likely there, so any consistent choice of the agent in such a state counts against it.

If k is an intermediate step of h (`goals.hypotheses.steps`), k means "k, then anything" as a rival of h: the steps
after an episode has reached k, for which k makes no prediction, count in the comparison of h with k.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from goalscope._ground.checks import freeze
from goalscope.goals.hypotheses.answers import Answers, move_frequencies
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Mask, Numbers
from goalscope.goals.hypotheses.regions import REGIONS, regions
from goalscope.goals.hypotheses.steps import reached_before, steps_in
from goalscope.goals.hypotheses.views import Undefined

FREQUENCIES: Final = "move frequencies"
"""Control hypothesis (sentinel): the agent takes each action as often as in the other worlds, whatever it sees."""

AIMS: Final = ("place", "event", "utility")
"""Kinds of hypotheses that make no prediction where all offered actions are equally good."""

_NONE: Final = 1e-12
_OF_HYPOTHESES: Final = ("said", "gain", "size", "repeated", "kept", "kept_agreement")


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerSums:
    """Sums over steps in G clusters of worlds for K hypotheses.

    Attributes:
        names: ``[K]`` names of the hypotheses.
        asked: number of hypotheses in the user's bank, which come first; the others are controls (sentinels).
        steps: ``[G]`` number of steps.
        agreement: ``[G]`` sum of ``(a . a' - 1/m) / (1 - 1/m)``; NaN without second answers.
        said: ``[G, K]`` number of steps in which each hypothesis makes a prediction.
        gain, size: ``[G, K]`` see the module.
        repeated: ``[G, K]`` compliance, or agreement for habits: the reference of the consistency; NaN without second
            answers.
        kept, kept_agreement: ``[G, K]`` number of steps in states where the event of a hypothesis holds whatever is
            done next, so that it makes no prediction, and the agreement in them.
    common_gain, common_size: ``[G, K, K]`` gain and size of the first hypothesis over the steps in which both make
            a prediction; if the second is an intermediate step of the first, also over the steps after it.
        product: ``[G, K, K]`` sum of ``u_h . u_k``.
        region_gain, region_size: ``[G, asked, R]`` gain and size within each of `REGIONS`.
        worlds: ``[K, K]`` number of worlds in which both are defined.
        step_of: ``[K, K]`` number of these worlds in which the second is an intermediate step of the first.
        begun: ``[K]`` number of worlds in which the event of a hypothesis holds from the beginning.
        habits: ``[K]`` bool, the controls that are about no place, event or utility, such as always the same action.
        undefined: name -> number of worlds in which the hypothesis is undefined.
        left_out: number of steps without an action.
    """

    names: tuple[str, ...]
    asked: int
    steps: Array
    agreement: Array
    said: Array
    gain: Array
    size: Array
    repeated: Array
    kept: Array
    kept_agreement: Array
    common_gain: Array
    common_size: Array
    product: Array
    region_gain: Array
    region_size: Array
    worlds: Numbers
    step_of: Numbers
    begun: Numbers
    habits: Mask
    undefined: Mapping[str, int]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """The solved hypotheses of one world, by their index.

    Attributes:
        policies: index of a hypothesis -> its policy ``[n, S, A]``.
        regions: index -> its `regions`.
        events: index -> ``[S]`` states in which its event holds, of the hypotheses that the user asked for.
        steps: pairs (h, k) of indices such that k is an intermediate step of h.
        begun: indices of the hypotheses whose event holds from the beginning.
    """

    policies: Mapping[int, Array]
    regions: Mapping[int, Mask]
    events: Mapping[int, Mask] = field(default_factory=dict)
    steps: frozenset[tuple[int, int]] = frozenset()
    begun: frozenset[int] = frozenset()


def predictions_in(world: FiniteWorld, hypotheses: Mapping[str, Hypothesis], asked_count: int) -> Predictions:
    """Solve hypotheses in one world; those that are undefined there are left out.

    Args:
        world: the world.
        hypotheses: name -> hypothesis, those that the user asked for first.
        asked_count: number of hypotheses that the user asked for; regions are computed for these only.
    """
    policies, regions_of = dict[int, Array](), dict[int, Mask]()
    place_states, events = dict[int, Mask](), dict[int, Mask]()
    for number, hypothesis in enumerate(hypotheses.values()):
        try:
            policies[number] = hypothesis.solved(world).policy
        except Undefined:
            continue
        if number < asked_count and (region_masks := regions(hypothesis, world)) is not None:
            regions_of[number] = region_masks
        if number < asked_count and hypothesis.kind in ("place", "event"):
            place_states[number] = hypothesis.where(world)
            if hypothesis.kind == "event":
                events[number] = place_states[number]
    steps = steps_in(world, place_states, events)
    return Predictions(
        policies=policies,
        regions=regions_of,
        events=events,
        steps=frozenset(steps),
        begun=frozenset(number for number, states in events.items() if (states & (world.process.start > 0)).any()),
    )


def evidence(
    all_answers: Sequence[Answers],
    hypotheses: Mapping[str, Hypothesis],
    asked_count: int,
    predictions: Mapping[str, Predictions] | None = None,
) -> AnswerSums:
    """Compute the evidence in an agent's answers.

    Args:
        all_answers: the agent's answers, world by world.
        hypotheses: name -> hypothesis, the user's bank first; move frequencies are added.
        asked_count: number of hypotheses in the user's bank.
        predictions: world id -> `predictions_in` that world, to share them between agents; None to solve here.

    Raises:
        ValueError: there are no answers.
    """
    if not all_answers:
        raise ValueError("scoring hypotheses needs steps with an action, got none: run the agent in these worlds first")
    names = (*hypotheses, FREQUENCIES)
    silent = np.array([hypothesis.kind in AIMS for hypothesis in hypotheses.values()] + [False])
    aims = np.array([about_aims(hypothesis) for hypothesis in hypotheses.values()] + [False])
    clusters = {
        cluster: number for number, cluster in enumerate(dict.fromkeys(answers.cluster for answers in all_answers))
    }
    size, count = len(names), len(clusters)
    flat: dict[str, Array] = {name: np.zeros((count, size)) for name in _OF_HYPOTHESES}
    square: dict[str, Array] = {
        name: np.zeros((count, size, size)) for name in ("common_gain", "common_size", "product")
    }
    by_region = {name: np.zeros((count, asked_count, len(REGIONS))) for name in ("region_gain", "region_size")}
    steps, agreement, undefined = np.zeros(count), np.zeros(count), dict.fromkeys(names, 0)
    worlds, step_of = np.zeros((2, size, size), dtype=np.int64)
    begun = np.zeros(size, dtype=np.int64)
    for answers, often in zip(all_answers, move_frequencies(all_answers), strict=True):
        at = clusters[answers.cluster]
        world_predictions = (predictions or {}).get(answers.world.world.id) or predictions_in(
            answers.world, hypotheses, asked_count
        )
        policies = dict(world_predictions.policies)
        if often is not None:
            offered = np.where(answers.world.even > 0, often, 0.0)
            total = offered.sum(axis=1, keepdims=True)
            policies[size - 1] = np.where(total > 0, offered / np.maximum(total, _NONE), answers.world.even)[None]
        for number in set(range(size)) - set(policies):
            undefined[names[number]] += 1
        steps[at] += len(answers.state)
        worlds[np.ix_(list(policies), list(policies))] += 1
        for first, second in world_predictions.steps:
            step_of[first, second] += 1
        begun[list(world_predictions.begun)] += 1
        world_sums = _Sums(answers, policies, silent, aims, world_predictions)
        agreement[at] += world_sums.agreement
        for name, sums in flat.items():
            sums[at, world_sums.numbers] += getattr(world_sums, name)
        pairs = np.ix_(np.array([at]), world_sums.numbers, world_sums.numbers)
        for name, sums in square.items():
            sums[pairs] += getattr(world_sums, name)
        for number, region in world_predictions.regions.items():
            row, inside = int(np.searchsorted(world_sums.numbers, number)), region[:, answers.state].astype(np.float64)
            by_region["region_gain"][at, number] += inside @ world_sums.gains[row]
            by_region["region_size"][at, number] += inside @ world_sums.sizes[row]
    return AnswerSums(
        names=names,
        asked=asked_count,
        steps=freeze(steps),
        agreement=freeze(agreement),
        worlds=freeze(worlds),
        step_of=freeze(step_of),
        begun=freeze(begun),
        habits=freeze(~aims & (np.arange(size) >= asked_count)),
        undefined={name: worlds for name, worlds in undefined.items() if worlds},
        left_out=sum(answers.left_out for answers in all_answers),
        **{name: freeze(sums) for name, sums in (flat | square | by_region).items()},
    )


class _Sums:
    """The sums of one world.

    The attributes are those of `AnswerSums`, whose arrays have a further axis, for clusters.
    """

    def __init__(
        self, answers: Answers, policies: Mapping[int, Array], silent: Mask, aims: Mask, predictions: Predictions
    ) -> None:
        self.numbers: Numbers = np.array(sorted(policies))
        even = answers.world.even[answers.state]  # [N, A]
        share = even.max(axis=1)  # 1 / m
        exact = np.stack(
            [policies[n][np.minimum(answers.time, len(policies[n]) - 1), answers.state] for n in self.numbers.tolist()]
        )
        second = answers.first if answers.second is None else answers.second
        away = exact - even  # u, [K, N, A]
        gains = np.einsum("kna,na->kn", away, (answers.first + second) / 2)
        sizes = np.einsum("kna,kna->kn", away, away)
        self.gains, self.sizes = gains, sizes
        says = (sizes > _NONE) | ~silent[self.numbers, None]
        self.said, self.gain, self.size = says.sum(axis=1), gains.sum(axis=1), sizes.sum(axis=1)
        self.common_gain, self.common_size = gains @ says.T, sizes @ says.T
        for goal, step in predictions.steps:
            h, k = (int(np.searchsorted(self.numbers, number)) for number in (goal, step))
            after = reached_before(answers.episode, predictions.events[step][answers.state]) & ~says[k]
            self.common_gain[h, k] += gains[h] @ after
            self.common_size[h, k] += sizes[h] @ after
        flat = away.reshape(len(away), -1)
        self.product = flat @ flat.T
        holds = np.zeros_like(says)
        for row, number in enumerate(self.numbers.tolist()):
            if number in predictions.events:
                holds[row] = predictions.events[number][answers.state] & ~says[row]
        self.kept, self.kept_agreement = holds.sum(axis=1), np.zeros(len(exact))
        if answers.second is None:
            self.agreement, self.repeated = np.nan, np.full(len(exact), np.nan)
            return
        agreed = np.einsum("na,na->n", answers.first, answers.second) - share
        normalised = agreed / np.maximum(1 - share, _NONE)
        self.agreement, self.kept_agreement = float(normalised.sum()), holds @ normalised
        sets = exact > _NONE
        within = sets.sum(axis=2)
        offered = np.round(1 / share)
        outside = offered - within
        by_set = (np.abs(exact * within[:, :, None] - sets) < 1e-9).all(axis=(1, 2)) & aims[self.numbers]
        complied = np.ones(within.shape)
        for answer in (answers.first, answers.second):
            complied *= np.einsum("kna,na->kn", sets, answer) - within * share
        complied *= 1 / np.maximum(within, 1) + 1 / np.maximum(outside, 1)
        repeated = np.where(by_set[:, None] & (sizes > _NONE), complied, agreed)
        self.repeated = np.where(says, repeated, 0.0).sum(axis=1)


def about_aims(hypothesis: Hypothesis) -> bool:
    """Return whether a hypothesis or one of its parts is about a place, event or utility; False for habits."""
    if hypothesis.kind in AIMS:
        return True
    parts = [part for member in hypothesis.parts for part in (member if isinstance(member, tuple) else (member,))]
    return any(isinstance(part, Hypothesis) and about_aims(part) for part in parts)
