"""Vectorised episodes of scripted agents on plain grids, with the same results as when played one by one.

Such an agent's probabilities are a table over the states of a world, and the world is a table of transitions. All
episodes of a part take a step together. The random number of each turn is the one that `Observation.draw` would use.
Episodes are encoded for storage directly from the arrays, without intermediate records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import heads, uniforms
from goalscope.agents.agent import Agent
from goalscope.agents.scripted import Scripted, ScriptedAgent
from goalscope.runs.codec import encode_head, encode_tags
from goalscope.runs.packed_steps import PackedSteps, pack_numbers
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.tables import EncodedEpisode
from goalscope.worlds.dynamics import initial_state, phases, state_number, step_batch, transitions
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.world import World

# maximum number of steps in a part, which limits its memory and the time until it is committed
_MOST_STEPS, _MOST_STATES = 60_000, 500_000
_FLAGS = np.array([0, 1, 3])  # for each phase

Planned = tuple[EpisodeSpec, World]


def plays_together(agent: Agent) -> bool:
    """Return whether an agent's actions depend only on its probabilities at each state of a plain grid."""
    kind: Any = type(agent)
    if not isinstance(agent, ScriptedAgent) or "table" not in vars(kind):
        return False
    follows_table = "probabilities" in vars(kind) or kind.probabilities is ScriptedAgent.probabilities
    return follows_table and kind.act is Scripted.act and kind._choose is ScriptedAgent._choose


def played_world(world: World) -> bool:
    """Return whether a world is a plain grid, without fog or a special instruction."""
    return type(world) is GridWorld and world.fog_radius is None


def parts(planned: Iterable[Planned]) -> Iterator[list[Planned]]:
    """Divide episodes into parts with bounded numbers of steps and states."""
    part, worlds, steps, states = list[Planned](), set[int](), 0, 0
    for spec, world in planned:
        steps += spec.horizon
        if id(world) not in worlds:
            worlds.add(id(world))
            states += 3 * world.grid.walls.size if played_world(world) else 0
        if part and (steps > _MOST_STEPS or states > _MOST_STATES):
            yield part
            part, worlds, steps, states = [], set(), spec.horizon, 0
        part.append((spec, world))
    if part:
        yield part


def play_ahead(
    agent: Agent, planned: Iterable[Planned], put: Callable[[list[EncodedEpisode]], None]
) -> Iterator[Planned]:
    """Play and store the episodes that can be vectorised; yield the others in order."""
    if not isinstance(agent, ScriptedAgent) or not plays_together(agent):
        yield from planned
        return
    for part in parts(planned):
        if together := [(spec, world) for spec, world in part if isinstance(world, GridWorld) and played_world(world)]:
            put(play(agent, together))
        yield from ((spec, world) for spec, world in part if not played_world(world))


def play(agent: ScriptedAgent, planned: Sequence[tuple[EpisodeSpec, GridWorld]]) -> list[EncodedEpisode]:
    """Play episodes for which `plays_together` and `played_world` hold, and return them encoded for storage."""
    worlds = {id(world): world for _, world in planned}
    tables = [_tables(agent, world.grid) for world in worlds.values()]
    begins = np.array([0, *accumulate(len(goal) for _, _, goal in tables)])
    after = np.concatenate([table + begin for (table, _, _), begin in zip(tables, begins[:-1], strict=True)])
    chances = np.concatenate([chance for _, chance, _ in tables])
    at_goal = np.concatenate([goal for _, _, goal in tables])
    numbers = {key: number for number, key in enumerate(worlds)}
    of = np.array([numbers[id(world)] for _, world in planned])
    first = np.array([state_number(world.grid, initial_state(world.grid)) for world in worlds.values()])
    shapes = np.array([world.grid.walls.shape for world in worlds.values()])

    (seed,) = {spec.seed for spec, _ in planned}
    begun = heads(seed, "turn", each=[spec.id for spec, _ in planned])
    horizon = np.array([spec.horizon for spec, _ in planned])
    state = begins[of] + first[of]
    live, turn = np.arange(len(planned)), 0
    moves_made: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    while len(live):
        live_states = state[live]
        cumulative = chances[live_states]
        drawn = uniforms([begun[index] for index in live.tolist()], turn, 0) * cumulative[:, -1]
        action = np.minimum((cumulative <= drawn[:, None]).sum(axis=1), 3)  # the same index as from `bisect_right`
        moves_made.append((live, live_states, action))
        state[live] = step_batch(after[None], np.int64(0), live_states, action)  # type: ignore[arg-type]
        turn += 1
        live = live[~at_goal[state[live]] & (turn < horizon[live])]

    episode, passed_states, actions = (np.concatenate([part[at] for part in moves_made]) for at in range(3))
    order = np.argsort(episode, kind="stable")
    length = np.bincount(episode, minlength=len(planned))
    walk = np.column_stack([_cells(passed_states, of[episode], begins, shapes), actions])[order]
    final = _cells(state, of, begins, shapes)
    ends = np.cumsum(length)
    tags = encode_tags(getattr(agent, "tags", None) or {})
    small = walk.astype(np.int8).tobytes() if shapes.max() <= 127 else None
    stored = list[EncodedEpisode]()
    rows = zip(planned, ends.tolist(), length.tolist(), final.tolist(), at_goal[state].tolist(), strict=True)
    for (spec, world), end, count, last, solved in rows:
        steps = walk[end - count : end]
        packed = pack_numbers(steps) if small is None else b"b" + small[4 * (end - count) : 4 * end]
        header = encode_head(spec, agent.name, "goal" if solved else "horizon", last, count, tags)
        stored.append((world, header, PackedSteps(packed, b"")))
    return stored


def _tables(
    agent: ScriptedAgent, grid: Grid
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return transitions, cumulative probabilities ``[S, 4]`` and whether each state is the goal, for one grid."""
    count, plain = phases(grid), grid.at(start=None)
    views = [plain, plain.at(key=None), plain.at(key=None, door=None)][:count]
    chances = []
    for phase, seen in enumerate(views if grid.key is not None else views[:1]):
        table = agent.table(seen, phase > 0)
        if table is None:
            raise ValueError(f"agent {agent.name} has no table of probabilities, so it cannot be played in parallel")
        chances.append(table.reshape(-1, 4))
    chances += chances[-1:] * (count - len(chances))  # a grid without a key has no later phases
    goal = np.zeros(grid.walls.shape, dtype=bool)
    if grid.goal is not None:
        goal[grid.goal] = True
    return transitions(grid), np.cumsum(np.concatenate(chances), axis=1), np.tile(goal.reshape(-1), count)


def _cells(
    state: npt.NDArray[np.int64],
    world: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    shapes: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Convert state indices in worlds to (row, col, flags), ``[N, 3]``."""
    phase, cell = np.divmod(state - begins[world], shapes.prod(axis=1)[world])
    row, col = np.divmod(cell, shapes[world, 1])
    return np.column_stack([row, col, _FLAGS[phase]])
