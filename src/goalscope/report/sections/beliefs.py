"""Actions against decoded beliefs, each share beside the same share with shuffled beliefs.

Source: behavioural and representational evaluation, section 5.2, Table 2 and Figure 9.
"""

from collections.abc import Iterator, Sequence

from goalscope.probing import beliefs as names
from goalscope.probing.heads import CELL_HEADS
from goalscope.report.blocks import Cell, Heading, Row, Table, number
from goalscope.report.definitions import DEFAULT_NETWORK, READ_RULE
from goalscope.report.estimates import Estimates, Key
from goalscope.report.sections.probing import (
    READINGS,
    ProbeRows,
    ReadPoint,
    in_order,
    over_layers,
    probe_name,
    probe_section,
    probe_table,
    title_of,
)
from goalscope.report.specs import MEAN, Column, Curve, CurveSpec, Declared, FoldSpec, Line, Sentence, TableSpec
from goalscope.stats import estimate_rows

_TAGS = ("head", "control", "site", "layer")
_TOP = "accuracy against top-"
_COLUMNS = (names.TRUTH, names.DECODED, names.OVERLAP, names.BOTH, names.VERDICT, names.RECOVERY, names.INVERSE)
_LISTED = (names.DECODED, names.OVERLAP, names.RECOVERY, names.INVERSE, names.EXPECTED)
_SAID = (names.DECODED, names.OVERLAP, names.RECOVERY, names.EXPECTED)
_SHOWN = frozenset(
    name + end for name in (*_COLUMNS, names.EXPECTED, names.NO_PLAN) for end in ("", names.DIFFERENCE, names.UNTRAINED)
)
_MEASURES = frozenset(
    [
        names.TRUTH,
        names.ACTIONS,
        names.WRONG,
        names.WRONG_ON_MAP,
        *(name + end for name in names.SHARES for end in ("", names.SHUFFLED, names.DIFFERENCE, names.UNTRAINED)),
    ]
)
_HEADINGS = {
    names.TRUTH: "optimal in truth",
    names.DECODED: "optimal on the map",
    names.OVERLAP: "agreement: policies overlap",
    names.BOTH: "agreement: both optimal",
    names.VERDICT: "agreement: same verdict",
    names.EXPECTED: "expected optimality",
}
_SYMBOLS = {"size": "n", "density": "d"}
_TEXT = (
    "At each step a probe reads a map of the grid from the activations. The layout is the likeliest class of each "
    "cell, agent and goal stand where they are likeliest. Recovery: of the actions that are wrong in truth, the share "
    "that is optimal on the decoded map; inverse recovery: of the actions wrong on the map, the share optimal in "
    "truth. A map without a way to the goal holds no plan: every action is wrong on it.",
    "Actions fit other maps by chance, too. Each share stands beside the same share with shuffled beliefs, the decoded "
    "maps of all other states of equal size and density on other grids: only the difference speaks of this agent's "
    "beliefs here. Agreement is given in three readings, because the caption of the published table (both optimal) "
    "cannot be what its numbers are.",
)


@probe_section(
    "beliefs",
    source="behavioural and representational evaluation, section 5.2, Table 2 and Figure 9",
    measures=lambda measure: measure in _MEASURES or measure.startswith(_TOP),
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Actions against the grid that a probe decodes from the activations of their step."""
    natural = rows.where(reading=("natural", None))
    base, reading = (natural, "natural") if len(natural) else (rows, "balanced")
    point = base.main_point()
    # The head that most is known of; the published one where it is there.
    head = next(head for head in ("mlp", *CELL_HEADS, *map(str, base.values("head"))) if head in base.values("head"))
    main = base.where(head=head, control=("none", None), **point.key)
    if not len(main):  # beliefs of a head that reads no activations, at no point
        main = base.where(head=head, control=("none", None))
    found = Estimates(base.estimated(estimate_rows, _TAGS))
    points = base.points()
    near = [each for each in points if each.layer == point.layer] or [point]
    where = f"{probe_name(head)} at {point}"
    keys = in_order(found.keys(*_TAGS), points)
    yield Declared(
        anchor="beliefs",
        title=rows.title("Actions against decoded beliefs"),
        paragraphs=_TEXT,
        rule=f"In words: differences of shares of actions. {READ_RULE}",
        sentences=[
            Sentence(
                title=f"{probe_name(head)}, {each}: {against}",
                estimates=found,
                parts=[
                    (
                        f"“{_HEADINGS.get(name, name)}”",
                        {**each.key, "head": head, "control": "none", "measure": name + end},
                    )
                    for name in _SAID
                ],
            )
            for each in near
            for end, against in (
                (names.DIFFERENCE, "less shuffled beliefs"),
                (names.UNTRAINED, f"the same less the {DEFAULT_NETWORK}"),
            )
        ],
        tables=(
            _by_grids(
                main,
                f"Actions against decoded beliefs ({where}, {READINGS[reading]}): {MEAN}",
                _columns((*_COLUMNS, names.EXPECTED, names.NO_PLAN)),
            ),
            _by_grids(
                main,
                f"The same less its value with shuffled beliefs, paired by grid ({where}): {MEAN}",
                _columns((*_COLUMNS[1:], names.EXPECTED, names.NO_PLAN), names.DIFFERENCE),
            ),
            _of_probes(found, keys, "All probes, less their value with shuffled beliefs", names.DIFFERENCE),
            _of_probes(
                found,
                keys,
                f"How much these differences exceed those of the same probe on the {DEFAULT_NETWORK}",
                names.UNTRAINED,
            ),
        ),
        figures=(*_curves(main), *_by_layer(found, points, head)),
        legend="Top-k: optimal for some pair of one of the k likeliest cells of the agent and of the goal. "
        "Bands are 95 % intervals over grids.",
        folds=(
            FoldSpec(title="Pooled over actions, as in the published table", tables=[_pooled(main)]),
            *([_as_balanced(rows.where(reading="balanced"), keys)] if len(natural) else []),
        ),
        undefined=[
            (str(one.key["measure"]), title_of(one.key), one.estimate)
            for one in found.listed
            if one.key["measure"] in _SHOWN
        ],
        why=_why,
        counted=[one for one in found.listed if one.key["measure"] in _SHOWN],
    )


def _why(measure: str) -> str:
    if measure.endswith((names.DIFFERENCE, names.UNTRAINED)):
        return "no tested grid has another of its size and density to take beliefs from, or the share is undefined"
    return {names.RECOVERY: "no action is wrong in truth", names.INVERSE: "no action is wrong on the decoded map"}.get(
        measure, ""
    )


def _columns(measures: Sequence[str], end: str = "") -> list[Column]:
    return [Column(_HEADINGS.get(name, name), "share", {"measure": name + end}) for name in measures]


def _by_grids(rows: ProbeRows, caption: str, columns: Sequence[Column]) -> TableSpec:
    """Return the table by size and density, its first line over all."""
    kept = rows.where(measure=[column.key["measure"] for column in columns])
    lines = [Line("all", {})]
    for tag, symbol in _SYMBOLS.items():
        values = kept.numbers(tag)
        lines += [Line(f"{symbol} = {number(value)}", {tag: value}) for value in values if len(values) > 1]
    listed = [one for by in ((), ("size",), ("density",)) for one in kept.estimated(estimate_rows, by)]
    return TableSpec(caption=caption, first="where", estimates=Estimates(listed), columns=columns, lines=lines)


def _of_probes(found: Estimates, keys: Sequence[Key], caption: str, end: str) -> TableSpec:
    return probe_table(caption, found, keys, _columns(_LISTED, end), first="probe")


def _as_balanced(rows: ProbeRows, keys: Sequence[Key]) -> FoldSpec:
    """Return the shares of all probes read as if all classes were equally frequent."""
    found = Estimates(rows.estimated(estimate_rows, _TAGS))
    tables = [
        _of_probes(found, keys, "Shares of actions", ""),
        _of_probes(found, keys, "Less their value with shuffled beliefs", names.DIFFERENCE),
        _of_probes(found, keys, f"How much these exceed those on the {DEFAULT_NETWORK}", names.UNTRAINED),
    ]
    return FoldSpec(title=f"All probes {READINGS['balanced']}", tables=tables)


def _pooled(rows: ProbeRows) -> Table:
    parts = [("all", rows)]
    for tag, symbol in _SYMBOLS.items():
        parts += [(f"{symbol} = {number(value)}", rows.where(**{tag: value})) for value in rows.numbers(tag)]
    body = [
        Row(label=label, cells=tuple(Cell.of(names.pooled_share(mine.rows, name)) for name in _COLUMNS))
        for label, mine in parts
    ]
    headings = (Heading(text="where"), *(Heading(text=one.title, unit=one.unit) for one in _columns(_COLUMNS)))
    caption = "Shares of all actions together, 95 % interval over grids"
    return Table(caption=caption, headings=headings, rows=tuple(body))


def _curves(rows: ProbeRows) -> list[CurveSpec]:
    """Return accuracy against truth and against the k likeliest pairs, each with its control (Fig. 9)."""
    tops = sorted(
        {int(str(name).removeprefix(_TOP).split()[0]) for name in rows.values("measure") if _is_top(str(name))}
    )
    wanted = [("truth", names.TRUTH), *((f"top-{count}", names.top_name(count)) for count in tops)]
    wanted += [(f"top-{count}, shuffled", names.top_name(count) + names.SHUFFLED) for count in (tops[:1] + tops[-1:])]
    kept = rows.where(measure=[measure for _, measure in wanted])
    return [
        CurveSpec(
            title=f"Optimal actions by {tag}",
            y_label="share of actions",
            axis=tag,
            estimates=Estimates(kept.estimated(estimate_rows, (tag,))),
            curves=[Curve(title, {"measure": measure}, fewest=2) for title, measure in wanted],
        )
        for tag in _SYMBOLS
    ]


def _is_top(name: str) -> bool:
    return name.startswith(_TOP) and name.removeprefix(_TOP).split()[0].isdecimal()


def _by_layer(found: Estimates, points: Sequence[ReadPoint], head: str) -> list[CurveSpec]:
    """Return what actions fit decoded maps more than shuffled ones over the layers of each site."""
    probes = {"none": probe_name(head), "untrained": DEFAULT_NETWORK}
    return [
        figure
        for name in (names.DECODED, names.RECOVERY)
        for figure in over_layers(
            points,
            [
                Curve(title, {"head": head, "control": control, "measure": name + names.DIFFERENCE})
                for control, title in probes.items()
            ],
            estimates=found,
            title=f"{_HEADINGS.get(name, name).capitalize()} less shuffled, by layer",
            y_label="difference (share)",
            bounds=None,
        )
    ]
