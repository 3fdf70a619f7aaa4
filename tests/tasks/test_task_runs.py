"""Studies of task worlds: the same runner, journal, store and hash as for grids, and the rows that come out."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from played import play
from task_run_agents import TaskDice, task_study

from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents import DepthFirst, ExploreFirst, Greedy, TaskOracle
from goalscope.measures import StepTable, measure_episodes
from goalscope.measures.exploration import score_episode
from goalscope.measures.exploration.errors import _EPISODE, ONLY_EXPLORATION, PROGRESS_SHARE, progress_shares
from goalscope.runs import Store, Study, content_hash, run
from goalscope.runs.codec import decode_world, encode_world
from goalscope.worlds.tasks import COOKING, TaskWorld, cooking_map, generate_task_map

SCRIPTED = ("task-oracle", "task-greedy", "task-explore-first", "task-depth-first")


def hash_of(folder: Path) -> str:
    with Store(folder) as store:
        return content_hash(store)


def test_episodes_of_a_run_are_those_of_a_loop(tmp_path: Path) -> None:
    study = task_study(agents=[{"kind": kind} for kind in SCRIPTED], trajectories=1)
    done = run(study, tmp_path)
    assert (done.episodes, done.steps) == (12, done.steps) and done.calls == 0
    literal = {"greedy": Greedy(), "explore-first": ExploreFirst(), "depth-first": DepthFirst()}
    seen = 0
    with Store(tmp_path) as store:
        for episode in store.episodes():
            assert isinstance(episode.world, TaskWorld)
            task_map = episode.world.task_map
            agent = literal.get(episode.agent) or TaskOracle()
            played = play(task_map, agent)
            assert tuple(step.action for step in episode.steps) == played.actions
            cells = [report.position for _, report in played.turns]
            assert [task_map.frame.cell(step.state.position) for step in episode.steps] == cells[:-1]
            assert task_map.frame.cell(episode.final.position) == cells[-1]
            assert episode.outcome == ("goal" if played.outcome == "goal" else "horizon")
            assert episode.spec.horizon == task_map.budget
            seen += 1
    assert seen == 12
    again = run(study, tmp_path)
    assert (again.episodes, again.reused) == (0, 12)


def test_neither_batch_nor_workers_change_a_result(tmp_path: Path) -> None:
    study = task_study()
    hashes = set()
    for name, options in {"a": {"batch": 1}, "b": {"batch": 50}, "c": {"batch": 4, "workers": 3}}.items():
        run(study, tmp_path / name, agents=[TaskDice()], **options)  # type: ignore[arg-type]
        hashes.add(hash_of(tmp_path / name))
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("fault", "number"),
    long_after(
        2,
        [
            pytest.param("answer", 1, marks=pytest.mark.full),
            ("answer", 40),
            ("journalled", 17),
            pytest.param("journalled", 90, marks=pytest.mark.full),
        ],
        names=2,
    ),
)
def test_a_killed_run_goes_on_and_asks_nothing_twice(fault: str, number: int, tmp_path: Path) -> None:
    whole, first, second = tmp_path / "whole", tmp_path / "first.log", tmp_path / "second.log"
    run(task_study(), whole, agents=[TaskDice()], batch=3)
    script = Path(__file__).with_name("killed_task_runs.py")
    killed = subprocess.run([sys.executable, str(script), str(tmp_path / "r"), str(first), fault, str(number)])
    assert killed.returncode == -9
    with Store(tmp_path / "r") as store:
        answered = {
            f"{e} {s} {a}"
            for e, s, a in store.query("SELECT episode_id, step, attempt FROM calls WHERE state = 'done'")
        }
    summary = run(task_study(), tmp_path / "r", agents=[TaskDice(log=second)], batch=5)
    asked_before, asked_now = first.read_text().splitlines(), second.read_text().splitlines()
    assert len(asked_now) == len(set(asked_now)) and not answered & set(asked_now)
    assert set(asked_before) & set(asked_now) <= set(asked_before) - answered
    assert summary.lost == (1 if fault == "answer" else 0)
    assert hash_of(tmp_path / "r") == hash_of(whole)


def test_a_failed_turn_is_retried_or_ends_the_episode_as_on_grids(tmp_path: Path) -> None:
    retry = task_study(failure={"policy": "retry", "retries": 5, "then": "end"}, trajectories=1)
    run(retry, tmp_path / "retry", agents=[TaskDice()])
    end = task_study(failure={"policy": "end"}, trajectories=1)
    run(end, tmp_path / "end", agents=[TaskDice()])
    with Store(tmp_path / "retry") as store:
        steps = [step for episode in store.episodes() for step in episode.steps]
    assert all(step.action is not None for step in steps) and any("attempts" in step.extra for step in steps)
    with Store(tmp_path / "end") as store:
        ended = list(store.episodes())
    assert {episode.outcome for episode in ended} == {"failure"}
    assert all(episode.steps[-1].action is None for episode in ended)
    rows = measure_episodes(ended)
    assert not rows.value[rows.measure == "success"].any()


def test_rows_are_the_scores_of_the_recorded_actions(tmp_path: Path) -> None:
    run(task_study(), tmp_path, agents=[TaskDice()])
    with Store(tmp_path) as store:
        episodes = list(store.episodes())
    rows = measure_episodes(episodes)
    for episode in episodes:
        assert isinstance(episode.world, TaskWorld)
        scored = score_episode(episode.world.task_map, [step.action for step in episode.steps])
        summary = scored.summary
        by_tenth = rows.among("measure", (PROGRESS_SHARE, ONLY_EXPLORATION))
        mine = rows.where((rows.episode_id == episode.id) & ~by_tenth)
        assert len(mine) == len(_EPISODE)
        for name, (unit, _, number) in _EPISODE.items():
            (same,) = mine.select(measure=name)
            assert same.unit == unit and np.array_equal(
                same.value, np.array(number(summary), dtype=np.float64), equal_nan=True
            )
        assert set(mine.cluster) == {episode.world.cluster_id} and set(mine["agent"]) == {"dice"}
        assert set(mine["preset"]) == {"high-small"} and set(mine["distances"]) == {"known"}
        shares = rows.where((rows.episode_id == episode.id) & (rows.measure == PROGRESS_SHARE))
        assert shares["progress"].tolist() == [tenth / 10 for tenth in range(1, 11)]
        new = summary.observed_cells - 1
        assert shares.value.mean() == pytest.approx(new / summary.steps)
        only = rows.where((rows.episode_id == episode.id) & (rows.measure == ONLY_EXPLORATION))
        assert only.value.mean() == pytest.approx(np.mean([step.case == 1 for step in scored.steps]))


@pytest.mark.parametrize("length", [1, 3, 10, 27, 100])
def test_progress_shares_equal_a_literal_count_of_small_parts(length: int) -> None:
    rng = stream(3, "progress", length)
    new = [int(value) for value in rng.integers(0, 2, size=length)]
    parts = [value for value in new for _ in range(10)]  # each step in ten equal parts: a tenth is `length` of them
    literal = [sum(parts[tenth * length : (tenth + 1) * length]) / length for tenth in range(10)]
    assert progress_shares(new).tolist() == pytest.approx(literal)
    assert all(math.isnan(value) for value in progress_shares([]))


def test_worlds_are_stored_as_they_are_and_tampered_ones_are_refused() -> None:
    world = TaskWorld(task_map=generate_task_map("high-small", seed=1), cluster="c", tags={"preset": "x"})
    cells = encode_world(world)
    back = decode_world(cells)
    assert isinstance(back, TaskWorld) and back == world and back.id == world.id and back.grid == world.grid
    plain = json.loads(str(cells[1]))
    for change, words in (
        ({"alpha": 4}, "content id"),
        ({"start": [99, 99]}, "start"),
        ({"goal": "NOBODY"}, "goal"),
        ({"budget": 3}, "unknown key"),
    ):
        with pytest.raises(ValueError, match=words):
            decode_world((cells[0], json.dumps({**plain, **change}), *cells[2:]))
    with pytest.raises(ValueError, match="fog radius"):
        decode_world((*cells[:2], 3, *cells[3:]))
    with pytest.raises(ValueError, match="JSON"):
        decode_world((cells[0], '{"cells": NaN}', *cells[2:]))


def test_maps_are_presets_with_changes_and_do_not_depend_on_their_number() -> None:
    def maps(**changes: Any) -> list[TaskWorld]:
        entry = {"kind": "task-map", "presets": ["low-small", "8x8"], "count": 2, **changes}
        found = task_study(worlds=[entry]).worlds()
        return [world for world in found if isinstance(world, TaskWorld)]

    few, many = maps(), maps(count=4)
    assert [world.id for world in many][:2] + [world.id for world in many][4:6] == [world.id for world in few]
    assert [world.tags["preset"] for world in few] == ["low-small", "low-small", "8x8", "8x8"]
    assert few[0].tags["demand"] == "low" and few[0].tags["graph"] == "small" and "demand" not in few[2].tags
    changed = maps(generator={"size": [6, 6], "alpha": 5})
    assert all(world.task_map.frame.width <= 6 and world.task_map.alpha == 5 for world in changed)
    assert len({world.cluster_id for world in many}) == 8


def test_cooking_maps_come_with_twins_and_starts_in_one_cluster() -> None:
    study = task_study(worlds=[{"kind": "cooking", "starts": 3}])
    worlds = [world for world in study.worlds() if isinstance(world, TaskWorld)]
    assert len(worlds) == 4 * 3 * 2 and len({world.cluster_id for world in worlds}) == 4
    for name in COOKING:
        mine = [world for world in worlds if world.tags["map"] == name]
        by_names = {kind: [w.task_map for w in mine if w.tags["names"] == kind] for kind in ("semantic", "symbolic")}
        assert by_names["semantic"][0] == cooking_map(name)
        for semantic, symbolic in zip(by_names["semantic"], by_names["symbolic"], strict=True):
            assert semantic.start == symbolic.start and semantic.cells == symbolic.cells
            assert replace(cooking_map(name), start=semantic.start) == semantic
            places = [sorted(node.cell for node in task_map.nodes.values()) for task_map in (semantic, symbolic)]
            assert places[0] == places[1] and not set(semantic.nodes) & set(symbolic.nodes)
        assert len({task_map.start for task_map in by_names["semantic"]}) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"horizon": {"steps": 5}}, ["horizon", "alpha"]),
        ({"agents": [{"kind": "optimal"}]}, ["needs to see a grid", "'optimal'", "agents[0]"]),
        ({"agents": [{"kind": "task-greed"}]}, ["task-greedy", "'task-greed'"]),
        ({"agents": [{"kind": "task-noisy-greedy"}]}, ["epsilon is missing"]),
        ({"agents": [{"kind": "task-oracle", "task_map": {}}]}, ["no parameters", "task_map"]),
        ({"worlds": [{"kind": "task-map", "presets": ["low-smal"], "count": 1}]}, ["did you mean low-small"]),
        ({"worlds": [{"kind": "task-map", "presets": [], "count": 1}]}, ["at least one"]),
        (
            {"worlds": [{"kind": "task-map", "presets": ["8x8"], "count": 1, "generator": {"sise": [3, 3]}}]},
            ["did you mean size"],
        ),
        (
            {"worlds": [{"kind": "task-map", "presets": ["8x8"], "count": 1, "generator": {"nodes": 1}}]},
            ["nodes must be a whole number"],
        ),
        ({"worlds": [{"kind": "cooking", "maps": ["pizza"]}]}, ["cooking maps", "'pizza'"]),
        (
            {
                "worlds": [
                    {"kind": "cooking"},
                    {"kind": "grid", "sizes": [7], "densities": [0.5], "count": 1},
                ]
            },
            ["study of its own", "worlds[1]"],
        ),
        ({"analysis": {"pairs": [["greedy", "greedy"]]}}, ["two different agents"]),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        task_study(**changes)
    for word in words:
        assert word in str(error.value)


def test_a_task_agent_is_refused_on_grids() -> None:
    grid = {"kind": "grid", "sizes": [7], "densities": [0.5], "count": 1}
    with pytest.raises(ValueError, match="task map"):
        Study.parse({"worlds": [grid], "agents": [{"kind": "task-greedy"}]})


def test_a_study_reads_back_and_keeps_its_id() -> None:
    study = task_study(analysis={"pairs": [["greedy", "oracle"]]})
    assert Study.parse(study.dump()).id == study.id == Study.restore(study.dump()).id
    assert task_study(analysis=None).id == study.id
    assert "horizon" not in study.dump() and study.size().steps == 2 * sum(
        world.task_map.budget for world in study.worlds() if isinstance(world, TaskWorld)
    )


def test_runs_on_grids_keep_their_ids_and_hashes(tmp_path: Path) -> None:
    # Found with the version that knew no task worlds.
    study = Study.parse(
        {
            "worlds": [
                {"kind": "grid", "sizes": [7], "densities": [0.5], "count": 2, "minimum_distance": 4},
                {"kind": "key-door", "count": 1, "control": True},
                {"kind": "grid", "sizes": [9], "densities": [0.8], "count": 1, "fog_radius": 2},
            ],
            "agents": [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.3}],
            "trajectories": 2,
            "horizon": {"steps": 12},
            "history": "actions",
        }
    )
    run(study, tmp_path)
    assert study.id == "study-4c6eb7bea499025d3270823e"
    assert hash_of(tmp_path) == "30289c2d1ecc54033f3eef5462a30b3231ce27d6cfd2f163fe43d2b208762771"


def test_measures_of_grids_refuse_task_worlds(tmp_path: Path) -> None:
    run(task_study(), tmp_path)
    with Store(tmp_path) as store, pytest.raises(ValueError, match="tasks"):
        StepTable.from_episodes(store.episodes())
