"""`goalscope evaluate`: run an evaluation within a budget and print its verdict."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from goalscope.cli import claims
from goalscope.cli.console import progress, say
from goalscope.cli.evaluation_plan import (
    DEFAULT,
    announce,
    answers_cost,
    asked_of,
    choose_sizes,
    find_unasked,
    measure_first,
)
from goalscope.cli.studies import load_study
from goalscope.evaluation import evaluate, subjects_of
from goalscope.evaluation.arms import SEED, arms, given_arm, given_worlds
from goalscope.evaluation.budget import Budget
from goalscope.evaluation.choices import Choices
from goalscope.evaluation.failures import FAILURES, Failures
from goalscope.parts import TRACEBACK
from goalscope.progress import duration
from goalscope.report.blocks import counted, listed


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
        dry: whether to print the plan only; the measured batch is asked for it, and kept.
        worlds: a study whose environments replace all other worlds; "" for the registered arms.
        choices: arms, sizes and settings that the user chose.

    Returns:
        Whether nothing failed that was to be asked, and each model was asked a question or has a declared reason why
        not: its prompts do not fit, or none of its first answers can be used.
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
    failures, limit = Failures(out), None if quick else Budget.parse(budget or DEFAULT)
    find_unasked(failures, open_to, askable, seed)
    for line in chosen.not_taken([arm for arm in open_to if asked_of(arm, askable, failures)], askable, seed):
        say(line, error=True)
    if askable and failures.tracebacks and not any(asked_of(arm, askable, failures) for arm in open_to):
        for text in failures.tracebacks if os.environ.get(TRACEBACK) == "1" else ():
            say(text, error=True)
        why = next(iter(failures.unasked.values()))
        raise ValueError(f"no arm can be asked of {listed(names)}: {why}; {TRACEBACK}=1 shows the traceback")
    common: dict[str, Any] = {"seed": seed, "worlds": given, "choices": chosen, "failures": failures}
    begun, words = None, {"command": "evaluate", "passed": {"models": names, "choices": chosen.words}}
    if any(answers_cost(arm, subject, failures, seed) for arm in open_to for subject in askable):
        begun = evaluate.prepare(out, subjects, None, **common)  # its directory keeps what is asked first
    firsts = measure_first(begun, open_to, askable, failures, limit, seed=seed, workers=workers, arguments=words)
    fitting = [arm for arm in open_to if asked_of(arm, askable, failures)]
    sizes: dict[str, int] | None = None if askable else {}
    if fitting and firsts:
        sizes = {arm.name: arm.quick for arm in fitting if arm.quick}
        if limit is not None:
            sizes = choose_sizes(
                fitting, askable, seed, limit, firsts, failures.unasked, named=bool(budget), workers=workers
            )
    evaluation = begun if dry else evaluate.prepare(out, subjects, sizes, **common)
    if askable and (dry or fitting):
        asked_sizes = (sizes or {}) if evaluation is None or dry else evaluation.sizes
        announce(askable, open_to, asked_sizes, seed, failures, firsts, workers)
    if dry or evaluation is None:
        if not askable:
            say(f"nothing is asked of {listed(names)}: recorded logs are judged as they are")
        return not failures.failed
    evaluate.play(evaluation, progress, workers=workers, arguments=words)
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
    hint = ", or a larger --budget on the same directory" if evaluation.sizes else ""
    say(f"next: goalscope ledger {quote(str(out))} --json{hint}")
    for text in failures.failed:
        say(text, error=True)
    if failures.failed:
        say(
            f"{counted(len(failures.failed), 'failure')}, with tracebacks in {out / FAILURES}; the same command tries "
            "again what failed, and repeats nothing else",
            error=True,
        )
    declared = {name for _, name in failures.unasked}
    return not failures.failed and all(model.claims or model.model in declared for model in result.models)
