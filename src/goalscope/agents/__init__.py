"""Agents: everything that answers observations with turns, from scripted rules to language models."""

from goalscope.agents.agent import Agent, History, Observation, Past, Turn, agent_id, agent_kind, build_agent
from goalscope.agents.chat import ChatAgent, TaskChatAgent
from goalscope.agents.parse import parse_action
from goalscope.agents.prompts import STRATEGIES
from goalscope.agents.scripted import (
    SCRIPTED,
    TASK_SCRIPTED,
    DepthFirst,
    EpsilonGreedy,
    ExploreFirst,
    Forgetful,
    Greedy,
    KeyLured,
    NoisyGreedy,
    Optimal,
    RandomWalk,
    ScriptedAgent,
    SideBiased,
    TaskOracle,
    Uniform,
    WrongGoal,
)

__all__ = [
    "SCRIPTED",
    "STRATEGIES",
    "TASK_SCRIPTED",
    "Agent",
    "ChatAgent",
    "DepthFirst",
    "EpsilonGreedy",
    "ExploreFirst",
    "Forgetful",
    "Greedy",
    "History",
    "KeyLured",
    "NoisyGreedy",
    "Observation",
    "Optimal",
    "Past",
    "RandomWalk",
    "ScriptedAgent",
    "SideBiased",
    "TaskChatAgent",
    "TaskOracle",
    "Turn",
    "Uniform",
    "WrongGoal",
    "agent_id",
    "agent_kind",
    "build_agent",
    "parse_action",
]
