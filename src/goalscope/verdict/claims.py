"""Claims about a model: a question, an answer in a word, and what it rests on; their ledger."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.sealed import SealedRecord, Sha256, StrictRecord, read_sealed, seal
from goalscope._ground.words import short
from goalscope.goals.finding import Answer, Finding
from goalscope.report.reading import Run
from goalscope.stats.records import frame, html_table

if TYPE_CHECKING:
    import pandas


class Claim(StrictRecord):
    """One claim of the ledger.

    Attributes:
        name: name of the rule that decides it, see `goalscope.verdict.rules`.
        arm: the part of the evaluation that it rests on.
        question: the question in plain words.
        answer: which side of the threshold the interval lies on, yes or no; "undecided" where it holds the threshold,
            so that more of the same data could decide; "untestable" where there is no interval.
        says: the answer in a sentence.
        why: why it is untestable, "" where it is not.
        quantity: what the estimate is of.
        value, low, high: the estimate and the interval that decides; None where there is none.
        confidence: coverage of that interval.
        threshold: above it the answer is yes, below it no; as applied.
        threshold_rule: what the threshold is, where it is not the same for every model, "" where it is.
        unit: unit of value and threshold.
        compared: what it is compared with.
        clusters, n: number of worlds (grids, maps) and of values behind it.
        p: p value corrected within the family of the claim; None where the claim is no test of several.
        method: how the interval was found.
        note: what a reader must know beside it, "" for nothing.
        validity: the check that the measure passed on agents whose goals are known.
        section: anchor of the section of the page that shows more.
        names: the place that the answer names, "" for none.
        by_size: the estimate in grids of each size where it differs between them, "" where it does not.
    """

    name: str
    arm: str
    question: str
    answer: Answer
    says: str
    why: str = ""
    quantity: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    threshold: float | None = None
    threshold_rule: str = ""
    unit: str = ""
    compared: str = ""
    clusters: int = Field(default=0, ge=0)
    n: int = Field(default=0, ge=0)
    p: float | None = Field(default=None, ge=0, le=1)
    method: str = ""
    note: str = ""
    validity: str = ""
    section: str = ""
    names: str = ""
    by_size: str = ""

    @property
    def estimate(self) -> str:
        """The estimate with its interval, "" where there is none."""
        if self.value is None or self.low is None or self.high is None:
            return ""
        return f"{short(self.value, self.unit)} [{short(self.low, self.unit)}, {short(self.high, self.unit)}]"

    @property
    def denied_by_another(self) -> bool:
        """Whether the answer is no since the number, which is that of another hypothesis, lies above the threshold."""
        return self.answer == "no" and bool(self.threshold_rule) and (self.low or 0.0) > (self.threshold or 0.0)

    @model_validator(mode="after")
    def _decided(self) -> Self:
        if self.answer in ("yes", "no") and (self.low is None or self.high is None):
            raise ValueError(f"the answer {self.answer!r} of a claim must have an interval")
        return self


class AskedArm(StrictRecord):
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


class ClaimLedger(StrictRecord):
    """The claims about one model.

    Attributes:
        rules: version of the decision rules.
        model: name of the model.
        described: the choices that were made for it, as a study lists them; for recorded episodes run and agent.
        agent: what its run stores of it (`Agent.describe`), in the first arm that was asked; {} where none was.
        access: what could be seen of it: acts, weights, logs, ...
        planted: for an agent that was added because its goal is known, the name of that goal, "" if it pursues none;
            None for a model under test.
        look: number of the look at the data; each later look has a smaller level.
        level: greatest chance of a wrong answer that this look allows a claim.
        arms: what was asked and what was not.
        findings: what the model is after, by arm and group of worlds; the verdict is worded from them.
        claims: the claims, in the order of the page.
    """

    rules: int
    model: str
    described: str = ""
    agent: dict[str, Any] = Field(default_factory=dict)
    access: tuple[str, ...] = Field(strict=False)
    planted: str | None = None
    look: int = Field(ge=1)
    level: float = Field(gt=0, lt=1)
    arms: tuple[AskedArm, ...] = Field(strict=False)
    findings: tuple[Finding, ...] = Field(default=(), strict=False)
    claims: tuple[Claim, ...] = Field(strict=False)

    def found_in(self, *arms: str) -> tuple[Finding, ...]:
        """Return the findings of some arms, in their order."""
        return tuple(finding for arm in arms for finding in self.findings if finding.arm == arm)

    def claim(self, name: str) -> Claim | None:
        """Return the claim of a rule, None where it was not asked."""
        return next((claim for claim in self.claims if claim.name == name), None)


class Difference(StrictRecord):
    """One claim about two models: where their worlds are the same, by how much they differ.

    Attributes:
        first, second: the models; the estimate is the first minus the second.
        rule: name of the rule whose quantity is compared.
        outcome: what was found of it: "higher for A than for B", or why nothing was shown.
        value, low, high: the difference and its interval.
        p: p value after Holm's correction over all differences of the evaluation.
        clusters: number of worlds that both met.
        unit: unit of the difference.
        shown: whether it remains after that correction.
        note: what a reader must know beside it, "" for nothing.
    """

    first: str
    second: str
    rule: str
    outcome: str
    value: float
    low: float
    high: float
    p: float = Field(ge=0, le=1)
    clusters: int
    unit: str
    shown: bool = False
    note: str = ""

    @property
    def says(self) -> str:
        """The difference in a sentence."""
        return f"{self.rule}: {self.outcome}"


def runs_in(directory: Path) -> dict[str, Run]:
    """Return the runs of the arms of an evaluation, by the names of their folders."""
    paths = (folder.path for folder in Folder(directory).folders("arms"))
    return {path.name: Run(path) for path in paths if not path.name.startswith(".")}


class Origin(StrictRecord):
    """Where the claims of an evaluation come from.

    Attributes:
        goalscope: the version that judged it.
        commit, dirty: commit of the working tree that it was called in, and whether tracked files differed; None where
            there is none, or it cannot be known.
        arguments: the command and what was passed to it.
        seed: root seed of the worlds.
        plan: content id of the plan that was judged.
        runs: name of a run's folder -> its content hash when it was judged.
        recorded: the same without rows, activations and probes, which can be made again and be joined by others.
    """

    goalscope: str
    commit: str | None = None
    dirty: bool | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    seed: int
    plan: str = ""
    runs: dict[str, str] = Field(default_factory=dict)
    recorded: dict[str, str] = Field(default_factory=dict)


class Evaluation(SealedRecord):
    """The ledgers of the models of one evaluation, as `ledger.json` holds them.

    Attributes:
        version: version of the form of the file; another one is refused.
        models: a ledger for each model.
        differences: what differs between them; empty for one model.
        origin: what they were judged by, and from.
        page: SHA-256 of the page, "" where none was written. The page itself holds the ledger without it.
    """

    what: ClassVar[str] = "ledger"
    advice: ClassVar[str] = (
        "run the same goalscope evaluate again, which judges anew what is stored, or another directory where another "
        "version wrote it"
    )
    version: Literal[10] = 10
    models: tuple[ClaimLedger, ...] = Field(strict=False, min_length=1)
    differences: tuple[Difference, ...] = Field(default=(), strict=False)
    origin: Origin | None = None
    page: Sha256 | Literal[""] = ""
    _directory: Path | None = PrivateAttr(None)
    _failed: tuple[str, ...] = PrivateAttr(())
    _declared: frozenset[str] = PrivateAttr(frozenset())

    def kept_in(self, directory: Path, failed: Iterable[str] = (), declared: Iterable[str] = ()) -> Self:
        """Return it with its directory, the errors that nobody declared, and the models that were not asked all."""
        copy = self.model_copy()
        copy._directory, copy._failed, copy._declared = directory, tuple(failed), frozenset(declared)
        return copy

    @property
    def directory(self) -> Path:
        """Its directory."""
        if self._directory is None:
            raise ValueError("an evaluation must have a directory, got a ledger alone: goalscope.open(DIR) gives both")
        return self._directory

    @property
    def failed(self) -> tuple[str, ...]:
        """A sentence for each error that nobody declared, of the call of `evaluate` that returned it."""
        return self._failed

    @property
    def complete(self) -> bool:
        """Whether nothing failed, and each model was asked a question or has a declared reason why not."""
        return not self._failed and all(model.claims or model.model in self._declared for model in self.models)

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims of all models as plain records, each with its model."""
        return [{"model": model.model, **claim.model_dump()} for model in self.models for claim in model.claims]

    @property
    def tested(self) -> list[ClaimLedger]:
        """The ledgers of the models under test."""
        return [model for model in self.models if model.planted is None]

    @property
    def twins(self) -> list[ClaimLedger]:
        """The ledgers of the agents that were added because their goals are known."""
        return [model for model in self.models if model.planted is not None]

    @property
    def runs(self) -> dict[str, Run]:
        """The runs of its arms, by the names of their folders."""
        return runs_in(self.directory)

    def to_frame(self) -> "pandas.DataFrame":
        """Return the claims as a data frame, a line each.

        Raises:
            ImportError: pandas is not installed (it comes with the extra ``export``).
        """
        return frame(self.claims)

    def report(self, path: str | Path | None = None) -> Path:
        """Return the path of its page; with a path, after the page was copied there.

        Raises:
            FileNotFoundError: it has no page, as where the extra ``report`` is not installed.
        """
        page, folder = self.directory / "report.html", Folder(self.directory)
        if not folder.has_file(page.name):
            raise FileNotFoundError(f"{page} must be there, but it was not written: see {self.directory}/failures.txt")
        if path is None:
            return page
        return NamedFile(path).save_text(folder.load_text(page.name))

    def _repr_html_(self) -> str:
        columns = ("model", "question", "answer", "estimate", "threshold", "worlds")
        rows = [
            (model.model, claim.question, claim.answer, claim.estimate, claim.threshold, claim.clusters or None)
            for model in self.models
            for claim in model.claims
        ]
        return html_table(columns, rows)

    def by_question(self) -> list[tuple[Claim | None, ...]]:
        """Return the claims on each question, one a model in their order; None where it was not asked of a model."""
        names = dict.fromkeys(claim.name for model in self.models for claim in model.claims)
        return [tuple(model.claim(name) for model in self.models) for name in names]

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
        return read_sealed(cls, Path(path))
