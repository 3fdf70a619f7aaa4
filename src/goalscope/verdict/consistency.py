"""Check that a verdict does not contradict itself: its sentences, its claims and the findings behind both.

Every verdict is checked before it is saved. A contradiction is a fault of goalscope, not of the model: it is reported
as a failure that no repetition mends, and the numbers are kept.
"""

import re
from collections.abc import Iterator
from typing import Final

from goalscope._ground.words import short
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding, say_all, where_text
from goalscope.stats.records import EstimateRecord
from goalscope.verdict.aims import FOLLOWS
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.sentences import aims_of, headline
from goalscope.verdict.texts import percent

_SLACK: Final = 1e-6
_NUMBER: Final = re.compile(r"[−-]?\d+\.\d+")
_VIEWS: Final = ("is directed at the goal", "is directed at another", FOLLOWS)


def contradictions(ledger: ClaimLedger) -> list[str]:
    """Return one sentence for each contradiction in the verdict on a model; empty if there is none."""
    sentences = [*_of_findings(ledger), *_of_claims(ledger), *_of_views(ledger)]
    verdict_text = headline(ledger)
    sentences += _of_numbers(ledger, verdict_text)
    if re.search(r"(?:not act|acts) optimally(?! for)", verdict_text):
        sentences.append("competence is said without the aim that it is for")
    return sentences


def _of_findings(ledger: ClaimLedger) -> Iterator[str]:
    """Yield the errors of findings whose answer does not follow from their number and threshold."""
    for finding in ledger.findings:
        label = f"the finding in {finding.arm or 'all arms'} {where_text(finding.where)}".strip()
        if finding.answer == "yes" and not finding.names:
            yield f"{label} says yes and names nothing"
        if finding.answer in ("no", "untestable") and finding.names:
            yield f"{label} says {finding.answer} and names {', '.join(finding.names)}"
        yield from _beyond(label, finding.estimate)
        yield from _beyond(f"{label}, tested", finding.tested)
        for name, estimate in finding.evidence.items():
            yield from _beyond(f"{label}, {name}", estimate)
        if finding.answer in ("yes", "no") and (finding.estimate is None or finding.threshold is None):
            yield f"{label} says {finding.answer} without a number and its threshold"
            continue
        if (
            finding.estimate is None
            or finding.threshold is None
            or finding.estimate.low is None
            or finding.estimate.high is None
        ):
            continue
        above, below = (
            finding.estimate.low >= finding.threshold - _SLACK,
            finding.estimate.high <= finding.threshold + _SLACK,
        )
        # A rule that explains what the agent does denies the hypotheses by a number above its threshold.
        denied = above if finding.reason == "another rule" else below
        if finding.reason == "habit":
            denied = finding.estimate.value is not None and finding.estimate.value >= finding.threshold - _SLACK
        if (finding.answer == "yes" and not above) or (finding.answer == "no" and not denied):
            conflict = f"{finding.estimate.text} has another side of its threshold {finding.threshold:g}"
            yield f"{label} says {finding.answer}, but {conflict}"


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
    """Yield the claims about the agent's aim that contradict what the verdict names."""
    findings = [finding for part in aims_of(ledger).values() for finding in part]
    for claim in ledger.claims:
        if not claim.name.startswith(_VIEWS):
            continue
        own_findings = [
            finding
            for finding in findings
            if finding.arm in _arms_of(claim) and claim.name.endswith(where_text(finding.where))
        ]
        for finding in own_findings:
            named = finding.about(GOAL)
            if claim.name.startswith("is directed at the goal") and {claim.answer, named} == {"yes", "no"}:
                yield f"“{claim.name}” says {claim.answer}, and the verdict {say_all([finding])}"
            if claim.name.startswith("is directed at another") and claim.answer == "yes" and named == "yes":
                yield f"“{claim.name}” says yes, and the verdict {say_all([finding])}"
            if claim.name.startswith(FOLLOWS) and {claim.answer, finding.answer} == {"yes", "no"}:
                yield f"“{claim.name}” says {claim.answer}, and the verdict {say_all([finding])}"


def _arms_of(claim: Claim) -> tuple[str, ...]:
    return ("grids", "hypotheses") if claim.arm in ("grids", "hypotheses") else (claim.arm,)


def _of_numbers(ledger: ClaimLedger, verdict_text: str) -> Iterator[str]:
    """Yield decimal numbers in the verdict that no finding and no claim contains."""
    texts = [*(report.title for report in ledger.arms)]
    for finding in ledger.findings:
        texts += _texts_of_finding(finding)
    for claim in ledger.claims:
        # Thresholds stand in sentences as a number or as a percentage; names are those of an author's things.
        texts += [claim.estimate, claim.by_size, claim.name, claim.names]
        texts += [] if claim.threshold is None else [f"{claim.threshold:g}", percent(claim.threshold)]
    known_numbers = {number for text in texts for number in _NUMBER.findall(text)}
    for number in dict.fromkeys(_NUMBER.findall(verdict_text.replace(ledger.model, ""))):
        if number not in known_numbers:
            yield f"the verdict has the number {number}, which decided nothing"


def _texts_of_finding(finding: Finding) -> Iterator[str]:
    """Yield the texts of a finding from which its sentences take numbers, including names that authors gave."""
    estimates = (finding.estimate, finding.tested, *finding.evidence.values())
    yield from (estimate.text for estimate in estimates if estimate is not None)
    shares = [finding.bar, finding.threshold, *([finding.part.share] if finding.part is not None else [])]
    yield from (short(share, "share") for share in shares if share is not None)
    yield from (finding.why, where_text(finding.where), finding.agent, *finding.nouns.values())
    # A hypothesis without a noun phrase is called by its name.
    yield from (name for name in (*finding.names, finding.subject) if name not in finding.nouns)
