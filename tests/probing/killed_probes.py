"""Fits of probes that are killed, as processes of their own.

Reads tasks (directory, number, files) as JSON lines and forks one process for each, which reads a run from the inside
and kills itself with SIGKILL just before its number-th event: a SQL statement, a sync, a rename, the first byte of a
new file; with ``files``, just after the file of its number-th probe is written. Prints for each how it ended; beside
the directory of one that was not killed stands how many events it passed.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("probing", "models", "runs")]

from killed_runs import Countdown, trace_events  # noqa: E402
from replays import local  # noqa: E402

from goalscope.inside.probing import Inside, Probe, study_inside  # noqa: E402

DECLARED = Inside.parse(
    {
        "reads": ["cognitive-map", "plans"],
        "sites": ["pre"],
        "layers": [1],
        "test": 0.4,
        "probes": {"hidden": 2, "epochs": 1},
        "decoders": {"layers": [1], "width": 8, "feedforward": 8, "epochs": 1},
        "random": None,
        "by_size": False,
    }
)


def read_inside(directory: Path, model: Any) -> Any:
    """Capture, fit and store what is declared and not there yet."""
    return study_inside(directory, DECLARED, model=model)


def trace_probes(event: Callable[[], None]) -> None:
    """Call something behind the writing of each probe's file."""
    save = Probe.save

    def saved(probe: Probe, path: str | Path) -> int:
        size = save(probe, path)
        event()
        return size

    Probe.save = saved  # type: ignore[assignment, method-assign]


def main() -> None:
    model = local(seed=0)
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            countdown = Countdown(task["number"])
            (trace_probes if task["files"] else trace_events)(countdown)
            read_inside(Path(task["directory"]), model)
            Path(f"{task['directory']}.passed").write_text(str(countdown.passed))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
