"""The tables of docs/results.md, from the runs that they are of.

python benchmarks/results.py RUNS

RUNS is a folder that holds the run directories of the shipped studies by name, as the commands in docs/results.md write
them: baseline, key-door, two-path, fog, each measured (`goalscope measure`). Of those that are not there no table is
printed.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from goalscope.report.ledger import Run

OF_JSD: Final = "JSD from optimal, excess, per visit"
KEYS: Final = {
    "success with door": ("success", "key-door", False),
    "key picked up, door": ("key pickup", "key-door", False),
    "key picked up, no door": ("key pickup", "key-no-door", False),
    "control: its cell passed": ("key pickup", "key-no-door", True),
    "errors towards the key, no door": ("errors towards the key", "key-no-door", False),
    "control": ("errors towards the key", "key-no-door", True),
}
PATHS: Final = {
    "with key": ("key path taken", False),
    "control": ("key path taken", True),
    "Jaccard similarity of the two trajectories": ("Jaccard similarity with control", False),
}
FOG: Final = {
    "success": "success",
    "redundant backtracking, share of steps": "redundant backtracking",
    "moves into known dead ends": "moves into known dead ends",
}


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows))


def estimates(run: Path, measures: Sequence[str], *tags: str) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Return (measure, agent, further tags) -> its record."""
    found = Run(run).estimates(by=("agent", *tags), measures=measures)
    return {(one["measure"], *(one.get(tag) for tag in ("agent", *tags))): one for one in found.records}


def shown(record: Mapping[str, Any] | None) -> str:
    """Return value and interval in words; where there is no interval, the number of grids in its place."""
    if record is None:
        return "–"
    if math.isnan(record["low"]):
        return f"{record['value']:.3f} (of {record['clusters']} grids)"
    return f"{record['value']:.3f} [{record['low']:.3f}, {record['high']:.3f}]"


def baseline(run: Path) -> str:
    """Return the table of Theseus's accuracy and excess divergence, by size and by density."""
    measures, rows = ("action accuracy", OF_JSD), []
    by_size, by_density = (estimates(run, measures, tag) for tag in ("size", "density"))
    whole = estimates(run, measures)
    for found, name in ((by_size, "{0}x{0}"), (by_density, "density {0:g}")):
        for level in sorted({key[2] for key in found if key[1] == "Theseus"}):
            rows.append([name.format(level), *(shown(found[measure, "Theseus", level]) for measure in measures)])
    rows.append(["all", *(shown(whole[measure, "Theseus"]) for measure in measures)])
    return table(["Theseus", "action accuracy", "excess JSD, bits a visit"], rows)


def by_agent(run: Path, columns: Mapping[str, tuple[Any, ...]], *tags: str) -> str:
    """Return a table with a row an agent and a column an estimate: measure, and the further tags of its group."""
    found = estimates(run, list(dict.fromkeys(measure for measure, *_ in columns.values())), *tags)
    agents = dict.fromkeys(key[1] for key in found)
    rows = [
        [agent, *(shown(found.get((measure, agent, *group))) for measure, *group in columns.values())]
        for agent in agents
    ]
    return table(["agent", *columns], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of the run directories")
    folder = parser.parse_args().runs
    makers: dict[str, Callable[[Path], str]] = {
        "baseline": baseline,
        "key-door": lambda run: by_agent(run, KEYS, "kind", "control"),
        "two-path": lambda run: by_agent(run, PATHS, "control"),
        "fog": lambda run: by_agent(run, {name: (measure,) for name, measure in FOG.items()}),
    }
    for name, maker in makers.items():
        if (folder / name / "run.db").is_file():
            print(f"{name}\n\n{maker(folder / name)}\n")
