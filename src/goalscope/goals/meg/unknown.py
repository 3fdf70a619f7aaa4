"""MEG with an unknown utility: the supremum over a class of utilities, a concave problem with one value per state.

``sup over w of <w, occupancy of the policy> - W(w)`` has the gradient ``occupancy of the policy - occupancy of the
soft policy``. By duality the supremum is the least divergence from the uniform policy over all policies with the same
occupancy, so any such policy bounds it from above. Where a process restricts the offered actions, all policies,
including the uniform one, are over these actions. In a process with a discount, the utilities of decision t count d^t
times, and so does the occupancy.

Utilities may also be linear in features of the states, such as an agent's activations, with one vector of weights w for
all worlds. The penalised objective is concave:

    mean over worlds of (<F w, occupancy of the policy> - W(F w))  -  penalty / 2 |w|^2

with standardised features F and nats as units (rationality 1). A supremum over 64 features per world would be
meaningless, so the value is cross-fitted: the weights come from other worlds than the one they are scored in. The score
of a world, the log-probability of the agent's actions under the soft policy of F w less that under the uniform policy,
may be negative.

Source: an extension of MacDermott et al. (2024), definition 4.3, to features that several worlds share.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, freeze
from goalscope._ground.extras import lacking
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.soft import reached_process

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_LIMIT = 1e-6  # gap between both bounds, in nats, below which the limit is reported as the value
_MASKS = (1e-2, 1e-4, 1e-7)  # action probabilities below which a limit may forbid an action
_STEPS = 1000
_MEMORY = 50  # correction pairs of the quasi-Newton search
_CLOSE = 1e-7  # nats by which an optimum over fewer actions may be worse and still count as equal


Numbers = npt.NDArray[np.int64]
PENALTIES: Final = (10.0, 1.0, 1e-1, 1e-2, 1e-3)
"""Candidates, from strong to weak; the one with the greatest score in a fifth of the fitted worlds is taken."""
_INNER: Final = 5  # one in so many of the fitted worlds chooses the penalty
_MOST_STEPS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnknownMEG:
    """Maximum-entropy goal-directedness (MEG) for the best utility in a class of utilities over states.

    There are two classes: tabular, with a free value for each state, and neural, in which a network computes the
    values.

    Attributes:
        value: MEG in nats: the optimum of the tabular class, or the best local optimum of the neural one.
        upper: an upper bound of the tabular optimum, and so of every class of state utilities.
        tabular: the tabular optimum, equal to ``value`` for the tabular class.
        attained: whether a finite utility reaches ``tabular``; False if it is only a limit.
        residual: absolute difference between the expected visits to each state by the agent and by its prediction,
            summed over states; 0 at an optimum.
        utility: ``[S]`` best utility of a decision in each state, in nats (rationality 1); 0 in unreachable states. If
            the value is a limit, a utility that comes close to it.
        terminal_utility: ``[S]`` best utility of the state after the last decision; None if it was not fitted.
        bound: log A times the number of decisions that can affect the utility.
        seed_values: ``[K]`` optimum of each seed of the neural class; empty for the tabular class.
        evaluations: number of backward and forward passes.
    """

    value: float
    upper: float
    tabular: float
    attained: bool
    residual: float
    utility: Array
    terminal_utility: Array | None
    bound: float
    seed_values: Array
    evaluations: int

    @property
    def gap(self) -> float:
        """How much higher than ``value`` the true supremum could be: ``upper - value``, in nats."""
        return self.upper - self.value

    @property
    def spread(self) -> float:
        """Standard deviation of the MEG over optimisation seeds, in nats; NaN with fewer than two seeds."""
        return float(self.seed_values.std(ddof=1)) if len(self.seed_values) > 1 else math.nan


def meg_unknown(
    mdp: TabularMDP,
    policy: npt.NDArray[Any],
    *,
    utilities: Literal["tabular", "neural"] = "tabular",
    terminal: bool = False,
    seeds: Sequence[int] = (0, 1, 2),
    hidden: int = 256,
    steps: int = 500,
) -> UnknownMEG:
    """Return the MEG (maximum-entropy goal-directedness) of a policy for the utility over states that explains it best.

    The utility is searched in one of two classes. The tabular class has one free value for each state; its optimum is
    global and bounds every class of state utilities from above. The neural class (a network over a one-hot code of the
    state) is not concave: each seed climbs from its own start, and the best result counts. The utility of ``mdp`` is
    not used.

    Args:
        mdp: the world.
        policy: ``[S, A]`` or, by time, ``[n, S, A]`` action probabilities. They must be exact: occupancies of a few
            sampled episodes drive the supremum to infinity in a stochastic world.
        utilities: the class, "tabular" or "neural" (which needs the extra `lm`).
        terminal: also fit a value for the state after the last decision (tabular class only).
        seeds: seeds of the neural class.
        hidden: number of units in the hidden layer of the neural class.
        steps: maximum number of optimisation steps per seed of the neural class.

    Returns:
        The MEG in nats, the utility found, and the tabular optimum for either class.

    Raises:
        ValueError: the policy has the wrong shape, is not a distribution or takes actions that are not offered, the
            class is unknown, or there are no seeds.
        ImportError: the neural class needs PyTorch, which is not installed.

    Source: MacDermott et al. (2024), definition 4.3 and algorithm 2.
    """
    if utilities not in ("tabular", "neural"):
        raise ValueError(f"utilities must be 'tabular' or 'neural', got {utilities!r}")
    dual = OccupancyDual(mdp, policy, terminal=terminal)
    optimum = dual.solve()
    log_actions = math.log(mdp.actions)
    bound = log_actions * (mdp.horizon if terminal else mdp.horizon - 1)
    upper = max(min(optimum.upper, bound), optimum.lower)
    tabular = upper if not optimum.attained and upper - optimum.lower <= _LIMIT else optimum.lower
    value, residual, weights, seed_values = tabular, optimum.residual, optimum.weights, np.empty(0)
    if utilities == "neural":
        if terminal:
            raise ValueError("the neural class has no free terminal utility: leave terminal False")
        if not len(seeds):
            raise ValueError("the neural class needs at least one seed, got none")
        inputs = np.eye(mdp.states)[dual.reached.kept]
        climbs = [_climb(dual, inputs, int(seed), hidden, steps) for seed in seeds]
        seed_values = np.array([climbed for climbed, _, _ in climbs])
        value, weights, residual = climbs[int(seed_values.argmax())]

    def over_states(values: Array) -> Array:
        filled = np.zeros(mdp.states)
        filled[dual.reached.kept] = values
        return freeze(filled)

    count = len(dual.reached.kept)
    return UnknownMEG(
        value=value,
        upper=upper,
        tabular=tabular,
        attained=optimum.attained,
        residual=residual,
        utility=over_states(weights[:count]),
        terminal_utility=over_states(weights[count:]) if terminal else None,
        bound=bound,
        seed_values=freeze(seed_values),
        evaluations=dual.evaluations,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optimum:
    """The solution of an `OccupancyDual` (MEG of a policy with unknown utility), with bounds that certify it.

    Attributes:
        lower, upper: the greatest value found, which is a lower bound of the supremum, and an upper bound; nats.
        weights: ``[M]`` utility of each state at ``lower``, in nats.
        residual: absolute difference between the occupancies of the agent and of the prediction, summed over states, in
            decisions; 0 at an optimum.
        attained: whether finite utilities reach the supremum.
    """

    lower: float
    upper: float
    weights: Array
    residual: float
    attained: bool


class OccupancyDual:
    """The optimisation problem whose maximum is the MEG of one policy in one world, with an unknown utility; it is
    concave.

    Its M variables are the utilities of the K states that can be reached and, with ``terminal``, K further utilities of
    these states as the state after the last decision. The world's own utility is not used.

    Attributes:
        reached: the reachable part of the world.
        occupancy: ``[M]`` expected number of decisions of the policy in each state (and probability of each final
            state).
        divergence: Kullback-Leibler divergence of the policy from the uniform one over all decisions, in nats.
        evaluations: backward and forward passes so far.
    """

    def __init__(self, mdp: TabularMDP, policy: npt.NDArray[Any], *, terminal: bool) -> None:
        self.reached = reached_process(mdp)
        self.terminal = terminal
        self._policy = self.reached.policy(policy)
        offered = self.reached.offered
        # Number of offered actions in each state; one number where all actions are offered everywhere.
        self._count: Any = self.reached.actions if offered is None else offered.sum(axis=0)
        self._log_count: Any = math.log(self._count) if offered is None else np.log(self._count)
        if offered is not None and any(
            (probabilities[~offered] > 0).any() for probabilities in self._action_probabilities(self._policy)
        ):
            raise ValueError(
                "a policy must choose among the offered actions, but this one takes others: set the probabilities of "
                "actions that are not offered to 0"
            )
        self.evaluations = 0
        self.occupancy, self.divergence = self._occupancy_of(self._policy), self._policy_divergence()

    def starting(self, start: Array) -> "OccupancyDual":
        """Return the same problem with another distribution of the first state, ``[K]`` over the reachable states."""
        problem = copy(self)
        problem.reached = replace(self.reached, start=start)
        problem.occupancy, problem.divergence = problem._occupancy_of(self._policy), problem._policy_divergence()
        return problem

    def value(self, weights: Array, mask: Mask | None = None) -> tuple[float, Array]:
        """Evaluate the objective at given utilities, in nats: the policy's expected utility minus W.

        W is the log mean exponential utility of uniform actions, so the objective says how much better the soft-optimal
        policy for these utilities predicts the policy than uniform actions do.

        Args:
            weights: ``[M]`` utilities of the states.
            mask: ``[n, A, K]`` bool (decisions by actions by states), the actions that W allows; None for all offered
                ones.

        Returns:
            The value and its gradient ``[M]``.
        """
        log_normaliser, policy = self._soft(weights, mask)
        return float(weights @ self.occupancy) - log_normaliser, self.occupancy - self._occupancy_of(policy)

    def solve(self) -> Optimum:
        """Maximise `value` over the utilities of the states; the maximum is the MEG of the policy, in nats.

        The greatest value found is a lower bound of the supremum. Finite utilities need not reach the supremum: for an
        optimal policy, for example, the value keeps rising as utilities grow and make some actions ever less likely. In
        such cases these actions are excluded and the problem is solved again, which gives an upper bound: with fewer
        actions, which include the policy's own, the optimum is the divergence of a policy with the same occupancy.

        Returns:
            The utilities, both bounds, and whether finite utilities reach the supremum.
        """
        weights, lower, gradient = self._climb(None)
        _, policy = self._soft(weights, None)
        flows = np.stack(self._action_probabilities(policy))
        policy_actions = np.broadcast_to(self._policy, policy.shape) > 0
        upper, attained = lower + _possible_rise(gradient, weights), True
        upper = min(upper, self.divergence)
        for threshold in _MASKS:
            mask = (policy > threshold) | policy_actions
            if not (flows[~mask] > 0).any():
                continue
            masked_weights, value, masked_gradient = self._climb(mask)
            bound = value + _possible_rise(masked_gradient, masked_weights)
            if bound <= upper + _CLOSE:  # equally good with fewer actions: the supremum is a limit
                upper, attained = min(upper, bound), False
        return Optimum(
            lower=max(0.0, lower),
            upper=max(upper, lower, 0.0),
            weights=weights,
            residual=float(np.abs(gradient).sum()),
            attained=attained,
        )

    def _climb(self, mask: Mask | None) -> tuple[Array, float, Array]:
        # The curvature along a rarely occupied state is small: steps along it must be longer.
        scale = 1 / np.sqrt(np.clip(self.occupancy, 1e-3, 1.0))

        def objective(scaled: Array) -> tuple[float, Array]:
            value, gradient = self.value(scaled * scale, mask)
            return value, gradient * scale

        options: Any = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "maxcor": _MEMORY, "ftol": 1e-15, "gtol": 1e-12}
        point, value, gradient = maximise(objective, np.zeros_like(scale), **options)
        return point * scale, value, gradient / scale

    def _soft(self, weights: Array, mask: Mask | None) -> tuple[float, Array]:
        """Return the log normaliser W, and the soft policy at n decisions over A actions in K states, ``[n, A, K]``."""
        self.evaluations += 1
        process, count = self.reached, len(self.reached.kept)
        offered, utility, discounts = process.offered, weights[:count], process.weights
        values = discounts[-1] * weights[count:] if self.terminal else np.zeros(count)
        policy = np.empty((process.horizon, process.actions, count))
        for t in reversed(range(process.horizon)):
            q = process.expect(values[None])[0]
            if mask is not None:
                q = np.where(mask[t], q, -np.inf)
            elif offered is not None:  # a mask only holds offered actions
                q = np.where(offered, q, -np.inf)
            peak = q.max(axis=0)
            np.exp(q - peak, out=policy[t])
            total = policy[t].sum(axis=0)
            policy[t] /= total
            values = discounts[t] * utility + peak + np.log(total / self._count)
        return float(values @ process.start), policy

    def _forward(self, policy: Array) -> Iterator[tuple[Array, Array]]:
        """Yield probabilities of states ``[K]`` and state-action pairs ``[A, K]`` by time, from ``[n or 1, A, K]``.

        The last item holds the final states and no actions.
        """
        state = self.reached.start
        for t in range(self.reached.horizon):
            joint = policy[t if len(policy) > 1 else 0] * state
            yield state, joint
            state = self.reached.flow(joint)
        yield state, np.zeros((0, len(state)))

    def _action_probabilities(self, policy: Array) -> list[Array]:
        """Return the probability of A actions in K states ``[A, K]`` at each decision of a policy."""
        return [joint for _, joint in self._forward(policy)][:-1]

    def _occupancy_of(self, policy: Array) -> Array:
        """Return the occupancy ``[M]`` of a policy, summed over its n decisions.

        The state after the last decision is counted only if it has a utility of its own.
        """
        discounted = zip(self._forward(policy), self.reached.weights, strict=True)
        *decided, final = (weight * state for (state, _), weight in discounted)
        total = np.zeros(len(self.reached.kept))
        for state in decided:
            total += state
        return np.concatenate([total, final]) if self.terminal else total

    def _policy_divergence(self) -> float:
        logs = np.log(np.where(self._policy > 0, self._policy, 1.0))
        by_state = (self._policy * logs).sum(axis=1) + self._log_count
        *decided, _ = (state for state, _ in self._forward(self._policy))
        divergence = 0.0
        for t, state in enumerate(decided):
            divergence += float(by_state[t if len(by_state) > 1 else 0] @ state)
        return max(0.0, divergence)


def maximise(
    objective: Callable[[Array], tuple[float, Array]], begin: Array, **options: Any
) -> tuple[Array, float, Array]:
    """Maximise a concave function by L-BFGS; return the point reached, and the value and the gradient there.

    Args:
        objective: returns the value and the gradient at a point.
        begin: the first point.
        options: options of the method "L-BFGS-B" of `scipy.optimize.minimize`.
    """
    from scipy.optimize import minimize

    def negative(point: Array) -> tuple[float, Array]:
        value, gradient = objective(point)
        return -value, -gradient

    settings: Any = options
    solution = minimize(negative, begin, jac=True, method="L-BFGS-B", options=settings)
    return np.asarray(solution.x), -float(solution.fun), -np.asarray(solution.jac)


def _climb(dual: OccupancyDual, features: Array, seed: int, hidden: int, steps: int) -> tuple[float, Array, float]:
    """Return the local optimum of a network over ``[M, F]`` features: value, utilities ``[M]`` and residual.

    The gradient of the utilities is exact (the occupancy of the agent minus that of the soft policy). PyTorch
    propagates it to the parameters of a quasi-Newton search. The last layer includes the rationality.
    """
    try:
        import torch
    except ImportError as error:
        raise lacking("the neural class of utilities needs torch", "lm", error) from error
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(np.ascontiguousarray(features))
    width = inputs.shape[1]
    shapes = [(width, hidden), (hidden,), (hidden,)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    limits = [width**-0.5, width**-0.5, hidden**-0.5]
    drawn = [2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1 for size in sizes]
    start = np.concatenate([(part * limit).numpy() for part, limit in zip(drawn, limits, strict=True)])

    def utility(flat: torch.Tensor) -> torch.Tensor:
        first, bias, second = (part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True))
        output: torch.Tensor = torch.relu(inputs @ first + bias) @ second
        return output  # an output bias shifts all utilities: it changes nothing

    def objective(flat: Array) -> tuple[float, Array]:
        parameters = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        weights = utility(parameters)
        value, gradient = dual.value(weights.detach().numpy())
        weights.backward(torch.from_numpy(gradient))  # type: ignore[no-untyped-call]
        assert parameters.grad is not None
        return value, parameters.grad.numpy()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a small network: a second thread does not pay
    try:
        point, *_ = maximise(objective, start, maxiter=steps, maxfun=2 * steps)
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        weights = np.asarray(utility(torch.from_numpy(point)).numpy())
    value, gradient = dual.value(weights)
    return max(0.0, value), weights, float(np.abs(gradient).sum())


def _possible_rise(gradient: Array, weights: Array) -> float:
    """Return an upper bound of a concave objective's rise from a point, within twice the range of its weights."""
    return float(np.abs(gradient).sum()) * max(1.0, float(np.ptp(weights))) + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureMEG:
    """MEG for the best utility that is linear in features of the states, fitted in some worlds and scored in others.

    Attributes:
        value: mean over worlds of the scores in ``terms``, in nats.
        terms: ``[G]`` score of each world: log probability of the agent's actions minus that of uniform actions, in
            nats; NaN for worlds that were used only to fit the utility.
        utility: ``[S]`` utility of each state in nats, fitted to other worlds; NaN in worlds without a score.
    """

    value: float
    terms: Array
    utility: Array


def join_worlds(worlds: Sequence[TabularMDP]) -> tuple[TabularMDP, Numbers]:
    """Join deterministic worlds into one process that starts in each of them with equal probability.

    `meg_features` needs this to fit one utility to several worlds.

    Returns:
        The process, without utility; and ``[S]`` for each of its states the number of the world that it came from.

    Raises:
        ValueError: there is no world, or one is stochastic, restricts its actions or has another horizon.
    """
    horizons = {world.horizon for world in worlds}
    plain = all(isinstance(world.transitions, np.ndarray) for world in worlds)
    if len(horizons) != 1 or not plain or any(world.offered is not None for world in worlds):
        raise ValueError(
            "worlds can be joined if they are deterministic, offer all actions and have one horizon, got "
            f"{len(worlds)} worlds with the horizons {sorted(horizons)}: give each the same number of decisions"
        )
    sizes = [world.states for world in worlds]
    begins = np.cumsum([0, *sizes[:-1]])
    mdp = TabularMDP(
        transitions=np.concatenate([world.transitions + begin for world, begin in zip(worlds, begins, strict=True)]),
        utility=np.zeros(sum(sizes)),
        horizon=horizons.pop(),
        start=np.concatenate([world.start for world in worlds]) / len(worlds),
        terminal_utility=None,
    )
    return mdp, np.repeat(np.arange(len(worlds)), sizes)


def meg_features(
    mdp: TabularMDP,
    policy: Array,
    features: Array,
    worlds: Numbers,
    *,
    folds: int = 5,
    fitted: Mask | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> FeatureMEG:
    """Return the MEG of a policy for the best utility that is linear in features, scored in worlds that did not fit it.

    Args:
        mdp: G worlds in one process, see `join_worlds`.
        policy: ``[S, A]`` action probabilities.
        features: ``[S, F]`` features of each state, also of states that end the episode.
        worlds: ``[S]`` number of each state's world, 0 to G - 1.
        folds: number of parts of the worlds; each is scored with weights from the others.
        fitted: ``[G]`` bool, the worlds to which the weights are fitted; the others are scored. None to split into
            folds, so that every world is scored.
        penalties: candidates for the penalty on the squared weights; some of the fitted worlds choose among them.

    Returns:
        The mean score in nats, the score of each world, and the utility of each state.

    Raises:
        ValueError: shapes disagree, features are not finite, or there are no worlds to fit or to score.
    """
    features = np.asarray(features, dtype=np.float64)
    check_shape("features", features, "S F", {"S": mdp.states})
    check_finite("features", features)
    check_shape("worlds", worlds, "S", {"S": mdp.states})
    count = int(worlds.max()) + 1
    if fitted is None:
        parts = [np.arange(count) % folds != fold for fold in range(min(folds, count))]
    else:
        check_shape("fitted", fitted, "G", {"G": count})
        parts = [np.asarray(fitted, dtype=bool)]
    if any(part.all() or not part.any() for part in parts):
        raise ValueError(f"some worlds must fit the utility and others be scored, got {count} worlds in {folds} folds")
    dual = OccupancyDual(mdp, policy, terminal=False)
    reached = dual.reached.kept
    singles = [dual.starting(_start(dual, worlds[reached] == world)) for world in range(count)]
    terms, utility = np.full(count, np.nan), np.full(mdp.states, np.nan)
    for part in parts:
        in_part = part[worlds[reached]]
        scale = features[reached][in_part].std(axis=0)
        standard = (features - features[reached][in_part].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        weights = _fit(dual, standard[reached], worlds[reached], part, penalties)
        scored = ~part[worlds]
        utility[scored] = standard[scored] @ weights
        for world in np.flatnonzero(~part):
            terms[world] = singles[world].value(standard[reached] @ weights)[0]
    return FeatureMEG(value=float(np.nanmean(terms)), terms=terms, utility=utility)


def _start(dual: OccupancyDual, chosen: Mask) -> Array:
    start = np.where(chosen, dual.reached.start, 0.0)
    return np.asarray(start / start.sum())


def _fit(dual: OccupancyDual, features: Array, worlds: Numbers, part: Mask, penalties: Sequence[float]) -> Array:
    """Return the weights ``[F]`` fitted in the worlds of a part, with the penalty that scores best in some of them."""
    members = np.flatnonzero(part)
    choosing = members[:: min(_INNER, len(members))] if len(penalties) > 1 and len(members) > 1 else members[:0]
    penalty = penalties[0]
    if len(choosing):
        inner = dual.starting(_start(dual, np.isin(worlds, np.setdiff1d(members, choosing))))
        judge = dual.starting(_start(dual, np.isin(worlds, choosing)))
        weights, scores = np.zeros(features.shape[1]), []
        for candidate in penalties:
            weights = climb(inner, features, candidate, weights)
            scores.append(judge.value(features @ weights)[0])
        penalty = penalties[int(np.argmax(scores))]
    outer = dual.starting(_start(dual, np.isin(worlds, members)))
    return climb(outer, features, penalty, np.zeros(features.shape[1]))


def climb(dual: OccupancyDual, features: Array, penalty: float, begin: Array) -> Array:
    """Find the utility linear in features that explains a policy best, with a penalty on its weights; return ``[F]``
    weights.

    Args:
        dual: the policy in its world, whose objective is maximised.
        features: ``[K, F]`` features of the K reachable states.
        penalty: factor of half the sum of squared weights, which is subtracted from the objective.
        begin: ``[F]`` weights at which the search begins.
    """

    def objective(weights: Array) -> tuple[float, Array]:
        value, gradient = dual.value(features @ weights)
        return value - penalty / 2 * float(weights @ weights), features.T @ gradient - penalty * weights

    return maximise(objective, begin, maxiter=_MOST_STEPS)[0]
