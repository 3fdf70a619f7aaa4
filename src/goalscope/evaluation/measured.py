"""The measured batch of each model of an evaluation: first turns of its first arm, asked before all else and kept.

A model that gives no answer that can be used is asked nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goalscope.evaluation.arms import Arm
from goalscope.evaluation.failures import Failures, not_played
from goalscope.evaluation.plan import EvaluationRun
from goalscope.evaluation.subject import Subject
from goalscope.preflight.first_turns import FirstTurns, Limits, ask_first_turns, most_turns, stored_first_turns
from goalscope.preflight.usable import announced, found, why_unusable
from goalscope.runs import Store
from goalscope.runs.merge import grow, settle
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE


def measure(
    evaluation: EvaluationRun | None,
    arms: Sequence[Arm],
    subjects: Sequence[Subject],
    failures: Failures,
    limits: Mapping[str, Limits],
    say: Callable[[str], None],
    *,
    seed: int,
    workers: int = 1,
    arguments: Mapping[str, Any] | None = None,
) -> dict[str, FirstTurns]:
    """Return the measured batch of each model that gives one; what it tells of the others is in the failures.

    Args:
        evaluation: the evaluation that keeps the answers; None where no model has answers that cost something.
        arms: the arms that can be asked.
        subjects: the models.
        failures: where it is declared that nothing else is asked of a model.
        limits: name of a model -> limits of its batch.
        say: shows a line before anything is asked, and what was found.
        seed: root seed of the worlds.
        workers: maximum number of simultaneous calls.
        arguments: the user's arguments, for the record.
    """
    firsts, all_arms = dict[str, FirstTurns](), [arm.name for arm in arms]
    for subject in subjects:
        for arm in arms:
            if arm.looks is not None or not arm.open_to(subject) or (arm.name, subject.name) in failures.unasked:
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                sharing = [one for one in subjects if arm.open_to(one)]
                first = _measure(evaluation, arm, subject, sharing, limits[subject.name], say, seed, workers, arguments)
                if why := why_unusable(first):
                    failures.silent[subject.name] = why
                    failures.leave_out(all_arms, [subject.name], why)
                else:
                    firsts[subject.name] = first
                break
            told = [why for (_, name), why in failures.unasked.items() if name == subject.name]
            if len(told) > 1 and told[-1] == told[-2]:  # the other arms would fail, too
                failures.leave_out(all_arms, [subject.name], told[-1])
        for arm in arms:
            if arm.looks is not None and (arm.at, subject.name) in failures.unasked:
                failures.leave_out([arm.name], [subject.name], not_played(arm))
    return firsts


def _measure(
    evaluation: EvaluationRun | None,
    arm: Arm,
    subject: Subject,
    sharing: Sequence[Subject],
    limits: Limits,
    say: Callable[[str], None],
    seed: int,
    workers: int,
    arguments: Mapping[str, Any] | None,
) -> FirstTurns:
    count = max(arm.quick, 1) if evaluation is None else evaluation.sizes.get(arm.name, max(arm.quick, 1))
    own = arm.make([subject], count, seed)
    agent, parameters = own.agents()[0], own.agents_[0].parameters
    path = Path() if evaluation is None else evaluation.path(arm.name)
    if not agent.journalled:
        return ask_first_turns(own, agent, parameters, path, limits, most=most_turns(own))
    kept = stored_first_turns(path, agent)
    if kept is not None:
        say(f"{subject.name}: the {kept.asked} first turns that were measured before are taken over")
        return kept
    study, most = arm.make(sharing, count, seed), max(1, most_turns(own))
    say(announced(subject.name, most, limits))
    settle(path)
    if not unmade(path / DATABASE):
        with Store(path) as store:
            stored = store.study()
        if stored is not None and stored.id != study.id:
            grow(path, study)
    first = ask_first_turns(study, agent, parameters, path, limits, workers=workers, most=most, arguments=arguments)
    for line in found(subject.name, first, limits):
        say(line)
    return first
