"""Interface of worlds: a world begins sessions, a session gives views and takes actions.

A kind of world derives from `World`, its sessions from `Session`, its observations from `View`. The episode loop, the
store, the chat agent and the measures use these classes only.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_whole
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.rng import stream
from goalscope.stats.rows import Tag
from goalscope.worlds.drawing import Drawing

if TYPE_CHECKING:
    from goalscope.worlds.grid import Grid

State = tuple[int, ...]
"""A true state in the form recorded by steps."""


Offer = Literal["cells", "grid", "drawing", "seen state", "tasks", "horizon", "environment"]
"""What a kind of world may offer, each with the attributes that it then has:

* cells: a state is a `State`, (row, col, flags), stored in separate columns; actions are the four moves.
* grid: walls, key, door and goal of ``grid`` decide what is optimal: it has shortest paths and a decision process.
* drawing: ``grid`` can be drawn, with the agent at its cell.
* seen state: what an agent sees depends on the state alone, where there is no fog.
* tasks: it is the task map ``task_map``, whose measures replace those of any world.
* horizon: each world has its own ``horizon``, so that a study gives none.
* environment: ``believed`` is an environment, enumerated, solved and played back.

An oracle and a process of its own are what `World.oracle` and `World.process` return.
"""


class View(ABC):
    """All that an agent may see at one moment; immutable.

    Attributes:
        shows: the content of such views, for messages.
    """

    __slots__ = ()
    shows: ClassVar[str] = "text"

    @property
    @abstractmethod
    def text(self) -> str:
        """The observation in words."""

    @property
    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """The names of all actions; an action is an index of this tuple."""

    @property
    def admissible(self) -> tuple[int, ...] | None:
        """The actions that can be taken now, None for all of them."""
        return None

    @property
    def offered(self) -> tuple[int, ...]:
        """The actions that can be taken now; all of them where none is admissible."""
        return self.admissible or tuple(range(len(self.actions)))

    def fields(self) -> Mapping[str, str]:
        """Return further fields of prompt templates, besides text and actions, by placeholder."""
        return {}

    @property
    def drawing(self) -> Drawing | None:
        """What is seen, as a picture; None where it is the whole world, or text alone."""
        return None

    def line(self, action: str) -> str:
        """Return the line of this moment in a list of earlier steps, with the name of the following action."""
        return f"{self.text} -> {action}"

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return the plain values that identify the prompt in a journal, for agents that have no prompt text.

        Args:
            history: the earlier steps that the agent is shown, see `goalscope.agents.Past`.
        """
        return [self.text, [[past.view.text, past.action, past.text, past.reasoning] for past in history]]


class Session(ABC):
    """One episode of a world, advanced by actions."""

    @property
    @abstractmethod
    def view(self) -> View:
        """What the agent may see now."""

    @property
    @abstractmethod
    def state(self) -> State:
        """The true state now."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the episode is over, solved or not."""

    @property
    @abstractmethod
    def solved(self) -> bool:
        """Whether the goal is reached."""

    @property
    def reward(self) -> float | None:
        """The reward of the last action, None in worlds without rewards."""
        return None

    @abstractmethod
    def step(self, action: int | None) -> None:
        """Take an action; None stands for a turn that held none."""


class Oracle(Protocol):
    """The exact optimal policy of a world."""

    @property
    def length(self) -> int:
        """Fewest actions from the beginning to the goal, -1 where it cannot be reached."""
        ...

    def look_up(self, states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the optimal sets ``[N, A]`` and the fewest actions to the goal ``[N]`` (-1: none) of states."""
        ...


@runtime_checkable
class TimedOracle(Oracle, Protocol):
    """The exact optimal policy of a stochastic world: optimal sets depend on the number of actions left."""

    def look_up_left(self, states: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return the optimal actions ``[N, A]`` in N states; ``[N]`` actions are left, the current one included."""
        ...


class _Reads:
    """Attributes of grids that other worlds lack; access raises an AttributeError there."""

    if TYPE_CHECKING:
        grid: Grid
    fog_radius: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "grid":
            raise AttributeError(f"a world must be made of a grid for this, got one of kind {type(self).__name__}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, kw_only=True)
class World(_Reads, ABC):
    """A world with its metadata.

    Attributes:
        cluster: id that paired versions of one world (transforms, controls) share; the world's own id by default.
        tags: for the grouping of rows: size, density, layout, transform, index, ...
        kind: name under which its settings are registered, see `goalscope.runs.world_kind`; a stored world is restored
            by it.
        view: class of the views of its sessions; an agent declares the class it needs.
        offers: what the kind offers beside its sessions, see `Offer`; nothing else asks for its class.
        recorded_as: what runs record in place of a state, such as "the number of a state in a table"; "" where the
            recorded numbers are the state itself. Only `restore_state` turns the one into the other.
    """

    cluster: str = ""
    tags: Mapping[str, Tag] = field(default_factory=dict)

    kind: ClassVar[str]
    view: ClassVar[type[View]]
    offers: ClassVar[frozenset[Offer]] = frozenset()
    recorded_as: ClassVar[str] = ""

    @abstractmethod
    def begin(self, rng: np.random.Generator) -> Session:
        """Begin an episode.

        Args:
            rng: the random numbers of the episode, a stream named by world and episode: the only source of chance.
        """

    @property
    def goal_noun(self) -> str:
        """The goal of the world as a noun phrase, with the name that its author gave it."""
        return "the goal"

    def begin_episode(self, seed: int, episode_id: str) -> Session:
        """Begin an episode with the random numbers that belong to it.

        Args:
            seed: root seed of the study.
            episode_id: content id of the episode.
        """
        return self.begin(stream(seed, "world", self.id, episode_id))

    @abstractmethod
    def to_plain(self) -> dict[str, Any]:
        """Return plain values that determine the world completely: the id is their hash."""

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values of `to_plain`, which may be untrusted.

        Raises:
            ValueError: values of no such world.
        """

    @property
    def horizon(self) -> int | None:
        """Maximum number of actions of an episode, None where the study sets it."""
        return None

    @property
    def shared_examples(self) -> str:
        """Id by which the examples in its prompts are chosen, shared with other worlds; "" for that of each episode."""
        return ""

    def described(self) -> dict[str, Any]:
        """Return the plain values whose hash is the id."""
        return {"kind": self.kind, "world": self.to_plain()}

    @cached_property
    def id(self) -> str:
        """Content id of all that determines the world."""
        return content_id("world", self.described())

    @property
    def cluster_id(self) -> str:
        """The cluster that this world belongs to in every interval."""
        return self.cluster or self.id

    @property
    def stored(self) -> str:
        """The world as one stored text: kind and plain values, except for grids and task maps."""
        return canonical_json(self.described())

    def action(self, index: int) -> int:
        """Return an action from its index, as steps hold it.

        Raises:
            ValueError: no whole number from 0 on.
        """
        return check_whole("the index of an action", index, 0)

    def check_state(self, state: Any) -> State:
        """Return a stored state in the form of sessions.

        Raises:
            ValueError: no state of this world.
        """
        if not isinstance(state, list | tuple) or not all(type(number) is int for number in state):
            raise ValueError(f"a state must be a list of whole numbers, got {state!r}")
        return tuple(state)

    def restore_state(self, recorded: State) -> Any:
        """Return a recorded state in the form in which the author of the world gives and takes states.

        Args:
            recorded: as sessions have it and runs store it.

        Raises:
            ValueError: the state cannot be known here.
        """
        return recorded

    def oracle(self) -> Oracle | None:
        """Return the exact optimal policy, None where it is not known; grids have theirs in `worlds.planning`."""
        return None

    def drawing(self, state: State) -> Drawing | None:
        """Return the world in a state as a picture, None where it has none: the text of its views is shown then."""
        return None

    def process(self) -> Any:
        """Return the decision process, a `goalscope.worlds.planning.process.Process`; None where it is not known."""
        return None


@dataclass(frozen=True, kw_only=True)
class StoredWorld(World):
    """A stored world of an unregistered kind: it can be shown and counted, but not run.

    Attributes:
        name: its kind.
        plain: its plain values.
    """

    name: str
    plain: Any
    kind: ClassVar[str] = ""
    view: ClassVar[Any] = View

    def described(self) -> dict[str, Any]:
        """Return the stored values."""
        return {"kind": self.name, "world": self.plain}

    def begin(self, rng: np.random.Generator) -> Session:
        """Refuse to begin."""
        raise ValueError(f"the kind of a world must be registered to run it, got {self.name!r}: install its package")

    def to_plain(self) -> dict[str, Any]:
        """Return its plain values."""
        plain: dict[str, Any] = self.plain
        return plain

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from its kind and plain values."""
        return cls(name=plain["kind"], plain=plain["world"], cluster=cluster, tags=tags or {})


class WorldSettings(Protocol):
    """The settings of a world kind: an entry of the list ``worlds`` of a study."""

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[World]:
        """Yield its worlds, all different.

        Args:
            seed: root seed of the study.
            path: location of the entry in the study, for messages.
            taken: ids of the earlier worlds, for kinds that redraw duplicates.
        """
        ...


def read_plain(plain: Any, what: str, **kinds: Any) -> dict[str, Any]:
    """Return the checked plain values of a world of some kind, which may be untrusted.

    Args:
        plain: the values.
        what: noun for the world, for the error.
        **kinds: the type of each value, by its key.

    Raises:
        ValueError: other keys, or a value of another type.
    """
    if not isinstance(plain, Mapping) or set(plain) != set(kinds):
        raise ValueError(f"{what} must have {', '.join(kinds)}, got {plain!r:.200}")
    for name, kind in kinds.items():
        if not isinstance(plain[name], kind) or (isinstance(plain[name], bool) and kind is not bool):
            type_name = str(getattr(kind, "__name__", kind))
            raise ValueError(f"{name} of {what} must be of type {type_name}, got {plain[name]!r:.80}")
    return dict(plain)
