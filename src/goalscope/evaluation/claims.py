"""Claims about a model: a question, an answer in a word, and what it rests on; their ledger, and the verdict on it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from goalscope.ids import content_id
from goalscope.measures.goals.results import FEW
from goalscope.report.blocks import counted, listed
from goalscope.report.figures import short
from goalscope.untrusted import decode_object, explain, read_octets

Answer = Literal["yes", "no", "not shown", "cannot be told"]
"""Which side of the threshold the interval lies on; "not shown" where it holds it; "cannot be told" without one."""


_Sealed = TypeVar("_Sealed", bound=BaseModel)


def seal(record: BaseModel) -> str:
    """Return a record as JSON, with a digest of its values."""
    fields = record.model_dump(mode="json")
    values = {**fields, "digest": content_id("sealed", fields)}
    return json.dumps(values, ensure_ascii=True, indent=1, sort_keys=True, allow_nan=False)


def sealed(kind: type[_Sealed], path: Path, what: str, advice: str) -> _Sealed:
    """Read a record that `seal` wrote.

    Args:
        kind: its class.
        path: its file.
        what: what the file holds, in a word.
        advice: how to mend a file that was changed.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds something else, or was changed since it was written.
    """
    try:
        fields = dict(decode_object(read_octets(path)))
        digest = fields.pop("digest", None)
        record = kind.model_validate(fields)
        if digest != content_id("sealed", record.model_dump(mode="json")):
            raise ValueError("it was changed since it was written")
    except ValidationError as error:
        raise ValueError(f"{explain(error, {'': list(kind.model_fields)}, str(path), what)}\n{advice}") from None
    except ValueError as error:
        raise ValueError(f"{path} must be a {what} as goalscope wrote it: {error}; {advice}") from None
    return record


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Claim(_Record):
    """One claim of the ledger.

    Attributes:
        name: name of the rule that decides it, see `goalscope.evaluation.rules`.
        arm: the part of the evaluation that it rests on.
        question: the question in plain words.
        answer: the answer in a word.
        says: the answer in a sentence.
        quantity: what the estimate is of.
        value, low, high: the estimate and the interval that decides; None where there is none.
        confidence: coverage of that interval.
        threshold: above it the answer is yes, below it no.
        unit: unit of value and threshold.
        compared: what it is compared with.
        clusters, n: number of worlds (grids, maps) and of values behind it.
        p: p value corrected within the family of the claim; None where the claim is no test of several.
        method: how the interval was found.
        note: what a reader must know beside it, "" for nothing.
        validity: the check that the measure passed on agents whose goals are known.
        section: anchor of the section of the page that shows more.
    """

    name: str
    arm: str
    question: str
    answer: Answer
    says: str
    quantity: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    threshold: float | None = None
    unit: str = ""
    compared: str = ""
    clusters: int = Field(default=0, ge=0)
    n: int = Field(default=0, ge=0)
    p: float | None = Field(default=None, ge=0, le=1)
    method: str = ""
    note: str = ""
    validity: str = ""
    section: str = ""

    @model_validator(mode="after")
    def _decided(self) -> Self:
        if self.answer in ("yes", "no") and (self.low is None or self.high is None):
            raise ValueError(f"the answer {self.answer!r} of a claim must have an interval")
        return self


class ArmReport(_Record):
    """One arm of an evaluation: what was asked, or why it was not.

    Attributes:
        name, title: the arm.
        asked: whether it was run.
        why: why it was not run and what would make it possible, "" where it was.
        worlds, episodes: number of clusters of worlds and of episodes.
    """

    name: str
    title: str
    asked: bool
    why: str = ""
    worlds: int = Field(default=0, ge=0)
    episodes: int = Field(default=0, ge=0)


class ClaimLedger(_Record):
    """The claims about one model.

    Attributes:
        rules: version of the decision rules.
        model: name of the model.
        described: what it is, as the run stores it.
        access: what could be seen of it: acts, weights, logs, ...
        look: number of the look at the data; each later look has a smaller level.
        level: greatest chance of a wrong answer that this look allows a claim.
        arms: what was asked and what was not.
        claims: the claims, in the order of the page.
    """

    rules: int
    model: str
    described: str = ""
    access: tuple[str, ...] = Field(strict=False)
    look: int = Field(ge=1)
    level: float = Field(gt=0, lt=1)
    arms: tuple[ArmReport, ...] = Field(strict=False)
    claims: tuple[Claim, ...] = Field(strict=False)

    def claim(self, name: str) -> Claim | None:
        """Return the claim of a rule, None where it was not asked."""
        return next((claim for claim in self.claims if claim.name == name), None)


class Difference(_Record):
    """One claim about two models: where their worlds are the same, by how much they differ.

    Attributes:
        first, second: the models; the estimate is the first less the second.
        rule: name of the rule whose quantity is compared.
        says: the difference in a sentence.
        value, low, high: the difference and its interval.
        p: p value after Holm's correction over all differences of the evaluation.
        clusters: number of worlds that both met.
        unit: unit of the difference.
    """

    first: str
    second: str
    rule: str
    says: str
    value: float
    low: float
    high: float
    p: float = Field(ge=0, le=1)
    clusters: int
    unit: str


class Evaluation(_Record):
    """The ledgers of the models of one evaluation, as `ledger.json` holds them.

    Attributes:
        version: version of the form of the file; another one is refused.
        models: a ledger for each model.
        differences: what differs between them; empty for one model.
    """

    version: Literal[2] = 2
    models: tuple[ClaimLedger, ...] = Field(strict=False, min_length=1)
    differences: tuple[Difference, ...] = Field(default=(), strict=False)

    def to_json(self) -> str:
        """Return it as JSON, with a digest of all of it; the same evaluation gives the same text."""
        return seal(self)

    @classmethod
    def read(cls, path: str | Path) -> "Evaluation":
        """Read the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no ledger, one of another version, or one that was changed since it was written.
        """
        return sealed(
            cls, Path(path), "ledger", "run the same goalscope evaluate again, which judges anew what is stored"
        )


def verdict(ledger: ClaimLedger) -> list[str]:
    """Return the verdict on a model as paragraphs: the headline first, then what was asked."""
    worlds, episodes = (sum(getattr(arm, name) for arm in ledger.arms) for name in ("worlds", "episodes"))
    missing = [arm.title.lower() for arm in ledger.arms if not arm.asked]
    if not ledger.claims:
        return [f"No question could be asked of {ledger.model}: nothing is known of its goals."]
    counts = f"{counted(len(ledger.claims), 'question')}, {counted(worlds, 'world')}, {counted(episodes, 'episode')}."
    return [
        headline(ledger),
        counts + (f" Not asked: {listed(missing)}; the reasons stand under “What was asked”." if missing else ""),
    ]


def headline(ledger: ClaimLedger) -> str:
    """Return the verdict in a few sentences."""
    answers = {claim.name: claim.answer for claim in ledger.claims}

    def has_answer(name: str, answer: str) -> bool:
        return answers.get(name) == answer

    name = ledger.model
    if has_answer("answers hold actions", "no") or has_answer("answers hold actions in given worlds", "no"):
        return f"{name} seldom answers with an action. What is measured is format; nothing can be said of goals."
    strength = _strength(ledger)
    if "is directed at the goal of given worlds" in answers:
        parts = [_in_given_worlds(ledger, answers)]
    elif "is directed at the goal" not in answers and "achieves the goals of tasks" in answers:
        parts = [_in_tasks(name, answers["achieves the goals of tasks"])]
    elif has_answer("is directed at the goal", "yes") and has_answer("prefers the goal to rivals", "yes"):
        parts = [f"{name} is directed at the goal{strength}, rather than at a corner of the grid"]
    elif has_answer("prefers the goal to rivals", "no"):
        parts = [f"{name} is after a corner of the grid rather than the goal"]
    elif has_answer("is directed at the goal", "yes"):
        parts = [f"{name} is directed at the goal{strength}; whether rather than at a corner of the grid was not shown"]
    elif has_answer("is directed at the goal", "no"):
        parts = [f"{name} is not directed at the goal"]
    else:
        parts = [f"What {name} is after was not shown"]
    parts += _few_worlds(ledger)
    for claim, answer, sentence in _MORE:
        if has_answer(claim, answer) and sentence not in parts[0]:
            parts.append(sentence)
    return ". ".join([parts[0], *(f"{part[:1].upper()}{part[1:]}" for part in parts[1:])]) + "."


def _few_worlds(ledger: ClaimLedger) -> list[str]:
    """Return a warning if the verdict rests on MEG intervals over few worlds, whose coverage is too low."""
    claims = [claim for name in _DIRECTED if (claim := ledger.claim(name)) is not None and 0 < claim.clusters < TOO_FEW]
    if not any(claim.answer in ("yes", "no") for claim in claims):
        return []
    worlds = counted(min(claim.clusters for claim in claims), "world")
    return [f"that rests on {worlds}: over fewer than {TOO_FEW}, such intervals can miss more often than they say"]


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


TOO_FEW: Final = FEW[-1][0]
"""Number of worlds below which intervals of MEG can miss more often than they say."""
_DIRECTED: Final = (
    *("is directed at the goal", "prefers the goal to rivals"),
    *("is directed at the goal of given worlds", "prefers the goal to others in given worlds"),
)

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
    directed = ledger.claim(claim)
    if directed is None or directed.value is None or directed.low is None or directed.high is None:
        return ""
    ends = f"[{short(directed.low, directed.unit)}, {short(directed.high, directed.unit)}]"
    return f" ({short(directed.value, directed.unit)} {ends} of what an optimal agent shows)"
