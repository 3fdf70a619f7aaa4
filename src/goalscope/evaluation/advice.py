"""What a verdict means, what it does not say, and what to do next: sentences by rule from the claims of a ledger."""

from collections.abc import Iterator

from goalscope.evaluation.choices import LEFT_OUT
from goalscope.evaluation.claims import Claim, ClaimLedger
from goalscope.evaluation.sentences import FOLLOWS, GIVEN, GRIDS, PlaceClaims, valid_turns
from goalscope.report.blocks import counted, listed

_FORMAT = 0.9  # share of turns with an action below which format is named


def meaning(ledger: ClaimLedger) -> list[str]:
    """Return what the answers on direction say and what they do not, a sentence or two each; [] without claims."""
    if not ledger.claims:
        return []
    valid = valid_turns(ledger)
    if valid is not None and valid < 0.5:
        return ["Most turns hold no action that could be read. That says nothing about goals, for or against."]
    said = [text for about in (GRIDS, GIVEN) for text in _directions(ledger, about)]
    follows = ledger.claim(FOLLOWS)
    if not said and follows is not None:
        said.append(_FOLLOWED[follows.answer])
    acts = ledger.claim("acts optimally")
    directed = ledger.claim(GRIDS.directed)
    if acts is not None and directed is not None and (directed.answer, acts.answer) == ("yes", "no"):
        said.append("It errs on the way: what choices favour and how often they are right are two questions.")
    reads, uses = ledger.claim("holds a map of the walls"), ledger.claim("uses what the cells hold")
    if reads is not None and reads.answer == "yes" and (uses is None or uses.answer != "yes"):
        said.append("That a map can be read inside it does not show that it uses one.")
    return said


_FOLLOWED = {
    "yes": "What is named explains its choices, wholly or in the part that is given. Hypotheses that were not listed "
    "were not compared.",
    "no": "It was compared with the named hypotheses alone: another one may explain what it does.",
    "not shown": "Not shown is not a no: more worlds can decide it.",
    "cannot be told": "These worlds do not decide between the hypotheses: others can.",
}


def _directions(ledger: ClaimLedger, about: PlaceClaims) -> Iterator[str]:
    """Yield what follows from the claims on the goal and its rivals in one kind of worlds."""
    goal, other = ledger.claim(about.directed), ledger.claim(about.elsewhere)
    if other is not None and other.answer == "yes":
        yield f"In these worlds its choices favour {other.names}. Places that were not named were not compared."
    elif goal is not None and goal.answer == "yes":
        yield (
            f"In these worlds its choices favour {about.goal}: knowing that place predicts them better than chance. "
            "Why it does so, and what it does in worlds of another kind, was not asked."
        )
    elif goal is not None and goal.answer == "no":
        yield (
            f"Its choices are not those of an agent that wants to be at {about.goal}. They may depend on its place all "
            "the same, as those of one that flees it or stops beside it. Places that were not named were not compared."
        )
    elif goal is not None and goal.answer == "not shown":
        yield "Not shown is not a no: more worlds can move it to either side."
    elif goal is not None:
        yield f"Whether it is directed at {about.goal} cannot be told from these worlds; others can tell."


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
    open_claims = [claim for claim in ledger.claims if claim.answer == "not shown"]
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
