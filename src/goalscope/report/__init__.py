"""Reports: tables and figures of a run on one self-contained page."""

from goalscope._ground.words import short
from goalscope.report.blocks import (
    Column,
    Curve,
    CurveSpec,
    Declared,
    Figure,
    FoldSpec,
    Line,
    MapSpec,
    RivalsSentence,
    Sentence,
    TableSpec,
    by_agent,
    over_tag,
    section,
)
from goalscope.report.definitions import definition_of
from goalscope.report.exports import figure
from goalscope.report.ledger import AgentGroups, Estimates, Ledger, RunData, build_ledger, split_probing
from goalscope.report.page import Group, lay_out, not_measured, render_page, sections_of, write_page, write_report

__all__ = [
    "AgentGroups",
    "Column",
    "Curve",
    "CurveSpec",
    "Declared",
    "Estimates",
    "Figure",
    "FoldSpec",
    "Group",
    "Ledger",
    "Line",
    "MapSpec",
    "RivalsSentence",
    "RunData",
    "Sentence",
    "TableSpec",
    "build_ledger",
    "by_agent",
    "definition_of",
    "figure",
    "lay_out",
    "not_measured",
    "over_tag",
    "render_page",
    "section",
    "sections_of",
    "short",
    "split_probing",
    "write_page",
    "write_report",
]
