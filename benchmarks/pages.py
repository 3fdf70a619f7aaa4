"""Print what the page of a large run takes: processor seconds, peak memory, size.

    python benchmarks/pages.py [--episodes 60000] [--directory DIR]

Four scripted agents act on grids of five sizes and six densities, ten times on each; the run is measured. Then
`goalscope report` writes its page in a process of its own, which is what is counted. With a directory a run that lies
there is taken.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from goalscope.cli.measuring import measure_run
from goalscope.runs import Store, Study, run

SIZES, DENSITIES, AGENTS, TRAJECTORIES = (7, 9, 11, 13, 15), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), 4, 10


def study(episodes: int) -> Study:
    """Return a study of about as many episodes."""
    cells = len(SIZES) * len(DENSITIES)
    count = max(1, round(episodes / (cells * AGENTS * TRAJECTORIES)))
    greedy = [{"kind": "epsilon-greedy", "epsilon": epsilon} for epsilon in (0.1, 0.5)]
    return Study.parse(
        {
            "name": "page",
            "seed": 1,
            "worlds": [{"kind": "grid", "sizes": list(SIZES), "densities": list(DENSITIES), "count": count}],
            "agents": [{"kind": "optimal"}, *greedy, {"kind": "random"}],
            "trajectories": TRAJECTORIES,
        }
    )


def make(episodes: int, path: Path) -> None:
    """Run and measure the study, where that was not done yet."""
    run(study(episodes), path)
    with Store(path) as store:
        sources = store.row_sources()
    if not sources:
        measure_run(path)


def written(path: Path) -> tuple[float, float, float]:
    """Return processor seconds, peak memory in GB and megabytes of the page that a process of its own writes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "goalscope", "report", str(path)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1e6, (path / "report.html").stat().st_size / 1e6


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=60_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the run lies")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.directory or Path(folder) / "run"
        make(arguments.episodes, path)
        with Store(path) as store:
            ((episodes, steps),) = store.query("SELECT COUNT(*), SUM(length) FROM episodes")
        seconds, memory, size = written(path)
    took = f"{seconds:.1f} s of processor time, {memory:.2f} GB, page {size:.1f} MB"
    print(f"{episodes:,} episodes, {steps:,} steps: {took}")


if __name__ == "__main__":
    main()
