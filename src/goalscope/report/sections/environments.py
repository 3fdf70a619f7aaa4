"""Table 1, instrumental and implicit goals beside matched controls, and behaviour under fog.

Source: behavioural and representational evaluation, section 4.3, Table 1 and Appendix A.1; measuring exploration and
exploitation errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from goalscope._ground.words import listed
from goalscope.measures.comparison import LEVEL, SideRows
from goalscope.measures.exploration.errors import FOGGED, KINDS, UNDER_FOG
from goalscope.report.blocks import Cell, Table, estimates_table
from goalscope.report.comparison import family_table
from goalscope.report.definitions import KEY_POOLED, title_of
from goalscope.report.ledger import Key, Ledger, RunData, describe_key
from goalscope.report.sections.results import NO_INVALID, any_invalid, error_tables
from goalscope.report.specs import (
    BANDS,
    Column,
    Declared,
    FoldSpec,
    TableSpec,
    after,
    agent_lines,
    by_agent,
    over_tag,
    section,
)
from goalscope.report.texts import TEXTS
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Rows, Tag

Group = Mapping[str, Tag]
Columns = Mapping[tuple[str, bool], Group]
"""(kind of world, whether it is a control) -> the conditions of its estimates in the ledger."""

_COMMON = ("success", "action accuracy")
_STAGES = ("accuracy on the way to the key", "accuracy on the way to the door", "accuracy on the way to the goal")
_LURE = (KEY_POOLED, "errors towards the key")
_CHOICE = ("key path taken", "key path entered first")
_OVERLAP = ("Jaccard similarity with control", "Jaccard similarity")
_ROOMS = (*_COMMON, *_STAGES, "key pickup", *_LURE)
_PATHS = (*_COMMON, "key pickup", *_CHOICE, *_LURE, *_OVERLAP)
_PAIRED = (*_COMMON, "key pickup", "errors towards the key", "key attraction bias")
"""Measures that are compared with the matched control, paired by grid; with two paths, also the choice of path."""

_KINDS = {"key-door": "KeyDoorEnv", "key-no-door": "KeyNoDoorEnv", "two-path": "2PathKeyEnv"}
_NOT_IN = {"key-door": _LURE, "key-no-door": _STAGES}
_EMPTY = Cell(value="–", hint="not defined here")
_NO_ERRORS = Cell(value="undefined", note="no errors", hint="no non-optimal action before the key is reached")
_ABOUT_CONTROL = TEXTS("goals/control")
_ABOUT_LURE = TEXTS("goals/lure")
_ABOUT_CHOICE = TEXTS("goals/choice")


def has_goal_tables(run: RunData) -> bool:
    """Return whether a run has one of the three environments of Table 1."""
    return any(tags.get("kind") in _KINDS for _, tags in run.settings())


@section("goals", source="behavioural and representational evaluation, section 4.3 and Table 1", worlds="grids")
def goal_tables(run: RunData) -> Iterator[Declared]:
    """Yield the section with Table 1 of the paper, for those of its three environments that a run has."""
    conditions: dict[str, dict[tuple[str, bool], Group]] = {}
    for group, tags in run.settings():
        if tags.get("kind") in _KINDS:
            condition = describe_key({name: tags[name] for name in ("transform", "fog_radius") if name in tags})
            condition = "" if condition == "transform identity" else condition
            conditions.setdefault(condition, {})[str(tags["kind"]), bool(tags.get("control"))] = group
    for condition, columns in conditions.items():
        suffix = f", {condition}" if condition else ""
        for anchor, title, measures, texts in (
            ("goals", "Instrumental and implicit goals", _ROOMS, (_ABOUT_CONTROL, _ABOUT_LURE)),
            ("paths", "Choice of path", _PATHS, (_ABOUT_CONTROL, _ABOUT_CHOICE, _ABOUT_LURE)),
        ):
            section_columns = {
                key: group for key, group in columns.items() if (key[0] == "two-path") == (anchor == "paths")
            }
            if section_columns:
                yield _declared(run, section_columns, measures, anchor, f"{title}{suffix}", texts)


def _declared(
    run: RunData, columns: Columns, measures: Sequence[str], anchor: str, title: str, paragraphs: Sequence[str]
) -> Declared:
    agents, ledger = run.groups, run.ledger
    missing = [
        _KINDS[kind] for kind, control in columns if not control and (kind, True) not in columns and kind != "key-door"
    ]
    text = TEXTS("goals/no control", kinds=" and ".join(missing)) if missing else ""
    return Declared(
        anchor=anchor,
        title=title,
        paragraphs=[text] if missing else (),
        explained=paragraphs,
        tables=[
            *(_table(ledger, columns, measures, agent) for agent in agents.subjects),
            *_against_control(run.rows, columns, agents.subjects),
        ],
        folds=[
            FoldSpec(
                "The same for agents whose goal is known",
                [_table(ledger, columns, measures, agent) for agent in agents.others],
            ),
            FoldSpec(
                "The same tests for agents whose goal is known", _against_control(run.rows, columns, agents.others)
            ),
        ],
        counted=[
            replace(grouped, key={**grouped.key, "world": _column(key, columns)})
            for agent in ledger.agents
            for key, group in columns.items()
            for grouped in _estimates_of(ledger, [agent], measures, group)
        ],
        closing=TEXTS("goals/closing"),
    )


def _estimates_of(ledger: Ledger, agents: Sequence[str], measures: Sequence[str], group: Key) -> list[Grouped]:
    """Return the estimates of some agents and measures in a group, for the table of counts and methods."""
    keys = ({"measure": name, "agent": agent} for agent in agents for name in measures)
    return ledger.tables["agent"].picked(keys, **group)


def _table(ledger: Ledger, columns: Columns, measures: Sequence[str], agent: str) -> Table:
    """Return the table of one agent as in the paper: one line per metric, one column per environment."""
    rows: list[tuple[str, list[Estimate | Cell | None]]] = []
    for name in measures:
        undefined_in = {kind: name in _NOT_IN.get(kind, ()) for kind, _ in columns}
        estimates = [
            None
            if undefined_in[kind] or (name in _STAGES and control)
            else ledger.find("agent", name, agent=agent, **group)
            for (kind, control), group in columns.items()
        ]
        # An agent without errors has no error direction; the line stays.
        no_errors = name == KEY_POOLED and not all(undefined_in.values())
        if no_errors or any(estimate is not None and (estimate.n or estimate.undefined) for estimate in estimates):
            empty = [_NO_ERRORS if name == KEY_POOLED and not undefined_in[kind] else _EMPTY for kind, _ in columns]
            rows.append((title_of(name), [estimate or cell for estimate, cell in zip(estimates, empty, strict=True)]))
    counts = [ledger.find("agent", "success", agent=agent, **group) for group in columns.values()]
    rows.append(("Trajectories", [Cell(value=str(estimate.n) if estimate else "–") for estimate in counts]))
    rows.append(("Grids", [Cell(value=str(estimate.clusters) if estimate else "–") for estimate in counts]))
    return estimates_table(agent, [("metric", ""), *((_column(key, columns), "share") for key in columns)], rows)


def _column(key: tuple[str, bool], columns: Columns) -> str:
    kind, control = key
    if not control:
        return f"{_KINDS[kind]}, with key" if (kind, True) in columns else _KINDS[kind]
    return f"{_KINDS[kind]}, control without key"


def _against_control(rows: Rows, columns: Columns, agents: Sequence[str]) -> list[Table]:
    """Return the paired comparison of each kind of world with its control; the tests of each kind form one family."""
    tables = []
    for (kind, control), group in columns.items():
        if not control and (kind, True) in columns and agents:
            control_group = columns[kind, True]
            with_key = [SideRows(f"{agent}, with key", rows.select(agent=agent, **group)) for agent in agents]
            controls = [SideRows(f"{agent}, control", rows.select(agent=agent, **control_group)) for agent in agents]
            caption = TEXTS("goals/against control", kind=_KINDS[kind], level=f"{LEVEL:g}")
            measures = (*_PAIRED, *_CHOICE) if kind == "two-path" else _PAIRED
            tables.append(
                family_table(
                    [*zip(with_key, controls, strict=True)], caption, measures, name=f"{kind} against control"
                )[1]
            )
    return tables


WASTE = ("redundant backtracking", "moves into known dead ends", "repeated wall bumps")
COLUMNS = ("success", "action accuracy", "path ratio", *WASTE[:2], "wall bumps", WASTE[2])
COMPARED = ("success", *WASTE[:2], "wall bumps")
_ERRORS = tuple(f"{kind} error{UNDER_FOG}" for kind in KINDS)
_FOGGED = frozenset(measure.name for measure in FOGGED)
MAX_PAIRS = 45
_HISTORY_LABELS = {
    "none": "no history",
    "actions": "history of states and actions",
    "conversation": "whole conversation",
    "reasoning": "whole conversation with reasoning",
}
_TEXT = TEXTS("fog/how")
_FOG_TEXT = TEXTS("fog/errors")


@section("fog", source="behavioural and representational evaluation, Appendix A.1", worlds="grids")
def fog(run: RunData) -> Iterator[Declared]:
    """Yield the section with a table of agents for each fog condition."""
    agents, history = (*run.groups.models, *run.groups.scripted), run.groups.history
    views = {agent: f" ({_HISTORY_LABELS.get(history[agent], history[agent])})" for agent in run.groups.models}
    labels = [(agent, f"{agent}{views.get(agent, '')}") for agent in agents]
    for group, radius in _fog_conditions(run, WASTE[0]):
        tests, text = _tests(run, group)
        caption = f"Agents under fog of radius {radius}"
        yield Declared(
            anchor="fog",
            title="Under fog",
            paragraphs=[text] if text else (),
            explained=(_TEXT,),
            tables=[by_agent(run.ledger, COLUMNS, group, caption, first="agent", labels=labels), *tests],
            figures=[over_tag(run.ledger, name, "size", group) for name in WASTE],
            legend=BANDS,
            counted=_estimates_of(run.ledger, run.ledger.agents, COLUMNS, group),
        )


@section("errors under fog", source="measuring exploration and exploitation errors, Section 4", worlds="grids")
def fog_errors(run: RunData) -> Iterator[Declared]:
    """Yield the section with the errors of each agent under each fog condition."""
    table = run.ledger.tables["agent"]
    for group, radius in _fog_conditions(run, _ERRORS[0]):
        all_agents = (*run.groups.models, *run.groups.scripted)
        agents = [agent for agent in all_agents if table.get(group, agent=agent, measure=_ERRORS[0]) is not None]
        means = TableSpec(
            f"Errors under fog of radius {radius}{after(group)}: mean over the episodes of a grid, then over grids",
            "agent",
            table,
            [Column(title_of(name), "share", {"measure": name}) for name in _ERRORS],
            agent_lines(agents, group),
        )
        errors = run.rows_of(*(name for name in run.measured.measures if name in _FOGGED))
        yield Declared(
            anchor="fog-errors",
            title="Exploration and exploitation errors under fog",
            explained=(_FOG_TEXT, *([] if any_invalid(errors, group, UNDER_FOG) else [NO_INVALID])),
            tables=[means, *error_tables(errors, run.ledger, agents, group, suffix=UNDER_FOG, noun="grid")],
            figures=[over_tag(run.ledger, name, "size", group) for name in _ERRORS],
            legend=BANDS,
            counted=_estimates_of(run.ledger, agents, _ERRORS, group),
        )


def _fog_conditions(run: RunData, measure: str) -> Iterator[tuple[Key, object]]:
    """Yield the fog conditions for which a measure has values, and the radius of each."""
    for group, tags in run.settings():
        measured = any(run.ledger.find("agent", measure, agent=agent, **group) for agent in run.ledger.agents)
        if tags.get("fog_radius") is not None and measured:
            yield group, tags["fog_radius"]


def _tests(run: RunData, group: Key) -> tuple[list[Table], str]:
    """Return the tests of the subjects against every other agent, or a text that replaces them."""
    subjects, other_agents = run.groups.subjects, run.groups.others
    pairs = [*combinations(subjects, 2), *product(subjects, other_agents)]
    if not pairs:
        return [], ""
    if len(pairs) > MAX_PAIRS:
        return [], TEXTS("compared/too many pairs", pairs=len(pairs))
    rows = run.rows_of(*COMPARED)
    sides = {agent: SideRows(agent, rows.select(agent=agent, **group)) for agent in (*subjects, *other_agents)}
    caption = TEXTS("fog/against others", agents=listed(subjects), level=f"{LEVEL:g}")
    side_pairs = [(sides[first], sides[second]) for first, second in pairs]
    return [family_table(side_pairs, caption, COMPARED, name="arms under fog")[1]], ""
