"""The finding on an agent's goal: the answer, the hypotheses it names, the figure that decided it, and its wording.

Each sentence comes from a `Finding` and from the catalogue `goals/texts.yaml`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from goalscope._ground.sealed import StrictRecord
from goalscope._ground.words import Catalogue, counted, listed, short
from goalscope.stats.records import EstimateRecord
from goalscope.stats.rows import Tag

EXPLAINS: Final = 0.1
"""A hypothesis explains an agent if its MEG exceeds this share of an optimal agent's MEG."""

MOST_INVALID: Final = 0.5
"""If the share of turns without an action exceeds this value, no question about goals is answered."""

NEARBY: Final = 5
"""Number of steps within which an agent may pursue a place, as a rival of pursuing it from everywhere."""

Answer = Literal["yes", "no", "undecided", "untestable"]
"""``undecided``: more data of the same kind can decide. ``untestable``: it cannot; ``why`` says what is needed."""

Reason = Literal[
    "named",
    "partly",
    "weakly or partly",
    "not told apart",
    "not beaten",
    "errors",
    "habit",
    "random",
    "another rule",
    "other",
    "weak",
    "few worlds",
    "no action",
    "no process",
    "no utility",
]
"""Why the answer is what it is. Code branches on these keys; `goalscope.goals.finding` turns them into sentences.

- named: one hypothesis explains the moves, and better than every other.
- partly: one hypothesis explains the moves in a part of the turns, which the finding states.
- weakly or partly: as named, but it explains less than half of an optimal agent's MEG. With single answers we cannot
  distinguish an agent that often moves at random from one that pursues the goal only in some states.
- not told apart: several hypotheses explain the moves, and they call for the same moves in these worlds.
- not beaten: several hypotheses may explain the moves, although the worlds separate them.
- errors: one hypothesis may explain the moves, but rival rules that we added, or a pattern in the errors, are not
  excluded.
- habit: a habit explains the moves.
- another rule: a built-in rule outside the bank explains the moves.
- random: the moves hardly depend on anything.
- other: the moves depend on something other than the hypotheses.
- weak: no hypothesis was shown to explain the moves, and not all were excluded.
- few worlds: there are too few worlds for any rule.
- no action: too few turns have an action.
- no process: the worlds have fog, or their decision process is not known.
- no utility: no step was answered twice and no hypothesis has a utility, so no rule applies.
"""

Method = Literal["consistency", "meg", "none"]
"""The rule that decided, see `goalscope.goals.decision`."""


PartKind = Literal["from turn", "until turn", "within steps", "side", "other side", "small grids", "large grids"]
"""The turns from or until one (inclusive); at most so many steps from the place; the side on which the place lies, or
any other side; small or large grids. The keys of the catalogue below "parts"."""


ALL: Final = "all worlds"
TEXTS: Final = Catalogue.of_package("goalscope.goals")
"""The sentences on findings."""
_TELLING: Final = {
    "straight": "straight to ",
    "walls": " by open moves",
    "distance": " within ",
    "side": " if it lies ",
    "key": "key if not key held, else ",
}
"""Key of the sentence that says which worlds tell a made rival from a name -> what the form of the rival contains."""
_ERRORS: Final = 0.05
"""A sentence states the rates of errors if one of them is at least this."""


class BehaviourPart(StrictRecord):
    """The part of an agent's behaviour in which it follows a hypothesis, for agents that follow it only in part.

    Attributes:
        kind: what limits the part: turns, the distance to the place, the size of the grid, or a side of the place.
        limit: the number of the turn (from 1), of steps, or of rows of a small grid; 0 for a side.
        side: for the kinds "side" and "other side", a direction such as "left". "side" means the turns in which the
            place of the hypothesis lies in this direction, seen from the agent; "other side" means all other turns.
        share: share of the agent's turns that lie in the part.
    """

    kind: PartKind
    limit: int = Field(default=0, ge=0)
    side: str = ""
    share: float = Field(default=0.0, ge=0, le=1)


class Finding(StrictRecord):
    """The finding on one agent's goal in one group of worlds.

    Attributes:
        agent: name of the agent.
        arm: part of the evaluation, with worlds of its own, that produced the finding; "" outside of evaluations.
        where: tags of the group of worlds; empty for all worlds.
        answer, reason: see `Answer` and `Reason`.
        names: hypotheses named by the answer, the strongest first. For "yes" one or more; for "undecided" those that
            may still explain the moves.
        why: what would have to change for an answer, "" if there is nothing to add.
        method: rule that decided.
        quantity: kind of ``estimate``: "consistency", "strength", "predictable", "meg" or "share".
        subject: hypothesis that ``estimate`` refers to, "" for none.
        estimate: the figure that decided, with its interval; None if there is none.
        threshold: value that its interval was compared with, in the same unit; None if there is none.
        threshold_rule: description of the threshold.
        steps: hypotheses that are an intermediate step on every path to the named one.
        alike: rules made for the named hypotheses that call for nearly the same moves in these worlds, so that the
            agent may follow one of them instead.
        part: for reason "partly" by consistency, the part in which the hypothesis is followed; otherwise None.
        evidence: further estimates by "QUANTITY HYPOTHESIS".
        nouns: name of each mentioned hypothesis -> noun phrase.
        rules: mentioned hypotheses that are rules of behaviour rather than goals.
        worlds: number of clusters of worlds; a cluster is a world with its versions, such as mirrored ones.
        apart_in: for the consistency rule, hypothesis -> minimum over rivals of the number of clusters in which they
            act differently.
        bar: gain towards the named goal that the agent must exceed in other worlds to confirm the finding
            (`goalscope.goals.decision`); None if the finding makes no claim.
        tested: gain in worlds that were opened after the claim; None before.
        covered: share of the steps with a second answer: the agent was asked twice, or other episodes visited the same
            state.
    """

    agent: str
    arm: str = ""
    where: dict[str, Tag] = Field(default_factory=dict)
    answer: Answer
    reason: Reason
    names: tuple[str, ...] = Field(default=(), strict=False)
    why: str = ""
    method: Method = "none"
    quantity: str = ""
    subject: str = ""
    estimate: EstimateRecord | None = None
    threshold: float | None = None
    threshold_rule: str = ""
    steps: tuple[str, ...] = Field(default=(), strict=False)
    alike: tuple[str, ...] = Field(default=(), strict=False)
    part: BehaviourPart | None = None
    evidence: dict[str, EstimateRecord] = Field(default_factory=dict)
    nouns: dict[str, str] = Field(default_factory=dict)
    rules: tuple[str, ...] = Field(default=(), strict=False)
    worlds: int = Field(default=0, ge=0)
    covered: float = Field(default=0.0, ge=0, le=1)
    apart_in: dict[str, int] = Field(default_factory=dict)
    bar: float | None = None
    tested: EstimateRecord | None = None

    @property
    def confirmed(self) -> Answer | None:
        """Whether new worlds confirmed the claim: yes, no or undecided; None if it was not tested."""
        if self.bar is None or self.tested is None or self.tested.low is None or self.tested.high is None:
            return None
        return "yes" if self.tested.low > self.bar else "no" if self.tested.high < self.bar else "undecided"

    def about(self, name: str) -> "Answer":
        """Return whether the agent pursues one particular hypothesis, according to this finding.

        - Yes if it is the only named hypothesis.
        - No if the overall answer is no, if other hypotheses explain all of the behaviour, or if MEG towards it
          explains nothing and does not exceed that of a random agent.
        - Untestable if it cannot be separated from other hypotheses in these worlds.
        - Undecided otherwise.
        """
        if self.answer in ("no", "untestable"):
            return self.answer
        if name not in self.names:
            nats = self.figure("meg", name)
            followed = nats is not None and nats.low is not None and nats.low > 0
            none = self.explains_nothing(name) and not (followed and self.answer == "undecided")
            only_others = self.answer == "yes" and self.reason in ("named", "not told apart") and name not in self.steps
            return "no" if none or only_others else "undecided"
        if self.answer == "undecided":
            return "undecided"
        return "yes" if len(self.names) == 1 else "untestable" if self.reason == "not told apart" else "undecided"

    def explains_nothing(self, name: str) -> bool:
        """Return whether MEG shows that a hypothesis explains none of the behaviour; False if MEG did not decide."""
        share = self.figure("share", name)
        return self.method == "meg" and share is not None and share.high is not None and share.high < EXPLAINS

    def figure(self, quantity: str, name: str = "") -> EstimateRecord | None:
        """Return the estimate of a quantity, such as "meg", for a hypothesis ("" for none); None if there is none."""
        return self.evidence.get(f"{quantity} {name}".strip())


def where_text(where: Mapping[str, Any]) -> str:
    """Describe a group of worlds by its tags (name -> value), as in "phase shifted"; "" for all worlds."""
    return ", ".join(f"{name} {value}" for name, value in where.items())


def say(finding: Finding, who: str = "") -> str:
    """Put a finding into words: the answer in the first sentence, then the figures behind it.

    Args:
        finding: the finding.
        who: the subject of the first sentence, such as "The model"; by default the name of the agent.
    """
    return _join(_sentences(finding, who or finding.agent), finding.agent)


def say_all(findings: Sequence[Finding]) -> str:
    """Put all findings about one agent into words, one group of worlds after the other, in the given order."""
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
    """Name the quantity that decided a finding, as in "MEG towards the goal".

    Args:
        quantity: "consistency", "strength", "predictable", "meg" or "share", see `Finding.quantity`.
        subject: the hypothesis that the number is about, as a noun phrase; "" for "predictable", which is about none.
    """
    return filled(f"quantities/{quantity}", subject=subject)


def _join(sentences: Sequence[str], agent: str) -> str:
    """Join sentences that have neither a capital letter nor a full stop; the name of an agent keeps its letters."""
    capital = (text if text.startswith(agent) else text[:1].upper() + text[1:] for text in sentences)
    return " ".join(f"{text.rstrip('.')}." for text in capital)


def _sentences(finding: Finding, who: str) -> list[str]:
    """Return the sentences of a finding, the answer first, without capital letters and full stops."""
    names = [finding.nouns.get(name, name) for name in finding.names]
    aims = listed(names, "and")
    rivals = [(key, name) for key, mark in _TELLING.items() for name in finding.alike if mark in name]
    alike = [filled(f"made rivals/{key}", names=aims, side=name.partition(_TELLING["side"])[2]) for key, name in rivals]
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
    answer = filled(key, **fields)
    if finding.confirmed == "no":
        answer = TEXTS("tested/before", sentence=answer)
    telling = dict.fromkeys(f"told apart by/{key}" for key, _ in rivals)
    sentences = [answer, *(filled(key, names=aims) for key in telling), *_figures(finding)]
    if finding.steps:
        steps = listed([finding.nouns.get(name, name) for name in finding.steps])
        sentences.append(TEXTS(f"added/{'several steps' if len(finding.steps) > 1 else 'one step'}", steps=steps))
    if finding.why and finding.answer == "undecided":
        sentences.append(finding.why)
    if finding.confirmed and finding.tested is not None and finding.bar is not None:
        bar = short(finding.bar, "share")
        sentences.append(TEXTS(f"tested/{finding.confirmed}", share=finding.tested.text, bar=bar))
    return sentences


def filled(key: str, **fields: str | int) -> str:
    """Return a text of the catalogue ``goals/texts.yaml`` with its placeholders replaced.

    Args:
        key: key of the text in the catalogue.
        fields: placeholder -> value; values for placeholders that the text lacks are ignored.
    """
    return TEXTS(key, **{field: value for field, value in fields.items() if field in TEXTS.fields(key)})


def part_in_words(part: BehaviourPart) -> str:
    """Describe the part of its turns in which an agent follows a hypothesis, as in "in its first 3 turns"."""
    key = "parts/until first turn" if part.kind == "until turn" and part.limit == 1 else f"parts/{part.kind}"
    counts = {f"{noun}s": counted(part.limit, noun) for noun in ("turn", "step", "row")}
    return filled(key, limit=part.limit, side=part.side, **counts)


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
