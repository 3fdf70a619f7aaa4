"""Import other people's logs as episodes, and check every recorded label."""

from goalscope.runs.importers.front import Format, import_into, import_path, importer
from goalscope.runs.importers.jsonl import write_jsonl
from goalscope.runs.importers.problems import MOST_PROBLEMS, Context, ImportLog, ImportProblem

__all__ = [
    "MOST_PROBLEMS",
    "Context",
    "Format",
    "ImportLog",
    "ImportProblem",
    "import_into",
    "import_path",
    "importer",
    "write_jsonl",
]
