"""The whole of an evaluation in order: who is asked what, first turns, sizes, play, judge, ledger and page."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goalscope.evaluation import judging
from goalscope.evaluation.arms import SEED, Arm, arms, given_arm, given_worlds
from goalscope.evaluation.budget import Budget
from goalscope.evaluation.choices import Choices
from goalscope.evaluation.claims import Evaluation
from goalscope.evaluation.failures import Failures
from goalscope.evaluation.plan import ARMS, PAGE, check_directory, prepare
from goalscope.evaluation.playing import play
from goalscope.evaluation.sizing import (
    DEFAULT,
    Announcement,
    announced,
    answers_cost,
    asked_of,
    choose_sizes,
    find_unasked,
    measure_first,
)
from goalscope.evaluation.subject import Subject, subjects_of
from goalscope.parts import TRACEBACK
from goalscope.plain_files import path_in
from goalscope.preflight.first_turns import FirstTurns
from goalscope.preflight.study_files import load
from goalscope.progress import TALLY, Display, aloud, lines
from goalscope.report.blocks import counted, listed
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE

KeyValues = Mapping[str, Any] | Sequence[str]
"""Parameters of the language models and keys of the arms' studies: a mapping, or KEY=VALUE each."""


def evaluate(
    models: str | Sequence[str],
    out: str | Path,
    *,
    budget: str = "",
    quick: bool = False,
    arms: Sequence[str] = (),
    sizes: Sequence[int] = (),
    worlds: str = "",
    settings: KeyValues = (),
    seed: int = SEED,
    workers: int = 1,
    announce: Callable[[Announcement], None] | None = None,
    stage: Display = lines,
) -> Evaluation:
    """Say whether, how strongly and towards what models are goal-directed, within a budget.

    Called again on the same directory it goes on where it stopped, and repeats nothing. An arm, a claim or the page
    that fails is left out, the rest goes on: `Evaluation.failed` lists what did.

    Args:
        models: one or several, each as `goalscope evaluate` takes it: ``theseus``, a folder, ``openai:NAME@URL``,
            ``epsilon-greedy:epsilon=0.3``, a run directory, ...
        out: directory of the evaluation.
        budget: limit of time, money or tokens, e.g. ``20m``, ``5usd``; where it is "", 7 minutes, but at least the
            first arm.
        quick: whether to use the minimum number of worlds.
        arms: names of the arms that are asked; empty for all.
        sizes: other side lengths of the grids.
        worlds: a study whose environments replace all other worlds; "" for the registered arms.
        settings: how language models are asked, and keys of the arms' studies.
        seed: root seed of the worlds.
        workers: maximum number of simultaneous calls of a model.
        announce: gets what is asked before it is asked; by default it is told line by line.
        stage: shows the progress of a piece of work.

    Raises:
        ValueError: no arm can be asked, an option does not fit, or the directory holds another evaluation.
    """
    with aloud():
        ready = _begin(models, out, budget, quick, arms, sizes, worlds, settings, seed, workers)
        evaluation, failures = prepare(ready.out, ready.subjects, ready.sizes, **ready.common), ready.failures
        if ready.fitting:
            (announce or _tell)(ready.announcement(evaluation.sizes))
        play(evaluation, stage, workers=workers, arguments=ready.words)
        with judging.opened(evaluation) as runs:
            TALLY.tell("judging")
            result = judging.judge(evaluation, runs, ready.words)
            judging.write(evaluation, result)
            with failures.kept_apart(f"the page {PAGE}"):
                from goalscope.evaluation import page

                page.write(result, runs, evaluation.directory / PAGE)
        return result.kept_in(evaluation.directory, failures.failed, [name for _, name in failures.unasked])


def estimate(
    models: str | Sequence[str],
    out: str | Path,
    *,
    budget: str = "",
    quick: bool = False,
    arms: Sequence[str] = (),
    sizes: Sequence[int] = (),
    worlds: str = "",
    settings: KeyValues = (),
    seed: int = SEED,
    workers: int = 1,
) -> Announcement:
    """Return what `evaluate` with these arguments asks and is expected to take; first turns are asked, and kept."""
    with aloud():
        ready = _begin(models, out, budget, quick, arms, sizes, worlds, settings, seed, workers)
        return ready.announcement(ready.sizes or {})


def _tell(announcement: Announcement) -> None:
    for line in announcement.lines():
        TALLY.tell(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """What is known before an evaluation is played.

    Attributes:
        out: its directory.
        subjects, askable: the models, and those of them that can be asked.
        open_to, fitting: the chosen arms that some model is open to, and those of them that are asked of one.
        sizes: arm -> worlds a cell; None where the sizes stay those of the last look.
        common: the other arguments of `prepare`.
        failures: what is not asked of whom.
        firsts: name of a model -> its measured batch.
        workers: maximum number of simultaneous calls.
        words: the arguments, for the record.
    """

    out: Path
    subjects: list[Subject]
    askable: list[Subject]
    open_to: list[Arm]
    fitting: list[Arm]
    sizes: dict[str, int] | None
    common: dict[str, Any]
    failures: Failures
    firsts: dict[str, FirstTurns]
    workers: int
    words: dict[str, Any]

    def announcement(self, sizes: Mapping[str, int]) -> Announcement:
        """Return what is asked at some sizes, and what that is expected to take."""
        failed = tuple(self.failures.failed)
        if not self.askable:
            names = listed([subject.name for subject in self.subjects])
            return Announcement(
                expected=f"nothing is asked of {names}: recorded logs are judged as they are", failed=failed
            )
        told = announced(
            self.askable, self.open_to, sizes, self.common["seed"], self.failures, self.firsts, self.workers
        )
        stored = sum(_stored_episodes(path_in(self.out, ARMS, name)) for name in sizes)
        if not stored or not told.expected:
            return told
        already = f"{counted(stored, 'episode')} of it stored already, not asked again"
        return replace(told, expected=f"{told.expected}; {already}")


def _stored_episodes(path: Path) -> int:
    """Return how many episodes the run of an arm holds, if there is one."""
    if unmade(path / DATABASE):
        return 0
    with Store(path) as store:
        return count_episodes(store)


def _begin(
    models: str | Sequence[str],
    out: str | Path,
    budget: str,
    quick: bool,
    arm_names: Sequence[str],
    side_lengths: Sequence[int],
    worlds: str,
    settings: KeyValues,
    seed: int,
    workers: int,
) -> _Ready:
    """Find who is asked what, ask and keep the first turns, choose sizes."""
    if quick and budget:
        raise ValueError("--quick has a size of its own: leave --budget out, or give --budget alone")
    out, chosen = Path(out), Choices.of(arm_names, side_lengths, (), _settings(settings))
    check_directory(out)
    named = [models] if isinstance(models, str) else models
    subjects = chosen.subjects([subject for text in named for subject in subjects_of(text)])
    names = [subject.name for subject in subjects]
    askable = [subject for subject in subjects if subject.logs is None]
    given = given_worlds(load(worlds)) if worlds else None
    if given is not None and askable != subjects:
        raise ValueError("--worlds takes models and agents that can be asked, got recorded logs: leave one of them out")
    open_to = _open_arms(chosen, given, askable, names)
    failures, limit = Failures(out), None if quick else Budget.parse(budget or DEFAULT)
    find_unasked(failures, open_to, askable, seed)
    for line in chosen.not_taken([arm for arm in open_to if asked_of(arm, askable, failures)], askable, seed):
        TALLY.tell(line)
    if askable and failures.tracebacks and not any(asked_of(arm, askable, failures) for arm in open_to):
        for text in failures.tracebacks if os.environ.get(TRACEBACK) == "1" else ():
            TALLY.tell(text)
        why = next(iter(failures.unasked.values()))
        raise ValueError(f"no arm can be asked of {listed(names)}: {why}; {TRACEBACK}=1 shows the traceback")
    common: dict[str, Any] = {"seed": seed, "worlds": given, "choices": chosen, "failures": failures}
    given_words = {"budget": budget, "quick": quick, "worlds": worlds, "seed": seed, "choices": chosen.words}
    words = {"command": "evaluate", "passed": {"models": list(named), **given_words}}
    begun = None
    if any(answers_cost(arm, subject, failures, seed) for arm in open_to for subject in askable):
        begun = prepare(out, subjects, None, **common)  # its directory keeps what is asked first
    firsts = measure_first(begun, open_to, askable, failures, limit, seed=seed, workers=workers, arguments=words)
    fitting = [arm for arm in open_to if asked_of(arm, askable, failures)]
    chosen_sizes: dict[str, int] | None = None if askable else {}
    if fitting and firsts:
        chosen_sizes = {arm.name: arm.quick for arm in fitting if arm.quick}
        if limit is not None:
            chosen_sizes = choose_sizes(
                fitting, askable, seed, limit, firsts, failures.unasked, named=bool(budget), workers=workers
            )
    return _Ready(
        out=out,
        subjects=subjects,
        askable=askable,
        open_to=open_to,
        fitting=fitting,
        sizes=chosen_sizes,
        common=common,
        failures=failures,
        firsts=firsts,
        workers=workers,
        words=words,
    )


def _settings(settings: KeyValues) -> list[str]:
    """Return settings as KEY=VALUE each."""
    if not isinstance(settings, Mapping):
        return list(settings)
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]


def _open_arms(
    chosen: Choices, given: Mapping[str, Any] | None, askable: Sequence[Subject], names: Sequence[str]
) -> list[Arm]:
    """Return the chosen arms that can be asked of some model.

    Raises:
        ValueError: there is none, though models can be asked.
    """
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
    return open_to
