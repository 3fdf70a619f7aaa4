"""The episodes and the answers of one agent in one world, as numbered states of the world's decision process.

All analyses of an agent's goal read episodes in this form. The utility of an episode sums over the states of its
decisions:

    u(episode) = sum over its n decisions of U(s_t),    an episode that ended stays in its last state

If a step stores the exact policy that its action was drawn from, the state after the step is replaced by its
expectation under that policy: ``E[1(s' in place) | s] = sum over a of pi(a | s) 1(T(s, a) in place)``. This leaves the
mean unchanged and removes the variance of the drawn actions (conditional Monte Carlo); the visited states remain
random.

Source: the conditional expectation as estimator: Rao-Blackwell theorem; Asmussen and Glynn (2007), Stochastic
Simulation, section V.4.

Its *answers* are those steps as action probabilities: answered twice, or exact. A second, independent answer to the
same observation shows how much of its behaviour the agent itself would repeat; no prediction of a single action can be
better than that. Second answers come from a study with ``answers: 2``. If an agent reports the probabilities of its
actions, they stand for both answers. If neither was recorded, the mean answer of the agent's other episodes in the same
state can replace the second answer, provided that the agent depends on the state only. Steps without an action, and
steps without a second answer in a world where other steps have one, are left out and counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from goalscope._ground.checks import check_shape, freeze
from goalscope._ground.distributions import to_distributions
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Mask, Numbers, Undefined, finite_world
from goalscope.measures.key import key_cells
from goalscope.measures.table import CONDITIONS, PROVENANCE, StepTable
from goalscope.runs.record import SECOND, Episode, policy_of
from goalscope.runs.study import read_rules
from goalscope.stats.rows import Tag
from goalscope.worlds.grid import Action
from goalscope.worlds.planning.process import process_of

_MOST_COUNTS: Final = 1 << 22  # counts of visits held at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """The episodes of one agent in one world, as arrays over their steps; all analyses of goals read this form.

    There are E episodes with N steps together, in a decision process of S states and A actions.

    Attributes:
        agent: name of the agent.
        world: the world with its process and the number of decisions per episode.
        cluster: cluster of the world: shared by all versions of one world, such as mirrored ones. Intervals treat
            clusters, not worlds, as independent.
        tags: tags (named facts, such as the size of the grid) of the first episode, except those of its origin, such as
            its seed. Tags that separate worlds (`CONDITIONS`) and requested tags are the same in all E episodes.
        ids: ``[E]`` id of each episode.
        length: ``[E]`` number of steps; the steps of an episode are consecutive.
        state: ``[N]`` number of the state before each step.
        last: ``[E]`` number of the state after the last step.
        action: ``[N]`` action of each step, -1 for a turn without an action.
        policy: ``[N, A]`` probabilities that each action was drawn from, NaN for a step without them; None if no step
            has them.
        repeat: ``[N, A]`` independent second answer to the same observation, as action probabilities: the second answer
            of a study with ``answers: 2``, or the agent's own probabilities. NaN for a step without one; None if no
            step has one.
        written: ``[N]`` text written before each answer, "" if none; None if no step has a text.
        remembers: whether the agent of any episode is known to see its earlier steps.
        complete: ``[E]`` whether the episode was recorded to its end.
        failed: number of complete episodes that ended with a turn without an action; they count as standing still from
            then on.
    """

    agent: str
    world: FiniteWorld
    cluster: str
    tags: Mapping[str, Tag]
    ids: tuple[str, ...]
    length: Numbers
    state: Numbers
    last: Numbers
    action: Numbers
    policy: Array | None
    complete: Mask
    failed: int = 0
    repeat: Array | None = None
    written: tuple[str, ...] | None = None
    remembers: bool = False

    def __post_init__(self) -> None:
        size = {"N": len(self.state), "E": len(self.ids), "A": self.world.process.actions}
        for name, shape in (("length", "E"), ("last", "E"), ("complete", "E"), ("state", "N"), ("action", "N")):
            check_shape(name, getattr(self, name), shape, size)
        for name in ("policy", "repeat"):
            if getattr(self, name) is not None:
                check_shape(name, getattr(self, name), "N A", size)
        if self.written is not None and len(self.written) != len(self.state):
            raise ValueError(f"written must have one text for each of {len(self.state)} steps, got {len(self.written)}")

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def episode(self) -> Numbers:
        """``[N]`` for each step, the number of the episode to which it belongs, from 0."""
        return np.repeat(np.arange(len(self)), self.length)

    @cached_property
    def time(self) -> Numbers:
        """``[N]`` for each step, its number within its episode, from 0."""
        return np.arange(len(self.state)) - np.repeat(np.cumsum(self.length) - self.length, self.length)

    @property
    def left(self) -> Numbers:
        """``[E]`` number of decisions that remained before the horizon when each episode ended."""
        return self.world.horizon - self.length

    @property
    def first(self) -> Numbers:
        """``[E]`` number of the state (in the decision process of the world) in which each episode began."""
        begin = np.cumsum(self.length) - self.length
        numbers = self.last.copy()  # where an episode has no step
        numbers[self.length > 0] = self.state[begin[self.length > 0]]
        return numbers

    @property
    def acted(self) -> Mask:
        """``[E]`` bool: whether the agent took an action in any turn of each episode."""
        return np.asarray(np.bincount(self.episode, weights=self.action >= 0, minlength=len(self)) > 0)

    @cached_property
    def exact(self) -> Mask:
        """``[E]`` bool: whether each episode has actions, and all of them were stored with the policy they were drawn
        from.
        """
        if self.policy is None:
            return np.zeros(len(self), dtype=bool)
        missing = np.isnan(self.policy[:, 0]) & (self.action >= 0)
        return np.asarray((np.bincount(self.episode, weights=missing, minlength=len(self)) == 0) & self.acted)

    def chosen(self, episodes: Mask) -> "States":
        """Return these states with some of the episodes only.

        Args:
            episodes: ``[E]`` bool, the episodes to keep.
        """
        if episodes.all():
            return self
        steps = episodes[self.episode]
        return replace(
            self,
            ids=tuple(name for name, is_chosen in zip(self.ids, episodes, strict=True) if is_chosen),
            length=self.length[episodes],
            state=self.state[steps],
            last=self.last[episodes],
            action=self.action[steps],
            policy=None if self.policy is None else self.policy[steps],
            repeat=None if self.repeat is None else self.repeat[steps],
            written=None if self.written is None else tuple(np.array(self.written, dtype=object)[steps]),
            complete=self.complete[episodes],
        )

    def in_world(self, world: FiniteWorld) -> "States":
        """Return the same episodes with their states read in another world, such as the one that the agent believes in.

        Exact policies are dropped, because actions have other outcomes there than in the episodes.
        """
        return replace(self, world=world, policy=None)

    def visits(self, *, exact: Mask | None = None) -> Array:
        """Count the decisions of each episode in each state, ``[E, S]``.

        An episode that ended early counts as staying in its last state until the horizon.

        Args:
            exact: ``[E]`` bool, the episodes in which each state is replaced by its expectation under the policy of the
                previous step; `States.exact` by default.
        """
        counts = np.zeros((len(self), self.world.process.states))
        counts[np.arange(len(self)), self.last] = 1.0
        counts *= self.left[:, None]
        np.add.at(counts, (self.episode, self.state), 1.0)
        self._expect(counts, self.exact if exact is None else exact, 1, self.world.horizon - 1)
        return counts

    def utilities(self, utility: Array, *, arrival: bool = False) -> Array:
        """Compute the utility of each episode, ``[E]``, as the sum over its decisions.

        An episode that ended early counts as staying in its last state until the horizon.

        Args:
            utility: ``[S]`` utility of one decision in each state; with ``arrival``, utility of the final state.
            arrival: count only the final state.
        """
        exact = self.exact
        values: Array = utility[self.last].astype(np.float64)
        if not arrival:
            earned = np.bincount(self.episode, weights=utility[self.state], minlength=len(self))
            values = earned + self.left * values
        # In batches whose counts of visits fit into memory.
        size, numbers = max(1, _MOST_COUNTS // self.world.process.states), np.flatnonzero(exact)
        for part in (numbers[begin : begin + size] for begin in range(0, len(numbers), size)):
            some = self.chosen(np.isin(np.arange(len(self)), part))
            if arrival:
                occupancy = np.zeros((len(some), self.world.process.states))
                occupancy[np.arange(len(some)), some.last] = 1.0
                some._expect(occupancy, some.exact, self.world.horizon, self.world.horizon)
            else:
                occupancy = some.visits()
            values[part] = occupancy @ utility
        return values

    def _expect(self, counts: Array, exact: Mask, first: int, last: int) -> None:
        """Replace visits by their expectations in the counts of E episodes and S states, ``counts`` ``[E, S]``.

        This concerns the states that follow decisions ``first`` to ``last`` whose action probabilities are known.
        """
        if self.policy is None or not exact.any():
            return
        process, begin = self.world.process, np.cumsum(self.length) - self.length
        following = self.following
        for episode in np.flatnonzero(exact).tolist():
            steps = np.arange(begin[episode], begin[episode] + self.length[episode])
            decision = self.time[steps] + 1  # the decision after the step
            replaced = steps[~np.isnan(self.policy[steps, 0]) & (decision >= first) & (decision <= last)]
            np.add.at(counts[episode], following[replaced], -1.0)
            before, probabilities = self.state[replaced], self.policy[replaced]
            if not process.chance:
                np.add.at(counts[episode], process.transitions[before], probabilities)
            else:
                mass = np.zeros((process.states, process.actions))
                np.add.at(mass, before, probabilities)
                counts[episode] += process.base.flow(mass)

    @cached_property
    def following(self) -> Numbers:
        """``[N]`` for each step, the number of the state that it led to."""
        after = np.concatenate([self.state[1:], [0]]) if len(self.state) else self.state.copy()
        has_steps = self.length > 0
        after[np.cumsum(self.length)[has_steps] - 1] = self.last[has_steps]
        return after

    def moves(self) -> Array:
        """Count how often each action was taken in each episode, ``[E, A]``; turns without an action do not count.

        If a step stores the policy that its action was drawn from, the probabilities are counted instead.
        """
        return counted_moves(self.episode, self.action, self.policy, len(self), self.world.process.actions)


def counted_moves(episode: Numbers, action: Numbers, policy: Array | None, episodes: int, actions: int = 0) -> Array:
    """Count how often each action was taken in each episode, ``[E, A]``, from one entry per step.

    Args:
        episode, action: ``[N]`` number of the episode and of the action of each step; -1 for a turn without an action.
        policy: ``[N, A]`` probabilities that each action was drawn from, which are counted in place of the action; NaN
            for a step without them, None if no step has them.
        episodes: number of episodes E.
        actions: minimum number of actions A.
    """
    width = max(actions, 0 if policy is None else policy.shape[1], int(action.max(initial=0)) + 1)
    moves = np.zeros((episodes, width))
    has_policy = np.zeros(len(action), dtype=bool) if policy is None else ~np.isnan(policy[:, 0])
    drawn, counted = (action >= 0) & ~has_policy, (action >= 0) & has_policy
    np.add.at(moves, (episode[drawn], action[drawn]), 1.0)
    if policy is not None:
        np.add.at(moves[:, : policy.shape[1]], episode[counted], policy[counted])
    return moves


def states_of(table: StepTable, *, by: Sequence[str] = ()) -> list[States]:
    """Convert a table of episodes into the form that all analyses of goals read.

    Args:
        table: the episodes.
        by: names of tags (facts such as "size") that separate entries, in addition to the conditions of a run
            (`CONDITIONS`).

    Returns:
        One entry for each agent, world, horizon and condition, with all of their episodes.

    Raises:
        ValueError: the decision process of a world is not known, or a stored policy is not a distribution over the
            actions of its world.
    """
    worlds = _finite_worlds(table)
    named = [table.tags[name].tolist() for name in dict.fromkeys((*CONDITIONS, *by)) if name in table.tags]
    columns = zip(table.agent.tolist(), table.world_id.tolist(), table.horizon.tolist(), *named, strict=True)
    groups: dict[tuple[Tag, ...], list[int]] = {}
    for index, key in enumerate(columns):
        groups.setdefault(key, []).append(index)
    recorded, (repeats, written) = table.once(recorded_policies), table.once(_repeated)
    remembering = (
        {episode.spec.agent_id for episode in table.episodes if read_rules(episode.spec.rules)[0] != "none"}
        if (table.has_texts)
        else set[str]()
    )
    identity = [episode.spec.agent_id for episode in table.episodes] if remembering else []
    before, last = table.once(_numbered)
    complete = (table.outcome != "stopped") | (table.length == table.horizon)
    failed = complete & (table.outcome == "failure") & (table.length < table.horizon)
    kept_tags = {name: column for name, column in table.tags.items() if name not in PROVENANCE or name in by}
    result = []
    for episodes in groups.values():
        members, first = np.array(episodes), episodes[0]
        world = worlds[str(table.world_id[first]), int(table.horizon[first])]
        steps = _steps_of(table, members)
        policy, repeat = (
            None if column is None or np.isnan(part := column[steps, : world.process.actions]).all() else part
            for column in (recorded, repeats)
        )
        texts = None if written is None else tuple(written[step] for step in steps.tolist())
        result.append(
            States(
                agent=str(table.agent[first]),
                world=world,
                cluster=str(table.cluster[first]),
                tags={name: column[first] for name, column in kept_tags.items()},
                ids=tuple(table.episode_id[members].tolist()),
                length=table.length[members],
                state=before[steps],
                last=last[members],
                action=table.action[steps],
                policy=policy,
                repeat=repeat,
                written=texts if texts and any(texts) else None,
                remembers=bool(remembering) and any(identity[episode] in remembering for episode in episodes),
                complete=complete[members],
                failed=int(failed[members].sum()),
            )
        )
    return result


def walked(
    agent: str,
    world: FiniteWorld,
    state: Numbers,
    *,
    last: int,
    first: Numbers,
    second: Numbers | None = None,
    written: tuple[str, ...] | None = None,
) -> States:
    """Build the `States` (the recorded form of episodes) of one simulated episode.

    Args:
        agent: name of the agent.
        world: the world.
        state: ``[N]`` number of the state before each step.
        last: number of the state after the last step.
        first, second: ``[N]`` the action taken, and the second answer (None if there is none).
        written: ``[N]`` text written before each answer.
    """
    is_over = not world.live[last] or len(state) == world.horizon
    return States(
        agent=agent,
        world=world,
        cluster=world.world.cluster or world.world.id,
        tags=dict(world.world.tags),
        ids=("episode",),
        length=np.array([len(state)]),
        state=state,
        last=np.array([last]),
        action=first,
        policy=None,
        complete=np.array([is_over]),
        repeat=None if second is None else np.eye(world.process.actions)[second],
        written=written,
    )


def states_of_episodes(episodes: Iterable[Episode], *, by: Sequence[str] = ()) -> tuple[list[States], dict[str, int]]:
    """Convert episodes into the form that all analyses of goals read.

    Args:
        episodes: the episodes. Those in worlds without a known decision process, or with fog, are left out.
        by: names of tags (facts such as "size") that separate entries, in addition to the conditions of a run.

    Returns:
        One entry for each agent, world, horizon and condition, with all of their episodes; and reason -> number of
        worlds left out for this reason.
    """
    groups: dict[bool, list[Episode]] = {}
    left_out: dict[str, set[str]] = {}
    for episode in episodes:
        try:
            finite_world(episode.world, 1)
        except Undefined as why:
            left_out.setdefault(str(why), set()).add(episode.world.id)
            continue
        groups.setdefault("tasks" in episode.world.offers, []).append(episode)
    tables = [StepTable.from_episodes(members, tasks=tasks) for tasks, members in groups.items()]
    states = [group for table in tables for group in states_of(table, by=[tag for tag in by if tag in table.tags])]
    return states, {why: len(worlds) for why, worlds in left_out.items()}


def _finite_worlds(table: StepTable) -> dict[tuple[str, int], FiniteWorld]:
    """Return the worlds of a table with their processes, by world id and horizon.

    For a control world without a key, the cell of the key is that of its twin with a key.
    """
    cells, has_key_cell = key_cells(table) if "grid" in table.offers else (None, None)
    result: dict[tuple[str, int], FiniteWorld] = {}
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        if (world_id, horizon) in result:
            continue
        world = table.worlds[table.world[index]]
        if (process := process_of(world)) is None:
            raise ValueError(
                f"measuring goals needs worlds whose decision process is known, but worlds of kind {world.kind!r} have "
                "none: give their class a method process()"
            )
        twin_key = None
        if cells is not None and has_key_cell is not None and has_key_cell[index]:
            twin_key = int(cells[index, 0]), int(cells[index, 1])
        result[world_id, horizon] = FiniteWorld(world=world, process=process, horizon=horizon, twin_key=twin_key)
    return result


def _numbered(table: StepTable) -> tuple[Numbers, Numbers]:
    """Return the number of the state before each step, ``[N]``, and at the end of each episode, ``[E]``.

    If the records of a world do not determine its states, we compute them from the actions.
    """
    before, last = np.zeros(len(table.action), dtype=np.int64), np.zeros(len(table.length), dtype=np.int64)
    order = np.argsort(table.world, kind="stable")
    bounds = np.searchsorted(table.world[order], np.arange(len(table.worlds) + 1))
    for index, world in enumerate(table.worlds):
        process, members = process_of(world), order[bounds[index] : bounds[index + 1]]
        if process is None or not len(members):
            continue
        if process.number is not None:
            steps = _steps_of(table, members)
            before[steps] = process.number(table.codes[steps])
            last[members] = process.number(table.final_codes[members])
            continue
        for episode in members.tolist():
            state = int(process.start.argmax())
            for step in range(table.begin[episode], table.begin[episode] + table.length[episode]):
                before[step] = state
                state = int(process.transitions[state, table.action[step]]) if table.action[step] >= 0 else state
            last[episode] = state
    return before, last


def _steps_of(table: StepTable, episodes: Numbers) -> Numbers:
    """Return the numbers of the steps of the given episodes, in their order."""
    parts = [np.arange(table.begin[episode], table.begin[episode] + table.length[episode]) for episode in episodes]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)


def recorded_policies(table: StepTable) -> Array | None:
    """Return the stored probabilities that the action of each step was drawn from, ``[N, A]``.

    A is the largest number of actions of any world; actions that a world lacks have probability 0. The probabilities of
    a step that stores none are NaN. None if no step of the table has probabilities.

    Raises:
        ValueError: a stored policy is not a distribution over the actions of its world.
    """
    if not table.has_texts:
        return None
    counts = _action_counts(table)
    numbers, rows = list[int](), list[tuple[float, ...]]()
    for number, extra in enumerate(extra for episode in table.episodes for extra in episode.column("extra")):
        probabilities = policy_of(extra)
        if probabilities is None or table.action[number] < 0:
            continue
        count = counts[int(table.world[table.episode[number]])]
        if len(probabilities) != count:
            raise ValueError(
                f"the stored policy of a step must have one probability for each of {count} actions, got "
                f"{probabilities}: the run was changed, or written by another program"
            )
        numbers.append(number)
        rows.append((*probabilities, *(0.0,) * (max(counts) - count)))
    if not numbers:
        return None
    result = np.full((len(table.action), max(counts)), np.nan)
    result[numbers] = to_distributions("the recorded policies of steps", np.array(rows))
    return result


def _action_counts(table: StepTable) -> list[int]:
    """Return the number of actions of each world of a table."""
    processes = [process_of(world) for world in table.worlds]
    return [len(Action) if process is None else process.actions for process in processes] or [len(Action)]


def _repeated(table: StepTable) -> tuple[Array | None, list[str] | None]:
    """Return a table's second answers ``[N, A]``, as in `States.repeat`, and the N texts written before the answers.

    Probabilities that were computed after sampled reasoning do not count: other reasoning would give other
    probabilities.
    """
    if not table.has_texts:
        return None, None
    counts, policies = _action_counts(table), table.once(recorded_policies)
    result = np.full((len(table.action), max(counts)), np.nan)
    texts = [text or "" for episode in table.episodes for text in episode.column("reasoning")]
    for number, extra in enumerate(extra for episode in table.episodes for extra in episode.column("extra")):
        second = extra.get(SECOND)
        if policies is not None and not np.isnan(policies[number, 0]) and "generated" not in extra:
            result[number] = policies[number]
        elif table.action[number] >= 0 and isinstance(second, int) and 0 <= second < max(counts):
            result[number] = 0.0
            result[number, second] = 1.0
    return (None if np.isnan(result).all() else result), (texts if any(texts) else None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """The moves that one agent chose in one world, in N steps of E episodes, if possible twice per step.

    Attributes:
        world: the world with its process of S states and A actions.
        state: ``[N]`` number of the state before each step.
        time: ``[N]`` number of the step within its episode.
        episode: ``[N]`` number of the episode of each step; the steps of an episode are consecutive.
        last: ``[E]`` state at the end of each episode.
        first: ``[N, A]`` one-hot action of the first answer, or the probabilities of all actions.
        second: ``[N, A]`` likewise for a second answer, which is not carried out; None if the agent was not asked
            twice.
        written: ``[N]`` text written before the first answer, "" if none; None if no step has a text.
        left_out: number of steps left out because they lack an action or a second answer.
    """

    world: FiniteWorld
    state: Numbers
    time: Numbers
    episode: Numbers
    last: Numbers
    first: Array
    second: Array | None
    written: tuple[str, ...] | None = None
    left_out: int = 0

    def __post_init__(self) -> None:
        size = {"N": len(self.state), "A": self.world.process.actions, "E": len(self.last)}
        for name, shape in (("state", "N"), ("time", "N"), ("episode", "N"), ("last", "E")):
            check_shape(name, getattr(self, name), shape, size)
        for name in ("first", "second"):
            distribution: Array | None = getattr(self, name)
            if distribution is not None:
                check_shape(name, distribution, "N A", size)
                object.__setattr__(self, name, freeze(to_distributions(name, distribution)))
        if self.written is not None and len(self.written) != len(self.state):
            raise ValueError(f"there must be a text for each of {len(self.state)} steps, got {len(self.written)}")

    @property
    def cluster(self) -> str:
        """Id shared by all versions of a world (mirrored, rotated); intervals treat only clusters as independent."""
        return self.world.world.cluster or self.world.world.id

    def only(self, kept: Numbers) -> "Answers":
        """Return the answers of some steps only, given by the indices of these steps in increasing order."""
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in ("state", "time", "episode", "first")},
            second=None if self.second is None else self.second[kept],
            written=None if self.written is None else tuple(self.written[index] for index in kept),
        )


def answers_of(states: Iterable[States], *, by_visits: bool = False) -> list[Answers]:
    """Extract an agent's answers (the moves it chose, if possible twice per step) from its recorded episodes.

    Worlds under fog are left out, because the agent does not see the whole state there.

    Args:
        states: the recorded episodes of one agent, see `states_of`.
        by_visits: where a step was answered only once, use the answer of another episode in the same state as its
            second answer. For agents that see their earlier steps, only first turns are completed in this way.

    Returns:
        One entry for each world that has a step with an answer (and a second answer, where other steps have one).
    """
    records = list[Answers]()
    for episodes in states:
        if episodes.world.world.fog_radius is not None:
            continue
        repeat = episodes.repeat
        if repeat is None and by_visits:
            repeat = _by_visits(episodes)
        has_answer = episodes.action >= 0
        usable = has_answer if repeat is None else has_answer & ~np.isnan(repeat[:, 0])
        if not usable.any():
            continue
        first = np.eye(episodes.world.process.actions)[episodes.action[usable]]
        if (
            episodes.policy is not None and episodes.repeat is not None
        ):  # otherwise the probabilities depend on sampled reasoning
            exact = (episodes.policy[usable] == episodes.repeat[usable]).all(axis=1)
            first[exact] = episodes.policy[usable][exact]
        records.append(
            Answers(
                world=episodes.world,
                state=episodes.state[usable],
                time=episodes.time[usable],
                episode=episodes.episode[usable],
                last=episodes.last,
                first=first,
                second=None if repeat is None else repeat[usable],
                written=None if episodes.written is None else tuple(np.array(episodes.written, dtype=object)[usable]),
                left_out=int((~usable).sum()),
            )
        )
    return records


def _by_visits(episodes: States) -> Array | None:
    """Return for each of N steps the mean answer of other episodes in the same state, ``[N, A]``, or NaN."""
    step_index = np.flatnonzero((episodes.action >= 0) & ((episodes.time == 0) | (not episodes.remembers)))
    states, actions = episodes.world.process.states, episodes.world.process.actions
    # An episode may visit a state several times; its own answers there do not count as second answers to each other.
    keys = episodes.episode[step_index] * states + episodes.state[step_index]
    _, place = np.unique(keys, return_inverse=True)
    by_episode = np.zeros((int(place.max(initial=-1)) + 1, actions))
    np.add.at(by_episode, (place, episodes.action[step_index]), 1.0)
    _, state_index = np.unique(episodes.state[step_index], return_inverse=True)
    by_state = np.zeros((int(state_index.max(initial=-1)) + 1, actions))
    np.add.at(by_state, (state_index, episodes.action[step_index]), 1.0)
    other_counts = by_state[state_index] - by_episode[place]
    total = other_counts.sum(axis=1)
    result = np.full((len(episodes.state), actions), np.nan)
    result[step_index[total > 0]] = other_counts[total > 0] / total[total > 0, None]
    return None if np.isnan(result).all() else result


def move_frequencies(all_answers: Sequence[Answers]) -> list[Array | None]:
    """Return for each world how often the agent takes each action in all other worlds.

    These frequencies are what a habit of moving with fixed frequencies predicts in a world without having seen it. The
    versions of a world, such as mirrored ones (its cluster), do not count as other worlds.

    Args:
        all_answers: the agent's answers, world by world.

    Returns:
        For each world ``[A]`` frequencies that sum to 1; None if no other cluster has as many actions.
    """
    sums = [
        answers.first.sum(axis=0) + (0.0 if answers.second is None else answers.second.sum(axis=0))
        for answers in all_answers
    ]
    by_cluster: dict[tuple[str, int], Array] = {}
    for answers, counts in zip(all_answers, sums, strict=True):
        key = answers.cluster, len(counts)
        by_cluster[key] = by_cluster.get(key, 0.0) + counts
    frequencies = list[Array | None]()
    for answers, counts in zip(all_answers, sums, strict=True):
        rest = [
            part for (cluster, size), part in by_cluster.items() if cluster != answers.cluster and size == len(counts)
        ]
        frequencies.append(np.sum(rest, axis=0) / np.sum(rest) if rest else None)
    return frequencies


def first_shares(answers: Answers, in_place: Mask) -> Array:
    """Return the share of an agent's episodes in which each of K places is the first of them to be reached, ``[K]``.

    Args:
        answers: the answers in one world, with all steps of its episodes.
        in_place: ``[K, S]`` bool, the states of each place.
    """
    first_count = np.zeros(len(in_place))
    for episode, last in enumerate(answers.last.tolist()):
        walk = [*answers.state[answers.episode == episode].tolist(), last]
        hits = in_place[:, walk]
        if hits.any():
            first_count += hits[:, int(hits.any(axis=0).argmax())]
    return first_count / len(answers.last)
