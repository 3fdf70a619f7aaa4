"""Commands that are attacked, each in a process of its own with bounds on time, memory and the size of files.

Reads tasks (words, folder, seconds, memory) as JSON lines and forks one process for each, since starting Python anew
would take longer than most commands. The output goes to the files `stdout` and `stderr` beside the folder. Prints for
each how it ended: exit status (negative: a signal), whether it was ended for taking too long, seconds, and the bytes of
memory that it used beyond those of this process.

Organisms are made of few lessons and measured in few worlds here, and challenges are small.
"""

import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

LARGEST_FILE = 2**30


def shorten() -> None:
    """Let what takes long work on less.

    Organisms and challenges have few lessons and worlds, the demo has no model, and `reproduce --all` computes the
    tables of one paper only, which need none.
    """
    from samples import STUDY

    from goalscope.cli import running
    from goalscope.organisms import cards, challenge, families, judging, learners
    from goalscope.papers import items, working
    from goalscope.runs import Study

    load = running.load_study
    running.load_study = (  # type: ignore[attr-defined, assignment]
        lambda name, changes=None: Study.parse(STUDY) if name == "demo" else load(name, changes)
    )

    exact = {name: item for name, item in items().items() if name.startswith("exploration table")}
    working.items = lambda: exact  # type: ignore[attr-defined, assignment]
    every: dict[str, Any] = families.FAMILIES  # type: ignore[assignment]
    for name in list(every):
        if name in ("goal", "place"):
            every[name] = replace(every[name], lessons=60)
        else:
            del every[name]
    learners.STEPS, judging.WORLDS = 30, 4  # type: ignore[misc]
    cards.MEASURED, challenge.WORLDS = 8, 12  # type: ignore[misc]
    cards.AGREEMENTS = (0.75,)  # type: ignore[assignment, attr-defined]


PATIENCE = 8
"""Seconds by the clock for each second of processor time that a command may use, since the machine may be busy."""
HEAVY = {"activations", "inspect_ai", "interventions", "models", "openenv", "probing", "theseus", "verifiers"}
"""Packages that import PyTorch or another large library."""


def import_all(*, heavy: bool) -> None:
    """Import all of goalscope once and not in each process; ``heavy``: also what needs large libraries."""
    import goalscope

    for module in pkgutil.walk_packages(goalscope.__path__, "goalscope."):
        if not module.name.endswith("__main__") and (heavy or HEAVY.isdisjoint(module.name.split("."))):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of a package that is not installed
                continue


def work(task: dict[str, Any]) -> None:
    """Be the command; never return."""
    os.setpgid(0, 0)
    folder = Path(task["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder.parent / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    faulthandler.dump_traceback_later(0.9 * PATIENCE * task["seconds"], file=2)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if task["memory"] else 0
    for limit, most in (
        (resource.RLIMIT_AS, in_use + task["memory"] if task["memory"] else resource.RLIM_INFINITY),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    # The hard limit stays, since a bounded process of a command sets one of its own.
    resource.setrlimit(resource.RLIMIT_CPU, (int(task["seconds"]), resource.getrlimit(resource.RLIMIT_CPU)[1]))
    sys.argv = ["goalscope", *task["words"]]
    from goalscope.cli import main

    status: Any = 1
    try:
        main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001  (as the end of a process shows it)
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve() -> None:
    """Do each task."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for line in sys.stdin:
        task = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            work(task)
        ended, pause = 0, 0.002
        while not ended and time.monotonic() - began < PATIENCE * task["seconds"]:
            time.sleep(pause)
            pause = min(0.05, 1.5 * pause)
            ended, status, usage = os.wait4(child, os.WNOHANG)
        late = not ended
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # its own children, too, which may outlive it
        if late:
            _, status, usage = os.wait4(child, 0)
        result = {
            "status": os.waitstatus_to_exitcode(status),
            "late": late or (os.WIFSIGNALED(status) and usage.ru_utime + usage.ru_stime >= int(task["seconds"])),
            "seconds": time.monotonic() - began,
            "memory": max(0, usage.ru_maxrss * 1024 - base),
        }
        sys.stdout.write(f"{json.dumps(result)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import_all(heavy="heavy" in sys.argv[1:])
    shorten()
    gc.collect()
    gc.freeze()  # what is imported is left alone by the commands, which would copy it else
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    serve()
