"""What is asked about the goals of a run, and the cells of worlds that are answered for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.hypotheses import HYPOTHESES, Invalid, Utility, check_hypotheses
from goalscope.measures.table import CONDITIONS, StepTable
from goalscope.rows import Tag
from goalscope.stats.exact import check_confidence
from goalscope.worlds.grid import Grid, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What a hypothesis means, world by world.

    Attributes:
        cells: world id -> the cell that is meant there, as in `GoalSettings.cells`.
        grids: world id -> the grid that stands in the place of that world, as ``believed`` of `measure_goals`; None
            where the worlds are what they are. Worlds without one are left out.
    """

    cells: Mapping[str, Position]
    grids: Mapping[str, Grid] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSettings:
    """What is asked about the goals of a run.

    Attributes:
        hypotheses: names from `HYPOTHESES` or "cell ROW COL"; the first one is compared with each other one.
        by: tags; each value of each of them is a cell beside the cell of all worlds.
        utility: "steps" for 1 in each step that begins at the place, so that earlier is better; "arrival" for being
            there at the end.
        invalid: what a turn without an action is: "no-op", a step in place of an agent with four actions, or "action",
            a fifth action that every agent has.
        confidence: nominal coverage of the intervals.
        seed: root seed of resamples and of simulated random agents.
        cells: further hypotheses by name: world id -> the cell that is meant there, e.g. a goal that was decoded from
            the agent's activations. It may lie in a wall or outside of the grid: nobody comes to it then. Worlds
            without one are left out.
        drawn: further hypotheses by name that are measured several times, once for each draw, e.g. the decoded goals
            of other worlds. All figures are means over the draws, in the worlds that every draw has.
        less: hypothesis -> short name: the world's parts of the first hypothesis less those of this one become rows,
            too, "MEG towards the FIRST less NAME".
    """

    hypotheses: tuple[str, ...] = HYPOTHESES
    by: tuple[str, ...] = ()
    utility: Utility = "steps"
    invalid: Invalid = "no-op"
    confidence: float = 0.95
    seed: int = 0
    cells: Mapping[str, Mapping[str, Position]] = field(default_factory=dict)
    drawn: Mapping[str, Sequence[Meant]] = field(default_factory=dict)
    less: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, draws in self.drawn.items():
            if not len(draws) or name in self.cells:
                raise ValueError(f"a drawn hypothesis must have one draw or more and a name of its own, got {name!r}")
        others = {*self.cells, *self.drawn}
        object.__setattr__(self, "hypotheses", check_hypotheses(self.hypotheses, others))
        object.__setattr__(self, "by", tuple(self.by))
        check_confidence(self.confidence)
        for name, kinds in (("utility", Utility), ("invalid", Invalid)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kinds))}, got {getattr(self, name)!r}")


def cells_of(table: StepTable, by: Sequence[str]) -> list[tuple[dict[str, Tag], npt.NDArray[np.int64]]]:
    """Return the cells of worlds, each with the tags that it is named by and the episodes in it."""
    conditions = [name for name in CONDITIONS if name in table.tags and len(set(table.tags[name].tolist())) > 1]
    found: dict[tuple[tuple[str, Tag], ...], list[int]] = {}
    for extra in (None, *by):
        parts: dict[tuple[tuple[str, Tag], ...], list[int]] = {}
        for index in range(len(table.length)):
            if extra is not None and table.tags[extra][index] is None:
                continue
            names = [*conditions, *([extra] if extra is not None and extra not in conditions else [])]
            parts.setdefault(tuple((name, table.tags[name][index]) for name in names), []).append(index)
        for key in sorted(parts, key=lambda key: [_rank(value) for _, value in key]):
            found.setdefault(key, parts[key])
    return [(dict(key), np.array(members, dtype=np.int64)) for key, members in found.items()]


def _rank(value: Tag) -> tuple[int, float, str]:
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, value)
