"""The decision rules: how an answer follows from an interval.

Every rule holds an interval against one declared threshold: above it the answer is yes, below it no, across it "not
shown". So a wrong yes or no is as rare as the interval is wrong, whatever the truth. The questions stand in
`questions` and `inside`; a change of a question, a quantity or a threshold is a new version `RULES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from goalscope import registry
from goalscope.evaluation.claims import Answer, Claim
from goalscope.evaluation.evidence import ArmData, Evidence
from goalscope.parts import attempt

RULES: Final = 7
"""Version of the rules in this file, in `goalscope.evaluation.questions` and in `goalscope.evaluation.inside`."""

ALPHA: Final = 0.05
"""Greatest chance of a wrong answer to a claim over all looks at the data together."""

SPENT: Final = 0.8
"""What each look at the data spends of the chance that is left."""


def level(look: int) -> float:
    """Return the chance of a wrong answer that a look may have: .04, .008, ...; over all looks together `ALPHA`."""
    return ALPHA * SPENT * (1 - SPENT) ** (look - 1)


MARGIN: Final = 0.1
"""Difference of two shares below which they count as equal, in all rules that compare shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one claim is decided.

    Attributes:
        name: its name.
        arm: the arm of the evaluation that it rests on.
        question: the question in plain words.
        yes, no: what each answer says.
        quantity: what is estimated.
        threshold: above it yes, below it no.
        compared: what it is compared with.
        section: anchor of the section on the page of the arm's run that shows more.
        validity: the check on agents whose goals are known.
        evidence: returns what decides, from the data of the arm.
        about_goals: whether it says anything else than how often turns hold an action.
        measure: the measure whose values by episode decide most, so that a viewer can show these; "" for none.
    """

    name: str
    arm: str
    question: str
    yes: str
    no: str
    quantity: str
    threshold: float
    compared: str
    section: str
    validity: str
    evidence: Callable[[ArmData], Evidence]
    about_goals: bool = True
    measure: str = ""


_NO_FORMAT: Final = "more than half of its turns hold no action"
PLANTED: Final = "27 scripted agents whose goals are known, 100 seeds each (docs/evaluate.md)"
TASKS: Final = "scripted agents of task maps, 100 seeds each (docs/evaluate.md)"
READERS: Final = "scripted agents that read their instruction, 20 seeds each (docs/evaluate.md)"
ENVIRONMENTS: Final = "scripted agents of environments (tests/evaluation/test_given_worlds.py)"


def claim(name: str, **declared: object) -> Callable[[Callable[[ArmData], Evidence]], Callable[[ArmData], Evidence]]:
    """Return a decorator that registers the rule of a claim; it stands above the function that returns its evidence.

    Args:
        name: the claim's name.
        declared: the other fields of `Rule`.

    Raises:
        ValueError: a name that is taken.
    """

    def add(evidence: Callable[[ArmData], Evidence]) -> Callable[[ArmData], Evidence]:
        fields = {"validity": PLANTED, "section": "results", **declared}
        registry.register("claim", name, made_of=evidence)(Rule(name=name, evidence=evidence, **fields))  # type: ignore[arg-type]
        return evidence

    return add


def decide(rule: Rule, data: ArmData) -> Claim:
    """Return the claim of a rule on the data of its arm."""
    if data.speechless and rule.about_goals:
        evidence = Evidence(why=_NO_FORMAT)
    else:
        evidence = attempt("claim", rule.name, lambda: rule.evidence(data), lambda sentence: Evidence(why=sentence))
    answer = answer_of(evidence, rule.threshold)
    says = {"yes": rule.yes, "no": rule.no, "not shown": "The data do not decide it."}.get(answer)
    says = says and says.replace("{names}", evidence.names)
    names = ("name", "arm", "question", "threshold", "compared", "validity", "section")
    fields = {name: getattr(rule, name) for name in names}
    if evidence.estimate is not None:
        ends = ("low", "high") if evidence.estimate.has_interval else ()
        for name in ("value", *ends, "confidence", "unit", "clusters", "n", "method", "note"):
            fields[name] = getattr(evidence.estimate, name)
    return Claim(
        answer=answer,
        says=says or f"It cannot be told: {evidence.why}.",
        why=evidence.why if says is None else "",
        quantity=rule.quantity + (f" ({evidence.detail})" if evidence.detail else ""),
        p=evidence.p,
        names=evidence.names,
        by_size=evidence.by_size,
        **fields,
    )


def answer_of(evidence: Evidence, threshold: float) -> Answer:
    """Return on which side of a threshold the interval of some evidence lies."""
    if evidence.estimate is None or evidence.why:
        return "cannot be told"
    if evidence.side:
        return evidence.side
    return "yes" if evidence.estimate.low > threshold else "no" if evidence.estimate.high < threshold else "not shown"
