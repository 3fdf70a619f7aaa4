"""Formats of recorded logs that packages register, in addition to those of `goalscope.runs.importers`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from goalscope._ground import registry
from goalscope.runs.importers.problems import Context
from goalscope.runs.record import Episode
from goalscope.runs.store import Store

Exporter = Callable[[Store, Path, Callable[[int, int], None]], list[Path]]
"""Function of a run, a folder and a callback of progress that writes files and returns their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of recorded logs.

    Attributes:
        endings: of its files, in lower case and with the dot.
        read: yields the episodes of a file, given its path, its name in messages, and what all files share.
        holds: whether a file of a shared ending is of this format; a format without it takes those that no other holds.
    """

    endings: tuple[str, ...]
    read: Callable[[Path, str, Context], Iterator[Episode]]
    holds: Callable[[Path], bool] | None = None


def importer(name: str, format: Format) -> Format:
    """Register a format that `goalscope import` reads."""
    return registry.register("importer", name, made_of=format.read)(format)


def exporter(name: str) -> Callable[[Exporter], Exporter]:
    """Return a decorator that registers what `goalscope export --format NAME` writes."""
    return registry.register("exporter", name)


def format_of(path: Path, formats: list[Format]) -> int | None:
    """Return the position of a file's format among some: the first that holds it, else the first that need not look."""
    fitting = [index for index, format_ in enumerate(formats) if path.suffix.lower() in format_.endings]
    holding = (index for index in fitting if (holds := formats[index].holds) is not None and holds(path))
    return next(holding, next((index for index in fitting if formats[index].holds is None), None))
