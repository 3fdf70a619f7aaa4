"""Held-out and restricted goals of episodes that are given as one."""

from collections.abc import Iterable

from goalscope.measures import StepTable
from goalscope.measures.goals import (
    GoalFindings,
    GoalSettings,
    HeldOut,
    goal_settings,
    held_out_goals,
    measure_restricted,
)
from goalscope.meg.restricted import Unseen
from goalscope.runs.record import Episode


def held_out(
    episodes: Iterable[Episode] | StepTable, settings: GoalSettings | None = None, ridge: float = 1.0
) -> tuple[HeldOut, ...]:
    """Return `held_out_goals` of all episodes together."""
    table = episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)
    return held_out_goals([table], settings or goal_settings(table.worlds), total=len(table.length), ridge=ridge)


def restricted(table: StepTable, unseen: Unseen) -> GoalFindings:
    """Return `measure_restricted` of one table."""
    return measure_restricted([table], GoalSettings(), unseen=unseen, total=len(table.length))
