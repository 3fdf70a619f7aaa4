"""An evaluation that kills itself, as a process of its own, forked for each task that is read as a line of JSON.

Tasks: directory, texts (who is evaluated), looks (sizes of the arms, one evaluation after the other), fault, number.
Faults: "event", just before the number-th SQL statement, sync, rename, or first byte of a new file; "answer", once the
number-th answer was committed. A task whose number is never reached ends by itself; beside its directory, NAME.passed
then says how many such points there were.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "runs"))

from killed_runs import Countdown, trace_events

from goalscope.agents import Turn
from goalscope.runs.journal import Journal
from goalscope.verdict import judging, subject_of
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play

SEED = 7


@contextmanager
def quiet(label: str) -> Any:
    """Show no progress."""
    yield lambda *given: None


def evaluated(directory: Path, texts: Sequence[str], looks: Sequence[Mapping[str, int]]) -> Path:
    """Evaluate, with one look after the other; return the path of the ledger."""
    for sizes in looks:
        run = prepare(directory, [subject_of(text) for text in texts], sizes, seed=SEED)
        play(run, quiet)
    with judging.opened(run) as data:
        return judging.write(run, judging.judge(run, data))


def doomed(task: Mapping[str, Any]) -> int:
    """Evaluate and die at a point; return how many such points were passed where the end comes first."""
    countdown = Countdown(task["number"])
    if task["fault"] == "event":
        trace_events(countdown)
    else:
        commit = Journal.done

        def done(journal: Journal, answered: Any) -> list[Turn]:
            kept = commit(journal, answered)
            countdown()
            return kept

        Journal.done = done  # type: ignore[method-assign, assignment]
    evaluated(Path(task["directory"]), task["texts"], task["looks"])
    return countdown.passed


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            number = doomed(asked)
            Path(f"{asked['directory']}.passed").write_text(str(number), encoding="utf-8")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
