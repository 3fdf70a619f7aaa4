"""Failures during an evaluation: one arm, claim or picture fails, the rest continues, and every failure is reported.

A measure or claim of another package that fails is left out earlier, with a notice that names the package
(`goalscope._ground.own`).

The ledger says why a model was not asked an arm. An unexpected error is also written with its traceback to a file in
the evaluation's directory, which goalscope never reads and no content id covers.
"""

import sqlite3
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

from goalscope._ground.folder import Folder
from goalscope._ground.own import NO_ROOM, blamed
from goalscope._ground.untrusted import StrangeFileError
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.chat import ChatAgent
from goalscope.report.page import write_page
from goalscope.verdict.arms import Arm
from goalscope.verdict.preflight.cost import longest_prompt
from goalscope.verdict.subject import Subject

FAILURES: Final = "failures.txt"
"""Name of the file with the tracebacks of the last call."""

_LONGEST: Final = 1000  # characters of a message


class LastingError(ValueError):
    """Error that occurs again however often the same runs are judged, so that repeating the command does not help."""


@dataclass(slots=True)
class Failures:
    """What was not asked in an evaluation, and what has failed so far. An arm is a part of the evaluation.

    Attributes:
        directory: the directory of the evaluation.
        unasked: (arm, name of a model) -> reason why this model is not asked this arm.
        failed: one sentence per unexpected error.
        tracebacks: the same sentences with their tracebacks.
        lasting: number of these errors that no repetition mends.
        silent: name of a model that gave no answer, or no usable one -> reason; it is not asked anything else.
        makeable: names of the arms whose worlds were already made once for an agent without prompts.
    """

    directory: Path
    unasked: dict[tuple[str, str], str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    lasting: int = 0
    silent: dict[str, str] = field(default_factory=dict)
    makeable: set[str] = field(default_factory=set)
    _begun: bool = False

    def begin(self) -> None:
        """From now on, keep all failures so far in a file of the evaluation's directory; the file of an earlier call is
        replaced.

        Before this call, nothing is written.
        """
        self._begun = True
        self._write()

    def _write(self) -> None:
        if self.tracebacks:
            write_page(self.directory / FAILURES, "\n".join(self.tracebacks))
        else:
            Folder(self.directory).remove_file(FAILURES)

    def leave_out(self, arms: Iterable[str], models: Iterable[str], why: str) -> None:
        """Record that each of some models is not asked each of some arms (parts of the evaluation), with the reason.

        A reason that was recorded before is kept.

        Args:
            arms, models: names of the arms and of the models.
            why: the reason.
        """
        for pair in product(arms, models):
            self.unasked.setdefault(pair, why)

    def leave_out_unplayed(self, arm: Arm, subject: Subject) -> None:
        """Record that an arm cannot look inside a model, if the episodes that it would read are not played.

        Args:
            arm: an arm (part of the evaluation). Nothing is recorded if it has worlds of its own.
            subject: the model.
        """
        if arm.looks is not None and (arm.at, subject.name) in self.unasked:
            self.leave_out([arm.name], [subject.name], not_played(arm))

    @contextmanager
    def kept_apart(self, what: str, arms: Iterable[str] = (), models: Iterable[str] = ()) -> Iterator[None]:
        """Context manager that records an error raised in its block, so that the rest of the evaluation goes on.

        Args:
            what: name of the work in the block, for the sentence.
            arms, models: names of the arms (parts of the evaluation) and models that are left out after an error.

        Raises:
            Exception: an error after which nothing else could succeed: the disk is full or read-only, another process
                writes here, or the directory contains a link or another refused file.
        """
        try:
            yield
        except Exception as error:
            if _ends_all(error):
                raise
            theirs = blamed(error)[:_LONGEST]
            self.leave_out(arms, models, theirs or f"it failed: {told(error)}")
            self.lasting += isinstance(error, LastingError)
            if isinstance(error, ConnectionError):
                self.silent |= dict.fromkeys(models, f"its server did not answer before: {told(error)}")
            self.failed.append(f"{what}: {theirs}" if theirs else f"{what} failed: {told(error)}")
            self.tracebacks.append(f"{self.failed[-1]}\n\n{''.join(traceback.format_exception(error))}")
            if self._begun:
                self._write()


def not_played(arm: Arm) -> str:
    """Return the reason why an arm (part of an evaluation) that looks inside a model is left out: the episodes that it
    would read were not played.
    """
    return f"it uses the episodes of the part {arm.at}, which was not run"


def told(error: BaseException) -> str:
    """Describe an error in one line of limited length: its type and its message."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _ends_all(error: BaseException) -> bool:
    """Whether all other work of an evaluation would fail for the same reason."""
    cause = error.__cause__
    return isinstance(error, BlockingIOError | StrangeFileError) or any(
        (isinstance(cause_of_error, OSError) and cause_of_error.errno in NO_ROOM)
        or (
            isinstance(cause_of_error, sqlite3.Error)
            and getattr(cause_of_error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        )
        for cause_of_error in (error, cause)
    )


def does_not_fit(arm: Arm, subject: Subject, count: int, seed: int, makeable: set[str] | None = None) -> str:
    """Explain why the prompts of an arm do not fit into a model's context; "" if they fit, or if we cannot tell.

    Args:
        arm: an arm (part of an evaluation) with worlds of its own.
        subject: the model.
        count: number of worlds per cell (combination of kind, size and density).
        seed: root seed of the worlds.
        makeable: names of arms whose worlds need not be made again for an agent without prompts; the arm is added.

    Raises:
        ValueError: the worlds of the arm cannot be made.
    """
    has_prompts = subject.kind in (CHAT, TASK_CHAT)
    study = arm.make([subject], count if has_prompts else 1, seed)
    if has_prompts or makeable is None or arm.name not in makeable:
        study.size()  # needs each world
    if makeable is not None and not has_prompts:
        makeable.add(arm.name)
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        lengths = longest_prompt(study, agent, entry.parameters) if isinstance(agent, ChatAgent) else None
        if lengths is not None and lengths[0] >= lengths[1]:
            return (
                f"its longest prompt may have {lengths[0]:,} tokens, but the model's context, which also holds the "
                f"answer, has {lengths[1]:,}: use a model with a longer context"
            )
    return ""
