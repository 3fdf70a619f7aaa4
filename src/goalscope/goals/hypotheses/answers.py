"""What an agent answered in each step of its episodes, as probabilities of actions: twice, or exactly.

A second, independent answer to the same observation shows how much of an answer the agent itself would repeat: nothing
can predict a single action better than that. It is the second answer of a study with ``answers: 2``; where an agent
tells the probabilities of its actions, they stand for both answers. Where neither was recorded, the mean answer of the
agent's other episodes in the same state takes its place: it is as independent, as long as what the agent does depends
on the state alone. Steps whose turn held no action, or that have no second answer although others of the same world
have one, are left out, and counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from goalscope._ground.checks import check_shape, freeze
from goalscope._ground.distributions import to_distributions
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Numbers
from goalscope.goals.hypotheses.states import States


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
        left_out: number of steps without an action, or without the second answer that others have.
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
    left_out: int = 0

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
    def cluster(self) -> str:
        """What intervals count: versions of one grid are one."""
        return self.world.world.cluster or self.world.world.id


def answers_of(states: Iterable[States], *, by_visits: bool = False) -> list[Answers]:
    """Return the answers in some states, a record for each world in which any step can be used.

    Worlds under fog are left out: what the agent sees there is not the state.

    Args:
        states: what one agent did, see `goalscope.goals.hypotheses.states_of`.
        by_visits: whether other episodes that came to the same state stand in where no second answer was recorded; for
            agents that are shown their earlier steps only in their first turns.
    """
    found = list[Answers]()
    for one in states:
        if one.world.world.fog_radius is not None:
            continue
        repeat = one.repeat
        if repeat is None and by_visits:
            repeat = _by_visits(one)
        has_answer = one.action >= 0
        used = has_answer if repeat is None else has_answer & ~np.isnan(repeat[:, 0])
        if not used.any():
            continue
        first = np.eye(one.world.process.actions)[one.action[used]]
        if one.policy is not None and one.repeat is not None:  # else they follow on reasoning that was drawn, too
            exact = (one.policy[used] == one.repeat[used]).all(axis=1)
            first[exact] = one.policy[used][exact]
        found.append(
            Answers(
                world=one.world,
                state=one.state[used],
                time=one.time[used],
                episode=one.episode[used],
                last=one.last,
                left=one.left,
                first=first,
                second=None if repeat is None else repeat[used],
                written=None if one.written is None else tuple(np.array(one.written, dtype=object)[used]),
                left_out=int((~used).sum()),
            )
        )
    return found


def _by_visits(one: States) -> Array | None:
    """Return ``[N, A]`` the mean answer of the other episodes in the state of each step, NaN without any."""
    given = np.flatnonzero((one.action >= 0) & ((one.time == 0) | (not one.remembers)))
    states, actions = one.world.process.states, one.world.process.actions
    # An episode may come to a state several times: its own answers there are no second answers to one another.
    keys = one.episode[given] * states + one.state[given]
    _, place = np.unique(keys, return_inverse=True)
    by_episode = np.zeros((int(place.max(initial=-1)) + 1, actions))
    np.add.at(by_episode, (place, one.action[given]), 1.0)
    _, where = np.unique(one.state[given], return_inverse=True)
    by_state = np.zeros((int(where.max(initial=-1)) + 1, actions))
    np.add.at(by_state, (where, one.action[given]), 1.0)
    own = by_state[where] - by_episode[place]
    total = own.sum(axis=1)
    result = np.full((len(one.state), actions), np.nan)
    result[given[total > 0]] = own[total > 0] / total[total > 0, None]
    return None if np.isnan(result).all() else result


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
