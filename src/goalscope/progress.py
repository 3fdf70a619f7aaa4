"""How work tells how far it is: callbacks, stages, answers as they arrive, and a tally of what models do meanwhile."""

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

Answer = TypeVar("Answer")

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""Begins a named stage of work; its context value is called with (done, total)."""

Arrived = Callable[[Sequence[tuple[int, Answer]]], None]
"""Called during a batch of questions with what was answered since the last call, each with its index; from any thread.

It is also called without answers, often enough to end the work: what it raises does.
"""


class StoppedError(Exception):
    """Raised by an `Arrived` to end the work: what was answered before is kept, the rest was not asked."""


def takes_arrived(method: Callable[..., Any]) -> bool:
    """Return whether a method hands out answers one by one: it has a parameter ``arrived``, see `Arrived`."""
    return "arrived" in inspect.signature(method).parameters


def handing_out(
    method: Callable[..., Sequence[Answer]],
    arrived: Arrived[Answer],
    questions: Sequence[Any],
    *arguments: Any,
    **options: Any,
) -> None:
    """Ask a method and hand out its answers: as they arrive where it does so itself, else all at its end."""
    if takes_arrived(method):
        method(questions, *arguments, **options, arrived=arrived)
    else:
        answers = method(questions, *arguments, **options)
        arrived(list(zip(range(len(questions)), answers, strict=True)))


class Tally:
    """What the models of this process have done since it began; threads add to it, a display reads it.

    Its counts: ``begun`` (readings of weights and calls), ``under_way`` (calls now), ``answers``, ``invalid`` (those
    without an action), ``computed_prompt`` and ``computed_output`` (tokens that passed through models here),
    ``told_prompt`` and ``told_output`` (tokens of answers).
    """

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), Counter[str]()
        self._listeners: list[Callable[[str], None]] = []

    def add(self, **counts: int) -> None:
        """Add to some counts."""
        with self._lock:
            self._counts.update(counts)

    def read(self) -> Counter[str]:
        """Return all counts as they are now."""
        with self._lock:
            return self._counts.copy()

    def tell(self, line: str) -> None:
        """Hand a line on what goes on to whoever began to listen last."""
        for listener in self._listeners[-1:]:
            listener(line)

    @contextmanager
    def heard_by(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Call a function with each line on what goes on."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


TALLY: Final = Tally()


@contextmanager
def silent(label: str) -> Iterator[Progress]:
    """Begin a stage without any output."""
    yield lambda done, total: None
