"""What is optimal in an environment that an agent already acts in.

The environment itself decides all that happens. Its state is read and looked up in a table that was enumerated, solved
and played back, and every step is compared with the table.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from goalscope._ground.ids import content_id
from goalscope.goals.meg import RationalityCurve
from goalscope.integrations.gymnasium.levels import LevelSimulator
from goalscope.integrations.gymnasium.minigrid import LevelAsItIs
from goalscope.integrations.gymnasium.toy_text import ToyTextAsItIs
from goalscope.worlds.environments.environment import Environment
from goalscope.worlds.environments.playback import Mismatch, play_back
from goalscope.worlds.environments.search import VisitedStates
from goalscope.worlds.environments.solution import SolvedTable, solve_table
from goalscope.worlds.environments.table import enumerate_states
from goalscope.worlds.planning.mdp import Values, value_iteration

FACTOR: Final = 1.5
"""Decisions of an episode that MEG takes, as a multiple of the shortest path, without chance."""
PLAYED: Final = 6
"""Episodes of the play-back of a layout; every step of the wrapper is compared with the table, too."""

_LAYOUTS: Final = 256  # kept of all wrappers; the least recently used one is dropped first
_SOLVED: Final[OrderedDict[tuple[str, int], tuple[Environment[Any], SolvedTable]]] = OrderedDict()

StateOf = Callable[[Any], Hashable]


@dataclass(frozen=True, kw_only=True, eq=False)
class LaidOut:
    """A layout from one beginning: what is optimal in it, and how far MEG looks.

    Attributes:
        id: of layout, beginning and horizon; what intervals count where there are several.
        environment: the environment of the layout.
        solved: enumerated and solved.
        start: number of the first state.
        horizon: decisions of an episode: `FACTOR` times the shortest path, and one more, or as given.
    """

    id: str
    environment: Environment[Any]
    solved: SolvedTable
    start: int
    horizon: int
    _curves: dict[str, RationalityCurve] = field(default_factory=dict, init=False, repr=False)

    @property
    def goals(self) -> Mapping[str, Any]:
        """Name -> ``[S]`` bool, where each goal is fulfilled."""
        return self.solved.table.goals

    def reached(self, state: int) -> bool:
        """Return whether a state is the goal."""
        return bool(self.solved.table.goal[state])

    def curve(self, goal: str) -> RationalityCurve:
        """Return the rationality curve of a goal: 1 for each decision that begins there; computed once."""
        if goal not in self._curves:
            table = self.solved.table
            start = np.zeros(len(table.states))
            start[self.start] = 1.0
            base = table.mdp(table.goals[goal], self.horizon)
            mdp = type(base)(
                transitions=base.transitions,
                utility=base.utility,
                horizon=self.horizon,
                start=start,
                offered=base.offered,
            )
            self._curves[goal] = RationalityCurve(mdp)
        return self._curves[goal]

    @cached_property
    def values(self) -> Values:
        """Values by decisions left, for environments with chance."""
        return value_iteration(self.solved.table.mdp(horizon=self.horizon))

    def optimal(self, state: int, taken: int) -> Any:
        """Return ``[A]`` bool, the optimal actions in a state after a number of actions; empty after the horizon."""
        table = self.solved.table
        if self.solved.optimal is not None:
            return self.solved.optimal[state].copy()
        if taken >= self.horizon or table.done[state]:
            return np.zeros(len(table.actions), dtype=bool)
        values = self.values.action_values[taken, state]
        return self.values.optimal[taken, state] & bool(np.ptp(values) > 1e-12 * self.horizon)

    def distance(self, state: int) -> int:
        """Return the fewest steps to the goal, -1 where it cannot be reached and where there is chance."""
        return -1 if self.solved.distance is None else int(self.solved.distance[state])

    def regret(self, state: int, action: int, following: int, taken: int) -> float:
        """Return what an action lost: steps, or with chance expected decisions at the goal; NaN where all was lost."""
        if self.solved.distance is not None:
            return _steps_lost(self.distance(state), self.distance(following))
        if taken >= self.horizon:
            return float("nan")
        values = self.values.action_values[taken, state]
        return float(max(0.0, values[self.solved.table.offered[state]].max() - values[action]))


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchedLayout:
    """A layout whose states are searched as they are met: as `LaidOut`, without further goals and without MEG.

    Attributes:
        id: of layout and beginning.
        visited: the search.
        horizon: 0, since no MEG is taken.
    """

    id: str
    visited: VisitedStates
    horizon: int = 0
    _states: list[Any] = field(default_factory=list, init=False, repr=False)
    _number: dict[Any, int] = field(default_factory=dict, init=False, repr=False)

    def number(self, state: Any) -> int:
        """Return the number of a state, a new one where it is met for the first time."""
        if state not in self._number:
            self._number[state] = len(self._states)
            self._states.append(state)
        return self._number[state]

    def optimal(self, state: int, taken: int) -> Any:
        """Return ``[A]`` bool, the optimal actions in a state."""
        return self.visited.optimal(self._states[state])

    def distance(self, state: int) -> int:
        """Return the fewest steps to the goal, -1 where it cannot be reached."""
        return self.visited.distance(self._states[state])

    def reached(self, state: int) -> bool:
        """Return whether a state is the goal."""
        return bool(self.visited.environment.goal(self._states[state]))

    def regret(self, state: int, action: int, following: int, taken: int) -> float:
        """Return the steps that an action lost; NaN where all was lost before, infinite where it is now."""
        return _steps_lost(self.distance(state), self.distance(following))

    def after(self, state: int, action: int, now: Any, terminated: bool) -> int:
        """Return the number of the state to which an action led; ``now`` is what was read, None where it is over."""
        expected = self.visited.following(self._states[state])[action]
        if self.visited.environment.done(expected) != terminated or (now is not None and now != expected):
            raise Mismatch(
                f"action {action} in {self._states[state]!r:.200} must lead to {expected!r:.200}, but the environment "
                f"did something else (over: {terminated}): its state holds more than is read, or a wrapper below "
                "changes actions or ends"
            )
        return self.number(expected)


def _steps_lost(before: int, after: int) -> float:
    return float("nan") if before < 0 else float("inf") if after < 0 else float(1 + after - before)


KNOWN: Final[WeakValueDictionary[str, LaidOut]] = WeakValueDictionary()
"""The layouts that wrappers of this process hold, by id."""


class LayoutReader:
    """Reads the layouts and states of an environment.

    Args:
        env: an environment of Gymnasium.
        environment, state, horizon, limit, search: as in `oracle`.

    Raises:
        ValueError: an environment whose state cannot be read.
    """

    def __init__(
        self,
        env: Any,
        environment: Environment[Any] | None,
        state: StateOf | None,
        horizon: int | None,
        limit: int,
        search: bool = False,
    ) -> None:
        self._search = search
        self.real, self._own, self._state, self._limit = env.unwrapped, environment, state, limit
        spec = getattr(env, "spec", None)
        self._most = None if spec is None else spec.max_episode_steps
        self._horizon = horizon
        self._laid_out: OrderedDict[str, LaidOut] = OrderedDict()
        self._visited: OrderedDict[str, SearchedLayout] = OrderedDict()
        self._toy: ToyTextAsItIs | None = None
        self._level: LevelSimulator | None = None
        if (environment is None) != (state is None):
            raise ValueError("environment and state must be given together, got one of them")
        if environment is None and hasattr(self.real, "P"):
            self._toy = ToyTextAsItIs(self.real)
            self._of_toy = content_id("layout", self._toy.describe())
        elif environment is None and not all(hasattr(self.real, name) for name in ("agent_pos", "agent_dir", "grid")):
            raise ValueError(
                f"an environment must have a table P or be a level of MiniGrid, got {type(self.real).__name__}: "
                "describe it as a goalscope.environments.Environment and give oracle(env, environment=..., state=...), "
                "a function of the Gymnasium environment to its state"
            )

    def begin(self) -> tuple[LaidOut | SearchedLayout, int]:
        """Return the layout of the episode that begins, and the number of its state."""
        environment: Environment[Any] | None = self._own or self._toy
        key = self._of_toy if self._toy is not None else f"own {id(self)}"
        if environment is None:
            self._level = LevelSimulator(self.real)
            key = content_id("layout", {"level": repr(_seen(self._level))})
        if self._search:
            return self._searched(key, environment)
        environment, solved = self._solve(key, environment)
        number = solved.table.index.get(self._read())
        if number is None:
            raise Mismatch(f"an episode must begin in a state that was enumerated, got {self._read()!r:.200}")
        return self._from(key, environment, solved, number), number

    def after(self, layout: LaidOut | SearchedLayout, state: int, action: int, terminated: bool) -> int:
        """Return the number of the state that an action led to.

        Raises:
            Mismatch: the environment does something else than its table.
        """
        if isinstance(layout, SearchedLayout):
            return layout.after(state, action, None if terminated and self._own is None else self._read(), terminated)
        table = layout.solved.table
        possible = table.triples[table.outcomes(state, action), 2].tolist() or [state]
        if self._own is None and terminated and self._toy is None:
            state_number = next((number for number in possible if table.done[number]), -1)
        else:
            now: Any = self._read()
            if self._toy is not None and terminated:
                now = self._toy.after(table.states[state], action, now)
            state_number = table.index.get(now, -1)
        if state_number not in possible or bool(table.done[state_number]) != terminated:
            raise Mismatch(
                f"{table.actions[action]!r} in {table.states[state]!r:.200} must do what the table says, but the "
                f"environment did something else (over: {terminated}): its state holds more than is read, or a wrapper "
                "below changes actions or ends"
            )
        return int(state_number)

    def _read(self) -> Hashable:
        if self._state is not None:
            return self._state(self.real)
        return int(self.real.s) if self._toy is not None else self._level.read()  # type: ignore[union-attr]

    def _searched(self, key: str, given: Environment[Any] | None) -> tuple[SearchedLayout, int]:
        """Return the layout of the episode with what was learnt of it so far, and the number of the first state."""
        if key not in self._visited:
            environment = LevelAsItIs(self.real) if given is None else given
            visited = VisitedStates(environment, self._limit)
            self._visited[key] = SearchedLayout(id=content_id("layout", environment.describe()), visited=visited)
            while len(self._visited) > _LAYOUTS:
                self._visited.popitem(last=False)
        self._visited.move_to_end(key)
        return self._visited[key], self._visited[key].number(self._read())

    def _solve(self, key: str, given: Environment[Any] | None) -> tuple[Environment[Any], SolvedTable]:
        place = key, self._limit
        if place not in _SOLVED:
            environment = LevelAsItIs(self.real) if given is None else given
            solved = solve_table(enumerate_states(environment, self._limit))
            play_back(solved, lambda: environment, episodes=PLAYED)
            _SOLVED[place] = environment, solved
            while len(_SOLVED) > _LAYOUTS:
                _SOLVED.popitem(last=False)
        _SOLVED.move_to_end(place)
        return _SOLVED[place]

    def _from(self, key: str, environment: Environment[Any], solved: SolvedTable, number: int) -> LaidOut:
        horizon = self._decisions(solved, number)
        layout_id = content_id("layout", {"of": environment.describe(), "state": number, "horizon": horizon})
        name = f"{key} {layout_id}"
        if name not in self._laid_out:
            laid_out = LaidOut(id=layout_id, environment=environment, solved=solved, start=number, horizon=horizon)
            self._laid_out[name] = KNOWN.setdefault(layout_id, laid_out)
            while len(self._laid_out) > 4 * _LAYOUTS:
                self._laid_out.popitem(last=False)
        self._laid_out.move_to_end(name)
        return self._laid_out[name]

    def _decisions(self, solved: SolvedTable, number: int) -> int:
        if self._horizon is not None:
            return self._horizon
        if solved.distance is not None:
            return min(int(FACTOR * max(0, int(solved.distance[number]))) + 1, self._most or 2**31)
        if self._most is None:
            raise ValueError("with chance a horizon must be given where the environment has no time limit: horizon=N")
        return int(self._most)


def _seen(level: LevelSimulator) -> tuple[Any, ...]:
    """Return all that tells one layout from another."""
    objects = [(item.type, item.color) for item in level.movable]
    return type(level.real).__name__, level.size, level.layout(), objects, level.read(), str(level.real.mission)
