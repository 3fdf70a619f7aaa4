"""The metric on any graph: equal to that of task maps on their graphs, and right where there are no coordinates."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from command_line import call
from goalscope._ground.rng import stream
from goalscope.measures.exploration import TaskGraph, TaskMap, estimate_errors, score_episode, score_graph
from goalscope.worlds import Action
from goalscope.worlds.tasks import PRESETS, generate_task_map, task_spec

DOCS = Path(__file__).parents[2] / "docs" / "exploration.md"


def name(cell: tuple[int, int]) -> str:
    return f"{cell[0]} {cell[1]}"


def graph_of(task_map: TaskMap, **changes: Any) -> TaskGraph:
    """Return the graph of a map: its cells, moves and nodes, without coordinates."""
    cells = set(task_map.cells)
    edges = [(name((x, y)), name(near)) for x, y in cells for near in ((x + 1, y), (x, y + 1)) if near in cells]
    places = {node: name(task_map.nodes[node].cell) for node in task_map.nodes}
    tasks = {
        places[node]: tuple(tuple(places[one] for one in option) for option in task_map.nodes[node].options)
        for node in places
    }
    goals = tuple(places[goal] for goal in task_map.goals)
    fields = {"edges": edges, "start": name(task_map.start), "goals": goals, "tasks": tasks, "budget": task_map.budget}
    return TaskGraph(**{**fields, **changes})


@pytest.mark.parametrize("seed", range(60))
def test_on_the_graph_of_a_task_map_every_step_is_scored_as_there(seed: int) -> None:
    names = list(PRESETS)
    spec = task_spec("high", "small", size=(2 + seed % 2, 3), alpha=20) if seed % 3 == 0 else PRESETS[names[seed % 9]]
    spec = replace(spec, goals=1 + seed % 2)
    task_map = generate_task_map(spec, seed=seed)
    rng = stream(seed, "walk")
    wanted: list[Action | None] = []
    for _ in range(int(rng.integers(1, task_map.budget + 1))):
        keep = wanted and wanted[-1] is not None and rng.random() < 0.6
        wanted.append(wanted[-1] if keep else None if rng.random() < 0.05 else Action(int(rng.integers(4))))
    while True:
        try:
            score = score_episode(task_map, wanted)
            break
        except ValueError:  # an action after the end
            wanted.pop()
    # A blocked move is a visit of the place where the agent is.
    visits = [None if step.action is None else name(step.after) for step in score.steps]
    other = score_graph(graph_of(task_map), visits)
    assert other.summary == score.summary
    for one, two in zip(score.steps, other.steps, strict=True):
        assert (one.case, one.error, one.stale, one.new_cell, one.rejected) == (
            two.case,
            two.error,
            two.stale,
            two.new_cell,
            two.rejected,
        )
        assert set(two.targets) == set(map(name, one.targets)) and (one.achieved is None) == (two.achieved is None)


LINE: dict[str, Any] = {"edges": [["a", "b"], ["b", "c"], ["c", "d"]], "start": "b", "goals": ["d"]}


def test_several_goals_are_all_to_be_achieved() -> None:
    graph = TaskGraph.model_validate({**LINE, "goals": ["a", "d"]})
    score = score_graph(graph, ["a", "b", "c", "d"])
    assert score.summary.success and score.summary.achieved_nodes == 2
    assert not score_graph(graph, ["a"]).summary.success
    with pytest.raises(ValueError, match="visit"):
        score_graph(graph, ["a", "b", "c", "d", "c"])
    waiting = TaskGraph.model_validate({**LINE, "goals": ["a", "d"], "tasks": {"a": [["c"]], "c": []}})
    steps = score_graph(waiting, ["a", "b", "c", "b", "a"]).steps  # a is discovered, achievable once c is achieved
    assert [step.case for step in steps] == [1, 1, 1, 2, 2] and steps[3].targets == ("a",)


def test_an_episode_that_would_take_minutes_is_refused() -> None:
    """A star of which each visit changes all targets: what a log may make the scorer do is bounded."""
    star = {"edges": [["hub", f"leaf {at}"] for at in range(5000)], "start": "hub", "goals": ["leaf 0"], "jumps": True}
    graph = TaskGraph.model_validate(star)
    with pytest.raises(ValueError, match=r"20,000,000.* 4999 visits .*5000 edges"):
        score_graph(graph, [f"leaf {at}" for at in range(1, 5000)])
    assert score_graph(graph, [f"leaf {at}" for at in range(1, 1000)]).summary.exploration_error == 0


def test_ways_in_one_direction_reveal_and_lead_one_way() -> None:
    graph = TaskGraph.model_validate({**LINE, "directed": True})
    assert score_graph(graph, ["c"]).steps[0].targets == ("c",)  # a leads to b, b does not lead to a
    with pytest.raises(ValueError, match=r"'c' \(jumps: false\).* 'b'"):
        score_graph(graph, ["c", "b"])
    with pytest.raises(ValueError, match="'d'"):
        score_graph(TaskGraph.model_validate({**LINE, "jumps": True}), ["d"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"goals": ["e"]}, r"edges, got 'e'"),
        ({"goals": []}, "at least 1"),
        ({"goals": ["b"]}, "start .*'b'"),
        ({"tasks": {"d": [["a"]]}}, "prerequisites .*'a'"),
        ({"tasks": {"d": [["a"]], "a": [["d"]]}}, "cycle, got d -> a -> d"),
        ({"edges": [["a", "b", "c"]]}, r"pair .*\['a', 'b', 'c'\]"),
        ({"edges": [["a", "a"]]}, r"pair .*\['a', 'a'\]"),
        ({"colour": 1}, "Extra inputs"),
    ],
)
def test_a_graph_that_does_not_hold_together_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TaskGraph.model_validate({**LINE, **changes})


def test_the_log_of_the_docs_is_scored_as_they_say(tmp_path: Path) -> None:
    text = DOCS.read_text(encoding="utf-8").partition("## Any graph")[2].partition("```json\n")[2].partition("```")[0]
    log = tmp_path / "files.jsonl"
    log.write_text(text, encoding="utf-8")
    agents = json.loads(call("score", log, "--json"))["agents"]
    first, second = agents["reads the test"], agents["looks around"]
    assert first["exploration_error"]["errors"] == first["exploitation_error"]["errors"] == 0
    error = second["exploration_error"]
    assert (error["errors"], error["steps"]) == (2, 7) and second["exploitation_error"]["steps"] == 1
    assert second["success"]["value"] == first["success"]["value"] == 1
    call("score", log, "--out", tmp_path / "steps.jsonl", "--steps")
    last = json.loads((tmp_path / "steps.jsonl").read_text().splitlines()[-1])
    assert [step["there"] for step in last["steps"] if step["error"]] == ["src/app", "src/app"]
    assert "line 2 is on a graph" in call("score", log, "--report", tmp_path / "run", status=2)


def test_broken_lines_of_graphs_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        {"name": "line", "graph": LINE},
        {"graph": "line", "visits": ["c", "d"]},
        {"graph": "line", "visits": ["d"]},
        {"graph": {**LINE, "start": "z"}, "visits": []},
        {"graph": {**LINE, "edges": [["a", 3]]}, "visits": []},
        {"graph": "nowhere", "visits": []},
        {"map": "line", "actions": []},
        {"graph": "line", "visits": [], "actions": []},
    ]
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    shown = call("score", log, status=1)
    for said in (
        "line 3 visits: a visited place must be one step",
        "got 'z'",
        "graph.edges[0][1]",
        "nowhere",
        "actions: unknown",
    ):
        assert said in shown
    assert "line 7 map" in shown and "line 2" not in shown
    assert "distances known" in call("score", log, "--distances", "map", status=1)


def test_errors_of_graphs_are_estimated_like_those_of_maps() -> None:
    graph = TaskGraph.model_validate({**LINE, "jumps": True, "goals": ["a"]})
    summaries = [score_graph(graph, visits).summary for visits in (["c", "b", "a"], ["a"])]
    exploration, _ = estimate_errors(summaries, ["one", "two"])
    assert exploration.errors == 1 and exploration.steps == 4
