"""The exploration and exploitation errors of task worlds and of mazes under fog, with their counts.

Mean over maps and pooled ratio answer different questions: the first gives every map one vote, the second every step,
so that maps on which an agent wanders for long weigh more. Each table says which it holds.

Source: measuring exploration and exploitation errors, Section 5 (normalisation); reporting both: goalscope.
"""

from collections.abc import Mapping, Sequence

from goalscope.measures.exploration.rows import KINDS
from goalscope.report.blocks import Cell, Heading, Row, Table, counted, counted_row
from goalscope.report.ledger import Ledger
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, estimate_pooled

_VALID = " of valid moves"
NO_INVALID = (
    "No action of this run was invalid (blocked, or without a direction), so that over valid moves alone both errors "
    "are the same."
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
