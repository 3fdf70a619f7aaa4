"""Print success, probes and patching of Theseus in three encodings of the same grids.

Run ``python benchmarks/grid_encodings.py`` (about half an hour on two cores). Theseus was trained on the matrix and on
one text around it. The lists are longer than it has positions for with that text, so all three encodings are asked in a
shorter one; the matrix in the usual text stands beside them. What is printed is what the commands print.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

TEXT = """Symbols:
# a wall, it cannot be entered
_ an open cell
G the goal
A the agent, where it stands now

Your task is to bring the agent from A to G in as few steps as possible. A move into a wall leaves the agent \
where it is and costs a step.

The grid as it is now:

{{grid}}

Your final answer is one JSON object of this form, with a single move, and nothing before or after it:
{"action": "<UP|DOWN|LEFT|RIGHT>"}
Write no code fence around it: it starts with { and ends with }.
"""
INSIDE = ("--reads", "cognitive-map", "--sites", "pre", "--layers", "3,5,7", "--random-kinds", "permuted")
PATCH = ("--set", 'components=["residual"]', "--set", "windows=[]", "--set", "forced=false")


def main() -> None:
    """Run, probe and patch each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="grids of each density")
    parser.add_argument("--pairs", type=int, default=30, help="counterfactual pairs asked for")
    parser.add_argument("--out", type=Path, help="where the runs are kept; a second call goes on there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        short = folder / "short.txt"
        short.write_text(TEXT, encoding="utf-8")
        usual = {"kind": "chat", "model": "theseus", "max_tokens": 96}
        asked = {
            "usual text": usual,
            "matrix": {**usual, "task": str(short)},
            "coordinates": {**usual, "task": str(short), "encoding": "coordinates"},
            "adjacency": {**usual, "task": str(short), "encoding": "adjacency"},
        }
        for name, agent in asked.items():
            one(folder, name, agent, given.count, given.pairs)


def one(folder: Path, name: str, agent: dict[str, object], count: int, pairs: int) -> None:
    """Print the results of one way of asking."""
    print(f"\n== {name}", flush=True)
    file, run = folder / f"{name}.yaml", folder / name.replace(" ", "-")
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.2, 0.6], "count": count}]
    study = {"name": name, "seed": 35, "worlds": worlds, "trajectories": 1, "agents": [{**agent, "name": name}]}
    file.write_text(yaml.safe_dump(study), encoding="utf-8")
    goalscope("run", str(file), "--out", str(run))
    goalscope("measure", str(run))
    goalscope("probe", str(run), *INSIDE, "--random-seeds", "2", "--set", "table=middle", "--set", "steps=3")
    sites = ("--sites", "grid,changed,pre", "--layers=-1,3,5,7", "--pairs", str(pairs))
    goalscope("patch", str(run), *sites, *PATCH)


def goalscope(*arguments: str) -> None:
    """Run a command; a refusal is printed and is a result."""
    command = [sys.executable, "-m", "goalscope", *arguments]
    subprocess.run(command, check=False, env={**os.environ, "COLUMNS": "150"}, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    main()
