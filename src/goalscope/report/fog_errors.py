"""The exploration and exploitation errors of mazes under fog: a variant, in a section and with names of its own."""

from goalscope.measures.exploration.fogged import UNDER_FOG
from goalscope.measures.exploration.rows import KINDS
from goalscope.report.arms import Arms, settings
from goalscope.report.definitions import title_of
from goalscope.report.error_tables import NO_INVALID, any_invalid, error_tables, table
from goalscope.report.ledger import Ledger, describe_key
from goalscope.report.parts import Fold, Heading, Section, counted_row
from goalscope.report.sections import curve, numbers_table
from goalscope.rows import Rows
from goalscope.stats import Grouped

ERRORS = tuple(f"{kind} error{UNDER_FOG}" for kind in KINDS)
_TEXT = (
    "Before a way to the goal is revealed an agent has to explore, afterwards it has to go there. An error is an "
    "action that no reasonable strategy would take, judged on the cells that were revealed before it: one that leads "
    "nearer to no target, or goes in circles among several. Targets are the revealed open cells next to a hidden one, "
    "or the goal. An agent that always walks a shortest known way to one of them makes none. This is the metric of the "
    "task worlds in other words (docs/exploration.md); its numbers are not pooled with those."
)


def fog_errors(rows: Rows, ledger: Ledger, arms: Arms) -> list[Section]:
    """Return the errors of each arm for each condition under fog; nothing where a run has none."""
    found: list[Section] = []
    agents = (*arms.models, *arms.scripted)
    for group, full in settings(rows, ledger):
        if full.get("fog_radius") is None:
            continue
        estimates = {
            (agent, name): ledger.find("agent", name, agent=agent, **group) for agent in agents for name in ERRORS
        }
        here = [agent for agent in agents if estimates[agent, ERRORS[0]] is not None]
        if not here:
            continue
        where = describe_key(group)
        means = table(
            f"Errors under fog of radius {full['fog_radius']}{f' – {where}' if where else ''}: mean over the episodes "
            "of a grid, then over grids",
            [Heading(text=title_of(name), unit="share") for name in ERRORS],
            [counted_row(agent, [estimates[agent, name] for name in ERRORS], "grid") for agent in here],
            "grid",
        )
        figures = [curve(ledger, name, "size", "grid size n (cells a side)", group, bounds=None) for name in ERRORS]
        listed = [
            Grouped(key={"measure": name, "agent": agent}, estimate=estimate)
            for (agent, name), estimate in estimates.items()
            if estimate is not None
        ]
        found.append(
            Section(
                anchor=f"fog-errors{f'-{len(found)}' if found else ''}",
                title="Exploration and exploitation errors under fog",
                paragraphs=(_TEXT, *([] if any_invalid(rows, group, UNDER_FOG) else [NO_INVALID])),
                tables=(
                    means,
                    *error_tables(rows, ledger, here, group, where, suffix=UNDER_FOG, noun="grid"),
                ),
                figures=tuple(figure for figure in figures if figure),
                legend="Bands are 95 % intervals over grids.",
                folds=(Fold(title=f"Counts and methods ({len(listed)} estimates)", plain=(numbers_table(listed),)),),
            )
        )
    return found
