"""The exploration and exploitation errors of task worlds and of mazes under fog, with their counts.

Mean over maps and pooled ratio answer different questions: the first gives every map one vote, the second every step,
so that maps on which an agent wanders for long weigh more. Each table says which it holds.

Source: measuring exploration and exploitation errors, Section 5 (normalisation); reporting both: goalscope.
"""

from collections.abc import Mapping, Sequence

from goalscope.measures.exploration.rows import KINDS
from goalscope.report.blocks import Cell, Heading, Table, counted, counted_row
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

    def table(caption: str, valid: str, headings: Sequence[tuple[str, str]]) -> Table:
        lines = []
        for agent in agents:
            cells: list[Estimate | Cell | None] = []
            for kind in KINDS:
                mean = ledger.find("agent", f"{kind} error{valid}{suffix}", agent=agent, **group)
                cells += [*([mean] if valid else []), *_pooled(mine[agent], kind, valid, suffix, noun)]
            lines.append(counted_row(agent, cells, noun))
        of_kinds = [
            Heading(text=text.format(kind=kind, Kind=kind.capitalize()), unit=unit)
            for kind in KINDS
            for text, unit in headings
        ]
        first, last = Heading(text="agent"), Heading(text=f"{noun}s")
        return Table(caption=f"{caption}{after}", headings=(first, *of_kinds, last), rows=tuple(lines))

    pooled = table(
        "Both errors pooled: all errors of an agent over all its steps that called for the kind, interval over "
        f"{noun}s",
        "",
        [("{Kind} error, pooled", "share"), ("{kind} errors / steps", "counts")],
    )
    if not any_invalid(rows, group, suffix):
        return (pooled,)
    caption = (
        "Both errors over the actions that were moves alone (blocked ones and turns without a direction left out): "
        f"mean over the episodes of a {noun}, then over {noun}s, and pooled"
    )
    mean = f"{{Kind}} error, mean over {noun}s"
    return pooled, table(caption, _VALID, [(mean, "share"), ("pooled", "share"), ("errors / steps", "counts")])


def any_invalid(rows: Rows, group: Mapping[str, Tag], suffix: str) -> bool:
    """Return whether the steps of a group hold any that was no move."""
    mine = rows.select(**group)
    return any(
        mine.select(measure=f"{kind} steps{suffix}").value.sum()
        != mine.select(measure=f"{kind} steps{_VALID}{suffix}").value.sum()
        for kind in KINDS
    )


def _pooled(rows: Rows, kind: str, valid: str, suffix: str, noun: str) -> list[Estimate | Cell | None]:
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
