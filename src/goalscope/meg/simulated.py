"""MEG of an agent in an environment that can be run but has no transition table: two-sided bounds by simulation.

W is bounded from both sides by episodes of one policy pi, whatever its quality. With A actions, k = log(A pi(a | s)):

    lower:  W(beta) >= E_pi[beta U - sum k]                                (the variational form of a soft backup)
    upper:  W(beta) <= log E_pi[exp(beta U - sum k - sum M)],   M_t = V(s_{t+1}) - mean of V over fresh next states

V may be any function of time and state; M has mean 0 given state and action, so that the second line follows from
Jensen's inequality, decision by decision. With V = W and pi the soft policy, both lines are equalities. MEG at a
utility u is ``sup_beta beta u - W(beta)``: the upper bound of W at one beta gives its lower bound, the lower bounds of
several policies, which are straight lines in beta, give its upper one.

Policy and V come from a model that is learned from the simulator by trying what was tried least. The bounds hold
however wrong it is; they are only wide then. The episodes that they are computed from are fresh. Their confidence is
that of means of many episodes (Student's t, and the ellipse of two means): what happens in none is not covered.

Source: MacDermott et al. (2024), section 5 (Monte Carlo estimates of the soft Q-function); the bounds are ours.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, check_whole
from goalscope.meg.curve import RationalityCurve
from goalscope.planning import TabularMDP
from goalscope.stats.intervals import check_confidence

Array = npt.NDArray[np.float64]

LEAST_EFFECTIVE = 100
"""Effective sample size below which no bound is given."""

_NEAR = (0.0, 0.7, 0.9, 1.1, 1.4)  # rationalities of the policies of the upper bound, as multiples of the best one
_FAR = (
    -64.0,
    -16.0,
    -4.0,
    -1.0,
    1.0,
    4.0,
    16.0,
    64.0,
)  # and in units of the range of utility, so that the lines differ in slope
_FRESH = 4  # next states that the mean in M is taken over
_ROUNDS = 50  # of learning; the plan of where little was tried is made anew before each
_NEAR_END = 1e-7  # nats from the bound at which a finite rationality stands for an infinite one


class Simulator(Protocol):
    """An environment that can be started anew and continued from any state that it returned.

    Attributes:
        actions: number A of actions.
        horizon: number n of decisions of an episode; an episode that ends early stays where it is, at utility 0.
    """

    actions: int
    horizon: int

    def start(self, rng: np.random.Generator) -> Hashable:
        """Return a first state."""

    def step(self, state: Any, action: int, rng: np.random.Generator) -> tuple[Hashable, float]:
        """Return the next state and the utility of the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMEG:
    """Bounds of the MEG of an agent, from simulated episodes.

    Attributes:
        low, high: they hold MEG with the confidence; nats.
        beta: rationality that ``low`` belongs to, nats per unit of utility.
        utility: mean return, or the expected utility that was given.
        effective_size: effective sample size ``(sum w)^2 / sum w^2`` of the weighted episodes behind ``low``.
        episodes: number of these episodes.
        confidence: nominal coverage of both bounds together.
        states: number of different states that the model was learned from.
    """

    low: float
    high: float
    beta: float
    utility: float
    effective_size: float
    episodes: int
    confidence: float
    states: int


def meg_simulated(
    simulator: Simulator,
    returns: npt.ArrayLike | None = None,
    *,
    mean_return: float | None = None,
    rng: np.random.Generator,
    episodes: int = 1000,
    learning: int = 500,
    confidence: float = 0.95,
) -> SimulatedMEG:
    """Return bounds of the MEG of an agent with respect to the utility of an environment without a table.

    Args:
        simulator: the environment.
        returns: ``[N]`` utilities of whole episodes of the agent, two or more.
        mean_return: an exact expected utility in place of returns.
        rng: where the simulated episodes come from.
        episodes: number of fresh episodes of each policy, 100 or more.
        learning: number of episodes that the model is learned from.
        confidence: nominal coverage of both bounds together.

    Raises:
        ValueError: not exactly one of returns and mean_return; an effective sample size below 100.
    """
    check_confidence(confidence)
    check_whole("episodes", episodes, LEAST_EFFECTIVE)
    check_whole("learning", learning, 1)
    tail = (1 - confidence) / 4  # two ends of the utility, two bounds
    mean, ends = _utility(returns, mean_return, tail)
    model = _Model.learned(simulator, learning, rng)
    best = model.best_rationality(mean)
    fitted = model.play(simulator, best, episodes, rng, fresh=_FRESH)
    low, size = _lower_bound(fitted, best, ends, tail)
    if size < LEAST_EFFECTIVE:
        raise ValueError(
            f"a bound must rest on an effective sample size of at least {LEAST_EFFECTIVE}, got {size:.1f} of "
            f"{episodes} episodes: raise learning, so that the model knows the environment better, or episodes"
        )
    span = model.curve.span
    others = [best * factor for factor in _NEAR] + [factor / span for factor in _FAR if span > 0]
    sampled = [fitted, *(model.play(simulator, beta, episodes, rng) for beta in others)]
    most = simulator.horizon * math.log(simulator.actions)
    high = min(most, _upper_bound(sampled, best, ends, tail / len(sampled)))
    return SimulatedMEG(
        low=max(0.0, low),
        high=max(high, low, 0.0),
        beta=best,
        utility=mean,
        effective_size=size,
        episodes=episodes,
        confidence=confidence,
        states=len(model.numbers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Episodes of one policy: utility, sum of log(A pi), sum of M, ``[N]`` each."""

    utility: Array
    cost: Array
    noise: Array


class _Counts:
    """What was tried in an environment and where it led."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.numbers = dict[Hashable, int]()
        self.starts, self.led = dict[int, int](), dict[tuple[int, int, int], int]()
        self.tried, self.paid = list[Array](), list[Array]()

    def number(self, state: Hashable) -> int:
        """Return the number of a state, a new one where it was not seen yet."""
        if state not in self.numbers:
            self.numbers[state] = len(self.numbers)
            self.tried.append(np.zeros(self.simulator.actions))
            self.paid.append(np.zeros(self.simulator.actions))
        return self.numbers[state]

    def play(self, curiosity: Array, rng: np.random.Generator) -> None:
        """Play an episode that goes where little was tried, and count; ``curiosity`` is ``[n, S, A]``."""
        state = self.simulator.start(rng)
        at = self.number(state)
        self.starts[at] = self.starts.get(at, 0) + 1
        ties = rng.random((self.simulator.horizon, self.simulator.actions))
        for t in range(self.simulator.horizon):
            worth = curiosity[t, at] if at < curiosity.shape[1] else -self.tried[at]
            action = int(np.argmax(worth + 1e-6 * ties[t]))
            state, utility = self.simulator.step(state, action, rng)
            to = self.number(state)
            self.led[at, action, to] = self.led.get((at, action, to), 0) + 1
            self.tried[at][action] += 1
            self.paid[at][action] += utility
            at = to

    def process(self) -> TabularMDP:
        """Return the decision process of what was seen; what was not tried is taken to change nothing."""
        total = np.array(self.tried)
        counts = self.led | {(at, action, at): 1 for at, action in np.argwhere(total == 0).tolist()}
        possible = np.array(list(counts), dtype=np.int64)
        first = np.zeros(len(self.numbers))
        first[list(self.starts)] = list(self.starts.values())
        return TabularMDP.sparse(
            possible,
            np.array(list(counts.values())) / np.maximum(total, 1)[possible[:, 0], possible[:, 1]],
            actions=self.simulator.actions,
            start=first / first.sum(),
            utility=np.array(self.paid) / np.maximum(total, 1),
            horizon=self.simulator.horizon,
        )

    def curiosity(self) -> Array:
        """Return ``[n, S, A]`` the most that is left to try from there; what was tried k times counts 1 / (1 + k)."""
        if not self.numbers:
            return np.zeros((self.simulator.horizon, 0, self.simulator.actions))
        mdp, bonus = self.process(), 1 / (1 + np.array(self.tried))
        found = np.empty((mdp.horizon, mdp.states, mdp.actions))
        values = np.zeros(mdp.states)
        for t in reversed(range(mdp.horizon)):
            found[t] = bonus + mdp.expect(values)
            values = found[t].max(axis=1)
        return found


class _Model:
    """The decision process that was learned of an environment."""

    def __init__(self, numbers: dict[Hashable, int], mdp: TabularMDP) -> None:
        self.numbers, self.mdp, self.curve = numbers, mdp, RationalityCurve(mdp)

    @classmethod
    def learned(cls, simulator: Simulator, episodes: int, rng: np.random.Generator) -> "_Model":
        """Play episodes in rounds, each of which goes where little was tried before it."""
        counts = _Counts(simulator)
        for part in np.array_split(np.arange(episodes), min(_ROUNDS, episodes)):
            curiosity = counts.curiosity()
            for _ in part:
                counts.play(curiosity, rng)
        return cls(counts.numbers, counts.process())

    def best_rationality(self, utility: float) -> float:
        """Return the best rationality in the model, a finite one that comes near where it is infinite."""
        curve = self.curve
        if curve.span == 0:
            return 0.0
        beta = curve.meg(min(max(utility, curve.lowest), curve.highest)).beta
        if math.isfinite(beta):
            return beta
        end, bound = (curve.highest, curve.bound) if beta > 0 else (curve.lowest, curve.bound_lowest)
        found = math.copysign(1 / curve.span, beta)
        while bound - (found * end - curve.at(found).log_normaliser) > _NEAR_END and abs(found) < 1e6 / curve.span:
            found *= 2
        return found

    def play(
        self, simulator: Simulator, beta: float, episodes: int, rng: np.random.Generator, *, fresh: int = 0
    ) -> _Sample:
        """Play episodes of the soft policy of the model at a rationality; M from ``fresh`` next states, 0 for none."""
        policy, values = self._solved(beta)
        uniform = np.full(simulator.actions, 1 / simulator.actions)
        found = np.zeros((3, episodes))
        for episode in range(episodes):
            state = simulator.start(rng)
            utility = cost = noise = 0.0
            draws = rng.random(simulator.horizon)
            for t in range(simulator.horizon):
                at = self.numbers.get(state)
                chances = uniform if at is None else policy[t, at]
                action = min(
                    int(np.searchsorted(np.cumsum(chances), draws[t] * chances.sum(), "right")), len(chances) - 1
                )
                cost += math.log(chances[action] * simulator.actions)
                drawn = [self._value(values[t + 1], simulator.step(state, action, rng)[0]) for _ in range(fresh)]
                state, paid = simulator.step(state, action, rng)
                utility += paid
                if fresh:
                    noise += self._value(values[t + 1], state) - sum(drawn) / fresh
            found[:, episode] = utility, cost, noise
        return _Sample(utility=found[0], cost=found[1], noise=found[2])

    def _value(self, values: Array, state: Hashable) -> float:
        at = self.numbers.get(state)
        return 0.0 if at is None else float(values[at])

    def _solved(self, beta: float) -> tuple[Array, Array]:
        """Return the soft policy ``[n, S, A]`` and W ``[n + 1, S]`` of the model."""
        mdp = self.mdp
        policy, values = np.empty((mdp.horizon, mdp.states, mdp.actions)), np.zeros((mdp.horizon + 1, mdp.states))
        for t in reversed(range(mdp.horizon)):
            q = beta * mdp.reward + mdp.expect(values[t + 1])
            peak = q.max(axis=1, keepdims=True)
            weights = np.exp(q - peak)
            values[t] = np.log(weights.mean(axis=1)) + peak[:, 0]
            policy[t] = weights / weights.sum(axis=1, keepdims=True)
        return policy, values


def _utility(
    returns: npt.ArrayLike | None, mean_return: float | None, tail: float
) -> tuple[float, tuple[float, float]]:
    if (returns is None) == (mean_return is None):
        raise ValueError("meg_simulated must be given exactly one of returns and mean_return")
    if mean_return is not None:
        check_finite("mean_return", np.array(mean_return))
        return float(mean_return), (float(mean_return), float(mean_return))
    sample = np.asarray(returns, dtype=np.float64)
    count = check_shape("returns", sample, "N")["N"]
    check_finite("returns", sample)
    if count < 2:
        raise ValueError(f"returns must hold two episodes or more for an interval, got {count}: give mean_return")
    from scipy.special import stdtrit

    reach = float(stdtrit(count - 1, 1 - tail / 2)) * float(sample.std(ddof=1)) / math.sqrt(count)
    return float(sample.mean()), (float(sample.mean()) - reach, float(sample.mean()) + reach)


def _lower_bound(sample: _Sample, beta: float, ends: tuple[float, float], tail: float) -> tuple[float, float]:
    """Return beta u less the upper bound of W, with the effective sample size of its weights."""
    from scipy.special import stdtrit

    exponent = beta * sample.utility - sample.cost - sample.noise
    peak = float(exponent.max())
    weights = np.exp(exponent - peak)
    size = float(weights.sum() ** 2 / (weights**2).sum())
    count = len(weights)
    reach = float(stdtrit(count - 1, 1 - tail)) * float(weights.std(ddof=1)) / math.sqrt(count)
    w = math.log(float(weights.mean()) + reach) + peak
    return min(beta * end for end in ends) - w, size


def _upper_bound(samples: Sequence[_Sample], beta: float, ends: tuple[float, float], tail: float) -> float:
    """Return the supremum over rationalities of beta u less the highest of the lines below W.

    Mean utility and mean cost of a policy are held at once for all rationalities (the ellipse of both means).
    """
    from scipy.special import chdtri

    reach = math.sqrt(float(chdtri(2, tail)))
    unit = abs(beta) if beta else 1.0
    grid = unit * np.concatenate(
        [-np.geomspace(1e6, 1e-3, 400), [0.0], np.geomspace(1e-3, 1e6, 400), np.linspace(0, 2, 401)]
    )
    below = np.full(len(grid), -np.inf)
    for sample in samples:
        utility, cost = sample.utility, sample.cost
        spread = np.cov(np.stack([utility, cost]))
        variance = grid**2 * spread[0, 0] - 2 * grid * spread[0, 1] + spread[1, 1]
        line = grid * utility.mean() - cost.mean() - reach * np.sqrt(np.maximum(variance, 0.0) / len(utility))
        below = np.maximum(below, line)
    return float(np.max(np.maximum(grid * ends[0], grid * ends[1]) - below))
