"""A restricted class of soft policies that plan on what was seen: for worlds whose prior is too large to enumerate.

`goalscope.meg.hidden` is exact where all worlds of a prior can be listed. The class here needs no prior. Before each
decision what was seen so far, and an assumption on the rest, make an *assumed world* with *targets*, each of which
counts as the goal. The policy of rationality b is the soft-optimal one of that world for the decisions that are left,
as if nothing more would ever be seen; after the move it plans anew:

    V_0 = 0,   L_m(s) = log mean_a exp V_{m-1}(T(s, a)),   V_m(s) = b [s is a target] + L_m(s)
    log A pi(a | s) = V_{m-1}(T(s, a)) - L_m(s)   with m decisions left

A target holds who enters it. What an agent shows is definition 3.2 of the paper with the maximum over this class:
``sup over b of E[sum over t of log A pi_b(a_t | what was seen)]``, b from a declared finite set. The bound of the class
is what its own most rational member shows in the same worlds. Where what was seen tells the world, the class is the
exact one. Elsewhere neither figure bounds the exact one: the class may plan worse and yet be more predictable. What
holds is Gibbs' inequality: of an agent of the exact class no other class shows more than the exact one does.

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
"""What is assumed of cells that were not seen. "open": they are open; while the goal was not seen each of them counts
as the goal, afterwards the goal alone does. "known": ways lead over cells that were seen open; the goal counts where
such a way to it is known, else each cell that was not seen, at the end of such a way."""

LARGEST: Final = 40.0
"""Rationality in nats per step that stands for an infinite one: utilities are whole numbers of steps, so that the
policy misses its limit by less than exp(-40)."""

_NEVER: Final = 1e-15  # chances below it are left out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assumed:
    """A world as it is taken for before one decision.

    Attributes:
        key: equal for equal assumed worlds of one kind of walk, wherever the agent stands.
        next: ``[S, A]`` int64, where each action is taken to lead; targets lead to themselves.
        targets: ``[S]`` bool, what counts as the goal.
        at: state of the agent.
    """

    key: Hashable
    next: Numbers
    targets: npt.NDArray[np.bool_]
    at: int


class Walk(Protocol):
    """A walk through one world, with what was seen on it; it does not change."""

    @property
    def done(self) -> bool:
        """Whether the goal is reached."""

    @property
    def state(self) -> Hashable:
        """What its future depends on: equal for walks of one world that lead on alike."""

    def assumed(self) -> Assumed:
        """Return what the world is taken for now."""

    def after(self, action: int | None) -> "Walk":
        """Return the walk with one action more; None changes nothing, and nothing does once the goal is reached."""


class FoggedMaze:
    """A plain maze under fog, and what agents in it assume.

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
        """Return a walk that stands at the start."""
        return _FoggedWalk(self, self.first, self.sight(self.first))

    def sight(self, cell: int) -> npt.NDArray[np.bool_]:
        """Return ``[H, W]`` what is seen from a cell."""
        if cell not in self._sight:
            row, col = divmod(cell, self.grid.width)
            self._sight[cell] = visible(self.grid.walls, (row, col), self.radius)
        return self._sight[cell]

    def assumed(self, seen: npt.NDArray[np.bool_], cell: int) -> Assumed:
        """Return what the maze is taken for by an agent at a cell that has seen ``[H, W]`` cells."""
        grid, goal = self.grid, self._goal_cell
        row, col = divmod(cell, grid.width)
        solid, targets = grid.walls & seen, ~seen
        goal_seen = bool(seen[goal])
        if self.unseen == "known":
            way = distances_to(grid.walls | ~seen, [goal] if goal_seen else [])
            goal_seen = bool(way[row, col] >= 0)
            solid = solid | ~seen if goal_seen else solid
        if goal_seen:
            targets = np.zeros_like(seen)
            targets[goal] = True
        key = (seen.tobytes(), goal_seen)
        if key not in self._assumed:
            table = transitions(Grid(walls=solid)).astype(np.int64)
            there = np.flatnonzero(targets)
            table[there] = there[:, None]
            self._assumed[key] = Assumed(key=key, next=table, targets=targets.reshape(-1), at=cell)
        found = self._assumed[key]
        return Assumed(key=key, next=found.next, targets=found.targets, at=cell)


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
    """Return what the soft policies of an assumed world give to each action beyond the uniform policy.

    Args:
        world: the assumed world; ``at`` does not count.
        asked: ``[Q]`` pairs of decisions left, >= 1, and state.
        rationalities: ``[B]`` in nats per step at a target, finite.
        arrival: whether being at a target at the end is worth 1, in place of each step there.

    Returns:
        ``[Q, B, A]`` log of A times the probability of each action, in nats.
    """
    check_finite("rationalities", rationalities)
    kept = _counted(world.next, [state for _, state in asked])
    number = np.full(len(world.targets), -1)
    number[kept] = np.arange(len(kept))
    wanted: dict[int, list[int]] = {}
    for index, (left, _) in enumerate(asked):
        wanted.setdefault(check_whole("decisions left", left, 1, "decisions"), []).append(index)
    found = np.empty((len(asked), len(rationalities), world.next.shape[1]))
    passes = _backward(number[world.next[kept]], world.targets[kept], rationalities, arrival)
    for left, gains in zip(range(1, max(wanted) + 1), passes, strict=False):
        for index in wanted.get(left, ()):
            found[index] = gains[:, number[asked[index][1]]]
    return found


def _backward(
    following: Numbers, targets: npt.NDArray[np.bool_], rationalities: Array, arrival: bool
) -> Iterator[Array]:
    """Yield the gains ``[B, S, A]`` with 1, 2, 3, ... decisions left."""
    worth = rationalities[:, None] * targets
    values = worth if arrival else np.zeros_like(worth)
    while True:
        ahead = values[:, following]
        peak = ahead.max(axis=2)
        mean = peak + np.log(np.exp(ahead - peak[..., None]).mean(axis=2))
        yield ahead - mean[..., None]
        values = mean if arrival else worth + mean


def _counted(following: Numbers, states: Sequence[int]) -> Numbers:
    """Return the states that are no walls: those that can be left, where they lead, and some that were asked for."""
    leaving = np.flatnonzero((following != np.arange(len(following))[:, None]).any(axis=1))
    return np.unique(np.concatenate([leaving, following[leaving].reshape(-1), np.array(states, dtype=np.int64)]))


def _with_idle(world: Assumed, actions: int) -> Assumed:
    """Return a world with one more action, which changes nothing, where there are more than it has."""
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
    """Return what each rationality of the class gives to the actions of some walks in one world.

    Args:
        begin: begins a walk.
        chances: for each walk ``[T, A]``, the weight of each action in each turn: 1 for the one that was taken, or the
            probabilities that it was drawn with; zeros for a turn that is not scored. With one action more than the
            world has, the last one changes nothing.
        moves: for each walk its T actions, None for a turn that changed nothing.
        horizon: number of decisions of an episode.
        rationalities: ``[B]`` finite, in nats per step.
        arrival: as in `soft_gains`.

    Returns:
        ``[K, B]`` sums over the turns of log A pi(a | what was seen), nats. Turns after the goal is reached count 0.
    """
    queries: dict[Hashable, tuple[Assumed, list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for number, actions in enumerate(moves):
        walk = begin()
        for turn, action in enumerate(actions[:horizon]):
            if walk.done:
                break
            if chances[number][turn].any():
                world = walk.assumed()
                _, asked, whose = queries.setdefault(world.key, (world, [], []))
                asked.append((horizon - turn, world.at))
                whose.append((number, turn))
            walk = walk.after(action)
    found = np.zeros((len(moves), len(rationalities)))
    for world, asked, whose in queries.values():
        actions_there = chances[whose[0][0]].shape[1]
        gains = soft_gains(_with_idle(world, actions_there), asked, rationalities, arrival=arrival)
        for (number, turn), gain in zip(whose, gains, strict=True):
            found[number] += gain @ chances[number][turn]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMember:
    """What a member of the class shows of itself, and what it gets.

    Attributes:
        nats: expected sum over its decisions of log A less the entropy of the choice.
        utility: expected number of steps that begin at the goal, or chance of being there at the end.
        exact: whether every tie was followed; else both are unbiased estimates.
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
    """Return what the class shows of a member of its own in one world: at `LARGEST` this is the bound of the class.

    All that the member may do is followed at once, by the chances of where it stands and what it has seen.

    Args:
        begin: begins a walk.
        horizon: number of decisions.
        most: most different states that are followed; where there are more, that many are drawn of them, systematically
            (each by its chance), which leaves expectations as they are.
        rng: where those draws come from.
        rationality: of the member, in nats per step; ``-LARGEST`` for the one that avoids the goal.
        actions: number of actions, one more than the world's for one that changes nothing.
        arrival: as in `soft_gains`.
    """
    tables: dict[Hashable, tuple[Numbers, Array]] = {}
    ahead: dict[Hashable, tuple[float, Walk]] = {None: (1.0, begin())}
    nats, utility, exact = 0.0, 0.0, True
    for left in range(horizon, 0, -1):
        following: dict[Hashable, tuple[float, Walk]] = {}
        for mass, walk in ahead.values():
            world = walk.assumed()
            if world.key not in tables:
                tables[world.key] = _table(_with_idle(world, actions), left, rationality, arrival)
            kept, gains = tables[world.key]
            gain = gains[left - 1, np.searchsorted(kept, world.at)]
            chances = np.exp(gain) / actions
            nats += mass * float(chances @ gain)
            for action in np.flatnonzero(chances > _NEVER).tolist():
                after = walk.after(action if action < len(ACTIONS) else None)
                if after.done:
                    utility += mass * float(chances[action]) * (1 if arrival else left - 1)
                else:
                    before = following.get(after.state, (0.0, after))[0]
                    following[after.state] = before + mass * float(chances[action]), after
        exact = exact and len(following) <= most
        ahead = _thinned(following, most, rng)
    return OwnMember(nats=nats, utility=utility, exact=exact)


def _table(world: Assumed, left: int, rationality: float, arrival: bool) -> tuple[Numbers, Array]:
    """Return the states that are no walls, and the gains ``[left, K, A]`` in them by decisions left, 1 first."""
    kept = _counted(world.next, [world.at])
    following = np.searchsorted(kept, world.next[kept])
    passes = _backward(following, world.targets[kept], np.array([rationality]), arrival)
    return kept, np.concatenate(list(islice(passes, left)))


def _thinned(
    walks: dict[Hashable, tuple[float, Walk]], most: int, rng: np.random.Generator
) -> dict[Hashable, tuple[float, Walk]]:
    """Return at most so many of the walks, drawn systematically by their chances, the sum of which stays."""
    if len(walks) <= most:
        return walks
    ends = np.cumsum([mass for mass, _ in walks.values()])
    points = (np.arange(most) + rng.random()) * ends[-1] / most
    drawn = np.bincount(np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1), minlength=len(ends))
    share = float(ends[-1]) / most
    return {
        state: (share * count, walks[state][1]) for state, count in zip(walks, drawn.tolist(), strict=True) if count
    }
