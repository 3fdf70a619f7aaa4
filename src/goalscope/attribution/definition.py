"""The seam of attribution methods: steps of an agent and hypotheses in; a verdict, and what it predicts, out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from goalscope import registry
from goalscope.checks import check_probability
from goalscope.hypotheses.answers import Answers
from goalscope.hypotheses.definition import Array, Hypothesis, Solved
from goalscope.hypotheses.evidence import FREQUENCIES, AnswerEvidence, evidence
from goalscope.hypotheses.score import LEVEL, Kind
from goalscope.hypotheses.views import Undefined
from goalscope.hypotheses.written import banks, parse
from goalscope.planning.soft import SoftProcess

Said = Kind | Literal["not explained"]
"""Verdict of a method. ``none`` (of the named) is for those that know what the agent itself would repeat."""

NONE: Final = "none of these"
"""Name of all hypotheses that nobody wrote down."""

LAPSE: Final = 0.005
"""Least share of random actions in what a verdict predicts, so that one action cannot decide a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPart:
    """A part of what a verdict predicts: a hypothesis that is followed more or less well.

    Attributes:
        hypothesis: written form, or `FREQUENCIES`.
        weight: of this part.
        strength: share of its actions, the rest is random; or
        rationality: nats per unit of the hypothesis's utility of the soft-optimal policy.
    """

    hypothesis: str
    weight: float
    strength: float = 1.0
    rationality: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What a method says.

    Attributes:
        method: its name.
        kind, names: the verdict and the hypotheses that it speaks of.
        sentence: the verdict in words.
        weights: name -> what the method gives each hypothesis; `NONE` for all others, where it knows that.
        predicts: what follows for single actions; empty: as often as before, whatever is seen.
        details: further plain values.
    """

    method: str
    kind: Said
    names: tuple[str, ...]
    sentence: str
    weights: Mapping[str, float] = field(default_factory=dict)
    predicts: tuple[PredictedPart, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """What a method is given.

    Attributes:
        answers: of one agent, world by world.
        bank: name -> hypothesis that was asked for.
        seed: root seed of random numbers.
        level: error rate of each one-sided end of an interval.
    """

    answers: Sequence[Answers]
    bank: Mapping[str, Hypothesis]
    seed: int = 0
    level: float = LEVEL

    def __post_init__(self) -> None:
        check_probability("level", self.level)
        if not self.answers or not self.bank:
            raise ValueError(
                f"an attribution needs answers in at least one world and a hypothesis, got {len(self.answers)} worlds "
                f"and {len(self.bank)} hypotheses"
            )

    @property
    def twice(self) -> bool:
        """Whether every step was answered twice, or by its probabilities."""
        return all(one.second is not None for one in self.answers)

    @cached_property
    def hypotheses(self) -> dict[str, Hypothesis]:
        """The bank, and behind it the sentinels that it does not hold."""
        return with_sentinels(self.bank)

    @cached_property
    def evidence(self) -> AnswerEvidence:
        """The sums of the score."""
        return evidence(self.answers, self.hypotheses, len(self.bank))

    def solved(self) -> Iterator[tuple[Answers, dict[str, Solved]]]:
        """Yield each world's answers with what follows from the bank there, undefined hypotheses left out."""
        for one in self.answers:
            found = dict[str, Solved]()
            for name, hypothesis in self.bank.items():
                try:
                    found[name] = hypothesis.solved(one.world)
                except Undefined:
                    continue
            yield one, found


def with_sentinels(bank: Mapping[str, Hypothesis]) -> dict[str, Hypothesis]:
    """Return a bank, and behind it the shipped sentinels that it does not hold."""
    rest = [parse(text) for text in banks()["sentinels"]]
    return {**bank, **{one.text: one for one in rest if one not in bank.values() and one.text not in bank}}


Method = Callable[[Trial], Attribution]


def attribution(name: str) -> Callable[[Method], Method]:
    """Return a decorator that registers a method: a function of a `Trial`.

    It raises `Undefined` where it cannot speak of what it was given; the reason stands in the result.

    Raises:
        ValueError: a name that is taken.
    """
    return registry.register("attribution", name)


def predicted(parts: Sequence[PredictedPart], often: Array, one: Answers) -> Array:
    """Return ``[N, A]`` the probabilities of actions that a verdict predicts for the steps of a world.

    Args:
        parts: what the verdict predicts; those that mean nothing in this world are left out.
        often: ``[A]`` how often the agent took each action before.
        one: the steps, of which only state and time are read.
    """
    even, mixed, total = one.world.even[one.state], np.zeros((len(one.state), one.world.process.actions)), 0.0
    for part in parts:
        try:
            policy = _policy(part, often, one)
        except Undefined:
            continue
        mixed += part.weight * policy[np.minimum(one.time, len(policy) - 1), one.state]
        total += part.weight
    if not total:
        return even if not len(often) else predicted([PredictedPart(hypothesis=FREQUENCIES, weight=1.0)], often, one)
    return np.asarray((1 - LAPSE) * mixed / total + LAPSE * even)


def _policy(part: PredictedPart, often: Array, one: Answers) -> Array:
    if part.hypothesis == FREQUENCIES:
        if len(often) != one.world.process.actions:
            raise Undefined("another number of actions")
        weights = np.where(one.world.even > 0, often, 0.0) + 1e-12 * (one.world.even > 0)
        return np.asarray((weights / weights.sum(axis=1, keepdims=True))[None])
    solved = parse(part.hypothesis).solved(one.world)
    if part.rationality is None:
        strength = min(max(part.strength, 0.0), 1.0)
        return np.asarray(strength * solved.policy + (1 - strength) * one.world.even)
    if solved.utility is None:
        raise Undefined("a policy has no utility")
    soft = SoftProcess(one.world.process.mdp(solved.utility, one.world.horizon, terminal=None))
    return soft.soft_policy(part.rationality * soft.span if np.isfinite(part.rationality) else part.rationality)
