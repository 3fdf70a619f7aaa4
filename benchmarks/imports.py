"""Print how long importing takes, in a fresh process each time.

Run ``python benchmarks/imports.py``. The target: ``import goalscope`` takes at most 0.2 s more than numpy alone.
"""

import argparse
import statistics
import subprocess
import sys
import time

STATEMENTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "goalscope": "import numpy, goalscope",
    "goalscope.worlds, .planning, .stats": "import goalscope.worlds, goalscope.worlds.planning, goalscope.stats",
    "goalscope.agents, .runs, .measures": "import goalscope.agents, goalscope.runs, goalscope.measures",
}
TARGET = 0.2


def seconds(statement: str) -> float:
    """Return the wall time of a fresh interpreter that runs one statement."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="processes for each statement (default 15)")
    repeats = parser.parse_args().repeats
    taken: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(repeats):  # interleaved, so that a busy moment meets all of them
        for name, statement in STATEMENTS.items():
            taken[name].append(seconds(statement))
    median = {name: statistics.median(values) for name, values in taken.items()}
    print("| import | median, s | more than numpy, s |\n| --- | --- | --- |")
    for name, value in median.items():
        print(f"| {name} | {value:.3f} | {value - median['numpy']:+.3f} |")
    more = median["goalscope"] - median["numpy"]
    print(f"\nimport goalscope: {more:+.3f} s beside numpy alone, target at most {TARGET} s")


if __name__ == "__main__":
    main()
