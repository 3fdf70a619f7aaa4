"""Maximum-entropy goal-directedness towards each hypothesis with a utility, one rationality for all worlds.

    MEG(U) = sup over beta of beta (E[U] - E_uniform[U]) - W(beta), W the mean over worlds, in nats an episode

It needs no second answers, and so it cannot tell noise from another goal: "not explained", never "none of the named".
A hypothesis is named where its share of the greatest possible MEG is at least `SHARE`, and where its MEG exceeds that
of each rival by `MARGIN` of its own, in worlds that have both. Source: MacDermott et al. (2024), definition 3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from goalscope.attribution.definition import Attribution, PredictedPart, Said, Trial, attribution
from goalscope.goals.curves import Curves, interval
from goalscope.goals.resamples import weigh
from goalscope.hypotheses.definition import Array
from goalscope.hypotheses.separability import FEWEST
from goalscope.hypotheses.views import Undefined
from goalscope.meg import RationalityCurve

SHARE = 0.15
MARGIN = 0.25


@attribution("meg")
def by_meg(trial: Trial) -> Attribution:
    """Return the hypothesis with the largest share of its greatest possible MEG, if it beats its rivals."""
    sides = {name: side for name in trial.hypotheses if (side := _Side(trial, name)).worlds}
    asked = [name for name in sides if name in trial.bank]
    if not asked:
        raise Undefined("it needs a hypothesis with a utility of states: a place, an event or a sum of such")

    @cache
    def fitted(name: str, worlds: tuple[int, ...]) -> tuple[Array, float, float]:
        return sides[name].fit(worlds, trial.seed)

    own = {name: fitted(name, sides[name].worlds) for name in asked}
    shares = {name: float(value[0] / bound) if bound > 0 else 0.0 for name, (value, bound, _) in own.items()}
    best = max(asked, key=lambda name: shares[name])
    same, unbeaten = list[str](), list[str]()
    for rival in sides:
        common = tuple(sorted(set(sides[best].worlds) & set(sides[rival].worlds)))
        clusters = {trial.answers[index].cluster for index in common if _differ(sides[best], sides[rival], index)}
        if rival == best or not common:
            continue
        if len(clusters) < FEWEST:
            same.append(rival)
            continue
        value, other = fitted(best, common)[0], fitted(rival, common)[0]
        if np.quantile((value - other)[1:], trial.level) <= MARGIN * value[0]:
            unbeaten.append(rival)
    kind: Said = "not explained"
    names: tuple[str, ...] = ()
    if shares[best] >= SHARE:
        kind = "undecided" if unbeaten else "set" if same else "named"
        names = (best, *unbeaten, *same)
    said = f"MEG {own[best][0][0]:.2f} nats an episode towards {best}, {shares[best]:.0%} of the greatest possible"
    told = [name for name in names if name in trial.bank] if kind in ("named", "set") else []
    return Attribution(
        method="meg",
        kind=kind,
        names=names,
        sentence=said + (f"; not told from {', '.join(names[1:])}" if names[1:] else ""),
        weights=shares,
        predicts=tuple(
            PredictedPart(hypothesis=trial.bank[name].text, weight=1 / len(told), rationality=_finite(own[name][2]))
            for name in told
        ),
        details={"nats": {name: float(value[0]) for name, (value, _, _) in own.items()}},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TowardsHypothesis:
    """How strongly an agent acts towards a hypothesis.

    Attributes:
        value, low, high: signed MEG, nats an episode, with its interval over clusters; equal where there is only one.
        bound: the greatest possible one in these worlds, nats.
    """

    value: float
    low: float
    high: float
    bound: float

    @property
    def share(self) -> float:
        """The value as a share of the greatest possible one, 0 where that is 0."""
        return self.value / self.bound if self.bound > 0 else 0.0


def towards(trial: Trial, names: Sequence[str], *, level: float) -> dict[str, TowardsHypothesis]:
    """Return name -> signed MEG of those hypotheses that have a utility of states here.

    Args:
        trial: the answers, and a bank that holds the names.
        names: of hypotheses.
        level: error rate of the interval, both ends together.
    """
    found = {}
    for name in names:
        if (side := _Side(trial, name)).worlds:
            value, bound, _ = side.fit(side.worlds, trial.seed)
            clusters = len({trial.answers[index].cluster for index in side.worlds})
            ends = interval(value[1:], clusters, 1 - level) if clusters > 1 else (float(value[0]), float(value[0]))
            low, high = min(ends[0], float(value[0])), max(ends[1], float(value[0]))
            found[name] = TowardsHypothesis(value=float(value[0]), low=low, high=high, bound=bound)
    return found


def _finite(rationality: float) -> float:
    """Return a rationality that can be written down; beyond 40 nats a soft policy misses its limit by exp(-40)."""
    return float(np.clip(rationality, -40.0, 40.0))


class _Side:
    """A hypothesis with its curves in the worlds that have it.

    Attributes:
        worlds: numbers of those worlds.
    """

    def __init__(self, trial: Trial, name: str) -> None:
        self.trial, self.curves, self.relative = trial, dict[int, Curves](), dict[int, float]()
        self.utility, one = dict[int, Array](), trial.hypotheses[name]
        for index, answers in enumerate(trial.answers):
            try:
                utility = one.solved(answers.world).utility
            except Undefined:
                continue
            if utility is None or utility.ndim != 1:
                continue
            mdp = answers.world.process.mdp(utility, answers.world.horizon, terminal=None)
            curve = RationalityCurve(mdp)
            if curve.span > 0:
                self.curves[index], self.utility[index] = Curves.of(curve), utility
                self.relative[index] = answers.mean_utility(utility) - curve.uniform
        self.worlds = tuple(self.curves)

    def fit(self, worlds: Sequence[int], seed: int) -> tuple[Array, float, float]:
        """Return signed MEG, of all clusters and then of resamples, its greatest possible value, and beta."""
        weights = weigh([self.trial.answers[index].cluster for index in worlds], seed=seed)
        curves = Curves.joined([self.curves[index] for index in worlds])
        relative = np.array([self.relative[index] for index in worlds])
        whole = curves.mixed(weights.whole)
        value, beta = whole.fit(weights.whole @ relative)
        drawn = curves.mixed(weights.resampled).fit(weights.resampled @ relative)[0] if weights.grids > 1 else value
        return np.concatenate([value, drawn]), float(whole.ends[0, 3]), float(beta[0])


def _differ(first: _Side, second: _Side, index: int) -> bool:
    return not np.array_equal(first.utility[index], second.utility[index])
