"""Task worlds: success and errors, prompts, declared pairs of agents, names, demand, and the course of episodes.

The mean over maps and the pooled ratio answer different questions. The mean gives every map the same weight, the pooled
ratio every step, so that maps with long episodes count more. Each caption says which of the two its table shows.

Source: measuring exploration and exploitation errors, Section 5 (normalisation), Fig. 1, 4, 5 and 20, Tab. 2 and 3;
reporting both mean and ratio: goalscope.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from goalscope._ground.words import counted, short
from goalscope.measures.comparison import LEVEL, Compared, SideRows
from goalscope.measures.exploration.errors import (
    KINDS,
    MOST_APART,
    ONLY_EXPLORATION,
    PROGRESS_SHARE,
    TENTHS,
    Divergence,
    Relation,
    divergences,
    log_relation,
)
from goalscope.report.blocks import (
    AnyTable,
    Cell,
    Column,
    Curve,
    CurveSpec,
    Declared,
    Figure,
    FoldSpec,
    Line,
    Table,
    TableSpec,
    TextColumns,
    after,
    agent_lines,
    estimates_table,
    interval,
    plain_table,
    section,
    value_text,
)
from goalscope.report.charts import Point, Points
from goalscope.report.comparison import family_table
from goalscope.report.definitions import ARRIVED, PAIRED, TASK_MAIN
from goalscope.report.ledger import Estimates, Key, Ledger, RunData, describe_key, estimates_by
from goalscope.report.sections.results import of_packages
from goalscope.report.texts import TEXTS
from goalscope.stats import Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.rows import Rows, Tag

MOST_BANDS = 6
"""Maximum number of lines of a figure with drawn intervals."""
_RELATED = TASK_MAIN[1:3]
_ORDERS = {"demand": ("low", "medium", "high"), "graph": ("small", "medium", "large")}
_MAX_PAIRS = 3
OVER_MAPS = "mean over the episodes of a map, then over maps"
NO_INVALID = TEXTS("tasks/no invalid")
_OF_VALID = " of valid moves"
_PROMPTS = ("base", "exploration", "exploitation", "balance")
_ERRORS = TEXTS("tasks/errors")


@section("task results", source="measuring exploration and exploitation errors, Tab. 2", worlds="tasks")
def task_results(run: RunData) -> Iterator[Declared]:
    """Yield the report's section with success and errors of each agent in task worlds, as means over maps and
    pooled.
    """
    ledger, tables = run.ledger, list[AnyTable]()
    groups = ledger.groups("agent")
    columns = [_task_column(name, ledger.measures[name]) for name in TASK_MAIN if name in ledger.measures]
    for group in groups:
        caption, lines = f"Success and errors{after(group)}: {OVER_MAPS}", agent_lines(ledger.agents, group)
        tables.append(TableSpec(caption, "agent", ledger.tables["agent"], columns, lines, "map"))
        tables += error_tables(run.rows, ledger, ledger.agents, group, suffix="", noun="map")
    texts = (_ERRORS,) if any(any_invalid(run.rows, group, "") for group in groups) else (_ERRORS, NO_INVALID)
    other_tables, figures = of_packages(run)
    yield Declared(anchor="results", title="Results", explained=texts, tables=[*tables, *other_tables], figures=figures)


@section("prompts", source="measuring exploration and exploitation errors, Fig. 5", worlds="tasks")
def prompts(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on prompts: results of each model by the sentence that suggests a strategy.

    Results with and without reasoning are pooled.
    """
    tables, figures = list[TableSpec](), list[CurveSpec]()
    stored_agents, imported_agents = run.store.agents().values(), run.ledger.agents
    models = {name: _model(description) for name, description in stored_agents if name in imported_agents}
    columns = [_task_column(name, run.ledger.measures.get(name, "")) for name in PAIRED]
    for model in dict.fromkeys(models.values()) if "prompt" in run.measured.values else ():
        names = [name for name, agent_model in models.items() if agent_model == model]
        prompt_rows = run.rows.where(run.rows.among("agent", names) & run.rows.among("measure", PAIRED))
        prompt_rows = prompt_rows.where(prompt_rows.known("prompt"))
        for memory in dict.fromkeys(prompt_rows["memory"].tolist() if "memory" in prompt_rows.tags else [None]):
            memory_rows = prompt_rows if memory is None else prompt_rows.select(memory=memory)
            prompts_used = list(dict.fromkeys(memory_rows["prompt"].tolist()))
            if len(prompts_used) < 2:
                continue
            estimates = estimates_by(memory_rows, "prompt")
            order = sorted(prompts_used, key=lambda name: _PROMPTS.index(name) if name in _PROMPTS else len(_PROMPTS))
            caption = (
                f"{model}{' with the memory summary' if memory else ''} by strategy sentence, with and without "
                f"reasoning together: {OVER_MAPS}"
            )
            lines = [Line(str(prompt), {"prompt": prompt}) for prompt in order]
            tables.append(TableSpec(caption, "prompt", estimates, columns, lines, "map"))
            figures += [_by_prompt(f"{task_title(name)} of {model}", name, estimates, order) for name in PAIRED[:3]]
    if tables:
        yield Declared(
            anchor="prompts",
            title="By prompt",
            paragraphs=(TEXTS("tasks/prompts"),),
            tables=tables,
            figures=figures,
            legend=TEXTS("tasks/prompts legend"),
        )


@section("declared pairs", source="measuring exploration and exploitation errors, Tab. 2", worlds="tasks")
def declared_pairs(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that compares the pairs of agents that the study declared, as one family of tests.

    A summary says the results in words.
    """
    pairs = [pair for pair in run.analysis.pairs if set(pair) <= set(run.ledger.agents)]
    sides = {name: SideRows(name, run.rows.select(agent=name)) for pair in pairs for name in pair}
    yield from _paired(
        [(sides[second], sides[first]) for first, second in pairs],
        "declared pairs",
        "pairs",
        "Declared comparisons",
        TEXTS("tasks/declared", level=f"{LEVEL:g}"),
    )


@section("names", source="measuring exploration and exploitation errors, Tab. 3", worlds="tasks")
def names(run: RunData) -> Iterator[Declared]:
    """Yield the report's section that compares each agent in task worlds with meaningful names and in the same worlds
    with symbols.
    """
    pairs = []
    for agent in run.ledger.agents if "names" in run.ledger.conditions else ():
        of_agent = run.rows.select(agent=agent)
        first, second = (SideRows(f"{agent}, {kind}", of_agent.select(names=kind)) for kind in ("semantic", "symbolic"))
        if len(first.rows) and len(second.rows):
            pairs.append((first, second))
    caption = TEXTS("tasks/names", level=f"{LEVEL:g}")
    yield from _paired(pairs, "names", "names", "Names with and without meaning", caption)


def _paired(
    pairs: Sequence[tuple[SideRows, SideRows]], name: str, anchor: str, title: str, caption: str
) -> Iterator[Declared]:
    """Yield paired comparisons, if any, as a table and in words: the first of each pair against the second."""
    if pairs:
        tests, table = family_table(pairs, caption, PAIRED, name=name, clusters="maps")
        of_pairs = [[test for test in tests if (test.first, test.second) == (a.name, b.name)] for a, b in pairs]
        yield Declared(anchor=anchor, title=title, paragraphs=[*map(_sentence, of_pairs)], tables=[table])


def _sentence(tests: Sequence[Compared]) -> str:
    """Describe the tests of a pair, each difference with its interval; without a test nothing is claimed."""
    parts = []
    for test in tests:
        difference, title = test.paired.difference, task_title(test.measure).lower()
        # Each interval stands for its own difference; the tests are corrected for all of the family.
        excludes_zero = difference.low > 0 or difference.high < 0
        if test.paired.labels and not test.paired.differences.any():
            result = f"the same on each of {counted(len(test.paired.labels), 'map')}"
        elif not test.paired.labels or not difference.has_interval:
            result = "not comparable"
        else:
            alone = TEXTS("tasks/shown alone")
            unshown = test.test.note or (alone if excludes_zero else "no difference shown")
            claim = test.paired.direction if test.test.rejected else unshown
            result = f"{claim} ({value_text(difference)})"
        parts.append(f"{title}: {result}")
    return f"{tests[0].first} against {tests[0].second}: {'; '.join(parts)}."


@section("relation", source="measuring exploration and exploitation errors, Fig. 1", worlds="tasks")
def relation(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on success against the logarithm of the exploration or exploitation error, with R
    squared.

    There is none unless at least two agents have both numbers.
    """
    relations = [
        (log_relation(run.rows.select(**group), error, run.ledger.agents), group)
        for group in run.ledger.groups("agent")
        for error in _RELATED
    ]
    relations = [(fitted, group) for fitted, group in relations if len(fitted.agents) > 1]
    if not relations:
        return
    columns: TextColumns[tuple[Relation, Key]] = [
        ("error", lambda line: line[0].error),
        ("maps of", lambda line: describe_key(line[1]) or "all maps"),
        ("R²", lambda line: short(line[0].r_squared.value, "share")),
        ("95 % interval", lambda line: interval(line[0].r_squared) or line[0].r_squared.note or "undefined"),
        (
            "success for a tenfold error",
            lambda line: "–" if math.isnan(line[0].slope) else short(line[0].slope, "share"),
        ),
        ("agents", lambda line: str(len(line[0].agents))),
        ("maps", lambda line: str(line[0].r_squared.clusters)),
        ("method", lambda line: line[0].r_squared.method),
        ("left out", lambda line: "; ".join(f"{agent}: {why}" for agent, why in line[0].left_out.items())),
    ]
    caption = TEXTS("tasks/relation table")
    yield Declared(
        anchor="relation",
        title="Success and errors",
        explained=(TEXTS("tasks/relation"),),
        figures=[_scatter(run, fitted, group) for fitted, group in relations],
        tables=[plain_table(relations, columns, range(2, 7), caption=caption)],
    )


def _scatter(run: RunData, fitted: Relation, group: Key) -> Figure:
    """Draw success against the error of each agent, with the fitted line."""
    table, points = run.ledger.tables["agent"], []
    for style, agent in enumerate(run.ledger.agents):
        x, y = (table.get(group, agent=agent, measure=name) for name in (fitted.error, "success"))
        if agent in fitted.agents and x is not None and y is not None:
            points.append(Point(agent, style, x, y))
    condition = describe_key(group)
    title = f"Success against {fitted.error}{f', {condition}' if condition else ''}"
    chart = Points(
        points,
        title=title,
        x_label=f"{fitted.error} (share, logarithmic)",
        y_label="success (share)",
        line=None if math.isnan(fitted.slope) else (fitted.slope, fitted.intercept),
    )
    r = fitted.r_squared
    fit = f"{short(r.value, 'share')} {interval(r)}".rstrip()
    counts = f"{counted(len(fitted.agents), 'agent')}, {counted(r.clusters, 'map')}"
    return Figure(chart, title, f"R² {fit} ({counts}; {r.note or r.method})")


@section("demand", source="measuring exploration and exploitation errors, Fig. 20", worlds="tasks")
def demand(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on exploration and exploitation errors by how much exploitation a world demands and by
    the size of its graph.

    Each figure has only worlds that exist for all of its values.
    """
    tables, figures = list[TableSpec](), list[CurveSpec]()
    rows, agents = run.rows, run.ledger.agents
    for tag, other_tag, label in (
        ("demand", "graph", "exploitation demand"),
        ("graph", "demand", "size of the task graph"),
    ):
        if not {tag, other_tag} <= set(rows.tags):
            return
        pairs = {(str(a), str(b)) for a, b in zip(rows[tag], rows[other_tag], strict=True) if a is not None}
        values = [name for name in _ORDERS[tag] if any(a == name for a, _ in pairs)]
        shared_values = sorted({b for _, b in pairs if all((name, b) in pairs for name in values)})
        if len(values) < 2 or not shared_values:
            continue
        among_shared = np.isin(rows[other_tag].astype(str), shared_values)
        estimates = estimates_by(rows.where(among_shared & rows.among("measure", PAIRED[:3])), "agent", tag)
        over_text = f" (over {other_tag} {', '.join(shared_values)})"
        positions = {name: float(_ORDERS[tag].index(name)) for name in values}
        columns = [Column(f"{name} {tag}", "share", {tag: name}) for name in values]
        for measure in PAIRED[:3]:
            title = f"{task_title(measure)} by {label}"
            lines = agent_lines(agents, {"measure": measure})
            tables.append(TableSpec(f"{title}{over_text}: {OVER_MAPS}", "agent", estimates, columns, lines, "map"))
            if measure != "success":
                figure = CurveSpec(
                    title,
                    f"{measure} (share)",
                    tag,
                    estimates,
                    [Curve(line.title, line.key, fewest=len(positions)) for line in lines],
                    label_end=over_text,
                    x_label=label,
                    places=positions,
                    bounds=None,
                    ticks={position: name for name, position in positions.items()},
                    most_bands=MOST_BANDS,
                )
                figures.append(figure)
    if tables:
        yield Declared(
            anchor="demand",
            title="By demand and task graph",
            explained=(TEXTS("tasks/demand"),),
            figures=figures,
            legend=_bands_legend(len(agents)),
            folds=[FoldSpec("The numbers, success among them", tables)],
        )


@section("progress", source="measuring exploration and exploitation errors, Fig. 4", worlds="tasks")
def progress(run: RunData) -> Iterator[Declared]:
    """Yield the report's section on how the share of exploration changes over the course of episodes.

    It also names pairs of agents with equal success that differ in this share.
    """
    shares = run.rows.where(run.rows.measure == PROGRESS_SHARE)
    if not len(shares):
        return
    called_for = run.rows.where(run.rows.measure == ONLY_EXPLORATION)
    estimates = Estimates(
        entry for rows in (shares, called_for) if len(rows) for entry in estimate_rows(rows, by=("agent", "progress"))
    )
    ends = [tenth / TENTHS for tenth in range(1, TENTHS + 1)]
    agents = [
        agent for agent in run.ledger.agents if estimates.get(measure=PROGRESS_SHARE, agent=agent, progress=ends[0])
    ]
    parted = divergences(run.rows, run.ledger.agents)
    drawn = {PROGRESS_SHARE: ("Exploration share over the course of an episode", "Exploration share")}
    if len(called_for):
        drawn[ONLY_EXPLORATION] = "Exploration-only steps (Fig. 4a)", "Exploration-only steps"
    figures = [_course(run, title, agents, estimates, measure=measure) for measure, (title, _) in drawn.items()]
    begun = [divergence for divergence in parted if divergence.begins]
    for entry in sorted(begun, key=lambda divergence: -divergence.apart)[:_MAX_PAIRS]:
        curves = Estimates(
            Grouped(key={"measure": PROGRESS_SHARE, "agent": agent, "progress": end}, estimate=estimate)
            for agent, curve in zip((entry.first, entry.second), entry.curves, strict=True)
            for end, estimate in zip(ends, curve, strict=True)
        )
        title = f"Equal success, diverging in tenth {entry.begins}"
        figures.append(_course(run, title, [entry.first, entry.second], curves))
    numbers = [
        TableSpec(
            f"{title} by tenth, all episodes: {OVER_MAPS}",
            "agent",
            estimates,
            [Column(str(at), "share", {"progress": end}) for at, end in enumerate(ends, start=1)],
            agent_lines(agents, {"measure": measure}),
            "map",
        )
        for measure, (_, title) in drawn.items()
    ]
    columns: TextColumns[Divergence] = [
        ("first", lambda divergence: divergence.first),
        ("second", lambda divergence: divergence.second),
        ("maps", lambda divergence: str(divergence.maps)),
        ("mean |difference|", lambda divergence: short(divergence.apart, "share")),
        ("largest difference", lambda divergence: short(_largest(divergence)[1].value, "share")),
        ("interval", lambda divergence: interval(_largest(divergence)[1]) or "undefined"),
        ("tenth", lambda divergence: str(_largest(divergence)[0])),
        ("diverge in", lambda divergence: "not shown" if divergence.begins is None else f"tenth {divergence.begins}"),
    ]
    caption = "Equal success, different exploration: first − second, paired by map"
    yield Declared(
        anchor="progress",
        title="Exploration over time",
        explained=(TEXTS("tasks/progress", most=f"{MOST_APART:g}"),),
        paragraphs=() if parted else (TEXTS("tasks/no equal pair"),),
        figures=figures,
        legend=_bands_legend(len(agents)),
        tables=[plain_table(parted, columns, range(2, 7), caption=caption)] if parted else [],
        folds=[FoldSpec("The exploration shares with their intervals", numbers)],
    )


def _course(
    run: RunData, title: str, agents: Sequence[str], estimates: Estimates, *, measure: str = PROGRESS_SHARE
) -> CurveSpec:
    """Return the share of exploration over the course of an episode; each agent has the style of all figures."""
    style = run.ledger.agents.index
    return CurveSpec(
        title,
        "new cells (share of steps)" if measure == PROGRESS_SHARE else "case 1 (share of steps)",
        "progress",
        estimates,
        [Curve(agent, {"measure": measure, "agent": agent}, style=style(agent)) for agent in agents],
        label_end=f": {', '.join(agents)}",
        x_label="progress of the episode (share of its steps, end of each tenth)",
        ticks=[0.2, 0.4, 0.6, 0.8, 1.0],
        most_bands=MOST_BANDS,
    )


def _largest(entry: Divergence) -> tuple[int, Estimate]:
    """Return the tenth of the episode with the largest difference, and this difference."""
    return max(enumerate(entry.tenths, start=1), key=lambda tenth: abs(tenth[1].value))


def _bands_legend(agents: int) -> str:
    """Return the legend for the interval bands of a figure, which depends on its number of lines."""
    return TEXTS("tasks/bands left out", most=MOST_BANDS) if agents > MOST_BANDS else TEXTS("tasks/bands")


def _by_prompt(title: str, measure: str, estimates: Estimates, order: Sequence[Tag]) -> CurveSpec:
    return CurveSpec(
        title,
        f"{measure} (share)",
        "prompt",
        estimates,
        # Each prompt is a line of one point.
        [Curve(str(prompt), {"measure": measure}, estimates=estimates.only(prompt=prompt)) for prompt in order],
        label_end=" by strategy sentence",
        x_label="strategy sentence",
        places={prompt: float(position) for position, prompt in enumerate(order)},
        bounds=None,
        ticks={float(position): str(prompt) for position, prompt in enumerate(order)},
    )


def task_title(measure: object) -> str:
    """Return the heading of a column for a measure of task worlds, such as "Exploration error"."""
    text = {ARRIVED: "Steps of successes"}.get(str(measure), str(measure))
    return text[:1].upper() + text[1:]


def _task_column(measure: str, unit: str) -> Column:
    return Column(task_title(measure), unit, {"measure": measure})


def _model(description: Mapping[str, object]) -> str:
    model = description.get("model")
    if not isinstance(model, Mapping):
        return "scripted"
    files = model.get("files")
    hub = files.get("hub") if isinstance(files, Mapping) else None
    return str(model.get("model") or hub or "the local model")


def error_tables(
    rows: Rows, ledger: Ledger, agents: Sequence[str], group: Key, *, suffix: str, noun: str
) -> tuple[Table, ...]:
    """Return tables of exploration and exploitation errors, pooled over all steps of each agent, with their counts.

    If any move was invalid, a second table has the mean and the pooled error over valid moves.

    Args:
        rows: rows of results.
        ledger: all estimates of the run.
        agents: the lines of the tables.
        group: values of conditions that select the rows, such as the kind of world.
        suffix: end of the measures' names, "" in task worlds.
        noun: the word for the groups over which intervals are computed, e.g. "map".
    """
    agent_rows = {agent: rows.select(agent=agent, **group) for agent in agents}

    def table(caption: str, valid: str, headings: Sequence[tuple[str, str]]) -> Table:
        lines = []
        for agent in agents:
            cells: list[Estimate | Cell | None] = []
            for kind in KINDS:
                mean = ledger.find("agent", f"{kind} error{valid}{suffix}", agent=agent, **group)
                cells += [*([mean] if valid else []), *_pooled(agent_rows[agent], kind, valid, suffix, noun)]
            lines.append((agent, cells))
        of_kinds = [(text.format(kind=kind, Kind=kind.capitalize()), unit) for kind in KINDS for text, unit in headings]
        return estimates_table(f"{caption}{after(group)}", [("agent", ""), *of_kinds], lines, noun)

    pooled = table(
        TEXTS("tasks/pooled", noun=noun),
        "",
        [("{Kind} error, pooled", "share"), ("{kind} errors / steps", "counts")],
    )
    if not any_invalid(rows, group, suffix):
        return (pooled,)
    caption = TEXTS("tasks/of valid moves", noun=noun)
    mean = f"{{Kind}} error, mean over {noun}s"
    return pooled, table(caption, _OF_VALID, [(mean, "share"), ("pooled", "share"), ("errors / steps", "counts")])


def any_invalid(rows: Rows, group: Key, suffix: str) -> bool:
    """Return whether any agent gave no valid move in some step, under the given conditions.

    Args:
        rows: rows of results.
        group: the conditions: tags with their values, such as the kind of world.
        suffix: end of the measures' names, "" in task worlds.
    """
    group_rows = rows.select(**group)
    totals = [
        [group_rows.select(measure=f"{kind} steps{valid}{suffix}").value.sum() for kind in KINDS]
        for valid in ("", _OF_VALID)
    ]
    return totals[0] != totals[1]


def _pooled(rows: Rows, kind: str, valid: str, suffix: str, noun: str) -> list[Estimate | Cell | None]:
    """Return the ratio of errors of a kind to the steps that called for it, pooled over episodes, and both counts."""
    errors, steps = (rows.select(measure=f"{kind} {count}{valid}{suffix}") for count in ("errors", "steps"))
    if not len(errors):
        return [None, None]
    steps_by_episode = dict(zip(steps.episode_id, steps.value, strict=True))
    denominators = [steps_by_episode[episode] for episode in errors.episode_id]
    pooled = estimate_pooled(errors.value, denominators, errors.cluster, unit="share", bounds=(0.0, 1.0))
    counts = f"{int(errors.value.sum()):,} / {int(steps.value.sum()):,}"
    return [pooled, Cell(value=counts, hint=f"{counted(len(errors), 'episode')}, {counted(pooled.clusters, noun)}")]
