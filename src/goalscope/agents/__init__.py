"""Agents: everything that answers observations with turns, from scripted rules to language models."""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.agents.agent import Agent as Agent
    from goalscope.agents.agent import History as History
    from goalscope.agents.agent import Observation as Observation
    from goalscope.agents.agent import Past as Past
    from goalscope.agents.agent import Turn as Turn
    from goalscope.agents.agent import agent_id as agent_id
    from goalscope.agents.agent import agent_kind as agent_kind
    from goalscope.agents.agent import build_agent as build_agent
    from goalscope.agents.chat import ChatAgent as ChatAgent
    from goalscope.agents.chat import TaskChatAgent as TaskChatAgent
    from goalscope.agents.parse import parse_action as parse_action
    from goalscope.agents.prompts import STRATEGIES as STRATEGIES
    from goalscope.agents.scripted import SCRIPTED as SCRIPTED
    from goalscope.agents.scripted import TASK_SCRIPTED as TASK_SCRIPTED
    from goalscope.agents.scripted import DepthFirst as DepthFirst
    from goalscope.agents.scripted import EpsilonGreedy as EpsilonGreedy
    from goalscope.agents.scripted import ExploreFirst as ExploreFirst
    from goalscope.agents.scripted import Forgetful as Forgetful
    from goalscope.agents.scripted import Greedy as Greedy
    from goalscope.agents.scripted import KeyLured as KeyLured
    from goalscope.agents.scripted import NoisyGreedy as NoisyGreedy
    from goalscope.agents.scripted import Optimal as Optimal
    from goalscope.agents.scripted import RandomWalk as RandomWalk
    from goalscope.agents.scripted import ScriptedAgent as ScriptedAgent
    from goalscope.agents.scripted import SideBiased as SideBiased
    from goalscope.agents.scripted import TaskOracle as TaskOracle
    from goalscope.agents.scripted import Uniform as Uniform
    from goalscope.agents.scripted import WrongGoal as WrongGoal

_NAMES: Final = {
    "agent": "Agent History Observation Past Turn agent_id agent_kind build_agent",
    "chat": "ChatAgent TaskChatAgent",
    "parse": "parse_action",
    "prompts": "STRATEGIES",
    "scripted": "SCRIPTED TASK_SCRIPTED DepthFirst EpsilonGreedy ExploreFirst Forgetful Greedy "
    "KeyLured NoisyGreedy Optimal RandomWalk ScriptedAgent SideBiased TaskOracle Uniform WrongGoal",
}
"""Module -> the names that it defines. Modules are imported on first use, since few commands need all of them."""

_LATER: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_LATER)


__getattr__ = names_later(__name__, _LATER)
