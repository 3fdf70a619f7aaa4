"""Optimal actions for an environment in which an agent is already acting.

The environment itself decides what happens. Its state is read after every step and looked up in a table of all states,
which was enumerated and solved in advance, and every step is compared with the table.
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
from goalscope.integrations.gymnasium.minigrid import LevelAsItIs, LevelSimulator
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

_LAYOUTS: Final = 256  # layouts cached over all wrappers; the least recently used layout is dropped first
_SOLVED: Final[OrderedDict[tuple[str, int], tuple[Environment[Any], SolvedTable]]] = OrderedDict()

StateOf = Callable[[Any], Hashable]


@dataclass(frozen=True, kw_only=True, eq=False)
class LaidOut:
    """Solved layout with one initial state, and the horizon of its MEG.

    Attributes:
        id: id of layout, initial state and horizon, which is the cluster of intervals over several layouts.
        environment: the environment with this layout.
        solved: the enumerated and solved environment.
        start: index of the initial state.
        horizon: number of decisions per episode, by default `FACTOR` times the shortest path plus one.
    """

    id: str
    environment: Environment[Any]
    solved: SolvedTable
    start: int
    horizon: int
    _curves: dict[str, RationalityCurve] = field(default_factory=dict, init=False, repr=False)

    @property
    def goals(self) -> Mapping[str, Any]:
        """Map each goal's name to ``[S]`` bool, whether each state fulfils the goal."""
        return self.solved.table.goals

    def reached(self, state: int) -> bool:
        """Return whether a state fulfils the goal."""
        return bool(self.solved.table.goal[state])

    def curve(self, goal: str) -> RationalityCurve:
        """Return the cached rationality curve of a goal, with reward 1 per decision taken in a goal state."""
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
        """Values by number of remaining decisions, for stochastic environments."""
        return value_iteration(self.solved.table.mdp(horizon=self.horizon))

    def optimal(self, state: int, taken: int) -> Any:
        """Return ``[A]`` bool, the optimal actions in a state after ``taken`` actions; all False after the horizon."""
        table = self.solved.table
        if self.solved.optimal is not None:
            return self.solved.optimal[state].copy()
        if taken >= self.horizon or table.done[state]:
            return np.zeros(len(table.actions), dtype=bool)
        values = self.values.action_values[taken, state]
        return self.values.optimal[taken, state] & bool(np.ptp(values) > 1e-12 * self.horizon)

    def distance(self, state: int) -> int:
        """Return the number of steps to the goal, or -1 if it cannot be reached or the environment is stochastic."""
        return -1 if self.solved.distance is None else int(self.solved.distance[state])

    def regret(self, state: int, action: int, following: int, taken: int) -> float:
        """Return the regret of an action.

        The unit is steps, or expected decisions at the goal in a stochastic environment. NaN if the goal was already
        out of reach.
        """
        if self.solved.distance is not None:
            return _steps_lost(self.distance(state), self.distance(following))
        if taken >= self.horizon:
            return float("nan")
        values = self.values.action_values[taken, state]
        return float(max(0.0, values[self.solved.table.offered[state]].max() - values[action]))


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchedLayout:
    """Layout whose states are searched when the agent visits them.

    It has the interface of `LaidOut`, but no further goals and no MEG.

    Attributes:
        id: id of layout and initial state.
        visited: the search over visited states.
        horizon: 0, because MEG is not computed.
    """

    id: str
    visited: VisitedStates
    horizon: int = 0
    _states: list[Any] = field(default_factory=list, init=False, repr=False)
    _number: dict[Any, int] = field(default_factory=dict, init=False, repr=False)

    def number(self, state: Any) -> int:
        """Return the index of a state, and assign a new index at the first visit."""
        if state not in self._number:
            self._number[state] = len(self._states)
            self._states.append(state)
        return self._number[state]

    def optimal(self, state: int, taken: int) -> Any:
        """Return ``[A]`` bool, whether each action is optimal in a state; the steps taken before do not matter here."""
        return self.visited.optimal(self._states[state])

    def distance(self, state: int) -> int:
        """Return the number of steps to the goal, or -1 if it cannot be reached."""
        return self.visited.distance(self._states[state])

    def reached(self, state: int) -> bool:
        """Return whether a state fulfils the goal."""
        return bool(self.visited.environment.goal(self._states[state]))

    def regret(self, state: int, action: int, following: int, taken: int) -> float:
        """Return the number of steps that an action lost.

        Infinite if the action put the goal out of reach, NaN if it already was.
        """
        return _steps_lost(self.distance(state), self.distance(following))

    def after(self, state: int, action: int, now: Any, terminated: bool) -> int:
        """Return the index of the state ``now`` to which an action led; ``now`` is None if the episode is over."""
        expected = self.visited.following(self._states[state])[action]
        if self.visited.environment.done(expected) != terminated or (now is not None and now != expected):
            raise Mismatch(
                f"action {action} in {self._states[state]!r:.200} must lead to {expected!r:.200}, but the "
                f"environment did something else (over: {terminated}): either its state contains more than is "
                "read, or a wrapper changes actions or episode ends. Remove the wrapper, or give oracle(env, "
                "environment=..., state=...) with the complete state"
            )
        return self.number(expected)


def _steps_lost(before: int, after: int) -> float:
    return float("nan") if before < 0 else float("inf") if after < 0 else float(1 + after - before)


KNOWN: Final[WeakValueDictionary[str, LaidOut]] = WeakValueDictionary()
"""The layouts that wrappers of this process hold, by id."""


class LayoutReader:
    """Reader of an environment's layouts and states.

    Args:
        env: a Gymnasium environment.
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
            raise ValueError(
                "give environment and state together, got only one of them: call oracle(env, "
                "environment=..., state=...)"
            )
        if environment is None and hasattr(self.real, "P"):
            self._toy = ToyTextAsItIs(self.real)
            self._of_toy = content_id("layout", self._toy.describe())
        elif environment is None and not all(hasattr(self.real, name) for name in ("agent_pos", "agent_dir", "grid")):
            raise ValueError(
                f"the state of {type(self.real).__name__} cannot be read: it has no table P and is not a "
                "MiniGrid level. Describe it as a goalscope.environments.Environment and call oracle(env, "
                "environment=..., state=...), where state maps the Gymnasium environment to its state"
            )

    def begin(self) -> tuple[LaidOut | SearchedLayout, int]:
        """Return the layout of a new episode and the index of its initial state."""
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
            raise Mismatch(
                f"the episode began in {self._read()!r:.200}, which is not among the enumerated states: add "
                "it to the initial states of the environment description"
            )
        return self._from(key, environment, solved, number), number

    def after(self, layout: LaidOut | SearchedLayout, state: int, action: int, terminated: bool) -> int:
        """Return the index of the state to which an action led.

        Raises:
            Mismatch: the environment behaved differently from its table.
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
                f"{table.actions[action]!r} in {table.states[state]!r:.200} must do what the table predicts, "
                f"but the environment did something else (over: {terminated}): either its state contains more "
                "than is read, or a wrapper changes actions or episode ends. Remove the wrapper, or give "
                "oracle(env, environment=..., state=...) with the complete state"
            )
        return int(state_number)

    def _read(self) -> Hashable:
        if self._state is not None:
            return self._state(self.real)
        return int(self.real.s) if self._toy is not None else self._level.read()  # type: ignore[union-attr]

    def _searched(self, key: str, given: Environment[Any] | None) -> tuple[SearchedLayout, int]:
        """Return the layout of a new episode, reusing earlier searches of it, and the index of its initial state."""
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
            raise ValueError("a stochastic environment without a time limit needs a horizon: set horizon=N")
        return int(self._most)


def _seen(level: LevelSimulator) -> tuple[Any, ...]:
    """Return all values that distinguish one layout from another."""
    objects = [(item.type, item.color) for item in level.movable]
    return type(level.real).__name__, level.size, level.layout(), objects, level.read(), str(level.real.mission)
