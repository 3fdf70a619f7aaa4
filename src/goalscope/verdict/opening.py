"""What can be done with stored evaluations: open them, decide their claims again from their runs, and merge those that
have the same plan.
"""

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

from goalscope._ground import own, registry
from goalscope._ground.folder import Folder
from goalscope._ground.progress import aloud
from goalscope._ground.untrusted import DamagedError
from goalscope._ground.words import listed
from goalscope.inside.activations.shards import Artifact
from goalscope.report.ledger import Run
from goalscope.runs import Store
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.opening import unmade
from goalscope.runs.repair import damage
from goalscope.runs.tables import DATABASE
from goalscope.verdict import judging
from goalscope.verdict.claims import Claim, ClaimLedger, Evaluation, runs_in
from goalscope.verdict.evaluating import judged
from goalscope.verdict.failures import Failures
from goalscope.verdict.judging import Reopened, judge, reopened
from goalscope.verdict.plan import ARMS, LEDGER, PLAN, EvaluationRun, Plan, differences, folder_of

AGAIN: Final = "run the same goalscope evaluate again, which judges anew what is stored"
"""How to write a ledger again."""

SOON: Final = 500
"""Maximum number of episodes of an evaluation whose claims are decided again whenever its ledger is printed."""

_ROUNDED: Final = 1e-6
_FIELDS: Final = ("answer", "value", "low", "high", "threshold", "clusters", "n", "p", "says")


def open_results(path: str | Path) -> Run | Evaluation:
    """Open the results in a directory: a run, or an evaluation whose claims were decided.

    Args:
        path: the directory.

    Raises:
        FileNotFoundError: there is neither, or the evaluation was not judged yet.
        ValueError: a file was not written by goalscope, or was changed.
    """
    directory = Path(path)
    if is_evaluation(directory):
        return read_ledger(directory)
    if unmade(directory / DATABASE):
        raise FileNotFoundError(
            f"there is neither a run ({DATABASE}) nor an evaluation ({LEDGER}) at {str(path)!r}: give the directory "
            "that goalscope run, import or evaluate wrote (--out)"
        )
    return Run(directory)


def is_evaluation(directory: Path) -> bool:
    """Return whether a directory contains an evaluation, whether its claims were decided or only its plan was
    written.
    """
    return any(Folder(directory).has_file(name) for name in (PLAN, LEDGER))


def run_folders(path: Path) -> dict[str, Path]:
    """Return the directories of all runs in a directory, which may be a single run or an evaluation.

    Returns:
        For a single run, "" -> this directory. For an evaluation, name of the folder, such as "grids-2" -> directory of
        the run.
    """
    return {name: run.path for name, run in runs_in(path).items()} if is_evaluation(path) else {"": path}


def runs_by_arm(directory: Path) -> dict[str, list[Run]]:
    """Return the runs of an evaluation for each arm, which is a part of the evaluation such as "grids".

    Returns:
        Name of the arm -> one run for each model that has played it, in the order of the models.
    """
    runs, plan = runs_in(directory), Plan.read(directory / PLAN)
    folders = {arm: [folder_of(arm, number) for number in range(len(plan.models))] for arm in plan.sizes}
    return {arm: stored for arm, names in folders.items() if (stored := [runs[name] for name in names if name in runs])}


def read_ledger(path: Path) -> Evaluation:
    """Read a stored evaluation with its claims, from its directory or from its file ``ledger.json``.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not a ledger, or was changed after it was written.
    """
    is_folder = Folder(path).is_there()
    directory, file = (path, path / LEDGER) if is_folder else (path.parent, path)
    if not Folder(directory).has_file(file.name):
        raise FileNotFoundError(
            f"there is no evaluation at {path} (no {file.name}): give the directory that goalscope evaluate wrote "
            "(--out); if the evaluation was interrupted, run its command again"
        )
    return Evaluation.read(file).kept_in(directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came out when the claims of an evaluation were decided again from its runs.

    Attributes:
        deviations: differences between the stored and the newly decided claims; empty if something failed.
        changed: runs whose episodes differ from the judged ones.
        added: runs whose rows, activations or probes differ although the claims are the same.
        failed: what could not be decided again on this machine, for example because a package or class is missing.
    """

    deviations: tuple[str, ...]
    changed: tuple[str, ...]
    added: tuple[str, ...]
    failed: tuple[str, ...]


def check_claims(directory: Path) -> str:
    """Check that the stored claims of an evaluation follow from its runs, if deciding them again takes only seconds.

    Returns:
        Why this was not checked; "" if it was, and the claims are the same.

    Raises:
        ValueError: a stored claim differs from the one that the runs give.
    """
    stored, left = read_ledger(directory), ""
    if not Folder(directory).has_file(PLAN):
        left = "the plan of the evaluation is needed to decide them again"
    elif stored.origin is None or Plan.read(directory / PLAN).id != stored.origin.plan:
        left = "the evaluation grew since: run the same goalscope evaluate again"
    elif (
        any("logs" in model.access for model in stored.models) or _episodes(stored) > SOON or not _may_judge(directory)
    ):
        names = sorted(names_of_own_code(Plan.read(directory / PLAN)))
        runs = f", which runs the code of {listed(names)}" if names else ""
        left = f"{own.program_for(names)} verify {quote(str(directory))} decides them again{runs}"
    else:
        judged = judged_again(directory)
        if judged.deviations:
            raise ValueError(
                f"{directory / LEDGER} must hold the claims that its runs lead to: {'; '.join(judged.deviations[:3])}; "
                f"{AGAIN}"
            )
        left = judged.failed[0] if judged.failed else ""
    return f"claims as the ledger has them: {left}" if left else ""


def names_of_own_code(plan: Plan) -> set[str]:
    """Return which classes and functions of the user must be imported to decide the claims of an evaluation again.

    They define worlds and hypotheses of its plan. Agents are not needed, because their answers are stored.
    """
    return own.names_in([plan.worlds, list(plan.choices.hypotheses), list(plan.choices.studies)])


def _may_judge(directory: Path) -> bool:
    """Return whether the user allowed all code that is needed to decide the claims of an evaluation again."""
    return all(map(own.may_import, names_of_own_code(Plan.read(directory / PLAN))))


def _episodes(evaluation: Evaluation) -> int:
    """Return the number of stored episodes of an evaluation, whatever its ledger says."""
    total = 0
    for run in evaluation.runs.values():
        with Store(run.path) as store:
            total += count_episodes(store)
    return total


def judged_again(directory: Path) -> Checked:
    """Decide all claims of an evaluation again from its stored runs, and report what differs from the stored claims.

    Raises:
        FileNotFoundError: there is no evaluation, or the logs that it judged have been moved.
        ValueError: runs were added since it was last judged, or a file was not written by goalscope.
    """
    with reopened(directory) as evaluation:
        return compare_claims(evaluation)


def compare_claims(evaluation: Reopened) -> Checked:
    """Decide all claims of a reopened evaluation again from its runs, and report what differs from the stored claims.

    Raises:
        ValueError: its worlds or hypotheses are code that the user did not allow.
    """
    run, stored = evaluation.run, evaluation.ledger
    own.check_consent(sorted(names_of_own_code(run.plan)))
    now = judge(run, evaluation.runs)
    deviations = list[str]()
    for stored_ledger, new_ledger in zip(stored.models, now.models, strict=True):
        deviations += _deviations(stored_ledger, new_ledger)
    if not _alike(
        [difference.model_dump() for difference in stored.differences],
        [difference.model_dump() for difference in now.differences],
    ):
        deviations.append("the differences between the models are not those of its runs")
    assert stored.origin is not None and now.origin is not None  # where a plan was compared, and where it was judged
    changed = _differing(stored.origin.recorded, now.origin.recorded)
    added = [name for name in _differing(stored.origin.runs, now.origin.runs) if name not in changed]
    failed = tuple(run.failures.failed)
    effect = "" if failed or deviations else ", which changes no claim"
    return Checked(
        deviations=() if failed else tuple(deviations),
        changed=tuple(f"the run {name} holds other episodes than when it was judged" for name in changed),
        added=tuple(
            f"the run {name} has other rows, activations or probes than when it was judged{effect}" for name in added
        ),
        failed=failed,
    )


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names of runs whose hashes differ."""
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def _deviations(stored_ledger: ClaimLedger, new_ledger: ClaimLedger) -> Iterator[str]:
    if stored_ledger.rules != new_ledger.rules:
        versions = f"version {stored_ledger.rules} of the rules, and this is version {new_ledger.rules}"
        yield f"{stored_ledger.model} was judged by {versions}"
        return
    claim_names = registry.names("claim")
    names = [[claim.name for claim in ledger.claims] for ledger in (stored_ledger, new_ledger)]
    for name in dict.fromkeys((*names[0], *names[1])):
        first, second = stored_ledger.claim(name), new_ledger.claim(name)
        if second is None and not any(
            name == claim_name or name.startswith(f"{claim_name}, ") for claim_name in claim_names
        ):
            model = stored_ledger.model
            yield f"{model}: no installed package declares the claim “{name}”: install the package that does"
            continue
        if first is None or second is None or not _alike(first.model_dump(), second.model_dump()):
            recorded, judged_now = _told(first, second), _told(second, first)
            yield f"{stored_ledger.model}: “{name}” is {recorded} in the ledger, but {judged_now} by its runs"
    neutral = {"claims": (), "described": ""}  # the choices are those of the plan
    rest = [ledger.model_copy(update=neutral).model_dump() for ledger in (stored_ledger, new_ledger)]
    if not _alike(*rest) or (names[0] != names[1] and set(names[0]) == set(names[1])):
        yield f"what the ledger says of {stored_ledger.model} beside its claims is not what its runs hold"


def _alike(first: Any, second: Any) -> bool:
    """Return whether two plain values are equal up to rounding differences between machines."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=_ROUNDED, abs_tol=_ROUNDED)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_alike(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_alike, first, second))
    return bool(first == second)


def _told(claim: Claim | None, other: Claim | None) -> str:
    """Return the values of a claim that deviate from those of another one."""
    if claim is None:
        return "missing"
    named = [name for name in _FIELDS if other is None or not _alike(getattr(claim, name), getattr(other, name))]
    return ", ".join(f"{name} {getattr(claim, name)!r}" for name in named[:2]) or "another text"


def merge_evaluations(directories: Sequence[str | Path], out: str | Path) -> Evaluation:
    """Combine evaluations of different models that have the same plan into one, and decide all claims together.

    The given evaluations are only read. Their runs are copied under a temporary name, which is renamed at the end.

    Args:
        directories: the evaluations; their models must differ.
        out: the new directory; must be empty or not exist.

    Raises:
        FileExistsError: the directory is not empty.
        ValueError: fewer than two evaluations, different plans, the same model twice, recorded logs, or an evaluation
            that was not judged.
        DamagedError: a run of an evaluation is damaged.
    """
    target, folders = Path(out), [Path(directory) for directory in directories]
    beside = Folder(target.parent)
    if not beside.is_free(target.name):
        raise FileExistsError(f"evaluations must be merged into a new directory, but {target} is there: choose another")
    parts = [judging.reopen(folder)[0] for folder in folders]
    plan = _common_plan(parts)
    failures, subjects = Failures(target), [subject for part in parts for subject in part.subjects]
    for part in parts:
        for (arm, model), why in part.failures.unasked.items():
            failures.leave_out([arm], [model], why)
    partial = beside.below(f".{target.name}.merging").checked()
    beside.remove_folder(partial.name)  # of an interrupted merge
    merged = EvaluationRun(directory=partial, plan=plan, subjects=tuple(subjects), failures=failures)
    for part in parts:
        for subject in part.subjects:
            for arm in plan.sizes:
                if not unmade(part.path(arm, subject) / DATABASE):
                    folder = folder_of(arm, plan.names.index(subject.name))
                    _copy(part.path(arm, subject), Folder(partial).make(ARMS, folder))
    merged.written()
    beside.move(partial.name, target.name)  # over an empty directory, too
    beside.sync()
    words = {"command": "merge", "passed": {"evaluations": [folder.name for folder in folders]}}
    with aloud():
        return judged(replace(merged, directory=target), words)


def _common_plan(parts: Sequence[EvaluationRun]) -> Plan:
    """Return the plan with the models of all evaluations."""
    first, models = parts[0].plan if parts else None, [model for part in parts for model in part.plan.models]
    if first is None or len(parts) < 2:
        raise ValueError("a merge must be given at least two evaluations, or the shards of a study")
    for part in parts:
        if part.logs:
            raise ValueError(f"recorded logs have no runs to be merged, got {part.directory}: evaluate them together")
        stored, added = ({**_words(plan), "seed ": [str(plan.seed)]} for plan in (first, part.plan))
        if (differ := differences(stored, added)) or part.plan.worlds != first.worlds:
            raise ValueError(
                f"evaluations that are merged must have one plan but for their models, {part.directory} differs from "
                f"{parts[0].directory} ({differ or 'other worlds'}): goalscope compare takes both"
            )
    names = [str(model["name"]) for model in models]
    if len(set(names)) < len(names):
        raise ValueError(
            f"evaluations that are merged must have different models, got {', '.join(names)}: compare those that have "
            "the same"
        )
    return first.model_copy(update={"models": tuple(models)})


def _words(plan: Plan) -> dict[str, Any]:
    """Describe the choices and sizes of a plan in words."""
    return {"": plan.choices.words, "look ": [", ".join(f"{k} {look[k]}" for k in sorted(look)) for look in plan.looks]}


def _copy(source: Path, target: Folder) -> None:
    """Copy a sound run in the state of one transaction, with all files that the run lists."""
    with Store(source) as store:
        if problems := damage(store):
            raise DamagedError(f"{store.path / DATABASE} is damaged: {problems[0].replace('RUN', str(source))}")
        with closing(sqlite3.connect(target.file(DATABASE, one_name=True))) as database:
            store.database.backup(database)
        for identity, kind, path, size, _ in store.entries("artifact"):
            listed = Artifact(id=identity, kind=kind, path=path, size=size)
            store.folder.copy_file(listed.path, into=target)
