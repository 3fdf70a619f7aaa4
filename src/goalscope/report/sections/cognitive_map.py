"""The cognitive map: each probe beside its controls, differences with intervals, confusion.

Source: behavioural and representational evaluation, section 5.1 and Appendices E.1 and E.2 (Fig. 6-8, 15, 16).
"""

from collections.abc import Iterator, Sequence
from functools import partial

from goalscope._ground.words import listed
from goalscope.inside.probing.curves import TRAINED_ON
from goalscope.inside.probing.heads import CELL_HEADS, COUNTED
from goalscope.inside.probing.labels import CLASSES
from goalscope.inside.probing.scores import AREA, CALLED, KEY, summarise
from goalscope.inside.probing.suite import FULL
from goalscope.report.charts import DifferenceBar, Forest
from goalscope.report.heat_map import HeatMap
from goalscope.report.ledger import Estimates, Key, number_of
from goalscope.report.sections.cognitive_map_curves import (
    AVERAGE,
    AWAY,
    BY,
    INNER,
    LOCAL,
    MLP,
    PERCELL,
    RATES,
    over_layers_of,
    over_sizes,
)
from goalscope.report.sections.probing import (
    CONTROLS,
    HEADS,
    READINGS,
    Contrast,
    ProbeRows,
    ReadPoint,
    claims,
    contrasted,
    in_order,
    probe_name,
    probe_section,
)
from goalscope.report.specs import MEAN, Column, Declared, Figure, FoldSpec, Line, Sentence, TableSpec
from goalscope.report.verdicts import NETWORKS, RULES
from goalscope.stats.rows import Tag

_PLURALS = {"wall": "walls", "agent": "agent", "goal": "goal"}


def _column(measure: str, name: Tag, title: str) -> Column:
    return Column(title, "cells" if measure == AWAY else "share", {"measure": measure, "class": name})


_AREAS = tuple(_column(AREA, name, f"{AREA}: {name}") for name in _PLURALS)
_ACCURACY = (
    *_AREAS,
    _column("cell accuracy", None, "accuracy"),
    _column("cell accuracy without padding", None, "without padding"),
    _column(INNER, None, "without padding and border"),
    *(_column(AVERAGE, name, f"{AVERAGE}: {name}") for name in (*_PLURALS, "open")),
)
_FINDING = tuple(
    _column(measure, name, f"{name}: {title}")
    for name in ("agent", "goal")
    for measure, title in ((LOCAL, "at its cell"), (AWAY, "distance"))
)
_RATES = {name: tuple(_column(name, label, label) for label in CLASSES) for name in RATES}
_DIFFERENCES = (*_AREAS, *_ACCURACY[5:9], *(column for column in _FINDING if column.unit == "cells"))
_MEASURES = frozenset(column.key["measure"] for column in (*_ACCURACY, *_FINDING, *sum(_RATES.values(), ())))
_PRECISION = frozenset(f"precision, {name}" for name in CLASSES)
_CALLED = frozenset(f"{CALLED}{name}" for name in CLASSES)
_RIVALS = {name: {**CONTROLS, **HEADS}[name] for name in (*CONTROLS, "position", "percell")}
_FLOORS = {name: _RIVALS[name] for name in ("position", "wall-count", "input")}
_AGAINST = (*NETWORKS, "shuffled", "control-task", *_FLOORS, "text", "percell")
_SENTENCE_PAIRS = (
    *((head, against) for head in ("mlp", "percell") for against in ("shuffled", "control-task")),
    ("mlp", "percell"),
)
_TEXT = (
    "A probe says, from the activations of one moment, which class stands in every cell of the grid. Each head stands "
    "beside its controls on the same split: labels of other grids (chance), a random label for each kind of "
    "neighbourhood (the control task, which can only be learnt by heart: the difference is the selectivity), the same "
    "architecture with random weights of several kinds and seeds, the number of walls, the number of cells of each "
    "class in the prompt, the text of the reasoning (a baseline for what is read after it, not before).",
    "Recall under rebalanced training is no evidence by itself: rare classes are weighed up, and a probe that knows "
    "nothing calls many cells an agent and finds it among them, at a few per cent precision. Average precision needs "
    "no threshold; the line of the majority class is what it is for a probe that knows nothing. The area under the "
    "curve looks at undetermined cells alone, which hold a class in some training grids of their size and not in "
    "others: border and regular pillars are known from the place, and carry all other scores of walls.",
)
_ADDITIVE = (
    "The additive head (the published linear probe) has no term of activation and place together: all cells shift "
    "alike with the activation, and it cannot draw scattered walls whatever the activations hold. Where activations "
    "encode a wall map perfectly linearly it scores the majority rate, the per-cell head 1.0. An MLP that is better "
    "than it is no sign of a code that is not linear: compare it with the per-cell head."
)
_LEGEND = (
    "Lines are 95 % intervals over grids. What is called what: of the cells of a true class the share that is called "
    "each class, natural frequencies."
)
_SILENCE = "No probe of activations stands beside a control here: of what is inside nothing can be said."


@probe_section(
    "cognitive map",
    source="behavioural and representational evaluation, section 5.1, Appendices E.1 and E.2 (Fig. 6-8, 15, 16)",
    measures=(_MEASURES | _CALLED).__contains__,
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Each probe beside its controls, and curves by layer, size and density."""
    rows = rows.where(**{TRAINED_ON: None}, cells=None)  # learning curves have a section of their own
    if not len(rows):
        return
    general = rows.where(scope=("general", None))
    # Without general probes each size of grid has probes of its own.
    base = general if len(general) else rows
    point = base.main_point()
    yield _matrix(base, point)
    yield from over_layers_of(base)
    yield over_sizes(rows, base, point)


def _matrix(base: ProbeRows, point: ReadPoint) -> Declared:
    """Return the section on all heads and controls at one read point."""
    point_rows = base.at(point)
    summaries = {
        kind: point_rows.where(reading=kind).estimated(summarise, BY) for kind in ("natural", "balanced", None)
    }
    kind = next((kind for kind, estimates in summaries.items() if estimates), None)
    estimates, balanced = summaries[kind], summaries["balanced"]
    differences = _differences(point_rows.where(reading=kind))
    site_differences = _between_sites(base.where(reading=kind))
    ranks = {head: at for at, head in enumerate(CELL_HEADS)}
    keys = in_order(estimates.keys("head", "control"), heads=lambda head: ranks.get(head, len(ranks)))
    # Heads that read no activations give the same frequencies under every control: shown once outside of the folds.
    front = [key for key in keys if key["head"] not in COUNTED or key["control"] == "none"]
    network_keys = [key for key in front if key["control"] in ("none", *NETWORKS)]
    title, balanced_title = f"{point}{f', {READINGS[kind]}' if kind else ''}", f"{point}, {READINGS['balanced']}"
    layers = sorted(site_differences.keys("layer"), key=lambda key: (number_of(key["layer"]) or 0, str(key["layer"])))
    page_estimates = [grouped for grouped in estimates if grouped.key["measure"] not in _CALLED]
    heads = dict.fromkeys(str(key["head"]) for key in keys)
    parts = partial(_parts, measure=AREA)
    rivals = [
        Line(f"{probe_name(head)} less {_RIVALS[against]}", {"head": head, "less": against})
        for head in heads
        for against in _AGAINST
        if head != "additive" or against not in ("wall-count", "input", "text")
    ]
    return Declared(
        anchor="cognitive-map",
        title=base.title("Cognitive map"),
        paragraphs=tuple(_missing(keys)),
        explained=(*_TEXT, *([_ADDITIVE] if "additive" in heads else [])),
        sentences=(
            *claims(
                differences, [(probe_name(head), parts({"head": head})) for head in ("percell", "mlp")], floors=_FLOORS
            ),
            *(
                Sentence(
                    f"{probe_name(head)} less {_RIVALS[against]}", differences, parts({"head": head, "less": against})
                )
                for head, against in _SENTENCE_PAIRS
            ),
            *(
                Sentence(f"MLP, layer {key['layer']}: pre less post", site_differences, parts({**key, "less": "post"}))
                for key in layers
            ),
        ),
        rule=f"In words: differences in {AREA} at {point}, mean and 95 % interval over grids. {RULES}",
        silence=_SILENCE,
        tables=(
            _table(f"Accuracy and average precision ({title})", _ACCURACY, front, estimates, noun="grid"),
            TableSpec(
                f"Differences, paired by grid ({title}): {MEAN}. Less the control task is the selectivity",
                "probe less control",
                differences,
                _DIFFERENCES,
                rivals,
            ),
            TableSpec(
                f"MLP before the reasoning (pre) less after it (post), paired by grid: {MEAN}",
                "layer",
                site_differences,
                _DIFFERENCES,
                [Line(str(key["layer"]), {**key, "less": "post"}) for key in layers],
            ),
            _table(f"Finding agent and goal ({title})", _FINDING, network_keys, estimates),
            *_rate_tables("{name} by class ({where})", balanced_title, network_keys, balanced),
        ),
        figures=(*_forests(differences, point, AREA), *_confusion(estimates, point)),
        legend=_LEGEND,
        folds=(
            FoldSpec("All heads and controls: finding agent and goal", [_table(title, _FINDING, keys, estimates)]),
            FoldSpec(
                "All heads and controls: recall and precision by class",
                [
                    *_rate_tables("{name} ({where})", title, keys, estimates),
                    *_rate_tables("{name} ({where})", balanced_title, keys, balanced),
                ],
            ),
            FoldSpec(
                f"Accuracy and average precision {READINGS['balanced']}",
                [_table(balanced_title, _ACCURACY, keys, balanced)] if kind != "balanced" else [],
            ),
        ),
        undefined=[
            (
                ", ".join(str(grouped.key[name]) for name in ("measure", "class") if grouped.key[name]),
                probe_name(grouped.key["head"], grouped.key["control"]),
                grouped.estimate,
            )
            for grouped in page_estimates
        ],
        why=lambda measure: "no cell is called so on any grid" if measure in _PRECISION else "no grid has such a cell",
        counted=(*page_estimates, *differences),
    )


def _table(
    caption: str, columns: Sequence[Column], keys: Sequence[Key], estimates: Estimates, *, noun: str = ""
) -> TableSpec:
    lines = [Line(probe_name(key["head"], key["control"]), key) for key in keys]
    return TableSpec(f"{caption}: {MEAN}", "probe", estimates, columns, lines, noun)


def _rate_tables(caption: str, where: str, keys: Sequence[Key], estimates: Estimates) -> list[TableSpec]:
    return [
        _table(caption.format(name=name.capitalize(), where=where), columns, keys, estimates)
        for name, columns in _RATES.items()
    ]


def _differences(point_rows: ProbeRows) -> Estimates:
    """Return the differences between each probe and its controls, the position alone and the per-cell head."""
    rows = point_rows.where(measure=tuple({column.key["measure"] for column in _DIFFERENCES}))
    trained = tuple(head for head in rows.values("head") if head not in COUNTED)
    no_control, by = {"control": ("none", None)}, ("site", "layer", "reading", "class")
    contrasts = [
        Contrast({"head": trained, "control": "none"}, {name: {"control": name} for name in CONTROLS}, KEY),
        *(
            Contrast({**no_control, "head": head}, {name: {"head": name}}, by)
            for name, heads in (("position", ("additive", "percell", "mlp")), ("percell", ("mlp",)))
            for head in heads
        ),
    ]
    return contrasted(rows, contrasts, summarise, ("head", "class"))


def _between_sites(rows: ProbeRows) -> Estimates:
    """Return the differences of the MLP between "pre" and "post", by layer."""
    measures = tuple({column.key["measure"] for column in _DIFFERENCES})
    probe = {"measure": measures, "head": "mlp", "control": ("none", None), "site": "pre"}
    contrast = Contrast(probe, {"post": {"site": "post"}}, ("layer", "class"))
    return contrasted(rows, [contrast], summarise, ("layer", "class"))


def _parts(key: Key, measure: str) -> list[tuple[str, Key]]:
    return [(plural, {**key, "measure": measure, "class": name}) for name, plural in _PLURALS.items()]


def _missing(keys: Sequence[Key]) -> list[str]:
    """Return a sentence on the heads and controls of the full suite without rows."""
    measured = {(key["head"], key["control"]) for key in keys}
    heads = {head for head, _ in measured}
    parts = [f"the head “{probe_name(head)}”" for head in CELL_HEADS if head not in heads]
    for control, title in CONTROLS.items():
        lacking = [
            probe_name(head)
            for head, probe_control in FULL
            if probe_control == control and head in heads and head not in COUNTED and (head, control) not in measured
        ]
        parts += [f"“{title}” for {listed(lacking)}"] if lacking else []
    return [f"Not in this run: {listed(parts)}."] if parts else []


def _forests(differences: Estimates, point: ReadPoint, measure: str) -> Iterator[Figure]:
    """Draw the differences in a measure between the MLP or the per-cell head and their controls."""
    legend = {kind: f"less {name}" for kind, name in NETWORKS.items()}
    legend |= {"shuffled": "less shuffled labels", "position": "less position alone"}
    for head in ("mlp", "percell"):
        bars = [
            DifferenceBar(label, style, plural, estimate)
            for plural, key in _parts({"head": head}, measure)
            for style, (against, label) in enumerate(legend.items())
            if (estimate := differences.get(key, {"less": against})) is not None
        ]
        if bars:
            title = f"{probe_name(head)} less its controls"
            chart = Forest(bars, title=title, x_label=f"difference in {measure} (share)")
            yield Figure(chart, f"{title}, {point}", str(point))


def _confusion(estimates: Estimates, point: ReadPoint) -> Iterator[Figure]:
    """Draw the confusion matrices of the MLP and the per-cell head."""
    for key in (MLP, PERCELL):
        cells = [
            [estimates.get(key, {"measure": f"{CALLED}{name}", "class": label}) for name in CLASSES]
            for label in CLASSES[:-1]
        ]
        if any(cell for row in cells for cell in row):
            title = f"{probe_name(key['head'])}: what is called what"
            chart = HeatMap(
                cells,
                rows=CLASSES[:-1],
                columns=CLASSES,
                title=title,
                row_label="true class",
                column_label="called",
                bounds=(0.0, 1.0),
            )
            yield Figure(chart, f"{title}, {point}", str(point))
