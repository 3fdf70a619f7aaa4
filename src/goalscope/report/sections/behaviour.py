"""Behaviour in grids by size, density and distance; checks of imports; uncertainty; keys.

Source: behavioural and representational evaluation, Fig. 4 and Fig. 12. The upper half of Fig. 4 is the section by
distance.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from goalscope._ground.words import counted
from goalscope.measures.performance import with_distance_bands
from goalscope.report.blocks import Table, number
from goalscope.report.definitions import CURVES, MAPS, SIZE_FIGURES, UNCERTAINTY, UNCERTAINTY_FIGURES, title_of
from goalscope.report.ledger import STEPWISE, Estimates, Key, Ledger, RunData, describe_key, estimates_by
from goalscope.report.sections.environments import has_goal_tables
from goalscope.report.specs import (
    BANDS,
    CURVED,
    SHARE,
    WIDE_LEFT_OUT,
    Declared,
    FoldSpec,
    MapSpec,
    TableSpec,
    by_agent,
    of_two_tags,
    over_tag,
    section,
)
from goalscope.report.texts import TEXTS
from goalscope.runs.provenance import noted
from goalscope.stats.rows import Tag

_KEY_MEASURES = (
    "accuracy on the way to the key",
    "accuracy on the way to the door",
    "accuracy on the way to the goal",
    "key pickup",
    "key attraction bias",
)
FIGURE_12 = ("success", "policy entropy", "JSD from optimal", "calibration error")
_EXCESS = ("policy entropy, excess, per visit", "JSD from optimal, excess, per visit", "calibration error, excess")
_CELLS = "agent, size, density"
_BANDS = 11  # maximum number of distance bands of a map
_AXES = {"size": "size n", "density": "wall density d", "distance_band": "distance to the goal"}
_BY_SIZE, _BY_DENSITY, _DENSITIES, _BAND = ("size", "size"), ("density", "d"), ("density", "d ="), ("distance_band", "")


@section("import", worlds="grids")
def import_checks(run: RunData) -> Iterator[Declared]:
    """Yield the section that compares imported runs with the values that were recorded with them."""
    import_info = noted(run.store, "import")
    if not import_info:
        return
    noted_there = (import_info.get(name) for name in ("counts", "compared"))
    counts, compared = (entries if isinstance(entries, Mapping) else {} for entries in noted_there)
    checked_counts = [(str(name), int(checked), int(agreeing)) for name, (checked, agreeing) in compared.items()]
    table = Table(
        caption=TEXTS("import/checked"),
        headings=("recorded value", "checked", "agree", "disagree"),
        rows=tuple((name, str(total), str(agree), str(total - agree)) for name, total, agree in checked_counts),
        numbers=(1, 2, 3),
    )
    problems = int(import_info.get("problems", 0) or 0)
    source = str(import_info.get("source", ""))
    state = TEXTS("import/none", source=source)
    if problems:
        state = TEXTS("import/some", problems=counted(problems, "problem"), source=source)
    yield Declared(
        anchor="import",
        title="Checks of the imported data",
        paragraphs=(state,),
        tables=[table] if checked_counts else [],
        facts=[(str(name), str(count)) for name, count in counts.items()],
    )


@section("size and density", worlds="grids")
def by_size_and_density(run: RunData) -> Iterator[Declared]:
    """Yield the section with curves over size and density; nothing if a run lacks one of these tags."""
    ledger = run.originals
    if not len(ledger.tables["agent, size"]) or not len(ledger.tables["agent, density"]):
        return
    yield Declared(
        anchor="size-and-density",
        title="By size and density",
        figures=[
            over_tag(ledger, name, tag, group, bounds=SHARE)
            for group in ledger.groups(_CELLS)
            for name in SIZE_FIGURES
            for tag in ("size", "density")
        ],
        legend=f"{BANDS} {TEXTS('behaviour/averages')}",
    )


@section("maps", worlds="grids")
def maps(run: RunData) -> Iterator[Declared]:
    """Yield the section with maps and tables of measures by size and density."""
    ledger = run.originals
    cells, main_title = ledger.tables[_CELLS], title_of(MAPS[0])
    groups, figures, folds = ledger.groups(_CELLS), [], []
    for group, agent in product(groups, ledger.agents):
        condition, key = describe_key(group) if len(groups) > 1 else "", {**group, "agent": agent}
        title = f"{agent}, {condition}" if condition else agent
        label = f"{main_title} of {title} by size and density"
        figures.append(_map(cells, {**key, "measure": MAPS[0]}, title, label=label, among=group))
        folds.append(_size_tables(ledger, cells, MAPS, key, title, group))
    yield Declared(
        anchor="maps",
        title="Size × density",
        figures=figures,
        figures_only=True,
        legend=TEXTS("behaviour/map legend", measure=main_title, exception=WIDE_LEFT_OUT),
        folds=folds,
    )


@section("figures 4 and 12", source="behavioural and representational evaluation, Fig. 4 and Fig. 12", worlds="grids")
def difficulty(run: RunData) -> Iterator[Declared]:
    """Yield the section with the maps of Fig. 4 and Fig. 12 of the paper, for each condition with several sizes and
    densities.
    """
    ledger = run.originals
    groups = ledger.groups(_CELLS)
    conditions = [group for group, _ in run.settings() if group in groups]
    for group in conditions:
        if all(len(ledger.tables[_CELLS].values(tag, **group)) > 1 for tag in ("size", "density")):
            condition = f", {describe_key(group)}" if len(conditions) > 1 else ""
            yield from _figure_4(run, group, condition)
            yield _figure_12(run, group, condition)


def _figure_4(run: RunData, group: Key, condition: str) -> Iterator[Declared]:
    ((steps, counts),) = run.measured.condensed(STEPWISE)
    in_group = steps.known("distance")
    for name, value in group.items():
        in_group &= steps.among(name, [value])
    steps, counts = steps.where(in_group), counts[in_group]
    if not len(steps):
        return
    subjects, other_agents = run.groups.subjects, run.groups.others
    steps = with_distance_bands(steps, -(-max(int(distance) for distance in steps.numbered("distance")[1]) // _BANDS))
    size, density, size_and_density = (
        estimates_by(steps, "agent", *by, "distance_band", counts=counts)
        for by in (("size",), ("density",), ("size", "density"))
    )
    axes = ((size, _BY_SIZE), (density, _BY_DENSITY))

    def table(estimates: Estimates, rows: tuple[str, str], caption: str, **key: Tag) -> TableSpec:
        return of_two_tags(estimates, {**key, "measure": STEPWISE}, rows, _BAND, f"Accuracy (share) of {caption}")

    def by_axis(agent: str, estimates: Estimates, rows: tuple[str, str]) -> FoldSpec:
        caption = f"{agent} by {rows[0]} and distance to the goal in steps"
        return FoldSpec(f"{agent}, by {rows[0]}", [table(estimates, rows, caption, agent=agent)])

    def by_all(agent: str) -> FoldSpec:
        captions = {
            size: f"{agent}, size {number(size)}: density × distance in steps"
            for size in size_and_density.values("size", agent=agent)
        }
        tables = [
            table(size_and_density, _BY_DENSITY, caption, agent=agent, size=size) for size, caption in captions.items()
        ]
        return FoldSpec(f"Size × density × distance: {agent}", tables)

    yield Declared(
        anchor="figure-4",
        title=f"Accuracy by size, density and distance{condition}",
        explained=(TEXTS("behaviour/by distance"),),
        figures=[
            _map(
                estimates,
                {"agent": agent, "measure": STEPWISE},
                f"{agent}: accuracy by {tag} and distance",
                (tag, "distance_band"),
            )
            for estimates, (tag, _) in axes
            for agent in subjects
        ],
        legend=TEXTS("behaviour/by distance legend", exception=WIDE_LEFT_OUT),
        folds=[
            *(by_axis(agent, estimates, rows) for estimates, rows in axes for agent in other_agents),
            *(by_all(agent) for agent in (*subjects, *other_agents)),
        ],
    )


def _figure_12(run: RunData, group: Key, condition: str) -> Declared:
    measures = [name for name in (*FIGURE_12, *_EXCESS) if name in run.ledger.measures]
    estimates = estimates_by(run.rows_of(*measures).select(**group), "agent", "size", "density")
    return Declared(
        anchor="figure-12",
        title=f"Performance by size and density{condition}",
        explained=(TEXTS("behaviour/performance"),),
        figures=[
            _map(
                estimates,
                {"agent": agent, "measure": name},
                f"{title_of(name)}: {agent}",
                bounds=SHARE if name == "success" else None,
            )
            for agent in run.groups.subjects
            for name in FIGURE_12
            if name in measures
        ],
        legend=TEXTS("behaviour/performance legend", exception=WIDE_LEFT_OUT),
        folds=[
            _size_tables(run.ledger, estimates, measures, {"agent": agent}, agent)
            for agent in (*run.groups.subjects, *run.groups.others)
        ],
    )


@section("distance to the goal", worlds="grids")
def by_distance(run: RunData) -> Iterator[Declared]:
    """Yield the section with curves over the distance to the goal. If a run also has other worlds, only generated grids
    count.
    """
    ledger = run.originals
    share_bounds = {name: SHARE for name, unit in ledger.measures.items() if unit == "share"}
    yield Declared(
        anchor="distance",
        title="By distance to the goal",
        figures=[
            over_tag(ledger, name, "distance", group, bounds=share_bounds.get(name), counts=True)
            for group in ledger.groups(_CELLS if len(ledger.tables[_CELLS]) else "agent, distance")
            for name in CURVES
        ],
        figures_only=True,
        legend=f"{BANDS} {TEXTS('behaviour/distance legend', fewest=CURVED)}",
    )


@section("uncertainty", worlds="grids")
def uncertainty(run: RunData) -> Iterator[Declared]:
    """Yield the section on entropy, divergence and calibration: each measure beside its baseline, and the excess over
    it by size.
    """
    ledger = run.originals
    if not set(UNCERTAINTY) & {grouped.key["measure"] for grouped in ledger.tables["agent"]}:
        return
    yield Declared(
        anchor="uncertainty",
        title="Uncertainty and divergence from the optimal policy",
        explained=(TEXTS("behaviour/uncertainty"),),
        tables=[by_agent(ledger, UNCERTAINTY, group, "Uncertainty") for group in ledger.groups("agent")],
        figures=[
            over_tag(ledger, name, "size", group)
            for group in ledger.groups("agent, size")
            for name in UNCERTAINTY_FIGURES
        ],
        legend=BANDS,
    )


@section("keys", worlds="grids")
def key_worlds(run: RunData) -> Iterator[Declared]:
    """Yield the section on worlds with a key, without the paper's environments, which have a section of their own."""
    if has_goal_tables(run):
        return
    table, tables = run.ledger.tables["agent"], []
    for group in run.ledger.groups("agent"):
        estimates = (
            (name, table.get(group, measure=name, agent=agent)) for name in _KEY_MEASURES for agent in run.ledger.agents
        )
        measures = list(dict.fromkeys(name for name, estimate in estimates if estimate is not None and estimate.n > 0))
        if measures:
            tables.append(by_agent(run.ledger, [*MAPS, *measures], group, "Stages and key"))
    if tables:
        yield Declared(anchor="keys", title="Instrumental and implicit goals", tables=tables)


def _size_tables(
    ledger: Ledger, cells: Estimates, measures: Sequence[str], key: Key, title: str, among: Key | None = None
) -> FoldSpec:
    """Return the tables of some measures by size and density."""
    tables = []
    for name in measures:
        caption = f"{title_of(name)} ({ledger.measures.get(name, '')}) of {title}"
        tables.append(of_two_tags(cells, {**key, "measure": name}, _BY_SIZE, _DENSITIES, caption, among))
    return FoldSpec(f"Tables: {title}", tables)


def _map(
    cells: Estimates, key: Key, title: str, tags: tuple[str, str] = ("size", "density"), **options: Any
) -> MapSpec:
    rows, columns = tags
    options |= {"row_label": _AXES[rows], "column_label": _AXES[columns]}
    return MapSpec(title=title, estimates=cells, key=key, rows=rows, columns=columns, **options)
