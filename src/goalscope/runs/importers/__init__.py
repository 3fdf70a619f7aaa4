"""Import other people's logs as episodes, and check every recorded label."""

from goalscope.runs.importers.formats import Format, importer
from goalscope.runs.importers.front import import_into, import_path
from goalscope.runs.importers.jsonl_format import write_jsonl
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
