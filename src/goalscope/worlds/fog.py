"""Fog: which cells the agent can see from its cell, and which it has seen so far.

The agent sees a cell if the cell lies within the radius, counted in steps (Manhattan distance), and if no wall, locked
door or solid thing lies on Bresenham's line between the two. It also sees the wall that blocks a line. Cells that were
seen once stay visible.

The paper gives a radius of 3 and one picture (Fig. 11), but does not say which distance it uses. Some path reproduces
the picture with the Manhattan distance, which we therefore use; no path does with the Euclidean or Chebyshev distance,
however lines are rounded. Where a line runs exactly between two cells, it takes the cell nearer to the agent's own row
or column, as Bresenham's algorithm does when it starts at the agent. Reflecting or rotating a grid therefore reflects
or rotates what the agent sees.

Source: behavioural and representational evaluation, Appendix A and Fig. 11.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape, check_whole, freeze
from goalscope.worlds.dynamics import initial_state, solid_cells
from goalscope.worlds.grid import Grid, Position, check_inside

_RADIUS = "a radius of sight"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fog:
    """What one agent has seen so far of one grid whose other cells are hidden by fog.

    Attributes:
        solid: ``[H, W]`` bool, rows by columns, the cells that block the view at the start: walls, a locked door, and
            solid things.
        radius: radius of sight in steps.
        seen: ``[H, W]`` bool, the cells seen so far.

    Raises:
        ValueError: if the arrays differ in shape, or the radius is not a whole number >= 1.
    """

    solid: npt.NDArray[np.bool_]
    radius: int
    seen: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        check_whole(_RADIUS, self.radius, 1, "steps")
        if self.solid.ndim != 2 or self.seen.shape != self.solid.shape:  # cheap test first: every move makes a `Fog`
            check_shape("seen", self.seen, "H W", check_shape("solid", self.solid, "H W"))
        object.__setattr__(self, "solid", freeze(self.solid))
        object.__setattr__(self, "seen", freeze(self.seen))

    @classmethod
    def start(cls, grid: Grid, radius: int = 3) -> "Fog":
        """Return the fog at the start of an episode, after the agent's first look around.

        Args:
            grid: the whole world, without fog.
            radius: radius of sight in steps.

        Raises:
            ValueError: if the grid shows no agent, or has fog already.
        """
        if grid.start is None or grid.fog is not None:
            description = "one under fog" if grid.fog is not None else "one without an agent (A)"
            raise ValueError(f"fog needs the whole grid with its agent to start from, got {description}")
        solid = solid_cells(grid, initial_state(grid))
        return cls(solid=solid, radius=radius, seen=np.zeros_like(grid.walls)).look(grid.start)

    def look(self, position: Position, solid: npt.NDArray[np.bool_] | None = None) -> "Fog":
        """Return the fog after the agent has looked around from another cell.

        Args:
            position: cell of the agent, (row, col).
            solid: ``[H, W]`` bool, the cells that block the view now, see `goalscope.worlds.dynamics.solid_cells`; by
                default those of the start.
        """
        seen = self.seen | visible(self.solid if solid is None else solid, position, self.radius)
        return Fog(solid=self.solid, radius=self.radius, seen=seen)

    def view(self, grid: Grid) -> Grid:
        """Return what the agent sees of a grid: the same grid with all unseen cells hidden, including objects in them.

        Args:
            grid: the whole grid in its current state, with the agent at its cell.

        Raises:
            ValueError: if the grid has another shape, or the agent's own cell is unseen.
        """
        check_shape("grid", grid.walls, "H W", check_shape("solid", self.solid, "H W"))
        if grid.start is not None and not self.seen[grid.start]:
            raise ValueError(
                f"the agent's own cell must have been seen, got {grid.start}: call look({grid.start}) first"
            )
        visible_objects = {name: cell for name, cell in grid.objects.items() if cell is not None and self.seen[cell]}
        things = tuple(entry for entry in grid.things if self.seen[entry[0]])
        return Grid(walls=grid.walls & self.seen, fog=~self.seen, things=things, held=grid.held, **visible_objects)


def visible(walls: npt.NDArray[np.bool_], position: Position, radius: int = 3) -> npt.NDArray[np.bool_]:
    """Return the cells that can be seen from one cell.

    Args:
        walls: ``[H, W]`` bool, the cells that block the view: walls and a locked door.
        position: cell of the agent, (row, col).
        radius: radius of sight in steps.

    Returns:
        ``[H, W]`` bool; the agent always sees its own cell.

    Raises:
        ValueError: the position lies outside the grid, or the radius is not a whole number >= 1.
    """
    (row, col), (height, width) = check_inside(position, walls.shape), walls.shape
    stride = width + 2 * check_whole(_RADIUS, radius, 1, "steps")
    padded = np.zeros((height + 2 * radius, stride), dtype=bool)
    padded[radius:-radius, radius:-radius] = walls
    return _trace(padded, (row + radius) * stride + col + radius, radius)


def visible_batch(
    walls: npt.NDArray[np.bool_], position: npt.NDArray[np.integer], radius: int = 3
) -> npt.NDArray[np.bool_]:
    """Return the cells that N agents can see, each in its own grid of the same shape.

    Args:
        walls: ``[N, H, W]`` bool, grids by rows by columns: the cells that block the view.
        position: ``[N, 2]`` cell of each agent, (row, col), inside the grid.
        radius: radius of sight in steps.

    Returns:
        ``[N, H, W]`` bool, true where the agent can see the cell.
    """
    count, height, width = walls.shape
    stride = width + 2 * check_whole(_RADIUS, radius, 1, "steps")
    padded = np.zeros((count, height + 2 * radius, stride), dtype=bool)
    padded[:, radius:-radius, radius:-radius] = walls
    rows = np.arange(count) * (height + 2 * radius) + position[:, 0] + radius
    return _trace(padded, (rows * stride + position[:, 1] + radius)[:, None], radius)


def _trace(padded: npt.NDArray[np.bool_], cell: int | npt.NDArray[np.int64], radius: int) -> npt.NDArray[np.bool_]:
    """Return the cells visible from one or many (``[N, 1]``) flat cell indices, in grids padded by the radius.

    ``padded`` contains the cells that block the view, and is overwritten.
    """
    offsets, between = _lines(radius, padded.shape[-1])
    flat = padded.reshape(-1)
    flat[cell] = False  # the agent's own cell never blocks its view
    blocked = flat[between[0] + cell]
    for blocking in between[1:]:
        blocked |= flat[blocking + cell]
    padded[...] = False
    flat[offsets + cell] = ~blocked
    return padded[..., radius:-radius, radius:-radius]


@cache
def _lines(radius: int, stride: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return flat offsets of the K cells within the radius, ``[K]``, and of the cells on the way there, ``[M, K]``.

    Lines with fewer than M cells repeat their first cell. A line without cells in between has offset 0 (the agent's
    cell).
    """
    offsets, lines = [], []
    longest = max(1, radius - 1)
    for down in range(-radius, radius + 1):
        for right in range(abs(down) - radius, radius - abs(down) + 1):
            steps = max(abs(down), abs(right))
            cells = [_nearest(step * down, steps) * stride + _nearest(step * right, steps) for step in range(1, steps)]
            offsets.append(down * stride + right)
            lines.append(cells + [cells[0] if cells else 0] * (longest - len(cells)))
    return freeze(np.array(offsets)), freeze(np.ascontiguousarray(np.array(lines).T))


def _nearest(numerator: int, denominator: int) -> int:
    """Round a fraction to the nearest whole number, with halves rounded towards 0."""
    size = (2 * abs(numerator) + denominator - 1) // (2 * denominator)
    return size if numerator >= 0 else -size
