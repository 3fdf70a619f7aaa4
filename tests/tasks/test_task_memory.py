"""What an agent is told: texts letter by letter that read back exactly, a memory that equals what is known, no leak."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from literal_tasks import achieved, neighbours, observed, pending, unobserved

from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents import Observation
from goalscope.worlds import Action
from goalscope.worlds.tasks import (
    COOKING,
    PRESETS,
    RULES,
    AgentKnowledge,
    NodeReport,
    Report,
    TaskMap,
    TaskState,
    TaskView,
    TaskWorld,
    cooking_map,
    generate_task_map,
    memory_text,
    report_text,
    write_log,
)
from task_logs import memory_from_log, parse_report, read_log

SEVERAL = [generate_task_map(replace(PRESETS[preset], goals=2), seed=5) for preset in ("medium-medium", "8x8")]
MAPS = [generate_task_map(preset, seed=5) for preset in PRESETS] + SEVERAL + [cooking_map(name) for name in COOKING]

ALLOWED = (str, int, float, type(None), tuple, list, dict, AgentKnowledge, Report, NodeReport, Observation, TaskView)


def wander(task_map: TaskMap, seed: int) -> Iterator[tuple[TaskState, AgentKnowledge, list[tuple[int, int]]]]:
    """Walk at random with invalid turns; yields world, memory and the cells so far at every step."""
    rng = stream(seed, "wander")
    knowledge, memory = TaskState(task_map), AgentKnowledge()
    memory.add(knowledge.report())
    walk = [task_map.start]
    yield knowledge, memory, walk
    while knowledge.ending is None:
        action = None if rng.random() < 0.1 else Action(int(rng.integers(4)))
        knowledge.move(action)
        memory.add(knowledge.report(), action)
        walk.append(knowledge.board.cell(knowledge.position))
        yield knowledge, memory, walk


@pytest.mark.parametrize("number", long_after(2, range(len(MAPS))))
def test_memory_from_the_text_log_alone_equals_the_worlds_knowledge(number: int) -> None:
    task_map = MAPS[number]
    cells = frozenset(task_map.cells)
    for knowledge, memory, walk in wander(task_map, number):
        log = write_log(memory.turns)
        rebuilt = memory_from_log(log)
        assert set(rebuilt.visited) == observed(walk) == set(knowledge.board.listed(knowledge.observed))
        assert set(rebuilt.frontier) == unobserved(cells, walk) == set(knowledge.board.listed(knowledge.unobserved))
        assert set(rebuilt.impassable) == {near for cell in walk for near in neighbours(cell)} - cells
        assert set(rebuilt.pending) == pending(task_map, walk)
        pending_cells = {task_map.nodes[name].cell for name in pending(task_map, walk)}
        assert set(knowledge.board.listed(knowledge.pending)) == pending_cells
        assert set(rebuilt.achieved) == achieved(task_map, walk) == set(knowledge.achieved_names)
        stood_on = {name for name, node in task_map.nodes.items() if node.cell in walk}
        assert set(rebuilt.nodes) == stood_on
        for name, (cell, node) in rebuilt.nodes.items():
            assert (cell, node.options) == (task_map.nodes[name].cell, task_map.nodes[name].options)
            assert node.children == task_map.children[name]
        assert set(rebuilt.goals) == stood_on.intersection(task_map.goals)
        assert rebuilt.position == walk[-1] and rebuilt.available == task_map.available(walk[-1])
        assert vars(rebuilt) == vars(memory) and memory_text(rebuilt) == memory_text(memory)
        assert list(read_log(log)) == memory.turns


def test_without_the_rules_the_axes_are_learned_from_moves() -> None:
    task_map = generate_task_map("10x10", seed=3)
    complete = 0
    for knowledge, memory, walk in wander(task_map, 1):
        log = write_log(memory.turns).removeprefix(RULES + "\n")
        rebuilt = memory_from_log(log)
        assert set(rebuilt.frontier) <= set(memory.frontier) and set(rebuilt.visited) == set(walk)
        if len(walk) == 1:
            assert not rebuilt.axes and not rebuilt.frontier
        if len(rebuilt.axes) == 4:
            complete += 1
            assert rebuilt.axes == memory.axes and set(rebuilt.frontier) == set(memory.frontier)
            assert set(rebuilt.impassable) == set(memory.impassable)
        del knowledge
    assert complete > 50


@pytest.mark.parametrize("number", range(len(MAPS)))
def test_no_text_leaks_an_unknown_cell_an_undiscovered_place_or_the_budget(number: int) -> None:
    """Whatever the unseen part of the map is like, the texts are the same; and they name known cells only."""
    task_map = MAPS[number]
    for knowledge, memory, walk in wander(task_map, 50 + number):
        texts = f"{write_log(memory.turns)}\n{memory_text(memory)}"
        said = {(int(x), int(y)) for x, y in re.findall(r"\[(-?\d+), (-?\d+)\]", texts)}
        known = set(walk) | {near for cell in walk for near in neighbours(cell)}
        assert said <= known
        told = set(re.findall(r'"([^"]+)"', texts))
        found = {name for name, node in task_map.nodes.items() if node.cell in walk}
        related = {parent for name in found for option in task_map.nodes[name].options for parent in option}
        assert told <= found | related | {child for name in found for child in task_map.children[name]}
        for name in told - found:
            x, y = task_map.nodes[name].cell
            line = next((line for line in texts.splitlines() if f'State "{name}" at' in line), "")
            assert not line and f'[{x}, {y}]. This is the state "{name}"' not in texts
        for word in ("budget", "limit", "steps left"):
            assert word not in texts
        bare = re.sub(r'\[.*?\]|".*?"', "", texts)
        assert not re.search(r"\d\d", bare) and str(task_map.budget) not in bare
        del knowledge


def test_two_worlds_that_look_alike_so_far_are_told_alike() -> None:
    """Moving undiscovered nodes, closing unknown cells and changing the budget alters no text before they are met."""
    base = generate_task_map("10x10", seed=8)
    first = next(iter(base.available(base.start)))
    knowledge = TaskState(base)
    knowledge.move(first)
    observed_cells = set(knowledge.board.listed(knowledge.observed))
    hidden = [name for name, node in base.nodes.items() if node.cell not in observed_cells]
    cells = [base.nodes[name].cell for name in hidden]
    moved = dict(zip(hidden, [*cells[1:], cells[0]], strict=True))
    nodes = {name: {"cell": moved.get(name, node.cell), "options": node.options} for name, node in base.nodes.items()}
    corner = (max(x for x, _ in base.cells) + 1, max(base.cells)[1])
    other = TaskMap(cells=[*base.cells, corner], start=base.start, goal=base.goal, nodes=nodes, alpha=7)
    assert len(hidden) > 4 and other.budget != base.budget
    logs = []
    for task_map in (base, other):
        knowledge, memory = TaskState(task_map), AgentKnowledge()
        memory.add(knowledge.report())
        knowledge.move(first)
        memory.add(knowledge.report(), first)
        logs.append(write_log(memory.turns) + memory_text(memory))
    assert logs[0] == logs[1]


def test_what_an_agent_is_shown_holds_no_map() -> None:
    """Nothing that can be reached from an observation refers to the world: only reports, memory and plain values."""
    world = TaskWorld(task_map=generate_task_map("10x10", seed=2))
    waiting: list[object] = [Observation(view=world.begin().view)]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        assert isinstance(item, ALLOWED), type(item)
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item
        elif hasattr(item, "__dict__") and isinstance(item, AgentKnowledge):
            waiting += vars(item).values()
        elif isinstance(item, Report | NodeReport | Observation | TaskView):
            waiting += [getattr(item, name) for name in type(item).__slots__]


def test_reports_read_back_and_other_texts_are_refused() -> None:
    options = (("x and y", "z"), ("w. It leads to u",), ("or",))
    node = NodeReport(name="a. You can go up.", options=options, children=("it is the goal", "b"), achieved=False)
    report = Report(position=(-3, 12), available=(Action.UP, Action.LEFT), node=node, rejected="blocked")
    assert parse_report(report_text(report)) == report
    primitive = NodeReport(name="nothing", options=(), children=(), achieved=True, fresh=True)
    assert parse_report(report_text(Report(position=(0, 0), available=(), node=primitive))).node == primitive
    for broken in (
        "",
        "You are at [0, 0].",
        report_text(report) + " Go on.",
        report_text(report).replace("up", "north"),
    ):
        with pytest.raises(ValueError, match="must"):
            parse_report(broken)
    with pytest.raises(ValueError, match="line 2"):
        list(read_log("rules\nnonsense\n"))
    with pytest.raises(ValueError, match="one report"):
        memory_text(AgentKnowledge())


def test_a_short_memory_knows_its_last_reports_only() -> None:
    task_map = generate_task_map("10x10", seed=4)
    for _, memory, walk in wander(task_map, 9):
        short = memory.recent(5)
        assert set(short.visited) == set(walk[-5:])
        assert set(short.frontier) == unobserved(frozenset(task_map.cells), walk[-5:])


# The words of task worlds, letter by letter: reading back alone would not notice two sentences that changed places.


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
