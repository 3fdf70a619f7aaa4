"""Checks of a task graph: names, prerequisite sets, no cycle, one sink."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

MOST_NODES = 1000
LONGEST_NAME = 64

Options = tuple[tuple[str, ...], ...]


def check_name(name: Any) -> str:
    """Return a node's name: one line of 1 to 64 printable characters without double quotes or blanks at its ends.

    The texts that agents read put names in double quotes, so that every name can be read back.

    Raises:
        ValueError: any other name.
    """
    good = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
    if not good or '"' in name:
        raise ValueError(
            f"a node's name must be 1 to {LONGEST_NAME} printable characters without double quotes and without blanks "
            f"at its ends, got {str(name)[:80]!r}"
        )
    return str(name)


def options_from(name: str, node: Mapping[str, Any]) -> Options:
    """Return the alternative prerequisite sets of a node.

    Args:
        name: its name, for errors.
        node: ``options`` (a list of lists of names), or ``type`` "and" or "or" with ``parents`` (a list of names).

    Raises:
        ValueError: other keys, sets that are no lists of names, an empty set, a name twice in a set.
    """
    keys = set(node) - {"cell"}
    if keys == {"type", "parents"}:
        kind = str(node["type"]).lower()
        if kind not in ("and", "or"):
            raise ValueError(f"the type of node {name!r} must be 'and' or 'or', got {str(node['type'])[:60]!r}")
        parents = _names(node["parents"], f"the parents of node {name!r}")
        given: Sequence[Any] = ([parents] if parents else []) if kind == "and" else [[parent] for parent in parents]
    elif keys <= {"options"}:
        given = node.get("options", ())
        if not isinstance(given, list | tuple):
            raise ValueError(f"the options of node {name!r} must be a list of lists of names, got {str(given)[:60]!r}")
    else:
        raise ValueError(
            f"node {name!r} must have cell and options (or type and parents), got {', '.join(sorted(map(str, node)))}"
        )
    options = []
    for item in given:
        option = _names(item, f"an option of node {name!r}")
        if not option:
            raise ValueError(f"an option of node {name!r} must name a node, got an empty one: give a primitive none")
        options.append(option)
    return tuple(options)


def check_graph(nodes: Mapping[str, Options], goal: Any) -> None:
    """Check names, prerequisites, and that the graph has no cycle and the goal as its only sink.

    In such a graph every node leads to the goal, and every node can be achieved.

    Raises:
        ValueError: names the nodes that break the rule.
    """
    if not 1 <= len(nodes) <= MOST_NODES:
        raise ValueError(f"a map must have 1 to {MOST_NODES} nodes, got {len(nodes)}")
    for name in nodes:
        check_name(name)
    if not isinstance(goal, str):
        raise ValueError(f"goal must be the name of one node, got {str(goal)[:60]!r}")
    if goal not in nodes:
        raise ValueError(f"goal must be the name of one of the nodes, got {goal[:60]!r}, which is not among them")
    for name, options in nodes.items():
        for parent in (parent for option in options for parent in option):
            if parent not in nodes:
                raise ValueError(f"the prerequisites of node {name!r} must be nodes, got the unknown {parent[:60]!r}")
    parents = {name: {parent for option in options for parent in option} for name, options in nodes.items()}
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        circle = " -> ".join(repr(name) for name in error.args[1])
        raise ValueError(f"the prerequisites must hold no cycle, got {circle}") from None
    used = set().union(*parents.values())
    sinks = [name for name in nodes if name not in used]
    if sinks != [goal]:
        listed = ", ".join(map(repr, sinks[:5]))
        raise ValueError(
            f"the goal {goal!r} must be the only node that nothing depends on, got {listed}: a map has one goal"
        )


def _names(given: Any, what: str) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        raise ValueError(f"{what} must be a list of names, got {str(given)[:60]!r}")
    if len(set(given)) < len(given):
        raise ValueError(f"{what} must name each node once, got {str(list(given))[:80]}")
    return tuple(given)
