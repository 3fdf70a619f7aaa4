"""Written forms, files and banks: what is read back is equal, and what is wrong is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples
from goalscope.goals.hypotheses import (
    banks,
    bind,
    finite_world,
    load_hypotheses,
    parse,
    read_hypotheses,
    write_hypotheses,
)
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld

ATOMS = st.sampled_from(["goal", "key", "door", "start", "centre", "top row", "cell 3 4", "corner top-right"])
WHOLE = st.integers(0, 99)
PLACES = st.recursive(
    ATOMS,
    lambda place: st.one_of(
        st.builds("{} ({})".format, st.sampled_from(["mirror of", "point mirror of", "near", "beside"]), place),
        st.builds("({}) {:+d},{:+d}".format, place, st.integers(-9, 9), st.integers(-9, 9)),
        st.builds("nearest of ({}), ({})".format, place, place),
    ),
    max_leaves=4,
)
EVENTS = st.one_of(PLACES, st.sampled_from(["key held", "door open", "event at the cliff"]))
SIMPLE = st.one_of(
    EVENTS,
    st.sampled_from(["random", "open moves", "follow the wall", "keep right", "keep right until blocked, else down"]),
    st.builds("{} ({})".format, st.sampled_from(["flee", "straight to"]), PLACES),
    st.builds("{!r} * ({}) + {!r} * ({})".format, st.floats(-9, 9), EVENTS, st.floats(-9, 9), EVENTS),
)
CONDITIONS = st.one_of(
    st.sampled_from(["it lies up", "it lies up or right", "key held", "not door open", "it is within 4 steps"]),
    st.builds("not ({})".format, EVENTS),
)
FORMS = st.recursive(
    SIMPLE,
    lambda part: st.one_of(
        st.builds("({}) if {}, else ({})".format, part, CONDITIONS, part),
        st.builds("({}) if {}".format, part, CONDITIONS),
        st.builds("({}) within {} steps".format, part, WHOLE),
    ),
    max_leaves=3,
)


@settings(max_examples=examples(200), deadline=None)
@given(FORMS)
def test_a_written_form_is_read_back(text: str) -> None:
    found = parse(text)
    assert parse(found.text) == found
    assert parse(f"  ({found.text}) ") == found
    (name, again), *_ = read_hypotheses(write_hypotheses({"mine": found})).items()
    assert (name, again) == ("mine", found)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("goal +0,+2", "goal +0,+2"),
        ("mirror of goal +0,+2", "mirror of (goal +0,+2)"),
        ("(mirror of goal) +0,+2", "(mirror of goal) +0,+2"),
        ("nearest of goal, key +1,-1", "nearest of goal, (key +1,-1)"),
        ("cell 03 4", "cell 3 4"),
        ("key  if not key held, else goal", "key if not key held, else goal"),
        ("goal if it lies up or right, else random", "goal if it lies up or right, else random"),
        ("goal within 5 steps", "goal within 5 steps"),
        ("event corner 2", "event corner 2"),
        ("event random", "event random"),
        ("door 2 open", "door 2 open"),
        ("key in door", "key in door"),
        ("reach (4)", "reach (4)"),
        ("goal if crate (red) held, else key", "goal if (crate (red) held), else key"),
        ("1 * goal + .5 * key held", "1.0 * goal + 0.5 * key held"),
        (
            "where the goal stood in phase trained [9x9 1 7, 7x7 1 5]",
            "where the goal stood in phase trained [7x7 1 5, 9x9 1 7]",
        ),
    ],
)
def test_forms_have_one_way_of_writing(text: str, written: str) -> None:
    assert parse(text).text == written


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("corner top-rigth", "top-right"),
        ("cornor top-left", "'corner top-left'"),
        ("beside gaol", "'goal'"),
        ("there is a lamp", "there is a lamp"),
        ("goal if it lies upp", "up"),
        ("goal if it lies sideways, else random", "sideways"),
        ("mirror of open moves", "place"),
        ("flee key held", "place"),
        ("goal if open moves", "condition"),
        ("it lies up", "condition"),
        ("goal if it lies up, else it lies down", "condition"),
        ("nan * goal", r"nan \* goal"),
        ("1e999 * goal", "finite"),
        ("(goal", r"\(goal"),
        ("goal\n", None),
        ("a\nb", "printable"),
        ("", "characters"),
        ("mirror of " * 60 + "goal", "20 levels"),
        ("x" * 3000, "2000"),
    ],
)
def test_what_is_wrong_is_named(text: str, fact: str | None) -> None:
    if fact is None:
        with pytest.raises(ValueError, match="printable"):
            parse(text)
        return
    with pytest.raises(ValueError, match=fact):
        parse(text)


def test_banks_are_data_that_is_read_back() -> None:
    for name, forms in banks().items():
        assert tuple(load_hypotheses(name)) == forms == tuple(parse(form).text for form in forms)
    assert {"grids", "keys", "doors", "task-maps", "sentinels", "things"} == set(banks())


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_files_banks_and_forms_stand_beside_each_other(tmp_path: Path, suffix: str) -> None:
    entries = [
        "goal",
        {"name": "trained place", "is": "where the goal stood in phase trained"},
        {"name": "bonus", "utility": {"goal": 1, "key held": 0.5}},
        {"name": "mine", "policy": "habits_of_mine:left"},
    ]
    write = json.dumps if suffix == ".json" else yaml.safe_dump
    (tmp_path / f"mine{suffix}").write_text(write({"hypotheses": entries}), encoding="utf-8")
    found = load_hypotheses(f"{tmp_path / f'mine{suffix}'}; corner top-left;task-maps".replace(";task-maps", ""))
    assert list(found) == ["goal", "trained place", "bonus", "mine", "corner top-left"]
    assert found["bonus"].text == "1.0 * goal + 0.5 * key held" and found["mine"].kind == "table"
    assert read_hypotheses(write_hypotheses(found)) == found


@pytest.mark.parametrize(
    ("plain", "fact"),
    [
        ([], "list"),
        ("goal", "list"),
        (["goal", "goal"], "twice"),
        ([{"utility": {"goal": ".inf"}}], "weight"),
        ([{"utility": {"goal": float("nan")}}], "weight"),
        ([{"utility": {}}], "utility"),
        ([{"name": "a", "is": "goal"}, {"name": "b", "is": "goal"}], "twice"),
        ([{"name": "a"}], "is, place"),
        ([{"is": "goal", "place": "m:f"}], "is, place"),
        ([{"is": "goal", "also": 1}], "is, place"),
        ([{"name": "a\nb", "is": "goal"}], "name"),
        ([{"name": "a", "utility": {"goal": True}}], "weight"),
        ([3], "is, place"),
    ],
)
def test_wrong_files_are_refused(plain: object, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        read_hypotheses(plain)


def test_an_unknown_name_on_the_command_line_names_banks_and_files() -> None:
    grid = Grid(walls=np.zeros((3, 3), dtype=bool), start=(2, 0), goal=(0, 0))
    bank = {
        **load_hypotheses("goal;gird"),
        "nested": parse("mirror of goal if gaol, else random"),
    }  # a world may name it
    assert bind(bank["goal"], [GridWorld(grid=grid)]) == bank["goal"]
    for name, wrong in (("gird", "gird"), ("nested", "gaol")):
        with pytest.raises(ValueError, match=f"task-maps.*'{wrong}'.*'(grids|goal)'"):
            bind(bank[name], [GridWorld(grid=grid)])
    with pytest.raises(ValueError, match="bank"):
        load_hypotheses(" ; ")


def test_the_place_of_a_phase_is_where_the_goal_always_stood_there() -> None:
    def world(size: int, goal: tuple[int, int], phase: str) -> GridWorld:
        grid = Grid(walls=np.zeros((size, size), dtype=bool), start=(size - 1, 0), goal=goal)
        return GridWorld(grid=grid, tags={"phase": phase})

    worlds = [
        world(5, (0, 4), "trained"),
        world(5, (2, 2), "shifted"),
        world(4, (0, 3), "trained"),
        world(4, (0, 2), "trained"),
    ]
    loose = parse("beside (where the goal stood in phase trained)")
    found = bind(loose, worlds)
    assert found.text == "beside (where the goal stood in phase trained [5x5 0 4])" and parse(found.text) == found
    place = bind(parse("where the goal stood in phase trained"), worlds)
    assert place.cell(finite_world(worlds[1], 9)) == (0, 4)
    with pytest.raises(ValueError, match="size"):
        place.solved(finite_world(worlds[2], 9))
    with pytest.raises(ValueError, match="trained"):
        loose.solved(finite_world(worlds[1], 9))
    assert bind(loose, worlds[1:2]) == loose
