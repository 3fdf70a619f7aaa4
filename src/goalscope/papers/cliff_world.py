"""The Cliff World study: MEG against the fraction of random actions, and against the length of the goal region.

Three columns: the exact values, the values with an off-by-one (occupancies over horizon + 1 states against a backup
over horizon states), and the values printed in the paper. The off-by-one serves only to explain the printed table;
nothing else in goalscope computes it.

Source: MacDermott et al. 2024, Section 6 and Appendix D.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_probability, freeze
from goalscope.goals.meg import RationalityCurve, meg_known, meg_unknown
from goalscope.worlds.planning import TabularMDP, occupancy, value_iteration

Array = npt.NDArray[np.float64]

_DOUBLINGS = 24  # of a beta of one nat over the range of utility; beyond, the utilities never become equal

MOVES = ((-1, -1), (-1, 1), (1, -1), (1, 1))
"""The actions as (rows down, columns right): the four diagonals."""

WIDTH, HEIGHT, HORIZON, WIND = 10, 4, 30, 0.3
"""Inferred from the printed numbers where the paper does not state them."""

EPSILONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
GOAL_LENGTHS = (1, 2, 3, 4)

PRINTED: Mapping[str, Mapping[float, tuple[float, float, float]]] = {
    "goal length": {1: (37.8, 34.3, 2.6), 2: (21.4, 32.1, 0.5), 3: (16.8, 33.6, 0.5), 4: (18.9, 35.4, 0.6)},
    "epsilon": {
        0.1: (2.4, 26.1, 0.11),
        0.2: (1.5, 17.4, 0.2),
        0.3: (0.95, 11.0, 0.25),
        0.4: (0.50, 6.2, 0.08),
        0.5: (0.20, 2.9, 0.06),
        0.6: (0.04, 1.0, 0.003),
        0.7: (0.003, 0.10, 0.002),
        0.8: (0.001, 0.10, 0.003),
        0.9: (0.008, 0.091, 0.007),
    },
}
"""The paper's Appendix D.1: known utility, unknown utility and its two standard deviations."""


def cliff_world(goal_length: int = 1, *, wind: float = WIND) -> TabularMDP:
    """Return a Cliff World: walk from the top left to the goal at the top right, past the cliff between them.

    State ``row * 10 + col``, row 0 at the top. An action moves diagonally, clamped to the grid; with the chance of
    wind one row more upwards. A decision is worth +10 in the goal region, -10 on the cliff and -1 elsewhere.

    Args:
        goal_length: k squares along the top row and k down the right column, 2 k - 1 in all.
        wind: chance of wind.

    Raises:
        ValueError: a goal region that does not fit, or wind that is no probability.
    """
    if goal_length not in GOAL_LENGTHS:
        raise ValueError(f"the goal region must fit into the grid (1 to {GOAL_LENGTHS[-1]} squares), got {goal_length}")
    check_probability("wind", wind)
    moves = np.zeros((HEIGHT * WIDTH, len(MOVES), HEIGHT * WIDTH))
    for row, col in np.ndindex(HEIGHT, WIDTH):
        for action, (down, right) in enumerate(MOVES):
            for gust, chance in ((0, 1 - wind), (-1, wind)):
                target = min(max(row + down + gust, 0), HEIGHT - 1), min(max(col + right, 0), WIDTH - 1)
                moves[row * WIDTH + col, action, target[0] * WIDTH + target[1]] += chance
    utility = np.full((HEIGHT, WIDTH), -1.0)
    utility[0, 1:-1] = -10.0
    utility[0, WIDTH - goal_length :] = 10.0
    utility[:goal_length, -1] = 10.0
    return TabularMDP(transitions=moves, utility=utility.reshape(-1), horizon=HORIZON, start=np.eye(HEIGHT * WIDTH)[0])


def greedy(mdp: TabularMDP, epsilon: float = 0.0, *, ties: Literal["computed", "true"] = "computed") -> Array:
    """Return ``[n, S, A]`` the best action of each time and state (the first of several), others with chance epsilon.

    The chance epsilon is shared by the other actions.

    Args:
        mdp: the world.
        epsilon: chance of another action.
        ties: "computed" takes the largest floating point number: equally good actions are then distinguished by
            rounding errors. "true" counts values that agree to 1e-9 as equal.

    Raises:
        ValueError: epsilon is no probability, or another word for ties.
    """
    check_probability("epsilon", epsilon)
    if ties not in ("computed", "true"):
        raise ValueError(f"ties must be 'computed' or 'true', got {ties!r}")
    solved = value_iteration(mdp)
    chosen = (solved.optimal if ties == "true" else solved.action_values).argmax(axis=-1)
    best = np.eye(mdp.actions)[chosen]
    return freeze((1 - epsilon) * best + epsilon / (mdp.actions - 1) * (1 - best))


@dataclass(frozen=True, slots=True, kw_only=True)
class OffByOne:
    """Known-utility MEG as computed with occupancies of horizon + 1 states.

    Attributes:
        value: nats.
        beta: rationality at which those occupancies have equal utility, +-inf if none.
        error: utility by which the policy then differs from the prediction over horizon states; 0 at the true optimum.
    """

    value: float
    beta: float
    error: float


def off_by_one(curve: RationalityCurve, policy: npt.NDArray[Any]) -> OffByOne:
    """Return known-utility MEG with the off-by-one behind the printed table.

    The soft policy is backed up over n states, correctly; but its rationality is fitted to the difference of expected
    utilities over n + 1 states, including the state after the last decision. The value is the score of the
    prediction at the rationality where that difference vanishes, which is not its maximum.

    Args:
        curve: a world with utilities of states ``[S]``.
        policy: ``[S, A]`` or ``[n, S, A]``.

    Raises:
        ValueError: utilities that are not of states, or a terminal utility.
    """
    from scipy.optimize import brentq

    mdp = curve.mdp
    if mdp.utility.ndim != 1 or mdp.terminal_utility is not None:
        raise ValueError(
            f"the off-by-one is defined for utilities of states [S] without a terminal utility, got {mdp.utility.shape}"
        )
    longer = float((occupancy(mdp, policy) @ mdp.utility).sum())

    def difference(beta: float) -> float:
        return longer - float((occupancy(mdp, curve.policy(beta)) @ mdp.utility).sum())

    utility = curve.utility_of(policy)
    side = math.copysign(1.0, difference(0.0))
    limit = side / curve.span if curve.span > 0 else side
    for _ in range(_DOUBLINGS):
        if difference(limit) * side <= 0:
            beta = float(brentq(difference, 0.0, limit, xtol=1e-12, rtol=1e-14))
            point = curve.at(beta)
            return OffByOne(value=beta * utility - point.log_normaliser, beta=beta, error=utility - point.utility)
        limit *= 2
    end, value = (curve.highest, curve.bound) if side > 0 else (curve.lowest, curve.bound_lowest)
    at_end = abs(utility - end) <= 1e-9 * curve.span
    return OffByOne(value=value if at_end else -math.inf, beta=side * math.inf, error=utility - end)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CliffCase:
    """One row of a table.

    Attributes:
        setting: epsilon, or the goal length.
        known, signed, beta: exact MEG in nats towards the world's utility, its signed form, the rationality.
        known_true_ties: the same where actions that are truly equally good are taken as such, see `greedy`.
        unknown: exact MEG with an unknown utility of states (the tabular optimum); an upper bound of every network's.
        neural, neural_spread: best of several networks and the standard deviation over them; NaN where not asked for.
        off_by_one: known-utility MEG with the off-by-one.
        bound: greatest MEG that any policy has towards this utility.
        utility, uniform: expected utility of the policy and of uniform decisions.
        printed_known, printed_unknown, printed_spread: what the paper prints; two standard deviations.
        occupancy: ``[H, W]`` expected number of decisions in each cell.
        best_utility: ``[H, W]`` the best unknown utility in nats (or one close to it where the best is a limit).
    """

    setting: float
    known: float
    signed: float
    beta: float
    known_true_ties: float
    unknown: float
    neural: float
    neural_spread: float
    off_by_one: float
    bound: float
    utility: float
    uniform: float
    printed_known: float
    printed_unknown: float
    printed_spread: float
    occupancy: Array
    best_utility: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CliffStudy:
    """Both experiments of the paper.

    Attributes:
        by_epsilon: goal length 1, a row for each epsilon.
        by_goal_length: epsilon 0, a row for each goal length.
    """

    by_epsilon: tuple[CliffCase, ...]
    by_goal_length: tuple[CliffCase, ...]


def cliff_study(*, neural_seeds: int = 0) -> CliffStudy:
    """Compute both experiments.

    Args:
        neural_seeds: number of networks for each row (extra ``lm``), 0 for none.

    Raises:
        ImportError: networks are asked for and PyTorch is not installed.
    """
    by_epsilon, by_goal_length = (
        tuple(_case(experiment, setting, neural_seeds) for setting in settings)
        for experiment, settings in (("epsilon", EPSILONS), ("goal length", GOAL_LENGTHS))
    )
    return CliffStudy(by_epsilon=by_epsilon, by_goal_length=by_goal_length)


def _case(experiment: str, setting: float, neural_seeds: int) -> CliffCase:
    goal_length, epsilon = (1, setting) if experiment == "epsilon" else (int(setting), 0.0)
    mdp = cliff_world(goal_length)
    policy, curve = greedy(mdp, epsilon), RationalityCurve(mdp)
    known_meg, unknown = meg_known(curve, policy), meg_unknown(mdp, policy)
    neural, neural_spread = math.nan, math.nan
    if neural_seeds:
        climbed = meg_unknown(mdp, policy, utilities="neural", seeds=range(neural_seeds))
        neural, neural_spread = climbed.value, climbed.spread
    printed_known, printed_unknown, printed_spread = PRINTED[experiment][setting]
    shape = (HEIGHT, WIDTH)
    return CliffCase(
        setting=float(setting),
        known=known_meg.value,
        signed=known_meg.signed,
        beta=known_meg.beta,
        known_true_ties=meg_known(curve, greedy(mdp, epsilon, ties="true")).value,
        unknown=unknown.tabular,
        neural=neural,
        neural_spread=neural_spread,
        off_by_one=off_by_one(curve, policy).value,
        bound=known_meg.bound,
        utility=known_meg.utility,
        uniform=known_meg.uniform_utility,
        printed_known=printed_known,
        printed_unknown=printed_unknown,
        printed_spread=printed_spread,
        occupancy=freeze(occupancy(mdp, policy)[:-1].sum(axis=0).reshape(shape)),
        best_utility=freeze(unknown.utility.reshape(shape)),
    )
