"""What a map says where things are: the seam between decoded (or true) maps and what is planned or measured on them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from goalscope.probing.cells import Cells
from goalscope.probing.probe import AGENT, GOAL, PADDING, WALL
from goalscope.shapes import check_shape, freeze

if TYPE_CHECKING:
    from goalscope.probing.maps import DecodedMaps

_ARRAYS = ("walls", "agent", "goal")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapReading:
    """The layouts of N states as some map has them.

    Attributes:
        walls: ``[N, H, W]`` bool, True where nobody can stand (walls, and the padding of smaller grids).
        agent, goal: ``[N, 2]`` int64, (row, col) inside of the frame. Both cells count as passable.

    Raises:
        ValueError: arrays that do not fit, or a cell outside of the frame.
    """

    walls: npt.NDArray[np.bool_]
    agent: npt.NDArray[np.int64]
    goal: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        sizes = check_shape("walls", self.walls, "N H W")
        if self.walls.dtype != np.bool_:
            raise ValueError(f"walls must be bool, got {self.walls.dtype}")
        for name in ("agent", "goal"):
            cells = getattr(self, name)
            check_shape(name, cells, "N 2", sizes)
            if not np.issubdtype(cells.dtype, np.integer):
                raise ValueError(f"{name} must be whole numbers (row, col), got {cells.dtype}")
            if len(cells) and ((cells < 0) | (cells >= self.walls.shape[1:])).any():
                raise ValueError(f"{name} must lie inside of the frame {list(self.walls.shape[1:])}, got one outside")
        for name in _ARRAYS:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.agent)

    @classmethod
    def of(cls, decoded: "DecodedMaps") -> Self:
        """Return the layouts of decoded maps: walls and padding are closed."""
        return cls(walls=decoded.closed, agent=decoded.agent, goal=decoded.goal)

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the states, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        return type(self)(**{name: getattr(self, name)[mask] for name in _ARRAYS})

    @property
    def manhattan(self) -> npt.NDArray[np.int64]:
        """Cells between agent and goal, rows and columns added, ``[N]``; walls count for nothing."""
        found: npt.NDArray[np.int64] = np.abs(self.agent.astype(np.int64) - self.goal).sum(axis=1)
        return found


def true_map(cells: Cells) -> MapReading:
    """Return the true layouts of the labelled states; a locked door is a wall.

    Raises:
        ValueError: a state without agent or goal; names it.
    """
    found = {}
    for name, label in (("agent", AGENT), ("goal", GOAL)):
        mask = cells.labels == label
        missing = ~mask.any(axis=1)
        if missing.any():
            at = int(np.argmax(missing))
            raise ValueError(f"a map must show its {name}, it does not at {cells.episode_id[at]} step {cells.step[at]}")
        place = mask.argmax(axis=1)
        found[name] = np.stack([place // cells.frame, place % cells.frame], axis=1)
    walls = np.isin(cells.labels, (WALL, PADDING)).reshape(-1, cells.frame, cells.frame)
    return MapReading(walls=walls, **found)
