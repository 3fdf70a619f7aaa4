"""A model backend without a network: a weighted die that answers every chat with a direction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.agents.models import Message, Reply, Request, Sampling, model_backend

DIRECTIONS = ("UP", "DOWN", "LEFT", "RIGHT")


@model_backend("die")
@dataclass(frozen=True, kw_only=True)
class Die:
    """Answers with the direction that the model is called by, or with any of the four.

    Args:
        model: "up", "down", "left" or "right".
        weight: probability of that direction, in [0, 1].
        name: short name, as tables show it.
    """

    model: str
    weight: float = 0.5
    name: str | None = None

    def __post_init__(self) -> None:
        if self.model.upper() not in DIRECTIONS or not 0 <= self.weight <= 1:
            raise ValueError(f"a die must have a direction and a weight in [0, 1], got {self.model!r}, {self.weight!r}")
        object.__setattr__(self, "name", self.name or f"die({self.model}, {self.weight:g})")

    def describe(self) -> Mapping[str, Any]:
        """Return all that decides what it answers."""
        return {"kind": "die", "version": 1, "model": self.model, "weight": self.weight}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str:
        """Return the text that a model would read."""
        return "\n".join(message.content for message in messages)

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Answer each request from its own random stream."""
        answers = []
        for request in requests:
            rng = request.rng()
            direction = self.model.upper() if rng.random() < self.weight else DIRECTIONS[rng.integers(4)]
            answers.append(Reply.of(json.dumps({"action": direction})))
        return answers
