"""Tests of a paper's sentences on the rows of a run, and on agents without what a sentence claims; each has an answer.

Every comparison is a regression over clusters with equal weights (`goalscope.stats.regress`). If a sentence has
several parts that must all hold, their intervals are simultaneous (Bonferroni), so that a single lucky step is not
reported as "monotone".

The answers: Yes: all intervals lie on the claimed side. No: an interval lies on the other side. Undecided: neither, so
that more worlds can decide. Untestable: the run has no value of it. Uninformative: it would be yes, but an agent
without what the sentence claims has it too. Few: the run has fewer grids than the sentence declares to need.

A sentence that such a *null agent* satisfies too, in the same worlds with as many trajectories, says nothing about the
agent that was run. In grids, null agents are an optimal agent, one that errs at a constant rate, a random one, and one
that draws its moves with the agent's own frequencies whatever it sees; in task worlds, an agent that always takes a
useful step, one that errs at a constant rate, and a random walk. A sentence on activations is tested on those of
networks with random weights, and one on patches on noise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.rng import stream
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.words import Catalogue, listed
from goalscope.agents import Agent, Observation
from goalscope.agents.scripted import EpsilonGreedy, Greedy, NoisyGreedy, Optimal, RandomWalk, ScriptedAgent, Uniform
from goalscope.goals.finding import Answer
from goalscope.measures.behaviour import measure_episodes
from goalscope.measures.comparison import ORIGINAL, both_sides, bounds_of, check_transformed
from goalscope.measures.exploration.errors import divergences, log_relation
from goalscope.measures.testing import roll_out
from goalscope.papers.item import Item, QuotedClaim
from goalscope.papers.readings import ItemLine, ReadAgents, selected
from goalscope.runs import Store
from goalscope.runs.record import Episode, EpisodeSpec
from goalscope.stats import (
    LESS,
    Estimate,
    Regression,
    estimate_mean,
    indicators,
    paired_difference,
    regress,
    sensitivity,
)
from goalscope.stats.records import StoredEstimate
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.transform import TRANSFORMS
from goalscope.worlds.world import World

Verdict = Literal[Answer, "uninformative", "few"]
"""Answer to a sentence of a paper."""
Parts = Sequence[tuple[str, Estimate]]
Found = tuple[Verdict, Parts, str]
"""Answer, name and estimate of each part, and a reason or caveat."""

TEXTS: Final = Catalogue.of_package("goalscope.papers")

_OPPOSITE: Final[dict[Answer, Answer]] = {"yes": "no", "no": "yes"}


def word_of(answer: Verdict) -> str:
    """Return the word that is printed for the answer to a sentence of a paper, for example "holds" for "yes"."""
    return TEXTS(f"answers/{answer}")


def on_side(parts: Sequence[Estimate], sign: int, bound: float = 0.0) -> Answer:
    """Answer whether the intervals of all estimates lie above (``sign`` 1) or below (-1) a bound.

    The answer is "yes" if all do, "no" if at least one interval lies entirely on the other side of the bound, and
    "undecided" otherwise, for example if an interval contains the bound or if there are no estimates.
    """
    sides = [sorted((sign * (estimate.low - bound), sign * (estimate.high - bound))) for estimate in parts]
    if any(high < 0 for _, high in sides):
        return "no"
    return "yes" if sides and all(low > 0 for low, _ in sides) else "undecided"


def inside(parts: Sequence[Estimate], margin: float) -> Answer:
    """Answer whether the intervals of all estimates lie between ``-margin`` and ``margin``, i.e. whether all are
    negligible.

    The answer is "yes" if all do, "no" if at least one interval lies entirely outside, and "undecided" otherwise, for
    example if an interval lies partly outside, or if there are no estimates.
    """
    if any(part.low > margin or part.high < -margin for part in parts):
        return "no"
    return "yes" if parts and all(-margin < part.low and part.high < margin for part in parts) else "undecided"


def beyond(parts: Sequence[Estimate], margin: float) -> Answer:
    """Answer whether at least one estimate is certainly above ``margin`` or below ``-margin``.

    The answer is "yes" if the interval of one estimate lies entirely outside the margin, "no" if all intervals lie
    inside, and "undecided" otherwise.
    """
    answer = inside(parts, margin)
    return _OPPOSITE.get(answer, answer)


def joined(answers: Sequence[Answer]) -> Answer:
    """Combine the answers on the parts of a statement, which holds only if all its parts do.

    The result is "no" if any answer is "no", "yes" if all are "yes", and "undecided" otherwise or without answers.
    """
    if "no" in answers:
        return "no"
    return "yes" if answers and all(answer == "yes" for answer in answers) else "undecided"


OPTIMAL, LAPSE, RANDOM, STATE_BLIND = "optimal", "constant lapse", "random", "state-blind"
SCRIPTED: Final = "scripted agents"
"""Name of the null agent (see `NullAgent`) for sentences that compare agents: all scripted agents of the run."""

_RATE: Final = 0.3  # constant lapse rate of an agent whose accuracy is not measured, as in task worlds
_CHANCE: Final = 0.375  # about the share of moves that are optimal by chance: one or two of four

Planned = tuple[EpisodeSpec, World, Mapping[str, Tag]]
"""An episode to play, its world and the tags of its agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullAgent:
    """An agent without the property that a sentence of a paper claims, e.g. one that ignores the state.

    The sentence is tested on it as well. If the sentence holds for it too, the test cannot distinguish an agent with
    the property from one without.

    Attributes:
        name: its name, such as "random" or "state-blind".
        agents: its names in the rows: usually one for each tested agent, in whose place it plays.
        rows: values of measures, among them those of this agent.
        tags: named values, such as the kind of weights, that select its rows, in place of those of the figure or table.
    """

    name: str
    agents: tuple[str, ...]
    rows: Rows
    tags: Mapping[str, Tag] = field(default_factory=dict)


@dataclass(frozen=True)
class StateBlind(ScriptedAgent):
    """Agent that draws its moves on a grid with fixed frequencies, whatever it sees.

    Args:
        frequencies: probability of each of the four moves.
    """

    kind: ClassVar[str] = STATE_BLIND
    frequencies: tuple[float, ...]

    def probabilities(self, observation: Observation) -> npt.NDArray[np.float64]:  # noqa: D102
        return np.array(self.frequencies)


def nulls_of(item: Item, path: Path, rows: Rows, agents: Sequence[str]) -> list[NullAgent]:
    """Return the null agents for testing an item's sentences: agents without the property that the sentences claim.

    Depending on the item, they are in the run already or play the episodes of the tested agents now.

    Args:
        item: the item, a figure, table or passage of a paper.
        path: directory of the run.
        rows: all values of measures of the run.
        agents: names of the tested agents.
    """
    if not item.claims:
        return []
    if item.nulls:
        return [
            NullAgent(name=", ".join(map(str, tags.values())), agents=tuple(agents), rows=rows, tags=tags)
            for tags in item.nulls
        ]
    with Store(path) as store:
        episodes = [episode for episode in store.episodes() if episode.agent in agents]
        others = [name for name in store.agent_names() if name not in agents]
    planned, moves = dict[str, list[Planned]](), dict[str, list[int]]()
    for episode in episodes:
        planned.setdefault(episode.agent, []).append((episode.spec, episode.world, episode.tags))
        moves.setdefault(episode.agent, []).extend(action for action in episode.column("action") if action is not None)
    played: dict[str, list[Episode]] = {}
    for at, name in enumerate(planned):
        accuracy = rows.select(measure="action accuracy", agent=name).value
        for null, agent in null_agents(planned[name][0][1], accuracy[~np.isnan(accuracy)], moves[name]):
            played.setdefault(null, []).extend(play_planned(planned[name], agent, f"{null}, {at}", at))
    compared = [NullAgent(name=SCRIPTED, agents=tuple(others), rows=rows)] if len(others) > 1 else []
    return compared + [null_of(name, null_episodes) for name, null_episodes in played.items()]


def null_of(name: str, episodes: Sequence[Episode]) -> NullAgent:
    """Measure the episodes of an agent that lacks the property a sentence claims, and return it as a `NullAgent`.

    Args:
        name: name of the null agent.
        episodes: its episodes.
    """
    agents = tuple(dict.fromkeys(episode.agent for episode in episodes))
    return NullAgent(name=name, agents=agents, rows=measure_episodes(episodes))


def null_agents(
    world: World, accuracy: npt.NDArray[np.float64] | Sequence[float] = (), moves: Sequence[int] = ()
) -> Iterator[tuple[str, Agent]]:
    """Yield (name, agent) of each agent that can serve as a null agent, one without a claimed property, in worlds like
    this.

    Args:
        world: one of the worlds.
        accuracy: action accuracies of the tested agent. They set the lapse rate (share of random moves) of the null
            agent `LAPSE`, so that it is about as accurate.
        moves: all moves of the tested agent. The null agent `STATE_BLIND` draws its moves with the same frequencies; it
            is left out if there are no moves.
    """
    if "tasks" in world.offers:
        yield from ((OPTIMAL, Greedy()), (LAPSE, NoisyGreedy(_RATE)), (RANDOM, RandomWalk()))
    elif "cells" in world.offers:
        rate = (1 - float(np.mean(accuracy))) / (1 - _CHANCE) if len(accuracy) else _RATE
        yield from ((OPTIMAL, Optimal()), (LAPSE, EpsilonGreedy(round(min(1.0, rate), 3))), (RANDOM, Uniform()))
        if moves:
            counts = np.bincount(moves, minlength=4)
            yield STATE_BLIND, StateBlind(tuple((counts / counts.sum()).tolist()))


def play_planned(planned: Sequence[Planned], agent: Agent, name: str, at: int) -> Iterator[Episode]:
    """Let another agent play the episodes that are planned for one agent, in the same worlds, and yield its episodes.

    Args:
        planned: specification, world and tags (named values by which results are grouped) of each episode of the first
            agent.
        agent: the agent that plays instead.
        name: its name in the episodes.
        at: number of the first agent, which gives the episodes random numbers of their own.
    """
    by_world: dict[str, list[Planned]] = {}
    for plan in planned:
        by_world.setdefault(plan[0].world_id, []).append(plan)
    for plans in by_world.values():
        spec, world, _ = plans[0]
        # The seed is another one than that of the run, where the same agent may have acted.
        episodes = roll_out(agent, world, seed=spec.seed + 1 + at, trajectories=len(plans), horizon=spec.horizon)
        for episode, (_, _, tags) in zip(episodes, plans, strict=True):
            yield replace(episode, agent=name, tags=tags)


class Tested(StrictRecord):
    """A tested claim (a sentence of a paper, or one of our own) with its answer on a run.

    Attributes:
        said: description of the tested statement.
        quoted, place: the printed sentence and its place in the paper, "" for a statement of our own.
        answer: whether it holds on the run, see `goalscope.papers.claims`.
        parts: name and estimate of each part.
        why: reason or caveat, "" for none.
        about: the models that the quoted sentence is about, "" if the tested model is among them.
        nulls: the same test on each null agent (see `NullAgent`), with ``said`` as the name of the agent.
    """

    __test__ = False  # not a class of tests for pytest

    said: str
    quoted: str = ""
    place: str = ""
    answer: Verdict
    parts: tuple[tuple[str, StoredEstimate], ...] = Field(default=(), max_length=1000)
    why: str = ""
    about: str = ""
    nulls: tuple["Tested", ...] = Field(default=(), max_length=100)


def decide(
    item: Item, rows: Rows, subject: ReadAgents, agents: Sequence[str] = (), nulls: Sequence[NullAgent] = ()
) -> list[Tested]:
    """Test each sentence of a figure or table (an item) of a paper on a run, and on null agents if there are any.

    Args:
        item: the item with its sentences (claims).
        rows: all values of measures of the run.
        subject: the tested agents.
        agents: names of all agents of the run, for sentences that compare agents.
        nulls: null agents (see `NullAgent`), on which each sentence is tested as well.

    Returns:
        One result per sentence, in order.
    """
    tested = []
    for claim in item.claims:
        result = _tested(item, claim, rows, subject, agents or subject.agents)
        fitting = [null for null in nulls if fits(claim, null)]
        null_results = [_null_result(item, claim, null) for null in fitting]
        tested.append(_compare_with_nulls(result, null_results) if nulls else result)
    return tested


def fits(claim: QuotedClaim, null: NullAgent) -> bool:
    """Return whether a null agent (an agent without the claimed property, see `NullAgent`) can serve to test a claim.

    Claims that compare agents need `SCRIPTED`, which stands for several agents; all other claims need another one. A
    claim can also list the names of the null agents that suit it.
    """
    if (null.name == SCRIPTED) != (claim.test in OF_ALL):
        return False
    return not claim.nulls or null.name in claim.nulls


def _null_result(item: Item, claim: QuotedClaim, null: NullAgent) -> Tested:
    changed = item.model_copy(update={"where": {**item.where, **null.tags}})
    result = _tested(changed, claim, null.rows, ReadAgents(agents=null.agents, model=item.model), null.agents, least=1)
    answer: Answer = "untestable" if result.answer in ("few", "uninformative") else result.answer  # type: ignore[assignment]
    return Tested(said=null.name, answer=answer, parts=result.parts)


def _compare_with_nulls(result: Tested, nulls: Sequence[Tested]) -> Tested:
    """Put a result beside those of null agents.

    A sentence that would hold is uninformative if it also holds for a null agent, or if no part of it differs from that
    of the null agent by more than both intervals allow. The two are independent samples, so that their half-widths add
    in squares. It is undecided if the run has no null agent's numbers.
    """
    indistinct = [null.said for null in nulls if null.parts and not _differ(result.parts, null.parts)]
    satisfying = [null.said for null in nulls if null.answer == "yes"]
    changes: dict[str, object] = {"nulls": tuple(nulls)}
    if result.answer == "yes" and (satisfying or indistinct):
        why = "" if satisfying else TEXTS("notes/same", names=listed(indistinct))
        changes |= {"answer": "uninformative", "why": "; ".join(filter(None, (result.why, why)))}
    elif result.answer == "yes" and all(null.answer == "untestable" for null in nulls):
        changes |= {"answer": "undecided", "why": TEXTS("notes/alone")}
    return result.model_copy(update=changes)


def _differ(parts: Sequence[tuple[str, Estimate]], null_parts: Sequence[tuple[str, Estimate]]) -> bool:
    """Return whether some part differs between an agent and a null agent; True if they have no part in common."""
    by_name = dict(null_parts)
    pairs = [(part, by_name[name]) for name, part in parts if name in by_name]
    widths = [float(np.hypot(_half_width(part), _half_width(null))) for part, null in pairs]
    return not pairs or any(
        abs(part.value - null.value) > width for (part, null), width in zip(pairs, widths, strict=True)
    )


def _half_width(estimate: Estimate) -> float:
    """Return half the width of an interval, 0 for a value on which all grids agree."""
    return (estimate.high - estimate.low) / 2 if estimate.has_interval else 0.0


def decide_exact(item: Item, lines: Sequence[ItemLine]) -> list[Tested]:
    """Test each sentence of an item (a figure or table of a paper) whose numbers are computed exactly, without
    intervals.

    Args:
        item: the item with its sentences (claims).
        lines: the computed numbers.

    Returns:
        One result per sentence; "yes" if all compared values are on the claimed side, else "no".
    """
    tested = []
    for claim in item.claims:
        values, other_values = (
            {line.value: line.ours for line in lines if line.label == name} for name in (claim.measure, claim.than)
        )
        steps = list(pairwise(values)) if claim.test == "falls" else [(at, at) for at in values if at in claim.among]
        above = other_values if claim.test == "lower" else values
        parts = []
        for first, second in steps:
            low, high = values[second], above[first]
            if low is not None and high is not None:
                name = f"{claim.measure} at {second:g} less {claim.than or 'that'} at {first:g}"
                parts.append((name, replace(low, value=low.value - high.value)))
        answer: Answer = "yes" if all(part.value < 0 for _, part in parts) else "no"
        tested.append(_told(claim, (answer, parts, "computed, not sampled")))
    return tested


def _told(claim: QuotedClaim, outcome: Found, about: str = "") -> Tested:
    answer, parts, why = outcome
    texts: dict[str, Any] = {
        "said": claim.said,
        "quoted": claim.quoted,
        "place": claim.place,
        "why": why,
        "about": about,
    }
    return Tested(answer=answer, parts=tuple(parts), **texts)


def _tested(
    item: Item, claim: QuotedClaim, rows: Rows, subject: ReadAgents, agents: Sequence[str], *, least: int | None = None
) -> Tested:
    models = claim.about or (item.model,)
    about = "" if subject.model in models or not claim.quoted else " and ".join(models)
    if claim.test in _OF_AGENTS:
        related = rows.where(rows.among("agent", agents if claim.test == "predicts" else subject.agents))
        return _told(claim, _of_few(claim, related, least) or _OF_AGENTS[claim.test](claim, related), about)
    try:
        return _told(claim, _of_selected(item, claim, rows, subject, least), about)
    except ValueError as error:
        return _told(claim, ("undecided", (), str(error)), about)


def _of_selected(item: Item, claim: QuotedClaim, rows: Rows, subject: ReadAgents, least: int | None) -> Found:
    """Test a claim on the rows that it selects, if the run has them."""
    free = {claim.over, *(name for name, value in claim.where.items() if value is None)}
    fixed = item.model_copy(update={"where": {name: tag for name, tag in item.where.items() if name not in free}})
    tags = {name: tag for name, tag in claim.where.items() if tag is not None}
    selected_rows = selected(fixed, tags, rows, subject, (claim.measure, *([claim.than] if claim.than else [])))
    undefined, selected_rows = len(selected_rows), selected_rows.where(~np.isnan(selected_rows.value))
    for name in filter(None, (claim.over, *claim.factors)):
        selected_rows = selected_rows.where(selected_rows.known(name))
    if claim.among and len(selected_rows):
        selected_rows = selected_rows.where(selected_rows.among(claim.over, claim.among))
    values = _values(claim, selected_rows) if claim.among and len(selected_rows) else []
    if lacking := [value for value in claim.among if value not in values]:
        why = f"no value where {claim.over} is {' or '.join(map(str, lacking))}"
        return "untestable", (), why
    if not len(selected_rows):
        return "untestable", (), "no value in these rows" if undefined else "the run has no such rows"
    if claim.than and (absent := {claim.measure, claim.than} - set(selected_rows.measure.tolist())):
        return "untestable", (), f"no value of {' and '.join(sorted(absent))}"
    return _of_few(claim, selected_rows, least) or _OF_ROWS[claim.test](claim, selected_rows)


def _of_few(claim: QuotedClaim, rows: Rows, least: int | None) -> Found | None:
    """Return that there are too few grids: fewer than ``least``, or than half of it at a value that is compared."""
    least = claim.least if least is None else least
    parts = [("", least, rows)]
    if claim.over and claim.test in _OF_VALUES:
        for value in _values(claim, rows):
            part = rows.select(**{claim.over: value})
            parts.append((f" at {claim.over} {_text(value)}", -(-least // 2), part))
    for where, needed, part in parts:
        grids = len(set(part.cluster.tolist()))
        if grids < needed:
            return "few", (), TEXTS("notes/few", grids=grids, where=where, least=needed)
    return None


def _values(claim: QuotedClaim, rows: Rows) -> list[Tag]:
    values = dict.fromkeys(rows[claim.over].tolist())
    return [value for value in claim.among if value in values] if claim.among else sorted(values, key=_order)


def _order(value: Tag) -> tuple[int, float, str]:
    number = isinstance(value, int | float)
    return (0, float(value), "") if number else (1, 0.0, str(value))  # type: ignore[arg-type]


def _steps(claim: QuotedClaim, rows: Rows) -> list[tuple[str, Estimate]]:
    """Estimate the difference between successive values of a tag, with simultaneous intervals."""
    values = _values(claim, rows)
    if len(values) < 2:
        raise ValueError(
            f"testing a trend over {claim.over} needs at least 2 values of it, got {len(values)}: run the "
            "study with more values"
        )
    fitted = _fit(rows, indicators(rows[claim.over].tolist()))
    confidence = 1 - 0.05 / (len(values) - 1)
    return [
        (
            f"{claim.over} {_text(later)} less {_text(earlier)}",
            fitted.estimate({str(later): 1.0, str(earlier): -1.0}, confidence=confidence),
        )
        for earlier, later in pairwise(values)
    ]


def _text(value: Tag) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _monotone(sign: int) -> Callable[[QuotedClaim, Rows], Found]:
    """Build the test that a measure falls (-1) or rises (1) from each value of a tag to the next."""

    def test(claim: QuotedClaim, rows: Rows) -> Found:
        parts = _steps(claim, rows)
        numeric = all(_order(value)[0] == 0 and not isinstance(value, bool) for value in _values(claim, rows))
        slope = [_slope(claim, rows)] if numeric and len(parts) > 1 else []
        return on_side([estimate for _, estimate in parts], sign), (*parts, *slope), ""

    return test


def _slope(claim: QuotedClaim, rows: Rows) -> tuple[str, Estimate]:
    """Estimate the slope over a numeric tag.

    The slope has more power than differences of successive values, but it is a weaker statement.
    """
    numbers = np.array(rows[claim.over].tolist(), dtype=np.float64)
    fitted = _fit(rows, {"constant": np.ones(len(rows)), claim.over: numbers})
    return f"straight line: for one more of {claim.over}", fitted.estimate({claim.over: 1.0})


def _trend(sign: int) -> Callable[[QuotedClaim, Rows], Found]:
    """Build the test that a straight line over a tag falls (-1) or rises (1)."""

    def test(claim: QuotedClaim, rows: Rows) -> Found:
        part = _slope(claim, _below(claim, rows))
        return on_side([part[1]], sign), [part], ""

    return test


def _spread(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that the spread of a measure grows with a tag, using distances from the mean (Levene)."""
    codes, numbers = np.unique(np.array(rows[claim.over].tolist(), dtype=np.float64), return_inverse=True)
    means = np.bincount(numbers, rows.value) / np.bincount(numbers)
    fitted = regress(
        np.abs(rows.value - means[numbers]),
        {"constant": np.ones(len(rows)), claim.over: codes[numbers]},
        rows.cluster.tolist(),
        unit=rows.unit.tolist()[0],
    )
    slope = fitted.estimate({claim.over: 1.0})
    return on_side([slope], 1), [(f"distance from the mean there, for one more of {claim.over}", slope)], ""


def _below(claim: QuotedClaim, rows: Rows) -> Rows:
    limit = float("inf") if claim.below is None else claim.below
    return rows.where(np.array([float(value) < limit for value in rows[claim.over].tolist()], dtype=bool))


def _not_monotone(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure is not monotone, i.e. that at least one step up and one step down are significant."""
    parts = _steps(claim, rows)
    up, down = any(estimate.low > 0 for _, estimate in parts), any(estimate.high < 0 for _, estimate in parts)
    one_direction = all(estimate.low > 0 for _, estimate in parts) or all(estimate.high < 0 for _, estimate in parts)
    return "yes" if up and down else "no" if one_direction else "undecided", parts, ""


def _peak(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure rises up to the middle of three values of a tag and then falls."""
    parts = _steps(claim, rows)
    if len(parts) != 2:
        raise ValueError(
            f"testing a peak in the middle needs exactly 3 values of {claim.over}, got {len(parts) + 1}: "
            "choose three values with among"
        )
    return joined([on_side([estimate], sign) for (_, estimate), sign in zip(parts, (1, -1), strict=True)]), parts, ""


def _linear(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure falls linearly up to a bound: the slope is below 0 and the bend is within the declared
    margin.

    The bend is the greatest distance of the fitted parabola from the straight line through its ends, ``curvature (last
    - first)**2 / 4``. Its interval must lie inside the margin; an interval that contains 0 shows nothing. Size and
    density are controlled for if the rows have these tags, so that a changing mix of worlds does not look like a bend.
    """
    rows = _below(claim, rows)
    numbers = np.array(rows[claim.over].tolist(), dtype=np.float64)
    centred = numbers - numbers.mean() if len(numbers) else numbers
    columns = {"constant": np.ones(len(rows)), "slope": centred, "curvature": centred**2 - (centred**2).mean()}
    fitted = _fit(rows, {**columns, **_factors(rows, claim.factors)})
    slope = fitted.estimate({"slope": 1.0})
    bend = fitted.estimate({"curvature": float(np.ptp(numbers)) ** 2 / 4})
    parts, margin = (("slope", slope), ("bend, at its greatest", bend)), claim.margin or 0.0
    bent, straight = bend.low > margin or bend.high < -margin, -margin < bend.low and bend.high < margin
    answer: Answer = "no" if slope.low > 0 or bent else "undecided"
    if straight and slope.high < 0:
        answer = "yes"
    phrase = "a bend beyond" if bent else "a bend inside of" if straight else "a bend that may lie beyond"
    return answer, parts, f"{phrase} the declared margin of {margin:g}"


def _interaction(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure falls with several factors, and with the last factor only if the first is large.

    One regression contains all factors and the product of the first and the last. The claim holds if the slopes of all
    factors but the last are below 0, the coefficient of the product is below 0, the slope of the last factor is below
    0 at the greatest value of the first factor, and that slope is within the declared margin at the least value. A
    slope that is merely not significant there would show nothing.
    """
    first, last, margin = claim.factors[0], claim.factors[-1], claim.margin or 0.0
    columns = {name: values - values.mean() for name, values in _factors(rows, claim.factors).items()}
    ends = {name: float(find(columns[first])) for name, find in (("least", np.min), ("greatest", np.max))}
    product = f"{last} x {first}"
    columns = {"constant": np.ones(len(rows)), **columns, product: columns[first] * columns[last]}
    fitted, confidence = _fit(rows, columns), 1 - 0.05 / (len(claim.factors) + 2)
    falling = [
        *((f"for one more of {name}, the others fixed", {name: 1.0}) for name in claim.factors[:-1]),
        (f"{product}: change of the slope of {last} for one more of {first}", {product: 1.0}),
        (f"slope of {last} at the greatest {first}", {last: 1.0, product: ends["greatest"]}),
    ]
    parts = [(name, fitted.estimate(weights, confidence=confidence)) for name, weights in falling]
    flat = fitted.estimate({last: 1.0, product: ends["least"]}, confidence=confidence)
    none: Answer = "undecided"
    if flat.high < -margin or flat.low > margin:
        none = "no"
    elif -margin < flat.low and flat.high < margin:
        none = "yes"
    answer = joined([on_side([part for _, part in parts], -1), none])
    why = f"at the least {first} a slope inside of ± {margin:g} counts as none"
    return answer, (*parts, (f"slope of {last} at the least {first}", flat)), why


def _lower(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure is lower than another measure, paired by cluster."""
    fitted = _fit(rows, indicators(rows.measure.tolist()))
    difference = fitted.estimate({claim.measure: 1.0, claim.than: -1.0})
    return on_side([difference], -1), [(f"{claim.measure} less {claim.than}", difference)], ""


def _bounded(sign: int) -> Callable[[QuotedClaim, Rows], Found]:
    """Build the test that the mean, or the mean at each value of a tag, lies above (1) or under (-1) a bound."""

    def test(claim: QuotedClaim, rows: Rows) -> Found:
        values, bound = _values(claim, rows) if claim.over else [None], claim.bound or 0.0
        unit = rows.unit.tolist()[0]
        ends = (-1.0 if LESS in claim.measure else 0.0, 1.0) if unit == "share" else (-np.inf, np.inf)
        parts = []
        for value in values:
            part = rows.select(**{claim.over: value}) if claim.over else rows
            confidence = 1 - 0.05 / len(values)
            mean = estimate_mean(part.value, part.cluster.tolist(), unit=unit, bounds=ends, confidence=confidence)
            parts.append((f"{claim.over} {_text(value)}".strip() if claim.over else claim.measure, mean))
        return (
            on_side([mean for _, mean in parts], sign, bound),
            parts,
            f"{'above' if sign > 0 else 'under'} {bound:g}",
        )

    return test


def _crossing(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that the first of two conditions is higher for N below a value, and the second from that value on."""
    first, second = claim.among
    at, to = claim.at or 0, claim.to or 0
    parts, answers = [], []
    for number in range(1, to + 1):
        part = rows.select(N=number)
        fitted = _fit(part, indicators(part[claim.over].tolist()))
        difference = fitted.estimate({str(first): 1.0, str(second): -1.0}, confidence=1 - 0.05 / to)
        parts.append((f"N = {number}: {first} less {second}", difference))
        answers.append(on_side([difference], 1 if number < at else -1))
    return joined(answers), parts, f"{first} is to be higher for N below {at}, {second} from there to {to}"


def _factors(rows: Rows, names: Sequence[str]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    return {name: np.array(rows[name].tolist(), dtype=np.float64) for name in names}


def _fit(rows: Rows, columns: Mapping[str, np.ndarray[tuple[int], np.dtype[np.float64]]]) -> Regression:
    units = list(dict.fromkeys(rows.unit.tolist()))
    return regress(rows.value, columns, rows.cluster.tolist(), unit=units[0] if units else "")


_STRONG = 0.5  # minimum share of the variance of success that a strong predictor explains


def predicts(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that one error of agents predicts their success well, and better than a second error does.

    The regression of success on the logarithm of an error gives R^2. The claim holds if the slope is below 0, and the
    interval of the first R^2 lies above .5 and above the interval of the second R^2, which is stricter than an interval
    of the difference.

    Args:
        claim: the claim; ``measure`` and ``than`` are the two errors.
        rows: values of measures of all agents.

    Returns:
        Answer, (name, estimate) of both R^2, and a sentence with the number of agents and the slope.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    first_relation, other = (log_relation(rows, name, agents) for name in (claim.measure, claim.than))
    parts = [(f"R^2, log {relation.error}", relation.r_squared) for relation in (first_relation, other)]
    high, low = first_relation.r_squared, other.r_squared
    why = f"over {len(first_relation.agents)} agents, slope {first_relation.slope:.2f}; strong is above {_STRONG:g}"
    if high.low > max(low.high, _STRONG) and first_relation.slope < 0:
        return "yes", parts, why
    if high.high < max(low.low, _STRONG) or (first_relation.slope > 0 and high.low > _STRONG):
        return "no", parts, why
    return "undecided", parts, why


def equal_but_different(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that two agents with equal success differ by more than a margin in some tenth of the episode.

    Intervals are simultaneous over the tenths of all pairs of agents, because a single pair is sufficient. The claim
    does not hold if all intervals lie inside the margin.

    Args:
        claim: the claim, with the compared measure and the margin.
        rows: values of measures of all agents.

    Returns:
        Answer, (name, estimate) of the tenth that is furthest apart, and an explanation; "untestable" if no two agents
        have equal success.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    measured, margin = (rows.measure == claim.measure).any(), claim.margin or 0.0
    pairs = divergences(rows, agents, measure=claim.measure) if measured else []
    if not pairs:
        return "untestable", (), "it needs two agents of success above .5, within .05 of each other"
    parts = [
        (f"{pair.first} less {pair.second}, tenth {number} of an episode", tenth)
        for pair in divergences(rows, agents, measure=claim.measure, families=len(pairs))
        for number, tenth in enumerate(pair.tenths, start=1)
    ]
    furthest = max(parts, key=lambda part: _surely_apart(part[1]))
    why = f"{len(pairs)} pairs of equal success, the tenth that is furthest apart; inside of ± {margin:g} is none"
    return beyond([tenth for _, tenth in parts], margin), [furthest], why


def _surely_apart(part: Estimate) -> tuple[float, float]:
    """Return a sort key: the smallest distance from 0 within the interval of a difference, then that of its value."""
    least = min(abs(part.low), abs(part.high)) if part.low * part.high > 0 else 0.0
    return least, abs(part.value)


def moved_differently(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure changes differently in two agents between the first and second value of a tag, paired by map.

    The claim does not hold if all differences between the changes of two agents lie inside the margin.

    Args:
        claim: the claim; ``over`` and ``among`` are the tag (a named condition of the episodes) and its two values.
        rows: values of measures of all agents.

    Returns:
        Answer, (name, estimate) of the difference for each pair of agents, and an explanation; "untestable" with fewer
        than two agents.
    """
    agents = list(dict.fromkeys(rows["agent"].tolist()))
    if len(agents) < 2 or not rows.known(claim.over).any():
        return "untestable", (), f"it needs two models in both conditions of {claim.over}, the run has one"
    is_defined = (rows.measure == claim.measure) & ~np.isnan(rows.value)
    rows = rows.where(is_defined & rows.among(claim.over, claim.among))
    sign = np.where(np.array([value == claim.among[1] for value in rows[claim.over].tolist()]), 1.0, -1.0) / 2
    columns = {f"level of {agent}": (rows["agent"] == agent).astype(np.float64) for agent in agents}
    columns |= {agent: (rows["agent"] == agent) * sign for agent in agents}
    fitted, pairs = regress(rows.value, columns, rows.cluster.tolist(), unit="share"), list(combinations(agents, 2))
    parts = [
        (
            f"change of {second} less that of {first}",
            fitted.estimate({second: 1.0, first: -1.0}, confidence=1 - 0.05 / len(pairs)),
        )
        for first, second in pairs
    ]
    margin = claim.margin or 0.0
    why = f"{claim.among[0]} to {claim.among[1]}; inside of ± {margin:g} is none"
    return beyond([part for _, part in parts], margin), parts, why


_GENERAL = "general"  # scope of the probe trained on all sizes; the scope of a probe for one size is its shape
Sides = tuple[str, tuple[Any, ...], dict[str, Any]]
"""Name of a transform; values and grids, transformed and original; their unit and bounds."""


def unmoved(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure is the same on transformed (mirrored, rotated, ...) grids as on the originals, on average.

    The claim holds if, for each transform, the interval of the mean paired difference lies inside the claim's margin.

    Args:
        claim: the claim, with its margin.
        rows: values of the measure, on original and transformed grids.

    Returns:
        Answer, (name, estimate) of the difference for each transform, and an explanation.
    """
    margin, sides = claim.margin or 0.0, list(_transforms(rows))
    confidence = 1 - 0.05 / len(sides)
    parts = [
        (f"{name} less original", paired_difference(*pair, **scale, confidence=confidence).difference)
        for name, pair, scale in sides
    ]
    why = f"no difference is one inside of ± {margin:g}; “not significant” shows none"
    return inside([part for _, part in parts], margin), parts, why


def unmoved_on_each(claim: QuotedClaim, rows: Rows) -> Found:
    """Test that a measure is the same on each single transformed grid as on its original, not only on average.

    The claim holds if the root mean square difference over grids is below the claim's margin. Differences can cancel in
    a mean over random grids. For example, an agent that fails whenever the goal lies to the left loses by a reflection
    on as many grids as it gains.

    Args:
        claim: the claim, with its margin.
        rows: values of the measure, on original and transformed grids.

    Returns:
        Answer, (name, estimate) of the difference for each transform, and an explanation.
    """
    margin, sides = claim.margin or 0.0, list(_transforms(rows))
    parts, answers = [], list[Answer]()
    for name, pair, scale in sides:
        rng = stream(0, "unmoved on each grid", name)
        effect = sensitivity(*pair, **scale, rng=rng, confidence=1 - 0.05 / len(sides), draws=1)
        part = Estimate(
            value=effect.value,
            low=effect.low,
            high=effect.high,
            n=effect.square.n,
            clusters=effect.square.clusters,
            method=f"root of the mean squared difference, {effect.square.method}",
            unit=scale["unit"],
            confidence=effect.square.confidence,
            note=effect.note,
        )
        parts.append((f"{name} and original, root mean square over grids", part))
        answers.append(inside([part], margin))
    return joined(answers), parts, f"true differences of single grids below {margin:g} count as none"


def _transforms(rows: Rows) -> Iterator[Sides]:
    """Yield the values under each transform together with those on the original grids."""
    check_transformed(rows)
    transforms, original = set(rows["transform"].tolist()), rows.select(transform=ORIGINAL)
    for name in TRANSFORMS:
        if name != ORIGINAL and name in transforms:
            yield name, *both_sides(rows.select(transform=name), original, bounds_of(rows))


def one_size(judge: Callable[[list[Estimate], QuotedClaim], Answer]) -> Callable[[QuotedClaim, Rows], Found]:
    """Build the test that compares probes trained on a single grid size with the general probe trained on all sizes.

    The two are compared for each size, on the same grids.

    Args:
        judge: function from the differences (single size minus general, one per size) and the claim to the answer.

    Returns:
        A function from a claim and values of measures to answer, (name, estimate) of each difference, and an
        explanation.
    """

    def test(claim: QuotedClaim, rows: Rows) -> Found:
        sizes = list(claim.among) or sorted(dict.fromkeys(rows["size"].tolist()), key=str)
        general = rows["scope"] == _GENERAL
        parts = []
        for size in sizes:
            of_size = rows["size"] == size
            special, other = rows.where(of_size & ~general), rows.where(of_size & general)
            if not len(special) or not len(other):
                which = "the general probe" if len(special) else "a probe of that size alone"
                return "untestable", (), f"no value of {which} at size {size}"
            pair, scale = both_sides(special, other, bounds_of(rows))
            difference = paired_difference(*pair, **scale, confidence=1 - 0.05 / len(sizes)).difference
            parts.append((f"size {size}: probe of that size less general", difference))
        bound = claim.margin if claim.margin is not None else claim.bound
        why = "" if not bound else f"inside of ± {bound:g}" if claim.margin else f"by more than {abs(bound):g}"
        return judge([part for _, part in parts], claim), parts, why

    return test


one_size_higher = one_size(lambda parts, claim: on_side(parts, 1, claim.bound or 0.0))
one_size_lower = one_size(lambda parts, claim: on_side(parts, -1, claim.bound or 0.0))
one_size_equal = one_size(lambda parts, claim: inside(parts, claim.margin or 0.0))


_OF_ROWS: Final[Mapping[str, Callable[[QuotedClaim, Rows], Found]]] = {
    "falls": _monotone(-1),
    "rises": _monotone(1),
    "trend down": _trend(-1),
    "trend up": _trend(1),
    "spread": _spread,
    "not monotone": _not_monotone,
    "peak": _peak,
    "linear": _linear,
    "interaction": _interaction,
    "lower": _lower,
    "above": _bounded(1),
    "under": _bounded(-1),
    "crossing": _crossing,
    "unmoved": unmoved,
    "unmoved on each": unmoved_on_each,
    "one size higher": one_size_higher,
    "one size lower": one_size_lower,
    "one size equal": one_size_equal,
}
_OF_AGENTS: Final[Mapping[str, Callable[[QuotedClaim, Rows], Found]]] = {
    "predicts": predicts,
    "equal but different": equal_but_different,
    "moved differently": moved_differently,
}
TESTS: Final = (*_OF_ROWS, *_OF_AGENTS)
_OF_VALUES: Final = ("falls", "rises", "not monotone", "peak", "above", "under", "crossing")
"""Tests that compare the values of a tag one by one."""
OF_ALL: Final = ("predicts", "equal but different")
"""Tests of several different agents."""


def null_text(null: Tested) -> str:
    """Describe the test of a claim on a null agent (an agent without the claimed property): its name, answer and
    estimate.

    The estimate is that for the first part of the claim; it is left out if there is none.
    """
    figures = f", {null.parts[0][1]}" if null.parts else ""
    return f"{null.said}: {word_of(null.answer)}{figures}"


def lines_of(tested: Tested) -> Iterator[str]:
    """Yield the lines to print for a tested claim: the sentence with its answer, one line per part, and the null
    agents.

    Null agents are agents without the claimed property, on which the claim is tested as well.
    """
    quoted = f"“{tested.quoted}” ({tested.place}). Tested: " if tested.quoted else ""
    yield f"{quoted}{tested.said}: {word_of(tested.answer)}{f' ({tested.why})' if tested.why else ''}"
    if tested.about:
        yield f"  said of {tested.about}, of which this run has none: that sentence is not tested"
    for name, estimate in tested.parts:
        yield f"  {name}: {estimate}"
    if tested.nulls:
        yield f"  {TEXTS('notes/nulls')}: {'; '.join(map(null_text, tested.nulls))}"
