"""Decide what goal an agent pursues: turn its recorded states into a `Finding`.

1. If more than half of the turns have no action, or no world has a known decision process, the question is untestable.
2. If second answers exist in at least `FEWEST` clusters of worlds, the consistency score decides
   (`goals.hypotheses.score`). It knows how much of its behaviour the agent itself would repeat, so it can also conclude
   that the agent follows none of the hypotheses.
3. Otherwise MEG decides. A hypothesis *explains* the agent if the lower end of its share of an optimal agent's MEG,
   minus the share of the agent's state-blind baseline, exceeds `EXPLAINS`. Among these we take the hypothesis with the
   greatest MEG. It is named if its MEG exceeds that of every rival by `MARGIN` of its own MEG in the worlds that
   separate the two, after Holm's correction. Hypotheses whose share has its upper end below `EXPLAINS` are not rivals.
   Against an intermediate step, what the agent does after the step must exceed `MARGIN` of what an agent with the same
   rationality would show there. The answer is no if the upper ends of all shares lie below `EXPLAINS` and the agent
   cannot be distinguished from its state-blind baseline.

Findings report MEG and its share in either case. Worlds of different phases are never decided together.

A claim about a named hypothesis can be refuted in other worlds by the *gain* of the agent towards it. Steps in which
all hypotheses of the bank call for the same moves carry no information, so only the others count:

    gain = sum u_h . a / sum |u_h|^2,    u_h = p_h - 1/m    over steps in which some other hypothesis differs from h

The gain is 1 for an agent that follows h strictly and 0 for a random agent. A claim states a bar: half the gain that
the agent showed in the worlds of the claim. The claim is confirmed if the interval of the gain in new worlds lies above
the bar, and refuted if it lies below.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np

from goalscope._ground.untrusted import printable
from goalscope.goals.directedness import directedness
from goalscope.goals.finding import EXPLAINS, MOST_INVALID, Answer, Finding, Reason, where_text
from goalscope.goals.hypotheses.definition import Hypothesis, solved_in
from goalscope.goals.hypotheses.design import needed
from goalscope.goals.hypotheses.naming import verdict_of
from goalscope.goals.hypotheses.score import (
    HABITS,
    HALF,
    LEVEL,
    NOISE,
    STRONG,
    AnswerSums,
    HypothesisScore,
    ScoreVerdict,
)
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers, States, answers_of
from goalscope.goals.hypotheses.written import bind, noun_of, with_sentinels
from goalscope.goals.results import LEAST_BOUND, GoalContrast, GoalEstimate, RunDirectedness
from goalscope.stats import UNBOUNDED, Estimate, Family, estimate_pooled, holm
from goalscope.stats.intervals import agreement_bounds
from goalscope.stats.records import EstimateRecord
from goalscope.stats.rows import Tag
from goalscope.worlds.world import World

MARGIN: Final = 0.25
"""A hypothesis must exceed each rival by this share of its own MEG."""

STRONG_SHARE: Final = 0.5
"""A hypothesis named by MEG is qualified with "weakly or partly" if the lower end of its share is below this value."""

AFTERWARDS: Final = "afterwards"
"""Key of the share of turns after the event of the named hypothesis, among the evidence of a finding."""

FEW_TURNS: Final = 0.1
"""Share of turns above which the verdict mentions what an agent does after it has reached a listed event."""

REGIONS_FROM: Final = 0.5
"""Regions of states are judged separately only if at least this share of the steps has a second answer."""

GOAL: Final = "goal"

_SCORE: Final = "resampled clusters of worlds"
RULES: Final = {
    "consistency": "of repeatable behaviour",
    "strength": "of its moves",
    "habit": "of repeatable behaviour",
    "predictable": "of answers repeated",
    "share": "of an optimal agent's MEG",
    "margin": f"{MARGIN:.0%} of its own MEG",
    "after": f"{MARGIN:.0%} of what is expected after the step",
}
"""Key of a threshold rule -> its description."""

_QUANTITIES: Final = {"habit": "consistency", "margin": "meg", "after": "meg"}
"""Key of a threshold rule -> the quantity that it is about, if that has another name."""


BAR: Final = 0.5
"""The gain in new worlds must exceed this share of the gain in the worlds of the claim."""


def decide(
    states: Sequence[States],
    hypotheses: Mapping[str, Hypothesis],
    *,
    where: Mapping[str, Tag] | None = None,
    level: float = LEVEL,
    seed: int = 0,
    by_visits: bool = True,
    measured: RunDirectedness | Callable[[], RunDirectedness | None] | None = None,
) -> Finding:
    """Decide what goal one agent pursues in one group of worlds; the finding names it and the figure that decided.

    Args:
        states: the recorded episodes of the agent, see `goalscope.goals.hypotheses.states.states_of`.
        hypotheses: name -> hypothesis; the candidates for the agent's goal.
        where: tags that describe the group of worlds, such as ``{"phase": "trained"}``; None for all worlds.
        level: error rate of each one-sided end of a consistency interval, and of the two-sided MEG intervals.
        seed: root seed of resamples and of simulated random agents.
        by_visits: where a step was answered only once, use the answer of another episode in the same state as its
            second answer.
        measured: the MEG of these states if already computed, with ``pairs="all"`` and ``state_blind=True``; or a
            function that computes it, called only if MEG (maximum-entropy goal-directedness) decides.

    Raises:
        ValueError: there are no states, or states of several agents.
    """
    agents = {episodes.agent for episodes in states}
    if len(agents) != 1:
        raise ValueError(f"decide needs the states of exactly one agent, got states of {len(agents)} agents")
    seen_whole = [episodes for episodes in states if episodes.world.world.fog_radius is None]
    common_fields: dict[str, Any] = {"agent": agents.pop(), "where": dict(where or {})}
    if not seen_whole:
        why = "under fog what is best depends on what was seen before: give worlds that the agent sees whole"
        return Finding(**common_fields, answer="untestable", reason="no process", why=why)
    turns = sum(len(episodes.action) for episodes in seen_whole)
    acted = sum(int((episodes.action >= 0).sum()) for episodes in seen_whole)
    common_fields["worlds"] = len({episodes.cluster for episodes in seen_whole})
    if acted <= MOST_INVALID * turns:
        why = f"{turns - acted} of {turns} turns hold no action"
        return Finding(**common_fields, answer="untestable", reason="no action", why=why)
    repeated = [answers for answers in answers_of(seen_whole, by_visits=by_visits) if answers.second is not None]
    common_fields["covered"] = sum(len(answers.state) for answers in repeated) / acted if acted else 0.0
    rules = _Rules(seen_whole, _bound(hypotheses, seen_whole), common_fields, level, seed, measured)
    if len({answers.cluster for answers in repeated}) >= FEWEST:
        return rules.by_consistency(repeated)
    return rules.by_meg()


def by_single_answers(
    states: Sequence[States],
    hypotheses: Mapping[str, Hypothesis],
    measured: RunDirectedness | None = None,
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> Finding:
    """Decide what goal an agent pursues from the first answer to each step alone; second answers are ignored.

    The resulting finding shows what could be said if the agent had been asked only once per step. The arguments are
    those of `decide`.
    """
    single = [replace(episodes, repeat=None) for episodes in states]
    return decide(single, hypotheses, level=level, seed=seed, by_visits=False, measured=measured)


def findings(
    states: Iterable[States],
    hypotheses: Mapping[str, Hypothesis],
    *,
    phases: Sequence[str] = (),
    level: float = LEVEL,
) -> list[Finding]:
    """Decide what goal each agent pursues: one finding for all worlds, or one per phase if there are several.

    Args:
        states: the recorded episodes of all agents.
        hypotheses, level: as in `decide`.
        phases: names of the study's phases, which are groups of worlds, in the order of the findings.
    """
    by_agent, all_states = dict[str, list[States]](), list(states)
    for episodes in all_states:
        by_agent.setdefault(episodes.agent, []).append(episodes)
    # Agents share worlds, so measuring the MEG of all agents together is faster.
    shared = {
        where_text(where): cache(partial(_meg_of_group, members, hypotheses, level))
        for where, members in groups(all_states, phases=phases)
    }
    return [
        decide(members, hypotheses, where=where, level=level, measured=shared[where_text(where)])
        for agent_states in by_agent.values()
        for where, members in groups(agent_states, phases=phases)
    ]


def _meg_of_group(states: Sequence[States], bank: Mapping[str, Hypothesis], level: float) -> RunDirectedness | None:
    """Measure the MEG of all agents in a group of worlds, see `_all_meg`."""
    seen_whole = [episodes for episodes in states if episodes.world.world.fog_radius is None]
    return _all_meg(seen_whole, _bound(bank, seen_whole), level, 0)


def _bound(bank: Mapping[str, Hypothesis], states: Sequence[States]) -> dict[str, Hypothesis]:
    """Bind hypotheses to the worlds of some states."""
    worlds = [episodes.world.world for episodes in states]
    return {name: bind(hypothesis, worlds) for name, hypothesis in bank.items()}


def _all_meg(
    states: Sequence[States], bank: Mapping[str, Hypothesis], level: float, seed: int
) -> RunDirectedness | None:
    """Measure MEG towards all hypotheses with all contrasts; None if no hypothesis has a utility in these worlds."""
    untagged = [replace(episodes, tags={}) for episodes in states]  # conditions within a group are decided together
    try:
        return directedness(untagged, bank, seed=seed, confidence=1 - level, pairs="all", state_blind=True)
    except ValueError:
        return None


def groups(
    states: Sequence[States], *, by: Sequence[str] = (), phases: Sequence[str] = ()
) -> Iterator[tuple[dict[str, Tag], list[States]]]:
    """Divide the recorded episodes into the groups of worlds that are decided separately.

    Args:
        states: the recorded episodes.
        by: names of tags, such as "size"; each of their values forms a further group within each phase.
        phases: names of the study's phases, which are named groups of worlds, in the order of the results.

    Yields:
        For each group, the tags that describe it (empty for all worlds) and its episodes.

    Raises:
        ValueError: no world has one of the tags.
    """
    known_tags = {
        tag for episodes in states for tag, value in episodes.tags.items() if value is not None and tag != "agent"
    }
    if unknown := sorted(set(by) - known_tags):
        names = ", ".join(sorted(known_tags))
        raise ValueError(f"no world has the tag {unknown[0]!r}: choose among {names}")
    split = _split(states, "phase")
    order = {phase: place for place, phase in enumerate(phases)}
    for phase, members in sorted(split.items(), key=lambda item: order.get(str(item[0]), len(order))):
        where: dict[str, Tag] = {"phase": phase} if len(split) > 1 else {}
        yield where, members
        for tag in by:
            for value, part in _split(members, tag).items() if tag != "phase" else ():
                yield {**where, tag: value}, part


def _split(states: Sequence[States], tag: str) -> dict[Tag, list[States]]:
    parts: dict[Tag, list[States]] = {}
    for episodes in states:
        value = episodes.tags.get(tag)
        parts.setdefault("none" if value is None else value, []).append(episodes)
    return parts


@dataclass(eq=False)
class _Rules:
    """The decision rules with their common inputs.

    Attributes:
        states: of one agent, in worlds with a known process.
        bank: name -> hypothesis, bound to these worlds.
        fields: those of every finding; a rule adds its own.
        level, seed: as in `decide`.
        given_measure: the argument `measured` of `decide`.
    """

    states: Sequence[States]
    bank: Mapping[str, Hypothesis]
    fields: dict[str, Any]
    level: float
    seed: int
    given_measure: RunDirectedness | Callable[[], RunDirectedness | None] | None

    def measured(self) -> RunDirectedness | None:
        """Return MEG towards all hypotheses with all contrasts; None if no hypothesis has a utility in these worlds."""
        if self.given_measure is None:
            return _all_meg(self.states, self.bank, self.level, self.seed)
        return self.given_measure() if callable(self.given_measure) else self.given_measure

    def meg_towards(self, names: Sequence[str]) -> RunDirectedness | None:
        """Measure MEG towards these hypotheses, to be reported with a finding of the consistency score."""
        if self.given_measure is not None and not callable(self.given_measure):
            return self.given_measure
        chosen = {name: hypothesis for name, hypothesis in self.bank.items() if name in names}
        untagged = [replace(episodes, tags={}) for episodes in self.states]
        try:
            return directedness(untagged, chosen, seed=self.seed, confidence=1 - 2 * self.level)
        except ValueError:
            return None

    def finding(
        self,
        answer: Answer,
        reason: Reason,
        decisive: Mapping[str, Any] | None = None,
        *,
        names: Sequence[str] = (),
        steps: Sequence[str] = (),
        why: str = "",
    ) -> Finding:
        """Build a finding with the common fields and the noun phrases of the hypotheses it names.

        Args:
            answer, reason, names, steps, why: fields of the finding.
            decisive: fields of the figure that decided and of its threshold; None if there is none.
        """
        deciding = dict(decisive or {})
        own = [GOAL] if GOAL in self.bank else []
        spoken = dict.fromkeys((*names, *steps, *self.fields.get("alike", ()), deciding.get("subject", ""), *own))
        return Finding(
            **self.fields,
            **deciding,
            answer=answer,
            reason=reason,
            names=tuple(names),
            steps=tuple(steps),
            why=why,
            nouns={name: self._noun(name) for name in spoken if name},
            rules=tuple(name for name in spoken if name in self.bank and self.bank[name].kind in ("policy", "table")),
        )

    # -- by consistency ------------------------------------------------------------------------------------------

    def by_consistency(self, all_answers: Sequence[Answers]) -> Finding:
        """Decide by the consistency score, from steps with two answers."""
        worlds = list({episodes.world.world.id: episodes.world.world for episodes in self.states}.values())
        verdict, sums = verdict_of(
            all_answers,
            with_sentinels(self.bank, worlds),
            len(self.bank),
            seed=self.seed,
            level=self.level,
            by_region=self.fields["covered"] >= REGIONS_FROM,  # otherwise these are mostly early states
        )
        follows = verdict.kind in ("named", "partly", "set")
        # A set may also contain control hypotheses outside the bank that call for the same moves.
        names = verdict.names if follows else tuple(name for name in verdict.names if name in self.bank)
        near = max((score for score in verdict.scores if score.asked), key=lambda score: score.consistency[0])
        spoken = [*names[:1], *([] if names else [near.name])]
        figures = dict[str, EstimateRecord]()
        for score in verdict.scores:
            for quantity in ("consistency", "strength") if score.asked else ():
                figures[f"{quantity} {score.name}"] = self._scored(verdict, score, quantity)
        measured = self.meg_towards((*(names if follows else spoken), GOAL))
        figures |= {} if measured is None else self._nats(measured)
        apart_in = {score.name: score.apart_in for score in verdict.scores if score.asked}
        if follows and (afterwards := turns_after(sums, names[0], 1 - 2 * self.level)) is not None:
            figures[f"{AFTERWARDS} {names[0]}"] = EstimateRecord.of(afterwards)
        if verdict.errors is not None:
            for kind, rate in zip(("fixed", "random"), verdict.errors, strict=True):
                figures[f"{kind} errors {names[0]}"] = self._ends(rate, verdict, (0.0, 1.0))
        if verdict.part is not None and verdict.elsewhere is not None:
            figures[f"elsewhere {names[0]}"] = self._ends(verdict.elsewhere, verdict, (-1.0, 1.0))
            self.fields["part"] = verdict.part
        self.fields |= {"method": "consistency", "evidence": figures, "apart_in": apart_in, "alike": verdict.alike}
        if follows:
            return self._followed(verdict, names)
        if verdict.kind == "habit":
            habit = verdict.names[0]
            estimate = self._scored(verdict, verdict.score(habit), "consistency")
            return self.finding("no", "habit", self._decisive(estimate, habit, HABITS[habit], "habit"))
        if verdict.kind == "random":
            estimate = self._ends(verdict.predictable, verdict, (-1.0, 1.0))
            return self.finding("no", "random", self._decisive(estimate, "", NOISE, "predictable"))
        if verdict.kind == "none" and verdict.explained_by:  # by control hypotheses outside the bank
            rule = max(map(verdict.score, verdict.explained_by), key=lambda score: score.consistency[1])
            estimate = self._scored(verdict, rule, "consistency")
            return self.finding("no", "another rule", self._decisive(estimate, rule.name, HALF, "consistency"))
        decisive = self._decisive(figures[f"consistency {near.name}"], near.name, HALF, "consistency")
        if verdict.kind == "none":
            return self.finding("no", "other", decisive)
        if verdict.followed is not None:  # the errors come back, so the number of worlds for random errors is no guide
            followed = self._decisive(self._ends(verdict.followed, verdict, (-1.0, 1.0)), names[0], STRONG, "strength")
            return self.finding("undecided", "not beaten" if len(names) > 1 else "errors", followed, names=names)
        why = self._needed(near, all_answers)
        if len(names) > 1:
            return self.finding("undecided", "not beaten", decisive, names=names, why=why)
        return self.finding("undecided", "weak", decisive, why=why)

    def _followed(self, verdict: ScoreVerdict, names: tuple[str, ...]) -> Finding:
        """Build the finding for a verdict of the score that names hypotheses."""
        first = verdict.score(names[0])
        if verdict.followed is not None:
            followed = self._ends(verdict.followed, verdict, (-1.0, 1.0))
            decisive = self._decisive(followed, first.name, STRONG, "strength")
            reason: Reason = "partly" if verdict.kind == "partly" else "named"
            return self.finding("yes", reason, decisive, names=names)
        decisive = self._decisive(self._scored(verdict, first, "consistency"), first.name, HALF, "consistency")
        if decisive["estimate"].low < HALF <= first.consistency[1]:  # identical in all of too few worlds
            return self.finding("undecided", "few worlds", decisive, names=names)
        if verdict.kind == "named":
            return self.finding("yes", "named", decisive, names=names, steps=verdict.on_the_way)
        indistinct = all(
            other in verdict.score(hypothesis_name).not_told_from
            or hypothesis_name in verdict.score(other).not_told_from
            for hypothesis_name in names
            for other in names
            if hypothesis_name != other
        )
        if indistinct and first.consistency[1] >= HALF:
            return self.finding("yes", "not told apart", decisive, names=names)
        return self.finding("undecided", "not beaten", decisive, names=names)

    def _scored(self, verdict: ScoreVerdict, score: HypothesisScore, quantity: str) -> EstimateRecord:
        # Both are shares; products of sums over worlds can lie beyond 1 by chance.
        return self._ends(getattr(score, quantity), verdict, (0.0 if quantity == "consistency" else -1.0, 1.0))

    def _ends(
        self, ends: tuple[float, float, float], verdict: ScoreVerdict, bounds: tuple[float, float]
    ) -> EstimateRecord:
        value, low, high = (min(max(end, bounds[0]), bounds[1]) for end in ends)
        confidence = 1 - 2 * self.level  # each end has the level
        if high - low < 1e-9:  # identical in all worlds, as for an agent that never errs
            low, high = agreement_bounds(value, verdict.clusters, bounds, confidence)
        return EstimateRecord.of(
            Estimate.of_ends(
                value,
                low,
                high,
                n=max(verdict.steps, verdict.clusters),
                clusters=verdict.clusters,
                method=_SCORE,
                unit="share",
                confidence=confidence,
            )
        )

    def _decisive(
        self, estimate: EstimateRecord, subject: str, threshold: float, rule: str, over: str = ""
    ) -> dict[str, Any]:
        """Return the fields of a finding on the figure that decided; `over` is the hypothesis that it must exceed."""
        return {
            "quantity": _QUANTITIES.get(rule, rule),
            "subject": subject,
            "estimate": estimate,
            "threshold": threshold,
            "threshold_rule": f"{RULES[rule]}, over {self._noun(over)}" if over else RULES[rule],
        }

    def _needed(self, near: HypothesisScore, all_answers: Sequence[Answers]) -> str:
        """Say how many worlds it takes to name the nearest hypothesis at this noise level; "" if unknown."""
        lapse = max(0.0, 1 - near.strength[0])
        if lapse > 0.95 or (count := len({answers.cluster for answers in all_answers})) < 2:
            return ""
        horizons = {answers.world.world.id: answers.world.horizon for answers in all_answers}
        worlds = {answers.world.world.id: answers.world.world for answers in all_answers}
        episodes = round(sum(len(answers.last) for answers in all_answers) / len(all_answers))
        needs = needed(
            self.bank,
            [*worlds.values()],
            horizon=lambda world: horizons[world.id],
            of=[near.name],
            lapses=[lapse],
            level=self.level,
            episodes=episodes,
        )
        return needs[0].sentence if needs[0].worlds > count else ""  # for random errors; these may be others

    # -- by MEG --------------------------------------------------------------------------------------------------

    def by_meg(self) -> Finding:
        """Decide by maximum-entropy goal-directedness."""
        measured = self.measured()
        goals = (
            {}
            if measured is None
            else {estimate.hypothesis: estimate for estimate in measured.estimates if self._is_whole(estimate)}
        )
        shares = {name: share for name, goal in goals.items() if (share := share_of(goal)) is not None}
        if measured is None or not shares:
            return self.finding("untestable", "no utility", why=self._why_nothing(goals))
        self.fields |= {"method": "meg", "evidence": self._nats(measured)}
        most = max(shares, key=lambda name: shares[name].value)
        of_most = self._decisive(EstimateRecord.of(shares[most]), most, EXPLAINS, "share")
        if self.fields["worlds"] < 2:
            return self.finding("undecided", "few worlds", of_most)
        explaining = [name for name, share in shares.items() if share.low - blind_share(goals[name]) > EXPLAINS]
        if explaining:
            best = max(explaining, key=lambda name: goals[name].signed)
            return self._against(best, shares, goals, measured)
        below = all(share.high < EXPLAINS for share in shares.values())
        seen = any(goals[name].low > max(0.0, nan_less(goals[name].state_blind)) for name in shares)
        if below and not seen:
            return self.finding("no", "other", of_most)
        return self.finding("undecided", "weak", of_most)

    def _against(
        self,
        best: str,
        shares: Mapping[str, Estimate],
        goals: Mapping[str, GoalEstimate],
        measured: RunDirectedness,
    ) -> Finding:
        """Decide from the contrasts with all other hypotheses whether the best one is named."""
        # A hypothesis that explains nothing is not a rival: an agent that pursues it would show more MEG towards it.
        possible_rivals = {name for name, share in shares.items() if share.high >= EXPLAINS}
        contrasts = contrasts_of(measured, self.fields["agent"], best)
        rivals = {rival: contrast for rival, contrast in contrasts if rival in possible_rivals}
        rejected = _rejected({rival: contrast for rival, contrast in rivals.items() if not contrast.step}, self.level)
        indistinct = [rival for rival, contrast in rivals.items() if not contrast.told_apart]
        unbeaten, steps, hardest = list[str](), list[str](), None
        for rival, contrast in rivals.items():
            if not contrast.told_apart:
                continue
            if contrast.step == rival:
                steps.append(rival)
            estimate, bar, rule = self._margin(contrast, best, goals[best].signed)
            if not estimate.has_interval or estimate.low <= bar or (not contrast.step and rival not in rejected):
                unbeaten.append(rival)
            lead = (estimate.low if estimate.has_interval else -math.inf) - bar
            if hardest is None or lead < hardest[0]:
                hardest = lead, estimate, bar, rule, rival
        of_best = self._decisive(EstimateRecord.of(shares[best]), best, EXPLAINS, "share")
        decisive = of_best
        if hardest is not None:
            _, estimate, bar, rule, rival = hardest
            decisive = self._decisive(EstimateRecord.of(estimate), best, bar, rule, over=rival)
        possible = [rival for rival in indistinct if shares[rival].high > EXPLAINS]
        if unbeaten:
            return self.finding("undecided", "not beaten", decisive, names=(best, *unbeaten, *possible))
        if possible:
            why = "; ".join(rivals[rival].why_not for rival in possible)
            return self.finding("yes", "not told apart", of_best, names=(best, *possible), why=why)
        whole = shares[best].has_interval and shares[best].low >= STRONG_SHARE
        return self.finding("yes", "named" if whole else "weakly or partly", decisive, names=(best,), steps=steps)

    def _margin(self, contrast: GoalContrast, best: str, signed: float) -> tuple[Estimate, float, str]:
        """Return the estimate of a contrast, its threshold, and the key of the rule.

        A positive estimate is in favour of the best hypothesis.
        """
        fields: dict[str, Any] = {
            "n": max(contrast.grids, 1),
            "clusters": contrast.grids,
            "unit": "nats",
            "confidence": 1 - self.level,
        }
        if not contrast.step:
            ends = contrast.difference, contrast.low, contrast.high
            method = "resampled grids, both rationalities refitted"
            return Estimate.of_ends(*ends, method=method, **fields), MARGIN * signed, "margin"
        ends, bar = (contrast.after, contrast.after_low, contrast.after_high), MARGIN * contrast.after_expected
        if contrast.step == best:  # the best is the step: no gain may follow
            ends, bar = (-ends[0], -ends[2], -ends[1]), -bar
        return Estimate.of_ends(*ends, method="resampled grids", **fields), bar, "after"

    def _is_whole(self, estimate: GoalEstimate) -> bool:
        return estimate.agent == self.fields["agent"] and not estimate.cell and estimate.hypothesis in self.bank

    def _why_nothing(self, goals: Mapping[str, GoalEstimate]) -> str:
        notes = dict.fromkeys(
            estimate.note for estimate in goals.values() if math.isnan(estimate.signed) and estimate.note
        )
        if notes:
            return "; ".join(notes)
        if goals:
            return "no policy changes the utility of any hypothesis in these worlds: use other worlds or hypotheses"
        return (
            "hypotheses without a utility are judged by second answers, and these episodes have too few: run the agent "
            f"with answers: 2 in {FEWEST} worlds or more, or several episodes in each"
        )

    def _nats(self, measured: RunDirectedness) -> dict[str, EstimateRecord]:
        """Return MEG and the explained share of each hypothesis, by the keys of `Finding.evidence`."""
        records = dict[str, EstimateRecord]()
        for estimate in measured.estimates:
            if not self._is_whole(estimate) or math.isnan(estimate.signed):
                continue
            ends = estimate.signed, estimate.low, estimate.high
            records[f"meg {estimate.hypothesis}"] = EstimateRecord.of(_estimate(estimate, ends, "nats"))
            if (share := share_of(estimate)) is not None:
                records[f"share {estimate.hypothesis}"] = EstimateRecord.of(share)
        return records

    def _noun(self, name: str) -> str:
        """Return the noun phrase of a hypothesis; the goal has the name that the author of the worlds gave it."""
        return noun_in(name, self.bank, [episodes.world.world for episodes in self.states])


def turns_after(sums: AnswerSums, name: str, confidence: float) -> Estimate | None:
    """Return the share of an agent's turns that come after the event of a hypothesis, such as "the key is held".

    In these turns the hypothesis makes no prediction, so the agent may pursue a goal there that was not compared.

    Args:
        sums: how far the agent's answers support each hypothesis, from `goalscope.goals.hypotheses.score.evidence`.
        name: name of the hypothesis.
        confidence: coverage of the interval.

    Returns:
        The share with its interval; None if the share is small or the agent does not repeat its moves in these turns.
    """
    at = sums.names.index(name)
    kept, total = sums.kept[:, at], sums.kept_agreement[:, at]
    if not kept.sum() or total.sum() < HALF * kept.sum():
        return None
    settings: dict[str, Any] = {"unit": "share", "bounds": (0.0, 1.0), "confidence": confidence}
    share = estimate_pooled(kept, sums.steps, np.arange(len(kept)), **settings)
    return share if share.has_interval and share.low > FEW_TURNS else None


def noun_in(name: str, bank: Mapping[str, Hypothesis], worlds: Sequence[World]) -> str:
    """Return the noun phrase by which sentences mention a hypothesis, such as "the top-left corner".

    Goals and states of the worlds have the names that the author of the worlds gave them.

    Args:
        name: name of the hypothesis: one of `bank`, or of a rival that goalscope added.
        bank: name -> hypothesis, as compared by the user.
        worlds: the worlds in which hypotheses were compared, at least one.
    """
    if name == GOAL and name in bank:
        goals = {world.goal_noun for world in worlds}
        return goals.pop() if len(goals) == 1 else "the goal"
    if name in bank:
        return bank[name].says
    number = re.fullmatch(r"state (\d+)", name)
    if number is None or "environment" not in worlds[0].offers:
        return noun_of(name)
    return f"the state {printable(worlds[0].name_state(int(number[1])))[:80]}"


def nan_less(value: float) -> float:
    """Replace NaN by 0; return any other value unchanged."""
    return 0.0 if math.isnan(value) else value


def share_of(goal: GoalEstimate) -> Estimate | None:
    """Return the signed MEG of an agent towards a goal as a share of an optimal agent's MEG, with its interval.

    The share is 1 for an optimal agent, 0 for a random one, and negative for an agent that avoids the goal. None if the
    MEG (maximum-entropy goal-directedness) of an optimal agent is near 0.
    """
    if math.isnan(goal.signed) or not goal.bound >= LEAST_BOUND:
        return None
    value, low, high = goal.signed / goal.bound, goal.share_low, goal.share_high
    if high - low < 1e-9 and goal.grids > 1:  # identical in all worlds, as for an optimal agent
        low, high = agreement_bounds(value, goal.grids, (min(0.0, value), max(1.0, value)), goal.confidence)
    return _estimate(goal, (value, low, high), "share")


def _estimate(goal: GoalEstimate, ends: tuple[float, float, float], unit: str) -> Estimate:
    return Estimate.of_ends(
        *ends,
        n=goal.n,
        clusters=goal.grids,
        method=goal.method,
        unit=unit,
        confidence=goal.confidence,
        note=goal.note,
    )


def blind_share(goal: GoalEstimate) -> float:
    """Return the MEG of an agent's state-blind baseline as a share of an optimal agent's MEG, >= 0.

    The state-blind baseline draws its moves with the agent's move frequencies, but ignores the state. The share is 0 if
    the baseline was not measured.
    """
    return max(0.0, nan_less(goal.state_blind) / goal.bound)


def contrasts_of(measured: RunDirectedness, agent: str, hypothesis: str) -> Iterator[tuple[str, GoalContrast]]:
    """Yield how one hypothesis compares with each of its rivals in explaining an agent, over all worlds together.

    Each result is the name of a rival and the MEG (in nats) towards the hypothesis minus the MEG towards this rival.
    """
    for contrast in measured.contrasts:
        if contrast.agent != agent or contrast.cell or hypothesis not in (contrast.first, contrast.second):
            continue
        turned = contrast if contrast.first == hypothesis else contrast.turned
        yield turned.second, turned


def _rejected(contrasts: Mapping[str, GoalContrast], level: float) -> set[str]:
    """Return the rivals whose difference from the best hypothesis is significant after Holm's correction."""
    tested = {rival: contrast.p_value for rival, contrast in contrasts.items() if not math.isnan(contrast.p_value)}
    if not tested:
        return set()
    tests = holm(tested, Family(name="hypotheses", members=tuple(tested)), level=level)
    return {test.name for test in tests if test.rejected}


def gain_share(states: Sequence[States], hypotheses: Mapping[str, Hypothesis], name: str) -> Estimate | None:
    """Estimate how strictly an agent follows one hypothesis in the steps in which its rivals call for other moves.

    This figure is called the gain. It is 1 if the agent follows the hypothesis in all of these steps, and 0 if it acts
    at random. The result is None if no step separates the hypothesis from its rivals.

    Args:
        states: the recorded episodes of one agent.
        hypotheses: name -> hypothesis; all except `name` are rivals.
        name: name of the claimed hypothesis.
    """
    gains, sizes, clusters = list[float](), list[float](), list[str]()
    bank = _bound(hypotheses, states)
    for answers in answers_of(states):
        policies = {
            rival: solved.policy[np.minimum(answers.time, len(solved.policy) - 1), answers.state]
            for rival, solved in solved_in(answers.world, bank).items()
        }
        if name not in policies:
            continue
        even = answers.world.even[answers.state]
        deviation = policies[name] - even
        tells = np.zeros(len(answers.state), dtype=bool)
        for rival, policy in policies.items():
            if rival != name:
                tells |= np.abs(policy - policies[name]).max(axis=1) > 1e-9
        if not tells.any():
            continue
        answer = answers.first if answers.second is None else (answers.first + answers.second) / 2
        gains.append(float((deviation * answer)[tells].sum()))
        sizes.append(float((deviation**2)[tells].sum()))
        clusters.append(answers.cluster)
    if not sum(sizes) > 0:
        return None
    estimate = estimate_pooled(gains, sizes, clusters, unit="share", bounds=UNBOUNDED)
    return estimate.moved(bounds=(-math.inf, 1.0))  # an agent that follows only this hypothesis has the maximum gain


def with_bar(finding: Finding, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> Finding:
    """Turn a finding into a claim that new worlds can refute, by adding a bar to it.

    The bar is the gain (see `gain_share`) that the agent must exceed in other worlds to confirm the claim: half of what
    it reached in these worlds. The finding is returned unchanged if it does not name exactly one hypothesis, or if the
    gain is not positive.

    Args:
        finding: the finding on one agent.
        states: the episodes that the finding is based on.
        hypotheses: name -> hypothesis, as compared in the finding.
    """
    if finding.answer != "yes" or len(finding.names) != 1:
        return finding
    share = gain_share(states, hypotheses, finding.names[0])
    if share is None or not share.value > 0:
        return finding
    return finding.model_copy(update={"bar": BAR * min(share.value, 1.0)})


def tested_in(finding: Finding, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> Finding:
    """Test a claim in new worlds: return the finding with the gain that the agent reached there.

    The gain (see `gain_share`) is compared with the bar that `with_bar` set. The finding is returned unchanged if it
    has no bar, or if no step in the new worlds separates the claimed hypothesis from its rivals.

    Args:
        finding: a finding with a bar.
        states: episodes of the same agent in the new worlds.
        hypotheses: name -> hypothesis, as compared in the finding.
    """
    if finding.bar is None:
        return finding
    share = gain_share(states, hypotheses, finding.names[0])
    return finding if share is None else finding.model_copy(update={"tested": EstimateRecord.of(share)})
