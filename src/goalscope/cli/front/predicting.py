"""Predict what an agent does in kinds of worlds where nobody has seen it, freeze the claim, and then look."""

from pathlib import Path
from typing import Annotated

from goalscope._ground.arguments import Positive, Reads, Writes
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.own import note_found
from goalscope._ground.progress import TALLY, Display, aloud, lines
from goalscope.cli.console import json_text, say
from goalscope.cli.front.attributing import (
    Claimed,
    Worlds,
    freeze,
    is_no_run,
    planned,
    print_tests,
    states_in,
    states_of_claimed,
    text_of,
    to_ask,
)
from goalscope.cli.front.running import run
from goalscope.cli.generator import prints
from goalscope.goals.attribution import claim_of, read_claim, scored
from goalscope.goals.attribution.claim import answers_by_kind, holds_claim
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.definition import FiniteWorld
from goalscope.goals.hypotheses.states import Answers, answers_of
from goalscope.goals.prediction.expected import TEXTS, doubts_about, expect, trust_of
from goalscope.goals.prediction.kinds import SHIPPED, KindsOfWorlds, WorldsKind
from goalscope.goals.prediction.predictor import Predictor
from goalscope.report.ledger import Run
from goalscope.runs import Study


def predict(
    agent: Annotated[str | Path | Run, Reads("run", "agent", "model", "claim")],
    out: Annotated[str | Path | None, Writes("directory")] = None,
    *,
    kinds: Annotated[str | Path | KindsOfWorlds, Reads("kinds")] = SHIPPED,
    worlds: Annotated[Worlds | None, Reads("study")] = None,
    look: Annotated[str | Path | Run | None, Reads("run", "agent", "model")] = None,
    name: str = "",
    seed: int = 0,
    workers: Positive = 1,
    stage: Display = lines,
) -> Claimed:
    """Predict what an agent does in kinds of worlds where nobody has seen it, freeze the claim, and then look.

    Call it first with an agent or a run: this freezes a claim. Then call it with the directory of that claim and
    ``look``, to open the new worlds and compare. To resume, call it again with the same directory; no answer is asked
    for again.

    Args:
        agent (AGENT|RUN|CLAIM): an agent, in the forms of goalscope evaluate, a run directory, or the directory of
            a frozen claim.
        out: directory for the claim and for the answers of an agent; to look, for the answers in the new worlds.
        kinds (FILE): kinds of worlds, in a file as docs/predict.md describes it. Default: those that come with
            goalscope, for agents that act in grids.
        worlds (STUDY|KIND): worlds in which to see the agent first, in the forms of goalscope separate; not for a run.
        look (AGENT|RUN): for a frozen claim: open its worlds, and compare it with this agent (the same one), or with
            a run of the agent in these worlds.
        name: name of the agent, if the run contains several.
        seed: number added to the seeds of the worlds in which the agent is seen; also the seed of the draws.
        workers: number of simultaneous calls to the agent.
        stage: shows the progress of a task.

    Raises:
        ValueError: if there are too few worlds, an option does not apply, or the claim is about another agent.
    """
    with aloud():
        if look is None:
            return _predict(text_of(agent), out, kinds, worlds, name, seed, workers, stage)
        for option, value in (("worlds", worlds), ("name", name)):
            if value:
                raise ValueError(f"a frozen claim names its agent and its worlds: leave --{option} out")
        return _look(Path(text_of(agent)), text_of(look), out, workers, stage)


def _predict(
    text: str,
    out: str | Path | None,
    kinds: str | Path | KindsOfWorlds,
    worlds: Worlds | None,
    name: str,
    seed: int,
    workers: int,
    stage: Display,
) -> Claimed:
    source = Path(text)
    if holds_claim(source):
        raise ValueError(f"{source} is a frozen claim: add --look AGENT or --look RUN to compare it")
    design = kinds if isinstance(kinds, KindsOfWorlds) else KindsOfWorlds.load(kinds)
    first = source
    if (asked := to_ask(text, worlds, out)) is not None:
        first = asked[1].below("worlds").checked()
        run(planned(text, asked[0], seed=seed), first, workers=workers, stage=stage)
    label, identity, (states, left_out), _ = states_in(first, name, ())
    all_answers = answers_of(states)
    with stage("prediction"):
        predictor = Predictor(all_answers, [parse(place) for place in design.places], seed=seed)
        unseen = design.unseen({answers.world.world.id for answers in all_answers})
        doubts = doubts_about(predictor, unseen)
        claim = claim_of(
            identity,
            {},
            all_answers,
            {"kinds": design.plain()},
            (),
            kinds=expect(predictor, unseen, doubts),
            weights={rule: min(weight, 1.0) for rule, weight in predictor.weights.items()},
            distance=predictor.distance,
            trust=trust_of(predictor.distance),
            doubts=tuple(doubt.sentence for doubt in doubts),
        )
    freeze(claim, out)
    if out is not None:
        TALLY.tell(TEXTS("expected/look", path=str(out)))
    return Claimed(agent=label, claim=claim, left_out=left_out)


def _look(source: Path, target: str, out: str | Path | None, workers: int, stage: Display) -> Claimed:
    claim = read_claim(source)
    note_found(claim.tested_on, source)  # for the refusal of names in a received claim
    if not claim.kinds:
        raise ValueError(
            f"{source} is a claim of goalscope attribute, which predicts no kinds of worlds: test it with goalscope "
            "attribute ... --separating WORLDS"
        )
    all_answers = list[Answers]()
    if is_no_run(target):
        if out is None and NamedFile(source).is_there():
            raise ValueError(f"to ask the agent {target!r} in the new worlds, give a directory for its answers (--out)")
        for number, kind in enumerate(claim.design.kinds, 1):
            path = Folder(out if out is not None else source).below("looked", str(number)).checked()
            study = _study(target, claim.design, kind, claim.unseen[kind.name])
            run(study, path, workers=workers, stage=stage)
            label, states = states_of_claimed(claim, path)  # before another kind is asked
            all_answers += answers_of(states)
    else:
        label, states = states_of_claimed(claim, Path(target))
        all_answers += answers_of(states)
    scores, answered = scored(claim, all_answers), answers_by_kind(claim, all_answers)
    missing = {kind.kind: len(kind.worlds) - len(answered[kind.kind]) for kind in claim.kinds}
    if not scores:
        raise ValueError(
            f"{target} has answers in all worlds of no kind of the claim: look at the agent itself (--look AGENT)"
        )
    left_out = {kind: number for kind, number in missing.items() if number}
    return Claimed(agent=label, claim=claim, tests=scores, left_out=left_out)


def _study(agent: str, design: KindsOfWorlds, kind: WorldsKind, worlds: tuple[FiniteWorld, ...]) -> Study:
    """Return the study in which an agent is asked in the worlds of one kind."""
    base = {
        "worlds": kind.model_dump(mode="json", exclude_none=True)["worlds"],
        "horizon": (kind.horizon or design.horizon).model_dump(exclude_none=True),
        "agents": [{"kind": "random"}],
        "seed": design.seed,
    }
    if all("grid" in world.world.offers for world in worlds):
        # Only the worlds of the claim, not all among which they were chosen; changed worlds cannot be written so.
        grids = [{"kind": "text", "grids": [world.world.grid.render() for world in worlds]}]
        study = Study.assemble({**base, "worlds": grids})
        if {world.id for world in study.worlds()} == {world.world.id for world in worlds}:
            return planned(agent, study)
    return planned(agent, Study.assemble(base))


@prints(predict)
def show_predicted(predicted: Claimed, *, as_json: bool = False) -> None:
    """Predict what an agent does in kinds of worlds where nobody has seen it, freeze the claim, and then look.

    The command first sees the agent in ordinary worlds (--worlds, or those of a run), predicts which places it will
    reach first in other kinds of worlds, prints what the data cannot decide, and freezes all this by its hash. With
    --look it opens these worlds, and says for each kind whether the prediction came true.

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
    print_tests(predicted)
