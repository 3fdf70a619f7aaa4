"""How work tells how far it is: what is called as it goes on, and what opens a piece of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""Begins a piece of work of that name; what it gives is called with (done, total)."""


@contextmanager
def silent(label: str) -> Iterator[Progress]:
    """Begin a piece of work that shows nothing."""
    yield lambda done, total: None
