"""The cognitive map on a page: each probe beside its controls, differences with intervals, confusion.

Source: behavioural and representational evaluation, section 5.1 and Appendices E.1 and E.2 (Fig. 6-8, 15, 16).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from goalscope.probing.heads import CELL_HEADS, COUNTED
from goalscope.probing.probe import CLASSES
from goalscope.probing.scores import CALLED, KEY, summarise
from goalscope.probing.suite import FULL, Entry
from goalscope.report.figures import embed, heat_map
from goalscope.report.forest import Difference, forest
from goalscope.report.inside import (
    CONTROLS,
    HEADS,
    READINGS,
    Found,
    Index,
    Place,
    at_place,
    counts_and_methods,
    keyed,
    main_place,
    number_of,
    of_agents,
    paired,
    place_name,
    probe_name,
    table_of,
    what_is_undefined,
)
from goalscope.report.parts import Figure, Fold, Section, Table, listed
from goalscope.report.probe_curves import AWAY, INNER, LOCAL, PRECISION, layer_section, size_section
from goalscope.report.words import DEFAULT_NETWORK, READ_RULE, told
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Grouped

Column = tuple[str, Tag, str]
"""Measure, class and heading."""

_TOLD = ("wall", "agent", "goal")
_ACCURACY: tuple[Column, ...] = (
    ("cell accuracy", None, "accuracy"),
    ("cell accuracy without padding", None, "without padding"),
    (INNER, None, "without padding and border"),
    *((PRECISION, name, f"average precision: {name}") for name in (*_TOLD, "open")),
)
_FINDING: tuple[Column, ...] = tuple(
    (measure, name, f"{name}: {heading}")
    for name in ("agent", "goal")
    for measure, heading in ((LOCAL, "at its cell"), (AWAY, "distance"))
)
_RECALL: tuple[Column, ...] = tuple(("recall", name, name) for name in CLASSES)
_PRECISION: tuple[Column, ...] = tuple(("precision", name, name) for name in CLASSES)
_DIFFERENCES = (*_ACCURACY[2:6], *(column for column in _FINDING if column[0] == AWAY))
_MEASURES = frozenset(measure for measure, _, _ in (*_ACCURACY, *_FINDING, *_RECALL, *_PRECISION))
_AGAINST = ("untrained", "shuffled", "input", "text", "position", "percell")
_LESS = {"position": HEADS["position"], "percell": HEADS["percell"]}
_TEXT = (
    "A probe says, from the activations of one moment, which class stands in every cell of the grid. Each head stands "
    "beside its controls on the same split: labels of other grids (the difference is the selectivity), the same "
    f"architecture with weights drawn anew ({DEFAULT_NETWORK}), the number of cells of each class in the prompt, the "
    "text of the reasoning (a baseline for what is read after it, not before).",
    "Recall under rebalanced training is no evidence by itself: rare classes are weighed up, and a probe that knows "
    "nothing calls many cells an agent and finds it among them, at a few per cent precision. Average precision needs "
    "no threshold; the line of the majority class is what it is for a probe that knows nothing.",
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


def map_sections(rows: Rows) -> list[Section]:
    """Return the sections on the cognitive map of each agent; nothing where there are no rows of it.

    Args:
        rows: rows about what is inside of a model, see `goalscope.report.maps.split_inside`.
    """
    mask = np.array([str(name) in _MEASURES or str(name).startswith(CALLED) for name in rows.measure], dtype=bool)
    sections: list[Section] = []
    for own, agent, mine in of_agents(rows.where(mask)):
        general = mine.where(scope=("general", None))
        # Without general probes every grid is read by the one of its size.
        base = general if len(general) else mine
        title = f"Cognitive map{f' of {agent}' if agent else ''}"
        place = main_place(base)
        sections += [
            _section(base, place, title, own),
            *layer_section(base, title, own),
            *size_section(mine, base, place, title, own),
        ]
    return sections


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """The estimates of all heads and controls at one place.

    Attributes:
        place: the place in words.
        kind: the reading of `found`, None where rows have none.
        found: (head, control, measure, class) -> estimate, at natural frequencies where there are any.
        balanced: the same as if all classes were equally frequent.
        less: (head, difference, class) -> estimate, differences to controls.
        entries: heads and controls in their order.
        listed: the estimates behind `found` (confusion left out) and `less`, with their tags.
    """

    place: str
    kind: str | None
    found: Found
    balanced: Found
    less: Found
    entries: tuple[Entry, ...]
    listed: tuple[Grouped, ...]

    @property
    def reading(self) -> str:
        """Where and how the probes of `found` are read."""
        return f"{self.place}{f', {READINGS[self.kind]}' if self.kind else ''}"

    @property
    def alike(self) -> str:
        """Where and how those of `balanced` are."""
        return f"{self.place}, {READINGS['balanced']}"


def _scores(here: Index, place: Place) -> _Scores:
    by = ("head", "control", "class")
    summaries = {kind: summarise(here.where(reading=kind).rows, by=by) for kind in ("natural", "balanced", None)}
    kind = next((kind for kind, listed in summaries.items() if listed), None)
    found, balanced = (keyed(summaries[name], "head", "control", "measure", "class") for name in (kind, "balanced"))
    differences = _differences(here.where(reading=kind))
    return _Scores(
        place=place_name(place),
        kind=kind,
        found=found,
        balanced=balanced,
        less=keyed(differences, "head", "measure", "class"),
        entries=tuple(_entries(found)),
        listed=(*(one for one in summaries[kind] if not str(one.key["measure"]).startswith(CALLED)), *differences),
    )


def _section(base: Index, place: Place, title: str, own: str) -> Section:
    scores = _scores(at_place(base, place), place)
    sites, before = _between_sites(base.where(reading=scores.kind))
    shown = [
        (f"{key[2]}{f', {key[3]}' if key[3] else ''}", probe_name(key[0], key[1]), estimate)
        for key, estimate in scores.found.items()
        if not str(key[2]).startswith(CALLED)
    ]
    facts = (*_in_words(scores.less), *before)
    said = (
        f"In words: differences in average precision at {scores.place}, mean and 95 % interval over grids. {READ_RULE}"
    )
    nothing = "No probe of activations stands beside a control here: of what is inside nothing can be said."
    figures = (*_forests(scores.less, scores.place, own), *_confusion(scores.found, scores.place, own))
    return Section(
        anchor=f"cognitive-map{own}",
        title=title,
        paragraphs=(
            *_TEXT,
            *([_ADDITIVE] if any(head == "additive" for head, _ in scores.entries) else []),
            *_missing(scores.entries),
            said if facts else nothing,
        ),
        facts=facts,
        tables=tuple(_tables(scores, sites)),
        figures=figures,
        legend=_LEGEND if figures else "",
        folds=(*_folds(scores), *what_is_undefined(shown, _why), *counts_and_methods(scores.listed)),
    )


def _tables(scores: _Scores, sites: Sequence[Table]) -> list[Table]:
    """Return the tables in front; ``sites`` stands beside the differences, being one of sites."""
    # Heads that read no activation have the same frequencies whatever the labels of a grid: once is enough in front.
    front = [entry for entry in scores.entries if entry[0] not in COUNTED or entry[1] == "none"]
    few = [entry for entry in front if entry[1] in ("none", "untrained")]
    reading, alike = scores.reading, scores.alike
    return [
        *_table(f"Accuracy and average precision ({reading})", _ACCURACY, front, scores.found, grids=True),
        *_difference_table(scores.less, scores.entries, reading),
        *sites,
        *_table(f"Finding agent and goal ({reading})", _FINDING, few, scores.found),
        *_table(f"Recall by class ({alike})", _RECALL, few, scores.balanced),
        *_table(f"Precision by class ({alike})", _PRECISION, few, scores.balanced),
    ]


def _folds(scores: _Scores) -> list[Fold]:
    """Return the tables of all heads and controls, those that have lines."""
    both = [(scores.reading, scores.found), (scores.alike, scores.balanced)]
    rates = [("Recall", _RECALL), ("Precision", _PRECISION)]
    finding = _table(scores.reading, _FINDING, scores.entries, scores.found)
    by_class = [
        table
        for label, found in both
        for name, columns in rates
        for table in _table(f"{name} ({label})", columns, scores.entries, found)
    ]
    again = _table(scores.alike, _ACCURACY, scores.entries, scores.balanced) if scores.kind != "balanced" else []
    tables = {
        "All heads and controls: finding agent and goal": finding,
        "All heads and controls: recall and precision by class": by_class,
        f"Accuracy and average precision {READINGS['balanced']}": again,
    }
    return [Fold(title=title, tables=tuple(found)) for title, found in tables.items() if found]


def _why(measure: str) -> str:
    return "no cell is called so on any grid" if measure.startswith("precision") else "no grid has such a cell"


def _entries(scores: Found) -> list[Entry]:
    """Return heads and controls: known heads first, each with its controls below it."""
    there = dict.fromkeys((str(key[0]), str(key[1] or "none")) for key in scores)
    heads, controls = list(CELL_HEADS), ["none", *CONTROLS]

    def order(entry: Entry) -> tuple[int, str, int, str]:
        head, control = entry
        return (
            heads.index(head) if head in heads else len(heads),
            head,
            controls.index(control) if control in controls else len(controls),
            control,
        )

    return sorted(there, key=order)


def _table(
    caption: str, columns: Sequence[Column], entries: Sequence[Entry], scores: Found, *, grids: bool = False
) -> list[Table]:
    return table_of(
        f"{caption}: mean and 95 % interval over grids",
        "probe",
        _headings(columns),
        [
            (probe_name(*entry), [scores.get((*entry, measure, name)) for measure, name, _ in columns])
            for entry in entries
        ],
        grids=grids,
    )


def _headings(columns: Sequence[Column]) -> list[tuple[str, str]]:
    return [(heading, "cells" if measure == AWAY else "share") for measure, _, heading in columns]


def _differences(here: Index) -> list[Grouped]:
    """Return what each probe has more than its controls, than the position alone and than the per-cell head."""
    rows = here.where(measure=tuple({measure for measure, _, _ in _DIFFERENCES}))
    trained = rows.where(head=tuple(head for head in rows.values("head") if head not in COUNTED))
    parts: list[Rows] = []
    for name in CONTROLS:
        parts += paired(trained.where(control="none"), trained.where(control=name), name, KEY)
    own = rows.where(control=("none", None))
    for head, of in (("position", ("additive", "percell", "mlp")), ("percell", ("mlp",))):
        parts += paired(own.where(head=of), own.where(head=head), head, ("site", "layer", "reading", "class"))
    return summarise(Rows.concatenate(parts), by=("head", "class")) if parts else []


def _difference_table(less: Found, entries: Sequence[Entry], where: str) -> list[Table]:
    return table_of(
        f"Differences, paired by grid ({where}): mean and 95 % interval over grids. Less shuffled labels is the "
        "selectivity",
        "probe less control",
        _headings(_DIFFERENCES),
        [
            (
                f"{probe_name(head)} less {_less(against)}",
                [less.get((head, f"{measure} less {against}", name)) for measure, name, _ in _DIFFERENCES],
            )
            for head in dict.fromkeys(head for head, _ in entries)
            for against in _AGAINST
            if head != "additive" or against not in ("input", "text")
        ],
        grids=True,
    )


def _between_sites(rows: Index) -> tuple[list[Table], list[tuple[str, str]]]:
    """Return what the MLP reads more before the reasoning than after it, layer by layer, as a table and in words."""
    own = rows.where(measure=tuple({measure for measure, _, _ in _DIFFERENCES}), head="mlp", control=("none", None))
    before, after = own.where(site="pre"), own.where(site="post")
    common = [layer for layer in before.values("layer") if layer in after.values("layer")]
    if not common:
        return [], []
    layers = sorted(common, key=lambda layer: (number_of(layer) or 0, str(layer)))
    less = Rows.concatenate(paired(before, after, "post", ("layer", "class")))
    found = keyed(summarise(less, by=("layer", "class")), "layer", "measure", "class")
    table = table_of(
        "MLP before the reasoning (pre) less after it (post), paired by grid: mean and 95 % interval over grids",
        "layer",
        _headings(_DIFFERENCES),
        [
            (str(layer), [found.get((layer, f"{measure} less post", name)) for measure, name, _ in _DIFFERENCES])
            for layer in layers
        ],
        grids=True,
    )
    words = [
        (f"MLP, layer {layer}: pre less post", told(_parts(found, (layer, f"{PRECISION} less post"))))
        for layer in layers
    ]
    return table, [(name, text) for name, text in words if text]


def _in_words(less: Found) -> list[tuple[str, str]]:
    """Return what the differences of the MLP and of the per-cell head say."""
    pairs = [
        *(("mlp", against) for against in ("untrained", "shuffled", "position", "percell")),
        *(("percell", against) for against in ("untrained", "shuffled")),
    ]
    said = []
    for head, against in pairs:
        name = f"{probe_name(head)} less {_less(against)}{' (selectivity)' if against == 'shuffled' else ''}"
        said.append((name, told(_parts(less, (head, f"{PRECISION} less {against}")))))
    return [(name, text) for name, text in said if text]


def _parts(found: Found, key: tuple[Tag, ...]) -> list[tuple[str, Estimate | None]]:
    return [(_plural(name), found.get((*key, name))) for name in _TOLD]


def _plural(name: str) -> str:
    return "walls" if name == "wall" else name


def _less(against: str) -> str:
    return _LESS.get(against, CONTROLS.get(against, against))


def _missing(entries: Sequence[Entry]) -> list[str]:
    """Say which heads and controls of the whole matrix have no rows."""
    there = {head for head, _ in entries}
    parts = [f"the head “{probe_name(head)}”" for head in CELL_HEADS if head not in there]
    for control in CONTROLS:
        lacking = [
            head
            for head, of in FULL
            if of == control and head in there and head not in COUNTED and (head, control) not in entries
        ]
        if lacking:
            parts.append(f"“{CONTROLS[control]}” for {listed([probe_name(head) for head in lacking])}")
    return [f"Not in this run: {listed(parts)}."] if parts else []


def _forests(less: Found, where: str, own: str) -> list[Figure]:
    """Draw how much average precision the MLP and the per-cell head have more than their controls."""
    figures: list[Figure] = []
    legend = {"untrained": f"less {DEFAULT_NETWORK}", "shuffled": "selectivity", "position": "less position alone"}
    for head in ("mlp", "percell"):
        differences = [
            Difference(series=label, style=style, line=_plural(name), estimate=found)
            for name in _TOLD
            for style, (against, label) in enumerate(legend.items())
            if (found := less.get((head, f"{PRECISION} less {against}", name))) is not None
        ]
        if differences:
            title = f"{probe_name(head)} less its controls"
            svg = forest(differences, title=title, x_label="difference in average precision (share)")
            figures.append(Figure(svg=embed(svg, f"cogf{own}{head}", f"{title}, {where}"), caption=where))
    return figures


def _confusion(scores: Found, where: str, own: str) -> list[Figure]:
    """Draw what the cells of each class are called, by the MLP and the per-cell head."""
    figures: list[Figure] = []
    for head in ("mlp", "percell"):
        cells = [[scores.get((head, "none", f"{CALLED}{name}", label)) for name in CLASSES] for label in CLASSES[:-1]]
        if any(cell for row in cells for cell in row):
            title = f"{probe_name(head)}: what is called what"
            svg = heat_map(
                cells,
                rows=CLASSES[:-1],
                columns=CLASSES,
                title=title,
                row_label="true class",
                column_label="called",
                bounds=(0.0, 1.0),
            )
            figures.append(Figure(svg=embed(svg, f"cogc{own}{head}", f"{title}, {where}"), caption=where))
    return figures
