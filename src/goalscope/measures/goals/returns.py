"""Utilities of episodes under each hypothesis.

Where steps hold the exact policy of each drawn action, the state after a step is replaced by its expectation under that
policy: ``E[1(s' in place) | s] = sum over a of pi(a | s) 1(T(s, a) in place)``. The mean is unchanged and the variance
of the drawn actions is removed (conditional Monte Carlo); the visited states remain random.

Source: the conditional expectation as estimator: Rao-Blackwell theorem; Asmussen and Glynn (2007), Stochastic
Simulation, section V.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.distributions import to_distributions
from goalscope.measures.goals.settings import GoalSettings, Mask, Utility, place, place_of_cell
from goalscope.measures.key import key_cells
from goalscope.measures.table import StepTable
from goalscope.planning.process import Process, grid_process, process_of
from goalscope.runs.record import policy_of
from goalscope.worlds.grid import Action, Grid, Position
from goalscope.worlds.world import World

_MOST_COUNTS: Final = 1 << 22  # counts of visits held at a time
Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """A world with a horizon, which has one rationality curve."""

    world_id: str
    cluster: str  # its cluster
    grid: Grid | Process  # the world, or the agent's belief about it
    horizon: int
    masks: Mapping[str, Mask]  # hypothesis -> [S] where it is fulfilled; only those defined here

    @property
    def process(self) -> Process:
        """Its transitions."""
        return grid_process(self.grid) if isinstance(self.grid, Grid) else self.grid

    @property
    def lucky(self) -> bool:
        """Whether episodes of one policy may differ by chance, as in `Process`; never on a grid."""
        return not isinstance(self.grid, Grid) and self.grid.lucky


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Returns:
    """Utilities of the episodes."""

    units: tuple[Unit, ...]
    unit: Numbers  # [E] the unit of each episode; the numbering does not depend on beliefs
    complete: npt.NDArray[np.bool_]  # [E] whether it has a return: recorded to its end, its world not left out
    exact: npt.NDArray[np.bool_]  # [E] whether exact policies replace its drawn actions
    failed: int  # episodes that a turn without an action ended; they count as standing still from there on
    values: Mapping[str, Array]  # hypothesis -> [E] utility of each episode, NaN where there is none


def episode_returns(
    table: StepTable,
    hypotheses: Sequence[str],
    *,
    utility: Utility,
    believed: Mapping[str, Grid] | None = None,
    cells: Mapping[str, Mapping[str, Position]] | None = None,
) -> Returns:
    """Return the utility of each episode under each hypothesis.

    ``believed`` are grids that replace worlds, by world id (others are left out); ``cells`` are those of further
    hypotheses, see `GoalSettings`.
    """
    units, unit = _units(table, hypotheses, believed, cells or {})
    complete = (table.outcome != "stopped") | (table.length == table.horizon)
    if believed is not None:
        complete &= np.array([world in believed for world in table.world_id.tolist()], dtype=bool)
    values = {name: np.full(len(unit), np.nan) for name in hypotheses}
    # On a believed grid the outcomes of actions differ from those in the agent's episode.
    exact = exactly(table) if believed is None else np.zeros(len(unit), dtype=bool)
    for number, member_unit in enumerate(units):
        members = np.flatnonzero((unit == number) & complete)
        if not len(members):
            continue
        # Counts of visits are whole numbers, whose sums are the same in parts of the episodes; expectations are not.
        size = len(members) if exact[members].any() else max(1, _MOST_COUNTS // member_unit.process.states)
        for part in np.split(members, range(size, len(members), size)):
            if utility == "steps":
                occupancy = visits(table, member_unit, part, exact=exact[part])
            else:
                occupancy = _one_hot(member_unit, _last(table, member_unit, part))
                averaged = np.flatnonzero(exact[part])
                _expect(table, member_unit, part[averaged], occupancy, averaged, first=member_unit.horizon)
            for name, mask in member_unit.masks.items():
                values[name][part] = occupancy @ mask
    failed = int((complete & (table.outcome == "failure") & (table.length < table.horizon)).sum())
    return Returns(units=units, unit=unit, complete=complete, exact=exact & complete, failed=failed, values=values)


def visits(table: StepTable, unit: Unit, members: Numbers, *, exact: npt.NDArray[np.bool_] | None = None) -> Array:
    """Return ``[m, S]``: number of the n decisions of each episode in each state; it stays in its last state.

    ``exact`` ``[m]`` marks the episodes whose states are replaced by expectations under the previous step's policy.
    """
    length = table.length[members]
    begin = np.cumsum(table.length)[members] - length
    steps = np.concatenate([np.arange(first, first + count) for first, count in zip(begin, length, strict=True)])
    counts = _one_hot(unit, _last(table, unit, members)) * (unit.horizon - length)[:, None]
    np.add.at(counts, (np.repeat(np.arange(len(members)), length), _before(table, unit, steps)), 1.0)
    if exact is not None:
        _expect(table, unit, members[exact], counts, np.flatnonzero(exact), first=1, last=unit.horizon - 1)
    return counts


def first_states(table: StepTable, unit: Unit, members: Numbers) -> Numbers:
    """Return the number of the state in which each episode began, ``[m]``."""
    numbers = _last(table, unit, members).copy()  # where an episode has no step
    has_steps = table.length[members] > 0
    numbers[has_steps] = _before(table, unit, table.begin[members[has_steps]])
    return numbers


def _expect(
    table: StepTable, unit: Unit, members: Numbers, counts: Array, rows: Numbers, *, first: int, last: int | None = None
) -> None:
    """Replace the states after the decisions ``first`` to ``last`` by expected ones, in rows of ``counts``."""
    policy, process, begin = table.once(policies), unit.process, table.begin
    last = unit.horizon if last is None else last
    for episode, row in zip(members.tolist(), rows.tolist(), strict=True):
        steps = np.arange(begin[episode], begin[episode] + table.length[episode])
        decision = table.step[steps] + 1  # the decision after the step
        replaced = steps[~np.isnan(policy[steps, 0]) & (decision >= first) & (decision <= last)]
        before, after = _before(table, unit, replaced), _after(table, unit, replaced)
        np.add.at(counts[row], after, -1.0)
        probabilities = policy[replaced, : process.actions]
        if not process.chance:
            np.add.at(counts[row], process.transitions[before], probabilities)
        else:
            mass = np.zeros((process.states, process.actions))
            np.add.at(mass, before, probabilities)
            counts[row] += process.base.flow(mass)


def _before(table: StepTable, unit: Unit, steps: Numbers) -> Numbers:
    """Return the number of the state before each step."""
    number = unit.process.number
    return table.once(_followed)[0][steps] if number is None else number(table.codes[steps])


def _after(table: StepTable, unit: Unit, steps: Numbers) -> Numbers:
    """Return the number of the state after each step."""
    number = unit.process.number
    return table.once(_followed)[1][steps] if number is None else number(table.following_codes[steps])


def _last(table: StepTable, unit: Unit, members: Numbers) -> Numbers:
    """Return the number of the state after the last step of each episode."""
    number = unit.process.number
    return table.once(_followed)[2][members] if number is None else number(table.final_codes[members])


def _followed(table: StepTable) -> tuple[Numbers, Numbers, Numbers]:
    """Return the states before and after each step ``[N]`` and at the end ``[E]``, computed from the actions.

    Zeros in worlds whose records determine the states.
    """
    before, after = np.zeros((2, len(table.action)), dtype=np.int64)
    last = np.zeros(len(table.length), dtype=np.int64)
    processes = [process_of(world) for world in table.worlds]
    for episode, (first, count) in enumerate(zip(table.begin.tolist(), table.length.tolist(), strict=True)):
        process = processes[int(table.world[episode])]
        if process is None or process.number is not None:
            continue
        state = int(process.start.argmax())
        for step in range(first, first + count):
            before[step] = state
            state = int(process.transitions[state, table.action[step]]) if table.action[step] >= 0 else state
            after[step] = state
        last[episode] = state
    return before, after, last


def policies(table: StepTable) -> Array:
    """Return ``[N, A]`` the probabilities that each action was drawn with, NaN where a step has none.

    A is that of the world with the most actions; missing actions of others have probability 0.

    Raises:
        ValueError: a stored policy that is no distribution over the actions of its world.
    """
    processes = [process_of(world) for world in table.worlds]
    counts = [len(Action) if process is None else process.actions for process in processes] or [len(Action)]
    result = np.full((len(table.action), max(counts)), np.nan)
    if not table.has_texts:
        return result
    steps = (step for episode in table.episodes for step in episode.steps)
    recorded = list[int]()
    for number, step in enumerate(steps):
        probabilities = policy_of(step)
        if probabilities is None or step.action is None:
            continue
        count = counts[int(table.world[table.episode[number]])]
        if len(probabilities) != count:
            raise ValueError(
                f"the policy of a step must be the probabilities of {count} actions, got {probabilities}: the run was "
                "changed, or written by another program"
            )
        result[number] = (*probabilities, *(0.0,) * (max(counts) - count))
        recorded.append(number)
    result[recorded] = to_distributions("the recorded policies of steps", result[recorded])
    return result


def exactly(table: StepTable) -> npt.NDArray[np.bool_]:
    """Return ``[E]`` whether every turn with an action has its policy, and at least one turn has an action."""
    missing = np.isnan(table.once(policies)[:, 0]) & (table.action >= 0)
    complete: npt.NDArray[np.bool_] = np.bincount(table.episode, weights=missing, minlength=len(table.length)) == 0
    return complete & acted(table)


def acted(table: StepTable) -> npt.NDArray[np.bool_]:
    """Return ``[E]`` whether any turn of each episode held an action."""
    return np.bincount(table.episode, weights=table.action >= 0, minlength=len(table.length)) > 0


def work_items(
    table: StepTable, settings: GoalSettings, believed: Mapping[str, Grid] | None
) -> tuple[dict[str, tuple[str, ...]], dict[str, Returns], Returns]:
    """Return the names of the draws of each hypothesis, the returns by draw, and those of the undrawn hypotheses.

    A hypothesis without draws is its own only draw.
    """
    names: dict[str, tuple[str, ...]] = {}
    cells, grids = dict(settings.cells), dict[str, Mapping[str, Grid] | None]()
    for name in settings.hypotheses:
        draws = settings.drawn.get(name, ())
        names[name] = tuple(f"{name}\n{number}" for number in range(len(draws))) if len(draws) > 1 else (name,)
        for draw_name, draw in zip(names[name], draws, strict=False):
            cells[draw_name], grids[draw_name] = draw.cells, draw.grids
    on_main = [draw_name for draw_names in names.values() for draw_name in draw_names if grids.get(draw_name) is None]
    main = episode_returns(table, on_main, utility=settings.utility, believed=believed, cells=cells)
    result = dict.fromkeys(on_main, main)
    for draw_name, believed_grids in grids.items():
        if believed_grids is not None:
            result[draw_name] = episode_returns(
                table, (draw_name,), utility=settings.utility, believed=believed_grids, cells=cells
            )
    return names, result, main


def _units(
    table: StepTable,
    hypotheses: Sequence[str],
    believed: Mapping[str, Grid] | None,
    hypothesis_cells: Mapping[str, Mapping[str, Position]],
) -> tuple[tuple[Unit, ...], Numbers]:
    cells, has_key_cell = key_cells(table) if "grid" in table.offers else (np.zeros((0, 2), dtype=np.int64), None)
    numbers: dict[tuple[str, int], int] = {}
    units: list[Unit] = []
    unit = np.zeros(len(table.length), dtype=np.int64)
    same: dict[bytes, Mask] = {}  # many worlds have equal masks
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        if (world_id, horizon) not in numbers:
            world = table.worlds[table.world[index]]
            model: Grid | Process
            if has_key_cell is None:
                model, masks = _named(world, hypotheses)
            else:
                key = (int(cells[index, 0]), int(cells[index, 1])) if has_key_cell[index] else None
                model, masks = _placed(world_id, world.grid, key, hypotheses, believed, hypothesis_cells)
            masks = {name: same.setdefault(mask.tobytes(), mask) for name, mask in masks.items()}
            numbers[world_id, horizon] = len(units)
            cluster = str(table.cluster[index])
            units.append(Unit(world_id=world_id, cluster=cluster, grid=model, horizon=horizon, masks=masks))
        unit[index] = numbers[world_id, horizon]
    return tuple(units), unit


def _placed(
    world_id: str,
    grid: Grid,
    key: Position | None,
    hypotheses: Sequence[str],
    believed: Mapping[str, Grid] | None,
    hypothesis_cells: Mapping[str, Mapping[str, Position]],
) -> tuple[Grid, dict[str, Mask]]:
    """Return the grid that replaces a world, and where each hypothesis is fulfilled on it."""
    included = believed is None or world_id in believed
    if believed is not None:
        grid = _check_believed(world_id, believed[world_id], grid) if included else grid
        key = grid.key
    masks = {
        name: place_of_cell(hypothesis_cells[name].get(world_id), grid)
        if name in hypothesis_cells
        else place(name, grid, key)
        for name in (hypotheses if included else ())
    }
    return grid, {name: mask for name, mask in masks.items() if mask is not None}


def _named(world: World, hypotheses: Sequence[str]) -> tuple[Process, dict[str, Mask]]:
    """Return the process of a world other than a grid, and where each of its named hypotheses is fulfilled."""
    process = process_of(world)
    if process is None:
        raise ValueError(
            f"MEG must be measured in worlds whose decision process is known, got one of kind {world.kind!r} without: "
            "give its class a method process()"
        )
    return process, {name: process.goals[name] for name in hypotheses if name in process.goals}


def _check_believed(world_id: str, believed: Grid, true: Grid) -> Grid:
    if believed.walls.shape != true.walls.shape or believed.start is None or believed.goal is None:
        raise ValueError(
            f"a believed grid must have the shape {list(true.walls.shape)} of its world {world_id} and show an agent "
            f"and a goal, got {list(believed.walls.shape)}:\n{believed}"
        )
    return believed


def _one_hot(unit: Unit, states: Numbers) -> Array:
    result = np.zeros((len(states), unit.process.states))
    result[np.arange(len(states)), states] = 1.0
    return result
