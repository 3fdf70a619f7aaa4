"""Pictures of a moment of an episode in a task world: map, task graph, errors so far.

Source: measuring exploration and exploitation errors, Appendix F.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from goalscope.measures.exploration import EpisodeScore
from goalscope.report.figures import INK, MUTED, Record, drawing
from goalscope.report.vector import Picture
from goalscope.worlds.tasks.coordinates import Cell
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskState

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


def moment_picture(task_map: TaskMap, score: EpisodeScore, moment: Moment, label: str) -> Picture:
    """Draw map, graph and error curves at one moment, side by side."""
    panels = (_map(task_map, moment), _graph(task_map, moment), _curves(score, moment.step))
    parts = [
        f'<text x="0" y="10" font-weight="bold" fill="{INK}">t = {moment.step}</text>',
        *(f'<g transform="translate({at * (_PANEL + _GAP)} {_MARGIN})">{panel}</g>' for at, panel in enumerate(panels)),
    ]
    svg = drawing(3 * _PANEL + 2 * _GAP, _PANEL + _MARGIN, label, "8px", parts)
    return Picture(svg, tuple(_records(task_map, score, moment)))


def _records(task_map: TaskMap, score: EpisodeScore, moment: Moment) -> Iterator[Record]:
    """Yield cells, nodes, the way and the errors so far, as lines of a CSV."""

    def record(what: str, name: str, cell: Cell | None, shows: object) -> Record:
        row, column = ("", "") if cell is None else task_map.frame.row_col(cell)
        return {"what": what, "name": name, "row": row, "column": column, "shows": shows}

    for cell in task_map.cells:
        known = "known" if cell in moment.unobserved else "unknown"
        yield record("cell", "", cell, "stood on" if cell in moment.observed else known)
    for name, node in task_map.nodes.items():
        yield record("node", name, node.cell, moment.status[name])
    for step, cell in enumerate(moment.walk):
        yield record("way", str(step), cell, "")
    for kind, line in _errors(score).items():
        yield record("errors so far", kind, None, line[moment.step])


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


def _errors(score: EpisodeScore) -> dict[str, list[int]]:
    """Return the errors of each kind after 0, 1, ... actions."""
    counts = {"exploration": [0], "exploitation": [0]}
    for taken in score.steps:
        for kind, line in counts.items():
            line.append(line[-1] + (kind in taken.attribution))
    return counts


def _curves(score: EpisodeScore, step: int) -> str:
    left, bottom, top = 20, _PANEL - 18, 6
    length = max(1, len(score.steps))
    counts = _errors(score)
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
