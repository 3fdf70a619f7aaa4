"""Agents: anything that answers observations with turns."""

from goalscope.agents.agent import Agent, Observation, Turn, agent_id
from goalscope.agents.build import build_agent
from goalscope.agents.scripted import (
    SCRIPTED,
    EpsilonGreedy,
    Forgetful,
    KeyLured,
    Optimal,
    ScriptedAgent,
    Uniform,
    WrongGoal,
)

__all__ = [
    "SCRIPTED",
    "Agent",
    "EpsilonGreedy",
    "Forgetful",
    "KeyLured",
    "Observation",
    "Optimal",
    "ScriptedAgent",
    "Turn",
    "Uniform",
    "WrongGoal",
    "agent_id",
    "build_agent",
]
