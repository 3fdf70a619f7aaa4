"""All sections on what is read from activations: the data behind them, the declared sections, decoded maps.

Source: behavioural and representational evaluation, Figure 6.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from goalscope.probing.belief_study import SOURCE
from goalscope.probing.pipeline import INFO
from goalscope.probing.shown_maps import RULE, ShownMap
from goalscope.report.blocks import Figure, Section, counted, listed, number
from goalscope.report.engine import sections_of
from goalscope.report.pictures import framed, map_picture, picture
from goalscope.report.probe_rows import ReadPoint, probe_name
from goalscope.report.sections import beliefs, cognitive_map, distance, plans
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action

PROBED = "head"
"""Tag that all rows about activations have, and no others: the form of the probe."""

_SPECS: Final = (cognitive_map.SPEC, beliefs.SPEC, plans.SPEC, distance.SPEC)
_TITLES: Final[Mapping[str, str]] = {
    "cognitive-map": "Cognitive map",
    "beliefs": "Actions against decoded beliefs",
    "plans": "Decoded plans",
    "distance": "Decoded distance to the goal",
}
_COUNTS: Final = ("training grids", "training steps", "test grids", "test steps", "steps left out")
_FACTS_TEXT: Final = (
    "Probes are fitted on some grids and scored on others: all steps of a grid, and all its turned versions, are on "
    "one side. Intervals are over the tested grids, for the probes that were fitted; another split or other first "
    "weights would give other probes. Grids with different ids may have the same walls, which a probe may know by "
    "heart: their share is said."
)

_LEGEND = (
    "Left the true grid (S agent, G goal) with the action, padded to the probe's frame; right the decoded map: A and "
    "G where agent and goal are likeliest, pale blue and green cells whose likeliest class is agent or goal, grey "
    "padding. The dashed line is the outline of the true grid."
)


def split_probing(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows about behaviour, and those about activations."""
    probed = rows.known(PROBED)
    return rows.where(~probed), rows.where(probed)


def probing_sections(store: Store, rows: Rows) -> list[Section]:
    """Return all sections on what is read from activations, those that a run has data for.

    Args:
        store: the run.
        rows: its rows about activations, see `split_probing`.

    Raises:
        ValueError: what the run keeps about them is not what goalscope writes.
    """
    first, *others = (sections_of(spec, rows) for spec in _SPECS)
    facts = probing_facts(store) if len(rows) else []
    return [*facts, *first, *decoded_maps(store), *(section for listed_of in others for section in listed_of)]


def probing_facts(store: Store) -> list[Section]:
    """Return on how many grids and steps each analysis of activations stands; nothing where none was made.

    Raises:
        ValueError: what the run keeps about them is not what goalscope writes.
    """
    stored = store.info().get(INFO)
    if not stored:
        return []
    try:
        facts = tuple((title, _said(stored[name])) for name, title in _TITLES.items() if name in stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{store.path} must say soundly what was read out of activations, but: {error!r}") from error
    return [Section(anchor="inside", title="What was read out of activations", paragraphs=(_FACTS_TEXT,), facts=facts)]


def decoded_maps(store: Store) -> list[Section]:
    """Return the section with decoded maps beside the true grids; nothing where the run keeps none.

    Args:
        store: the run.

    Raises:
        ValueError: what is stored about maps cannot be ours.
    """
    figures, lost = _pictures(store)
    if not figures:
        return []
    return [
        Section(
            anchor="decoded-maps",
            title="Decoded maps beside the true grid",
            paragraphs=(RULE, *([f"{lost} more are not shown: their episodes are gone."] if lost else [])),
            figures=tuple(figures),
            layout="maps",
            legend=_LEGEND,
        )
    ]


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


def _said(about: Mapping[str, Any]) -> str:
    grids, steps, tested, scored, gone = (_count(about[name]) for name in _COUNTS)
    known = about["known walls"]
    if isinstance(known, bool) or not isinstance(known, int | float) or not (math.isfinite(known) and 0 <= known <= 1):
        raise ValueError(f"known walls is {known!r}")
    layers = [str(_count(layer)) for layer in about["layers"]]
    left = f"; {counted(gone, 'step')} left out, where not all sites are there" if gone else ""
    return (
        f"{about['agent']}: {listed([str(site) for site in about['sites']])}, layer{'' if len(layers) == 1 else 's'} "
        f"{listed(layers)}. Fitted on {counted(grids, 'grid')} ({counted(steps, 'step')}), tested on "
        f"{counted(tested, 'grid')} ({counted(scored, 'step')}){left}. The wall maps of {100 * known:.0f} % of the "
        "tested grids stand in the other part, too."
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"a count is {value!r}")
    return value
