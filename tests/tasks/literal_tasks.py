"""Slow literal versions: the paper's definitions word for word, with sets of coordinates, nothing kept in between."""

from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise

from goalscope.worlds.tasks import TaskMap

DELTAS = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
Cell = tuple[int, int]


@dataclass(frozen=True)
class LiteralStep:
    case: int
    targets: frozenset[Cell]
    gain: bool
    progress: bool
    c: int
    e: int
    n: int
    error: bool
    free: frozenset[str]
    valid: bool
    detour: bool


def neighbours(cell: Cell) -> list[Cell]:
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in DELTAS.values()]


def distance(graph: frozenset[Cell], inner: frozenset[Cell], begin: Cell) -> dict[Cell, int]:
    """Moves from a cell to the cells of a graph; only inner cells (and the first) are passed through."""
    found, queue = {begin: 0}, deque([begin])
    while queue:
        here = queue.popleft()
        if here != begin and here not in inner:
            continue
        for near in neighbours(here):
            if near in graph and near not in found:
                found[near] = found[here] + 1
                queue.append(near)
    return found


def observed(walk: list[Cell]) -> frozenset[Cell]:
    """Eq. (2): a cell is observed if the agent was there at some earlier time."""
    return frozenset(walk)


def unobserved(m: frozenset[Cell], walk: list[Cell]) -> frozenset[Cell]:
    """Eq. (2): not observed, and next to an observed cell."""
    seen = observed(walk)
    return frozenset(near for cell in seen for near in neighbours(cell) if near in m) - seen


def prec(task_map: TaskMap, name: str, achieved: frozenset[str]) -> bool:
    options = task_map.nodes[name].options
    return not options or any(set(option) <= achieved for option in options)


def achieved(task_map: TaskMap, walk: list[Cell]) -> frozenset[str]:
    """Eq. (3): achieved if visited at some time at which the prerequisites were met."""
    done: frozenset[str] = frozenset()
    for cell in walk:
        done |= {name for name, node in task_map.nodes.items() if node.cell == cell and prec(task_map, name, done)}
    return done


def pending(task_map: TaskMap, walk: list[Cell]) -> frozenset[str]:
    """Eq. (5): discovered, not achieved, prerequisites met."""
    done = achieved(task_map, walk)
    return frozenset(
        name
        for name, node in task_map.nodes.items()
        if node.cell in walk and name not in done and prec(task_map, name, done)
    )


def stale(stretch: list[Cell]) -> tuple[int, int, int]:
    """c, e, n of a stretch without progress, from its list of cells."""
    visits = Counter(stretch)
    edges = Counter(frozenset(pair) for pair in pairwise(stretch))
    c = len(edges) - len(visits) + 1
    return c, sum(max(m - 2, 0) for m in edges.values()), sum(max(m - 2, 0) for m in visits.values())


def is_progress(task_map: TaskMap, walk: list[Cell], to: Cell) -> bool:
    enters = to in unobserved(frozenset(task_map.cells), walk)
    return enters or any(task_map.nodes[name].cell == to for name in pending(task_map, walk))


def literal_score(task_map: TaskMap, actions: list[str | None], graph: str = "known") -> list[LiteralStep]:
    m = frozenset(task_map.cells)
    walk, stretch, steps = [task_map.start], [task_map.start], list[LiteralStep]()
    for action in actions:
        here = walk[-1]
        u = unobserved(m, walk)
        p = pending(task_map, walk)
        p_cells = frozenset(task_map.nodes[name].cell for name in p)
        if not p:
            case, targets = 1, u
        elif p & set(task_map.goals):
            case, targets = 2, frozenset(task_map.nodes[goal].cell for goal in p & set(task_map.goals))
        elif not u:
            case, targets = 3, p_cells
        else:
            case, targets = 4, u | p_cells
        assert targets and here not in targets
        known = {"known": observed(walk) | u, "map": m, "observed": observed(walk) | targets}[graph]
        inner = observed(walk) if graph == "observed" else known
        ways = {cell: distance(known | {cell}, inner, cell) for cell in [here, *neighbours(here)] if cell in m}

        def judge(
            to: Cell,
            *,
            here: Cell = here,
            targets: frozenset[Cell] = targets,
            ways: dict[Cell, dict[Cell, int]] = ways,
            stretch: list[Cell] = stretch,
            walk: list[Cell] = walk,
        ) -> tuple[bool, bool, bool]:
            """Gain, progress, error of a move, Eq. (6) and (1)."""
            far = 10**9
            gain = to in targets or any(ways[to].get(z, far) < ways[here].get(z, far) for z in targets)
            if is_progress(task_map, walk, to):
                return gain, True, False
            if not gain:
                return False, False, True
            if len(targets) == 1:
                return True, False, False
            return True, False, sum(stale([*stretch, to])) > sum(stale(stretch))

        free = frozenset(
            name
            for name, (dx, dy) in DELTAS.items()
            if (here[0] + dx, here[1] + dy) in m and not judge((here[0] + dx, here[1] + dy))[2]
        )
        delta = DELTAS.get(action) if action is not None else None
        to = None if delta is None else (here[0] + delta[0], here[1] + delta[1])
        if to is None or to not in m:
            steps.append(LiteralStep(case, targets, False, False, *stale(stretch), True, free, False, False))
            continue
        gain, progress, error = judge(to)
        detour = case == 2 and to in u
        walk.append(to)
        stretch = [to] if progress else [*stretch, to]
        steps.append(LiteralStep(case, targets, gain, progress, *stale(stretch), error, free, True, detour))
        if achieved(task_map, walk).issuperset(task_map.goals):
            break
    return steps


def literal_optimal_length(task_map: TaskMap) -> int:
    """Moves of a shortest successful walk: breadth-first over every cell and every achieved set."""
    m = frozenset(task_map.cells)
    at = {node.cell: name for name, node in task_map.nodes.items()}
    begin = (task_map.start, frozenset[str]())
    found, queue = {begin: 0}, deque([begin])
    while queue:
        state = queue.popleft()
        cell, done = state
        if done.issuperset(task_map.goals):
            return found[state]
        for near in neighbours(cell):
            if near not in m:
                continue
            name = at.get(near)
            more = done | {name} if name is not None and prec(task_map, name, done) else done
            if (near, more) not in found:
                found[near, more] = found[state] + 1
                queue.append((near, more))
    raise AssertionError("no successful walk")
