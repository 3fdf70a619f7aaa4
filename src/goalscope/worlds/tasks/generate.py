"""Random task maps, drawn from the paper's parameters and presets, and cooking maps with meaningful names.

A random map has nodes on random cells of a rectangle, and corridors that lead to them; its graph is drawn layer by
layer. The symbolic twin of a map has the same cells and graph, but names without meaning. Comparing the two shows what
the meaning of names contributes.

Source: measuring exploration and exploitation errors, Appendix C.1, Section 6 and Appendix E; kitchens, dishes and
their graphs are ours. Where the paper's text leaves a choice open, docs/exploration.md says what is done here.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import yaml

from goalscope._ground.checks import check_number, check_whole
from goalscope._ground.folder import package_text
from goalscope._ground.ids import canonical_json
from goalscope._ground.rng import stream
from goalscope.worlds.tasks.taskmap import Cell, Frame, TaskMap, TaskNode, plan_task

_MOST_SIDE = 300
_MOST_NODES = 20
_NAME_LENGTH = 4
_MOST_ATTEMPTS = 200
LETTERS, DIGITS = ascii_uppercase, "23456789"  # without 0 and 1, which look like O and I

Distribution = tuple[tuple[int, float], ...]
"""(number, probability) pairs of a categorical distribution."""

Graph = tuple[tuple[tuple[int, ...], ...], ...]
"""For each node, its alternative prerequisite sets of node numbers; the last nodes are the goals."""

_DISTRIBUTIONS = ("option_counts", "dependency_counts", "goal_dependency_counts")
_RANGES = {"depth_bias": (0, 100), "density": (1e-3, 1), "aspect_ratio": (0.02, 50), "alpha": (1e-6, 1e6)}


COOKING = ("mushroom-risotto", "lentil-soup", "berry-tart", "vegetable-dumplings")
"""Names of the four small cooking maps, of 26 to 39 cells."""
WIDE_COOKING = tuple(f"wide-{name}" for name in COOKING)
"""Names of maps with the same dishes on 72 cells, whose budgets are large enough for the paper's step counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """Parameters of the distribution from which task maps are drawn.

    A task map is a map of cells, some of which are nodes: tasks that an agent has to find and to achieve. A node can be
    achieved once all nodes of one of its prerequisite sets are achieved. The graph of prerequisites is drawn in layers;
    a node depends on nodes (its parents) in earlier layers.

    Attributes:
        nodes: number of nodes, including the goals, 2 to 20.
        goals: number of goals, all of which must be achieved; less than `nodes`.
        layer_size: maximum number of nodes per layer of the graph.
        option_counts: distribution of the number of alternative prerequisite sets per node.
        dependency_counts: distribution of the number of nodes per prerequisite set.
        goal_dependency_counts: distribution of the number of nodes in the single prerequisite set of a goal.
        depth_bias: beta; a node in layer D draws its parents with weights ``exp(-beta * ((D - 1) - d))``, where d is
            the layer of the parent.
        density: nodes per cell. It sets the area of the rectangle or, if `size` is given, the area of the part of the
            rectangle in which the nodes lie (`window`).
        corridor_widths: (least, greatest) width of a corridor in cells; drawn for each corridor.
        aspect_ratio: width divided by height of the rectangle.
        size: (width, height) in cells; None to derive it from the density.
        corridors: where the corridor to a node begins: at the "start" of the map, as in the paper, or at the carved
            cell "nearest" to the node, which gives small maps. Maps with "nearest" have no window: if `size` is given,
            the density has no effect.
        alpha: the number of actions per episode (the budget) is ``floor(alpha * |M|)`` on a map of |M| cells.

    Raises:
        ValueError: if an attribute is invalid; the message names it and its valid values.
    """

    nodes: int = 6
    goals: int = 1
    layer_size: int = 3
    option_counts: Distribution = ((1, 0.8), (2, 0.2))
    dependency_counts: Distribution = ((1, 0.5), (2, 0.5))
    goal_dependency_counts: Distribution = ((1, 0.5), (2, 0.5))
    depth_bias: float = 1.0
    density: float = 0.25
    corridor_widths: tuple[int, int] = (1, 3)
    aspect_ratio: float = 1.0
    size: tuple[int, int] | None = None
    alpha: float = 3
    corridors: Literal["nearest", "start"] = "nearest"

    def __post_init__(self) -> None:
        check_whole("nodes", self.nodes, 2, most=_MOST_NODES)
        check_whole("goals", self.goals, 1, most=self.nodes - 1)
        check_whole("layer_size", self.layer_size, 1, most=_MOST_NODES)
        for name in _DISTRIBUTIONS:
            object.__setattr__(self, name, _distribution(name, getattr(self, name)))
        for name, (low, high) in _RANGES.items():
            check_number(name, getattr(self, name), low, high)
        if self.corridors not in ("nearest", "start"):
            raise ValueError(f'corridors must begin at "nearest" or "start", got {self.corridors!r:.60}')
        narrowest, widest = self.corridor_widths
        narrowest = check_whole("the least corridor width", narrowest, 1, most=_MOST_SIDE)
        widest = check_whole("the greatest corridor width", widest, narrowest, most=_MOST_SIDE)
        object.__setattr__(self, "corridor_widths", (narrowest, widest))
        if self.size is not None:
            width, height = self.size
            width = check_whole("the width of size", width, 1, most=_MOST_SIDE)
            object.__setattr__(self, "size", (width, check_whole("the height of size", height, 1, most=_MOST_SIDE)))
        width, height = self.window
        if width * height <= self.nodes:
            raise ValueError(
                f"the rectangle must hold the start and {self.nodes} nodes, got {width} x {height} cells: "
                "lower the density or enlarge the size"
            )

    @property
    def extent(self) -> tuple[int, int]:
        """(width, height), in cells, of the rectangle for a map: the given size, or else derived from density and
        aspect ratio.

        The derived width is ``sqrt(nodes / density * aspect_ratio)``, rounded, and the derived height the least that
        does not exceed the density.
        """
        return self._dense if self.size is None else self.size

    @property
    def window(self) -> tuple[int, int]:
        """(width, height), in cells, of the part of a map's rectangle in which the nodes lie, chosen to match the
        density.
        """
        if self.corridors == "nearest":
            return self.extent
        (width, height), (most_wide, most_high) = self._dense, self.extent
        # If one side of the window does not fit into the rectangle, the other is enlarged to keep the density.
        width = min(max(width, -(-width * height // most_high)), most_wide)
        return width, min(max(height, -int(-self.nodes / self.density // width)), most_high)

    @property
    def _dense(self) -> tuple[int, int]:
        area = self.nodes / self.density
        width = max(1, round((area * self.aspect_ratio) ** 0.5))
        return width, max(1, -int(-area // width))

    def described(self) -> str:
        """Return these parameters as canonical JSON, which names the random stream of the map.

        Attributes that were added later are left out if they have their default, so that older maps keep their streams.
        """
        attributes = asdict(self)
        if self.goals == 1:
            del attributes["goals"]
        if self.corridors == "nearest":
            del attributes["corridors"]
        return canonical_json(attributes)


def _distribution(name: str, value: Any) -> Distribution:
    pairs = tuple(value.items()) if hasattr(value, "items") else value
    paired = isinstance(pairs, Sequence) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    if not paired or not pairs:
        raise ValueError(f"{name} must be pairs (number, probability), got {value!r:.60}")
    result = {}
    for number, probability in pairs:
        number = check_whole(f"a number of {name}", number, 1, most=_MOST_NODES)
        result[number] = check_number(f"a probability of {name}", probability, 0, 1)
    if len(result) < len(pairs) or not math.isclose(sum(result.values()), 1, abs_tol=1e-9):
        raise ValueError(f"{name} must hold different numbers with probabilities that sum to 1, got {pairs!r:.80}")
    return tuple(result.items())


def _graph(nodes: int, options: Distribution, most_dependencies: int) -> dict[str, Any]:
    counts = tuple((number, 1 / most_dependencies) for number in range(1, most_dependencies + 1))
    equal_counts = dict.fromkeys(("dependency_counts", "goal_dependency_counts"), counts)
    return {"nodes": nodes, "option_counts": options, **equal_counts}


_GRAPHS = {
    "small": _graph(4, ((1, 1.0),), 2),
    "medium": _graph(6, ((1, 0.8), (2, 0.2)), 2),
    "large": _graph(8, ((1, 0.6), (2, 0.4)), 3),
}
_DEMANDS: dict[str, dict[str, Any]] = {
    "low": {"density": 0.1, "corridor_widths": (2, 3)},
    "medium": {"density": 0.25, "corridor_widths": (1, 3)},
    "high": {"density": 0.4, "corridor_widths": (1, 1)},
}


def task_spec(demand: str = "medium", graph: str = "medium", **changes: Any) -> TaskSpec:
    """Return the parameters of random task maps for one configuration of the paper on exploration errors.

    Args:
        demand: exploitation demand: "low", "medium" or "high"; the exploration demand is the reverse.
        graph: size and difficulty of the task graph: "small", "medium" or "large" (easy, medium, hard in the paper).
        changes: attributes of `TaskSpec` to change, e.g. ``size=(8, 8)``.

    Raises:
        ValueError: if a name is unknown, or `TaskSpec` refuses a value.
    """
    if demand not in _DEMANDS or graph not in _GRAPHS:
        raise ValueError(
            f"demand must be one of {', '.join(_DEMANDS)} and graph one of {', '.join(_GRAPHS)}, "
            f"got {demand!r:.60} and {graph!r:.60}"
        )
    valid = sorted(entry.name for entry in fields(TaskSpec))
    for name in changes:
        if name not in valid:
            raise ValueError(f"changes must be attributes of TaskSpec ({', '.join(valid)}), got {name!r}")
    return replace(TaskSpec(**_GRAPHS[graph], **_DEMANDS[demand]), **changes)


_PAPER = "paper-"
_CONFIGURATIONS = {f"{demand}-{graph}": (demand, graph) for demand in _DEMANDS for graph in _GRAPHS}

PRESETS = MappingProxyType(
    {name: task_spec(*configuration) for name, configuration in _CONFIGURATIONS.items()}
    | {"10x10": task_spec("low", "large", size=(10, 10)), "8x8": task_spec(size=(8, 8))}
    | {
        _PAPER + name: task_spec(*configuration, size=(10, 10), corridors="start")
        for name, configuration in _CONFIGURATIONS.items()
    }
)
"""Name -> spec. ``paper-DEMAND-GRAPH`` are the paper's nine configurations: 10x10 cells, corridors from the start.

``DEMAND-GRAPH``, "10x10" and "8x8" are small maps with the same parameters, whose corridors begin at the nearest
carved cell. For the paper's demand study, use ``task_spec(demand, graph, size=(8, 8), corridors="start")``.
"""


def preset_tags(preset: str) -> dict[str, str]:
    """Return the exploitation demand and the task graph of a preset, such as {"demand": "low", "graph": "large"}, as
    tags.

    Tags are named facts about a world, which reports group by. The result is empty for the presets "10x10" and "8x8".
    """
    configuration = _CONFIGURATIONS.get(preset.removeprefix(_PAPER))
    return {} if configuration is None else {"demand": configuration[0], "graph": configuration[1]}


def generate_task_map(spec: TaskSpec | str = "medium-medium", *, seed: int = 0) -> TaskMap:
    """Generate the random task map that belongs to a seed.

    Every map is checked: its cells are connected, its graph has no cycle, and every node leads to a goal. The number of
    actions allowed in an episode (the budget) is `TaskSpec.alpha` times the number of cells, rounded down; a map whose
    shortest successful walk exceeds it is drawn again.

    Args:
        spec: the parameters of the distribution, or the name of one of `PRESETS`.
        seed: seed of the map; the same spec and seed give the same bytes.

    Returns:
        The map. x lies in 0 to width - 1 and y in 0 to height - 1, but corridors need not fill the rectangle.

    Raises:
        ValueError: if the preset is unknown, or no map that was drawn has a successful walk within its budget (alpha is
            too small).
    """
    if isinstance(spec, str):
        if spec not in PRESETS:
            raise ValueError(f"a preset must be one of {', '.join(PRESETS)}, got {spec[:60]!r}")
        spec = PRESETS[spec]
    described = spec.described()
    for attempt in range(_MOST_ATTEMPTS):
        drawn = _draw(spec, stream(seed, "task map", described, attempt))
        if drawn is not None and plan_task(drawn).within_budget:
            return drawn
    raise ValueError(
        f"a map must have a successful walk within its budget, but none of {_MOST_ATTEMPTS} maps with "
        f"alpha = {spec.alpha} has one: raise alpha"
    )


def symbolic_twin(task_map: TaskMap, *, seed: int = 0) -> TaskMap:
    """Return a copy of a task map with the same cells and graph, but random names of the tasks, which have no meaning.

    Comparing agents on both maps shows what the meaning of names contributes. The same map and seed give the same
    names.
    """
    names = random_names(len(task_map.nodes), stream(seed, "symbolic twin", task_map.id))
    return task_map.renamed(dict(zip(task_map.nodes, names, strict=True)))


def cooking_map(name: str, *, symbolic: bool = False) -> TaskMap:
    """Return one of the task maps with kitchens, whose tasks are the steps of a recipe.

    Args:
        name: name of the map, one of those in `COOKING` and `WIDE_COOKING`, such as "lentil-soup".
        symbolic: whether to return the map with the same cells and graph whose names have no meaning
            (`symbolic_twin`).

    Raises:
        ValueError: if the name is unknown.
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


def _draw(spec: TaskSpec, rng: np.random.Generator) -> TaskMap | None:
    graph = sample_graph(spec, rng)
    names = random_names(spec.nodes, rng)
    start, *node_cells = _placed(spec, rng)
    cells = {start}
    for cell in node_cells:
        thickness = int(rng.integers(spec.corridor_widths[0], spec.corridor_widths[1] + 1))
        origin = start if spec.corridors == "start" else _nearest(cells, cell, rng)
        _carve(cells, origin, cell, thickness, spec, rng)
    nodes = {
        name: TaskNode(cell=cell, options=tuple(tuple(names[parent] for parent in option) for option in options))
        for name, cell, options in zip(names, node_cells, graph, strict=True)
    }
    if int(spec.alpha * len(cells)) < 1:
        return None
    return TaskMap(cells=sorted(cells), start=start, goal=names[-spec.goals :], nodes=nodes, alpha=spec.alpha)


def _placed(spec: TaskSpec, rng: np.random.Generator) -> list[Cell]:
    """Draw the start uniformly from the rectangle, and the nodes' cells from the rectangle or a window in it."""
    width, height = spec.extent
    if spec.corridors == "nearest":
        picked = rng.permutation(width * height)[: spec.nodes + 1]
        return [(int(index) % width, int(index) // width) for index in picked]
    wide, high = spec.window
    start = int(rng.integers(width)), int(rng.integers(height))
    left, bottom = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
    cells = [(left + int(index) % wide, bottom + int(index) // wide) for index in rng.permutation(wide * high)]
    return [start, *[cell for cell in cells if cell != start][: spec.nodes]]


def _nearest(cells: set[Cell], target: Cell, rng: np.random.Generator) -> Cell:
    """Return the carved cell nearest to a target, with ties broken at random."""
    distance = {cell: abs(cell[0] - target[0]) + abs(cell[1] - target[1]) for cell in sorted(cells)}
    shortest = min(distance.values())
    nearest = [cell for cell, steps in distance.items() if steps == shortest]
    return nearest[int(rng.integers(len(nearest)))]


def _carve(
    cells: set[Cell], origin: Cell, target: Cell, thickness: int, spec: TaskSpec, rng: np.random.Generator
) -> None:
    """Carve a corridor of the given width with one bend from a cell to a target, inside the rectangle.

    A corridor of width 2 has its second lane on a side drawn at random, one of width 3 has a lane on either side.
    """
    width, height = spec.extent
    x, y = origin
    along_x_first = rng.integers(2) == 0
    lanes = range(-(thickness // 2), thickness - thickness // 2)
    if rng.integers(2):
        lanes = range(1 - thickness + thickness // 2, 1 + thickness // 2)
    row, column = (y, target[0]) if along_x_first else (target[1], x)
    for lane in lanes:
        if 0 <= row + lane < height:
            cells.update((along, row + lane) for along in range(min(x, target[0]), max(x, target[0]) + 1))
        if 0 <= column + lane < width:
            cells.update((column + lane, along) for along in range(min(y, target[1]), max(y, target[1]) + 1))


def sample_graph(spec: TaskSpec, rng: np.random.Generator) -> Graph:
    """Draw the graph of prerequisites of a task map: an acyclic graph in which every node leads to a goal.

    A node (task) can be achieved once all nodes of one of its prerequisite sets are achieved. Nodes are placed in
    layers, whose sizes are uniform on 1 to ``spec.layer_size``, until all nodes but the goals are placed; the goals
    form the last layer. Prerequisites lie in earlier layers. If one prerequisite set of a node contains another one, it
    is redundant and dropped. Nodes that nothing depends on become prerequisites of the goal, or of a random goal if
    there are several.

    Returns:
        For each node, its alternative prerequisite sets, each a tuple of node numbers. The goals have the last numbers.
    """
    depth: list[int] = []
    layer = 0
    goal = spec.nodes - spec.goals
    while len(depth) < goal:
        depth += [layer] * int(rng.integers(1, min(spec.layer_size, goal - len(depth)) + 1))
        layer += 1
    depth += [layer] * spec.goals
    graph: list[tuple[tuple[int, ...], ...]] = []
    for node, node_depth in enumerate(depth):
        if node_depth == 0:
            graph.append(())
            continue
        parents = [other for other in range(node) if depth[other] < node_depth]
        weights = np.array([math.exp(-spec.depth_bias * (node_depth - 1 - depth[other])) for other in parents])
        counts = spec.goal_dependency_counts if node >= goal else spec.dependency_counts
        options: dict[tuple[int, ...], None] = {}
        for _ in range(1 if node >= goal else _drawn(spec.option_counts, rng)):
            size = min(_drawn(counts, rng), len(parents))
            picked = rng.choice(len(parents), size=size, replace=False, p=weights / weights.sum())
            options[tuple(sorted(parents[index] for index in picked))] = None
        graph.append(tuple(one for one in options if not any(set(other) < set(one) for other in options)))
    used = {parent for options in graph for option in options for parent in option}
    for stray in (node for node in range(goal) if node not in used):
        at = goal if spec.goals == 1 else goal + int(rng.integers(spec.goals))
        graph[at] = (tuple(sorted({*graph[at][0], stray})),)
    return tuple(graph)


def random_names(count: int, rng: np.random.Generator) -> list[str]:
    """Draw ``count`` different names of four characters from A to Z and 2 to 9, each with a letter and a digit.

    Names are drawn independently of everything else, so their order carries no information.
    """
    signs = LETTERS + DIGITS
    names: list[str] = []
    while len(names) < count:
        name = "".join(signs[index] for index in rng.integers(0, len(signs), size=_NAME_LENGTH))
        if name not in names and any(sign in LETTERS for sign in name) and any(sign in DIGITS for sign in name):
            names.append(name)
    return names


def _drawn(distribution: Distribution, rng: np.random.Generator) -> int:
    numbers, probabilities = zip(*distribution, strict=True)
    return int(rng.choice(numbers, p=probabilities))


@cache
def _kitchens() -> dict[str, Any]:
    return dict(yaml.safe_load(package_text("goalscope.worlds.tasks", "cooking.yaml")))
