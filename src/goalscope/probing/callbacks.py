"""What a long fit tells while it works: what is known already, what is finished, how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Made = TypeVar("Made")

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""


def _silent(done: int, total: int) -> None:
    """Show nothing."""


class Named(Protocol):
    """A problem, known by its name."""

    @property
    def name(self) -> str:
        """Its name among those fitted together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping(Generic[Made]):
    """Where fitted things come from and go to, by the names of their problems.

    Attributes:
        find: returns what was fitted before, None where it was not.
        keep: is called with each thing as soon as it is fitted, so that an interrupted fit can go on.
        progress: is called as the work goes on.
    """

    find: Callable[[str], Made | None] = lambda name: None
    keep: Callable[[str, Made], None] = lambda name, made: None
    progress: Progress = _silent


Known = TypeVar("Known", bound=Named)


def fit_missing(
    problems: Sequence[Known], fit: Callable[[Sequence[Known], Keeping[Made]], list[Made]], keeping: Keeping[Made]
) -> list[Made]:
    """Return what belongs to each problem, in their order: what is kept already, and the rest fitted.

    Args:
        problems: names all different.
        fit: fits some of them, and tells `keeping` of each.
        keeping: what is there.
    """
    found: dict[str, Any] = {}
    for problem in problems:
        made = keeping.find(problem.name)
        if made is not None:
            found[problem.name] = made
    missing = [problem for problem in problems if problem.name not in found]
    if missing:
        found |= {problem.name: made for problem, made in zip(missing, fit(missing, keeping), strict=True)}
    return [found[problem.name] for problem in problems]
