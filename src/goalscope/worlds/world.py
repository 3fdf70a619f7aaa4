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
    """Data for a picture of one moment of an episode: cells, a graph, or both.

    Worlds without a drawing are shown by the text of their view.

    Attributes:
        rows: one text per row of cells, with one symbol per cell: ``#`` wall, ``_`` open, ``*`` hidden, ``G`` goal,
            ``K`` key, ``D`` door, as in `goalscope.worlds.grid`; any other symbol is shown unchanged.
        agent: cell of the agent, (row, col); None if the picture shows no agent.
        labels: names written on cells, each (row, col, name).
        nodes: names of the graph's nodes, each with a word for its state ("" for no word).
        edges: arrows of the graph, each (from, to).

    Raises:
        ValueError: if the rows differ in length, the agent or a label lies outside of them, or an edge joins unknown
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
    """Everything that an agent may see of its world at one moment; immutable.

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
        """Return what prompt templates can insert besides text and actions: name of the placeholder -> text."""
        return {}

    @property
    def drawing(self) -> Drawing | None:
        """A picture of what the agent sees; None if it sees the whole world, or if the view has no picture."""
        return None

    def line(self, action: str) -> str:
        """Return one line that shows this moment and the action taken next, for the list of earlier steps in a
        prompt.
        """
        return f"{self.text} -> {action}"

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return what the agent is shown, with the steps of its ``history``, as JSON values that identify the call
        of a model.
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
        """The true state of the world now, as whole numbers, in the form in which runs record it."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the episode is over, with or without success."""

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
        """Take an action, given by its index; None stands for a turn without a valid action."""


class Oracle(Protocol):
    """The exact solution of a world: its optimal actions, and the length of its shortest path.

    An oracle may also have ``expected_steps``, the mean number of steps of an optimal agent. In stochastic worlds, and
    where episodes begin in several states, it replaces ``length`` in horizons that are multiples of the shortest path.
    """

    @property
    def length(self) -> int:
        """Minimum number of actions from the start to the goal, -1 if the goal cannot be reached."""
        ...

    def look_up(self, states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the optimal actions ``[N, A]`` in N states, and the fewest actions to the goal ``[N]`` (-1: no
        path).
        """
        ...


@runtime_checkable
class TimedOracle(Oracle, Protocol):
    """The exact optimal policy of a stochastic world, whose optimal actions depend on the number of actions left."""

    def look_up_left(self, states: npt.NDArray[np.int64], left: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the A actions are optimal in N states, as a mask ``[N, A]``.

        Args:
            states: ``[N, D]`` the states as a run records them.
            left: ``[N]`` number of actions left in each state, the current one included.
        """
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
    """A world in which agents act, such as a grid; the base class of every kind of world.

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
        """Begin an episode, and return its session; ``rng`` is the only source of random numbers in the episode."""

    @property
    def goal_noun(self) -> str:
        """The goal of the world as a noun phrase for sentences, with the name that its author gave it."""
        return "the goal"

    def begin_episode(self, seed: int, episode_id: str) -> Session:
        """Begin the episode with this id in a study with this root seed; the two determine its random numbers."""
        return self.begin(stream(seed, "world", self.id, episode_id))

    @abstractmethod
    def to_plain(self) -> dict[str, Any]:
        """Return values that JSON can hold and that determine the world completely; the world's id is their hash."""

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values of `to_plain`, which may come from a stranger.

        Raises:
            ValueError: if the values do not describe a world of this kind.
        """

    @property
    def horizon(self) -> int | None:
        """Maximum number of actions per episode; None if the study sets it."""
        return None

    def planned(self, horizon: int) -> int:
        """Return for how many actions an agent that knows the world plans ahead: by default all ``horizon`` of them."""
        return horizon

    @property
    def shared_examples(self) -> str:
        """Id by which worlds share the examples in their prompts; "" if each episode has examples of its own."""
        return ""

    @property
    def earlier(self) -> Sequence[tuple[View, int | None]]:
        """The turns that came before the first state of this world: pairs of a view and the action taken (None: no
        valid move).
        """
        return ()

    def described(self) -> dict[str, Any]:
        """Return what determines the world, as values that JSON can hold; the world's id is a hash of them."""
        return {"kind": self.kind, "world": self.to_plain()}

    @cached_property
    def id(self) -> str:
        """Content id of the world: a hash of everything that determines it, so that equal worlds have equal ids."""
        return content_id("world", self.described())

    @property
    def cluster_id(self) -> str:
        """Id of the group of related worlds that intervals count as one unit: `cluster`, else the world's own id."""
        return self.cluster or self.id

    @property
    def stored(self) -> str:
        """The world as one text for storage: JSON of its kind and values; grids and task maps have a shorter form."""
        return canonical_json(self.described())

    def action(self, index: int) -> int:
        """Convert the index of an action to the form in which runs store actions.

        Raises:
            ValueError: if the index is not a whole number >= 0.
        """
        return check_whole("the index of an action", index, 0)

    def check_state(self, state: Any) -> State:
        """Check a state that was read from a file, and return it in the form that sessions use.

        Raises:
            ValueError: if the value is not a state of this world.
        """
        if not isinstance(state, list | tuple) or not all(type(number) is int for number in state):
            raise ValueError(f"a state must be a list of whole numbers, got {state!r}")
        return tuple(state)

    def restore_state(self, recorded: State) -> Any:
        """Convert a state that a run recorded to the form that the world's author uses for states.

        Raises:
            ValueError: if the state cannot be recovered from the record.
        """
        return recorded

    def oracle(self) -> Oracle | None:
        """Return the exact optimal policy, or None if it is unknown. For grids, `worlds.planning` computes it."""
        return None

    def drawing(self, state: State) -> Drawing | None:
        """Return the data for a picture of the world in a state; None if there is no picture, so that viewers show
        text.
        """
        return None

    def process(self) -> Any:
        """Return the transitions as a `goalscope.worlds.planning.process.Process`, or None if they are unknown."""
        return None


@dataclass(frozen=True, kw_only=True)
class StoredWorld(World):
    """A world read from a run whose kind no installed package registers: it can be displayed and counted, but not
    played.

    Attributes:
        name: name of the kind.
        plain: the values that describe the world, as they were stored.
    """

    name: str
    plain: Any
    kind: ClassVar[str] = ""
    view: ClassVar[Any] = View

    def described(self) -> dict[str, Any]:
        """Return the kind and the values of the world as they were stored; their hash is the world's id."""
        return {"kind": self.name, "world": self.plain}

    def begin(self, rng: np.random.Generator) -> Session:
        """Raise a ValueError: a world of an unknown kind cannot be run."""
        raise ValueError(
            f"worlds of kind {self.name!r} cannot be run, since no installed package registers this kind: install the "
            "package that defines it"
        )

    def to_plain(self) -> dict[str, Any]:
        """Return the values that describe the world, as they were stored."""
        plain: dict[str, Any] = self.plain
        return plain

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from a mapping with its kind and the values that describe it.

        Args:
            plain: the mapping, with the keys "kind" and "world".
            cluster: id of the world that intervals count as one independent unit.
            tags: named facts about the world, which reports group by.
        """
        return cls(name=plain["kind"], plain=plain["world"], cluster=cluster, tags=tags or {})


class WorldSettings(Protocol):
    """Interface of one entry of the list ``worlds`` in a study, which contains the settings of one kind of worlds."""

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[World]:
        """Yield the worlds that this entry of a study describes, all different.

        Args:
            seed: root seed of the study.
            path: location of the entry in the study, for messages.
            taken: ids of the worlds of earlier entries, so that kinds that draw at random can redraw duplicates.
        """
        ...


def read_plain(plain: Any, what: str, **kinds: Any) -> dict[str, Any]:
    """Check the values that describe a stored world and may come from a stranger, and return them as a dictionary.

    Args:
        plain: the values; they must be a mapping with exactly the expected keys.
        what: noun for the world, for messages.
        **kinds: key -> expected type of its value.

    Raises:
        ValueError: if keys are missing or unknown, or a value has the wrong type.
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
    """One moment of an episode that another program recorded; the observation is not known.

    Attributes:
        number: number of actions taken so far.
        names: names of all actions.
    """

    shows: ClassVar[str] = "a recorded episode"
    number: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """A sentence that says that this is a record, with the number of actions taken so far."""
        return f"(a recorded episode, after {self.number} actions; what was shown is in its log)"

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return self.names


class RecordedSession(Session):
    """An episode that another program recorded, replayed action by action.

    Args:
        names: names of all actions.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names, self._turns = names, 0

    @property
    def view(self) -> RecordedView:
        """What is known of the present moment: the number of actions taken so far, and the names of all actions."""
        return RecordedView(number=self._turns, names=self._names)

    @property
    def state(self) -> State:
        """The number of actions taken so far, in place of the true state, which is not known."""
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
        """Count one more action; the record does not say what it changes."""
        self._turns += 1


@dataclass(frozen=True, kw_only=True)
class RecordedWorld(World):
    """An environment of another program, known only from recorded episodes; its rules and optimal policy are unknown.

    Attributes:
        source: name of the recorded task.
        sample: name of the task's sample.
        names: names of all actions.
        cluster: id of the group of related worlds that intervals count as one unit, see `World`.
        tags: named facts about the world, by which results are grouped, see `World`.

    Raises:
        ValueError: if there is no action, or two actions have the same name.
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
        """Begin to replay a recorded episode, and return its session; ``rng`` is not used."""
        return RecordedSession(self.names)

    def to_plain(self) -> dict[str, Any]:
        """Return the names of the task, the sample and the actions, as values that JSON can hold."""
        return {"source": self.source, "sample": self.sample, "actions": list(self.names)}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values that `to_plain` stored.

        Args:
            plain: the stored values.
            cluster: id of the world that intervals count as one independent unit.
            tags: named facts about the world, which reports group by.

        Raises:
            ValueError: if the values have another form.
        """
        values = read_plain(plain, "a recorded world", source=str, sample=str, actions=list)
        if not all(isinstance(name, str) for name in values["actions"]):
            raise ValueError(f"the actions of a recorded world must be a list of texts, got {plain!r:.200}")
        names = tuple(values["actions"])
        return cls(source=values["source"], sample=values["sample"], names=names, cluster=cluster, tags=tags or {})
