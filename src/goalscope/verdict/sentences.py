"""Word the verdict on a model; each sentence follows by a rule from the claims of its ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from goalscope._ground.words import counted, listed
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding, say_all
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.results import FEW
from goalscope.verdict.arms import GIVEN as GIVEN_WORLDS
from goalscope.verdict.arms import HYPOTHESES, NO_PROMPTS, arms
from goalscope.verdict.choices import LEFT_OUT
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.failures import not_played
from goalscope.verdict.texts import TEXTS, filled, percent


def verdict(ledger: ClaimLedger) -> list[str]:
    """Word the verdict on a model in paragraphs: the headline, then how much was asked."""
    if not ledger.claims:
        return [TEXTS("verdict/nothing", model=ledger.model, why=_why_nothing(ledger).rstrip("."))]
    worlds, episodes = (sum(getattr(arm, name) for arm in ledger.arms) for name in ("worlds", "episodes"))
    size = TEXTS(
        "verdict/counts",
        questions=counted(len(ledger.claims), "question"),
        worlds=counted(worlds, "world"),
        episodes=counted(episodes, "episode"),
    )
    scored = [finding for finding in ledger.found_in(GIVEN_WORLDS) if finding.method == "consistency"]
    prefix = "consistency "
    compared = {
        key.removeprefix(prefix): finding for finding in scored for key in finding.evidence if key.startswith(prefix)
    }
    names = sorted(compared, key=lambda name: (name != GOAL, name))  # not in the order of a file
    nouns = [compared[name].nouns.get(name) or noun_of(name) for name in names]
    missing = [arm.title.lower() for arm in ledger.arms if not arm.asked]
    return [
        headline(ledger),
        " ".join(
            [
                size,
                *([TEXTS("verdict/compared", names=listed(nouns))] if nouns else []),
                *([TEXTS("verdict/not asked", parts=listed(missing))] if missing else []),
            ]
        ),
    ]


def _why_nothing(ledger: ClaimLedger) -> str:
    """Say why nothing was asked. A problem of this model is preferred to what arms need or what the user left out."""
    usual = {LEFT_OUT, NO_PROMPTS, *(why for arm in arms() for why in (arm.why, not_played(arm)))}
    reasons = Counter(arm.why for arm in ledger.arms if arm.why not in usual) or Counter(arm.why for arm in ledger.arms)
    return reasons.most_common(1)[0][0]


def headline(ledger: ClaimLedger) -> str:
    """Word the verdict in a few sentences: what the model is directed at, from its findings, then how well it does."""
    answers, model = {claim.name: claim.answer for claim in ledger.claims}, ledger.model
    valid = valid_turns(ledger)
    invalid = "" if valid is None else f"{1 - valid:.0%}"
    if valid is not None and valid < 0.5:
        return TEXTS("verdict/no format", share=invalid, model=model)
    sentences = [TEXTS("verdict/some format", share=invalid, model=model)] if valid is not None and valid < 0.9 else []
    findings_by_arm = aims_of(ledger)
    if len(findings_by_arm) < 2:
        sentences += [_in_sizes(ledger, findings) for findings in findings_by_arm.values()]
    else:
        sentences += [
            TEXTS("verdict/arm", arm=title, sentence=_in_sizes(ledger, findings))
            for title, findings in findings_by_arm.items()
        ]
    if not findings_by_arm and TASKS in answers:
        sentences.append(_in_tasks(model, answers[TASKS]))
    elif not findings_by_arm:
        sentences.append(TEXTS("verdict/aim not asked", model=model))
    findings = [finding for group in findings_by_arm.values() for finding in group]
    sentences += [*_few_worlds(findings), *_sizes(ledger), *_on_the_goal(answers, findings), *_at_doors(answers)]
    for key in TEXTS.keys("also"):
        _, name, answer = key.split("/")
        if answers.get(name) == answer and not (name == TASKS and not findings_by_arm):
            claim = ledger.claim(name)
            sentences.append(_also(key, claim, findings) if claim is not None else "")
    return " ".join(sentences)


def _also(key: str, claim: Claim, findings: Sequence[Finding]) -> str:
    """Return the sentence that an answer adds to the verdict; the sentence states the threshold that was applied."""
    goal = next((finding.nouns[GOAL] for finding in findings if GOAL in finding.nouns), "the goal")
    threshold = claim.threshold or 0.0
    grids = counted(claim.clusters, "grid")
    return filled(key, threshold=f"{threshold:g}", percent=percent(threshold), grids=grids, goal=goal)


def aims_of(ledger: ClaimLedger) -> dict[str, tuple[Finding, ...]]:
    """Return the findings on what a model is directed at, by the title of their arm.

    In grids, two arms ask this. If the arm that compares hypotheses with second answers reaches a decision, it counts
    for both.
    """
    titles = {arm.name: arm.title for arm in ledger.arms}
    given_findings, usual = ledger.found_in(GIVEN_WORLDS), ledger.found_in("grids")
    compared = ledger.found_in(HYPOTHESES)
    findings = {titles.get(GIVEN_WORLDS, ""): given_findings} if given_findings else {}
    if compared and titles.get(HYPOTHESES) != _USUAL:
        findings[titles.get(HYPOTHESES, "")] = compared
    elif compared and (not usual or all(finding.answer in ("yes", "no") for finding in compared)):
        usual = compared
    return findings | ({titles.get(usual[0].arm, ""): usual} if usual else {})


def valid_turns(ledger: ClaimLedger) -> float | None:
    """Return the share of turns with a valid move, or None if it was not measured."""
    for name in ("answers hold actions", "answers hold actions in given worlds"):
        claim = ledger.claim(name)
        if claim is not None and claim.value is not None:
            return claim.value
    return None


THINGS: Final = {key.split("/")[1]: TEXTS(key) for key in TEXTS.keys("things")}
"""Thing that is changed to test dependence -> its name in sentences."""
DEPENDS: Final = {f"depends on {words}": words for words in THINGS.values()}
"""Names of the claims on what moves depend on."""


OWN_THINGS: Final = "depends on a thing of given worlds"
"""Name of the claims on things of an environment; that of the thing follows after a comma."""


def _at_doors(answers: Mapping[str, str]) -> list[str]:
    """Word what an agent does where a door needs a key; fetching it, opening the door and arriving are separate
    questions.
    """
    names = {key.split("/")[1]: None for key in TEXTS.keys("doors")}
    does = [TEXTS(f"doors/{name}/does") for name in names if answers.get(name) == "yes"]
    lacks = [TEXTS(f"doors/{name}/lacks") for name in names if answers.get(name) == "no"]
    sentences = [TEXTS("verdict/at doors", verbs=listed(does))] if does else []
    return sentences + ([TEXTS("verdict/not at doors", verbs=listed(lacks, "or"))] if lacks else [])


def _on_the_goal(answers: Mapping[str, str], findings: Sequence[Finding]) -> list[str]:
    """Return the sentence on what the moves depend on; "" if the goal of the model already implies it."""
    if any(GOAL in finding.names for finding in findings):
        return []
    own_things = {f"{OWN_THINGS}, {name}": f"“{name}”" for name in _own_things(answers)}
    things = [words for name, words in (DEPENDS | own_things).items() if answers.get(name) == "yes"]
    if any(finding.answer == "no" for finding in findings) and things:
        return [TEXTS("verdict/depends all the same", things=listed(things))]
    answer = answers.get("depends on the goal's place")
    if answer == "yes":
        return [TEXTS("verdict/depends on the goal")]
    return [TEXTS("verdict/independent of the goal")] if answer == "no" else []


def _own_things(answers: Mapping[str, str]) -> list[str]:
    """Return the things of an environment that were changed, in the words of its author."""
    return [name.partition(", ")[2] for name in answers if name.startswith(f"{OWN_THINGS}, ")]


def _few_worlds(findings: Sequence[Finding]) -> list[str]:
    """Return a warning if the verdict uses MEG intervals from few worlds, since such intervals are too narrow."""
    decided = [finding for finding in findings if finding.method == "meg" and finding.answer in ("yes", "no")]
    few = [finding.worlds for finding in decided if finding.worlds < TOO_FEW]
    return [TEXTS("verdict/few worlds", worlds=counted(min(few), "world"), enough=TOO_FEW)] if few else []


def sizes_of(ledger: ClaimLedger, finding: Finding) -> str:
    """Return the sizes of the grids that a finding rests on, as in "sizes 7 and 9", or "".

    They are named only if the model was also evaluated in other sizes and moves optimally more often in some sizes than
    in others, so that the finding need not be true of all of them.
    """
    claim = ledger.claim(LARGEST)
    sizes_by_arm = {arm.name: arm.sizes for arm in ledger.arms}
    sizes = sizes_by_arm.get(finding.arm, ())
    if claim is None or not claim.by_size or not sizes or set(sizes_by_arm.get(claim.arm, ())) <= set(sizes):
        return ""
    return f"size{'' if len(sizes) == 1 else 's'} {listed([str(size) for size in sizes])}"


def _in_sizes(ledger: ClaimLedger, findings: Sequence[Finding]) -> str:
    """Word the findings of an arm, beginning with the sizes of their grids where these have to be named."""
    sentence, sizes = say_all(findings), sizes_of(ledger, findings[0])
    if not sizes:
        return sentence
    keeps_capital = sentence.startswith(findings[0].agent)
    return TEXTS(
        "verdict/in sizes",
        sizes=sizes,
        sentence=sentence if keeps_capital else sentence[:1].lower() + sentence[1:],
    )


def _sizes(ledger: ClaimLedger) -> list[str]:
    """Return the sentence on how often moves are optimal by grid size ; [] if this does not differ."""
    claim = ledger.claim(LARGEST)
    return [TEXTS("verdict/sizes", by_size=claim.by_size)] if claim is not None and claim.by_size else []


def _in_tasks(model: str, answer: str) -> str:
    """Return the first sentence about a model that only played task worlds."""
    if not TEXTS.has(f"also/{TASKS}/{answer}"):
        return TEXTS("verdict/tasks undecided", model=model)
    sentence = TEXTS(f"also/{TASKS}/{answer}")
    return TEXTS("verdict/tasks", model=model, sentence=sentence[:1].lower() + sentence[1:])


LARGEST: Final = "holds in large worlds"
"""The claim on optimal moves in the largest grids, which knows whether sizes differ."""

TASKS: Final = "achieves the goals of tasks"
"""The claim on success in task worlds."""

TOO_FEW: Final = FEW[-1][0]
"""Number of worlds below which MEG intervals can miss more often than stated."""
_USUAL: Final = "Hypotheses"
