"""Predict what an agent does in worlds where nobody has seen it, from its answers in other worlds.

The prediction mixes written rules and learned fall-backs over episodes (`goalscope.goals.prediction.mixture`), and
propagates each draw from the posterior through the unseen worlds, exactly. A fall-back must explain the episodes better
than every rule by `HANDICAP` nats, because a rule extrapolates and a fall-back need not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals.hypotheses.definition import Array, FiniteWorld, Hypothesis, Numbers, arrivals
from goalscope.goals.hypotheses.errors import first_visits, with_errors, wrong_moves
from goalscope.goals.hypotheses.states import Answers
from goalscope.goals.prediction.kinds import acting_states, places_in, with_none
from goalscope.goals.prediction.mixture import (
    FOLDS,
    NAMES,
    PER_PART,
    SETTINGS,
    STAND_INS,
    UNKNOWN,
    Described,
    Fallbacks,
    Mixture,
    PosteriorDraws,
    RuleTables,
    describe,
    errors_of,
    fit,
    length_of,
    log_likelihoods,
    random_at,
    usual_rules,
)

CHAINS: Final = 24
SWEEPS: Final = 60
HANDICAP: Final = 16.0
"""Nats by which a fall-back must explain the episodes better than the rules."""
LEAST_WEIGHT: Final = 0.01
"""Weight below which a rule is left out of a draw."""
FEWEST_CLUSTERS: Final = 6
"""Smallest number of clusters of worlds that a prediction is made from."""

_FIELDS: Final = 4  # draws of the states with fixed errors, and of fitted weights, among the chains


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenEpisode:
    """One episode reduced to its first visit to each of U states, with all answers given in each state.

    Attributes:
        visits: the first answer in each state.
        counts: ``[U, A]`` how often each action was answered in each state.
    """

    visits: Answers
    counts: Array


def episodes_of(all_answers: Sequence[Answers]) -> list[SeenEpisode]:
    """Reduce an agent's answers to one entry per episode, with its first visit to each state and the counts of answers
    there.

    Episodes without an answer are left out.
    """
    episodes = list[SeenEpisode]()
    for answers in all_answers:
        sums = answers.first if answers.second is None else answers.first + answers.second
        for number in np.unique(answers.episode).tolist():
            steps = np.flatnonzero(answers.episode == number)
            (visits,) = first_visits([answers.only(steps)])
            row = {state: at for at, state in enumerate(visits.state.tolist())}
            counts = np.zeros(visits.first.shape)
            np.add.at(counts, [row[state] for state in answers.state[steps].tolist()], sums[steps])
            episodes.append(SeenEpisode(visits=visits, counts=counts))
    return episodes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Foreseen:
    """What is predicted of an agent in one world, by B draws from the posterior.

    Attributes:
        reached: ``[B, K + 1]`` for each draw the probability that each of K places is reached first; the last column is
            the probability that none is reached.
        moves: ``[S, A]`` probability of each action in each state, averaged over the draws.
    """

    reached: Array
    moves: Array


def actions_of(world: FiniteWorld) -> tuple[str, ...]:
    """Return the names of the actions of a world, in the order of their numbers."""
    return world.world.begin_episode(0, "actions").view.actions


class Predictor:
    """Predicts from an agent's answers in some worlds how it acts in others, and which places it reaches first there.

    Args:
        all_answers: the answers, world by world.
        places: the places and events of which the first to be reached is predicted.
        seed: root seed.
        tables: cache of the policies of rules, to share them between agents.

    Raises:
        ValueError: there are fewer than six clusters of worlds with an answer, or the worlds have different actions.
    """

    def __init__(
        self,
        all_answers: Sequence[Answers],
        places: Sequence[Hypothesis],
        *,
        seed: int = 0,
        tables: RuleTables | None = None,
    ) -> None:
        self.answers, self.places, self.seed = all_answers, places, seed
        self.episodes = episodes_of(all_answers)
        clusters = list(dict.fromkeys(episode.visits.cluster for episode in self.episodes))
        if len(clusters) < FEWEST_CLUSTERS:
            raise ValueError(
                f"a prediction needs answers in at least {FEWEST_CLUSTERS} different worlds, got {len(clusters)}: run "
                "the agent in more worlds"
            )
        actions = {actions_of(answers.world): answers.world for answers in all_answers}
        if len(actions) > 1:
            raise ValueError(
                "a prediction needs answers in worlds that have the same actions, got "
                f"{' and '.join(', '.join(names) for names in [*actions][:2])}: predict from a run of one of "
                "these kinds"
            )
        (self.actions,) = actions
        self.tables = tables or RuleTables()
        worlds = [answers.world for answers in all_answers]
        self.rules = [rule for rule in usual_rules() if any(self.tables.of(world, rule).defined for world in worlds)]
        order = stream(seed, "folds of worlds", len(clusters)).permutation(len(clusters))
        fold_of = dict(zip(clusters, (order % FOLDS).tolist(), strict=True))
        self.folds = np.array([fold_of[episode.visits.cluster] for episode in self.episodes])
        self._fields = dict[tuple[str, int], tuple[Array, Array]]()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components of the prediction: the H written rules, then the three learned policies,
        to which the prediction falls back.
        """
        return (*(rule.text for rule in self.rules), *NAMES)

    @cached_property
    def _described(self) -> list[Described]:
        all_visits = [episode.visits for episode in self.episodes]
        return [describe(visits.world, visits.state, visits.time, self.places, self.tables) for visits in all_visits]

    def _fitted(self, episodes: Iterable[int]) -> Fallbacks:
        return fit([(self._described[number], self.episodes[number].counts) for number in episodes])

    @cached_property
    def fallbacks(self) -> Fallbacks:
        """The policies learned from the answers in all episodes, for agents that follow no written rule."""
        return self._fitted(range(len(self.episodes)))

    @cached_property
    def _by_fold(self) -> list[Fallbacks]:
        return [self._fitted(np.flatnonzero(self.folds != fold).tolist()) for fold in range(FOLDS)]

    @cached_property
    def _mixture(self) -> Mixture:
        logs = [
            log_likelihoods(*self._behaviour(number), episode.counts) for number, episode in enumerate(self.episodes)
        ]
        lengths = -PER_PART * np.array([length_of(rule) for rule in self.rules])
        prior = np.concatenate([lengths - np.logaddexp.reduce(lengths), np.full(len(NAMES), -HANDICAP)])
        return Mixture(np.stack(logs), prior)

    def rules_at(self, visits: Answers) -> tuple[Array, Array]:
        """Return what the H rules predict at the agent's visits to U states of a world.

        Args:
            visits: the world, and the state and time of each visit.

        Returns:
            ``[H, STAND_INS, U, A]`` action probabilities: rules, stand-ins (what the agent does if a rule is undefined
            in the world), states, actions; and ``[H, U]`` distances from the rules' places in steps.
        """
        policies = np.zeros((len(self.rules), STAND_INS, *visits.first.shape))
        distances = np.zeros((len(self.rules), len(visits.state)))
        for number, rule in enumerate(self.rules):
            table = self.tables.of(visits.world, rule)
            decision = np.minimum(visits.time, table.policies.shape[1] - 1)
            policies[number] = table.policies[:, decision, visits.state]
            distances[number] = table.distance[visits.state]
        return policies, distances

    def _behaviour(self, number: int) -> tuple[Array, Array, Array]:
        """Return policies, distances and uniform policy in the states of an episode, see `log_likelihoods`.

        The fall-backs are those that were fitted without the episode.
        """
        visits, described = self.episodes[number].visits, self._described[number]
        policies, distances = self.rules_at(visits)
        learned = np.repeat(self._by_fold[self.folds[number]].at(described)[:, None], STAND_INS, axis=1)
        far = np.full((len(NAMES), len(visits.state)), UNKNOWN)
        return np.concatenate([policies, learned]), np.concatenate([distances, far]), described.even

    @cached_property
    def draws(self) -> PosteriorDraws:
        """B draws from the posterior of the agent's behaviour, given all episodes.

        Each draw says how often the agent follows each rule or learned policy, and with what errors.
        """
        rng = stream(self.seed, "draws", len(self.episodes))
        return self._mixture.draw(np.arange(len(self.episodes)), chains=CHAINS, sweeps=SWEEPS, rng=rng)

    @cached_property
    def weights(self) -> dict[str, float]:
        """Name of a rule or learned policy -> its posterior mean weight, the largest first; below `LEAST_WEIGHT` left
        out.
        """
        mean = self.draws.weights.mean(axis=0)
        order = np.argsort(-mean)
        return {self.names[number]: float(mean[number]) for number in order.tolist() if mean[number] >= LEAST_WEIGHT}

    @cached_property
    def distance(self) -> float | None:
        """Mean squared distance of predicted action probabilities from the agent's own, in worlds left out of the fit.

        The estimate is unbiased: with two answers a and a' (one-hot) at the first visit to each state and the
        prediction p, it averages ``a . a' - p . (a + a') + |p|^2``. None without second answers.
        """
        if any(answers.second is None for answers in self.answers):
            return None
        all_visits = [episode.visits for episode in self.episodes]
        pairs = [(visits.first, visits.second) for visits in all_visits if visits.second is not None]
        values, mixture = list[float](), self._mixture
        for fold in range(FOLDS):
            rng = stream(self.seed, "held-out draws", fold)
            draws = mixture.draw(np.flatnonzero(self.folds != fold), chains=8, sweeps=SWEEPS // 2, rng=rng)
            for number in np.flatnonzero(self.folds == fold).tolist():
                first, second = pairs[number]
                chances = self._predicted(number, draws)
                off = (first * second).sum(axis=1) + (chances**2).sum(axis=1)
                values += (off - (chances * (first + second)).sum(axis=1)).tolist()
        return float(np.mean(values))

    def _predicted(self, number: int, draws: PosteriorDraws) -> Array:
        """Return the probabilities of actions in the states of an episode, each given the states before, ``[U, A]``."""
        episode = self.episodes[number]
        policies, distances, even = self._behaviour(number)
        _, rule = np.nonzero(draws.weights >= LEAST_WEIGHT)
        weight, setting = draws.weights[draws.weights >= LEAST_WEIGHT], draws.settings[draws.weights >= LEAST_WEIGHT]
        stand_in, slope, random, fixed = errors_of(setting)
        policy = policies[rule, stand_in]
        rates = random_at(random[:, None], slope[:, None], distances[rule])
        chances = with_errors(policy, even, rates, fixed[:, None, None])
        logs = np.einsum("cua,ua->cu", np.log(np.maximum(chances, 1e-12)), episode.counts / 2)
        before = np.log(weight)[:, None] + np.cumsum(logs, axis=1) - logs
        posterior = np.exp(before - before.max(axis=0))
        return np.asarray(np.einsum("cu,cua->ua", posterior / posterior.sum(axis=0), chances))

    def foresee(self, world: FiniteWorld, draws: PosteriorDraws | None = None) -> Foreseen:
        """Predict how the agent acts in a world, and which places it reaches first there.

        Args:
            world: the world.
            draws: B draws over rules and errors; by default those from the posterior.

        Returns:
            For each draw, the probability that each place is reached first; and the mean action probabilities in each
            state.
        """
        draws = self.draws if draws is None else draws
        chain, rule = np.nonzero(draws.weights >= LEAST_WEIGHT)
        weight, setting = draws.weights[chain, rule], draws.settings[chain, rule]
        fixed = errors_of(setting)[3]
        keys = np.stack([rule, setting, np.where(fixed > 0, chain % _FIELDS, 0)], axis=1)
        rows, inverse = np.unique(keys, axis=0, return_inverse=True)
        policies = self._policies(world, rows)
        reached = with_none(arrivals(world, self.tables.once(places_in, world, self.places), policies))
        result = np.zeros((len(draws.weights), reached.shape[1]))
        np.add.at(result, chain, weight[:, None] * reached[inverse.reshape(-1)])
        moves = np.tensordot(np.bincount(inverse.reshape(-1), weights=weight), policies.mean(axis=1), 1)
        return Foreseen(
            reached=result / result.sum(axis=1, keepdims=True), moves=moves / moves.sum(axis=1, keepdims=True)
        )

    def _described_at_first(self, world: FiniteWorld, places: Sequence[Hypothesis]) -> Described:
        states = acting_states(world)
        return describe(world, states, np.zeros_like(states), places, self.tables)

    def _policies(self, world: FiniteWorld, rows: Numbers) -> Array:
        """Return the policies ``[C, n, S, A]`` of rows (rule, setting, number of a field of fixed errors)."""
        states = acting_states(world)
        number, setting, field = rows.T
        stand_in, slope, random, fixed = errors_of(setting)
        rules, learned = len(self.rules), {}
        if (number >= rules).any():
            described = self.tables.once(self._described_at_first, world, self.places)
            learned = dict(enumerate(self.fallbacks.at(described), rules))
        draws, rank = self._field(world, field)
        written = [self.tables.of(world, self.rules[h]) for h in number.tolist() if h < rules]
        times = max([1, *(table.policies.shape[1] for table in written)])
        result = np.tile(world.even, (len(rows), times, 1, 1))
        for time in range(times):
            base = np.zeros((len(rows), len(states), world.process.actions))
            distance = np.full((len(rows), len(states)), UNKNOWN)
            for row, h in enumerate(number.tolist()):
                if h >= rules:
                    base[row] = learned[h]
                    continue
                table = self.tables.of(world, self.rules[h])
                stand = min(int(stand_in[row]), len(table.policies) - 1)
                base[row] = table.policies[stand, min(time, table.policies.shape[1] - 1), states]
                distance[row] = table.distance[states]
            even = world.even[states]
            wrong = wrong_moves(base, even)
            errs = (draws[:, states] < fixed[:, None]) & wrong.any(axis=2)
            worst = np.where(wrong, rank[:, states], -1.0).argmax(axis=2)
            base = np.where(errs[..., None], np.eye(world.process.actions)[worst], base)
            result[:, time, states] = with_errors(base, even, random_at(random[:, None], slope[:, None], distance))
        return result

    def _field(self, world: FiniteWorld, field: Numbers) -> tuple[Array, Array]:
        """Return random numbers ``[C, S]`` that say where errors are fixed, and ``[C, S, A]`` which error it is."""
        key = world.world.id, world.horizon
        if key not in self._fields:
            rng = stream(self.seed, "fixed errors", *key)
            shape = _FIELDS, world.process.states
            self._fields[key] = rng.random(shape), rng.random((*shape, world.process.actions))
        draws, rank = self._fields[key]
        return draws[field], rank[field]


def best_alone(predictor: Predictor) -> PosteriorDraws:
    """Return the prediction by a single rule, as a baseline: the written rule with the greatest weight.

    The rule has the error rates that are most probable for the agent.

    Returns:
        A single draw, with all weight on this rule.
    """
    weights = predictor.draws.weights.mean(axis=0)
    best = int(weights[: len(predictor.rules)].argmax())
    settings = predictor.draws.settings[:, best][predictor.draws.weights[:, best] > 0]
    counts = np.bincount(settings, minlength=STAND_INS * SETTINGS)
    alone = np.zeros((1, len(weights)))
    alone[0, best] = 1.0
    return PosteriorDraws(weights=alone, settings=np.full(alone.shape, counts.argmax(), dtype=np.int64))
