"""Learning curves: how the scores of probes grow with the number of training grids, and whether they still do.

Source: behavioural and representational evaluation, section 5.1 (36,000 grids).
"""

from collections.abc import Iterator

from goalscope.probing.curves import CURVE_MEASURES, MARGIN, TRAINED_ON, CurveEnd, curve_ends
from goalscope.probing.scores import AREA, summarise
from goalscope.report.figures import short
from goalscope.report.ledger import Key
from goalscope.report.sections.probing import ProbeRows, ReadPoint, in_order, probe_name, probe_section
from goalscope.report.specs import BANDS, MEAN, Column, Curve, CurveSpec, Declared, Line, TableSpec

_LOCAL = "localisation"
_SHOWN = (*((AREA, name) for name in ("wall", "goal", "agent")), *((_LOCAL, name) for name in ("goal", "agent")))
_BY = ("site", "layer", "head", "class")
_TEXT = (
    "Probes are trained on more and more of the training grids, in nested random subsets, and scored on the same "
    "tested grids. That nothing can be read from activations needs a curve that has flattened: a probe with too few "
    "grids fails whatever they hold.",
    f"A curve has flattened where the whole 95 % interval of the gain of its last doubling lies below {MARGIN:g}. "
    "Intervals are over tested grids and draws of the subsets, and conditional on the training grids: the draws of all "
    "of them are one.",
)


@probe_section(
    "learning curves",
    source="behavioural and representational evaluation, section 5.1",
    measures=lambda measure: measure in CURVE_MEASURES,
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Scores over the number of training grids, each head at each read point."""
    counts = [int(one) for one in rows.numbers(TRAINED_ON)]
    mine = rows.where(**{TRAINED_ON: tuple(counts)})
    if not counts:
        return
    found = mine.estimated(summarise, (*_BY, TRAINED_ON))
    keys = in_order(({**key, "control": "none"} for key in found.keys("site", "layer", "head")), mine.points())
    heads: list[Key] = [{name: key[name] for name in ("site", "layer", "head")} for key in keys]
    shown = [(measure, name) for measure, name in _SHOWN if measure in mine.values("measure")]
    yield Declared(
        anchor="learning-curves",
        title=mine.title("Learning curves"),
        paragraphs=_TEXT,
        facts=[(_title(one), _said(one)) for one in curve_ends(mine.rows, _BY) if _pair(one) in _SHOWN],
        tables=[
            TableSpec(
                f"Scores by number of training grids: {MEAN}",
                "trained on",
                found,
                [Column(f"{measure}: {name}", "share", {"measure": measure, "class": name}) for measure, name in shown],
                [
                    Line(f"{_where(head)}: {counted} grids", {**head, TRAINED_ON: counted})
                    for head in heads
                    for counted in counts
                ],
            )
        ],
        figures=[
            CurveSpec(
                f"{measure.capitalize()} of {name} by training grids, {point}",
                f"{measure} (share)",
                TRAINED_ON,
                found,
                [
                    Curve(probe_name(head["head"]), {**head, "measure": measure, "class": name})
                    for head in heads
                    if head["site"] is None or ReadPoint(head["site"], head["layer"]) == point
                ],
                x_label="training grids",
                ticks=counts,
            )
            for point in mine.points()
            for measure, name in shown[:3]
            if len(counts) > 1
        ],
        legend=BANDS,
        counted=list(found),
    )


def _pair(one: CurveEnd) -> tuple[str, str]:
    return str(one.key["measure"]), str(one.key["class"])


def _where(key: Key) -> str:
    name = probe_name(key["head"])
    return name if key["site"] is None else f"{name}, {ReadPoint(key['site'], key['layer'])}"


def _title(one: CurveEnd) -> str:
    return f"{_where(one.key)}: {one.key['measure']}, {one.key['class']}"


def _said(one: CurveEnd) -> str:
    """Write what the last doubling gained, and what it means for a null result."""
    value, low, high = (short(end, "share") for end in (one.gain.value, one.gain.low, one.gain.high))
    gained = f"{value} [{low}, {high}]" if one.gain.has_interval else f"{value} ({one.gain.note or 'no interval'})"
    said = "flattened" if one.flattened else "not flattened, more grids may show more"
    return f"{gained} from {one.grids[0]} to {one.grids[1]} training grids: {said}"
