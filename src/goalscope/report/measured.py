"""What a report reads of a run: the rows about behaviour, and the episodes of each agent, looked through once.

Few rows are read at once; of many, those of one measure at a time, so that memory does not grow with all that was
measured.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.measures.behaviour import measure_bounds
from goalscope.rows import Rows, Tag
from goalscope.runs.store import Store
from goalscope.runs.walks import Head, read_heads
from goalscope.stats import Grouped, distinct, estimate_rows, grids_of, numbers_of

Counts = npt.NDArray[np.int64]

_INSIDE = "head"  # tag of rows about activations
_CHANGED = "intervention"  # tag of rows about changed activations
_MOST_KEPT = 1 << 20  # rows
_NONE = Rows.from_rows([])
_WITHOUT_EPISODES = ("unit", "grid_id")  # the texts to read


class MeasuredRows:
    """The rows of a run about behaviour, and beside them those about activations.

    Args:
        given: the run, or rows.
        source: the source whose rows are meant; all by default.

    Attributes:
        measures: measure -> unit, in the order of the rows.
        counts: measure -> number of its rows.
        values: tag -> its values in order of appearance, None among them where a row lacks it.
        order: grid -> its place in the order of the rows.
        probed, changed: all rows about activations, and about changed ones.
    """

    def __init__(self, given: Store | Rows, source: str | None = None) -> None:
        if isinstance(given, Store) and _total(given, source) <= _MOST_KEPT:
            given = Rows.concatenate(given.rows_of(source)) if source is not None else given.rows()
        self._given, self._source = given, source
        self.measures: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.order: dict[str, int] = {}
        self._kept: dict[tuple[tuple[str, ...] | None, bool], Rows] = {}
        inside = dict[str, None]()
        seen: dict[str, dict[tuple[type, Tag], None]] = {}
        for name, rows in self._groups(names=_WITHOUT_EPISODES):
            own = _behaviour(rows)
            if len(own) < len(rows):
                inside[name] = None
            if len(own):
                self._note(own, seen)
        self.values = {
            name: values for name, found in seen.items() if set(values := tuple(value for _, value in found)) != {None}
        }
        beside = Rows.concatenate(rows for name, rows in self._groups() if name in inside) if inside else _NONE
        self.changed = beside.where(beside.known(_CHANGED))
        self.probed = beside.where(beside.known(_INSIDE) & ~beside.known(_CHANGED))

    def _groups(
        self, measures: Sequence[str] | None = None, names: Sequence[str] | None = None
    ) -> Iterator[tuple[str, Rows]]:
        if isinstance(self._given, Store) and self._source is not None:
            yield from ((self._source, rows) for rows in self._given.rows_of(self._source, measures, names=names))
        elif isinstance(self._given, Store):
            yield from self._given.row_groups(measures, names=names)
        else:
            yield "", self._given if measures is None else self._given.where(self._given.among("measure", measures))

    def _note(self, rows: Rows, seen: dict[str, dict[tuple[type, Tag], None]]) -> None:
        codes, measures = rows.numbered("measure")
        units, names = rows.numbered("unit")
        _, first = np.unique(codes, return_index=True)
        before = sum(self.counts.values())
        for code, (measure, count) in enumerate(zip(measures, np.bincount(codes).tolist(), strict=True)):
            self.measures.setdefault(measure, names[units[first[code]]])
            self.counts[measure] = self.counts.get(measure, 0) + count
        for grid in rows.numbered("grid_id")[1]:
            self.order.setdefault(grid, len(self.order))
        for name in {**dict.fromkeys(rows.tags), **seen}:
            # A tag that comes late was lacking before.
            found = seen.setdefault(name, {(type(None), None): None} if before else {})
            found |= dict.fromkeys((type(value), value) for value in rows.numbered(name)[1])

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def every_measure(self) -> list[str]:
        """The names of all measures, those of activations and changed activations among them."""
        beside = (rows.numbered("measure")[1] for rows in (self.probed, self.changed))
        return list(dict.fromkeys([*self.measures, *chain.from_iterable(beside)]))

    def of(self, *measures: str, episodes: bool = True) -> Rows:
        """Return the rows of some measures, in order; without ``episodes`` they do not say of which, which is less."""
        return self._read(measures, episodes)

    def every_of(self, *measures: str) -> Rows:
        """Return the rows of some measures, those about activations and changed activations among them."""
        return Rows.concatenate(rows for _, rows in self._groups(measures))

    def all(self) -> Rows:
        """Return all rows, in order."""
        return self._read(None, True)

    def _read(self, measures: tuple[str, ...] | None, episodes: bool) -> Rows:
        key = measures, episodes
        if key not in self._kept:
            groups = self._groups(measures, None if episodes else _WITHOUT_EPISODES)
            found = Rows.concatenate(_behaviour(rows) for _, rows in groups)
            if sum(map(len, self._kept.values())) + len(found) > _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return self._kept[key]

    def distinct(self, names: Sequence[str]) -> Rows:
        """Return the first of all rows that are equal in some tags and in their grid."""
        groups = self._groups(names=_WITHOUT_EPISODES)
        parts = [distinct(_behaviour(rows), [*names, "grid_id"]) for _, rows in groups]
        return distinct(Rows.concatenate(parts), [*names, "grid_id"])

    def estimated(self, by: Sequence[str], measures: Collection[str] | None = None) -> list[Grouped]:
        """Return the estimates of measures, all by default, by some tags; see `goalscope.stats.estimate_rows`."""
        grids, found = grids_of(self.distinct(by), by), list[Grouped]()
        for measure in self.measures if measures is None else [name for name in self.measures if name in measures]:
            rows, counts = self.condensed(measure)
            about: dict[str, Any] = {"bounds": measure_bounds(), "counts": counts, "order": self.order}
            found += estimate_rows(rows, by=by, whole=grids, **about)
        return found

    def condensed(self, measure: str) -> tuple[Rows, Counts]:
        """Return the different rows of a measure, without episodes and steps, and how many rows each stands for."""
        groups = self._groups([measure], names=_WITHOUT_EPISODES)
        parts = [_condensed(_behaviour(rows)) for _, rows in groups]
        return _condensed(Rows.concatenate(rows for rows, _ in parts), [count for _, count in parts])


def _total(store: Store, source: str | None) -> int:
    """Return how many rows a run has at most."""
    sources = store.row_sources() if source is None else [source]
    return sum(sum(store.row_counts(name).values()) for name in sources)


def _behaviour(rows: Rows) -> Rows:
    return rows.where(~(rows.known(_CHANGED) | rows.known(_INSIDE)))


def _condensed(rows: Rows, counts: Iterable[Counts] = ()) -> tuple[Rows, Counts]:
    """Return the first of equal rows and how many there are of each; ``counts`` are those of the rows given."""
    listed = list(counts)
    count = np.concatenate(listed) if listed else np.ones(len(rows), dtype=np.int64)
    bits = np.unique(rows.value.view(np.int64), return_inverse=True)[1].reshape(-1)
    codes = numbers_of(rows, ["measure", "unit", "grid_id", *rows.tags], bits)
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    total = np.bincount(which.reshape(-1), weights=count, minlength=len(first)).astype(np.int64)
    return rows.at(first[order]), total[order]


@dataclass(slots=True)
class AgentEpisodes:
    """What a report needs of the episodes of one agent.

    Attributes:
        turns: cluster -> its turns, and how many of them held no action.
        chosen: "first failure", "longest" and "first success", where there is one -> the episode.
    """

    turns: dict[str, tuple[int, int]] = field(default_factory=dict)
    chosen: dict[str, Head] = field(default_factory=dict)

    def add(self, one: Head, cluster: str) -> None:
        """Take in an episode; they come in the order of their worlds' content ids and trajectories."""
        if one.length:
            turns, failed = self.turns.get(cluster, (0, 0))
            self.turns[cluster] = turns + one.length, failed + one.failed
        self.chosen.setdefault("first success" if one.outcome == "goal" else "first failure", one)
        if one.length > self.chosen.setdefault("longest", one).length:
            self.chosen["longest"] = one


def episodes_by_agent(store: Store) -> Mapping[str, AgentEpisodes]:
    """Return what a report needs of the episodes of each agent, each compared with its checksum.

    Raises:
        ValueError: an episode is not as it was written.
    """
    found: dict[str, AgentEpisodes] = {}
    clusters = {world: cluster or world for world, _, _, cluster, _ in store.entries("world")}
    for one in read_heads(store):
        if one.world_id not in clusters:
            store.sums.refuse("the world of every episode")
        found.setdefault(one.agent, AgentEpisodes()).add(one, clusters[one.world_id])
    return found
