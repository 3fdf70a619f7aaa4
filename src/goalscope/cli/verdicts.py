"""`goalscope evaluate`: one command, one budget, one verdict; `goalscope ledger`: its claims on the screen."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from goalscope.cli.console import duration, progress, say, table
from goalscope.cli.studies import load_study
from goalscope.evaluation import Evaluation, evaluate, subjects_of
from goalscope.evaluation.arms import SEED, Arm, arms, given_arm, given_worlds
from goalscope.evaluation.budget import Budget, divide, unit_costs
from goalscope.evaluation.claims import verdict
from goalscope.evaluation.subject import Subject
from goalscope.report.blocks import counted, listed
from goalscope.report.figures import short

DEFAULT: Final = "15m"
"""The budget where none is given."""


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
) -> None:
    """Evaluate models: say what is asked and what it costs, run it, and print the verdict.

    Args:
        models: who is evaluated, see `goalscope.evaluation.subject_of`.
        out: directory of the evaluation.
        budget: what it may take; `DEFAULT` where it is "", and at least the first arm then.
        quick: the least number of worlds, whatever the budget.
        seed: root seed of the worlds.
        workers: calls of a model at the same time.
        dry: only say what would be asked.
        worlds: a study whose environments are asked in place of all other worlds; "" for the registered arms.
    """
    if quick and budget:
        raise ValueError("--quick has a size of its own: leave --budget out, or give --budget alone")
    began = time.monotonic()
    subjects = [one for text in models for one in subjects_of(text)]
    names = [one.name for one in subjects]
    if len(set(names)) < len(names):
        raise ValueError(f"models must have different names, got {', '.join(names)}")
    acting = [one for one in subjects if one.logs is None]
    given = given_worlds(load_study(worlds)) if worlds else None
    if given is not None and acting != subjects:
        raise ValueError("--worlds takes models and agents that can be asked, got recorded logs: leave one of them out")
    there = arms() if given is None else [given_arm(given)]
    open_to = [one for one in there if any(one.open_to(subject) for subject in acting)]
    if acting and not open_to:
        only = all(one.access == {"environments"} for one in acting) and given is None
        why = "it acts in environments alone: give --worlds, as in --worlds toy-text" if only else there[0].why
        raise ValueError(f"no arm can be asked of {listed(names)}: {why}")
    sizes = (
        {one.name: one.quick for one in open_to if one.quick}
        if quick
        else _sizes(open_to, acting, seed, budget or DEFAULT)
    )
    evaluation = evaluate.prepare(out, subjects, sizes, seed=seed, worlds=given) if not dry else None
    asked = sizes if evaluation is None else evaluation.sizes
    if acting:
        _announce(acting, open_to, asked, seed)
    if evaluation is None:
        if not acting:
            say(f"nothing is asked of {listed(names)}: recorded logs are judged as they are")
        return
    evaluate.play(evaluation, progress, workers=workers, arguments={"command": "evaluate", "passed": {"models": names}})
    with evaluate.opened(evaluation) as runs:
        say("judging", error=True)
        found = evaluate.judge(evaluation, runs)
        evaluate.write(evaluation, found)
        from goalscope.evaluation import page

        path = page.write(found, runs, out / evaluate.PAGE)
    _print(found)
    say(f"Report: {path.resolve()} (written in {duration(time.monotonic() - began)} altogether)")
    more = ", or a larger --budget on the same directory" if acting else ""
    say(f"next: goalscope ledger {quote(str(out))} --json{more}")


def _sizes(open_to: Sequence[Arm], subjects: Sequence[Subject], seed: int, text: str) -> dict[str, int]:
    limit = Budget.parse(text)
    if not open_to:
        return {}
    say(f"budget {limit.text}: finding out what a world costs", error=True)
    costs = unit_costs(open_to, subjects, seed, limit)
    if not any(costs.values()):
        raise ValueError(
            f"a budget must limit something, but {listed([one.name for one in subjects])} takes no {limit.of}, got "
            f"{limit.text}: give a limit of time, as in --budget 20m"
        )
    sizes = divide(open_to, costs, limit.amount)
    if not sizes:
        least = costs[open_to[0].name] * open_to[0].quick
        if text == DEFAULT:  # nobody has named a limit
            say(
                f"{open_to[0].title} alone takes about {duration(least)} at its least size, more than the default of "
                f"{DEFAULT}: it is asked, the others are not; --budget gives them room",
                error=True,
            )
            return {open_to[0].name: open_to[0].quick}
        raise ValueError(
            f"a budget must allow at least the first arm, {open_to[0].title.lower()}, which takes about {least:.3g} "
            f"{limit.of}, got {limit.text}: give more, or --quick"
        )
    return sizes


def _announce(subjects: Sequence[Subject], open_to: Sequence[Arm], sizes: Mapping[str, int], seed: int) -> None:
    """Print what will be asked, before anything is."""
    lines = []
    for one in open_to:
        count = sizes.get(one.name, 0)
        if not count:
            lines.append((one.title, "–", "–", evaluate.NO_ROOM))
            continue
        if one.looks is not None:
            lines.append((one.title, "–", "–", f"{one.looks.what}: {count} × {one.looks.counts}"))
            continue
        size = one.make([each for each in subjects if one.open_to(each)], count, seed).size()
        settles = (
            "claims are expected to be settled"
            if count >= one.full
            else (f"{100 * count / one.full:.0f} % of the worlds at which claims are expected to be settled")
        )
        lines.append((one.title, f"{size.worlds:,}", f"{size.steps:,}", settles))
    table(
        ("arm", "worlds", "most turns", "what it can settle"),
        lines,
        title=f"What is asked of {listed([one.name for one in subjects])}",
        numbers=(1, 2),
    )


def _print(found: Evaluation) -> None:
    for ledger in found.models:
        for text in verdict(ledger):
            say(text)
        lines = []
        for one in ledger.claims:
            shown = "–"
            if one.value is not None and one.low is not None and one.high is not None:
                ends = f"[{short(one.low, one.unit)}, {short(one.high, one.unit)}]"
                shown = f"{short(one.value, one.unit)} {ends}"
            over = "–" if one.threshold is None else f"{one.threshold:g}"
            lines.append((one.question, one.answer, shown, over, str(one.clusters or "–")))
        table(
            ("question", "answer", "estimate", "threshold", "worlds"),
            lines,
            title=f"{ledger.model}: claims, intervals of {100 * (1 - ledger.level):.3g} %",
            numbers=(2, 3, 4),
        )
    for less in found.differences:
        ends = f"[{less.low:+.3f}, {less.high:+.3f}]"
        say(f"{less.says}: {less.first} less {less.second} {less.value:+.3f} {ends}, p {less.p:.3g}")


def ledger(path: Path, *, as_json: bool = False, card: bool = False) -> None:
    """Print the ledger of an evaluation: as a table, as JSON, or as a paragraph for a model card."""
    if as_json and card:
        raise ValueError("--json prints everything and --card a paragraph: give one of them")
    file = path / evaluate.LEDGER if path.is_dir() else path
    if not file.exists():
        raise FileNotFoundError(
            f"an evaluation must be at {path}, but there is no {file.name} that goalscope evaluate wrote: give the "
            "directory of --out, or run the evaluation to its end"
        )
    found = Evaluation.read(file)
    if as_json:
        say(found.to_json())
    elif card:
        for one in found.models:
            say(" ".join(verdict(one)))
    else:
        _print(found)
        say(f"{counted(len(found.models), 'model')}; --json prints everything, --card a paragraph for a model card")
