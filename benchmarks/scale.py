"""Print what each command takes at a number of scripted episodes: seconds, peak memory, bytes an episode.

    python benchmarks/scale.py [--episodes 30000] [--directory DIR] [--commands run measure compare report export meg]

Four scripted agents act on grids of five sizes and six densities, twenty times on each. Each command is a process of
its own, one after the other; what lies in the directory already is not run again, but measured, compared, ... anew.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from goalscope.runs import Store

SIZES, DENSITIES, TRAJECTORIES = (7, 9, 11, 13, 15), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), 20
AGENTS = (
    {"kind": "optimal"},
    {"kind": "epsilon-greedy", "epsilon": 0.1},
    {"kind": "epsilon-greedy", "epsilon": 0.5},
    {"kind": "random"},
)
COMMANDS = ("run", "measure", "compare", "report", "export", "meg")


def study(episodes: int) -> dict[str, Any]:
    """Return a study of about as many episodes, as a file holds it."""
    count = max(1, round(episodes / (len(SIZES) * len(DENSITIES) * len(AGENTS) * TRAJECTORIES)))
    return {
        "name": "scale",
        "seed": 1,
        "worlds": [{"kind": "grid", "sizes": list(SIZES), "densities": list(DENSITIES), "count": count}],
        "agents": list(AGENTS),
        "trajectories": TRAJECTORIES,
    }


def words(command: str, folder: Path) -> list[str]:
    """Return the arguments of a command."""
    run = str(folder / "run")
    more = {"run": [str(folder / "study.yaml"), "--out", run], "export": [run, "--out", str(folder / "tables")]}
    return [command, *more.get(command, [run])]


def taken(command: str, folder: Path) -> tuple[float, float, float]:
    """Return seconds by the clock and of the processor, and peak memory in MB, of a command in a process of its own."""
    # A process in between: the peak that is told is that of the greatest child so far.
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)"
    code += "; used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_maxrss)"
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    main = [sys.executable, "-m", "goalscope", *words(command, folder)]
    done = subprocess.run([sys.executable, "-c", code, *main], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, processor, int(done.stdout.split()[-1]) / 1e3


def stored(command: str, folder: Path) -> int:
    """Return the bytes on the disk that a command has left."""
    places = {"report": folder / "run" / "report.html", "export": folder / "tables"}
    place = places.get(command, folder / "run" / "run.db")
    return place.stat().st_size if place.is_file() else sum(file.stat().st_size for file in place.iterdir())


def main() -> None:
    """Print a table, a line a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=30_000)
    parser.add_argument("--directory", type=Path, default=None, help="where run and tables lie, or are put")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.directory or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(json.dumps(study(given.episodes)), encoding="utf-8")
        print("| command | seconds | processor seconds | peak memory, MB | bytes an episode |")
        print("| --- | --- | --- | --- | --- |")
        for command in given.commands:
            seconds, processor, memory = taken(command, folder)
            with Store(folder / "run") as store:
                ((episodes, steps),) = store.query("SELECT count(*), sum(length) FROM episodes")
            each = stored(command, folder) / episodes
            print(f"| {command} | {seconds:,.0f} | {processor:,.0f} | {memory:,.0f} | {each:,.0f} |", flush=True)
        print(f"{episodes:,} episodes, {steps:,} steps")


if __name__ == "__main__":
    main()
