"""Formats of recorded logs that other packages register, in addition to those of `goalscope.runs.importers`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from goalscope._ground import registry
from goalscope.runs.importers.problems import Context
from goalscope.runs.record import Episode
from goalscope.runs.store import Store

Exporter = Callable[[Store, Path, Callable[[int, int], None]], list[Path]]
"""A function that receives a run, a folder and a progress callback, writes files and returns their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of recorded logs, and how to read it.

    Attributes:
        endings: endings of its files, in lower case and with the dot.
        read: function that yields the episodes of a file, given its path, its name in messages, and the shared context.
        holds: function that returns whether a file with one of these endings has this format. A format without it takes
            the files that no other format claims.
    """

    endings: tuple[str, ...]
    read: Callable[[Path, str, Context], Iterator[Episode]]
    holds: Callable[[Path], bool] | None = None


def importer(name: str, format: Format) -> Format:
    """Register a format that `goalscope import` can read."""
    return registry.register("importer", name, made_of=format.read)(format)


def exporter(name: str) -> Callable[[Exporter], Exporter]:
    """Return a decorator that registers a function for `goalscope export --format NAME`."""
    return registry.register("exporter", name)


def format_of(path: Path, formats: list[Format]) -> int | None:
    """Return the index of a file's format: the first that claims it, else the first that need not look into files."""
    fitting = [index for index, format_ in enumerate(formats) if path.suffix.lower() in format_.endings]
    holding = (index for index in fitting if (holds := formats[index].holds) is not None and holds(path))
    return next(holding, next((index for index in fitting if formats[index].holds is None), None))
