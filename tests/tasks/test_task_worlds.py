"""Task maps: what is refused, the round trip, the generator's promises, the planner, cooking maps, several goals."""

import hashlib
import json
import math
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from literal_tasks import distance, literal_optimal_length, literal_score, neighbours
from test_task_chat import arm

from command_line import call
from goalscope._ground.rng import stream
from goalscope.agents.scripted import TASK_SCRIPTED, DepthFirst, ExploreFirst, Greedy
from goalscope.measures.exploration import score_episode
from goalscope.runs import Store, Study, run
from goalscope.worlds import ACTIONS, Action
from goalscope.worlds.planning.process import TaskProcess
from goalscope.worlds.tasks import (
    COOKING,
    MOVES,
    PRESETS,
    RULES,
    WIDE_COOKING,
    AgentKnowledge,
    Frame,
    TaskMap,
    TaskState,
    cooking_map,
    generate_task_map,
    memory_text,
    plan_task,
    preset_tags,
    report_text,
    symbolic_twin,
    task_spec,
    write_log,
)
from goalscope.worlds.tasks.generate import random_names, sample_graph
from goalscope.worlds.tasks.taskmap import bits, flags, indices
from task_logs import memory_from_log, parse_report
from task_observations import task_observation

CELLS = [(x, y) for x in range(3) for y in range(3)]
NODES: dict[str, Any] = {
    "A": {"cell": (1, 0), "options": []},
    "B": {"cell": (2, 0), "options": []},
    "G": {"cell": (2, 2), "options": [["A"], ["B"]]},
}


def make(**changes: Any) -> TaskMap:
    return TaskMap(**{"cells": CELLS, "start": (0, 0), "goal": "G", "nodes": NODES, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cells": [*CELLS, (9, 9)]}, "connected.*\\[9, 9\\]"),
        ({"cells": [*CELLS, (0, 0)]}, "different.*twice"),
        ({"cells": [(0, 0)]}, "2 to 250000 cells"),
        ({"cells": "abc"}, "list of \\[x, y\\]"),
        ({"cells": [*CELLS, (0, 0.5)]}, "two whole numbers"),
        ({"cells": [*CELLS, (0, 10**12)]}, "below 10\\*\\*9"),
        ({"start": (5, 5)}, "start .*\\[5, 5\\]"),
        ({"start": (1, 0)}, "start \\[1, 0\\]"),
        ({"goal": "X"}, "goal must .* got 'X'"),
        ({"goal": ["A", "G"]}, "goal \\['A', 'G'\\] but nodes 'G'"),
        (
            {"nodes": {**NODES, "H": {"cell": (0, 2), "options": [["A"]]}}},
            "goal 'G' but nodes 'G', 'H'",
        ),
        ({"nodes": {**NODES, "A": {"cell": (1, 0), "options": [["G"]]}}}, "cycle"),
        ({"nodes": {**NODES, "A": {"cell": (1, 0), "options": [["A"]]}}}, "cycle, got 'A' -> 'A'"),
        ({"nodes": {**NODES, "A": {"cell": (1, 0), "options": [["X"]]}}}, "'X'"),
        ({"nodes": {**NODES, "A": {"cell": (7, 0), "options": []}}}, "'A' must lie on .*\\[7, 0\\]"),
        ({"nodes": {**NODES, "A": {"cell": (2, 0), "options": []}}}, "both at \\[2, 0\\]"),
        ({"nodes": {**NODES, "A": {"cell": (1, 0), "options": [[]]}}}, "empty list"),
        ({"nodes": {**NODES, "A": {"cell": (1, 0), "options": "B"}}}, "list of lists"),
        ({"nodes": {**NODES, "A": {"cell": (1, 0), "needs": []}}}, "must have cell and options"),
        ({"nodes": {**NODES, 'A"': {"cell": (0, 1), "options": []}}}, "without double quotes"),
        ({"nodes": {}}, "1 to 1000 nodes"),
        ({"alpha": math.nan}, "alpha must be a number"),
        ({"alpha": 0.1}, "at least one action"),
    ],
)
def test_a_broken_map_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(**changes)


def test_the_two_coordinate_systems_meet_in_one_converter() -> None:
    frame = Frame(left=-1, top=4, width=3, height=6)
    assert frame.row_col((-1, 4)) == (0, 0) and frame.row_col((1, -1)) == (5, 2)
    for cell in ((0, 0), (-1, 3), (1, -1)):
        assert frame.cell(frame.row_col(cell)) == cell
        for action, (right, up) in MOVES.items():
            row, col = frame.row_col(cell)
            moved = (row + action.delta[0], col + action.delta[1])
            assert frame.row_col((cell[0] + right, cell[1] + up)) == moved
    assert MOVES[Action.UP] == (0, 1) and MOVES[Action.RIGHT] == (1, 0)
    grid = make().grid()
    assert grid.start == (2, 0) and grid.goal == (0, 2)


def test_and_or_nodes_and_plain_values_round_trip() -> None:
    nodes = {
        "A": {"cell": (1, 0), "type": "and", "parents": []},
        "B": {"cell": (2, 0), "type": "OR", "parents": []},
        "G": {"cell": (2, 2), "type": "or", "parents": ["A", "B"]},
    }
    assert make(nodes=nodes) == make()
    conjunction = make(nodes={**nodes, "G": {"cell": (2, 2), "type": "and", "parents": ["A", "B"]}})
    assert conjunction.nodes["G"].options == (("A", "B"),)
    again = TaskMap.from_plain(json.loads(make().to_json()))
    assert again == make() and again.id == make().id and hash(again) == hash(make())
    assert make(cells=CELLS[::-1]).to_json() == make().to_json()
    assert make().budget == 27 and make(alpha=2.3, cells=CELLS).budget == 20
    large = [(x, y) for x in range(10) for y in range(10)]
    assert make(cells=large, alpha=2.3).budget == 230  # not the 229 of floating point
    with pytest.raises(ValueError, match="without cells"):
        TaskMap.from_plain({"start": [0, 0], "goal": "G", "nodes": {}})


def test_sets_of_cells_as_bits() -> None:
    rng = stream(0, "bits")
    for share in (0.01, 0.5):
        given = bytearray((rng.random(500) < share).astype("uint8").tobytes())
        given[7] = 1
        board = bits(given)
        assert flags(board, 500) == bytes(given)
        assert list(indices(board)) == [index for index, flag in enumerate(given) if flag]


@pytest.mark.parametrize("preset", ["low-small", "high-large"])
def test_boards_of_bits_equal_sets_of_cells(preset: str) -> None:
    """fast = reference: growth, fields of moves and numbering, beside sets of coordinates."""
    task_map = generate_task_map(preset, seed=3)
    board, cells, rng = task_map.board, frozenset(task_map.cells), stream(1, preset)
    assert set(board.listed(board.cells)) == cells and board.cell(board.start) == task_map.start
    assert [board.cell(board.index(cell)) for cell in task_map.cells] == list(task_map.cells)
    for _ in range(20):
        chosen = {cell for cell in task_map.cells if rng.random() < 0.3}
        grown = board.grow(sum(1 << board.index(cell) for cell in chosen)) & board.cells
        assert set(board.listed(grown)) == {near for cell in chosen for near in neighbours(cell)} & cells
        open_cells = chosen | {task_map.start}
        passable = bytearray(board.size)
        for cell in open_cells:
            passable[board.index(cell)] = 1
        field, literal = board.field(passable, board.start), distance(frozenset(open_cells), cells, task_map.start)
        assert all(field[board.index(cell)] == literal.get(cell, -1) for cell in task_map.cells)


def check_generated(preset: str, seed: int) -> None:
    task_map = generate_task_map(preset, seed=seed)
    spec = PRESETS[preset]
    cells = set(task_map.cells)
    grid = networkx.grid_2d_graph(*spec.extent).subgraph(cells)
    assert len(grid) == len(cells) and networkx.is_connected(grid)
    graph = networkx.DiGraph()
    graph.add_nodes_from(task_map.nodes)
    for name, node in task_map.nodes.items():
        graph.add_edges_from((parent, name) for option in node.options for parent in option)
        sets = [set(option) for option in node.options]
        assert not any(one <= other for i, one in enumerate(sets) for j, other in enumerate(sets) if i != j)
    assert networkx.is_directed_acyclic_graph(graph)
    (goal,) = task_map.goals
    assert [name for name in graph if graph.out_degree(name) == 0] == [goal]
    assert networkx.ancestors(graph, goal) == set(task_map.nodes) - {goal}
    assert len(task_map.nodes) == spec.nodes and len(task_map.nodes[goal].options) == 1
    places = [node.cell for node in task_map.nodes.values()]
    assert len(set(places)) == len(places) and task_map.start not in places and set(places) <= cells
    for name in task_map.nodes:
        assert len(name) == 4 and set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ23456789")
        assert any(sign.isdigit() for sign in name) and any(sign.isalpha() for sign in name)
    assert plan_task(task_map).length <= task_map.budget == 3 * len(cells)
    assert generate_task_map(PRESETS[preset], seed=seed).to_json() == task_map.to_json()


@pytest.mark.parametrize("preset", PRESETS)
def test_generated_maps_keep_the_generators_promises(preset: str) -> None:
    for seed in range(10):
        check_generated(preset, seed)
    assert len({generate_task_map(preset, seed=seed).id for seed in range(10)}) == 10


@pytest.mark.full
@pytest.mark.parametrize("preset", PRESETS)
def test_a_thousand_generated_maps_keep_the_generators_promises(preset: str) -> None:
    for seed in range(1000):
        check_generated(preset, seed)


def test_presets_are_the_papers_configurations() -> None:
    assert len(PRESETS) == 20
    for demand, density, widths in (("low", 0.1, (2, 3)), ("medium", 0.25, (1, 3)), ("high", 0.4, (1, 1))):
        for graph, nodes, options in (
            ("small", 4, {1: 1.0}),
            ("medium", 6, {1: 0.8, 2: 0.2}),
            ("large", 8, {1: 0.6, 2: 0.4}),
        ):
            spec = PRESETS[f"{demand}-{graph}"]
            assert PRESETS[f"paper-{demand}-{graph}"] == replace(spec, size=(10, 10), corridors="start")
            assert preset_tags(f"paper-{demand}-{graph}") == preset_tags(f"{demand}-{graph}")
            assert preset_tags(f"{demand}-{graph}") == {"demand": demand, "graph": graph}
            assert (spec.density, spec.corridor_widths, spec.nodes, dict(spec.option_counts)) == (
                density,
                widths,
                nodes,
                options,
            )
            assert set(dict(spec.dependency_counts)) == ({1, 2, 3} if graph == "large" else {1, 2})
            assert (spec.alpha, spec.aspect_ratio, spec.depth_bias, spec.layer_size) == (3, 1, 1, 3)
            width, height = spec.extent
            assert abs(width - height) <= 1 and nodes / (width * height) <= density
    assert PRESETS["10x10"].extent == (10, 10) and PRESETS["8x8"].extent == (8, 8) and not preset_tags("8x8")
    assert task_spec("low", "small", aspect_ratio=4).extent[0] > 2 * task_spec("low", "small", aspect_ratio=4).extent[1]


def test_the_small_presets_give_the_maps_that_stored_studies_name() -> None:
    """Hash of 34 ids as the version before the presets of the paper's size gave them."""
    ids = [generate_task_map(name, seed=seed).id for name in list(PRESETS)[:11] for seed in range(3)]
    ids.append(generate_task_map(task_spec("high", "large", size=(8, 8)), seed=1).id)
    assert hashlib.sha256("".join(ids).encode()).hexdigest()[:16] == "59c7880d4e86bb37"


def detours(preset: str) -> int:
    """Count the nodes of ten maps that the start reaches by no shortest walk of the open plane."""
    found = 0
    for seed in range(10):
        task_map = generate_task_map(preset, seed=seed)
        away = distance(frozenset(task_map.cells), frozenset(task_map.cells), task_map.start)
        (x, y) = task_map.start
        found += sum(
            away[node.cell] > abs(node.cell[0] - x) + abs(node.cell[1] - y) for node in task_map.nodes.values()
        )
    return found


def test_corridors_of_the_paper_lead_from_the_start_to_each_node() -> None:
    assert [detours(name) for name in PRESETS if name.startswith("paper-")] == [0] * 9
    assert detours("low-large") > 0, "corridors from the nearest cell wind"


def test_a_given_size_keeps_the_density_of_the_demand() -> None:
    """Nodes lie in a window of ``nodes / density`` cells, as far as the size allows."""
    spread = {}
    for demand, density in (("low", 0.1), ("medium", 0.25), ("high", 0.4)):
        spec = task_spec(demand, "medium", size=(8, 8), corridors="start")
        width, height = spec.window
        assert width * height >= 6 / density > (width - 1) * (height - 1) and max(width, height) <= 8
        maps = [[node.cell for node in generate_task_map(spec, seed=seed).nodes.values()] for seed in range(20)]
        for axis, room in ((0, width), (1, height)):
            assert all(max(c[axis] for c in cells) - min(c[axis] for c in cells) < room for cells in maps)
        spread[demand] = np.mean([abs(a[0] - b[0]) + abs(a[1] - b[1]) for cells in maps for a in cells for b in cells])
    assert spread["low"] > 1.3 * spread["medium"] > 1.3 * 1.2 * spread["high"]
    assert task_spec("low", "large", size=(20, 4), corridors="start").window == (20, 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corridors": "anywhere"}, "corridors must begin"),
        ({"nodes": 20, "size": (5, 4), "corridors": "start"}, "must hold the start and 20 nodes"),
        ({"nodes": 1}, "nodes must be a whole number from 2 to 20"),
        ({"option_counts": ((1, 0.5),)}, "sum to 1"),
        ({"option_counts": 3}, "pairs"),
        ({"corridor_widths": (3, 2)}, "greatest corridor width"),
        ({"size": (2, 2)}, "must hold the start and 6 nodes"),
        ({"density": 0}, "density must be a number"),
        ({"colour": 1}, "attributes of TaskSpec"),
    ],
)
def test_a_broken_spec_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        task_spec("medium", "medium", **changes)


def test_no_map_within_the_budget_is_said() -> None:
    with pytest.raises(ValueError, match="raise alpha"):
        generate_task_map(task_spec("high", "small", alpha=0.2), seed=0)
    with pytest.raises(ValueError, match="preset"):
        generate_task_map("huge")


def test_parents_are_drawn_with_the_papers_weights() -> None:
    """A node of layer 2 draws one parent at depth 1 over one at depth 0 with odds e to 1 for each."""
    spec = task_spec("low", "small", nodes=4, layer_size=1, option_counts={1: 1.0}, dependency_counts={1: 1.0})
    rng = stream(0, "weights")
    found = Counter(sample_graph(spec, rng)[2][0][0] for _ in range(1000))
    expected = 1 / (1 + math.exp(-1))
    assert abs(found[1] / 1000 - expected) < 4 * math.sqrt(expected * (1 - expected) / 1000)


def test_names_say_nothing_about_order() -> None:
    rng = stream(0, "names")
    first_is_least = [names[0] < names[1] for names in (random_names(2, rng) for _ in range(2000))]
    assert abs(sum(first_is_least) / 2000 - 0.5) < 0.05


@pytest.mark.parametrize("preset", PRESETS)
def test_the_planner_equals_the_search_over_every_cell_and_set(preset: str) -> None:
    for seed in range(4):
        task_map = generate_task_map(preset, seed=100 + seed)
        plan = plan_task(task_map)
        assert plan.length == len(plan.actions) == literal_optimal_length(task_map)
        knowledge = TaskState(task_map)
        for action in plan.actions:
            assert knowledge.ending is None
            knowledge.move(action)
        assert knowledge.ending == "goal" and plan.within_budget


def test_a_plan_may_exceed_the_budget_and_says_so() -> None:
    assert not plan_task(make(alpha=0.12)).within_budget and plan_task(make(alpha=0.12)).length == 4


def test_cooking_maps_and_their_twins_differ_in_names_only() -> None:
    assert len(COOKING) == len(WIDE_COOKING) == 4
    for name in (*COOKING, *WIDE_COOKING):
        kitchen, twin = cooking_map(name), cooking_map(name, symbolic=True)
        assert kitchen.cells == twin.cells and kitchen.start == twin.start and kitchen.budget == twin.budget
        names = {
            old: next(new for new, n in twin.nodes.items() if n.cell == node.cell)
            for old, node in kitchen.nodes.items()
        }
        assert kitchen.renamed(names) == twin and kitchen.renamed(names).goals == (names[kitchen.goals[0]],)
        assert plan_task(kitchen).within_budget and plan_task(twin).length == plan_task(kitchen).length
        assert all(len(token) == 4 for token in twin.nodes) and not set(twin.nodes) & set(kitchen.nodes)
        assert symbolic_twin(kitchen) == twin and symbolic_twin(kitchen, seed=1) != twin
    with pytest.raises(ValueError, match="cooking map"):
        cooking_map("pizza")


# Task maps with several goals: all are to be achieved; oracle, process, agents, errors and prompts know it.


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
