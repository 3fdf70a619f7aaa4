"""The finding on what an agent is after: one answer, what it names, and the number that decided it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from goalscope._ground.sealed import StrictRecord
from goalscope.stats.record import EstimateRecord
from goalscope.stats.rows import Tag

EXPLAINS: Final = 0.1
"""Share of what an optimal agent shows above which a hypothesis explains what an agent does."""

MOST_INVALID: Final = 0.5
"""Share of turns without an action above which no question about goals is answered."""

Answer = Literal["yes", "no", "undecided", "untestable"]
"""``undecided``: more of the same data can decide it. ``untestable``: it cannot, and ``why`` says what would."""

Reason = Literal[
    "named",
    "partly",
    "weakly or partly",
    "not told apart",
    "not beaten",
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
"""Why an answer is what it is; code branches on it, sentences are made from it in `goalscope.goals.words`.

named: one hypothesis explains the moves, and better than every other one. partly: the same of a part of the moves.
weakly or partly: the same, but it explains less than half of what an optimal agent would show, and single answers
cannot tell an agent that often acts at random from one that is after it in some states alone. not told apart: several
explain the moves, and call for the same moves in these worlds. not beaten: several may, and the worlds tell them apart.
habit, another rule, random, other: what explains the moves is a habit, or a rule that nobody asked for; they hardly
depend on anything; or on something else than the hypotheses. weak: no
hypothesis was shown to explain the moves, and not all were excluded. few worlds: too few for any rule. no action: too
few turns held one. no process: fog, or worlds whose decision process is not known. no utility: there are no second
answers, and no hypothesis has a utility, so that neither rule applies.
"""

Method = Literal["consistency", "meg", "none"]
"""The rule that decided, see `goalscope.goals.decision`."""


class Finding(StrictRecord):
    """What one agent is after in one group of worlds.

    Attributes:
        agent: name of the agent.
        arm: the part of an evaluation that it comes from, "" elsewhere.
        where: tags of the group of worlds; empty for all of them.
        answer, reason: see `Answer` and `Reason`.
        names: the hypotheses that the answer speaks of, the strongest first: one or more for yes; for undecided those
            that may still explain the moves.
        why: what would have to be different, "" where there is nothing to add.
        method: the rule that decided.
        quantity: what ``estimate`` is of: "consistency", "strength", "predictable", "meg" or "share".
        subject: the hypothesis that it is of, "" for none.
        estimate: the number that decided, with its interval; None where there is none.
        threshold: what its interval was held against, in its unit; None where there is none.
        threshold_rule: what the threshold is, in words.
        steps: hypotheses that are a step on every way to the one that is named.
        evidence: further estimates by "QUANTITY HYPOTHESIS".
        nouns: name of each hypothesis that is spoken of -> it as a noun phrase.
        rules: those of them that are rules to act by and no aims.
        worlds: number of clusters of worlds.
        apart_in: by consistency, hypothesis -> least number of clusters in which one of the others acts differently.
        bar: share of the gain of an agent that is after what is named and nothing else, which the agent must exceed in
            other worlds; None where nothing is claimed.
        tested: that share in worlds that were opened afterwards; None before.
        covered: share of the steps with a second answer, or with one by other episodes that came to the same state.
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
    evidence: dict[str, EstimateRecord] = Field(default_factory=dict)
    nouns: dict[str, str] = Field(default_factory=dict)
    rules: tuple[str, ...] = Field(default=(), strict=False)
    worlds: int = Field(default=0, ge=0)
    covered: float = Field(default=0.0, ge=0, le=1)
    apart_in: dict[str, int] = Field(default_factory=dict)
    bar: float | None = None
    tested: EstimateRecord | None = None

    @property
    def held(self) -> Literal["", "held", "refuted", "open"]:
        """How a claim with a bar fared in the worlds that were opened afterwards, "" where it was not tested."""
        if self.bar is None or self.tested is None or self.tested.low is None or self.tested.high is None:
            return ""
        return "held" if self.tested.low > self.bar else "refuted" if self.tested.high < self.bar else "open"

    def about(self, name: str) -> "Answer":
        """Return the answer to whether the agent is after one hypothesis.

        Yes where it alone is named. No where the answer is no, where others alone are named which explain all of what
        the agent does, and where MEG towards it explains nothing and shows no more than a random agent does. Untestable
        where it cannot be told from others here.
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
        """Return whether MEG shows that a hypothesis explains nothing of what the agent does; by MEG alone."""
        share = self.figure("share", name)
        return self.method == "meg" and share is not None and share.high is not None and share.high < EXPLAINS

    def figure(self, quantity: str, name: str = "") -> EstimateRecord | None:
        """Return an estimate of the evidence, None where there is none."""
        return self.evidence.get(f"{quantity} {name}".strip())


def where_text(where: Mapping[str, Any]) -> str:
    """Return a group of worlds in words, "" for all worlds."""
    return ", ".join(f"{name} {value}" for name, value in where.items())


ALL: Final = "all worlds"
