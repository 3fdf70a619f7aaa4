"""Frozen claims about an agent: `attribute` its moves to a hypothesis, or `predict` them where nobody has seen it.

Both see the agent in some worlds, freeze the claim, and only then look at the worlds in which it is tested.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground import registry
from goalscope._ground.checks import note_namesake
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.own import note_found
from goalscope._ground.progress import TALLY, Display, aloud, lines
from goalscope._ground.words import counted
from goalscope.agents.models.folders import PACKAGED
from goalscope.cli.console import json_text, say, table
from goalscope.cli.expected import print_cost
from goalscope.cli.generator import Positive, Reads, Separated, Writes, prints
from goalscope.cli.hypotheses import bound, needs_of
from goalscope.cli.overrides import UNCHANGED, WorldOptions, worlds_of
from goalscope.cli.running import run
from goalscope.goals.attribution import (
    Asking,
    FrozenClaim,
    PredictionScore,
    Stratum,
    Trial,
    claim_of,
    freeze_claim,
    judged,
    read_claim,
    scored,
    usual_methods,
)
from goalscope.goals.attribution.claim import MIXTURE, answers_by_kind, holds_claim
from goalscope.goals.decision import decide, groups, tested_in, with_bar
from goalscope.goals.finding import Finding, say_all, where_text
from goalscope.goals.hypotheses import FiniteWorld, Hypothesis, bind, load_hypotheses, parse, read_hypotheses
from goalscope.goals.hypotheses.design import LAPSES, sentences
from goalscope.goals.hypotheses.states import Answers, States, answers_of, states_of_episodes
from goalscope.goals.hypotheses.written import check_names
from goalscope.goals.prediction.expected import TEXTS, doubts_about, expect, say_expected, say_seen, trust_of
from goalscope.goals.prediction.kinds import SHIPPED, KindsOfWorlds, WorldsKind
from goalscope.goals.prediction.predictor import Predictor
from goalscope.goals.reading import by_phase, phases_in, read_states
from goalscope.report.ledger import Run
from goalscope.runs import Store, Study
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.stats.records import Records
from goalscope.verdict.subject import subject_of
from goalscope.worlds import World

RESULT = "attribution.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class Claimed(Records):
    """What is claimed about an agent, and how well the claim predicted the agent in new worlds.

    The new worlds were opened only after the claim was frozen (stored with a hash of its content).

    Attributes:
        agent: name of the agent.
        claim: the claim, frozen by its hash: the verdict for each stratum (group of worlds), or what is expected in
            each kind of unseen worlds.
        tests: how well the claim predicted the agent in the new worlds; empty if there were none.
        left_out: reason, or kind of new worlds -> number of worlds that could not be used.
        findings: the goal of the agent in each group of worlds, with its test in the new worlds if there were any.
    """

    agent: str
    claim: FrozenClaim
    tests: tuple[PredictionScore, ...] = ()
    left_out: Mapping[str, int]
    findings: tuple[Finding, ...] = ()

    @property
    def sentence(self) -> str:
        """One text that says what the agent is after in each group of worlds, and how strongly.

        For a prediction, it says what is expected of the agent in unseen worlds.
        """
        return "\n".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The sentences of the claim, such as what the agent is after in each group of worlds.

        For a prediction, they say what is expected or, once the unseen worlds were opened, whether it came true.
        """
        if not self.claim.kinds:
            return [say_all(self.findings)]
        return [*(say_seen(self.claim, self.tests, self.left_out) if self.tests else say_expected(self.claim))]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The claim as a list of dictionaries, one per group of worlds ("stratum") and attribution method.

        For a prediction, there is one per kind of unseen worlds and place, with the expected share.
        """
        tests = {(test.stratum, test.method): test for test in self.tests}
        of_kinds = [
            {
                "agent": self.agent,
                "kind": kind.kind,
                "worlds": len(kind.worlds),
                "trust": kind.trust,
                "place": place,
                **dict(zip(("share", "low", "high"), ends, strict=True)),
                "seen": None if test is None else test.shares[place],
                "holds": None if test is None else test.holds[place],
            }
            for kind in self.claim.kinds
            for test in [tests.get((kind.kind, MIXTURE))]
            for place, ends in kind.shares.items()
        ]
        return of_kinds + [
            {
                "agent": self.agent,
                "stratum": stratum.name,
                "worlds": stratum.clusters,
                "method": attribution.method,
                "verdict": attribution.kind,
                "names": ", ".join(attribution.names),
                "sentence": attribution.sentence,
                "log score": None
                if (test := tests.get((stratum.name, attribution.method))) is None
                else test.log_score[0],
            }
            for stratum in self.claim.strata
            for attribution in stratum.attributions
        ]

    def to_plain(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold, except for the tables of single worlds."""
        tests = [asdict(test) for test in self.tests]
        if self.claim.kinds:
            claim = self.claim.plain()
            return {
                "agent": self.agent,
                "claim": self.claim.id,
                **{key: claim[key] for key in ("weights", "distance", "trust", "doubts")},
                "shares": self.records,
                "tests": tests,
                "left_out": self.left_out,
            }
        strata = [
            {
                "name": stratum.name,
                "worlds": stratum.clusters,
                "methods": [attribution.to_plain() for attribution in stratum.attributions],
                "refused": dict(stratum.refused),
            }
            for stratum in self.claim.strata
        ]
        return {
            "agent": self.agent,
            "claim": self.claim.id,
            "findings": [finding.plain() for finding in self.findings],
            "strata": strata,
            "tests": tests,
            "left_out": self.left_out,
        }


Worlds = str | Path | Mapping[str, Any] | Study


def attribute(
    agent: Annotated[str | Path | Run, Reads("run", "agent", "model")],
    out: Annotated[str | Path | None, Writes("directory")] = None,
    *,
    hypotheses: Annotated[str | Sequence[Any] | Mapping[str, Hypothesis], Reads("hypotheses")],
    worlds: Annotated[Worlds | None, Reads("study")] = None,
    separating: Annotated[Worlds | None, Reads("study", "run")] = None,
    methods: Annotated[Sequence[str], Separated(";,")] = (),
    by: Sequence[str] = (),
    name: str = "",
    episodes: Positive = 1,
    seed: int = 0,
    workers: Positive = 1,
    changes: WorldOptions = UNCHANGED,
    stage: Display = lines,
) -> Claimed:
    """Find which hypothesis best explains an agent's moves, or report that none does, and test the claim on new worlds.

    To resume, call it again with the same directory; no answer is asked for again. From Python, hypotheses may also be
    a list as in a file, or a mapping from names to hypotheses; worlds may also be dictionaries, as in
    the file of a study.

    Args:
        agent (AGENT|RUN): an agent, in the forms of goalscope evaluate, or a run directory.
        hypotheses (FILE|NAMES): files (.yaml, .json), named sets of hypotheses ("banks": grids, keys, doors, task-maps,
            things, sentinels) and written forms such as 'corner top-right' or 'goal within 5 steps', separated by ';'.
        worlds (STUDY|KIND): worlds in which to ask the agent, in the forms of goalscope separate; not for a run.
        separating (STUDY|KIND|RUN): worlds in which to test the claim, opened only after it is frozen; for a run,
            another run of the same agent.
        out: directory for the answers, the claim and the result; not needed for a run.
        methods (NAMES): attribution methods such as 'score;meg', separated by ';' or commas. Default: all that need no
            further calls.
        by (TAGS): also give a verdict for each value of these tags of the worlds, e.g. size.
        name: name of the agent, if the run contains several.
        episodes: number of episodes per world.
        seed: number added to the seeds of the worlds; also the random seed of the resampling.
        workers: number of simultaneous calls to the agent.
        changes: changes to the worlds, see `WorldOptions`.
        stage: shows the progress of a task.

    Raises:
        ValueError: if there are no answers, several agents, an option that does not apply, or another frozen claim.
    """
    with aloud():
        bank = bank_from(hypotheses)
        text = text_of(agent)
        source = Path(text)
        chosen = [*methods] or usual_methods()
        for method in chosen:
            registry.resolve("attribution", method)
        if (asked := to_ask(text, worlds, out)) is None:
            first, later, other = source, None, None if separating is None else Path(str(separating))
            tested_on = None if other is None else {"run": _content(other)}
        else:
            study = planned(text, asked[0], changes, episodes=episodes, seed=seed)
            later = None if separating is None else planned(text, separating, episodes=episodes, seed=seed)
            check_names(bank, study.worlds)  # before anything is asked
            first = asked[1].below("worlds").checked()
            other = None if later is None else asked[1].below("separating").checked()
            tested_on = None if later is None else {"study": later.id}
            run(study, first, workers=workers, stage=stage)
        label, identity, (states, left_out), phases = states_in(first, name, by)
        visited = [state.world.world for state in states]
        bound = {label: bind(hypothesis, visited) for label, hypothesis in bank_from(hypotheses, visited).items()}
        strata, members_of, found_of = list[Stratum](), list[list[States]](), list[Finding]()
        for group_name, members in groups(states, by=by, phases=phases):
            ask = None if out is None or first == source else _asking(Path(out), first, workers)
            trial, title = Trial(states=members, bank=bound, seed=seed, ask=ask), where_text(group_name)
            with stage(f"methods{f', {title}' if title else ''}"):
                finding = with_bar(decide(members, bound, where=group_name, seed=seed), members, bound)
                found_of.append(finding)
                stratum = judged(title, trial, chosen)
                strata.append(
                    stratum.model_copy(update={"answer": finding.answer, "names": finding.names, "bar": finding.bar})
                )
                members_of.append(members)
        worlds_of = [answers for members in members_of for answers in answers_of(members)]
        claim = claim_of(identity, bound, worlds_of, tested_on, strata)
        freeze(claim, out)
        tests: tuple[PredictionScore, ...] = ()
        findings = tuple(found_of)
        if other is not None:
            if later is not None:
                run(later, other, workers=workers, stage=stage)
            _, new = states_of_claimed(claim, other)
            tests = scored(claim, answers_of(new))
            findings = tuple(tested_in(finding, new, bound) for finding in findings)
        attributed = Claimed(agent=label, claim=claim, tests=tests, left_out=left_out, findings=findings)
        if out is not None:
            Folder(out).save_text(json_text(attributed.to_plain(), indent=1) + "\n", RESULT)
        return attributed


def to_ask(text: str, worlds: Worlds | None, out: str | Path | None) -> tuple[Worlds, Folder] | None:
    """Return the worlds in which to ask an agent, and the directory for its answers; None if ``text`` is a run
    directory.

    A run has answers already.

    Args:
        text: the agent or run, as the user typed it.
        worlds: the worlds of the option --worlds.
        out: the directory of the option --out.

    Raises:
        ValueError: an option that this needs is missing, or does not apply.
    """
    if not is_no_run(text):
        if worlds is not None:
            raise ValueError(f"{text} is a run, which has worlds of its own: leave --worlds out")
        return None
    if worlds is None or out is None:
        raise ValueError(f"to ask the agent {text!r}, give both --worlds and a directory for its answers (--out)")
    return worlds, Folder(out)


def freeze(claim: FrozenClaim, out: str | Path | None) -> None:
    """Freeze a claim about an agent: store it with a hash of its content, if there is a directory, and print its id."""
    if out is not None:
        Folder(out).make()
        freeze_claim(claim, Path(out))
    TALLY.tell(f"{claim.id}{'' if out is None else f', frozen in {out}'}")


def states_of_claimed(claim: FrozenClaim, path: Path) -> tuple[str, list[States]]:
    """Read what the agent that a claim is about did in a run: return its name there, and its recorded states with its
    moves.

    Raises:
        ValueError: the run contains other agents only.
    """
    with Store(path) as store:
        names = {identity: name for identity, (name, _) in store.agents().items()}
    if claim.agent not in names:
        raise ValueError(
            f"the claim is about {claim.agent}, but {path} contains another agent, {', '.join(names) or 'none'}: give "
            "the same agent, or a run of it"
        )
    return names[claim.agent], states_in(path, names[claim.agent], ())[2][0]


def text_of(source: str | Path | Run) -> str:
    """Return an agent or a run as the user would type it on the command line.

    A path that equals the name of a shipped agent gets "./" in front, so that it stays a path.
    """
    if isinstance(source, str):
        return source
    text = str(source.path if isinstance(source, Run) else source)
    return f"./{text}" if _ships(text) else text


def is_no_run(text: str) -> bool:
    """Return whether a typed text stands for an agent (a kind, a folder of weights, or a file) and not for a run
    directory.
    """
    if _ships(text):
        note_namesake(text, "agent")
        return True
    return NamedFile(text).is_there() or unmade(Path(text) / DATABASE)


def _ships(text: str) -> bool:
    return text in PACKAGED or text in registry.names("agent")


def planned(
    agent: str, worlds: Worlds, changes: WorldOptions = UNCHANGED, *, episodes: int = 1, seed: int = 0
) -> Study:
    """Return the study in which an agent is asked for its moves; each step is asked twice, to measure its noise.

    Args:
        agent: the agent, as typed on the command line.
        worlds: a study or a kind of worlds.
        changes: changes to the worlds.
        episodes: number of episodes per world.
        seed: number added to the seeds of the worlds.

    Raises:
        ValueError: if the agent is a run.
    """
    subject = subject_of(agent)
    if subject.logs is not None:
        raise ValueError(f"{agent} is a run, which cannot answer further questions: give an agent instead")
    base = (
        worlds
        if isinstance(worlds, Study)
        else Study.parse(worlds)
        if isinstance(worlds, Mapping)
        else worlds_of(str(worlds), changes)
    )
    plain = base.dump()
    base_entries: dict[str, Any] = {
        key: plain[key] for key in ("worlds", "horizon", "history", "failure") if key in plain
    }
    return Study.assemble(
        {
            **base_entries,
            "name": "attribute",
            "seed": base.seed + seed,
            "agents": [subject.entry()],
            "trajectories": episodes,
            "answers": 2,
        }
    )


def _asking(out: Path, run_of: Path, workers: int) -> Asking:
    """Return a function that asks an agent for first moves in further worlds, each stored in a run of its own."""

    def first_turns(worlds: Sequence[FiniteWorld]) -> list[Answers]:
        with Store(run_of) as store:
            study = store.study()
        assert study is not None
        grids = [world.world.grid.render() for world in worlds]
        entry = {"kind": "text", "grids": list(dict.fromkeys(grids))}
        asked_study = Study.assemble({**study.dump(), "worlds": [entry], "horizon": {"steps": 1}, "trajectories": 1})
        path = Folder(out).below("asked", asked_study.id.rpartition(":")[2]).checked()
        run(asked_study, path, workers=workers)
        with Store(path) as store:
            answers_by_grid = {
                answers.world.grid.render(): answers for answers in answers_of(states_of_episodes(store.episodes())[0])
            }
        answered = [
            (answers_by_grid[text], world) for text, world in zip(grids, worlds, strict=True) if text in answers_by_grid
        ]
        return [replace(answers, world=world) for answers, world in answered]

    return Asking(first_turns=first_turns)


def bank_from(
    hypotheses: str | Sequence[Any] | Mapping[str, Hypothesis], worlds: Sequence[World] | None = None
) -> Mapping[str, Hypothesis]:
    """Load hypotheses (possible goals) by name, from the name of a set or file, a list as in a file, or a mapping."""
    if isinstance(hypotheses, str):
        return load_hypotheses(hypotheses, worlds)
    return hypotheses if isinstance(hypotheses, Mapping) else read_hypotheses(list(hypotheses))


def states_in(
    path: Path, name: str, by: Sequence[str]
) -> tuple[str, str, tuple[list[States], dict[str, int]], tuple[str, ...]]:
    """Read what an agent of a run did.

    Args:
        path: the run directory.
        name: name of the agent; may be "" for a run with a single agent.
        by: tags of worlds to keep with the states.

    Returns:
        The agent's name; its content id; its recorded states, with the number of turns that were left out for each
        reason; and the names of the phases (parts) of the study.

    Raises:
        ValueError: if the run has several agents and none of this name.
    """
    with Store(path) as store:
        names = list(store.agent_names())
        if len(names) != 1 and name not in names:
            raise ValueError(f"--name must be one of the agents in {path} ({', '.join(names) or 'none'}), got {name!r}")
        label = name if name in names else names[0]
        identity = next(
            identity_of_agent for identity_of_agent, (agent_name, _) in store.agents().items() if agent_name == label
        )
        return label, identity, read_states(store, label, by=by), phases_in(store.study())


def _content(path: Path) -> str:
    """Return one id for the worlds of a run, without reading its answers."""
    from goalscope._ground.ids import content_id

    with Store(path) as store:
        return content_id(
            "worlds", sorted(str(row[0]) for row in store.query("SELECT DISTINCT world_id FROM episodes"))
        )


def summary(attributed: Claimed) -> list[str]:
    """Return the verdict of each attribution method in each group of worlds as a sentence, one line each."""
    sentences = []
    for stratum in attributed.claim.strata:
        stratum_title = f"{stratum.name or 'all worlds'} ({counted(stratum.clusters, 'world')})"
        sentences += [
            f"{stratum_title}: {attribution.method}: {attribution.kind}: {attribution.sentence}"
            for attribution in stratum.attributions
        ]
        sentences += [f"{stratum_title}: no verdict by {method}: {why}" for method, why in stratum.refused.items()]
    return sentences


def say_costs(
    *,
    agent: str,
    hypotheses: str,
    worlds: str | None,
    separating: str | None,
    episodes: int,
    seed: int,
    changes: WorldOptions,
) -> None:
    """Print the maximum cost of asking an agent, and how many worlds it takes to identify each hypothesis (possible
    goal).

    The arguments are those of `attribute`.

    Raises:
        ValueError: if there are no worlds, i.e. for a run.
    """
    if worlds is None:
        raise ValueError("--dry-run needs an agent and --worlds: add --worlds (attributing a stored run costs nothing)")
    study = planned(agent, worlds, changes, episodes=episodes, seed=seed)
    say("worlds: each step with a valid move is answered twice")
    print_cost(study)
    if separating is not None:
        say("separating worlds: each step with a valid move is answered twice")
        print_cost(planned(agent, separating, episodes=episodes, seed=seed))
    bank = bound(load_hypotheses(hypotheses, study.worlds()), study)
    for phase, of_phase in by_phase(study.worlds()).items():
        for line in sentences(needs_of(bank, of_phase, study, LAPSES[0], episodes)):
            say(f"phase {phase}: {line}" if phase else line)


@prints(attribute, dry=say_costs)
def show_attributed(attributed: Claimed, *, dry: bool = False, as_json: bool = False) -> None:
    """Find which hypothesis best explains an agent's moves, or report that none does.

    An agent that plays is asked twice in each step, to measure its noise. The command first derives a claim, stores it
    so that it can no longer be changed (a frozen claim), and prints its hash. Only then does it open the worlds of
    --separating and score there how well the claim predicts single moves. To resume, run the same command on the same
    directory; no answer is asked for again.

    Args:
        dry: ask nothing; print the maximum cost.
        as_json: print JSON.

    Examples:
        goalscope attribute epsilon-greedy:epsilon=0.3 --hypotheses grids --worlds grid --out runs/after
        goalscope attribute runs/first --hypotheses 'grids;key' --methods meg
    """
    if as_json:
        say(json_text(attributed.to_plain()))
        return
    say(attributed.sentence)
    for line in summary(attributed):
        say(line)
    _print_scores(attributed)
    print_tests(attributed)


def _print_scores(attributed: Claimed) -> None:
    for stratum in attributed.claim.strata:
        for attribution in stratum.attributions:
            rows = [
                [
                    score.name if score.asked else f"({score.name})",
                    *("{:.2f} [{:.2f}, {:.2f}]".format(*ends) for ends in (score.strength, score.consistency)),
                    f"{score.steps:.0%}",
                    "; ".join(score.not_where) or "–",
                ]
                for score in (() if attribution.score is None else attribution.score.scores)
            ]
            if rows:
                title = f"{stratum.name or 'all worlds'}: {attribution.method}; added rivals in parentheses"
                heads = ("hypothesis", "strength", "consistency", "steps", "does not explain the moves in")
                table(heads, rows, title=title, numbers=range(1, 4))


def print_tests(claimed: Claimed) -> None:
    """Print a table of how well a claim predicted the agent's single moves in new worlds.

    For kinds of worlds, it also shows how well the shares of the places that the agent reached were predicted.
    """
    rows = [
        [
            test.stratum or "all worlds",
            *([] if claimed.claim.kinds else [test.method]),
            *(f"{value:.3f}" for value in test.divergences.values()),
            f"{test.log_score[0]:.3f} [{test.log_score[1]:.3f}, {test.log_score[2]:.3f}]",
            f"{test.random:.3f}",
            "–" if test.ceiling is None else f"{test.ceiling:.3f}",
            "–" if test.distance is None else "{:.3f} [{:.3f}, {:.3f}]".format(*test.distance),
        ]
        for test in claimed.tests
    ]
    if rows:
        first = claimed.tests[0]
        title = f"{claimed.claim.id}, tested in {first.clusters} worlds: nats per move"
        heads: tuple[str, ...] = ("worlds", "method")
        if claimed.claim.kinds:
            title = f"{claimed.claim.id}: divergence of shares from those seen (KL, nats), and nats per move"
            heads = ("worlds", *first.divergences)
        heads = (*heads, "log score", "random moves", "ceiling", "distance from its own probabilities")
        table(heads, rows, title=title, numbers=range(len(heads) - 4, len(heads)))


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
    """Predict what an agent does in kinds of worlds where nobody has seen it, then check the prediction there.

    Call it first with an agent or a run: it stores, for each kind of new worlds, the expected behaviour of the agent as
    a claim that can no longer be changed (a frozen claim). The agent plays the new worlds only afterwards: call it
    again with the directory of the claim and ``look``, to compare what the agent does there with the claim. To resume,
    call it again with the same directory; no answer is asked for again.

    Args:
        agent (AGENT|RUN|CLAIM): an agent, in the forms of goalscope evaluate, a run directory, or the directory of a
            frozen claim.
        out: directory for the claim and for the answers of an agent; to look, for the answers in the new worlds.
        kinds (FILE): kinds of worlds, in a file as docs/predict.md describes it. Default: those that come with
            goalscope, for agents that act in grids.
        worlds (STUDY|KIND): worlds in which to see the agent first, in the forms of goalscope separate; not for a run.
        look (AGENT|RUN): for a frozen claim: open its worlds, and compare it with this agent (the same one), or with a
            run of the agent in these worlds.
        name: name of the agent, if the run contains several.
        seed: number added to the seeds of the worlds in which the agent is seen; also the seed of random numbers in the
            prediction.
        workers: number of simultaneous calls to the agent.
        stage: shows the progress of a task.

    Returns:
        The claim and, after ``look``, how well it predicted the agent in the new worlds.

    Raises:
        ValueError: if there are too few worlds, an option does not apply, or the claim is about another agent.
    """
    with aloud():
        text = text_of(agent)
        if look is not None:
            for option, value in (("worlds", worlds), ("name", name)):
                if value:
                    raise ValueError(f"a frozen claim names its agent and its worlds: leave --{option} out")
            return _look(Path(text), text_of(look), out, workers, stage)
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
    """Predict what an agent does in kinds of worlds where nobody has seen it, then check the prediction there.

    The command first sees the agent in ordinary worlds (--worlds, or those of a run), predicts which places it will
    reach first in other kinds of worlds, prints what the data cannot decide, and stores all this with its hash, so
    that it can no longer be changed (a frozen claim). With --look it opens these worlds, and says for each kind whether
    the prediction came true.

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
