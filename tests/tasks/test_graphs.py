"""The exploration metric on any graph, and its variant for mazes under fog."""

import json
import math
from collections import deque
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from literal_tasks import stale
from pydantic import ValidationError

from command_line import call
from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy, Optimal, Uniform
from goalscope.measures import StepTable, check_measure, measure_episodes, roll_out
from goalscope.measures.exploration import (
    FOGGED,
    TaskGraph,
    TaskMap,
    estimate_errors,
    score_episode,
    score_fogged_episode,
    score_graph,
)
from goalscope.runs import Episode, GridWorld
from goalscope.worlds import ACTIONS, Action, Grid, Position, generate, layout, visible
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


# The variant for mazes under fog: a literal scorer, the common laws of measures, and what is refused.


Step = tuple[int, frozenset[Position], bool, bool, int, int, int, bool, frozenset[int]]


def world(seed: int, radius: int = 3, size: int = 9, density: float = 0.7) -> GridWorld:
    return GridWorld(grid=generate(size, density, rng=stream(seed, "fogged")), fog_radius=radius)


def reach(cells: set[Position], begin: Position) -> dict[Position, int]:
    found, queue = {begin: 0}, deque([begin])
    while queue:
        here = queue.popleft()
        for action in ACTIONS:
            near = (here[0] + action.delta[0], here[1] + action.delta[1])
            if near in cells and near not in found:
                found[near] = found[here] + 1
                queue.append(near)
    return found


def literal(episode: Episode) -> list[Step]:
    grid, radius = episode.world.grid, episode.world.fog_radius
    assert radius is not None and grid.start is not None and grid.goal is not None
    whole = {(row, col) for row in range(grid.height) for col in range(grid.width)}
    open_cells = {cell for cell in whole if not grid.walls[cell]}
    positions = [step.state.position for step in episode.steps] + [episode.final.position]
    walk = [positions[0]]
    stretch = [positions[0]]
    found = []

    def seen(cells: list[Position]) -> set[Position]:
        union = np.any([visible(grid.walls, cell, radius) for cell in set(cells)], axis=0)
        return {(int(row), int(col)) for row, col in np.argwhere(union)}

    for here, to in pairwise(positions):
        revealed = seen(walk)
        known = revealed & open_cells
        border = {
            cell
            for cell in known
            if any((cell[0] + a.delta[0], cell[1] + a.delta[1]) in whole - revealed for a in ACTIONS)
        }
        walked = set(reach(known, here))  # what no known way leads to is no target yet
        case, targets = (2, {grid.goal}) if grid.goal in walked else (1, border & walked)

        def judge(
            to: Position,
            here: Position = here,
            known: set[Position] = known,
            targets: set[Position] = targets,
            revealed: set[Position] = revealed,
            stretch: list[Position] = stretch,
        ) -> tuple[bool, bool, bool]:
            one, two = reach(known, here), reach(known, to)
            gain = to in targets or any(two.get(z, 10**6) < one.get(z, 10**6) for z in targets)
            progress = to == grid.goal or bool(seen([to]) - revealed)
            rises = sum(stale([*stretch, to])) > sum(stale(stretch))
            return gain, progress, not progress and (not gain or (len(targets) > 1 and rises))

        free = frozenset(
            int(a)
            for a in ACTIONS
            if (near := (here[0] + a.delta[0], here[1] + a.delta[1])) in open_cells and not judge(near)[2]
        )
        if here == to:
            found.append((case, frozenset(targets), False, False, *stale(stretch), True, free))
            continue
        gain, progress, error = judge(to)
        walk.append(to)
        stretch = [to] if progress else [*stretch, to]
        found.append((case, frozenset(targets), gain, progress, *stale(stretch), error, free))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_fast_and_literal_scorers_agree(seed: int) -> None:
    agents = (Optimal(), EpsilonGreedy(0.5), Uniform())
    place = world(seed, radius=1 + seed % 3, size=(7, 9, 11)[seed % 3], density=(0.0, 0.5, 1.0)[seed // 3 % 3])
    (episode,) = roll_out(agents[seed % 3], place, seed=seed, trajectories=1, invalid=0.1, horizon=60)
    height = place.grid.height
    score = score_fogged_episode(episode)
    expected = literal(episode)
    assert len(expected) == len(score.steps) == len(episode.steps)
    for step, (case, targets, gain, progress, c, e, n, error, free) in zip(score.steps, expected, strict=True):
        assert {(height - 1 - y, x) for x, y in step.targets} == targets
        assert (step.case, step.gain, step.progress, step.error) == (case, gain, progress, error)
        assert (step.loops, step.edge_reuse, step.cell_reuse) == (c, e, n)
        assert {int(action) for action in step.free_moves} == free
        assert step.position not in step.targets
    explored = [step for step in expected if step[0] == 1]
    summary = score.summary
    assert summary.exploration_steps == len(explored) and summary.exploration_errors == sum(s[7] for s in explored)
    assert summary.exploitation_steps == len(expected) - len(explored)
    assert summary.success == episode.success and summary.budget is None


def test_the_measures_obey_the_common_laws() -> None:
    episodes = [
        episode
        for seed in range(3)
        for agent in (Optimal(), EpsilonGreedy(0.4))
        for episode in roll_out(agent, world(seed), seed=seed, trajectories=2, invalid=0.05)
    ]
    for measure in FOGGED:
        check_measure(measure, episodes)


# Left and down leads to a dead end from which the goal is seen between two walls; the way there is on the right.
CORNER = Grid.parse(
    [
        "############",
        "##____A____#",
        "##_######_##",
        "##_######_##",
        "##__#####_##",
        "#G#######_##",
        "#_________##",
        "############",
    ]
)


def test_a_goal_seen_around_a_corner_is_pending_once_a_way_is_known() -> None:
    """Turning back from a dead end is exploration: seeing the goal from there makes no step back an error."""
    episodes = [roll_out(Optimal(), GridWorld(grid=CORNER, fog_radius=2), seed=seed, trajectories=1, horizon=60)[0]
                for seed in range(4)]  # fmt: skip
    lengths = {len(episode.steps) for episode in episodes}
    assert lengths == {17, 31}, "both ways should be tried first"
    for episode in episodes:
        score = score_fogged_episode(episode)
        seen = [visible(CORNER.walls, step.state.position, 2)[5, 1] for step in episode.steps]
        first = seen.index(True)
        assert score.summary.exploration_errors == score.summary.exploitation_errors == 0 and score.summary.success
        if len(episode.steps) == 31:
            assert score.steps[first].case == 1 and not any(step.progress for step in score.steps[first : first + 7])
        assert score.steps[-1].case == 2


@pytest.mark.parametrize("radius", [1, 2, 3, 5])
def test_an_explorer_that_wastes_nothing_makes_no_error(radius: int) -> None:
    """Mazes, and rooms with scattered walls, where cells are seen before any way to them is."""
    solved = 0
    for seed in range(25):
        rng = stream(seed, "scattered", radius)
        grid = generate(9, 0.7, rng=rng)
        if seed % 2:
            walls = rng.random((10, 10)) < 0.35
            free = np.argwhere(~walls)
            start, goal = (tuple(int(part) for part in cell) for cell in free[rng.choice(len(free), 2, replace=False)])
            grid = Grid(walls=walls, start=(start[0], start[1]), goal=(goal[0], goal[1]))
        (episode,) = roll_out(
            Optimal(), GridWorld(grid=grid, fog_radius=radius), seed=seed, trajectories=1, horizon=120
        )
        summary = score_fogged_episode(episode).summary
        if summary.success:  # without a way there is nothing left to explore in the end, and it walks at random
            assert summary.exploration_errors == summary.exploitation_errors == 0
            solved += 1
    assert solved >= 17


def test_what_a_run_is_measured_by_holds_both_errors_their_counts_and_those_of_valid_moves() -> None:
    episodes = [
        episode
        for seed in range(2)
        for agent in (Optimal(), Uniform())
        for episode in roll_out(agent, world(seed), seed=seed, trajectories=2, invalid=0.2)
    ]
    rows = measure_episodes(episodes)
    for episode in episodes:
        summary = score_fogged_episode(episode).summary
        mine = rows.where(rows.episode_id == episode.id)
        for kind in ("exploration", "exploitation"):
            for of, prefix in (("", ""), (" of valid moves", "valid_")):
                for what in ("error", "errors", "steps"):
                    (value,) = mine.select(measure=f"{kind} {what}{of} under fog").value.tolist()
                    wanted = getattr(summary, f"{prefix}{kind}_{what}")
                    assert math.isnan(value) if wanted is None else value == wanted
        assert summary.valid_exploration_steps <= summary.exploration_steps
    assert any(score_fogged_episode(episode).summary.unparsable for episode in episodes)
    assert "exploration error" not in rows.measure.tolist(), "never under the name that task worlds use"


def test_worlds_without_fog_or_with_a_door_are_left_out_and_refused() -> None:
    plain = GridWorld(grid=generate(7, 0.5, rng=stream(0, "plain")))
    door = GridWorld(grid=layout("key-door", seed=0, index=0), fog_radius=3)
    episodes = [roll_out(Optimal(), place, seed=0, trajectories=1)[0] for place in (plain, door, world(0))]
    assert len(FOGGED[0].rows(StepTable.from_episodes(episodes))) == 1
    with pytest.raises(ValueError, match="fog"):
        score_fogged_episode(episodes[0])
    with pytest.raises(ValueError, match="a locked door"):
        score_fogged_episode(episodes[1])


def test_more_noise_more_exploration_errors_and_none_for_a_straight_way() -> None:
    corridor = GridWorld(grid=Grid.parse("#########\n#A_____G#\n#########"), fog_radius=1)
    (straight,) = roll_out(Optimal(), corridor, seed=0, trajectories=1)
    summary = score_fogged_episode(straight).summary
    assert summary.exploration_errors == summary.exploitation_errors == 0 and summary.success
    rates = []
    for epsilon in (0.1, 0.5, 1.0):
        summaries = [
            score_fogged_episode(episode).summary
            for seed in range(6)
            for episode in roll_out(EpsilonGreedy(epsilon), world(seed), seed=1, trajectories=2, horizon=60)
        ]
        rates.append(sum(s.exploration_errors for s in summaries) / sum(s.exploration_steps for s in summaries))
    assert rates[0] < rates[1] < rates[2]


def test_a_goal_without_a_way_leaves_steps_without_a_case() -> None:
    closed = GridWorld(grid=Grid.parse("#######\n#A_###G\n###_###\n#######"), fog_radius=6)
    (episode,) = roll_out(Uniform(), closed, seed=0, trajectories=1, horizon=30)
    score = score_fogged_episode(episode)
    assert score.summary.outcome == "budget" and all(step.case in (0, 1, 2) for step in score.steps)
    assert sum(score.summary.case_steps) + sum(step.case == 0 for step in score.steps) == 30
