"""Maximum-entropy goal-directedness (MEG): how well assuming a utility predicts an agent's actions, in nats."""

from goalscope.goals.meg.causal import CausalModel, Variable
from goalscope.goals.meg.causal_target import (
    CausalMEG,
    InfluenceDiagram,
    meg_target,
    meg_utility,
    pseudo_terminal_goals,
    with_recall,
)
from goalscope.goals.meg.file import FileMEG, meg_of_file
from goalscope.goals.meg.known import (
    CurvePoint,
    Directedness,
    KnownMEG,
    RationalityCurve,
    SharedCurve,
    SharedDirectedness,
    chance_note,
    meg_known,
)
from goalscope.goals.meg.unknown import FeatureMEG, UnknownMEG, join_worlds, meg_features, meg_unknown

__all__ = [
    "CausalMEG",
    "CausalModel",
    "CurvePoint",
    "Directedness",
    "FeatureMEG",
    "FileMEG",
    "InfluenceDiagram",
    "KnownMEG",
    "RationalityCurve",
    "SharedCurve",
    "SharedDirectedness",
    "UnknownMEG",
    "Variable",
    "chance_note",
    "join_worlds",
    "meg_features",
    "meg_known",
    "meg_of_file",
    "meg_target",
    "meg_unknown",
    "meg_utility",
    "pseudo_terminal_goals",
    "with_recall",
]
