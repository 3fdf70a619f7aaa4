"""What an agent is after: the one decision, from what it did to a `Finding`.

1. Where more than half of the turns hold no action, or no world has a known decision process, nothing can be told.
2. Where second answers are known in `FEWEST` clusters of worlds or more, the score of hypotheses decides
   (`goals.hypotheses.score`): it knows how much of its answers the agent itself would repeat, and so it can also
   say that an agent follows none of the hypotheses.
3. Otherwise MEG decides. A hypothesis *explains* if the lower end of its share of what an optimal agent shows exceeds
   `EXPLAINS` after the share of the agent's state-blind baseline is taken off. Of these the one with the most nats is
   taken. It is named if its MEG exceeds that of each other hypothesis by `MARGIN` of its own, in the worlds that tell
   the two apart, and after Holm's correction over them; one whose own share has its upper end below `EXPLAINS` is no
   rival; against a step on the way to it, if what the agent does after
   that step exceeds `MARGIN` of what an agent with the same rationality would show there. The answer is no if the upper
   ends of all shares lie below `EXPLAINS` and nobody can tell the agent from a state-blind one.

MEG and its share stand beside the answer in either case. Worlds of different phases are never decided together.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from goalscope.goals.directedness import directedness
from goalscope.goals.finding import EXPLAINS, MOST_INVALID, Answer, Finding, Reason, where_text
from goalscope.goals.hypotheses.answers import Answers, answers_of
from goalscope.goals.hypotheses.definition import Hypothesis
from goalscope.goals.hypotheses.evidence import evidence
from goalscope.goals.hypotheses.need import needed
from goalscope.goals.hypotheses.score import HABITS, HALF, LEVEL, NOISE, STRONG, HypothesisScore, ScoreVerdict, judge
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import States
from goalscope.goals.hypotheses.written import bind, with_sentinels
from goalscope.goals.results import LEAST_BOUND, GoalContrast, GoalEstimate, RunDirectedness
from goalscope.stats import Estimate, Family, holm
from goalscope.stats.intervals import agreement_bounds
from goalscope.stats.record import EstimateRecord
from goalscope.stats.rows import Tag

MARGIN: Final = 0.25
"""Share of its own MEG by which a hypothesis must exceed each other one."""

STRONG_SHARE: Final = 0.5
"""Share of what an optimal agent shows that the lower end must reach before a name by MEG is said without a word."""

REGIONS_FROM: Final = 0.5
"""Share of the steps with a second answer below which no part of the worlds is judged by itself."""

GOAL: Final = "goal"

_SCORE: Final = "resampled clusters of worlds"
RULES: Final = {
    "consistency": "of what it would repeat",
    "strength": "of its answers",
    "habit": "of what it would repeat",
    "predictable": "of its answers repeated",
    "share": "of an optimal agent's MEG",
    "margin": f"{MARGIN:.0%} of its own MEG",
    "after": f"{MARGIN:.0%} of what is expected after the step",
}
"""Rule of a threshold -> it in words."""


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
    """Return what one agent is after in one group of worlds.

    Args:
        states: what it did there, see `goalscope.goals.hypotheses.states.states_of`.
        hypotheses: name -> hypothesis, all that may be named.
        where: tags of the group.
        level: error rate of each one-sided end of an interval of the score, and of both ends of one of MEG.
        seed: root seed of resamples and of simulated random agents.
        by_visits: whether other episodes that came to the same state stand in for second answers.
        measured: the MEG of all of these states, with ``pairs="all"`` and ``state_blind=True``, where it is known
            already; or what measures it, called where MEG decides.

    Raises:
        ValueError: no states, or those of several agents.
    """
    agents = {one.agent for one in states}
    if len(agents) != 1:
        raise ValueError(f"a decision must be about the states of one agent, got those of {len(agents)}")
    known = [one for one in states if one.world.world.fog_radius is None]
    about: dict[str, Any] = {"agent": agents.pop(), "where": dict(where or {})}
    if not known:
        why = "under fog what is best depends on what was seen before: give worlds that the agent sees whole"
        return Finding(**about, answer="untestable", reason="no process", why=why)
    turns, acted = sum(len(one.action) for one in known), sum(int((one.action >= 0).sum()) for one in known)
    about["worlds"] = len({one.cluster for one in known})
    if acted <= MOST_INVALID * turns:
        why = f"{turns - acted} of {turns} turns hold no action"
        return Finding(**about, answer="untestable", reason="no action", why=why)
    bound = {name: bind(one, [state.world.world for state in known]) for name, one in hypotheses.items()}
    given = [one for one in answers_of(known, by_visits=by_visits) if one.second is not None]
    about["covered"] = sum(len(one.state) for one in given) / acted if acted else 0.0
    rules = _Rules(known, bound, about, level, seed, measured)
    if len({one.cluster for one in given}) >= FEWEST:
        return rules.by_consistency(given)
    return rules.by_meg()


def by_single_answers(
    states: Sequence[States],
    hypotheses: Mapping[str, Hypothesis],
    measured: RunDirectedness | None = None,
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> Finding:
    """Return what `decide` does where no second answer is known; arguments are those of it."""
    single = [replace(one, repeat=None) for one in states]
    return decide(single, hypotheses, level=level, seed=seed, by_visits=False, measured=measured)


def findings(
    states: Iterable[States],
    hypotheses: Mapping[str, Hypothesis],
    *,
    phases: Sequence[str] = (),
    level: float = LEVEL,
) -> list[Finding]:
    """Return what each agent is after: in all worlds, or where they are of several phases, in each phase.

    Args:
        states, hypotheses, level: as in `decide`.
        phases: the order of the phases.
    """
    by_agent, every = dict[str, list[States]](), list(states)
    for one in every:
        by_agent.setdefault(one.agent, []).append(one)
    # Agents share worlds, so the MEG of all of them together is measured faster than that of each.
    shared = {
        where_text(where): _Measuring(members, hypotheses, level, 0) for where, members in groups(every, phases=phases)
    }
    return [
        decide(members, hypotheses, where=where, level=level, measured=shared[where_text(where)])
        for own in by_agent.values()
        for where, members in groups(own, phases=phases)
    ]


class _Measuring:
    """Measures the MEG of some agents in a group of worlds once, when it is called for the first time."""

    def __init__(self, states: Sequence[States], bank: Mapping[str, Hypothesis], level: float, seed: int) -> None:
        known = [one for one in states if one.world.world.fog_radius is None]
        self.states, self.bank, self.level, self.seed = known, bank, level, seed

    def __call__(self) -> RunDirectedness | None:
        return self._found

    @cached_property
    def _found(self) -> RunDirectedness | None:
        worlds = [one.world.world for one in self.states]
        bound = {name: bind(one, worlds) for name, one in self.bank.items()}
        return _all_meg(self.states, bound, self.level, self.seed)


def _all_meg(
    states: Sequence[States], bank: Mapping[str, Hypothesis], level: float, seed: int
) -> RunDirectedness | None:
    """Return MEG towards all hypotheses with all contrasts; None where none of them has a utility here."""
    untagged = [replace(one, tags={}) for one in states]  # conditions within a group are decided together
    try:
        return directedness(untagged, bank, seed=seed, confidence=1 - level, pairs="all", state_blind=True)
    except ValueError:
        return None


def groups(
    states: Sequence[States], *, by: Sequence[str] = (), phases: Sequence[str] = ()
) -> Iterator[tuple[dict[str, Tag], list[States]]]:
    """Yield the groups of worlds that are decided by themselves, with their tags: see `findings`.

    Raises:
        ValueError: a tag that no world has.
    """
    known = {tag for one in states for tag, value in one.tags.items() if value is not None and tag != "agent"}
    if unknown := sorted(set(by) - known):
        names = ", ".join(sorted(known))
        raise ValueError(f"worlds must have the tags that are asked for ({names}), got {unknown[0]!r}")
    split = _split(states, "phase")
    order = {phase: place for place, phase in enumerate(phases)}
    for phase, members in sorted(split.items(), key=lambda item: order.get(str(item[0]), len(order))):
        where: dict[str, Tag] = {"phase": phase} if len(split) > 1 else {}
        yield where, members
        for tag in by:
            for value, part in _split(members, tag).items() if tag != "phase" else ():
                yield {**where, tag: value}, part


def _split(states: Sequence[States], tag: str) -> dict[Tag, list[States]]:
    found: dict[Tag, list[States]] = {}
    for one in states:
        value = one.tags.get(tag)
        found.setdefault("none" if value is None else value, []).append(one)
    return found


class _Rules:
    """The rules, with what all of them share.

    Args:
        states: of one agent, in worlds with a known process.
        bank: name -> hypothesis, bound to these worlds.
        about: fields of every finding; a rule adds its own.
        level, seed, measured: as in `decide`.
    """

    def __init__(
        self,
        states: Sequence[States],
        bank: Mapping[str, Hypothesis],
        about: Mapping[str, Any],
        level: float,
        seed: int,
        measured: RunDirectedness | Callable[[], RunDirectedness | None] | None,
    ) -> None:
        self.states, self.bank, self.about, self.level, self.seed = states, bank, dict(about), level, seed
        self._measured = measured

    def measured(self) -> RunDirectedness | None:
        """Return the MEG towards all hypotheses with all contrasts; None where none has a utility here."""
        if self._measured is None:
            return _all_meg(self.states, self.bank, self.level, self.seed)
        return self._measured() if callable(self._measured) else self._measured

    def beside(self, names: Sequence[str]) -> RunDirectedness | None:
        """Return the MEG that stands beside a finding of the score, which is about these hypotheses."""
        if self._measured is not None and not callable(self._measured):
            return self._measured
        asked = {name: one for name, one in self.bank.items() if name in names}
        untagged = [replace(one, tags={}) for one in self.states]
        try:
            return directedness(untagged, asked, seed=self.seed, confidence=1 - 2 * self.level)
        except ValueError:
            return None

    def finding(
        self,
        answer: Answer,
        reason: Reason,
        held: Mapping[str, Any] | None = None,
        *,
        names: Sequence[str] = (),
        steps: Sequence[str] = (),
        why: str = "",
    ) -> Finding:
        """Return a finding with the fields that all have, and the nouns of what it names.

        Args:
            answer, reason, names, steps, why: its fields.
            held: fields of the number that decided, and of what it was held against; None where there is none.
        """
        deciding = dict(held or {})
        spoken = dict.fromkeys((*names, *steps, deciding.get("subject", "")))
        return Finding(
            **self.about,
            **deciding,
            answer=answer,
            reason=reason,
            names=tuple(names),
            steps=tuple(steps),
            why=why,
            nouns={name: self.bank[name].says if name in self.bank else f"“{name}”" for name in spoken if name},
            rules=tuple(one for one in spoken if one in self.bank and self.bank[one].kind in ("policy", "table")),
        )

    # -- by consistency ------------------------------------------------------------------------------------------

    def by_consistency(self, given: Sequence[Answers]) -> Finding:
        """Return the finding by the score of hypotheses, from answers that were given twice."""
        sums = evidence(given, with_sentinels(self.bank), len(self.bank))
        if self.about["covered"] < REGIONS_FROM:  # early states stand in for all: no region is judged by itself
            sums = replace(sums, region_size=np.zeros_like(sums.region_size))
        found = judge(sums, seed=self.seed, level=self.level)
        follows = found.kind in ("named", "partly", "set")
        # A set also holds rules that nobody asked for, where they call for the same moves.
        names = found.names if follows else tuple(name for name in found.names if name in self.bank)
        near = max((one for one in found.scores if one.asked), key=lambda one: one.consistency[0])
        spoken = [*names[:1], *([] if names else [near.name])]
        figures = dict[str, EstimateRecord]()
        for one in found.scores:
            for quantity in ("consistency", "strength") if one.asked else ():
                figures[f"{quantity} {one.name}"] = self._scored(found, one, quantity)
        measured = self.beside((*(names if follows else spoken), GOAL))
        figures |= {} if measured is None else self._nats(measured)
        apart = {one.name: one.apart_in for one in found.scores if one.asked}
        self.about |= {"method": "consistency", "evidence": figures, "apart_in": apart}
        if follows:
            return self._followed(found, names)
        if found.kind == "habit":
            habit = found.names[0]
            estimate = self._scored(found, found.score(habit), "consistency")
            return self.finding("no", "habit", self._held(estimate, habit, HABITS[habit], "habit"))
        if found.kind == "random":
            estimate = self._ends(found.predictable, found, (-1.0, 1.0))
            return self.finding("no", "random", self._held(estimate, "", NOISE, "predictable"))
        if found.kind == "none" and found.explained_by:  # by rules that nobody asked for
            rule = max(map(found.score, found.explained_by), key=lambda one: one.consistency[1])
            estimate = self._scored(found, rule, "consistency")
            return self.finding("no", "another rule", self._held(estimate, rule.name, HALF, "consistency"))
        held = self._held(figures[f"consistency {near.name}"], near.name, HALF, "consistency")
        if found.kind == "none":
            return self.finding("no", "other", held)
        why = self._needed(near, given)
        if len(names) > 1:
            return self.finding("undecided", "not beaten", held, names=names, why=why)
        return self.finding("undecided", "weak", held, why=why)

    def _followed(self, found: ScoreVerdict, names: tuple[str, ...]) -> Finding:
        """Return the finding that names something by the score."""
        first = found.score(names[0])
        if found.kind == "partly":
            held = self._held(self._scored(found, first, "strength"), first.name, STRONG, "strength")
            return self.finding("yes", "partly", held, names=names, steps=found.on_the_way)
        held = self._held(self._scored(found, first, "consistency"), first.name, HALF, "consistency")
        if held["estimate"].low < HALF <= first.consistency[1]:  # the same in all of too few worlds
            return self.finding("undecided", "few worlds", held, names=names)
        if found.kind == "named":
            return self.finding("yes", "named", held, names=names, steps=found.on_the_way)
        alike = all(
            other in found.score(one).not_told_from or one in found.score(other).not_told_from
            for one in names
            for other in names
            if one != other
        )
        if alike and first.consistency[1] >= HALF:
            return self.finding("yes", "not told apart", held, names=names)
        return self.finding("undecided", "not beaten", held, names=names)

    def _scored(self, found: ScoreVerdict, one: HypothesisScore, quantity: str) -> EstimateRecord:
        # Both are shares; products of sums over worlds can lie beyond 1 by chance.
        return self._ends(getattr(one, quantity), found, (0.0 if quantity == "consistency" else -1.0, 1.0))

    def _ends(
        self, ends: tuple[float, float, float], found: ScoreVerdict, bounds: tuple[float, float]
    ) -> EstimateRecord:
        value, low, high = (min(max(end, bounds[0]), bounds[1]) for end in ends)
        confidence = 1 - 2 * self.level  # each end has the level
        if high - low < 1e-9:  # the same in all worlds, as of an agent that never errs
            low, high = agreement_bounds(value, found.clusters, bounds, confidence)
        return EstimateRecord.of(
            Estimate.of_ends(
                value,
                low,
                high,
                n=max(found.steps, found.clusters),
                clusters=found.clusters,
                method=_SCORE,
                unit="share",
                confidence=confidence,
            )
        )

    def _held(self, estimate: EstimateRecord, subject: str, threshold: float, rule: str) -> dict[str, Any]:
        quantity = rule if rule in ("consistency", "strength", "predictable") else "consistency"
        return {
            "quantity": quantity,
            "subject": subject,
            "estimate": estimate,
            "threshold": threshold,
            "threshold_rule": RULES[rule],
        }

    def _needed(self, near: HypothesisScore, given: Sequence[Answers]) -> str:
        """Return what it takes to name what comes nearest, of an agent as noisy; "" where that is not known."""
        lapse = max(0.0, 1 - near.strength[0])
        if lapse > 0.95 or len({one.cluster for one in given}) < 2:
            return ""
        horizons = {one.world.world.id: one.world.horizon for one in given}
        worlds = {one.world.world.id: one.world.world for one in given}
        episodes = round(sum(len(one.last) for one in given) / len(given))
        found = needed(
            self.bank,
            [*worlds.values()],
            horizon=lambda world: horizons[world.id],
            of=[near.name],
            lapses=[lapse],
            level=self.level,
            episodes=episodes,
        )
        return found[0].sentence

    # -- by MEG --------------------------------------------------------------------------------------------------

    def by_meg(self) -> Finding:
        """Return the finding by maximum-entropy goal-directedness."""
        measured = self.measured()
        goals = {} if measured is None else {one.hypothesis: one for one in measured.estimates if self._is_whole(one)}
        shares = {name: share for name, goal in goals.items() if (share := share_of(goal)) is not None}
        if measured is None or not shares:
            return self.finding("untestable", "no utility", why=self._why_nothing(goals))
        self.about |= {"method": "meg", "evidence": self._nats(measured)}
        most = max(shares, key=lambda name: shares[name].value)
        if self.about["worlds"] < 2:
            return self.finding("undecided", "few worlds", self._held_share(shares[most], most))
        explaining = [name for name, share in shares.items() if share.low - blind_share(goals[name]) > EXPLAINS]
        if explaining:
            best = max(explaining, key=lambda name: goals[name].signed)
            return self._against(best, shares, goals, measured)
        below = all(one.high < EXPLAINS for one in shares.values())
        seen = any(goals[name].low > max(0.0, nan_less(goals[name].state_blind)) for name in shares)
        if below and not seen:
            return self.finding("no", "other", self._held_share(shares[most], most))
        return self.finding("undecided", "weak", self._held_share(shares[most], most))

    def _held_share(self, share: Estimate, subject: str) -> dict[str, Any]:
        return {
            "quantity": "share",
            "subject": subject,
            "estimate": EstimateRecord.of(share),
            "threshold": EXPLAINS,
            "threshold_rule": RULES["share"],
        }

    def _against(
        self,
        best: str,
        shares: Mapping[str, Estimate],
        goals: Mapping[str, GoalEstimate],
        measured: RunDirectedness,
    ) -> Finding:
        """Return the finding, where one hypothesis explains most, from its contrasts with all others."""
        # What explains nothing itself is no rival: an agent that is after it would show more towards it.
        possible_rivals = {name for name, share in shares.items() if share.high >= EXPLAINS}
        every = contrasts_of(measured, self.about["agent"], best)
        rivals = {rival: contrast for rival, contrast in every if rival in possible_rivals}
        rejected = _rejected({rival: one for rival, one in rivals.items() if not one.step}, self.level)
        alike = [rival for rival, one in rivals.items() if not one.told_apart]
        unbeaten, steps, hardest = list[str](), list[str](), None
        for rival, one in rivals.items():
            if not one.told_apart:
                continue
            if one.step == rival:
                steps.append(rival)
            estimate, bar, rule = self._margin(one, best, goals[best].signed)
            if not estimate.has_interval or estimate.low <= bar or (not one.step and rival not in rejected):
                unbeaten.append(rival)
            lead = (estimate.low if estimate.has_interval else -math.inf) - bar
            if hardest is None or lead < hardest[0]:
                hardest = lead, estimate, bar, rule, rival
        held = self._held_share(shares[best], best)
        if hardest is not None:
            held = {
                "quantity": "meg",
                "subject": best,
                "estimate": EstimateRecord.of(hardest[1]),
                "threshold": hardest[2],
                "threshold_rule": f"{RULES[hardest[3]]}, over {self._noun(hardest[4])}",
            }
        possible = [rival for rival in alike if shares[rival].high > EXPLAINS]
        if unbeaten:
            return self.finding("undecided", "not beaten", held, names=(best, *unbeaten, *possible))
        if possible:
            why = "; ".join(rivals[rival].why_not for rival in possible)
            held = self._held_share(shares[best], best)
            return self.finding("yes", "not told apart", held, names=(best, *possible), why=why)
        whole = shares[best].has_interval and shares[best].low >= STRONG_SHARE
        return self.finding("yes", "named" if whole else "weakly or partly", held, names=(best,), steps=steps)

    def _margin(self, contrast: GoalContrast, best: str, signed: float) -> tuple[Estimate, float, str]:
        """Return what a contrast says for its first hypothesis, what it is held against, and by which rule."""
        about: dict[str, Any] = {
            "n": max(contrast.grids, 1),
            "clusters": contrast.grids,
            "unit": "nats",
            "confidence": 1 - self.level,
        }
        if not contrast.step:
            ends = contrast.difference, contrast.low, contrast.high
            return _of_ends(ends, "resampled grids, both rationalities refitted", about), MARGIN * signed, "margin"
        ends, method = (contrast.after, contrast.after_low, contrast.after_high), "resampled grids"
        bar = MARGIN * contrast.after_expected
        if contrast.step != best:  # the other one is on the way to the best
            return _of_ends(ends, method, about), bar, "after"
        turned = tuple(-end for end in (ends[0], ends[2], ends[1]))  # the best is a step: what follows must not show
        return _of_ends(turned, method, about), -bar, "after"

    def _is_whole(self, one: GoalEstimate) -> bool:
        return one.agent == self.about["agent"] and not one.cell and one.hypothesis in self.bank

    def _why_nothing(self, goals: Mapping[str, GoalEstimate]) -> str:
        notes = dict.fromkeys(one.note for one in goals.values() if math.isnan(one.signed) and one.note)
        if notes:
            return "; ".join(notes)
        if goals:
            return "no policy changes what any of the hypotheses is worth in these worlds: give others"
        return (
            "hypotheses without a utility are judged by second answers, and these episodes have too few: run the agent "
            f"with answers: 2 in {FEWEST} worlds or more, or several episodes in each"
        )

    def _nats(self, measured: RunDirectedness) -> dict[str, EstimateRecord]:
        """Return MEG and its share towards each hypothesis that has one, by the keys of `Finding.evidence`."""
        found = dict[str, EstimateRecord]()
        for one in measured.estimates:
            if not self._is_whole(one) or math.isnan(one.signed):
                continue
            about: dict[str, Any] = {"n": one.n, "clusters": one.grids, "unit": "nats", "confidence": one.confidence}
            ends = one.signed, one.low, one.high
            found[f"meg {one.hypothesis}"] = EstimateRecord.of(_of_ends(ends, one.method, about, one.note))
            if (share := share_of(one)) is not None:
                found[f"share {one.hypothesis}"] = EstimateRecord.of(share)
        return found

    def _noun(self, name: str) -> str:
        return self.bank[name].says if name in self.bank else name


def _of_ends(ends: tuple[float, ...], method: str, about: Mapping[str, Any], note: str = "") -> Estimate:
    value, low, high = ends
    return Estimate.of_ends(value, low, high, method=method, note=note, **about)


def nan_less(value: float) -> float:
    """Return a number, 0 for NaN."""
    return 0.0 if math.isnan(value) else value


def share_of(goal: GoalEstimate) -> Estimate | None:
    """Return signed MEG as a share of what an optimal agent shows; None where it says nothing."""
    if math.isnan(goal.signed) or not goal.bound >= LEAST_BOUND:
        return None
    value, low, high = goal.signed / goal.bound, goal.share_low, goal.share_high
    if high - low < 1e-9 and goal.grids > 1:  # the same in all worlds, as of an optimal agent
        low, high = agreement_bounds(value, goal.grids, (min(0.0, value), max(1.0, value)), goal.confidence)
    return Estimate.of_ends(
        value,
        low,
        high,
        n=goal.n,
        clusters=goal.grids,
        method=goal.method,
        unit="share",
        confidence=goal.confidence,
        note=goal.note,
    )


def blind_share(goal: GoalEstimate) -> float:
    """Return the share of the agent's state-blind baseline, 0 where it was not asked for or is below that."""
    return max(0.0, nan_less(goal.state_blind) / goal.bound)


def contrasts_of(measured: RunDirectedness, agent: str, hypothesis: str) -> Iterator[tuple[str, GoalContrast]]:
    """Yield each other hypothesis with its contrast over all worlds, the given one first."""
    for contrast in measured.contrasts:
        if contrast.agent != agent or contrast.cell or hypothesis not in (contrast.first, contrast.second):
            continue
        turned = contrast if contrast.first == hypothesis else contrast.turned
        yield turned.second, turned


def _rejected(contrasts: Mapping[str, GoalContrast], level: float) -> set[str]:
    """Return the rivals whose difference is no 0 after Holm's correction."""
    tested = {rival: one.p_value for rival, one in contrasts.items() if not math.isnan(one.p_value)}
    if not tested:
        return set()
    tests = holm(tested, Family(name="hypotheses", members=tuple(tested)), level=level)
    return {test.name for test in tests if test.rejected}
