"""Other people's formats: recorded logs to episodes, with every recorded label checked."""

from goalscope.importers.front import import_into, import_path
from goalscope.importers.jsonl_format import write_jsonl
from goalscope.importers.problems import MOST_PROBLEMS, ImportResult, Ledger, Problem
from goalscope.importers.recorded import RecordedEpisode, RecordedTurn, model_events, tool_calls
from goalscope.importers.task_log import ScoredLine, score_task_log

__all__ = [
    "MOST_PROBLEMS",
    "ImportResult",
    "Ledger",
    "Problem",
    "RecordedEpisode",
    "RecordedTurn",
    "ScoredLine",
    "import_into",
    "import_path",
    "model_events",
    "score_task_log",
    "tool_calls",
    "write_jsonl",
]
