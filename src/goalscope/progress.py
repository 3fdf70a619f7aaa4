"""Progress callbacks of long work, and the stages it consists of."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""Begins a named stage of work; its context value is called with (done, total)."""


@contextmanager
def silent(label: str) -> Iterator[Progress]:
    """Begin a stage without any output."""
    yield lambda done, total: None
