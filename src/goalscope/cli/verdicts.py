"""`goalscope evaluate`: run an evaluation within a budget and print its verdict."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from goalscope.cli import claims
from goalscope.cli.console import duration, progress, say, table
from goalscope.cli.studies import load_study
from goalscope.evaluation import evaluate, subjects_of
from goalscope.evaluation.arms import SEED, Arm, arms, given_arm, given_worlds
from goalscope.evaluation.budget import Budget, divide, unit_costs
from goalscope.evaluation.choices import Choices
from goalscope.evaluation.failures import FAILURES, Failures, does_not_fit, not_played
from goalscope.evaluation.subject import Subject
from goalscope.parts import TRACEBACK
from goalscope.report.blocks import counted, listed

DEFAULT: Final = "15m"
"""The default budget."""


def run(
    models: Sequence[str],
    out: Path,
    *,
    budget: str = "",
    quick: bool = False,
    seed: int = SEED,
    workers: int = 1,
    dry: bool = False,
    worlds: str = "",
    choices: Choices | None = None,
) -> bool:
    """Evaluate models: print the plan and its cost, run it, and print the verdict.

    Args:
        models: the models, see `goalscope.evaluation.subject_of`.
        out: directory of the evaluation.
        budget: limit of time, money or tokens; where it is "", `DEFAULT`, but at least the first arm.
        quick: whether to use the minimum number of worlds.
        seed: root seed of the worlds.
        workers: maximum number of simultaneous calls of a model.
        dry: whether to print the plan only.
        worlds: a study whose environments replace all other worlds; "" for the registered arms.
        choices: arms, sizes and settings that the user chose.

    Returns:
        Whether each model was asked a question, and nothing failed that was to be asked.
    """
    if quick and budget:
        raise ValueError("--quick has a size of its own: leave --budget out, or give --budget alone")
    began, chosen = time.monotonic(), choices or Choices()
    evaluate.check_directory(out)
    subjects = chosen.subjects([subject for text in models for subject in subjects_of(text)])
    names = [subject.name for subject in subjects]
    askable = [subject for subject in subjects if subject.logs is None]
    given = given_worlds(load_study(worlds)) if worlds else None
    if given is not None and askable != subjects:
        raise ValueError("--worlds takes models and agents that can be asked, got recorded logs: leave one of them out")
    known = arms() if given is None else [given_arm(given)]
    chosen.check_arms(known)
    candidates = [chosen.changed(arm) for arm in known if chosen.has(arm)]
    open_to = [arm for arm in candidates if any(arm.open_to(subject) for subject in askable)]
    if askable and not open_to:
        environments_only = all(subject.access == {"environments"} for subject in askable) and given is None
        reason = (
            "it acts in environments alone: give --worlds, as in --worlds toy-text"
            if environments_only
            else candidates[0].why
        )
        raise ValueError(f"no arm can be asked of {listed(names)}: {reason}")
    for line in chosen.not_taken(open_to, askable, seed):
        say(line, error=True)
    failures = Failures(out)
    _find_unasked(failures, open_to, askable, seed)
    fitting = [arm for arm in open_to if _asked_of(arm, askable, failures)]
    if askable and not fitting:
        for text in failures.tracebacks if os.environ.get(TRACEBACK) == "1" else ():
            say(text, error=True)
        hint = f"; {TRACEBACK}=1 shows the traceback" if failures.tracebacks else ""
        raise ValueError(f"no arm can be asked of {listed(names)}: {next(iter(failures.unasked.values()))}{hint}")
    sizes = (
        {arm.name: arm.quick for arm in fitting if arm.quick}
        if quick
        else _sizes(fitting, askable, seed, budget or DEFAULT, failures.unasked)
    )
    evaluation = (
        None
        if dry
        else evaluate.prepare(out, subjects, sizes, seed=seed, worlds=given, choices=chosen, failures=failures)
    )
    asked_sizes = sizes if evaluation is None else evaluation.sizes
    if askable:
        _announce(askable, open_to, asked_sizes, seed, failures)
    if evaluation is None:
        if not askable:
            say(f"nothing is asked of {listed(names)}: recorded logs are judged as they are")
        return not failures.failed
    evaluate.play(
        evaluation,
        progress,
        workers=workers,
        arguments={"command": "evaluate", "passed": {"models": names, "choices": chosen.words}},
    )
    with evaluate.opened(evaluation) as runs:
        say("judging", error=True)
        result = evaluate.judge(evaluation, runs)
        evaluate.write(evaluation, result)
        with failures.kept_apart(f"the page {evaluate.PAGE}"):
            from goalscope.evaluation import page

            page.write(result, runs, out / evaluate.PAGE)
    claims.show(result)
    if (out / evaluate.PAGE).exists():
        path = (out / evaluate.PAGE).resolve()
        say(f"Report: {path} (written in {duration(time.monotonic() - began)} altogether)")
    hint = ", or a larger --budget on the same directory" if askable else ""
    say(f"next: goalscope ledger {quote(str(out))} --json{hint}")
    for text in failures.failed:
        say(text, error=True)
    if failures.failed:
        say(
            f"{counted(len(failures.failed), 'failure')}, with tracebacks in {out / FAILURES}; the same command tries "
            "again what failed, and repeats nothing else",
            error=True,
        )
    return not failures.failed and all(model.claims for model in result.models)


def _find_unasked(failures: Failures, arms: Sequence[Arm], subjects: Sequence[Subject], seed: int) -> None:
    """Record of which models an arm cannot be asked: its worlds cannot be made, or its prompts do not fit."""
    for arm in arms:
        for subject in subjects:
            if not arm.open_to(subject):
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                if arm.looks is None and (why := does_not_fit(arm, subject, max(arm.quick, 1), seed)):
                    failures.leave_out([arm.name], [subject.name], why)
                elif (arm.at, subject.name) in failures.unasked:
                    failures.leave_out([arm.name], [subject.name], not_played(arm))


def _asked_of(arm: Arm, subjects: Sequence[Subject], failures: Failures) -> list[Subject]:
    return [one for one in subjects if arm.open_to(one) and (arm.name, one.name) not in failures.unasked]


def _sizes(
    open_to: Sequence[Arm],
    subjects: Sequence[Subject],
    seed: int,
    text: str,
    unasked: Collection[tuple[str, str]] = (),
) -> dict[str, int]:
    limit = Budget.parse(text)
    if not open_to:
        return {}
    say(f"budget {limit.text}: finding out what a world costs", error=True)
    costs = unit_costs(open_to, subjects, seed, limit, unasked)
    if not any(costs.values()):
        raise ValueError(
            f"a budget must limit something, but {listed([subject.name for subject in subjects])} takes no {limit.of}, "
            f"got {limit.text}: give a limit of time, as in --budget 20m"
        )
    sizes = divide(open_to, costs, limit.amount)
    if not sizes:
        minimum = costs[open_to[0].name] * open_to[0].quick
        if text == DEFAULT:  # the user gave no limit
            say(
                f"{open_to[0].title} alone takes about {duration(minimum)} at its least size, more than the default of "
                f"{DEFAULT}: it is asked, the others are not; --budget gives them room",
                error=True,
            )
            return {open_to[0].name: open_to[0].quick}
        raise ValueError(
            f"a budget must allow at least the first arm, {open_to[0].title.lower()}, which takes about {minimum:.3g} "
            f"{limit.of}, got {limit.text}: give more, or --quick"
        )
    return sizes


def _announce(
    subjects: Sequence[Subject], open_to: Sequence[Arm], sizes: Mapping[str, int], seed: int, failures: Failures
) -> None:
    """Print the plan before the first call."""
    lines = []
    for arm in open_to:
        count, asked = sizes.get(arm.name, 0), _asked_of(arm, subjects, failures)
        if not asked:
            reasons = dict.fromkeys(why for (name, _), why in failures.unasked.items() if name == arm.name)
            lines.append((arm.title, "–", "–", f"not asked: {'; '.join(reasons)}"))
            continue
        if not count:
            lines.append((arm.title, "–", "–", evaluate.NO_ROOM))
            continue
        if arm.looks is not None:
            lines.append((arm.title, "–", "–", f"{arm.looks.what}: {count} × {arm.looks.counts}"))
            continue
        size = arm.make(asked, count, seed).size()
        expected = (
            "claims are expected to be settled"
            if count >= arm.full
            else (f"{100 * count / arm.full:.0f} % of the worlds at which claims are expected to be settled")
        )
        lines.append((arm.title, f"{size.worlds:,}", f"{size.steps:,}", expected))
    table(
        ("arm", "worlds", "most turns", "what it can settle"),
        lines,
        title=f"What is asked of {listed([subject.name for subject in subjects])}",
        numbers=(1, 2),
    )
