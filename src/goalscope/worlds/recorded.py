"""Recorded worlds: environments of other programs, known only by action names and recorded episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from goalscope._ground.checks import check_text
from goalscope.stats.rows import Tag
from goalscope.worlds.world import Session, State, View, World, read_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedView(View):
    """One moment of a recorded episode, without the observation, which the record does not contain.

    Attributes:
        number: number of actions taken so far.
        names: names of all actions.
    """

    shows: ClassVar[str] = "a recorded episode"
    number: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """A note that this is a record, with the number of actions taken so far."""
        return f"(a recorded episode, after {self.number} actions; what was shown is in its log)"

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return self.names


class RecordedSession(Session):
    """One recorded episode, replayed action by action; its state is the number of actions taken so far."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names, self._turns = names, 0

    @property
    def view(self) -> RecordedView:
        """The number of actions taken so far, and the names of all actions."""
        return RecordedView(number=self._turns, names=self._names)

    @property
    def state(self) -> State:
        """The number of actions taken so far."""
        return (self._turns,)

    @property
    def done(self) -> bool:
        """Always False: only the record says when the episode ends."""
        return False

    @property
    def solved(self) -> bool:
        """Always False: only the record says whether the goal was reached."""
        return False

    def step(self, action: int | None) -> None:
        """Count one more action."""
        self._turns += 1


@dataclass(frozen=True, kw_only=True)
class RecordedWorld(World):
    """An environment of another program, known by name; its rules and optimal policy are unknown.

    Attributes:
        source: name of the recorded task.
        sample: name of the task's sample.
        names: names of all actions.
        cluster: as in `World`.
        tags: as in `World`.

    Raises:
        ValueError: there is no action, or two actions have the same name.
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
            raise ValueError(
                f"a recorded world must have at least one action, each with a name of its own, got {self.names!r:.200}"
            )

    def restore_state(self, recorded: State) -> Any:
        """Raise a ValueError: a log without rules says which actions were taken, but not which states they led to."""
        raise ValueError(
            f"the states of the task {self.source!r:.80} are unknown, since its log was imported without the rules of "
            "its world: let the log's reader return RecordedEpisode(world=...)"
        )

    def begin(self, rng: np.random.Generator) -> RecordedSession:
        """Begin an episode."""
        return RecordedSession(self.names)

    def to_plain(self) -> dict[str, Any]:
        """Return the names of the task, the sample and the actions."""
        return {"source": self.source, "sample": self.sample, "actions": list(self.names)}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Rebuild a world from its stored plain values."""
        values = read_plain(plain, "a recorded world", source=str, sample=str, actions=list)
        if not all(isinstance(name, str) for name in values["actions"]):
            raise ValueError(f"the actions of a recorded world must be a list of texts, got {plain!r:.200}")
        names = tuple(values["actions"])
        return cls(source=values["source"], sample=values["sample"], names=names, cluster=cluster, tags=tags or {})
