"""Agents compared with each other, and each with itself under paired conditions."""

from collections.abc import Iterator

from goalscope.measures.behaviour import COMPARED
from goalscope.report.blocks import counted
from goalscope.report.comparison import Side, compare_pairs, compare_sides, comparison_table
from goalscope.report.estimates import Key, describe_key
from goalscope.report.run_data import RunData
from goalscope.report.sections.instrumental_goals import has_goal_tables
from goalscope.report.specs import Declared, section
from goalscope.rows import Rows, Tag

MOST_PAIRS = 45
_METHOD = (
    "p (Holm) is corrected for all TESTS of this table, declared as one family. The effect is the signed matched-pairs "
    "rank correlation, from −1 (first always lower) to +1 (first always higher)."
)


@section("agents compared", worlds="grids")
def agents_compared(run: RunData) -> Iterator[Declared]:
    """All pairs of agents of a run."""
    agents = run.ledger.agents
    if len(agents) < 2:
        return
    pairs = len(agents) * (len(agents) - 1) // 2
    if pairs > MOST_PAIRS:
        text = (
            f"This run has {len(agents)} agents, {pairs} pairs: too many for one family of tests to say anything. "
            "Name the agents that matter: goalscope compare RUN --agents 'A;B'."
        )
        yield Declared(anchor="comparison", title="Agents compared", paragraphs=(text,))
        return
    # The condition with the most grids, the first of equals.
    group = max(run.ledger.groups("agent"), key=lambda key: len(set(_of_group(run.rows, key).grid_id.tolist())))
    wanted = _of_group(run.rows, group)
    listed = compare_sides([Side(name=agent, rows=wanted.where(wanted["agent"] == agent)) for agent in agents])
    where = f" ({describe_key(group)}, the largest part of this run)" if group else ""
    text = (
        f"All pairs of agents on the grids that both acted on{where}"
        f": the mean difference by grid with its interval, and the two-sided Wilcoxon signed-rank test. {_METHOD}"
    ).replace("TESTS", counted(len(listed), "test"))
    yield Declared(anchor="comparison", title="Agents compared", paragraphs=(text,), tables=[comparison_table(listed)])


@section("conditions compared", worlds="grids")
def conditions_compared(run: RunData) -> Iterator[Declared]:
    """Each agent with itself: transforms with the original, keys with controls, where no other section has them."""
    groups = run.ledger.groups("agent")
    elsewhere = {"transform": run.analysis.invariance is not None, "control": has_goal_tables(run)}
    found: list[tuple[str, dict[str, Tag], dict[str, Tag]]] = []
    for tag, base in (("transform", "identity"), ("control", False)):
        for group in groups:
            other = {**group, tag: base}
            if not elsewhere[tag] and group.get(tag) not in (None, base) and other in groups:
                found.append((tag, group, other))
    # What both sides share is written only where it tells comparisons apart.
    shared = [describe_key({name: value for name, value in other.items() if name != tag}) for tag, _, other in found]
    pairs = []
    for (tag, group, other), where in zip(found, shared, strict=True):
        suffix = f", {where}" if len(set(shared)) > 1 and where else ""
        for agent in run.ledger.agents:
            mine = run.rows.where(run.rows["agent"] == agent)
            first = Side(name=f"{agent}{suffix}, {describe_key({tag: group[tag]})}", rows=_of_group(mine, group))
            pairs.append((first, Side(name=f"{agent}{suffix}", rows=_of_group(mine, other))))
    if not pairs:
        return
    listed = compare_pairs(pairs, name="conditions")
    text = (
        "Each agent on paired versions of the same grids: the mean difference by grid with its interval, and the "
        f"two-sided Wilcoxon signed-rank test. {_METHOD} A difference that is not significant is no proof of equality: "
        "read the interval, or declare a margin in the study (analysis: invariance)."
    ).replace("TESTS", counted(len(listed), "test"))
    yield Declared(
        anchor="conditions", title="Conditions compared", paragraphs=(text,), tables=[comparison_table(listed)]
    )


def _of_group(rows: Rows, group: Key) -> Rows:
    return rows.where(rows.among("measure", COMPARED)).select(**group)
