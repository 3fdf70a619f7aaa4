"""Word what agents are directed at: each sentence comes from a `Finding` and from the catalogue `goals/texts.yaml`."""

from collections.abc import Sequence
from typing import Final

from goalscope._ground.texts import Catalogue
from goalscope._ground.words import counted, listed, short
from goalscope.goals.finding import BehaviourPart, Finding

TEXTS: Final = Catalogue.of_package("goalscope.goals")
"""The sentences on findings."""

_TELLING: Final = {
    "straight": "straight to ",
    "walls": " by open moves",
    "distance": " within ",
    "side": " if it lies ",
}
"""Key of the sentence that says which worlds tell a made rival from a name -> what the form of the rival contains."""

_ERRORS: Final = 0.05
"""A sentence states the rates of errors if one of them is at least this."""


def say(finding: Finding, who: str = "") -> str:
    """Word a finding: the answer in its first sentence, then the figures behind it.

    Args:
        finding: the finding.
        who: the subject of the first sentence; the name of the agent by default, which is written as it stands.
    """
    return _join(_sentences(finding, who or finding.agent), finding.agent)


def say_all(findings: Sequence[Finding]) -> str:
    """Word all findings about one agent, one group of worlds after the other, in their order."""
    texts = list[str]()
    for number, finding in enumerate(findings):
        if not finding.where:
            texts.append(say(finding))
            continue
        where = " and ".join(f"{name} {value}" for name, value in finding.where.items())
        first, *others = _sentences(finding, "it" if number else finding.agent)
        phase = TEXTS("added/phase", where=where, sentence=first)
        texts.append(_join([phase, *others], finding.agent))
    return " ".join(texts)


def quantity_in_words(quantity: str, subject: str) -> str:
    """Say what a deciding number is of.

    Args:
        quantity: "consistency", "strength", "predictable", "meg" or "share", see `Finding.quantity`.
        subject: the hypothesis as a noun phrase; "" for "predictable", which is of none.
    """
    return _filled(f"quantities/{quantity}", subject=subject)


def _join(sentences: Sequence[str], agent: str) -> str:
    """Join sentences that have neither a capital letter nor a full stop; the name of an agent keeps its letters."""
    capital = (text if text.startswith(agent) else text[:1].upper() + text[1:] for text in sentences)
    return " ".join(f"{text.rstrip('.')}." for text in capital)


def _sentences(finding: Finding, who: str) -> list[str]:
    """Return the sentences of a finding, the answer first, without capital letters and full stops."""
    names = [finding.nouns.get(name, name) for name in finding.names]
    aims = listed(names, "and")
    rivals = [(key, name) for key, mark in _TELLING.items() for name in finding.alike if mark in name]
    alike = [
        _filled(f"made rivals/{key}", names=aims, side=name.partition(_TELLING["side"])[2]) for key, name in rivals
    ]
    fields = {
        "who": who,
        "whose": "its" if who == "it" else f"{who}'s",
        "names": listed([*names, *alike] if len(names) > 1 else names, "and"),
        "alike": listed(alike, "or"),
        "part": "" if finding.part is None else part_in_words(finding.part),
        "subject": finding.nouns.get(finding.subject, finding.subject),
        "worlds": counted(finding.worlds, "world"),
        "why": finding.why.rstrip("."),
    }
    key = _key(finding)
    answer = _filled(key, **fields)
    if finding.confirmed == "no":
        answer = TEXTS("tested/before", sentence=answer)
    telling = dict.fromkeys(f"told apart by/{key}" for key, _ in rivals)
    sentences = [answer, *(_filled(key, names=aims) for key in telling), *_figures(finding)]
    if finding.steps:
        steps = listed([finding.nouns.get(name, name) for name in finding.steps])
        sentences.append(TEXTS(f"added/{'several steps' if len(finding.steps) > 1 else 'one step'}", steps=steps))
    if finding.why and finding.answer == "undecided":
        sentences.append(finding.why)
    if finding.confirmed and finding.tested is not None and finding.bar is not None:
        bar = short(finding.bar, "share")
        sentences.append(TEXTS(f"tested/{finding.confirmed}", share=finding.tested.text, bar=bar))
    return sentences


def _filled(key: str, **fields: str) -> str:
    """Return a text of the catalogue with those of the fields that it has."""
    return TEXTS(key, **{field: value for field, value in fields.items() if field in TEXTS.fields(key)})


def part_in_words(part: BehaviourPart) -> str:
    """Say in which turns an agent follows a hypothesis, as in "in its first 3 turns"."""
    key = "parts/until first turn" if part.kind == "until turn" and part.limit == 1 else f"parts/{part.kind}"
    fields: dict[str, str | int] = {
        "limit": part.limit,
        "turns": counted(part.limit, "turn"),
        "steps": counted(part.limit, "step"),
        "rows": counted(part.limit, "row"),
        "side": part.side,
    }
    return TEXTS(key, **{field: fields[field] for field in TEXTS.fields(key)})


def _key(finding: Finding) -> str:
    """Return the key of the sentence with the answer. An agent follows a rule, but is directed at a goal."""
    key = f"findings/{finding.answer}/{finding.reason}"
    if finding.names and {*finding.names} <= {*finding.rules} and TEXTS.has(f"{key} rule"):
        return f"{key} rule"
    if finding.alike and TEXTS.has(f"{key} alike"):
        return f"{key} alike"
    if finding.method == "consistency" and TEXTS.has(f"{key} by consistency"):
        return f"{key} by consistency"
    return key


def _figures(finding: Finding) -> list[str]:
    """Return the sentences with the numbers behind an answer; none where nothing was measured."""
    if finding.reason == "random" and finding.estimate is not None:
        return [TEXTS("added/repeated", share=finding.estimate.text)]
    name = finding.names[0] if finding.names else finding.subject
    noun = finding.nouns.get(name, name)
    sentences = list[str]()
    share, errors = finding.figure("consistency", name), finding.figure("fixed errors", name)
    if finding.quantity == "strength" and finding.part is not None and finding.estimate is not None:
        elsewhere = finding.figure("elsewhere", name)
        fields = {"part": short(finding.part.share, "share"), "elsewhere": elsewhere.text if elsewhere else ""}
        sentences.append(TEXTS("added/in part", subject=noun, share=finding.estimate.text, **fields))
    elif finding.quantity == "strength" and finding.estimate is not None:
        sentences.append(TEXTS("added/followed", subject=noun, share=finding.estimate.text))
    elif share is not None and finding.method == "consistency":
        key = "added/consistency" if finding.answer == "yes" else "added/consistency in part"
        sentences.append(TEXTS(key, subject=noun, share=share.text))
    random = finding.figure("random errors", name)
    rates = [rate.value for rate in (errors, random) if rate is not None and rate.value is not None]
    if finding.names and errors is not None and random is not None and max(rates, default=0.0) >= _ERRORS:
        sentences.append(TEXTS("added/errors", fixed=errors.text, random=random.text))
    afterwards = finding.figure("afterwards", name)
    if afterwards is not None:
        sentences.append(TEXTS("added/afterwards", subject=noun, share=afterwards.text))
    nats = finding.figure("meg", name)
    if nats is not None:
        of_optimal = finding.figure("share", name)
        if of_optimal is not None and of_optimal.low is not None and of_optimal.low > 0:
            strength = TEXTS("added/strength of optimal", subject=noun, nats=nats.text, share=of_optimal.text)
        else:
            strength = TEXTS("added/strength", subject=noun, nats=nats.text)
        sentences.append(strength if finding.part is None else TEXTS("added/over all turns", sentence=strength))
    return sentences
