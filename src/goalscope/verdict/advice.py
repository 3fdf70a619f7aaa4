"""Say what a verdict means, what it does not show, and what to do next; all by rules on the claims of a ledger."""

from goalscope._ground.words import counted, listed
from goalscope.goals.decision import GOAL
from goalscope.verdict.choices import LEFT_OUT
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.sentences import aims_of, valid_turns
from goalscope.verdict.texts import TEXTS

_FORMAT = 0.9  # share of turns with an action below which format is named


def meaning(ledger: ClaimLedger) -> list[str]:
    """Explain the answers on what the agent is directed at: what they mean and what they do not show. [] without
    claims.
    """
    if not ledger.claims:
        return []
    valid = valid_turns(ledger)
    if valid is not None and valid < 0.5:
        return [TEXTS("meaning/no format")]
    findings = [finding for group in aims_of(ledger).values() for finding in group]
    keys = dict.fromkeys(f"meaning/{finding.answer}/{finding.method}" for finding in findings)
    sentences = [TEXTS(key) for key in keys if TEXTS.has(key)]
    acts = ledger.claim("acts optimally")
    directed = any(finding.about(GOAL) == "yes" for finding in findings)
    if acts is not None and directed and acts.answer == "no":
        sentences.append(TEXTS("meaning/directed with errors"))
    reads, uses = ledger.claim("holds a map of the walls"), ledger.claim("uses what the cells hold")
    if reads is not None and reads.answer == "yes" and (uses is None or uses.answer != "yes"):
        sentences.append(TEXTS("meaning/map not used"))
    return sentences


def next_steps(ledger: ClaimLedger, *, lacks: bool = True, program: str = "goalscope") -> list[str]:
    """List what a reader can do next, the most useful step first. DIR stands for the directory of the evaluation.

    Args:
        ledger: the claims about a model.
        lacks: whether to name the parts that could not be asked.
        program: the beginning of commands that read the runs, see `own.program_for`.
    """
    steps, valid = list[str](), valid_turns(ledger)
    if valid is not None and valid < _FORMAT:
        steps.append(TEXTS("next/format", program=program))
    undecided = [claim for claim in ledger.claims if claim.answer == "undecided"]
    if undecided:
        more = TEXTS("next/more logs" if "logs" in ledger.access else "next/more budget")
        questions = counted(len(undecided), "question")
        steps.append(TEXTS("next/undecided", questions=questions, names=_names(undecided), more=more))
    lacking = [arm.title.lower() for arm in ledger.arms if not arm.asked and arm.why != LEFT_OUT]
    if lacking and lacks:
        steps.append(TEXTS("next/not asked", parts=listed(lacking)))
    left_out = [arm.name for arm in ledger.arms if not arm.asked and arm.why == LEFT_OUT]
    if left_out:
        steps.append(TEXTS("next/left out", arms=", ".join(left_out)))
    if ledger.claims:
        steps.append(TEXTS("next/look", program=program))
    return steps


def _names(claims: list[Claim]) -> str:
    most = 2
    names = [f"“{claim.question}”" for claim in claims[:most]]
    if len(claims) <= most:
        return listed(names)
    return TEXTS("next/and more", names=", ".join(names), count=len(claims) - most)
