"""The measured batch of each model: first turns of its first arm, asked before everything else and kept.

A model that gives no usable answer is asked nothing else, and settings of a language model may follow from its first
answers: constrained choice, and a limit of output tokens. Generated answers of which half or more contain no valid move
would measure format alone, so the model chooses among complete answers instead (`goalscope.agents.chat`), unless it
marks its reasoning: then cut-off reasoning is the usual cause. If some answers are far longer than every valid one,
they are cut off after twice the longest valid one. A setting that the user gave is never replaced.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from goalscope._ground.progress import TALLY
from goalscope._ground.words import counted
from goalscope.agents.parse import fault_words
from goalscope.verdict.arms import Arm
from goalscope.verdict.plan import EvaluationRun
from goalscope.verdict.preflight.first_turns import (
    FEWEST,
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
from goalscope.verdict.sizing import ArmRequest, Budget
from goalscope.verdict.subject import MODELS, Subject
from goalscope.verdict.texts import TEXTS

_TENTH: Final = 0.1  # largest share of a budget that a measured batch takes


def measure(
    evaluation: EvaluationRun, request: ArmRequest, limit: Budget | None, arguments: Mapping[str, Any] | None = None
) -> ArmRequest:
    """Ask each model for a few first turns, to learn how long a turn takes and whether the answers can be used.

    The first turns (the measured batch) cost at most a tenth of the budget in total, and are kept for the run. A model
    whose first answers suggest other settings is asked again with these, see `with_seen_settings`. Models without a
    usable answer are recorded in the failures of the evaluation.

    Args:
        evaluation: the evaluation that stores the answers; its plan is written before the first answer that costs
            something.
        request: the arms (parts of the evaluation) and the models that can be asked.
        limit: the budget, or None for no limit.
        arguments: the user's arguments, for the record.

    Returns:
        The request with the batches of models with usable answers, and the models with their settings.
    """
    arms, workers = request.arms, request.workers
    share = 0.0 if limit is None or not request.subjects else _TENTH * limit.amount / len(request.subjects)
    limits = Limits() if limit is None else Limits(usage={limit.of: share})
    if limit is not None and limit.of == "seconds":
        limits = Limits(seconds=min(SECONDS, share))
    firsts, all_arms, failures = dict[str, FirstTurns](), [arm.name for arm in arms], evaluation.failures
    settled = list[Subject]()
    for requested in request.subjects:
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
            failures.leave_out_unplayed(arm, subject)
        settled.append(subject)
    return replace(request, subjects=settled, firsts=firsts)


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


SCORABLE_SECONDS: Final = 30.0
"""Maximum time of a batch without a valid move for a model whose answers can be scored instead."""

_FEWEST_TOKENS: Final = 128
_MOSTLY: Final = 0.5  # share of answers without a valid move


def scorable(subject: Subject) -> bool:
    """Return whether goalscope may let a model choose among complete answers instead of generating them.

    This needs a model that returns likelihoods and writes no reasoning, and a user who did not set how it answers.
    """
    generates = subject.kind in MODELS and subject.parameters.get("answer", "generated") == "generated"
    return generates and "answer" not in subject.stated and _by_likelihood(subject) is not None


def _by_likelihood(subject: Subject) -> Subject | None:
    if "weights" not in subject.access and subject.parameters.get("server", {}).get("mode") != "completions":
        return None
    if "reasoning" in subject.access:
        return None
    try:
        return replace(subject.changed(["answer=likelihood"]), name=subject.name)
    except ValueError:
        return None  # its model returns no likelihoods


def with_seen_settings(subject: Subject, first: FirstTurns, limits: Limits) -> tuple[Subject, str] | None:
    """Choose better settings for a model from its first answers: constrained choice, or a lower limit of output tokens.

    Args:
        subject: the model.
        first: its first turns, which were asked before all others.
        limits: the limits of time and cost of these first turns.

    Returns:
        The model with changed settings and the reason for them; None if its first answers suggest no change.
    """
    if first.silent or not first.asked:
        return None
    enough = first.asked >= FEWEST or first.seconds >= limits.seconds / 2
    if first.invalid >= _MOSTLY and enough and scorable(subject):
        kinds = ", ".join(f"{count} {fault_words(kind)}" for kind, count in first.failures.items())
        invalid = sum(first.failures.values())
        reason = TEXTS("plan/by likelihood", name=subject.name, invalid=invalid, asked=first.asked, kinds=kinds)
        changed = _by_likelihood(subject)
        return None if changed is None else (changed, reason)
    usual = subject.parameters.get("max_tokens")
    limit = max(_FEWEST_TOKENS, 2 * first.longest_valid)
    valid = first.asked - sum(first.failures.values())
    if (
        "max_tokens" in subject.stated
        or not isinstance(usual, int)
        or valid < FEWEST
        or not limit < min(usual, first.longest)
    ):
        return None
    fields = {"valid": first.longest_valid, "longest": first.longest, "limit": limit, "usual": usual}
    changed = replace(subject.changed([f"max_tokens={limit}"]), name=subject.name)
    return changed, TEXTS("plan/fewer tokens", name=subject.name, **fields)
