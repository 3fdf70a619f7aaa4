"""What a claim rests on: estimates of one arm of an evaluation, each with its interval over grids or maps."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from goalscope.environments.world import EnvironmentWorld
from goalscope.evaluation.arms import Arm
from goalscope.evaluation.claims import Answer
from goalscope.evaluation.subject import Subject
from goalscope.measures.goals import GoalFindings, measure_goals
from goalscope.measures.goals.settings import goal_settings
from goalscope.measures.table import StepTable
from goalscope.planning.policy import episode_outlook, uniform
from goalscope.report.ledger import split_probing
from goalscope.rows import Rows, Tag
from goalscope.runs.episode_columns import read_episode_columns, read_heads
from goalscope.runs.store import Store
from goalscope.stats import UNBOUNDED, Estimate, Family, estimate_mean, estimate_pooled, holm, paired_difference
from goalscope.worlds.grid import Grid
from goalscope.worlds.world import World

SHARE = (0.0, 1.0)
Side = Answer | Literal[""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The result that decides a claim.

    Attributes:
        estimate: the estimate that is compared with the threshold; None where there is none.
        why: reason of "cannot be told", without an estimate or despite one.
        p: p value of the claim after Holm's correction, where it is one of several tests.
        side: overrides the estimate's side of the threshold, where several intervals decide together.
        detail: text shown with the number, "" for none.
    """

    estimate: Estimate | None = None
    why: str = ""
    p: float | None = None
    side: Side = ""
    detail: str = ""

    @classmethod
    def of(cls, estimate: Estimate, *, side: Side = "", detail: str = "") -> "Evidence":
        """Return the evidence of an estimate; without an interval the claim cannot be told."""
        if not estimate.has_interval:
            return cls(why=estimate.note or "too few grids for an interval", detail=detail)
        if not all(map(math.isfinite, (estimate.value, estimate.low, estimate.high))):
            return cls(why="the number or its interval has no end", detail=detail)
        return cls(estimate=estimate, side=side, detail=detail)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmRun:
    """The measured run of one arm: all its models.

    Attributes:
        store: the run, open for reading.
        rows: its rows about behaviour.
        probed: its rows about activations.
        changed: its rows about effects of changed activations or changed reasoning.
        confidence: coverage of the intervals that decide.
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
        """Read a measured run; ``belongs`` maps the tags of a recorded episode to whether it belongs to the arm."""
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
        """Return whether the run has episodes of an agent, with two or more values of the tag ``varies`` if given."""
        of_agent = self.rows.tags.get("agent", np.array([], dtype=object)) == agent
        if not varies or not np.any(of_agent):
            return bool(np.any(of_agent))
        return varies in self.rows.tags and len(set(self.rows.tags[varies][of_agent].tolist())) > 1

    @cached_property
    def table(self) -> StepTable:
        """The steps in grids; for a run without grids, the steps in its other worlds."""
        if self.part is not None:
            return StepTable.from_episodes(self.store.episodes(sorted(self.part)))
        columns, others = read_episode_columns(self.store, None)
        if others and not columns.episode_id:
            return StepTable.from_episodes(self.store.episodes())
        return StepTable.from_columns(columns)

    def worlds_of(self, episodes: Iterable[str]) -> list[World]:
        """Return the worlds of some episodes, by their ids."""
        return [self.store.world(self._world_of[episode_id]) for episode_id in episodes]

    @cached_property
    def _world_of(self) -> dict[str, str]:
        return {head.id: head.world_id for head in read_heads(self.store)}

    @cached_property
    def goals(self) -> GoalFindings:
        """MEG towards every hypothesis that has a meaning here."""
        return measure_goals(self.table, goal_settings(self.table.worlds, confidence=self.confidence))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArmData:
    """Input of the rules: one model in one arm.

    Attributes:
        run: the measured run of the arm.
        agent: name of the model.
        rows: the rows about its behaviour.
        other_arms: the data of the same model in the other arms, by their names.
    """

    run: ArmRun
    agent: str
    rows: Rows = field(repr=False)
    other_arms: Mapping[str, "ArmData"] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, run: ArmRun, agent: str, names: Collection[str] = ()) -> "ArmData":
        """Return the data of one agent in a run; ``names``: its names there, if it acts under several."""
        return cls(run=run, agent=agent, rows=run.rows.where(run.rows.among("agent", names or [agent])))

    @property
    def confidence(self) -> float:
        """Coverage of the intervals that decide."""
        return self.run.confidence

    def among(self, measure: str, **tags: Tag) -> Rows:
        """Return the rows of a measure under some tags; none where nothing was measured there."""
        stored_tags = {name: value for name, value in tags.items() if name in self.rows.tags}
        if len(stored_tags) < len(tags):
            return self.rows.where(np.zeros(len(self.rows), dtype=bool))
        return self.rows.select(measure=measure, **stored_tags)

    def mean(self, rows: Rows, values: npt.NDArray[np.float64] | None = None) -> Estimate:
        """Return the mean of shares over grids: of the values of some rows, or of ``values`` in their place."""
        value = rows.value if values is None else values
        return estimate_mean(value, rows.cluster, unit="share", bounds=SHARE, confidence=self.confidence)

    def difference(self, first: Rows, second: Rows, confidence: float | None = None) -> Estimate:
        """Return the difference of shares, paired by grid."""
        columns = (first.value, first.cluster, second.value, second.cluster)
        level = self.confidence if confidence is None else confidence
        return paired_difference(*columns, unit="share", bounds=SHARE, confidence=level).difference

    def share(self, measure: str, *, complement: bool = False, **tags: Tag) -> Evidence:
        """Return the mean of a share over grids; ``complement``: of one minus it."""
        rows = self.among(measure, **tags)
        if not len(rows):
            return Evidence(why=f"the run has no values of {measure}")
        return Evidence.of(self.mean(rows, 1 - rows.value if complement else rows.value))

    def share_in_largest(self, measure: str) -> Evidence:
        """Return the mean of a share over the largest grids."""
        sizes = [size for size in self.rows.tags.get("size", ()) if isinstance(size, int)]
        return self.share(measure, size=max(sizes)) if sizes else Evidence(why="the grids have no size")

    def above_chance(self, **tags: Tag) -> Evidence:
        """Return success less the exact success of an agent that takes offered actions at random in the same worlds."""
        rows = self.among("success", **tags)
        if not len(rows):
            return Evidence(why="the run has no episodes there")
        return self.above(rows, self.chance(rows))

    def above(self, rows: Rows, chance: float) -> Evidence:
        """Return the mean of rows of success less an exact chance."""
        success = self.mean(rows)
        # The chance of a random agent on these very grids is exact: it moves the interval and does not widen it.
        detail = f"success {success.value:.2f}, at random {chance:.2f}"
        return Evidence.of(success.moved(by=chance), detail=detail)

    def chance(self, rows: Rows) -> float:
        """Return the exact chance of a random agent to reach the goal in the episodes of some rows.

        Mean over the episodes of each grid, then over grids, as for the success that it is subtracted from.
        """
        table = self.run.table
        played = zip(table.episode_id.tolist(), table.world.tolist(), table.horizon.tolist(), strict=True)
        tasks = {episode_id: (world, horizon) for episode_id, world, horizon in played}
        episode_tasks = [tasks[episode_id] for episode_id in rows.episode_id.tolist()]
        probabilities = {task: _random_chance(table.worlds[task[0]], task[1]) for task in set(episode_tasks)}
        return self.mean(rows, np.array([probabilities[task] for task in episode_tasks])).value

    def less_control(self, measure: str, kind: str) -> Evidence:
        """Return a measure on worlds of a kind less the same on their matched controls, paired by grid."""
        rows, controls = (self.among(measure, kind=kind, control=control) for control in (False, True))
        if not len(rows) or not len(controls):
            return Evidence(why=f"the run has no {kind} worlds with their controls")
        return Evidence.of(self.difference(rows, controls))

    def directed(self, hypothesis: str = "goal") -> Evidence:
        """Return signed MEG towards a hypothesis as a share of what an optimal agent shows."""
        estimates = [
            goal
            for goal in self.run.goals.estimates
            if goal.agent == self.agent and goal.hypothesis == hypothesis and not goal.cell
        ]
        if not estimates or math.isnan(estimates[0].signed):
            return Evidence(why=estimates[0].note if estimates else "the hypothesis has no meaning in these worlds")
        goal = estimates[0]
        if not goal.bound > 0:
            return Evidence(why="no policy changes what the hypothesis is worth here")
        ends = (number / goal.bound for number in (goal.signed, goal.low, goal.high))
        fields: dict[str, Any] = {
            "n": goal.n,
            "clusters": goal.grids,
            "method": goal.method,
            "confidence": goal.confidence,
        }
        estimate = Estimate.of_ends(*ends, unit="share", note=goal.note, **fields)
        return Evidence.of(estimate, detail=f"{goal.signed:.2f} of {goal.bound:.2f} nats")

    def towards(self) -> Evidence:
        """Return by how much MEG towards the goal exceeds that towards the strongest rival, Holm over all rivals."""
        contrasts = [
            contrast for contrast in self.run.goals.contrasts if contrast.agent == self.agent and not contrast.cell
        ]
        tested = [contrast for contrast in contrasts if not math.isnan(contrast.p_value)]
        if not tested:
            return Evidence(why="there is no rival hypothesis in these worlds, or no turn held an action")
        level = 1 - self.confidence
        family = Family(name="hypotheses", members=tuple(contrast.second for contrast in tested))
        tests = {
            test.name: test
            for test in holm({contrast.second: contrast.p_value for contrast in tested}, family, level=level)
        }
        below = [contrast for contrast in tested if tests[contrast.second].rejected and contrast.difference < 0]
        above = [contrast for contrast in tested if tests[contrast.second].rejected and contrast.difference > 0]
        rival = min(tested, key=lambda contrast: contrast.difference)
        side: Side = "no" if below else "yes" if len(above) == len(tested) else "not shown"
        same = rival.low == rival.high
        estimate = Estimate.of_ends(
            *(rival.difference, rival.low, rival.high),
            note=f"every resample of the worlds has the same difference to {rival.second}" if same else "",
            n=rival.grids,
            clusters=rival.grids,
            method="resampled grids, both rationalities fitted anew",
            unit="nats",
            confidence=self.confidence,
        )
        evidence = Evidence.of(estimate, side=side, detail=f"rival: {rival.second}")
        return replace(evidence, p=tests[rival.second].adjusted if evidence.estimate is not None else None)

    def same_under_transforms(self, measure: str, margin: float) -> Evidence:
        """Return the largest difference of a measure between original grids and their transforms, paired by grid.

        Yes: the intervals of all transforms lie inside the margin. No: one interval, after Bonferroni's correction for
        their number, lies wholly outside.
        """
        base = self.among(measure, transform="identity")
        names = [str(name) for name in dict.fromkeys(self.rows.tags.get("transform", ())) if name != "identity"]
        if not len(base) or not names:
            return Evidence(why="the run has no transformed grids")
        strict = 1 - (1 - self.confidence) / len(names)
        differences = {
            name: (self.difference(base, transformed), self.difference(base, transformed, strict))
            for name in names
            for transformed in [self.among(measure, transform=name)]
        }
        if not all(difference.has_interval for difference, _ in differences.values()):
            return Evidence(why="too few grids for an interval")
        inside = all(max(-difference.low, difference.high) < margin for difference, _ in differences.values())
        outside = [
            name
            for name, (_, strict_difference) in differences.items()
            if strict_difference.low > margin or strict_difference.high < -margin
        ]
        name = max(outside or differences, key=lambda each: abs(differences[each][0].value))
        side: Side = "no" if outside else "yes" if inside else "not shown"
        return Evidence.of(differences[name][0], side=side, detail=f"largest for {name}")

    def error_runs(self) -> Evidence:
        """Return the correlation of errors in consecutive turns of an episode: 0 for slips, high for lapses."""
        table = self.run.table
        decided = table.optimal.any(axis=1) & (table.agent == self.agent)[table.episode]
        wrong = (~table.is_optimal & decided).astype(np.float64)
        count = int(wrong.sum())
        if count < _FEWEST_ERRORS:
            return Evidence(why=f"it made {count} errors, too few to tell slips from lapses")
        mean = wrong[decided].mean()
        pairs = (table.episode[1:] == table.episode[:-1]) & decided[1:] & decided[:-1]
        first, second = (wrong[:-1] - mean)[pairs], (wrong[1:] - mean)[pairs]
        clusters = table.cluster[table.episode[1:]][pairs]
        correlation = estimate_pooled(
            first * second,
            np.full(len(first), mean * (1 - mean)),
            clusters,
            unit="correlation",
            bounds=UNBOUNDED,
            confidence=self.confidence,
        )
        # One grid's part may lie beyond what a correlation can be, and so may the value or an end.
        return Evidence.of(
            correlation.moved(bounds=(-1.0, 1.0)), detail=f"{count} errors in {int(decided.sum())} turns"
        )

    def not_wasted(self) -> Evidence:
        """Return the share of actions under fog that are no backtracking, dead end or bump known beforehand."""
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


_FEWEST_ERRORS = 20


@cache
def random_success(grid: Grid, horizon: int) -> float:
    """Return the exact chance of a uniformly random agent to reach the goal within a horizon."""
    return episode_outlook(grid, uniform(grid), horizon).success


def random_arrival(world: EnvironmentWorld, horizon: int) -> float:
    """Return the exact chance of an agent that takes each offered action equally often to reach the goal in time.

    ``m_{t+1} = sum_{s, a} m_t(s) P(s' | s, a) / |A(s)|``, where episodes that are over stay.

    Args:
        world: the environment.
        horizon: maximum number of actions of an episode.
    """
    table = world.believed.table
    mdp = table.mdp(np.zeros(len(table.states)), horizon)
    arrived = np.asarray(table.goal, dtype=np.float64)
    for _ in range(horizon):
        next_arrived = (table.uniform * mdp.expect(arrived)).sum(axis=1)
        arrived = np.where(table.done, table.goal, next_arrived)
    return float(arrived @ table.start)


def _random_chance(world: World, horizon: int) -> float:
    if isinstance(world, EnvironmentWorld):
        return random_arrival(world, horizon)
    return random_success(world.grid, horizon)


def data_by_arm(arms: Iterable[Arm], subject: Subject, runs: Mapping[tuple[str, str], ArmRun]) -> dict[str, ArmData]:
    """Return the data of a model by arm; each has the others as ``other_arms``."""
    by_arm = {
        arm.name: ArmData.of(
            runs[arm.name, subject.name], subject.name, arm.names(subject) if subject.logs is None else ()
        )
        for arm in arms
        if (arm.name, subject.name) in runs
    }
    return {name: replace(data, other_arms=by_arm) for name, data in by_arm.items()}
