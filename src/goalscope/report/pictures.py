"""Pictures as SVG text: a grid with a trajectory, and a moment of an episode in a task world.

Source: measuring exploration and exploitation errors, Appendix F (moments of task worlds).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from goalscope.measures.exploration import EpisodeScore
from goalscope.planning import solve
from goalscope.report.figures import INK, MUTED, drawing
from goalscope.runs.record import Episode
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskState

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


def picture(
    grid: Grid, path: Sequence[Position] = (), *, label: str, wrong: Sequence[int] = (), invalid: Sequence[int] = ()
) -> str:
    """Draw a grid and the ``[T + 1]`` cells of a path: walls dark, fog grey, start S, goal G, key K, door D.

    A move keeps to the right of its direction, so that a way walked to and fro shows as two lines; ``wrong`` steps,
    which were not optimal, have another colour. Turns that leave the agent in place are rings with their number;
    ``invalid`` ones, which held no action, are crosses. A cell is ``CELL`` units wide.
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
    return drawing(width, height, label, _FONT, parts)


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
        for row, cells in enumerate(mask):
            edges = np.flatnonzero(np.diff(np.concatenate(([False], cells, [False])).astype(int)))
            for first, end in edges.reshape(-1, 2).tolist():
                commands.append(f"M{first * _CELL} {row * _CELL}h{(end - first) * _CELL}v{_CELL}H{first * _CELL}z")
        out.append(f'<path d="{"".join(commands)}" fill="{_FILL[kind]}"/>')
    return "".join(out)


def _lattice(grid: Grid) -> str:
    width, height = grid.width * _CELL, grid.height * _CELL
    commands = [f"M{col * _CELL} 0v{height}" for col in range(1, grid.width)]
    commands += [f"M0 {row * _CELL}h{width}" for row in range(1, grid.height)]
    return f'<path d="{"".join(commands)}" stroke="{_LINE}" stroke-width="0.6" stroke-opacity="0.55" fill="none"/>'


def _objects(grid: Grid) -> str:
    fills = ((grid.start, "#e6f0fa"), (grid.goal, "#bfe5c6"), (grid.key, "#ffe08a"), (grid.door, "#d9b08c"))
    return "".join(
        f'<rect x="{cell[1] * _CELL}" y="{cell[0] * _CELL}" width="{_CELL}" height="{_CELL}" fill="{fill}"/>'
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
    return cell[1] * _CELL + _CELL / 2, cell[0] * _CELL + _CELL / 2


def _arrow(end: tuple[float, float], direction: tuple[int, int], colour: str) -> str:
    (x, y), (right, down) = end, direction
    corners = [
        (x + 4 * right, y + 4 * down),
        (x - 3 * right - 4 * down, y - 3 * down + 4 * right),
        (x - 3 * right + 4 * down, y - 3 * down - 4 * right),
    ]
    return f'<polygon points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}" fill="{colour}"/>'


def map_picture(shown_lines: Sequence[str], label: str, *, outline: tuple[int, int] | None = None) -> str:
    """Draw a map as `DecodedMaps.text` writes it, with rows and columns of the true grid as a dashed outline."""
    cells = [(row, col, symbol) for row, line in enumerate(shown_lines) for col, symbol in enumerate(line)]
    parts = [
        f'<rect x="{col * _CELL}" y="{row * _CELL}" width="{_CELL}" height="{_CELL}" fill="{_MAP_FILL[symbol]}" '
        'stroke="#d5dae0" stroke-width="0.6"/>'
        for row, col, symbol in cells
    ]
    for row, col, symbol in cells:
        if symbol in "AG":
            x, y = _middle((row, col))
            parts.append(f'<text x="{x:g}" y="{y + 4.3:g}" text-anchor="middle" fill="{INK}">{symbol}</text>')
    if outline is not None:
        parts.append(
            f'<rect x="1" y="1" width="{outline[1] * _CELL - 2}" height="{outline[0] * _CELL - 2}" fill="none" '
            'stroke="#d9480f" stroke-width="1.6" stroke-dasharray="5 3"/>'
        )
    return drawing(len(shown_lines[0]) * _CELL, len(shown_lines) * _CELL, label, _FONT, parts)


def framed(svg: str, shape: tuple[int, int], frame: int) -> str:
    """Return the picture of a grid of some shape with padding to the right and below, as large as a decoded map."""
    height, width = (side * _CELL for side in shape)
    side = frame * _CELL
    own, wider = (f'viewBox="0 0 {w} {h}" width="{w}"' for w, h in ((width, height), (side, side)))
    opening, drawn = svg.split(">", 1)
    padding = f'<rect width="{side}" height="{side}" fill="{_MAP_FILL[" "]}"/>'
    return f"{opening.replace(own, wider, 1)}>{padding}{drawn}"


_PANEL = 150
"""Side of each of the three panels in units of the view box."""

_GAP, _MARGIN = 14, 16
_WALL, _UNKNOWN, _UNSEEN, _SEEN = "#39424e", "#c9ced6", "#fff3d6", "#ffffff"
_STATUS = {"undiscovered": "#e4e7eb", "discovered": "#f2b8a0", "pending": "#ffd24d", "achieved": "#8fd19e"}
_EXPLORATION, _EXPLOITATION, _PATH = "#4477aa", "#cc3311", "#0b5fa5"
_LONGEST_NAME = 5

MOMENT_LEGEND = (
    "Map: white cells were stood on, cells with ? are known and open, grey ones unknown to the agent, dark ones "
    "obstacles; the line is its way so far, the ring where it stands. Nodes: grey undiscovered, orange discovered, "
    "yellow pending (prerequisites met), green achieved; on the graph a double border marks the goal, a small "
    "diamond one of several sets of prerequisites, a dashed edge one that the agent was not told of. Curves: errors "
    "so far, exploration blue, exploitation red; an error of case 4 counts in both."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is shown of one step."""

    step: int  # actions taken, t
    walk: tuple[Cell, ...]  # [t + 1] cells of the agent
    observed: frozenset[Cell]  # cells stood on
    unobserved: frozenset[Cell]  # known open cells
    status: Mapping[str, str]  # node -> "undiscovered", "discovered", "pending" or "achieved"


def moments(task_map: TaskMap, score: EpisodeScore, wanted: Sequence[int]) -> list[Moment]:
    """Return the moments of an episode after some numbers of actions, in order."""
    knowledge, walk = TaskState(task_map), [task_map.start]
    found = [_moment(knowledge, 0, walk)] if 0 in wanted else []
    # One after the other: a single step of a large map is found by scoring all steps before it again.
    for number, taken in enumerate(score.steps, start=1):
        knowledge.move(taken.action)
        walk.append(taken.after)
        if number in wanted:
            found.append(_moment(knowledge, number, walk))
    return found


def _moment(knowledge: TaskState, step: int, walk: Sequence[Cell]) -> Moment:
    pending = set(knowledge.pending_names)
    return Moment(
        step=step,
        walk=tuple(walk),
        observed=frozenset(knowledge.board.listed(knowledge.observed)),
        unobserved=frozenset(knowledge.board.listed(knowledge.unobserved)),
        status={name: "pending" if name in pending else str(knowledge.status(name)) for name in knowledge.map.nodes},
    )


def moment_picture(task_map: TaskMap, score: EpisodeScore, moment: Moment, label: str) -> str:
    """Draw map, graph and error curves at one moment, side by side."""
    panels = (_map(task_map, moment), _graph(task_map, moment), _curves(score, moment.step))
    parts = [
        f'<text x="0" y="10" font-weight="bold" fill="{INK}">t = {moment.step}</text>',
        *(f'<g transform="translate({at * (_PANEL + _GAP)} {_MARGIN})">{panel}</g>' for at, panel in enumerate(panels)),
    ]
    return drawing(3 * _PANEL + 2 * _GAP, _PANEL + _MARGIN, label, "8px", parts)


def _map(task_map: TaskMap, moment: Moment) -> str:
    frame = task_map.frame
    side = _PANEL / max(frame.width, frame.height)
    out = [f'<rect width="{frame.width * side:.2f}" height="{frame.height * side:.2f}" fill="{_WALL}"/>']
    for cell in task_map.cells:
        row, col = frame.row_col(cell)
        fill = _SEEN if cell in moment.observed else _UNSEEN if cell in moment.unobserved else _UNKNOWN
        out.append(
            f'<rect x="{col * side:.2f}" y="{row * side:.2f}" width="{side:.2f}" height="{side:.2f}" fill="{fill}" '
            'stroke="#d5dae0" stroke-width="0.4"/>'
        )
        if cell in moment.unobserved:
            out.append(_text((col + 0.5) * side, (row + 0.5) * side + 3, "?", MUTED))
    for name, node in task_map.nodes.items():
        row, col = frame.row_col(node.cell)
        border = ' stroke-dasharray="2 1.5"' if moment.status[name] == "undiscovered" else ""
        thick = 1.6 if name == task_map.goal else 0.7
        out.append(
            f'<circle cx="{(col + 0.5) * side:.2f}" cy="{(row + 0.5) * side:.2f}" r="{side * 0.4:.2f}" '
            f'fill="{_STATUS[moment.status[name]]}" stroke="{INK}" stroke-width="{thick}"'
            f"{border}/>"
        )
    middle = [((col + 0.5) * side, (row + 0.5) * side) for row, col in map(frame.row_col, moment.walk)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in middle)
    out.append(
        f'<polyline points="{path}" fill="none" stroke="{_PATH}" stroke-width="1.2" stroke-opacity="0.55" '
        'stroke-linejoin="round"/>'
    )
    x, y = middle[-1]
    out.append(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{side * 0.28:.2f}" fill="none" stroke="{_PATH}" stroke-width="2"/>'
    )
    return "".join(out)


def depths(task_map: TaskMap) -> dict[str, int]:
    """Return the depth of each node: 0 for a primitive, else one more than the deepest of its prerequisites."""
    found: dict[str, int] = {}
    while len(found) < len(task_map.nodes):
        for name, node in task_map.nodes.items():
            parents = {parent for option in node.options for parent in option}
            if name not in found and parents <= set(found):
                found[name] = max((found[parent] + 1 for parent in parents), default=0)
    return found


def _graph(task_map: TaskMap, moment: Moment) -> str:
    depth = depths(task_map)
    layers = [[name for name in task_map.nodes if depth[name] == layer] for layer in range(max(depth.values()) + 1)]
    place = {
        name: (_PANEL * (layer + 0.5) / len(layers), _PANEL * (index + 0.5) / len(names))
        for layer, names in enumerate(layers)
        for index, name in enumerate(names)
    }
    out = []
    for name, node in task_map.nodes.items():
        end = place[name]
        for number, option in enumerate(node.options):
            gate = end
            if len(node.options) > 1:
                gate = (end[0] - 16, end[1] + 9 * (number - (len(node.options) - 1) / 2))
                out.append(_edge(gate, end, told=moment.status[name] != "undiscovered"))
            for parent in option:
                told = {moment.status[name], moment.status[parent]} != {"undiscovered"}
                out.append(_edge(place[parent], gate, told=told))
            if gate is not end:
                x, y = gate
                out.append(f'<path d="M{x - 3:.1f} {y:.1f}l3 -3l3 3l-3 3z" fill="#ffffff" stroke="{MUTED}"/>')
    for name, (x, y) in place.items():
        fill = _STATUS[moment.status[name]]
        if name == task_map.goal:
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10.5" fill="none" stroke="{INK}" stroke-width="0.7"/>')
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8.5" fill="{fill}" stroke="{INK}" stroke-width="0.7"/>')
        text = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        out.append(f"<g><title>{escape(name)}</title>{_text(x, y + 2, text, INK, size=5.5)}</g>")
    return "".join(out)


def _edge(begin: tuple[float, float], end: tuple[float, float], *, told: bool) -> str:
    dashes = "" if told else ' stroke-dasharray="2 2"'
    return (
        f'<path d="M{begin[0]:.1f} {begin[1]:.1f}L{end[0]:.1f} {end[1]:.1f}" fill="none" stroke="{MUTED}" '
        f'stroke-width="{0.9 if told else 0.6}"{dashes}/>'
    )


def _curves(score: EpisodeScore, step: int) -> str:
    left, bottom, top = 20, _PANEL - 18, 6
    length = max(1, len(score.steps))
    counts = {"exploration": [0], "exploitation": [0]}
    for taken in score.steps:
        for kind, line in counts.items():
            line.append(line[-1] + (kind in taken.attribution))
    most = max(1, *(line[-1] for line in counts.values()))
    across, up = (_PANEL - left) / length, (bottom - top) / most
    out = [f'<path d="M{left} {top}V{bottom}H{_PANEL}" fill="none" stroke="{MUTED}" stroke-width="0.7"/>']
    for kind, colour, dash in (
        ("exploration", _EXPLORATION, ""),
        ("exploitation", _EXPLOITATION, ' stroke-dasharray="3 2"'),
    ):
        line = counts[kind][: step + 1]
        commands = f"M{left} {bottom}" + "".join(
            f"H{left + index * across:.1f}V{bottom - value * up:.1f}"
            for index, value in enumerate(line)
            if index and (value != line[index - 1] or index == len(line) - 1)
        )
        out.append(f'<path d="{commands}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>')
    out += [
        _text(left - 4, top + 6, str(most), MUTED, anchor="end", size=7),
        _text(left - 4, bottom, "0", MUTED, anchor="end", size=7),
        _text(left, _PANEL - 8, "0", MUTED, size=7),
        _text(_PANEL, _PANEL - 8, str(len(score.steps)), MUTED, anchor="end", size=7),
        _text((left + _PANEL) / 2, _PANEL - 1, "t, errors so far", MUTED, size=7),
    ]
    return "".join(out)


def _text(x: float, y: float, text: str, colour: str, *, anchor: str = "middle", size: float = 8) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}" font-size="{size:g}">{escape(text)}</text>'
