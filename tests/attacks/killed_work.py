"""Work that is killed, as processes of their own: captures, fits of probes, organisms that are made.

Called with the name of a work. Reads tasks (directory, log, number) as JSON lines and forks one process for each, which
kills itself with SIGKILL just before its number-th event: a SQL statement, a sync, a rename, the first byte of a new
file, or the beginning or the end of a unit of the work: a file of activations, a stack of probes that train together,
the training of an organism. Each unit that is begun has a line in the log. Prints for each how it ended; beside the
directory of one that was not killed stands how many events it passed.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("attacks", "probing", "models", "runs")]

from attacked import shorten  # noqa: E402
from killed_captures import ARGUMENTS  # noqa: E402
from killed_probes import read_inside  # noqa: E402
from killed_runs import Countdown, trace_events  # noqa: E402
from replays import local  # noqa: E402

from goalscope.inside.activations import capture  # noqa: E402
from goalscope.organisms import make, planned  # noqa: E402

WORKS = ("capture", "probe", "organisms")


UNITS: Mapping[str, tuple[str, str, Callable[[Sequence[Any]], object]]] = {
    "capture": ("goalscope.inside.activations.capture", "_shard", lambda given: given[1].number),
    "probe": ("goalscope.inside.probing.fitting", "_train", lambda given: sorted(one.key.text for one in given[0])),
    "organisms": ("goalscope.organisms.cards", "trained", lambda given: given[0].name),
}
"""Of each work the module and the function that does a unit, and the name of a unit by the arguments."""


def do(work: str, directory: Path, model: Any) -> None:
    """Do a work, or go on with it."""
    if work == "capture":
        capture(directory, model, **ARGUMENTS)
    elif work == "probe":
        read_inside(directory, model)
    else:
        make(directory, planned(seed=3, each=1))


def model_of(work: str) -> Any:
    """Return the model that a work needs, None for organisms."""
    if work == "organisms":
        shorten()
        with TemporaryDirectory() as folder:  # so that each process finds the worlds made
            do(work, Path(folder), None)
        return None
    return local("gpt_oss") if work == "capture" else local(seed=0)


def log_units(work: str, log: Path, event: Callable[[], None]) -> None:
    """Write a line before each unit of a work, with its name, and call something before and behind it."""
    module_name, name, named = UNITS[work]
    module = sys.modules[module_name]
    unit = getattr(module, name)

    def logged(*arguments: Any, **options: Any) -> Any:
        event()
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "w") as lines:
            lines.write(f"{json.dumps(named(arguments))}\n")
        done = unit(*arguments, **options)
        event()
        return done

    setattr(module, name, logged)


def main(work: str) -> None:
    """Do each task."""
    model = model_of(work)
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            countdown = Countdown(task["number"])
            trace_events(countdown)
            log_units(work, Path(task["log"]), countdown)
            do(work, Path(task["directory"]), model)
            Path(f"{task['directory']}.passed").write_text(str(countdown.passed))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
