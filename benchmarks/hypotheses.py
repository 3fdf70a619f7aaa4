"""Print what telling hypotheses apart costs, and how much agents after one hypothesis tell against another.

    python benchmarks/hypotheses.py

Processor seconds of one core: 12 hypotheses on 200 grids of 9x9 with their policies and tables, nothing cached; the
choice of 8 of 300 grids. The nats are exact: of the goal against rivals at several lapse rates, with the rival's lapse
rate the same and its own best; in worlds with the goal anywhere, always at the top right, and moved in 5 % of those.
"""

import argparse
import time

import numpy as np

from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.design import design
from goalscope.goals.hypotheses.separability import separability
from goalscope.runs import Study
from goalscope.runs.study import Horizon
from goalscope.worlds import Grid
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning.process import grid_process

BANK = "grids;beside goal;flee goal;near centre;top row;keep right;near (mirror of goal);near (point mirror of goal)"
HORIZON = Horizon(factor=1.5)
TARGET = 3.0


def grids(count: int, sizes: tuple[int, ...] = (9,)) -> list[GridWorld]:
    """Return generated grids of three densities."""
    entry = {"kind": "grid", "sizes": [*sizes], "densities": [0.2, 0.4, 0.6], "minimum_distance": 3}
    entry["count"] = -(-count // (3 * len(sizes)))
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 5})
    return [world for world in study.worlds() if isinstance(world, GridWorld)][:count]


def trained(worlds: list[GridWorld]) -> list[GridWorld]:
    """Return the worlds with their goal at the top right open cell, those with another start there left out."""
    moved = [(world, world.grid.corner("top-right")) for world in worlds]
    return [
        GridWorld(grid=Grid(walls=w.grid.walls, start=w.grid.start, goal=cell))
        for w, cell in moved
        if cell != w.grid.start
    ]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    bank, worlds = load_hypotheses(BANK), grids(200)
    seconds = []
    for _ in range(3):
        grid_process.cache_clear()
        began = time.process_time()
        separability(bank, worlds, horizon=HORIZON.of)
        seconds.append(time.process_time() - began)
    print(
        f"{len(bank)} hypotheses, {len(worlds)} grids of 9x9: {np.median(seconds):.2f} s of {TARGET:g} s (three rounds)"
    )
    candidates = grids(300, (7, 9))
    began = time.process_time()
    found = design(bank, candidates, 8, horizon=HORIZON.of)
    took = time.process_time() - began
    print(
        f"8 of {len(candidates)} grids: least pair ({' or '.join(found.pair)}) {found.least:.1f} nats, random choices "
        f"{np.median(found.random):.1f}; {took:.2f} s"
    )
    anywhere = grids(80, (7, 9))
    corner = trained(anywhere)
    mixed = [*corner[: len(corner) * 19 // 20], *anywhere[-(len(corner) // 20) :]]
    print("\n| worlds | rival | lapse | nats, same lapse | nats, rival's best | worlds apart |")
    print("| --- | --- | --- | --- | --- | --- |")
    for label, used in (("anywhere", anywhere), ("always top right", corner), ("5 % moved", mixed)):
        for rival in ("corner top-right", "beside goal", "near (point mirror of goal)"):
            for lapse in (0.005, 0.1, 0.4, 0.8) if label == "anywhere" else (0.1,):
                told = separability(load_hypotheses(f"goal;{rival}"), used, horizon=HORIZON.of, lapse=lapse)
                nats = f"{told.mean[0, 1]:.2f} | {told.own_best[0, 1]:.2f}"
                print(f"| {label} | {rival} | {lapse:g} | {nats} | {told.apart[0, 1]} of {told.shared[0, 1]} |")


if __name__ == "__main__":
    main()
