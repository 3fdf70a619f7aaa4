"""Worlds that draw themselves as cells or as a graph have a picture on the page."""

import re
from types import SimpleNamespace
from typing import Any

from goalscope.report.figures import as_figure
from goalscope.report.pictures import drawn_picture, graph_picture
from goalscope.report.sections.agents import episode_figure
from goalscope.worlds.world import Drawing


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
