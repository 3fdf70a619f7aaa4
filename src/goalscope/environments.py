"""Worlds of others: finite environments, enumerated, solved exactly and played back; policies of others; the oracle."""

from typing import TYPE_CHECKING, Any

from goalscope.agents.policies import WORDS, PolicyAgent, read_policy, save_policy
from goalscope.worlds.environments.environment import (
    Environment,
    Observed,
    Player,
    StateCopy,
    build,
    environment_kind,
)
from goalscope.worlds.environments.playback import Mismatch, PlayBack, believe_visited, play_back
from goalscope.worlds.environments.solution import (
    LIMIT,
    SolvedTable,
    StateTable,
    VisitedStates,
    enumerate_states,
    solve_table,
)
from goalscope.worlds.environments.world import Believed, EnvironmentView, EnvironmentWorld, believe
from goalscope.worlds.world import Drawing

if TYPE_CHECKING:
    from goalscope.integrations.gymnasium.oracle import oracle
    from goalscope.integrations.gymnasium.training import TrainingCurve

__all__ = [
    "LIMIT",
    "WORDS",
    "Believed",
    "Drawing",
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
    "build",
    "enumerate_states",
    "environment_kind",
    "oracle",
    "play_back",
    "read_policy",
    "save_policy",
    "solve_table",
]


def __getattr__(name: str) -> Any:
    """Import what belongs to the integration of Gymnasium when it is first used."""
    if name == "oracle":
        from goalscope.integrations.gymnasium.oracle import oracle

        return oracle
    if name == "TrainingCurve":
        from goalscope.integrations.gymnasium.training import TrainingCurve

        return TrainingCurve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
