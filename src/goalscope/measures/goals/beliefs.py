"""MEG relative to what an agent seems to believe: towards the goal that was decoded, on the map that was decoded.

Whoever decoded it: this module knows cells and grids, not activations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from goalscope.measures.goals.asked import GoalSettings
from goalscope.measures.goals.records import GoalEstimate, GoalFindings
from goalscope.measures.goals.study import corrected, measure_goals
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.worlds.grid import Grid, Position

BELIEVED: Final = "believed goal"
SHUFFLED: Final = "believed goal, shuffled"
ON_MAP: Final = "believed goal on the believed map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What an agent believes a world to be before its first action.

    Attributes:
        walls: ``[H, W]`` bool in the shape of the world, True where nobody can stand.
        goal: (row, col) of the goal; outside of the world where it is believed there.
    """

    walls: np.typing.NDArray[np.bool_]
    goal: Position


def measure_beliefs(
    episodes: Iterable[Episode],
    beliefs: Mapping[str, Belief],
    settings: GoalSettings | None = None,
    *,
    label: str,
    progress: Callable[[int, int], None] | None = None,
) -> GoalFindings:
    """Measure MEG towards the believed goal beside the true one, in the worlds with a belief.

    Four lines for each agent: towards the believed goal; towards the true goal in the same worlds; towards the goal
    that is believed in another world of the same shape, which says what a decoded goal yields by chance; and towards
    the believed goal with the believed map as the world. The first is compared with the next two.

    Args:
        episodes: those of the worlds with a belief are measured.
        beliefs: world id -> belief.
        settings: utility, treatment of turns without an action, confidence and seed; hypotheses and tags are set here.
        label: whose beliefs, the value of the tag ``beliefs`` that names the cell.
        progress: called with (done, total) pieces of work.

    Raises:
        ValueError: no episode in a world with a belief.
    """
    asked = settings or GoalSettings()
    used = [episode for episode in episodes if episode.world.id in beliefs]
    if not used:
        raise ValueError(f"beliefs must be about worlds of the run, got {len(beliefs)} about others")
    grids = {episode.world.id: (episode.world.grid, episode.world.grid_id) for episode in used}
    goals = {world: beliefs[world].goal for world in grids}
    other = _elsewhere(goals, grids, asked.seed)
    same = replace(
        asked,
        hypotheses=(BELIEVED, "goal", *([SHUFFLED] if other else [])),
        by=(),
        cells={BELIEVED: goals, SHUFFLED: other},
    )
    parts = [measure_goals(used, same, progress=progress)]
    maps = {world: _map(grids[world][0], beliefs[world]) for world in goals}
    there = {world: grid for world, grid in maps.items() if grid is not None}
    if there:
        on_map = replace(same, hypotheses=(ON_MAP,), cells={ON_MAP: goals})
        parts.append(measure_goals(used, on_map, believed=there, progress=progress))
    found = joined(parts)
    kept = [str(name) != "MEG towards the goal" for name in found.rows.measure]  # of some worlds; those of all are kept
    estimates = [replace(one, cell={**one.cell, "beliefs": label}) for one in found.estimates]
    return replace(
        found,
        estimates=tuple(sorted(estimates, key=lambda one: _place(one, estimates))),
        contrasts=tuple(replace(one, cell={**one.cell, "beliefs": label}) for one in found.contrasts),
        rows=found.rows.where(np.array(kept, dtype=bool)),
    )


def joined(parts: Sequence[GoalFindings]) -> GoalFindings:
    """Return several findings as one, with the settings and counts of the first; all comparisons are one family."""
    return replace(
        parts[0],
        estimates=tuple(one for part in parts for one in part.estimates),
        contrasts=tuple(corrected([one for part in parts for one in part.contrasts])),
        held_out=tuple(one for part in parts for one in part.held_out),
        rows=Rows.concatenate(part.rows for part in parts),
    )


def _place(one: GoalEstimate, every: Sequence[GoalEstimate]) -> tuple[int, int]:
    cells = [other.cell for other in every]
    return cells.index(one.cell), sorted({other.agent for other in every}).index(one.agent)


def _elsewhere(goals: Mapping[str, Position], grids: Mapping[str, tuple[Grid, str]], seed: int) -> dict[str, Position]:
    """Return for each world the goal that is believed in another one of its shape, of another grid; some have none."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for world in sorted(goals):
        alike.setdefault(grids[world][0].walls.shape, []).append(world)
    found: dict[str, Position] = {}
    for shape, worlds in alike.items():
        order = [worlds[index] for index in stream(seed, "beliefs of others", *shape).permutation(len(worlds))]
        for place, world in enumerate(order):
            others = (order[(place + ahead) % len(order)] for ahead in range(1, len(order)))
            name = next((name for name in others if grids[name][1] != grids[world][1]), None)
            if name is not None:
                found[world] = goals[name]
    return found


def _map(true: Grid, belief: Belief) -> Grid | None:
    """Return the believed map with the agent where it stands; None where the goal is believed there or nowhere."""
    row, col = belief.goal
    inside = 0 <= row < true.height and 0 <= col < true.width
    if true.start is None or not inside or (row, col) == true.start:
        return None
    walls = np.array(belief.walls, dtype=bool)
    walls[true.start] = walls[row, col] = False
    return Grid(walls=walls, start=true.start, goal=(row, col))
