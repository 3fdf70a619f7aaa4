"""The sections of a report on task worlds: who arrives, at what errors, by demand and prompt, over time.

Source: measuring exploration and exploitation errors, Fig. 1, 4, 5 and 20, Tab. 2 and 3.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.exploration.recorded import PROGRESS_SHARE
from goalscope.report.blocks import (
    Figure,
    Fold,
    Heading,
    Plain,
    Row,
    Section,
    Table,
    counted,
    counted_row,
    interval,
    listed,
)
from goalscope.report.comparison import LEVEL, Compared, Side, compare_pairs, comparison_table
from goalscope.report.figures import Series, embed, lines, short
from goalscope.report.ledger import Ledger, describe_key
from goalscope.report.sections.exploration_errors import NO_INVALID, any_invalid, error_tables, table
from goalscope.report.sections.task_relation import MOST_BANDS, bands_legend, progress_section, relation_section
from goalscope.rows import Rows, Tag
from goalscope.runs.store import Store
from goalscope.stats import Estimate, estimate_rows

EXPLORATION, EXPLOITATION, ARRIVED = "exploration error", "exploitation error", "steps of successful episodes"
MAIN = ("success", EXPLORATION, EXPLOITATION, ARRIVED, "coverage", "progress rate", "invalid actions")
PAIRED = ("success", EXPLORATION, EXPLOITATION, ARRIVED)
DEMANDS = ("low", "medium", "high")
GRAPHS = ("small", "medium", "large")
PROMPTS = ("base", "exploration", "exploitation", "balance")
CITED = (
    "Paper: Measuring exploration and exploitation errors in language-model agents; its Section 4 and Appendix B "
    "define the metric. docs/exploration.md says what is done where its text leaves a choice open."
)
_ABOUT = (
    "An error is an action that no reasonable strategy would take, judged on what the agent knew before it. The "
    "exploration error is the share of errors among the steps that called for exploration (cases 1 and 4), the "
    "exploitation error among those that called for exploitation (cases 2, 3 and 4); without such a step it is "
    "undefined, never 0. Brackets are 95 % intervals over maps; the last column counts the maps, a number of them "
    "below a value says on how many it is defined where they are not all."
)
_DEFINITIONS = {
    "success": "share of episodes that achieve the goal within the budget",
    EXPLORATION: "errors in cases 1 and 4 over the steps in cases 1 and 4 of an episode",
    EXPLOITATION: "errors in cases 2, 3 and 4 over the steps in cases 2, 3 and 4 of an episode",
    "exploration error of valid moves": "the exploration error over the actions that were moves",
    "exploitation error of valid moves": "the exploitation error over the actions that were moves",
    "exploration errors": "number of errors that count as exploration",
    "exploitation errors": "number of errors that count as exploitation",
    "exploration steps": "steps in cases 1 and 4",
    "exploitation steps": "steps in cases 2, 3 and 4",
    "exploration errors of valid moves": "number of errors that count as exploration among the moves",
    "exploitation errors of valid moves": "number of errors that count as exploitation among the moves",
    "exploration steps of valid moves": "moves in cases 1 and 4",
    "exploitation steps of valid moves": "moves in cases 2, 3 and 4",
    "steps": "actions of an episode",
    ARRIVED: "actions of an episode that achieved the goal; undefined for one that did not",
    "invalid actions": "actions that did nothing: no way there, or no direction named",
    "detours with the goal pending": "steps into a new cell while the goal was pending; free of error by definition",
    "progress rate": "share of the steps that entered an unobserved cell or achieved a pending node",
    "coverage": "share of the map's cells that were observed",
    "achieved nodes": "share of the nodes that were achieved",
    PROGRESS_SHARE: "share of the steps that entered an unobserved cell, by tenth of the episode",
}


def on_tasks(rows: Rows) -> bool:
    """Return whether a run was made in task worlds."""
    return EXPLORATION in set(rows.measure.tolist())


def task_summary(rows: Rows, ledger: Ledger, digest: str) -> list[str]:
    """Return what was run as sentences."""
    episodes = rows.where(rows.measure == "success")
    steps = int(rows.value[rows.measure == "steps"].sum())
    maps = len(set(episodes.grid_id.tolist()))
    agents = f"{counted(len(ledger.agents), 'agent')} ({listed(ledger.agents)})"
    return [
        f"{agents} acted in {counted(len(episodes), 'episode')} "
        f"with {counted(steps, 'step')} on {counted(maps, 'task map')}, judged by their actions alone.",
        f"Content hash of the run: {digest[:16]}… (in full under “How this was run”).",
    ]


def task_sections(store: Store, rows: Rows, ledger: Ledger) -> list[Section]:
    """Return the sections on what agents do in task worlds, those that a run has data for."""
    return [
        _results(rows, ledger),
        *_prompts(rows, store, ledger),
        *_declared(store, rows, ledger),
        *_named(rows, ledger),
        *relation_section(rows, ledger),
        *_demands(rows, ledger),
        *progress_section(rows, ledger),
    ]


def task_definitions(ledger: Ledger) -> Section:
    """Return what each measure means."""
    known = [
        (name, unit, _DEFINITIONS.get(name, "see where its rows were made")) for name, unit in ledger.measures.items()
    ]
    plain = Plain(caption="", headings=("measure", "unit", "definition"), rows=tuple(known))
    return Section(anchor="definitions", title="What the measures mean", plain=(plain,), legend=CITED)


def _results(rows: Rows, ledger: Ledger) -> Section:
    tables: list[Table] = []
    invalid = False
    for group in ledger.groups("agent"):
        where = describe_key(group)
        measures = [name for name in MAIN if name in ledger.measures]
        lines = [
            _line(agent, [ledger.find("agent", name, agent=agent, **group) for name in measures])
            for agent in ledger.agents
        ]
        headings = [Heading(text=_title(name), unit=ledger.measures[name]) for name in measures]
        caption = f"Success and errors{f' – {where}' if where else ''}: mean over the episodes of a map, then over maps"
        tables.append(table(caption, headings, lines, "map"))
        tables += error_tables(rows, ledger, ledger.agents, group, where, suffix="", noun="map")
        invalid |= any_invalid(rows, group, "")
    text = (_ABOUT,) if invalid else (_ABOUT, NO_INVALID)
    return Section(anchor="results", title="Results", paragraphs=text, tables=tuple(tables))


def _prompts(rows: Rows, store: Store, ledger: Ledger) -> list[Section]:
    """Return the table of strategies (Fig. 5), reasoning on and off together, for each model."""
    if "prompt" not in rows.tags:
        return []
    models = {name: _model(about) for name, about in store.agents().values() if name in ledger.agents}
    tables, figures = list[Table](), list[Figure]()
    for model in dict.fromkeys(models.values()):
        names = [name for name, of in models.items() if of == model]
        mine = rows.where(np.isin(rows["agent"].astype(str), names) & np.isin(rows.measure.astype(str), PAIRED))
        mine = mine.where(mine.known("prompt"))
        for memory in dict.fromkeys(mine["memory"].tolist() if "memory" in mine.tags else [None]):
            part = mine if memory is None else mine.select(memory=memory)
            prompts = list(dict.fromkeys(part["prompt"].tolist()))
            if len(prompts) < 2:
                continue
            estimates = estimate_rows(part, by=("prompt",), bounds=measure_bounds())
            found = {(g.key["prompt"], g.key["measure"]): g.estimate for g in estimates}
            order = [name for name in PROMPTS if name in prompts] + [name for name in prompts if name not in PROMPTS]
            told = [_line(str(prompt), [found.get((prompt, name)) for name in PAIRED]) for prompt in order]
            headings = [Heading(text=_title(name), unit=ledger.measures[name]) for name in PAIRED]
            caption = (
                f"{model}{' with the memory summary' if memory else ''} by strategy sentence, with and without "
                "reasoning together: mean over the episodes of a map, then over maps"
            )
            tables.append(table(caption, headings, told, "map", "prompt"))
            figures += [_by_prompt(model, name, order, found, f"p{len(tables)}") for name in PAIRED[:3]]
    if not tables:
        return []
    text = (
        "The four prompts differ in one sentence that says what to put first: nothing, exploration, exploitation, both."
    )
    return [
        Section(
            anchor="prompts",
            title="By prompt",
            paragraphs=(text,),
            tables=tuple(tables),
            figures=tuple(figures),
            legend="Bars are 95 % intervals over maps.",
        )
    ]


def _by_prompt(
    model: str, measure: str, order: Sequence[Tag], found: Mapping[tuple[Tag, Tag], Estimate], prefix: str
) -> Figure:
    """Draw one measure of a model by strategy sentence (Fig. 5), a point with its interval each."""
    series = [
        Series(label=str(prompt), style=index, x=(float(index),), estimates=(found[prompt, measure],))
        for index, prompt in enumerate(order)
    ]
    title = f"{_title(measure)} of {model}"
    ticks = {float(index): str(prompt) for index, prompt in enumerate(order)}
    svg = lines(series, title=title, x_label="strategy sentence", y_label=f"{measure} (share)", ticks=ticks)
    return Figure(svg=embed(svg, f"{prefix}-{measure[:8]}", f"{title} by strategy sentence"))


def _model(about: Mapping[str, object]) -> str:
    model = about.get("model")
    if not isinstance(model, Mapping):
        return "scripted"
    files = model.get("files")
    hub = files.get("hub") if isinstance(files, Mapping) else None
    return str(model.get("model") or hub or "the local model")


def _declared(store: Store, rows: Rows, ledger: Ledger) -> list[Section]:
    """Return the pairs of agents that the study declared, tested as one family, and what they say in words."""
    study = store.study()
    pairs = study.analysis.pairs if study is not None and study.analysis is not None else ()
    there = [(first, second) for first, second in pairs if {first, second} <= set(ledger.agents)]
    if not there:
        return []
    sides = {name: Side(name=name, rows=rows.select(agent=name)) for pair in there for name in pair}
    tests = compare_pairs([(sides[second], sides[first]) for first, second in there], PAIRED, name="declared pairs")
    caption = (
        "Declared before the data: paired by map, signed-rank tests corrected for all "
        f"{counted(len(tests), 'test')} of this table (one family, level {LEVEL:g})"
    )
    text = [
        _sentence(first, second, [t for t in tests if (t.first, t.second) == (second, first)])
        for first, second in there
    ]
    plain = (comparison_table(tests, caption=caption, clusters="maps"),)
    return [Section(anchor="pairs", title="Declared comparisons", paragraphs=tuple(text), plain=plain)]


def _named(rows: Rows, ledger: Ledger) -> list[Section]:
    """Return names with meaning against their symbolic twins (Tab. 3), each agent with itself."""
    if "names" not in ledger.conditions:
        return []
    pairs, captions = [], {}
    for agent in ledger.agents:
        mine = rows.select(agent=agent)
        sides = [Side(name=f"{agent}, {kind}", rows=mine.select(names=kind)) for kind in ("semantic", "symbolic")]
        if all(len(side.rows) for side in sides):
            pairs.append((sides[0], sides[1]))
            captions[agent] = (sides[1].name, sides[0].name)
    if not pairs:
        return []
    tests = compare_pairs(pairs, PAIRED, name="names")
    words = [
        _sentence(symbolic, semantic, [test for test in tests if test.first == semantic])
        for symbolic, semantic in captions.values()
    ]
    caption = f"Paired by map; one family of {counted(len(tests), 'test')}, level {LEVEL:g}"
    return [
        Section(
            anchor="names",
            title="Names with and without meaning",
            paragraphs=tuple(words),
            plain=(comparison_table(tests, caption=caption, clusters="maps"),),
        )
    ]


def _sentence(baseline: str, changed: str, tests: Sequence[Compared]) -> str:
    """Return in words what a change did, each difference with its interval; no test, no claim."""
    parts = []
    for test in tests:
        difference = test.paired.difference
        if test.paired.labels and not test.paired.differences.any():
            maps = counted(len(test.paired.labels), "map")
            parts.append(f"{_title(test.measure).lower()}: the same on each of {maps}")
            continue
        if not test.paired.labels or not difference.has_interval:
            parts.append(f"{_title(test.measure).lower()}: not comparable")
            continue
        size = f"{short(difference.value, difference.unit)} {interval(difference)}"
        # Each interval stands for its own difference; the tests are corrected for all of the family.
        without = difference.low > 0 or difference.high < 0
        alone = "no difference shown after correction, though its own interval leaves out 0"
        unshown = alone if without else "no difference shown"
        claim = unshown if not test.corrected.rejected else "higher" if difference.value > 0 else "lower"
        parts.append(f"{_title(test.measure).lower()}: {claim} ({size})")
    return f"{changed} against {baseline}: {'; '.join(parts)}."


def _demands(rows: Rows, ledger: Ledger) -> list[Section]:
    """Return both errors by exploitation demand and by graph (Fig. 20), where all of the other occur."""
    if not {"demand", "graph"} <= set(rows.tags):
        return []
    tables, figures = [], []
    for tag, order, other, words in (
        ("demand", DEMANDS, "graph", "exploitation demand"),
        ("graph", GRAPHS, "demand", "size of the task graph"),
    ):
        pairs = {(str(a), str(b)) for a, b in zip(rows[tag], rows[other], strict=True) if a is not None}
        values = [name for name in order if any(a == name for a, _ in pairs)]
        kept = sorted({b for _, b in pairs if all((name, b) in pairs for name in values)})
        if len(values) < 2 or not kept:
            continue
        mine = rows.where(np.isin(rows[other].astype(str), kept) & np.isin(rows.measure.astype(str), PAIRED[:3]))
        found = {
            (g.key["agent"], g.key[tag], g.key["measure"]): g.estimate
            for g in estimate_rows(mine, by=("agent", tag), bounds=measure_bounds())
        }
        over = f" (over {other} {', '.join(kept)})"
        ticks = {float(order.index(name)): name for name in values}
        for measure in PAIRED[:3]:
            title = f"{_title(measure)} by {words}"
            lines_of = [_line(agent, [found.get((agent, name, measure)) for name in values]) for agent in ledger.agents]
            headings = [Heading(text=f"{name} {tag}", unit="share") for name in values]
            tables.append(
                table(f"{title}{over}: mean over the episodes of a map, then over maps", headings, lines_of, "map")
            )
            series = [
                Series(label=agent, style=style, x=tuple(ticks), estimates=tuple(curve))
                for style, agent in enumerate(ledger.agents)
                if len(curve := [e for name in values if (e := found.get((agent, name, measure)))]) == len(ticks)
            ]
            if measure != "success" and series:
                svg = lines(
                    series,
                    title=title,
                    x_label=words,
                    y_label=f"{measure} (share)",
                    ticks=ticks,
                    bands=len(series) <= MOST_BANDS,
                )
                figures.append(Figure(svg=embed(svg, f"d-{tag}-{measure[:8]}", f"{title}{over}")))
    if not tables:
        return []
    text = (
        "Exploitation demand is the density of nodes and the width of corridors that a map is drawn with; low "
        "exploitation demand is high exploration demand. Each point averages over its own maps."
    )
    return [
        Section(
            anchor="demand",
            title="By demand and task graph",
            paragraphs=(text,),
            figures=tuple(figures),
            legend=bands_legend(len(ledger.agents)),
            folds=(Fold(title="The numbers, success among them", tables=tuple(tables)),),
        )
    ]


def _line(label: str, found: Sequence[Estimate | None]) -> Row:
    return counted_row(label, found, "map")


def _title(measure: Tag) -> str:
    text = {ARRIVED: "Steps of successes", "invalid actions": "Invalid actions"}.get(str(measure), str(measure))
    return text[:1].upper() + text[1:]
