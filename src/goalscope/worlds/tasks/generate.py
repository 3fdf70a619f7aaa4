"""Task maps at random: nodes at random places of a rectangle, corridors between them.

Source: measuring exploration and exploitation errors, Appendix C.1. Where its text leaves a choice open,
docs/exploration.md says what is done here.
"""

import numpy as np

from goalscope.ids import canonical_json
from goalscope.rng import stream
from goalscope.worlds.tasks.coordinates import Cell, TaskNode
from goalscope.worlds.tasks.optimal import shortest_order
from goalscope.worlds.tasks.sample import sample_graph, tokens
from goalscope.worlds.tasks.spec import PRESETS, TaskSpec
from goalscope.worlds.tasks.taskmap import TaskMap

_MOST_ATTEMPTS = 200


def generate_task_map(spec: TaskSpec | str = "medium-medium", *, seed: int = 0) -> TaskMap:
    """Return the task map of a seed.

    Every map is checked as it is built (connected, no cycle, one sink that every node leads to), and its shortest
    successful walk must fit into the budget; one that does not is drawn again.

    Args:
        spec: what to draw from, or the name of one of `PRESETS`.
        seed: number of the map; the same spec and seed give the same bytes.

    Returns:
        The map; x runs from 0 to width - 1, y from 0 to height - 1, though corridors need not fill the rectangle.

    Raises:
        ValueError: an unknown preset, or a spec none of whose maps fits into its budget (alpha is too small).
    """
    if isinstance(spec, str):
        if spec not in PRESETS:
            raise ValueError(f"a preset must be one of {', '.join(PRESETS)}, got {spec[:60]!r}")
        spec = PRESETS[spec]
    described = canonical_json(spec.plain())
    for attempt in range(_MOST_ATTEMPTS):
        rng = stream(seed, "task map", described, attempt)
        drawn = _draw(spec, rng)
        if drawn is not None and shortest_order(drawn)[0] <= drawn.budget:
            return drawn
    raise ValueError(
        f"a map must have a successful walk within its budget, got none in {_MOST_ATTEMPTS} maps with "
        f"alpha = {spec.alpha}: raise alpha"
    )


def symbolic_twin(task_map: TaskMap, *, seed: int = 0) -> TaskMap:
    """Return the same cells and graph under random names without meaning, the same for the same map and seed."""
    names = tokens(len(task_map.nodes), stream(seed, "symbolic twin", task_map.id))
    return task_map.renamed(dict(zip(task_map.nodes, names, strict=True)))


def _draw(spec: TaskSpec, rng: np.random.Generator) -> TaskMap | None:
    width, height = spec.extent
    graph = sample_graph(spec, rng)
    names = tokens(spec.nodes, rng)
    picked = rng.permutation(width * height)[: spec.nodes + 1]
    start, *places = [(int(index) % width, int(index) // width) for index in picked]
    cells = {start}
    for place in places:
        _carve(cells, place, int(rng.integers(spec.corridor_widths[0], spec.corridor_widths[1] + 1)), spec, rng)
    nodes = {
        names[index]: TaskNode(
            cell=places[index], options=tuple(tuple(names[parent] for parent in option) for option in options)
        )
        for index, options in enumerate(graph)
    }
    if int(spec.alpha * len(cells)) < 1:
        return None
    return TaskMap(cells=sorted(cells), start=start, goal=names[-1], nodes=nodes, alpha=spec.alpha)


def _carve(cells: set[Cell], place: Cell, thickness: int, spec: TaskSpec, rng: np.random.Generator) -> None:
    """Carve a corridor with one bend from the nearest carved cell to a place, some cells wide, inside of the rectangle.

    A corridor of width 2 has its second lane on one side, drawn anew for each; of width 3, one on either side.
    """
    width, height = spec.extent
    ordered = sorted(cells)
    away = [abs(x - place[0]) + abs(y - place[1]) for x, y in ordered]
    nearest = [cell for cell, steps in zip(ordered, away, strict=True) if steps == min(away)]
    x, y = nearest[int(rng.integers(len(nearest)))]
    first = int(rng.integers(2))  # 0: along x first
    lanes = range(-(thickness // 2), thickness - thickness // 2)
    if rng.integers(2):
        lanes = range(1 - thickness + thickness // 2, 1 + thickness // 2)
    xs, ys = sorted((x, place[0])), sorted((y, place[1]))
    row, column = (y, place[0]) if first == 0 else (place[1], x)
    for lane in lanes:
        for along in range(xs[0], xs[1] + 1):
            if 0 <= row + lane < height:
                cells.add((along, row + lane))
        for along in range(ys[0], ys[1] + 1):
            if 0 <= column + lane < width:
                cells.add((column + lane, along))
