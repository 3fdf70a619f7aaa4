"""What an agent's moves depend on: how much they differ between a state and its changed versions.

Let p and q be the distributions of the moves in a state and in its changed version, and k the number of moves:

    total variation  TV = sum over a of |p(a) - q(a)| / 2
    change           D  = sum over a of (p(a) - q(a))^2 / 2,    TV^2 <= k D / 2,  D <= TV^2
    predictable part P  = (sum over a of p(a)^2 + q(a)^2) / 2 - 1 / k

If an agent reports its policy (likelihoods), all three are exact. From sampled answers x_1 .. x_n and y_1 .. y_m, total
variation has no unbiased estimator, but the other two have U-statistics over pairs of different answers:

    D = mean 1[x_i != y_j] - (mean 1[x_i != x_j] + mean 1[y_i != y_j]) / 2,    P = 1 - its second part - 1 / k

The estimate of D may be negative. Answers without a move are left out, and so are versions with fewer than two moves on
a side; the remaining answers are still independent draws from p and q, conditional on a valid move.

Source: Gretton et al. (2012), A kernel two-sample test, lemma 6, with the kernel 1[x = y]; goalscope (P, the bounds).

The **dependence** is rho = E[D] / E[P], how much the moves change relative to their predictable part, with means over
worlds. It is 0 if a change leaves the moves as they are, and 1 if the moves after the change carry no information about
those before. Its interval inverts the interval of the mean of D - r P: r lies in the interval if 0 lies in the other,
so a small denominator makes the interval wide rather than wrong.

Moves *depend* on a thing if rho >= `ENOUGH`, the interval of rho lies above `LEAST`, and three one-sided tests reject
after Holm's correction over the things: rho > `LEAST`; predictable share E[P] / (1 - 1/k) > `NOISE`; and a permutation
test in which answers exchanged within worlds change less (omitted if policies are known). Moves do *not* depend on it
if the interval of rho lies below `LEAST`. If the predictable share may be below `NOISE`, the question is untestable.

Source: Fieller (1954), Some problems in interval estimation (the ratio); Phipson and Smyth (2010) (p of random
exchanges is never 0); goalscope (thresholds, chosen on scripted agents).

As a method of **attribution**, we move one object, keep everything else, and ask the agent for one move. For each world
we build `CHANGES` versions with the goal elsewhere and `CHANGES` with the key elsewhere, and ask twice
for the first move in each. The recorded answers to the first step stand for the unchanged world. The consistency score
(`goals.hypotheses.score`) then compares the hypotheses on all of these moves; a world and its versions form one
cluster. This separates hypotheses that agree in every recorded state: if the goal always lies in a corner, moving the
goal separates "goal" from "corner". The verdict also says what the moves depend on.
The result is about first states and changed worlds only; elsewhere an agent may behave differently.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope._ground.words import listed
from goalscope.goals.attribution.definition import Attribution, Trial, attribution
from goalscope.goals.attribution.methods import of_verdict
from goalscope.goals.counterfactual.worlds import MOVED, NOTHING, REMOVED, THINGS, Thing, best_actions, changed_grids
from goalscope.goals.finding import TEXTS, Answer, filled
from goalscope.goals.hypotheses.definition import FiniteWorld, Undefined, finite_world
from goalscope.goals.hypotheses.score import evidence, judge
from goalscope.goals.hypotheses.states import Answers
from goalscope.runs.record import Episode, policy_of
from goalscope.runs.store import Store
from goalscope.stats import UNBOUNDED, Estimate, corrected
from goalscope.stats.compare import smallest
from goalscope.stats.estimate import from_codes
from goalscope.stats.intervals import Bounds, mean_interval
from goalscope.stats.rows import Row, Rows, Tag
from goalscope.worlds.dynamics import shown
from goalscope.worlds.gridworld import GridWorld

Array = npt.NDArray[np.float64]

CHANGE, PREDICTABLE, VARIATION = "change of the moves", "predictable part of the moves", "total variation of the moves"
"""Names of the measures in the rows of `rows_of`."""


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
_THINGS: Final[tuple[Thing, ...]] = ("goal", "key")
CHANGES: Final = 3
"""Number of changed versions of a world for each object; the agent answers twice in each."""


@dataclass(slots=True)
class WorldTurns:
    """How an agent answered in the first state of one world, when it was asked once or several times.

    Attributes:
        counts: ``[A]`` number of answers with each move.
        invalid: number of answers without a move.
        policy: ``[A]`` probabilities of the moves; None if the agent does not report them.
    """

    counts: Array
    invalid: int = 0
    policy: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An agent's answers in one state of a world, and in versions of this state in which one thing is changed.

    Attributes:
        cluster, tags: cluster and tags of the world; a world and its versions share a cluster.
        side: answers in the original state.
        changed: changed thing, such as "goal" -> answers in each version in which it is changed.
    """

    cluster: str
    tags: Mapping[str, Tag]
    side: WorldTurns
    changed: dict[str, list[WorldTurns]] = field(default_factory=dict)


def visited_states(store: Store, agents: Collection[str], count: int, *, seed: int) -> dict[str, Any]:
    """Draw one state of each grid that the agents of a run visited, so that they can be asked there with one thing
    changed.

    Worlds with fog, with an instruction, or of another kind are left out, and so are turns in which the agent holds the
    key, because a grid cannot show that.

    Args:
        store: the run.
        agents: names of the agents whose turns are drawn from.
        count: maximum number of grids.
        seed: seed of the draws.

    Returns:
        The keys ``of`` (the grids) and ``walks`` (the turns that led to each state) of a study entry of kind `changed`.

    Raises:
        ValueError: the run has no suitable state.
    """
    turns: dict[str, list[tuple[str, list[list[int | None]]]]] = {}
    for episode in store.episodes():
        world = episode.world
        shown_whole = world.offers >= {"grid", "seen state"} and world.fog_radius is None
        if episode.agent in agents and shown_whole:
            without_key = [step for step in episode.steps if step.state[2] == 0]
            walk = [[*step.state[:2], None if step.action is None else int(step.action)] for step in without_key]
            turns.setdefault(world.cluster_id, []).extend(
                (shown(world.grid, step.state).render(), walk[:number]) for number, step in enumerate(without_key)
            )
    rng, renderings = stream(seed, "visited states"), dict[str, list[list[int | None]]]()
    for cluster in sorted(turns):
        if states := turns[cluster]:
            renderings.setdefault(*states[int(rng.integers(len(states)))])
    if not renderings:
        raise ValueError(
            f"{store.path} has no turns of {', '.join(agents)} in grids without fog: name the agent itself and add "
            "--worlds"
        )
    chosen = sorted(rng.permutation(len(renderings))[:count].tolist())
    grids = [list(renderings)[index] for index in chosen]
    return {"of": [{"kind": "text", "grids": grids}], "walks": [renderings[grid] for grid in grids]}


def asked_of(episodes: Iterable[Episode]) -> dict[str, list[Asked]]:
    """Collect each agent's answers in original states and in their changed versions.

    Args:
        episodes: episodes of a run; those in worlds that are neither are ignored.

    Returns:
        Name of the agent -> one entry for each original state.
    """
    sides: dict[tuple[str, str], tuple[Any, WorldTurns]] = {}
    for episode in episodes:
        if "changed" not in episode.world.offers or not episode.steps:
            continue
        key, first = (episode.agent, episode.world.id), episode.steps[0]
        if key not in sides:
            world: Any = episode.world
            actions = world.believed.table.actions if "environment" in world.offers else world.view.actions
            sides[key] = world, WorldTurns(counts=np.zeros(len(actions)))
        side = sides[key][1]
        if first.action is None:
            side.invalid += 1
        else:
            side.counts[int(first.action)] += 1
            policy = policy_of(first.extra)
            side.policy = np.array(policy) if policy is not None and len(policy) == len(side.counts) else side.policy
    states: dict[str, dict[str, Asked]] = {}
    for (agent, _), (world, side) in sides.items():
        if world.moved == NOTHING:
            original_state = Asked(cluster=world.cluster_id, tags=world.tags, side=side)
            states.setdefault(agent, {})[world.original] = original_state
    for (agent, _), (world, side) in sides.items():
        original = states.get(agent, {}).get(world.original)
        if world.moved != NOTHING and original is not None:
            original.changed.setdefault(world.moved, []).append(side)
    return {agent: list(of_agent.values()) for agent, of_agent in states.items()}


def distances(first: WorldTurns, second: WorldTurns) -> tuple[float, float, float]:
    """Measure how much an agent's moves differ between two versions of a state.

    Args:
        first, second: the agent's answers in each version.

    Returns:
        The change D, half the squared distance of both distributions of moves; the predictable part P, how far these
        distributions are from uniform (their mean sum of squares minus 1 over the number of moves); and the total
        variation distance, which is known only if the agent reports its probabilities. NaN where a value is unknown.
    """
    if first.policy is not None and second.policy is not None:
        return exact(first.policy, second.policy)
    change, predictable = estimated(first.counts, second.counts)
    return float(change), float(predictable), float("nan")


def exact(first: Array, second: Array) -> tuple[float, float, float]:
    """Measure how much two known distributions over the same A actions differ, ``[A]`` each.

    Returns:
        The change D, half their squared distance; the predictable part P, how far they are from uniform (their mean sum
        of squares minus 1 / A); and the total variation distance.
    """
    gap, square = first - second, float(first @ first + second @ second) / 2
    return float(gap @ gap) / 2, square - 1 / len(first), float(np.abs(gap).sum()) / 2


def estimated(first: Array, second: Array) -> tuple[Array, Array]:
    """Estimate from sampled answers how much an agent's moves differ between two versions of a state, without bias.

    Args:
        first, second: ``[..., A]`` number of answers with each of A actions, in each version.

    Returns:
        Two arrays ``[...]``: the change D, half the squared distance of both distributions of moves, and the
        predictable part P, how far they are from uniform (their mean sum of squares minus 1 / A). NaN if a version has
        fewer than two answers; D may be negative.
    """
    number = [side.sum(axis=-1) for side in (first, second)]
    with np.errstate(divide="ignore", invalid="ignore"):
        within = [
            (side * (side - 1)).sum(axis=-1) / (n * (n - 1)) for side, n in zip((first, second), number, strict=True)
        ]
        across = (first * second).sum(axis=-1) / (number[0] * number[1])
        has_pairs = (number[0] > 1) & (number[1] > 1)
        agreement = (within[0] + within[1]) / 2
        return np.where(has_pairs, agreement - across, np.nan), np.where(
            has_pairs, agreement - 1 / first.shape[-1], np.nan
        )


def rows_of(answers: Mapping[str, list[Asked]]) -> Rows:
    """Return how much each agent's moves changed, as rows of a table: one per measure and changed version of a state.

    Args:
        answers: agent -> its answers in original and changed states, from `asked_of`.
    """
    return Rows.from_rows(_rows(answers))


def _rows(answers: Mapping[str, list[Asked]]) -> Iterator[Row]:
    for agent, states in answers.items():
        for state in states:
            for thing, versions in state.changed.items():
                tags = {**state.tags, "agent": agent, MOVED: thing}
                for version in versions:
                    values = zip((CHANGE, PREDICTABLE, VARIATION), distances(state.side, version), strict=True)
                    for measure, value in (pair for pair in values if not np.isnan(pair[1])):
                        yield Row(measure=measure, unit="share", value=value, cluster=state.cluster, tags=tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """How much an agent's moves depend on one thing, such as the position of the goal.

    The agent was asked in states, and again after the thing was changed. The change of its moves is compared with their
    predictable part: how far their distribution is from uniform.

    Attributes:
        agent, moved: name of the agent, and the changed thing.
        answer: whether the moves depend on the thing; "untestable" if the agent repeats too few of its moves to detect
            a change.
        share: rho, the mean change of the moves divided by their mean predictable part, with its interval. It is 0 if
            the moves stay as they were, and 1 if nothing of them remains.
        change: mean change D, half the squared distance of the distributions of moves before and after.
        predictable: mean predictable part, as a share of the greatest possible one.
        variation: mean total variation distance; None if the agent's action probabilities are not known.
        p, adjusted: largest p value of the three tests (that rho is large enough, that the moves are predictable, and a
            permutation test), before and after Holm's correction over the things.
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
    """Describe in one sentence what the moves of one agent depend on, such as the goal's place.

    Args:
        dependence_records: one result for each changed thing, at least one.
    """
    things: dict[str, list[str]] = {}
    for dependence in dependence_records:
        few = dependence.answer == "untestable" and not dependence.predictable.has_interval
        things.setdefault("few worlds" if few else dependence.answer, []).append(noun_of(dependence.moved))
    agent, parts = dependence_records[0].agent, list[str]()
    for key in (key for key in ("yes", "no", "undecided", "few worlds", "untestable") if key in things):
        fields = {"agent": agent, "things": listed(things[key]), "least": f"{LEAST:g}"}
        later = f"dependence/{key} too"
        parts.append(filled(later if parts and TEXTS.has(later) else f"dependence/{key}", **fields))
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def noun_of(moved: str) -> str:
    """Return how sentences name what the moves depend on if they change with a thing, as in "the goal's place".

    Args:
        moved: name of the changed thing, such as "goal" or "removed red key".
    """
    if TEXTS.has(f"moved/{moved}"):
        return TEXTS(f"moved/{moved}")
    name = moved.removeprefix(REMOVED)
    if not registry.registered("thing", name):
        return moved
    return TEXTS("moved/a thing" if moved == name else "moved/a removed thing", name=name)


def dependences(
    answers: Mapping[str, Sequence[Asked]], *, level: float = 0.05, confidence: float = 0.95, draws: int = DRAWS
) -> list[Dependence]:
    """Decide whether each agent's moves depend on each thing that was changed, such as the cell of the goal or of the
    key.

    Args:
        answers: agent -> its answers in original and changed states, from `goals.counterfactual.dependence.asked_of`.
        level: error rate of the three tests, over all things of one agent together.
        confidence: coverage of each interval.
        draws: number of random exchanges in the permutation test.

    Returns:
        One result for each agent and changed thing.
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
    sizes = np.maximum(np.bincount(codes, minlength=len(numbers)), 1)
    d, p = (np.bincount(codes, column, len(numbers)) / sizes for column in (change, agreement))  # [G] means of worlds
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
    """Estimate how much of an agent's predictable moves changes (rho), with an interval over worlds.

    Args:
        change: ``[G]`` change D in each world: half the squared distance of the distributions of moves before and after
            something was changed.
        predictable: ``[G]`` predictable part P in each world: how far these distributions are from uniform.
        moves: number of moves k from which the agent chooses.
        confidence: coverage of the interval.
        n: number of changed versions, to be recorded in the estimate.
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
    """Return the one-sided p value of the hypothesis that a mean over worlds is at most 0, by inverting its interval.

    Args:
        points: ``[G]`` one value per world; the result is 1 with fewer than two.
        bounds: least and greatest possible value.

    Returns:
        The p value; values above 1/2 become 1.
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
    """Return the p value of a permutation test: does changing a thing change the moves more than exchanging answers
    does?

    It is the share of random exchanges of answers (the data included) with at least the observed change.

    Args:
        states: (cluster, answers in the original state, answers in each changed version); answers are exchanged within
            each entry.
        name: name of the stream of random numbers.
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


@attribution("counterfactual", asks="turns")
def by_counterfactual(trial: Trial) -> Attribution:
    """Name the goal of an agent by counterfactuals: the hypothesis that its first moves follow after an object was
    moved.

    The agent is asked for further first moves, in versions of its grids in which the goal or the key lies elsewhere.

    Args:
        trial: the agent's episodes, the hypotheses to compare, and access to the agent.

    Returns:
        The verdict: the hypotheses named, and the predicted action probabilities.

    Raises:
        Undefined: the agent cannot be asked, has no second answers, or no grid allows a change.
    """
    ask = trial.asking
    if not trial.twice:
        raise Undefined("it needs a second answer to each step, or the probabilities of actions: answers: 2 in a study")
    originals = {
        first_step.world.world.id: first_step
        for answers in trial.answers
        if (first_step := _first_step(answers)) is not None
    }
    versions = [
        (original_id, thing, world)
        for original_id in originals
        for thing, world in _versions(originals[original_id], trial.seed)
    ]
    if not versions:
        raise Undefined("counterfactual needs fully visible grids in which the goal or the key can lie elsewhere")
    version_answers = {answers.world.world.id: answers for answers in ask([world for _, _, world in versions])}
    sums = evidence([*originals.values(), *version_answers.values()], trial.hypotheses, len(trial.bank))
    verdict = judge(sums, seed=trial.seed, level=trial.level)
    exact = any((answers.first % 1 > 0).any() for answers in trial.answers)
    sides = {
        original_id: Asked(cluster=answers.cluster, tags={}, side=_side(answers, exact))
        for original_id, answers in originals.items()
    }
    for original_id, thing, world in versions:
        if (answers := version_answers.get(world.world.id)) is not None:
            sides[original_id].changed.setdefault(thing, []).append(_side(answers, exact))
    moved = dependences({"the agent": [state for state in sides.values() if state.changed]}, level=trial.level)
    claim = of_verdict("counterfactual", verdict, trial)
    depends = {dependence.moved: {"answer": dependence.answer, "share": dependence.share.value} for dependence in moved}
    return claim.model_copy(
        update={
            "sentence": f"with the {' or the '.join(depends)} moved: {claim.sentence}. {sentence(moved)}",
            "details": {**claim.details, "depends": depends},
        }
    )


def _first_step(answers: Answers) -> Answers | None:
    """Return the answers to the first step in a grid that shows its agent and a reachable goal, or None."""
    world = answers.world.world
    first = np.flatnonzero(answers.time == 0)[:1]
    if not isinstance(world, GridWorld) or world.grid.start is None or not len(first) or not best_actions(world.grid):
        return None
    step = answers.only(first)
    return replace(step, episode=np.zeros(1, dtype=np.int64), last=step.state, written=None, left_out=0)


def _versions(answers: Answers, seed: int) -> Iterator[tuple[Thing, FiniteWorld]]:
    """Yield each moved object and the changed world, which keeps the cluster of the original."""
    for thing in _THINGS:
        rng = stream(seed, "moved", answers.world.world.id, thing)
        for grid in changed_grids(answers.world.grid, thing, CHANGES, rng=rng):
            yield thing, finite_world(GridWorld(grid=grid, cluster=answers.cluster), answers.world.horizon)


def _side(answers: Answers, exact: bool) -> WorldTurns:
    """Convert both answers of one step to `WorldTurns`; ``exact`` says whether the answers are move probabilities."""
    assert answers.second is not None
    return WorldTurns(counts=answers.first[0] + answers.second[0], policy=answers.first[0] if exact else None)
