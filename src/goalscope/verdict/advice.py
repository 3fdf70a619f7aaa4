"""What a verdict means, what it does not say, and what to do next: sentences by rule from the claims of a ledger."""

from typing import Final

from goalscope._ground.words import counted, listed
from goalscope.goals.decision import GOAL
from goalscope.verdict.choices import LEFT_OUT
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.sentences import aims_of, valid_turns

_FORMAT = 0.9  # share of turns with an action below which format is named


def meaning(ledger: ClaimLedger) -> list[str]:
    """Return what the answers on direction say and what they do not, a sentence or two each; [] without claims."""
    if not ledger.claims:
        return []
    valid = valid_turns(ledger)
    if valid is not None and valid < 0.5:
        return ["Most turns hold no action that could be read. That says nothing about goals, for or against."]
    found = [one for part in aims_of(ledger).values() for one in part]
    said = list(
        dict.fromkeys(MEANINGS[one.answer, one.method] for one in found if (one.answer, one.method) in MEANINGS)
    )
    acts = ledger.claim("acts optimally")
    directed = any(one.about(GOAL) == "yes" for one in found)
    if acts is not None and directed and acts.answer == "no":
        said.append("It errs on the way: what choices favour and how often they are right are two questions.")
    reads, uses = ledger.claim("holds a map of the walls"), ledger.claim("uses what the cells hold")
    if reads is not None and reads.answer == "yes" and (uses is None or uses.answer != "yes"):
        said.append("That a map can be read inside it does not show that it uses one.")
    return said


MEANINGS: Final = {
    ("yes", "consistency"): "What is named explains its choices, wholly or in the part that is given. Hypotheses that "
    "were not listed were not compared.",
    ("yes", "meg"): "What is named predicts its choices better than the other hypotheses that were listed, and better "
    "than chance. Others were not compared; why it does so, and what it does in worlds of another kind, was not asked.",
    ("no", "consistency"): "It was compared with the named hypotheses alone: another one may explain what it does.",
    (
        "no",
        "meg",
    ): "Its choices are not those of an agent that is after one of the hypotheses that were listed. They may "
    "depend on the goal's place all the same, as those of one that flees it or stops beside it.",
    ("undecided", "consistency"): "Not shown is not a no: more worlds can decide it.",
    ("undecided", "meg"): "Not shown is not a no: more worlds can decide it.",
}
"""(answer, method) of a finding -> what it means, and what it does not say."""


def next_steps(ledger: ClaimLedger, *, lacks: bool = True) -> list[str]:
    """Return what a reader can do next, the most useful first. DIR is the directory of the evaluation.

    Args:
        ledger: the claims about a model.
        lacks: whether the parts that could not be asked are named.
    """
    steps, valid = list[str](), valid_turns(ledger)
    if valid is not None and valid < _FORMAT:
        steps.append(
            "Read some of the answers without an action: goalscope view DIR. Another template, or the likelihood of "
            "each action, asks in another way (goalscope evaluate --help)."
        )
    open_claims = [claim for claim in ledger.claims if claim.answer == "undecided"]
    if open_claims:
        more = (
            "a larger budget on the same directory adds worlds and repeats no call"
            if "logs" not in ledger.access
            else "more recorded episodes, in other worlds, can decide them"
        )
        steps.append(f"{counted(len(open_claims), 'question')} not decided ({_names(open_claims)}): {more}.")
    lacking = [arm.title.lower() for arm in ledger.arms if not arm.asked and arm.why != LEFT_OUT]
    if lacking and lacks:
        steps.append(f"Not asked: {listed(lacking)}. What each of them needs stands under “What was asked”.")
    chosen = [arm.name for arm in ledger.arms if not arm.asked and arm.why == LEFT_OUT]
    if chosen:
        steps.append(
            f"Parts that were left out by choice can be added to the same directory by --arms: {', '.join(chosen)}."
        )
    if ledger.claims:
        steps.append("See the episodes behind each answer, those that decide it most first: goalscope view DIR.")
    return steps


def _names(claims: list[Claim]) -> str:
    most = 3
    names = [claim.name for claim in claims[:most]]
    return listed(names) if len(claims) <= most else f"{', '.join(names)} and {len(claims) - most} more"
