"""Arms are run and measured, each apart from the others; what is stored is not done again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.evaluation.arms import Arm, Look
from goalscope.evaluation.failures import does_not_fit, not_played
from goalscope.evaluation.plan import EvaluationRun
from goalscope.evaluation.subject import Subject
from goalscope.ids import content_id
from goalscope.measures.behaviour import put_measured
from goalscope.parts import raised_by_a_check
from goalscope.progress import Display
from goalscope.runs import Store, Study, run
from goalscope.runs.merge import excerpt, grow, settle
from goalscope.runs.opening import unmade
from goalscope.runs.probing_config import Inside
from goalscope.runs.provenance import note, noted
from goalscope.runs.tables import DATABASE
from goalscope.untrusted import DamagedError, StrangeFileError

_LEFT_OUT: Final = "its experiment is of another package and failed, as a notice says"
LOOKS: Final = "evaluation inside"
"""Name of a run's note with the record of each arm that looks inside: settings, model, reason of a refusal."""


def play(
    evaluation: EvaluationRun, stage: Display, *, workers: int = 1, arguments: Mapping[str, Any] | None = None
) -> None:
    """Run and measure every arm, measure recorded logs; stored results are not repeated.

    An arm that fails with a model, or does not fit it, is not asked of that model; see `EvaluationRun.failures`.
    """
    failures = evaluation.failures
    failures.begin()
    for logs in evaluation.logs:
        names = [subject.name for subject in evaluation.subjects if subject.logs == logs]
        with failures.kept_apart(f"measuring {logs.name}", [arm.name for arm in evaluation.arms], names):
            _measure(logs, stage, logs.name)
    for arm in evaluation.arms:
        for subject in evaluation.subjects_for(arm):
            if subject.name in failures.silent:
                failures.leave_out([arm.name], [subject.name], failures.silent[subject.name])
        subjects = [one for one in evaluation.subjects_for(arm) if (arm.name, one.name) not in failures.unasked]
        if arm.looks is None:
            _play_worlds(evaluation, arm, subjects, stage, workers, arguments)
            continue
        for subject in subjects:
            if (arm.at, subject.name) in failures.unasked:
                failures.leave_out([arm.name], [subject.name], not_played(arm))
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                _look_inside(evaluation, arm, arm.looks, subject, stage)


def _play_worlds(
    evaluation: EvaluationRun,
    arm: Arm,
    subjects: Sequence[Subject],
    stage: Display,
    workers: int,
    arguments: Mapping[str, Any] | None,
) -> None:
    """Run the worlds of an arm with each model that its prompts fit, and measure them."""
    failures, path = evaluation.failures, evaluation.path(arm.name)
    playing, count, seed = list[Subject](), evaluation.sizes.get(arm.name, 0), evaluation.seed
    for subject in subjects:
        with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
            if why := does_not_fit(arm, subject, count, seed):
                failures.leave_out([arm.name], [subject.name], why)
            else:
                playing.append(subject)
    if not playing:
        return
    names = [subject.name for subject in playing]
    with failures.kept_apart(arm.title, [arm.name], names):
        study = arm.make(evaluation.subjects_for(arm), count, seed)
        stored = _stored(path)
        if stored is not None and stored.id != study.id:
            grow(path, study)
        for subject in playing:
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                label = f"{arm.name}: episodes" + (f" of {subject.name}" if len(playing) > 1 else "")
                with stage(label) as show:
                    run(
                        study,
                        path,
                        agents=arm.make([subject], 1, seed).agents(),
                        workers=workers,
                        arguments=arguments,
                        again="run the same command",
                        progress=lambda done, total, steps, left, show=show: show(done, total, left),  # type: ignore[misc]
                    )
        if any((arm.name, name) not in failures.unasked for name in names):
            _measure(path, stage, arm.name)


def _look_inside(evaluation: EvaluationRun, arm: Arm, look: Look, subject: Subject, stage: Display) -> None:
    """Read or change activations, unless that was done before with the same settings on as many worlds.

    Where the model or the worlds do not allow it, which a check of goalscope says, its message is stored as the reason.
    """
    path, settings = evaluation.run_path(arm, subject), look.settings(subject.name, evaluation.sizes[arm.name])
    if path != evaluation.path(look.at):
        _excerpt(evaluation, look.at, subject, path, stage)
    declared = {"agent": subject.name, "settings": settings.model_dump(mode="json")}
    request_id = content_id("look", {**declared, "worlds": evaluation.sizes[look.at]})
    with Store(path) as store:
        if inside_record(store, arm).get("mark") == request_id:
            return
    refused = ""
    try:
        if isinstance(settings, Inside):
            from goalscope.probing.pipeline import study_inside

            study_inside(path, settings, stage=lambda label: stage(f"{arm.name}: {label}"))
        else:
            from goalscope.interventions.experiment import study_interventions

            if study_interventions(path, [settings], stage=lambda label: stage(f"{arm.name}: {label}")) == []:
                evaluation.failures.leave_out([arm.name], [subject.name], _LEFT_OUT)
                return
    except (DamagedError, StrangeFileError):
        raise
    except ValueError as refusal:
        if not raised_by_a_check(refusal):
            raise
        refused = " ".join(str(refusal).split())
    with Store(path, "w") as store:
        record = {"mark": request_id, "model": subject.name, "refused": refused}
        note(store, LOOKS, {arm.name: record})


def _excerpt(evaluation: EvaluationRun, at: str, subject: Subject, path: Path, stage: Display) -> None:
    """Write the measured run with the episodes of one model of an arm, again where the arm grew."""
    study = evaluation.arm(at).make([subject], evaluation.sizes[at], evaluation.seed)
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


def inside_record(store: Store, arm: Arm) -> Mapping[str, str]:
    """Return the stored record of an arm that looks inside: mark, model, and reason of a refusal, "" for none."""
    record = noted(store, LOOKS).get(arm.name)
    return record if isinstance(record, dict) and all(isinstance(value, str) for value in record.values()) else {}


def _measure(path: Path, stage: Display, name: str) -> None:
    """Measure a run whose rows do not cover its episodes."""
    with Store(path) as store:
        episodes = store.episode_ids()
        measured = {episode for name, ids in store.row_labels("episode_id") if name == "success" for episode in ids}
    if len(measured) == len(episodes):
        return
    with Store(path, "w") as store, stage(f"{name}: measuring") as show:
        put_measured(store, lambda done, total: show(done, total))
