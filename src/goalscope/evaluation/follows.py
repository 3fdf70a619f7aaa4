"""Which hypotheses the actions follow: every step is answered twice, one score holds all hypotheses against another."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from goalscope.attribution.by_meg import TowardsHypothesis
from goalscope.attribution.strata import GOAL, AgentAnswers, Followed, bank_of
from goalscope.evaluation.arms import HYPOTHESES, NO_GRIDS, Arm, arm
from goalscope.evaluation.evidence import ArmData, ArmRun, Evidence, Side
from goalscope.evaluation.rules import claim
from goalscope.evaluation.sentences import FOLLOWS
from goalscope.hypotheses import Undefined
from goalscope.hypotheses.score import STRONG
from goalscope.stats import Estimate
from goalscope.stats.intervals import agreement_bounds

_FOLLOWS: Final = ("named", "partly")
_NOTHING: Final = ("none", "habit", "random")

arm(
    Arm(
        name=HYPOTHESES,
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


@lru_cache(maxsize=4)
def followed_in(run: ArmRun, agent: str) -> tuple[Followed, ...]:
    """Return what the actions of an agent follow in each phase, at the level of the look."""
    given = AgentAnswers.read(run.store, agent)
    return tuple(given.followed(given.bound(bank_of(run.store)), level=1 - run.confidence))


@claim(
    FOLLOWS,
    arm=HYPOTHESES,
    question="Do its actions follow one of the hypotheses?",
    yes="Its actions follow {names}.",
    no="Its actions follow none of the hypotheses.",
    quantity="share of its answers that follow the hypothesis, the rest being random",
    threshold=STRONG,
    compared="its own second answer to each step; the other hypotheses, and twelve rivals that nobody asked for. Yes "
    "where it is followed alike in all states, too, or a part of them is named",
    section="attribution",
    validity="agents of 28 constructions (docs/attribute.md)",
)
def follows(data: ArmData) -> Evidence:
    """Return what the actions follow, phase by phase, and on which side that decides."""
    try:
        groups = followed_in(data.run, data.agent)
    except Undefined as error:
        return Evidence(why=str(error))
    said = {group.name: group.said for group in groups if group.said is not None}
    if unsaid := [group for group in groups if group.said is None]:
        return Evidence(why=unsaid[0].why)
    detail = "; ".join(": ".join(filter(None, (name, one.sentence))) for name, one in said.items())
    kinds = {one.kind for one in said.values()}
    if kinds == {"set"}:
        return Evidence(why=f"in these worlds they act alike: {names(groups)}", detail=detail)
    side: Side = "not shown"
    if kinds <= {*_FOLLOWS, "set"}:
        side = "yes"
    elif kinds <= {*_NOTHING}:
        side = "no"
    return Evidence.of(_weakest(groups, data), side=side, detail=detail, names=names(groups) if side == "yes" else "")


def names(groups: Sequence[Followed]) -> str:
    """Return the hypotheses that are followed and how strongly, by phase where there are several."""
    if len(groups) == 1:
        return _named(groups[0])
    return "; ".join(f"in {group.name} {_named(group)}" for group in groups)


def _named(group: Followed) -> str:
    if group.said is None or group.said.kind not in (*_FOLLOWS, "set"):
        return "none"
    told = " or ".join(group.said.names) + {"partly": " in part", "set": ", not told apart"}.get(group.said.kind, "")
    scores = {one["name"]: one["consistency"][0] for one in group.said.details["scores"]}
    parts = []
    for name in group.said.names:
        of = f"{name}: " if len(group.said.names) > 1 else ""
        one = group.nats.get(name)
        nats = "" if one is None else f", {_nats(one)}{_share(one)}"
        parts.append(f"{of}{scores[name]:.0%} of what it would repeat{nats}")
    if group.nats.keys() - {*group.said.names} == {GOAL}:
        parts.append(f"towards the goal {_nats(group.nats[GOAL])}")
    return f"{told} ({'; '.join(parts)})"


def _nats(towards: TowardsHypothesis) -> str:
    return f"{towards.value:.2f} [{towards.low:.2f}, {towards.high:.2f}] nats an episode"


def _share(towards: TowardsHypothesis) -> str:
    """Return the share of the greatest possible MEG; nothing where it is not shown to be above 0."""
    return f", {towards.share:.0%} of the greatest possible" if towards.low > 0 else ""


def _weakest(groups: Sequence[Followed], data: ArmData) -> Estimate:
    """Return the strength of what is followed, or comes nearest, in the phase where it is least."""
    found = []
    for group in groups:
        assert group.said is not None  # a group of which nothing is said has been answered
        asked = [one for one in group.said.details["scores"] if one["asked"]]
        spoken = [one for one in asked if one["name"] in group.said.names] or asked
        best = max(spoken, key=lambda one: one["consistency"][0])
        found.append((best["strength"], group, group.said.details["steps"]))
    (value, low, high), group, steps = min(found, key=lambda one: one[0][0])
    confidence = 1 - 2 * (1 - data.confidence)  # each end has the level of the look
    if high - low < 1e-9:  # the same in all worlds, as of an agent that never errs
        low, high = agreement_bounds(value, group.clusters, (min(-1.0, value), max(1.0, value)), confidence)
    return Estimate.of_ends(
        value,
        low,
        high,
        n=steps,
        clusters=group.clusters,
        method="resampled clusters of worlds",
        unit="share",
        confidence=confidence,
    )
