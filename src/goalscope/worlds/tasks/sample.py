"""A task graph at random: layers, prerequisite sets with a bias to the layer just above, names without order.

Source: measuring exploration and exploitation errors, Appendix C.1.
"""

import math
from string import ascii_uppercase

import numpy as np
import numpy.typing as npt

from goalscope.worlds.tasks.spec import Shares, TaskSpec

LETTERS, DIGITS = ascii_uppercase, "23456789"  # no 0 and 1, which look like O and I
TOKEN_LENGTH = 4

Graph = tuple[tuple[tuple[int, ...], ...], ...]
"""For each node its alternative prerequisite sets of node numbers; the last node is the goal."""


def sample_graph(spec: TaskSpec, rng: np.random.Generator) -> Graph:
    """Return a graph without cycle whose only sink is its last node.

    Layer sizes are uniform on 1 to ``spec.layer_size`` until all nodes but the goal are placed; the goal is a layer of
    its own. Parents lie in earlier layers. A set that equals or contains another set of its node says nothing and is
    dropped. Nodes that nothing depends on are added to the goal's set.
    """
    depth: list[int] = []
    layer = 0
    while len(depth) < spec.nodes - 1:
        most = min(spec.layer_size, spec.nodes - 1 - len(depth))
        depth += [layer] * int(rng.integers(1, most + 1))
        layer += 1
    depth.append(layer)
    goal = spec.nodes - 1
    graph: list[tuple[tuple[int, ...], ...]] = []
    for node, own in enumerate(depth):
        if own == 0:
            graph.append(())
            continue
        parents = [other for other in range(node) if depth[other] < own]
        weights = np.array([math.exp(-spec.depth_bias * (own - 1 - depth[other])) for other in parents])
        counts = spec.goal_dependency_counts if node == goal else spec.dependency_counts
        number = 1 if node == goal else _drawn(spec.option_counts, rng)
        options = [_option(parents, weights, _drawn(counts, rng), rng) for _ in range(number)]
        graph.append(_least(options))
    used = {parent for options in graph for option in options for parent in option}
    strays = [node for node in range(goal) if node not in used]
    graph[goal] = (tuple(sorted({*graph[goal][0], *strays})),)
    return tuple(graph)


def tokens(count: int, rng: np.random.Generator) -> list[str]:
    """Return different names of four characters out of A to Z and 2 to 9, each with a letter and a digit.

    They are drawn independently of one another and of everything else, so their order tells nothing.
    """
    signs = LETTERS + DIGITS
    found: list[str] = []
    while len(found) < count:
        name = "".join(signs[index] for index in rng.integers(0, len(signs), size=TOKEN_LENGTH))
        if name not in found and any(sign in LETTERS for sign in name) and any(sign in DIGITS for sign in name):
            found.append(name)
    return found


def _drawn(shares: Shares, rng: np.random.Generator) -> int:
    return int(rng.choice([number for number, _ in shares], p=[share for _, share in shares]))


def _option(
    parents: list[int], weights: npt.NDArray[np.float64], count: int, rng: np.random.Generator
) -> tuple[int, ...]:
    picked = rng.choice(len(parents), size=min(count, len(parents)), replace=False, p=weights / weights.sum())
    return tuple(sorted(parents[index] for index in picked))


def _least(options: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return the different sets that contain no other one, in order."""
    distinct = list(dict.fromkeys(options))
    return tuple(one for one in distinct if not any(set(other) < set(one) for other in distinct))
