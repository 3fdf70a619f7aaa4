"""Transformations that preserve a world's difficulty: reflection, rotation, transposition, swapping start and goal.

They generate a group of 16 elements: the eight symmetries of the square, with or without the swap. The group acts on
grids, cells, actions, paths and arrays over cells.

Source: behavioural and representational evaluation, section 4.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.worlds.dynamics import State
from goalscope.worlds.grid import ACTIONS, Action, Grid, Position, check_inside
from goalscope.worlds.things import arrangement_of, known_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A transformation that keeps a grid equally hard: a symmetry of the square, possibly with start and goal
    exchanged.

    The grid is first reflected or not, then rotated, and then start and goal are swapped or not.

    Attributes:
        turns: number of quarter turns counter-clockwise, 0 to 3.
        reflected: whether left and right are exchanged before the turns.
        swapped: whether start and goal are exchanged.

    Raises:
        ValueError: if ``turns`` is not 0, 1, 2 or 3.
    """

    turns: int = 0
    reflected: bool = False
    swapped: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.turns, bool) or self.turns not in (0, 1, 2, 3):
            raise ValueError(f"turns must be 0, 1, 2 or 3 quarter turns, got {self.turns!r}: take it modulo 4")

    def compose(self, first: "Transform") -> "Transform":
        """Return the transformation that has the effect of applying ``first`` and then this one."""
        turns = -first.turns if self.reflected else first.turns
        return Transform(
            turns=(self.turns + turns) % 4,
            reflected=self.reflected != first.reflected,
            swapped=self.swapped != first.swapped,
        )

    def inverse(self) -> "Transform":
        """Return the transformation that undoes this one."""
        turns = self.turns if self.reflected else -self.turns % 4
        return Transform(turns=turns, reflected=self.reflected, swapped=self.swapped)

    def grid(self, grid: Grid) -> Grid:
        """Apply this transformation to a grid, and return the new grid.

        Raises:
            ValueError: if start and goal are to be swapped, but the grid does not show both, or has a locked door (the
                swap could put the key behind it) or things.
        """
        objects = grid.objects
        if self.swapped:
            if grid.door is not None or grid.things:
                raise ValueError(
                    "start and goal can be swapped only without a locked door and without things, since the key could "
                    "then lie behind a door: use another transform, or swap the grid without them"
                )
            if grid.start is None or grid.goal is None:
                lacking = "agent (A)" if grid.start is None else "goal (G)"
                raise ValueError(
                    f"start and goal can be swapped only if the grid shows both, got a grid without its {lacking}"
                )
            objects |= {"start": grid.goal, "goal": grid.start}
        moved = {name: self.position(cell, grid.walls.shape) for name, cell in objects.items() if cell is not None}
        things = [
            (self.position(cell, grid.walls.shape), known_kind(kind).turned(self.action)) for cell, kind in grid.things
        ]
        fog = None if grid.fog is None else self.field(grid.fog)
        return Grid(walls=self.field(grid.walls), fog=fog, things=tuple(things), held=grid.held, **moved)

    def position(self, cell: Position, shape: Sequence[int]) -> Position:
        """Return the cell (row, col) of the transformed grid to which a cell of an ``(H, W)`` grid moves.

        Raises:
            ValueError: if the cell lies outside the grid.
        """
        (row, col), (height, width) = check_inside(cell, shape), shape
        if self.reflected:
            col = width - 1 - col
        for _ in range(self.turns):
            row, col, height, width = width - 1 - col, row, width, height
        return row, col

    def state(self, grid: Grid, state: State) -> State:
        """Return the state in the transformed grid that corresponds to a state in the original grid.

        Args:
            grid: the original grid.
            state: the state in the original grid.
        """
        number = state.things
        if grid.things:
            before, after = arrangement_of(grid.things, grid.held), self.grid(grid).things
            parts, cells = before.unpack(number), [self.position(cell, grid.walls.shape) for cell, _ in grid.things]
            moved = [parts[cells.index(cell)] for cell, _ in after]
            number = arrangement_of(after, grid.held).pack((*moved, *parts[len(moved) :]))
        position = self.position(state.position, grid.walls.shape)
        return State(position, state.carrying_key, state.door_open, number)

    def action(self, action: int) -> Action:
        """Return the action in the transformed grid that corresponds to an action in the original grid."""
        down, right = Action(action).delta
        if self.reflected:
            right = -right
        for _ in range(self.turns):
            down, right = -right, down
        return _BY_DELTA[down, right]

    def path(self, actions: Sequence[Action]) -> tuple[Action, ...]:
        """Return the moves in the transformed grid that visit the same cells as a sequence of moves in the original
        grid.

        Moves that lead from start to goal without bumping into walls still lead from start to goal: if start and
        goal are swapped, the path is walked backwards.
        """
        moved = [self.action(action) for action in actions]
        return tuple(action.opposite for action in reversed(moved)) if self.swapped else tuple(moved)

    def field(self, values: npt.NDArray[Any], rows: int = -2) -> npt.NDArray[Any]:
        """Return an array of one value per cell, with each value moved to the new position of its cell.

        Args:
            values: ``[..., H, W]``, rows by columns, or with further axes after the columns.
            rows: axis of the rows, counted from the end; -2 if no axes follow the columns.

        Raises:
            ValueError: if the array has too few axes.
        """
        if values.ndim < -rows:
            raise ValueError(f"an array over cells must have shape [..., H, W], got {list(values.shape)}")
        if self.reflected:
            values = np.flip(values, axis=rows + 1)
        return np.ascontiguousarray(np.rot90(values, self.turns, axes=(rows, rows + 1)))

    def policy(self, policy: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the action probabilities, or the marks of optimal actions, in the transformed grid.

        Swapping start and goal moves no cell and turns no action, so it leaves the array unchanged. Optimal actions for
        the old goal are not optimal for the new goal; solve the swapped grid instead.

        Args:
            policy: ``[..., H, W, 4]`` by row, column and action, or ``[4]`` by action for one state.

        Raises:
            ValueError: if the array has another shape.
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
"""Name -> transform: left-right reflection, a quarter turn counter-clockwise, transposition, start-goal swap."""


def transform(grid: Grid, name: str) -> Grid:
    """Return a grid transformed by the named transformation.

    Args:
        grid: any grid; it need not be square and may lie under fog.
        name: "identity", "reflect" (left-right), "rotate" (90 degrees counter-clockwise, as `numpy.rot90`),
            "transpose" or "swap" (start and goal).

    Raises:
        ValueError: the name is unknown, or a grid to be swapped has a locked door or does not show its start and goal.
    """
    if name not in TRANSFORMS:
        raise ValueError(f"a transform must be one of {', '.join(TRANSFORMS)}, got {name!r}")
    return TRANSFORMS[name].grid(grid)
