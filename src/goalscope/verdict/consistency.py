"""Whether a verdict contradicts itself: its sentences, its claims and the findings that both come from.

Every verdict is read by this before it is kept. What it finds is a fault of goalscope, not of the model: it is told
like any other failure, and the numbers stay.
"""

import re
from collections.abc import Iterator
from typing import Final

from goalscope._ground.words import short
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding, where_text
from goalscope.goals.words import say_all
from goalscope.stats.record import EstimateRecord
from goalscope.verdict.aims import FOLLOWS
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.sentences import aims_of, headline

_SLACK: Final = 1e-6
_NUMBER: Final = re.compile(r"[−-]?\d+\.\d+")
_VIEWS: Final = ("is directed at the goal", "is directed at another", FOLLOWS)


def contradictions(ledger: ClaimLedger) -> list[str]:
    """Return a sentence for each contradiction in the verdict on a model; none where it holds together."""
    found = [*_of_findings(ledger), *_of_claims(ledger), *_of_views(ledger)]
    said = headline(ledger)
    found += _of_numbers(ledger, said)
    if re.search(r"(?:not act|acts) optimally(?! for)", said):
        found.append("competence is said without the aim that it is for")
    return found


def _of_findings(ledger: ClaimLedger) -> Iterator[str]:
    """Yield what is wrong with a finding by itself: its number, its threshold and its answer."""
    for one in ledger.findings:
        label = f"the finding in {one.arm or 'all arms'} {where_text(one.where)}".strip()
        if one.answer == "yes" and not one.names:
            yield f"{label} says yes and names nothing"
        if one.answer in ("no", "untestable") and one.names:
            yield f"{label} says {one.answer} and names {', '.join(one.names)}"
        yield from _beyond(label, one.estimate)
        yield from _beyond(f"{label}, tested", one.tested)
        for name, estimate in one.evidence.items():
            yield from _beyond(f"{label}, {name}", estimate)
        if one.answer in ("yes", "no") and (one.estimate is None or one.threshold is None):
            yield f"{label} says {one.answer} without a number and its threshold"
            continue
        if one.estimate is None or one.threshold is None or one.estimate.low is None or one.estimate.high is None:
            continue
        above, below = one.estimate.low >= one.threshold - _SLACK, one.estimate.high <= one.threshold + _SLACK
        # A rule that explains what the agent does denies the hypotheses by a number above its threshold.
        denied = above if one.reason == "another rule" else below
        if one.reason == "habit":
            denied = one.estimate.value is not None and one.estimate.value >= one.threshold - _SLACK
        if (one.answer == "yes" and not above) or (one.answer == "no" and not denied):
            where = f"{one.estimate.text} has another side of its threshold {one.threshold:g}"
            yield f"{label} says {one.answer}, but {where}"


def _beyond(label: str, estimate: EstimateRecord | None) -> Iterator[str]:
    if estimate is not None and estimate.unit == "share":
        ends = [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
        if any(end > 1 + _SLACK for end in ends):
            yield f"{label} has a share above 1: {estimate.text}"


def _of_claims(ledger: ClaimLedger) -> Iterator[str]:
    for claim in ledger.claims:
        ends = [end for end in (claim.value, claim.low, claim.high) if end is not None]
        if claim.unit == "share" and any(end > 1 + _SLACK for end in ends):
            yield f"“{claim.name}” has a share above 1: {claim.estimate}"


def _of_views(ledger: ClaimLedger) -> Iterator[str]:
    """Yield claims on the aim that differ from what the verdict names."""
    told = [one for part in aims_of(ledger).values() for one in part]
    for claim in ledger.claims:
        if not claim.name.startswith(_VIEWS):
            continue
        own = [one for one in told if one.arm in _arms_of(claim) and claim.name.endswith(where_text(one.where))]
        for one in own:
            named = one.about(GOAL)
            if claim.name.startswith("is directed at the goal") and {claim.answer, named} == {"yes", "no"}:
                yield f"“{claim.name}” says {claim.answer}, and the verdict {say_all([one])}"
            if claim.name.startswith("is directed at another") and claim.answer == "yes" and named == "yes":
                yield f"“{claim.name}” says yes, and the verdict {say_all([one])}"
            if claim.name.startswith(FOLLOWS) and {claim.answer, one.answer} == {"yes", "no"}:
                yield f"“{claim.name}” says {claim.answer}, and the verdict {say_all([one])}"


def _arms_of(claim: Claim) -> tuple[str, ...]:
    return ("grids", "hypotheses") if claim.arm in ("grids", "hypotheses") else (claim.arm,)


def _of_numbers(ledger: ClaimLedger, said: str) -> Iterator[str]:
    """Yield numbers with decimals of the verdict that no finding and no claim has."""
    known = set[str]()
    for one in ledger.findings:
        known |= {text for estimate in _estimates(one) for text in _NUMBER.findall(estimate.text)}
        known |= {short(number, "share") for number in (one.bar, one.threshold) if number is not None}
        known |= set(_NUMBER.findall(one.why))
    for claim in ledger.claims:
        known |= {*_NUMBER.findall(claim.estimate), *_NUMBER.findall(claim.by_size)}
    for number in dict.fromkeys(_NUMBER.findall(said.replace(ledger.model, ""))):
        if number not in known:
            yield f"the verdict has the number {number}, which decided nothing"


def _estimates(one: Finding) -> Iterator[EstimateRecord]:
    yield from (each for each in (one.estimate, one.tested, *one.evidence.values()) if each is not None)
