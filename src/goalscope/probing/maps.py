"""Decoded maps: the grid that a posterior over the classes of cells speaks of.

The layout has the likeliest class of each cell; the agent and the goal stand where their class is likeliest, and
nowhere else. Whoever made the posterior: a probe, the truth itself, or a belief that was planted.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_distributions, check_shape, freeze
from goalscope.probing.cells import Cells
from goalscope.probing.probe import AGENT, CLASSES, GOAL, OPEN, PADDING, WALL

_ROUNDING = 1e-4  # how far the float32 probabilities of a cell may be from a sum of 1
_PLACED = ("walls", "agent", "goal")
_SYMBOLS = {WALL: "#", OPEN: "_", GOAL: "g", AGENT: "a", PADDING: " "}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedMaps:
    """The maps of N states.

    Attributes:
        layout: ``[N, H, W]`` int8, likeliest class of each cell, a place in `CLASSES`; the first of equals.
        agent, goal: ``[N, 2]`` int64, (row, col) where an agent and a goal are likeliest; the first of equals by row.

    Raises:
        ValueError: arrays that do not fit one another.
    """

    layout: npt.NDArray[np.int8]
    agent: npt.NDArray[np.int64]
    goal: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        sizes = check_shape("layout", self.layout, "N H W")
        for name in ("agent", "goal"):
            check_shape(name, getattr(self, name), "N 2", sizes)
        for name in ("layout", "agent", "goal"):
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def closed(self) -> npt.NDArray[np.bool_]:
        """``[N, H, W]`` bool, cells where nobody can stand: walls, and what lies outside of the grid."""
        found: npt.NDArray[np.bool_] = (self.layout == WALL) | (self.layout == PADDING)
        return found

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the maps, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        return type(self)(layout=self.layout[mask], agent=self.agent[mask], goal=self.goal[mask])

    def text(self, index: int) -> tuple[str, ...]:
        """Return one map as lines of symbols: # wall, _ open, blank padding, A and G where agent and goal are decoded.

        Other cells whose likeliest class is agent or goal are a and g; an agent and a goal in one cell are G.
        """
        lines = [[_SYMBOLS[int(label)] for label in row] for row in self.layout[index]]
        for symbol, cell in (("A", self.agent[index]), ("G", self.goal[index])):
            lines[int(cell[0])][int(cell[1])] = symbol
        return tuple("".join(line) for line in lines)


def decode_maps(posterior: npt.ArrayLike) -> DecodedMaps:
    """Return the maps that posteriors speak of.

    Args:
        posterior: ``[N, H, W, K]`` probabilities of the K classes of `CLASSES` in each cell, e.g. a reading of a
            `Prediction` of a frame n as ``[N, n, n, K]``.

    Raises:
        ValueError: no probabilities, or a state without any chance of an agent or of a goal.
    """
    given = check_posterior(posterior)
    width = given.shape[2]
    cells = [np.divmod(likeliest(given, label, 1)[:, 0], width) for label in (AGENT, GOAL)]
    return DecodedMaps(
        layout=given.argmax(axis=3).astype(np.int8),
        agent=np.stack(cells[0], axis=1),
        goal=np.stack(cells[1], axis=1),
    )


def likeliest(posterior: npt.NDArray[Any], label: int, count: int) -> npt.NDArray[np.int64]:
    """Return the cells in which a class is likeliest, ``[N, count]`` int64 ``row * W + col``, the likeliest first.

    Args:
        posterior: ``[N, H, W, K]``.
        label: the class.
        count: how many cells; all of them where there are fewer.
    """
    chance = posterior[..., label].reshape(len(posterior), -1)
    found: npt.NDArray[np.int64] = np.argsort(-chance, axis=1, kind="stable")[:, :count].astype(np.int64)
    return found


def place_weights(posterior: npt.NDArray[Any], label: int) -> npt.NDArray[np.float64]:
    """Return how likely the one agent or goal stands in each cell, ``[N, H * W]``: the class's chances, scaled to 1."""
    chance = posterior[..., label].reshape(len(posterior), -1).astype(np.float64)
    weights: npt.NDArray[np.float64] = chance / chance.sum(axis=1, keepdims=True)
    return weights


def one_hot(labels: npt.NDArray[Any], frame: int) -> npt.NDArray[np.float32]:
    """Return the posterior ``[N, frame, frame, K]`` of somebody who is certain of these classes.

    Args:
        labels: ``[N, frame * frame]`` places in `CLASSES`, e.g. ``Cells.labels``.
        frame: side of the square.
    """
    certain = np.eye(len(CLASSES), dtype=np.float32)[np.asarray(labels, dtype=np.int64)]
    return certain.reshape(len(labels), frame, frame, len(CLASSES))


def check_posterior(posterior: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a posterior as an array of numbers.

    Raises:
        ValueError: another shape than ``[N, H, W, K]``, no probabilities, or a state in which no cell has any chance of
            being the agent's or the goal's.
    """
    given = np.asarray(posterior)
    check_shape("posterior", given, "N H W K", {"K": len(CLASSES)})
    if not np.issubdtype(given.dtype, np.floating):
        given = given.astype(np.float64)
    check_distributions("posterior", given, tolerance=_ROUNDING)
    for label in (AGENT, GOAL):
        lost = ~(given[..., label] > 0).any(axis=(1, 2))
        if lost.any():
            raise ValueError(
                f"every state must have some cell with a chance of class {CLASSES[label]}, state "
                f"{int(np.argmax(lost))} has none: leave the states out in which it is not shown, or train the probe "
                "on states that show it"
            )
    return given


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layouts:
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
        for name in _PLACED:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.agent)

    @classmethod
    def of(cls, decoded: DecodedMaps) -> Self:
        """Return the layouts of decoded maps: walls and padding are closed."""
        return cls(walls=decoded.closed, agent=decoded.agent, goal=decoded.goal)

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the states, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        return type(self)(**{name: getattr(self, name)[mask] for name in _PLACED})

    @property
    def manhattan(self) -> npt.NDArray[np.int64]:
        """Cells between agent and goal, rows and columns added, ``[N]``; walls count for nothing."""
        found: npt.NDArray[np.int64] = np.abs(self.agent.astype(np.int64) - self.goal).sum(axis=1)
        return found


def true_map(cells: Cells) -> Layouts:
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
    return Layouts(walls=walls, **found)
