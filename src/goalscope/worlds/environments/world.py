"""Environments as worlds: sessions move through the enumerated table, which a play-back has confirmed."""

import io
import json
from collections.abc import Callable, Hashable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import canonical_json
from goalscope._ground.own import consent
from goalscope._ground.progress import TALLY, paced
from goalscope._ground.words import counted
from goalscope.stats.rows import Tag
from goalscope.worlds.environments.environment import Environment, Observed, build, environment_name, goal_name_of
from goalscope.worlds.environments.playback import PlayBack, play_back
from goalscope.worlds.environments.solution import LIMIT, SolvedTable, StateTable, enumerate_states, solve_table
from goalscope.worlds.planning import value_iteration
from goalscope.worlds.planning.process import Process
from goalscope.worlds.world import Drawing, Offer, Oracle, Session, State, View, World, read_plain

Sets = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView(View):
    """What an agent sees of an environment at one moment of an episode.

    Attributes:
        observed: the present observation, a text and possibly an array.
        names: names of all actions.
        possible: numbers of the actions offered now, None for all.
        number: number of the true state, for scripted agents that know the world; prompts never contain it.
    """

    shows: ClassVar[str] = "an environment"
    observed: Observed
    names: tuple[str, ...]
    possible: tuple[int, ...] | None = None
    number: int = field(default=-1, compare=False)

    @property
    def text(self) -> str:
        """The observation in words."""
        return self.observed.text

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of all actions of the environment; an action is its index in this tuple."""
        return self.names

    @property
    def admissible(self) -> tuple[int, ...] | None:
        """Indices of the offered actions; None if all actions are offered."""
        return self.possible


@dataclass(frozen=True, eq=False)
class Believed:
    """An environment that was enumerated, solved exactly, and checked by play (`play_back`), so that its solution is
    reliable.

    Copies that begin in other states (`starting_at`) share everything that was computed.

    Attributes:
        environment: the environment.
        solved: the table of its states and transitions, with distances and optimal actions.
        played: the result of the play-back.
    """

    environment: Environment[Any]
    solved: SolvedTable
    played: PlayBack
    _computed: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def _once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of a computation that is made only once for each key."""
        if key not in self._computed:
            self._computed[key] = compute()
        return self._computed[key]

    @property
    def table(self) -> StateTable[Any]:
        """The states and transitions of the environment as arrays."""
        return self.solved.table

    @property
    def expected_steps(self) -> float:
        """Mean number of steps to the goal of an agent that arrives as often as possible, and then as early as
        possible.

        See `SolvedTable.expected_steps`. The number is computed once for each distribution of the first state.
        """
        steps: float = self._once(("steps", self.table.start.tobytes()), lambda: self.solved.expected_steps)
        return steps

    def towards(self, target: str) -> SolvedTable:
        """Return distances and optimal actions for one of the environment's goals, given by its name; computed once
        per goal.
        """
        if target == self.solved.target:
            return self.solved
        solved: SolvedTable = self._once(("towards", target), lambda: solve_table(self.table, target))
        return solved

    def by_time(self, horizon: int, target: str = "goal") -> Sets:
        """Return the optimal actions for each decision of a horizon of n, ``[n, S, A]`` bool: decisions by states by
        actions.

        See `SolvedTable.optimal_by_time`. Results are computed once per horizon and goal.

        Args:
            horizon: number n of decisions.
            target: name of one of the environment's goals.
        """
        sets: Sets = self._once((horizon, target), lambda: self.towards(target).optimal_by_time(horizon))
        return sets

    def action_values(self, horizon: int) -> npt.NDArray[np.float64]:
        """Return the value of each action for each decision of a horizon of n, ``[n, S, A]``: decisions by states by
        actions.

        A value is the expected number of later decisions that begin at the goal, if all of them are optimal. With k
        decisions left, the values are at index ``n - k``.
        """
        values: npt.NDArray[np.float64] | None = self._computed.get("values")
        if values is None or len(values) < horizon:
            values = value_iteration(self.table.mdp(self.table.goal, horizon)).action_values
            self._computed["values"] = values
        return values[len(values) - horizon :]

    @property
    def process(self) -> Process:
        """The transitions, first states and goals of the environment as a `Process`.

        Copies of one environment that begin in other states share the transitions.
        """
        shared: Process = self._once("process", lambda: self.table.process)
        return replace(shared, start=self.table.start)

    @cached_property
    def starts(self) -> Numbers:
        """``[N]`` numbers of the states in which an episode may begin: it is not over there, and the goal can be
        reached.
        """
        table = self.table
        return np.flatnonzero(table.leading_to(table.goal) & ~table.goal & ~table.done)

    @property
    def best_at_first(self) -> frozenset[int]:
        """Numbers of the optimal actions in the first state (in the most probable one, if there are several).

        In an environment with chance, optimal actions depend on the number of decisions; twice the expected number of
        steps to the goal is assumed.
        """
        state = int(self.table.start.argmax())
        best = self.solved.optimal
        optimal = best[state] if best is not None else self.by_time(int(2 * self.solved.expected_steps) + 1)[0, state]
        return frozenset(np.flatnonzero(optimal).tolist())

    def view(self, number: int) -> EnvironmentView:
        """Return what an agent sees in a state, given by its number in the table."""
        offered = self.table.offered[number]
        return EnvironmentView(
            observed=self.environment.observe(self.table.states[number]),
            names=self.table.actions,
            possible=None if offered.all() else tuple(np.flatnonzero(offered).tolist()),
            number=number,
        )

    def starting_at(self, state: int) -> "Believed":
        """Return the same environment with another first state, given by its number in the table.

        Raises:
            ValueError: if the goal cannot be reached from that state, or the search for states had a bound.
        """
        if self.table.bound is not None:
            raise ValueError("other first states need all states of the environment: leave depth out")
        if state not in self.starts:
            raise ValueError(
                f"an episode must begin in a state from which the goal can be reached, but state {state} of the "
                f"{len(self.table.states)} states is none: leave start out"
            )
        start = np.zeros(len(self.table.states))
        start[state] = 1.0
        # What is optimal does not depend on where an episode begins, so solutions stay shared.
        return replace(self, solved=replace(self.solved, table=replace(self.table, start=start)))


def believe(
    make: Callable[[], Environment[Any]],
    limit: int = LIMIT,
    depth: int | None = None,
    *,
    found: Callable[[int], None] | None = None,
) -> Believed:
    """Enumerate an environment, solve it exactly, and check both by playing episodes in a fresh copy (`play_back`).

    Args:
        make: function that returns a new instance of the environment.
        limit: maximum number of states.
        depth: number of steps from the first states at which the search for states ends, None for no end.
        found: called with the number of states found, now and then during the search.

    Returns:
        The environment with its table of states and transitions, distances and optimal actions.

    Raises:
        Mismatch: if the behaviour of the copy differs from the enumerated transitions.
        ValueError: if the environment has too many states, or its methods return something of another form.
    """
    printed = io.StringIO()
    with redirect_stdout(printed):  # what an environment prints at every step would hide everything else
        believed = _believe(make, limit, depth, found)
    if printed_lines := printed.getvalue().splitlines():
        times = counted(len(printed_lines), "line")
        TALLY.tell(f"the environment printed {times} while its states were listed, the first: {printed_lines[0]:.200}")
    return believed


def _believe(
    make: Callable[[], Environment[Any]], limit: int, depth: int | None, report: Callable[[int], None] | None
) -> Believed:
    environment = make()
    beginning = environment.initial()
    if not isinstance(beginning, Mapping) or not beginning:
        raise ValueError(
            "initial() of an environment must return the chances of at least one first state, such as {state: 1.0}, "
            f"got {beginning!r:.100}"
        )
    seen = environment.observe(next(iter(beginning)))
    if not isinstance(seen, Observed):
        raise ValueError(
            "observe(state) of an environment must return a goalscope.environments.Observed, such as "
            f"Observed(text='You are at the door.'), got {type(seen).__name__}"
        )
    solved = solve_table(enumerate_states(environment, limit, depth=depth, found=report))
    return Believed(environment, solved, play_back(solved, make))


@lru_cache(maxsize=256)
def _believed(source: str, parameters: str, limit: int, depth: int | None, description: str) -> Believed:
    """Return a believed environment, enumerated once for all worlds and stores with its source and parameters.

    A new description, as of a file that was written again, is enumerated anew.
    """
    named = json.loads(parameters)
    tell = paced(environment_name(source, named))
    return believe(lambda: build(source, named), limit, depth, found=lambda count: tell(f"{count:,} states found"))


class EnvironmentSession(Session):
    """One episode in an enumerated environment, which moves through the table of transitions.

    Args:
        believed: the environment.
        rng: source of the random numbers, for the first state and for transitions with chance.
    """

    def __init__(self, believed: Believed, rng: np.random.Generator) -> None:
        self._believed, self._table, self._rng = believed, believed.table, rng
        starts = np.flatnonzero(self._table.start)
        probabilities = self._table.start[starts]
        self._number = int(starts[0] if len(starts) == 1 else rng.choice(starts, p=probabilities / probabilities.sum()))
        self._reward: float | None = None

    @property
    def view(self) -> EnvironmentView:
        """What the agent is shown in the present state."""
        return self._believed.view(self._number)

    @property
    def state(self) -> State:
        """The present state as a run records it: a tuple with the number of the state in the table."""
        return (self._number,)

    @property
    def done(self) -> bool:
        """Whether the episode is over, with or without success."""
        return bool(self._table.done[self._number])

    @property
    def solved(self) -> bool:
        """Whether the goal is reached in the present state."""
        return bool(self._table.goal[self._number])

    @property
    def reward(self) -> float | None:
        """Reward of the last action; None before the first action, or if the environment defines no rewards."""
        return self._reward

    def step(self, action: int | None) -> None:
        """Take an action, given by its number, and move to the next state.

        None (no valid action) leaves the state as it is, as does an action that is not offered.

        Raises:
            ValueError: if there is no action of this number, or the episode leaves the states that were searched.
        """
        bound = self._table.bound
        if bound is not None and self._table.depth[self._number] >= bound:
            raise ValueError(
                f"an episode must stay within the depth to which its environment was searched, {bound} steps: raise "
                "depth, or lower the horizon of the study"
            )
        names = self._table.actions
        if action is not None and not 0 <= action < len(names):
            raise ValueError(
                f"an action must be the number of one of the {len(names)} actions, from 0 ({', '.join(names)}), got "
                f"{action}"
            )
        if action is not None:
            self._number, self._reward = self._table.draw(self._number, action, self._rng)
        else:
            self._reward = None if self._table.reward is None else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class EnvironmentOracle:
    """The exact optimal policy of an environment without chance.

    Attributes:
        believed: the solved environment. States are given as in a run: the number of the state in its table.
    """

    believed: Believed

    @property
    def length(self) -> int:
        """Fewest steps from the start to the goal; -1 if there is no path, or if episodes begin in several states."""
        return self.believed.solved.length

    @property
    def expected_steps(self) -> float:
        """Mean number of steps to the goal of an agent that arrives as often as possible, and then as early as
        possible.

        See `SolvedTable.expected_steps`.
        """
        return self.believed.expected_steps

    def look_up(self, states: Numbers) -> tuple[Sets, Numbers]:
        """Return the optimal actions and the distances of recorded states.

        Args:
            states: ``[N, D]`` states as a run records them, with the number of the state in the first column.

        Returns:
            ``[N, A]`` bool, which of the A actions are optimal; and ``[N]`` fewest steps to the goal, -1 if it cannot
            be reached.
        """
        solved = self.believed.solved
        assert (
            solved.optimal is not None and solved.distance is not None
        )  # deterministic, see `EnvironmentWorld.oracle`
        numbers = solved.table.numbers(states)
        return solved.optimal[numbers], solved.distance[numbers]


@dataclass(frozen=True, slots=True, eq=False)
class ChanceOracle(EnvironmentOracle):
    """The exact optimal policy of an environment with chance, in which optimal actions depend on the number of
    decisions left.

    There are no distances in such an environment.
    """

    def look_up(self, states: Numbers) -> tuple[Sets, Numbers]:
        """Raise a ValueError, because optimal actions depend on the number of decisions left; use `look_up_left`."""
        raise ValueError("with chance, optimal sets must be looked up by the decisions left: call look_up_left")

    def look_up_left(self, states: Numbers, left: Numbers) -> Sets:
        """Return which of the A actions are optimal for recorded states, as a mask ``[N, A]``.

        Args:
            states: ``[N, D]`` states as a run records them, with the number of the state in the first column.
            left: ``[N]`` number of decisions left in each state, this one included.
        """
        # The optimal sets with k decisions left are the same for every horizon: V_k does not depend on it.
        numbers, horizon = self.believed.table.numbers(states), int(left.max(initial=1))
        sets: Sets = self.believed.by_time(horizon)[horizon - left, numbers]
        return sets


@dataclass(frozen=True, kw_only=True)
class EnvironmentWorld(World):
    """A finite environment, such as a Gymnasium one, as a world in which agents act.

    Reading a stored world does not make its environment; it is made when an episode, optimal actions or MEG first need
    it.

    Attributes:
        source: the name of an adapter, or "module:Class".
        parameters: keyword arguments of the environment.
        description: what the environment said about itself when the study was made; a different description later
            raises an error.
        limit, depth: see `enumerate_states`.
        start: number of the state in which episodes begin, None for the environment's own beginning.
        goal_name: what its author calls its goal, "" where it has no attribute ``goal_name``.
        cluster: id of the group of related worlds that intervals count as one unit, see `World`.
        tags: named facts about the world, by which results are grouped, see `World`.
    """

    kind: ClassVar[str] = "environment"
    view: ClassVar[type[View]] = EnvironmentView
    offers: ClassVar[frozenset[Offer]] = frozenset({"environment", "seen state"})
    recorded_as: ClassVar[str] = "the number of a state in the table of all states"
    further_values: ClassVar[Mapping[str, Any]] = {}
    """Further fields of a derived class that `to_plain` stores, with their types."""
    optional_values: ClassVar[Mapping[str, Any]] = {"start": int, "goal_name": str}
    """Further fields that `to_plain` stores only if they differ from their default, with their types."""
    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)
    limit: int = LIMIT
    depth: int | None = None
    start: int | None = None
    goal_name: str = ""

    @property
    def goal_noun(self) -> str:
        """The goal as a noun phrase for sentences: "the goal", with the name that the environment's author gave it,
        if any.
        """
        return f"the goal “{self.goal_name}”" if self.goal_name else "the goal"

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
        """Return the world of an environment that the user names, and allow the environment's code to be imported.

        The environment is made here, to obtain its description.

        Args:
            source: the name of an adapter, or "module:Class" of a file in the working directory.
            parameters: keyword arguments of the environment.
            limit, depth: see `enumerate_states`.
            tags: named facts about the world, which reports group by.

        Raises:
            ValueError: if there is no such environment, or it does not take these parameters.
        """
        consent([source, dict(parameters)])
        return cls.construct(source, parameters, limit=limit, depth=depth, tags=tags)

    @classmethod
    def construct(
        cls,
        source: str,
        parameters: Mapping[str, Any],
        *,
        limit: int = LIMIT,
        depth: int | None = None,
        tags: Mapping[str, Tag] | None = None,
    ) -> Self:
        """Return the world of an environment whose name was not typed by the user; its code must be allowed already.

        Otherwise this does the same as `make`, with the same arguments; see `goalscope.own` on which code is allowed.
        """
        environment = build(source, parameters)
        try:
            described = json.loads(canonical_json(dict(environment.describe())))
        except TypeError as error:
            raise ValueError(
                f"describe() of {source} must return a mapping of plain values (texts, numbers, lists): {error}"
            ) from error
        return cls(
            source=source,
            parameters=parameters,
            description=described,
            limit=limit,
            depth=depth,
            tags=tags or {},
            goal_name=goal_name_of(environment),
        )

    @cached_property
    def believed(self) -> Believed:
        """The environment of this world, enumerated, solved and checked by a play-back; it is made on first use.

        Raises:
            ValueError: if the environment cannot be made here, its description changed, or its behaviour differs from
                its transitions.
            ImportError: if the environment's package is missing; the message names the extra.
        """
        stored = canonical_json(dict(self.description))
        believed = _believed(self.source, canonical_json(dict(self.parameters)), self.limit, self.depth, stored)
        now = canonical_json(dict(believed.environment.describe()))
        if now != stored:
            raise ValueError(
                f"the environment {self.source} must be what it was when the study was made, "
                f"{stored[:300]}, but describes itself as {now[:300]}: restore it, or "
                "make a new run"
            )
        return believed if self.start is None else believed.starting_at(self.start)

    def __getstate__(self) -> dict[str, Any]:
        # Without cached environments, which need not be picklable.
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def begin(self, rng: np.random.Generator) -> EnvironmentSession:
        """Begin an episode, and return its session; ``rng`` decides the first state and the outcomes of chance."""
        return EnvironmentSession(self.believed, rng)

    def to_plain(self) -> dict[str, Any]:
        """Return source, parameters, description and limits as values that JSON can hold, for storing the world."""
        return {
            "source": self.source,
            "parameters": dict(self.parameters),
            "description": dict(self.description),
            "limit": self.limit,
            "depth": self.depth,
            **{name: value for name in self.optional_values if (value := getattr(self, name)) not in (None, "", ())},
            **{name: getattr(self, name) for name in self.further_values},
        }

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values that `to_plain` stored, without importing or making the environment.

        Args:
            plain: the stored values.
            cluster: id of the world that intervals count as one independent unit.
            tags: named facts about the world, which reports group by.

        Raises:
            ValueError: if the values have another form.
        """
        kinds: dict[str, Any] = {
            "source": str,
            "parameters": Mapping,
            "description": Mapping,
            "limit": int,
            "depth": int | None,
            **cls.further_values,
        }
        further = cls.optional_values if isinstance(plain, Mapping) else {}
        kinds |= {name: kind for name, kind in further.items() if name in plain}
        plain = read_plain(plain, "a stored environment", **kinds)
        return cls(**plain, cluster=cluster, tags=tags or {})

    def restore_state(self, recorded: State) -> Any:
        """Return a state that a run recorded in the form in which the environment's own methods take it.

        Raises:
            ValueError: if the environment cannot be made here, or was another one when the run was made.
        """
        states, number = self.believed.table.states, recorded[0]
        if not 0 <= number < len(states):
            raise ValueError(
                f"a state of an environment must be a number from 0 to {len(states) - 1}, got {number}: the run was "
                "made in another version of it"
            )
        return states[number]

    def name_state(self, number: int) -> str:
        """Return a readable name of a state, given by its number: its name in the file of a table, or the state as
        Python prints it.
        """
        name: Callable[[Any], str] = getattr(self.believed.environment, "name_state", repr)
        return name(self.restore_state((number,)))

    def drawing(self, state: tuple[int, ...]) -> Drawing | None:
        """Return the picture that the environment draws of a state that a run recorded; None if it has no method
        ``drawing``.

        Raises:
            ValueError: if ``drawing`` returns something else than a `Drawing` or None.
        """
        draw = getattr(self.believed.environment, "drawing", None)
        picture = None if draw is None else draw(self.restore_state(state))
        if picture is not None and not isinstance(picture, Drawing):
            raise ValueError(
                f"drawing(state) of {self.source} must return a goalscope.environments.Drawing or None, got "
                f"{type(picture).__name__}"
            )
        return picture

    def oracle(self) -> Oracle | None:
        """Return the exact optimal policy of the environment."""
        believed = self.believed
        return ChanceOracle(believed) if believed.solved.optimal is None else EnvironmentOracle(believed)

    def process(self) -> Process:
        """Return the transitions, first states and goals of the environment as a `Process`."""
        return self._process

    @cached_property
    def _process(self) -> Process:
        return self.believed.process
