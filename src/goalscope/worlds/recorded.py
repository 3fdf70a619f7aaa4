"""Recorded worlds: foreign environments, known only by the names of their actions and by recorded episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from goalscope._ground.checks import check_text
from goalscope.stats.rows import Tag
from goalscope.worlds.world import Session, State, View, World, read_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedView(View):
    """One moment of a recorded episode, without the observation, which is not in the record.

    Attributes:
        number: actions taken so far.
        names: names of all actions.
    """

    shows: ClassVar[str] = "a recorded episode"
    number: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """A note that this is a record, with the number of actions."""
        return f"(a recorded episode, after {self.number} actions; what was shown is in its log)"

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return self.names


class RecordedSession(Session):
    """One recorded episode, followed action by action; its state is the number of actions taken."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names, self._turns = names, 0

    @property
    def view(self) -> RecordedView:
        """The names of the actions."""
        return RecordedView(number=self._turns, names=self._names)

    @property
    def state(self) -> State:
        """The number of actions taken."""
        return (self._turns,)

    @property
    def done(self) -> bool:
        """Always False: the end is part of the record."""
        return False

    @property
    def solved(self) -> bool:
        """Always False: unknown before the end of the record."""
        return False

    def step(self, action: int | None) -> None:
        """Count a turn."""
        self._turns += 1


@dataclass(frozen=True, kw_only=True)
class RecordedWorld(World):
    """A foreign environment, known by name, without rules and optimal policy.

    Attributes:
        source: the task of the record.
        sample: its sample.
        names: names of all actions.
        cluster, tags: as in `World`.

    Raises:
        ValueError: no action, or two of one name.
    """

    kind: ClassVar[str] = "recorded"
    view: ClassVar[type[View]] = RecordedView
    recorded_as: ClassVar[str] = "the number of actions taken so far"
    source: str
    sample: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in (self.source, self.sample, *self.names):
            check_text("a name in a recorded world", text)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"a recorded world must have actions of different names, got {self.names!r:.200}")

    def restore_state(self, recorded: State) -> Any:
        """Raise a ValueError: a log of unknown rules says which actions were taken, not the states between them."""
        raise ValueError(
            f"the states of the task {self.source!r:.80} are not known, since its log was imported without its "
            "rules: let the reader return RecordedEpisode(world=...)"
        )

    def begin(self, rng: np.random.Generator) -> RecordedSession:
        """Begin an episode."""
        return RecordedSession(self.names)

    def to_plain(self) -> dict[str, Any]:
        """Return task, sample and names of actions."""
        return {"source": self.source, "sample": self.sample, "actions": list(self.names)}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Rebuild a world from the plain values that it was saved as."""
        values = read_plain(plain, "a recorded world", source=str, sample=str, actions=list)
        if not all(isinstance(name, str) for name in values["actions"]):
            raise ValueError(f"the actions of a recorded world must be texts, got {plain!r:.200}")
        names = tuple(values["actions"])
        return cls(source=values["source"], sample=values["sample"], names=names, cluster=cluster, tags=tags or {})
