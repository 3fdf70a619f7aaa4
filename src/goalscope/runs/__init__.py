"""Runs: their records, execution, storage and resumption."""

from goalscope.runs.export import export_parquet
from goalscope.runs.hashing import content_hash
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.runs.runner import Progress, RunSummary, run
from goalscope.runs.shards import MergeSummary, StudyShard, merge
from goalscope.runs.store import Store
from goalscope.runs.study import Study, StudySize
from goalscope.runs.study_parts import world_kind
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.tasks.world import TaskWorld

__all__ = [
    "Episode",
    "EpisodeSpec",
    "GridWorld",
    "MergeSummary",
    "Outcome",
    "Progress",
    "RunSummary",
    "Step",
    "Store",
    "Study",
    "StudyShard",
    "StudySize",
    "TaskWorld",
    "World",
    "begin",
    "content_hash",
    "export_parquet",
    "merge",
    "run",
    "world_kind",
]
