"""Print the speed of worlds and planning beside their peers, measured in one run.

    python benchmarks/worlds.py            # without maze-dataset
    python benchmarks/worlds.py --peers    # makes build/peers/.venv for it on first use

Each figure is the best of several repetitions, in processor seconds of one core.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from goalscope.planning import distances_batch, optimal_batch, solve
from goalscope.rng import stream
from goalscope.worlds import Fog, Grid, generate, generate_batch, step_batch, transitions_batch

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "build" / "peers" / ".venv"
PEER_PACKAGES = ("maze-dataset==1.4.2", "muutils<0.9")
MINIGRID_STEPS = 12_000.0  # quoted, not measured here
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


def maze_dataset() -> float | None:
    """Return maze-dataset's bare mazes a second, None where its environment is missing."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        return None
    worker = HERE / "peers" / "maze_dataset_rate.py"
    done = subprocess.run([str(python), str(worker)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def install_peers() -> None:
    """Make the environment of the peers where it is missing."""
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


def line(what: str, ours: float, peer: str, theirs: float | None, target: str, holds: bool | None) -> str:
    """Return one row of the table."""
    other = "not run" if theirs is None else f"{theirs:,.0f}"
    ratio = "" if theirs is None else f"{ours / theirs:,.1f}x"
    verdict = "" if holds is None else "holds" if holds else "MISSED"
    return f"{what:<44} {ours:>14,.0f} {peer:<28} {other:>10} {ratio:>10} {target:<14} {verdict}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Speed of worlds and planning beside their peers.")
    parser.add_argument("--peers", action="store_true", help="make build/peers/.venv with maze-dataset if missing")
    if parser.parse_args().peers:
        install_peers()
    print(f"{'per second, one core':<44} {'goalscope':>14} {'peer':<28} {'peer':>10} {'ratio':>10} {'target':<14}")
    ours, theirs = generation(), maze_dataset()
    holds = None if theirs is None else ours >= 30 * theirs
    print(line("15x15 worlds, batched", ours, "maze-dataset, bare mazes", theirs, ">= 30x", holds))
    print(line("15x15 worlds, one by one", generation_single(), "maze-dataset, bare mazes", theirs, "", None))
    networkx = planning_networkx()
    ours = planning_batched()
    print(line("optimal sets of all states, batched", ours, "networkx BFS", networkx, ">= 10x", ours >= 10 * networkx))
    print(line("optimal sets of all states, one by one", planning_single(), "networkx BFS", networkx, "", None))
    ours = steps()
    print(line("world steps, batched", ours, "MiniGrid (quoted)", MINIGRID_STEPS, ">= 1,000,000", ours >= 1e6))
    ours = looks()
    print(line("looks under fog, one by one", ours, "", None, ">= 20,000", ours >= 20_000))


if __name__ == "__main__":
    main()
