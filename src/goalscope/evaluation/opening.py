"""A directory is read: a run or an evaluation; the claims of an evaluation are decided again from its runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from goalscope.evaluation.claims import Claim, ClaimLedger, Difference, Evaluation
from goalscope.evaluation.judging import judge, opened, reopen
from goalscope.evaluation.plan import LEDGER, PLAN
from goalscope.plain_files import check_file
from goalscope.report.reading import Run
from goalscope.runs.opening import unmade
from goalscope.runs.tables import DATABASE

AGAIN: Final = "run the same goalscope evaluate again, which judges anew what is stored"
"""How a ledger is made again."""

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


def judged_again(directory: Path) -> Iterator[str]:
    """Decide all claims of an evaluation again from what its runs store, and yield each deviation of its ledger.

    Raises:
        FileNotFoundError: no evaluation lies there, or the logs that it judged are elsewhere.
        ValueError: it was not judged since it grew, or a file is none of goalscope's.
    """
    run, stored = reopen(directory)
    with opened(run) as runs:
        now = judge(run, runs)
    yield from run.failures.failed
    before, after = stored.origin, now.origin
    if before is None or after is None:
        yield "the ledger does not say which runs it was judged from"
    else:
        for name in sorted({*before.runs, *after.runs}):
            if before.runs.get(name) != after.runs.get(name):
                yield f"the run {name} is another one than the one that was judged, by its content hash"
    for kept, found in zip(stored.models, now.models, strict=True):
        yield from _deviations(kept, found)
    yield from _other_differences(stored.differences, now.differences)


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


def _other_differences(kept: tuple[Difference, ...], found: tuple[Difference, ...]) -> Iterator[str]:
    if kept != found:
        yield "the differences between the models are not those of its runs"
