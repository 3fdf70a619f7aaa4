"""What episodes, and random agents in their place, got out of their worlds under each hypothesis."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.hypotheses import Invalid, Mask, Utility, place, place_of_cell
from goalscope.measures.key import key_cells
from goalscope.measures.table import StepTable
from goalscope.planning.mdp import at_cell
from goalscope.rng import stream
from goalscope.worlds.dynamics import initial_state, phases, state_number, transitions
from goalscope.worlds.grid import Grid, Position

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """A world with a horizon: what one rationality curve belongs to.

    Attributes:
        world_id: id of the world.
        grid_id: its cluster.
        grid: the world, or what the agent believes it to be.
        horizon: most steps of its episodes.
        masks: hypothesis -> ``[P * H * W]`` where it is fulfilled; without those that mean nothing here.
    """

    world_id: str
    grid_id: str
    grid: Grid
    horizon: int
    masks: Mapping[str, Mask]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Returns:
    """What each episode got.

    Attributes:
        units: U worlds with horizons.
        unit: ``[E]`` int64 the unit of each episode; numbered alike whatever stands in the place of the worlds.
        complete: ``[E]`` bool, False for episodes whose record stops before their end, and for those of worlds that
            are left out; they have no return.
        failed: number of episodes that a turn without an action ended; they count as standing still from there on.
        values: hypothesis -> ``[E]`` utility of each episode, NaN where there is none.
    """

    units: tuple[Unit, ...]
    unit: npt.NDArray[np.int64]
    complete: npt.NDArray[np.bool_]
    failed: int
    values: Mapping[str, Array]


def episode_returns(
    table: StepTable,
    hypotheses: Sequence[str],
    *,
    utility: Utility,
    believed: Mapping[str, Grid] | None = None,
    cells: Mapping[str, Mapping[str, Position]] | None = None,
) -> Returns:
    """Return the utility of each episode under each hypothesis.

    Args:
        table: the episodes.
        hypotheses: their names.
        utility: what counts.
        believed: world id -> the grid that stands in the place of that world (a decoded map); worlds without one are
            left out.
        cells: hypothesis -> world id -> its cell, see `GoalSettings`.

    Raises:
        ValueError: a believed grid that has another shape, or no agent or goal.
    """
    units, unit = _units(table, hypotheses, believed, cells or {})
    complete = (table.outcome != "stopped") | (table.length == table.horizon)
    if believed is not None:
        complete &= np.array([world in believed for world in table.world_id.tolist()], dtype=bool)
    values = {name: np.full(len(unit), np.nan) for name in hypotheses}
    begin = np.cumsum(table.length) - table.length
    for number, one in enumerate(units):
        mine = np.flatnonzero((unit == number) & complete)
        if not len(mine):
            continue
        steps = np.concatenate([np.arange(begin[e], begin[e] + table.length[e]) for e in mine])
        owner = np.repeat(np.arange(len(mine)), table.length[mine])
        during, final = state_index(one.grid, table.state[steps]), state_index(one.grid, table.final[mine])
        for name, mask in one.masks.items():
            if utility == "arrival":
                values[name][mine] = mask[final]
                continue
            spent = np.bincount(owner, weights=mask[during], minlength=len(mine))
            values[name][mine] = spent + mask[final] * (one.horizon - table.length[mine])
    failed = int((complete & (table.outcome == "failure") & (table.length < table.horizon)).sum())
    return Returns(units=units, unit=unit, complete=complete, failed=failed, values=values)


def acted(table: StepTable) -> npt.NDArray[np.bool_]:
    """Return ``[E]`` whether any turn of each episode held an action."""
    return np.bincount(table.episode, weights=table.action >= 0, minlength=len(table.length)) > 0


def random_returns(
    unit: Unit, episodes: int, repeats: int, *, seed: int, utility: Utility, invalid: Invalid
) -> dict[str, Array]:
    """Simulate uniformly random agents in a world.

    Args:
        unit: the world.
        episodes: episodes of each agent.
        repeats: number of agents R.
        seed: root seed; the same world, horizon and counts give the same walks in any order of work.
        utility: what counts.
        invalid: "action" for five equally likely actions, the fifth of which changes nothing.

    Returns:
        Hypothesis -> ``[R]`` mean utility of each agent's episodes.
    """
    names = list(unit.masks)
    masks = np.stack([unit.masks[name] for name in names]) if names else np.zeros((0, 1))
    total = np.zeros((len(names), episodes * repeats))
    walks = random_walks(unit, episodes * repeats, seed=seed, invalid=invalid)
    for step, state in enumerate(walks):
        if (step == unit.horizon) == (utility == "arrival"):
            total += masks[:, state] if names else 0.0
    return {name: part.reshape(repeats, episodes).mean(axis=1) for name, part in zip(names, total, strict=True)}


def random_walks(unit: Unit, walks: int, *, seed: int, invalid: Invalid) -> Iterator[npt.NDArray[np.int64]]:
    """Yield ``[walks]`` the states of uniformly random agents, before each of the n decisions and after the last.

    Args:
        unit: the world.
        walks: number of agents.
        seed, invalid: as in `random_returns`.
    """
    rng = stream(seed, "random agents", unit.world_id, unit.horizon, walks, invalid)
    table = absorbing(unit.grid)
    state = np.full(walks, state_number(unit.grid, initial_state(unit.grid)))
    drawn = rng.integers(0, 4 if invalid == "no-op" else 5, size=(unit.horizon, walks), dtype=np.int8)
    yield state
    for actions in drawn:
        state = np.where(actions < 4, table[state, np.minimum(actions, 3)], state)
        yield state


def absorbing(grid: Grid) -> npt.NDArray[np.int64]:
    """Return the transition table ``[S, 4]`` of a world whose goal ends the episode.

    Raises:
        ValueError: the grid shows no goal.
    """
    if grid.goal is None:
        raise ValueError("an episode can end on a grid that shows its goal (G) only, got a grid without one")
    table = transitions(grid).astype(np.int64)
    there = np.flatnonzero(at_cell(grid, grid.goal))
    table[there] = there[:, None]
    return table


def _units(
    table: StepTable,
    hypotheses: Sequence[str],
    believed: Mapping[str, Grid] | None,
    meant: Mapping[str, Mapping[str, Position]],
) -> tuple[tuple[Unit, ...], npt.NDArray[np.int64]]:
    cells, known = key_cells(table)
    numbers: dict[tuple[str, int], int] = {}
    units: list[Unit] = []
    unit = np.zeros(len(table.length), dtype=np.int64)
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        if (world_id, horizon) not in numbers:
            grid = table.worlds[table.world[index]].grid
            there = believed is None or world_id in believed
            if believed is not None and there:
                grid = _check_believed(world_id, believed[world_id], grid)
            key = (int(cells[index, 0]), int(cells[index, 1])) if known[index] else None
            key = grid.key if believed is not None else key
            found = {
                name: place_of_cell(meant[name].get(world_id), grid) if name in meant else place(name, grid, key)
                for name in (hypotheses if there else ())
            }
            masks = {name: mask for name, mask in found.items() if mask is not None}
            numbers[world_id, horizon] = len(units)
            grid_id = str(table.grid_id[index])
            units.append(Unit(world_id=world_id, grid_id=grid_id, grid=grid, horizon=horizon, masks=masks))
        unit[index] = numbers[world_id, horizon]
    return tuple(units), unit


def _check_believed(world_id: str, believed: Grid, true: Grid) -> Grid:
    if believed.walls.shape != true.walls.shape or believed.start is None or believed.goal is None:
        raise ValueError(
            f"a believed grid must have the shape {list(true.walls.shape)} of its world {world_id} and show an agent "
            f"and a goal, got {list(believed.walls.shape)}:\n{believed}"
        )
    return believed


def state_index(grid: Grid, states: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of states ``[N, 3]``; a phase that the grid does not have counts as its last one."""
    row, col, phase = states.T
    found: npt.NDArray[np.int64] = np.minimum(phase, phases(grid) - 1) * grid.walls.size + row * grid.width + col
    return found
