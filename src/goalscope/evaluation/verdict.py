"""The verdict: what the claims of a ledger say together, in one paragraph, by rule."""

from collections.abc import Mapping

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
    if said("answers hold actions", "no") or said("answers hold actions in given worlds", "no"):
        return f"{name} seldom answers with an action. What is measured is format; nothing can be said of goals."
    strength = _strength(ledger)
    if "is directed at the goal of given worlds" in answers:
        parts = [_in_given_worlds(ledger, answers)]
    elif "is directed at the goal" not in answers and "achieves the goals of tasks" in answers:
        parts = [_in_tasks(name, answers["achieves the goals of tasks"])]
    elif said("is directed at the goal", "yes") and said("prefers the goal to rivals", "yes"):
        parts = [f"{name} is directed at the goal{strength}, rather than at a corner of the grid"]
    elif said("prefers the goal to rivals", "no"):
        parts = [f"{name} is after a corner of the grid rather than the goal"]
    elif said("is directed at the goal", "yes"):
        parts = [f"{name} is directed at the goal{strength}; whether rather than at a corner of the grid was not shown"]
    elif said("is directed at the goal", "no"):
        parts = [f"{name} is not directed at the goal"]
    else:
        parts = [f"What {name} is after was not shown"]
    for claim, answer, words in _MORE:
        if said(claim, answer) and words not in parts[0]:
            parts.append(words)
    return ". ".join([parts[0], *(f"{part[:1].upper()}{part[1:]}" for part in parts[1:])]) + "."


def _in_given_worlds(ledger: ClaimLedger, answers: Mapping[str, str]) -> str:
    """Return the first sentence on a model of given environments."""
    name, strength = ledger.model, _strength(ledger, "is directed at the goal of given worlds")
    directed = answers["is directed at the goal of given worlds"]
    rather = answers.get("prefers the goal to others in given worlds")
    if rather == "no":
        return f"{name} is after another goal that the environments name rather than their own"
    if directed == "yes":
        others = ", rather than at another that they name" if rather == "yes" else ""
        return f"{name} is directed at the goal of the environments{strength}{others}"
    if directed == "no":
        return f"{name} is not directed at the goal of the environments"
    return f"What {name} is after in the environments was not shown"


def _in_tasks(name: str, answer: str) -> str:
    """Return the first sentence on a model of task worlds alone."""
    if answer not in _ACHIEVES:
        return f"Whether {name} achieves the goals of tasks more often than a random walker was not shown"
    return f"{name}: {_ACHIEVES[answer]}"


_ACHIEVES = {
    "yes": "it achieves the goals of tasks more often than a random walker",
    "no": "it does not achieve the goals of tasks clearly more often than a random walker",
}

_MORE = (
    ("acts optimally", "yes", "it acts as an optimal agent would, nine turns of ten and more"),
    ("acts optimally", "no", "it does not act optimally"),
    ("reaches the goal of given worlds", "yes", "it reaches their goal more often than chance"),
    ("reaches the goal of given worlds", "no", "it does not reach their goal clearly more often than chance"),
    ("acts optimally in given worlds", "yes", "it acts as an optimal agent would, nine turns of ten and more"),
    ("acts optimally in given worlds", "no", "it does not act optimally"),
    ("errs in lapses", "yes", "its errors come in lapses of several turns"),
    ("is lured by a key", "yes", "a key that serves nothing draws it off its way"),
    ("fetches the key it needs", "yes", "it fetches a key where a door needs one"),
    ("fetches the key it needs", "no", "it hardly opens doors that need a key"),
    ("is the same in mirrored worlds", "no", "it acts differently in mirrored or rotated worlds"),
    ("wastes little in fog", "no", "in fog it wastes actions on what it has already seen"),
    *(("achieves the goals of tasks", answer, words) for answer, words in _ACHIEVES.items()),
    ("wastes little exploring", "yes", "where it has to explore, it wastes few steps"),
    ("wastes little exploring", "no", "where it has to explore, it wastes more than one step in ten"),
    ("wastes little of what it knows", "yes", "it uses what it knows"),
    ("wastes little of what it knows", "no", "where it knows what to do next, it often does something else"),
    ("is the same under other wordings", "yes", "it acts alike however the prompt is worded"),
    ("is the same under other wordings", "no", "how well it acts depends on the wording of the prompt"),
    ("is able where it fails", "yes", "where it fails it is able to do better, and does not"),
    (
        "is able where it fails",
        "no",
        "where it fails it is unable: it does not come to places that are named either",
    ),
    ("holds a map of the walls", "yes", "training made a map of the walls readable inside"),
    ("uses what the cells hold", "yes", "its actions follow what its activations hold at the grid's cells"),
    ("follows its written plan", "yes", "its actions follow the plan that it writes"),
)


def _strength(ledger: ClaimLedger, claim: str = "is directed at the goal") -> str:
    one = ledger.claim(claim)
    if one is None or one.value is None or one.low is None or one.high is None:
        return ""
    ends = f"[{short(one.low, one.unit)}, {short(one.high, one.unit)}]"
    return f" ({short(one.value, one.unit)} {ends} of what an optimal agent shows)"
