"""Keys: accuracy by stage, errors towards the key, the choice between two paths, and similarity to controls.

Each measure returns rows only where it is defined: accuracy by stage on worlds with a door, the others on worlds with a
key and their matched controls. A control is a world in the same cluster with the same walls, start and goal but no key;
its values refer to the cell where its twin has the key.

The choice between two paths is defined on worlds with exactly two shortest paths that share only start and goal, with
the key on one of them. An agent without preference takes each path half of the time, so chance level is 0.5.

Source: behavioural and representational evaluation, section 4.3 and Table 1.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_choice
from goalscope.measures.definition import OURS, PAPER, Entries, StepMeasure, add_measures, measure, ratio
from goalscope.measures.table import StepTable
from goalscope.measures.visits import B2, jaccard, visited_cells
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.planning.shortest import distances_to

Mask = npt.NDArray[np.bool_]

_KEYS = f"{PAPER}, section 4.3"
_STAGES = {
    "key": "before the key is picked up",
    "door": "while the key is held and the door is locked",
    "goal": "once the door is open",
}


def stage_accuracy(*, stage: str) -> StepMeasure:
    """Create the measure of accuracy at one stage of an episode with key and door: the share of optimal turns in that
    stage.

    There is one row for each episode in a world with a door.

    Args:
        stage: "key" (before the key is picked up), "door" (with the key, while the door is locked) or "goal" (once the
            door is open).

    Raises:
        ValueError: if the stage is none of these.
    """
    check_choice("stage", stage, _STAGES)

    def accuracy(table: StepTable) -> Entries:
        within = ((table.state[:, 2] & 3) == list(_STAGES).index(stage)) & table.optimal.any(axis=1)
        value = ratio(table.per_episode(within & table.is_optimal), table.per_episode(within))
        doors = np.array([world.grid.door is not None for world in table.worlds], dtype=bool)
        return Entries.where(doors[table.world], value)

    return StepMeasure(
        name=f"accuracy on the way to the {stage}",
        unit="share",
        bounds=(0, 1),
        text=f"action accuracy {_STAGES[stage]}, in worlds with a door. Undefined without such turns",
        source=_KEYS,
        needs=("oracle", "grid"),
        function=accuracy,
    )


add_measures(*(stage_accuracy(stage=stage) for stage in _STAGES))


@measure("key pickup", unit="share", needs=("grid",), source=_KEYS)
def key_pickup(table: StepTable) -> Entries:
    """Share of episodes that reached the key's cell (in a control world, the cell where the key lies in its twin).

    The control of a world has the same walls, start and goal, but no key. Returns 1 or 0 for each episode in a world
    with a key or in its control.
    """
    cell, has_cell = table.once(key_cells)
    reached_key = table.per_episode((table.state[:, :2] == cell[table.episode]).all(axis=1)) > 0
    reached_key |= (table.final[:, :2] == cell).all(axis=1)
    return Entries.where(has_cell, reached_key.astype(np.float64))


@measure("key attraction bias", unit="share", per="group", needs=("oracle", "grid"), source=_KEYS)
def key_attraction(table: StepTable) -> Entries:
    """Share of an episode's non-optimal actions, before the key is reached, that approach the key. Undefined without
    such actions.

    An action approaches the key if it shortens the shortest path to the key with the door locked. Turns without an
    action do not count as actions.

    Returns one value per group (all episodes of an agent on a world) in worlds with a key and in their controls.
    """
    group, first = table.groups()
    errors = table.once(_key_errors)
    group_of_step = group[table.episode]
    counts = (np.bincount(group_of_step[mask], minlength=len(first)) for mask in (errors.nearer, errors.wrong))
    return Entries.where(errors.known[first], ratio(*counts))


@measure("errors towards the key", unit="share", needs=("oracle", "grid"), source=OURS)
def errors_towards_key(table: StepTable) -> Entries:
    """Share of an episode's actions, before the key is reached, that are not optimal and approach the key.

    This is the error rate times the share of errors that lead towards the key. Unlike the attraction bias, it is
    defined for an agent without errors, so that a world and its control can always be paired.

    Returns one value per episode in a world with a key or in its control.
    """
    errors = table.once(_key_errors)
    return Entries.where(errors.known, ratio(table.per_episode(errors.nearer), table.per_episode(errors.before)))


@measure("error approaches the key", unit="share", per="step", needs=("oracle", "grid"), source=_KEYS)
def error_approaches_key(table: StepTable) -> Entries:
    """Whether a non-optimal action, before the key is reached, approaches the key.

    Pooled over all actions of an agent, with grids as units, this is the attraction bias as the paper computes it,
    with equal weight per action. A mean over grids gives equal weight to every grid instead.

    Returns 1 or 0 for each non-optimal action before the key is reached.
    """
    errors = table.once(_key_errors)
    return Entries.where(errors.wrong, errors.nearer.astype(np.float64))


@measure("key path taken", unit="share", needs=("grid",), source=_KEYS)
def key_path_taken(table: StepTable) -> Entries:
    """Whether the episode reached the goal along the path with the key, if there are two equally short paths.
    Undefined if it reached the goal along neither.

    Returns 1, 0 or NaN for each episode in a world with two equally short paths and a key on one of them.
    """
    return _key_path(table, first=False)


@measure("key path entered first", unit="share", needs=("grid",), source=OURS)
def key_path_first(table: StepTable) -> Entries:
    """Whether the episode entered the path with the key first, if there are two equally short paths. Undefined if it
    entered neither.

    Returns 1, 0 or NaN for each episode in a world with two equally short paths and a key on one of them.
    """
    return _key_path(table, first=True)


@measure("Jaccard similarity with control", unit="share", needs=("grid",), source=B2)
def control_overlap(table: StepTable) -> Entries:
    """Number of cells visited both with the key and in the control world without it, divided by the number visited in
    either, for paired trajectories.

    A trajectory in a world with a key is paired with the trajectory of the same agent and number in its matched
    control (same cluster, walls, start and goal, no key). Two trajectories in the same condition differ too, so
    compare this value with the similarity of pairs within the control.

    Returns one value per episode in a world with a key that has a partner.
    """
    keyed = np.array([world.grid.key is not None for world in table.worlds], dtype=bool)
    value = np.full(len(table.length), np.nan)
    if keyed.any() and not keyed.all():
        bare = [(world.fog_radius, world.grid.at(key=None)) for world in table.worlds]
        numbers = {grid: number for number, grid in enumerate(dict.fromkeys(bare))}
        number = np.array([numbers[grid] for grid in bare])[table.world]
        columns = (table.cluster, number, table.agent, table.trajectory, table.seed)
        identities = list(zip(*(column.tolist() for column in columns), strict=True))
        with_key = keyed[table.world]
        twins = {identities[index]: index for index in np.flatnonzero(~with_key).tolist()}
        sets = visited_cells(table) if twins else []
        for index in np.flatnonzero(with_key).tolist():
            twin = twins.get(identities[index])
            if twin is not None:
                value[index] = jaccard(sets[index], sets[twin])
    return Entries.where(~np.isnan(value), value)


def _key_path(table: StepTable, *, first: bool) -> Entries:
    """Return whether the path with the key was taken, judged by the goal's entry or by the path entered first."""
    cell, has_cell = table.once(key_cells)
    value = np.full(len(table.length), np.nan)
    has_two_paths = np.zeros(len(table.length), dtype=bool)
    paths_of: dict[int, tuple[frozenset[Position], frozenset[Position]] | None] = {}
    for index in np.flatnonzero(has_cell).tolist():
        world = int(table.world[index])
        if world not in paths_of:
            paths_of[world] = two_paths(table.worlds[world].grid, (int(cell[index, 0]), int(cell[index, 1])))
        paths = paths_of[world]
        if paths is None:
            continue
        has_two_paths[index] = True
        path = [state.position for state in table.path(index)[:-1]]
        if not first:
            path = path[-1:] if table.outcome[index] == "goal" else []
        entered = next((position for position in path if position in paths[0] or position in paths[1]), None)
        if entered is not None:
            value[index] = float(entered in paths[0])
    return Entries.where(has_two_paths, value)


def two_paths(grid: Grid, key: Position) -> tuple[frozenset[Position], frozenset[Position]] | None:
    """Return the inner cells of the two shortest paths of a grid, the path with the key first.

    The result is None unless the grid has exactly two shortest paths, which share only start and goal, with the key on
    one of them.

    Args:
        grid: the grid.
        key: cell of the key, (row, col), also if the grid does not show it (a control).
    """
    if grid.start is None or grid.goal is None or grid.door is not None:
        return None
    from_start, to_goal = (distances_to(grid.walls, [cell]) for cell in (grid.start, grid.goal))
    length = int(to_goal[grid.start])
    on_path = (from_start > 0) & (to_goal > 0) & (from_start + to_goal == length)
    first_cells = np.argwhere(on_path & (from_start == 1)).tolist()
    # A connected part of the inner cells has one cell per distance, so two parts of minimum size are two paths.
    if length < 2 or len(first_cells) != 2 or int(on_path.sum()) != 2 * (length - 1):
        return None
    parts = [np.argwhere(distances_to(~on_path, [(row, col)]) >= 0).tolist() for row, col in first_cells]
    first, second = (frozenset((row, col) for row, col in part) for part in parts)
    if first & second or key not in first | second:
        return None
    return (first, second) if key in first else (second, first)


class _Errors(NamedTuple):
    """Non-optimal actions of a table, seen relative to the key."""

    before: Mask  # [N] actions before the key's cell is reached, on worlds with a key or controls
    wrong: Mask  # [N] the non-optimal ones among them
    nearer: Mask  # [N] the wrong ones that shorten the path to the key (with the door locked)
    known: Mask  # [E] whether the episode's world has a key or is a control


def _key_errors(table: StepTable) -> _Errors:
    cell, has_cell = table.once(key_cells)
    at_key = (table.state[:, :2] == cell[table.episode]).all(axis=1)
    reached = np.concatenate([[0], np.cumsum(at_key)])
    before = reached[1:] == reached[table.begin][table.episode]  # True until the key's cell is reached
    before &= has_cell[table.episode] & table.optimal.any(axis=1) & (table.action >= 0)
    wrong = before & ~table.is_optimal
    nearer = np.zeros(len(wrong), dtype=bool)
    following = table.following
    world_of = table.world[table.episode]
    for world in np.unique(world_of[wrong]).tolist():
        in_world = np.flatnonzero(wrong & (world_of == world))
        grid, key = table.worlds[world].grid, cell[table.episode[in_world[0]]].tolist()
        solid = grid.walls.copy()
        if grid.door is not None:
            solid[grid.door] = True
        distances = distances_to(solid, [(key[0], key[1])])
        before_action, after_action = (
            distances[states[in_world, 0], states[in_world, 1]] for states in (table.state, following)
        )
        nearer[in_world] = (after_action >= 0) & (after_action < before_action)
    return _Errors(before=before, wrong=wrong, nearer=nearer, known=has_cell)


def key_cells(table: StepTable) -> tuple[npt.NDArray[np.int64], Mask]:
    """Find the cell of the key for each episode of a table; in a control world, the cell where its twin has the key.

    A control is a world in the same cluster with the same walls, start and goal, but without the key.

    Returns:
        ``[E, 2]`` cell (row, col) for each of the E episodes, (-1, -1) in other worlds; and ``[E]`` bool, whether the
        episode's world has a key or is a control.
    """
    keyed = [world for world in table.worlds if world.grid.key is not None]
    twins = {(world.cluster_id, world.grid.at(key=None)): world.grid.key for world in keyed}
    keys = [world.grid.key or twins.get((world.cluster_id, world.grid)) or (-1, -1) for world in table.worlds]
    cells = np.array(keys, dtype=np.int64).reshape(-1, 2)[table.world]
    return cells, cells[:, 0] >= 0
