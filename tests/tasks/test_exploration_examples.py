"""The named examples have the properties that the paper states of Fig. 3 and 4b, and are scored as it defines."""

import pytest
from literal_tasks import literal_score

from goalscope.measures.exploration import MapStep
from goalscope.measures.exploration.examples import EXAMPLES, WalkCounts, counts
from goalscope.worlds import ACTIONS
from goalscope.worlds.tasks import TaskState

WALKS = [(name, walk) for name, example in EXAMPLES.items() for walk in example.walks]


def after(name: str, walk: str) -> list[MapStep]:
    example = EXAMPLES[name]
    return list(example.score(walk).steps)[len(example.before) :]


def gains(step: MapStep) -> list[bool]:
    return [step.view.gain(step.here, step.here + step.view.board.offsets[action]) for action in ACTIONS]


@pytest.mark.parametrize(("name", "walk"), WALKS)
def test_each_step_is_scored_as_the_paper_defines(name: str, walk: str) -> None:
    example = EXAMPLES[name]
    steps = list(example.score(walk).steps)
    literal = literal_score(example.task_map, [action.name.lower() for action in example.actions(walk)])
    for ours, theirs in zip(steps, literal, strict=True):
        assert (ours.case, ours.gain, ours.progress) == (theirs.case, theirs.gain, theirs.progress)
        assert ours.error == theirs.error and (ours.loops, ours.edge_reuse, ours.cell_reuse) == (
            theirs.c,
            theirs.e,
            theirs.n,
        )
    assert not any(step.error for step in steps[: len(example.before)])


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.figure.startswith("3")])
def test_a_is_achieved_b_is_pending_and_c_is_not_found_where_the_cases_begin(name: str) -> None:
    example = EXAMPLES[name]
    truth = TaskState(example.task_map)
    for action in example.actions(next(iter(example.walks)))[: len(example.before)]:
        truth.move(int(action))
    nodes = example.task_map.nodes
    assert truth.achieved_names == ("A",) and truth.board.listed(truth.pending) == (nodes["B"].cell,)
    seen = truth.board.listed(truth.observed)
    assert nodes["C"].cell not in seen and nodes["G"].cell not in seen


def test_a_shortcut_and_a_detour_over_unseen_cells_are_free_of_error_as_is_the_way_back() -> None:
    assert counts(EXAMPLES["shortcut"], "over unseen cells") == WalkCounts(
        steps=3, errors=0, without_gain=0, new_cells=2, stale=0, cases=(4,)
    )
    assert counts(EXAMPLES["shortcut"], "the way it came").steps == 7
    detour, back = (counts(EXAMPLES["detour"], walk) for walk in ("detour", "the way it came"))
    assert detour.steps == back.steps + 2 and detour.new_cells == 5 and back.new_cells == 0
    assert detour.errors == back.errors == 0
    for name in ("shortcut", "detour"):
        assert all(after(name, walk)[-1].achieved == "B" for walk in EXAMPLES[name].walks)


def test_wandering_between_symmetric_targets_always_has_gain_and_is_told_by_the_stale_score_alone() -> None:
    wandering = counts(EXAMPLES["symmetric targets"], "wandering")
    assert all(all(gains(step)) for step in after("symmetric targets", "wandering"))
    assert wandering.without_gain == 0 and wandering.new_cells == 0 and wandering.errors == 6
    assert counts(EXAMPLES["symmetric targets"], "to a target").errors == 0


def test_equally_long_ways_to_the_goal_differ_in_new_cells_alone() -> None:
    seen, unseen = (counts(EXAMPLES["equal ways"], walk) for walk in ("the seen way", "the unseen way"))
    assert seen.steps == unseen.steps == 8 and seen.errors == unseen.errors == 0 and seen.cases == unseen.cases == (2,)
    assert (seen.new_cells, unseen.new_cells) == (0, 6)
    for walk in EXAMPLES["equal ways"].walks:
        score = EXAMPLES["equal ways"].score(walk)
        assert score.summary.success and score.summary.exploration_error == score.summary.exploitation_error == 0
    assert EXAMPLES["equal ways"].score("the unseen way").summary.detours == 6
