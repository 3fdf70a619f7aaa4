"""Measure how strongly agents are directed at hypotheses: MEG with one rationality per agent and cell of worlds.

For each agent, cell and hypothesis we compute ``sup over beta of mean over worlds of beta u_w - W_w(beta)``, where u_w
is the mean utility of the agent's episodes in world w, in steps. Suprema of single worlds are never averaged, because
each is >= 0 even for a random agent. A world in which no policy changes the utility within the horizon carries no
information about a hypothesis: it is left out and counted.

An agent that pursues h reaches an intermediate step k of it first, such as the key before a door, so MEG towards k is
also evidence for h. As a rival of h, k therefore means "k, then anything", and only the decisions after the first visit
to k separate the two. Their value is

    sum over these decisions of log(A pi_beta(a | t, s))    nats, beta the rationality that fits h over all decisions

where A is the number of offered actions and ``pi_beta`` the soft-optimal policy for h. Its mean is at most 0 for an
agent that acts at random after k; for an agent that pursues h with rationality beta, `expected_after` computes it
exactly. In deterministic worlds the same sum over all decisions is the MEG towards h.

Source: MacDermott et al. (2024), definition 3.2, for one episode too; goalscope (after a step).
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final, Literal, get_args

import numpy as np

from goalscope.goals.baselines import Invalid, Utility, blind_visits, frequencies
from goalscope.goals.curves import (
    METHOD,
    TOP,
    CurveBank,
    Digest,
    interval,
    not_below_random,
    p_value,
    random_p,
    with_random,
)
from goalscope.goals.hypotheses.definition import (
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    Undefined,
    reached_before,
    steps_in,
)
from goalscope.goals.hypotheses.separability import tells_apart
from goalscope.goals.hypotheses.states import States
from goalscope.goals.meg import RationalityCurve, meg_known
from goalscope.goals.results import (
    EXACT_NOTE,
    FEW,
    LEAST_BOUND,
    NO_ACTION_NOTE,
    RANDOM,
    GoalContrast,
    GoalEstimate,
    RunDirectedness,
    joined_notes,
    one_family,
)
from goalscope.measures.table import CONDITIONS, PROVENANCE
from goalscope.stats import DIFFERENCES, LESS
from goalscope.stats.estimate import natural_order
from goalscope.stats.intervals import check_confidence
from goalscope.stats.rows import Rows, Tag, column_of
from goalscope.worlds.planning import TabularMDP

Pairs = Literal["first", "all"]
"""Which hypotheses are compared: the first one with each of the others, or all pairs."""
TOWARDS: Final = "towards"
"""Tag of MEG rows that names the hypothesis."""
_NOTHING: Final = "no policy changes the utility: 0 by definition"
_BEYOND: Final = "mean return at or beyond what is attainable in expectation, counted as the end of it"
_FOG: Final = "under fog the class of policies sees the whole maze, the agent does not"
WorldKey = tuple[str, str, int]
"""Cluster, world id and horizon; worlds are summed in this order."""
_UNDEFINED: Final[dict[str, Any]] = dict.fromkeys(("difference", "low", "high", "p_value"), math.nan)


def soft_gains(world: FiniteWorld, process: TabularMDP, beta: float) -> tuple[Array, Array]:
    """Compute the soft-optimal policy for a goal, and how much better it predicts each action than random choice.

    Args:
        world: the world.
        process: its decision process with the utility of the goal.
        beta: rationality (inverse temperature) in nats per unit of utility, clipped to [-`TOP`, `TOP`].

    Returns:
        The policy, and the log ratio of its probability of each action to that of uniform choice, in nats. Both are
        ``[n, S, A]``: decisions by states by actions.
    """
    policy = RationalityCurve(process).policy(float(np.clip(beta, -TOP, TOP)))
    even = world.even
    gains = np.log(np.maximum(policy, 1e-300) / np.where(even > 0, even, 1.0))
    return policy, np.where(even > 0, gains, 0.0)


def shown_after(states: States, step: Mask, gains: Array) -> Array:
    """Return how well a soft-optimal policy predicts each episode after an intermediate step of its goal.

    An intermediate step is an event that every agent must reach on the way to the goal, such as holding the key.

    Args:
        states: E episodes. Where a step stores the policy that its action was drawn from, the expected gain is used.
        step: ``[S]`` mask of the states in which the intermediate step is reached.
        gains: log ratio of each action's probability to that of random choice, from `soft_gains`.

    Returns:
        ``[E]`` sum of the gains of the later actions of each episode, in nats; 0 if it never reached the intermediate
        step.
    """
    after = reached_before(states.episode, step[states.state]) & (states.action >= 0)
    value = gains[states.time, states.state, np.maximum(states.action, 0)]
    if states.policy is not None:
        exact = ~np.isnan(states.policy[:, 0])
        value[exact] = np.einsum("na,na->n", states.policy[exact], gains[states.time[exact], states.state[exact]])
    return np.asarray(
        np.bincount(states.episode, weights=np.where(after, value, 0.0), minlength=len(states)), dtype=float
    )


def expected_after(world: FiniteWorld, step: Mask, policy: Array, gains: Array) -> float:
    """Compute the expected gain, in nats, of a soft-optimal agent after an intermediate step of its goal.

    An intermediate step is an event that every agent must reach on the way to the goal, such as holding the key. The
    gain is the sum of `gains` over the later actions; its expectation is exact, by forward propagation.

    Args:
        world: the world.
        step: ``[S]`` mask of the states in which the intermediate step is reached.
        policy, gains: ``[n, S, A]`` (decisions by states by actions), from `soft_gains`.
    """
    before = np.where(step, 0.0, world.process.start)
    after, total = world.process.start - before, 0.0
    for time in range(world.horizon):
        total += float(((after[:, None] * policy[time]) * gains[time]).sum())
        came = world.process.base.flow(before[:, None] * policy[time])
        after = world.process.base.flow(after[:, None] * policy[time]) + np.where(step, came, 0.0)
        before = np.where(step, 0.0, came)
    return total


def goal_measure(hypothesis: str) -> str:
    """Return the name of the measure of MEG towards a hypothesis, as in "MEG towards the goal"."""
    return f"MEG towards the {hypothesis}"


def directedness(
    states: Iterable[States],
    hypotheses: Mapping[str, Hypothesis],
    *,
    by: Sequence[str] = (),
    utility: Utility = "steps",
    invalid: Invalid = "no-op",
    seed: int = 0,
    confidence: float = 0.95,
    pairs: Pairs = "first",
    state_blind: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RunDirectedness:
    """Measure the MEG (maximum-entropy goal-directedness) of each agent towards each hypothesis, in nats.

    Args:
        states: the recorded episodes, see `states_of`.
        hypotheses: name -> place, event or utility of states. A hypothesis is left out in worlds where it is undefined.
        by: tags (named facts about episodes), such as "size". The worlds with each value of a tag are also measured as
            a group of their own. `states_of` must have been called with the same tags.
        utility: "steps" sums the utility over the states of all decisions, so arriving earlier is better; "arrival"
            counts only the state at the end.
        invalid: how a turn without an action counts: "no-op" as standing still, "action" as one additional action that
            every agent has.
        seed: root seed of resamples and of simulated random agents.
        confidence: nominal coverage of the intervals.
        pairs: which hypotheses are compared, see `Pairs`.
        state_blind: also measure the state-blind baseline: an agent that draws its moves with the same frequencies,
            whatever it sees.
        progress: called with (done, total) pieces of work.

    Returns:
        The estimates (MEG with interval, for each agent, group of worlds and hypothesis), the differences between pairs
        of hypotheses, and one row of results for each world.

    Raises:
        ValueError: there are no episodes, no episode has one of the tags, or no hypothesis is defined in any world.
    """
    for name, value, kinds in (("utility", utility, Utility), ("invalid", invalid, Invalid), ("pairs", pairs, Pairs)):
        if value not in get_args(kinds):
            raise ValueError(f"{name} must be one of {', '.join(get_args(kinds))}, got {value!r}")
    if not hypotheses:
        raise ValueError("hypotheses must contain at least one hypothesis, got none")
    all_states = list(states)
    measured = MeasuredLines(
        all_states, by=by, kind=utility, invalid=invalid, seed=seed, confidence=confidence, progress=progress
    )
    measured.measure(
        {name: [HypothesisLine(hypothesis, all_states)] for name, hypothesis in hypotheses.items()},
        pairs=pairs,
        state_blind=state_blind,
    )
    return measured.found(list(hypotheses))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorldSample:
    """The complete episodes of one agent in one world, each with its utility under one hypothesis.

    Attributes:
        entries: the agent's complete episodes there, usually as one `States` object.
        key: identifies the rationality curve of this world and hypothesis in the `CurveBank`, a cache of such curves.
        values: ``[m]`` utility of each of the m episodes.
    """

    entries: tuple[States, ...]
    key: tuple[int, Digest]
    values: Array

    @property
    def world(self) -> FiniteWorld:
        """The world in which the episodes were played, with its decision process and horizon."""
        return self.entries[0].world

    @property
    def moves(self) -> Array:
        """``[m, A]`` (episodes by actions) number of times that each action was taken in each episode."""
        return np.concatenate([entry.moves() for entry in self.entries])

    @property
    def exact(self) -> bool:
        """Whether every action was stored with its policy, so that expectations can replace drawn actions."""
        return all(bool(entry.exact.all()) for entry in self.entries)

    @property
    def acted(self) -> bool:
        """Whether the agent took an action in any turn of these episodes."""
        return any(bool(entry.acted.any()) for entry in self.entries)


@dataclass(frozen=True, slots=True, eq=False)
class HypothesisLine:
    """One hypothesis, together with the episodes on which MEG towards it is measured.

    Attributes:
        hypothesis: the hypothesis.
        states: the episodes of all agents. If beliefs are measured, they are placed on the maps that the agents believe
            in.
        everywhere: also keep worlds in which no policy changes the utility. Needed for several random draws of one
            hypothesis, which must be compared in the same worlds.
    """

    hypothesis: Hypothesis
    states: Sequence[States]
    everywhere: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AgentSample:
    """The episodes of one agent, world by world, with their utilities under one hypothesis.

    Attributes:
        worlds: `WorldKey` (cluster, world id, horizon) -> the agent's episodes in this world, in the order of the keys.
        out_of_reach: number of worlds left out because no policy changes the utility within the horizon.
    """

    worlds: Mapping[WorldKey, WorldSample]
    out_of_reach: int = 0

    def on(self, keys: Sequence[WorldKey]) -> "AgentSample":
        """Return the sample with the given worlds only; every key must be a world of the sample."""
        return AgentSample({key: self.worlds[key] for key in keys}, self.out_of_reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """One agent's MEG towards one draw of a hypothesis, or the mean over its draws."""

    figures: Mapping[str, float]  # fields of `GoalEstimate` that are averaged over draws, by name
    beta: float  # the fitted rationality, also where the estimate has none
    resampled: Array  # [B] signed MEG in each resample of the grids; empty with fewer than two
    shares: Array  # [B] the same as a share of what an optimal agent shows in that resample
    null: Array  # [R] signed MEG of random agents
    parts: Array  # [U] part of each world at the common rationality; their mean over grids is the signed MEG
    grids: int
    ends: tuple[float, float, str, str] | None = None  # interval, method and note of a single world


_Fitted = Mapping[str, tuple[GoalEstimate, _Fit]]


class MeasuredLines:
    """Measures MEG (maximum-entropy goal-directedness, in nats) towards hypotheses, separately in each group of worlds.

    Call `measure` with one or more sets of hypotheses, then `found` for all estimates, contrasts and rows of results. A
    group of worlds (called a cell) has the same conditions and the same values of the tags in `by`.

    Args:
        states: all episodes.
        by: names of tags (named facts about episodes, such as "size") whose values define the groups.
        kind, invalid, seed, confidence, progress: as in `directedness`, where ``kind`` is called ``utility``.

    Raises:
        ValueError: there are no episodes, or no episode has one of the tags.
    """

    def __init__(
        self,
        states: Sequence[States],
        *,
        by: Sequence[str] = (),
        kind: Utility = "steps",
        invalid: Invalid = "no-op",
        seed: int = 0,
        confidence: float = 0.95,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        check_confidence(confidence)
        if not states:
            raise ValueError("measuring goals needs at least one episode, got none")
        _check_tags(states, by)
        self.states, self.by, self.confidence = states, tuple(by), confidence
        self.bank = CurveBank(kind=kind, invalid=invalid, seed=seed, progress=progress)
        self.estimates: list[GoalEstimate] = []
        self.contrasts: list[GoalContrast] = []
        self.rows: list[Rows] = []
        self._steps: dict[tuple[int, int, int], bool] = {}  # goal, step and world -> whether it is one there
        self._apart: dict[tuple[int, int, int], bool] = {}  # two hypotheses and a world -> whether it tells them apart
        self._hypotheses: dict[str, Hypothesis] = {}
        self._drawn = set[str]()  # names of hypotheses that are drawn, or measured on other maps
        # The caches below use the identity of hypotheses and states as keys, so these objects must stay alive.
        self._kept: list[object] = [states]
        self._keys: dict[tuple[int, int], tuple[int, Digest] | None] = {}  # hypothesis and world -> key of its curve
        self._complete: dict[int, States] = {}
        self._values: dict[tuple[int, int], Array] = {}  # hypothesis and states -> utilities of complete episodes

    def measure(
        self,
        lines: Mapping[str, Sequence[HypothesisLine]],
        *,
        pairs: Pairs = "first",
        state_blind: bool = False,
        less: Mapping[str, str] | None = None,
    ) -> None:
        """Measure MEG (maximum-entropy goal-directedness) towards hypotheses, separately in each group of worlds.

        Nothing is returned; call `found` afterwards for the results.

        Args:
            lines: name of a hypothesis -> the hypothesis with its episodes (`HypothesisLine`), usually one entry. With
                several entries, such as random draws of one hypothesis, all figures are means over them, in the worlds
                that all have.
            pairs: which hypotheses are compared with each other, see `Pairs`.
            state_blind: for each hypothesis with one entry, also measure the state-blind baseline: an agent that draws
                its moves with the same frequencies as the tested one, whatever it sees.
            less: name of a hypothesis in ``lines`` -> its short name. The MEG towards each of these hypotheses is
                subtracted, world by world, from the MEG towards the first hypothesis in ``lines``; the differences
                become rows "MEG towards the FIRST less SHORT NAME".

        Raises:
            ValueError: no hypothesis is defined in any world.
        """
        self._kept.append(lines)
        keys = [
            self._key(line.hypothesis, entry.world)
            for draws in lines.values()
            for line in draws
            for entry in line.states
        ]
        if not any(keys):
            raise ValueError(
                f"none of the hypotheses {', '.join(lines)} is defined in any of the worlds: name others, "
                "see docs/hypotheses.md"
            )
        names = list(lines)
        compared = [pair for pair in combinations(names, 2) if pairs == "all" or pair[0] == names[0]]
        self._hypotheses |= {name: draws[0].hypothesis for name, draws in lines.items()}
        self._drawn = {name for name, draws in lines.items() if len(draws) > 1 or draws[0].everywhere}
        members = {name: [_by_agent(line.states) for line in draws] for name, draws in lines.items()}
        for cell, of_cell in _cells_of(self.states, self.by):
            self.bank.forget()
            contained = {self._place(entry) for entry in of_cell}
            for agent in sorted({entry.agent for entry in of_cell}):
                samples: dict[str, list[AgentSample]] = {}
                for name, draws in lines.items():
                    chosen = [
                        [entry for entry in by_agent.get(agent, ()) if self._place(entry) in contained]
                        for by_agent in members[name]
                    ]
                    drawn = [self._sample(line, part) for line, part in zip(draws, chosen, strict=True)]
                    if common := on_common(drawn):
                        samples[name] = common
                self._measure_agent(agent, cell, samples, compared, state_blind, less or {})

    def _measure_agent(
        self,
        agent: str,
        cell: Mapping[str, Tag],
        samples: Mapping[str, list[AgentSample]],
        pairs: Sequence[tuple[str, str]],
        state_blind: bool,
        less: Mapping[str, str],
    ) -> None:
        fitted = {name: self._fit(agent, cell, name, part) for name, part in samples.items()}
        if state_blind:
            fitted |= {
                name: (self._with_state_blind(estimate, samples[name][0]), fit)
                for name, (estimate, fit) in fitted.items()
                if len(samples[name]) == 1
            }
        self.estimates += [estimate for estimate, _ in fitted.values()]
        if any(name in self.by and name not in CONDITIONS for name in cell):
            return  # contrasts and rows are for cells of conditions only
        for name, (_, fit) in fitted.items():
            self._add_rows(name, samples[name][0], fit.parts)
        for first, second in pairs:
            if first in fitted and second in fitted:
                self._add_contrast(first, second, samples, fitted, less)

    def found(self, names: Sequence[str], *, believed: bool = False) -> RunDirectedness:
        """Return everything that `measure` has measured so far: estimates, differences between hypotheses, and rows by
        world.

        Args:
            names: names of the hypotheses, to be recorded in the settings of the result.
            believed: whether hypotheses were measured on maps that the agents believe in; recorded likewise.
        """
        return RunDirectedness(
            estimates=tuple(self.estimates),
            contrasts=one_family(self.contrasts),
            rows=Rows.concatenate(self.rows),
            settings={
                "hypotheses": list(names),
                "by": list(self.by),
                "utility": self.bank.kind,
                "invalid": self.bank.invalid,
                "confidence": self.confidence,
                "seed": self.bank.seed,
                "believed": believed,
            },
            episodes=sum(len(entry) for entry in self.states),
            left_out=sum(int((~entry.complete).sum()) for entry in self.states),
            failed=sum(entry.failed for entry in self.states),
        )

    def _place(self, entry: States) -> tuple[object, ...]:
        """Return the agent, the world and the conditions of an entry; together they identify the entry."""
        tags = (entry.tags.get(name) for name in (*CONDITIONS, *self.by))
        return entry.agent, entry.world.world.id, entry.world.horizon, *tags

    def _key(self, hypothesis: Hypothesis, world: FiniteWorld) -> tuple[int, Digest] | None:
        """Return the key of a hypothesis's curve in a world; None if it has no utility of states there."""
        place = id(hypothesis), id(world)
        if place not in self._keys:
            self._keys[place] = None
            try:
                utility = hypothesis.utility(world)
            except Undefined:
                return None
            if utility.ndim == 1:
                self._keys[place] = self.bank.add(world, utility)
        return self._keys[place]

    def _sample(self, line: HypothesisLine, states: Sequence[States]) -> AgentSample:
        """Return an agent's episodes under a hypothesis; worlds where the hypothesis is undefined are left out."""
        by_world: dict[WorldKey, list[States]] = {}
        for entry in states:
            if entry.complete.any() and self._key(line.hypothesis, entry.world) is not None:
                by_world.setdefault((entry.cluster, entry.world.world.id, entry.world.horizon), []).append(entry)
        worlds = {key: self._world_sample(line.hypothesis, by_world[key]) for key in sorted(by_world)}
        if line.everywhere:
            return AgentSample(worlds)
        within = [key for key, world in worlds.items() if self._is_within(world.key)]
        if not within:  # the value is then 0 by definition, and a note says so
            return AgentSample(worlds)
        return AgentSample({key: worlds[key] for key in within}, len(worlds) - len(within))

    def _is_within(self, key: tuple[int, Digest]) -> bool:
        """Return whether any policy changes the utility within the horizon."""
        low, high = self.bank.curve(key).ends[0, :2]
        return bool(high - low > 0)

    def _world_sample(self, hypothesis: Hypothesis, states: Sequence[States]) -> WorldSample:
        key = self._key(hypothesis, states[0].world)
        assert key is not None  # undefined ones were left out
        values = list[Array]()
        for entry in states:
            if id(entry) not in self._complete:
                self._complete[id(entry)] = entry.chosen(entry.complete)
            place = id(hypothesis), id(entry)
            if place not in self._values:
                arrival = self.bank.kind == "arrival"
                self._values[place] = self._complete[id(entry)].utilities(self.bank.utility(key), arrival=arrival)
            values.append(self._values[place])
        entries = tuple(self._complete[id(entry)] for entry in states)
        return WorldSample(entries=entries, key=key, values=np.concatenate(values))

    def _fit(
        self, agent: str, cell: Mapping[str, Tag], name: str, samples: Sequence[AgentSample]
    ) -> tuple[GoalEstimate, _Fit]:
        """Return the estimate of a hypothesis and its fit, averaged over its draws."""
        # Each resample of grids, and each random agent, is averaged over the draws: the interval is that of the mean,
        # and draws are not observations. The rationality is their (lower) median.
        draws = [self._fit_draw(sample, shared=len(samples) == 1) for sample in samples]
        sample, fit, count = samples[0], draws[0], len(draws)
        if count > 1:
            fit = replace(
                fit,
                figures={key: statistics.fmean(draw.figures[key] for draw in draws) for key in fit.figures},
                beta=statistics.median_low(draw.beta for draw in draws),
                ends=None,
                **{
                    key: np.mean([getattr(draw, key) for draw in draws], axis=0)
                    for key in ("resampled", "shares", "null", "parts")
                },
            )
        worlds = list(sample.worlds.values())
        ends, notes = fit.ends, []
        if fit.figures["bound"] == fit.figures["bound_lowest"] == 0.0:  # e.g. an unreachable goal
            ends = math.nan, math.nan, "none", _NOTHING
        if count > 1:
            std = statistics.stdev(draw.figures["signed"] for draw in draws)
            notes.append(f"mean of {count} draws, their standard deviation {std:.2g} nats")
        elif math.isinf(fit.beta):
            by_luck = any(world.world.process.lucky for world in worlds)
            notes.append(_BEYOND if by_luck else "every episode at the end of what is attainable")
        notes += [EXACT_NOTE] if all(world.exact for world in worlds) else []
        notes += [_FOG] if any(world.world.world.fog_radius is not None for world in worlds) else []
        acts = any(world.acted for world in worlds)
        estimate = self._estimate(
            replace(fit, ends=ends),
            acts,
            notes,
            agent=agent,
            cell=cell,
            hypothesis=name,
            n=sum(len(world.values) for world in worlds),
            worlds=len(worlds),
            out_of_reach=sample.out_of_reach,
        )
        return estimate, fit if acts else replace(fit, parts=np.full_like(fit.parts, np.nan))

    def _estimate(self, fit: _Fit, acts: bool, notes: Sequence[str], **fields: Any) -> GoalEstimate:
        """Build an estimate with its interval, its comparison with random agents, and its notes.

        Args:
            fit: what was fitted.
            acts: whether the agent took any action; otherwise it has no MEG.
            notes: further notes.
            fields: the remaining fields of `GoalEstimate`.
        """
        signed, ends = fit.figures["signed"], fit.ends
        if ends is None:
            few_grids_note = next((text for minimum, text in FEW if fit.grids < minimum), "")
            method = METHOD if fit.grids > 1 else "none"
            ends = *interval(fit.resampled, fit.grids, self.confidence), method, few_grids_note
        low, high, method, note = ends
        if not math.isnan(low):
            low, high = with_random((low, high), signed, fit.null, self.confidence)
            note = joined_notes(note, RANDOM) if (low, high) != ends[:2] else note
        results: dict[str, Any] = {"beta": fit.beta, "low": min(low, signed), "high": max(high, signed)}
        if (bound := fit.figures["bound"]) >= LEAST_BOUND:
            share = signed / bound
            shares = interval(fit.shares, fit.grids, self.confidence) if fit.grids > 1 else (low / bound, high / bound)
            if not math.isnan(shares[0]):
                shares = with_random(shares, share, fit.null / bound, self.confidence)
            results |= {"share_low": min(shares[0], share), "share_high": max(shares[1], share)}
        results["null_p"] = random_p(signed, fit.null)
        results, note = {**fit.figures, **results}, joined_notes(note, *notes)
        if not acts:
            undefined = ("signed", "low", "high", "beta", "cross_fitted", "null_p", "share_low", "share_high")
            results, method, note = results | dict.fromkeys(undefined, math.nan), "none", NO_ACTION_NOTE
        return GoalEstimate(
            **results,
            null=float(np.abs(fit.null).mean()),
            null_high=float(np.quantile(np.abs(fit.null), 0.95)),
            grids=fit.grids,
            confidence=self.confidence,
            method=method,
            note=note,
            **fields,
        )

    def _fit_draw(self, sample: AgentSample, *, shared: bool) -> _Fit:
        worlds = list(sample.worlds.values())
        keys, clusters = [world.key for world in worlds], [cluster for cluster, *_ in sample.worlds]
        ensemble = self.bank.ensemble(keys, clusters, shared=shared)
        weights, whole = ensemble.weights, ensemble.whole
        means = np.array([world.values.mean() for world in worlds])
        counts = np.array([len(world.values) for world in worlds])
        relative, fraction = means - ensemble.uniform, weights.whole[0]
        signed, beta = (float(part[0]) for part in whole.fit(weights.whole @ relative))
        ends = None
        if len(worlds) == 1:
            signed, beta, ends = self._one_world(worlds[0])
        exact = all(world.exact for world in worlds)
        null = self.bank.null(keys, counts.tolist(), fraction, ensemble.uniform, exact=exact)
        terms = np.concatenate([part.terms(beta, relative[at]) for at, part in self.bank.curves(keys)])
        uniform = float(fraction @ ensemble.uniform)
        lucky = any(world.world.process.lucky for world in worlds)
        figures = {
            "signed": signed,
            "bound": float(whole.ends[0, 3]),
            "bound_lowest": float(whole.ends[0, 2]),
            "cross_fitted": ensemble.cross_fitted(relative, counts, lucky=lucky),
            "utility": float(fraction @ means),
            "uniform_utility": uniform,
            "highest_utility": float(whole.ends[0, 1]) + uniform,
        }
        resampled = ensemble.resampled.fit(weights.resampled @ relative)[0]
        bounds = ensemble.resampled.ends[:, 3]
        return _Fit(
            figures=figures,
            beta=beta,
            resampled=resampled,
            shares=resampled / np.where(bounds > 0, bounds, 1.0),
            null=whole.fit(null)[0],
            parts=terms if signed >= 0 else -terms,
            grids=weights.grids,
            ends=ends,
        )

    def _with_state_blind(self, estimate: GoalEstimate, sample: AgentSample) -> GoalEstimate:
        """Add the agent's state-blind baseline in the same worlds to an estimate."""
        worlds, clusters = list(sample.worlds.values()), [cluster for cluster, *_ in sample.worlds]
        of_episode = [name for name, world in zip(clusters, worlds, strict=True) for _ in world.values]
        most = max(world.moves.shape[1] for world in worlds)
        moves = [np.pad(world.moves, ((0, 0), (0, most - world.moves.shape[1]))) for world in worlds]
        shares = frequencies(np.concatenate(moves), of_episode)
        keys = [world.key for world in worlds]
        utilities = [
            blind_visits(world.world, shares[cluster], self.bank.kind) @ self.bank.utility(world.key)
            for world, cluster in zip(worlds, clusters, strict=True)
        ]
        ensemble = self.bank.ensemble(keys, clusters)
        relative = ensemble.weights.whole @ (np.array(utilities) - ensemble.uniform)
        return replace(estimate, state_blind=float(ensemble.whole.fit(relative)[0][0]))

    def _one_world(self, world: WorldSample) -> tuple[float, float, tuple[float, float, str, str]]:
        """Return the results for one world; their interval is that of the mean return, mapped through W*."""
        curve, returns = RationalityCurve(self.bank.process(world.key)), world.values
        inside = np.clip(returns, *curve.episode_range)
        beyond = np.abs(returns - inside) > curve.rounding  # on a believed map, through whose walls the agent may walk
        meg = meg_known(curve, returns=np.where(beyond, inside, returns), confidence=self.confidence)
        note = joined_notes("one world: the interval speaks of this world alone", meg.note)
        return meg.signed, meg.beta, (meg.signed_low, meg.signed_high, meg.method, note)

    def _add_rows(self, name: str, sample: AgentSample, parts: Array, **extra_tags: Tag) -> None:
        """Add a row for each world, with the tags of the first episode there."""
        states = [world.entries[0] for world in sample.worlds.values()]
        tags = dict.fromkeys(tag for entry in states for tag in entry.tags if tag not in PROVENANCE)
        self.rows.append(
            Rows.from_columns(
                measure=goal_measure(name),
                unit="nats",
                value=parts,
                cluster=[cluster for cluster, *_ in sample.worlds],
                tags={tag: column_of([entry.tags.get(tag) for entry in states]) for tag in tags}
                | {TOWARDS: name, **extra_tags},
            )
        )

    def _add_contrast(
        self,
        first: str,
        second: str,
        samples: Mapping[str, list[AgentSample]],
        fitted: _Fitted,
        less: Mapping[str, str],
    ) -> None:
        common = on_common([*samples[first], *samples[second]])
        if not common or any(math.isnan(fitted[name][0].signed) for name in (first, second)):
            return
        if short_name := less.get(second):
            (_, left), (_, right) = self._sides(first, second, common, samples, fitted)
            self._add_rows(f"{first}{LESS}{short_name}", common[0], left.parts - right.parts, **{DIFFERENCES: 1})
        # Hypotheses that are drawn, or measured on other maps, count as separated, because draws differ by chance.
        separating, equal = list(common[0].worlds), list[WorldKey]()
        if not {first, second} & self._drawn:
            separating, equal = self._divided(first, second, common)
        parts = {"grids": separating, "common": list(common[0].worlds), "same": equal}
        counts = {name: len({cluster for cluster, *_ in keys}) for name, keys in parts.items()}
        fields: dict[str, Any] = {"agent": fitted[first][0].agent, "cell": fitted[first][0].cell, **counts}
        if not separating:
            self.contrasts.append(GoalContrast(first=first, second=second, **_UNDEFINED, **fields))
            return
        on_apart = [sample.on(separating) for sample in common]
        (first_estimate, left), (second_estimate, right) = self._sides(first, second, on_apart, samples, fitted)
        value, difference = first_estimate.signed - second_estimate.signed, left.resampled - right.resampled
        null = left.null - right.null  # the same walks on both sides
        low, high = interval(difference, first_estimate.grids, self.confidence)
        if first_estimate.method == second_estimate.method == "none":
            low = high = math.nan
        if not math.isnan(low):
            low, high = with_random((low, high), value, null, self.confidence)
            low, high = (low, high) if low < high else (math.nan, math.nan)  # all worlds have the same difference
        p = not_below_random(p_value(difference, value, first_estimate.grids), value, null)
        contrast = GoalContrast(first=first, second=second, difference=value, low=low, high=high, p_value=p, **fields)
        for goal, step, sample in ((first, second, on_apart[0]), (second, first, on_apart[-1])):
            if len(on_apart) == 2 and self._is_step(step, goal, sample):
                contrast = self._after_step(contrast, goal, step, sample, fitted[goal][1].beta)
        self.contrasts.append(contrast)

    def _is_step(self, step: str, goal: str, sample: AgentSample) -> bool:
        """Return whether an event is an intermediate step on every path to a goal, in all worlds of a sample."""
        sides = self._hypotheses[goal], self._hypotheses[step]
        if self.bank.kind != "steps" or self.bank.invalid != "no-op" or {goal, step} & self._drawn:
            return False
        return all(self._step_in(world.world, *sides) for world in sample.worlds.values())

    def _step_in(self, world: FiniteWorld, goal: Hypothesis, step: Hypothesis) -> bool:
        place = id(goal), id(step), id(world)
        if place not in self._steps:
            try:
                reachable = step.kind == "event" and goal.kind in ("place", "event")
                masks = {number: hypothesis.where(world) for number, hypothesis in enumerate((goal, step)) if reachable}
                self._steps[place] = reachable and (0, 1) in steps_in(world, masks, {1: masks[1]})
            except Undefined:
                self._steps[place] = False
        return self._steps[place]

    def _after_step(
        self, contrast: GoalContrast, goal: str, step: str, sample: AgentSample, beta: float
    ) -> GoalContrast:
        """Add to a contrast the agent's gain towards the goal in the moves that follow the intermediate step."""
        observed, expected = list[float](), list[float]()
        for world in sample.worlds.values():
            policy, gains = soft_gains(world.world, self.bank.process(world.key), beta)
            step_states = self._hypotheses[step].where(world.world)
            observed.append(
                float(
                    np.mean(np.concatenate([shown_after(episodes, step_states, gains) for episodes in world.entries]))
                )
            )
            expected.append(expected_after(world.world, step_states, policy, gains))
        keys, clusters = [world.key for world in sample.worlds.values()], [cluster for cluster, *_ in sample.worlds]
        weights = self.bank.ensemble(keys, clusters).weights
        low, high = interval(weights.resampled @ np.array(observed), weights.grids, self.confidence)
        value = float(weights.whole[0] @ np.array(observed))
        return replace(
            contrast,
            step=step,
            after=value,
            after_low=min(low, value),
            after_high=max(high, value),
            after_expected=float(weights.whole[0] @ np.array(expected)),
        )

    def _divided(self, first: str, second: str, common: Sequence[AgentSample]) -> tuple[list[WorldKey], list[WorldKey]]:
        """Return the worlds that separate two hypotheses, and the worlds in which they have the same states."""
        separating, equal = list[WorldKey](), list[WorldKey]()
        for place, world in common[0].worlds.items():
            keys = [sample.worlds[place].key for sample in common]
            if keys[0] == keys[1]:
                equal.append(place)
            elif all(map(self._is_within, keys)) and self._tells_apart(world.world, first, second):
                separating.append(place)
        return separating, equal

    def _tells_apart(self, world: FiniteWorld, first: str, second: str) -> bool:
        """Return whether a world separates two hypotheses whose utilities differ and can be changed there."""
        sides = self._hypotheses[first], self._hypotheses[second]
        place = id(sides[0]), id(sides[1]), id(world)
        if place not in self._apart:
            try:
                self._apart[place] = tells_apart(world, *sides)
            except Undefined:  # too large for policies by decision
                self._apart[place] = True
        return self._apart[place]

    def _sides(
        self,
        first: str,
        second: str,
        chosen: Sequence[AgentSample],
        samples: Mapping[str, list[AgentSample]],
        fitted: _Fitted,
    ) -> tuple[tuple[GoalEstimate, _Fit], tuple[GoalEstimate, _Fit]]:
        """Return the fits of two hypotheses on the same worlds; ``chosen`` holds the draws of both, in order."""
        agent, cell, count = fitted[first][0].agent, fitted[first][0].cell, len(samples[first])
        left, right = (
            fitted[name]
            if side[0].worlds.keys() == samples[name][0].worlds.keys()
            else self._fit(agent, cell, name, side)
            for name, side in ((first, chosen[:count]), (second, chosen[count:]))
        )
        return left, right


def on_common(samples: Sequence[AgentSample]) -> list[AgentSample]:
    """Restrict each sample to the worlds that all samples have; return an empty list if they have none in common."""
    common = [key for key in samples[0].worlds if all(key in other.worlds for other in samples)]
    return [sample.on(common) for sample in samples] if common else []


def _check_tags(states: Iterable[States], by: Sequence[str]) -> None:
    """Raise ValueError if no episode has one of the tags."""
    present = list(dict.fromkeys(name for entry in states for name in entry.tags))
    if absent := [name for name in by if name not in present]:
        names = ", ".join(name for name in present if name != "agent") or "none"
        raise ValueError(f"`by` must name tags of the episodes ({names}), got {', '.join(absent)}")


def _cells_of(states: Sequence[States], by: Sequence[str]) -> list[tuple[dict[str, Tag], list[States]]]:
    """Return the cells of worlds, each with its naming tags and its episodes.

    Episodes that lack a tag of ``by`` are in no cell of that tag.
    """
    conditions = [name for name in CONDITIONS if len({entry.tags.get(name) for entry in states}) > 1]
    result: dict[tuple[tuple[str, Tag], ...], list[States]] = {}
    for extra in (None, *by):
        names = conditions if extra is None or extra in conditions else [*conditions, extra]
        parts: dict[tuple[tuple[str, Tag], ...], list[States]] = {}
        for entry in states:
            if extra is None or entry.tags.get(extra) is not None:
                parts.setdefault(tuple((name, entry.tags.get(name)) for name in names), []).append(entry)
        for key in sorted(parts, key=lambda key: [natural_order(value) for _, value in key]):
            result.setdefault(key, parts[key])
    return [(dict(key), members) for key, members in result.items()]


def _by_agent(states: Sequence[States]) -> dict[str, list[States]]:
    result: dict[str, list[States]] = {}
    for entry in states:
        result.setdefault(entry.agent, []).append(entry)
    return result
