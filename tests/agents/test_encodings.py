"""A grid in another encoding: the same cells and symbols, the same prompt around it, the same sites."""

import hashlib
import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from goalscope.agents import ChatAgent, Observation, agent_id
from goalscope.agents.models import LocalModel
from goalscope.agents.models.dialect import check_cell_tokens
from goalscope.agents.prompts import TASKS, read_template
from goalscope.inside.activations import SiteFinder
from goalscope.inside.interventions import Original, Side, experiment, find_pairs
from goalscope.inside.interventions.experiment import best
from goalscope.runs import Step
from goalscope.verdict.arms import arms
from goalscope.verdict.sentences import _template
from goalscope.verdict.subject import subject_of
from goalscope.worlds import Grid, GridView, State
from goalscope.worlds.grid import COMPACT, DELTAS, ENCODINGS, LISTS, symbols, written

GRID = Grid.parse("#####\n#A_G#\n#_#_#\n#####")
KEY = Grid.parse("######\n#A_KD#\n#_##G#\n######")
WIDE = Grid.parse(["#" * 12, "#A" + "_" * 9 + "#", "#" + "_" * 9 + "G#", "#" * 12])


class Silent:
    """A model that is never asked."""

    name = "silent"

    def describe(self) -> dict[str, Any]:
        return {"kind": "silent"}

    def likelihoods(self) -> None: ...


def agent(**settings: Any) -> ChatAgent:
    return ChatAgent(model=Silent(), **settings)  # type: ignore[arg-type]


def prompt(grid: Grid, **settings: Any) -> str:
    return agent(**settings).messages(Observation(view=GridView(grid=grid), episode_id="one"))[-1].content


def read(encoding: str, text: str) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int], set[tuple[int, int]]]]:
    """Return symbols and neighbours of a list, read by hand."""
    first, *lines = text.split("\n")
    height, width = map(int, re.findall(r"\d+", first))
    cells, beside = {}, {}
    for line, place in zip(lines, product(range(height), range(width)), strict=True):
        one, *others = [(int(row), int(col)) for row, col in re.findall(r"\((\d+),(\d+)\)", line)]
        assert one == place and line[1] == " " and (":" in line) == (encoding == "adjacency")
        cells[one], beside[one] = line[0], set(others)
    return cells, beside


@pytest.mark.parametrize("encoding", LISTS)
@pytest.mark.parametrize("grid", [GRID, KEY, WIDE, GRID.at(fog=np.arange(20).reshape(4, 5) == 7)])
def test_a_list_holds_every_cell_once_and_its_open_neighbours(encoding: str, grid: Grid) -> None:
    cells, beside = read(encoding, written(encoding, grid.render()))
    assert cells == {place: str(symbol) for place, symbol in np.ndenumerate(symbols(grid))}
    for place, others in beside.items():
        wanted = {(place[0] + int(down), place[1] + int(right)) for down, right in DELTAS}
        wanted = {other for other in wanted if cells.get(other, "#") != "#"}
        assert others == (wanted if encoding == "adjacency" and cells[place] != "#" else set())


@pytest.mark.parametrize(
    ("encoding", "task", "form"),
    list(product(LISTS, [task for task in TASKS if task != "text"], ["example", "completion"])),
)
def test_a_prompt_differs_in_how_the_grid_is_read_and_in_the_grid_alone(encoding: str, task: str, form: str) -> None:
    text = agent(task=task, template=form, encoding=encoding).text
    usual = read_template(task, form)
    same = [line for line in usual.split("\n") if "blanks" not in line and not re.match(r"^ +0 1|^\d [#_]", line)]
    lines = text.split("\n")
    assert [line for line in lines if line in same] == same
    assert "blanks" not in text and "matrix" not in text and text.count("every further line is one cell") == 1
    if form == "example":
        matrix = "\n".join(line for line in usual.split("\n") if re.match(r"^ +0 1|^\d [#_]", line))
        assert written(encoding, matrix) in text


@pytest.mark.parametrize("encoding", LISTS)
def test_the_grids_of_worked_examples_and_of_a_prompt_without_content_are_lists_too(encoding: str) -> None:
    text = prompt(GRID, template="completion", encoding=encoding)
    assert text.count(" rows, ") == 5 and "0 #" not in text
    free = written(encoding, re.sub(r"[^\s\d]", "?", GRID.render()))
    other = written(encoding, re.sub(r"[^\s\d]", "?", GRID.at(goal=None).render()))
    assert free == other and not set(free) & set("#_AG")


def test_an_encoding_is_another_agent_with_a_tag_and_a_name() -> None:
    agents = [agent(encoding=encoding) for encoding in ENCODINGS]
    assert len({agent_id(one) for one in agents}) == 4
    assert agent_id(agents[0]) == agent_id(agent()) and "encoding" not in agents[0].describe()
    assert [one.tags for one in agents] == [{}, *({"encoding": name} for name in ENCODINGS[1:])]
    assert [one.name for one in agents] == [
        *("silent", "silent (coordinates)", "silent (adjacency)", "silent (compact)")
    ]


def test_the_compact_matrix_has_the_cells_of_the_matrix_without_its_padding() -> None:
    assert written(COMPACT, GRID.render()) == GRID.render()  # no label has two digits
    compact, padded = written(COMPACT, WIDE.render()), WIDE.render()
    assert [line.split() for line in compact.split("\n")] == [line.split() for line in padded.split("\n")]
    assert "  " in padded.split("\n")[2] and "  " not in compact.split("\n")[2]
    lines = compact.split("\n")
    assert all(len(line) == len(str(row)) + 2 * WIDE.width for row, line in enumerate(lines[1:]))
    # The text around it describes a matrix, so that wordings and printed prompts take it, too.
    assert compact in prompt(WIDE, encoding=COMPACT) and prompt(WIDE, encoding=COMPACT).replace(
        compact, padded
    ) == prompt(WIDE)
    assert agent(encoding=COMPACT, wording="terse").tags == {"wording": "terse", "encoding": COMPACT}


def test_what_an_encoding_does_not_fit_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"matrix, coordinates, adjacency.* 'graph'"):
        agent(encoding="graph")
    with pytest.raises(ValueError, match=r"adjacency.*terse"):
        agent(encoding="adjacency", wording="terse")
    own = tmp_path / "own.txt"
    own.write_text("The cells:\n{{grid}}\nYour move?", encoding="utf-8")
    assert prompt(GRID, task=own, encoding="coordinates").startswith("The cells:\n4 rows, 5 columns\n# (0,0)\n")


def test_an_evaluation_takes_an_encoding_and_leaves_out_the_wordings_of_the_matrix() -> None:
    usual = subject_of("openai:some@http://127.0.0.1:1/v1")
    other = usual.changed(["encoding=coordinates"])
    (wordings,) = [arm for arm in arms() if arm.name == "wordings"]
    assert wordings.open_to(usual) and not wordings.open_to(other)
    described = {"kind": "chat", "template": hashlib.sha256(agent(encoding="adjacency").text.encode()).hexdigest()}
    assert _template(described) == "template example, encoding adjacency"
    assert _template({"kind": "chat", "template": "0" * 64, "encoding": "adjacency"}).endswith("grids as adjacency")
    assert "encoding" not in other.entry(kind="task-chat") and other.entry()["encoding"] == "coordinates"


@pytest.fixture(scope="module")
def theseus() -> LocalModel:
    return LocalModel("theseus")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("grid", [GRID, WIDE])
def test_each_cell_has_its_token_in_any_encoding(theseus: LocalModel, encoding: str, grid: Grid) -> None:
    asked = ChatAgent(model=theseus, encoding=encoding)
    text = asked.prompt(Observation(view=GridView(grid=grid)))
    ids = tuple(theseus.encode(text))
    step = Step(index=0, state=State((1, 1)), action=None, failure="not asked", prompt_tokens=ids)
    finder = SiteFinder(theseus, ("grid", "pre"))
    for shown in (grid, grid.at(goal=(1, 3), start=(1, 2))):  # the second by the layout of the first
        text = asked.prompt(Observation(view=GridView(grid=shown)))
        ids = tuple(theseus.encode(text))
        positions = finder.find(replace(step, prompt_tokens=ids), shown).positions["grid"]
        assert "".join(theseus.text([ids[at]]) for at in positions).replace(" ", "") == "".join(symbols(shown).ravel())
        if encoding in LISTS:
            after = [theseus.text(ids[at : at + 9]).replace(" ", "")[1:] for at in positions]
            wide = shown.width
            assert all(words.startswith(f"({at // wide},{at % wide})") for at, words in enumerate(after))
    assert not check_cell_tokens(
        theseus, grid.render(), prompt=asked.prompt(Observation(view=GridView(grid=grid)))
    ).problems
    with pytest.raises(ValueError, match="grid"):
        finder.find(step, Grid.parse("####\n#AG#\n####"))


@pytest.mark.parametrize("encoding", LISTS)
def test_pairs_of_lists_differ_in_the_tokens_of_the_moved_cells_alone(
    theseus: LocalModel, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Theseus would answer here: an agent that acts optimally stands in for it."""
    asked = ChatAgent(model=theseus, encoding=encoding)

    def acts(one: ChatAgent, views: Any, max_tokens: int, hypothesis: str) -> list[Side]:
        requests = [one.request(Observation(view=view)) for view in views]
        prompts = [tuple(theseus.encode(theseus.render(each.messages, one.sampling))) for each in requests]
        listed = [(view, best(view)) for view in views]
        return [
            Side(view=view, optimal=optimal, prompt=ids, output=(1,), action=min(optimal))
            for (view, optimal), ids in zip(listed, prompts, strict=True)
        ]

    monkeypatch.setattr(experiment, "act", acts)
    (found,) = find_pairs(asked, [Original(view=GridView(grid=GRID), cluster="one")], moved=["agent"]).kept
    texts = [[theseus.text([side.prompt[at]]) for at in found.changed] for side in found.sides]
    assert sorted(texts[0]) == sorted(texts[1]) == ["A", "_"] and texts[0] != texts[1]
