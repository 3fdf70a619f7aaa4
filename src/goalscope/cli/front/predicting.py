"""Predict what an agent does in kinds of worlds where nobody has seen it, freeze the prediction, and then look."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.arguments import Positive, Reads, Writes
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.progress import TALLY, Display, aloud, lines
from goalscope.cli.console import json_text, say, table
from goalscope.cli.front.attributing import Worlds, is_no_run, planned, states_in, text_of
from goalscope.cli.front.running import run
from goalscope.cli.generator import prints
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.answers import Answers, answers_of
from goalscope.goals.prediction.claim import (
    FILE,
    FrozenPrediction,
    KindSeen,
    compare,
    freeze_prediction,
    prediction_of,
    read_prediction,
)
from goalscope.goals.prediction.doubts import TEXTS
from goalscope.goals.prediction.expected import expect
from goalscope.goals.prediction.kinds import SHIPPED, KindsOfWorlds, UnseenWorlds, WorldsKind
from goalscope.goals.prediction.predictor import Predictor
from goalscope.report.reading import Run
from goalscope.runs import Study
from goalscope.stats.records import Records

_LISTED = 0.05  # share of a place that a sentence mentions


@dataclass(frozen=True, kw_only=True, eq=False)
class Outlook(Records):
    """What is expected of an agent in unseen kinds of worlds, and what was seen there.

    Attributes:
        claim: the frozen prediction.
        kinds: how it did in each kind of worlds; empty before looking.
        missing: kind -> number of its worlds without an answer, for kinds that could not be judged.
    """

    claim: FrozenPrediction
    kinds: tuple[KindSeen, ...] = ()
    missing: Mapping[str, int]

    @property
    def sentences(self) -> list[str]:
        """What is expected, or once somebody looked whether that was held, one sentence per line."""
        return [*(self._looked() if self.kinds or self.missing else self._expected())]

    def _expected(self) -> Iterator[str]:
        claim = self.claim
        for kind in claim.kinds:
            shares = sorted(kind.shares.items(), key=lambda item: -item[1][0])
            places = [
                TEXTS("expected/place", place=place, **_ends(*ends))
                for place, ends in shares
                if ends[0] >= _LISTED or place == shares[0][0]
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

    def _looked(self) -> Iterator[str]:
        for kind in self.kinds:
            main = kind.main
            yield TEXTS(
                f"looked/kind {'held' if kind.is_held else 'missed'}",
                kind=kind.claim.kind,
                place=main,
                seen=f"{kind.shares[main]:.2f}",
                worlds=len(kind.chances),
                **_ends(*kind.claim.shares[main]),
            )
        for name, number in self.missing.items():
            yield TEXTS("looked/missing", kind=name, missing=number)
        holds = [held for kind in self.kinds for held in kind.holds.values()]
        yield TEXTS(
            "looked/all",
            held=sum(kind.is_held for kind in self.kinds),
            kinds=len(self.kinds),
            intervals=sum(holds),
            places=len(holds),
        )

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per kind of worlds and place: the share that is expected with its interval, and that seen."""
        seen = {kind.claim.kind: kind for kind in self.kinds}
        return [
            {
                "agent": self.claim.name,
                "kind": kind.kind,
                "worlds": len(kind.worlds),
                "trust": kind.trust,
                "place": place,
                **dict(zip(("share", "low", "high"), ends, strict=True)),
                "seen": seen[kind.kind].shares[place] if kind.kind in seen else None,
                "holds": seen[kind.kind].holds[place] if kind.kind in seen else None,
            }
            for kind in self.claim.kinds
            for place, ends in kind.shares.items()
        ]

    def to_plain(self) -> dict[str, Any]:
        """Return everything but the tables of single worlds as plain values."""
        scores = {
            kind.claim.kind: {
                "held": kind.is_held,
                "nats": kind.nats,
                "random": kind.random,
                "divergence": dict(kind.divergences),
            }
            for kind in self.kinds
        }
        claim = self.claim.plain()
        frozen = {key: claim[key] for key in ("agent", "name", "weights", "distance", "trust", "doubts")}
        return {"id": self.claim.id, **frozen, "shares": self.records, "scores": scores, "missing": self.missing}


def _ends(share: float, low: float, high: float) -> dict[str, str]:
    return {"share": f"{share:.2f}", "low": f"{low:.2f}", "high": f"{high:.2f}"}


def predict(
    agent: Annotated[str | Path | Run, Reads("run", "agent", "model", "prediction")],
    out: Annotated[str | Path | None, Writes("directory")] = None,
    *,
    kinds: Annotated[str | Path | KindsOfWorlds, Reads("kinds")] = SHIPPED,
    worlds: Annotated[Worlds | None, Reads("study")] = None,
    look: Annotated[str | Path | Run | None, Reads("run", "agent", "model")] = None,
    name: str = "",
    seed: int = 0,
    workers: Positive = 1,
    stage: Display = lines,
) -> Outlook:
    """Predict what an agent does in kinds of worlds where nobody has seen it, freeze the prediction, and then look.

    Give an agent or a run to predict, and the result of that with ``look`` to look. To resume, call it again with
    the same directory; no answer is asked for again.

    Args:
        agent (AGENT|RUN|PREDICTION): an agent, in the forms of goalscope evaluate, a run directory, or the directory of
            a frozen prediction.
        out: directory for the prediction and for the answers of an agent; to look, for the answers in the new worlds.
        kinds (FILE): kinds of worlds, in a file as docs/predict.md describes it. Default: those that come with
            goalscope, for agents that act in grids.
        worlds (STUDY|KIND): worlds in which to see the agent first, in the forms of goalscope separate; not for a run.
        look (AGENT|RUN): open the worlds of a frozen prediction, and compare: the same agent, or a run of it there.
        name: name of the agent, if the run contains several.
        seed: number added to the seeds of the worlds in which the agent is seen; also the seed of the draws.
        workers: number of simultaneous calls to the agent.
        stage: shows the progress of a task.

    Raises:
        ValueError: if there are too few worlds, an option does not apply, or the prediction is another agent's.
    """
    with aloud():
        if look is None:
            return _freeze(text_of(agent), out, kinds, worlds, name, seed, workers, stage)
        if worlds is not None:
            raise ValueError("a frozen prediction has worlds of its own: leave --worlds out")
        return _look(Path(text_of(agent)), text_of(look), out, name, workers, stage)


def _freeze(
    agent: str,
    out: str | Path | None,
    kinds: str | Path | KindsOfWorlds,
    worlds: Worlds | None,
    name: str,
    seed: int,
    workers: int,
    stage: Display,
) -> Outlook:
    source = Path(agent)
    if Folder(source).has_file(FILE) or source.name == FILE:
        raise ValueError(f"{source} is a frozen prediction: add --look AGENT or --look RUN to compare it")
    design = kinds if isinstance(kinds, KindsOfWorlds) else KindsOfWorlds.load(kinds)
    if is_no_run(agent):
        if worlds is None or out is None:
            raise ValueError(f"to see the agent {agent!r} first, give both --worlds and --out, a directory")
        first = Folder(out).below("worlds").checked()
        run(planned(agent, worlds, seed=seed), first, workers=workers, stage=stage)
    elif worlds is not None:
        raise ValueError(f"{source} is a run, which has worlds of its own: leave --worlds out")
    else:
        first = source
    label, identity, (states, _), _ = states_in(first, name, ())
    all_answers = answers_of(states)
    seen = [answers.world.world.id for answers in all_answers]
    with stage("prediction"):
        predictor = Predictor(all_answers, [parse(place) for place in design.places], seed=seed)
        expected = expect(predictor, list(design.unseen(set(seen))))
    claim = prediction_of(expected, agent=identity, name=label, design=design, seen=seen)
    if out is not None:
        Folder(out).make()
        freeze_prediction(claim, Path(out))
        TALLY.tell(TEXTS("expected/frozen", id=claim.id, path=str(out)))
    return Outlook(claim=claim, missing={})


def _look(source: Path, target: str, out: str | Path | None, name: str, workers: int, stage: Display) -> Outlook:
    claim = read_prediction(source)
    if is_no_run(target):
        folder = Folder(out if out is not None else source)
        if out is None and NamedFile(source).is_there():
            raise ValueError(f"to ask the agent {target!r} in the new worlds, give a directory for its answers (--out)")
        all_answers = list[Answers]()
        design = KindsOfWorlds.read(claim.design, str(source))
        for number, (kind, unseen) in enumerate(zip(design.kinds, claim.unseen(), strict=True), 1):
            place = folder.below("looked", str(number)).checked()
            run(_study(target, design, kind, unseen), place, workers=workers, stage=stage)
            all_answers += _answers(claim, place, claim.name)
    else:
        all_answers = _answers(claim, Path(target), name or claim.name)
    seen, missing = compare(claim, all_answers)
    if not seen:
        raise ValueError(
            f"{target} has answers in all worlds of no kind of the prediction: look at the agent itself (--look AGENT)"
        )
    return Outlook(claim=claim, kinds=tuple(seen), missing=missing)


def _study(agent: str, design: KindsOfWorlds, kind: WorldsKind, unseen: UnseenWorlds) -> Study:
    """Return the study in which an agent is asked in the worlds of one kind."""
    base = {
        "worlds": kind.model_dump(mode="json", exclude_none=True)["worlds"],
        "horizon": (kind.horizon or design.horizon).model_dump(exclude_none=True),
        "agents": [{"kind": "random"}],
        "seed": design.seed,
    }
    if all("grid" in world.world.offers for world in unseen.worlds):
        # Only the worlds of the prediction, not all among which they were chosen; changed worlds cannot be written so.
        grids = [{"kind": "text", "grids": [world.world.grid.render() for world in unseen.worlds]}]
        study = Study.assemble({**base, "worlds": grids})
        if {world.id for world in study.worlds()} == {world.world.id for world in unseen.worlds}:
            return planned(agent, study)
    return planned(agent, Study.assemble(base))


def _answers(claim: FrozenPrediction, path: Path, name: str) -> list[Answers]:
    _, identity, (states, _), _ = states_in(path, name, ())
    if identity != claim.agent:
        raise ValueError(
            f"the prediction is about {claim.agent}, but {path} contains another agent, {identity}: look at the same "
            "agent, or at a run of it"
        )
    return answers_of(states)


@prints(predict)
def show_predicted(predicted: Outlook, *, as_json: bool = False) -> None:
    """Predict what an agent does in kinds of worlds where nobody has seen it, freeze the prediction, and then look.

    The command first sees the agent in ordinary worlds (--worlds, or those of a run), predicts which places it will
    reach first in other kinds of worlds, prints what the data cannot decide, and freezes all this by its hash. With
    --look it opens these worlds, and says for each kind whether the prediction was held.

    Args:
        as_json: print JSON.

    Examples:
        goalscope predict epsilon-greedy:epsilon=0.2 --worlds grid --kinds mine.yaml --out runs/foreseen
        goalscope predict runs/first --name optimal --out runs/foreseen-run
        goalscope predict runs/foreseen --look epsilon-greedy:epsilon=0.2
    """
    if as_json:
        say(json_text(predicted.to_plain()))
        return
    for line in predicted.sentences:
        say(line)
    if predicted.kinds:
        names = [*predicted.kinds[0].divergences]
        rows = [
            [
                kind.claim.kind,
                *(f"{value:.3f}" for value in (*kind.divergences.values(), kind.nats, kind.random)),
            ]
            for kind in predicted.kinds
        ]
        heads = ("kind", *names, "nats per action", "of random moves")
        title = "Divergence of the predicted shares from those seen (KL, nats), and log probability of its actions"
        table(heads, rows, title=title, numbers=range(1, len(heads)))
