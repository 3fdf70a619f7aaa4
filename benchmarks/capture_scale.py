"""Capture the first states of up to 36,000 grids, as in the paper, and fit probes on them: memory and time.

    python benchmarks/capture_scale.py [--grids 4500 9000 18000 36000] [--work DIR]

Worlds of five sizes (7 to 15) and six densities (0 to 1), a new one for each state; nothing is asked of the model. Each
number of grids goes through three processes of its own, whose greatest resident memory is measured: the states are
written, `inside.activations.capture` with scope "first" reads three layers at the site `pre`, and the per-cell
probe is fitted to one of them, with a quarter of the grids for testing. Memory that does not grow from row to row is
that of a streamed capture; what a fit holds beside its program are the vectors of one place.

With `--work DIR` states and vectors are kept.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIZES = (7, 9, 11, 13, 15)
DENSITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LAYER = 4
STAGES = ("states", "capture", "fit")


def states(directory: Path, grids: int) -> dict[str, float]:
    """Write a run that holds the prompt of each world's first state."""
    from controls import record  # the benchmark beside this one

    from goalscope._ground.rng import stream
    from goalscope.agents.models.local import LocalModel
    from goalscope.runs import GridWorld
    from goalscope.worlds import generate

    def drawn() -> Iterator[GridWorld]:
        for number in range(grids):
            size, density = SIZES[number % 5], DENSITIES[number // 5 % 6]
            rng = stream(0, "capture scale", number)
            yield GridWorld(grid=generate(size=size, density=density, rng=rng), tags={"density": density})

    record(directory, LocalModel("theseus"), drawn())
    return {"bytes": sum(one.stat().st_size for one in directory.glob("run.db*"))}


def captured(directory: Path, grids: int) -> dict[str, float]:
    """Capture three layers of the first states."""
    from goalscope.agents.models.local import LocalModel
    from goalscope.inside.activations import capture

    done = capture(directory, LocalModel("theseus"), sites=["pre"], scope="first")
    files = (directory / done.path).glob("*.safetensors")
    return {"steps": done.captured or 0, "bytes": sum(one.stat().st_size for one in files)}


def fitted(directory: Path, grids: int) -> dict[str, float]:
    """Fit the per-cell probe to one place."""
    from goalscope.inside.activations import load_activations
    from goalscope.inside.probing import FitSettings, ProbeInputs, label_cells, probe_cells, split_by_grid
    from goalscope.runs import Store

    with Store(directory) as store:
        given = load_activations(store, site="pre", layer=LAYER)
        cells = label_cells(given, store.episodes())
    data = ProbeInputs(activations=[given], cells=cells, split=split_by_grid(cells))
    rows = probe_cells(data, suite=[("percell", "none")], settings=FitSettings(epochs=5)).rows
    walls = rows.select(measure="area under the curve", reading="natural", **{"class": "wall"})
    return {"bytes": given.vectors.nbytes, "walls": float(np.nanmean(walls.value)), "tested": len(walls)}


def measured(stage: str, directory: Path, grids: int) -> dict[str, float]:
    """Return what one stage took, in a process of its own."""
    told = subprocess.run(
        [sys.executable, __file__, "--stage", stage, "--work", str(directory), "--grids", str(grids)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=int, nargs="+", default=[4500, 9000, 18000, 36000])
    parser.add_argument("--work", type=Path, help="where states and vectors are kept (a temporary folder)")
    parser.add_argument("--stage", choices=STAGES, help="this stage alone, for the first number of grids")
    given = parser.parse_args()
    if given.stage:
        began = time.perf_counter()
        found = {"states": states, "capture": captured, "fit": fitted}[given.stage](given.work, given.grids[0])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**found, "seconds": time.perf_counter() - began, "peak": peak}))
        return
    with tempfile.TemporaryDirectory() as folder:
        table(given.grids, given.work or Path(folder))


def table(counts: list[int], folder: Path) -> None:
    """Print one line for each number of grids."""
    print(
        "| grids | states: MB, s | capture: MB, s | fit: MB, s | vectors of a place, MB | walls, area under the curve |"
    )
    print("| --- " * 6 + "|")
    for grids in counts:
        directory = folder / str(grids)
        found = {}
        for stage in STAGES:
            if stage != "states" or not directory.exists():
                found[stage] = measured(stage, directory, grids)
                print(f"{grids} grids, {stage}: {found[stage]}", file=sys.stderr, flush=True)
        spent = {name: f"{one['peak']:.0f}, {one['seconds']:.0f}" for name, one in found.items()}
        fit = found["fit"]
        print(
            f"| {grids:,} | {spent.get('states', '')} | {spent['capture']} | {spent['fit']} | "
            f"{fit['bytes'] / 2**20:.0f} | {fit['walls']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
