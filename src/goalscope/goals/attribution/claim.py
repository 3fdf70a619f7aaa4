"""Freeze a claim before it is tested, and score it: verdicts and predictions about one agent, with one content id.

`goalscope attribute` claims which hypothesis the agent follows, and what each method predicts of single actions.
`goalscope predict` claims, for each kind of unseen worlds, which places the agent reaches first, and its actions.

The score says how the claim predicts the agent in worlds that were opened after it was frozen. Each action that the
agent takes there is scored, and the scores are averaged over clusters of worlds. Below, p are the
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
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from goalscope._ground import registry
from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.own import attempt
from goalscope._ground.sealed import (
    SealedRecord,
    Share,
    ShareEnds,
    StrictRecord,
    content_id_of,
    read_sealed,
    write_sealed,
)
from goalscope.goals.attribution.definition import MOST_ENTRIES, Attribution, BoundedName, Trial, predicted
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Undefined
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers, first_shares
from goalscope.goals.hypotheses.written import parse, write_hypotheses
from goalscope.goals.prediction.kinds import KindsOfWorlds, acting_states, places_in, with_none

FILE = "claim.json"
NONE_OF_PLACES: Final = "none"
"""Name of the outcome that no place is reached."""

Trust = Literal["good", "poor"]

_BEFORE: Final = "prediction.json"  # of earlier versions
_LARGEST: Final = 50_000_000  # bytes of a claim
_MOST_ACTIONS: Final = 10_000
_OF_KINDS: Final = frozenset({"kinds", "weights", "distance", "trust", "doubts"})

Row = Annotated[tuple[Share, ...], Field(max_length=MOST_ENTRIES)]
Rows = Annotated[tuple[Row, ...], Field(max_length=MOST_ENTRIES)]


MIXTURE: Final = "mixture"
"""Name of the method that predicts an agent in kinds of unseen worlds."""
_LEAST: Final = 1e-4  # least probability of an offered action in a prediction of a kind, which has four digits


class Stratum(StrictRecord):
    """A group of worlds that is judged together, with the verdict of each attribution method on the agent there.

    An attribution method names the goal of an agent from its answers, such as the consistency score.

    Attributes:
        name: name of the group, such as "phase trained"; "" for all worlds.
        clusters: number of clusters of worlds (a cluster is a world with its versions, such as mirrored ones).
        often: number of actions A of a world -> ``[A]`` how often the agent takes each action in worlds with A actions,
            as shares.
        attributions: the verdict of each method; the file calls this key "said".
        answer, names: whether the agent pursues a goal ("yes", "no", "undecided" or "untestable"), and the hypotheses
            that this answer names, as `goalscope.goals.decision` decides it from all figures; "" and () if this
            decision was not made.
        bar: the claim is confirmed if the agent follows the named hypothesis in other worlds more strictly than this
            (see `goalscope.goals.decision.with_bar`); None without a decision.
        refused: method -> why it gives no verdict; not in the file.
    """

    # With `alias` instead, type checkers would demand the file's key in Python code as well.
    model_config = ConfigDict(populate_by_name=True)

    name: BoundedName
    clusters: int = Field(ge=0, lt=2**63)
    often: dict[int, tuple[Share, ...]] = Field(max_length=MOST_ENTRIES)
    attributions: tuple[Attribution, ...] = Field(
        max_length=MOST_ENTRIES, validation_alias="said", serialization_alias="said"
    )
    answer: BoundedName = ""
    names: tuple[BoundedName, ...] = Field(default=(), max_length=MOST_ENTRIES)
    bar: float | None = Field(default=None, ge=0, le=1)
    refused: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for size, shares in self.often.items():
            if not 1 <= size <= _MOST_ACTIONS or len(shares) != size or abs(math.fsum(shares) - 1) > 1e-6:
                raise ValueError(f"often.{size} must be the shares of {size} actions that sum to 1")
        return self


class KindPrediction(StrictRecord):
    """How an agent is predicted to act in W unseen worlds of one kind, and which of K places it reaches first there.

    Attributes:
        kind: name of the kind of worlds.
        worlds: ids of the worlds.
        trust: how far to trust the prediction, "good" or "poor".
        shares: place, or "none" -> predicted share of the worlds where the agent reaches it first, with the lower and
            upper end of its 90 % interval.
        scales: place, or "none" -> scale of this interval, whose ends lie a multiple of the scale from the share.
        nats: expected log probability of the agent's actions, in nats per action.
        chances: ``[W, K + 1]`` for each world the probability that each of K places is reached first; the last column
            is the probability that none is reached.
        moves: for each world ``[S, A]`` the predicted probabilities of actions in its `acting_states` (the states in
            which the agent can have to act).
        baselines: a simpler prediction ("one rule", "as seen", "optimal", "random") -> ``[W, K + 1]`` as ``chances``.
    """

    kind: BoundedName
    worlds: tuple[BoundedName, ...] = Field(min_length=1, max_length=MOST_ENTRIES)
    trust: Trust
    shares: dict[BoundedName, ShareEnds]
    scales: dict[BoundedName, float]
    nats: float
    chances: Rows
    moves: Annotated[tuple[Rows, ...], Field(max_length=MOST_ENTRIES)]
    baselines: dict[BoundedName, Rows]

    @property
    def main(self) -> str:
        """The place that the agent is expected to reach first most often; "none" if it is expected to reach no
        place.
        """
        return max(self.shares, key=lambda place: self.shares[place][0])


class FrozenClaim(SealedRecord):
    """What is claimed about one agent, stored in `claim.json` before it is tested in new worlds.

    There are two sorts of claims: about the goal of the agent in groups of worlds that were seen (``strata``), or about
    its behaviour in kinds of unseen worlds (a prediction, ``kinds``). The file of a claim of the first sort leaves out
    the fields ``kinds`` to ``doubts``. Sentences for readers are not stored and do not enter the id; after reading,
    they are empty.

    Attributes:
        version: version of the file format; other versions are refused.
        agent: content id of the agent.
        hypotheses: the hypotheses that were compared, as written by `write_hypotheses`.
        worlds: content id of the worlds that the claim is based on.
        tested_on: worlds that the claim will be tested on: a study or a run, by its id, or ``kinds``, a design of
            `KindsOfWorlds`; None if none are named.
        strata: verdicts by group of worlds.
        kinds: expected behaviour in each kind of unseen worlds.
        weights: name of a rule, or of a learned policy for behaviour that no rule explains -> its weight in the
            prediction.
        distance: mean squared distance of the predicted action probabilities from the agent's own, in worlds left out
            of the fit; ``trust`` rests on it. None if no step was answered twice.
        trust: how far to trust the prediction in worlds like those that were seen.
        doubts: what the data cannot decide about the unseen worlds.
    """

    what: ClassVar[str] = "frozen claim"
    advice: ClassVar[str] = (
        "a frozen claim must not change: restore it from a copy, or claim again with goalscope attribute or goalscope "
        "predict, in another directory (--out)"
    )
    most: ClassVar[int] = _LARGEST
    version: Literal[3] = 3
    agent: BoundedName
    hypotheses: tuple[BoundedName | dict[BoundedName, BoundedName], ...] = Field(max_length=MOST_ENTRIES)
    worlds: Annotated[str, content_id_of("worlds")]
    tested_on: dict[BoundedName, BoundedName] | dict[Literal["kinds"], dict[BoundedName, Any]] | None
    strata: tuple[Stratum, ...] = Field(max_length=MOST_ENTRIES)
    kinds: tuple[KindPrediction, ...] = Field(default=(), max_length=100)
    weights: dict[BoundedName, Share] = Field(default_factory=dict)
    distance: float | None = None
    trust: Trust = "poor"
    doubts: tuple[BoundedName, ...] = ()

    @model_validator(mode="after")
    def _claims_something(self) -> Self:
        if not self.strata and not self.kinds:
            raise ValueError("must have a verdict in strata, or a prediction in kinds")
        return self

    def plain(self) -> dict[str, Any]:
        """Return what the claim says as a dictionary of JSON values, without the sentences for readers."""
        of_method = {"sentence": True, "score": True, "details": True}
        of_stratum: dict[str, Any] = {"refused": True, "attributions": {"__all__": of_method}}
        values = self.model_dump(mode="json", by_alias=True, exclude={"strata": {"__all__": of_stratum}})
        return {key: value for key, value in values.items() if self.kinds or key not in _OF_KINDS}

    @property
    def id(self) -> str:
        """Content id of the claim (a hash); it does not depend on the version of the file format."""
        return content_id("claim", {key: value for key, value in self.plain().items() if key != "version"})

    @cached_property
    def design(self) -> KindsOfWorlds:
        """The design of a prediction: its kinds of unseen worlds, and the places that the agent may reach first there.

        Raises:
            ValueError: the claim is not a prediction, or its design is not valid.
        """
        return KindsOfWorlds.read((self.tested_on or {}).get("kinds"), "kinds, in tested_on of the claim")

    @cached_property
    def unseen(self) -> dict[str, tuple[FiniteWorld, ...]]:
        """The worlds that a prediction is about: name of a kind of worlds -> its worlds, generated from the design.

        Raises:
            ValueError: the design has other worlds, or they do not fit the probabilities.
        """
        places, worlds_of = {*self.design.places, NONE_OF_PLACES}, dict[str, tuple[FiniteWorld, ...]]()
        alike = [kind.name for kind in self.design.kinds] == [claim.kind for claim in self.kinds]
        for kind, claim in zip(self.design.kinds, self.kinds, strict=False):
            worlds = self.design.named(kind, claim.worlds)
            if not alike or len(worlds) != len(claim.worlds):
                raise ValueError(
                    f"the design of {self.id} now makes other worlds than those it names: another version of goalscope "
                    f"made it; {self.advice}"
                )
            tables = [claim.chances, *claim.baselines.values()]
            shapes = {(len(table), *{len(row) for row in table}) for table in tables}
            moves = [(len(table), *{len(row) for row in table}) for table in claim.moves]
            fitting = shapes == {(len(worlds), len(places))} and {*claim.shares} == {*claim.scales} == places
            if not fitting or moves != [(len(acting_states(world)), world.process.actions) for world in worlds]:
                raise ValueError(f"the probabilities of kind {claim.kind} do not fit its worlds; {self.advice}")
            worlds_of[claim.kind] = worlds
        return worlds_of


def judged(name: str, trial: Trial, methods: Sequence[str]) -> Stratum:
    """Apply attribution methods, which name the goal of an agent, to its answers in one group of worlds.

    Args:
        name: name of the group of worlds, such as "phase trained"; "" for all worlds.
        trial: what the agent did there, and the hypotheses to compare.
        methods: names of registered attribution methods.

    Returns:
        The group with the verdict of each method. A method that fails or does not apply is listed with the reason.
    """
    attributions, refused = list[Attribution](), dict[str, str]()

    def work(method: str) -> None:
        before = trial.turns
        try:
            verdict: Attribution = registry.resolve("attribution", method)(trial)
            attributions.append(verdict.model_copy(update={"turns": trial.turns - before}))
        except Undefined as error:
            refused[method] = str(error)

    for method in methods:
        attempt("attribution", method, partial(work, method), partial(refused.setdefault, method))
    often: dict[int, Array] = {}
    for answers in trial.answers:
        size = answers.world.process.actions
        often[size] = often.get(size, np.zeros(size)) + answers.first.sum(axis=0)
    return Stratum(
        name=name,
        clusters=len({answers.cluster for answers in trial.answers}),
        often={size: tuple((count / count.sum()).tolist()) for size, count in often.items()},
        attributions=tuple(attributions),
        refused=refused,
    )


def claim_of(
    agent: str,
    bank: Mapping[str, Any],
    all_answers: Sequence[Answers],
    tested_on: dict[str, Any] | None,
    strata: Sequence[Stratum],
    **prediction: Any,
) -> FrozenClaim:
    """Assemble a claim from the verdicts on groups of worlds, or from a prediction of kinds of worlds.

    Args:
        agent: content id of the agent.
        bank: the hypotheses that were compared, by name.
        all_answers: the answers that the verdicts are based on, world by world.
        tested_on: worlds that the claim will be tested on; None if none are named.
        strata: verdicts by group of worlds.
        prediction: the fields of `FrozenClaim` that only a prediction has.
    """
    worlds = sorted((answers.world.world.id, answers.world.horizon) for answers in all_answers)
    return FrozenClaim(
        agent=agent,
        hypotheses=tuple(write_hypotheses(bank)),
        worlds=content_id("worlds", [list(world) for world in worlds]),
        tested_on=tested_on,
        strata=tuple(strata),
        **prediction,
    )


def freeze_claim(claim: FrozenClaim, directory: Path) -> None:
    """Write a claim to a directory, so that it is fixed before it is tested. An equal claim may already exist there.

    Raises:
        ValueError: the directory holds a different claim, or a file that is not a claim.
    """
    path = Folder(directory).file(FILE)
    if holds_claim(directory):
        frozen = read_claim(directory).id
        if frozen != claim.id:
            raise ValueError(
                f"{path} already holds the frozen claim {frozen}, and this claim is {claim.id}: choose another "
                "directory (--out), or use the options and worlds of the first claim"
            )
        return
    write_sealed(path, claim)


def holds_claim(path: Path) -> bool:
    """Return whether a path is the file of a frozen claim, or a directory with one; files of earlier versions count."""
    return path.name in (FILE, _BEFORE) or any(Folder(path).has_file(name) for name in (FILE, _BEFORE))


def read_claim(path: Path) -> FrozenClaim:
    """Read a frozen claim from its file, or from the directory that holds it.

    Sentences for readers are not stored, so they are empty in the result.

    Raises:
        ValueError: the file is not a claim, or was changed after it was frozen.
        OSError: the file does not exist or cannot be read.
    """
    folder = Folder(path)
    if path.name == _BEFORE or (folder.has_file(_BEFORE) and not folder.has_file(FILE)):
        raise ValueError(
            f"{path} holds a prediction of an earlier version ({_BEFORE}), which cannot be read: predict again with "
            "goalscope predict AGENT --worlds WORLDS --out DIRECTORY, in another directory"
        )
    return read_sealed(FrozenClaim, folder.file(FILE) if folder.is_there() else path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionScore:
    """How well a claim predicted an agent in new worlds.

    A claim about goals has one score for each attribution method, over all new worlds; a prediction has one for each
    kind of worlds.

    Attributes:
        stratum, method: group of worlds and attribution method; for a prediction, name of the kind and `MIXTURE`.
        clusters, steps: number of clusters (a cluster is a world with its versions) and of steps in the new worlds.
        log_score: mean log probability of the agent's actions, with lower and upper end, in nats per action.
        random: mean log probability if all actions were predicted equally likely, in nats per action.
        ceiling: log score that no prediction exceeds on average; None if no step was answered twice.
        distance: mean squared distance of the predicted action probabilities from the agent's own, with lower and upper
            end; None if no step was answered twice.
        calibration: (mean predicted probability, share of these actions that were taken, count) for each tenth of the
            predicted probabilities.
        shares: for a prediction, place -> share of the worlds where the agent reached it first.
        holds: place -> whether the predicted interval contains this share.
        is_held: ``holds`` for the place that was expected most often; None for a method.
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
    """Score how well a claim predicts the agent in worlds that were opened after it was frozen.

    Each attribution method of the claim is scored in all new worlds, each kind of worlds of a prediction in its own. A
    kind of worlds is left out if one of its worlds has no answer.

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
    """Sort an agent's answers by the kinds of worlds in which a claim predicts the agent's behaviour.

    Args:
        claim: a prediction with its kinds of worlds, such as grids with a key.
        all_answers: the agent's answers, one entry per world; other worlds are ignored.

    Returns:
        Name of each kind -> the entries of its worlds, without the worlds in which the agent gave no answer.
    """
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
    """Return the Kullback-Leibler divergence of predicted shares from true ones, in nats.

    Predictions are mixed with 1 % of equal shares, so that no single outcome is infinitely surprising.

    Args:
        true, predicted: ``[..., K]`` shares that sum to 1 over the last axis, which is summed out.
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
