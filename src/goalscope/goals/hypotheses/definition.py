"""Hypotheses as objects: a goal that an agent may pursue, and the exact policy that follows from it in a finite world.

Each hypothesis defines a policy over the states of a world's `Process`. For a place or an event it is uniform over the
optimal actions, found by breadth-first search in the process; M denotes the states in which the hypothesis holds:

    d(s)   = fewest steps from s into M
    A*(s)  = {a : d(s') = d(s) - 1} outside of M
    A*(s)  = {a : s' in M} inside of M, or {a : d(s') = 1} if that is empty: stay, or leave and return at once

The world's own goal ends the episode under every hypothesis: its states are absorbing, so no path leads through them.
Where no action helps (M is out of reach, or the episode is over), all offered actions are equally likely and the
hypothesis makes no prediction. In stochastic worlds and for utilities, value iteration gives the optimal actions of
each decision.

Intermediate steps are events that every agent must reach on the way to a goal, such as the key before a door. An event
k is a step of h in a world if h is reachable, but becomes unreachable when the states of k that are not states
of h are removed; one reachability search decides this. A step is not an ordinary rival of its goal, because an agent
that pursues h also does everything that an agent pursuing k does. As a rival of h, k therefore means "k, then
anything", and the behaviour after reaching k decides.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.checks import check_shape, freeze, refuse_where
from goalscope._ground.distributions import to_array, to_distributions
from goalscope._ground.rng import stream
from goalscope._ground.untrusted import shorten
from goalscope._ground.words import listed
from goalscope.agents.agent import Observation
from goalscope.goals.meg import KnownMEG, meg_known
from goalscope.worlds.dynamics import configurations, phases, seen_state, shown, state_number, state_with
from goalscope.worlds.environments.world import EnvironmentView
from goalscope.worlds.grid import DELTAS, Grid, Position
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.planning.mdp import utility_range, value_iteration
from goalscope.worlds.planning.process import Process, grid_process, process_of, process_of_map
from goalscope.worlds.planning.shortest import fewest_steps
from goalscope.worlds.tasks.taskmap import Cell, TaskMap
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View, World

AnyWorld = TypeVar("AnyWorld", bound=World)


Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Key = TypeVar("Key")
Kind = Literal["place", "event", "utility", "policy", "table", "condition"]
"""Kind of a hypothesis: what its function returns, see `hypothesis`."""
MOST: Final = 20_000_000
"""Maximum size (decisions x states x actions) of a time-dependent policy."""
FIELD: Final = re.compile(r"\{(\w*)\}")
"""Pattern of a placeholder in a form."""
_ALIKE: Final = 1e-9
"""Two expected utilities count as equal if they differ by less than this share of the greatest possible utility."""
FAR: Final = np.iinfo(np.int64).max // 2
"""Distance of a state from which the target cannot be reached."""


@dataclass(frozen=True, slots=True)
class ById(Generic[AnyWorld]):
    """A world together with its id, for use as a key of caches.

    Two values are equal if the ids are equal, so that the worlds themselves are not compared.
    """

    id: str
    world: AnyWorld = field(compare=False)


class Undefined(ValueError):  # noqa: N818 - callers catch it by this name
    """Raised if a hypothesis is undefined in a world, or if a method does not apply; the message is the reason."""


def view_of(world: World, state: int) -> View:
    """Return what an agent would see in a state of a world.

    Args:
        world: a grid or an environment whose views show the whole state.
        state: number of the state in the world's decision process.

    Raises:
        Undefined: in this kind of world, the view depends on more than the state, or cannot be computed from it.
    """
    if "seen state" not in world.offers:
        raise Undefined(f"in a world of kind {world.kind}, the view depends on more than the state")
    if "environment" in world.offers:
        believed = world.believed
        offered = believed.table.offered[state]
        return EnvironmentView(
            observed=believed.environment.observe(believed.table.states[state]),
            names=believed.table.actions,
            possible=None if offered.all() else tuple(np.flatnonzero(offered).tolist()),
            number=state,
        )
    if "grid" not in world.offers:
        raise Undefined(f"a world of kind {world.kind} cannot compute the view of a state")
    phase, cell = divmod(state, world.grid.walls.size)
    at = state_with(configurations(world.grid)[phase], divmod(cell, world.grid.width))
    return GridView(grid=shown(world.grid, at))


def action_names(world: World) -> tuple[str, ...]:
    """Return the names of the actions of a world, in the order of their numbers."""
    if "environment" in world.offers:
        names: tuple[str, ...] = world.believed.table.actions
        return names
    return GridView.actions if "cells" in world.offers else world.begin(stream(0, "names of actions")).view.actions


def number_of(observation: Observation) -> int:
    """Return the number of the state that an agent sees, in the decision process of its world.

    Args:
        observation: what the agent sees, with its world. Views of worlds from other packages must provide the number as
            an attribute ``number``.

    Raises:
        ValueError: the view does not determine the state.
    """
    view, world = observation.view, observation.world
    if isinstance(view, GridView) and view.grid.start is not None and world is not None:
        return state_number(world.grid, seen_state(world.grid, view.grid))
    if isinstance(view, TaskView) and world is not None and view.memory.position is not None:
        names = world.task_map.board.names
        achieved = sum(1 << names.index(name) for name in view.memory.achieved)
        return _map_numbers(world.task_map)[view.memory.position, achieved]
    number = getattr(view, "number", None)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    raise ValueError(
        f"this agent needs views that determine the state of the world's process, got a view of {view.shows}: choose "
        "another agent, or give such views an attribute `number`, the number of the state in World.process()"
    )


@lru_cache(maxsize=64)
def _map_numbers(task_map: TaskMap) -> Mapping[tuple[Cell, int], int]:
    """Map each pair (cell, achieved nodes as bits of an integer) to the number of this state of the task map."""
    states = process_of_map(task_map).states
    return {(task_map.board.cell(index), achieved): number for number, (index, achieved) in enumerate(states)}


PARTS: Final = (
    *("hypothesis", "place", "event", "condition", "places", "terms", "whole", "offset", "corner", "sides", "cells"),
    *("source", "object", "thing", "happening", "name"),
)
"""Placeholders that a form may contain; `goalscope.goals.hypotheses.written` documents how each is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A way to write a hypothesis, such as ``mirror of {place}``, with the function that defines what it means.

    The fields are the arguments of `hypothesis`, which registers forms.
    """

    kind: Kind
    function: Callable[..., Any]
    says: str = ""


def hypothesis(form: str, *, kind: Kind, says: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that registers a function as a hypothesis with a written form, such as ``mirror of {place}``.

    Args:
        form: words and placeholders in braces; see `goalscope.goals.hypotheses.written` for the placeholders.
        kind: what the function returns. It receives a `FiniteWorld` of S states and A actions, then the value of each
            placeholder, and raises `Undefined` if the hypothesis is undefined in the world:
            "place": the cell (row, column) to reach;
            "event": ``[S]`` bool, the states in which it holds;
            "utility": ``[S]``, ``[S, A]`` or ``[S, A, S]`` utility of a decision;
            "table": ``[S, A]`` action probabilities, or ``[n, S, A]`` by decision;
            "policy": ``[A]`` action probabilities; receives a `View` in place of the world;
            "condition": ``[S]`` bool; receives the world, the hypothesis it qualifies, then the placeholders.
        says: noun phrase for sentences with {} for each placeholder, such as ``the cell beside {}``; if empty, the
            written form in quotation marks is used.

    Raises:
        ValueError: the kind or a placeholder is unknown, or the form is already registered.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"the kind of a hypothesis must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    if unknown := [name for name in FIELD.findall(form) if name not in PARTS]:
        raise ValueError(f"placeholders of the form {form!r} must be among {', '.join(PARTS)}, got {unknown[0]!r}")

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        gives = partial(of_views, function) if kind == "policy" else function
        registry.register("hypothesis", form, made_of=function)(Form(kind=kind, function=gives, says=says))
        return function

    return add


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteWorld:
    """A world with its decision process of S states and A actions, and the number of decisions per episode.

    Attributes:
        world: the world.
        process: its decision process, or that of ``believed`` if given.
        horizon: number of decisions per episode.
        believed: grid that replaces the world's own, such as the map an agent believes in; None for the world itself.
        twin_key: if this world is a control (a grid whose key and door were removed), the cell of the key in the
            original grid; otherwise None.
    """

    world: World
    process: Process
    horizon: int
    believed: Grid | None = None
    twin_key: Position | None = None

    @cached_property
    def grid(self) -> Grid:
        """The grid of the world, or the grid that the agent believes in if one is given.

        Raises:
            Undefined: the world is not a grid.
        """
        if self.believed is not None:
            return self.believed
        if "grid" not in self.world.offers:
            raise Undefined(f"a place needs a grid, but this world is of kind {self.world.kind}")
        return self.world.grid

    def on_map(self, grid: Grid) -> "FiniteWorld":
        """Return this world with another grid in place of its own, such as the map that an agent believes in.

        Raises:
            ValueError: the grid has another shape, or lacks an agent or a goal.
        """
        if grid.walls.shape != self.grid.walls.shape or grid.start is None or grid.goal is None:
            raise ValueError(
                f"a believed grid must have the shape {list(self.grid.walls.shape)} of its world {self.world.id} and "
                f"show an agent and a goal, got {list(grid.walls.shape)}:\n{grid}"
            )
        return FiniteWorld(world=self.world, process=grid_process(grid), horizon=self.horizon, believed=grid)

    @cached_property
    def flags(self) -> Numbers:
        """``[S]`` what was done before each state of a grid, as bits: 1 if the key is held, 2 if the door is open.

        Higher bits say where the other things of the grid are, see `goalscope.worlds.State`.
        """
        return np.repeat(configurations(self.grid), self.grid.walls.size)

    @cached_property
    def even(self) -> Array:
        """``[S, A]`` (states by actions) policy that takes all offered actions with equal probability."""
        shape, offered = (self.process.states, self.process.actions), self.process.offered
        weights = np.ones(shape) if offered is None else offered.astype(np.float64)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @cached_property
    def live(self) -> Mask:
        """``[S]`` bool: the states in which some action changes the state. In all other states the episode is over."""
        if not self.process.chance:
            return np.asarray(self.changing.any(axis=1))
        matrix = self.process.transitions.tocoo()
        state = matrix.row // self.process.actions
        return np.isin(np.arange(self.process.states), state[(state != matrix.col) & (matrix.data > 0)])

    @cached_property
    def changing(self) -> Mask:
        """``[S, A]`` bool: in each state, the actions that change the state.

        Raises:
            Undefined: the world is stochastic, so that an action has no single result.
        """
        if self.process.chance:
            raise Undefined("in a stochastic world, whether an action changes the state depends on chance")
        return np.asarray(self.process.transitions != np.arange(self.process.states)[:, None])

    @cached_property
    def reached(self) -> Mask:
        """``[S]`` bool: the states that can be reached from the start, including those that end the episode."""
        return self.reached_without(np.zeros(self.process.states, dtype=bool))

    def reached_without(self, blocked: Mask) -> Mask:
        """Return the states that can be reached from the start without entering a blocked state, ``[S]`` bool.

        Args:
            blocked: ``[S]`` bool, the states that must not be entered.
        """
        seen, after = np.zeros(self.process.states, dtype=bool), (self.process.start > 0) & ~blocked
        while not (after == seen).all():
            seen = after
            after = (seen | (self.process.base.flow(np.where(seen[:, None], self.even, 0.0)) > 0)) & ~blocked
        return seen

    def at(self, cell: Position) -> Mask:
        """Return the states in which the agent stands at a cell of the grid, ``[S]`` bool."""
        return np.asarray(np.arange(self.process.states) % self.grid.walls.size == cell[0] * self.grid.width + cell[1])

    def further(self, cell: Position) -> Array:
        """Return for each state how many rows and columns a given cell is away from the agent's cell, ``[S, 2]``.

        Rows count downwards and columns to the right, so (-1, 0) means that the cell is directly above the agent.
        """
        cells = np.stack(np.unravel_index(np.arange(self.grid.walls.size), self.grid.walls.shape), axis=1)
        return np.tile(np.array(cell) - cells, (phases(self.grid), 1)).astype(np.float64)

    @cached_property
    def cell_steps(self) -> Numbers:
        """``[H, W]`` (rows by columns) steps on the shortest path from the start to each cell; `FAR` if none."""
        states, moves = self.process.transitions.shape
        steps = fewest_steps(  # against the direction of the moves
            self.process.start > 0, self.process.transitions.reshape(-1), np.repeat(np.arange(states), moves)
        )
        return np.asarray(np.where(steps < 0, FAR, steps).reshape(-1, *self.grid.walls.shape).min(axis=0))

    def entering(self, cell: Position) -> Mask:
        """Return the moves by which an episode can enter a cell (row, col) of a grid, ``[S, A]`` bool, state by action.

        An object there, such as a conveyor, may move the agent on at once, so that it never stands on the cell.
        """
        moves: Mask = (self.further(cell)[:, None] == DELTAS).all(axis=2)
        return moves & self.changing & self.reached[:, None]

    def targets(self, aim: "Hypothesis") -> Mask:
        """Return the states in which a place or an event holds, ``[S]`` bool, as `Hypothesis.where` does.

        If the agent can enter a place but never stands there, because an object such as a conveyor always moves it on,
        return in place of states the moves that enter it, ``[S, A]`` bool, states by actions.
        """
        states = aim.where(self)
        if aim.kind != "place" or self.process.goals.get(aim.text) is not None or not self.grid.things:
            return states
        moves = states if (states & self.reached).any() else self.entering(aim.cell(self))
        return moves if moves.any() else states

    def steps_to(self, targets: Mask) -> Numbers:
        """Return the minimum number of steps from each state to a target state, or through a target move, ``[S]``.

        Args:
            targets: ``[S]`` mask of the target states, or ``[S, A]`` mask of the target moves. The distance is `FAR`
                where they cannot be reached.

        Raises:
            Undefined: the world is stochastic.
        """
        if self.process.chance:
            raise Undefined("distances are not defined where actions have several outcomes")
        if targets.ndim > 1:
            return np.minimum(self.steps_to(np.asarray(targets.any(axis=1))) + 1, FAR)
        steps, near, level = np.where(targets, 0, FAR), targets, 0
        while near.any():
            level += 1
            near = near[self.process.transitions].any(axis=1) & (steps == FAR)
            steps[near] = level
        return steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """The policy and the utility that a hypothesis implies in one world.

    Attributes:
        policy: ``[1, S, A]`` probability of each action in each state, or ``[n, S, A]`` if it differs between the n
            decisions of an episode.
        utility: ``[S]``, ``[S, A]`` or ``[S, A, S]`` utility of one decision, by state, action and next state; None for
            a hypothesis that is only a policy.
    """

    policy: Array
    utility: Array | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A goal or rule that an agent may follow: a form such as "corner top-right", or a function (`Hypothesis.of`).

    Attributes:
        form: the registered form, such as "corner {corner}"; for a function, its name.
        parts: values of the placeholders in the form: hypotheses, tuples of hypotheses, numbers and words.
        text: the written form, which `goalscope.goals.hypotheses.parse` reads; for a function, its name.
        own: the function and its kind; None for a registered form.
        name: the user's name for it, by default the written form. Hypotheses that differ only in their name are equal.
    """

    form: str
    parts: tuple[Any, ...]
    text: str
    own: Form | None = field(default=None, repr=False)
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.text)

    @classmethod
    def of(cls, kind: Kind, function: Callable[..., Any], name: str) -> "Hypothesis":
        """Create a hypothesis from a Python function.

        Such a hypothesis has no written form, so it cannot be saved to a file or frozen in a claim.

        Args:
            kind: what the function returns, see `hypothesis`; every kind except "condition".
            function: takes a `FiniteWorld` (a `View` for kind "policy"), and raises `Undefined` in a world where the
                hypothesis is undefined.
            name: name in sentences and tables.

        Raises:
            ValueError: the kind is unknown or "condition", or the name is not a single printable line.
        """
        kinds = tuple(choice for choice in get_args(Kind) if choice != "condition")
        if kind not in kinds:
            raise ValueError(f"the kind of a hypothesis must be one of {', '.join(kinds)}, got {kind!r}")
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ValueError(f"the name of a hypothesis must be one line of printable characters, got {shorten(name)}")
        gives = partial(of_views, function) if kind == "policy" else function
        return cls(form=name, parts=(), text=name, own=Form(kind="table" if kind == "policy" else kind, function=gives))

    @property
    def registered(self) -> Form:
        """The function that defines the hypothesis: a registered one, or the user's own (`Hypothesis.of`)."""
        form: Form = registry.resolve("hypothesis", self.form) if self.own is None else self.own
        return form

    @property
    def kind(self) -> Kind:
        """ "place", "event", "utility", "condition", or "table" and "policy" for action probabilities."""
        return self.registered.kind

    @property
    def says(self) -> str:
        """Noun phrase, such as "the top-left corner"; policies and names from users or worlds are quoted."""
        template = self.registered.says
        if self.name != self.text or not template:
            return f"“{self.name}”"
        return template.format(*map(_phrase, self.parts))

    def value(self, *arguments: Any) -> Any:
        """Call the function that defines the hypothesis, and return its result.

        The `FiniteWorld` (or `View`) comes first; for a condition, the hypothesis that it qualifies follows.
        """
        returned = self.registered.function(*arguments, *self.parts)
        if self.kind != "place":
            return returned
        cell = np.asarray(returned)
        if cell.shape != (2,) or not np.issubdtype(cell.dtype, np.integer):
            raise ValueError(f"{self.text} must return the row and column of a cell, got {shorten(cell.tolist())}")
        return int(cell[0]), int(cell[1])

    def cell(self, world: FiniteWorld) -> Position:
        """Return the cell (row, column) of a hypothesis of kind "place"; raise `Undefined` if it is not open."""
        cell: Position = self.value(world)
        if not (0 <= cell[0] < world.grid.height and 0 <= cell[1] < world.grid.width):
            raise Undefined(f"{self.text} lies outside of the {world.grid.height}x{world.grid.width} grid")
        if world.grid.walls[cell]:
            raise Undefined(f"{self.text} is a wall")
        return cell

    def where(self, world: FiniteWorld) -> Mask:
        """Return the states in which a place is reached or an event holds, ``[S]`` bool.

        A goal of the world with the same name takes precedence over a registered form.
        """
        if (named := self._named(world)) is not None:
            return np.asarray(named > 0)
        if self.kind not in ("place", "event"):
            raise Undefined(f"{self.text} is neither a place nor an event")
        if self.kind == "place":
            return world.at(self.cell(world))
        holds = np.asarray(self.value(world))
        if holds.dtype != bool:
            raise ValueError(f"{self.text} must return True or False for each state, got {holds.dtype}")
        check_shape(self.text, holds, "S", {"S": world.process.states})
        return holds

    def utility(self, world: FiniteWorld) -> Array:
        """Return the utility of each decision in a world, without solving for a policy.

        Places and events pay 1 in each of their states, ``[S]`` (or for moves, see `FiniteWorld.targets`). A goal that
        the world names may pay other numbers, such as the count of achieved sub-goals. A utility has shape ``[S]``,
        ``[S, A]`` or ``[S, A, S]``.

        A place or event that no policy reaches, such as a corner behind the goal, still has a utility; estimates count
        such a world as out of reach. It has no policy, so `solved` raises `Undefined` (see `check_reached`).

        Raises:
            Undefined: the hypothesis is undefined in the world, or it is a policy, which has no utility.
        """
        if (named := self._named(world)) is not None:
            return np.asarray(named, dtype=np.float64)
        if self.kind in ("place", "event"):
            return world.targets(self).astype(np.float64)
        if self.kind != "utility":
            raise Undefined(f"{self.text} is a {self.kind} without a utility")
        paid = _numbers(self.text, self.value(world))
        shape = "S A S"[: 2 * paid.ndim - 1] if 1 <= paid.ndim <= 3 else "S A S"
        check_shape(self.text, paid, shape, {"S": world.process.states, "A": world.process.actions})
        return paid

    def _named(self, world: FiniteWorld) -> npt.NDArray[Any] | None:
        """Return the values ``[S]`` of the world's own goal with the name of this hypothesis, or None if there is none.

        A world may define goals by name. Such a goal replaces a registered hypothesis of the same name. It never
        replaces a function that the user passed.
        """
        if self.own is not None:
            return None
        return world.process.goals.get(self.parts[0] if self.form == "event {name}" else self.text)

    def solved(self, world: FiniteWorld) -> Solved:
        """Compute the policy and utility that the hypothesis implies in a world.

        Raises:
            Undefined: the hypothesis is undefined there.
        """
        named = self._named(world)
        if named is not None and ((named != 0) & (named != 1)).any():  # a count, such as achieved sub-goals
            return by_decision(world, self.utility(world))
        if named is not None or self.kind in ("place", "event"):
            return towards(world, world.targets(self), self.text)
        if self.kind == "utility":
            return by_decision(world, self.utility(world))
        table = _numbers(self.text, self.value(world))
        table = table[None] if table.ndim == 2 else table
        check_shape(self.text, table, "n S A", {"S": world.process.states, "A": world.process.actions})
        table = to_distributions(self.text, table)
        refuse_where((table > 0) & (world.even == 0), table, f"{self.text} must use only offered actions")
        return Solved(policy=freeze(np.where(world.live[:, None], table, world.even)))


def finite_world(world: World, horizon: int) -> FiniteWorld:
    """Return a world with its decision process and a horizon, as hypotheses and measures need it.

    Args:
        world: the world.
        horizon: number of decisions per episode.

    Raises:
        Undefined: the world has fog (optimal actions then depend on what was seen), or its process is not known.
    """
    if world.fog_radius is not None:
        raise Undefined("under fog the optimal actions depend on what was seen before")
    process = process_of(world)
    if process is None:
        raise Undefined(f"a world of kind {world.kind} has no known process")
    return FiniteWorld(world=world, process=process, horizon=horizon)


def place_of(hypothesis: Hypothesis) -> Hypothesis | None:
    """Return the place or event that a hypothesis refers to, as "corner top-right" for "flee corner top-right".

    A hypothesis that is a place or an event is returned itself. None if it refers to no place or event, or to several.
    """
    if hypothesis.kind in ("place", "event"):
        return hypothesis
    parts = [part for part in hypothesis.parts if isinstance(part, Hypothesis) and part.kind in ("place", "event")]
    return parts[0] if len(parts) == 1 else None


def solved_in(world: FiniteWorld, hypotheses: Mapping[Key, Hypothesis]) -> dict[Key, Solved]:
    """Compute the policies and utilities of several hypotheses in one world.

    Args:
        world: the world.
        hypotheses: any key -> hypothesis.

    Returns:
        Key -> solution, without the hypotheses that are undefined in this world.
    """
    solutions = dict[Key, Solved]()
    for key, hypothesis in hypotheses.items():
        with suppress(Undefined):
            solutions[key] = hypothesis.solved(world)
    return solutions


def place_states(world: FiniteWorld, places: Sequence[Hypothesis]) -> Mask:
    """Return the states in which each of K places is reached or events holds, ``[K, S]`` bool.

    The row of a place or event that is undefined in the world is False everywhere.
    """
    masks = np.zeros((len(places), world.process.states), dtype=bool)
    for number, place in enumerate(places):
        with suppress(Undefined):
            masks[number] = place.where(world)
    return masks


def policy_or_even(hypothesis: Hypothesis, world: FiniteWorld) -> Array:
    """Return the policy of a hypothesis in a world; where it is undefined, the uniform policy over the offered actions.

    The result is ``[n, S, A]`` (decisions by states by actions), with n = 1 if the policy does not depend on time.
    """
    try:
        return hypothesis.solved(world).policy
    except Undefined:
        return world.even[None]


def distributions(world: FiniteWorld, policy: Array) -> Iterator[Array]:
    """Yield the distribution over the S states before each decision of an episode, and after the last one.

    Args:
        world: the world, which has a start and a number of decisions.
        policy: ``[S, A]`` action probabilities in each state.

    Yields:
        ``[S]`` probabilities, one array more than there are decisions.
    """
    mass = world.process.start
    for _ in range(world.horizon):
        yield mass
        mass = world.process.base.flow(mass[:, None] * policy)
    yield mass


def check_reached(world: FiniteWorld, targets: Mask, description: str) -> None:
    """Raise an error if no policy reaches any of the target states from the start.

    A target behind the world's own goal counts as unreachable, because the goal ends the episode.

    Args:
        world: the world.
        targets: ``[S]`` bool, the target states; or ``[S, A]`` bool, the target moves.
        description: name of the targets in the error.

    Raises:
        Undefined: no target state can be reached.
    """
    if not (targets.T & world.reached).any():
        raise Undefined(f"{description} cannot be reached from the start; the world's own goal ends an episode")


def towards(world: FiniteWorld, targets: Mask, description: str) -> Solved:
    """Compute the optimal policy for reaching target states, each of which pays 1 per decision that begins in it.

    In place of states, certain moves can pay 1 each.

    Args:
        world: the world.
        targets: ``[S]`` bool, the target states; or ``[S, A]`` bool, states by actions, the target moves.
        description: name of the targets in the error.

    Returns:
        The policy, uniform over the optimal actions, and the utility: 1 for the targets, in their shape.

    Raises:
        Undefined: the targets cannot be reached from the start.
    """
    check_reached(world, targets, description)
    if world.process.chance:
        return by_decision(world, targets.astype(np.float64))
    steps = world.steps_to(targets)
    distance, beyond = steps[:, None], steps[world.process.transitions]
    stays, returns = (distance == 0) & (beyond == 0), (distance == 0) & (beyond == 1)
    staying = targets if targets.ndim > 1 else stays | (returns & ~stays.any(axis=1, keepdims=True))
    nearer = (beyond == distance - 1) & (distance > 0) & (distance < FAR)
    return Solved(policy=spread(world, nearer | staying)[None], utility=targets.astype(np.float64))


def by_decision(world: FiniteWorld, utility: Array) -> Solved:
    """Compute the optimal policy for a utility by value iteration over the horizon.

    Args:
        world: the world.
        utility: ``[S]``, ``[S, A]`` or ``[S, A, S]`` utility of one decision, by state, action and next state.

    Returns:
        The policy ``[n, S, A]``, one for each of n decisions, in which all optimal actions are equally likely; and the
        utility.

    Raises:
        Undefined: the policy would need more than `MOST` entries (decisions x states x actions).
    """
    if (size := world.horizon * world.process.states * world.process.actions) > MOST:
        raise Undefined(
            f"a time-dependent policy may have at most {MOST:,} entries (decisions x states x actions), this world "
            f"needs {size:,}: use a shorter horizon or a smaller world"
        )
    values = value_iteration(world.process.mdp(utility, world.horizon, terminal=None))
    best = np.where(world.live[:, None], values.optimal, world.even > 0)
    return Solved(policy=freeze(best / best.sum(axis=2, keepdims=True)), utility=utility)


def can_gain(world: FiniteWorld, utility: Array) -> bool:
    """Return whether any policy can change the expected utility of an episode, within the horizon.

    If all policies have the same utility, for example because a place is out of reach, the world says nothing about the
    hypothesis.

    Args:
        world: the world.
        utility: ``[S]``, ``[S, A]`` or ``[S, A, S]`` utility of one decision, by state, action and next state.
    """
    mdp = world.process.mdp(utility, world.horizon, terminal=None)
    low, high = utility_range(mdp)
    return high - low > _ALIKE * mdp.horizon * float(np.abs(mdp.reward).max())


def spread(world: FiniteWorld, sets: Mask) -> Array:
    """Return the policy that is uniform over a set of actions in each state, ``[S, A]``.

    Args:
        world: the world.
        sets: ``[S, A]`` bool, the actions in the set of each state. Where the set is empty or the episode is over, all
            offered actions are equally likely.
    """
    offered_sets = sets & (world.even > 0)
    count = np.where(world.live, offered_sets.sum(axis=1), 0)[:, None]
    return freeze(np.where(count > 0, offered_sets / np.maximum(count, 1), world.even))


def _phrase(part: Any) -> str:
    """Render the value of a placeholder for a noun phrase."""
    if isinstance(part, Hypothesis):
        return part.says
    if not isinstance(part, tuple):
        return str(part)
    if all(isinstance(item, Hypothesis) for item in part):
        return listed([item.says for item in part])
    if not all(isinstance(item, int) for item in part):
        return ""  # the cells of a phase, which its name stands for
    row, col = part  # an offset
    rows = f"{abs(row)} row{'s' * (abs(row) != 1)} {'above' if row < 0 else 'below'}" if row else ""
    side = "to the left of" if col < 0 else "to the right of"
    cols = f"{abs(col)} column{'s' * (abs(col) != 1)} {side}" if col else ""
    return " and ".join(filter(None, (rows, cols))) or "at"


def _numbers(name: str, value: Any) -> Array:
    return to_array(name, value, booleans=True).astype(np.float64)


def of_views(function: Callable[..., Any], world: FiniteWorld, *parts: Any) -> Array:
    """Return the policy ``[S, A]`` of a function that maps what the agent sees to action probabilities.

    Args:
        function: takes a view, then `parts`; returns ``[A]`` probabilities.
        world: the world. In states that cannot be reached, or where the episode is over, the policy is uniform.
        parts: further arguments of the function.
    """
    policy = world.even.copy()
    for state in np.flatnonzero(world.live & world.reached).tolist():
        probabilities = _numbers("the policy of a view", function(view_of(world.world, state), *parts))
        check_shape("the policy of a view", probabilities, "A", {"A": world.process.actions})
        policy[state] = probabilities
    return policy


def meg_of(hypothesis: Hypothesis, world: FiniteWorld, policy: npt.NDArray[Any]) -> KnownMEG:
    """Return the MEG (maximum-entropy goal-directedness) of a policy towards a place, an event or a utility.

    Args:
        hypothesis: the place, event or utility.
        world: the world.
        policy: ``[S, A]`` action probabilities, or ``[n, S, A]`` by decision.

    Returns:
        The MEG in nats (``value``, or ``signed`` with its sign), its bounds in this world, and the best rationality.

    Raises:
        Undefined: the hypothesis has no utility, or is undefined in the world.

    Source: MacDermott et al. (2024), definition 3.2.
    """
    utility = hypothesis.solved(world).utility
    if utility is None:
        raise Undefined(f"{hypothesis.text} is a policy without a utility: it has a likelihood but no MEG")
    return meg_known(world.process.mdp(utility, world.horizon, terminal=None), policy=policy)


def steps_in(world: FiniteWorld, masks: Mapping[int, Mask], events: Mapping[int, Mask]) -> set[tuple[int, int]]:
    """Find which hypotheses are intermediate steps of others in a world, such as holding the key for opening the door.

    Event k is an intermediate step of h if h can be reached, but not without k happening before or at the same time.

    Args:
        world: the world.
        masks: index of a hypothesis -> ``[S]`` bool, the states in which its place is reached or its event holds.
        events: those of these masks that belong to events, which alone can be intermediate steps.

    Returns:
        Pairs (h, k) of indices such that k is an intermediate step of h.
    """
    pairs = set[tuple[int, int]]()
    for k, states in events.items():
        if (states & (world.process.start > 0)).any():
            continue  # it holds from the beginning, so no agent has to reach it
        for h, goal in masks.items():
            blocked = states & ~goal
            if h == k or not blocked.any() or not (goal & world.reached).any():
                continue
            if not (goal & world.reached_without(blocked)).any():
                pairs.add((h, k))
    return pairs


def reached_before(episode: Numbers, inside: Mask) -> Mask:
    """Return for each step whether its episode has entered a set of states at this step or earlier, ``[N]`` bool.

    Args:
        episode: ``[N]`` episode number of each step; the steps of an episode are consecutive.
        inside: ``[N]`` whether the state of each step lies in the set.
    """
    if not len(episode):
        return inside
    total = np.cumsum(inside)
    begins = np.flatnonzero(np.concatenate([[True], episode[1:] != episode[:-1]]))
    before: Numbers = np.repeat(total[begins] - inside[begins], np.diff([*begins, len(episode)]))
    return np.asarray(total > before)


def arrivals(world: FiniteWorld, in_place: Mask, policy: Array) -> Array:
    """Compute the exact probability that each of K places is the first of them to be reached in an episode.

    Args:
        world: the world.
        in_place: ``[K, S]`` bool, the states of each place.
        policy: ``[S, A]`` action probabilities of one agent; or ``[C, n, S, A]`` those of C agents, by decision (the
            last ones hold from then on).

    Returns:
        ``[K]`` probabilities for one agent, ``[C, K]`` for several.
    """
    if policy.ndim == 2:
        return np.asarray(arrivals(world, in_place, policy[None, None])[0])
    kept = np.flatnonzero(world.reached)  # no other state ever has any mass
    count, states = len(policy), len(kept)
    masks, policy, start = in_place[:, kept], policy[:, :, kept], world.process.start[kept]
    passes = np.where(masks.any(axis=0), 0.0, 1.0)
    if not world.process.chance:
        number = np.zeros(world.process.states, dtype=np.int64)
        number[kept] = np.arange(states)
        target = np.add.outer(np.arange(count) * states, number[world.process.transitions[kept]]).reshape(-1)
    mass: Array = np.tile(start, (count, 1))
    arrived = np.zeros((count, len(in_place)))
    for step in range(world.horizon):
        arrived += mass @ masks.T
        flow = (mass * passes)[:, :, None] * policy[:, min(step, policy.shape[1] - 1)]
        if world.process.chance:
            whole = np.zeros((count, world.process.states, world.process.actions))
            whole[:, kept] = flow
            mass = np.stack([world.process.base.flow(part)[kept] for part in whole])
        else:
            sums = np.bincount(target, weights=flow.reshape(-1), minlength=count * states)
            mass = sums.astype(np.float64).reshape(count, states)
    return np.asarray(arrived + mass @ masks.T)
