"""What a prediction mixes over episodes: written rules and learned fall-backs with errors, and posterior draws.

**Rules** are hypotheses, with stand-ins where one is undefined. A longer rule is less probable beforehand: each further
part costs `PER_PART` nats. A rule that is undefined in a world, such as a corner that is a wall, says nothing on what
an agent does there. What takes its place is a latent variable of the prediction: the open cell nearest to the place,
random moves, or the goal (`STAND_INS`).

**Fall-backs** are policies for agents that follow no written rule, fitted to the answers.

- *learned moves*: a softmax over the actions, with a ridge, on what each action does: the steps it saves towards each
  place and on each side of it, how that changes with the distance, the time and the key, whether it changes the state,
  and the log probabilities of a few rules;
- *similar states*: the frequencies of the actions in states with the same surroundings, backed off to coarser ones;
- *move frequencies*: how often each action was taken.

Whatever is fitted is judged on clusters of worlds that it was not fitted to (`FOLDS`).

**Mixture.** An episode follows one of H rules with the errors of `goalscope.goals.hypotheses.errors`. The share of
random answers may rise or fall with the distance d to the place of the rule,

    logit random(d) = logit random + slope (d - 5) / 4

The weights of the rules have a sparse Dirichlet prior, proportional to the probabilities of the rules beforehand. The
posterior is drawn by Gibbs sampling in several chains at once, which begin hot: rules that no episode tells apart share
the chains, so that "one or the other" remains in the prediction.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Final, TypeVar

import numpy as np

from goalscope._ground.checks import freeze
from goalscope.goals.hypotheses.definition import (
    FAR,
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    Numbers,
    Undefined,
    place_of,
    policy_or_even,
)
from goalscope.goals.hypotheses.errors import log_likelihood
from goalscope.goals.hypotheses.written import made, parse
from goalscope.worlds.grid import CORNERS, DELTAS

PER_PART: Final = 1.5
"""Nats by which each further part makes a rule less probable."""

STAND_INS: Final = 3
"""Number of stand-ins: nearest open cell, random moves, goal. Without a nearest cell, random moves count twice."""

UNKNOWN: Final = 6.0
"""Distance in steps that counts for a rule about no place, and for a place out of reach."""

Value = TypeVar("Value")

_CORNERS: Final = tuple(f"corner {name}" for name in CORNERS)
_PLACES: Final = ("goal", "key", *_CORNERS)


FOLDS: Final = 5
NAMES: Final = ("learned moves", "similar states", "move frequencies")
"""The fall-backs; none is the name of a rule."""
_RIDGE: Final = 1.0
_BACK_OFF: Final = 2.0  # answers that the coarser frequencies count for
_HINTS: Final = ("follow the wall", "open moves", "beside goal", "flee goal", "near (mirror of goal)", "top row")
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


def length_of(rule: Hypothesis) -> int:
    """Return how complex a rule is: the number of hypotheses, conditions and numbers in it, itself included.

    Longer rules are less probable a priori.
    """
    return 1 + sum(_length(part) for part in rule.parts if rule.form != "corner {corner}")


def _length(part: Any) -> int:
    if isinstance(part, Hypothesis):
        return length_of(part)
    return sum(map(_length, part)) if isinstance(part, tuple) else 1


@lru_cache(maxsize=1)
def usual_rules() -> tuple[Hypothesis, ...]:
    """Return the rules (hypotheses such as "goal if key held, else random") that every prediction in grids
    considers.
    """
    return tuple(parse(text) for text in dict.fromkeys(_written()))


def _written() -> Iterator[str]:
    yield from _PLACES
    yield from ("key held", "near centre", "top row", "beside goal", "follow the wall", "open moves", "random")
    yield from (f"keep {move}" for move in ("up", "down", "left", "right"))
    for place in _PLACES:
        yield from (f"flee {place}", f"straight to {place}")
    yield from (f"beside ({corner})" for corner in _CORNERS)
    yield from ("near (mirror of goal)", "near (point mirror of goal)")
    for steps in (3, 5, 8):
        yield f"goal within {steps} steps"
    for sides in ("up", "down", "left", "right", "up or right", "down or left", "up or left", "down or right"):
        yield f"goal if it lies {sides}, else random"
    for place in ("goal", *_CORNERS, "random", "open moves"):
        yield f"key if not key held, else ({place})"
    for corner in _CORNERS:
        yield f"goal if key held, else {corner}"
        yield f"goal if there is a key, else {corner}"
        yield f"{corner} if there is a key, else goal"
        yield f"goal if the grid has at most 7 rows, else {corner}"
        yield f"nearest of goal, {corner}"
    yield from ("goal if the grid has at most 7 rows", "nearest of goal, key", "door open")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleTable:
    """The policy of a rule in one world, and the distance of each state from the rule's place.

    Attributes:
        policies: ``[J, n, S, A]`` action probabilities, by decision, state and action. J = 1 if the rule is defined in
            the world; otherwise these are the policies of the J `STAND_INS`, which an agent may follow instead.
        distance: ``[S]`` steps to the rule's place, at most 16; `UNKNOWN` without a place.
    """

    policies: Array
    distance: Array

    @property
    def defined(self) -> bool:
        """Whether the rule is defined in the world, so that no other behaviour must stand in for it."""
        return len(self.policies) == 1


@dataclass(eq=False)
class RuleTables:
    """Cache of the policies of rules in worlds, shared by predictions of several agents in the same worlds."""

    _tables: dict[tuple[str, int, str], RuleTable] = field(default_factory=dict)
    _others: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def of(self, world: FiniteWorld, rule: Hypothesis) -> RuleTable:
        """Return the policy of a rule in a world, with distances from its place; computed at first use."""
        key = world.world.id, world.horizon, rule.text
        if key not in self._tables:
            self._tables[key] = _table(world, rule)
        return self._tables[key]

    def once(self, make: Callable[..., Value], world: FiniteWorld, places: Sequence[Hypothesis], *more: str) -> Value:
        """Return ``make(world, places, *more)``; the result is cached by the name of the function and its arguments."""
        key = make.__qualname__, world.world.id, world.horizon, *(place.text for place in places), *more
        if key not in self._others:
            self._others[key] = make(world, places, *more)
        return self._others[key]  # type: ignore[no-any-return]


def _table(world: FiniteWorld, rule: Hypothesis) -> RuleTable:
    distance = np.full(world.process.states, UNKNOWN)
    aim = place_of(rule)
    try:
        if aim is not None:
            steps = world.steps_to(world.targets(aim))
            distance = np.where(steps < FAR, np.minimum(steps, 16), UNKNOWN).astype(np.float64)
    except Undefined:
        pass
    try:
        return RuleTable(policies=rule.solved(world).policy[None], distance=distance)
    except Undefined:
        near = made("near {place}", (rule,)) if rule.kind == "place" else None
        policies = [
            world.even if stand_in is None else policy_or_even(stand_in, world)[0]
            for stand_in in (near, None, parse("goal"))
        ]
        return RuleTable(policies=np.stack(policies)[:, None], distance=distance)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Described:
    """Features of N states of a world with A actions, from which policies are learned that fit an agent's answers.

    Attributes:
        even: ``[N, A]`` the uniform policy over the offered actions.
        actions: ``[N, A, F]`` F features of what each action does; features that a world lacks are 0.
        surroundings: what each state looks like, as a tuple of numbers, at several levels of detail from coarse to
            fine. States with equal tuples look alike. At the coarsest level, all states do; finer levels distinguish
            the walls around the agent, and the finest also the direction of a place.
    """

    even: Array
    actions: Array
    surroundings: tuple[list[tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fallbacks:
    """Policies learned from an agent's answers, for agents that follow no written rule (fall-backs).

    There are three: *learned moves* (a softmax over features of actions), *similar states* (how often the agent took
    each action in states that look alike) and *move frequencies*.

    Attributes:
        weights: ``[F]`` weights of the features of *learned moves*.
        tables: for each level of detail, from coarse to fine, description of a state (see `Described`) -> ``[A]``
            number of answers with each action in the states so described.
    """

    weights: Array
    tables: Sequence[dict[tuple[int, ...], Array]]

    def at(self, described: Described) -> Array:
        """Return the action probabilities of *learned moves*, *similar states* and *move frequencies* in N states.

        Args:
            described: features of the N states of one world with A actions.

        Returns:
            ``[3, N, A]``: the three policies in this order, states, actions. Actions that the world does not offer in a
            state have probability 0.
        """
        offered = described.even > 0
        scores = described.actions @ self.weights
        moves = np.exp(np.where(offered, scores - scores.max(axis=1, keepdims=True), -np.inf))
        levels, nothing = [described.even], np.zeros(described.even.shape[1])
        for table, keys in zip(self.tables, described.surroundings, strict=True):
            counts = np.stack([table.get(key, nothing) for key in keys]) + _BACK_OFF * levels[-1]
            levels.append(counts / counts.sum(axis=1, keepdims=True))
        policies = np.where(offered, np.stack([moves, levels[-1], levels[1]]), 0.0)
        return np.asarray(policies / policies.sum(axis=2, keepdims=True))


def fit(samples: Sequence[tuple[Described, Array]]) -> Fallbacks:
    """Fit the learned policies (fall-backs, for behaviour that no rule explains) to an agent's answers.

    Args:
        samples: for each episode, the features of N states and ``[N, A]`` number of answers with each action.

    Returns:
        The policies: *learned moves*, *similar states* and *move frequencies*.
    """
    weights = _softmax_fit(
        np.concatenate([described.actions for described, _ in samples]),
        np.concatenate([counts for _, counts in samples]),
        np.concatenate([described.even > 0 for described, _ in samples]),
    )
    tables: list[dict[tuple[int, ...], Array]] = [{} for _ in samples[0][0].surroundings]
    for described, counts in samples:
        for table, keys in zip(tables, described.surroundings, strict=True):
            for key, row in zip(keys, counts, strict=True):
                table[key] = table.get(key, 0.0) + row
    return Fallbacks(weights=weights, tables=tables)


def _softmax_fit(inputs: Array, counts: Array, offered: Mask) -> Array:
    """Return the weights ``[F]`` that maximise the penalised likelihood of counts ``[N, A]``, by Newton's method."""
    weights, total = np.zeros(inputs.shape[2]), counts.sum(axis=1, keepdims=True)
    ridge = _RIDGE * np.eye(len(weights))
    for _ in range(25):
        scores = np.where(offered, inputs @ weights, -np.inf)
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        gradient = np.einsum("na,naf->f", counts - total * chances, inputs) - ridge @ weights
        centred = inputs - np.einsum("na,naf->nf", chances, inputs)[:, None]
        scaled = (centred * np.sqrt(total * chances)[:, :, None]).reshape(-1, len(weights))
        step = np.linalg.solve(scaled.T @ scaled + ridge, gradient)
        size = float(np.abs(step).max())
        weights = weights + step * min(1.0, 2.0 / max(size, 1e-12))
        if size < 1e-3:
            break
    return weights


@lru_cache(maxsize=1)
def _hints() -> tuple[Hypothesis, ...]:
    return tuple(parse(text) for text in _HINTS)


def describe(
    world: FiniteWorld, states: Numbers, times: Numbers, places: Sequence[Hypothesis], tables: RuleTables
) -> Described:
    """Compute the features of N states of a world, from which policies are learned: of each action, and of each state.

    Args:
        world: the world.
        states: ``[N]`` numbers of the states.
        times: ``[N]`` number of the step in its episode at which each state is met.
        places: the places towards which actions may save steps.
        tables: cache of the policies of rules, some of which serve as features.
    """
    shape = len(states), world.process.actions
    after = world.process.transitions[states] if not world.process.chance else np.tile(states[:, None], shape[1])
    columns = [
        *np.broadcast_to(np.eye(shape[1])[:, None], (shape[1], *shape)),
        (after != states[:, None]).astype(float),
    ]
    late, keys = np.minimum(times, 20)[:, None] / 20, _keys(world, states)
    for number, place in enumerate(places):
        gain, steps, offset = _gain(world, place, states, after)
        columns += [gain, gain * (steps <= 3)]
        if number < 2:
            columns += [gain * late, gain * np.minimum(steps, 16) / 8, gain * keys[0], gain * keys[1]]
            if shape[1] == len(DELTAS):
                ahead = np.sign(offset)
                columns += [ahead[:, [axis]] * DELTAS[:, by] for axis in (0, 1) for by in (0, 1)]
                columns += [gain * (offset[:, [axis]] * sign > 0) for axis, sign in ((0, -1), (0, 1), (1, -1), (1, 1))]
    for hint in _hints():
        table = tables.of(world, hint).policies[0]
        policy = table[np.minimum(times, len(table) - 1), states]
        columns.append(np.log(0.05 * world.even[states] + 0.95 * policy + 1e-12) - np.log(0.25))
    sides = np.sign(_gain(world, places[0], states, states[:, None])[2])
    keys_by_level = [
        np.zeros((len(states), 1)),
        after != states[:, None],
        np.concatenate([after != states[:, None], sides, keys[1]], axis=1),
    ]
    return Described(
        even=world.even[states],
        actions=np.stack(columns, axis=2),
        surroundings=tuple([*map(tuple, level.astype(np.int64).tolist())] for level in keys_by_level),
    )


def _keys(world: FiniteWorld, states: Numbers) -> tuple[Array, Array]:
    """Return for N states whether a key lies in the grid and whether it is held, ``[N, 1]`` each."""
    if "grid" not in world.world.offers or world.grid.key is None:
        return np.zeros((len(states), 1)), np.zeros((len(states), 1))
    has_key = (states >= world.grid.walls.size)[:, None].astype(float)
    return 1 - has_key, has_key


def _gain(world: FiniteWorld, place: Hypothesis, states: Numbers, after: Numbers) -> tuple[Array, Array, Array]:
    """Return the steps to a place that each action saves ``[N, A]``, the steps ``[N, 1]``, the offset ``[N, 2]``."""
    nothing = np.zeros(after.shape), np.full((len(states), 1), 99.0), np.zeros((len(states), 2))
    try:
        steps = world.steps_to(world.targets(place))
    except Undefined:
        return nothing
    on_grid = place.kind == "place" and "grid" in world.world.offers
    offset = world.further(place.cell(world))[states] if on_grid else nothing[2]
    reached = steps[states] < FAR
    gain = np.where(reached[:, None] & (steps[after] < FAR), steps[states][:, None] - steps[after], 0)
    return np.clip(gain, -2, 2).astype(float), np.where(reached, steps[states], 99.0)[:, None], offset


def setting_prior() -> Array:
    """Return the prior log probability of each way in which an agent may follow a rule, ``[STAND_INS * SETTINGS]``.

    Such a way combines a stand-in (what the agent does where the rule is undefined) with a setting of its error rates.
    """
    errors = [np.log(_SLOPE_PRIOR[s] * _FIXED_PRIOR[f] / len(RANDOM)) for s, _, f in _SETTINGS]
    return np.asarray(np.tile(np.array(errors), STAND_INS) - np.log(STAND_INS))


def errors_of(setting: Numbers) -> tuple[Numbers, Array, Array, Array]:
    """Return the behaviour that each setting stands for: the error rates of an agent, and what it does if a rule is
    undefined.

    A setting is one of a fixed list of such combinations, given by its number.

    Args:
        setting: ``[C]`` numbers of settings, as in `PosteriorDraws.settings`.

    Returns:
        Four arrays ``[C]``: index of the stand-in (what the agent does where its rule is undefined); how random errors
        change with the distance from the rule's place; share of random errors; share of states in which the agent
        always errs.
    """
    stand_in, errors = np.divmod(setting, SETTINGS)
    slope, random, fixed = _SETTINGS[errors].T
    return stand_in, SLOPES[slope], RANDOM[random], FIXED[fixed]


def random_at(random: Array, slope: Array, distance: Array) -> Array:
    """Return the share of random answers at a distance from a rule's place; the arguments are broadcast.

    Args:
        random: the share at a distance of 5 steps, in (0, 1).
        slope: how its logit changes per 4 steps of distance.
        distance: the distance in steps.
    """
    logit = np.log(random / (1 - random)) + slope * (distance - 5) / 4
    return np.asarray(np.clip(1 / (1 + np.exp(-logit)), RANDOM[0], 0.98))


def log_likelihoods(policies: Array, distances: Array, even: Array, counts: Array) -> Array:
    """Return the log likelihood of one episode's answers under each rule, with each stand-in and setting of errors.

    Args:
        policies: ``[H, STAND_INS, U, A]`` policies of H rules in the U states of the episode; a stand-in is what the
            agent does where a rule is undefined.
        distances: ``[H, U]`` distances to the rules' places, in steps.
        even: ``[U, A]`` the uniform policy over the offered actions.
        counts: ``[U, A]`` number of answers with each action.

    Returns:
        ``[H, STAND_INS * SETTINGS]`` in nats.
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
    """B draws from the posterior of an agent's behaviour: how often it follows each of H rules, and with what errors.

    Attributes:
        weights: ``[B, H]`` share of the episodes in which the agent follows each rule.
        settings: ``[B, H]`` number that stands for the errors with which it does, and for what it does where the rule
            is undefined; see `errors_of`.
    """

    weights: Array
    settings: Numbers


@dataclass(frozen=True, eq=False)
class Mixture:
    """Bayesian mixture of H rules for an agent's E episodes: each episode follows one rule, with errors.

    Attributes:
        logs: ``[E, H, STAND_INS * SETTINGS]`` log likelihoods from `log_likelihoods`.
        prior: ``[H]`` prior log probabilities of the rules.
    """

    logs: Array
    prior: Array

    @cached_property
    def marginal(self) -> Array:
        """``[E, H]`` log likelihood of each episode under each rule, averaged over all kinds of errors by their
        prior.
        """
        return np.asarray(np.logaddexp.reduce(self.logs + setting_prior(), axis=2))

    def candidates(self, episodes: Numbers) -> Numbers:
        """Return the numbers of the rules among which the posterior is drawn: those with weight in a quick fit, and
        others that explain all of the given episodes.

        Args:
            episodes: numbers of the episodes.
        """
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
        """Draw from the posterior over rules and errors, given some of the episodes, by Gibbs sampling.

        Args:
            episodes: numbers of the episodes.
            chains: number B of draws, each from a chain of its own.
            sweeps: number of sweeps per chain; the first half is tempered.
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
