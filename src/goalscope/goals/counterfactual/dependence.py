"""Decide what an agent's moves depend on, by how much they change relative to their predictable part.

The dependence is rho = E[D] / E[P] (see `goals.counterfactual.turns`), with means over worlds. It is 0 if a change
leaves the moves as they are, and 1 if the moves after the change carry no information about those before. Its interval
inverts the interval of the mean of D - r P: r lies in the interval if 0 lies in the other, so a small denominator makes
the interval wide rather than wrong.

Moves *depend* on a thing if rho >= `ENOUGH`, the interval of rho lies above `LEAST`, and three one-sided tests reject
after Holm's correction over the things: rho > `LEAST`; predictable share E[P] / (1 - 1/k) > `NOISE`; and a permutation
test in which answers exchanged within worlds change less (omitted if policies are known). Moves do *not* depend on it
if the interval of rho lies below `LEAST`. If the predictable share may be below `NOISE`, the question is untestable.

Source: Fieller (1954), Some problems in interval estimation (the ratio); Phipson and Smyth (2010) (p of random
exchanges is never 0); goalscope (thresholds, chosen on scripted agents).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.goals.counterfactual.changes import REMOVED, THINGS
from goalscope.goals.counterfactual.turns import Array, Asked, WorldTurns, distances, estimated
from goalscope.goals.finding import Answer
from goalscope.stats import UNBOUNDED, Estimate, corrected
from goalscope.stats.compare import smallest
from goalscope.stats.estimate import from_codes
from goalscope.stats.intervals import Bounds, mean_interval

ENOUGH: Final = 0.3
"""Minimum rho for the answer "yes"."""
LEAST: Final = 0.15
"""The interval of rho must lie above this value for "yes", and below it for "no"."""
NOISE: Final = 0.02
"""Minimum predictable share of the moves for any answer."""
DRAWS: Final = 999
"""Number of random exchanges in the permutation test."""

_WIDEST: Final = 20.0  # if an end of the interval of rho lies beyond this value, there is no interval
_SMALLEST: Final = 1e-12  # p values are not resolved below this value


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """How much an agent's moves depend on one thing.

    Attributes:
        agent, moved: name of the agent, and the changed thing.
        answer: whether the moves depend on the thing; "untestable" if the agent repeats too few of its moves to detect
            a change.
        share: rho with its interval.
        change, predictable: mean of D, and predictable share of the moves.
        variation: mean total variation; None if policies are not known.
        p, adjusted: largest p value of the three tests, before and after Holm's correction over the things.
        worlds, versions: number of worlds and of changed versions used.
        invalid: share of answers without a move; such answers are left out.
    """

    agent: str
    moved: str
    answer: Answer
    share: Estimate
    change: Estimate
    predictable: Estimate
    variation: Estimate | None
    p: float
    adjusted: float
    worlds: int
    versions: int
    invalid: float


def sentence(dependence_records: Sequence[Dependence]) -> str:
    """Describe in one sentence what the moves of one agent depend on."""
    words: dict[str, list[str]] = {}
    for dependence in dependence_records:
        few = dependence.answer == "untestable" and not dependence.predictable.has_interval
        words.setdefault("few worlds" if few else dependence.answer, []).append(noun_of(dependence.moved))
    agent, parts = dependence_records[0].agent, []
    if "yes" in words:
        parts.append(f"the actions of {agent} depend on {_and(words['yes'])}")
    if "no" in words:
        subject = "they" if parts else f"the actions of {agent}"
        share = f"less than {LEAST:g} of what is predictable of them changes"
        parts.append(f"{subject} do not depend on {_and(words['no'])} ({share})")
    if "undecided" in words:
        parts.append(f"undecided: {_and(words['undecided'])}")
    if "few worlds" in words:
        parts.append(f"undecided, because too few worlds allow this change: {_and(words['few worlds'])}")
    if "untestable" in words:
        subject = "the rest" if parts else _and(words["untestable"])
        parts.append(f"what the actions of {agent} have in common in one state is too little to decide about {subject}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def noun_of(moved: str) -> str:
    """Return a noun phrase for what the moves depend on if they change with this thing."""
    name = moved.removeprefix(REMOVED)
    if moved in NAMES or not registry.registered("thing", name):
        return NAMES.get(moved, moved)
    return f"the {name}'s place" if moved == name else f"whether the {name} is there"


NAMES: Final[Mapping[str, str]] = {
    "goal": "the goal's place",
    "key": "the key's place",
    "door": "whether the door is open",
    "added key": "whether a key lies there",
    "removed key": "whether the key lies there",
    "wall": "walls beside the agent and its shortest paths",
    "corner": "where the corners are",
    "agent": "where the agent stands",
    "names": "the symbols of the cells",
    "order": "the order of legend and moves in the prompt",
    "words": "the words of the prompt",
}
"""Changed thing -> noun phrase for what the moves depend on."""


def dependences(
    answers: Mapping[str, Sequence[Asked]], *, level: float = 0.05, confidence: float = 0.95, draws: int = DRAWS
) -> list[Dependence]:
    """Decide for each agent and thing whether the moves depend on it.

    Args:
        answers: agent -> its answers in original and changed states, from `goals.counterfactual.turns.asked_of`.
        level: error rate of the three tests, over all things of one agent together.
        confidence: coverage of each interval.
        draws: number of random exchanges in the permutation test.
    """
    dependence_records = []
    for agent, states in answers.items():
        changed_things = {thing for state in states for thing in state.changed}
        own_things = sorted(changed_things - set(THINGS))  # of environments, in the words of their authors
        things = [*(thing for thing in THINGS if thing in changed_things), *own_things]
        members = [_measured(agent, thing, states, confidence, draws) for thing in things]
        tests = corrected(
            {dependence.moved: dependence.p for dependence in members}, f"what {agent} depends on", level=level
        )
        dependence_records += [_decided(dependence, tests[dependence.moved].adjusted, level) for dependence in members]
    return dependence_records


def _decided(dependence: Dependence, adjusted: float, level: float) -> Dependence:
    answer: Answer = "undecided"
    if not dependence.predictable.has_interval or dependence.predictable.low <= NOISE:
        answer = "untestable"
    elif adjusted <= level and dependence.share.value >= ENOUGH and dependence.share.low > LEAST:
        answer = "yes"
    elif dependence.share.has_interval and dependence.share.high < LEAST:
        answer = "no"
    return replace(dependence, adjusted=adjusted, answer=answer)


def _measured(agent: str, thing: str, states: Sequence[Asked], confidence: float, draws: int) -> Dependence:
    """Compute the estimates and the p value for one thing; the answer stays "undecided"."""
    having, moves = [state for state in states if thing in state.changed], len(states[0].side.counts)
    compared = [(state.cluster, distances(state.side, version)) for state in having for version in state.changed[thing]]
    measured = [(cluster, values) for cluster, values in compared if not math.isnan(values[0])]
    numbers = {cluster: index for index, cluster in enumerate(dict.fromkeys(cluster for cluster, _ in measured))}
    codes = np.array([numbers[cluster] for cluster, _ in measured], dtype=np.int64)
    values = np.array([values for _, values in measured], dtype=np.float64).reshape(-1, 3)

    def mean(column: Array, bounds: Bounds, *, differences: bool) -> Estimate:
        fields: dict[str, Any] = {"unit": "share", "bounds": bounds, "confidence": confidence}
        return from_codes(column, codes, **fields, all_clusters=len(numbers), differences=differences)

    change, agreement, variation = values.T
    scale = 1 - 1 / moves
    has_policies = bool(len(measured)) and not np.isnan(variation).any()
    d, p = (_by_code(column, codes, len(numbers)) for column in (change, agreement))
    sides = [side for state in having for side in (state.side, *state.changed[thing])]
    invalid, valid = sum(side.invalid for side in sides), float(sum(side.counts.sum() for side in sides))
    tests = [
        p_above(d - LEAST * p, _bounds(LEAST, moves)),
        p_above(p / scale - NOISE, (-1 / moves / scale - NOISE, 1 - NOISE)),
    ]
    if not has_policies:
        exchanged = [(state.cluster, state.side, state.changed[thing]) for state in having]
        tests.append(exchange_p(exchanged, f"{agent} {thing}", draws))
    return Dependence(
        agent=agent,
        moved=thing,
        answer="undecided",
        share=share_of(d, p, moves, confidence, n=len(measured)),
        change=mean(change, (-1.0, 1.0), differences=True),
        predictable=mean(agreement / scale, (-1 / moves / scale, 1.0), differences=False),
        variation=mean(variation, (0.0, 1.0), differences=False) if has_policies else None,
        p=max(tests),
        adjusted=1.0,
        worlds=len(numbers),
        versions=len(measured),
        invalid=invalid / (invalid + valid),
    )


def share_of(change: Array, predictable: Array, moves: int, confidence: float, *, n: int) -> Estimate:
    """Estimate rho, the change of an agent's moves as a share of their predictable part, with its interval over worlds.

    Args:
        change, predictable: ``[G]`` change D of the moves, and their predictable part P, of each world.
        moves: number of moves k of which each value is a mean.
        confidence: coverage of the interval.
        n: number of changed versions, for the record.
    """
    fields: dict[str, Any] = {"unit": "ratio", "n": n, "clusters": len(change), "confidence": confidence}
    below = float(predictable.mean()) if len(predictable) else math.nan
    value = float(change.mean()) / below if below > 0 else math.nan
    nothing: dict[str, Any] = {"low": math.nan, "high": math.nan, "method": "none"}
    if math.isnan(value) or len(change) < 2:
        note = "the moves hold nothing that is predictable" if len(change) > 1 else "too few worlds for an interval"
        return Estimate(value=value, **nothing, **fields, note=note)

    def interval(share: float) -> tuple[float, float]:
        points, bounds = change - share * predictable, _bounds(share, moves)
        mean_ends = mean_interval(points, bounds=bounds, confidence=confidence, differences=True)
        return mean_ends.low, mean_ends.high

    if not (interval(-_WIDEST)[0] > 0 > interval(_WIDEST)[1]):
        return Estimate(value=value, **nothing, **fields, note="too little is predictable for an interval")
    low = smallest(lambda share: interval(share)[0] <= 0, -_WIDEST, _WIDEST, 30)
    high = smallest(lambda share: interval(share)[1] < 0, -_WIDEST, _WIDEST, 30)
    method = "inverted t over worlds of a ratio"
    return Estimate.of_ends(value, low, high, method=method, **fields)


def p_above(points: Array, bounds: Bounds = UNBOUNDED) -> float:
    """Return the one-sided p value of the hypothesis that the mean of ``[G]`` points is at most 0; values above 1/2
    become 1.
    """
    if len(points) < 2:
        return 1.0

    def above(log_level: float) -> bool:
        confidence = 1 - 2 * math.exp(log_level)
        return mean_interval(points, bounds=bounds, confidence=confidence, differences=True).low > 0

    lowest, highest = math.log(_SMALLEST), math.log(0.5 - 1e-9)
    if not above(highest):
        return 1.0
    return _SMALLEST if above(lowest) else math.exp(smallest(above, lowest, highest, 24))


def exchange_p(states: Sequence[tuple[str, WorldTurns, Sequence[WorldTurns]]], name: str, draws: int) -> float:
    """Permutation test: return the share of random exchanges (the data included) with at least the observed change.

    Args:
        states: (cluster, answers in the original state, answers in each changed version); answers are exchanged within
            each entry.
        name: key of the random numbers.
        draws: number of exchanges.
    """
    rng, observed, drawn = stream(0, "exchanged answers", name), dict[str, list[Array]](), dict[str, list[Array]]()
    for cluster, side, versions in states:
        counts = np.array([turns.counts for turns in (side, *versions) if turns.counts.sum() > 1])
        if side.counts.sum() < 2 or len(counts) < 2:
            continue
        answers = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel().astype(np.int64))
        order = rng.random((draws, len(answers))).argsort(axis=1)
        begins = np.concatenate([[0], np.cumsum(counts.sum(axis=1))[:-1]]).astype(np.int64)
        exchanged = np.add.reduceat(np.eye(counts.shape[1])[answers[order]], begins, axis=1)
        observed.setdefault(cluster, []).append(estimated(counts[:1], counts[1:])[0])
        drawn.setdefault(cluster, []).append(estimated(exchanged[:, :1], exchanged[:, 1:])[0])
    if not observed:
        return 1.0
    statistic = float(np.mean([np.concatenate(parts).mean() for parts in observed.values()]))
    exchanged_means = np.mean([np.concatenate(parts, axis=1).mean(axis=1) for parts in drawn.values()], axis=0)
    return float(1 + (exchanged_means >= statistic - 1e-12).sum()) / (1 + draws)


def _bounds(share: float, moves: int) -> Bounds:
    """Return the least and the greatest possible value of D - share * P, where both D and P are computed from moves."""
    ends = [-share * (1 - 1 / moves), share / moves]
    return -1 + min(ends), 1 + max(ends)


def _by_code(values: Array, codes: Any, count: int) -> Array:
    """Return the mean of the values in each of G worlds, ``[G]``; ``codes`` are the indices of the worlds."""
    return np.bincount(codes, values, count) / np.maximum(np.bincount(codes, minlength=count), 1)


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
