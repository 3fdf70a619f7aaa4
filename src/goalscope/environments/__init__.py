"""Worlds of others: finite environments, enumerated, solved exactly and played back."""

from goalscope.environments.agents import PolicyAgent
from goalscope.environments.environment import Environment, Observed, Player, StateCopy, environment_kind
from goalscope.environments.missions import WORDS
from goalscope.environments.oracles import oracle
from goalscope.environments.playback import Mismatch, PlayBack, play_back
from goalscope.environments.policies import read_policy, save_policy
from goalscope.environments.search import VisitedStates, believe_visited
from goalscope.environments.solution import SolvedTable, solve_table
from goalscope.environments.table import LIMIT, StateTable, enumerate_states
from goalscope.environments.training import TrainingCurve
from goalscope.environments.world import Believed, EnvironmentView, EnvironmentWorld, believe

__all__ = [
    "LIMIT",
    "WORDS",
    "Believed",
    "Environment",
    "EnvironmentView",
    "EnvironmentWorld",
    "Mismatch",
    "Observed",
    "PlayBack",
    "Player",
    "PolicyAgent",
    "SolvedTable",
    "StateCopy",
    "StateTable",
    "TrainingCurve",
    "VisitedStates",
    "believe",
    "believe_visited",
    "enumerate_states",
    "environment_kind",
    "oracle",
    "play_back",
    "read_policy",
    "save_policy",
    "solve_table",
]
