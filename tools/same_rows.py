"""Compare the rows of two versions, study by study and bit by bit: a redesign must not change a number.

Run ``python tools/same_rows.py OLD``; OLD is a commit, whose files are checked out beside. Every shipped study is run,
measured and read back at small size with that commit and with this working tree. Names that a redesign changed stand in
``tools/renamed.json``: measures and columns, old name to new name, and the tags added to rows that had none of
that name. The exit status is 1 where a row or a step differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]


def smaller(number: int, *settings: str) -> tuple[str, ...]:
    """Return the options that change settings of a study's intervention."""
    return tuple(word for each in settings for word in ("--set", f"analysis.interventions.{number}.{each}"))


LEVELS = (
    *("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-DoorKey-6x6-v0", "MiniGrid-LavaCrossingS9N1-v0"),
    *("MiniGrid-FourRooms-v0", "MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-Unlock-v0"),
)
SMALL: dict[str, tuple[str, ...]] = {
    "scripted": ("--count", "2", "--trajectories", "2", "--sizes", "7,9"),
    "demo": ("--count", "1", "--trajectories", "1", "--sizes", "7", "--agents", "optimal,Theseus,random"),
    "baseline": ("--count", "1", "--trajectories", "2", "--sizes", "7,9"),
    "iso-difficulty": ("--count", "1", "--trajectories", "2", "--sizes", "7,9"),
    "key-door": ("--count", "2", "--trajectories", "2"),
    "two-path": ("--count", "2", "--trajectories", "2"),
    "fog": ("--count", "1", "--trajectories", "1", "--sizes", "7,9"),
    "explore-exploit": ("--count", "1", "--set", "worlds.0.presets=[low-small,high-small]"),
    "harness": ("--count", "1", "--set", "worlds.0.presets=[low-small,high-small]"),
    "semantic": ("--trajectories", "1"),
    "demand": ("--count", "1", "--trajectories", "1", "--set", "worlds.0.presets=[low-medium,medium-small]"),
    "cognitive-map": ("--count", "2", "--sizes", "7,9", "--densities", "0,0.6,1"),
    "beliefs": ("--count", "2", "--sizes", "7,9", "--densities", "0,0.6,1"),
    "plans": ("--count", "2", "--sizes", "7,9", "--densities", "0,0.6,1"),
    "distance": ("--count", "2", "--sizes", "7,9", "--densities", "0,0.6,1"),
    "toy-text": ("--trajectories", "2"),
    # Without BabyAI's level: since a later version its states hold what its verifier remembers.
    "minigrid": (
        "--trajectories",
        "1",
        "--set",
        "worlds.0.seeds=[1]",
        "--set",
        f"worlds.0.levels=[{','.join(LEVELS)}]",
    ),
    "textworld": ("--trajectories", "1", "--set", "worlds.0.seeds=[3]", "--set", "worlds.1.seeds=[1]"),
    "patching": ("--count", "3", "--sizes", "7", *smaller(0, "pairs.per_size=2", "pairs.controls=2", "layers=[0,3]")),
    "steering": (
        *("--count", "5", "--sizes", "7"),
        *smaller(0, "pairs.per_size=2", "pairs.controls=2", "layers=[2]", "doses=[1.0]", "states=4"),
        *smaller(1, "pairs.per_size=2", "layers=[2]", "states=60"),
    ),
    "reasoning-edits": ("--count", "3", "--sizes", "7", *smaller(0, "pairs.per_size=2")),
}
"""Options that make each study small."""

MAIN = "from goalscope.cli import main; main()"
READ = """
import json, sys
from goalscope.runs import Store
with Store(sys.argv[1]) as store:
    columns = {name: column.tolist() for name, column in store.rows().columns().items()}
    print(json.dumps({"columns": columns}))
    for episode in store.episodes():
        steps = [[step.action, step.failure, step.text, step.reasoning] for step in episode.steps]
        print(json.dumps({"agent": episode.agent, "outcome": episode.outcome, "steps": steps}, default=int))
"""
"""Prints the rows of a run as columns, then what each episode did."""


def main() -> None:
    """Run the studies in both checkouts and say where they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the commit whose numbers count")
    parser.add_argument("--studies", nargs="+", choices=SMALL, default=list(SMALL), help="some studies (default: all)")
    kept = "folder for the runs and the commit's files; what is there is not made again"
    parser.add_argument("--keep", type=Path, help=kept)
    given = parser.parse_args()
    renamed = json.loads(Path(__file__).with_name("renamed.json").read_text(encoding="utf-8"))
    folder = given.keep or Path(tempfile.mkdtemp())
    before = folder / "checkout"
    if not before.exists():
        subprocess.run(["git", "worktree", "add", "--detach", before, given.old], check=True, cwd=HERE)
    differing = 0
    for study in given.studies:
        if study == "textworld" and find_spec("textworld") is None:
            print(f"{study}: left out, the extra textworld is not installed", flush=True)
            continue
        old = read(folder / "old" / study, study, before)
        new = read(folder / "new" / study, study, HERE)
        said = differences(old, new, renamed)
        differing += bool(said)
        print(f"{study}: {len(old[0])} rows and {len(old[1])} episodes, " + (said or "equal"), flush=True)
    sys.exit(differing > 0)


def read(out: Path, study: str, checkout: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows and the episodes of a study, run in a checkout unless it was before."""
    found = out.with_suffix(".jsonl")
    if not found.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        goalscope(checkout, "-c", MAIN, "run", study, "--out", str(out), *SMALL[study])
        goalscope(checkout, "-c", MAIN, "measure", str(out))
        found.write_text(goalscope(checkout, "-c", READ, str(out)), encoding="utf-8")
    head, *episodes = found.read_text(encoding="utf-8").splitlines()
    columns = json.loads(head)["columns"]
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return rows, episodes


def goalscope(checkout: Path, *words: str) -> str:
    """Return what Python prints with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])} must succeed in {checkout}, got {done.stderr[-2000:]}")
    return done.stdout


def differences(
    old: tuple[list[dict[str, Any]], list[str]],
    new: tuple[list[dict[str, Any]], list[str]],
    renamed: dict[str, Any],
) -> str:
    """Say how two runs differ, "" where they are equal; the order of rows and of episodes does not count."""
    said = []
    if Counter(old[1]) != Counter(new[1]):
        said.append(f"{sum((Counter(old[1]) - Counter(new[1])).values())} episodes differ")
    added = {name for name in renamed["added"] if all(name not in row for row in old[0])}
    mine = Counter(key(row, renamed) for row in old[0])
    theirs = Counter(key({name: row[name] for name in row if name not in added}, {}) for row in new[0])
    for words, gone in (("only old", mine - theirs), ("only new", theirs - mine)):
        if gone:
            measures = Counter(json.loads(row)["measure"] for row in gone.elements())
            first = next(iter(gone))
            said.append(f"{sum(gone.values())} rows {words} ({dict(measures.most_common(5))}), e.g. {first}")
    return "; ".join(said)


def key(row: dict[str, Any], renamed: dict[str, Any]) -> str:
    """Return a row as text: floats to the last bit, names as they are today, ids of episodes left out."""
    measures, columns = renamed.get("measures", {}), renamed.get("columns", {})
    cells = {columns.get(name, name): value for name, value in row.items() if value is not None or name == "value"}
    cells.pop("episode_id", None)
    cells["measure"] = measures.get(cells["measure"], cells["measure"])
    return json.dumps(
        {name: repr(value) if name == "value" else value for name, value in cells.items()}, sort_keys=True
    )


if __name__ == "__main__":
    main()
