"""Print what the actions of planted agents are said to depend on, over many studies: shares, verdicts, wrong calls.

    python benchmarks/dependence.py --seeds 40             # 40 worlds a study
    python benchmarks/dependence.py --seeds 40 --count 25  # 100 worlds

Each study is new worlds; each state, in one of the turns 1 to 10, and its changed versions are asked twice, as
`goalscope depends` does. Every seed is written to --out as it ends; called again, the script goes on where it stopped.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import planted_agents

from goalscope.goals.counterfactual.dependence import Dependence, asked_of, dependences
from goalscope.goals.counterfactual.worlds import TURNS
from goalscope.runs import Store, Study, run

THINGS = ("goal", "wall", "corner", "agent")
AGENTS = (*planted_agents.FAMILIES, *planted_agents.LATE)
planted_agents.register()


def study(families: tuple[str, ...], count: int, seed: int) -> Study:
    """Return the study of planted agents in so many worlds of each of two sizes and two densities."""
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.6], "count": count, "minimum_distance": 3}
    return Study.parse(
        {
            "seed": seed,
            "worlds": [{"kind": "changed", "of": [entry], "turns": list(TURNS)}],
            "agents": [{"kind": "planted", "family": name, "name": name} for name in families],
            "trajectories": 2,
            "horizon": {"steps": 1},
        }
    )


def planted(families: tuple[str, ...], directory: Path, *, count: int, seed: int) -> dict[tuple[str, str], Dependence]:
    """Return what planted agents depend on, by family and thing."""
    run(study(families, count, seed), directory)
    with Store(directory) as store:
        found = dependences(asked_of(store.episodes()))
    return {(one.agent, one.moved): one for one in found}


def main() -> None:
    """Print a line for each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("dependence.jsonl"))
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {line["seed"] for line in lines if line["count"] == options.count}
    for seed in sorted(set(range(options.seeds)) - done):
        with tempfile.TemporaryDirectory() as directory:
            found = planted(AGENTS, Path(directory) / "run", count=options.count, seed=seed)
        shares = {f"{agent} {thing}": (one.share.value, one.answer) for (agent, thing), one in found.items()}
        lines.append({"seed": seed, "count": options.count, "found": shares})
        with options.out.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    studies = [line["found"] for line in lines if line["count"] == options.count]
    worlds = 4 * options.count
    print(f"{len(studies)} studies of {worlds} worlds; mean share; of 100 studies how many say: depends/does not")
    for family in AGENTS:
        print(f"| {family} | " + " | ".join(cell(studies, f"{family} {thing}") for thing in THINGS) + " |")


def cell(studies: list[Mapping[str, tuple[float, str]]], key: str) -> str:
    """Return the mean share of a family and thing, and the percentages of two verdicts."""
    shares, verdicts = zip(*(one[key] for one in studies if key in one), strict=True)
    counts, each = Counter(verdicts), 100 / len(verdicts)
    mean = "–" if counts["untestable"] > len(verdicts) / 2 else f"{np.nanmean(shares):.2f}"
    return f"{mean}; {each * counts['yes']:.0f}/{each * counts['no']:.0f}"


if __name__ == "__main__":
    main()
