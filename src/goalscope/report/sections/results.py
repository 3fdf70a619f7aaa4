"""The main measures of each agent, one table for each condition that must not be averaged."""

from collections.abc import Iterator, Mapping

from goalscope.measures.behaviour import measure_bounds
from goalscope.report.definitions import HEADLINE
from goalscope.report.estimates import Estimates, describe_key
from goalscope.report.layouts import by_agent
from goalscope.report.run_data import RunData
from goalscope.report.sections.exploration_errors import NO_INVALID, any_invalid, error_tables
from goalscope.report.specs import AnyTable, Column, Curve, CurveSpec, Declared, Line, TableSpec, section
from goalscope.stats import estimate_rows

ARRIVED = "steps of successful episodes"
TASK_MAIN = (
    "success",
    "exploration error",
    "exploitation error",
    ARRIVED,
    "coverage",
    "progress rate",
    "invalid actions",
)
PAIRED = TASK_MAIN[:4]
OVER_MAPS = "mean over the episodes of a map, then over maps"
_PROMPTS = ("base", "exploration", "exploitation", "balance")
_INTERVALS = (
    "Brackets are 95 % intervals over grids (never over steps): each value is averaged within a grid first, then over "
    "grids. Where all grids agree the interval is an exact bound on the number of grids. Hover over a number, or open "
    "“All numbers”, for the counts and the method behind it."
)
_ERRORS = (
    "An error is an action that no reasonable strategy would take, judged on what the agent knew before it. The "
    "exploration error is the share of errors among the steps that called for exploration (cases 1 and 4), the "
    "exploitation error among those that called for exploitation (cases 2, 3 and 4); without such a step it is "
    "undefined, never 0. Brackets are 95 % intervals over maps; the last column counts the maps, a number of them "
    "below a value says on how many it is defined where they are not all."
)


@section("results", worlds="grids")
def headline(run: RunData) -> Iterator[Declared]:
    """The table of agents and their main measures in grids."""
    yield Declared(
        anchor="results",
        title="Results",
        paragraphs=(_INTERVALS,),
        tables=[by_agent(run.ledger, HEADLINE, group, "Main measures") for group in run.ledger.groups("agent")],
    )


@section("task results", source="measuring exploration and exploitation errors, Tab. 2", worlds="tasks")
def task_results(run: RunData) -> Iterator[Declared]:
    """Success and errors in task worlds, as means over maps and pooled."""
    ledger, tables = run.ledger, list[AnyTable]()
    groups = ledger.groups("agent")
    for group in groups:
        where = describe_key(group)
        tables.append(
            TableSpec(
                caption=f"Success and errors{f' – {where}' if where else ''}: {OVER_MAPS}",
                first="agent",
                estimates=ledger.tables["agent"],
                columns=[
                    Column(task_title(name), ledger.measures[name], {"measure": name})
                    for name in TASK_MAIN
                    if name in ledger.measures
                ],
                lines=[Line(agent, {**group, "agent": agent}) for agent in ledger.agents],
                noun="map",
            )
        )
        tables += error_tables(run.rows, ledger, ledger.agents, group, where, suffix="", noun="map")
    invalid = any(any_invalid(run.rows, group, "") for group in groups)
    yield Declared(
        anchor="results",
        title="Results",
        paragraphs=(_ERRORS,) if invalid else (_ERRORS, NO_INVALID),
        tables=tables,
    )


@section("prompts", source="measuring exploration and exploitation errors, Fig. 5", worlds="tasks")
def prompts(run: RunData) -> Iterator[Declared]:
    """Strategy sentences, reasoning on and off together, for each model."""
    tables, figures = list[TableSpec](), list[CurveSpec]()
    models = {name: _model(about) for name, about in run.store.agents().values() if name in run.ledger.agents}
    for model in dict.fromkeys(models.values()) if "prompt" in run.rows.tags else ():
        names = [name for name, of in models.items() if of == model]
        mine = run.rows.where(run.rows.among("agent", names) & run.rows.among("measure", PAIRED))
        mine = mine.where(mine.known("prompt"))
        for memory in dict.fromkeys(mine["memory"].tolist() if "memory" in mine.tags else [None]):
            part = mine if memory is None else mine.select(memory=memory)
            there = list(dict.fromkeys(part["prompt"].tolist()))
            if len(there) < 2:
                continue
            found = Estimates(estimate_rows(part, by=("prompt",), bounds=measure_bounds()))
            order = [name for name in _PROMPTS if name in there]
            order += [name for name in there if name not in order]
            tables.append(
                TableSpec(
                    caption=f"{model}{' with the memory summary' if memory else ''} by strategy sentence, with and "
                    f"without reasoning together: {OVER_MAPS}",
                    first="prompt",
                    estimates=found,
                    columns=[Column(task_title(one), run.ledger.measures[one], {"measure": one}) for one in PAIRED],
                    lines=[Line(str(prompt), {"prompt": prompt}) for prompt in order],
                    noun="map",
                )
            )
            figures += [
                CurveSpec(
                    title=f"{task_title(measure)} of {model}",
                    label_end=" by strategy sentence",
                    x_label="strategy sentence",
                    y_label=f"{measure} (share)",
                    axis="prompt",
                    estimates=found,
                    # Each prompt is a line of one point.
                    curves=[
                        Curve(str(prompt), {"measure": measure}, estimates=found.only(prompt=prompt))
                        for prompt in order
                    ],
                    places={prompt: float(at) for at, prompt in enumerate(order)},
                    bounds=None,
                    ticks={float(at): str(prompt) for at, prompt in enumerate(order)},
                )
                for measure in PAIRED[:3]
            ]
    if tables:
        yield Declared(
            anchor="prompts",
            title="By prompt",
            paragraphs=(
                "The four prompts differ in one sentence that says what to put first: nothing, exploration, "
                "exploitation, both.",
            ),
            tables=tables,
            figures=figures,
            legend="Bars are 95 % intervals over maps.",
        )


def task_title(measure: object) -> str:
    """Return the heading of a measure of task worlds."""
    text = {ARRIVED: "Steps of successes", "invalid actions": "Invalid actions"}.get(str(measure), str(measure))
    return text[:1].upper() + text[1:]


def _model(about: Mapping[str, object]) -> str:
    model = about.get("model")
    if not isinstance(model, Mapping):
        return "scripted"
    files = model.get("files")
    hub = files.get("hub") if isinstance(files, Mapping) else None
    return str(model.get("model") or hub or "the local model")
