"""Run and measure the arms, each independently of the others; stored results are not computed again."""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from pydantic import BaseModel

from goalscope._ground.ids import content_id
from goalscope._ground.own import raised_by_a_check
from goalscope._ground.progress import Display
from goalscope._ground.untrusted import DamagedError, StrangeFileError
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.local import LocalModel
from goalscope.measures.behaviour import put_measured
from goalscope.runs import Store, run
from goalscope.runs.dispatch import interrupt_others, interruptible
from goalscope.runs.provenance import note, noted
from goalscope.runs.study import Study
from goalscope.runs.study_parts import Inside
from goalscope.verdict.arms import Arm, Look
from goalscope.verdict.failures import does_not_fit
from goalscope.verdict.plan import EvaluationRun
from goalscope.verdict.subject import Subject

_LEFT_OUT: Final = "its experiment is of another package and failed, as a notice says"
LOOKS: Final = "evaluation inside"
"""Name of the note in a run about each arm that looks inside: settings, rows, model, and the reason if it was
refused.
"""


def play(
    evaluation: EvaluationRun, stage: Display, *, workers: int = 1, arguments: Mapping[str, Any] | None = None
) -> None:
    """Run every arm (part of an evaluation) with each model, and measure the episodes and recorded logs.

    Stored results are not repeated. If an arm fails with a model or does not fit it, `EvaluationRun.failures` says why.
    `arguments` are the user's, for the record; `workers` limits simultaneous calls of a model.
    """
    failures = evaluation.failures
    failures.begin()
    for logs in evaluation.logs:
        names = [subject.name for subject in evaluation.subjects if subject.logs == logs]
        with failures.kept_apart(f"measuring {logs.name}", [arm.name for arm in evaluation.arms], names):
            _measure_stored(logs, stage, logs.name)
    played = set[tuple[str, str]]()
    for subject in evaluation.subjects if workers == 1 else ():
        played |= {(arm.name, subject.name) for arm in play_together(evaluation, subject, stage, arguments)}
    for arm in evaluation.arms:
        for subject in evaluation.subjects_for(arm):
            if subject.name in failures.silent:
                failures.leave_out([arm.name], [subject.name], failures.silent[subject.name])
            failures.leave_out_unplayed(arm, subject)
            if (arm.name, subject.name) in failures.unasked:
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                if arm.looks is not None:
                    _look_inside(evaluation, arm, arm.looks, subject, stage)
                elif (arm.name, subject.name) in played:
                    _measure_stored(evaluation.path(arm.name, subject), stage, arm.name)
                elif why := does_not_fit(
                    arm, subject, evaluation.plan.sizes[arm.name], evaluation.plan.seed, failures.makeable
                ):
                    failures.leave_out([arm.name], [subject.name], why)
                else:
                    _play_worlds(evaluation, arm, subject, stage, workers, arguments)


def _play_worlds(
    evaluation: EvaluationRun,
    arm: Arm,
    subject: Subject,
    stage: Display,
    workers: int,
    arguments: Mapping[str, Any] | None,
) -> None:
    """Run the worlds of an arm with a model, and measure the episodes."""
    study = arm.make([subject], evaluation.plan.sizes[arm.name], evaluation.plan.seed)
    label = f"{arm.name}: episodes" + (f" of {subject.name}" if len(evaluation.subjects) > 1 else "")
    try:
        store = evaluation.store(arm, subject, study)
        with stage(label) as show:
            run(
                study,
                store,
                workers=workers,
                arguments=arguments,
                again=AGAIN,
                progress=lambda done, total, steps, left: show(done, total, left),
            )
        _measure(store, stage, arm.name)
    finally:
        evaluation.close(arm, subject)


def _measure_stored(path: Path, stage: Display, name: str) -> None:
    """Measure a stored run, which is opened for writing only if that is needed."""
    with Store(path) as store:
        measured = _is_measured(store)
    if not measured:
        with Store(path, "w") as store:
            _measure(store, stage, name)


def _look_inside(evaluation: EvaluationRun, arm: Arm, look: Look, subject: Subject, stage: Display) -> None:
    """Read or change activations, unless this was already done with the same settings on the same number of worlds.

    If `probe` or `patch` has replaced these rows since, the work is repeated with the existing probes.

    If a check of goalscope says that the model or the worlds do not allow it, its message is stored as the reason.
    """
    sizes, path = evaluation.plan.sizes, evaluation.path(look.at, subject)
    settings = look.settings(subject.name, sizes[arm.name])
    declared = {"agent": subject.name, "settings": settings.model_dump(mode="json")}
    request_id = content_id("look", {**declared, "worlds": sizes[look.at]})
    with Store(path) as store:
        stored_record = inside_record(store, arm)
        if stored_record.get("mark") == request_id and stored_record.get("rows") == _rows_of(store, settings):
            return
    refused = ""
    try:
        if isinstance(settings, Inside):
            from goalscope.inside.probing.pipeline import study_inside

            study_inside(path, settings, stage=lambda label: stage(f"{arm.name}: {label}"))
        else:
            from goalscope.inside.interventions.experiment import study_interventions

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
        record = {"mark": request_id, "rows": _rows_of(store, settings), "model": subject.name, "refused": refused}
        note(store, LOOKS, {arm.name: record})


def _rows_of(store: Store, settings: BaseModel) -> str:
    """Return a hash of the rows of a look inside, from their checksums; commands with other settings replace
    such rows.
    """
    names = settings.reads if isinstance(settings, Inside) else (getattr(settings, "kind", ""),)
    sums = store.query("SELECT key, value FROM checksums WHERE kind = 'rows' ORDER BY key")
    return content_id("rows", [[key, value] for key, value in sums if re.split(r"[/\0]", str(key))[0] in names])


def inside_record(store: Store, arm: Arm) -> Mapping[str, str]:
    """Return what a run stores about an arm (part of an evaluation) that has looked inside its model.

    Returns:
        The keys "mark" (a hash of the settings that were used), "rows" (a hash of the results), "model", and "refused"
        (why the model or the worlds do not allow it, or ""). Empty if the arm has not looked inside yet.
    """
    record = noted(store, LOOKS).get(arm.name)
    return record if isinstance(record, dict) and all(isinstance(value, str) for value in record.values()) else {}


def _is_measured(store: Store) -> bool:
    """Return whether all episodes of a run were measured."""
    measured = {episode for name, ids in store.row_labels("episode_id") if name == "success" for episode in ids}
    return len(measured) == len(store.episode_ids())


def _measure(store: Store, stage: Display, name: str) -> None:
    """Measure a run unless all its episodes were measured already."""
    if not _is_measured(store):
        with stage(f"{name}: measuring") as show:
            put_measured(store, lambda done, total: show(done, total))


# Several arms of one small model at the same time, so that it can answer prompts of all arms in one batch.
#
# If arms were played one after another, the last episodes of each would be asked one by one, and for a small model on a
# CPU that takes as long as a batch of ten. Here each arm runs in a thread of its own, and the model decodes the
# requests of all threads together (`goalscope.agents.models.decode`).

AGAIN: Final = "run the same command"


def together(evaluation: EvaluationRun, subject: Subject) -> list[tuple[Arm, Study, list[ChatAgent]]]:
    """Return the arms (parts of an evaluation) that a small local model plays at the same time, to share its batches.

    These are the arms with worlds, for a local model that is small enough for one core. An arm with a prompt that is
    too long for the model is not among them; `play` reports this when it reaches the arm.

    Returns:
        Each arm with its study and its agents; empty if there are fewer than two.
    """
    groups, failures, plan = list[tuple[Arm, Study, list[ChatAgent]]](), evaluation.failures, evaluation.plan
    if subject.name in failures.silent or subject.logs is not None:
        return []
    for arm in evaluation.arms:
        left_out = (arm.name, subject.name) in failures.unasked
        if arm.looks is not None or left_out or subject not in evaluation.subjects_for(arm):
            continue
        with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
            study = arm.make([subject], plan.sizes[arm.name], plan.seed)
            agents = study.agents()
            chats = [agent for agent in agents if isinstance(agent, ChatAgent)]
            small = all(isinstance(agent.model, LocalModel) and agent.model.fits_a_core for agent in chats)
            if (
                len(chats) == len(agents) == 1
                and small
                and not does_not_fit(arm, subject, plan.sizes[arm.name], plan.seed)
            ):
                groups.append((arm, study, chats))
    return groups if len(groups) > 1 else []


def play_together(
    evaluation: EvaluationRun, subject: Subject, stage: Display, arguments: Mapping[str, Any] | None
) -> list[Arm]:
    """Run several arms (parts of an evaluation) of a small local model at the same time; return these arms.

    The model then answers prompts of all arms in one batch. If there are fewer than two such arms (see `together`),
    nothing is run.

    Args:
        evaluation: the evaluation, with sizes.
        subject: the model.
        stage: displays the progress of a piece of work.
        arguments: the user's arguments, for the record.

    Raises:
        KeyboardInterrupt: the user stopped it; finished work of each arm is kept.
        Exception: an error after which nothing else could succeed, see `Failures.kept_apart`.
    """
    chosen = together(evaluation, subject)
    if not chosen:
        return []
    names = ", ".join(arm.name for arm, _, _ in chosen)
    label = f"{names}: episodes" + (f" of {subject.name}" if len(evaluation.subjects) > 1 else "")
    with stage(label) as show, interruptible() as interrupts:
        display = _Shown(show, len(chosen))
        ended = SimpleQueue[None]()
        problems: dict[int, BaseException] = {}

        def play_one(number: int) -> None:
            arm, study, agents = chosen[number]
            try:
                with evaluation.failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                    run(
                        study,
                        evaluation.store(arm, subject, study),
                        agents=agents,
                        arguments=arguments,
                        again=AGAIN,
                        progress=lambda done, total, steps, left: display(number, done, total),
                    )
            except BaseException as error:  # noqa: BLE001 - raised in the main thread
                problems[number] = error
            finally:
                evaluation.close(arm, subject)
                ended.put(None)

        threads = [threading.Thread(target=play_one, args=(number,), daemon=True) for number in range(len(chosen))]
        for thread in threads:
            thread.start()
        interrupts.awaiting = ended
        left, announced = len(threads), False
        while left:
            ended.get()
            if interrupts.count and not announced:
                interrupt_others()
                announced = True
            else:
                left -= 1
        interrupts.awaiting = None
    if problems:
        raise problems[min(problems)]
    return [arm for arm, _, _ in chosen]


class _Shown:
    """The progress of several runs as one."""

    def __init__(self, show: Any, count: int) -> None:
        self._show, self._lock, self._told = show, threading.Lock(), dict.fromkeys(range(count), (0, 0))

    def __call__(self, number: int, done: int, total: int) -> None:
        with self._lock:
            self._told[number] = done, total
            if all(total for _, total in self._told.values()):
                self._show(*(sum(part) for part in zip(*self._told.values(), strict=True)))
