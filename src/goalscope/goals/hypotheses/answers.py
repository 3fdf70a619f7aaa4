"""The answers of an agent in each step of its episodes, as action probabilities: answered twice, or exact.

A second, independent answer to the same observation shows how much of its behaviour the agent itself would repeat; no
prediction of a single action can be better than that. Second answers come from a study with ``answers: 2``. If an agent
reports the probabilities of its actions, they stand for both answers. If neither was recorded, the mean answer of the
agent's other episodes in the same state can replace the second answer, provided that the agent depends on the state
only. Steps without an action, and steps without a second answer in a world where other steps have one, are left out and
counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from goalscope._ground.checks import check_shape, freeze
from goalscope._ground.distributions import to_distributions
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Numbers
from goalscope.goals.hypotheses.states import States


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """The answers of one agent in one world, in N steps of E episodes.

    Attributes:
        world: the world with its process of S states and A actions.
        state: ``[N]`` number of the state before each step.
        time: ``[N]`` number of the step within its episode.
        episode: ``[N]`` number of the episode of each step; the steps of an episode are consecutive.
        last: ``[E]`` state at the end of each episode.
        left: ``[E]`` number of decisions that remained at the end.
        first: ``[N, A]`` one-hot action of the first answer, or the probabilities of all actions.
        second: ``[N, A]`` the same for the second answer; None if there is none.
        written: ``[N]`` text written before the first answer, "" if none; None if no step has a text.
        left_out: number of steps left out because they lack an action or a second answer.
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
            distribution: Array | None = getattr(self, name)
            if distribution is not None:
                check_shape(name, distribution, "N A", size)
                object.__setattr__(self, name, freeze(to_distributions(name, distribution)))
        if self.written is not None and len(self.written) != len(self.state):
            raise ValueError(f"there must be a text for each of {len(self.state)} steps, got {len(self.written)}")

    @property
    def cluster(self) -> str:
        """Cluster of the world: versions of one grid share it, and intervals count clusters."""
        return self.world.world.cluster or self.world.world.id

    def only(self, kept: Numbers) -> "Answers":
        """Return the answers of some steps, given by their indices in increasing order."""
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in ("state", "time", "episode", "first")},
            second=None if self.second is None else self.second[kept],
            written=None if self.written is None else tuple(self.written[index] for index in kept),
        )


def answers_of(states: Iterable[States], *, by_visits: bool = False) -> list[Answers]:
    """Extract the answers from recorded states, one record for each world with a usable step.

    Worlds under fog are left out, because the agent does not see the whole state there.

    Args:
        states: the recorded episodes of one agent, see `goalscope.goals.hypotheses.states_of`.
        by_visits: replace missing second answers by those of other episodes in the same state. For agents that see
            their earlier steps, only first turns are replaced.
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
                left=episodes.left,
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
    """Return for each record the action frequencies ``[A]`` in all other clusters; None if there are none."""
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
