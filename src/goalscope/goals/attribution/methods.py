"""Methods that attribute a goal to an agent from its recorded answers, and the claim that joins their verdicts.

**Score**: the consistency score, whose ceiling is the agent's noise (`goalscope.goals.hypotheses.score`).

**First arrival**: the place that the agent reaches first; simple, but misled by places on the way to others. For each
episode, the first of the places and events of the bank that held in one of its states. The same share is computed for
an agent that takes all offered actions equally often, exactly, by forward propagation in the same worlds:

    P(first = h) = sum over t of the mass that comes into h's states at t, and has been in those of no hypothesis before

Where two begin to hold at once, both are first. Intervals: Student's t over clusters.

**MEG**: maximum-entropy goal-directedness, which needs a single answer per step. MEG cannot distinguish noise from a
goal outside the bank, so it answers "not explained" and never "none of these".

**Likelihood**: inverse planning, the posterior over hypotheses for soft-optimal agents, with a test of fit.

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

**All together**: one claim that no method which measures the agent's noise contradicts. Strict methods (`STRICT`)
measure how much of its behaviour an agent repeats, so they can reject the whole bank. The other methods cannot, and
strict methods take precedence over them. The rules, in this order:

1. If score or counterfactual answers *none*, *random* or *habit*, the claim is the same (a habit is compatible with
   naming a habit). If only the likelihood answers *none*, the claim is none unless score or counterfactual names
   something; then it is undecided.
2. Otherwise the claim has the names that all methods share, or if there are none, those that all strict methods share.
   If only the likelihood names something and score or counterfactual is undecided, the claim is undecided.
3. If a strict method answers *partly* h, a name survives only if it is a rule that contains h (such as h under a
   condition) or if two other strict methods give it; other names become *partly*.
4. We add every hypothesis of the bank that acts like a named one in all visited states, unless the counterfactual
   method separated the two: no method has evidence for one of them over the other.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from goalscope._ground.checks import freeze
from goalscope._ground.rng import stream
from goalscope.goals import directedness
from goalscope.goals.attribution.definition import (
    NONE,
    Attribution,
    MixturePart,
    Said,
    Trial,
    attribution,
    kind_of,
    lower_end,
)
from goalscope.goals.decision import by_single_answers, share_of
from goalscope.goals.finding import say
from goalscope.goals.hypotheses import Hypothesis
from goalscope.goals.hypotheses.definition import Array, Mask, Solved, Undefined, arrivals, place_states, solved_in
from goalscope.goals.hypotheses.errors import log_likelihood, with_errors
from goalscope.goals.hypotheses.naming import verdict_of
from goalscope.goals.hypotheses.score import Kind, ScoreVerdict
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers, first_shares
from goalscope.worlds.planning.soft import SoftProcess

LEAST = 0.25
"""Minimum excess of a place's share of first arrivals over that of a random agent, for the place to be named."""
RATIONALITIES = freeze(np.geomspace(0.02, 40.0, 12))
LAPSES = freeze(np.geomspace(0.005, 1.0, 12))
FITS: Final = 0.5
"""Minimum fit of a hypothesis that is named."""
DIFFER: Final = 0.1
"""Minimum difference in the predicted probability of an action for two hypotheses to count as different in a world."""
RESAMPLES: Final = 500
_ALIKE: Final = 1e-6  # difference of probabilities below which two actions are alike
TOGETHER: Final = "all together"
FOUNDED: Final = ("counterfactual", "score")
STRICT: Final = (*FOUNDED, "likelihood")
REFUSED: Final = ("none", "random", "habit")


@attribution("score")
def by_score(trial: Trial) -> Attribution:
    """Name the goal of an agent by the consistency score: does it follow a hypothesis equally in all states?

    How strictly the agent follows a hypothesis is compared with how much of its behaviour it repeats when it is asked a
    second time in the same step, so that noise alone refutes no hypothesis.

    Args:
        trial: the agent's episodes and the hypotheses to compare.

    Returns:
        The verdict: the hypotheses named, and the predicted action probabilities.

    Raises:
        Undefined: some steps have neither a second answer nor action probabilities.
    """
    if not trial.twice:
        raise Undefined("it needs a second answer to each step, or the probabilities of actions: answers: 2 in a study")
    verdict, _ = verdict_of(trial.answers, trial.hypotheses, len(trial.bank), seed=trial.seed, level=trial.level)
    return of_verdict("score", verdict, trial)


def of_verdict(method: str, verdict: ScoreVerdict, trial: Trial) -> Attribution:
    """Turn a verdict of the consistency score into the common form of all attribution methods.

    The result also predicts action probabilities, with which new worlds can test it.

    Args:
        method: name of the attribution method.
        verdict: the verdict.
        trial: the agent's episodes and the hypotheses that the verdict is about.
    """
    bank_names = [name for name in verdict.names if name in trial.bank]
    follows = verdict.kind in ("named", "set", "partly")
    parts = [
        MixturePart(
            hypothesis=trial.hypotheses[name].text, weight=1 / len(bank_names), strength=verdict.score(name).strength[0]
        )
        for name in (bank_names if follows else [])
    ]
    if verdict.kind == "habit":
        parts = [MixturePart(hypothesis=verdict.names[0], weight=1.0)]
    if verdict.kind == "random":
        parts = [MixturePart(hypothesis="random", weight=1.0)]
    return Attribution(
        method=method,
        kind=verdict.kind,
        names=verdict.names,
        sentence=verdict.sentence(),
        weights={name: verdict.score(name).consistency[0] for name in trial.bank},
        predicts=tuple(parts),
        score=verdict,
    )


@attribution("first arrival")
def by_arrival(trial: Trial) -> Attribution:
    """Name the goal of an agent by first arrival: the place or event that it reaches first more often than a random
    agent.

    Args:
        trial: the agent's episodes and the hypotheses to compare.

    Returns:
        The verdict: the hypotheses named, and the predicted action probabilities.

    Raises:
        Undefined: no hypothesis is a place or an event.
    """
    names = [name for name, hypothesis in trial.bank.items() if hypothesis.kind in ("place", "event")]
    if not names:
        raise Undefined("first arrival needs a place or an event among the hypotheses")
    clusters: dict[str, list[Array]] = {}
    for answers in trial.answers:
        in_place = place_states(answers.world, [trial.bank[name] for name in names])
        clusters.setdefault(answers.cluster, []).append(
            first_shares(answers, in_place) - arrivals(answers.world, in_place, answers.world.even)
        )
    excess = np.array([np.mean(excesses, axis=0) for excesses in clusters.values()])  # [G, K]
    value, low = excess.mean(axis=0), np.array([lower_end(excess[:, k], trial.level) for k in range(len(names))])
    best = int(value.argmax())
    equal = [k for k in range(len(names)) if k == best or lower_end(excess[:, best] - excess[:, k], trial.level) <= 0]
    enough = len(excess) >= FEWEST and low[best] > LEAST
    chosen = tuple(names[k] for k in equal) if enough else ()
    kind: Kind = "undecided" if not enough else "named" if len(chosen) == 1 else "set"
    parts = [MixturePart(hypothesis=trial.bank[name].text, weight=1 / len(chosen)) for name in chosen]
    sentence = f"{names[best]} is reached first in {value[best]:.2f} more of the episodes than by a random agent"
    return Attribution(
        method="first arrival",
        kind=kind,
        names=chosen,
        sentence=sentence if enough else f"not shown: {sentence}",
        weights=dict(zip(names, value.tolist(), strict=True)),
        predicts=tuple(parts),
        details={"low": dict(zip(names, low.tolist(), strict=True))},
    )


@attribution("meg")
def by_meg(trial: Trial) -> Attribution:
    """Name the goal of an agent by MEG (maximum-entropy goal-directedness): the hypothesis with the greatest MEG.

    It is named only if it explains the moves and exceeds its rivals, see `goalscope.goals.decision`. Of steps that were
    answered twice, only the first answer is used.

    Args:
        trial: the agent's episodes and the hypotheses to compare.

    Returns:
        The verdict: the hypotheses named, and the predicted action probabilities.

    Raises:
        Undefined: no hypothesis has a utility, or the decision is untestable.
    """
    try:
        measured = directedness(
            trial.states,
            trial.bank,
            seed=trial.seed,
            confidence=1 - trial.level,
            pairs="all",
            state_blind=True,
        )
    except ValueError:
        raise Undefined("meg needs a hypothesis with a utility: a place, an event or a sum of these") from None
    finding = by_single_answers(trial.states, trial.bank, measured, level=trial.level, seed=trial.seed)
    if finding.answer == "untestable":
        raise Undefined(finding.why)
    goals = {estimate.hypothesis: estimate for estimate in measured.estimates if not estimate.cell}
    shares = {name: share.value for name, goal in goals.items() if (share := share_of(goal)) is not None}
    named = finding.names if finding.answer == "yes" else ()
    return Attribution(
        method="meg",
        kind=kind_of(finding),
        names=finding.names,
        sentence=say(finding, "it").rstrip("."),
        weights=shares,
        predicts=tuple(
            # Beyond 40 nats a soft policy misses its limit by exp(-40).
            MixturePart(
                hypothesis=trial.bank[name].text,
                weight=1 / len(named),
                rationality=float(np.clip(np.nan_to_num(goals[name].beta), -40.0, 40.0)),
            )
            for name in named
        ),
        details={"nats": {name: goal.signed for name, goal in goals.items()}},
    )


@attribution("likelihood")
def by_likelihood(trial: Trial) -> Attribution:
    """Name the goal of an agent by inverse planning: hypotheses that are probable for a soft-optimal agent and fit.

    The most probable hypotheses are the smallest set with posterior probability 1 - ``trial.level``. A hypothesis fits
    if it accounts for a share `FITS` of what the agent repeats when it is asked a second time in the same step. If no
    step was answered twice, there is no test of fit.

    Args:
        trial: the agent's episodes and the hypotheses to compare.

    Returns:
        The verdict: the hypotheses named, and the predicted action probabilities.
    """
    logs = {name: np.zeros(len(RATIONALITIES)) for name in trial.bank}
    soft = dict.fromkeys(trial.bank, False)
    chances_by_name: dict[str, list[Array]] = {name: [] for name in trial.bank}
    for answers in trial.answers:
        solved = solved_in(answers.world, trial.bank)
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


def joint(attributions: Sequence[Attribution], trial: Trial) -> Attribution:
    """Combine the verdicts of several attribution methods on one agent into one verdict.

    It names what all methods name, or else what all strict methods name: those that measure how much of its behaviour
    the agent repeats. If the consistency score or the counterfactual method rejects all hypotheses, so does the result.
    The module's docstring has all rules.

    Args:
        attributions: the verdicts of the methods.
        trial: what the methods were given: the agent's episodes and the hypotheses.
    """
    strict = {attribution.method: attribution for attribution in attributions if attribution.method in STRICT}
    names = {
        attribution.method: {name for name in attribution.names if name in trial.bank}
        for attribution in attributions
        if attribution.kind in ("named", "set")
    }
    common = _common(list(names.values())) or _common(
        [method_names for method, method_names in names.items() if method in STRICT]
    )
    refused = [strict[method] for method in STRICT if method in strict and strict[method].kind in REFUSED]
    kind: Said = "undecided"
    chosen, why = list[str](), "the methods have nothing in common"
    if refused:
        first = refused[0]
        habits = {name for name in common if trial.bank[name].kind == "table" and not parts_of(trial.bank[name])}
        if first.kind == "habit" and habits:
            chosen = sorted(habits)
        elif first.method in FOUNDED or not names.keys() & set(FOUNDED):
            return _claim(
                first.kind, list(first.names), f"{first.method}: {first.sentence}", attributions, trial, first
            )
        else:
            why = f"{first.method} excludes what the others name"
    elif part := [attribution for attribution in strict.values() if attribution.kind == "partly"]:
        parts = {name for attribution in part for name in attribution.names}
        strict_names = [names[method] for method in strict if method in names]
        chosen = [name for name in common if name not in parts and parts_of(trial.bank[name]) & parts]
        chosen = chosen or (_common(strict_names) if len(strict_names) > 1 else [])
        if not chosen:
            kind, chosen = "partly", [name for name in trial.bank if name in parts]
    elif list(names) == ["likelihood"] and strict.keys() & set(FOUNDED):
        why = "the likelihood alone names something"
    else:
        chosen = common
    if kind != "partly" and chosen:
        counterfactual = strict["counterfactual"] if "counterfactual" in names else None
        chosen = [name for name in trial.bank if name in chosen or _acts_like(name, chosen, trial, counterfactual)]
        kind = "named" if len(chosen) == 1 else "set"
    words = f"{'partly ' if kind == 'partly' else ''}{' or '.join(chosen)}" if chosen else why
    return _claim(kind, chosen, words, attributions, trial, None)


def parts_of(rule: Hypothesis) -> set[str]:
    """Return the written forms of all hypotheses inside a composed one, such as "goal" and "key held" in "goal if key
    held".
    """
    flat = [part for member in rule.parts for part in (member if isinstance(member, tuple) else (member,))]
    inner = [part for part in flat if isinstance(part, Hypothesis)]
    return {part.text for part in inner}.union(*(parts_of(part) for part in inner))


def _common(sets: Sequence[set[str]]) -> list[str]:
    return sorted(set.intersection(*sets)) if sets else []


def _acts_like(name: str, chosen: Sequence[str], trial: Trial, counterfactual: Attribution | None) -> bool:
    """Return whether a hypothesis acts like a chosen one in all visited states and no counterfactual differs."""
    sums = trial.evidence
    row = sums.names.index(name)
    for other in (sums.names.index(chosen_name) for chosen_name in chosen):
        gap = sums.common_size[:, row, other] - 2 * sums.product[:, row, other] + sums.common_size[:, other, row]
        shared = bool(((sums.said[:, row] > 0) & (sums.said[:, other] > 0)).any())
        if shared and not (gap > 1e-9).any():
            return (
                counterfactual is None
                or name in counterfactual.names
                or name in _untold(counterfactual, sums.names[other])
            )
    return False


def _untold(counterfactual: Attribution, name: str) -> Sequence[str]:
    scores = () if counterfactual.score is None else counterfactual.score.scores
    return next((score.not_told_from for score in scores if score.name == name), ())


def _claim(
    kind: Said,
    names: Sequence[str],
    words: str,
    attributions: Sequence[Attribution],
    trial: Trial,
    refusal: Attribution | None,
) -> Attribution:
    """Build the claim.

    Its predictions are those of the likelihood for the named hypotheses, otherwise those of the score.
    """
    parts: dict[str, MixturePart] = {}
    for verdict in sorted(attributions, key=lambda verdict: verdict.method == "likelihood"):
        parts |= {part.hypothesis: part for part in verdict.predicts} if verdict.method in STRICT else {}
    texts = {trial.bank[name].text for name in names if name in trial.bank}
    predicts = [part for text, part in parts.items() if text in texts]
    if refusal is not None:
        mine = next((attribution for attribution in attributions if attribution.method == "likelihood"), refusal)
        predicts = list(mine.predicts)
    elif not predicts:
        predicts = [MixturePart(hypothesis=text, weight=1.0) for text in sorted(texts)]
    total = float(np.sum([part.weight for part in predicts])) or 1.0
    details: dict[str, Any] = {
        "said": {attribution.method: [attribution.kind, *attribution.names] for attribution in attributions}
    }
    return Attribution(
        method=TOGETHER,
        kind=kind,
        names=tuple(names),
        sentence=words,
        predicts=tuple(part.model_copy(update={"weight": part.weight / total}) for part in predicts),
        details=details,
        turns=sum(attribution.turns for attribution in attributions),
    )
