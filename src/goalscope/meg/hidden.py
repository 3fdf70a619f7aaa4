"""Decision processes whose state the agent does not see: a prior over worlds, and an observation for each state.

The agent knows the prior and remembers its observations and actions (perfect recall). Worlds are deterministic, so a
history restricts the prior to the worlds consistent with it, each in one state. The future depends only on that set of
(world, state) pairs. Histories with the same set are one *information set* here, and the information sets are the
states of an ordinary decision process. Its soft backups are those over histories, and MEG in it is MEG given the
parents of the decisions in the causal model.

Source: MacDermott et al. (2024), section 2 and definition 3.1; Kaelbling et al. (1998) for beliefs as states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, check_whole, freeze, refuse_where
from goalscope.distributions import to_array, to_distributions
from goalscope.planning import TabularMDP
from goalscope.planning.mdp import from_grid
from goalscope.worlds.fog import visible
from goalscope.worlds.grid import Grid

Numbers = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
Members = tuple[tuple[int, int], ...]

MOST_WORLDS = 200
MOST_SETS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HiddenWorlds:
    """A prior over N deterministic worlds of S states, and the agent's observation in each state.

    Attributes:
        next: ``[N, S, A]`` whole numbers, the state that each action leads to.
        shown: ``[N, S]`` whole numbers, the observation in each state: equal numbers are the same observation, also
            across worlds. Earlier observations are remembered, so this is the observation of the state alone.
        start: ``[N]`` first state of each world.
        utility: ``[N, S]`` utility of a decision in each state, summed over the decisions.
        horizon: number n of decisions.
        prior: ``[N]`` probabilities of the worlds, None for equal ones.
        terminal_utility: ``[N, S]`` utility of the state after the last decision, None for none.

    Raises:
        ValueError: shapes that disagree, states that are none, a prior that is no distribution, more than 200 worlds.
    """

    next: npt.NDArray[np.integer]
    shown: npt.NDArray[np.integer]
    start: npt.NDArray[np.integer]
    utility: Array
    horizon: int
    prior: Array | None = None
    terminal_utility: Array | None = None

    @classmethod
    def of_grids(cls, grids: Sequence[Grid], *, horizon: int, radius: int = 3) -> "HiddenWorlds":
        """Return equally likely mazes under fog: the goal ends the walk, and each step spent there is worth 1.

        The agent sees its cell and, within the radius, walls and goal (`goalscope.worlds.fog.visible`).

        Args:
            grids: whole grids of one shape with agent and goal, without keys and doors.
            horizon: number of decisions.
            radius: radius of sight in steps.

        Raises:
            ValueError: grids of different shapes, with a key or a door, or without agent or goal.
        """
        shapes = {grid.walls.shape for grid in grids}
        if len(shapes) != 1 or any(grid.key or grid.door or not grid.start or not grid.goal for grid in grids):
            raise ValueError(
                "a prior over mazes must be grids of one shape with an agent, a goal, no key and no door, got "
                f"{len(grids)} grids of {len(shapes)} shapes"
            )
        processes = [from_grid(grid, horizon=horizon) for grid in grids]
        observations: dict[bytes, int] = {}
        shown = np.zeros((len(grids), processes[0].states), dtype=np.int64)
        for number, grid in enumerate(grids):
            for cell in np.argwhere(~grid.walls).tolist():
                visible_cells = visible(grid.walls, (cell[0], cell[1]), radius)
                goal = visible_cells[grid.goal] and grid.goal
                observation = repr(
                    (cell, visible_cells.tobytes(), (grid.walls & visible_cells).tobytes(), goal)
                ).encode()
                shown[number, cell[0] * grid.width + cell[1]] = observations.setdefault(observation, len(observations))
        return cls(
            next=np.stack([np.asarray(process.transitions) for process in processes]),
            shown=shown,
            start=np.array([int(process.start.argmax()) for process in processes]),
            utility=np.stack([process.utility for process in processes]),
            horizon=horizon,
        )

    def __post_init__(self) -> None:
        successor = to_array("next", self.next)
        sizes = check_shape("next", successor, "N S A")
        if sizes["N"] > MOST_WORLDS:
            raise ValueError(
                f"an enumerated prior must have at most {MOST_WORLDS} worlds, got {sizes['N']}: take a sample of them"
            )
        prior = np.full(sizes["N"], 1 / sizes["N"]) if self.prior is None else to_array("prior", self.prior)
        parts = {"shown": (self.shown, "N S"), "start": (self.start, "N"), "utility": (self.utility, "N S")}
        parts["prior"] = (prior, "N")
        if self.terminal_utility is not None:
            parts["terminal_utility"] = (self.terminal_utility, "N S")
        for name, (array, shape) in parts.items():
            check_shape(name, to_array(name, array), shape, sizes)
        for name in ("next", "shown", "start"):
            array = to_array(name, getattr(self, name))
            if not np.issubdtype(array.dtype, np.integer):
                raise ValueError(f"{name} must hold whole numbers, got {array.dtype}")
            if name != "shown":
                refuse_where((array < 0) | (array >= sizes["S"]), array, f"{name} must be states below {sizes['S']}")
            object.__setattr__(self, name, freeze(array.astype(np.int64)))
        prior = to_distributions("prior", prior)
        for name in ("utility", "terminal_utility"):
            if getattr(self, name) is not None:
                values = to_array(name, getattr(self, name)).astype(np.float64)
                check_finite(name, values)
                object.__setattr__(self, name, freeze(values))
        object.__setattr__(self, "prior", freeze(prior))
        check_whole("horizon", self.horizon, 1, "decisions")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InformationProcess:
    """The decision process of the information sets of `HiddenWorlds`.

    Attributes:
        worlds: the prior and its worlds.
        mdp: its states are the information sets; `meg_known`, `RationalityCurve` and `value_iteration` take it.
        sets: for each information set its worlds and their states, ``[K, 2]``.
        last: ``[I]`` the last observation in each set.
    """

    worlds: HiddenWorlds
    mdp: TabularMDP
    sets: tuple[Numbers, ...]
    last: Numbers

    def returns(self, policy: npt.NDArray[np.floating]) -> Array:
        """Return the expected utility in each world, ``[N]``, of an agent that acts by its information set.

        The episode runs in the world itself; the agent carries its information set along.

        Args:
            policy: ``[I, A]`` or, by time, ``[n, I, A]`` action probabilities.
        """
        by_time = np.broadcast_to(policy, (self.worlds.horizon, *np.shape(policy)[-2:]))
        return np.array([self._played(world, by_time) for world in range(len(self.worlds.start))])

    def _played(self, world: int, by_time: Array) -> float:
        current = {(self._first(world), int(self.worlds.start[world])): 1.0}
        total = 0.0
        for probabilities in by_time:
            following: dict[tuple[int, int], float] = {}
            for (info_set, state), mass in current.items():
                total += mass * float(self.worlds.utility[world, state])
                for action, chance in enumerate(probabilities[info_set].tolist()):
                    if chance > 0:
                        successor = int(self.worlds.next[world, state, action])
                        key = self._after(info_set, action, int(self.worlds.shown[world, successor])), successor
                        following[key] = following.get(key, 0.0) + mass * chance
            current = following
        if self.worlds.terminal_utility is not None:
            total += sum(
                mass * float(self.worlds.terminal_utility[world, state]) for (_, state), mass in current.items()
            )
        return total

    def _first(self, world: int) -> int:
        observation = int(self.worlds.shown[world, self.worlds.start[world]])
        return next(
            info_set for info_set in np.flatnonzero(self.mdp.start > 0).tolist() if self.last[info_set] == observation
        )

    def _after(self, info_set: int, action: int, observation: int) -> int:
        table = self.mdp.transitions
        row = info_set * self.mdp.actions + action
        reached = table.indices[table.indptr[row] : table.indptr[row + 1]]  # type: ignore[union-attr]
        return next(int(successor) for successor in reached if self.last[successor] == observation)


def information_process(worlds: HiddenWorlds) -> InformationProcess:
    """Return the decision process over the information sets of an agent with perfect recall.

    Raises:
        ValueError: more than 200,000 information sets.
    """
    prior = np.asarray(worlds.prior)
    numbers, queue, depth = dict[Members, int](), list[Members](), list[int]()

    def number(members: Members, level: int) -> int:
        if members not in numbers:
            if len(queue) >= MOST_SETS:
                raise ValueError(
                    f"a prior must have at most {MOST_SETS:,} information sets, got more within {level} of "
                    f"{worlds.horizon} decisions: take fewer worlds, fewer cells or a shorter horizon"
                )
            numbers[members] = len(queue)
            queue.append(members)
            depth.append(level)
        return numbers[members]

    def mass(members: Members) -> float:
        return float(sum(prior[world] for world, _ in members))

    initial = [(world, int(state)) for world, state in enumerate(worlds.start) if prior[world] > 0]
    start = {number(members, 0): mass(members) for members in _split(worlds, initial)}
    possible, probabilities = list[tuple[int, int, int]](), list[float]()
    for info_set, members in enumerate(queue):  # the queue grows during the loop
        for action in range(worlds.next.shape[2]):
            successors = [(world, int(worlds.next[world, state, action])) for world, state in members]
            # No decision follows the horizon: a set first reached there leads to itself.
            for part in _split(worlds, successors) if depth[info_set] < worlds.horizon else [members]:
                possible.append((info_set, action, number(part, depth[info_set] + 1)))
                probabilities.append(mass(part) / mass(members))
    sets = tuple(freeze(np.array(members, dtype=np.int64)) for members in queue)
    initial_probabilities = np.zeros(len(sets))
    initial_probabilities[list(start)] = list(start.values())
    mdp = TabularMDP.sparse(
        possible,
        probabilities,
        actions=worlds.next.shape[2],
        start=initial_probabilities,
        utility=_expected(worlds.utility, sets, prior),
        horizon=worlds.horizon,
        terminal_utility=None if worlds.terminal_utility is None else _expected(worlds.terminal_utility, sets, prior),
    )
    last = np.array([worlds.shown[world, state] for ((world, state), *_) in (rows.tolist() for rows in sets)])
    return InformationProcess(worlds=worlds, mdp=mdp, sets=sets, last=freeze(last))


def _split(worlds: HiddenWorlds, members: Sequence[tuple[int, int]]) -> list[Members]:
    """Return the parts of a set with different observations, each sorted by world."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for world, state in members:
        parts.setdefault(int(worlds.shown[world, state]), []).append((world, state))
    return [tuple(part) for part in parts.values()]


def _expected(values: Array, sets: Sequence[Numbers], prior: Array) -> Array:
    """Return the expected value in each information set."""
    return np.array([np.average(values[pairs[:, 0], pairs[:, 1]], weights=prior[pairs[:, 0]]) for pairs in sets])
