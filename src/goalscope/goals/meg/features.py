"""MEG with utilities that are linear in features of the states, such as an agent's activations.

One vector of weights w serves all worlds. The penalised objective is concave:

    mean over worlds of (<F w, occupancy of the policy> - W(F w))  -  penalty / 2 |w|^2

with standardised features F and nats as units (rationality 1). A supremum over 64 features per world would be
meaningless, so the value is cross-fitted: the weights come from other worlds than the one they are scored in. The score
of a world, the log-probability of the agent's actions under the soft policy of F w less that under the uniform policy,
may be negative.

Source: an extension of MacDermott et al. (2024), definition 4.3, to features that several worlds share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape
from goalscope.goals.meg.unknown import Array, Mask, OccupancyDual
from goalscope.worlds.planning import TabularMDP

Numbers = npt.NDArray[np.int64]

PENALTIES: Final = (10.0, 1.0, 1e-1, 1e-2, 1e-3)
"""Candidates, from strong to weak; the one with the greatest score in a fifth of the fitted worlds is taken."""
_INNER: Final = 5  # one in so many of the fitted worlds chooses the penalty
_STEPS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureMEG:
    """MEG with a utility over features, fitted in some worlds and scored in others.

    Attributes:
        value: mean of the terms, in nats.
        terms: ``[G]`` score of each world, in nats; NaN where a world served to fit alone.
        utility: ``[S]`` utility of each state in nats, fitted without its world; NaN as in ``terms``.
    """

    value: float
    terms: Array
    utility: Array


def join_worlds(worlds: Sequence[TabularMDP]) -> tuple[TabularMDP, Numbers]:
    """Join deterministic worlds into one process that starts in each with equal probability.

    Returns:
        The process, without utility, and the number of each state's world, ``[S]``.

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
    """Return the cross-fitted MEG of a policy with respect to a utility that is linear in features.

    Args:
        mdp: G worlds in one process, see `join_worlds`.
        policy: ``[S, A]`` action probabilities.
        features: ``[S, F]`` features of each state, also of states that end the episode.
        worlds: ``[S]`` number of each state's world, 0 to G - 1.
        folds: number of parts of the worlds; each is scored with weights from the others.
        fitted: ``[G]`` whether the weights are fitted to a world; the others are scored. None: cross-fit in folds.
        penalties: candidates for the penalty.

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
    """Return the weights ``[F]`` that maximise the penalised objective, from features of the kept states ``[K, F]``."""
    from scipy.optimize import minimize

    def negative(weights: Array) -> tuple[float, Array]:
        value, gradient = dual.value(features @ weights)
        return penalty / 2 * float(weights @ weights) - value, penalty * weights - features.T @ gradient

    return np.asarray(minimize(negative, begin, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}).x)
