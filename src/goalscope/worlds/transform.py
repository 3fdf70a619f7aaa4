"""Transformations that keep a world's difficulty: reflection, rotation, transposition, start and goal swapped.

They generate one group of 16 elements, the eight symmetries of the square times the swap, which acts on grids, cells,
actions, paths, and arrays over cells alike.

Source: behavioural and representational evaluation, section 4.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.worlds.grid import ACTIONS, Action, Grid, Position, check_inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """One element of the group: reflect where asked, then rotate, then swap start and goal where asked.

    Attributes:
        turns: quarter turns counter-clockwise, 0 to 3.
        reflected: whether left and right are exchanged before the turns.
        swapped: whether start and goal are exchanged.

    Raises:
        ValueError: turns outside of 0..3.
    """

    turns: int = 0
    reflected: bool = False
    swapped: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.turns, bool) or self.turns not in (0, 1, 2, 3):
            raise ValueError(f"turns must be 0, 1, 2 or 3 quarter turns, got {self.turns!r}: take it modulo 4")

    def compose(self, first: "Transform") -> "Transform":
        """Return the element that applies ``first`` and then this one."""
        turns = -first.turns if self.reflected else first.turns
        return Transform(
            turns=(self.turns + turns) % 4,
            reflected=self.reflected != first.reflected,
            swapped=self.swapped != first.swapped,
        )

    def inverse(self) -> "Transform":
        """Return the element that undoes this one."""
        turns = self.turns if self.reflected else -self.turns % 4
        return Transform(turns=turns, reflected=self.reflected, swapped=self.swapped)

    def grid(self, grid: Grid) -> Grid:
        """Return the transformed grid.

        Raises:
            ValueError: start and goal are to be swapped, but the grid hides one of them or has a locked door, behind
                which the key may come to lie.
        """
        objects = grid.objects
        if self.swapped:
            if grid.door is not None:
                raise ValueError(
                    f"start and goal can be swapped only without a locked door, got one at {grid.door}: "
                    "the key could then lie behind it; swap the grid without the door instead"
                )
            if grid.start is None or grid.goal is None:
                lacking = "agent (A)" if grid.start is None else "goal (G)"
                raise ValueError(
                    f"start and goal can be swapped only where both are shown, got a grid without {lacking}"
                )
            objects |= {"start": grid.goal, "goal": grid.start}
        moved = {name: self.position(cell, grid.walls.shape) for name, cell in objects.items() if cell is not None}
        return Grid(walls=self.field(grid.walls), fog=None if grid.fog is None else self.field(grid.fog), **moved)

    def position(self, cell: Position, shape: Sequence[int]) -> Position:
        """Return the new position of a cell ``(row, col)`` of an ``(H, W)`` grid.

        Raises:
            ValueError: the cell lies outside of the grid.
        """
        (row, col), (height, width) = check_inside(cell, shape), shape
        if self.reflected:
            col = width - 1 - col
        for _ in range(self.turns):
            row, col, height, width = width - 1 - col, row, width, height
        return row, col

    def action(self, action: Action) -> Action:
        """Return the action of the transformed grid that corresponds to ``action``."""
        down, right = action.delta
        if self.reflected:
            right = -right
        for _ in range(self.turns):
            down, right = -right, down
        return _BY_DELTA[down, right]

    def path(self, actions: Sequence[Action]) -> tuple[Action, ...]:
        """Return the path of the transformed grid that runs over the same cells.

        A path from start to goal without bumps stays one: where start and goal are swapped, it is walked backwards.
        """
        moved = [self.action(action) for action in actions]
        return tuple(action.opposite for action in reversed(moved)) if self.swapped else tuple(moved)

    def field(self, values: npt.NDArray[Any], rows: int = -2) -> npt.NDArray[Any]:
        """Return an array over cells, moved to the cells' new positions.

        Args:
            values: ``[..., H, W]``.
            rows: axis of the rows, counted from the end, where axes stand behind the columns.

        Raises:
            ValueError: fewer axes.
        """
        if values.ndim < -rows:
            raise ValueError(f"an array over cells must have shape [..., H, W], got {list(values.shape)}")
        if self.reflected:
            values = np.flip(values, axis=rows + 1)
        return np.ascontiguousarray(np.rot90(values, self.turns, axes=(rows, rows + 1)))

    def policy(self, policy: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a policy or optimal sets in the transformed grid.

        Swapping start and goal moves no cell and turns no action, so it leaves the array as it is; what is optimal
        for the old goal is not so for the new one and has to be solved anew.

        Args:
            policy: ``[..., H, W, 4]`` by cell, or ``[4]`` for one state.

        Raises:
            ValueError: another shape.
        """
        if policy.ndim in (0, 2) or policy.shape[-1] != len(ACTIONS):
            raise ValueError(f"a policy must have shape [..., H, W, 4] or [4], got {list(policy.shape)}")
        moved = policy if policy.ndim == 1 else self.field(policy, -3)
        undo = self.inverse()
        return np.ascontiguousarray(moved[..., [undo.action(action) for action in ACTIONS]])


_BY_DELTA = {action.delta: action for action in ACTIONS}
IDENTITY = Transform()
TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "identity": IDENTITY,
        "reflect": Transform(reflected=True),
        "rotate": Transform(turns=1),
        "transpose": Transform(turns=1, reflected=True),
        "swap": Transform(swapped=True),
    }
)
"""The named elements: left-right reflection, a quarter turn counter-clockwise, transposition, start-goal swap."""


def transform(grid: Grid, name: str) -> Grid:
    """Return a grid transformed by name.

    Args:
        grid: any grid, also one that is not square or lies under fog.
        name: "identity", "reflect" (left-right), "rotate" (90 degrees counter-clockwise, as `numpy.rot90`),
            "transpose" or "swap" (start and goal).

    Raises:
        ValueError: an unknown name, or a swap on a grid with a locked door or without start or goal.
    """
    if name not in TRANSFORMS:
        raise ValueError(f"a transform must be one of {', '.join(TRANSFORMS)}, got {name!r}")
    return TRANSFORMS[name].grid(grid)
