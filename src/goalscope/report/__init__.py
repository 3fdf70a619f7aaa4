"""Reports: tables and figures of a run on one self-contained page."""

from typing import TYPE_CHECKING, Final

from goalscope._ground.later import names_later

if TYPE_CHECKING:
    from goalscope._ground.words import short as short
    from goalscope.report.blocks import Column as Column
    from goalscope.report.blocks import Curve as Curve
    from goalscope.report.blocks import CurveSpec as CurveSpec
    from goalscope.report.blocks import Declared as Declared
    from goalscope.report.blocks import Figure as Figure
    from goalscope.report.blocks import FoldSpec as FoldSpec
    from goalscope.report.blocks import Line as Line
    from goalscope.report.blocks import MapSpec as MapSpec
    from goalscope.report.blocks import RivalsSentence as RivalsSentence
    from goalscope.report.blocks import Sentence as Sentence
    from goalscope.report.blocks import TableSpec as TableSpec
    from goalscope.report.blocks import by_agent as by_agent
    from goalscope.report.blocks import over_tag as over_tag
    from goalscope.report.blocks import section as section
    from goalscope.report.definitions import definition_of as definition_of
    from goalscope.report.exports import figure as figure
    from goalscope.report.ledger import AgentGroups as AgentGroups
    from goalscope.report.ledger import Estimates as Estimates
    from goalscope.report.ledger import Ledger as Ledger
    from goalscope.report.ledger import RunData as RunData
    from goalscope.report.ledger import build_ledger as build_ledger
    from goalscope.report.ledger import split_probing as split_probing
    from goalscope.report.page import Group as Group
    from goalscope.report.page import lay_out as lay_out
    from goalscope.report.page import not_measured as not_measured
    from goalscope.report.page import render_page as render_page
    from goalscope.report.page import sections_of as sections_of
    from goalscope.report.page import write_page as write_page
    from goalscope.report.page import write_report as write_report

_NAMES: Final = {
    "._ground.words": "short",
    "blocks": "Column Curve CurveSpec Declared Figure FoldSpec Line "
    "MapSpec RivalsSentence Sentence TableSpec by_agent over_tag section",
    "definitions": "definition_of",
    "exports": "figure",
    "ledger": "AgentGroups Estimates Ledger RunData build_ledger split_probing",
    "page": "Group lay_out not_measured render_page sections_of write_page write_report",
}
"""Module -> the names that it defines. Modules are imported on first use, since few commands need all of them."""

_LATER: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_LATER)


__getattr__ = names_later(__name__, _LATER)
