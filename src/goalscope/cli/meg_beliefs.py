"""`goalscope meg RUN --beliefs SITE:LAYER`: the goals that an agent's activations speak of, before its first action."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.cli.console import progress, say
from goalscope.measures.goals import Belief, GoalFindings, GoalSettings, measure_beliefs
from goalscope.runs import Episode, Store

_CONTROLS: Final = {"none": "the agent's model", "untrained": "the untrained one"}


def beliefs_of(path: Path, where: str, settings: GoalSettings, draws: int) -> GoalFindings:
    """Decode what an agent believed of its worlds from captured activations, and measure MEG relative to it.

    Args:
        path: the run; its activations must have been captured.
        where: site and layer, e.g. "pre:3".
        settings: what is asked of the goals.
        draws: of the shuffled control.

    Raises:
        ValueError: another text, nothing captured there, worlds with doors, or too few grids.
        ImportError: PyTorch is missing.
    """
    from goalscope.probing.first_steps import HEAD, read_first_steps

    site, layer = _site_and_layer(where)
    read = read_first_steps(path, site=site, layer=layer, stage=progress)
    with Store(path) as store:
        episodes = list(store.episodes(sorted(set(read.episode_id.tolist()))))
    by_id = {episode.id: episode for episode in episodes}
    sides = {name: decoded_beliefs(read.episode_id, said, by_id) for name, said in read.posteriors.items()}
    kept = ", ".join(f"{_CONTROLS[name]} {'fitted' if name in read.fitted else 'used again'}" for name in read.probes)
    say(f"probes at {site}, layer {layer}: {kept}", error=True)
    told: dict[str, Any] = {
        "site": site,
        "layer": layer,
        "head": HEAD,
        "agent": read.agent,
        "settings": dict(read.settings),
        "draws": draws,
        "worlds": len(sides["none"]),
        "decoded": {
            name: {"probe": read.probes[name], "goal at its cell": _right(beliefs, episodes)}
            for name, beliefs in sides.items()
        },
        "missing": read.missing,
    }
    with progress("goals that are believed") as show:
        found = measure_beliefs(
            episodes,
            sides["none"],
            settings,
            label=f"{site}, layer {layer}, {HEAD}, held-out grids",
            untrained=sides.get("untrained"),
            draws=draws,
            progress=show,
        )
    return replace(found, beliefs=told)


def decoded_beliefs(
    episode_id: npt.NDArray[np.object_], posterior: npt.NDArray[np.float32], episodes: Mapping[str, Episode]
) -> dict[str, Belief]:
    """Return the beliefs about worlds that first steps speak of.

    The posteriors of a world's episodes are averaged: before the reasoning they are the same, after it they differ.

    Args:
        episode_id: ``[N]`` whose first steps.
        posterior: ``[N, n, n, K]`` probabilities of the classes of all cells.
        episodes: episode id -> episode.
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


def _right(beliefs: Mapping[str, Belief], episodes: Sequence[Episode]) -> int:
    """Return in how many worlds the goal is believed at its cell."""
    goals = {episode.world.id: episode.world.grid.goal for episode in episodes}
    return sum(belief.goal == goals[world] for world, belief in beliefs.items())


def _site_and_layer(where: str) -> tuple[str, int]:
    site, separator, layer = where.partition(":")
    if not separator or not site or not (layer.isdecimal() and len(layer) < 6):
        raise ValueError(f"--beliefs must name a site and a layer that were captured, e.g. pre:3, got {where!r}")
    return site, int(layer)
