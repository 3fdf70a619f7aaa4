"""The conditions of a run: tags whose values no average mixes unless it is asked to."""

from collections.abc import Mapping, Sequence

from goalscope.measures.table import CONDITIONS, PROVENANCE
from goalscope.rows import Rows, Tag

_REPEATS = PROVENANCE | {"start", "index", "agent"}
"""Tags under which an agent meets a grid again in the same condition: they tell repeated episodes apart."""


def conditions_of(rows: Rows) -> tuple[str, ...]:
    """Return the tags that split a measured run into conditions.

    These are the tags of `CONDITIONS` that vary, and every other tag of which one agent meets the same grid with two
    values or more, such as a prompt or a temperature of imported episodes. A tag with another value for each episode
    of an agent numbers episodes and is no condition.

    Args:
        rows: from `measure_store` or `task_rows`; what is measured of whole episodes tells the conditions.

    Returns:
        Those of `CONDITIONS` first, in its order, then others in the order of the tags.
    """
    episodes = _episodes(rows)
    found = [name for name in CONDITIONS if len(set(_column(episodes, (name,)))) > 1]
    for name in rows.tags:
        if name in (*CONDITIONS, *_REPEATS):
            continue
        values = set(_column(episodes, ("agent", "grid_id", name)))
        shared = len(set(_column(episodes, ("agent", name)))) < len(episodes)
        if shared and len(values) > len(set(_column(episodes, ("agent", "grid_id")))):
            found.append(name)
    return tuple(found)


def mixed(rows: Rows, conditions: Sequence[str], by: Sequence[str]) -> Mapping[str, list[Tag]]:
    """Return the conditions that an average by some tags mixes, each with its values in order of appearance."""
    episodes = _episodes(rows)
    groups = len(set(_column(episodes, by)))
    return {
        name: list(dict.fromkeys(values[0] for values in _column(episodes, (name,))))
        for name in conditions
        if len(set(_column(episodes, (*by, name)))) > groups
    }


def _episodes(rows: Rows) -> Rows:
    return rows.where(rows.measure == "success")


def _column(rows: Rows, names: Sequence[str]) -> list[tuple[Tag, ...]]:
    """Return the values of some columns of each row, None where a tag is missing."""
    columns, missing = rows.columns(), [None] * len(rows)
    return list(zip(*(columns[name].tolist() if name in columns else missing for name in names), strict=True))
