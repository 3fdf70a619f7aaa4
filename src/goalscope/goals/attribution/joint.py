"""Combine the verdicts of all methods into one claim that no method which measures the agent's noise contradicts.

Strict methods (`STRICT`) measure how much of its behaviour an agent repeats, so they can reject the whole bank. The
other methods cannot, and strict methods take precedence over them. The rules, in this order:

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

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from goalscope.goals.attribution.definition import Attribution, MixturePart, Said, Trial
from goalscope.goals.hypotheses import Hypothesis

TOGETHER: Final = "all together"
FOUNDED: Final = ("counterfactual", "score")
STRICT: Final = (*FOUNDED, "likelihood")
REFUSED: Final = ("none", "random", "habit")


def joint(attributions: Sequence[Attribution], trial: Trial) -> Attribution:
    """Combine the verdicts of several methods on one trial into a joint claim, see the module.

    Args:
        attributions: the verdicts of the methods.
        trial: the trial that they are about.
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
        counterfactual = next(
            (
                attribution
                for attribution in attributions
                if attribution.method == "counterfactual" and attribution.kind in ("named", "set")
            ),
            None,
        )
        chosen = [name for name in trial.bank if name in chosen or _acts_like(name, chosen, trial, counterfactual)]
        kind = "named" if len(chosen) == 1 else "set"
    words = f"{'partly ' if kind == 'partly' else ''}{' or '.join(chosen)}" if chosen else why
    return _claim(kind, chosen, words, attributions, trial, None)


def parts_of(rule: Hypothesis) -> set[str]:
    """Return the written forms of all hypotheses nested in a rule."""
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
    return (
        ()
        if counterfactual.score is None
        else next((score.not_told_from for score in counterfactual.score.scores if score.name == name), ())
    )


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
    for attribution in sorted(attributions, key=lambda attribution: attribution.method == "likelihood"):
        parts |= {part.hypothesis: part for part in attribution.predicts} if attribution.method in STRICT else {}
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
        predicts=tuple(
            MixturePart(
                hypothesis=part.hypothesis,
                weight=part.weight / total,
                strength=part.strength,
                rationality=part.rationality,
            )
            for part in predicts
        ),
        details=details,
        turns=sum(attribution.turns for attribution in attributions),
    )
