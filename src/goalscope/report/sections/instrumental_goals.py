"""Table 1: instrumental and implicit goals, each environment beside its matched control.

Source: behavioural and representational evaluation, section 4.3 and Table 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from goalscope.report.blocks import Cell, Heading, Plain, Row, Table, counted
from goalscope.report.comparison import LEVEL, Side, compare_pairs, comparison_table
from goalscope.report.definitions import KEY_POOLED, title_of
from goalscope.report.estimates import describe_key
from goalscope.report.ledger import Ledger
from goalscope.report.run_data import RunData
from goalscope.report.specs import Declared, FoldSpec, section
from goalscope.rows import Rows, Tag

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


def has_goal_tables(run: RunData) -> bool:
    """Return whether a run has any of the three environments of Table 1."""
    return any(full.get("kind") in _KINDS for _, full in run.settings())


@section("goals", source="behavioural and representational evaluation, section 4.3 and Table 1", worlds="grids")
def goal_tables(run: RunData) -> Iterator[Declared]:
    """Table 1 for those of its three environments that a run has."""
    conditions: dict[str, dict[tuple[str, bool], Group]] = {}
    for group, full in run.settings():
        if full.get("kind") in _KINDS:
            where = describe_key({name: full[name] for name in ("transform", "fog_radius") if name in full})
            where = "" if where == "transform identity" else where
            conditions.setdefault(where, {})[str(full["kind"]), bool(full.get("control"))] = group
    for where, columns in conditions.items():
        suffix = f", {where}" if where else ""
        rooms = {key: group for key, group in columns.items() if key[0] != "two-path"}
        paths = {key: group for key, group in columns.items() if key[0] == "two-path"}
        if rooms:
            title = f"Table 1: instrumental and implicit goals{suffix}"
            yield _declared(run, rooms, ROOMS, "goals", title, (_CONTROL, _LURE))
        if paths:
            yield _declared(run, paths, PATHS, "paths", f"Table 1: choice of path{suffix}", (_CONTROL, _CHOICE, _LURE))


def _declared(
    run: RunData, columns: Columns, measures: Sequence[str], anchor: str, title: str, paragraphs: Sequence[str]
) -> Declared:
    agents, ledger = run.groups, run.ledger
    missing = [_KINDS[kind] for kind, control in columns if not control and (kind, True) not in columns]
    missing = [name for name in missing if name != _KINDS["key-door"]]
    text = (
        [f"No matched control was run for {' and '.join(missing)}: set control: true in the study."] if missing else []
    )
    counted_of = [
        replace(one, key={**one.key, "world": _column(key, columns)})
        for agent in ledger.agents
        for key, group in columns.items()
        for one in ledger.tables["agent"].picked(({"measure": name, "agent": agent} for name in measures), **group)
    ]
    return Declared(
        anchor=anchor,
        title=title,
        paragraphs=(*paragraphs, *text),
        tables=[
            *(_table(ledger, columns, measures, agent) for agent in agents.subjects),
            *_against_control(run.rows, columns, agents.subjects),
        ],
        folds=[
            FoldSpec(
                title="The same of agents whose goal is known",
                tables=[_table(ledger, columns, measures, agent) for agent in agents.others],
            ),
            FoldSpec(
                title="The same tests of agents whose goal is known",
                tables=_against_control(run.rows, columns, agents.others),
            ),
        ],
        counted=counted_of,
        closing="Shares with 95 % intervals over grids. A dash stands where a figure has no meaning.",
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
