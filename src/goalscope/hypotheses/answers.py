"""What an agent answered in each step of its episodes, as probabilities of actions: twice, or exactly.

A second, independent answer to the same observation (``answers: 2`` of a study) shows how much of an answer the agent
itself would repeat: nothing can predict a single action better than that. Where an agent tells the probabilities of its
actions, they stand for both answers. Steps whose turn held no action are left out, and counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from goalscope.checks import check_shape, freeze
from goalscope.distributions import to_distributions
from goalscope.hypotheses.definition import Array, FiniteWorld, Numbers, finite_world
from goalscope.hypotheses.views import Undefined
from goalscope.planning.process import Process
from goalscope.runs.record import SECOND, Episode, Step, policy_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """N steps of one agent in one world.

    Attributes:
        world: the world with its process of S states and A actions.
        state: ``[N]`` number of the state before each step.
        time: ``[N]`` number of the step in its episode.
        episode: ``[N]`` number of the episode of each step; the steps of one follow one another.
        last: ``[E]`` state at the end of each episode.
        left: ``[E]`` decisions that were left then.
        first: ``[N, A]`` 1 at the action taken, or the probabilities of all.
        second: the same of the second answer; None without one.
        written: ``[N]`` what was written before the first answer, "" where nothing was; None where nothing ever was.
        stood: ``[M]`` number of the state in each step without an action, in which the agent stood still.
    """

    world: FiniteWorld
    state: Numbers
    time: Numbers
    episode: Numbers
    last: Numbers
    left: Numbers
    first: Array
    second: Array | None
    written: tuple[str, ...] | None = None
    stood: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        size = {"N": len(self.state), "A": self.world.process.actions, "E": len(self.last)}
        for name, shape in (("state", "N"), ("time", "N"), ("episode", "N"), ("last", "E"), ("left", "E")):
            check_shape(name, getattr(self, name), shape, size)
        for name in ("first", "second"):
            given: Array | None = getattr(self, name)
            if given is not None:
                check_shape(name, given, "N A", size)
                object.__setattr__(self, name, freeze(to_distributions(name, given)))
        if self.written is not None and len(self.written) != len(self.state):
            raise ValueError(f"there must be a text for each of {len(self.state)} steps, got {len(self.written)}")

    @property
    def left_out(self) -> int:
        """Number of steps without an action."""
        return len(self.stood)

    def mean_utility(self, utility: Array) -> float:
        """Return the mean utility of an episode, ``[S]`` for each of its decisions; it stays in its last state."""
        paid = utility[self.state].sum() + utility[self.stood].sum() + (utility[self.last] * self.left).sum()
        return float(paid / len(self.last))

    @property
    def cluster(self) -> str:
        """What intervals count: versions of one grid are one."""
        return self.world.world.cluster or self.world.world.id


def answers_of(episodes: Iterable[Episode]) -> tuple[list[Answers], dict[str, int]]:
    """Return what one agent answered, a record for each world and horizon, and reason -> worlds left out.

    Args:
        episodes: of one agent.
    """
    grouped: dict[tuple[str, int], list[Episode]] = {}
    for episode in episodes:
        grouped.setdefault((episode.world.id, episode.spec.horizon), []).append(episode)
    found, reasons = list[Answers](), dict[str, int]()
    for (_, horizon), members in grouped.items():
        try:
            world = finite_world(members[0].world, horizon)
            walks = [_numbered(world.process, episode) for episode in members]
        except Undefined as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
            continue
        if record := _answers(world, walks):
            found.append(record)
    return found, reasons


_Walk = tuple[list[int], tuple[Step, ...]]
"""States of an episode, the one at its end included, and its steps."""


def _numbered(process: Process, episode: Episode) -> _Walk:
    if process.number is not None:
        recorded = [_flat(state) for state in (*(step.state for step in episode.steps), episode.final)]
        states = process.number(np.array(recorded, dtype=np.int64)).tolist()
    elif process.lucky:
        raise Undefined("the states of its episodes are not recorded, and chance decides them")
    else:
        states = [int(process.start.argmax())]
        for step in episode.steps:
            state = states[-1]
            states.append(state if step.action is None else int(process.transitions[state, int(step.action)]))
    return states, episode.steps


def _flat(state: Any) -> tuple[int, ...]:
    return (*state.position, state.phase) if hasattr(state, "position") else tuple(np.atleast_1d(state).tolist())


def _answers(world: FiniteWorld, walks: Sequence[_Walk]) -> Answers | None:
    """Return the steps that have an action, and a second one where any step has."""
    steps = [
        (number, state, step)
        for number, (states, taken) in enumerate(walks)
        for state, step in zip(states[:-1], taken, strict=True)
    ]
    one_hot = np.eye(world.process.actions)
    twice = any(SECOND in step.extra or _exact(step) is not None for *_, step in steps)
    rows, stood = list[tuple[int, int, int, Any, Any, str]](), list[int]()
    for number, state, step in steps:
        second = step.extra.get(SECOND) if twice else step.action
        if (policy := _exact(step)) is not None:
            rows.append((number, step.index, state, policy, policy, step.reasoning or ""))
        elif step.action is not None and second is not None:
            rows.append((number, step.index, state, one_hot[step.action], one_hot[second], step.reasoning or ""))
        else:
            stood.append(state)
    if not rows:
        return None
    *columns, written = zip(*rows, strict=True)
    episode, time, state_numbers, first, again = (np.array(column) for column in columns)
    return Answers(
        world=world,
        state=state_numbers,
        time=time,
        episode=episode,
        last=np.array([states[-1] for states, _ in walks]),
        left=np.array([world.horizon - len(taken) for _, taken in walks]),
        first=first,
        second=again if twice else None,
        written=tuple(written) if any(written) else None,
        stood=np.array(stood, dtype=np.int64),
    )


def _exact(step: Step) -> list[float] | None:
    """Return the probabilities that a step was drawn from; None where they follow on reasoning that was drawn, too."""
    return None if "generated" in step.extra else policy_of(step)


def move_frequencies(given: Sequence[Answers]) -> list[Array | None]:
    """Return ``[A]`` for each record how often each action was answered in the other clusters; None without any."""
    sums = [one.first.sum(axis=0) + (0.0 if one.second is None else one.second.sum(axis=0)) for one in given]
    by_cluster: dict[tuple[str, int], Array] = {}
    for one, own in zip(given, sums, strict=True):
        key = one.cluster, len(own)
        by_cluster[key] = by_cluster.get(key, 0.0) + own
    found = list[Array | None]()
    for one, own in zip(given, sums, strict=True):
        rest = [part for (cluster, size), part in by_cluster.items() if cluster != one.cluster and size == len(own)]
        found.append(np.sum(rest, axis=0) / np.sum(rest) if rest else None)
    return found
