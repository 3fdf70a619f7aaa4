"""Optimal actions for an environment of Gymnasium in which an agent is already acting.

The environment itself decides what happens. Its state is read after every step and looked up in a table of all states,
which was enumerated and solved in advance, and every step is compared with the table. Nothing but ``info`` changes.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from goalscope._ground.extras import lacking
from goalscope._ground.ids import content_id
from goalscope.goals.meg import RationalityCurve, meg_known
from goalscope.integrations.gymnasium.minigrid import LevelAsItIs, LevelSimulator
from goalscope.integrations.gymnasium.toy_text import ToyTextAsItIs
from goalscope.worlds.environments.environment import Environment
from goalscope.worlds.environments.playback import Mismatch, play_back
from goalscope.worlds.environments.solution import LIMIT, SolvedTable, VisitedStates, enumerate_states, solve_table
from goalscope.worlds.environments.world import Believed

try:
    import gymnasium
except ImportError as _error:
    raise lacking("an oracle for environments of Gymnasium needs gymnasium", "gymnasium", _error) from _error

FACTOR: Final = 1.5
"""Decisions of an episode that MEG takes, as a multiple of the shortest path, without chance."""
PLAYED: Final = 6
"""Episodes of the play-back of a layout; every step of the wrapper is compared with the table, too."""

_LAYOUTS: Final = 256  # layouts cached over all wrappers; the least recently used layout is dropped first
_BELIEVED: Final[OrderedDict[tuple[str, int], Believed]] = OrderedDict()

StateOf = Callable[[Any], Hashable]
Key = TypeVar("Key")
Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True, eq=False)
class LaidOut:
    """An environment with one layout (its walls, objects and rules) and one initial state, all states of which are
    solved.

    Attributes:
        id: id of layout, initial state and horizon, which is the cluster of intervals over several layouts.
        believed: the environment with this layout, enumerated and solved.
        start: index of the initial state.
        horizon: number of decisions per episode for its goal-directedness (MEG), by default `FACTOR` times the shortest
            path plus one.
    """

    id: str
    believed: Believed
    start: int
    horizon: int
    _curves: dict[str, RationalityCurve] = field(default_factory=dict, init=False, repr=False)

    @property
    def goals(self) -> Mapping[str, Any]:
        """For each named goal of the environment, ``[S]`` bool: which of the S states fulfil it."""
        return self.believed.table.goals

    def reached(self, state: int) -> bool:
        """Return whether a state (by its index) fulfils the environment's main goal."""
        return bool(self.believed.table.goal[state])

    def curve(self, goal: str) -> RationalityCurve:
        """Return the rationality curve of a goal, from which goal-directedness (MEG) is computed; it is cached.

        The reward is 1 per decision taken in a goal state.
        """
        if goal not in self._curves:
            reward = self.goals[goal].astype(np.float64)
            start = np.zeros(len(reward))
            start[self.start] = 1.0
            process = replace(self.believed.process, start=start)
            self._curves[goal] = RationalityCurve(process.mdp(reward, self.horizon, terminal=None))
        return self._curves[goal]

    def optimal(self, state: int, taken: int) -> Any:
        """Return which of the A actions are optimal in a state (by its index), ``[A]`` bool.

        ``taken`` is the number of actions taken before, which matters only in a stochastic environment; after the
        horizon no action is optimal there.
        """
        best = self.believed.solved.optimal
        if best is not None:
            return best[state].copy()
        if taken >= self.horizon:
            return np.zeros(len(self.believed.table.actions), dtype=bool)
        return self.believed.by_time(self.horizon)[taken, state].copy()

    def distance(self, state: int) -> int:
        """Return the number of steps from a state (by its index) to the goal.

        It is -1 if the goal cannot be reached or the environment is stochastic.
        """
        distance = self.believed.solved.distance
        return -1 if distance is None else int(distance[state])

    def regret(self, state: int, action: int, following: int, taken: int) -> float:
        """Return the regret of an action: the number of steps to the goal that it lost.

        In a stochastic environment, it is by how much the action lowers the expected number of decisions at the goal
        within the horizon. NaN if the goal was already out of reach.

        Args:
            state, action: index of the state, and the action taken there.
            following: index of the state to which it led.
            taken: number of actions taken before.
        """
        if self.believed.solved.distance is not None:
            return _steps_lost(self.distance(state), self.distance(following))
        if taken >= self.horizon:
            return float("nan")
        values = self.believed.action_values(self.horizon)[taken, state]
        return float(max(0.0, values[self.believed.table.offered[state]].max() - values[action]))


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchedLayout:
    """An environment with one layout that is too large to enumerate: optimal actions are searched in each visited
    state.

    It has the interface of `LaidOut`, but no further goals and no goal-directedness (MEG).

    Attributes:
        id: id of layout and initial state.
        visited: the search over visited states.
        horizon: 0, because MEG is not computed.
    """

    id: str
    visited: VisitedStates
    horizon: int = 0
    states: list[Any] = field(default_factory=list, init=False, repr=False)
    _number: dict[Any, int] = field(default_factory=dict, init=False, repr=False)

    def number(self, state: Any) -> int:
        """Return the index of a state; at the first visit, the state gets a new index."""
        if state not in self._number:
            self._number[state] = len(self.states)
            self.states.append(state)
        return self._number[state]

    def optimal(self, state: int, taken: int) -> Any:
        """Return which of the A actions are optimal in a state (by its index), ``[A]`` bool; ``taken`` does not matter
        here.
        """
        return self.visited.optimal(self.states[state])

    def distance(self, state: int) -> int:
        """Return the number of steps from a state (by its index) to the goal; -1 if it cannot be reached."""
        return self.visited.distance(self.states[state])

    def reached(self, state: int) -> bool:
        """Return whether a state (by its index) fulfils the goal."""
        return bool(self.visited.environment.goal(self.states[state]))

    def regret(self, state: int, action: int, following: int, taken: int) -> float:
        """Return the number of steps to the goal that an action lost.

        It is infinite if the action put the goal out of reach, and NaN if it already was.

        Args:
            state, action: index of the state, and the action taken there.
            following: index of the state to which it led.
            taken: number of actions taken before, which does not matter here.
        """
        return _steps_lost(self.distance(state), self.distance(following))


def _steps_lost(before: int, after: int) -> float:
    return float("nan") if before < 0 else float("inf") if after < 0 else float(1 + after - before)


KNOWN: Final[WeakValueDictionary[str, LaidOut]] = WeakValueDictionary()
"""The layouts that wrappers of this process hold, by id."""


class LayoutReader:
    """Finds out, while a Gymnasium environment is played, which layout (walls, objects and rules) and which state it
    has.

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
        """Return the solved layout of an episode that has just begun, and the index of its initial state.

        Raises:
            Mismatch: the initial state is not among the enumerated ones.
        """
        environment: Environment[Any] | None = self._own or self._toy
        key = self._of_toy if self._toy is not None else f"own {id(self)}"
        if environment is None:
            self._level = LevelSimulator(self.real)
            key = content_id("layout", {"level": repr(_seen(self._level))})

        def described() -> Environment[Any]:
            return LevelAsItIs(self.real) if environment is None else environment

        def searched() -> SearchedLayout:
            visited = VisitedStates(described(), self._limit)
            return SearchedLayout(id=content_id("layout", visited.environment.describe()), visited=visited)

        def believed_layout() -> Believed:
            given = described()
            solved = solve_table(enumerate_states(given, self._limit))
            return Believed(given, solved, play_back(solved, lambda: given, episodes=PLAYED))

        if self._search:
            layout = _kept(self._visited, key, searched)
            return layout, layout.number(self._read())
        believed = _kept(_BELIEVED, (key, self._limit), believed_layout)
        number = believed.table.index.get(self._read())
        if number is None:
            raise Mismatch(
                f"the episode began in {self._read()!r:.200}, which is not among the enumerated states: add "
                "it to the initial states of the environment description"
            )
        return self._laid_out_at(key, believed, number), number

    def after(self, layout: LaidOut | SearchedLayout, state: int, action: int, terminated: bool) -> int:
        """Return the index of the state to which an action in the environment has led.

        Args:
            layout: the layout of the episode.
            state, action: index of the state before, and the action taken there.
            terminated: whether the environment ended the episode.

        Raises:
            Mismatch: the environment behaved differently from its table.
        """
        hidden = terminated and self._own is None  # the state after the end cannot be read
        if isinstance(layout, SearchedLayout):
            before = layout.states[state]
            after = layout.visited.following(before)[action]
            if layout.visited.environment.done(after) == terminated and (hidden or self._read() == after):
                return layout.number(after)
            raise _mismatch(layout.visited.actions[action], before, terminated)
        table = layout.believed.table
        possible = table.triples[table.outcomes(state, action), 2].tolist() or [state]
        if hidden and self._toy is None:
            state_number = next((number for number in possible if table.done[number]), -1)
        else:
            now: Any = self._read()
            if self._toy is not None and terminated:
                now = self._toy.after(table.states[state], action, now)
            state_number = table.index.get(now, -1)
        if state_number not in possible or bool(table.done[state_number]) != terminated:
            raise _mismatch(table.actions[action], table.states[state], terminated)
        return int(state_number)

    def _read(self) -> Hashable:
        if self._state is not None:
            return self._state(self.real)
        return int(self.real.s) if self._toy is not None else self._level.read()  # type: ignore[union-attr]

    def _laid_out_at(self, key: str, believed: Believed, number: int) -> LaidOut:
        horizon = self._decisions(believed.solved, number)
        described = {"of": believed.environment.describe(), "state": number, "horizon": horizon}
        identity = content_id("layout", described)

        def laid_out() -> LaidOut:
            layout = LaidOut(id=identity, believed=believed, start=number, horizon=horizon)
            return KNOWN.setdefault(identity, layout)

        return _kept(self._laid_out, f"{key} {identity}", laid_out, 4 * _LAYOUTS)

    def _decisions(self, solved: SolvedTable, number: int) -> int:
        if self._horizon is not None:
            return self._horizon
        if solved.distance is not None:
            return min(int(FACTOR * max(0, int(solved.distance[number]))) + 1, self._most or 2**31)
        if self._most is None:
            raise ValueError("a stochastic environment without a time limit needs a horizon: set horizon=N")
        return int(self._most)


def _kept(cache: OrderedDict[Key, Kept], key: Key, make: Callable[[], Kept], most: int = _LAYOUTS) -> Kept:
    """Return the entry of a cache, made if it is missing; the least recently used entry is dropped beyond ``most``."""
    if key not in cache:
        cache[key] = make()
        if len(cache) > most:
            cache.popitem(last=False)
    cache.move_to_end(key)
    return cache[key]


def _mismatch(action: str, before: Any, terminated: bool) -> Mismatch:
    return Mismatch(
        f"{action!r} in {before!r:.200} must do what the table or the search predicts, but the environment did "
        f"something else (over: {terminated}): either its state contains more than is read, or a wrapper changes "
        "actions or episode ends. Remove the wrapper, or give oracle(env, environment=..., state=...) with the "
        "complete state"
    )


def _seen(level: LevelSimulator) -> tuple[Any, ...]:
    """Return all values that distinguish one layout from another."""
    objects = [(item.type, item.color) for item in level.movable]
    return type(level.real).__name__, level.size, level.layout(), objects, level.read(), str(level.real.mission)


class OracleEnv(gymnasium.Wrapper):  # type: ignore[misc]
    """Wrapper of a Gymnasium environment that adds exact optimal actions to ``info["goalscope"]``.

    After the last step of an episode, whether terminated or truncated, the key "episode" summarises this episode. The
    summary has no intervals; see `goalscope.environments.TrainingCurve` for these. Its keys:

    * "success", "length"; "accuracy", the share of optimal steps among the steps in states that have an optimal
      action; "path_ratio", the number of steps divided by the length of a shortest path, NaN if the goal was not
      reached;
    * "regret", the sum of regrets over the steps;
    * "returns": goal -> number of decisions, among the first "horizon", that began in a goal state; NaN if the episode
      was truncated earlier;
    * "meg", "meg_bound": goal -> signed MEG (maximum-entropy goal-directedness) of that return in nats, and the
      greatest MEG that the layout admits;
    * "world": id of layout, initial state and horizon.

    Args:
        env, environment, state, goals, horizon, limit, search: as in `goalscope.environments.oracle`.
    """

    _layout: LaidOut | SearchedLayout
    _path: list[int]
    _chosen: list[float]
    _regret: float

    def __init__(
        self,
        env: Any,
        *,
        environment: Environment[Any] | None,
        state: StateOf | None,
        goals: Sequence[str] | None,
        horizon: int | None,
        limit: int,
        search: bool = False,
    ) -> None:
        super().__init__(env)
        self._goals = goals
        self._reader = LayoutReader(env, environment, state, horizon, limit, search)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, like Gymnasium's `reset`; ``info["goalscope"]`` has the optimal actions and the distance to
        the goal.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self._layout, number = self._reader.begin()
        self._path, self._chosen, self._regret = [number], [], 0.0
        return observation, {**info, "goalscope": self._now()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action, like Gymnasium's `step`; ``info["goalscope"]`` says whether it was optimal, and what is
        optimal next.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        layout, before, steps = self._layout, self._path[-1], len(self._path) - 1
        number = int(action)
        optimal = layout.optimal(before, steps)
        following = self._reader.after(layout, before, number, bool(terminated))
        regret = layout.regret(before, number, following, steps)
        self._path.append(following)
        self._chosen.append(float(optimal[number]) if optimal.any() else math.nan)
        self._regret += 0.0 if math.isnan(regret) else regret
        step_info = {**self._now(), "was_optimal": bool(optimal[number]), "regret": regret}
        if terminated or truncated:
            step_info["episode"] = self._episode(bool(terminated))
        return observation, reward, terminated, truncated, {**info, "goalscope": step_info}

    def _now(self) -> dict[str, Any]:
        number, steps = self._path[-1], len(self._path) - 1
        return {"optimal": self._layout.optimal(number, steps), "distance": self._layout.distance(number)}

    def _episode(self, terminated: bool) -> dict[str, Any]:
        layout = self._layout
        success, length = layout.reached(self._path[-1]), len(self._path) - 1
        shortest = layout.distance(self._path[0])
        decided = [share for share in self._chosen if not math.isnan(share)]
        info: dict[str, Any] = {
            "success": success,
            "length": length,
            "accuracy": float(np.mean(decided)) if decided else math.nan,
            "path_ratio": length / shortest if success and shortest > 0 else math.nan,
            "regret": self._regret,
            "world": layout.id,
            "horizon": layout.horizon,
        }
        if isinstance(layout, SearchedLayout):
            return {**info, "returns": {}, "meg": {}, "meg_bound": {}}
        names = [name for name in (layout.goals if self._goals is None else self._goals) if name in layout.goals]
        returns = {name: self._return(layout.goals[name], terminated) for name in names}
        curves = {name: layout.curve(name) for name in names}
        meg = {
            name: math.nan if math.isnan(returns[name]) else meg_known(curve, returns=[returns[name]]).signed
            for name, curve in curves.items()
        }
        return {
            **info,
            "returns": returns,
            "meg": meg,
            "meg_bound": {name: share.bound for name, share in curves.items()},
        }

    def _return(self, where: Any, terminated: bool) -> float:
        """Count the decisions within the horizon that began in a state which fulfils the goal."""
        horizon = self._layout.horizon
        if len(self._path) - 1 < horizon and not terminated:
            return math.nan
        path = [*self._path, *[self._path[-1]] * horizon][:horizon]
        return float(np.count_nonzero(where[path]))


def oracle(
    env: Any,
    *,
    environment: Environment[Any] | None = None,
    state: StateOf | None = None,
    goals: Sequence[str] | None = ("goal",),
    horizon: int | None = None,
    limit: int = LIMIT,
    search: bool = False,
) -> Any:
    """Wrap a Gymnasium environment so that ``info`` contains exact optimal actions; nothing else changes.

    After `reset` and after each step, ``info["goalscope"]`` contains "optimal" (``[A]`` bool) and "distance" (steps,
    or -1 if undefined). After a step it also contains "was_optimal" and "regret" for the action just taken. Regret is
    the number of steps that the action lost, and infinite if the action put the goal out of reach. In a stochastic
    environment, regret is by how much the action lowers the expected number of decisions that begin at the goal. After
    the last step, "episode" summarises the episode, see `goalscope.integrations.gymnasium.oracle.OracleEnv`.

    Args:
        env: an environment with a table ``P``, or a MiniGrid or BabyAI level. It may have wrappers that do not change
            actions or episode ends. A vectorised environment with an attribute ``envs`` in this process works too. For
            other vectorised environments, use ``gymnasium.make_vec(..., wrappers=[oracle])``.
        environment, state: for any other environment, its rules and a function that maps ``env.unwrapped`` to its
            state.
        goals: names of the goals for which "episode" has the MEG (maximum-entropy goal-directedness: how well seeking
            the goal explains the actions, in nats); None for all goals of the environment, () for none.
        horizon: number of decisions for MEG; by default ``int(1.5 shortest) + 1``, or the time limit if the
            environment is stochastic.
        limit: maximum number of states of the environment with one layout of its walls and objects (see
            `enumerate_states`), or of states that a search expands.
        search: whether to find optimal actions by A* search from each visited state instead of enumerating all states.
            Use it for deterministic levels that are too large to enumerate; MEG is then not available.

    Raises:
        ValueError: an environment whose state cannot be read, or that is too large.
        Mismatch: during `reset` or `step`, an environment that behaves differently from its table.
        ImportError: Gymnasium is missing.
    """
    from goalscope.integrations.gymnasium.oracle import OracleEnv

    options: dict[str, Any] = {"goals": goals, "horizon": horizon, "limit": limit, "search": search}
    holder = getattr(env, "unwrapped", env)
    if isinstance(inner := getattr(holder, "envs", None), list | tuple):
        holder.envs = type(inner)(
            oracle(environment_inside, environment=environment, state=state, **options) for environment_inside in inner
        )
        return env
    if hasattr(env, "num_envs"):
        raise ValueError(
            f"a vectorised environment must run in this process, got {type(env).__name__}: wrap each "
            "environment when you make it, gymnasium.make_vec(name, n, wrappers=[oracle])"
        )
    return OracleEnv(env, environment=environment, state=state, **options)
