"""MEG from runs in task worlds: towards the goal, the sub-goals and single nodes, of agents whose goal is known."""

import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from goal_tables import directed
from goalscope.cli import app
from goalscope.measures import StepTable
from goalscope.meg import RationalityCurve, SharedCurve, meg_known
from goalscope.runs import Episode, Store, Study, run
from goalscope.worlds.planning.process import TaskProcess, process_of_map
from goalscope.worlds.tasks import TaskState, generate_task_map, plan_task


def played(folder: Path, count: int = 4) -> Path:
    study = Study.parse(
        {
            "name": "goals of task worlds",
            "seed": 5,
            "worlds": [{"kind": "task-map", "presets": ["medium-small"], "count": count}],
            "agents": [{"kind": "task-oracle"}, {"kind": "task-greedy"}, {"kind": "task-random-walk"}],
            "trajectories": 2,
        }
    )
    run(study, folder)
    return folder


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    with Store(played(tmp_path_factory.mktemp("tasks") / "run")) as store:
        return list(store.episodes())


def test_the_oracle_has_all_of_the_bound_and_the_random_walk_none(episodes: list[Episode]) -> None:
    table = StepTable.from_episodes(episodes, tasks=True)
    found = directed(table)
    by = {(one.agent, one.hypothesis): one for one in found.estimates}
    goal = by["oracle", "goal"]
    assert goal.value == pytest.approx(goal.bound) and goal.beta == math.inf
    assert 0 < by["greedy", "goal"].value < goal.value
    assert by["random-walk", "goal"].value < 0.2 * by["greedy", "goal"].value
    assert by["oracle", "sub-goals"].value > by["random-walk", "sub-goals"].value


def test_it_is_the_shared_curve_of_the_worlds_at_returns_counted_by_hand(episodes: list[Episode]) -> None:
    table = StepTable.from_episodes(episodes, tasks=True)
    found = directed(table, "goal")
    mine = [episode for episode in episodes if episode.agent == "greedy"]
    worlds = {episode.world.id: episode.world.task_map for episode in mine}
    curves, returns = [], []
    for world_id, task_map in worlds.items():
        task = process_of_map(task_map)
        curves.append(RationalityCurve(task.process()))
        gained = [
            task_map.budget - len(one.steps) for one in mine if one.world.id == world_id and one.outcome == "goal"
        ]
        returns.append(sum(gained) / sum(one.world.id == world_id for one in mine))
    (estimate,) = [one for one in found.estimates if one.agent == "greedy"]
    assert estimate.value == pytest.approx(SharedCurve(curves).meg(np.array(returns)).signed, abs=2e-4 * estimate.bound)


def test_single_nodes_and_what_has_no_meaning(episodes: list[Episode]) -> None:
    table = StepTable.from_episodes(episodes, tasks=True)
    name = next(iter(episodes[0].world.task_map.nodes))
    found = directed(table, f"node {name}")
    assert {one.hypothesis for one in found.estimates} == {f"node {name}"}
    with pytest.raises(ValueError, match="'key'"):
        directed(table, "key")
    with pytest.raises(ValueError, match="sub-goals"):
        directed(table, "node nobody")


def test_the_command_takes_runs_in_task_worlds(tmp_path: Path) -> None:
    folder = played(tmp_path / "run", count=2)
    done = CliRunner().invoke(app, ["meg", str(folder)], env={"COLUMNS": "200"})
    assert done.exit_code == 0 and "sub-goals" in done.output and "oracle" in done.output
    refused = CliRunner().invoke(app, ["meg", str(folder), "--beliefs", "pre:0"], env={"COLUMNS": "200"})
    assert refused.exit_code != 0 and "task worlds" in refused.output


def test_states_of_task_maps_follow_the_world() -> None:
    for seed in range(4):
        task_map = generate_task_map("medium-small", seed=seed)
        process, rng = TaskProcess(task_map), np.random.default_rng(seed)
        truth, at, total = TaskState(task_map), 0, 0.0
        actions = list[int | None]()
        while truth.ending is None:
            assert process.achieved()[at] == 0 and process.states[at][0] == truth.position
            names = [name for name in task_map.nodes if process.achieved(name)[at]]
            assert sorted(names) == list(truth.achieved_names)
            action = None if rng.random() < 0.1 else int(rng.integers(4))
            actions.append(action)
            truth.move(action)
            at = at if action is None else int(process.next[at, action])
        total = process.utility_of(actions)
        assert total == (task_map.budget - truth.steps if truth.ending == "goal" else 0)
        curve = RationalityCurve(process.process())
        plan = plan_task(task_map)
        assert process.utility_of([*map(int, plan.actions)]) == task_map.budget - plan.length
        assert curve.highest == pytest.approx(task_map.budget - plan.length)
        assert meg_known(curve, mean_return=curve.highest).share == pytest.approx(1)
