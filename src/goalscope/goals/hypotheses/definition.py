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
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.checks import check_shape, freeze, refuse_where
from goalscope._ground.distributions import to_array, to_distributions
from goalscope._ground.untrusted import shorten
from goalscope.goals.hypotheses.views import Undefined, view_of
from goalscope.goals.meg import KnownMEG, meg_known
from goalscope.worlds.dynamics import configurations, neighbours, phases
from goalscope.worlds.grid import DELTAS, Grid, Position
from goalscope.worlds.planning.mdp import utility_range, value_iteration
from goalscope.worlds.planning.process import Process, grid_process, process_of
from goalscope.worlds.world import World

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

Kind = Literal["place", "event", "utility", "policy", "table", "condition"]
"""Kind of a hypothesis: what its function returns, see `hypothesis`."""

PARTS: Final = (
    *("hypothesis", "place", "event", "condition", "places", "terms", "whole", "offset", "corner", "sides", "cells"),
    *("source", "object", "thing", "happening", "name"),
)
"""Placeholders that a form may contain; `goalscope.goals.hypotheses.written` documents how each is written."""

MOST: Final = 20_000_000
"""Maximum size (decisions x states x actions) of a time-dependent policy."""

FIELD: Final = re.compile(r"\{(\w*)\}")
"""Pattern of a placeholder in a form."""

_ALIKE: Final = 1e-9
"""Two expected utilities count as equal if they differ by less than this share of the greatest possible utility."""

FAR: Final = np.iinfo(np.int64).max // 2
"""Distance of a state from which the target cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A registered written form and its function; the attributes are those of `hypothesis`."""

    kind: Kind
    function: Callable[..., Any]
    says: str = ""


def hypothesis(form: str, *, kind: Kind, says: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under a written form, such as ``goal`` or ``mirror of {place}``.

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
    """A world with its process of S states and A actions, and the number of decisions per episode.

    Attributes:
        world: the world.
        process: its decision process, or that of ``believed`` if given.
        horizon: number of decisions per episode.
        believed: grid that replaces the world's own, such as the map an agent believes in; None for the world itself.
        twin_key: cell of the key in the matched world, if this world is the control without a key.
    """

    world: World
    process: Process
    horizon: int
    believed: Grid | None = None
    twin_key: Position | None = None

    @cached_property
    def grid(self) -> Grid:
        """The grid; raises `Undefined` in worlds that are not grids."""
        if self.believed is not None:
            return self.believed
        if "grid" not in self.world.offers:
            raise Undefined(f"a place needs a grid, but this world is of kind {self.world.kind}")
        return self.world.grid

    def on_map(self, grid: Grid) -> "FiniteWorld":
        """Replace the grid of the world, for example by the map that an agent believes in.

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
        """Flags of each state of a grid, ``[S]``, see `goalscope.worlds.State`."""
        return np.repeat(configurations(self.grid), self.grid.walls.size)

    @cached_property
    def even(self) -> Array:
        """``[S, A]`` uniform policy over the offered actions."""
        shape, offered = (self.process.states, self.process.actions), self.process.offered
        weights = np.ones(shape) if offered is None else offered.astype(np.float64)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @cached_property
    def live(self) -> Mask:
        """``[S]`` states in which some action changes the state; all other states end the episode."""
        states, after = np.arange(self.process.states), self.process.transitions
        if not self.process.chance:
            return np.asarray((after != states[:, None]).any(axis=1))
        matrix = after.tocoo()
        state = matrix.row // self.process.actions
        return np.isin(states, state[(state != matrix.col) & (matrix.data > 0)])

    @cached_property
    def reached(self) -> Mask:
        """``[S]`` states that can be reached from the start, including those that end the episode."""
        seen = np.zeros(self.process.states, dtype=bool)
        after = self.process.start > 0
        while not (after == seen).all():
            seen = after
            after = seen | (self.process.base.flow(np.where(seen[:, None], self.even, 0.0)) > 0)
        return seen

    def at(self, cell: Position) -> Mask:
        """Return the mask of the states in which the agent is at a cell, ``[S]``."""
        return np.asarray(np.arange(self.process.states) % self.grid.walls.size == cell[0] * self.grid.width + cell[1])

    def further(self, cell: Position) -> Array:
        """Return the offset (rows, columns) from the agent's cell in each state to a given cell, ``[S, 2]``."""
        cells = np.stack(np.unravel_index(np.arange(self.grid.walls.size), self.grid.walls.shape), axis=1)
        return np.tile(np.array(cell) - cells, (phases(self.grid), 1)).astype(np.float64)

    @cached_property
    def cell_steps(self) -> Numbers:
        """Minimum number of steps from the start to each cell of a grid, ``[H, W]``; `FAR` if unreachable."""
        steps, near, level = np.full(self.process.states, FAR), self.process.start > 0, 0
        while near.any():
            steps[near], level = level, level + 1
            after = np.zeros_like(near)
            after[self.process.transitions[near]] = True
            near = after & (steps == FAR)
        return np.asarray(steps.reshape(-1, *self.grid.walls.shape).min(axis=0))

    @cached_property
    def entered(self) -> Mask:
        """``[H, W]`` cells of a grid that a move of the agent enters in some episode.

        A thing may move the agent on at once, so that the agent never stands on such a cell.
        """
        shape, states = self.grid.walls.shape, np.arange(self.process.states)
        changes = (self.process.transitions != states[:, None]) & self.reached[:, None]
        left = changes.reshape(-1, *shape, len(DELTAS)).any(axis=0)
        cells = np.zeros(shape, dtype=bool)
        for action, (inside, beyond) in enumerate(neighbours(*shape)):
            cells[beyond] |= left[(*inside, action)]
        return cells

    def steps_to(self, targets: Mask) -> Numbers:
        """Return the minimum number of steps from each state to a set of target states, ``[S]``.

        Args:
            targets: ``[S]`` mask of the target states. The distance is `FAR` where they cannot be reached.

        Raises:
            Undefined: the world is stochastic.
        """
        if self.process.chance:
            raise Undefined("distances are not defined where actions have several outcomes")
        steps, near, level = np.where(targets, 0, FAR), targets, 0
        while near.any():
            level += 1
            near = near[self.process.transitions].any(axis=1) & (steps == FAR)
            steps[near] = level
        return steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """The policy and utility that a hypothesis implies in one world.

    Attributes:
        policy: ``[1, S, A]`` action probabilities, or ``[n, S, A]`` by decision.
        utility: ``[S]``, ``[S, A]`` or ``[S, A, S]`` utility of one decision; None for a hypothesis without a utility.
    """

    policy: Array
    utility: Array | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A goal or rule that an agent may follow: a registered form with its values, or a function (`Hypothesis.of`).

    Attributes:
        form: the registered form; for a function, its name.
        parts: values of the placeholders: hypotheses, tuples of hypotheses, numbers and words.
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
        """The function of the hypothesis and its kind."""
        form: Form = registry.resolve("hypothesis", self.form) if self.own is None else self.own
        return form

    @property
    def kind(self) -> Kind:
        """Kind of the hypothesis."""
        return self.registered.kind

    @property
    def says(self) -> str:
        """Noun phrase, such as "the top-left corner"; names given by users and worlds, and policies, are quoted."""
        template = self.registered.says
        if self.name != self.text or not template:
            return f"“{self.name}”"
        return template.format(*map(_phrase, self.parts))

    def value(self, *arguments: Any) -> Any:
        """Call the function with a `FiniteWorld` or view (for a condition also the hypothesis that it qualifies)."""
        returned = self.registered.function(*arguments, *self.parts)
        if self.kind != "place":
            return returned
        cell = np.asarray(returned)
        if cell.shape != (2,) or not np.issubdtype(cell.dtype, np.integer):
            raise ValueError(f"{self.text} must return the row and column of a cell, got {shorten(cell.tolist())}")
        return int(cell[0]), int(cell[1])

    def cell(self, world: FiniteWorld) -> Position:
        """Return the cell of a place.

        Raises:
            Undefined: the cell lies outside of the grid or is a wall.
        """
        cell: Position = self.value(world)
        if not (0 <= cell[0] < world.grid.height and 0 <= cell[1] < world.grid.width):
            raise Undefined(f"{self.text} lies outside of the {world.grid.height}x{world.grid.width} grid")
        if world.grid.walls[cell]:
            raise Undefined(f"{self.text} is a wall")
        return cell

    def where(self, world: FiniteWorld) -> Mask:
        """Return the mask of the states in which a place or an event holds, ``[S]``.

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

        Places and events pay 1 in each of their states, ``[S]``. A goal that the world names may pay other numbers,
        such as the count of achieved sub-goals. A utility has shape ``[S]``, ``[S, A]`` or ``[S, A, S]``.

        A place or event that no policy reaches, such as a corner behind the goal, still has a utility; estimates count
        such a world as out of reach. It has no policy, so `solved` raises `Undefined` (see `check_reached`).

        Raises:
            Undefined: the hypothesis is undefined in the world, or it is a policy, which has no utility.
        """
        if (named := self._named(world)) is not None:
            return np.asarray(named, dtype=np.float64)
        if self.kind in ("place", "event"):
            return self.where(world).astype(np.float64)
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
            return towards(world, self.where(world), self.text)
        if self.kind == "utility":
            return by_decision(world, self.utility(world))
        table = _numbers(self.text, self.value(world))
        table = table[None] if table.ndim == 2 else table
        check_shape(self.text, table, "n S A", {"S": world.process.states, "A": world.process.actions})
        table = to_distributions(self.text, table)
        refuse_where((table > 0) & (world.even == 0), table, f"{self.text} must use only offered actions")
        return Solved(policy=freeze(np.where(world.live[:, None], table, world.even)))


def finite_world(world: World, horizon: int) -> FiniteWorld:
    """Combine a world with its decision process.

    Raises:
        Undefined: the world has fog (optimal actions then depend on what was seen), or its process is not known.
    """
    if world.fog_radius is not None:
        raise Undefined("under fog the optimal actions depend on what was seen before")
    process = process_of(world)
    if process is None:
        raise Undefined(f"a world of kind {world.kind} has no known process")
    return FiniteWorld(world=world, process=process, horizon=horizon)


def check_reached(world: FiniteWorld, targets: Mask, description: str) -> None:
    """Raise `Undefined` if no policy reaches any target state from the start; the world's own goal ends an episode."""
    if not (targets & world.reached).any():
        if "grid" in world.world.offers and world.grid.things:
            cells = targets.reshape(-1, *world.grid.walls.shape).any(axis=0)
            if (cells & world.entered).any():
                raise Undefined(f"{description} can be entered, but the thing there always moves the agent on")
        raise Undefined(f"{description} cannot be reached from the start; the world's own goal ends an episode")


def towards(world: FiniteWorld, targets: Mask, description: str) -> Solved:
    """Solve for reaching target states, which pay 1 for each decision that begins in them.

    Args:
        world: the world.
        targets: ``[S]`` mask of the target states.
        description: name of the targets in the error.

    Raises:
        Undefined: the targets cannot be reached from the start.
    """
    check_reached(world, targets, description)
    if world.process.chance:
        return by_decision(world, targets.astype(np.float64))
    steps = world.steps_to(targets)
    distance, beyond = steps[:, None], steps[world.process.transitions]
    stays, returns = targets[:, None] & (beyond == 0), targets[:, None] & (beyond == 1)
    staying = stays | (returns & ~stays.any(axis=1, keepdims=True))
    nearer = (beyond == distance - 1) & (distance > 0) & (distance < FAR)
    return Solved(policy=spread(world, nearer | staying)[None], utility=targets.astype(np.float64))


def by_decision(world: FiniteWorld, utility: Array) -> Solved:
    """Solve for a utility by value iteration over the horizon; optimal actions are equally likely.

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
    """Return whether two policies have different expected utilities of an episode, within the horizon.

    If no two policies differ, the world says nothing about a hypothesis with this utility, for example because its
    place is out of reach.
    """
    mdp = world.process.mdp(utility, world.horizon, terminal=None)
    low, high = utility_range(mdp)
    return high - low > _ALIKE * mdp.horizon * float(np.abs(mdp.reward).max())


def spread(world: FiniteWorld, sets: Mask) -> Array:
    """Return the uniform policy over sets of actions ``[S, A]``; over all offered actions if a set is empty."""
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
        *first, last = [item.says for item in part]
        return f"{', '.join(first)} and {last}" if first else str(last)
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
    """Apply a function of views to every state; return its policy ``[S, A]``."""
    policy = world.even.copy()
    for state in np.flatnonzero(world.live & world.reached).tolist():
        probabilities = _numbers("the policy of a view", function(view_of(world.world, state), *parts))
        check_shape("the policy of a view", probabilities, "A", {"A": world.process.actions})
        policy[state] = probabilities
    return policy


def meg_of(hypothesis: Hypothesis, world: FiniteWorld, policy: npt.NDArray[Any]) -> KnownMEG:
    """Return the MEG of a policy ``[S, A]`` or ``[n, S, A]`` towards a place, an event or a utility.

    Raises:
        Undefined: the hypothesis has no utility, or is undefined there.

    Source: MacDermott et al. (2024), definition 3.2.
    """
    utility = hypothesis.solved(world).utility
    if utility is None:
        raise Undefined(f"{hypothesis.text} is a policy without a utility: it has a likelihood but no MEG")
    return meg_known(world.process.mdp(utility, world.horizon, terminal=None), policy=policy)
