"""Observations of task worlds, made of a memory and of what the agent said."""

from collections.abc import Sequence
from typing import Any

from goalscope.agents import Observation, Past
from goalscope.worlds.tasks import AgentKnowledge, TaskView


def task_observation(memory: AgentKnowledge, answers: Sequence[str] = (), **given: Any) -> Observation:
    """Return an observation whose earlier steps have these answers."""
    turns = memory.turns[: len(answers)]
    history = tuple(
        Past(view=TaskView(memory=memory, report=report), action=None, text=answer)
        for (_, report), answer in zip(turns, answers, strict=True)
    )
    return Observation(view=TaskView(memory=memory), step=len(memory.turns) - 1, history=history, **given)
