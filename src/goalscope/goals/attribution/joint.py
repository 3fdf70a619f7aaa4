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


def joint(said: Sequence[Attribution], trial: Trial) -> Attribution:
    """Return the joint claim of some methods about one trial; see the module."""
    strict = {one.method: one for one in said if one.method in STRICT}
    names = {
        one.method: {name for name in one.names if name in trial.bank} for one in said if one.kind in ("named", "set")
    }
    common = _common(list(names.values())) or _common([given for method, given in names.items() if method in STRICT])
    refused = [strict[method] for method in STRICT if method in strict and strict[method].kind in REFUSED]
    kind: Said = "undecided"
    chosen, why = list[str](), "the methods have nothing in common"
    if refused:
        first = refused[0]
        habits = {name for name in common if trial.bank[name].kind == "table" and not parts_of(trial.bank[name])}
        if first.kind == "habit" and habits:
            chosen = sorted(habits)
        elif first.method in FOUNDED or not names.keys() & set(FOUNDED):
            return _claim(first.kind, list(first.names), f"{first.method}: {first.sentence}", said, trial, first)
        else:
            why = f"{first.method} excludes what the others name"
    elif part := [one for one in strict.values() if one.kind == "partly"]:
        parts = {name for one in part for name in one.names}
        others = [names[method] for method in strict if method in names]
        chosen = [name for name in common if name not in parts and parts_of(trial.bank[name]) & parts]
        chosen = chosen or (_common(others) if len(others) > 1 else [])
        if not chosen:
            kind, chosen = "partly", [name for name in trial.bank if name in parts]
    elif list(names) == ["likelihood"] and strict.keys() & set(FOUNDED):
        why = "the likelihood alone names something"
    else:
        chosen = common
    if kind != "partly" and chosen:
        told = next((one for one in said if one.method == "counterfactual" and one.kind in ("named", "set")), None)
        chosen = [name for name in trial.bank if name in chosen or _same(name, chosen, trial, told)]
        kind = "named" if len(chosen) == 1 else "set"
    words = f"{'partly ' if kind == 'partly' else ''}{' or '.join(chosen)}" if chosen else why
    return _claim(kind, chosen, words, said, trial, None)


def parts_of(rule: Hypothesis) -> set[str]:
    """Return the written forms of all places and hypotheses within a rule."""
    each = [part for given in rule.parts for part in (given if isinstance(given, tuple) else (given,))]
    inner = [part for part in each if isinstance(part, Hypothesis)]
    return {part.text for part in inner}.union(*(parts_of(part) for part in inner))


def _common(sets: Sequence[set[str]]) -> list[str]:
    return sorted(set.intersection(*sets)) if sets else []


def _same(name: str, chosen: Sequence[str], trial: Trial, told: Attribution | None) -> bool:
    """Return whether a hypothesis acts like a chosen one wherever the agent was seen, and no move told them apart."""
    found = trial.evidence
    here = found.names.index(name)
    for other in (found.names.index(one) for one in chosen):
        gap = found.common_size[:, here, other] - 2 * found.product[:, here, other] + found.common_size[:, other, here]
        shared = bool(((found.said[:, here] > 0) & (found.said[:, other] > 0)).any())
        if shared and not (gap > 1e-9).any():
            return told is None or name in told.names or name in _untold(told, found.names[other])
    return False


def _untold(told: Attribution, name: str) -> Sequence[str]:
    return () if told.score is None else next((one.not_told_from for one in told.score.scores if one.name == name), ())


def _claim(
    kind: Said, names: Sequence[str], words: str, said: Sequence[Attribution], trial: Trial, refusal: Attribution | None
) -> Attribution:
    """Return the claim, which predicts what the likelihood does of what is named, else what the score does."""
    parts: dict[str, PredictedPart] = {}
    for one in sorted(said, key=lambda one: one.method == "likelihood"):
        parts |= {part.hypothesis: part for part in one.predicts} if one.method in STRICT else {}
    texts = {trial.bank[name].text for name in names if name in trial.bank}
    predicts = [part for text, part in parts.items() if text in texts]
    if refusal is not None:
        mine = next((one for one in said if one.method == "likelihood"), refusal)
        predicts = list(mine.predicts)
    elif not predicts:
        predicts = [PredictedPart(hypothesis=text, weight=1.0) for text in sorted(texts)]
    total = float(np.sum([part.weight for part in predicts])) or 1.0
    details: dict[str, Any] = {"said": {one.method: [one.kind, *one.names] for one in said}}
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
        turns=sum(one.turns for one in said),
    )
