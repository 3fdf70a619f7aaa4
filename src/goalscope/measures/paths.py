"""Path choice: which of two disjoint shortest paths is taken, the one with the key or the other.

Rows exist only for worlds that have exactly two shortest paths, disjoint but for start and goal, with the key on one of
them, and for their matched controls, where the key of the twin says which path is which. An agent without any
preference takes each path half of the time: 0.5 is what chance brings about.

Source: behavioural and representational evaluation, section 4.3 (2PathKeyEnv).
"""

from dataclasses import dataclass

import numpy as np

from goalscope.measures.key import key_cells
from goalscope.measures.measure import Measure, StepTable, episode_rows
from goalscope.planning.shortest import distances_to
from goalscope.rows import Rows
from goalscope.worlds.grid import ACTIONS, Grid, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChoice:
    """Whether the key's path was taken; one row an episode.

    Attributes:
        first: whether the path entered first counts, rather than the one over which the goal was entered. The former
            is defined for all episodes that ever were on a path, the latter for those that arrived over one.
    """

    first: bool = False
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def name(self) -> str:
        """The quantity, and that it tells of the first step onto a path where it does."""
        return "key path entered first" if self.first else "key path taken"

    def rows(self, table: StepTable) -> Rows:
        """Return 1 for the key's path, 0 for the other one, NaN where none was taken."""
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
            if self.first:
                on = next((here for here in path if here in found[0] or here in found[1]), None)
            else:
                on = path[-1] if path and table.outcome[index] == "goal" else None
            if on is not None and (on in found[0] or on in found[1]):
                value[index] = float(on in found[0])
        return episode_rows(table, self.name, self.unit, value).where(two)


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


PATHS: tuple[Measure, ...] = (PathChoice(), PathChoice(first=True))
"""Which of two equal paths is taken."""
