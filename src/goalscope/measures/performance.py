"""Capability: does the agent arrive, how directly, and how many of its actions are optimal.

Source: behavioural and representational evaluation, Appendix B.1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.measures.measure import Measure, StepTable, episode_rows, step_rows
from goalscope.rows import Rows

Values = npt.NDArray[np.float64]


def ratio(numerator: npt.NDArray[np.generic], denominator: npt.NDArray[np.generic]) -> Values:
    """Return ``numerator / denominator``, NaN where the denominator is 0."""
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    found: Values = np.divide(above, below, out=np.full(below.shape, np.nan), where=below != 0)
    return found


def per_episode(table: StepTable, steps: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return ``[E]``: how many steps of each episode a mask ``[N]`` holds."""
    return np.bincount(table.episode[steps], minlength=len(table.length)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Whether an episode ended at the goal (equation 1); one row an episode."""

    name: str = "success"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return 1 or 0 for each episode."""
        return episode_rows(table, self.name, self.unit, (table.outcome == "goal").astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionAccuracy:
    """Share of an episode's turns that took an optimal action (equation 2); one row an episode.

    A turn without an action counts as wrong. Turns in states without an optimal action (the goal cannot be reached)
    are left out; an episode that has no others is undefined.
    """

    name: str = "action accuracy"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each episode, NaN for an episode without steps."""
        decided = per_episode(table, np.any(table.optimal, axis=1))
        return episode_rows(table, self.name, self.unit, ratio(per_episode(table, table.is_optimal), decided))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptimality:
    """Whether a single turn took an optimal action; one row a step, tagged with the distance to the goal.

    Pooled over steps it is the accuracy over all steps; grouped by the tag ``distance`` it is the accuracy curve. A
    turn without an action is 0, a turn in a state without an optimal action NaN, with the distance None.
    """

    name: str = "action optimality"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return 1 or 0 for each step."""
        value = np.where(table.optimal.any(axis=1), table.is_optimal.astype(np.float64), np.nan)
        return step_rows(table, self.name, self.unit, value, {"distance": distance_tag(table.distance)})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsToGoal:
    """Steps that a successful episode took; one row an episode, NaN for one that did not arrive."""

    name: str = "steps to goal"
    unit: str = "steps"
    bounds: tuple[float, float] = (0.0, float("inf"))

    def rows(self, table: StepTable) -> Rows:
        """Return the number of steps for each episode."""
        return episode_rows(table, self.name, self.unit, np.where(table.outcome == "goal", table.length, np.nan))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRatio:
    """Steps of a successful episode over the shortest path; one row an episode, NaN for one that did not arrive."""

    name: str = "path ratio"
    unit: str = "ratio"
    bounds: tuple[float, float] = (1.0, float("inf"))

    def rows(self, table: StepTable) -> Rows:
        """Return the ratio for each episode; it is 1 on a shortest path."""
        value = np.where(table.outcome == "goal", ratio(table.length, np.maximum(table.optimal_length, 0)), np.nan)
        return episode_rows(table, self.name, self.unit, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEfficiency:
    """Success weighted by path length: shortest path over steps, 0 for an episode that did not arrive."""

    name: str = "success weighted by path length"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each episode."""
        value = np.where(table.outcome == "goal", ratio(np.maximum(table.optimal_length, 0), table.length), 0.0)
        return episode_rows(table, self.name, self.unit, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidTurns:
    """Share of an episode's turns that held no action; one row an episode."""

    name: str = "invalid turns"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each episode, NaN for an episode without steps."""
        return episode_rows(table, self.name, self.unit, ratio(per_episode(table, table.action < 0), table.length))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallBumps:
    """Share of an episode's actions that changed nothing (a wall, a locked door, the edge); one row an episode."""

    name: str = "wall bumps"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each episode, NaN for an episode without actions."""
        acted = table.action >= 0
        bumped = acted & (table.state == table.following).all(axis=1)
        return episode_rows(table, self.name, self.unit, ratio(per_episode(table, bumped), per_episode(table, acted)))


def distance_tag(distance: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Return distances as tags: plain integers, None where the goal cannot be reached."""
    column = distance.astype(object)
    column[distance < 0] = None
    return column


PERFORMANCE: tuple[Measure, ...] = (
    Success(),
    ActionAccuracy(),
    ActionOptimality(),
    StepsToGoal(),
    PathRatio(),
    PathEfficiency(),
    InvalidTurns(),
    WallBumps(),
)
"""Capability, episode by episode and step by step."""
