"""Wordings say what the usual prompt says and no more: the same facts, places, moves, and the same grid in symbols."""

import re
from collections import Counter
from typing import Any

import pytest

from goalscope.agents import ChatAgent, Observation, agent_id, build_agent
from goalscope.agents.prompts import PARAPHRASES, WORDINGS, drawn_in, placeholders, template, worded
from goalscope.worlds import Grid, GridView

GRID = Grid.parse("#####\n#A_G#\n#___#\n#####")
OTHER = Grid.parse("#####\n#__A#\n#G__#\n#####")
FORMS = ("example", "schema", "completion")
ALL = [(name, form) for name in WORDINGS for form in FORMS]


class Silent:
    """A model that is never asked."""

    name = "silent"

    def describe(self) -> dict[str, Any]:
        return {"kind": "silent"}


def agent(name: str, form: str) -> ChatAgent:
    return ChatAgent(model=Silent(), template=form, wording=name)  # type: ignore[arg-type]


def prompt(name: str, form: str, grid: Grid) -> str:
    return agent(name, form).messages(Observation(view=GridView(grid=grid), episode_id="one"))[-1].content


@pytest.mark.parametrize(("name", "form"), ALL)
def test_a_wording_shows_what_the_usual_prompt_shows(name: str, form: str) -> None:
    usual = template("grid", form)
    assert placeholders(worded(name, form)) == placeholders(usual)
    assert worded(name, form) != usual and worded("", form) == usual


@pytest.mark.parametrize(("name", "form"), ALL)
def test_nothing_but_the_grid_follows_the_world(name: str, form: str) -> None:
    """What a wording tells beside the grid is the same in every world: it cannot hint at a way."""
    shown = {grid: prompt(name, form, grid) for grid in (GRID, OTHER)}
    drawn = {grid: drawn_in(name, grid.render()) for grid in shown}
    assert all(shown[grid].count(drawn[grid]) == 1 for grid in shown)
    assert shown[GRID].replace(drawn[GRID], "") == shown[OTHER].replace(drawn[OTHER], "")


@pytest.mark.parametrize(("name", "form"), ALL)
def test_a_wording_names_no_other_place_and_no_move_more_often_than_another(name: str, form: str) -> None:
    text, usual = worded(name, form), template("grid", form)
    assert set(re.findall(r"\(\d+,\d+\)", text)) == set(re.findall(r"\(\d+,\d+\)", usual))
    assert sorted(set(re.findall(r"\d+ (?:rows|columns)", text))) == sorted(
        set(re.findall(r"\d+ (?:rows|columns)", usual))
    )
    moves = Counter(re.findall(r"UP|DOWN|LEFT|RIGHT", text))
    assert len(moves) == 4 and len(set(moves.values())) == 1


_HINTS = (
    r"short(?:est|er) (?:way|path|route)|wall follow|dead end|detour|avoid|careful|think|reason|plan|corner|nearest|"
    r"closer|distance|toward|direct(?:ly|ion)|straight|never|always|remember|check|first (?:move|step)|best|optimal"
)


@pytest.mark.parametrize(("name", "form"), ALL)
def test_a_wording_gives_no_advice_that_the_usual_prompt_does_not_give(name: str, form: str) -> None:
    found, usual = (set(re.findall(_HINTS, text.lower())) for text in (worded(name, form), template("grid", form)))
    assert found <= usual | {"direct"}


@pytest.mark.parametrize(("name", "form"), ALL)
def test_every_wording_says_the_rules(name: str, form: str) -> None:
    text, symbols = worded(name, form), WORDINGS[name].symbols
    assert re.search(r"fewest steps|few(?:est)? steps as|minimal number of steps", text)
    assert re.search(r"into a wall", text) and re.search(r"step", text)
    for symbol, meaning in (("#", "a wall"), ("_", "an open cell"), ("G", "the goal"), ("A", "the agent")):
        assert re.search(rf"^{re.escape(symbols.get(symbol, symbol))} {meaning}", text, re.MULTILINE)
    start, goal = symbols.get("A", "A"), symbols.get("G", "G")
    assert text.count(f"from {start} to {goal}") == 1
    assert "row 0" in text.lower()
    assert "JSON object" in text and "blanks" in text.lower()
    if form == "schema":
        assert re.search(r'\{"action": "<(?:UP|RIGHT)\|', text) and "code fence" in text


@pytest.mark.parametrize("form", ["example", "schema"])
@pytest.mark.parametrize("name", PARAPHRASES)
def test_the_example_of_a_grid_is_the_same_in_every_paraphrase(name: str, form: str) -> None:
    example = "  0 1 2 3 4\n0 # # # # #\n1 # _ _ G #\n2 # A _ _ #\n3 # # # # #"
    assert worded(name, form).count(example) == template("grid", form).count(example) == 1


def test_paraphrases_differ_from_each_other_in_most_lines() -> None:
    texts = {name: set(worded(name, "schema").splitlines()) for name in PARAPHRASES}
    texts["usual"] = set(template("grid", "schema").splitlines())
    for one, lines in texts.items():
        for other, theirs in texts.items():
            if one < other:
                assert len(lines & theirs) < 0.55 * min(len(lines), len(theirs)), (one, other)


@pytest.mark.parametrize("form", FORMS)
def test_renamed_symbols_are_renamed_in_grid_legend_task_and_examples(form: str) -> None:
    text = prompt("symbols", form, GRID)
    assert "0 X X X X X\n1 X P . T X\n2 X . . . X" in text
    assert not re.search(r"(?<!\w)[#_]", text) and "from P to T" in text
    assert not re.search(r"^\d+ .*[#_AG]", text, re.MULTILINE)
    assert "A move into a wall" in text, "words that look like a symbol stay"


@pytest.mark.parametrize("form", FORMS)
def test_the_other_order_holds_the_same_lines(form: str) -> None:
    text, usual = worded("order", form), template("grid", form)
    assert Counter(re.findall(r"\w+", text)) == Counter(re.findall(r"\w+", usual))
    assert text.index("A the agent") < text.index("# a wall")
    if form != "completion":
        assert text.index("\nRIGHT to") < text.index("\nUP to")


def test_a_wording_is_another_agent_with_a_tag_and_the_usual_one_is_none() -> None:
    ids = {agent_id(agent(name, "schema")) for name in ("", *WORDINGS)}
    assert len(ids) == len(WORDINGS) + 1
    assert agent_id(agent("", "schema")) == agent_id(ChatAgent(model=Silent(), template="schema"))  # type: ignore[arg-type]
    assert agent("terse", "schema").tags["wording"] == "terse" and "wording" not in agent("", "schema").tags


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("chat", {"model": "theseus", "wording": "flowery"}, "terse"),
        ("chat", {"model": "theseus", "wording": "terse", "task": "fog"}, "leave it out"),
        ("task-chat", {"model": "ariadne", "wording": "terse"}, "wording"),
        ("reader", {"wording": "flowery"}, "terse"),
    ],
)
def test_a_wording_that_is_none_is_refused(kind: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_agent(kind, given)
