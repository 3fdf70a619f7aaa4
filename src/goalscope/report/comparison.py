"""Comparisons of agents, runs, values of a tag, or checkpoints of a training: which rows are compared, and the results
as tables and records.

The position of a checkpoint on its curve is always a given number (a tag of its episodes, or one number per run), never
parsed from a name.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, groupby, product
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from goalscope._ground.checks import did_you_mean
from goalscope._ground.words import counted, short
from goalscope.measures.behaviour import COMPARED, measure_bounds
from goalscope.measures.comparison import Compared, Pair, SideRows, check_family, compare, shared_worlds, worlds_of
from goalscope.measures.table import PROVENANCE
from goalscope.report.blocks import (
    SHARE,
    Figure,
    Footnotes,
    Table,
    TextColumns,
    number,
    plain_table,
    value_columns,
    value_text,
)
from goalscope.report.charts import Lines, Series
from goalscope.report.definitions import PAIRED, scale_tags, title_of
from goalscope.report.ledger import MeasuredRows, describe_key, json_number, number_of, recorded
from goalscope.report.texts import TEXTS, labels
from goalscope.runs import Store
from goalscope.runs.episode_columns import read_heads
from goalscope.stats import DRAW, Estimate, estimate_rows, numbers_of
from goalscope.stats.estimate import PARTS, natural_order
from goalscope.stats.records import Records
from goalscope.stats.rows import Rows, Tag

_TRANSFORM_TITLES: Final = labels("labels/transforms")
_OF_TRANSFORMS: Final = ("agent", "transform")
"""Tags of a transform that have a column or table of their own; its other tags are conditions."""
_REPEATS = frozenset({DRAW, "pair", "probe", "agent", *PARTS, *PROVENANCE})
"""Tags of single rows of a grid, over which rows are averaged: draws of a control, pairs, steps. Not conditions."""


def family_table(
    pairs: Sequence[Pair],
    caption: str,
    measures: Sequence[str] = COMPARED,
    *,
    name: str = "pairs",
    clusters: str = "grids",
) -> tuple[list[Compared], Table]:
    """Compare pairs of agents (or of conditions) as one family of tests, and return the comparisons with their table.

    Args:
        pairs: the two sides of each comparison, with their rows of results.
        caption: caption of the table, in which TESTS is replaced by the number of tests.
        measures: the measures to compare.
        name: name of the family of tests, within which p values are corrected by Holm's method.
        clusters: heading of the column that counts grids.
    """
    tests = compare(pairs, measures, name=name)
    caption = caption.replace("TESTS", counted(len(tests), "test"))
    return tests, comparison_table(tests, caption=caption, clusters=clusters)


def comparison_table(comparisons: Sequence[Compared], *, caption: str = "", clusters: str = "grids") -> Table:
    """Return comparisons as a table with one line each; n counts the values of both sides on the grids that they share.

    Methods and notes are below the table, with letters in its last column. Equivalence margins are shown for transforms
    of grids, and if equivalence was tested. ``clusters`` is the heading of the column that counts grids.
    """
    footnotes = Footnotes()
    margins = _of_transforms(comparisons) or any(comparison.equivalence for comparison in comparisons)
    names, (difference_title, effect_title, equal_title) = _named(comparisons)

    def notes(comparison: Compared) -> str:
        difference = comparison.paired.difference
        by = difference.method if difference.has_interval else "no interval"
        method = f"method: {by}" if comparison.paired.labels else "method: no interval, no test"
        return footnotes.mark(method, *(note.replace("grids", clusters) for note in comparison.notes))

    def effect(comparison: Compared) -> str:
        value = comparison.paired.test.effect
        return "undefined" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")

    of_margins: TextColumns[Compared] = [
        ("margin", lambda comparison: f"{comparison.equivalence.margin:g}" if comparison.equivalence else "–"),
        (equal_title, _equal_p),
    ]
    columns: TextColumns[Compared] = [
        *names,
        *([("reading", lambda comparison: comparison.verdict)] if margins else []),
        *value_columns(attrgetter("paired.difference"), difference_title),
        ("n", lambda comparison: str(sum(comparison.paired.counts))),
        (clusters, lambda comparison: str(len(comparison.paired.labels))),
        (effect_title, effect),
        ("p / Holm", lambda comparison: f"{p_text(comparison.test.p_value)} / {p_text(comparison.test.adjusted)}"),
        *(of_margins if margins else []),
        ("notes", notes),
    ]
    numbers = range(len(names) + margins, len(columns))
    return plain_table(comparisons, columns, numbers, caption=caption, footnotes=footnotes)


def _equal_p(comparison: Compared) -> str:
    if comparison.shown is None:
        return "–"
    return p_text(math.nan if math.isnan(comparison.shown.p_value) else comparison.shown.adjusted)


def grids_table(comparisons: Sequence[Compared], *, caption: str = "") -> Table:
    """Return a table of how much single grids differ, as a root mean square difference, with one comparison per line.

    The differences are those between transformed grids and their originals.

    Raises:
        ValueError: if single grids were not compared.
    """
    footnotes = Footnotes()

    def cells(comparison: Compared) -> tuple[str, ...]:
        single, unit = comparison.sensitivity, comparison.paired.difference.unit
        if single is None or comparison.exchange is None:
            raise ValueError(f"the single grids of {comparison.first} were not compared")
        low, high = (short(end, unit) for end in (single.low, single.high))
        method = f"root of a mean over grids ({single.square.method}); {single.method}"
        method = method if single.square.clusters else "no interval, no test"
        return (
            *(text(comparison) for _, text in names),
            short(single.value, unit),
            "undefined" if math.isnan(single.low) else f"[{low}, {high}]",
            str(sum(single.counts)),
            str(single.square.clusters),
            f"{p_text(single.p_value)} / {p_text(comparison.exchange.adjusted)}",
            footnotes.mark(f"method: {method}", single.note, comparison.exchange.note),
        )

    names, _ = _named(comparisons)
    headings = (*(title for title, _ in names), "root mean square difference", "95 % interval", "n", "grids")
    return Table(
        caption=caption,
        headings=(*headings, "p / Holm", "notes"),
        rows=tuple(map(cells, comparisons)),
        numbers=tuple(range(2, len(headings) + 2)),
        notes=footnotes.lines,
    )


def _named(comparisons: Sequence[Compared]) -> tuple[TextColumns[Compared], tuple[str, str, str]]:
    """Return the columns that name the comparisons, and the headings for difference, effect and equivalence."""
    measure = ("metric" if _of_transforms(comparisons) else "measure", lambda comparison: title_of(comparison.measure))
    if _of_transforms(comparisons):
        return [measure, ("transformation", transform_of)], ("difference", "effect size", "TOST p (Holm)")
    sides: TextColumns[Compared] = [
        measure,
        ("first", lambda comparison: comparison.first),
        ("second", lambda comparison: comparison.second),
        *((name, partial(_tag, name)) for name in varying_tags(comparisons)),
    ]
    return sides, ("first − second", "signed effect", "equivalence p (Holm)")


def _of_transforms(comparisons: Sequence[Compared]) -> bool:
    return any(comparison.sensitivity is not None for comparison in comparisons)


def transform_of(comparison: Compared) -> str:
    """Name the transform (e.g. a rotation of grids) that a comparison is about, and the conditions of its worlds."""
    conditions = describe_key({name: value for name, value in comparison.tags.items() if name not in _OF_TRANSFORMS})
    name = str(comparison.tags["transform"])
    title = _TRANSFORM_TITLES.get(name, name)
    return f"{title}, {conditions}" if conditions else title


def varying_tags(comparisons: Sequence[Compared]) -> list[str]:
    """Return the names of the tags in which comparisons differ, such as "size", in order of appearance."""
    names = dict.fromkeys(name for comparison in comparisons for name in comparison.tags)
    return [name for name in names if len({comparison.tags.get(name) for comparison in comparisons}) > 1]


def _tag(name: str, comparison: Compared) -> str:
    value = comparison.tags.get(name)
    return "" if value is None else number(value)


def p_text(value: float) -> str:
    """Format a p value with two digits, small ones as ``< 0.0001``."""
    if math.isnan(value):
        return "undefined"
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def comparison_records(comparisons: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return comparisons as dictionaries that JSON can hold, with names, difference, interval, tests and notes.

    Undefined numbers are None.
    """
    return [_record(comparison) for comparison in comparisons]


def _record(comparison: Compared) -> dict[str, Any]:
    difference, test = comparison.paired.difference, comparison.paired.test
    single, exchange, equivalence = comparison.sensitivity, comparison.exchange, comparison.equivalence
    if single is None:
        names = {"measure": comparison.measure, "first": comparison.first, "second": comparison.second}
        record = {**names, **{f"tag {name}": value for name, value in comparison.tags.items()}}
    else:
        record = {"agent": comparison.tags["agent"], "measure": comparison.measure, **comparison.tags}
    record |= {
        "unit": difference.unit,
        "difference": json_number(difference.value),
        "low": json_number(difference.low),
        "high": json_number(difference.high),
        "confidence": difference.confidence,
        "n": sum(comparison.paired.counts),
        "grids": difference.clusters,
        "method": difference.method,
        "effect": json_number(test.effect),
        "nonzero": test.nonzero,
        "p": json_number(comparison.test.p_value),
        "p_holm": json_number(comparison.test.adjusted),
        "test": "interval of the mean difference",
        "p_signed_rank": json_number(test.p_value),
        "signed_rank_method": test.method,
        "margin": None if equivalence is None else equivalence.margin,
        "p_equivalence": None if equivalence is None else json_number(equivalence.p_value),
        "p_equivalence_holm": None if comparison.shown is None else json_number(comparison.shown.adjusted),
        "reading": comparison.verdict,
        "unpaired": len(comparison.paired.unpaired_a) + len(comparison.paired.unpaired_b),
        "undefined": comparison.paired.undefined,
    }
    if single is not None and exchange is not None:  # over single grids
        record |= {
            "root_mean_square": json_number(single.value),
            "root_mean_square_low": json_number(single.low),
            "root_mean_square_high": json_number(single.high),
            "root_mean_square_n": sum(single.counts),
            "root_mean_square_grids": single.square.clusters,
            "p_exchange": json_number(single.p_value),
            "p_exchange_holm": json_number(exchange.adjusted),
            "exchange_method": single.method,
            "exchange_note": single.note,
        }
    return {**record, "note": "; ".join(comparison.notes)}


def as_json(records: Sequence[Mapping[str, Any]], **metadata: Any) -> str:
    """Return comparisons (as `comparison_records` gives them) and metadata as JSON text; equal numbers give equal
    text.
    """
    value = {**metadata, "comparisons": list(records)}
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """What `compare_runs` and `curve_of` compare: measures, agents and rows, and how.

    The main fields are `measures` and `agents` (None or empty for the default), `margin` (equivalence margin by
    measure), `where` (values of tags that select rows), `between` (a tag whose values are compared, instead of agents)
    and `transforms` (each agent is compared with itself on transformed grids).
    """

    measures: Sequence[str] | None = None  # of the family; None for those with margins, else the default
    agents: Sequence[str] = ()  # the agents to compare, all if empty
    margin: Mapping[str, float] = field(default_factory=dict)  # equivalence margin of each measure that has one
    horizons: bool = False  # whether to compare episodes with different horizons, too
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)  # tag -> values; rows with other ones stay out
    between: str = ""  # a tag whose values are the sides, for each agent of one run; "" to compare agents
    transforms: bool = False  # each agent of one run is compared with itself on the transformed grids

    def family(self, default: Sequence[str]) -> list[str]:
        """Return the measures to compare: those named, otherwise those with margins, otherwise the defaults.

        They form one family of tests, whose p values are corrected together.

        Raises:
            ValueError: there is no measure, a measure occurs twice, or a margin is given for a measure outside the
                family.
        """
        names = list(self.measures if self.measures is not None else self.margin or default)
        check_family(names, self.margin)
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Comparisons of agents in the worlds that both played; they are corrected together, as one family.

    Attributes:
        pairs: the comparisons, one for each pair of agents and each measure.
        measures: names of the measures in the family.
        without: one sentence for each pair of agents that have no world in common and were not compared.
        alone: a sentence on the agents that have no partner, and how to compare them; "" if there are none.
        notes: caveats for the reader.
    """

    pairs: Sequence[Compared]
    measures: Sequence[str]
    without: Sequence[str] = ()
    alone: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ComparedAgent:
    """An agent of a run, as one side of a comparison: its name, its run, and its rows of results."""

    name: str
    run: Path
    side: SideRows
    episodes: SideRows  # the same with the rows of all measures, without those of groups of episodes


_Pair = tuple[ComparedAgent, ComparedAgent]


def compare_runs(
    runs: Sequence[tuple[Path, MeasuredRows]], settings: ComparisonSettings, *, together: Sequence[int] | None = None
) -> RunComparison:
    """Compare the agents of several runs, or of one run, in the worlds that both played.

    Default measures are success and action accuracy; for task worlds, success, the exploration and the exploitation
    error, and steps of successful episodes.

    Args:
        runs: the run directories, each with its rows of results.
        settings: what to compare.
        together: a number per run; runs with the same number count as one run. By default, each run counts separately.

    Raises:
        ValueError: if measures or agents are unknown, runs share no worlds or have different horizons there, or there
            is nothing to compare.
    """
    tasks = [path for path, rows in runs if "exploration error" in rows.measures]
    if tasks and len(tasks) < len(runs):
        grids = ", ".join(str(path) for path, _ in runs if path not in tasks)
        raise ValueError(TEXTS("comparing/two kinds", tasks=", ".join(map(str, tasks)), grids=grids))
    measures = settings.family(PAIRED if tasks else COMPARED)
    numbered = zip(together or range(len(runs)), compared_agents(runs, measures, settings), strict=True)
    agents = [
        list(chain.from_iterable(members for _, members in group))
        for _, group in groupby(numbered, lambda member: member[0])
    ]
    all_agents = list(chain.from_iterable(agents))
    kept_separate = kept_apart(all_agents, measures, runs, settings.between)
    if settings.between:
        agents = [_sides_of(agent, settings.between, len(runs)) for agent in all_agents]
        pairs = [pair for sides in agents for pair in combinations(sides, 2)]
    else:
        pairs = _pairs(agents)
    if not pairs:
        raise ValueError(TEXTS(f"comparing/{'one agent' if len(runs) == 1 else 'no agent'}"))
    shared = list[Pair]()
    for first_agent, second_agent in pairs:
        sides: Pair = shared_worlds(first_agent.side, second_agent.side, between=settings.between)
        if settings.between and not len(sides[0].rows):
            # Values such as phases or sizes use their own grids if no grid has both.
            sides = [replace(agent.side, elsewhere=True) for agent in (first_agent, second_agent)]
        shared.append(sides)
    without = [f"{first.name} and {second.name}" for first, second in shared if not len(first.rows)]
    if len(without) == len(shared):
        raise ValueError(TEXTS("comparing/no common world", pairs="; ".join(without[:5])))
    alone, notes = _uncompared_text(agents, pairs), list[str]()
    if len(runs) > 1:
        full = [shared_worlds(first.episodes, second.episodes) for first, second in pairs]
        notes = horizon_notes([path for path, _ in runs], full, allowed=settings.horizons)
        shared = [_with_copies(*sides) for sides in zip(pairs, shared, full, strict=True)]
        if all(side.copied for pair in shared for side in pair):
            names = ", ".join(dict.fromkeys(first.name for first, _ in pairs))
            paths, advice = " and ".join(str(path) for path, _ in runs), alone or TEXTS("comparing/a copy")
            raise ValueError(TEXTS("comparing/same episodes", runs=paths, agents=names, advice=advice))
    compared = compare(shared, measures, margin=settings.margin, apart=kept_separate)
    notes += _one_sided_notes(compared, shared, kept_separate)
    return RunComparison(pairs=compared, measures=measures, without=without, alone=alone, notes=notes)


def check_measures(names: Sequence[str], available: Sequence[str], where: str, option: str = "--measures") -> None:
    """Check that measures are available.

    Args:
        names: the measures.
        available: the measures that exist.
        where: where they should be, such as the run directory, for the message.
        option: option of the command that named them, for the message.

    Raises:
        ValueError: if a measure is not available; the message names it and a similar one.
    """
    unknown = [name for name in names if name not in available]
    if unknown:
        commas = all(part.strip() in available for part in unknown[0].split(",") if part.strip())
        hint = ": names are separated by ';', not by ','." if commas else did_you_mean(unknown[0], available)
        raise ValueError(_lacking(option, where, "measure", unknown, hint, available))


def _lacking(option: str, where: str, kind: str, unknown: Sequence[str], hint: str, available: Sequence[str]) -> str:
    names = "; ".join(map(repr, unknown)) + (hint or ".")
    return TEXTS(
        "comparing/lacking", option=option, where=where, kind=kind, names=names, available="; ".join(available)
    )


def check_known(path: Path, available: Sequence[str], measures: Sequence[str], settings: ComparisonSettings) -> None:
    """Check that a run has results for all measures to compare.

    Raises:
        ValueError: if it lacks one; the message names the run, the measure and a similar one.
    """
    option = "--margin" if settings.measures is None and settings.margin else "--measures"
    check_measures(measures, available, str(path), option)


def agents_among(available: Iterable[Tag], agents: Sequence[str], where: str) -> list[str]:
    """Return the agents to compare, in the order of those available: all, or those in ``agents``.

    Raises:
        ValueError: if a named agent is not available ``where`` the message says, such as in a run directory.
    """
    names = list(dict.fromkeys(map(str, available)))
    unknown = [name for name in agents if name not in names]
    if unknown:
        raise ValueError(_lacking("--agents", where, "agent", unknown, did_you_mean(unknown[0], names), names))
    return [name for name in names if not agents or name in agents]


def kept_apart(
    agents: Sequence[ComparedAgent], measures: Sequence[str], runs: Sequence[tuple[Path, MeasuredRows]], between: str
) -> dict[str, list[str]]:
    """Return, for each measure, the tags across whose values its rows must not be averaged.

    These are tags that only this measure has (such as the layer of a probe), those that identify an environment if the
    measure's scale depends on it, and the phase of a study.

    Args:
        agents: the agents to compare, with their rows.
        measures: the measures.
        runs: the run directories with their rows, for the units of the measures.
        between: a tag whose values are compared, which is left out; "" for none.
    """
    rows = Rows.concatenate(agent.side.rows for agent in agents)
    episodes = Rows.concatenate(agent.episodes.rows for agent in agents)
    common = {name for name in episodes.tags if episodes.known(name).any()} | _REPEATS | {between}
    values = {name: set(episodes.numbered(name)[1]) for name in episodes.tags}
    units = {measure: unit for _, measured in runs for measure, unit in measured.measures.items()}
    kept_separate = {}
    for measure in measures:
        of_measure = rows.where(rows.measure == measure)
        names = [name for name in of_measure.tags if name not in common and of_measure.known(name).any()]
        # Probes also have a tag "control", with a name; the tag of worlds is a flag.
        if "control" in common - {between} and any(isinstance(tag, str) for tag in of_measure.numbered("control")[1]):
            names.append("control")
        # Agents may have learned other things in each phase; pooled, a difference in one phase could hide in another.
        names += ["phase"] if between != "phase" and len(values.get("phase", ())) > 1 else []
        names += [name for name in scale_tags(units.get(measure, ""), values) if name != between]
        kept_separate[measure] = names
    return kept_separate


def _sides_of(agent: ComparedAgent, tag: str, runs: int) -> list[ComparedAgent]:
    """Return an agent's rows at each value of a tag as sides of a comparison.

    Raises:
        ValueError: if there are several runs, or the tag has fewer than two values.
    """
    rows = agent.side.rows
    values = sorted((value for value in rows.numbered(tag)[1] if value is not None), key=natural_order)
    if runs > 1 or len(values) < 2:
        description = f"{runs} runs" if runs > 1 else f"{tag} with {', '.join(map(number, values)) or 'no value'}"
        raise ValueError(TEXTS("comparing/between", tags=_known_tags(rows), got=description))
    return [
        replace(agent, side=SideRows(f"{agent.side.name}, {tag} {number(value)}", rows.where(rows.among(tag, [value]))))
        for value in values
    ]


def _known_tags(rows: Rows) -> str:
    return ", ".join(name for name in rows.tags if rows.known(name).any())


def _one_sided_notes(
    compared: Sequence[Compared], shared: Sequence[Pair], kept_separate: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return a note per measure and pair with rows whose tags the other side lacks."""
    notes = []
    for measure, names in ((measure, names) for measure, names in kept_separate.items() if names):
        for first, second in shared:
            rows = Rows.concatenate(side.rows.where(side.rows.measure == measure) for side in (first, second))
            pair = (measure, first.name, second.name)
            matched = sum(bool(entry.tags) and (entry.measure, entry.first, entry.second) == pair for entry in compared)
            if lonely := len(set(numbers_of(rows, names).tolist())) - matched:
                text = TEXTS(
                    "comparing/unpaired rows",
                    measure=measure,
                    combinations=counted(lonely, "combination"),
                    tags=", ".join(names),
                    first=first.name,
                    second=second.name,
                )
                notes.append(f"note: {text}")
    return notes


def _chosen(rows: Rows, where: Mapping[str, Sequence[str]], path: Path) -> Rows:
    """Return the rows whose tags have one of the given values.

    Raises:
        ValueError: if no row has such a value.
    """
    for tag, wanted_values in where.items():
        present = {number(value): value for value in rows.numbered(tag)[1] if value is not None}
        unknown = [value for value in wanted_values if value not in present]
        if unknown:
            values = "; ".join(present) or "no row has this tag"
            raise ValueError(TEXTS("comparing/where", tag=tag, path=str(path), values=values, got="; ".join(unknown)))
        rows = rows.where(rows.among(tag, [present[value] for value in wanted_values]))
    return rows


def compared_agents(
    runs: Sequence[tuple[Path, MeasuredRows]], measures: Sequence[str], settings: ComparisonSettings
) -> list[list[ComparedAgent]]:
    """Return the agents to compare of each run, with their rows of results: all, or those that the settings name.

    Raises:
        ValueError: if a measure has no rows in a run, an agent is in none of the runs, or no row has a requested tag
            value.
    """
    for path, rows in runs:
        check_known(path, rows.every_measure, measures, settings)
    all_names = [name for _, rows in runs for name in rows.values.get("agent", ())]
    selected = agents_among(all_names, settings.agents, " or ".join(str(path) for path, _ in runs))
    by_run = []
    for (path, rows), run_name in zip(runs, _run_names([path for path, _ in runs]), strict=True):
        all_rows = _chosen(rows.every_of(*measures), settings.where, path)
        success_rows = rows.of("success")  # every measured episode has a success
        run_agents = []
        for name in sorted(set(all_rows.numbered("agent")[1]) & set(selected)):
            title = name if len(runs) == 1 else f"{run_name}: {name}"
            sides = (
                SideRows(title, side_rows.where(side_rows.among("agent", [name])))
                for side_rows in (all_rows, success_rows)
            )
            run_agents.append(ComparedAgent(name, path, *sides))
        by_run.append(run_agents)
    return by_run


def _pairs(agents: Sequence[Sequence[ComparedAgent]]) -> list[_Pair]:
    """Return all pairs of agents of one run; across runs, the pairs of equal names, or all pairs if there are none."""
    if len(agents) == 1:
        return list(combinations(agents[0], 2))
    pairs = []
    for first_run, second_run in combinations(agents, 2):
        crossed = list(product(first_run, second_run))
        pairs += [(first, second) for first, second in crossed if first.name == second.name] or crossed
    return pairs


def _uncompared_text(agents: Sequence[Sequence[ComparedAgent]], pairs: Sequence[_Pair]) -> str:
    """Return a message about agents without a partner in another run, or ""."""
    paired = {agent.side.name for pair in pairs for agent in pair}
    unpaired = [agent for run_agents in agents for agent in run_agents if agent.side.name not in paired]
    if not unpaired:
        return ""
    names = ";".join(dict.fromkeys(agent.name for agent in unpaired))
    return TEXTS("comparing/alone", agents=", ".join(agent.side.name for agent in unpaired), names=names)


def _with_copies(pair: _Pair, shared: Pair, full: Pair) -> Pair:
    """Return both sides with their numbers of episodes, and of episodes whose steps are equal on both sides."""
    ids = [set(side.rows.episode_id.tolist()) for side in full]
    common = ids[0] & ids[1]
    first_steps, second_steps = (_steps_by_episode(agent.run, common) if common else {} for agent in pair)
    copies = sum(first_steps[name] == second_steps[name] for name in common)
    return [
        replace(side, episodes=len(episode_ids), copies=copies) for side, episode_ids in zip(shared, ids, strict=True)
    ]


def _steps_by_episode(path: Path, episodes: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return index, action, failure, text and output tokens of each step of some episodes of a run."""
    names = ("index", "action", "failure", "text", "output_tokens")
    with Store(path) as store:
        return {
            episode.id: [*zip(*map(episode.column, names), strict=True)] for episode in store.episodes(sorted(episodes))
        }


def horizon_notes(paths: Sequence[Path], shared: Sequence[Pair], *, allowed: bool) -> list[str]:
    """Return notes on worlds in which the two sides of a comparison had different horizons (maximum numbers of
    actions).

    Args:
        paths: the run directories.
        shared: the pairs of sides, on the worlds that they share.
        allowed: whether horizons may differ.

    Raises:
        ValueError: if horizons differ and this is not allowed.
    """
    horizons: dict[str, int] = {}
    notes = []
    for path in paths:
        with Store(path) as store:
            horizons |= {head.id: head.horizon for head in read_heads(store)}
    for pair in shared:
        first, second = (
            {world: horizons[name] for world, name in zip(worlds_of(side.rows), side.rows.episode_id, strict=True)}
            for side in pair
        )
        differing = [
            (first[world], second[world]) for world in first if world in second and first[world] != second[world]
        ]
        if not differing:
            continue
        text = TEXTS(
            "comparing/horizons",
            first=pair[0].name,
            second=pair[1].name,
            worlds=counted(len(differing), "common world"),
            steps=differing[0][0],
            other=differing[0][1],
        )
        if not allowed:
            raise ValueError(TEXTS("comparing/more time", horizons=text))
        notes.append(f"note: {text}")
    return notes


def _run_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest suffixes of the paths that are all different."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The value of a measure at one checkpoint of a training.

    Attributes:
        measure: the measure.
        series: the agent, if each run is a checkpoint; "" if the agents of one run are the checkpoints.
        agent: the checkpoint's own name.
        step: its position on the curve, such as a number of training steps.
        estimate: the estimate over the worlds that all checkpoints of the series share.
        since: the difference from the first checkpoint in the same worlds; None for the first.
    """

    measure: str
    series: str
    agent: str
    step: float
    estimate: Estimate
    since: Compared | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCurve(Records):
    """A curve of measures over the checkpoints of a training.

    Attributes:
        over: name of the positions of the checkpoints, e.g. "step".
        checkpoints: the estimates, by measure, series (agent) and position.
        tests: number of differences from the first checkpoint; together they form one family of tests.
        notes: caveats for the reader.
    """

    over: str
    checkpoints: Sequence[Checkpoint]
    tests: int
    notes: Sequence[str]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The curve as a list of dictionaries, one per measure and checkpoint.

        Each has the position, the value with its interval, counts, and the difference from the first checkpoint with
        its p values.
        """
        records = []
        for checkpoint in self.checkpoints:
            since = comparison_records([checkpoint.since])[0] if checkpoint.since else {}
            since_fields = {
                f"since_first_{name}": since.get(name) for name in ("difference", "low", "high", "p", "p_holm")
            }
            place = {
                "measure": checkpoint.measure,
                "series": checkpoint.series,
                "agent": checkpoint.agent,
                self.over: checkpoint.step,
            }
            records.append({**place, **recorded(checkpoint.estimate), **since_fields})
        return records

    @property
    def table(self) -> Table:
        """The curve as a table of a report, with one line per measure and checkpoint."""
        notes = Footnotes()
        columns: TextColumns[Checkpoint] = [
            ("measure", lambda checkpoint: title_of(checkpoint.measure)),
            *(
                [("agent", lambda checkpoint: checkpoint.series)]
                if any(checkpoint.series for checkpoint in self.checkpoints)
                else []
            ),
            (self.over, lambda checkpoint: number(checkpoint.step)),
            *value_columns(attrgetter("estimate")),
            ("n", lambda checkpoint: str(checkpoint.estimate.n)),
            ("worlds", lambda checkpoint: str(checkpoint.estimate.clusters)),
            (
                "− first",
                lambda checkpoint: value_text(checkpoint.since.paired.difference if checkpoint.since else None),
            ),
            (
                "p (Holm)",
                lambda checkpoint: "–" if checkpoint.since is None else p_text(checkpoint.since.test.adjusted),
            ),
            (
                "notes",
                lambda checkpoint: notes.mark(
                    checkpoint.estimate.note, *(checkpoint.since.notes if checkpoint.since else ())
                ),
            ),
        ]
        numbers = range(len(columns) - 8, len(columns) - 1)
        return plain_table(self.checkpoints, columns, numbers, footnotes=notes)

    @property
    def figure(self) -> Figure:
        """A figure with the curves of all measures, which must share a unit.

        Raises:
            ValueError: if there are several units.
        """
        units = {checkpoint.estimate.unit for checkpoint in self.checkpoints}
        measures = list(dict.fromkeys(checkpoint.measure for checkpoint in self.checkpoints))
        if len(units) > 1:
            raise ValueError(TEXTS("comparing/one unit", units=", ".join(sorted(units))))
        names = dict.fromkeys((checkpoint.measure, checkpoint.series) for checkpoint in self.checkpoints)
        series = []
        for style, (measure, agent) in enumerate(names):
            points = [point for point in self.checkpoints if (point.measure, point.series) == (measure, agent)]
            label = " of ".join(part for part in (title_of(measure) if len(measures) > 1 else "", agent) if part)
            places = {point.step: point.estimate for point in points}
            series.append(Series(label=label or title_of(measure), style=style, points=places))
        (unit,) = units
        subject = title_of(measures[0]) if len(measures) == 1 else "what checkpoints do"
        title = f"{subject} over training"
        steps = sorted({checkpoint.step for checkpoint in self.checkpoints})
        ticks = {step: number(step) for step in steps} if len(steps) <= 8 else None
        bounds = SHARE if unit == "share" else None
        chart = Lines(series, title=title, x_label=self.over, y_label=unit, bounds=bounds, ticks=ticks)
        worlds = min(checkpoint.estimate.clusters for checkpoint in self.checkpoints)
        return Figure(chart, label=f"{title}: 95 % intervals over {worlds} worlds or more")


def curve_of(
    runs: Sequence[tuple[Path, MeasuredRows]],
    settings: ComparisonSettings,
    measures: Sequence[str],
    *,
    over: str,
    places: Sequence[float] = (),
) -> CheckpointCurve:
    """Estimate measures at several checkpoints of a training, in the worlds that all of them played.

    Args:
        runs: the run directories, each with its rows of results.
        settings: what to compare.
        measures: the measures of the curve.
        over: tag of episodes with the position of their checkpoint; with ``places``, a name for these numbers.
        places: the position of each run on the curve; each agent then has a curve of its own.

    Raises:
        ValueError: if measures or agents are unknown, there are fewer than two checkpoints or two at one position, or
            no worlds are shared.
    """
    by_run = compared_agents(runs, measures, settings)
    all_agents = [agent for agents in by_run for agent in agents]
    for measure, tags in kept_apart(all_agents, measures, runs, over).items():
        of_measure = Rows.concatenate(agent.side.rows.where(agent.side.rows.measure == measure) for agent in all_agents)
        if several := [tag for tag in tags if len(of_measure.numbered(tag)[1]) > 1]:
            choice = f"{several[0]}={number(of_measure.numbered(several[0])[1][0])}"
            raise ValueError(TEXTS("comparing/several", measure=measure, tags=", ".join(several), choice=choice))
    series: dict[str, dict[float, ComparedAgent]] = {}
    for number_of_run, agents in enumerate(by_run):
        for agent in agents:
            name = agent.name if places else ""
            step = places[number_of_run] if places else _place(agent, over)
            if step in series.setdefault(name, {}):
                names = f"{series[name][step].side.name} and {agent.side.name}"
                raise ValueError(TEXTS("comparing/same place", place=f"{over} {number(step)}", checkpoints=names))
            series[name][step] = agent
    pairs: list[tuple[SideRows, SideRows]] = []
    rows_of_side: dict[tuple[str, float], tuple[ComparedAgent, SideRows]] = {}
    for name, by_step in series.items():
        steps = sorted(by_step)
        if len(steps) < 2:
            raise ValueError(TEXTS("comparing/one checkpoint", got=f"{over} {number(steps[0])} of {name or 'all'}"))
        sides = shared_worlds(*(by_step[step].side for step in steps))
        if not len(sides[0].rows):
            names = ", ".join(side.name for side in sides)
            raise ValueError(TEXTS("comparing/checkpoints apart", checkpoints=names))
        for step, side in zip(steps, sides, strict=True):
            rows_of_side[name, step] = by_step[step], side
        pairs += [(side, sides[0]) for side in sides[1:]]
    full = [
        (rows_of_side[name, step][0].episodes, rows_of_side[name, min(series[name])][0].episodes)
        for name, step in rows_of_side
    ]
    notes = horizon_notes([path for path, _ in runs], full, allowed=settings.horizons)
    left_out = sum(side.left_out for _, side in rows_of_side.values())
    notes += [f"note: {TEXTS('comparing/left out', worlds=counted(left_out, 'world'))}"] if left_out else []
    since = {
        (comparison.measure, comparison.first): comparison
        for comparison in compare(pairs, measures, name="checkpoints")
    }
    checkpoints = [
        Checkpoint(
            measure=measure,
            series=name,
            agent=agent.name,
            step=step,
            estimate=_estimate(side.rows.where(side.rows.measure == measure)),
            since=since.get((measure, side.name)),
        )
        for measure in measures
        for (name, step), (agent, side) in rows_of_side.items()
    ]
    return CheckpointCurve(over=over, checkpoints=checkpoints, tests=len(since), notes=notes)


def _place(agent: ComparedAgent, over: str) -> float:
    """Return the single value of a tag in an agent's rows."""
    rows = agent.side.rows
    values: Mapping[Any, None] = dict.fromkeys(rows.numbered(over)[1] if over in rows.tags else ())
    (value,) = values if len(values) == 1 else (None,)
    if (place := number_of(value)) is None:
        got = ", ".join(map(repr, values)) or "none"
        raise ValueError(TEXTS("comparing/over", tags=_known_tags(rows), agent=agent.side.name, got=got))
    return place


def _estimate(rows: Rows) -> Estimate:
    """Return the mean over worlds of a measure's rows, regardless of their other tags."""
    (estimate,) = estimate_rows(rows, by=(), bounds=measure_bounds())
    return estimate.estimate
