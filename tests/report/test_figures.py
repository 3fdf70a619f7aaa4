import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from goalscope.report import short
from goalscope.report.charts import Series, heat_map, lines
from goalscope.report.figures import embed
from goalscope.report.pictures import picture
from goalscope.stats import Estimate, estimate_mean
from goalscope.worlds import Grid


def estimate(mean: float, grids: int = 8) -> Estimate:
    values = np.clip(mean + 0.1 * np.cos(np.arange(grids)), 0, 1)
    return estimate_mean(values, list(range(grids)), unit="share", bounds=(0.0, 1.0))


def curves() -> str:
    series = [
        Series(label=label, style=style, x=(7.0, 9.0), estimates=(estimate(0.3), estimate(0.6)))
        for style, label in enumerate(("one <b> $x$", "two"))
    ]
    return lines(series, title="Success", x_label="size (cells)", y_label="success (share)", bounds=(0.0, 1.0))


def test_the_same_numbers_give_the_same_bytes_and_the_users_settings_change_nothing() -> None:
    import matplotlib

    first = curves()
    with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "black", "svg.fonttype": "path"}):
        assert curves() == first


def test_text_stays_text_and_nothing_refers_outside_of_the_figure() -> None:
    svg = curves()
    root = ElementTree.fromstring(svg)
    texts = {"".join(node.itertext()) for node in root.iter("text")}
    assert {"Success", "size (cells)", "success (share)", "one <b> $x$", "two"} <= texts
    assert "http" not in svg and "<style" not in svg and "<metadata" not in svg
    fonts = re.findall(r"<text style=\"[^\"]*'DejaVu Sans'([^;\"]*)", svg)
    assert fonts and all(rest.endswith("sans-serif") for rest in fonts)


def test_embedded_figures_share_no_id() -> None:
    one, two = (embed(curves(), prefix, "a & b") for prefix in ("p", "q"))
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, two)]
    assert ids[0] and not ids[0] & ids[1]
    for svg, known in zip((one, two), ids, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg)) == known
        ElementTree.fromstring(svg)


def test_a_heat_map_writes_values_and_intervals_into_its_cells_and_says_where_there_are_none() -> None:
    lonely = estimate_mean([0.5], ["grid"], unit="share", bounds=(0.0, 1.0))
    svg = heat_map(
        [[estimate(0.5), None], [lonely, estimate(0.9)]],
        rows=("7", "9"),
        columns=("0", "1"),
        title="agent",
        row_label="size",
        column_label="density",
        bounds=(0.0, 1.0),
    )
    texts = ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("text")]
    shown = estimate(0.5)
    assert f"{shown.value:.2f}" in texts and f"{shown.low:.2f} to {shown.high:.2f}" in texts
    assert "no data" in texts and "no interval" in texts


def test_a_series_must_have_an_estimate_for_each_point() -> None:
    with pytest.raises(ValueError, match="an estimate for each x, got 1 for 2"):
        Series(label="a", style=0, x=(1.0, 2.0), estimates=(estimate(0.5),))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.12345, "share", "0.123"),
        (-0.0001, "bits", "0.000"),
        (-0.25, "bits", "−0.250"),
        (12.345, "steps", "12.35"),
        (123.45, "steps", "123.5"),
        (float("nan"), "share", "undefined"),
    ],
)
def test_values_are_written_by_their_size(value: float, unit: str, text: str) -> None:
    assert short(value, unit) == text


def test_a_picture_shows_walls_objects_every_move_and_every_stay() -> None:
    grid = Grid.parse("#######\n#A_#__#\n#__D__#\n#K_#_G#\n#######")
    path = [(1, 1), (1, 1), (2, 1), (3, 1), (3, 1)]
    svg = picture(grid, path, label="a <label>", wrong=(1,), invalid=(3,))
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == "a <label>"
    assert [node.text for node in root.iter("text")][:4] == ["S", "G", "K", "D"]
    colours = [node.attrib.get("stroke") for node in root.iter("path")]
    assert colours.count("#d9480f") == 1 and colours.count("#0b5fa5") == 1
    assert len(list(root.iter("circle"))) == 1 and colours.count("#b00020") == 1


def test_a_picture_without_a_move_has_no_arrow() -> None:
    grid = Grid.parse("#####\n#A_G#\n#####")
    assert "polygon" not in picture(grid, [(1, 1)], label="x")
    assert "polygon" in picture(grid, [(1, 1), (1, 2)], label="x")
