"""A directory is read: a run or an evaluation; the claims of an evaluation are decided again from its runs."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

from goalscope.evaluation.claims import Claim, ClaimLedger, Evaluation, runs_in
from goalscope.evaluation.judging import judge, opened, reopen
from goalscope.evaluation.plan import LEDGER, PLAN, Plan
from goalscope.plain_files import check_file
from goalscope.report.reading import Run
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE

AGAIN: Final = "run the same goalscope evaluate again, which judges anew what is stored"
"""How a ledger is made again."""

SOON: Final = 500
"""Most episodes of an evaluation whose claims are decided again whenever its ledger is printed."""

_FIELDS: Final = ("answer", "value", "low", "high", "threshold", "clusters", "n", "p", "says")


def open_results(path: str | Path) -> Run | Evaluation:
    """Read a run directory or the directory of an evaluation.

    Args:
        path: the directory.

    Raises:
        FileNotFoundError: neither lies there, or the evaluation was not judged yet.
        ValueError: a file is none of goalscope's, or was changed.
    """
    directory = Path(path)
    if is_evaluation(directory):
        return read_ledger(directory)
    if unmade(directory / DATABASE):
        raise FileNotFoundError(
            f"what is opened must be the directory of a run or of an evaluation, got {str(path)!r}: it holds neither "
            f"{DATABASE} nor {LEDGER}"
        )
    return Run(directory)


def is_evaluation(directory: Path) -> bool:
    """Return whether an evaluation was begun in a directory."""
    return any((directory / name).is_file() for name in (PLAN, LEDGER))


def run_folders(path: Path) -> dict[str, Path]:
    """Return the run of a directory under the name "", or the runs of an evaluation's arms, by the arms' folders."""
    return {name: run.path for name, run in runs_in(path).items()} if is_evaluation(path) else {"": path}


def read_ledger(path: Path) -> Evaluation:
    """Return the evaluation of a directory, or of a file that holds its ledger, as it is stored.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no ledger, or was changed since it was written.
    """
    directory = path if path.is_dir() else path.parent
    file = check_file(path / LEDGER) if path.is_dir() else path
    if not file.exists():
        raise FileNotFoundError(
            f"an evaluation must be at {path}, but there is no {file.name} that goalscope evaluate wrote: give the "
            "directory of --out, or run the evaluation to its end"
        )
    return Evaluation.read(file).kept_in(directory)


def check_claims(directory: Path) -> str:
    """Decide the claims of an evaluation again where that takes seconds; return what was not done, "" for nothing.

    Raises:
        ValueError: a claim of the ledger is not the one that its runs lead to.
    """
    stored = read_ledger(directory)
    episodes = sum(arm.episodes for model in stored.models for arm in model.arms)
    left = ""
    if not (directory / PLAN).is_file():
        left = "the plan of the evaluation is needed to decide them again"
    elif Plan.read(directory / PLAN).look != stored.models[0].look:
        left = "the evaluation grew since: run the same goalscope evaluate again"
    elif episodes > SOON or any("logs" in model.access for model in stored.models):
        left = f"goalscope verify {quote(str(directory))} decides them again"
    if left:
        return f"claims as the ledger has them: {left}"
    deviations, _ = judged_again(directory)
    if deviations:
        raise ValueError(
            f"{directory / LEDGER} must hold the claims that its runs lead to: {'; '.join(deviations[:3])}; {AGAIN}"
        )
    return ""


def judged_again(directory: Path) -> tuple[list[str], list[str]]:
    """Decide all claims of an evaluation again from what its runs store.

    Returns:
        Each deviation of its ledger, and each run that holds something else than when it was judged.

    Raises:
        FileNotFoundError: no evaluation lies there, or the logs that it judged are elsewhere.
        ValueError: it was not judged since it grew, or a file is none of goalscope's.
    """
    run, stored = reopen(directory)
    with opened(run) as runs:
        now = judge(run, runs)
    deviations = list(run.failures.failed)
    for kept, found in zip(stored.models, now.models, strict=True):
        deviations += _deviations(kept, found)
    if stored.differences != now.differences:
        deviations.append("the differences between the models are not those of its runs")
    before, after = ({} if one.origin is None else one.origin.runs for one in (stored, now))
    changed = [
        f"the run {name} holds something else than when it was judged (measure, meg, probe and patch add rows)"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return deviations, changed


def _deviations(kept: ClaimLedger, found: ClaimLedger) -> Iterator[str]:
    if kept.rules != found.rules:
        yield f"{kept.model} was judged by rules of version {kept.rules}, these are of version {found.rules}"
        return
    plain = {"claims": (), "described": ""}  # the choices are those of the plan
    if kept.model_copy(update=plain) != found.model_copy(update=plain):
        yield f"what the ledger says of {kept.model} beside its claims is not what its runs hold"
    names = list(dict.fromkeys(claim.name for claim in (*kept.claims, *found.claims)))
    for name in names:
        first, second = kept.claim(name), found.claim(name)
        if first != second:
            yield f"{kept.model}: “{name}” is {_told(first, second)} in the ledger, {_told(second, first)} by its runs"
    if [claim.name for claim in kept.claims] != [claim.name for claim in found.claims] and len(names) == len(
        kept.claims
    ):
        yield f"{kept.model}: its claims stand in another order"


def _told(claim: Claim | None, other: Claim | None) -> str:
    """Return what a claim holds where another one deviates."""
    if claim is None:
        return "missing"
    named = _FIELDS if other is None else [name for name in _FIELDS if getattr(claim, name) != getattr(other, name)]
    return ", ".join(f"{name} {getattr(claim, name)!r}" for name in named[:2]) or "another text"
