"""Print what each command takes at a number of scripted episodes: seconds, peak memory, bytes an episode.

    python benchmarks/scale.py [--episodes 100000] [--directory DIR] [--commands run measure ...] [--again report ...]

Four scripted agents act on grids of five sizes and ten densities, a hundred times on each. Each command is a process of
its own, one after the other. Figures are kept in DIR as soon as a command has ended: the same call once more goes on
with the commands that have none, or that are named by `--again`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from goalscope.runs import Store

SIZES, DENSITIES, TRAJECTORIES = (7, 9, 11, 13, 15), tuple(tenth / 10 for tenth in range(10)), 100
AGENTS = (
    {"kind": "optimal"},
    {"kind": "epsilon-greedy", "epsilon": 0.1},
    {"kind": "epsilon-greedy", "epsilon": 0.5},
    {"kind": "random"},
)
COMMANDS = ("run", "measure", "compare", "report", "export", "meg")
COLUMNS = ("seconds", "processor seconds", "peak memory, MB", "bytes an episode")


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


def taken(command: str, folder: Path) -> dict[str, float]:
    """Return seconds by the clock and of the processor, and peak memory in MB, of a command in a process of its own."""
    began = time.monotonic()
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        main = [sys.executable, "-m", "goalscope", *words(command, folder)]
        process = subprocess.Popen(main, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"goalscope {command} ended with {process.returncode}: see {folder / 'log.txt'}")
    return {
        "seconds": time.monotonic() - began,
        "processor seconds": used.ru_utime + used.ru_stime,
        "peak memory, MB": used.ru_maxrss / 1e3,
    }


def stored(command: str, folder: Path) -> int:
    """Return the bytes on the disk where a command writes, 0 for one that writes nothing."""
    places = {"report": [folder / "run" / "report.html"], "export": folder.glob("tables/*"), "compare": []}
    return sum(file.stat().st_size for file in places.get(command, [folder / "run" / "run.db"]) if file.exists())


def measured(command: str, folder: Path) -> dict[str, float]:
    """Return the figures of a command, with the bytes that it added where it writes into the run, else those of all."""
    adds = command in ("run", "measure", "meg")
    before = stored(command, folder) if adds else 0
    figures = taken(command, folder)
    with Store(folder / "run") as store:
        ((episodes, steps),) = store.query("SELECT count(*), sum(length) FROM episodes")
    return {**figures, "bytes an episode": (stored(command, folder) - before) / episodes} | {
        "episodes": episodes,
        "steps": steps,
    }


def table(figures: dict[str, dict[str, float]]) -> str:
    """Return the figures as a table in Markdown, a line a command."""
    first = next(iter(figures.values()))
    lines = [
        f"| {first['episodes']:,} episodes, {first['steps']:,} steps | {' | '.join(COLUMNS)} |",
        f"| {' | '.join(['---'] * (len(COLUMNS) + 1))} |",
    ]
    for command in COMMANDS:
        if command in figures:
            cells = (f"{figures[command][name]:,.0f}" for name in COLUMNS)
            part = " (its last part, after an interruption)" if figures[command].get("resumed") else ""
            lines.append(f"| {command}{part} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print a table, a line a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, default=None, help="where run, tables and figures lie, or are put")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--again", nargs="+", choices=COMMANDS, default=[], help="measured though there are figures")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.directory or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        asked, kept = json.dumps(study(given.episodes)), folder / "figures.json"
        document = folder / "study.yaml"
        if document.exists() and document.read_text(encoding="utf-8") != asked:
            raise SystemExit(f"{folder} must hold this study, got another one: name another --directory")
        document.write_text(asked, encoding="utf-8")
        figures: dict[str, dict[str, float]] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        for command in given.commands:
            earlier = figures.get(command, {})
            if "seconds" in earlier and command not in given.again:
                continue
            # Begun and never ended: what is measured now is the rest alone.
            resumed = command == "run" and (folder / "run").exists()
            figures[command] = measured(command, folder) | {"resumed": resumed}
            if "seconds" in earlier and command in ("run", "measure", "meg"):  # what it adds was there already
                figures[command]["bytes an episode"] = earlier["bytes an episode"]
            kept.write_text(json.dumps(figures, indent=1), encoding="utf-8")
            print(f"{command}: {figures[command]['seconds']:,.0f} s", file=sys.stderr, flush=True)
        print(table(figures))


if __name__ == "__main__":
    main()
