"""Small agents and studies for the tests of runs."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalscope.agents import Observation, Turn
from goalscope.runs import Study
from goalscope.worlds import ACTIONS


@dataclass(frozen=True)
class Dice:
    """Acts at random, fails now and then, and can write down what it is asked.

    A line is written to `log` when a request is begun; `largest_batch` 1 makes every answer arrive alone.
    """

    name: str = "dice"
    failing: float = 0.2
    journalled: bool = True
    largest_batch: int = 1
    log: Path | None = None
    seconds: float = 0.0

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "dice", "name": self.name, "failing": self.failing}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        for observation in observations:
            self._write(observation)
        if self.seconds:
            time.sleep(self.seconds)
        return [self._turn(observation) for observation in observations]

    def _write(self, observation: Observation) -> None:
        if self.log is not None:
            line = f"{observation.episode_id} {observation.step} {observation.attempt}\n"
            file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(file, line.encode())
            os.close(file)

    def _turn(self, observation: Observation) -> Turn:
        rng = observation.rng()
        text = f"answer {rng.integers(1000)} \u00e9\x00"
        tokens = tuple(int(token) for token in rng.integers(0, 2**32, size=3))
        failed = bool(rng.random() < self.failing)
        return Turn(
            action=None if failed else ACTIONS[int(rng.integers(4))],
            failure="no JSON" if failed else None,
            text=text,
            prompt_tokens=tokens[:2],
            output_tokens=tokens,
            usage={"seconds": time.monotonic(), "tokens": 5},
            extra={"seen": observation.grid.render(), "history": len(observation.history)},
        )


def small_study(**changes: Any) -> Study:
    """Return a study of two small grids with three trajectories each."""
    return Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.5], "count": 2, "minimum_distance": 4}],
            "agents": [{"kind": "optimal"}],
            "trajectories": 3,
            "horizon": {"steps": 8},
            **changes,
        }
    )


def requests(log: Path) -> list[str]:
    """Return the requests that were written down."""
    return log.read_text().splitlines() if log.exists() else []
