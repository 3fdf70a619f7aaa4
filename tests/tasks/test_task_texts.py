"""The words of task worlds, letter by letter: reading back alone would not notice two sentences that changed places."""

import pytest

from goalscope.worlds import Action
from goalscope.worlds.tasks import (
    RULES,
    AgentKnowledge,
    NodeReport,
    Report,
    TaskMap,
    TaskState,
    memory_text,
    report_text,
    write_log,
)
from task_logs import memory_from_log

NODES = {"A": {"cell": (0, 0), "options": []}, "G": {"cell": (4, 0), "options": [["A"]]}}
CORRIDOR = TaskMap(cells=[(x, 0) for x in range(5)], start=(2, 0), goal="G", nodes=NODES)
GOAL = 'This is the state "G". It needs "A". It leads to nothing further: it is the goal. It is not active yet.'


def walked(task_map: TaskMap, *actions: Action | None) -> AgentKnowledge:
    knowledge, memory = TaskState(task_map), AgentKnowledge()
    memory.add(knowledge.report())
    for action in actions:
        knowledge.move(action)
        memory.add(knowledge.report(), action)
    return memory


def test_every_line_of_a_log_by_hand() -> None:
    right, left = Action.RIGHT, Action.LEFT
    memory = walked(CORRIDOR, right, right, Action.UP, None, left, left, left, left, right, left)
    assert write_log(memory.turns).splitlines() == [
        RULES,
        "OBSERVATION: You are at [2, 0]. There is nothing here. You can go left, right.",
        "ACTION: right",
        "OBSERVATION: You are at [3, 0]. There is nothing here. You can go left, right.",
        "ACTION: right",
        f"OBSERVATION: You are at [4, 0]. {GOAL} You can go left.",
        "ACTION: up",
        f"OBSERVATION: No way leads there, so you stayed. You are at [4, 0]. {GOAL} You can go left.",
        "ACTION: none",
        f"OBSERVATION: You named no direction, so you stayed. You are at [4, 0]. {GOAL} You can go left.",
        "ACTION: left",
        "OBSERVATION: You are at [3, 0]. There is nothing here. You can go left, right.",
        "ACTION: left",
        "OBSERVATION: You are at [2, 0]. There is nothing here. You can go left, right.",
        "ACTION: left",
        "OBSERVATION: You are at [1, 0]. There is nothing here. You can go left, right.",
        "ACTION: left",
        'OBSERVATION: You are at [0, 0]. This is the state "A". It needs nothing. It leads to "G". '
        "You have just activated it. You can go right.",
        "ACTION: right",
        "OBSERVATION: You are at [1, 0]. There is nothing here. You can go left, right.",
        "ACTION: left",
        'OBSERVATION: You are at [0, 0]. This is the state "A". It needs nothing. It leads to "G". '
        "It is active. You can go right.",
    ]


def test_the_summary_of_a_memory_by_hand() -> None:
    assert memory_text(walked(CORRIDOR)).splitlines() == [
        "Moves seen so far: none yet.",
        "Goal: not found yet.",
        "Visited: [2, 0].",
        "Open and not visited: [1, 0] [3, 0].",
        "Impassable: [2, 1] [2, -1].",
        "Active: none.",
        "Can be activated now: none.",
    ]
    found = walked(CORRIDOR, Action.RIGHT, Action.RIGHT, Action.UP)
    assert memory_text(found).splitlines() == [
        "Moves seen so far: right = x + 1.",
        'Goal: "G".',
        "Visited: [2, 0] [3, 0] [4, 0].",
        "Open and not visited: [1, 0].",
        "Impassable: [2, 1] [2, -1] [3, 1] [3, -1] [4, 1] [4, -1] [5, 0].",
        'State "G" at [4, 0]: not active yet. It needs "A". It leads to nothing further: it is the goal.',
        "Active: none.",
        "Can be activated now: none.",
    ]
    ready = walked(CORRIDOR, Action.RIGHT, Action.RIGHT, *[Action.LEFT] * 4)
    assert memory_text(ready).splitlines() == [
        "Moves seen so far: right = x + 1, left = x - 1.",
        'Goal: "G".',
        "Visited: [2, 0] [3, 0] [4, 0] [1, 0] [0, 0].",
        "Open and not visited: none.",
        "Impassable: [2, 1] [2, -1] [3, 1] [3, -1] [4, 1] [4, -1] [5, 0] [1, 1] [1, -1] [0, 1] [0, -1] [-1, 0].",
        'State "G" at [4, 0]: not active yet. It needs "A". It leads to nothing further: it is the goal.',
        'State "A" at [0, 0]: active. It needs nothing. It leads to "G".',
        'Active: "A".',
        'Can be activated now: "G".',
    ]


def test_moves_up_and_down_and_prerequisites_in_words() -> None:
    shaft = TaskMap(
        cells=[(0, y) for y in range(3)], start=(0, 1), goal="G", nodes={"G": {"cell": (0, 0), "options": []}}
    )
    memory = walked(shaft, Action.UP, Action.DOWN)
    assert memory_text(memory).startswith("Moves seen so far: up = y + 1, down = y - 1.\n")
    node = NodeReport(name="n", options=(("a", "b"), ("c",)), children=("d", "e"), achieved=True)
    every = (Action.UP, Action.DOWN, Action.LEFT, Action.RIGHT)
    assert report_text(Report(position=(-1, 2), available=every, node=node)) == (
        'You are at [-1, 2]. This is the state "n". It needs "a" and "b" or "c". It leads to "d", "e". '
        "It is active. You can go up, down, left, right."
    )
    assert report_text(Report(position=(0, 0), available=())) == (
        "You are at [0, 0]. There is nothing here. You can go nowhere."
    )


@pytest.mark.parametrize("told", [True, False])
def test_what_a_move_does_is_taken_from_the_rules_or_learned(told: bool) -> None:
    log = write_log(walked(CORRIDOR, Action.RIGHT).turns)
    memory = memory_from_log(log if told else log.removeprefix(RULES + "\n"))
    # Without the rules one move tells of itself and of its opposite.
    assert set(memory.axes) == (set(Action) if told else {Action.RIGHT, Action.LEFT})
    assert list(memory.frontier) == [(1, 0), (4, 0)]
    assert len(memory.impassable) == (4 if told else 0)
