"""The sentences on what agents are after, each made from a `Finding`: there is no other place that words them."""

from collections.abc import Sequence
from typing import Final

from goalscope._ground.words import counted, listed, short
from goalscope.goals.finding import Finding

TEXTS: Final = {
    ("yes", "named"): "{who} {verb} {names}{figures}",
    ("yes", "partly"): "{who} {verb} {names} in a part of what it does{figures}",
    ("yes", "weakly or partly"): "{who} {verb} {names}, weakly or in a part of what it does{figures}",
    ("yes", "not told apart"): "{who} does what {names} call for{figures}; in these worlds they call for the same "
    "moves, so that it cannot be told which of them it is after",
    ("no", "habit"): "{who} is directed at none of the hypotheses: it acts by a habit, {subject}, and none of them "
    "explains its moves better",
    ("no", "random"): "{who} is directed at none of the hypotheses: it acts almost at random{figures}",
    ("no", "another rule"): "{who} is directed at none of the hypotheses: {subject}, which was not asked for, explains "
    "what it does better than each of them{figures}",
    ("no", "other"): "{who} is directed at none of the hypotheses: none of them explains {part} does{figures}",
    ("undecided", "not beaten"): "what {who} is after was not shown: {names} may each explain what it does{figures}",
    ("undecided", "weak"): "what {who} is after was not shown: no hypothesis was shown to explain what it does, and "
    "not all of them were excluded{figures}",
    ("undecided", "few worlds"): "what {who} is after was not shown: {worlds} cannot show it{figures}",
    ("untestable", "no action"): "what {who} is after cannot be told: {why}",
    ("untestable", "no process"): "what {who} is after cannot be told: {why}",
    ("untestable", "no utility"): "what {who} is after cannot be told: {why}",
}
"""(answer, reason) -> its sentence, without a full stop and a capital letter."""

STEPS: Final = ("{steps} is a step on every way there", "{steps} are steps on every way there")
"""What is added for one step, and for several."""

TESTED: Final = {
    "held": "tested in worlds that were opened afterwards, this held",
    "refuted": "tested in worlds that were opened afterwards, this was refuted",
    "open": "tested in worlds that were opened afterwards, this was not decided",
}
"""What is added where a claim was tested; the share of the gain and the bar stand behind it."""

QUANTITIES: Final = {
    "consistency": "consistency of {subject} with what it would repeat",
    "strength": "share of its answers that follow {subject}, the rest being random",
    "predictable": "share of its answers that it would repeat",
    "meg": "MEG towards {subject} less that towards the nearest other hypothesis",
    "share": "MEG towards {subject} as a share of what an optimal agent shows",
}
"""Quantity of a finding -> it in words."""


def say(finding: Finding, who: str = "") -> str:
    """Return a finding in words, one sentence with its full stop.

    Args:
        finding: the finding.
        who: the subject; the name of the agent by default, which is written as it stands.
    """
    text = _text(finding, who or finding.agent)
    return text if text.startswith(finding.agent) else text[:1].upper() + text[1:]


def say_all(findings: Sequence[Finding]) -> str:
    """Return a sentence about one agent for each group of worlds, in the order of the findings."""
    told = list[str]()
    for number, one in enumerate(findings):
        if not one.where:
            told.append(say(one))
            continue
        where = " and ".join(f"{name} {value}" for name, value in one.where.items())
        told.append(f"In worlds of {where}, {_text(one, 'it' if number else one.agent)}")
    return " ".join(told)


def _text(one: Finding, who: str) -> str:
    names = [one.nouns.get(name, name) for name in one.names]
    ruled = bool(one.names) and {*one.names} <= {*one.rules}
    parts = [
        TEXTS[one.answer, one.reason].format(
            who=who,
            verb="follows" if ruled else "is directed at",
            names=listed(names, "or" if one.reason == "partly" else "and"),
            subject=one.nouns.get(one.subject, one.subject),
            part="half of what it would repeat, and so of what it" if one.method == "consistency" else "what it",
            figures=_figures(one),
            worlds=counted(one.worlds, "world"),
            why=one.why,
        )
    ]
    if one.steps:
        parts.append(STEPS[len(one.steps) > 1].format(steps=listed([one.nouns.get(name, name) for name in one.steps])))
    if one.why and one.answer == "undecided":
        parts.append(one.why)
    if one.tested is not None and one.bar is not None:
        share = f"{one.tested.text} of the gain of an agent that is after nothing else, bar {short(one.bar, 'share')}"
        parts.append(f"{TESTED[one.held]} ({share})")
        if one.held == "refuted":
            parts[0] = f"in the worlds that were looked at, {parts[0]}"
    return "; ".join(parts) + "."


def _figures(one: Finding) -> str:
    """Return the numbers behind a sentence in brackets, "" for none."""
    if one.reason == "random" and one.estimate is not None:
        return f" ({one.estimate.text} of its answers would be repeated in the same state)"
    about = one.names[0] if one.names else one.subject
    told = list[str]()
    if (share := one.figure("consistency", about)) is not None and one.method == "consistency":
        told.append(f"explains {share.text} of what it would repeat")
    if (nats := one.figure("meg", about)) is not None:
        told.append(f"MEG {nats.text} nats an episode")
        of_optimal = one.figure("share", about)
        if of_optimal is not None and of_optimal.low is not None and of_optimal.low > 0:
            told.append(f"{of_optimal.text} of an optimal agent's")
    # The name is repeated where the sentence does not say of which hypothesis the figures are.
    noun = "" if len(one.names) == 1 or not told else f"{one.nouns.get(about, about)}: "
    return f" ({noun}{', '.join(told)})" if told else ""
