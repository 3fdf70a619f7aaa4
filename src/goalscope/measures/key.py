"""Keys: accuracy by stage, how often the key is picked up, and whether errors lead towards it.

All of them emit rows only where they mean something: stages on worlds with a door, the rest on worlds with a key and on
their matched controls. A control is a world of the same cluster with the same walls, start and goal but no key; its
figures are taken at the cell where the key of its twin lies.

Source: behavioural and representational evaluation, section 4.3 and Table 1.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from goalscope.measures.measure import Measure, StepTable, episode_rows, group_rows, step_rows
from goalscope.measures.performance import per_episode, ratio
from goalscope.planning.shortest import distances_to
from goalscope.rows import Rows
from goalscope.worlds.grid import Grid, Position

Stage = Literal["key", "door", "goal"]
STAGES: tuple[Stage, ...] = ("key", "door", "goal")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAccuracy:
    """Share of optimal turns on the way to the key, from there to the door, and from there to the goal.

    One row for each episode on a world with a door; NaN for an episode that never was in the stage.

    Attributes:
        stage: "key" (before it is picked up), "door" (with the key, the door locked), "goal" (the door open).
    """

    stage: Stage
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise ValueError(f"stage must be one of {', '.join(STAGES)}, got {self.stage!r}")

    @property
    def name(self) -> str:
        """The quantity with its stage."""
        return f"accuracy on the way to the {self.stage}"

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each episode on a world with a door."""
        within = (table.state[:, 2] == STAGES.index(self.stage)) & table.optimal.any(axis=1)
        value = ratio(per_episode(table, within & table.is_optimal), per_episode(table, within))
        doors = np.array([world.grid.door is not None for world in table.worlds], dtype=bool)
        return episode_rows(table, self.name, self.unit, value).where(doors[table.world])


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPickup:
    """Whether the agent came to the key's cell; one row for each episode on a world with a key or its control."""

    name: str = "key pickup"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return 1 or 0 for each such episode."""
        cell, known = table.once(key_cells)
        passed = per_episode(table, (table.state[:, :2] == cell[table.episode]).all(axis=1)) > 0
        passed |= (table.final[:, :2] == cell).all(axis=1)
        return episode_rows(table, self.name, self.unit, passed.astype(np.float64)).where(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAttraction:
    """Share of the non-optimal actions that approach the key, before it is reached; one row a group.

    An action approaches the key when the shortest way to it, with the door locked, is shorter afterwards. Turns without
    an action are no actions. A group without non-optimal actions is undefined.
    """

    name: str = "key attraction bias"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each group on a world with a key or its control."""
        group, first = table.groups()
        errors = table.once(key_errors)
        of = group[table.episode]
        counts = (np.bincount(of[mask], minlength=len(first)) for mask in (errors.nearer, errors.wrong))
        return group_rows(table, self.name, self.unit, ratio(*counts), first).where(errors.known[first])


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyErrors:
    """Share of an episode's actions before the key is reached that are not optimal and approach the key.

    The product of how often the agent errs and how often its errors lead to the key. Unlike the attraction bias it is
    defined for an agent that never errs, so that a world and its control can always be paired.
    """

    name: str = "errors towards the key"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the share for each episode on a world with a key or its control, NaN without such actions."""
        errors = table.once(key_errors)
        counts = (per_episode(table, mask) for mask in (errors.nearer, errors.before))
        return episode_rows(table, self.name, self.unit, ratio(*counts)).where(errors.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyErrorDirection:
    """Whether a single non-optimal action before the key is reached approaches the key; one row for each of them.

    Pooled over all actions of an agent, with grids as units, it is the attraction bias as the paper counts it: every
    action weighs the same, whereas the mean over grids weighs every grid the same.
    """

    name: str = "error approaches the key"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return 1 or 0 for each such action."""
        errors = table.once(key_errors)
        wrong = np.flatnonzero(errors.wrong)
        return step_rows(table, self.name, self.unit, errors.nearer[wrong].astype(np.float64), {}, wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Where the actions of a table lead with respect to the key.

    Attributes:
        before: ``[N]`` actions on worlds with a key or controls, before the key's cell is reached.
        wrong: ``[N]`` those of them that are not optimal.
        nearer: ``[N]`` those of the wrong ones after which the way to the key, the door locked, is shorter.
        known: ``[E]`` whether an episode's world has a key or is a control.
    """

    before: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_]
    nearer: npt.NDArray[np.bool_]
    known: npt.NDArray[np.bool_]


def key_errors(table: StepTable) -> Errors:
    """Return where the actions of a table lead with respect to the key."""
    cell, known = table.once(key_cells)
    at_key = (table.state[:, :2] == cell[table.episode]).all(axis=1)
    reached = np.concatenate([[0], np.cumsum(at_key)])
    before = reached[1:] == reached[table.begin][table.episode]  # neither here nor earlier at the key
    before &= known[table.episode] & table.optimal.any(axis=1) & (table.action >= 0)
    wrong = before & ~table.is_optimal
    nearer = np.zeros(len(wrong), dtype=bool)
    following = table.following
    world_of = table.world[table.episode]
    for world in np.unique(world_of[wrong]).tolist():
        mine = np.flatnonzero(wrong & (world_of == world))
        index = int(table.episode[mine[0]])
        field = _way_to(table.worlds[world].grid, (int(cell[index, 0]), int(cell[index, 1])))
        now, then = (field[where[mine, 0], where[mine, 1]] for where in (table.state, following))
        nearer[mine] = (then >= 0) & (then < now)
    return Errors(before=before, wrong=wrong, nearer=nearer, known=known)


def _way_to(grid: Grid, key: Position) -> npt.NDArray[np.int64]:
    solid = grid.walls.copy()
    if grid.door is not None:
        solid[grid.door] = True
    return distances_to(solid, [key])


def key_cells(table: StepTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the key's cell for each episode, ``[E, 2]``, and whether its world has one or is a control, ``[E]``.

    The cell of a control is that of its twin in the table; without one it is (-1, -1).
    """
    keyed = [world for world in table.worlds if world.grid.key is not None]
    twins = {(world.grid_id, world.grid.at(key=None)): world.grid.key for world in keyed}
    cells = np.full((len(table.worlds), 2), -1, dtype=np.int64)
    for index, world in enumerate(table.worlds):
        key = world.grid.key if world.grid.key is not None else twins.get((world.grid_id, world.grid))
        if key is not None:
            cells[index] = key
    cells = cells[table.world]
    return cells, cells[:, 0] >= 0


KEY: tuple[Measure, ...] = (
    *(StageAccuracy(stage=stage) for stage in STAGES),
    KeyPickup(),
    KeyAttraction(),
    KeyErrors(),
    KeyErrorDirection(),
)
"""What keys and doors do to behaviour."""
