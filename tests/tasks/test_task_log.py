"""`goalscope score`: every broken line is named with its problem, the rest is scored; nothing else is needed."""

import json
from pathlib import Path
from typing import Any

import pytest
from played import play
from typer.testing import CliRunner

import goalscope
from goalscope.agents import Greedy
from goalscope.agents.scripted import Oscillator
from goalscope.cli import app
from goalscope.measures.exploration import estimate_errors, score_episode
from goalscope.measures.task_log import score_task_log
from goalscope.runs import Store
from goalscope.runs.importers import ImportLog
from goalscope.stats import estimate_rows
from goalscope.worlds.tasks import generate_task_map

GOOD: dict[str, Any] = {
    "cells": [[0, 0], [1, 0], [2, 0], [3, 0]],
    "start": [1, 0],
    "goal": "G",
    "nodes": {"A": {"cell": [0, 0], "options": []}, "G": {"cell": [3, 0], "options": [["A"]]}},
    "alpha": 3,
}


def broken(**changes: Any) -> dict[str, Any]:
    return {"map": {**GOOD, **changes}, "actions": ["left"]}


A, G = GOOD["nodes"]["A"], GOOD["nodes"]["G"]
# line -> what must be said about it
BROKEN: list[tuple[Any, str]] = [
    (broken(nodes={"A": A, "G": {"cell": [3, 0], "options": [["Z"]]}}), "'Z'"),
    (broken(nodes={"A": A, "G": {"cell": [9, 9], "options": [["A"]]}}), "[9, 9]"),
    (broken(nodes={"A": A, "G": G, "H": {"cell": [2, 0], "options": [["A"]]}}), "'G', 'H'"),
    (broken(goal=["A", "G"]), "goal ['A', 'G']"),
    (broken(nodes={"A": {"cell": [0, 0], "options": [["G"]]}, "G": G}), "cycle"),
    (broken(cells=[[0, 0], [1, 0], [3, 0]]), "connected"),
    ({"map": GOOD, "actions": ["left", "right", "right", "right", "left"]}, "action 4, which achieved the goal"),
    ({"map": GOOD, "actions": [None] * 13}, "action 12, which used up the budget"),
    ({"map": GOOD, "actions": ["left", 3]}, "actions[1]"),
    ({"map": GOOD, "actions": "left"}, "actions: must be a valid list"),
    ({"map": GOOD}, "declare"),
    ({"map": "nowhere", "actions": []}, "on an earlier line"),
    ({"map": "bad", "actions": []}, "line 2 declares"),
    ({"name": "good", "map": GOOD}, "declared once"),
    ({"map": GOOD, "actions": [], "moves": []}, "moves: unknown key"),
    ({"map": {"cells": []}, "actions": []}, "without start, goal, nodes"),
    ({"map": GOOD, "actions": [], "tags": {"a": []}}, "tags.a: must be a text or a whole number"),
    ({"map": GOOD, "actions": [], "agent": 3}, "agent: must be a valid string"),
    ([1, 2], "a line must hold a JSON object"),
    (b"{\n", "valid JSON"),
    ({"episode": "fine 0", "map": "good", "agent": "a", "actions": ["left"]}, "as on line 4"),
    (broken(cells=[[0, 0], [1, 0], [2, 0], [10**12, 0]]), "below 10**9"),
    (broken(cells=[[x, 0] for x in range(3000)] + [[0, y] for y in range(1, 3000)]), "at most 4000000 cells"),
    (broken(cells=[[0, 0], [True, 0], [2, 0], [3, 0]]), "whole numbers"),
    (broken(cells=[[0, 0], [1, 0], [2.0, 0], [3, 0]]), "whole numbers"),
    (broken(cells=[[0, 0]]), "2 to 250000 cells"),
    (broken(start=[3, 0]), "node 'G' must not lie on the start [3, 0]"),
    (broken(nodes={"A": {"cell": [0, 5], "options": []}, "G": G}), "node 'A' must lie on one of the map's cells"),
    (
        broken(
            cells=[[0, 0], [1, 0], [2, 0], [3, 0], [9, 9]], nodes={"A": A, "G": {"cell": [9, 9], "options": [["A"]]}}
        ),
        "connected",
    ),
    *((broken(alpha=alpha), "alpha must be a number above 0") for alpha in (0, -1, 1e9, True, "3", None)),
    (broken(alpha=1e-9), "at least one action"),
    (json.dumps(broken()).replace("[2, 0]", "[NaN, 0]").encode() + b"\n", "numbers must be finite"),
    (json.dumps(broken()).replace("[2, 0]", f"[{'9' * 30}, 0]").encode() + b"\n", "64 bits"),
    (json.dumps(broken()).replace('"start"', '"start": [0, 0], "start"').encode() + b"\n", "'start' twice"),
    (json.dumps(broken()).replace('"G": {', '"A": {').encode() + b"\n", "'A' twice"),
    (b'{"map": "\xff", "actions": []}\n', "text must be UTF-8"),
    (b'{"map": "a\x00", "actions": []}\n', "binary data: a zero byte"),
    (b'{"map": ' + b"[" * 10_000 + b"]" * 10_000 + b"}\n", "at most 64 deep"),
    (b'{"map": "x", "actions": ["' + b"a" * 10_000_000 + b'"]}\n', "on an earlier line"),
    (b'"' + b"a" * 17_000_000 + b'"\n', "a line must be shorter"),
    ({"map": GOOD, "actions": [True]}, "actions[0]"),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    lines: list[Any] = [{"name": "good", "map": GOOD}, {"name": "bad", "map": {**GOOD, "start": [0, 0]}}]
    for number, (line, _) in enumerate(BROKEN):
        lines += [
            line,
            {"episode": f"fine {number}", "map": "good", "agent": "a", "actions": ["left", "jump", "right"]},
        ]
    path.write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\r\n" for line in lines)
    )
    return path


def test_broken_lines_are_named_and_the_rest_is_scored(log: Path) -> None:
    ledger = ImportLog()
    scored = list(score_task_log(log, ledger))
    assert [line.line for line in scored] == [2 * index + 4 for index in range(len(BROKEN))]
    assert len({line.score.summary for line in scored}) == 1 and scored[0].score.summary.unparsable == 1
    assert ledger.problem_count == len(BROKEN) + 1 == ledger.counts["lines refused"]
    assert str(ledger.problems[0]).startswith("log.jsonl: line 2 map: node 'A' must not lie on the start [0, 0]")
    for index, (_, words) in enumerate(BROKEN):
        said = str(ledger.problems[index + 1])
        assert f"line {2 * index + 3}" in said and words in said


def test_the_command_prints_both_tables_and_every_problem(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    result = CliRunner().invoke(app, ["score", str(log), "--out", str(out), "--steps"])
    assert result.exit_code == 1
    assert "exploration" in result.stdout and "exploitation" in result.stdout and "unparsable" in result.stdout
    assert result.stderr.count("problem: log.jsonl: line") == len(BROKEN) + 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == len(BROKEN) and lines[0]["episode"] == "fine 0" and lines[0]["agent"] == "a"
    steps = lines[0]["steps"]
    assert [step["action"] for step in steps] == ["left", None, "right"]
    assert [step["rejected"] for step in steps] == [None, "unparsable", None]
    assert steps[0]["achieved"] == "A" and steps[1]["error"] and steps[1]["attribution"] == ["exploration"]
    assert lines[0]["summary"]["exploration_error"] == pytest.approx(1 / 3)
    assert lines[0]["summary"]["exploitation_error"] is None


def test_scores_of_a_log_equal_scores_in_python(tmp_path: Path) -> None:
    path, expected, maps = tmp_path / "log.jsonl", [], []
    with path.open("w") as sink:
        for seed in range(6):
            task_map = generate_task_map("medium-small", seed=seed)
            for agent in (Greedy(), Oscillator()):
                actions = [action.name for action in play(task_map, agent).actions if action is not None]
                line = {"map": task_map.to_plain(), "agent": agent.name, "actions": actions, "tags": {"seed": seed}}
                sink.write(json.dumps(line) + "\n")
                expected.append((agent.name, score_episode(task_map, actions).summary))
                maps.append(task_map.id)
    result = CliRunner().invoke(app, ["score", str(path), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["counts"] == {"lines": 12, "episodes": 12} and found["problems"] == []
    for name in ("greedy", "oscillator"):
        summaries = [summary for who, summary in expected if who == name]
        exploration, exploitation = estimate_errors(summaries, maps[::2])
        group = found["agents"][name]
        assert group["exploration_error"]["errors"] == exploration.errors
        assert group["exploration_error"]["pooled"]["value"] == pytest.approx(exploration.pooled.value)
        assert group["exploration_error"]["mean"]["value"] == pytest.approx(exploration.mean.value)
        assert group["exploitation_error"]["steps"] == exploitation.steps
    assert found["agents"]["oscillator"]["exploitation_error"]["mean"]["value"] is None
    assert found["agents"]["greedy"]["exploration_error"]["errors"] == 0
    scored = goalscope.score(path)
    assert scored.to_plain()["counts"] == found["counts"] and scored.page is None
    assert [(one["agent"], one["error"], one["errors"]) for one in scored.records] == [
        (name, kind, found["agents"][name][f"{kind}_error"]["errors"])
        for name in ("greedy", "oscillator")
        for kind in ("exploration", "exploitation")
    ]
    assert "oscillator" in scored._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--distances", "crow"], "--distances must be one of"),
        (["--steps"], "--out FILE"),
        (["--out", "SAME"], "--out must be another file"),
    ],
)
def test_wrong_options_are_refused(log: Path, arguments: list[str], words: str) -> None:
    given = [str(log) if item == "SAME" else item for item in arguments]
    result = CliRunner().invoke(app, ["score", str(log), *given])
    assert result.exit_code == 2 and words in result.stderr
    assert log.stat().st_size > 10_000_000


def test_files_that_hold_no_log(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["score", str(tmp_path / "none.jsonl")]).exit_code == 2
    folder = CliRunner().invoke(app, ["score", str(tmp_path)])
    assert folder.exit_code == 2 and "goalscope measure" in " ".join(folder.stderr.split())
    broken_files = {
        "empty": b"",
        "blank": b"\r\n\n",
        "mark": b"\xef\xbb\xbf",
        "binary": b"\x00\x01",
        "wide": b"\xff\xfe{\x00",
    }
    for name, content in broken_files.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(content)
        result = CliRunner().invoke(app, ["score", str(path)])
        assert result.exit_code == 1 and "problem:" in result.stderr, name


def test_a_byte_order_mark_and_a_missing_last_line_end_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"map": GOOD, "actions": ["left", "RIGHT "]}).encode())
    ledger = ImportLog()
    (line,) = score_task_log(path, ledger)
    assert not ledger.problems and line.episode == "line 1" and line.score.summary.unparsable == 0


def test_scores_over_different_graphs_of_distances_are_not_averaged() -> None:
    task_map = generate_task_map("medium-small", seed=0)
    summary = score_episode(task_map, play(task_map, Oscillator()).actions).summary
    other = score_episode(task_map, [], distances="map").summary
    with pytest.raises(ValueError, match="distances"):
        estimate_errors([summary, other], ["a", "b"])


def test_a_scored_log_ends_in_a_run_with_its_report(tmp_path: Path) -> None:
    path, folder, lines = tmp_path / "log.jsonl", tmp_path / "run", list[dict[str, Any]]()
    for seed in range(3):
        task_map = generate_task_map("medium-small", seed=seed)
        for agent in (Greedy(), Oscillator()):
            moves: list[str | None] = [None if one is None else one.name for one in play(task_map, agent).actions]
            given = {"map": task_map.to_plain(), "actions": moves, "agent": agent.name, "tags": {"prompt": "base"}}
            lines += [given, {**given, "actions": [*moves[:2], None]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    told = json.loads(CliRunner().invoke(app, ["score", str(path), "--json"]).stdout)
    found = CliRunner().invoke(app, ["score", str(path), "--report", str(folder)])
    assert found.exit_code == 0, found.output
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(title in page for title in ("Exploration over time", "Example trajectories"))
    with Store(folder) as store:
        rows = store.rows()
        assert len(store.episode_ids()) == len(lines) and set(store.agent_names()) == set(told["agents"])
        for agent_name, group in told["agents"].items():
            mine = rows.select(agent=agent_name, measure="exploration error")
            (grouped,) = estimate_rows(mine, by=("agent",), bounds={"exploration error": (0.0, 1.0)})
            assert grouped.estimate.value == pytest.approx(group["exploration_error"]["mean"]["value"])
        assert {episode.outcome for episode in store.episodes()} == {"goal", "horizon", "stopped"}
    again = CliRunner().invoke(app, ["score", str(path), "--report", str(folder)])
    assert again.exit_code == 2 and "new directory" in again.stderr
    other = CliRunner().invoke(app, ["score", str(path), "--report", str(tmp_path / "b"), "--distances", "map"])
    assert other.exit_code == 2 and not (tmp_path / "b").exists()


def test_tags_of_a_log_that_are_called_like_columns_of_rows_are_renamed_in_its_run(tmp_path: Path) -> None:
    path, folder = tmp_path / "log.jsonl", tmp_path / "run"
    tags = {"value": 1, "agent": "b"}
    line = {"map": GOOD, "actions": ["left", "right", "right", "right"], "agent": "a", "tags": tags}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    found = CliRunner().invoke(app, ["score", str(path), "--report", str(folder)])
    assert found.exit_code == 0, found.output
    with Store(folder) as store:
        rows = store.rows()
        assert set(rows["agent"]) == {"a"} and set(rows["log value"]) == {1} and set(rows["log agent"]) == {"b"}


def test_a_run_of_a_scored_log_answers_the_questions_of_task_worlds(tmp_path: Path) -> None:
    path, folder = tmp_path / "log.jsonl", tmp_path / "run"
    turns = ["left", None, "right", "right", "right"]
    path.write_text(json.dumps({"map": GOOD, "actions": turns, "agent": "a", "tags": {"kind": "grid"}}) + "\n")
    scored = CliRunner().invoke(app, ["score", str(path), "--report", str(folder)])
    assert scored.exit_code == 0, scored.output
    judged = CliRunner().invoke(app, ["evaluate", str(folder), "--out", str(tmp_path / "judged")])
    assert judged.exit_code == 0, judged.output
    assert "Does it achieve the goal of a task more often than chance?" in judged.output
    measured = CliRunner().invoke(app, ["measure", str(folder)])
    assert "contain no valid move (1 world; too few for an interval)" in " ".join(measured.output.split())
