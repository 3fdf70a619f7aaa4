"""A world that draws itself as cells has a picture on the page, with the way of its agent."""

from goalscope.report.pictures import drawn_picture
from goalscope.worlds.drawing import Drawing


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
