"""MEG with an unknown utility: the best over all utilities of a class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape, freeze
from goalscope.meg.dual import OccupancyDual
from goalscope.planning import TabularMDP

Array = npt.NDArray[np.float64]

_LIMIT = 1e-6  # nats between both bounds below which the limit is reported as the value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnknownMEG:
    """Maximum-entropy goal-directedness with respect to a class of utilities over states.

    Attributes:
        value: MEG in nats: the optimum of the tabular class, or the best that was found of the neural one.
        upper: an upper bound of the tabular optimum, and so of every class of state utilities.
        tabular: the tabular optimum, equal to ``value`` for the tabular class.
        attained: whether a finite utility reaches ``tabular``; False where it is a limit.
        residual: difference of the occupancies of the agent and of the prediction at ``utility``, summed over states,
            in decisions; 0 at an optimum.
        utility: ``[S]`` the best utility of a decision in each state, in nats (its rationality is 1); 0 in states
            that nothing reaches. Where the value is a limit, a utility that comes close to it.
        terminal_utility: ``[S]`` the same for the state after the last decision, None where it is not free.
        bound: log A times the number of decisions that can change anything.
        seed_values: ``[K]`` the optimum of each seed of the neural class; empty for the tabular one.
        evaluations: backward and forward passes that it took.
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
        """``upper - value`` in nats: how much could be missing."""
        return self.upper - self.value

    @property
    def spread(self) -> float:
        """Standard deviation over seeds in nats, NaN with fewer than two."""
        return float(self.seed_values.std(ddof=1)) if len(self.seed_values) > 1 else math.nan


def meg_unknown(
    mdp: TabularMDP,
    policy: npt.NDArray[Any],
    *,
    utilities: Literal["tabular", "neural"] = "tabular",
    terminal: bool = False,
    seeds: Sequence[int] = (0, 1, 2),
    features: npt.NDArray[Any] | None = None,
    hidden: int = 256,
    steps: int = 500,
) -> UnknownMEG:
    """Return the MEG of a policy with respect to an unknown utility over states.

    The tabular class has one free value for each state; its optimum is global and bounds every class of state
    utilities from above. The neural class (a network over features of the state) is not concave: each seed climbs from
    its own start, the best one counts, and the tabular optimum stands beside it. The utility of ``mdp`` does not enter.

    Args:
        mdp: the world.
        policy: ``[S, A]`` or, by time, ``[n, S, A]`` action probabilities. Exact ones: occupancies of few sampled
            episodes drive the supremum to infinity in a world with chance.
        utilities: the class, "tabular" or "neural" (needs the extra `lm`).
        terminal: also a free value of the state after the last decision (tabular class only).
        seeds: of the neural class.
        features: ``[S, F]`` input of the network, None for one unit a state.
        hidden: units of its one hidden layer.
        steps: most steps of each climb of the network.

    Raises:
        ValueError: the policy has another shape or is no distribution; an unknown class; no seeds; features that do
            not fit.
        ImportError: the neural class without PyTorch.

    Source: MacDermott et al. (2024), definition 4.3 and algorithm 2.
    """
    if utilities not in ("tabular", "neural"):
        raise ValueError(f"utilities must be 'tabular' or 'neural', got {utilities!r}")
    dual = OccupancyDual(mdp, policy, terminal=terminal)
    found = dual.solve()
    log_actions = math.log(mdp.actions)
    bound = log_actions * (mdp.horizon if terminal else mdp.horizon - 1)
    upper = max(min(found.upper, bound), found.lower)
    tabular = upper if not found.attained and upper - found.lower <= _LIMIT else found.lower
    value, residual, weights, seed_values = tabular, found.residual, found.weights, np.empty(0)
    if utilities == "neural":
        if terminal:
            raise ValueError("the neural class has no free terminal utility: leave terminal False")
        from goalscope.meg.neural import climb

        inputs = _features(mdp, features)[dual.reached.kept]
        climbs = [climb(dual, inputs, seed=seed, hidden=hidden, steps=steps) for seed in _seeds(seeds)]
        seed_values = np.array([each.value for each in climbs])
        best = climbs[int(seed_values.argmax())]
        value, residual, weights = best.value, best.residual, best.weights
    kept, count = dual.reached.kept, len(dual.reached.kept)
    return UnknownMEG(
        value=value,
        upper=upper,
        tabular=tabular,
        attained=found.attained,
        residual=residual,
        utility=_spread_out(weights[:count], kept, mdp.states),
        terminal_utility=_spread_out(weights[count:], kept, mdp.states) if terminal else None,
        bound=bound,
        seed_values=freeze(seed_values),
        evaluations=dual.evaluations,
    )


def _spread_out(weights: Array, kept: npt.NDArray[np.int64], states: int) -> Array:
    whole = np.zeros(states)
    whole[kept] = weights
    return freeze(whole)


def _seeds(seeds: Sequence[int]) -> list[int]:
    if not len(seeds):
        raise ValueError("the neural class needs at least one seed, got none")
    return [int(seed) for seed in seeds]


def _features(mdp: TabularMDP, features: npt.NDArray[Any] | None) -> Array:
    if features is None:
        return np.eye(mdp.states)
    given = np.asarray(features, dtype=np.float64)
    check_shape("features", given, "S F", {"S": mdp.states})
    check_finite("features", given)
    return given
