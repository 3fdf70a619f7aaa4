"""The verdict on answers: the consistency score, and where it names nothing, errors that repeat and parts of behaviour.

The score (`goals.hypotheses.score`) compares a hypothesis with what the agent itself would repeat. Two kinds of agents
repeat more than their aim: those whose errors are fixed, and those that pursue the aim in a part of their turns. So for
each hypothesis of the bank that is followed in new states beyond chance we test the errors for a pattern
(`goals.hypotheses.errors`):

1. No pattern: the errors are like chance, and the hypothesis may describe the whole. It is named if it beats every
   rival in new states. The contrast must lie beyond the midpoint there; a margin beyond it, as the score demands, is
   not needed, since a rival that the agent follows leaves a pattern in the errors. For the same reason, rivals against
   which the errors have a pattern are excluded.
2. The strongest pattern is that of a part which can be stated: the turns from some turn on or until some turn, a
   distance or a side of the place, or the size of the grid. The hypothesis is named with this part if

   - the rules of the score, or the first rule, name it among the answers there, where rivals are added that imitate it
     in a part: cells around its place, the place's row and column, and keeping a direction until blocked;
   - most moves there follow it, at the level `SURE`, since the part was chosen among dozens;
   - its strength elsewhere is significantly below half of that in the part (for turns: below that in the part);
   - for turns, it is followed in none of the other turns: an agent that paces to and fro follows its aim repeatedly.

A hypothesis that explains a part which cannot be stated is not named. A part is also looked for where the score names a
hypothesis for the whole behaviour, and the errors have a pattern beyond doubt.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations, product
from typing import Final

import numpy as np

from goalscope.goals.finding import NEARBY, BehaviourPart
from goalscope.goals.hypotheses.definition import Array, Hypothesis, Mask, Undefined, action_names, place_of
from goalscope.goals.hypotheses.errors import (
    DISTANCES,
    SMALL,
    SMALL_GRIDS,
    TURNS,
    ErrorPattern,
    error_pattern,
    first_visits,
    rates,
)
from goalscope.goals.hypotheses.score import (
    HALF,
    LEVEL,
    SIDES,
    STRONG,
    AnswerSums,
    Ends,
    Predictions,
    ResampledSums,
    ScoreVerdict,
    evidence,
    judge,
    predictions_in,
    resamples,
    tails,
    three,
)
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.states import Answers
from goalscope.goals.hypotheses.written import made, parse

OFFSETS: Final = [(down, right) for down in range(-2, 3) for right in range(-2, 3) if 0 < abs(down) + abs(right) <= 2]
"""Cells around a place, within two steps, that are rivals of the place in a part of the behaviour."""

SURE: Final = 0.01
"""Level at which a pattern in the errors is certain: it excludes that a hypothesis describes the whole behaviour, and
it limits a name that the score gives to a part. Also the level at which a part is followed."""

_MOST_ACTIONS: Final = 5  # for which every order of two of them is a rival


def verdict_of(
    all_answers: Sequence[Answers],
    hypotheses: Mapping[str, Hypothesis],
    asked_count: int,
    *,
    predictions: Mapping[str, Predictions] | None = None,
    seed: int = 0,
    level: float = LEVEL,
    by_region: bool = True,
) -> tuple[ScoreVerdict, AnswerSums]:
    """Decide from an agent's answers which hypothesis it follows, in all of its behaviour or in a part of it.

    Args:
        all_answers: the agent's answers, world by world, each step answered twice.
        hypotheses: name -> hypothesis; those of the user first, then control hypotheses.
        asked_count: number of hypotheses of the user.
        predictions: world id -> what the hypotheses predict in this world (`predictions_in`), to share it between
            agents; None to compute it here.
        seed: root seed of the resamples and of the simulated agents.
        level: error rate of each one-sided end of an interval.
        by_region: also test whether a hypothesis is followed only in part, such as near its place; False if most states
            have no second answer.

    Returns:
        The verdict (the hypotheses named, with the scores of all), and the sums over steps from which its scores were
        computed.

    Raises:
        ValueError: there are no answers, or some steps have no second answer.
    """
    solved = dict(predictions or {})
    for answers in all_answers:
        if answers.world.world.id not in solved:
            solved[answers.world.world.id] = predictions_in(answers.world, hypotheses, asked_count)
    sums = evidence(all_answers, hypotheses, asked_count, solved)
    if not by_region:
        sums = replace(sums, region_size=np.zeros_like(sums.region_size))
    verdict = judge(sums, seed=seed, level=level)
    naming = _Naming(all_answers, hypotheses, asked_count, solved, seed, level)
    if by_region and len(sums.steps) >= FEWEST:
        verdict = naming.refine(verdict)
    elif verdict.kind == "partly":
        verdict = replace(verdict, kind="undecided", names=())
    if verdict.kind in ("named", "set") and by_region:
        verdict = naming.beside_neighbours(verdict)
    if verdict.kind in ("named", "partly") and by_region:
        verdict = replace(verdict, errors=naming.error_rates(verdict.names[0], verdict.part))
    return verdict, sums


@dataclass(eq=False)
class _Naming:
    """An agent's answers in all worlds, with the tests of this module; the arguments are those of `verdict_of`."""

    answers: Sequence[Answers]
    hypotheses: Mapping[str, Hypothesis]
    asked_count: int
    predictions: Mapping[str, Predictions]
    seed: int
    level: float
    inside: Mapping[str, Mask] | None = None
    _patterns: dict[int, ErrorPattern] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """Names of the hypotheses in their order."""
        return list(self.hypotheses)

    def refine(self, verdict: ScoreVerdict) -> ScoreVerdict:
        """Return the verdict of the score, changed where errors or parts explain the answers better."""
        if verdict.kind == "named":
            number = self.names.index(verdict.names[0])
            pattern = self.pattern(number)
            return (self._in_part(number, verdict) if pattern.p < SURE else None) or verdict
        if verdict.kind not in ("partly", "none", "undecided") or verdict.explained_by:
            return verdict
        strength, unbeaten, alone = self._first_rule()
        if alone is not None:
            followed = three(strength[:, alone])
            return replace(verdict, kind="named", names=(self.names[alone],), followed=followed, on_the_way=())
        # A hypothesis whose strength or whose lack of a pattern is not shown may still be the aim.
        possible = [number for number in self._followed(strength[0]) if self.pattern(number).p >= SURE]
        if possible:
            among = {
                *possible,
                *(other for losers in unbeaten.values() for other in losers if other < self.asked_count),
            }
            first = max(possible, key=lambda number: strength[0, number])
            order = [first, *sorted(among - {first})]
            doubtful = replace(
                verdict,
                kind="undecided",
                names=tuple(self.names[number] for number in order),
                followed=three(strength[:, first]),
            )
        else:
            doubtful = verdict if verdict.kind != "partly" else replace(verdict, kind="undecided", names=())
        if unbeaten:
            return doubtful
        # Behaviour that begins late has little strength over all turns, so the estimate suffices here.
        for number in sorted(self._followed(strength[0]), key=lambda number: -strength[0, number]):
            if (partly := self._in_part(number, verdict)) is not None:
                return partly
        return doubtful

    def beside_neighbours(self, verdict: ScoreVerdict) -> ScoreVerdict:
        """Return a verdict that names hypotheses, compared with rivals that are made for them.

        If such a rival explains the answers and beats the hypotheses of the bank, none of these describes the agent.
        Otherwise the verdict lists the rivals that the hypotheses do not beat in new states, and of the rivals that
        pursue a place in some states alone those that these worlds do not tell from it.
        """
        numbers = [number for number in range(self.asked_count) if self.names[number] in verdict.names]
        neighbours = _neighbours([self.hypotheses[self.names[number]] for number in numbers], self.answers)
        further = {text: rival for text, rival in neighbours.items() if text not in self.hypotheses}
        hypotheses = {**self.hypotheses, **further}
        solved = _extended(self.answers, self.predictions, self.hypotheses, further)
        whole, once = (
            ResampledSums(evidence(answers, hypotheses, self.asked_count, solved), self.seed, self.level)
            for answers in (self.answers, first_visits(self.answers))
        )
        rivals = np.flatnonzero([name in neighbours and name not in verdict.names for name in hypotheses])
        if explaining := rivals[whole.sentinels[rivals]].tolist():
            rules = tuple(whole.names[number] for number in explaining)
            return replace(verdict, kind="none", names=(), scores=whole.verdict().scores, explained_by=rules)
        followed = np.isin(np.arange(once.count), numbers)
        # Where worlds tell it, the regions of the score judge from where a place is pursued.
        partial = np.array(
            [name in neighbours and (" if it lies " in name or " within " in name) for name in once.names]
        )
        unbeaten = once.comparisons[0] & ~once.beaten_by(followed, 0.0) & ~(once.comparisons[1] & partial)
        alike = rivals[(unbeaten[numbers].all(axis=0) & (whole.strength[2] > 0))[rivals]].tolist() if numbers else []
        return replace(verdict, alike=tuple(whole.names[number] for number in alike))

    def _followed(self, strength: Array) -> list[int]:
        return [number for number in range(self.asked_count) if strength[number] > STRONG]

    def pattern(self, number: int) -> ErrorPattern:
        """Return the errors against a hypothesis, which are measured once."""
        if number not in self._patterns:
            self._patterns[number] = error_pattern(
                self.answers, self.predictions, [*self.hypotheses.values()], number, inside=self.inside, seed=self.seed
            )
        return self._patterns[number]

    def _first_rule(self) -> tuple[Array, dict[int, list[int]], int | None]:
        """Apply the first rule of the module.

        Returns:
            The strengths in new states with their ends; the rivals that each hypothesis does not beat which is followed
            there and whose errors have no pattern; and the only one of these that beats all, if there is one.
        """
        visits = first_visits(self.answers)
        new_states = ResampledSums(
            evidence(visits, self.hypotheses, self.asked_count, self.predictions), self.seed, self.level
        )
        whole = [number for number in self._followed(new_states.strength[1]) if self.pattern(number).unforeseen]
        unbeaten = {number: self._unbeaten(new_states, number, whole) for number in whole}
        alone = [number for number in whole if not unbeaten[number]]
        return new_states.strength, unbeaten, alone[0] if len(alone) == 1 else None

    def _unbeaten(self, new_states: ResampledSums, number: int, whole: Sequence[int]) -> list[int]:
        """Return the rivals that a hypothesis does not beat in new states and that no pattern of errors excludes."""
        explaining = np.zeros(new_states.count, dtype=bool)
        explaining[number] = True
        left = new_states.comparisons[0][number] & ~new_states.beaten_by(explaining, 0.0)[number]
        left &= new_states.strength[2] > 0
        return [
            rival
            for rival in np.flatnonzero(left).tolist()
            if rival >= len(self.names) or rival in whole or self.pattern(rival).unforeseen
        ]

    def _in_part(self, number: int, verdict: ScoreVerdict) -> ScoreVerdict | None:
        """Return a verdict that names a hypothesis and the part that follows it; None if there is no such part."""
        hypothesis, name = self.hypotheses[self.names[number]], self.names[number]
        part = _part_of(self.pattern(number))
        if part is None:
            return None
        masks = self._states_in(part, hypothesis)
        inside = _restricted(self.answers, part, masks, inside=True)
        elsewhere = _restricted(self.answers, part, masks, inside=False)
        if min(len(_clusters(inside)), len(_clusters(elsewhere))) < FEWEST:
            return None
        added = self._rivals_in_part(hypothesis, part)
        rivals = {**self.hypotheses, **added}
        solved = _extended(self.answers, self.predictions, self.hypotheses, added)
        sums = evidence(inside, rivals, self.asked_count, solved)
        within = judge(sums, seed=self.seed, level=self.level)
        if within.kind == "named":
            alone = within.names == (name,)
        else:
            naming = _Naming(inside, rivals, self.asked_count, solved, self.seed, self.level, masks)
            alone = naming._first_rule()[2] == number
        if not alone or ResampledSums(sums, self.seed, min(SURE, self.level)).strength[1, number] <= HALF:
            return None
        rest = ResampledSums(
            evidence(elsewhere, self.hypotheses, self.asked_count, self.predictions), self.seed, self.level
        )
        # Before and after a turn, an agent may follow it by the way; elsewhere, less than half is asked.
        strength, in_time = within.score(name).strength, part.kind in ("from turn", "until turn")
        if rest.strength[2, number] >= (strength[1] if in_time else strength[0] / 2):
            return None
        if in_time and self._followed_again(number, elsewhere, strength[0] / 2):
            return None
        turns = [sum(len(answers.state) for answers in some) for some in (inside, elsewhere)]
        part = part.model_copy(update={"share": turns[0] / sum(turns)})
        return replace(
            verdict,
            kind="partly",
            names=(name,),
            part=part,
            elsewhere=three(rest.strength[:, number]),
            followed=three(np.array(within.score(name).strength)),
            on_the_way=(),
        )

    def _followed_again(self, number: int, elsewhere: Sequence[Answers], limit: float) -> bool:
        """Return whether, in one of the turns outside of its part, a hypothesis is followed by more than a limit."""
        for turn in np.unique(np.concatenate([answers.time for answers in elsewhere])).tolist():
            at_turn = [answers.only(np.flatnonzero(answers.time == turn)) for answers in elsewhere]
            at_turn = [answers for answers in at_turn if len(answers.state)]
            if len(_clusters(at_turn)) < FEWEST:
                continue
            sums = evidence(at_turn, self.hypotheses, self.asked_count, self.predictions)
            if ResampledSums(sums, self.seed, self.level).strength[1, number] > limit:
                return True
        return False

    def _rivals_in_part(self, hypothesis: Hypothesis, part: BehaviourPart) -> dict[str, Hypothesis]:
        """Return further rivals that imitate a hypothesis in a part.

        An agent that keeps one direction until it is blocked moves towards everything that lies in this direction. The
        first turns on the way to a place are those on the way to the cells around it, and an agent on the way to its
        row or column moves as if it were after the place, until it is there.
        """
        actions = dict.fromkeys(name.lower() for answers in self.answers for name in action_names(answers.world.world))
        pairs = permutations(actions if len(actions) <= _MOST_ACTIONS else (), 2)
        moving = [made("keep {name} until blocked, else {name}", pair) for pair in pairs]
        around = hypothesis.kind == "place" and part.kind in ("until turn", "side", "other side")
        cells = [made("{place} {offset}", (hypothesis, offset)) for offset in (OFFSETS if around else ())]
        lines = [made(f"{line} of {{place}}", (hypothesis,)) for line in (("row", "column") if around else ())]
        return {rival.text: rival for rival in (*cells, *lines, *moving) if rival.text not in self.hypotheses}

    def _states_in(self, part: BehaviourPart, hypothesis: Hypothesis) -> dict[str, Mask]:
        """Return, by the id of the world, which of its S states belong to the part ``[S]``.

        All states for a part in time.
        """
        masks, aim = dict[str, Mask](), place_of(hypothesis)
        for answers in self.answers:
            world = answers.world
            mask = np.ones(world.process.states, dtype=bool)
            try:
                if part.kind in ("small grids", "large grids"):
                    mask[:] = (world.grid.height <= part.limit) == (part.kind == "small grids")
                elif part.kind == "within steps" and aim is not None:
                    mask = np.asarray(world.steps_to(world.targets(aim)) <= part.limit)
                elif part.kind in ("side", "other side") and aim is not None:
                    on_side = SIDES[part.side](*world.further(aim.cell(world)).T)
                    mask = np.asarray(on_side == (part.kind == "side"))
            except Undefined:  # the hypothesis makes no prediction in this world
                mask[:] = False
            masks[world.world.id] = mask
        return masks

    def error_rates(self, name: str, part: BehaviourPart | None) -> tuple[Ends, Ends] | None:
        """Return the rates of fixed and of random errors with their ends, over resampled clusters of worlds."""
        number = self.names.index(name)
        answers = self.answers
        if part is not None:
            masks = self._states_in(part, self.hypotheses[name])
            answers = _restricted(answers, part, masks, inside=True)
        clusters = {cluster: index for index, cluster in enumerate(_clusters(answers))}
        sums = np.zeros((3, len(clusters)))
        for visits in first_visits(answers):
            policies = self.predictions[visits.world.world.id].policies
            if number not in policies:
                continue
            decision = np.minimum(visits.time, len(policies[number]) - 1)
            chosen = policies[number][decision, visits.state] > 1e-12
            says = (chosen != (visits.world.even[visits.state] > 0)).any(axis=1)
            second = visits.first if visits.second is None else visits.second
            shares = (visits.first * chosen).sum(axis=1)[says], (second * chosen).sum(axis=1)[says]
            sums[:, clusters[visits.cluster]] += sum(shares).sum() / 2, (shares[0] * shares[1]).sum(), says.sum()
        if not sums[2].any():
            return None
        drawn = np.concatenate([np.ones((1, len(clusters))), resamples(len(clusters), self.seed)])
        down, up = tails(len(clusters), self.level)
        fixed, random = (
            (float(rate[0]), float(np.quantile(rate[1:], down)), float(np.quantile(rate[1:], up)))
            for rate in rates(*(sums @ drawn.T))
        )
        return fixed, random


def _neighbours(hypotheses: Sequence[Hypothesis], all_answers: Sequence[Answers]) -> dict[str, Hypothesis]:
    """Return rivals that are made for the hypotheses that a verdict names.

    An agent that sees no walls, or none but the next ones, moves towards a place as one does that knows the ways there,
    where no detour is needed. An agent that pursues it only nearby, or only where it lies on certain sides, acts alike
    where no episode begins elsewhere, and one that fetches a key first where the key lies on the way. In too few worlds
    with such states, this is no other rule.
    """
    neighbours = dict[str, Hypothesis]()
    worlds = [answers.world.world for answers in all_answers]
    keys = any("grid" in world.offers and world.grid.key is not None for world in worlds)
    for hypothesis in hypotheses:
        rivals = list[Hypothesis]()
        if hypothesis.kind in ("place", "event"):
            rivals.append(made("{hypothesis} within {whole} steps", (hypothesis, NEARBY)))
        if hypothesis.kind == "place":
            sides = [made("it lies {sides}", (pair,)) for pair in product(("up", "down"), ("left", "right"))]
            rivals += [made("{hypothesis} if {condition}", (hypothesis, side)) for side in sides]
            if keys and hypothesis.text != "key":
                fetching = (parse("key"), made("not {event}", (parse("key held"),)), hypothesis)
                rivals.append(made("{hypothesis} if {condition}, else {hypothesis}", fetching))
        rivals = [rival for rival in rivals if len(_worlds_apart(hypothesis, rival, all_answers)) >= FEWEST]
        straight = ("straight to {place}", "towards {place} by open moves") if hypothesis.kind == "place" else ()
        rivals += [made(form, (hypothesis,)) for form in straight]
        neighbours |= {rival.text: rival for rival in rivals}
    return neighbours


def _worlds_apart(hypothesis: Hypothesis, rival: Hypothesis, all_answers: Sequence[Answers]) -> set[str]:
    """Return the clusters of the worlds in which two hypotheses differ in a state that can be reached."""
    clusters = set[str]()
    for answers in all_answers:
        with suppress(Undefined):
            policies = [rule.solved(answers.world).policy[0] for rule in (hypothesis, rival)]
            states = answers.world.live & answers.world.reached
            if (np.abs(policies[0] - policies[1])[states] > 1e-9).any():
                clusters.add(answers.cluster)
    return clusters


def _extended(
    all_answers: Sequence[Answers],
    predictions: Mapping[str, Predictions],
    hypotheses: Mapping[str, Hypothesis],
    added: Mapping[str, Hypothesis],
) -> dict[str, Predictions]:
    """Return the predictions in each world, together with those of further rivals."""
    extended = dict(predictions)
    for answers in all_answers if added else ():
        solved = predictions_in(answers.world, added, 0).policies
        policies = {len(hypotheses) + number: policy for number, policy in solved.items()}
        before = predictions[answers.world.world.id]
        extended[answers.world.world.id] = replace(before, policies={**before.policies, **policies})
    return extended


def _clusters(all_answers: Sequence[Answers]) -> list[str]:
    return list(dict.fromkeys(answers.cluster for answers in all_answers))


def _part_of(pattern: ErrorPattern) -> BehaviourPart | None:
    """Return the part of the behaviour that the strongest pattern of errors marks; None if it marks no such part."""
    label, fewer = pattern.label, pattern.fewer
    if label in TURNS:
        return (
            BehaviourPart(kind="until turn", limit=TURNS[label])
            if fewer
            else BehaviourPart(kind="from turn", limit=TURNS[label] + 1)
        )
    if label in SIDES:
        return BehaviourPart(kind="side" if fewer else "other side", side=label)
    # An agent that fails near a place alone does not pursue it.
    if label in DISTANCES and fewer:
        return BehaviourPart(kind="within steps", limit=DISTANCES[label])
    return BehaviourPart(kind="small grids" if fewer else "large grids", limit=SMALL) if label == SMALL_GRIDS else None


def _restricted(
    all_answers: Sequence[Answers], part: BehaviourPart, masks: Mapping[str, Mask], *, inside: bool
) -> list[Answers]:
    """Return the answers inside a part of the behaviour, or with ``inside=False`` those outside."""
    parts = list[Answers]()
    for answers in all_answers:
        kept = masks[answers.world.world.id][answers.state]
        if part.kind == "from turn":
            kept = kept & (answers.time >= part.limit - 1)
        if part.kind == "until turn":
            kept = kept & (answers.time < part.limit)
        chosen = answers.only(np.flatnonzero(kept if inside else ~kept))
        if part.kind == "until turn" and inside:
            chosen = replace(chosen, world=replace(chosen.world, horizon=part.limit))
        if len(chosen.state):
            parts.append(chosen)
    return parts
