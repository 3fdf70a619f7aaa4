"""Whatever lies in a file, an import ends with problems and counts, and with nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples, long_after
from goalscope._ground.untrusted import printable
from goalscope.runs import Store
from goalscope.runs.importers import MOST_PROBLEMS, ImportLog, ImportProblem, import_into, import_path

FIXTURE = Path(__file__).parents[1] / "data" / "telos"
TRAJECTORY = json.loads(min((FIXTURE / "trajectories").glob("*size7*")).read_text())
MANIFEST = json.loads((FIXTURE / "grids_example.jsonl").read_text().splitlines()[0])
STATES = json.loads((FIXTURE / "keydoor_labelled_states.json").read_text())
ROOM = "#####\n#A__#\n#___#\n#__G#\n#####"
LOG: list[dict[str, Any]] = [
    {"type": "world", "id": "room", "grid": ROOM},
    {"type": "episode", "episode": "one", "world": "room", "agent": "a", "horizon": 5, "tags": {"k": 1}},
    {"episode": "one", "step": 0, "position": [1, 1], "action": "RIGHT", "optimal_actions": ["RIGHT", "DOWN"]},
    {"episode": "one", "step": 1, "position": [1, 2], "action": None, "failure": "x", "output_tokens": [1]},
]

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([ROOM, "UP", "N/A", "\x1b[2J", "=1+1", "\ud800", 10**30, -1, [1, 1], "room", "one"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        return [here, *(place for key, item in inside for place in places(item, (*here, key)))]
    return [here]


def changed(value: Any, place: tuple[Any, ...], new: Any, remove: bool) -> Any:
    """A copy with another value at a place, or without the key."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and remove:
        del copy[place[0]]
    else:
        copy[place[0]] = changed(value[place[0]], place[1:], new, remove)
    return copy


def check(folder: Path) -> None:
    result = import_path(folder)
    for episode in result.episodes:
        assert episode.world.grid.start is not None
    for line in result.lines():
        assert line.isprintable()
    assert result.exit_status == int(result.problem_count > 0)


@settings(max_examples=examples(60), deadline=None)
@given(octets=st.binary(max_size=400), name=st.sampled_from(["a.json", "a.jsonl", "recorded_metrics.csv", "a.csv"]))
def test_random_bytes_are_problems(octets: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / name).write_bytes(octets)
    check(folder)


@settings(max_examples=examples(60), deadline=None)
@given(value=ANYTHING, name=st.sampled_from(["a.json", "a.jsonl"]))
def test_random_json_is_a_problem(value: Any, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / name).write_text(json.dumps(value))
    result = import_path(folder, check=True)
    assert result.problem_count >= 1
    check(folder)


@pytest.mark.parametrize("kind", long_after(2, ["trajectory", "manifest", "states", "log"]))
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_good_files_with_anything_anywhere(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = {"trajectory": TRAJECTORY, "manifest": [MANIFEST], "states": STATES, "log": LOG}[kind]
    spoiled = good
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(spoiled)))
        spoiled = changed(spoiled, place, data.draw(ANYTHING), data.draw(st.booleans()) and bool(place))
    folder = tmp_path_factory.mktemp("hostile")
    if kind in ("manifest", "log"):
        lines = spoiled if isinstance(spoiled, list) else [spoiled]
        (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        (folder / "a.json").write_text(json.dumps(spoiled))
    check(folder)


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_damaged_bytes_of_good_files(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = data.draw(st.sampled_from(sorted(path for path in FIXTURE.rglob("*") if path.is_file())))
    octets = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        octets = octets[: data.draw(st.integers(0, len(octets)))]
    folder = tmp_path_factory.mktemp("hostile")
    (folder / path.name).write_bytes(octets)
    check(folder)


def test_text_that_acts_on_terminals_and_spreadsheets_is_kept_but_printed_escaped(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\u202e=cmd()\x00"
    lines: list[Any] = [
        *LOG[:2],
        {**LOG[2], "text": evil, "reasoning": evil},
        {**LOG[3], "position": [3, 3], "failure": evil},
    ]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [LOG[0], {**lines[2], "world": "room"}])
    )
    result = import_into(tmp_path / "a.jsonl", tmp_path / "run")
    assert result.problems == ()
    with Store(tmp_path / "run") as store:
        assert [episode.steps[0].text for episode in store.episodes()] == [evil]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({**line, evil: evil}) + "\n" for line in lines))
    for line in import_path(tmp_path / "b.jsonl", check=True).lines():
        assert line.isprintable()


def test_problems_are_bounded_and_counted() -> None:
    ledger = ImportLog()
    for index in range(MOST_PROBLEMS + 7):
        ledger.report("file", f"line {index}", "it must hold", "nothing")
    assert (len(ledger.problems), ledger.problem_count) == (MOST_PROBLEMS, MOST_PROBLEMS + 7)


def test_a_problem_is_one_short_line() -> None:
    problem = ImportProblem(source="a\nb", where="line 1", must="it must hold", given="\x1b[31m" + "x" * 10_000)
    assert str(problem).startswith("a\\nb: line 1: it must hold; got \\x1b[31mxxx")
    assert len(str(problem)) < 400
    assert printable("tab\t, half \ud800, right-to-left \u202e") == "tab\\t, half \\ud800, right-to-left \\u202e"


def test_a_grid_too_large_to_look_at_is_a_problem(tmp_path: Path) -> None:
    row = "#" * 2000
    grid = "\n".join([row, "#A" + "_" * 1996 + "G#", *[row] * 700])
    (tmp_path / "a.jsonl").write_text(json.dumps({"type": "world", "id": "w", "grid": grid}) + "\n")
    result = import_path(tmp_path, check=True)
    assert result.problem_count == 1
    assert "1048576 characters" in str(result.problems[0])
