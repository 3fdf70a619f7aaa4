"""Evaluations: ask a model within a budget, and answer fixed questions about it by declared rules."""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope.verdict.arms import Arm as Arm
    from goalscope.verdict.arms import arm as arm
    from goalscope.verdict.claims import Claim as Claim
    from goalscope.verdict.claims import ClaimLedger as ClaimLedger
    from goalscope.verdict.claims import Difference as Difference
    from goalscope.verdict.claims import Evaluation as Evaluation
    from goalscope.verdict.evaluating import estimate as estimate
    from goalscope.verdict.evaluating import evaluate as evaluate
    from goalscope.verdict.evidence import ArmData as ArmData
    from goalscope.verdict.evidence import Evidence as Evidence
    from goalscope.verdict.page import figure as figure
    from goalscope.verdict.plan import Plan as Plan
    from goalscope.verdict.preflight.study_files import register_studies as register_studies
    from goalscope.verdict.rules import claim as claim
    from goalscope.verdict.sizing import Announcement as Announcement
    from goalscope.verdict.subject import Subject as Subject
    from goalscope.verdict.subject import subject_of as subject_of
    from goalscope.verdict.subject import subjects_of as subjects_of


_LATER: Final = {
    "Announcement": "sizing",
    "Arm": "arms",
    "ArmData": "evidence",
    "Claim": "claims",
    "ClaimLedger": "claims",
    "Difference": "claims",
    "Evaluation": "claims",
    "Evidence": "evidence",
    "Plan": "plan",
    "Subject": "subject",
    "arm": "arms",
    "claim": "rules",
    "estimate": "evaluating",
    "evaluate": "evaluating",
    "figure": "page",
    "register_studies": "preflight.study_files",
    "subject_of": "subject",
    "subjects_of": "subject",
}
"""Name -> module that defines it. Modules are imported on first use, since rooms below need few of these names."""

__all__ = [
    "Announcement",
    "Arm",
    "ArmData",
    "Claim",
    "ClaimLedger",
    "Difference",
    "Evaluation",
    "Evidence",
    "Plan",
    "Subject",
    "arm",
    "claim",
    "estimate",
    "evaluate",
    "figure",
    "register_studies",
    "subject_of",
    "subjects_of",
]


__getattr__ = names_later(__name__, _LATER)
