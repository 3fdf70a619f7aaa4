"""Task maps as worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from goalscope.ids import content_id
from goalscope.rows import Tag
from goalscope.worlds.dynamics import State
from goalscope.worlds.grid import ACTIONS, Action, Grid
from goalscope.worlds.gridworld import grid_state, move
from goalscope.worlds.tasks.knowledge import Knowledge, Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.text import report_text, write_log
from goalscope.worlds.world import Session, View, World

_NAMES = tuple(action.name.lower() for action in ACTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView(View):
    """What the world told so far; nothing of the map, of undiscovered nodes or of the budget.

    Attributes:
        memory: all reports and moves so far; it grows with the episode, so read it while acting and keep no reference.
        report: what the world tells now; the last one of the memory where it is left out.
    """

    shows: ClassVar[str] = "a task map"
    memory: Memory
    report: Report = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.report is None:
            object.__setattr__(self, "report", self.memory.turns[-1][1])

    @property
    def text(self) -> str:
        """The report in words."""
        return report_text(self.report)

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the four moves."""
        return _NAMES

    @property
    def admissible(self) -> tuple[int, ...]:
        """The open directions."""
        return self.report.available

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return the log of the episode, and what the agent said at each earlier step where it is handed over."""
        said = [past for past in history if past.text is not None or past.reasoning is not None]
        return [write_log(self.memory.turns), [past.answer for past in said]]


class TaskSession(Session):
    """An episode on a task map; its budget is the horizon."""

    def __init__(self, task_map: TaskMap) -> None:
        self._map = task_map
        self._knowledge = Knowledge(task_map)
        self._memory = Memory()
        self._memory.add(self._knowledge.report())

    @property
    def view(self) -> TaskView:
        """What the world told so far."""
        return TaskView(memory=self._memory)

    @property
    def state(self) -> State:
        """The agent's cell, in rows and columns of the map's rectangle."""
        return State(self._map.frame.row_col(self._map.board.cell(self._knowledge.position)))

    @property
    def done(self) -> bool:
        """Whether the goal is achieved."""
        return self._knowledge.ending == "goal"

    solved = done

    def step(self, action: int | None) -> None:
        """Take a move; a turn without one counts as a step in place."""
        self._knowledge.move(action)
        self._memory.add(self._knowledge.report(), action)


@dataclass(frozen=True, kw_only=True)
class TaskWorld(World):
    """A task map and what is known about it.

    Attributes:
        task_map: the map; its budget is the horizon of every episode.
        grid: the map as a grid, tasks left out: what positions are counted on, (row, col).
        cluster, tags: as in `World`.
    """

    kind: ClassVar[str] = "task-map"
    view: ClassVar[type[View]] = TaskView
    planar: ClassVar[bool] = True
    limited: ClassVar[bool] = True
    own_measures: ClassVar[bool] = True
    task_map: TaskMap
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", self.task_map.grid())

    @cached_property
    def id(self) -> str:
        """Content id of the map and its tasks."""
        return content_id("world", self.to_plain())

    @property
    def horizon(self) -> int:
        """The budget of the map."""
        return self.task_map.budget

    def begin(self, rng: np.random.Generator | None = None) -> TaskSession:
        """Begin an episode; task maps leave nothing to chance."""
        return TaskSession(self.task_map)

    def begin_episode(self, seed: int, episode_id: str) -> TaskSession:
        """Begin an episode; no random numbers are made."""
        return self.begin()

    @property
    def stored(self) -> str:
        """The map as JSON."""
        return self.task_map.to_json()

    def to_plain(self) -> dict[str, Any]:
        """Return the map as plain values."""
        return {"task_map": self.task_map.to_plain()}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the plain values of its map."""
        return cls(task_map=TaskMap.from_plain(plain["task_map"]), cluster=cluster, tags=tags or {})

    def action(self, index: int) -> Action:
        """Return a move from its index."""
        return move(index)

    def check_state(self, state: Any) -> State:
        """Return a cell from (row, col, 0) in the map's rectangle."""
        return grid_state(state, self.grid)
