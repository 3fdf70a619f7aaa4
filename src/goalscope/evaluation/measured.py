"""The measured batch of each model of an evaluation: first turns of its first arm, asked before all else and kept.

A model that gives no answer that can be used is asked nothing else.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.agents.chat import MARKERS
from goalscope.agents.choice import LITTLE_MASS
from goalscope.evaluation.arms import Arm
from goalscope.evaluation.failures import Failures, not_played
from goalscope.evaluation.plan import EvaluationRun
from goalscope.evaluation.subject import Subject
from goalscope.preflight.first_turns import (
    PATIENCE,
    UNUSABLE_SECONDS,
    FirstTurns,
    Limits,
    ask_first_turns,
    most_turns,
    stored_first_turns,
)
from goalscope.report.blocks import counted, listed
from goalscope.runs import Store
from goalscope.runs.merge import grow, settle
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE

_LIKELIHOOD: Final = (
    "--answer likelihood, which reads how likely it finds each action (needs weights, or completions:NAME@URL)"
)
_EXAMPLE: Final = "a filled-in answer in the prompt (--template example)"
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    # Failure of a turn -> what its answer is, and what helps.
    "no JSON": ("prose without an action", f"{_LIKELIHOOD}, or {_EXAMPLE}"),
    "truncated": ("cut off before an action", "more room for an answer (--set max_tokens=N), or a longer context"),
    "empty": ("empty", f"{_LIKELIHOOD}, or the way its reasoning is marked (--set reasoning=none)"),
    "unknown action": ("an action that is not offered", f"{_LIKELIHOOD}, or {_EXAMPLE}"),
    "two different actions": ("two different actions", _LIKELIHOOD),
    MARKERS: ("markers of its chat format in the answer", "the way its reasoning is marked (--set reasoning=...)"),
    LITTLE_MASS: (
        "unlikely to be an action",
        "a smaller --set least_mass=P, or of a chat model worked examples in the prompt (--template completion)",
    ),
}


def without_action(first: FirstTurns) -> str:
    """Return how many turns of a batch hold no action, what their answers are and what helps; "" where all hold one."""
    if not first.failures:
        return ""
    kinds = Counter(first.failures).most_common()
    words = listed([f"{count} {_KINDS.get(name, (name, ''))[0]}" for name, count in kinds])
    helps = dict.fromkeys(_KINDS.get(name, ("", _LIKELIHOOD))[1] for name, _ in kinds[:2])
    example = f", as in “{first.example}”" if first.example else ""
    count = sum(first.failures.values())
    said = f"none of {first.asked}" if count == first.asked else f"{first.asked - count} of {first.asked}"
    return f"{said} answers to first turns held an action ({words}{example}); what helps: {'; '.join(helps)}"


def why_unusable(first: FirstTurns) -> str:
    """Return why nothing is asked of a model after its batch, "" where its answers can be used."""
    if first.silent:
        return (
            f"it gave no answer to its first turn ({first.silent}); what helps: see to the server, or let it take "
            "longer (--set server.timeout=SECONDS)"
        )
    return without_action(first) if first.unusable else ""


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


def announced(name: str, most: int, limits: Limits, patient: bool = False) -> str:
    """Return what is said before a batch is asked; patient: whether a server is waited for as its settings say."""
    return (
        f"{name}: up to {most} first turns are asked before all others and kept, to measure what a turn takes: at most "
        f"{limits.seconds:.0f} s and one answer in any case, {UNUSABLE_SECONDS:.0f} s while no answer holds an action"
        + ("" if patient else f"; a server that gives none within {PATIENCE:.0f} s is not waited for")
    )


def found(name: str, first: FirstTurns, limits: Limits) -> list[str]:
    """Return what a batch found, in lines."""
    if first.silent:
        return []
    valid = round(first.asked * (1 - first.invalid))
    lines = [f"{name}: {counted(first.asked, 'first turn')} in {first.seconds:.3g} s, {valid} with an action"]
    if first.asked == 1 and first.seconds > limits.seconds / 2:
        lines[0] += "; a single answer takes that long, and what is expected rests on it alone"
    if first.invalid > 0.5:
        lines.append(f"{name}: {without_action(first)}")
    return lines
