"""A prediction that is frozen before anybody looks, in a file with one content id, and how it did in the worlds.

For each kind of worlds the file holds the shares of the places reached first with 90 % intervals, the probabilities and
the policy in each world, and what other predictions say (`goalscope.goals.prediction.expected.BASELINES`). A policy is
kept for the states in which an episode can be, in the order of their numbers.

The share that is seen in W worlds scatters around the true one. It is held by an interval [low, high] if it lies in

    [low - e, high + e]      e = 1.645 sqrt(sum over worlds of p (1 - p)) / W,  p the predicted probability in a world

A kind is held if the interval of the place that was expected most often holds the share that was seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.sealed import SealedRecord, Share, ShareEnds, StrictRecord, read_sealed, write_sealed
from goalscope.goals.attribution.definition import MOST_ENTRIES, BoundedName
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Numbers
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.expected import (
    LEAST,
    Expected,
    ExpectedKind,
    Trust,
    divergence,
    first_place,
    nats_of,
)
from goalscope.goals.prediction.kinds import KindsOfWorlds, UnseenWorlds

FILE: Final = "prediction.json"

_LARGEST: Final = 50_000_000  # bytes of a claim
_DIGITS: Final = 4  # of probabilities

Row = Annotated[tuple[Share, ...], Field(max_length=MOST_ENTRIES)]
Rows = Annotated[tuple[Row, ...], Field(max_length=MOST_ENTRIES)]


class KindPrediction(StrictRecord):
    """What is expected in one kind of W worlds.

    Attributes:
        kind: name of the kind.
        worlds: ids of the worlds.
        trust: how far to trust it.
        shares: place -> share of the worlds where it is reached first, with the ends of its 90 % interval.
        nats: expected log probability of the agent's actions, in nats per action.
        chances: ``[W, K + 1]`` probabilities of the places by world; the last one is that of none.
        moves: by world ``[S, A]`` probabilities of actions in the states in which an episode can be.
        baselines: name of another prediction -> ``[W, K + 1]`` its probabilities.
    """

    kind: BoundedName
    worlds: tuple[BoundedName, ...] = Field(min_length=1, max_length=MOST_ENTRIES)
    trust: Trust
    shares: dict[BoundedName, ShareEnds]
    nats: float
    chances: Rows
    moves: Annotated[tuple[Rows, ...], Field(max_length=MOST_ENTRIES)]
    baselines: dict[BoundedName, Rows]


class FrozenPrediction(SealedRecord):
    """What is expected of one agent in unseen worlds, as stored in `prediction.json`.

    Attributes:
        version: version of the file format; other versions are refused.
        agent, name: content id and name of the agent.
        design: the kinds of worlds, see `KindsOfWorlds`.
        seen: ids of the worlds in which the agent was seen.
        places: names of the K places and of the outcome that none is reached.
        weights: name of a rule or fall-back -> its weight in the prediction.
        distance: held-out distance, on which trust rests; None without second answers.
        trust: how far to trust the prediction in worlds like those that were seen.
        doubts: what the data cannot decide.
        kinds: what is expected in each kind.
    """

    what: ClassVar[str] = "frozen prediction"
    advice: ClassVar[str] = "a frozen prediction must not change: restore it from a copy, or predict again"
    most: ClassVar[int] = _LARGEST
    version: Literal[1] = 1
    agent: BoundedName
    name: BoundedName
    design: dict[BoundedName, Any]
    seen: tuple[BoundedName, ...]
    places: tuple[BoundedName, ...] = Field(min_length=2, max_length=100)
    weights: dict[BoundedName, Share]
    distance: float | None
    trust: Trust
    doubts: tuple[BoundedName, ...]
    kinds: tuple[KindPrediction, ...] = Field(min_length=1, max_length=100)

    @property
    def id(self) -> str:
        """Content id of the prediction; it does not depend on the version of the file format."""
        return content_id("prediction", {key: value for key, value in self.plain().items() if key != "version"})

    def unseen(self) -> list[UnseenWorlds]:
        """Return the worlds that the prediction is about.

        Raises:
            ValueError: the worlds of its design are others, or do not fit its probabilities.
        """
        kinds = list(KindsOfWorlds.read(self.design, "the design of the prediction").unseen(set(self.seen)))
        now = [(unseen.kind, tuple(world.world.id for world in unseen.worlds)) for unseen in kinds]
        if now != [(claim.kind, claim.worlds) for claim in self.kinds]:
            raise ValueError(
                f"the design of prediction {self.id} now makes other worlds than those it names: another version of "
                f"goalscope made it; {self.advice}"
            )
        for claim, unseen in zip(self.kinds, kinds, strict=True):
            wrong = {len(row) for rows in (claim.chances, *claim.baselines.values()) for row in rows}
            shapes = [(len(table), len(table[0]) if table else 0) for table in claim.moves]
            expected = [(len(_states(world)), world.process.actions) for world in unseen.worlds]
            if wrong != {len(self.places)} or shapes != expected or set(claim.shares) != set(self.places):
                raise ValueError(f"the probabilities of kind {claim.kind} do not fit its worlds; {self.advice}")
        return kinds


def _states(world: FiniteWorld) -> Numbers:
    return np.flatnonzero(world.live & world.reached)


def prediction_of(
    expected: Expected, *, agent: str, name: str, design: KindsOfWorlds, seen: Sequence[str]
) -> FrozenPrediction:
    """Assemble a prediction; `agent` and `name` are content id and name of the agent, `seen` the ids of its worlds."""
    return FrozenPrediction(
        agent=agent,
        name=name,
        design=design.plain(),
        seen=tuple(sorted(set(seen))),
        places=expected.places,
        weights={rule: min(weight, 1.0) for rule, weight in expected.weights.items()},
        distance=expected.distance,
        trust=expected.trust,
        doubts=tuple(doubt.sentence for doubt in expected.doubts),
        kinds=tuple(_kind_claim(kind, expected.places) for kind in expected.kinds),
    )


def _kind_claim(kind: ExpectedKind, places: Sequence[str]) -> KindPrediction:
    worlds = kind.unseen.worlds
    ends = np.stack([kind.shares, *kind.ends], axis=1)
    nats = [nats_of(world, foreseen.moves) for world, foreseen in zip(worlds, kind.foreseen, strict=True)]
    return KindPrediction(
        kind=kind.unseen.kind,
        worlds=tuple(world.world.id for world in worlds),
        trust=kind.trust,
        shares=dict(zip(places, map(tuple, _rounded(ends)), strict=True)),
        nats=float(np.mean(nats)),
        chances=_rounded(kind.chances),
        moves=tuple(
            _rounded(foreseen.moves[_states(world)]) for world, foreseen in zip(worlds, kind.foreseen, strict=True)
        ),
        baselines={name: _rounded(chances) for name, chances in kind.baselines.items()},
    )


def _rounded(rows: Array) -> Any:
    return tuple(map(tuple, np.clip(rows, 0.0, 1.0).round(_DIGITS).tolist()))


def freeze_prediction(claim: FrozenPrediction, directory: Path) -> None:
    """Write a prediction to a directory. One that already exists there must be identical.

    Raises:
        ValueError: the directory holds a different prediction, or a file that is not a prediction.
    """
    if Folder(directory).has_file(FILE):
        frozen = read_prediction(directory).id
        if frozen != claim.id:
            raise ValueError(
                f"{directory} already holds the frozen prediction {frozen}, and this one is {claim.id}: choose another "
                "directory (--out)"
            )
        return
    write_sealed(Folder(directory).file(FILE), claim)


def read_prediction(path: Path) -> FrozenPrediction:
    """Read a frozen prediction from its file, or from the directory that holds it.

    Raises:
        ValueError: the file is not a prediction, or was changed after it was frozen.
        OSError: the file does not exist or cannot be read.
    """
    return read_sealed(FrozenPrediction, Folder(path).file(FILE) if Folder(path).is_there() else path)


@dataclass(frozen=True, kw_only=True, eq=False)
class KindSeen:
    """How a prediction did in one kind of worlds.

    Attributes:
        claim: the prediction.
        places: names of the places.
        chances: ``[W, K + 1]`` shares of the episodes in each world that reached each place first.
        nats: mean log probability of the agent's actions, in nats per action.
        random: that of moves at random.
    """

    claim: KindPrediction
    places: tuple[str, ...]
    chances: Array
    nats: float
    random: float

    @property
    def shares(self) -> dict[str, float]:
        """Place -> share of the worlds where it was reached first."""
        return dict(zip(self.places, self.chances.mean(axis=0).tolist(), strict=True))

    @cached_property
    def holds(self) -> dict[str, bool]:
        """Place -> whether its interval holds the share that was seen."""
        predicted = np.array(self.claim.chances)
        scatter = 1.645 * np.sqrt((predicted * (1 - predicted)).sum(axis=0)) / len(predicted)
        return {
            place: bool(low - extra - 1e-9 <= self.shares[place] <= high + extra + 1e-9)
            for (place, (_, low, high)), extra in zip(
                ((place, self.claim.shares[place]) for place in self.places), scatter, strict=True
            )
        }

    @property
    def main(self) -> str:
        """The place that was expected most often."""
        return max(self.places, key=lambda place: self.claim.shares[place][0])

    @property
    def is_held(self) -> bool:
        """Whether the prediction of the kind was held."""
        return self.holds[self.main]

    @property
    def divergences(self) -> Mapping[str, float]:
        """Prediction ("predicted" or a baseline) -> divergence of its shares from those that were seen, in nats."""
        seen = self.chances.mean(axis=0)
        predictions = {"predicted": self.claim.chances, **self.claim.baselines}
        return {name: float(divergence(seen, np.mean(rows, axis=0))) for name, rows in predictions.items()}


def compare(claim: FrozenPrediction, all_answers: Sequence[Answers]) -> tuple[list[KindSeen], dict[str, int]]:
    """Compare a prediction with an agent's answers in the worlds that it is about.

    Args:
        claim: the frozen prediction.
        all_answers: the agent's answers, world by world; those in other worlds are ignored.

    Returns:
        The kinds that were seen completely, and kind -> number of worlds without an answer for the others.
    """
    places = [parse(place) for place in claim.places[:-1]]
    by_world = {(answers.world.world.id, answers.world.horizon): answers for answers in all_answers}
    kinds, missing = list[KindSeen](), dict[str, int]()
    for kind, unseen in zip(claim.kinds, claim.unseen(), strict=True):
        found = [by_world.get((world.world.id, world.horizon)) for world in unseen.worlds]
        answered = [answers for answers in found if answers is not None]
        if len(answered) < len(found):
            missing[kind.kind] = len(found) - len(answered)
            continue
        scores = [_nats(answers, np.array(moves)) for answers, moves in zip(answered, kind.moves, strict=True)]
        nats, random = np.mean(scores, axis=0)
        chances = np.array([_reached(answers, places) for answers in answered])
        kinds.append(KindSeen(claim=kind, places=claim.places, chances=chances, nats=float(nats), random=float(random)))
    return kinds, missing


def _reached(answers: Answers, places: Sequence[Hypothesis]) -> Array:
    walks = [
        [*answers.state[answers.episode == number].tolist(), int(last)] for number, last in enumerate(answers.last)
    ]
    return np.asarray(np.mean([first_place(answers.world, walk, places) for walk in walks], axis=0))


def _nats(answers: Answers, moves: Array) -> tuple[float, float]:
    """Return the mean log probability of the first answers in one world, predicted and at random."""
    number = np.full(answers.world.process.states, -1)
    number[_states(answers.world)] = np.arange(len(moves))
    even = answers.world.even[answers.state]
    chances = np.where((number[answers.state] >= 0)[:, None], moves[number[answers.state]], even)
    chances = np.where(even > 0, np.maximum(chances, 10.0**-_DIGITS), LEAST)
    return (
        float((answers.first * np.log(chances)).sum(axis=1).mean()),
        float((answers.first * np.log(np.maximum(even, LEAST))).sum(axis=1).mean()),
    )
