import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from goalscope.report import short
from goalscope.report.charts import HeatMap, Lines, Series, colour_scale
from goalscope.report.figures import COLOURS, MARKERS, embed, look_of
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
    return Lines(series, title="Success", x_label="size (cells)", y_label="success (share)", bounds=(0.0, 1.0)).svg


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
    svg = HeatMap(
        [[estimate(0.5), None], [lonely, estimate(0.9)]],
        rows=("7", "9"),
        columns=("0", "1"),
        title="agent",
        row_label="size",
        column_label="density",
        bounds=(0.0, 1.0),
    ).svg
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
    svg = picture(grid, path, label="a <label>", wrong=(1,), invalid=(3,)).svg
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == "a <label>"
    assert [node.text for node in root.iter("text")][:4] == ["S", "G", "K", "D"]
    colours = [node.attrib.get("stroke") for node in root.iter("path")]
    assert colours.count("#d9480f") == 1 and colours.count("#0b5fa5") == 1
    assert len(list(root.iter("circle"))) == 1 and colours.count("#b00020") == 1


def test_a_picture_without_a_move_has_no_arrow() -> None:
    grid = Grid.parse("#####\n#A_G#\n#####")
    assert "polygon" not in picture(grid, [(1, 1)], label="x").svg
    assert "polygon" in picture(grid, [(1, 1), (1, 2)], label="x").svg


Vector = npt.NDArray[np.float64]

# How colours look without red or green cones: rows act on linear RGB. Source: Machado, Oliveira and Fernandes (2009),
# A physiologically-based model for simulation of color vision deficiency, Table 1, severity 1.0.
SEEN: dict[str, Vector] = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def linear(colour: str) -> Vector:
    return linear_of([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])


def linear_of(parts: npt.ArrayLike) -> Vector:
    parts = np.asarray(parts, dtype=np.float64)
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: Vector) -> Vector:
    """CIE L*a*b* of linear sRGB, white D65."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    share = xyz / np.array([0.95047, 1.0, 1.08883])
    f = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_the_scale_of_lightness_is_that_of_the_standard() -> None:
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=0.05)
    assert lab(linear("#808080"))[0] == pytest.approx(53.6, abs=0.1)


@pytest.mark.parametrize("cones", SEEN)
@pytest.mark.parametrize(("count", "least"), [(4, 40), (8, 20)])
def test_colours_can_be_told_apart_without_red_or_green_cones(cones: str, count: int, least: float) -> None:
    seen = [lab(SEEN[cones] @ linear(colour)) for colour in COLOURS[:count]]
    apart = {(i, j): float(np.linalg.norm(seen[i] - seen[j])) for i in range(count) for j in range(i)}
    assert min(apart.values()) > least, apart


def test_lines_differ_in_dash_and_marker_also_where_colours_come_round_again() -> None:
    looks = [look_of(style, MARKERS) for style in range(2 * len(COLOURS))]
    assert len({str(look["linestyle"]) for look in looks[: len(COLOURS)]}) == len(COLOURS)
    assert len({look["marker"] for look in looks[: len(COLOURS)]}) == len(COLOURS)
    assert len({(look["color"], str(look["linestyle"]), look["marker"]) for look in looks}) == len(looks)


@pytest.mark.parametrize("colour", COLOURS)
def test_lines_stand_out_from_white_paper(colour: str) -> None:
    luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))
    assert 1.05 / (luminance + 0.05) > 3  # WCAG 2.1, 1.4.11: graphical objects


@pytest.mark.parametrize("cones", SEEN)
def test_a_map_grows_darker_with_its_values_whoever_looks(cones: str) -> None:
    scale = colour_scale()
    light = [lab(SEEN[cones] @ linear_of(scale(share)[:3]))[0] for share in np.linspace(0, 1, 11)]
    assert all(first - second > 2 for first, second in pairwise(light))


def test_the_words_around_a_map_of_one_column_lie_within_the_figure() -> None:
    from matplotlib.text import Text

    figure = HeatMap(
        [[estimate(0.5)]],
        rows=["before"],
        columns=["1"],
        title="A title that is longer than its only column",
        row_label="site",
        column_label="layer (-1 is the embedding)",
        bounds=(0.0, 1.0),
    ).draw()
    ends = [one.get_window_extent() for one in figure.findobj(Text) if one.get_text()]
    assert min(one.x0 for one in ends) >= 0 and max(one.x1 for one in ends) <= figure.bbox.width
