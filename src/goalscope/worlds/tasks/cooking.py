"""Cooking maps with meaningful names, and twins of any map whose names have no meaning.

A symbolic twin has the same cells and graph as its original, but other names. Comparing the two shows what the meaning
of names contributes.

Source: measuring exploration and exploitation errors, Section 6 and Appendix E; kitchens, dishes and graphs are ours.
"""

from functools import cache
from typing import Any

import yaml

from goalscope._ground.folder import package_text
from goalscope._ground.rng import stream
from goalscope.worlds.tasks.coordinates import Frame, TaskNode
from goalscope.worlds.tasks.generate import random_names
from goalscope.worlds.tasks.taskmap import TaskMap

COOKING = ("mushroom-risotto", "lentil-soup", "berry-tart", "vegetable-dumplings")
"""Names of the four small cooking maps, of 26 to 39 cells."""
WIDE_COOKING = tuple(f"wide-{name}" for name in COOKING)
"""Names of maps with the same dishes on 72 cells, whose budgets are large enough for the paper's step counts."""


def symbolic_twin(task_map: TaskMap, *, seed: int = 0) -> TaskMap:
    """Return a map with the same cells and graph but random names; the same map and seed give the same names."""
    names = random_names(len(task_map.nodes), stream(seed, "symbolic twin", task_map.id))
    return task_map.renamed(dict(zip(task_map.nodes, names, strict=True)))


def cooking_map(name: str, *, symbolic: bool = False) -> TaskMap:
    """Return one of the cooking maps.

    Args:
        name: one of `COOKING` or `WIDE_COOKING`.
        symbolic: whether to return the twin whose names have no meaning.

    Raises:
        ValueError: the name is unknown.
    """
    valid = (*COOKING, *WIDE_COOKING)
    if name not in valid:
        raise ValueError(f"a cooking map must be one of {', '.join(valid)}, got {name[:60]!r}")
    kitchen = _kitchens()[name.removeprefix("wide-")]
    rows = kitchen["map" if name in COOKING else "wide"].split()
    frame = Frame(left=0, top=len(rows) - 1, width=len(rows[0]), height=len(rows))
    signs = {
        frame.cell((row, col)): sign for row, line in enumerate(rows) for col, sign in enumerate(line) if sign != "#"
    }
    cells = {sign: cell for cell, sign in signs.items()}
    title = {letter: names[0] for letter, names in kitchen["nodes"].items()}
    nodes = {
        title[letter]: TaskNode(cell=cells[letter], options=tuple(tuple(map(title.__getitem__, each)) for each in sets))
        for letter, (_, *sets) in kitchen["nodes"].items()
    }
    task_map = TaskMap(cells=list(signs), start=cells["@"], goal=title["F"], nodes=nodes)
    return symbolic_twin(task_map) if symbolic else task_map


@cache
def _kitchens() -> dict[str, Any]:
    return dict(yaml.safe_load(package_text("goalscope.worlds.tasks", "cooking.yaml")))
