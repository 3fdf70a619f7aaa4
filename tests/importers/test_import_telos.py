"""The authors' layout on a small fixture of our own, and one problem for each way of spoiling it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goalscope
from goalscope.runs import Episode, Store
from goalscope.runs.importers import ImportLog, import_into, import_path

FIXTURE = Path(__file__).parents[1] / "data" / "telos"
FIRST = "trajectories/example_small-model_size7_comp1.0_grid1_base_traj0.json"
FAILED = "trajectories/example_small-model_size7_comp0.0_grid4_base_traj0.json"
TOKENS = "trajectories/example_small-model_size11_comp0.4_grid2_base_traj0.json"


def run(path: Path) -> tuple[list[Episode], ImportLog]:
    result = import_path(path)
    return list(result.episodes), result


def test_the_fixture_agrees() -> None:
    episodes, result = run(FIXTURE)
    assert result.problems == ()
    assert len(episodes) == result.counts["trajectories"] == 5
    assert result.counts["steps"] == sum(len(episode.steps) for episode in episodes) == 41
    for name, count in (("optimal-action labels", 35), ("metrics in tables", 20), ("grid path lengths", 3)):
        assert result.compared[name] == (count, count)
    assert result.counts["legacy labels that the file corrects"] == 2
    assert list(result.lines())[-1] == "metrics in tables: 20 of 20 agree"


def test_a_turn_without_action_is_a_failure_and_not_a_move() -> None:
    episode = next(episode for episode in run(FIXTURE)[0] if episode.tags["file"] == Path(FAILED).name)
    assert [step.failure for step in episode.steps] == [None, "no action", None, None, None]
    assert episode.steps[1].action is None
    assert episode.steps[1].state == episode.steps[2].state
    assert episode.outcome == "goal"


def test_texts_and_token_ids_are_kept_and_a_seed_does_not_split_an_agent() -> None:
    episodes, _ = run(FIXTURE)
    episode = next(episode for episode in episodes if episode.tags["file"] == Path(TOKENS).name)
    assert episode.steps[0].prompt_tokens == (1, 2, 100, 101, 102, 7)
    assert [step.output_tokens for step in episode.steps[:2]] == [(200000,), (200001,)]
    assert episode.steps[0].text == '{"action": "RIGHT"}'
    assert episode.steps[0].reasoning == "The goal lies to the south-east."
    assert (episode.world.grid.height, episode.outcome) == (11, "stopped")
    assert {episode.tags["temperature"]: episode.spec.agent_id for episode in episodes}.keys() == {0.7, 0.0}
    assert len({episode.spec.agent_id for episode in episodes}) == 2
    first = [episode for episode in episodes if episode.tags["grid"] == "size7_difficulty1.0_grid1"]
    assert [episode.spec.trajectory for episode in first] == [0, 1]
    assert len({episode.world.cluster_id for episode in first}) == 1


def test_a_single_file_and_a_second_import_change_nothing(tmp_path: Path) -> None:
    assert len(list(import_path(FIXTURE / FIRST).episodes)) == 1
    assert import_into(FIXTURE, tmp_path / "run").counts["episodes stored"] == 5
    again = import_into(FIXTURE / "trajectories", tmp_path / "run")
    assert (again.counts["episodes stored"], again.counts["episodes that were stored before"]) == (0, 5)
    assert again.exit_status == 0
    checked = goalscope.import_logs(FIXTURE)
    assert "episodes stored" not in checked.counts and checked.records == []
    assert goalscope.import_logs(FIXTURE, tmp_path / "run").counts["episodes that were stored before"] == 5
    with pytest.raises(FileNotFoundError):
        goalscope.import_logs(tmp_path / "nothing")
    with Store(tmp_path / "run") as store:
        assert len(store.episode_ids()) == 5
        assert {name for name, _ in store.agents().values()} == {"small-model low t=0.7", "small-model low t=0.0"}


def test_an_episode_that_differs_from_the_stored_one_is_refused_and_the_others_are_stored(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(FIXTURE, copy)
    (copy / FIRST).unlink()
    import_into(copy, tmp_path / "run")
    shutil.copytree(FIXTURE, copy, dirs_exist_ok=True)
    edit(copy / FAILED, lambda value: value["steps"][0].update(output_text="another answer"))
    result = import_into(copy, tmp_path / "run")
    assert result.problem_count == 1
    assert "stored" in str(result.problems[0])
    assert result.counts["episodes stored"] == 1


def edit(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def _deep(path: Path) -> None:
    path.write_text('{"steps": ' + "[" * 100_000)


def _grid(value: Any, step: int, old: str, new: str) -> None:
    text = "\n".join(value["steps"][step]["grid_state"])
    assert old in text
    value["steps"][step]["grid_state"] = text.replace(old, new, 1).split("\n")


def _old_action(value: Any) -> None:
    value["steps"][2]["agent_action"] = "JUMP\x1b[2J"


def _on(file: str, change: Callable[[Any], object]) -> Callable[[Path], object]:
    return lambda folder: edit(folder / file, change)


LOST, KEPT = 4, 5
SPOILED: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "wrong label": (
        _on(FIRST, lambda v: v["steps"][1].update(recorded_optimal_actions=["UP"])),
        "optimal actions",
        KEPT,
    ),
    "label missing a tie": (
        _on(FAILED, lambda v: v["steps"][0].update(recorded_optimal_actions=["UP"])),
        "['LEFT', 'UP']",
        KEPT,
    ),
    "wrong is-optimal": (_on(FIRST, lambda v: v["steps"][0].update(recorded_is_optimal_action=False)), "True", KEPT),
    "wrong goal label": (
        _on(FIRST, lambda v: v["steps"][0].update(recorded_goal_reached_after_action=True)),
        "it must be False",
        KEPT,
    ),
    "wrong path length": (_on(FIRST, lambda v: v["grid_params"].update(astar_distance=9)), "8 steps", KEPT),
    "wrong metric": (_on(FIRST, lambda v: v["source"]["recorded_metrics"].update(steps="9")), "steps must be 8", KEPT),
    "metric of no kind": (
        _on(FIRST, lambda v: v["source"]["recorded_metrics"].update(goal_reached="perhaps")),
        "True or False",
        KEPT,
    ),
    "cut": (lambda folder: (folder / FIRST).write_text((folder / FIRST).read_text()[:900]), "valid JSON", LOST),
    "unknown symbol": (_on(FIRST, lambda v: _grid(v, 0, "_", "?")), "'?'", LOST),
    "start on a wall": (_on(FIRST, lambda v: v["grid_params"].update(agent_start_coordinates=[0, 3])), "a wall", LOST),
    "agent gone": (_on(FIRST, lambda v: _grid(v, 0, "A", "_")), "agent (A)", LOST),
    "two agents": (_on(FIRST, lambda v: _grid(v, 0, "_", "A")), "at most one 'A'", LOST),
    "row missing": (_on(FIRST, lambda v: v["steps"][3]["grid_state"].pop(4)), "must start with 3", LOST),
    "jump": (
        _on(FIRST, lambda v: v["steps"].pop(2) and v["steps"][2].update(step_id=2)),
        "after RIGHT at (1, 2)",
        LOST,
    ),
    "numbering": (_on(FIRST, lambda v: v["steps"][2].update(step_id=7)), "numbered in order", LOST),
    "unknown action": (_on(FIRST, _old_action), "UP, DOWN, LEFT, RIGHT", LOST),
    "missing key": (_on(FIRST, lambda v: v["steps"][0].pop("grid_state")), "steps[0].grid_state: must be given", LOST),
    "wrong type": (_on(FIRST, lambda v: v["steps"][0].update(agent_action=3)), "steps[0].agent_action", LOST),
    "no steps": (_on(FIRST, lambda v: v["steps"].clear()), "at least 1 item", LOST),
    "list in parameters": (_on(FIRST, lambda v: v.update(model_params=[])), "model_params", LOST),
    "token id": (_on(TOKENS, lambda v: v["steps"][0].update(output_tokens=[-1])), "greater than or equal to 0", LOST),
    "fogged": (_on(FIRST, lambda v: v["grid_params"].update(fully_observable=False)), "whole grid", LOST),
    "NaN": (lambda folder: _replace(folder / FIRST, "0.95", "NaN"), "finite", LOST),
    "infinite": (lambda folder: _replace(folder / FIRST, "0.95", "1e999"), "finite", LOST),
    "huge": (lambda folder: _replace(folder / FIRST, "1000", "9" * 6000), "64 bits", LOST),
    "key twice": (
        lambda folder: _replace(folder / FIRST, '"step_id": 0,', '"step_id": 0, "step_id": 0,'),
        "once",
        LOST,
    ),
    "half a pair": (lambda folder: _replace(folder / FIRST, '"low"', '"\\ud800"'), "surrogate", LOST),
    "deep": (lambda folder: _deep(folder / FIRST), "nested", LOST),
    "binary": (lambda folder: (folder / FIRST).write_bytes(bytes(range(256)) * 9), "UTF-8", LOST),
    "empty": (lambda folder: (folder / FIRST).write_bytes(b""), "empty", LOST),
    "UTF-16": (
        lambda folder: (folder / FIRST).write_bytes((folder / FIRST).read_text().encode("utf-16")),
        "UTF-8",
        LOST,
    ),
    "Latin-1": (lambda folder: (folder / FIRST).write_bytes(b'{"a": "\xe9"}'), "byte 0xe9", LOST),
    "another layout": (lambda folder: (folder / FIRST).write_text("[1, 2]"), "a trajectory, a grid", LOST),
    "a copy": (lambda folder: shutil.copy(folder / FIRST, folder / "trajectories" / "copy.json"), "once", KEPT),
    "folder loop": (lambda folder: (folder / "trajectories" / "again").symlink_to(folder), "a link to", KEPT),
    "link to itself": (lambda folder: (folder / "self.json").symlink_to(folder / "self.json"), "a link to", KEPT),
    "dangling link": (lambda folder: (folder / "none.json").symlink_to(folder / "nothing"), "a link to", KEPT),
    "pipe": (lambda folder: os.mkfifo(folder / "pipe.json"), "a pipe", KEPT),
    "table of labels": (
        lambda folder: _replace(folder / "recorded_metrics.csv", "True,8,8,1.0", "True,8,7,1.0"),
        "optimal_path_length must be 8",
        KEPT,
    ),
    "short row": (lambda folder: _replace(folder / "recorded_metrics.csv", ",8,8,1.0,False", ",8"), "6 cells", KEPT),
    "empty table": (lambda folder: (folder / "recorded_metrics.csv").write_text(""), "empty", KEPT),
    "grid start": (lambda f: _replace(f / "grids_example.jsonl", '"start_x": 1,', '"start_x": 0,'), "a wall", KEPT),
    "grid length": (
        lambda f: _replace(f / "grids_example.jsonl", '"optimal_path_length": 8', '"optimal_path_length": 7'),
        "8 steps",
        KEPT,
    ),
    "grid walls": (lambda f: _replace(f / "grids_example.jsonl", '_fraction": 0.0', '_fraction": 0.1'), "0.0 of", KEPT),
    "grid text": (lambda f: _replace(f / "grids_example.jsonl", "1 # A _", "1 # _ A"), "show the layout", KEPT),
    "state label": (
        _on(
            "keydoor_labelled_states.json", lambda v: v[0].update(optimal_actions=["DOWN"], legacy_optimal_actions=None)
        ),
        "it must be ['LEFT']",
        KEPT,
    ),
    "state wall": (_on("keydoor_labelled_states.json", lambda v: v[2].update(wall_hit=False)), "must be True", KEPT),
    "state labelled by a door-blind planner": (
        _on("keydoor_labelled_states.json", lambda v: v[1].update(optimal_actions=["RIGHT"], is_optimal_action=None)),
        "it must be ['LEFT']",
        KEPT,
    ),
    "state position": (
        _on("keydoor_labelled_states.json", lambda v: v[0].update(current_position=[1, 3])),
        "[x, y]",
        KEPT,
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_each_fault_is_one_line_and_the_rest_is_imported(name: str, tmp_path: Path) -> None:
    spoil, words, kept = SPOILED[name]
    folder = tmp_path / "copy"
    shutil.copytree(FIXTURE, folder)
    spoil(folder)
    episodes, result = run(folder)
    printed = [str(problem) for problem in result.problems]
    assert len(printed) == result.problem_count == 1, printed
    assert words in printed[0], printed
    assert printed[0].isprintable()
    assert len(episodes) == kept
    assert result.exit_status == 1
    assert import_path(folder, check=True).problems == result.problems


@pytest.mark.parametrize("style", ["BOM", "CRLF", "trailing blanks"])
def test_harmless_variants_of_the_text_are_read(style: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(FIXTURE, folder)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        octets = path.read_bytes()
        if style == "BOM":
            path.write_bytes(b"\xef\xbb\xbf" + octets)
        elif style == "CRLF":
            path.write_bytes(octets.replace(b"\n", b"\r\n"))
        elif path.suffix == ".json" and "trajectories" in path.parts:
            edit(
                path,
                lambda value: [
                    step.update(grid_state=[f"{line}  " for line in step["grid_state"]]) for step in value["steps"]
                ],
            )
    episodes, result = run(folder)
    assert result.problems == ()
    assert [episode.id for episode in episodes] == [episode.id for episode in run(FIXTURE)[0]]


def test_what_is_not_there_is_a_problem_and_makes_no_store(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "with\0zero"):
        result = import_into(path, tmp_path / "run")
        assert result.problem_count == 1
        assert "must be there" in str(result.problems[0])
    (tmp_path / "empty").mkdir()
    assert "something to import" in str(import_path(tmp_path / "empty", check=True).problems[0])
    assert not (tmp_path / "run").exists()
