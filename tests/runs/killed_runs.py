"""Runs that are killed, interrupted or refused, as processes of their own.

Called with a mode and its arguments. "kill" reads tasks (directory, log, fault, number, how) as JSON lines and forks
one process for each, which ends itself at that point: by SIGKILL, or as ``how`` says ("term": SIGTERM; "interrupt":
Ctrl-C, twice):

* "statement": just before the number-th event of the process, the ones that make the file included; an event is an SQL
  statement, a sync, a rename, or the first byte of a new file
* "answer": inside of the agent, after its number-th request went out
* "journalled": after the number-th answer was committed and before it is used
* "making": before the number-th line of the code that makes and opens a run.db; nothing is run
* "local", "http": just before the number-th event of a run of the study beside the directory, on a model here or served
* "measure", "capture", "report", "repair": just before the number-th event of that work on a run that is there
"""

import faulthandler
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from run_agents import Dice, small_study

from goalscope._ground import registry
from goalscope.agents import Observation, Optimal, Turn
from goalscope.cli.measuring import measure_run
from goalscope.runs import Store, Study, opening, run
from goalscope.runs.journal import Call, Journal
from goalscope.runs.repair import repair


def say(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    """Send what Ctrl-C sends, twice, from a thread: what is raised in a callback of SQLite is lost."""

    def send() -> None:
        for _ in range(2):
            time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


SERVED = "served.yaml"
"""The study of a served model; it lies beside the directory of each of its runs."""

ENDS = {"kill": die, "term": lambda: os.kill(os.getpid(), signal.SIGTERM), "interrupt": interrupt}


class Countdown:
    def __init__(self, number: int, how: str = "kill") -> None:
        self.left = number
        self.passed = 0
        self._end = ENDS[how]

    def __call__(self, *_: Any) -> None:
        self.passed += 1
        self.left -= 1
        if self.left == 0:
            self._end()


def trace_events(event: Callable[..., None]) -> None:
    """Call something before each SQL statement, sync, rename and removal, and behind the opening of each new file."""
    connect, sync, make, opens = sqlite3.connect, os.fsync, Path.open, os.open

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(event)
        return connection

    def synced(file: Any) -> None:
        event()
        sync(file)

    def before(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            event()
            return change(*arguments, **options)

        return changed

    def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = make(path, mode, *arguments, **options)
        if mode[0] in "wx":
            event()
        return file

    def opened_number(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        number = opens(path, flags, *arguments, **options)
        if flags & (os.O_CREAT | os.O_TRUNC):
            event()
        return number

    sqlite3.connect = traced  # type: ignore[assignment]
    os.fsync = synced  # type: ignore[assignment]
    os.open = opened_number
    for name in ("replace", "rename", "link", "unlink", "mkdir"):
        setattr(os, name, before(getattr(os, name)))
    Path.open = opened  # type: ignore[assignment, method-assign]


def trace_lines(countdown: Countdown) -> None:
    """Count the lines of `opening`, but for the one that looks through the mounted file systems."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != opening.__file__ or frame.f_code.co_name == "_file_system":
            return None
        if event == "line":
            countdown()
        return trace

    sys.settrace(trace)


@dataclass(frozen=True)
class Doomed(Dice):
    countdown: Countdown | None = None

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        turns = super().act(observations)
        if self.countdown is not None:
            self.countdown()
        return turns


def doomed_run(directory: str, log: str, fault: str, number: int, how: str = "kill") -> int:
    """Run and die at a point; return how many such points were passed where the run ends first."""
    countdown = Countdown(number, how)
    if fault in WORK:
        trace_events(countdown)
        WORK[fault](Path(directory))
        return countdown.passed
    if fault == "making":
        trace_lines(countdown)
        Store(directory, "w").close()
        sys.settrace(None)
        return countdown.passed
    dice = Doomed(log=Path(log))
    if fault == "statement":
        trace_events(countdown)
    elif fault == "answer":
        dice = replace(dice, countdown=countdown)
    else:
        commit = Journal.done

        def done(journal: Journal, answered: Sequence[tuple[Call, Turn]]) -> list[Turn]:
            turns = commit(journal, answered)
            countdown()
            return turns

        Journal.done = done  # type: ignore[method-assign, assignment]
    run(small_study(), directory, agents=[dice, Optimal()], batch=3)
    return countdown.passed


def report(directory: Path) -> None:
    from goalscope.report import write_report

    with Store(directory) as store:
        write_report(store, directory / "report.html")


@cache
def model() -> Any:
    sys.path.append(str(Path(__file__).parents[1] / "models"))
    from server import speaker

    return speaker()


def served(directory: Path) -> Study:
    return Study.load(directory.with_name(SERVED))


def run_local(directory: Path) -> None:
    from http_studies import local_agent

    run(served(directory), directory, agents=[local_agent(model(), served(directory))])


def capture(directory: Path) -> None:
    from goalscope.inside.activations import CaptureSettings
    from goalscope.inside.activations import capture as replay

    settings = CaptureSettings(window=6, batch_tokens=400, shard_bytes=4_000)
    replay(directory, model(), sites=["pre"], layers=[0, 1], settings=settings)


WORK: dict[str, Callable[[Path], Any]] = {
    "local": run_local,
    # One thread: what is called for each statement waits for Python while it holds the lock of SQLite.
    "http": lambda directory: run(served(directory), directory, workers=1),
    "measure": measure_run,
    "capture": capture,
    "report": report,
    "repair": lambda directory: repair(directory, write=True),
}


def kill() -> None:
    for line in sys.stdin:
        task = json.loads(line)
        if task["fault"] == "report":
            import matplotlib.figure  # noqa: F401  (once, not in each child)
        elif task["fault"] in ("local", "http", "capture"):
            model()
        child = os.fork()
        if child == 0:
            # Counts go through a file: the process may be gone at any point.
            try:
                passed = doomed_run(**task)
            except KeyboardInterrupt:
                os._exit(130)
            (Path(task["directory"]) / "passed").write_text(str(passed))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(os.waitstatus_to_exitcode(status))


def slow(directory: str, log: str, seconds: str) -> None:
    """Run with a slow agent; say what an interrupt says, and end with 130."""
    try:
        run(small_study(), directory, agents=[Dice(log=Path(log), seconds=float(seconds)), Optimal()], batch=2)
    except KeyboardInterrupt as stop:
        say(stop)
        sys.exit(130)


def together(folder: str, rounds: str) -> None:
    """Start a command twice at the same moment, round after round; say how each ended, and what it wrote."""
    from typer.testing import CliRunner

    from goalscope.cli import app

    starters = []
    for name in ("one", "two"):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for number in range(int(rounds)):
                words = ["run", f"{folder}/study.yaml", "--out", f"{folder}/{number}"]
                os.write(writing, b"r")
                while not Path(folder, f"go-{number}").exists():
                    time.sleep(0.0005)
                result = CliRunner().invoke(app, words)
                Path(folder, f"{number}-{name}").write_text(f"{result.exit_code} {result.output} {result.exception!r}")
            os._exit(0)
        starters.append((child, reading))
    for number in range(int(rounds)):
        for _, reading in starters:
            os.read(reading, 1)
        Path(folder, f"go-{number}").touch()
    for child, _ in starters:
        os.waitpid(child, 0)


def refused(directory: str) -> None:
    try:
        run(small_study(), directory)
    except BlockingIOError as error:
        say(error)
        sys.exit(3)


def read_only(directory: str) -> None:
    """Read a store as a user who must not write to its directory."""
    folder = Path(directory)
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        registry.names("world")  # its modules may lie where another user cannot read
        os.setuid(65534)
    with Store(folder) as store:
        say(len(list(store.episodes())))


if __name__ == "__main__":
    faulthandler.enable()  # a process that ends by a fault of memory says where
    # Tests run in the background hand SIGINT on as ignored; the process of a user at a terminal has it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    modes: dict[str, Any] = {"kill": kill, "slow": slow, "refused": refused, "read-only": read_only}
    modes["together"] = together
    modes[sys.argv[1]](*sys.argv[2:])
