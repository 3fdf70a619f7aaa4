"""Activations whose content is known, because it was put there."""

from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.inside.activations import Activations
from goalscope.inside.probing import (
    AGENT,
    GOAL,
    OPEN,
    PADDING,
    WALL,
    Cells,
    DecodedMaps,
    HeadSizes,
    ProbeKey,
    Target,
    find_head,
)

POSITIONS, WIDTH = 3, 40


def key(name: str = "one", head: str = "mlp", target: Target = "cells") -> ProbeKey:
    """Return a key that differs from others by its name."""
    return ProbeKey(head=head, target=target, site=name, layer=1)


def module_of(
    head: str,
    width: int,
    outputs: int = 1,
    classes: int = 1,
    /,
    *,
    positions: int = 1,
    target: Target = "cells",
    **settings: Any,
) -> Any:
    """Return a module of a head."""
    sizes = HeadSizes(positions=positions, width=width, outputs=outputs, classes=classes)
    return find_head(head, target).module(sizes, settings, seed=0)


def cells_of(labels: np.ndarray[Any, Any], steps: int, frame: int, shapes: np.ndarray[Any, Any] | None = None) -> Cells:
    """Wrap labels ``[N, C]``; every ``steps`` rows are one grid."""
    count = len(labels)
    grid = np.array([f"grid-{at // steps:03d}" for at in range(count)], dtype=object)
    return Cells(
        frame=frame,
        labels=labels.astype(np.int8),
        shape=np.full((count, 2), frame) if shapes is None else shapes,
        density=np.full(count, 0.5),
        episode_id=np.array([f"episode-{at // steps:03d}" for at in range(count)], dtype=object),
        step=np.arange(count) % steps,
        cluster=grid,
        reasoning=np.array([f"to (1,{at % 3}) from (2,2): UP" for at in range(count)], dtype=object),
    )


def map_of(walls: np.ndarray[Any, Any], agent: np.ndarray[Any, Any], goal: np.ndarray[Any, Any]) -> DecodedMaps:
    """Return the maps with these walls ``[N, H, W]``."""
    return DecodedMaps(layout=np.where(walls, WALL, OPEN).astype(np.int8), agent=agent, goal=goal)


def half_walls(grids: int = 160, steps: int = 1, frame: int = 5, seed: int = 0) -> Cells:
    """Grids of which exactly half the cells are walls, anywhere: neither place nor number tells anything of a cell.

    One cell is left open beside them, so that open is the more frequent class.
    """
    rng = stream(seed, "half walls")
    count = frame * frame
    labels = np.full((grids, count), OPEN)
    for row in labels:
        row[rng.permutation(count)[: count // 2]] = WALL
    return cells_of(np.repeat(labels, steps, axis=0), steps, frame)


def rooms(grids: int = 40, steps: int = 2, sizes: tuple[int, ...] = (4, 5), frame: int = 5, seed: int = 0) -> Cells:
    """Grids of several sizes with a border, an agent that moves, a goal and padding."""
    rng = stream(seed, "rooms")
    labels = np.full((grids, frame, frame), PADDING)
    every, shapes = [], []
    for at, grid in enumerate(labels):
        size = sizes[at % len(sizes)]
        grid[:size, :size] = WALL
        inner = [(row, col) for row in range(1, size - 1) for col in range(1, size - 1)]
        for cell in inner:
            grid[cell] = OPEN
        for _ in range(steps):
            moved = grid.copy()
            agent, goal = rng.permutation(len(inner))[:2]
            moved[inner[goal]], moved[inner[agent]] = GOAL, AGENT
            every.append(moved.ravel())
            shapes.append((size, size))
    return cells_of(np.array(every), steps, frame, np.array(shapes))


def activations(cells: Cells, vectors: np.ndarray[Any, Any], **changes: Any) -> Activations:
    """Wrap vectors ``[N, 3 * WIDTH]`` as the activations of these steps."""
    count = len(cells)
    places = np.zeros((count, POSITIONS), dtype=np.int64)
    given: dict[str, Any] = {
        "site": "pre",
        "layer": 1,
        "model": "model-trained",
        "vectors": vectors.reshape(count, POSITIONS, -1).astype(np.float32),
        "episode_id": cells.episode_id,
        "step": cells.step,
        "world_id": cells.cluster,
        "cluster": cells.cluster,
        "shape": cells.shape,
        "positions": places,
        "tokens": places,
        "reconstructed": np.zeros(count, dtype=bool),
    }
    return Activations(**(given | changes))


def noise(cells: Cells, seed: int = 0, **changes: Any) -> Activations:
    drawn = stream(seed, "noise").standard_normal((len(cells), POSITIONS * WIDTH))
    return activations(cells, drawn, **changes)


def wall_map(cells: Cells, seed: int = 0, **changes: Any) -> Activations:
    """Encode which cells are walls linearly, mixed at random over all directions and shifted."""
    rng = stream(seed, "wall map")
    mixed = rng.standard_normal((cells.labels.shape[1], POSITIONS * WIDTH))
    walls = (cells.labels == WALL).astype(np.float64)
    return activations(cells, walls @ mixed + 5 * rng.standard_normal(POSITIONS * WIDTH), **changes)
