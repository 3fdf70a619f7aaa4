"""The recorded GPT-OSS-20B trajectories: every label agrees, and every label was looked at."""

import csv
import json
import shutil
from pathlib import Path

from goalscope.runs import Store
from goalscope.runs.importers import import_into, import_path, write_jsonl


def test_every_recorded_value_agrees_and_none_is_passed_over(recorded: Path) -> None:
    result = import_path(recorded)
    episodes = list(result.episodes)
    assert result.problems == ()
    assert result.exit_status == 0
    files = [json.loads(path.read_text()) for path in sorted((recorded / "trajectories").glob("*.json"))]
    steps = [step for value in files for step in value["steps"]]
    grids = [line for path in recorded.glob("grids*.jsonl") for line in path.read_text().splitlines()]
    states = json.loads((recorded / "keydoor_labelled_states.json").read_text())
    rows = list(csv.DictReader((recorded / "recorded_metrics.csv").read_text().splitlines()))
    inside = [value["source"]["recorded_metrics"] for value in files if value["source"].get("recorded_metrics")]
    expected = {
        "optimal-action labels": sum("recorded_optimal_actions" in step for step in steps),
        "is-optimal labels": sum("recorded_is_optimal_action" in step for step in steps),
        "goal-reached labels": sum("recorded_goal_reached_after_action" in step for step in steps),
        "transitions": len(steps) - len(files),
        "shortest path lengths": len(files),
        "metrics in tables": sum(len(row) - 1 for row in rows),
        "metrics in trajectory files": sum(len(metrics) - 1 for metrics in inside),
        "grid path lengths": len(grids),
        "grid wall fractions": len(grids),
        "optimal-action labels of states": len(states),
        "corrections of legacy labels": len(states),
    }
    assert min(expected.values()) > 0
    for name, count in expected.items():
        assert result.compared[name] == (count, count), name
    assert result.counts["legacy labels that the file corrects"] == 1
    assert len(episodes) == len(files)
    assert sum(len(episode.steps) for episode in episodes) == len(steps)


def test_trajectories_of_one_grid_share_its_world(recorded: Path) -> None:
    episodes = list(import_path(recorded).episodes)
    by_grid: dict[object, set[str]] = {}
    for episode in episodes:
        by_grid.setdefault(episode.tags["grid"], set()).add(episode.world.cluster_id)
    assert len(by_grid) == 8
    assert all(len(worlds) == 1 for worlds in by_grid.values())
    assert len({episode.id for episode in episodes}) == len(episodes)
    stopped = [episode for episode in episodes if episode.outcome != "goal"]
    assert [(episode.outcome, episode.spec.horizon, len(episode.steps)) for episode in stopped] == [("horizon", 14, 14)]
    assert {episode.tags["temperature"] for episode in episodes} == {0.0, 0.7}
    assert len({episode.spec.agent_id for episode in episodes}) == 2


def test_recorded_episodes_survive_store_and_json_lines(recorded: Path, tmp_path: Path) -> None:
    result = import_into(recorded, tmp_path / "run")
    assert result.exit_status == 0
    assert result.counts["episodes stored"] == 13
    with Store(tmp_path / "run") as store:
        stored = {episode.id: episode for episode in store.episodes()}
        write_jsonl(stored.values(), tmp_path / "log.jsonl")
    assert {episode.id: episode for episode in import_path(tmp_path / "log.jsonl").episodes} == stored
    assert stored == {episode.id: episode for episode in import_path(recorded).episodes}


def test_four_corruptions_give_four_lines_and_the_rest_is_imported(recorded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(recorded, copy, copy_function=shutil.copy)
    for folder in [copy, *copy.rglob("*")]:
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    label, cut, symbol, start = sorted((copy / "trajectories").glob("*.json"))[:4]
    text = label.read_text()
    value = json.loads(text)
    value["steps"][0]["recorded_optimal_actions"] = ["UP", "DOWN"]
    label.write_text(json.dumps(value))
    cut.write_text(cut.read_text()[:700])
    value = json.loads(symbol.read_text())
    value["steps"][0]["grid_state"][2] = value["steps"][0]["grid_state"][2].replace("_", "?", 1)
    symbol.write_text(json.dumps(value))
    value = json.loads(start.read_text())
    value["grid_params"]["agent_start_coordinates"] = [0, 0]
    start.write_text(json.dumps(value))
    result = import_into(copy, tmp_path / "run")
    printed = [str(problem) for problem in result.problems]
    assert len(printed) == 4
    for path, words in ((label, "optimal actions"), (cut, "JSON"), (symbol, "'?'"), (start, "a wall")):
        assert [line for line in printed if path.name in line and words in line], (path.name, printed)
    assert result.exit_status == 1
    assert result.counts["episodes stored"] == 10
