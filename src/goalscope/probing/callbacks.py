"""Callbacks of a long fit: what is known already, what is finished, how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from goalscope.probing.fitted import ProbeKey

Made = TypeVar("Made")

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""


def _silent(done: int, total: int) -> None:
    """Show nothing."""


class Keyed(Protocol):
    """A problem with a key."""

    @property
    def key(self) -> ProbeKey:
        """Which probe it becomes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(Generic[Made]):
    """Where fitted things come from and go to, by the keys of their problems.

    Attributes:
        find: returns what was fitted before, None where it was not.
        keep: is called with each thing as soon as it is fitted, so that an interrupted fit can go on.
        progress: is called as the work goes on.
    """

    find: Callable[[ProbeKey], Made | None] = lambda key: None
    keep: Callable[[ProbeKey, Made], None] = lambda key, made: None
    progress: Progress = _silent


Known = TypeVar("Known", bound=Keyed)


def fit_missing(
    problems: Sequence[Known], fit: Callable[[Sequence[Known], Callbacks[Made]], list[Made]], callbacks: Callbacks[Made]
) -> list[Made]:
    """Return what belongs to each problem, in their order: what is kept already, and the rest fitted.

    Args:
        problems: keys all different.
        fit: fits some of them, and tells `callbacks` of each.
        callbacks: what is there.
    """
    found: dict[ProbeKey, Any] = {}
    for problem in problems:
        made = callbacks.find(problem.key)
        if made is not None:
            found[problem.key] = made
    missing = [problem for problem in problems if problem.key not in found]
    if missing:
        found |= {problem.key: made for problem, made in zip(missing, fit(missing, callbacks), strict=True)}
    return [found[problem.key] for problem in problems]
