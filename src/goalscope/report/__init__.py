"""Reports: tables and figures of a run on one self-contained page."""

from goalscope.report.blocks import Section
from goalscope.report.comparison import Compared, Side, compare_sides
from goalscope.report.definitions import DEFAULT_NETWORK, definition_of
from goalscope.report.engine import lay_out, sections_of
from goalscope.report.estimates import Estimates
from goalscope.report.figures import short
from goalscope.report.layouts import by_agent, over_tag
from goalscope.report.ledger import Ledger, build_ledger
from goalscope.report.page import not_measured, write_report
from goalscope.report.run_data import AgentGroups, RunData, split_probing
from goalscope.report.specs import (
    Column,
    Curve,
    CurveSpec,
    Declared,
    FoldSpec,
    Line,
    MapSpec,
    Sentence,
    TableSpec,
    section,
)

__all__ = [
    "DEFAULT_NETWORK",
    "AgentGroups",
    "Column",
    "Compared",
    "Curve",
    "CurveSpec",
    "Declared",
    "Estimates",
    "FoldSpec",
    "Ledger",
    "Line",
    "MapSpec",
    "RunData",
    "Section",
    "Sentence",
    "Side",
    "TableSpec",
    "build_ledger",
    "by_agent",
    "compare_sides",
    "definition_of",
    "lay_out",
    "not_measured",
    "over_tag",
    "section",
    "sections_of",
    "short",
    "split_probing",
    "write_report",
]
