"""Reports: tables and figures of a run on one self-contained page."""

from goalscope.report.blocks import Section
from goalscope.report.comparison import Compared, Side, compare_sides
from goalscope.report.engine import lay_out, sections_of
from goalscope.report.estimates import Estimates
from goalscope.report.layouts import by_agent, over_tag
from goalscope.report.ledger import Ledger, build_ledger
from goalscope.report.page import not_measured, write_report
from goalscope.report.run_data import RunData
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
    "lay_out",
    "not_measured",
    "over_tag",
    "section",
    "sections_of",
    "write_report",
]
