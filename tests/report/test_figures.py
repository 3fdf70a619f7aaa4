"""Figures: charts, pictures of grids, and worlds that draw themselves as cells or as a graph."""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from goalscope.report import short
from goalscope.report.charts import (
    Forest,
    ForestBar,
    HeatMap,
    Lines,
    Point,
    Points,
    Scale,
    Series,
    look_of,
    shade,
    text_width,
)
from goalscope.report.exports import as_figure
from goalscope.report.figures import COLOURS, drawn_picture, embed, graph_picture, picture, themed
from goalscope.report.page import render_page
from goalscope.report.sections.agents import episode_figure, legend_of
from goalscope.report.texts import TEXTS
from goalscope.stats import Estimate, estimate_mean
from goalscope.worlds import Grid, GridWorld
from goalscope.worlds.world import Drawing


def estimate(mean: float, grids: int = 8) -> Estimate:
    values = np.clip(mean + 0.1 * np.cos(np.arange(grids)), 0, 1)
    return estimate_mean(values, list(range(grids)), unit="share", bounds=(0.0, 1.0))


def curves() -> str:
    series = [
        Series(label=label, style=style, points={7.0: estimate(0.3), 9.0: estimate(0.6)})
        for style, label in enumerate(("one <b> $x$", "two"))
    ]
    return Lines(series, title="Success", x_label="size (cells)", y_label="success (share)", bounds=(0.0, 1.0)).svg


def test_text_stays_text_and_nothing_refers_outside_of_the_figure() -> None:
    svg = curves()
    assert svg == curves()
    root = ElementTree.fromstring(svg)
    texts = {"".join(node.itertext()) for node in root.iter("text")}
    assert {"Success", "size (cells)", "success (share)", "one <b> $x$", "two"} <= texts
    assert root.attrib["role"] == "img" and root.attrib["aria-label"] == "Success"
    assert ElementTree.fromstring(embed(svg, 'a & "b"')).attrib["aria-label"] == 'a & "b"'
    assert not re.search("http|<style|<metadata| id=|href|url", svg)


Axis = Callable[[float], float]


def placed(svg: str, across: Axis = float) -> tuple[list[tuple[float, float]], Axis, Axis]:
    """Return the places of the marks of a chart, and ``across`` of x and y at a place by the labels of its axes."""
    root = ElementTree.fromstring(svg)
    axes: dict[str, list[tuple[float, float]]] = {"x": [], "y": []}
    for node in root.iter("text"):
        name, anchor = (node.text or "").replace("−", "-"), node.attrib.get("text-anchor")
        if re.fullmatch(r"-?[\d.]+", name) and anchor in ("middle", "end"):
            at = "x" if anchor == "middle" else "y"
            value = across(float(name)) if at == "x" else float(name)
            axes[at].append((float(node.attrib[at]) - 3.5 * (at == "y"), value))
    marks = []
    for node in root.iter():
        if node.attrib.get("class") == "value" and node.tag == "circle":
            marks.append((float(node.attrib["cx"]), float(node.attrib["cy"])))
        elif node.attrib.get("class") == "value":
            corners = np.array([[float(part) for part in pair.split(",")] for pair in node.attrib["points"].split()])
            marks.append((float(corners[:, 0].mean()), float(corners[:, 1].mean())))
    return marks, along(axes["x"]), along(axes["y"])


def along(ticks: list[tuple[float, float]]) -> Axis:
    """Return the value at a place by the labels of an axis, which lie on one line."""
    if len(ticks) < 2:
        return lambda place: math.nan
    places, values = np.array(ticks).T
    line = np.polyfit(places, values, 1)
    assert np.polyval(line, places) == pytest.approx(values, abs=2e-3)
    return lambda place: float(np.polyval(line, place))


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (-0.4, 0.25)])
def test_marks_lie_where_the_axes_say(low: float, high: float) -> None:
    x = (7.0, 9.0, 13.0)
    values = [[low, (low + high) / 3, high], [high, low / 3, low]]
    series = [
        Series(label="a", style=style, points=dict(zip(x, map(exact, row), strict=True)))
        for style, row in zip((1, 2), values, strict=True)
    ]
    marks, x_of, y_of = placed(Lines(series, title="t", x_label="x", y_label="y", ticks=x).svg)
    assert [x_of(at) for at, _ in marks] == pytest.approx([*x, *x], abs=0.01)
    assert [y_of(height) for _, height in marks] == pytest.approx(values[0] + values[1], abs=1e-3 * (high - low))


def exact(value: float, half: float = 0.1) -> Estimate:
    low, high = value - half, value + half
    return Estimate(value=value, low=low, high=high, n=9, clusters=9, method="t", unit="share", without=0)


def test_bands_are_the_intervals_and_gaps_stay_open() -> None:
    nothing = exact(float("nan"))
    estimates = (exact(0.2), exact(0.4), nothing, exact(0.6))
    series = Series(label="a", style=0, points=dict(enumerate(estimates)))
    svg = Lines([series], title="t", x_label="x", y_label="y", bounds=(0.0, 1.0), ticks=(0.0, 1.0, 2.0, 3.0)).svg
    marks, x_of, y_of = placed(svg)
    assert [x_of(at) for at, _ in marks] == pytest.approx([0, 1, 3], abs=0.01)
    root = ElementTree.fromstring(svg)
    [outline] = [node.attrib["d"] for node in root.iter("path") if "fill-opacity" in node.attrib]
    corners = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", outline)]
    assert [(x_of(at), y_of(height)) for at, height in corners] == [
        pytest.approx(corner, abs=0.01) for corner in ((0, 0.3), (1, 0.5), (1, 0.3), (0, 0.1))
    ]
    drawn = [node.attrib["d"] for node in root.iter("path") if node.attrib.get("stroke") == COLOURS[0]]
    bars = [re.findall(r"([\d.]+) ([\d.]+)", path) for path in drawn if path.count("L") == 1]
    spans = [[(x_of(float(at)), y_of(float(height))) for at, height in bar[:2]] for bar in bars]
    # The point behind the gap has a bar for its interval; the line leads over the first two alone.
    assert spans == [
        [pytest.approx((3, 0.5), abs=0.01), pytest.approx((3, 0.7), abs=0.01)],
        [pytest.approx((0, 0.2), abs=0.01), pytest.approx((1, 0.4), abs=0.01)],
    ]


def test_an_interval_is_cut_at_the_end_of_the_axis_and_a_value_never() -> None:
    series = Series(label="a", style=0, points={0.0: exact(0.5, 3.0), 1.0: exact(1.5, 0.1)})
    svg = Lines([series], title="t", x_label="x", y_label="y", bounds=(0.0, 1.0), ticks=(0.0, 1.0)).svg
    marks, _, y_of = placed(svg)
    assert [y_of(height) for _, height in marks] == pytest.approx([0.5, 1.5], abs=0.01)
    outline = next(
        node.attrib["d"] for node in ElementTree.fromstring(svg).iter("path") if "fill-opacity" in node.attrib
    )
    heights = [y_of(float(height)) for _, height in re.findall(r"([\d.]+) ([\d.]+)", outline)]
    assert heights == pytest.approx([1.56, 1.56, 1.4, -0.06], abs=0.01)  # 4 % beyond 0 and 1.5


def test_differences_lie_where_the_axis_says_one_line_below_the_other() -> None:
    bars = [
        ForestBar(name, style, line, exact(value, 0.05), filled=value > 0)
        for style, name in enumerate(("a", "b"))
        for line, value in (("first", 0.2 - style), ("second", -0.3 + style))
    ]
    svg = Forest(bars, title="t", x_label="x", margin=0.1, levels={0.0: "none", 1.0: "<all>"}).svg
    marks, x_of, _ = placed(svg)
    assert [x_of(at) for at, _ in marks] == pytest.approx([bar.estimate.value for bar in bars], abs=2e-3)
    heights = [height for _, height in marks]
    assert heights[0] < heights[2] < heights[1] < heights[3]
    root = ElementTree.fromstring(svg)
    fills = [node.attrib["fill"] for node in root.iter() if node.attrib.get("class") == "value"]
    assert [fill == "#ffffff" for fill in fills] == [not bar.filled for bar in bars]
    [margin] = [node.attrib for node in root.iter("rect")]
    edges = [x_of(float(margin["x"])), x_of(float(margin["x"]) + float(margin["width"]))]
    assert edges == pytest.approx([-0.1, 0.1], abs=2e-3) and {"none", "<all>"} <= {
        node.text for node in root.iter("text")
    }


def test_points_lie_on_a_logarithmic_axis() -> None:
    shown = [Point(f"p{index}", index, exact(x, 0.1 * x), exact(0.5)) for index, x in enumerate((0.002, 0.03, 0.8))]
    svg = Points(shown, title="t", x_label="x", y_label="y", line=(-0.2, 0.2)).svg
    marks, x_of, y_of = placed(svg, math.log10)
    assert [10 ** x_of(at) for at, _ in marks] == pytest.approx([0.002, 0.03, 0.8], rel=2e-3)
    assert [y_of(height) for _, height in marks] == pytest.approx([0.5] * 3, abs=2e-3)
    (fit,) = [
        node.attrib["d"]
        for node in ElementTree.fromstring(svg).iter("path")
        if node.attrib.get("stroke-dasharray") == "3.7 1.6"
    ]
    heights = [y_of(float(height)) for _, height in re.findall(r"([\d.]+) ([\d.]+)", fit)]
    assert heights == pytest.approx([-0.2 * np.log10(end) + 0.2 for end in (0.002, 0.8)], abs=2e-3)


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-6, 1e7), apart=st.floats(15, 90), whole=st.booleans())
def test_ticks_are_round_equally_far_apart_and_labelled_with_what_they_are(
    low: float, span: float, apart: float, whole: bool
) -> None:
    high = low + span
    assume(high - low > 1e-9 * max(abs(low), abs(high)))
    scale = Scale(low, high, 300.0, 20.0)
    ticks = scale.ticks(apart, whole=whole)
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks)
    places = [scale(tick) for tick in ticks]
    steps = [first - second for first, second in pairwise(places)]
    assert all(step >= apart - 0.01 for step in steps) and max(steps, default=0) - min(steps, default=0) < 0.01
    assert len(set(ticks.values())) == len(ticks)
    assert [float(name.replace("−", "-")) for name in ticks.values()] == pytest.approx(list(ticks))
    assert not whole or all(tick == int(tick) for tick in ticks)


def test_widths_of_texts_are_those_of_the_font() -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    for text in ("success (share)", "Theseus-initial-0 <b>", "0.123 to −4.567", "WWWW iiii", "Größe n × d"):
        for bold, slack in ((False, 0.02), (True, 0.06)):
            font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=10)
            width = TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]
            assert text_width(text, 10, bold) == pytest.approx(width, rel=slack), text


def test_labels_of_an_axis_and_of_a_legend_do_not_touch() -> None:
    names = {float(at): f"a rather long world {at}" for at in range(6)}
    for ticks, count in ((names, 2), (tuple(np.arange(0.0, 60.0)), 17)):
        x = tuple(ticks)
        series = [
            Series(label=f"agent {at} by name", style=at, points=dict.fromkeys(x, exact(0.5))) for at in range(count)
        ]
        root = ElementTree.fromstring(Lines(series, title="t", x_label="x", y_label="y", ticks=ticks).svg)
        boxes = []
        for node in root.iter("text"):
            if "transform" not in node.attrib:
                size, left = float(node.attrib.get("font-size", 10)), float(node.attrib["x"])
                width = text_width(node.text or "", size)
                left -= {"start": 0, "middle": 0.5, "end": 1}[node.attrib.get("text-anchor", "start")] * width
                boxes.append((left, float(node.attrib["y"]) - 0.75 * size, left + width, float(node.attrib["y"])))
        for at, (left, top, right, bottom) in enumerate(boxes):
            assert left >= 0 and right <= float(root.attrib["viewBox"].split()[2])
            assert bottom <= float(root.attrib["viewBox"].split()[3])
            for other in boxes[:at]:
                assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
        turned = [node for node in root.iter("text") if "rotate(-35" in node.attrib.get("transform", "")]
        assert len(turned) == (6 if ticks is names else 0)


def test_a_chart_takes_the_colours_of_the_page_and_other_pictures_keep_theirs() -> None:
    css = render_page("t", [], [], "{}")
    themes = [dict(re.findall(r"--([\w-]+): (#\w+);", block)) for block in re.findall(r":root \{([^}]*)\}", css)]
    assert len(themes) == 3 and all(theme["ink"] for theme in themes)
    light, dark, paper = themes
    assert [light[f"series-{index}"] for index in range(8)] == list(COLOURS)
    assert all(paper[name] == light[name] for name in light if name.startswith("series"))
    svg = curves()
    assert 'class="chart"' in svg and "var(" not in svg
    shown = themed(svg)
    used = set(re.findall(r"var\(--([\w-]+)\)", shown))
    assert {"ink", "soft", "line", "back", "series-0", "series-1"} == used and used <= set(dark)
    assert not re.search(r'(fill|stroke)="#', shown)
    grid = picture(Grid.parse("#####\n#A_G#\n#####"), label="x").svg
    assert themed(grid) == grid


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


def test_a_picture_shows_things_by_their_symbols_and_the_legend_says_what_they_are() -> None:
    worlds = [GridWorld(grid=Grid.parse(text)) for text in ("#####\n#AcG#\n#####", "#####\n#ATG#\n#####")]
    for world, symbol, name in zip(worlds, "cT", ("coin", "teleporter"), strict=True):
        drawn = picture(world.grid, label="things")
        assert f">{symbol}</text>" in drawn.svg
        assert [record["shows"] for record in drawn.records if (record["row"], record["column"]) == (1, 2)] == [name]
        assert f"{symbol} is a {name}" in legend_of([world])
    assert all(f"{symbol} is a" in legend_of(worlds) for symbol in "cT")
    plain = GridWorld(grid=Grid.parse("#####\n#A_G#\n#####"))
    assert legend_of([plain]) == TEXTS("examples/legend", things="")


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


@pytest.mark.parametrize("cones", SEEN)
def test_colours_in_the_dark_can_be_told_apart_too(cones: str) -> None:
    dark = re.findall(r":root \{([^}]*)\}", render_page("t", [], [], "{}"))[1]
    colours = [re.findall(rf"--series-{index}: (#\w+);", dark)[0] for index in range(8)]
    [back] = re.findall(r"--back: (#\w+);", dark)
    seen = [lab(SEEN[cones] @ linear(colour)) for colour in colours]
    apart = {(i, j): float(np.linalg.norm(seen[i] - seen[j])) for i in range(8) for j in range(i)}
    assert min(apart.values()) > 20 and min(far for (i, _), far in apart.items() if i < 4) > 40
    luminances = [float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)) + 0.05 for colour in (back, *colours)]
    assert min(luminances[1:]) / luminances[0] > 3


def test_lines_differ_in_dash_and_mark_also_where_colours_come_round_again() -> None:
    looks = [look_of(style) for style in range(2 * len(COLOURS))]
    assert len({look.dashes for look in looks[: len(COLOURS)]}) == len(COLOURS)
    assert len({look.shape for look in looks[: len(COLOURS)]}) == len(COLOURS)
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("colour", COLOURS)
def test_lines_stand_out_from_white_paper(colour: str) -> None:
    luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))
    assert 1.05 / (luminance + 0.05) > 3  # WCAG 2.1, 1.4.11: graphical objects


@pytest.mark.parametrize("cones", SEEN)
def test_a_map_grows_darker_with_its_values_whoever_looks(cones: str) -> None:
    light = [lab(SEEN[cones] @ linear(f"#{shade(share).hex()}"))[0] for share in np.linspace(0, 1, 11)]
    assert all(first - second > 2 for first, second in pairwise(light))


def test_the_colours_of_a_map_are_those_of_the_published_scale() -> None:
    from matplotlib import colormaps

    for share in (-1.0, *np.linspace(0, 1, 33), 2.0):
        wanted = colormaps["YlGnBu"](0.08 + 0.8 * min(1.0, max(0.0, share)))[:3]
        assert np.frombuffer(shade(share), dtype=np.uint8) / 255 == pytest.approx(wanted, abs=0.012)


def test_the_words_around_a_map_of_one_column_lie_within_the_figure() -> None:
    chart = HeatMap(
        [[estimate(0.5)]],
        rows=["before"],
        columns=["1"],
        title="A title that is longer than its only column",
        row_label="site",
        column_label="layer (-1 is the embedding)",
        bounds=(0.0, 1.0),
    )
    figure = as_figure(chart.svg)  # measured by another library than the one that laid it out
    ends = [one.get_window_extent() for one in figure.axes[0].texts]
    assert len(ends) == 7 and min(one.x0 for one in ends) >= 0 and max(one.x1 for one in ends) <= figure.bbox.width


def test_the_picture_holds_the_cells_of_the_first_moment_and_the_way_through_all() -> None:
    rows = ("S__", "_H<", "__G")
    way = [(0, 0), (0, 1), (1, 1)]
    moments = [Drawing(rows=rows, agent=cell, labels=((2, 0, "home & away"),)) for cell in way]
    picture = drawn_picture([*moments, Drawing(rows=rows)], 'a "<b>"')
    assert picture.svg.count("<rect") == 9 and "&lt;b&gt;" in picture.svg and "<b>" not in picture.svg
    assert ">H</text>" in picture.svg and ">&lt;</text>" in picture.svg and ">home</text>" in picture.svg
    cells = [record for record in picture.records if record["what"] == "cell"]
    assert [record["shows"] for record in cells] == list("".join(rows))
    assert [(one["row"], one["column"]) for one in picture.records if one["what"] == "step"] == way


def test_a_graph_has_a_box_for_each_node_in_columns_by_the_arrows_that_lead_there() -> None:
    # Two roots, a cycle, a loop at one node, and a pair of nodes apart from the rest.
    nodes = {"hall": "", "attic": "you & the cat", "cellar": "", "shed": "", "moon": "", "sun": ""}
    edges = (("hall", "attic"), ("attic", "cellar"), ("cellar", "attic"), ("shed", "cellar"), ("attic", "attic"))
    picture = graph_picture(Drawing(nodes=nodes, edges=(*edges, ("moon", "sun"), ("sun", "moon"))), "rooms")
    left = {}
    for x, name in re.findall(r'<text x="([\d.]+)" [^>]*>([^<]+)</text>', picture.svg):
        left[name] = float(x)
    assert "you &amp; the cat" in left and {*nodes} <= {*left}
    assert left["hall"] == left["shed"] < left["attic"] == left["cellar"]
    assert picture.svg.count("<rect") == 6 and picture.svg.count("<polygon") == 6, "no arrow from a node to itself"
    assert [record["node"] for record in picture.records if record["shows"]] == ["attic"]
    assert {(record["node"], record["to"]) for record in picture.records if record["what"] == "edge"} > {*edges}
    as_figure(picture.svg)  # of elements that PDF and PNG can show


def test_graphs_without_a_beginning_start_with_their_first_node() -> None:
    picture = graph_picture(Drawing(nodes={"a": "", "b": "", "c": ""}, edges=(("a", "b"), ("b", "c"), ("c", "a"))), "x")
    places = [float(x) for x in re.findall(r'<text x="([\d.]+)"', picture.svg)]
    assert places == sorted(places) and len(set(places)) == 3
    last = re.findall(r'<path d="([^"]*)"', picture.svg)[-1]
    assert "V" in last and "H" in last, "the arrow from c to a passes below b"


def test_an_episode_in_a_graph_is_shown_by_its_last_state() -> None:
    def drawn(state: tuple[int]) -> Drawing:
        names = ("hall", "attic")
        return Drawing(nodes={name: "here" if at == state[0] else "" for at, name in enumerate(names)}, edges=(names,))

    world = SimpleNamespace(tags={}, offers=frozenset(), id="house", drawing=drawn)
    steps = [SimpleNamespace(state=(0,))]
    episode: Any = SimpleNamespace(agent="walker", id="one", outcome="goal", steps=steps, final=(1,), world=world)
    figure = episode_figure(episode)
    assert figure is not None
    places = {record["node"]: record["shows"] for record in figure.drawn.records if record["what"] == "node"}
    assert places == {"hall": "", "attic": "here"}
