"""Decoded maps beside the true grids, chosen by a rule.

Source: behavioural and representational evaluation, Figure 6.
"""

from collections.abc import Iterator, Mapping

from goalscope.probing.belief_study import SOURCE
from goalscope.probing.shown_maps import RULE, ShownMap
from goalscope.report.blocks import Figure, listed, number
from goalscope.report.pictures import framed, map_picture, picture
from goalscope.report.run_data import RunData
from goalscope.report.sections.probing import ReadPoint, probe_name
from goalscope.report.specs import Declared, section
from goalscope.rows import Tag
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action

_LEGEND = (
    "Left the true grid (S agent, G goal) with the action, padded to the probe's frame; right the decoded map: A and "
    "G where agent and goal are likeliest, pale blue and green cells whose likeliest class is agent or goal, grey "
    "padding. The dashed line is the outline of the true grid."
)


@section("decoded maps", source="behavioural and representational evaluation, Fig. 6", worlds="grids")
def decoded_maps(run: RunData) -> Iterator[Declared]:
    """The maps that a run keeps, each beside its state.

    Raises:
        ValueError: what is stored about maps cannot be ours.
    """
    figures, lost = _pictures(run.store)
    if figures:
        yield Declared(
            anchor="decoded-maps",
            title="Decoded maps beside the true grid",
            paragraphs=(RULE, *([f"{lost} more are not shown: their episodes are gone."] if lost else [])),
            figures=figures,
            layout="maps",
            legend=_LEGEND,
        )


def _pictures(store: Store) -> tuple[list[Figure], int]:
    """Return true grid and decoded map of each state that is kept, and how many have no episode."""
    stored = store.info().get(SOURCE)
    if stored is None:
        return [], 0
    try:
        kept = [ShownMap.from_plain(one) for one in stored["maps"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{store.path} must hold sound maps of beliefs, but: {error}") from error
    there = store.episode_ids() & {one.episode_id for one in kept}
    episodes = {episode.id: episode for episode in store.episodes(sorted(there))}
    figures = []
    lost = 0
    for one in kept:
        episode = episodes.get(one.episode_id)
        if episode is None or not 0 <= one.step < len(episode.steps):
            lost += 1
            continue
        figures += _pair(one, episode)
    return figures, lost


def _pair(one: ShownMap, episode: Episode) -> list[Figure]:
    step = episode.steps[one.step]
    grid = shown(episode.world.grid, step.state)
    later = [*(each.state for each in episode.steps[one.step + 1 : one.step + 2]), episode.final]
    said = "none" if step.action is None else Action(step.action).name
    wrong = [] if one.verdict.startswith("optimal") else [0]
    tags = episode.world.tags
    where = listed([f"{name} {number(tags[name])}" for name in ("size", "density") if name in tags])
    caption = f"Action {said}, {one.verdict} ({where}; step {one.step} of {one.episode_id})"
    whose = f"Decoded: {_whose(one.tags)}"
    truth = picture(grid, [step.state.position, later[0].position], label=caption, wrong=wrong)
    frame = max(len(one.lines), len(one.lines[0]), grid.height, grid.width)
    outline = (grid.height, grid.width)
    return [
        Figure(svg=framed(truth, outline, frame), caption=caption),
        Figure(svg=map_picture(one.lines, f"{whose}; {caption}", outline=outline), caption=whose),
    ]


def _whose(tags: Mapping[str, Tag]) -> str:
    """Write ``Theseus, MLP, pre, layer 4``."""
    point = str(ReadPoint(tags.get("site"), tags.get("layer")))
    parts = [str(tags[name]) for name in ("agent",) if tags.get(name) is not None]
    return ", ".join([*parts, probe_name(tags.get("head"), tags.get("control", "none")), point])
