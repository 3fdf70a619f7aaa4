"""The exact success of a random walker on task maps, beside simulated walkers and a chance found by hand."""

import math

import pytest

from goalscope._ground.rng import stream
from goalscope.worlds.planning.process import random_walk_success
from goalscope.worlds.tasks import TaskMap, TaskState, generate_task_map


def line(alpha: float) -> TaskMap:
    nodes = {"A": {"cell": (0, 0), "options": []}, "G": {"cell": (2, 0), "options": [["A"]]}}
    return TaskMap(cells=[(0, 0), (1, 0), (2, 0)], start=(1, 0), goal="G", nodes=nodes, alpha=alpha)


@pytest.mark.parametrize(("alpha", "chance"), [(1, 1 / 4), (2, 1 / 2 * 3 / 4 + 1 / 4 * 1 / 2)])
def test_the_chance_on_three_cells_is_that_by_hand(alpha: float, chance: float) -> None:
    """A is met at step 1, 3, ... with 1/2, 1/4, ...; from it G after 2, 4, ... steps likewise; 3 or 6 steps in all."""
    assert random_walk_success(line(alpha)) == pytest.approx(chance)


@pytest.mark.parametrize("preset", ["high-small", "medium-medium", "high-large"])
def test_the_exact_chance_is_that_of_simulated_walkers(preset: str) -> None:
    task_map, rng, count, done = generate_task_map(preset, seed=11), stream(3, preset), 800, 0
    for _ in range(count):
        state = TaskState(task_map)
        while state.ending is None:
            ways = task_map.available(state.board.cell(state.position))
            state.move(ways[int(rng.integers(len(ways)))])
        done += state.ending == "goal"
    exact = random_walk_success(task_map)
    assert abs(done / count - exact) < 4 * math.sqrt(max(exact * (1 - exact), 1e-3) / count)


def test_alternatives_and_sets_of_prerequisites_count() -> None:
    cells = [(x, 0) for x in range(4)]
    nodes = {"A": {"cell": (0, 0), "options": []}, "B": {"cell": (2, 0), "options": []}}
    chances = [
        random_walk_success(
            TaskMap(
                cells=cells,
                start=(1, 0),
                goal="G",
                nodes={**nodes, "G": {"cell": (3, 0), "options": options}},
                alpha=3,
            )
        )
        for options in ([["A", "B"]], [["A"], ["B"]])
    ]
    assert 0 < chances[0] < chances[1] < 1
    assert chances[1] == pytest.approx(1 - _missed(12)), "B lies on every way to G: one of both is always met"


def _missed(steps: int) -> float:
    """Return the chance of a walk on cells 0 to 3 that begins at 1 not to come to 3 in so many steps."""
    mass = {1: 1.0}
    for _ in range(steps):
        after: dict[int, float] = {}
        for here, chance in mass.items():
            ways = [there for there in (here - 1, here + 1) if 0 <= there <= 3]
            for there in ways:
                after[there] = after.get(there, 0.0) + chance / len(ways)
        after.pop(3, None)
        mass = after
    return math.fsum(mass.values())
