"""Other people's formats: recorded logs to episodes, with every recorded label checked."""

from goalscope.runs.importers.formats import Format, importer
from goalscope.runs.importers.front import import_into, import_path
from goalscope.runs.importers.jsonl_format import write_jsonl
from goalscope.runs.importers.problems import MOST_PROBLEMS, ImportLog, ImportProblem, ImportResult
from goalscope.runs.importers.task_log import ScoredLine, score_task_log

__all__ = [
    "MOST_PROBLEMS",
    "Format",
    "ImportLog",
    "ImportProblem",
    "ImportResult",
    "ScoredLine",
    "import_into",
    "import_path",
    "importer",
    "score_task_log",
    "write_jsonl",
]
