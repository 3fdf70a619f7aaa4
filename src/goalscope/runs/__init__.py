"""Runs: their records, execution, storage and resumption."""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.runs.export import export_parquet as export_parquet
    from goalscope.runs.hashing import content_hash as content_hash
    from goalscope.runs.record import Episode as Episode
    from goalscope.runs.record import EpisodeSpec as EpisodeSpec
    from goalscope.runs.record import Outcome as Outcome
    from goalscope.runs.record import Step as Step
    from goalscope.runs.record import World as World
    from goalscope.runs.record import begin as begin
    from goalscope.runs.runner import Progress as Progress
    from goalscope.runs.runner import RunSummary as RunSummary
    from goalscope.runs.runner import run as run
    from goalscope.runs.shards import MergeSummary as MergeSummary
    from goalscope.runs.shards import StudyShard as StudyShard
    from goalscope.runs.shards import merge as merge
    from goalscope.runs.store import Store as Store
    from goalscope.runs.study import Study as Study
    from goalscope.runs.study import StudySize as StudySize
    from goalscope.runs.study_parts import world_kind as world_kind
    from goalscope.worlds.gridworld import GridWorld as GridWorld
    from goalscope.worlds.tasks.world import TaskWorld as TaskWorld

_NAMES: Final = {
    "export": "export_parquet",
    "hashing": "content_hash",
    "record": "Episode EpisodeSpec Outcome Step World begin",
    "runner": "Progress RunSummary run",
    "shards": "MergeSummary StudyShard merge",
    "store": "Store",
    "study": "Study StudySize",
    "study_parts": "world_kind",
    ".worlds.gridworld": "GridWorld",
    ".worlds.tasks.world": "TaskWorld",
}
"""Module -> the names that it defines. Modules are imported on first use, since few commands need all of them."""

_LATER: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_LATER)


__getattr__ = names_later(__name__, _LATER)
