"""One command, one budget, one verdict: what is asked of a model, and what follows from the answers by rule."""

from goalscope.evaluation.claims import Claim, ClaimLedger, Difference, Evaluation
from goalscope.evaluation.evaluating import estimate, evaluate
from goalscope.evaluation.page import figure
from goalscope.evaluation.plan import Plan
from goalscope.evaluation.sizing import Announcement
from goalscope.evaluation.subject import Subject, subject_of, subjects_of

__all__ = [
    "Announcement",
    "Claim",
    "ClaimLedger",
    "Difference",
    "Evaluation",
    "Plan",
    "Subject",
    "estimate",
    "evaluate",
    "figure",
    "subject_of",
    "subjects_of",
]
