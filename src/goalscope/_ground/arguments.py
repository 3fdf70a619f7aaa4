"""Annotations for command arguments that the type alone cannot express; commands are generated from them."""

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
    "kinds",
    "claim",
]
"""Kinds of files and directories that commands read. `agent` is a YAML file, `model` a folder of weights."""


class Reads:
    """State what kinds of files or directories an argument may name; the help does not show it.

    The attack tests in ``tests/attacks`` use this to choose damaged files and directories for each command. They fail
    for an argument that names a file or directory without saying what it is.

    Attributes:
        things: the kinds that are read.
    """

    def __init__(self, *things: Thing) -> None:
        self.things = things


class Writes:
    """State that an argument names a file or directory that is written; see `Reads`.

    Attributes:
        form: "file" or "directory".
    """

    def __init__(self, form: Literal["file", "directory"]) -> None:
        self.form = form


@dataclass(frozen=True)
class Between:
    """State the least and the greatest allowed value of a number.

    Attributes:
        least: smallest allowed value; None for no limit.
        most: greatest allowed value; None for no limit.
    """

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Separated:
    """State the separator of a list that is written as one text. Lists without it use commas.

    Attributes:
        by: the separator; "" for an option that is repeated. ";," means semicolons or, in a text without any, commas
            outside of parentheses.
    """

    by: str


Positive = Annotated[int, Between(1)]
"""A whole number of at least 1."""

Settings = Annotated[Sequence[str], Separated("")]
"""Settings, each written KEY=VALUE."""
RunDirectory = Annotated[Path, Reads("run")]
"""The directory of a run."""
OutFolder = Annotated[Path, Writes("directory")]
"""A directory that is written."""
OutFile = Annotated[Path | None, Writes("file")]
"""A file that is written; None for none."""
