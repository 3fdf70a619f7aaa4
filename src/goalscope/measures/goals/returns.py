"""Utilities of episodes under each hypothesis, of random agents in their place, and the work items of an estimate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.settings import GoalSettings, Invalid, Mask, Utility, place, place_of_cell
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


Place = tuple[int, Grid, bytes]
"""Number of a world, the grid that stands there, and the cells that are meant: what a rationality curve belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkItem:
    """A work item: one hypothesis, or one Monte Carlo draw of it, with the utility of each episode under it.

    Attributes:
        name: its name among the masks of the worlds.
        returns: the worlds that it is looked up in; all work items number the worlds alike.
    """

    name: str
    returns: Returns

    def unit(self, number: int) -> Unit:
        """Return a world."""
        return self.returns.units[number]

    def place(self, number: int) -> Place:
        """Return what decides the rationality curve of this work item in a world."""
        unit = self.unit(number)
        return number, unit.grid, unit.masks[self.name].tobytes()

    def places(self) -> set[Place]:
        """Return those of all worlds in which the hypothesis has a meaning."""
        units = enumerate(self.returns.units)
        return {self.place(number) for number, unit in units if self.name in unit.masks}


def work_items(
    table: StepTable, settings: GoalSettings, believed: Mapping[str, Grid] | None
) -> tuple[dict[str, tuple[WorkItem, ...]], Returns]:
    """Return the work items of each hypothesis, and the returns that say what became of the episodes.

    Args:
        table: the episodes.
        settings: the hypotheses.
        believed: world id -> grid in its place, for hypotheses that bring no grids of their own.

    Raises:
        ValueError: no hypothesis has a meaning in any world.
    """
    counts = {name: len(settings.drawn[name]) if name in settings.drawn else 1 for name in settings.hypotheses}
    names = {
        name: [f"{name}\n{number}" for number in range(count)] if count > 1 else [name]
        for name, count in counts.items()
    }
    meant = {
        one: draw
        for name in settings.drawn
        if name in names
        for one, draw in zip(names[name], settings.drawn[name], strict=True)
    }
    shared = [one for listed in names.values() for one in listed if one not in meant or meant[one].grids is None]
    cells = {**settings.cells, **{one: draw.cells for one, draw in meant.items()}}
    main = episode_returns(table, shared, utility=settings.utility, believed=believed, cells=cells)
    found = dict.fromkeys(shared, main)
    for one, draw in meant.items():
        if draw.grids is not None:
            found[one] = episode_returns(table, (one,), utility=settings.utility, believed=draw.grids, cells=cells)
    items = {name: tuple(WorkItem(name=one, returns=found[one]) for one in listed) for name, listed in names.items()}
    if not any(unit.masks for returns in found.values() for unit in returns.units):
        raise ValueError(f"some hypothesis must have a meaning in some world, got {', '.join(settings.hypotheses)}")
    return items, main
