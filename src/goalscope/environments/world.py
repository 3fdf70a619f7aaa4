"""Environments as worlds: sessions move through the enumerated table, which was played back before."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from goalscope.environments.environment import Environment, Observed, build
from goalscope.environments.playback import PlayBack, play_back
from goalscope.environments.solution import SolvedTable, solve_table
from goalscope.environments.table import LIMIT, StateTable, enumerate_states
from goalscope.ids import canonical_json
from goalscope.planning.process import Process
from goalscope.rows import Tag
from goalscope.worlds.world import Oracle, Session, State, View, World, read_plain

Sets = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView(View):
    """What an environment shows.

    Attributes:
        observed: what is seen now.
        names: names of all actions.
        possible: the actions that are offered, None for all.
        number: number of the true state, for scripted agents that know the world; no text of a prompt holds it.
    """

    shows: ClassVar[str] = "an environment"
    observed: Observed
    names: tuple[str, ...]
    possible: tuple[int, ...] | None = None
    number: int = field(default=-1, compare=False)

    @property
    def text(self) -> str:
        """What is seen, in words."""
        return self.observed.text

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return self.names

    @property
    def admissible(self) -> tuple[int, ...] | None:
        """The actions that are offered, None for all."""
        return self.possible


@dataclass(frozen=True, slots=True, eq=False)
class Believed:
    """An environment that was enumerated, solved and played back."""

    environment: Environment[Any]
    solved: SolvedTable
    played: PlayBack
    _towards: dict[str, SolvedTable] = field(default_factory=dict, init=False, repr=False)
    _by_time: dict[int, Sets] = field(default_factory=dict, init=False, repr=False)

    @property
    def table(self) -> StateTable[Any]:
        """The enumerated environment."""
        return self.solved.table

    def towards(self, target: str) -> SolvedTable:
        """Return the solution towards one of its goals, solved once."""
        if target not in self._towards:
            self._towards[target] = solve_table(self.table, target)
        return self._towards[target]

    def by_time(self, horizon: int) -> Sets:
        """Return `SolvedTable.optimal_by_time` of a horizon, solved once."""
        if horizon not in self._by_time:
            self._by_time[horizon] = self.solved.optimal_by_time(horizon)
        return self._by_time[horizon]


def believe(make: Callable[[], Environment[Any]], limit: int = LIMIT, depth: int | None = None) -> Believed:
    """Enumerate, solve and play back an environment.

    Args:
        make: makes it anew.
        limit, depth: see `enumerate_states`.

    Raises:
        Mismatch: it does not do what it says.
        ValueError: it has too many states, or is no environment.
    """
    environment = make()
    solved = solve_table(enumerate_states(environment, limit, depth=depth))
    return Believed(environment, solved, play_back(solved, make))


@lru_cache(maxsize=256)
def _believed(source: str, parameters: str, limit: int, depth: int | None) -> Believed:
    """Return a believed environment, enumerated once for all worlds and stores that name it."""
    return believe(lambda: build(source, json.loads(parameters)), limit, depth)


class EnvironmentSession(Session):
    """One episode in an enumerated environment."""

    def __init__(self, believed: Believed, rng: np.random.Generator) -> None:
        self._environment, self._table, self._rng = believed.environment, believed.table, rng
        begin = np.flatnonzero(self._table.start)
        chances = self._table.start[begin]
        self._at = int(begin[0] if len(begin) == 1 else rng.choice(begin, p=chances / chances.sum()))
        self._reward: float | None = None

    @property
    def view(self) -> EnvironmentView:
        """What is seen now."""
        offered = self._table.offered[self._at]
        return EnvironmentView(
            observed=self._environment.observe(self._table.states[self._at]),
            names=self._table.actions,
            possible=None if offered.all() else tuple(np.flatnonzero(offered).tolist()),
            number=self._at,
        )

    @property
    def state(self) -> State:
        """The number of the state in the table."""
        return (self._at,)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return bool(self._table.done[self._at])

    @property
    def solved(self) -> bool:
        """Whether the goal is reached."""
        return bool(self._table.goal[self._at])

    @property
    def reward(self) -> float | None:
        """The reward of the last action, None where the environment tells none."""
        return self._reward

    def step(self, action: int | None) -> None:
        """Take an action; one that is not offered, and a turn without one, change nothing."""
        bound = self._table.bound
        if bound is not None and self._table.depth[self._at] >= bound:
            raise ValueError(
                f"an episode must stay within the depth to which its environment was searched, {bound} steps: raise "
                "depth, or lower the horizon of the study"
            )
        if action is not None:
            self._at, self._reward = self._table.draw(self._at, action, self._rng)
        else:
            self._reward = None if self._table.reward is None else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class EnvironmentOracle:
    """The exact optimal policy of an environment without chance; states are (number,)."""

    solved: SolvedTable

    @property
    def length(self) -> int:
        """Fewest steps from the beginning to the goal; -1 without a way, or where beginnings differ."""
        return self.solved.length

    def look_up(self, states: Numbers) -> tuple[Sets, Numbers]:
        """Return the optimal sets ``[N, A]`` and the steps to the goal ``[N]`` of states ``[N, D]``."""
        assert self.solved.optimal is not None and self.solved.distance is not None  # no chance, see `oracle`
        at = _numbers(self.solved.table, states)
        return self.solved.optimal[at], self.solved.distance[at]


@dataclass(frozen=True, slots=True, eq=False)
class ChanceOracle:
    """The exact optimal policy of an environment with chance: sets by state and decisions left, no distances."""

    believed: Believed

    @property
    def length(self) -> int:
        """No length: -1."""
        return -1

    def look_up(self, states: Numbers) -> tuple[Sets, Numbers]:
        """Refuse: what is optimal depends on the decisions left, see `look_up_left`."""
        raise ValueError("with chance, optimal sets must be looked up by the decisions left: call look_up_left")

    def look_up_left(self, states: Numbers, left: Numbers) -> Sets:
        """Return the optimal sets ``[N, A]`` of states ``[N, D]`` with ``[N]`` decisions left, this one counted."""
        # The optimal sets of k decisions left are the same whatever the horizon: V_k does not know of it.
        at, most = _numbers(self.believed.table, states), int(left.max(initial=1))
        found: Sets = self.believed.by_time(most)[most - left, at]
        return found


def _numbers(table: StateTable[Any], states: Numbers) -> Numbers:
    """Return the numbers of recorded states, filled up with -1 behind where other worlds have longer ones."""
    at = states[:, 0]
    if ((at < 0) | (at >= len(table.states))).any():
        raise ValueError(
            f"a state of an environment must be a number from 0 to {len(table.states) - 1}, got {at.min()} to "
            f"{at.max()}: the run was made in another version of it"
        )
    return at


@dataclass(frozen=True, kw_only=True)
class EnvironmentWorld(World):
    """An environment and what is known about it.

    A stored world is read without making its environment; what needs it (a run, optimal sets, MEG) makes it then.

    Attributes:
        source: the name of an adapter, or "module:Class".
        parameters: what the environment is made from.
        description: what it said of itself when the study was made; another answer later is refused.
        limit, depth: see `enumerate_states`.
        cluster, tags: as in `World`.
    """

    kind: ClassVar[str] = "environment"
    view: ClassVar[type[View]] = EnvironmentView
    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)
    limit: int = LIMIT
    depth: int | None = None

    @classmethod
    def make(
        cls,
        source: str,
        parameters: Mapping[str, Any],
        *,
        limit: int = LIMIT,
        depth: int | None = None,
        tags: Mapping[str, Tag] | None = None,
    ) -> Self:
        """Return the world of an environment, which is made to ask it what it is."""
        described = json.loads(canonical_json(dict(build(source, parameters).describe())))
        return cls(
            source=source, parameters=parameters, description=described, limit=limit, depth=depth, tags=tags or {}
        )

    @cached_property
    def believed(self) -> Believed:
        """The environment, enumerated, solved and played back.

        Raises:
            ValueError: it cannot be made here, is another one by now, or does not do what it says.
            ImportError: its package is missing; names the extra.
        """
        found = _believed(self.source, canonical_json(dict(self.parameters)), self.limit, self.depth)
        now = canonical_json(dict(found.environment.describe()))
        if now != canonical_json(dict(self.description)):
            raise ValueError(
                f"the environment {self.source} must be what it was when the study was made, "
                f"{canonical_json(dict(self.description))[:300]}, but describes itself as {now[:300]}: restore it, or "
                "make a new run"
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        # What was made of it stays in its process: environments of others need not be fit for pickling.
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def begin(self, rng: np.random.Generator) -> EnvironmentSession:
        """Begin an episode."""
        return EnvironmentSession(self.believed, rng)

    def to_plain(self) -> dict[str, Any]:
        """Return source, parameters, description and limits."""
        return {
            "source": self.source,
            "parameters": dict(self.parameters),
            "description": dict(self.description),
            "limit": self.limit,
            "depth": self.depth,
        }

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from its plain values; nothing is imported or made."""
        kinds = {"source": str, "parameters": Mapping, "description": Mapping, "limit": int, "depth": int | None}
        plain = read_plain(plain, "a stored environment", **kinds)
        return cls(**plain, cluster=cluster, tags=tags or {})

    def oracle(self) -> Oracle | None:
        """Return the exact optimal policy."""
        believed = self.believed
        return ChanceOracle(believed) if believed.solved.optimal is None else EnvironmentOracle(believed.solved)

    def process(self) -> Process:
        """Return the decision process, with the goals that the environment names."""
        return self._process

    @cached_property
    def _process(self) -> Process:
        table = self.believed.table
        base = table.mdp(np.zeros(len(table.states)), 1)
        return Process(
            transitions=base.transitions,
            start=table.start,
            number=lambda states: _numbers(table, states),
            goals={name: np.asarray(where, dtype=np.float64) for name, where in table.goals.items()},
            most=table.bound,
            offered=base.offered,
        )
