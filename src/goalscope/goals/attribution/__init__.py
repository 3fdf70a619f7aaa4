"""Attribute goals to an agent by several methods, and freeze the claim before testing it on new worlds.

A method is a function of a `Trial`, registered with `@attribution`. Hypotheses are in `goalscope.goals.hypotheses`.
"""

from goalscope.goals.attribution.claim import (
    FrozenClaim,
    KindPrediction,
    PredictionScore,
    Stratum,
    claim_of,
    freeze_claim,
    judged,
    read_claim,
    scored,
)
from goalscope.goals.attribution.definition import (
    Asking,
    Attribution,
    Looking,
    MixturePart,
    Trial,
    attribution,
    usual_methods,
)
from goalscope.goals.attribution.methods import joint

__all__ = [
    "Asking",
    "Attribution",
    "FrozenClaim",
    "KindPrediction",
    "Looking",
    "MixturePart",
    "PredictionScore",
    "Stratum",
    "Trial",
    "attribution",
    "claim_of",
    "freeze_claim",
    "joint",
    "judged",
    "read_claim",
    "scored",
    "usual_methods",
]
