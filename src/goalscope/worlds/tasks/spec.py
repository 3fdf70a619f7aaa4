"""What task maps are drawn from: all parameters of the paper's generator, and its configurations by name.

Source: measuring exploration and exploitation errors, Appendix C.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

_MOST_SIDE = 300
_MOST_GENERATED_NODES = 20

Shares = tuple[tuple[int, float], ...]
"""(number, probability) pairs of a categorical distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What a generated task map is drawn from.

    Attributes:
        nodes: number of nodes, the goal included, 2 to 20.
        layer_size: most nodes of one layer.
        option_counts: distribution of the number of alternative prerequisite sets of a node.
        dependency_counts: distribution of the number of nodes in each set.
        goal_dependency_counts: the same for the goal, which has one set.
        depth_bias: beta; a parent at depth d of a child at depth D has weight ``exp(-beta * ((D - 1) - d))``.
        density: nodes a cell of the rectangle, which fixes its area; ignored where `size` is given.
        corridor_widths: (least, greatest) width of a corridor in cells; drawn for each corridor.
        aspect_ratio: width over height of the rectangle.
        size: (width, height) in cells, None where the density decides.
        alpha: the budget is ``floor(alpha * |M|)`` actions.

    Raises:
        ValueError: names the attribute and what must hold.
    """

    nodes: int = 6
    layer_size: int = 3
    option_counts: Shares = ((1, 0.8), (2, 0.2))
    dependency_counts: Shares = ((1, 0.5), (2, 0.5))
    goal_dependency_counts: Shares = ((1, 0.5), (2, 0.5))
    depth_bias: float = 1.0
    density: float = 0.25
    corridor_widths: tuple[int, int] = (1, 3)
    aspect_ratio: float = 1.0
    size: tuple[int, int] | None = None
    alpha: float = 3

    def __post_init__(self) -> None:
        _whole("nodes", self.nodes, 2, _MOST_GENERATED_NODES)
        _whole("layer_size", self.layer_size, 1, _MOST_GENERATED_NODES)
        for name in ("option_counts", "dependency_counts", "goal_dependency_counts"):
            object.__setattr__(self, name, _shares(name, getattr(self, name)))
        _number("depth_bias", self.depth_bias, 0, 100)
        _number("density", self.density, 1e-3, 1)
        _number("aspect_ratio", self.aspect_ratio, 0.02, 50)
        _number("alpha", self.alpha, 1e-6, 1e6)
        low, high = self.corridor_widths
        _whole("the least corridor width", low, 1, _MOST_SIDE)
        _whole("the greatest corridor width", high, low, _MOST_SIDE)
        object.__setattr__(self, "corridor_widths", (int(low), int(high)))
        if self.size is not None:
            width, height = self.size
            _whole("the width of size", width, 1, _MOST_SIDE)
            _whole("the height of size", height, 1, _MOST_SIDE)
            object.__setattr__(self, "size", (int(width), int(height)))
        width, height = self.extent
        if width * height <= self.nodes:
            raise ValueError(
                f"the rectangle must hold the start and {self.nodes} nodes, got {width} x {height} cells: "
                "lower the density or enlarge the size"
            )

    @property
    def extent(self) -> tuple[int, int]:
        """(width, height) of the rectangle: the given size, else the whole numbers nearest to density and aspect ratio.

        The width is ``sqrt(nodes / density * aspect_ratio)`` rounded, the height the least that keeps the density.
        """
        if self.size is not None:
            return self.size
        area = self.nodes / self.density
        width = max(1, round((area * self.aspect_ratio) ** 0.5))
        return width, max(1, -int(-area // width))

    def plain(self) -> dict[str, Any]:
        """Return the attributes as plain values."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


_GRAPHS: dict[str, dict[str, Any]] = {
    "small": {
        "nodes": 4,
        "option_counts": ((1, 1.0),),
        "dependency_counts": ((1, 0.5), (2, 0.5)),
        "goal_dependency_counts": ((1, 0.5), (2, 0.5)),
    },
    "medium": {
        "nodes": 6,
        "option_counts": ((1, 0.8), (2, 0.2)),
        "dependency_counts": ((1, 0.5), (2, 0.5)),
        "goal_dependency_counts": ((1, 0.5), (2, 0.5)),
    },
    "large": {
        "nodes": 8,
        "option_counts": ((1, 0.6), (2, 0.4)),
        "dependency_counts": ((1, 1 / 3), (2, 1 / 3), (3, 1 / 3)),
        "goal_dependency_counts": ((1, 1 / 3), (2, 1 / 3), (3, 1 / 3)),
    },
}
_DEMANDS: dict[str, dict[str, Any]] = {
    "low": {"density": 0.1, "corridor_widths": (2, 3)},
    "medium": {"density": 0.25, "corridor_widths": (1, 3)},
    "high": {"density": 0.4, "corridor_widths": (1, 1)},
}


def task_spec(demand: str = "medium", graph: str = "medium", **changes: Any) -> TaskSpec:
    """Return what the maps of one configuration of the paper are drawn from.

    Args:
        demand: exploitation demand, "low", "medium" or "high" (the exploration demand is the reverse).
        graph: size and difficulty of the task graph, "small", "medium" or "large" (the paper's easy, medium, hard).
        changes: attributes of `TaskSpec` that differ, e.g. ``size=(8, 8)``.

    Raises:
        ValueError: an unknown name, or what `TaskSpec` refuses.
    """
    if demand not in _DEMANDS or graph not in _GRAPHS:
        raise ValueError(
            f"demand must be one of {', '.join(_DEMANDS)} and graph one of {', '.join(_GRAPHS)}, "
            f"got {str(demand)[:60]!r} and {str(graph)[:60]!r}"
        )
    known = {entry.name for entry in fields(TaskSpec)}
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise ValueError(f"changes must be attributes of TaskSpec ({', '.join(sorted(known))}), got {unknown[0]!r}")
    return replace(TaskSpec(**{**_GRAPHS[graph], **_DEMANDS[demand]}), **changes)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {str(value)[:60]!r}")


def _number(name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {str(value)[:60]!r}")


def _shares(name: str, given: Any) -> Shares:
    pairs = tuple(given.items()) if hasattr(given, "items") else given
    if (
        not isinstance(pairs, Sequence)
        or not pairs
        or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs)
    ):
        raise ValueError(f"{name} must be pairs (number, probability), got {str(given)[:60]!r}")
    for number, share in pairs:
        _whole(f"a number of {name}", number, 1, _MOST_GENERATED_NODES)
        _number(f"a probability of {name}", share, 0, 1)
    numbers = [number for number, _ in pairs]
    if len(set(numbers)) < len(numbers) or not math.isclose(sum(share for _, share in pairs), 1, abs_tol=1e-9):
        raise ValueError(f"{name} must hold different numbers with probabilities that sum to 1, got {str(pairs)[:80]}")
    return tuple((int(number), float(share)) for number, share in pairs)


PRESETS = MappingProxyType(
    {f"{demand}-{graph}": task_spec(demand, graph) for demand in _DEMANDS for graph in _GRAPHS}
    | {"10x10": task_spec("low", "large", size=(10, 10)), "8x8": task_spec(size=(8, 8))}
)
"""The nine configurations of the main study as ``DEMAND-GRAPH``, and the two fixed sizes of the paper's figures.

The demand study on 8x8 maps varies demand and graph: ``task_spec(demand, graph, size=(8, 8))``.
"""
