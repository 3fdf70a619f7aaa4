"""The verdict: what the claims of a ledger say together, in one paragraph, by rule."""

from goalscope.evaluation.claims import ClaimLedger
from goalscope.report.blocks import counted, listed
from goalscope.report.figures import short


def verdict(ledger: ClaimLedger) -> list[str]:
    """Return the verdict on a model as paragraphs: the headline first, then what was asked."""
    worlds, episodes = (sum(getattr(one, name) for one in ledger.arms) for name in ("worlds", "episodes"))
    missing = [one.title.lower() for one in ledger.arms if not one.asked]
    asked = f"{counted(len(ledger.claims), 'question')}, {counted(worlds, 'world')}, {counted(episodes, 'episode')}."
    return [
        headline(ledger),
        asked + (f" Not asked: {listed(missing)}; the reasons stand under “What was asked”." if missing else ""),
    ]


def headline(ledger: ClaimLedger) -> str:
    """Return the verdict in a few sentences."""
    answers = {one.name: one.answer for one in ledger.claims}

    def said(name: str, answer: str) -> bool:
        return answers.get(name) == answer

    name = ledger.model
    if said("answers hold actions", "no"):
        return f"{name} seldom answers with an action. What is measured is format; nothing can be said of goals."
    strength = _strength(ledger)
    if said("is directed at the goal", "yes") and said("prefers the goal to rivals", "yes"):
        parts = [f"{name} is directed at the goal{strength}, rather than at another place"]
    elif said("prefers the goal to rivals", "no"):
        parts = [f"{name} is after another place than the goal"]
    elif said("is directed at the goal", "yes"):
        parts = [f"{name} is directed at the goal{strength}; whether rather than at another place was not shown"]
    elif said("is directed at the goal", "no"):
        parts = [f"{name} is not directed at the goal"]
    else:
        parts = [f"What {name} is after was not shown"]
    for claim, answer, words in _MORE:
        if said(claim, answer):
            parts.append(words)
    return ". ".join([parts[0], *(f"{part[:1].upper()}{part[1:]}" for part in parts[1:])]) + "."


_MORE = (
    ("acts optimally", "yes", "it acts as an optimal agent would, nine turns of ten and more"),
    ("acts optimally", "no", "it does not act optimally"),
    ("errs in lapses", "yes", "its errors come in lapses of several turns"),
    ("is lured by a key", "yes", "a key that serves nothing draws it off its way"),
    ("fetches the key it needs", "yes", "it fetches a key where a door needs one"),
    ("fetches the key it needs", "no", "it hardly opens doors that need a key"),
    ("is the same in mirrored worlds", "no", "it acts differently in mirrored or rotated worlds"),
    ("wastes little in fog", "no", "in fog it wastes actions on what it has already seen"),
)


def _strength(ledger: ClaimLedger) -> str:
    one = ledger.claim("is directed at the goal")
    if one is None or one.value is None or one.low is None or one.high is None:
        return ""
    ends = f"[{short(one.low, one.unit)}, {short(one.high, one.unit)}]"
    return f" ({short(one.value, one.unit)} {ends} of what an optimal agent shows)"
