"""Runs: what is recorded, and how it is made, stored and resumed."""

from goalscope.runs.export import content_hash, export_parquet
from goalscope.runs.kinds import world_kind
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.runs.runner import Progress, RunSummary, run
from goalscope.runs.store import Store
from goalscope.runs.study import Study, StudySize
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.tasks.world import TaskWorld

__all__ = [
    "Episode",
    "EpisodeSpec",
    "GridWorld",
    "Outcome",
    "Progress",
    "RunSummary",
    "Step",
    "Store",
    "Study",
    "StudySize",
    "TaskWorld",
    "World",
    "begin",
    "content_hash",
    "export_parquet",
    "run",
    "world_kind",
]
