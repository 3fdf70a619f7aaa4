"""The exact optimal policy of a world, if it is known."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.worlds.dynamics import configuration_index, initial_state
from goalscope.worlds.planning.shortest import ShortestPaths, solve
from goalscope.worlds.world import Oracle, World


@dataclass(frozen=True, slots=True)
class GridOracle:
    """The optimal policy on a grid, by shortest paths. States are (row, col, phase); see `phase_column`."""

    paths: ShortestPaths
    length: int

    def look_up(self, states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return the optimal actions ``[N, 4]`` and the number of steps to the goal ``[N]`` of states ``[N, 3]``."""
        row, col, phase = states.T
        index = configuration_index(self.paths.grid, phase), row, col
        return self.paths.optimal[index], self.paths.distance[index].astype(np.int64)


def oracle(world: World) -> Oracle | None:
    """Return the exact optimal policy of a world: shortest paths on grids, `World.oracle` in other worlds."""
    if "grid" not in world.offers:
        return world.oracle()
    paths = solve(world.grid)
    return GridOracle(paths, int(paths.steps_from(initial_state(world.grid))))
