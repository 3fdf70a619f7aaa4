"""Runs in two threads or processes, with an agent that writes down who acts: `executor_runs.py MODE DIRECTORY`.

Modes are "here" (threads), "whole" (processes) and "slow" (processes that take their time).
It is called as a program: the agent's kind is registered when a worker imports this file, as its main module.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run_agents import Dice, small_study

from goalscope.agents import Observation, Turn, agent_kind
from goalscope.runs import run


@agent_kind("noted-dice")
@dataclass(frozen=True)
class NotedDice(Dice):
    """Writes its process and what it is asked to a file, before it answers."""

    def describe(self) -> dict[str, Any]:
        return {"kind": "noted-dice", "failing": self.failing}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        for seen in observations:
            line = f"{os.getpid()} {seen.episode_id} {seen.step} {seen.attempt}\n"
            file = os.open(Path(os.environ["ACTED_IN"], "acted"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(file, line.encode())
            os.close(file)
        time.sleep(float(os.environ.get("SECONDS_EACH", "0")))
        return [self._turn(seen) for seen in observations]


if __name__ == "__main__":
    mode, directory = sys.argv[1:]
    os.environ["SECONDS_EACH"] = "0.05" if mode == "slow" else "0"
    os.environ["ACTED_IN"] = directory
    Path(directory).mkdir(exist_ok=True)
    study = small_study(agents=[{"kind": "noted-dice", "name": "dice"}])
    done = run(study, directory, executor="threads" if mode == "here" else "processes", workers=2)
    sys.stdout.write(json.dumps(dataclasses.asdict(done)))
