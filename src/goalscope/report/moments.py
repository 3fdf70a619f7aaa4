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
_MAX_NAME = 5  # characters of a node's label

MOMENT_LEGEND = (
    "Map: white cells were stood on, cells with ? are known and open, grey ones unknown to the agent, dark ones "
    "obstacles; the line is its way so far, the ring where it stands. Nodes: grey undiscovered, orange discovered, "
    "yellow pending (prerequisites met), green achieved; on the graph a double border marks the goal, a small "
    "diamond one of several sets of prerequisites, a dashed edge one that the agent was not told of. Curves: errors "
    "so far, exploration blue, exploitation red; an error of case 4 counts in both."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """State of an episode after some number of actions."""

    step: int  # actions taken, t
    walk: tuple[Cell, ...]  # [t + 1] cells of the agent
    observed: frozenset[Cell]  # cells stood on
    unobserved: frozenset[Cell]  # known open cells
    status: Mapping[str, str]  # node -> "undiscovered", "discovered", "pending" or "achieved"


def moments(task_map: TaskMap, score: EpisodeScore, times: Sequence[int]) -> list[Moment]:
    """Return the moments of an episode after some numbers of actions, in order."""
    state, walk = TaskState(task_map), [task_map.start]
    result = [_moment(state, 0, walk)] if 0 in times else []
    # In one pass: recomputing a single moment would replay all steps before it.
    for step, scored_step in enumerate(score.steps, start=1):
        state.move(scored_step.action)
        walk.append(scored_step.after)
        if step in times:
            result.append(_moment(state, step, walk))
    return result


def _moment(state: TaskState, step: int, walk: Sequence[Cell]) -> Moment:
    pending = set(state.pending_names)
    return Moment(
        step=step,
        walk=tuple(walk),
        observed=frozenset(state.board.listed(state.observed)),
        unobserved=frozenset(state.board.listed(state.unobserved)),
        status={name: "pending" if name in pending else str(state.status(name)) for name in state.map.nodes},
    )


def moment_picture(task_map: TaskMap, score: EpisodeScore, moment: Moment, label: str) -> Picture:
    """Draw map, graph and error curves at one moment, side by side."""
    panels = (_map(task_map, moment), _graph(task_map, moment), _error_curves(score, moment.step))
    parts = [
        f'<text x="0" y="10" font-weight="bold" fill="{INK}">t = {moment.step}</text>',
        *(f'<g transform="translate({at * (_PANEL + _GAP)} {_MARGIN})">{panel}</g>' for at, panel in enumerate(panels)),
    ]
    svg = drawing(3 * _PANEL + 2 * _GAP, _PANEL + _MARGIN, label, "8px", parts)
    return Picture(svg, tuple(_records(task_map, score, moment)))


def _records(task_map: TaskMap, score: EpisodeScore, moment: Moment) -> Iterator[Record]:
    """Yield cells, nodes, walk and errors so far as CSV records."""

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
    elements = [f'<rect width="{frame.width * side:.2f}" height="{frame.height * side:.2f}" fill="{_WALL}"/>']
    for cell in task_map.cells:
        row, col = frame.row_col(cell)
        fill = _SEEN if cell in moment.observed else _UNSEEN if cell in moment.unobserved else _UNKNOWN
        elements.append(
            f'<rect x="{col * side:.2f}" y="{row * side:.2f}" width="{side:.2f}" height="{side:.2f}" fill="{fill}" '
            'stroke="#d5dae0" stroke-width="0.4"/>'
        )
        if cell in moment.unobserved:
            elements.append(_text((col + 0.5) * side, (row + 0.5) * side + 3, "?", MUTED))
    for name, node in task_map.nodes.items():
        row, col = frame.row_col(node.cell)
        border = ' stroke-dasharray="2 1.5"' if moment.status[name] == "undiscovered" else ""
        border_width = 1.6 if name in task_map.goals else 0.7
        elements.append(
            f'<circle cx="{(col + 0.5) * side:.2f}" cy="{(row + 0.5) * side:.2f}" r="{side * 0.4:.2f}" '
            f'fill="{_STATUS[moment.status[name]]}" stroke="{INK}" stroke-width="{border_width}"'
            f"{border}/>"
        )
    centres = [((col + 0.5) * side, (row + 0.5) * side) for row, col in map(frame.row_col, moment.walk)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in centres)
    elements.append(
        f'<polyline points="{path}" fill="none" stroke="{_PATH}" stroke-width="1.2" stroke-opacity="0.55" '
        'stroke-linejoin="round"/>'
    )
    x, y = centres[-1]
    elements.append(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{side * 0.28:.2f}" fill="none" stroke="{_PATH}" stroke-width="2"/>'
    )
    return "".join(elements)


def depths(task_map: TaskMap) -> dict[str, int]:
    """Return the depth of each node: 0 for a primitive, else one more than the deepest of its prerequisites."""
    depth_of: dict[str, int] = {}
    while len(depth_of) < len(task_map.nodes):
        for name, node in task_map.nodes.items():
            parents = {parent for option in node.options for parent in option}
            if name not in depth_of and parents <= set(depth_of):
                depth_of[name] = max((depth_of[parent] + 1 for parent in parents), default=0)
    return depth_of


def _graph(task_map: TaskMap, moment: Moment) -> str:
    depth = depths(task_map)
    layers = [[name for name in task_map.nodes if depth[name] == layer] for layer in range(max(depth.values()) + 1)]
    positions = {
        name: (_PANEL * (layer + 0.5) / len(layers), _PANEL * (index + 0.5) / len(names))
        for layer, names in enumerate(layers)
        for index, name in enumerate(names)
    }
    elements = []
    for name, node in task_map.nodes.items():
        end = positions[name]
        for option_index, option in enumerate(node.options):
            gate = end
            if len(node.options) > 1:
                gate = (end[0] - 16, end[1] + 9 * (option_index - (len(node.options) - 1) / 2))
                elements.append(_edge(gate, end, known=moment.status[name] != "undiscovered"))
            for parent in option:
                known = {moment.status[name], moment.status[parent]} != {"undiscovered"}
                elements.append(_edge(positions[parent], gate, known=known))
            if gate is not end:
                x, y = gate
                elements.append(f'<path d="M{x - 3:.1f} {y:.1f}l3 -3l3 3l-3 3z" fill="#ffffff" stroke="{MUTED}"/>')
    for name, (x, y) in positions.items():
        fill = _STATUS[moment.status[name]]
        if name in task_map.goals:
            elements.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10.5" fill="none" stroke="{INK}" stroke-width="0.7"/>'
            )
        elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8.5" fill="{fill}" stroke="{INK}" stroke-width="0.7"/>')
        text = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        elements.append(f"<g><title>{escape(name)}</title>{_text(x, y + 2, text, INK, size=5.5)}</g>")
    return "".join(elements)


def _edge(begin: tuple[float, float], end: tuple[float, float], *, known: bool) -> str:
    dashes = "" if known else ' stroke-dasharray="2 2"'
    return (
        f'<path d="M{begin[0]:.1f} {begin[1]:.1f}L{end[0]:.1f} {end[1]:.1f}" fill="none" stroke="{MUTED}" '
        f'stroke-width="{0.9 if known else 0.6}"{dashes}/>'
    )


def _errors(score: EpisodeScore) -> dict[str, list[int]]:
    """Return the errors of each kind after 0, 1, ... actions."""
    counts = {"exploration": [0], "exploitation": [0]}
    for scored_step in score.steps:
        for kind, curve in counts.items():
            curve.append(curve[-1] + (kind in scored_step.attribution))
    return counts


def _error_curves(score: EpisodeScore, step: int) -> str:
    left, bottom, top = 20, _PANEL - 18, 6
    length = max(1, len(score.steps))
    counts = _errors(score)
    maximum = max(1, *(curve[-1] for curve in counts.values()))
    x_scale, y_scale = (_PANEL - left) / length, (bottom - top) / maximum
    elements = [f'<path d="M{left} {top}V{bottom}H{_PANEL}" fill="none" stroke="{MUTED}" stroke-width="0.7"/>']
    for kind, colour, dash in (
        ("exploration", _EXPLORATION, ""),
        ("exploitation", _EXPLOITATION, ' stroke-dasharray="3 2"'),
    ):
        curve = counts[kind][: step + 1]
        commands = f"M{left} {bottom}" + "".join(
            f"H{left + index * x_scale:.1f}V{bottom - value * y_scale:.1f}"
            for index, value in enumerate(curve)
            if index and (value != curve[index - 1] or index == len(curve) - 1)
        )
        elements.append(f'<path d="{commands}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>')
    elements += [
        _text(left - 4, top + 6, str(maximum), MUTED, anchor="end", size=7),
        _text(left - 4, bottom, "0", MUTED, anchor="end", size=7),
        _text(left, _PANEL - 8, "0", MUTED, size=7),
        _text(_PANEL, _PANEL - 8, str(len(score.steps)), MUTED, anchor="end", size=7),
        _text((left + _PANEL) / 2, _PANEL - 1, "t, errors so far", MUTED, size=7),
    ]
    return "".join(elements)


def _text(x: float, y: float, text: str, colour: str, *, anchor: str = "middle", size: float = 8) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}" font-size="{size:g}">{escape(text)}</text>'
