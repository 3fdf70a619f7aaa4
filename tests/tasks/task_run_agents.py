"""Small studies, agents and models for the tests of runs in task worlds."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goalscope.agents import Observation, Turn
from goalscope.agents.models import Message, Reply, Request, Sampling
from goalscope.runs import Study
from goalscope.worlds import ACTIONS


def task_study(**changes: Any) -> Study:
    """Return a study of three small task maps."""
    return Study.parse(
        {
            "worlds": [{"kind": "task-map", "presets": ["high-small"], "count": 3}],
            "agents": [{"kind": "task-greedy"}],
            "trajectories": 2,
            **changes,
        }
    )


@dataclass(frozen=True)
class TaskDice:
    """Acts at random and fails now and then; a line is written to `log` when a request is begun."""

    name: str = "dice"
    log: Path | None = None
    journalled: bool = True
    largest_batch: int = 1

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "task dice"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        for observation in observations:
            if self.log is not None:
                line = f"{observation.episode_id} {observation.step} {observation.attempt}\n"
                file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(file, line.encode())
                os.close(file)
        return [self._turn(observation) for observation in observations]

    def _turn(self, observation: Observation) -> Turn:
        rng = observation.rng()
        failed = bool(rng.random() < 0.2)
        return Turn(
            action=None if failed else ACTIONS[int(rng.integers(4))],
            failure="no JSON" if failed else None,
            text=f"answer {rng.integers(1000)}",
            usage={"tokens": 3},
        )


@dataclass(frozen=True)
class Parrot:
    """A model that answers with a direction of its own choice, and remembers what it was asked."""

    name: str = "parrot"
    answers: tuple[str, ...] = ('{"action": "up"}', '{"action": "left"}', '{"action": "down"}', '{"action": "right"}')
    asked: list[tuple[Message, ...]] = field(default_factory=list)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "parrot", "answers": list(self.answers)}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        self.asked.extend(request.messages for request in requests)
        return [
            Reply.of(self.answers[int(request.rng().integers(len(self.answers)))], reasoning="well")
            for request in requests
        ]
