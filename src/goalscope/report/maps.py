"""Decoded beliefs on a page: maps beside the true grids, actions against them, and the same with shuffled beliefs.

Source: behavioural and representational evaluation, Table 2 and Figures 6 and 9.
"""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from goalscope.report.figures import FONTS, INK, Series, embed, lines
from goalscope.report.parts import Cell, Figure, Fold, Heading, Row, Section, Table, listed, number
from goalscope.report.pictures import CELL, picture
from goalscope.represent import beliefs as names
from goalscope.represent.shown_maps import RULE, ShownMap
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.stats import Estimate, estimate_rows
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action

INSIDE = "head"
"""Tag that all rows about what is inside of a model have, and no others: the form of the probe."""
INFO = "beliefs"
"""Name under which a run keeps the maps that are drawn."""

_PROBE = ("agent", "head", "control", "site", "layer", "scope", "reading")
_COLUMNS = (names.TRUTH, names.DECODED, names.OVERLAP, names.BOTH, names.VERDICT, names.RECOVERY, names.INVERSE)
_SHORT = {
    names.TRUTH: "optimal in truth",
    names.DECODED: "optimal on the map",
    names.OVERLAP: "agreement: policies overlap",
    names.BOTH: "agreement: both optimal",
    names.VERDICT: "agreement: same verdict",
    names.EXPECTED: "expected optimality",
}
_TEXT = (
    "At each step a probe reads a map of the grid from the activations. The layout is the likeliest class of each "
    "cell, agent and goal stand where they are likeliest. Recovery: of the actions that are wrong in truth, the share "
    "that is optimal on the decoded map; inverse recovery: of the actions wrong on the map, the share optimal in "
    "truth. A map without a way to the goal holds no plan: every action is wrong on it.",
    "Actions fit other maps by chance, too. Each share stands beside the same share with shuffled beliefs, the decoded "
    "maps of all other states of equal size and density on other grids: only the difference speaks of this agent's "
    "beliefs here. Agreement is given in three readings, because the caption of the published table (both optimal) "
    "cannot be what its numbers are.",
)
_MAP_FILL = {
    "#": "#39424e",
    "_": "#ffffff",
    " ": "#c9ced6",
    "a": "#e6f0fa",
    "g": "#bfe5c6",
    "A": "#9cc4ec",
    "G": "#7cc48b",
}
_MAP_LEGEND = (
    "Left the true grid (S agent, G goal) with the action, right the decoded map: A and G where agent and goal are "
    "decoded, pale blue and green cells whose likeliest class is agent or goal, grey padding."
)


def split_inside(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows about behaviour, and those about what is inside of a model."""
    tag = rows.tags.get(INSIDE, np.full(len(rows), None, dtype=object))
    inside = np.fromiter((value is not None for value in tag), dtype=bool, count=len(rows))
    return rows.where(~inside), rows.where(inside)


def belief_sections(store: Store, rows: Rows) -> list[Section]:
    """Return the section on decoded beliefs; nothing where there are no rows of them.

    Args:
        store: the run, for the maps that are drawn.
        rows: rows about what is inside, from `split_inside`.

    Raises:
        ValueError: what is stored about maps cannot be ours.
    """
    found = rows.where(np.isin(rows.measure.astype(str), _measures(rows)))
    if not len(found):
        return []
    probes = _probes(found)
    main = next((one for one in probes if one.get("control") in (None, "none")), probes[0])
    mine = _of(found, main)
    figures, lost = _pictures(store)
    caption = f"Actions against decoded beliefs ({describe(main)}), mean and 95 % interval over grids"
    control = "The same less its value with shuffled beliefs (paired by grid)"
    tables = [*_table(mine, caption, _COLUMNS), *_table(mine, control, _COLUMNS[1:], names.DIFFERENCE)]
    whole = [(describe(probe), _of(found, probe)) for probe in probes]
    if len(whole) > 1:
        tables.append(_listed(whole, "All probes, less their value with shuffled beliefs", names.DIFFERENCE))
    against = [(label, part) for label, part in whole if names.DECODED + names.UNTRAINED in part.measure.tolist()]
    if against:
        caption = "How much more than the same probe on an untrained model (differences to shuffled beliefs, by grid)"
        tables.append(_listed(against, caption, names.UNTRAINED))
    curves = tuple(Figure(svg=svg) for svg in (_curve(mine, "size", "grid size n (cells a side)", "b"),) if svg)
    sections = [
        Section(
            anchor="beliefs",
            title="Actions against decoded beliefs",
            paragraphs=_TEXT,
            tables=tuple(tables),
            figures=curves,
            legend="Top-k: optimal for some pair of one of the k likeliest cells of the agent and of the goal. "
            "Bands are 95 % intervals over grids.",
            folds=(Fold(title="Pooled over actions, as in the published table", tables=tuple(_pooled(mine))),),
        )
    ]
    if figures:
        sections.append(
            Section(
                anchor="decoded-maps",
                title="Decoded maps beside the true grid",
                paragraphs=(RULE, *([f"{lost} more are not shown: their episodes are gone."] if lost else [])),
                figures=tuple(figures),
                layout="pictures",
                legend=_MAP_LEGEND,
            )
        )
    return sections


def map_picture(shown_lines: Sequence[str], label: str) -> str:
    """Draw a decoded map.

    Args:
        shown_lines: the map as `DecodedMaps.text` writes it.
        label: what the picture shows, in a sentence.

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
    return "".join([*parts, *letters, "</svg>"])


def describe(probe: Mapping[str, Tag]) -> str:
    """Write whose beliefs a group of rows is about, e.g. ``agent theseus, head mlp, site pre, layer 4``."""
    return ", ".join(f"{name} {value}" for name, value in probe.items() if value not in (None, "none"))


def _measures(rows: Rows) -> list[str]:
    tops = {name for name in dict.fromkeys(rows.measure.tolist()) if str(name).startswith("accuracy against top-")}
    plain = [
        name + suffix for name in names.SHARES for suffix in ("", names.SHUFFLED, names.DIFFERENCE, names.UNTRAINED)
    ]
    counts = [names.ACTIONS, names.WRONG, names.WRONG_ON_MAP]
    return [names.TRUTH, *plain, *counts, *sorted(tops)]


def _probes(rows: Rows) -> list[dict[str, Tag]]:
    columns = [(name, rows.tags[name].tolist()) for name in _PROBE if name in rows.tags]
    found = dict.fromkeys(zip(*(column for _, column in columns), strict=True))
    return [dict(zip((name for name, _ in columns), values, strict=True)) for values in found]


def _of(rows: Rows, key: Mapping[str, Tag]) -> Rows:
    return rows.select(**key)


def _estimates(rows: Rows, by: Sequence[str]) -> dict[tuple[Tag, ...], Estimate]:
    """Return (measure, tags) -> estimate."""
    # A difference of two differences of shares reaches from -2 to 2.
    twice = {str(name) for name in rows.measure if str(name).endswith(names.UNTRAINED)}
    bounds = dict.fromkeys(sorted(twice), (-2.0, 2.0))
    return {
        (entry.key["measure"], *(entry.key[name] for name in by)): entry.estimate
        for entry in estimate_rows(rows, by=by, bounds=bounds)
    }


def _headings(columns: Sequence[str]) -> tuple[Heading, ...]:
    return tuple(Heading(text=_SHORT.get(name, name), unit="share") for name in columns)


def _table(rows: Rows, caption: str, columns: Sequence[str], suffix: str = "") -> list[Table]:
    """Return the table by size and density, its first line over all."""
    wanted = [name + suffix for name in (*columns, names.EXPECTED, names.NO_PLAN)]
    kept = rows.where(np.isin(rows.measure.astype(str), wanted))
    if not len(kept):
        return []
    whole = _estimates(kept, ())
    body = [Row(label="all", cells=tuple(Cell.of(whole.get((name,))) for name in wanted))]
    for tag, symbol in (("size", "n"), ("density", "d")):
        parts = _estimates(kept, (tag,))
        values = sorted({float(str(key[1])) for key in parts if key[1] is not None})
        if len(values) > 1:
            body += [
                Row(
                    label=f"{symbol} = {number(value)}",
                    cells=tuple(Cell.of(parts.get((name, value))) for name in wanted),
                )
                for value in values
            ]
    headings = (Heading(text="grids"), *_headings([*columns, names.EXPECTED, names.NO_PLAN]))
    return [Table(caption=caption, headings=headings, rows=tuple(body))]


def _listed(groups: Sequence[tuple[str, Rows]], caption: str, suffix: str) -> Table:
    columns = (names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE, names.EXPECTED)
    body = []
    for label, rows in groups:
        found = _estimates(rows, ())
        body.append(Row(label=label, cells=tuple(Cell.of(found.get((name + suffix,))) for name in columns)))
    return Table(caption=caption, headings=(Heading(text="probe"), *_headings(columns)), rows=tuple(body))


def _pooled(rows: Rows) -> list[Table]:
    body = []
    for tag, symbol in (("", ""), ("size", "n"), ("density", "d")):
        values = [None] if not tag else sorted({value for value in rows[tag].tolist() if value is not None})
        for value in values:
            mine = rows.select(**{tag: value}) if tag else rows
            label = f"{symbol} = {number(value)}" if tag else "all"
            cells = tuple(Cell.of(names.pooled_share(mine, name)) for name in _COLUMNS)
            body.append(Row(label=label, cells=cells))
    caption = "Shares of all actions together, 95 % interval over grids"
    return [Table(caption=caption, headings=(Heading(text="grids"), *_headings(_COLUMNS)), rows=tuple(body))]


def _curve(rows: Rows, tag: str, x_label: str, prefix: str) -> str:
    """Draw accuracy against truth and against the k likeliest pairs, each with its control."""
    tops = sorted(
        {
            int(str(name).removeprefix("accuracy against top-").split()[0])
            for name in rows.measure
            if "top-" in str(name)
        }
    )
    found = _estimates(rows, (tag,))
    series = []
    wanted = [("truth", names.TRUTH)]
    for count in tops:
        wanted.append((f"top-{count}", names.top_name(count)))
    wanted += [(f"top-{count}, shuffled", names.top_name(count) + names.SHUFFLED) for count in (tops[:1] + tops[-1:])]
    for style, (label, measure) in enumerate(wanted):
        points = sorted(
            (float(str(key[1])), each) for key, each in found.items() if key[0] == measure and key[1] is not None
        )
        if len(points) > 1:
            x, estimates = zip(*points, strict=True)
            series.append(Series(label=label, style=style, x=tuple(x), estimates=tuple(estimates)))
    if not series:
        return ""
    title = "Optimal actions, by what they are compared with"
    svg = lines(series, title=title, x_label=x_label, y_label="share of actions", bounds=(0.0, 1.0))
    return embed(svg, f"{prefix}-{tag}", title)


def _pictures(store: Store) -> tuple[list[Figure], int]:
    """Return true grid and decoded map of each state that is kept, and how many have no episode."""
    stored = store.info().get(INFO)
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
    following = [each.state.position for each in episode.steps[one.step + 1 :]] + [episode.final.position]
    said = "none" if step.action is None else Action(step.action).name
    wrong = [] if one.verdict.startswith("optimal") else [0]
    tags = episode.world.tags
    where = listed([f"{name} {number(tags[name])}" for name in ("size", "density") if name in tags])
    caption = f"Action {said}, {one.verdict} ({where}; {one.episode_id} step {one.step})"
    whose = f"Decoded: {describe(one.tags)}"
    truth = picture(grid, [step.state.position, following[0]], label=caption, wrong=wrong)
    return [
        Figure(svg=truth, caption=caption),
        Figure(svg=map_picture(one.lines, f"{whose}; {caption}"), caption=whose),
    ]
