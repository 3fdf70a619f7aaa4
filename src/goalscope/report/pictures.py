"""Pictures of worlds: a grid with a trajectory, any world that can draw itself as cells or graph, and a decoded map."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

import numpy as np

from goalscope.report.figures import INK, MUTED, Picture, Record, drawing
from goalscope.runs.record import Episode
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.planning import solve
from goalscope.worlds.things import name_of
from goalscope.worlds.world import Drawing

_CELL = 20
"""Side of a cell in units of the view box."""

_FONT = "bold 12px"
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

_MAP_WORD = {
    "#": "wall",
    "_": "open",
    " ": "padding",
    "a": "likeliest class: agent",
    "g": "likeliest class: goal",
    "A": "agent, likeliest here",
    "G": "goal, likeliest here",
}


def picture(
    grid: Grid, path: Sequence[Position] = (), *, label: str, wrong: Sequence[int] = (), invalid: Sequence[int] = ()
) -> Picture:
    """Draw a grid and the ``[T + 1]`` cells of a path: walls dark, fog grey, start S, goal G, key K, door D.

    Things have their symbols.

    Moves are drawn to the right of their direction, so that opposite moves appear as two lines. Steps in ``wrong`` (not
    optimal) have another colour. Turns that leave the agent in place are rings with their number; turns in ``invalid``
    (without a valid move) are crosses.
    """
    width, height = grid.width * _CELL, grid.height * _CELL
    parts = (
        f'<rect width="{width}" height="{height}" fill="{_FILL["open"]}"/>',
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
    positions = {"start": grid.start, "goal": grid.goal, "key": grid.key, "door": grid.door}
    objects = {cell: name for name, cell in positions.items() if cell is not None}
    objects |= {cell: name_of(symbol) for cell, symbol in grid.things}
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
    """Draw an episode's world with its trajectory; steps that are not optimal have another colour."""
    paths = solve(episode.world.grid)
    wrong, invalid = [], []
    for step in episode.steps:
        if step.action is None:
            invalid.append(step.index)
        elif not paths.optimal_in(step.state)[step.action]:
            wrong.append(step.index)
    path = [step.state.position for step in episode.steps] + [episode.final.position]
    return picture(episode.world.grid, path, label=label, wrong=wrong, invalid=invalid)


_SYMBOL_FILL = {"#": "#39424e", "_": "#ffffff", "*": "#c9ced6", "G": "#bfe5c6", "K": "#ffe08a", "D": "#d9b08c"}
_OTHER_FILL = "#eef1f4"


def drawn_picture(drawings: Sequence[Drawing], label: str) -> Picture:
    """Draw the first moment of an episode as cells, with the agent's path through all of its moments."""
    first, path = drawings[0], [drawing.agent for drawing in drawings if drawing.agent is not None]
    cells = [(row, col, symbol) for row, line in enumerate(first.rows) for col, symbol in enumerate(line)]
    parts = [_square(row, col, _SYMBOL_FILL.get(symbol, _OTHER_FILL)) for row, col, symbol in cells]
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


_NODE, _APART = (108, 34), (130, 44)
"""Width and height of a node of a graph; distance of columns and of rows of nodes. Both are those of the viewer."""


def graph_picture(graph: Drawing, label: str) -> Picture:
    """Draw one moment of a graph: a box for each node with its name and its word, and an arrow for each edge.

    Nodes that no arrow reaches stand on the left, or else the first node. The column of any other node is the least
    number of arrows that lead there from the left.
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
        parts.append(f'<rect {sides} stroke="{_LINE}" fill="{_SYMBOL_FILL["G"] if word else _OTHER_FILL}"/>')
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
    for kind, mask in (("wall", grid.walls), ("fog", grid.fog)):
        if mask is None:
            continue
        commands = []
        for row, cells in enumerate(mask):
            edges = np.flatnonzero(np.diff(np.concatenate(([False], cells, [False])).astype(int)))
            for first, end in edges.reshape(-1, 2).tolist():
                commands.append(f"M{first * _CELL} {row * _CELL}h{(end - first) * _CELL}v{_CELL}H{first * _CELL}z")
        elements.append(f'<path d="{"".join(commands)}" fill="{_FILL[kind]}"/>')
    return "".join(elements)


def _lattice(grid: Grid) -> str:
    width, height = grid.width * _CELL, grid.height * _CELL
    commands = [f"M{col * _CELL} 0v{height}" for col in range(1, grid.width)]
    commands += [f"M0 {row * _CELL}h{width}" for row in range(1, grid.height)]
    return f'<path d="{"".join(commands)}" stroke="{_LINE}" stroke-width="0.6" stroke-opacity="0.55" fill="none"/>'


def _objects(grid: Grid) -> str:
    fills = [(grid.start, "#e6f0fa"), (grid.goal, "#bfe5c6"), (grid.key, "#ffe08a"), (grid.door, "#d9b08c")]
    fills += [(cell, _OTHER_FILL) for cell, _ in grid.things]
    return "".join(
        f'<rect x="{cell[1] * _CELL}" y="{cell[0] * _CELL}" width="{_CELL}" height="{_CELL}" fill="{fill}"/>'
        for cell, fill in fills
        if cell is not None
    )


def _letters(grid: Grid) -> str:
    """Write the letters over the path, each with a halo that keeps it readable."""
    letters = [(grid.start, "S"), (grid.goal, "G"), (grid.key, "K"), (grid.door, "D"), *grid.things]
    halo = 'text-anchor="middle" stroke="#ffffff" stroke-width="2.4" stroke-opacity="0.8" paint-order="stroke"'
    return "".join(_letter(cell, letter, halo) for cell, letter in letters if cell is not None)


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
    """Draw a map in the format of `DecodedMaps.text`; the dashed outline has the true grid's rows and columns."""
    cells = [(row, col, symbol) for row, line in enumerate(map_lines) for col, symbol in enumerate(line)]
    parts = [_square(row, col, _MAP_FILL[symbol]) for row, col, symbol in cells]
    parts += [_letter((row, col), symbol) for row, col, symbol in cells if symbol in "AG"]
    if outline is not None:
        parts.append(
            f'<rect x="1" y="1" width="{outline[1] * _CELL - 2}" height="{outline[0] * _CELL - 2}" fill="none" '
            'stroke="#d9480f" stroke-width="1.6" stroke-dasharray="5 3"/>'
        )
    records = ({"row": row, "column": col, "shows": _MAP_WORD.get(symbol, symbol)} for row, col, symbol in cells)
    svg = drawing(len(map_lines[0]) * _CELL, len(map_lines) * _CELL, label, _FONT, parts)
    return Picture(svg, tuple(records))


def framed(grid_picture: Picture, shape: tuple[int, int], frame: int) -> Picture:
    """Pad the picture of a grid to the right and below, so that it has the size of a decoded map, and return it."""
    height, width = (side * _CELL for side in shape)
    side = frame * _CELL
    size, framed_size = (f'viewBox="0 0 {w} {h}" width="{w}"' for w, h in ((width, height), (side, side)))
    opening, content = grid_picture.svg.split(">", 1)
    padding = f'<rect width="{side}" height="{side}" fill="{_MAP_FILL[" "]}"/>'
    return replace(grid_picture, svg=f"{opening.replace(size, framed_size, 1)}>{padding}{content}")
