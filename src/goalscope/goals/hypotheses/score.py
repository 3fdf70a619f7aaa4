"""The consistency score of hypotheses, whose ceiling is the agent's own noise, and the rule that makes the verdict.

**Regions.** An agent may follow a hypothesis only where its place is near, or only where it lies in some direction. A
share over all steps hides this, so we test a fixed list of regions that was declared in advance.

**Evidence** for and against hypotheses are sums over steps for each cluster of worlds. Notation: ``m`` offered actions,
``p_h`` the policy of h in the state of a step, ``S`` the set of its ``k`` actions, ``a`` and ``a'`` the two answers
(one-hot, or probabilities). Sums run over the steps in which h makes a prediction:

    u_h          = p_h - 1/m
    gain(h)      = sum u_h . (a + a') / 2                          lambda |u_h|^2 in the mean, if the agent follows h
    size(h)      = sum |u_h|^2                                     with strength lambda and is random otherwise
    compliance   = sum (a(S) - k/m) (a'(S) - k/m) (1/k + 1/(m-k))  lambda^2 |u_h|^2, were it the agent's strength there
    agreement    = sum (a . a' - 1/m)                              |p - 1/m|^2 of the agent's own policy p, unbiased

A place, an event or a utility makes no prediction where all offered actions are equally good. A policy predicts that
they are equally likely there, so any consistent choice of the agent in such a state counts against it.

If k is an intermediate step of h (`goals.hypotheses.definition`), k means "k, then anything" as a rival of h: the steps
after an episode has reached k, for which k makes no prediction, count in the comparison of h with k.

**Score.** From these sums we compute:

    strength      lambda(h) = gain / size               share of answers that follow h; negative if they oppose it
    consistency   R2(h) = gain^2 / (size x repeated)    1 if h is followed equally in all states, however noisy
    predictable   agreement / steps                     1 for an agent that always repeats itself, 0 for a random one
    contrast      c(h, k) = sum (u_h - u_k) . a         over steps in which both make a prediction

The expected contrast is lambda E(h, k) if the agent follows h and -lambda E(k, h) if it follows k, where E(h, k) = sum
|u_h|^2 - u_h . u_k. We say that h *beats* k if c lies beyond the midpoint of both values by the share `MARGIN` of the
way to the first. E(h, k) may be 0, as for ``goal within 5 steps`` against ``goal``: then the midpoint lies on one side
of 0, and the moves that the agent does not make decide.

Interval ends come from resampled clusters, one-sided at `LEVEL`. Two hypotheses are compared if both make predictions
in `FEWEST` clusters. They can be separated if E(h, k) + E(k, h) is at least `APART` times 2 |u_h|^2, and positive in
`FEWEST` clusters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import freeze
from goalscope._ground.rng import stream
from goalscope.goals.finding import BehaviourPart
from goalscope.goals.hypotheses.definition import (
    FAR,
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    Numbers,
    Undefined,
    place_of,
    reached_before,
    solved_in,
    steps_in,
)
from goalscope.goals.hypotheses.rules import holding
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers, move_frequencies

_FAR_OFF: Final = {"at most 2 steps away": (1, 2), "3 to 5 steps away": (3, 5)} | {
    "6 to 8 steps away": (6, 8),
    "9 steps away or more": (9, FAR - 1),
}
SIDES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "above": lambda down, right: down < 0,
    "below": lambda down, right: down > 0,
    "to the left": lambda down, right: right < 0,
    "to the right": lambda down, right: right > 0,
    "straight above or below": lambda down, right: (right == 0) & (down != 0),
    "straight left or right": lambda down, right: (down == 0) & (right != 0),
    "down left": lambda down, right: (down >= 0) & (right <= 0) & (down != right),
    "down right": lambda down, right: (down >= 0) & (right >= 0) & (down != -right),
    "up left": lambda down, right: (down <= 0) & (right <= 0) & (down != -right),
    "up right": lambda down, right: (down <= 0) & (right >= 0) & (down != right),
}
"""Side on which a place lies, as seen from the agent -> function of its offset in rows and columns."""
REGIONS: Final = (*_FAR_OFF, *SIDES, "where its condition holds", "where its condition does not hold")
"""Names of the regions of states: by distance and direction of a hypothesis's place as seen from the agent, and by
whether a hypothesis's condition holds."""


FREQUENCIES: Final = "move frequencies"
"""Control hypothesis (sentinel): the agent takes each action as often as in the other worlds, whatever it sees."""
AIMS: Final = ("place", "event", "utility")
"""Kinds of hypotheses that make no prediction where all offered actions are equally good."""
_NONE: Final = 1e-12
_OF_HYPOTHESES: Final = ("said", "gain", "size", "repeated", "kept", "kept_agreement")
Kind = Literal["random", "habit", "named", "set", "partly", "none", "undecided"]
LEVEL: Final = 0.05
RESAMPLES: Final = 1000
MARGIN: Final = 0.25
APART: Final = 0.02
RANDOM: Final = 0.02
"""The lower end of the predictable share must reach this value for any verdict other than a name or "random"."""
NOISE: Final = 0.1
"""The upper end of the predictable share must lie below this value for the verdict "random"."""
STRONG: Final = 0.2
EXPLAINED: Final = 0.7
"""Minimum consistency of a named hypothesis; its lower end must reach `HALF`."""
HALF: Final = 0.5
PARTLY: Final = 0.3
REGION: Final = 0.05
"""Level of the test in each region; a hypothesis that fails in a region is not named. We do not correct for the number
of regions: a hypothesis that is followed everywhere rarely fails, since its strength must fall below half."""
HABITS: Final[Mapping[str, float]] = {FREQUENCIES: 0.8, "open moves": 0.7}
"""Control hypotheses that are habits -> consistency at which they explain the behaviour."""
Ends = tuple[float, float, float]
"""An estimate with its lower and its upper end."""


def regions(hypothesis: Hypothesis, world: FiniteWorld) -> npt.NDArray[np.bool_] | None:
    """Return the states in each of `REGIONS`, such as those at most some steps from the place of a hypothesis.

    The consistency score tests in each region whether the agent follows the hypothesis there.

    Args:
        hypothesis: the hypothesis.
        world: the world, with S states.

    Returns:
        ``[R, S]`` bool for R regions; None for a hypothesis that has neither a place or event nor a condition.
    """
    masks = np.zeros((len(REGIONS), world.process.states), dtype=bool)
    if " if {condition}" in hypothesis.form:
        holds = holding(world, hypothesis.parts[0], hypothesis.parts[1])
        masks[-2:] = holds, ~holds
        return masks
    aim = place_of(hypothesis)  # the place that it flees, heads straight for, or pursues when near
    if aim is None:
        return None
    try:
        steps = world.steps_to(world.targets(aim))
        masks[: len(_FAR_OFF)] = [(steps >= low) & (steps <= high) for low, high in _FAR_OFF.values()]
        if aim.kind == "place":
            down, right = world.further(aim.cell(world)).T
            masks[len(_FAR_OFF) : -2] = [side(down, right) for side in SIDES.values()]
    except Undefined:  # stochastic, or not a grid: unknown regions stay empty
        return masks
    return masks


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerSums:
    """How far an agent's answers support K hypotheses: sums over steps for G clusters (a world with its versions).

    In a step with m actions and the answers a and a' (one-hot), ``u_h`` is the policy of hypothesis h minus 1/m.

    Attributes:
        names: ``[K]`` names of the hypotheses.
        asked: number of hypotheses of the user, which come first; the others are control hypotheses (built-in rivals).
        steps: ``[G]`` number of steps.
        agreement: ``[G]`` sum of ``(a . a' - 1/m) / (1 - 1/m)``, 1 for equal answers; NaN without second answers.
        said: ``[G, K]`` number of steps in which each hypothesis makes a prediction.
        gain, size: ``[G, K]`` sums of ``u_h . (a + a') / 2``, how far the answers follow h, and of ``|u_h|^2``.
        repeated: ``[G, K]`` how far both answers follow h, for habits their agreement; NaN without second answers.
        kept, kept_agreement: ``[G, K]`` number of steps in states where the event of a hypothesis holds whatever is
            done next, so that it makes no prediction, and the agreement in them.
        common_gain, common_size: ``[G, K, K]`` gain and size of the first hypothesis over the steps in which both make
            a prediction; if the second is an intermediate step of the first, also over the steps after it.
        product: ``[G, K, K]`` sum of ``u_h . u_k``.
        region_gain, region_size: ``[G, asked, R]`` gain and size within each of `REGIONS`.
        worlds: ``[K, K]`` number of worlds in which both are defined.
        step_of: ``[K, K]`` number of these worlds in which the second is an intermediate step of the first.
        begun: ``[K]`` number of worlds in which the event of a hypothesis holds from the beginning.
        habits: ``[K]`` bool, the control hypotheses about no place, event or utility, such as always the same action.
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
    """What each hypothesis predicts in one world; hypotheses are numbered by their order in the list that was compared.

    Attributes:
        world: the world, with S states, A actions and n decisions per episode.
        policies: number of a hypothesis -> its policy, ``[n, S, A]``, or ``[1, S, A]`` if it does not depend on time;
            hypotheses that are undefined in the world are missing.
        regions: number -> ``[R, S]`` bool, the states in each of its `regions`, such as those near its place.
        events: number -> ``[S]`` bool, the states in which its event holds, for the hypotheses of the user.
        steps: pairs (h, k) of numbers such that event k must happen on the way to h (k is an intermediate step of h).
        begun: numbers of the hypotheses whose event holds from the beginning.
    """

    world: FiniteWorld
    policies: Mapping[int, Array]
    regions: Mapping[int, Mask]
    events: Mapping[int, Mask] = field(default_factory=dict)
    steps: frozenset[tuple[int, int]] = frozenset()
    begun: frozenset[int] = frozenset()


class HypothesisBank:
    """The names of all hypotheses that are scored: the given ones, and as the last one the habit of fixed move
    frequencies.

    Attributes:
        names: the names, in the order of the arrays below.
        silent: bool array, the hypotheses that predict nothing in states where all actions are equally good for them.
        aims: bool array, the hypotheses about a place, an event or a utility.

    Args:
        hypotheses: name -> hypothesis; those of the user first, then control hypotheses.
    """

    def __init__(self, hypotheses: Mapping[str, Hypothesis]) -> None:
        self.names = (*hypotheses, FREQUENCIES)
        self.silent = np.array([hypothesis.kind in AIMS for hypothesis in hypotheses.values()] + [False])
        self.aims = np.array([about_aims(hypothesis) for hypothesis in hypotheses.values()] + [False])


def predictions_in(world: FiniteWorld, hypotheses: Mapping[str, Hypothesis], asked_count: int) -> Predictions:
    """Compute what each hypothesis predicts in one world; hypotheses that are undefined there are left out.

    Args:
        world: the world.
        hypotheses: name -> hypothesis, those that the user asked for first.
        asked_count: number of hypotheses that the user asked for; regions (parts of the state space in which a
            hypothesis may be followed) are computed for these only.
    """
    regions_of, place_states, events = dict[int, Mask](), dict[int, Mask](), dict[int, Mask]()
    bank = list(hypotheses.values())
    policies = {number: solved.policy for number, solved in solved_in(world, dict(enumerate(bank))).items()}
    for number, hypothesis in [(number, bank[number]) for number in policies if number < asked_count]:
        if (region_masks := regions(hypothesis, world)) is not None:
            regions_of[number] = region_masks
        if hypothesis.kind in ("place", "event"):
            place_states[number] = hypothesis.where(world)
            if hypothesis.kind == "event":
                events[number] = place_states[number]
    steps = steps_in(world, place_states, events)
    return Predictions(
        world=world,
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
    """Compute the sums over an agent's steps from which the consistency score of each hypothesis is derived.

    Args:
        all_answers: the agent's answers, world by world.
        hypotheses: name -> hypothesis; those of the user first, then control hypotheses. Move frequencies are added.
        asked_count: number of hypotheses of the user.
        predictions: world id -> `predictions_in` that world, to share them between agents; None to compute them here.

    Raises:
        ValueError: there are no answers.
    """
    if not all_answers:
        raise ValueError("scoring hypotheses needs steps with an action, got none: run the agent in these worlds first")
    bank = HypothesisBank(hypotheses)
    names, silent, aims = bank.names, bank.silent, bank.aims
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
    """Return whether a hypothesis is about a place, an event or a utility, or contains one that is; False for
    habits.
    """
    if hypothesis.kind in AIMS:
        return True
    parts = [part for member in hypothesis.parts for part in (member if isinstance(member, tuple) else (member,))]
    return any(isinstance(part, Hypothesis) and about_aims(part) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisScore:
    """How well one hypothesis explains an agent's answers, by itself and against each rival.

    Attributes:
        name: name of the hypothesis.
        asked: whether the user asked for it; the added control hypotheses are only rivals and are never named.
        clusters: number of worlds in which it makes a prediction; the versions of one world count once.
        steps: share of all steps in which it makes a prediction.
        strength: share of the answers that follow it; negative if they oppose it. Estimate, lower and upper end.
        consistency: 1 if the agent follows it equally in all states, however noisily; 0 if the agent follows it no more
            than by chance. Estimate, lower and upper end.
        beats: rivals that it explains the answers significantly better than, if it explains them.
        not_told_from: rivals that call for the same moves in these worlds.
        apart_in: number of clusters in which it and another hypothesis of the user call for different moves; the
            minimum over these hypotheses.
        not_where: regions, such as "far from its place", in which the agent does not follow it: the upper end of the
            strength there lies below half of the strength elsewhere.
    """

    name: str
    asked: bool
    clusters: int
    steps: float
    strength: Ends
    consistency: Ends
    beats: tuple[str, ...]
    not_told_from: tuple[str, ...]
    apart_in: int = 0
    not_where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreVerdict:
    """Which hypothesis an agent follows according to the consistency score, and the scores behind this verdict.

    Attributes:
        kind: "named": one hypothesis; "set": several that these worlds cannot separate; "partly": one that explains a
            part of the behaviour; "habit"; "random"; "none" (of the user's hypotheses); or "undecided".
        names: the hypotheses named by the verdict; for "undecided", those that are not excluded.
        predictable: share of the answers that the agent repeats beyond chance: estimate, lower and upper end.
        scores: scores of all hypotheses.
        clusters, steps, left_out: numbers of clusters, of steps, and of steps left out because they lack an action.
        undefined: name -> number of worlds in which the hypothesis is undefined.
        explained_by: for kind "none", control hypotheses that explain the answers and beat every hypothesis of the
            user.
        alike: rivals made for the first of ``names`` that these worlds do not tell from it, see
            `goals.hypotheses.naming`.
        on_the_way: hypotheses of the user that are an intermediate step on every path to the first of ``names``.
        part: for kind "partly", the part of its behaviour in which the agent follows the first of ``names``.
        elsewhere: strength of the first of ``names`` in the turns outside the part; None without a part.
        errors: rates of fixed and of random errors against the first of ``names``, each with its ends; None if nothing
            is named (see `goals.hypotheses.errors`).
        followed: share of the moves in new states that follow the first of ``names``, beyond chance. It is set if the
            verdict rests on this share and on the errors; None if it rests on the consistency.
    """

    kind: Kind
    names: tuple[str, ...]
    predictable: Ends
    scores: tuple[HypothesisScore, ...]
    clusters: int
    steps: int
    left_out: int
    undefined: Mapping[str, int]
    explained_by: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    on_the_way: tuple[str, ...] = ()
    part: BehaviourPart | None = None
    elsewhere: Ends | None = None
    errors: tuple[Ends, Ends] | None = None
    followed: Ends | None = None

    def score(self, name: str) -> HypothesisScore:
        """Return the score of the hypothesis with this name.

        Raises:
            StopIteration: no hypothesis with this name was scored.
        """
        return next(score for score in self.scores if score.name == name)

    def sentence(self) -> str:
        """Return the verdict as a phrase for people, with the strength and the consistency of the hypothesis that it
        names.
        """
        near = max((score for score in self.scores if score.asked), key=lambda score: score.consistency[0])
        half = "" if near.consistency[0] >= HALF else " explains half of what it would repeat"
        nearest = f"{near.name} comes nearest, consistency {near.consistency[0]:.2f}"
        listed = " or ".join(self.names)
        if self.kind in ("named", "partly"):
            score = self.score(self.names[0])
            values = f"strength {score.strength[0]:.2f}, consistency {score.consistency[0]:.2f}"
            values = f"{values} of the first" if len(self.names) > 1 else values
            way = f"; {' and '.join(self.on_the_way)}: a step on every way there" if self.on_the_way else ""
            way = f"{way}; not told from {' or '.join(self.alike)}" if self.alike else way
            where = "" if self.part is None else f" {self.part.kind} {self.part.side or self.part.limit}"
            return f"{'its actions follow' if self.kind == 'named' else 'partly'} {listed}{where} ({values}){way}"
        return {
            "random": "random: it would hardly repeat an answer",
            "habit": f"a habit: {listed} explain its actions as well",
            "set": f"{listed}: not told apart here",
            "none": f"none of the named{half} ({nearest})",
            "undecided": f"undecided between {listed or 'all of them'} ({nearest})",
        }[self.kind]


def judge(sums: AnswerSums, *, seed: int = 0, level: float = LEVEL) -> ScoreVerdict:
    """Compute the consistency score of each hypothesis, and decide which of them the agent follows.

    Args:
        sums: the sums over the agent's steps, from `evidence`; every step must have two answers or exact probabilities.
        seed: root seed of the resamples.
        level: error rate of each one-sided end of an interval.

    Returns:
        The verdict: the hypotheses named, and the scores of all hypotheses with their intervals.

    Raises:
        ValueError: some steps have no second answer.
    """
    if np.isnan(sums.agreement).any():
        raise ValueError(
            "the consistency score needs two answers per step, or action probabilities, got single answers: run the "
            "agent with `answers: 2`, or use the methods meg or likelihood"
        )
    return ResampledSums(sums, seed, level).verdict()


class ResampledSums:
    """The consistency scores of K hypotheses with their intervals, and the verdict on which of them an agent follows.

    The one-sided ends of intervals come from R resamples of the G clusters of worlds; a cluster is a world with its
    versions, such as mirrored ones.

    Args:
        sums: the sums over the agent's steps, from `evidence`.
        seed: root seed of the resamples.
        level: error rate of each one-sided end.
    """

    def __init__(self, sums: AnswerSums, seed: int, level: float) -> None:
        self.answer_sums, self.count = sums, len(sums.names)
        clusters = len(sums.steps)
        self.weights = np.concatenate(
            [np.ones((1, clusters)), resamples(clusters, seed)]
        )  # first row: the data without resampling
        self.level = level
        self.names, self.bank = sums.names, np.arange(self.count) < sums.asked

    def _sums(self, values: Array) -> Array:
        return (self.weights @ values.reshape(len(values), -1)).reshape(len(self.weights), *values.shape[1:])

    def _ends(
        self, values: Array, low: Array | None = None, high: Array | None = None, level: float | None = None
    ) -> Array:
        """Return estimates with the lower and upper ends of their intervals, ``[3, ...]``.

        The first of the values is the estimate; the others are its resamples. If ``low`` or ``high`` is given, that end
        is computed from it instead.
        """
        down, up = tails(len(self.answer_sums.steps), self.level if level is None else level)
        lower = np.quantile((values if low is None else low)[1:], down, axis=0, method="lower")
        upper = np.quantile((values if high is None else high)[1:], up, axis=0, method="higher")
        return np.stack([values[0], lower, upper])

    @cached_property
    def predictable(self) -> Array:
        """``[3]`` share of the answers that the agent repeats beyond chance: estimate, lower and upper end."""
        return self._ends(
            self._sums(self.answer_sums.agreement) / np.maximum(self._sums(self.answer_sums.steps), 1e-12)
        )

    @cached_property
    def strengths(self) -> Array:
        """``[1 + R, K]`` strength of each hypothesis in the data (first row) and in each resample.

        The strength is the share of answers that follow the hypothesis; 0 if the hypothesis makes no prediction.
        """
        size = self._sums(self.answer_sums.size)
        return np.where(size > 0, self._sums(self.answer_sums.gain) / np.maximum(size, 1e-12), 0.0)

    @cached_property
    def strength(self) -> Array:
        """``[3, K]`` share of answers that follow each hypothesis: estimate, lower and upper end."""
        return self._ends(self.strengths)

    @cached_property
    def consistency(self) -> Array:
        """``[3, K]`` consistency of each hypothesis: estimate, lower and upper end.

        It is 1 if the agent follows the hypothesis equally in all states, however noisily. If the agent repeats
        nothing, the lower end is 0 and the upper end infinite.
        """
        gain, scale = (
            self._sums(self.answer_sums.gain),
            self._sums(self.answer_sums.size) * self._sums(self.answer_sums.repeated),
        )
        value = np.where((gain > 0) & (scale > 0), gain**2 / np.where(scale > 0, scale, 1.0), 0.0)
        return self._ends(value, value, np.where((gain > 0) & (scale <= 0), np.inf, value))

    @cached_property
    def explains(self) -> Mask:
        """``[K]`` bool: whether each hypothesis explains what the agent would repeat, whether or not a rival does so
        too.
        """
        return np.asarray(self.may_explain & (self.consistency[1] >= HALF))

    @cached_property
    def may_explain(self) -> Mask:
        """``[K]`` bool: whether each hypothesis explains the behaviour by its estimated consistency, without its lower
        end.

        `explains` demands in addition that the lower end of the consistency reaches `HALF`.
        """
        enough = (self.answer_sums.said > 0).sum(axis=0) >= FEWEST
        return np.asarray(enough & (self.strength[1] > STRONG) & (self.consistency[0] >= EXPLAINED))

    @cached_property
    def comparisons(self) -> tuple[Mask, Mask]:
        """Which pairs of hypotheses are compared, and which pairs these worlds can separate; each ``[K, K]`` bool.

        Two hypotheses are compared if both make predictions in at least `FEWEST` clusters (a world with its versions).
        """
        sums = self.answer_sums
        has_say = sums.said > 0
        compared = (has_say[:, :, None] & has_say[:, None, :]).sum(axis=0) >= FEWEST
        differs = self.differ.sum(axis=0) >= 2 * APART * sums.common_size.sum(axis=0)
        return compared & ~np.eye(self.count, dtype=bool), differs & (self.apart_in >= FEWEST)

    @cached_property
    def differ(self) -> Array:
        """``[G, K, K]`` how differently two hypotheses predict the agent's moves in each of G clusters of worlds.

        It is the sum of the squared differences of their action probabilities over the steps in which both make a
        prediction, so 0 where they act identically. A cluster is a world with its versions.
        """
        return (
            self.answer_sums.common_size
            - 2 * self.answer_sums.product
            + np.swapaxes(self.answer_sums.common_size, 1, 2)
        )

    @cached_property
    def apart_in(self) -> Numbers:
        """``[K, K]`` number of clusters (a world with its versions) in which two hypotheses call for different
        actions.
        """
        return np.asarray((self.differ > 1e-9).sum(axis=0))

    @cached_property
    def beats(self) -> Mask:
        """``[K, K]`` bool: whether the hypothesis of the row explains the answers significantly better than that of the
        column.

        A hypothesis that does not explain the answers beats none.
        """
        return self.beaten_by(self.explains, MARGIN)

    def beaten_by(self, explaining: Mask, margin: float) -> Mask:
        """Return whether the hypothesis of the row beats that of the column, ``[K, K]`` bool.

        The contrast of two hypotheses says how much more the answers agree with the first than with the second. A
        hypothesis beats a rival if the contrast lies significantly closer to its expectation for an agent that follows
        the hypothesis than to that for an agent that follows the rival. Between a goal and a habit, such as always the
        same action, the greater consistency also counts.

        Args:
            explaining: ``[K]`` bool, the hypotheses that may beat others.
            margin: how far beyond the midpoint of both expectations the contrast must lie, as a share of the way from
                there to the hypothesis's own expectation.
        """
        sums, rows = self.answer_sums, np.flatnonzero(explaining)
        result = np.zeros((self.count, self.count), dtype=bool)
        if len(rows):
            ahead = sums.common_size[:, rows] - sums.product[:, rows]  # E(h, k) by cluster, [G, rows, K]
            behind = np.swapaxes(sums.common_size, 1, 2)[:, rows] - sums.product[:, rows]
            contrast = sums.common_gain[:, rows] - np.swapaxes(sums.common_gain, 1, 2)[:, rows]
            bar = (1 + margin) * self._sums(ahead) - (1 - margin) * self._sums(behind)
            beyond = self._sums(contrast) - self.strengths[:, rows, None] / 2 * bar
            result[rows] = self.comparisons[1][rows] & (self._ends(beyond)[1] > 0)
        # Where several actions serve a goal equally well, as at a goal that does not end the episode, an agent may take
        # the same one always. A habit predicts which one, and the goal does not. That is no evidence against the goal:
        # a habit that explains less of what the agent would repeat does not beat it, and is beaten by it if the
        # difference is significant.
        value, low, high = self.consistency
        goal_against_habit = (explaining & self.bank)[:, None] & sums.habits[None]
        more = goal_against_habit & (value[:, None] > value[None])
        significant = goal_against_habit & self.comparisons[1] & (low[:, None] > high[None])
        return np.asarray((result & ~more.T) | significant)

    @cached_property
    def fails_in(self) -> Mask:
        """``[asked, R]`` bool: whether the agent fails to follow a hypothesis of the user in a region, such as far from
        its place.

        It fails if the strength there is significantly below half of the strength elsewhere.
        """
        gain, size = self._sums(self.answer_sums.region_gain), self._sums(self.answer_sums.region_size)
        bank_size = self.answer_sums.asked
        rest_gain = self._sums(self.answer_sums.gain[:, :bank_size])[:, :, None] - gain
        rest_size = self._sums(self.answer_sums.size[:, :bank_size])[:, :, None] - size
        inside, elsewhere = gain / np.maximum(size, 1e-9), rest_gain / np.maximum(rest_size, 1e-9)
        ahead = inside - elsewhere / 2
        below = self._ends(ahead, high=np.where(size > 1e-9, ahead, np.inf), level=REGION)[2] < 0
        return np.asarray(below & ((self.answer_sums.region_size > 1e-9).sum(axis=0) >= FEWEST))

    def verdict(self) -> ScoreVerdict:
        """Decide which hypothesis the agent follows; the result contains the scores of all hypotheses."""
        kind, chosen = self._kind()
        return ScoreVerdict(
            kind=kind,
            names=tuple(self.names[index] for index in chosen),
            predictable=three(self.predictable),
            scores=tuple(self._scored(index) for index in range(self.count)),
            clusters=len(self.answer_sums.steps),
            steps=int(self.answer_sums.steps.sum()),
            left_out=self.answer_sums.left_out,
            undefined=self.answer_sums.undefined,
            explained_by=tuple(self.names[index] for index in np.flatnonzero(self.sentinels)) if kind == "none" else (),
            on_the_way=self._steps(chosen[0]) if kind in ("named", "partly") and len(chosen) else (),
        )

    def _steps(self, index: int) -> tuple[str, ...]:
        """Return the hypotheses that are an intermediate step on the way to a given one.

        Such a step is on the way in every world that defines both hypotheses and does not begin after the step.
        """
        step_of = self.answer_sums.step_of[index]
        always = (step_of > 0) & (step_of + self.answer_sums.begun >= self.answer_sums.worlds[index])
        return tuple(self.names[other] for other in np.flatnonzero(always & self.bank).tolist())

    @cached_property
    def rivals(self) -> Mask:
        """``[K, K]`` bool: whether the hypothesis of the column must be ruled out before that of the row can be named.

        Such a rival is compared with the hypothesis and not excluded by its own score.
        """
        possible = (self.consistency[2] >= HALF) & (self.strength[2] > 0)
        return np.asarray(self.comparisons[0] & possible[None, :])

    @cached_property
    def sentinels(self) -> Mask:
        """``[K]`` bool: the control hypotheses that explain the answers and beat every rival among the user's
        hypotheses.
        """
        unbeaten = self.rivals & ~self.beats
        return np.asarray(self.explains & ~self.bank & ~unbeaten[:, self.bank].any(axis=1))

    def _kind(self) -> tuple[Kind, Sequence[int]]:
        value, _, high = self.consistency
        possible = np.flatnonzero(self.bank & (high >= HALF) & (self.strength[2] > 0)).tolist()
        if len(self.answer_sums.steps) < FEWEST:  # resamples of so few clusters are nearly all alike
            return "undecided", possible
        unbeaten = self.rivals & ~self.beats
        alone = self.explains & ~unbeaten.any(axis=1)
        whole = self.explains & self.bank
        whole[self.bank] &= ~self.fails_in.any(axis=1)
        if named := np.flatnonzero(alone & whole).tolist():
            return ("named" if len(named) == 1 else "set"), named
        if self.predictable[1] < RANDOM:
            follows = (self.strength[1] > STRONG)[:-1].any()  # except move frequencies, which noise alone can explain
            return ("random" if self.predictable[2] < NOISE and not follows else "undecided"), ()
        at = {self.names.index(name): least for name, least in HABITS.items() if name in self.names}
        usual = max((value[index] for index in at if self.strength[1, index] > STRONG), default=0.0)
        habits = [index for index, least in at.items() if value[index] >= least]
        if habits and self.beats[habits][:, whole].any(axis=0).all():
            return "habit", habits  # and no hypothesis of the bank explains as well
        if self.sentinels.any():
            return "none", ()  # a control hypothesis explains it, and no hypothesis of the bank may
        if sets := [{h, *np.flatnonzero(unbeaten[h]).tolist()} for h in np.flatnonzero(whole).tolist()]:
            return "set", sorted(set().union(*sets))
        some = (value < EXPLAINED) | (self.explains & ~whole)
        partial = self.bank & some & (self.strength[1] > STRONG) & (value >= max(PARTLY, usual))
        unsure = value[self.bank & self.may_explain & ~self.explains].max(initial=0.0)
        if partial.any() and value[partial].max() > unsure:  # another hypothesis may be followed entirely
            return "partly", sorted(np.flatnonzero(partial).tolist(), key=lambda index: -value[index])
        if not (high[self.bank] >= HALF).any():
            return "none", ()
        return "undecided", possible

    def _scored(self, index: int) -> HypothesisScore:
        def named(mask: Mask) -> tuple[str, ...]:
            return tuple(self.names[other] for other in np.flatnonzero(mask).tolist())

        say_counts, (compared, distinct) = self.answer_sums.said[:, index], self.comparisons
        rivals = self.bank & (np.arange(self.count) != index)
        return HypothesisScore(
            name=self.names[index],
            asked=bool(self.bank[index]),
            clusters=int((say_counts > 0).sum()),
            steps=float(say_counts.sum() / max(self.answer_sums.steps.sum(), 1)),
            strength=three(self.strength[:, index]),
            consistency=three(self.consistency[:, index]),
            beats=named(self.beats[index]),
            not_told_from=named(compared[index] & ~distinct[index]),
            apart_in=int(self.apart_in[index, rivals].min(initial=len(say_counts))),
            not_where=tuple(REGIONS[at] for at in np.flatnonzero(self.fails_in[index])) if self.bank[index] else (),
        )


def resamples(clusters: int, seed: int) -> Numbers:
    """Draw bootstrap resamples of clusters (a world with its versions), as ``[RESAMPLES, clusters]`` counts."""
    rng = stream(seed, "resampled clusters", clusters, RESAMPLES)
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)


def three(values: Array) -> Ends:
    """Return an array of three entries (estimate, lower and upper end of the interval) as a tuple of Python floats."""
    first, low, high = (float(value) for value in values)
    return first, low, high


def tails(clusters: int, level: float) -> tuple[float, float]:
    """Return which quantiles of bootstrap resamples are the ends of an expanded percentile interval.

    The usual percentile interval of a mean over G clusters is too narrow: it divides by G in place of G - 1 and uses
    normal quantiles. Its tails are therefore taken at ``Phi(-sqrt(G / (G - 1)) t)``, where t is the quantile of
    Student's t.

    Args:
        clusters: number of clusters G.
        level: error rate of each one-sided end.

    Returns:
        The lower and the upper quantile; 0 and 1 with fewer than two clusters.

    Source: Hesterberg, The American Statistician 69 (2015), section 5.3.
    """
    if clusters < 2:
        return 0.0, 1.0
    from scipy.special import ndtr, stdtrit

    tail = float(ndtr(-np.sqrt(clusters / (clusters - 1)) * stdtrit(clusters - 1, 1 - level)))
    return tail, 1 - tail
