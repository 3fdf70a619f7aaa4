"""A mixture over episodes of rules with errors, and draws from its posterior.

An episode follows one of H rules with the errors of `goalscope.goals.hypotheses.likelihood`. The share of random
answers may rise or fall with the distance d to the place of the rule,

    logit random(d) = logit random + slope (d - 5) / 4

The weights of the rules have a sparse Dirichlet prior, proportional to the probabilities of the rules beforehand. The
posterior is drawn by Gibbs sampling in several chains at once, which begin hot: rules that no episode tells apart share
the chains, so that "one or the other" remains in the prediction.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np

from goalscope._ground.checks import freeze
from goalscope.goals.hypotheses.definition import Array, Numbers
from goalscope.goals.hypotheses.likelihood import log_likelihood
from goalscope.goals.prediction.rules import STAND_INS

RANDOM: Final[Array] = freeze(np.array([0.005, 0.03, 0.08, 0.18, 0.35, 0.6, 0.95]))
SLOPES: Final[Array] = freeze(np.array([0.0, 1.0, -1.0]))
FIXED: Final[Array] = freeze(np.array([0.0, 0.06, 0.15, 0.3]))
SETTINGS: Final = len(RANDOM) * len(SLOPES) * len(FIXED)
"""Number of settings of errors."""
CONCENTRATION: Final = 1.0
"""Sum of the parameters of the Dirichlet prior over rules."""
MOST: Final = 28
"""Number of rules among which the posterior is drawn; the others explain no episode well."""

_SLOPE_PRIOR: Final = (0.7, 0.15, 0.15)
_FIXED_PRIOR: Final = (0.55, 0.2, 0.15, 0.1)
_SETTINGS: Final = freeze(np.array(list(product(range(len(SLOPES)), range(len(RANDOM)), range(len(FIXED))))))


def setting_prior() -> Array:
    """Return the log probabilities of stand-in and errors beforehand, ``[STAND_INS * SETTINGS]``."""
    errors = [np.log(_SLOPE_PRIOR[s] * _FIXED_PRIOR[f] / len(RANDOM)) for s, _, f in _SETTINGS]
    return np.asarray(np.tile(np.array(errors), STAND_INS) - np.log(STAND_INS))


def errors_of(setting: Numbers) -> tuple[Numbers, Array, Array, Array]:
    """Return the stand-in, slope, random and fixed share of settings ``[C]``."""
    stand_in, errors = np.divmod(setting, SETTINGS)
    slope, random, fixed = _SETTINGS[errors].T
    return stand_in, SLOPES[slope], RANDOM[random], FIXED[fixed]


def random_at(random: Array, slope: Array, distance: Array) -> Array:
    """Return the random share at a distance; the arguments are broadcast."""
    logit = np.log(random / (1 - random)) + slope * (distance - 5) / 4
    return np.asarray(np.clip(1 / (1 + np.exp(-logit)), RANDOM[0], 0.98))


def log_likelihoods(policies: Array, distances: Array, even: Array, counts: Array) -> Array:
    """Return the log likelihood of the answers of one episode in U states, ``[H, STAND_INS * SETTINGS]``.

    Args:
        policies: ``[H, STAND_INS, U, A]`` policies of the rules.
        distances: ``[H, U]`` distances to their places.
        even: ``[U, A]`` the uniform policy over the offered actions.
        counts: ``[U, A]`` number of answers.
    """
    rules, stands = policies.shape[:2]
    alike = np.array([stands > 1 and (policies[h] == policies[h, :1]).all() for h in range(rules)])
    result = np.zeros((rules, stands, SETTINGS))
    for chosen, number in ((np.flatnonzero(alike), 1), (np.flatnonzero(~alike), stands)):
        if len(chosen):
            random = random_at(RANDOM[:, None], SLOPES[:, None, None], distances[chosen, None, None])  # [H, 3, R, U]
            logs = log_likelihood(policies[chosen, :number, None, None], even, counts, random[:, None], FIXED.tolist())
            result[chosen] = logs.reshape(len(chosen), number, SETTINGS)
    return result.reshape(rules, -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PosteriorDraws:
    """B draws from the posterior.

    Attributes:
        weights: ``[B, H]`` weights of the rules.
        settings: ``[B, H]`` stand-in and errors of each rule, see `errors_of`.
    """

    weights: Array
    settings: Numbers


@dataclass(frozen=True, eq=False)
class Mixture:
    """The likelihoods of E episodes under H rules.

    Attributes:
        logs: ``[E, H, STAND_INS * SETTINGS]`` from `log_likelihoods`.
        prior: ``[H]`` log probabilities of the rules beforehand.
    """

    logs: Array
    prior: Array

    @cached_property
    def marginal(self) -> Array:
        """``[E, H]`` log likelihood of each episode alone, over all errors."""
        return np.asarray(np.logaddexp.reduce(self.logs + setting_prior(), axis=2))

    def candidates(self, episodes: Numbers) -> Numbers:
        """Return the rules to draw among: those with weight in a quick fit, and those that explain all episodes."""
        alone = np.logaddexp.reduce(self.logs[episodes].sum(axis=0) + setting_prior(), axis=1) + self.prior
        marginal, weights = self.marginal[episodes], np.exp(self.prior)
        for _ in range(30):
            shares = marginal + np.log(np.maximum(weights, 1e-300))
            shares = np.exp(shares - np.logaddexp.reduce(shares, axis=1)[:, None])
            weights = shares.sum(axis=0) + np.exp(self.prior)
            weights /= weights.sum()
        half = MOST // 2
        return np.unique(np.concatenate([np.argsort(-weights)[:half], np.argsort(-alone)[: MOST - half]]))

    def draw(self, episodes: Numbers, *, chains: int, sweeps: int, rng: np.random.Generator) -> PosteriorDraws:
        """Draw from the posterior given some of the episodes.

        Args:
            episodes: their numbers.
            chains: number B of draws, each from a chain of its own.
            sweeps: number of sweeps; the first half is tempered.
            rng: source of the random numbers.
        """
        candidates = self.candidates(episodes)
        logs = np.ascontiguousarray(self.logs[episodes][:, candidates].transpose(1, 0, 2))  # [H, E, T]
        marginal, log_prior = self.marginal[episodes][:, candidates], setting_prior()
        alpha = CONCENTRATION * np.exp(self.prior[candidates])
        count, rules = len(episodes), len(candidates)
        of_rule, of_chain = np.arange(rules)[None, :], np.arange(chains)[:, None]
        settings = _gumbel(np.broadcast_to(log_prior, (chains, rules, len(log_prior))), rng)
        member = np.zeros((chains, count, rules))
        for sweep in range(sweeps):
            heat = min(1.0, 0.05 + 1.9 * sweep / sweeps)
            scores = logs[of_rule[:, None], np.arange(count)[None, :, None], settings[:, None, :]]  # [B, E, H]
            totals = member.sum(axis=1)
            scores = np.where((totals > 0)[:, None], scores, marginal[None])
            scores = heat * scores + np.log(alpha + totals)[:, None]
            chosen = _gumbel(scores, rng)
            member = np.eye(rules)[chosen]
            sums = np.matmul(member.transpose(2, 0, 1), logs).transpose(1, 0, 2)  # [B, H, T]
            settings = _gumbel(heat * sums + log_prior, rng)
            if sweep % 3 == 2:
                member, settings = _relabelled(member, settings, logs, heat, log_prior, np.log(alpha), rng)
        weights = np.zeros((chains, self.logs.shape[1]))
        drawn = rng.standard_gamma(np.maximum(alpha + member.sum(axis=1), 1e-3))
        weights[:, candidates] = drawn / drawn.sum(axis=1, keepdims=True)
        all_settings = np.zeros(weights.shape, dtype=np.int64)
        all_settings[of_chain, candidates[None]] = settings
        return PosteriorDraws(weights=weights, settings=all_settings)


def _relabelled(
    member: Array,
    settings: Numbers,
    logs: Array,
    heat: float,
    log_prior: Array,
    log_alpha: Array,
    rng: np.random.Generator,
) -> tuple[Array, Numbers]:
    """Draw again which rule all the episodes of one rule follow, in each chain: the rule itself, or one without any.

    Episodes that move one by one could not leave a rule for another one that explains all of them as well.
    """
    chains = np.arange(len(member))
    totals = member.sum(axis=1)
    old = _gumbel(np.where(totals > 0, 0.0, -np.inf), rng)
    episodes = member[chains, :, old]  # [B, E]
    sums = heat * np.matmul(episodes, logs).transpose(1, 0, 2) + log_prior  # [B, H, T]
    free = (totals == 0) | (np.arange(totals.shape[1]) == old[:, None])
    new = _gumbel(np.where(free, np.logaddexp.reduce(sums, axis=2) + log_alpha, -np.inf), rng)
    member, settings = member.copy(), settings.copy()
    member[chains, :, old] = 0.0
    member[chains, :, new] = episodes
    settings[chains, new] = _gumbel(sums[chains, new], rng)
    return member, settings


def _gumbel(logs: Array, rng: np.random.Generator) -> Numbers:
    """Draw from the distributions over the last axis with given logarithms."""
    return np.asarray((logs + rng.gumbel(size=logs.shape)).argmax(axis=-1))
