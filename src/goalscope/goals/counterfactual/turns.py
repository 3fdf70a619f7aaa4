"""Measure how much the move distributions of an agent differ between a state and its changed versions.

Let p and q be the distributions of the moves in a state and in its changed version, and k the number of moves:

    total variation  TV = sum over a of |p(a) - q(a)| / 2
    change           D  = sum over a of (p(a) - q(a))^2 / 2,    TV^2 <= k D / 2,  D <= TV^2
    predictable part P  = (sum over a of p(a)^2 + q(a)^2) / 2 - 1 / k

If an agent reports its policy (likelihoods), all three are exact. From sampled answers x_1 .. x_n and y_1 .. y_m, total
variation has no unbiased estimator, but the other two have U-statistics over pairs of different answers:

    D = mean 1[x_i != y_j] - (mean 1[x_i != x_j] + mean 1[y_i != y_j]) / 2,    P = 1 - its second part - 1 / k

The estimate of D may be negative. Answers without a move are left out, and so are versions with fewer than two moves on
a side; the remaining answers are still independent draws from p and q, conditional on a valid move.

Source: Gretton et al. (2012), A kernel two-sample test, lemma 6, with the kernel 1[x = y]; goalscope (P, the bounds).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.goals.counterfactual.worlds import MOVED, NOTHING
from goalscope.runs.record import Episode, policy_of
from goalscope.runs.store import Store
from goalscope.stats.rows import Row, Rows, Tag
from goalscope.worlds.dynamics import shown

Array = npt.NDArray[np.float64]

CHANGE, PREDICTABLE, VARIATION = "change of the moves", "predictable part of the moves", "total variation of the moves"
"""Names of the measures in the rows of `rows_of`."""


@dataclass(slots=True)
class WorldTurns:
    """An agent's answers in one world: its first turns there.

    Attributes:
        counts: ``[A]`` number of answers with each move.
        invalid: number of answers without a move.
        policy: ``[A]`` probabilities of the moves; None if the agent does not report them.
    """

    counts: Array
    invalid: int = 0
    policy: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An agent's answers in a state and in its changed versions.

    Attributes:
        cluster, tags: cluster and tags of the world.
        side: answers in the original state.
        changed: changed thing -> answers in each changed version.
    """

    cluster: str
    tags: Mapping[str, Tag]
    side: WorldTurns
    changed: dict[str, list[WorldTurns]] = field(default_factory=dict)


def visited_states(store: Store, agents: Collection[str], count: int, *, seed: int) -> dict[str, Any]:
    """Draw one visited state of each grid in a run, with the turns before it, for an entry of kind `changed`.

    Returns:
        The keys ``of`` and ``walks`` of the entry.

    Worlds with fog, with an instruction, or of another kind are left out, and so are turns in which the agent holds the
    key, because a grid cannot show that.

    Args:
        store: the run.
        agents: names of the agents whose turns are drawn from.
        count: maximum number of grids.
        seed: seed of the draws.

    Raises:
        ValueError: the run has no suitable state.
    """
    turns: dict[str, list[tuple[str, list[list[int | None]]]]] = {}
    for episode in store.episodes():
        world = episode.world
        shown_whole = world.offers >= {"grid", "seen state"} and world.fog_radius is None
        if episode.agent in agents and shown_whole:
            without_key = [step for step in episode.steps if step.state[2] == 0]
            walk = [[*step.state[:2], None if step.action is None else int(step.action)] for step in without_key]
            turns.setdefault(world.cluster_id, []).extend(
                (shown(world.grid, step.state).render(), walk[:number]) for number, step in enumerate(without_key)
            )
    rng, renderings = stream(seed, "visited states"), dict[str, list[list[int | None]]]()
    for cluster in sorted(turns):
        if states := turns[cluster]:
            renderings.setdefault(*states[int(rng.integers(len(states)))])
    if not renderings:
        raise ValueError(
            f"{store.path} has no turns of {', '.join(agents)} in grids without fog: name the agent itself and add "
            "--worlds"
        )
    chosen = sorted(rng.permutation(len(renderings))[:count].tolist())
    grids = [list(renderings)[index] for index in chosen]
    return {"of": [{"kind": "text", "grids": grids}], "walks": [renderings[grid] for grid in grids]}


def asked_of(episodes: Iterable[Episode]) -> dict[str, list[Asked]]:
    """Collect each agent's moves in original and changed states; episodes in other worlds are ignored."""
    sides: dict[tuple[str, str], tuple[Any, WorldTurns]] = {}
    for episode in episodes:
        if "changed" not in episode.world.offers or not episode.steps:
            continue
        key, first = (episode.agent, episode.world.id), episode.steps[0]
        if key not in sides:
            sides[key] = episode.world, WorldTurns(counts=np.zeros(len(_actions(episode.world))))
        side = sides[key][1]
        if first.action is None:
            side.invalid += 1
        else:
            side.counts[int(first.action)] += 1
            policy = policy_of(first)
            side.policy = np.array(policy) if policy is not None and len(policy) == len(side.counts) else side.policy
    states: dict[str, dict[str, Asked]] = {}
    for (agent, _), (world, side) in sides.items():
        if world.moved == NOTHING:
            original_state = Asked(cluster=world.cluster_id, tags=world.tags, side=side)
            states.setdefault(agent, {})[world.original] = original_state
    for (agent, _), (world, side) in sides.items():
        original = states.get(agent, {}).get(world.original)
        if world.moved != NOTHING and original is not None:
            original.changed.setdefault(world.moved, []).append(side)
    return {agent: list(of_agent.values()) for agent, of_agent in states.items()}


def _actions(world: Any) -> Sequence[str]:
    """Return the names of all actions in a changed world."""
    names: Sequence[str] = world.believed.table.actions if "environment" in world.offers else world.view.actions
    return names


def distances(first: WorldTurns, second: WorldTurns) -> tuple[float, float, float]:
    """Return how much the moves of two sides differ.

    Returns:
        The change, the predictable part and the total variation distance; NaN where a value is unknown.
    """
    if first.policy is not None and second.policy is not None:
        return exact(first.policy, second.policy)
    change, predictable = estimated(first.counts, second.counts)
    return float(change), float(predictable), float("nan")


def exact(first: Array, second: Array) -> tuple[float, float, float]:
    """Return change, predictable part and total variation distance of two exact distributions over actions, ``[A]``
    each.
    """
    gap, square = first - second, float(first @ first + second @ second) / 2
    return float(gap @ gap) / 2, square - 1 / len(first), float(np.abs(gap).sum()) / 2


def estimated(first: Array, second: Array) -> tuple[Array, Array]:
    """Estimate change and predictable part from counts of answers ``[..., A]`` on both sides.

    Both are NaN if a side has fewer than two answers.
    """
    number = [side.sum(axis=-1) for side in (first, second)]
    with np.errstate(divide="ignore", invalid="ignore"):
        within = [
            (side * (side - 1)).sum(axis=-1) / (n * (n - 1)) for side, n in zip((first, second), number, strict=True)
        ]
        across = (first * second).sum(axis=-1) / (number[0] * number[1])
        has_pairs = (number[0] > 1) & (number[1] > 1)
        agreement = (within[0] + within[1]) / 2
        return np.where(has_pairs, agreement - across, np.nan), np.where(
            has_pairs, agreement - 1 / first.shape[-1], np.nan
        )


def rows_of(answers: Mapping[str, list[Asked]]) -> Rows:
    """Return one row per measure and changed version."""
    return Rows.from_rows(_rows(answers))


def _rows(answers: Mapping[str, list[Asked]]) -> Iterator[Row]:
    for agent, states in answers.items():
        for state in states:
            for thing, versions in state.changed.items():
                tags = {**state.tags, "agent": agent, MOVED: thing}
                for version in versions:
                    values = zip((CHANGE, PREDICTABLE, VARIATION), distances(state.side, version), strict=True)
                    for measure, value in (pair for pair in values if not np.isnan(pair[1])):
                        yield Row(measure=measure, unit="share", value=value, cluster=state.cluster, tags=tags)
