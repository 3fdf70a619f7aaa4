"""MEG relative to what an agent seems to believe: towards the goal that was decoded, on the map that was decoded.

`measure_beliefs` takes beliefs from anywhere, `measure_decoded_beliefs` from captured activations. Beside each line
stand its controls: the same of beliefs that were decoded from a random network, and the beliefs about other worlds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.estimate import measure_goals, one_family
from goalscope.measures.goals.results import GoalFindings
from goalscope.measures.goals.settings import GoalSettings, HypothesisDraw
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.worlds.grid import Grid, Position

if TYPE_CHECKING:
    from goalscope.probing.pipeline import FirstSteps
    from goalscope.progress import Stage

BELIEVED: Final = "believed goal"
ON_MAP: Final = "believed goal on the believed map"
SHUFFLED: Final = "shuffled"
"""A control, which stands behind the name of the line that it belongs to; the other is a kind of random network."""
DRAWS: Final = 20
"""Draws of the shuffled control."""

Worlds = Mapping[str, tuple[Grid, str]]
"""World id -> its grid and the id of its cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What an agent believes a world to be before its first action.

    Attributes:
        walls: ``[H, W]`` bool in the shape of the world, True where nobody can stand.
        goal: (row, col) of the goal; outside of the world where it is believed there.
    """

    walls: npt.NDArray[np.bool_]
    goal: Position


def measure_beliefs(
    episodes: Iterable[Episode],
    beliefs: Mapping[str, Belief],
    settings: GoalSettings | None = None,
    *,
    label: str,
    random: tuple[str, Mapping[str, Belief]] | None = None,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> GoalFindings:
    """Measure MEG towards the believed goal beside the true one and beside controls, in the worlds with a belief.

    The lines of each agent: towards the believed goal; towards the true goal in the same worlds; towards the believed
    goal with the believed map as the world. The first and the last with two controls each: the same of a random
    network's beliefs, and the beliefs about another world of the same shape, as the mean over several draws. The first
    line is compared with the true goal, and each with its controls.

    Args:
        episodes: those of the worlds with a belief are measured.
        beliefs: world id -> belief.
        settings: utility, treatment of turns without an action, confidence and seed; hypotheses and tags are set here.
        label: whose beliefs, the value of the tag ``beliefs`` that names the cell.
        random: kind of a random network, and the beliefs decoded from it; None without that control.
        draws: of the shuffled control.
        progress: called with (done, total) pieces of work.

    Raises:
        ValueError: no episode in a world with a belief, a world of them without one of the random network, no draws.
    """
    settings = settings or GoalSettings()
    if isinstance(draws, bool) or not isinstance(draws, int) or not 1 <= draws <= 1000:
        raise ValueError(f"draws of the shuffled control must be a whole number from 1 to 1000, got {draws!r}")
    used = [episode for episode in episodes if episode.world.id in beliefs]
    if not used:
        raise ValueError(f"beliefs must be about worlds of the run, got {len(beliefs)} about others")
    worlds = {episode.world.id: (episode.world.grid, episode.world.grid_id) for episode in used}
    own = {world: beliefs[world] for world in worlds}
    kind, theirs = random or ("", own)
    missing = [world for world in worlds if world not in theirs]
    if missing:
        raise ValueError(
            f"the random network's beliefs must be about the same worlds, {len(missing)} of {len(worlds)} lack one "
            f"({missing[0]}): decode both at the same steps"
        )
    parts = []
    for first, also, on_map in ((BELIEVED, ("goal",), False), (ON_MAP, (), True)):
        others = [_elsewhere(own, worlds, settings.seed, draw, on_map=on_map) for draw in range(draws)]
        lines: dict[str, tuple[HypothesisDraw, ...]] = {first: (_drawn(own, worlds, on_map),)}
        if kind:
            lines[f"{first}, {kind}"] = (_drawn({world: theirs[world] for world in worlds}, worlds, on_map),)
        lines[f"{first}, {SHUFFLED}"] = tuple(_drawn(one, worlds, on_map) for one in others)
        there = {name: listed for name, listed in lines.items() if listed[0].cells}
        if first not in there:  # every goal is believed beneath the agent or outside: there is no map
            continue
        controls = [name for name in there if name != first]
        asked = replace(
            settings,
            hypotheses=(first, *also, *controls),
            by=(),
            cells={},
            drawn=there,
            less={name: name.removeprefix(f"{first}, ") for name in controls},
        )
        parts.append(measure_goals(used, asked, progress=progress))
    found = joined(parts)
    kept = [str(name) != "MEG towards the goal" for name in found.rows.measure]  # of some worlds; those of all are kept
    cells = [one.cell for one in found.estimates]
    ordered = sorted(found.estimates, key=lambda one: (cells.index(one.cell), one.agent))
    return replace(
        found,
        estimates=tuple(replace(one, cell={**one.cell, "beliefs": label}) for one in ordered),
        contrasts=tuple(replace(one, cell={**one.cell, "beliefs": label}) for one in found.contrasts),
        rows=found.rows.where(np.array(kept, dtype=bool)),
    )


def measure_decoded_beliefs(
    run: str | Path, settings: GoalSettings, *, site: str, layer: int, stage: "Stage", draws: int = DRAWS
) -> tuple[GoalFindings, "FirstSteps"]:
    """Decode what an agent believed of its worlds from captured activations, and measure MEG relative to it.

    Args:
        run: the run directory; its activations must have been captured.
        settings: see `measure_beliefs`.
        site, layer: where the activations were captured.
        stage: called at the beginning of each piece of work with its name; returns what shows progress.
        draws: of the shuffled control.

    Returns:
        The findings, and the first steps with the probes that decoded them.

    Raises:
        ValueError: nothing captured there, worlds with doors, or too few grids.
        ImportError: PyTorch is missing.
    """
    from goalscope.probing.pipeline import HEAD, read_first_steps

    first = read_first_steps(run, site=site, layer=layer, stage=stage)
    with Store(run) as store:
        episodes = list(store.episodes(sorted(set(first.episode_id.tolist()))))
    by_id = {episode.id: episode for episode in episodes}
    goals = {episode.world.id: episode.world.grid.goal for episode in episodes}
    sides = {name: decode_beliefs(first.episode_id, maps, by_id) for name, maps in first.posteriors.items()}
    about: dict[str, Any] = {
        "site": site,
        "layer": layer,
        "head": HEAD,
        "agent": first.agent,
        "settings": dict(first.settings),
        "draws": draws,
        "worlds": len(sides["none"]),
        "decoded": {
            name: {
                "probe": first.probes[name],
                "goal at its cell": sum(belief.goal == goals[world] for world, belief in beliefs.items()),
            }
            for name, beliefs in sides.items()
        },
        "missing": first.missing,
    }
    with stage("goals that are believed") as show:
        found = measure_beliefs(
            episodes,
            sides["none"],
            settings,
            label=f"{site}, layer {layer}, {HEAD}, held-out grids",
            random=next(((name, side) for name, side in sides.items() if name != "none"), None),
            draws=draws,
            progress=show,
        )
    return replace(found, beliefs=about), first


def decode_beliefs(
    episode_id: npt.NDArray[np.object_], posterior: npt.NDArray[np.float32], episodes: Mapping[str, Episode]
) -> dict[str, Belief]:
    """Return the beliefs about the worlds of ``[N]`` first steps from ``[N, n, n, K]`` probabilities of the cells.

    The posteriors of a world's episodes are averaged: before the reasoning they are the same, after it they differ.
    """
    from goalscope.probing.maps import decode_maps

    worlds = [episodes[identity].world for identity in episode_id.tolist()]
    rows: dict[str, list[int]] = {}
    for row, world in enumerate(worlds):
        rows.setdefault(world.id, []).append(row)
    decoded = decode_maps(np.stack([posterior[mine].mean(axis=0) for mine in rows.values()]))
    found = {}
    for at, (world_id, mine) in enumerate(rows.items()):
        height, width = worlds[mine[0]].grid.walls.shape
        row, col = (int(place) for place in decoded.goal[at])
        found[world_id] = Belief(walls=decoded.closed[at, :height, :width], goal=(row, col))
    return found


def joined(parts: Sequence[GoalFindings]) -> GoalFindings:
    """Return several findings as one, with the settings and counts of the first; all comparisons are one family."""
    return replace(
        parts[0],
        estimates=tuple(one for part in parts for one in part.estimates),
        contrasts=one_family(one for part in parts for one in part.contrasts),
        held_out=tuple(one for part in parts for one in part.held_out),
        beliefs=next((part.beliefs for part in parts if part.beliefs), {}),
        rows=Rows.concatenate(part.rows for part in parts),
    )


def _drawn(beliefs: Mapping[str, Belief], worlds: Worlds, on_map: bool) -> HypothesisDraw:
    """Return what is meant: the goals in the worlds as they are, or on the believed maps, where there are any."""
    if not on_map:
        return HypothesisDraw(cells={world: belief.goal for world, belief in beliefs.items()})
    found = {world: _map(worlds[world][0], belief) for world, belief in beliefs.items()}
    grids = {world: grid for world, grid in found.items() if grid is not None}
    return HypothesisDraw(cells={world: beliefs[world].goal for world in grids}, grids=grids)


def _elsewhere(
    beliefs: Mapping[str, Belief], worlds: Worlds, seed: int, draw: int, *, on_map: bool
) -> dict[str, Belief]:
    """Return for each world what is believed of another one of its shape, of another grid; some have none.

    Which worlds have one does not depend on the draw. On the map, what is believed must make a map here.
    """
    alike: dict[tuple[int, ...], list[str]] = {}
    for world in sorted(beliefs):
        alike.setdefault(worlds[world][0].walls.shape, []).append(world)
    found: dict[str, Belief] = {}
    for shape, names in alike.items():
        order = [names[index] for index in stream(seed, "beliefs of others", *shape, draw).permutation(len(names))]
        for place, world in enumerate(order):
            grid, grid_id = worlds[world]
            for other in (*order[place + 1 :], *order[:place]):
                fits = not on_map or _map(grid, beliefs[other]) is not None
                if worlds[other][1] != grid_id and fits:
                    found[world] = beliefs[other]
                    break
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
