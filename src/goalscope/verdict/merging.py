"""Merge evaluations that have the same plan: their models are judged together, and nothing is asked again."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from goalscope._ground.folder import Folder
from goalscope._ground.progress import aloud
from goalscope._ground.untrusted import DamagedError
from goalscope.inside.activations.shards import Artifact
from goalscope.runs import Store
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE
from goalscope.runs.verify import damage
from goalscope.verdict import judging
from goalscope.verdict.choices import differences
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.evaluating import judged
from goalscope.verdict.failures import Failures
from goalscope.verdict.plan import ARMS, EvaluationRun, Plan, folder_of


def merge_evaluations(directories: Sequence[str | Path], out: str | Path) -> Evaluation:
    """Combine the models of evaluations that have the same plan, and judge them together.

    The evaluations are only read. Their runs are copied under a temporary name, which is renamed at the end.

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
