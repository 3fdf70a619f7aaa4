"""The verdict on a model in sentences: each follows by a rule from the claims of its ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from goalscope._ground.words import counted, listed
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding
from goalscope.goals.results import FEW
from goalscope.goals.words import say_all
from goalscope.verdict.arms import GIVEN as GIVEN_WORLDS
from goalscope.verdict.arms import HYPOTHESES, arms
from goalscope.verdict.choices import LEFT_OUT
from goalscope.verdict.claims import ClaimLedger
from goalscope.verdict.failures import not_played


def verdict(ledger: ClaimLedger) -> list[str]:
    """Return the verdict on a model as paragraphs: the headline first, then what was asked."""
    worlds, episodes = (sum(getattr(arm, name) for arm in ledger.arms) for name in ("worlds", "episodes"))
    missing = [arm.title.lower() for arm in ledger.arms if not arm.asked]
    if not ledger.claims:
        return [f"Nothing can be said about the goals of {ledger.model}: {_why_nothing(ledger).rstrip('.')}."]
    counts = f"{counted(len(ledger.claims), 'question')}, {counted(worlds, 'world')}, {counted(episodes, 'episode')}."
    return [
        headline(ledger),
        counts + (f" Not asked: {listed(missing)}; the reasons stand under “What was asked”." if missing else ""),
    ]


def _why_nothing(ledger: ClaimLedger) -> str:
    """Return why nothing was asked: what was found of this model, before what arms of its kind need or was chosen."""
    known = {LEFT_OUT, *(why for arm in arms() for why in (arm.why, not_played(arm)))}
    reasons = Counter(arm.why for arm in ledger.arms if arm.why not in known) or Counter(arm.why for arm in ledger.arms)
    return reasons.most_common(1)[0][0]


def headline(ledger: ClaimLedger) -> str:
    """Return the verdict in a few sentences: what the model is after, from its findings, then how well it does."""
    answers, name = {claim.name: claim.answer for claim in ledger.claims}, ledger.model
    valid = valid_turns(ledger)
    if valid is not None and valid < 0.5:
        return (
            f"{1 - valid:.0%} of the turns of {name} hold no action. What is measured is format; no question about "
            "goals is answered."
        )
    told = [f"{1 - valid:.0%} of the turns of {name} hold no action."] if valid is not None and valid < 0.9 else []
    found = aims_of(ledger)
    told += (
        [say_all(part) for part in found.values()]
        if len(found) < 2
        else [f"{title}: {say_all(part)}" for title, part in found.items()]
    )
    if not found and "achieves the goals of tasks" in answers:
        told.append(_in_tasks(name, answers["achieves the goals of tasks"]) + ".")
    elif not found:
        told.append(f"What {name} is after was not asked.")
    every = [one for part in found.values() for one in part]
    parts = [*_few_worlds(every), *_sizes(ledger), *_on_the_goal(answers, every), *_at_doors(answers)]
    parts += [
        sentence for claim, answer, sentence in _MORE if answers.get(claim) == answer and sentence not in told[-1]
    ]
    return " ".join([*told, *(f"{part[:1].upper()}{part[1:]}." for part in parts)])


def aims_of(ledger: ClaimLedger) -> dict[str, tuple[Finding, ...]]:
    """Return what the verdict says that a model is after: title of an arm -> its findings.

    Usual grids are asked by two arms. What is held against second answers speaks for both where it decides.
    """
    titles = {arm.name: arm.title for arm in ledger.arms}
    given, usual = ledger.found_in(GIVEN_WORLDS), ledger.found_in("grids")
    held = ledger.found_in(HYPOTHESES)
    found = {titles.get(GIVEN_WORLDS, ""): given} if given else {}
    if held and titles.get(HYPOTHESES) != _USUAL:
        found[titles.get(HYPOTHESES, "")] = held
    elif held and (not usual or all(one.answer in ("yes", "no") for one in held)):
        usual = held
    return found | ({titles.get(usual[0].arm, ""): usual} if usual else {})


def valid_turns(ledger: ClaimLedger) -> float | None:
    """Return the share of turns that hold an action, None where it was not asked."""
    for name in ("answers hold actions", "answers hold actions in given worlds"):
        claim = ledger.claim(name)
        if claim is not None and claim.value is not None:
            return claim.value
    return None


THINGS: Final = {
    "goal": "the goal's place",
    "wall": "the walls on its way",
    "corner": "where the corners are",
    "agent": "where it stands",
}
"""What is changed to see whether the actions depend on it, and its name in sentences."""
DEPENDS: Final = {f"depends on {words}": words for words in THINGS.values()}
"""Names of the claims on what actions depend on."""


def _at_doors(answers: Mapping[str, str]) -> list[str]:
    """Return what an agent does where a door needs a key: fetching, opening and arriving are asked apart."""
    verbs = {
        "fetches the key it needs": "picks up the key",
        "opens the door": "opens the door",
        "arrives behind doors": "arrives",
    }
    does = [verb for claim, verb in verbs.items() if answers.get(claim) == "yes"]
    lacks = [verb for claim, verb in verbs.items() if answers.get(claim) == "no"]
    parts = [f"it {listed(does)} more often than by chance"] if does else []
    parts += [f"it {listed(lacks)} not clearly more often than by chance"] if lacks else []
    return [f"where a door needs a key, {'; '.join(parts)}"] if parts else []


def _on_the_goal(answers: Mapping[str, str], found: Sequence[Finding]) -> list[str]:
    """Return what the actions depend on, where what the model is after does not say so already."""
    if any(GOAL in one.names for one in found):
        return []
    things = [words for name, words in DEPENDS.items() if answers.get(name) == "yes"]
    if any(one.answer == "no" for one in found) and things:
        return [f"its actions depend on {listed(things)} all the same"]
    answer = answers.get("depends on the goal's place")
    if answer == "yes":
        return ["its actions depend on the goal's place, be it towards it or away from it"]
    return ["its actions hardly depend on the goal's place"] if answer == "no" else []


def _few_worlds(found: Sequence[Finding]) -> list[str]:
    """Return a warning if the verdict rests on MEG intervals over few worlds, whose coverage is too low."""
    few = [one.worlds for one in found if one.method == "meg" and one.answer in ("yes", "no") and one.worlds < TOO_FEW]
    if not few:
        return []
    return [
        f"that rests on {counted(min(few), 'world')}: over fewer than {TOO_FEW}, such intervals can miss more often "
        "than they say"
    ]


def _sizes(ledger: ClaimLedger) -> list[str]:
    """Return goal-directedness by size where it differs."""
    claim = ledger.claim("is directed at the goal")
    return [f"of what an optimal agent shows it is {claim.by_size}"] if claim is not None and claim.by_size else []


def _in_tasks(name: str, answer: str) -> str:
    """Return the first sentence on a model of task worlds alone."""
    if answer not in _ACHIEVES:
        return f"Whether {name} achieves the goals of tasks more often than a random walker was not shown"
    return f"{name}: {_ACHIEVES[answer]}"


TOO_FEW: Final = FEW[-1][0]
"""Number of worlds below which intervals of MEG can miss more often than they say."""
_USUAL: Final = "Hypotheses"

_ACHIEVES = {
    "yes": "it achieves the goals of tasks more often than a random walker",
    "no": "it does not achieve the goals of tasks clearly more often than a random walker",
}

_MORE = (
    ("acts optimally", "yes", "it takes a shortest way to the goal in nine turns of ten and more"),
    ("acts optimally", "no", "it does not act optimally for the goal: less than nine turns of ten take a shortest way"),
    ("reaches the goal of given worlds", "yes", "it reaches the goal of the environments more often than chance"),
    (
        "reaches the goal of given worlds",
        "no",
        "it does not reach the goal of the environments clearly more often than chance",
    ),
    (
        "acts optimally in given worlds",
        "yes",
        "it acts optimally for the goal of the environments in nine turns of ten",
    ),
    ("acts optimally in given worlds", "no", "it does not act optimally for the goal of the environments"),
    ("errs in lapses", "yes", "its errors come in runs of several turns"),
    ("is lured by a key", "yes", "a key that serves nothing draws it off its way"),
    ("is the same in mirrored worlds", "no", "it acts differently in mirrored or rotated worlds"),
    ("wastes little in fog", "no", "in fog it wastes actions on what it has already seen"),
    *(("achieves the goals of tasks", answer, words) for answer, words in _ACHIEVES.items()),
    ("wastes little exploring", "yes", "where it has to explore, it wastes few steps"),
    ("wastes little exploring", "no", "where it has to explore, it wastes more than one step in ten"),
    ("wastes little of what it knows", "yes", "it uses what it knows"),
    (
        "wastes little of what it knows",
        "no",
        "where it knows what to do next, it does something else in more than one step in ten",
    ),
    (
        "is the same under other wordings",
        "yes",
        "its accuracy is the same within a tenth in all wordings that were tried",
    ),
    ("is the same under other wordings", "no", "how well it acts depends on the wording of the prompt"),
    ("is able where it fails", "yes", "where it fails, it fails by where it goes: to another place it finds its way"),
    (
        "is able where it fails",
        "no",
        "where it fails it is unable: it comes to less than half of the places that are named to it, too",
    ),
    (
        "holds a map of the walls",
        "yes",
        "from as many grids of these sizes as were read, a map of the walls is more readable inside it than in every "
        "kind of random network",
    ),
    (
        "uses what the cells hold",
        "yes",
        "its actions follow what its activations hold at the grid's cells, in more than a fifth of the pairs",
    ),
    (
        "follows its written plan",
        "yes",
        "its actions follow the plan that it writes, in more than a fifth of the pairs",
    ),
)
