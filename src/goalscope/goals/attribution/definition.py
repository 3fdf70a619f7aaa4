"""The interface of attribution methods, which turn an agent's steps and hypotheses into a verdict with predictions."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np
from pydantic import Field, field_serializer

from goalscope._ground import registry
from goalscope._ground.checks import check_probability
from goalscope._ground.sealed import StrictRecord
from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Undefined
from goalscope.goals.hypotheses.score import FREQUENCIES, LEVEL, AnswerSums, Kind, ScoreVerdict, evidence
from goalscope.goals.hypotheses.states import Answers, States, answers_of
from goalscope.goals.hypotheses.written import parse, with_sentinels
from goalscope.worlds.planning.soft import SoftProcess

Said = Kind | Literal["not explained"]
"""Verdict of a method. Only methods that measure the agent's own consistency may return ``none`` (nothing fits)."""

Asks = Literal["nothing", "turns", "inside"]
"""What a method needs beyond the recorded answers: "turns" asks the agent for its first move in further worlds
(`Trial.asking`), "inside" reads its activations (`Trial.opened`)."""

NONE: Final = "none of these"
"""Name that stands for every hypothesis outside the bank."""

LAPSE: Final = 0.005
"""Minimum share of random actions in a prediction, so that a single action cannot decide a score."""


MOST_ENTRIES: Final = 10_000
"""Maximum number of entries in a list of a frozen claim."""

BoundedName = Annotated[str, Field(max_length=2_000)]
"""A name in a frozen claim, of bounded length."""

_Number = Annotated[float, Field(strict=False)]  # a number of NumPy, too
_Unbounded = Annotated[float, Field(strict=False, allow_inf_nan=True)]


class MixturePart(StrictRecord):
    """One component of a mixture of policies that predicts the agent's actions.

    Attributes:
        hypothesis: written form of the hypothesis whose policy is used, or `FREQUENCIES` for the agent's earlier action
            frequencies.
        weight: weight of this component in the mixture.
        strength: share of actions that follow the hypothesis; the rest are random. Ignored where `rationality` is set.
        rationality: rationality of the soft-optimal policy, in nats per unit of utility; None to use `strength`.
    """

    hypothesis: Annotated[str, Field(min_length=1, max_length=2_000)]
    weight: _Number = Field(ge=0, le=1e6)
    strength: _Number = Field(default=1.0, ge=-1e6, le=1e6)
    rationality: _Number | None = Field(default=None, ge=-1e300, le=1e300)


class Attribution(StrictRecord):
    """What one attribution method concludes about an agent's goal, and what it predicts of the agent's actions.

    A frozen claim (one that is stored before new worlds test it) leaves out the sentence, score and details.

    Attributes:
        method: name of the method.
        kind: the verdict: "named" (one hypothesis), "set" (several that were not separated), "partly", "habit",
            "random", "none" (of the hypotheses), "not explained" or "undecided".
        names: the hypotheses that the verdict names.
        sentence: the verdict in words.
        weights: name -> weight that the method gives each hypothesis, with `NONE` for all other hypotheses if the
            method has such a weight. Infinite weights are left out of a claim.
        predicts: parts of the mixture that predicts single actions; if empty, the agent's earlier action frequencies
            predict them.
        score: the full verdict of the consistency score; None for other methods.
        details: further JSON values, which differ from method to method.
        turns: number of additional answers that the method asked the agent for; set by `judged`.
    """

    method: BoundedName
    kind: Said
    names: tuple[BoundedName, ...] = Field(max_length=MOST_ENTRIES, strict=False)
    sentence: str = ""
    weights: Mapping[BoundedName, _Unbounded] = Field(default_factory=dict, max_length=MOST_ENTRIES, strict=False)
    predicts: tuple[MixturePart, ...] = Field(default=(), max_length=MOST_ENTRIES, strict=False)
    score: ScoreVerdict | None = None
    details: Mapping[str, Any] = Field(default_factory=dict, strict=False)
    turns: int = Field(default=0, ge=0, lt=2**63)

    @field_serializer("weights", when_used="json")
    def _bounded(self, weights: Mapping[str, float]) -> dict[str, float]:
        return {name: float(value) for name, value in weights.items() if math.isfinite(value)}

    def to_plain(self) -> dict[str, Any]:
        """Return all fields as a dictionary of JSON values."""
        return self.model_dump()


def kind_of(finding: Finding) -> Said:
    """Translate the reason that a finding gives for its answer into a verdict of attribution methods.

    A finding is the decision on what an agent is after. The result is such as "named" (one hypothesis) or "set"
    (several).
    """
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
    """Lets an attribution method ask the agent for further answers, and records how many it asked for.

    Calling the object with worlds returns the agent's answers in their first states.

    Attributes:
        first_turns: function from worlds to answers: the agent answers twice in the first state of each world.
        worlds: worlds in which the agent has been asked so far.
    """

    first_turns: Callable[[Sequence[FiniteWorld]], list[Answers]]
    worlds: list[FiniteWorld] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """Number of answers that the attribution method has requested from the agent so far.

        They are two per world: the agent answers twice in the first state of each world.
        """
        return 2 * len(self.worlds)

    def __call__(self, worlds: Sequence[FiniteWorld]) -> list[Answers]:
        """Ask the agent for its first move in each world; answers without an action are left out."""
        self.worlds.extend(worlds)
        return self.first_turns(worlds)


@dataclass(kw_only=True, eq=False)
class Looking:
    """Lets an attribution method read and patch an agent's activations, and records the worlds it used.

    Attributes:
        read: function from N pairs (world, state) and the name of a network to ``[N, D]`` activations of width D at the
            end of the prompt.
        networks: names of the agent's own network and of the random networks that serve as controls.
        patched: function from N pairs of worlds to ``[N, 2, A]`` move probabilities in the first state of the first
            world, with the activations of the second world patched in and without. If it is a text, patching is
            impossible and the text is the reason.
        worlds: worlds used so far.
        answers: number of move distributions computed so far.
    """

    read: Callable[[Sequence[tuple[FiniteWorld, int]], str], Array]
    networks: Sequence[str]
    patched: Callable[[Sequence[tuple[FiniteWorld, FiniteWorld]]], Array] | str
    worlds: list[FiniteWorld] = field(default_factory=list)
    answers: int = 0

    def vectors(self, places: Sequence[tuple[FiniteWorld, int]]) -> dict[str, Array]:
        """Return the activations of each network when the agent is shown given states.

        Args:
            places: N pairs (world, number of a state).

        Returns:
            Name of a network -> ``[N, D]`` activations; the agent's own network and random ones as controls.
        """
        self._seen(world for world, _ in places)
        return {network: self.read(places, network) for network in self.networks}

    def put_in(self, pairs: Sequence[tuple[FiniteWorld, FiniteWorld]]) -> Array:
        """Patch the activations of one world into another, and return the agent's move probabilities with and without.

        Args:
            pairs: N pairs of worlds: the one in which the agent moves, and the one whose activations are patched in.

        Returns:
            ``[N, 2, A]`` probabilities of A moves, with the patch (index 0) and without (index 1).

        Raises:
            Undefined: this agent's activations cannot be patched.
        """
        if isinstance(self.patched, str):
            raise Undefined(self.patched)
        self._seen(world for pair in pairs for world in pair)
        self.answers += 2 * len(pairs)
        return self.patched(pairs)

    def _seen(self, worlds: Iterable[FiniteWorld]) -> None:
        self.worlds = list({id(world): world for world in (*self.worlds, *worlds)}.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """The input of an attribution method: what one agent did, the hypotheses to compare, and access to the agent.

    Attributes:
        states: the recorded episodes of one agent, world by world.
        bank: the hypotheses to compare, by name.
        seed: root seed of random numbers.
        level: error rate of each one-sided end of an interval.
        ask: asks the agent for further answers; None if it cannot be asked.
        inside: reads the agent's activations; a text says why this is impossible.
    """

    states: Sequence[States]
    bank: Mapping[str, Hypothesis]
    seed: int = 0
    level: float = LEVEL
    ask: Asking | None = None
    inside: Looking | str = "activations can be read only in organisms that are language models"

    def __post_init__(self) -> None:
        check_probability("level", self.level)
        if not self.states or not self.bank:
            raise ValueError(
                f"attribution needs episodes in at least one world, and at least one hypothesis, got "
                f"{len(self.states)} worlds and {len(self.bank)} hypotheses"
            )

    @cached_property
    def answers(self) -> list[Answers]:
        """The recorded answers in each world.

        Where the agent was asked twice in a step, they include both answers; the second one is not carried out.
        """
        return answers_of(self.states)

    @property
    def twice(self) -> bool:
        """Whether every recorded step has two independent answers, or the exact probabilities of its actions."""
        return all(answers.second is not None for answers in self.answers)

    @property
    def asking(self) -> Asking:
        """Object with which a method asks the agent for further answers.

        Raises:
            Undefined: the agent cannot be asked.
        """
        if self.ask is None:
            raise Undefined("this method asks the agent in further worlds, which a recorded run cannot answer")
        return self.ask

    @property
    def opened(self) -> Looking:
        """Object with which a method reads and patches the agent's activations.

        Raises:
            Undefined: the activations are not accessible; the message is the reason.
        """
        if isinstance(self.inside, str):
            raise Undefined(self.inside)
        return self.inside

    @property
    def turns(self) -> int:
        """Number of answers that methods have requested from the agent so far, beyond the recorded ones."""
        return (0 if self.ask is None else self.ask.turns) + (
            0 if isinstance(self.inside, str) else self.inside.answers
        )

    @cached_property
    def hypotheses(self) -> dict[str, Hypothesis]:
        """The hypotheses to compare by name, followed by the built-in control hypotheses that are not among them."""
        return with_sentinels(self.bank)

    @cached_property
    def evidence(self) -> AnswerSums:
        """The sums over the agent's steps from which the consistency score of each hypothesis is computed."""
        return evidence(self.answers, self.hypotheses, len(self.bank))


Method = Callable[[Trial], Attribution]


@dataclass(frozen=True, slots=True)
class RegisteredMethod:
    """A function that attributes a goal to an agent, together with what it needs beyond the recorded answers.

    Call it with a `Trial` (the agent's episodes and the hypotheses); it returns an `Attribution` (the verdict).
    ``asks`` is "nothing", "turns" (further answers of the agent) or "inside" (its activations).
    """

    function: Method
    asks: Asks

    def __call__(self, trial: Trial) -> Attribution:
        """Apply the method to a trial."""
        return self.function(trial)


def attribution(name: str, *, asks: Asks = "nothing") -> Callable[[Method], Method]:
    """Return a decorator that registers a function as an attribution method, which names the goal of an agent.

    The function takes a `Trial` (the agent's episodes and the hypotheses) and returns an `Attribution` (the verdict).
    It raises `Undefined` if the method does not apply; the result then states the reason.

    Args:
        name: name of the method.
        asks: "turns" if the method asks the agent for further answers through `Trial.asking`, "inside" if it reads the
            agent's activations through `Trial.opened`. Such methods run only if the user names them.

    Raises:
        ValueError: the name is already registered, or `asks` is none of these.
    """
    if asks not in get_args(Asks):
        raise ValueError(f"asks must be one of {', '.join(get_args(Asks))}, got {asks!r}")

    def add(function: Method) -> Method:
        registry.register("attribution", name, made_of=function)(RegisteredMethod(function, asks))
        return function

    return add


def usual_methods() -> list[str]:
    """Return the names of the attribution methods that run by default: those that need only the recorded answers."""
    return [name for name in registry.names("attribution") if registry.resolve("attribution", name).asks == "nothing"]


def predicted(parts: Sequence[MixturePart], often: Array, answers: Answers) -> Array:
    """Return the action probabilities that an attribution predicts for an agent's steps in one world.

    Args:
        parts: components of the predicting mixture; those that are undefined in this world are left out. Without any,
            the agent's earlier action frequencies predict its actions.
        often: ``[A]`` frequency of each action in the agent's earlier steps; empty if there are none.
        answers: the N steps to predict; only their state and time are used.

    Returns:
        ``[N, A]`` probabilities.
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
        return even if not len(often) else predicted([MixturePart(hypothesis=FREQUENCIES, weight=1.0)], often, answers)
    return np.asarray((1 - LAPSE) * mixed / total + LAPSE * even)


def _policy(part: MixturePart, often: Array, answers: Answers) -> Array:
    if part.hypothesis == FREQUENCIES:
        if len(often) != answers.world.process.actions:
            raise Undefined("the world has a different number of actions")
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


def lower_end(values: Array, level: float) -> float:
    """Return the one-sided lower confidence bound (Student's t) of the mean of values, one per world.

    Args:
        values: ``[G]`` values, one per cluster (a world with its versions); with fewer than two, the bound is minus
            infinity.
        level: error rate.
    """
    if len(values) < 2:
        return float("-inf")
    from scipy.special import stdtrit

    return float(values.mean() - stdtrit(len(values) - 1, 1 - level) * values.std(ddof=1) / np.sqrt(len(values)))
