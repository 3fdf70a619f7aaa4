"""Play episodes: one of them turn by turn, or many of a scripted agent on plain grids together, with the same results.

A `LiveEpisode` gives an agent its observations and applies its turns. Episodes can be played together (`play_ahead`) if
the agent's probabilities are a table over the states of a world, and the world is a table of transitions. All
episodes of a part take a step together. The random number of each turn is the one that `Observation.draw` would use.
Episodes are encoded for storage directly from the arrays, without intermediate records.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import heads, uniforms
from goalscope.agents.agent import Agent, History, Observation, Past, Turn, check_action
from goalscope.agents.scripted import Scripted, ScriptedAgent
from goalscope.runs.codec import PackedSteps, encode_head, encode_tags, pack_numbers
from goalscope.runs.record import SECOND, Episode, EpisodeSpec, Outcome, Step
from goalscope.runs.study import FailurePolicy, Study
from goalscope.runs.tables import EncodedEpisode
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import (
    configurations,
    initial_state,
    phases,
    shown,
    state_number,
    state_with,
    step_batch,
    transitions,
)
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.things import arrangement_of
from goalscope.worlds.world import View, World

_AGAIN: Final = 1001
"""Attempt number of the second answer to an observation (``answers: 2`` in a study). It exceeds the numbers of all
retries, so that the random numbers differ from those of the first answer."""


def _earlier(world: World, history: History) -> tuple[Past, ...]:
    """Return the turns before an episode; in a conversation, the answer of each is the name of its move."""
    spoken = history in ("conversation", "reasoning")
    return tuple(
        Past(view=view, action=action, text=None if action is None or not spoken else view.actions[action])
        for view, action in world.earlier
    )


class LiveEpisode:
    """An episode while it is played: it gives the agent its observations and carries out the agent's turns.

    If the study has ``answers: 2``, each step with a valid move is answered a second time for the same observation. The
    first answer is carried out, the second is stored with the step.

    Args:
        spec: the specification of the episode.
        world: its world.
        study: the study, for its failure policy and history; None for a study's defaults.
        history: which earlier steps the agent is shown; None for the setting of the study.
        failure: how turns without a valid move are treated; None for the setting of the study.
        knows_world: whether the agent receives the whole world.

    Attributes:
        outcome: the outcome, or None while the episode is running.
        steps: the steps so far.
        usage: the cost of each turn: (step, attempt, name, value).
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        world: World,
        study: Study | None,
        history: History | None = None,
        failure: FailurePolicy | None = None,
        *,
        knows_world: bool = False,
    ) -> None:
        self.spec = spec
        self.outcome: Outcome | None = None
        self.steps: list[Step] = []
        self.usage: list[tuple[int, int, str, float]] = []
        self._world = world
        self._knows_world = knows_world
        self._session = world.begin_episode(spec.seed, spec.id)
        self._view: View | None = None  # the last view, until a step is taken
        self._history_as: History = history or ("none" if study is None else study.history)
        self._history = () if self._history_as == "none" else _earlier(world, self._history_as)
        self._failure = failure or (FailurePolicy() if study is None else study.failure)
        self._attempts: list[dict[str, Any]] = []
        self._twice = study is not None and study.answers == 2
        self._first: Turn | None = None  # first answer to a step that is answered a second time

    @property
    def state(self) -> Any:
        """The true state of the world before the next turn, of which the agent may see only a part."""
        return self._session.state

    def observe(self) -> Observation:
        """Return what the agent is shown before its next turn."""
        self._view = self._session.view
        return Observation(
            view=self._view,
            step=len(self._world.earlier) + len(self.steps),
            attempt=self._attempt,
            episode_id=self.spec.id,
            seed=self.spec.seed,
            history=self._history,
            history_as=self._history_as,
            world=self._world if self._knows_world else None,
            horizon=self._world.planned(self.spec.horizon) if self._knows_world else 0,
            shared_examples=self._world.shared_examples,
        )

    @property
    def _attempt(self) -> int:
        return len(self._attempts) if self._first is None else _AGAIN

    def apply(self, turn: Turn) -> None:
        """Carry out the agent's turn: the world changes and a step is added, unless the agent is asked again.

        It is asked again for a retry after a turn without a valid move, or for a second answer.

        Raises:
            ValueError: a cost is not a finite number, or the world does not have the action.
        """
        index, attempt = len(self.steps), self._attempt
        for name, value in turn.usage.items():
            if not math.isfinite(value):
                raise ValueError(f"usage must contain only finite numbers, got {name} = {value!r} at step {index}")
            self.usage.append((index, attempt, name, float(value)))
        check_action(turn, (self._view or self._session.view).actions)
        if self._first is None and turn.action is None and attempt < self._failure.retries:
            self._attempts.append({"failure": turn.failure, "text": turn.text, "reasoning": turn.reasoning})
            return
        if self._first is not None:
            turn, self._first = replace(self._first, extra={**self._first.extra, SECOND: turn.action}), None
        elif self._twice and turn.action is not None:
            self._first = turn
            return
        extra = {**turn.extra, "attempts": self._attempts} if self._attempts else turn.extra
        session = self._session
        action = None if turn.action is None else self._world.action(turn.action)
        view = self._view or session.view
        state = session.state
        if self._history_as != "none":
            # The step of this turn, as the agent will see it in its history.
            past = Past(
                view=view,
                action=turn.action,
                text=turn.text if self._history_as in ("conversation", "reasoning") else None,
                reasoning=turn.reasoning if self._history_as == "reasoning" else None,
            )
            self._history = (*self._history, past)
        session.step(action)
        self._view = None
        self.steps.append(
            Step(
                index=index,
                state=state,
                action=action,
                failure=turn.failure,
                text=turn.text,
                reasoning=turn.reasoning,
                prompt_tokens=turn.prompt_tokens,
                output_tokens=turn.output_tokens,
                reward=session.reward,
                extra=extra,
            )
        )
        self._attempts = []
        if action is None and self._failure.ends:
            self.outcome = "failure"
        elif session.done:
            self.outcome = "goal" if session.solved else "ended"
        elif len(self.steps) == self.spec.horizon:
            self.outcome = "horizon"

    def record(self, agent: str, tags: Mapping[str, Tag] | None = None) -> Episode:
        """Return the finished episode as a record, which can be stored.

        Args:
            agent: the agent's short name.
            tags: the agent's own tags, named values by which results are grouped.

        Raises:
            ValueError: the episode has not ended.
        """
        if self.outcome is None:
            raise ValueError(
                f"episode {self.spec.id} is still running and cannot be recorded yet: call record after the "
                "outcome is known"
            )
        return Episode(
            spec=self.spec,
            world=self._world,
            agent=agent,
            steps=tuple(self.steps),
            final=self._session.state,
            outcome=self.outcome,
            tags=dict(tags or {}),
        )


# maximum number of steps in a part, which limits its memory and the time until it is committed
_MOST_STEPS, _MOST_STATES = 60_000, 500_000

Planned = tuple[EpisodeSpec, World]


def plays_together(agent: Agent) -> bool:
    """Return whether an agent's actions depend only on its probabilities at each state of a plain grid.

    Many episodes of such an agent can be computed at once, as arrays.
    """
    kind: Any = type(agent)
    if not isinstance(agent, ScriptedAgent) or "table" not in vars(kind):
        return False
    follows_table = "probabilities" in vars(kind) or kind.probabilities is ScriptedAgent.probabilities
    return follows_table and kind.act is Scripted.act and kind._choose is ScriptedAgent._choose


def played_world(world: World) -> bool:
    """Return whether a world is a plain grid, without fog or a special instruction, so that its episodes can be
    vectorised.
    """
    return type(world) is GridWorld and world.fog_radius is None


def parts(planned: Iterable[Planned]) -> Iterator[list[Planned]]:
    """Divide planned episodes into lists that are small enough to be computed at once, in order.

    The number of steps and of states in each list is limited, except that a single episode may exceed the limit.
    """
    part, worlds, steps, states = list[Planned](), set[int](), 0, 0
    for spec, world in planned:
        steps += spec.horizon
        if id(world) not in worlds:
            worlds.add(id(world))
            states += max(3, phases(world.grid)) * world.grid.walls.size if played_world(world) else 0
        if part and (steps > _MOST_STEPS or states > _MOST_STATES):
            yield part
            part, worlds, steps, states = [], set(), spec.horizon, 0
        part.append((spec, world))
    if part:
        yield part


def play_ahead(
    agent: Agent, planned: Iterable[Planned], put: Callable[[list[EncodedEpisode]], None]
) -> Iterator[Planned]:
    """Play and store those episodes of an agent that can be computed together, and yield the others, which are not
    played yet.

    Args:
        agent: the agent.
        planned: (specification, world) of each episode.
        put: stores a list of episodes that were played.
    """
    if not isinstance(agent, ScriptedAgent) or not plays_together(agent):
        yield from planned
        return
    for part in parts(planned):
        if together := [(spec, world) for spec, world in part if isinstance(world, GridWorld) and played_world(world)]:
            put(play(agent, together))
        yield from ((spec, world) for spec, world in part if not played_world(world))


def play(agent: ScriptedAgent, planned: Sequence[tuple[EpisodeSpec, GridWorld]]) -> list[EncodedEpisode]:
    """Play many episodes of a scripted agent on plain grids at once, as arrays, with the same results as one by one.

    Args:
        agent: an agent for which `plays_together` holds.
        planned: (specification, world) of each episode; `played_world` must hold for each world.

    Returns:
        The episodes in their stored form, in order.
    """
    worlds = {id(world): world for _, world in planned}
    tables = [_tables(agent, world.grid) for world in worlds.values()]
    after, chances, flags, over = (np.concatenate(columns) for columns in zip(*tables, strict=True))
    begins = np.array([0, *accumulate(len(table[0]) for table in tables)])
    after = after + np.repeat(begins[:-1], np.diff(begins))[:, None]
    numbers = {key: number for number, key in enumerate(worlds)}
    of = np.array([numbers[id(world)] for _, world in planned])
    first = np.array([state_number(world.grid, initial_state(world.grid)) for world in worlds.values()])
    shapes = np.array([world.grid.walls.shape for world in worlds.values()])

    (seed,) = {spec.seed for spec, _ in planned}
    begun = heads(seed, "turn", each=[spec.id for spec, _ in planned])
    horizon = np.array([spec.horizon for spec, _ in planned])
    state = begins[of] + first[of]
    live, turn = np.arange(len(planned)), 0
    moves_made: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    while len(live):
        live_states = state[live]
        cumulative = chances[live_states]
        drawn = uniforms([begun[index] for index in live.tolist()], turn, 0) * cumulative[:, -1]
        action = np.minimum((cumulative <= drawn[:, None]).sum(axis=1), 3)  # the same index as from `bisect_right`
        moves_made.append((live, live_states, action))
        state[live] = step_batch(after[None], np.int64(0), live_states, action)  # type: ignore[arg-type]
        turn += 1
        live = live[(over[state[live]] == 0) & (turn < horizon[live])]

    episode, passed_states, actions = (np.concatenate([part[at] for part in moves_made]) for at in range(3))
    order = np.argsort(episode, kind="stable")
    length = np.bincount(episode, minlength=len(planned))
    walk = np.column_stack([_cells(passed_states, of[episode], begins, shapes, flags), actions])[order]
    final = _cells(state, of, begins, shapes, flags)
    ends = np.cumsum(length)
    tags = encode_tags(getattr(agent, "tags", None) or {})
    small = walk.astype(np.int8).tobytes() if max(shapes.max(), flags.max()) <= 127 else None
    stored = list[EncodedEpisode]()
    outcomes = np.array(["horizon", "goal", "ended"])[over[state]]
    rows = zip(planned, ends.tolist(), length.tolist(), final.tolist(), outcomes.tolist(), strict=True)
    for (spec, world), end, count, last, outcome in rows:
        steps = walk[end - count : end]
        packed = pack_numbers(steps) if small is None else b"b" + small[4 * (end - count) : 4 * end]
        header = encode_head(spec, agent.name, outcome, last, count, tags)
        stored.append((world, header, PackedSteps(packed, b"")))
    return stored


def _tables(agent: ScriptedAgent, grid: Grid) -> tuple[npt.NDArray[Any], ...]:
    """Return transitions ``[S, 4]``, cumulative probabilities ``[S, 4]``, and for each state of one grid its flags and
    whether the episode is over there, ``[S]`` each: 0 if not, 1 at the goal, 2 without success.
    """
    flags = configurations(grid)
    chances = []
    for number in flags if grid.key is not None or grid.things else flags[:1]:
        view = grid if number == 0 or grid.start is None else shown(grid, state_with(number, grid.start))
        table = agent.table(view.at(start=None, goal=grid.goal))
        if table is None:
            raise ValueError(f"agent {agent.name} has no table of probabilities, so it cannot be played in parallel")
        chances.append(table.reshape(-1, 4))
    chances += chances[-1:] * (len(flags) - len(chances))  # a grid without a key has no later phases
    over = np.zeros(grid.walls.shape, dtype=np.int64)
    if grid.goal is not None:
        over[grid.goal] = 1
    for cell in arrangement_of(grid.things, grid.held).ends:
        over[cell] = 2
    cumulative = np.cumsum(np.concatenate(chances), axis=1)
    return transitions(grid), cumulative, np.repeat(flags, grid.walls.size), np.tile(over.reshape(-1), len(flags))


def _cells(
    state: npt.NDArray[np.int64],
    world: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    shapes: npt.NDArray[np.int64],
    flags: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Convert the indices of N states in their worlds to rows, columns and flags, ``[N, 3]``."""
    cell = (state - begins[world]) % shapes.prod(axis=1)[world]
    row, col = np.divmod(cell, shapes[world, 1])
    return np.column_stack([row, col, flags[state]])
