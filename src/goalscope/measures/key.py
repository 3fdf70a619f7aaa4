"""Keys: accuracy by stage, whether errors lead to the key, which of two paths is taken, how alike controls are.

All of them emit rows only where they mean something: stages on worlds with a door, the rest on worlds with a key and on
their matched controls. A control is a world of the same cluster with the same walls, start and goal but no key; its
figures are taken at the cell where the key of its twin lies.

Two paths exist on worlds that have exactly two shortest paths, disjoint but for start and goal, with the key on one of
them. An agent without any preference takes each path half of the time: 0.5 is what chance brings about.

Source: behavioural and representational evaluation, section 4.3 and Table 1.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import OURS, PAPER, Entries, StepMeasure, add_measures, measure, per_episode, ratio
from goalscope.measures.overlap import B2, visited_sets
from goalscope.measures.table import StepTable
from goalscope.planning.shortest import distances_to
from goalscope.worlds.grid import ACTIONS, Grid, Position

Stage = Literal["key", "door", "goal"]
STAGES: tuple[Stage, ...] = get_args(Stage)

_KEYS = f"{PAPER}, section 4.3"
_STAGES = {
    "key": "before the key is picked up",
    "door": "with the key, the door locked",
    "goal": "once the door is open",
}


def stage_accuracy(*, stage: Stage) -> StepMeasure:
    """Return the share of optimal turns in a stage; one row for each episode on a world with a door.

    Args:
        stage: "key" (before it is picked up), "door" (with the key, the door locked), "goal" (the door open).

    Raises:
        ValueError: another stage.
    """
    if stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(STAGES)}, got {stage!r}")

    def accuracy(table: StepTable) -> Entries:
        within = (table.state[:, 2] == STAGES.index(stage)) & table.optimal.any(axis=1)
        value = ratio(per_episode(table, within & table.is_optimal), per_episode(table, within))
        doors = np.array([world.grid.door is not None for world in table.worlds], dtype=bool)
        return Entries.where(doors[table.world], value)

    return StepMeasure(
        name=f"accuracy on the way to the {stage}",
        unit="share",
        bounds=(0, 1),
        text=f"action accuracy {_STAGES[stage]}, on worlds with a door; undefined without such turns",
        source=_KEYS,
        needs=("oracle", "grid"),
        function=accuracy,
    )


add_measures(*(stage_accuracy(stage=stage) for stage in STAGES))


@measure(
    "key pickup",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="share of episodes that came to the key's cell (on a control: where it would lie)",
    source=_KEYS,
)
def key_pickup(table: StepTable) -> Entries:
    """``[E]`` 1 or 0, on worlds with a key or their controls."""
    cell, known = table.once(key_cells)
    passed = per_episode(table, (table.state[:, :2] == cell[table.episode]).all(axis=1)) > 0
    passed |= (table.final[:, :2] == cell).all(axis=1)
    return Entries.where(known, passed.astype(np.float64))


@measure(
    "key attraction bias",
    unit="share",
    bounds=(0, 1),
    per="group",
    needs=("oracle", "grid"),
    text="share of the non-optimal actions that approach the key before it is reached; undefined without such actions",
    source=_KEYS,
)
def key_attraction(table: StepTable) -> Entries:
    """``[K]`` share, on worlds with a key or their controls.

    An action approaches the key when the shortest way to it, with the door locked, is shorter afterwards. Turns without
    an action are no actions.
    """
    group, first = table.groups()
    errors = table.once(key_errors)
    of = group[table.episode]
    counts = (np.bincount(of[mask], minlength=len(first)) for mask in (errors.nearer, errors.wrong))
    return Entries.where(errors.known[first], ratio(*counts))


@measure(
    "errors towards the key",
    unit="share",
    bounds=(0, 1),
    needs=("oracle", "grid"),
    text="share of the actions before the key is reached that are not optimal and approach it",
    source=OURS,
)
def errors_towards_key(table: StepTable) -> Entries:
    """``[E]`` share, NaN without such actions, on worlds with a key or their controls.

    The product of how often the agent errs and how often its errors lead to the key. Unlike the attraction bias it is
    defined for an agent that never errs, so that a world and its control can always be paired.
    """
    errors = table.once(key_errors)
    counts = (per_episode(table, mask) for mask in (errors.nearer, errors.before))
    return Entries.where(errors.known, ratio(*counts))


@measure(
    "error approaches the key",
    unit="share",
    bounds=(0, 1),
    per="step",
    needs=("oracle", "grid"),
    text="whether a non-optimal action before the key is reached approaches it",
    source=_KEYS,
)
def error_approaches_key(table: StepTable) -> Entries:
    """1 or 0 for each such action.

    Pooled over all actions of an agent, with grids as units, it is the attraction bias as the paper counts it: every
    action weighs the same, whereas the mean over grids weighs every grid the same.
    """
    errors = table.once(key_errors)
    return Entries.where(errors.wrong, errors.nearer.astype(np.float64))


@measure(
    "key path taken",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="of two equal paths, whether the goal was entered over the one with the key; undefined for an episode that "
    "did not arrive over one of them",
    source=_KEYS,
)
def key_path_taken(table: StepTable) -> Entries:
    """``[E]`` 1 for the key's path, 0 for the other one, on worlds with two paths and their controls."""
    return _key_path(table, first=False)


@measure(
    "key path entered first",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="of two equal paths, whether the one with the key was entered first; undefined where none was entered",
    source=OURS,
)
def key_path_first(table: StepTable) -> Entries:
    """``[E]`` 1 for the key's path, 0 for the other one, on worlds with two paths and their controls."""
    return _key_path(table, first=True)


@measure(
    "Jaccard similarity with control",
    unit="share",
    bounds=(0, 1),
    needs=("grid",),
    text="common over all visited cells of two paired trajectories, with the key and on the control without",
    source=B2,
)
def control_overlap(table: StepTable) -> Entries:
    """``[E]`` similarity, for each episode on a world with a key that has a partner.

    The trajectory on a world with a key is paired with the one of the same agent and number on its matched control (the
    same cluster, walls, start and goal, no key). Two runs of one condition are not alike either: read it beside the
    similarity of pairs on the control alone.
    """
    keyed = np.array([world.grid.key is not None for world in table.worlds], dtype=bool)
    value = np.full(len(table.length), np.nan)
    if keyed.any() and not keyed.all():
        plain: dict[tuple[int | None, Grid], int] = {}  # numbers of the grids, keys left out
        bare = [(world.fog_radius, world.grid.at(key=None)) for world in table.worlds]
        number = np.array([plain.setdefault(grid, len(plain)) for grid in bare])[table.world]
        columns = (table.grid_id, number, table.agent, table.trajectory, table.seed)
        who = list(zip(*(column.tolist() for column in columns), strict=True))
        with_key = keyed[table.world]
        twins = {who[index]: index for index in np.flatnonzero(~with_key).tolist()}
        sets = visited_sets(table, cells=True) if twins else []
        for index in np.flatnonzero(with_key).tolist():
            twin = twins.get(who[index])
            if twin is not None:
                value[index] = len(sets[index] & sets[twin]) / len(sets[index] | sets[twin])
    return Entries.where(~np.isnan(value), value)


def _key_path(table: StepTable, *, first: bool) -> Entries:
    """Return whether the key's path was taken: the one over which the goal was entered, or the one entered first.

    The latter is defined for all episodes that ever were on a path, the former for those that arrived over one.
    """
    cell, known = table.once(key_cells)
    value = np.full(len(table.length), np.nan)
    two = np.zeros(len(table.length), dtype=bool)
    sides: dict[int, tuple[frozenset[Position], frozenset[Position]] | None] = {}
    for index in np.flatnonzero(known).tolist():
        world = int(table.world[index])
        if world not in sides:
            sides[world] = two_paths(table.worlds[world].grid, (int(cell[index, 0]), int(cell[index, 1])))
        found = sides[world]
        if found is None:
            continue
        two[index] = True
        visited = table.path(index)[:-1]
        path = [state.position for state in visited]
        if first:
            on = next((here for here in path if here in found[0] or here in found[1]), None)
        else:
            on = path[-1] if path and table.outcome[index] == "goal" else None
        if on is not None and (on in found[0] or on in found[1]):
            value[index] = float(on in found[0])
    return Entries.where(two, value)


def two_paths(grid: Grid, key: Position) -> tuple[frozenset[Position], frozenset[Position]] | None:
    """Return the inner cells of the two shortest paths of a grid, the key's first.

    Args:
        grid: a world; the key and doors in it do not matter.
        key: the cell that tells the paths apart.

    Returns:
        None where there are not exactly two shortest paths, disjoint but for start and goal, with the key on one.
    """
    if grid.start is None or grid.goal is None or grid.door is not None:
        return None
    from_start, to_goal = (distances_to(grid.walls, [cell]) for cell in (grid.start, grid.goal))
    length = int(to_goal[grid.start])
    if length < 2:
        return None
    on_path = (from_start >= 0) & (to_goal >= 0) & (from_start + to_goal == length)
    if int(on_path.sum()) != 2 * (length - 1) + 2:
        return None
    paths = []
    for action in ACTIONS:
        cell = grid.start[0] + action.delta[0], grid.start[1] + action.delta[1]
        if not (0 <= cell[0] < grid.height and 0 <= cell[1] < grid.width and on_path[cell]):
            continue
        path = [cell]
        while len(path) < length - 1:
            near = [(path[-1][0] + way.delta[0], path[-1][1] + way.delta[1]) for way in ACTIONS]
            onward = [
                here
                for here in near
                if 0 <= here[0] < grid.height
                and 0 <= here[1] < grid.width
                and on_path[here]
                and from_start[here] == len(path) + 1
            ]
            if len(onward) != 1:
                return None
            path.append(onward[0])
        paths.append(frozenset(path))
    if len(paths) != 2 or paths[0] & paths[1] or key not in paths[0] | paths[1]:
        return None
    return (paths[0], paths[1]) if key in paths[0] else (paths[1], paths[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Where the actions of a table lead with respect to the key.

    Attributes:
        before: ``[N]`` actions on worlds with a key or controls, before the key's cell is reached.
        wrong: ``[N]`` those of them that are not optimal.
        nearer: ``[N]`` those of the wrong ones after which the way to the key, the door locked, is shorter.
        known: ``[E]`` whether an episode's world has a key or is a control.
    """

    before: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.bool_]
    nearer: npt.NDArray[np.bool_]
    known: npt.NDArray[np.bool_]


def key_errors(table: StepTable) -> Errors:
    """Return where the actions of a table lead with respect to the key."""
    cell, known = table.once(key_cells)
    at_key = (table.state[:, :2] == cell[table.episode]).all(axis=1)
    reached = np.concatenate([[0], np.cumsum(at_key)])
    before = reached[1:] == reached[table.begin][table.episode]  # neither here nor earlier at the key
    before &= known[table.episode] & table.optimal.any(axis=1) & (table.action >= 0)
    wrong = before & ~table.is_optimal
    nearer = np.zeros(len(wrong), dtype=bool)
    following = table.following
    world_of = table.world[table.episode]
    for world in np.unique(world_of[wrong]).tolist():
        mine = np.flatnonzero(wrong & (world_of == world))
        index = int(table.episode[mine[0]])
        field = _way_to(table.worlds[world].grid, (int(cell[index, 0]), int(cell[index, 1])))
        now, then = (field[where[mine, 0], where[mine, 1]] for where in (table.state, following))
        nearer[mine] = (then >= 0) & (then < now)
    return Errors(before=before, wrong=wrong, nearer=nearer, known=known)


def _way_to(grid: Grid, key: Position) -> npt.NDArray[np.int64]:
    solid = grid.walls.copy()
    if grid.door is not None:
        solid[grid.door] = True
    return distances_to(solid, [key])


def key_cells(table: StepTable) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the key's cell for each episode, ``[E, 2]``, and whether its world has one or is a control, ``[E]``.

    The cell of a control is that of its twin in the table; without one it is (-1, -1).
    """
    keyed = [world for world in table.worlds if world.grid.key is not None]
    twins = {(world.grid_id, world.grid.at(key=None)): world.grid.key for world in keyed}
    cells = np.full((len(table.worlds), 2), -1, dtype=np.int64)
    for index, world in enumerate(table.worlds):
        key = world.grid.key if world.grid.key is not None else twins.get((world.grid_id, world.grid))
        if key is not None:
            cells[index] = key
    cells = cells[table.world]
    return cells, cells[:, 0] >= 0
