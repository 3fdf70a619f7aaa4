"""Inverse planning: the posterior over hypotheses of agents that are rational up to a temperature.

    P(a | t, s; h, beta) = exp(beta Q_h(t, s, a)) / sum over a' of the same          soft optimal in finite time
    P(h | answers)       proportional to P(h) sum over beta of P(beta) prod P(a | t, s; h, beta)

P(beta) is uniform over `RATIONALITIES`, nats per unit of utility (a place pays 1 for each decision that begins there);
of a hypothesis that is a policy, the lapse rate is uniform over `LAPSES` in its place. P(h) is uniform over the bank
and `NONE`: actions that do not depend on what is seen, with an unknown distribution (Dirichlet, all parameters 1). An
agent that is none of these counts for the nearest of them: the posterior is certain long before it is right.

Source: Baker, Saxe and Tenenbaum (2009), Action understanding as inverse planning, Cognition 113, section 2, here with
utilities of states and one rationality for all worlds; Ziebart (2010) for the soft-optimal policy in finite time.
"""

from collections import defaultdict

import numpy as np

from goalscope.attribution.definition import NONE, Attribution, PredictedPart, Said, Trial, attribution
from goalscope.checks import freeze
from goalscope.hypotheses.answers import Answers
from goalscope.hypotheses.definition import Array, Solved
from goalscope.planning.soft import SoftProcess

RATIONALITIES = freeze(np.geomspace(0.02, 40.0, 12))
LAPSES = freeze(np.geomspace(0.005, 1.0, 12))


@attribution("likelihood")
def by_likelihood(trial: Trial) -> Attribution:
    """Return the smallest set of hypotheses that has the posterior probability 1 - level."""
    logs = {name: np.zeros(len(RATIONALITIES)) for name in trial.bank}
    soft = dict.fromkeys(trial.bank, False)
    for one, solved in trial.solved():
        counts = one.first + (0.0 if one.second is None else one.second)
        for name in trial.bank:
            # Undefined in this world, a hypothesis says what knowing nothing says.
            found = solved.get(name)
            chances = (
                np.stack([one.world.even[one.state]] * len(RATIONALITIES)) if found is None else _chances(one, found)
            )
            soft[name] |= found is not None and found.utility is not None
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
    kind: Said = "not explained" if names[0] == NONE else "named" if len(names) == 1 else "set"
    said = ", ".join(f"{name} {weights[name]:.3f}" for name in ranked[:3])
    parts = []
    for name in ranked:
        if name != NONE and weights[name] >= 0.01:
            at = int(logs[name].argmax())
            best = {"rationality": float(RATIONALITIES[at])} if soft[name] else {"strength": 1 - float(LAPSES[at])}
            parts.append(PredictedPart(hypothesis=trial.bank[name].text, weight=weights[name], **best))
    return Attribution(
        method="likelihood",
        kind=kind,
        names=tuple(name for name in names if name != NONE),
        sentence=f"posterior {said}, if it is one of these",
        weights=weights,
        predicts=tuple(parts) if kind != "not explained" else (),
        details={"log evidence": evidence},
    )


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
