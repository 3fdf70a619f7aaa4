"""Utilities of episodes under each hypothesis, and of random agents in their place.

Where an agent's steps hold the exact policy that each action was drawn with, the state after a step is replaced by its
expectation under that policy: ``E[1(s' in place) | s] = sum over a of pi(a | s) 1(T(s, a) in place)``. The mean stays
the same, the chance of the drawn actions leaves it (conditional Monte Carlo); the states that were visited stay drawn.

Source: the conditional expectation as estimator: Rao-Blackwell theorem; Asmussen and Glynn (2007), Stochastic
Simulation, section V.4.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.settings import GoalSettings, Invalid, Mask, Utility, place, place_of_cell
from goalscope.measures.key import key_cells
from goalscope.measures.table import StepTable
from goalscope.planning.process import Process, grid_process, process_of
from goalscope.rng import stream
from goalscope.runs.record import policy_of
from goalscope.worlds.grid import Action, Grid, Position
from goalscope.worlds.world import World

_SUM = 1e-6
Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """A world with a horizon: what one rationality curve belongs to."""

    world_id: str
    grid_id: str  # its cluster
    grid: Grid | Process  # the world, or what the agent believes it to be
    horizon: int
    masks: Mapping[str, Mask]  # hypothesis -> [S] where it is fulfilled; without those that mean nothing here

    @property
    def process(self) -> Process:
        """What every action does there."""
        return grid_process(self.grid) if isinstance(self.grid, Grid) else self.grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Returns:
    """What each episode got."""

    units: tuple[Unit, ...]
    unit: Numbers  # [E] the unit of each episode; numbered alike whatever stands in the place of the worlds
    complete: npt.NDArray[np.bool_]  # [E] whether it has a return: recorded to its end, its world not left out
    exact: npt.NDArray[np.bool_]  # [E] whether exact policies stand in the place of its drawn actions
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

    ``believed`` are the grids that stand in the place of worlds, by world id (others are left out), ``cells`` those of
    hypotheses that are no names, see `GoalSettings`.
    """
    units, unit = _units(table, hypotheses, believed, cells or {})
    complete = (table.outcome != "stopped") | (table.length == table.horizon)
    if believed is not None:
        complete &= np.array([world in believed for world in table.world_id.tolist()], dtype=bool)
    values = {name: np.full(len(unit), np.nan) for name in hypotheses}
    # Where an action leads on a grid that is believed is not where the agent's policy led it.
    exact = exactly(table) if believed is None else np.zeros(len(unit), dtype=bool)
    for number, one in enumerate(units):
        mine = np.flatnonzero((unit == number) & complete)
        if not len(mine):
            continue
        if utility == "steps":
            spent = visits(table, one, mine, exact=exact[mine])
        else:
            spent = _one_hot(one, _last(table, one, mine))
            _expect(table, one, mine[exact[mine]], spent, np.flatnonzero(exact[mine]), first=one.horizon)
        for name, mask in one.masks.items():
            values[name][mine] = spent @ mask
    failed = int((complete & (table.outcome == "failure") & (table.length < table.horizon)).sum())
    return Returns(units=units, unit=unit, complete=complete, exact=exact & complete, failed=failed, values=values)


def visits(table: StepTable, unit: Unit, members: Numbers, *, exact: npt.NDArray[np.bool_] | None = None) -> Array:
    """Return ``[m, S]``: in how many of the n decisions each episode was in each state; at its end it stays there.

    ``exact`` ``[m]`` marks the episodes whose states count with their expectation under the policy of the step before.
    """
    length = table.length[members]
    begin = np.cumsum(table.length)[members] - length
    steps = np.concatenate([np.arange(first, first + count) for first, count in zip(begin, length, strict=True)])
    found = _one_hot(unit, _last(table, unit, members)) * (unit.horizon - length)[:, None]
    np.add.at(found, (np.repeat(np.arange(len(members)), length), _before(table, unit, steps)), 1.0)
    if exact is not None:
        _expect(table, unit, members[exact], found, np.flatnonzero(exact), first=1, last=unit.horizon - 1)
    return found


def first_states(table: StepTable, unit: Unit, members: Numbers) -> Numbers:
    """Return the number of the state in which each episode began, ``[m]``."""
    found = _last(table, unit, members).copy()  # where an episode has no step
    some = table.length[members] > 0
    found[some] = _before(table, unit, table.begin[members[some]])
    return found


def _expect(
    table: StepTable, unit: Unit, members: Numbers, found: Array, rows: Numbers, *, first: int, last: int | None = None
) -> None:
    """Put expected states in the place of those after the decisions ``first`` to ``last``, in rows of ``found``."""
    policy, place, begin = table.once(policies), unit.process, table.begin
    last = unit.horizon if last is None else last
    for episode, row in zip(members.tolist(), rows.tolist(), strict=True):
        steps = np.arange(begin[episode], begin[episode] + table.length[episode])
        decision = table.step[steps] + 1  # which comes next
        kept = steps[~np.isnan(policy[steps, 0]) & (decision >= first) & (decision <= last)]
        here, led = _before(table, unit, kept), _after(table, unit, kept)
        np.add.at(found[row], led, -1.0)
        chances = policy[kept, : place.actions]
        if not place.chance:
            np.add.at(found[row], place.transitions[here], chances)
        else:
            mass = np.zeros((place.states, place.actions))
            np.add.at(mass, here, chances)
            found[row] += place.base.flow(mass)


def _before(table: StepTable, unit: Unit, steps: Numbers) -> Numbers:
    """Return the number of the state before each step."""
    number = unit.process.number
    return table.once(_followed)[0][steps] if number is None else number(table.state[steps])


def _after(table: StepTable, unit: Unit, steps: Numbers) -> Numbers:
    """Return the number of the state after each step."""
    number = unit.process.number
    return table.once(_followed)[1][steps] if number is None else number(table.following[steps])


def _last(table: StepTable, unit: Unit, members: Numbers) -> Numbers:
    """Return the number of the state after the last step of each episode."""
    number = unit.process.number
    return table.once(_followed)[2][members] if number is None else number(table.final[members])


def _followed(table: StepTable) -> tuple[Numbers, Numbers, Numbers]:
    """Return the states before and after each step ``[N]`` and at the end ``[E]``, as far as the actions tell them.

    In worlds whose records tell their states it holds zeros.
    """
    before, after = np.zeros((2, len(table.action)), dtype=np.int64)
    last = np.zeros(len(table.length), dtype=np.int64)
    known = [process_of(world) for world in table.worlds]
    for episode, (first, count) in enumerate(zip(table.begin.tolist(), table.length.tolist(), strict=True)):
        process = known[int(table.world[episode])]
        if process is None or process.number is not None:
            continue
        at = int(process.start.argmax())
        for step in range(first, first + count):
            before[step] = at
            at = int(process.transitions[at, table.action[step]]) if table.action[step] >= 0 else at
            after[step] = at
        last[episode] = at
    return before, after, last


def policies(table: StepTable) -> Array:
    """Return ``[N, A]`` the probabilities that each action was drawn with, NaN where a step tells none.

    A is that of the world with the most actions; what others do not have has probability 0.

    Raises:
        ValueError: a stored policy that is none of the actions of its world.
    """
    known = [process_of(world) for world in table.worlds]
    counts = [len(Action) if one is None else one.actions for one in known] or [len(Action)]
    found = np.full((len(table.action), max(counts)), np.nan)
    if not table.has_texts:
        return found
    steps = (step for episode in table.episodes for step in episode.steps)
    for number, step in enumerate(steps):
        told = policy_of(step)
        if told is None or step.action is None:
            continue
        count = counts[int(table.world[table.episode[number]])]
        if len(told) != count or abs(sum(told) - 1) > _SUM:
            raise ValueError(
                f"the policy of a step must be the probabilities of {count} actions with the sum 1, got {told}: "
                "the run was changed, or written by another program"
            )
        found[number] = (*told, *(0.0,) * (max(counts) - count))
    return found


def exactly(table: StepTable) -> npt.NDArray[np.bool_]:
    """Return ``[E]`` whether every turn of an episode that held an action tells its policy, and one turn held one."""
    missing = np.isnan(table.once(policies)[:, 0]) & (table.action >= 0)
    found: npt.NDArray[np.bool_] = np.bincount(table.episode, weights=missing, minlength=len(table.length)) == 0
    return found & acted(table)


def acted(table: StepTable) -> npt.NDArray[np.bool_]:
    """Return ``[E]`` whether any turn of each episode held an action."""
    return np.bincount(table.episode, weights=table.action >= 0, minlength=len(table.length)) > 0


def random_returns(
    unit: Unit, episodes: int, repeats: int, settings: GoalSettings, *, exact: bool = False
) -> dict[str, Array]:
    """Return the mean utility, ``[repeats]``, of simulated random agents in a world by hypothesis.

    With ``exact`` each state counts with its expectation under the uniform policy of the step before.
    """
    totals = {name: np.zeros(episodes * repeats) for name in unit.masks}
    expected = {name: expected_after(unit, mask, settings.invalid) for name, mask in unit.masks.items() if exact}
    before: Numbers | None = None
    for step, state in enumerate(random_walks(unit, episodes * repeats, seed=settings.seed, invalid=settings.invalid)):
        if (step == unit.horizon) == (settings.utility == "arrival"):
            for name, total in totals.items():
                total += unit.masks[name][state] if before is None else expected[name][before]
        before = state if exact else None
    return {name: total.reshape(repeats, episodes).mean(axis=1) for name, total in totals.items()}


def random_walks(unit: Unit, walks: int, *, seed: int, invalid: Invalid) -> Iterator[Numbers]:
    """Yield ``[walks]`` the states of uniformly random agents, before each of the n decisions and after the last.

    The same world, horizon and number of walks give the same ones in any order of work. With ``invalid`` "action" there
    is one more equally likely action, which changes nothing.
    """
    rng = stream(seed, "random agents", unit.world_id, unit.horizon, walks, invalid)
    place = unit.process
    own = place.actions
    count = own + (invalid == "action")
    if place.offered is not None:
        yield from _offered_walks(unit, walks, rng, idle=count > own)
        return
    drawn = rng.integers(0, count, size=(unit.horizon, walks), dtype=np.int8 if count <= 127 else np.int64)
    state = place.draw_start(walks, rng)
    yield state
    for actions in drawn:
        after = place.draw_next(state, np.minimum(actions, own - 1).astype(np.int64), rng)
        state = np.where(actions < own, after, state)
        yield state


def _offered_walks(unit: Unit, walks: int, rng: np.random.Generator, *, idle: bool) -> Iterator[Numbers]:
    """Yield the states of `random_walks` where each state offers actions of its own; with ``idle`` one more stays."""
    place = unit.process
    count, actions = place.choices
    state = place.draw_start(walks, rng)
    yield state
    for _ in range(unit.horizon):
        drawn = (rng.random(walks) * (count[state] + idle)).astype(np.int64)
        acts = drawn < count[state]
        state = np.where(acts, place.draw_next(state, actions[state, np.where(acts, drawn, 0)], rng), state)
        yield state


def expected_after(unit: Unit, values: Array, invalid: Invalid) -> Array:
    """Return the mean of values ``[S]`` (or ``[S, K]``) over what a uniformly random agent does in each state."""
    found = unit.process.base.expect(values)
    if unit.process.offered is not None:
        return _expected_of_offered(found, values, unit.process.offered, idle=invalid == "action")
    if invalid == "action":
        found = np.concatenate([found, values[:, None]], axis=1)
    mean: Array = found.mean(axis=1)
    return mean


def _expected_of_offered(found: Array, values: Array, offered: npt.NDArray[np.bool_], *, idle: bool) -> Array:
    """Return the mean of ``[S, A]`` (or ``[S, A, K]``) over the offered actions, and with ``idle`` over staying."""
    chosen = offered.reshape(*offered.shape, *(1,) * (found.ndim - 2))
    total, count = np.where(chosen, found, 0.0).sum(axis=1), chosen.sum(axis=1)
    return np.asarray((total + values) / (count + 1) if idle else total / count)


def work_items(
    table: StepTable, settings: GoalSettings, believed: Mapping[str, Grid] | None
) -> tuple[dict[str, tuple[str, ...]], dict[str, Returns], Returns]:
    """Return the names of the draws of each hypothesis, the returns by draw, and those that tell of the episodes.

    A hypothesis that is not drawn is its own only draw.
    """
    names: dict[str, tuple[str, ...]] = {}
    cells, grids = dict(settings.cells), dict[str, Mapping[str, Grid] | None]()
    for name in settings.hypotheses:
        draws = settings.drawn.get(name, ())
        names[name] = tuple(f"{name}\n{number}" for number in range(len(draws))) if len(draws) > 1 else (name,)
        for one, draw in zip(names[name], draws, strict=False):
            cells[one], grids[one] = draw.cells, draw.grids
    shared = [one for listed in names.values() for one in listed if grids.get(one) is None]
    main = episode_returns(table, shared, utility=settings.utility, believed=believed, cells=cells)
    found = dict.fromkeys(shared, main)
    for one, standing in grids.items():
        if standing is not None:
            found[one] = episode_returns(table, (one,), utility=settings.utility, believed=standing, cells=cells)
    return names, found, main


def _units(
    table: StepTable,
    hypotheses: Sequence[str],
    believed: Mapping[str, Grid] | None,
    meant: Mapping[str, Mapping[str, Position]],
) -> tuple[tuple[Unit, ...], Numbers]:
    cells, known = key_cells(table) if "grid" in table.offers else (np.zeros((0, 2), dtype=np.int64), None)
    numbers: dict[tuple[str, int], int] = {}
    units: list[Unit] = []
    unit = np.zeros(len(table.length), dtype=np.int64)
    for index, (world_id, horizon) in enumerate(zip(table.world_id.tolist(), table.horizon.tolist(), strict=True)):
        if (world_id, horizon) not in numbers:
            world = table.worlds[table.world[index]]
            place: Grid | Process
            if known is None:
                place, masks = _named(world, hypotheses)
            else:
                key = (int(cells[index, 0]), int(cells[index, 1])) if known[index] else None
                place, masks = _placed(world_id, world.grid, key, hypotheses, believed, meant)
            numbers[world_id, horizon] = len(units)
            grid_id = str(table.grid_id[index])
            units.append(Unit(world_id=world_id, grid_id=grid_id, grid=place, horizon=horizon, masks=masks))
        unit[index] = numbers[world_id, horizon]
    return tuple(units), unit


def _placed(
    world_id: str,
    grid: Grid,
    key: Position | None,
    hypotheses: Sequence[str],
    believed: Mapping[str, Grid] | None,
    meant: Mapping[str, Mapping[str, Position]],
) -> tuple[Grid, dict[str, Mask]]:
    """Return the grid that stands in the place of a world, and where each hypothesis is fulfilled there."""
    there = believed is None or world_id in believed
    if believed is not None:
        grid = _check_believed(world_id, believed[world_id], grid) if there else grid
        key = grid.key
    found = {
        name: place_of_cell(meant[name].get(world_id), grid) if name in meant else place(name, grid, key)
        for name in (hypotheses if there else ())
    }
    return grid, {name: mask for name, mask in found.items() if mask is not None}


def _named(world: World, hypotheses: Sequence[str]) -> tuple[Process, dict[str, Mask]]:
    """Return the process of a world that is no grid, and where each hypothesis that it names is fulfilled."""
    found = process_of(world)
    if found is None:
        raise ValueError(
            f"MEG must be measured in worlds whose decision process is known, got one of kind {world.kind!r} without: "
            "give its class a method process()"
        )
    return found, {name: found.goals[name] for name in hypotheses if name in found.goals}


def _check_believed(world_id: str, believed: Grid, true: Grid) -> Grid:
    if believed.walls.shape != true.walls.shape or believed.start is None or believed.goal is None:
        raise ValueError(
            f"a believed grid must have the shape {list(true.walls.shape)} of its world {world_id} and show an agent "
            f"and a goal, got {list(believed.walls.shape)}:\n{believed}"
        )
    return believed


def _one_hot(unit: Unit, states: Numbers) -> Array:
    found = np.zeros((len(states), unit.process.states))
    found[np.arange(len(states)), states] = 1.0
    return found
