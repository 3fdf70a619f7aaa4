"""Reports: tables and figures of a run on one self-contained page."""

from goalscope.report.comparison import Compared, Side, compare_sides
from goalscope.report.ledger import Ledger, build_ledger
from goalscope.report.page import not_measured, write_report

__all__ = ["Compared", "Ledger", "Side", "build_ledger", "compare_sides", "not_measured", "write_report"]
