"""Other people's formats: recorded logs to episodes, with every recorded label checked."""

from goalscope.importers.front import import_into, import_path
from goalscope.importers.jsonl import read_jsonl
from goalscope.importers.jsonl_format import write_jsonl
from goalscope.importers.problems import ImportResult, Problem
from goalscope.importers.telos import read_telos

__all__ = ["ImportResult", "Problem", "import_into", "import_path", "read_jsonl", "read_telos", "write_jsonl"]
