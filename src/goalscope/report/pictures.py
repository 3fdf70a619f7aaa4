"""Pictures of a grid with a trajectory drawn over it, as SVG text."""

from collections import Counter
from collections.abc import Sequence
from html import escape

from goalscope.planning import solve
from goalscope.report.figures import FONTS, INK
from goalscope.runs.record import Episode
from goalscope.worlds.grid import Grid, Position

CELL = 20
"""Side of a cell in units of the view box."""

OPTIMAL_STEP, OTHER_STEP = "#0b5fa5", "#d9480f"
_FILL = {"wall": "#39424e", "open": "#ffffff", "fog": "#c9ced6"}
_LINE = "#d5dae0"
_MAP_FILL = {
    "#": "#39424e",
    "_": "#ffffff",
    " ": "#c9ced6",
    "a": "#e6f0fa",
    "g": "#bfe5c6",
    "A": "#9cc4ec",
    "G": "#7cc48b",
}


def picture(
    grid: Grid, path: Sequence[Position] = (), *, label: str, wrong: Sequence[int] = (), invalid: Sequence[int] = ()
) -> str:
    """Draw a grid and a path: walls dark, fog grey, start S, goal G, key K, door D, one line a move.

    A move keeps to the right of its direction, so that a way walked to and fro shows as two lines. Turns that leave
    the agent in place are rings with their number; turns without an action are crosses.

    Args:
        grid: the grid.
        path: ``[T + 1]`` cells of the agent in order.
        label: what the picture shows, in a sentence.
        wrong: indices of the steps that were not optimal, drawn in another colour.
        invalid: indices of the steps whose turn held no action.

    Returns:
        SVG text, ``CELL`` units a cell.
    """
    width, height = grid.width * CELL, grid.height * CELL
    parts = [
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="font: bold 12px {FONTS}">',
        f'<rect width="{width}" height="{height}" fill="{_FILL["open"]}"/>',
        _masks(grid),
        _lattice(grid),
        _objects(grid),
        _moves(path, frozenset(wrong)),
        _letters(grid),
        _stays(path, frozenset(invalid)),
        "</svg>",
    ]
    return "".join(parts)


def episode_picture(episode: Episode, label: str) -> str:
    """Draw an episode's world with its trajectory; steps outside of the optimal set have the other colour."""
    paths = solve(episode.world.grid)
    wrong, invalid = [], []
    for step in episode.steps:
        if step.action is None:
            invalid.append(step.index)
        elif not paths.optimal_in(step.state)[step.action]:
            wrong.append(step.index)
    path = [step.state.position for step in episode.steps] + [episode.final.position]
    return picture(episode.world.grid, path, label=label, wrong=wrong, invalid=invalid)


def _masks(grid: Grid) -> str:
    """Draw walls and fog, each run of equal cells in a row as one rectangle."""
    out = []
    for kind, mask in (("wall", grid.walls), ("fog", grid.fog)):
        if mask is None:
            continue
        commands = []
        for row in range(grid.height):
            col = 0
            while col < grid.width:
                first = col
                while col < grid.width and mask[row, col]:
                    col += 1
                if col > first:
                    commands.append(f"M{first * CELL} {row * CELL}h{(col - first) * CELL}v{CELL}H{first * CELL}z")
                else:
                    col += 1
        out.append(f'<path d="{"".join(commands)}" fill="{_FILL[kind]}"/>')
    return "".join(out)


def _lattice(grid: Grid) -> str:
    width, height = grid.width * CELL, grid.height * CELL
    commands = [f"M{col * CELL} 0v{height}" for col in range(1, grid.width)]
    commands += [f"M0 {row * CELL}h{width}" for row in range(1, grid.height)]
    return f'<path d="{"".join(commands)}" stroke="{_LINE}" stroke-width="0.6" stroke-opacity="0.55" fill="none"/>'


def _objects(grid: Grid) -> str:
    fills = ((grid.start, "#e6f0fa"), (grid.goal, "#bfe5c6"), (grid.key, "#ffe08a"), (grid.door, "#d9b08c"))
    return "".join(
        f'<rect x="{cell[1] * CELL}" y="{cell[0] * CELL}" width="{CELL}" height="{CELL}" fill="{fill}"/>'
        for cell, fill in fills
        if cell is not None
    )


def _letters(grid: Grid) -> str:
    """Write the letters over the path, each with a halo that keeps it readable."""
    letters = ((grid.start, "S"), (grid.goal, "G"), (grid.key, "K"), (grid.door, "D"))
    halo = 'text-anchor="middle" stroke="#ffffff" stroke-width="2.4" stroke-opacity="0.8" paint-order="stroke"'
    out = []
    for cell, letter in letters:
        if cell is not None:
            x, y = _middle(cell)
            out.append(f'<text x="{x:g}" y="{y + 4.3:g}" {halo} fill="{INK}">{letter}</text>')
    return "".join(out)


def _moves(path: Sequence[Position], wrong: frozenset[int]) -> str:
    walked: Counter[tuple[Position, Position]] = Counter()
    out = []
    last: tuple[float, float] | None = None
    final = max((index for index in range(1, len(path)) if path[index] != path[index - 1]), default=0)
    for index in range(1, len(path)):
        here, there = path[index - 1], path[index]
        if here == there:
            continue
        down, right = there[0] - here[0], there[1] - here[1]
        aside = 2.2 + 1.5 * min(walked[here, there], 3)
        walked[here, there] += 1
        begin, end = ((x - down * aside, y + right * aside) for x, y in (_middle(here), _middle(there)))
        colour = OTHER_STEP if index - 1 in wrong else OPTIMAL_STEP
        joint = f"M{last[0]:g} {last[1]:g}L{begin[0]:g} {begin[1]:g}" if last else f"M{begin[0]:g} {begin[1]:g}"
        if index == final:
            out.append(_arrow(end, (right, down), colour))
        out.append(
            f'<path d="{joint}L{end[0]:g} {end[1]:g}" fill="none" stroke="{colour}" stroke-width="2" '
            'stroke-linejoin="round" stroke-linecap="round"/>'
        )
        last = end
    return "".join(out)


def _stays(path: Sequence[Position], invalid: frozenset[int]) -> str:
    bumps = Counter(
        path[index] for index in range(len(path) - 1) if path[index] == path[index + 1] and index not in invalid
    )
    lost = Counter(path[index] for index in invalid)
    out = []
    for cell, count in sorted(bumps.items()):
        x, y = _middle(cell)
        out.append(f'<circle cx="{x + 4.5:g}" cy="{y + 4.5:g}" r="4.6" fill="#fff4e6" stroke="#b35900"/>')
        out.append(_count(x + 4.5, y + 7, count, "#7a3d00"))
    for cell, count in sorted(lost.items()):
        x, y = _middle(cell)
        out.append(f'<path d="M{x - 8:g} {y - 8:g}l6 6m0 -6l-6 6" stroke="#b00020" stroke-width="1.8"/>')
        if count > 1:
            out.append(_count(x + 3, y - 3, count, "#b00020"))
    return "".join(out)


def _count(x: float, y: float, count: int, colour: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="7" text-anchor="middle" fill="{colour}">{count}</text>'


def _middle(cell: Position) -> tuple[float, float]:
    return cell[1] * CELL + CELL / 2, cell[0] * CELL + CELL / 2


def _arrow(end: tuple[float, float], direction: tuple[int, int], colour: str) -> str:
    (x, y), (right, down) = end, direction
    corners = [
        (x + 4 * right, y + 4 * down),
        (x - 3 * right - 4 * down, y - 3 * down + 4 * right),
        (x - 3 * right + 4 * down, y - 3 * down - 4 * right),
    ]
    return f'<polygon points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}" fill="{colour}"/>'


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


def framed(svg: str, shape: tuple[int, int], frame: int) -> str:
    """Return the picture of a grid with padding to the right and below, as large as a decoded map.

    Args:
        svg: from `picture`.
        shape: rows and columns of the grid.
        frame: rows and columns of the decoded map.
    """
    height, width = (side * CELL for side in shape)
    side = frame * CELL
    own, wider = (f'viewBox="0 0 {w} {h}" width="{w}"' for w, h in ((width, height), (side, side)))
    opening, drawn = svg.split(">", 1)
    padding = f'<rect width="{side}" height="{side}" fill="{_MAP_FILL[" "]}"/>'
    return f"{opening.replace(own, wider, 1)}>{padding}{drawn}"
