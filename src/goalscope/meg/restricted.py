"""A restricted class of soft policies that plan from observations: for worlds whose prior is too large to enumerate.

`goalscope.meg.hidden` is exact where all worlds of a prior can be listed. The class here needs no prior. Before each
decision the cells seen so far, and an assumption about the others, define an *assumed world* with *targets*, each of
which counts as the goal. The policy of rationality b is the soft-optimal one of that world for the remaining decisions,
as if nothing more would ever be observed. After each move it plans again:

    V_0 = 0,   L_m(s) = log mean_a exp V_{m-1}(T(s, a)),   V_m(s) = b [s is a target] + L_m(s)
    log A pi(a | s) = V_{m-1}(T(s, a)) - L_m(s)   with m decisions left

A target is absorbing. The measure is definition 3.2 of the paper with the maximum over this class:
``sup over b of E[sum over t of log A pi_b(a_t | observations)]``, b from a declared finite set. The bound of the class
is the value of its own most rational member in the same worlds. Where the observations determine the world, the class
is the exact one. Elsewhere neither value bounds the exact one: the class may plan worse and yet be more predictable.
Only Gibbs' inequality holds: for an agent of the exact class, no other class gives a higher value than the exact one.

Source: MacDermott et al. (2024), definitions 3.1 and 3.2; replanning in an assumed world: Koenig and Smirnov (2003),
Performance bounds for planning in unknown terrain ("open" is their free-space assumption); the classes are ours.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_whole
from goalscope.planning.shortest import distances_to
from goalscope.worlds.dynamics import transitions
from goalscope.worlds.fog import visible
from goalscope.worlds.grid import ACTIONS, Grid, Position

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

Unseen = Literal["open", "known"]
"""The assumption about unseen cells. "open": they are open, and each of them is a target until the goal has been seen;
then only the goal is. "known": paths lead over cells seen to be open. The target is the goal where such a path to it is
known, else every unseen cell at the end of such a path."""

LARGEST: Final = 40.0
"""Rationality in nats per step that stands for an infinite one: utilities are whole numbers of steps, so that the
policy misses its limit by less than exp(-40)."""

_NEVER: Final = 1e-15  # smaller probabilities are left out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assumed:
    """The world that an agent assumes before one decision.

    Attributes:
        key: equal for equal assumed worlds of one kind of walk, wherever the agent stands.
        next: ``[S, A]`` int64, the assumed next state of each action; targets lead to themselves.
        targets: ``[S]`` bool, the states that count as the goal.
        at: state of the agent.
    """

    key: Hashable
    next: Numbers
    targets: npt.NDArray[np.bool_]
    at: int


class Walk(Protocol):
    """A walk through one world, with the cells seen on it; immutable."""

    @property
    def done(self) -> bool:
        """Whether the walk has reached the goal."""

    @property
    def state(self) -> Hashable:
        """Everything that its future depends on: equal for walks of one world with the same continuations."""

    def assumed(self) -> Assumed:
        """Return the assumed world of the next decision."""

    def after(self, action: int | None) -> "Walk":
        """Return the walk after one more action; None changes nothing, and nothing changes once the goal is reached."""


class FoggedMaze:
    """A maze under fog without key and door, and the worlds that agents in it assume.

    Args:
        grid: the whole maze with agent and goal, without key and door.
        radius: radius of sight in steps.
        unseen: see `Unseen`.

    Raises:
        ValueError: a grid without agent or goal, or with a key or a door.
    """

    def __init__(self, grid: Grid, radius: int, unseen: Unseen) -> None:
        if grid.start is None or grid.goal is None or grid.key or grid.door or grid.fog is not None:
            raise ValueError(
                f"the class of policies that plan on what was seen needs a whole maze with agent and goal, without key "
                f"and door, got\n{grid}"
            )
        self.grid, self.radius, self.unseen = grid, radius, unseen
        self._goal_cell: Position = grid.goal
        self.goal = grid.goal[0] * grid.width + grid.goal[1]
        self.first = grid.start[0] * grid.width + grid.start[1]
        self.next = transitions(grid).astype(np.int64)
        self._sight: dict[int, npt.NDArray[np.bool_]] = {}
        self._assumed: dict[tuple[bytes, bool], Assumed] = {}

    def begin(self) -> "Walk":
        """Return a walk at the start."""
        return _FoggedWalk(self, self.first, self.sight(self.first))

    def sight(self, cell: int) -> npt.NDArray[np.bool_]:
        """Return ``[H, W]`` the cells visible from a cell."""
        if cell not in self._sight:
            row, col = divmod(cell, self.grid.width)
            self._sight[cell] = visible(self.grid.walls, (row, col), self.radius)
        return self._sight[cell]

    def assumed(self, seen: npt.NDArray[np.bool_], cell: int) -> Assumed:
        """Return the assumed world of an agent at a cell that has seen the cells ``[H, W]``."""
        grid, goal = self.grid, self._goal_cell
        row, col = divmod(cell, grid.width)
        solid, targets = grid.walls & seen, ~seen
        goal_seen = bool(seen[goal])
        if self.unseen == "known":
            path_lengths = distances_to(grid.walls | ~seen, [goal] if goal_seen else [])
            goal_seen = bool(path_lengths[row, col] >= 0)
            solid = solid | ~seen if goal_seen else solid
        if goal_seen:
            targets = np.zeros_like(seen)
            targets[goal] = True
        key = (seen.tobytes(), goal_seen)
        if key not in self._assumed:
            table = transitions(Grid(walls=solid)).astype(np.int64)
            target_states = np.flatnonzero(targets)
            table[target_states] = target_states[:, None]
            self._assumed[key] = Assumed(key=key, next=table, targets=targets.reshape(-1), at=cell)
        world = self._assumed[key]
        return Assumed(key=key, next=world.next, targets=world.targets, at=cell)


class _FoggedWalk:
    def __init__(self, maze: FoggedMaze, cell: int, seen: npt.NDArray[np.bool_]) -> None:
        self._maze, self._cell, self._seen = maze, cell, seen

    @property
    def done(self) -> bool:
        return self._cell == self._maze.goal

    @property
    def state(self) -> Hashable:
        return self._cell, self._seen.tobytes()

    def assumed(self) -> Assumed:
        return self._maze.assumed(self._seen, self._cell)

    def after(self, action: int | None) -> Walk:
        if action is None or self.done:
            return self
        cell = int(self._maze.next[self._cell, action])
        return _FoggedWalk(self._maze, cell, self._seen | self._maze.sight(cell))


def soft_gains(
    world: Assumed, asked: Sequence[tuple[int, int]], rationalities: Array, *, arrival: bool = False
) -> Array:
    """Return the log probability ratio of each action, soft policies of an assumed world to the uniform policy.

    Args:
        world: the assumed world; ``at`` is not used.
        asked: ``[Q]`` pairs of decisions left, >= 1, and state.
        rationalities: ``[B]`` in nats per step at a target, finite.
        arrival: whether the utility is 1 for being at a target at the end, instead of 1 for each step there.

    Returns:
        ``[Q, B, A]`` log of A times the probability of each action, in nats.
    """
    check_finite("rationalities", rationalities)
    states = _open_states(world.next, [state for _, state in asked])
    index_of = np.full(len(world.targets), -1)
    index_of[states] = np.arange(len(states))
    queries_by_left: dict[int, list[int]] = {}
    for index, (left, _) in enumerate(asked):
        queries_by_left.setdefault(check_whole("decisions left", left, 1, "decisions"), []).append(index)
    result = np.empty((len(asked), len(rationalities), world.next.shape[1]))
    passes = _backward(index_of[world.next[states]], world.targets[states], rationalities, arrival)
    for left, gains in zip(range(1, max(queries_by_left) + 1), passes, strict=False):
        for index in queries_by_left.get(left, ()):
            result[index] = gains[:, index_of[asked[index][1]]]
    return result


def _backward(
    following: Numbers, targets: npt.NDArray[np.bool_], rationalities: Array, arrival: bool
) -> Iterator[Array]:
    """Yield the gains ``[B, S, A]`` with 1, 2, 3, ... decisions left."""
    utility = rationalities[:, None] * targets
    values = utility if arrival else np.zeros_like(utility)
    while True:
        following_values = values[:, following]
        peak = following_values.max(axis=2)
        mean = peak + np.log(np.exp(following_values - peak[..., None]).mean(axis=2))
        yield following_values - mean[..., None]
        values = mean if arrival else utility + mean


def _open_states(following: Numbers, states: Sequence[int]) -> Numbers:
    """Return the states that are no walls: those that can be left, their successors, and the given ones."""
    leaving = np.flatnonzero((following != np.arange(len(following))[:, None]).any(axis=1))
    return np.unique(np.concatenate([leaving, following[leaving].reshape(-1), np.array(states, dtype=np.int64)]))


def _with_idle(world: Assumed, actions: int) -> Assumed:
    """Return the world, with one more action that changes nothing where it has fewer than ``actions``."""
    if actions <= world.next.shape[1]:
        return world
    stay = np.arange(len(world.next))[:, None]
    return Assumed(key=world.key, next=np.hstack([world.next, stay]), targets=world.targets, at=world.at)


def walk_scores(
    begin: Callable[[], Walk],
    chances: Sequence[Array],
    moves: Sequence[Sequence[int | None]],
    *,
    horizon: int,
    rationalities: Array,
    arrival: bool = False,
) -> Array:
    """Return the log likelihood ratio of several walks in one world for each rationality of the class.

    Args:
        begin: begins a walk.
        chances: for each walk ``[T, A]``, the weight of each action in each turn: 1 for the action taken, or the
            probabilities it was drawn from; zeros for a turn that is not scored. With one action more than the world
            has, the last one changes nothing.
        moves: for each walk its T actions, None for a turn that changed nothing.
        horizon: number of decisions of an episode.
        rationalities: ``[B]`` finite, in nats per step.
        arrival: as in `soft_gains`.

    Returns:
        ``[K, B]`` sums over the turns of log A pi(a | observations), nats. Turns after the goal is reached count 0.
    """
    queries: dict[Hashable, tuple[Assumed, list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for number, actions in enumerate(moves):
        walk = begin()
        for turn, action in enumerate(actions[:horizon]):
            if walk.done:
                break
            if chances[number][turn].any():
                world = walk.assumed()
                _, states_asked, walk_turns = queries.setdefault(world.key, (world, [], []))
                states_asked.append((horizon - turn, world.at))
                walk_turns.append((number, turn))
            walk = walk.after(action)
    scores = np.zeros((len(moves), len(rationalities)))
    for world, states_asked, walk_turns in queries.values():
        width = chances[walk_turns[0][0]].shape[1]
        gains = soft_gains(_with_idle(world, width), states_asked, rationalities, arrival=arrival)
        for (number, turn), gain in zip(walk_turns, gains, strict=True):
            scores[number] += gain @ chances[number][turn]
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMember:
    """The directedness of a member of the class, measured with its own class, and its expected utility.

    Attributes:
        nats: expected sum over its decisions of log A less the entropy of the choice.
        utility: expected number of steps that begin at the goal, or probability of being there at the end.
        exact: whether all walks were followed; else both values are unbiased estimates.
    """

    nats: float
    utility: float
    exact: bool


def own_member(
    begin: Callable[[], Walk],
    *,
    horizon: int,
    most: int,
    rng: np.random.Generator,
    rationality: float = LARGEST,
    actions: int = len(ACTIONS),
    arrival: bool = False,
) -> OwnMember:
    """Return the directedness of a member of the class in one world: at `LARGEST` this is the bound of the class.

    All possible walks of the member are followed at once, with the probabilities of their states.

    Args:
        begin: begins a walk.
        horizon: number of decisions.
        most: maximum number of different states followed; of more, that many are drawn by systematic sampling (each by
            its probability), which leaves expectations unchanged.
        rng: for those draws.
        rationality: of the member, in nats per step; ``-LARGEST`` for the one that avoids the goal.
        actions: number of actions; one more than the world has adds an action that changes nothing.
        arrival: as in `soft_gains`.
    """
    tables: dict[Hashable, tuple[Numbers, Array]] = {}
    current: dict[Hashable, tuple[float, Walk]] = {None: (1.0, begin())}
    nats, utility, exact = 0.0, 0.0, True
    for left in range(horizon, 0, -1):
        following: dict[Hashable, tuple[float, Walk]] = {}
        for mass, walk in current.values():
            world = walk.assumed()
            if world.key not in tables:
                tables[world.key] = _table(_with_idle(world, actions), left, rationality, arrival)
            states, gains = tables[world.key]
            gain = gains[left - 1, np.searchsorted(states, world.at)]
            probabilities = np.exp(gain) / actions
            nats += mass * float(probabilities @ gain)
            for action in np.flatnonzero(probabilities > _NEVER).tolist():
                after = walk.after(action if action < len(ACTIONS) else None)
                if after.done:
                    utility += mass * float(probabilities[action]) * (1 if arrival else left - 1)
                else:
                    earlier = following.get(after.state, (0.0, after))[0]
                    following[after.state] = earlier + mass * float(probabilities[action]), after
        exact = exact and len(following) <= most
        current = _thinned(following, most, rng)
    return OwnMember(nats=nats, utility=utility, exact=exact)


def _table(world: Assumed, left: int, rationality: float, arrival: bool) -> tuple[Numbers, Array]:
    """Return the states that are no walls, and the gains ``[left, K, A]`` in them by decisions left, 1 first."""
    states = _open_states(world.next, [world.at])
    following = np.searchsorted(states, world.next[states])
    passes = _backward(following, world.targets[states], np.array([rationality]), arrival)
    return states, np.concatenate(list(islice(passes, left)))


def _thinned(
    walks: dict[Hashable, tuple[float, Walk]], maximum: int, rng: np.random.Generator
) -> dict[Hashable, tuple[float, Walk]]:
    """Return at most ``maximum`` of the walks, by systematic sampling; the sum of their probabilities is unchanged."""
    if len(walks) <= maximum:
        return walks
    ends = np.cumsum([mass for mass, _ in walks.values()])
    points = (np.arange(maximum) + rng.random()) * ends[-1] / maximum
    drawn = np.bincount(np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1), minlength=len(ends))
    weight = float(ends[-1]) / maximum
    return {
        state: (weight * count, walks[state][1]) for state, count in zip(walks, drawn.tolist(), strict=True) if count
    }
