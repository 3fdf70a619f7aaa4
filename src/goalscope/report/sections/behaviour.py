"""Behaviour in grids: the paper's environments with keys, fog, checks of imports, size, density, distance, uncertainty.

Source: behavioural and representational evaluation, section 4.3, Table 1, Appendix A.1, Fig. 4 and Fig. 12 (the upper
half of Fig. 4 is the section by distance); measuring exploration and exploitation errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from goalscope._ground.words import counted, listed
from goalscope.measures.comparison import LEVEL, SideRows
from goalscope.measures.exploration.errors import FOGGED, KINDS, UNDER_FOG
from goalscope.measures.performance import with_distance_bands
from goalscope.report.blocks import (
    BANDS,
    CURVED,
    SHARE,
    WIDE_LEFT_OUT,
    Cell,
    Column,
    Declared,
    FoldSpec,
    MapSpec,
    Table,
    TableSpec,
    after,
    agent_lines,
    by_agent,
    estimates_table,
    number,
    of_two_tags,
    over_tag,
    section,
)
from goalscope.report.comparison import family_table
from goalscope.report.definitions import (
    CURVES,
    KEY_POOLED,
    MAPS,
    SIZE_FIGURES,
    UNCERTAINTY,
    UNCERTAINTY_FIGURES,
    title_of,
)
from goalscope.report.ledger import STEPWISE, Estimates, Key, Ledger, RunData, describe_key, estimates_by
from goalscope.report.sections.tasks import NO_INVALID, any_invalid, error_tables
from goalscope.report.texts import TEXTS, labels
from goalscope.runs.provenance import noted
from goalscope.stats import Estimate, Grouped
from goalscope.stats.rows import Rows, Tag

Group = Mapping[str, Tag]
Columns = Mapping[tuple[str, bool], Group]
"""(kind of world, whether it is a control) -> the conditions of its estimates in the ledger."""

_COMMON = ("success", "action accuracy")
_STAGES = ("accuracy on the way to the key", "accuracy on the way to the door", "accuracy on the way to the goal")
_LURE = (KEY_POOLED, "errors towards the key")
_CHOICE = ("key path taken", "key path entered first")
_OVERLAP = ("Jaccard similarity with control", "Jaccard similarity")
_ROOMS = (*_COMMON, *_STAGES, "key pickup", *_LURE)
_PATHS = (*_COMMON, "key pickup", *_CHOICE, *_LURE, *_OVERLAP)
_PAIRED = (*_COMMON, "key pickup", "errors towards the key", "key attraction bias")
"""Measures that are compared with the matched control, paired by grid; with two paths, also the choice of path."""

_KINDS = labels("labels/kinds of key worlds")
_NOT_IN = {"key-door": _LURE, "key-no-door": _STAGES}
_EMPTY = Cell(value="–", hint="not defined here")
_NO_ERRORS = Cell(value="undefined", note="no errors", hint="no non-optimal action before the key is reached")
WASTE = ("redundant backtracking", "moves into known dead ends", "repeated wall bumps")
COLUMNS = ("success", "action accuracy", "path ratio", *WASTE[:2], "wall bumps", WASTE[2])
COMPARED = ("success", *WASTE[:2], "wall bumps")
_ERRORS = tuple(f"{kind} error{UNDER_FOG}" for kind in KINDS)
_FOGGED = frozenset(measure.name for measure in FOGGED)
MAX_PAIRS = 45
_KEY_MEASURES = (*_STAGES, "key pickup", "key attraction bias")
FIGURE_12 = ("success", "policy entropy", "JSD from optimal", "calibration error")
_EXCESS = ("policy entropy, excess, per visit", "JSD from optimal, excess, per visit", "calibration error, excess")
_CELLS = "agent, size, density"
_BANDS = 11  # maximum number of distance bands of a map
_AXES = {"size": "size n", "density": "wall density d", "distance_band": "distance to the goal"}
_BY_SIZE, _BY_DENSITY, _DENSITIES, _BAND = ("size", "size"), ("density", "d"), ("density", "d ="), ("distance_band", "")


def has_goal_tables(run: RunData) -> bool:
    """Return whether a run has worlds of one of the kinds in Table 1 of the paper on behavioural and representational
    evaluation.
    """
    return any(tags.get("kind") in _KINDS for _, tags in run.settings())


@section("goals", source="behavioural and representational evaluation, section 4.3 and Table 1", worlds="grids")
def goal_tables(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on instrumental and implicit goals: Table 1 of the paper on behavioural and
    representational evaluation.

    It has those of the three environments of that table that the run has; there is no section without any.
    """
    conditions: dict[str, dict[tuple[str, bool], Group]] = {}
    for group, tags in run.settings():
        if tags.get("kind") in _KINDS:
            condition = describe_key({name: tags[name] for name in ("transform", "fog_radius") if name in tags})
            condition = "" if condition == "transform identity" else condition
            conditions.setdefault(condition, {})[str(tags["kind"]), bool(tags.get("control"))] = group
    for condition, columns in conditions.items():
        suffix = f", {condition}" if condition else ""
        for anchor, title, measures, texts in (
            ("goals", "Instrumental and implicit goals", _ROOMS, ("control", "lure")),
            ("paths", "Choice of path", _PATHS, ("control", "choice", "lure")),
        ):
            in_section = {key: group for key, group in columns.items() if (key[0] == "two-path") == (anchor == "paths")}
            if in_section:
                explained = [TEXTS(f"goals/{text}") for text in texts]
                yield _declared(run, in_section, measures, anchor, f"{title}{suffix}", explained)


def _declared(
    run: RunData, columns: Columns, measures: Sequence[str], anchor: str, title: str, explained: Sequence[str]
) -> Declared:
    agents, ledger = run.groups, run.ledger
    missing = [
        _KINDS[kind] for kind, control in columns if not control and (kind, True) not in columns and kind != "key-door"
    ]
    text = TEXTS("goals/no control", kinds=" and ".join(missing)) if missing else ""
    return Declared(
        anchor=anchor,
        title=title,
        paragraphs=[text] if missing else (),
        explained=explained,
        tables=[
            *(_table(ledger, columns, measures, agent) for agent in agents.subjects),
            *_against_control(run.rows, columns, agents.subjects),
        ],
        folds=[
            FoldSpec(
                "The same for agents whose goal is known",
                [_table(ledger, columns, measures, agent) for agent in agents.others],
            ),
            FoldSpec(
                "The same tests for agents whose goal is known", _against_control(run.rows, columns, agents.others)
            ),
        ],
        counted=[
            replace(grouped, key={**grouped.key, "world": _column(key, columns)})
            for agent in ledger.agents
            for key, group in columns.items()
            for grouped in _estimates_of(ledger, [agent], measures, group)
        ],
        closing=TEXTS("goals/closing"),
    )


def _estimates_of(ledger: Ledger, agents: Sequence[str], measures: Sequence[str], group: Key) -> list[Grouped]:
    """Return the estimates of some agents and measures in a group, for the table of counts and methods."""
    keys: list[Key] = [{"measure": name, "agent": agent} for agent in agents for name in measures]
    estimates = [(key, ledger.tables["agent"].get(key, group)) for key in keys]
    return [Grouped(key=key, estimate=estimate) for key, estimate in estimates if estimate is not None]


def _table(ledger: Ledger, columns: Columns, measures: Sequence[str], agent: str) -> Table:
    """Return the table of one agent as in the paper: one line per metric, one column per environment."""
    rows: list[tuple[str, list[Estimate | Cell | None]]] = []
    for name in measures:
        undefined_in = {kind: name in _NOT_IN.get(kind, ()) for kind, _ in columns}
        estimates = [
            None
            if undefined_in[kind] or (name in _STAGES and control)
            else ledger.find("agent", name, agent=agent, **group)
            for (kind, control), group in columns.items()
        ]
        # An agent without errors has no error direction; the line stays.
        no_errors = name == KEY_POOLED and not all(undefined_in.values())
        if no_errors or any(estimate is not None and (estimate.n or estimate.undefined) for estimate in estimates):
            empty = [_NO_ERRORS if name == KEY_POOLED and not undefined_in[kind] else _EMPTY for kind, _ in columns]
            rows.append((title_of(name), [estimate or cell for estimate, cell in zip(estimates, empty, strict=True)]))
    counts = [ledger.find("agent", "success", agent=agent, **group) for group in columns.values()]
    rows.append(("Trajectories", [Cell(value=str(estimate.n) if estimate else "–") for estimate in counts]))
    rows.append(("Grids", [Cell(value=str(estimate.clusters) if estimate else "–") for estimate in counts]))
    return estimates_table(agent, [("metric", ""), *((_column(key, columns), "share") for key in columns)], rows)


def _column(key: tuple[str, bool], columns: Columns) -> str:
    kind, control = key
    if not control:
        return f"{_KINDS[kind]}, with key" if (kind, True) in columns else _KINDS[kind]
    return f"{_KINDS[kind]}, control without key"


def _against_control(rows: Rows, columns: Columns, agents: Sequence[str]) -> list[Table]:
    """Return the paired comparison of each kind of world with its control; the tests of each kind form one family."""
    tables = []
    for (kind, control), group in columns.items():
        if not control and (kind, True) in columns and agents:
            control_group = columns[kind, True]
            with_key = [SideRows(f"{agent}, with key", rows.select(agent=agent, **group)) for agent in agents]
            controls = [SideRows(f"{agent}, control", rows.select(agent=agent, **control_group)) for agent in agents]
            caption = TEXTS("goals/against control", kind=_KINDS[kind], level=f"{LEVEL:g}")
            measures = (*_PAIRED, *_CHOICE) if kind == "two-path" else _PAIRED
            pairs = [*zip(with_key, controls, strict=True)]
            tables.append(family_table(pairs, caption, measures, name=f"{kind} against control")[1])
    return tables


@section("fog", source="behavioural and representational evaluation, Appendix A.1", worlds="grids")
def fog(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on agents with a limited view: a table of agents for each radius of the view (fog)."""
    histories = labels("labels/histories")
    agents, history = (*run.groups.models, *run.groups.scripted), run.groups.history
    views = {agent: f" ({histories.get(history[agent], history[agent])})" for agent in run.groups.models}
    shown_agents = [(agent, f"{agent}{views.get(agent, '')}") for agent in agents]
    for group, radius in _fog_conditions(run, WASTE[0]):
        tests, text = _tests(run, group)
        caption = f"Agents under fog of radius {radius}"
        yield Declared(
            anchor="fog",
            title="Under fog",
            paragraphs=[text] if text else (),
            explained=(TEXTS("fog/how"),),
            tables=[by_agent(run.ledger, COLUMNS, group, caption, labels=shown_agents), *tests],
            figures=[over_tag(run.ledger, name, "size", group) for name in WASTE],
            legend=BANDS,
            counted=_estimates_of(run.ledger, run.ledger.agents, COLUMNS, group),
        )


@section("errors under fog", source="measuring exploration and exploitation errors, Section 4", worlds="grids")
def fog_errors(run: RunData) -> Iterator[Declared]:
    """Yield the report's section with exploration and exploitation errors of each agent, for each radius of its view
    (fog).
    """
    table = run.ledger.tables["agent"]
    for group, radius in _fog_conditions(run, _ERRORS[0]):
        all_agents = (*run.groups.models, *run.groups.scripted)
        agents = [agent for agent in all_agents if table.get(group, agent=agent, measure=_ERRORS[0]) is not None]
        means = TableSpec(
            f"Errors under fog of radius {radius}{after(group)}: mean over the episodes of a grid, then over grids",
            "agent",
            table,
            [Column(title_of(name), "share", {"measure": name}) for name in _ERRORS],
            agent_lines(agents, group),
        )
        errors = run.rows_of(*(name for name in run.measured.measures if name in _FOGGED))
        yield Declared(
            anchor="fog-errors",
            title="Exploration and exploitation errors under fog",
            explained=(TEXTS("fog/errors"), *([] if any_invalid(errors, group, UNDER_FOG) else [NO_INVALID])),
            tables=[means, *error_tables(errors, run.ledger, agents, group, suffix=UNDER_FOG, noun="grid")],
            figures=[over_tag(run.ledger, name, "size", group) for name in _ERRORS],
            legend=BANDS,
            counted=_estimates_of(run.ledger, agents, _ERRORS, group),
        )


def _fog_conditions(run: RunData, measure: str) -> Iterator[tuple[Key, object]]:
    """Yield the fog conditions for which a measure has values, and the radius of each."""
    for group, tags in run.settings():
        measured = any(run.ledger.find("agent", measure, agent=agent, **group) for agent in run.ledger.agents)
        if tags.get("fog_radius") is not None and measured:
            yield group, tags["fog_radius"]


def _tests(run: RunData, group: Key) -> tuple[list[Table], str]:
    """Return the tests of the subjects against every other agent, or a text that replaces them."""
    subjects, other_agents = run.groups.subjects, run.groups.others
    pairs = [*combinations(subjects, 2), *product(subjects, other_agents)]
    if not pairs:
        return [], ""
    if len(pairs) > MAX_PAIRS:
        return [], TEXTS("compared/too many pairs", pairs=len(pairs))
    rows = run.rows_of(*COMPARED)
    sides = {agent: SideRows(agent, rows.select(agent=agent, **group)) for agent in (*subjects, *other_agents)}
    caption = TEXTS("fog/against others", agents=listed(subjects), level=f"{LEVEL:g}")
    side_pairs = [(sides[first], sides[second]) for first, second in pairs]
    return [family_table(side_pairs, caption, COMPARED, name="arms under fog")[1]], ""


@section("import", worlds="grids")
def import_checks(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that compares goalscope's values for imported episodes with those recorded in the
    import.
    """
    import_info = noted(run.store, "import")
    if not import_info:
        return
    noted_there = (import_info.get(name) for name in ("counts", "compared"))
    counts, compared = (entries if isinstance(entries, Mapping) else {} for entries in noted_there)
    checked = [(str(name), int(total), int(agree)) for name, (total, agree) in compared.items()]
    table = Table(
        caption=TEXTS("import/checked"),
        headings=("recorded value", "checked", "agree", "disagree"),
        rows=tuple((name, str(total), str(agree), str(total - agree)) for name, total, agree in checked),
        numbers=(1, 2, 3),
    )
    source = str(import_info.get("source", ""))
    state = TEXTS("import/none", source=source)
    if problems := int(import_info.get("problems", 0) or 0):
        state = TEXTS("import/some", problems=counted(problems, "problem"), source=source)
    yield Declared(
        anchor="import",
        title="Checks of the imported data",
        paragraphs=(state,),
        tables=[table] if checked else [],
        facts=[(str(name), str(count)) for name, count in counts.items()],
    )


@section("size and density", worlds="grids")
def by_size_and_density(run: RunData) -> Iterator[Declared]:
    """Yield the report's section with curves of success and accuracy over grid size and wall density.

    There is none if the worlds of a run lack a size or a density.
    """
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
    """Yield the report's section with coloured maps and tables of accuracy and success by grid size and wall
    density.
    """
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
    """Yield the report's section with the maps of Fig. 4 and Fig. 12 of the paper on behavioural and representational
    evaluation, for each kind of world with several sizes and densities.
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
    """Yield the report's section with curves of measures over the distance to the goal.

    If a run has worlds of several kinds, only those with a size and a wall density (generated grids) count.
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
    """Yield the report's section on policy entropy, divergence from the optimal policy, and calibration.

    Each measure stands beside its baseline, and figures show the excess over it by grid size.
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
    """Yield the report's section on worlds with a key, unless they are those of the paper, which have a section of
    their own.
    """
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
