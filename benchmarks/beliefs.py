"""How fast decoded beliefs are planned on: many searches side by side against one grid at a time.

python benchmarks/beliefs.py
"""

import time

import numpy as np

from goalscope._ground.rng import stream
from goalscope.inside.probing.beliefs import optimal_sets, read_beliefs
from goalscope.worlds import Grid
from goalscope.worlds.planning import distances_batch, optimal_batch, solve

STATES, SINGLE, SIDE = 1000, 300, 15


def main() -> None:
    """Time the searches of one run and print a table, in microseconds of processor time a search."""
    rng = stream(0, "benchmark of beliefs")
    closed = rng.random((STATES, SIDE, SIDE)) < 0.3
    goal = rng.integers(0, SIDE * SIDE, STATES)
    cells = np.stack(np.divmod(goal, SIDE), axis=1)
    closed[np.arange(STATES), cells[:, 0], cells[:, 1]] = False
    agent = rng.integers(0, SIDE * SIDE, (STATES, 1))
    took = {}
    began = time.process_time()
    for walls, cell in zip(closed[:SINGLE], cells[:SINGLE], strict=True):
        solve(Grid(walls=walls, goal=(int(cell[0]), int(cell[1]))))
    took["one grid at a time"] = (time.process_time() - began) / SINGLE
    began = time.process_time()
    optimal_batch(distances_batch(closed, cells))
    took["distances of many grids"] = (time.process_time() - began) / STATES
    many = np.broadcast_to(np.arange(100), (STATES, 100))
    began = time.process_time()
    optimal_sets(closed, agent, many)
    took["optimal sets, 100 goals a grid"] = (time.process_time() - began) / (STATES * 100)
    first = next(iter(took.values()))
    print(f"{'searches at 15 x 15':32} {'us each':>9} {'times as fast':>14}")
    for name, seconds in took.items():
        print(f"{name:32} {1e6 * seconds:9.1f} {first / seconds:14.1f}")
    raw = rng.standard_exponential((STATES, SIDE, SIDE, 5)) ** 3
    posterior = raw / raw.sum(axis=-1, keepdims=True)
    began = time.process_time()
    read_beliefs(posterior)
    seconds = time.process_time() - began
    print(f"read_beliefs, everything: {seconds:.2f} s for {STATES} states, {1e3 * seconds / STATES:.2f} ms each")


if __name__ == "__main__":
    main()
