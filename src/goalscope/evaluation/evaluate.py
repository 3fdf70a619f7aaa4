"""An evaluation: arms are run, measured and judged; a run directory for each arm, one ledger, one page."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goalscope import registry
from goalscope.evaluation.arms import SEED, Arm, Look, arms, given_arm
from goalscope.evaluation.claims import ArmReport, Claim, ClaimLedger, Evaluation
from goalscope.evaluation.compare import differences
from goalscope.evaluation.evidence import ArmRun, data_by_arm
from goalscope.evaluation.rules import RULES, Rule, decide, level
from goalscope.evaluation.subject import Subject, describe
from goalscope.ids import content_id
from goalscope.measures.behaviour import put_measured
from goalscope.plain_files import check_file, path_in
from goalscope.report.page import write_page
from goalscope.runs import Store, Study, run
from goalscope.runs.merge import excerpt, grow, settle
from goalscope.runs.opening import unmade
from goalscope.runs.probing_config import Inside
from goalscope.runs.provenance import note, noted
from goalscope.runs.tables import DATABASE
from goalscope.untrusted import decode_object, explain, read_octets
from goalscope.yaml_text import read_yaml_text

PLAN: Final = "evaluation.json"
LEDGER: Final = "ledger.json"
PAGE: Final = "report.html"
ARMS: Final = "arms"
"""Names of the files, and of the folder of run directories, of an evaluation."""

LOOKS: Final = "evaluation inside"
"""Name of a run's note with the record of each arm that looks inside: settings, model, reason of a refusal."""

NO_ROOM: Final = "no room for it at this size: give a larger --budget"
_RECORD: Final = "record some (docs/import.md says how worlds are tagged), or give the model itself"

Stage = Callable[[str], AbstractContextManager[Callable[..., None]]]
"""Opens a progress display under a label; yields a function of (done, total, seconds left or None)."""


class _Plan(BaseModel):
    """The stored plan of an evaluation: models, seed, and the worlds a cell of each look."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    version: int = 1
    models: tuple[str, ...] = Field(strict=False, min_length=1)
    seed: int
    looks: tuple[dict[str, int], ...] = Field(strict=False)
    worlds: dict[str, Any] | None = None

    @classmethod
    def read(cls, path: Path) -> "_Plan":
        try:
            return cls.model_validate(decode_object(read_octets(check_file(path))))
        except ValidationError as error:
            raise ValueError(explain(error, {"": list(cls.model_fields)}, str(path), "plan")) from None

    def write(self, path: Path) -> None:
        write_page(path, json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1, sort_keys=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """An evaluation on disk, ready to be run or read.

    Attributes:
        directory: its directory.
        subjects: the evaluated models.
        seed: root seed of its worlds.
        sizes: arm -> worlds a cell; the arms that are run.
        look: number of the look with these sizes.
        worlds: the worlds that replace all others, see `goalscope.evaluation.arms.given_worlds`; None for those of the
            registered arms.
    """

    directory: Path
    subjects: tuple[Subject, ...]
    seed: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    look: int = 1
    worlds: Mapping[str, Any] | None = None

    @property
    def arms(self) -> list[Arm]:
        """The arms that may be run."""
        return arms() if self.worlds is None else [given_arm(self.worlds)]

    @property
    def level(self) -> float:
        """Probability of a wrong answer that this look allows."""
        return level(self.look)

    def path(self, name: str) -> Path:
        """Return the run directory of an arm."""
        return path_in(self.directory, ARMS, name)

    def subjects_for(self, arm: Arm) -> list[Subject]:
        """Return the models that an arm is run with."""
        subjects = [subject for subject in self.subjects if subject.logs is None and arm.open_to(subject)]
        return subjects if arm.name in self.sizes and arm.at in self.sizes else []

    def run_path(self, arm: Arm, subject: Subject) -> Path:
        """Return the run directory that holds the results of an arm for a model.

        A run stores readings of one model's activations. The run of an arm with worlds stores those of the first model
        that an inside arm is open to; each other model has an excerpt, named by its number: ``arms/grids-2``.
        """
        inside_arms = [each for each in arms() if each.looks is not None and each.at == arm.at]
        open_models = (
            model
            for model in self.subjects
            if model.logs is None and any(inside_arm.open_to(model) for inside_arm in inside_arms)
        )
        first = next(open_models, None)
        if arm.looks is None or subject == first:
            return self.path(arm.at)
        return self.path(f"{arm.at}-{self.subjects.index(subject) + 1}")

    @property
    def logs(self) -> list[Path]:
        """The runs of recorded logs that are evaluated."""
        return list(dict.fromkeys(subject.logs for subject in self.subjects if subject.logs is not None))


def prepare(
    directory: str | Path,
    subjects: Sequence[Subject],
    sizes: Mapping[str, int],
    *,
    seed: int = SEED,
    worlds: Mapping[str, Any] | None = None,
) -> EvaluationRun:
    """Declare an evaluation, or continue one; the plan is stored before anything is run.

    Sizes that are not larger than those of the last look continue that look. Larger ones are a new look, which adds
    worlds to the existing ones.

    Args:
        directory: its directory, created where it is missing.
        subjects: the models to evaluate.
        sizes: arm -> worlds a cell.
        seed: root seed of the worlds.
        worlds: the worlds that replace all others, see `goalscope.evaluation.arms.given_worlds`.

    Raises:
        ValueError: the directory holds another evaluation, or other files.
    """
    if not sizes and any(subject.logs is None for subject in subjects):
        raise ValueError("an evaluation must ask at least one arm: give a larger budget, or a model that can be asked")
    out, models = Path(directory), tuple(describe(subject) for subject in subjects)
    path, own_worlds = check_file(out / PLAN), None if worlds is None else dict(worlds)
    if path.exists():
        plan = _Plan.read(path)
        if plan.models != models or plan.seed != seed:
            raise ValueError(
                f"{out} holds the evaluation of {'; '.join(plan.models)} with seed {plan.seed}, not of "
                f"{'; '.join(models)} with seed {seed}: choose another directory"
            )
        if plan.worlds != own_worlds:
            raise ValueError(f"{out} holds an evaluation in other worlds: give the same --worlds, or another directory")
        last = plan.looks[-1]
        larger = {name: max(worlds_a_cell, last.get(name, 0)) for name, worlds_a_cell in {**last, **sizes}.items()}
        looks = plan.looks if larger == last else (*plan.looks, larger)
    else:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise ValueError(f"an evaluation needs a directory of its own, but {out} holds other files: choose another")
        looks = (dict(sizes),)
    _Plan(models=models, seed=seed, looks=looks, worlds=own_worlds).write(path)
    sizes, look = looks[-1], len(looks)
    return EvaluationRun(directory=out, subjects=tuple(subjects), seed=seed, sizes=sizes, look=look, worlds=own_worlds)


def reopen(directory: str | Path) -> tuple[EvaluationRun, Evaluation]:
    """Return a judged evaluation and its ledger, without its models.

    Recorded logs are expected beside its directory, under their directory's name.

    Raises:
        FileNotFoundError: no evaluation lies there, or the logs that it judged are elsewhere.
        ValueError: it was not judged since it grew, or a file is none of goalscope's.
    """
    out = Path(directory)
    plan, ledger = _Plan.read(out / PLAN), Evaluation.read(check_file(out / LEDGER))
    if ledger.models[0].look != len(plan.looks):
        raise ValueError(f"an evaluation must be judged to be read, but {out} grew since: run the same command again")
    subjects = []
    for model in ledger.models:
        logs = None
        if "logs" in model.access:
            logs = out.resolve().parent / Path(str(read_yaml_text(model.described, str(out))["run"])).name
            if unmade(logs / DATABASE):
                raise FileNotFoundError(
                    f"the logs that were judged must lie beside {out}, but {logs} holds none: move them"
                )
        subjects.append(Subject(name=model.model, kind="", access=frozenset(model.access), logs=logs))
    fields: dict[str, Any] = {
        "seed": plan.seed,
        "sizes": plan.looks[-1],
        "look": len(plan.looks),
        "worlds": plan.worlds,
    }
    return EvaluationRun(directory=out, subjects=tuple(subjects), **fields), ledger


def play(
    evaluation: EvaluationRun, stage: Stage, *, workers: int = 1, arguments: Mapping[str, Any] | None = None
) -> None:
    """Run and measure every arm, measure recorded logs; stored results are not repeated."""
    for logs in evaluation.logs:
        _measure(logs, stage, logs.name)
    for arm in evaluation.arms:
        subjects = evaluation.subjects_for(arm)
        if not subjects:
            continue
        if arm.looks is not None:
            for subject in subjects:
                _look_inside(evaluation, arm, arm.looks, subject, stage)
            continue
        study = arm.make(subjects, evaluation.sizes[arm.name], evaluation.seed)
        path = evaluation.path(arm.name)
        stored = _stored(path)
        if stored is not None and stored.id != study.id:
            grow(path, study)
        with stage(f"{arm.name}: episodes") as show:
            run(
                study,
                path,
                workers=workers,
                arguments=arguments,
                progress=lambda done, total, steps, left, show=show: show(done, total, left),  # type: ignore[misc]
            )
        _measure(path, stage, arm.name)


def _look_inside(evaluation: EvaluationRun, arm: Arm, look: Look, subject: Subject, stage: Stage) -> None:
    """Read or change activations, unless that was done before with the same settings on as many worlds.

    Where the model or the worlds do not allow it, the message of the error is stored as the reason.
    """
    path, settings = evaluation.run_path(arm, subject), look.settings(subject.name, evaluation.sizes[arm.name])
    if path != evaluation.path(look.at):
        _excerpt(evaluation, look.at, subject, path, stage)
    declared = {"agent": subject.name, "settings": settings.model_dump(mode="json")}
    request_id = content_id("look", {**declared, "worlds": evaluation.sizes[look.at]})
    with Store(path) as store:
        if _inside_record(store, arm).get("mark") == request_id:
            return
    refused = ""
    try:
        if isinstance(settings, Inside):
            from goalscope.probing.pipeline import study_inside

            study_inside(path, settings, stage=lambda label: stage(f"{arm.name}: {label}"))
        else:
            from goalscope.interventions.experiment import study_interventions

            study_interventions(path, [settings], stage=lambda label: stage(f"{arm.name}: {label}"))
    except ValueError as refusal:
        refused = " ".join(str(refusal).split())
    with Store(path, "w") as store:
        record = {"mark": request_id, "model": subject.name, "refused": refused}
        note(store, LOOKS, {arm.name: record})


def _excerpt(evaluation: EvaluationRun, at: str, subject: Subject, path: Path, stage: Stage) -> None:
    """Write the measured run with the episodes of one model of an arm, again where the arm grew."""
    arm: Arm = registry.resolve("arm", at)
    study = arm.make([subject], evaluation.sizes[at], evaluation.seed)
    stored = _stored(path)
    if stored is None or stored.id != study.id:
        excerpt(evaluation.path(at), study, path)
    _measure(path, stage, path.name)


def _stored(path: Path) -> Study | None:
    """Return the study of a run, after completing an interrupted replacement of it; None where there is no run."""
    settle(path)
    if unmade(path / DATABASE):
        return None
    with Store(path) as store:
        return store.study()


def _inside_record(store: Store, arm: Arm) -> Mapping[str, str]:
    """Return the stored record of an arm that looks inside: mark, model, and reason of a refusal, "" for none."""
    record = noted(store, LOOKS).get(arm.name)
    return record if isinstance(record, dict) and all(isinstance(value, str) for value in record.values()) else {}


def _measure(path: Path, stage: Stage, name: str) -> None:
    """Measure a run whose rows do not cover its episodes."""
    with Store(path) as store:
        episodes = store.episode_ids()
        measured = {episode for name, ids in store.row_labels("episode_id") if name == "success" for episode in ids}
    if len(measured) == len(episodes):
        return
    with Store(path, "w") as store, stage(f"{name}: measuring") as show:
        put_measured(store, lambda done, total: show(done, total))


Opened = dict[tuple[str, str], ArmRun]
"""(arm, name of a model) -> the measured run with its episodes."""


@contextmanager
def opened(evaluation: EvaluationRun) -> Iterator[Opened]:
    """Open the measured runs of all arms and models, for `judge` and the page."""
    confidence, opened_runs, by_path = 1 - evaluation.level, Opened(), dict[Path, ArmRun]()
    with ExitStack() as stack:
        logs = {path: stack.enter_context(Store(path)) for path in evaluation.logs}
        for arm in evaluation.arms:
            for subject in evaluation.subjects_for(arm):
                run_path = evaluation.run_path(arm, subject)
                if run_path != evaluation.path(arm.at) and unmade(run_path / DATABASE):
                    continue  # an evaluation of an earlier version, which looked into the first model alone
                if run_path not in by_path:
                    by_path[run_path] = ArmRun.of(stack.enter_context(Store(run_path)), confidence)
                if arm.looks is None or not _inside_record(by_path[run_path].store, arm).get("refused"):
                    opened_runs[arm.name, subject.name] = by_path[run_path]
            recorded_runs = {path: ArmRun.of(store, confidence, arm.recorded) for path, store in logs.items()}
            for subject in evaluation.subjects:
                recorded = recorded_runs.get(subject.logs) if subject.logs is not None else None
                if recorded is not None and recorded.has_agent(subject.name, arm.varies):
                    opened_runs[arm.name, subject.name] = recorded
        yield opened_runs


def judge(evaluation: EvaluationRun, runs: Mapping[tuple[str, str], ArmRun]) -> Evaluation:
    """Decide all claims from the runs of the arms."""
    rules: list[Rule] = [registry.resolve("claim", name) for name in registry.names("claim")]
    ledgers = []
    for subject in evaluation.subjects:
        reports, claims, by_arm = [], [], data_by_arm(evaluation.arms, subject, runs)
        for arm in evaluation.arms:
            if (arm.name, subject.name) not in runs:
                why = _why(evaluation, arm, subject)
                reports.append(ArmReport(name=arm.name, title=arm.title, asked=False, why=why))
                continue
            data = by_arm[arm.name]
            episodes = data.rows.select(measure="success")
            counts: dict[str, Any] = {"worlds": len(set(episodes.cluster.tolist())), "episodes": len(episodes)}
            counts = counts if arm.looks is None else {}  # the worlds are those of the arm whose run it reads
            reports.append(ArmReport(name=arm.name, title=arm.title, asked=True, **counts))
            decided = [decide(rule, data) for rule in rules if rule.arm == arm.name]
            claims += [_linked(claim, arm, data.run) for claim in decided]
        ledgers.append(
            ClaimLedger(
                rules=RULES,
                model=subject.name,
                described=describe(subject),
                access=tuple(sorted(subject.access)),
                look=evaluation.look,
                level=evaluation.level,
                arms=tuple(reports),
                claims=tuple(claims),
            )
        )
    names = [arm.name for arm in evaluation.subjects]
    return Evaluation(models=tuple(ledgers), differences=differences(names, runs, evaluation.level))


def _linked(claim: Claim, subject: Arm, run: ArmRun) -> Claim:
    """Return a claim that links to the section of its own run, where that run is an excerpt of the arm's."""
    if subject.looks is None or run.part is not None:
        return claim
    section = claim.section.removeprefix(f"{subject.at}-")
    return claim.model_copy(update={"section": f"{run.store.path.name}-{section}"})


def _why(evaluation: EvaluationRun, arm: Arm, subject: Subject) -> str:
    """Return why an arm was not run with a model, and what would make it possible."""
    if subject.logs is not None:
        return f"the logs hold no such episodes: {_RECORD}"
    if not arm.open_to(subject):
        return arm.why
    if not evaluation.subjects_for(arm):
        return NO_ROOM
    with Store(evaluation.run_path(arm, subject)) as store:
        return _inside_record(store, arm)["refused"]


def write(evaluation: EvaluationRun, ledgers: Evaluation) -> Path:
    """Write the ledger; return its path."""
    return write_page(evaluation.directory / LEDGER, ledgers.to_json() + "\n")
