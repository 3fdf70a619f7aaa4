"""What an agent is after: one finding per group of worlds, and the claims that are derived from it."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from goalscope.goals.decision import GOAL, RULES, decide, findings, groups
from goalscope.goals.finding import EXPLAINS, Answer, Finding, quantity_in_words, say, where_text
from goalscope.goals.hypotheses import Hypothesis, Undefined
from goalscope.goals.hypotheses.score import HABITS
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.reading import default_hypotheses, hypotheses_of, phases_in, read_states
from goalscope.stats.records import EstimateRecord
from goalscope.verdict.arms import GIVEN, HYPOTHESES, NO_GRIDS, Arm, arm
from goalscope.verdict.evidence import ArmData, ArmRun, Evidence
from goalscope.verdict.rules import question
from goalscope.verdict.texts import TEXTS

AIMED: Final = ("grids", HYPOTHESES, GIVEN)
"""The arms that determine what an agent is after."""

FOLLOWS: Final = "follows a hypothesis"
"""Name of the claim that covers all hypotheses; it states the finding itself."""

arm(
    Arm(
        name=HYPOTHESES,
        core=True,
        title="Hypotheses",
        needs=frozenset({"grids"}),
        why=NO_GRIDS,
        worlds=lambda count: [{"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.4, 0.6], "count": count}],
        agent={"task": "grid"},
        study={"trajectories": 1, "answers": 2, "horizon": {"factor": 1.5}},
        quick=3,
        full=7,
        sections=("attribution",),
    )
)


@lru_cache(maxsize=16)
def aims_in(run: ArmRun, agent: str, arm_name: str) -> tuple[Finding, ...]:
    """Return what an agent is after in the worlds of an arm, one finding per phase; empty if nothing is known
    about it.
    """
    study = run.store.study()
    bank: Mapping[str, Hypothesis] = hypotheses_of(study)
    usual = arm_name != HYPOTHESES and (study is None or study.analysis is None or not study.analysis.hypotheses)
    if usual:
        bank = default_hypotheses(run.table.worlds)
    try:
        states, _ = read_states(run.store, agent)
    except Undefined as error:
        return (Finding(agent=agent, answer="untestable", reason="no process", why=str(error), arm=arm_name),)
    if run.part is not None:
        part = run.part
        states = [group.chosen(np.array([episode_id in part for episode_id in group.ids])) for group in states]
        states = [group for group in states if len(group)]
    level = 1 - run.confidence
    parts = list(groups(states, phases=phases_in(study)))
    twice = study is not None and study.answers > 1
    if usual and not twice and len(parts) == 1 and any(not estimate.cell for estimate in run.goals.estimates):
        decided = [
            decide(parts[0][1], bank, measured=run.goals, level=level)
        ]  # which is measured for other claims, too
    else:
        decided = findings(states, bank, phases=phases_in(study), level=level)
    return tuple(estimate.model_copy(update={"arm": arm_name}) for estimate in decided)


def aims(data: ArmData, arm_name: str) -> tuple[Finding, ...]:
    """Return the findings from which the claims of an arm are derived.

    If an arm with the same kind of worlds compared hypotheses with second answers and reached a decision, its finding
    is used for this arm too: in one kind of worlds an agent has one aim, whichever arm asks.
    """
    own_findings = aims_in(data.run, data.agent, arm_name)
    other = data.other_arms.get(HYPOTHESES)
    if arm_name == "grids" and other is not None and not other.given:
        decided = aims_in(other.run, other.agent, HYPOTHESES)
        if all(finding.answer in ("yes", "no") for finding in decided):
            return decided
    return own_findings


def evidence_of(finding: Finding, answer: Answer, *, names: str = "", denied: Sequence[str] = ()) -> Evidence:
    """Return the evidence for an answer that is derived from a finding.

    Args:
        finding: the finding; its deciding number is usually the evidence.
        answer: the answer.
        names: the hypotheses that the answer names.
        denied: the hypotheses that the answer rejects. If each of them is rejected by its own MEG, the evidence is the
            largest of these values.
    """
    if answer == "untestable" or finding.estimate is None or finding.estimate.low is None:
        return Evidence(why=finding.why or say(finding, "it").rstrip("."))
    quantity, subject, estimate, threshold = finding.quantity, finding.subject, finding.estimate, finding.threshold
    rule = finding.threshold_rule
    excluded = [name for name in denied if finding.explains_nothing(name)]
    if answer == "no" and finding.answer != "no" and excluded:  # by their own shares, whatever the finding is
        shares = {name: share for name in excluded if (share := finding.figure("share", name)) is not None}
        subject = max(shares, key=lambda name: shares[name].value or 0.0)
        quantity, estimate, threshold, rule = "share", shares[subject], EXPLAINS, RULES["share"]
    noun = finding.nouns.get(subject) or (noun_of(subject) if subject else "")
    return Evidence(
        estimate=estimate.estimate,
        side=answer,
        names=names,
        threshold=threshold,
        threshold_rule=_reason(answer, estimate, threshold, noun, habit=subject in HABITS) or rule,
        quantity=quantity_in_words(quantity, noun),
        subject=noun,
    )


def _reason(answer: Answer, estimate: EstimateRecord, threshold: float | None, noun: str, *, habit: bool) -> str:
    """Return the reason for an answer that does not follow from the number and its threshold; "" if it does.

    A no by a number that is not below the threshold denies a goal because another hypothesis, or a habit, explains the
    moves; an undecided answer leaves other hypotheses open.
    """
    if threshold is None or estimate.low is None or estimate.high is None or not noun:
        return ""
    if answer == "no" and estimate.high >= threshold:
        return TEXTS("page/denied by a habit" if habit else "page/denied", subject=noun)
    if answer == "undecided" and estimate.low > threshold:
        return TEXTS("page/not ruled out", subject=noun)
    if answer == "undecided" and estimate.high < threshold:
        return TEXTS("page/more than chance", subject=noun)
    return ""


def by_group(group_findings: Sequence[Finding], answers: Sequence[Evidence]) -> dict[str, Evidence]:
    """Convert findings to evidence, by the description of their group of worlds."""
    return {where_text(finding.where): answer for finding, answer in zip(group_findings, answers, strict=True)}


def is_after_goal(data: ArmData, arm_name: str) -> dict[str, Evidence]:
    """Decide whether an agent is after the goal; return the evidence by group of worlds (`by_group`)."""
    arm_findings = aims(data, arm_name)
    return by_group(
        arm_findings, [evidence_of(finding, finding.about(GOAL), denied=(GOAL,)) for finding in arm_findings]
    )


def is_after_other(data: ArmData, arm_name: str) -> dict[str, Evidence]:
    """Decide whether an agent is after a hypothesis other than the goal; return the evidence by group of worlds
    (`by_group`).
    """
    arm_findings = aims(data, arm_name)
    return by_group(arm_findings, [_other(finding) for finding in arm_findings])


def _other(finding: Finding) -> Evidence:
    other_names = [name for name in finding.names if name != GOAL]
    named = " or ".join(finding.nouns.get(name, name) for name in other_names)
    if finding.answer != "yes" or finding.reason == "weakly or partly":
        rivals = [key.removeprefix("share ") for key in finding.evidence if key.startswith("share ")]
        none = [finding.explains_nothing(name) for name in rivals if name != GOAL]
        if not other_names and none and all(none):
            return evidence_of(finding, "no", denied=[name for name in rivals if name != GOAL])
    if finding.answer != "yes":
        return evidence_of(finding, finding.answer)
    if not other_names:
        return evidence_of(finding, "no" if finding.reason == "named" else "undecided")
    if len(other_names) == len(finding.names):
        return evidence_of(finding, "yes", names=named)
    return evidence_of(finding, "untestable" if finding.reason == "not told apart" else "undecided")


def follows(data: ArmData, arm_name: str) -> dict[str, Evidence]:
    """Decide whether one of the hypotheses explains what an agent does; return the evidence by group of worlds
    (`by_group`).
    """
    arm_findings = aims(data, arm_name)
    named = [" or ".join(finding.nouns.get(name, name) for name in finding.names) for finding in arm_findings]
    return by_group(
        arm_findings,
        [evidence_of(finding, finding.answer, names=text) for finding, text in zip(arm_findings, named, strict=True)],
    )


for _arm, _suffix, _rival, _checked in (
    ("grids", "", "place", "planted"),
    (GIVEN, " of given worlds", "goal", "environments"),
):
    question(f"is directed at the goal{_suffix}", arm=_arm, threshold=0.0, checked=_checked, measure="action accuracy")(
        lambda data, name=_arm: is_after_goal(data, name)
    )
    question(
        f"is directed at another {_rival}{_suffix}",
        arm=_arm,
        threshold=0.0,
        checked=_checked,
        measure="action accuracy",
    )(lambda data, name=_arm: is_after_other(data, name))

for _arm, _suffix in ((HYPOTHESES, ""), (GIVEN, " in given worlds")):
    question(
        f"{FOLLOWS}{_suffix}",
        arm=_arm,
        threshold=0.0,
        section="attribution",
        checked="hypotheses",
        measure="action accuracy",
    )(lambda data, name=_arm: follows(data, name))
