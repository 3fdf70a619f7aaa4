"""One command, one budget, one verdict: what is asked of a model, and what follows from the answers by rule."""

from goalscope.evaluation.claims import Answer, Claim, ClaimLedger, Difference, Evaluation
from goalscope.evaluation.page import figure
from goalscope.evaluation.subject import Subject, subject_of, subjects_of

__all__ = [
    "Answer",
    "Claim",
    "ClaimLedger",
    "Difference",
    "Evaluation",
    "Subject",
    "figure",
    "subject_of",
    "subjects_of",
]
