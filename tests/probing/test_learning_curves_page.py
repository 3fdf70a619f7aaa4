"""Learning curves on the page: numbers of the rows, and what a null result may say."""

import numpy as np
import pytest
from planted import half_walls, noise, wall_map

from goalscope.inside.probing import FitSettings, ProbeInputs, curve_ends, learning_curve, split_by_grid
from goalscope.report import lay_out, short
from goalscope.report.sections import cognitive_map
from goalscope.report.sections.cognitive_map import learning_curves
from goalscope.report.texts import TEXTS
from goalscope.stats.rows import Rows


@pytest.fixture(scope="module")
def rows() -> Rows:
    cells = half_walls(grids=200)
    settings, split = FitSettings(epochs=15, hidden=8, rate=1e-2), split_by_grid(cells)
    parts = []
    for site, given in (("pre", wall_map(cells)), ("post", noise(cells, site="post"))):
        data = ProbeInputs(activations=[given], cells=cells, split=split)
        heads = ("percell",) if site == "post" else ("position", "percell")
        parts.append(learning_curve(data, (30, 150), heads=heads, settings=settings))
    return Rows.concatenate(parts)


def test_scores_stand_by_number_of_grids_and_a_curve_that_rises_says_so(rows: Rows) -> None:
    (section,) = lay_out(learning_curves(rows))
    (table,) = section.tables
    assert len(table.rows) == 3 * 2 and len(section.figures) == 2  # walls alone have undetermined cells, at two sites
    mine = rows.select(measure="area under the curve", head="percell", site="pre", **{"class": "wall"})
    level = {count: float(np.mean(mine.select(**{"training grids": count}).value)) for count in (30, 150)}
    lines = {row[0]: row[1:] for row in table.rows}
    for count, value in level.items():
        assert short(value, "share") in str(lines[f"per-cell linear, pre, layer 1: {count} grids"])
    facts = dict(section.facts)
    ends = {(one.key["head"], one.key["site"]): one for one in curve_ends(mine)}
    said = facts["per-cell linear, pre, layer 1: area under the curve, wall"]
    assert not ends["percell", "pre"].flattened and TEXTS("cognitive map/gain open") in said
    assert short(level[150] - level[30], "share") in said and "from 30 to 150 training grids" in said


def test_the_tables_of_the_cognitive_map_leave_learning_curves_out(rows: Rows) -> None:
    assert list(cognitive_map.declared(rows)) == []
    none = rows.where(np.zeros(len(rows), dtype=bool))
    assert list(learning_curves(none)) == []
