"""The course of an evaluation: choose what to ask, time first turns, choose sizes, play, judge, write ledger and
page.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goalscope._ground.own import TRACEBACK
from goalscope._ground.progress import TALLY, Display, aloud, lines
from goalscope._ground.words import counted, listed
from goalscope.agents.models.http_client import check_installed
from goalscope.verdict import judging
from goalscope.verdict.arms import HYPOTHESES, SEED, Arm, arms, given_arms, given_worlds
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.measured import measure
from goalscope.verdict.own_environment import environment_settings, planted_goal, twin_subjects, write_study
from goalscope.verdict.plan import PAGE, Choices, EvaluationRun, Plan, check_directory, planned
from goalscope.verdict.playing import play
from goalscope.verdict.preflight.study_files import load
from goalscope.verdict.sizing import DEFAULT, Announcement, ArmRequest, Budget
from goalscope.verdict.subject import Subject, subjects_of
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.planning.soft import passes_reported_to

KeyValues = Mapping[str, Any] | Sequence[str]
"""Parameters of the language models and keys of the arms' studies: a mapping, or KEY=VALUE each."""


def evaluate(
    models: str | Sequence[str] | Plan,
    out: str | Path,
    *,
    budget: str = "",
    quick: bool = False,
    arms: Sequence[str] = (),
    sizes: Sequence[int] = (),
    worlds: str = "",
    env: str = "",
    hypotheses: str = "",
    settings: KeyValues = (),
    seed: int = SEED,
    workers: int = 1,
    announce: Callable[[Announcement], None] | None = None,
    stage: Display = lines,
) -> Evaluation:
    """Judge whether, how strongly and towards what models are goal-directed, within a budget.

    An evaluation consists of arms: parts with worlds and questions of their own. Each question gets a claim (an answer
    with its evidence), all claims are stored in ``ledger.json``, and one HTML page shows them. If called again on the
    same directory, it resumes and repeats nothing. If an arm, a claim or the page fails, the rest still finishes;
    `Evaluation.failed` lists the failures.

    Args:
        models: one or several models, each as for `goalscope evaluate`: ``theseus``, a folder, ``openai:NAME@URL``,
            ``epsilon-greedy:epsilon=0.3``, a run directory, ...; or a plan, which contains all other options. The
            models of an existing evaluation in the directory must be among them; further ones are added.
        out: directory of the evaluation.
        budget: limit of time, money or tokens, e.g. ``20m`` or ``5usd``. Default: 7 minutes, but always at least the
            first arm.
        quick: use the minimum number of worlds.
        arms: names of the arms to run; empty for all.
        sizes: other side lengths of the grids.
        worlds: a study whose environments or grids replace all other worlds; "" for the registered arms.
        env: an environment that replaces all other worlds, see `goalscope.worlds.environments.environment`; agents
            built to pursue a known goal are evaluated beside the models, as a check.
        hypotheses: goals to test: files, banks (named sets) and written forms, separated by ';'; "" for the default.
        settings: parameters of language models, and keys of the arms' studies.
        seed: root seed of the worlds.
        workers: maximum number of simultaneous calls of a model.
        announce: function that receives the plan before anything is asked; by default the plan is logged line by line.
        stage: displays the progress of a piece of work.

    Raises:
        ValueError: no arm fits the models, an option does not fit, or the directory contains another evaluation.
        ImportError: a model is behind a server, and the package that requests need is missing.
    """
    options = (budget, quick, arms, sizes, worlds, env, hypotheses, settings, seed, workers)
    with aloud(), closing(_begin(models, out, *options)) as ready:
        evaluation = ready.evaluation.sized(ready.sizes)
        if ready.request.fitting:
            (announce or _tell)(ready.announcement(evaluation))
            write_study(evaluation)
        play(evaluation, stage, workers=workers, arguments=ready.words)
        return judged(evaluation, ready.words, stage)


def judged(evaluation: EvaluationRun, words: Mapping[str, Any], stage: Display = lines) -> Evaluation:
    """Decide all claims of an evaluation whose arms (parts with worlds of their own) were played; write ledger and
    page.

    Args:
        evaluation: the evaluation.
        words: the user's arguments, for the record.
        stage: displays the progress of a piece of work.

    Returns:
        The evaluation with its claims. If the page fails, the failure is recorded in it.
    """
    failures = evaluation.failures
    with judging.opened(evaluation) as runs:
        TALLY.tell(TEXTS("plan/judging"))
        with stage("judging: decisions in this pass") as show, passes_reported_to(_pass_by_pass(show)):
            result = judging.judge(evaluation, runs, words)
        judging.write(evaluation, result)
        with failures.kept_apart(f"the page {PAGE}"):
            from goalscope.verdict import page

            result = page.with_digest(result, page.write(result, runs, evaluation.directory / PAGE))
            judging.write(evaluation, result)  # once more, with the digest of its page
    return result.kept_in(evaluation.directory, failures)


def _pass_by_pass(show: Callable[..., None]) -> Callable[[int, int], None]:
    """Return a function that displays the progress of each pass over the decisions of a process, with the time left."""
    began = reported = time.monotonic()
    last = 0

    def progress(done: int, total: int) -> None:
        nonlocal began, reported, last
        if done <= last:  # a further pass, which began no earlier than the last report
            began = reported
        last, reported = done, time.monotonic()
        show(done, total, (reported - began) / done * (total - done))

    return progress


def estimate(
    models: str | Sequence[str] | Plan,
    out: str | Path,
    *,
    budget: str = "",
    quick: bool = False,
    arms: Sequence[str] = (),
    sizes: Sequence[int] = (),
    worlds: str = "",
    env: str = "",
    hypotheses: str = "",
    settings: KeyValues = (),
    seed: int = SEED,
    workers: int = 1,
) -> Announcement:
    """Return what `evaluate` with the same arguments would ask, and what time, tokens and money it is expected to cost.

    To measure this, each model is asked for some first turns, which are stored in the directory and not asked again.
    The result has a table with one row for each part of the evaluation, and the plan, which `evaluate` accepts in place
    of models.
    """
    options = (budget, quick, arms, sizes, worlds, env, hypotheses, settings, seed, workers)
    with aloud(), closing(_begin(models, out, *options)) as ready:
        return ready.announcement(ready.evaluation.announced(ready.sizes))


def _tell(announcement: Announcement) -> None:
    for line in announcement.lines():
        TALLY.tell(line)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is known before an evaluation starts.

    Attributes:
        evaluation: the evaluation; its plan may still lack sizes.
        request: what is asked of which models.
        sizes: arm -> worlds per cell; None to keep the sizes of the last look.
        proposals: what larger budgets would ask, see `ArmRequest.choose_sizes`.
        words: the arguments, for the record.
    """

    evaluation: EvaluationRun
    request: ArmRequest
    sizes: dict[str, int] | None
    proposals: tuple[str, ...]
    words: dict[str, Any]

    def close(self) -> None:
        """Close the stores that contain the first turns."""
        self.evaluation.close()

    def announcement(self, evaluation: EvaluationRun) -> Announcement:
        """Return what is asked at the sizes of a plan, and what it is expected to cost."""
        plan = evaluation.plan
        if not self.request.subjects:
            expected = TEXTS("plan/logs alone", names=listed(plan.names))
            return Announcement(expected=expected, failed=tuple(evaluation.failures.failed), plan=plan)
        announcement = self.request.announced(plan.sizes)
        stored = evaluation.stored_episodes() if announcement.expected else 0
        already = TEXTS("plan/stored", episodes=counted(stored, "episode")) if stored else ""
        return replace(announcement, expected=f"{announcement.expected}{already}", proposals=self.proposals, plan=plan)


def _begin(
    models: str | Sequence[str] | Plan,
    out: str | Path,
    budget: str,
    quick: bool,
    arm_names: Sequence[str],
    side_lengths: Sequence[int],
    worlds: str,
    env: str,
    hypotheses: str,
    settings: KeyValues,
    seed: int,
    workers: int,
) -> _Ready:
    """Determine which models are asked what, ask and store the first turns, and choose sizes."""
    check_directory(Path(out))
    if isinstance(models, Plan):
        if any((budget, quick, arm_names, side_lengths, worlds, env, hypotheses, settings, seed != SEED)):
            raise ValueError(
                "a plan already contains budget, quick, arms, sizes, worlds, env, hypotheses, settings and seed: leave "
                "these options out, or change the plan"
            )
        subjects, chosen, given, named = models.subjects(), models.choices, models.worlds, models.names
        seed = models.seed
    else:
        if quick and budget:
            raise ValueError("--quick and --budget both set the size of an evaluation: give only one of them")
        named = [models] if isinstance(models, str) else list(models)
        study = load(worlds) if worlds else None
        own = study.worlds() if study is not None and hypotheses else ()
        chosen = Choices.of(arm_names, side_lengths, (), _settings(settings), hypotheses, own)
        subjects = chosen.subjects([subject for text in named for subject in subjects_of(text)])
        if worlds and env:
            raise ValueError("--worlds and --env both replace the usual worlds: give one of them")
        given = given_worlds(study) if study is not None else environment_settings(env) if env else None
        subjects += twin_subjects(given, subjects) if given is not None else []
    if any("server" in subject.parameters for subject in subjects):
        check_installed()
    askable = [subject for subject in subjects if subject.logs is None]
    if given is not None and askable != subjects and (askable or given.get("arm") == HYPOTHESES):
        raise ValueError(
            "with --worlds, give only models and agents that can still be asked (or, for environments, only recorded "
            "logs), got both or logs in grids: leave out the logs"
        )
    open_to = _open_arms(chosen, given, askable, [subject.name for subject in subjects])
    limit = None if quick else Budget.parse(budget or DEFAULT)
    evaluation = planned(out, subjects, seed=seed, worlds=given, choices=chosen)
    askable = [evaluated for evaluated in evaluation.subjects if evaluated.logs is None]
    request = ArmRequest(arms=open_to, subjects=askable, seed=seed, failures=evaluation.failures, workers=workers)
    request.find_unasked()
    for line in chosen.not_taken(request.fitting, askable, seed):
        TALLY.tell(line)
    _check_askable(request, askable)
    given_words = {"budget": budget, "quick": quick, "worlds": worlds, "seed": seed, "choices": chosen.words}
    given_words |= {"env": env} if env else {}
    words = {"command": "evaluate", "passed": {"models": named, **given_words}}
    try:
        request = measure(evaluation, request, limit, words)
        evaluation, askable, fitting = evaluation.settled(request.subjects), list(request.subjects), request.fitting
        if given is not None and "twins" in given:  # these would be played for nothing
            _check_askable(request, [subject for subject in askable if planted_goal(given, subject.name) is None])
        sizes: dict[str, int] | None = None if askable else {}
        proposals: tuple[str, ...] = ()
        if isinstance(models, Plan) and models.looks:
            sizes = models.sizes
        elif fitting and request.firsts and limit is None:
            sizes = {arm.name: size for arm in fitting if (size := arm.quick_size(named=bool(arm_names)))}
        elif fitting and request.firsts and limit is not None:
            smaller = _smaller(chosen, fitting) if given is None else {}
            sizes, proposals = request.choose_sizes(limit, named=bool(budget), smaller=smaller)
    except BaseException:
        evaluation.close()
        raise
    return _Ready(evaluation, request, sizes, proposals, words)


def _check_askable(request: ArmRequest, subjects: Sequence[Subject]) -> None:
    """Raise a ValueError if some models failed and no arm can be asked of any of them."""
    failures = request.failures
    if not subjects or not failures.tracebacks or replace(request, subjects=subjects).fitting:
        return
    for text in failures.tracebacks if os.environ.get(TRACEBACK) == "1" else ():
        TALLY.tell(text)
    names = [subject.name for subject in subjects]
    why = next(why for (_, name), why in failures.unasked.items() if name in names)
    raise ValueError(f"no arm can be asked of {listed(names)}: {why}; {TRACEBACK}=1 shows the traceback")


def _smaller(chosen: Choices, arms: Sequence[Arm]) -> dict[str, list[Arm]]:
    """Return options that ask for a smaller evaluation, and the arms that they leave: in small grids the core, the
    first arm, and each arm of the core alone; without those that the user already gave.
    """
    smaller, core = dict[str, list[Arm]](), [arm for arm in arms if arm.core]
    for kept_arms in (core, list(arms[:1]), *([arm] for arm in core)):
        names, side = tuple(sorted(arm.name for arm in kept_arms)), min((7, *chosen.sizes))
        less = chosen.model_copy(update={"arms": names, "sizes": (side,)})
        if kept_arms and less != chosen:
            smaller[f"--arms {','.join(names)} --sizes {side}"] = [less.changed(arm) for arm in kept_arms]
    return smaller


def _settings(settings: KeyValues) -> list[str]:
    """Return settings as KEY=VALUE texts."""
    if not isinstance(settings, Mapping):
        return list(settings)
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]


def _open_arms(
    chosen: Choices, settings: Mapping[str, Any] | None, askable: Sequence[Subject], names: Sequence[str]
) -> list[Arm]:
    """Return the chosen arms that some model allows.

    Raises:
        ValueError: there is no such arm, although models can be asked.
    """
    open_arms = arms() if settings is None else given_arms(settings)
    chosen.check_arms(open_arms, askable)
    candidates = [chosen.changed(arm) for arm in open_arms if chosen.has(arm)]
    open_to = [arm for arm in candidates if any(arm.open_to(subject) for subject in askable)]
    if askable and not open_to:
        environments_only = all(subject.access == {"environments"} for subject in askable) and settings is None
        reason = (
            "it acts in environments alone: give --env, as in --env FrozenLake-v1, or --worlds STUDY"
            if environments_only
            else candidates[0].reason_for(askable[0])
        )
        raise ValueError(f"no arm can be asked of {listed(names)}: {reason}")
    return open_to
