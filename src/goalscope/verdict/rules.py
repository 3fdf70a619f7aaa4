"""The decision rules: how an interval determines an answer.

Every rule compares an interval with one declared threshold: above it the answer is yes, below it no, and if the
interval contains it, undecided. Therefore a wrong yes or no is as rare as an interval that misses the true value. The
questions are in `questions`. Changing a question, a quantity or a threshold requires a new version
`RULES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from goalscope._ground import registry
from goalscope._ground.own import attempt
from goalscope.goals.finding import Answer
from goalscope.verdict.arms import GIVEN
from goalscope.verdict.claims import Claim
from goalscope.verdict.evidence import ArmData, Evidence
from goalscope.verdict.texts import TEXTS, WORDED, claim_texts

RULES: Final = 15
"""Version of the rules in this file, `goalscope.goals.decision`, `questions`, `aims`, `evidence`, `evidence_inside` and
`texts.yaml`.
"""

ALPHA: Final = 0.05
"""Maximum probability of a wrong answer to a claim over all looks at the data together."""

SPENT: Final = 0.8
"""Share of the remaining error budget that each look at the data spends."""


def level(look: int) -> float:
    """Return the maximum probability of a wrong answer per claim at one look at the data (alpha spending).

    It is .04 at the first look, .008 at the second, and so on, so that all looks together have at most `ALPHA`.

    Args:
        look: number of the look, from 1; each look has more worlds than the one before it.
    """
    return ALPHA * SPENT * (1 - SPENT) ** (look - 1)


MARGIN: Final = 0.1
"""Difference below which two shares count as equal, in all rules that compare shares."""


PLANTED: Final = TEXTS("checked/planted")
"""Description of the agents on which most claims were checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one claim is decided, that is, how the answer to one question about a model follows from an interval.

    Attributes:
        name: name of the claim.
        arm: the arm (part of an evaluation) that provides the evidence.
        question: the question in plain words.
        yes, no: the sentence for each answer.
        quantity: what is estimated.
        threshold: above it the answer is yes, below it no.
        compared: the baseline or control of the comparison.
        evidence: function from the data of the arm to the evidence, or to the evidence by group of worlds.
        section: anchor of the section on the page of the arm's run with more details.
        validity: how the claim was checked on agents whose goals are known.
        about_goals: whether the claim says more than how often turns contain an action.
        measure: the measure with the most influence, so that a viewer can show episodes with extreme values of it; or
            "".
    """

    name: str
    arm: str
    question: str
    yes: str
    no: str
    quantity: str
    threshold: float
    compared: str
    evidence: Callable[[ArmData], Evidence | Mapping[str, Evidence]]
    section: str = "results"
    validity: str = PLANTED
    about_goals: bool = True
    measure: str = ""


def claims_of(arm: str) -> list[str]:
    """Return the names of the claims that are decided from the data of one arm, which is a part of an evaluation."""
    return [name for name in registry.names("claim") if registry.resolve("claim", name).arm == arm]


_NO_FORMAT: Final = "more than half of its turns contain no valid move"


_Deciding = TypeVar("_Deciding", bound=Callable[[ArmData], Evidence | Mapping[str, Evidence]])


def claim(name: str, **declared: object) -> Callable[[_Deciding], _Deciding]:
    """Return a decorator that registers a claim: a question about a model that an evaluation answers.

    The answer is yes, no, undecided or untestable. The decorated function provides the evidence: it takes the
    `goalscope.verdict.ArmData` of an arm (part of an evaluation), whose methods (``share``, ``mean``, ``above_chance``,
    ...) return an `Evidence`.

    Args:
        name: name of the claim.
        declared: the other fields of `Rule`; validity, section, measure and about_goals are optional.

    Raises:
        ValueError: the name is taken, a field is missing or unknown, or the arm is unknown.
        TypeError: a field has the wrong type.
    """
    _check_declared(name, declared)

    def add(evidence: _Deciding) -> _Deciding:
        if declared["arm"] != GIVEN and not evidence.__module__.startswith("goalscope."):
            registry.resolve("arm", str(declared["arm"]))  # arms of goalscope register beside their claims
        registry.register("claim", name, made_of=evidence)(Rule(name=name, evidence=evidence, **declared))  # type: ignore[arg-type]
        return evidence

    return add


def question(
    arm: str,
    name: str,
    threshold: float,
    *,
    checked: str = "planted",
    fields: Mapping[str, str | int] | None = None,
    **declared: object,
) -> Callable[[_Deciding], _Deciding]:
    """Return a decorator that registers a claim of goalscope itself, whose sentences stand in the catalogue
    `texts.yaml`.

    Args:
        arm: the arm (part of an evaluation) that provides the evidence.
        name: name of the claim, which is also the key of its sentences.
        threshold: above it the answer is yes, below it no.
        checked: the entry of `checked` in `texts.yaml` that says on which agents the claim was checked.
        fields: values for further placeholders of the sentences.
        declared: the other fields of `Rule`.
    """
    texts = claim_texts(name, threshold, **(fields or {}))
    return claim(name, arm=arm, threshold=threshold, validity=TEXTS(f"checked/{checked}"), **texts, **declared)


_NEEDED: Final = ("arm", "question", "yes", "no", "quantity", "threshold", "compared")
_OPTIONAL: Final = ("section", "validity", "about_goals", "measure")
_TYPES: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "threshold": ((int, float), "a number"),
    "about_goals": (bool, "True or False"),
}


def _check_declared(name: str, declared: Mapping[str, object]) -> None:
    missing = [field for field in _NEEDED if field not in declared]
    if wrong := missing + [field for field in declared if field not in (*_NEEDED, *_OPTIONAL)]:
        raise ValueError(
            f"the claim {name!r} must declare {', '.join(_NEEDED)}, and may declare {', '.join(_OPTIONAL)}; "
            f"{'unknown' if wrong[0] in declared else 'missing'}: {wrong[0]}"
        )
    for field, value in declared.items():
        kind, called = _TYPES.get(field, (str, "text"))
        if not isinstance(value, kind):
            raise TypeError(f"{field} of the claim {name!r} must be {called}, got {type(value).__name__}")


def _evidence_by_group(rule: Rule, data: ArmData) -> Mapping[str, Evidence]:
    """Return the evidence of a claim by group of worlds; if there are no groups, under the name ""."""
    evidence = rule.evidence(data)
    by_group = evidence if isinstance(evidence, Mapping) else {"": evidence}
    if not all(isinstance(of_group, Evidence) for of_group in by_group.values()):
        raise TypeError(
            f"a claim must return an Evidence, or one for each group of worlds, got {type(evidence).__name__}"
        )
    return by_group


def decide(rule: Rule, data: ArmData) -> list[Claim]:
    """Decide a claim from a model's data in one arm (part of an evaluation): return one, or one per group of worlds."""
    if data.speechless and rule.about_goals:
        by_group: Mapping[str, Evidence] = {"": Evidence(why=_NO_FORMAT)}
    else:
        by_group = attempt(
            "claim", rule.name, lambda: _evidence_by_group(rule, data), lambda text: {"": Evidence(why=text)}
        )
    goal_noun = data.goal_noun if any("{goal}" in getattr(rule, name) for name in WORDED) else ""
    return [_claim(rule, evidence, group, goal_noun) for group, evidence in by_group.items()]


def _claim(rule: Rule, evidence: Evidence, group: str, goal_noun: str) -> Claim:
    def worded(text: str) -> str:
        return text.replace("{names}", evidence.names).replace("{goal}", goal_noun)

    threshold = rule.threshold if evidence.threshold is None else evidence.threshold
    answer = answer_of(evidence, threshold)
    says = {"yes": rule.yes, "no": rule.no, "undecided": TEXTS("answers/undecided")}.get(answer)
    says = says and worded(says)
    fields: dict[str, Any] = {name: worded(getattr(rule, name)) for name in ("arm", "compared", "validity", "section")}
    if evidence.estimate is not None:
        ends = ("low", "high") if evidence.estimate.has_interval else ()
        for name in ("value", *ends, "confidence", "unit", "clusters", "n", "method", "note"):
            fields[name] = getattr(evidence.estimate, name)
    return Claim(
        name=f"{rule.name}, {group}" if group else rule.name,
        question=_question(rule, worded(rule.question), group),
        answer=answer,
        says=says or TEXTS("answers/untestable", why=evidence.why.rstrip(".")),
        why=evidence.why if says is None else "",
        quantity=worded(evidence.quantity or rule.quantity) + (f" ({evidence.detail})" if evidence.detail else ""),
        threshold=None if answer == "untestable" and evidence.estimate is None else threshold,
        threshold_rule=evidence.threshold_rule or _of_several(evidence, threshold),
        p=evidence.p,
        names=evidence.names,
        by_size=evidence.by_size,
        subject=evidence.subject,
        **fields,
    )


def _of_several(evidence: Evidence, threshold: float) -> str:
    """Say that several intervals decided together, if the answer does not follow from the one that is shown."""
    alone = answer_of(replace(evidence, side=None), threshold)
    return "" if evidence.side in (None, alone) else TEXTS("page/several")


def _question(rule: Rule, question: str, group: str) -> str:
    """Return the question; the group of worlds is added unless the question already names a hypothesis."""
    if not group or "{names}" in rule.question:
        return question
    return TEXTS("answers/in worlds", question=question, where=group)


def answer_of(evidence: Evidence, threshold: float) -> Answer:
    """Return the answer that follows from the evidence for a claim.

    It is "untestable" without an estimate; "yes" or "no" if the interval lies above or below the threshold; otherwise
    "undecided". An answer that the evidence itself states takes precedence.
    """
    if evidence.estimate is None or evidence.why:
        return "untestable"
    if evidence.side:
        return evidence.side
    return "yes" if evidence.estimate.low > threshold else "no" if evidence.estimate.high < threshold else "undecided"
