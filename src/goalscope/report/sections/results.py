"""The main measures of each agent in grids and in task worlds, and the errors of exploration and exploitation.

The mean over maps and the pooled ratio answer different questions. The mean gives every map the same weight, the pooled
ratio every step, so that maps with long episodes count more. Each caption says which of the two its table shows.

Source: measuring exploration and exploitation errors, Section 5 (normalisation); reporting both: goalscope.
"""

from collections.abc import Iterator, Mapping, Sequence

from goalscope._ground.words import counted
from goalscope.measures.exploration.errors import KINDS
from goalscope.report.blocks import Cell, Table, estimates_table
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.definitions import HEADLINE, explain_failed_turns, in_sentence, shown_accuracies, title_of
from goalscope.report.ledger import Estimates, Key, Ledger, RunData, describe_key, estimates_by
from goalscope.report.specs import (
    AnyTable,
    Column,
    Curve,
    CurveSpec,
    Declared,
    Figure,
    Line,
    TableSpec,
    after,
    agent_lines,
    by_agent,
    mean_over,
    section,
)
from goalscope.report.texts import TEXTS
from goalscope.runs.provenance import packages_of
from goalscope.stats import Estimate, estimate_pooled
from goalscope.stats.rows import Rows, Tag

_ARRIVED = "steps of successful episodes"
TASK_MAIN = (
    "success",
    "exploration error",
    "exploitation error",
    _ARRIVED,
    "coverage",
    "progress rate",
    "invalid actions",
)
PAIRED = TASK_MAIN[:4]
OVER_MAPS = "mean over the episodes of a map, then over maps"
NO_INVALID = TEXTS("tasks/no invalid")
_OF_VALID = " of valid moves"
_PROMPTS = ("base", "exploration", "exploitation", "balance")
_INTERVALS = TEXTS("tasks/intervals")
_ERRORS = TEXTS("tasks/errors")


@section("results", worlds="grids")
def headline(run: RunData) -> Iterator[Declared]:
    """Yield the section with the table of agents and their main measures in grids."""
    setting = run.analysis.failed_turns
    accuracies = shown_accuracies(HEADLINE, setting)
    tables = [by_agent(run.ledger, accuracies, group, "Main measures") for group in run.ledger.groups("agent")]
    tables += _of_packages(run)
    yield Declared(
        anchor="results",
        title="Results",
        explained=(_INTERVALS.replace("grid", run.ledger.noun), explain_failed_turns(setting)),
        tables=tables,
        figures=_pictures_of_packages(run),
    )


def _own(run: RunData) -> list[str]:
    """Return the measures that other packages or files of the working directory registered."""
    return [name for kind, name in packages_of(run.store) if kind == "measure" and name in run.ledger.measures]


def _of_packages(run: RunData) -> list[TableSpec]:
    """Return the tables of measures that other packages registered, in the form of the main tables."""
    groups = run.ledger.groups("agent") if _own(run) else []
    return [by_agent(run.ledger, _own(run), group, "Measures of other packages") for group in groups]


def _pictures_of_packages(run: RunData) -> list[Figure]:
    """Return a figure for each measure of another package: mean and interval, one line per agent."""
    figures = []
    for name in _own(run):
        bars = [
            ForestBar(agent, style, describe_key(group) or "all worlds", estimate)
            for group in run.ledger.groups("agent")
            for style, agent in enumerate(run.ledger.agents)
            if (estimate := run.ledger.find("agent", name, agent=agent, **group)) is not None
        ]
        if bars:
            title = title_of(name)
            chart = Forest(bars, title=title, x_label=f"{in_sentence(name)} ({run.ledger.measures[name]})")
            figures.append(Figure(chart, title, f"{title}: {mean_over(run.ledger.noun)}"))
    return figures


@section("task results", source="measuring exploration and exploitation errors, Tab. 2", worlds="tasks")
def task_results(run: RunData) -> Iterator[Declared]:
    """Yield the section with success and errors in task worlds, as means over maps and pooled."""
    ledger, tables = run.ledger, list[AnyTable]()
    groups = ledger.groups("agent")
    columns = [_task_column(name, ledger.measures[name]) for name in TASK_MAIN if name in ledger.measures]
    for group in groups:
        caption, lines = f"Success and errors{after(group)}: {OVER_MAPS}", agent_lines(ledger.agents, group)
        tables.append(TableSpec(caption, "agent", ledger.tables["agent"], columns, lines, "map"))
        tables += error_tables(run.rows, ledger, ledger.agents, group, suffix="", noun="map")
    tables += _of_packages(run)
    texts = (_ERRORS,) if any(any_invalid(run.rows, group, "") for group in groups) else (_ERRORS, NO_INVALID)
    figures = _pictures_of_packages(run)
    yield Declared(anchor="results", title="Results", explained=texts, tables=tables, figures=figures)


@section("prompts", source="measuring exploration and exploitation errors, Fig. 5", worlds="tasks")
def prompts(run: RunData) -> Iterator[Declared]:
    """Yield the section with results by strategy sentence for each model, pooled over both settings of reasoning."""
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
    """Return the heading of a measure of task worlds."""
    text = {_ARRIVED: "Steps of successes"}.get(str(measure), str(measure))
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
    """Return the pooled ratios with their counts, and, if any move was invalid, mean and pooled ratio over valid moves.

    The names of the measures end with ``suffix`` ("" in task worlds); ``noun`` names the clusters of intervals, e.g.
    "map".
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
    """Return whether any step of a group contained no valid move."""
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
