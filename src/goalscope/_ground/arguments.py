"""What the type of an argument cannot say by itself; it stands beside the type, and commands are generated from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

Thing = Literal[
    "run",
    "shard",
    "evaluation",
    "organisms",
    "challenge",
    "key",
    "study",
    "hypotheses",
    "plan",
    "agent",
    "model",
    "log",
    "process",
    "prompt",
]
"""What a file or directory may be that a command reads. `agent` is a YAML file, `model` a folder of weights."""


class Reads:
    """State what an argument may name on disk; nothing of it is shown in the help.

    The suite of attacks in ``tests/attacks`` takes from this which damaged files and directories a command is given.
    An argument that names a file or a directory without saying what it is makes that suite fail.

    Attributes:
        things: what may lie there and is read.
    """

    def __init__(self, *things: Thing) -> None:
        self.things = things


class Writes:
    """State that a file or a directory is written at the place that an argument names; see `Reads`.

    Attributes:
        form: whether a file or a directory is written.
    """

    def __init__(self, form: Literal["file", "directory"]) -> None:
        self.form = form


@dataclass(frozen=True)
class Between:
    """State the least and the greatest value of a number.

    Attributes:
        least, most: the smallest and the largest value that are accepted; None where there is no such limit.
    """

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Separated:
    """State what stands between the entries of a list that is written as one text; without it, commas.

    Attributes:
        by: the separator; "" for an option that is repeated. ";," stands for semicolons or, in a text without any,
            commas outside of brackets.
    """

    by: str


Positive = Annotated[int, Between(1)]
"""A number of things, at least one."""

Settings = Annotated[Sequence[str], Separated("")]
"""KEY=VALUE each."""
RunDirectory = Annotated[Path, Reads("run")]
"""The directory of a run."""
OutFolder = Annotated[Path, Writes("directory")]
"""A directory that is written."""
OutFile = Annotated[Path | None, Writes("file")]
"""A file that is written; None for none."""
