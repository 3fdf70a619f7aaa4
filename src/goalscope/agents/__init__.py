"""Agents: everything that answers observations with turns, from scripted rules to language models."""

from goalscope.agents.agent import Agent, History, Observation, Past, Turn, agent_id, agent_kind, build_agent
from goalscope.agents.chat import ChatAgent, TaskChatAgent
from goalscope.agents.parse import parse_action
from goalscope.agents.prompts import STRATEGIES
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
from goalscope.agents.task_scripted import (
    TASK_SCRIPTED,
    DepthFirst,
    ExploreFirst,
    Greedy,
    NoisyGreedy,
    RandomWalk,
    TaskOracle,
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
