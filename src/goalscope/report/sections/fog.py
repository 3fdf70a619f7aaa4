"""Under fog: who arrives, what is wasted on the way, and the exploration and exploitation errors.

Source: behavioural and representational evaluation, Appendix A.1; measuring exploration and exploitation errors.
"""

from collections.abc import Iterator
from itertools import combinations, product

from goalscope.measures.exploration.fogged import UNDER_FOG
from goalscope.measures.exploration.rows import KINDS
from goalscope.report.blocks import Plain, counted
from goalscope.report.blocks import listed as listed_names
from goalscope.report.comparison import LEVEL, Side, compare_pairs, comparison_table
from goalscope.report.definitions import title_of
from goalscope.report.estimates import Key, describe_key
from goalscope.report.layouts import BANDS, by_agent, over_tag
from goalscope.report.run_data import RunData
from goalscope.report.sections.exploration_errors import NO_INVALID, any_invalid, error_tables
from goalscope.report.specs import Column, Declared, Line, TableSpec, section

WASTE = ("redundant backtracking", "moves into known dead ends", "repeated wall bumps")
COLUMNS = ("success", "action accuracy", "path ratio", *WASTE[:2], "wall bumps", WASTE[2])
COMPARED = ("success", *WASTE[:2], "wall bumps")
ERRORS = tuple(f"{kind} error{UNDER_FOG}" for kind in KINDS)
_MOST_PAIRS = 45
_SHOWN = {
    "none": "no history",
    "actions": "history of states and actions",
    "conversation": "whole conversation",
    "reasoning": "whole conversation with reasoning",
}
_TEXT = (
    "Redundant backtracking, moves into known dead ends and bumps are shares of an episode's actions. A move is "
    "redundant when it leads back to a cell with nothing new seen since the last visit; a dead end is known when "
    "the agent sees before the move that nothing but the way back lies behind it; the wall that is bumped into is "
    "always seen, so that what tells agents apart is whether the same bump is repeated. An agent that uses what it "
    "has seen does none of the three."
)
_FOG_TEXT = (
    "Before a way to the goal is revealed an agent has to explore, afterwards it has to go there. An error is an "
    "action that no reasonable strategy would take, judged on the cells that were revealed before it: one that leads "
    "nearer to no target, or goes in circles among several. Targets are the revealed open cells next to a hidden one, "
    "or the goal. An agent that always walks a shortest known way to one of them makes none. This is the metric of the "
    "task worlds in other words (docs/exploration.md); its numbers are not pooled with those."
)


@section("fog", source="behavioural and representational evaluation, Appendix A.1", worlds="grids")
def fog(run: RunData) -> Iterator[Declared]:
    """The table of agents for each condition under fog."""
    agents, history = (*run.groups.models, *run.groups.scripted), run.groups.history
    labels = [
        (agent, f"{agent} ({_SHOWN.get(history[agent], history[agent])})" if agent in run.groups.models else agent)
        for agent in agents
    ]
    for group, radius in _under_fog(run, WASTE[0]):
        plain, text = _tests(run, group)
        keys = [{"measure": name, "agent": agent} for agent in run.ledger.agents for name in COLUMNS]
        yield Declared(
            anchor="fog",
            title="Under fog",
            paragraphs=(_TEXT, *([text] if text else [])),
            tables=[
                by_agent(run.ledger, COLUMNS, group, f"Arms under fog of radius {radius}", first="arm", labels=labels),
                *plain,
            ],
            figures=[over_tag(run.ledger, name, "size", group) for name in WASTE],
            legend=BANDS,
            counted=run.ledger.tables["agent"].picked(keys, **group),
        )


@section("errors under fog", source="measuring exploration and exploitation errors, Section 4", worlds="grids")
def fog_errors(run: RunData) -> Iterator[Declared]:
    """The errors of each agent for each condition under fog."""
    table = run.ledger.tables["agent"]
    for group, radius in _under_fog(run, ERRORS[0]):
        agents = [
            agent
            for agent in (*run.groups.models, *run.groups.scripted)
            if table.get(group, agent=agent, measure=ERRORS[0]) is not None
        ]
        where = describe_key(group)
        means = TableSpec(
            caption=f"Errors under fog of radius {radius}{f' – {where}' if where else ''}: mean over the episodes of a "
            "grid, then over grids",
            first="agent",
            estimates=table,
            columns=[Column(title_of(name), "share", {"measure": name}) for name in ERRORS],
            lines=[Line(agent, {**group, "agent": agent}) for agent in agents],
        )
        keys = [{"measure": name, "agent": agent} for agent in agents for name in ERRORS]
        yield Declared(
            anchor="fog-errors",
            title="Exploration and exploitation errors under fog",
            paragraphs=(_FOG_TEXT, *([] if any_invalid(run.rows, group, UNDER_FOG) else [NO_INVALID])),
            tables=[
                means,
                *error_tables(run.rows, run.ledger, agents, group, where, suffix=UNDER_FOG, noun="grid"),
            ],
            figures=[over_tag(run.ledger, name, "size", group) for name in ERRORS],
            legend=BANDS,
            counted=table.picked(keys, **group),
        )


def _under_fog(run: RunData, measure: str) -> Iterator[tuple[Key, object]]:
    """Yield the conditions under fog in which something is measured, and the radius."""
    for group, full in run.settings():
        there = any(run.ledger.find("agent", measure, agent=agent, **group) for agent in run.ledger.agents)
        if full.get("fog_radius") is not None and there:
            yield group, full["fog_radius"]


def _tests(run: RunData, group: Key) -> tuple[tuple[Plain, ...], str]:
    """Return the tests of the subjects against every other arm, or what is said in their place."""
    pairs = [*combinations(run.groups.subjects, 2), *product(run.groups.subjects, run.groups.others)]
    if not pairs:
        return (), ""
    if len(pairs) > _MOST_PAIRS:
        return (), (
            f"{len(pairs)} pairs of arms are too many for one family of tests to say anything: name the ones that "
            "matter, goalscope compare RUN --agents 'A;B'."
        )
    agents = (*run.groups.subjects, *run.groups.others)
    sides = {agent: Side(name=agent, rows=run.rows.select(agent=agent, **group)) for agent in agents}
    tests = compare_pairs([(sides[one], sides[other]) for one, other in pairs], COMPARED, name="arms under fog")
    caption = (
        f"{listed_names(run.groups.subjects)} against every other arm, paired by grid: first − second with its "
        f"interval, and the signed-rank test, p corrected for all {counted(len(tests), 'test')} of this table (one "
        f"family, level {LEVEL:g})"
    )
    return (comparison_table(tests, caption=caption),), ""
