"""Attribution by inverse planning: the posterior over hypotheses for soft-optimal agents, with a test of fit.

    P(a | t, s; h, beta) = exp(beta Q_h(t, s, a)) / sum over a' of the same          soft optimal in finite time
    P(h | answers)       proportional to P(h) sum over beta of P(beta) prod P(a | t, s; h, beta)

P(beta) is uniform over `RATIONALITIES`, in nats per unit of utility (a place pays 1 for each decision that begins
there). For a hypothesis that is a policy, a lapse rate, uniform over `LAPSES`, replaces beta. P(h) is uniform over the
bank and `NONE`: actions that do not depend on the observation, with an unknown distribution (Dirichlet, all parameters
1).

The posterior concentrates on the nearest hypothesis even if that hypothesis is wrong, so a named hypothesis must also
*fit*. Let p be its probabilities at the best beta or lapse rate, q the agent's own unknown probabilities, both summed
over actions that p considers equal (so that consistent tie-breaking does no harm), and m the number of offered actions.
Then

    fit(h) = 1 - sum |p - q|^2 / sum |q - 1/m|^2        1 for the agent's own probabilities, whatever its noise

which we estimate without bias from pairs of answers. A name needs a fit of `FITS`. The verdict is *partly* if the fit
is significantly lower in the worlds (at least six clusters) in which some rival of the bank acts differently, because
moves on which all hypotheses agree do not support a name. The verdict is *none* if no hypothesis fits and all are shown
not to. Without second answers there is no test of fit, and the bank is never rejected. Hypotheses that call for the
same actions in all visited states are returned as a set, since only assumptions about the agent's errors could separate
them.

Source: Baker, Saxe and Tenenbaum (2009), Action understanding as inverse planning, Cognition 113, section 2, here with
utilities of states and one rationality for all worlds; Ziebart (2010) for the soft-optimal policy in finite time;
goalscope (the fit).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from goalscope._ground.checks import freeze
from goalscope._ground.rng import stream
from goalscope.goals.attribution.definition import NONE, Attribution, MixturePart, Said, Trial, attribution
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array, Mask, Solved
from goalscope.goals.hypotheses.likelihood import log_likelihood, with_errors
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.worlds.planning.soft import SoftProcess

RATIONALITIES = freeze(np.geomspace(0.02, 40.0, 12))
LAPSES = freeze(np.geomspace(0.005, 1.0, 12))
FITS: Final = 0.5
"""Minimum fit of a hypothesis that is named."""
DIFFER: Final = 0.1
"""Minimum difference in the predicted probability of an action for two hypotheses to count as different in a world."""
RESAMPLES: Final = 500

_ALIKE: Final = 1e-6  # difference of probabilities below which two actions are alike


@attribution("likelihood")
def by_likelihood(trial: Trial) -> Attribution:
    """Return the smallest set of hypotheses with posterior probability 1 - level, restricted to those that fit."""
    logs = {name: np.zeros(len(RATIONALITIES)) for name in trial.bank}
    soft = dict.fromkeys(trial.bank, False)
    chances_by_name: dict[str, list[Array]] = {name: [] for name in trial.bank}
    for answers, solved in trial.solved():
        counts = answers.first + (0.0 if answers.second is None else answers.second)
        for name in trial.bank:
            solution, even = solved.get(name), answers.world.even[answers.state]
            policies, random = _behaviour(answers, solution)
            soft[name] |= solution is not None and solution.utility is not None
            chances_by_name[name].append(with_errors(policies, even, random))
            logs[name] += log_likelihood(policies, even, counts, random)[:, 0]
    evidence = {name: float(np.logaddexp.reduce(values) - np.log(len(values))) for name, values in logs.items()}
    evidence[NONE] = _blind(trial)
    total = np.logaddexp.reduce(list(evidence.values()))
    weights = {name: float(np.exp(value - total)) for name, value in evidence.items()}
    ranked, mass, names = sorted(weights, key=lambda name: -weights[name]), 0.0, list[str]()
    for name in ranked:
        names.append(name)
        mass += weights[name]
        if mass >= 1 - trial.level:
            break
    strict = {name: [by_rate[-1 if soft[name] else 0] for by_rate in chances_by_name[name]] for name in trial.bank}
    differing = _differing_clusters(trial, strict)
    named = [name for name in names if name != NONE]
    named += [
        name for name in trial.bank if name not in named and any(not differing[name][other].any() for other in named)
    ]
    kind: Said = "not explained" if names[0] == NONE else "named" if len(named) == 1 and NONE not in names else "set"
    sentence = f"posterior {', '.join(f'{name} {weights[name]:.3f}' for name in ranked[:3])}, if it is one of these"
    fits: dict[str, Mapping[str, tuple[float, float]]] = {}
    if trial.twice and kind != "not explained":
        for name in named:
            fitted = [by_rate[int(logs[name].argmax())] for by_rate in chances_by_name[name]]
            fits[name] = _fits(trial, fitted, strict[name], differing[name], silent=soft[name])
        misfits = {name: min(high for _, high in fits[name].values()) < FITS for name in named}  # not to fit somewhere
        whole = [name for name in named if fits[name][""][0] >= FITS]
        fitting = [name for name in named if not misfits[name]]
        if set(fitting) & set(whole):
            kind, named = "named" if len(fitting) == 1 and NONE not in names else "set", fitting
        elif whole:
            kind, named = "partly", whole
        else:
            kind, named = "none" if all(misfits.values()) else "undecided", []
        near = next(iter(fits.values()))
        worst = min(near, key=lambda rival: near[rival][1])
        scope = f"where {worst} acts differently" if worst else "in all worlds"
        sentence += f"; fit {near[worst][0]:.2f}, at most {near[worst][1]:.2f}, {scope}"
    parts = []
    for name in ranked:
        if name != NONE and weights[name] >= 0.01:
            at = int(logs[name].argmax())
            how = {"rationality": float(RATIONALITIES[at])} if soft[name] else {"strength": 1 - float(LAPSES[at])}
            parts.append(MixturePart(hypothesis=trial.bank[name].text, weight=weights[name], **how))
    return Attribution(
        method="likelihood",
        kind=kind,
        names=tuple(named),
        sentence=sentence,
        weights=weights,
        predicts=tuple(parts) if kind != "not explained" else (),
        details={"log evidence": evidence, "fit": fits},
    )


def _differing_clusters(trial: Trial, strict: Mapping[str, Sequence[Array]]) -> dict[str, dict[str, Mask]]:
    """Return, by name and rival, in which of G clusters their strict followers act differently, masks ``[G]``."""
    clusters = list(dict.fromkeys(answers.cluster for answers in trial.answers))
    differing = {
        name: {rival: np.zeros(len(clusters), dtype=bool) for rival in strict if rival != name} for name in strict
    }
    for index, answers in enumerate(trial.answers):
        at = clusters.index(answers.cluster)
        for name, rivals in differing.items():
            for rival, in_clusters in rivals.items():
                in_clusters[at] |= np.abs(strict[name][index] - strict[rival][index]).max() > DIFFER
    return differing


def _fits(
    trial: Trial, fitted: Sequence[Array], strict: Sequence[Array], differing: Mapping[str, Mask], *, silent: bool
) -> dict[str, tuple[float, float]]:
    """Return the fit of a hypothesis and its upper end: under "" in all worlds, by rival in the worlds that differ.

    Args:
        trial: the trial, with two answers per step.
        fitted: world by world ``[N, A]`` probabilities of the hypothesis at its best beta or lapse rate.
        strict: world by world ``[N, A]`` its strictest probabilities, which define ties.
        differing: rival -> ``[G]`` clusters in which it acts differently.
        silent: whether the hypothesis makes no prediction where all actions are tied; otherwise it predicts that they
            are equally likely.
    """
    number = {cluster: at for at, cluster in enumerate(dict.fromkeys(answers.cluster for answers in trial.answers))}
    sums = np.zeros((len(number), 2))
    for answers, chances, strict_chances in zip(trial.answers, fitted, strict, strict=True):
        assert answers.second is not None
        even = answers.world.even[answers.state]
        tied = np.broadcast_to((even > 0)[:, None, :], (*even.shape, even.shape[1]))
        for by in (chances, strict_chances):
            tied = np.logical_and(tied, np.abs(by[:, :, None] - by[:, None, :]) < _ALIKE)
        if not silent:
            silenced = np.all(tied, axis=(1, 2), keepdims=True)
            tied = np.where(silenced, np.eye(even.shape[1], dtype=bool), tied)
        mean = tied / np.maximum(tied.sum(axis=2, keepdims=True), 1)
        agreed = np.einsum("na,nab,nb->n", answers.first, mean, answers.second)
        off = agreed - (chances * (answers.first + answers.second)).sum(axis=1) + (chances**2).sum(axis=1)
        sums[number[answers.cluster]] += off.sum(), (agreed - even.max(axis=1)).sum()
    drawn = stream(trial.seed, "fit", len(sums)).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), RESAMPLES)
    weights, fits = np.concatenate([np.ones((1, len(sums))), drawn]), dict[str, tuple[float, float]]()
    for rival, counted in {"": np.ones(len(sums), dtype=bool), **differing}.items():
        off, scale = (weights @ np.where(counted[:, None], sums, 0.0)).T
        # If the agent repeats nothing where the hypothesis makes predictions, we neither name nor reject it.
        value = np.where(scale > 0, 1 - off / np.where(scale > 0, scale, 1.0), np.inf)
        if not rival or counted.sum() >= FEWEST:
            high = float(np.quantile(value[1:], 1 - trial.level, method="higher"))
            fits[rival] = float(value[0]) if scale[0] > 0 else 0.0, high
    return fits


def _behaviour(answers: Answers, solved: Solved | None) -> tuple[Array, Array]:
    """Return policies in N steps and their random shares at B rationalities or lapse rates, ``[B, N, A]``, ``[B, 1]``.

    A hypothesis that is undefined in this world predicts uniformly random actions.
    """
    even = answers.world.even[answers.state]
    if solved is None:
        return np.stack([even] * len(RATIONALITIES)), np.zeros((len(RATIONALITIES), 1))
    if solved.utility is None:
        policy = solved.policy[np.minimum(answers.time, len(solved.policy) - 1), answers.state]
        return np.stack([policy] * len(LAPSES)), LAPSES[:, None]
    process = SoftProcess(answers.world.process.mdp(solved.utility, answers.world.horizon, terminal=None))
    policies = [process.soft_policy(float(beta) * process.span)[answers.time, answers.state] for beta in RATIONALITIES]
    return np.stack(policies), np.zeros((len(RATIONALITIES), 1))


def _blind(trial: Trial) -> float:
    """Return the log evidence for an agent whose actions do not depend on what it observes."""
    from scipy.special import gammaln

    counts: dict[int, Array] = defaultdict(lambda: np.zeros(1))
    for answers in trial.answers:
        total = answers.first.sum(axis=0) + (0.0 if answers.second is None else answers.second.sum(axis=0))
        counts[len(total)] = counts[len(total)] + total
    return float(
        sum(
            gammaln(size) - gammaln(size + action_counts.sum()) + gammaln(1 + action_counts).sum()
            for size, action_counts in counts.items()
        )
    )
