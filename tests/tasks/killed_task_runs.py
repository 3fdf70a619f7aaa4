"""A run in task worlds that kills itself after the number-th answer: inside of the agent, or once it is committed."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from task_run_agents import TaskDice, task_study

from goalscope.agents import Observation, Turn
from goalscope.runs import run
from goalscope.runs.journal import Call, Journal

FAULT, LEFT = sys.argv[3], [int(sys.argv[4])]


def countdown() -> None:
    LEFT[0] -= 1
    if LEFT[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Doomed(TaskDice):
    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        turns = super().act(observations)
        if FAULT == "answer":
            countdown()
        return turns


commit = Journal.done


def done(journal: Journal, answered: Sequence[tuple[Call, Turn]]) -> list[Turn]:
    turns = commit(journal, answered)
    if FAULT == "journalled":
        countdown()
    return turns


Journal.done = done  # type: ignore[method-assign, assignment]
run(task_study(), sys.argv[1], agents=[Doomed(log=Path(sys.argv[2]))], batch=3)
