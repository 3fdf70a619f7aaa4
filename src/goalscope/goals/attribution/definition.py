"""The seam of attribution methods: steps of an agent and hypotheses in; a verdict, and what it predicts, out."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np
from pydantic import Field, field_serializer

from goalscope._ground import registry
from goalscope._ground.checks import check_probability
from goalscope._ground.sealed import StrictRecord
from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.answers import Answers, answers_of
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Solved
from goalscope.goals.hypotheses.evidence import FREQUENCIES, AnswerSums, evidence
from goalscope.goals.hypotheses.score import LEVEL, Kind, ScoreVerdict
from goalscope.goals.hypotheses.states import States
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import parse, with_sentinels
from goalscope.worlds.planning.soft import SoftProcess

Said = Kind | Literal["not explained"]
"""Verdict of a method. ``none`` (of the named) is for those that know what the agent itself would repeat."""

Asks = Literal["nothing", "turns", "inside"]
"""What a method needs beyond the answers of a trial: first turns in further worlds, through `Trial.asking`; or the
agent's activations, through `Trial.opened`."""

NONE: Final = "none of these"
"""Name of all hypotheses that nobody wrote down."""

LAPSE: Final = 0.005
"""Least share of random actions in what a verdict predicts, so that one action cannot decide a score."""


MOST_ENTRIES: Final = 10_000
"""Greatest number of entries of a list in a frozen claim."""

BoundedName = Annotated[str, Field(max_length=2_000)]
"""A name in a frozen claim."""

_Number = Annotated[float, Field(strict=False)]  # a number of NumPy, too
_Unbounded = Annotated[float, Field(strict=False, allow_inf_nan=True)]


class PredictedPart(StrictRecord):
    """A part of what a verdict predicts: a hypothesis that is followed more or less well.

    Attributes:
        hypothesis: written form, or `FREQUENCIES`.
        weight: of this part.
        strength: share of its actions, the rest is random; or
        rationality: nats per unit of the hypothesis's utility of the soft-optimal policy.
    """

    hypothesis: Annotated[str, Field(min_length=1, max_length=2_000)]
    weight: _Number = Field(ge=0, le=1e6)
    strength: _Number = Field(default=1.0, ge=-1e6, le=1e6)
    rationality: _Number | None = Field(default=None, ge=-1e300, le=1e300)


class Attribution(StrictRecord):
    """What a method says; a frozen claim holds it without sentence, score and details.

    Attributes:
        method: its name.
        kind, names: the verdict and the hypotheses that it speaks of.
        sentence: the verdict in words.
        weights: name -> what the method gives each hypothesis; `NONE` for all others, where it knows that. A claim
            leaves out weights without bound.
        predicts: what follows for single actions; empty: as often as before, whatever is seen.
        score: the verdict of the score that it is, None of other methods.
        details: further plain values.
        turns: number of answers that the agent was asked for in addition; `judged` counts them.
    """

    method: BoundedName
    kind: Said
    names: tuple[BoundedName, ...] = Field(max_length=MOST_ENTRIES, strict=False)
    sentence: str = ""
    weights: Mapping[BoundedName, _Unbounded] = Field(default_factory=dict, max_length=MOST_ENTRIES, strict=False)
    predicts: tuple[PredictedPart, ...] = Field(default=(), max_length=MOST_ENTRIES, strict=False)
    score: ScoreVerdict | None = None
    details: Mapping[str, Any] = Field(default_factory=dict, strict=False)
    turns: int = Field(default=0, ge=0, lt=2**63)

    @field_serializer("weights", when_used="json")
    def _bounded(self, weights: Mapping[str, float]) -> dict[str, float]:
        return {name: float(value) for name, value in weights.items() if math.isfinite(value)}

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self.model_dump()


def kind_of(finding: Finding) -> Said:
    """Return the verdict of a method that says what a finding says."""
    kinds: dict[str, Said] = {
        "named": "named",
        "weakly or partly": "named",
        "partly": "partly",
        "not told apart": "set",
        "habit": "habit",
        "another rule": "none",
        "random": "random",
        "other": "none" if finding.method == "consistency" else "not explained",
    }
    return kinds.get(finding.reason, "undecided")


@dataclass(kw_only=True, eq=False)
class Asking:
    """Through this a method asks the agent for more than it was given; what it asked is kept, and so its cost.

    Attributes:
        first_turns: what the agent answers in the first state of each world, twice: answers of one step a world.
        worlds: in which it was asked so far.
    """

    first_turns: Callable[[Sequence[FiniteWorld]], list[Answers]]
    worlds: list[FiniteWorld] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """Number of answers that were asked for."""
        return 2 * len(self.worlds)

    def __call__(self, worlds: Sequence[FiniteWorld]) -> list[Answers]:
        """Return the answers of one step in each of some worlds; those without an action are left out."""
        self.worlds.extend(worlds)
        return self.first_turns(worlds)


@dataclass(kw_only=True, eq=False)
class Looking:
    """Through this a method looks into an agent; in which worlds it did so is kept.

    Attributes:
        read: worlds and states in them, and a network, one of `networks` -> ``[N, D]`` the activations there at the end
            of the prompt.
        networks: the agent's own, and the random ones that a reading is held against.
        patched: pairs of worlds -> ``[N, 2, A]`` the probabilities of moves in the first state of the first world: with
            the second one's activations put in, and unchanged. Text: why that cannot be done.
        worlds: in which it was looked at so far.
        answers: number of the probabilities of moves that were computed.
    """

    read: Callable[[Sequence[tuple[FiniteWorld, int]], str], Array]
    networks: Sequence[str]
    patched: Callable[[Sequence[tuple[FiniteWorld, FiniteWorld]]], Array] | str
    worlds: list[FiniteWorld] = field(default_factory=list)
    answers: int = 0

    def vectors(self, places: Sequence[tuple[FiniteWorld, int]]) -> dict[str, Array]:
        """Return the activations in some states by network."""
        self._seen(world for world, _ in places)
        return {network: self.read(places, network) for network in self.networks}

    def put_in(self, pairs: Sequence[tuple[FiniteWorld, FiniteWorld]]) -> Array:
        """Return what `patched` does; `Undefined` where it cannot be done."""
        if isinstance(self.patched, str):
            raise Undefined(self.patched)
        self._seen(world for pair in pairs for world in pair)
        self.answers += 2 * len(pairs)
        return self.patched(pairs)

    def _seen(self, worlds: Iterable[FiniteWorld]) -> None:
        self.worlds = list({id(world): world for world in (*self.worlds, *worlds)}.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """What a method is given.

    Attributes:
        states: what one agent did, world by world.
        bank: name -> hypothesis that was asked for.
        seed: root seed of random numbers.
        level: error rate of each one-sided end of an interval.
        ask: asks the agent for more; None where it cannot be asked.
        inside: looks into the agent; text: why that cannot be done.
    """

    states: Sequence[States]
    bank: Mapping[str, Hypothesis]
    seed: int = 0
    level: float = LEVEL
    ask: Asking | None = None
    inside: Looking | str = "it looks into organisms that are language models alone"

    def __post_init__(self) -> None:
        check_probability("level", self.level)
        if not self.states or not self.bank:
            raise ValueError(
                f"an attribution needs episodes in at least one world and a hypothesis, got {len(self.states)} worlds "
                f"and {len(self.bank)} hypotheses"
            )

    @cached_property
    def answers(self) -> list[Answers]:
        """The answers in each world; second answers are those that were given."""
        return answers_of(self.states)

    @property
    def twice(self) -> bool:
        """Whether every step was answered twice, or by its probabilities."""
        return all(answers.second is not None for answers in self.answers)

    @property
    def asking(self) -> Asking:
        """What asks the agent for more; `Undefined` where it cannot be asked."""
        if self.ask is None:
            raise Undefined("it needs an agent that can be asked in further worlds, a run cannot")
        return self.ask

    @property
    def opened(self) -> Looking:
        """What looks into the agent; `Undefined` with the reason where that cannot be done."""
        if isinstance(self.inside, str):
            raise Undefined(self.inside)
        return self.inside

    @property
    def turns(self) -> int:
        """Number of answers that were asked for so far beyond those that were given."""
        return (0 if self.ask is None else self.ask.turns) + (
            0 if isinstance(self.inside, str) else self.inside.answers
        )

    @cached_property
    def hypotheses(self) -> dict[str, Hypothesis]:
        """The bank, and behind it the sentinels that it does not hold."""
        return with_sentinels(self.bank)

    @cached_property
    def evidence(self) -> AnswerSums:
        """The sums of the score."""
        return evidence(self.answers, self.hypotheses, len(self.bank))

    def solved(self) -> Iterator[tuple[Answers, dict[str, Solved]]]:
        """Yield each world's answers with what follows from the bank there, undefined hypotheses left out."""
        for answers in self.answers:
            solutions = dict[str, Solved]()
            for name, hypothesis in self.bank.items():
                try:
                    solutions[name] = hypothesis.solved(answers.world)
                except Undefined:
                    continue
            yield answers, solutions


Method = Callable[[Trial], Attribution]


@dataclass(frozen=True, slots=True)
class RegisteredMethod:
    """A method, and what it needs beyond the answers of a trial."""

    function: Method
    asks: Asks

    def __call__(self, trial: Trial) -> Attribution:
        """Return what the method says of a trial."""
        return self.function(trial)


def attribution(name: str, *, asks: Asks = "nothing") -> Callable[[Method], Method]:
    """Return a decorator that registers a method: a function of a `Trial`.

    It raises `Undefined` where it cannot speak of what it was given; the reason stands in the result.

    Args:
        name: of the method.
        asks: "turns" for one that asks the agent for more through `Trial.asking`, which costs answers, "inside" for one
            that looks into it through `Trial.opened`: both are used where they are named, and not by default.

    Raises:
        ValueError: a name that is taken, or something else to ask for.
    """
    if asks not in get_args(Asks):
        raise ValueError(f"a method must ask for one of {', '.join(get_args(Asks))}, got {asks!r}")

    def add(function: Method) -> Method:
        registry.register("attribution", name, made_of=function)(RegisteredMethod(function, asks))
        return function

    return add


def usual_methods() -> list[str]:
    """Return the names of the methods that ask for nothing beyond the answers of a trial."""
    return [name for name in registry.names("attribution") if registry.resolve("attribution", name).asks == "nothing"]


def predicted(parts: Sequence[PredictedPart], often: Array, answers: Answers) -> Array:
    """Return ``[N, A]`` the probabilities of actions that a verdict predicts for the steps of a world.

    Args:
        parts: what the verdict predicts; those that mean nothing in this world are left out.
        often: ``[A]`` how often the agent took each action before.
        answers: the steps, of which only state and time are read.
    """
    even, mixed, total = (
        answers.world.even[answers.state],
        np.zeros((len(answers.state), answers.world.process.actions)),
        0.0,
    )
    for part in parts:
        try:
            policy = _policy(part, often, answers)
        except Undefined:
            continue
        mixed += part.weight * policy[np.minimum(answers.time, len(policy) - 1), answers.state]
        total += part.weight
    if not total:
        return (
            even if not len(often) else predicted([PredictedPart(hypothesis=FREQUENCIES, weight=1.0)], often, answers)
        )
    return np.asarray((1 - LAPSE) * mixed / total + LAPSE * even)


def _policy(part: PredictedPart, often: Array, answers: Answers) -> Array:
    if part.hypothesis == FREQUENCIES:
        if len(often) != answers.world.process.actions:
            raise Undefined("another number of actions")
        weights = np.where(answers.world.even > 0, often, 0.0) + 1e-12 * (answers.world.even > 0)
        return np.asarray((weights / weights.sum(axis=1, keepdims=True))[None])
    solved = parse(part.hypothesis).solved(answers.world)
    if part.rationality is None:
        strength = min(max(part.strength, 0.0), 1.0)
        return np.asarray(strength * solved.policy + (1 - strength) * answers.world.even)
    if solved.utility is None:
        raise Undefined("a policy has no utility")
    soft = SoftProcess(answers.world.process.mdp(solved.utility, answers.world.horizon, terminal=None))
    return soft.soft_policy(part.rationality * soft.span)
