"""Figures as SVG text, byte-identical for equal numbers, and pictures of worlds.

Pictures show a grid with a trajectory, any world that can draw itself as cells or graph, or a decoded map. All figures
use the same small part of SVG: rectangles, circles, polygons, paths of straight lines, and single lines of text, which
may be turned about their place.

Source: W3C, Scalable Vector Graphics (SVG) 1.1, chapters 8 (paths), 9 (shapes) and 10 (text).
"""

import csv
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from io import StringIO
from typing import Any

import numpy as np

from goalscope.report.texts import labels
from goalscope.runs.record import Episode
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.planning import solve
from goalscope.worlds.things import known_kind
from goalscope.worlds.world import Drawing

_FONTS = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
"""Font families for SVG text; the layout uses the character widths of the first."""

INK = "#1f2328"
MUTED = "#57606a"
RULES = "#e4e7eb"
# Any two colours can be distinguished, even with protanopia or deuteranopia, and each contrasts with white paper.
COLOURS = ("#0072b2", "#d55e00", "#222222", "#3d9980", "#4b3fd0", "#704214", "#4890a8", "#700060")
LONGEST_LABEL, LONGEST_TICK = 48, 20
"""Maximum numbers of characters of a label and of a tick."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that a spreadsheet reads as a formula."""

_UNSEEN = (
    *(code for code in range(32) if code not in (9, 10)),
    *range(0x7F, 0xA0),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xD800, 0xE000),
    0xFEFF,
)
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSEEN}
_OF_THE_PAGE = {INK: "ink", MUTED: "soft", RULES: "line", "#ffffff": "back"} | {
    colour: f"series-{index}" for index, colour in enumerate(COLOURS)
}
"""Colour of a chart -> variable of the page's style sheet; colours given by name stay unchanged."""
Record = Mapping[str, Any]
"""A figure's record of one estimate or cell: one line of its CSV."""
_CELL = 20
"""Side of a cell in units of the view box."""
_FONT = "bold 12px"
OPTIMAL_STEP, OTHER_STEP = "#0b5fa5", "#d9480f"
_LINE = "#d5dae0"
_FILL = {"#": "#39424e", "_": "#ffffff", "*": "#c9ced6", "G": "#bfe5c6", "K": "#ffe08a", "D": "#d9b08c"}
"""Colours of walls, open cells, cells in fog, goal, key and door."""
_START_FILL, _OTHER_FILL = "#e6f0fa", "#eef1f4"
_MAP_FILL = {**_FILL, " ": _FILL["*"], "a": _START_FILL, "g": _FILL["G"], "A": "#9cc4ec", "G": "#7cc48b"}
_NODE, _APART = (108, 34), (130, 44)
"""Width and height of a node of a graph; distance of columns and of rows of nodes. Both are those of the viewer."""


def drawing(
    width: float, height: float, label: str, font: str, parts: Iterable[str], *, unit: str = "", kind: str = ""
) -> str:
    """Put SVG elements together to the SVG text of a picture.

    Args:
        width, height: size in units of the view box.
        label: a sentence that describes the picture.
        font: size and weight of its text.
        parts: the elements.
        unit: unit of the width on the page, "" for pixels.
        kind: "chart" for a picture that uses the colours of the page.
    """
    drawn_as = f' class="{kind}"' if kind else ""
    opening = (
        f'<svg role="img"{drawn_as} aria-label="{escape(label)}" '
        f'viewBox="0 0 {width} {height}" width="{width}{unit}" style="font: {font} {_FONTS}">'
    )
    return "".join([opening, *parts, "</svg>"])


def themed(svg: str) -> str:
    """Return the SVG of a figure for a page. A chart then takes the light or dark colours that the reader of the page
    chose.

    Other pictures stay unchanged.
    """
    if 'class="chart"' not in svg[: svg.index(">")]:
        return svg

    def variable(match: re.Match[str]) -> str:
        return f'{match[1]}="var(--{name})"' if (name := _OF_THE_PAGE.get(match[2])) else match[0]

    return re.sub(r'(fill|stroke)="(#[0-9a-f]{6})"', variable, svg)


def visible(text: str) -> str:
    r"""Escape control characters, direction changes and other invisible characters in a text, e.g. as ``\u200b``."""
    return text.translate(_ESCAPES)


def short_label(text: str, max_characters: int = LONGEST_LABEL) -> str:
    """Shorten a name to fit into a figure, without invisible characters."""
    text = visible(text).replace("\n", " ")
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def embed(svg: str, label: str) -> str:
    """Return SVG text with another sentence as its description for screen readers."""
    return re.sub(r'aria-label="[^"]*"', lambda _: f'aria-label="{escape(label)}"', svg, count=1)


def as_csv(records: Sequence[Record]) -> str:
    """Return the numbers of a figure (as dictionaries) as CSV text.

    Undefined numbers are empty, and texts are escaped so that no spreadsheet reads a formula.
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    return csv_text(columns, ([record.get(name) for name in columns] for record in records))


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table (headings and rows) as CSV text; None is empty, and texts are escaped so that no spreadsheet reads
    a formula.
    """
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        # The writer leaves a bare carriage return unquoted, and readers would take it for the end of a line.
        text = visible(value)
        return f"'{text}" if value.startswith(_FORMULA) else text
    return "" if value is None else value


def standalone(svg: str) -> str:
    """Convert the SVG text of a figure on a page to the text of an SVG file of its own, with declaration and name
    spaces.
    """
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = svg.replace("<svg ", f"<svg {spaces} ", 1).replace(' href="#', ' xlink:href="#')
    return f'<?xml version="1.0" encoding="utf-8"?>\n{visible(text)}\n'


class Drawn(ABC):
    """Base class of finished figures: each has its SVG text, and its numbers as records."""

    @property
    @abstractmethod
    def svg(self) -> str:
        """The figure as SVG text, without XML declaration or metadata."""

    @property
    @abstractmethod
    def records(self) -> tuple[Record, ...]:
        """The numbers of the figure as dictionaries, one for each line of its CSV file; undefined numbers are None."""


@dataclass(frozen=True, slots=True)
class Picture(Drawn):
    """A picture of a world, as SVG text, with its content as records.

    Attributes:
        svg: the text, made by `drawing`.
        records: one dictionary per cell, step or node shown, for a CSV file.
    """

    svg: str = field(repr=False)
    records: tuple[Record, ...] = ()


def picture(
    grid: Grid, path: Sequence[Position] = (), *, label: str, wrong: Sequence[int] = (), invalid: Sequence[int] = ()
) -> Picture:
    """Draw a grid with an agent's path: walls dark, fog grey, start S, goal G, key K, door D, other things by their
    symbols.

    Moves are drawn to the right of their direction, so that opposite moves appear as two lines. Turns that leave the
    agent in place are rings with their number.

    Args:
        grid: the grid.
        path: the T + 1 cells before and after the T steps; empty for no path.
        label: a sentence that describes the picture.
        wrong: indices of steps that are not optimal, which have another colour.
        invalid: indices of turns without a valid move, which are crosses.
    """
    width, height = grid.width * _CELL, grid.height * _CELL
    parts = (
        f'<rect width="{width}" height="{height}" fill="{_FILL["_"]}"/>',
        _masks(grid),
        _lattice(grid),
        _objects(grid),
        _moves(path, frozenset(wrong)),
        _letters(grid),
        _stays(path, frozenset(invalid)),
    )
    records = (*_cells(grid), *_steps(path, frozenset(wrong), frozenset(invalid)))
    return Picture(drawing(width, height, label, _FONT, parts), records)


def _cells(grid: Grid) -> Iterator[Record]:
    """Yield the content of each cell as CSV records."""
    objects = {cell: name for name, cell in grid.objects.items() if cell is not None}
    objects |= {cell: known_kind(symbol).name for cell, symbol in grid.things}
    for row, column in np.ndindex(grid.height, grid.width):
        hidden = grid.fog is not None and grid.fog[row, column]
        background = "wall" if grid.walls[row, column] else "fog" if hidden else "open"
        content = objects.get((row, column), background)
        yield {"what": "cell", "step": None, "row": row, "column": column, "shows": content}


def _steps(path: Sequence[Position], wrong: frozenset[int], invalid: frozenset[int]) -> Iterator[Record]:
    """Yield the cell of each step, its verdict, and the end of the path, as CSV records."""
    for index, (row, column) in enumerate(path):
        judgement = "no action" if index in invalid else "not optimal" if index in wrong else "optimal"
        content = "end" if index == len(path) - 1 else judgement
        yield {"what": "step", "step": index, "row": row, "column": column, "shows": content}


def episode_picture(episode: Episode, label: str) -> Picture:
    """Draw the grid of an episode with the agent's path; steps that are not optimal have another colour.

    ``label`` is a sentence that describes the picture.
    """
    paths = solve(episode.world.grid)
    wrong, invalid = [], []
    for step in episode.steps:
        if step.action is None:
            invalid.append(step.index)
        elif not paths.optimal_in(step.state)[step.action]:
            wrong.append(step.index)
    path = [step.state.position for step in episode.steps] + [episode.final.position]
    return picture(episode.world.grid, path, label=label, wrong=wrong, invalid=invalid)


def drawn_picture(drawings: Sequence[Drawing], label: str) -> Picture:
    """Draw a world that describes itself as cells: its first state, with the agent's path through the whole episode.

    Args:
        drawings: the world's drawing of each state of the episode, in order.
        label: a sentence that describes the picture.
    """
    first, path = drawings[0], [drawing.agent for drawing in drawings if drawing.agent is not None]
    cells = [(row, col, symbol) for row, line in enumerate(first.rows) for col, symbol in enumerate(line)]
    parts = [_square(row, col, _FILL.get(symbol, _OTHER_FILL)) for row, col, symbol in cells]
    parts.append(_moves(path, frozenset()))
    named = [(row, col, symbol) for row, col, symbol in cells if symbol not in "#_*"]
    for row, col, text in (*named, *((row, col, name[:4]) for row, col, name in first.labels)):
        parts.append(_letter((row, col), text))
    if path:
        x, y = _middle(path[0])
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="none" stroke="{OPTIMAL_STEP}" stroke-width="2"/>')
    records: tuple[Record, ...] = (
        *({"what": "cell", "step": None, "row": row, "column": col, "shows": symbol} for row, col, symbol in cells),
        *({"what": "step", "step": at, "row": row, "column": col, "shows": ""} for at, (row, col) in enumerate(path)),
    )
    return Picture(drawing(len(first.rows[0]) * _CELL, len(first.rows) * _CELL, label, _FONT, parts), records)


def graph_picture(graph: Drawing, label: str) -> Picture:
    """Draw one state of a world that describes itself as a graph: a box per node with its name, an arrow per edge.

    Nodes that no arrow reaches stand on the left, or else the first node. The column of any other node is the least
    number of arrows that lead there from the left. ``label`` is a sentence that describes the picture.
    """
    columns = _columns(graph)
    at = {
        name: (col * _APART[0] + 62.0, row * _APART[1] + 24.0)
        for col, names in enumerate(columns)
        for row, name in enumerate(names)
    }
    parts = [_edge(at[start], at[target]) for start, target in graph.edges if start != target]
    for name, (x, y) in at.items():
        word = graph.nodes[name]
        sides = f'x="{x - _NODE[0] / 2:g}" y="{y - _NODE[1] / 2:g}" width="{_NODE[0]}" height="{_NODE[1]}"'
        parts.append(f'<rect {sides} stroke="{_LINE}" fill="{_FILL["G"] if word else _OTHER_FILL}"/>')
        lines = [(y - 2, name[:16]), (y + 11, word[:18])] if word else [(y + 4, name[:16])]
        for height, text in lines:
            parts.append(f'<text x="{x:g}" y="{height:g}" text-anchor="middle" fill="{INK}">{escape(text)}</text>')
    records: tuple[Record, ...] = (
        *({"what": "node", "node": name, "to": "", "shows": graph.nodes[name]} for name in at),
        *({"what": "edge", "node": start, "to": target, "shows": ""} for start, target in graph.edges),
    )
    height = max(map(len, columns)) * _APART[1] + 8
    return Picture(drawing(len(columns) * _APART[0], height, label, "10px", parts), records)


def _columns(graph: Drawing) -> list[list[str]]:
    """Return the names of the nodes in each column, see `graph_picture`."""
    reached = {target for start, target in graph.edges if start != target}
    columns = [[name for name in graph.nodes if name not in reached] or [next(iter(graph.nodes))]]
    placed = set(columns[0])
    while len(placed) < len(graph.nodes):
        following = [target for start, target in graph.edges if start in columns[-1] and target not in placed]
        if not following:  # a part that no node so far leads to
            columns[0].append(next(name for name in graph.nodes if name not in placed))
            placed.add(columns[0][-1])
            continue
        columns.append(list(dict.fromkeys(following)))
        placed |= set(following)
    return columns


def _edge(start: tuple[float, float], target: tuple[float, float]) -> str:
    """Draw an arrow between the borders of two nodes; below its row if other nodes of the row lie between them."""
    right, down = target[0] - start[0], target[1] - start[1]
    if down == 0 and abs(right) > _APART[0]:
        x, y, right, down = target[0], target[1] + _NODE[1] / 2, 0.0, -1.0
        line = f"M{start[0]:g} {start[1]:g}V{start[1] + _APART[1] / 2:g}H{x:g}V{y:g}"
    else:
        inside = min(_NODE[0] / 2 / abs(right) if right else np.inf, _NODE[1] / 2 / abs(down) if down else np.inf)
        x, y = target[0] - right * inside, target[1] - down * inside
        right, down = right / float(np.hypot(right, down)), down / float(np.hypot(right, down))
        line = f"M{start[0]:g} {start[1]:g}L{x:.1f} {y:.1f}"
    base = x - 7 * right, y - 7 * down
    corners = ((x, y), (base[0] - 3.5 * down, base[1] + 3.5 * right), (base[0] + 3.5 * down, base[1] - 3.5 * right))
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
    return f'<path d="{line}" stroke="{MUTED}" fill="none"/><polygon points="{points}" fill="{MUTED}"/>'


def _masks(grid: Grid) -> str:
    """Draw walls and fog; each run of equal cells in a row is one rectangle."""
    elements = []
    for symbol, mask in (("#", grid.walls), ("*", grid.fog)):
        if mask is None:
            continue
        commands = []
        for row, cells in enumerate(mask):
            edges = np.flatnonzero(np.diff(np.concatenate(([False], cells, [False])).astype(int)))
            for first, end in edges.reshape(-1, 2).tolist():
                commands.append(f"M{first * _CELL} {row * _CELL}h{(end - first) * _CELL}v{_CELL}H{first * _CELL}z")
        elements.append(f'<path d="{"".join(commands)}" fill="{_FILL[symbol]}"/>')
    return "".join(elements)


def _lattice(grid: Grid) -> str:
    width, height = grid.width * _CELL, grid.height * _CELL
    commands = [f"M{col * _CELL} 0v{height}" for col in range(1, grid.width)]
    commands += [f"M0 {row * _CELL}h{width}" for row in range(1, grid.height)]
    return f'<path d="{"".join(commands)}" stroke="{_LINE}" stroke-width="0.6" stroke-opacity="0.55" fill="none"/>'


def _marked(grid: Grid) -> list[tuple[Position, str]]:
    """Return the cells of start, goal, key, door and things, each with its letter."""
    named = [(grid.start, "S"), (grid.goal, "G"), (grid.key, "K"), (grid.door, "D"), *grid.things]
    return [(cell, letter) for cell, letter in named if cell is not None]


def _objects(grid: Grid) -> str:
    fills = {**_FILL, "S": _START_FILL}
    return "".join(
        f'<rect x="{cell[1] * _CELL}" y="{cell[0] * _CELL}" width="{_CELL}" height="{_CELL}" '
        f'fill="{fills.get(letter, _OTHER_FILL)}"/>'
        for cell, letter in _marked(grid)
    )


def _letters(grid: Grid) -> str:
    """Write the letters over the path, each with a halo that keeps it readable."""
    halo = 'text-anchor="middle" stroke="#ffffff" stroke-width="2.4" stroke-opacity="0.8" paint-order="stroke"'
    return "".join(_letter(cell, letter, halo) for cell, letter in _marked(grid))


def _letter(cell: Position, text: str, style: str = 'text-anchor="middle"') -> str:
    x, y = _middle(cell)
    return f'<text x="{x:g}" y="{y + 4.3:g}" {style} fill="{INK}">{escape(text)}</text>'


def _square(row: int, col: int, fill: str) -> str:
    sides = f'x="{col * _CELL}" y="{row * _CELL}" width="{_CELL}" height="{_CELL}"'
    return f'<rect {sides} stroke="{_LINE}" stroke-width="0.6" fill="{fill}"/>'


def _moves(path: Sequence[Position], wrong: frozenset[int]) -> str:
    passes: Counter[tuple[Position, Position]] = Counter()
    elements = []
    last_end: tuple[float, float] | None = None
    final = max((index for index in range(1, len(path)) if path[index] != path[index - 1]), default=0)
    for index in range(1, len(path)):
        start, target = path[index - 1], path[index]
        if start == target:
            continue
        down, right = target[0] - start[0], target[1] - start[1]
        offset = 2.2 + 1.5 * min(passes[start, target], 3)
        passes[start, target] += 1
        begin, end = ((x - down * offset, y + right * offset) for x, y in (_middle(start), _middle(target)))
        colour = OTHER_STEP if index - 1 in wrong else OPTIMAL_STEP
        joint = (
            f"M{last_end[0]:g} {last_end[1]:g}L{begin[0]:g} {begin[1]:g}" if last_end else f"M{begin[0]:g} {begin[1]:g}"
        )
        if index == final:
            elements.append(_arrow(end, (right, down), colour))
        elements.append(
            f'<path d="{joint}L{end[0]:g} {end[1]:g}" fill="none" stroke="{colour}" stroke-width="2" '
            'stroke-linejoin="round" stroke-linecap="round"/>'
        )
        last_end = end
    return "".join(elements)


def _stays(path: Sequence[Position], invalid: frozenset[int]) -> str:
    bumps = Counter(
        path[index] for index in range(len(path) - 1) if path[index] == path[index + 1] and index not in invalid
    )
    no_action = Counter(path[index] for index in invalid)
    elements = []
    for cell, count in sorted(bumps.items()):
        x, y = _middle(cell)
        elements.append(f'<circle cx="{x + 4.5:g}" cy="{y + 4.5:g}" r="4.6" fill="#fff4e6" stroke="#b35900"/>')
        elements.append(_count(x + 4.5, y + 7, count, "#7a3d00"))
    for cell, count in sorted(no_action.items()):
        x, y = _middle(cell)
        elements.append(f'<path d="M{x - 8:g} {y - 8:g}l6 6m0 -6l-6 6" stroke="#b00020" stroke-width="1.8"/>')
        if count > 1:
            elements.append(_count(x + 3, y - 3, count, "#b00020"))
    return "".join(elements)


def _count(x: float, y: float, count: int, colour: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="7" text-anchor="middle" fill="{colour}">{count}</text>'


def _middle(cell: Position) -> tuple[float, float]:
    return cell[1] * _CELL + _CELL / 2, cell[0] * _CELL + _CELL / 2


def _arrow(end: tuple[float, float], direction: tuple[int, int], colour: str) -> str:
    (x, y), (right, down) = end, direction
    corners = [
        (x + 4 * right, y + 4 * down),
        (x - 3 * right - 4 * down, y - 3 * down + 4 * right),
        (x - 3 * right + 4 * down, y - 3 * down - 4 * right),
    ]
    return f'<polygon points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}" fill="{colour}"/>'


def map_picture(map_lines: Sequence[str], label: str, *, outline: tuple[int, int] | None = None) -> Picture:
    """Draw a map that a probe decoded, given as lines of symbols in the format of `DecodedMaps.text`.

    Args:
        map_lines: the lines.
        label: a sentence that describes the picture.
        outline: numbers of rows and columns of the true grid, drawn as a dashed outline; None for none.
    """
    cells = [(row, col, symbol) for row, line in enumerate(map_lines) for col, symbol in enumerate(line)]
    parts = [_square(row, col, _MAP_FILL[symbol]) for row, col, symbol in cells]
    parts += [_letter((row, col), symbol) for row, col, symbol in cells if symbol in "AG"]
    if outline is not None:
        parts.append(
            f'<rect x="1" y="1" width="{outline[1] * _CELL - 2}" height="{outline[0] * _CELL - 2}" fill="none" '
            'stroke="#d9480f" stroke-width="1.6" stroke-dasharray="5 3"/>'
        )
    words = labels("labels/cells of maps")
    records = ({"row": row, "column": col, "shows": words.get(symbol, symbol)} for row, col, symbol in cells)
    svg = drawing(len(map_lines[0]) * _CELL, len(map_lines) * _CELL, label, _FONT, parts)
    return Picture(svg, tuple(records))


def framed(grid_picture: Picture, shape: tuple[int, int], frame: int) -> Picture:
    """Return the picture of a grid padded to the right and below, so that it has the size of a decoded map.

    Args:
        grid_picture: the picture.
        shape: numbers of rows and columns of the grid.
        frame: number of rows and columns of the decoded map.
    """
    height, width = (side * _CELL for side in shape)
    side = frame * _CELL
    size, framed_size = (f'viewBox="0 0 {w} {h}" width="{w}"' for w, h in ((width, height), (side, side)))
    opening, content = grid_picture.svg.split(">", 1)
    padding = f'<rect width="{side}" height="{side}" fill="{_MAP_FILL[" "]}"/>'
    return replace(grid_picture, svg=f"{opening.replace(size, framed_size, 1)}>{padding}{content}")
