"""Recorded labels and path lengths are those of the planner."""

import json
from pathlib import Path

from goalscope.worlds import Grid
from goalscope.worlds.planning import optimal_actions, shortest_length, solve


def test_recorded_key_door_states_are_labelled_right_where_a_door_blind_planner_is_wrong(recorded: Path) -> None:
    blind_faults = 0
    for record in json.loads((recorded / "keydoor_labelled_states.json").read_text(encoding="utf-8")):
        grid = Grid.parse(record["grid_text"])
        assert grid.start is not None
        ours = {action.name for action in optimal_actions(grid, grid.start, record["carrying_key"])}
        assert ours == set(record["optimal_actions"])
        field = solve(grid).distance
        assert field[(int(record["carrying_key"]), *grid.start)] == record["current_optimal_distance"]
        if set(record["legacy_optimal_actions"]) != ours:
            blind = {action.name for action in optimal_actions(grid.at(door=None), grid.start)}
            assert blind == set(record["legacy_optimal_actions"])
            blind_faults += 1
    assert blind_faults >= 1


def test_recorded_path_lengths_are_ours(recorded: Path) -> None:
    count = 0
    for path in sorted(recorded.glob("grids_*.jsonl")):
        for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            assert shortest_length(Grid.parse(record["grid_text"])) == record["optimal_path_length"]
            count += 1
    assert count >= 20


def test_recorded_optimal_actions_are_ours(recorded: Path) -> None:
    count = 0
    for path in sorted(recorded.glob("trajectories/*.json")):
        for step in json.loads(path.read_text(encoding="utf-8"))["steps"]:
            grid = Grid.parse(step["grid_state"])
            assert grid.start is not None
            labels = {action.name for action in optimal_actions(grid, grid.start)}
            assert labels == set(step["recorded_optimal_actions"])
            count += 1
    assert count > 50
