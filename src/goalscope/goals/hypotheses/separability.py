"""Compute exactly, before an experiment, which hypotheses given worlds can separate.

An agent that follows h acts according to ``pi_h`` with probability 1 - eps, and takes a uniformly random offered action
with probability eps. The evidence of one of its episodes against k is the expected log-likelihood ratio in nats:

    D(h, k) = sum over t, s of P_h(s_t = s) KL(pi_h^eps(. | t, s) || pi_k^eps'(. | t, s))

where ``P_h(s_t = s)`` comes from forward propagation. We report two figures. With eps' = eps (the same lapse rate for
both) D shows which worlds separate the hypotheses. With eps' the rival's best value among `LAPSES`, one for all worlds,
D is smaller and shows the evidence against a rival of any noise level. The log-likelihood ratio is expected to reach
log(1 / level) after ``log(1 / level) / D`` episodes.

Source: Kullback and Leibler (1951), On information and sufficiency, section 2; the number of episodes: Wald (1945),
Sequential tests of statistical hypotheses, section 4, without the excess over the boundary.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_number, freeze
from goalscope.goals.hypotheses.definition import (
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    Solved,
    Undefined,
    can_gain,
    finite_world,
)
from goalscope.goals.hypotheses.written import bind
from goalscope.worlds.world import World

LAPSE: Final = 0.1
"""Default lapse rate: share of random actions of the compared agents."""

ENOUGH: Final = 0.1
"""A world separates two hypotheses from this many nats per episode."""

FEWEST: Final = 6
"""Number of clusters of worlds that must separate two hypotheses before one is named, unless all clusters do."""

LAPSES: Final[Array] = freeze(np.geomspace(0.005, 1.0, 40))
"""Candidates for a rival's best lapse rate, 15 % apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Separability:
    """How differently agents that follow K different hypotheses act in W worlds.

    The evidence D(h, k) is the expected log-likelihood ratio, in nats, of h against k in an episode of an agent that
    follows h. Matrices have it in row h and column k.

    Attributes:
        names: ``[K]`` names of the hypotheses.
        world_ids, clusters: ``[W]`` id and cluster of each world; the versions of one world share a cluster.
        lapse: lapse rate eps of the agents, the probability of a random action.
        level: error rate for which `episodes` is computed.
        nats: ``[W, K, K]`` D(h, k) per episode with the same lapse rate for both; NaN where one is undefined.
        own_best: ``[K, K]`` mean of D(h, k) over the worlds that define both, if k is given the lapse rate that fits
            best.
        own_lapse: ``[K, K]`` this best lapse rate of k.
        disjoint: ``[K, K]`` share of the decisions of an agent that follows h in which h and k have no action in
            common, over all worlds that define both.
        within: ``[W, K]`` whether some policy changes the hypothesis's utility within the horizon; True for policies,
            False where the hypothesis is undefined.
        undefined: name -> reason why it is undefined -> number of worlds.
    """

    names: tuple[str, ...]
    world_ids: tuple[str, ...]
    clusters: tuple[str, ...]
    lapse: float
    level: float
    nats: Array
    own_best: Array
    own_lapse: Array
    disjoint: Array
    within: Mask
    undefined: Mapping[str, Mapping[str, int]]

    @property
    def both(self) -> npt.NDArray[np.int64]:
        """``[K, K]`` number of worlds in which both hypotheses of a pair are defined."""
        return np.asarray((~np.isnan(self.nats)).sum(axis=0))

    @property
    def mean(self) -> Array:
        """``[K, K]`` mean evidence per episode, in nats, of an agent that follows the first hypothesis against the
        second.

        Both agents have the same lapse rate (probability of a random action). The mean is over the worlds that define
        both hypotheses; NaN if there are none.
        """
        return _ratio(np.nansum(self.nats, axis=0), self.both)

    @cached_property
    def least(self) -> Array:
        """``[W, K, K]`` evidence per episode in each world, in nats, that separates two hypotheses, whichever is
        followed.

        It is the smaller of the evidence for the first against the second and the reverse; 0 where one is undefined.
        """
        return np.nan_to_num(np.minimum(self.nats, self.nats.transpose(0, 2, 1)))

    @cached_property
    def apart(self) -> npt.NDArray[np.int64]:
        """``[K, K]`` number of clusters of worlds that separate two hypotheses.

        A world separates them if an episode has at least `ENOUGH` nats of evidence in each direction. A cluster is a
        world with its versions, such as mirrored ones.
        """
        return self._clusters_with(self.least >= ENOUGH)

    @cached_property
    def shared(self) -> npt.NDArray[np.int64]:
        """``[K, K]`` number of clusters (a world with its versions) in which both hypotheses are defined in some
        world.
        """
        return self._clusters_with(~np.isnan(self.nats))

    @property
    def out_of_reach(self) -> dict[str, int]:
        """Name -> number of worlds in which the hypothesis is defined, but no policy changes its utility within the
        horizon.
        """
        defined = ~np.isnan(np.diagonal(self.nats, axis1=1, axis2=2))
        counts = (defined & ~self.within).sum(axis=0).tolist()
        return {name: count for name, count in zip(self.names, counts, strict=True) if count}

    def _clusters_with(self, mask: Mask) -> npt.NDArray[np.int64]:
        names, codes = np.unique(np.array(self.clusters, dtype=str), return_inverse=True)
        by_cluster = np.zeros((len(names), *mask.shape[1:]), dtype=bool)
        np.logical_or.at(by_cluster, codes, mask)
        return np.asarray(by_cluster.sum(axis=0))

    @property
    def episodes(self) -> Array:
        """``[K, K]`` number of episodes that are expected to separate two hypotheses at the error rate ``level``.

        It is log(1 / level) divided by the expected log-likelihood ratio per episode, with the rival's best lapse rate
        (probability of a random action); infinite if the two cannot be separated, NaN if no world defines both.
        """
        worst = np.fmin(self.own_best, self.own_best.T)
        counts = np.ceil(math.log(1 / self.level) / np.maximum(worst, 1e-12))
        return np.where(self.both == 0, np.nan, np.where(worst > 1e-9, counts, np.inf))

    @property
    def needed(self) -> npt.NDArray[np.int64]:
        """``[K, K]`` number of clusters (a world with its versions) that must separate two hypotheses before one of
        them is named.

        It is `FEWEST`, or the number of clusters that define both hypotheses if that is smaller.
        """
        return np.minimum(FEWEST, np.maximum(self.shared, 1))

    def same(self) -> list[tuple[str, ...]]:
        """Return the groups of hypotheses that no world separates, because they call for nearly the same actions in
        all.

        Each group is a tuple of names. If a chain of coinciding pairs has ends that can be separated, its pairs are
        returned separately.
        """
        from scipy.sparse.csgraph import connected_components

        linked = (self.apart == 0) & (self.shared > 0)
        count, labels = connected_components(linked, directed=False)
        sets = list[tuple[int, ...]]()
        for group in (tuple(np.flatnonzero(labels == label).tolist()) for label in range(count)):
            whole = bool(linked[np.ix_(group, group)].all())
            sets += [group] if whole else [pair for pair in combinations(group, 2) if linked[pair]]
        return [tuple(self.names[index] for index in group) for group in sets if len(group) > 1]

    def sentences(self) -> list[str]:
        """Return one sentence for each hypothesis that is undefined here, and each group that these worlds cannot
        separate.
        """
        nowhere = [not self.shared[index, index] for index in range(len(self.names))]
        lines = [
            f"{name}: undefined in all of these worlds" for name, out in zip(self.names, nowhere, strict=True) if out
        ]
        for group in self.same():
            at = [self.names.index(name) for name in group]
            exactly = bool((np.nan_to_num(self.mean)[np.ix_(at, at)] < 1e-9).all())
            how = "" if exactly else f" (less than {ENOUGH:g} nats in each of them, lapse rate {self.lapse:g})"
            lines.append(f"{' or '.join(group)}: the same in these worlds{how}")
        for first, second in combinations(range(len(self.names)), 2):
            words, shared = f"{self.names[first]} or {self.names[second]}", int(self.shared[first, second])
            separating, needed = int(self.apart[first, second]), int(self.needed[first, second])
            if nowhere[first] or nowhere[second]:
                continue
            if not shared:
                lines.append(f"{words}: in no world are both defined")
            elif 0 < separating < needed:
                lines.append(f"{words}: {separating} of {shared} worlds tell them apart, {needed} are needed")
        return lines

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary for each ordered pair of different hypotheses, as a table for reports.

        Keys: ``hypothesis`` and ``rival`` (names); ``worlds`` and ``worlds_apart`` (numbers of clusters of worlds in
        which both are defined, and that separate them); ``nats_same_lapse`` and ``nats_own_best_lapse`` (expected
        log-likelihood ratio per episode where the rival has the same lapse rate, and the rate that fits best);
        ``own_best_lapse`` (that rate); ``disjoint`` (share of decisions in which they allow no common action);
        ``episodes`` (number of episodes that tell them apart).
        """
        return [
            {
                "hypothesis": self.names[h],
                "rival": self.names[k],
                "worlds": int(self.shared[h, k]),
                "worlds_apart": int(self.apart[h, k]),
                "nats_same_lapse": float(self.mean[h, k]),
                "nats_own_best_lapse": float(self.own_best[h, k]),
                "own_best_lapse": float(self.own_lapse[h, k]),
                "disjoint": float(self.disjoint[h, k]),
                "episodes": float(self.episodes[h, k]),
            }
            for h in range(len(self.names))
            for k in range(len(self.names))
            if h != k
        ]


def separability(
    hypotheses: Mapping[str, Hypothesis],
    worlds: Sequence[World],
    *,
    horizon: Callable[[World], int],
    lapse: float = LAPSE,
    level: float = 0.05,
) -> Separability:
    """Compute, before an experiment, how well worlds separate hypotheses: how differently their followers act there.

    Args:
        hypotheses: name -> hypothesis, K of them.
        worlds: W worlds.
        horizon: function from a world to the number of decisions per episode.
        lapse: lapse rate eps of the agents (probability of a random action), from 0.005 to 1; at lower rates a single
            slip would decide.
        level: error rate for which the number of episodes is computed.

    Returns:
        For each world and pair of hypotheses, the expected log-likelihood ratio of an episode in nats, with figures
        derived from it such as the number of episodes needed.

    Raises:
        ValueError: there is no world, there are fewer than two hypotheses, or a number is out of range.
    """
    if len(hypotheses) < 2 or not worlds:
        raise ValueError(
            f"separability needs at least two hypotheses and one world, got {len(hypotheses)} hypotheses and "
            f"{len(worlds)} worlds"
        )
    lapse = check_number("lapse", lapse, float(LAPSES[0]), 1.0)
    level = check_number("level", level, 1e-12, 0.5)
    bound = [bind(hypothesis, worlds) for hypothesis in hypotheses.values()]
    names, count = tuple(hypotheses), len(hypotheses)
    rates = np.concatenate([[lapse], LAPSES])
    nats = np.full((len(worlds), count, count), np.nan)
    crossed = np.zeros((len(rates), count, count))
    own_log, both_defined, disjoint, decided = np.zeros((4, count, count))
    within = np.zeros((len(worlds), count), dtype=bool)
    undefined: dict[str, Counter[str]] = {name: Counter() for name in names}
    for index, world in enumerate(worlds):
        try:
            finite = finite_world(world, horizon(world))
        except Undefined as error:
            for name in names:
                undefined[name][str(error)] += 1
            continue
        solved = dict[int, Solved]()
        for number, (name, hypothesis) in enumerate(zip(names, bound, strict=True)):
            try:
                solved[number] = hypothesis.solved(finite)
            except Undefined as error:
                undefined[name][str(error)] += 1
        if not solved:
            continue
        at = np.ix_(list(solved), list(solved))
        within[index, list(solved)] = [
            solution.utility is None or can_gain(finite, solution.utility) for solution in solved.values()
        ]
        sums = _WorldSums(finite, list(solved.values()), rates)
        nats[index][at] = np.maximum(sums.crossed[0] - sums.own_log[:, None], 0.0)
        for part, more in zip(crossed, sums.crossed, strict=True):
            part[at] += more
        own_log[at] += sums.own_log[:, None]
        both_defined[at] += 1
        disjoint[at] += sums.disjoint
        decided[at] += sums.decided[:, None]
    best = crossed[1:].argmin(axis=0)
    lowest = np.take_along_axis(crossed[1:], best[None], axis=0)[0]
    return Separability(
        names=names,
        world_ids=tuple(world.id for world in worlds),
        clusters=tuple(world.cluster or world.id for world in worlds),
        lapse=lapse,
        level=level,
        nats=freeze(nats),
        own_best=freeze(np.maximum(_ratio(np.minimum(lowest, crossed[0]) - own_log, both_defined), 0.0)),
        own_lapse=freeze(np.where(crossed[0] < lowest, lapse, LAPSES[best])),
        disjoint=freeze(_ratio(disjoint, decided)),
        within=freeze(within),
        undefined={name: dict(reasons) for name, reasons in undefined.items() if reasons},
    )


def tells_apart(world: FiniteWorld, first: Hypothesis, second: Hypothesis) -> bool:
    """Return whether a world separates two hypotheses, so that an episode shows which of them an agent follows.

    It does if an episode has at least `ENOUGH` nats of evidence in each direction, for agents with the lapse rate
    `LAPSE` (probability of a random action).

    Raises:
        Undefined: one hypothesis is undefined or out of reach in the world, or the world is too large.
    """
    sums = _WorldSums(world, [first.solved(world), second.solved(world)], np.array([LAPSE]))
    nats = sums.crossed[0] - sums.own_log[:, None]
    return bool(min(nats[0, 1], nats[1, 0]) >= ENOUGH)


class _WorldSums:
    """Evidence in one world: expected sums over an episode of an agent that follows each of K hypotheses.

    Attributes:
        own_log: ``[K]`` negative expected log-probability, ``- sum over t of log pi_h^eps(a_t | s_t)``.
        crossed: ``[E, K, K]`` the same for ``log pi_k^e`` under h, at each of E rates; ``crossed - own_log`` is in
            nats.
        decided: ``[K]`` expected number of decisions before the end.
        disjoint: ``[K, K]`` expected number of decisions at which the action sets of both are disjoint.
    """

    def __init__(self, world: FiniteWorld, solved: Sequence[Solved], rates: Array) -> None:
        count = len(solved)
        self.own_log, self.decided = np.zeros((2, count))
        self.crossed, self.disjoint = np.zeros((len(rates), count, count)), np.zeros((count, count))
        for visits, policy in _visited(world, solved, float(rates[0])):
            seen = np.flatnonzero((visits > 0).any(axis=0) & world.live)
            even, exact = world.even[seen], policy[:, seen]
            mass = visits[:, seen, None] * ((1 - rates[0]) * exact + rates[0] * even)  # [K, s, A]
            flat = mass.reshape(count, -1)
            for number, rate in enumerate(rates):
                chance = (1 - rate) * exact + rate * even
                logs = np.log(np.where(chance > 0, chance, 1.0)).reshape(count, -1)
                self.crossed[number] -= flat @ logs.T
                if number == 0:
                    self.own_log -= (flat * logs).sum(axis=1)
            sets = (exact > 0).astype(np.float64)
            common = np.einsum("hsa,ksa->hks", sets, sets)
            self.disjoint += np.einsum("hs,hks->hk", visits[:, seen], common == 0)
            self.decided += visits[:, seen].sum(axis=1)


def _visited(world: FiniteWorld, solved: Sequence[Solved], lapse: float) -> Iterator[tuple[Array, Array]]:
    """Yield the expected decisions in each state, ``[K, S]``, and the policies of these decisions, ``[K, S, A]``.

    Yields once for all decisions if the policies do not depend on time, otherwise once for each decision.
    """
    process, steps = world.process, world.horizon
    count, states = len(solved), process.states
    timed = any(len(solution.policy) > 1 for solution in solved)
    mass: Array = np.tile(process.start, (count, 1))
    total = np.zeros((count, states))
    policy = np.stack([solution.policy[0] for solution in solved])
    action_chances = (1 - lapse) * policy + lapse * world.even
    if not process.chance:
        target = (np.arange(count)[:, None, None] * states + process.transitions[None]).reshape(-1)
    for step in range(steps):
        if timed:
            policy = np.stack([solution.policy[min(step, len(solution.policy) - 1)] for solution in solved])
            action_chances = (1 - lapse) * policy + lapse * world.even
            yield mass, policy
        total += mass
        flow = mass[:, :, None] * action_chances
        if process.chance:
            mass = np.stack([process.base.flow(part) for part in flow])
        else:
            counted = np.bincount(target, weights=flow.reshape(-1), minlength=count * states)
            mass = counted.astype(np.float64, copy=False).reshape(count, states)
    if not timed:
        yield total, policy


def _ratio(sums: Array, counts: npt.NDArray[Any]) -> Array:
    return np.where(counts > 0, sums / np.maximum(counts, 1e-300), np.nan)
