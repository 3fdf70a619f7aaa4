"""MEG of an agent in an environment that can be run but has no transition table: two-sided bounds by simulation.

W is bounded from both sides by episodes of one policy pi, whatever its quality. With A actions, k = log(A pi(a | s)):

    lower:  W(beta) >= E_pi[beta U - sum k]                                (the variational form of a soft backup)
    upper:  W(beta) <= log E_pi[exp(beta U - sum k - sum M)],   M_t = V(s_{t+1}) - mean of V over fresh next states

V may be any function of time and state; M has mean 0 given state and action, so that the second line follows from
Jensen's inequality, decision by decision. With V = W and pi the soft policy, both lines are equalities. MEG at a
utility u is ``sup_beta beta u - W(beta)``: the upper bound of W at one beta gives its lower bound, the lower bounds of
several policies, which are straight lines in beta, give its upper one.

Policy and V come from a model learned from the simulator by trying the least tried actions. The bounds hold however
wrong the model is; they are only wide then. They are computed from fresh episodes. Their confidence is that of means of
many episodes (Student's t, and the ellipse of two means): events that occur in no episode are not covered.

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
_FRESH = 4  # next states averaged in M
_ROUNDS = 50  # of learning; the exploration plan is recomputed before each
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
        low, high: interval of MEG in nats, with the confidence.
        beta: rationality of ``low``, nats per unit of utility.
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
        rng: for the simulated episodes.
        episodes: number of fresh episodes of each policy, 100 or more.
        learning: number of episodes from which the model is learned.
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
    bound = simulator.horizon * math.log(simulator.actions)
    high = min(bound, _upper_bound(sampled, best, ends, tail / len(sampled)))
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
    """Transition and utility counts of an environment."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.numbers = dict[Hashable, int]()
        self.starts, self.transitions = dict[int, int](), dict[tuple[int, int, int], int]()
        self.tried, self.utility_sums = list[Array](), list[Array]()

    def state_number(self, state: Hashable) -> int:
        """Return the number of a state; an unseen state gets a new one."""
        if state not in self.numbers:
            self.numbers[state] = len(self.numbers)
            self.tried.append(np.zeros(self.simulator.actions))
            self.utility_sums.append(np.zeros(self.simulator.actions))
        return self.numbers[state]

    def play(self, curiosity: Array, rng: np.random.Generator) -> None:
        """Play an episode towards little tried actions, and count; ``curiosity`` is ``[n, S, A]``."""
        state = self.simulator.start(rng)
        current = self.state_number(state)
        self.starts[current] = self.starts.get(current, 0) + 1
        ties = rng.random((self.simulator.horizon, self.simulator.actions))
        for t in range(self.simulator.horizon):
            preference = curiosity[t, current] if current < curiosity.shape[1] else -self.tried[current]
            action = int(np.argmax(preference + 1e-6 * ties[t]))
            state, utility = self.simulator.step(state, action, rng)
            successor = self.state_number(state)
            self.transitions[current, action, successor] = self.transitions.get((current, action, successor), 0) + 1
            self.tried[current][action] += 1
            self.utility_sums[current][action] += utility
            current = successor

    def process(self) -> TabularMDP:
        """Return the decision process of the counts; untried actions are assumed to change nothing."""
        total = np.array(self.tried)
        counts = self.transitions | {(at, action, at): 1 for at, action in np.argwhere(total == 0).tolist()}
        possible = np.array(list(counts), dtype=np.int64)
        first = np.zeros(len(self.numbers))
        first[list(self.starts)] = list(self.starts.values())
        return TabularMDP.sparse(
            possible,
            np.array(list(counts.values())) / np.maximum(total, 1)[possible[:, 0], possible[:, 1]],
            actions=self.simulator.actions,
            start=first / first.sum(),
            utility=np.array(self.utility_sums) / np.maximum(total, 1),
            horizon=self.simulator.horizon,
        )

    def curiosity(self) -> Array:
        """Return ``[n, S, A]`` the maximum exploration bonus from there on: 1 / (1 + k) for an action tried k times."""
        if not self.numbers:
            return np.zeros((self.simulator.horizon, 0, self.simulator.actions))
        mdp, bonus = self.process(), 1 / (1 + np.array(self.tried))
        q = np.empty((mdp.horizon, mdp.states, mdp.actions))
        values = np.zeros(mdp.states)
        for t in reversed(range(mdp.horizon)):
            q[t] = bonus + mdp.expect(values)
            values = q[t].max(axis=1)
        return q


class _Model:
    """A decision process learned from an environment."""

    def __init__(self, numbers: dict[Hashable, int], mdp: TabularMDP) -> None:
        self.numbers, self.mdp, self.curve = numbers, mdp, RationalityCurve(mdp)

    @classmethod
    def learned(cls, simulator: Simulator, episodes: int, rng: np.random.Generator) -> "_Model":
        """Play episodes in rounds, each towards the actions tried least before it."""
        counts = _Counts(simulator)
        for part in np.array_split(np.arange(episodes), min(_ROUNDS, episodes)):
            curiosity = counts.curiosity()
            for _ in part:
                counts.play(curiosity, rng)
        return cls(counts.numbers, counts.process())

    def best_rationality(self, utility: float) -> float:
        """Return the best rationality in the model; where it is infinite, a finite one close to the limit."""
        curve = self.curve
        if curve.span == 0:
            return 0.0
        beta = curve.meg(min(max(utility, curve.lowest), curve.highest)).beta
        if math.isfinite(beta):
            return beta
        end, bound = (curve.highest, curve.bound) if beta > 0 else (curve.lowest, curve.bound_lowest)
        rationality = math.copysign(1 / curve.span, beta)
        while (
            bound - (rationality * end - curve.at(rationality).log_normaliser) > _NEAR_END
            and abs(rationality) < 1e6 / curve.span
        ):
            rationality *= 2
        return rationality

    def play(
        self, simulator: Simulator, beta: float, episodes: int, rng: np.random.Generator, *, fresh: int = 0
    ) -> _Sample:
        """Play episodes of the soft policy of the model at a rationality; M from ``fresh`` next states, 0 for none."""
        policy, values = self._solved(beta)
        uniform = np.full(simulator.actions, 1 / simulator.actions)
        totals = np.zeros((3, episodes))
        for episode in range(episodes):
            state = simulator.start(rng)
            utility = cost = noise = 0.0
            draws = rng.random(simulator.horizon)
            for t in range(simulator.horizon):
                number = self.numbers.get(state)
                probabilities = uniform if number is None else policy[t, number]
                action = min(
                    int(np.searchsorted(np.cumsum(probabilities), draws[t] * probabilities.sum(), "right")),
                    len(probabilities) - 1,
                )
                cost += math.log(probabilities[action] * simulator.actions)
                fresh_values = [self._value(values[t + 1], simulator.step(state, action, rng)[0]) for _ in range(fresh)]
                state, gained = simulator.step(state, action, rng)
                utility += gained
                if fresh:
                    noise += self._value(values[t + 1], state) - sum(fresh_values) / fresh
            totals[:, episode] = utility, cost, noise
        return _Sample(utility=totals[0], cost=totals[1], noise=totals[2])

    def _value(self, values: Array, state: Hashable) -> float:
        number = self.numbers.get(state)
        return 0.0 if number is None else float(values[number])

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

    half_width = float(stdtrit(count - 1, 1 - tail / 2)) * float(sample.std(ddof=1)) / math.sqrt(count)
    return float(sample.mean()), (float(sample.mean()) - half_width, float(sample.mean()) + half_width)


def _lower_bound(sample: _Sample, beta: float, ends: tuple[float, float], tail: float) -> tuple[float, float]:
    """Return beta u less the upper bound of W, with the effective sample size of its weights."""
    from scipy.special import stdtrit

    exponent = beta * sample.utility - sample.cost - sample.noise
    peak = float(exponent.max())
    weights = np.exp(exponent - peak)
    size = float(weights.sum() ** 2 / (weights**2).sum())
    count = len(weights)
    margin = float(stdtrit(count - 1, 1 - tail)) * float(weights.std(ddof=1)) / math.sqrt(count)
    w = math.log(float(weights.mean()) + margin) + peak
    return min(beta * end for end in ends) - w, size


def _upper_bound(samples: Sequence[_Sample], beta: float, ends: tuple[float, float], tail: float) -> float:
    """Return the supremum over rationalities of beta u less the highest of the lines below W.

    The confidence ellipse of mean utility and mean cost of a policy covers all rationalities at once.
    """
    from scipy.special import chdtri

    radius = math.sqrt(float(chdtri(2, tail)))
    unit = abs(beta) if beta else 1.0
    grid = unit * np.concatenate(
        [-np.geomspace(1e6, 1e-3, 400), [0.0], np.geomspace(1e-3, 1e6, 400), np.linspace(0, 2, 401)]
    )
    below = np.full(len(grid), -np.inf)
    for sample in samples:
        utility, cost = sample.utility, sample.cost
        covariance = np.cov(np.stack([utility, cost]))
        variance = grid**2 * covariance[0, 0] - 2 * grid * covariance[0, 1] + covariance[1, 1]
        line = grid * utility.mean() - cost.mean() - radius * np.sqrt(np.maximum(variance, 0.0) / len(utility))
        below = np.maximum(below, line)
    return float(np.max(np.maximum(grid * ends[0], grid * ends[1]) - below))
