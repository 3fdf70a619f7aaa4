"""Patching with null pairs: activations from a changed grid replace those in the forward pass of the original grid.

In the first state of each world, the goal, the key or the agent is moved, in `CHANGES` versions each. Let S_h(x) be
the moves that hypothesis h prefers in x, and p the probabilities of moves with and without the patch. Then

    turn(h) = mean over pairs (x, y) of  p(S_h(y) | x with y put in) - p(S_h(y) | x),   S_h(x) and S_h(y) disjoint

over the *own pairs* of h. Pairs with S_h(x) = S_h(y) are its *null pairs*. A hypothesis is claimed if

* no moved thing is shown to turn the moves by less than `LEAST` over own pairs (among things whose place changes the
  preferred moves in at least the share `OFTEN` of the pairs), and some thing is shown to turn them by more;
* in its null pairs, the moves do not turn by more than `NULL` to moves that only a rival prefers;
* no rival is shown to turn the moves more, over own pairs of both in which they differ. A rival that is not shown to
  turn them less, and meets the other conditions, is claimed too.

Intervals are Student's t over at least `FEWEST` clusters.

Only later parts of the network see the patch, so it turns the moves less than moving the object itself would.

Source: Geiger et al. (2021), Causal abstractions of neural networks (interchange interventions).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals.attribution.definition import Attribution, MixturePart, Said, Trial, attribution, lower_end
from goalscope.goals.counterfactual.worlds import elsewhere
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Mask, Undefined, finite_world
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.worlds.gridworld import GridWorld

THINGS: Final = ("goal", "key", "agent")
CHANGES: Final = 6
"""Versions of a world for each thing."""
LEAST: Final = 0.1
"""Change of the probability of moves that counts as a turn."""
NULL: Final = 0.05
"""The same in null pairs, where a turn speaks against a claim."""
OFTEN: Final = 0.2
"""Share of the pairs of a thing that must be own ones for it to matter to a hypothesis."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedPair:
    """A world, and a copy of it in the same cluster with one thing moved."""

    cluster: str
    thing: str
    own: FiniteWorld
    other: FiniteWorld


def moved_pairs(trial: Trial, things: Sequence[str]) -> list[MovedPair]:
    """Draw pairs of worlds and copies with one thing moved, evenly over things. Worlds that hide the agent have no
    pairs.

    Raises:
        Undefined: if there are no pairs.
    """
    pairs = list[MovedPair]()
    for answers in trial.answers:
        world = answers.world.world
        if not isinstance(world, GridWorld) or world.grid.start is None:
            continue
        for thing in things:
            all_moves = list(elsewhere(world.grid, thing))
            drawn = stream(trial.seed, "put in", world.id, thing).permutation(len(all_moves))[:CHANGES]
            for grid in (all_moves[index] for index in drawn.tolist()):
                other = finite_world(GridWorld(grid=grid, cluster=answers.cluster), answers.world.horizon)
                pairs.append(MovedPair(cluster=answers.cluster, thing=thing, own=answers.world, other=other))
    if not pairs:
        raise Undefined("it needs whole grids in which a thing can be moved")
    return pairs


@attribution("patching", asks="inside")
def by_patching(trial: Trial) -> Attribution:
    """Name the hypotheses for which patching from their own pairs changes the moves, and from their null pairs does
    not.
    """
    inside, pairs = trial.opened, moved_pairs(trial, THINGS)
    chances = inside.put_in([(pair.own, pair.other) for pair in pairs])
    change = chances[:, 0] - chances[:, 1]
    cached: dict[int, Mask] = {}
    preferred = [[_preferred(trial.bank, world, cached) for world in (pair.own, pair.other)] for pair in pairs]
    before, after = np.swapaxes(np.array(preferred), 0, 1)  # [N, K, A] each
    speaks = before.any(axis=2) & after.any(axis=2)
    decisive = speaks & ~(before & after).any(axis=2)
    null = speaks & (before == after).all(axis=2)
    turns = (change[:, None] * after).sum(axis=2)  # [N, K]
    clusters, names = np.array([pair.cluster for pair in pairs]), list(trial.bank)
    of_things = [np.array([pair.thing == thing for pair in pairs]) for thing in THINGS]

    def low(values: Array, chosen: Mask) -> float | None:
        """Return the lower end of the interval of a mean over clusters, or None with too few clusters."""
        means = [values[chosen & (clusters == cluster)].mean() for cluster in dict.fromkeys(clusters[chosen].tolist())]
        return lower_end(np.array(means), trial.level) if len(means) >= FEWEST else None

    def ends(k: int) -> tuple[list[float], list[float]]:
        """Return the lower and upper ends of the intervals of the turn over own pairs, per moved thing."""
        pairs_of = [decisive[:, k] & of for of in of_things if (decisive[:, k] & of).sum() >= OFTEN * of.sum()]
        lows = [end for of in pairs_of if (end := low(turns[:, k], of)) is not None]
        return lows, [-end for of in pairs_of if (end := low(-turns[:, k], of)) is not None]

    def free(index: int) -> bool:
        other_turns = (change[:, None] * (after & ~after[:, index, None])).sum(axis=2)
        rivals = (
            low(other_turns[:, k], decisive[:, k] & null[:, index] & of) for k in range(len(names)) for of in of_things
        )
        return all(end is None or end <= NULL for end in rivals)

    def ahead(k: int, of: int) -> bool:
        differ = decisive[:, k] & decisive[:, of] & (after[:, k] != after[:, of]).any(axis=1)
        end = low(turns[:, k] - turns[:, of], differ)
        return end is not None and end > 0

    spread = [ends(k) for k in range(len(names))]
    candidates = [k for k, (lows, highs) in enumerate(spread) if lows and min(highs) > LEAST and free(k)]
    first = [
        k for k in candidates if max(spread[k][0]) > LEAST and not any(ahead(other, k) for other in range(len(names)))
    ]
    named = [names[k] for k in candidates if k in first or any(not ahead(best, k) for best in first)]
    weights = {name: float(turns[decisive[:, k], k].mean()) for k, name in enumerate(names) if decisive[:, k].any()}
    return claimed("patching", named, trial, f"its activations turn the moves as {' or '.join(named)} says", weights)


def _preferred(bank: Mapping[str, Hypothesis], world: FiniteWorld, cached: dict[int, Mask]) -> Mask:
    """Return which of A moves each of K hypotheses prefers in the first state ``[K, A]``.

    None if all are equally good.
    """
    if id(world) not in cached:
        start, rows = int(world.process.start.argmax()), list[Array]()
        for hypothesis in bank.values():
            try:
                policy = hypothesis.solved(world).policy[0, start]
            except Undefined:
                policy = world.even[start]
            best = policy >= policy.max() - 1e-12
            rows.append(best & ~best.all())
        cached[id(world)] = np.array(rows)
    return cached[id(world)]


def claimed(method: str, names: Sequence[str], trial: Trial, words: str, weights: Mapping[str, float]) -> Attribution:
    """Build the claim of a method that looks inside an agent, with strengths taken from the observed episodes."""
    kind: Said = "undecided" if not names else "named" if len(names) == 1 else "set"
    gain, size = trial.evidence.gain.sum(axis=0), trial.evidence.size.sum(axis=0)
    parts = []
    for name in names:
        at = trial.evidence.names.index(name)
        strength = float(gain[at] / size[at]) if size[at] > 0 else 1.0
        parts.append(MixturePart(hypothesis=trial.bank[name].text, weight=1 / len(names), strength=strength))
    verdict = words if names else f"{method} shows nothing"
    return Attribution(
        method=method, kind=kind, names=tuple(names), sentence=verdict, weights=weights, predicts=tuple(parts)
    )
