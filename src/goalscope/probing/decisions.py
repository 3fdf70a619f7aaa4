"""What an agent did at the steps of some activations, and what would have been optimal there in truth."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape, freeze
from goalscope.planning import solve
from goalscope.probing.cells import Cells, steps_of
from goalscope.runs import Episode

NO_ACTION: Final = -1
"""Action of a turn that held none."""

_ARRAYS = ("action", "optimal", "place", "goal", "agent", "shape", "density", "episode_id", "step", "grid_id")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisions:
    """Actions at N steps and the truth that they were taken in.

    Attributes:
        action: ``[N]`` int64, `NO_ACTION` for a turn without one.
        optimal: ``[N, 4]`` bool, whether an action is optimal in the true grid.
        place, goal: ``[N, 2]`` int64, (row, col) where the agent stands and where the goal lies in truth.
        agent: ``[N]`` text, short name of the agent.
        shape: ``[N, 2]`` int64, height and width of the grid.
        density: ``[N]`` float64, NaN where it is not known.
        episode_id, grid_id: ``[N]`` text.
        step: ``[N]`` int64.

    Raises:
        ValueError: arrays that do not fit one another, or an action that is none of the four.
    """

    action: npt.NDArray[np.int64]
    optimal: npt.NDArray[np.bool_]
    place: npt.NDArray[np.int64]
    goal: npt.NDArray[np.int64]
    agent: npt.NDArray[np.object_]
    shape: npt.NDArray[np.int64]
    density: npt.NDArray[np.float64]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    grid_id: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        sizes = check_shape("action", self.action, "N")
        check_shape("optimal", self.optimal, "N 4", sizes)
        for name in ("place", "goal", "shape"):
            check_shape(name, getattr(self, name), "N 2", sizes)
        for name in ("agent", "density", "episode_id", "step", "grid_id"):
            check_shape(name, getattr(self, name), "N", sizes)
        if len(self.action) and (self.action.min() < NO_ACTION or self.action.max() > 3):
            raise ValueError(f"an action must be 0 to 3, or {NO_ACTION} for none, got {np.unique(self.action)}")
        for name in _ARRAYS:
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.action)

    @property
    def taken(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether there is an action."""
        found: npt.NDArray[np.bool_] = self.action != NO_ACTION
        return found

    @property
    def is_optimal(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether there is an action and it is optimal in truth."""
        found: npt.NDArray[np.bool_] = self.taken & chosen(self.optimal, self.action)
        return found

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the steps, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        return replace(self, **{name: getattr(self, name)[mask] for name in _ARRAYS})


def chosen(of_actions: npt.NDArray[Any], action: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the value of each step's own action, ``[N]``; that of action 0 for a turn without one."""
    found: npt.NDArray[Any] = of_actions[np.arange(len(action)), np.maximum(action, 0)]
    return found


def decisions_at(cells: Cells, episodes: Iterable[Episode]) -> Decisions:
    """Return what was done at the steps of some labels, in their order.

    Args:
        cells: the steps, see `label_cells`.
        episodes: the run's episodes, e.g. ``store.episodes()``; read once.

    Raises:
        ValueError: a step is not among the episodes, or its world has a door: no class of cells stands for one, so that
            a decoded map cannot say what is optimal there.
    """
    count = len(cells)
    action = np.full(count, NO_ACTION, dtype=np.int64)
    optimal = np.zeros((count, 4), dtype=bool)
    place, goal = np.zeros((count, 2), dtype=np.int64), np.zeros((count, 2), dtype=np.int64)
    agent = np.full(count, "", dtype=object)
    for row, episode, number in steps_of(cells, episodes):
        grid, one = episode.world.grid, episode.steps[number]
        if grid.door is not None:
            raise ValueError(
                f"decoded beliefs are compared in worlds without a door, {episode.id} has one at {grid.door}: leave "
                "the steps of such worlds out"
            )
        action[row] = NO_ACTION if one.action is None else int(one.action)
        optimal[row] = solve(grid).optimal_in(one.state)
        place[row], goal[row], agent[row] = one.state.position, np.array(grid.goal), episode.agent
    return Decisions(
        action=action,
        optimal=optimal,
        place=place,
        goal=goal,
        agent=agent,
        **{name: getattr(cells, name) for name in ("shape", "density", "episode_id", "step", "grid_id")},
    )
