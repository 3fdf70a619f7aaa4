"""Task maps with several goals: all are to be achieved; oracle, process, agents, errors and prompts know it."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from literal_tasks import literal_optimal_length, literal_score
from test_task_chat import arm

from command_line import call
from goalscope.agents.scripted import TASK_SCRIPTED, DepthFirst, ExploreFirst, Greedy
from goalscope.measures.exploration import score_episode
from goalscope.runs import Store, Study, run
from goalscope.worlds import ACTIONS, Action
from goalscope.worlds.planning.process import TaskProcess
from goalscope.worlds.tasks import (
    PRESETS,
    RULES,
    AgentKnowledge,
    TaskMap,
    TaskState,
    generate_task_map,
    memory_text,
    plan_task,
    report_text,
    write_log,
)
from task_logs import memory_from_log, parse_report
from task_observations import task_observation

SMALL: dict[str, Any] = {
    "cells": [[0, 0], [1, 0], [2, 0], [3, 0], [2, 1]],
    "start": [1, 0],
    "goal": ["G", "H"],
    "nodes": {
        "A": {"cell": [0, 0], "options": []},
        "G": {"cell": [3, 0], "options": [["A"]]},
        "H": {"cell": [2, 1], "options": []},
    },
    "alpha": 4,
}


def test_an_episode_by_hand() -> None:
    """H is achieved by its first visit, G is discovered too early: then it is the one pending goal."""
    task_map = TaskMap.from_plain(SMALL)
    assert task_map.goals == ("G", "H") and TaskMap.from_plain(task_map.to_plain()) == task_map
    actions = ["right", "right", "left", "up", "down", "left", "left", "right", "right", "right"]
    score = score_episode(task_map, actions)
    assert [step.achieved for step in score.steps] == [None, None, None, "H", None, None, "A", None, None, "G"]
    assert [step.case for step in score.steps] == [1, 1, 1, 1, 1, 1, 1, 2, 2, 2]
    assert score.summary.success and score.steps[8].targets == ((3, 0),)
    assert not score_episode(task_map, actions[:-1]).summary.success
    with pytest.raises(ValueError, match="goal"):
        score_episode(task_map, [*actions, "left"])


@pytest.mark.parametrize("goals", [["G"], "G", ["G", "A"], ["G", "H", "H"], [], ["G", "Z"]])
def test_the_goals_are_all_nodes_that_nothing_depends_on(goals: Any) -> None:
    with pytest.raises(ValueError, match="goal"):
        TaskMap.from_plain({**SMALL, "goal": goals})


def brute_force(task_map: TaskMap, most: int) -> int:
    """Moves of the shortest successful walk, by trying every sequence of moves: nothing is planned."""
    for length in range(1, most + 1):
        for actions in product(ACTIONS, repeat=length):
            state = TaskState(task_map)
            for action in actions:
                if state.ending is not None:
                    break
                state.move(action)
            if state.ending == "goal":
                return length
    raise AssertionError(f"no walk of {most} moves")


def test_the_plan_is_a_shortest_one_of_all_sequences_of_moves() -> None:
    near = {**SMALL["nodes"], "A": {"cell": [2, 0], "options": []}}
    tiny = TaskMap.from_plain({**SMALL, "nodes": near})
    assert plan_length(tiny) == brute_force(tiny, 6) == 4
    assert plan_length(TaskMap.from_plain(SMALL)) == 6


def plan_length(task_map: TaskMap) -> int:
    plan = plan_task(task_map)
    state = TaskState(task_map)
    for action in plan.actions:
        assert state.ending is None
        state.move(action)
    assert state.ending == "goal"
    return plan.length


@pytest.mark.parametrize(("preset", "goals"), list(product(["medium-medium", "high-small", "paper-low-large"], [2, 3])))
def test_generated_maps_are_planned_as_the_search_over_every_cell_and_set(preset: str, goals: int) -> None:
    for seed in range(3):
        task_map = generate_task_map(replace(PRESETS[preset], goals=goals), seed=seed)
        assert len(task_map.goals) == goals and all(task_map.children[goal] == () for goal in task_map.goals)
        assert plan_length(task_map) == literal_optimal_length(task_map)


def test_maps_with_one_goal_are_as_before() -> None:
    spec = PRESETS["medium-medium"]
    assert '"goals"' not in spec.described() and '"goals":2' in replace(spec, goals=2).described()
    assert json.loads(generate_task_map(spec, seed=1).to_json())["goal"] == generate_task_map(spec, seed=1).goals[0]
    with pytest.raises(ValueError, match="goals"):
        replace(spec, goals=spec.nodes)


def test_the_process_ends_when_all_goals_are_achieved() -> None:
    process = TaskProcess(TaskMap.from_plain(SMALL))
    done = process.achieved()
    assert (done == process.achieved("G") * process.achieved("H")).all() and 0 < done.sum() < process.achieved(
        "H"
    ).sum()
    ended = np.flatnonzero(done)
    assert (process.next[ended] == ended[:, None]).all()
    going = np.flatnonzero(process.achieved("H") > done)
    assert (process.next[going] != going[:, None]).any()


@pytest.mark.parametrize("agent", [Greedy(), ExploreFirst(), DepthFirst()])
def test_agents_that_make_no_error_achieve_all_goals_without_one(agent: Any) -> None:
    for seed in range(6):
        task_map = generate_task_map(replace(PRESETS["medium-medium"], goals=2), seed=seed)
        state, memory = TaskState(task_map), AgentKnowledge()
        memory.add(state.report())
        actions: list[Action | None] = []
        while state.ending is None:
            (turn,) = agent.act([task_observation(memory)])
            actions.append(None if turn.action is None else Action(turn.action))
            state.move(turn.action)
            memory.add(state.report(), turn.action)
        names = [None if action is None else action.name.lower() for action in actions]
        assert state.ending == "goal" and len(literal_score(task_map, names)) == len(actions)
        errors = [step.error for step in score_episode(task_map, actions).steps]
        assert isinstance(agent, DepthFirst) or not any(errors)


@pytest.mark.parametrize("history", ["none", "actions", "conversation"])
def test_prompts_say_how_many_goals_there_are(history: Any) -> None:
    state, memory = TaskState(TaskMap.from_plain(SMALL)), AgentKnowledge()
    memory.add(state.report())
    for action in (Action.RIGHT, Action.UP):
        state.move(action)
        memory.add(state.report(), action)
    text = report_text(state.report())
    assert "It leads to nothing further: it is a goal." in text and text.endswith(
        "There are 2 goals: activate them all."
    )
    assert parse_report(text) == state.report()
    log = write_log(memory.turns)
    assert "Activate all 2 goals, the states" in log and RULES not in log
    rebuilt = memory_from_log(log)
    assert vars(rebuilt) == vars(memory) and 'Goals (2 in all): "H".' in memory_text(rebuilt)
    answers = ("right", "up") if history == "conversation" else ()
    first, *others = arm(memory=True).messages(task_observation(memory, answers, history_as=history))
    assert "Activate all 2 goals" in first.content and "Activate the goal," not in first.content
    assert "There are 2 goals" in others[-1].content and RULES not in others[-1].content


def test_a_study_takes_the_number_of_goals(tmp_path: Path) -> None:
    worlds = [{"kind": "task-map", "presets": ["high-small"], "count": 3, "generator": {"goals": 2}}]
    agents = [{"kind": f"task-{name}"} for name in ("oracle", "greedy")]
    assert {"oracle", "greedy"} <= set(TASK_SCRIPTED)
    run(Study.parse({"worlds": worlds, "agents": agents, "trajectories": 1}), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        episodes = list(store.episodes())
    assert len(episodes) == 6 and all(episode.outcome == "goal" for episode in episodes)
    assert all(len(episode.world.task_map.goals) == 2 for episode in episodes)
    assert "1.000" in call("measure", tmp_path / "run")
