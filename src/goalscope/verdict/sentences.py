"""Word the verdict on a model: what was found, what it means, what to do next, and what the model is.

Each sentence follows by a rule from the claims of its ledger.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from goalscope._ground.ids import content_id
from goalscope._ground.words import counted, listed
from goalscope.agents import prompts
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding, say_all
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.results import FEW
from goalscope.runs.store import Store
from goalscope.verdict.arms import GIVEN as GIVEN_WORLDS
from goalscope.verdict.arms import HYPOTHESES, NO_PROMPTS, arms
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.failures import not_played
from goalscope.verdict.plan import LEFT_OUT
from goalscope.verdict.texts import TEXTS, filled, percent
from goalscope.worlds.grid import LISTS


def verdict(ledger: ClaimLedger) -> list[str]:
    """Put the verdict on a model into words: a paragraph with the answer, and one on how much was asked.

    Args:
        ledger: the claims about the model. Without any, the only paragraph says why nothing was asked.
    """
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
    extent = [size]
    if nouns:
        extent.append(TEXTS("verdict/compared", names=listed(nouns)))
    if missing:
        extent.append(TEXTS("verdict/not asked", parts=listed(missing)))
    return [headline(ledger), " ".join(extent)]


def _why_nothing(ledger: ClaimLedger) -> str:
    """Say why nothing was asked. A problem of this model is preferred to what arms need or what the user left out."""
    usual = {LEFT_OUT, NO_PROMPTS, *(why for arm in arms() for why in (arm.why, not_played(arm)))}
    reasons = Counter(arm.why for arm in ledger.arms if arm.why not in usual) or Counter(arm.why for arm in ledger.arms)
    return reasons.most_common(1)[0][0]


def headline(ledger: ClaimLedger) -> str:
    """Put the verdict on a model into a few sentences: what it is directed at, and then how well it does.

    Args:
        ledger: the claims about the model, with its findings.
    """
    answers, model = {claim.name: claim.answer for claim in ledger.claims}, ledger.model
    valid = valid_turns(ledger)
    invalid = "" if valid is None else f"{1 - valid:.0%}"
    if valid is not None and valid < 0.5:
        return TEXTS("verdict/no format", share=invalid, model=model)
    sentences = [TEXTS("verdict/some format", share=invalid, model=model)] if valid is not None and valid < 0.9 else []
    findings_by_arm = aims_of(ledger)
    for title, of_arm in findings_by_arm.items():
        sentence = _in_sizes(ledger, of_arm)
        sentences.append(sentence if len(findings_by_arm) < 2 else TEXTS("verdict/arm", arm=title, sentence=sentence))
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
    """Return the findings on what a model is directed at: title of an arm (part of the evaluation) -> its findings.

    In grids, two arms ask this. If the arm that compares hypotheses with second answers reaches a decision, it counts
    for both.

    Args:
        ledger: the claims about the model.
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
    """Return the share of a model's turns that have a valid move, as estimated by one of the claims; None if not
    measured.
    """
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

    Args:
        ledger: the claims about the model.
        finding: one of its findings.
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


_FORMAT = 0.9  # share of turns with an action below which format is named


def meaning(ledger: ClaimLedger) -> list[str]:
    """Explain what the answers on a model's aim mean and what they do not show, as a list of sentences.

    Args:
        ledger: the claims about the model; without any, the list is empty.
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
    """List what a reader of the verdict can do next, the most useful step first.

    In commands, DIR stands for the directory of the evaluation.

    Args:
        ledger: the claims about a model.
        lacks: whether to name the parts of the evaluation that could not be asked.
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


_WEIGHTS: Final = (".safetensors", "gguf")
_SHOWN: Final = 12  # signs of a hash


def stored_description(store: Store, names: Iterable[str]) -> dict[str, Any]:
    """Return the description of an agent that a run stores: its kind, model and settings (`Agent.describe`).

    Args:
        store: the run.
        names: names under which the agent may have acted; the first with a description counts.

    Returns:
        The description; {} if there is none.
    """
    descriptions = dict(store.agents().values())
    return next((descriptions[name] for name in names if name in descriptions), {})


def paragraphs(ledger: ClaimLedger, *, beside: bool = False) -> list[str]:
    """Return the verdict on a model in paragraphs, followed by a description of the model.

    Args:
        ledger: the claims about the model.
        beside: whether the text stands beside those on other models; it then leaves out what was asked.
    """
    texts = verdict(ledger)
    return [text for text in (*(texts[:1] if beside else texts), told(ledger.agent)) if text]


def told(description: Mapping[str, Any]) -> str:
    """Describe an agent in one sentence, from its stored description; "" if nothing is known about it."""
    kind = description.get("kind")
    if kind not in (CHAT, TASK_CHAT):
        left_out = ("kind", "version")
        plain = [
            f"{key} {value}"
            for key, value in description.items()
            if key not in left_out and not isinstance(value, Mapping | list)
        ]
        return f"An agent of the kind {kind}{f' ({listed(plain)})' if plain else ''}." if kind else ""
    try:
        parts = [_model(description["model"]), _answer(description.get("answer")), _template(description)]
        sampling = description["sampling"]
        parts.append(f"temperature {sampling['temperature']:g}, top_p {sampling['top_p']:g}")
    except (KeyError, TypeError, ValueError, AttributeError):  # the run may be a stranger's
        return "A language model, which its run describes in an unknown form."
    return f"A language model: {'; '.join(parts)}."


def _model(model: Mapping[str, Any]) -> str:
    """Describe the weights of a model, or its server if the weights are not accessible."""
    files = model.get("files")
    if not isinstance(files, Mapping):
        name = model.get("model", model.get("kind"))
        if "mode" not in model:
            return str(name)
        return f"{name} behind a server (mode {model['mode']}), whose weights goalscope cannot read"
    if "hub" in files:
        return f"{files['hub']} on the hub, revision {files['revision']}, dtype {model['dtype']}"
    weights = {name: digest for name, digest in files.items() if name.endswith(_WEIGHTS)}
    if model.get("untrained") is not None:
        words = f"random weights ({model.get('random_weights', 'default-init')}, seed {model['untrained']})"
    elif len(weights) == 1:
        words = f"weights sha256 {next(iter(weights.values()))[:_SHOWN]}"
    else:
        words = f"weights {content_id('weights', weights)[:_SHOWN]} ({len(weights)} files)"
    return f"{words}, dtype {model['dtype']}"


def weights(description: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of a model's weights: name of the file -> sha256; {} if its description names none."""
    model = description.get("model")
    files = model.get("files") if isinstance(model, Mapping) else None
    if not isinstance(files, Mapping):
        return {}
    return {str(name): str(digest) for name, digest in files.items() if str(name).endswith(_WEIGHTS)}


def _answer(answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return "actions read from its answers"
    after = "the prompt" if answer["after"] == "prompt" else "its reasoning"
    prior = ", divided by those after a prompt without the grid" if answer["prior_symbol"] else ""
    return f"actions drawn in proportion to the likelihoods of all complete answers after {after}{prior}"


def _template(description: Mapping[str, Any]) -> str:
    if description.get("printed") in [printed.name for printed in prompts.PRINTED.values()]:
        return f"a copy of the prompt that a paper prints ({description['printed']})"
    if description["kind"] == TASK_CHAT:
        return f"template {'example' if 'example' in description else 'schema'}"
    form = _bundled_templates().get(description["template"])
    if form:
        return f"template {form}"
    encoding = f", grids as {description['encoding']}" if "encoding" in description else ""
    return f"a custom template, sha256 {description['template'][:_SHOWN]}{encoding}"


@cache
def _bundled_templates() -> Mapping[str, str]:
    """Map the sha256 of each template that comes with the package, in each wording, to the template's form."""
    texts: dict[str, str] = {}
    for form in prompts.SUFFIXES:
        usual = [
            *(prompts.template(name, form) for name in (*prompts.TEMPLATES, prompts.THINGS, prompts.ANY)),
            prompts.read_template(prompts.NAMED, form),
        ]
        texts |= dict.fromkeys(usual, form)
        for encoding in LISTS:
            of_grids = (
                prompts.read_template(task, form) for task in prompts.TASKS if prompts.TASKS[task] != prompts.ANY
            )
            texts |= {prompts.encoded_template(text, encoding): f"{form}, encoding {encoding}" for text in of_grids}
        for name in prompts.WORDINGS:
            texts.setdefault(prompts.read_template("grid", form, name), f"{form}, wording {name}")
    return {hashlib.sha256(text.encode()).hexdigest(): form for text, form in texts.items()}
