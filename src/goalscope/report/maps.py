"""Decoded maps on a page, drawn beside the true grids; which rows are about what is inside of a model.

Source: behavioural and representational evaluation, Figure 6.
"""

from collections.abc import Mapping, Sequence
from html import escape

from goalscope.probing.belief_study import SOURCE
from goalscope.probing.shown_maps import RULE, ShownMap
from goalscope.report.figures import FONTS, INK
from goalscope.report.inside import place_name, probe_name
from goalscope.report.parts import Figure, Section, listed, number
from goalscope.report.pictures import CELL, picture
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action

INSIDE = "head"
"""Tag that all rows about what is inside of a model have, and no others: the form of the probe."""

_MAP_FILL = {
    "#": "#39424e",
    "_": "#ffffff",
    " ": "#c9ced6",
    "a": "#e6f0fa",
    "g": "#bfe5c6",
    "A": "#9cc4ec",
    "G": "#7cc48b",
}
_LEGEND = (
    "Left the true grid (S agent, G goal) with the action, padded to the probe's frame; right the decoded map: A and "
    "G where agent and goal are likeliest, pale blue and green cells whose likeliest class is agent or goal, grey "
    "padding. The dashed line is the outline of the true grid."
)


def split_inside(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows about behaviour, and those about what is inside of a model."""
    inside = rows.known(INSIDE)
    return rows.where(~inside), rows.where(inside)


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


def map_picture(shown_lines: Sequence[str], label: str, *, outline: tuple[int, int] | None = None) -> str:
    """Draw a decoded map.

    Args:
        shown_lines: the map as `DecodedMaps.text` writes it.
        label: what the picture shows, in a sentence.
        outline: rows and columns of the true grid, drawn as a dashed line, None for no line.

    Returns:
        SVG text, ``CELL`` units a cell.
    """
    width, height = len(shown_lines[0]) * CELL, len(shown_lines) * CELL
    parts = [
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="font: bold 12px {FONTS}">'
    ]
    letters = []
    for row, line in enumerate(shown_lines):
        for col, symbol in enumerate(line):
            x, y = col * CELL, row * CELL
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{_MAP_FILL[symbol]}" stroke="#d5dae0" '
                'stroke-width="0.6"/>'
            )
            if symbol in "AG":
                letters.append(
                    f'<text x="{x + CELL / 2:g}" y="{y + CELL / 2 + 4.3:g}" text-anchor="middle" fill="{INK}">'
                    f"{symbol}</text>"
                )
    if outline is not None:
        letters.append(
            f'<rect x="1" y="1" width="{outline[1] * CELL - 2}" height="{outline[0] * CELL - 2}" fill="none" '
            'stroke="#d9480f" stroke-width="1.6" stroke-dasharray="5 3"/>'
        )
    return "".join([*parts, *letters, "</svg>"])


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
        Figure(svg=_framed(truth, outline, frame), caption=caption),
        Figure(svg=map_picture(one.lines, f"{whose}; {caption}", outline=outline), caption=whose),
    ]


def _framed(svg: str, shape: tuple[int, int], frame: int) -> str:
    """Return the picture of a grid with padding to the right and below, as large as a decoded map."""
    height, width = (side * CELL for side in shape)
    side = frame * CELL
    own, wider = (f'viewBox="0 0 {w} {h}" width="{w}"' for w, h in ((width, height), (side, side)))
    opening, drawn = svg.split(">", 1)
    padding = f'<rect width="{side}" height="{side}" fill="{_MAP_FILL[" "]}"/>'
    return f"{opening.replace(own, wider, 1)}>{padding}{drawn}"


def _whose(tags: Mapping[str, Tag]) -> str:
    """Write ``Theseus, MLP, pre, layer 4``."""
    place = place_name((tags.get("site"), tags.get("layer")))
    parts = [str(tags[name]) for name in ("agent",) if tags.get(name) is not None]
    return ", ".join([*parts, probe_name(tags.get("head"), tags.get("control", "none")), place])
