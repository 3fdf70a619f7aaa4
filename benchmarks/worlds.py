"""Print the speed of worlds and planning beside their peers, measured in one run.

    python benchmarks/worlds.py            # without maze-dataset and MiniGrid
    python benchmarks/worlds.py --peers    # makes build/peers/.venv for them on first use

Each figure is the best of several repetitions, in processor seconds of one core. The whole is done `--rounds` times,
ours and its peer in turns; a ratio is the median over rounds, with the least and the greatest.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from goalscope._ground.rng import stream
from goalscope.worlds import (
    Action,
    Fog,
    Grid,
    GridBatch,
    generate,
    generate_batch,
    initial_state,
    step,
    step_batch,
    transitions_batch,
)
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning import distances_batch, optimal_batch, solve

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "build" / "peers" / ".venv"
PEER_PACKAGES = ("maze-dataset==1.4.2", "muutils<0.9", "minigrid==3.2.0", "gymnasium==1.4.0")
SIZE, DENSITY, SEED = 15, 0.6, 0


def rate(work: Callable[[], object], items: int, repetitions: int = 7) -> float:
    """Return items a second, the best of several repetitions after one warm-up."""
    work()
    best = 0.0
    for _ in range(repetitions):
        begin = time.process_time()
        work()
        best = max(best, items / (time.process_time() - begin))
    return best


def generation() -> float:
    """Return worlds a second with start and goal, in batches."""
    count = 8192
    return rate(lambda: generate_batch(SIZE, DENSITY, seed=SEED, count=count), count)


def generation_single() -> float:
    """Return worlds a second, one `generate` after another."""
    rng = stream(SEED, "benchmark")
    return rate(lambda: [generate(SIZE, DENSITY, rng=rng) for _ in range(100)], 100, 3)


def peer(worker: str, *words: str) -> float | None:
    """Return the rate that a program of the peers' environment prints, None where that environment is missing."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        return None
    command = [str(python), str(HERE / "peers" / worker), *words]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout)


def maze_dataset() -> float | None:
    """Return maze-dataset's bare mazes a second."""
    return peer("maze_dataset_rate.py")


def minigrid() -> float | None:
    """Return MiniGrid's steps a second, each with its observation."""
    return peer("minigrid_rate.py", "observed")


def minigrid_dynamics() -> float | None:
    """Return MiniGrid's steps a second without observations: what a step does to the world alone."""
    return peer("minigrid_rate.py", "dynamics")


def minigrid_text() -> float | None:
    """Return MiniGrid's steps a second, each with the text of the grid in place of an observation."""
    return peer("minigrid_rate.py", "text")


def install_peers() -> None:
    """Make the environment of the peers, or add what it lacks."""
    if not (PEERS / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
    subprocess.run([str(PEERS / "bin" / "python"), "-m", "pip", "install", "-q", *PEER_PACKAGES], check=True)


def planning_batched() -> float:
    """Return worlds a second whose optimal sets are computed for all states at once."""
    batch = generate_batch(SIZE, DENSITY, seed=SEED, count=4096)
    return rate(lambda: optimal_batch(distances_batch(batch.walls, batch.goal)), len(batch))


def planning_single() -> float:
    """Return worlds a second through `solve`, one after another and without its cache."""
    grids = list(generate_batch(SIZE, DENSITY, seed=SEED, count=200))
    return rate(lambda: [solve.__wrapped__(grid) for grid in grids], len(grids), 3)


def planning_networkx() -> float:
    """Return worlds a second whose optimal sets come from networkx: one search from the goal, then the neighbours."""
    import networkx

    grids = list(generate_batch(SIZE, DENSITY, seed=SEED, count=100))
    graphs = []
    for grid in grids:
        graph = networkx.grid_2d_graph(SIZE, SIZE)
        graph.remove_nodes_from([(int(row), int(col)) for row, col in np.argwhere(grid.walls)])
        graphs.append(graph)

    def sets() -> list[dict[tuple[int, int], list[tuple[int, int]]]]:
        found = []
        for grid, graph in zip(grids, graphs, strict=True):
            length = networkx.single_source_shortest_path_length(graph, grid.goal)
            found.append({cell: [near for near in graph[cell] if length[near] < length[cell]] for cell in length})
        return found

    return rate(sets, len(grids), 3)


def csgraph_search(batch: GridBatch, together: bool) -> Callable[[], list[np.ndarray]]:
    """Return work that finds the optimal sets ``[N, H, W, 4]`` by SciPy's compiled searches, in parts of the batch.

    Args:
        batch: the worlds; their graphs are made here, so that making them is not timed.
        together: all worlds as the parts of one graph and one search from all goals; else a search for each world.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    groups = [np.arange(len(batch))] if together else [np.array([index]) for index in range(len(batch))]
    graphs, goals = [], []
    for members in groups:
        open_, count = ~batch.walls[members], SIZE * SIZE * len(members)
        cell = np.arange(count).reshape(open_.shape)
        across, down = open_[:, :, :-1] & open_[:, :, 1:], open_[:, :-1] & open_[:, 1:]
        one = np.concatenate([cell[:, :, :-1][across], cell[:, :-1][down]])
        other = np.concatenate([cell[:, :, 1:][across], cell[:, 1:][down]])
        ends = (np.concatenate([one, other]), np.concatenate([other, one]))
        graphs.append(csr_array((np.ones(2 * len(one)), ends), shape=(count, count)))
        goals.append(cell[np.arange(len(members)), batch.goal[members, 0], batch.goal[members, 1]])

    def sets() -> list[np.ndarray]:
        found = []
        for members, graph, goal in zip(groups, graphs, goals, strict=True):
            length = dijkstra(graph, indices=goal, unweighted=True, min_only=True)
            field = np.pad(length.reshape(len(members), SIZE, SIZE), ((0, 0), (1, 1), (1, 1)), constant_values=np.inf)
            near = (field[:, :-2, 1:-1], field[:, 2:, 1:-1], field[:, 1:-1, :-2], field[:, 1:-1, 2:])
            here = np.where(np.isinf(field), 0, field)[:, 1:-1, 1:-1, None]  # nothing is optimal within a wall
            found.append(np.stack(near, axis=-1) < here)  # up, down, left, right
        return found

    return sets


def csgraph_single() -> float:
    """Return worlds a second by one search of SciPy's for each world."""
    batch = generate_batch(SIZE, DENSITY, seed=SEED, count=200)
    return rate(csgraph_search(batch, together=False), len(batch), 3)


def csgraph_batched() -> float:
    """Return worlds a second by one search of SciPy's for all worlds."""
    batch = generate_batch(SIZE, DENSITY, seed=SEED, count=2048)
    return rate(csgraph_search(batch, together=True), len(batch), 3)


def steps_single() -> float:
    """Return world steps a second of one agent in one world, `step` after `step`, back to the start at the goal."""
    grid = generate(SIZE, DENSITY, rng=stream(SEED, "benchmark steps one by one"))
    start = initial_state(grid)
    actions = [Action(int(action)) for action in stream(SEED, "benchmark actions").integers(0, 4, size=2000)]

    def play() -> None:
        state = start
        for action in actions:
            state = step(grid, state, action)
            state = start if state.position == grid.goal else state

    return rate(play, len(actions), 3)


def steps_text() -> float:
    """Return steps a second of one agent in one world, each with the grid as the agent's prompt shows it."""
    world = GridWorld(grid=generate(SIZE, DENSITY, rng=stream(SEED, "benchmark steps one by one")))
    actions = [Action(int(action)) for action in stream(SEED, "benchmark actions").integers(0, 4, size=2000)]

    def play() -> None:
        session = world.begin()
        for action in actions:
            session.step(action)
            _ = session.view.text
            session = world.begin() if session.done else session

    return rate(play, len(actions), 3)


def steps() -> float:
    """Return world steps a second: many agents in many worlds, random actions, back to the start at the goal."""
    agents, rounds = 16384, 64
    batch = generate_batch(SIZE, DENSITY, seed=SEED, count=256)
    tables = transitions_batch(batch.walls)
    world = np.arange(agents) % len(batch)
    start = (batch.start[:, 0] * SIZE + batch.start[:, 1])[world]
    goal = (batch.goal[:, 0] * SIZE + batch.goal[:, 1])[world]
    actions = stream(SEED, "benchmark steps").integers(0, 4, size=(rounds, agents))

    def play() -> None:
        state = start
        for action in actions:
            state = step_batch(tables, world, state, action)
            state = np.where(state == goal, start, state)

    return rate(play, agents * rounds)


def looks() -> float:
    """Return looks a second under fog, one after another."""
    grid: Grid = generate(SIZE, DENSITY, rng=stream(SEED, "benchmark fog"))
    fog = Fog.start(grid)
    cells = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls)] * 10
    return rate(lambda: [fog.look(cell) for cell in cells], len(cells))


Row = tuple[str, Callable[[], float], str, Callable[[], float | None] | None, float | None]
ROWS: tuple[Row, ...] = (  # what, ours, peer, theirs, target: a ratio, or without a peer a rate
    ("15x15 worlds, batched", generation, "maze-dataset, bare mazes", maze_dataset, 30),
    ("15x15 worlds, one by one", generation_single, "maze-dataset, bare mazes", maze_dataset, None),
    ("optimal sets, batched", planning_batched, "csgraph, all in one graph", csgraph_batched, None),
    ("optimal sets, one by one", planning_single, "csgraph, a search a world", csgraph_single, None),
    ("optimal sets, batched", planning_batched, "networkx BFS", planning_networkx, 10),
    ("optimal sets, one by one", planning_single, "networkx BFS", planning_networkx, None),
    ("steps, one by one", steps_single, "MiniGrid, no observations", minigrid_dynamics, None),
    ("steps, one by one", steps_single, "MiniGrid, observations", minigrid, None),
    ("steps with text, one by one", steps_text, "MiniGrid, pprint_grid", minigrid_text, 3),
    ("steps, batched", steps, "MiniGrid, no observations", minigrid_dynamics, None),
    ("steps, batched", steps, "", None, 1e6),
    ("looks under fog, one by one", looks, "", None, 20_000),
)


def line(row: Row, rounds: int) -> str:
    """Measure ours and its peer in turns; return one row of the table."""
    what, work, name, theirs, target = row
    pairs = [(work(), theirs() if theirs else None) for _ in range(rounds)]
    ours = statistics.median(mine for mine, _ in pairs)
    other = [their for _, their in pairs if their is not None]
    ratios = sorted(mine / their for mine, their in pairs if their is not None)
    shown = f"{statistics.median(ratios):,.2f} [{ratios[0]:,.2f}, {ratios[-1]:,.2f}]" if ratios else ""
    peers = f"{statistics.median(other):,.0f}" if other else "not run" if theirs else ""
    reached = (statistics.median(ratios) if ratios else None) if theirs else ours
    word = "" if target is None or reached is None else "holds" if reached >= target else "MISSED"
    verdict = f"{target:,.0f}: {word}" if word else ""
    return f"{what:<28} {ours:>13,.0f} {name:<27} {peers:>10} {shown:>34} {verdict}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of worlds and planning beside their peers.")
    parser.add_argument("--peers", action="store_true", help="make build/peers/.venv for the peers if missing")
    parser.add_argument("--rounds", type=int, default=5, help="times that each pair is measured")
    given = parser.parse_args()
    if given.peers:
        install_peers()
    print(f"per second, one core; medians of {given.rounds} rounds, ratio with its least and greatest")
    print(f"{'':<28} {'goalscope':>13} {'peer':<27} {'peer':>10} {'ratio':>34} target")
    for row in ROWS:
        print(line(row, given.rounds), flush=True)


if __name__ == "__main__":
    main()
