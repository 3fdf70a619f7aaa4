"""Freeze a claim before it is tested: the verdicts and predictions of all methods, in a file with one content id.

The claim is then tested in new worlds that separate the hypotheses: each action that the agent takes there is scored,
and the scores are averaged over clusters of worlds. Below, p are the predicted probabilities of a step, a is the action
taken, a' the second answer, and q the agent's own unknown probabilities:

    log score       mean log p(a), in nats; all offered actions equally likely have -log m
    its ceiling     log of the mean of 1[a = a']: E log p(a) <= E log sum q^2 <= log E 1[a = a'], whatever p
    distance        mean of 1[a = a'] - 2 p(a) + sum p^2, unbiased for |p - q|^2, 0 for the agent's own probabilities
    calibration     for each tenth of the predicted probabilities: their mean, and how often these actions were taken

Source: Good (1952), Rational decisions (log score); Brier (1950); Jensen's inequality for the ceiling.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from goalscope._ground import registry
from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.parts import attempt
from goalscope._ground.sealed import SealedRecord, Share, StrictRecord, content_id_of, read_sealed, write_sealed
from goalscope.goals.attribution.definition import (
    MOST_ENTRIES,
    Attribution,
    BoundedName,
    MixturePart,
    Trial,
    predicted,
)
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import write_hypotheses

FILE = "claim.json"
_LARGEST: Final = 10_000_000  # bytes of a claim
_MOST_ACTIONS: Final = 10_000


class Stratum(StrictRecord):
    """A group of worlds that is judged together.

    Attributes:
        name: name of the group, such as "phase trained"; "" for all worlds.
        clusters: number of clusters of worlds.
        often: number of actions A -> ``[A]`` frequency of each action in the worlds with A actions.
        attributions: the verdict of each method; the file calls this key "said".
        answer, names, bar: answer and names of the decision (`goalscope.goals.decision`), and the gain that the named
            hypothesis must exceed in other worlds (`goalscope.goals.gain`); "", () and None without a decision.
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


class FrozenClaim(SealedRecord):
    """The verdicts and predictions of methods about one agent, as stored in `claim.json`.

    Sentences for readers are not stored and do not enter the id; after reading, they are empty.

    Attributes:
        version: version of the file format; other versions are refused.
        agent: content id of the agent.
        hypotheses: the bank, as written by `write_hypotheses`.
        worlds: content id of the worlds that the claim is based on.
        tested_on: study or run whose worlds the claim will be tested on; None if none is named.
        strata: verdicts by group of worlds.
    """

    what: ClassVar[str] = "frozen claim"
    advice: ClassVar[str] = "a frozen claim must not change: restore it from a copy, or choose another directory"
    most: ClassVar[int] = _LARGEST
    version: Literal[3] = 3
    agent: BoundedName
    hypotheses: tuple[BoundedName | dict[BoundedName, BoundedName], ...] = Field(max_length=MOST_ENTRIES)
    worlds: Annotated[str, content_id_of("worlds")]
    tested_on: dict[BoundedName, BoundedName] | None
    strata: tuple[Stratum, ...] = Field(min_length=1, max_length=MOST_ENTRIES)

    def plain(self) -> dict[str, Any]:
        """Return the frozen content as plain JSON values."""
        of_method = {"sentence": True, "score": True, "details": True}
        of_stratum: dict[str, Any] = {"refused": True, "attributions": {"__all__": of_method}}
        return self.model_dump(mode="json", by_alias=True, exclude={"strata": {"__all__": of_stratum}})

    @property
    def id(self) -> str:
        """Content id of the claim; it does not depend on the version of the file format."""
        return content_id("claim", {key: value for key, value in self.plain().items() if key != "version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionScore:
    """How well one method of a claim predicts single actions in new worlds.

    Attributes:
        stratum, method: group of worlds and method of the claim.
        clusters, steps: number of clusters and of steps in the new worlds.
        log_score: mean log score with lower and upper end, in nats per action.
        random: mean log score of equally likely actions, in nats per action.
        ceiling: log score that no prediction exceeds on average; None without second answers.
        distance: squared distance from the agent's own probabilities with lower and upper end; None without second
            answers.
        calibration: (mean predicted probability, share taken, count) for each tenth of the predicted probabilities.
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


def judged(name: str, trial: Trial, methods: Sequence[str]) -> Stratum:
    """Apply methods to one group of worlds; methods that fail or do not apply are listed with the reason."""
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
    tested_on: dict[str, str] | None,
    strata: Sequence[Stratum],
) -> FrozenClaim:
    """Assemble a claim from the verdicts on groups of worlds.

    Args:
        agent: content id of the agent.
        bank: name -> hypothesis.
        all_answers: the answers that the verdicts are based on, world by world.
        tested_on: study or run whose worlds the claim will be tested on; None if none is named.
        strata: verdicts by group of worlds.
    """
    worlds = sorted((answers.world.world.id, answers.world.horizon) for answers in all_answers)
    return FrozenClaim(
        agent=agent,
        hypotheses=tuple(write_hypotheses(bank)),
        worlds=content_id("worlds", [list(world) for world in worlds]),
        tested_on=tested_on,
        strata=tuple(strata),
    )


def freeze_claim(claim: FrozenClaim, directory: Path) -> None:
    """Write a claim to a directory. A claim that already exists there must be identical.

    Raises:
        ValueError: the directory holds a different claim, or a file that is not a claim.
    """
    path = Folder(directory).file(FILE)
    if Folder(directory).has_file(FILE):
        frozen = read_sealed(FrozenClaim, path).id
        if frozen != claim.id:
            raise ValueError(
                f"{path} already holds the frozen claim {frozen}, and this claim is {claim.id}: choose another "
                "directory, or use the hypotheses, methods and worlds of the first claim"
            )
        return
    write_sealed(path, claim)


def read_claim(path: Path) -> FrozenClaim:
    """Read a frozen claim; its sentences for readers are empty.

    Raises:
        ValueError: the file is not a claim, or was changed after it was frozen.
        OSError: the file does not exist or cannot be read.
    """
    return read_sealed(FrozenClaim, path)


def scored(claim: FrozenClaim, all_answers: Sequence[Answers], level: float = 0.05) -> tuple[PredictionScore, ...]:
    """Score how well each method of a claim predicts the agent's actions in new worlds.

    Args:
        claim: the frozen claim.
        all_answers: the agent's answers in the new worlds, world by world.
        level: error rate of the two-sided intervals.
    """
    return tuple(
        _test(stratum, attribution.method, attribution.predicts, all_answers, level)
        for stratum in claim.strata
        for attribution in stratum.attributions
    )


def _test(
    stratum: Stratum, method: str, parts: Sequence[MixturePart], all_answers: Sequence[Answers], level: float
) -> PredictionScore:
    twice = all(answers.second is not None for answers in all_answers)
    clusters: dict[str, list[Array]] = {}
    pairs = list[tuple[Array, Array]]()
    for answers in all_answers:
        chances = predicted(parts, np.array(stratum.often.get(answers.world.process.actions, ())), answers)
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
        stratum=stratum.name,
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
