"""Claims about a model (a question, a one-word answer, and the evidence for it), and the ledger that contains them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator
from scipy.special import stdtrit

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.sealed import SealedRecord, Sha256, StrictRecord, read_sealed, seal
from goalscope._ground.words import short
from goalscope.goals.finding import Answer, Finding
from goalscope.report.ledger import Run
from goalscope.stats.power import PairedDesign, grids_needed
from goalscope.stats.records import frame, html_table
from goalscope.verdict.failures import Failures
from goalscope.verdict.texts import TEXTS

if TYPE_CHECKING:
    import pandas


class Claim(StrictRecord):
    """One claim about a model: a question, its answer, and the evidence for it.

    Attributes:
        name: name of the rule that decides it, see `goalscope.verdict.rules`.
        arm: the part of the evaluation that provides the evidence, such as "grids".
        question: the question in plain words.
        answer: the side of the threshold on which the interval lies: yes (above) or no (below). It is "undecided" if
            the interval contains the threshold, so that more data of the same kind could decide, and "untestable" if
            there is no interval.
        says: the answer in a sentence.
        why: reason for "untestable", otherwise "".
        quantity: description of the estimated quantity.
        value, low, high: estimate and deciding interval; None if there is none.
        confidence: coverage of that interval.
        threshold: the applied threshold; above it the answer is yes, below it no.
        threshold_rule: how the threshold is determined if it differs between models, otherwise "".
        unit: unit of value and threshold.
        compared: the baseline or control of the comparison.
        clusters, n: number of worlds (grids, maps) and of values in the estimate.
        p: p value corrected within the family of the claim; None if the claim is not one of several tests.
        method: method of the interval.
        note: a caveat that readers need, or "".
        validity: how the measure was checked on agents whose goals are known.
        section: anchor of the section of the page with more details.
        names: the place that the answer names, or "".
        by_size: the estimates by grid size if they differ, otherwise "".
        subject: the hypothesis that the estimate is about, as a noun phrase; "" if the estimate is about none.
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
    subject: str = ""

    @property
    def estimate(self) -> str:
        """The estimate with its interval as text, as in "0.93 [0.88, 0.97]"; "" if there is none."""
        if self.value is None or self.low is None or self.high is None:
            return ""
        return f"{short(self.value, self.unit)} [{short(self.low, self.unit)}, {short(self.high, self.unit)}]"

    @property
    def attributed_estimate(self) -> str:
        """The estimate as text, with the hypothesis that it is about if the answer is about other hypotheses.

        A no can follow from a number above the threshold: that of a hypothesis that explains the moves and thereby
        rules out the others.
        """
        if not self.estimate or not self.subject or self.answer == "yes":
            return self.estimate
        return TEXTS("claim/estimate of", estimate=self.estimate, subject=self.subject)

    @model_validator(mode="after")
    def _decided(self) -> Self:
        if self.answer in ("yes", "no") and (self.low is None or self.high is None):
            raise ValueError(f"the answer {self.answer!r} of a claim must have an interval")
        return self


def worlds_to_decide(claim: Claim) -> int | None:
    """Return with how many worlds four of five evaluations would decide a claim that this evaluation left open.

    It presumes that the estimate is the true value, and that the interval shrinks as that of a t test does
    (`goalscope.stats.power.grids_needed`). If the share is 0 or 1 in all worlds, it shrinks as the exact binomial
    interval does. None for a claim that is decided, for one that several intervals decide together, and where a million
    worlds would not suffice.
    """
    ends = (claim.value, claim.low, claim.high, claim.threshold, claim.confidence)
    if claim.answer != "undecided" or claim.threshold_rule or claim.clusters < 2 or None in ends:
        return None
    value, low, high, threshold, confidence = (float(end) for end in ends if end is not None)
    width = value - low if value > threshold else high - value
    deviation = width * math.sqrt(claim.clusters) / float(stdtrit(claim.clusters - 1, (1 + confidence) / 2))
    if value == threshold or deviation == 0:
        return None
    if claim.unit == "share" and value in (0, 1) and width < 1:
        return math.ceil(claim.clusters * math.log(1 - width) / math.log(1 - abs(value - threshold)))
    design = PairedDesign(grids=claim.clusters, trajectories=1, between=deviation, within=0)
    try:
        return grids_needed(design, value - threshold, level=1 - confidence)
    except ValueError:  # the estimate lies too close to the threshold
        return None


class AskedArm(StrictRecord):
    """What was asked of a model in one arm, which is a part of an evaluation with worlds of its own; or why nothing
    was.

    Attributes:
        name, title: name and title of the arm.
        asked: whether the arm was run.
        why: why it was not run and what would make it possible; "" if it was run.
        worlds, episodes: number of independent worlds (versions of one world count once), and of episodes.
        sizes: the different side lengths of its grids, in order; empty for worlds without a size.
    """

    name: str
    title: str
    asked: bool
    why: str = ""
    worlds: int = Field(default=0, ge=0)
    episodes: int = Field(default=0, ge=0)
    sizes: tuple[int, ...] = Field(default=(), strict=False)


class ClaimLedger(StrictRecord):
    """All claims (answers to questions) about one model, with what was asked and found.

    Attributes:
        rules: version of the decision rules.
        model: name of the model.
        described: the entry of the model in a study, with its chosen parameters; for recorded episodes, run and agent.
        agent: the description of the model that its run stores (`Agent.describe`), from the first arm that was run; {}
            if none was.
        access: what is accessible of the model: acts, weights, logs, ...
        planted: for an agent that was added because its goal is known, the name of this goal ("" for no goal); None for
            a model under test.
        look: number of this look at the data; later looks, with more worlds, have smaller levels.
        level: maximum probability of a wrong answer per claim at this look.
        arms: which arms (parts of the evaluation) were asked and which were not.
        findings: what the model is after, by arm and group of worlds; the sentences of the verdict come from them.
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
        """Return the findings on what the model is after from some arms (parts of the evaluation), in the order of the
        names.
        """
        return tuple(finding for arm in arms for finding in self.findings if finding.arm == arm)

    def claim(self, name: str) -> Claim | None:
        """Return the claim with this name, or None if the question was not asked of the model."""
        return next((claim for claim in self.claims if claim.name == name), None)


class Difference(StrictRecord):
    """A comparison of two models in one quantity, on the worlds that both played.

    Attributes:
        first, second: the models; the estimate is the first minus the second.
        rule: name of the quantity that is compared.
        outcome: the result: "higher for A than for B", or why no difference was shown.
        value, low, high: the difference and its interval.
        p: p value after Holm's correction over all differences of the evaluation.
        clusters: number of worlds that both models played.
        unit: unit of the difference.
        shown: whether the difference remains significant after that correction.
        note: a caveat that readers need, or "".
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
        """The comparison as a sentence: the quantity, and for which model it is higher or why no difference was
        shown.
        """
        return f"{self.rule}: {self.outcome}"


def runs_in(directory: Path) -> dict[str, Run]:
    """Return the runs in the directory of an evaluation: name of the folder, such as "grids-2" -> run."""
    paths = (folder.path for folder in Folder(directory).folders("arms"))
    return {path.name: Run(path) for path in paths if not path.name.startswith(".")}


class Origin(StrictRecord):
    """Where the claims of an evaluation come from: the version of goalscope, the command, and the runs that were
    judged.

    Attributes:
        goalscope: version of goalscope.
        commit, dirty: commit of the git repository in which the command was called, and whether tracked files had
            changes; None if there is no repository or it cannot be read.
        arguments: the command and its arguments.
        seed: root seed of the worlds.
        plan: content id of the plan.
        runs: name of a run's folder -> its content hash at the time of judging.
        recorded: the same hashes without rows, activations and probes, which can be recomputed or added later.
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
    """The result of an evaluation, as stored in `ledger.json`: the claims about each model, with their evidence.

    A claim is the answer to one question about a model.

    Attributes:
        version: version of the file format; other versions are refused.
        models: one ledger per model, which lists the claims about it.
        differences: differences between the models; empty for a single model.
        origin: the version that judged them, and the runs.
        page: SHA-256 of the HTML page, or "" if none was written. The page embeds the ledger without this digest.
    """

    what: ClassVar[str] = "ledger"
    advice: ClassVar[str] = (
        "run the same goalscope evaluate again, which writes it anew from the stored runs, or evaluate into another "
        "directory"
    )
    version: Literal[12] = 12
    models: tuple[ClaimLedger, ...] = Field(strict=False, min_length=1)
    differences: tuple[Difference, ...] = Field(default=(), strict=False)
    origin: Origin | None = None
    page: Sha256 | Literal[""] = ""
    _directory: Path | None = PrivateAttr(None)
    _failures: Failures | None = PrivateAttr(None)

    def kept_in(self, directory: Path, failures: Failures | None = None) -> Self:
        """Return a copy of the evaluation that knows where it is stored, and what went wrong.

        Args:
            directory: the directory of the evaluation.
            failures: what was not asked, and what failed; None if unknown.
        """
        copy = self.model_copy()
        copy._directory, copy._failures = directory, failures
        return copy

    @property
    def directory(self) -> Path:
        """The directory in which the evaluation is stored.

        Raises:
            ValueError: the evaluation was read from its file ``ledger.json`` alone.
        """
        if self._directory is None:
            raise ValueError("an evaluation must have a directory, got a ledger alone: goalscope.open(DIR) gives both")
        return self._directory

    @property
    def failed(self) -> tuple[str, ...]:
        """One sentence for each unexpected error during the call of `evaluate` that returned this evaluation; empty if
        none.
        """
        return () if self._failures is None else tuple(self._failures.failed)

    @property
    def can_be_retried(self) -> bool:
        """Whether an unexpected error occurred that may not occur again if `evaluate` is called again."""
        return self._failures is not None and len(self.failed) > self._failures.lasting

    @property
    def complete(self) -> bool:
        """Whether the evaluation has no errors, and each model was asked something or has a stated reason why not."""
        declared = set() if self._failures is None else {name for _, name in self._failures.unasked}
        return not self.failed and all(model.claims or model.model in declared for model in self.models)

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims about all models as dictionaries, each with the name of its model under "model"."""
        return [{"model": model.model, **claim.model_dump()} for model in self.models for claim in model.claims]

    @property
    def tested(self) -> list[ClaimLedger]:
        """The ledgers (claims about one model each) of the models under test, without the agents added as a check."""
        return [model for model in self.models if model.planted is None]

    @property
    def twins(self) -> list[ClaimLedger]:
        """The ledgers (claims about one agent each) of agents with a known goal, evaluated beside the models as a
        check.
        """
        return [model for model in self.models if model.planted is not None]

    @property
    def runs(self) -> dict[str, Run]:
        """The runs of the evaluation: name of the folder, such as "grids" or "grids-2" -> run."""
        return runs_in(self.directory)

    def to_frame(self) -> "pandas.DataFrame":
        """Return all claims (answers to questions about the models) as a data frame with one row per claim.

        Raises:
            ImportError: pandas is not installed (it comes with the extra ``export``).
        """
        return frame(self.claims)

    def report(self, path: str | Path | None = None) -> Path:
        """Return the path of the HTML page of the evaluation; if a path is given, copy the page there and return that
        path.

        Raises:
            FileNotFoundError: there is no page, for example because the extra ``report`` is not installed.
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
            (
                model.model,
                claim.question,
                claim.answer,
                claim.attributed_estimate,
                claim.threshold,
                claim.clusters or None,
            )
            for model in self.models
            for claim in model.claims
        ]
        return html_table(columns, rows)

    def by_question(self) -> list[tuple[Claim | None, ...]]:
        """Return the claims question by question: for each, the claim about each model, or None if it was not asked."""
        names = dict.fromkeys(claim.name for model in self.models for claim in model.claims)
        return [tuple(model.claim(name) for model in self.models) for name in names]

    def to_json(self) -> str:
        """Return the evaluation as JSON with a digest of its content; equal evaluations give equal text."""
        return seal(self)

    @classmethod
    def read(cls, path: str | Path) -> "Evaluation":
        """Read an evaluation from its file ``ledger.json``.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not such a file, has another version, or was changed after it was written.
        """
        return read_sealed(cls, Path(path))
