"""Goal hypotheses and the settings of their estimates.

A hypothesis is a possible goal of an agent: utility 1 for every step that begins there (or, as an arrival, once
for being there at the end). Its dynamics are those of the real episode: the true goal ends it, whatever the hypothesis.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope.columns import Column, numbered
from goalscope.measures.table import CONDITIONS
from goalscope.planning import TabularMDP
from goalscope.planning.mdp import at_cell
from goalscope.planning.process import Process, grid_process, process_of
from goalscope.planning.shortest import distances_to
from goalscope.rows import Tag
from goalscope.stats.groups import natural_order
from goalscope.stats.intervals import check_confidence
from goalscope.worlds.dynamics import phases
from goalscope.worlds.grid import CORNERS, Grid, Position
from goalscope.worlds.world import World

Mask = npt.NDArray[np.float64]
Invalid = Literal["no-op", "action"]
"""Meaning of a turn without an action: a step in place by an agent with four actions, or a fifth action."""
Utility = Literal["steps", "arrival"]
"""The utility: every step spent at the place, or being there at the end."""
Pairs = Literal["first", "all"]
"""The hypotheses that are compared: the first one with each other one, or each one with each other one."""

HYPOTHESES = ("goal", "key", "key held", *CORNERS)
"""The hypotheses by name; "cell ROW COL" names any other place. "wrong goal" is another name of "top-right"."""

TOWARDS: Final = "towards"
"""Tag of the rows of MEG: the hypothesis that it is towards."""
_CELL = re.compile(r"cell (\d{1,6}) (\d{1,6})")
_OTHER_NAMES = {"wrong goal": "top-right"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisDraw:
    """One Monte Carlo draw of a hypothesis: its cell in each world, and the grid where that is drawn, too.

    Attributes:
        cells: world id -> the hypothesis's cell in it, as in `GoalSettings.cells`.
        grids: world id -> the grid that replaces the world, as ``believed`` of `measure_goals`; None for the worlds
            themselves. Worlds without one are left out.
    """

    cells: Mapping[str, Position]
    grids: Mapping[str, Grid] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSettings:
    """Settings of the estimates of the goals of a run.

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
        named: goals that the worlds name themselves, see `goal_settings`; they can be hypotheses, too.
        pairs: the hypotheses that are compared, see `Pairs`.
        state_blind: whether `GoalEstimate.state_blind` is measured, too.
    """

    hypotheses: tuple[str, ...] = HYPOTHESES
    by: tuple[str, ...] = ()
    utility: Utility = "steps"
    invalid: Invalid = "no-op"
    confidence: float = 0.95
    seed: int = 0
    cells: Mapping[str, Mapping[str, Position]] = field(default_factory=dict)
    drawn: Mapping[str, Sequence[HypothesisDraw]] = field(default_factory=dict)
    less: Mapping[str, str] = field(default_factory=dict)
    named: tuple[str, ...] = ()
    pairs: Pairs = "first"
    state_blind: bool = False

    def __post_init__(self) -> None:
        for name, draws in self.drawn.items():
            if not len(draws) or name in self.cells:
                raise ValueError(f"a drawn hypothesis must have one draw or more and a name of its own, got {name!r}")
        others = {*self.cells, *self.drawn, *self.named}
        object.__setattr__(self, "hypotheses", _known_names(self.hypotheses, others))
        object.__setattr__(self, "by", tuple(self.by))
        check_confidence(self.confidence)
        for name, kinds in (("utility", Utility), ("invalid", Invalid), ("pairs", Pairs)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kinds))}, got {getattr(self, name)!r}")


def goal_measure(hypothesis: str) -> str:
    """Return the name of the measure that is MEG towards a hypothesis."""
    return f"MEG towards the {hypothesis}"


def cells_of(
    tags: Mapping[str, Column], by: Sequence[str], count: int
) -> list[tuple[dict[str, Tag], npt.NDArray[np.int64]]]:
    """Return the cells of worlds, each with the tags that it is named by and the episodes in it.

    ``tags`` are columns ``[E]`` of ``count`` episodes; one without a tag of ``by`` (None) is in no cell of that tag.
    """
    columns = {name: numbered(tags[name]) for name in dict.fromkeys((*CONDITIONS, *by)) if name in tags}
    conditions = [name for name in CONDITIONS if name in columns and len(columns[name][1]) > 1]
    result: dict[tuple[tuple[str, Tag], ...], npt.NDArray[np.int64]] = {}
    for extra in (None, *by):
        names = conditions if extra is None or extra in conditions else [*conditions, extra]
        tagged = np.arange(count)
        if extra is not None:
            codes, values = columns[extra]
            tagged = np.flatnonzero(np.array([value is not None for value in values], dtype=bool)[codes])
        number = np.zeros(len(tagged), dtype=np.int64)
        for name in names:
            codes, values = columns[name]
            number = number * len(values) + codes[tagged]
        _, first, cell = np.unique(number, return_index=True, return_inverse=True)
        order = np.argsort(cell, kind="stable")
        members = np.split(tagged[order], np.cumsum(np.bincount(cell))[:-1]) if len(first) else []
        parts = {
            tuple((name, columns[name][1][columns[name][0][tagged[row]]]) for name in names): members[index]
            for row, index in sorted(zip(first.tolist(), range(len(first)), strict=True))
        }
        for key in sorted(parts, key=lambda key: [natural_order(value) for _, value in key]):
            result.setdefault(key, parts[key])
    return [(dict(key), members) for key, members in result.items()]


def goal_settings(worlds: Iterable[World], **settings: Any) -> GoalSettings:
    """Return the settings for some worlds; where they name goals themselves, those are the hypotheses by default.

    Args:
        worlds: all of the run.
        settings: as `GoalSettings` takes them.
    """
    processes = (process_of(world) for world in worlds if "grid" not in world.offers)
    present = [process for process in processes if process is not None]
    named = tuple(dict.fromkeys(name for process in present for name in process.goals))
    hypotheses = tuple(dict.fromkeys(name for process in present for name in process.asked or process.goals))
    return GoalSettings(**{**({"hypotheses": hypotheses, "named": named} if named else {}), **settings})


def _known_names(names: Sequence[str], others: Collection[str]) -> tuple[str, ...]:
    canonical = tuple(_OTHER_NAMES.get(name, name) for name in names)
    wrong = [name for name in canonical if name not in (*HYPOTHESES, *others) and not _CELL.fullmatch(name)]
    if wrong or not canonical or len(set(canonical)) != len(canonical):
        raise ValueError(
            f"hypotheses must be different ones of {', '.join((*HYPOTHESES, *others))} or 'cell ROW COL', got "
            f"{', '.join(names) or 'none'}"
        )
    return canonical


def title_of(name: str) -> str:
    """Return a hypothesis in words: "the goal", "the top-right corner", "key held", ..."""
    return f"the {name} corner" if name in CORNERS else f"the {name}" if name in ("goal", "key") else name


def place(name: str, grid: Grid, key: Position | None) -> Mask | None:
    """Return where a hypothesis is fulfilled, ``[P * H * W]`` 0 or 1 over the states of `from_grid`.

    A corner is the cell of `Grid.corner`, also where the goal lies there. None where the hypothesis is undefined: no
    key (``key`` is that of the world, or of its twin where the world is a control without one), a cell outside of the
    grid or inside of a wall, a corner that cannot be come to without entering the goal, which ends the episode.
    """
    if name == "goal":
        return None if grid.goal is None else at_cell(grid, grid.goal)
    if name == "key":
        return None if key is None else at_cell(grid, key)
    if name == "key held":
        if grid.key is None:
            return None
        with_key = np.zeros((phases(grid), grid.walls.size))
        with_key[1:] = 1.0
        return with_key.reshape(-1)
    if name in CORNERS:
        corner = grid.corner(name)
        return at_cell(grid, corner) if corner == grid.goal or _can_come_to(corner, grid) else None
    cell = _CELL.fullmatch(name)
    if cell is None:
        raise ValueError(f"a hypothesis must be one of {', '.join(HYPOTHESES)} or 'cell ROW COL', got {name!r}")
    row, col = int(cell[1]), int(cell[2])
    inside = row < grid.height and col < grid.width and not grid.walls[row, col]
    return at_cell(grid, (row, col)) if inside else None


def place_of_cell(cell: Position | None, grid: Grid) -> Mask | None:
    """Return the place of one cell as `place` does: nowhere where it is no cell of the grid, None for None."""
    if cell is None:
        return None
    row, col = cell
    if 0 <= row < grid.height and 0 <= col < grid.width:
        return at_cell(grid, cell)
    return np.zeros(phases(grid) * grid.walls.size)


def process(where: Grid | Process, mask: Mask, horizon: int, *, utility: Utility, invalid: Invalid) -> TabularMDP:
    """Return the decision process of an episode in which ``mask`` pays; one action more changes nothing."""
    full = grid_process(where) if isinstance(where, Grid) else where
    final = mask if utility == "arrival" else None
    pays = mask if final is None else np.zeros_like(mask)
    return full.mdp(pays, horizon, terminal=final, idle=invalid == "action")


def _can_come_to(cell: Position, grid: Grid) -> bool:
    """Return whether a cell can be come to without entering the goal; a door counts as open."""
    if grid.start is None:
        raise ValueError("a corner stands for a cell that the agent can come to, got a grid without its agent (A)")
    solid = grid.walls.copy()
    if grid.goal is not None:
        solid[grid.goal] = True
    return bool(distances_to(solid, [grid.start])[cell] >= 0)
