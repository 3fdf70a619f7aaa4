"""The engine of declared sections: a declaration of some lines gives tables, sentences, curves and maps of the rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.report import (
    Column,
    Curve,
    CurveSpec,
    Declared,
    Estimates,
    Line,
    MapSpec,
    Sentence,
    TableSpec,
    build_ledger,
    by_agent,
    lay_out,
    over_tag,
    sections_of,
    short,
)
from goalscope.report.blocks import of_two_tags
from goalscope.report.sections.probing import Contrast, ProbeRows, ReadPoint, contrasted, of_agents
from goalscope.stats import estimate_mean, estimate_rows, paired_difference
from goalscope.stats.rows import Rows
from measured_runs import run_of

GRIDS = [f"grid-{at}" for at in range(12)]
KEY = {"measure": "score", "control": "none"}


def declared(rows: ProbeRows, *, figures: bool = True) -> Iterator[Declared]:
    found = Estimates(rows.estimated(estimate_rows, ("control", "size")))
    contrast = Contrast(own={"control": "none"}, rivals={"noise": {"control": "noise"}}, by=("size",))
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
            cluster=GRIDS,
            tags={"control": control, "size": size, **tags},
        )
        for control in controls
        for size in (7, 9)
    )


def sections(rows: Rows, **given: Any) -> list[Declared]:
    return lay_out(one for mine in of_agents(rows, "score".__eq__) for one in declared(mine, **given))


def test_a_declaration_gives_tables_sentences_and_curves_of_the_rows() -> None:
    rows = made()
    (section,) = sections(rows)
    (table,) = section.tables
    own, noise = (rows.select(control=control, size=7) for control in ("none", "noise"))
    assert [row[0] for row in table.rows] == ["7", "9"]
    # A column without any estimate is left out; the last one counts the grids.
    assert table.headings == ("size", "own", "grids")
    assert table.rows[0][1].value == short(estimate_mean(own.value, own.cluster, unit="share").value, "share")
    difference = paired_difference(own.value, own.cluster, noise.value, noise.cluster, unit="share").difference
    assert difference.low > 0
    ((title, text),) = section.facts
    assert title == "less noise" and text.startswith(f"higher for size 7 (+{short(difference.value, 'share')}")
    assert len(section.figures) == 1 and section.legend and section.folds[0].paragraphs == ("Said by rule.",)
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


def behaviour(**tags: Any) -> Rows:
    about: dict[str, Any] = {"agent": "a", "size": "large", "density": 0.5, **tags}
    parts = [
        Rows.from_columns(measure=name, unit="share", value=np.linspace(0, 1, 12), cluster=GRIDS, tags=about)
        for name in ("success", "action accuracy")
    ]
    return Rows.concatenate(parts)


def test_the_ledger_and_other_rows_have_one_lookup() -> None:
    ledger = build_ledger(Rows.concatenate([behaviour(), behaviour(size=7), behaviour(agent="b", size=7)]))
    table = ledger.tables["agent, size"]
    assert isinstance(table, Estimates)
    assert table.get(measure="success", agent="a", size=7) is ledger.find("agent, size", "success", agent="a", size=7)
    assert table.values("size", agent="a") == [7, "large"] and table.values("size", agent="b") == [7]
    assert [*table.along("size", {"measure": "success", "agent": "a"})] == [7.0]
    assert [*table.along("size", {"measure": "success", "agent": "a"}, {7: 1.0, "large": 0.0})] == [0.0, 1.0]
    assert {one.key["agent"] for one in table.only(size="large").listed} == {"a"}


def test_tables_and_curves_by_agent_leave_out_what_nobody_has() -> None:
    rows = Rows.concatenate([behaviour(), behaviour(size="small"), behaviour(agent="b", size="small")])
    ledger = build_ledger(rows)
    spec = by_agent(ledger, ["success", "path ratio"], {}, "Mine")
    drawn = over_tag(ledger, "success", "size", {}, bounds=(0, 1))
    (section,) = lay_out([Declared(anchor="a", title="A", tables=[spec], figures=[drawn], legend="L", closing="C")])
    (table,) = section.tables
    assert table.headings == ("agent", "Success", "grids")
    assert table.caption == "Mine, mean and 95 % interval over grids" and [row[0] for row in table.rows] == ["a", "b"]
    # Sizes that are text stand side by side, under their names.
    assert ">large<" in section.figures[0].svg and ">small<" in section.figures[0].svg and section.legend == "L"
    nothing = over_tag(ledger, "path ratio", "size", {})
    (section,) = lay_out([Declared(anchor="a", title="A", figures=[nothing], legend="L", closing="C")])
    assert not section.figures and section.legend == "C"
    assert lay_out([Declared(anchor="a", title="A", figures=[nothing], figures_only=True)]) == []


def test_a_map_has_a_cell_for_each_pair_of_values_and_a_table_keeps_the_empty_ones() -> None:
    found = Estimates(
        estimate_rows(Rows.concatenate([behaviour(size=7, density=0.0), behaviour(size=9)]), by=("size", "density"))
    )
    shown = MapSpec(
        title="t",
        estimates=found,
        key={"measure": "success"},
        rows="size",
        columns="density",
        row_label="n",
        column_label="d",
    )
    table = of_two_tags(found, {"measure": "success"}, ("size", "size"), ("density", "d ="), "Success")
    (section,) = lay_out([Declared(anchor="a", title="A", figures=[shown], tables=[table])])
    assert section.figures[0].svg.count(">0.50</text>") == 2 and section.figures[0].svg.count("no data") == 2
    assert [[cell.value for cell in cells] for _, *cells in section.tables[0].rows] == [["0.500", "–"], ["–", "0.500"]]


def test_every_anchor_of_a_page_is_its_own() -> None:
    declared_twice = [Declared(anchor="goals", title=str(at)) for at in range(3)]
    assert [one.anchor for one in lay_out(declared_twice)] == ["goals", "goals-1", "goals-2"]


def test_sections_have_the_order_of_the_page_and_concern_their_worlds() -> None:
    run = run_of(behaviour())
    names = registry.names("section")
    assert names[0] == "results" and names[-4:] == ("undefined", "definitions", "numbers", "run")
    assert names.index("cognitive map") < names.index("decoded maps") < names.index("beliefs")
    assert [one.title for one in sections_of(run, "undefined", "results", "task results")] == [
        "What is undefined",
        "Results",
    ]
    with pytest.raises(ValueError, match=r"'result'.*results"):
        sections_of(run, "result")
