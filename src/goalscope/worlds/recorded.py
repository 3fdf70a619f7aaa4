"""Recorded worlds: somebody else's environment, of which only the names of actions and what was done are known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from goalscope.checks import check_text
from goalscope.rows import Tag
from goalscope.worlds.world import Session, State, View, World, read_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedView(View):
    """One moment of a recorded episode; what was seen then is not part of the record.

    Attributes:
        number: actions taken so far.
        names: names of all actions.
    """

    shows: ClassVar[str] = "a recorded episode"
    number: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """That this is a record, and after how many actions."""
        return f"(a recorded episode, after {self.number} actions; what was shown is in its log)"

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return self.names


class RecordedSession(Session):
    """One recorded episode, followed action by action; its state is the number of actions taken."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names, self._taken = names, 0

    @property
    def view(self) -> RecordedView:
        """The names of the actions."""
        return RecordedView(number=self._taken, names=self._names)

    @property
    def state(self) -> State:
        """The number of actions taken."""
        return (self._taken,)

    @property
    def done(self) -> bool:
        """Never: a record says itself where it ends."""
        return False

    @property
    def solved(self) -> bool:
        """Not known before the record ends."""
        return False

    def step(self, action: int | None) -> None:
        """Count a turn."""
        self._taken += 1


@dataclass(frozen=True, kw_only=True)
class RecordedWorld(World):
    """An environment of somebody else, known by name: it has neither rules nor an optimal policy here.

    Attributes:
        source: the task that the record comes from.
        sample: which of its samples.
        names: names of the actions that there are.
        cluster, tags: as in `World`.

    Raises:
        ValueError: no action, or two of one name; says which.
    """

    kind: ClassVar[str] = "recorded"
    view: ClassVar[type[View]] = RecordedView
    source: str
    sample: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in (self.source, self.sample, *self.names):
            check_text("a name in a recorded world", text)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"a recorded world must have actions of different names, got {self.names!r:.200}")

    def begin(self, rng: np.random.Generator) -> RecordedSession:
        """Begin to follow an episode."""
        return RecordedSession(self.names)

    def to_plain(self) -> dict[str, Any]:
        """Return task, sample and names of actions."""
        return {"source": self.source, "sample": self.sample, "actions": list(self.names)}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from its plain values."""
        held = read_plain(plain, "a recorded world", source=str, sample=str, actions=list)
        if not all(isinstance(name, str) for name in held["actions"]):
            raise ValueError(f"the actions of a recorded world must be texts, got {plain!r:.200}")
        names = tuple(held["actions"])
        return cls(source=held["source"], sample=held["sample"], names=names, cluster=cluster, tags=tags or {})
