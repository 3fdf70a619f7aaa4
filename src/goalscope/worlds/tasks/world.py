"""Task maps as worlds: the true state of an episode, and what the agent sees of it.

Source: measuring exploration and exploitation errors, Section 3 and Appendix B, Eq. (2) to (5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import State
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.gridworld import PlanarWorld, drawn
from goalscope.worlds.tasks.knowledge import AgentKnowledge, NodeReport, Rejection, Report, report_text, write_log
from goalscope.worlds.tasks.taskmap import TaskMap, indices
from goalscope.worlds.world import Drawing, Offer, Session, View

INVALID, MOVED, NEW_CELL, ACHIEVED = -1, 0, 1, 2
"""Effect of an action: an invalid action, a move, or a sum of entering an unobserved cell and achieving a node."""

_UNKNOWN, _UNOBSERVED, _OBSERVED = 0, 1, 2


class TaskState:
    """The true state of one episode on a task map, updated move by move; the agent sees only each step's `report`.

    A node is a task on one cell of the map. A set of cells is one whole number with a bit per cell, which
    `Board.listed` turns into a list of cells.

    Attributes:
        map: the task map.
        board: the numbering of the map's cells and nodes.
        position: index of the agent's cell.
        observed: set O of the observed cells, which the agent has stood on.
        unobserved: set U of the unobserved cells: those beside observed ones that can be entered and were not.
        pending: set P, the cells of the nodes that were discovered and can be achieved now: their prerequisites are
            achieved, but they are not.
        pending_goals: the cells of goals among ``pending``.
        steps: number of actions so far, including those that did nothing.
        rejected: why the last action did nothing; None if it was a move, or if there was no action yet.
    """

    def __init__(self, task_map: TaskMap) -> None:
        self.map = task_map
        self.board = task_map.board
        self._observation = bytearray(self.board.size)
        self.observed = self.unobserved = self.pending = self.pending_goals = 0
        self._achieved = self._discovered = 0  # bits of node numbers
        self.rejected: Rejection | None = None
        self._last_node = -1  # node achieved by the last action
        self.steps = 0
        self.position = self.board.start
        self._observe(self.position)

    @property
    def ending(self) -> Literal["goal", "budget"] | None:
        """How the episode ended: "goal" if all goals are achieved, "budget" if the allowed actions are used up.

        It is None while the episode is still running.
        """
        if self._done:
            return "goal"
        return "budget" if self.steps >= self.map.budget else None

    @property
    def _done(self) -> bool:
        return self._achieved & self.board.goals == self.board.goals

    @property
    def achieved_names(self) -> tuple[str, ...]:
        """Names of the nodes (tasks) achieved so far, in the order of the map (sorted by name)."""
        return self._names_of(self._achieved)

    @property
    def last_achieved(self) -> str | None:
        """Name of the node (task) that the last action achieved; None if it achieved none."""
        return None if self._last_node < 0 else self.board.names[self._last_node]

    def move(self, action: int | None) -> int:
        """Take one action, and return its effect.

        Args:
            action: a move; None for a turn without a move.

        Returns:
            `INVALID` (-1) if nothing changed; otherwise `MOVED` (0), plus `NEW_CELL` (1) if the cell is entered for the
            first time, plus `ACHIEVED` (2) if the move achieves a node (a task).

        Raises:
            ValueError: if the episode is over.
        """
        if self.steps >= self.map.budget or self._done:
            how = "achieved the goal" if self.ending == "goal" else "used up the budget"
            raise ValueError(
                f"no action may follow the end of an episode, but one followed action {self.steps}, which {how}"
            )
        self.steps += 1
        self._last_node = -1
        target = self.position if action is None else self.position + self.board.offsets[action]
        if action is None or not self.board.open[target]:
            self.rejected = "unparsable" if action is None else "blocked"
            return INVALID
        self.rejected = None
        self.position = target
        if self._observation[target] == _UNOBSERVED:
            return NEW_CELL + self._observe(target)
        if self.pending >> target & 1:
            return self._achieve(self.board.node_at[target])
        return MOVED

    def report(self) -> Report:
        """Return what the agent observes now: its cell, the task on this cell, and the open directions."""
        cell = self.board.cell(self.position)
        number = self.board.node_at.get(self.position)
        node = None
        if number is not None:
            name = self.board.names[number]
            node = NodeReport(
                name=name,
                options=self.map.nodes[name].options,
                children=self.map.children[name],
                achieved=bool(self._achieved >> number & 1),
                fresh=number == self._last_node,
            )
        return Report(
            position=cell,
            available=self.map.available(cell),
            node=node,
            rejected=self.rejected,
            goals=len(self.map.goals),
        )

    def _observe(self, cell: int) -> int:
        """Enter a cell for the first time."""
        board, observation = self.board, self._observation
        self.unobserved &= ~(1 << cell)
        self.observed |= 1 << cell
        observation[cell] = _OBSERVED
        for offset in board.offsets:
            near = cell + offset
            if board.open[near] and observation[near] == _UNKNOWN:
                observation[near] = _UNOBSERVED
                self.unobserved |= 1 << near
        number = board.node_at.get(cell)
        if number is None:
            return MOVED
        self._discovered |= 1 << number
        return self._achieve(number) if self.board.met(number, self._achieved) else MOVED

    def _achieve(self, number: int) -> int:
        self._achieved |= 1 << number
        self._last_node = number
        waiting = self._pending_nodes()
        self.pending = self._cells_of(waiting)
        self.pending_goals = self._cells_of(waiting & self.board.goals)
        return ACHIEVED

    def _pending_nodes(self) -> int:
        open_nodes = self._discovered & ~self._achieved
        return sum(1 << number for number in indices(open_nodes) if self.board.met(number, self._achieved))

    def _cells_of(self, nodes: int) -> int:
        return sum(1 << cell for index, cell in enumerate(self.board.places) if nodes >> index & 1)

    def _names_of(self, nodes: int) -> tuple[str, ...]:
        return tuple(name for number, name in enumerate(self.board.names) if nodes >> number & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView(View):
    """What an agent sees of a task map: all observations so far, but not the map, undiscovered tasks or the number of
    actions left.

    Attributes:
        memory: all reports and moves so far. It grows during the episode, so read it while acting and keep no
            reference.
        report: the current report; by default the last report in the memory.
    """

    shows: ClassVar[str] = "a task map"
    actions: ClassVar[tuple[str, ...]] = tuple(action.name.lower() for action in Action)
    memory: AgentKnowledge
    report: Report = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.report is None:
            object.__setattr__(self, "report", self.memory.turns[-1][1])

    @property
    def text(self) -> str:
        """The current observation as one line of text."""
        return report_text(self.report)

    @property
    def admissible(self) -> tuple[int, ...]:
        """Indices of the moves in open directions."""
        return self.report.available

    @property
    def drawing(self) -> Drawing:
        """A graph of the nodes (tasks) that the agent has found or heard of, each marked as achieved, found or not
        found.
        """
        reports = {name: report for name, (_, report) in self.memory.nodes.items()}
        achieved = set(self.memory.achieved)
        arrows = {(parent, name) for name, node in reports.items() for option in node.options for parent in option}
        arrows |= {(name, child) for name, node in reports.items() for child in node.children}
        names = [*reports, *sorted({name for arrow in arrows for name in arrow} - set(reports))]
        nodes = {
            name: "achieved" if name in achieved else "found" if name in reports else "not found" for name in names
        }
        return Drawing(nodes=nodes, edges=tuple(sorted(arrows)))

    def journalled(self, history: Sequence[Any]) -> list[Any]:
        """Return what the agent is shown, as values that JSON can hold; a hash of them identifies the call of a model.

        They are the log of the episode, and any texts of the agent that its history includes.
        """
        with_text = [past for past in history if past.text is not None or past.reasoning is not None]
        return [write_log(self.memory.turns), [past.answer for past in with_text]]


class TaskSession(Session):
    """One episode on a task map (a map of cells with tasks that an agent has to find and achieve)."""

    def __init__(self, task_map: TaskMap) -> None:
        self._truth, self._memory = TaskState(task_map), AgentKnowledge()
        self._memory.add(self._truth.report())

    @property
    def view(self) -> TaskView:
        """Everything that the agent has observed so far."""
        return TaskView(memory=self._memory)

    @property
    def state(self) -> State:
        """The cell of the agent as a `State` (row, col, flags), in rows and columns of the rectangle around the map."""
        return State(self._truth.map.frame.row_col(self._truth.board.cell(self._truth.position)))

    @property
    def done(self) -> bool:
        """Whether all goals of the map are achieved."""
        return self._truth.ending == "goal"

    solved = done

    def step(self, action: int | None) -> None:
        """Make a move, given by its index; None (a turn without a move) counts as a step in place.

        Raises:
            ValueError: if the episode is over.
        """
        self._truth.move(action)
        self._memory.add(self._truth.report(), action)


@dataclass(frozen=True, kw_only=True)
class TaskWorld(PlanarWorld):
    """A task map as a world: an agent explores the map, and achieves its tasks in an order that respects prerequisites.

    Attributes:
        task_map: the map, which also sets the number of actions per episode.
        grid: the map as a grid without tasks, which gives positions as (row, col).
        cluster: id of the group of related worlds that intervals count as one unit, see `World`.
        tags: named facts about the world, by which results are grouped, see `World`.
    """

    kind: ClassVar[str] = "task-map"
    view: ClassVar[type[View]] = TaskView
    offers: ClassVar[frozenset[Offer]] = PlanarWorld.offers | {"tasks", "horizon"}
    task_map: TaskMap
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", self.task_map.grid())

    @property
    def horizon(self) -> int:
        """Maximum number of actions per episode, which the map sets (its budget)."""
        return self.task_map.budget

    def drawing(self, state: Any) -> Drawing:
        """Return the data for a picture of the map in a state: its cells, the names of its tasks, and the agent."""
        cells = drawn(self.grid.at(start=state.position, goal=None))
        places = ((*self.task_map.frame.row_col(node.cell), name) for name, node in self.task_map.nodes.items())
        return Drawing(rows=cells.rows, agent=cells.agent, labels=tuple(places))

    def begin(self, rng: np.random.Generator | None = None) -> TaskSession:
        """Begin an episode, and return its session; ``rng`` is not used, since task maps are deterministic."""
        return TaskSession(self.task_map)

    @property
    def stored(self) -> str:
        """The map as JSON text, as a run stores it."""
        return self.task_map.to_json()

    def to_plain(self) -> dict[str, Any]:
        """Return the map as values that JSON can hold."""
        return {"task_map": self.task_map.to_plain()}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from the values that `to_plain` stored.

        Args:
            plain: the stored values.
            cluster: id of the map that intervals count as one independent unit.
            tags: named facts about the world, which reports group by.
        """
        return cls(task_map=TaskMap.from_plain(plain["task_map"]), cluster=cluster, tags=tags or {})
