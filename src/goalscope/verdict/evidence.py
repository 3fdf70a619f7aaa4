"""Evidence for claims: estimates from one arm of an evaluation, each with its interval over grids or maps."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope._ground.words import listed, short
from goalscope.goals import RunDirectedness, directedness
from goalscope.goals.baselines import blind_policy, frequencies, moves_by_episode
from goalscope.goals.finding import MOST_INVALID, Answer
from goalscope.goals.hypotheses.states import states_of
from goalscope.goals.reading import default_hypotheses
from goalscope.measures.exploration import score_episode
from goalscope.measures.table import StepTable
from goalscope.report.ledger import split_probing
from goalscope.runs.episode_columns import read_episode_columns, read_heads
from goalscope.runs.store import Store
from goalscope.stats import Estimate, estimate_mean, estimate_pooled, paired_difference
from goalscope.stats.compare import sensitivity
from goalscope.stats.rows import Rows, Tag
from goalscope.verdict.arms import Arm
from goalscope.verdict.subject import Subject
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.dynamics import phases
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.planning.mdp import TabularMDP
from goalscope.worlds.planning.process import grid_process, random_walk_success
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskState
from goalscope.worlds.world import World

SHARE = (0.0, 1.0)
Array = npt.NDArray[np.float64]

SAME_MEAN: Final = 0.1
"""Difference of mean shares below which two conditions count as equal."""

SAME_GRID: Final = 0.2
"""Root mean square difference on single grids below which two conditions count as equal."""

FEWEST_ALIKE: Final = 30
"""Minimum number of grids for calling two conditions equal; with fewer, one grid in ten that differs may be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What decides a claim about a model: usually an estimate whose interval is compared with a threshold.

    Attributes:
        estimate: the estimate that is compared with the threshold, or None.
        why: reason for "untestable", with or without an estimate.
        p: p value of the claim after Holm's correction if it is one of several tests.
        side: the answer if this estimate alone does not determine it, for example because several intervals decide
            together.
        detail: text shown beside the number, or "".
        names: the place that the answer names, or "".
        by_size: the estimates by grid size if they differ, otherwise "".
        subject: the hypothesis that the estimate is about, as a noun phrase, or "".
        threshold, threshold_rule, quantity: the threshold, how it is determined, and the quantity, if they differ from
            those of the rule.
    """

    estimate: Estimate | None = None
    why: str = ""
    p: float | None = None
    side: Answer | None = None
    detail: str = ""
    names: str = ""
    by_size: str = ""
    subject: str = ""
    threshold: float | None = None
    threshold_rule: str = ""
    quantity: str = ""

    @classmethod
    def of(
        cls, estimate: Estimate, *, side: Answer | None = None, detail: str = "", names: str = "", by_size: str = ""
    ) -> "Evidence":
        """Return the evidence for a claim that an estimate decides. Without an interval, the claim is untestable.

        Args:
            estimate: the estimate that decides.
            side: the answer, if it does not follow from interval and threshold alone.
            detail, names, by_size: see the attributes of the class.
        """
        if not estimate.has_interval:
            return cls(why=estimate.note or "too few grids for an interval", detail=detail)
        if not all(map(math.isfinite, (estimate.value, estimate.low, estimate.high))):
            return cls(why="the estimate or its interval is infinite", detail=detail)
        return cls(estimate=estimate, side=side, detail=detail, names=names, by_size=by_size)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmRun:
    """The measured run of one arm (part of an evaluation, such as *grids*) with all its models.

    Attributes:
        store: the run, open for reading.
        rows: its rows (one value of one measure each) about behaviour.
        probed: its rows about probes of activations.
        changed: its rows about interventions on activations or reasoning.
        confidence: coverage, such as 0.95, of the intervals that decide the claims of the evaluation.
        part: ids of the episodes that belong to the arm; None for all of the run.
    """

    store: Store = field(repr=False)
    rows: Rows = field(repr=False)
    probed: Rows = field(repr=False)
    changed: Rows = field(repr=False)
    confidence: float
    part: frozenset[str] | None = None

    @classmethod
    def of(
        cls, store: Store, confidence: float, belongs: Callable[[Mapping[str, Tag]], bool] | None = None
    ) -> "ArmRun":
        """Read a measured run.

        Args:
            store: the run, open for reading.
            confidence: coverage of the intervals that decide claims.
            belongs: for recorded logs: function that decides from the tags of an episode (named facts about it and its
                world) whether the episode belongs to the arm (part of an evaluation); None if all do.
        """
        all_rows = store.rows()
        changed = all_rows.known("intervention")
        rows, probed = split_probing(all_rows.where(~changed))
        inside: dict[str, Any] = {"probed": probed, "changed": all_rows.where(changed)}
        if belongs is None:
            return cls(store=store, rows=rows, **inside, confidence=confidence)
        episodes = rows.where(rows.measure == "success")
        part = frozenset(row.episode_id for row in episodes if belongs(row.tags))
        arm_rows = rows.where(rows.among("episode_id", part))
        return cls(store=store, rows=arm_rows, **inside, confidence=confidence, part=part)

    def has_agent(self, agent: str, varies: str = "") -> bool:
        """Return whether the run has episodes of an agent.

        Args:
            agent: name of the agent.
            varies: name of a tag, such as "transform", that must take at least two values among these episodes; "" for
                no such condition.
        """
        of_agent = self.rows.tags.get("agent", np.array([], dtype=object)) == agent
        if not varies or not np.any(of_agent):
            return bool(np.any(of_agent))
        return varies in self.rows.tags and len(set(self.rows.tags[varies][of_agent].tolist())) > 1

    @cached_property
    def table(self) -> StepTable:
        """The episodes of the arm (part of an evaluation) as a table with one row per step.

        For recorded logs it has all episodes of the arm. For a run it has the episodes in grids, or all others if none
        is in a grid.
        """
        if self.part is not None:
            return StepTable.from_episodes(self.store.episodes(sorted(self.part)))
        columns, other_columns = read_episode_columns(self.store, None)
        if other_columns and not columns.episode_id:
            return StepTable.from_episodes(self.store.episodes())
        return StepTable.from_columns(columns)

    def worlds_of(self, episodes: Iterable[str]) -> list[World]:
        """Return the world of each episode, in the order of the given ids of episodes."""
        return [self.store.world(self._world_of[episode_id]) for episode_id in episodes]

    @cached_property
    def _world_of(self) -> dict[str, str]:
        return {head.id: head.world_id for head in read_heads(self.store)}

    @cached_property
    def goals(self) -> RunDirectedness:
        """MEG (maximum-entropy goal-directedness) of all agents towards each default hypothesis.

        It includes contrasts between hypotheses, and is measured at first use, in all worlds together and by size if
        there are several sizes.
        """
        sizes = self.table.tags.get("size", np.array([], dtype=object))
        by = ("size",) if len(set(sizes.tolist())) > 1 else ()
        return directedness(
            states_of(self.table, by=by),
            default_hypotheses(self.table.worlds),
            by=by,
            confidence=self.confidence,
            pairs="all",
            state_blind=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArmData:
    """The data of one model in one arm (part of an evaluation), from which the claims about it are decided.

    Attributes:
        run: the measured run of the arm.
        agent: name of the model.
        rows: the results about its behaviour, one row for each value of a measure.
        other_arms: the data of the same model in the other arms, by name.
        given: whether the user chose these worlds instead of the usual ones.
    """

    run: ArmRun
    agent: str
    rows: Rows = field(repr=False)
    other_arms: Mapping[str, "ArmData"] = field(default_factory=dict, repr=False)
    given: bool = False

    @classmethod
    def of(cls, run: ArmRun, agent: str, names: Collection[str] = ()) -> "ArmData":
        """Return the data of one agent in a run.

        Args:
            run: the measured run.
            agent: name of the agent.
            names: its names in this run if it acts under several, such as one per variant of the prompt.
        """
        return cls(run=run, agent=agent, rows=run.rows.where(run.rows.among("agent", names or [agent])))

    @property
    def confidence(self) -> float:
        """Coverage of the intervals that decide claims, such as 0.96."""
        return self.run.confidence

    @property
    def sizes(self) -> tuple[int, ...]:
        """The different side lengths of the grids that the model played, in order; empty for worlds without a size."""
        tags = self.rows.tags.get("size", np.array([], dtype=object)).tolist()
        return tuple(sorted({size for size in tags if isinstance(size, int)}))

    def among(self, measure: str, **tags: Tag) -> Rows:
        """Return the results of one measure, restricted by tags.

        Args:
            measure: name of the measure.
            tags: name of a tag (a named fact about an episode, such as its size) -> the value that it must have.

        Returns:
            The rows, one value each; no rows if nothing of this kind was measured.
        """
        stored_tags = {name: value for name, value in tags.items() if name in self.rows.tags}
        if len(stored_tags) < len(tags):
            return self.rows.where(np.zeros(len(self.rows), dtype=bool))
        return self.rows.select(measure=measure, **stored_tags)

    def mean(self, rows: Rows, values: npt.NDArray[np.float64] | None = None) -> Estimate:
        """Estimate the mean over grids of a share, with its interval.

        Args:
            rows: one value per episode, with its grid.
            values: values to use in place of those of the rows, in the same order.
        """
        value = rows.value if values is None else values
        return estimate_mean(value, rows.cluster, unit="share", bounds=SHARE, confidence=self.confidence)

    def difference(self, first: Rows, second: Rows, confidence: float | None = None) -> Estimate:
        """Estimate the difference of two shares, paired by grid, with its interval.

        Args:
            first, second: values of both sides; the estimate is the first minus the second.
            confidence: coverage of the interval; by default that of deciding intervals.
        """
        columns = (first.value, first.cluster, second.value, second.cluster)
        level = self.confidence if confidence is None else confidence
        return paired_difference(*columns, unit="share", bounds=SHARE, confidence=level).difference

    @property
    def goal_noun(self) -> str:
        """How sentences name the goal: by the noun phrase of the author of the worlds, or "the goal" if they differ."""
        nouns = {world.goal_noun for world in self.run.table.worlds}
        return nouns.pop() if len(nouns) == 1 else "the goal"

    @property
    def speechless(self) -> bool:
        """Whether more than half of the model's turns contain no action, so that no claim about its goals is
        possible.
        """
        invalid = self.among("invalid turns")
        return len(invalid) > 0 and self.mean(invalid).value > MOST_INVALID

    def share(self, measure: str, *, complement: bool = False, **tags: Tag) -> Evidence:
        """Estimate the mean over grids of a measure that is a share.

        Args:
            measure: name of the measure.
            complement: estimate 1 minus the share instead.
            tags: name of a tag (a named fact about an episode) -> the value that it must have.

        Returns:
            The evidence; untestable if the run has no such values.
        """
        rows = self.among(measure, **tags)
        if not len(rows):
            return Evidence(why=f"the run has no values of {measure}")
        return Evidence.of(self.mean(rows, 1 - rows.value if complement else rows.value))

    def share_in_largest(self, measure: str) -> Evidence:
        """Estimate the mean of a share over the largest grids; if the shares differ clearly between sizes, all are
        listed.

        The evidence is untestable if all grids have the same size.

        Args:
            measure: name of the measure.
        """
        sizes = self.sizes
        if len(sizes) < 2:
            which = f"all grids have size {sizes[0]}" if sizes else "the grids have no size"
            return Evidence(
                why=f"{which}, so none of them are the largest: evaluate in several sizes, as in --sizes 7,11"
            )
        evidence_by_size = {size: self.share(measure, size=size) for size in sizes}
        estimates = {size: evidence.estimate for size, evidence in evidence_by_size.items()}
        shares = {size: estimate for size, estimate in estimates.items() if estimate is not None}
        differ = max((share.low for share in shares.values()), default=0.0) > min(
            (share.high for share in shares.values()), default=1.0
        )
        by_size = listed([f"{short(share.value, 'share')} at size {size}" for size, share in shares.items()])
        return replace(evidence_by_size[sizes[-1]], by_size=by_size if differ else "")

    def above_chance(self, stage: str = "arrived", **tags: Tag) -> Evidence:
        """Estimate how often episodes reach a stage, minus how often this would happen by chance in the same worlds.

        Chance is the better of two agents that ignore what they see: one takes all offered actions equally often, the
        other takes them as often as this agent.

        Args:
            stage: a key of `STAGES`: "arrived" (at the goal), "key held" or "door open".
            tags: name of a tag (a named fact about an episode) -> the value that it must have.
        """
        rows = self.among("success", **tags)
        if not len(rows):
            return Evidence(why="the run has no such episodes")
        return self.above(self.mean(rows, self.ended(rows, stage)), *self.chances(rows, stage))

    def above(self, success: Estimate, chance: float, blind: float = 0.0) -> Evidence:
        """Return the evidence on a success rate above chance.

        Chance levels are known exactly, so that subtracting the larger one only shifts the interval.

        Args:
            success: the share of successful episodes.
            chance: share by chance for an agent that takes all actions equally often.
            blind: share by chance for one with the agent's move frequencies; 0 if unknown.
        """
        detail = f"agent {success.value:.2f}, random agent {chance:.2f}"
        detail += f", random with the agent's move frequencies {blind:.2f}" if blind else ""
        return Evidence.of(success.moved(by=max(chance, blind)), detail=detail)

    def ended(self, rows: Rows, stage: str) -> npt.NDArray[np.float64]:
        """Return for each episode whether it had reached a stage at its end, as 1 or 0.

        Args:
            rows: rows of the measure "success", one per episode.
            stage: a key of `STAGES`: "arrived" (at the goal), "key held" or "door open".
        """
        if stage == "arrived":
            return rows.value
        table = self.run.table
        phase = dict(zip(table.episode_id.tolist(), table.final[:, 2].tolist(), strict=True))
        return np.array([float(phase[episode] >= STAGES[stage]) for episode in rows.episode_id.tolist()])

    def chances(self, rows: Rows, stage: str = "arrived") -> tuple[float, float]:
        """Compute exactly how often agents that ignore what they see reach a stage in the same worlds.

        Both probabilities are averaged over the episodes of each grid and then over grids, like the share from which
        they are subtracted.

        Args:
            rows: rows of the measure "success", one per episode.
            stage: a key of `STAGES`: "arrived" (at the goal), "key held" or "door open".

        Returns:
            The probability for an agent that takes all actions equally often, and for one with this agent's move
            frequencies.
        """
        table, at = self.run.table, STAGES[stage]
        number = {episode_id: index for index, episode_id in enumerate(table.episode_id.tolist())}
        episodes = [number[episode_id] for episode_id in rows.episode_id.tolist()]
        shares = frequencies(table.once(moves_by_episode)[episodes], table.cluster[episodes].tolist())
        tasks = [(int(table.world[e]), int(table.horizon[e]), str(table.cluster[e])) for e in episodes]
        chances = {
            task: (
                outcomes(table.worlds[task[0]], task[1])[at],
                outcomes(table.worlds[task[0]], task[1], shares[task[2]])[at],
            )
            for task in set(tasks)
        }
        chance, blind = (self.mean(rows, np.array([chances[task][side] for task in tasks])).value for side in (0, 1))
        return chance, blind

    def less_control(self, measure: str, kind: str) -> Evidence:
        """Estimate a measure in worlds of a kind minus the same measure in their matched controls, paired by grid.

        A matched control is the same world without the factor of interest, such as the same grid without its key.

        Args:
            measure: name of the measure.
            kind: kind of worlds.
        """
        rows, controls = (self.among(measure, kind=kind, control=control) for control in (False, True))
        if not len(rows) or not len(controls):
            return Evidence(why=f"the run has no {kind} worlds with matched controls")
        return Evidence.of(self.difference(rows, controls))

    def same_under(self, tag: str, base: str, measure: str) -> Evidence:
        """Decide whether a measure is the same when the worlds are changed, such as mirrored; return the largest
        difference.

        Two conditions decide together, one on means over grids and one on single grids. Yes: every mean differs by less
        than `SAME_MEAN`, by its interval over at least `FEWEST_ALIKE` grids; and if grids were played twice under both
        values, the root mean square of the true differences on single grids lies below `SAME_GRID`. No: one of these
        quantities lies above its limit, after Bonferroni's correction for the number of values.

        Args:
            tag: name of the tag that says how a world was changed, such as "transform".
            base: value of this tag in unchanged worlds, with which all other values are compared.
            measure: name of the measure.
        """
        everything = self.rows.select(measure=measure)
        everything = everything.where(~np.isnan(everything.value))
        values = [base if value is None else str(value) for value in everything.tags.get(tag, [None] * len(everything))]
        names, named = [name for name in dict.fromkeys(values) if name != base], np.array(values, dtype=object)
        original = everything.where(named == base)
        if not len(original) or not names:
            return Evidence(why=f"the run has no grids with two values of {tag}")
        strict = 1 - (1 - self.confidence) / len(names)
        means, singles, outside, inside = {}, {}, [], True
        for name in names:
            changed = everything.where(named == name)
            mean, corrected = self.difference(original, changed), self.difference(original, changed, strict)
            if not mean.has_interval:
                return Evidence(why="too few grids for an interval")
            means[name] = mean
            inside &= max(-mean.low, mean.high) < SAME_MEAN and mean.clusters >= FEWEST_ALIKE
            if corrected.low > SAME_MEAN or corrected.high < -SAME_MEAN:
                outside.append(name)
            single, corrected_single = (
                self._on_single_grids(original, changed, significance) for significance in (None, strict)
            )
            if single is not None and corrected_single is not None:
                singles[name] = single.value
                inside &= single.high < SAME_GRID**2
                outside += [name] if corrected_single.low > SAME_GRID**2 and name not in outside else []
        name = max(
            outside or names, key=lambda significance: (abs(means[significance].value), singles.get(significance, 0.0))
        )
        side: Answer = "no" if outside else "yes" if inside else "undecided"
        detail = f"largest for {name}"
        if singles:
            detail += f"; on single grids up to {math.sqrt(max(0.0, *singles.values())):.2f} (root mean square)"
        rule = TEXTS("page/alike", most=f"{SAME_MEAN:g}", grid=f"{SAME_GRID:g}", fewest=FEWEST_ALIKE)
        return replace(Evidence.of(means[name], side=side, detail=detail), threshold_rule=rule)

    def _on_single_grids(self, first: Rows, second: Rows, confidence: float | None) -> Estimate | None:
        """Return the mean squared true difference on single grids, or None if no grid was played twice under both
        values.

        The estimate of the square is unbiased, see `goalscope.stats.compare`.
        """
        columns = (first.value, first.cluster, second.value, second.cluster)
        result = sensitivity(
            *columns,
            unit="share",
            bounds=SHARE,
            confidence=self.confidence if confidence is None else confidence,
            rng=stream(0, "differences on single grids"),
            draws=1,  # the p value of the exchange test is not asked for
        ).square
        return result if result.has_interval else None

    def not_wasted(self) -> Evidence:
        """Estimate the share of actions under fog that waste nothing.

        Wasted are redundant backtracking, and moves into a known dead end or again into the same wall.
        """
        wasted: dict[str, float] = {}
        rows = None
        for measure in ("redundant backtracking", "moves into known dead ends", "repeated wall bumps"):
            rows = self.among(measure)
            for episode, value in zip(rows.episode_id.tolist(), rows.value.tolist(), strict=True):
                wasted[episode] = wasted.get(episode, 0.0) + value
        if rows is None or not len(rows):
            return Evidence(why="the run has no worlds with fog")
        # A step may be both; then the sum says too much, never too little.
        value = np.array([1 - min(1.0, wasted[episode]) for episode in rows.episode_id.tolist()])
        return Evidence.of(self.mean(rows, value))


def data_by_arm(arms: Iterable[Arm], subject: Subject, runs: Mapping[tuple[str, str], ArmRun]) -> dict[str, ArmData]:
    """Return the data of one model in each arm (part of an evaluation) that it played.

    Args:
        arms: the arms.
        subject: the model.
        runs: (arm, name of a model) -> the measured run.

    Returns:
        Name of the arm -> data, from which the data in the other arms can be reached as ``other_arms``.
    """
    by_arm = {
        arm.name: replace(
            ArmData.of(runs[arm.name, subject.name], subject.name, arm.names(subject) if subject.logs is None else ()),
            given=arm.trajectories is not None,
        )
        for arm in arms
        if (arm.name, subject.name) in runs
    }
    return {name: replace(data, other_arms=by_arm) for name, data in by_arm.items()}


# Success by chance: the exact results of two agents that ignore what they see. One takes each offered action equally
# often. The other takes each action as often as the agent under test did in other worlds
# (`goalscope.goals.baselines`). Both are propagated to the end of an episode:
# m_{t+1}(s') = sum over s, a of m_t(s) pi(a | s) P(s' | s, a), where finished episodes stay where they are.

STAGES: Final = {"arrived": 0, "key held": 1, "door open": 2}
"""Events that an episode may contain: the agent reached the goal, picked up the key, or opened the door."""


def outcomes(world: World, horizon: int, shares: Array | None = None) -> Array:
    """Compute exactly how often an agent that ignores what it sees reaches each of the three `STAGES` in an episode.

    Args:
        world: a grid or an environment; an environment has no key and no door.
        horizon: maximum number of actions of an episode.
        shares: ``[A]`` frequencies of the agent's actions; None for equal frequencies.

    Returns:
        ``[3]`` probabilities: at the goal, key held, door open.
    """
    if "environment" in world.offers:
        table = world.believed.table
        mdp = table.mdp(np.zeros(len(table.states)), horizon)
        offered = table.offered | np.asarray(table.done)[:, None]  # an episode that is over stays under any action
        last = _last_states(mdp, np.asarray(table.start, dtype=np.float64), horizon, shares, offered)
        return np.array([float(last @ np.asarray(table.goal, dtype=np.float64)), 0.0, 0.0])
    return _in_grid(world.grid, horizon, None if shares is None else tuple(shares.tolist()))


@lru_cache(maxsize=16384)
def _in_grid(grid: Grid, horizon: int, shares: tuple[float, ...] | None) -> Array:
    process = grid_process(grid)
    frequencies = None if shares is None else np.array(shares)
    last = _last_states(process.base, process.start, horizon, frequencies).reshape(phases(grid), *grid.walls.shape)
    arrived = float(last[:, grid.goal[0], grid.goal[1]].sum()) if grid.goal is not None else 0.0
    return np.array([arrived, float(last[1:].sum()), float(last[2:].sum())])


def _last_states(
    mdp: TabularMDP, start: Array, horizon: int, shares: Array | None, offered: npt.NDArray[np.bool_] | None = None
) -> Array:
    """Return the probability of each of S states after ``horizon`` actions, ``[S]``."""
    frequencies = np.full(mdp.actions, 1 / mdp.actions) if shares is None else shares
    policy, mass = blind_policy(frequencies, offered, mdp.states, mdp.actions), start
    for _ in range(horizon):
        mass = mdp.flow(mass[:, None] * policy)
    return mass


# Task worlds

WALKS: Final = 20
"""Number of random walks per map, the reference for the errors of an agent."""

SEPARATES: Final = 0.2
"""Minimum error of random walkers on maps that can tell little waste from random walking."""


def made_moves(data: ArmData) -> Evidence:
    """Estimate the share of an agent's actions on task maps that are possible moves.

    A possible move has a direction and leads to an existing cell.
    """
    invalid, steps = data.among("invalid actions"), data.among("steps")
    if not len(steps):
        return Evidence(why="the run has no episodes of task worlds")
    moved = steps.value - invalid.value
    estimate = estimate_pooled(
        moved, steps.value, steps.cluster, unit="share", bounds=SHARE, confidence=data.confidence
    )
    return Evidence.of(estimate)


def above_walker(data: ArmData) -> Evidence:
    """Estimate an agent's success on task maps minus the exact success of a random walker on the same maps."""
    rows = data.among("success")
    if not task_maps(data, rows):
        return Evidence(why="the run has no episodes of task worlds")
    try:
        return data.above(data.mean(rows), walker_success(data))
    except ValueError as error:  # a map too large for an exact chance
        return Evidence(why=str(error))


def walker_success(data: ArmData) -> float:
    """Return the exact probability that a random walker solves the task maps of an agent's episodes.

    It is averaged over episodes, then over maps.

    Raises:
        ValueError: a map is too large for an exact computation.
    """
    rows = data.among("success")
    return data.mean(rows, np.array([random_walk_success(task_map) for task_map in task_maps(data, rows)])).value


def wastes_little(data: ArmData, kind: str) -> Evidence:
    """Estimate how often an agent makes no error in steps on task maps that call for exploration, or for exploitation.

    The share is averaged over episodes, then over maps. The claim is untestable if random walkers on the same maps make
    few errors too, since a small error then shows nothing.

    Args:
        data: the agent's data.
        kind: "exploration" or "exploitation".
    """
    rows = data.among(f"{kind} error")
    defined = rows.where(~np.isnan(rows.value))
    if not len(defined):
        return Evidence(why=f"none of its steps called for {kind}")
    maps = list(dict.fromkeys(task_maps(data, rows)))
    walked = [error for task_map in maps for error in walker_errors(task_map, kind)]
    efficient = data.mean(rows, 1 - rows.value)
    walker = float(np.mean(walked)) if walked else math.nan
    detail = f"error {1 - efficient.value:.2f}, of random walkers {walker:.2f}"
    if math.isnan(walker):
        return Evidence(why=f"no step of random walkers called for {kind}, so its error cannot be compared")
    if walker < SEPARATES:
        return Evidence(
            why=f"random walkers waste little on these maps as well, so wasting little shows nothing ({detail})"
        )
    return Evidence.of(efficient, detail=detail)


def task_maps(data: ArmData, rows: Rows) -> list[TaskMap]:
    """Return the task map of each of some episodes; episodes in worlds of other kinds are left out.

    Args:
        data: the agent's data.
        rows: rows of results that name the episodes.
    """
    worlds = data.run.worlds_of(rows.episode_id.tolist())
    return [world.task_map for world in worlds if "tasks" in world.offers]


@lru_cache(maxsize=4096)
def walker_errors(task_map: TaskMap, kind: str) -> tuple[float, ...]:
    """Return the mean error of each of `WALKS` simulated random walkers on a task map.

    Args:
        task_map: the map.
        kind: "exploration" or "exploitation": the steps whose errors count. Walkers without such a step are left out.
    """
    errors = []
    for number in range(WALKS):
        rng, state = stream(0, "random walkers", task_map.id, number), TaskState(task_map)
        actions: list[Action] = []
        while state.ending is None:
            available = task_map.available(state.board.cell(state.position))
            actions.append(available[int(rng.integers(len(available)))])
            state.move(actions[-1])
        error = getattr(score_episode(task_map, actions).summary, f"{kind}_error")
        if error is not None:
            errors.append(float(error))
    return tuple(errors)
