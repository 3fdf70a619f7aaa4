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


_NAMES: Final = {
    "arms": "Arm arm",
    "claims": "Claim ClaimLedger Difference Evaluation",
    "evaluating": "estimate evaluate",
    "evidence": "ArmData Evidence",
    "page": "figure",
    "plan": "Plan",
    "preflight.study_files": "register_studies",
    "rules": "claim",
    "sizing": "Announcement",
    "subject": "Subject subject_of subjects_of",
}
"""Module -> the names that it defines. Modules are imported on first use, since rooms below need few of these names."""

_LATER: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_LATER)


__getattr__ = names_later(__name__, _LATER)
