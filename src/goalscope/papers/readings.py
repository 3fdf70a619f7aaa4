"""Lines of an item: our estimates from the rows of a run beside the printed values, and what both were measured on.

`measured_on.yaml` declares, for each item, what its printed numbers were measured on and where that is printed. Ours is
declared from the study and the agents of a run. Whether a printed number lies in our interval says something only if
both declarations agree, so every difference stands beside the number. What is unknown counts as different.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
from pydantic import Field

from goalscope._ground.folder import package_text
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.inside.probing.beliefs import ACTIONS, WRONG, WRONG_ON_MAP, pooled_share
from goalscope.inside.probing.fitting import PlanSettings
from goalscope.inside.probing.plans import DEVIATION, ERROR, SQUARED, summarise_distance, summarise_plans
from goalscope.inside.probing.scores import summarise
from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.comparison import compare_transforms
from goalscope.measures.exploration.errors import log_relation
from goalscope.papers.item import MIDDLE, How, Item, ItemReading
from goalscope.runs import Study
from goalscope.runs.study_parts import Decoders, Inside, Probes
from goalscope.stats import Estimate, Grouped, estimate_pooled, estimate_rows
from goalscope.stats.records import StoredEstimate
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds.grid import COMPACT, MATRIX

UNKNOWN: Final = "unknown"
"""Beginning of a value that is not known. Two unknown values count as different."""

LEAST_GRIDS: Final = 10
"""Minimum number of grids or maps behind an estimate that a printed number is compared with."""

FIELDS: Final = (
    *("model", "worlds", "generator", "layout", "horizon", "training", "test", "probe", "subset", "label"),
    *("prompt", "observations", "temperature", "top_p", "max_tokens", "reasoning_effort", "n"),
)
"""What a declaration can say, in the order of the page. An item declares the fields that can change its numbers."""

OFF_BY_ONE: Final = ", off by one"
"""End of the label of a number that is computed a second time, with the off-by-one of the authors."""

SAMPLING: Final = ("temperature", "top_p", "max_tokens", "reasoning_effort")
COUNTED: Final = "n"
"""The one field that changes no expectation; it decides only where a number depends on n, as a p-value does."""
_BY_N: Final = ("p-value", "effect")

_ENCODED: Final = {
    MATRIX: "matrix with labelled rows and columns, padded to the widest label",
    COMPACT: "matrix with labelled rows and columns, not padded",
}
_MAZE: Final = "mazes by depth-first search, of whose inner walls the share d is kept"
_ROOMS: Final = "this project's: rooms and the doors between them first, then start and goal"
_GENERATORS: Final[Mapping[str, str]] = {
    "grid": _MAZE,
    **dict.fromkeys(("key-door", "key-no-door", "two-path"), _ROOMS),
    "task-map": "this project's, after appendix C.1",
    "cooking": "this project's cooking maps",
}


class Term(StrictRecord):
    """What the printed numbers and ours were measured on in one respect, e.g. the temperature, to see if they are
    comparable.

    Attributes:
        field: the respect, one of `FIELDS`.
        printed: what the printed numbers were measured on; begins with `UNKNOWN` if that is not known.
        place: where this is printed: a section, "not printed", or "authors' code".
        ours: the same for our numbers.
    """

    field: str
    printed: str
    place: str
    ours: str

    @property
    def equal(self) -> bool:
        """Whether the printed numbers and ours agree in this respect, such as the temperature, and both values are
        known.
        """
        return self.printed == self.ours and not self.printed.startswith(UNKNOWN)

    @property
    def difference(self) -> str:
        """In words, what the printed numbers and ours were measured on, such as "temperature: 0 (section 3), ours
        0.7".
        """
        return f"{self.field}: {self.printed} ({self.place}), ours {self.ours}"


@cache
def blocks() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Read from `measured_on.yaml` on what the numbers printed in the reproduced papers were measured.

    In the file, each declaration, such as "telos grids", describes some printed numbers by fields, such as the model,
    the worlds and the horizon. A declaration with the key `like` copies another one and changes some of its fields;
    null removes a field.

    Returns:
        Name of a declaration -> field -> two or three texts: the printed value, where the paper prints it (such as
        "section 4"), and our value if no run decides it.

    Raises:
        ValueError: a field is unknown or has too few or too many texts.
    """
    plain: dict[str, dict[str, Any]] = read_yaml_text(
        package_text("goalscope.papers", "measured_on.yaml"), "measured_on"
    )
    finished: dict[str, dict[str, Any]] = {}
    for name, block in plain.items():
        merged = finished.get(block.pop("like", ""), {}) | block
        finished[name] = {term: texts for term, texts in merged.items() if texts is not None}
        for term, texts in finished[name].items():
            if term not in FIELDS or len(texts) not in (2, 3):
                raise ValueError(
                    f"measured_on.yaml: {name}: {term} must be one of {', '.join(FIELDS)} with 2 or 3 texts"
                )
    return finished


def declare(item: Item, ours: Mapping[str, str], reading: ItemReading | None = None) -> list[Term]:
    """Declare, field by field, what printed numbers of a paper and ours were measured on, to see if they are
    comparable.

    Args:
        item: the item, a figure, table or passage of a paper.
        ours: field -> what our numbers were measured on, see `ours_of`; empty for an item that is computed.
        reading: one line of the item; declarations of its own replace those of the item. None for the item as a whole.
    """
    texts = {**blocks().get(item.basis, {}), **(reading.basis if reading is not None else {})}
    declared = []
    for name in (name for name in FIELDS if name in texts):
        printed, place, *fixed = texts[name]
        text = fixed[0] if fixed else ours.get(name, UNKNOWN)
        if name == "model" and item.model:
            # A table of several models has a number of each, so that one of them is enough.
            readings = item.readings if reading is None else (reading,)
            models = dict.fromkeys([item.model, *(model for other in readings for model in other.others)])
            printed = text if text in models else ", ".join(models)
        declared.append(Term(field=name, printed=printed, place=place, ours=printed if text == "same" else text))
    return declared


def differences(declared: Sequence[Term], reading: ItemReading) -> Iterator[str]:
    """Yield, in words, the differences because of which a printed number and ours may not be compared.

    Args:
        declared: what the printed numbers and ours were measured on, field by field, see `declare`.
        reading: the line of the item that is compared; only numbers that depend on n need the same n.
    """
    for entry in declared:
        if not entry.equal and (entry.field != COUNTED or reading.how in _BY_N):
            yield entry.difference


def too_few(ours: Estimate | None) -> Iterator[str]:
    """Yield a reason not to compare our estimate with a printed number if it rests on too few grids; else nothing."""
    if ours is not None and ours.method != "exact" and ours.clusters < LEAST_GRIDS:
        yield f"fewer than {LEAST_GRIDS} grids"


def ours_of(
    item: Item,
    study: Study | None,
    descriptions: Mapping[str, Mapping[str, Any]],
    model: str = "",
    inside: Inside | None = None,
) -> dict[str, str]:
    """Describe in words what the numbers of a run were measured on, such as model, worlds and horizon, field by field.

    The descriptions are compared with those of printed numbers, to see if the numbers are comparable.

    Args:
        item: the item (a figure, table or passage of a paper) whose numbers come from the run.
        study: the study of the run, None for imported logs.
        descriptions: name of an agent -> its description as stored in the run.
        model: the papers' name for the model, "" if the papers do not use it.
        inside: the settings of the probes, if the item shows results of probes.

    Returns:
        Field (one of `FIELDS`, such as "horizon" or "temperature") -> the description. Fields that the run does not
        settle are missing.
    """
    fields = {"model": model or ", ".join(descriptions), **_of_agents(item, list(descriptions.values()))}
    if study is None:
        return fields
    plain = study.dump()
    entries = plain["worlds"]
    fields |= {
        "worlds": "; ".join(map(_world, entries)),
        "generator": "; ".join(dict.fromkeys(map(_generator, entries))),
        "horizon": _horizon(plain.get("horizon")),
        "n": f"{' and '.join(dict.fromkeys(map(_count, entries)))}, {_times(study.trajectories)}",
    }
    return fields | ({} if inside is None else _of_probes(item, entries, study.trajectories, inside))


def _of_agents(item: Item, descriptions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Declare layout, prompt and sampling; unknown for logs, and for agents that are asked nothing."""
    chat_agents = [description for description in descriptions if description.get("kind") in (CHAT, TASK_CHAT)]
    if not chat_agents or len(chat_agents) < len(descriptions):
        return {}
    prompts = [str(description.get("printed") or "own wording") for description in chat_agents]
    sampling = [description.get("sampling", {}) for description in chat_agents]
    encodings = [agent.get("encoding", MATRIX) for agent in chat_agents]
    printed = blocks().get(item.basis, {}).get("prompt", [""])[0]
    return {
        "layout": _joined(_ENCODED.get(name, name) for name in encodings),
        "prompt": printed if set(prompts) <= set(item.prompts) and prompts else _joined(prompts),
        "observations": "own wording",
        **{name: _joined(_text(settings.get(name, UNKNOWN)) for settings in sampling) for name in SAMPLING},
    }


def _joined(texts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(texts))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, int | float) and abs(value) < 1000 else str(value)


def _world(entry: Mapping[str, Any]) -> str:
    """Describe the worlds of an entry by its settings, without their number, their generator and what is usual."""
    usual: dict[str, Any] = {"transforms": ["identity"], "minimum_distance": 1}
    left_out = ("kind", "count", "goal_side", "control")
    settings = {name: value for name, value in entry.items() if name not in left_out}
    parts = [
        f"{name.replace('_', ' ')} {_pairs(value) if isinstance(value, dict) else _text(value)}"
        for name, value in settings.items()
        if value not in (None, False, {}, usual.get(name, ()))
    ]
    return " ".join([entry["kind"], *parts])


def _pairs(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in mapping.items())


def _generator(entry: Mapping[str, Any]) -> str:
    generator = _GENERATORS.get(entry["kind"], f"worlds of kind {entry['kind']}")
    return f"{generator}, the goal in the {entry['goal_side']} half" if entry.get("goal_side") else generator


def _horizon(horizon: Mapping[str, Any] | None) -> str:
    if horizon is None:
        return "that of the map"
    steps = horizon.get("steps")
    return f"{steps} steps" if steps is not None else f"{horizon['factor']:g} times the shortest path"


def _count(entry: Mapping[str, Any]) -> str:
    return f"{entry['count']} of each kind" if "count" in entry else f"{entry.get('starts', 1)} starts of each map"


def _times(trajectories: int) -> str:
    return f"{trajectories} {'trajectory' if trajectories == 1 else 'trajectories'} each"


def count_tested_grids(item: Item, study: Study) -> int:
    """Return the number of grids or maps on which a study measures a figure or table (item) of a paper.

    If the item has probes, only the grids of the test set count.
    """
    inside = study.analysis.inside if study.analysis is not None else None
    if inside is not None and item.full:
        return _grid_counts(study.dump()["worlds"], inside)[1]
    return len({world.cluster_id for world in study.worlds()})


def _grid_counts(entries: Sequence[Mapping[str, Any]], inside: Inside) -> tuple[int, int]:
    """Return the number of grids, and that of grids on which probes are tested."""
    tested = total = 0
    for entry in entries:
        kinds = len(entry.get("sizes", [0])) * len(entry.get("densities", [0]))
        count = int(entry.get("count", 1))
        total += kinds * count
        tested += kinds * min(max(1, round(inside.test * count)), count - 1)
    return total, tested


def _of_probes(item: Item, entries: Sequence[Mapping[str, Any]], trajectories: int, inside: Inside) -> dict[str, str]:
    """Declare the training and the test set, the fit, and the steps or plans that are scored."""
    total, tested = _grid_counts(entries, inside)
    steps = {None: "every step", 1: "first steps"}.get(inside.steps, f"{inside.steps} steps of each grid")
    fit: Probes | Decoders = inside.probes
    part, probe = inside.probes.validation, f"width {inside.probes.hidden}, "
    if any(reading.how == "plans" for reading in item.readings):
        fit, part = inside.decoders, PlanSettings().validation
        probe = f"width {fit.width}, feed-forward {fit.feedforward}, "
        steps += f", longer plans {fit.longer}"
        if item.where.get("plans") == "long":
            steps += ", at N those of at least N moves"
    validation = round(part * (total - tested))
    sizes = {"trained": total - tested - validation, "validation": validation, "tested": tested}
    sizes = {name: trajectories * grids for name, grids in sizes.items()}
    return {
        "training": "{trained} trajectories and {validation} for validation, on grids that are not tested".format(
            **sizes
        ),
        "test": "{tested} trajectories".format(**sizes),
        "probe": f"{probe}{fit.epochs} epochs, rate {fit.rate:g}, batch {fit.batch}",
        "subset": steps,
    }


_MARGINS: Final = {"success": 0.1, "action accuracy": 0.05}
"""Margins of the tests of transforms; p-values and effects do not depend on them."""

CONTROL: Final = "random"
"""Name of the scripted agent whose values are shown beside a model's if a line of an item declares no other control."""

_FURTHER_MEASURES: Final[Mapping[How, tuple[str, ...]]] = {
    "beliefs": (ACTIONS, WRONG, WRONG_ON_MAP),
    "distance": (ERROR, SQUARED, DEVIATION),
    "relation": ("success",),
}
"""Measures that a figure needs in addition to its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgents:
    """The agents of a run whose numbers are compared with those that a paper prints.

    Attributes:
        agents: names of the model's agents in the run.
        model: the papers' name for the model, "" if there is none.
        ours: field -> what the numbers of the run were measured on, see `goalscope.papers.readings.ours_of`.
    """

    agents: tuple[str, ...]
    model: str = ""
    ours: Mapping[str, str] = field(default_factory=dict)


class ItemLine(StrictRecord):
    """One number of a figure or table of a paper: ours, the printed one, a control, and whether they agree.

    Attributes:
        label: name of the line.
        value: the value of the tag by which the reading is split, such as a grid size, or None.
        published: model -> printed value.
        ours: our estimate, None if the run has no such results.
        control: estimate for the reading's control or, if the reading declares none, for the agent `CONTROL` in the
            same run; None if there is neither.
        control_is: description of the control if it is not that agent.
        percent: whether all numbers are in per cent.
        within: whether the printed number for the same model lies in our interval; None if there is no such number, if
            the two are not comparable, or if our estimate has no interval.
        differs: the differences between what the two were measured on, which stand in the way of a comparison.
    """

    label: str
    value: Tag
    published: dict[str, float | str | None]
    ours: StoredEstimate | None
    control: StoredEstimate | None = None
    control_is: str = ""
    percent: bool
    within: bool | None = None
    differs: tuple[str, ...] = Field(default=(), max_length=1000)


def read(item: Item, rows: Rows, subject: ReadAgents) -> list[ItemLine]:
    """Compute the numbers of a figure or table (item) of a paper from the results of a run, in the order of the paper.

    Args:
        item: an item with a study.
        rows: all values of measures of the run.
        subject: the agents and their model.
    """
    return [
        line
        for reading in item.readings
        for arm in _arms(item, reading, rows, subject)
        for line in _lines(item, reading, rows, arm, "" if arm is subject else f", {arm.agents[0]}")
    ]


def _arms(item: Item, reading: ItemReading, rows: Rows, subject: ReadAgents) -> list[ReadAgents]:
    """Return the subject, or one subject per agent if several agents would share a line."""
    if reading.how == "relation" or len(subject.agents) == 1:
        return [subject]
    selected_rows = selected(item, reading.where, rows, subject, [reading.measure])
    if not len(selected_rows) or (reading.by and reading.by not in selected_rows.tags):
        return [subject]
    values = selected_rows[reading.by].tolist() if reading.by else [None] * len(selected_rows)
    pairs = set(zip(selected_rows["agent"].tolist(), values, strict=True))
    if len(pairs) == len({value for _, value in pairs}):
        return [subject]
    return [replace(subject, agents=(name,)) for name in dict.fromkeys(selected_rows["agent"].tolist())]


def selected(item: Item, tags: Mapping[str, Tag], rows: Rows, subject: ReadAgents, measures: Sequence[str]) -> Rows:
    """Select the results of a run that belong to a figure or table (item): those of some measures, agents and tags.

    Args:
        item: the item, whose tags (named values of the results, such as ``size: 7``) select rows.
        tags: further tags, which have priority. The layer `MIDDLE` stands for the middle one of the layers that were
            read.
        rows: values of measures of the run.
        subject: the agents.
        measures: names of the measures.
    """
    matching = rows.where(rows.among("measure", measures) & rows.among("agent", subject.agents))
    for name, value in {**item.where, **tags}.items():
        if name == "layer" and value == MIDDLE:
            layers = sorted({int(layer) for layer in matching.tags.get("layer", ()) if layer is not None})
            value = layers[len(layers) // 2] if layers else None
        if name not in matching.tags:  # a tag that no row has counts as None in every row
            matching = (
                matching if value is None or value is False else matching.where(np.zeros(len(matching), dtype=bool))
            )
        else:
            matching = matching.select(**{name: value})
    return matching


def _estimates(
    item: Item, reading: ItemReading, tags: Mapping[str, Tag], rows: Rows, subject: ReadAgents
) -> list[Grouped]:
    measures = (reading.measure, *_FURTHER_MEASURES.get(reading.how, ()))
    selected_rows = selected(item, tags, rows, subject, measures)
    by = (reading.by,) if reading.by else ()
    if len(selected_rows) and all(name in selected_rows.tags for name in by):
        return _HOW[reading.how](selected_rows, reading.measure, by)
    return []


def _at(groups: Sequence[Grouped], by: str, value: Tag) -> Estimate | None:
    return next((group.estimate for group in groups if not by or _equal(group.key[by], value)), None)


def _lines(item: Item, reading: ItemReading, rows: Rows, subject: ReadAgents, ending: str) -> Iterator[ItemLine]:
    printed = {} if reading.published is None else {item.model: reading.published}
    printed |= reading.others
    groups = _estimates(item, reading, reading.where, rows, subject)
    own_controls = (
        _estimates(item, reading, {**reading.where, **reading.control}, rows, subject) if reading.control else []
    )
    controls = _estimates(item, reading, reading.where, rows, replace(subject, agents=(CONTROL,)))
    values: list[Tag] = [None]
    if reading.by:
        printed_values = [value for numbers in printed.values() if isinstance(numbers, dict) for value in numbers]
        measured_values = [group.key[reading.by] for group in groups if group.key[reading.by] is not None]
        values = list(dict.fromkeys([*printed_values, *sorted(measured_values, key=str)]))
        if all(isinstance(value, int | float) for value in values):
            values.sort(key=float)  # type: ignore[arg-type]
    declared = declare(item, subject.ours, reading)
    for value in values:
        ours = _at(groups, reading.by, value)
        published = {
            name: numbers.get(value) if isinstance(numbers, dict) else numbers for name, numbers in printed.items()
        }
        differs = tuple[str, ...]()
        if any(number is not None for number in published.values()):
            differs = (*differences(declared, reading), *too_few(ours))
        control = _at(own_controls, reading.by, value)
        yield ItemLine(
            label=f"{reading.label}{ending}",
            value=reading.called.get(value, value),
            published=published,
            ours=ours,
            control=control or _at(controls, reading.by, value),
            control_is=reading.control_is if control else "",
            percent=reading.percent,
            within=None if differs else _within(published.get(subject.model), ours, reading.percent),
            differs=differs,
        )


def in_figures(estimate: Estimate | None, percent: bool) -> str:
    """Format an estimate with its interval as text, such as "0.912 [0.870, 0.944]".

    Args:
        estimate: the estimate; for None the text is "not in this run". An undefined value is shown with its reason.
        percent: whether to write it in per cent, as the paper does.
    """
    if estimate is None:
        return "not in this run"
    if estimate.method == "exact":
        return f"{estimate.value:.6g}"
    scale, digits = (100, 1) if percent else (1, 3)
    if estimate.value != estimate.value:
        return f"undefined{f' ({estimate.note})' if estimate.note else ''}"
    text = f"{scale * estimate.value:.{digits}f}"
    if estimate.has_interval:
        return f"{text} [{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"
    return f"{text} ({estimate.note})" if estimate.note else text


def printed_number(printed: float | str | None) -> float | None:
    """Return the number in a value that a paper prints, i.e. the number before any ``±``.

    The result is None if the value is a word.
    """
    if isinstance(printed, str):
        try:
            return float(printed.partition("±")[0])
        except ValueError:
            return None
    return printed


def _within(printed: float | str | None, ours: Estimate | None, percent: bool) -> bool | None:
    """Return whether a printed number lies in our interval, with a tolerance of one unit in its last digit."""
    number = printed_number(printed)
    if number is None or ours is None or not ours.has_interval:
        return None
    scale, slack = (100 if percent else 1), 0.5 * 10 ** -_digits(printed)
    return bool(scale * ours.low - slack <= number <= scale * ours.high + slack)


def _digits(printed: object) -> int:
    return len(str(printed).partition("±")[0].strip().partition(".")[2])


def equal_as_printed(line: ItemLine) -> bool:
    """Return whether our number, rounded to the printed digits, equals the printed number; False if either is missing.

    If several models have printed numbers, the first is compared.
    """
    for printed in line.published.values():
        number = printed_number(printed)
        if number is not None and line.ours is not None:
            return bool(abs(line.ours.value - number) <= 0.5 / 10 ** _digits(printed) + 1e-9)
    return False


def _equal(first: Tag, second: Tag) -> bool:
    if isinstance(first, int | float) and isinstance(second, int | float):
        return abs(first - second) < 1e-9
    return first == second


def _of(rows: Rows, measure: str) -> Rows:
    return rows.where(rows.measure == measure)


def _steps(rows: Rows, measure: str, by: Sequence[str]) -> list[Grouped]:
    """Pool a share over all steps, as the papers do for action counts."""
    return [
        Grouped(
            key=key,
            estimate=estimate_pooled(part.value, np.ones(len(part)), part.cluster, unit="share", bounds=(0.0, 1.0)),
        )
        for key, part in _parts(_of(rows, measure), by)
    ]


def _tests(field: str) -> Callable[[Rows, str, Sequence[str]], list[Grouped]]:
    """Build the reader of the p-value or effect for each transform. These numbers have no interval."""

    def read_tests(rows: Rows, measure: str, by: Sequence[str]) -> list[Grouped]:
        groups = []
        for comparison in compare_transforms(_of(rows, measure), margin={measure: _MARGINS[measure]}):
            test, paired = comparison.paired.test, comparison.paired
            value = test.p_value if field == "p-value" else test.effect
            note = "" if value == value else test.note or "no test"
            estimate = Estimate(
                value=value,
                low=float("nan"),
                high=float("nan"),
                n=paired.difference.n,
                clusters=paired.difference.clusters,
                method="Wilcoxon signed-rank",
                unit="probability" if field == "p-value" else "rank-biserial correlation",
                note=note,
            )
            groups.append(
                Grouped(key={"measure": measure, "transform": comparison.tags["transform"]}, estimate=estimate)
            )
        return groups

    return read_tests


def _parts(rows: Rows, by: Sequence[str]) -> Iterator[tuple[dict[str, Tag], Rows]]:
    """Yield the key and the rows for each value of at most one tag."""
    if not by:
        yield {}, rows
        return
    for value in dict.fromkeys(rows[by[0]].tolist()):
        if value is not None:
            yield {by[0]: value}, rows.select(**{by[0]: value})


_HOW: Final[Mapping[How, Callable[[Rows, str, Sequence[str]], list[Grouped]]]] = {
    "mean": lambda rows, measure, by: estimate_rows(_of(rows, measure), by=by, bounds=measure_bounds()),
    "steps": _steps,
    "beliefs": lambda rows, measure, by: [
        Grouped(key=key, estimate=pooled_share(part, measure)) for key, part in _parts(rows, by)
    ],
    "cells": lambda rows, measure, by: summarise(_of(rows, measure), by=by),
    "plans": lambda rows, measure, by: summarise_plans(_of(rows, measure), by=by),
    "distance": lambda rows, measure, by: [
        grouped for grouped in summarise_distance(rows, by=by) if grouped.key["measure"] == measure
    ],
    "p-value": _tests("p-value"),
    "effect": _tests("effect"),
    "relation": lambda rows, measure, by: [
        Grouped(
            key={"measure": measure},
            estimate=log_relation(rows, measure, list(dict.fromkeys(rows["agent"].tolist()))).r_squared,
        )
    ],
}


def with_all_agents(item: Item, subject: ReadAgents, agents: Sequence[str]) -> ReadAgents:
    """Return the agents from which a figure or table (item) is read: all agents of the run if the item compares agents.

    Otherwise ``subject`` is returned unchanged.
    """
    related = any(reading.how == "relation" for reading in item.readings)
    return replace(subject, agents=tuple(agents)) if related else subject
