"""Print the cost of scoring task worlds: a large map with many steps, and small episodes.

    python benchmarks/exploration.py

Processor seconds of one core. Each figure is the best of three runs, with every cache that a run fills thrown away.
"""

import time
from collections.abc import Callable

from goalscope._ground.rng import stream
from goalscope.agents import Agent, ExploreFirst, NoisyGreedy, Observation, RandomWalk
from goalscope.measures.exploration import TaskMap, score_episode
from goalscope.worlds import Action, generate
from goalscope.worlds.planning import distances
from goalscope.worlds.tasks import generate_task_map
from goalscope.worlds.tasks.generate import random_names
from goalscope.worlds.tasks.taskmap import Frame
from goalscope.worlds.tasks.world import TaskSession

SIDE, STEPS, NODES = 100, 22_000, 12


def large_map(kind: str) -> TaskMap:
    """Return a 100 x 100 map with nodes in a chain: an open field, or a maze with loops."""
    rng = stream(0, "benchmark", kind)
    frame = Frame(left=0, top=SIDE - 1, width=SIDE, height=SIDE)
    cells = [(x, y) for x in range(SIDE) for y in range(SIDE)]
    if kind == "maze":
        grid = generate(SIDE - 1, 0.8, rng=rng)
        near = distances(grid) >= 0  # single open cells that loops leave behind are apart from the rest
        cells = [cell for cell in cells if max(frame.row_col(cell)) < SIDE - 1 and near[frame.row_col(cell)]]
    picked = rng.permutation(len(cells))[: NODES + 1]
    start, *places = [cells[index] for index in picked]
    names = random_names(NODES, rng)
    nodes = {
        name: {"cell": place, "options": [[names[index - 1]]] if index else []}
        for index, (name, place) in enumerate(zip(names, places, strict=True))
    }
    return TaskMap(cells=cells, start=start, goal=names[-1], nodes=nodes, alpha=10)


def walk(task_map: TaskMap, agent: Agent, steps: int) -> list[Action | None]:
    """Return the first actions of an agent; with its own turns where it ends earlier."""
    return play(task_map, agent)[:steps]


def play(task_map: TaskMap, agent: Agent) -> list[Action | None]:
    """Return the actions of an episode that ends at the goal, or at the budget of the map."""
    session, actions = TaskSession(task_map), list[Action | None]()
    while not session.done and len(actions) < task_map.budget:
        (turn,) = agent.act([Observation(view=session.view, step=len(actions), episode_id=agent.name)])
        session.step(turn.action)
        actions.append(None if turn.action is None else Action(turn.action))
    return actions


def seconds(work: Callable[[], object]) -> float:
    """Return processor seconds, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def there_and_back(task_map: TaskMap, steps: int) -> list[Action]:
    """Return a walk that is hard to score: explore most of the map, then random steps far from what is left."""
    rng = stream(0, "there and back")
    explored = [action for action in play(task_map, ExploreFirst()) if action is not None]
    first = explored[: min(len(explored) * 3 // 4, steps // 2)]
    further = [Action(int(index)) for index in rng.integers(0, 4, size=steps - len(first))]
    return [*first, *further]


def main() -> None:
    """Measure and print."""
    print(f"{'':<58} {'steps':>8} {'seconds':>9} {'target':>8}")
    for kind in ("open field", "maze"):
        task_map = large_map(kind)
        task_map.board  # noqa: B018  (made once for a map, whatever the number of its episodes)
        cases: dict[str, list[Action | None]] = {
            "random walk": [Action(int(a)) for a in stream(0, "walk").integers(0, 4, size=STEPS)],
            "noisy greedy (0.3)": walk(task_map, NoisyGreedy(0.3), STEPS),
            "explores, then wanders": [*there_and_back(task_map, STEPS)],
        }
        for name, actions in cases.items():
            spent = seconds(lambda task_map=task_map, actions=actions: score_episode(task_map, actions))  # type: ignore[misc]
            verdict = "holds" if spent < 5 else "MISSED"
            print(f"{f'{SIDE}x{SIDE} {kind}, {name}':<58} {len(actions):>8} {spent:>9.2f} {'< 5':>8} {verdict}")
    maps = [generate_task_map("10x10", seed=seed) for seed in range(50)]
    for agent in (ExploreFirst(), NoisyGreedy(0.3), RandomWalk()):
        episodes = [(task_map, play(task_map, agent)) for task_map in maps]
        spent = seconds(lambda episodes=episodes: [score_episode(*episode) for episode in episodes]) / len(episodes)  # type: ignore[misc]
        steps = sum(len(actions) for _, actions in episodes) / len(episodes)
        verdict = "holds" if spent < 0.005 else "MISSED"
        print(f"{f'10x10, one episode, {agent.name}':<58} {steps:>8.0f} {spent:>9.4f} {'< 0.005':>8} {verdict}")


if __name__ == "__main__":
    main()
