"""Plan an experiment: choose worlds that separate hypotheses, and compute how many it takes to name one.

**Which worlds.** Greedy maximin over pairs, exact and seeded. We add one world at a time: the one that maximises the
nats of the worst separated pair. Ties go to the larger sum over pairs of log(1 + nats), then to the earlier candidate.
The nats of a pair in a world are the smaller of both directions with the same lapse rate, and 0 if one hypothesis is
undefined. Pairs that no candidate separates are left out of the minimum and reported, since no choice among these
worlds can help them.

The greedy rule does not guarantee the best choice; for comparison we report the nats of random choices.

**How many worlds** follows from the distribution of the score. An agent follows h with lapse rate eps, lambda = 1 -
eps, and answers each step twice. With the sums and the constants of `goals.hypotheses.score`, h is named if the lower
ends of

    strength      gain(h) - STRONG size(h)
    consistency   gain(h) - sqrt(HALF size(h) repeated(h))                                            R2(h) > HALF
    contrast      c(h, k) - gain(h) / size(h) ((1 + MARGIN) E(h, k) - (1 - MARGIN) E(k, h)) / 2

lie above 0. The contrast is required for each rival k, except rivals that their own score excludes because the upper
end of their consistency sum lies below 0. Roots and quotients are linearised about the means. The mean m and variance v
of a sum in one world are exact; r is the contribution of a step at time t, over the agent's states and both answers:

    V_t(s) = E[r + V_{t+1}(s')],    v = sum over t, s of P(s_t = s) Var[r + V_{t+1}(s') | s]

For clusters, v is the mean of v over worlds plus the variance of m over worlds. With N clusters drawn like these, the
probability that an end fails follows a noncentral t distribution with noncentrality ``sqrt(N) m / sqrt(v)``. A rival
that is compared must also differ by the share `APART`, and differ in `FEWEST` clusters that the agent visits; this is
binomial with exact visit probabilities. The needed number of worlds is the smallest N at which all failure
probabilities add up to at most ``1 - POWER`` (Boole's inequality). Rivals are those of the score: the bank, control
hypotheses and move frequencies. We leave out regions, which a follower hardly ever fails, and the minimum R2 of a name,
which rarely matters beyond its lower end.
If k is an intermediate step of h (`goals.hypotheses.definition`), the decisions in which the event of k holds and k
predicts nothing count in their contrast, as in the score; we ignore that an event may have held earlier in the episode
only.

Sources: Sobel (1982), The variance of discounted Markov decision processes, Journal of Applied Probability 19, 794-802;
Johnson and Welch (1940), Applications of the non-central t-distribution, Biometrika 31, 362-389.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final

import numpy as np

from goalscope._ground.checks import check_number, check_whole
from goalscope._ground.rng import stream
from goalscope.goals.hypotheses.definition import Array, Hypothesis, Undefined, finite_world
from goalscope.goals.hypotheses.score import (
    APART,
    HALF,
    LEVEL,
    MARGIN,
    STRONG,
    HypothesisBank,
    Predictions,
    predictions_in,
)
from goalscope.goals.hypotheses.separability import ENOUGH, FEWEST, LAPSE, Separability, separability
from goalscope.goals.hypotheses.twins import twin
from goalscope.goals.hypotheses.written import bind, with_sentinels
from goalscope.worlds.world import World

DRAWS: Final = 200
"""Number of random choices that the chosen worlds are compared with."""


POWER: Final = 0.9
"""Probability of naming the right hypothesis with the computed number of worlds.

In simulations at lapse rate 0.6, some hypotheses are named correctly in only 82 % to 87 % of runs, because roots and
quotients are linearised (see benchmarks/README.md).
"""
LAPSES: Final = (0.0, 0.3, 0.6)
"""Default lapse rates for which the number of worlds is computed."""
WORLDS: Final = 60
"""Maximum number of worlds used for the computation; from longer lists we take evenly spaced ones."""
_NEVER: Final = 100_000  # clusters up to which a need is sought
_NONE: Final = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Worlds chosen among candidates so that agents with different goals act differently in them.

    Attributes:
        worlds: the N chosen worlds, in the order of choice.
        hypotheses: name -> hypothesis to separate. A place such as "where the goal stood in phase P" (a phase is a
            group of worlds of a study) is replaced by its cell.
        found: for each candidate and pair of hypotheses, how differently agents that follow them act there.
        chosen: indices of the chosen worlds among the candidates.
        pair: the pair of hypotheses that the chosen worlds separate worst; ``hopeless`` pairs do not count.
        least: evidence in nats with which the chosen worlds separate this pair, summed over one episode in each.
        random: ``[DRAWS]`` for comparison, ``least`` for random choices of N candidates.
        hopeless: pairs that no candidate separates.
    """

    worlds: tuple[World, ...]
    hypotheses: Mapping[str, Hypothesis]
    found: Separability
    chosen: tuple[int, ...]
    pair: tuple[str, str]
    least: float
    random: Array
    hopeless: tuple[tuple[str, str], ...]

    def twins(self) -> list[dict[str, Any]]:
        """Return for each hypothesis a scripted agent that follows it (a twin), as it is listed in a study.

        Each twin takes a random action with the lapse rate of the design.
        """
        lapse = self.found.lapse
        return [twin(hypothesis.text, lapse=lapse, name=name[:80]) for name, hypothesis in self.hypotheses.items()]

    def study(self, horizon: Mapping[str, Any], *, seed: int, name: str = "design") -> dict[str, Any]:
        """Return a study of the chosen worlds as a dictionary, ready to be written to a YAML file.

        Its agents are a random agent and, for each hypothesis, a scripted agent that follows it (see `twins`).

        Args:
            horizon: the study's key ``horizon``, such as ``{"steps": 40}``.
            seed: root seed of the study.
            name: name of the study.

        Raises:
            ValueError: a chosen world is not a grid, so it cannot be written to a study file.
        """
        if unwritable := [world.kind for world in self.worlds if not world.offers >= {"grid", "seen state"}]:
            raise ValueError(
                f"only grids can be written to a study file, but a chosen world is of kind {unwritable[0]}: leave the "
                "file out"
            )
        grids = [world.grid for world in self.worlds]
        return {
            "name": name,
            "seed": seed,
            "worlds": [{"kind": "text", "grids": [grid.render() for grid in grids]}],
            "agents": [*self.twins(), {"kind": "random"}],
            "trajectories": 1,
            "horizon": dict(horizon),
        }


def design(
    hypotheses: Mapping[str, Hypothesis],
    candidates: Sequence[World],
    count: int,
    *,
    horizon: Callable[[World], int],
    lapse: float = LAPSE,
    seed: int = 0,
) -> Design:
    """Choose worlds in which agents that follow different hypotheses act as differently as possible.

    Worlds are added one at a time: always the one that helps most to separate the pair of hypotheses that is separated
    worst so far.

    Args:
        hypotheses: name -> hypothesis.
        candidates: worlds to choose from.
        count: number N of worlds to choose.
        horizon: function from a world to the number of decisions per episode.
        lapse: lapse rate of the agents: the probability of a random action.
        seed: root seed of the random choices used for comparison; the choice itself is deterministic.

    Returns:
        The chosen worlds, with how well they separate the hypotheses.

    Raises:
        ValueError: there are fewer candidates than `count`, no candidate separates any pair, or `separability` refuses
            the arguments.
    """
    count = check_whole("count", count, 1, "worlds", most=len(candidates))
    measured = separability(hypotheses, candidates, horizon=horizon, lapse=lapse)
    pairs = list(combinations(range(len(measured.names)), 2))
    nats = np.stack([measured.least[:, first, second] for first, second in pairs], axis=1)  # [W, P]
    hope = nats.max(axis=0) >= ENOUGH
    if not hope.any():
        raise ValueError(
            f"none of the {len(candidates)} candidate worlds separates any pair of these hypotheses: use worlds whose "
            "goals lie in other places"
        )
    value = nats[:, hope]
    chosen, total = list[int](), np.zeros(value.shape[1])
    for _ in range(count):
        after = total + value
        least, balance = after.min(axis=1), np.log1p(after).sum(axis=1)
        least[chosen] = -1.0
        best = np.flatnonzero(least >= least.max() - 1e-12)
        chosen.append(int(best[np.argmax(balance[best])]))
        total = total + value[chosen[-1]]
    rng = stream(seed, "random designs")
    draws = [value[rng.choice(len(value), count, replace=False)].sum(axis=0).min() for _ in range(DRAWS)]
    open_pairs = [
        (measured.names[a], measured.names[b]) for (a, b), is_open in zip(pairs, hope.tolist(), strict=True) if is_open
    ]
    return Design(
        worlds=tuple(candidates[index] for index in chosen),
        hypotheses={name: bind(hypothesis, candidates) for name, hypothesis in hypotheses.items()},
        found=measured,
        chosen=tuple(chosen),
        pair=open_pairs[int(total.argmin())],
        least=float(total.min()),
        random=np.array(draws),
        hopeless=tuple(
            (measured.names[a], measured.names[b])
            for (a, b), is_open in zip(pairs, hope.tolist(), strict=True)
            if not is_open
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The number of worlds needed to name a hypothesis that an agent follows.

    Attributes:
        name: name of the hypothesis.
        lapse: lapse rate of the agent: the probability of a random move.
        worlds: number of worlds, where the versions of one world count once; infinite if no number is enough.
        hardest: the condition for a name that fails most often: "strength", "consistency", "steps" (too few worlds in
            which the hypothesis makes a prediction), or the name of a rival that must be ruled out.
    """

    name: str
    lapse: float
    worlds: float
    hardest: str

    @property
    def sentence(self) -> str:
        """One sentence that says how many worlds are needed to confirm the hypothesis, or that no number is enough."""
        if math.isinf(self.worlds):
            return f"no number of worlds like these is enough to confirm {self.name} (limited by {self.hardest})"
        agent = f"an agent that makes {self.lapse:.0%} of its moves at random"
        return f"confirming {self.name} takes {self.worlds:.0f} worlds like these for {agent}"

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values; ``worlds`` is None if no number is enough."""
        return {**asdict(self), "worlds": int(self.worlds) if math.isfinite(self.worlds) else None}


def needed(
    hypotheses: Mapping[str, Hypothesis],
    worlds: Sequence[World],
    *,
    horizon: Callable[[World], int],
    of: Sequence[str] = (),
    lapses: Sequence[float] = LAPSES,
    level: float = LEVEL,
    episodes: int = 1,
) -> list[Need]:
    """Compute how many worlds like the given ones are needed to name the hypothesis that an agent follows.

    Args:
        hypotheses: name -> hypothesis; all that are compared.
        worlds: a sample of the worlds.
        horizon: function from a world to the number of decisions per episode.
        of: names of the hypotheses for which to compute the number; empty for all.
        lapses: lapse rates of the agents (probabilities of a random action), from 0 to 0.95.
        level: error rate of each one-sided end of a consistency interval.
        episodes: number of episodes per world.

    Returns:
        For each hypothesis and lapse rate, the number of worlds needed if the agent follows this hypothesis, hypothesis
        by hypothesis.

    Raises:
        ValueError: there are fewer than two clusters of worlds with known processes, or a number is out of range.
    """
    rates = [check_number("lapse", lapse, 0.0, 0.95) for lapse in lapses]
    level, episodes = check_number("level", level, 1e-12, 0.5), check_whole("episodes", episodes, 1, "episodes")
    bank = with_sentinels({name: bind(hypothesis, worlds) for name, hypothesis in hypotheses.items()}, worlds)
    spaced = np.unique(np.linspace(0, max(len(worlds) - 1, 0), min(WORLDS, len(worlds))).round().astype(int)).tolist()
    names, clusters = HypothesisBank(bank), dict[str, list[Predictions]]()
    for world in (worlds[index] for index in spaced):
        try:
            finite = finite_world(world, horizon(world))
        except Undefined:
            continue
        predictions = predictions_in(finite, bank, len(hypotheses))
        clusters.setdefault(world.cluster or world.id, []).append(predictions)
    if len(clusters) < 2:
        raise ValueError(
            f"computing the number of worlds needs at least two clusters of worlds with known decision processes, got "
            f"{len(clusters)}: give more worlds"
        )
    needs = []
    for h, name in enumerate(hypotheses):
        for lapse in rates if name in of or not of else ():
            count, hardest = _Law(list(clusters.values()), names, h, lapse, level, episodes).need()
            needs.append(Need(name=name, lapse=lapse, worlds=count, hardest=hardest))
    return needs


def sentences(needs: Sequence[Need]) -> list[str]:
    """Describe the needed numbers of worlds as text: a heading, then one line per hypothesis; empty without needs."""
    rates = list(dict.fromkeys(need.lapse for need in needs))
    if not rates:
        return []
    lines = [
        "Number of worlds like these that it takes to confirm each hypothesis, for agents with lapse rate "
        f"{' / '.join(f'{rate:g}' for rate in rates)} and two answers per step (power {POWER:.0%}):"
    ]
    for name in dict.fromkeys(need.name for need in needs):
        name_needs = [need for need in needs if need.name == name]
        hardest = ", ".join(dict.fromkeys(need.hardest for need in name_needs))
        counts = " / ".join(f"{need.worlds:.0f}" if math.isfinite(need.worlds) else "never" for need in name_needs)
        lines.append(f"{name}: {counts}; limited by {hardest}")
    return lines


class _Walk:
    """The state distribution of an agent that follows hypothesis h in one world, over the n states it may visit.

    Attributes:
        mass: ``[T, n]`` probability of deciding in each state at each time.
        often: ``[A]`` expected number of each action.
    """

    def __init__(self, predictions: Predictions, h: int, lapse: float) -> None:
        self.predictions, self.h = predictions, h
        world, process = predictions.world, predictions.world.process
        policy = (1 - lapse) * predictions.policies[h] + lapse * world.even
        mass, over, often = np.zeros((world.horizon, process.states)), process.start * world.live, np.zeros(1)
        for time, row in enumerate(mass):
            row[:] = over
            action_mass = over[:, None] * policy[min(time, len(policy) - 1)]
            often = often + action_mass.sum(axis=0)
            over = process.base.flow(action_mass) * world.live
        self.often, self.states = often, np.flatnonzero(mass.any(axis=0))
        self.mass, self.policy = mass[:, self.states], policy[:, self.states]
        self.even, self.start = world.even[self.states], process.start[self.states]
        slots = np.full(process.states, len(self.states))
        slots[self.states] = np.arange(len(self.states))
        self.following = None if process.chance else slots[process.transitions[self.states]]

    def after(self, values: Array) -> Array:
        """Return the expected value after each action, ``[J, n, A]``, from values ``[J, n]``; 0 at the end."""
        if self.following is not None:
            return np.asarray(np.concatenate([values, np.zeros((len(values), 1))], axis=1)[:, self.following])
        process, shape = self.predictions.world.process, (len(values), *self.even.shape)
        rows = (self.states[:, None] * process.actions + np.arange(process.actions)).reshape(-1)
        return np.asarray((process.transitions.tocsr()[rows][:, self.states] @ values.T).T.reshape(shape))

    def steps(self, bank: HypothesisBank, often: Array) -> Iterator[tuple[Array, "_Step"]]:
        """Yield backwards from the last decision the state distribution ``[n]`` and the contribution of a decision."""
        timed = len(self.policy) > 1 or any(len(policy) > 1 for policy in self.predictions.policies.values())
        step = None
        for time in reversed(range(len(self.mass))):
            step = _Step(self, bank, often, time) if timed or step is None else step
            yield self.mass[time], step


class _Step:
    """What one decision adds to the sums of `goalscope.goals.hypotheses.score`.

    Arrays have the axes K (hypotheses and move frequencies), n (states) and A (actions).
    """

    def __init__(self, walk: _Walk, bank: HypothesisBank, often: Array, time: int) -> None:
        even, h = walk.even, walk.h
        self.chance, self.share = walk.policy[min(time, len(walk.policy) - 1)], even.max(axis=1)
        exact = np.tile(even, (len(bank.names), 1, 1))
        for number, policy in walk.predictions.policies.items():
            exact[number] = policy[min(time, len(policy) - 1), walk.states]
        offered = np.where(even > 0, often, 0.0)
        exact[-1] = offered / offered.sum(axis=1, keepdims=True)
        self.away = exact - even  # u, [K, n, A]
        self.size = np.einsum("kna,kna->kn", self.away, self.away)
        defined = np.isin(np.arange(len(exact)), [*walk.predictions.policies, len(exact) - 1])
        self.said = ((self.size > _NONE) | ~bank.silent[:, None]) & defined[:, None]
        self.both_said = self.said & self.said[h]
        self.common = self.both_said.copy()  # with the decisions after an intermediate step
        for goal, event in walk.predictions.steps:
            if h in (goal, event):
                states = walk.predictions.events[event]
                self.common[goal + event - h] |= states[walk.states] & ~self.said[event]
        product = np.einsum("kna,na->kn", self.away, self.away[h])
        self.ahead, self.behind = (self.size[h] - product) * self.common, (self.size - product) * self.common
        self.bar = (1 + MARGIN) * self.ahead - (1 - MARGIN) * self.behind
        sets = exact > _NONE
        within = sets.sum(axis=2)
        equal = (np.abs(exact * within[:, :, None] - sets) < 1e-9).all(axis=(1, 2)) & bank.aims
        self.by_set = equal[:, None] & (self.size > _NONE)
        self.over = sets - (within * self.share)[:, :, None]  # a(S) - k / m by action
        self.scale = 1 / np.maximum(within, 1) + 1 / np.maximum(np.round(1 / self.share) - within, 1)

    def mean(self, linear: Array) -> Array:
        """Average ``[J, n, A]`` over the agent's answers; return ``[J, n]``."""
        return np.asarray(np.einsum("jna,na->jn", linear, self.chance))

    @cached_property
    def repeated(self) -> Array:
        """``[K, n]`` expected compliance or agreement."""
        agreed = (self.chance**2).sum(axis=1) - self.share
        return np.asarray(np.where(self.by_set, self.mean(self.over) ** 2 * self.scale, agreed) * self.said)

    def added(self, linear: Array, repeats: Array) -> tuple[Array, Array]:
        """Return the mean by first answer, ``[J, n, A]``, and the variance by second answer, ``[J, n]``, of J sums.

        Args:
            linear: ``[J, n, A]`` function f of sums of the form ``(f(a) + f(a')) / 2``.
            repeats: ``[K]`` weight with which the repeated behaviour enters the first K sums.
        """
        count = len(repeats)
        middle = self.mean(linear)
        mean, variance = (linear + middle[:, :, None]) / 2, (self.mean(linear**2) - middle**2) / 4
        weight = repeats[:, None] * self.said
        first, over, inside = linear[:count], self.over, weight * self.scale
        mean_over, chance = self.mean(over), self.chance[None]
        by_set = self.by_set[:, :, None]
        mean[:count] += np.where(
            by_set, (inside * mean_over)[:, :, None] * over, weight[:, :, None] * (chance - self.share[:, None])
        )
        covariance = self.mean(first * over) - middle[:count] * mean_over
        square = self.mean(over**2)
        of_sets = inside * mean_over * covariance + inside**2 * square * (square - mean_over**2)
        habit_part = weight * self.mean(chance * (first - middle[:count, :, None]))
        of_habits = habit_part + weight**2 * (chance**2 * (1 - chance)).sum(axis=2)
        variance[:count] += np.where(self.by_set, of_sets, of_habits)
        return mean, variance


class _Law:
    """The distribution of the score's sums for an agent that follows hypothesis h of K.

    The 3K + 1 sums are: K for R2(k) > HALF (that of h is the consistency), K contrasts, K for
    ``E(h, k) + E(k, h) - 2 APART size(h)``, and the strength.

    Attributes:
        size, repeated, bar: ``[K]`` means per episode; bar is the threshold of a contrast.
        mean, variance, between: ``[3K + 1]`` of each sum in a cluster; variance of the means of the clusters.
        differs, compared, said: ``[K]`` probability that in a cluster the agent visits a state in which a rival
            differs, in which it is compared, and (a single number) in which h makes a prediction.
    """

    def __init__(
        self,
        clusters: Sequence[Sequence[Predictions]],
        bank: HypothesisBank,
        h: int,
        lapse: float,
        level: float,
        episodes: int,
    ) -> None:
        self.bank, self.h, self.level, self.strength = bank, h, level, 1 - lapse
        walks = [
            [_Walk(predictions, h, lapse) for predictions in cluster if h in predictions.policies]
            for cluster in clusters
        ]
        self.count, self.often = len(bank.names), dict[int, Array]()  # number of actions -> how often each is taken
        for walk in (walk for cluster_walks in walks for walk in cluster_walks):
            self.often[len(walk.often)] = self.often.get(len(walk.often), np.zeros(1)) + walk.often
        sums = sum((self._means(walk) for cluster_walks in walks for walk in cluster_walks), np.zeros((3, self.count)))
        self.size, self.repeated, self.bar = sums / len(clusters)
        mean, within = np.zeros((2, len(clusters), 3 * self.count + 1))
        missed = np.ones((len(clusters), 2 * self.count + 1))
        for at, cluster_walks in enumerate(walks):
            for walk in cluster_walks:
                of_mean, of_variance, reached = self._moments(walk)
                mean[at] += episodes * of_mean
                within[at] += episodes * of_variance
                missed[at] *= (1 - reached) ** episodes
        self.sampled = len(clusters)
        self.mean, self.between = mean.mean(axis=0), mean.var(axis=0, ddof=1)
        self.variance = within.mean(axis=0) + self.between
        *rivals, self.said = 1 - missed.mean(axis=0)
        self.differs, self.compared = np.reshape(rivals, (2, self.count))

    def _means(self, walk: _Walk) -> Array:
        """Return the means per episode of size, repeated behaviour and threshold of K hypotheses, ``[3, K]``."""
        total = np.zeros((3, self.count))
        for mass, step in walk.steps(self.bank, self.often[len(walk.often)]):
            total += np.stack([step.size, step.repeated, step.bar]) @ mass
        return total

    def _moments(self, walk: _Walk) -> tuple[Array, Array, Array]:
        """Return mean and variance of each sum per episode ``[3K + 1]``, and the probability that it changes."""
        values, reached = np.zeros((3 * self.count + 1, len(walk.states))), np.zeros((1, len(walk.states)))
        variance, last_step, sums = np.zeros(len(values)), None, (np.zeros(0), np.zeros(0))
        for mass, step in walk.steps(self.bank, self.often[len(walk.often)]):
            if step is not last_step:
                last_step, sums = step, self._sums(step)
            after = walk.after(values)
            ahead = sums[0] + after
            mean = step.mean(ahead)
            spread = step.mean(ahead**2) - mean**2 + sums[1]
            if walk.following is None:
                spread += step.mean(walk.after(values**2) - after**2)
            variance = variance + spread @ mass
            marks = np.concatenate([step.ahead + step.behind > 1e-9, step.both_said, step.said[self.h][None]])
            values, reached = mean, np.where(marks, 1.0, step.mean(walk.after(reached)))
        first = values @ walk.start
        return first, variance + values**2 @ walk.start - first**2, reached @ walk.start

    def _sums(self, step: _Step) -> tuple[Array, Array]:
        """Return what a step adds to each of J sums, in each of n states with A actions.

        The first array ``[J, n, A]`` is the mean, given the first answer to the step; the second one is the variance,
        which comes from the second answer.
        """
        h, strength = self.h, self.strength
        deviation, size = step.away[h], step.size[h]
        root = np.sqrt(np.maximum(HALF * self.size * self.repeated, _NONE))  # of R2(k) = HALF
        repeats, fixed = -HALF * self.size / (2 * root), -HALF * self.repeated / (2 * root)
        bar_share = self.bar / (2 * max(self.size[h], _NONE))
        contrast = step.common[:, :, None] * (deviation - step.away) - bar_share[:, None, None] * deviation
        difference = step.ahead + step.behind - 2 * APART * size * step.common
        constant = np.concatenate(
            [
                fixed[:, None] * step.size,
                strength * (bar_share[:, None] * size - step.bar / 2),
                difference,
                -STRONG * size[None],
            ]
        )
        mean, variance = step.added(
            np.concatenate([step.away, contrast, np.zeros_like(contrast), deviation[None]]), repeats
        )
        return mean + constant[:, :, None], variance

    def failing(self, clusters: int) -> dict[str, float]:
        """Return the failure probability of each condition with the given number of clusters."""
        from scipy.special import bdtr, ndtr

        count, h = self.count, self.h
        sign = np.where((np.arange(len(self.mean)) < count) & (np.arange(len(self.mean)) != h), -1.0, 1.0)
        excluded, contrast, _ = np.reshape(self._ends(sign * self.mean, clusters)[:-1], (3, count))
        consistent, strong = excluded[h], self._ends(self.mean, clusters)[-1]
        compared = 1 - bdtr(FEWEST - 1, clusters, self.compared)
        few = np.maximum(bdtr(FEWEST - 1, clusters, self.differs) - (1 - compared), 0.0)
        difference, off = self.mean[2 * count : -1], self.variance / clusters + self.between / self.sampled
        indistinct = ndtr(-difference / np.sqrt(np.maximum(off[2 * count : -1], _NONE**2)))
        rivals = np.minimum(few + (contrast + indistinct) * compared, excluded * compared)
        rivals[h] = 0.0
        return {
            "steps": float(bdtr(FEWEST - 1, clusters, self.said)),
            "strength": float(strong),
            "consistency": float(consistent),
            **dict(zip(self.bank.names, rivals.tolist(), strict=True)),
        }

    def _ends(self, mean: Array, clusters: int) -> Array:
        """Return for each sum the probability that the lower end of its interval over clusters lies below 0."""
        from scipy.special import nctdtr, stdtrit

        noncentral = math.sqrt(clusters) * mean / np.sqrt(np.maximum(self.variance, _NONE**2))
        bar = stdtrit(clusters - 1, 1 - self.level)
        sure = noncentral > 30  # beyond, the tail is below 1e-12 and its series is slow
        below = nctdtr(clusters - 1, np.clip(noncentral, -5, 30), bar)
        return np.where(mean < _NONE, 1.0, np.where(sure, 0.0, below))

    def need(self) -> tuple[float, str]:
        """Return the minimum sufficient number of clusters (infinite if none is) and the hardest condition."""

        def fails(clusters: int) -> float:
            return sum(self.failing(clusters).values())

        low, high = FEWEST - 1, FEWEST
        while fails(high) > 1 - POWER and high < _NEVER:
            low, high = high, 2 * high
        enough = high < _NEVER
        while enough and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fails(middle) > 1 - POWER else (low, middle)
        failures = self.failing(high)
        return float(high) if enough else math.inf, max(failures, key=lambda condition: failures[condition])
