"""How alike trajectories are: Jaccard similarity of the states that they visit.

Source: behavioural and representational evaluation, Appendix B.2, last equation.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.measures.measure import StepTable, episode_rows, group_rows
from goalscope.measures.visits import state_keys
from goalscope.rows import Rows
from goalscope.worlds.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOverlap:
    """Mean Jaccard similarity over all pairs of a group's trajectories; one row a group.

    A trajectory's set holds every state from the first to the one in which it ended.

    Attributes:
        cells: whether states count as equal when their cells are, whatever is carried or open.
    """

    cells: bool = False
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def name(self) -> str:
        """The quantity, and that it looks at cells alone where it does."""
        return "Jaccard similarity of cells" if self.cells else "Jaccard similarity"

    def rows(self, table: StepTable) -> Rows:
        """Return the mean for each group, NaN for a group with fewer than two trajectories."""
        group, first = table.groups()
        value = np.full(len(first), np.nan)
        episode, state = _visited(table, self.cells)
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
        return group_rows(table, self.name, self.unit, value, first)


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
    sets, other_sets = _sets(first, cells), _sets(second, cells)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOverlap:
    """Jaccard similarity of the cells of paired trajectories with a key and without; one row for each pair.

    The trajectory on a world with a key is paired with the one of the same agent and number on its matched control (the
    same cluster, walls, start and goal, no key). Two runs of one condition are not alike either: read it beside the
    similarity of pairs on the control alone.
    """

    name: str = "Jaccard similarity with control"
    unit: str = "share"
    bounds: tuple[float, float] = (0.0, 1.0)

    def rows(self, table: StepTable) -> Rows:
        """Return the similarity for each episode on a world with a key that has a partner."""
        keyed = np.array([world.grid.key is not None for world in table.worlds], dtype=bool)
        value = np.full(len(table.length), np.nan)
        if keyed.any() and not keyed.all():
            plain: dict[tuple[int | None, Grid], int] = {}  # numbers of the grids, keys left out
            bare = [(world.fog_radius, world.grid.at(key=None)) for world in table.worlds]
            number = np.array([plain.setdefault(grid, len(plain)) for grid in bare])[table.world]
            columns = (table.grid_id, number, table.agent, table.trajectory, table.seed)
            who = list(zip(*(column.tolist() for column in columns), strict=True))
            with_key = keyed[table.world]
            twins = {who[index]: index for index in np.flatnonzero(~with_key).tolist()}
            sets = _sets(table, cells=True) if twins else []
            for index in np.flatnonzero(with_key).tolist():
                twin = twins.get(who[index])
                if twin is not None:
                    value[index] = len(sets[index] & sets[twin]) / len(sets[index] | sets[twin])
        return episode_rows(table, self.name, self.unit, value).where(~np.isnan(value))


def _visited(table: StepTable, cells: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (episode, state number) of every visit, the final states included."""
    episode = np.concatenate([table.episode, np.arange(len(table.length))])
    state = np.concatenate([table.state, table.final])
    if cells:
        state[:, 2] = 0
    return episode, state_keys(table, state, np.zeros(len(state), dtype=np.int64))


def _sets(table: StepTable, cells: bool) -> list[set[tuple[int, ...]]]:
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
