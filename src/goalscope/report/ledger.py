"""What reports and people read from a run: episodes, steps, rows, estimates, and the ledger of all estimates.

`Run` gives them as plain records and as data frames. `RunData` is the input of a report. It reads only few rows at once
(if there are many, one measure at a time), so that memory does not grow with the number of measures, and each episode
only once.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from goalscope.measures.behaviour import BEHAVIOUR, measure_bounds
from goalscope.measures.comparison import ORIGINAL
from goalscope.measures.table import CONDITIONS
from goalscope.measures.transcript import TranscriptStep, agent_of, transcript
from goalscope.report.definitions import HEADLINE, KEY_POOLED, KEY_STEPWISE, MAPS, POOLED, named_in, scale_tags
from goalscope.runs.episode_columns import EpisodeHead, read_heads
from goalscope.runs.export import episode_record, step_records
from goalscope.runs.hashing import kept_content_hash
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.runs.study_parts import Analysis
from goalscope.stats import LESS, Estimate, Grouped, clusters_of, distinct, estimate_pooled, estimate_rows, numbers_of
from goalscope.stats.records import Records, html_table
from goalscope.stats.rows import Rows, Tag, constant

if TYPE_CHECKING:
    from goalscope.runs.study import Study

Counts = npt.NDArray[np.int64]
_INSIDE = "head"  # tag of rows about activations
_CHANGED = "intervention"  # tag of rows about changed activations
_MAX_CACHED_ROWS = 1 << 20  # rows
_NONE = Rows.from_rows([])
_WITHOUT_EPISODES = ("unit", "cluster")  # the texts to read
Key = Mapping[str, Tag]
"""Measure and tags of an estimate; ``less`` names the control that was subtracted. Missing tags are None."""
TABLES: Mapping[str, tuple[str, ...]] = {
    "agent": ("agent",),
    "agent, size": ("agent", "size"),
    "agent, density": ("agent", "density"),
    "agent, size, density": ("agent", "size", "density"),
    "agent, distance": ("agent", "distance"),
}
"""Table -> the tags by which its estimates are grouped, in addition to the conditions of the run."""
GROUPING_TAGS = tuple(dict.fromkeys((*(tag for tags in TABLES.values() for tag in tags), *CONDITIONS)))
"""Tags that distinguish the groups of the tables."""
_CURVE = "distance"
"""Tag of rows about one distance to the goal; measures with such rows appear only in tables by distance."""
STEPWISE = "action optimality"
_RATIOS = {STEPWISE: POOLED, KEY_STEPWISE: KEY_POOLED}
"""Measures with one row per step or action, and the pooled figures: ratios of sums, with intervals over grids."""
_FIELDS = ("unit", "value", "low", "high", "confidence", "n", "grids", "without", "undefined", "method", "note")


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory (the stored episodes of a study, with their results), for reading.

    Nothing stays open: each access opens the run and closes it.

    Attributes:
        path: the directory.
    """

    path: Path

    @property
    def study(self) -> "Study | None":
        """The study that produced the run; None for imported trajectories."""
        with Store(self.path) as store:
            return store.study()

    @property
    def agents(self) -> list[str]:
        """The short names of the agents of the run."""
        with Store(self.path) as store:
            return list(store.agent_names())

    def episodes(self) -> list[dict[str, Any]]:
        """Return one dictionary per episode: ids, agent, outcome, number of steps, and the tags of the episode and its
        world.

        Tags are named facts, such as the size of the grid.
        """
        with Store(self.path) as store:
            return [{**episode.world.tags, **episode.tags, **episode_record(episode)} for episode in store.episodes()]

    def steps(self, episode: str) -> list[dict[str, Any]]:
        """Return one dictionary per step of an episode: state, action, text, reasoning, tokens.

        Args:
            episode: id of the episode.

        Raises:
            KeyError: if the run has no such episode.
        """
        with Store(self.path) as store:
            (matching,) = store.episodes([episode])
        return step_records(matching)

    def transcripts(self) -> Iterator[tuple[Episode, Iterator[TranscriptStep]]]:
        """Yield each episode of the run with its replayed steps: observation, prompt, answer, and whether the move was
        optimal.

        If an agent cannot be built on this machine, for instance because its model is elsewhere, its steps have no
        prompts.
        """
        agents = dict[str, Any]()
        with Store(self.path) as store:
            study = store.study()
            for episode in store.episodes():
                if (identity := episode.spec.agent_id) not in agents:
                    try:
                        agents[identity] = agent_of(study, identity)
                    except ImportError:
                        agents[identity] = None
                yield episode, transcript(episode, agents[identity])

    def rows(self, **equal: str | int | float | bool | None) -> Rows:
        """Return the rows of results of the run; each row is one value of one measure in one episode or grid.

        Args:
            equal: select rows by values of ``measure``, ``cluster`` (the grid) or tags, e.g. ``agent="optimal"``.

        Raises:
            KeyError: if no row has such a name.
        """
        with Store(self.path) as store:
            rows = store.rows()
        return rows.select(**equal) if equal else rows

    def estimates(self, by: Sequence[str] = ("agent",), measures: Collection[str] | None = None) -> "RunEstimates":
        """Return the mean of each measure of the run, with its interval over grids.

        Args:
            by: tags to group by, such as "agent" or "size".
            measures: measures to return; None for all.
        """
        with Store(self.path) as store:
            return RunEstimates(MeasuredRows(store, BEHAVIOUR).estimated(by, measures))

    def _repr_html_(self) -> str:
        with Store(self.path) as store:
            [(count,)] = store.query("SELECT COUNT(*) FROM episodes")
        return html_table(("run", "agents", "episodes"), [(self.path, ", ".join(self.agents), count)])


@dataclass(frozen=True, slots=True)
class RunEstimates(Records):
    """Estimates of measures for groups of rows (such as one per agent), each with its interval over grids.

    Attributes:
        groups: each group with its estimate.
    """

    groups: Sequence[Grouped]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The estimates as a list of dictionaries, one per group: measure, tags, value, interval, unit, counts, method,
        note.
        """
        fields = ("value", "low", "high", "confidence", "unit", "n", "clusters", "method", "note")
        return [{**group.key, **{name: getattr(group.estimate, name) for name in fields}} for group in self.groups]

    def _repr_html_(self) -> str:
        keys = list(self.groups[0].key) if self.groups else []
        rows = [
            (*group.key.values(), str(group.estimate), group.estimate.unit, group.estimate.clusters)
            for group in self.groups
        ]
        return html_table((*keys, "estimate", "unit", "grids"), rows)


class MeasuredRows:
    """The rows of results of a run (each is one value of one measure): those about behaviour, and those about
    activations.

    Args:
        rows_or_run: the run, or rows.
        source: name under which the rows to read are stored, such as "plans"; all by default.

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
        """What the clusters of intervals are called: "map" for tasks, "grid" if worlds have a size, else "world"."""
        if "exploration error" in self.measures:
            return "map"
        return "grid" if set(self.values.get("size", ())) - {None} else "world"

    @property
    def goals(self) -> list[str]:
        """The names of the measures of goal-directedness (MEG) towards a hypothesis (a possible goal)."""
        from goalscope.goals.directedness import TOWARDS, goal_measure  # it takes a tenth of a second

        return [goal_measure(str(name)) for name in self.values.get(TOWARDS, ()) if name is not None]

    @property
    def every_measure(self) -> list[str]:
        """The names of all measures of the run, including those of probes and of experiments that changed
        activations.
        """
        other_measures = (rows.numbered("measure")[1] for rows in (self.probed, self.changed))
        return list(dict.fromkeys([*self.measures, *chain.from_iterable(other_measures)]))

    def of(self, *measures: str, episodes: bool = True) -> Rows:
        """Return the rows about behaviour of some measures, in order; without ``episodes`` they lack episode ids, to
        save memory.
        """
        return self._read(measures, episodes)

    def every_of(self, *measures: str) -> Rows:
        """Return all rows of some measures, including those of probes and of experiments that changed activations."""
        return Rows.concatenate(rows for _, rows in self._groups(measures))

    def all(self) -> Rows:
        """Return all rows about behaviour, in order."""
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
        """Return the rows about behaviour without repetitions, one per grid and combination of values of some tags.

        This tells which grids belong to each group of results.

        Args:
            names: the tags.
        """
        groups = self._groups(names=_WITHOUT_EPISODES)
        parts = [distinct(_behaviour(rows), [*names, "cluster"]) for _, rows in groups]
        return distinct(Rows.concatenate(parts), [*names, "cluster"])

    def estimated(self, by: Sequence[str], measures: Collection[str] | None = None) -> list[Grouped]:
        """Estimate measures of behaviour (all by default), grouped by tags; see `goalscope.stats.estimate_rows`."""
        grids, estimates = clusters_of(self.distinct(by), by), list[Grouped]()
        for measure in self.measures if measures is None else [name for name in self.measures if name in measures]:
            for rows, counts in self.condensed(measure, by):
                options: dict[str, Any] = {"bounds": measure_bounds(), "counts": counts, "order": self.order}
                estimates += estimate_rows(rows, by=by, whole=None if self.scales(measure) else grids, **options)
        return estimates

    def condensed(self, measure: str, by: Collection[str] = ()) -> list[tuple[Rows, Counts]]:
        """Return the distinct rows of a measure, without episodes and steps, and how often each of them occurs.

        Equal rows are counted instead of kept, to save memory. If the scale of the measure depends on the environment,
        the rows are separated into measures such as "return in Taxi-v4", unless they are grouped ``by`` the tags that
        identify the environment.
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
        """Return the tags across whose values a measure is never averaged, because its scale depends on the
        environment.

        There are none for a measure with a common scale; see `scale_tags`.
        """
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
    """Summary of the episodes of one agent for a report: how many turns failed, and which episodes to show.

    Attributes:
        turns: cluster (grid) -> number of turns, and number of turns without a valid move.
        chosen: "first failure", "longest" and "first success", if there is one -> the episode.
    """

    turns: dict[str, tuple[int, int]] = field(default_factory=dict)
    chosen: dict[str, EpisodeHead] = field(default_factory=dict)

    def add(self, episode: EpisodeHead, cluster: str) -> None:
        """Add an episode in a world of the given cluster (grid).

        Episodes must come in the order of their worlds' content ids and trajectories.
        """
        if episode.length:
            turns, failed = self.turns.get(cluster, (0, 0))
            self.turns[cluster] = turns + episode.length, failed + episode.failed
        self.chosen.setdefault("first success" if episode.outcome == "goal" else "first failure", episode)
        if episode.length > self.chosen.setdefault("longest", episode).length:
            self.chosen["longest"] = episode


def episodes_by_agent(store: Store) -> Mapping[str, AgentEpisodes]:
    """Return a summary of each agent's episodes, by the agent's name, after verifying every episode by its checksum.

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


class Estimates:
    """A collection of estimates that can be looked up by measure and tags; ``listed`` has them in order, with their
    keys.

    The key of an estimate is the mapping of "measure" and of its tags (such as the agent) to their values.
    """

    def __init__(self, listed: Iterable[Grouped] = ()) -> None:
        self.listed = tuple(listed)
        self._found = {_identity(grouped.key): grouped.estimate for grouped in self.listed}

    def __len__(self) -> int:
        return len(self.listed)

    def __iter__(self) -> Iterator[Grouped]:
        return iter(self.listed)

    def get(self, *keys: Key, **tags: Tag) -> Estimate | None:
        """Return the estimate of a measure with some tags; None if there is none.

        Args:
            keys: mappings of "measure" and tags to values, which are combined; later ones take precedence.
            tags: further tags.
        """
        return self._found.get(_identity({name: value for key in (*keys, tags) for name, value in key.items()}))

    def keys(self, *names: str, **conditions: Tag) -> list[dict[str, Tag]]:
        """Return the combinations of values that some tags have among the estimates, in order of appearance.

        Args:
            names: the tags, such as "size".
            conditions: values of other tags that the estimates must have.
        """
        combinations = dict.fromkeys(tuple(map(grouped.key.get, names)) for grouped in self._under(conditions))
        return [dict(zip(names, values, strict=True)) for values in combinations]

    def values(self, name: str, **conditions: Tag) -> list[Tag]:
        """Return the distinct values of a tag among the estimates: numbers in ascending order, then texts.

        ``conditions`` are values of other tags that the estimates must have.
        """
        return sorted(
            (value for key in self.keys(name, **conditions) if (value := key[name]) is not None),
            key=lambda value: (0, value, "") if isinstance(value, int | float) else (1, 0.0, value),
        )

    def only(self, **conditions: Tag) -> "Estimates":
        """Return the estimates whose tags have the given values, e.g. ``agent="optimal"``."""
        return Estimates(self._under(conditions))

    def _under(self, conditions: Key) -> Iterator[Grouped]:
        for grouped in self.listed:
            if all(grouped.key.get(tag) == value for tag, value in conditions.items()):
                yield grouped

    def along(self, axis: str, key: Key, places: Mapping[Any, float] | None = None) -> dict[float, Estimate]:
        """Return the estimates along an axis: position (the value of a tag, as a number) -> estimate, ascending.

        Args:
            axis: the tag, such as "size".
            key: what else the estimates have in common.
            places: value of the tag -> position; by default numbers are their own positions, and other values are left
                out.
        """
        points: dict[float, Estimate] = {}
        for value in dict.fromkeys(grouped.key.get(axis) for grouped in self.listed):
            position = number_of(value) if places is None else places.get(value)
            if position is not None and (estimate := self.get(key, {axis: value})) is not None:
                points[position] = estimate
        return dict(sorted(points.items()))


def estimates_by(rows: Rows, *by: str, counts: Counts | None = None) -> Estimates:
    """Estimate the measures in rows about behaviour, grouped by tags.

    ``counts`` says how often each row occurs, if equal rows were merged (see `MeasuredRows.condensed`).
    """
    return Estimates(estimate_rows(rows, by=by, bounds=measure_bounds(), counts=counts))


def describe_key(key: Key) -> str:
    """Describe conditions of worlds, such as their kind, in words: ``key-no-door worlds, matched control, rotate``.

    ``key`` maps the names of tags to their values.
    """
    parts = []
    for name, value in key.items():
        phrases = {"kind": f"{value} worlds", "control": "matched control without key", "names": f"{value} names"}
        if value is not None and value is not False:
            parts.append(phrases.get(name, f"{name.replace('_', ' ')} {value}"))
    return ", ".join(parts)


def number_of(value: Tag) -> float | None:
    """Return the value of a tag (a size, layer or density) as a number, or None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _identity(key: Key) -> frozenset[tuple[str, Tag]]:
    tags = {name: value for name, value in key.items() if value is not None}
    if control := tags.pop("less", None):
        tags["measure"] = f"{tags['measure']}{LESS}{control}"
    return frozenset(tags.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All estimates of a run's behaviour, in tables by agent, by agent and size, and so on (see `TABLES`).

    Each estimate has a key: "measure", the tags of its table, and the conditions that vary in the run, such as the kind
    of world.
    """

    tables: Mapping[str, Estimates]  # table -> its estimates, in order
    conditions: tuple[str, ...]  # those of `CONDITIONS` that vary in this run
    agents: tuple[str, ...]  # names in order of appearance
    measures: Mapping[str, str]  # measure -> unit, in order of appearance
    noun: str = "grid"  # noun for the clusters over which intervals are computed

    def find(self, table: str, measure: str, **key: Tag) -> Estimate | None:
        """Return the estimate of a measure in a group; None if the run has no rows for it.

        Args:
            table: name of the table, one of `TABLES`.
            measure: name of the measure.
            key: value of each tag of the table; conditions that are not named must be absent.
        """
        return self.tables[table].get(measure=measure, **key)

    def groups(self, table: str) -> list[dict[str, Tag]]:
        """Return the combinations of conditions (such as the kind of world) in a table, in order; ``[{}]`` if none
        varies.
        """
        return self.tables[table].keys(*self.conditions)

    def only(self, condition: str, value: Tag) -> "Ledger":
        """Return a copy with only the estimates for one value of a condition, such as a kind of world.

        If the condition does not vary in the run, all estimates are kept.
        """
        if condition not in self.conditions:
            return self
        return replace(self, tables={name: table.only(**{condition: value}) for name, table in self.tables.items()})

    def to_json(self, **metadata: Any) -> str:
        """Return all numbers as JSON, undefined ones as null; equal numbers give equal text.

        Each table is {"columns": names, "rows": one list per estimate}, ready for a data frame.

        Args:
            metadata: metadata of the tables (name of the study, content hash, ...).
        """
        tables = {}
        for name, table in self.tables.items():
            tags = list(dict.fromkeys(tag for grouped in table for tag in grouped.key if tag != "measure"))
            rows = []
            for grouped in table:
                rows.append([grouped.key["measure"], *map(grouped.key.get, tags), *recorded(grouped.estimate).values()])
            tables[name] = {"columns": ["measure", *tags, *_FIELDS], "rows": rows}
        value = {**metadata, "tables": tables}
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)


def build_ledger(rows: Rows | MeasuredRows, *, agents: Sequence[str] = ()) -> Ledger:
    """Estimate every measure of a run in every table: by agent, by agent and size, and so on (see `TABLES`).

    Args:
        rows: the rows of results of the run.
        agents: names of agents in the order in which to list them; others follow alphabetically.

    Raises:
        ValueError: if there are no rows, or rows without an agent.
    """
    measured = rows if isinstance(rows, MeasuredRows) else MeasuredRows(rows)
    if not len(measured):
        raise ValueError("a ledger needs rows, got none: measure the run first (goalscope measure RUN)")
    present = {str(name) for name in measured.values.get("agent", ()) if name is not None}
    if not present or None in measured.values["agent"]:
        raise ValueError("each row must name its agent in the tag 'agent', got rows without that tag")
    order = [name for name in agents if name in present]
    order += sorted(present - set(order))
    conditions = tuple(name for name in CONDITIONS if len(measured.values.get(name, ())) > 1)
    # The grids of a group are counted once for all measures.
    all_groups = measured.distinct(GROUPING_TAGS)
    grids = {name: clusters_of(all_groups, (*tags, *conditions)) for name, tags in TABLES.items()}
    tables: dict[str, list[Grouped]] = {name: [] for name in TABLES}
    pooled, bounds = list[Grouped](), measure_bounds()
    for measure in measured.measures:
        for of_measure, counts in measured.condensed(measure, conditions):
            curve = bool(of_measure.known(_CURVE).any())
            for name, tags in TABLES.items():
                if curve is (_CURVE in tags) and (
                    not {"size", "density"} <= set(tags) or measure in (*HEADLINE, *MAPS)
                ):
                    # Tables by size and density need worlds with both; the finest table has only the main measures.
                    needed = {*tags, "density"} if "size" in tags else set(tags)
                    has_tags = np.logical_and.reduce([of_measure.known(tag) for tag in sorted(needed)])
                    tables[name] += estimate_rows(
                        of_measure.where(has_tags),
                        by=(*tags, *conditions),
                        whole=None if measured.scales(measure) else grids[name],
                        bounds=bounds,
                        counts=counts[has_tags],
                        order=measured.order,
                    )
            if measure in _RATIOS:
                pooled += _pooled(of_measure, counts, grids["agent"], _RATIOS[measure], conditions)
    tables["agent"] += sorted(pooled, key=lambda grouped: list(_RATIOS.values()).index(str(grouped.key["measure"])))
    # One order for all tables: by measure, then by agent as requested, then as in the rows.
    measures = {str(grouped.key["measure"]): grouped.estimate.unit for table in tables.values() for grouped in table}
    measure_rank, agent_rank = ({name: at for at, name in enumerate(names)} for names in (measures, order))

    def rank(grouped: Grouped) -> tuple[int, int]:
        return measure_rank[str(grouped.key["measure"])], agent_rank[str(grouped.key["agent"])]

    ordered = {name: Estimates(sorted(table, key=rank)) for name, table in tables.items()}
    return Ledger(tables=ordered, conditions=conditions, agents=tuple(order), measures=measures, noun=measured.noun)


def _pooled(
    rows: Rows, counts: Counts, grids: Mapping[tuple[Tag, ...], int], name: str, conditions: Sequence[str]
) -> Iterator[Grouped]:
    """Yield the share over all steps of each agent and condition: a ratio of sums, with an interval over grids."""
    tags = ("agent", *conditions)
    codes, members = rows.numbered("cluster")[0], dict[tuple[Tag, ...], list[int]]()
    for index, values in enumerate(zip(*(tag_of(rows, tag) for tag in tags), strict=True)):
        members.setdefault(values, []).append(index)
    for values, indices in members.items():
        repeated = np.repeat(indices, counts[indices])
        estimate = estimate_pooled(
            rows.value[repeated], np.ones(len(repeated)), codes[repeated], unit="share", bounds=(0.0, 1.0)
        )
        key = {"measure": name, **dict(zip(tags, values, strict=True))}
        yield Grouped(key=key, estimate=replace(estimate, without=grids[values] - estimate.clusters))


def tag_of(rows: Rows, name: str) -> list[Tag]:
    """Return the value of a tag for each row of results; None for every row if none has the tag."""
    return rows.tags[name].tolist() if name in rows.tags else [None] * len(rows)


def recorded(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as a dictionary that JSON can hold: unit, value, interval, counts, method and note.

    Undefined numbers are None.
    """
    numbers = map(json_number, (estimate.value, estimate.low, estimate.high))
    counts = (estimate.confidence, estimate.n, estimate.clusters, estimate.without, estimate.undefined)
    return dict(zip(_FIELDS, (estimate.unit, *numbers, *counts, estimate.method, estimate.note), strict=True))


def json_number(value: float) -> float | None:
    """Round a number to seven digits for JSON; None if it is not finite."""
    # Seven digits exceed the precision of these numbers, and hide the last bits, which differ between machines.
    return float(f"{value:.7g}") if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGroups:
    """The agents of a run, divided into the language models and all others, in the order of the run's tables."""

    models: tuple[str, ...]  # the language models
    scripted: tuple[str, ...]  # all others, including agents with planted goals
    history: Mapping[str, str]  # agent -> its view of earlier steps, in words

    @property
    def subjects(self) -> tuple[str, ...]:
        """The agents that the study is about: the language models or, without any, the first agent."""
        return self.models or self.scripted[:1]

    @property
    def others(self) -> tuple[str, ...]:
        """The agents for comparison: all that are not subjects of the study."""
        return tuple(agent for agent in self.scripted if agent not in self.subjects)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """A measured run, with everything that the sections of a report read: rows of results, estimates, agents and
    study.
    """

    store: Store = field(repr=False)
    measured: MeasuredRows = field(repr=False)  # rows about behaviour, one measure at a time
    ledger: Ledger = field(repr=False)  # the estimates of behaviour
    groups: AgentGroups
    episodes: Mapping[str, AgentEpisodes] = field(repr=False)  # by agent
    study: Study | None  # None for an import
    digest: str  # content hash of the run

    @classmethod
    def of(cls, store: Store) -> "RunData":
        """Read a measured run, and estimate its measures for a report.

        Raises:
            ValueError: if the run has no rows of results.
        """
        measured, study = MeasuredRows(store), store.study()
        ledger = build_ledger(measured, agents=store.agent_names() if study else ())
        agent_settings, shared = dict(store.agents().values()), "none" if study is None else study.history
        models = tuple(name for name in ledger.agents if agent_settings.get(name, {}).get("kind") == "chat")
        groups = AgentGroups(
            models=models,
            scripted=tuple(name for name in ledger.agents if name not in models),
            history={name: str(agent_settings.get(name, {}).get("history", shared)) for name in ledger.agents},
        )
        return cls(
            store=store,
            measured=measured,
            ledger=ledger,
            groups=groups,
            episodes=episodes_by_agent(store),
            study=study,
            digest=kept_content_hash(store),
        )

    @property
    def rows(self) -> Rows:
        """All rows of results about behaviour. `rows_of` reads only some measures, which takes less memory."""
        return self.measured.all()

    def rows_of(self, *measures: str, episodes: bool = True) -> Rows:
        """Return the rows of results of some measures; without ``episodes`` they lack episode ids, which takes less
        memory.
        """
        return self.measured.of(*measures, episodes=episodes)

    @property
    def analysis(self) -> Analysis:
        """The settings under ``analysis:`` of the run's study; the defaults if it has none."""
        return self.study.analysis if self.study and self.study.analysis else Analysis()

    @property
    def worlds(self) -> str:
        """The kind of worlds in the run: "tasks" for task worlds, "grids" for all others."""
        return "tasks" if "exploration error" in self.measured.measures else "grids"

    @property
    def originals(self) -> Ledger:
        """The estimates that figures show: only those of original grids, if transformed grids have a section of their
        own.
        """
        return self.ledger.only("transform", ORIGINAL) if self.analysis.invariance else self.ledger

    def settings(self) -> list[tuple[dict[str, Tag], dict[str, Tag]]]:
        """Return the groups of conditions (such as the kind of world) in which the run's agents were measured.

        Each is a pair: the conditions that vary in the run, as `Ledger.groups` names them, and the same together with
        those that do not vary.
        """
        constant: dict[str, Tag] = {}
        for name in CONDITIONS:
            if name not in self.ledger.conditions:
                values = self.measured.values.get(name, (None,))
                constant[name] = values[0] if len(values) == 1 else None
        return [(group, {**constant, **group}) for group in self.ledger.groups("agent")]


def split_probing(rows: Rows) -> tuple[Rows, Rows]:
    """Split rows of results into those about behaviour and those about activations.

    Only the latter have the tag "head", the form of a probe.
    """
    probed = rows.known("head")
    return rows.where(~probed), rows.where(probed)
