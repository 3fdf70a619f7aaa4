"""The exploration and exploitation errors of task worlds and of mazes under fog, with their counts.

Mean over maps and pooled ratio answer different questions: the first gives every map one vote, the second every step,
so that maps on which an agent wanders for long weigh more. Each table says which it holds.

Source: measuring exploration and exploitation errors, Section 5 (normalisation); reporting both: goalscope.
"""

from collections.abc import Mapping, Sequence

from goalscope.measures.exploration.fogged import UNDER_FOG
from goalscope.measures.exploration.rows import KINDS
from goalscope.report.agent_groups import AgentGroups, settings
from goalscope.report.blocks import Cell, Heading, Row, Section, Table, counted, counted_row, counts_and_methods
from goalscope.report.definitions import title_of
from goalscope.report.ledger import Ledger, describe_key
from goalscope.report.sections.behaviour import curve
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped, estimate_pooled

_VALID = " of valid moves"
NO_INVALID = (
    "No action of this run was invalid (blocked, or without a direction), so that over valid moves alone both errors "
    "are the same."
)
ERRORS = tuple(f"{kind} error{UNDER_FOG}" for kind in KINDS)
_FOG_TEXT = (
    "Before a way to the goal is revealed an agent has to explore, afterwards it has to go there. An error is an "
    "action that no reasonable strategy would take, judged on the cells that were revealed before it: one that leads "
    "nearer to no target, or goes in circles among several. Targets are the revealed open cells next to a hidden one, "
    "or the goal. An agent that always walks a shortest known way to one of them makes none. This is the metric of the "
    "task worlds in other words (docs/exploration.md); its numbers are not pooled with those."
)


def error_tables(
    rows: Rows, ledger: Ledger, agents: Sequence[str], group: Mapping[str, Tag], where: str, *, suffix: str, noun: str
) -> tuple[Table, ...]:
    """Return the pooled ratios with their counts, and mean and pooled ratio of valid moves where any was invalid.

    Args:
        rows: the rows of the run.
        ledger: its estimates.
        agents: one line each.
        group: the conditions that these tables speak of.
        where: the conditions in words, "" for none.
        suffix: with what the names of the measures end, "" in task worlds.
        noun: what the intervals run over, e.g. "map".
    """
    after = f" – {where}" if where else ""
    mine = {agent: rows.select(agent=agent, **group) for agent in agents}
    pooled = [
        counted_row(
            agent, [part for kind in KINDS for part in _pooled_cells(mine[agent], kind, "", suffix, noun)], noun
        )
        for agent in agents
    ]
    headings = [
        heading
        for kind in KINDS
        for heading in (
            Heading(text=f"{kind.capitalize()} error, pooled", unit="share"),
            Heading(text=f"{kind} errors / steps", unit="counts"),
        )
    ]
    found = [
        table(
            f"Both errors pooled: all errors of an agent over all its steps that called for the kind, interval over "
            f"{noun}s{after}",
            headings,
            pooled,
            noun,
        )
    ]
    if not any_invalid(rows, group, suffix):
        return tuple(found)
    valid = []
    for agent in agents:
        cells: list[Estimate | Cell | None] = []
        for kind in KINDS:
            cells.append(ledger.find("agent", f"{kind} error{_VALID}{suffix}", agent=agent, **group))
            cells += _pooled_cells(mine[agent], kind, _VALID, suffix, noun)
        valid.append(counted_row(agent, cells, noun))
    headings = [
        heading
        for kind in KINDS
        for heading in (
            Heading(text=f"{kind.capitalize()} error, mean over {noun}s", unit="share"),
            Heading(text="pooled", unit="share"),
            Heading(text="errors / steps", unit="counts"),
        )
    ]
    caption = (
        f"Both errors over the actions that were moves alone (blocked ones and turns without a direction left out): "
        f"mean over the episodes of a {noun}, then over {noun}s, and pooled{after}"
    )
    return (*found, table(caption, headings, valid, noun))


def any_invalid(rows: Rows, group: Mapping[str, Tag], suffix: str) -> bool:
    """Return whether the steps of a group hold any that was no move."""
    mine = rows.select(**group)
    return any(
        mine.select(measure=f"{kind} steps{suffix}").value.sum()
        != mine.select(measure=f"{kind} steps{_VALID}{suffix}").value.sum()
        for kind in KINDS
    )


def table(caption: str, headings: Sequence[Heading], lines: Sequence[Row], noun: str, first: str = "agent") -> Table:
    """Return a table whose last column counts the maps."""
    return Table(
        caption=caption, headings=(Heading(text=first), *headings, Heading(text=f"{noun}s")), rows=tuple(lines)
    )


def fog_errors(rows: Rows, ledger: Ledger, arms: AgentGroups) -> list[Section]:
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
                paragraphs=(_FOG_TEXT, *([] if any_invalid(rows, group, UNDER_FOG) else [NO_INVALID])),
                tables=(means, *error_tables(rows, ledger, here, group, where, suffix=UNDER_FOG, noun="grid")),
                figures=tuple(figure for figure in figures if figure),
                legend="Bands are 95 % intervals over grids.",
                folds=tuple(counts_and_methods(listed)),
            )
        )
    return found


def _pooled_cells(rows: Rows, kind: str, valid: str, suffix: str, noun: str) -> list[Estimate | Cell | None]:
    """Return all errors of a kind over all steps that called for it, and both counts."""
    errors = rows.select(measure=f"{kind} errors{valid}{suffix}")
    steps = rows.select(measure=f"{kind} steps{valid}{suffix}")
    if not len(errors):
        return [None, None]
    of = dict(zip(steps.episode_id, steps.value, strict=True))
    below = [of[episode] for episode in errors.episode_id]
    pooled = estimate_pooled(errors.value, below, errors.grid_id, unit="share", bounds=(0.0, 1.0))
    counts = f"{int(errors.value.sum()):,} / {int(steps.value.sum()):,}"
    return [pooled, Cell(value=counts, hint=f"{counted(len(errors), 'episode')}, {counted(pooled.clusters, noun)}")]
