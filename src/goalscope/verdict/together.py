"""Play the arms of one small model at the same time, so that it can answer prompts of all arms in one batch.

If arms were played one after another, the last episodes of each would be asked one by one, and for a small model on a
CPU that takes as long as a batch of ten. Here each arm runs in a thread of its own, and the model decodes the requests
of all threads together (`goalscope.agents.models.decode`).
"""

import threading
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Final

from goalscope._ground.progress import Display
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.local import LocalModel
from goalscope.runs import run
from goalscope.runs.dispatch import interrupt_others, interruptible
from goalscope.runs.study import Study
from goalscope.verdict.arms import Arm
from goalscope.verdict.failures import does_not_fit
from goalscope.verdict.plan import EvaluationRun
from goalscope.verdict.subject import Subject

AGAIN: Final = "run the same command"


def together(evaluation: EvaluationRun, subject: Subject) -> list[tuple[Arm, Study, list[ChatAgent]]]:
    """Return the arms that a model plays at the same time, with their studies and agents; [] if there are fewer than
    two.

    These are the arms with worlds, for a local model that is small enough for one core. An arm that does not fit the
    model is left to `play`, which reports it.
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
    """Run the worlds of the arms of a small local model at the same time; return these arms.

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
