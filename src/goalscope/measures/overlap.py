"""How alike trajectories are: Jaccard similarity of the states that they visit.

Source: behavioural and representational evaluation, Appendix B.2, last equation.
"""

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import PAPER, StepMeasure, add_measures
from goalscope.measures.table import StepTable
from goalscope.measures.visits import Values, state_keys
from goalscope.rows import Rows

B2 = f"{PAPER}, Appendix B.2"


def state_overlap(*, cells: bool = False) -> StepMeasure:
    """Return the mean Jaccard similarity over all pairs of a group's trajectories; one row a group.

    A trajectory's set holds every state from the first to the one in which it ended.

    Args:
        cells: whether states count as equal when their cells are, whatever is carried or open.
    """

    def overlap(table: StepTable) -> Values:
        group, first = table.groups()
        value = np.full(len(first), np.nan)
        episode, state = _visited(table, cells)
        of = group[episode]
        order = np.argsort(of, kind="stable")
        edges = np.searchsorted(of[order], np.arange(len(first) + 1))
        # Numbers that grow group by group: of each episode, and of each different state of a group.
        rank = np.empty(len(group), dtype=np.int64)
        rank[np.argsort(group, kind="stable")] = np.arange(len(group))
        row = rank[episode][order]
        col = np.unique(of * (state.max(initial=0) + 1) + state, return_inverse=True)[1][order]
        members = np.bincount(group, minlength=len(first))
        for index in np.flatnonzero(members > 1).tolist():
            mine = slice(edges[index], edges[index + 1])
            rows, cols = row[mine] - row[mine].min(), col[mine] - col[mine].min()
            present = np.zeros((members[index], cols.max() + 1))
            present[rows, cols] = 1.0
            common = present @ present.T
            size = common.diagonal()
            one, other = np.triu_indices(len(present), k=1)
            shared = common[one, other]
            value[index] = np.mean(shared / (size[one] + size[other] - shared))
        return value

    return StepMeasure(
        name="Jaccard similarity of cells" if cells else "Jaccard similarity",
        unit="share",
        bounds=(0, 1),
        text=f"common over all visited {'cells' if cells else 'states'}, mean over pairs of a grid's trajectories; "
        "undefined with fewer than two",
        source=B2,
        per="group",
        needs=("grid",),
        base="Jaccard similarity" if cells else "",
        function=overlap,
    )


add_measures(state_overlap())


def paired_overlap(first: StepTable, second: StepTable, *, cells: bool = True) -> Rows:
    """Return the Jaccard similarity of the paired trajectories of two conditions, e.g. with a key and without.

    Trajectories are paired by grid, agent and number of the trajectory.

    Args:
        first: the episodes of one condition.
        second: the episodes of the other one.
        cells: whether states count as equal when their cells are; the phases of worlds with and without a key are not
            comparable.

    Returns:
        One row for each pair, with the tags that both conditions share.

    Raises:
        ValueError: two episodes of one condition have the same grid, agent and number, or no pair is found.
    """
    keys, others = _pairing(first, "first"), _pairing(second, "second")
    pairs = [(index, others[key]) for key, index in keys.items() if key in others]
    if not pairs:
        raise ValueError(
            f"paired trajectories must share grid, agent and number of the trajectory, got {len(keys)} and "
            f"{len(others)} episodes without a pair: check that both conditions have the same cluster"
        )
    sets, other_sets = visited_sets(first, cells), visited_sets(second, cells)
    value = [len(sets[one] & other_sets[two]) / len(sets[one] | other_sets[two]) for one, two in pairs]
    mine, theirs = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    shared = [name for name in first.tags if name in second.tags]
    equal = [name for name in shared if (first.tags[name][mine] == second.tags[name][theirs]).all()]
    return Rows.from_columns(
        measure="Jaccard similarity between conditions",
        unit="share",
        value=value,
        grid_id=first.grid_id[mine],
        episode_id=first.episode_id[mine],
        tags={name: first.tags[name][mine] for name in equal},
    )


def _visited(table: StepTable, cells: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (episode, state number) of every visit, the final states included."""
    episode = np.concatenate([table.episode, np.arange(len(table.length))])
    state = np.concatenate([table.state, table.final])
    if cells:
        state[:, 2] = 0
    return episode, state_keys(table, state, np.zeros(len(state), dtype=np.int64))


def visited_sets(table: StepTable, cells: bool) -> list[set[tuple[int, ...]]]:
    """Return the states of each episode; tables of different sizes number states differently, tuples do not."""
    episode, _ = _visited(table, cells)
    state = np.concatenate([table.state, table.final])[:, : 2 if cells else 3]
    found: list[set[tuple[int, ...]]] = [set() for _ in table.length]
    for index, visited in zip(episode.tolist(), state.tolist(), strict=True):
        found[index].add(tuple(visited))
    return found


def _pairing(table: StepTable, which: str) -> dict[tuple[str, str, int], int]:
    found: dict[tuple[str, str, int], int] = {}
    columns = (table.grid_id, table.agent, table.trajectory)
    for index, key in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if key in found:
            raise ValueError(
                f"a condition must hold one episode for each grid, agent and trajectory, the {which} one has two for "
                f"{key}: select one condition by its tags"
            )
        found[key] = index
    return found
