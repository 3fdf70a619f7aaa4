"""Inverse planning: the posterior over hypotheses of agents that are rational up to a temperature, and whether it fits.

    P(a | t, s; h, beta) = exp(beta Q_h(t, s, a)) / sum over a' of the same          soft optimal in finite time
    P(h | answers)       proportional to P(h) sum over beta of P(beta) prod P(a | t, s; h, beta)

P(beta) is uniform over `RATIONALITIES`, nats per unit of utility (a place pays 1 for each decision that begins there);
of a hypothesis that is a policy, the lapse rate is uniform over `LAPSES` in its place. P(h) is uniform over the bank
and `NONE`: actions that do not depend on what is seen, with an unknown distribution (Dirichlet, all parameters 1).

A posterior is certain of the nearest hypothesis long before that one is true. So what it names must *fit*: with second
answers, p the probabilities at the best beta or lapse rate, q the agent's own, unknown, both summed up over actions
that p holds for equal (ties broken alike do no harm), m actions offered,

    fit(h) = 1 - sum |p - q|^2 / sum |q - 1/m|^2        1 for the agent's own probabilities, whatever its noise

estimated without bias from pairs of answers. A name needs a fit of `FITS`; *partly* takes its place where the fit is
shown to be less in the worlds (of at least six clusters) in which some rival of the bank acts differently: what an
agent does where all act alike says nothing for a name. *None*: no name has that fit, and all are shown to have less.
Without second answers there is no such test, and the bank is never rejected. Hypotheses that call for the same actions
wherever the agent was seen stand in a set together: only what is supposed of an agent's errors would tell them apart.

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
from goalscope.goals.attribution.definition import NONE, Attribution, PredictedPart, Said, Trial, attribution
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import Array, Mask, Solved
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.worlds.planning.soft import SoftProcess

RATIONALITIES = freeze(np.geomspace(0.02, 40.0, 12))
LAPSES = freeze(np.geomspace(0.005, 1.0, 12))
FITS: Final = 0.5
"""Least fit of a hypothesis that is named."""
DIFFER: Final = 0.1
"""Least difference of two predicted probabilities of an action by which two hypotheses act differently in a world."""
RESAMPLES: Final = 500

_ALIKE: Final = 1e-6  # difference of probabilities below which two actions are alike


@attribution("likelihood")
def by_likelihood(trial: Trial) -> Attribution:
    """Return the smallest set of hypotheses that has the posterior probability 1 - level, where they fit."""
    logs = {name: np.zeros(len(RATIONALITIES)) for name in trial.bank}
    soft = dict.fromkeys(trial.bank, False)
    told: dict[str, list[Array]] = {name: [] for name in trial.bank}
    for one, solved in trial.solved():
        counts = one.first + (0.0 if one.second is None else one.second)
        for name in trial.bank:
            # Undefined in this world, a hypothesis says what knowing nothing says.
            found = solved.get(name)
            chances = (
                np.stack([one.world.even[one.state]] * len(RATIONALITIES)) if found is None else _chances(one, found)
            )
            soft[name] |= found is not None and found.utility is not None
            told[name].append(chances)
            logs[name] += np.where(counts > 0, counts * np.log(np.maximum(chances, 1e-300)), 0.0).sum(axis=(1, 2))
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
    strict = {name: [each[-1 if soft[name] else 0] for each in told[name]] for name in trial.bank}
    apart = _apart(trial, strict)
    named = [name for name in names if name != NONE]
    named += [name for name in trial.bank if name not in named and any(not apart[name][one].any() for one in named)]
    kind: Said = "not explained" if names[0] == NONE else "named" if len(named) == 1 and NONE not in names else "set"
    said = f"posterior {', '.join(f'{name} {weights[name]:.3f}' for name in ranked[:3])}, if it is one of these"
    fits: dict[str, Mapping[str, tuple[float, float]]] = {}
    if trial.twice and kind != "not explained":
        for name in named:
            fitted = [each[int(logs[name].argmax())] for each in told[name]]
            fits[name] = _fits(trial, fitted, strict[name], apart[name], silent=soft[name])
        shown = {name: min(high for _, high in fits[name].values()) < FITS for name in named}  # not to fit somewhere
        whole = [name for name in named if fits[name][""][0] >= FITS]
        kept = [name for name in named if not shown[name]]
        if set(kept) & set(whole):
            kind, named = "named" if len(kept) == 1 and NONE not in names else "set", kept
        elif whole:
            kind, named = "partly", whole
        else:
            kind, named = "none" if all(shown.values()) else "undecided", []
        near = next(iter(fits.values()))
        worst = min(near, key=lambda rival: near[rival][1])
        where = f"where {worst} acts differently" if worst else "in all worlds"
        said += f"; fit {near[worst][0]:.2f}, at most {near[worst][1]:.2f}, {where}"
    parts = []
    for name in ranked:
        if name != NONE and weights[name] >= 0.01:
            at = int(logs[name].argmax())
            how = {"rationality": float(RATIONALITIES[at])} if soft[name] else {"strength": 1 - float(LAPSES[at])}
            parts.append(PredictedPart(hypothesis=trial.bank[name].text, weight=weights[name], **how))
    return Attribution(
        method="likelihood",
        kind=kind,
        names=tuple(named),
        sentence=said,
        weights=weights,
        predicts=tuple(parts) if kind != "not explained" else (),
        details={"log evidence": evidence, "fit": fits},
    )


def _apart(trial: Trial, strict: Mapping[str, Sequence[Array]]) -> dict[str, dict[str, Mask]]:
    """Return name -> rival -> ``[G]`` in which clusters the two act differently somewhere, both followed strictly."""
    clusters = list(dict.fromkeys(one.cluster for one in trial.answers))
    found = {name: {rival: np.zeros(len(clusters), dtype=bool) for rival in strict if rival != name} for name in strict}
    for index, one in enumerate(trial.answers):
        at = clusters.index(one.cluster)
        for name, rivals in found.items():
            for rival, where in rivals.items():
                where[at] |= np.abs(strict[name][index] - strict[rival][index]).max() > DIFFER
    return found


def _fits(
    trial: Trial, fitted: Sequence[Array], strict: Sequence[Array], apart: Mapping[str, Mask], *, silent: bool
) -> dict[str, tuple[float, float]]:
    """Return the fit of a hypothesis and its upper end: "" for all worlds, and by rival in those in which it differs.

    Args:
        trial: answers that were given twice.
        fitted: world by world ``[N, A]`` the probabilities of the hypothesis.
        strict: the same, were it followed as strictly as can be: what is alike to it.
        apart: rival -> ``[G]`` where it acts differently.
        silent: whether it says nothing where all actions are alike to it, else that they are equally likely.
    """
    number = {cluster: at for at, cluster in enumerate(dict.fromkeys(one.cluster for one in trial.answers))}
    sums = np.zeros((len(number), 2))
    for one, chances, own in zip(trial.answers, fitted, strict, strict=True):
        assert one.second is not None
        even = one.world.even[one.state]
        alike = np.broadcast_to((even > 0)[:, None, :], (*even.shape, even.shape[1]))
        for by in (chances, own):
            alike = np.logical_and(alike, np.abs(by[:, :, None] - by[:, None, :]) < _ALIKE)
        if not silent:
            silenced = np.all(alike, axis=(1, 2), keepdims=True)
            alike = np.where(silenced, np.eye(even.shape[1], dtype=bool), alike)
        mean = alike / np.maximum(alike.sum(axis=2, keepdims=True), 1)
        both = np.einsum("na,nab,nb->n", one.first, mean, one.second)
        off = both - (chances * (one.first + one.second)).sum(axis=1) + (chances**2).sum(axis=1)
        sums[number[one.cluster]] += off.sum(), (both - even.max(axis=1)).sum()
    drawn = stream(trial.seed, "fit", len(sums)).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), RESAMPLES)
    weights, found = np.concatenate([np.ones((1, len(sums))), drawn]), dict[str, tuple[float, float]]()
    for rival, where in {"": np.ones(len(sums), dtype=bool), **apart}.items():
        off, scale = (weights @ np.where(where[:, None], sums, 0.0)).T
        # Where nothing is repeated of what the hypothesis speaks of, it is not named, and not shown to fail either.
        value = np.where(scale > 0, 1 - off / np.where(scale > 0, scale, 1.0), np.inf)
        if not rival or where.sum() >= FEWEST:
            high = float(np.quantile(value[1:], 1 - trial.level, method="higher"))
            found[rival] = float(value[0]) if scale[0] > 0 else 0.0, high
    return found


def _chances(one: Answers, solved: Solved) -> Array:
    """Return ``[B, N, A]`` the probabilities of actions at each rationality, or lapse rate."""
    if solved.utility is None:
        policy = solved.policy[np.minimum(one.time, len(solved.policy) - 1), one.state]
        even = one.world.even[one.state]
        return np.stack([(1 - lapse) * policy + lapse * even for lapse in LAPSES])
    process = SoftProcess(one.world.process.mdp(solved.utility, one.world.horizon, terminal=None))
    found = [process.soft_policy(float(beta) * process.span)[one.time, one.state] for beta in RATIONALITIES]
    return np.stack(found)


def _blind(trial: Trial) -> float:
    """Return the log evidence of actions that do not depend on what is seen."""
    from scipy.special import gammaln

    counts: dict[int, Array] = defaultdict(lambda: np.zeros(1))
    for one in trial.answers:
        total = one.first.sum(axis=0) + (0.0 if one.second is None else one.second.sum(axis=0))
        counts[len(total)] = counts[len(total)] + total
    return float(
        sum(gammaln(size) - gammaln(size + found.sum()) + gammaln(1 + found).sum() for size, found in counts.items())
    )
