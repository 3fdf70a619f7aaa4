"""The text form: parse is the inverse of render, reads what others wrote, and says what is wrong."""

import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope.worlds import Grid
from goalscope.worlds.grid import read_open_cells, symbols


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """Any grid at all: not square, with or without each object, partly under fog."""
    height, width = draw(st.integers(1, 13)), draw(st.integers(1, 13))
    kinds = np.array(draw(st.lists(st.sampled_from("#_*"), min_size=height * width, max_size=height * width))).reshape(
        height, width
    )
    cells = [(int(row), int(col)) for row, col in np.argwhere(kinds == "_")]
    chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=4)) if cells else []
    names = draw(st.permutations(["start", "goal", "key", "door"]))
    placed: dict[str, Any] = dict(zip(names, chosen, strict=False))
    return Grid(walls=kinds == "#", fog=kinds == "*", **placed)


@given(grids())
def test_parse_is_the_inverse_of_render(grid: Grid) -> None:
    text = grid.render()
    assert Grid.parse(text) == grid
    assert Grid.parse(text).render() == text
    cells = [line.split()[1:] for line in text.splitlines()[1:]]
    for same in (
        text.splitlines(),
        "\n".join(line + " " for line in text.splitlines()),
        "\n\n" + text + "\n",
        "\n".join(" ".join(row) for row in cells),
        "\n".join("".join(row) for row in cells),
        ["".join(row) for row in cells],
    ):
        assert Grid.parse(same) == grid
    assert Grid.parse(cells) == grid


@given(grids(), st.data())
def test_the_text_is_aligned_wherever_the_agent_stands(grid: Grid, data: st.DataObject) -> None:
    objects = {grid.goal, grid.key, grid.door}
    cells = [
        cell
        for row, col in np.argwhere(symbols(grid) != "#").tolist()
        if (cell := (row, col)) not in objects and (grid.fog is None or not grid.fog[cell])
    ]
    for start in (grid.start, *(data.draw(st.lists(st.sampled_from(cells), max_size=3)) if cells else ())):
        moved = grid.at(start=start)
        width = len(str(max(moved.height, moved.width) - 1))
        lines = [["", *range(moved.width)]] + [[row, *line] for row, line in enumerate(symbols(moved).tolist())]
        assert moved.render() == "\n".join(" ".join(str(one).rjust(width) for one in line) for line in lines)


@given(grids(), st.data())
def test_unequal_grids_have_unequal_texts(grid: Grid, data: st.DataObject) -> None:
    other = data.draw(grids())
    assert (grid == other) == (grid.render() == other.render())
    assert grid != other or hash(grid) == hash(other)


def test_the_paper_s_layouts_are_read() -> None:
    left_justified = "   0 1 2 3 4 5 6 7 8 9 10 \n" + "\n".join(
        f"{row:<3}" + "# " + ("# " * 9 if row in (0, 10) else "A G " + "_ " * 7) + "# "
        if row in (0, 5, 10)
        else f"{row:<3}" + "# " + "_ " * 9 + "# "
        for row in range(11)
    )
    grid = Grid.parse(left_justified)
    assert (grid.start, grid.goal, grid.walls.shape) == ((5, 1), (5, 2), (11, 11))
    right_justified = grid.render()
    assert right_justified.splitlines()[0] == "    0  1  2  3  4  5  6  7  8  9 10"
    assert right_justified.splitlines()[5 + 1] == " 5  #  A  G  _  _  _  _  _  _  _  #"
    assert Grid.parse(right_justified) == grid


def test_small_grids_are_rendered_as_in_the_paper() -> None:
    assert Grid.parse("#####\n#A_G#\n#####").render() == "  0 1 2 3 4\n0 # # # # #\n1 # A _ G #\n2 # # # # #"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one row"),
        ("  0 1 2", "at least one row below its header"),
        ("###\n#A\n###", "line 2 has 2, the first row has 3"),
        ("###\n\n###", "blank line as line 2"),
        ("###\n#x#\n###", r"a cell must be one of # \* A D G K _ .*line 2, column 1 holds 'x'"),
        ("#####\n#A  #\n#  G#\n#####", "written _: line 2, column 2 is blank"),
        ("#####\n#A  #\n#  G\n#####", "written _: line 2, column 2 is blank"),
        ("\n  ###\n  A G\n", "written _: line 3, column 3 is blank"),
        ("A   \n    \n   G", "written _: line 1, column 1 is blank"),
        ("#####\n#A\u00a0\u00a0#\n#__G#\n#####", r"written _: line 2, column 2 holds '\\xa0'"),
        ("#####\n#A__#\n#_\tG#\n#####", r"written _: line 3, column 2 holds '\\t'"),
        ("#####\n#A__#\n#\u3000_G#\n#####", r"written _: line 3, column 1 holds '\\u3000'"),
        ("#####\n#A.G#\n#####", r"line 2, column 2 holds '\.'; an open cell is written _"),
        ("####\n#AA#\n####", r"at most one 'A': line 2 has a second one at \(row, col\) = \(1, 2\)"),
        ("####\n#GG#\n####", "at most one 'G'"),
        ("####\n#KK#\n####", "at most one 'K'"),
        ("####\n#DD#\n####", "at most one 'D'"),
        ("  0 1 2\n0 # # #\n2 # A #", "line 3 must start with 1, got '2'"),
        ("  0 1 3\n0 # # #", "line 1"),
        ("  0 1\n0 # # #", "2 labels.*line 2.*3 cells"),
        (["###", 3], "a row must be a text or a list of symbols, got 3"),
    ],
)
def test_what_is_wrong_with_a_text(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grid.parse(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#####\n#A  #\n#   #\n#  G#\n#####", "#####\n#A__#\n#___#\n#__G#\n#####"),
        ("#####\n#A..#\n#..G#\n#####", "#####\n#A__#\n#__G#\n#####"),
        ("A   \n  # \n    \n   G", "A___\n__#_\n____\n___G"),
        ("\n    ####\n    #A #\n    # G#\n    ####\n", "####\n#A_#\n#_G#\n####"),
        (["# #A", "G   "], ["#_#A", "G___"]),
        ([["#", " ", "A"], ["G", ".", ""]], [["#", "_", "A"], ["G", "_", "_"]]),
        ("# # # #\n# A . #\n# _ G #\n# # # #", "####\n#A_#\n#_G#\n####"),
        ("  0 1 2\n0 # A .\n1 # . G", "#A_\n#_G"),
        ("###\n#A*\n###", "###\n#A*\n###"),
    ],
)
def test_open_cells_of_other_programs(text: Any, wanted: Any) -> None:
    assert Grid.parse(read_open_cells(text)) == Grid.parse(wanted)


@given(grids())
def test_open_cells_of_our_own_texts_stay_as_they_are(grid: Grid) -> None:
    assert Grid.parse(read_open_cells(grid.render())) == grid
    blank = "\n".join("".join(row) for row in symbols(grid).tolist())
    assert Grid.parse(read_open_cells(blank)) == grid


WALLS = np.array([[True, False], [False, False]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": (0, 0)}, r"start must lie on an open cell, got the wall at \(0, 0\)"),
        ({"goal": (2, 0)}, r"goal must lie in the 2x2 grid"),
        ({"goal": (-1, 0)}, r"goal must lie in the 2x2 grid"),
        ({"start": (0, 1), "goal": (0, 1)}, r"goal must .*, got \(0, 1\), where start lies"),
        ({"start": (0, 1.0)}, r"start must be \(row, col\), two whole numbers"),
        ({"start": (0, True)}, r"two whole numbers"),
        ({"start": (0, 1, 1)}, r"two whole numbers"),
        ({"walls": WALLS.astype(int)}, "walls must be .*boolean array"),
        ({"walls": WALLS[0]}, "walls must be .*boolean array"),
        ({"walls": np.zeros((0, 3), dtype=bool)}, "walls must be .*boolean array"),
        ({"fog": WALLS}, "fog and walls"),
        ({"fog": WALLS[:1]}, "fog must be boolean with the shape of walls"),
        ({"fog": ~WALLS, "key": (1, 1)}, r"key must lie on a visible cell, got the hidden cell \(1, 1\)"),
    ],
)
def test_what_a_grid_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grid(**{"walls": WALLS} | changes)  # type: ignore[arg-type]


def test_a_grid_is_read_only_and_leaves_its_argument_alone() -> None:
    walls = WALLS.copy()
    grid = Grid(walls=walls)
    walls[1, 1] = True
    assert not grid.walls[1, 1]
    with pytest.raises(ValueError, match="read-only"):
        grid.walls[1, 1] = True


def test_a_layout_with_trailing_blanks_and_one_as_lists_are_read() -> None:
    padded = "  0 1 2 3 \n0 # # # # \n1 # A G # \n2 # # # # "
    grid = Grid.parse([list("####"), list("#AG#"), list("####")])
    assert Grid.parse(padded) == grid
    assert (grid.start, grid.goal) == ((1, 1), (1, 2))


def test_something_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="text"):
        Grid.parse(5)  # type: ignore[arg-type]


def test_an_interrupt_while_a_grid_is_written_ends_the_writing() -> None:
    grid, arrived = Grid.parse(["A" + "_" * 12, *["_" * 13] * 11, "_" * 12 + "G"]), list[int]()

    def interrupt(number: int, frame: object) -> None:
        arrived.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for count in range(1, 101):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 2e-4)
                while len(arrived) < count:
                    grid.render()
    finally:
        signal.signal(signal.SIGALRM, before)
