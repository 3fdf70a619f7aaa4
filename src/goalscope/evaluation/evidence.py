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
from goalscope.runs.store import Store
from goalscope.runs.walks import read_heads, read_walks
from goalscope.stats import UNBOUNDED, Estimate, Family, estimate_mean, estimate_pooled, holm, paired_difference
from goalscope.worlds.grid import Grid
from goalscope.worlds.world import World

SHARE = (0.0, 1.0)
Side = Answer | Literal[""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What decides a claim.

    Attributes:
        estimate: the estimate that is held against the threshold; None where there is none.
        why: why it cannot be told, where there is none, or although there is one.
        p: p value of the claim after Holm's correction, where it is one of several tests.
        side: overrides the side of the threshold on which the estimate lies: several intervals decide together.
        detail: what is said beside the number, "" for nothing.
    """

    estimate: Estimate | None = None
    why: str = ""
    p: float | None = None
    side: Side = ""
    detail: str = ""

    @classmethod
    def of(cls, estimate: Estimate, *, side: Side = "", detail: str = "") -> "Evidence":
        """Return what an estimate shows; that it cannot be told, where it has no interval."""
        if not estimate.has_interval:
            return cls(why=estimate.note or "too few grids for an interval", detail=detail)
        return cls(estimate=estimate, side=side, detail=detail)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmRun:
    """The measured run of one arm: all its models.

    Attributes:
        store: the run, open for reading.
        rows: its rows about behaviour.
        probed: its rows about activations.
        changed: its rows about what followed from changed activations, or changed reasoning.
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
        """Read a measured run; ``belongs`` says of the tags of a recorded episode whether it belongs to the arm."""
        everything = store.rows()
        changed = everything.known("intervention")
        rows, probed = split_probing(everything.where(~changed))
        inside: dict[str, Any] = {"probed": probed, "changed": everything.where(changed)}
        if belongs is None:
            return cls(store=store, rows=rows, **inside, confidence=confidence)
        episodes = rows.where(rows.measure == "success")
        part = frozenset(row.episode_id for row in episodes if belongs(row.tags))
        mine = rows.where(rows.among("episode_id", part))
        return cls(store=store, rows=mine, **inside, confidence=confidence, part=part)

    def tells_of(self, agent: str, varies: str = "") -> bool:
        """Return whether it holds episodes of an agent, with two values or more of a tag where one is named."""
        mine = self.rows.tags.get("agent", np.array([], dtype=object)) == agent
        if not varies or not np.any(mine):
            return bool(np.any(mine))
        return varies in self.rows.tags and len(set(self.rows.tags[varies][mine].tolist())) > 1

    @cached_property
    def table(self) -> StepTable:
        """The steps in grids, of a run without grids those in its worlds."""
        if self.part is not None:
            return StepTable.from_episodes(self.store.episodes(sorted(self.part)))
        walks, others = read_walks(self.store, None)
        if others and not walks.episode_id:
            return StepTable.from_episodes(self.store.episodes())
        return StepTable.from_walks(walks)

    def worlds_of(self, episodes: Iterable[str]) -> list[World]:
        """Return the worlds of some episodes, by their ids."""
        return [self.store.world(self._world_of[one]) for one in episodes]

    @cached_property
    def _world_of(self) -> dict[str, str]:
        return {one.id: one.world_id for one in read_heads(self.store)}

    @cached_property
    def goals(self) -> GoalFindings:
        """MEG towards every hypothesis that has a meaning here."""
        return measure_goals(self.table, goal_settings(self.table.worlds, confidence=self.confidence))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArmData:
    """What the rules see of one model in one arm.

    Attributes:
        run: the measured run of the arm.
        agent: name of the model.
        rows: the rows about its behaviour.
        beside: what the same model did in the other arms, by their names.
    """

    run: ArmRun
    agent: str
    rows: Rows = field(repr=False)
    beside: Mapping[str, "ArmData"] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, run: ArmRun, agent: str, names: Collection[str] = ()) -> "ArmData":
        """Return what one agent did in a run; ``names``: what it is called there, where it acts under several names."""
        return cls(run=run, agent=agent, rows=run.rows.where(run.rows.among("agent", names or [agent])))

    @property
    def confidence(self) -> float:
        """Coverage of the intervals that decide."""
        return self.run.confidence

    def among(self, measure: str, **tags: Tag) -> Rows:
        """Return the rows of a measure under some tags; none where nothing was measured there."""
        known = {name: value for name, value in tags.items() if name in self.rows.tags}
        if len(known) < len(tags):
            return self.rows.where(np.zeros(len(self.rows), dtype=bool))
        return self.rows.select(measure=measure, **known)

    def mean(self, rows: Rows, values: npt.NDArray[np.float64] | None = None) -> Estimate:
        """Return the mean of shares over grids: of the values of some rows, or of others in their places."""
        value = rows.value if values is None else values
        return estimate_mean(value, rows.grid_id, unit="share", bounds=SHARE, confidence=self.confidence)

    def less(self, one: Rows, other: Rows, confidence: float | None = None) -> Estimate:
        """Return the difference of shares, paired by grid."""
        values = (one.value, one.grid_id, other.value, other.grid_id)
        level = self.confidence if confidence is None else confidence
        return paired_difference(*values, unit="share", bounds=SHARE, confidence=level).difference

    def share(self, measure: str, *, less: bool = False, **tags: Tag) -> Evidence:
        """Return the mean of a share over grids; ``less``: of one minus it."""
        rows = self.among(measure, **tags)
        if not len(rows):
            return Evidence(why=f"the run has no values of {measure}")
        return Evidence.of(self.mean(rows, 1 - rows.value if less else rows.value))

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
        found = self.mean(rows)
        # The chance of a random agent on these very grids is exact: it moves the interval and does not widen it.
        moved = {name: getattr(found, name) - chance for name in ("value", "low", "high")}
        return Evidence.of(replace(found, **moved), detail=f"success {found.value:.2f}, at random {chance:.2f}")

    def chance(self, rows: Rows) -> float:
        """Return the exact chance of a random agent to reach the goal in the episodes of some rows.

        The mean over the episodes of each grid, then over grids: as that of success, which it is taken from.
        """
        table = self.run.table
        played = zip(table.episode_id.tolist(), table.world.tolist(), table.horizon.tolist(), strict=True)
        met = {one: (world, horizon) for one, world, horizon in played}
        asked = [met[one] for one in rows.episode_id.tolist()]
        chances = {each: _random_chance(table.worlds[each[0]], each[1]) for each in set(asked)}
        return self.mean(rows, np.array([chances[each] for each in asked])).value

    def less_control(self, measure: str, kind: str) -> Evidence:
        """Return a measure on worlds of a kind less the same on their matched controls, paired by grid."""
        one, other = (self.among(measure, kind=kind, control=control) for control in (False, True))
        if not len(one) or not len(other):
            return Evidence(why=f"the run has no {kind} worlds with their controls")
        return Evidence.of(self.less(one, other))

    def directed(self, hypothesis: str = "goal") -> Evidence:
        """Return signed MEG towards a hypothesis as a share of what an optimal agent shows."""
        found = [
            one
            for one in self.run.goals.estimates
            if one.agent == self.agent and one.hypothesis == hypothesis and not one.cell
        ]
        if not found or math.isnan(found[0].signed):
            return Evidence(why=found[0].note if found else "the hypothesis has no meaning in these worlds")
        one = found[0]
        if not one.bound > 0:
            return Evidence(why="no policy changes what the hypothesis is worth here")
        value, low, high = (number / one.bound for number in (one.signed, one.low, one.high))
        about: dict[str, Any] = {"n": one.n, "clusters": one.grids, "method": one.method, "confidence": one.confidence}
        estimate = Estimate(value=value, low=low, high=high, unit="share", note=one.note, **about)
        return Evidence.of(estimate, detail=f"{one.signed:.2f} of {one.bound:.2f} nats")

    def towards(self) -> Evidence:
        """Return by how much MEG towards the goal exceeds that towards the strongest rival, Holm over all rivals."""
        mine = [one for one in self.run.goals.contrasts if one.agent == self.agent and not one.cell]
        found = [one for one in mine if not math.isnan(one.p_value)]
        if not found:
            return Evidence(why="there is no rival hypothesis in these worlds, or no turn held an action")
        level = 1 - self.confidence
        family = Family(name="hypotheses", members=tuple(one.second for one in found))
        tests = {one.name: one for one in holm({one.second: one.p_value for one in found}, family, level=level)}
        below = [one for one in found if tests[one.second].rejected and one.difference < 0]
        above = [one for one in found if tests[one.second].rejected and one.difference > 0]
        one = min(found, key=lambda each: each.difference)
        side: Side = "no" if below else "yes" if len(above) == len(found) else "not shown"
        estimate = Estimate(
            value=one.difference,
            low=one.low,
            high=one.high,
            n=one.grids,
            clusters=one.grids,
            method="resampled grids, both rationalities fitted anew",
            unit="nats",
            confidence=self.confidence,
        )
        return Evidence(estimate=estimate, p=tests[one.second].adjusted, side=side, detail=f"rival: {one.second}")

    def same_under_transforms(self, measure: str, margin: float) -> Evidence:
        """Return the largest difference of a measure between original grids and their transforms, paired by grid.

        Within the margin where the intervals of all transforms lie inside of it; outside where that of one, after
        Bonferroni's correction for their number, lies wholly beyond.
        """
        base = self.among(measure, transform="identity")
        names = [str(name) for name in dict.fromkeys(self.rows.tags.get("transform", ())) if name != "identity"]
        if not len(base) or not names:
            return Evidence(why="the run has no transformed grids")
        strict = 1 - (1 - self.confidence) / len(names)
        found = {
            name: (self.less(base, other), self.less(base, other, strict))
            for name in names
            for other in [self.among(measure, transform=name)]
        }
        if not all(one.has_interval for one, _ in found.values()):
            return Evidence(why="too few grids for an interval")
        inside = all(max(-one.low, one.high) < margin for one, _ in found.values())
        outside = [name for name, (_, one) in found.items() if one.low > margin or one.high < -margin]
        name = max(outside or found, key=lambda each: abs(found[each][0].value))
        side: Side = "no" if outside else "yes" if inside else "not shown"
        return Evidence.of(found[name][0], side=side, detail=f"largest for {name}")

    def error_runs(self) -> Evidence:
        """Return the correlation of errors in consecutive turns of an episode: 0 for slips, high for lapses."""
        table = self.run.table
        known = table.optimal.any(axis=1) & (table.agent == self.agent)[table.episode]
        wrong = (~table.is_optimal & known).astype(np.float64)
        count = int(wrong.sum())
        if count < _FEWEST_ERRORS:
            return Evidence(why=f"it made {count} errors, too few to tell slips from lapses")
        mean = wrong[known].mean()
        pairs = (table.episode[1:] == table.episode[:-1]) & known[1:] & known[:-1]
        first, second = (wrong[:-1] - mean)[pairs], (wrong[1:] - mean)[pairs]
        clusters = table.grid_id[table.episode[1:]][pairs]
        found = estimate_pooled(
            first * second,
            np.full(len(first), mean * (1 - mean)),
            clusters,
            unit="correlation",
            bounds=UNBOUNDED,
            confidence=self.confidence,
        )
        if found.has_interval:  # one grid's part may lie beyond what a correlation can be, and so may an end
            found = replace(found, low=max(found.low, -1.0), high=min(found.high, 1.0))
        return Evidence.of(found, detail=f"{count} errors in {int(known.sum())} turns")

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
        horizon: most actions of an episode.
    """
    table = world.believed.table
    mdp = table.mdp(np.zeros(len(table.states)), horizon)
    arrived = np.asarray(table.goal, dtype=np.float64)
    for _ in range(horizon):
        after = (table.uniform * mdp.expect(arrived)).sum(axis=1)
        arrived = np.where(table.done, table.goal, after)
    return float(arrived @ table.start)


def _random_chance(world: World, horizon: int) -> float:
    if isinstance(world, EnvironmentWorld):
        return random_arrival(world, horizon)
    return random_success(world.grid, horizon)


def data_by_arm(arms: Iterable[Arm], subject: Subject, runs: Mapping[tuple[str, str], ArmRun]) -> dict[str, ArmData]:
    """Return what a model did by the names of the arms, in each of which the others can be looked up."""
    found = {
        one.name: ArmData.of(
            runs[one.name, subject.name], subject.name, one.names(subject) if subject.logs is None else ()
        )
        for one in arms
        if (one.name, subject.name) in runs
    }
    return {name: replace(data, beside=found) for name, data in found.items()}
