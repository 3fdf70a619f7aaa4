"""The measured batch of each model: first turns of its first arm, asked before everything else and kept.

A model that gives no usable answer is asked nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from goalscope._ground.progress import TALLY
from goalscope._ground.words import counted
from goalscope.verdict.arms import Arm
from goalscope.verdict.budget import Budget
from goalscope.verdict.failures import not_played
from goalscope.verdict.plan import EvaluationRun
from goalscope.verdict.preflight.first_turns import (
    SECONDS,
    FirstTurns,
    Limits,
    announced,
    ask_first_turns,
    found,
    most_turns,
    stored_first_turns,
    why_unusable,
)
from goalscope.verdict.preflight.seen_settings import SCORABLE_SECONDS, scorable, with_seen_settings
from goalscope.verdict.subject import Subject
from goalscope.verdict.texts import TEXTS

_TENTH: Final = 0.1  # largest share of a budget that a measured batch takes


def measure(
    evaluation: EvaluationRun,
    arms: Sequence[Arm],
    subjects: Sequence[Subject],
    limit: Budget | None,
    *,
    workers: int = 1,
    arguments: Mapping[str, Any] | None = None,
) -> tuple[dict[str, FirstTurns], list[Subject]]:
    """Ask each model for its measured batch, at most a tenth of the budget in total.

    A model whose first answers suggest other settings is asked again with these, see `preflight.seen_settings`. Models
    without a usable answer are recorded in the failures of the evaluation.

    Returns:
        Name of a model -> its batch, for models with usable answers; and the models with their settings.

    Args:
        evaluation: the evaluation that stores the answers; its plan is written before the first answer that costs
            something.
        arms: the arms that can be asked.
        subjects: the models.
        limit: the budget, or None for no limit.
        workers: maximum number of simultaneous calls.
        arguments: the user's arguments, for the record.
    """
    share = 0.0 if limit is None or not subjects else _TENTH * limit.amount / len(subjects)
    limits = Limits() if limit is None else Limits(usage={limit.of: share})
    if limit is not None and limit.of == "seconds":
        limits = Limits(seconds=min(SECONDS, share))
    firsts, all_arms, failures = dict[str, FirstTurns](), [arm.name for arm in arms], evaluation.failures
    settled = list[Subject]()
    for requested in subjects:
        subject = requested
        for arm in arms:
            if arm.looks is not None or not arm.open_to(subject) or (arm.name, subject.name) in failures.unasked:
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                patience = min(limits.unusable, SCORABLE_SECONDS) if scorable(subject) else limits.unusable
                limits_of_subject = replace(limits, unusable=patience)
                first = _measure(evaluation, arm, subject, limits_of_subject, workers, arguments)
                if (change := with_seen_settings(subject, first, limits_of_subject)) is not None:
                    subject, reason = change
                    TALLY.tell(reason)
                    first = _measure(evaluation, arm, subject, limits, workers, arguments)
                if why := why_unusable(first):
                    failures.silent[subject.name] = why
                    failures.leave_out(all_arms, [subject.name], why)
                    if first.silent:  # its server failed; answers that cannot be used are a finding about the model
                        failures.failed.append(f"{subject.name}: {why}")
                else:
                    firsts[subject.name] = first
                break
            reasons = [why for (_, name), why in failures.unasked.items() if name == subject.name]
            if len(reasons) > 1 and reasons[-1] == reasons[-2]:  # the other arms would fail, too
                failures.leave_out(all_arms, [subject.name], reasons[-1])
        for arm in arms:
            if arm.looks is not None and (arm.at, subject.name) in failures.unasked:
                failures.leave_out([arm.name], [subject.name], not_played(arm))
        settled.append(subject)
    return firsts, settled


def _measure(
    evaluation: EvaluationRun,
    arm: Arm,
    subject: Subject,
    limits: Limits,
    workers: int,
    arguments: Mapping[str, Any] | None,
) -> FirstTurns:
    study = arm.make([subject], evaluation.plan.sizes.get(arm.name, max(arm.quick, 1)), evaluation.plan.seed)
    agent, parameters = study.agents()[0], study.agents_[0].parameters
    path, most = evaluation.path(arm.name, subject), max(1, most_turns(study))
    if not agent.journalled:
        return ask_first_turns(study, agent, parameters, path, limits, most=most)
    stored = stored_first_turns(path, agent)
    if stored is not None:
        TALLY.tell(TEXTS("plan/timed before", name=subject.name, moves=counted(stored.asked, "first move")))
        return stored
    TALLY.tell(announced(subject.name, most, limits))
    store = evaluation.written().store(arm, subject, study)
    first = ask_first_turns(study, agent, parameters, store, limits, workers=workers, most=most, arguments=arguments)
    for line in found(subject.name, first, limits):
        TALLY.tell(line)
    return first
