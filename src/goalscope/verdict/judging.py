"""Judge an evaluation: open the measured runs of its arms, decide all claims, check them, write the ledger."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from goalscope._ground import registry
from goalscope._ground.folder import Folder
from goalscope._ground.progress import TALLY
from goalscope._ground.untrusted import shorten
from goalscope._ground.words import listed, short
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding, say_all, where_text
from goalscope.report.page import write_page
from goalscope.runs import Store, provenance
from goalscope.runs.hashing import content_hash, kept_content_hash
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.stats.records import EstimateRecord
from goalscope.verdict.aims import AIMED, FOLLOWS, aims_in
from goalscope.verdict.arms import Arm
from goalscope.verdict.claims import AskedArm, Claim, ClaimLedger, Evaluation, Origin
from goalscope.verdict.compare import differences
from goalscope.verdict.evidence import ArmData, ArmRun, Evidence, data_by_arm
from goalscope.verdict.failures import FAILURES, Failures, LastingError
from goalscope.verdict.own_environment import planted_goal
from goalscope.verdict.plan import LEDGER, LEFT_OUT, PLAN, EvaluationRun, Plan, check_directory
from goalscope.verdict.playing import inside_record
from goalscope.verdict.rules import RULES, Rule, decide
from goalscope.verdict.sentences import aims_of, headline, stored_description
from goalscope.verdict.sizing import NO_ROOM
from goalscope.verdict.subject import Subject, described
from goalscope.verdict.texts import TEXTS, WORDED, percent

_RECORD: Final = (
    "record such episodes (docs/import.md says how to tag worlds), or give the model itself, with --worlds for "
    "environments"
)


def reopen(directory: str | Path) -> tuple[EvaluationRun, Evaluation]:
    """Reopen an evaluation whose claims were decided, together with these claims; models are not loaded.

    Recorded logs are expected beside the evaluation's directory, under the same folder name as before.

    Raises:
        FileNotFoundError: the directory holds no evaluation, or the logs that it judged have been moved.
        ValueError: runs were added since it was last judged, or a file was not written by goalscope.
    """
    out = Path(directory)
    check_directory(out)
    plan, ledger = Plan.read(out / PLAN), Evaluation.read(out / LEDGER)
    if ledger.origin is None or ledger.origin.plan != plan.id:
        raise ValueError(
            f"{out} contains runs that were added since it was judged: run the same goalscope evaluate again"
        )
    subjects, failures = [], Failures(out)
    for model in ledger.models:
        logs = None
        if "logs" in model.access:
            logs = _logs_beside(out, model)
            if unmade(logs / DATABASE):
                raise FileNotFoundError(
                    f"the logs that were judged must lie beside {out}, but {logs} contains none: move them there"
                )
        subjects.append(Subject(name=model.model, kind="", access=frozenset(model.access), logs=logs))
        for arm in model.arms:
            if not arm.asked:
                failures.leave_out([arm.name], [model.model], arm.why)
    return EvaluationRun(directory=out, plan=plan, subjects=tuple(subjects), failures=failures), ledger


def _logs_beside(out: Path, model: ClaimLedger) -> Path:
    """Return where the judged logs should be: beside the evaluation, under the name in the ledger."""
    described = read_yaml_text(model.described, str(out / LEDGER))
    name = described.get("run") if isinstance(described, dict) else None
    if not isinstance(name, str) or name != Path(name).name or name in ("", ".."):
        raise ValueError(f"{out / LEDGER} must name the folder of the logs of a model, got {shorten(name)}")
    return Folder(out.resolve().parent).below(name).checked()


Opened = dict[tuple[str, str], ArmRun]
"""(arm, name of a model) -> the measured run with its episodes."""


@contextmanager
def opened(evaluation: EvaluationRun) -> Iterator[Opened]:
    """Context manager that opens all measured runs of an evaluation, for `judge` and for the page.

    It yields a mapping from (name of the arm, name of a model) to the run. An arm is a part of the evaluation. A run
    that cannot be read is recorded as a failure and left out.
    """
    confidence, opened_runs, by_path = 1 - evaluation.level, Opened(), dict[Path, ArmRun]()
    failures = evaluation.failures
    with ExitStack() as stack:
        logs = {path: stack.enter_context(Store(path)) for path in evaluation.logs}
        for arm in evaluation.arms:
            for subject in evaluation.subjects_for(arm):
                run_path = evaluation.path(arm.at, subject)
                if (arm.name, subject.name) in failures.unasked:
                    continue
                with failures.kept_apart(f"reading {arm.title}, {subject.name}", [arm.name], [subject.name]):
                    if run_path not in by_path:
                        by_path[run_path] = ArmRun.of(stack.enter_context(Store(run_path)), confidence)
                    if arm.looks is None or not inside_record(by_path[run_path].store, arm).get("refused"):
                        opened_runs[arm.name, subject.name] = by_path[run_path]
            recorded_runs = {path: ArmRun.of(store, confidence, arm.recorded) for path, store in logs.items()}
            for subject in evaluation.subjects:
                recorded = recorded_runs.get(subject.logs) if subject.logs is not None else None
                left_out = not evaluation.plan.choices.has(arm) or (arm.name, subject.name) in failures.unasked
                if recorded is None or left_out:
                    continue
                if recorded.has_agent(subject.name, arm.varies):
                    opened_runs[arm.name, subject.name] = recorded
        yield opened_runs


class Reopened(NamedTuple):
    """An evaluation that was judged before, opened for reading: its directory and plan, its stored claims, its measured
    runs.
    """

    run: EvaluationRun
    ledger: Evaluation
    runs: Opened


@contextmanager
def reopened(directory: str | Path) -> Iterator[Reopened]:
    """Context manager that opens an evaluation whose claims were decided, with all of its measured runs.

    Measurements are cached in the opened runs, so that later readers need not repeat them.

    Raises:
        FileNotFoundError: the directory holds no evaluation, or the logs that it judged have been moved.
        ValueError: runs were added since it was last judged, or a file was not written by goalscope.
    """
    run, ledger = reopen(directory)
    with opened(run) as runs:
        yield Reopened(run, ledger, runs)


def judge(
    evaluation: EvaluationRun, runs: Mapping[tuple[str, str], ArmRun], arguments: Mapping[str, Any] | None = None
) -> Evaluation:
    """Decide all claims (answers to questions about models) from measured runs; where evidence fails, say why.

    Args:
        evaluation: the evaluation.
        runs: (arm or part of the evaluation, name of a model) -> measured run, from `opened`.
        arguments: the user's arguments, for the record.
    """
    rules: list[Rule] = [registry.resolve("claim", name) for name in registry.names("claim")]
    ledgers = []
    for subject in evaluation.subjects:
        reports, claims, by_arm = [], [], data_by_arm(evaluation.arms, subject, runs)
        findings = list[Finding]()
        agent: dict[str, Any] = {}
        for arm in evaluation.arms:
            if (arm.name, subject.name) not in runs:
                why = _why(evaluation, arm, subject)
                reports.append(AskedArm(name=arm.name, title=arm.title, asked=False, why=why))
                continue
            data = by_arm[arm.name]
            names = arm.names(subject) if subject.logs is None else [subject.name]
            with evaluation.failures.kept_apart(f"reading what {subject.name} is in {arm.title}"):
                agent = agent or stored_description(data.run.store, names)
            episodes = data.rows.select(measure="success")
            counts: dict[str, Any] = {
                "worlds": len(set(episodes.cluster.tolist())),
                "episodes": len(episodes),
                "sizes": data.sizes,
            }
            counts = counts if arm.looks is None else {}  # the worlds are those of the arm whose run it reads
            reports.append(AskedArm(name=arm.name, title=arm.title, asked=True, **counts))
            decided = [
                one for rule in rules if rule.arm == arm.name for one in _decided(evaluation.failures, rule, data)
            ]
            if arm.name in AIMED and not data.speechless:
                with evaluation.failures.kept_apart(f"what {subject.name} is after in {arm.title}"):
                    findings += aims_in(data.run, data.agent, arm.name)
            claims += [_linked(claim, arm, data.run) for claim in decided]
        ledger = ClaimLedger(
            rules=RULES,
            model=subject.name,
            described=described(evaluation.plan.models[evaluation.plan.names.index(subject.name)]),
            agent=agent,
            access=tuple(sorted(subject.access)),
            planted=planted_goal(evaluation.plan.worlds, subject.name),
            look=evaluation.plan.look,
            level=evaluation.level,
            arms=tuple(reports),
            findings=tuple(findings),
            claims=tuple(claims),
        )
        with evaluation.failures.kept_apart(f"reading the verdict on {subject.name} again"):
            if faults := contradictions(ledger):
                raise LastingError(TEXTS("failed/contradiction", model=subject.name, faults="; ".join(faults)))
        ledgers.append(ledger)
    models = [ledger.model for ledger in ledgers if ledger.planted is None]
    compared = differences(models, runs, evaluation.level, evaluation.failures.kept_apart)
    return Evaluation(models=tuple(ledgers), differences=compared, origin=_origin(evaluation, runs, arguments))


def _origin(
    evaluation: EvaluationRun, runs: Mapping[tuple[str, str], ArmRun], arguments: Mapping[str, Any] | None
) -> Origin:
    """Return the current version and the hashes of the judged runs; a damaged run without a hash is left out."""
    stores, hashes, recorded = {run.store.path.name: run.store for run in runs.values()}, dict[str, str](), {}
    for name, store in sorted(stores.items()):
        with evaluation.failures.kept_apart(f"the content hash of {name}"):
            hashes[name], recorded[name] = kept_content_hash(store), content_hash(store, derived=False)
    session, scrubbed = provenance.session(), provenance.scrub(arguments or {})
    origin_fields = {name: session[name] for name in ("goalscope", "commit", "dirty")}
    return Origin(
        **origin_fields,
        arguments=scrubbed,
        seed=evaluation.plan.seed,
        plan=evaluation.plan.id,
        runs=hashes,
        recorded=recorded,
    )


def _decided(failures: Failures, rule: Rule, data: ArmData) -> list[Claim]:
    """Return the claims of a rule; if judging fails, one untestable claim."""
    place = f"judging “{rule.name}” of {data.agent}"
    with failures.kept_apart(place), TALLY.labelled(place):  # a line on a long silence says what takes so long
        return decide(rule, data)
    why = f"judging it failed, see {FAILURES}"
    # The data may be damaged, and the name of the goal is read from it.
    worded = {name: getattr(rule, name).replace("{goal}", "the goal") for name in WORDED}
    return decide(replace(rule, **worded, evidence=lambda _: Evidence(why=why)), data)


def _linked(claim: Claim, arm: Arm, run: ArmRun) -> Claim:
    """Link a claim to its section on the page of the model's run; for recorded logs, to the section of the arm."""
    folder = arm.at if run.part is not None else run.store.path.name
    return claim.model_copy(update={"section": f"{folder}-{claim.section}"})


def _why(evaluation: EvaluationRun, arm: Arm, subject: Subject) -> str:
    """Return why an arm was not run with a model, and what would make it possible."""
    if (arm.name, subject.name) in evaluation.failures.unasked:
        return evaluation.failures.unasked[arm.name, subject.name]
    if subject.logs is not None and evaluation.plan.choices.has(arm):
        varied = f" with two values of the tag {arm.varies}" if arm.varies else ""
        return f"the logs contain no such episodes{varied}, only {_kinds_in(subject.logs, subject.name)}: {_RECORD}"
    if not evaluation.plan.choices.has(arm):
        return LEFT_OUT
    if not arm.open_to(subject):
        return arm.reason_for(subject)
    if not evaluation.subjects_for(arm):
        return NO_ROOM
    with Store(evaluation.path(arm.at, subject)) as store:
        return inside_record(store, arm)["refused"]


def _kinds_in(logs: Path, agent: str) -> str:
    """Return the kinds of worlds in an agent's logs; a kind is the value of the tag by which arms select worlds."""
    with Store(logs) as store:
        rows = store.rows().select(measure="success", agent=agent)
    kinds = sorted({str(kind) for kind in rows.tags.get("kind", ()) if kind is not None})
    return f"worlds of the kind {listed(kinds)}" if kinds else "worlds without the tag kind"


def write(evaluation: EvaluationRun, ledgers: Evaluation) -> Path:
    """Write an evaluation with its claims to its directory as ``ledger.json``, and return the path of this file."""
    return write_page(evaluation.directory / LEDGER, ledgers.to_json() + "\n")


# Every verdict is checked before it is saved: its sentences, its claims and the findings behind both must not
# contradict each other. A contradiction is a fault of goalscope, not of the model: it is reported as a failure that no
# repetition mends, and the numbers are kept.

_SLACK: Final = 1e-6
_NUMBER: Final = re.compile(r"[−-]?\d+\.\d+")
_VIEWS: Final = ("is directed at the goal", "is directed at another", FOLLOWS)


def contradictions(ledger: ClaimLedger) -> list[str]:
    """Check that the claims, findings and sentences of the verdict on a model do not contradict each other.

    Returns:
        One sentence for each contradiction; empty if there is none.
    """
    sentences = [*_of_findings(ledger), *_of_claims(ledger), *_of_views(ledger)]
    verdict_text = headline(ledger)
    sentences += _of_numbers(ledger, verdict_text)
    if re.search(r"(?:not act|acts) optimally(?! for)", verdict_text):
        sentences.append("competence is said without the aim that it is for")
    return sentences


def _of_findings(ledger: ClaimLedger) -> Iterator[str]:
    """Yield the errors of findings whose answer does not follow from their number and threshold."""
    for finding in ledger.findings:
        label = f"the finding in {finding.arm or 'all arms'} {where_text(finding.where)}".strip()
        if finding.answer == "yes" and not finding.names:
            yield f"{label} says yes and names nothing"
        if finding.answer in ("no", "untestable") and finding.names:
            yield f"{label} says {finding.answer} and names {', '.join(finding.names)}"
        yield from _beyond(label, finding.estimate)
        yield from _beyond(f"{label}, tested", finding.tested)
        for name, share in finding.evidence.items():
            yield from _beyond(f"{label}, {name}", share)
        estimate, threshold = finding.estimate, finding.threshold
        if finding.answer in ("yes", "no") and (estimate is None or threshold is None):
            yield f"{label} says {finding.answer} without a number and its threshold"
        if estimate is None or threshold is None or estimate.low is None or estimate.high is None:
            continue
        above, below = estimate.low >= threshold - _SLACK, estimate.high <= threshold + _SLACK
        # A rule that explains what the agent does denies the hypotheses by a number above its threshold.
        denied = above if finding.reason == "another rule" else below
        if finding.reason == "habit":
            denied = estimate.value is not None and estimate.value >= threshold - _SLACK
        if (finding.answer == "yes" and not above) or (finding.answer == "no" and not denied):
            conflict = f"{estimate.text} has another side of its threshold {threshold:g}"
            yield f"{label} says {finding.answer}, but {conflict}"


def _beyond(label: str, estimate: EstimateRecord | None) -> Iterator[str]:
    if estimate is not None and estimate.unit == "share":
        ends = [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
        if any(end > 1 + _SLACK for end in ends):
            yield f"{label} has a share above 1: {estimate.text}"


def _of_claims(ledger: ClaimLedger) -> Iterator[str]:
    for claim in ledger.claims:
        ends = [end for end in (claim.value, claim.low, claim.high) if end is not None]
        if claim.unit == "share" and any(end > 1 + _SLACK for end in ends):
            yield f"“{claim.name}” has a share above 1: {claim.estimate}"


def _of_views(ledger: ClaimLedger) -> Iterator[str]:
    """Yield the claims about the agent's aim that contradict what the verdict names."""
    findings = [finding for part in aims_of(ledger).values() for finding in part]
    for claim in ledger.claims:
        if not claim.name.startswith(_VIEWS):
            continue
        for finding in findings:
            own_arm = finding.arm == claim.arm or {finding.arm, claim.arm} <= {"grids", "hypotheses"}
            if not own_arm or not claim.name.endswith(where_text(finding.where)):
                continue
            if claim.name.startswith("is directed at another"):
                contradicted = claim.answer == finding.about(GOAL) == "yes"
            else:
                other_answer = finding.answer if claim.name.startswith(FOLLOWS) else finding.about(GOAL)
                contradicted = {claim.answer, other_answer} == {"yes", "no"}
            if contradicted:
                yield f"“{claim.name}” says {claim.answer}, and the verdict {say_all([finding])}"


def _of_numbers(ledger: ClaimLedger, verdict_text: str) -> Iterator[str]:
    """Yield decimal numbers in the verdict that no finding and no claim contains."""
    texts = [*(report.title for report in ledger.arms)]
    for finding in ledger.findings:
        texts += _texts_of_finding(finding)
    for claim in ledger.claims:
        # Thresholds stand in sentences as a number or as a percentage; names are those of an author's things.
        texts += [claim.estimate, claim.by_size, claim.name, claim.names]
        texts += [] if claim.threshold is None else [f"{claim.threshold:g}", percent(claim.threshold)]
    known_numbers = {number for text in texts for number in _NUMBER.findall(text)}
    for number in dict.fromkeys(_NUMBER.findall(verdict_text.replace(ledger.model, ""))):
        if number not in known_numbers:
            yield f"the verdict has the number {number}, which decided nothing"


def _texts_of_finding(finding: Finding) -> Iterator[str]:
    """Yield the texts of a finding from which its sentences take numbers, including names that authors gave."""
    estimates = (finding.estimate, finding.tested, *finding.evidence.values())
    yield from (estimate.text for estimate in estimates if estimate is not None)
    shares = [finding.bar, finding.threshold, *([finding.part.share] if finding.part is not None else [])]
    yield from (short(share, "share") for share in shares if share is not None)
    yield from (finding.why, where_text(finding.where), finding.agent, *finding.nouns.values())
    # A hypothesis without a noun phrase is called by its name.
    yield from (name for name in (*finding.names, finding.subject) if name not in finding.nouns)
