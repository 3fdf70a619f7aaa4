"""Agents: anything that answers observations with turns."""

from goalscope.agents.agent import Agent, Observation, Turn, agent_id

__all__ = ["Agent", "Observation", "Turn", "agent_id"]
