"""The interface of worlds: a world begins sessions; a session shows views and takes actions.

A kind of world derives from `World`, its sessions from `Session`, its observations from `View`. The episode loop, the
store, the chat agent and the measures use only these classes. Two kinds of worlds can be displayed and counted but not
played: stored worlds of an unregistered kind, and environments of other programs that are known only by recorded
episodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_text, check_whole
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.rng import stream
from goalscope.stats.rows import Tag
from goalscope.worlds.grid import Position

if TYPE_CHECKING:
    from goalscope.worlds.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture of one moment. Worlds without a drawing are shown by the text of their view.

    Attributes:
        rows: one text per row of cells, with one symbol per cell: ``#`` wall, ``_`` open, ``*`` hidden, ``G`` goal,
            ``K`` key, ``D`` door, as in `goalscope.worlds.grid`; any other symbol is shown unchanged.
        agent: cell of the agent, (row, col); None if the picture shows no agent.
        labels: names written on cells, each (row, col, name).
        nodes: names of the graph's nodes, each with a word for its state ("" for no word).
        edges: arrows of the graph, each (from, to).

    Raises:
        ValueError: the rows differ in length, the agent or a label lies outside of them, or an edge joins unknown
            nodes.
    """

    rows: tuple[str, ...] = ()
    agent: Position | None = None
    labels: tuple[tuple[int, int, str], ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len({len(row) for row in self.rows}) > 1:
            lengths = sorted({len(row) for row in self.rows})
            raise ValueError(f"the rows of a drawing must have the same length, got {lengths}: pad the shorter rows")
        width = len(self.rows[0]) if self.rows else 0
        cells = [*([self.agent] if self.agent is not None else []), *((row, col) for row, col, _ in self.labels)]
        outside = [cell for cell in cells if not (0 <= cell[0] < len(self.rows) and 0 <= cell[1] < width)]
        if outside:
            raise ValueError(f"agent and labels must lie on the {len(self.rows)}x{width} cells, got {outside[0]}")
        unknown = [name for edge in self.edges for name in edge if name not in self.nodes]
        if unknown:
            raise ValueError(f"an edge of a drawing must join two of its nodes, got {unknown[0]!r}: add it to nodes")


State = tuple[int, ...]
"""A true state in the form that steps record."""


Offer = Literal["cells", "grid", "drawing", "seen state", "tasks", "horizon", "environment", "changed"]
"""Optional features of a kind of world. Each feature promises attributes:

* cells: states are `State` values (row, col, flags), stored in separate columns, and actions are the four moves.
* grid: the walls, key, door and goal of ``grid`` decide what is optimal, which gives shortest paths and a process.
* drawing: ``grid`` can be drawn, with the agent at its cell.
* seen state: without fog, what an agent sees depends only on the state.
* tasks: the world is the task map ``task_map``, whose measures replace the general ones.
* horizon: each world has its own ``horizon``, so the study must not set one.
* environment: ``believed`` is an environment that can be enumerated, solved and played back.
* changed: the world is a state, or a version of it in which one thing is changed: ``original`` is the id of the state,
  ``moved`` the changed thing.

Two more optional features are not listed: `World.oracle` and `World.process` return None in worlds without them.
"""


class View(ABC):
    """Everything an agent may see at one moment; immutable.

    Attributes:
        shows: what such views show, in words for messages.
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
        """The names of all actions; an action is an index into this tuple."""

    @property
    def admissible(self) -> tuple[int, ...] | None:
        """Indices of the actions that are valid now; None if all actions are."""
        return None

    @property
    def offered(self) -> tuple[int, ...]:
        """Indices of the actions that are valid now, or of all actions if `admissible` is None or empty."""
        return self.admissible or tuple(range(len(self.actions)))

    def fields(self) -> Mapping[str, str]:
        """Return additional fields for prompt templates, besides text and actions: placeholder -> text."""
        return {}

    @property
    def drawing(self) -> Drawing | None:
        """A picture of what the agent sees; None if it sees the whole world, or if the view has no picture."""
        return None

    def line(self, action: str) -> str:
        """Return a one-line summary of this moment for a list of earlier steps, including the action that was taken
        next.
        """
        return f"{self.text} -> {action}"

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return plain values that identify the prompt in the journal of model calls, for agents without prompt texts.

        Args:
            history: the earlier steps that the agent is shown, see `goalscope.agents.Past`.
        """
        return [self.text, [[past.view.text, past.action, past.text, past.reasoning] for past in history]]


class Session(ABC):
    """One episode of a world; each action moves it one step forward."""

    @property
    @abstractmethod
    def view(self) -> View:
        """What the agent may see now."""

    @property
    @abstractmethod
    def state(self) -> State:
        """The current true state."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the episode is over, whether solved or not."""

    @property
    @abstractmethod
    def solved(self) -> bool:
        """Whether the agent has reached the goal."""

    @property
    def reward(self) -> float | None:
        """The reward for the last action; None in worlds without rewards."""
        return None

    @abstractmethod
    def step(self, action: int | None) -> None:
        """Take an action; None stands for a turn without a valid action."""


class Oracle(Protocol):
    """The exact optimal policy of a world.

    An oracle may also have ``expected_steps``, the mean number of steps of an optimal agent. In stochastic worlds, and
    where episodes begin in several states, a study whose horizon is a multiple of ``length`` uses it instead.
    """

    @property
    def length(self) -> int:
        """Minimum number of actions from the start to the goal, -1 if the goal cannot be reached."""
        ...

    def look_up(self, states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the optimal actions ``[N, A]`` in N states, and the fewest actions to the goal ``[N]`` (-1: none)."""
        ...


@runtime_checkable
class TimedOracle(Oracle, Protocol):
    """The exact optimal policy of a stochastic world, whose optimal actions depend on the number of actions left."""

    def look_up_left(self, states: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return the optimal actions ``[N, A]`` in N states with ``[N]`` actions left, the current action included."""
        ...


class _Reads:
    """Attributes that only grid worlds have; reading them from another world raises an AttributeError."""

    if TYPE_CHECKING:
        grid: Grid
    fog_radius: int | None = None

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property whose code raised an AttributeError: raise that one, not another
            return object.__getattribute__(self, name)
        if name == "grid":
            raise AttributeError(
                f"this needs a world with a grid, got a {type(self).__name__}, which has none: use worlds of kind grid"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(frozen=True, kw_only=True)
class World(_Reads, ABC):
    """A world in which agents act, such as a grid, with its metadata; the base class of every kind of world.

    Attributes:
        cluster: id shared by all versions of one world (mirrored, rotated, controls), which intervals count as one; by
            default the world's own id.
        tags: name -> value, by which results are grouped: size, density, layout, transform, index, ...
        kind: name under which the settings of this kind are registered (see `goalscope.runs.world_kind`), and by which
            stored worlds are restored.
        view: class of the views of its sessions; an agent declares the class that it needs.
        offers: optional features of the kind, see `Offer`. Other code asks for these and never for the class of a
            world.
        recorded_as: what runs record in place of a state, such as "the number of a state in a table"; "" if runs record
            the state itself. Only `restore_state` converts a recorded value back to a state.
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
            rng: the episode's only source of randomness, a stream of random numbers named after world and episode.
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
        """Return plain values that determine the world completely; the world's id is their hash."""

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Rebuild the world from the values of `to_plain`, which may be untrusted.

        Raises:
            ValueError: the values do not describe a world of this kind.
        """

    @property
    def horizon(self) -> int | None:
        """Maximum number of actions per episode; None if the study sets it."""
        return None

    def planned(self, horizon: int) -> int:
        """Return how many actions ahead an agent that knows the world plans, if episodes end after ``horizon``."""
        return horizon

    @property
    def shared_examples(self) -> str:
        """Id that selects the examples in the prompts, so that worlds can share them; "" to select them by episode."""
        return ""

    @property
    def earlier(self) -> Sequence[tuple[View, int | None]]:
        """The turns before an episode begins here: pairs of a view and the action taken (None: no valid move)."""
        return ()

    def described(self) -> dict[str, Any]:
        """Return the plain values whose hash is the world's id."""
        return {"kind": self.kind, "world": self.to_plain()}

    @cached_property
    def id(self) -> str:
        """Content id: a hash of everything that determines the world."""
        return content_id("world", self.described())

    @property
    def cluster_id(self) -> str:
        """The cluster to which this world belongs when intervals are computed: `cluster`, or the world's own id."""
        return self.cluster or self.id

    @property
    def stored(self) -> str:
        """The world as one text for storage: its kind and plain values; grids and task maps have a shorter form."""
        return canonical_json(self.described())

    def action(self, index: int) -> int:
        """Return the action with a given index, in the form that steps store.

        Raises:
            ValueError: the index is not a whole number >= 0.
        """
        return check_whole("the index of an action", index, 0)

    def check_state(self, state: Any) -> State:
        """Check a stored state, and return it in the form that sessions use.

        Raises:
            ValueError: the value is not a state of this world.
        """
        if not isinstance(state, list | tuple) or not all(type(number) is int for number in state):
            raise ValueError(f"a state must be a list of whole numbers, got {state!r}")
        return tuple(state)

    def restore_state(self, recorded: State) -> Any:
        """Convert a recorded state back to the form that the world's author uses for states.

        Args:
            recorded: the state as sessions have it and runs store it.

        Raises:
            ValueError: the state cannot be recovered from the record.
        """
        return recorded

    def oracle(self) -> Oracle | None:
        """Return the exact optimal policy, or None if it is unknown; `worlds.planning` computes that of grids."""
        return None

    def drawing(self, state: State) -> Drawing | None:
        """Return a picture of the world in a given state; without one (None), viewers show the text of the view."""
        return None

    def process(self) -> Any:
        """Return the world's `goalscope.worlds.planning.process.Process`, or None if it is unknown."""
        return None


@dataclass(frozen=True, kw_only=True)
class StoredWorld(World):
    """A stored world of an unregistered kind: it can be displayed and counted, but not run.

    Attributes:
        name: its kind.
        plain: its plain values.
    """

    name: str
    plain: Any
    kind: ClassVar[str] = ""
    view: ClassVar[Any] = View

    def described(self) -> dict[str, Any]:
        """Return the values as they were stored."""
        return {"kind": self.name, "world": self.plain}

    def begin(self, rng: np.random.Generator) -> Session:
        """Raise a ValueError: a world of an unknown kind cannot be run."""
        raise ValueError(
            f"worlds of kind {self.name!r} cannot be run, since no installed package registers this kind: install the "
            "package that defines it"
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the plain values as they were stored."""
        plain: dict[str, Any] = self.plain
        return plain

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Rebuild the world from its kind and plain values."""
        return cls(name=plain["kind"], plain=plain["world"], cluster=cluster, tags=tags or {})


class WorldSettings(Protocol):
    """Interface of the settings of a kind of worlds: one entry of the list ``worlds`` in a study."""

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[World]:
        """Yield the worlds of this entry, all different.

        Args:
            seed: root seed of the study.
            path: location of the entry in the study, for messages.
            taken: ids of the worlds of earlier entries, so that kinds that draw at random can redraw duplicates.
        """
        ...


def read_plain(plain: Any, what: str, **kinds: Any) -> dict[str, Any]:
    """Check the plain values of a world, which may be untrusted, and return them.

    Args:
        plain: the values.
        what: noun for the world, for messages.
        **kinds: key -> expected type of its value.

    Raises:
        ValueError: keys are missing or unknown, or a value has the wrong type.
    """
    if not isinstance(plain, Mapping) or set(plain) != set(kinds):
        raise ValueError(f"{what} must have exactly the keys {', '.join(kinds)}, got {plain!r:.200}")
    for name, kind in kinds.items():
        if not isinstance(plain[name], kind) or (isinstance(plain[name], bool) and kind is not bool):
            type_name = str(getattr(kind, "__name__", kind))
            raise ValueError(f"{name} of {what} must be of type {type_name}, got {plain[name]!r:.80}")
    return dict(plain)


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
