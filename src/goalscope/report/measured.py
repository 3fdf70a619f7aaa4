"""Input of a report: the rows of a run about behaviour, and the episodes of each agent, read only once.

Only few rows are read at once: if there are many, one measure at a time, so that memory does not grow with the number
of measures.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.goals import TOWARDS, goal_measure
from goalscope.measures.behaviour import measure_bounds
from goalscope.report.definitions import named_in, scale_tags
from goalscope.runs.episode_columns import EpisodeHead, read_heads
from goalscope.runs.store import Store
from goalscope.stats import Grouped, clusters_of, distinct, estimate_rows, numbers_of
from goalscope.stats.columns import constant
from goalscope.stats.rows import Rows, Tag

Counts = npt.NDArray[np.int64]

_INSIDE = "head"  # tag of rows about activations
_CHANGED = "intervention"  # tag of rows about changed activations
_MAX_CACHED_ROWS = 1 << 20  # rows
_NONE = Rows.from_rows([])
_WITHOUT_EPISODES = ("unit", "cluster")  # the texts to read


class MeasuredRows:
    """The rows of a run about behaviour, and those about activations.

    Args:
        rows_or_run: the run, or rows.
        source: the source to read; all by default.

    Attributes:
        measures: measure -> unit, in the order of the rows.
        counts: measure -> number of its rows.
        values: tag -> its values in order of appearance, including None if a row lacks the tag.
        order: grid -> position in the order of the rows.
        probed: all rows about activations.
        changed: all rows about changed activations.
        places: measure in one environment -> the measure, if `condensed` separated it by environment.
    """

    def __init__(self, rows_or_run: Store | Rows, source: str | None = None) -> None:
        if isinstance(rows_or_run, Store) and _total(rows_or_run, source) <= _MAX_CACHED_ROWS:
            rows_or_run = Rows.concatenate(rows_or_run.rows_of(source)) if source is not None else rows_or_run.rows()
        self._origin, self._source = rows_or_run, source
        self.places: dict[str, str] = {}
        self.measures: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.order: dict[str, int] = {}
        self._cache: dict[tuple[tuple[str, ...] | None, bool], Rows] = {}
        mixed_groups = dict[str, None]()
        tag_values: dict[str, dict[tuple[type, Tag], None]] = {}
        for name, rows in self._groups(names=_WITHOUT_EPISODES):
            behaviour = _behaviour(rows)
            if len(behaviour) < len(rows):
                mixed_groups[name] = None
            if len(behaviour):
                self._note(behaviour, tag_values)
        self.values = {
            name: values
            for name, values_of_tag in tag_values.items()
            if set(values := tuple(value for _, value in values_of_tag)) != {None}
        }
        other_rows = (
            Rows.concatenate(rows for name, rows in self._groups() if name in mixed_groups) if mixed_groups else _NONE
        )
        self.changed = other_rows.where(other_rows.known(_CHANGED))
        self.probed = other_rows.where(other_rows.known(_INSIDE) & ~other_rows.known(_CHANGED))

    def _groups(
        self, measures: Sequence[str] | None = None, names: Sequence[str] | None = None
    ) -> Iterator[tuple[str, Rows]]:
        if isinstance(self._origin, Store) and self._source is not None:
            yield from ((self._source, rows) for rows in self._origin.rows_of(self._source, measures, names=names))
        elif isinstance(self._origin, Store):
            yield from self._origin.row_groups(measures, names=names)
        else:
            yield "", self._origin if measures is None else self._origin.where(self._origin.among("measure", measures))

    def _note(self, rows: Rows, tag_values: dict[str, dict[tuple[type, Tag], None]]) -> None:
        codes, measures = rows.numbered("measure")
        units, names = rows.numbered("unit")
        _, first = np.unique(codes, return_index=True)
        before = sum(self.counts.values())
        for code, (measure, count) in enumerate(zip(measures, np.bincount(codes).tolist(), strict=True)):
            self.measures.setdefault(measure, names[units[first[code]]])
            self.counts[measure] = self.counts.get(measure, 0) + count
        for grid in rows.numbered("cluster")[1]:
            self.order.setdefault(grid, len(self.order))
        for name in {**dict.fromkeys(rows.tags), **tag_values}:
            # Rows before the first with this tag lack it.
            values_of_tag = tag_values.setdefault(name, {(type(None), None): None} if before else {})
            values_of_tag |= dict.fromkeys((type(value), value) for value in rows.numbered(name)[1])

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def noun(self) -> str:
        """Noun for the clusters of intervals: "map" for tasks, "grid" if worlds have a size, else "world"."""
        if "exploration error" in self.measures:
            return "map"
        return "grid" if set(self.values.get("size", ())) - {None} else "world"

    @property
    def goals(self) -> list[str]:
        """The names of the measures that are MEG towards a hypothesis."""
        return [goal_measure(str(name)) for name in self.values.get(TOWARDS, ()) if name is not None]

    @property
    def every_measure(self) -> list[str]:
        """The names of all measures, including those of activations and changed activations."""
        other_measures = (rows.numbered("measure")[1] for rows in (self.probed, self.changed))
        return list(dict.fromkeys([*self.measures, *chain.from_iterable(other_measures)]))

    def of(self, *measures: str, episodes: bool = True) -> Rows:
        """Return the rows of some measures, in order; without ``episodes`` they lack episode ids."""
        return self._read(measures, episodes)

    def every_of(self, *measures: str) -> Rows:
        """Return the rows of some measures, including those about activations and changed activations."""
        return Rows.concatenate(rows for _, rows in self._groups(measures))

    def all(self) -> Rows:
        """Return all rows, in order."""
        return self._read(None, True)

    def _read(self, measures: tuple[str, ...] | None, episodes: bool) -> Rows:
        key = measures, episodes
        if key not in self._cache:
            groups = self._groups(measures, None if episodes else _WITHOUT_EPISODES)
            rows_read = Rows.concatenate(_behaviour(rows) for _, rows in groups)
            if sum(map(len, self._cache.values())) + len(rows_read) > _MAX_CACHED_ROWS:
                self._cache.clear()
            self._cache[key] = rows_read
        return self._cache[key]

    def distinct(self, names: Sequence[str]) -> Rows:
        """Return the rows without repetitions: of all rows with the same grid and the same values of the named tags,
        the first.
        """
        groups = self._groups(names=_WITHOUT_EPISODES)
        parts = [distinct(_behaviour(rows), [*names, "cluster"]) for _, rows in groups]
        return distinct(Rows.concatenate(parts), [*names, "cluster"])

    def estimated(self, by: Sequence[str], measures: Collection[str] | None = None) -> list[Grouped]:
        """Return the estimates of measures (all by default), grouped by tags; see `goalscope.stats.estimate_rows`."""
        grids, estimates = clusters_of(self.distinct(by), by), list[Grouped]()
        for measure in self.measures if measures is None else [name for name in self.measures if name in measures]:
            for rows, counts in self.condensed(measure, by):
                options: dict[str, Any] = {"bounds": measure_bounds(), "counts": counts, "order": self.order}
                estimates += estimate_rows(rows, by=by, whole=None if self.scales(measure) else grids, **options)
        return estimates

    def condensed(self, measure: str, by: Collection[str] = ()) -> list[tuple[Rows, Counts]]:
        """Return the different rows of a measure, without episodes and steps, and how often each of them occurs.

        If the scale of the measure depends on the environment, the rows are separated into measures such as "return in
        Taxi-v4", unless they are grouped ``by`` the tags that identify the environment.
        """
        groups = self._groups([measure], names=_WITHOUT_EPISODES)
        parts = [_condensed(_behaviour(rows)) for _, rows in groups]
        rows, number = _condensed(Rows.concatenate(rows for rows, _ in parts), [count for _, count in parts])
        tags = [name for name in self.scales(measure) if name not in by and name in rows.tags]
        if not tags:
            return [(rows, number)]
        codes, separated = numbers_of(rows, tags), list[tuple[Rows, Counts]]()
        for code in np.unique(codes):
            part = rows.where(codes == code)
            name = named_in(measure, [part[tag][0] for tag in tags])
            self.places[name] = measure
            separated.append((part.changed(measure=constant(name, len(part))), number[codes == code]))
        return separated

    def scales(self, measure: str) -> tuple[str, ...]:
        """Return the tags of the environments across which a measure is never averaged, see `scale_tags`."""
        return scale_tags(self.measures.get(measure, ""), self.values)


def _total(store: Store, source: str | None) -> int:
    """Return an upper bound for the number of rows of a run."""
    sources = store.row_sources() if source is None else [source]
    return sum(sum(store.row_counts(name).values()) for name in sources)


def _behaviour(rows: Rows) -> Rows:
    return rows.where(~(rows.known(_CHANGED) | rows.known(_INSIDE)))


def _condensed(rows: Rows, counts: Iterable[Counts] = ()) -> tuple[Rows, Counts]:
    """Return the first of equal rows, and their number; ``counts`` are the numbers for the given rows."""
    count_parts = list(counts)
    count = np.concatenate(count_parts) if count_parts else np.ones(len(rows), dtype=np.int64)
    bits = np.unique(rows.value.view(np.int64), return_inverse=True)[1].reshape(-1)
    codes = numbers_of(rows, ["measure", "unit", "cluster", *rows.tags], bits)
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    total = np.bincount(which.reshape(-1), weights=count, minlength=len(first)).astype(np.int64)
    return rows.at(first[order]), total[order]


@dataclass(slots=True)
class AgentEpisodes:
    """Summary of the episodes of one agent for a report.

    Attributes:
        turns: cluster -> number of turns, and number of turns without a valid move.
        chosen: "first failure", "longest" and "first success", if there is one -> the episode.
    """

    turns: dict[str, tuple[int, int]] = field(default_factory=dict)
    chosen: dict[str, EpisodeHead] = field(default_factory=dict)

    def add(self, episode: EpisodeHead, cluster: str) -> None:
        """Add an episode; episodes must come in the order of their worlds' content ids and trajectories."""
        if episode.length:
            turns, failed = self.turns.get(cluster, (0, 0))
            self.turns[cluster] = turns + episode.length, failed + episode.failed
        self.chosen.setdefault("first success" if episode.outcome == "goal" else "first failure", episode)
        if episode.length > self.chosen.setdefault("longest", episode).length:
            self.chosen["longest"] = episode


def episodes_by_agent(store: Store) -> Mapping[str, AgentEpisodes]:
    """Return the summary of each agent's episodes, after verifying every episode by its checksum.

    Raises:
        ValueError: if an episode differs from what was written.
    """
    by_agent: dict[str, AgentEpisodes] = {}
    clusters = {world: cluster or world for world, _, _, cluster, _ in store.entries("world")}
    for episode in read_heads(store):
        if episode.world_id not in clusters:
            store.sums.refuse("the world of every episode")
        by_agent.setdefault(episode.agent, AgentEpisodes()).add(episode, clusters[episode.world_id])
    return by_agent
