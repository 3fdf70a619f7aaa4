"""Figures and tables outside of the page: names, SVG, PDF, PNG, CSV, LaTeX, Markdown, and the line of Python."""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

from command_line import call
from families import long_after
from goalscope.report import Declared, Figure, figure, lay_out, short, write_report
from goalscope.report.blocks import Cell, Table, estimates_table
from goalscope.report.exports import (
    as_figure,
    as_latex,
    as_markdown,
    find,
    latex_text,
    named,
    named_of_run,
    table_as_csv,
    write,
)
from goalscope.report.figures import Picture, drawing, map_picture, picture
from goalscope.runs import Store
from goalscope.stats import Estimate, estimate_mean
from goalscope.worlds import Grid
from measured_runs import HOSTILE, measured, small_study

NASTY = HOSTILE + r"\input{x}$\alpha$ a_b^2 & 100% #1 ~ {z} `q' ^^M | [a](javascript:x) **b** 模型 é"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = small_study(agents=[{"kind": "optimal"}, {"kind": "random"}], trajectories=1)
    path = measured(tmp_path_factory.mktemp("run") / "small", study)
    with Store(path) as store:
        write_report(store, path / "report.html")
    return path


@pytest.fixture(scope="module")
def page(directory: Path) -> str:
    return (directory / "report.html").read_text(encoding="utf-8")


def some(value: float = 0.4) -> Estimate:
    return estimate_mean(np.linspace(value - 0.2, value + 0.2, 12), range(12), unit="share", bounds=(0.0, 1.0))


def table(label: str = NASTY, lines: int = 2) -> Table:
    rows = [(label, [some(), None]) for _ in range(lines)]
    made = estimates_table(f"Caption of {label}", [(f"agent {label}", ""), ("x_1 & y", "share"), ("z", "")], rows)
    [section] = lay_out([Declared(anchor="mine", title="M", tables=[made])])
    return section.tables[0]  # type: ignore[no-any-return]


def test_names_follow_the_declaration_and_stay_when_something_is_left_out() -> None:
    texts = [Table(headings=("a",), rows=(("1",),)) for _ in range(3)]
    drawn = [Figure(Picture(drawing(1, 1, "x", "8px", ())), caption=str(at)) for at in range(2)]
    sections = lay_out([Declared(anchor="a b", title="A", tables=texts, figures=drawn) for _ in range(2)])
    assert list(named(sections)) == [
        *(f"a-b-{kind}" for kind in ("figure-1", "figure-2", "table-1", "table-2", "table-3")),
        *(f"a-b-1-{kind}" for kind in ("figure-1", "figure-2", "table-1", "table-2", "table-3")),
    ]
    again = lay_out(sections)
    assert list(named(again)) == list(named(sections))


def test_every_figure_of_the_page_has_its_svg_its_numbers_and_a_line_that_runs(
    directory: Path, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {name: one for name, one in named_of_run(directory).items() if isinstance(one, Figure)}
    files = {
        name: unquote(address) for name, address in re.findall(r'download="([^"]+)" href="data:[^,]+,([^"]+)"', page)
    }
    assert there and set(files) == {f"{name}.{ending}" for name in there for ending in ("svg", "csv")}
    for name, one in there.items():
        root = ElementTree.fromstring(files[f"{name}.svg"].encode())
        assert root.tag.endswith("svg") and f'id="{name}"' in page
        entries = list(csv.DictReader(io.StringIO(files[f"{name}.csv"])))
        assert len(entries) == len(one.drawn.records) > 0
        assert set(entries[0]) == set(one.drawn.records[0])
    lines = re.findall(r"<code>(from goalscope\.report import figure; .*?)</code>", page)
    assert len(lines) == len(there)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").symlink_to(directory)
    for line in (unescape(lines[0]), unescape(lines[-1])):
        exec(line, {})
    written = sorted(path.name for path in tmp_path.glob("*.pdf"))
    assert written == sorted(f"{name}.pdf" for name in (next(iter(there)), list(there)[-1]))
    assert all((tmp_path / name).read_bytes().startswith(b"%PDF") for name in written)


def test_the_numbers_of_a_curve_are_those_of_the_ledger(directory: Path) -> None:
    shown = find(named_of_run(directory), "size-and-density-figure-1")
    assert isinstance(shown, Figure)
    with Store(directory) as store:
        rows = store.rows()
    sizes = sorted(set(rows["size"].tolist()))
    assert [(one["series"], one["x"]) for one in shown.drawn.records] == [
        (agent, str(size)) for agent in ("optimal", "random") for size in sizes
    ]
    for one in shown.drawn.records:
        mine = rows.select(measure="success", agent=one["series"], size=int(one["x"]))
        assert one["value"] == pytest.approx(mine.value.mean(), rel=1e-6)
        assert one["grids"] == len(set(mine.cluster.tolist())) and one["low"] <= one["value"] <= one["high"]


def test_a_figure_of_a_notebook_is_that_of_the_page(directory: Path) -> None:
    name = "size-and-density-figure-1"
    drawn, shown = figure(directory, name).axes[0], find(named_of_run(directory), name)
    assert isinstance(shown, Figure) and drawn.texts[0].get_text() == "Success by size"
    root = ElementTree.fromstring(shown.svg)
    assert [text.get_text() for text in drawn.texts] == [node.text for node in root.iter("text")]
    assert len(drawn.patches) == sum(node.tag != "text" for node in root)
    with pytest.raises(ValueError, match="size-and-density-figure-"):
        figure(directory, "size-and-density-figure-l")
    with pytest.raises(ValueError, match="'results-table-1'"):
        figure(directory, "results-table-1")


def test_the_command_lists_writes_one_and_writes_all(directory: Path, tmp_path: Path) -> None:
    listing = call("figure", directory, "--list")
    there = named_of_run(directory)
    assert all(name in listing for name in there)
    (tmp_path / "one").mkdir()
    for name, endings in (
        ("maps-figure-1", "svg pdf png csv"),
        ("examples-figure-1", "svg pdf png csv"),
        ("results-table-1", "tex md csv"),
    ):
        for path in (tmp_path / "one" / f"{name}.{ending}" for ending in endings.split()):
            write(there[name], path)
            first = path.read_bytes()
            write(there[name], path)
            assert first and path.read_bytes() == first
    for name in ("maps-figure-1.pdf", "results-table-1.tex"):
        call("figure", directory, name.partition(".")[0], "--out", tmp_path / "two" / name)
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert (tmp_path / "one" / "maps-figure-1.png").read_bytes().startswith(b"\x89PNG")
    call("figure", directory, "--all", tmp_path / "all")
    wanted = {
        f"{name}.{ending}"
        for name, one in there.items()
        for ending in (("tex", "md", "csv") if isinstance(one, Table) else ("svg", "csv"))
    }
    assert {path.name for path in (tmp_path / "all").iterdir()} == wanted | {"SHA256SUMS"}


@pytest.mark.parametrize(
    ("given", "said"),
    long_after(
        2,
        [
            ((), "give either the NAME"),
            (("maps-figure-1",), "give either the NAME"),
            (("--list", "--all", "x"), "give either the NAME"),
            (("maps-figure-9", "--out", "x.pdf"), "maps-figure-1"),
            (("maps-figure-1", "--out", "x.jpg"), ".svg, .pdf, .png, .csv"),
            (("maps-figure-1", "--out", "x.tex"), ".svg, .pdf, .png, .csv"),
            (("results-table-1", "--out", "x.pdf"), ".tex, .md, .csv"),
            (("results-table-1", "--out", "run.db"), "overwritten"),
        ],
        names=2,
    ),
)
def test_what_cannot_be_written_is_refused(directory: Path, given: tuple[str, ...], said: str) -> None:
    assert said in " ".join(call("figure", directory, *given, status=2).split())


def test_a_table_as_csv_has_the_numbers_of_its_estimates_and_no_formula() -> None:
    made = table("=1+1")
    [heading, first, _] = csv.reader(io.StringIO(table_as_csv(made)))
    assert heading[:5] == ["agent =1+1", "x_1 & y (share)", "x_1 & y: low", "x_1 & y: high", "x_1 & y: confidence"]
    one = some()
    assert first[0] == "'=1+1" and first[-1] == "–"
    assert [float(text) for text in first[1:4]] == pytest.approx([one.value, one.low, one.high], rel=1e-6)
    assert first[5:7] == ["12", "12"]
    plain = Table(headings=("a", "b"), rows=(("007", "−1,250.5"), ("x", "–")), numbers=(1,))
    assert table_as_csv(plain) == "a,b\n007,-1250.5\nx,–\n"


def test_markdown_keeps_hostile_text_in_its_cell() -> None:
    lines = as_markdown(table()).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    bars = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(rows) == 4 and bars == {4} and rows[1] == "| --- | ---: | ---: |"
    assert r"\<script\>" in rows[2] and r"[a\](javascript" in rows[2] and r"\*\*b\*\*" in rows[2]
    assert short(some().value, "share") in rows[2] and not re.search(r"(?<!\\)<", "".join(lines))


def test_latex_prints_every_letter_and_obeys_none() -> None:
    text = latex_text(NASTY)
    assert text.isascii() is False and text.replace("é", "").isascii()
    commands = set(re.findall(r"\\([A-Za-z]+)", text))
    assert commands == {"textless", "textgreater", "textbackslash", "texttt", "char", "textasciicircum"} | {
        *("textasciitilde", "textasciigrave", "textquotesingle", "textbar")
    }
    assert latex_text("a--b ,, [1] *") == "a{-}{-}b {,}{,} {[}1{]} {*}"
    made = as_latex(table())
    assert (
        made.startswith("% \\usepackage{booktabs}\n\\begin{table}") and r"\toprule" in made and r"\bottomrule" in made
    )
    ends = [line for line in made.splitlines() if line.endswith(r" \\")]
    assert len(ends) == 3 and all(len(re.findall(r"(?<!\\)&", line)) == 2 for line in ends)
    assert r"\begin{longtable}" in as_latex(table("a", 60)) and r"\begin{table}" not in as_latex(table("a", 60))


@pytest.mark.full
def test_every_table_of_a_page_compiles_and_prints_hostile_names_as_they_are(directory: Path, tmp_path: Path) -> None:
    pdflatex, texts = shutil.which("pdflatex"), shutil.which("pdftotext")
    if pdflatex is None:
        pytest.skip("pdflatex is not installed (Debian: texlive-latex-base and texlive-latex-recommended)")
    tables = [one for one in named_of_run(directory).values() if isinstance(one, Table)]
    made = [as_latex(one) for one in (*tables, table(), table("long", 60))]
    text = "\\documentclass{article}\\usepackage{booktabs,longtable}\\begin{document}\\pdfpagewidth=4000pt\n"
    text += "\n".join(f"{one}\\clearpage" for one in made) + "\\end{document}\n"
    (tmp_path / "all.tex").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    assert "LaTeX Error" not in log and "Missing character" not in log
    if texts is not None:
        shown = subprocess.run([texts, "-layout", "all.pdf", "-"], cwd=tmp_path, capture_output=True, check=True)
        letters = "".join(shown.stdout.decode().split())
        for text in (r"\input{x}$\alpha$", "<script>alert(1)</script>", "&100%#1", "{z}", "[a](javascript:x)**b**"):
            assert text in letters


def test_pictures_become_figures_with_all_that_they_show() -> None:
    grid = Grid.parse("#######\n#A_#__#\n#__D__#\n#K_#_G#\n#######")
    made = picture(grid, [(1, 1), (1, 1), (2, 1), (3, 1), (3, 1)], label="x", wrong=(1,), invalid=(3,))
    drawn = as_figure(made.svg)
    assert drawn.get_size_inches() == pytest.approx([140 / 72, 100 / 72])
    axes = drawn.axes[0]
    root = ElementTree.fromstring(made.svg)
    shapes = [node for node in root.iter() if node.tag in ("rect", "path", "circle", "polygon", "polyline")]
    assert len(axes.patches) == len(shapes)
    assert [text.get_text() for text in axes.texts] == [node.text for node in root.iter("text")]
    walls = axes.patches[1].get_path()
    assert walls.contains_point((10, 10)) and walls.contains_point((70, 30)) and not walls.contains_point((30, 30))
    assert [one["shows"] for one in made.records if one["what"] == "step"] == [
        *("optimal", "not optimal", "optimal", "no action", "end")
    ]
    cells = {(one["row"], one["column"]): one["shows"] for one in made.records if one["what"] == "cell"}
    assert len(cells) == 35 and cells[1, 1] == "start" and cells[0, 0] == "wall" and cells[2, 3] == "door"


@pytest.mark.parametrize(
    "inside",
    [
        *('<ellipse rx="1"/>', '<path d="M0 0C1 1 2 2 3 3"/>', '<path d="L1 1"/>'),
        *('<g transform="rotate(3)"><rect/></g>', '<text x="1" y="1" transform="scale(2)">a</text>'),
    ],
)
def test_a_picture_that_is_none_of_ours_is_kept_as_svg(inside: str, tmp_path: Path) -> None:
    other = Figure(Picture(drawing(9, 9, "x", "8px", (inside,))))
    write(other, tmp_path / "x.svg")
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    with pytest.raises(ValueError, match=r"\.svg"):
        write(other, tmp_path / "x.pdf")


def test_turned_text_and_faint_shapes_stay_so() -> None:
    parts = (
        '<text x="3" y="4" transform="rotate(-90 3 4)">a</text>',
        '<rect width="3" height="2" fill="#ff0000" stroke="#000000" fill-opacity="0.5" opacity="0.5"/>',
    )
    axes = as_figure(drawing(9, 9, "x", "8px", parts)).axes[0]
    assert axes.texts[0].get_rotation() == 90 and axes.texts[0].get_position() == (3, 4)
    assert axes.patches[0].get_facecolor() == (1, 0, 0, 0.25) and axes.patches[0].get_edgecolor() == (0, 0, 0, 0.5)


def test_relative_and_absolute_commands_of_a_path_draw_the_same() -> None:
    paths = ("M1 2h4v3H1z", "M1 2L5 2 5 5L1 5Z", "m1 2l4 0l0 3l-4 0z")
    shapes = [as_figure(drawing(9, 9, "x", "8px", (f'<path d="{one}"/>',))).axes[0].patches[0] for one in paths]
    for shape in shapes:
        corners = np.asarray(shape.get_path().vertices, dtype=np.float64)
        np.testing.assert_allclose(corners, [(1, 2), (5, 2), (5, 5), (1, 5), (1, 2)])


def test_a_decoded_map_tells_what_each_cell_is_decoded_as() -> None:
    shown = {(one["row"], one["column"]): one["shows"] for one in map_picture(("#A", "G "), "x").records}
    assert shown == {(0, 0): "wall", (0, 1): "agent, likeliest here", (1, 0): "goal, likeliest here", (1, 1): "padding"}


def test_a_cell_without_an_estimate_is_a_text_of_its_table() -> None:
    made = Table(headings=("a", "b"), rows=(("x", Cell(value="3 / 4")),), numbers=(1,), units=("", "counts"))
    assert table_as_csv(made) == "a,b (counts)\nx,3 / 4\n"


DRAWING = """
import sys
from goalscope.report.exports import drawing_style
with drawing_style():
    import matplotlib
    print(matplotlib.rcParams["text.usetex"], matplotlib.rcParams["font.size"])
"""


@pytest.mark.parametrize(
    "kind", long_after(3, ["settings", "a pipe", "a folder", "a link to a pipe", "a long file", "no text"])
)
def test_settings_of_matplotlib_in_the_working_directory_are_not_used(kind: str, tmp_path: Path) -> None:
    """Matplotlib opens the file whatever it is, and prints the lines that it does not know."""
    path = tmp_path / "matplotlibrc"
    if kind == "settings":
        path.write_text("text.usetex: True\nfont.size: 77\nstrange.key: \x1b[2J\nbackend: module://evil\n")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link to a pipe":
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    elif kind == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"#" * 2_000_000 if kind == "a long file" else b"\xff\xfe\x00")
    done = subprocess.run(
        [sys.executable, "-c", DRAWING], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    if kind in ("settings", "a folder"):
        assert (done.stdout, done.stderr) == ("False 10.0\n", "")
    else:
        assert done.returncode == 1 and "matplotlib reads the file matplotlibrc" in done.stderr.splitlines()[-1]
