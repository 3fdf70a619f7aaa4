"""`goalscope meg RUN --beliefs SITE:LAYER`: the goals that an agent's activations speak of, before its first action."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from goalscope.cli.console import say
from goalscope.measures.goals import Belief, GoalFindings, GoalSettings, measure_beliefs
from goalscope.runs import Episode, Store

if TYPE_CHECKING:
    from goalscope.represent.belief_study import Places
    from goalscope.represent.fitting import FitSettings

HEAD = "mlp"
"""The probe that maps are decoded with: the paper's."""


def beliefs_of(path: Path, where: str, settings: GoalSettings) -> GoalFindings:
    """Decode what an agent believed of its worlds from captured activations, and measure MEG relative to it.

    A probe is fitted on three quarters of the grids and read on the others alone, at the first step of each episode:
    an action that was taken cannot have a say in the belief that it is held against.

    Args:
        path: the run; its activations must have been captured.
        where: site and layer, e.g. "pre:3".
        settings: what is asked of the goals.

    Raises:
        ValueError: another text, nothing captured there, worlds with doors, or too few grids.
        ImportError: PyTorch is missing.
    """
    from goalscope.represent.belief_study import load_places
    from goalscope.represent.fitting import FitSettings

    site, layer = _site_and_layer(where)
    with Store(path) as store:
        places = load_places(store, sites=(site,), layers=(layer,), untrained=None, seed=settings.seed)
        episodes = list(store.episodes(sorted(set(places.cells.episode_id.tolist()))))
    fit = FitSettings(seed=settings.seed).for_laptop()
    beliefs = decoded_beliefs(places, {episode.id: episode for episode in episodes}, fit)
    goals = {episode.world.id: episode.world.grid.goal for episode in episodes}
    right = sum(belief.goal == goals[world] for world, belief in beliefs.items())
    text = f"beliefs at {site}, layer {layer}: goal decoded at its cell in {right} of {len(beliefs)} held-out worlds"
    say(text, error=True)
    return measure_beliefs(episodes, beliefs, settings, label=f"{site}, layer {layer}, {HEAD}, held-out grids")


def decoded_beliefs(
    places: "Places", episodes: Mapping[str, Episode], fit: "FitSettings", head: str = HEAD
) -> dict[str, Belief]:
    """Return the beliefs about the worlds of the tested grids, each decoded before the first action.

    The posteriors of a world's episodes are averaged: before the reasoning they are the same, after it they differ.

    Args:
        places: activations of one site and layer with the truth and a split by grid.
        episodes: episode id -> episode.
        fit: how the probe is trained.
        head: which probe.

    Raises:
        ValueError: no first step of a tested grid was captured.
    """
    from goalscope.represent.belief_maps import maps_of
    from goalscope.represent.belief_study import fit_maps
    from goalscope.represent.maps import decode_maps

    first = places.split.test & (places.cells.step == 0)
    if not first.any():
        raise ValueError(
            "beliefs are read before the first action, but no first step of a tested grid was captured: capture all "
            "steps"
        )
    matrix = ((head, "none"),)
    fitted = fit_maps(places, matrix=matrix, settings=fit)
    ((_, (_, posteriors)),) = maps_of(fitted, places.activations, (), first, matrix, fit.device)
    posterior = posteriors["natural"]
    worlds = [episodes[identity].world for identity in places.cells.episode_id[first].tolist()]
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


def _site_and_layer(where: str) -> tuple[str, int]:
    site, separator, layer = where.partition(":")
    if not separator or not site or not (layer.isdecimal() and len(layer) < 6):
        raise ValueError(f"--beliefs must name a site and a layer that were captured, e.g. pre:3, got {where!r}")
    return site, int(layer)
