"""Attribution by the place that the agent reaches first: simple, but misled by places on the way to other places.

For each episode, the first of the places and events of the bank that held in one of its states. The same share is
computed for an agent that takes all offered actions equally often, exactly, by forward propagation in the same worlds:

    P(first = h) = sum over t of the mass that comes into h's states at t, and has been in those of no hypothesis before

Where two begin to hold at once, both are first. Intervals: Student's t over clusters.
"""

import numpy as np

from goalscope.goals.attribution.definition import Attribution, MixturePart, Trial, attribution
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Mask
from goalscope.goals.hypotheses.score import Kind
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.views import Undefined

LEAST = 0.25
"""Minimum excess of a place's share of first arrivals over that of a random agent, for the place to be named."""


@attribution("first arrival")
def by_arrival(trial: Trial) -> Attribution:
    """Name the place or event that the agent reaches first more often than a random agent does."""
    names = [name for name, hypothesis in trial.bank.items() if hypothesis.kind in ("place", "event")]
    if not names:
        raise Undefined("first arrival needs a place or an event among the hypotheses")
    clusters: dict[str, list[Array]] = {}
    for answers in trial.answers:
        in_place = np.zeros((len(names), answers.world.process.states), dtype=bool)
        for number, name in enumerate(names):
            try:
                in_place[number] = trial.bank[name].where(answers.world)
            except Undefined:
                continue
        clusters.setdefault(answers.cluster, []).append(
            first_shares(answers, in_place) - arrivals(answers.world, in_place, answers.world.even)
        )
    excess = np.array([np.mean(excesses, axis=0) for excesses in clusters.values()])  # [G, K]
    value, low = excess.mean(axis=0), np.array([lower_end(excess[:, k], trial.level) for k in range(len(names))])
    best = int(value.argmax())
    equal = [k for k in range(len(names)) if k == best or lower_end(excess[:, best] - excess[:, k], trial.level) <= 0]
    enough = len(excess) >= FEWEST and low[best] > LEAST
    chosen = tuple(names[k] for k in equal) if enough else ()
    kind: Kind = "undecided" if not enough else "named" if len(chosen) == 1 else "set"
    parts = [MixturePart(hypothesis=trial.bank[name].text, weight=1 / len(chosen)) for name in chosen]
    sentence = f"{names[best]} is reached first in {value[best]:.2f} more of the episodes than by a random agent"
    return Attribution(
        method="first arrival",
        kind=kind,
        names=chosen,
        sentence=sentence if enough else f"not shown: {sentence}",
        weights=dict(zip(names, value.tolist(), strict=True)),
        predicts=tuple(parts),
        details={"low": dict(zip(names, low.tolist(), strict=True))},
    )


def first_shares(answers: Answers, in_place: Mask) -> Array:
    """Return, for each of K places ``[K]``, the share of episodes that reach this place before all other places.

    Args:
        answers: the answers in one world.
        in_place: ``[K, S]`` the states of each place.
    """
    first_count = np.zeros(len(in_place))
    for episode, last in enumerate(answers.last.tolist()):
        walk = [*answers.state[answers.episode == episode].tolist(), last]
        hits = in_place[:, walk]
        if hits.any():
            first_count += hits[:, int(hits.any(axis=0).argmax())]
    return first_count / len(answers.last)


def arrivals(world: FiniteWorld, in_place: Mask, policy: Array) -> Array:
    """Compute the exact probability that each of K places is reached first, ``[K]`` or ``[C, K]``.

    Args:
        world: the world.
        in_place: ``[K, S]`` the states of each place.
        policy: ``[S, A]`` the probabilities of actions; ``[C, n, S, A]`` those of C agents, by decision (the last ones
            hold from then on).
    """
    if policy.ndim == 2:
        return np.asarray(arrivals(world, in_place, policy[None, None])[0])
    kept = np.flatnonzero(world.reached)  # no other state ever has any mass
    count, states = len(policy), len(kept)
    masks, policy, start = in_place[:, kept], policy[:, :, kept], world.process.start[kept]
    passes = np.where(masks.any(axis=0), 0.0, 1.0)
    if not world.process.chance:
        number = np.zeros(world.process.states, dtype=np.int64)
        number[kept] = np.arange(states)
        target = np.add.outer(np.arange(count) * states, number[world.process.transitions[kept]]).reshape(-1)
    mass: Array = np.tile(start, (count, 1))
    arrived = np.zeros((count, len(in_place)))
    for step in range(world.horizon):
        arrived += mass @ masks.T
        flow = (mass * passes)[:, :, None] * policy[:, min(step, policy.shape[1] - 1)]
        if world.process.chance:
            whole = np.zeros((count, world.process.states, world.process.actions))
            whole[:, kept] = flow
            mass = np.stack([world.process.base.flow(part)[kept] for part in whole])
        else:
            sums = np.bincount(target, weights=flow.reshape(-1), minlength=count * states)
            mass = sums.astype(np.float64).reshape(count, states)
    return np.asarray(arrived + mass @ masks.T)


def lower_end(values: Array, level: float) -> float:
    """Return the one-sided lower confidence bound (Student's t) of the mean of ``[G]`` cluster values."""
    if len(values) < 2:
        return float("-inf")
    from scipy.special import stdtrit

    return float(values.mean() - stdtrit(len(values) - 1, 1 - level) * values.std(ddof=1) / np.sqrt(len(values)))
