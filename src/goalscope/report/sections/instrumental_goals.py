"""Table 1: instrumental and implicit goals, each environment beside its matched control.

Source: behavioural and representational evaluation, section 4.3 and Table 1.
"""

from collections.abc import Mapping, Sequence

from goalscope.report.agent_groups import AgentGroups, settings
from goalscope.report.blocks import Cell, Fold, Heading, Plain, Row, Section, Table, counted, counts_and_methods
from goalscope.report.comparison import LEVEL, Side, compare_pairs, comparison_table
from goalscope.report.definitions import KEY_POOLED, title_of
from goalscope.report.ledger import Ledger, describe_key
from goalscope.rows import Rows, Tag
from goalscope.stats import Grouped

Group = Mapping[str, Tag]
Columns = Mapping[tuple[str, bool], Group]
"""(kind of world, whether a control) -> the conditions under which the ledger keeps its numbers."""

COMMON = ("success", "action accuracy")
STAGES = ("accuracy on the way to the key", "accuracy on the way to the door", "accuracy on the way to the goal")
LURE = (KEY_POOLED, "errors towards the key")
CHOICE = ("key path taken", "key path entered first")
OVERLAP = ("Jaccard similarity with control", "Jaccard similarity")
ROOMS = (*COMMON, *STAGES, "key pickup", *LURE)
PATHS = (*COMMON, "key pickup", *CHOICE, *LURE, *OVERLAP)
PAIRED = (*COMMON, "key pickup", "errors towards the key", "key attraction bias")
"""What is compared with the matched control, grid by grid; path choice too where there are two paths."""

_KINDS = {"key-door": "KeyDoorEnv", "key-no-door": "KeyNoDoorEnv", "two-path": "2PathKeyEnv"}
_NOT_IN = {"key-door": LURE, "key-no-door": STAGES}
_EMPTY = Cell(value="–", hint="has no meaning here")
_NO_ERRORS = Cell(value="undefined", note="no errors", hint="no non-optimal action before the key is reached")
_CONTROL = (
    "The matched control is the same grid without the key. Its figures are taken at the cell where the key would "
    "lie, and say what chance and geometry alone bring about."
)
_LURE = (
    "The attraction bias is the share of the non-optimal actions before the key is reached that approach it, pooled"
    " over all actions as in the paper, with an interval over grids; it is undefined for an agent that never errs. "
    "Errors towards the key are the same actions as a share of all actions before the key is reached: defined for "
    "every agent, so that each grid can be paired with its control."
)
_CHOICE = (
    "The path taken is the one over which the goal was entered; an agent without a preference takes the key's path "
    "half of the time. The Jaccard similarity compares the cells of the two trajectories of a pair, with the key "
    "and without. Two walks that choose between the paths at random are equal half of the time and share little but"
    " start and goal otherwise: a value below 1 alone shows no influence of the key, the difference in path choice "
    "does."
)


def goal_tables(rows: Rows, ledger: Ledger, arms: AgentGroups) -> list[Section]:
    """Return Table 1 for those of its three environments that a run has; nothing where it has none."""
    conditions: dict[str, dict[tuple[str, bool], Group]] = {}
    for group, full in settings(rows, ledger):
        if full.get("kind") in _KINDS:
            where = describe_key({name: full[name] for name in ("transform", "fog_radius") if name in full})
            where = "" if where == "transform identity" else where
            conditions.setdefault(where, {})[str(full["kind"]), bool(full.get("control"))] = group
    found = []
    for number, (where, columns) in enumerate(conditions.items()):
        end, suffix = f"-{number}" if number else "", f", {where}" if where else ""
        rooms = {key: group for key, group in columns.items() if key[0] != "two-path"}
        paths = {key: group for key, group in columns.items() if key[0] == "two-path"}
        if rooms:
            title = f"Table 1: instrumental and implicit goals{suffix}"
            found.append(_section(rows, ledger, arms, rooms, ROOMS, f"goals{end}", title, (_CONTROL, _LURE)))
        if paths:
            title = f"Table 1: choice of path{suffix}"
            found.append(_section(rows, ledger, arms, paths, PATHS, f"paths{end}", title, (_CONTROL, _CHOICE, _LURE)))
    return found


def _section(
    rows: Rows,
    ledger: Ledger,
    arms: AgentGroups,
    columns: Columns,
    measures: Sequence[str],
    anchor: str,
    title: str,
    paragraphs: Sequence[str],
) -> Section:
    shown = tuple(_table(ledger, columns, measures, agent) for agent in arms.subjects)
    others = tuple(_table(ledger, columns, measures, agent) for agent in arms.others)
    folds = [Fold(title="The same of agents whose goal is known", tables=others)] if others else []
    listed = [
        Grouped(key={"measure": name, "agent": agent, "world": _column(key, columns)}, estimate=estimate)
        for agent in ledger.agents
        for key, group in columns.items()
        for name in measures
        if (estimate := ledger.find("agent", name, agent=agent, **group)) is not None
    ]
    folds += counts_and_methods(listed)
    plain = _against_control(rows, columns, arms.subjects)
    known = _against_control(rows, columns, arms.others)
    if known:
        folds.insert(len(folds) - 1, Fold(title="The same tests of agents whose goal is known", plain=known))
    missing = [_KINDS[kind] for kind, control in columns if not control and (kind, True) not in columns]
    missing = [name for name in missing if name != _KINDS["key-door"]]
    text = (
        [f"No matched control was run for {' and '.join(missing)}: set control: true in the study."] if missing else []
    )
    return Section(
        anchor=anchor,
        title=title,
        paragraphs=(*paragraphs, *text),
        tables=shown,
        plain=plain,
        folds=tuple(folds),
        legend="Shares with 95 % intervals over grids. A dash stands where a figure has no meaning.",
    )


def _table(ledger: Ledger, columns: Columns, measures: Sequence[str], agent: str) -> Table:
    """Return the table of one agent in the shape of the paper's: a line a metric, a column an environment."""
    rows = []
    for name in measures:
        found = [
            None
            if name in _NOT_IN.get(kind, ()) or (name in STAGES and control)
            else ledger.find("agent", name, agent=agent, **group)
            for (kind, control), group in columns.items()
        ]
        if any(estimate is not None and (estimate.n or estimate.undefined) for estimate in found):
            absent = [name in _NOT_IN.get(kind, ()) or name != KEY_POOLED for kind, _ in columns]
            blanks = [_EMPTY if gone else _NO_ERRORS for gone in absent]
            cells = tuple(Cell.of(one) if one else blank for one, blank in zip(found, blanks, strict=True))
            rows.append(Row(label=title_of(name), cells=cells))
        elif name == KEY_POOLED and len(columns) > sum(kind == "key-door" for kind, _ in columns):
            # An agent that never errs has no errors to tell the direction of; the line stays.
            cells = tuple(_EMPTY if name in _NOT_IN.get(kind, ()) else _NO_ERRORS for kind, _ in columns)
            rows.append(Row(label=title_of(name), cells=cells))
    counts = [ledger.find("agent", "success", agent=agent, **group) for group in columns.values()]
    rows.append(Row(label="Trajectories", cells=tuple(Cell(value=str(one.n) if one else "–") for one in counts)))
    rows.append(Row(label="Grids", cells=tuple(Cell(value=str(one.clusters) if one else "–") for one in counts)))
    headings = (Heading(text="metric"), *(Heading(text=_column(key, columns), unit="share") for key in columns))
    return Table(caption=agent, headings=headings, rows=tuple(rows))


def _column(key: tuple[str, bool], columns: Columns) -> str:
    kind, control = key
    if not control:
        return f"{_KINDS[kind]}, with key" if (kind, True) in columns else _KINDS[kind]
    return f"{_KINDS[kind]}, control without key"


def _against_control(rows: Rows, columns: Columns, agents: Sequence[str]) -> tuple[Plain, ...]:
    """Return the paired comparison of each kind of world with its control, a family of its own for each kind."""
    plain = []
    for (kind, control), group in columns.items():
        if control or (kind, True) not in columns or not agents:
            continue
        measures = (*PAIRED, *CHOICE) if kind == "two-path" else PAIRED
        pairs = []
        for agent in agents:
            with_key, without = (rows.select(agent=agent, **side) for side in (group, columns[kind, True]))
            sides = Side(name=f"{agent}, with key", rows=with_key), Side(name=f"{agent}, control", rows=without)
            pairs.append(sides)
        listed = compare_pairs(pairs, measures, name=f"{kind} against control")
        caption = (
            f"{_KINDS[kind]} against its control, paired by grid: key − control with its interval, and the signed-rank "
            f"test, p corrected for all {counted(len(listed), 'test')} of this table (one family, level {LEVEL:g})"
        )
        plain.append(comparison_table(listed, caption=caption))
    return tuple(plain)
