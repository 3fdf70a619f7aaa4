"""Success by chance: the exact results of agents that ignore what they see, in the worlds of an arm.

There are two such agents. One takes each offered action equally often. The other takes each action as often as the
agent under test did in other worlds (`goalscope.goals.baselines`). Both are propagated to the end of an episode:
``m_{t+1}(s') = sum over s, a of m_t(s) pi(a | s) P(s' | s, a)``, where finished episodes stay where they are.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.goals.baselines import blind_policy
from goalscope.worlds.dynamics import phases
from goalscope.worlds.grid import Grid
from goalscope.worlds.planning.mdp import TabularMDP
from goalscope.worlds.planning.process import grid_process
from goalscope.worlds.world import World

Array = npt.NDArray[np.float64]

STAGES: Final = {"arrived": 0, "key held": 1, "door open": 2}
"""Events that an episode may contain: the agent reached the goal, picked up the key, or opened the door."""


def outcomes(world: World, horizon: int, shares: Array | None = None) -> Array:
    """Return ``[3]`` the exact probabilities of `STAGES` for an agent that ignores what it sees.

    Args:
        world: a grid or an environment; an environment has no key and no door.
        horizon: maximum number of actions of an episode.
        shares: ``[A]`` frequencies of its actions; None for equal frequencies.
    """
    if "environment" in world.offers:
        table = world.believed.table
        mdp = table.mdp(np.zeros(len(table.states)), horizon)
        offered = table.offered | np.asarray(table.done)[:, None]  # an episode that is over stays under any action
        equal = np.full(mdp.actions, 1 / mdp.actions)
        policy = blind_policy(equal if shares is None else shares, offered, mdp.states, mdp.actions)
        last = _last_states(mdp, np.asarray(table.start, dtype=np.float64), policy, horizon)
        return np.array([float(last @ np.asarray(table.goal, dtype=np.float64)), 0.0, 0.0])
    return _in_grid(world.grid, horizon, None if shares is None else tuple(shares.tolist()))


@lru_cache(maxsize=16384)
def _in_grid(grid: Grid, horizon: int, shares: tuple[float, ...] | None) -> Array:
    process = grid_process(grid)
    equal = np.full(process.actions, 1 / process.actions)
    policy = blind_policy(equal if shares is None else np.array(shares), None, process.states, process.actions)
    last = _last_states(process.base, process.start, policy, horizon).reshape(phases(grid), *grid.walls.shape)
    arrived = float(last[:, grid.goal[0], grid.goal[1]].sum()) if grid.goal is not None else 0.0
    return np.array([arrived, float(last[1:].sum()), float(last[2:].sum())])


def _last_states(mdp: TabularMDP, start: Array, policy: Array, horizon: int) -> Array:
    """Return the probability of each of S states after ``horizon`` actions, ``[S]``."""
    mass = start
    for _ in range(horizon):
        mass = mdp.flow(mass[:, None] * policy)
    return mass
