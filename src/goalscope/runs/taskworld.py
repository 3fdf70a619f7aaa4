"""A world of tasks as it stands in a run: a task map in place of a grid."""

from dataclasses import dataclass, field
from functools import cached_property

from goalscope.ids import content_id
from goalscope.runs.record import World
from goalscope.worlds.grid import Grid
from goalscope.worlds.tasks.taskmap import TaskMap


@dataclass(frozen=True, kw_only=True)
class TaskWorld(World):
    """A task map and what is known about it.

    Attributes:
        task_map: the map; its budget is the horizon of every episode.
        grid: the map as a grid, tasks left out: what positions are counted on, (row, col).
        fog_radius: None; what an agent sees of a task map is no matter of sight.
        cluster, tags: as in `World`.
    """

    task_map: TaskMap
    grid: Grid = field(init=False)
    fog_radius: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", self.task_map.grid())
        World.__post_init__(self)

    @cached_property
    def id(self) -> str:
        """Content id of the map and its tasks."""
        return content_id("world", {"task_map": self.task_map.to_plain()})
