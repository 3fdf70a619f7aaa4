"""Named examples of the exploration paper: the edge cases of its Fig. 3 and the contrast of its Fig. 4b.

The paper draws them without coordinates; these maps and walks are our own and have the properties that it states. Each
walk is a list of moves from the start of its map that ends before the goal is achieved, except for Fig. 4b.

Source: measuring exploration and exploitation errors, Fig. 3a to 3c and 4b with their captions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from goalscope.measures.exploration.score import AllSteps, EpisodeErrors, score_episode
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.taskmap import Cell, TaskMap

_LETTERS: Final = {"U": Action.UP, "D": Action.DOWN, "L": Action.LEFT, "R": Action.RIGHT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example from the exploration paper: a map with walks that the metric should distinguish, or should score
    equally.

    Attributes:
        figure: the figure in the paper.
        shows: the property that the example demonstrates.
        task_map: the map; up increases y.
        before: moves that all walks begin with, as letters U, D, L and R.
        walks: name -> the moves that follow.
    """

    figure: str
    shows: str
    task_map: TaskMap
    before: str
    walks: Mapping[str, str]

    def actions(self, walk: str) -> list[Action]:
        """Return all moves of a walk, given by its name, including the beginning that all walks share."""
        return [_LETTERS[letter] for letter in self.before + self.walks[walk]]

    def score(self, walk: str) -> EpisodeErrors[AllSteps]:
        """Score the exploration and exploitation errors of a walk, given by its name; see `score_episode`.

        The beginning that all walks share is included.
        """
        return score_episode(self.task_map, self.actions(walk))


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkCounts:
    """Counts over the moves of one walk of an `Example`, without the beginning that all walks share.

    Attributes:
        steps: number of moves.
        errors: number of errors by Eq. (1) of the paper.
        without_gain: moves that neither progress nor get closer to a target: the errors without the stale score.
        new_cells: moves into unobserved cells.
        stale: stale score (loops, reused edges and cells since the last progress) after the last move.
        cases: cases of Table 1 of the paper that occur, in order.
    """

    steps: int
    errors: int
    without_gain: int
    new_cells: int
    stale: int
    cases: tuple[int, ...]


def counts(example: Example, walk: str) -> WalkCounts:
    """Count errors, new cells and other events on one walk of an example, given by its name."""
    steps = list(example.score(walk).steps)[len(example.before) :]
    return WalkCounts(
        steps=len(steps),
        errors=sum(step.error for step in steps),
        without_gain=sum(not step.gain and not step.progress for step in steps),
        new_cells=sum(step.new_cell for step in steps),
        stale=steps[-1].stale,
        cases=tuple(sorted({step.case for step in steps})),
    )


def _block(width: int, height: int) -> list[Cell]:
    return [(x, y) for x in range(width) for y in range(height)]


def _task_map(cells: list[Cell], start: Cell, **node_cells: Cell) -> TaskMap:
    """Build a map with the nodes A, B (needs A), C, and the goal G (needs B and C)."""
    needs: dict[str, list[list[str]]] = {"A": [], "B": [["A"]], "C": [], "G": [["B", "C"]]}
    nodes = {name: {"cell": node_cells[name], "options": needs[name]} for name in needs}
    return TaskMap(cells=cells, start=start, goal="G", nodes=nodes)


EXAMPLES: Final[Mapping[str, Example]] = {
    "shortcut": Example(
        figure="3a",
        shows="The shortest way back to the pending node B leads over unseen cells: exploitation that explores.",
        task_map=_task_map(_block(5, 5), (0, 0), B=(0, 1), A=(3, 1), C=(4, 4), G=(4, 0)),
        before="UUURRRDD",
        walks={"over unseen cells": "LLL", "the way it came": "UULLLDD"},
    ),
    "detour": Example(
        figure="3b",
        shows="The way from B to A was a shortest one; a detour of two steps back to B sees five cells more.",
        task_map=_task_map(_block(6, 3), (0, 0), B=(0, 1), A=(4, 1), C=(5, 2), G=(5, 0)),
        before="URRRR",
        walks={"detour": "ULLLLD", "the way it came": "LLLL"},
    ),
    "symmetric targets": Example(
        figure="3c",
        shows="Targets lie on all sides, so that every move has gain: the stale score alone tells of wandering.",
        task_map=_task_map(_block(7, 7), (3, 3), B=(3, 5), A=(3, 2), C=(6, 6), G=(0, 0)),
        before="UUDLDDRRUU",
        walks={"wandering": "LDRULDRULDRU", "to a target": "RU"},
    ),
    "equal ways": Example(
        figure="4b",
        shows="The goal is pending; a seen and an unseen way to it are equally long. Free of error, both: a difference "
        "of habit, not of quality.",
        task_map=_task_map(_block(5, 5), (0, 0), G=(0, 4), C=(2, 4), A=(4, 2), B=(4, 0)),
        before="UUUURRRRDDDD",
        walks={"the seen way": "UUUULLLL", "the unseen way": "LULULULU"},
    ),
}
"""Name -> the example."""
