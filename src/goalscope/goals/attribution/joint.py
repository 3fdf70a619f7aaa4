"""All methods together: one claim that none of those which know the agent's own noise contradicts.

Methods that compare with what an agent would repeat (`STRICT`) can say that their bank is wrong; the others cannot, and
yield where they have nothing in common with them. In this order:

1. Score or counterfactual behaviour says *none*, *random* or *habit*: so it is. A habit does not contradict the name of
   a habit. The likelihood alone says *none*: so it is, unless one of these two names something; then it is undecided.
2. The names that all methods share; where there are none, those that all strict ones share. What the likelihood alone
   names, with score or counterfactual behaviour undecided, is undecided.
3. *Partly* h by a strict method leaves the name of a rule that h is a part of, such as h under a condition, and a name
   that two other strict methods give; any other name becomes *partly*.
4. Every hypothesis of the bank is added that acts like a name in all states in which the agent was seen, but for those
   that counterfactual behaviour told from it: no method has seen anything that speaks for one of them.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from goalscope.goals.attribution.definition import Attribution, PredictedPart, Said, Trial
from goalscope.goals.hypotheses import Hypothesis

TOGETHER: Final = "all together"
FOUNDED: Final = ("counterfactual", "score")
STRICT: Final = (*FOUNDED, "likelihood")
REFUSED: Final = ("none", "random", "habit")


def joint(attributions: Sequence[Attribution], trial: Trial) -> Attribution:
    """Return the joint claim of some methods about one trial; see the module."""
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
    """Return the written forms of all places and hypotheses within a rule."""
    flat = [part for member in rule.parts for part in (member if isinstance(member, tuple) else (member,))]
    inner = [part for part in flat if isinstance(part, Hypothesis)]
    return {part.text for part in inner}.union(*(parts_of(part) for part in inner))


def _common(sets: Sequence[set[str]]) -> list[str]:
    return sorted(set.intersection(*sets)) if sets else []


def _acts_like(name: str, chosen: Sequence[str], trial: Trial, counterfactual: Attribution | None) -> bool:
    """Return whether a hypothesis acts like a chosen one wherever the agent was seen, and no move told them apart."""
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
    """Return the claim, which predicts what the likelihood does of what is named, else what the score does."""
    parts: dict[str, PredictedPart] = {}
    for attribution in sorted(attributions, key=lambda attribution: attribution.method == "likelihood"):
        parts |= {part.hypothesis: part for part in attribution.predicts} if attribution.method in STRICT else {}
    texts = {trial.bank[name].text for name in names if name in trial.bank}
    predicts = [part for text, part in parts.items() if text in texts]
    if refusal is not None:
        mine = next((attribution for attribution in attributions if attribution.method == "likelihood"), refusal)
        predicts = list(mine.predicts)
    elif not predicts:
        predicts = [PredictedPart(hypothesis=text, weight=1.0) for text in sorted(texts)]
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
            PredictedPart(
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
