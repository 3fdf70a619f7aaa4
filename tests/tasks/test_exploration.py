"""The metric: the paper's tables number by number, a literal scorer, and laws."""

from dataclasses import replace
from itertools import pairwise

import pytest
from literal_tasks import literal_score, stale

from goalscope._ground.rng import stream
from goalscope.measures.exploration import StaleCounter, TaskMap, score_episode
from goalscope.measures.exploration.score import MapView
from goalscope.papers.exact import TABLES, counted
from goalscope.worlds import Action
from goalscope.worlds.tasks import PRESETS, TaskState, cooking_map, generate_task_map, task_spec
from goalscope.worlds.tasks.taskmap import bits

# The errors that the explanations under the tables name, by t.
ERRORS = {4: set[int](), 5: set[int](), 6: {5, 6}, 7: {4, 8}, 8: {4, 5, 6, 7}, 9: {7}}
STEPS = {(0, 1): "up", (0, -1): "down", (-1, 0): "left", (1, 0): "right"}
NAMES = tuple(STEPS.values())


def moves(cells: list[tuple[int, int]]) -> list[str]:
    return [STEPS[b[0] - a[0], b[1] - a[1]] for a, b in pairwise(cells)]


@pytest.mark.parametrize("table", TABLES)
def test_stale_score_gives_the_papers_tables(table: int) -> None:
    rows = TABLES[table]
    number = {(x, y): 3 * y + x for x in (-1, 0, 1) for y in (-1, 0, 1)}
    counter = StaleCounter(number[rows[0][0]])
    found = [(counter.loops, counter.edge_reuse, counter.cell_reuse, counter.total)]
    for before, after in pairwise(rows):
        assert counter.move(number[before[0]], number[after[0]]) == (after[4] > before[4])
        found.append((counter.loops, counter.edge_reuse, counter.cell_reuse, counter.total))
    assert found == [row[1:] for row in rows] == counted(table)
    cells = [row[0] for row in rows]
    assert [stale(cells[: t + 1]) for t in range(len(cells))] == [row[1:4] for row in rows]


def table_map(start: tuple[int, int]) -> tuple[TaskMap, list[str]]:
    """The 3 x 3 cells of the tables with long arms, and a walk that observes all nine cells, the table's start last.

    Four arms leave the corners' rows and columns, so that targets lie in every direction and each move is a gain.
    """
    square = {(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)}
    arms = {(s * r, k) for s in (-1, 1) for r in (2, 3) for k in (-1, 1)}
    arms |= {(k, s * r) for s in (-1, 1) for r in (2, 3) for k in (-1, 1)}
    first = next(cell for cell in sorted(square) if cell != start)
    goal = (3, 3)
    walk, left = [first], square - {first, start}
    while left or walk[-1] != start:
        aims = left or {start}
        known = square - {start} if left else square
        reach = {walk[-1]: [walk[-1]]}
        queue = [walk[-1]]
        for cell in queue:
            for dx, dy in STEPS:
                near = (cell[0] + dx, cell[1] + dy)
                if near in known and near not in reach:
                    reach[near] = [*reach[cell], near]
                    queue.append(near)
        walk += reach[min(aims & reach.keys(), key=lambda cell: (len(reach[cell]), cell))][1:]
        left -= set(walk)
    arms |= {(3, 2), (2, 3), goal}
    nodes = {"G1": {"cell": goal, "options": []}}
    return TaskMap(cells=sorted(square | arms), start=first, goal="G1", nodes=nodes, alpha=10), moves(walk)


@pytest.mark.parametrize("table", TABLES)
def test_whole_episodes_give_the_papers_tables(table: int) -> None:
    rows = TABLES[table]
    task_map, prefix = table_map(rows[0][0])
    steps = score_episode(task_map, [*prefix, *moves([row[0] for row in rows])]).steps[len(prefix) :]
    last = score_episode(task_map, prefix).steps[-1]
    assert last.progress and last.after == rows[0][0] and last.stale == 0
    found = [(step.after, step.loops, step.edge_reuse, step.cell_reuse, step.stale) for step in steps]
    assert found == rows[1:]
    assert all(step.gain and len(step.targets) > 1 and step.case == 1 for step in steps)
    assert {step.index - len(prefix) + 1 for step in steps if step.error} == ERRORS[table]
    assert all(step.attribution == (("exploration",) if step.error else ()) for step in steps)


def random_actions(task_map: TaskMap, seed: int) -> list[str | None]:
    """A walk with a habit that changes: random, straight on, back and forth, with invalid turns; cut at the goal."""
    rng = stream(seed, "random episode")
    invalid, keep = float(rng.choice([0, 0.1, 0.3])), float(rng.choice([0, 0.5, 0.9]))
    actions: list[str | None] = []
    for _ in range(int(rng.integers(0, task_map.budget + 1))):
        if rng.random() < invalid:
            actions.append([None, "jump", ""][int(rng.integers(3))])
        elif actions and rng.random() < keep:
            actions.append(actions[-1])
        else:
            actions.append(NAMES[int(rng.integers(4))])
    return actions[: len(literal_score(task_map, actions))]


def check_against_literal(seed: int, goals: int = 1) -> tuple[int, set[int]]:
    """Compare one random episode step by step; returns its invalid actions and its cases."""
    names = list(PRESETS)
    spec = PRESETS[names[seed % len(names)]]
    if seed % 3 == 0:  # tiny maps reach cases 2 and 3
        spec = task_spec("high", "small", size=(2 + seed % 2, 3), alpha=20)
    task_map = generate_task_map(replace(spec, goals=goals), seed=seed)
    actions = random_actions(task_map, seed)
    graph = ("known", "map", "observed")[seed % 5 % 3]
    literal = literal_score(task_map, actions, graph)
    score = score_episode(task_map, actions, distances=graph)  # type: ignore[arg-type]
    assert len(score.steps) == len(literal) == len(actions)
    for fast, slow in zip(score.steps, literal, strict=True):
        assert fast.case == slow.case
        assert set(fast.targets) == slow.targets
        assert (fast.gain, fast.progress, fast.error) == (slow.gain, slow.progress, slow.error), (seed, fast, slow)
        assert (fast.loops, fast.edge_reuse, fast.cell_reuse) == (slow.c, slow.e, slow.n)
        assert fast.stale == slow.c + slow.e + slow.n
        assert {action.name.lower() for action in fast.free_moves} == slow.free
        assert (fast.rejected is None) == slow.valid
    summary = score.summary
    for name, cases in (("exploration", {1, 4}), ("exploitation", {2, 3, 4})):
        for prefix, chosen in (("", literal), ("valid_", [step for step in literal if step.valid])):
            steps = [step for step in chosen if step.case in cases]
            errors = sum(step.error for step in steps)
            assert getattr(summary, f"{prefix}{name}_steps") == len(steps)
            assert getattr(summary, f"{prefix}{name}_errors") == errors
            assert getattr(summary, f"{prefix}{name}_error") == (errors / len(steps) if steps else None)
    assert summary.detours == sum(step.detour for step in literal)
    assert summary.invalid_actions == sum(not step.valid for step in literal)
    assert summary.progress_steps == sum(step.progress for step in literal)
    return summary.invalid_actions, {step.case for step in literal}


def test_fast_and_literal_scorers_agree_on_random_episodes() -> None:
    found = [check_against_literal(seed) for seed in range(20, 60)]
    assert sum(invalid > 0 for invalid, _ in found) > 11
    assert set().union(*(cases for _, cases in found)) == {1, 2, 3, 4}


def test_fast_and_literal_scorers_agree_where_several_goals_are_to_be_achieved() -> None:
    found = [check_against_literal(seed, goals=2 + seed % 2) for seed in range(20, 50)]
    assert set().union(*(cases for _, cases in found)) >= {1, 2, 4}


@pytest.mark.full
def test_fast_and_literal_scorers_agree_on_a_thousand_random_episodes() -> None:
    found = [check_against_literal(seed) for seed in range(1000)]
    assert sum(invalid > 0 for invalid, _ in found) >= 500


def line(length: int = 5, **changes: object) -> TaskMap:
    """A corridor: A at 1, G (needs A) at the far end; the agent begins in the middle."""
    nodes = {"A": {"cell": (0, 0), "options": []}, "G": {"cell": (length - 1, 0), "options": [["A"]]}}
    given = {"cells": [(x, 0) for x in range(length)], "start": (2, 0), "goal": "G", "nodes": nodes, **changes}
    return TaskMap(**given)  # type: ignore[arg-type]


def test_an_episode_by_hand() -> None:
    actions = ["right", "right", "left", "up", "left", "left", None, "LEFT", "right", Action.RIGHT, "right", "right"]
    score = score_episode(line(), actions)
    assert [step.case for step in score.steps] == [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    assert [step.error for step in score.steps] == [False, False, False, True, False, False, True, *[False] * 5]
    assert [step.rejected for step in score.steps if step.rejected] == ["blocked", "unparsable"]
    assert score.steps[7].achieved == "A" and score.steps[-1].achieved == "G"
    assert score.steps[7].stale == 0 and score.steps[2].targets == ((1, 0),)
    summary = score.summary
    assert (summary.exploration_errors, summary.exploration_steps, summary.exploration_error) == (2, 8, 0.25)
    assert (summary.exploitation_errors, summary.exploitation_steps, summary.exploitation_error) == (0, 4, 0.0)
    assert (summary.valid_exploration_error, summary.blocked, summary.unparsable) == (0.0, 1, 1)
    assert summary.success and summary.outcome == "goal" and summary.coverage == 1.0 and summary.achieved_nodes == 2
    assert summary.progress_rate == 5 / 12 and summary.case_steps == (8, 4, 0, 0)


def test_a_discovered_node_becomes_pending_and_the_way_to_it_is_either_kind() -> None:
    """B (needs A) is found first: once A is achieved, B and what is unobserved are both targets (case 4)."""
    nodes = {
        "A": {"cell": (0, 0), "options": []},
        "B": {"cell": (3, 0), "options": [["A"]]},
        "G": {"cell": (5, 0), "options": [["B"]]},
    }
    task_map = line(6, nodes=nodes)
    score = score_episode(task_map, ["right", "left", "left", "left", "up", "left", "right"])
    assert [step.case for step in score.steps] == [1, 1, 1, 1, 4, 4, 4]
    assert score.steps[4].targets == ((3, 0), (4, 0))
    assert score.steps[4].attribution == ("exploration", "exploitation")
    assert score.summary.exploration_errors == score.summary.exploitation_errors == 2
    assert score.summary.outcome == "stopped" and not score.summary.success


def test_empty_denominators_are_none_never_zero() -> None:
    summary = score_episode(line(), ["right"]).summary
    assert summary.exploitation_error is None and summary.exploration_error == 0.0
    nothing = score_episode(line(), []).summary
    assert nothing.exploration_error is None and nothing.progress_rate is None and nothing.steps == 0
    only_invalid = score_episode(line(), [None]).summary
    assert only_invalid.exploration_error == 1.0 and only_invalid.valid_exploration_error is None


def test_entering_a_new_cell_while_the_goal_is_pending_is_a_detour_without_error() -> None:
    cells = [(x, 0) for x in range(5)] + [(1, 1)]
    nodes = {"A": {"cell": (0, 0), "options": []}, "G": {"cell": (4, 0), "options": [["A"]]}}
    task_map = TaskMap(cells=cells, start=(2, 0), goal="G", nodes=nodes)
    score = score_episode(task_map, ["right", "right", "left", "left", "left", "left", "right", "up"])
    assert score.steps[-1].case == 2 and score.steps[-1].new_cell and not score.steps[-1].error
    assert not score.steps[-1].gain and score.summary.detours == 1


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (["left", "left", *["right"] * 4, "left"], "action 6, which achieved the goal"),
        ([None] * 16, "action 15, which used up the budget"),
        ([3], "an action must be one of up, down, left, right"),
    ],
)
def test_actions_that_cannot_be_are_refused(actions: list[str | None], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        score_episode(line(), actions)
    with pytest.raises(ValueError, match="distances"):
        score_episode(line(), [], distances="straight")  # type: ignore[arg-type]


def test_no_gain_means_farther_from_every_target_and_the_agent_never_stands_on_one() -> None:
    """A grid is bipartite: a move changes each distance by exactly one."""
    for seed in range(20):
        task_map = generate_task_map("low-medium", seed=seed)
        rng = stream(seed, "bipartite")
        knowledge = TaskState(task_map)
        for _ in range(60):
            if knowledge.ending:
                break
            board, here = knowledge.board, knowledge.position
            known = knowledge.observed | knowledge.unobserved
            goal = knowledge.pending_goals
            view = MapView(board, knowledge.unobserved, knowledge.pending, goal, known, known)
            assert view.count > 0 and not view.targets >> here & 1
            passable = bytearray(known >> index & 1 for index in range(board.size))
            fields = [board.field(passable, t) for t in range(board.size) if view.targets >> t & 1]
            for offset in board.offsets:
                there = here + offset
                if board.open[there]:
                    changes = {field[there] - field[here] for field in fields}
                    assert changes <= {-1, 1} and view.gain(here, there) == (-1 in changes)
            knowledge.move(Action(int(rng.integers(4))))


def test_searches_and_fields_give_the_same_gains() -> None:
    task_map = cooking_map("vegetable-dumplings")
    board = task_map.board
    rng = stream(3, "views")
    for _ in range(30):
        targets = bits(bytearray(flag and int(rng.random() < 0.2) for flag in board.open)) or 1 << board.start
        passing = bits(bytearray(flag and int(rng.random() < 0.8) for flag in board.open))
        for through in (board.cells, passing):
            known = through | targets
            first, second = (MapView(board, targets, 0, 0, known, through) for _ in range(2))
            second._levels = 10**9
            for here in range(board.size):
                for offset in board.offsets:
                    if through >> here & 1 and through >> here + offset & 1:
                        first._levels = 0
                        assert first.gain(here, here + offset) == second.gain(here, here + offset)
            assert first._fields is None and second._fields is not None


def test_columns_equal_the_records() -> None:
    task_map = generate_task_map("10x10", seed=1)
    actions = random_actions(task_map, 5)
    steps = score_episode(task_map, actions).steps
    assert steps.column("case") == [step.case for step in steps]
    assert steps.column("error") == [int(step.error) for step in steps]
    assert steps.column("stale") == [step.stale for step in steps]
    assert steps.column("new_cell") == [int(step.new_cell) for step in steps]
    assert steps[-1] == steps[len(steps) - 1] and steps[2:4] == (steps[2], steps[3])


def test_steps_of_a_large_map_are_scored_anew_and_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    task_map = generate_task_map("10x10", seed=2)
    actions = random_actions(task_map, 7)
    kept = score_episode(task_map, actions)
    monkeypatch.setattr("goalscope.measures.exploration.score.MOST_KEPT_CELLS", 10)
    anew = score_episode(task_map, actions)
    assert anew.summary == kept.summary and len(anew.steps) == len(kept.steps) > 20
    assert list(anew.steps) == list(kept.steps) and anew.steps[-1] == kept.steps[-1]
    assert anew.steps[3:12:2] == kept.steps[3:12:2] and anew.steps[::-1] == kept.steps[::-1]
    assert anew.steps.column("stale") == kept.steps.column("stale")
