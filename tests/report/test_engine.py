"""The engine of declared sections: a declaration of some lines gives a table, a sentence and a curve of the rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from goalscope.report.blocks import Section
from goalscope.report.engine import lay_out
from goalscope.report.estimates import Contrast, Estimates, contrasted
from goalscope.report.figures import short
from goalscope.report.sections.probing import ProbeRows, ReadPoint, of_agents
from goalscope.report.specs import Column, Curve, CurveSpec, Declared, Line, Sentence, TableSpec
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.stats import estimate_mean, estimate_rows, paired_difference

GRIDS = [f"grid-{at}" for at in range(12)]
KEY = {"measure": "score", "control": "none"}


def declared(rows: ProbeRows, *, figures: bool = True) -> Iterator[Declared]:
    found = Estimates(rows.estimated(estimate_rows, ("control", "size")))
    contrast = Contrast(name="noise", own={"control": "none"}, control={"control": "noise"}, by=("size",))
    less = Estimates(contrasted(rows, [contrast], estimate_rows, ("size",)))
    yield Declared(
        anchor="mine",
        title=rows.title("Mine"),
        rule="Said by rule.",
        silence="Nothing is said.",
        sentences=[
            Sentence(
                title="less noise",
                estimates=less,
                parts=[("size 7", {"measure": "score", "less": "noise", "size": 7})],
            )
        ],
        tables=[
            TableSpec(
                caption="Scores",
                first="size",
                estimates=found,
                columns=[Column("own", "share", {"control": "none"}), Column("gone", "share", {"control": "gone"})],
                lines=[Line(str(size), {"measure": "score", "size": size}) for size in (7, 9, 11)],
            )
        ],
        figures=[
            CurveSpec(title="Score", x_label="n", y_label="share", axis="size", estimates=found, curves=[curve])
            for curve in (Curve("own", KEY), Curve("gone", {**KEY, "control": "gone"}))
            if figures
        ],
        legend="Bands are intervals.",
        counted=found.listed,
    )


def made(controls: tuple[str, ...] = ("none", "noise"), **tags: Any) -> Rows:
    rng = stream(0, "engine")
    return Rows.concatenate(
        Rows.from_columns(
            measure="score",
            unit="share",
            value=rng.random(12) / 2 + 0.5 * (control == "none"),
            grid_id=GRIDS,
            tags={"control": control, "size": size, **tags},
        )
        for control in controls
        for size in (7, 9)
    )


def sections(rows: Rows, **given: Any) -> list[Section]:
    return lay_out(one for mine in of_agents(rows, "score".__eq__) for one in declared(mine, **given))


def test_a_declaration_gives_tables_sentences_and_curves_of_the_rows() -> None:
    rows = made()
    (section,) = sections(rows)
    (table,) = section.tables
    own, noise = (rows.select(control=control, size=7) for control in ("none", "noise"))
    assert [row.label for row in table.rows] == ["7", "9"]
    # A column without any estimate is left out; the last one counts the grids.
    assert [heading.text for heading in table.headings] == ["size", "own", "grids"]
    assert table.rows[0].cells[0].value == short(estimate_mean(own.value, own.grid_id, unit="share").value, "share")
    difference = paired_difference(own.value, own.grid_id, noise.value, noise.grid_id, unit="share").difference
    assert difference.low > 0
    ((title, text),) = section.facts
    assert title == "less noise" and text.startswith(f"higher for size 7 (+{short(difference.value, 'share')}")
    assert len(section.figures) == 1 and section.legend and section.paragraphs == ("Said by rule.",)
    assert section.folds[-1].title == "Counts and methods (4 estimates)"


def test_without_a_control_or_a_figure_nothing_is_said_of_them() -> None:
    (section,) = sections(made(("none",)), figures=False)
    assert not section.facts and section.paragraphs == ("Nothing is said.",)
    assert not section.figures and not section.legend
    assert sections(made().where(np.zeros(48, dtype=bool))) == []


def test_each_agent_has_a_section_with_ids_of_its_own() -> None:
    found = sections(Rows.concatenate([made(agent="a"), made(agent="b")]))
    assert [one.title for one in found] == ["Mine of a", "Mine of b"]
    assert len({one.anchor for one in found}) == 2


@pytest.mark.parametrize(("layers", "main"), [((2,), 2), ((2, 4, 7), 4)])
def test_the_main_read_point_is_the_middle_layer_of_the_first_site(layers: tuple[int, ...], main: int) -> None:
    parts = [made(head="mlp", site=site, layer=layer) for site in ("post", "pre") for layer in layers]
    rows = ProbeRows(Rows.concatenate(parts))
    assert rows.main_point() == ReadPoint("pre", main)
    assert rows.near() == [ReadPoint("pre", main), ReadPoint("post", main)]
