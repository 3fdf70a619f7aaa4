"""MEG with a known utility: of a policy, of an expected utility, or from sampled returns."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape
from goalscope._ground.distributions import to_array
from goalscope.goals.meg.curve import Directedness, RationalityCurve
from goalscope.stats.intervals import agreement_bounds, check_confidence
from goalscope.worlds.planning import TabularMDP

Array = npt.NDArray[np.float64]

_FAR = 8.0  # standard errors beyond the attainable range that count as a wrong unit, not as luck


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownMEG:
    """Maximum-entropy goal-directedness of one agent in one world, utility known.

    Attributes:
        value: MEG in nats, >= 0; unsigned, so an agent that avoids the utility scores as high as one that seeks it.
        signed: MEG with the sign of ``utility`` minus ``uniform_utility``.
        beta: best rationality in nats per unit of utility; negative for agents that avoid it, infinite at both ends.
        utility: expected utility of the policy, or the mean return (moved to the attainable range, see ``note``).
        uniform_utility, lowest_utility, highest_utility: expected utility of the uniform policy and of the ends.
        bound: W*(highest_utility) in nats, the tight bound of this world for agents that seek the utility.
        bound_lowest: W*(lowest_utility), the tight bound for agents that avoid it.
        reachable_bound: log A times the number of decisions that can affect the utility.
        naive_bound: n log A.
        n: number of sampled returns, 0 if the utility is exact.
        low, high: interval of ``value``, NaN if there is none.
        signed_low, signed_high: interval of ``signed``.
        confidence: nominal coverage.
        method: how the interval was found.
        bias: approximate upward bias of ``value`` in nats, because a supremum is fitted to the mean of n returns. NaN
            without returns or if beta is infinite.
        note: a warning to print beside the value, "" for none.
        curve: the world's rationality curve.
    """

    value: float
    signed: float
    beta: float
    utility: float
    uniform_utility: float
    lowest_utility: float
    highest_utility: float
    bound: float
    bound_lowest: float
    reachable_bound: float
    naive_bound: float
    n: int = 0
    low: float = math.nan
    high: float = math.nan
    signed_low: float = math.nan
    signed_high: float = math.nan
    confidence: float = 0.95
    method: str = "exact"
    bias: float = math.nan
    note: str = ""
    curve: RationalityCurve = field(repr=False)

    @property
    def share(self) -> float:
        """``value`` as a fraction of the tight bound on its side; 0 in a world whose bound is 0."""
        bound = self.bound if self.beta >= 0 else self.bound_lowest
        return self.value / bound if bound > 0 else 0.0

    @property
    def plug_in(self) -> float:
        """The naive alternative: the score of the prediction with rationality 1 minus that of uniform actions.

        Nats. It depends on the scale of the utility, may be below 0 and is never above ``value``.

        Source: MacDermott et al. (2024), section 3, comparison to MCE IRL.
        """
        log_normaliser, _, _ = self.curve.soft.backup([self.curve.span])
        return self.utility - self.uniform_utility - float(log_normaliser[0])

    def policy(self) -> Array:
        """Return the soft-optimal policy that predicts the agent best, ``[n, S, A]``."""
        return self.curve.policy(self.beta)


def chance_note(low: float, high: float) -> str:
    """Return why share and rationality of a sampled MEG are not reported, or "" if they are.

    If an agent cannot be distinguished from uniformly random actions, sign, share and rationality depend only on the
    sample, and the latter two can reach -1 and minus infinity.

    Args:
        low, high: interval of the signed MEG in nats.
    """
    if low > 0 or high < 0:
        return ""
    reason = "there is no interval" if math.isnan(low) or math.isnan(high) else "the interval holds 0"
    return f"cannot be told from chance, {reason}: no share and no beta"


def meg_known(
    mdp: TabularMDP | RationalityCurve,
    policy: npt.NDArray[Any] | None = None,
    returns: npt.ArrayLike | None = None,
    *,
    mean_return: float | None = None,
    confidence: float = 0.95,
) -> KnownMEG:
    """Return the MEG of an agent with respect to the utility of a world.

    MEG depends on a policy only through its expected utility. A policy, its expected utility, or a sample of returns
    therefore suffices, even for an agent with memory.

    Args:
        mdp: the world, or its `RationalityCurve` where several policies are measured in it.
        policy: ``[S, A]`` or, by time, ``[n, S, A]`` action probabilities.
        returns: ``[N]`` utilities of whole sampled episodes (all n decisions, terminal utility included).
        mean_return: an exact expected utility.
        confidence: nominal coverage of the interval, for ``returns``.

    Raises:
        ValueError: not exactly one of policy, returns and mean_return is given, the policy is not a distribution, or no
            policy attains the utility.

    Source: MacDermott et al. (2024), definition 3.2, theorem 5.1 and algorithm 1.
    """
    curve = mdp if isinstance(mdp, RationalityCurve) else RationalityCurve(mdp)
    descriptions = {"policy": policy, "returns": returns, "mean_return": mean_return}
    names = [name for name, value in descriptions.items() if value is not None]
    if len(names) != 1:
        raise ValueError(f"meg_known needs exactly one of {', '.join(descriptions)}, got {', '.join(names) or 'none'}")
    check_confidence(confidence)
    if policy is not None:
        return _record(curve, curve.meg_of(policy), confidence=confidence)
    if mean_return is not None:
        return _record(curve, curve.meg(float(mean_return)), confidence=confidence)
    return _from_returns(curve, returns, confidence)


def _record(curve: RationalityCurve, directedness: Directedness, **fields: Any) -> KnownMEG:
    return KnownMEG(
        **asdict(directedness),
        uniform_utility=curve.uniform,
        lowest_utility=curve.lowest,
        highest_utility=curve.highest,
        bound=curve.bound,
        bound_lowest=curve.bound_lowest,
        reachable_bound=curve.reachable_bound,
        naive_bound=curve.naive_bound,
        curve=curve,
        **fields,
    )


def _from_returns(curve: RationalityCurve, returns: npt.ArrayLike | None, confidence: float) -> KnownMEG:
    sample = to_array("returns", returns).astype(np.float64)
    count = check_shape("returns", sample, "N")["N"]
    check_finite("returns", sample)
    if count == 0:
        raise ValueError("returns must hold at least one episode, got none")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(sample.mean()), float(sample.std(ddof=1)) if count > 1 else math.nan
    if not math.isfinite(mean):
        raise ValueError("returns must have a finite mean, got an overflow: divide utilities and returns by a constant")
    beyond = max(mean - curve.highest, curve.lowest - mean)
    agree = count > 1 and std <= 1e-12 * max(abs(mean), curve.span)
    # Equal returns have no standard error: they are compared with the range of a single episode.
    impossible = max(mean - curve.episode_range[1], curve.episode_range[0] - mean) if agree else beyond
    if impossible > curve.rounding + _FAR * (std / math.sqrt(count) if count > 1 else math.inf):
        raise ValueError(
            f"returns must be utilities of whole episodes, with an expectation from {curve.lowest:.12g} to "
            f"{curve.highest:.12g} in this world, got a mean of {mean:.12g} over {count}: check their unit, the "
            f"horizon ({curve.mdp.horizon} decisions) and the terminal utility"
        )

    def attainable(utility: float) -> float:
        return min(max(utility, curve.lowest), curve.highest)

    directedness = curve.meg(attainable(mean))
    notes = ["mean return beyond what is attainable, moved to the end"] if beyond > curve.rounding else []
    fields: dict[str, Any] = {"n": count, "confidence": confidence}
    if count < 2 or curve.span == 0:
        notes.append("one return: undefined interval" if count == 1 else "no policy changes the utility")
        return _record(curve, directedness, method="none", note="; ".join(notes), **fields)
    if agree:
        # With zero variance, the fraction of episodes that may differ is bounded exactly.
        episode_return = min(max(mean, curve.episode_range[0]), curve.episode_range[1])
        ends = agreement_bounds(episode_return, count, curve.episode_range, confidence)
        method = "exact bound of agreement of the mean return, through W*"
    else:
        from scipy.special import stdtrit

        half_width = float(stdtrit(count - 1, (1 + confidence) / 2)) * std / math.sqrt(count)
        ends, method = (mean - half_width, mean + half_width), "t of the mean return, through W*"
    low, high = (curve.meg(attainable(end)) for end in ends)
    covers = ends[0] <= curve.uniform <= ends[1]
    curvature = curve.at(directedness.beta).curvature if math.isfinite(directedness.beta) else 0.0
    return _record(
        curve,
        directedness,
        low=min(0.0 if covers else min(low.value, high.value), directedness.value),
        high=max(low.value, high.value, directedness.value),
        signed_low=min(low.signed, directedness.signed),
        signed_high=max(high.signed, directedness.signed),
        method=method,
        bias=std**2 / (2 * count * curvature) if curvature > 0 else math.nan,
        note="; ".join(notes),
        **fields,
    )
