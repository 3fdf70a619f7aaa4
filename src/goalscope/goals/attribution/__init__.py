"""What an agent is after, by several methods: a claim that is frozen before it is tested on worlds that separate.

A method is a function of a `Trial` under `@attribution`. Which hypotheses there are is in `goalscope.goals.hypotheses`.
"""

from goalscope.goals.attribution.claim import (
    FrozenClaim,
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
    PredictedPart,
    Trial,
    attribution,
    usual_methods,
)
from goalscope.goals.attribution.joint import joint

__all__ = [
    "Asking",
    "Attribution",
    "FrozenClaim",
    "Looking",
    "PredictedPart",
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
