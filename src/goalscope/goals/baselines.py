"""What the directedness of an agent is compared with: random agents, and the agent's own habits.

Random agents are simulated in batches where the random numbers allow it. The *state-blind* baseline of an agent draws
moves with the agent's move frequencies, whatever it sees. An agent with a habit ("mostly right") may reach a place
without looking for it; this baseline reaches it equally often. For a world w we use the frequencies of the agent's
moves in all other clusters of worlds, so that moves in w do not count on both sides. With a single cluster we use the
moves in w. If a step stores the exact policy that its action was drawn from, the policy replaces the action.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.goals.hypotheses.definition import FiniteWorld, distributions
from goalscope.goals.hypotheses.states import counted_moves, recorded_policies
from goalscope.measures.table import StepTable

_MOST_WALKS: Final = 1 << 20  # simulated at a time
_BYTE: Final = 256  # values of a byte
_BYTES_A_STEP: Final = 32  # of a counter of Philox: four numbers of 64 bits
Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

Invalid = Literal["no-op", "action"]
"""How a turn without an action counts: "no-op" as standing still, "action" as an additional action of every agent."""
Utility = Literal["steps", "arrival"]
"""The utility of an episode: "steps" sums it over the states of all decisions, "arrival" counts the final state."""


def random_utilities(
    world: FiniteWorld,
    utilities: Mapping[Any, Array],
    episodes: int,
    repeats: int,
    *,
    seed: int,
    kind: Utility,
    invalid: Invalid,
    exact: bool = False,
) -> dict[Any, Array]:
    """Simulate random agents in a world, and return the mean utility of each agent's episodes.

    Args:
        world: the world.
        utilities: hypothesis -> ``[S]`` utility of each state.
        episodes: number of episodes of each agent.
        repeats: number of agents.
        seed: root seed.
        kind: "steps" to sum the utility over all decisions, "arrival" to count the final state only.
        invalid: how turns without an action count, see `Invalid`.
        exact: replace each state by its expectation under the uniform policy of the previous step.

    Returns:
        Hypothesis -> ``[repeats]`` mean utility of each agent.
    """
    means = {name: np.zeros(repeats) for name in utilities}
    expected = {name: expected_after(world, values, invalid) for name, values in utilities.items() if exact}
    size = max(1, _MOST_WALKS // episodes) if _skippable(world, invalid) else repeats
    for agent in range(0, repeats, size):
        agents = slice(agent, min(agent + size, repeats))
        totals = {name: np.zeros(episodes * (agents.stop - agents.start)) for name in utilities}
        before: Numbers | None = None
        part = slice(agents.start * episodes, agents.stop * episodes)
        for step, state in enumerate(random_walks(world, episodes * repeats, seed=seed, invalid=invalid, part=part)):
            if (step == world.horizon) == (kind == "arrival"):
                for name, total in totals.items():
                    total += utilities[name][state] if before is None else expected[name][before]
            before = state if exact else None
        for name, total in totals.items():
            means[name][agents] = total.reshape(-1, episodes).mean(axis=1)
    return means


def _skippable(world: FiniteWorld, invalid: Invalid) -> bool:
    """Return whether a batch of random agents can be drawn without first drawing the agents before it.

    This requires that only actions are drawn, and that the number of actions divides 256: each action then consumes
    exactly one byte of the random stream.
    """
    process = world.process
    count = process.actions + (invalid == "action")
    return not process.lucky and process.offered is None and _BYTE % count == 0


def _drawn(
    world: FiniteWorld, walks: int, count: int, part: slice, name: Sequence[str | int]
) -> Iterator[npt.NDArray[Any]]:
    """Yield the actions of a batch of walks, decision by decision, identical to those of drawing all walks together."""
    for decision in range(world.horizon):
        rng = stream(*name)  # type: ignore[arg-type]
        skipped, rest = divmod(decision * walks + part.start, _BYTES_A_STEP)
        cast(np.random.Philox, rng.bit_generator).advance(skipped)
        yield rng.integers(0, count, size=rest + part.stop - part.start, dtype=np.int8)[rest:]


def random_walks(
    world: FiniteWorld, walks: int, *, seed: int, invalid: Invalid, part: slice | None = None
) -> Iterator[Numbers]:
    """Simulate uniformly random agents in a world, and yield the state of each walk at every decision.

    The walks depend only on the seed, world, horizon and number of walks.

    Args:
        world: the world.
        walks: number of walks (episodes).
        seed: root seed.
        invalid: with "action" there is one more equally likely action, which changes nothing.
        part: simulate a slice of the walks only, in worlds that allow this (`_skippable`); None for all.

    Yields:
        ``[walks]`` state numbers, before each of the n decisions and after the last.
    """
    name = (seed, "random agents", world.world.id, world.horizon, walks, invalid)
    rng, process = stream(*name), world.process
    actions_of_world = process.actions
    count = actions_of_world + (invalid == "action")
    if process.offered is not None:
        yield from _offered_walks(world, walks, rng, idle=count > actions_of_world)
        return
    drawn: Iterable[npt.NDArray[Any]]
    if part is not None and part.stop - part.start < walks:
        drawn, walks = _drawn(world, walks, count, part, name), part.stop - part.start
    else:
        drawn = rng.integers(0, count, size=(world.horizon, walks), dtype=np.int8 if count <= 127 else np.int64)
    state = process.draw_start(walks, rng)
    yield state
    for actions in drawn:
        after = process.draw_next(state, np.minimum(actions, actions_of_world - 1).astype(np.int64), rng)
        state = np.where(actions < actions_of_world, after, state)
        yield state


def _offered_walks(world: FiniteWorld, walks: int, rng: np.random.Generator, *, idle: bool) -> Iterator[Numbers]:
    """Yield the states of `random_walks` if states offer different actions.

    With ``idle`` a further action does nothing.
    """
    process = world.process
    count, actions = process.choices
    state = process.draw_start(walks, rng)
    yield state
    for _ in range(world.horizon):
        drawn = (rng.random(walks) * (count[state] + idle)).astype(np.int64)
        acts = drawn < count[state]
        state = np.where(acts, process.draw_next(state, actions[state, np.where(acts, drawn, 0)], rng), state)
        yield state


def expected_after(world: FiniteWorld, values: Array, invalid: Invalid) -> Array:
    """Return for each state the value expected after one step of a uniformly random agent.

    Args:
        world: the world.
        values: ``[S]`` or ``[S, K]`` value of each state (for K quantities).
        invalid: with "action", standing still counts as one more equally likely action.

    Returns:
        An array of the shape of `values`.
    """
    by_action = world.process.base.expect(values)
    if world.process.offered is not None:
        return _expected_of_offered(by_action, values, world.process.offered, idle=invalid == "action")
    if invalid == "action":
        by_action = np.concatenate([by_action, values[:, None]], axis=1)
    mean: Array = by_action.mean(axis=1)
    return mean


def _expected_of_offered(by_action: Array, values: Array, offered: npt.NDArray[np.bool_], *, idle: bool) -> Array:
    """Return the mean of ``[S, A]`` (or ``[S, A, K]``) over the offered actions, and with ``idle`` over staying."""
    chosen = offered.reshape(*offered.shape, *(1,) * (by_action.ndim - 2))
    total, count = np.where(chosen, by_action, 0.0).sum(axis=1), chosen.sum(axis=1)
    return np.asarray((total + values) / (count + 1) if idle else total / count)


def moves_by_episode(table: StepTable) -> Array:
    """Count how often each action was taken in each episode of a table, ``[E, A]``; turns without an action do not
    count.

    If a step stores the policy that its action was drawn from, the probabilities are counted instead.
    """
    return counted_moves(table.episode, table.action, table.once(recorded_policies), len(table.length))


def frequencies(moves: Array, clusters: Sequence[str]) -> dict[str, Array]:
    """Return how often an agent takes each action outside of each cluster (a world with its versions).

    The state-blind baseline, which ignores what it sees, draws its actions in a cluster with the frequencies outside of
    it.

    Args:
        moves: ``[E, A]`` number of times that each action was taken in each episode, see `States.moves`.
        clusters: ``[E]`` cluster of each episode.

    Returns:
        Cluster -> ``[A]`` frequencies in all other clusters (in itself if it is the only one); uniform without moves.
    """
    names, code = np.unique(np.array(clusters, dtype=str), return_inverse=True)
    totals = np.zeros((len(names), moves.shape[1]))
    np.add.at(totals, code, moves)
    rest = totals.sum(axis=0) - totals if len(names) > 1 else totals
    sums = rest.sum(axis=1, keepdims=True)
    shares = np.where(sums > 0, rest / np.where(sums > 0, sums, 1.0), 1 / moves.shape[1])
    return dict(zip(names.tolist(), shares, strict=True))


def blind_policy(shares: Array, offered: npt.NDArray[np.bool_] | None, states: int, actions: int) -> Array:
    """Return the policy of an agent that ignores the state and takes each action with a given frequency, ``[S, A]``.

    Args:
        shares: frequency of each action; frequencies of actions that the world lacks are dropped.
        offered: ``[S, A]`` bool, the actions that each state offers, or None for all. A state that offers none of the
            agent's moves gets a uniform policy.
        states: number of states S.
        actions: number of actions A.
    """
    shares = np.concatenate([shares, np.zeros(max(0, actions - len(shares)))])[:actions]
    offered_weights = np.ones((states, actions)) if offered is None else offered.astype(np.float64)
    weights = offered_weights * shares
    sums = weights.sum(axis=1, keepdims=True)
    return np.where(
        sums > 0, weights / np.where(sums > 0, sums, 1.0), offered_weights / offered_weights.sum(axis=1, keepdims=True)
    )


def blind_visits(world: FiniteWorld, shares: Array, kind: Utility) -> Array:
    """Return how often an agent that ignores the state is expected to decide in each state of an episode, ``[S]``.

    Args:
        world: the world.
        shares: ``[A]`` frequency with which the agent takes each action.
        kind: "steps" for the number of decisions in each state, "arrival" for the distribution of the final state.
    """
    process = world.process
    *decided, last = distributions(world, blind_policy(shares, process.offered, process.states, process.actions))
    return sum(decided, np.zeros(process.states)) if kind == "steps" else last
