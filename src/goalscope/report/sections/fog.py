"""The table of arms under fog: who arrives, and what is wasted on the way.

Source: behavioural and representational evaluation, Appendix A.1.
"""

from collections.abc import Mapping
from itertools import combinations, product

from goalscope.report.agent_groups import AgentGroups, settings
from goalscope.report.blocks import Heading, Plain, Section, Table, counted, counted_row, counts_and_methods
from goalscope.report.blocks import listed as listed_names
from goalscope.report.comparison import LEVEL, Side, compare_pairs, comparison_table
from goalscope.report.definitions import title_of
from goalscope.report.ledger import Ledger, describe_key
from goalscope.report.sections.behaviour import curve
from goalscope.rows import Rows, Tag
from goalscope.stats import Grouped

WASTE = ("redundant backtracking", "moves into known dead ends", "repeated wall bumps")
COLUMNS = ("success", "action accuracy", "path ratio", *WASTE[:2], "wall bumps", WASTE[2])
COMPARED = ("success", *WASTE[:2], "wall bumps")
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


def fog_tables(rows: Rows, ledger: Ledger, arms: AgentGroups) -> list[Section]:
    """Return the table of arms for each condition under fog; nothing where a run has none."""
    found: list[Section] = []
    for group, full in settings(rows, ledger):
        if full.get("fog_radius") is None or not any(
            ledger.find("agent", WASTE[0], agent=agent, **group) for agent in ledger.agents
        ):
            continue
        number = f"-{len(found)}" if found else ""
        where = describe_key(group)
        lines = []
        for agent in (*arms.models, *arms.scripted):
            cells = [ledger.find("agent", name, agent=agent, **group) for name in COLUMNS]
            label = (
                f"{agent} ({_SHOWN.get(arms.history[agent], arms.history[agent])})" if agent in arms.models else agent
            )
            lines.append(counted_row(label, cells))
        headings = [Heading(text=title_of(name), unit=ledger.measures[name]) for name in COLUMNS]
        table = Table(
            caption=f"Arms under fog of radius {full['fog_radius']}{f' – {where}' if where else ''}, mean and 95 % "
            "interval over grids",
            headings=(Heading(text="arm"), *headings, Heading(text="grids")),
            rows=tuple(lines),
        )
        figures = [curve(ledger, name, "size", "grid size n (cells a side)", group, bounds=None) for name in WASTE]
        listed = [
            Grouped(key={"measure": name, "agent": agent}, estimate=estimate)
            for agent in ledger.agents
            for name in COLUMNS
            if (estimate := ledger.find("agent", name, agent=agent, **group)) is not None
        ]
        plain, text = _tests(rows, arms, group)
        found.append(
            Section(
                anchor=f"fog{number}",
                title="Under fog",
                paragraphs=(_TEXT, *([text] if text else [])),
                tables=(table,),
                plain=plain,
                figures=tuple(figure for figure in figures if figure),
                legend="Bands are 95 % intervals over grids.",
                folds=tuple(counts_and_methods(listed)),
            )
        )
    return found


def _tests(rows: Rows, arms: AgentGroups, group: Mapping[str, Tag]) -> tuple[tuple[Plain, ...], str]:
    """Return the tests of the subjects against every other arm, or what is said in their place."""
    pairs = [*combinations(arms.subjects, 2), *product(arms.subjects, arms.others)]
    if not pairs:
        return (), ""
    if len(pairs) > _MOST_PAIRS:
        return (), (
            f"{len(pairs)} pairs of arms are too many for one family of tests to say anything: name the ones that "
            "matter, goalscope compare RUN --agents 'A;B'."
        )
    agents = (*arms.subjects, *arms.others)
    sides = {agent: Side(name=agent, rows=rows.select(agent=agent, **group)) for agent in agents}
    tests = compare_pairs([(sides[one], sides[other]) for one, other in pairs], COMPARED, name="arms under fog")
    caption = (
        f"{listed_names(arms.subjects)} against every other arm, paired by grid: first − second with its interval, and "
        f"the signed-rank test, p corrected for all {counted(len(tests), 'test')} of this table (one family, level "
        f"{LEVEL:g})"
    )
    return (comparison_table(tests, caption=caption),), ""
