"""What an evaluation could not do: one arm, claim or picture fails, the others go on, and nothing of it is hidden.

A measure or claim of another package that fails is left out before, with a notice that names the package
(`goalscope._ground.parts`).

Why an arm is not asked of a model stands in the ledger. An error that nobody declared also has its traceback in a file
of the evaluation's directory, which nothing reads and no content id covers.
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
from goalscope._ground.parts import NO_ROOM, blamed
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


@dataclass(slots=True)
class Failures:
    """What was not asked, and what failed, so far.

    Attributes:
        directory: the directory of the evaluation.
        unasked: (arm, name of a model) -> why the arm is not asked of it.
        failed: a sentence for each error that nobody declared.
        tracebacks: the same with the traceback of each.
        silent: name of a model that gave no answer, or none that can be used -> why; nobody asks it again.
    """

    directory: Path
    unasked: dict[tuple[str, str], str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    _begun: bool = False

    def begin(self) -> None:
        """Write from now on, in place of the tracebacks of an earlier call; before, the directory is left alone."""
        self._begun = True
        self._write()

    def _write(self) -> None:
        if self.tracebacks:
            write_page(self.directory / FAILURES, "\n".join(self.tracebacks))
        else:
            Folder(self.directory).remove_file(FAILURES)

    def leave_out(self, arms: Iterable[str], models: Iterable[str], why: str) -> None:
        """Declare why some arms are not asked of some models; the first reason stays."""
        for pair in product(arms, models):
            self.unasked.setdefault(pair, why)

    @contextmanager
    def kept_apart(self, what: str, arms: Iterable[str] = (), models: Iterable[str] = ()) -> Iterator[None]:
        """Let an error end this block alone: it is recorded, and some arms are then not asked of some models.

        Args:
            what: what fails with it, in a sentence.
            arms, models: those arms and models.

        Raises:
            Exception: an error after which nothing else could succeed: the disk is full or read-only, another process
                writes here, or the directory holds a link or another thing that is refused.
        """
        try:
            yield
        except Exception as error:
            if _ends_all(error):
                raise
            theirs = blamed(error)[:_LONGEST]
            self.leave_out(arms, models, theirs or f"it failed: {told(error)}")
            if isinstance(error, ConnectionError):
                self.silent |= dict.fromkeys(models, f"its server did not answer before: {told(error)}")
            self.failed.append(f"{what}: {theirs}" if theirs else f"{what} failed: {told(error)}")
            self.tracebacks.append(f"{self.failed[-1]}\n\n{''.join(traceback.format_exception(error))}")
            if self._begun:
                self._write()


def not_played(arm: Arm) -> str:
    """Return why an arm that looks inside has nothing to look into."""
    return f"it reads the episodes of the arm {arm.at}, which was not asked"


def told(error: BaseException) -> str:
    """Return the type and the message of an error in one line of bounded length."""
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


def does_not_fit(arm: Arm, subject: Subject, count: int, seed: int) -> str:
    """Return why an arm's prompts do not fit a model, "" where they do or where that is not known; nothing is asked.

    Args:
        arm: an arm with worlds.
        subject: the model.
        count: worlds a cell.
        seed: root seed of the worlds.
    """
    study = arm.make([subject], count if subject.kind in (CHAT, TASK_CHAT) else 1, seed)
    study.size()  # needs each world
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        lengths = longest_prompt(study, agent, entry.parameters) if isinstance(agent, ChatAgent) else None
        if lengths is not None and lengths[0] >= lengths[1]:
            return (
                f"its longest prompt may take {lengths[0]:,} tokens, but the model has {lengths[1]:,} positions for "
                "prompt and answer: use a model with a longer context"
            )
    return ""
