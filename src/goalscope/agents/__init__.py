"""Agents: anything that answers observations with turns."""

from goalscope.agents.agent import Agent, History, Observation, Past, Turn, agent_id
from goalscope.agents.build import agent_kind, build_agent
from goalscope.agents.scripted import (
    SCRIPTED,
    EpsilonGreedy,
    Forgetful,
    KeyLured,
    Optimal,
    ScriptedAgent,
    SideBiased,
    Uniform,
    WrongGoal,
)

__all__ = [
    "SCRIPTED",
    "Agent",
    "EpsilonGreedy",
    "Forgetful",
    "History",
    "KeyLured",
    "Observation",
    "Optimal",
    "Past",
    "ScriptedAgent",
    "SideBiased",
    "Turn",
    "Uniform",
    "WrongGoal",
    "agent_id",
    "agent_kind",
    "build_agent",
]
