"""What a probe of the grid must say: the true class of every cell at every step, and which grids it is tested on.

The grid is the cluster of every interval: the functions at the end group steps by grid.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.checks import check_shape, freeze
from goalscope.probing.probe import AGENT, FRAME, GOAL, OPEN, PADDING, WALL, Features
from goalscope.rng import stream
from goalscope.runs import Episode
from goalscope.stats.estimate import factorize
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Grid

_ARRAYS = ("labels", "shape", "density", "episode_id", "step", "grid_id", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """The true classes of the cells of a frame at N steps, row by row with activations.

    Attributes:
        frame: side of the square that grids are padded to, right and bottom.
        labels: ``[N, frame * frame]`` int8, places in `CLASSES`, cells by row.
        shape: ``[N, 2]`` int64, height and width of the grid.
        density: ``[N]`` float64, wall density that the world was made with, NaN where it is not known.
        episode_id: ``[N]`` text.
        step: ``[N]`` int64.
        grid_id: ``[N]`` text, the cluster.
        reasoning: ``[N]`` text, what was written before the answer, "" without any.

    Raises:
        ValueError: arrays that do not fit, or a grid that is larger than the frame.
    """

    frame: int
    labels: npt.NDArray[np.int8]
    shape: npt.NDArray[np.int64]
    density: npt.NDArray[np.float64]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    grid_id: npt.NDArray[np.object_]
    reasoning: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        sizes = check_shape("labels", self.labels, "N C", {"C": self.frame**2})
        check_shape("shape", self.shape, "N 2", sizes)
        for name in ("density", "episode_id", "step", "grid_id", "reasoning"):
            check_shape(name, getattr(self, name), "N", sizes)
        if len(self.shape) and (self.shape.min() < 1 or self.shape.max() > self.frame):
            raise ValueError(
                f"grids must fit into a frame of {self.frame} x {self.frame}, got shapes from {self.shape.min()} to "
                f"{self.shape.max()}: use a larger frame"
            )
        for name in _ARRAYS:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.step)

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the steps, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        return replace(self, **{name: getattr(self, name)[mask] for name in _ARRAYS})

    def framed(self, frame: int) -> Self:
        """Return the same grids in a frame of another size, e.g. their own for a probe of one size.

        Raises:
            ValueError: a grid does not fit.
        """
        if len(self.shape) and self.shape.max() > frame:
            raise ValueError(f"grids must fit into a frame of {frame} x {frame}, got one of {self.shape.max()}")
        square = np.full((len(self), frame, frame), PADDING, dtype=np.int8)
        least = min(frame, self.frame)
        square[:, :least, :least] = self.labels.reshape(-1, self.frame, self.frame)[:, :least, :least]
        return replace(self, frame=frame, labels=square.reshape(len(self), frame * frame))

    def inside(self) -> npt.NDArray[np.bool_]:
        """Return which cells belong to the grid, ``[N, C]``: all but the padding."""
        return self._rows(0)

    def interior(self) -> npt.NDArray[np.bool_]:
        """Return which cells belong to the grid and not to its outermost ring, ``[N, C]``."""
        return self._rows(1)

    def _rows(self, edge: int) -> npt.NDArray[np.bool_]:
        along = np.arange(self.frame)
        row = (along >= edge) & (along < self.shape[:, :1] - edge)
        col = (along >= edge) & (along < self.shape[:, 1:] - edge)
        found: npt.NDArray[np.bool_] = (row[:, :, None] & col[:, None, :]).reshape(len(self), -1)
        return found

    def check_aligned(self, features: Activations | Features) -> None:
        """Raise a ValueError unless these are the same steps in the same order; names the first that differs."""
        if len(features) != len(self):
            raise ValueError(f"activations must belong to the {len(self)} steps of the labels, got {len(features)}")
        other = (features.episode_id != self.episode_id) | (features.step != self.step)
        if other.any():
            at = int(np.argmax(other))
            raise ValueError(
                f"activations must belong to the same steps as the labels, got {features.episode_id[at]} step "
                f"{features.step[at]} where the labels have {self.episode_id[at]} step {self.step[at]}"
            )


def label_grid(grid: Grid, frame: int = FRAME) -> npt.NDArray[np.int8]:
    """Return the class of each cell of a frame, ``[frame, frame]`` int8.

    A key lies on an open cell, a locked door is a wall, a goal beneath the agent is the agent.

    Raises:
        ValueError: the grid does not fit into the frame.
    """
    if max(grid.height, grid.width) > frame:
        raise ValueError(f"a grid must fit into a frame of {frame} x {frame}, got {grid.height} x {grid.width}")
    labels = np.full((frame, frame), PADDING, dtype=np.int8)
    labels[: grid.height, : grid.width] = np.where(grid.walls, WALL, OPEN)
    for cell, label in ((grid.door, WALL), (grid.goal, GOAL), (grid.start, AGENT)):
        if cell is not None:
            labels[cell] = label
    return labels


def label_cells(activations: Activations, episodes: Iterable[Episode], *, frame: int = FRAME) -> Cells:
    """Return the true classes of all cells at the steps of some activations, in their order.

    The truth is the whole grid in the state of the step, under fog too: what is hidden is what beliefs are about.

    Args:
        activations: the steps.
        episodes: the run's episodes, e.g. ``store.episodes()``; read once.
        frame: side of the square that grids are padded to.

    Raises:
        ValueError: a step is not among the episodes, or a grid does not fit into the frame.
    """
    count = len(activations)
    labels = np.full((count, frame * frame), PADDING, dtype=np.int8)
    density = np.full(count, np.nan)
    reasoning = np.full(count, "", dtype=object)
    for row, episode, number in steps_of(activations, episodes):
        one, made = episode.steps[number], episode.world.tags.get("density")
        labels[row] = label_grid(shown(episode.world.grid, one.state), frame).ravel()
        density[row] = float(made) if isinstance(made, int | float) else np.nan
        reasoning[row] = one.reasoning or ""
    return Cells(
        frame=frame,
        labels=labels,
        shape=activations.shape,
        density=density,
        episode_id=activations.episode_id,
        step=activations.step,
        grid_id=activations.grid_id,
        reasoning=reasoning,
    )


def steps_of(wanted: Activations | Cells, episodes: Iterable[Episode]) -> Iterator[tuple[int, Episode, int]]:
    """Return row, episode and number of every step that is wanted; episodes are read once, in their own order.

    Args:
        wanted: the steps.
        episodes: the run's episodes, others among them.

    Raises:
        ValueError: a step that is not among the episodes.
    """
    rows: dict[str, list[int]] = {}
    for at, identity in enumerate(wanted.episode_id.tolist()):
        rows.setdefault(identity, []).append(at)
    for episode in episodes:
        for row in rows.pop(episode.id, ()):
            number = int(wanted.step[row])
            if not 0 <= number < len(episode.steps):
                raise ValueError(f"a step must be among its episode's, {episode.id} has no {number}")
            yield row, episode, number
    if rows:
        raise ValueError(
            f"all steps must be among the episodes, {len(rows)} episodes are not, {next(iter(rows))} among them: give "
            "the episodes of the run that was captured"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Which of N steps a probe is trained on and which it is tested on.

    Attributes:
        train, test: ``[N]`` bool; no step is in both, and no grid.
        grid_id: ``[N]`` text.

    Raises:
        ValueError: one part is empty, a step is in both, or a grid has steps in both.
    """

    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    grid_id: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        sizes = check_shape("train", self.train, "N")
        check_shape("test", self.test, "N", sizes)
        check_shape("grid_id", self.grid_id, "N", sizes)
        for name in ("train", "test"):
            if not getattr(self, name).any():
                raise ValueError(f"the {name} part of a split must have steps, it has none: give more grids")
        both = set(self.grid_id[self.train].tolist()) & set(self.grid_id[self.test].tolist())
        if both:
            raise ValueError(f"a grid must be in one part of a split only, got {min(both)} in both: split by grid")
        for name in ("train", "test", "grid_id"):
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def check_aligned(self, cells: Cells) -> None:
        """Raise a ValueError unless this is a split of the steps of the cells."""
        if not np.array_equal(self.grid_id, cells.grid_id):
            raise ValueError("the split must be one of the same steps as the labels, its grids are others")


def split_by_grid(cells: Cells, *, test: float = 0.25, seed: int = 0) -> Split:
    """Return a split by grid: of every shape and density the same share of grids is tested.

    A grid's part depends on the grids and the seed, not on the order of the steps.

    Args:
        cells: the steps.
        test: share of the grids of each kind that is tested, in (0, 1); at least one where there are two or more.
        seed: root seed.

    Raises:
        ValueError: a share outside of (0, 1), or too few grids for two parts.
    """
    if not 0 < test < 1:
        raise ValueError(f"the tested share must be inside (0, 1), got {test!r}")
    kinds: dict[tuple[str, ...], set[str]] = {}
    first: dict[str, tuple[str, ...]] = {}
    for at, grid in enumerate(cells.grid_id.tolist()):
        # A grid's steps are of one kind; turned versions that share its id stay with the first by order of text.
        kind = (*map(str, sorted(cells.shape[at].tolist())), str(cells.density[at]))
        first[grid] = min(first.get(grid, kind), kind)
    for grid, kind in first.items():
        kinds.setdefault(kind, set()).add(grid)
    tested: set[str] = set()
    for kind, grids in sorted(kinds.items()):
        listed = sorted(grids)
        shuffled = stream(seed, "probe split", *kind).permutation(len(listed))
        share = round(test * len(listed))
        count = min(max(1, share), len(listed) - 1)
        tested |= {listed[index] for index in shuffled[:count]}
    mask = np.fromiter((grid in tested for grid in cells.grid_id.tolist()), dtype=bool, count=len(cells))
    return Split(train=~mask, test=mask, grid_id=cells.grid_id)


def known_walls(cells: Cells, split: Split) -> float:
    """Return the share of the test grids whose wall map stands in the training split too (empty rooms, 7x7 mazes).

    Such grids share no id but their walls: a probe may know them by heart.
    """
    walls = cells.labels == WALL
    seen = {row.tobytes() for row in np.packbits(walls[split.train], axis=1)}
    tested = zip(cells.grid_id[split.test].tolist(), np.packbits(walls[split.test], axis=1), strict=True)
    known = {grid: row.tobytes() in seen for grid, row in tested}
    return sum(known.values()) / len(known)


def grids_of(cells: Cells) -> tuple[npt.NDArray[np.int64], list[Any], dict[str, list[Any]]]:
    """Return the number of each step's grid ``[N]``, the G grids in their order of appearance, and their tags."""
    codes, grids = factorize(cells.grid_id)
    return codes, grids, grid_tags(cells.shape, cells.density, np.unique(codes, return_index=True)[1])


def members(codes: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the steps of each of so many grids, rising, from the number of each step's grid ``[N]``."""
    ends = np.cumsum(np.bincount(codes, minlength=count))
    return np.split(np.argsort(codes, kind="stable"), ends)[:count]


def ratio(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return ``above / below``, ``[G]`` each, NaN where nothing is below the line."""
    found: npt.NDArray[np.float64] = np.full(len(below), np.nan)
    np.divide(above, below, out=found, where=below > 0)
    return found


def grid_tags(
    shape: npt.NDArray[np.int64], density: npt.NDArray[np.float64], first: npt.NDArray[np.int64]
) -> dict[str, list[Any]]:
    """Return the tags size (longer side, cells) and density of G grids, None where it is not known.

    Args:
        shape: ``[N, 2]`` height and width of the grid of each step.
        density: ``[N]`` its wall density, NaN where it is not known.
        first: ``[G]`` index of some step of each grid.
    """
    return {
        "size": shape[first].max(axis=1).tolist(),
        "density": [None if np.isnan(one) else float(one) for one in density[first]],
    }
