"""The logit lens: the model's final norm and unembedding applied to the activations at each captured position."""

from collections.abc import Iterator
from functools import partial

from goalscope.inside.probing.logit_lens import AMONG, BLIND, HEAD, MEASURES, OPTIMAL, PROBABILITY, RANK, TAKEN
from goalscope.inside.probing.scores import summarise
from goalscope.report.sections.probing import TAGS, ProbeRows, over_layers, probe_name, probe_section, probe_table
from goalscope.report.specs import Column, Curve, CurveSpec, Declared
from goalscope.report.texts import TEXTS

_TEXT = TEXTS("logit lens/how")
_COLUMNS = (
    Column("best action was taken", "share", {"measure": TAKEN}),
    Column("best action is optimal", "share", {"measure": OPTIMAL}),
    Column("action taken among the four", "probability", {"measure": AMONG}),
    Column("its token among all", "probability", {"measure": PROBABILITY}),
    Column("rank of its token", "rank", {"measure": RANK}),
)
_NAMES = {HEAD: "logit lens", BLIND: "commonest action of the training grids"}
_CURVES = ((TAKEN, "best action was taken"), (OPTIMAL, "best action is optimal"))


@probe_section(
    "logit-lens",
    source="nostalgebraist 2020, interpreting GPT: the logit lens",
    measures=lambda measure: measure in MEASURES,
)
def declared(rows: ProbeRows) -> Iterator[Declared]:
    """Yield the section on the actions that the logit lens reads from the model and from random networks."""
    estimates, name_of = rows.estimated(summarise, TAGS), partial(probe_name, heads=_NAMES)
    points = rows.points()
    networks = [str(control) for control in rows.values("control")]
    figures = list[CurveSpec]()
    for measure, label in _CURVES:
        curves = [Curve(name, {"measure": measure, "head": HEAD, "control": name}) for name in networks]
        flat = [Curve(BLIND, {"measure": measure, "head": BLIND, "control": "none"})]
        title = f"Logit lens, {label}, by layer"
        figures += over_layers(points, title, f"{label} (share)", estimates, curves, flat=flat)
    yield Declared(
        anchor="logit-lens",
        title=rows.title("Actions by the logit lens"),
        explained=(_TEXT,),
        tables=(probe_table("Logit lens", estimates, estimates.keys(*TAGS), _COLUMNS, points, name=name_of),),
        figures=figures,
        counted=estimates,
    )
